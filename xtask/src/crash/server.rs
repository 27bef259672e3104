//! Serves a disk that forgets over FUSE, and keeps the journal of what was asked of it.
//!
//! # Invariants
//! I1. No other file of this crate says `fuser`.
//! I2. The kernel keeps nothing: each write comes here before it returns, and each look comes too.
//!
//! # Not here
//! What a loss of power takes: [`super::disk`].

use std::ffi::OsStr;
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use fuser::{
    BackgroundSession, BsdFileFlags, Config, Errno, FileAttr, FileHandle, FileType, Filesystem,
    FopenFlags, Generation, INodeNo, LockOwner, MountOption, OpenFlags, RenameFlags, ReplyAttr,
    ReplyCreate, ReplyData, ReplyDirectory, ReplyEmpty, ReplyEntry, ReplyOpen, ReplyStatfs,
    ReplyWrite, Request, TimeOrNow, WriteFlags,
};

use super::disk::{
    DiskChange, DiskContent, DiskImage, DiskNode, NodeNumber, ROOT, Survival, UnsyncedDisk,
};

/// The kernel believes nothing for longer.
const TTL: Duration = Duration::ZERO;
const GENERATION: Generation = Generation(0);
/// Bits of a mode that say what is made (`inode(7)`).
const TYPE_BITS: u32 = 0o170_000;
const REGULAR: u32 = 0o100_000;

/// A disk whose changes can be lost, shared by its server and the one who takes its power away.
#[derive(Clone)]
pub(super) struct ForgetfulDisk(Arc<Mutex<DiskPower>>);

/// What is on the disk since power came.
struct DiskPower {
    /// What was there when power came.
    base: DiskImage,
    journal: Vec<DiskChange>,
    /// What programs see.
    live: DiskImage,
    next: NodeNumber,
}

/// What a disk held when power came, and all changes since.
#[derive(Clone)]
pub(super) struct DiskRecord {
    pub(super) base: DiskImage,
    pub(super) journal: Vec<DiskChange>,
}

type DiskResult<T> = Result<T, Errno>;

impl DiskPower {
    fn change(&mut self, change: DiskChange) {
        self.live.apply(&change, || true);
        self.journal.push(change);
    }

    fn node(&self, node: NodeNumber) -> DiskResult<&DiskNode> {
        self.live.node(node).ok_or(Errno::ENOENT)
    }

    fn lookup(&self, directory: NodeNumber, name: &[u8]) -> DiskResult<NodeNumber> {
        let entries = self.live.entries(directory).ok_or(Errno::ENOTDIR)?;
        entries.get(name).copied().ok_or(Errno::ENOENT)
    }

    fn attributes(&self, node: NodeNumber) -> DiskResult<FileAttr> {
        let found = self.node(node)?;
        let (kind, size) = match &found.content {
            DiskContent::File { size, .. } => (FileType::RegularFile, *size),
            DiskContent::Directory(entries) => (FileType::Directory, entries.len() as u64),
            DiskContent::Symlink(target) => (FileType::Symlink, target.len() as u64),
            DiskContent::Special(bits) => (kind_of(*bits), 0),
        };
        Ok(FileAttr {
            ino: INodeNo(node),
            size,
            blocks: size.div_ceil(512),
            atime: UNIX_EPOCH,
            mtime: UNIX_EPOCH,
            ctime: UNIX_EPOCH,
            crtime: UNIX_EPOCH,
            kind,
            perm: (found.mode & 0o7777) as u16,
            nlink: found.links,
            uid: found.owner.0,
            gid: found.owner.1,
            rdev: 0,
            blksize: 4096,
            flags: 0,
        })
    }

    fn make(
        &mut self,
        request: &Request,
        directory: INodeNo,
        name: &OsStr,
        content: DiskContent,
        mode: u32,
    ) -> DiskResult<FileAttr> {
        match self.lookup(directory.0, name.as_bytes()) {
            Err(Errno::ENOENT) => {}
            Err(why) => return Err(why),
            Ok(_) => return Err(Errno::EEXIST),
        }
        let node = self.next;
        self.next += 1;
        let owner = (request.uid(), request.gid());
        self.change(DiskChange::Make { node, content, mode: mode & 0o7777, owner });
        self.enter(directory, name, node);
        self.attributes(node)
    }

    fn enter(&mut self, directory: INodeNo, name: &OsStr, node: NodeNumber) {
        let (directory, name) = (directory.0, name.as_bytes().to_vec());
        self.change(DiskChange::Enter { directory, name, node });
    }

    fn remove(&mut self, directory: INodeNo, name: &OsStr, of_directory: bool) -> DiskResult<()> {
        let node = self.lookup(directory.0, name.as_bytes())?;
        match (self.live.entries(node), of_directory) {
            (Some(entries), true) if !entries.is_empty() => return Err(Errno::ENOTEMPTY),
            (Some(_), false) => return Err(Errno::EISDIR),
            (None, true) => return Err(Errno::ENOTDIR),
            _ => {}
        }
        let name = name.as_bytes().to_vec();
        self.change(DiskChange::Leave { directory: directory.0, name });
        Ok(())
    }

    fn rename(
        &mut self,
        from: (NodeNumber, &[u8]),
        to: (NodeNumber, &[u8]),
        flags: RenameFlags,
    ) -> DiskResult<()> {
        self.lookup(from.0, from.1)?;
        if flags.contains(RenameFlags::RENAME_EXCHANGE) {
            return Err(Errno::EINVAL);
        }
        if let Ok(old) = self.lookup(to.0, to.1) {
            if flags.contains(RenameFlags::RENAME_NOREPLACE) {
                return Err(Errno::EEXIST);
            }
            if self.live.entries(old).is_some_and(|entries| !entries.is_empty()) {
                return Err(Errno::ENOTEMPTY);
            }
            if old == self.lookup(from.0, from.1)? {
                return Ok(());
            }
        }
        let place = |(directory, name): (NodeNumber, &[u8])| (directory, name.to_vec());
        self.change(DiskChange::Move { from: place(from), to: place(to) });
        Ok(())
    }
}

const fn kind_of(bits: u32) -> FileType {
    match bits {
        0o010_000 => FileType::NamedPipe,
        0o140_000 => FileType::Socket,
        0o060_000 => FileType::BlockDevice,
        _ => FileType::CharDevice,
    }
}

impl ForgetfulDisk {
    /// Makes a disk with these directories in its root.
    pub(super) fn new(directories: &[&str]) -> Self {
        let power = DiskPower {
            base: DiskImage::new(),
            journal: Vec::new(),
            live: DiskImage::new(),
            next: ROOT + 1,
        };
        let disk = Self(Arc::new(Mutex::new(power)));
        let mut power = disk.power();
        for name in directories {
            let (node, name) = (power.next, name.as_bytes().to_vec());
            power.next += 1;
            let content = DiskContent::Directory(Default::default());
            power.change(DiskChange::Make { node, content, mode: 0o755, owner: (0, 0) });
            power.change(DiskChange::Enter { directory: ROOT, name, node });
        }
        drop(power);
        disk.lose_power(Survival::All);
        disk
    }

    fn power(&self) -> MutexGuard<'_, DiskPower> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Returns how many changes there were since power came.
    pub(super) fn position(&self) -> usize {
        self.power().journal.len()
    }

    /// Takes power away and gives it again: of what is not durable remains what survives. Programs that
    /// use the disk have to be gone. Returns what was there before, and all changes until now.
    pub(super) fn lose_power(&self, survival: Survival) -> DiskRecord {
        let mut power = self.power();
        let mut disk = UnsyncedDisk::new(power.base.clone());
        power.journal.iter().for_each(|change| disk.take(change));
        let left = disk.after_loss(survival);
        power.live = left.clone();
        let base = std::mem::replace(&mut power.base, left);
        DiskRecord { base, journal: std::mem::take(&mut power.journal) }
    }

    /// Mounts it on `directory`.
    ///
    /// # Errors
    /// The system's.
    pub(super) fn mount(&self, directory: &Path) -> io::Result<MountedDisk> {
        let mut config = Config::default();
        config.mount_options =
            vec![MountOption::FSName("forgetful-disk".into()), MountOption::DefaultPermissions];
        config.n_threads = Some(2);
        config.clone_fd = true;
        fuser::spawn_mount(self.clone(), directory, &config).map(MountedDisk)
    }
}

/// A disk that is mounted.
pub(super) struct MountedDisk(BackgroundSession);

impl MountedDisk {
    /// Unmounts it.
    ///
    /// # Errors
    /// The system's.
    pub(super) fn unmount(self) -> io::Result<()> {
        self.0.umount_and_join()
    }
}

fn entry(reply: ReplyEntry, made: DiskResult<FileAttr>) {
    match made {
        Ok(made) => reply.entry(&TTL, &made, GENERATION),
        Err(why) => reply.error(why),
    }
}

fn empty(reply: ReplyEmpty, done: DiskResult<()>) {
    match done {
        Ok(()) => reply.ok(),
        Err(why) => reply.error(why),
    }
}

impl Filesystem for ForgetfulDisk {
    fn lookup(&self, _req: &Request, parent: INodeNo, name: &OsStr, reply: ReplyEntry) {
        let power = self.power();
        let found = power.lookup(parent.0, name.as_bytes());
        entry(reply, found.and_then(|found| power.attributes(found)));
    }

    fn getattr(&self, _req: &Request, ino: INodeNo, _fh: Option<FileHandle>, reply: ReplyAttr) {
        match self.power().attributes(ino.0) {
            Ok(found) => reply.attr(&TTL, &found),
            Err(why) => reply.error(why),
        }
    }

    fn setattr(
        &self,
        _req: &Request,
        ino: INodeNo,
        mode: Option<u32>,
        uid: Option<u32>,
        gid: Option<u32>,
        size: Option<u64>,
        _atime: Option<TimeOrNow>,
        _mtime: Option<TimeOrNow>,
        _ctime: Option<SystemTime>,
        _fh: Option<FileHandle>,
        _crtime: Option<SystemTime>,
        _chgtime: Option<SystemTime>,
        _bkuptime: Option<SystemTime>,
        _flags: Option<BsdFileFlags>,
        reply: ReplyAttr,
    ) {
        let mut power = self.power();
        let Ok(node) = power.node(ino.0) else { return reply.error(Errno::ENOENT) };
        let owner = (uid.unwrap_or(node.owner.0), gid.unwrap_or(node.owner.1));
        let mode = mode.unwrap_or(node.mode) & 0o7777;
        if (mode, owner) != (node.mode, node.owner) {
            power.change(DiskChange::Own { node: ino.0, mode, owner });
        }
        if let Some(size) = size {
            power.change(DiskChange::Resize { node: ino.0, size });
        }
        match power.attributes(ino.0) {
            Ok(found) => reply.attr(&TTL, &found),
            Err(why) => reply.error(why),
        }
    }

    fn readlink(&self, _req: &Request, ino: INodeNo, reply: ReplyData) {
        match self.power().node(ino.0).map(|node| &node.content) {
            Ok(DiskContent::Symlink(target)) => reply.data(target),
            _ => reply.error(Errno::EINVAL),
        }
    }

    fn mknod(
        &self,
        req: &Request,
        parent: INodeNo,
        name: &OsStr,
        mode: u32,
        _umask: u32,
        _rdev: u32,
        reply: ReplyEntry,
    ) {
        let content = match mode & TYPE_BITS {
            0 | REGULAR => DiskContent::EMPTY,
            bits => DiskContent::Special(bits),
        };
        entry(reply, self.power().make(req, parent, name, content, mode));
    }

    fn mkdir(
        &self,
        req: &Request,
        parent: INodeNo,
        name: &OsStr,
        mode: u32,
        _umask: u32,
        reply: ReplyEntry,
    ) {
        let content = DiskContent::Directory(Default::default());
        entry(reply, self.power().make(req, parent, name, content, mode));
    }

    fn unlink(&self, _req: &Request, parent: INodeNo, name: &OsStr, reply: ReplyEmpty) {
        empty(reply, self.power().remove(parent, name, false));
    }

    fn rmdir(&self, _req: &Request, parent: INodeNo, name: &OsStr, reply: ReplyEmpty) {
        empty(reply, self.power().remove(parent, name, true));
    }

    fn symlink(
        &self,
        req: &Request,
        parent: INodeNo,
        link_name: &OsStr,
        target: &Path,
        reply: ReplyEntry,
    ) {
        let content = DiskContent::Symlink(target.as_os_str().as_bytes().to_vec());
        entry(reply, self.power().make(req, parent, link_name, content, 0o777));
    }

    fn rename(
        &self,
        _req: &Request,
        parent: INodeNo,
        name: &OsStr,
        newparent: INodeNo,
        newname: &OsStr,
        flags: RenameFlags,
        reply: ReplyEmpty,
    ) {
        let (from, to) = ((parent.0, name.as_bytes()), (newparent.0, newname.as_bytes()));
        empty(reply, self.power().rename(from, to, flags));
    }

    fn link(
        &self,
        _req: &Request,
        ino: INodeNo,
        newparent: INodeNo,
        newname: &OsStr,
        reply: ReplyEntry,
    ) {
        let mut power = self.power();
        if power.lookup(newparent.0, newname.as_bytes()).is_ok() {
            return reply.error(Errno::EEXIST);
        }
        power.enter(newparent, newname, ino.0);
        entry(reply, power.attributes(ino.0));
    }

    fn open(&self, _req: &Request, _ino: INodeNo, _flags: OpenFlags, reply: ReplyOpen) {
        reply.opened(FileHandle(0), FopenFlags::FOPEN_DIRECT_IO);
    }

    fn read(
        &self,
        _req: &Request,
        ino: INodeNo,
        _fh: FileHandle,
        offset: u64,
        size: u32,
        _flags: OpenFlags,
        _lock_owner: Option<LockOwner>,
        reply: ReplyData,
    ) {
        reply.data(&self.power().live.read(ino.0, offset, u64::from(size)));
    }

    fn write(
        &self,
        _req: &Request,
        ino: INodeNo,
        _fh: FileHandle,
        offset: u64,
        data: &[u8],
        _write_flags: WriteFlags,
        _flags: OpenFlags,
        _lock_owner: Option<LockOwner>,
        reply: ReplyWrite,
    ) {
        self.power().change(DiskChange::Write { node: ino.0, at: offset, bytes: data.into() });
        reply.written(data.len() as u32);
    }

    fn flush(
        &self,
        _req: &Request,
        _ino: INodeNo,
        _fh: FileHandle,
        _lock_owner: LockOwner,
        reply: ReplyEmpty,
    ) {
        reply.ok();
    }

    fn fsync(
        &self,
        _req: &Request,
        ino: INodeNo,
        _fh: FileHandle,
        _datasync: bool,
        reply: ReplyEmpty,
    ) {
        self.power().change(DiskChange::Sync { node: ino.0 });
        reply.ok();
    }

    fn fsyncdir(
        &self,
        _req: &Request,
        ino: INodeNo,
        _fh: FileHandle,
        _datasync: bool,
        reply: ReplyEmpty,
    ) {
        self.power().change(DiskChange::Sync { node: ino.0 });
        reply.ok();
    }

    fn readdir(
        &self,
        _req: &Request,
        ino: INodeNo,
        _fh: FileHandle,
        offset: u64,
        mut reply: ReplyDirectory,
    ) {
        let power = self.power();
        let Some(entries) = power.live.entries(ino.0) else { return reply.error(Errno::ENOTDIR) };
        let dots = [(&b"."[..], ino.0), (b"..", ino.0)];
        let all = dots.into_iter().chain(entries.iter().map(|(name, node)| (&name[..], *node)));
        for (at, (name, node)) in (1..).zip(all).skip(offset as usize) {
            let kind = power.attributes(node).map_or(FileType::RegularFile, |found| found.kind);
            if reply.add(INodeNo(node), at, kind, OsStr::from_bytes(name)) {
                break;
            }
        }
        reply.ok();
    }

    fn statfs(&self, _req: &Request, _ino: INodeNo, reply: ReplyStatfs) {
        let many = 1 << 24;
        reply.statfs(many, many, many, many, many, 4096, 255, 4096);
    }

    fn create(
        &self,
        req: &Request,
        parent: INodeNo,
        name: &OsStr,
        mode: u32,
        _umask: u32,
        _flags: i32,
        reply: ReplyCreate,
    ) {
        match self.power().make(req, parent, name, DiskContent::EMPTY, mode) {
            Ok(made) => {
                let flags = FopenFlags::FOPEN_DIRECT_IO;
                reply.created(&TTL, &made, GENERATION, FileHandle(0), flags);
            }
            Err(why) => reply.error(why),
        }
    }

    fn fallocate(
        &self,
        _req: &Request,
        ino: INodeNo,
        _fh: FileHandle,
        offset: u64,
        length: u64,
        mode: i32,
        reply: ReplyEmpty,
    ) {
        if mode != 0 {
            return reply.error(Errno::EOPNOTSUPP);
        }
        let mut power = self.power();
        let size = match power.node(ino.0).map(|node| &node.content) {
            Ok(DiskContent::File { size, .. }) => *size,
            _ => return reply.error(Errno::EBADF),
        };
        let end = offset.saturating_add(length);
        if end > size {
            power.change(DiskChange::Resize { node: ino.0, size: end });
        }
        reply.ok();
    }
}
