//! One message to many hosts: copies leave at the switches of a tree.
//!
//! # Model
//! A packet of a multicast takes one place in an input's buffer, and gives it back when its last
//! copy has left. Where branches leave one by one each copy queues like any other packet. Where all
//! are held it takes its outputs one after the other, keeps each until it has them all, and all
//! copies start together. Outputs are taken in the order in which ways pass them: lower steps
//! first, upwards (to switches of higher numbers) before downwards. Outputs that a packet waits for
//! then never wait for what it keeps.
//!
//! # Invariants
//! I1. Every member gets each packet once, or the message counts as lost for that member.
//! I2. A multicast is never a train.

use clearway_proto::base::GroupId;

use super::parts::{CreditReturn, Packet};
use super::pool::NONE;
use super::{Fabric, FabricEventKind, Notice};
use crate::arbiter::Choice;
use crate::graph::DeviceId;
use crate::routing::{MulticastTree, tree};
use crate::time::Picos;

/// Whom a group order reaches.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Membership {
    /// Those who joined.
    Joined(GroupId),
    /// All hosts from the first to the last: the addresses of Quadrics' hardware broadcast.
    Range(u32, u32),
}

/// A tree, shared by all messages of one sender to one membership.
#[derive(Debug)]
pub(super) struct CastTree {
    pub(super) branches: MulticastTree,
    pub(super) members: Vec<u32>,
}

/// What became of one multicast at each member.
#[derive(Clone, Debug)]
pub(super) struct MulticastProgress {
    tree: u32,
    /// Packets there or lost, by place in the tree's members, and whether any was lost.
    resolved: Vec<(u32, bool)>,
    /// Members for which nothing is left to come.
    over: usize,
}

/// A place in an input's buffer that several copies share.
#[derive(Clone, Copy, Debug)]
pub(super) struct SharedBuffer {
    /// Copies that have not left.
    pub(super) left: u32,
    /// When the last of those that started will have left.
    pub(super) until: u64,
}

/// A packet that collects its outputs.
#[derive(Clone, Debug)]
pub(super) struct HeldPacket {
    /// Copies in the order of their outputs; those before `taken` have theirs.
    copies: Vec<u32>,
    /// The lane of each output that is held.
    lanes: Vec<u32>,
    taken: usize,
}

impl Fabric {
    /// Makes `host` a member of `group`: messages posted from now on reach it.
    pub fn join(&mut self, group: GroupId, host: DeviceId) {
        let members = self.groups.entry(group).or_default();
        if let Err(place) = members.binary_search(&host.0) {
            members.insert(place, host.0);
            self.tree_of.retain(|(_, membership), _| *membership != Membership::Joined(group));
        }
    }

    /// Returns the tree of a group message; empty groups have one without members.
    pub(super) fn cast_to(&mut self, from: u32, membership: Membership) -> u32 {
        if let Some(known) = self.tree_of.get(&(from, membership)) {
            return *known;
        }
        let mut members = match membership {
            Membership::Joined(group) => self.groups.get(&group).cloned().unwrap_or_default(),
            Membership::Range(first, last) => (first..=last).collect(),
        };
        members.retain(|member| *member != from);
        let hosts: Vec<DeviceId> = members.iter().map(|member| DeviceId(*member)).collect();
        let branches = tree(&self.network, DeviceId(from), &hosts);
        self.trees.push(CastTree { branches, members });
        let number = self.trees.len() as u32 - 1;
        self.tree_of.insert((from, membership), number);
        number
    }

    /// Remembers that `message` goes to the members of `tree`.
    pub(super) fn begin_cast(&mut self, message: u32, tree: u32) {
        let members = self.trees[tree as usize].members.len();
        self.casts.insert(
            message,
            MulticastProgress { tree, resolved: vec![(0, false); members], over: 0 },
        );
    }

    /// Returns whether `message` reaches nobody.
    pub(super) fn nobody(&self, tree: u32) -> bool {
        self.trees[tree as usize].members.is_empty()
    }

    /// Replicates a multicast packet that is where it can be routed: one copy for each branch.
    pub(super) fn replicate(&mut self, device: u32, packet: u32) {
        let it = self.packets[packet];
        let Some(cast) = self.casts.get(&it.message) else { return };
        let mut branches =
            self.trees[cast.tree as usize].branches.branches(DeviceId(device)).to_vec();
        self.packets.free(packet);
        if self.constants.hold_all {
            branches.sort_by_key(|branch| {
                let downwards = self.network.graph.channel(branch.channel).to.0 < device;
                (branch.step, downwards, branch.channel)
            });
        }
        let share = self.shares.put(SharedBuffer { left: branches.len() as u32, until: 0 });
        let copies: Vec<u32> = branches
            .iter()
            .map(|branch| {
                let (out, step, hops) = (branch.channel.0, branch.step, it.hops + 1);
                self.packets.put(Packet { out, step, hops, share, next: NONE, ..it })
            })
            .collect();
        if self.constants.hold_all && copies.len() > 1 {
            let first = copies[0];
            let hold = self.holds.put(HeldPacket { copies, lanes: Vec::new(), taken: 0 });
            self.packets[first].hold = hold;
            self.queue_copy(first);
        } else {
            for copy in copies {
                self.queue_copy(copy);
            }
        }
    }

    fn queue_copy(&mut self, copy: u32) {
        let Packet { in_channel, out, .. } = self.packets[copy];
        let wait = self.wait_for_tail(copy, out);
        if wait == 0 {
            self.enqueue(copy);
        } else {
            self.schedule(self.now + wait, FabricEventKind::Ready, in_channel, copy);
        }
    }

    /// Holds the output of a collecting packet's next copy, which is its own now. It is kept until
    /// all are.
    pub(super) fn hold(&mut self, port: u32, lane: u32, choice: Choice, copy: u32) {
        self.unqueue(port, lane);
        self.grant(port, lane, choice);
        let number = self.packets[copy].hold;
        self.ports[port as usize].held = true;
        let hold = &mut self.holds[number];
        hold.lanes.push(lane);
        hold.taken += 1;
        if let Some(next) = hold.copies.get(hold.taken).copied() {
            self.packets[next].hold = number;
            // A request takes time: an instant must not feed itself.
            self.schedule(
                self.now + 1,
                FabricEventKind::Ready,
                self.packets[next].in_channel,
                next,
            );
            return;
        }
        let HeldPacket { copies, lanes, .. } = hold.clone();
        self.holds.free(number);
        for (copy, lane) in copies.into_iter().zip(lanes) {
            let port = self.packets[copy].out;
            self.ports[port as usize].held = false;
            self.packets[copy].hold = NONE;
            self.release_share(port, copy);
            self.send(port, lane, copy, self.now);
            let at = self.ports[port as usize].busy_until;
            self.wake(port, at);
        }
    }

    /// Starts a copy on `port` now: when all of them have left, the place that they share is free.
    pub(super) fn release_share(&mut self, port: u32, copy: u32) {
        let it = self.packets[copy];
        let left = self.now + self.ports[port as usize].pace.time(it.bytes).0;
        self.leave_share(it, left);
    }

    /// Records that a copy with the buffer of `it` is gone at `at`.
    pub(super) fn leave_share(&mut self, it: Packet, at: u64) {
        let share = &mut self.shares[it.share];
        share.left -= 1;
        share.until = share.until.max(at);
        let SharedBuffer { left, until } = *share;
        if left == 0 {
            self.shares.free(it.share);
            let input = &self.ports[it.in_channel as usize];
            let lane = input.first_lane + u32::from(it.in_lane);
            let credit = CreditReturn {
                at: until + input.back,
                gap: 0,
                bytes: it.bytes,
                left: 1,
                next: NONE,
            };
            self.freed(it.in_channel, lane, credit);
        }
    }

    /// Records that one packet of a multicast is in the memory of `host`, or lost, at `at`.
    pub(super) fn resolve_member(&mut self, message: u32, host: u32, at: u64, lost: bool) {
        let (packets, tag) = (self.messages[message].packets, self.messages[message].tag);
        let Some(cast) = self.casts.get_mut(&message) else { return };
        let Ok(place) = self.trees[cast.tree as usize].members.binary_search(&host) else { return };
        let member = &mut cast.resolved[place];
        member.0 += 1;
        member.1 |= lost;
        if member.0 < packets {
            return;
        }
        if !member.1 {
            // The entity is the host: the same message ends at another host as another event.
            self.schedule(
                at + self.handing_over(message, host),
                FabricEventKind::Deliver,
                host,
                message,
            );
            return;
        }
        self.notices.push(Notice::Lost { tag, to: DeviceId(host), at: Picos(at) });
        self.member_over(message);
    }

    /// Records that nothing more comes for one member; returns whether that was the last.
    pub(super) fn member_over(&mut self, message: u32) {
        let Some(cast) = self.casts.get_mut(&message) else { return };
        cast.over += 1;
        if cast.over == cast.resolved.len() {
            self.casts.remove(&message);
            self.cast_over(message);
        }
    }

    /// Records that all members behind `channel` lose a packet of `message` that was dropped on the
    /// way there.
    pub(super) fn lose_branch(&mut self, message: u32, channel: u32, at: u64) {
        for member in self.members_behind(message, channel) {
            self.resolve_member(message, member, at, true);
        }
    }

    /// Returns the members of the multicast `message` that it reaches by way of `channel`.
    pub(super) fn members_behind(&self, message: u32, channel: u32) -> Vec<u32> {
        let Some(cast) = self.casts.get(&message) else { return Vec::new() };
        let tree = &self.trees[cast.tree as usize];
        let mut below = vec![self.ports[channel as usize].to];
        let mut members = Vec::new();
        while let Some(device) = below.pop() {
            if self.network.graph.is_host(DeviceId(device)) {
                members.push(device);
            }
            below.extend(
                tree.branches
                    .branches(DeviceId(device))
                    .iter()
                    .map(|it| self.network.graph.channel(it.channel).to.0),
            );
        }
        members
    }

    /// Gives up a collecting packet: its outputs are free again. Its copies, which are left to the
    /// caller.
    pub(super) fn break_hold(&mut self, number: u32) -> Vec<u32> {
        let HeldPacket { copies, taken, .. } = self.holds[number].clone();
        self.holds.free(number);
        for copy in &copies[..taken] {
            let port = self.packets[*copy].out;
            self.ports[port as usize].held = false;
            self.touch(port);
        }
        copies
    }
}
