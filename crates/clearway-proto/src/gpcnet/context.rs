//! What every part of a node needs to act: the time, the test, the way out; and what tokens mean.
//!
//! # Model
//! A token says what the operation was: 4 bits kind, 12 bits of the test's number, 20 bits place of
//! the peer, 28 bits sequence.
//!
//! # Not here
//! Which part gets which input: `node`.

use serde::{Deserialize, Serialize};

use super::frame::GpcnetFrame;
use crate::base::{Bytes, Class, LocalNs, Rank};
use crate::wire::{
    Capabilities, Delivery, Destination, OperationKind, OperationSet, Out, Span, Token,
};

/// Bits of a sequence in a token.
const SEQUENCE_BITS: u32 = 28;
/// Bits of a place in a token.
const PLACE_BITS: u32 = 20;
/// Segments that one rank keeps under way to another on a wire that loses them: 16 packets fill a
/// 100 Mb/s link for 1.8 ms, longer than the round trip of a lab, and leave most of a 100-packet
/// queue to others.
const WINDOW_LOSSY: u32 = 16;
/// The same where nothing is lost: all that the bandwidth test has outstanding in messages of one
/// segment, and as many as a bitmap counts.
const WINDOW_RELIABLE: u32 = 128;

/// What each rank registers: the longest message of any test.
pub const MEMORY: Bytes = Bytes(131_072);

/// What a node knows from its beginning.
#[derive(Clone, Copy, Debug)]
pub struct GpcnetConfig {
    /// This rank.
    pub rank: Rank,
    /// Registered memory from which bodies are sent and which peers may read and write; at the same
    /// number on all ranks, and at least [`MEMORY`] long.
    pub memory: Span,
    /// The operations of the wire.
    pub operations: OperationSet,
    /// What happens to messages.
    pub delivery: Delivery,
}

impl GpcnetConfig {
    /// Creates a `GpcnetConfig` of a wire that can do `capabilities`, for `rank`, with `memory`
    /// registered on it.
    pub fn new(rank: Rank, memory: Span, capabilities: &Capabilities) -> Self {
        Self { rank, memory, operations: capabilities.operations, delivery: capabilities.delivery }
    }

    pub(super) fn window(&self) -> u32 {
        if self.delivery == Delivery::Reliable { WINDOW_RELIABLE } else { WINDOW_LOSSY }
    }
}

/// Events for the application.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum GpcnetEvent {
    /// The test is over on this rank; the record can be taken. The rank goes on answering until it
    /// gets another task.
    Over {
        /// Which test.
        number: u32,
    },
}

/// Why a test ended before its end.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
#[non_exhaustive]
pub enum TestFailure {
    /// The wire has no one-sided write.
    NoWrite,
    /// The wire has no one-sided read.
    NoRead,
    /// The wire refused an operation for another reason: memory, rank, path or length.
    Refused,
    /// A peer or the way to it is gone.
    Gone,
}

impl TestFailure {
    /// Returns one sentence for a person.
    pub const fn sentence(self) -> &'static str {
        match self {
            Self::NoWrite => "refused: this wire has no one-sided write",
            Self::NoRead => "refused: this wire has no one-sided read",
            Self::Refused => "failed: the wire refused an operation",
            Self::Gone => "failed: a peer is gone",
        }
    }

    /// Returns what stands in the way of something that `needs` an operation on a wire that has
    /// `operations`.
    pub fn without(needs: Option<OperationKind>, operations: OperationSet) -> Option<Self> {
        let kind = needs.filter(|kind| !operations.has(*kind))?;
        Some(if kind == OperationKind::Write { Self::NoWrite } else { Self::NoRead })
    }
}

/// What an operation was for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum GpcnetPurpose {
    /// A segment to a peer.
    Segment = 1,
    /// A step of a reduction; the place is its lane.
    Step = 2,
    /// A one-sided operation; the sequence is its number in the iteration.
    OneSided = 3,
}

/// A token, taken apart.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct GpcnetLabel {
    pub(super) purpose: GpcnetPurpose,
    pub(super) place: usize,
    pub(super) sequence: u64,
}

impl GpcnetLabel {
    fn token(self, number: u32) -> Token {
        let place = self.place as u64 & ((1 << PLACE_BITS) - 1);
        let sequence = self.sequence & ((1 << SEQUENCE_BITS) - 1);
        let number = u64::from(number & 0xfff) << (PLACE_BITS + SEQUENCE_BITS);
        Token((self.purpose as u64) << 60 | number | place << SEQUENCE_BITS | sequence)
    }

    /// Returns what `token` was for, if it belongs to test `number`. The sequence is the lowest
    /// bits of the real one.
    pub(super) fn from_token(token: Token, number: u32) -> Option<Self> {
        let purpose = match token.0 >> 60 {
            1 => GpcnetPurpose::Segment,
            2 => GpcnetPurpose::Step,
            3 => GpcnetPurpose::OneSided,
            _ => return None,
        };
        let mine = token.0 >> (PLACE_BITS + SEQUENCE_BITS) & 0xfff == u64::from(number & 0xfff);
        let place = (token.0 >> SEQUENCE_BITS) as usize & ((1 << PLACE_BITS) - 1);
        mine.then_some(Self { purpose, place, sequence: token.0 & ((1 << SEQUENCE_BITS) - 1) })
    }

    /// Returns the sequence as the distance from `base`, which was below it by less than 2^28.
    pub(super) fn distance_from(self, base: u64) -> u64 {
        self.sequence.wrapping_sub(base) & ((1 << SEQUENCE_BITS) - 1)
    }
}

/// What a part needs to act.
pub(super) struct GpcnetContext<'a> {
    pub(super) now: LocalNs,
    pub(super) config: &'a GpcnetConfig,
    pub(super) number: u32,
    pub(super) class: Class,
    pub(super) body_max: u32,
    pub(super) out: &'a mut Out<GpcnetEvent>,
}

impl GpcnetContext<'_> {
    /// Sends `frame` with `body` bytes behind it; with a label its end is reported.
    pub(super) fn send(
        &mut self,
        to: Rank,
        frame: GpcnetFrame,
        body: u32,
        label: Option<GpcnetLabel>,
    ) {
        let head = frame.encode(self.number);
        let body =
            if body == 0 { Span::EMPTY } else { Span { length: body, ..self.config.memory } };
        let token = label.map(|label| label.token(self.number));
        self.out.send(Destination::One(to), self.class, head.bytes(), body, token);
    }

    pub(super) fn token(&self, label: GpcnetLabel) -> Token {
        label.token(self.number)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn label__survives_its_token_and_knows_strangers() {
        let label = GpcnetLabel { purpose: GpcnetPurpose::Segment, place: 1_000, sequence: 77 };
        assert_eq!(GpcnetLabel::from_token(label.token(5), 5), Some(label));
        assert_eq!(GpcnetLabel::from_token(label.token(5), 6), None);
        assert_eq!(GpcnetLabel::from_token(Token(0), 0), None);
    }

    #[test]
    fn distance_from__works_across_the_wrap_of_a_sequence() {
        let base = (3 << SEQUENCE_BITS) - 2;
        let label = GpcnetLabel { purpose: GpcnetPurpose::Segment, place: 0, sequence: base + 5 };
        let seen = GpcnetLabel::from_token(label.token(1), 1).expect("mine");
        assert_eq!(seen.distance_from(base), 5);
    }

    #[test]
    fn without__names_what_is_missing() {
        let operations = OperationSet::from_kinds(&[OperationKind::Send, OperationKind::Write]);
        assert_eq!(
            TestFailure::without(Some(OperationKind::Read), operations),
            Some(TestFailure::NoRead)
        );
        assert_eq!(TestFailure::without(Some(OperationKind::Write), operations), None);
        assert_eq!(TestFailure::without(None, operations), None);
    }
}
