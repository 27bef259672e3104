//! The frames of collectives, byte by byte.
//!
//! # Model
//! All numbers are little-endian.
//!
//! | offset | bytes | field |
//! |---|---|---|
//! | 0 | 1 | kind: 0 barrier, 1 to 6 a reduction by its place in [`Reduction::ALL`], 7 blocks (in the body), 8 question, 9 lost |
//! | 1 | 1 | step |
//! | 2 | 1 | count of numbers, at most 8 |
//! | 3 | 1 | 0 |
//! | 4 | 8 | number of the operation; of *lost* the rank |
//! | 12 | 8 each | numbers |
//!
//! # Invariants
//! I1. [`Frame::parse`] answers for any bytes.

use super::{NUMBERS_MAX, Numbers, Reduction};
use crate::base::{Head, Rank};

const START: usize = 12;
/// The longest frame.
pub(super) const LONGEST: usize = START + 8 * NUMBERS_MAX;
const BLOCKS: u8 = 1 + Reduction::ALL.len() as u8;
const QUESTION: u8 = BLOCKS + 1;
const LOST: u8 = BLOCKS + 2;

/// What an operation does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    Barrier,
    Reduce(Reduction),
    Gather,
}

/// One message of an operation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Part {
    pub(super) kind: Kind,
    pub(super) operation: u64,
    pub(super) step: u8,
    pub(super) numbers: Numbers,
}

/// What a frame says.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Frame {
    Part(Part),
    /// Somebody waits: whoever cannot go on says so.
    Question,
    /// This rank is out of reach.
    Lost(Rank),
}

impl Frame {
    pub(super) fn encode(&self) -> Head<LONGEST> {
        let mut head = Head::new();
        match self {
            Self::Part(Part { kind, operation, step, numbers }) => {
                let kind = match kind {
                    Kind::Barrier => 0,
                    Kind::Reduce(reduction) => 1 + *reduction as u8,
                    Kind::Gather => BLOCKS,
                };
                head.put(&[kind, *step, numbers.words().len() as u8, 0]).put(&operation.to_le_bytes());
                numbers.words().iter().for_each(|word| {
                    head.put(&word.to_le_bytes());
                });
            }
            Self::Question => {
                head.put(&[QUESTION, 0, 0, 0]).put(&[0; 8]);
            }
            Self::Lost(rank) => {
                head.put(&[LOST, 0, 0, 0]).put(&u64::from(rank.0).to_le_bytes());
            }
        }
        head
    }

    /// Reads a frame; `None` for whatever no rank writes.
    pub(super) fn parse(bytes: &[u8]) -> Option<Self> {
        let (start, words) = bytes.split_first_chunk::<START>()?;
        let [kind, step, count, 0, number @ ..] = *start else { return None };
        let operation = u64::from_le_bytes(number);
        let (words, []) = words.as_chunks::<8>() else { return None };
        if words.len() != usize::from(count) {
            return None;
        }
        let kind = match (kind, words) {
            (0, []) => Kind::Barrier,
            (BLOCKS, []) => Kind::Gather,
            (QUESTION, []) => return Some(Self::Question),
            (LOST, []) => return Some(Self::Lost(Rank(u32::try_from(operation).ok()?))),
            (which, _) => Kind::Reduce(*Reduction::ALL.get(usize::from(which.checked_sub(1)?))?),
        };
        let mut numbers = [0; NUMBERS_MAX];
        for (number, word) in numbers.get_mut(..words.len())?.iter_mut().zip(words) {
            *number = u64::from_le_bytes(*word);
        }
        let numbers = Numbers::of(numbers.get(..words.len())?)?;
        Some(Self::Part(Part { kind, operation, step, numbers }))
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn encode__has_the_bytes_of_the_table() {
        let numbers = Numbers::of(&[0x0807_0605_0403_0201]).expect("few");
        let part = Part { kind: Kind::Reduce(Reduction::MaxU64), operation: 5, step: 2, numbers };
        let frame = Frame::Part(part).encode();
        assert_eq!(frame.bytes(), [3, 2, 1, 0, 5, 0, 0, 0, 0, 0, 0, 0, 1, 2, 3, 4, 5, 6, 7, 8]);
        assert_eq!(Frame::Lost(Rank(258)).encode().bytes(), [9, 0, 0, 0, 2, 1, 0, 0, 0, 0, 0, 0]);
    }

    #[test]
    fn parse__reads_what_was_written() {
        let numbers = Numbers::of(&[1, 2, 3, 4, 5, 6, 7, 8]).expect("few");
        let reductions = Reduction::ALL.map(|reduction| (Kind::Reduce(reduction), numbers));
        let none = Numbers::default();
        for (kind, numbers) in reductions.into_iter().chain([(Kind::Barrier, none), (Kind::Gather, none)]) {
            let frame = Frame::Part(Part { kind, operation: u64::MAX, step: 9, numbers });
            assert_eq!(Frame::parse(frame.encode().bytes()), Some(frame));
        }
        for frame in [Frame::Question, Frame::Lost(Rank(7))] {
            assert_eq!(Frame::parse(frame.encode().bytes()), Some(frame));
        }
    }

    proptest! {
        #[test]
        fn parse__any_bytes(bytes in prop::collection::vec(any::<u8>(), 0..90)) {
            if let Some(frame) = Frame::parse(&bytes) {
                prop_assert!(frame.encode().bytes().len() <= LONGEST);
            }
        }
    }
}
