//! A sender's pace towards one receiver, as the switch before that receiver asked for.
//!
//! # Model
//! A flow that was not slowed down so far owes what it has in the network: it waits until that
//! would have been sent at the pace that it gets, as if it had kept to it from the beginning. So
//! the queues that formed before the first notice are gone when the senders go on. After that, each
//! packet moves the next one by its own time at the pace.
//!
//! # Invariants
//! I1. Between two packets at an unchanged divisor lies at least the time of the first at the pace;
//!     no time is saved up.
//! I2. A pace that is not renewed doubles at the end of each life, until it is no limit.

use super::edge::{EdgeNotice, ONE};
use crate::time::{Pace, Picos};

/// The pace of one flow.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Throttle {
    divisor: u32,
    /// Before this no packet may begin.
    next: Picos,
    life: Picos,
    /// When the pace doubles if nothing is heard.
    until: Picos,
}

impl Throttle {
    /// No limit.
    pub(crate) const OPEN: Self =
        Self { divisor: ONE, next: Picos::ZERO, life: Picos::ZERO, until: Picos::ZERO };

    /// Handles a notice of the switch. `in_network` bytes of the flow are on their way; `pace` and
    /// `packet` are of the receiver's port.
    pub(crate) fn handle_notice(
        &mut self,
        now: Picos,
        notice: EdgeNotice,
        in_network: u64,
        pace: Pace,
        packet: u32,
    ) {
        self.age(now);
        if self.divisor <= ONE {
            let slot = Picos(pace.time(packet).0.saturating_mul(u64::from(notice.slot)));
            let debt = u32::try_from(in_network).unwrap_or(u32::MAX);
            self.next = now + times(pace.time(debt), notice.divisor, ONE) + slot;
        } else {
            let wait = self.next - now;
            self.next = now + times(wait, notice.divisor, self.divisor);
        }
        (self.divisor, self.life, self.until) = (notice.divisor, notice.life, now + notice.life);
    }

    /// Returns the first instant from `now` at which a packet may begin.
    pub(crate) fn ready_at(&mut self, now: Picos) -> Picos {
        self.age(now);
        self.next.max(now)
    }

    /// Records that a packet of `bytes` begins.
    pub(crate) fn sent(&mut self, now: Picos, bytes: u32, pace: Pace) {
        self.age(now);
        if self.divisor > ONE {
            self.next = self.next.max(now) + times(pace.time(bytes), self.divisor, ONE);
        }
    }

    /// Returns whether it is no limit, so that the flow need not remember it.
    #[cfg(test)]
    pub(crate) fn is_open(&mut self, now: Picos) -> bool {
        self.age(now);
        self.divisor <= ONE && self.next <= now
    }

    fn age(&mut self, now: Picos) {
        while self.divisor > ONE && now >= self.until {
            let wait = self.next - self.until;
            self.next = self.until + Picos(wait.0 / 2);
            self.divisor /= 2;
            self.until += self.life.max(Picos(1));
        }
        self.divisor = self.divisor.max(ONE);
    }
}

/// Returns `length * by / of`.
fn times(length: Picos, by: u32, of: u32) -> Picos {
    let wide = u128::from(length.0) * u128::from(by) / u128::from(of.max(1));
    Picos(u64::try_from(wide).unwrap_or(u64::MAX))
}
