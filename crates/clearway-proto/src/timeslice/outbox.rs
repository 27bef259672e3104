//! Which peers need a header, with one under way to each at most.
//!
//! # Model
//! A header is written when it leaves, not when the need arises, so what is said is always the
//! latest: needs that arise while one is under way are answered together by the next.
//!
//! # Invariants
//! I1. A need is never lost: it ends in a header, or waits for one under way or for room.

use alloc::collections::VecDeque;
use alloc::vec;
use alloc::vec::Vec;

use crate::wire::Status;

/// What is under way to a peer.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum OutboxState {
    #[default]
    Idle,
    /// It stands in the queue.
    Queued,
    UnderWay,
    /// One is under way, and another one is needed behind it.
    UnderWayAndNeeded,
}

/// Needs of one node, by the place of its peers.
#[derive(Debug)]
pub(super) struct Outbox {
    states: Vec<OutboxState>,
    queue: VecDeque<u32>,
    full: bool,
}

impl Outbox {
    /// Creates an `Outbox` for `peers` peers.
    pub(super) fn new(peers: usize) -> Self {
        Self { states: vec![OutboxState::Idle; peers], queue: VecDeque::new(), full: false }
    }

    /// Owes the peer at `place` a header.
    pub(super) fn want(&mut self, place: usize) {
        match self.states[place] {
            OutboxState::Idle => {
                self.states[place] = OutboxState::Queued;
                self.queue.push_back(place as u32);
            }
            OutboxState::UnderWay => self.states[place] = OutboxState::UnderWayAndNeeded,
            OutboxState::Queued | OutboxState::UnderWayAndNeeded => {}
        }
    }

    /// Returns the next peer to which a header leaves now.
    pub(super) fn next(&mut self) -> Option<usize> {
        if self.full {
            return None;
        }
        let place = self.queue.pop_front()? as usize;
        self.states[place] = OutboxState::UnderWay;
        Some(place)
    }

    /// Records that the header to the peer at `place` has left, or has not.
    pub(super) fn done(&mut self, place: usize, status: Status) {
        let Some(state) = self.states.get_mut(place) else { return };
        let again = *state == OutboxState::UnderWayAndNeeded || status == Status::NoRoom;
        self.full |= status == Status::NoRoom;
        *state = OutboxState::Idle;
        if again {
            self.want(place);
        }
    }

    /// Records that nothing was owed to the peer at `place` after all.
    pub(super) fn nothing(&mut self, place: usize) {
        self.states[place] = OutboxState::Idle;
    }

    /// Continues: there is room again.
    pub(super) fn room(&mut self) {
        self.full = false;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn next__one_header_to_a_peer_at_a_time() {
        let mut outbox = Outbox::new(2);
        outbox.want(1);
        outbox.want(1);
        assert_eq!((outbox.next(), outbox.next()), (Some(1), None));
        outbox.want(1);
        assert_eq!(outbox.next(), None);
        outbox.done(1, Status::Complete);
        assert_eq!((outbox.next(), outbox.next()), (Some(1), None));
    }

    #[test]
    fn done__without_room_the_need_waits_for_it() {
        let mut outbox = Outbox::new(2);
        outbox.want(0);
        assert_eq!(outbox.next(), Some(0));
        outbox.done(0, Status::NoRoom);
        outbox.want(1);
        assert_eq!(outbox.next(), None);
        outbox.room();
        assert_eq!((outbox.next(), outbox.next()), (Some(0), Some(1)));
    }
}
