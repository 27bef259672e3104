//! Reads the control messages that the kernel delivers with a received datagram.
//!
//! # Source
//! `cmsg(3)`: length (size_t, header included), level (int), type (int), then the value; each
//! message begins at a multiple of the machine word.
//!
//! # Invariants
//! I1. Any bytes give an answer; unknown messages are passed over.

/// The control messages of a datagram.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct ControlMessages {
    /// The TOS byte on arrival.
    pub(super) tos: u8,
    /// The kernel's receive stamp on the wall clock, in ns.
    pub(super) wall_ns: Option<u64>,
    /// Present when the buffer holds several datagrams of this length (the last may be shorter).
    pub(super) segment: Option<usize>,
}

const WORD: usize = size_of::<usize>();
/// `struct cmsghdr`.
const HEADER: usize = WORD + 8;

/// Reads all control messages in `bytes`.
pub(super) fn read_messages(mut bytes: &[u8]) -> ControlMessages {
    let mut messages = ControlMessages::default();
    while let Some((length, level, kind)) = header(bytes) {
        let Some(value) = bytes.get(HEADER..length) else { break };
        match (level, kind) {
            (libc::IPPROTO_IP, libc::IP_TOS) => messages.tos = value.first().copied().unwrap_or(0),
            (libc::SOL_SOCKET, libc::SCM_TIMESTAMPNS) => messages.wall_ns = wall_ns(value),
            (libc::SOL_UDP, libc::UDP_GRO) => messages.segment = segment(value),
            _ => {}
        }
        let Some(rest) = bytes.get(length.next_multiple_of(WORD)..) else { break };
        bytes = rest;
    }
    messages
}

fn header(bytes: &[u8]) -> Option<(usize, i32, i32)> {
    let (length, rest) = bytes.split_first_chunk::<WORD>()?;
    let (level, rest) = rest.split_first_chunk::<4>()?;
    let (kind, _) = rest.split_first_chunk::<4>()?;
    let length = usize::from_ne_bytes(*length);
    (length <= bytes.len()).then(|| (length, i32::from_ne_bytes(*level), i32::from_ne_bytes(*kind)))
}

/// Reads a `struct timespec`.
fn wall_ns(value: &[u8]) -> Option<u64> {
    let (seconds, rest) = value.split_first_chunk::<WORD>()?;
    let (ns, _) = rest.split_first_chunk::<WORD>()?;
    (usize::from_ne_bytes(*seconds) as u64)
        .checked_mul(1_000_000_000)?
        .checked_add(usize::from_ne_bytes(*ns) as u64)
}

/// Returns the length of a segment, which the kernel writes as an int; a length of zero would mean
/// no progress and is no length.
fn segment(value: &[u8]) -> Option<usize> {
    let (length, _) = value.split_first_chunk::<4>()?;
    usize::try_from(i32::from_ne_bytes(*length)).ok().filter(|length| *length > 0)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn message(level: i32, kind: i32, value: &[u8]) -> Vec<u8> {
        let mut bytes = (HEADER + value.len()).to_ne_bytes().to_vec();
        bytes.extend(level.to_ne_bytes());
        bytes.extend(kind.to_ne_bytes());
        bytes.extend(value);
        bytes.resize(bytes.len().next_multiple_of(WORD), 0);
        bytes
    }

    #[test]
    fn read_messages__finds_each_message_among_unknown_ones() {
        let stamp: Vec<u8> = [7usize, 9].iter().flat_map(|word| word.to_ne_bytes()).collect();
        let bytes = [
            message(99, 99, b"unknown"),
            message(libc::IPPROTO_IP, libc::IP_TOS, &[0xb8]),
            message(libc::SOL_SOCKET, libc::SCM_TIMESTAMPNS, &stamp),
            message(libc::SOL_UDP, libc::UDP_GRO, &1_400i32.to_ne_bytes()),
        ]
        .concat();
        assert_eq!(
            read_messages(&bytes),
            ControlMessages { tos: 0xb8, wall_ns: Some(7_000_000_009), segment: Some(1_400) }
        );
    }

    #[test]
    fn read_messages__a_segment_of_no_length_is_none() {
        assert_eq!(
            read_messages(&message(libc::SOL_UDP, libc::UDP_GRO, &0i32.to_ne_bytes())).segment,
            None
        );
        assert_eq!(
            read_messages(&message(libc::SOL_UDP, libc::UDP_GRO, &(-5i32).to_ne_bytes())).segment,
            None
        );
    }

    proptest! {
        #[test]
        fn read_messages__any_bytes_give_an_answer(bytes in prop::collection::vec(any::<u8>(), 0..200), length in 0usize..64) {
            read_messages(&bytes);
            let mut chained = length.to_ne_bytes().to_vec();
            chained.extend(&bytes);
            read_messages(&chained);
        }
    }
}
