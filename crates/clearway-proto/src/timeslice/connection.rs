//! An input's connections: what was sent to each builder, what is next, and whether it could leave
//! now.
//!
//! # Invariants
//! I1. Contributions are sent in the builder's order, and their positions in the list of what is
//!     not released ascend.

use alloc::collections::VecDeque;
use alloc::sync::Arc;
use alloc::vec::Vec;
use core::ops::Range;

use super::context::WriteSlots;
use super::frame::sequence_between;
use super::load_balance::BuilderSample;
use super::membership::{Deal, Journal};
use super::policy::{Cause, Policy, TurnView};
use super::ring::{Ring, RingRange};
use super::supply::Supply;
use crate::base::Rank;
use crate::wire::{RegionId, RemoteSpan};

/// The capacity, in contributions, of an input that memory does not limit.
pub(super) const CAPACITY_UNLIMITED: u32 = u32::MAX;
/// What every input can hold: a source with less memory is refused.
pub(super) const CAPACITY_MIN: u32 = 1;

/// How far a connection is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum ConnectionState {
    /// The builder has not named its ring.
    Calling,
    Open,
    /// Everything is released; the builder has not said that it knows.
    Ending,
    Ended,
    /// It takes no part.
    Out,
}

/// A contribution that is not released.
#[derive(Clone, Copy, Debug)]
pub(super) struct UnreleasedContribution {
    pub(super) timeslice: u64,
    /// The timeslice as of which it was due.
    pub(super) turn: u64,
    pub(super) position: u64,
    pub(super) place: RingRange,
}

/// The way to one builder.
#[derive(Debug)]
pub(super) struct BuilderConnection {
    pub(super) peer: Rank,
    pub(super) stage: ConnectionState,
    /// The epoch in which the younger of the two joined.
    pub(super) life: u32,
    pub(super) into: RemoteSpan,
    pub(super) ring: Ring,
    pub(super) sent: VecDeque<UnreleasedContribution>,
    /// The position of the next contribution in the builder's order.
    pub(super) position: u64,
    /// Its timeslice; none when there is nothing more for this builder.
    pub(super) next: Option<u64>,
    /// The timeslice as of which that is due.
    pub(super) turn: u64,
    /// Positions that the builder released, as far as it said.
    pub(super) said: u64,
    /// The same, as far as it was heard: no further while the builder is in question.
    pub(super) released: u64,
    /// It is in question.
    pub(super) is_frozen: bool,
    /// How many were sent.
    pub(super) posted: u32,
    /// How many may be sent; counts only where builders grant.
    pub(super) granted: u32,
    /// Writes that are not complete.
    pub(super) writes: u32,
    /// Reports that it was sent, or missed.
    pub(super) reported: u64,
    /// The next question to it asks for its clock.
    pub(super) asks: bool,
    /// It is to know where the stream ends.
    pub(super) tells_end: bool,
    /// It is to know how much there is to do for it.
    pub(super) tells_burden: bool,
    /// It is to learn this input's capacity.
    pub(super) tells_capacity: bool,
    /// The least capacity of all inputs, as it reported last.
    pub(super) capacity: Option<ReportedCapacity>,
}

/// What a builder says of the capacity of inputs.
#[derive(Clone, Copy, Debug)]
pub(super) struct ReportedCapacity {
    /// Of what is decided that it knows.
    pub(super) epoch: u32,
    /// The contributions that every input can hold.
    pub(super) contributions: u32,
}

impl BuilderConnection {
    pub(super) fn new(peer: Rank, stage: ConnectionState, life: u32) -> Self {
        Self {
            peer,
            stage,
            life,
            into: RemoteSpan { region: RegionId(0), offset: 0 },
            ring: Ring::new(0),
            sent: VecDeque::new(),
            position: 0,
            next: None,
            turn: 0,
            said: 0,
            released: 0,
            is_frozen: false,
            posted: 0,
            granted: 0,
            writes: 0,
            reported: 0,
            asks: false,
            tells_end: false,
            tells_burden: false,
            tells_capacity: false,
            capacity: None,
        }
    }

    /// Returns the contribution whose position ends in these bits, if it is not released.
    pub(super) fn unreleased(&self, sequence: u32) -> Option<UnreleasedContribution> {
        let first = self.sent.front()?.position;
        let position = first + u64::from(sequence_between(first, sequence));
        let at = self.sent.binary_search_by_key(&position, |sent| sent.position).ok()?;
        self.sent.get(at).copied()
    }

    /// Returns whether everything that this builder was to have is released, and nothing of it
    /// still under way.
    pub(super) fn is_drained(&self) -> bool {
        self.next.is_none() && self.sent.is_empty() && self.writes == 0
    }
}

/// The ways to all builders, and what decides what leaves on them.
#[derive(Debug)]
pub(super) struct Connections {
    pub(super) all: Vec<BuilderConnection>,
    pub(super) journal: Arc<Journal>,
    /// The timeslices that this input has something for.
    pub(super) range: Range<u64>,
    /// Nothing is sent from here on before something is decided.
    pub(super) horizon: Option<u64>,
    /// The earliest timeslice before those of this input that a builder has not released.
    pub(super) unreleased: Option<u64>,
    /// The least capacity of all inputs; [`CAPACITY_UNLIMITED`] where that does not matter.
    pub(super) least_capacity: u32,
    /// The epoch in which an input joined last; none where it does not matter what inputs hold.
    pub(super) bounded_from: Option<u32>,
    pub(super) supply: Supply,
    pub(super) policy: Policy,
    pub(super) slots: WriteSlots,
}

impl Connections {
    /// Returns what is seen of the builder at `place` where everything before timeslice `end` is
    /// due; none when nothing is dealt to it.
    pub(super) fn sight(&self, place: usize, end: u64) -> Option<BuilderSample> {
        let connection = &self.all[place];
        if connection.stage != ConnectionState::Open || self.journal.weight(place) == 0 {
            return None;
        }
        let unsent = self.journal.count(place, connection.position, &self.range, end);
        let weight = self.journal.weight(place);
        Some(BuilderSample {
            due: connection.sent.len() as u64 + unsent,
            released: connection.released,
            weight,
        })
    }

    /// Looks up what is next for the builder at `place`, from the position that it has come to.
    pub(super) fn look_up(&mut self, place: usize) {
        let connection = &mut self.all[place];
        let found = self.journal.next(place, connection.position, &self.range);
        connection.next = found.map(|(_, timeslice)| timeslice);
        connection.position = found.map_or(connection.position, |(position, _)| position);
        connection.turn = self.journal.turn(place, connection.position).unwrap_or(u64::MAX);
    }

    /// Finds the earliest timeslice before those of this input that a builder has not released.
    pub(super) fn find_unreleased(&mut self) {
        let (journal, start) = (&self.journal, self.range.start);
        let earliest = |(place, connection): (usize, &BuilderConnection)| {
            let takes_part = connection.stage != ConnectionState::Out;
            takes_part.then(|| journal.earliest(place, connection.released, start)).flatten()
        };
        self.unreleased = self.all.iter().enumerate().filter_map(earliest).min();
    }

    /// Returns the first timeslice that must wait. If unreleased timeslices were lost, the input with
    /// the least capacity could not hold it as well.
    ///
    /// If a builder died, what it left would stand behind everything that was sent; others, whose
    /// memory is full of what it left, could never send all of that. What was dealt before the last
    /// decision stands before all that it left, and must be sent.
    pub(super) fn send_limit(&self) -> u64 {
        if self.least_capacity == CAPACITY_UNLIMITED {
            return u64::MAX;
        }
        let from = self.unreleased.unwrap_or(self.supply.first());
        from.saturating_add(self.least_capacity.into()).max(self.journal.from())
    }

    /// Finds the least capacity of all inputs, from the reports of builders. Those from before the
    /// last input joined do not count, since that one may have less.
    pub(super) fn find_least_capacity(&mut self) {
        let Some(from) = self.bounded_from else { return };
        let valid = |it: ReportedCapacity| (it.epoch >= from).then_some(it.contributions);
        let said = self.all.iter().filter_map(|connection| connection.capacity.and_then(valid));
        self.least_capacity = said.min().unwrap_or(CAPACITY_MIN);
    }

    /// Looks up the same for all, and where the stream ends.
    pub(super) fn look_up_all(&mut self, own: usize) {
        self.range = self.journal.range(own);
        self.range.end = self.range.end.min(self.supply.end().unwrap_or(u64::MAX));
        (0..self.all.len()).for_each(|place| self.look_up(place));
        self.find_unreleased();
        self.find_least_capacity();
    }
}

impl TurnView for Connections {
    fn builders(&self) -> usize {
        self.all.len()
    }

    fn builder_of(&self, timeslice: u64) -> usize {
        self.journal.turn_of(timeslice)
    }

    fn next_of(&self, place: usize) -> Option<u64> {
        self.all[place].next
    }

    fn turn_of(&self, place: usize) -> Option<u64> {
        self.all[place].next.map(|_| self.all[place].turn)
    }

    fn first(&self) -> u64 {
        self.range.start
    }

    fn deals(&self) -> &[Deal] {
        self.journal.deals()
    }

    fn dealt_from(&self) -> u64 {
        self.journal.from()
    }

    fn round_of(&self, timeslice: u64) -> u64 {
        self.journal.round_of(timeslice)
    }

    fn is_relieved(&self, place: usize) -> bool {
        self.journal.is_relieved(place)
    }

    fn unsent_before(&self, place: usize, end: u64) -> u64 {
        let connection = &self.all[place];
        let count = |_| self.journal.count(place, connection.position, &self.range, end);
        connection.next.map_or(0, count)
    }

    fn unreleased_before(&self, place: usize, end: u64) -> u64 {
        self.all[place].sent.partition_point(|sent| sent.turn < end) as u64
    }

    fn may_send(&self, place: usize) -> Result<(), Cause> {
        let connection = &self.all[place];
        let Some(next) = connection.next.filter(|next| *next < self.supply.ready()) else {
            return Err(Cause::NoMicroslices);
        };
        if next >= self.horizon.unwrap_or(u64::MAX).min(self.send_limit()) {
            return Err(Cause::NoCredit);
        }
        if !self.policy.is_building() {
            return if connection.writes < self.slots.for_one {
                Ok(())
            } else {
                Err(Cause::NoTransmitSlot)
            };
        }
        if self.policy.grants() && connection.posted == connection.granted {
            return Err(Cause::NoCredit);
        }
        let length = self.supply.pieces(next).map_or(0, |pieces| pieces.length());
        if connection.ring.place(length).is_none() {
            return Err(Cause::NoCredit);
        }
        if connection.writes >= self.slots.for_one { Err(Cause::NoTransmitSlot) } else { Ok(()) }
    }
}
