//! This node's clock, the kernel's receive stamps on it, and the processor time of this process.
//!
//! # Model
//! [`LocalNs`] is `CLOCK_MONOTONIC`. The kernel stamps packets with `CLOCK_REALTIME`. Both run at
//! the same rate (the kernel applies frequency corrections to both), so their difference is
//! constant but for steps, which set the wall clock and not the monotonic one. The difference is
//! sampled by reading monotonic, wall, monotonic: the wall clock was read somewhere between the
//! outer two.
//!
//! # Invariants
//! I1. A converted stamp is never later than the instant at which it was read.
//! I2. Between steps the error of a conversion is at most [`StampClock::error`]: half the narrowest
//!     bracket. After a
//!     step of the wall clock, stamps of at most [`RESAMPLE`] are wrong by up to the step.

use clearway_proto::base::{LocalNs, Nanos};
use rustix::time::{ClockId, clock_gettime};

/// How long a sampled difference is used. A step by time synchronisation then disturbs at most this
/// stretch; three reads of 25 ns every 10 ms cost nothing that can be measured.
pub const RESAMPLE: Nanos = Nanos::from_millis(10);

/// Brackets tried for each sample; the narrowest counts, so one interruption does not spoil it.
const BRACKETS: usize = 3;

/// Returns this node's time. Cost: about 25 ns, no system call on common hardware.
pub fn now() -> LocalNs {
    LocalNs(read(ClockId::Monotonic))
}

/// Returns the processor time that all threads of this process have had so far, for themselves and
/// in the kernel. Cost: a system call.
pub fn processor() -> Nanos {
    Nanos(read(ClockId::ProcessCPUTime))
}

fn read(clock: ClockId) -> u64 {
    let at = clock_gettime(clock);
    (at.tv_sec as u64).saturating_mul(1_000_000_000).saturating_add(at.tv_nsec as u64)
}

/// One reading of the wall clock between two of the monotonic clock.
#[derive(Clone, Copy, Debug)]
struct ClockBracket {
    before: u64,
    wall: u64,
    after: u64,
}

impl ClockBracket {
    fn take() -> Self {
        let before = read(ClockId::Monotonic);
        let wall = read(ClockId::Realtime);
        Self { before, wall, after: read(ClockId::Monotonic) }
    }

    fn width(&self) -> u64 {
        self.after.saturating_sub(self.before)
    }

    /// Returns wall clock minus monotonic clock, in ns.
    fn difference(&self) -> i64 {
        self.wall.wrapping_sub(self.before + self.width() / 2) as i64
    }
}

/// Converts wall-clock stamps of this host's kernel to this node's clock.
#[derive(Clone, Copy, Debug)]
pub struct StampClock {
    difference_ns: i64,
    error: Nanos,
    sampled: LocalNs,
}

impl StampClock {
    /// Samples the difference of the clocks.
    pub fn new() -> Self {
        Self::from_brackets(core::array::from_fn(|_| ClockBracket::take()))
    }

    fn from_brackets(brackets: [ClockBracket; BRACKETS]) -> Self {
        let best = brackets.into_iter().min_by_key(ClockBracket::width).unwrap_or(brackets[0]);
        Self {
            difference_ns: best.difference(),
            error: Nanos(best.width().div_ceil(2)),
            sampled: LocalNs(best.after),
        }
    }

    /// Samples again if the last sample is older than [`RESAMPLE`].
    pub fn refresh(&mut self, now: LocalNs) {
        if now.since(self.sampled) >= RESAMPLE {
            *self = Self::new();
        }
    }

    /// Returns the bound of the conversion's error.
    pub const fn error(&self) -> Nanos {
        self.error
    }

    /// Returns the wall-clock stamp `wall_ns`, read not later than `now`, as local time.
    pub fn local(&self, wall_ns: u64, now: LocalNs) -> LocalNs {
        LocalNs(wall_ns.saturating_add_signed(self.difference_ns.saturating_neg())).min(now)
    }
}

impl Default for StampClock {
    fn default() -> Self {
        Self::new()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn of__takes_the_narrowest_bracket_and_its_half_as_error() {
        let wide = ClockBracket { before: 100, wall: 5_000, after: 900 };
        let narrow = ClockBracket { before: 1_000, wall: 6_010, after: 1_021 };
        let clock = StampClock::from_brackets([wide, narrow, wide]);
        assert_eq!(clock.difference_ns, 5_000);
        assert_eq!(clock.error(), Nanos(11));
        assert_eq!(clock.local(6_500, LocalNs(9_000)), LocalNs(1_500));
    }

    #[test]
    fn processor__only_grows() {
        let before = processor();
        assert!(Nanos::ZERO < before && before <= processor());
    }

    #[test]
    fn local__is_never_later_than_the_reading() {
        let same = ClockBracket { before: 1_000, wall: 6_000, after: 1_000 };
        let clock = StampClock::from_brackets([same; BRACKETS]);
        assert_eq!(clock.local(9_000, LocalNs(1_200)), LocalNs(1_200));
        assert_eq!(clock.local(0, LocalNs(1_200)), LocalNs(0));
        assert_eq!(clock.local(u64::MAX, LocalNs(1_200)), LocalNs(1_200));
    }

    #[test]
    fn local__works_when_the_wall_clock_is_behind_the_monotonic_one() {
        let same = ClockBracket { before: 6_000, wall: 1_000, after: 6_000 };
        let clock = StampClock::from_brackets([same; BRACKETS]);
        assert_eq!(clock.local(1_100, LocalNs(7_000)), LocalNs(6_100));
    }

    #[test]
    fn refresh__keeps_a_fresh_sample_and_replaces_an_old_one() {
        let same = ClockBracket { before: 1_000, wall: 6_000, after: 1_000 };
        let mut clock = StampClock::from_brackets([same; BRACKETS]);
        clock.refresh(LocalNs(1_000) + (RESAMPLE - Nanos(1)));
        assert_eq!(clock.sampled, LocalNs(1_000));
        clock.refresh(LocalNs(1_000) + RESAMPLE);
        assert!(clock.sampled > LocalNs(1_000), "sampled from the real clocks");
    }
}
