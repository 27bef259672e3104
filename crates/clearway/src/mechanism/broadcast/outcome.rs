//! What became of one cast: when objects were where, and what the ranks counted.

use std::collections::{BTreeMap, BTreeSet};

use clearway_proto::base::{Bytes, LocalNs, Rank};
use clearway_proto::broadcast::{Algorithm, BroadcastRecord};

use super::fault_injection::ArrivalFaults;
use super::messages::{BroadcastResult, CastTiming};
use super::plan::{CastMode, Millionths};

/// One cast, of a number of objects.
#[derive(Clone, Copy, Debug)]
pub(crate) struct CastParameters {
    /// None of a bare exchange.
    pub(super) mode: CastMode,
    pub(super) length: Bytes,
    pub(super) loss: Millionths,
    /// What else arrivals suffer.
    pub(super) faults: ArrivalFaults,
    pub(super) rhythm: CastTiming,
    pub(super) objects: u32,
}

impl CastParameters {
    /// Returns the long object whose way is noted: one in the middle, when everybody knows
    /// everybody.
    pub(super) const fn sampled_object(&self) -> u32 {
        self.objects / 2
    }
}

/// What became of it.
#[derive(Debug)]
pub(crate) struct CastResult {
    pub(super) cast: CastParameters,
    /// How symbols left at first.
    pub(super) way: Algorithm,
    /// Which other ways symbols took, from when on.
    pub(super) ways: Vec<(Algorithm, LocalNs)>,
    /// By rank; who died has none.
    pub(super) accounts: BTreeMap<Rank, BroadcastResult>,
    /// Ranks that died, and how.
    pub(super) dead_ranks: BTreeMap<Rank, String>,
    /// Ranks that the others put out.
    pub(super) out: BTreeSet<Rank>,
    /// Stamps of two ranks can be compared.
    pub(super) is_one_clock: bool,
}

/// Whose clock counts.
pub(super) const ROOT: Rank = Rank(0);

impl CastResult {
    /// Returns for each object the seconds until the last receiver had it; until the root knew
    /// where clocks cannot be compared.
    pub(super) fn completions(&self) -> Vec<f64> {
        let receivers =
            || self.accounts.iter().filter(|(rank, _)| **rank != ROOT).map(|(_, account)| account);
        let one = |(object, [cast, known]): (usize, &[LocalNs; 2])| {
            let last = receivers()
                .filter_map(|account| account.times.get(object))
                .map(|times| times[0])
                .max();
            // What the root knows was so before. A receiver that waits for a processor between its
            // report and its clock is late.
            let end = if self.is_one_clock { last?.min(*known) } else { *known };
            Some(end.since(*cast).as_secs_f64())
        };
        self.stable_objects().iter().enumerate().filter_map(one).collect()
    }

    /// Returns when the root cast each object that is with everybody, and when it knew that. A bare
    /// exchange has no others.
    fn stable_objects(&self) -> &[[LocalNs; 2]] {
        let Some(root) = self.accounts.get(&ROOT) else { return &[] };
        let count = if self.cast.rhythm == CastTiming::Bare {
            root.times.len()
        } else {
            root.stable as usize
        };
        root.times.get(..count).unwrap_or(&root.times)
    }

    /// Returns the same until the root knew.
    pub(super) fn known(&self) -> Vec<f64> {
        self.stable_objects().iter().map(|[cast, known]| known.since(*cast).as_secs_f64()).collect()
    }

    /// Returns the seconds of one object of each batch, with everything until the root knew that
    /// all have it.
    pub(super) fn amortised(&self) -> Vec<f64> {
        let CastTiming::Batches(count) = self.cast.rhythm else { return Vec::new() };
        // The last one may be shorter, but only where nothing of it was lost.
        let is_whole = self.stable_objects().len() == self.cast.objects as usize;
        let count = count.max(1) as usize;
        let whole = if is_whole {
            self.stable_objects()
        } else {
            &self.stable_objects()[..self.stable_objects().len() / count * count]
        };
        let batches = whole.chunks(count);
        let one = |batch: &[[LocalNs; 2]]| {
            let ([begin, _], [_, end]) = (batch.first()?, batch.last()?);
            Some(end.since(*begin).as_secs_f64() / batch.len() as f64)
        };
        batches.filter_map(one).collect()
    }

    /// Returns the seconds of the root's processor for each object.
    pub(super) fn processor(&self) -> Vec<f64> {
        let root = self.accounts.get(&ROOT);
        let times = root.map_or(&[][..], |root| &root.processor);
        match self.cast.rhythm {
            CastTiming::Ordered => times.iter().map(|time| time.as_secs_f64()).collect(),
            _ => times
                .iter()
                .map(|time| time.as_secs_f64() / f64::from(self.cast.objects.max(1)))
                .collect(),
        }
    }

    /// Returns the longest time in which a receiver got nothing new in the middle of an object, in
    /// seconds.
    pub(super) fn stall(&self) -> f64 {
        self.accounts.values().map(|account| account.stall.as_secs_f64()).fold(0.0, f64::max)
    }

    /// Returns what all ranks counted together.
    pub(super) fn record(&self) -> BroadcastRecord {
        let add = |a: BroadcastRecord, b: &BroadcastRecord| BroadcastRecord {
            sent: a.sent + b.sent,
            repairs: a.repairs + b.repairs,
            received: a.received + b.received,
            doubled: a.doubled + b.doubled,
            damaged: a.damaged + b.damaged,
            early: a.early + b.early,
            reports: a.reports + b.reports,
            polls: a.polls + b.polls,
        };
        self.accounts.values().map(|account| &account.record).fold(BroadcastRecord::default(), add)
    }

    /// Returns what all survivors received, as the end of a sentence.
    pub(super) fn ending(&self) -> String {
        let account = self
            .accounts
            .iter()
            .find(|(rank, _)| !self.out.contains(rank))
            .map(|(_, account)| account);
        let (stable, all) = (account.map_or(0, |account| account.stable), self.cast.objects);
        format!("{} survivors have {stable} of {all} objects, all bytes right", self.accounts.len())
    }

    /// Returns why this is not what was promised, if it is not: wrong bytes, or survivors that
    /// learned different ends.
    pub(super) fn broken(&self) -> Option<String> {
        let faults = self
            .accounts
            .iter()
            .filter_map(|(rank, account)| Some((rank, account.faults.first()?)));
        if let Some((rank, fault)) = faults.min_by_key(|(rank, _)| **rank) {
            return Some(format!("at rank {rank} {fault}"));
        }
        let ends: BTreeSet<(u32, Option<u32>)> = self
            .accounts
            .iter()
            .filter(|(rank, _)| !self.out.contains(rank))
            .map(|(_, account)| {
                (account.stable, account.aborted.filter(|object| *object < self.cast.objects))
            })
            .collect();
        (ends.len() > 1).then(|| format!("survivors received different ends: {ends:?}"))
    }
}

/// Returns the `quantile` (of 1) of `values`, if there are any.
pub(super) fn quantile(values: &[f64], quantile: f64) -> Option<f64> {
    let mut sorted = values.to_vec();
    sorted.sort_by(f64::total_cmp);
    let rank = (quantile * sorted.len() as f64).ceil() as usize;
    sorted.get(rank.saturating_sub(1)).copied()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn outcome(rhythm: CastTiming, stable: u32, root: &[[u64; 2]], receiver: &[u64]) -> CastResult {
        let root = BroadcastResult {
            times: root.iter().map(|times| times.map(LocalNs)).collect(),
            stable,
            ..BroadcastResult::default()
        };
        let receiver = BroadcastResult {
            times: receiver.iter().map(|at| [LocalNs(*at); 2]).collect(),
            ..BroadcastResult::default()
        };
        let objects = root.times.len() as u32;
        let (length, loss, faults) = (Bytes(4), Millionths(0), ArrivalFaults::default());
        CastResult {
            cast: CastParameters { mode: CastMode::Auto, length, loss, faults, rhythm, objects },
            way: Algorithm::Multicast,
            ways: Vec::new(),
            accounts: BTreeMap::from([(ROOT, root), (Rank(1), receiver)]),
            dead_ranks: BTreeMap::new(),
            out: BTreeSet::new(),
            is_one_clock: true,
        }
    }

    #[test]
    fn completions__nobody_has_an_object_later_than_the_root_knows_it() {
        // The second receiver's clock was read late.
        let outcome = outcome(
            CastTiming::Ordered,
            2,
            &[[0, 258_000], [1_000_000, 1_300_000]],
            &[263_000, 1_200_000],
        );
        assert_eq!(outcome.completions(), [0.000_258, 0.000_2]);
        assert_eq!(outcome.known(), [0.000_258, 0.000_3]);
    }

    #[test]
    fn known__what_is_not_with_everybody_took_no_time_that_could_be_reported() {
        let times = [[0, 10_000], [20_000, 20_000], [30_000, 30_000]];
        let ordered = outcome(CastTiming::Ordered, 1, &times, &[9_000]);
        assert_eq!((ordered.known(), ordered.completions()), (vec![0.000_01], vec![0.000_009]));
        assert!(outcome(CastTiming::Batches(2), 1, &times, &[]).amortised().is_empty());
        assert_eq!(
            outcome(CastTiming::Batches(2), 3, &[[0, 8_000]; 3], &[]).amortised(),
            [0.000_004, 0.000_008]
        );
        assert_eq!(
            outcome(CastTiming::Bare, 0, &times, &[]).known().len(),
            3,
            "each round is over when it was noted"
        );
    }
}
