//! When scavengers of a node pause, and for how long.

use super::{PAUSE_MIN, PROBE_PAUSE_MAX, ROUND};
use crate::base::{LocalNs, Nanos};

/// How long before it begins a pause is known at least: scavengers look every tenth of a second at
/// what they get, and at their next pause in time.
const KNOWN_FOR: Nanos = Nanos::from_millis(100);

/// What an instant of a round is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum RoundPart {
    /// Scavengers send, and probes count as sent under load.
    Sending,
    /// They pause, and their queues become empty.
    Emptying,
    /// They pause, and probes count.
    Paused,
    /// They send again; answers are still on their way.
    Ending,
    /// It is time to decide.
    Over,
}

/// The pause of a round.
#[derive(Clone, Copy, Debug)]
pub(super) struct RoundPause {
    pub(super) at: LocalNs,
    pub(super) length: Nanos,
}

impl RoundPause {
    /// Begins a round at `now`; pauses are `length` long, and begin at multiples of a round after
    /// `origin`.
    pub(super) fn new(now: LocalNs, origin: LocalNs, length: Nanos) -> Self {
        let earliest = now + KNOWN_FOR;
        let behind = Nanos((earliest.0 % ROUND.0 + ROUND.0 - origin.0 % ROUND.0) % ROUND.0);
        let wait = if behind == Nanos::ZERO { Nanos::ZERO } else { ROUND - behind };
        Self { at: earliest + wait, length }
    }

    /// Returns half of the pause, which is also how long answers are waited for behind it.
    pub(super) const fn half(&self) -> Nanos {
        Nanos(self.length.0 / 2)
    }

    /// Returns when the round is over.
    pub(super) fn over_at(&self) -> LocalNs {
        self.at + self.length + self.half()
    }

    /// Returns when probes of the pause begin.
    pub(super) fn paused_from(&self) -> LocalNs {
        self.at + self.half()
    }

    /// Returns which part of the round `now` is in.
    pub(super) fn part(&self, now: LocalNs) -> RoundPart {
        if now >= self.over_at() {
            RoundPart::Over
        } else if now >= self.at + self.length {
            RoundPart::Ending
        } else if now >= self.paused_from() {
            RoundPart::Paused
        } else if now >= self.at {
            RoundPart::Emptying
        } else {
            RoundPart::Sending
        }
    }

    /// Returns the length of the next pause, where this one was long enough.
    pub(super) fn shorter(&self) -> Nanos {
        self.half().max(PAUSE_MIN)
    }

    /// Returns the length of the next pause, where this one was too short; none where it is the
    /// longest.
    pub(super) fn longer(&self) -> Option<Nanos> {
        (self.length < PROBE_PAUSE_MAX).then(|| self.length.times(2).min(PROBE_PAUSE_MAX))
    }
}
