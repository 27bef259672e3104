//! Where a packet goes next: from the shape of the network, the packet's own hash, and the queues this switch can see.
//!
//! # Model
//! Routing keeps no state of its own and draws nothing: a choice is a function of the packet's hash, its place on the way and
//! the backlog of the local channels. Each hop also names the *step*: the number of the buffer class that keeps cyclic waiting
//! impossible. Steps never decrease along a way.

use crate::graph::{ChannelId, DeviceId};

/// What a switch can see of its own channels.
pub trait Backlog {
    /// Bytes that wait for `channel` or are being sent on it.
    fn bytes(&self, channel: ChannelId) -> u64;
    /// Whether `channel` can be used at all.
    fn up(&self, channel: ChannelId) -> bool;
}

/// The part of a packet that routing reads and writes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Transit {
    /// Where it came from.
    pub source: DeviceId,
    /// Where it goes: a host.
    pub target: DeviceId,
    /// The same for all packets of one flow (source, target, class).
    pub flow_hash: u32,
    /// Different for each packet.
    pub packet_hash: u32,
    /// Set by routing: the group or switch of a detour, or [`Transit::DIRECT`].
    pub via: u32,
    /// Switches passed so far.
    pub hops: u8,
    /// Set by routing: the step of the next channel.
    pub step: u8,
}

impl Transit {
    /// No detour, or one that lies behind.
    pub const DIRECT: u32 = u32::MAX;
}
