//! What is done in a backing store, step by step, and how steps end.

use alloc::boxed::Box;
use alloc::vec::Vec;

use super::super::tree::{EntryName, NodeKind, StorePath};
use super::super::{InodeId, LogPlace, WallNs};
use crate::base::Class;
use crate::wire::Fault;

/// A step for a worker.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StoreTask {
    /// Its number, for [`super::StoreDrain::end`].
    pub number: u64,
    /// The class of its traffic.
    pub class: Class,
    /// What to do.
    pub step: StoreStep,
}

/// Attributes of an inode in the store.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StoreAttributes {
    /// Permissions.
    pub mode: u32,
    /// User and group.
    pub owner: (u32, u32),
    /// The time of the last access, as the tree has it.
    pub atime: WallNs,
    /// The time of the last change of the bytes.
    pub mtime: WallNs,
    /// Extended attributes.
    pub xattrs: Vec<(EntryName, Box<[u8]>)>,
}

/// A stretch of a body to copy.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CopyPiece {
    /// Where the body lies in the log.
    pub place: LogPlace,
    /// Its length.
    pub length: u32,
    /// The XXH3 of it.
    pub digest: u64,
    /// Bytes of the body before the stretch.
    pub skip: u32,
    /// Where the stretch begins in the file.
    pub offset: u64,
    /// Bytes of the stretch.
    pub bytes: u32,
}

/// A step. Each can be done again when nobody knows whether it was done. What is in the way of one
/// and is no name of an object is kept under another name.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum StoreStep {
    /// Makes all names of the store durable, makes the hidden directory of objects if it is not
    /// there, and removes all objects but these and old ones with names.
    Sweep {
        /// The objects and directories that stay, in order.
        keeps: Vec<InodeId>,
    },
    /// Brings the object of a file up to a version: cuts it after `keep` bytes, makes it `size` bytes
    /// long, writes the pieces, sets the attributes, makes all of it durable, and compares what the
    /// store has with the digests. An object that has names is not changed: a copy of it takes its
    /// place, and it is kept as an old one, so that its names are known to be ours.
    Copy {
        /// The file.
        inode: InodeId,
        /// Whether it may have names after a crash even if it has none now.
        is_named: bool,
        /// Bytes of the object that count.
        keep: u64,
        /// The size.
        size: u64,
        /// What is written.
        pieces: Vec<CopyPiece>,
        /// The attributes.
        attributes: StoreAttributes,
    },
    /// Makes a durable object of what has no bytes.
    Make {
        /// The symbolic link, pipe, socket or device.
        inode: InodeId,
        /// What it is.
        node: NodeKind,
        /// The attributes.
        attributes: StoreAttributes,
    },
    /// Sets attributes of an object or a directory, and makes them durable.
    Settle {
        /// Of what.
        at: StorePath,
        /// To what.
        attributes: StoreAttributes,
    },
    /// Gives an object a name, in place of what is there.
    Link {
        /// The object.
        inode: InodeId,
        /// The name.
        to: StorePath,
    },
    /// Makes a directory, if it is not there.
    MakeDirectory {
        /// Where.
        at: StorePath,
    },
    /// Moves a directory. Where nothing is at `from`, it was done.
    MoveDirectory {
        /// From where.
        from: StorePath,
        /// Where to.
        to: StorePath,
    },
    /// Takes away a name of an object; anything else stays. Where the directory is gone, so is it.
    Unlink {
        /// The name.
        at: StorePath,
    },
    /// Removes a directory if it is empty.
    RemoveDirectory {
        /// Where.
        at: StorePath,
    },
    /// Removes old objects.
    DropOld {
        /// Of what.
        inode: InodeId,
    },
    /// Removes an object, and old ones.
    Drop {
        /// Of what.
        inode: InodeId,
    },
    /// Makes names of directories durable.
    SyncDirectories {
        /// Which.
        at: Vec<StorePath>,
    },
}

/// How a step ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum StepEnd {
    /// It is done.
    Done,
    /// It is done, but another program made something that was in the way, or was to be removed.
    DoneWithStranger(StrangerFate),
    /// It was not done, or not wholly; it is tried again after a pause.
    Failed(Fault),
    /// The store made no progress; it is parked.
    Stuck,
    /// It was not done, or not in the store: the path of the store leads to something else, or to
    /// nothing. It is tried again after a pause.
    Absent,
}

/// What becomes of something in the store that another program made.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum StrangerFate {
    /// It stays at its place.
    Stays,
    /// It has the name with the suffix of this number, from 1 on.
    Moved(u32),
}

/// Something that an operator should know.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum DrainNotice {
    /// A step failed.
    Failed {
        /// Which.
        step: StoreStep,
        /// Why.
        fault: Fault,
    },
    /// Something that another program made was in the way of a step.
    Stranger {
        /// The step.
        step: StoreStep,
        /// What became of it.
        fate: StrangerFate,
    },
    /// The path of the store does not lead to the store.
    Absent,
    /// The store makes no progress.
    Parked,
    /// A set is published.
    Published(u64),
}
