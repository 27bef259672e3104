//! Policies that know no more than room in rings: the order of timeslices, and builders in turn.
//!
//! # Source
//! FLESnet: its original sends timeslices strictly in order, so that a full ring at one builder
//! stops all; its later branch keeps an order for each connection and begins at the builder that
//! has the input's own place.

use super::{Cause, Choice, Sending, TurnView};
use crate::base::LocalNs;

/// In the order of timeslices.
#[derive(Debug, Default)]
pub(in crate::timeslice) struct InOrder {
    /// The next one in turn: none while timeslices were dealt anew, and earlier ones stand in other
    /// places.
    next: Option<u64>,
    /// From here on all is in turn again.
    dealt_from: u64,
}

impl InOrder {
    /// Returns the builder whose next timeslice is the earliest of all.
    fn earliest(&mut self, view: &dyn TurnView) -> Option<usize> {
        if let Some(next) = self.next {
            return Some(view.builder_of(next));
        }
        let nexts = (0..view.builders()).filter_map(|place| Some((view.next_of(place)?, place)));
        let (timeslice, place) = nexts.min()?;
        self.next = (timeslice >= self.dealt_from).then_some(timeslice);
        Some(place)
    }
}

impl Sending for InOrder {
    fn choose(&mut self, _now: LocalNs, view: &dyn TurnView) -> Choice {
        let Some(place) = self.earliest(view) else {
            return Choice::Blocked(Cause::NoMicroslices);
        };
        match view.may_send(place) {
            Ok(()) => Choice::Post(place),
            Err(cause) => Choice::Blocked(cause),
        }
    }

    fn posted(&mut self, _now: LocalNs, _turn: u64) {
        self.next = self.next.map(|next| next + 1);
    }

    fn redealt(&mut self, _now: LocalNs, view: &dyn TurnView) {
        (self.next, self.dealt_from) = (None, view.dealt_from());
    }
}

/// Builders in turn, those left out that have no room.
#[derive(Debug)]
pub(in crate::timeslice) struct RoundRobin {
    begin: usize,
    next: usize,
    chosen: usize,
}

impl RoundRobin {
    /// Creates a sequence that begins at the builder at `place`.
    pub(in crate::timeslice) const fn from(place: usize) -> Self {
        Self { begin: place, next: place, chosen: place }
    }

    /// Returns the next builder in turn whose next timeslice is due before `limit` and that has
    /// room.
    pub(in crate::timeslice) fn choose_below(&mut self, limit: u64, view: &dyn TurnView) -> Choice {
        let builders = view.builders();
        // An input that waits for room waits, whatever the source has.
        let mut cause = Cause::Paced;
        for step in 0..builders {
            let place = (self.next + step) % builders;
            if view.turn_of(place).is_none_or(|turn| turn >= limit) {
                continue;
            }
            match view.may_send(place) {
                Ok(()) => {
                    self.chosen = place;
                    return Choice::Post(place);
                }
                Err(Cause::NoMicroslices) if cause != Cause::Paced => {}
                Err(other) => cause = other,
            }
        }
        Choice::Blocked(cause)
    }

    /// Begins again where it began.
    pub(in crate::timeslice) const fn restart(&mut self) {
        self.next = self.begin;
    }

    /// Returns the place of the builder that was chosen last.
    pub(in crate::timeslice) const fn chosen(&self) -> usize {
        self.chosen
    }

    /// Moves on: what was chosen last was posted.
    pub(in crate::timeslice) fn advance(&mut self) {
        self.next = self.chosen + 1;
    }
}

impl Sending for RoundRobin {
    fn choose(&mut self, _now: LocalNs, view: &dyn TurnView) -> Choice {
        self.choose_below(u64::MAX, view)
    }

    fn redealt(&mut self, _now: LocalNs, _view: &dyn TurnView) {
        self.restart();
    }

    fn posted(&mut self, _now: LocalNs, _turn: u64) {
        self.advance();
    }
}
