//! A receiver's directory: everything is done below it, whatever names and links others have put
//! there.
//!
//! # Model
//! The directory is held open. Every path is walked from there, name by name, and no symbolic link
//! is followed. A file is written under a name of its own next to its place (`naming`) and renamed
//! when it is whole.
//!
//! A directory is *shared* when others may write to it: they put files, links and directories there
//! under any name that they know.
//!
//! # Invariants
//! I1. Nothing outside the directory is opened, made, changed or removed.
//! I2. A name that people use never stands for a file that is not whole.
//! I3. What another user put into a shared directory is neither written to nor taken for what was
//!     sent.

use std::collections::BTreeSet;
use std::ffi::{OsStr, OsString};
use std::fs::{File, TryLockError};
use std::hash::{DefaultHasher, Hash, Hasher};
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::path::{Component, Path};
use std::thread;
use std::time::{Duration, Instant, SystemTime};

use anyhow::{Context, Result, bail};
use nix::errno::Errno;
use nix::fcntl::{AtFlags, OFlag, openat, readlinkat, renameat};
use nix::sys::stat::{
    FchmodatFlags, FileStat, Mode, SFlag, fchmod, fchmodat, fstat, fstatat, futimens, mkdirat,
};
use nix::sys::time::TimeSpec;
use nix::unistd::{UnlinkatFlags, geteuid, symlinkat, syncfs, unlinkat};
use rustix::fs::{Dir, StatxAttributes, StatxFlags, statx};

use super::exclusion::NameKind;
use super::message::TargetAccess;
use super::naming::TemporaryNames;
use super::path::{RelativePath, is_unfinished};
use super::plan::Modified;

/// Of directories while they are filled; they get their own at the end.
const PRIVATE: Mode = Mode::S_IRWXU;
/// Of directories of which the sender says nothing, as far as the user's mask allows.
const USUAL: Mode = Mode::from_bits_truncate(0o777);

/// How long a cast that ends may still write: four objects of 4 MiB on a disk that is slow, or
/// busy.
const LAST_WRITES: Duration = Duration::from_secs(if cfg!(test) { 1 } else { 3 });
/// How often it is looked whether it has.
const LOOK_EVERY: Duration = Duration::from_millis(10);

/// Directories of which it is looked whether another target lies in them: one with its path.
pub(super) const DEPTH_MAX: usize = 256;

/// What is said of a file that another cast has.
const BUSY: &str = "another cast is writing it";
/// Names that are tried for one file, each of which another user can only have learned from an
/// earlier cast.
const ATTEMPTS: u32 = 16;
/// Sentences that are kept.
const NOTES_MAX: usize = 20;

/// An open directory.
pub(super) struct TargetDirectory {
    /// `None` if it does not exist, and this cast must not create it.
    root: Option<OwnedFd>,
    /// Where there is none: the nearest directory around it, and the names from there to it.
    around: Option<(OwnedFd, Vec<OsString>)>,
    access: TargetAccess,
    naming: TemporaryNames,
    /// What somebody should know, a sentence each.
    pub(super) notes: Vec<String>,
    /// The directory that was last walked to.
    near: Option<(RelativePath, OwnedFd)>,
    /// Directories of this user without the permission to write, which they have until the end, and
    /// what they had.
    opened: Vec<(RelativePath, Mode)>,
}

/// A name in a directory.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct ListedName {
    pub(super) name: Vec<u8>,
    pub(super) kind: NameKind,
    /// Something is mounted there.
    pub(super) is_mounted: bool,
}

/// What stands at a path.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct FoundEntry {
    pub(super) kind: FoundKind,
    pub(super) mode: u32,
    pub(super) modified: Modified,
    /// Somebody else may have put it there.
    pub(super) is_foreign: bool,
}

/// A file that is not whole, open, and the name that it has until then.
pub(super) struct TemporaryFile {
    pub(super) file: File,
    name: OsString,
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

/// Whether directories on the way are made.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum MissingParents {
    Walk,
    /// And the last one is one that this user writes to.
    Write,
    /// Nor are those opened that this user has no right to walk.
    Look,
    /// With these permissions.
    Make(Mode),
}

impl TargetDirectory {
    /// Opens the directory at `path`, which is made if it is not there.
    ///
    /// # Errors
    /// One sentence, if it cannot be.
    pub(super) fn open(path: &Path) -> Result<Self> {
        Self::open_for(path, TargetAccess::Change)
    }

    /// Opens the directory at `path`, which is made if it is not there and may be.
    ///
    /// # Errors
    /// One sentence, if it cannot be.
    pub(super) fn open_for(path: &Path, access: TargetAccess) -> Result<Self> {
        if path.metadata().is_ok_and(|found| !found.is_dir()) {
            bail!("{} is a file; a directory is needed", path.display());
        }
        if access == TargetAccess::Change {
            std::fs::create_dir_all(path)
                .with_context(|| format!("{} cannot be made", path.display()))?;
        }
        let root = match File::open(path) {
            Err(error) if is_absent(&error, access) => None,
            other => {
                Some(other.with_context(|| format!("{} cannot be opened", path.display()))?.into())
            }
        };
        let naming = match access {
            TargetAccess::Change => TemporaryNames::open(),
            TargetAccess::Look => TemporaryNames::look(),
        };
        let around = if root.is_none() { nearest(path) } else { None };
        Ok(Self { root, around, access, naming, notes: Vec::new(), near: None, opened: Vec::new() })
    }

    /// Opens the directory at `inner` below `path`, reached without leaving that.
    ///
    /// # Errors
    /// One sentence, if it cannot be.
    pub(super) fn beneath(path: &Path, inner: &RelativePath, access: TargetAccess) -> Result<Self> {
        let mut outer = Self::open_for(path, access)?;
        let root = outer
            .directory(inner, MissingParents::Make(USUAL))
            .and_then(|directory| directory.try_clone_to_owned());
        let root = match root {
            Err(error) if is_absent(&error, access) => None,
            Err(why) => bail!("{inner} below {}: {}", path.display(), reason(&why)),
            Ok(root) => Some(root),
        };
        if root.is_none() {
            outer.around = outer.around_inner(inner);
        }
        outer.restore();
        outer.near = None;
        outer.root = root;
        Ok(outer)
    }

    /// Returns the nearest directory around that at `inner`, which is absent, and the names from
    /// there to it.
    fn around_inner(&mut self, inner: &RelativePath) -> Option<(OwnedFd, Vec<OsString>)> {
        let names: Vec<OsString> = inner.names().map(OsStr::to_owned).collect();
        if let Some((directory, before)) = self.around.take() {
            return Some((directory, [before, names].concat()));
        }
        (0..names.len()).rev().find_map(|count| {
            let (present, absent) = names.split_at_checked(count)?;
            let outer = RelativePath::from_names(present.iter().map(|name| name.as_bytes()))?;
            let directory = self.directory(&outer, MissingParents::Look).ok()?;
            Some((directory.try_clone_to_owned().ok()?, absent.to_vec()))
        })
    }

    /// Returns whether nothing may be changed.
    pub(super) fn only_looks(&self) -> bool {
        self.access == TargetAccess::Look
    }

    /// Returns the open directory itself.
    fn root(&self) -> io::Result<&OwnedFd> {
        self.root.as_ref().ok_or_else(|| io::ErrorKind::NotFound.into())
    }

    /// Returns the open directory at `path`.
    fn directory(
        &mut self,
        path: &RelativePath,
        way: MissingParents,
    ) -> io::Result<BorrowedFd<'_>> {
        let way = if self.only_looks() { MissingParents::Look } else { way };
        if self.near.as_ref().is_none_or(|(near, _)| near != path) {
            // Paths come in an order in which each is near the one before.
            let (walked, mut at) = match self.near.take() {
                Some((near, at)) if path.is_below(&near) => (near.names().count(), at),
                _ => (0, self.root()?.try_clone()?),
            };
            let names: Vec<&OsStr> = path.names().collect();
            for count in walked..names.len() {
                let before = || {
                    RelativePath::from_names(names[..count].iter().map(|name| name.as_bytes()))
                        .unwrap_or_default()
                };
                at = enter(&at, names[count], way, before, &mut self.opened)?;
            }
            self.near = Some((path.clone(), at));
        }
        let (_, near) = self.near.as_ref().ok_or(io::ErrorKind::NotFound)?;
        let near = near.as_fd();
        if matches!(way, MissingParents::Make(_) | MissingParents::Write) {
            open_up(near, || path.clone(), &mut self.opened)?;
        }
        Ok(near)
    }

    /// Returns the directory of `path` and its last name there.
    fn parent(
        &mut self,
        path: &RelativePath,
        way: MissingParents,
    ) -> io::Result<(BorrowedFd<'_>, OsString)> {
        let (parent, name) = path.split().ok_or(io::ErrorKind::IsADirectory)?;
        let name = name.to_owned();
        Ok((self.directory(&parent, way)?, name))
    }

    /// Returns what stands at `path`, if anything does.
    pub(super) fn find(&mut self, path: &RelativePath) -> io::Result<Option<FoundEntry>> {
        let (parent, name) = match self.parent(path, MissingParents::Walk) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
            other => other?,
        };
        let found = match fstatat(parent, name.as_os_str(), AtFlags::AT_SYMLINK_NOFOLLOW) {
            Err(Errno::ENOENT) => return Ok(None),
            other => other?,
        };
        let kind = match kind_of(&found) {
            SFlag::S_IFREG => FoundKind::File { size: found.st_size.unsigned_abs() },
            SFlag::S_IFDIR => FoundKind::Directory,
            _ => FoundKind::Other,
        };
        let modified = Modified { seconds: found.st_mtime, nanos: found.st_mtime_nsec as u32 };
        let is_foreign = is_shared(&fstat(parent)?) && found.st_uid != geteuid().as_raw();
        Ok(Some(FoundEntry { kind, mode: found.st_mode & 0o7777, modified, is_foreign }))
    }

    /// Opens the file at `path`, if there is one, for reading.
    pub(super) fn whole(&mut self, path: &RelativePath) -> io::Result<Option<File>> {
        let (parent, name) = match self.parent(path, MissingParents::Walk) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
            other => other?,
        };
        // A pipe under this name would be waited for.
        let flags = OFlag::O_RDONLY | OFlag::O_NOFOLLOW | OFlag::O_CLOEXEC | OFlag::O_NONBLOCK;
        let file = match openat(parent, name.as_os_str(), flags, Mode::empty()) {
            // What cannot be read is replaced.
            Err(Errno::ENOENT | Errno::ELOOP | Errno::EACCES) => return Ok(None),
            other => File::from(other?),
        };
        Ok(file.metadata()?.is_file().then_some(file))
    }

    /// Opens the unfinished file of `path` that this user has begun, if there is one. It is nobody
    /// else's as long as it is open.
    pub(super) fn begun(&mut self, path: &RelativePath) -> io::Result<Option<TemporaryFile>> {
        let (naming, only_looks) = (self.naming, self.only_looks());
        let access = if only_looks { OFlag::O_RDONLY } else { OFlag::O_RDWR };
        let (parent, name) = match self.parent(path, MissingParents::Walk) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
            other => other?,
        };
        let directory = fstat(parent)?.st_ino;
        // A cast that has it may give it its name while it is waited for: then it is looked for
        // once more.
        for attempt in (0..ATTEMPTS).flat_map(|attempt| [attempt; 2]) {
            let name = naming.name(directory, &name, attempt);
            let flags = access | OFlag::O_NOFOLLOW | OFlag::O_CLOEXEC | OFlag::O_NONBLOCK;
            let file = match openat(parent, name.as_os_str(), flags, Mode::empty()) {
                Err(Errno::ENOENT) => return Ok(None),
                Err(Errno::EACCES) if only_looks => return Ok(None),
                Err(Errno::EACCES) => {
                    let found = fstatat(parent, name.as_os_str(), AtFlags::AT_SYMLINK_NOFOLLOW);
                    if !found.is_ok_and(|found| is_own(&found)) {
                        continue;
                    }
                    // It was about to appear, with its permissions, when its cast ended.
                    unlinkat(parent, name.as_os_str(), UnlinkatFlags::NoRemoveDir)?;
                    return Ok(None);
                }
                // Nothing that was made here: a link, a directory, a pipe.
                Err(Errno::ELOOP | Errno::EISDIR | Errno::ENXIO) => continue,
                other => File::from(other?),
            };
            if !is_own(&fstat(&file)?) {
                continue;
            }
            if !only_looks {
                lock(&file)?;
            }
            if is_at(parent, &name, &file) {
                return Ok(Some(TemporaryFile { file, name }));
            }
        }
        Ok(None)
    }

    /// Creates a new, empty file that is not whole yet, and nobody else's as long as it is open.
    pub(super) fn create(&mut self, path: &RelativePath) -> io::Result<TemporaryFile> {
        let naming = self.naming;
        let (parent, name) = self.parent(path, MissingParents::Make(PRIVATE))?;
        let directory = fstat(parent)?.st_ino;
        for attempt in 0..ATTEMPTS {
            let name = naming.name(directory, &name, attempt);
            let flags = OFlag::O_RDWR
                | OFlag::O_CREAT
                | OFlag::O_EXCL
                | OFlag::O_NOFOLLOW
                | OFlag::O_CLOEXEC;
            match openat(parent, name.as_os_str(), flags, Mode::S_IRUSR | Mode::S_IWUSR) {
                Ok(file) => {
                    let file = File::from(file);
                    lock(&file)?;
                    self.note_planted(path, attempt);
                    return Ok(TemporaryFile { file, name });
                }
                Err(Errno::EEXIST) => {
                    let found = fstatat(parent, name.as_os_str(), AtFlags::AT_SYMLINK_NOFOLLOW);
                    if found.is_ok_and(|found| is_own(&found)) {
                        return Err(io::Error::other(BUSY));
                    }
                }
                Err(error) => return Err(error.into()),
            }
        }
        Err(io::Error::other(
            "another user has taken all names for it while it is not whole; cast into a directory of your own",
        ))
    }

    fn note_planted(&mut self, path: &RelativePath, names: u32) {
        if names > 0 {
            self.note(format!(
                "{path}: another user had put something under the name of its unfinished file; another name was used"
            ));
        }
    }

    /// Keeps a sentence for the sender.
    fn note(&mut self, note: String) {
        if self.notes.len() < NOTES_MAX {
            self.notes.push(note);
        }
    }

    /// Puts the unfinished file of `path` into its place.
    pub(super) fn appear(
        &mut self,
        path: &RelativePath,
        unfinished: &TemporaryFile,
    ) -> io::Result<()> {
        let TemporaryFile { file, name: from } = unfinished;
        let (parent, name) = self.parent(path, MissingParents::Walk)?;
        if !is_at(parent, from, file) {
            return Err(io::Error::other("another user has moved its unfinished file away"));
        }
        match renameat(parent, from.as_os_str(), parent, name.as_os_str()) {
            Err(Errno::EPERM) => {
                return Err(io::Error::other(
                    "another user has a file there that cannot be replaced",
                ));
            }
            other => other?,
        }
        if !is_at(parent, &name, file) {
            return Err(io::Error::other("another user has put something else in its place"));
        }
        Ok(())
    }

    /// Removes the unfinished file of `path`, if there is one.
    pub(super) fn forget(&mut self, path: &RelativePath) {
        let naming = self.naming;
        let Ok((parent, name)) = self.parent(path, MissingParents::Walk) else { return };
        let Ok(directory) = fstat(parent) else { return };
        for attempt in 0..ATTEMPTS {
            let name = naming.name(directory.st_ino, &name, attempt);
            match fstatat(parent, name.as_os_str(), AtFlags::AT_SYMLINK_NOFOLLOW) {
                Ok(found) if is_own(&found) => {
                    let _ = unlinkat(parent, name.as_os_str(), UnlinkatFlags::NoRemoveDir);
                }
                Ok(_) => {}
                Err(_) => return,
            }
        }
    }

    /// Returns all names in the directory at `path`.
    pub(super) fn list(&mut self, path: &RelativePath) -> io::Result<Vec<ListedName>> {
        let directory = self.directory(path, MissingParents::Walk)?;
        let device = fstat(directory)?.st_dev;
        let mut names = Vec::new();
        for one in Dir::read_from(directory)? {
            let one = one?;
            let name = one.file_name();
            if matches!(name.to_bytes(), b"." | b"..") {
                continue;
            }
            match fstatat(directory, name, AtFlags::AT_SYMLINK_NOFOLLOW) {
                Err(Errno::ENOENT) => {}
                found => {
                    let found = found?;
                    names.push(ListedName {
                        name: name.to_bytes().to_vec(),
                        kind: NameKind::from_directory(kind_of(&found) == SFlag::S_IFDIR),
                        is_mounted: found.st_dev != device || is_mount_point(directory, name),
                    });
                }
            }
        }
        Ok(names)
    }

    /// Removes the name at `path`: a directory that is empty but for what this user has not
    /// finished, or what is none.
    pub(super) fn remove(&mut self, path: &RelativePath, kind: NameKind) -> io::Result<()> {
        let flag = match kind {
            NameKind::Other => UnlinkatFlags::NoRemoveDir,
            NameKind::Directory => {
                self.sweep(path, None, &mut std::iter::empty());
                UnlinkatFlags::RemoveDir
            }
        };
        let (parent, name) = self.parent(path, MissingParents::Write)?;
        Ok(unlinkat(parent, name.as_os_str(), flag)?)
    }

    /// Returns what tells its directory, and then each that it is in, from others of the machine;
    /// also those that a cast would make.
    pub(super) fn places(&self) -> io::Result<Vec<(u64, u64)>> {
        let (root, absent) = match (&self.root, &self.around) {
            (Some(root), _) => (root, &[][..]),
            (None, Some((directory, names))) => (directory, names.as_slice()),
            (None, None) => return Ok(Vec::new()),
        };
        let place =
            |directory: &OwnedFd| fstat(directory).map(|found| (found.st_dev, found.st_ino));
        let outer = place(root)?;
        let counts = (1..=absent.len()).rev().take(DEPTH_MAX - 1);
        let mut places: Vec<_> = counts
            .filter_map(|count| Some(absent_place(outer, absent.get(..count)?)))
            .chain([outer])
            .collect();
        let flags = OFlag::O_PATH | OFlag::O_DIRECTORY | OFlag::O_CLOEXEC;
        let mut at = openat(root, ".", flags, Mode::empty())?;
        while places.len() < DEPTH_MAX {
            // Above a directory that this user may not search nobody looks.
            let Ok(outer) = openat(&at, "..", flags, Mode::empty()) else { break };
            let found = place(&outer)?;
            if places.last() == Some(&found) {
                break;
            }
            places.push(found);
            at = outer;
        }
        Ok(places)
    }

    /// Returns whether the name at `path` is a symbolic link to `to`.
    pub(super) fn is_link_to(&mut self, path: &RelativePath, to: &OsStr) -> bool {
        let parent = self.parent(path, MissingParents::Walk);
        parent.is_ok_and(|(parent, name)| {
            readlinkat(parent, name.as_os_str()).is_ok_and(|there| there == to)
        })
    }

    /// Removes what this user began in the directory at `path` and no cast is writing; but for
    /// `kept`, files there that are not whole, and what was written to since `before`.
    pub(super) fn sweep(
        &mut self,
        path: &RelativePath,
        before: Option<SystemTime>,
        kept: &mut dyn Iterator<Item = OsString>,
    ) {
        let naming = self.naming;
        let Ok(directory) = self.directory(path, MissingParents::Walk) else { return };
        let (Ok(listed), Ok(found)) = (Dir::read_from(directory), fstat(directory)) else { return };
        let names = listed.filter_map(Result::ok).map(|one| one.file_name().to_bytes().to_vec());
        let begun: Vec<Vec<u8>> = names.filter(|name| is_unfinished(name)).collect();
        if begun.is_empty() {
            return;
        }
        let names = kept.flat_map(|name| {
            (0..ATTEMPTS).map(move |attempt| naming.name(found.st_ino, &name, attempt))
        });
        let kept: BTreeSet<OsString> = names.collect();
        for name in
            begun.iter().map(|name| OsStr::from_bytes(name)).filter(|name| !kept.contains(*name))
        {
            if is_left(directory, name, before) {
                let _ = unlinkat(directory, name, UnlinkatFlags::NoRemoveDir);
            }
        }
    }

    /// Gives the file at `path` the permissions `mode`.
    pub(super) fn permit(&mut self, path: &RelativePath, mode: u32) -> io::Result<()> {
        if self.only_looks() {
            return Ok(());
        }
        let (parent, name) = self.parent(path, MissingParents::Walk)?;
        let mode = Mode::from_bits_truncate(mode);
        Ok(fchmodat(parent, name.as_os_str(), mode, FchmodatFlags::NoFollowSymlink)?)
    }

    /// Makes a symbolic link at `path`.
    pub(super) fn link(&mut self, path: &RelativePath, to: &OsStr) -> io::Result<()> {
        let naming = self.naming;
        let is_foreign = self.find(path)?.is_some_and(|found| found.is_foreign);
        let (parent, name) = self.parent(path, MissingParents::Make(PRIVATE))?;
        if !is_foreign && readlinkat(parent, name.as_os_str()).is_ok_and(|there| there == to) {
            return Ok(());
        }
        let directory = fstat(parent)?.st_ino;
        for attempt in 0..ATTEMPTS {
            let temporary = naming.name(directory, &name, attempt);
            // What this user left there; anybody else's stays in a directory that keeps users
            // apart.
            let _ = unlinkat(parent, temporary.as_os_str(), UnlinkatFlags::NoRemoveDir);
            match symlinkat(to, parent, temporary.as_os_str()) {
                Err(Errno::EEXIST) => {}
                Err(error) => return Err(error.into()),
                Ok(()) => {
                    renameat(parent, temporary.as_os_str(), parent, name.as_os_str())?;
                    self.note_planted(path, attempt);
                    return Ok(());
                }
            }
        }
        Err(io::Error::other(BUSY))
    }

    /// Makes a directory at `path`, that may have been there; or sees that it could be made.
    pub(super) fn make(&mut self, path: &RelativePath) -> io::Result<()> {
        let access = self.access;
        match self.directory(path, MissingParents::Make(PRIVATE)) {
            Err(error) if is_absent(&error, access) => Ok(()),
            other => other.map(drop),
        }
    }

    /// Gives the directory at `path` what it is to have in the end.
    pub(super) fn close(
        &mut self,
        path: &RelativePath,
        mode: u32,
        modified: Modified,
    ) -> io::Result<()> {
        let directory = self.directory(path, MissingParents::Walk)?;
        fchmod(directory, Mode::from_bits_truncate(mode))?;
        set_times(directory, modified)?;
        self.opened.retain(|(opened, _)| opened != path);
        Ok(())
    }

    /// Gives directories back the permissions that they had.
    pub(super) fn restore(&mut self) {
        for (path, mode) in std::mem::take(&mut self.opened).into_iter().rev() {
            if let Ok(directory) = self.directory(&path, MissingParents::Walk) {
                let _ = fchmod(directory, mode);
            }
        }
    }

    /// Returns when everything written so far would survive the end of the machine.
    pub(super) fn sync(&self) -> io::Result<()> {
        Ok(syncfs(self.root()?)?)
    }
}

impl Drop for TargetDirectory {
    fn drop(&mut self) {
        self.restore();
    }
}

/// Returns the nearest directory around `path`, which is absent, and the names from there to it;
/// nothing where that cannot be known.
fn nearest(path: &Path) -> Option<(OwnedFd, Vec<OsString>)> {
    let (outer, directory) = path.ancestors().skip(1).find_map(|outer| {
        let shown = if outer.as_os_str().is_empty() { Path::new(".") } else { outer };
        Some((outer, File::open(shown).ok()?))
    })?;
    let mut names = Vec::new();
    for part in path.strip_prefix(outer).ok()?.components() {
        match part {
            Component::Normal(name) => names.push(name.to_owned()),
            Component::ParentDir => drop(names.pop()?),
            _ => {}
        }
    }
    Some((directory.into(), names))
}

/// Returns an identity for a directory that a cast would make: `names` below `outer`. No file system has
/// this number (stat(2) gives it 32 bits on Linux).
fn absent_place(outer: (u64, u64), names: &[OsString]) -> (u64, u64) {
    let mut hasher = DefaultHasher::new();
    (outer, names).hash(&mut hasher);
    (u64::MAX, hasher.finish())
}

/// Returns whether `error` says that a name does not exist which this cast must not create.
fn is_absent(error: &io::Error, access: TargetAccess) -> bool {
    access == TargetAccess::Look && error.kind() == io::ErrorKind::NotFound
}

/// Opens the directory `name` in `at`, which is at `path`.
fn enter(
    at: &OwnedFd,
    name: &OsStr,
    way: MissingParents,
    path: impl Fn() -> RelativePath,
    opened: &mut Vec<(RelativePath, Mode)>,
) -> io::Result<OwnedFd> {
    if let MissingParents::Make(mode) = way {
        let mut made = mkdirat(at, name, mode);
        if made == Err(Errno::EACCES) && open_up(at.as_fd(), &path, opened)? {
            made = mkdirat(at, name, mode);
        }
        match made {
            Ok(()) | Err(Errno::EEXIST) => {}
            Err(error) => return Err(error.into()),
        }
    }
    let flags = OFlag::O_DIRECTORY | OFlag::O_NOFOLLOW | OFlag::O_CLOEXEC;
    let inner = match openat(at, name, flags, Mode::empty()) {
        Err(Errno::EACCES) if way != MissingParents::Look => {
            let found = fstatat(at, name, AtFlags::AT_SYMLINK_NOFOLLOW)?;
            if kind_of(&found) != SFlag::S_IFDIR || found.st_uid != geteuid().as_raw() {
                return Err(Errno::EACCES.into());
            }
            let mode = Mode::from_bits_truncate(found.st_mode);
            fchmodat(at, name, mode | Mode::S_IRWXU, FchmodatFlags::NoFollowSymlink)?;
            opened.extend(path().join(name.as_bytes()).map(|path| (path, mode)));
            openat(at, name, flags, Mode::empty())?
        }
        other => other?,
    };
    expect_own(&fstat(at)?, &fstat(&inner)?)?;
    Ok(inner)
}

/// Gives this user the right to write into a directory of its own at `path`, until the end; whether
/// it did not have it.
fn open_up(
    directory: BorrowedFd<'_>,
    path: impl FnOnce() -> RelativePath,
    opened: &mut Vec<(RelativePath, Mode)>,
) -> io::Result<bool> {
    let user = geteuid();
    let found = fstat(directory)?;
    let mode = Mode::from_bits_truncate(found.st_mode);
    // Root writes everywhere.
    if user.is_root() || found.st_uid != user.as_raw() || mode.contains(Mode::S_IRWXU) {
        return Ok(false);
    }
    fchmod(directory, mode | Mode::S_IRWXU)?;
    opened.push((path(), mode));
    Ok(true)
}

/// Keeps other casts from writing to the same file. One whose sender is gone ends soon, and is
/// waited for.
fn lock(file: &File) -> io::Result<()> {
    let until = Instant::now() + LAST_WRITES;
    loop {
        match file.try_lock() {
            // Some network file systems have no locks.
            Ok(()) | Err(TryLockError::Error(_)) => return Ok(()),
            Err(TryLockError::WouldBlock) if Instant::now() >= until => {
                return Err(io::Error::other(BUSY));
            }
            Err(TryLockError::WouldBlock) => thread::sleep(LOOK_EVERY),
        }
    }
}

/// Gives a file the time at which it was changed.
pub(super) fn set_times(file: impl AsFd, modified: Modified) -> nix::Result<()> {
    let time = TimeSpec::new(modified.seconds, modified.nanos.min(999_999_999).into());
    futimens(file, &TimeSpec::UTIME_OMIT, &time)
}

/// Returns whether this user began what has `name` in `directory`, and no cast is writing it, or
/// has since `before`.
fn is_left(directory: BorrowedFd<'_>, name: &OsStr, before: Option<SystemTime>) -> bool {
    let Ok(found) = fstatat(directory, name, AtFlags::AT_SYMLINK_NOFOLLOW) else { return false };
    let written =
        SystemTime::UNIX_EPOCH.checked_add(Duration::from_secs(found.st_mtime.unsigned_abs()));
    let is_old = before.is_none_or(|before| written.is_some_and(|written| written < before));
    if !is_own(&found) || !is_old {
        return false;
    }
    let flags = OFlag::O_RDONLY | OFlag::O_NOFOLLOW | OFlag::O_CLOEXEC | OFlag::O_NONBLOCK;
    match openat(directory, name, flags, Mode::empty()) {
        Ok(file) => !matches!(File::from(file).try_lock(), Err(TryLockError::WouldBlock)),
        // A link, or what nobody may read any more.
        Err(error) => matches!(error, Errno::ELOOP | Errno::EACCES),
    }
}

/// Returns whether something is mounted at a name, also a part of the same file system; Linux says so
/// since 5.8.
fn is_mount_point(directory: BorrowedFd<'_>, name: &std::ffi::CStr) -> bool {
    let flags = rustix::fs::AtFlags::SYMLINK_NOFOLLOW | rustix::fs::AtFlags::NO_AUTOMOUNT;
    let found = statx(directory, name, flags, StatxFlags::empty());
    found.is_ok_and(|found| found.stx_attributes.contains(StatxAttributes::MOUNT_ROOT))
}

/// Returns whether something is a file, a directory, a link or something else.
pub(super) fn kind_of(found: &FileStat) -> SFlag {
    SFlag::from_bits_truncate(found.st_mode & SFlag::S_IFMT.bits())
}

/// Returns whether this user made it, and nobody has another name for it: a file, or a link.
fn is_own(found: &FileStat) -> bool {
    let is_kind = matches!(kind_of(found), SFlag::S_IFREG | SFlag::S_IFLNK);
    is_kind && found.st_uid == geteuid().as_raw() && found.st_nlink == 1
}

/// Returns whether others may put something into this directory.
fn is_shared(directory: &FileStat) -> bool {
    directory.st_mode & (Mode::S_IWGRP | Mode::S_IWOTH).bits() != 0
}

/// Returns whether `file` is what has `name` in `directory`.
fn is_at(directory: BorrowedFd<'_>, name: &OsStr, file: &File) -> bool {
    let now = fstatat(directory, name, AtFlags::AT_SYMLINK_NOFOLLOW);
    let found = fstat(file);
    now.is_ok_and(|now| {
        found.is_ok_and(|found| (now.st_dev, now.st_ino) == (found.st_dev, found.st_ino))
    })
}

/// Refuses a directory that a user without rights over `outer` put there: its owner can swap what
/// is in it at any time. The kernel has the same rule for links (`protected_symlinks`).
fn expect_own(outer: &FileStat, inner: &FileStat) -> io::Result<()> {
    let all = Mode::S_IWOTH.bits();
    let is_open = outer.st_mode & all == all && outer.st_mode & Mode::S_ISVTX.bits() != 0;
    if is_open && ![0, geteuid().as_raw(), outer.st_uid].contains(&inner.st_uid) {
        return Err(io::Error::other(
            "another user made this directory where all may; cast into one of your own",
        ));
    }
    Ok(())
}

/// Returns why something could not be done, without the number of the error.
pub(super) fn reason(error: &io::Error) -> String {
    match error.raw_os_error().map(Errno::from_raw) {
        Some(Errno::ELOOP | Errno::ENOTDIR) => {
            "a file or a symbolic link is where a directory must be".to_owned()
        }
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
        let directory =
            std::env::temp_dir().join(format!("clearway-leaves-{}", std::process::id()));
        let (mut one, mut other) =
            [(); 2].map(|()| TargetDirectory::open(&directory).expect("a target")).into();
        let name = RelativePath::read("name").expect("a name");
        let begun = one.create(&name).expect("made");
        let waits = thread::spawn(move || other.begun(&name).map(|file| file.is_some()));
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
        let mut target = TargetDirectory::open(&inside).expect("a target");
        let name = RelativePath::read("name").expect("a name");
        let _ = target.permit(&name, 0o4);
        assert_eq!(kept(), before);
        std::fs::remove_dir_all(outside).expect("to remove it");
    }
}
