//! Whether a builder has more to do than it can, as inputs see it, and how many turns it asks for
//! then.
//!
//! # Model
//! Rates do not show which builder is slow: where one builder holds up everybody, all are equally
//! slow. But at that one something is *due* nearly always, a contribution whose turn has come and
//! that it has not released, and at the others only now and then. In each interval of the heartbeat
//! an input looks how much is due at each builder ([`LoadEstimator`]). Over a window of intervals a
//! builder's *speed* is what it released in the time in which anything was due. A builder is
//! *heavy* that is busy most of the time, not half as fast as the median, and has twice as much due
//! for what it weighs: where all are busy, piles come and go by chance and speeds are alike; where
//! all wait for a slow input, piles are alike. One that is half as fast at least, or has no more
//! due than its share, is *light*. An input tells a builder when what it thinks of it has changed.
//!
//! A builder that most inputs find heavy asks for a quarter of its turns, one that most find light
//! for twice as many, up to all that it had ([`LoadShedder`]). Between two changes it waits, and
//! before it asks for more it waits longer each time that more was too much. So one that is ten
//! times slower than the others comes to a sixteenth of its turns, and has all again some time
//! after it is quick again.
//!
//! # Source
//! The load balancer of the Data-Flow Scheduler takes turns off a builder whose latencies are some
//! part above the median. Here what is due stands for latencies, which do not tell a builder that
//! is slow from one that has too much; longer waits behind each failure are TCP's way with timers
//! (RFC 6298, 5.5).
//!
//! # Invariants
//! I1. A builder keeps at least a sixteenth of its turns, and never asks for more than all.
//! I2. Less than half of the inputs change nothing.

use alloc::vec;
use alloc::vec::Vec;

/// Intervals of one window at least: a sample of when a builder is busy.
const WINDOW: u32 = 16;
/// What most builders have released in a window, so that parts of a rotation average out; yet
/// nobody waits longer than [`WINDOW_MOST`] for it.
const RELEASES: u64 = 4;
const WINDOW_MOST: u32 = 8 * WINDOW;
/// Times as fast, and as little due, the median is where a builder is heavy. Where all are equal
/// and busy, chance makes it less than one and a half.
const TIMES: u64 = 2;
/// Intervals behind a change in which nothing is asked: until it is decided and what was dealt
/// before is done, and another window has begun.
const REST: u32 = 2 * WINDOW;
/// Intervals for which a builder is light before it asks for more: at first, and at most.
const TIMEOUT: [u32; 2] = [2 * WINDOW, 64 * WINDOW];
/// The smallest part of its turns.
const LEAST_PART: u32 = 16;

/// What an input thinks of a builder.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) enum BuilderLoad {
    /// Neither.
    #[default]
    Usual,
    /// It has more to do than it can.
    Heavy,
    /// It could do more.
    Light,
}

/// What an input sees of a builder at one time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct BuilderSample {
    /// Contributions that are due.
    pub(super) due: u64,
    /// Contributions that it ever released.
    pub(super) released: u64,
    /// What it weighs.
    pub(super) weight: u32,
}

/// What an input knows of one builder.
#[derive(Clone, Copy, Debug, Default)]
struct BuilderQueue {
    /// What it weighs; none while nothing is dealt to it.
    weight: Option<u32>,
    /// Due in this window, added up over its intervals, and in how many of these there was
    /// anything.
    sum: u64,
    busy: u32,
    /// Released at the last look, and at the beginning of the window.
    released: [u64; 2],
    /// Windows in a row in which it was heavy.
    heavy: u32,
    burden: BuilderLoad,
}

/// An input's side.
#[derive(Debug)]
pub(super) struct LoadEstimator {
    queues: Vec<BuilderQueue>,
    intervals: u32,
}

impl LoadEstimator {
    /// Creates a `LoadEstimator` of this many builders.
    pub(super) fn new(builders: usize) -> Self {
        Self { queues: vec![BuilderQueue::default(); builders], intervals: 0 }
    }

    /// Forgets what is known of the builder at `place`, which is another one than before.
    pub(super) fn forget(&mut self, place: usize) {
        self.queues[place] = BuilderQueue::default();
    }

    /// Returns what it thinks of the builder at `place`.
    pub(super) fn load_at(&self, place: usize) -> BuilderLoad {
        self.queues[place].burden
    }

    /// Judges an interval that has passed. `sight` says what is seen of the builder at a place;
    /// none where nothing is dealt to it. Says whether a window is over.
    pub(super) fn interval(&mut self, sight: impl Fn(usize) -> Option<BuilderSample>) -> bool {
        for (place, pile) in self.queues.iter_mut().enumerate() {
            let sight = sight(place);
            pile.weight = sight.map(|sight| sight.weight.max(1));
            if let Some(BuilderSample { due, released, .. }) = sight {
                pile.sum += due;
                pile.busy += u32::from(due > 0);
                pile.released[0] = released;
            }
        }
        self.intervals += 1;
        let there = || self.queues.iter().filter(|pile| pile.weight.is_some());
        let [_, released] = middle(there().map(BuilderQueue::released).collect());
        if self.intervals < WINDOW || released < RELEASES && self.intervals < WINDOW_MOST {
            return false;
        }
        // Of two builders, the other one is the measure.
        let [share, _] = middle(there().map(BuilderQueue::share).collect());
        let [_, speed] = middle(there().filter_map(BuilderQueue::speed).collect());
        self.queues.iter_mut().for_each(|pile| pile.look(self.intervals, share, speed));
        self.intervals = 0;
        true
    }
}

impl BuilderQueue {
    /// Contributions that it released in this window.
    fn released(&self) -> u64 {
        let [now, before] = self.released;
        now.saturating_sub(before)
    }

    /// Thousandths of a contribution that it released in an interval in which something was due;
    /// none where nothing ever was.
    fn speed(&self) -> Option<u64> {
        (self.released() * 1000).checked_div(u64::from(self.busy))
    }

    /// Returns what was due for what it weighs, in thousandths.
    fn share(&self) -> u64 {
        self.sum.saturating_mul(1000) / u64::from(self.weight.unwrap_or(1))
    }

    /// Judges a window of intervals that is over, in which these were the medians.
    fn look(&mut self, intervals: u32, share: u64, speed: u64) {
        if let (Some(_), Some(own)) = (self.weight, self.speed()) {
            let is_slow = own.saturating_mul(TIMES) < speed;
            let is_heavy =
                is_slow && 2 * self.busy >= intervals && self.share() > share.saturating_mul(TIMES);
            self.heavy = if is_heavy { self.heavy + 1 } else { 0 };
            self.burden = match self.heavy {
                0 if !is_slow || self.share() <= share => BuilderLoad::Light,
                0 | 1 => BuilderLoad::Usual,
                _ => BuilderLoad::Heavy,
            };
        }
        let [released, _] = self.released;
        (self.sum, self.busy, self.released) = (0, 0, [released; 2]);
    }
}

/// Returns the lower and the upper one of the middle values.
fn middle(mut values: Vec<u64>) -> [u64; 2] {
    values.sort_unstable();
    [values.len().saturating_sub(1) / 2, values.len() / 2]
        .map(|at| values.get(at).copied().unwrap_or(0))
}

/// A builder's side.
#[derive(Debug)]
pub(super) struct LoadShedder {
    /// What it weighs with all its turns.
    full: u32,
    rest: u32,
    /// Intervals for which it was light, and how many there must be.
    light: u32,
    timeout: u32,
}

impl LoadShedder {
    /// Creates a `LoadShedder` of a builder that weighs `full`.
    pub(super) const fn new(full: u32) -> Self {
        Self { full, rest: REST, light: 0, timeout: TIMEOUT[0] }
    }

    /// Sets how much it weighs with all its turns.
    pub(super) const fn set_full(&mut self, full: u32) {
        *self = Self::new(full);
    }

    /// Judges an interval that has passed, in which it weighed `weight`, and inputs had these
    /// `burdens` of it. Says what it is to weigh.
    pub(super) fn interval(
        &mut self,
        weight: u32,
        burdens: impl Iterator<Item = BuilderLoad>,
    ) -> Option<u32> {
        let (mut all, mut heavy, mut light) = (0, 0, 0);
        for burden in burdens {
            all += 1;
            heavy += u32::from(burden == BuilderLoad::Heavy);
            light += u32::from(burden == BuilderLoad::Light);
        }
        self.light = if 2 * light > all { self.light + 1 } else { 0 };
        if self.rest > 0 {
            self.rest -= 1;
            return None;
        }
        let wanted = if 2 * heavy > all {
            self.timeout = (self.timeout * 4).min(TIMEOUT[1]);
            (weight / 4).max(self.full / LEAST_PART).max(1)
        } else if self.light >= self.timeout && weight < self.full {
            self.timeout = (self.timeout / 2).max(TIMEOUT[0]);
            (weight * 2).min(self.full)
        } else {
            return None;
        };
        (self.rest, self.light) = (REST, 0);
        (wanted != weight).then_some(wanted)
    }
}

#[cfg(test)]
mod tests;
