//! What an end has under way: which slot does what, how far it got, and which slots of a lane are
//! free.
//!
//! # Invariants
//! I1. A slot is free, or does one thing for one peer; it is given back once.
//! I2. Engines' operations leave [`RESERVE`] slots of each lane to the wire's notes, so answers are
//!     never starved.

use std::ops::Range;

use clearway_proto::base::{LocalNs, Rank};
use clearway_proto::wire::{AtomicKind, RemoteSpan, Span, Token};

use super::layout::{RESERVE, SLOTS};

/// What follows when a message has left.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum AfterSend {
    /// Nothing.
    Nothing,
    /// Its sender is notified.
    Tell(Token),
    /// The connection can be marked.
    Greeted,
    /// The peer answers, and then the asker is notified.
    Answer(Token),
    /// The peer answers, and then this many writes are over (see `words`).
    Heard(usize),
}

/// What a slot does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum SlotWork {
    /// Nothing.
    Free,
    /// Carries a message of this many bytes, which lies in the slot's memory.
    Message { length: usize, then: AfterSend },
    /// Writes into a peer's memory.
    Write { from: Span, into: RemoteSpan, immediate: Option<u64>, token: Option<Token> },
    /// Reads a peer's memory.
    Read { from: RemoteSpan, into: Span, token: Token },
    /// Changes a word by the provider's own means; operand, comparand and result lie in the slot's
    /// memory.
    Atomic { kind: AtomicKind, at: RemoteSpan, token: Token },
}

impl SlotWork {
    /// Returns the peer's memory that must be known first, and how many bytes of it.
    pub(super) fn remote(&self) -> Option<(RemoteSpan, u64)> {
        match *self {
            Self::Write { from, into, .. } => Some((into, u64::from(from.length))),
            Self::Read { from, into, .. } => Some((from, u64::from(into.length))),
            Self::Atomic { at, .. } => Some((at, 8)),
            Self::Free | Self::Message { .. } => None,
        }
    }

    /// Returns the token of the operation whose end is to be reported.
    pub(super) fn token(&self) -> Option<Token> {
        match *self {
            Self::Message { then: AfterSend::Tell(token) | AfterSend::Answer(token), .. } => {
                Some(token)
            }
            Self::Write { token, .. } => token,
            Self::Read { token, .. } | Self::Atomic { token, .. } => Some(token),
            Self::Free | Self::Message { .. } => None,
        }
    }
}

/// How far it got.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum SlotStage {
    /// Waits to learn where the peer's memory is.
    Region,
    /// Waits for the provider to take it.
    Queued,
    /// The provider has it.
    Provider,
    /// Waits for the peer's answer.
    Answer,
}

/// One slot.
#[derive(Clone, Copy, Debug)]
pub(super) struct Slot {
    pub(super) work: SlotWork,
    pub(super) stage: SlotStage,
    /// The peer.
    pub(super) to: Rank,
    /// When it began to wait for the peer.
    pub(super) since: LocalNs,
    /// How often the slot was used: tells answers to an earlier question from answers to this one.
    pub(super) generation: u32,
}

/// On whose behalf a slot is taken.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum SlotOwner {
    Engine,
    Wire,
}

/// The slots of all lanes.
#[derive(Debug)]
pub(super) struct Slots {
    slots: Vec<Slot>,
    free: Vec<Vec<usize>>,
}

impl Slots {
    pub(super) fn new(lanes: usize) -> Self {
        let idle = Slot {
            work: SlotWork::Free,
            stage: SlotStage::Queued,
            to: Rank(0),
            since: LocalNs(0),
            generation: 0,
        };
        Self {
            slots: vec![idle; lanes * SLOTS],
            free: (0..lanes).map(|lane| Self::of_lane(lane).rev().collect()).collect(),
        }
    }

    /// Returns the lane of a slot.
    pub(super) const fn lane(slot: usize) -> usize {
        slot / SLOTS
    }

    /// Returns the slots of a lane.
    pub(super) const fn of_lane(lane: usize) -> Range<usize> {
        lane * SLOTS..(lane + 1) * SLOTS
    }

    /// Returns how many slots there are in all lanes.
    pub(super) fn count(&self) -> usize {
        self.slots.len()
    }

    /// Returns the slot that `taker` would get.
    pub(super) fn next(&self, lane: usize, taker: SlotOwner) -> Option<usize> {
        let free = &self.free[lane];
        let kept = if taker == SlotOwner::Engine { RESERVE } else { 0 };
        if free.len() > kept { free.last().copied() } else { None }
    }

    /// Returns whether a lane that was full has room again: a quarter is free, so that a sender is
    /// not woken for each message.
    pub(super) fn has_room(&self, lane: usize) -> bool {
        const { assert!(SLOTS / 4 > RESERVE) };
        self.free[lane].len() >= SLOTS / 4
    }

    /// Returns how many slots are in use.
    #[cfg(test)]
    pub(super) fn pending(&self) -> usize {
        self.slots.len() - self.free.iter().map(Vec::len).sum::<usize>()
    }

    /// Takes the slot that [`Slots::next`] named.
    pub(super) fn take(&mut self, slot: usize, to: Rank, work: SlotWork) {
        let taken = self.free[Self::lane(slot)].pop();
        assert_eq!(taken, Some(slot), "the slot that was offered is taken");
        let entry = &mut self.slots[slot];
        entry.generation = entry.generation.wrapping_add(1);
        (entry.work, entry.to, entry.stage) = (work, to, SlotStage::Queued);
    }

    /// Gives a slot back; what it did.
    pub(super) fn give_back(&mut self, slot: usize) -> SlotWork {
        let work = std::mem::replace(&mut self.slots[slot].work, SlotWork::Free);
        assert_ne!(work, SlotWork::Free, "a slot is given back once");
        self.free[Self::lane(slot)].push(slot);
        work
    }

    pub(super) fn get(&self, slot: usize) -> &Slot {
        &self.slots[slot]
    }

    pub(super) fn get_mut(&mut self, slot: usize) -> &mut Slot {
        &mut self.slots[slot]
    }

    /// Returns a number by which an answer to what is in `slot` now can be recognised.
    pub(super) fn ticket(&self, slot: usize) -> u64 {
        u64::from(self.slots[slot].generation) << 32 | slot as u64
    }

    /// Returns the slot that `ticket` names, if it still does for `peer` what it did then.
    pub(super) fn named(&self, ticket: u64, peer: Rank) -> Option<usize> {
        let slot = (ticket & u64::from(u32::MAX)) as usize;
        let entry = self.slots.get(slot)?;
        let same = entry.work != SlotWork::Free && u64::from(entry.generation) == ticket >> 32;
        (same && entry.to == peer).then_some(slot)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MESSAGE: SlotWork = SlotWork::Message { length: 1, then: AfterSend::Answer(Token(1)) };

    #[test]
    fn next__engines_leave_the_reserve_and_lanes_do_not_share() {
        let mut slots = Slots::new(2);
        while let Some(slot) = slots.next(0, SlotOwner::Engine) {
            slots.take(slot, Rank(1), MESSAGE);
        }
        let mut reserve = 0;
        while let Some(slot) = slots.next(0, SlotOwner::Wire) {
            assert_eq!(Slots::lane(slot), 0);
            slots.take(slot, Rank(1), MESSAGE);
            reserve += 1;
        }
        assert_eq!(reserve, RESERVE);
        assert_eq!(slots.next(1, SlotOwner::Engine).map(Slots::lane), Some(1));
        assert!(!slots.has_room(0) && slots.has_room(1));
    }

    #[test]
    fn named__only_the_peer_asked_and_only_the_question_that_still_waits() {
        let mut slots = Slots::new(1);
        let slot = slots.next(0, SlotOwner::Engine).expect("a free slot");
        slots.take(slot, Rank(3), MESSAGE);
        let ticket = slots.ticket(slot);
        assert_eq!(slots.named(ticket, Rank(3)), Some(slot));
        assert_eq!(slots.named(ticket, Rank(2)), None, "another peer");
        assert_eq!(slots.named(u64::MAX, Rank(3)), None, "no such slot");
        slots.give_back(slot);
        assert_eq!(slots.named(ticket, Rank(3)), None, "given back");
        slots.take(slot, Rank(3), MESSAGE);
        assert_eq!(slots.named(ticket, Rank(3)), None, "a later question");
    }
}
