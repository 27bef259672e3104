//! Tracks requests that wait for an answer, and the destination of each answer.

use std::sync::atomic::{AtomicU32, Ordering};

use clearway_proto::base::Rank;
use clearway_proto::queue::Ticket;
use clearway_proto::wire::Fault;

use crate::address::{Caller, CallerCell};

/// The most requests under way; a further one waits for the oldest.
const TICKETS: usize = 16 << 10;

/// The ticket is free.
const FREE: u32 = 0;
/// An answer is awaited, and frees the ticket.
const OPEN: u32 = 1;
/// An answer is awaited, and a thread watches for it.
const WATCHED: u32 = 2;
/// The answer is there, and the thread that watches for it frees the ticket.
const ANSWERED: u32 = 3;

struct TicketSlot {
    state: AtomicU32,
    peer: AtomicU32,
    length: AtomicU32,
    into: CallerCell,
}

/// All tickets of this PE.
pub(super) struct Tickets {
    slots: Box<[TicketSlot]>,
    next: AtomicU32,
}

impl Tickets {
    pub(super) fn new() -> Self {
        let slot = || TicketSlot {
            state: AtomicU32::new(FREE),
            peer: AtomicU32::new(0),
            length: AtomicU32::new(0),
            into: CallerCell::new(),
        };
        Self { slots: (0..TICKETS).map(|_| slot()).collect(), next: AtomicU32::new(0) }
    }

    /// Takes the next ticket, for an answer of `length` bytes from `peer` to `into`. Calls `wait` until
    /// the ticket is free. `is_watched` says whether a thread calls [`Tickets::is_answered`].
    pub(super) fn take(
        &self,
        peer: usize,
        into: Caller,
        length: usize,
        is_watched: bool,
        mut wait: impl FnMut(),
    ) -> Ticket {
        // Numbers that follow each other: those of a run of requests stand in its header.
        let number = self.next.fetch_add(1, Ordering::Relaxed);
        let slot = self.slot(Ticket(number));
        // Another thread may have the number that is `TICKETS` earlier, and not be done with it.
        while slot
            .state
            .compare_exchange(FREE, WATCHED, Ordering::AcqRel, Ordering::Relaxed)
            .is_err()
        {
            wait();
        }
        slot.peer.store(peer as u32, Ordering::Relaxed);
        slot.length.store(length as u32, Ordering::Relaxed);
        slot.into.set(into);
        if !is_watched {
            slot.state.store(OPEN, Ordering::Release);
        }
        Ticket(number)
    }

    fn slot(&self, ticket: Ticket) -> &TicketSlot {
        &self.slots[ticket.0 as usize % TICKETS]
    }

    /// Returns whether the watched answer came, and frees the ticket if so.
    pub(super) fn is_answered(&self, ticket: Ticket) -> bool {
        let slot = self.slot(ticket);
        let is_answered = slot.state.load(Ordering::Acquire) == ANSWERED;
        if is_answered {
            slot.state.store(FREE, Ordering::Release);
        }
        is_answered
    }

    /// Copies an answer to its destination.
    ///
    /// # Errors
    /// [`Fault::Malformed`] for an answer that was not requested of `from`.
    pub(super) fn answer(&self, from: Rank, ticket: Ticket, bytes: &[u8]) -> Result<(), Fault> {
        let slot = self.slot(ticket);
        let state = slot.state.load(Ordering::Acquire);
        let is_awaited = matches!(state, OPEN | WATCHED)
            && slot.peer.load(Ordering::Relaxed) == from.0
            && slot.length.load(Ordering::Relaxed) as usize == bytes.len();
        if !is_awaited {
            return Err(Fault::Malformed);
        }
        let into = slot.into.get();
        match <[u8; 8]>::try_from(bytes) {
            Ok(word) => into.write(0, u64::from_le_bytes(word)),
            Err(_) => into.fill(bytes),
        }
        slot.state.store(if state == OPEN { FREE } else { ANSWERED }, Ordering::Release);
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn answer__only_what_was_asked_of_that_peer_is_taken_and_once() {
        let tickets = Tickets::new();
        let mut words = [0u64; 2];
        let into = Caller::from_slice_mut(&mut words);
        let never = || panic!("free");
        let watched = tickets.take(3, into, 8, true, never);
        let open = tickets.take(3, into.plus(8), 5, false, never);
        let ends = [(4, watched, 8), (3, watched, 7), (3, Ticket(9), 8)]
            .map(|(from, ticket, length)| tickets.answer(Rank(from), ticket, &[1; 8][..length]));
        assert_eq!(ends, [Err(Fault::Malformed); 3]);
        assert!(!tickets.is_answered(watched));
        assert_eq!(tickets.answer(Rank(3), watched, &7u64.to_le_bytes()), Ok(()));
        assert_eq!(tickets.answer(Rank(3), watched, &7u64.to_le_bytes()), Err(Fault::Malformed));
        assert!(tickets.is_answered(watched) && !tickets.is_answered(watched));
        assert_eq!(tickets.answer(Rank(3), open, b"abcde"), Ok(()));
        assert_eq!(tickets.answer(Rank(3), open, b"abcde"), Err(Fault::Malformed));
        assert_eq!((words[0], &words[1].to_le_bytes()[..5]), (7, &b"abcde"[..]));
    }
}
