//! Updates the object of a file to a version of the file.
//!
//! # Model
//! ```text
//!   no names:  cut, write, attributes, sync, compare, sync the directory      in the object itself
//!   named:     the same in a copy; then link the object as an old one, sync, rename the copy, sync
//! ```
//! `read_back.rs` says what the comparison covers.
//!
//! # Invariants
//! I1. An object with a name is not written to.
//! I2. Bytes are written only with the digest of the body that they belong to.

use std::os::fd::{AsFd, OwnedFd};

use clearway_proto::base::xxh3;
use clearway_proto::staging::{CopyPiece, InodeId, StoreAttributes};
use rustix::fs::{self, AtFlags, FileType, Mode, OFlags, SeekFrom, Stat};
use rustix::io::{self, Errno};

use super::attributes;
use super::bodies::LogBodies;
use super::drain_pace::DrainPace;
use super::place::{OpenStore, file_type, look, object_name, sync_directory};
use super::read_back::{WrittenStretch, compare, read_all};

/// Bytes that are moved between two signs of progress.
const CHUNK: u64 = 8 << 20;
/// The same where a pace holds them back.
const PACED_CHUNK: u64 = 1 << 20;

/// What a copy brings.
pub(super) struct FileCopy<'a> {
    pub(super) inode: InodeId,
    pub(super) is_named: bool,
    pub(super) keep: u64,
    pub(super) size: u64,
    pub(super) pieces: &'a [CopyPiece],
    pub(super) attributes: &'a StoreAttributes,
    pub(super) pace: Option<&'a DrainPace>,
}

impl FileCopy<'_> {
    /// Copies. `progress` is called between parts.
    pub(super) fn carry_out(
        &self,
        store: &OpenStore,
        bodies: &LogBodies,
        progress: &dyn Fn(),
    ) -> Result<(), Errno> {
        let object = object_name(self.inode);
        let found = look(&store.objects, object.as_bytes())?;
        let has_base = match &found {
            Some(found) => {
                file_type(found) == FileType::RegularFile && found.st_size as u64 >= self.keep
            }
            None => self.keep == 0,
        };
        if !has_base {
            // The bytes that the log let go of are not there.
            return Err(Errno::STALE);
        }
        match found {
            None => {
                let file = create(store, &object)?;
                let filled = self.fill(&file, bodies, progress);
                if filled.is_err() {
                    // What is left of it is written over, or goes with the next sweep.
                    let _ = store.lock().remove(store, &object);
                }
                filled?;
            }
            Some(found) if found.st_nlink == 1 && !self.is_named => {
                let file = open_to_write(store, &object, &found)?;
                self.fill(&file, bodies, progress)?;
            }
            Some(found) => self.replace(store, &object, &found, bodies, progress)?,
        }
        sync_directory(&store.objects)
    }

    /// Copies into a new object, which takes the place of the one that is there.
    fn replace(
        &self,
        store: &OpenStore,
        object: &str,
        found: &Stat,
        bodies: &LogBodies,
        progress: &dyn Fn(),
    ) -> Result<(), Errno> {
        let new = format!("new-{}", self.inode.0);
        store.lock().remove(store, &new)?;
        let file = create(store, &new)?;
        let filled = open_to_read(store, object, found)
            .and_then(|base| copy_base(&base, &file, self.keep, self.pace, progress))
            .and_then(|()| self.fill(&file, bodies, progress));
        if filled.is_err() {
            // What is left of it goes with the next sweep.
            let _ = store.lock().remove(store, &new);
        }
        filled?;
        store.lock().keep_old(store, self.inode)?;
        sync_directory(&store.objects)?;
        progress();
        store.lock().replace(store, &new, object)
    }

    fn fill(&self, file: &OwnedFd, bodies: &LogBodies, progress: &dyn Fn()) -> Result<(), Errno> {
        fs::ftruncate(file, self.keep)?;
        fs::ftruncate(file, self.size)?;
        let (mut body, mut written, mut since) = (Vec::new(), Vec::new(), 0);
        let mut unsynced = 0;
        for piece in self.pieces {
            let end = piece.offset.checked_add(u64::from(piece.bytes));
            if end.is_none_or(|end| end > self.size) {
                return Err(Errno::INVAL);
            }
            let bytes = bodies.read(piece, &mut body)?;
            let length = u64::from(piece.bytes);
            if let Some(pace) = self.pace {
                pace.wait(length, progress);
            }
            write_all(file, bytes, piece.offset)?;
            if let Some(pace) = self.pace {
                pace.written(file, length, &mut unsynced)?;
            }
            let digest =
                if bytes.len() == piece.length as usize { piece.digest } else { xxh3(bytes) };
            written.push(WrittenStretch { offset: piece.offset, bytes: bytes.len(), digest });
            since += length;
            if since >= CHUNK {
                since = 0;
                progress();
            }
        }
        progress();
        attributes::set(file.as_fd(), self.attributes)?;
        fs::fsync(file)?;
        progress();
        let before = fs::fstat(file)?;
        compare(file, &written, &mut body, progress)?;
        let after = fs::fstat(file)?;
        if (before.st_atime, before.st_atime_nsec) != (after.st_atime, after.st_atime_nsec) {
            // The comparison counted as an access.
            attributes::set(file.as_fd(), self.attributes)?;
            fs::fsync(file)?;
        }
        Ok(())
    }
}

fn write_all(file: &OwnedFd, mut bytes: &[u8], mut offset: u64) -> Result<(), Errno> {
    while !bytes.is_empty() {
        let count = match io::pwrite(file, bytes, offset) {
            Err(Errno::INTR) => continue,
            // A disk that takes nothing more.
            Ok(0) => return Err(Errno::NOSPC),
            count => count?,
        };
        bytes = bytes.get(count..).unwrap_or_default();
        offset += count as u64;
    }
    Ok(())
}

/// Creates an entry of the objects.
fn create(store: &OpenStore, name: &str) -> Result<OwnedFd, Errno> {
    let flags = OFlags::RDWR | OFlags::CREATE | OFlags::EXCL | OFlags::CLOEXEC | OFlags::NOATIME;
    let mut guard = store.lock();
    let file = fs::openat(&store.objects, name, flags, Mode::RUSR | Mode::WUSR)?;
    guard.added(name, fs::fstat(&file)?.st_ino);
    Ok(file)
}

/// Opens an object to be written, whatever its permissions are.
fn open_to_write(store: &OpenStore, name: &str, found: &Stat) -> Result<OwnedFd, Errno> {
    open_as_owner(store, name, found, OFlags::RDWR)
}

fn open_to_read(store: &OpenStore, name: &str, found: &Stat) -> Result<OwnedFd, Errno> {
    open_as_owner(store, name, found, OFlags::RDONLY)
}

/// Opens an object; where its owner has no permission, with one for the time of the opening.
pub(super) fn open_as_owner(
    store: &OpenStore,
    name: &str,
    found: &Stat,
    access: OFlags,
) -> Result<OwnedFd, Errno> {
    let flags = access | OFlags::NOFOLLOW | OFlags::CLOEXEC | OFlags::NOATIME;
    // A read that is no access of a user leaves the time of the last one alone; only the owner may.
    let open = |flags| match fs::openat(&store.objects, name, flags, Mode::empty()) {
        Err(Errno::PERM) => {
            fs::openat(&store.objects, name, flags & !OFlags::NOATIME, Mode::empty())
        }
        outcome => outcome,
    };
    match open(flags) {
        Err(Errno::ACCESS) => {
            let mode = Mode::from_raw_mode(found.st_mode & 0o7777);
            let wider = mode | Mode::RUSR | Mode::WUSR;
            fs::chmodat(&store.objects, name, wider, AtFlags::empty())?;
            let opened = open(flags);
            fs::chmodat(&store.objects, name, mode, AtFlags::empty())?;
            opened
        }
        outcome => outcome,
    }
}

/// Copies the first `keep` bytes of an object; holes stay holes.
fn copy_base(
    from: &OwnedFd,
    to: &OwnedFd,
    keep: u64,
    pace: Option<&DrainPace>,
    progress: &dyn Fn(),
) -> Result<(), Errno> {
    let mut at = 0;
    while at < keep {
        let start = match fs::seek(from, SeekFrom::Data(at)) {
            // Nothing but a hole follows.
            Err(Errno::NXIO) => return Ok(()),
            // A file system that knows no holes.
            Err(Errno::INVAL | Errno::OPNOTSUPP) => at,
            start => start?,
        };
        let end = fs::seek(from, SeekFrom::Hole(start)).unwrap_or(keep).min(keep);
        if start >= keep || end <= start {
            return Ok(());
        }
        copy_range(from, to, (start, end), pace, progress)?;
        at = end;
    }
    Ok(())
}

fn copy_range(
    from: &OwnedFd,
    to: &OwnedFd,
    (start, end): (u64, u64),
    pace: Option<&DrainPace>,
    progress: &dyn Fn(),
) -> Result<(), Errno> {
    let mut unsynced = 0;
    let (mut read_at, mut write_at) = (start, start);
    let mut bytes = Vec::new();
    while read_at < end {
        progress();
        let chunk = if pace.is_some() { PACED_CHUNK } else { CHUNK };
        let length = (end - read_at).min(chunk) as usize;
        if let Some(pace) = pace {
            pace.wait(length as u64, progress);
            pace.written(to, length as u64, &mut unsynced)?;
        }
        if bytes.is_empty() {
            let (read_at, write_at) = (Some(&mut read_at), Some(&mut write_at));
            match fs::copy_file_range(from, read_at, to, write_at, length) {
                Ok(1..) => continue,
                Err(Errno::NOSPC) => return Err(Errno::NOSPC),
                // Not between these file systems: by hand.
                _ => bytes.resize(CHUNK as usize, 0),
            }
        }
        let part = bytes.get_mut(..length).ok_or(Errno::INVAL)?;
        read_all(from, part, read_at)?;
        write_all(to, part, read_at)?;
        read_at += length as u64;
    }
    Ok(())
}
