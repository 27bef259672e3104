//! What can go wrong in a fabric, as plain values: where, when and how much.

use serde::{Deserialize, Serialize};

use crate::graph::{ChannelId, DeviceId};
use crate::time::Picos;

/// Something that goes wrong in a fabric from `at` until `until`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FabricFault {
    /// When it begins.
    pub at: Picos,
    /// When all is well again.
    pub until: Picos,
    /// What.
    pub what: FabricFaultKind,
    /// The caller's number for it; strikes are counted by it.
    pub plan: u32,
}

/// What goes wrong.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum FabricFaultKind {
    /// Some packets on a channel.
    Packets {
        /// Where.
        channel: ChannelId,
        /// What befalls them.
        harm: PacketFault,
        /// Which of them.
        odds: FaultOdds,
        /// Only those of this service level.
        level: Option<u8>,
        /// Only those of this sort.
        sort: PacketSort,
    },
    /// A channel carries nothing.
    Down {
        /// Which.
        channel: ChannelId,
        /// What becomes of what should travel.
        packets: DownPolicy,
        /// Routing knows so much later, of the end as of the beginning.
        notice_after: Picos,
    },
    /// A channel is slower than it should be.
    Degraded {
        /// Which.
        channel: ChannelId,
        /// Rate in percent of what it should be; at least 1.
        percent: u32,
        /// Added to its delay.
        latency: Picos,
    },
    /// A sender believes that the receiver has less room than it has.
    LostCredit {
        /// Whose receiver.
        channel: ChannelId,
        /// The virtual lane (its first step).
        lane: u8,
        /// How much.
        bytes: u32,
    },
    /// One virtual lane of a channel sends nothing.
    StuckLane {
        /// Of which.
        channel: ChannelId,
        /// The virtual lane.
        lane: u8,
    },
    /// A service level takes another virtual lane.
    WrongLane {
        /// On which channel.
        channel: ChannelId,
        /// The service level.
        level: u8,
        /// The virtual lane.
        lane: u8,
    },
    /// One virtual lane goes before all others, whatever the rule was.
    WrongArbitration {
        /// On which channel.
        channel: ChannelId,
        /// The virtual lane.
        first: u8,
    },
    /// A switch loses what it holds and what reaches it.
    Dead {
        /// Which.
        device: DeviceId,
        /// Its neighbours' routing knows so much later, of the end as of the beginning.
        notice_after: Picos,
    },
    /// A host takes in what comes more slowly than its link.
    SlowHost {
        /// Which.
        device: DeviceId,
        /// In percent of the rate of the link.
        percent: u32,
    },
}

/// What befalls a packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PacketFault {
    /// It does not arrive, or arrives so damaged that the receiver drops it.
    Lost,
    /// It arrives damaged and no check notices.
    Damaged,
    /// It arrives twice, if it is a whole message to one host; a second copy of any other packet
    /// would be recognised, and is not made.
    Doubled,
    /// It is late by up to so much, so that others overtake it.
    Late(Picos),
}

/// Which packets are struck.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum FaultOdds {
    /// Each with this probability in millionths.
    Each(u32),
    /// Bursts (Gilbert 1960, Elliott 1963): probabilities in millionths.
    Bursts {
        /// Of a packet to begin a burst.
        begin: u32,
        /// Of a packet to end it.
        end: u32,
        /// Of a packet in a burst to be struck.
        inside: u32,
    },
    /// The one with this number, from 1, and no other.
    Nth(u64),
}

/// Sorts of packets.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum PacketSort {
    /// All.
    #[default]
    Any,
    /// To one host.
    Unicast,
    /// To many: the copy of one branch.
    Multicast,
}

/// What becomes of what should travel on a channel that is down.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum DownPolicy {
    /// It is lost.
    Lost,
    /// It waits.
    Kept,
}
