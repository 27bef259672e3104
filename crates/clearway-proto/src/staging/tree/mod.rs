//! The tree of names: what a client sees as files and directories, in memory.
//!
//! # Model
//! The log is a sequence of [`TreeChange`]s; the tree is what they make of an empty one. The same
//! function applies a change when a client asks for it and when the log is read again, so both
//! give the same tree. A change that cannot be made changes nothing and is not logged.
//!
//! A file without a name stays until [`TreeChange::Forget`]: programs may have it open. Files that
//! nobody can have open, because the service was restarted, are [`Tree::orphans`].
//!
//! # Source
//! POSIX.1-2017: which calls fail, and with what. Link counts of directories: 2 and one for each
//! directory inside.
//!
//! # Invariants
//! I1. Every directory but the root has exactly one name, and is not inside itself.
//! I2. A change that is refused leaves the tree as it was.
//!
//! # Not here
//! Permissions: the kernel checks them. Where bodies lie: [`super::state`]. When files were
//! read: an access time is that of the creation, or what somebody set.

mod apply;
mod content;
mod fault;
mod lag;
mod usage;

pub(super) use content::Extent;
pub use content::{BodyId, ByteSource, DroppedBytes, FileContent};
pub use fault::TreeError;
pub(super) use lag::StoreLag;
pub use lag::{MovingDirectory, NameLag, SetMember, StoreBase, StorePath, TreePlace};
pub use usage::OwnerUsage;

use alloc::boxed::Box;
use alloc::collections::{BTreeMap, BTreeSet};
use alloc::vec::Vec;

use super::{GroupNumber, InodeId, WallNs};

/// Bytes of the longest name (NAME_MAX of Linux).
const NAME_MAX: usize = 255;
/// Bytes of the longest target of a symbolic link (PATH_MAX of Linux, without its zero).
const TARGET_MAX: usize = 4095;
/// Bytes of the longest value of an extended attribute: a quarter of what Linux allows, so that a
/// record fits in a group.
const VALUE_MAX: usize = 16 << 10;
/// Extended attributes of one inode.
const XATTRS_MAX: usize = 64;
/// The longest file: offsets of the kernel are signed.
const SIZE_MAX: u64 = i64::MAX as u64;
/// Names of one inode (LINK_MAX of ext4).
const LINKS_MAX: u32 = 65_000;
/// Bits of a mode that are permissions.
const MODE_BITS: u32 = 0o7777;

/// The name of an entry of a directory, or of an extended attribute.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct EntryName(Box<[u8]>);

impl EntryName {
    /// Creates a name.
    ///
    /// # Errors
    /// [`TreeError::NameTooLong`]; [`TreeError::Invalid`] when no entry can be called so.
    pub fn new(bytes: &[u8]) -> Result<Self, TreeError> {
        if bytes.len() > NAME_MAX {
            return Err(TreeError::NameTooLong);
        }
        let is_reserved = matches!(bytes, [] | b"." | b"..");
        if is_reserved || bytes.iter().any(|byte| matches!(byte, 0 | b'/')) {
            return Err(TreeError::Invalid);
        }
        Ok(Self(bytes.into()))
    }

    /// Returns the bytes.
    pub fn bytes(&self) -> &[u8] {
        &self.0
    }
}

/// What a file is that has no bytes: the kernel gives it its behaviour.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SpecialKind {
    /// A named pipe.
    Pipe,
    /// A socket.
    Socket,
    /// A block device.
    Block,
    /// A character device.
    Character,
}

impl SpecialKind {
    /// All kinds, in the order of their numbers on disk.
    pub(in crate::staging) const ALL: [Self; 4] =
        [Self::Pipe, Self::Socket, Self::Block, Self::Character];
}

/// A pipe, socket or device.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SpecialNode {
    /// What it is.
    pub kind: SpecialKind,
    /// The number of a device, as the kernel writes it; zero for the others.
    pub device: u32,
}

/// What a new entry is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum NodeKind {
    /// A regular file.
    File,
    /// A directory.
    Directory,
    /// A symbolic link to this target.
    Symlink(Box<[u8]>),
    /// A pipe, socket or device.
    Special(SpecialNode),
}

/// Attributes to set; the others stay.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct AttributeSet {
    /// Permissions.
    pub mode: Option<u32>,
    /// User and group.
    pub owner: Option<(u32, u32)>,
    /// The time of the last change of the bytes.
    pub mtime: Option<WallNs>,
    /// The time of the last access, as somebody wants it to be.
    pub atime: Option<WallNs>,
}

/// A change of the tree.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum TreeChange {
    /// Writes bytes, which are the body of its record.
    Write {
        /// The file.
        inode: InodeId,
        /// Where.
        offset: u64,
        /// How many, at most [`super::BODY_MAX`].
        length: u32,
        /// The XXH3 of the bytes.
        digest: u64,
    },
    /// Moves bytes of a file to another place in the log: the body of its record is a copy of them.
    /// The file, its version and its times stay as they are.
    Relocate {
        /// The file.
        inode: InodeId,
        /// The place of the first of them in the file.
        offset: u64,
        /// How many, at most [`super::BODY_MAX`].
        length: u32,
        /// The body that has had them.
        body: BodyId,
        /// Bytes of that body before them.
        skip: u32,
        /// The XXH3 of the bytes.
        digest: u64,
    },
    /// Makes a file, a directory, or what else has a name.
    Create {
        /// Its number, at least [`Tree::next_inode`].
        inode: InodeId,
        /// The directory that gets it.
        parent: InodeId,
        /// Its name there.
        name: EntryName,
        /// What it is.
        node: NodeKind,
        /// Permissions.
        mode: u32,
        /// The user.
        uid: u32,
        /// The group.
        gid: u32,
    },
    /// Gives a file another name.
    Link {
        /// The file.
        inode: InodeId,
        /// The directory that gets it.
        parent: InodeId,
        /// Its name there.
        name: EntryName,
    },
    /// Takes a name from what is no directory.
    Unlink {
        /// The directory.
        parent: InodeId,
        /// The name.
        name: EntryName,
    },
    /// Removes an empty directory.
    RemoveDirectory {
        /// The directory that has it.
        parent: InodeId,
        /// Its name there.
        name: EntryName,
    },
    /// Gives an entry another name, in place of the one that has it.
    Rename {
        /// The directory that has it.
        from: InodeId,
        /// Its name there.
        name: EntryName,
        /// The directory that gets it.
        to: InodeId,
        /// Its name then.
        new_name: EntryName,
    },
    /// Sets attributes.
    Attributes {
        /// Of what.
        inode: InodeId,
        /// Which.
        set: AttributeSet,
    },
    /// Sets an extended attribute.
    SetXattr {
        /// Of what.
        inode: InodeId,
        /// Which.
        name: EntryName,
        /// To what.
        value: Box<[u8]>,
    },
    /// Removes an extended attribute.
    UnsetXattr {
        /// Of what.
        inode: InodeId,
        /// Which.
        name: EntryName,
    },
    /// Makes a file longer or shorter.
    Truncate {
        /// The file.
        inode: InodeId,
        /// Its size then.
        size: u64,
    },
    /// Removes what has no name: nobody has it open any more.
    Forget {
        /// The file or directory.
        inode: InodeId,
    },
    /// Lets go of bytes that are durable in the backing store.
    Drained {
        /// The file.
        inode: InodeId,
        /// Its version there.
        version: u64,
        /// Its size there.
        size: u64,
    },
    /// Notes what the backing store has at a place.
    Stored {
        /// The place.
        place: TreePlace,
        /// What is there.
        inode: Option<InodeId>,
    },
    /// Notes that a directory is about to move in the backing store.
    Moving {
        /// The directory.
        inode: InodeId,
        /// Where to.
        to: TreePlace,
    },
    /// Notes that the backing store has the attributes of an inode, and its object.
    Settled {
        /// The inode.
        inode: InodeId,
        /// As they were after this group.
        group: GroupNumber,
    },
    /// Notes that the backing store has no object any more of an inode that is gone.
    Dropped {
        /// The inode.
        inode: InodeId,
    },
    /// Keeps an inode from appearing in the backing store until its set is published.
    Hold {
        /// The file or symbolic link.
        inode: InodeId,
        /// The set that it becomes a member of.
        set: u64,
    },
    /// Lets all members of a set appear: from now on they do, whatever happens.
    Published {
        /// The set.
        set: u64,
    },
    /// Gives up a set that is not published; its members appear one by one.
    Release {
        /// The set.
        set: u64,
    },
}

/// What a change does to the space of the log.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum SpaceNeed {
    /// It needs some.
    Grows,
    /// It removes a name; others may follow that let go of bytes.
    Removes,
    /// It lets go of bytes.
    Frees,
}

impl TreeChange {
    /// Returns what it does to the space of the log.
    pub(super) const fn space_need(&self) -> SpaceNeed {
        match self {
            Self::Unlink { .. } | Self::RemoveDirectory { .. } => SpaceNeed::Removes,
            Self::Forget { .. }
            | Self::Relocate { .. }
            | Self::Drained { .. }
            | Self::Stored { .. }
            | Self::Moving { .. }
            | Self::Settled { .. }
            | Self::Dropped { .. }
            | Self::Published { .. }
            | Self::Release { .. } => SpaceNeed::Frees,
            _ => SpaceNeed::Grows,
        }
    }
}

/// What an inode is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum InodeKind {
    /// A regular file.
    File(FileContent),
    /// A directory.
    Directory {
        /// Where it is.
        parent: InodeId,
        /// What is in it.
        entries: BTreeMap<EntryName, InodeId>,
    },
    /// A symbolic link to this target.
    Symlink(Box<[u8]>),
    /// A pipe, socket or device.
    Special(SpecialNode),
}

/// A file, directory, symbolic link, pipe, socket or device.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Inode {
    /// What it is.
    pub kind: InodeKind,
    /// Permissions.
    pub mode: u32,
    /// The user.
    pub uid: u32,
    /// The group.
    pub gid: u32,
    /// Names; of a directory, two and one for each directory inside.
    pub links: u32,
    /// When it was made, or what somebody set in its place.
    pub atime: WallNs,
    /// When its bytes were last changed.
    pub mtime: WallNs,
    /// When anything of it was last changed.
    pub ctime: WallNs,
    /// Extended attributes.
    pub xattrs: BTreeMap<EntryName, Box<[u8]>>,
    /// Whether the backing store has an object of it.
    pub has_object: bool,
}

/// All inodes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Tree {
    pub(super) inodes: BTreeMap<InodeId, Inode>,
    pub(super) next_inode: InodeId,
    /// Inodes that it holds at most.
    pub(super) inodes_max: u32,
    /// The places of each inode that has one.
    pub(super) places: BTreeMap<InodeId, BTreeSet<TreePlace>>,
    /// What the backing store does not have yet.
    pub(super) lag: StoreLag,
    /// Bytes in the log of each user's files.
    pub(super) usage: OwnerUsage,
    /// Inodes of each user, and names of them beyond the first.
    pub(super) inode_usage: OwnerUsage,
}

impl Tree {
    /// Creates a tree with a root directory and room for `inodes_max` inodes; each takes about 400
    /// bytes of memory.
    pub fn new(inodes_max: u32) -> Self {
        let kind = InodeKind::Directory { parent: InodeId::ROOT, entries: BTreeMap::new() };
        let root = Inode {
            kind,
            mode: 0o755,
            uid: 0,
            gid: 0,
            links: 2,
            atime: WallNs(0),
            mtime: WallNs(0),
            ctime: WallNs(0),
            xattrs: BTreeMap::new(),
            has_object: false,
        };
        let inodes = BTreeMap::from([(InodeId::ROOT, root)]);
        let next_inode = InodeId(InodeId::ROOT.0 + 1);
        let (places, lag, usage) = (BTreeMap::new(), StoreLag::default(), OwnerUsage::default());
        let inode_usage = OwnerUsage::of_inodes(&inodes);
        Self { inodes, next_inode, inodes_max, places, lag, usage, inode_usage }
    }

    /// Returns the least number that a new inode can have.
    pub const fn next_inode(&self) -> InodeId {
        self.next_inode
    }

    /// Returns how much of the log the files of each user take.
    pub const fn log_usage(&self) -> &OwnerUsage {
        &self.usage
    }

    /// Returns owner and bytes in the log of a file that has some there.
    pub(crate) fn log_charge(&self, inode: InodeId) -> Option<(u32, u64)> {
        usage::log_charge(self.inode(inode)?)
    }

    /// Returns how many inodes each user has, together with their names beyond the first of each.
    pub const fn inode_usage(&self) -> &OwnerUsage {
        &self.inode_usage
    }

    /// Returns how many inodes there may be.
    pub const fn inodes_max(&self) -> u32 {
        self.inodes_max
    }

    /// Checks that there is room for what a change makes: inodes and names have one bound. A log that
    /// is read again may have been made with a higher one.
    ///
    /// # Errors
    /// [`TreeError::Full`].
    pub(in crate::staging) fn check_room(&self, change: &TreeChange) -> Result<(), TreeError> {
        let is_more = matches!(change, TreeChange::Create { .. } | TreeChange::Link { .. });
        if is_more && self.inode_usage.total() >= u64::from(self.inodes_max) {
            return Err(TreeError::Full);
        }
        Ok(())
    }

    /// Returns how many inodes there are.
    pub fn count(&self) -> usize {
        self.inodes.len()
    }

    /// Returns an inode.
    pub fn inode(&self, inode: InodeId) -> Option<&Inode> {
        self.inodes.get(&inode)
    }

    /// Returns all inodes, in the order of their numbers.
    pub fn inodes(&self) -> impl Iterator<Item = (InodeId, &Inode)> {
        self.inodes.iter().map(|(id, inode)| (*id, inode))
    }

    /// Returns what a file consists of; `None` when `inode` is no file.
    pub fn content(&self, inode: InodeId) -> Option<&FileContent> {
        match &self.inode(inode)?.kind {
            InodeKind::File(content) => Some(content),
            _ => None,
        }
    }

    /// Returns the inode of this name in a directory.
    ///
    /// # Errors
    /// [`TreeError::NotFound`], [`TreeError::NotDirectory`].
    pub fn lookup(&self, parent: InodeId, name: &EntryName) -> Result<InodeId, TreeError> {
        self.entries(parent)?.get(name).copied().ok_or(TreeError::NotFound)
    }

    /// Returns the inodes without a name.
    pub fn orphans(&self) -> impl Iterator<Item = InodeId> {
        self.inodes.iter().filter(|(_, inode)| inode.links == 0).map(|(id, _)| *id)
    }

    /// Returns where `inode` is: one place, or several of a file with several names.
    pub fn places(&self, inode: InodeId) -> impl Iterator<Item = &TreePlace> {
        self.places.get(&inode).into_iter().flatten()
    }

    /// Returns a path of `inode`, without a slash before it: that of one of its names.
    pub fn path(&self, inode: InodeId) -> Option<Vec<u8>> {
        let mut names = Vec::new();
        let mut at = inode;
        // A path has at most as many steps as there are inodes.
        while at != InodeId::ROOT && names.len() < self.inodes.len() {
            let place = self.places(at).next()?;
            names.push(place.name.bytes());
            at = place.directory;
        }
        names.reverse();
        Some(names.join(&b'/'))
    }

    fn entries(&self, parent: InodeId) -> Result<&BTreeMap<EntryName, InodeId>, TreeError> {
        match &self.inode(parent).ok_or(TreeError::NotFound)?.kind {
            InodeKind::Directory { entries, .. } => Ok(entries),
            _ => Err(TreeError::NotDirectory),
        }
    }
}
