//! Which lane of a port sends next, and the rings in which its queues take turns.
//!
//! # Invariants
//! I1. An arbitration that finds nobody to send changes nothing but wake-ups.

use super::parts::{Lane, SourceQueue};
use super::pool::{Arena, NONE};
use super::{EventSet, Fabric};
use crate::arbiter::Choice;
use crate::spec::VIRTUAL_LANES_MAX;

impl Lane {
    /// Returns the queue whose turn it is, where there is one.
    pub(super) fn turn(&self, queues: &Arena<SourceQueue>) -> u32 {
        queues[self.ring].next
    }
}

/// What the arbiter is asked: who can send, and how long their packets are.
#[derive(Default)]
struct Candidates {
    /// Virtual lanes that could send now.
    eligible: u32,
    /// Bytes of the packet that each eligible virtual lane would send.
    bytes: [u32; VIRTUAL_LANES_MAX],
    /// The step of each eligible virtual lane that would send.
    step: [u8; VIRTUAL_LANES_MAX],
}

impl Fabric {
    /// Sends what can be sent on `port` now, or sees to it that the port is looked at when it can.
    pub(super) fn arbitrate(&mut self, port: u32) {
        let it = &self.ports[port as usize];
        if it.occupied == 0 || !it.up || it.held {
            return;
        }
        let whole = it.whole;
        if whole != NONE && (!self.alone(port) || self.packets[whole].count < 2) {
            self.peel(whole);
        }
        let it = &self.ports[port as usize];
        let (all, from_host) = (it.occupied, it.from_host);
        let mut free_at = it.busy_until;
        if from_host {
            free_at = free_at.max(
                self.hosts[self.network.graph.channels()[port as usize].from.index()].fetch_free,
            );
        }
        if free_at > self.now {
            if !self.follow(port, free_at) {
                self.wake(port, free_at);
            }
            if self.constants.express != 0 {
                self.overtake(port);
            }
            return;
        }
        self.end_train(port);
        match self.choose(port, all) {
            Some((choice, lane)) => {
                self.account_wait(port);
                if from_host {
                    self.inject(port, lane, choice);
                } else {
                    self.forward(port, lane, choice, self.now);
                }
                let it = &self.ports[port as usize];
                if it.occupied != 0 || self.options.events == EventSet::Eager {
                    let at = it.busy_until;
                    self.wake(port, at);
                }
            }
            None => {
                let whole = self.ports[port as usize].whole;
                if whole != NONE {
                    self.peel(whole);
                }
                self.wake_for_credit(port);
            }
        }
    }

    /// Starts a packet that may overtake the one in service; the one in service takes that much
    /// longer.
    fn overtake(&mut self, port: u32) {
        let it = &self.ports[port as usize];
        let (busy_until, on_wire) = (it.busy_until, it.on_wire);
        let among = it.occupied & self.constants.express;
        if among == 0 || busy_until <= self.now {
            return;
        }
        if it.express_until > self.now {
            let at = it.express_until;
            self.wake(port, at);
            return;
        }
        let Some((choice, lane)) = self.choose(port, among) else { return };
        if self.ports[port as usize].from_host {
            self.inject(port, lane, choice);
        } else {
            self.forward(port, lane, choice, self.now);
        }
        let it = &mut self.ports[port as usize];
        if it.buckets.is_none() {
            it.busy_until = busy_until + (it.busy_until - self.now);
        }
        it.on_wire = on_wire;
        let through = it.express_until;
        self.wake(port, through);
    }

    /// Returns whether one packet (or train) or message is all that waits at `port`.
    pub(super) fn alone(&self, port: u32) -> bool {
        let it = &self.ports[port as usize];
        if it.occupied.count_ones() != 1 {
            return false;
        }
        let queue = self.turn_of(it.first_lane + it.occupied.trailing_zeros());
        self.queues[queue].next == queue && self.queues[queue].head == self.queues[queue].tail
    }

    /// Notifies the arbiter that the packet of `choice`, of the step that `lane` is, has its turn.
    pub(super) fn grant(&mut self, port: u32, lane: u32, choice: Choice) {
        self.ports[port as usize].arbiter.grant(choice);
        if self.steps > 1 {
            let first = self.ports[port as usize].first_lane + u32::from(choice.lane * self.steps);
            self.lanes[first as usize].turn = (lane - first) as u8;
        }
    }

    /// Returns which of the lanes in `among` (a bit each, all with packets) sends next: what the
    /// arbiter picked, and the lane by its global number.
    #[inline(always)]
    pub(super) fn choose(&mut self, port: u32, among: u32) -> Option<(Choice, u32)> {
        if !among.is_power_of_two() {
            return self.choose_among(port, among);
        }
        // Most of the time there is one lane, which needs no comparing.
        let bit = among.trailing_zeros();
        let lane = self.ports[port as usize].first_lane + bit;
        let bytes = self.sendable(lane)?;
        let virtual_lane = if self.steps == 1 { bit as u8 } else { bit as u8 / self.steps };
        let choice = self.ports[port as usize].arbiter.pick_only(virtual_lane, bytes)?;
        Some((choice, lane))
    }

    /// Returns the same for any number of lanes.
    fn choose_among(&mut self, port: u32, among: u32) -> Option<(Choice, u32)> {
        let mut all = Candidates::default();
        let first = self.ports[port as usize].first_lane;
        let mut left = among;
        while left != 0 {
            let bit = left.trailing_zeros();
            left &= left - 1;
            let virtual_lane = bit as u8 / self.steps;
            let step = bit as u8 - virtual_lane * self.steps;
            let Some(bytes) = self.sendable(first + bit) else { continue };
            let v = usize::from(virtual_lane);
            let turn = self.lanes[(first + u32::from(virtual_lane * self.steps)) as usize].turn;
            // Steps of one virtual lane take turns: the first one behind the last that sent.
            let behind = |step: u8| (step + self.steps - turn - 1) % self.steps;
            if all.eligible & (1 << virtual_lane) == 0 || behind(step) < behind(all.step[v]) {
                all.eligible |= 1 << virtual_lane;
                all.bytes[v] = bytes;
                all.step[v] = step;
            }
        }
        let choice = self.ports[port as usize].arbiter.pick(all.eligible, &all.bytes)?;
        let step = all.step[usize::from(choice.lane)];
        Some((choice, first + u32::from(choice.lane * self.steps + step)))
    }

    /// Returns the bytes of the packet whose turn it is on `lane`, if there is room for it ahead.
    #[inline(always)]
    fn sendable(&mut self, lane: u32) -> Option<u32> {
        let it = &mut self.lanes[lane as usize];
        let bytes = self.queues[it.turn(&self.queues)].bytes;
        if it.paused || it.stuck {
            return None;
        }
        if !it.credited || it.free >= bytes {
            return Some(bytes);
        }
        it.absorb(&mut self.credits, self.now);
        (it.free >= bytes).then_some(bytes)
    }

    /// Looks again when the next credit of a waiting lane is due: nothing can be sent.
    fn wake_for_credit(&mut self, port: u32) {
        let it = &self.ports[port as usize];
        let (first, mut left) = (it.first_lane, it.occupied);
        let mut at = u64::MAX;
        while left != 0 {
            let bit = left.trailing_zeros();
            left &= left - 1;
            if self.lanes[(first + bit) as usize].stuck {
                continue;
            }
            if let Some(due) = self.next_credit(first + bit) {
                at = at.min(due);
            }
        }
        if at != u64::MAX {
            self.wake(port, at);
        }
    }

    /// Returns the queue of `lane` whose turn it is.
    pub(super) fn turn_of(&self, lane: u32) -> u32 {
        self.lanes[lane as usize].turn(&self.queues)
    }

    /// Puts a new last queue into the ring of `lane`.
    pub(super) fn enter(&mut self, port: u32, lane: u32, queue: u32) {
        let first = self.lanes[lane as usize].ring == NONE;
        if first { self.begin_ring(port, lane, queue) } else { self.extend_ring(lane, queue) }
    }

    /// Does the same where the ring is empty.
    #[inline]
    pub(super) fn begin_ring(&mut self, port: u32, lane: u32, queue: u32) {
        let it = &mut self.queues[queue];
        (it.lane, it.next) = (lane, queue);
        self.lanes[lane as usize].ring = queue;
        let at = &mut self.ports[port as usize];
        if at.occupied == 0 {
            at.waiting_since = self.now;
        }
        at.occupied |= 1 << (lane - at.first_lane);
    }

    /// Does the same where there are others.
    pub(super) fn extend_ring(&mut self, lane: u32, queue: u32) {
        let last = std::mem::replace(&mut self.lanes[lane as usize].ring, queue);
        let first = std::mem::replace(&mut self.queues[last].next, queue);
        let it = &mut self.queues[queue];
        (it.lane, it.next) = (lane, first);
    }

    /// Takes the queue whose turn it is out of the ring of `lane`.
    #[inline(always)]
    pub(super) fn leave(&mut self, port: u32, lane: u32) {
        let on = &mut self.lanes[lane as usize];
        let queue = on.turn(&self.queues);
        let it = &mut self.queues[queue];
        it.lane = NONE;
        if on.ring == queue {
            on.ring = NONE;
            let at = &mut self.ports[port as usize];
            at.occupied &= !(1 << (lane - at.first_lane));
        } else {
            let second = it.next;
            self.queues[on.ring].next = second;
        }
    }

    /// Enters as [`Fabric::enter`] does, with the next turn.
    pub(super) fn enter_first(&mut self, port: u32, lane: u32, queue: u32) {
        let last = self.lanes[lane as usize].ring;
        self.enter(port, lane, queue);
        if last != NONE {
            self.lanes[lane as usize].ring = last;
        }
    }

    /// Takes `queue` out of the ring of `lane`, whosever turn it is. O(queues in the ring).
    pub(super) fn withdraw(&mut self, port: u32, lane: u32, queue: u32) {
        let last = self.lanes[lane as usize].ring;
        let mut before = last;
        while self.queues[before].next != queue {
            before = self.queues[before].next;
        }
        // The ring turned so that this queue is next is the same ring.
        self.lanes[lane as usize].ring = before;
        self.leave(port, lane);
        if last != queue {
            self.lanes[lane as usize].ring = last;
        }
    }

    /// Puts the queue whose turn it was behind the others.
    pub(super) fn rotate(&mut self, lane: u32) {
        let on = &mut self.lanes[lane as usize];
        on.ring = on.turn(&self.queues);
    }

    /// Returns the queue of `source` in the ring of `lane`; `recent` is a guess.
    #[inline]
    pub(super) fn queue_of(&self, lane: u32, source: u32, recent: u32) -> Option<u32> {
        let last = self.lanes[lane as usize].ring;
        if last == NONE {
            return None;
        }
        let fits =
            |queue: u32| self.queues[queue].lane == lane && self.queues[queue].source == source;
        if recent != NONE && fits(recent) {
            return Some(recent);
        }
        let mut queue = last;
        loop {
            if self.queues[queue].source == source {
                return Some(queue);
            }
            queue = self.queues[queue].next;
            if queue == last {
                return None;
            }
        }
    }

    /// Returns a queue that is in no ring.
    pub(super) fn new_queue(&mut self, source: u32, head: u32, bytes: u32) -> u32 {
        self.queues.put(SourceQueue { lane: NONE, source, head, tail: head, next: NONE, bytes })
    }
}
