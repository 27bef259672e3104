//! Timeslices that are being put together: which contributions are there.
//!
//! # Invariants
//! I1. A contribution counts once.
//! I2. A builder's timeslices are complete in any order; the oldest one that is not is always known.

use alloc::collections::BTreeMap;
use alloc::collections::BTreeSet;
use alloc::vec;
use alloc::vec::Vec;

use super::layout::Layout;
use crate::base::{LocalNs, Nanos};

/// One timeslice.
#[derive(Debug)]
struct Assembly {
    /// Bit `i`: the contribution of input `i` is there.
    here: Vec<u64>,
    count: usize,
    first: LocalNs,
}

/// What a contribution did.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Progress {
    /// It had come before.
    Doubled,
    /// Others are missing.
    Open,
    /// It was the last one; the first came so long before.
    Complete(Nanos),
}

/// All timeslices of one builder.
#[derive(Debug)]
pub(super) struct Assemblies {
    place: usize,
    inputs: usize,
    open: BTreeMap<u64, Assembly>,
    /// The oldest timeslice that is not complete, and which one of this builder's it is.
    oldest: u64,
    row: u64,
    /// Complete ones behind it.
    ahead: BTreeSet<u64>,
}

impl Assemblies {
    /// Of the builder at `place`.
    pub(super) fn new(place: usize, layout: &Layout) -> Self {
        let (inputs, oldest) = (layout.inputs().len(), layout.next_of(place, 0));
        Self { place, inputs, open: BTreeMap::new(), oldest, row: 0, ahead: BTreeSet::new() }
    }

    /// Which one of this builder's timeslices is the oldest that is not complete.
    pub(super) const fn row(&self) -> u64 {
        self.row
    }

    /// A timeslice near which others may be expected.
    pub(super) const fn near(&self) -> u64 {
        self.oldest
    }

    /// Whether `timeslice` is this builder's.
    pub(super) fn is_of(&self, layout: &Layout, timeslice: u64) -> bool {
        layout.builder_of(timeslice) == self.place
    }

    /// Timeslices of which something is there.
    pub(super) fn open(&self) -> usize {
        self.open.len()
    }

    /// The contribution of the input at `place` to `timeslice` landed.
    pub(super) fn landed(&mut self, now: LocalNs, layout: &Layout, place: usize, timeslice: u64) -> Progress {
        if timeslice < self.oldest || self.ahead.contains(&timeslice) {
            return Progress::Doubled;
        }
        let words = self.inputs.div_ceil(64);
        let assembly =
            self.open.entry(timeslice).or_insert_with(|| Assembly { here: vec![0; words], count: 0, first: now });
        let (word, bit) = (&mut assembly.here[place / 64], 1 << (place % 64));
        if *word & bit != 0 {
            return Progress::Doubled;
        }
        *word |= bit;
        assembly.count += 1;
        if assembly.count < self.inputs {
            return Progress::Open;
        }
        let took = now.since(assembly.first);
        self.open.remove(&timeslice);
        self.complete(layout, timeslice);
        Progress::Complete(took)
    }

    fn complete(&mut self, layout: &Layout, timeslice: u64) {
        self.ahead.insert(timeslice);
        while self.ahead.remove(&self.oldest) {
            self.oldest = layout.next_of(self.place, self.oldest + 1);
            self.row += 1;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::base::Rank;

    #[test]
    fn landed__completes_in_any_order_and_counts_once() {
        let layout = Layout::new(vec![Rank(0), Rank(1)], vec![Rank(2), Rank(3)], &[]).expect("a sound layout");
        let mut assemblies = Assemblies::new(1, &layout);
        let mut landed = |now, place, timeslice| assemblies.landed(LocalNs(now), &layout, place, timeslice);
        assert_eq!(landed(10, 0, 3), Progress::Open);
        assert_eq!(landed(11, 0, 3), Progress::Doubled);
        assert_eq!(landed(12, 0, 1), Progress::Open);
        assert_eq!(landed(15, 1, 3), Progress::Complete(Nanos(5)));
        assert_eq!(landed(16, 1, 3), Progress::Doubled);
        assert_eq!(landed(20, 1, 1), Progress::Complete(Nanos(8)));
        assert_eq!(landed(21, 1, 1), Progress::Doubled);
        assert!(assemblies.is_of(&layout, 5) && !assemblies.is_of(&layout, 4));
        assert_eq!((assemblies.row(), assemblies.near(), assemblies.open()), (2, 5, 0));
    }
}
