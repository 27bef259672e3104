//! Looks at a fabric from outside the rules that move it: whether all credits are accounted for,
//! and everything can still move.
//!
//! # Model
//! The books of a lane: what its sender may still send, what comes back to the sender, and what
//! lies at or is on its way to the receiver are together the receiver's buffer, at any instant. A
//! lane stands still for good when it waits for credit, no credit is under way to it, and
//! everything that holds its buffer waits at lanes that stand still for good.
//!
//! # Source
//! The search for what is left when everything that can move has been struck out is the usual one
//! for deadlocks of reusable resources (Holt 1972).
//!
//! # Invariants
//! I1. Looking changes nothing.

use std::collections::BTreeSet;

use super::pool::NONE;
use super::{EventSet, Fabric, Trains};
use crate::graph::ChannelId;

/// A lane whose credits do not add up.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Leak {
    /// The channel.
    pub channel: ChannelId,
    /// The lane of it: virtual lanes in order, the steps of each side by side.
    pub lane: u32,
    /// The receiver's buffer in bytes.
    pub size: u64,
    /// What can be accounted for.
    pub found: u64,
}

/// A lane with something to send that never will be.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Stall {
    /// The channel.
    pub channel: ChannelId,
    /// The lane of it: virtual lanes in order, the steps of each side by side.
    pub lane: u32,
    /// Packets of others that hold the buffer ahead; none when credits were lost.
    pub holders: u32,
}

/// The holders of the buffer behind each lane.
struct Holdings {
    bytes: Vec<u64>,
    /// Packets that are still on their way into a queue, by lane.
    moving: Vec<u32>,
    /// Lanes at which packets with a place in this lane's buffer wait.
    waiting_at: Vec<Vec<u32>>,
}

impl Fabric {
    /// Lanes whose credits do not add up now. O(packets + lanes).
    ///
    /// # Panics
    /// When [`super::FabricOptions`] ask for eager events or trains, whose books are kept
    /// elsewhere: a mistake of the caller.
    pub fn audit(&self) -> Vec<Leak> {
        let plain = self.options.events == EventSet::Lazy && self.options.trains == Trains::Off;
        assert!(plain, "audits need lazy events and no trains");
        let held = self.holdings();
        let lanes = (0..self.lanes.len() as u32).filter(|lane| self.lanes[*lane as usize].credited);
        let books = lanes.map(|lane| {
            let channel = ChannelId(lane / self.lanes_per_port);
            let size = self.buffers[usize::from(self.network.graph.channel(channel).link)];
            let size = size.min(u64::from(u32::MAX));
            let found = u64::from(self.lanes[lane as usize].free)
                + self.returning(lane)
                + held.bytes[lane as usize];
            Leak { channel, lane: lane % self.lanes_per_port, size, found }
        });
        books.filter(|book| book.size != book.found).collect()
    }

    /// Lanes that stand still for good, if nothing from outside changes that. O(packets + lanes)
    /// each round, and as many rounds as the longest chain of lanes that wait for each other.
    pub fn standstill(&self) -> Vec<Stall> {
        let held = self.holdings();
        let mut stuck: BTreeSet<u32> =
            (0..self.lanes.len() as u32).filter(|lane| self.waits_for_room(*lane)).collect();
        loop {
            let free: Vec<u32> = stuck
                .iter()
                .filter(|lane| {
                    let at = **lane as usize;
                    let nobody = held.waiting_at[at].is_empty() && self.lanes[at].paused;
                    held.moving[at] > 0
                        || nobody
                        || held.waiting_at[at].iter().any(|other| !stuck.contains(other))
                })
                .copied()
                .collect();
            if free.is_empty() {
                break;
            }
            free.iter().for_each(|lane| {
                stuck.remove(lane);
            });
        }
        let stall = |lane: u32| Stall {
            channel: ChannelId(lane / self.lanes_per_port),
            lane: lane % self.lanes_per_port,
            holders: held.waiting_at[lane as usize].len() as u32,
        };
        stuck.into_iter().map(stall).collect()
    }

    /// Returns the lanes of `channel` at which something waits, a bit each: virtual lanes in order,
    /// the steps of each side by side.
    pub fn waiting(&self, channel: ChannelId) -> u32 {
        self.ports[channel.index()].occupied
    }

    /// Returns whether `lane` has something to send, no room ahead, and no credit on its way.
    fn waits_for_room(&self, lane: u32) -> bool {
        let it = &self.lanes[lane as usize];
        let port = &self.ports[(lane / self.lanes_per_port) as usize];
        if it.ring == NONE || it.stuck || !port.up || port.held {
            return false;
        }
        let needed = self.queues[self.turn_of(lane)].bytes;
        it.paused || it.credited && it.free < needed && it.credit_first == NONE
    }

    /// Returns the bytes of credit on their way to `lane`.
    fn returning(&self, lane: u32) -> u64 {
        let mut record = self.lanes[lane as usize].credit_first;
        let mut bytes = 0;
        while record != NONE {
            let it = &self.credits[record];
            bytes += u64::from(it.bytes) * u64::from(it.left);
            record = it.next;
        }
        bytes
    }

    fn holdings(&self) -> Holdings {
        let lanes = self.lanes.len();
        let mut held = Holdings {
            bytes: vec![0; lanes],
            moving: vec![0; lanes],
            waiting_at: vec![Vec::new(); lanes],
        };
        let mut shares = BTreeSet::new();
        for packet in self.packets.alive() {
            let it = &self.packets[packet];
            if it.in_channel == NONE {
                continue;
            }
            let lane =
                (self.ports[it.in_channel as usize].first_lane + u32::from(it.in_lane)) as usize;
            if it.share == NONE || shares.insert(it.share) {
                held.bytes[lane] += u64::from(it.bytes) * u64::from(it.count);
            }
            held.moving[lane] += 1;
        }
        for port in self.ports.iter().filter(|port| !port.from_host) {
            for lane in (0..self.lanes_per_port).filter(|lane| port.occupied & 1 << lane != 0) {
                let lane = port.first_lane + lane;
                for packet in self.queued_at(lane) {
                    let it = &self.packets[packet];
                    let input = (self.ports[it.in_channel as usize].first_lane
                        + u32::from(it.in_lane)) as usize;
                    held.moving[input] -= 1;
                    held.waiting_at[input].push(lane);
                }
            }
        }
        held
    }

    /// Returns the packets that wait at `lane` of a switch's port.
    pub(super) fn queued_at(&self, lane: u32) -> Vec<u32> {
        let last = self.lanes[lane as usize].ring;
        let mut packets = Vec::new();
        let mut queue = last;
        loop {
            let mut packet = self.queues[queue].head;
            while packet != NONE {
                packets.push(packet);
                packet = self.packets[packet].next;
            }
            queue = self.queues[queue].next;
            if queue == last {
                return packets;
            }
        }
    }
}
