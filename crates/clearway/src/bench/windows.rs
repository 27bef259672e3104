//! When things happen in a phase: victims alone, congestors on, victims alone again.
//!
//! # Model
//! ```text
//!   0   warm-up   isolated/2   | ramp |   congested   | settle |   isolated/2   end
//!                              ^ congestors on         ^ off
//! ```
//! Isolated time on both sides of the load catches drift of the machine. All borders lie on slices.

use clearway_proto::base::Nanos;

/// The grid of every record: longer than a full queue of 100 packets at 25 Mb/s (46 ms), so that samples of two slices share
/// no queue episode by more than their border.
pub(super) const SLICE: Nanos = Nanos::from_millis(100);
/// Slices before anything counts: first packets meet cold caches and sleeping processors.
const WARM_UP: u64 = 3;
/// Slices that the load gets to fill its queues: ten times the time that the slowest of them needs.
const RAMP: u64 = 5;
/// Slices after the load stopped until the network counts as empty.
const SETTLE: u64 = 5;

/// A half-open range of slices.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Window {
    pub(super) from: u32,
    pub(super) until: u32,
}

impl Window {
    pub(super) fn contains(self, slice: u32) -> bool {
        (self.from..self.until).contains(&slice)
    }

    /// How long it is.
    pub(super) fn length(self) -> Nanos {
        SLICE.times(u64::from(self.until - self.from))
    }
}

/// The windows of one phase.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Windows {
    /// Before the load.
    pub(super) before: Window,
    /// From the load's beginning to its end.
    pub(super) load: Window,
    /// The part of it that counts.
    pub(super) congested: Window,
    /// After the load.
    pub(super) after: Window,
}

impl Windows {
    /// The windows for these measured times, rounded up to slices.
    pub(super) fn new(isolated_ms: u64, congested_ms: u64) -> Self {
        let slices = |ms: u64| Nanos::from_millis(ms).0.div_ceil(SLICE.0);
        let half = slices(isolated_ms).div_ceil(2);
        let mut at = 0;
        let mut window = |pause: u64, length: u64| {
            let from = at + pause;
            at = from + length;
            Window { from: from as u32, until: at as u32 }
        };
        let before = window(WARM_UP, half);
        let congested = window(RAMP, slices(congested_ms));
        let after = window(SETTLE, half);
        Self { before, load: Window { from: before.until, until: congested.until }, congested, after }
    }

    /// Whether `slice` counts as isolated.
    pub(super) fn isolated(&self, slice: u32) -> bool {
        self.before.contains(slice) || self.after.contains(slice)
    }

    /// How long the phase is.
    pub(super) fn length(&self) -> Nanos {
        SLICE.times(u64::from(self.after.until))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn windows__do_not_touch_and_hold_the_measured_time() {
        let w = Windows::new(4000, 2950);
        assert_eq!(w.before.length() + w.after.length(), Nanos::from_millis(4000));
        assert_eq!(w.congested.length(), Nanos::from_millis(3000));
        assert!(w.before.until <= w.load.from && w.load.from < w.congested.from);
        assert!(w.congested.until == w.load.until && w.load.until < w.after.from);
        assert_eq!(w.length(), SLICE.times(u64::from(w.after.until)));
        assert!(!w.isolated(w.load.from) && w.isolated(w.after.from) && !w.isolated(0));
    }
}
