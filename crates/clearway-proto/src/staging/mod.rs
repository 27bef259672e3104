//! Data staging on one machine: a log on disk that takes changes of a tree of files at the speed of
//! the disk, keeps them until they are in a backing store, and finds them again after a crash.
//!
//! # Model
//! ```text
//!   calls --Append--> tree in memory --records--> open group --close--> disk --sync--> Durable
//!                                                                          |
//!   backing store <--drain-- Drainable                 Drained --record--> log: space is free
//! ```
//! A call is applied to the tree at once, and answered; its record goes into the open group. The
//! group is closed when no other one is on its way to the disk, or when it is full: a lone call
//! waits for one write and one sync, and under load a sync makes durable whatever came during the
//! one before. There is no timer. A client learns by [`LogEvent::Durable`] up to which of its calls
//! everything is safe.
//!
//! The log is a set of files of equal size, the *segments*, preallocated by the application. A
//! group lies in one segment ([`GroupHeader`] has its format); groups follow each other without a
//! gap. A *snapshot* holds the whole state after a group, so that recovery reads a snapshot and the
//! groups behind it. There are two files for snapshots, written in turn: a crash while one is
//! written leaves the other.
//!
//! A segment is free for new groups when a snapshot covers its groups and no file needs a body in
//! it: the bytes were overwritten, cut off, deleted, or are in the backing store. Only a *durable*
//! record of this frees the space. When few segments are free, what is left in those that are nearly
//! empty is written again elsewhere (`compaction.rs`).
//!
//! # On disk
//! | file | contents |
//! |---|---|
//! | superblock | two copies, one block each (`superblock.rs`) |
//! | segments | groups: header, heads of records, names, bodies (`group.rs`, `record.rs`) |
//! | snapshots | header block, the state behind it (`snapshot.rs`) |
//!
//! All is little-endian, in blocks of 4 KiB. Each part is under a CRC-32C, and each body under an
//! XXH3: blocks of an application can end in a CRC of their own, and then all have the same CRC, so
//! that recovery would take an old block for a body that never reached the disk.
//! Nothing is written over that a recovery could need.
//!
//! # Recovery
//! Groups are read in order until the next one is not there whole. Every header names the highest
//! group that was known to be synced when it was written, and the superblock one when the log was
//! last at rest. A group above the highest such number that is found is a torn tail: no client
//! learned that it is safe, and the log ends before it. A group at or below is *damaged*: a bad body puts its files into quarantine, and a bad front
//! refuses the log, because nobody knows what it changed.
//!
//! # Failures of the disk
//! A failed write or sync says nothing about what is on disk, and a sync that succeeds later does
//! not either. So the segment is *retired*: everything that is not durable is written again, into
//! another segment, from memory. A second failure before a success stops the log.
//!
//! # Invariants
//! I1. What a client learned to be durable is there after every crash; what is there was issued;
//!     and what is there is a prefix of what was issued, in one order for all clients.
//! I2. A call of a client with a number that the log has is not applied again.
//! I3. Space is free only when a durable record says so.
//!
//! # Not here
//! Reading bytes of files, clients and servers on a network, and the copy into the backing store.

mod checkpoint;
mod commit;
mod compaction;
mod disk_queue;
mod drain;
mod error;
mod group;
mod inspection;
mod log;
mod note;
mod opening;
mod record;
mod recovery;
mod shares;
mod snapshot;
mod state;
mod store;
mod superblock;
mod tree;

#[cfg(test)]
mod tests;

pub use drain::{DrainEnd, DrainJob, DrainLimits, DrainOrder, DrainTarget};
pub use error::LogError;
pub use group::{BODY_MAX, GroupHeader, LogPlace};
pub use inspection::{InspectedLog, LogLayout, LogRead, inspect_log};
pub use log::{LogSpace, StagingLog};
pub use record::{LogChange, LogRecord, RecordBody};
pub use recovery::{DamagedFile, LogFile, RecoveryReport};
pub use shares::{LogShares, UserWrite};
pub use snapshot::{SnapshotHeader, parse_snapshot};
pub use state::{BodyCondition, BodyPlace, LogState};
pub use store::{
    CopyPiece, DrainNotice, DrainPolicy, DrainWish, DueFile, StepEnd, StoreAttributes, StoreDrain,
    StoreDrainConfig, StoreStep, StoreTask, StrangerFate,
};
pub use tree::{
    AttributeSet, BodyId, ByteSource, DroppedBytes, EntryName, FileContent, Inode, InodeKind,
    MovingDirectory, NameLag, NodeKind, OwnerUsage, SetMember, SpecialKind, SpecialNode, StoreBase,
    StorePath, Tree, TreeChange, TreeError, TreePlace,
};

use alloc::vec::Vec;

use crate::base::{Bytes, Class, Nanos};
use crate::wire::{FileId, RegionId, Span};

/// Bytes of a block: what disks and file systems write as one piece, and what direct I/O wants
/// places and lengths to be multiples of.
pub const BLOCK: usize = 4096;

/// Returns the blocks that `bytes` take.
pub(crate) const fn blocks(bytes: u64) -> u32 {
    bytes.div_ceil(BLOCK as u64) as u32
}

/// Names a log, from its creation to its end. Drawn at random.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LogId(pub u128);

/// Counts the openings of a log.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Epoch(pub u64);

/// The place of a group in the order of all groups of a log; the first is 1.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct GroupNumber(pub u64);

/// Names a client over crashes of it and of the service. Drawn at random.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct ClientId(pub u64);

impl ClientId {
    /// The log itself, for records that nobody asked for. No client has this name.
    pub(crate) const LOG: Self = Self(0);
}

/// Names a file, directory or symbolic link of a tree.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct InodeId(pub u64);

impl InodeId {
    /// The root directory.
    pub const ROOT: Self = Self(1);
    /// The hidden directory of the backing store that has an object of each file. No inode has this
    /// number.
    pub(crate) const OBJECTS: Self = Self(0);
}

/// Nanoseconds since 1970. Deadlines and times of files outlive a process, so they are not in the
/// time of its clock.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct WallNs(pub u64);

/// What the application may ask of a [`StagingLog`].
#[derive(Clone, Debug)]
pub enum LogCommand {
    /// Makes a change. [`LogEvent::Applied`], [`LogEvent::Known`] or [`LogEvent::Refused`] follows
    /// at once, and after `Applied` in the end [`LogEvent::Durable`].
    Append {
        /// The client whose call it is.
        client: ClientId,
        /// The number of the call: higher than all before it of this client.
        number: u64,
        /// The class of the traffic that brought it.
        class: Class,
        /// The change.
        change: TreeChange,
        /// The bytes of a write, from a multiple of 4096 on. The memory up to the next multiple of
        /// 4096 behind them can be read too. All of it stays as it is until the call is durable.
        body: Span,
    },
    /// Makes all changes so far durable without waiting for others: somebody waits for them.
    Commit,
    /// Sets the time of day, as it is now.
    SetClock(WallNs),
    /// Asks for [`LogEvent::Finished`] when everything is durable, and the superblock says so.
    Finish,
}

/// What a [`StagingLog`] reports.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum LogEvent {
    /// The log is open.
    Opened(RecoveryReport),
    /// The log cannot be opened. Nothing of it was changed but, perhaps, its superblock.
    NotOpened(LogError),
    /// The change is made and visible, but not safe.
    Applied {
        /// Whose call.
        client: ClientId,
        /// Which.
        number: u64,
    },
    /// The call was made before. Nothing is done; the memory of its body is not needed.
    Known {
        /// Whose call.
        client: ClientId,
        /// Which.
        number: u64,
    },
    /// The change was not made, and is not in the log.
    Refused {
        /// Whose call.
        client: ClientId,
        /// Which.
        number: u64,
        /// Why.
        why: LogError,
    },
    /// All applied calls of a client up to this one are safe, and with them everything that was
    /// applied before them. The memory of their bodies is free.
    Durable {
        /// Whose calls.
        client: ClientId,
        /// The last one.
        number: u64,
    },
    /// A version of a file is durable, so it can be copied. To drain: read the bytes of the tree,
    /// see that the file still has this version, put the copy into its place in the backing store,
    /// make it durable there, and append [`TreeChange::Drained`].
    Drainable {
        /// The file.
        inode: InodeId,
        /// The version.
        version: u64,
        /// Its size.
        size: u64,
    },
    /// Something that an operator should know; the log continues.
    Notice(LogError),
    /// The log takes no more changes. What is not durable has to be kept by its clients.
    Stopped(LogError),
    /// What [`LogCommand::Finish`] asked for.
    Finished,
}

/// Says whether a log is there.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LogOrigin {
    /// It is, in the files.
    Existing,
    /// It is made anew, under this name. What is in the files does not count.
    New(LogId),
}

/// What a [`StagingLog`] is made for.
#[derive(Clone, Debug)]
pub struct LogConfig {
    /// Whether the log exists.
    pub origin: LogOrigin,
    /// The file of the superblock, two blocks long.
    pub superblock: FileId,
    /// The files of snapshots.
    pub snapshots: [FileId; 2],
    /// Bytes of each of them.
    pub snapshot_size: Bytes,
    /// The files of segments, preallocated.
    pub segments: Vec<FileId>,
    /// Bytes of each of them: a multiple of 4096, and at least that of two groups.
    pub segment_size: Bytes,
    /// Bytes of bodies after which a group is full: between [`BODY_MAX`], or the longest write that
    /// there is, and 4 MiB.
    pub bodies_max: Bytes,
    /// Memory of the engine's own, of [`LogConfig::SCRATCH`] bytes.
    pub scratch: RegionId,
    /// Inodes that the tree holds at most.
    pub inodes_max: u32,
    /// Bytes of groups after which a snapshot is taken. Recovery reads as many.
    pub snapshot_every: Bytes,
    /// How long changes wait for others that share their sync, unless [`LogCommand::Commit`] asks for
    /// it or they have as many bytes as a sync is worth.
    pub linger: Nanos,
    /// The time of day when the engine's clock is zero.
    pub wall_at_zero: WallNs,
}

impl LogConfig {
    /// Bytes of memory that an engine needs: fronts of groups on their way, a body, a superblock,
    /// bytes that get another place.
    pub const SCRATCH: u64 =
        (commit::IN_FLIGHT * group::FRONT_MAX + BLOCK) as u64 + 2 * BODY_MAX as u64;

    /// Checks that such a log can work: three segments or more, so that one can be written while
    /// another is freed and a third is kept for what frees space; each longer than two groups.
    ///
    /// # Errors
    /// [`LogError::Configuration`].
    pub fn check(&self) -> Result<(), LogError> {
        let group = group::FRONT_MAX as u64 + self.bodies_max.0;
        let size = self.segment_size.0;
        let is_good = self.segments.len() >= 3
            && u32::try_from(self.segments.len()).is_ok()
            && self.bodies_max.0 <= group::BODIES_MAX
            && size.is_multiple_of(BLOCK as u64)
            && size >= 2 * group
            && size / BLOCK as u64 <= u64::from(u32::MAX);
        if is_good { Ok(()) } else { Err(LogError::Configuration) }
    }
}
