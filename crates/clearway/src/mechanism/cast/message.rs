//! Messages between sender and receivers in addition to the broadcast.

use std::net::{Ipv4Addr, SocketAddrV4};

use clearway_proto::base::Class;
use serde::{Deserialize, Serialize};

use super::path::{PathText, RelativePath};
use super::plan::{Inventory, ManifestEntry, NumberRuns};

/// Failures that a receiver tells with their reasons; of more only the number.
pub(super) const REPORTED_MAX: usize = 20;
/// Names that a receiver tells which it would remove; of more only the number.
pub(super) const EXTRAS_MAX: usize = 4096;
/// Entries, or hashes of blocks, in one message.
pub(super) const CHUNK: usize = 4096;

/// To a receiver, in this order.
#[derive(Debug, Serialize, Deserialize)]
pub(super) enum ToReceiver {
    /// Where everything goes.
    Task(CastTask),
    /// Some of the entries, in order.
    Entries(Vec<ManifestEntry>),
    /// There are no more entries: answer with [`FromReceiver::Has`].
    Survey,
    /// Hashes of some blocks of a file, in order, as hexadecimal digits.
    Hashes { file: u32, hashes: String },
    /// There are no more hashes: answer with [`FromReceiver::Lacks`], and
    /// [`FromReceiver::Compared`] at last.
    Compare,
    /// Take a seat in the broadcast: answer with [`FromReceiver::Bound`].
    Seat(BroadcastMembership),
    /// Open your end: answer with [`FromReceiver::Opened`].
    Open(Vec<MemberAddress>),
    /// The broadcast begins; the key of its group, where it has one, as hexadecimal digits.
    Begin { group_key: Option<String> },
    /// You were parked, and the others have everything: answer with [`FromReceiver::Has`],
    /// [`FromReceiver::Lacks`] for what you have a part of, and [`FromReceiver::Compared`].
    Resume,
    /// All has been cast: bring it to an end, and answer with [`FromReceiver::Outcome`].
    Finish(ExtrasPolicy),
    /// There is nothing more to do.
    Leave,
    /// It has nothing to say, and is there.
    Alive,
}

/// Where everything goes.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(super) struct CastTask {
    /// Of the receiver, for `%r`.
    pub(super) number: u32,
    /// A directory; without it the receiver's own.
    pub(super) into: Option<PathText>,
    /// Whether files are the same whose sizes and times are.
    pub(super) check: HashPolicy,
    /// What may be done to the target.
    pub(super) access: TargetAccess,
    /// What is removed at the end, if the sender then says so.
    pub(super) removal: Option<RemovalTask>,
}

/// What a receiver removes when it has everything: names below the directories that are cast, but
/// for those that are cast themselves.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub(super) struct RemovalTask {
    /// The directories.
    pub(super) below: Vec<RelativePath>,
    /// Patterns of names below each of them that stay, as people write them.
    pub(super) exclude: Vec<String>,
    /// What the source has and does not cast.
    pub(super) kept: Vec<RelativePath>,
}

/// What becomes of names at a receiver that the source does not have.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) enum ExtrasPolicy {
    Keep,
    /// They are removed as the task says, if all the rest is as it must be.
    Remove,
}

/// What a cast may do to the directory of a receiver.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) enum TargetAccess {
    /// Make what is cast.
    Change,
    /// See what is there, and change nothing: no directory, no permission, no unfinished file.
    Look,
}

/// How a receiver finds out what it has.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) enum HashPolicy {
    /// By size and time of change.
    Times,
    /// By contents.
    Contents,
}

/// A receiver's part in the broadcast.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(super) struct BroadcastMembership {
    pub(super) session: u64,
    pub(super) rank: u32,
    /// The address at which it is reached.
    pub(super) address: Ipv4Addr,
    pub(super) network: MemberNetwork,
    /// The group of the cast, where there is one.
    pub(super) group: Option<SocketAddrV4>,
    /// Tells this cast from others.
    pub(super) key: u32,
    /// The most that one end sends, in bits per second.
    pub(super) rate: Option<u64>,
    /// The class of blocks; bulk from senders that know no policy.
    #[serde(default = "bulk")]
    pub(super) class: Class,
}

const fn bulk() -> Class {
    Class::Bulk
}

/// Where the members of a broadcast run.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) enum MemberNetwork {
    /// All on the loopback of one network namespace.
    Loopback,
    /// Anywhere else, other containers and virtual hosts of this machine included: messages are
    /// sealed.
    Sealed,
}

/// Where one member of the broadcast is.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(super) struct MemberAddress {
    pub(super) address: SocketAddrV4,
    /// Its card, as hexadecimal digits.
    pub(super) card: String,
}

/// From a receiver.
#[derive(Debug, Serialize, Deserialize)]
pub(super) enum FromReceiver {
    /// The first word.
    Here {
        host: String,
        /// The kernel's numbers of this start of the machine and of the network namespace.
        boot: String,
        /// The addresses of both ends, sender's first, where ssh knows them.
        reached: Option<[Ipv4Addr; 2]>,
    },
    /// What it has of the entries.
    Has {
        has: Inventory,
        /// Why entries failed, some of them.
        why: Vec<(u32, String)>,
        /// The device and inode of the target directory and of those that it is in, inner first;
        /// none if it does not exist and this cast must not create it.
        places: Vec<(u64, u64)>,
    },
    /// What it lacks of a file of which it has a part.
    Lacks { file: u32, runs: NumberRuns },
    /// It has answered for all files.
    Compared,
    /// It is busy, and there.
    Alive,
    /// Where it is in the broadcast.
    Bound(MemberAddress),
    /// Its end is open.
    Opened,
    /// Bytes that it has taken so far.
    Progress { bytes: u64 },
    /// How it ended.
    Outcome(ReceiverOutcome),
    /// It cannot take part, in one sentence.
    Failed(String),
}

/// How a receiver ended.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct ReceiverOutcome {
    /// Bytes written of what was cast.
    pub(super) written: u64,
    /// Files that came, whole and checked.
    pub(super) files: u64,
    /// Entries that are not as they must be.
    pub(super) failed: u64,
    /// Those that the sender began and did not send.
    pub(super) unsent: u64,
    /// Why some failed.
    pub(super) why: Vec<(PathText, String)>,
    /// What else somebody should know, a sentence each.
    pub(super) notes: Vec<String>,
    /// Names that were removed.
    pub(super) removed: u64,
    /// Those that would be, where nothing is changed.
    pub(super) extras: ExtraNames,
    /// Changes that would be made other than of contents, where nothing is changed.
    pub(super) changes: PlannedChanges,
}

/// The changes that a cast would make other than of contents of files.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct PlannedChanges {
    /// Symbolic links that are not there, or lead elsewhere.
    pub(super) links: u64,
    /// Files and directories that are there and have other permissions.
    pub(super) permissions: u64,
}

impl ReceiverOutcome {
    /// Returns whether everything arrived and is as it must be.
    pub(super) const fn is_complete(&self) -> bool {
        self.failed == 0 && self.unsent == 0
    }
}

/// Names at a receiver that the source does not have.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct ExtraNames {
    pub(super) count: u64,
    /// Some of them.
    pub(super) paths: Vec<PathText>,
}
