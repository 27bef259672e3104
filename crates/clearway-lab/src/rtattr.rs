//! Netlink messages as bytes: a header, a fixed part, and nested attributes, written and read
//! without a copy of the kernel's structs.
//!
//! # Model
//! A message is built in place; lengths are patched when a part closes. Everything is native-endian
//! and padded to four bytes, except where a network protocol's own fields say otherwise.
//!
//! # Source
//! `include/uapi/linux/netlink.h`, `include/uapi/linux/rtnetlink.h`; RFC 3549.
//!
//! # Invariants
//! I1. Reading never indexes past what was received: a short or lying length ends the iteration.

/// Bytes of `struct nlmsghdr`.
pub(crate) const HEADER: usize = 16;
/// The attribute holds attributes (`NLA_F_NESTED`).
const NESTED: u16 = 0x8000;
/// The bits of an attribute's type that name it (`NLA_TYPE_MASK`).
const TYPE_MASK: u16 = 0x3fff;

/// One request under construction.
#[derive(Clone, Debug)]
pub(crate) struct NetlinkMessage {
    bytes: Vec<u8>,
}

impl NetlinkMessage {
    /// Begins a message of `kind` with `flags` and the fixed part `fixed`.
    pub(crate) fn new(kind: u16, flags: u16, fixed: &[u8]) -> Self {
        let mut bytes = vec![0; HEADER];
        bytes[4..6].copy_from_slice(&kind.to_ne_bytes());
        bytes[6..8].copy_from_slice(&flags.to_ne_bytes());
        bytes.extend_from_slice(fixed);
        Self { bytes }
    }

    /// Appends an attribute of raw bytes.
    pub(crate) fn attr(mut self, kind: u16, payload: &[u8]) -> Self {
        self.bytes.extend_from_slice(&((payload.len() + 4) as u16).to_ne_bytes());
        self.bytes.extend_from_slice(&kind.to_ne_bytes());
        self.bytes.extend_from_slice(payload);
        self.bytes.resize(self.bytes.len().next_multiple_of(4), 0);
        self
    }

    /// Appends a 32-bit attribute.
    pub(crate) fn u32(self, kind: u16, value: u32) -> Self {
        self.attr(kind, &value.to_ne_bytes())
    }

    /// Appends an 8-bit attribute.
    pub(crate) fn u8(self, kind: u16, value: u8) -> Self {
        self.attr(kind, &[value])
    }

    /// Appends a text attribute with its terminating zero.
    pub(crate) fn text(self, kind: u16, text: &str) -> Self {
        let mut bytes = text.as_bytes().to_vec();
        bytes.push(0);
        self.attr(kind, &bytes)
    }

    /// Appends an attribute that holds what `fill` appends.
    pub(crate) fn nest(self, kind: u16, fill: impl FnOnce(Self) -> Self) -> Self {
        self.open(kind | NESTED, &[], fill)
    }

    /// Appends an attribute that begins with `fixed` and then holds attributes (`VETH_INFO_PEER`,
    /// nexthops).
    pub(crate) fn open(mut self, kind: u16, fixed: &[u8], fill: impl FnOnce(Self) -> Self) -> Self {
        let start = self.bytes.len();
        self.bytes.extend_from_slice(&[0, 0]);
        self.bytes.extend_from_slice(&kind.to_ne_bytes());
        self.bytes.extend_from_slice(fixed);
        let mut message = fill(self);
        let length = (message.bytes.len() - start) as u16;
        message.bytes[start..start + 2].copy_from_slice(&length.to_ne_bytes());
        message
    }

    /// Appends bytes without an attribute header (a list of `struct rtnexthop`).
    pub(crate) fn raw(mut self, bytes: &[u8]) -> Self {
        self.bytes.extend_from_slice(bytes);
        self
    }

    /// Writes the finished message with its length and `sequence` to the end of `into`.
    pub(crate) fn write(&self, sequence: u32, into: &mut Vec<u8>) {
        let start = into.len();
        into.extend_from_slice(&self.bytes);
        into[start..start + 4].copy_from_slice(&(self.bytes.len() as u32).to_ne_bytes());
        into[start + 8..start + 12].copy_from_slice(&sequence.to_ne_bytes());
    }
}

/// A received message, borrowed from the datagram that held it.
#[derive(Clone, Copy, Debug)]
pub(crate) struct ReceivedMessage<'a> {
    /// `nlmsg_type`.
    pub(crate) kind: u16,
    /// `nlmsg_flags`.
    pub(crate) flags: u16,
    /// `nlmsg_seq`.
    pub(crate) sequence: u32,
    /// What follows the header.
    pub(crate) body: &'a [u8],
}

/// Returns the messages of one datagram.
pub(crate) fn messages(mut datagram: &[u8]) -> impl Iterator<Item = ReceivedMessage<'_>> {
    std::iter::from_fn(move || {
        let length = u32_at(datagram, 0)? as usize;
        let body = datagram.get(HEADER..length)?;
        let message = ReceivedMessage {
            kind: u16_at(datagram, 4)?,
            flags: u16_at(datagram, 6)?,
            sequence: u32_at(datagram, 8)?,
            body,
        };
        datagram = datagram.get(length.next_multiple_of(4)..).unwrap_or_default();
        Some(message)
    })
}

/// Returns the attributes in `bytes`, each with its type (flags removed) and payload.
pub(crate) fn attributes(mut bytes: &[u8]) -> impl Iterator<Item = (u16, &[u8])> {
    std::iter::from_fn(move || {
        let length = u16_at(bytes, 0)? as usize;
        let kind = u16_at(bytes, 2)? & TYPE_MASK;
        let payload = bytes.get(4..length)?;
        bytes = bytes.get(length.next_multiple_of(4)..).unwrap_or_default();
        Some((kind, payload))
    })
}

/// Returns the payload of the first attribute of `kind`.
pub(crate) fn find(bytes: &[u8], kind: u16) -> Option<&[u8]> {
    attributes(bytes).find(|(k, _)| *k == kind).map(|(_, payload)| payload)
}

/// Returns the native-endian number at `at`, if it is there.
pub(crate) fn u16_at(bytes: &[u8], at: usize) -> Option<u16> {
    Some(u16::from_ne_bytes(bytes.get(at..at + 2)?.try_into().ok()?))
}

/// Returns the native-endian number at `at`, if it is there.
pub(crate) fn u32_at(bytes: &[u8], at: usize) -> Option<u32> {
    Some(u32::from_ne_bytes(bytes.get(at..at + 4)?.try_into().ok()?))
}

/// Returns the native-endian number at `at`, if it is there.
pub(crate) fn u64_at(bytes: &[u8], at: usize) -> Option<u64> {
    Some(u64::from_ne_bytes(bytes.get(at..at + 8)?.try_into().ok()?))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn write__lengths_cover_nested_parts_and_padding() {
        let message = NetlinkMessage::new(16, 5, &[9, 9, 9, 9])
            .text(3, "p0")
            .nest(18, |m| m.u32(1, 7).u8(2, 1));
        let mut bytes = Vec::new();
        message.write(42, &mut bytes);
        let mut expected = Vec::new();
        expected.extend_from_slice(&48u32.to_ne_bytes());
        expected.extend_from_slice(&[16u16.to_ne_bytes(), 5u16.to_ne_bytes()].concat());
        expected.extend_from_slice(&42u32.to_ne_bytes());
        expected.extend_from_slice(&[0, 0, 0, 0, 9, 9, 9, 9]);
        expected.extend_from_slice(&[7u16.to_ne_bytes(), 3u16.to_ne_bytes()].concat());
        expected.extend_from_slice(b"p0\0\0");
        expected.extend_from_slice(&[20u16.to_ne_bytes(), 0x8012u16.to_ne_bytes()].concat());
        expected.extend_from_slice(&[8u16.to_ne_bytes(), 1u16.to_ne_bytes()].concat());
        expected.extend_from_slice(&7u32.to_ne_bytes());
        expected.extend_from_slice(&[5u16.to_ne_bytes(), 2u16.to_ne_bytes()].concat());
        expected.extend_from_slice(&[1, 0, 0, 0]);
        assert_eq!(bytes, expected);
        let read: Vec<_> = messages(&bytes).collect();
        assert_eq!(read.len(), 1);
        assert_eq!((read[0].kind, read[0].flags, read[0].sequence), (16, 5, 42));
        let nested = find(&read[0].body[4..], 18).unwrap();
        assert_eq!(find(nested, 1).and_then(|n| u32_at(n, 0)), Some(7));
    }

    #[test]
    fn read__lying_lengths_end_the_iteration() {
        assert_eq!(attributes(&[0, 0, 1, 0, 5]).count(), 0);
        assert_eq!(attributes(&[255, 255, 1, 0]).count(), 0);
        assert_eq!(messages(&[4, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0]).count(), 0);
        assert_eq!(messages(&[200; 40]).count(), 0);
        for length in 0..64 {
            let bytes = vec![u8::try_from(length).unwrap(); length];
            let _ = messages(&bytes).count() + attributes(&bytes).count();
        }
    }
}
