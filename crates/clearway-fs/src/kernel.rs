//! Answers the kernel: requests of FUSE become requests to the log, and their outcomes replies.
//!
//! # Model
//! A reply is moved into the request that it answers, and sent by the thread that has the answer. The
//! kernel keeps pages, attributes and names in its caches, because nobody else changes the tree. It
//! writes through: each write reaches the log before it returns.
//!
//! # Invariants
//! I1. No other file but those of this module says `fuser`.
//!
//! # Not here
//! Permissions (`default_permissions`), locks and mapped memory: the kernel's own.

mod listing;
mod remote;
mod session;
mod waits;

pub(crate) use session::{KernelSession, KernelUnmounter};
use std::ffi::OsStr;
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use clearway_proto::base::xxh3;
use clearway_proto::staging::{
    AttributeSet, EntryName, InodeId, NodeKind, SpecialKind, SpecialNode, WallNs,
};
use fuser::{
    BsdFileFlags, Errno, FileAttr, FileHandle, FileType, Filesystem, FopenFlags, Generation,
    INodeNo, KernelConfig, LockOwner, OpenFlags, RenameFlags, ReplyAttr, ReplyCreate, ReplyData,
    ReplyDirectory, ReplyDirectoryPlus, ReplyEmpty, ReplyEntry, ReplyLseek, ReplyOpen, ReplyStatfs,
    ReplyWrite, ReplyXattr, Request, TimeOrNow, WriteFlags,
};

use crate::bytes::SeekTarget;
use crate::classes::CLASS_XATTR;
use crate::control::CONTROL_XATTR;
use crate::engine::{Answer, ChangeSource, Core, Engine, Held};
use crate::handles::{ListedEntry, OpenUsage};
use crate::names::{Attributes, Caller, Maker, NamePlace, NodeType, RenameMode};
use waits::Waits;

/// How long the kernel may believe names and attributes: it hears of every change itself.
const TTL: Duration = Duration::from_secs(60);
/// Inode numbers are never given again.
const GENERATION: Generation = Generation(0);
/// `st_blksize`, and the unit in which space is counted.
const BLOCK: u32 = 4096;
/// Seeks of `lseek(2)`.
const SEEK_DATA: i32 = 3;
const SEEK_HOLE: i32 = 4;
/// The flag of `fallocate(2)` that leaves the size as it is.
const KEEP_SIZE: i32 = 1;
/// Bits of a mode that say what is made (`inode(7)`), and their values.
const TYPE_BITS: u32 = 0o170_000;
const REGULAR: u32 = 0o100_000;
const PIPE: u32 = 0o010_000;
const CHARACTER: u32 = 0o020_000;
const BLOCK_DEVICE: u32 = 0o060_000;
const SOCKET: u32 = 0o140_000;

/// The file system, as the kernel sees it.
struct KernelAdaptor {
    engine: Arc<Engine>,
    /// What the mount point answers for [`CONTROL_XATTR`].
    control: PathBuf,
    waits: Arc<Waits>,
}

fn error(errno: rustix::io::Errno) -> Errno {
    Errno::from_i32(errno.raw_os_error())
}

fn time_of(wall: WallNs) -> SystemTime {
    UNIX_EPOCH + Duration::from_nanos(wall.0)
}

fn wall_of(time: TimeOrNow, now: WallNs) -> WallNs {
    match time {
        TimeOrNow::Now => now,
        // Times before 1970 are those of 1970.
        TimeOrNow::SpecificTime(time) => {
            let since = time.duration_since(UNIX_EPOCH).unwrap_or(Duration::ZERO);
            WallNs(u64::try_from(since.as_nanos()).unwrap_or(u64::MAX))
        }
    }
}

const fn kind_of(node: NodeType) -> FileType {
    match node {
        NodeType::File => FileType::RegularFile,
        NodeType::Directory => FileType::Directory,
        NodeType::Symlink => FileType::Symlink,
        NodeType::Special(SpecialNode { kind, .. }) => match kind {
            SpecialKind::Pipe => FileType::NamedPipe,
            SpecialKind::Socket => FileType::Socket,
            SpecialKind::Block => FileType::BlockDevice,
            SpecialKind::Character => FileType::CharDevice,
        },
    }
}

fn reply_of(found: &Attributes) -> FileAttr {
    FileAttr {
        ino: INodeNo(found.inode.0),
        size: found.size,
        blocks: found.stored.div_ceil(512),
        atime: time_of(found.atime),
        mtime: time_of(found.mtime),
        ctime: time_of(found.ctime),
        crtime: UNIX_EPOCH,
        kind: kind_of(found.node),
        perm: (found.mode & 0o7777) as u16,
        nlink: found.links,
        uid: found.uid,
        gid: found.gid,
        rdev: match found.node {
            NodeType::Special(special) => special.device,
            _ => 0,
        },
        blksize: BLOCK,
        flags: 0,
    }
}

const fn inode(ino: INodeNo) -> InodeId {
    InodeId(ino.0)
}

/// Answers with an entry that the kernel may believe for `ttl`.
fn entry_for(ttl: Duration, reply: ReplyEntry) -> Answer<Attributes> {
    Box::new(move |made| match made {
        Ok(made) => reply.entry(&ttl, &reply_of(&made), GENERATION),
        Err(why) => reply.error(error(why)),
    })
}

fn entry(reply: ReplyEntry) -> Answer<Attributes> {
    entry_for(TTL, reply)
}

fn empty(reply: ReplyEmpty) -> Answer<()> {
    Box::new(move |done| match done {
        Ok(()) => reply.ok(),
        Err(why) => reply.error(error(why)),
    })
}

/// Answers with attributes that the kernel may believe for `ttl`.
fn attributes_for(ttl: Duration, reply: ReplyAttr) -> Answer<Attributes> {
    Box::new(move |found| match found {
        Ok(found) => reply.attr(&ttl, &reply_of(&found)),
        Err(why) => reply.error(error(why)),
    })
}

fn attributes(reply: ReplyAttr) -> Answer<Attributes> {
    attributes_for(TTL, reply)
}

/// Answers a write of `length` bytes.
fn written(length: u32, reply: ReplyWrite) -> Answer<()> {
    Box::new(move |done| match done {
        Ok(()) => reply.written(length),
        Err(why) => reply.error(error(why)),
    })
}

/// Sends a value of an extended attribute, or its size.
fn xattr(reply: ReplyXattr, size: u32, value: Result<&[u8], rustix::io::Errno>) {
    match value {
        Err(why) => reply.error(error(why)),
        Ok(value) if size == 0 => reply.size(value.len() as u32),
        Ok(value) if value.len() > size as usize => reply.error(Errno::ERANGE),
        Ok(value) => reply.data(value),
    }
}

fn maker(request: &Request, mode: u32) -> Maker {
    Maker { uid: request.uid(), gid: request.gid(), mode: mode & 0o7777 }
}

fn node_of(mode: u32, device: u32) -> Option<NodeKind> {
    let special = |kind, device| Some(NodeKind::Special(SpecialNode { kind, device }));
    match mode & TYPE_BITS {
        0 | REGULAR => Some(NodeKind::File),
        PIPE => special(SpecialKind::Pipe, 0),
        SOCKET => special(SpecialKind::Socket, 0),
        CHARACTER => special(SpecialKind::Character, device),
        BLOCK_DEVICE => special(SpecialKind::Block, device),
        _ => None,
    }
}

impl KernelAdaptor {
    fn new(engine: Arc<Engine>, control: &Path, waits: Arc<Waits>) -> Self {
        Self { engine, control: control.to_owned(), waits }
    }

    /// Makes a change for a request.
    fn change<T: Send + 'static>(
        &self,
        request: &Request,
        answer: Answer<T>,
        mut attempt: impl FnMut(&mut Core) -> Result<T, Held> + Send + 'static,
    ) {
        let held = Waits::hold(answer);
        let (given, tried) = (Arc::clone(&held), Arc::clone(&held));
        let answer = Box::new(move |outcome| {
            given.answer(outcome);
        });
        self.engine.change(ChangeSource::User(request.uid()), answer, move |core| {
            tried.attempt(|| attempt(core))
        });
        self.waits.watch(request.pid(), &held);
    }

    /// Makes an entry.
    fn make(
        &self,
        request: &Request,
        parent: INodeNo,
        name: &OsStr,
        node: NodeKind,
        maker: Maker,
        answer: Answer<Attributes>,
    ) {
        match NamePlace::new(inode(parent), name.as_bytes()) {
            Ok(place) => {
                self.change(request, answer, move |core| core.make(&place, node.clone(), maker));
            }
            Err(why) => answer(Err(why)),
        }
    }

    /// Sends `reply` when what was written through a handle is durable.
    fn wait(&self, ino: INodeNo, handle: FileHandle, reply: ReplyEmpty) {
        self.engine.wait_leading(|core| {
            if core.handles.has_failed(handle.0) {
                return reply.error(Errno::EIO);
            }
            core.wait_for(inode(ino), empty(reply));
        });
    }

    /// Returns what a directory lists, from its beginning or from where it was before.
    fn listed(
        &self,
        ino: INodeNo,
        handle: FileHandle,
        offset: u64,
    ) -> Result<Listing, rustix::io::Errno> {
        self.engine.look(|core| {
            let entries = if offset == 0 {
                core.list(handle.0, inode(ino))?
            } else {
                core.handles.listed(handle.0).ok_or(rustix::io::Errno::BADF)?
            };
            Ok(Listing { entries, directory: inode(ino), parent: core.parent(inode(ino)) })
        })
    }
}

/// What a directory lists, with itself and its parent in front.
struct Listing {
    entries: Arc<Vec<ListedEntry>>,
    directory: InodeId,
    parent: InodeId,
}

impl Listing {
    /// Returns the entry at `offset`: its inode and name, and whether it is one of the tree's.
    fn at(&self, offset: usize) -> Option<(InodeId, &[u8], Option<&EntryName>)> {
        match offset {
            0 => Some((self.directory, b".", None)),
            1 => Some((self.parent, b"..", None)),
            _ => {
                let ListedEntry { inode, name } = self.entries.get(offset - 2)?;
                Some((*inode, name.bytes(), Some(name)))
            }
        }
    }
}

impl Filesystem for KernelAdaptor {
    fn init(&mut self, _req: &Request, config: &mut KernelConfig) -> io::Result<()> {
        session::configure(config);
        Ok(())
    }

    fn lookup(&self, _req: &Request, parent: INodeNo, name: &OsStr, reply: ReplyEntry) {
        let place = NamePlace::new(inode(parent), name.as_bytes());
        entry(reply)(place.and_then(|place| self.engine.look(|core| core.lookup(&place))));
    }

    fn forget(&self, _req: &Request, ino: INodeNo, nlookup: u64) {
        self.engine.wait(|core| core.forget(inode(ino), nlookup));
    }

    fn getattr(&self, _req: &Request, ino: INodeNo, _fh: Option<FileHandle>, reply: ReplyAttr) {
        attributes(reply)(self.engine.look(|core| core.attributes(inode(ino))));
    }

    fn setattr(
        &self,
        req: &Request,
        ino: INodeNo,
        mode: Option<u32>,
        uid: Option<u32>,
        gid: Option<u32>,
        size: Option<u64>,
        atime: Option<TimeOrNow>,
        mtime: Option<TimeOrNow>,
        _ctime: Option<SystemTime>,
        _fh: Option<FileHandle>,
        _crtime: Option<SystemTime>,
        _chgtime: Option<SystemTime>,
        _bkuptime: Option<SystemTime>,
        _flags: Option<BsdFileFlags>,
        reply: ReplyAttr,
    ) {
        let caller = Caller { uid: req.uid(), gid: req.gid(), process: req.pid() };
        self.change(req, attributes(reply), move |core| {
            let now = core.now();
            let set = AttributeSet {
                mode: mode.map(|mode| mode & 0o7777),
                owner: core.owner(inode(ino), uid, gid),
                mtime: mtime.map(|time| wall_of(time, now)),
                atime: atime.map(|time| wall_of(time, now)),
            };
            // The kernel leaves it to its server what a new owner or size takes away.
            let is_cut = size.is_some() && !caller.keeps_set_id();
            if mode.is_none() && (set.owner.is_some() || is_cut) {
                core.drop_set_id(inode(ino), caller)?;
            }
            core.set(inode(ino), size, set)
        });
    }

    fn readlink(&self, _req: &Request, ino: INodeNo, reply: ReplyData) {
        match self.engine.look(|core| core.target(inode(ino))) {
            Ok(target) => reply.data(&target),
            Err(why) => reply.error(error(why)),
        }
    }

    fn mknod(
        &self,
        req: &Request,
        parent: INodeNo,
        name: &OsStr,
        mode: u32,
        _umask: u32,
        rdev: u32,
        reply: ReplyEntry,
    ) {
        match node_of(mode, rdev) {
            Some(node) => self.make(req, parent, name, node, maker(req, mode), entry(reply)),
            None => reply.error(Errno::EINVAL),
        }
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
        self.make(req, parent, name, NodeKind::Directory, maker(req, mode), entry(reply));
    }

    fn unlink(&self, req: &Request, parent: INodeNo, name: &OsStr, reply: ReplyEmpty) {
        match NamePlace::new(inode(parent), name.as_bytes()) {
            Ok(place) => self.change(req, empty(reply), move |core| core.unlink(&place)),
            Err(why) => reply.error(error(why)),
        }
    }

    fn rmdir(&self, req: &Request, parent: INodeNo, name: &OsStr, reply: ReplyEmpty) {
        match NamePlace::new(inode(parent), name.as_bytes()) {
            Ok(place) => self.change(req, empty(reply), move |core| core.remove_directory(&place)),
            Err(why) => reply.error(error(why)),
        }
    }

    fn symlink(
        &self,
        req: &Request,
        parent: INodeNo,
        link_name: &OsStr,
        target: &Path,
        reply: ReplyEntry,
    ) {
        let node = NodeKind::Symlink(target.as_os_str().as_bytes().into());
        self.make(req, parent, link_name, node, maker(req, 0o777), entry(reply));
    }

    fn rename(
        &self,
        req: &Request,
        parent: INodeNo,
        name: &OsStr,
        newparent: INodeNo,
        newname: &OsStr,
        flags: RenameFlags,
        reply: ReplyEmpty,
    ) {
        let mode = if flags.is_empty() {
            RenameMode::Replace
        } else if flags == RenameFlags::RENAME_NOREPLACE {
            RenameMode::KeepOther
        } else {
            return reply.error(Errno::EINVAL);
        };
        let from = NamePlace::new(inode(parent), name.as_bytes());
        let to = NamePlace::new(inode(newparent), newname.as_bytes());
        match from.and_then(|from| Ok((from, to?))) {
            Ok((from, to)) => {
                self.change(req, empty(reply), move |core| core.rename(&from, &to, mode));
            }
            Err(why) => reply.error(error(why)),
        }
    }

    fn link(
        &self,
        req: &Request,
        ino: INodeNo,
        newparent: INodeNo,
        newname: &OsStr,
        reply: ReplyEntry,
    ) {
        match NamePlace::new(inode(newparent), newname.as_bytes()) {
            Ok(place) => self.change(req, entry(reply), move |core| core.link(inode(ino), &place)),
            Err(why) => reply.error(error(why)),
        }
    }

    fn open(&self, _req: &Request, ino: INodeNo, flags: OpenFlags, reply: ReplyOpen) {
        let usage = OpenUsage::from_flags(flags.0);
        let handle = self.engine.look(|core| core.open_file(inode(ino), usage));
        let mut opened = FopenFlags::FOPEN_KEEP_CACHE;
        if usage == OpenUsage::Read {
            // A reader waits for nothing when it closes.
            opened |= FopenFlags::FOPEN_NOFLUSH;
        }
        reply.opened(FileHandle(handle), opened);
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
        let answer = Box::new(move |bytes: Result<&[u8], rustix::io::Errno>| match bytes {
            Ok(bytes) => reply.data(bytes),
            Err(why) => reply.error(error(why)),
        });
        self.engine.read_for(inode(ino), offset, size, answer);
    }

    fn write(
        &self,
        req: &Request,
        ino: INodeNo,
        fh: FileHandle,
        offset: u64,
        data: &[u8],
        write_flags: WriteFlags,
        _flags: OpenFlags,
        _lock_owner: Option<LockOwner>,
        reply: ReplyWrite,
    ) {
        let length = data.len() as u32;
        if length == 0 {
            return reply.written(0);
        }
        let Some(loan) = self.engine.arena.fill(data) else { return reply.error(Errno::ENOMEM) };
        let (loan, digest) = (Arc::new(loan), xxh3(data));
        let caller = Caller { uid: req.uid(), gid: req.gid(), process: req.pid() };
        self.change(req, written(length, reply), move |core| {
            if core.handles.has_failed(fh.0) {
                return Err(Held::Errno(rustix::io::Errno::IO));
            }
            if write_flags.contains(WriteFlags::FUSE_WRITE_KILL_SUIDGID) {
                core.drop_set_id(inode(ino), caller)?;
            }
            core.write(inode(ino), offset, &loan, digest)
        });
    }

    fn flush(
        &self,
        _req: &Request,
        ino: INodeNo,
        fh: FileHandle,
        _lock_owner: LockOwner,
        reply: ReplyEmpty,
    ) {
        self.wait(ino, fh, reply);
    }

    fn release(
        &self,
        _req: &Request,
        _ino: INodeNo,
        fh: FileHandle,
        _flags: OpenFlags,
        _lock_owner: Option<LockOwner>,
        _flush: bool,
        reply: ReplyEmpty,
    ) {
        self.engine.wait(|core| core.close_handle(fh.0));
        reply.ok();
    }

    fn fsync(
        &self,
        _req: &Request,
        ino: INodeNo,
        fh: FileHandle,
        _datasync: bool,
        reply: ReplyEmpty,
    ) {
        self.wait(ino, fh, reply);
    }

    fn opendir(&self, _req: &Request, _ino: INodeNo, _flags: OpenFlags, reply: ReplyOpen) {
        let handle = self.engine.look(|core| core.handles.open_directory());
        reply.opened(FileHandle(handle), FopenFlags::empty());
    }

    fn readdir(
        &self,
        _req: &Request,
        ino: INodeNo,
        fh: FileHandle,
        offset: u64,
        mut reply: ReplyDirectory,
    ) {
        let listing = match self.listed(ino, fh, offset) {
            Ok(listing) => listing,
            Err(why) => return reply.error(error(why)),
        };
        let mut at = offset as usize;
        self.engine.look(|core| {
            while let Some((found, name, _)) = listing.at(at) {
                at += 1;
                // What was removed since then is left out.
                let Some(node) = core.node_type(found) else { continue };
                let full =
                    reply.add(INodeNo(found.0), at as u64, kind_of(node), OsStr::from_bytes(name));
                if full {
                    break;
                }
            }
        });
        reply.ok();
    }

    fn readdirplus(
        &self,
        _req: &Request,
        ino: INodeNo,
        fh: FileHandle,
        offset: u64,
        mut reply: ReplyDirectoryPlus,
    ) {
        let listing = match self.listed(ino, fh, offset) {
            Ok(listing) => listing,
            Err(why) => return reply.error(error(why)),
        };
        let mut at = offset as usize;
        self.engine.look(|core| {
            while let Some((found, name, tree_name)) = listing.at(at) {
                at += 1;
                let Ok(attributes) = core.attributes(found) else { continue };
                // The kernel would hold a name that is not there any more, or is another's.
                if let Some(name) = tree_name
                    && core.tree().lookup(listing.directory, name) != Ok(found)
                {
                    continue;
                }
                let (ino, shown) = (INodeNo(found.0), reply_of(&attributes));
                if reply.add(ino, at as u64, OsStr::from_bytes(name), &TTL, &shown, GENERATION) {
                    break;
                }
                if let Some(name) = tree_name {
                    core.lives.found(found, listing.directory, name.clone());
                }
            }
        });
        reply.ok();
    }

    fn releasedir(
        &self,
        _req: &Request,
        _ino: INodeNo,
        fh: FileHandle,
        _flags: OpenFlags,
        reply: ReplyEmpty,
    ) {
        self.engine.wait(|core| core.close_handle(fh.0));
        reply.ok();
    }

    fn fsyncdir(
        &self,
        _req: &Request,
        ino: INodeNo,
        fh: FileHandle,
        _datasync: bool,
        reply: ReplyEmpty,
    ) {
        self.wait(ino, fh, reply);
    }

    fn statfs(&self, _req: &Request, _ino: INodeNo, reply: ReplyStatfs) {
        let (space, inodes) =
            self.engine.look(|core| (core.space(), core.tree().inode_usage().total()));
        let (total, free) = (space.total.0, space.free.0);
        let blocks = |bytes: u64| bytes / u64::from(BLOCK);
        let most = self.engine.inodes_max;
        let left = most.saturating_sub(inodes);
        reply.statfs(blocks(total), blocks(free), blocks(free), most, left, BLOCK, 255, BLOCK);
    }

    fn setxattr(
        &self,
        req: &Request,
        ino: INodeNo,
        name: &OsStr,
        value: &[u8],
        flags: i32,
        _position: u32,
        reply: ReplyEmpty,
    ) {
        if name.as_bytes().starts_with(b"system.") {
            return reply.error(Errno::EOPNOTSUPP);
        }
        let Ok(name) = EntryName::new(name.as_bytes()) else { return reply.error(Errno::ERANGE) };
        let value: Box<[u8]> = value.into();
        self.change(req, empty(reply), move |core| {
            core.set_xattr_by(inode(ino), name.clone(), &value, flags)
        });
        self.engine.wait(|_| ());
    }

    fn getxattr(&self, _req: &Request, ino: INodeNo, name: &OsStr, size: u32, reply: ReplyXattr) {
        if name.as_bytes().starts_with(b"system.") {
            return reply.error(Errno::EOPNOTSUPP);
        }
        if name == CONTROL_XATTR && ino == INodeNo::ROOT {
            return xattr(reply, size, Ok(self.control.as_os_str().as_bytes()));
        }
        if name == CLASS_XATTR {
            let class = self.engine.look(|core| core.class_of(inode(ino)));
            return xattr(reply, size, Ok(class.name().as_bytes()));
        }
        let Ok(name) = EntryName::new(name.as_bytes()) else { return reply.error(Errno::ENODATA) };
        let value = self.engine.look(|core| {
            let node = core.tree().inode(inode(ino)).ok_or(rustix::io::Errno::NOENT)?;
            node.xattrs.get(&name).cloned().ok_or(rustix::io::Errno::NODATA)
        });
        xattr(reply, size, value.as_deref().map_err(|why| *why));
    }

    fn listxattr(&self, _req: &Request, ino: INodeNo, size: u32, reply: ReplyXattr) {
        let names = self.engine.look(|core| {
            let node = core.tree().inode(inode(ino)).ok_or(rustix::io::Errno::NOENT)?;
            let names = node.xattrs.keys();
            Ok(names.flat_map(|name| [name.bytes(), b"\0"].concat()).collect::<Vec<u8>>())
        });
        xattr(reply, size, names.as_deref().map_err(|why| *why));
    }

    fn removexattr(&self, req: &Request, ino: INodeNo, name: &OsStr, reply: ReplyEmpty) {
        let Ok(name) = EntryName::new(name.as_bytes()) else { return reply.error(Errno::ENODATA) };
        self.change(req, empty(reply), move |core| core.unset_xattr(inode(ino), name.clone()));
    }

    fn create(
        &self,
        req: &Request,
        parent: INodeNo,
        name: &OsStr,
        mode: u32,
        _umask: u32,
        flags: i32,
        reply: ReplyCreate,
    ) {
        let place = match NamePlace::new(inode(parent), name.as_bytes()) {
            Ok(place) => place,
            Err(why) => return reply.error(error(why)),
        };
        let maker = maker(req, mode);
        let answer: Answer<(Attributes, u64)> = Box::new(move |made| match made {
            Ok((made, handle)) => {
                let (shown, handle) = (reply_of(&made), FileHandle(handle));
                reply.created(&TTL, &shown, GENERATION, handle, FopenFlags::FOPEN_KEEP_CACHE);
            }
            Err(why) => reply.error(error(why)),
        });
        self.change(req, answer, move |core| {
            let made = core.make(&place, NodeKind::File, maker)?;
            Ok((made, core.open_file(made.inode, OpenUsage::from_flags(flags))))
        });
    }

    fn fallocate(
        &self,
        req: &Request,
        ino: INodeNo,
        _fh: FileHandle,
        offset: u64,
        length: u64,
        mode: i32,
        reply: ReplyEmpty,
    ) {
        let end = match mode {
            0 => offset.saturating_add(length),
            KEEP_SIZE => 0,
            _ => return reply.error(Errno::EOPNOTSUPP),
        };
        self.change(req, empty(reply), move |core| core.allocate(inode(ino), end, length));
    }

    fn lseek(
        &self,
        _req: &Request,
        ino: INodeNo,
        _fh: FileHandle,
        offset: i64,
        whence: i32,
        reply: ReplyLseek,
    ) {
        let wanted = match whence {
            SEEK_DATA => SeekTarget::Written,
            SEEK_HOLE => SeekTarget::Hole,
            _ => return reply.error(Errno::EINVAL),
        };
        let Ok(offset) = u64::try_from(offset) else { return reply.error(Errno::ENXIO) };
        match self.engine.look(|core| core.seek(inode(ino), offset, wanted)) {
            Ok(found) => reply.offset(found as i64),
            Err(why) => reply.error(error(why)),
        }
    }
}
