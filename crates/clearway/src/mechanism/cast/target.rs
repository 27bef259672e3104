//! A receiver's directory: everything is done below it, whatever names and links others have put there.
//!
//! # Model
//! The directory is held open. Every path is walked from there, name by name, and no symbolic link is followed. A file is written
//! under a name of its own beside its place (`.clearway-cast-` and a hash of its name) and renamed when it is whole.
//!
//! # Invariants
//! I1. Nothing outside the directory is opened, made, changed or removed.
//! I2. A name that people use never stands for a file that is not whole.

use std::ffi::{OsStr, OsString};
use std::fs::{File, TryLockError};
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use nix::errno::Errno;
use nix::fcntl::{AtFlags, OFlag, openat, readlinkat, renameat};
use nix::sys::stat::{FchmodatFlags, Mode, SFlag, fchmod, fchmodat, fstatat, futimens, mkdirat};
use nix::sys::time::TimeSpec;
use nix::unistd::{UnlinkatFlags, symlinkat, syncfs, unlinkat};

use super::path::{Below, UNFINISHED};
use super::plan::{Modified, hash_of};

/// Of directories while they are filled; they get their own at the end.
const PRIVATE: Mode = Mode::S_IRWXU;
/// Of directories of which the sender says nothing, as far as the user's mask allows.
const USUAL: Mode = Mode::from_bits_truncate(0o777);

/// How long a cast that ends may still write: four objects of 4 MiB on a disk that is slow, or busy.
const LAST_WRITES: Duration = Duration::from_secs(3);
/// How often it is looked whether it has.
const LOOK_EVERY: Duration = Duration::from_millis(10);

/// What is said of a file that another cast has.
const BUSY: &str = "another cast is writing it";

/// An open directory.
pub(super) struct Target {
    root: OwnedFd,
    /// The directory that was last walked to.
    near: Option<(Below, OwnedFd)>,
}

/// What stands at a path.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Found {
    pub(super) kind: FoundKind,
    pub(super) mode: u32,
    pub(super) modified: Modified,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum FoundKind {
    File {
        size: u64,
    },
    Directory,
    /// A symbolic link, a device or the like.
    Other,
}

/// Under what name a file is opened.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Stage {
    /// Its own.
    Whole,
    /// That of what is not whole.
    Unfinished,
}

/// Whether directories on the way are made.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Way {
    Walk,
    /// With these permissions.
    Make(Mode),
}

impl Target {
    /// The directory at `path`, which is made if it is not there.
    ///
    /// # Errors
    /// One sentence, if it cannot be.
    pub(super) fn open(path: &Path) -> Result<Self> {
        if path.metadata().is_ok_and(|found| !found.is_dir()) {
            bail!("{} is a file; a directory is needed", path.display());
        }
        std::fs::create_dir_all(path).with_context(|| format!("{} cannot be made", path.display()))?;
        let root = File::open(path).with_context(|| format!("{} cannot be opened", path.display()))?;
        Ok(Self { root: root.into(), near: None })
    }

    /// The directory at `inner` below `path`, reached without leaving that.
    ///
    /// # Errors
    /// One sentence, if it cannot be.
    pub(super) fn beneath(path: &Path, inner: &Below) -> Result<Self> {
        let mut outer = Self::open(path)?;
        let root = outer.directory(inner, Way::Make(USUAL)).and_then(|directory| directory.try_clone_to_owned());
        let root = root.map_err(|why| anyhow::anyhow!("{inner} below {}: {}", path.display(), reason(&why)))?;
        Ok(Self { root, near: None })
    }

    /// The open directory at `path`.
    fn directory(&mut self, path: &Below, way: Way) -> io::Result<BorrowedFd<'_>> {
        if self.near.as_ref().is_none_or(|(near, _)| near != path) {
            // Paths come in an order in which each is near the one before.
            let (walked, mut at) = match self.near.take() {
                Some((near, at)) if path.is_below(&near) => (near.names().count(), at),
                _ => (0, self.root.try_clone()?),
            };
            for name in path.names().skip(walked) {
                if let Way::Make(mode) = way {
                    match mkdirat(&at, name, mode) {
                        Ok(()) | Err(Errno::EEXIST) => {}
                        Err(error) => return Err(error.into()),
                    }
                }
                let flags = OFlag::O_DIRECTORY | OFlag::O_NOFOLLOW | OFlag::O_CLOEXEC;
                at = openat(&at, name, flags, Mode::empty())?;
            }
            self.near = Some((path.clone(), at));
        }
        Ok(self.near.as_ref().map_or(self.root.as_fd(), |(_, near)| near.as_fd()))
    }

    /// The directory of `path` and its last name there.
    fn parent(&mut self, path: &Below, way: Way) -> io::Result<(BorrowedFd<'_>, OsString)> {
        let (parent, name) = path.split().ok_or(io::ErrorKind::IsADirectory)?;
        let name = name.to_owned();
        Ok((self.directory(&parent, way)?, name))
    }

    /// What stands at `path`, if anything does.
    pub(super) fn find(&mut self, path: &Below) -> io::Result<Option<Found>> {
        let (parent, name) = match self.parent(path, Way::Walk) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
            other => other?,
        };
        let found = match fstatat(parent, name.as_os_str(), AtFlags::AT_SYMLINK_NOFOLLOW) {
            Err(Errno::ENOENT) => return Ok(None),
            other => other?,
        };
        let kind = match SFlag::from_bits_truncate(found.st_mode & SFlag::S_IFMT.bits()) {
            SFlag::S_IFREG => FoundKind::File { size: found.st_size.unsigned_abs() },
            SFlag::S_IFDIR => FoundKind::Directory,
            _ => FoundKind::Other,
        };
        let modified = Modified { seconds: found.st_mtime, nanos: found.st_mtime_nsec as u32 };
        Ok(Some(Found { kind, mode: found.st_mode & 0o777, modified }))
    }

    /// The file at `path`, if there is one, for reading and, while it is not whole, writing. One that is not whole is nobody else's as
    /// long as it is open.
    pub(super) fn file(&mut self, path: &Below, stage: Stage) -> io::Result<Option<File>> {
        let (parent, name) = match self.parent(path, Way::Walk) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
            other => other?,
        };
        let (name, access) = match stage {
            Stage::Whole => (name, OFlag::O_RDONLY),
            Stage::Unfinished => (unfinished(&name), OFlag::O_RDWR),
        };
        // A pipe under this name would be waited for.
        let flags = access | OFlag::O_NOFOLLOW | OFlag::O_CLOEXEC | OFlag::O_NONBLOCK;
        let file = match openat(parent, name.as_os_str(), flags, Mode::empty()) {
            Err(Errno::ENOENT | Errno::ELOOP) => return Ok(None),
            other => File::from(other?),
        };
        let found = file.metadata()?;
        if !found.is_file() {
            return Ok(None);
        }
        if stage == Stage::Unfinished {
            lock(&file)?;
            // Whoever had it before may have given it its name meanwhile.
            let now = fstatat(parent, name.as_os_str(), AtFlags::AT_SYMLINK_NOFOLLOW);
            if !now.is_ok_and(|now| (now.st_dev, now.st_ino) == (found.dev(), found.ino())) {
                return Err(io::Error::other(BUSY));
            }
        }
        Ok(Some(file))
    }

    /// A new, empty file that is not whole yet, and nobody else's as long as it is open.
    pub(super) fn create(&mut self, path: &Below) -> io::Result<File> {
        let (parent, name) = self.parent(path, Way::Make(PRIVATE))?;
        let flags = OFlag::O_RDWR | OFlag::O_CREAT | OFlag::O_EXCL | OFlag::O_NOFOLLOW | OFlag::O_CLOEXEC;
        let file = match openat(parent, unfinished(&name).as_os_str(), flags, Mode::S_IRUSR | Mode::S_IWUSR) {
            Err(Errno::EEXIST) => return Err(io::Error::other(BUSY)),
            other => File::from(other?),
        };
        lock(&file)?;
        Ok(file)
    }

    /// Puts the unfinished file of `path` into its place.
    pub(super) fn appear(&mut self, path: &Below) -> io::Result<()> {
        let (parent, name) = self.parent(path, Way::Walk)?;
        Ok(renameat(parent, unfinished(&name).as_os_str(), parent, name.as_os_str())?)
    }

    /// Removes the unfinished file of `path`, if there is one.
    pub(super) fn forget(&mut self, path: &Below) {
        if let Ok((parent, name)) = self.parent(path, Way::Walk) {
            let _ = unlinkat(parent, unfinished(&name).as_os_str(), UnlinkatFlags::NoRemoveDir);
        }
    }

    /// Gives the file at `path` the permissions `mode`.
    pub(super) fn permit(&mut self, path: &Below, mode: u32) -> io::Result<()> {
        let (parent, name) = self.parent(path, Way::Walk)?;
        let mode = Mode::from_bits_truncate(mode);
        Ok(fchmodat(parent, name.as_os_str(), mode, FchmodatFlags::NoFollowSymlink)?)
    }

    /// A symbolic link at `path`.
    pub(super) fn link(&mut self, path: &Below, to: &OsStr) -> io::Result<()> {
        let (parent, name) = self.parent(path, Way::Make(PRIVATE))?;
        if readlinkat(parent, name.as_os_str()).is_ok_and(|there| there == to) {
            return Ok(());
        }
        let beside = unfinished(&name);
        let _ = unlinkat(parent, beside.as_os_str(), UnlinkatFlags::NoRemoveDir);
        symlinkat(to, parent, beside.as_os_str())?;
        Ok(renameat(parent, beside.as_os_str(), parent, name.as_os_str())?)
    }

    /// A directory at `path`, that may have been there.
    pub(super) fn make(&mut self, path: &Below) -> io::Result<()> {
        self.directory(path, Way::Make(PRIVATE)).map(drop)
    }

    /// Gives the directory at `path` what it shall have in the end.
    pub(super) fn close(&mut self, path: &Below, mode: u32, modified: Modified) -> io::Result<()> {
        let directory = self.directory(path, Way::Walk)?;
        fchmod(directory, Mode::from_bits_truncate(mode))?;
        Ok(set_times(directory, modified)?)
    }

    /// Returns when everything written so far would survive the end of the machine.
    pub(super) fn sync(&self) -> io::Result<()> {
        Ok(syncfs(&self.root)?)
    }
}

/// Keeps other casts from writing to the same file. One whose sender is gone ends soon, and is waited for.
fn lock(file: &File) -> io::Result<()> {
    let until = Instant::now() + LAST_WRITES;
    loop {
        match file.try_lock() {
            // Some network file systems have no locks.
            Ok(()) | Err(TryLockError::Error(_)) => return Ok(()),
            Err(TryLockError::WouldBlock) if Instant::now() >= until => return Err(io::Error::other(BUSY)),
            Err(TryLockError::WouldBlock) => thread::sleep(LOOK_EVERY),
        }
    }
}

/// Gives a file the time at which it was changed.
pub(super) fn set_times(file: impl AsFd, modified: Modified) -> nix::Result<()> {
    let time = TimeSpec::new(modified.seconds, modified.nanos.min(999_999_999).into());
    futimens(file, &TimeSpec::UTIME_OMIT, &time)
}

/// The name of the file `name` while it is not whole: the same each time, so that it is found again.
fn unfinished(name: &OsStr) -> OsString {
    use std::os::unix::ffi::OsStrExt;
    let hash = hash_of(name.as_bytes());
    let digits: String = hash.iter().take(8).map(|byte| format!("{byte:02x}")).collect();
    OsString::from(format!("{UNFINISHED}{digits}"))
}

/// Why something could not be done, without the number of the error.
pub(super) fn reason(error: &io::Error) -> String {
    match error.raw_os_error().map(Errno::from_raw) {
        Some(Errno::ELOOP | Errno::ENOTDIR) => "a file or a symbolic link is where a directory shall be".to_owned(),
        Some(errno) => errno.desc().to_owned(),
        None => error.to_string(),
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::{PermissionsExt, symlink};

    use super::*;

    #[test]
    fn file__one_that_another_cast_is_about_to_leave_is_waited_for() {
        let directory = std::env::temp_dir().join(format!("clearway-leaves-{}", std::process::id()));
        let (mut one, mut other) = [(); 2].map(|()| Target::open(&directory).expect("a target")).into();
        let name = Below::read("name").expect("a name");
        let begun = one.create(&name).expect("made");
        let waits = thread::spawn(move || other.file(&name, Stage::Unfinished).map(|file| file.is_some()));
        drop(begun);
        assert!(waits.join().expect("no panic").expect("not busy"));
        std::fs::remove_dir_all(directory).expect("to remove it");
    }

    #[test]
    fn permit__what_a_link_points_to_keeps_its_permissions() {
        let outside = std::env::temp_dir().join(format!("clearway-permit-{}", std::process::id()));
        let inside = outside.join("target");
        std::fs::create_dir_all(&inside).expect("a directory");
        std::fs::write(outside.join("kept"), b"").expect("a file");
        let kept = || outside.join("kept").metadata().expect("it is there").permissions().mode();
        let before = kept();
        symlink("../kept", inside.join("name")).expect("a link");
        let mut target = Target::open(&inside).expect("a target");
        let name = Below::read("name").expect("a name");
        let _ = target.permit(&name, 0o4);
        assert_eq!(kept(), before);
        std::fs::remove_dir_all(outside).expect("to remove it");
    }
}
