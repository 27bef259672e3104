//! What one rank records of one test: every timed iteration, and every ring.
//!
//! # Invariants
//! I1. The spectrum holds every timed iteration, exactly: all statistics of the published benchmark
//!     can be made of it.

use alloc::vec::Vec;

use serde::{Deserialize, Serialize};

use super::context::TestFailure;
use crate::base::Nanos;

/// Durations and how often each came, the shortest first.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(transparent)]
pub struct DurationCounts(Vec<(u64, u32)>);

impl DurationCounts {
    /// Creates a `DurationCounts` of `samples` in nanoseconds, in any order.
    pub(super) fn from_samples(mut samples: Vec<u64>) -> Self {
        samples.sort_unstable();
        let mut spectrum: Vec<(u64, u32)> = Vec::new();
        for sample in samples {
            match spectrum.last_mut() {
                Some((time, count)) if *time == sample && *count < u32::MAX => *count += 1,
                _ => spectrum.push((sample, 1)),
            }
        }
        Self(spectrum)
    }

    /// Returns each duration in nanoseconds and its count.
    pub(super) fn iter(&self) -> impl Iterator<Item = (u64, u32)> + '_ {
        self.0.iter().copied()
    }
}

/// Timed iterations of one loop.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Times {
    /// How long all iterations of each ring took together, ring after ring; of each measurement
    /// where there are no rings.
    pub blocks: Vec<Nanos>,
    /// Iterations of each block.
    pub iterations: u32,
    /// Every iteration by itself.
    pub spectrum: DurationCounts,
}

/// A test as one rank saw it.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct GpcnetRecord {
    /// Which test.
    pub number: u32,
    /// Why it ended before its end, if it did.
    pub failure: Option<TestFailure>,
    /// Ranks of its slice or group.
    pub ranks: u32,
    /// The test; of a congestor, its first pass.
    pub times: Times,
    /// What a congestor did while victims ran.
    pub with_victims: Times,
    /// Segments that were sent again.
    pub resent: u64,
    /// Sums that were wrong.
    pub wrong: u64,
    /// Arrivals of other tests, or not understood.
    pub foreign: u64,
}

/// Where a loop's times are collected. Memory grows between blocks, never within one.
#[derive(Debug, Default)]
pub(super) struct Collector {
    blocks: Vec<Nanos>,
    iterations: u32,
    samples: Vec<u64>,
}

impl Collector {
    pub(super) const fn new(iterations: u32) -> Self {
        Self { blocks: Vec::new(), iterations, samples: Vec::new() }
    }

    /// Makes room for one more block.
    pub(super) fn open_block(&mut self) {
        self.blocks.reserve(1);
        self.samples.reserve(self.iterations as usize);
    }

    pub(super) fn iteration(&mut self, time: Nanos) {
        self.samples.push(time.0);
    }

    pub(super) fn close_block(&mut self, time: Nanos) {
        self.blocks.push(time);
    }

    pub(super) fn take(&mut self) -> Times {
        let Self { blocks, iterations, samples } = core::mem::take(self);
        Times { blocks, iterations, spectrum: DurationCounts::from_samples(samples) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn spectrum__counts_equal_durations_once_each() {
        let spectrum = DurationCounts::from_samples([7, 3, 7, 7, 5].into());
        assert_eq!(spectrum.iter().collect::<Vec<_>>(), [(3, 1), (5, 1), (7, 3)]);
    }

    #[test]
    fn record__survives_json() {
        let times = Times {
            blocks: [Nanos(9)].into(),
            iterations: 2,
            spectrum: DurationCounts::from_samples([4, 5].into()),
        };
        let record = GpcnetRecord {
            number: 3,
            failure: Some(TestFailure::NoRead),
            ranks: 4,
            times,
            ..GpcnetRecord::default()
        };
        let text = serde_json::to_string(&record).expect("a record is JSON");
        assert_eq!(serde_json::from_str::<GpcnetRecord>(&text).expect("and back"), record);
    }
}
