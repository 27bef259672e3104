//! Which rank is where, who loads and who is measured, and who is whose neighbour.
//!
//! # Model
//! Nodes are the distinct host names, in the order of their bytes. *Slice* `k` of some nodes is the
//! `k`-th rank of each that has one, in the order of the nodes; tests and congestors run within
//! slices, so no pair shares a node. For a load test the nodes are shuffled; the first four fifths
//! load. The same stream then shuffles the places of each slice of theirs; the shuffled number
//! modulo four says which congestor the rank at that place joins.
//!
//! The rings of a test are shuffles of the slice's places from a stream of its own, which begins
//! anew in every measurement: the same rings in every measurement, phase and run.
//!
//! # Source
//! GPCNeT v1.3. The expected draws in the tests come from a C program that makes these calls on the
//! C library.
//!
//! # Not here
//! What is sent along a ring: the node.

use alloc::collections::BTreeMap;
use alloc::vec::Vec;
use core::fmt;

use super::defects::CorrectedDefects;
use super::kinds::Congestor;
use super::libc_random::LibcRandom;
use crate::base::Rank;

/// The seed of the rings of slice 0; that of slice `k` is `k` more.
const RING_SEED: u32 = 8_675_309;
/// The least nodes that are measured, for a ring.
const VICTIMS_MIN: usize = 2;
/// The least nodes of each congestor.
const CONGESTOR_MIN: usize = 2;

/// Ranks by node.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct GpcnetLayout {
    nodes: Vec<Vec<Rank>>,
}

/// The ranks that run one congestor in one slice; the first is its root.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Group {
    /// What they do.
    pub congestor: Congestor,
    /// In their order.
    pub ranks: Vec<Rank>,
}

/// The roles of a load test.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LoadDraw {
    /// Nodes that load, in drawn order.
    pub congestor_nodes: Vec<usize>,
    /// Nodes that are measured, in drawn order.
    pub victim_nodes: Vec<usize>,
    /// The ranks that are measured, by slice.
    pub victims: Vec<Vec<Rank>>,
    /// The ranks that load, by slice and congestor; groups without ranks are left out.
    pub groups: Vec<Group>,
}

/// There are not enough nodes for the test; prints as a sentence.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TooFewNodes {
    /// How many there are.
    pub nodes: usize,
    /// How many it takes.
    pub wanted: usize,
}

impl fmt::Display for TooFewNodes {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "this test takes at least {} nodes, and there are {}", self.wanted, self.nodes)
    }
}

impl core::error::Error for TooFewNodes {}

impl GpcnetLayout {
    /// Creates a `GpcnetLayout` from the host name of each rank.
    pub fn by_name<S: AsRef<str>>(names: &[S]) -> Self {
        let mut nodes: BTreeMap<&str, Vec<Rank>> = BTreeMap::new();
        for (rank, name) in names.iter().enumerate() {
            nodes.entry(name.as_ref()).or_default().push(Rank(rank as u32));
        }
        Self { nodes: nodes.into_values().collect() }
    }

    /// Returns how many nodes there are.
    pub fn nodes(&self) -> usize {
        self.nodes.len()
    }

    /// Returns the slices of the network test: all nodes, in order.
    ///
    /// # Errors
    /// With fewer than two nodes there is no ring.
    pub fn all_slices(&self) -> Result<Vec<Vec<Rank>>, TooFewNodes> {
        if self.nodes() < VICTIMS_MIN {
            return Err(TooFewNodes { nodes: self.nodes(), wanted: VICTIMS_MIN });
        }
        let all: Vec<usize> = (0..self.nodes()).collect();
        Ok(self.slices(&all))
    }

    fn slices(&self, nodes: &[usize]) -> Vec<Vec<Rank>> {
        let slices = nodes.iter().map(|node| self.nodes[*node].len()).max().unwrap_or(0);
        let slice = |k| nodes.iter().filter_map(|node| self.nodes[*node].get(k)).copied().collect();
        (0..slices).map(slice).collect()
    }

    /// Draws the roles of a load test as the published program does whose clock shows `seed`.
    ///
    /// # Errors
    /// With fewer than ten nodes some congestor would have fewer than two.
    pub fn draw(&self, seed: u32, mended: CorrectedDefects) -> Result<LoadDraw, TooFewNodes> {
        let all = self.nodes();
        // Four fifths, rounded down: exact for every number of nodes, as the published product is.
        let loading = all * 4 / 5;
        if all < VICTIMS_MIN + loading || loading < CONGESTOR_MIN * Congestor::ALL.len() {
            return Err(TooFewNodes {
                nodes: all,
                wanted: VICTIMS_MIN + CONGESTOR_MIN * Congestor::ALL.len(),
            });
        }
        let mut random = LibcRandom::seeded(seed);
        let mut nodes: Vec<usize> = (0..all).collect();
        random.shuffle(&mut nodes, mended);
        let (congestor_nodes, victim_nodes) =
            (nodes[..loading].to_vec(), nodes[loading..].to_vec());
        let slices = self.slices(&congestor_nodes);
        // Each process continues with its own copy of the stream, so every slice continues from the
        // same place.
        let groups =
            slices.iter().flat_map(|slice| groups(slice, random.clone(), mended)).collect();
        Ok(LoadDraw { victims: self.slices(&victim_nodes), victim_nodes, congestor_nodes, groups })
    }
}

/// Splits a slice of loading nodes among the congestors.
fn groups(slice: &[Rank], mut random: LibcRandom, mended: CorrectedDefects) -> Vec<Group> {
    let mut numbers: Vec<usize> = (0..slice.len()).collect();
    random.shuffle(&mut numbers, mended);
    let of = |place: usize| {
        let members = slice
            .iter()
            .zip(&numbers)
            .filter(|(_, number)| **number % Congestor::ALL.len() == place);
        Group { congestor: Congestor::ALL[place], ranks: members.map(|(rank, _)| *rank).collect() }
    };
    (0..Congestor::ALL.len()).map(of).filter(|group| !group.ranks.is_empty()).collect()
}

/// The rings of one measurement, one after the other.
#[derive(Clone, Debug)]
pub(super) struct RingDraws {
    random: LibcRandom,
    order: Vec<u32>,
    mended: CorrectedDefects,
}

impl RingDraws {
    /// Creates the `RingDraws` of slice `slice` with `ranks` ranks.
    pub(super) fn new(ranks: usize, slice: u32, mended: CorrectedDefects) -> Self {
        let order = (0..ranks as u32).collect();
        Self { random: LibcRandom::seeded(RING_SEED.wrapping_add(slice)), order, mended }
    }

    /// Moves on to the next ring. O(ranks), without allocation.
    pub(super) fn draw(&mut self) {
        self.order.iter_mut().zip(0..).for_each(|(place, i)| *place = i);
        self.random.shuffle(&mut self.order, self.mended);
    }

    /// Returns the left and right neighbour of place `me`.
    pub(super) fn neighbours(&self, me: usize) -> [usize; 2] {
        let n = self.order.len();
        let at = self.order.iter().position(|place| *place as usize == me).unwrap_or(0);
        [self.order[(at + n - 1) % n] as usize, self.order[(at + 1) % n] as usize]
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::format;
    use alloc::string::String;

    fn one_each(nodes: usize) -> GpcnetLayout {
        let names: Vec<String> = (0..nodes).map(|i| format!("n{i:03}")).collect();
        GpcnetLayout::by_name(&names)
    }

    fn ranks(list: &[u32]) -> Vec<Rank> {
        list.iter().copied().map(Rank).collect()
    }

    #[test]
    fn by_name__nodes_stand_in_the_order_of_bytes() {
        let layout = GpcnetLayout::by_name(&["n10", "n9", "B", "n10", "n9", "n10"]);
        assert_eq!(layout.nodes, [ranks(&[2]), ranks(&[0, 3, 5]), ranks(&[1, 4])]);
        assert_eq!(
            layout.all_slices(),
            Ok(Vec::from([ranks(&[2, 0, 1]), ranks(&[3, 4]), ranks(&[5])]))
        );
    }

    #[test]
    fn draw__of_twenty_nodes_is_that_of_the_c_program() {
        let draw = one_each(20).draw(1_700_000_000, CorrectedDefects::NONE).expect("enough nodes");
        assert_eq!(draw.congestor_nodes, [7, 12, 17, 6, 5, 11, 13, 2, 16, 10, 19, 1, 0, 8, 9, 14]);
        assert_eq!(draw.victim_nodes, [18, 15, 4, 3]);
        assert_eq!(draw.victims, [ranks(&[18, 15, 4, 3])]);
        // Colours by place: 1 3 1 2 3 2 0 3 2 3 1 1 0 0 2 0.
        let expected = [[13, 0, 8, 14], [7, 17, 19, 1], [6, 11, 16, 9], [12, 5, 2, 10]];
        for (place, group) in draw.groups.iter().enumerate() {
            assert_eq!(group.congestor, Congestor::ALL[place]);
            assert_eq!(group.ranks, ranks(&expected[place]));
        }
    }

    #[test]
    fn draw__ten_nodes_is_the_least() {
        let draw = one_each(10).draw(8_675_309, CorrectedDefects::NONE).expect("enough nodes");
        assert_eq!(draw.congestor_nodes, [3, 8, 9, 7, 1, 4, 5, 2]);
        // Colours by place: 2 0 3 2 0 1 3 1.
        let groups: Vec<_> = draw.groups.iter().map(|group| group.ranks.clone()).collect();
        assert_eq!(groups, [ranks(&[8, 1]), ranks(&[4, 2]), ranks(&[3, 7]), ranks(&[9, 5])]);
        let refused = one_each(9).draw(8_675_309, CorrectedDefects::NONE).expect_err("too few");
        assert_eq!(refused, TooFewNodes { nodes: 9, wanted: 10 });
    }

    #[test]
    fn draw__every_rank_of_a_node_runs_the_same_congestor() {
        let names: Vec<String> = (0..40).map(|i| format!("n{:02}", i / 2)).collect();
        let draw =
            GpcnetLayout::by_name(&names).draw(3, CorrectedDefects::ALL).expect("enough nodes");
        assert_eq!(draw.groups.len(), 8);
        for (even, odd) in draw.groups[..4].iter().zip(&draw.groups[4..]) {
            assert_eq!(even.congestor, odd.congestor);
            assert!(even.ranks.iter().zip(&odd.ranks).all(|(a, b)| b.0 == a.0 + 1));
        }
    }

    #[test]
    fn rings__are_those_of_the_c_program() {
        // 2 6 5 4 7 3 0 1, then 5 4 0 6 7 1 2 3.
        let mut rings = RingDraws::new(8, 0, CorrectedDefects::NONE);
        rings.draw();
        assert_eq!(rings.neighbours(2), [1, 6]);
        assert_eq!(rings.neighbours(7), [4, 3]);
        rings.draw();
        assert_eq!(rings.neighbours(3), [2, 5]);
        // Slice 1 of five: 2 4 3 1 0. Ring 29 of slice 0: 4 0 3 1 2.
        let mut other = RingDraws::new(5, 1, CorrectedDefects::NONE);
        other.draw();
        assert_eq!(other.neighbours(3), [4, 1]);
        let mut last = RingDraws::new(5, 0, CorrectedDefects::NONE);
        (0..30).for_each(|_| last.draw());
        assert_eq!(last.neighbours(0), [4, 3]);
    }
}
