//! What the wire and the driver do for an engine at this moment, by token.
//!
//! # Invariants
//! I1. A token is one operation from its issue to its end.

use alloc::vec::Vec;

use super::lane::{LaneItem, PulledWrite};
use crate::base::Rank;
use crate::wire::{RemoteSpan, Span, Token};

/// An operation of the wire or the driver.
#[derive(Clone, Copy, Debug)]
pub(super) enum QueueOperation {
    /// A batch on its way.
    Batch { item: LaneItem, buffer: Span },
    /// A write of the application.
    Put { item: LaneItem },
    /// A read of the application.
    Read { item: LaneItem },
    /// A request for a write on its way.
    Pull { item: LaneItem, ordinal: u64 },
    /// A write that a peer asked for.
    Pulled(PulledWrite),
    /// An answer on its way.
    Answer { ordinal: u64, length: u32, is_refused: bool },
    /// Counts on their way.
    Counts { asks: bool },
    /// Records of a peer.
    Apply { ordinal: Option<u64> },
    /// Values that answer a batch of ours.
    Values { ordinal: u64 },
}

/// Operations under way, and the stream of each.
#[derive(Debug, Default)]
pub(super) struct Operations {
    entries: Vec<Option<(u32, QueueOperation)>>,
    free: Vec<u32>,
}

impl Operations {
    /// Adds an operation of the stream with this number.
    pub(super) fn add(&mut self, lane: u32, operation: QueueOperation) -> Token {
        let index = self.free.pop().unwrap_or_else(|| {
            self.entries.push(None);
            self.entries.len() as u32 - 1
        });
        self.entries[index as usize] = Some((lane, operation));
        Token(u64::from(index))
    }

    /// Takes the operation of a token, which is over.
    pub(super) fn take(&mut self, token: Token) -> Option<(u32, QueueOperation)> {
        let index = u32::try_from(token.0).ok()?;
        let taken = self.entries.get_mut(index as usize)?.take()?;
        self.free.push(index);
        Some(taken)
    }

    /// Returns whether nothing is under way.
    pub(super) fn is_empty(&self) -> bool {
        self.free.len() == self.entries.len()
    }
}

/// What a message wants to be done at the end of the round.
#[derive(Clone, Copy, Debug)]
pub(super) enum ReceivedWork {
    /// Records; the number of the answer that they want.
    Records { body: Span, ordinal: Option<u64> },
    /// Values that answer a batch of ours.
    Values { body: Span, ordinal: u64 },
    /// A write of bytes of ours.
    Pull { from: RemoteSpan, into: Span, ordinal: u64 },
}

/// A message whose body waits, in the memory of the last poll, for the end of the round.
#[derive(Clone, Copy, Debug)]
pub(super) struct ReceivedBody {
    pub(super) lane: u32,
    pub(super) from: Rank,
    pub(super) work: ReceivedWork,
}
