//! How messages become fragments: how long each is, and where its bytes go at the peer.
//!
//! # Model
//! A message is cut when its fragments can leave soon, and not before. One for the peer's inbox
//! gets its place there when its first fragment is cut: positions count on for ever, and the peer
//! says up to which its inbox is free.
//!
//! # Invariants
//! I1. Fragments of a message are cut in order, and none of the next before the last of it.

use alloc::collections::VecDeque;

use super::frame::{
    BodyPlacement, DATA_LENGTH, FRAME_MAX, INBOX, MessageTrailer, OFFSET_LIMIT, TAIL_LENGTH,
    position,
};
use super::{Message, MessageCompletion, MessageTarget};
use crate::wire::{Capabilities, Span};

/// Bytes of the word of a write.
const WORD_LENGTH: usize = 8;

/// How long fragments are, and the peer's inbox.
#[derive(Clone, Copy, Debug)]
pub(super) struct SegmentationLimits {
    /// Head and body of a datagram.
    datagram: usize,
    /// The longest body of a datagram.
    body: usize,
    /// Bytes of the inbox that the peer keeps for this stream.
    inbox: u64,
}

impl SegmentationLimits {
    pub(super) fn new(capabilities: &Capabilities, inbox: u64) -> Self {
        Self { datagram: capabilities.message_max, body: capabilities.body_max, inbox }
    }

    /// Returns whether a header and a body of these lengths fit a datagram.
    pub(super) const fn has_room(&self, header: usize, body: u32) -> bool {
        header <= FRAME_MAX && header + body as usize <= self.datagram
    }

    /// Returns the longest body of a datagram with a tail of `tail` bytes.
    fn body_max_with_tail(&self, tail: usize) -> u32 {
        self.datagram.saturating_sub(DATA_LENGTH + tail).min(self.body) as u32
    }
}

/// Bytes of a 64-bit word.
const WORD: u64 = 8;

/// Returns at most `length`, so that what begins at `offset` of the peer's memory ends at a
/// multiple of a word: no word is cut in two.
const fn whole_words(offset: u64, length: u32) -> u32 {
    let beyond = ((offset + length as u64) % WORD) as u32;
    if length > beyond { length - beyond } else { length }
}

/// A message whose last fragment is cut.
#[derive(Clone, Debug)]
pub(super) struct SegmentedMessage {
    pub(super) first: u64,
    pub(super) last: u64,
    pub(super) tail: MessageTrailer,
    pub(super) ticket: MessageCompletion,
    pub(super) is_refused: bool,
}

/// What is cut of the first message that waits.
#[derive(Clone, Copy, Debug)]
struct PartialMessage {
    bytes: u32,
    place: BodyPlacement,
    /// The number of its first fragment.
    first: u64,
}

/// Messages that wait to be cut.
#[derive(Debug)]
pub(super) struct SegmentationQueue {
    pub(super) measures: SegmentationLimits,
    pub(super) waiting: VecDeque<Message>,
    begun: Option<PartialMessage>,
    /// Positions in the peer's inbox: the next that is free here, and up to which the peer has
    /// freed.
    position: u64,
    freed: u64,
}

impl SegmentationQueue {
    pub(super) const fn new(measures: SegmentationLimits) -> Self {
        Self { measures, waiting: VecDeque::new(), begun: None, position: 0, freed: 0 }
    }

    /// Frees the peer's inbox up to the position that ends in `low`; returns whether that is more
    /// than before.
    pub(super) fn free(&mut self, low: u64) -> bool {
        let freed = position(self.freed, low).min(self.position);
        let is_more = freed > self.freed;
        self.freed = self.freed.max(freed);
        is_more
    }

    /// Returns the body and the place of the next fragment, which is `number`, and its message if
    /// that was the last; nothing while nothing waits or the peer's inbox is full.
    pub(super) fn next(
        &mut self,
        number: u64,
    ) -> Option<(Span, BodyPlacement, Option<SegmentedMessage>)> {
        let (target, whole) = self.waiting.front().map(|message| (message.target, message.body))?;
        let begun = match self.begun {
            Some(begun) => begun,
            None => PartialMessage {
                bytes: 0,
                place: self.place_of(target, whole.length)?,
                first: number,
            },
        };
        let left = whole.length - begun.bytes;
        let tail_length = TAIL_LENGTH
            + match target {
                MessageTarget::Inbox { head } => head.bytes().len(),
                MessageTarget::Memory { immediate, .. } => immediate.map_or(0, |_| WORD_LENGTH),
            };
        let with_tail = self.measures.body_max_with_tail(tail_length);
        let without_tail = self.measures.body_max_with_tail(0);
        let is_last = left <= with_tail;
        let length = if is_last { left } else { left.min(without_tail).min(left - 1) };
        let length = match target {
            MessageTarget::Memory { .. } if !is_last => {
                whole_words(begun.place.offset + u64::from(begun.bytes), length)
            }
            _ => length,
        };
        let body =
            Span { region: whole.region, offset: whole.offset + u64::from(begun.bytes), length };
        let offset = (begun.place.offset + u64::from(begun.bytes)) % OFFSET_LIMIT;
        let place = BodyPlacement { region: begun.place.region, offset };
        if !is_last {
            self.begun = Some(PartialMessage { bytes: begun.bytes + length, ..begun });
            return Some((body, place, None));
        }
        self.begun = None;
        let ticket = self.waiting.pop_front()?.ticket;
        let length = whole.length;
        let tail = match target {
            MessageTarget::Inbox { head } => MessageTrailer::Message { length, head },
            MessageTarget::Memory { immediate, .. } => MessageTrailer::Landed { length, immediate },
        };
        Some((
            body,
            place,
            Some(SegmentedMessage {
                first: begun.first,
                last: number,
                tail,
                ticket,
                is_refused: false,
            }),
        ))
    }

    /// Returns where a message of `length` goes; nothing while the peer's inbox is full.
    fn place_of(&mut self, target: MessageTarget, length: u32) -> Option<BodyPlacement> {
        let MessageTarget::Inbox { .. } = target else {
            let MessageTarget::Memory { into, .. } = target else { return None };
            return Some(BodyPlacement { region: into.region, offset: into.offset });
        };
        let (length, inbox) = (u64::from(length), self.measures.inbox);
        let turn = self.position % inbox;
        // Within the inbox a message lies in one piece.
        let start =
            if turn + length > inbox { self.position + inbox - turn } else { self.position };
        if start + length > self.freed + inbox {
            return None;
        }
        self.position = start + length;
        Some(BodyPlacement { region: INBOX, offset: start })
    }
}
