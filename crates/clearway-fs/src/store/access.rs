//! Gives a step temporary permissions in directories that deny access to their owner.
//!
//! # Model
//! A tree may have a directory that its owner may not write to, while the drain still has to make
//! or remove names in it. Root ignores permissions. A process of another user owns the directories
//! that it made, so it gives itself the permissions for the duration of a step.
//!
//! A process that dies during the step leaves a directory with more permissions for its owner, and
//! for no other user.

use std::os::fd::{AsFd, AsRawFd, OwnedFd};

use clearway_proto::staging::{StoreBase, StorePath, StoreStep};
use rustix::fs::{self, AtFlags, CWD, Mode, OFlags};
use rustix::io::Errno;

use super::place::OpenStore;

/// A directory that its owner may use until this is dropped.
#[derive(Debug)]
pub(super) struct WideDirectory {
    directory: OwnedFd,
    mode: Mode,
}

impl Drop for WideDirectory {
    fn drop(&mut self) {
        let _ = set_mode(&self.directory, self.mode);
    }
}

fn set_mode(directory: &OwnedFd, mode: Mode) -> Result<(), Errno> {
    let link = format!("/proc/self/fd/{}", directory.as_raw_fd());
    fs::chmodat(CWD, link, mode, AtFlags::empty())
}

/// Opens the directories that a step needs, and that are this user's.
pub(super) fn widen(store: &OpenStore, step: &StoreStep) -> Vec<WideDirectory> {
    let mut wide = Vec::new();
    let above = |path: &StorePath| path.names.len().saturating_sub(1);
    match step {
        StoreStep::Settle { at, .. }
        | StoreStep::Link { to: at, .. }
        | StoreStep::MakeDirectory { at }
        | StoreStep::Unlink { at }
        | StoreStep::RemoveDirectory { at } => widen_path(store, at, above(at), &mut wide),
        StoreStep::MoveDirectory { from, to } => {
            // Its entry for the directory above is written too.
            widen_path(store, from, from.names.len(), &mut wide);
            widen_path(store, to, above(to), &mut wide);
        }
        StoreStep::SyncDirectories { at } => {
            at.iter().for_each(|path| widen_path(store, path, path.names.len(), &mut wide));
        }
        StoreStep::Sweep { .. }
        | StoreStep::Copy { .. }
        | StoreStep::Make { .. }
        | StoreStep::DropOld { .. }
        | StoreStep::Drop { .. } => {}
    }
    wide
}

/// Opens the directories that the first names of a path lead to.
fn widen_path(store: &OpenStore, path: &StorePath, names: usize, wide: &mut Vec<WideDirectory>) {
    let base = match path.base {
        StoreBase::Root => store.root.as_fd(),
        StoreBase::Objects => store.objects.as_fd(),
    };
    let user = rustix::process::geteuid();
    let flags = OFlags::PATH | OFlags::NOFOLLOW | OFlags::DIRECTORY | OFlags::CLOEXEC;
    let mut at: Option<OwnedFd> = None;
    for name in path.names.iter().take(names) {
        let above = at.as_ref().map_or(base, |at| at.as_fd());
        let Ok(directory) = fs::openat(above, name.bytes(), flags, Mode::empty()) else { return };
        let Ok(found) = fs::fstat(&directory) else { return };
        let mode = Mode::from_raw_mode(found.st_mode & 0o7777);
        if found.st_uid == user.as_raw()
            && !mode.contains(Mode::RWXU)
            && set_mode(&directory, mode | Mode::RWXU).is_ok()
            && let Ok(directory) = directory.try_clone()
        {
            wide.push(WideDirectory { directory, mode });
        }
        at = Some(directory);
    }
}
