//! When things happen in a phase: victims alone, congestors on, victims alone again.
//!
//! # Model
//! ```text
//!   0   warm-up   isolated/2   | ramp |   congested   | settle |   isolated/2   end
//!                              ^ congestors on         ^ off
//! ```
//! Isolated time on both sides of the load catches drift of the machine. All borders lie on slices,
//! whose length is the network's: see `scenario::fabric`.

use clearway_proto::base::Nanos;

use crate::scenario::{Fabric, Time};

/// Slices before anything counts: first packets meet cold caches and sleeping processors.
const WARM_UP: u64 = 3;
/// Slices that the load gets to fill its queues: ten times the time that the slowest of a
/// laboratory needs.
const RAMP: u64 = 5;
/// Slices after the load stopped until the network counts as empty.
pub(crate) const SETTLE: u64 = 5;

/// The same around a program of the user's, in a laboratory's slices of 100 ms: an `mpirun` takes
/// half a second to have its ranks start, and a program has three to end when it is asked to.
const PROGRAM_RAMP: u64 = 20;
const PROGRAM_SETTLE: u64 = 40;

/// The grid of time of one run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Grid {
    /// One slice.
    pub(crate) slice: Nanos,
    /// How long ranks listen for stragglers.
    pub(crate) drain: Nanos,
}

impl Grid {
    /// Creates the grid of `fabric` with slices of this length.
    pub(crate) fn new(fabric: &Fabric, slice: Time) -> Self {
        Self { slice: slice.0, drain: fabric.drain(slice.0) }
    }

    /// Returns the length of `count` slices.
    pub(crate) fn slices(self, count: u32) -> Nanos {
        self.slice.times(u64::from(count))
    }

    /// Returns the bytes of one slice as a rate in megabits per second.
    pub(crate) fn megabits(self, bytes: u64) -> f64 {
        bytes as f64 * 8.0 / self.slice.as_secs_f64() / 1e6
    }
}

/// A half-open range of slices.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Window {
    pub(crate) from: u32,
    pub(crate) until: u32,
}

impl Window {
    pub(crate) fn contains(self, slice: u32) -> bool {
        (self.from..self.until).contains(&slice)
    }

    /// Returns how long it is.
    pub(crate) fn length(self, grid: Grid) -> Nanos {
        grid.slices(self.until - self.from)
    }
}

/// The windows of one phase.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Windows {
    /// What they are counted in.
    pub(crate) grid: Grid,
    /// Before the load.
    pub(crate) before: Window,
    /// From the load's beginning to its end.
    pub(crate) load: Window,
    /// The part of it that counts.
    pub(crate) congested: Window,
    /// After the load.
    pub(crate) after: Window,
}

impl Windows {
    /// Creates the windows for these measured times, rounded up to slices.
    pub(crate) fn new(grid: Grid, isolated: Nanos, congested: Nanos) -> Self {
        Self::with_pauses(grid, isolated, congested, [RAMP, SETTLE])
    }

    /// Creates the same where the load is a program.
    pub(crate) fn around_program(grid: Grid, isolated: Nanos, congested: Nanos) -> Self {
        Self::with_pauses(grid, isolated, congested, [PROGRAM_RAMP, PROGRAM_SETTLE])
    }

    fn with_pauses(
        grid: Grid,
        isolated: Nanos,
        congested: Nanos,
        [ramp, settle]: [u64; 2],
    ) -> Self {
        let slices = |time: Nanos| time.0.div_ceil(grid.slice.0.max(1));
        let half = slices(isolated).div_ceil(2);
        let mut at = 0;
        let mut window = |pause: u64, length: u64| {
            let from = at + pause;
            at = from + length;
            Window { from: from as u32, until: at as u32 }
        };
        let before = window(WARM_UP, half);
        let congested = window(ramp, slices(congested));
        let after = window(settle, half);
        Self {
            grid,
            before,
            load: Window { from: before.until, until: congested.until },
            congested,
            after,
        }
    }

    /// Returns whether `slice` counts as isolated.
    pub(crate) fn isolated(&self, slice: u32) -> bool {
        self.before.contains(slice) || self.after.contains(slice)
    }

    /// Returns how long the phase is.
    pub(crate) fn length(&self) -> Nanos {
        self.grid.slices(self.after.until)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn windows__do_not_touch_and_hold_the_measured_time() {
        let grid = Grid { slice: Nanos::from_millis(100), drain: Nanos::ZERO };
        let w = Windows::new(grid, Nanos::from_millis(4000), Nanos::from_millis(2950));
        assert_eq!(w.before.length(grid) + w.after.length(grid), Nanos::from_millis(4000));
        assert_eq!(w.congested.length(grid), Nanos::from_millis(3000));
        assert!(w.before.until <= w.load.from && w.load.from < w.congested.from);
        assert!(w.congested.until == w.load.until && w.load.until < w.after.from);
        assert_eq!(w.length(), grid.slices(w.after.until));
        assert!(!w.isolated(w.load.from) && w.isolated(w.after.from) && !w.isolated(0));
    }
}
