//! Requests that concern names: what is where, what is made, moved and removed.
//!
//! # Source
//! POSIX.1-2017 and Linux's manual pages: which errors, whose group a new file has, what renames may
//! replace. The kernel has checked permissions (`default_permissions`).

use std::sync::Arc;

use clearway_proto::staging::{
    AttributeSet, EntryName, Inode, InodeId, InodeKind, NodeKind, SpecialNode, TreeChange,
    TreeError, WallNs,
};
use rustix::io::Errno;
use serde::{Deserialize, Serialize};

use crate::engine::{Core, Held};
use crate::handles::{ListedEntry, OpenUsage};
use crate::store::is_reserved;

/// Set-group-ID on a directory: what is made in it gets its group.
const SET_GROUP: u32 = 0o2000;
/// Set-user-ID on a file, and the right to execute of its group.
const SET_USER: u32 = 0o4000;
const GROUP_EXECUTE: u32 = 0o010;
/// The size that a directory is said to have: nothing of it lies on a disk that could be counted.
const DIRECTORY_SIZE: u64 = 4096;
/// The file in the root of a store that names the log that is drained into it.
pub(crate) const STORE_MARK: &str = ".clearway-log";

/// What an inode is, without its contents.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum NodeType {
    File,
    Directory,
    Symlink,
    Special(SpecialNode),
}

/// Attributes of an inode.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Attributes {
    pub(crate) inode: InodeId,
    pub(crate) node: NodeType,
    pub(crate) size: u64,
    /// Bytes that take space.
    pub(crate) stored: u64,
    pub(crate) mode: u32,
    pub(crate) links: u32,
    pub(crate) uid: u32,
    pub(crate) gid: u32,
    pub(crate) atime: WallNs,
    pub(crate) mtime: WallNs,
    pub(crate) ctime: WallNs,
}

impl Attributes {
    /// Returns the attributes of one directory that two servers have: its entries are those of both.
    pub(crate) fn joined(self, other: &Self) -> Self {
        Self {
            links: self.links.saturating_add(other.links.saturating_sub(2)),
            atime: self.atime.max(other.atime),
            mtime: self.mtime.max(other.mtime),
            ctime: self.ctime.max(other.ctime),
            ..self
        }
    }

    /// Returns attributes of a directory of which only the number is known.
    pub(crate) const fn of_directory(inode: InodeId) -> Self {
        let none = WallNs(0);
        Self {
            inode,
            node: NodeType::Directory,
            size: DIRECTORY_SIZE,
            stored: DIRECTORY_SIZE,
            mode: 0o755,
            links: 2,
            uid: 0,
            gid: 0,
            atime: none,
            mtime: none,
            ctime: none,
        }
    }
}

/// A name and its directory.
#[derive(Clone, Debug)]
pub(crate) struct NamePlace {
    pub(crate) parent: InodeId,
    pub(crate) name: EntryName,
}

impl NamePlace {
    /// Reads a name.
    pub(crate) fn new(parent: InodeId, name: &[u8]) -> Result<Self, Errno> {
        let name = EntryName::new(name).map_err(crate::engine::errno_of)?;
        Ok(Self { parent, name })
    }

    /// Checks that something can get this name: the store needs some for itself.
    fn check_new(&self) -> Result<(), Errno> {
        if self.parent == InodeId::ROOT && is_reserved(self.name.bytes()) {
            Err(Errno::PERM)
        } else {
            Ok(())
        }
    }
}

/// The process that makes a request.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Caller {
    pub(crate) uid: u32,
    pub(crate) gid: u32,
    pub(crate) process: u32,
}

impl Caller {
    /// Returns whether its writes leave set-user-ID to a file, as root's do.
    pub(crate) const fn keeps_set_id(self) -> bool {
        self.uid == 0
    }

    fn is_in_group(self, gid: u32) -> bool {
        if self.keeps_set_id() || self.gid == gid {
            return true;
        }
        // The kernel names one group; the others are in `proc_pid_status(5)`.
        let status = std::fs::read_to_string(format!("/proc/{}/status", self.process));
        let status = status.unwrap_or_default();
        let groups = status.lines().find_map(|line| line.strip_prefix("Groups:"));
        groups.unwrap_or_default().split_whitespace().any(|group| group.parse() == Ok(gid))
    }
}

/// The user who asks, and the permissions of what is made.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Maker {
    pub(crate) uid: u32,
    pub(crate) gid: u32,
    pub(crate) mode: u32,
}

/// What to do with a name that is taken.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum RenameMode {
    /// Replace what has it.
    Replace,
    /// Refuse.
    KeepOther,
}

const fn type_of(kind: &InodeKind) -> NodeType {
    match kind {
        InodeKind::File(_) => NodeType::File,
        InodeKind::Directory { .. } => NodeType::Directory,
        InodeKind::Symlink(_) => NodeType::Symlink,
        InodeKind::Special(special) => NodeType::Special(*special),
    }
}

/// Returns the attributes of an inode; `taken` is what a file takes in log and store.
fn attributes_of(inode: InodeId, node: &Inode, taken: u64) -> Attributes {
    let (size, stored) = match &node.kind {
        InodeKind::File(content) => (content.size(), taken),
        InodeKind::Directory { .. } => (DIRECTORY_SIZE, DIRECTORY_SIZE),
        InodeKind::Symlink(target) => (target.len() as u64, 0),
        InodeKind::Special(_) => (0, 0),
    };
    Attributes {
        inode,
        node: type_of(&node.kind),
        size,
        stored,
        mode: node.mode,
        links: node.links,
        uid: node.uid,
        gid: node.gid,
        atime: node.atime,
        mtime: node.mtime,
        ctime: node.ctime,
    }
}

impl Core {
    /// Returns the attributes of an inode.
    pub(crate) fn attributes(&mut self, inode: InodeId) -> Result<Attributes, Errno> {
        let taken = self.taken_bytes(inode);
        let node = self.tree().inode(inode).ok_or(Errno::NOENT)?;
        Ok(attributes_of(inode, node, taken))
    }

    /// Finds a name, and counts the reference that the kernel gets.
    pub(crate) fn lookup(&mut self, place: &NamePlace) -> Result<Attributes, Errno> {
        let found = self.tree().lookup(place.parent, &place.name);
        let inode = found.map_err(crate::engine::errno_of)?;
        self.refer(inode, place)
    }

    /// Counts a reference of the kernel to `inode`, which is at `place`.
    pub(crate) fn refer(&mut self, inode: InodeId, place: &NamePlace) -> Result<Attributes, Errno> {
        let attributes = self.attributes(inode)?;
        self.lives.found(inode, place.parent, place.name.clone());
        Ok(attributes)
    }

    /// Makes an entry, and counts the reference that the kernel gets.
    pub(crate) fn make(
        &mut self,
        place: &NamePlace,
        node: NodeKind,
        maker: Maker,
    ) -> Result<Attributes, Held> {
        place.check_new()?;
        self.check_inode_share(maker.uid)?;
        let parent = self.tree().inode(place.parent).ok_or(Errno::NOENT)?;
        let (mut gid, mut mode) = (maker.gid, maker.mode);
        if parent.mode & SET_GROUP != 0 {
            gid = parent.gid;
            if node == NodeKind::Directory {
                mode |= SET_GROUP;
            }
        }
        let inode = self.tree().next_inode();
        let change = TreeChange::Create {
            inode,
            parent: place.parent,
            name: place.name.clone(),
            node,
            mode,
            uid: maker.uid,
            gid,
        };
        self.lives.node(inode).home = Some((place.parent, place.name.clone()));
        match self.append(change, &[inode, place.parent]) {
            Ok(()) => Ok(self.refer(inode, place)?),
            Err(held) => {
                self.lives.node(inode).home = None;
                Err(held)
            }
        }
    }

    /// Gives a file another name.
    pub(crate) fn link(&mut self, inode: InodeId, place: &NamePlace) -> Result<Attributes, Held> {
        place.check_new()?;
        let uid = self.tree().inode(inode).ok_or(Errno::NOENT)?.uid;
        self.check_inode_share(uid)?;
        let change = TreeChange::Link { inode, parent: place.parent, name: place.name.clone() };
        match self.append(change, &[inode, place.parent]) {
            Err(Held::Errno(Errno::ISDIR)) => Err(Held::Errno(Errno::PERM)),
            Err(held) => Err(held),
            Ok(()) => Ok(self.refer(inode, place)?),
        }
    }

    /// Removes a name of what is no directory.
    pub(crate) fn unlink(&mut self, place: &NamePlace) -> Result<(), Held> {
        let (parent, name) = (place.parent, place.name.clone());
        let inode = self.tree().lookup(parent, &name)?;
        self.append(TreeChange::Unlink { parent, name }, &[inode, parent])?;
        self.forget_if_orphan(inode);
        Ok(())
    }

    /// Removes an empty directory.
    pub(crate) fn remove_directory(&mut self, place: &NamePlace) -> Result<(), Held> {
        let (parent, name) = (place.parent, place.name.clone());
        let inode = self.tree().lookup(parent, &name)?;
        self.append(TreeChange::RemoveDirectory { parent, name }, &[inode, parent])?;
        self.forget_if_orphan(inode);
        Ok(())
    }

    /// Gives an entry another name.
    pub(crate) fn rename(
        &mut self,
        from: &NamePlace,
        to: &NamePlace,
        mode: RenameMode,
    ) -> Result<(), Held> {
        to.check_new()?;
        let moved = self.tree().lookup(from.parent, &from.name)?;
        let replaced = match self.tree().lookup(to.parent, &to.name) {
            Ok(_) if mode == RenameMode::KeepOther => return Err(Held::Errno(Errno::EXIST)),
            Ok(other) => Some(other),
            Err(TreeError::NotFound) => None,
            Err(why) => return Err(why.into()),
        };
        let change = TreeChange::Rename {
            from: from.parent,
            name: from.name.clone(),
            to: to.parent,
            new_name: to.name.clone(),
        };
        self.append(change, &[moved, from.parent, to.parent])?;
        self.lives.node(moved).home = Some((to.parent, to.name.clone()));
        self.lives.forget_classes();
        if let Some(replaced) = replaced.filter(|replaced| *replaced != moved) {
            self.forget_if_orphan(replaced);
        }
        Ok(())
    }

    /// Returns the target of a symbolic link.
    pub(crate) fn target(&mut self, inode: InodeId) -> Result<Vec<u8>, Errno> {
        match &self.tree().inode(inode).ok_or(Errno::NOENT)?.kind {
            InodeKind::Symlink(target) => Ok(target.to_vec()),
            _ => Err(Errno::INVAL),
        }
    }

    /// Sets attributes, and the size, which changes times first.
    pub(crate) fn set(
        &mut self,
        inode: InodeId,
        size: Option<u64>,
        set: AttributeSet,
    ) -> Result<Attributes, Held> {
        if let Some(size) = size {
            self.truncate(inode, size)?;
        }
        if set != AttributeSet::default() {
            self.append(TreeChange::Attributes { inode, set }, &[inode])?;
        }
        Ok(self.attributes(inode)?)
    }

    /// Takes set-user-ID and set-group-ID from a file whose owner or bytes a caller changes.
    pub(crate) fn drop_set_id(&mut self, inode: InodeId, caller: Caller) -> Result<(), Held> {
        let Some(InodeKind::File(_)) = self.tree().inode(inode).map(|inode| &inode.kind) else {
            return Ok(());
        };
        let Attributes { mode, gid, .. } = self.attributes(inode)?;
        // Without the right to execute for the group, the bit says that locks are mandatory; only
        // members of the group keep it.
        let is_set = mode & SET_GROUP != 0;
        let is_taken = is_set && (mode & GROUP_EXECUTE != 0 || !caller.is_in_group(gid));
        let group = if is_taken { SET_GROUP } else { 0 };
        let kept = mode & !(SET_USER | group);
        if kept == mode {
            return Ok(());
        }
        let set = AttributeSet { mode: Some(kept), ..AttributeSet::default() };
        self.append(TreeChange::Attributes { inode, set }, &[inode])
    }

    /// Returns user and group of an inode with those that are given in their place.
    pub(crate) fn owner(
        &mut self,
        inode: InodeId,
        uid: Option<u32>,
        gid: Option<u32>,
    ) -> Option<(u32, u32)> {
        if uid.is_none() && gid.is_none() {
            return None;
        }
        let node = self.tree().inode(inode)?;
        Some((uid.unwrap_or(node.uid), gid.unwrap_or(node.gid)))
    }

    /// Opens a file.
    pub(crate) fn open_file(&mut self, inode: InodeId, usage: OpenUsage) -> u64 {
        if usage == OpenUsage::Write {
            self.update_drain(|drain, _| drain.opened(inode));
        }
        self.handles.open_file(inode, usage)
    }

    /// Closes a file or directory.
    pub(crate) fn close_handle(&mut self, handle: u64) {
        if let Some(inode) = self.handles.close(handle) {
            self.update_drain(|drain, _| drain.closed(inode));
        }
    }

    /// Lists a directory for a handle.
    pub(crate) fn list(
        &mut self,
        handle: u64,
        directory: InodeId,
    ) -> Result<Arc<Vec<ListedEntry>>, Errno> {
        let InodeKind::Directory { entries, .. } =
            &self.tree().inode(directory).ok_or(Errno::NOENT)?.kind
        else {
            return Err(Errno::NOTDIR);
        };
        let listed =
            entries.iter().map(|(name, inode)| ListedEntry { inode: *inode, name: name.clone() });
        let listed: Arc<Vec<ListedEntry>> = Arc::new(listed.collect());
        self.handles.list(handle, Arc::clone(&listed));
        Ok(listed)
    }

    /// Returns the directory that has a directory.
    pub(crate) fn parent(&mut self, directory: InodeId) -> InodeId {
        match self.tree().inode(directory).map(|inode| &inode.kind) {
            Some(InodeKind::Directory { parent, .. }) => *parent,
            _ => InodeId::ROOT,
        }
    }

    /// Returns what an inode is.
    pub(crate) fn node_type(&mut self, inode: InodeId) -> Option<NodeType> {
        self.tree().inode(inode).map(|inode| type_of(&inode.kind))
    }
}
