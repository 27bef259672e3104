//! The UDP wire's own header: whose message this is, of which job, and where the engine's header
//! ends.
//!
//! # Model
//! One datagram is one message. All numbers are little-endian.
//!
//! | offset | bytes | field |
//! |---|---|---|
//! | 0 | 2 | magic `c1 ea` |
//! | 2 | 1 | version, 1 |
//! | 3 | 1 | length of the engine's header, 0 to 128 |
//! | 4 | 4 | rank of the sender |
//! | 8 | 8 | session number of the job |
//! | 16 | | the engine's header, then the body up to the datagram's end |
//!
//! The session number keeps jobs apart that meet on one port by mistake. It is **not
//! authentication**: who can read one packet can forge the next. A wire with keys uses version 2
//! and takes no other:
//!
//! | offset | bytes | field |
//! |---|---|---|
//! | 0 | 16 | as above, with version 2 |
//! | 16 | 7 | number of the message |
//! | 23 | 1 | its sender's class, by place in [`Class::ALL`], in the low three bits; above them the rail |
//! | 24 | | sealed: the engine's header, then the body |
//! | end - 16 | 16 | tag, which covers everything before it |
//!
//! Rank, number, class and rail together are the nonce.
//!
//! # Invariants
//! I1. [`parse`] answers for any bytes, never panics and never reads outside them.
//! I2. The longest message fits one packet of an Ethernet of MTU 1500.
//!
//! # Not here
//! Whether the sender's address is that of its rank (`receive`); sealing and opening (`sealer`);
//! the engine's header (engines).

use clearway_proto::base::{Class, Rank};
use clearway_proto::wire::PathId;

use crate::keys::{NONCE_LENGTH, TAG_LENGTH};

/// The longest engine's header: what a reliable message (24 bytes) and the longest header of an
/// engine above it (62) need.
pub const HEAD_MAX: usize = 128;
/// Bytes in front of the engine's header.
pub const FRAME_LENGTH: usize = 16;
/// The longest datagram: Ethernet's 1500 bytes less 20 of IPv4 (RFC 791) and 8 of UDP (RFC 768).
const DATAGRAM_MAX: usize = 1_472;
/// The longest header and body together.
pub const MESSAGE_MAX: usize = DATAGRAM_MAX - FRAME_LENGTH;

/// Bytes in front of a sealed message.
pub const SEALED_LENGTH: usize = FRAME_LENGTH + 8;
/// Bytes that a sealed message adds to its datagram, before and behind.
pub const SEALED_OVERHEAD: usize = SEALED_LENGTH + TAG_LENGTH;
/// The longest header and body of a sealed message together.
pub const SEALED_MESSAGE_MAX: usize = DATAGRAM_MAX - SEALED_OVERHEAD;

/// Rails of a wire: what its sockets, five for each, leave of 64 that are waited for at once is for
/// groups.
pub(super) const RAILS_MAX: usize = 4;

/// Chosen at random.
const MAGIC: [u8; 2] = [0xc1, 0xea];
const VERSION: u8 = 1;
const VERSION_SEALED: u8 = 2;
/// The seven bytes of a message's number.
const NUMBER_MASK: u64 = (1 << 56) - 1;
/// Of the byte behind it, the class.
const CLASS_MASK: u64 = 7;

/// What a well-formed datagram of the right session says.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct UdpFrame {
    /// The rank that says to have sent it.
    pub from: Rank,
    /// Where the engine's header ends and the body begins.
    pub body_start: usize,
}

/// What the frame of a sealed datagram says, true or not.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SealedFrame {
    /// The rank that says to have sent it.
    pub from: Rank,
    /// Length of the engine's header.
    pub head_length: u8,
    /// The class that it was sent in.
    pub class: Class,
    /// The rail on which it was sent.
    pub rail: PathId,
    /// Its number among the messages of its key, class and rail; below 2^56.
    pub number: u64,
}

impl SealedFrame {
    /// Returns the bytes in front of the sealed ones.
    pub fn write(&self, session: u64) -> [u8; SEALED_LENGTH] {
        let mut bytes = [0; SEALED_LENGTH];
        let (frame, tail) = bytes.split_at_mut(FRAME_LENGTH);
        frame.copy_from_slice(&begin(VERSION_SEALED, self.from, session, self.head_length));
        tail.copy_from_slice(&self.counted().to_le_bytes());
        bytes
    }

    /// Reads the frame of `datagram`; `None` for whatever cannot be a sealed message of `session`.
    pub fn parse(datagram: &[u8], session: u64) -> Option<Self> {
        let (from, head_length, rest) = parse_begin(datagram, VERSION_SEALED, session)?;
        let (counted, rest) = rest.split_first_chunk::<8>()?;
        let counted = u64::from_le_bytes(*counted);
        let class = *Class::ALL.get((counted >> 56 & CLASS_MASK) as usize)?;
        let rail = PathId((counted >> 59) as u8);
        let number = counted & NUMBER_MASK;
        let fits =
            usize::from(head_length) + TAG_LENGTH <= rest.len() && usize::from(rail.0) < RAILS_MAX;
        fits.then_some(Self { from, head_length, class, rail, number })
    }

    /// Returns what no other message under the same key has.
    ///
    /// Two words, as the cipher loads them: bytes stored one by one and loaded as a word wait until
    /// all earlier stores are done, the copied message among them (40 ns, measured).
    pub(super) fn nonce(&self) -> [u8; NONCE_LENGTH] {
        let counted = self.counted();
        let mut nonce = [0; NONCE_LENGTH];
        let (low, high) = nonce.split_at_mut(8);
        low.copy_from_slice(&(u64::from(self.from.0) | counted << 32).to_le_bytes());
        high.copy_from_slice(&((counted >> 32) as u32).to_le_bytes());
        nonce
    }

    /// Returns the number and, in the highest byte, class and rail.
    fn counted(&self) -> u64 {
        self.number & NUMBER_MASK | (self.class.index() as u64) << 56 | u64::from(self.rail.0) << 59
    }

    /// Returns where the engine's header ends and the body begins.
    pub(super) fn body_start(&self) -> usize {
        SEALED_LENGTH + usize::from(self.head_length)
    }
}

/// Returns the bytes in front of an engine's header of `head_length` bytes.
pub fn write(from: Rank, session: u64, head_length: u8) -> [u8; FRAME_LENGTH] {
    begin(VERSION, from, session, head_length)
}

fn begin(version: u8, from: Rank, session: u64, head_length: u8) -> [u8; FRAME_LENGTH] {
    let first = u32::from_le_bytes([MAGIC[0], MAGIC[1], version, head_length]);
    let words = [u64::from(first) | u64::from(from.0) << 32, session];
    let mut bytes = [0; FRAME_LENGTH];
    bytes
        .as_chunks_mut()
        .0
        .iter_mut()
        .zip(words)
        .for_each(|(chunk, word)| *chunk = word.to_le_bytes());
    bytes
}

/// Reads the header of `datagram`; `None` for whatever is not a message of `session`.
pub fn parse(datagram: &[u8], session: u64) -> Option<UdpFrame> {
    let (from, head_length, rest) = parse_begin(datagram, VERSION, session)?;
    let head_length = usize::from(head_length);
    (head_length <= rest.len()).then_some(UdpFrame { from, body_start: FRAME_LENGTH + head_length })
}

/// Returns the sender, the length of the engine's header, and what follows.
fn parse_begin(datagram: &[u8], version: u8, session: u64) -> Option<(Rank, u8, &[u8])> {
    let (frame, rest) = datagram.split_first_chunk::<FRAME_LENGTH>()?;
    let [m0, m1, v, head_length, r0, r1, r2, r3, number @ ..] = *frame;
    let ours = [m0, m1] == MAGIC
        && v == version
        && u64::from_le_bytes(number) == session
        && usize::from(head_length) <= HEAD_MAX;
    ours.then_some((Rank(u32::from_le_bytes([r0, r1, r2, r3])), head_length, rest))
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// Rank 258 of session 0x1122334455667788 with header "hd" and body "body".
    const LITERAL: [u8; 22] = [
        0xc1, 0xea, 1, 2, 2, 1, 0, 0, 0x88, 0x77, 0x66, 0x55, 0x44, 0x33, 0x22, 0x11, b'h', b'd',
        b'b', b'o', b'd', b'y',
    ];
    const SESSION: u64 = 0x1122_3344_5566_7788;

    #[test]
    fn write__gives_the_bytes_of_the_table() {
        assert_eq!(write(Rank(258), SESSION, 2), LITERAL[..16]);
    }

    #[test]
    fn parse__reads_the_bytes_of_the_table() {
        assert_eq!(parse(&LITERAL, SESSION), Some(UdpFrame { from: Rank(258), body_start: 18 }));
        assert_eq!(
            parse(&LITERAL[..18], SESSION),
            Some(UdpFrame { from: Rank(258), body_start: 18 }),
            "empty body"
        );
    }

    #[test]
    fn parse__refuses_what_is_not_of_this_job() {
        assert_eq!(parse(&LITERAL, SESSION + 1), None, "another session");
        assert_eq!(parse(&LITERAL[..17], SESSION), None, "header cut short");
        assert_eq!(parse(&LITERAL[..15], SESSION), None, "frame cut short");
        for (at, value) in [(0, 0), (1, 0), (2, 2), (3, 129)] {
            let mut bytes = [0; 256];
            bytes[..22].copy_from_slice(&LITERAL);
            bytes[at] = value;
            assert_eq!(parse(&bytes, SESSION), None, "byte {at} as {value}");
        }
    }

    #[test]
    fn lengths__the_longest_message_fills_one_packet() {
        assert_eq!(FRAME_LENGTH + MESSAGE_MAX + 20 + 8, 1_500);
        assert_eq!(24 + SEALED_MESSAGE_MAX + 16 + 20 + 8, 1_500);
    }

    /// Message 0x01020304050607 of class bulk on rail 1 from rank 258, with a header of 2 bytes;
    /// two sealed bytes and a tag of zeros.
    fn literal_sealed() -> Vec<u8> {
        let mut bytes = LITERAL[..16].to_vec();
        bytes[2] = 2;
        bytes.extend([7, 6, 5, 4, 3, 2, 1, 3 + 8]);
        bytes.extend([0; 18]);
        bytes
    }

    const SEALED: SealedFrame = SealedFrame {
        from: Rank(258),
        head_length: 2,
        class: Class::Bulk,
        rail: PathId(1),
        number: 0x01_02_03_04_05_06_07,
    };

    #[test]
    fn sealed__writes_and_reads_the_bytes_of_the_table() {
        assert_eq!(SEALED.write(SESSION), literal_sealed()[..24]);
        assert_eq!(SealedFrame::parse(&literal_sealed(), SESSION), Some(SEALED));
        assert_eq!(SEALED.nonce(), [2, 1, 0, 0, 7, 6, 5, 4, 3, 2, 1, 11]);
        assert_eq!(SEALED.body_start(), 26);
    }

    #[test]
    fn sealed__refuses_what_cannot_be_of_this_job() {
        assert_eq!(SealedFrame::parse(&literal_sealed(), SESSION + 1), None, "another session");
        assert_eq!(
            SealedFrame::parse(&literal_sealed()[..41], SESSION),
            None,
            "no room for head and tag"
        );
        assert_eq!(SealedFrame::parse(&LITERAL, SESSION), None, "not sealed");
        assert_eq!(parse(&literal_sealed(), SESSION), None, "sealed where none may be");
        for (at, value) in [(0, 0), (1, 0), (2, 3), (3, HEAD_MAX as u8 + 1), (23, 5), (23, 32)] {
            let mut bytes = literal_sealed();
            bytes.resize(256, 0);
            bytes[at] = value;
            assert_eq!(SealedFrame::parse(&bytes, SESSION), None, "byte {at} as {value}");
        }
    }

    proptest! {
        #[test]
        fn parse__any_bytes_give_an_answer_inside_them(bytes in prop::collection::vec(any::<u8>(), 0..2_000)) {
            if let Some(frame) = parse(&bytes, 0) {
                prop_assert!(frame.body_start <= bytes.len());
            }
            if let Some(sealed) = SealedFrame::parse(&bytes, 0) {
                prop_assert!(sealed.body_start() + TAG_LENGTH <= bytes.len());
            }
        }

        #[test]
        fn parse__any_bytes_behind_a_good_beginning(
            tail in prop::collection::vec(any::<u8>(), 0..300), head in any::<u8>(), rank in any::<u32>(), session in any::<u64>()
        ) {
            let mut bytes = write(Rank(rank), session, head).to_vec();
            bytes.extend(&tail);
            let fits = usize::from(head) <= HEAD_MAX.min(tail.len());
            let expected = fits.then(|| UdpFrame { from: Rank(rank), body_start: FRAME_LENGTH + usize::from(head) });
            prop_assert_eq!(parse(&bytes, session), expected);
        }
    }
}
