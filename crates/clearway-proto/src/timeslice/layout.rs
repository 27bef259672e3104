//! The ranks that may take part in a job, and their roles.
//!
//! # Model
//! The *roster*: every rank that may ever take part, with its role. Ranks that are *absent* stand
//! on it and take no part before they join. Whose turn it is from the beginning follows from the
//! weights of those that are there.
//!
//! In turn means by place, so the order of ranks decides who sends to whom at a time. Where the
//! network has *neighbourhoods* (groups of a dragonfly, parts of a tree) with fewer cables between
//! them than within, [`TimesliceLayout::spread`] chooses an order that loads these cables evenly.
//!
//! # Not here
//! Which ranks take part later, and what is dealt then: `membership`.

use alloc::vec;
use alloc::vec::Vec;

use super::turns::Turns;
use crate::base::Rank;

/// What an equal builder weighs. A change of weights can give a builder as little as a sixteenth of
/// an equal's turns.
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
pub struct TimesliceLayout {
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
            Self::Weights => f.write_str(
                "weights are one positive number for each builder, a million in all at most",
            ),
        }
    }
}

impl core::error::Error for LayoutError {}

impl TimesliceLayout {
    /// Creates a layout of these inputs and builders; `weights` says how many turns each builder
    /// has, and is empty where all have one.
    ///
    /// # Errors
    /// [`LayoutError`] when a side is empty, a rank stands in both, or the weights do not fit.
    pub fn new(
        inputs: Vec<Rank>,
        builders: Vec<Rank>,
        weights: &[u32],
    ) -> Result<Self, LayoutError> {
        if inputs.is_empty() || builders.is_empty() {
            return Err(LayoutError::Empty);
        }
        let highest = inputs.iter().chain(&builders).map(|rank| rank.index()).max().unwrap_or(0);
        let mut roles = vec![None; highest + 1];
        let places = inputs.iter().enumerate().map(|(place, rank)| (*rank, Role::Input(place)));
        for (rank, role) in places
            .chain(builders.iter().enumerate().map(|(place, rank)| (*rank, Role::Builder(place))))
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

    /// Returns the same, where `ranks` take no part until they join.
    ///
    /// # Errors
    /// [`LayoutError::Empty`] when no input or no builder is left.
    pub fn without(self, ranks: &[Rank]) -> Result<Self, LayoutError> {
        let layout = Self { absent: ranks.to_vec(), ..self };
        let some = |ranks: &[Rank]| ranks.iter().any(|rank| !layout.is_absent(*rank));
        if some(&layout.inputs) && some(&layout.builders) {
            Ok(layout)
        } else {
            Err(LayoutError::Empty)
        }
    }

    /// Returns the same ranks in an order in which neighbourhoods alternate; `neighbourhood` gives
    /// a rank's. Places of inputs and of builders are other ones afterwards, unless all ranks have
    /// one neighbourhood: then nothing changes.
    ///
    /// Inputs change their neighbourhood from place to place, and builders after as many places as
    /// inputs have neighbourhoods. So those whose turn it is at a builder come from all of them,
    /// and whatever the shift between inputs and builders, each pair of neighbourhoods has its
    /// share of those who send, exactly where all are equally large. Of 170 inputs and 170 builders
    /// in three groups of a dragonfly, ranks of one group in consecutive places, `token` carries 0.77
    /// of raw without it and 0.92 with it.
    #[must_use]
    pub fn spread(self, neighbourhood: impl Fn(Rank) -> u32) -> Self {
        let of = |ranks: &[Rank]| ranks.iter().map(|rank| neighbourhood(*rank)).collect::<Vec<_>>();
        let (of_inputs, of_builders) = (of(&self.inputs), of(&self.builders));
        let mut distinct = of_inputs.clone();
        distinct.sort_unstable();
        distinct.dedup();
        let (inputs, builders) =
            (alternating(&of_inputs, 1), alternating(&of_builders, distinct.len()));
        let mut roles = self.roles;
        inputs
            .iter()
            .enumerate()
            .for_each(|(place, old)| roles[self.inputs[*old].index()] = Some(Role::Input(place)));
        let places = builders.iter().enumerate();
        places.for_each(|(place, old)| {
            roles[self.builders[*old].index()] = Some(Role::Builder(place))
        });
        Self {
            inputs: inputs.iter().map(|old| self.inputs[*old]).collect(),
            builders: builders.iter().map(|old| self.builders[*old]).collect(),
            roles,
            weights: builders.iter().map(|old| self.weights[*old]).collect(),
            absent: self.absent,
        }
    }

    /// Returns whether `rank` takes no part until it joins.
    pub(super) fn is_absent(&self, rank: Rank) -> bool {
        self.absent.contains(&rank)
    }

    /// Returns what each builder weighs.
    pub(super) fn weights(&self) -> &[u32] {
        &self.weights
    }

    /// Returns the inputs, by place.
    pub fn inputs(&self) -> &[Rank] {
        &self.inputs
    }

    /// Returns the builders, by place.
    pub fn builders(&self) -> &[Rank] {
        &self.builders
    }

    /// Returns what `rank` does; `None` when it takes no part.
    pub fn role(&self, rank: Rank) -> Option<Role> {
        self.roles.get(rank.index()).copied().flatten()
    }
}

/// Returns the places `0..of.len()` in an order in which `run` places of one neighbourhood follow
/// each other, and the runs of each neighbourhood stand at equal distances. `of` says the
/// neighbourhood of each place; within one, places keep their order. O(n log n).
fn alternating(of: &[u32], run: usize) -> Vec<usize> {
    let mut places: Vec<usize> = (0..of.len()).collect();
    places.sort_by_key(|place| of[*place]);
    let mut runs: Vec<(usize, usize, &[usize])> = Vec::new();
    for members in places.chunk_by(|a, b| of[*a] == of[*b]) {
        let count = members.len().div_ceil(run);
        runs.extend(
            members.chunks(run).enumerate().map(|(number, run)| (2 * number + 1, count, run)),
        );
    }
    // The middle of run `number` of `count` stands at (2 number + 1) / (2 count) of the way; equal
    // ones keep the order of neighbourhoods.
    runs.sort_by(|a, b| (a.0 * b.1).cmp(&(b.0 * a.1)));
    runs.into_iter().flat_map(|(_, _, run)| run.iter().copied()).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Creates `each` inputs and builders in each of `parts` neighbourhoods; the inputs of
    /// one have consecutive ranks, and so have its builders.
    fn neighbours(parts: u32, each: u32) -> (TimesliceLayout, impl Fn(Rank) -> u32 + Copy) {
        let count = parts * each;
        let ranks = |range: core::ops::Range<u32>| range.map(Rank).collect::<Vec<_>>();
        let layout = TimesliceLayout::new(ranks(0..count), ranks(count..2 * count), &[])
            .expect("a sound layout");
        (layout, move |rank: Rank| rank.0 % count / each)
    }

    #[test]
    fn spread__every_phase_of_the_shift_is_even_over_pairs_of_neighbourhoods() {
        let (layout, neighbourhood) = neighbours(3, 9);
        let layout = layout.spread(neighbourhood);
        for shift in 0..27 {
            let mut pairs = [[0; 3]; 3];
            for place in 0..27 {
                let (input, builder) =
                    (layout.inputs()[place], layout.builders()[(place + shift) % 27]);
                pairs[neighbourhood(input) as usize][neighbourhood(builder) as usize] += 1;
            }
            assert_eq!(pairs, [[3; 3]; 3], "shift {shift}");
        }
    }

    #[test]
    fn spread__keeps_every_rank_and_its_weight_and_tells_its_place() {
        let ranks = |range: core::ops::Range<u32>| range.map(Rank).collect::<Vec<_>>();
        let weights: Vec<u32> = (1..=11).collect();
        let layout =
            TimesliceLayout::new(ranks(0..7), ranks(7..18), &weights).expect("a sound layout");
        let layout = layout.spread(|rank| rank.0 * rank.0 % 5);
        for (place, rank) in layout.inputs().iter().enumerate() {
            assert_eq!(layout.role(*rank), Some(Role::Input(place)));
        }
        for (place, rank) in layout.builders().iter().enumerate() {
            assert_eq!(layout.role(*rank), Some(Role::Builder(place)));
            assert_eq!(layout.weights()[place], (rank.0 - 6) * EQUAL_WEIGHT);
        }
        let mut all: Vec<Rank> = layout.inputs().iter().chain(layout.builders()).copied().collect();
        all.sort_unstable();
        assert_eq!(all, ranks(0..18));
    }

    #[test]
    fn spread__where_nothing_is_known_of_neighbourhoods_places_stay() {
        let (layout, _) = neighbours(2, 4);
        assert_eq!(layout.clone().spread(|_| 7), layout);
    }

    #[test]
    fn alternating__a_small_neighbourhood_stands_at_equal_distances_among_a_large_one() {
        assert_eq!(alternating(&[0, 0, 0, 0, 1, 1], 1), [0, 4, 1, 2, 5, 3]);
        assert_eq!(alternating(&[0, 0, 0, 0, 1, 1], 2), [0, 1, 4, 5, 2, 3]);
    }

    #[test]
    fn role__is_by_place() {
        let ranks = |range: core::ops::Range<u32>| range.map(Rank).collect();
        let layout = TimesliceLayout::new(ranks(0..2), ranks(2..5), &[]).expect("a sound layout");
        assert_eq!(layout.role(Rank(1)), Some(Role::Input(1)));
        assert_eq!(layout.role(Rank(4)), Some(Role::Builder(2)));
        assert_eq!(layout.role(Rank(5)), None);
        assert!(
            layout
                .clone()
                .without(&[Rank(0), Rank(2)])
                .is_ok_and(|layout| layout.is_absent(Rank(2)))
        );
        assert_eq!(layout.without(&[Rank(0), Rank(1)]).err(), Some(LayoutError::Empty));
    }

    #[test]
    fn new__refuses_what_is_no_layout() {
        let one = || alloc::vec![Rank(0)];
        assert_eq!(TimesliceLayout::new(one(), Vec::new(), &[]).err(), Some(LayoutError::Empty));
        assert_eq!(
            TimesliceLayout::new(one(), one(), &[]).err(),
            Some(LayoutError::Twice(Rank(0)))
        );
        assert_eq!(
            TimesliceLayout::new(one(), alloc::vec![Rank(1)], &[0]).err(),
            Some(LayoutError::Weights)
        );
        assert_eq!(
            TimesliceLayout::new(one(), alloc::vec![Rank(1)], &[u32::MAX]).err(),
            Some(LayoutError::Weights)
        );
    }
}
