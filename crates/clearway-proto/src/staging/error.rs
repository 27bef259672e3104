//! What goes wrong with a log, in one sentence each.

use core::fmt;

use super::tree::TreeError;
use super::{GroupNumber, LogPlace};
use crate::base::Nanos;
use crate::wire::Fault;

/// Why a log is not opened, a call is refused, or an operator should look.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum LogError {
    /// Neither copy of the superblock begins as one does: name the right files.
    WrongMagic,
    /// Written by a release with another format: use that release to drain it.
    Version(u32),
    /// Both copies of the superblock are damaged.
    SuperblockDamaged,
    /// The log has other segments than the files given.
    Geometry {
        /// Segments of the log.
        segments: u32,
        /// Bytes of each.
        size: u64,
    },
    /// The configuration cannot work: too few segments, or segments of an impossible size.
    Configuration,
    /// A file could not be read: try again when the disk works.
    Unreadable(Fault),
    /// A group that was durable is not there whole; nothing behind it can be trusted.
    GroupDamaged {
        /// Which.
        group: GroupNumber,
        /// Where it should be.
        place: LogPlace,
    },
    /// A segment begins with a group of another one: the files were exchanged or copied.
    Misplaced {
        /// The segment.
        segment: u32,
        /// The segment that it was written for.
        from: u32,
    },
    /// A group that is whole changes what is not there.
    Inconsistent(GroupNumber),
    /// The tree refuses the change.
    Tree(TreeError),
    /// The log is not open.
    NotOpen,
    /// As much is under way as can be; try again after the next [`super::LogEvent::Durable`].
    Busy,
    /// No space is left: wait until files are drained, or delete some.
    Full,
    /// A body is longer or shorter than its record says, or not where bodies may be.
    BadBody,
    /// A segment is not written to any more, because the disk failed there.
    Retired {
        /// The segment.
        segment: u32,
        /// How the disk failed.
        fault: Fault,
    },
    /// The disk failed again while everything was written again: nothing more is accepted.
    Stopped(Fault),
    /// A snapshot could not be written; it is tried again some seconds later.
    SnapshotFailed(Fault),
    /// The clock of the machine stepped back; times of files stand still until it has caught up.
    ClockBack(Nanos),
}

impl From<TreeError> for LogError {
    fn from(why: TreeError) -> Self {
        Self::Tree(why)
    }
}

impl fmt::Display for LogError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::WrongMagic => f.write_str(
                "the superblock is not that of a staging log; name the directory of a log or make a new one",
            ),
            Self::Version(version) => {
                write!(f, "the log has format {version}, which this release does not read")
            }
            Self::SuperblockDamaged => f.write_str(
                "both copies of the superblock are damaged; restore one of them from a copy",
            ),
            Self::Geometry { segments, size } => {
                write!(f, "the log has {segments} segments of {size} bytes; give exactly these")
            }
            Self::Configuration => {
                f.write_str("a log needs three segments or more, in whole blocks, each longer than two groups")
            }
            Self::Unreadable(fault) => {
                write!(f, "the log cannot be read: {fault}; nothing was changed, try again")
            }
            Self::GroupDamaged { group, place } => write!(
                f,
                "group {} was durable and is damaged in segment {} at byte {}; nothing behind it is used",
                group.0,
                place.segment,
                place.offset()
            ),
            Self::Misplaced { segment, from } => write!(
                f,
                "segment {segment} has what was written to segment {from}; put the files of the segments back in their order"
            ),
            Self::Inconsistent(group) => {
                write!(f, "group {} is whole but changes what is not there", group.0)
            }
            Self::Tree(why) => why.fmt(f),
            Self::NotOpen => f.write_str("the log is not open"),
            Self::Busy => f.write_str("the disk is busy; try again when an earlier call is durable"),
            Self::Full => f.write_str("the log is full; wait until files are drained or delete some"),
            Self::BadBody => f.write_str("the bytes of the write are not where they should be"),
            Self::Retired { segment, fault } => {
                write!(f, "segment {segment} is not used any more: {fault}; nothing durable was lost")
            }
            Self::Stopped(fault) => {
                write!(f, "the log is stopped: {fault}; what is not durable stays with its clients")
            }
            Self::SnapshotFailed(fault) => {
                write!(f, "a snapshot of the log was not written: {fault}; the log frees no space until one is, and tries again")
            }
            Self::ClockBack(by) => write!(f, "the clock stepped back by {by}; times of files stand still"),
        }
    }
}

impl core::error::Error for LogError {}
