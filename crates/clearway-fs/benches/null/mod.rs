//! The *null* server: it answers with the same library, flags and threads as a mount, and forgets what
//! it is given.

use std::ffi::OsStr;
use std::io;
use std::path::Path;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, UNIX_EPOCH};

use fuser::{
    BackgroundSession, Config, Errno, FileAttr, FileHandle, FileType, Filesystem, FopenFlags,
    Generation, INodeNo, InitFlags, KernelConfig, LockOwner, MountOption, OpenFlags, ReplyAttr,
    ReplyCreate, ReplyEmpty, ReplyEntry, ReplyWrite, ReplyXattr, Request, WriteFlags,
};

const TTL: Duration = Duration::from_secs(60);
/// The longest write of a request.
const WRITE: u32 = 1 << 20;

/// A file system of one file, which keeps nothing but its size.
struct NullServer {
    size: AtomicU64,
}

impl NullServer {
    fn attributes(&self, ino: INodeNo) -> FileAttr {
        let is_root = ino == INodeNo::ROOT;
        FileAttr {
            ino,
            size: self.size.load(Ordering::Relaxed),
            blocks: 0,
            atime: UNIX_EPOCH,
            mtime: UNIX_EPOCH,
            ctime: UNIX_EPOCH,
            crtime: UNIX_EPOCH,
            kind: if is_root { FileType::Directory } else { FileType::RegularFile },
            perm: 0o777,
            nlink: 1,
            uid: 0,
            gid: 0,
            rdev: 0,
            blksize: 4096,
            flags: 0,
        }
    }
}

impl Filesystem for NullServer {
    fn init(&mut self, _req: &Request, config: &mut KernelConfig) -> io::Result<()> {
        let flags = [
            InitFlags::FUSE_PARALLEL_DIROPS,
            InitFlags::FUSE_ASYNC_DIO,
            InitFlags::FUSE_HANDLE_KILLPRIV_V2,
        ];
        for flag in flags {
            let _ = config.add_capabilities(flag);
        }
        let _ = config.set_max_write(WRITE);
        let _ = config.set_max_readahead(WRITE);
        let _ = config.set_max_background(64);
        Ok(())
    }

    fn lookup(&self, _req: &Request, _parent: INodeNo, _name: &OsStr, reply: ReplyEntry) {
        reply.error(Errno::ENOENT);
    }

    fn getattr(&self, _req: &Request, ino: INodeNo, _fh: Option<FileHandle>, reply: ReplyAttr) {
        reply.attr(&TTL, &self.attributes(ino));
    }

    fn create(
        &self,
        _req: &Request,
        _parent: INodeNo,
        _name: &OsStr,
        _mode: u32,
        _umask: u32,
        _flags: i32,
        reply: ReplyCreate,
    ) {
        let (shown, flags) = (self.attributes(INodeNo(2)), FopenFlags::FOPEN_KEEP_CACHE);
        reply.created(&TTL, &shown, Generation(0), FileHandle(1), flags);
    }

    fn write(
        &self,
        _req: &Request,
        _ino: INodeNo,
        _fh: FileHandle,
        offset: u64,
        data: &[u8],
        _write_flags: WriteFlags,
        _flags: OpenFlags,
        _lock_owner: Option<LockOwner>,
        reply: ReplyWrite,
    ) {
        self.size.fetch_max(offset + data.len() as u64, Ordering::Relaxed);
        reply.written(data.len() as u32);
    }

    fn flush(
        &self,
        _req: &Request,
        _ino: INodeNo,
        _fh: FileHandle,
        _owner: LockOwner,
        reply: ReplyEmpty,
    ) {
        reply.ok();
    }

    fn getxattr(
        &self,
        _req: &Request,
        _ino: INodeNo,
        _name: &OsStr,
        _size: u32,
        reply: ReplyXattr,
    ) {
        reply.error(Errno::ENODATA);
    }
}

/// Mounts it.
pub(crate) fn mount(directory: &Path) -> io::Result<BackgroundSession> {
    let mut config = Config::default();
    config.mount_options =
        vec![MountOption::FSName("null".into()), MountOption::DefaultPermissions];
    let processors = std::thread::available_parallelism().map_or(1, usize::from);
    config.n_threads = Some((2 * processors).clamp(2, 8));
    config.clone_fd = true;
    fuser::spawn_mount(NullServer { size: AtomicU64::new(0) }, directory, &config)
}
