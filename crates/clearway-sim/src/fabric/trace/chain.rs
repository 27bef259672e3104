//! The cause of full buffers: from a lane without room ahead, port by port, to the one that is the
//! reason.
//!
//! # Model
//! The buffer behind a channel's lane is full of packets that wait at ports of the receiving
//! switch. The port for which most of those bytes wait is the next link. If it lacks room itself,
//! the search goes on behind it; otherwise it is the root.
//!
//! # Invariants
//! I1. Looking changes nothing.

use std::collections::BTreeSet;

use crate::fabric::Fabric;
use crate::fabric::pool::NONE;
use crate::graph::{ChannelId, DeviceId};

/// One port of a chain.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ChainLink {
    /// The port: the channel that it sends on.
    pub channel: ChannelId,
    /// The lane of it: virtual lanes in order, the steps of each side by side.
    pub lane: u32,
    /// Bytes of the full buffer before it that wait for this port: the most that was seen.
    pub bytes: u64,
}

/// Why the last port of a chain is the last.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RootCause {
    /// It sends as fast as it can: more is offered than it carries.
    Busy,
    /// Its host takes packets in more slowly than the link brings them.
    SlowHost,
    /// Nothing waits behind it: the buffer is small for the length of the cable, and credits are
    /// under way.
    Travelling,
    /// The receiver behind it asked for silence.
    Paused,
    /// A fault.
    Down,
    /// The ports wait for each other.
    Circle,
}

/// The ports that kept a lane without room.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CongestionChain {
    /// From the port behind the full buffer to the root.
    pub links: Vec<ChainLink>,
    /// What the last of them waits for.
    pub root: RootCause,
    /// Bytes that waited at the last port: the most that was seen.
    pub queued: u64,
    /// Hosts whose packets they were.
    pub senders: u32,
}

impl CongestionChain {
    /// Returns whether `other` has the same ports and the same end.
    pub(super) fn is_like(&self, other: &Self) -> bool {
        let ports = |chain: &Self| {
            chain.links.iter().map(|link| (link.channel, link.lane)).collect::<Vec<_>>()
        };
        self.root == other.root && ports(self) == ports(other)
    }

    /// Takes the larger figures of `other`, which is like it.
    pub(super) fn grow(&mut self, other: &Self) {
        for (link, seen) in self.links.iter_mut().zip(&other.links) {
            link.bytes = link.bytes.max(seen.bytes);
        }
        self.queued = self.queued.max(other.queued);
        self.senders = self.senders.max(other.senders);
    }
}

impl Fabric {
    /// Returns whether the next packet of `lane` has no room ahead.
    pub(super) fn lacks_room(&self, lane: u32) -> bool {
        let it = &self.lanes[lane as usize];
        it.credited
            && it.ring != NONE
            && self.room(lane) < u64::from(self.queues[self.turn_of(lane)].bytes)
    }

    /// Returns bytes free ahead of `lane`, those credits included that are due and not yet applied.
    fn room(&self, lane: u32) -> u64 {
        let mut room = u64::from(self.lanes[lane as usize].free);
        let mut record = self.lanes[lane as usize].credit_first;
        while record != NONE && self.credits[record].at <= self.now {
            let it = &self.credits[record];
            let due = if it.left <= 1 {
                u64::from(it.left)
            } else {
                ((self.now - it.at) / it.gap + 1).min(u64::from(it.left))
            };
            room += due * u64::from(it.bytes);
            record = it.next;
        }
        room
    }

    /// Returns the chain of ports behind `lane`, which lacks room.
    pub(super) fn chain(&self, lane: u32) -> CongestionChain {
        let (mut links, mut at) = (Vec::<ChainLink>::new(), lane);
        let root = loop {
            if let Some(root) = self.end_at(at, links.is_empty()) {
                break root;
            }
            let Some((next, bytes)) = self.holder(at) else { break RootCause::Travelling };
            let (channel, lane) =
                (ChannelId(next / self.lanes_per_port), next % self.lanes_per_port);
            if links.iter().any(|link| (link.channel, link.lane) == (channel, lane)) {
                break RootCause::Circle;
            }
            links.push(ChainLink { channel, lane, bytes });
            at = next;
        };
        let waiting = if links.is_empty() { Vec::new() } else { self.waiting_at(at) };
        let senders: BTreeSet<u32> =
            waiting.iter().map(|packet| self.packets[*packet].source).collect();
        let queued = waiting.iter().map(|packet| u64::from(self.packets[*packet].bytes)).sum();
        CongestionChain { links, root, queued, senders: senders.len() as u32 }
    }

    /// Returns why the search ends at `lane`, if it does. The lane where it begins is known to lack
    /// room.
    fn end_at(&self, lane: u32, first: bool) -> Option<RootCause> {
        let (it, port) =
            (&self.lanes[lane as usize], &self.ports[(lane / self.lanes_per_port) as usize]);
        if !port.up || it.stuck {
            return Some(RootCause::Down);
        }
        if it.paused {
            return Some(RootCause::Paused);
        }
        if port.to_host {
            let slow = it.ring != NONE
                && self.slow(lane / self.lanes_per_port, self.queues[self.turn_of(lane)].bytes);
            let idle = port.busy_until <= self.now && self.lacks_room(lane);
            return Some(if slow || idle { RootCause::SlowHost } else { RootCause::Busy });
        }
        (!first && !self.lacks_room(lane)).then_some(RootCause::Busy)
    }

    /// Returns the lane at which most bytes of the buffer behind `lane` wait, and how many; the
    /// first of several equal ones.
    fn holder(&self, lane: u32) -> Option<(u32, u64)> {
        let (channel, in_lane) = (lane / self.lanes_per_port, (lane % self.lanes_per_port) as u8);
        let mut most = None;
        for out in self.network.graph.ports(DeviceId(self.ports[channel as usize].to)) {
            let port = &self.ports[out as usize];
            for lane in (0..self.lanes_per_port).filter(|lane| port.occupied & 1 << lane != 0) {
                let lane = port.first_lane + lane;
                let packets = self.waiting_at(lane).into_iter().map(|packet| self.packets[packet]);
                let here = packets
                    .filter(|packet| packet.in_channel == channel && packet.in_lane == in_lane);
                let bytes: u64 = here.map(|packet| u64::from(packet.bytes)).sum();
                if bytes > most.map_or(0, |(_, bytes)| bytes) {
                    most = Some((lane, bytes));
                }
            }
        }
        most
    }

    /// Returns the packets that wait at `lane` of a switch's port; none at an empty one.
    fn waiting_at(&self, lane: u32) -> Vec<u32> {
        if self.lanes[lane as usize].ring == NONE { Vec::new() } else { self.queued_at(lane) }
    }
}
