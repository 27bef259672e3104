//! Counts missing microslices: learns the usual step from one to the next, and finds longer gaps.

use alloc::collections::VecDeque;
use core::ops::Range;

use crate::base::Nanos;

/// Steps that are looked back at.
const STEPS: usize = 16;

/// The usual time from the start of a microslice to that of the next one: given, or the lower
/// quartile of the last steps. Losses make steps longer and damage makes some shorter, so neither
/// the mean nor the least would do.
#[derive(Clone, Debug)]
pub(super) struct MicrosliceStep {
    given: Option<u64>,
    steps: [u64; STEPS],
    count: usize,
    usual: u64,
}

impl MicrosliceStep {
    pub(super) const fn new(given: Option<Nanos>) -> Self {
        let given = match given {
            Some(Nanos(step)) if step > 0 => Some(step),
            _ => None,
        };
        Self { given, steps: [0; STEPS], count: 0, usual: 0 }
    }

    /// Returns the step; none before there was one.
    pub(super) fn get(&self) -> Option<u64> {
        self.given.or(Some(self.usual).filter(|usual| *usual > 0))
    }

    /// Takes the step `passed` and returns how many microslices are lacking in it.
    pub(super) fn lacking(&mut self, passed: u64) -> u64 {
        self.learn(passed);
        let Some(step) = self.get() else { return 0 };
        (passed.saturating_add(step / 2) / step).saturating_sub(1)
    }

    fn learn(&mut self, passed: u64) {
        if self.given.is_some() {
            return;
        }
        let place = &mut self.steps[self.count % STEPS];
        let before = core::mem::replace(place, passed);
        self.count += 1;
        if before == passed && self.count > STEPS {
            return;
        }
        let mut sorted = self.steps;
        let known = &mut sorted[..self.count.min(STEPS)];
        known.sort_unstable();
        self.usual = known[(known.len() - 1) / 4];
    }
}

/// A stretch between two microslices with others lacking between them, at equal distances.
#[derive(Clone, Copy, Debug)]
struct Gap {
    from: u64,
    to: u64,
    lacking: u64,
    /// The first ones of these, which the source dropped.
    dropped: u64,
}

impl Gap {
    /// Returns how many of the first `count` that are lacking start before `time`.
    fn before(&self, time: u64, count: u64) -> u64 {
        let Some(distance) = time.checked_sub(self.from) else { return 0 };
        // The one with number `j`, from 1 on, starts at `from + j * length / (lacking + 1)`.
        let length = u128::from(self.to - self.from).max(1);
        let reached = (u128::from(distance) * (u128::from(self.lacking) + 1)).div_ceil(length);
        u64::try_from(reached.saturating_sub(1)).unwrap_or(u64::MAX).min(count)
    }
}

/// Gaps in the order of time.
#[derive(Debug, Default)]
pub(super) struct GapList(VecDeque<Gap>);

impl GapList {
    /// Adds a gap between two microslices, if any are lacking there or the source dropped some.
    pub(super) fn push(&mut self, from: u64, to: u64, lacking: u64, dropped: u64) {
        let lacking = lacking.max(dropped);
        if lacking > 0 {
            self.0.push_back(Gap { from, to, lacking, dropped });
        }
    }

    /// Returns how many are lacking in `span`, and how many of these the source dropped. Cost: the
    /// gaps from the beginning to the end of the span.
    pub(super) fn within(&self, span: &Range<u64>) -> (u64, u64) {
        let gaps = self.0.iter().take_while(|gap| gap.from < span.end);
        gaps.fold((0, 0), |(lacking, dropped), gap| {
            let between = |count| gap.before(span.end, count) - gap.before(span.start, count);
            (
                lacking.saturating_add(between(gap.lacking)),
                dropped.saturating_add(between(gap.dropped)),
            )
        })
    }

    /// Forgets what lies before `time`.
    pub(super) fn forget(&mut self, time: u64) {
        while self.0.front().is_some_and(|gap| gap.to <= time) {
            self.0.pop_front();
        }
    }
}
