//! The header of a queue message.
//!
//! # Model
//! ```text
//!   0   magic 0x51
//!   1   kind: BATCH 1, ANSWER 2, COUNTS 3, PULL 4
//!   2   class of the stream, by its index
//!   3   flags: 1 answer me, 2 has requests, 4 refused
//!   4   number of the message in its stream, or of the request that is answered (u64)
//!  12   batches of the peer's stream that were applied here, from the first on (u64)
//!  20   answers to the peer that do not hold their places any more, from the first on (u64)
//!  28   PULL: region (u16), offset (u64), region of the writer of this (u16), offset (u64), length (u32)
//! ```
//!
//! # Invariants
//! I1. Any bytes are a frame or none.

use crate::base::{ByteReader, Class, Head};
use crate::wire::{RegionId, RemoteSpan, Span};

/// The longest header.
pub(super) const HEAD_MAX: usize = 52;

const MAGIC: u8 = 0x51;
const ASKS: u8 = 1;
const HAS_REQUESTS: u8 = 2;
const REFUSED: u8 = 4;

/// Returns whether a header is of this engine, well-formed or not.
pub(super) fn is_frame(head: &[u8]) -> bool {
    head.first() == Some(&MAGIC)
}

/// What a message is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum QueueMessage {
    /// Records; the body has them.
    Batch {
        /// Some of them have tickets.
        has_requests: bool,
    },
    /// The answer to a request; the body has values.
    Answer {
        /// Nothing was fetched.
        is_refused: bool,
    },
    /// Nothing but counts.
    Counts,
    /// Asks for a write; a request.
    Pull {
        /// Of which bytes of the receiver.
        from: RemoteSpan,
        /// To which bytes of the sender.
        into: Span,
    },
}

/// A header.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct QueueFrame {
    pub(super) message: QueueMessage,
    pub(super) class: Class,
    /// The receiver says soon what it has applied.
    pub(super) asks: bool,
    pub(super) number: u64,
    pub(super) applied: u64,
    pub(super) released: u64,
}

impl QueueFrame {
    pub(super) fn encode(&self) -> Head<HEAD_MAX> {
        let (kind, flag) = match self.message {
            QueueMessage::Batch { has_requests } => {
                (1, if has_requests { HAS_REQUESTS } else { 0 })
            }
            QueueMessage::Answer { is_refused } => (2, if is_refused { REFUSED } else { 0 }),
            QueueMessage::Counts => (3, 0),
            QueueMessage::Pull { .. } => (4, HAS_REQUESTS),
        };
        let flags = flag | if self.asks { ASKS } else { 0 };
        let mut head = Head::new();
        head.put(&[MAGIC, kind, self.class.index() as u8, flags]);
        for number in [self.number, self.applied, self.released] {
            head.put(&number.to_le_bytes());
        }
        if let QueueMessage::Pull { from, into } = self.message {
            head.put(&from.region.0.to_le_bytes()).put(&from.offset.to_le_bytes());
            head.put(&into.region.0.to_le_bytes()).put(&into.offset.to_le_bytes());
            head.put(&into.length.to_le_bytes());
        }
        head
    }

    pub(super) fn decode(head: &[u8]) -> Option<Self> {
        let mut rest = ByteReader::new(head);
        let [magic, kind, class, flags] = rest.take()?;
        let (number, applied, released) = (rest.u64()?, rest.u64()?, rest.u64()?);
        let class = *Class::ALL.get(usize::from(class))?;
        let message = match (kind, flags & !ASKS) {
            (1, flag @ (0 | HAS_REQUESTS)) => {
                QueueMessage::Batch { has_requests: flag == HAS_REQUESTS }
            }
            (2, flag @ (0 | REFUSED)) => QueueMessage::Answer { is_refused: flag == REFUSED },
            (3, 0) => QueueMessage::Counts,
            (4, HAS_REQUESTS) => {
                let from = RemoteSpan { region: RegionId(rest.u16()?), offset: rest.u64()? };
                let (region, offset) = (RegionId(rest.u16()?), rest.u64()?);
                QueueMessage::Pull { from, into: Span { region, offset, length: rest.u32()? } }
            }
            _ => return None,
        };
        let asks = flags & ASKS != 0;
        (magic == MAGIC && rest.is_empty()).then_some(Self {
            message,
            class,
            asks,
            number,
            applied,
            released,
        })
    }
}
