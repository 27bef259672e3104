//! The libfabric wire's own header, and the small messages that its ends exchange next to those of
//! engines.
//!
//! # Model
//! One message is a header of 16 bytes and what its kind says. All numbers are little-endian.
//!
//! | offset | bytes | field |
//! |---|---|---|
//! | 0 | 1 | magic `c2` |
//! | 1 | 1 | kind |
//! | 2 | 1 | class, by its index |
//! | 3 | 1 | length of the engine's header, 0 to 128 (kind 0 only) |
//! | 4 | 4 | rank of the sender |
//! | 8 | 8 | session number: the job's, or one of this direction between two ranks |
//!
//! Kind 0 continues with the engine's header and the body. Kind 9 continues with a ticket and 1 to
//! [`WORDS_MAX`] [`ImmediateWord`]s; the others are [`ControlMessage`]s. The session number keeps
//! jobs apart; it is **not authentication**, even where it is one of a pair of ranks that strangers
//! cannot guess (`trust`).
//!
//! # Invariants
//! I1. [`parse`] answers for any bytes, never panics and never reads outside them.

use clearway_proto::base::{ByteReader, Class, Head, Rank};
use clearway_proto::wire::{AtomicKind, RegionId, RemoteSpan};

/// Bytes in front of everything.
pub(crate) const FRAME_LENGTH: usize = 16;
/// The longest engine's header: as on the UDP wire, so that an engine that fits here fits there.
pub(crate) const HEAD_MAX: usize = 128;
/// The longest body: two pages. With both headers it stays below the 16 KiB up to which `ofi_rxm`
/// sends a message in one piece (`FI_OFI_RXM_BUFFER_SIZE`, `fi_rxm(7)`); what is longer is what
/// one-sided writes are for.
pub(crate) const BODY_MAX: usize = 8_192;
/// The longest message, rounded up so that the next one in a buffer begins on a cache line.
pub(crate) const MESSAGE_MAX: usize = (FRAME_LENGTH + HEAD_MAX + BODY_MAX).next_multiple_of(64);
/// The longest [`ControlMessage`] with its header.
pub(crate) const NOTE_MAX: usize = 56;

/// Words in one message at most: with them it is shorter than what an engine sends.
pub(crate) const WORDS_MAX: usize = 16;
/// Bytes of a [`ImmediateWord`].
const WORD_LENGTH: usize = 22;
/// Marks the region of a [`ImmediateWord`] whose write the peer's engine does not hear of. Regions
/// have far smaller numbers.
const SILENT: u16 = 1 << 15;
/// The longest message of words.
pub(crate) const WORDS_LENGTH_MAX: usize = FRAME_LENGTH + 8 + WORDS_MAX * WORD_LENGTH;

/// Bytes of the proof in a [`ControlMessage::Hello`].
pub(crate) const HELLO_LENGTH: usize = 16;
/// The kind of [`ControlMessage::Hello`].
const HELLO: u8 = 1;

/// Chosen at random.
const MAGIC: u8 = 0xc2;

/// A message between two ends of the wire that does not come from an engine.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ControlMessage {
    /// The first message on a connection: it can be marked from now on. The proof counts where
    /// ranks show one.
    Hello { proof: [u8; HELLO_LENGTH] },
    /// A write into your memory is complete.
    Landed(ImmediateWord),
    /// Where is your region?
    AskRegion { region: RegionId },
    /// There: where it begins, how long it is, its key. `None`: there is no such region.
    TellRegion { region: RegionId, there: Option<RegionHandle> },
    /// Change this word; I know the question by `ticket`.
    AskAtomic { ticket: u64, kind: AtomicKind, at: RemoteSpan },
    /// The word's old value; `None`: there is no such word.
    TellAtomic { ticket: u64, old: Option<u64> },
    /// Your message of words came, and so had the bytes of the writes before it.
    Heard { ticket: u64 },
}

impl ControlMessage {
    const fn kind(&self) -> u8 {
        match self {
            Self::Hello { .. } => HELLO,
            Self::Landed(_) => 2,
            Self::AskRegion { .. } => 3,
            Self::TellRegion { there: None, .. } => 4,
            Self::TellRegion { there: Some(_), .. } => 5,
            Self::AskAtomic { .. } => 6,
            Self::TellAtomic { old: Some(_), .. } => 7,
            Self::TellAtomic { old: None, .. } => 8,
            Self::Heard { .. } => 10,
        }
    }
}

/// What a write says at its end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct ImmediateWord {
    /// Where it was written.
    pub(crate) into: RemoteSpan,
    /// Bytes.
    pub(crate) length: u32,
    /// The engine's own word; `None` where the peer's engine is not to hear of the write.
    pub(crate) immediate: Option<u64>,
}

impl ImmediateWord {
    fn put<const LONGEST: usize>(self, message: &mut Head<LONGEST>) {
        let silent = if self.immediate.is_none() { SILENT } else { 0 };
        message
            .put(&(self.into.region.0 | silent).to_le_bytes())
            .put(&self.into.offset.to_le_bytes());
        message
            .put(&self.length.to_le_bytes())
            .put(&self.immediate.unwrap_or_default().to_le_bytes());
    }

    fn read(rest: &mut ByteReader<'_>) -> Option<Self> {
        let (into, length, immediate) = (span(rest)?, rest.u32()?, rest.u64()?);
        let region = RegionId(into.region.0 & !SILENT);
        let immediate = (into.region == region).then_some(immediate);
        Some(Self { into: RemoteSpan { region, ..into }, length, immediate })
    }
}

/// What a peer must know to reach a region.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct RegionHandle {
    /// The number that its first byte has.
    pub(crate) begin: u64,
    /// Bytes.
    pub(crate) length: u64,
    /// The key of its memory.
    pub(crate) key: u64,
}

/// What arrived.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ReceivedContent {
    /// An engine's message: where its header ends and its body begins.
    Message { body_start: usize },
    /// A note of the wire's.
    Note(ControlMessage),
    /// This many words (see [`word`]), and how to answer.
    Words { ticket: u64, count: usize },
}

/// A well-formed message of the right session.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Frame {
    /// The rank that says to have sent it.
    pub(crate) from: Rank,
    /// The class it was sent with.
    pub(crate) class: Class,
    /// What it is.
    pub(crate) content: ReceivedContent,
}

/// The sender's part of every header.
#[derive(Clone, Copy, Debug)]
pub(crate) struct HeaderSender {
    /// Its rank.
    pub(crate) rank: Rank,
    /// Its job.
    pub(crate) session: u64,
}

impl HeaderSender {
    fn header(self, kind: u8, class: Class, head_length: u8) -> [u8; FRAME_LENGTH] {
        let mut bytes =
            [MAGIC, kind, class.index() as u8, head_length, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0];
        bytes[4..8].copy_from_slice(&self.rank.0.to_le_bytes());
        bytes[8..].copy_from_slice(&self.session.to_le_bytes());
        bytes
    }

    /// Returns the bytes in front of an engine's header of `head_length` bytes.
    pub(crate) fn message(self, class: Class, head_length: u8) -> [u8; FRAME_LENGTH] {
        self.header(0, class, head_length)
    }

    /// Returns a whole note.
    pub(crate) fn note(self, class: Class, note: ControlMessage) -> Head<NOTE_MAX> {
        let mut message = Head::new();
        message.put(&self.header(note.kind(), class, 0));
        match note {
            ControlMessage::Hello { proof } => {
                message.put(&proof);
            }
            ControlMessage::Landed(word) => word.put(&mut message),
            ControlMessage::AskRegion { region } => {
                message.put(&region.0.to_le_bytes());
            }
            ControlMessage::TellRegion { region, there } => {
                message.put(&region.0.to_le_bytes());
                if let Some(RegionHandle { begin, length, key }) = there {
                    message
                        .put(&begin.to_le_bytes())
                        .put(&length.to_le_bytes())
                        .put(&key.to_le_bytes());
                }
            }
            ControlMessage::AskAtomic { ticket, kind, at } => {
                let (number, a, b) = match kind {
                    AtomicKind::FetchAdd(n) => (0_u16, n, 0),
                    AtomicKind::Swap(n) => (1, n, 0),
                    AtomicKind::CompareSwap { expected, desired } => (2, desired, expected),
                };
                message
                    .put(&ticket.to_le_bytes())
                    .put(&at.region.0.to_le_bytes())
                    .put(&at.offset.to_le_bytes());
                message.put(&number.to_le_bytes()).put(&a.to_le_bytes()).put(&b.to_le_bytes());
            }
            ControlMessage::TellAtomic { ticket, old } => {
                message.put(&ticket.to_le_bytes());
                if let Some(old) = old {
                    message.put(&old.to_le_bytes());
                }
            }
            ControlMessage::Heard { ticket } => {
                message.put(&ticket.to_le_bytes());
            }
        }
        message
    }

    /// Returns a message of at most [`WORDS_MAX`] words.
    pub(crate) fn words(
        self,
        class: Class,
        ticket: u64,
        words: impl Iterator<Item = ImmediateWord>,
    ) -> Head<WORDS_LENGTH_MAX> {
        let mut message = Head::new();
        message.put(&self.header(9, class, 0)).put(&ticket.to_le_bytes());
        words.take(WORDS_MAX).for_each(|word| word.put(&mut message));
        message
    }
}

/// Returns the word at `index` in a message of words.
pub(crate) fn word(message: &[u8], index: usize) -> Option<ImmediateWord> {
    ImmediateWord::read(&mut ByteReader::new(
        message.get(FRAME_LENGTH + 8 + index * WORD_LENGTH..)?,
    ))
}

/// Reads `message`; `None` for whatever has not the session number that `session_of` its rank says.
pub(crate) fn parse(message: &[u8], session_of: impl FnOnce(Rank) -> Option<u64>) -> Option<Frame> {
    let (header, rest) = message.split_first_chunk::<FRAME_LENGTH>()?;
    let [magic, kind, class, head_length, rank @ .., _, _, _, _, _, _, _, _] = *header;
    let number = u64::from_le_bytes(*header.last_chunk()?);
    let from = Rank(u32::from_le_bytes(rank));
    if magic != MAGIC || session_of(from) != Some(number) {
        return None;
    }
    let class = *Class::ALL.get(usize::from(class))?;
    let content = match kind {
        0 => {
            let head_length = usize::from(head_length);
            if head_length > HEAD_MAX || head_length > rest.len() {
                return None;
            }
            ReceivedContent::Message { body_start: FRAME_LENGTH + head_length }
        }
        9 => {
            let (ticket, words) = rest.split_first_chunk::<8>()?;
            let count = words.len() / WORD_LENGTH;
            if !words.len().is_multiple_of(WORD_LENGTH) || !(1..=WORDS_MAX).contains(&count) {
                return None;
            }
            ReceivedContent::Words { ticket: u64::from_le_bytes(*ticket), count }
        }
        kind => ReceivedContent::Note(parse_note(kind, ByteReader::new(rest))?),
    };
    Some(Frame { from, class, content })
}

/// Returns the rank whose greeting `message` says to be, whatever its session number and proof are.
pub(crate) fn greeter(message: &[u8]) -> Option<Rank> {
    let [MAGIC, HELLO, _, _, rank @ .., _, _, _, _, _, _, _, _] =
        *message.first_chunk::<FRAME_LENGTH>()?
    else {
        return None;
    };
    Some(Rank(u32::from_le_bytes(rank)))
}

fn parse_note(kind: u8, mut rest: ByteReader<'_>) -> Option<ControlMessage> {
    let r = &mut rest;
    let note = match kind {
        HELLO => ControlMessage::Hello { proof: r.take()? },
        2 => ControlMessage::Landed(ImmediateWord::read(r)?),
        3 => ControlMessage::AskRegion { region: RegionId(r.u16()?) },
        4 => ControlMessage::TellRegion { region: RegionId(r.u16()?), there: None },
        5 => {
            let region = RegionId(r.u16()?);
            ControlMessage::TellRegion {
                region,
                there: Some(RegionHandle { begin: r.u64()?, length: r.u64()?, key: r.u64()? }),
            }
        }
        6 => {
            let (ticket, at) = (r.u64()?, span(r)?);
            let (number, a, b) = (r.u16()?, r.u64()?, r.u64()?);
            let kind = match number {
                0 => AtomicKind::FetchAdd(a),
                1 => AtomicKind::Swap(a),
                2 => AtomicKind::CompareSwap { expected: b, desired: a },
                _ => return None,
            };
            ControlMessage::AskAtomic { ticket, kind, at }
        }
        7 => ControlMessage::TellAtomic { ticket: r.u64()?, old: Some(r.u64()?) },
        8 => ControlMessage::TellAtomic { ticket: r.u64()?, old: None },
        10 => ControlMessage::Heard { ticket: r.u64()? },
        _ => return None,
    };
    rest.is_empty().then_some(note)
}

fn span(rest: &mut ByteReader<'_>) -> Option<RemoteSpan> {
    Some(RemoteSpan { region: RegionId(rest.u16()?), offset: rest.u64()? })
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const SENDER: HeaderSender = HeaderSender { rank: Rank(258), session: 0x1122_3344_5566_7788 };

    /// Rank 258 of that session, class bulk, header "hd" and body "body".
    const LITERAL: [u8; 22] = [
        0xc2, 0, 3, 2, 2, 1, 0, 0, 0x88, 0x77, 0x66, 0x55, 0x44, 0x33, 0x22, 0x11, b'h', b'd',
        b'b', b'o', b'd', b'y',
    ];

    fn read(message: &[u8]) -> Option<Frame> {
        parse(message, |rank| (rank == SENDER.rank).then_some(SENDER.session))
    }

    #[test]
    fn greeter__gets_greetings_only() {
        let hello = |rank| {
            HeaderSender { rank, session: 9 }
                .note(Class::Bulk, ControlMessage::Hello { proof: [0; HELLO_LENGTH] })
        };
        let message = hello(Rank(5));
        let bytes = message.bytes();
        assert_eq!((greeter(bytes), read(bytes)), (Some(Rank(5)), None));
        assert_eq!([greeter(&LITERAL), greeter(&bytes[..15])], [None; 2]);
    }

    #[test]
    fn message__is_byte_for_byte_as_described() {
        assert_eq!(SENDER.message(Class::Bulk, 2), LITERAL[..FRAME_LENGTH]);
        let frame = Frame {
            from: Rank(258),
            class: Class::Bulk,
            content: ReceivedContent::Message { body_start: 18 },
        };
        assert_eq!(read(&LITERAL), Some(frame));
    }

    #[test]
    fn parse__each_wrong_byte_of_the_header_is_refused() {
        for (place, wrong) in [(0, 0xc1), (1, 11), (2, 5), (3, 81), (3, 7), (4, 1), (8, 0)] {
            let mut bytes = LITERAL;
            bytes[place] = wrong;
            assert_eq!(read(&bytes), None, "byte {place}");
        }
        assert_eq!(read(&LITERAL[..15]), None);
    }

    #[test]
    fn note__every_kind_comes_back_and_no_shorter_or_longer_one() {
        let at = RemoteSpan { region: RegionId(7), offset: 1 << 40 };
        let there = RegionHandle { begin: u64::MAX, length: 1 << 33, key: 5 };
        let notes = [
            ControlMessage::Hello { proof: *b"sixteen bytes..." },
            ControlMessage::Landed(ImmediateWord { into: at, length: 9, immediate: Some(42) }),
            ControlMessage::Landed(ImmediateWord { into: at, length: 9, immediate: None }),
            ControlMessage::Heard { ticket: 7 },
            ControlMessage::AskRegion { region: RegionId(3) },
            ControlMessage::TellRegion { region: RegionId(3), there: None },
            ControlMessage::TellRegion { region: RegionId(3), there: Some(there) },
            ControlMessage::AskAtomic { ticket: 1, kind: AtomicKind::FetchAdd(2), at },
            ControlMessage::AskAtomic { ticket: 1, kind: AtomicKind::Swap(2), at },
            ControlMessage::AskAtomic {
                ticket: 1,
                kind: AtomicKind::CompareSwap { expected: 3, desired: 4 },
                at,
            },
            ControlMessage::TellAtomic { ticket: 1, old: Some(u64::MAX) },
            ControlMessage::TellAtomic { ticket: 1, old: None },
        ];
        for note in notes {
            let message = SENDER.note(Class::Control, note);
            let bytes = message.bytes();
            let frame = Frame {
                from: SENDER.rank,
                class: Class::Control,
                content: ReceivedContent::Note(note),
            };
            assert_eq!(read(bytes), Some(frame));
            let mut longer = bytes.to_vec();
            longer.push(0);
            assert_eq!(read(&longer), None, "{note:?} and a byte more");
            assert!(read(&bytes[..bytes.len() - 1]).is_none(), "{note:?} less a byte");
        }
    }

    #[test]
    fn words__come_back_in_order_and_no_other_number_of_bytes_is_taken() {
        let word = |i: u64| ImmediateWord {
            into: RemoteSpan { region: RegionId(i as u16), offset: i << 33 },
            length: i as u32 + 1,
            immediate: (!i.is_multiple_of(3)).then_some(!i),
        };
        for count in [1, WORDS_MAX] {
            let message = SENDER.words(Class::Bulk, 77, (0..count as u64).map(word));
            let bytes = message.bytes();
            let frame = read(bytes).expect("words");
            assert_eq!(frame.content, ReceivedContent::Words { ticket: 77, count });
            assert!((0..count).all(|i| super::word(bytes, i) == Some(word(i as u64))));
            for wrong in [FRAME_LENGTH + 8, bytes.len() - 1] {
                assert_eq!(read(&bytes[..wrong]), None, "{wrong} bytes");
            }
        }
        let message = SENDER.words(Class::Bulk, 77, (0..40).map(word));
        assert_eq!(message.bytes().len(), WORDS_LENGTH_MAX, "no more than fit");
        assert_eq!(read(&[message.bytes(), &[0; WORD_LENGTH]].concat()), None, "one too many");
    }

    proptest! {
        #[test]
        fn parse__any_bytes_give_a_body_inside_them(bytes in proptest::collection::vec(any::<u8>(), 0..64)) {
            let mut bytes = bytes;
            if let Some(first) = bytes.first_mut() { *first = MAGIC; }
            if let Some(session) = bytes.get_mut(8..16) { session.fill(0); }
            if let Some(Frame { content: ReceivedContent::Message { body_start }, .. }) = parse(&bytes, |_| Some(0)) {
                prop_assert!(body_start <= bytes.len());
            }
        }
    }
}
