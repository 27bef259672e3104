//! The directory of a store: paths that never leave it, and its hidden directory of objects.
//!
//! # Model
//! ```text
//!   STORE/.clearway-objects/17      the object of inode 17; its names are further hard links to it
//!                           17.1    an older object of it, whose names are not replaced yet
//!                           new-17  a copy that becomes an object
//!                           link-17 a link to an object, on its way to a name
//!   STORE/a/b                       names and directories, as users see them
//! ```
//! An entry of the tree is *ours* when it is an empty directory, or when its inode is that of an
//! object. The inodes of all objects are read once and kept, so that a check does not list the
//! objects again. Only this module changes their directory, under its lock.
//!
//! # Invariants
//! I1. A path is resolved below the directory that was opened, and through no symbolic link.
//! I2. No path of the tree leads into the hidden directory.
//! I3. One process changes a store, where its file system has locks of directories.
//! I4. No step changes a store that has no directory of objects. Only a sweep makes this directory,
//!     so the mount point of a store that is not mounted stays empty.
//! I5. A step begins and ends well only while the path of the store leads to the open directory, and
//!     a directory is opened only if its mark names the log.

use std::collections::{BTreeSet, HashMap};
use std::ffi::{OsStr, OsString};
use std::fs::File;
use std::io::Read;
use std::os::fd::{AsFd, OwnedFd};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use clearway_proto::staging::{EntryName, InodeId, StoreBase, StorePath};
use rustix::fs::{
    self, AtFlags, CWD, Dir, FileType, FlockOperation, Mode, OFlags, ResolveFlags, Stat,
};
use rustix::io::Errno;

use super::bodies::errno;
use super::owner::{StoreOwner, is_reserved};

/// The name of the hidden directory of objects, in the root of a store of one log. A tree must not
/// use it there.
pub const OBJECTS_NAME: &str = ".clearway-objects";
/// The error where the path of a store does not lead to the store. No call of a step fails with it.
pub(super) const NO_STORE: Errno = Errno::NOMEDIUM;
/// Bytes of a path that one call resolves: the system's bound is 4096.
const PATH_MAX: usize = 3800;

/// A store by its path. It is opened again when its directory was removed.
#[derive(Debug)]
pub(super) struct StorePlace {
    path: PathBuf,
    /// The log whose mark the store has; none where it has no mark.
    owner: Option<StoreOwner>,
    usage: StoreUsage,
    open: Mutex<Option<Arc<OpenStore>>>,
}

/// What a store is opened for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum StoreUsage {
    Read,
    /// By one process at a time.
    Change,
}

/// The open directories of a store.
#[derive(Debug)]
pub(super) struct OpenStore {
    pub(super) root: OwnedFd,
    pub(super) objects: OwnedFd,
    /// Device and inode of both.
    identity: [(u64, u64); 2],
    index: Mutex<Option<ObjectIndex>>,
    /// Whether paths are walked name by name, because the kernel is older than 5.6.
    walks: AtomicBool,
}

/// The entries of the directory of objects that are no directories.
#[derive(Debug, Default)]
pub(super) struct ObjectIndex {
    /// How many entries an inode of the file system has.
    entries: HashMap<u64, u32>,
    /// The numbers of old objects.
    old: BTreeSet<(InodeId, u32)>,
}

impl StorePlace {
    pub(super) fn new(path: &Path, owner: Option<StoreOwner>, usage: StoreUsage) -> Self {
        Self { path: path.to_owned(), owner, usage, open: Mutex::new(None) }
    }

    /// Returns the open store.
    ///
    /// # Errors
    /// [`NO_STORE`] when its path does not lead to it, or its directory of objects is not there;
    /// [`Errno::AGAIN`] when another process changes it.
    pub(super) fn open(&self) -> Result<Arc<OpenStore>, Errno> {
        let mut open = self.open.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(store) = open.as_ref().filter(|store| self.is_at_path(store)) {
            return Ok(Arc::clone(store));
        }
        *open = None;
        let root = self.open_root()?;
        let objects = open_objects(&root, &self.objects_name())?;
        // A child of an earlier mount that could not be ended may still be in a call. Not every file
        // system has locks of directories.
        if self.usage == StoreUsage::Change
            && fs::flock(&objects, FlockOperation::NonBlockingLockExclusive) == Err(Errno::AGAIN)
        {
            return Err(Errno::AGAIN);
        }
        let identity = [identity_of(&fs::fstat(&root)?), identity_of(&fs::fstat(&objects)?)];
        let (index, walks) = (Mutex::new(None), AtomicBool::new(false));
        let store = Arc::new(OpenStore { root, objects, identity, index, walks });
        *open = Some(Arc::clone(&store));
        Ok(store)
    }

    /// Makes everything in the store durable, and the directory of objects, if it is not there.
    pub(super) fn prepare(&self) -> Result<Arc<OpenStore>, Errno> {
        let root = self.open_root()?;
        fs::syncfs(&root)?;
        // Members of a set that is not published must not be found in it.
        let name = self.objects_name();
        match fs::mkdirat(&root, &name, Mode::RWXU) {
            Err(Errno::EXIST) => {}
            made => made?,
        }
        close_to_others(&open_objects(&root, &name)?)?;
        sync_directory(&root)?;
        self.open()
    }

    /// Returns whether the path still leads to an open store: the store, or what its path leads over,
    /// can be moved or unmounted while it is open.
    pub(super) fn is_at_path(&self, store: &OpenStore) -> bool {
        let flags = AtFlags::SYMLINK_NOFOLLOW;
        let objects = fs::statat(&store.root, self.objects_name(), flags);
        [fs::stat(&self.path), objects]
            .into_iter()
            .zip(store.identity)
            .all(|(found, identity)| found.is_ok_and(|found| identity_of(&found) == identity))
    }

    /// Returns the name of the directory of objects.
    fn objects_name(&self) -> OsString {
        self.owner.map_or_else(|| OBJECTS_NAME.into(), |owner| owner.objects_name())
    }

    /// Opens the directory of the store, if it is the store.
    fn open_root(&self) -> Result<OwnedFd, Errno> {
        let root = match fs::openat(CWD, &self.path, DIRECTORY, Mode::empty()) {
            Err(Errno::NOENT | Errno::NOTDIR | Errno::LOOP | Errno::NODEV) => return Err(NO_STORE),
            opened => opened?,
        };
        let Some(owner) = self.owner else { return Ok(root) };
        let flags = OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::CLOEXEC | OFlags::NONBLOCK;
        let mark = match fs::openat(&root, owner.mark_name(), flags, Mode::empty()) {
            Err(Errno::NOENT | Errno::LOOP | Errno::NXIO) => return Err(NO_STORE),
            opened => opened?,
        };
        let mut bytes = Vec::new();
        let expected = owner.mark();
        let most = 2 * expected.len() as u64;
        File::from(mark).take(most).read_to_end(&mut bytes).map_err(errno)?;
        if bytes == expected.as_bytes() { Ok(root) } else { Err(NO_STORE) }
    }
}

/// Opens the directory of objects.
fn open_objects(root: &OwnedFd, name: &OsStr) -> Result<OwnedFd, Errno> {
    match fs::openat(root, name, DIRECTORY | OFlags::NOFOLLOW, Mode::empty()) {
        Err(Errno::NOENT | Errno::NOTDIR | Errno::LOOP) => Err(NO_STORE),
        opened => opened,
    }
}

/// Makes the directory of objects one of this user that nobody else reads, whatever it was before.
fn close_to_others(objects: &OwnedFd) -> Result<(), Errno> {
    let (found, user) = (fs::fstat(objects)?, rustix::process::geteuid());
    if found.st_uid != user.as_raw() {
        fs::fchown(objects, Some(user), Some(rustix::process::getegid()))?;
    }
    if found.st_mode & 0o7777 != Mode::RWXU.as_raw_mode() {
        fs::fchmod(objects, Mode::RWXU)?;
    }
    Ok(())
}

/// Returns device and inode.
fn identity_of(found: &Stat) -> (u64, u64) {
    (found.st_dev, found.st_ino)
}

/// How directories are opened to be read and synced.
const DIRECTORY: OFlags = OFlags::RDONLY.union(OFlags::DIRECTORY).union(OFlags::CLOEXEC);
/// How anything is opened that only its attributes or entries are wanted of.
const HANDLE: OFlags = OFlags::PATH.union(OFlags::NOFOLLOW).union(OFlags::CLOEXEC);

/// Makes names in a directory durable.
pub(super) fn sync_directory(directory: impl AsFd) -> Result<(), Errno> {
    match fs::fsync(directory) {
        // A file system that has no sync of directories orders its names itself.
        Err(Errno::INVAL) => Ok(()),
        outcome => outcome,
    }
}

/// Returns what is at a name; none when nothing is.
pub(super) fn look(directory: impl AsFd, name: &[u8]) -> Result<Option<Stat>, Errno> {
    match fs::statat(directory, name, AtFlags::SYMLINK_NOFOLLOW) {
        Ok(found) => Ok(Some(found)),
        Err(Errno::NOENT) => Ok(None),
        Err(why) => Err(why),
    }
}

pub(super) fn file_type(found: &Stat) -> FileType {
    FileType::from_raw_mode(found.st_mode)
}

/// Returns the name of an object.
pub(super) fn object_name(inode: InodeId) -> String {
    inode.0.to_string()
}

fn old_name(inode: InodeId, number: u32) -> String {
    format!("{}.{number}", inode.0)
}

impl OpenStore {
    /// Resolves paths as on a kernel before 5.6.
    #[cfg(test)]
    pub(super) fn walk_names(&self) {
        self.walks.store(true, Ordering::Relaxed);
    }

    /// Opens the directory at a path so that it can be synced.
    pub(super) fn directory(&self, path: &StorePath) -> Result<OwnedFd, Errno> {
        self.walk(path.base, &path.names, DIRECTORY | OFlags::NOFOLLOW)
    }

    /// Opens what is at a path for its attributes alone, whatever it is.
    pub(super) fn handle(&self, path: &StorePath) -> Result<OwnedFd, Errno> {
        self.walk(path.base, &path.names, HANDLE)
    }

    /// Returns the directory that a path lies in, and its last name.
    pub(super) fn parent<'a>(&self, path: &'a StorePath) -> Result<(OwnedFd, &'a [u8]), Errno> {
        let (last, above) = path.names.split_last().ok_or(Errno::INVAL)?;
        let is_hidden = path.base == StoreBase::Root && is_reserved(last.bytes());
        if above.is_empty() && is_hidden {
            return Err(Errno::PERM);
        }
        Ok((self.walk(path.base, above, HANDLE | OFlags::DIRECTORY)?, last.bytes()))
    }

    fn walk(&self, base: StoreBase, names: &[EntryName], flags: OFlags) -> Result<OwnedFd, Errno> {
        let base = match base {
            StoreBase::Objects => &self.objects,
            StoreBase::Root => match names.first() {
                Some(name) if is_reserved(name.bytes()) => return Err(Errno::PERM),
                _ => &self.root,
            },
        };
        let Some((last, above)) = names.split_last() else {
            return fs::openat(base, c".", flags & !OFlags::NOFOLLOW, Mode::empty());
        };
        let mut at: Option<OwnedFd> = None;
        let mut part: Vec<u8> = Vec::new();
        for name in above {
            if !part.is_empty() {
                part.push(b'/');
            }
            part.extend(name.bytes());
            if part.len() > PATH_MAX || self.walks.load(Ordering::Relaxed) {
                at = Some(self.resolve(at.as_ref().unwrap_or(base), &part, PART)?);
                part.clear();
            }
        }
        if !part.is_empty() {
            part.push(b'/');
        }
        part.extend(last.bytes());
        self.resolve(at.as_ref().unwrap_or(base), &part, flags)
    }

    /// Opens a path below a directory.
    fn resolve(&self, base: &OwnedFd, path: &[u8], flags: OFlags) -> Result<OwnedFd, Errno> {
        if !self.walks.load(Ordering::Relaxed) {
            let resolve = ResolveFlags::BENEATH | ResolveFlags::NO_SYMLINKS;
            match fs::openat2(base, path, flags, Mode::empty(), resolve) {
                // A filter of system calls that does not know this one answers so too.
                Err(Errno::NOSYS | Errno::PERM) => self.walks.store(true, Ordering::Relaxed),
                outcome => return outcome,
            }
        }
        let mut names = path.split(|byte| *byte == b'/').peekable();
        let mut at: Option<OwnedFd> = None;
        loop {
            let name = names.next().ok_or(Errno::INVAL)?;
            let is_last = names.peek().is_none();
            let flags = if is_last { flags } else { PART };
            let base = at.as_ref().unwrap_or(base);
            let opened = fs::openat(base, name, flags | OFlags::NOFOLLOW, Mode::empty())?;
            if is_last {
                return Ok(opened);
            }
            at = Some(opened);
        }
    }

    /// Takes the lock of the objects, and reads their names if that was not done.
    pub(super) fn index(&self) -> Result<IndexGuard<'_>, Errno> {
        let mut guard = self.lock();
        if guard.0.is_none() {
            *guard.0 = Some(ObjectIndex::read(&self.objects)?);
        }
        Ok(guard)
    }

    /// Takes the lock of the objects, to change them.
    pub(super) fn lock(&self) -> IndexGuard<'_> {
        IndexGuard(self.index.lock().unwrap_or_else(PoisonError::into_inner))
    }

    /// Returns whether `found` is an object, or a name of one.
    pub(super) fn is_object(&self, found: &Stat) -> Result<bool, Errno> {
        if file_type(found) == FileType::Directory || found.st_nlink < 2 {
            return Ok(false);
        }
        Ok(self.index()?.entries(found.st_ino) > 0)
    }
}

/// How a part of a path is opened that leads to the next one.
const PART: OFlags = HANDLE.union(OFlags::DIRECTORY);

/// The lock of the directory of objects.
pub(super) struct IndexGuard<'a>(MutexGuard<'a, Option<ObjectIndex>>);

impl IndexGuard<'_> {
    /// Returns how many objects have an inode of the file system.
    pub(super) fn entries(&self, number: u64) -> u32 {
        self.0.as_ref().map_or(0, |index| index.entries.get(&number).copied().unwrap_or(0))
    }

    /// Notes an entry that was made.
    pub(super) fn added(&mut self, name: &str, number: u64) {
        if let Some(index) = self.0.as_mut() {
            index.add(name.as_bytes(), number);
        }
    }

    /// Removes an entry if it is there.
    pub(super) fn remove(&mut self, store: &OpenStore, name: &str) -> Result<(), Errno> {
        let Some(found) = look(&store.objects, name.as_bytes())? else { return Ok(()) };
        fs::unlinkat(&store.objects, name, AtFlags::empty())?;
        self.removed(name, found.st_ino);
        Ok(())
    }

    fn removed(&mut self, name: &str, number: u64) {
        let Some(index) = self.0.as_mut() else { return };
        if let Some(old) = parse_old(name.as_bytes()) {
            index.old.remove(&old);
        }
        if let Some(count) = index.entries.get_mut(&number) {
            *count -= 1;
            if *count == 0 {
                index.entries.remove(&number);
            }
        }
    }

    /// Returns the names of old objects.
    pub(super) fn old_names(&self, inode: InodeId) -> Vec<String> {
        let Some(index) = self.0.as_ref() else { return Vec::new() };
        let old = index.old.range((inode, 0)..=(inode, u32::MAX));
        old.map(|(inode, number)| old_name(*inode, *number)).collect()
    }

    /// Keeps the object of `inode` under a name of its own.
    pub(super) fn keep_old(&mut self, store: &OpenStore, inode: InodeId) -> Result<(), Errno> {
        let object = object_name(inode);
        let Some(found) = look(&store.objects, object.as_bytes())? else { return Ok(()) };
        for number in 1..=u32::MAX {
            let name = old_name(inode, number);
            match fs::linkat(&store.objects, &object, &store.objects, &name, AtFlags::empty()) {
                Err(Errno::EXIST) => {}
                made => {
                    made?;
                    self.added(&name, found.st_ino);
                    return Ok(());
                }
            }
        }
        Err(Errno::MLINK)
    }

    /// Moves an entry over another one.
    pub(super) fn replace(
        &mut self,
        store: &OpenStore,
        from: &str,
        object: &str,
    ) -> Result<(), Errno> {
        let moved = look(&store.objects, from.as_bytes())?.ok_or(Errno::NOENT)?;
        let replaced = look(&store.objects, object.as_bytes())?;
        fs::renameat(&store.objects, from, &store.objects, object)?;
        self.removed(from, moved.st_ino);
        if let Some(replaced) = replaced {
            self.removed(object, replaced.st_ino);
        }
        self.added(object, moved.st_ino);
        Ok(())
    }

    /// Forgets what was read: nobody knows what a change that failed has done.
    pub(super) fn forget(&mut self) {
        *self.0 = None;
    }
}

impl ObjectIndex {
    fn read(objects: &OwnedFd) -> Result<Self, Errno> {
        let mut index = Self::default();
        for entry in Dir::read_from(objects)? {
            let entry = entry?;
            let name = entry.file_name();
            // The number that is listed need not be the one that a look gives, behind a mount.
            if let Some(found) = look(objects, name.to_bytes())?
                && file_type(&found) != FileType::Directory
                && is_own(name.to_bytes())
            {
                index.add(name.to_bytes(), found.st_ino);
            }
        }
        Ok(index)
    }

    fn add(&mut self, name: &[u8], number: u64) {
        *self.entries.entry(number).or_default() += 1;
        self.old.extend(parse_old(name));
    }
}

/// Returns the inode and the number of an old object.
pub(super) fn parse_old(name: &[u8]) -> Option<(InodeId, u32)> {
    let (inode, number) = std::str::from_utf8(name).ok()?.split_once('.')?;
    let old = (InodeId(inode.parse().ok()?), number.parse().ok()?);
    (old_name(old.0, old.1).as_bytes() == name).then_some(old)
}

/// Returns the inode whose object has a name.
pub(super) fn parse_object(name: &[u8]) -> Option<InodeId> {
    let inode = InodeId(std::str::from_utf8(name).ok()?.parse().ok()?);
    (object_name(inode).as_bytes() == name).then_some(inode)
}

/// Returns whether steps give names like this one to entries of the directory of objects.
pub(super) fn is_own(name: &[u8]) -> bool {
    let rest = name.strip_prefix(b"new-").or_else(|| name.strip_prefix(b"link-"));
    parse_object(rest.unwrap_or(name)).or_else(|| Some(parse_old(name)?.0)).is_some()
}
