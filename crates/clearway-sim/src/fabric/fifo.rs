//! Inputs that keep one queue for each lane: what cannot leave blocks what came behind it.
//!
//! # Model
//! Of each lane of an input only the first packet queues for its output; the next one does when the
//! first has left. Copies of a multicast are not held up: they queue at once.
//!
//! # Source
//! Karol, Hluchyj, Morgan, "Input versus output queueing on a space-division packet switch" (1987).

use super::pool::NONE;
use super::{Fabric, FabricEventKind};

/// One lane of one input.
#[derive(Clone, Copy, Debug)]
pub(super) struct Fifo {
    /// Those behind the first one.
    head: u32,
    tail: u32,
    /// The first one queues for its output, or is leaving.
    taken: bool,
}

impl Fifo {
    pub(super) const EMPTY: Self = Self { head: NONE, tail: NONE, taken: false };
}

impl Fabric {
    /// Returns whether `packet` is the first of its input's lane; if not, it waits there.
    pub(super) fn is_first(&mut self, packet: u32) -> bool {
        if self.fifos.is_empty() {
            return true;
        }
        let it = self.packets[packet];
        if it.share != NONE {
            return true;
        }
        let lane = self.ports[it.in_channel as usize].first_lane + u32::from(it.in_lane);
        let fifo = &mut self.fifos[lane as usize];
        if !std::mem::replace(&mut fifo.taken, true) {
            return true;
        }
        self.packets[packet].next = NONE;
        match fifo.tail {
            NONE => fifo.head = packet,
            tail => self.packets[tail].next = packet,
        }
        fifo.tail = packet;
        false
    }

    /// Advances past the first packet of the input's `lane`, which has left, or will have at `at`.
    pub(super) fn advance_after(&mut self, lane: u32, at: u64) {
        if !self.fifos.is_empty() {
            self.schedule(at.max(self.now + 1), FabricEventKind::Advance, lane, 0);
        }
    }

    /// Queues the next packet of the input's `lane` for its output.
    pub(super) fn advance_fifo(&mut self, lane: u32) {
        let fifo = &mut self.fifos[lane as usize];
        let packet = fifo.head;
        if packet == NONE {
            fifo.taken = false;
            return;
        }
        fifo.head = self.packets[packet].next;
        if fifo.head == NONE {
            fifo.tail = NONE;
        }
        self.offer(packet);
    }
}
