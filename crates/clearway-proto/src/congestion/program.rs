//! A program of the user's as a victim: which run comes next, what the pairs of runs say, and what
//! may be concluded.
//!
//! # Model
//! A program runs alone and under load, again and again. One run of each is a *pair*, and a
//! pair gives one slowdown: its run under load over its run alone. A drift over minutes
//! (temperature, other jobs) meets both runs of a pair alike. Within a pair the order is drawn, and
//! the next pair has the other order, so that what the first of two runs does to the second
//! cancels. The run before all pairs does not count: it fills caches.
//!
//! The slowdown of the case is the median over pairs, with the interval of the sign test: few runs,
//! of unknown distribution, allow nothing finer. The number of pairs is fixed before the first: to
//! stop when the figure pleases is to choose it.
//!
//! # Invariants
//! I1. Of any two pairs 2i and 2i + 1 one begins alone and one under load.
//! I2. A run that did not end in its time is infinitely slow; it is never left out.

use alloc::format;
use alloc::vec::Vec;

use serde::{Deserialize, Serialize};

use crate::base::RandomKey;
use crate::stats::{Estimate, MEDIAN_MAX};

use super::verdict::{NetworkOutcome, REACH, Rules, Verdict, invalid};

/// With whom a run shares the network.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NetworkSharing {
    /// With nobody of this test.
    Alone,
    /// With congestors.
    Congestors,
}

/// What a run gives.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Figure {
    /// The wall time of the program.
    Wall,
    /// A number that the program prints: the less the better.
    Time,
    /// A number that the program prints: the more the better.
    Rate,
}

/// The pairs of one case: name the next run, and take its figure.
#[derive(Clone, Debug)]
pub struct RunPairs {
    key: RandomKey,
    figure: Figure,
    wanted: usize,
    is_warm: bool,
    /// The first run of the pair under way.
    half: Option<f64>,
    /// Alone, and under load.
    done: Vec<[f64; 2]>,
}

impl RunPairs {
    /// Creates an empty list of runs, of at most [`MEDIAN_MAX`] pairs; `key` belongs to this case.
    pub fn new(key: RandomKey, figure: Figure, wanted: usize) -> Self {
        let wanted = wanted.min(MEDIAN_MAX);
        Self { key, figure, wanted, is_warm: false, half: None, done: Vec::with_capacity(wanted) }
    }

    /// Returns how the next run is to be made; nothing when all are there.
    pub fn next(&self) -> Option<NetworkSharing> {
        if !self.is_warm {
            return Some(NetworkSharing::Alone);
        }
        let [first, second] = self.order(self.done.len());
        match (self.done.len() < self.wanted, self.half) {
            (false, _) => None,
            (true, None) => Some(first),
            (true, Some(_)) => Some(second),
        }
    }

    /// Takes the figure of the run that [`RunPairs::next`] asked for: nanoseconds, or what the
    /// program printed; infinite for a run that did not end in time.
    pub fn record(&mut self, figure: f64) {
        if !self.is_warm {
            self.is_warm = true;
            return;
        }
        match self.half.take() {
            None => self.half = Some(figure),
            Some(first) => {
                let pair = match self.order(self.done.len()) {
                    [NetworkSharing::Alone, _] => [first, figure],
                    [NetworkSharing::Congestors, _] => [figure, first],
                };
                self.done.push(pair);
            }
        }
    }

    /// Returns which of the runs of pair `number` comes first.
    fn order(&self, number: usize) -> [NetworkSharing; 2] {
        let drawn =
            self.key.purpose("order of a pair").node(number as u64 / 2).stream().next_u64() & 1;
        match (drawn + number as u64) & 1 {
            0 => [NetworkSharing::Alone, NetworkSharing::Congestors],
            _ => [NetworkSharing::Congestors, NetworkSharing::Alone],
        }
    }

    /// Returns how many whole pairs there are so far.
    pub fn count(&self) -> usize {
        self.done.len()
    }

    /// Returns the slowdown of each pair, in their order: how many times worse the program does
    /// under load.
    pub fn slowdowns(&self) -> impl Iterator<Item = f64> {
        self.done.iter().map(|pair| self.slowdown(*pair))
    }

    fn slowdown(&self, [alone, loaded]: [f64; 2]) -> f64 {
        let (above, below) = match self.figure {
            Figure::Wall | Figure::Time => (loaded, alone),
            // A run that did not end has no rate; its figure is infinite all the same.
            Figure::Rate if loaded.is_infinite() => return f64::INFINITY,
            Figure::Rate => (alone, loaded),
        };
        if above.is_infinite() || below <= 0.0 { f64::INFINITY } else { above / below }
    }

    /// Returns the figures of the runs with this company, in the order of their pairs.
    pub fn figures(&self, company: NetworkSharing) -> impl Iterator<Item = f64> {
        self.done.iter().map(move |[alone, loaded]| match company {
            NetworkSharing::Alone => *alone,
            NetworkSharing::Congestors => *loaded,
        })
    }
}

/// What was measured of a program under load.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct ProgramEvidence {
    /// Median slowdown.
    pub slowdown: Estimate,
    /// What congestors reached of their max-min fair rate meanwhile; absent where that is not
    /// known.
    pub congestor_share: Option<f64>,
}

const PAIRS: &str = "Run more pairs (`--pairs`), or let the program run longer.";

/// Applies `rules` to `evidence`.
pub fn judge_program(rules: &Rules, evidence: &ProgramEvidence) -> Verdict {
    let ProgramEvidence { slowdown: Estimate { value, low, high, .. }, congestor_share } =
        *evidence;
    let limit = rules.slowdown_max;
    let verdict =
        |outcome, reason| Verdict { outcome, reasons: Vec::from([reason]), next_steps: Vec::new() };
    if low > limit {
        let reason = match value.is_finite() {
            true => format!(
                "the program takes {value:.2} times as long under load, at least {low:.2} times"
            ),
            false => format!(
                "under load the program often does not end in its time; it takes at least {low:.2} times as long"
            ),
        };
        return verdict(NetworkOutcome::Congested, reason);
    }
    if high > limit {
        let reason = format!(
            "the program takes between {low:.2} and {high:.2} times as long under load, on both sides of the limit \
             {limit}"
        );
        return invalid(Vec::from([(reason, PAIRS)]));
    }
    if let Some(share) = congestor_share.filter(|share| *share < rules.congestor_share_min) {
        let reason = format!(
            "congestors reached {:.0} % of their fair rate, {:.0} % are needed to say that they do no harm",
            share * 100.0,
            rules.congestor_share_min * 100.0
        );
        return invalid(Vec::from([(reason, REACH)]));
    }
    let reason = format!(
        "the program takes at most {high:.2} times as long under load, the limit is {limit}"
    );
    verdict(NetworkOutcome::Contained, reason)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Runs all runs of a case: who, in order, with figures from `of`.
    fn run(pairs: &mut RunPairs, of: impl Fn(NetworkSharing, usize) -> f64) -> Vec<NetworkSharing> {
        let mut order = Vec::new();
        while let Some(company) = pairs.next() {
            pairs.record(of(company, order.len()));
            order.push(company);
        }
        order
    }

    fn pairs(seed: u64, figure: Figure, count: usize) -> RunPairs {
        RunPairs::new(RandomKey::new(seed), figure, count)
    }

    #[test]
    fn next__warms_up_then_gives_both_orders_in_every_two_pairs() {
        for seed in 0..20 {
            let order = run(&mut pairs(seed, Figure::Wall, 10), |_, _| 1.0);
            assert_eq!((order.len(), order[0]), (21, NetworkSharing::Alone));
            for four in order[1..].chunks(4) {
                assert_ne!(four[0], four[1]);
                assert_ne!(four[2], four[3]);
                assert_ne!(four[0], four[2]);
            }
        }
    }

    #[test]
    fn next__the_order_is_drawn() {
        let firsts: Vec<NetworkSharing> =
            (0..20).map(|seed| run(&mut pairs(seed, Figure::Wall, 1), |_, _| 1.0)[1]).collect();
        assert!(
            firsts.contains(&NetworkSharing::Alone) && firsts.contains(&NetworkSharing::Congestors)
        );
    }

    #[test]
    fn slowdowns__compare_within_a_pair_whatever_drifts() {
        let mut all = pairs(7, Figure::Wall, 6);
        // Everything takes longer from run to run; congestors triple it. The warm-up must not
        // count.
        run(&mut all, |company, at| {
            let drift = if at == 0 { 1e9 } else { 100.0 + at.div_ceil(2) as f64 };
            if company == NetworkSharing::Alone { drift } else { 3.0 * drift }
        });
        assert_eq!(all.slowdowns().collect::<Vec<_>>(), [3.0; 6]);
        assert_eq!(
            all.figures(NetworkSharing::Alone).collect::<Vec<_>>(),
            [101.0, 102.0, 103.0, 104.0, 105.0, 106.0]
        );
    }

    #[test]
    fn slowdowns__of_a_rate_are_the_other_way_round() {
        let mut all = pairs(7, Figure::Rate, 1);
        run(&mut all, |company, _| if company == NetworkSharing::Alone { 80.0 } else { 20.0 });
        assert_eq!(all.slowdowns().collect::<Vec<_>>(), [4.0]);
    }

    #[test]
    fn slowdowns__a_run_without_end_or_without_rate_is_infinite() {
        for (figure, loaded) in
            [(Figure::Wall, f64::INFINITY), (Figure::Rate, f64::INFINITY), (Figure::Rate, 0.0)]
        {
            let mut all = pairs(7, figure, 1);
            run(
                &mut all,
                |company, _| if company == NetworkSharing::Alone { 80.0 } else { loaded },
            );
            assert_eq!(all.slowdowns().collect::<Vec<_>>(), [f64::INFINITY], "{figure:?}");
        }
    }

    fn outcome(value: f64, low: f64, high: f64, congestor_share: Option<f64>) -> NetworkOutcome {
        let slowdown = Estimate::new(value, [low, high], 10);
        judge_program(&Rules::default(), &ProgramEvidence { slowdown, congestor_share }).outcome
    }

    #[test]
    fn judge_program__says_only_what_the_interval_allows() {
        assert_eq!(outcome(1.01, 0.99, 1.05, Some(1.0)), NetworkOutcome::Contained);
        assert_eq!(outcome(1.4, 1.2, 1.6, Some(1.0)), NetworkOutcome::Congested);
        assert_eq!(outcome(1.2, 0.9, 1.6, Some(1.0)), NetworkOutcome::Invalid);
        assert_eq!(outcome(f64::INFINITY, 2.0, f64::INFINITY, None), NetworkOutcome::Congested);
        assert_eq!(outcome(1.0, 0.0, f64::INFINITY, None), NetworkOutcome::Invalid);
    }

    #[test]
    fn judge_program__weak_congestors_convict_and_never_acquit() {
        assert_eq!(outcome(1.01, 0.99, 1.05, Some(0.5)), NetworkOutcome::Invalid);
        assert_eq!(outcome(1.4, 1.2, 1.6, Some(0.5)), NetworkOutcome::Congested);
        assert_eq!(outcome(1.01, 0.99, 1.05, None), NetworkOutcome::Contained);
    }
}
