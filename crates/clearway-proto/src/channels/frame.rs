//! The messages of ranks that agree on channels, byte by byte.
//!
//! # Model
//! All numbers little-endian; a message is one header without a body.
//!
//! | bytes | field |
//! |---|---|
//! | 1 | kind |
//! | 1 | flags, or a channel |
//! | 4 | team |
//! | n | fields by kind |
//! | 4 | CRC-32C of all of this |
//!
//! | kind | frame | second byte | fields (bytes) |
//! |---|---|---|---|
//! | 0x61 | ask | channel to recall, 255 for none | attempt 4 |
//! | 0x62 | have | busy channels as bits | attempt 4, idle times 8 x 2, in ms, zero for what is not to be recalled |
//! | 0x63 | propose | channel | attempt 4 |
//! | 0x64 | vote | 1 for yes | attempt 4 |
//! | 0x65 | stamp | settled (bit 7), then 0 to 7 a channel, 8 shared, 9 closed | version 4, author's place 2 |
//! | 0x66 | hold | asks (bit 0), taken (bit 1) | version 4, author's place 2 |
//! | 0x67 | gone | 0 | |
//! | 0x68 | recall | channel | |
//!
//! # Invariants
//! I1. Reading never panics, and never allocates.

use super::CHANNELS_MAX;
use crate::base::{ByteReader, Head, crc32c};

/// The longest message.
pub(super) const LONGEST: usize = COMMON + 4 + 2 * CHANNELS_MAX as usize + 4;
/// Bytes before the fields.
const COMMON: usize = 6;
/// No channel.
const NONE: u8 = u8::MAX;
/// Of a stamp's second byte.
const SETTLED: u8 = 0x80;

/// What a team has or is to have.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum ChannelAssignment {
    Own(u8),
    Shared,
    /// Nothing: it is disbanded.
    Closed,
}

impl ChannelAssignment {
    const fn byte(self) -> u8 {
        match self {
            Self::Own(channel) => channel,
            Self::Shared => CHANNELS_MAX,
            Self::Closed => CHANNELS_MAX + 1,
        }
    }

    const fn from_byte(byte: u8) -> Option<Self> {
        match byte {
            0..CHANNELS_MAX => Some(Self::Own(byte)),
            CHANNELS_MAX => Some(Self::Shared),
            _ if byte == CHANNELS_MAX + 1 => Some(Self::Closed),
            _ => None,
        }
    }
}

/// Orders what a team received: the greater one counts.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Version {
    /// Zero while there is no agreement yet.
    pub(super) number: u32,
    /// The place of who made it.
    pub(super) author: u16,
}

/// What one rank has of the pool, as others need it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Holdings {
    /// Channels held or promised, as bits.
    pub(super) busy: u8,
    /// Milliseconds since the team of each busy channel cast last; zero where it must not be
    /// recalled.
    pub(super) idle: [u16; CHANNELS_MAX as usize],
}

/// What a team has, as somebody knows it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct VersionedAssignment {
    pub(super) version: Version,
    pub(super) target: ChannelAssignment,
    pub(super) settled: bool,
}

/// How far somebody is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct HoldStatus {
    pub(super) version: Version,
    /// An answer is wanted.
    pub(super) asks: bool,
    pub(super) taken: bool,
}

/// The answer to a proposal.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Vote {
    No,
    Yes,
}

/// What a message says.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum ChannelsFrame {
    /// What is busy with you?
    Ask { attempt: u32, recall: Option<u8> },
    /// This.
    Have { attempt: u32, holdings: Holdings },
    /// Is this free with you?
    Propose { attempt: u32, channel: u8 },
    /// Yes, and it stays so; or no.
    Vote { attempt: u32, vote: Vote },
    /// This is what the team has.
    Stamp(VersionedAssignment),
    /// This is the version I know, and whether I have taken it; it may ask for the reader's.
    Hold(HoldStatus),
    /// The team is over here.
    Gone,
    /// Your team is asked to give this up.
    Recall { channel: u8 },
}

impl ChannelsFrame {
    /// Encodes this as a header, of `team`.
    pub(super) fn encode(&self, team: u32) -> Head<LONGEST> {
        let mut head = Head::new();
        head.put(&self.start()).put(&team.to_le_bytes());
        match self {
            Self::Ask { attempt, .. }
            | Self::Propose { attempt, .. }
            | Self::Vote { attempt, .. } => {
                head.put(&attempt.to_le_bytes());
            }
            Self::Have { attempt, holdings } => {
                head.put(&attempt.to_le_bytes());
                for idle in holdings.idle {
                    head.put(&idle.to_le_bytes());
                }
            }
            Self::Stamp(VersionedAssignment { version, .. })
            | Self::Hold(HoldStatus { version, .. }) => {
                head.put(&version.number.to_le_bytes()).put(&version.author.to_le_bytes());
            }
            Self::Gone | Self::Recall { .. } => {}
        }
        let check = crc32c(head.bytes());
        head.put(&check.to_le_bytes());
        head
    }

    /// Returns the first two bytes.
    fn start(&self) -> [u8; 2] {
        match *self {
            Self::Ask { recall, .. } => [0x61, recall.unwrap_or(NONE)],
            Self::Have { holdings, .. } => [0x62, holdings.busy],
            Self::Propose { channel, .. } => [0x63, channel],
            Self::Vote { vote, .. } => [0x64, u8::from(vote == Vote::Yes)],
            Self::Stamp(VersionedAssignment { target, settled, .. }) => {
                [0x65, target.byte() | if settled { SETTLED } else { 0 }]
            }
            Self::Hold(HoldStatus { asks, taken, .. }) => {
                [0x66, u8::from(asks) | u8::from(taken) << 1]
            }
            Self::Gone => [0x67, 0],
            Self::Recall { channel } => [0x68, channel],
        }
    }

    /// Reads a message and whose team it is about; `None` when the bytes are nothing that
    /// [`ChannelsFrame::encode`] writes.
    pub(super) fn parse(bytes: &[u8]) -> Option<(u32, Self)> {
        let (rest, check) = bytes.split_last_chunk()?;
        if bytes.len() > LONGEST || crc32c(rest) != u32::from_le_bytes(*check) {
            return None;
        }
        let mut rest = ByteReader::new(rest);
        let (kind, second, team) = (rest.u8()?, rest.u8()?, rest.u32()?);
        let frame = Self::fields(kind, second, &mut rest)?;
        rest.is_empty().then_some((team, frame))
    }

    fn fields(kind: u8, second: u8, rest: &mut ByteReader<'_>) -> Option<Self> {
        let channel = |byte: u8| (byte < CHANNELS_MAX).then_some(byte);
        Some(match (kind, second) {
            (0x61, NONE) => Self::Ask { attempt: rest.u32()?, recall: None },
            (0x61, _) => Self::Ask { attempt: rest.u32()?, recall: Some(channel(second)?) },
            (0x62, busy) => {
                let attempt = rest.u32()?;
                let mut idle = [0; CHANNELS_MAX as usize];
                for each in &mut idle {
                    *each = rest.u16()?;
                }
                Self::Have { attempt, holdings: Holdings { busy, idle } }
            }
            (0x63, _) => Self::Propose { attempt: rest.u32()?, channel: channel(second)? },
            (0x64, 0) => Self::Vote { attempt: rest.u32()?, vote: Vote::No },
            (0x64, 1) => Self::Vote { attempt: rest.u32()?, vote: Vote::Yes },
            (0x65, _) => {
                let (target, settled) =
                    (ChannelAssignment::from_byte(second & !SETTLED)?, second & SETTLED != 0);
                Self::Stamp(VersionedAssignment { version: version(rest)?, target, settled })
            }
            (0x66, 0..4) => Self::Hold(HoldStatus {
                version: version(rest)?,
                asks: second & 1 != 0,
                taken: second & 2 != 0,
            }),
            (0x67, 0) => Self::Gone,
            (0x68, _) => Self::Recall { channel: channel(second)? },
            _ => return None,
        })
    }
}

fn version(rest: &mut ByteReader<'_>) -> Option<Version> {
    Some(Version { number: rest.u32()?, author: rest.u16()? })
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn encode__has_the_bytes_of_the_table() {
        let version = Version { number: 3, author: 258 };
        let stamp = ChannelsFrame::Stamp(VersionedAssignment {
            version,
            target: ChannelAssignment::Shared,
            settled: true,
        })
        .encode(0x0403_0201);
        assert_eq!(stamp.bytes()[..12], [0x65, 0x88, 1, 2, 3, 4, 3, 0, 0, 0, 2, 1]);
        assert_eq!(stamp.bytes().len(), 16);
        let ask = ChannelsFrame::Ask { attempt: 7, recall: None }.encode(1);
        assert_eq!(ask.bytes()[..10], [0x61, 0xff, 1, 0, 0, 0, 7, 0, 0, 0]);
    }

    #[test]
    fn parse__reads_what_was_written_and_nothing_that_was_changed() {
        let version = Version { number: u32::MAX, author: 9 };
        let frames = [
            ChannelsFrame::Ask { attempt: 1, recall: None },
            ChannelsFrame::Ask { attempt: 1, recall: Some(7) },
            ChannelsFrame::Have {
                attempt: 2,
                holdings: Holdings { busy: 0x81, idle: [1, 2, 3, 4, 5, 6, 7, u16::MAX] },
            },
            ChannelsFrame::Propose { attempt: 3, channel: 0 },
            ChannelsFrame::Vote { attempt: 4, vote: Vote::Yes },
            ChannelsFrame::Vote { attempt: 4, vote: Vote::No },
            ChannelsFrame::Stamp(VersionedAssignment {
                version,
                target: ChannelAssignment::Own(7),
                settled: false,
            }),
            ChannelsFrame::Stamp(VersionedAssignment {
                version,
                target: ChannelAssignment::Closed,
                settled: true,
            }),
            ChannelsFrame::Hold(HoldStatus { version, asks: true, taken: false }),
            ChannelsFrame::Gone,
            ChannelsFrame::Recall { channel: 3 },
        ];
        for frame in frames {
            let head = frame.encode(77);
            assert_eq!(ChannelsFrame::parse(head.bytes()), Some((77, frame)));
            for at in 0..head.bytes().len() {
                let mut changed = head.bytes().to_vec();
                changed[at] ^= 1 << (at % 8);
                assert_eq!(ChannelsFrame::parse(&changed), None, "{frame:?} changed at {at}");
                assert_eq!(
                    ChannelsFrame::parse(&head.bytes()[..at]),
                    None,
                    "{frame:?} cut at {at}"
                );
            }
        }
    }

    proptest! {
        /// With a right check, so that the fields are read.
        #[test]
        fn parse__any_bytes(mut bytes in prop::collection::vec(any::<u8>(), 0..40), kind in 0x60u8..0x6a) {
            if let Some(first) = bytes.first_mut() {
                *first = kind;
            }
            let check = crc32c(&bytes);
            bytes.extend(check.to_le_bytes());
            if let Some((team, frame)) = ChannelsFrame::parse(&bytes) {
                let again = frame.encode(team);
                prop_assert_eq!(again.bytes(), &bytes[..]);
            }
        }
    }
}
