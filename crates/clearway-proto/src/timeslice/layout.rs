//! Who may take part in a job, and as what.
//!
//! # Model
//! The *roster*: every rank that may ever take part, with its role. Ranks that are *absent* stand on it and take no part before
//! they join. Whose turn it is from the beginning follows from the weights of those that are there.
//!
//! # Not here
//! Who takes part later, and what is dealt then: `membership`.

use alloc::vec;
use alloc::vec::Vec;

use super::turns::Turns;
use crate::base::Rank;

/// What an equal builder weighs. A change of weights can give a builder as little as a sixteenth of an equal's turns.
pub(super) const EQUAL_WEIGHT: u32 = 16;

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
    /// Of each builder, in units of which an equal one has [`EQUAL_WEIGHT`].
    weights: Vec<u32>,
    absent: Vec<Rank>,
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
        if !weights.is_empty() && (weights.len() != builders.len() || weights.contains(&0)) {
            return Err(LayoutError::Weights);
        }
        let weights = if weights.is_empty() { vec![1; builders.len()] } else { weights.to_vec() };
        let scaled = weights.iter().map(|weight| weight.checked_mul(EQUAL_WEIGHT));
        let weights = scaled.collect::<Option<Vec<_>>>().ok_or(LayoutError::Weights)?;
        Turns::new(&weights).ok_or(LayoutError::Weights)?;
        Ok(Self { inputs, builders, roles, weights, absent: Vec::new() })
    }

    /// The same, where `ranks` take no part until they join.
    ///
    /// # Errors
    /// [`LayoutError::Empty`] when no input or no builder is left.
    pub fn without(self, ranks: &[Rank]) -> Result<Self, LayoutError> {
        let layout = Self { absent: ranks.to_vec(), ..self };
        let some = |ranks: &[Rank]| ranks.iter().any(|rank| !layout.is_absent(*rank));
        if some(&layout.inputs) && some(&layout.builders) { Ok(layout) } else { Err(LayoutError::Empty) }
    }

    /// Whether `rank` takes no part until it joins.
    pub(super) fn is_absent(&self, rank: Rank) -> bool {
        self.absent.contains(&rank)
    }

    /// What each builder weighs.
    pub(super) fn weights(&self) -> &[u32] {
        &self.weights
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
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn role__is_by_place() {
        let ranks = |range: core::ops::Range<u32>| range.map(Rank).collect();
        let layout = Layout::new(ranks(0..2), ranks(2..5), &[]).expect("a sound layout");
        assert_eq!(layout.role(Rank(1)), Some(Role::Input(1)));
        assert_eq!(layout.role(Rank(4)), Some(Role::Builder(2)));
        assert_eq!(layout.role(Rank(5)), None);
        assert!(layout.clone().without(&[Rank(0), Rank(2)]).is_ok_and(|layout| layout.is_absent(Rank(2))));
        assert_eq!(layout.without(&[Rank(0), Rank(1)]).err(), Some(LayoutError::Empty));
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
