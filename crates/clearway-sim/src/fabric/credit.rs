//! Credits on their way back: applied when somebody needs them, or as events when all events are wanted.
//!
//! # Invariants
//! I1. A lane's list is ordered by time. A credit issued later may be due earlier (outputs have different rates), so it is put
//!     where it belongs, and a port that starves is woken for it.

use super::parts::Credit;
use super::pool::NONE;
use super::{Events, Fabric, Kind};

impl Fabric {
    /// Returns `count` times `bytes` to `lane` of `port`, first at `at`, `gap` apart. Gives the record's number.
    pub(super) fn give_credit(&mut self, port: u32, lane: u32, first: Credit) -> u32 {
        if self.options.events == Events::Lazy {
            // What is due makes room for the new record: lists stay short and in the cache.
            self.absorb(lane);
        }
        let first =
            if self.faults.is_some() { Credit { bytes: self.after_theft(lane, first.bytes), ..first } } else { first };
        let record = self.credits.put(first);
        if self.options.events == Events::Eager {
            self.schedule(first.at, Kind::Credit, lane, record);
            return record;
        }
        self.insert(lane, record);
        let it = &self.ports[port as usize];
        if self.lanes[lane as usize].ring != NONE && first.at >= it.busy_until {
            self.wake(port, first.at);
        }
        record
    }

    /// Puts a record into its lane's list by time; almost always at the end.
    fn insert(&mut self, lane: u32, record: u32) {
        let at = self.credits[record].at;
        let it = &mut self.lanes[lane as usize];
        let (first, last) = (it.credit_first, it.credit_last);
        if first == NONE {
            self.credits[record].next = NONE;
            (it.credit_first, it.credit_last) = (record, record);
        } else if self.credits[last].at <= at {
            self.credits[record].next = NONE;
            self.credits[last].next = record;
            it.credit_last = record;
        } else if self.credits[first].at > at {
            self.credits[record].next = first;
            it.credit_first = record;
        } else {
            let mut before = first;
            while self.credits[self.credits[before].next].at <= at {
                before = self.credits[before].next;
            }
            self.credits[record].next = self.credits[before].next;
            self.credits[before].next = record;
        }
    }

    /// Applies what is due on `lane`.
    #[inline]
    pub(super) fn absorb(&mut self, lane: u32) {
        let first = self.lanes[lane as usize].credit_first;
        if first != NONE && self.credits[first].at <= self.now {
            self.absorb_due(lane);
        }
    }

    fn absorb_due(&mut self, lane: u32) {
        let it = &mut self.lanes[lane as usize];
        while it.credit_first != NONE {
            let first = it.credit_first;
            let Credit { at, gap, bytes, left, next } = self.credits[first];
            if at > self.now {
                return;
            }
            it.credit_first = next;
            if next == NONE {
                it.credit_last = NONE;
            }
            let due = if left <= 1 { left } else { left.min(((self.now - at) / gap) as u32 + 1) };
            it.free += due * bytes;
            if due == left {
                self.credits.free(first);
                continue;
            }
            self.credits[first].left -= due;
            self.credits[first].at += u64::from(due) * gap;
            self.insert(lane, first);
            return self.absorb(lane);
        }
    }

    /// When the next credit of `lane` comes.
    pub(super) fn next_credit(&self, lane: u32) -> Option<u64> {
        let first = self.lanes[lane as usize].credit_first;
        (first != NONE).then(|| self.credits[first].at)
    }

    /// A credit as an event of its own. The entity is the lane.
    pub(super) fn credit_event(&mut self, lane: u32, record: u32) {
        let it = self.credits[record];
        if it.left > 0 {
            self.lanes[lane as usize].free += it.bytes;
        }
        if it.left > 1 {
            self.credits[record].left -= 1;
            self.credits[record].at += it.gap;
            self.schedule(it.at + it.gap, Kind::Credit, lane, record);
        } else {
            self.credits.free(record);
        }
        if self.lanes[lane as usize].ring != NONE {
            self.touch(lane / self.lanes_per_port);
        }
    }
}
