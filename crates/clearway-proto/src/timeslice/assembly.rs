//! Timeslices that are being put together: which contributions are there.
//!
//! # Model
//! Timeslices go by their *position* in the builder's order. One is complete when every input that
//! takes part and has something for it has contributed; so it can become complete because an input
//! is out.
//!
//! # Invariants
//! I1. A contribution counts once.
//! I2. A builder's timeslices are complete in any order; the oldest one that is not is always
//!     known.

use alloc::collections::BTreeMap;
use alloc::collections::BTreeSet;
use alloc::vec;
use alloc::vec::Vec;
use core::ops::Range;

use super::membership::Journal;
use crate::base::{LocalNs, Nanos};

/// One timeslice.
#[derive(Debug)]
struct Assembly {
    timeslice: u64,
    /// Bit `i`: the contribution of input `i` is there.
    here: Vec<u64>,
    first: LocalNs,
}

/// What a contribution did.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum AssemblyProgress {
    /// It had come before.
    Doubled,
    /// Others are missing.
    Open,
    /// It was the last one.
    Complete(CompleteTimeslice),
}

/// A timeslice that became complete.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct CompleteTimeslice {
    pub(super) position: u64,
    pub(super) timeslice: u64,
    /// Between the first and the last contribution.
    pub(super) took: Nanos,
    /// Inputs that should have contributed and never will.
    pub(super) missing: u32,
}

/// All timeslices of one builder.
#[derive(Debug)]
pub(super) struct Assemblies {
    place: usize,
    open: BTreeMap<u64, Assembly>,
    /// The position of the oldest timeslice that is not complete.
    oldest: u64,
    /// Complete ones behind it.
    ahead: BTreeSet<u64>,
    /// Bit `i`: input `i` takes part.
    members: Vec<u64>,
    /// Of each input: the timeslices that it has something for.
    ranges: Vec<Range<u64>>,
}

impl Assemblies {
    /// Creates an `Assemblies` of the builder at `place`, as `journal` says who takes part.
    pub(super) fn new(place: usize, inputs: usize, journal: &Journal) -> Self {
        let (open, ahead) = (BTreeMap::new(), BTreeSet::new());
        let members = vec![0; inputs.div_ceil(64)];
        let ranges = (0..inputs).map(|input| journal.range(input)).collect();
        Self { place, open, oldest: 0, ahead, members, ranges }
    }

    /// Returns the position of the oldest timeslice that is not complete.
    pub(super) const fn row(&self) -> u64 {
        self.oldest
    }

    /// Returns the first input that the oldest timeslice in the making lacks.
    pub(super) fn awaited(&self) -> Option<usize> {
        let (_, oldest) = self.open.first_key_value()?;
        let lacks = oldest.here.iter().zip(&self.members).map(|(here, members)| members & !here);
        let (word, bits) = lacks.enumerate().find(|(_, bits)| *bits != 0)?;
        Some(word * 64 + bits.trailing_zeros() as usize)
    }

    /// Timeslices of which something is there.
    pub(super) fn open(&self) -> usize {
        self.open.len()
    }

    /// Returns how many positions are complete from `position` on.
    pub(super) fn complete_from(&self, position: u64) -> impl Iterator<Item = u64> + '_ {
        (position..self.oldest).chain(self.ahead.range(position.max(self.oldest)..).copied())
    }

    /// Sets that from now on the input at `place` has something for the timeslices in `range`; for
    /// none without one.
    pub(super) fn expect(&mut self, place: usize, range: Option<Range<u64>>) {
        let (word, bit) = (&mut self.members[place / 64], 1 << (place % 64));
        *word = if range.is_some() { *word | bit } else { *word & !bit };
        self.ranges[place] = range.unwrap_or(0..0);
    }

    /// Forgets what the input at `place` contributed to `start` and later timeslices.
    pub(super) fn forget(&mut self, place: usize, start: u64) {
        let (word, bit) = (place / 64, 1 << (place % 64));
        let later = self.open.values_mut().filter(|assembly| assembly.timeslice >= start);
        later.for_each(|assembly| assembly.here[word] &= !bit);
        self.open.retain(|_, assembly| assembly.here.iter().any(|here| *here != 0));
    }

    /// Records that the contribution of the input at `place` to `timeslice` landed, which is this
    /// builder's at `position`.
    pub(super) fn landed(
        &mut self,
        now: LocalNs,
        journal: &Journal,
        place: usize,
        [position, timeslice]: [u64; 2],
    ) -> AssemblyProgress {
        if position < self.oldest || self.ahead.contains(&position) {
            return AssemblyProgress::Doubled;
        }
        let words = self.members.len();
        let new = || Assembly { timeslice, here: vec![0; words], first: now };
        let assembly = self.open.entry(position).or_insert_with(new);
        let (word, bit) = (&mut assembly.here[place / 64], 1 << (place % 64));
        if *word & bit != 0 {
            return AssemblyProgress::Doubled;
        }
        *word |= bit;
        if !is_whole(&self.members, &self.ranges, assembly) {
            return AssemblyProgress::Open;
        }
        match self.complete(now, journal, position) {
            Some(complete) => AssemblyProgress::Complete(complete),
            None => AssemblyProgress::Open,
        }
    }

    /// Returns what became complete because others are expected than before.
    pub(super) fn look_again(&mut self, now: LocalNs, journal: &Journal) -> Vec<CompleteTimeslice> {
        let place = self.place;
        // Contributions that stand elsewhere now were sent by inputs that are out; nobody else had
        // come so far.
        self.open
            .retain(|position, assembly| journal.nth(place, *position) == Some(assembly.timeslice));
        let whole = self
            .open
            .iter()
            .filter(|(_, assembly)| is_whole(&self.members, &self.ranges, assembly));
        let whole: Vec<u64> = whole.map(|(position, _)| *position).collect();
        whole.into_iter().filter_map(|position| self.complete(now, journal, position)).collect()
    }

    /// Goes past positions that nobody has anything for; says which.
    pub(super) fn skip(&mut self, journal: &Journal) -> Vec<u64> {
        let mut skipped = Vec::new();
        while let Some(timeslice) = journal.nth(self.place, self.oldest)
            && timeslice < journal.next_start()
            && !self.open.contains_key(&self.oldest)
            && !self.ranges.iter().any(|range| range.contains(&timeslice))
        {
            skipped.push(self.oldest);
            self.pass(self.oldest);
        }
        skipped
    }

    fn complete(
        &mut self,
        now: LocalNs,
        journal: &Journal,
        position: u64,
    ) -> Option<CompleteTimeslice> {
        let Assembly { timeslice, here, first } = self.open.remove(&position)?;
        self.pass(position);
        let is_missing = |input: &usize| {
            here[input / 64] >> (input % 64) & 1 == 0 && journal.is_missed(*input, timeslice)
        };
        let missing = (0..self.ranges.len()).filter(is_missing).count() as u32;
        Some(CompleteTimeslice { position, timeslice, took: now.since(first), missing })
    }

    fn pass(&mut self, position: u64) {
        self.ahead.insert(position);
        while self.ahead.remove(&self.oldest) {
            self.oldest += 1;
        }
    }
}

/// Returns whether everybody who should have contributed has.
fn is_whole(members: &[u64], ranges: &[Range<u64>], assembly: &Assembly) -> bool {
    let mut absent =
        members.iter().zip(&assembly.here).map(|(members, here)| members & !here).enumerate();
    absent.all(|(word, mut absent)| {
        while absent != 0 {
            if ranges[word * 64 + absent.trailing_zeros() as usize].contains(&assembly.timeslice) {
                return false;
            }
            absent &= absent - 1;
        }
        true
    })
}

#[cfg(test)]
mod tests {
    use alloc::sync::Arc;

    use super::*;
    use crate::base::Rank;
    use crate::timeslice::layout::TimesliceLayout;

    fn journal() -> Journal {
        let layout = TimesliceLayout::new(vec![Rank(0), Rank(1)], vec![Rank(2), Rank(3)], &[])
            .expect("a sound layout");
        Journal::new(&Arc::new(layout))
    }

    fn assemblies(journal: &Journal) -> Assemblies {
        let mut assemblies = Assemblies::new(1, 2, journal);
        (0..2).for_each(|place| assemblies.expect(place, Some(0..u64::MAX)));
        assemblies
    }

    #[test]
    fn landed__completes_in_any_order_and_counts_once() {
        let journal = journal();
        let mut assemblies = assemblies(&journal);
        let mut landed = |now, place, timeslice| {
            assemblies.landed(LocalNs(now), &journal, place, [timeslice / 2, timeslice])
        };
        let complete = |position, timeslice, took| {
            AssemblyProgress::Complete(CompleteTimeslice {
                position,
                timeslice,
                took: Nanos(took),
                missing: 0,
            })
        };
        assert_eq!(landed(10, 0, 3), AssemblyProgress::Open);
        assert_eq!(landed(11, 0, 3), AssemblyProgress::Doubled);
        assert_eq!(landed(12, 0, 1), AssemblyProgress::Open);
        assert_eq!(landed(15, 1, 3), complete(1, 3, 5));
        assert_eq!(landed(16, 1, 3), AssemblyProgress::Doubled);
        assert_eq!(landed(20, 1, 1), complete(0, 1, 8));
        assert_eq!(landed(21, 1, 1), AssemblyProgress::Doubled);
        assert_eq!((assemblies.row(), assemblies.open()), (2, 0));
    }

    #[test]
    fn look_again__an_input_that_is_out_is_missing_and_not_waited_for() {
        let journal = journal();
        let mut assemblies = assemblies(&journal);
        assert_eq!(assemblies.landed(LocalNs(10), &journal, 0, [0, 1]), AssemblyProgress::Open);
        assemblies.expect(1, None);
        let complete = CompleteTimeslice { position: 0, timeslice: 1, took: Nanos(20), missing: 1 };
        assert_eq!(assemblies.look_again(LocalNs(30), &journal), [complete]);
        assert_eq!(assemblies.complete_from(0).collect::<Vec<_>>(), [0]);
    }
}
