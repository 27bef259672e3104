//! What stands in a ring: one word that says what follows, a header, a body; all of it doubted when
//! read.
//!
//! # Model
//! A record begins at a multiple of 8 bytes and fills words of 8 bytes. Its first word, in the
//! machine's own order of bytes:
//!
//! | bits | field |
//! |---|---|
//! | 0 to 7 | kind: 1 message, 2 landed |
//! | 8 to 15 | length of the header, 0 to 80 |
//! | 16 to 31 | zero |
//! | 32 to 63 | length of the body |
//!
//! The header stands behind the word, the body behind the header. *Landed* tells that a one-sided
//! write is complete; its header of 24 bytes is offset, immediate (8 bytes each), length (4),
//! region (2), zero (2), little-endian.
//!
//! # Invariants
//! I1. [`parse`] and [`parse_landed`] answer for any value; what they accept is within the limits.

use clearway_proto::base::ByteReader;
use clearway_proto::wire::{RegionId, Span};

use crate::udp::frame;

/// The longest engine's header: that of the UDP wire, so that an engine that fits there fits here.
pub(super) const HEAD_MAX: usize = frame::HEAD_MAX;
/// The longest body. Longer pieces save little: from 8 KiB on a piece costs its bytes, and rings
/// stay small.
pub(super) const BODY_MAX: usize = 8_192;
/// Bytes of the first word.
pub(super) const WORD: usize = 8;
/// Bytes of a landed record's header.
pub(super) const LANDED_LENGTH: usize = 24;
/// Words of the longest record.
pub(super) const WORDS_MAX: u32 = (WORD + HEAD_MAX + BODY_MAX).div_ceil(WORD) as u32;

/// What a record is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum RecordKind {
    /// A message of an engine.
    Message = 1,
    /// The notice of a one-sided write.
    Landed = 2,
}

/// The first word of a record, taken apart.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct RecordHeader {
    pub(super) kind: RecordKind,
    /// Bytes of the header, at most [`HEAD_MAX`].
    pub(super) head: usize,
    /// Bytes of the body, at most [`BODY_MAX`].
    pub(super) body: usize,
}

impl RecordHeader {
    /// Returns how many words the record fills.
    pub(super) const fn words(self) -> u32 {
        (WORD + self.head + self.body).div_ceil(WORD) as u32
    }

    /// Returns the first word.
    pub(super) const fn word(self) -> u64 {
        self.kind as u64 | (self.head as u64) << 8 | (self.body as u64) << 32
    }
}

/// Takes a first word apart; `None` for one that no wire writes.
pub(super) fn parse(word: u64) -> Option<RecordHeader> {
    let kind = match word & 0xff {
        1 => RecordKind::Message,
        2 => RecordKind::Landed,
        _ => return None,
    };
    let (head, zero, body) =
        ((word >> 8 & 0xff) as usize, word >> 16 & 0xffff, (word >> 32) as usize);
    let fits = match kind {
        RecordKind::Message => head <= HEAD_MAX && body <= BODY_MAX,
        RecordKind::Landed => head == LANDED_LENGTH && body == 0,
    };
    (fits && zero == 0).then_some(RecordHeader { kind, head, body })
}

/// Returns the header of a landed record.
pub(super) fn landed(into: Span, immediate: u64) -> [u8; LANDED_LENGTH] {
    let mut bytes = [0; LANDED_LENGTH];
    bytes[..8].copy_from_slice(&into.offset.to_le_bytes());
    bytes[8..16].copy_from_slice(&immediate.to_le_bytes());
    bytes[16..20].copy_from_slice(&into.length.to_le_bytes());
    bytes[20..22].copy_from_slice(&into.region.0.to_le_bytes());
    bytes
}

/// Reads the header of a landed record: where, and the immediate. Whether the span exists is not
/// looked at.
pub(super) fn parse_landed(bytes: &[u8]) -> Option<(Span, u64)> {
    let mut rest = ByteReader::new(bytes);
    let (offset, immediate, length) = (rest.u64()?, rest.u64()?, rest.u32()?);
    Some((Span { region: RegionId(rest.u16()?), offset, length }, immediate))
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn word__has_the_bits_of_the_table() {
        assert_eq!(
            RecordHeader { kind: RecordKind::Message, head: 3, body: 0x1234 }.word(),
            0x0000_1234_0000_0301
        );
        assert_eq!(
            parse(0x0000_0000_0000_1802),
            Some(RecordHeader { kind: RecordKind::Landed, head: 24, body: 0 })
        );
    }

    #[test]
    fn parse__refuses_what_no_wire_writes() {
        let word =
            |kind: u64, head: u64, zero: u64, body: u64| kind | head << 8 | zero << 16 | body << 32;
        assert!(parse(word(1, 128, 0, 8_192)).is_some());
        let illegal = [
            word(0, 0, 0, 0),
            word(3, 0, 0, 0),
            word(1, 129, 0, 0),
            word(1, 0, 0, 8_193),
            word(1, 0, 1, 0),
        ];
        for word in illegal.into_iter().chain([word(2, 23, 0, 0), word(2, 24, 0, 1), u64::MAX]) {
            assert_eq!(parse(word), None, "{word:#x}");
        }
    }

    #[test]
    fn words__the_first_word_counts() {
        let words = |head, body| RecordHeader { kind: RecordKind::Message, head, body }.words();
        assert_eq!(
            [words(0, 0), words(8, 0), words(9, 0), words(0, 8), words(8, 1)],
            [1, 2, 3, 2, 3]
        );
        assert_eq!(words(HEAD_MAX, BODY_MAX), WORDS_MAX);
    }

    #[test]
    fn landed__has_the_bytes_of_the_table() {
        let span = Span { region: RegionId(0x0102), offset: 3, length: 4 };
        let bytes = landed(span, 5);
        assert_eq!(bytes, [3, 0, 0, 0, 0, 0, 0, 0, 5, 0, 0, 0, 0, 0, 0, 0, 4, 0, 0, 0, 2, 1, 0, 0]);
        assert_eq!(parse_landed(&bytes), Some((span, 5)));
        assert_eq!(parse_landed(&bytes[..21]), None);
    }

    proptest! {
        #[test]
        fn parse__what_is_accepted_is_within_the_limits(word in any::<u64>()) {
            if let Some(opening) = parse(word) {
                prop_assert!(opening.words() >= 1 && opening.words() <= WORDS_MAX);
                prop_assert_eq!(opening.word(), word);
            }
        }
    }
}
