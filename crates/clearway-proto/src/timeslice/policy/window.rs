//! How many contributions a builder lets in at a time: the smallest window whose throughput is within 1 % of a larger one's.
//!
//! # Model
//! Throughput is measured over *spans* of several rotations with one window each. The window in force is compared with one
//! twice as large: if that gains more than 1 %, it is taken. Otherwise with one half as large: if that loses less than 1 %, it is
//! taken. Otherwise the window rests for some spans before it is looked at again. After each change one rotation is not
//! measured, since what lands then was granted before.
//!
//! # Source
//! Long stalls are the price of a tight window: with stalls of 200 contributions in 4 % of the time, 2 let through 42 %, 64
//! 90 % (slotted model). No fixed window is right for both quiet and noisy inputs.
//!
//! # Invariants
//! I1. The window never leaves its bounds.

use crate::base::{LocalNs, Nanos};

/// What a window twice as large must gain, and one half as large may lose, in parts of 1000.
const WORTH: u64 = 10;
/// Rotations of one span: enough for stalls to show, few enough to follow a change within a second of a fast network.
const SPAN_ROTATIONS: u64 = 4;
/// Spans for which a window that was found right is kept.
const REST_SPANS: u32 = 16;

/// The bounds of a window, in contributions.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Window {
    /// The smallest.
    pub least: u32,
    /// The largest.
    pub most: u32,
}

impl Window {
    /// Always this many.
    pub const fn fixed(contributions: u32) -> Self {
        Self { least: contributions, most: contributions }
    }
}

/// What is being measured.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Phase {
    /// The window in force.
    Base,
    /// Twice as many, beside the rate of the base.
    Double(u64),
    /// Half as many, beside the rate of the base.
    Half(u64),
    /// Nothing, for so many more spans.
    Rest(u32),
}

/// Adapts the window of one builder.
#[derive(Debug)]
pub(super) struct Pacemaker {
    bounds: Window,
    window: u32,
    tried: u32,
    phase: Phase,
    rotation: u64,
    /// Contributions that landed since the window changed.
    count: u64,
    begun: LocalNs,
    bytes: u64,
}

impl Pacemaker {
    /// Within `window`, where a rotation has so many contributions.
    pub(super) fn new(window: Window, rotation: u64) -> Self {
        let least = window.least.max(1);
        let bounds = Window { least, most: window.most.max(least) };
        let (begun, rotation) = (LocalNs(0), rotation.max(1));
        Self { bounds, window: least, tried: least, phase: Phase::Base, rotation, count: 0, begun, bytes: 0 }
    }

    /// The window now.
    pub(super) const fn window(&self) -> u32 {
        self.tried
    }

    /// A contribution of `bytes` landed.
    pub(super) fn landed(&mut self, now: LocalNs, bytes: u64) {
        if self.bounds.least == self.bounds.most {
            return;
        }
        self.count += 1;
        let ahead = self.rotation.max(2 * u64::from(self.tried));
        if self.count <= ahead {
            (self.begun, self.bytes) = (now, 0);
            return;
        }
        self.bytes += bytes;
        if self.count >= ahead + SPAN_ROTATIONS * self.rotation.max(u64::from(self.tried)) {
            let rate = rate(self.bytes, now.since(self.begun));
            self.span_over(rate);
            self.count = 0;
        }
    }

    fn span_over(&mut self, rate: u64) {
        self.phase = match self.phase {
            Phase::Base if self.window < self.bounds.most => Phase::Double(rate),
            Phase::Base => Phase::Half(rate),
            Phase::Double(base) if rate > base + base / 1000 * WORTH => {
                self.window = self.tried;
                Phase::Base
            }
            Phase::Double(base) if self.window > self.bounds.least => Phase::Half(base),
            Phase::Half(base) if rate + base / 1000 * WORTH >= base && self.window > self.bounds.least => {
                self.window = self.tried;
                Phase::Base
            }
            Phase::Double(_) | Phase::Half(_) => Phase::Rest(REST_SPANS),
            Phase::Rest(0) => Phase::Base,
            Phase::Rest(more) => Phase::Rest(more - 1),
        };
        self.tried = match self.phase {
            Phase::Base | Phase::Rest(_) => self.window,
            Phase::Double(_) => (2 * self.window).min(self.bounds.most),
            Phase::Half(_) => (self.window / 2).max(self.bounds.least),
        };
    }
}

/// Bytes in 2^20 ns.
fn rate(bytes: u64, time: Nanos) -> u64 {
    u64::try_from((u128::from(bytes) << 20) / u128::from(time.0.max(1))).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Lets contributions land as fast as `gap` says for the window in force; returns the windows in force at the end of each
    /// thousand.
    fn run(bounds: Window, gap: impl Fn(u32) -> u64, thousands: usize) -> alloc::vec::Vec<u32> {
        let mut pacemaker = Pacemaker::new(bounds, 10);
        let mut now = 0;
        let thousand = |_| {
            for _ in 0..1000 {
                now += gap(pacemaker.window());
                pacemaker.landed(LocalNs(now), 1000);
            }
            pacemaker.window
        };
        (0..thousands).map(thousand).collect()
    }

    #[test]
    fn window__grows_until_it_no_longer_helps() {
        let windows = run(Window { least: 1, most: 64 }, |window| 1000 / u64::from(window.min(8)), 20);
        assert_eq!(windows.last(), Some(&8), "{windows:?}");
    }

    #[test]
    fn window__shrinks_where_size_does_not_matter() {
        let mut pacemaker = Pacemaker::new(Window { least: 2, most: 64 }, 10);
        (pacemaker.window, pacemaker.tried) = (64, 64);
        for now in 0..200_000 {
            pacemaker.landed(LocalNs(now * 10), 1000);
        }
        assert_eq!(pacemaker.window, 2);
    }

    #[test]
    fn window__stays_within_its_bounds() {
        let windows = run(Window { least: 3, most: 5 }, |window| 1000 / u64::from(window), 20);
        assert!(windows.iter().all(|window| (3..=5).contains(window)), "{windows:?}");
        assert_eq!(run(Window::fixed(7), |_| 1, 3), [7, 7, 7]);
    }
}
