//! The headers of the benchmark's messages, byte by byte.
//!
//! # Model
//! All numbers little-endian. Every header begins with its kind (1 byte) and the number of its test (4 bytes) and goes on, by
//! kind:
//!
//! | kind | frame | fields (bytes) |
//! |---|---|---|
//! | 32 | segment | sequence 8, received 8 |
//! | 33 | receipt | received 8, beyond 16 |
//! | 34 | step of a reduction | lane 1, round 4, step 1, value 8, wants answer 1 |
//!
//! # Invariants
//! I1. Any bytes parse to a frame or to an error, never to a panic; surplus bytes are an error.

use core::fmt;

use crate::wire::Head;

/// The longest header of this module.
const LONGEST: usize = 29;
/// Kinds begin where those of the congestion test end.
const SEGMENT: u8 = 32;
/// See [`SEGMENT`].
const RECEIPT: u8 = 33;
/// See [`SEGMENT`].
const STEP: u8 = 34;

/// One message's header.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Frame {
    /// Part of a message; all messages between two ranks have the same number of parts.
    Segment {
        /// Counts the parts from this sender to this receiver.
        sequence: u64,
        /// How many parts of the other direction have arrived without a gap.
        received: u64,
    },
    /// What has arrived.
    Receipt {
        /// So many parts without a gap.
        received: u64,
        /// Bit `i` is set when part `received + i` is here as well.
        beyond: u128,
    },
    /// A step of a reduction.
    Step {
        /// Which of the reductions that run side by side.
        lane: u8,
        /// Counts reductions on this lane.
        round: u32,
        /// Which step.
        step: u8,
        /// The sender's value at that step.
        value: u64,
        /// Whether the sender misses the receiver's message of the same step.
        answer: Answer,
    },
}

/// Whether a step shall be answered.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Answer {
    /// It is a repetition: the partner's message is missing.
    Wanted,
    /// It is not.
    Given,
}

/// The bytes are not a header of this benchmark.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum FrameError {
    /// Shorter or longer than its kind is.
    Length,
    /// No such kind or flag.
    Value,
}

impl fmt::Display for FrameError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Length => "the header's length does not fit its kind",
            Self::Value => "the header has an unknown kind or flag",
        })
    }
}

impl core::error::Error for FrameError {}

/// Takes the next `N` bytes off `bytes`.
fn take<const N: usize>(bytes: &mut &[u8]) -> Result<[u8; N], FrameError> {
    let (first, rest) = bytes.split_first_chunk::<N>().ok_or(FrameError::Length)?;
    *bytes = rest;
    Ok(*first)
}

impl Frame {
    /// This frame as a header of test `number`.
    pub fn encode(self, number: u32) -> Head<LONGEST> {
        let mut head = Head::new();
        let kind = match self {
            Self::Segment { .. } => SEGMENT,
            Self::Receipt { .. } => RECEIPT,
            Self::Step { .. } => STEP,
        };
        head.put(&[kind]).put(&number.to_le_bytes());
        match self {
            Self::Segment { sequence, received } => head.put(&sequence.to_le_bytes()).put(&received.to_le_bytes()),
            Self::Receipt { received, beyond } => head.put(&received.to_le_bytes()).put(&beyond.to_le_bytes()),
            Self::Step { lane, round, step, value, answer } => head
                .put(&[lane])
                .put(&round.to_le_bytes())
                .put(&[step])
                .put(&value.to_le_bytes())
                .put(&[u8::from(answer == Answer::Wanted)]),
        };
        head
    }

    /// The number of the test and the frame that `bytes` are.
    ///
    /// # Errors
    /// [`FrameError`] when they are none.
    pub fn parse(mut bytes: &[u8]) -> Result<(u32, Self), FrameError> {
        let bytes = &mut bytes;
        let [kind] = take(bytes)?;
        let number = u32::from_le_bytes(take(bytes)?);
        let frame = match kind {
            SEGMENT => {
                Self::Segment { sequence: u64::from_le_bytes(take(bytes)?), received: u64::from_le_bytes(take(bytes)?) }
            }
            RECEIPT => {
                Self::Receipt { received: u64::from_le_bytes(take(bytes)?), beyond: u128::from_le_bytes(take(bytes)?) }
            }
            STEP => {
                let [lane] = take(bytes)?;
                let round = u32::from_le_bytes(take(bytes)?);
                let [step] = take(bytes)?;
                let value = u64::from_le_bytes(take(bytes)?);
                let answer = match take(bytes)? {
                    [0] => Answer::Given,
                    [1] => Answer::Wanted,
                    _ => return Err(FrameError::Value),
                };
                Self::Step { lane, round, step, value, answer }
            }
            _ => return Err(FrameError::Value),
        };
        if bytes.is_empty() { Ok((number, frame)) } else { Err(FrameError::Length) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::vec::Vec;
    use proptest::prelude::*;

    const FRAMES: [(Frame, &[u8]); 3] = [
        (
            Frame::Segment { sequence: 0x0102, received: 3 },
            &[32, 7, 0, 0, 0, 2, 1, 0, 0, 0, 0, 0, 0, 3, 0, 0, 0, 0, 0, 0, 0],
        ),
        (
            Frame::Receipt { received: 9, beyond: 1 << 127 },
            &[33, 7, 0, 0, 0, 9, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 128],
        ),
        (
            Frame::Step { lane: 2, round: 5, step: 1, value: 258, answer: Answer::Wanted },
            &[34, 7, 0, 0, 0, 2, 5, 0, 0, 0, 1, 2, 1, 0, 0, 0, 0, 0, 0, 1],
        ),
    ];

    #[test]
    fn encode__each_kind_has_these_bytes() {
        for (frame, bytes) in FRAMES {
            assert_eq!(frame.encode(7).bytes(), bytes);
            assert_eq!(Frame::parse(bytes), Ok((7, frame)));
        }
    }

    #[test]
    fn parse__surplus_missing_and_unknown_bytes_are_errors() {
        for (_, bytes) in FRAMES {
            assert_eq!(Frame::parse(&bytes[..bytes.len() - 1]), Err(FrameError::Length));
            let mut longer: Vec<u8> = bytes.into();
            longer.push(0);
            assert_eq!(Frame::parse(&longer), Err(FrameError::Length));
        }
        assert_eq!(Frame::parse(&[31, 0, 0, 0, 0]), Err(FrameError::Value));
        let mut flag: Vec<u8> = FRAMES[2].1.into();
        flag[19] = 2;
        assert_eq!(Frame::parse(&flag), Err(FrameError::Value));
    }

    proptest! {
        #[test]
        fn parse__any_bytes_give_a_frame_that_encodes_to_them_or_an_error(bytes in prop::collection::vec(any::<u8>(), 0..40)) {
            if let Ok((number, frame)) = Frame::parse(&bytes) {
                let head = frame.encode(number);
                prop_assert_eq!(head.bytes(), &bytes[..]);
            }
        }
    }
}
