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
    /// Returns the builder whose next timeslice is due first. That is not always the earliest one:
    /// what a builder left that is out is due behind others, in whatever order an input meets them.
    /// Inputs that went by other orders would wait for each other at full rings.
    fn earliest(&mut self, view: &dyn TurnView) -> Option<usize> {
        if let Some(next) = self.next {
            return Some(view.builder_of(next));
        }
        let turns = (0..view.builders()).filter_map(|place| Some((view.turn_of(place)?, place)));
        let (turn, place) = turns.min()?;
        self.next = view.next_of(place).filter(|_| turn >= self.dealt_from);
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

#[cfg(test)]
mod tests {
    //! Policies that look at nothing but rings.

    use alloc::vec;
    use alloc::vec::Vec;

    use super::*;
    use crate::timeslice::membership::Deal;

    /// Builders with room, and of each the next timeslice and its turn.
    struct FixedView(Vec<Option<(u64, u64)>>);

    impl TurnView for FixedView {
        fn builders(&self) -> usize {
            self.0.len()
        }

        fn builder_of(&self, timeslice: u64) -> usize {
            timeslice as usize % self.0.len()
        }

        fn next_of(&self, place: usize) -> Option<u64> {
            self.0[place].map(|(next, _)| next)
        }

        fn turn_of(&self, place: usize) -> Option<u64> {
            self.0[place].map(|(_, turn)| turn)
        }

        fn first(&self) -> u64 {
            0
        }

        fn deals(&self) -> &[Deal] {
            &[]
        }

        fn dealt_from(&self) -> u64 {
            20
        }

        fn round_of(&self, timeslice: u64) -> u64 {
            timeslice
        }

        fn is_relieved(&self, _place: usize) -> bool {
            false
        }

        fn unsent_before(&self, _place: usize, _end: u64) -> u64 {
            0
        }

        fn unreleased_before(&self, _place: usize, _end: u64) -> u64 {
            0
        }

        fn may_send(&self, _place: usize) -> Result<(), Cause> {
            Ok(())
        }
    }

    #[test]
    fn choose__an_inherited_timeslice_is_due_with_those_before_which_it_is_dealt() {
        let mut policy = InOrder::default();
        policy.redealt(LocalNs(0), &FixedView(Vec::new()));
        // Builder 0 has inherited 3, to be built behind 18.
        let choose = |policy: &mut InOrder, view| policy.choose(LocalNs(0), &FixedView(view));
        let chosen = choose(&mut policy, vec![Some((3, 19)), Some((17, 17))]);
        assert_eq!(chosen, Choice::Post(1));
        policy.posted(LocalNs(0), 17);
        let chosen = choose(&mut policy, vec![Some((3, 19)), Some((21, 21))]);
        assert_eq!(chosen, Choice::Post(0));
        policy.posted(LocalNs(0), 19);
        // All is in turn again.
        for timeslice in [20, 21, 22] {
            let view = vec![Some((20, 20)), Some((21, 21))];
            assert_eq!(choose(&mut policy, view), Choice::Post(timeslice as usize % 2));
            policy.posted(LocalNs(0), timeslice);
        }
    }
}
