//! The headers of the benchmark's messages, byte by byte.
//!
//! # Model
//! All numbers little-endian. Every header begins with its kind (1 byte) and the number of its test
//! (4 bytes) and goes on, by kind:
//!
//! | kind | frame | fields (bytes) |
//! |---|---|---|
//! | 32 | segment | sequence 8, received 8 |
//! | 33 | receipt | received 8, beyond 16 |
//! | 34 | step of a reduction | lane 1, round 4, step 1, value 8, wants answer 1 |
//!
//! # Invariants
//! I1. Any bytes parse to a frame or to nothing, never to a panic; surplus bytes are none of a
//!     frame.

use crate::base::{ByteReader, Head};

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
pub enum GpcnetFrame {
    /// Part of a message; all messages between two ranks have the same number of parts.
    Segment {
        /// Counts the parts from this sender to this receiver.
        sequence: u64,
        /// How many parts of the other direction have arrived without a gap.
        received: u64,
    },
    /// What has arrived.
    Receipt {
        /// The number of parts that arrived without a gap.
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
        answer: StepAnswer,
    },
}

/// Whether a step asks for an answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum StepAnswer {
    /// It is a repetition: the partner's message is missing.
    Wanted,
    /// It is not.
    Given,
}

impl GpcnetFrame {
    /// Encodes this frame as a header of test `number`.
    pub fn encode(self, number: u32) -> Head<LONGEST> {
        let mut head = Head::new();
        let kind = match self {
            Self::Segment { .. } => SEGMENT,
            Self::Receipt { .. } => RECEIPT,
            Self::Step { .. } => STEP,
        };
        head.put(&[kind]).put(&number.to_le_bytes());
        match self {
            Self::Segment { sequence, received } => {
                head.put(&sequence.to_le_bytes()).put(&received.to_le_bytes())
            }
            Self::Receipt { received, beyond } => {
                head.put(&received.to_le_bytes()).put(&beyond.to_le_bytes())
            }
            Self::Step { lane, round, step, value, answer } => head
                .put(&[lane])
                .put(&round.to_le_bytes())
                .put(&[step])
                .put(&value.to_le_bytes())
                .put(&[u8::from(answer == StepAnswer::Wanted)]),
        };
        head
    }

    /// Parses the number of the test and the frame that `bytes` are; `None` when they are nothing
    /// that [`GpcnetFrame::encode`] writes.
    pub fn parse(bytes: &[u8]) -> Option<(u32, Self)> {
        let mut rest = ByteReader::new(bytes);
        let (kind, number) = (rest.u8()?, rest.u32()?);
        let frame = match kind {
            SEGMENT => Self::Segment { sequence: rest.u64()?, received: rest.u64()? },
            RECEIPT => Self::Receipt { received: rest.u64()?, beyond: rest.u128()? },
            STEP => Self::Step {
                lane: rest.u8()?,
                round: rest.u32()?,
                step: rest.u8()?,
                value: rest.u64()?,
                answer: match rest.u8()? {
                    0 => StepAnswer::Given,
                    1 => StepAnswer::Wanted,
                    _ => return None,
                },
            },
            _ => return None,
        };
        rest.is_empty().then_some((number, frame))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::vec::Vec;
    use proptest::prelude::*;

    const FRAMES: [(GpcnetFrame, &[u8]); 3] = [
        (
            GpcnetFrame::Segment { sequence: 0x0102, received: 3 },
            &[32, 7, 0, 0, 0, 2, 1, 0, 0, 0, 0, 0, 0, 3, 0, 0, 0, 0, 0, 0, 0],
        ),
        (
            GpcnetFrame::Receipt { received: 9, beyond: 1 << 127 },
            &[
                33, 7, 0, 0, 0, 9, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0,
                0, 128,
            ],
        ),
        (
            GpcnetFrame::Step {
                lane: 2,
                round: 5,
                step: 1,
                value: 258,
                answer: StepAnswer::Wanted,
            },
            &[34, 7, 0, 0, 0, 2, 5, 0, 0, 0, 1, 2, 1, 0, 0, 0, 0, 0, 0, 1],
        ),
    ];

    #[test]
    fn encode__each_kind_has_these_bytes() {
        for (frame, bytes) in FRAMES {
            assert_eq!(frame.encode(7).bytes(), bytes);
            assert_eq!(GpcnetFrame::parse(bytes), Some((7, frame)));
        }
    }

    #[test]
    fn parse__surplus_missing_and_unknown_bytes_are_refused() {
        for (_, bytes) in FRAMES {
            assert_eq!(GpcnetFrame::parse(&bytes[..bytes.len() - 1]), None);
            let mut longer: Vec<u8> = bytes.into();
            longer.push(0);
            assert_eq!(GpcnetFrame::parse(&longer), None);
        }
        assert_eq!(GpcnetFrame::parse(&[31, 0, 0, 0, 0]), None);
        let mut flag: Vec<u8> = FRAMES[2].1.into();
        flag[19] = 2;
        assert_eq!(GpcnetFrame::parse(&flag), None);
    }

    proptest! {
        #[test]
        fn parse__any_bytes_give_a_frame_that_encodes_to_them_or_nothing(bytes in prop::collection::vec(any::<u8>(), 0..40)) {
            if let Some((number, frame)) = GpcnetFrame::parse(&bytes) {
                let head = frame.encode(number);
                prop_assert_eq!(head.bytes(), &bytes[..]);
            }
        }
    }
}
