//! Arbitration of a channel: the rules between virtual lanes as state machines, and the shares they
//! lead to.
//!
//! # Model
//! A channel asks `pick` which of the lanes that could send now (a packet *and* room for it ahead)
//! is the next, and tells `grant` when it has sent. The rule is shared; what a channel keeps is its
//! place in it.
//!
//! # Invariants
//! I1. `pick` changes nothing: asking again, or for nothing, leads to the same grants. All change
//!     is in `grant`, the entries
//!     and turns that a grant passes over included.
//! I2. A lane that has no packet, or no room ahead, when another is granted has had its turn:
//!     nothing is saved for it.
//!
//! # Not here
//! The steps of one virtual lane and the queues of one step take turns in the fabric.

mod shares;
mod tables;
mod turns;
mod weighted;

use std::sync::Arc;

use crate::spec::{Arbiter, VIRTUAL_LANES_MAX};

pub use shares::shares;
use tables::{ArbitrationTables, TablePositions};
use turns::{PriorityRanks, after};
use weighted::{Deficits, Weights};

/// A lane that may send: what `pick` found and `grant` gets.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Choice {
    /// The virtual lane.
    pub lane: u8,
    /// The length of its packet.
    pub bytes: u32,
    /// The lanes that could send.
    eligible: u32,
}

/// The place of one channel in its rule. Made once for a rule, then cloned for each channel: clones
/// share the rule.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct ArbiterState(RuleState);

/// What a channel keeps, by rule.
#[derive(Clone, Debug, PartialEq, Eq)]
enum RuleState {
    /// The lane that sent last.
    RoundRobin(u8),
    /// The rule, and who sent last.
    Strict(Arc<PriorityRanks>, u8),
    /// The rule, and the deficit of each lane.
    Weighted(Arc<Weights>, Box<Deficits>),
    /// The rule, and where both tables stand.
    Tables(Arc<ArbitrationTables>, TablePositions),
}

impl ArbiterState {
    /// Creates the beginning of `rule`.
    pub(crate) fn new(rule: &Arbiter) -> Self {
        // The lane after the last one is lane 0.
        let last = VIRTUAL_LANES_MAX as u8 - 1;
        Self(match rule {
            Arbiter::RoundRobin => RuleState::RoundRobin(last),
            Arbiter::Strict { rank } => {
                RuleState::Strict(Arc::new(PriorityRanks::new(&rank.map(Some))), last)
            }
            Arbiter::Weighted { quantum, first } => {
                RuleState::Weighted(Arc::new(Weights::new(quantum, first)), Box::default())
            }
            Arbiter::Tables(rule) => {
                RuleState::Tables(Arc::new(ArbitrationTables::new(rule)), TablePositions::default())
            }
        })
    }

    /// Returns the next to send among `eligible` (a bit for each virtual lane), where lane `v`
    /// would send a packet of `bytes[v]`. `None` if there is none, or if the rule never serves
    /// those there are.
    pub(crate) fn pick(&self, eligible: u32, bytes: &[u32; VIRTUAL_LANES_MAX]) -> Option<Choice> {
        let lane = match &self.0 {
            RuleState::RoundRobin(last) => after(eligible, *last),
            RuleState::Strict(ranks, last) => ranks.pick(eligible, *last),
            RuleState::Weighted(weights, deficits) => deficits.pick(weights, eligible, bytes),
            RuleState::Tables(tables, place) => place.pick(tables, eligible),
        }?;
        Some(Choice { lane, bytes: bytes[usize::from(lane)], eligible })
    }

    /// Returns the same where `lane` alone could send, a packet of `bytes`.
    #[inline]
    pub(crate) fn pick_only(&self, lane: u8, bytes: u32) -> Option<Choice> {
        let eligible = 1 << lane;
        match &self.0 {
            RuleState::RoundRobin(_) => Some(Choice { lane, bytes, eligible }),
            _ => {
                let mut all = [0; VIRTUAL_LANES_MAX];
                all[usize::from(lane)] = bytes;
                self.pick(eligible, &all)
            }
        }
    }

    /// Grants the packet of `choice`, which was picked since the last grant and is being sent.
    pub(crate) fn grant(&mut self, choice: Choice) {
        match &mut self.0 {
            RuleState::RoundRobin(last) | RuleState::Strict(_, last) => *last = choice.lane,
            RuleState::Weighted(weights, deficits) => deficits.grant(weights, choice),
            RuleState::Tables(tables, place) => place.grant(tables, choice),
        }
    }
}

#[cfg(test)]
mod tests;
