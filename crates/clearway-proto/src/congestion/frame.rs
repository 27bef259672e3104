//! The headers of the congestion test's messages, byte by byte.
//!
//! # Model
//! All numbers little-endian. Every header begins with
//!
//! | offset | bytes | field |
//! |---|---|---|
//! | 0 | 1 | kind |
//! | 1 | 1 | class asked for, as its place in [`Class::ALL`] |
//! | 2 | 4 | phase number |
//!
//! and goes on, by kind:
//!
//! | kind | frame | fields (bytes) |
//! |---|---|---|
//! | 1 | probe | sequence 4, intended 8 (ns after the phase's beginning), sent 8 (sender's clock), wants answer 1 |
//! | 2 | bulk | message 4, last packet 1 |
//! | 3 | bulk acknowledgement | message 4 |
//! | 4 | get request | message 4, bytes 4 |
//! | 5 | segment | iteration 4, index 1, count 1 |
//! | 6 | segment acknowledgement | iteration 4, received 16 (bit i: segment i) |
//! | 7 | sum | iteration 4, step 1, value 8 |
//! | 8 | blocks (in the body) | iteration 4, step 1, part 1 |
//! | 9 | question | iteration 4, step 1 |
//!
//! # Invariants
//! I1. Any bytes parse to a frame or to nothing, never to a panic; surplus bytes are none of a
//!     frame.

use crate::base::{ByteReader, Class, Head, PeerNs};

/// The longest header of this module.
const LONGEST: usize = 27;

/// One message's header.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CongestionFrame {
    /// A timed small message. An answer is a probe that wants none, with the request's `sequence`
    /// and `intended`.
    Probe {
        /// Counts the sender's probes.
        sequence: u32,
        /// When the schedule wanted it (for an answer: the request) sent, in nanoseconds after the
        /// phase's beginning.
        intended: u64,
        /// When it was sent.
        sent: PeerNs,
        /// Whether it asks for an answer.
        answer: ReplyKind,
    },
    /// Part of a load message.
    Bulk {
        /// Counts the sender's messages.
        message: u32,
        /// Where in the message this part stands.
        part: SegmentPosition,
    },
    /// A load message has arrived.
    BulkAck {
        /// Which.
        message: u32,
    },
    /// Asks for a load message.
    GetRequest {
        /// Counts the asker's requests.
        message: u32,
        /// The length that it must have.
        bytes: u32,
    },
    /// Part of a timed transfer.
    Segment {
        /// Counts iterations.
        iteration: u32,
        /// Which part.
        index: u8,
        /// Of how many.
        count: u8,
    },
    /// What has arrived of a timed transfer.
    SegmentAck {
        /// Which iteration's.
        iteration: u32,
        /// Bit `i` is set when segment `i` is here.
        received: u128,
    },
    /// A step of a barrier or of a reduction.
    Sum {
        /// Which iteration's.
        iteration: u32,
        /// Which step.
        step: u8,
        /// What the numbers of all ranks make together for which the sender speaks.
        value: u64,
    },
    /// A step of a gathering: blocks that the receiver has not, in the body.
    Blocks {
        /// Which iteration's.
        iteration: u32,
        /// Which step.
        step: u8,
        /// Which part of the step's blocks.
        part: u8,
    },
    /// The sender misses the receiver's message of this step.
    Question {
        /// Which iteration's.
        iteration: u32,
        /// Which step.
        step: u8,
    },
}

/// Whether a message asks for an answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ReplyKind {
    /// It is a request.
    Wanted,
    /// It is the answer.
    Given,
}

/// Where in its message a packet stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SegmentPosition {
    /// More follow.
    Inner,
    /// The last one, which is acknowledged.
    Last,
    /// The last one of a message that nobody acknowledges.
    LastUnacknowledged,
}

impl CongestionFrame {
    /// Encodes this frame as the header of a message of `class` in `phase`.
    pub fn encode(&self, class: Class, phase: u32) -> Head<LONGEST> {
        let mut head = Head::new();
        head.put(&[self.kind(), class.index() as u8]).put(&phase.to_le_bytes());
        match *self {
            Self::Probe { sequence, intended, sent, answer } => head
                .put(&sequence.to_le_bytes())
                .put(&intended.to_le_bytes())
                .put(&sent.0.to_le_bytes())
                .put(&[u8::from(answer == ReplyKind::Wanted)]),
            Self::Bulk { message, part } => head.put(&message.to_le_bytes()).put(&[part as u8]),
            Self::BulkAck { message } => head.put(&message.to_le_bytes()),
            Self::GetRequest { message, bytes } => {
                head.put(&message.to_le_bytes()).put(&bytes.to_le_bytes())
            }
            Self::Segment { iteration, index, count } => {
                head.put(&iteration.to_le_bytes()).put(&[index, count])
            }
            Self::SegmentAck { iteration, received } => {
                head.put(&iteration.to_le_bytes()).put(&received.to_le_bytes())
            }
            Self::Sum { iteration, step, value } => {
                head.put(&iteration.to_le_bytes()).put(&[step]).put(&value.to_le_bytes())
            }
            Self::Blocks { iteration, step, part } => {
                head.put(&iteration.to_le_bytes()).put(&[step, part])
            }
            Self::Question { iteration, step } => head.put(&iteration.to_le_bytes()).put(&[step]),
        };
        head
    }

    const fn kind(&self) -> u8 {
        match self {
            Self::Probe { .. } => 1,
            Self::Bulk { .. } => 2,
            Self::BulkAck { .. } => 3,
            Self::GetRequest { .. } => 4,
            Self::Segment { .. } => 5,
            Self::SegmentAck { .. } => 6,
            Self::Sum { .. } => 7,
            Self::Blocks { .. } => 8,
            Self::Question { .. } => 9,
        }
    }

    /// Reads a header: the class asked for, the phase, the frame; `None` when the bytes are nothing
    /// that [`CongestionFrame::encode`] writes.
    pub fn parse(bytes: &[u8]) -> Option<(Class, u32, Self)> {
        let mut rest = ByteReader::new(bytes);
        let kind = rest.u8()?;
        let class = *Class::ALL.get(usize::from(rest.u8()?))?;
        let phase = rest.u32()?;
        let frame = Self::fields(kind, &mut rest)?;
        rest.is_empty().then_some((class, phase, frame))
    }

    fn fields(kind: u8, rest: &mut ByteReader<'_>) -> Option<Self> {
        Some(match kind {
            1 => Self::Probe {
                sequence: rest.u32()?,
                intended: rest.u64()?,
                sent: PeerNs(rest.u64()?),
                answer: match rest.u8()? {
                    0 => ReplyKind::Given,
                    1 => ReplyKind::Wanted,
                    _ => return None,
                },
            },
            2 => Self::Bulk {
                message: rest.u32()?,
                part: match rest.u8()? {
                    0 => SegmentPosition::Inner,
                    1 => SegmentPosition::Last,
                    2 => SegmentPosition::LastUnacknowledged,
                    _ => return None,
                },
            },
            3 => Self::BulkAck { message: rest.u32()? },
            4 => Self::GetRequest { message: rest.u32()?, bytes: rest.u32()? },
            5 => Self::Segment { iteration: rest.u32()?, index: rest.u8()?, count: rest.u8()? },
            6 => Self::SegmentAck { iteration: rest.u32()?, received: rest.u128()? },
            7 => Self::Sum { iteration: rest.u32()?, step: rest.u8()?, value: rest.u64()? },
            8 => Self::Blocks { iteration: rest.u32()?, step: rest.u8()?, part: rest.u8()? },
            9 => Self::Question { iteration: rest.u32()?, step: rest.u8()? },
            _ => return None,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn encode__a_probe_is_these_bytes() {
        let frame = CongestionFrame::Probe {
            sequence: 0x01020304,
            intended: 5,
            sent: PeerNs(6),
            answer: ReplyKind::Wanted,
        };
        let expected =
            [1, 1, 9, 0, 0, 0, 4, 3, 2, 1, 5, 0, 0, 0, 0, 0, 0, 0, 6, 0, 0, 0, 0, 0, 0, 0, 1];
        assert_eq!(frame.encode(Class::LowLatency, 9).bytes(), expected);
    }

    #[test]
    fn encode__steps_are_these_bytes() {
        let bytes =
            |frame: CongestionFrame| frame.encode(Class::LowLatency, 9).bytes()[6..].to_vec();
        assert_eq!(
            bytes(CongestionFrame::Sum { iteration: 258, step: 3, value: 7 }),
            [2, 1, 0, 0, 3, 7, 0, 0, 0, 0, 0, 0, 0]
        );
        assert_eq!(
            bytes(CongestionFrame::Blocks { iteration: 258, step: 3, part: 4 }),
            [2, 1, 0, 0, 3, 4]
        );
        assert_eq!(bytes(CongestionFrame::Question { iteration: 258, step: 3 }), [2, 1, 0, 0, 3]);
    }

    #[test]
    fn parse__what_is_cut_or_continued_is_refused() {
        let head = CongestionFrame::BulkAck { message: 7 }.encode(Class::Bulk, 1);
        let mut longer = head.bytes().to_vec();
        longer.push(0);
        assert_eq!(CongestionFrame::parse(&longer), None);
        assert_eq!(CongestionFrame::parse(&head.bytes()[..9]), None);
        assert_eq!(CongestionFrame::parse(&[]), None);
        assert_eq!(CongestionFrame::parse(&[3, 5, 0, 0, 0, 0, 0, 0, 0, 0]), None);
    }

    fn frames() -> impl Strategy<Value = CongestionFrame> {
        prop_oneof![
            (any::<u32>(), any::<u64>(), any::<u64>(), any::<bool>()).prop_map(
                |(sequence, intended, sent, ask)| {
                    let answer = if ask { ReplyKind::Wanted } else { ReplyKind::Given };
                    CongestionFrame::Probe { sequence, intended, sent: PeerNs(sent), answer }
                }
            ),
            (any::<u32>(), 0..3u8).prop_map(|(message, part)| {
                let part = [
                    SegmentPosition::Inner,
                    SegmentPosition::Last,
                    SegmentPosition::LastUnacknowledged,
                ][usize::from(part)];
                CongestionFrame::Bulk { message, part }
            }),
            any::<u32>().prop_map(|message| CongestionFrame::BulkAck { message }),
            (any::<u32>(), any::<u32>())
                .prop_map(|(message, bytes)| CongestionFrame::GetRequest { message, bytes }),
            (any::<u32>(), any::<u8>(), any::<u8>()).prop_map(|(iteration, index, count)| {
                CongestionFrame::Segment { iteration, index, count }
            }),
            (any::<u32>(), any::<u128>()).prop_map(|(iteration, received)| {
                CongestionFrame::SegmentAck { iteration, received }
            }),
            (any::<u32>(), any::<u8>(), any::<u64>()).prop_map(|(iteration, step, value)| {
                CongestionFrame::Sum { iteration, step, value }
            }),
            (any::<u32>(), any::<u8>(), any::<u8>()).prop_map(|(iteration, step, part)| {
                CongestionFrame::Blocks { iteration, step, part }
            }),
            (any::<u32>(), any::<u8>())
                .prop_map(|(iteration, step)| CongestionFrame::Question { iteration, step }),
        ]
    }

    proptest! {
        #[test]
        fn parse__any_bytes_give_an_answer(bytes in proptest::collection::vec(any::<u8>(), 0..64)) {
            if let Some((class, phase, frame)) = CongestionFrame::parse(&bytes) {
                let head = frame.encode(class, phase);
                prop_assert_eq!(head.bytes(), &bytes[..]);
            }
        }

        #[test]
        fn parse__reads_back_what_was_written(frame in frames(), phase in any::<u32>(), class in 0..5usize) {
            let class = Class::ALL[class];
            prop_assert_eq!(CongestionFrame::parse(frame.encode(class, phase).bytes()), Some((class, phase, frame)));
        }
    }
}
