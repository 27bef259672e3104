//! Who is an input, who is a builder, and which builder gets which timeslice.
//!
//! # Model
//! Timeslices are dealt to builders in *turns* that repeat: with equal weights timeslice `t` goes to builder `t mod M`, with
//! weights a builder has as many turns of a period as its weight says, spread as evenly as whole turns allow.
//!
//! # Invariants
//! I1. Every node computes the same builder for the same timeslice: no messages are needed for it.
//! I2. Every builder has at least one turn in a period.

use alloc::vec;
use alloc::vec::Vec;

use crate::base::Rank;

/// The longest period: bounds the memory of a layout with strange weights.
const PERIOD_MAX: usize = 1 << 20;

/// What a rank does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Role {
    /// It has contributions. The value is its place among the inputs.
    Input(usize),
    /// It builds timeslices. The value is its place among the builders.
    Builder(usize),
}

/// The inputs and builders of a job.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Layout {
    inputs: Vec<Rank>,
    builders: Vec<Rank>,
    roles: Vec<Option<Role>>,
    /// The builder of each turn of a period.
    turns: Vec<u32>,
    /// The turns of each builder, ascending.
    turns_of: Vec<Vec<u32>>,
}

/// These ranks are no layout.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum LayoutError {
    /// No inputs, or no builders.
    Empty,
    /// A rank stands in it twice.
    Twice(Rank),
    /// A weight is zero, there are not as many as builders, or their sum is above a million.
    Weights,
}

impl core::fmt::Display for LayoutError {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        match self {
            Self::Empty => f.write_str("timeslices need at least one input and one builder"),
            Self::Twice(rank) => write!(f, "rank {} has two roles; give each rank one", rank.0),
            Self::Weights => f.write_str("weights are one positive number for each builder, a million in all at most"),
        }
    }
}

impl core::error::Error for LayoutError {}

impl Layout {
    /// These inputs and builders; `weights` says how many turns each builder has, and is empty where all have one.
    ///
    /// # Errors
    /// [`LayoutError`] when a side is empty, a rank stands in both, or the weights do not fit.
    pub fn new(inputs: Vec<Rank>, builders: Vec<Rank>, weights: &[u32]) -> Result<Self, LayoutError> {
        if inputs.is_empty() || builders.is_empty() {
            return Err(LayoutError::Empty);
        }
        let highest = inputs.iter().chain(&builders).map(|rank| rank.index()).max().unwrap_or(0);
        let mut roles = vec![None; highest + 1];
        let places = inputs.iter().enumerate().map(|(place, rank)| (*rank, Role::Input(place)));
        for (rank, role) in places.chain(builders.iter().enumerate().map(|(place, rank)| (*rank, Role::Builder(place))))
        {
            if roles[rank.index()].replace(role).is_some() {
                return Err(LayoutError::Twice(rank));
            }
        }
        let turns = turns(builders.len(), weights).ok_or(LayoutError::Weights)?;
        let mut turns_of = vec![Vec::new(); builders.len()];
        turns.iter().enumerate().for_each(|(turn, builder)| turns_of[*builder as usize].push(turn as u32));
        Ok(Self { inputs, builders, roles, turns, turns_of })
    }

    /// The inputs, by place.
    pub fn inputs(&self) -> &[Rank] {
        &self.inputs
    }

    /// The builders, by place.
    pub fn builders(&self) -> &[Rank] {
        &self.builders
    }

    /// What `rank` does; `None` when it takes no part.
    pub fn role(&self, rank: Rank) -> Option<Role> {
        self.roles.get(rank.index()).copied().flatten()
    }

    /// The place of the builder of `timeslice`.
    pub(super) fn builder_of(&self, timeslice: u64) -> usize {
        self.turns[(timeslice % self.turns.len() as u64) as usize] as usize
    }

    /// The first timeslice of `builder` that is not before `from`. Logarithmic in the builder's turns.
    pub(super) fn next_of(&self, builder: usize, from: u64) -> u64 {
        let period = self.turns.len() as u64;
        let (begin, turn) = (from - from % period, (from % period) as u32);
        let turns = &self.turns_of[builder];
        match turns.get(turns.partition_point(|own| *own < turn)) {
            Some(own) => begin + u64::from(*own),
            None => begin + period + u64::from(turns[0]),
        }
    }
}

/// The builders of one period, spread evenly: each turn goes to the builder that is furthest behind its share, the first of
/// equals. `None` when the weights do not fit.
fn turns(builders: usize, weights: &[u32]) -> Option<Vec<u32>> {
    if weights.is_empty() {
        return Some((0..builders as u32).collect());
    }
    let period = weights.iter().map(|weight| u64::from(*weight)).sum::<u64>();
    if weights.len() != builders || weights.contains(&0) || period > PERIOD_MAX as u64 {
        return None;
    }
    let mut behind = vec![0_i64; builders];
    let turn = |_| {
        behind.iter_mut().zip(weights).for_each(|(behind, weight)| *behind += i64::from(*weight));
        let most = behind.iter().copied().max().unwrap_or(0);
        let next = behind.iter().position(|behind| *behind == most).unwrap_or(0);
        behind[next] -= period as i64;
        next as u32
    };
    Some((0..period).map(turn).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn layout(inputs: u32, builders: u32, weights: &[u32]) -> Layout {
        let ranks = |range: core::ops::Range<u32>| range.map(Rank).collect();
        Layout::new(ranks(0..inputs), ranks(inputs..inputs + builders), weights).expect("a sound layout")
    }

    #[test]
    fn builder_of__equal_builders_take_turns() {
        let layout = layout(2, 3, &[]);
        assert_eq!((0..7).map(|t| layout.builder_of(t)).collect::<Vec<_>>(), [0, 1, 2, 0, 1, 2, 0]);
        assert_eq!(layout.role(Rank(1)), Some(Role::Input(1)));
        assert_eq!(layout.role(Rank(4)), Some(Role::Builder(2)));
        assert_eq!(layout.role(Rank(5)), None);
    }

    #[test]
    fn builder_of__weights_are_kept_in_each_period_and_spread() {
        let layout = layout(1, 3, &[1, 4, 2]);
        let period: Vec<_> = (0..7).map(|t| layout.builder_of(t)).collect();
        assert_eq!(period, [1, 2, 1, 0, 1, 2, 1]);
        assert_eq!((700..707).map(|t| layout.builder_of(t)).collect::<Vec<_>>(), period);
    }

    #[test]
    fn next_of__agrees_with_builder_of() {
        let layout = layout(1, 4, &[3, 1, 2, 5]);
        for builder in 0..4 {
            for from in 0..40 {
                let expected = (from..).find(|t| layout.builder_of(*t) == builder);
                assert_eq!(Some(layout.next_of(builder, from)), expected, "builder {builder} from {from}");
            }
        }
    }

    #[test]
    fn new__refuses_what_is_no_layout() {
        let one = || alloc::vec![Rank(0)];
        assert_eq!(Layout::new(one(), Vec::new(), &[]).err(), Some(LayoutError::Empty));
        assert_eq!(Layout::new(one(), one(), &[]).err(), Some(LayoutError::Twice(Rank(0))));
        assert_eq!(Layout::new(one(), alloc::vec![Rank(1)], &[0]).err(), Some(LayoutError::Weights));
        assert_eq!(Layout::new(one(), alloc::vec![Rank(1)], &[u32::MAX]).err(), Some(LayoutError::Weights));
    }
}
