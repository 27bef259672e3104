//! The UDP wire's own header: whose message this is, of which job, and where the engine's header ends.
//!
//! # Model
//! One datagram is one message. All numbers are little-endian.
//!
//! | offset | bytes | field |
//! |---|---|---|
//! | 0 | 2 | magic `c1 ea` |
//! | 2 | 1 | version, 1 |
//! | 3 | 1 | length of the engine's header, 0 to 80 |
//! | 4 | 4 | rank of the sender |
//! | 8 | 8 | session number of the job |
//! | 16 | | the engine's header, then the body up to the datagram's end |
//!
//! The session number keeps jobs apart that meet on one port by mistake. It is **not authentication**: who can read
//! one packet can forge the next.
//!
//! # Invariants
//! I1. [`parse`] answers for any bytes, never panics and never reads outside them.
//! I2. The longest message fits one packet of an Ethernet of MTU 1500.
//!
//! # Not here
//! Whether the sender's address is that of its rank (`receive`); the engine's header (engines).

use clearway_proto::base::Rank;

/// The longest engine's header: leaves bodies long enough that 4 KiB travel in three packets.
pub const HEAD_MAX: usize = 80;
/// Bytes in front of the engine's header.
pub const FRAME_LENGTH: usize = 16;
/// The longest datagram: Ethernet's 1500 bytes less 20 of IPv4 (RFC 791) and 8 of UDP (RFC 768).
const DATAGRAM_MAX: usize = 1_472;
/// The longest body behind a header of [`HEAD_MAX`].
pub const BODY_MAX: usize = DATAGRAM_MAX - FRAME_LENGTH - HEAD_MAX;

/// Chosen at random.
const MAGIC: [u8; 2] = [0xc1, 0xea];
const VERSION: u8 = 1;

/// What a well-formed datagram of the right session says.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Frame {
    /// Who says to have sent it.
    pub from: Rank,
    /// Where the engine's header ends and the body begins.
    pub body_start: usize,
}

/// The bytes in front of an engine's header of `head_length` bytes.
pub fn write(from: Rank, session: u64, head_length: u8) -> [u8; FRAME_LENGTH] {
    let [r0, r1, r2, r3] = from.0.to_le_bytes();
    let [s0, s1, s2, s3, s4, s5, s6, s7] = session.to_le_bytes();
    [MAGIC[0], MAGIC[1], VERSION, head_length, r0, r1, r2, r3, s0, s1, s2, s3, s4, s5, s6, s7]
}

/// Reads the header of `datagram`; `None` for whatever is not a message of `session`.
pub fn parse(datagram: &[u8], session: u64) -> Option<Frame> {
    let (frame, rest) = datagram.split_first_chunk::<FRAME_LENGTH>()?;
    let [m0, m1, version, head_length, r0, r1, r2, r3, number @ ..] = *frame;
    let head_length = usize::from(head_length);
    let ours = [m0, m1] == MAGIC
        && version == VERSION
        && u64::from_le_bytes(number) == session
        && head_length <= HEAD_MAX
        && head_length <= rest.len();
    ours.then(|| Frame { from: Rank(u32::from_le_bytes([r0, r1, r2, r3])), body_start: FRAME_LENGTH + head_length })
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// Rank 258 of session 0x1122334455667788 with header "hd" and body "body".
    const LITERAL: [u8; 22] = [
        0xc1, 0xea, 1, 2, 2, 1, 0, 0, 0x88, 0x77, 0x66, 0x55, 0x44, 0x33, 0x22, 0x11, b'h', b'd', b'b', b'o', b'd',
        b'y',
    ];
    const SESSION: u64 = 0x1122_3344_5566_7788;

    #[test]
    fn write__gives_the_bytes_of_the_table() {
        assert_eq!(write(Rank(258), SESSION, 2), LITERAL[..16]);
    }

    #[test]
    fn parse__reads_the_bytes_of_the_table() {
        assert_eq!(parse(&LITERAL, SESSION), Some(Frame { from: Rank(258), body_start: 18 }));
        assert_eq!(parse(&LITERAL[..18], SESSION), Some(Frame { from: Rank(258), body_start: 18 }), "empty body");
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
        assert_eq!(FRAME_LENGTH + HEAD_MAX + BODY_MAX + 20 + 8, 1_500);
    }

    proptest! {
        #[test]
        fn parse__any_bytes_give_an_answer_inside_them(bytes in prop::collection::vec(any::<u8>(), 0..2_000)) {
            if let Some(frame) = parse(&bytes, 0) {
                prop_assert!(frame.body_start <= bytes.len());
            }
        }

        #[test]
        fn parse__any_bytes_behind_a_good_beginning(
            tail in prop::collection::vec(any::<u8>(), 0..300), head in any::<u8>(), rank in any::<u32>(), session in any::<u64>()
        ) {
            let mut bytes = write(Rank(rank), session, head).to_vec();
            bytes.extend(&tail);
            let fits = usize::from(head) <= HEAD_MAX.min(tail.len());
            let expected = fits.then(|| Frame { from: Rank(rank), body_start: FRAME_LENGTH + usize::from(head) });
            prop_assert_eq!(parse(&bytes, session), expected);
        }
    }
}
