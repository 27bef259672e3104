//! Answers the kernel from a server on the network.
//!
//! # Model
//! Other clients change the same tree, so the kernel believes names and attributes for a second
//! only, and keeps the pages of a file when it is opened again if its bytes have the same version:
//! what one host closed, another sees when it opens (close-to-open).

use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use fuser::{
    BsdFileFlags, Errno, FileHandle, Filesystem, FopenFlags, INodeNo, KernelConfig, LockOwner,
    OpenFlags, RenameFlags, ReplyAttr, ReplyCreate, ReplyData, ReplyDirectory, ReplyDirectoryPlus,
    ReplyEmpty, ReplyEntry, ReplyLseek, ReplyOpen, ReplyStatfs, ReplyWrite, ReplyXattr, Request,
    TimeOrNow, WriteFlags,
};

use super::listing::{RemoteEntry, RemoteListings};
use super::waits::Waits;
use super::{BLOCK, GENERATION, error, kind_of, maker, node_of, reply_of, wall_of};
use crate::bytes::SeekTarget;
use crate::classes::CLASS_XATTR;
use crate::control::CONTROL_XATTR;
use crate::engine::{Answer, wall_now};
use crate::handles::OpenUsage;
use crate::names::Attributes;
use crate::network::{
    AllAnswer, CacheState, FileAge, FileRequest, FileResponse, RequestCaller, RequestNode,
    RequestPlace, RequestedAttributes, RequestedTime, RespondedAttributes, ServedTree, ServedTrees,
    TreeAnswer, TreeRename, TreeResponse, check_free, request_first,
};

/// How long the kernel may believe names and attributes.
const TTL: Duration = Duration::from_secs(1);

/// The trees of servers, as the kernel sees them.
pub(super) struct RemoteAdaptor {
    trees: ServedTrees,
    /// What the mount point answers for [`CONTROL_XATTR`].
    control: PathBuf,
    listings: Arc<RemoteListings>,
    waits: Arc<Waits>,
}

fn done(found: TreeResponse) -> Result<(), rustix::io::Errno> {
    found.map(drop)
}

/// Returns the attributes that a response has.
fn attributes_in(found: TreeResponse) -> Result<RespondedAttributes, rustix::io::Errno> {
    match found? {
        FileResponse::Attributes(attributes) => Ok(attributes),
        _ => Err(rustix::io::Errno::IO),
    }
}

fn bytes_in(found: TreeResponse) -> Result<Vec<u8>, rustix::io::Errno> {
    match found? {
        FileResponse::Bytes(bytes) => Ok(bytes),
        _ => Err(rustix::io::Errno::IO),
    }
}

/// Answers with the attributes of the mounted directory of several servers.
fn shared_attributes(answer: Answer<Attributes>) -> AllAnswer {
    Box::new(move |found| {
        let found = found.and_then(|found| {
            let shown = found
                .into_iter()
                .map(|(tree, response)| attributes_in(Ok(response)).map(|found| tree.shown(found)));
            shown.reduce(|all, one| Ok(all?.joined(&one?))).unwrap_or(Err(rustix::io::Errno::IO))
        });
        answer(found);
    })
}

impl RemoteAdaptor {
    pub(super) fn new(trees: ServedTrees, control: &Path, waits: Arc<Waits>) -> Self {
        Self { trees, control: control.to_owned(), listings: Arc::default(), waits }
    }

    /// Holds the answer of a request, which may be given before the server's.
    fn hold<T: Send + 'static>(&self, request: &Request, answer: Answer<T>) -> Answer<T> {
        let held = Waits::hold(answer);
        self.waits.watch(request.pid(), &held);
        Box::new(move |outcome| {
            held.answer(outcome);
        })
    }

    fn empty(&self, request: &Request, reply: ReplyEmpty) -> TreeAnswer {
        let answer = self.hold(request, super::empty(reply));
        Box::new(move |_, found| answer(done(found)))
    }

    fn entry(&self, request: &Request, reply: ReplyEntry) -> TreeAnswer {
        let answer = self.hold(request, super::entry_for(TTL, reply));
        Box::new(move |tree, found| answer(attributes_in(found).map(|found| tree.shown(found))))
    }

    fn attributes(&self, request: &Request, reply: ReplyAttr) -> TreeAnswer {
        let answer = self.hold(request, super::attributes_for(TTL, reply));
        Box::new(move |tree, found| answer(attributes_in(found).map(|found| tree.shown(found))))
    }

    /// Makes a request about an inode.
    fn request(&self, ino: INodeNo, request: impl FnOnce(u64) -> FileRequest, answer: TreeAnswer) {
        let (tree, inode) = self.trees.locate(ino.0);
        tree.request(&request(inode.0), answer);
    }

    /// Makes a request about a name that may be there.
    fn request_name(
        &self,
        parent: INodeNo,
        name: &OsStr,
        request: impl Fn(RequestPlace) -> FileRequest + Send + 'static,
        answer: TreeAnswer,
    ) {
        let place = self.place(parent, name);
        let request = move |tree: &ServedTree| request(place(tree));
        request_first(self.trees.holders(parent.0, name.as_bytes()), request, answer);
    }

    /// Makes a request that makes a name.
    fn request_new(
        &self,
        parent: INodeNo,
        name: &OsStr,
        request: impl FnOnce(RequestPlace) -> FileRequest,
        answer: TreeAnswer,
    ) {
        let holders = self.trees.holders(parent.0, name.as_bytes());
        let Some(home) = holders.first() else { return };
        home.request(&request(self.place(parent, name)(home)), answer);
    }

    /// Returns what makes the place of a name for a server that may have it.
    fn place(
        &self,
        parent: INodeNo,
        name: &OsStr,
    ) -> impl Fn(&ServedTree) -> RequestPlace + Send + use<> {
        let (inode, name) = (self.trees.locate(parent.0).1, name.as_bytes().to_vec());
        let is_root = parent == INodeNo::ROOT;
        move |tree| RequestPlace::new(if is_root { tree.root } else { inode }, &name)
    }

    fn sync(&self, request: &Request, ino: INodeNo, reply: ReplyEmpty) {
        let answer = self.hold(request, super::empty(reply));
        let (tree, inode) = self.trees.locate(ino.0);
        tree.files.sync(inode, answer);
    }
}

fn time_of(time: TimeOrNow) -> RequestedTime {
    match time {
        TimeOrNow::Now => RequestedTime::Now,
        time @ TimeOrNow::SpecificTime(_) => RequestedTime::At(wall_of(time, wall_now()).0),
    }
}

fn request_caller(request: &Request) -> RequestCaller {
    RequestCaller { uid: request.uid(), gid: request.gid() }
}

impl Filesystem for RemoteAdaptor {
    fn init(&mut self, _req: &Request, config: &mut KernelConfig) -> std::io::Result<()> {
        super::session::configure(config);
        Ok(())
    }

    fn lookup(&self, req: &Request, parent: INodeNo, name: &OsStr, reply: ReplyEntry) {
        self.request_name(parent, name, FileRequest::Lookup, self.entry(req, reply));
    }

    fn getattr(&self, req: &Request, ino: INodeNo, _fh: Option<FileHandle>, reply: ReplyAttr) {
        if ino == INodeNo::ROOT {
            let answer = self.hold(req, super::attributes_for(TTL, reply));
            return self.trees.root_attributes(answer);
        }
        self.request(ino, |inode| FileRequest::Attributes { inode }, self.attributes(req, reply));
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
        let (atime, mtime) = (atime.map(time_of), mtime.map(time_of));
        let set =
            RequestedAttributes { mode, uid, gid, size, atime, mtime, caller: request_caller(req) };
        if self.trees.is_shared(ino.0) {
            let request = move |tree: &ServedTree| FileRequest::Set { inode: tree.root.0, set };
            let answer = self.hold(req, super::attributes_for(TTL, reply));
            return self.trees.request_all(request, shared_attributes(answer));
        }
        let (tree, inode) = self.trees.locate(ino.0);
        let (kept, answer) = (Arc::clone(tree), self.attributes(req, reply));
        // Bytes and times that are on their way must not come behind this.
        tree.files.after_writes(inode, move |_| {
            kept.request(&FileRequest::Set { inode: inode.0, set }, answer);
        });
    }

    fn readlink(&self, _req: &Request, ino: INodeNo, reply: ReplyData) {
        let answer: TreeAnswer = Box::new(move |_, found| match bytes_in(found) {
            Ok(target) => reply.data(&target),
            Err(why) => reply.error(error(why)),
        });
        self.request(ino, |inode| FileRequest::Target { inode }, answer);
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
        let Some(node) = node_of(mode, rdev) else { return reply.error(Errno::EINVAL) };
        let (node, maker) = (RequestNode::from_kind(&node), maker(req, mode));
        let request = |place| FileRequest::Make { place, node, maker };
        self.request_new(parent, name, request, self.entry(req, reply));
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
        let (node, maker) = (RequestNode::Directory, maker(req, mode));
        let request = |place| FileRequest::Make { place, node, maker };
        self.request_new(parent, name, request, self.entry(req, reply));
    }

    fn unlink(&self, req: &Request, parent: INodeNo, name: &OsStr, reply: ReplyEmpty) {
        self.request_name(parent, name, FileRequest::Unlink, self.empty(req, reply));
    }

    fn rmdir(&self, req: &Request, parent: INodeNo, name: &OsStr, reply: ReplyEmpty) {
        self.request_name(parent, name, FileRequest::RemoveDirectory, self.empty(req, reply));
    }

    fn symlink(
        &self,
        req: &Request,
        parent: INodeNo,
        link_name: &OsStr,
        target: &Path,
        reply: ReplyEntry,
    ) {
        let node = RequestNode::Symlink(target.as_os_str().as_bytes().to_vec());
        let maker = maker(req, 0o777);
        let request = |place| FileRequest::Make { place, node, maker };
        self.request_new(parent, link_name, request, self.entry(req, reply));
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
        let keeps_other = if flags.is_empty() {
            false
        } else if flags == RenameFlags::RENAME_NOREPLACE {
            true
        } else {
            return reply.error(Errno::EINVAL);
        };
        let rename = TreeRename {
            trees: self.trees.clone(),
            from: (parent.0, name.as_bytes().to_vec()),
            to: (newparent.0, newname.as_bytes().to_vec()),
            keeps_other,
        };
        rename.begin(self.empty(req, reply));
    }

    fn link(
        &self,
        req: &Request,
        ino: INodeNo,
        newparent: INodeNo,
        newname: &OsStr,
        reply: ReplyEntry,
    ) {
        let (tree, inode) = self.trees.locate(ino.0);
        let (kept, place) = (Arc::clone(tree), self.place(newparent, newname)(tree));
        let to = (newparent.0, newname.as_bytes().to_vec());
        let answer = self.entry(req, reply);
        check_free(
            &self.trees,
            tree,
            to,
            Box::new(move |outcome| match outcome {
                // A name is not replaced by a link, wherever it is.
                Err(rustix::io::Errno::XDEV) if newparent == INodeNo::ROOT => {
                    answer(&kept, Err(rustix::io::Errno::EXIST))
                }
                Err(why) => answer(&kept, Err(why)),
                Ok(()) => kept.request(&FileRequest::Link { inode: inode.0, place }, answer),
            }),
        );
    }

    fn open(&self, _req: &Request, ino: INodeNo, flags: OpenFlags, reply: ReplyOpen) {
        let usage = OpenUsage::from_flags(flags.0);
        let (tree, inode) = self.trees.locate(ino.0);
        let answer: TreeAnswer = Box::new(move |tree, found| {
            let opening = match found {
                Ok(FileResponse::Opened(opening)) => opening,
                Ok(_) => return reply.error(Errno::EIO),
                Err(why) => return reply.error(error(why)),
            };
            let mut opened = match tree.files.opened(inode, usage, opening, FileAge::Existing) {
                CacheState::Valid => FopenFlags::FOPEN_KEEP_CACHE,
                CacheState::Stale => FopenFlags::empty(),
            };
            if usage == OpenUsage::Read {
                // A reader waits for nothing when it closes.
                opened |= FopenFlags::FOPEN_NOFLUSH;
            }
            reply.opened(handle_of(usage), opened);
        });
        tree.request(&FileRequest::Open { inode: inode.0, usage }, answer);
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
        let (tree, inode) = self.trees.locate(ino.0);
        tree.files.read(inode, offset, size, answer);
    }

    fn write(
        &self,
        req: &Request,
        ino: INodeNo,
        _fh: FileHandle,
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
        let drops_set_id =
            write_flags.contains(WriteFlags::FUSE_WRITE_KILL_SUIDGID).then(|| request_caller(req));
        // The bytes of a write that waits are in memory, and go on to the server.
        let held = Waits::hold_with(super::written(length, reply), |_| Ok(()));
        let given = Arc::clone(&held);
        let answer = Box::new(move |outcome| {
            given.answer(outcome);
        });
        let (tree, inode) = self.trees.locate(ino.0);
        tree.files.write(inode, offset, data, drops_set_id, answer);
        self.waits.watch(req.pid(), &held);
    }

    fn flush(
        &self,
        req: &Request,
        ino: INodeNo,
        _fh: FileHandle,
        _lock_owner: LockOwner,
        reply: ReplyEmpty,
    ) {
        self.sync(req, ino, reply);
    }

    fn release(
        &self,
        _req: &Request,
        ino: INodeNo,
        fh: FileHandle,
        _flags: OpenFlags,
        _lock_owner: Option<LockOwner>,
        _flush: bool,
        reply: ReplyEmpty,
    ) {
        let (tree, inode) = self.trees.locate(ino.0);
        tree.files.close(inode, usage_of(fh));
        reply.ok();
    }

    fn fsync(
        &self,
        req: &Request,
        ino: INodeNo,
        _fh: FileHandle,
        _datasync: bool,
        reply: ReplyEmpty,
    ) {
        self.sync(req, ino, reply);
    }

    fn opendir(&self, _req: &Request, _ino: INodeNo, _flags: OpenFlags, reply: ReplyOpen) {
        reply.opened(FileHandle(self.listings.opened()), FopenFlags::empty());
    }

    fn readdir(
        &self,
        _req: &Request,
        ino: INodeNo,
        fh: FileHandle,
        offset: u64,
        mut reply: ReplyDirectory,
    ) {
        self.listings.with(&self.trees, ino.0, (fh.0, offset), move |listing| {
            let listing = match listing {
                Ok(listing) => listing,
                Err(why) => return reply.error(error(why)),
            };
            let mut at = offset as usize;
            while let Some(RemoteEntry { name, attributes, .. }) = listing.at(at, TTL) {
                at += 1;
                let ino = INodeNo(attributes.inode.0);
                if reply.add(ino, at as u64, kind_of(attributes.node), OsStr::from_bytes(name)) {
                    break;
                }
            }
            reply.ok();
        });
    }

    fn readdirplus(
        &self,
        _req: &Request,
        ino: INodeNo,
        fh: FileHandle,
        offset: u64,
        mut reply: ReplyDirectoryPlus,
    ) {
        self.listings.with(&self.trees, ino.0, (fh.0, offset), move |listing| {
            let listing = match listing {
                Ok(listing) => listing,
                Err(why) => return reply.error(error(why)),
            };
            let mut at = offset as usize;
            while let Some(RemoteEntry { name, attributes, ttl }) = listing.at(at, TTL) {
                at += 1;
                let (ino, name) = (INodeNo(attributes.inode.0), OsStr::from_bytes(name));
                if reply.add(ino, at as u64, name, &ttl, &reply_of(&attributes), GENERATION) {
                    break;
                }
            }
            reply.ok();
        });
    }

    fn releasedir(
        &self,
        _req: &Request,
        _ino: INodeNo,
        fh: FileHandle,
        _flags: OpenFlags,
        reply: ReplyEmpty,
    ) {
        self.listings.close(fh.0);
        reply.ok();
    }

    fn fsyncdir(
        &self,
        _req: &Request,
        _ino: INodeNo,
        _fh: FileHandle,
        _datasync: bool,
        reply: ReplyEmpty,
    ) {
        // A change of a name was answered when it was in the log.
        reply.ok();
    }

    fn statfs(&self, _req: &Request, _ino: INodeNo, reply: ReplyStatfs) {
        self.trees.space(Box::new(move |found| match found {
            Ok(space) => {
                let blocks = |bytes: u64| bytes / u64::from(BLOCK);
                let (total, free) = (blocks(space.total), blocks(space.free));
                let left = space.inodes_max.saturating_sub(space.inodes);
                reply.statfs(total, free, free, space.inodes_max, left, BLOCK, 255, BLOCK);
            }
            Err(why) => reply.error(error(why)),
        }));
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
        let (name, value) = (name.as_bytes().to_vec(), value.to_vec());
        self.change_attribute(req, ino, reply, name, move |inode, name| {
            let value = value.clone();
            FileRequest::SetXattr { inode, name, value, flags }
        });
    }

    fn getxattr(&self, _req: &Request, ino: INodeNo, name: &OsStr, size: u32, reply: ReplyXattr) {
        if name.as_bytes().starts_with(b"system.") {
            return reply.error(Errno::EOPNOTSUPP);
        }
        if name == CONTROL_XATTR && ino == INodeNo::ROOT {
            return super::xattr(reply, size, Ok(self.control.as_os_str().as_bytes()));
        }
        let name = name.as_bytes().to_vec();
        self.request(ino, |inode| FileRequest::GetXattr { inode, name }, xattr(reply, size));
    }

    fn listxattr(&self, _req: &Request, ino: INodeNo, size: u32, reply: ReplyXattr) {
        self.request(ino, |inode| FileRequest::ListXattr { inode }, xattr(reply, size));
    }

    fn removexattr(&self, req: &Request, ino: INodeNo, name: &OsStr, reply: ReplyEmpty) {
        self.change_attribute(req, ino, reply, name.as_bytes().to_vec(), |inode, name| {
            FileRequest::RemoveXattr { inode, name }
        });
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
        let usage = OpenUsage::from_flags(flags);
        let is_exclusive = flags & rustix::fs::OFlags::EXCL.bits() as i32 != 0;
        let maker = maker(req, mode);
        let created: Answer<Attributes> = Box::new(move |made| match made {
            Ok(made) => {
                let keep = FopenFlags::FOPEN_KEEP_CACHE;
                reply.created(&TTL, &reply_of(&made), GENERATION, handle_of(usage), keep);
            }
            // Another mount made it meanwhile: the kernel looks again, and opens it.
            Err(rustix::io::Errno::EXIST) if !is_exclusive => reply.error(Errno::ESTALE),
            Err(why) => reply.error(error(why)),
        });
        let held = Waits::hold(created);
        self.waits.watch(req.pid(), &held);
        let answer: TreeAnswer = Box::new(move |tree, found| {
            let (made, opening) = match found {
                Ok(FileResponse::Created(made, opening)) => (Attributes::from(made), opening),
                other => {
                    held.answer(Err(other.err().unwrap_or(rustix::io::Errno::IO)));
                    return;
                }
            };
            tree.files.opened(made.inode, usage, opening, FileAge::New);
            if !held.answer(Ok(Attributes { inode: tree.number(made.inode), ..made })) {
                // Nobody closes it.
                tree.files.close(made.inode, usage);
            }
        });
        let request = |place| FileRequest::Create { place, maker, usage };
        self.request_new(parent, name, request, answer);
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
            super::KEEP_SIZE => 0,
            _ => return reply.error(Errno::EOPNOTSUPP),
        };
        let (tree, inode) = self.trees.locate(ino.0);
        let (kept, answer) = (Arc::clone(tree), self.empty(req, reply));
        tree.files.after_writes(inode, move |_| {
            kept.request(&FileRequest::Allocate { inode: inode.0, end, length }, answer);
        });
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
            super::SEEK_DATA => SeekTarget::Written,
            super::SEEK_HOLE => SeekTarget::Hole,
            _ => return reply.error(Errno::EINVAL),
        };
        let Ok(offset) = u64::try_from(offset) else { return reply.error(Errno::ENXIO) };
        let (tree, inode) = self.trees.locate(ino.0);
        let answer: TreeAnswer = Box::new(move |_, found| match found {
            Ok(FileResponse::Offset(found)) => reply.offset(found as i64),
            Ok(_) => reply.error(Errno::EIO),
            Err(why) => reply.error(error(why)),
        });
        let kept = Arc::clone(tree);
        tree.files.after_writes(inode, move |_| {
            kept.request(&FileRequest::Seek { inode: inode.0, offset, wanted }, answer);
        });
    }
}

impl RemoteAdaptor {
    /// Changes an attribute; one of Clearway's may change the class of open files.
    fn change_attribute(
        &self,
        req: &Request,
        ino: INodeNo,
        reply: ReplyEmpty,
        name: Vec<u8>,
        request: impl Fn(u64, Vec<u8>) -> FileRequest + Send + Sync + 'static,
    ) {
        let is_class = name.starts_with(b"user.clearway.") || name == CLASS_XATTR.as_bytes();
        let answer = self.hold(req, super::empty(reply));
        let all: AllAnswer = Box::new(move |changed| {
            answer(changed.map(|changed| {
                if is_class {
                    changed.iter().for_each(|(tree, _)| tree.files.refresh_classes());
                }
            }));
        });
        if self.trees.is_shared(ino.0) {
            return self.trees.request_all(move |tree| request(tree.root.0, name.clone()), all);
        }
        let one: TreeAnswer = Box::new(move |tree, changed| {
            all(changed.map(|response| vec![(Arc::clone(tree), response)]));
        });
        self.request(ino, |inode| request(inode, name), one);
    }
}

fn xattr(reply: ReplyXattr, size: u32) -> TreeAnswer {
    Box::new(move |_, found| {
        let found = bytes_in(found);
        super::xattr(reply, size, found.as_deref().map_err(|why| *why));
    })
}

/// A handle of a file says what it was opened for: everything else is known by the inode.
const fn handle_of(usage: OpenUsage) -> FileHandle {
    match usage {
        OpenUsage::Read => FileHandle(0),
        OpenUsage::Write => FileHandle(1),
    }
}

const fn usage_of(handle: FileHandle) -> OpenUsage {
    if handle.0 == 1 { OpenUsage::Write } else { OpenUsage::Read }
}
