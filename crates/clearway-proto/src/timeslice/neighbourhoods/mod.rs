//! Which hosts are neighbours, decided from the least round-trip times between them.
//!
//! # Model
//! Each pair of hosts exchanges pings in four *quarters* of a time of its own; a quarter has a least
//! round trip, and the distance of a pair is the least of its quarters.
//!
//! Average linkage joins hosts (`linkage`): the two clusters with the least mean distance become one,
//! until one is left. The heights of these joints ascend. A cut between two successive joints gives
//! parts, and they are those of the network if
//!
//! 1. the upper joint is at least [`RATIO_PERCENT`] of the lower one;
//! 2. their difference is at least [`NOISE_TIMES`] the *noise*: the median, over all pairs, of the
//!    difference between the two least quarters, but at least that of the [`NOISE_PAIRS`]th pair, or
//!    of the last one of fewer. It says how well a minimum is known;
//! 3. more than half of the hosts are in parts of two or more, and there are two such parts: a host
//!    alone may be slow, and not far away;
//! 4. the parts are stable: the odd quarters alone and the even ones alone give the same ones after
//!    as many joints.
//!
//! The highest such cut counts, since cables are fewest at the top. Without one the network shows no
//! parts, and all hosts are in one: false parts are worse than none. So it is with fewer than
//! [`PAIRS_MIN`] known distances, which agree by chance. Hosts without a known distance to the others
//! are together in a part of their own, unless no distance is known at all.
//!
//! Noise that lasts as long as the measurement looks like distance.
//!
//! # Source
//! Average linkage: Sokal and Michener (1958). Single linkage does not suit a dragonfly, where two
//! hosts at the ends of one global cable are as near as two in a group.
//!
//! # Not here
//! The pings: `congestion`. Which hosts ping each other when: [`Tournament`].

mod linkage;
mod tournament;

use alloc::collections::BTreeMap;
use alloc::vec;
use alloc::vec::Vec;

use self::linkage::{Dendrogram, PairDistance};
use crate::base::Nanos;
pub use tournament::Tournament;

/// Two successive joints are apart if the upper one is this much of the lower one: cables of one
/// kind that differ in length by 10 m differ by 0.1 us of a round trip of some microseconds.
const RATIO_PERCENT: u64 = 105;
/// And if their difference is this many times the noise: then none of 60,000 drawn networks without
/// parts was split, with noise of four shapes and of up to ten round trips.
const NOISE_TIMES: u64 = 4;
/// Parts of the time in which a pair exchanges pings.
pub const QUARTERS: usize = 4;
/// Pairs of six hosts, three of which may be missing: of four hosts one network in 50,000 was split.
const PAIRS_MIN: usize = 12;
/// Pairs whose noise does not exceed what counts as such, where half of all pairs are fewer: few
/// pairs agree by chance.
const NOISE_PAIRS: usize = 20;

/// Least round-trip times between hosts; some may be missing.
#[derive(Clone, Debug, Default)]
pub struct RoundTripTable {
    hosts: u32,
    /// By pair, the lower host first.
    pairs: BTreeMap<(u32, u32), [Option<Nanos>; QUARTERS]>,
}

/// The parts of a network.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct NetworkParts {
    /// The part of each host, numbered in the order of their first hosts.
    pub of_host: Vec<u32>,
    /// The median distance of hosts in one part.
    pub within: Nanos,
    /// The median distance of hosts in different parts; zero where no pair of such hosts is known.
    pub between: Nanos,
    /// The part of hosts without a known distance to the others, if there are any.
    pub silent: Option<u32>,
}

impl NetworkParts {
    /// Returns how many parts there are.
    pub fn count(&self) -> usize {
        self.of_host.iter().max().map_or(0, |last| *last as usize + 1)
    }
}

impl RoundTripTable {
    /// Creates a table of `hosts` without a known distance.
    pub const fn new(hosts: u32) -> Self {
        Self { hosts, pairs: BTreeMap::new() }
    }

    /// Adds what hosts `a` and `b` measured in `quarter`; the least counts. What is no pair or no
    /// quarter is passed over.
    pub fn add(&mut self, a: u32, b: u32, quarter: usize, round_trip: Nanos) {
        if a == b || a.max(b) >= self.hosts || quarter >= QUARTERS {
            return;
        }
        let quarters = self.pairs.entry((a.min(b), a.max(b))).or_default();
        if let Some(least) = quarters.get_mut(quarter) {
            *least = Some(least.map_or(round_trip, |known| known.min(round_trip)));
        }
    }

    /// Returns how many pairs have a known distance.
    pub fn known_pairs(&self) -> usize {
        self.pairs.len()
    }

    /// Decides which hosts are neighbours. O(h p log p) for h hosts and p pairs at most.
    pub fn parts(&self) -> NetworkParts {
        if self.pairs.is_empty() {
            return NetworkParts {
                of_host: vec![0; self.hosts as usize],
                ..NetworkParts::default()
            };
        }
        let all = self.dendrogram(|_| true);
        let halves = [0, 1].map(|odd| self.dendrogram(|quarter| quarter % 2 == odd));
        let is_cut = |joints: &usize| {
            let labels = all.cut(*joints);
            have_parts(&labels) && halves.iter().all(|half| half.cut(*joints) == labels)
        };
        let noise = self.noise().filter(|_| self.pairs.len() >= PAIRS_MIN);
        let is_clear = |joints: &usize| match (all.height(*joints - 1), all.height(*joints), noise)
        {
            (Some(lower), Some(upper), Some(noise)) => are_apart(lower, upper, noise),
            _ => false,
        };
        let joints = (1..all.joints()).rev().filter(is_clear).find(is_cut);
        self.named(&all.cut(joints.unwrap_or(all.joints())), &all.largest())
    }

    /// Returns the joints of all hosts by the quarters that `is_used` names.
    fn dendrogram(&self, is_used: impl Fn(usize) -> bool) -> Dendrogram {
        let least = |quarters: &[Option<Nanos>; QUARTERS]| {
            let used = quarters.iter().enumerate().filter(|(number, _)| is_used(*number));
            used.filter_map(|(_, time)| *time).min()
        };
        let known = self.pairs.iter().filter_map(|((a, b), quarters)| {
            Some(PairDistance { hosts: [*a, *b], distance: least(quarters)? })
        });
        Dendrogram::new(self.hosts, known)
    }

    /// Returns how well a distance is known; `None` where no pair has two quarters.
    fn noise(&self) -> Option<Nanos> {
        let spread = |quarters: &[Option<Nanos>; QUARTERS]| {
            let mut known: Vec<Nanos> = quarters.iter().flatten().copied().collect();
            known.sort_unstable();
            match known[..] {
                [first, second, ..] => Some(second - first),
                _ => None,
            }
        };
        let mut spreads: Vec<Nanos> = self.pairs.values().filter_map(spread).collect();
        spreads.sort_unstable();
        let count = spreads.len();
        let rank = count.div_ceil(2).max(count.min(NOISE_PAIRS));
        spreads.get(rank.checked_sub(1)?).copied()
    }

    /// Numbers the parts of `labels`; hosts that are not `members` are one.
    fn named(&self, labels: &[u32], members: &[bool]) -> NetworkParts {
        let mut numbers: BTreeMap<Option<u32>, u32> = BTreeMap::new();
        let mut of_host = vec![0; labels.len()];
        for ((part, label), is_member) in of_host.iter_mut().zip(labels).zip(members) {
            let next = numbers.len() as u32;
            *part = *numbers.entry(is_member.then_some(*label)).or_insert(next);
        }
        let mut times: [Vec<Nanos>; 2] = [Vec::new(), Vec::new()];
        for ((a, b), quarters) in &self.pairs {
            let (Some(least), Some(one), Some(other)) = (
                quarters.iter().flatten().min(),
                of_host.get(*a as usize),
                of_host.get(*b as usize),
            ) else {
                continue;
            };
            times[usize::from(one != other)].push(*least);
        }
        // One pair that was held up must not stand for all.
        let [within, between] = times.map(|mut times| {
            times.sort_unstable();
            times.get(times.len() / 2).copied().unwrap_or_default()
        });
        let silent = numbers.get(&None).copied();
        NetworkParts { of_host, within, between, silent }
    }
}

/// Returns whether a joint of height `upper` is clearly above one of height `lower`.
fn are_apart(lower: u64, upper: u64, noise: Nanos) -> bool {
    let (lower, upper) = (u128::from(lower), u128::from(upper));
    let least = u128::from(noise.0) * u128::from(NOISE_TIMES) * u128::from(linkage::SCALE);
    upper * 100 >= lower * u128::from(RATIO_PERCENT) && upper - lower >= least
}

/// Returns whether `labels` have two parts of two hosts or more, with more than half of the hosts.
fn have_parts(labels: &[u32]) -> bool {
    let mut sizes: BTreeMap<u32, usize> = BTreeMap::new();
    labels.iter().for_each(|label| *sizes.entry(*label).or_default() += 1);
    let several = || sizes.values().filter(|size| **size > 1);
    several().count() > 1 && 2 * several().sum::<usize>() > labels.len()
}

#[cfg(test)]
mod tests;
