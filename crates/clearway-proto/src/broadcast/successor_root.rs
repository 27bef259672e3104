//! What is left of a cast when its root is gone: the successor root asks everybody for what it
//! lacks, and decides where the cast ends.
//!
//! # Model
//! The successor root goes through what it lacks block by block and asks all members that take
//! part. Each says which symbols of the block it holds, and sends them. When all have answered,
//! what nobody holds is lost, and the cast ends before the object that it belongs to; otherwise it
//! ends behind the last object of which the successor root knows. Everything before that end is
//! finished as always.
//!
//! # Invariants
//! I1. The end is never before an object that some survivor knows to be stable: all survivors have
//!     that one.

use alloc::vec::Vec;

use super::context::BroadcastEvent;
use super::frame::{BlockNack, BroadcastFrame, Nacks};
use super::receive_window::BLOCK;
use super::state::MemberState;
use crate::base::LocalNs;
use crate::wire::Out;

/// The successor root's questions.
#[derive(Debug)]
pub(super) struct SuccessorRoot {
    /// Behind the last object that is known.
    end: u64,
    block: u64,
    /// The members that have answered for the block, and what all of them hold.
    answered: Vec<u16>,
    held: u64,
    ask_at: Option<LocalNs>,
}

impl SuccessorRoot {
    pub(super) const fn new(end: u64, now: LocalNs) -> Self {
        Self { end, block: 0, answered: Vec::new(), held: 0, ask_at: Some(now) }
    }

    pub(super) const fn deadline(&self) -> Option<LocalNs> {
        self.ask_at
    }

    /// Asks for the first block of which something is missing, or ends the cast behind the last
    /// known object.
    pub(super) fn tick(
        &mut self,
        state: &mut MemberState,
        now: LocalNs,
        out: &mut Out<BroadcastEvent>,
    ) {
        if self.ask_at.is_none_or(|at| at > now) {
            return;
        }
        let end = self.end.min(state.end().unwrap_or(u64::MAX));
        let incomplete =
            state.holding.gaps(end).find(|block| state.holding.missing(*block, end) != 0);
        let Some(block) = incomplete else {
            if state.holding.received() >= end {
                self.ask_at = None;
                state.abort_at(state.objects.known().min(state.aborted), out);
            } else {
                // Digests are under way: the cast must not end before they are there.
                self.ask_at = Some(now + state.reports.time_out());
            }
            return;
        };
        if block != self.block || self.answered.is_empty() {
            (self.block, self.held) = (block, 0);
            self.answered.clear();
        }
        let mut needs = Nacks::default();
        needs.push(BlockNack { block, missing: state.holding.missing(block, end) });
        for place in state.view.places().filter(|place| *place != state.me) {
            state.send(place, &BroadcastFrame::Need(needs), 0, out);
        }
        self.ask_at = Some(now + state.reports.time_out());
        self.conclude(state, out);
    }

    /// Records what a member says that it holds of a block.
    pub(super) fn answered(
        &mut self,
        state: &mut MemberState,
        place: u16,
        block: u64,
        held: u64,
        out: &mut Out<BroadcastEvent>,
    ) {
        if block != self.block || self.ask_at.is_none() {
            return;
        }
        self.held |= held;
        if !self.answered.contains(&place) {
            self.answered.push(place);
        }
        self.conclude(state, out);
    }

    /// Finds, when all have answered, that what nobody holds is lost.
    fn conclude(&self, state: &mut MemberState, out: &mut Out<BroadcastEvent>) {
        let has_answered = |place| place == state.me || self.answered.contains(&place);
        let lost = state.holding.missing(self.block, self.end) & !self.held;
        if lost != 0 && state.view.places().all(has_answered) {
            let sequence = self.block * BLOCK + u64::from(lost.trailing_zeros());
            if let Some(object) = state.object_at(sequence) {
                state.abort_at(object, out);
            }
        }
    }

    /// Asks everybody again, because others take part now.
    pub(super) fn restart(&mut self, now: LocalNs) {
        self.answered.clear();
        self.held = 0;
        if self.ask_at.is_some() {
            self.ask_at = Some(now);
        }
    }

    /// Records that something of what was missing came.
    pub(super) fn symbol_arrived(&mut self, state: &MemberState, now: LocalNs) {
        if self.ask_at.is_some() && state.holding.missing(self.block, self.end) == 0 {
            self.ask_at = Some(now);
        }
    }
}
