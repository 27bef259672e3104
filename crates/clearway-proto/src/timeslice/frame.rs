//! The headers of timeslice building's messages, and the word that comes with a contribution, byte
//! by byte.
//!
//! # Model
//! All numbers little-endian. Every header begins with its kind (1 byte), ends with the low part of
//! its run's number (2 bytes), and has between them, by kind:
//!
//! | kind | frame | direction | fields (bytes) |
//! |---|---|---|---|
//! | 1 | hello | input to builder | life 4 |
//! | 2 | welcome | builder to input | life 4, region 2, offset 8, ring 8 |
//! | 3 | credit | builder to input | life 4, released 4, granted 4 |
//! | 4 | end | input to builder | life 4, timeslices 8 |
//! | 5 | ended | builder to input | life 4 |
//! | 6 | abort | anyone | |
//! | 7 | report | input to builder | interval 4, rounds 4, start 8, duration 8 (ns; the start since the barrier) |
//! | 8 | proposal | builder to input | as a report |
//! | 9 | ask | input to builder | asked 8 (ns, the input's clock) |
//! | 10 | answer | builder to input | asked 8, heard 8, answered 8 (ns; the latter two the builder's clock since its barrier) |
//! | 11 | last | input to builder | life 4, timeslices 8 |
//! | 12 | burden | input to builder | life 4, burden 1 (0 usual, 1 heavy, 2 light) |
//! | 13 | put | input to builder | into 8 (from the ring's beginning), region 2, offset 8, length 4; short ones come as the body |
//! | 14 | capacity | input to builder | life 4, epoch 4, contributions 4 (that it can hold) |
//! | 14 | capacity | builder to input | the same: the least of all inputs, by what is decided in this epoch |
//!
//! A *life* is the epoch in which the younger end of the connection joined: what is left of an
//! earlier connection of the same two ranks is no part of this one. A *run* is one job after
//! another of the same ranks over the same wire: what is left of an earlier one is no part of this
//! one either.
//!
//! Counters in a credit are cumulative: a lost or doubled one does no harm, a later one repairs it.
//!
//! A contribution is written by one-sided writes, each of which carries a word: bits 0 to 23 the
//! low part of the timeslice's number, bits 24 to 31 that of the epoch that the input knows: a
//! builder that knows fewer decisions waits for them, since others may be expected to contribute by
//! then. Bits 32 to 55 the low part of the contribution's position in
//! the builder's order, bits 56 and 57 of how many writes the contribution consists, less one, bits
//! 58 to 63 the low part of the connection's life and eight times the run.
//!
//! # Invariants
//! I1. Any bytes parse to a frame or to nothing, never to a panic; surplus bytes are refused.

use super::load_balance::BuilderLoad;
use super::policy::{IntervalReport, Proposal};
use crate::base::{ByteReader, Head, LocalNs, Nanos, PeerNs};
use crate::wire::{RegionId, RemoteSpan};

/// The longest header, with its run.
const LONGEST: usize = 27;
/// Bits of a position that travel with a contribution: a thousand times as many as contributions
/// fit a ring.
const SEQUENCE_BITS: u32 = 24;
/// Bits of a timeslice's number: two orders of a builder never differ by a multiple of their number.
const TIMESLICE_MASK: u32 = 0xff_ffff;
/// Bits of a life that do: what is under way is at most a few epochs old, or of one of the last few
/// runs.
const LIFE_MASK: u32 = 0x3f;
/// How far the lives of two runs lie apart there: decisions in one run that has writes under way at
/// its end.
const LIVES_OF_RUN: u32 = 8;
/// The largest number that fits them.
pub(super) const SEQUENCE_MASK: u32 = (1 << SEQUENCE_BITS) - 1;

/// One message's header.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum TimesliceFrame {
    /// An input is there.
    Hello {
        /// Of the connection.
        life: u32,
    },
    /// Every input is there, and this one's contributions go to this ring.
    Welcome {
        /// Of the connection.
        life: u32,
        /// Where the ring begins.
        ring: RemoteSpan,
        /// Its length in bytes.
        length: u64,
    },
    /// How far the receiver may go on this connection.
    Credit {
        /// Of the connection.
        life: u32,
        /// Positions of the builder's order whose place in the rings is free again, since the
        /// beginning, modulo 2^32.
        released: u32,
        /// Contributions that may be sent, since the beginning, modulo 2^32; counts only under
        /// policies that grant.
        granted: u32,
    },
    /// The stream ends before this timeslice; what is before it may still come.
    Last {
        /// Of the connection.
        life: u32,
        /// How many timeslices there are.
        timeslices: u64,
    },
    /// The stream ends before this timeslice, and every contribution was released, here and at all
    /// other builders.
    End {
        /// Of the connection.
        life: u32,
        /// How many timeslices there are.
        timeslices: u64,
    },
    /// The builder knows that the stream has ended.
    Ended {
        /// Of the connection.
        life: u32,
    },
    /// What an input thinks of how much a builder has to do.
    Burden {
        /// Of the connection.
        life: u32,
        /// That.
        burden: BuilderLoad,
    },
    /// The capacity of one input, or the least capacity of all inputs.
    Capacity {
        /// Of the connection.
        life: u32,
        /// The latest that the sender knows.
        epoch: u32,
        /// That many; the largest number where it does not matter.
        contributions: u32,
    },
    /// The job ends early.
    Abort,
    /// What an input measured of an interval.
    Report(IntervalReport),
    /// What a builder wants of an interval.
    Proposal(Proposal),
    /// What does your clock show?
    Ask {
        /// The asker's.
        asked: LocalNs,
    },
    /// Puts bytes, as many as it names, at this place of the ring; they came along, or are to be
    /// fetched from where they lie.
    Put {
        /// From the beginning of the input's ring.
        into: u64,
        /// Where they lie.
        from: RemoteSpan,
        /// How many.
        length: u32,
    },
    /// That, and when.
    Answer {
        /// As in the question, by the clock of who reads this.
        asked: LocalNs,
        /// When the question came.
        heard: PeerNs,
        /// When this left.
        answered: PeerNs,
    },
}

impl TimesliceFrame {
    /// Returns the first byte of its header.
    pub(super) const fn kind(&self) -> u8 {
        match self {
            Self::Hello { .. } => 1,
            Self::Welcome { .. } => Self::WELCOME,
            Self::Credit { .. } => Self::CREDIT,
            Self::End { .. } => 4,
            Self::Ended { .. } => Self::ENDED,
            Self::Last { .. } => Self::LAST,
            Self::Abort => 6,
            Self::Report(_) => Self::REPORT,
            Self::Proposal(_) => Self::PROPOSAL,
            Self::Ask { .. } => Self::ASK,
            Self::Answer { .. } => Self::ANSWER,
            Self::Burden { .. } => Self::BURDEN,
            Self::Put { .. } => Self::PUT,
            Self::Capacity { .. } => Self::CAPACITY,
        }
    }

    /// The kind of [`Self::Welcome`].
    pub(super) const WELCOME: u8 = 2;
    /// The kind of [`Self::Credit`].
    pub(super) const CREDIT: u8 = 3;
    /// The kind of [`Self::Ended`].
    pub(super) const ENDED: u8 = 5;
    /// The kind of [`Self::Report`].
    pub(super) const REPORT: u8 = 7;
    /// The kind of [`Self::Proposal`].
    pub(super) const PROPOSAL: u8 = 8;
    /// The kind of [`Self::Ask`].
    pub(super) const ASK: u8 = 9;
    /// The kind of [`Self::Last`].
    pub(super) const LAST: u8 = 11;
    /// The kind of [`Self::Burden`].
    pub(super) const BURDEN: u8 = 12;
    /// The kind of [`Self::Answer`].
    pub(super) const ANSWER: u8 = 10;
    /// The kind of [`Self::Capacity`].
    pub(super) const CAPACITY: u8 = 14;

    /// The kind of [`Self::Put`].
    const PUT: u8 = 13;

    /// Encodes this frame as a header.
    pub(super) fn encode(&self) -> Head<LONGEST> {
        let mut head = Head::new();
        head.put(&[self.kind()]);
        match *self {
            Self::Hello { life } | Self::Ended { life } => head.put(&life.to_le_bytes()),
            Self::Welcome { life, ring, length } => head
                .put(&life.to_le_bytes())
                .put(&ring.region.0.to_le_bytes())
                .put(&ring.offset.to_le_bytes())
                .put(&length.to_le_bytes()),
            Self::Credit { life, released, granted } => head
                .put(&life.to_le_bytes())
                .put(&released.to_le_bytes())
                .put(&granted.to_le_bytes()),
            Self::Last { life, timeslices } | Self::End { life, timeslices } => {
                head.put(&life.to_le_bytes()).put(&timeslices.to_le_bytes())
            }
            Self::Burden { life, burden } => head.put(&life.to_le_bytes()).put(&[burden as u8]),
            Self::Capacity { life, epoch, contributions } => head
                .put(&life.to_le_bytes())
                .put(&epoch.to_le_bytes())
                .put(&contributions.to_le_bytes()),
            Self::Abort => &mut head,
            Self::Report(IntervalReport { interval, rounds, start, duration })
            | Self::Proposal(Proposal { interval, rounds, start, duration }) => head
                .put(&interval.to_le_bytes())
                .put(&rounds.to_le_bytes())
                .put(&start.0.to_le_bytes())
                .put(&duration.0.to_le_bytes()),
            Self::Put { into, from, length } => head
                .put(&into.to_le_bytes())
                .put(&from.region.0.to_le_bytes())
                .put(&from.offset.to_le_bytes())
                .put(&length.to_le_bytes()),
            Self::Ask { asked } => head.put(&asked.0.to_le_bytes()),
            Self::Answer { asked, heard, answered } => head
                .put(&asked.0.to_le_bytes())
                .put(&heard.0.to_le_bytes())
                .put(&answered.0.to_le_bytes()),
        };
        head
    }

    /// Reads a header; `None` when the bytes are nothing that [`TimesliceFrame::encode`] writes.
    pub(super) fn parse(bytes: &[u8]) -> Option<Self> {
        let mut rest = ByteReader::new(bytes);
        let frame = match rest.u8()? {
            1 => Self::Hello { life: rest.u32()? },
            Self::WELCOME => Self::Welcome {
                life: rest.u32()?,
                ring: RemoteSpan { region: RegionId(rest.u16()?), offset: rest.u64()? },
                length: rest.u64()?,
            },
            Self::CREDIT => {
                Self::Credit { life: rest.u32()?, released: rest.u32()?, granted: rest.u32()? }
            }
            4 => Self::End { life: rest.u32()?, timeslices: rest.u64()? },
            Self::LAST => Self::Last { life: rest.u32()?, timeslices: rest.u64()? },
            Self::ENDED => Self::Ended { life: rest.u32()? },
            Self::BURDEN => Self::Burden { life: rest.u32()?, burden: burden(rest.u8()?)? },
            Self::CAPACITY => {
                Self::Capacity { life: rest.u32()?, epoch: rest.u32()?, contributions: rest.u32()? }
            }
            6 => Self::Abort,
            Self::REPORT => Self::Report(IntervalReport {
                interval: rest.u32()?,
                rounds: rest.u32()?,
                start: Nanos(rest.u64()?),
                duration: Nanos(rest.u64()?),
            }),
            Self::PROPOSAL => Self::Proposal(Proposal {
                interval: rest.u32()?,
                rounds: rest.u32()?,
                start: Nanos(rest.u64()?),
                duration: Nanos(rest.u64()?),
            }),
            Self::PUT => Self::Put {
                into: rest.u64()?,
                from: RemoteSpan { region: RegionId(rest.u16()?), offset: rest.u64()? },
                length: rest.u32()?,
            },
            Self::ASK => Self::Ask { asked: LocalNs(rest.u64()?) },
            Self::ANSWER => Self::Answer {
                asked: LocalNs(rest.u64()?),
                heard: PeerNs(rest.u64()?),
                answered: PeerNs(rest.u64()?),
            },
            _ => return None,
        };
        rest.is_empty().then_some(frame)
    }
}

const fn burden(byte: u8) -> Option<BuilderLoad> {
    match byte {
        0 => Some(BuilderLoad::Usual),
        1 => Some(BuilderLoad::Heavy),
        2 => Some(BuilderLoad::Light),
        _ => None,
    }
}

/// Returns `head` of a message without its end, if that says that it is of `run`.
pub(super) fn from_run(head: &[u8], run: u16) -> Option<&[u8]> {
    let (frame, its) = head.split_last_chunk()?;
    (u16::from_le_bytes(*its) == run).then_some(frame)
}

/// The word that comes with every write of a contribution.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct WriteImmediate {
    /// The low bits of the timeslice's number.
    timeslice: u32,
    /// The low bits of the epoch that its writer knows.
    epoch: u8,
    /// The low bits of the contribution's position.
    pub(super) sequence: u32,
    /// Of how many writes the contribution consists, from one.
    pub(super) pieces: u8,
    /// The low bits of the connection's life and run.
    life: u32,
}

impl WriteImmediate {
    /// Marks one of `pieces` writes of the contribution at `position`, which belongs to
    /// `timeslice`, on a connection in `life` of a run, by an input that knows `epoch`.
    pub(super) const fn new(
        timeslice: u64,
        position: u64,
        pieces: u8,
        [epoch, life, run]: [u32; 3],
    ) -> Self {
        Self {
            timeslice: timeslice as u32 & TIMESLICE_MASK,
            epoch: epoch as u8,
            sequence: position as u32 & SEQUENCE_MASK,
            pieces,
            life: life_bits(life, run),
        }
    }

    /// Returns whether it may belong to `timeslice`.
    pub(super) const fn belongs_to(self, timeslice: u64) -> bool {
        self.timeslice == timeslice as u32 & TIMESLICE_MASK
    }

    /// Returns whether its writer knows more decisions than `epoch`: at most half of what the bits
    /// can tell.
    pub(super) const fn is_ahead_of(self, epoch: u32) -> bool {
        (self.epoch.wrapping_sub(epoch as u8) as i8) > 0
    }

    /// Returns whether the connection may be in `life` of `run`.
    pub(super) const fn is_of(self, life: u32, run: u32) -> bool {
        self.life == life_bits(life, run)
    }

    /// Encodes it as the word of a write.
    pub(super) const fn word(self) -> u64 {
        self.timeslice as u64
            | (self.epoch as u64) << 24
            | (self.sequence as u64) << 32
            | (self.pieces as u64 - 1) << 56
            | (self.life as u64) << 58
    }

    /// Reads a word.
    pub(super) const fn from_word(word: u64) -> Self {
        let sequence = (word >> 32) as u32 & SEQUENCE_MASK;
        Self {
            timeslice: word as u32 & TIMESLICE_MASK,
            epoch: (word >> 24) as u8,
            sequence,
            pieces: (word >> 56 & 3) as u8 + 1,
            life: (word >> 58) as u32,
        }
    }

    /// Returns how far the contribution is behind position `first`; at most half of what the bits
    /// can tell.
    pub(super) const fn behind(self, first: u64) -> Option<u32> {
        let behind = sequence_between(first, self.sequence);
        if behind < 1 << (SEQUENCE_BITS - 1) { Some(behind) } else { None }
    }
}

const fn life_bits(life: u32, run: u32) -> u32 {
    life.wrapping_add(run.wrapping_mul(LIVES_OF_RUN)) & LIFE_MASK
}

/// Returns how many numbers lie from `first` on before `sequence`, of which only the low bits may
/// be known.
pub(super) const fn sequence_between(first: u64, sequence: u32) -> u32 {
    sequence.wrapping_sub(first as u32) & SEQUENCE_MASK
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parse__reads_literal_bytes() {
        let welcome = [2, 7, 0, 0, 0, 3, 0, 0, 16, 0, 0, 0, 0, 0, 0, 0, 0, 2, 0, 0, 0, 0, 0];
        let ring = RemoteSpan { region: RegionId(3), offset: 4096 };
        let frame = TimesliceFrame::Welcome { life: 7, ring, length: 0x20000 };
        assert_eq!(TimesliceFrame::parse(&welcome), Some(frame));
        assert_eq!(frame.encode().bytes(), welcome);
        let credit = [3, 9, 0, 0, 0, 5, 0, 0, 0, 255, 255, 255, 255];
        assert_eq!(
            TimesliceFrame::parse(&credit),
            Some(TimesliceFrame::Credit { life: 9, released: 5, granted: u32::MAX })
        );
        let end = [4, 2, 0, 0, 0, 1, 0, 0, 0, 0, 0, 0, 0];
        assert_eq!(
            TimesliceFrame::parse(&end),
            Some(TimesliceFrame::End { life: 2, timeslices: 1 })
        );
        let answer = [
            &[10][..],
            &[1, 0, 0, 0, 0, 0, 0, 0],
            &[2, 0, 0, 0, 0, 0, 0, 0],
            &[0, 1, 0, 0, 0, 0, 0, 0],
        ]
        .concat();
        let frame =
            TimesliceFrame::Answer { asked: LocalNs(1), heard: PeerNs(2), answered: PeerNs(256) };
        assert_eq!(
            (TimesliceFrame::parse(&answer), frame.encode().bytes()),
            (Some(frame), &answer[..])
        );
        let heavy = TimesliceFrame::Burden { life: 4, burden: BuilderLoad::Heavy };
        assert_eq!(
            (TimesliceFrame::parse(&[12, 4, 0, 0, 0, 1]), heavy.encode().bytes()),
            (Some(heavy), &[12, 4, 0, 0, 0, 1][..])
        );
        let put = [13, 16, 0, 0, 0, 0, 0, 0, 0, 2, 0, 0, 1, 0, 0, 0, 0, 0, 0, 64, 0, 0, 0];
        let from = RemoteSpan { region: RegionId(2), offset: 256 };
        let frame = TimesliceFrame::Put { into: 16, from, length: 64 };
        assert_eq!((TimesliceFrame::parse(&put), frame.encode().bytes()), (Some(frame), &put[..]));
        let holds = [14, 4, 0, 0, 0, 3, 0, 0, 0, 0, 1, 0, 0];
        let frame = TimesliceFrame::Capacity { life: 4, epoch: 3, contributions: 256 };
        assert_eq!(
            (TimesliceFrame::parse(&holds), frame.encode().bytes()),
            (Some(frame), &holds[..])
        );
        let ended = TimesliceFrame::parse(&[5, 3, 0, 0, 0]);
        assert_eq!(
            (ended, TimesliceFrame::parse(&[6])),
            (Some(TimesliceFrame::Ended { life: 3 }), Some(TimesliceFrame::Abort))
        );
    }

    #[test]
    fn parse__refuses_other_lengths_and_kinds() {
        for bytes in [
            &[][..],
            &[0],
            &[1, 0, 0, 0],
            &[5, 0],
            &[13],
            &[12, 0, 0, 0, 0, 3],
            &[3, 0, 0, 0, 0, 0, 0, 0, 0, 0],
        ] {
            assert_eq!(TimesliceFrame::parse(bytes), None, "{bytes:?}");
        }
    }

    #[test]
    fn of_run__is_reported_by_the_last_two_bytes() {
        assert_eq!(from_run(&[6, 2, 1], 0x0102), Some(&[6][..]));
        assert_eq!((from_run(&[6, 2, 1], 0x0101), from_run(&[6], 6)), (None, None));
    }

    #[test]
    fn mark__comes_back_from_its_word() {
        let mark = WriteImmediate::new(0x1_2345_6789, 0xff00_0001, 4, [0x123, 0x41, 0]);
        assert_eq!(mark.word(), 0x0700_0001_2345_6789);
        assert_eq!(WriteImmediate::from_word(mark.word()), mark);
        assert!(mark.is_of(1, 0) && mark.is_of(0x41, 0) && !mark.is_of(2, 0) && !mark.is_of(1, 1));
        assert_eq!(WriteImmediate::new(0, 0, 1, [0, 0, 3]).word(), 0x6000_0000_0000_0000);
        assert!(mark.belongs_to(0x45_6789) && !mark.belongs_to(0x45_678a));
        assert!(mark.is_ahead_of(0x122) && !mark.is_ahead_of(0x123) && !mark.is_ahead_of(0x124));
    }

    #[test]
    fn behind__counts_across_the_end_of_the_bits() {
        assert_eq!(WriteImmediate::new(0, 0x0100_0002, 1, [0; 3]).behind(0x00ff_fffe), Some(4));
        assert_eq!(WriteImmediate::new(0, 5, 1, [0; 3]).behind(6), None);
    }
}
