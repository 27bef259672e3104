//! What became of one cast: when objects were where, and what the ranks counted.

use std::collections::{BTreeMap, BTreeSet};

use clearway_proto::base::{Bytes, LocalNs, Rank};
use clearway_proto::broadcast::{Record, Way};

use super::plan::{Mode, Share};
use super::rough::Rough;
use super::words::{Account, Rhythm};

/// One cast, of a number of objects.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Cast {
    /// None of a bare exchange.
    pub(super) mode: Mode,
    pub(super) length: Bytes,
    pub(super) loss: Share,
    /// What else arrivals suffer.
    pub(super) rough: Rough,
    pub(super) rhythm: Rhythm,
    pub(super) objects: u32,
}

impl Cast {
    /// The long object whose way is noted: one in the middle, when everybody knows everybody.
    pub(super) const fn filmed(&self) -> u32 {
        self.objects / 2
    }
}

/// What became of it.
#[derive(Debug)]
pub(crate) struct Outcome {
    pub(super) cast: Cast,
    /// How symbols left at first.
    pub(super) way: Way,
    /// Which other ways symbols took, from when on.
    pub(super) ways: Vec<(Way, LocalNs)>,
    /// By rank; who died has none.
    pub(super) accounts: BTreeMap<Rank, Account>,
    /// Ranks that died, and how.
    pub(super) gone: BTreeMap<Rank, String>,
    /// Ranks that the others put out.
    pub(super) out: BTreeSet<Rank>,
    /// Stamps of two ranks can be compared.
    pub(super) is_one_clock: bool,
}

/// Whose clock counts.
pub(super) const ROOT: Rank = Rank(0);

impl Outcome {
    /// For each object the seconds until the last receiver had it; until the root knew where clocks cannot be compared.
    pub(super) fn completions(&self) -> Vec<f64> {
        let Some(root) = self.accounts.get(&ROOT) else { return Vec::new() };
        let receivers = || self.accounts.iter().filter(|(rank, _)| **rank != ROOT).map(|(_, account)| account);
        let one = |(object, [cast, known]): (usize, &[LocalNs; 2])| {
            let last = receivers().filter_map(|account| account.times.get(object)).map(|times| times[0]).max();
            let end = if self.is_one_clock { last? } else { *known };
            Some(end.since(*cast).as_secs_f64())
        };
        root.times.iter().enumerate().take(root.stable as usize).filter_map(one).collect()
    }

    /// The same until the root knew.
    pub(super) fn known(&self) -> Vec<f64> {
        let times = self.accounts.get(&ROOT).map_or(&[][..], |root| &root.times);
        times.iter().map(|[cast, known]| known.since(*cast).as_secs_f64()).collect()
    }

    /// Seconds of one object of each batch, with everything until the root knew that all have it.
    pub(super) fn amortised(&self) -> Vec<f64> {
        let (Some(root), Rhythm::Batches(count)) = (self.accounts.get(&ROOT), self.cast.rhythm) else {
            return Vec::new();
        };
        let batches = root.times.chunks(count.max(1) as usize);
        let one = |batch: &[[LocalNs; 2]]| {
            let ([begin, _], [_, end]) = (batch.first()?, batch.last()?);
            Some(end.since(*begin).as_secs_f64() / batch.len() as f64)
        };
        batches.filter_map(one).collect()
    }

    /// Seconds of the root's processor for each object.
    pub(super) fn processor(&self) -> Vec<f64> {
        let root = self.accounts.get(&ROOT);
        let times = root.map_or(&[][..], |root| &root.processor);
        match self.cast.rhythm {
            Rhythm::Ordered => times.iter().map(|time| time.as_secs_f64()).collect(),
            _ => times.iter().map(|time| time.as_secs_f64() / f64::from(self.cast.objects.max(1))).collect(),
        }
    }

    /// The longest time in which a receiver got nothing new in the middle of an object, in seconds.
    pub(super) fn stall(&self) -> f64 {
        self.accounts.values().map(|account| account.stall.as_secs_f64()).fold(0.0, f64::max)
    }

    /// What all ranks counted together.
    pub(super) fn record(&self) -> Record {
        let add = |a: Record, b: &Record| Record {
            sent: a.sent + b.sent,
            repairs: a.repairs + b.repairs,
            received: a.received + b.received,
            doubled: a.doubled + b.doubled,
            damaged: a.damaged + b.damaged,
            early: a.early + b.early,
            reports: a.reports + b.reports,
            polls: a.polls + b.polls,
        };
        self.accounts.values().map(|account| &account.record).fold(Record::default(), add)
    }

    /// What all survivors were told, as the end of a sentence.
    pub(super) fn ending(&self) -> String {
        let account = self.accounts.iter().find(|(rank, _)| !self.out.contains(rank)).map(|(_, account)| account);
        let (stable, all) = (account.map_or(0, |account| account.stable), self.cast.objects);
        format!("{} survivors have {stable} of {all} objects, all bytes right", self.accounts.len())
    }

    /// Why this is not what was promised, if it is not: wrong bytes, or survivors that were told different ends.
    pub(super) fn broken(&self) -> Option<String> {
        let faults = self.accounts.iter().filter_map(|(rank, account)| Some((rank, account.faults.first()?)));
        if let Some((rank, fault)) = faults.min_by_key(|(rank, _)| **rank) {
            return Some(format!("at rank {rank} {fault}"));
        }
        let ends: BTreeSet<(u32, Option<u32>)> = self
            .accounts
            .iter()
            .filter(|(rank, _)| !self.out.contains(rank))
            .map(|(_, account)| (account.stable, account.aborted.filter(|object| *object < self.cast.objects)))
            .collect();
        (ends.len() > 1).then(|| format!("survivors were told different ends: {ends:?}"))
    }
}

/// The `quantile` (of 1) of `values`, if there are any.
pub(super) fn quantile(values: &[f64], quantile: f64) -> Option<f64> {
    let mut sorted = values.to_vec();
    sorted.sort_by(f64::total_cmp);
    let rank = (quantile * sorted.len() as f64).ceil() as usize;
    sorted.get(rank.saturating_sub(1)).copied()
}
