//! Answers the kernel from a server on the network.
//!
//! # Model
//! Other clients change the same tree, so the kernel believes names and attributes for a second
//! only, and keeps the pages of a file when it is opened again if its bytes have the same version:
//! what one host closed, another sees when it opens (close-to-open).

use std::collections::BTreeMap;
use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, SystemTime};

use clearway_proto::base::Class;
use clearway_proto::staging::InodeId;
use fuser::{
    BsdFileFlags, Errno, FileHandle, Filesystem, FopenFlags, INodeNo, KernelConfig, LockOwner,
    OpenFlags, RenameFlags, ReplyAttr, ReplyCreate, ReplyData, ReplyDirectory, ReplyDirectoryPlus,
    ReplyEmpty, ReplyEntry, ReplyLseek, ReplyOpen, ReplyStatfs, ReplyWrite, ReplyXattr, Request,
    TimeOrNow, WriteFlags,
};

use super::{BLOCK, GENERATION, error, kind_of, maker, node_of, reply_of, wall_of};
use crate::bytes::SeekTarget;
use crate::classes::CLASS_XATTR;
use crate::control::CONTROL_XATTR;
use crate::engine::wall_now;
use crate::handles::OpenUsage;
use crate::names::Attributes;
use crate::network::{
    CacheState, FileAge, FileRequest, FileResponse, RemoteAnswer, RemoteFiles, RequestCaller,
    RequestNode, RequestPlace, RequestedAttributes, RequestedTime, RespondedAttributes,
    RespondedEntry,
};

/// How long the kernel may believe names and attributes.
const TTL: Duration = Duration::from_secs(1);
/// The class of requests about names.
const NAMES: Class = Class::BestEffort;

/// RemoteListings of directories that are open, by handle.
#[derive(Default)]
struct RemoteListings {
    open: Mutex<BTreeMap<u64, Arc<RemoteListing>>>,
    last: AtomicU64,
}

/// What a directory had when it was read from its beginning.
struct RemoteListing {
    directory: InodeId,
    parent: InodeId,
    entries: Vec<RespondedEntry>,
}

/// A server's tree, as the kernel sees it.
pub(super) struct RemoteAdaptor {
    files: Arc<RemoteFiles>,
    /// The directory of the tree that is mounted.
    root: InodeId,
    /// What the mount point answers for [`CONTROL_XATTR`].
    control: PathBuf,
    listings: Arc<RemoteListings>,
}

type Found = Result<(FileResponse, Vec<u8>), rustix::io::Errno>;

/// Returns the attributes that a response has.
fn attributes_in(found: Found) -> Result<RespondedAttributes, rustix::io::Errno> {
    match found?.0.outcome()? {
        FileResponse::Attributes(attributes) => Ok(attributes),
        _ => Err(rustix::io::Errno::IO),
    }
}

fn done(found: Found) -> Result<(), rustix::io::Errno> {
    found?.0.outcome().map(drop)
}

fn bytes_in(found: Found) -> Result<Vec<u8>, rustix::io::Errno> {
    match found?.0.outcome()? {
        FileResponse::Bytes(bytes) => Ok(bytes),
        _ => Err(rustix::io::Errno::IO),
    }
}

fn empty(reply: ReplyEmpty) -> RemoteAnswer {
    Box::new(move |found| match done(found) {
        Ok(()) => reply.ok(),
        Err(why) => reply.error(error(why)),
    })
}

impl RemoteAdaptor {
    pub(super) fn new(files: Arc<RemoteFiles>, root: InodeId, control: &Path) -> Self {
        Self { files, root, control: control.to_owned(), listings: Arc::default() }
    }

    /// Returns the inode of the tree that the kernel knows by a number.
    const fn inode(&self, ino: INodeNo) -> InodeId {
        swapped(InodeId(ino.0), self.root)
    }

    fn place(&self, parent: INodeNo, name: &OsStr) -> RequestPlace {
        RequestPlace::new(self.inode(parent), name.as_bytes())
    }

    fn entry(&self, reply: ReplyEntry) -> RemoteAnswer {
        let (files, root) = (Arc::clone(&self.files), self.root);
        Box::new(move |found| match attributes_in(found) {
            Ok(found) => {
                reply.entry(&TTL, &reply_of(&shown(files.overlay(found), root)), GENERATION);
            }
            Err(why) => reply.error(error(why)),
        })
    }

    fn attributes(&self, reply: ReplyAttr) -> RemoteAnswer {
        let (files, root) = (Arc::clone(&self.files), self.root);
        Box::new(move |found| match attributes_in(found) {
            Ok(found) => reply.attr(&TTL, &reply_of(&shown(files.overlay(found), root))),
            Err(why) => reply.error(error(why)),
        })
    }

    fn request(&self, request: &FileRequest, answer: RemoteAnswer) {
        self.files.request(NAMES, request, 0, answer);
    }

    /// Lists a directory from its beginning, page by page, and gives all of it to `use_it`.
    fn list(
        files: &Arc<RemoteFiles>,
        directory: InodeId,
        mut entries: Vec<RespondedEntry>,
        use_it: Box<dyn FnOnce(Result<RemoteListing, rustix::io::Errno>) + Send>,
    ) {
        let after = entries.last().map(|entry| entry.name.clone());
        let request = FileRequest::List { directory: directory.0, after };
        let again = Arc::clone(files);
        let answer: RemoteAnswer = Box::new(move |found| {
            let page = found.and_then(|(response, _)| response.outcome());
            match page {
                Ok(FileResponse::Entries { entries: page, parent, is_last }) => {
                    let is_empty = page.is_empty();
                    entries.extend(page);
                    if is_last || is_empty {
                        let parent = InodeId(parent);
                        use_it(Ok(RemoteListing { directory, parent, entries }));
                    } else {
                        Self::list(&again, directory, entries, use_it);
                    }
                }
                Ok(_) => use_it(Err(rustix::io::Errno::IO)),
                Err(why) => use_it(Err(why)),
            }
        });
        files.request(NAMES, &request, 0, answer);
    }

    /// Gives a listing for a read at `offset` of an open directory to `use_it`.
    fn with_listing(
        &self,
        ino: INodeNo,
        handle: FileHandle,
        offset: u64,
        use_it: impl FnOnce(Result<Arc<RemoteListing>, rustix::io::Errno>) + Send + 'static,
    ) {
        let listings = Arc::clone(&self.listings);
        if offset > 0 {
            let known = listings.open().get(&handle.0).cloned();
            return use_it(known.ok_or(rustix::io::Errno::BADF));
        }
        let keep = Box::new(move |listing: Result<RemoteListing, rustix::io::Errno>| {
            use_it(listing.map(|listing| {
                let listing = Arc::new(listing);
                listings.open().insert(handle.0, Arc::clone(&listing));
                listing
            }));
        });
        Self::list(&self.files, self.inode(ino), Vec::new(), keep);
    }

    fn sync(&self, ino: INodeNo, reply: ReplyEmpty) {
        let answer = Box::new(move |done: Result<(), rustix::io::Errno>| match done {
            Ok(()) => reply.ok(),
            Err(why) => reply.error(error(why)),
        });
        self.files.sync(self.inode(ino), answer);
    }
}

impl RemoteListings {
    fn open(&self) -> std::sync::MutexGuard<'_, BTreeMap<u64, Arc<RemoteListing>>> {
        self.open.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl RemoteListing {
    /// Returns the entry at `offset`: its inode, its name, and its attributes unless it is the
    /// directory or the one above.
    fn at(&self, offset: usize) -> Option<(InodeId, &[u8], Option<&RespondedAttributes>)> {
        match offset {
            0 => Some((self.directory, b".", None)),
            1 => Some((self.parent, b"..", None)),
            _ => {
                let entry = self.entries.get(offset - 2)?;
                let inode = Attributes::from(entry.attributes).inode;
                Some((inode, &entry.name, Some(&entry.attributes)))
            }
        }
    }
}

/// Exchanges the numbers of the mounted directory and of the tree's root: the kernel knows what is
/// mounted by the number of a root.
const fn swapped(inode: InodeId, root: InodeId) -> InodeId {
    if inode.0 == root.0 {
        InodeId::ROOT
    } else if inode.0 == InodeId::ROOT.0 {
        root
    } else {
        inode
    }
}

fn shown(mut attributes: Attributes, root: InodeId) -> Attributes {
    attributes.inode = swapped(attributes.inode, root);
    attributes
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

    fn lookup(&self, _req: &Request, parent: INodeNo, name: &OsStr, reply: ReplyEntry) {
        self.request(&FileRequest::Lookup(self.place(parent, name)), self.entry(reply));
    }

    fn getattr(&self, _req: &Request, ino: INodeNo, _fh: Option<FileHandle>, reply: ReplyAttr) {
        let inode = self.inode(ino).0;
        self.request(&FileRequest::Attributes { inode }, self.attributes(reply));
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
        let inode = self.inode(ino);
        let answer = self.attributes(reply);
        // Bytes and times that are on their way must not come behind this.
        self.files.after_writes(inode, move |files| {
            files.request(NAMES, &FileRequest::Set { inode: inode.0, set }, 0, answer);
        });
    }

    fn readlink(&self, _req: &Request, ino: INodeNo, reply: ReplyData) {
        let answer = Box::new(move |found| match bytes_in(found) {
            Ok(target) => reply.data(&target),
            Err(why) => reply.error(error(why)),
        });
        self.request(&FileRequest::Target { inode: self.inode(ino).0 }, answer);
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
        let (place, maker) = (self.place(parent, name), maker(req, mode));
        let request = FileRequest::Make { place, node: RequestNode::from_kind(&node), maker };
        self.request(&request, self.entry(reply));
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
        let (place, maker) = (self.place(parent, name), maker(req, mode));
        let request = FileRequest::Make { place, node: RequestNode::Directory, maker };
        self.request(&request, self.entry(reply));
    }

    fn unlink(&self, _req: &Request, parent: INodeNo, name: &OsStr, reply: ReplyEmpty) {
        self.request(&FileRequest::Unlink(self.place(parent, name)), empty(reply));
    }

    fn rmdir(&self, _req: &Request, parent: INodeNo, name: &OsStr, reply: ReplyEmpty) {
        self.request(&FileRequest::RemoveDirectory(self.place(parent, name)), empty(reply));
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
        let (place, maker) = (self.place(parent, link_name), maker(req, 0o777));
        self.request(&FileRequest::Make { place, node, maker }, self.entry(reply));
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
        let keeps_other = if flags.is_empty() {
            false
        } else if flags == RenameFlags::RENAME_NOREPLACE {
            true
        } else {
            return reply.error(Errno::EINVAL);
        };
        let (from, to) = (self.place(parent, name), self.place(newparent, newname));
        let found = FileRequest::Lookup(from.clone());
        let (request, answer) = (FileRequest::Rename { from, to, keeps_other }, empty(reply));
        if !self.files.is_dirty() {
            return self.request(&request, answer);
        }
        // The new name must not show the file without what was written before.
        let files = Arc::clone(&self.files);
        let ordered: RemoteAnswer = Box::new(move |found| match attributes_in(found) {
            Ok(found) => {
                let renamed = Attributes::from(found).inode;
                files.after_writes(renamed, move |files| {
                    files.request(NAMES, &request, 0, answer);
                });
            }
            Err(why) => answer(Err(why)),
        });
        self.request(&found, ordered);
    }

    fn link(
        &self,
        _req: &Request,
        ino: INodeNo,
        newparent: INodeNo,
        newname: &OsStr,
        reply: ReplyEntry,
    ) {
        let place = self.place(newparent, newname);
        self.request(&FileRequest::Link { inode: self.inode(ino).0, place }, self.entry(reply));
    }

    fn open(&self, _req: &Request, ino: INodeNo, flags: OpenFlags, reply: ReplyOpen) {
        let (usage, inode) = (OpenUsage::from_flags(flags.0), self.inode(ino));
        let files = Arc::clone(&self.files);
        let answer = Box::new(move |found: Found| {
            let opening = match found.and_then(|(response, _)| response.outcome()) {
                Ok(FileResponse::Opened(opening)) => opening,
                Ok(_) => return reply.error(Errno::EIO),
                Err(why) => return reply.error(error(why)),
            };
            let mut opened = match files.opened(inode, usage, opening, FileAge::Existing) {
                CacheState::Valid => FopenFlags::FOPEN_KEEP_CACHE,
                CacheState::Stale => FopenFlags::empty(),
            };
            if usage == OpenUsage::Read {
                // A reader waits for nothing when it closes.
                opened |= FopenFlags::FOPEN_NOFLUSH;
            }
            reply.opened(handle_of(usage), opened);
        });
        self.request(&FileRequest::Open { inode: inode.0, usage }, answer);
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
        self.files.read(self.inode(ino), offset, size, answer);
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
        let answer = Box::new(move |done: Result<(), rustix::io::Errno>| match done {
            Ok(()) => reply.written(length),
            Err(why) => reply.error(error(why)),
        });
        self.files.write(self.inode(ino), offset, data, drops_set_id, answer);
    }

    fn flush(
        &self,
        _req: &Request,
        ino: INodeNo,
        _fh: FileHandle,
        _lock_owner: LockOwner,
        reply: ReplyEmpty,
    ) {
        self.sync(ino, reply);
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
        self.files.close(self.inode(ino), usage_of(fh));
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
        self.sync(ino, reply);
    }

    fn opendir(&self, _req: &Request, _ino: INodeNo, _flags: OpenFlags, reply: ReplyOpen) {
        let handle = self.listings.last.fetch_add(1, Ordering::Relaxed) + 1;
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
        let root = self.root;
        self.with_listing(ino, fh, offset, move |listing| {
            let listing = match listing {
                Ok(listing) => listing,
                Err(why) => return reply.error(error(why)),
            };
            let mut at = offset as usize;
            while let Some((found, name, attributes)) = listing.at(at) {
                at += 1;
                let kind = attributes.map_or(fuser::FileType::Directory, |attributes| {
                    kind_of(Attributes::from(*attributes).node)
                });
                let ino = INodeNo(swapped(found, root).0);
                if reply.add(ino, at as u64, kind, OsStr::from_bytes(name)) {
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
        let (root, files) = (self.root, Arc::clone(&self.files));
        self.with_listing(ino, fh, offset, move |listing| {
            let listing = match listing {
                Ok(listing) => listing,
                Err(why) => return reply.error(error(why)),
            };
            let mut at = offset as usize;
            while let Some((found, name, attributes)) = listing.at(at) {
                at += 1;
                let ino = INodeNo(swapped(found, root).0);
                // Of the directory and the one above, the kernel keeps no attributes from here.
                let (attributes, ttl) = match attributes {
                    Some(attributes) => (shown(files.overlay(*attributes), root), TTL),
                    None => (Attributes::of_directory(swapped(found, root)), Duration::ZERO),
                };
                let name = OsStr::from_bytes(name);
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
        self.listings.open().remove(&fh.0);
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
        let answer = Box::new(move |found: Found| {
            match found.and_then(|(response, _)| response.outcome()) {
                Ok(FileResponse::Space(space)) => {
                    let blocks = |bytes: u64| bytes / u64::from(BLOCK);
                    let (total, free) = (blocks(space.total), blocks(space.free));
                    let left = space.inodes_max.saturating_sub(space.inodes);
                    reply.statfs(total, free, free, space.inodes_max, left, BLOCK, 255, BLOCK);
                }
                Ok(_) => reply.error(Errno::EIO),
                Err(why) => reply.error(error(why)),
            }
        });
        self.request(&FileRequest::Space, answer);
    }

    fn setxattr(
        &self,
        _req: &Request,
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
        let inode = self.inode(ino).0;
        let (name, value) = (name.as_bytes().to_vec(), value.to_vec());
        let answer = self.class_change(&name, reply);
        self.request(&FileRequest::SetXattr { inode, name, value, flags }, answer);
    }

    fn getxattr(&self, _req: &Request, ino: INodeNo, name: &OsStr, size: u32, reply: ReplyXattr) {
        if name.as_bytes().starts_with(b"system.") {
            return reply.error(Errno::EOPNOTSUPP);
        }
        if name == CONTROL_XATTR && ino == INodeNo::ROOT {
            return super::xattr(reply, size, Ok(self.control.as_os_str().as_bytes()));
        }
        let request =
            FileRequest::GetXattr { inode: self.inode(ino).0, name: name.as_bytes().to_vec() };
        self.request(&request, xattr(reply, size));
    }

    fn listxattr(&self, _req: &Request, ino: INodeNo, size: u32, reply: ReplyXattr) {
        let request = FileRequest::ListXattr { inode: self.inode(ino).0 };
        self.request(&request, xattr(reply, size));
    }

    fn removexattr(&self, _req: &Request, ino: INodeNo, name: &OsStr, reply: ReplyEmpty) {
        let name = name.as_bytes().to_vec();
        let answer = self.class_change(&name, reply);
        self.request(&FileRequest::RemoveXattr { inode: self.inode(ino).0, name }, answer);
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
        let (place, maker) = (self.place(parent, name), maker(req, mode));
        let files = Arc::clone(&self.files);
        let answer = Box::new(move |found: Found| {
            let (made, opening) = match found.and_then(|(response, _)| response.outcome()) {
                Ok(FileResponse::Created(made, opening)) => (Attributes::from(made), opening),
                Ok(_) => return reply.error(Errno::EIO),
                // Another mount made it meanwhile: the kernel looks again, and opens it.
                Err(rustix::io::Errno::EXIST) if !is_exclusive => {
                    return reply.error(error(rustix::io::Errno::STALE));
                }
                Err(why) => return reply.error(error(why)),
            };
            files.opened(made.inode, usage, opening, FileAge::New);
            let keep = FopenFlags::FOPEN_KEEP_CACHE;
            reply.created(&TTL, &reply_of(&made), GENERATION, handle_of(usage), keep);
        });
        self.request(&FileRequest::Create { place, maker, usage }, answer);
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
        let end = match mode {
            0 => offset.saturating_add(length),
            super::KEEP_SIZE => 0,
            _ => return reply.error(Errno::EOPNOTSUPP),
        };
        let (inode, answer) = (self.inode(ino), empty(reply));
        self.files.after_writes(inode, move |files| {
            let request = FileRequest::Allocate { inode: inode.0, end, length };
            files.request(NAMES, &request, 0, answer);
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
        let inode = self.inode(ino);
        let answer = Box::new(move |found: Found| {
            match found.and_then(|(response, _)| response.outcome()) {
                Ok(FileResponse::Offset(found)) => reply.offset(found as i64),
                Ok(_) => reply.error(Errno::EIO),
                Err(why) => reply.error(error(why)),
            }
        });
        self.files.after_writes(inode, move |files| {
            let request = FileRequest::Seek { inode: inode.0, offset, wanted };
            files.request(NAMES, &request, 0, answer);
        });
    }
}

impl RemoteAdaptor {
    /// Answers a change of an attribute; one of Clearway's may change the class of open files.
    fn class_change(&self, name: &[u8], reply: ReplyEmpty) -> RemoteAnswer {
        let is_class = name.starts_with(b"user.clearway.") || name == CLASS_XATTR.as_bytes();
        let files = Arc::clone(&self.files);
        Box::new(move |found| {
            let changed = done(found);
            if changed.is_ok() && is_class {
                files.refresh_classes();
            }
            match changed {
                Ok(()) => reply.ok(),
                Err(why) => reply.error(error(why)),
            }
        })
    }
}

fn xattr(reply: ReplyXattr, size: u32) -> RemoteAnswer {
    Box::new(move |found| {
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
