//! Policies that know no more than room in rings: the order of timeslices, and builders in turn.
//!
//! # Source
//! FLESnet: its original sends timeslices strictly in order, so that a full ring at one builder stops all; its later branch
//! keeps an order for each connection and begins at the builder that has the input's own place.

use super::{Cause, Choice, Sending};
use crate::timeslice::input::Connections;

/// In the order of timeslices.
#[derive(Debug, Default)]
pub(in crate::timeslice) struct InOrder {
    next: u64,
}

impl Sending for InOrder {
    fn choose(&mut self, connections: &Connections) -> Choice {
        let place = connections.builder_of(self.next);
        match connections.may_send(place) {
            Ok(()) => Choice::Post(place),
            Err(cause) => Choice::Blocked(cause),
        }
    }

    fn posted(&mut self) {
        self.next += 1;
    }
}

/// Builders in turn, those left out that have no room.
#[derive(Debug)]
pub(in crate::timeslice) struct InTurn {
    next: usize,
    chosen: usize,
}

impl InTurn {
    /// Beginning at the builder at `place`.
    pub(in crate::timeslice) const fn from(place: usize) -> Self {
        Self { next: place, chosen: place }
    }
}

impl Sending for InTurn {
    fn choose(&mut self, connections: &Connections) -> Choice {
        let builders = connections.builders();
        // Who waits for room waits, whatever the source has.
        let mut cause = Cause::NoMicroslices;
        for step in 0..builders {
            let place = (self.next + step) % builders;
            match connections.may_send(place) {
                Ok(()) => {
                    self.chosen = place;
                    return Choice::Post(place);
                }
                Err(Cause::NoMicroslices) => {}
                Err(other) => cause = other,
            }
        }
        Choice::Blocked(cause)
    }

    fn posted(&mut self) {
        self.next = self.chosen + 1;
    }
}
