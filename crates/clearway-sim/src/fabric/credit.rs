//! Credits on their way back: applied when somebody needs them, or as events when all events are
//! wanted.
//!
//! # Invariants
//! I1. A lane's list is ordered by time. A credit issued later may be due earlier (outputs have
//!     different rates), so it is put
//!     where it belongs, and a port that starves is woken for it.

use super::parts::{CreditReturn, Lane};
use super::pool::{Arena, NONE};
use super::{EventSet, Fabric, FabricEventKind};

impl Lane {
    /// Puts `record` into the list by time; almost always at the end.
    #[inline(always)]
    fn insert(&mut self, credits: &mut Arena<CreditReturn>, record: u32) {
        let at = credits[record].at;
        let first = self.credit_first;
        if first == NONE {
            (self.credit_first, self.credit_last) = (record, record);
        } else if credits[self.credit_last].at <= at {
            credits[self.credit_last].next = record;
            self.credit_last = record;
        } else if credits[first].at > at {
            credits[record].next = first;
            self.credit_first = record;
        } else {
            let mut before = first;
            while credits[credits[before].next].at <= at {
                before = credits[before].next;
            }
            credits[record].next = credits[before].next;
            credits[before].next = record;
        }
    }

    /// Applies what is due at `now`.
    #[inline(always)]
    pub(super) fn absorb(&mut self, credits: &mut Arena<CreditReturn>, now: u64) {
        while self.credit_first != NONE {
            let record = self.credit_first;
            let CreditReturn { at, bytes, left, next, .. } = credits[record];
            if at > now {
                return;
            }
            self.credit_first = next;
            if left <= 1 {
                self.free += left * bytes;
                credits.free(record);
            } else {
                self.absorb_some(credits, record, now);
            }
        }
    }

    /// Applies what is due of `record`, which is in no list, and puts back what is not.
    fn absorb_some(&mut self, credits: &mut Arena<CreditReturn>, record: u32, now: u64) {
        let CreditReturn { at, gap, bytes, left, .. } = credits[record];
        let due = left.min(((now - at) / gap) as u32 + 1);
        self.free += due * bytes;
        if due == left {
            credits.free(record);
        } else {
            credits[record] = CreditReturn {
                at: at + u64::from(due) * gap,
                gap,
                bytes,
                left: left - due,
                next: NONE,
            };
            self.insert(credits, record);
        }
    }
}

impl Fabric {
    /// Returns `first`, a new credit, to `lane` of `port`. Gives the record's number.
    #[inline]
    pub(super) fn give_credit(&mut self, port: u32, lane: u32, first: CreditReturn) -> u32 {
        let first = if self.faults.is_some() {
            CreditReturn { bytes: self.after_theft(lane, first.bytes), ..first }
        } else {
            first
        };
        if self.options.events == EventSet::Eager {
            let record = self.credits.put(first);
            self.schedule(first.at, FabricEventKind::Credit, lane, record);
            return record;
        }
        let it = &mut self.lanes[lane as usize];
        // A record that is due makes room for the new record: lists stay short and in the cache.
        it.absorb(&mut self.credits, self.now);
        let record = self.credits.put(first);
        it.insert(&mut self.credits, record);
        if it.ring != NONE && first.at >= self.ports[port as usize].busy_until {
            self.wake(port, first.at);
        }
        record
    }

    /// Applies what is due on `lane`.
    pub(super) fn absorb(&mut self, lane: u32) {
        self.lanes[lane as usize].absorb(&mut self.credits, self.now);
    }

    /// Returns when the next credit of `lane` comes.
    pub(super) fn next_credit(&self, lane: u32) -> Option<u64> {
        let first = self.lanes[lane as usize].credit_first;
        (first != NONE).then(|| self.credits[first].at)
    }

    /// Schedules a credit as an event of its own. The entity is the lane.
    pub(super) fn credit_event(&mut self, lane: u32, record: u32) {
        let it = self.credits[record];
        if it.left > 0 {
            self.lanes[lane as usize].free += it.bytes;
        }
        if it.left > 1 {
            self.credits[record].left -= 1;
            self.credits[record].at += it.gap;
            self.schedule(it.at + it.gap, FabricEventKind::Credit, lane, record);
        } else {
            self.credits.free(record);
        }
        if self.lanes[lane as usize].ring != NONE {
            self.touch(lane / self.lanes_per_port);
        }
    }
}
