//! What one rank is asked to do in one phase. Plain values, made by the coordinator, sent to each
//! rank.
//!
//! # Source
//! Message sizes and patterns: GPCNeT v1.3 defaults (8 B latency, 128 KiB bandwidth, 4 KiB alltoall
//! and congestors).

use alloc::vec::Vec;
use core::fmt;
use core::str::FromStr;

use serde::{Deserialize, Serialize};

use crate::base::{BitsPerSec, Bytes, Class, LocalNs, Nanos, Rank};

/// The timed patterns.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum VictimKind {
    /// 8 bytes to both neighbours of a random ring, answered at once; each direction timed one way.
    Ping,
    /// 8 bytes asked of both neighbours; timed from the intended request to the reply.
    Get,
    /// 128 KiB to both neighbours, then a barrier; timed as a whole.
    BandwidthSync,
    /// Nobody goes on before all victims have come; timed as a whole.
    Barrier,
    /// A sum of 8 bytes over all victims; timed as a whole.
    Allreduce,
    /// 8 bytes of each victim come to all; timed as a whole.
    Allgather,
    /// 4 KiB from each to each; timed as a whole.
    Alltoall,
}

impl VictimKind {
    /// All patterns, in the order of reports.
    pub const ALL: [Self; 7] = [
        Self::Ping,
        Self::Get,
        Self::BandwidthSync,
        Self::Barrier,
        Self::Allreduce,
        Self::Allgather,
        Self::Alltoall,
    ];

    /// Returns the name used in scenarios and reports.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Ping => "ping",
            Self::Get => "get",
            Self::BandwidthSync => "bandwidth-sync",
            Self::Barrier => "barrier",
            Self::Allreduce => "allreduce",
            Self::Allgather => "allgather",
            Self::Alltoall => "alltoall",
        }
    }

    /// Returns the bytes of one message of this pattern; of an allgather those of one rank's block.
    pub const fn message(self) -> Bytes {
        match self {
            Self::Barrier => Bytes(0),
            Self::Ping | Self::Get | Self::Allreduce | Self::Allgather => Bytes(8),
            Self::BandwidthSync => Bytes(128 << 10),
            Self::Alltoall => Bytes(4 << 10),
        }
    }
}

/// The loading patterns.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum CongestorKind {
    /// Each to every other in shifted order, 4 KiB messages.
    Alltoall,
    /// All to the first of the group, sent without waiting.
    Incast,
    /// All to the first of the group; each message waits for the acknowledgement of an earlier one.
    PutIncast,
    /// All ask the first of the group for 4 KiB, again and again.
    GetBroadcast,
    /// Each to one fixed other.
    Permutation,
    /// An incast that comes in bursts.
    Burst,
    /// Four patterns at once, one for each group in turn: alltoall, incast, put-incast,
    /// get-broadcast.
    Gpcnet,
    /// Reliable broadcasts of 1 MiB from the first of the group to all others, by multicast; along
    /// the chain where wires have none.
    Cast,
    /// The same along a chain.
    CastChain,
    /// The same down a tree.
    CastTree,
    /// Clients of a staging server write a checkpoint to the first of the group.
    Staging,
    /// The same at the pace that the server sets, to spare others.
    StagingYield,
    /// A program of the user's, which ranks do not run themselves.
    Program,
    /// No traffic, but processors kept busy: shows what the processors' share of a latency is.
    CpuOnly,
    /// Nothing: the null control.
    None,
}

impl CongestorKind {
    /// All patterns, in the order of reports.
    pub const ALL: [Self; 15] = [
        Self::Alltoall,
        Self::Incast,
        Self::PutIncast,
        Self::GetBroadcast,
        Self::Permutation,
        Self::Burst,
        Self::Gpcnet,
        Self::Cast,
        Self::CastChain,
        Self::CastTree,
        Self::Staging,
        Self::StagingYield,
        Self::Program,
        Self::CpuOnly,
        Self::None,
    ];

    /// Returns the name used in scenarios and reports.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Alltoall => "alltoall",
            Self::Incast => "incast",
            Self::PutIncast => "put-incast",
            Self::GetBroadcast => "get-broadcast",
            Self::Permutation => "permutation",
            Self::Burst => "burst",
            Self::Gpcnet => "gpcnet",
            Self::Cast => "cast",
            Self::CastChain => "cast-chain",
            Self::CastTree => "cast-tree",
            Self::Staging => "staging",
            Self::StagingYield => "staging-yield",
            Self::Program => "program",
            Self::CpuOnly => "cpu-only",
            Self::None => "none",
        }
    }

    /// Returns whether this is a broadcast.
    pub const fn casts(self) -> bool {
        matches!(self, Self::Cast | Self::CastChain | Self::CastTree)
    }

    /// Returns the pattern that is the same without yielding to others; `None` where this does not
    /// yield.
    pub const fn unyielding(self) -> Option<Self> {
        match self {
            Self::StagingYield => Some(Self::Staging),
            _ => None,
        }
    }

    /// Returns whether this puts traffic on the network, from ranks or from a program that runs
    /// with them.
    pub const fn sends(self) -> bool {
        !matches!(self, Self::CpuOnly | Self::None)
    }
}

/// The name is not one of the known patterns; prints as a sentence that lists them.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct UnknownPattern(Vec<&'static str>);

impl fmt::Display for UnknownPattern {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "not a known pattern; there are {}", self.0.join(", "))
    }
}

impl core::error::Error for UnknownPattern {}

impl FromStr for VictimKind {
    type Err = UnknownPattern;
    fn from_str(name: &str) -> Result<Self, UnknownPattern> {
        let known = || UnknownPattern(Self::ALL.map(Self::name).into());
        Self::ALL.into_iter().find(|kind| kind.name() == name).ok_or_else(known)
    }
}

impl FromStr for CongestorKind {
    type Err = UnknownPattern;
    fn from_str(name: &str) -> Result<Self, UnknownPattern> {
        let known = || UnknownPattern(Self::ALL.map(Self::name).into());
        Self::ALL.into_iter().find(|kind| kind.name() == name).ok_or_else(known)
    }
}

/// A rank's part as a victim.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct VictimTask {
    /// The pattern.
    pub kind: VictimKind,
    /// All victims in ring order, this rank among them.
    pub ring: Vec<Rank>,
    /// The class of their messages.
    pub class: Class,
    /// Open loop: mean time between messages of one rank to one neighbour. Closed loop: least time
    /// between the beginnings of two iterations.
    pub interval: Nanos,
}

impl VictimTask {
    /// Returns the ranks before and after `me` in the ring, each once, without `me`; none when `me`
    /// is not in it.
    pub(super) fn neighbours(&self, me: Rank) -> Vec<Rank> {
        let ring = &self.ring;
        let Some(place) = ring.iter().position(|rank| *rank == me) else { return Vec::new() };
        let mut both = Vec::from([
            ring[(place + ring.len() - 1) % ring.len()],
            ring[(place + 1) % ring.len()],
        ]);
        both.dedup();
        both.retain(|rank| *rank != me);
        both
    }
}

/// How a flow of messages behaves.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum FlowStyle {
    /// The messages are sent on schedule. One is under way until it has left this node, as a
    /// two-sided send of a size that the receiver's side buffers.
    Push,
    /// The same, but one is under way until its receiver has acknowledged it: a one-sided write
    /// that is flushed.
    Put,
    /// Requests sent on schedule; the target answers each with the message.
    Get,
}

/// On and off in turn. The first burst begins with the load, on every rank: the bursts of all ranks
/// coincide, as those of programs that compute and communicate in common steps do, and as those of
/// published tests, whose first rank ends each burst for all.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Burst {
    /// Sending this long at the flow's rate ...
    pub on: Nanos,
    /// ... once in this time.
    pub period: Nanos,
}

impl Burst {
    /// Returns how much of the time from `from` to `until` after the load's beginning is in bursts.
    pub fn time_on(self, from: Nanos, until: Nanos) -> Nanos {
        let before = |at: Nanos| {
            let rounds = at.steps_of(self.period);
            self.on.times(rounds) + (at - self.period.times(rounds)).min(self.on)
        };
        before(until.max(from)) - before(from)
    }
}

/// Messages from this rank to some others, at a rate.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Flow {
    /// Taken in turn, one message each.
    pub targets: Vec<Rank>,
    /// Which side waits for the other.
    pub style: FlowStyle,
    /// Offered rate on the link, all headers included; of the answers for [`FlowStyle::Get`].
    pub rate: BitsPerSec,
    /// Bytes of one message, without headers.
    pub message: Bytes,
    /// Present: at most this many messages are under way; the schedule waits for them. The style
    /// says what that means.
    pub window: Option<u32>,
    /// Present: only in bursts.
    pub burst: Option<Burst>,
}

/// What loads.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum LoadKind {
    /// Traffic.
    Flows(Vec<Flow>),
    /// Only the processor, this many hundredths of the time.
    Burn {
        /// 1 to 100.
        percent: u8,
    },
    /// Membership in a broadcast, whose engine runs next to this one.
    Cast(BroadcastLoad),
    /// A part in writing a checkpoint to a staging server, whose engines run next to this one.
    Staging(StagingLoad),
}

/// Clients that write to a staging server as mounts do, as fast as its lanes carry it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct StagingLoad {
    /// The server; all others with this load are its clients.
    pub server: Rank,
    /// More than the highest number of a rank of this load, a power of two.
    pub ranks: u32,
    /// What a client's link carries, and the server's.
    pub rate: BitsPerSec,
    /// What sets the pace.
    pub pace: StagingPace,
}

/// What sets the pace of the clients of a [`StagingLoad`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum StagingPace {
    /// Their lanes alone.
    Lanes,
    /// The server, by probes of this class: it slows clients down when they delay these.
    Server {
        /// The class.
        probes: Class,
    },
}

/// A broadcast that loads: one object after the other, as long as the load lasts.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct BroadcastLoad {
    /// The ranks that take part, in the order in which objects are handed on; the first one casts.
    pub members: Vec<Rank>,
    /// How objects reach all.
    pub way: BroadcastLoadAlgorithm,
    /// Bytes of an object.
    pub object: Bytes,
    /// The most that leaves one member, all headers included.
    pub rate: BitsPerSec,
    /// Tells this broadcast from others of the run that have other members.
    pub group: u16,
    /// The class of what its members say to each other.
    pub control: Class,
}

/// How the objects of a [`BroadcastLoad`] reach all.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum BroadcastLoadAlgorithm {
    /// The network copies.
    Multicast,
    /// Each hands on to the next.
    Chain,
    /// Each hands on to some others.
    Tree,
}

/// A rank's part as a congestor.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct LoadTask {
    /// What it does.
    pub kind: LoadKind,
    /// The class of its messages.
    pub class: Class,
    /// Begins this long after the phase.
    pub from: Nanos,
    /// Ends this long after the phase's beginning.
    pub until: Nanos,
}

/// One rank's orders for one phase.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Phase {
    /// Distinguishes packets of this phase from late ones of an earlier one.
    pub number: u32,
    /// When it begins, on this rank's clock.
    pub begin: LocalNs,
    /// How long victims run.
    pub length: Nanos,
    /// How long to listen for late arrivals after that.
    pub drain: Nanos,
    /// The grid of time in which samples and bytes are recorded.
    pub slice: Nanos,
    /// Bytes that the network adds to each message's header and body: counted into rates.
    pub overhead: Bytes,
    /// This rank's part as a victim, if any.
    pub victim: Option<VictimTask>,
    /// This rank's parts as a congestor, if any.
    pub loads: Vec<LoadTask>,
}
