//! Events in the one order that everything follows: by instant, then kind, then entity, then
//! argument.
//!
//! # Model
//! An event is 16 bytes and names what it is about; what happens is the fabric's business. Two
//! queues give the same order: [`EventHeap`], the simplest thing that can be right, and
//! [`TimingWheel`], whose cost does not grow with what is pending. Their interface is that of
//! [`PendingEvents`], which is either of them.
//!
//! # Invariants
//! I1. A pop gives the least event pushed and not yet popped, whatever has been pushed when. Equal
//!     events may be pushed
//!     more than once and come out as often.

mod heap;
mod wheel;

use core::cmp::Ordering;

use crate::time::Picos;

pub(crate) use heap::EventHeap;
pub(crate) use wheel::TimingWheel;

/// Something that happens at an instant.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Event {
    /// When.
    pub at: Picos,
    /// Kind (upper 4 bits) and entity (lower 28).
    pub key: u32,
    /// What else the kind needs to know.
    pub arg: u32,
}

impl Event {
    /// Bits of a key that name the entity.
    const ENTITY_BITS: u32 = 28;

    /// Creates an event of `kind` (below 16) about `entity` (below 2^28).
    pub(crate) const fn new(at: Picos, kind: u8, entity: u32, arg: u32) -> Self {
        debug_assert!(kind < 16 && entity < 1 << Self::ENTITY_BITS);
        Self { at, key: (kind as u32) << Self::ENTITY_BITS | entity, arg }
    }

    /// Returns what sort of event it is.
    pub(crate) const fn kind(self) -> u8 {
        (self.key >> Self::ENTITY_BITS) as u8
    }

    /// Returns what it is about.
    pub(crate) const fn entity(self) -> u32 {
        self.key & ((1 << Self::ENTITY_BITS) - 1)
    }

    /// Returns the whole order as one number: compared without branches.
    const fn rank(self) -> u128 {
        (self.at.0 as u128) << 64 | (self.key as u128) << 32 | self.arg as u128
    }
}

impl Ord for Event {
    fn cmp(&self, other: &Self) -> Ordering {
        self.rank().cmp(&other.rank())
    }
}

impl PartialOrd for Event {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

/// What orders the events.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum EventQueueKind {
    /// Buckets of time: constant cost when many events are pending.
    #[default]
    Wheel,
    /// A binary heap: the simplest thing that can be right.
    Heap,
}

/// One of the queues.
#[derive(Clone, Debug)]
pub(crate) enum PendingEvents {
    /// The oracle.
    Heap(EventHeap),
    /// The fast one.
    Wheel(TimingWheel),
}

impl PendingEvents {
    /// Creates an empty queue of the kind asked for.
    pub(crate) fn new(kind: EventQueueKind) -> Self {
        match kind {
            EventQueueKind::Heap => Self::Heap(EventHeap::default()),
            EventQueueKind::Wheel => Self::Wheel(TimingWheel::default()),
        }
    }

    /// Adds `event`; any instant will do, one that has passed makes it the next.
    #[inline]
    pub(crate) fn push(&mut self, event: Event) {
        match self {
            Self::Heap(heap) => heap.push(event),
            Self::Wheel(wheel) => wheel.push(event),
        }
    }

    /// Returns when the next event is.
    pub(crate) fn next_at(&self) -> Option<Picos> {
        match self {
            Self::Heap(heap) => heap.peek().map(|event| event.at),
            Self::Wheel(wheel) => wheel.next_at(),
        }
    }

    /// Takes the next event.
    #[cfg(test)]
    pub(crate) fn pop(&mut self) -> Option<Event> {
        match self {
            Self::Heap(heap) => heap.pop(),
            Self::Wheel(wheel) => wheel.pop(),
        }
    }

    /// Takes the next event if it is not later than `instant`. In a loop over one instant this is
    /// cheaper than looking first.
    #[inline(always)]
    pub(crate) fn pop_until(&mut self, instant: Picos) -> Option<Event> {
        match self {
            Self::Heap(heap) => heap.pop_until(instant),
            Self::Wheel(wheel) => wheel.pop_until(instant),
        }
    }

    /// Returns how many events are pending.
    #[cfg(test)]
    pub(crate) fn len(&self) -> usize {
        match self {
            Self::Heap(heap) => heap.len(),
            Self::Wheel(wheel) => wheel.len(),
        }
    }
}

#[cfg(test)]
mod tests;
