//! Sets and reads attributes of files, directories, links and devices in a store.
//!
//! # Model
//! A handle that was opened for attributes only (`O_PATH`) reaches its file through
//! `/proc/self/fd`, even if the name of the file changes, and does not follow a symbolic link. So
//! files, directories, links and devices are all treated alike.
//!
//! Attributes that a store does not support are left out, because a file that is never drained
//! would keep its space in the log for ever. These are the owner, where this process is not root
//! (the file then belongs to the user of the process), and extended attributes on a file system
//! that has none, that limits their size, or that lets only root set them. Any other refusal is a
//! failure.

use std::os::fd::{AsRawFd, BorrowedFd};

use clearway_proto::staging::{StoreAttributes, WallNs};
use rustix::fs::{
    self, AtFlags, CWD, FileType, Gid, Mode, Stat, Timespec, Timestamps, Uid, XattrFlags,
};
use rustix::io::Errno;

use super::place::file_type;

/// Extended attributes that a store has next to those of the system.
const USER_XATTRS: &[u8] = b"user.";

/// Sets the attributes of what `handle` leads to.
pub(super) fn set(handle: BorrowedFd<'_>, attributes: &StoreAttributes) -> Result<(), Errno> {
    let found = fs::fstat(handle)?;
    let link = format!("/proc/self/fd/{}", handle.as_raw_fd());
    set_owner(handle, &found, attributes.owner)?;
    set_xattrs(&link, &found, attributes)?;
    // A link has no permissions of its own.
    if file_type(&found) != FileType::Symlink {
        fs::chmodat(CWD, &*link, Mode::from_raw_mode(attributes.mode & 0o7777), AtFlags::empty())?;
    }
    set_times(handle, &link, &found, attributes)
}

fn set_owner(handle: BorrowedFd<'_>, found: &Stat, (user, group): (u32, u32)) -> Result<(), Errno> {
    if (found.st_uid, found.st_gid) == (user, group) {
        return Ok(());
    }
    let owner = (Some(Uid::from_raw(user)), Some(Gid::from_raw(group)));
    match fs::chownat(handle, c"", owner.0, owner.1, AtFlags::EMPTY_PATH) {
        Err(Errno::PERM) if !rustix::process::geteuid().is_root() => Ok(()),
        outcome => outcome,
    }
}

/// Sets the times. Those of a link cannot be set through `/proc`, which would follow it.
fn set_times(
    handle: BorrowedFd<'_>,
    link: &str,
    found: &Stat,
    attributes: &StoreAttributes,
) -> Result<(), Errno> {
    let times = Timestamps {
        last_access: timespec(attributes.atime),
        last_modification: timespec(attributes.mtime),
    };
    match fs::utimensat(handle, c"", &times, AtFlags::EMPTY_PATH) {
        // Kernels before 5.8 reach a link by its name alone; it keeps the times that it has.
        Err(Errno::INVAL) if file_type(found) == FileType::Symlink => Ok(()),
        Err(Errno::INVAL) => fs::utimensat(CWD, link, &times, AtFlags::empty()),
        outcome => outcome,
    }
}

fn timespec(time: WallNs) -> Timespec {
    let second = 1_000_000_000;
    Timespec { tv_sec: (time.0 / second) as _, tv_nsec: (time.0 % second) as _ }
}

fn set_xattrs(link: &str, found: &Stat, attributes: &StoreAttributes) -> Result<(), Errno> {
    if matches!(file_type(found), FileType::Symlink) && attributes.xattrs.is_empty() {
        return Ok(());
    }
    let there = match list(link) {
        Err(Errno::OPNOTSUPP) => return Ok(()),
        there => there?,
    };
    for name in there.split(|byte| *byte == 0).filter(|name| name.starts_with(USER_XATTRS)) {
        if !attributes.xattrs.iter().any(|(wanted, _)| wanted.bytes() == name) {
            writable(link, found, || fs::removexattr(link, name))?;
        }
    }
    for (name, value) in &attributes.xattrs {
        let set = || fs::setxattr(link, name.bytes(), value, XattrFlags::empty());
        match writable(link, found, set) {
            Err(Errno::OPNOTSUPP | Errno::PERM | Errno::TOOBIG | Errno::RANGE) => {}
            outcome => outcome?,
        }
    }
    Ok(())
}

/// Does what needs the permission to write; the right ones are set later.
fn writable(
    link: &str,
    found: &Stat,
    mut change: impl FnMut() -> Result<(), Errno>,
) -> Result<(), Errno> {
    match change() {
        Err(Errno::ACCESS) => {
            let mode = Mode::from_raw_mode(found.st_mode & 0o7777) | Mode::RUSR | Mode::WUSR;
            fs::chmodat(CWD, link, mode, AtFlags::empty())?;
            change()
        }
        outcome => outcome,
    }
}

/// Returns the names of extended attributes, a zero behind each.
fn list(link: &str) -> Result<Vec<u8>, Errno> {
    // The kernel's bound of the whole list.
    let mut names = Vec::with_capacity(1 << 16);
    fs::listxattr(link, rustix::buffer::spare_capacity(&mut names))?;
    Ok(names)
}
