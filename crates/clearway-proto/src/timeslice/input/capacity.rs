//! The capacity of an input: how many contributions it can hold, and when builders learn it.
//!
//! # Model
//! No input sends what others could not hold besides everything that a builder may lose
//! ([`Connections::send_limit`]), so each reports its capacity. Memory is counted in bytes and
//! contributions have any length: the capacity is the most contributions that it held of late.
//! Builders learn at once that it has doubled, so that a beginning takes few messages, and with a
//! beat that it has changed by an eighth. An input that has everything up to its end is no limit.

use super::*;

/// Beats of a term; a peak counts for one to two terms. 8 s in labs and jobs: contributions may have
/// become longer since.
const TERM_BEATS: u64 = 32;
/// A change by less than this part is not worth a message to each builder.
const CHANGE_PART: u32 = 8;

impl InputNode {
    /// Returns the capacity of this input, as far as it knows.
    fn capacity_now(&self) -> u32 {
        let connections = &self.connections;
        if connections.supply.ready() >= connections.range.end {
            return CAPACITY_UNLIMITED;
        }
        let peak = u32::try_from(connections.supply.recent_peak()).unwrap_or(CAPACITY_UNLIMITED);
        peak.max(CAPACITY_MIN)
    }

    /// Looks whether it holds twice what builders know.
    pub(super) fn look_at_capacity(&mut self) {
        let now = self.capacity_now();
        if self.connections.bounded_from.is_some() && now / 2 >= self.capacity {
            self.report_capacity(now);
        }
    }

    /// Handles the end of an interval of the heartbeat.
    pub(super) fn beat_capacity(&mut self) {
        if self.connections.bounded_from.is_none() {
            return;
        }
        self.beats += 1;
        if self.beats.is_multiple_of(TERM_BEATS) {
            self.connections.supply.begin_term();
        }
        let now = self.capacity_now();
        if now.abs_diff(self.capacity) > self.capacity / CHANGE_PART {
            self.report_capacity(now);
        }
    }

    fn report_capacity(&mut self, now: u32) {
        self.capacity = now;
        for (place, connection) in self.connections.all.iter_mut().enumerate() {
            if connection.stage == ConnectionState::Open {
                connection.tells_capacity = true;
                self.outbox.want(place);
            }
        }
    }
}
