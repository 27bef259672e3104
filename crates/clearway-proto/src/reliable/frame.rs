//! The frames of reliable messages, byte by byte.
//!
//! # Model
//! All numbers are little-endian. The *class* is that of the stream, by place in [`Class::ALL`]:
//! marks may change on the way. Every frame ends, as far as its header goes, with what its kind
//! adds; the digest at byte 4 covers the whole header, taken as zero where it stands itself.
//!
//! | offset | bytes | field |
//! |---|---|---|
//! | 0 | 1 | kind in the low four bits, class in the high four |
//! | 1 | 1 | flags: 1 open, 2 last, 4 skip, 8 answer at once, 16 congestion marked, 32 answers a question, 64 silent, 128 carries an acknowledgement |
//! | 2 | 2 | generation of the stream |
//! | 4 | 4 | CRC-32C of the header |
//! | 8 | 4 | number of the fragment, its low 32 bits |
//!
//! | kind | name | continues with |
//! |---|---|---|
//! | 1 | data | 4: CRC-32C of the body; 2: region, 6: offset in it (region 65535: position in the inbox); if it *carries* one, the acknowledgement of the stream the other way, 2: its generation, 4: number, and what follows in kind 2, without a bitmap; with *last* 4: length of the message, then its header, or the 8 bytes of the word of a write that is not *silent* |
//! | 2 | acknowledgement | number: everything below has arrived. 6: position up to which the inbox is free; 1: path, 1: words of the bitmap; 4: newest number; 4: nanoseconds that this answer waited; 8 each: bitmap of what arrived from *number* + 1 on |
//! | 3 | damaged | number: a body that was not what its digest says |
//! | 4 | refused | number: a place that does not exist |
//! | 5 | unknown | nothing: this stream is not known here |
//! | 6 | question | nothing: an acknowledgement of what came before it on its path is asked for, on that path |
//!
//! # Invariants
//! I1. [`ReliableFrame::parse`] answers for any bytes, never panics and never reads outside them.

use crate::base::{ByteReader, Class, Head, crc32c};
use crate::wire::{PathId, RegionId};

/// Bytes of a data frame before its tail.
pub(super) const DATA_LENGTH: usize = 24;
/// Bytes of an acknowledgement that a data frame carries.
pub(super) const CARRIED_LENGTH: usize = 22;
/// Bytes that a tail has before the message's own header.
pub(super) const TAIL_LENGTH: usize = 4;
/// The longest header of a frame: that of the wires below.
pub(super) const FRAME_MAX: usize = 128;
/// The longest header of a message that travels in such frames.
pub const HEAD_MAX: usize = FRAME_MAX - DATA_LENGTH - TAIL_LENGTH;
/// Words of the longest bitmap: what an acknowledgement of [`FRAME_MAX`] holds behind its 28 bytes.
pub(super) const BITMAP_WORDS: usize = 12;
/// Offsets and positions have 48 bits.
pub(super) const OFFSET_LIMIT: u64 = 1 << 48;
/// The region that names the receiver's inbox for this stream.
pub(super) const INBOX: RegionId = RegionId::RECEIVE;

const OPEN: u8 = 1;
const LAST: u8 = 2;
const SKIP: u8 = 4;
const AT_ONCE: u8 = 8;
const MARKED: u8 = 16;
const ANSWERS: u8 = 32;
const SILENT: u8 = 64;
const CARRIES: u8 = 128;

/// Where a fragment's body goes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct BodyPlacement {
    /// A region of the receiver, or [`INBOX`].
    pub(super) region: RegionId,
    /// From the region's beginning, or the position in the inbox; below [`OFFSET_LIMIT`].
    pub(super) offset: u64,
}

/// What the last fragment of a message adds.
#[derive(Clone, Copy, Debug)]
pub(super) enum MessageTrailer {
    /// A message with its header.
    Message { length: u32, head: Head<HEAD_MAX> },
    /// A write with its word, if it has one.
    Landed { length: u32, immediate: Option<u64> },
}

/// A fragment.
#[derive(Clone, Copy, Debug)]
pub(super) struct FragmentHeader {
    /// The sender has heard nothing of this stream yet.
    pub(super) is_open: bool,
    /// The body is left out: the receiver refused its place before.
    pub(super) is_skipped: bool,
    /// The sender waits for an answer.
    pub(super) at_once: bool,
    pub(super) digest: u32,
    pub(super) place: BodyPlacement,
    /// What has arrived of the stream the other way.
    pub(super) carried: Option<CarriedAnswer>,
    pub(super) tail: Option<MessageTrailer>,
}

impl FragmentHeader {
    /// Returns how long a frame with it is.
    pub(super) fn length(&self) -> usize {
        let tail = match &self.tail {
            None => 0,
            Some(MessageTrailer::Message { head, .. }) => TAIL_LENGTH + head.bytes().len(),
            Some(MessageTrailer::Landed { immediate, .. }) => {
                TAIL_LENGTH + immediate.map_or(0, |_| size_of::<u64>())
            }
        };
        DATA_LENGTH + self.carried.map_or(0, |_| CARRIED_LENGTH) + tail
    }
}

/// An acknowledgement on its way with data: of the stream the other way, of which nothing is
/// missing. It has no bitmap, as data frames are copied often and a bitmap is longer than they are.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct CarriedAnswer {
    pub(super) generation: u16,
    /// Everything below has arrived; its low 32 bits.
    pub(super) number: u32,
    is_marked: bool,
    freed: u64,
    path: PathId,
    newest: u32,
    waited_ns: u32,
}

impl CarriedAnswer {
    /// Creates one of an acknowledgement of everything below `number` (its low 32 bits); `None` when
    /// that has a bitmap.
    pub(super) fn new(generation: u16, number: u32, from: &Acknowledgement) -> Option<Self> {
        let Acknowledgement { is_marked, freed, path, newest, waited_ns, bitmap, .. } = *from;
        let carried = Self { generation, number, is_marked, freed, path, newest, waited_ns };
        (bitmap == [0; BITMAP_WORDS]).then_some(carried)
    }

    /// Returns the acknowledgement that would say the same alone.
    pub(super) const fn acknowledgement(&self) -> Acknowledgement {
        let Self { is_marked, freed, path, newest, waited_ns, .. } = *self;
        let (is_answer, bitmap) = (false, [0; BITMAP_WORDS]);
        Acknowledgement { is_marked, is_answer, freed, path, newest, waited_ns, bitmap }
    }
}

/// What has arrived of a stream.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Acknowledgement {
    /// Fragments arrived with a mark of congestion since the last answer.
    pub(super) is_marked: bool,
    /// A question was answered: what left before it on this path is here, or lost.
    pub(super) is_answer: bool,
    pub(super) freed: u64,
    /// The path on which the newest fragment came.
    pub(super) path: PathId,
    /// The newest fragment, its low 32 bits.
    pub(super) newest: u32,
    pub(super) waited_ns: u32,
    /// Bit `i` of word `j`: fragment `number + 1 + 64 * j + i`.
    pub(super) bitmap: [u64; BITMAP_WORDS],
}

/// What a frame says.
#[derive(Clone, Copy, Debug)]
pub(super) enum ReliableFrameKind {
    Data(FragmentHeader),
    Acknowledgement(Acknowledgement),
    Damaged,
    Refused,
    Unknown,
    Question,
}

/// A frame.
#[derive(Clone, Copy, Debug)]
pub(super) struct ReliableFrame {
    pub(super) class: Class,
    pub(super) generation: u16,
    /// The low 32 bits of a fragment's number.
    pub(super) number: u32,
    pub(super) kind: ReliableFrameKind,
}

impl ReliableFrame {
    /// Returns the bytes.
    pub(super) fn encode(&self) -> Head<FRAME_MAX> {
        let mut head = Head::new();
        let (kind, flags) = self.kind.code();
        head.put(&[kind | (self.class.index() as u8) << 4, flags])
            .put(&self.generation.to_le_bytes());
        head.put(&[0; 4]).put(&self.number.to_le_bytes());
        match &self.kind {
            ReliableFrameKind::Data(data) => put_data(&mut head, data),
            ReliableFrameKind::Acknowledgement(acknowledgement) => {
                put_acknowledgement(&mut head, acknowledgement)
            }
            ReliableFrameKind::Damaged
            | ReliableFrameKind::Refused
            | ReliableFrameKind::Unknown
            | ReliableFrameKind::Question => {}
        }
        let digest = crc32c(head.bytes());
        head.overwrite(4, &digest.to_le_bytes());
        head
    }

    /// Reads a frame; `None` for whatever no sender writes, and for what was damaged.
    pub(super) fn parse(bytes: &[u8]) -> Option<Self> {
        if bytes.len() > FRAME_MAX {
            return None;
        }
        let mut rest = ByteReader::new(bytes);
        let [first, flags] = rest.take()?;
        let (generation, digest, number) = (rest.u16()?, rest.u32()?, rest.u32()?);
        let mut zeroed = Head::<FRAME_MAX>::new();
        zeroed.put(bytes).overwrite(4, &[0; 4]);
        if crc32c(zeroed.bytes()) != digest {
            return None;
        }
        let class = *Class::ALL.get(usize::from(first >> 4))?;
        let kind = match (first & 15, flags & CARRIES) {
            (1, _) => ReliableFrameKind::Data(parse_data(rest, flags)?),
            (2, 0) => {
                let acknowledgement = parse_acknowledgement(&mut rest, flags)?;
                rest.is_empty().then_some(ReliableFrameKind::Acknowledgement(acknowledgement))?
            }
            (3, 0) if rest.is_empty() => ReliableFrameKind::Damaged,
            (4, 0) if rest.is_empty() => ReliableFrameKind::Refused,
            (5, 0) if rest.is_empty() => ReliableFrameKind::Unknown,
            (6, 0) if rest.is_empty() => ReliableFrameKind::Question,
            _ => return None,
        };
        Some(Self { class, generation, number, kind })
    }
}

impl ReliableFrameKind {
    fn code(&self) -> (u8, u8) {
        let flag = |is_set: bool, flag: u8| if is_set { flag } else { 0 };
        match self {
            Self::Data(data) => {
                let flags = flag(data.is_open, OPEN)
                    | flag(data.tail.is_some(), LAST)
                    | flag(data.is_skipped, SKIP)
                    | flag(data.at_once, AT_ONCE)
                    | data.carried.map_or(0, |carried| CARRIES | flag(carried.is_marked, MARKED))
                    | flag(
                        matches!(data.tail, Some(MessageTrailer::Landed { immediate: None, .. })),
                        SILENT,
                    );
                (1, flags)
            }
            Self::Acknowledgement(Acknowledgement { is_marked, is_answer, .. }) => {
                (2, flag(*is_marked, MARKED) | flag(*is_answer, ANSWERS))
            }
            Self::Damaged => (3, 0),
            Self::Refused => (4, 0),
            Self::Unknown => (5, 0),
            Self::Question => (6, 0),
        }
    }
}

fn put_data(head: &mut Head<FRAME_MAX>, data: &FragmentHeader) {
    head.put(&data.digest.to_le_bytes()).put(&data.place.region.0.to_le_bytes());
    head.put(&data.place.offset.to_le_bytes()[..6]);
    if let Some(carried) = &data.carried {
        head.put(&carried.generation.to_le_bytes()).put(&carried.number.to_le_bytes());
        put_acknowledgement(head, &carried.acknowledgement());
    }
    match &data.tail {
        Some(MessageTrailer::Message { length, head: own }) => {
            head.put(&length.to_le_bytes()).put(own.bytes())
        }
        Some(MessageTrailer::Landed { length, immediate: None }) => head.put(&length.to_le_bytes()),
        Some(MessageTrailer::Landed { length, immediate: Some(word) }) => {
            head.put(&length.to_le_bytes()).put(&word.to_le_bytes())
        }
        None => head,
    };
}

fn put_acknowledgement(head: &mut Head<FRAME_MAX>, acknowledgement: &Acknowledgement) {
    let Acknowledgement { freed, path, newest, waited_ns, bitmap, .. } = acknowledgement;
    let words = bitmap.iter().rposition(|word| *word != 0).map_or(0, |last| last + 1);
    head.put(&freed.to_le_bytes()[..6]).put(&[path.0, words as u8]);
    head.put(&newest.to_le_bytes()).put(&waited_ns.to_le_bytes());
    bitmap[..words].iter().for_each(|word| {
        head.put(&word.to_le_bytes());
    });
}

/// Takes an offset or a position.
fn six_bytes(rest: &mut ByteReader<'_>) -> Option<u64> {
    let [a, b, c, d, e, f] = rest.take()?;
    Some(u64::from_le_bytes([a, b, c, d, e, f, 0, 0]))
}

fn parse_data(mut rest: ByteReader<'_>, flags: u8) -> Option<FragmentHeader> {
    let digest = rest.u32()?;
    let place = BodyPlacement { region: RegionId(rest.u16()?), offset: six_bytes(&mut rest)? };
    let carried = if flags & CARRIES != 0 { Some(parse_carried(&mut rest, flags)?) } else { None };
    let (is_last, is_silent) = (flags & LAST != 0, flags & SILENT != 0);
    let tail = match (is_last, is_silent, place.region == INBOX) {
        (true, false, true) => Some(MessageTrailer::Message {
            length: rest.u32()?,
            head: Head::from_bytes(rest.remaining())?,
        }),
        (true, false, false) => {
            let length = rest.u32()?;
            Some(MessageTrailer::Landed {
                length,
                immediate: Some(u64::from_le_bytes(rest.remaining().try_into().ok()?)),
            })
        }
        (true, true, false) => {
            let length = rest.u32()?;
            rest.is_empty().then_some(Some(MessageTrailer::Landed { length, immediate: None }))?
        }
        (false, false, _) => rest.is_empty().then_some(None)?,
        (true, true, true) | (false, true, _) => return None,
    };
    Some(FragmentHeader {
        is_open: flags & OPEN != 0,
        is_skipped: flags & SKIP != 0,
        at_once: flags & AT_ONCE != 0,
        digest,
        place,
        carried,
        tail,
    })
}

fn parse_carried(rest: &mut ByteReader<'_>, flags: u8) -> Option<CarriedAnswer> {
    let (generation, number) = (rest.u16()?, rest.u32()?);
    let acknowledgement = parse_acknowledgement(rest, flags & MARKED)?;
    CarriedAnswer::new(generation, number, &acknowledgement)
}

fn parse_acknowledgement(rest: &mut ByteReader<'_>, flags: u8) -> Option<Acknowledgement> {
    let (freed, path, words) = (six_bytes(rest)?, PathId(rest.u8()?), rest.u8()?);
    let (newest, waited_ns) = (rest.u32()?, rest.u32()?);
    let mut bitmap = [0; BITMAP_WORDS];
    for word in bitmap.get_mut(..usize::from(words))? {
        *word = rest.u64()?;
    }
    let (is_marked, is_answer) = (flags & MARKED != 0, flags & ANSWERS != 0);
    Some(Acknowledgement { is_marked, is_answer, freed, path, newest, waited_ns, bitmap })
}

/// Returns the whole number nearest to `near` whose low `bits` are `low`: how numbers become those
/// of 64 bits again.
const fn nearest(near: u64, low: u64, bits: u32) -> u64 {
    let mask = (1 << bits) - 1;
    let ahead = low.wrapping_sub(near) & mask;
    if ahead <= mask >> 1 {
        near.saturating_add(ahead)
    } else {
        let behind = mask + 1 - ahead;
        if behind > near { low } else { near - behind }
    }
}

/// Returns the number of a fragment that ends in `low` and is nearest to `near`.
pub(super) const fn whole(near: u64, low: u32) -> u64 {
    nearest(near, low as u64, 32)
}

/// Returns the position in an inbox that ends in `low` (48 bits) and is nearest to `near`.
pub(super) const fn position(near: u64, low: u64) -> u64 {
    nearest(near, low, 48)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn data(tail: Option<MessageTrailer>, region: RegionId) -> ReliableFrame {
        let place = BodyPlacement { region, offset: 0x0605_0403_0201 };
        let data = FragmentHeader {
            is_open: true,
            is_skipped: false,
            at_once: true,
            digest: 0x4433_2211,
            place,
            carried: None,
            tail,
        };
        ReliableFrame {
            class: Class::Bulk,
            generation: 0x0201,
            number: 7,
            kind: ReliableFrameKind::Data(data),
        }
    }

    #[test]
    fn encode__has_the_bytes_of_the_table() {
        let tail = MessageTrailer::Landed { length: 5, immediate: Some(6) };
        let frame = data(Some(tail), RegionId(2)).encode();
        let bytes = frame.bytes();
        assert_eq!(bytes[..4], [0x31, 11, 1, 2]);
        assert_eq!(bytes[8..24], [7, 0, 0, 0, 0x11, 0x22, 0x33, 0x44, 2, 0, 1, 2, 3, 4, 5, 6]);
        assert_eq!(bytes[24..], [5, 0, 0, 0, 6, 0, 0, 0, 0, 0, 0, 0]);
        let mut zeroed = bytes.to_vec();
        zeroed[4..8].fill(0);
        assert_eq!(bytes[4..8], crc32c(&zeroed).to_le_bytes());
    }

    #[test]
    fn parse__every_damaged_byte_and_every_shorter_frame_is_refused() {
        let head = Head::from_bytes(b"the engine's header").expect("short");
        let frame = data(Some(MessageTrailer::Message { length: 9, head }), INBOX).encode();
        assert!(matches!(
            ReliableFrame::parse(frame.bytes()),
            Some(ReliableFrame {
                kind: ReliableFrameKind::Data(FragmentHeader {
                    tail: Some(MessageTrailer::Message { .. }),
                    ..
                }),
                ..
            })
        ));
        for at in 0..frame.bytes().len() {
            let mut bytes = frame.bytes().to_vec();
            bytes[at] ^= 0x10;
            assert!(ReliableFrame::parse(&bytes).is_none(), "byte {at}");
            assert!(ReliableFrame::parse(&bytes[..at]).is_none(), "{at} bytes");
        }
    }

    #[test]
    fn parse__an_acknowledgement_is_what_was_written() {
        let mut bitmap = [0; BITMAP_WORDS];
        (bitmap[0], bitmap[BITMAP_WORDS - 1]) = (5, 1 << 63);
        let acknowledgement = Acknowledgement {
            is_marked: true,
            is_answer: true,
            freed: OFFSET_LIMIT - 1,
            path: PathId(3),
            newest: u32::MAX,
            waited_ns: 4,
            bitmap,
        };
        for kept in [0, 1, BITMAP_WORDS] {
            let mut bitmap = acknowledgement.bitmap;
            bitmap[kept..].fill(0);
            let kind =
                ReliableFrameKind::Acknowledgement(Acknowledgement { bitmap, ..acknowledgement });
            let frame = ReliableFrame { class: Class::Control, generation: 9, number: 8, kind };
            let parsed = ReliableFrame::parse(frame.encode().bytes()).expect("well formed");
            assert_eq!((parsed.class, parsed.generation, parsed.number), (Class::Control, 9, 8));
            assert!(
                matches!(parsed.kind, ReliableFrameKind::Acknowledgement(got) if got == Acknowledgement { bitmap, ..acknowledgement })
            );
        }
    }

    #[test]
    fn parse__data_carry_what_arrived_the_other_way_and_no_bitmap() {
        let acknowledgement = Acknowledgement {
            is_marked: true,
            is_answer: false,
            freed: OFFSET_LIMIT - 2,
            path: PathId(1),
            newest: 6,
            waited_ns: 5,
            bitmap: [0; BITMAP_WORDS],
        };
        let carried = CarriedAnswer::new(4, 7, &acknowledgement).expect("no bitmap");
        assert_eq!(carried.acknowledgement(), acknowledgement);
        let head = Head::from_bytes(b"the engine's header").expect("short");
        let mut frame = data(Some(MessageTrailer::Message { length: 9, head }), INBOX);
        let ReliableFrameKind::Data(header) = &mut frame.kind else { panic!("data") };
        header.carried = Some(carried);
        let length = header.length();
        let bytes = frame.encode();
        assert_eq!(bytes.bytes().len(), length);
        assert_eq!(bytes.bytes()[24..30], [4, 0, 7, 0, 0, 0]);
        let parsed = ReliableFrame::parse(bytes.bytes()).expect("well formed");
        let ReliableFrameKind::Data(header) = parsed.kind else { panic!("data") };
        assert_eq!(header.carried, Some(carried));
        let Some(MessageTrailer::Message { length: 9, head }) = header.tail else {
            panic!("its tail")
        };
        assert_eq!(head.bytes(), b"the engine's header");
    }

    #[test]
    fn parse__refuses_a_bitmap_with_data() {
        let mut bitmap = [0; BITMAP_WORDS];
        bitmap[0] = 1;
        let acknowledgement = Acknowledgement {
            is_marked: false,
            is_answer: false,
            freed: 0,
            path: PathId(0),
            newest: 6,
            waited_ns: 5,
            bitmap,
        };
        assert_eq!(CarriedAnswer::new(4, 7, &acknowledgement), None);
        let carried = Acknowledgement { bitmap: [0; BITMAP_WORDS], ..acknowledgement };
        let mut frame = data(None, INBOX);
        let ReliableFrameKind::Data(header) = &mut frame.kind else { panic!("data") };
        header.carried = CarriedAnswer::new(4, 7, &carried);
        let mut bytes = frame.encode();
        assert!(ReliableFrame::parse(bytes.bytes()).is_some());
        // One word of a bitmap, as in an acknowledgement of its own.
        let words = DATA_LENGTH + 2 + 4 + 6 + 1;
        bytes.put(&1u64.to_le_bytes()).overwrite(words, &[1]);
        bytes.overwrite(4, &[0; 4]);
        let digest = crc32c(bytes.bytes());
        bytes.overwrite(4, &digest.to_le_bytes());
        assert!(ReliableFrame::parse(bytes.bytes()).is_none());
    }

    #[test]
    fn whole__is_the_nearest_number_with_these_bits() {
        let turn = 1u64 << 32;
        assert_eq!(whole(0, 5), 5);
        assert_eq!(whole(turn - 1, 0), turn);
        assert_eq!(whole(turn + 2, u32::MAX), turn - 1);
        assert_eq!(whole(3, u32::MAX), u64::from(u32::MAX), "nothing lies before zero");
        assert_eq!(whole(5 * turn + 7, 7), 5 * turn + 7);
        assert_eq!(position(OFFSET_LIMIT - 1, 3), OFFSET_LIMIT + 3);
    }

    proptest! {
        #[test]
        fn parse__any_bytes_behind_a_good_digest(mut bytes in prop::collection::vec(any::<u8>(), 12..140)) {
            bytes[4..8].fill(0);
            let digest = crc32c(&bytes);
            bytes[4..8].copy_from_slice(&digest.to_le_bytes());
            if let Some(frame) = ReliableFrame::parse(&bytes) {
                prop_assert!(frame.encode().bytes().len() <= FRAME_MAX);
            }
        }
    }
}
