//! How many contributions an input holds, and when builders learn it.
//!
//! # Model
//! No input sends what others could not hold besides everything that a builder may lose
//! ([`Connections::send_limit`]); so each says how many contributions it holds. Memory is counted
//! in bytes and contributions have any length, so that the most that it held of late is what it
//! says. Builders learn at once that this has doubled, so that a beginning takes few messages, and
//! with a beat that it has changed by an eighth. An input that has everything up to its end is no
//! limit.

use super::*;

/// Beats after which what was held at a time counts no more, or after twice as many: 8 s in labs
/// and jobs, where contributions may have become longer since.
const TERM_BEATS: u64 = 32;
/// A change by less than this part is not worth a message to each builder.
const CHANGE_PART: u32 = 8;

impl InputNode {
    /// Returns how many contributions this input holds at most, as far as it knows.
    fn holding_now(&self) -> u32 {
        let connections = &self.connections;
        let most = connections.supply.most_held().clamp(HELD_LEAST.into(), UNBOUNDED.into());
        if connections.supply.ready() >= connections.range.end { UNBOUNDED } else { most as u32 }
    }

    /// Looks whether it holds twice what builders know.
    pub(super) fn look_at_holding(&mut self) {
        let now = self.holding_now();
        if self.connections.bounded_from.is_some() && now / 2 >= self.holding {
            self.tell_holding(now);
        }
    }

    /// Handles the end of an interval of the heartbeat.
    pub(super) fn beat_holding(&mut self) {
        if self.connections.bounded_from.is_none() {
            return;
        }
        self.beats += 1;
        if self.beats.is_multiple_of(TERM_BEATS) {
            self.connections.supply.begin_term();
        }
        let now = self.holding_now();
        if now.abs_diff(self.holding) > self.holding / CHANGE_PART {
            self.tell_holding(now);
        }
    }

    fn tell_holding(&mut self, now: u32) {
        self.holding = now;
        for (place, connection) in self.connections.all.iter_mut().enumerate() {
            if connection.stage == ConnectionState::Open {
                connection.tells_holding = true;
                self.outbox.want(place);
            }
        }
    }
}
