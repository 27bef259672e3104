//! What is under way: one record for each message that the carrier was given, found again by its
//! tag.
//!
//! # Invariants
//! I1. A record lives until everything the carrier owes for it has come; a tag that comes later
//!     names nothing.

use clearway_proto::base::{Class, Rank};
use clearway_proto::wire::{
    AtomicKind, Destination, HeadRef, PathId, RemoteSpan, Span, Status, Token,
};

use crate::memory::MessageBody;
use crate::time::Picos;

/// The longest header: as long as the memory and UDP wires', so that an engine that fits here fits
/// there.
pub(super) const HEAD_MAX: usize = 128;

/// An engine's header, kept without allocation.
#[derive(Clone, Debug)]
pub(super) struct InlineHeader {
    length: u8,
    bytes: [u8; HEAD_MAX],
}

impl InlineHeader {
    /// Creates a copy of what `head` names in `heads`; at most [`HEAD_MAX`] bytes.
    pub(super) fn new(head: HeadRef, heads: &[u8]) -> Self {
        let from = head.bytes_in(heads).unwrap_or_default();
        let length = from.len().min(HEAD_MAX);
        let mut bytes = [0; HEAD_MAX];
        bytes[..length].copy_from_slice(&from[..length]);
        Self { length: length as u8, bytes }
    }

    /// Returns the header.
    pub(super) fn bytes(&self) -> &[u8] {
        &self.bytes[..usize::from(self.length)]
    }

    /// Damages it, as a fault: flips one bit.
    pub(super) fn damage(&mut self, place: usize, bit: u32) {
        if place < usize::from(self.length) {
            self.bytes[place] ^= 1 << (bit % 8);
        }
    }
}

/// What a message is for.
#[derive(Clone, Debug)]
pub(super) enum FlightPayload {
    /// For the engine at the other end.
    Message { head: InlineHeader, body: MessageBody },
    /// For the memory at the other end.
    Write { into: RemoteSpan, length: u32, body: MessageBody, immediate: Option<u64> },
    /// Asks the other end's interface for memory.
    ReadRequest { source: RemoteSpan, into: Span },
    /// Asks the other end's interface to change a word.
    AtomicRequest { kind: AtomicKind, at: RemoteSpan },
    /// Answers a request.
    Reply { into: Span, body: MessageBody, status: Status, value: u64 },
    /// Delivered already.
    Gone,
}

/// A message under way.
#[derive(Clone, Debug)]
pub(super) struct InFlight {
    pub(super) from: Rank,
    pub(super) to: Destination,
    /// Of the sender when it posted.
    pub(super) incarnation: u32,
    /// Of the one rank it goes to, then; its registered memory goes with it.
    pub(super) peer_incarnation: u32,
    pub(super) path: PathId,
    pub(super) class: Class,
    pub(super) token: Option<Token>,
    pub(super) kind: FlightKind,
    pub(super) cargo: FlightPayload,
    /// As the carrier counts them.
    pub(super) bytes: u64,
    /// Whether it still counts against the sender's transmit queue.
    pub(super) queued: Queued,
    /// Deliveries to come.
    pub(super) receivers: u32,
    /// Whether an acknowledgement is to come.
    pub(super) acknowledgement: Acknowledgement,
    /// How a write ended at the target.
    pub(super) outcome: Status,
    /// Times it was sent again.
    pub(super) repeats: u8,
}

/// Whose business a message is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum FlightKind {
    /// The engines': its token completes when it left, and what is lost is lost.
    Message,
    /// The interfaces': they answer, and repeat what was lost.
    OneSided,
}

/// Whether a message counts against its sender's transmit queue.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Queued {
    Yes,
    No,
}

/// Whether the sender's interface learns that all was delivered.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Acknowledgement {
    Awaited,
    Unasked,
}

impl InFlight {
    /// Returns whether nothing more is to come for this message.
    pub(super) fn is_over(&self) -> bool {
        self.queued == Queued::No
            && self.receivers == 0
            && self.acknowledgement == Acknowledgement::Unasked
    }
}

/// A message that left an engine and not yet its end of the wire.
#[derive(Debug)]
pub(super) struct Outgoing {
    pub(super) at: Picos,
    pub(super) flight: InFlight,
}

/// All messages under way.
#[derive(Debug, Default)]
pub(super) struct InFlightTable {
    slots: Vec<Slot>,
    free: Vec<u32>,
}

#[derive(Debug)]
struct Slot {
    generation: u32,
    flight: Option<InFlight>,
}

/// Names a message: the place of its record, and how often that place was used before.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct FlightId(pub(super) u64);

impl FlightId {
    const fn new(place: u32, generation: u32) -> Self {
        Self((generation as u64) << 32 | place as u64)
    }

    const fn place(self) -> usize {
        self.0 as u32 as usize
    }

    const fn generation(self) -> u32 {
        (self.0 >> 32) as u32
    }
}

impl InFlightTable {
    /// Keeps `flight`; O(1).
    pub(super) fn insert(&mut self, flight: InFlight) -> FlightId {
        let place = self.free.pop().unwrap_or(self.slots.len() as u32);
        match self.slots.get_mut(place as usize) {
            Some(slot) => {
                slot.flight = Some(flight);
                FlightId::new(place, slot.generation)
            }
            None => {
                self.slots.push(Slot { generation: 0, flight: Some(flight) });
                FlightId::new(place, 0)
            }
        }
    }

    /// Returns the message `tag`, if it is still under way.
    pub(super) fn get_mut(&mut self, tag: FlightId) -> Option<&mut InFlight> {
        let slot =
            self.slots.get_mut(tag.place()).filter(|slot| slot.generation == tag.generation())?;
        slot.flight.as_mut()
    }

    /// Forgets `tag` if nothing more is to come for it.
    pub(super) fn retire(&mut self, tag: FlightId) {
        if self.get_mut(tag).is_some_and(|flight| flight.is_over()) {
            let slot = &mut self.slots[tag.place()];
            slot.flight = None;
            slot.generation = slot.generation.wrapping_add(1);
            self.free.push(tag.place() as u32);
        }
    }

    /// Returns the messages under way.
    pub(super) fn count(&self) -> usize {
        self.slots.len() - self.free.len()
    }
}
