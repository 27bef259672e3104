//! Deficit round robin over whole packets, behind lanes that go first.
//!
//! # Model
//! A lane's turn adds its quantum to its deficit; it sends while the deficit covers its next
//! packet, and what is left stays for its next turn. Turns that lead to no packet are not walked
//! through: how many a lane needs is a division.
//!
//! # Source
//! Shreedhar, Varghese, "Efficient fair queueing using deficit round robin" (SIGCOMM 1995): a lane
//! that has no packet loses its deficit. Here so does one that has no room ahead; the paper does
//! not know that case, and keeping it would let a lane that is often blocked save up an unbounded
//! burst.
//!
//! # Invariants
//! I1. After a grant no deficit covers the head of its lane but that of the lane in turn.

use super::Choice;
use super::turns::{PriorityRanks, after};
use crate::spec::VIRTUAL_LANES_MAX;

/// The rule: who goes first, and the quanta of the others.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Weights {
    first: PriorityRanks,
    quantum: [u32; VIRTUAL_LANES_MAX],
    /// Lanes with a quantum and no rank.
    weighted: u32,
}

impl Weights {
    /// Lanes that have neither rank nor quantum are not served.
    pub(super) fn new(
        quantum: &[u32; VIRTUAL_LANES_MAX],
        first: &[Option<u8>; VIRTUAL_LANES_MAX],
    ) -> Self {
        let shares = |lane: &usize| quantum[*lane] > 0 && first[*lane].is_none();
        let weighted = (0..VIRTUAL_LANES_MAX).filter(shares).fold(0, |all, lane| all | 1 << lane);
        Self { first: PriorityRanks::new(first), quantum: *quantum, weighted }
    }
}

/// The deficit of each lane.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Deficits {
    /// The lane in turn: it got its quantum.
    turn: u8,
    /// The last of the lanes that go first.
    last: u8,
    deficit: [u32; VIRTUAL_LANES_MAX],
}

impl Default for Deficits {
    fn default() -> Self {
        let last = VIRTUAL_LANES_MAX as u8 - 1;
        Self { turn: last, last, deficit: [0; VIRTUAL_LANES_MAX] }
    }
}

impl Deficits {
    /// Returns the next lane to send.
    pub(super) fn pick(
        &self,
        rule: &Weights,
        eligible: u32,
        bytes: &[u32; VIRTUAL_LANES_MAX],
    ) -> Option<u8> {
        let urgent = rule.first.urgent(eligible);
        if urgent != 0 {
            return after(urgent, self.last);
        }
        let lanes = eligible & rule.weighted;
        if lanes & 1 << self.turn != 0 && self.covers(self.turn, bytes[usize::from(self.turn)]) {
            return Some(self.turn);
        }
        members(lanes).min_by_key(|lane| {
            (self.turns_needed(rule, *lane, bytes[usize::from(*lane)]), self.distance(*lane))
        })
    }

    /// Adds the quanta of all turns up to this one and takes the packet's bytes.
    pub(super) fn grant(&mut self, rule: &Weights, choice: Choice) {
        let Choice { lane, bytes, eligible } = choice;
        if rule.weighted & 1 << lane == 0 {
            self.last = lane;
            return;
        }
        for idle in members(rule.weighted & !eligible) {
            self.deficit[usize::from(idle)] = 0;
        }
        if lane != self.turn || !self.covers(lane, bytes) {
            let turns = self.turns_needed(rule, lane, bytes);
            let place = self.distance(lane);
            for other in members(eligible & rule.weighted) {
                let passed = if self.distance(other) <= place { turns } else { turns - 1 };
                let deficit = &mut self.deficit[usize::from(other)];
                *deficit =
                    deficit.saturating_add(rule.quantum[usize::from(other)].saturating_mul(passed));
            }
            self.turn = lane;
        }
        let deficit = &mut self.deficit[usize::from(lane)];
        *deficit = deficit.saturating_sub(bytes);
    }

    fn covers(&self, lane: u8, bytes: u32) -> bool {
        self.deficit[usize::from(lane)] >= bytes
    }

    /// Turns after which the deficit of `lane` covers `bytes`, at least the one that begins.
    fn turns_needed(&self, rule: &Weights, lane: u8, bytes: u32) -> u32 {
        let lane = usize::from(lane);
        bytes.saturating_sub(self.deficit[lane]).div_ceil(rule.quantum[lane]).max(1)
    }

    /// Returns how many lanes come between the lane in turn and `lane`; most for the lane in turn
    /// itself.
    fn distance(&self, lane: u8) -> u8 {
        (lane + VIRTUAL_LANES_MAX as u8 - self.turn - 1) % VIRTUAL_LANES_MAX as u8
    }
}

/// Returns the numbers of the bits of `lanes`.
fn members(mut lanes: u32) -> impl Iterator<Item = u8> {
    core::iter::from_fn(move || {
        let lane = (lanes != 0).then(|| lanes.trailing_zeros() as u8);
        lanes &= lanes.wrapping_sub(1);
        lane
    })
}
