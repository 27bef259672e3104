//! What a user on the network may do.
//!
//! # Model
//! A client that root mounted checks permissions by itself, in its kernel, as an NFS client does. Any
//! other client is one user: each of its requests is checked here, against owner, group and mode of
//! what it names and of the directories above.
//!
//! # Source
//! POSIX.1-2017, file access permissions; Linux's `inode_permission`, sticky directories.

use clearway_proto::staging::{EntryName, InodeId, InodeKind};
use rustix::io::Errno;

use super::request::{FileRequest, RequestPlace};
use super::session::SessionFiles;
use crate::engine::Core;
use crate::handles::OpenUsage;

const READ: u32 = 4;
const WRITE: u32 = 2;
const SEARCH: u32 = 1;
/// Only owners remove names from such a directory.
const STICKY: u32 = 0o1000;
/// Directories above a file, at most.
const DEPTH_MAX: usize = 4096;

/// Whose client it is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum User {
    /// Root of a host that the administrator trusts: it speaks for all users of that host.
    Host,
    /// One user.
    Person {
        /// The user's number.
        uid: u32,
        /// The user's groups, the own one first.
        gids: Vec<u32>,
    },
}

impl User {
    /// Returns the user's number, root's for a host.
    pub const fn uid(&self) -> u32 {
        match self {
            Self::Host => 0,
            Self::Person { uid, .. } => *uid,
        }
    }

    /// Checks a request.
    pub(super) fn check(
        &self,
        core: &mut Core,
        files: &SessionFiles,
        request: &FileRequest,
    ) -> Result<(), Errno> {
        let Self::Person { uid, gids } = self else { return Ok(()) };
        let mut checks = Checks { core, uid: *uid, gids, files };
        checks.check(request)
    }
}

struct Checks<'a> {
    core: &'a mut Core,
    uid: u32,
    gids: &'a [u32],
    files: &'a SessionFiles,
}

impl Checks<'_> {
    fn check(&mut self, request: &FileRequest) -> Result<(), Errno> {
        match request {
            FileRequest::Lookup(place) => self.search(InodeId(place.parent)),
            FileRequest::Attributes { inode }
            | FileRequest::Target { inode }
            | FileRequest::ListXattr { inode }
            | FileRequest::Path { inode }
            | FileRequest::Seek { inode, .. } => self.reach(InodeId(*inode)),
            FileRequest::GetXattr { inode, name } => {
                if name.starts_with(b"trusted.") {
                    return Err(Errno::NODATA);
                }
                self.may(InodeId(*inode), READ)
            }
            FileRequest::List { directory, .. } => self.may(InodeId(*directory), READ),
            FileRequest::Space => Ok(()),
            FileRequest::Read { inode, .. } => self.use_file(InodeId(*inode), READ),
            FileRequest::Write { inode, .. } | FileRequest::Allocate { inode, .. } => {
                self.use_file(InodeId(*inode), WRITE)
            }
            FileRequest::Open { inode, usage } => self.may(InodeId(*inode), needed(*usage)),
            // Each file that is opened again is checked by itself.
            FileRequest::Close { .. } | FileRequest::Control(_) | FileRequest::Reopen(_) => Ok(()),
            FileRequest::Set { inode, set } => {
                let inode = InodeId(*inode);
                self.reach(inode)?;
                let is_owner = self.core.attributes(inode)?.uid == self.uid;
                if set.uid.is_some_and(|uid| uid != self.uid)
                    || set.gid.is_some_and(|gid| !self.gids.contains(&gid))
                {
                    return Err(Errno::PERM);
                }
                if set.size.is_some() {
                    self.use_file(inode, WRITE)?;
                }
                let is_touch = set.mode.is_none() && set.uid.is_none() && set.gid.is_none();
                let has_times = set.atime.is_some() || set.mtime.is_some();
                if is_touch && !has_times || is_owner {
                    return Ok(());
                }
                if is_touch { self.use_file(inode, WRITE) } else { Err(Errno::PERM) }
            }
            FileRequest::Make { place, maker, .. } | FileRequest::Create { place, maker, .. } => {
                if maker.uid != self.uid || !self.gids.contains(&maker.gid) {
                    return Err(Errno::PERM);
                }
                self.may(InodeId(place.parent), WRITE | SEARCH)
            }
            FileRequest::Unlink(place) | FileRequest::RemoveDirectory(place) => self.remove(place),
            FileRequest::Rename { from, to, .. } => {
                self.remove(from)?;
                self.may(InodeId(to.parent), WRITE | SEARCH)?;
                match self.remove(to) {
                    Err(Errno::NOENT) => Ok(()),
                    other => other,
                }
            }
            FileRequest::Link { inode, place } => {
                self.reach(InodeId(*inode))?;
                // As with protected hard links: nobody holds on to files of others.
                if self.core.attributes(InodeId(*inode))?.uid != self.uid {
                    return Err(Errno::PERM);
                }
                self.may(InodeId(place.parent), WRITE | SEARCH)
            }
            FileRequest::SetXattr { inode, name, .. }
            | FileRequest::RemoveXattr { inode, name } => {
                if !name.starts_with(b"user.") {
                    return Err(Errno::PERM);
                }
                self.may(InodeId(*inode), WRITE)
            }
        }
    }

    /// Checks that the user has `rights` on an inode that it can reach.
    fn may(&mut self, inode: InodeId, rights: u32) -> Result<(), Errno> {
        self.reach(inode)?;
        self.has(inode, rights)
    }

    fn has(&mut self, inode: InodeId, rights: u32) -> Result<(), Errno> {
        let found = self.core.attributes(inode)?;
        let granted = if found.uid == self.uid {
            found.mode >> 6
        } else if self.gids.contains(&found.gid) {
            found.mode >> 3
        } else {
            found.mode
        };
        if granted & rights == rights { Ok(()) } else { Err(Errno::ACCESS) }
    }

    /// Checks that the bytes of a file may be used: it is open for that, or could be opened.
    fn use_file(&mut self, inode: InodeId, right: u32) -> Result<(), Errno> {
        if self.files.is_open(inode, right == WRITE) { Ok(()) } else { self.may(inode, right) }
    }

    /// Checks that a name in a directory may be looked up.
    fn search(&mut self, directory: InodeId) -> Result<(), Errno> {
        self.may(directory, SEARCH)
    }

    /// Checks that the user may search all directories on one way to an inode.
    fn reach(&mut self, inode: InodeId) -> Result<(), Errno> {
        if self.files.is_open(inode, false) || inode == InodeId::ROOT {
            return Ok(());
        }
        let above: Vec<InodeId> =
            self.core.tree().places(inode).map(|place| place.directory).collect();
        if above.is_empty() {
            // A file without a name, which its owner had open.
            let is_owner = self.core.attributes(inode)?.uid == self.uid;
            return if is_owner { Ok(()) } else { Err(Errno::NOENT) };
        }
        let mut refused = Errno::ACCESS;
        for directory in above {
            match self.reach_directory(directory) {
                Ok(()) => return Ok(()),
                Err(why) => refused = why,
            }
        }
        Err(refused)
    }

    fn reach_directory(&mut self, directory: InodeId) -> Result<(), Errno> {
        let mut at = directory;
        for _ in 0..DEPTH_MAX {
            self.has(at, SEARCH)?;
            if at == InodeId::ROOT {
                return Ok(());
            }
            at = match self.core.tree().inode(at).map(|inode| &inode.kind) {
                Some(InodeKind::Directory { parent, .. }) => *parent,
                _ => return Err(Errno::NOENT),
            };
        }
        Err(Errno::NAMETOOLONG)
    }

    /// Checks that a name may be removed.
    fn remove(&mut self, place: &RequestPlace) -> Result<(), Errno> {
        let directory = InodeId(place.parent);
        self.may(directory, WRITE | SEARCH)?;
        let name = EntryName::new(&place.name).map_err(crate::engine::errno_of)?;
        let found = self.core.tree().lookup(directory, &name);
        let inode = found.map_err(crate::engine::errno_of)?;
        let above = self.core.attributes(directory)?;
        let owner = self.core.attributes(inode)?.uid;
        if above.mode & STICKY != 0 && ![above.uid, owner].contains(&self.uid) {
            return Err(Errno::PERM);
        }
        Ok(())
    }
}

const fn needed(usage: OpenUsage) -> u32 {
    match usage {
        OpenUsage::Read => READ,
        OpenUsage::Write => WRITE,
    }
}
