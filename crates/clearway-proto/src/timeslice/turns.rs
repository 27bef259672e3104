//! The turns in which timeslices are dealt to builders, by weight.
//!
//! # Model
//! Turns repeat. With equal weights timeslice `t` goes to builder `t mod M`, with weights a builder
//! has as many turns of a period as its weight says, spread as evenly as whole turns allow. Weight
//! zero: no turns.
//!
//! # Invariants
//! I1. Every node computes the same builder for the same timeslice: no messages are needed for it.

use alloc::vec;
use alloc::vec::Vec;

/// The longest period: bounds the memory of strange weights.
const PERIOD_MAX: u64 = 1 << 20;

/// Turns of one period.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Turns {
    /// The builder of each turn.
    builders: Vec<u32>,
    /// The turns of each builder, ascending.
    of: Vec<Vec<u32>>,
}

impl Turns {
    /// Creates turns by these weights, of which only the ratios count; `None` when all are zero or
    /// the period were above a million.
    pub(super) fn new(weights: &[u32]) -> Option<Self> {
        let divisor = weights.iter().fold(0, |sum, weight| gcd(sum, *weight)).max(1);
        let weights: Vec<u32> = weights.iter().map(|weight| weight / divisor).collect();
        let period: u64 = weights.iter().map(|weight| u64::from(*weight)).sum();
        if period == 0 || period > PERIOD_MAX {
            return None;
        }
        let builders = if weights.iter().all(|weight| *weight <= 1) {
            (0..weights.len() as u32).filter(|builder| weights[*builder as usize] == 1).collect()
        } else {
            spread(&weights, period)
        };
        let mut of = vec![Vec::new(); weights.len()];
        builders
            .iter()
            .enumerate()
            .for_each(|(turn, builder)| of[*builder as usize].push(turn as u32));
        Some(Self { builders, of })
    }

    /// Returns the builder of `timeslice`.
    pub(super) fn builder_of(&self, timeslice: u64) -> usize {
        self.builders[(timeslice % self.builders.len() as u64) as usize] as usize
    }

    /// Returns how many turns of `builder` lie before `timeslice`. Logarithmic in the builder's
    /// turns.
    pub(super) fn before(&self, builder: usize, timeslice: u64) -> u64 {
        let period = self.builders.len() as u64;
        let (periods, turn) = (timeslice / period, (timeslice % period) as u32);
        let turns = &self.of[builder];
        (periods * turns.len() as u64)
            .saturating_add(turns.partition_point(|own| *own < turn) as u64)
    }

    /// Returns the timeslice of the turn of `builder` with this number, from zero; `None` when it
    /// has no turns.
    pub(super) fn nth(&self, builder: usize, number: u64) -> Option<u64> {
        let turns = &self.of[builder];
        let count = turns.len() as u64;
        let period = number.checked_div(count)?;
        let turn = u64::from(turns[(number % count) as usize]);
        Some(period.saturating_mul(self.builders.len() as u64).saturating_add(turn))
    }
}

/// Returns the builders of one period, spread evenly: each turn goes to the builder that is
/// furthest behind its share, the first of equals.
fn spread(weights: &[u32], period: u64) -> Vec<u32> {
    let mut behind = vec![0_i64; weights.len()];
    let turn = |_| {
        behind.iter_mut().zip(weights).for_each(|(behind, weight)| *behind += i64::from(*weight));
        let most = behind.iter().copied().max().unwrap_or(0);
        let next = behind.iter().position(|behind| *behind == most).unwrap_or(0);
        behind[next] -= period as i64;
        next as u32
    };
    (0..period).map(turn).collect()
}

const fn gcd(mut a: u32, mut b: u32) -> u32 {
    while b > 0 {
        (a, b) = (b, a % b);
    }
    a
}

#[cfg(test)]
mod tests {
    use super::*;

    fn first(turns: &Turns, count: u64) -> Vec<usize> {
        (0..count).map(|timeslice| turns.builder_of(timeslice)).collect()
    }

    #[test]
    fn builder_of__equal_builders_take_turns() {
        let turns = Turns::new(&[16, 16, 16]).expect("sound weights");
        assert_eq!(first(&turns, 7), [0, 1, 2, 0, 1, 2, 0]);
        let without = Turns::new(&[4, 0, 4]).expect("sound weights");
        assert_eq!(first(&without, 5), [0, 2, 0, 2, 0]);
    }

    #[test]
    fn builder_of__weights_are_kept_in_each_period_and_spread() {
        let turns = Turns::new(&[1, 4, 2]).expect("sound weights");
        assert_eq!(first(&turns, 7), [1, 2, 1, 0, 1, 2, 1]);
        assert_eq!(first(&turns, 14)[7..], first(&turns, 7));
    }

    #[test]
    fn nth_and_before__agree_with_builder_of() {
        let turns = Turns::new(&[3, 1, 0, 5]).expect("sound weights");
        for builder in [0, 1, 3] {
            let own: Vec<u64> = (0..90).filter(|t| turns.builder_of(*t) == builder).collect();
            let nth: Vec<u64> =
                (0..own.len() as u64).filter_map(|n| turns.nth(builder, n)).collect();
            assert_eq!(nth, own);
            for t in 0..90 {
                let before = own.iter().filter(|own| **own < t).count() as u64;
                assert_eq!(turns.before(builder, t), before, "builder {builder} before {t}");
            }
        }
        assert_eq!(turns.nth(2, 0), None);
    }

    #[test]
    fn new__refuses_no_turns_and_too_many() {
        assert_eq!(Turns::new(&[0, 0]), None);
        assert_eq!(Turns::new(&[u32::MAX, 1]), None);
    }
}
