//! The policy of a fabric, next to what it is made of: classes to lanes, which lane sends first,
//! what happens when there is no room.
//!
//! # Not here
//! What these rules do: [`crate::arbiter`], `control` and [`crate::fabric`].

use clearway_proto::base::{BitsPerSec, Bytes, Class};

use super::VIRTUAL_LANES_MAX;
use crate::time::Picos;

/// How classes travel.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ClassMap {
    /// Virtual lanes in use, management's (15) not counted.
    pub virtual_lanes: u8,
    /// The service level of each class, by [`Class::index`].
    pub service_level: [u8; Class::ALL.len()],
    /// The virtual lane of each service level.
    pub lane_of_level: [u8; 16],
    /// Exceptions to `lane_of_level`, by the names of the devices at both ends of a channel.
    pub lane_exceptions: Vec<LaneException>,
    /// What happens on each virtual lane when there is no room ahead.
    pub loss: [LossDomain; VIRTUAL_LANES_MAX],
}

/// Another lane table on some channels.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LaneException {
    /// The sender's name.
    pub from: String,
    /// The receiver's name.
    pub to: String,
    /// The virtual lane of each service level there.
    pub lane_of_level: [u8; 16],
}

/// What happens when there is no room ahead.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LossDomain {
    /// A sender needs credit for the buffer of the next device: nothing is lost.
    Credits,
    /// A receiver tells its sender to pause (IEEE 802.1Qbb): nothing is lost while headroom
    /// suffices.
    Pauses,
    /// A full queue drops.
    Drops {
        /// What the queue of one lane of one output holds.
        queue: Bytes,
    },
}

/// The rule that says which lane may send next on a channel.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Arbitration {
    /// On channels of hosts.
    pub host: Arbiter,
    /// On channels of switches.
    pub switch: Arbiter,
    /// Virtual lanes, one bit each, whose packets overtake the packet in service (IEEE 802.3br).
    pub express: u16,
}

/// A rule between virtual lanes. Within a virtual lane its steps take turns.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Arbiter {
    /// In turn.
    RoundRobin,
    /// The lane of the most urgent class first; by lane: lower ranks first.
    Strict {
        /// The rank of each virtual lane.
        rank: [u8; VIRTUAL_LANES_MAX],
    },
    /// Deficit weighted round robin (Shreedhar, Varghese 1995), optionally behind lanes that go
    /// first.
    Weighted {
        /// Bytes added to each lane's deficit in its turn; zero for lanes that go first.
        quantum: [u32; VIRTUAL_LANES_MAX],
        /// Lanes served before all others, by rank; `None` for weighted ones.
        first: [Option<u8>; VIRTUAL_LANES_MAX],
    },
    /// InfiniBand's two tables, as [`crate::arbiter`] reads them.
    Tables(VlArbitration),
}

/// InfiniBand's arbitration: a table of high and one of low priority.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct VlArbitration {
    /// (virtual lane, weight in 64 bytes) in order; a weight of zero is skipped.
    pub high: Vec<(u8, u8)>,
    /// The same for low priority.
    pub low: Vec<(u8, u8)>,
    /// What the high table may send while low packets wait: in 4096 bytes; 0 is one packet, 255 no
    /// limit.
    pub high_limit: u8,
}

/// What is done against congestion.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CongestionControl {
    /// Nothing.
    None,
    /// The last switch before a host tells each source of an incast to slow down; acts on packets
    /// still in the source.
    Edge(EdgeControl),
    /// ECN marks and per-flow rates (Zhu et al., "Congestion Control for Large-Scale RDMA
    /// Deployments", SIGCOMM 2015).
    Dcqcn(Dcqcn),
}

/// Parameters of control at the edge.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct EdgeControl {
    /// Bytes that wait for one host's port before its sources are slowed down.
    pub threshold: Bytes,
    /// Distinct sources at least, below which an egress queue is nobody's fault.
    pub sources: u32,
    /// Time a notice takes to its source.
    pub notice_delay: Picos,
}

/// Parameters of DCQCN; the marking curve and the rate machine.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Dcqcn {
    /// Below this queue nothing is marked.
    pub mark_min: Bytes,
    /// Above this queue everything is.
    pub mark_max: Bytes,
    /// Marked at `mark_max`, in millionths.
    pub mark_probability: u32,
    /// Least time between two notices of one flow.
    pub notice_interval: Picos,
    /// Period of the rate increase timer.
    pub increase_period: Picos,
    /// Additive increase.
    pub increase: BitsPerSec,
    /// Gain of the congestion estimate, as a right shift (g = 2^-shift).
    pub gain_shift: u8,
}
