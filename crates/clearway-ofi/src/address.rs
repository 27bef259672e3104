//! What a rank publishes so that others can reach it: its provider, and the address of each of its
//! lanes.
//!
//! # Model
//! `"cwof"`, a version byte, the provider's name (length byte first), protocol and its version (4
//! bytes each, little-endian), the number of lanes, and each lane's address (length in 2 bytes
//! first).
//!
//! # Invariants
//! I1. [`PublishedAddress::parse`] answers for any bytes and allocates no more than they hold.

use clearway_proto::base::ByteReader;

use crate::device::NAME_MAX;

const MAGIC: &[u8] = b"cwof\x02";
/// Lanes that an address can have: one for each class, with room to grow.
const LANES_MAX: usize = 8;

/// One rank's address.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct PublishedAddress {
    /// libfabric's name of the provider.
    pub(crate) provider: String,
    /// What it speaks: two providers of one name in two releases need not understand each other.
    pub(crate) protocol: u32,
    /// The version of that.
    pub(crate) protocol_version: u32,
    /// The address of each lane.
    pub(crate) lanes: Vec<Vec<u8>>,
}

impl PublishedAddress {
    /// Returns the bytes to publish.
    pub(crate) fn bytes(&self) -> Vec<u8> {
        let mut bytes = MAGIC.to_vec();
        let name = &self.provider.as_bytes()[..self.provider.len().min(usize::from(u8::MAX))];
        bytes.push(name.len() as u8);
        bytes.extend_from_slice(name);
        bytes.extend_from_slice(&self.protocol.to_le_bytes());
        bytes.extend_from_slice(&self.protocol_version.to_le_bytes());
        bytes.push(self.lanes.len() as u8);
        for lane in &self.lanes {
            bytes.extend_from_slice(&(lane.len() as u16).to_le_bytes());
            bytes.extend_from_slice(lane);
        }
        bytes
    }

    /// Reads what another rank published.
    ///
    /// # Errors
    /// What is wrong with it.
    pub(crate) fn parse(bytes: &[u8]) -> Result<Self, &'static str> {
        const CUT: &str = "it is cut short";
        let mut rest =
            ByteReader::new(bytes.strip_prefix(MAGIC).ok_or("it begins with other bytes")?);
        let name = rest.u8().and_then(|length| rest.run(length.into())).ok_or(CUT)?;
        let provider =
            std::str::from_utf8(name).map_err(|_| "its provider has no name")?.to_owned();
        let (protocol, protocol_version) = (rest.u32().ok_or(CUT)?, rest.u32().ok_or(CUT)?);
        let count = usize::from(rest.u8().ok_or(CUT)?);
        if count == 0 || count > LANES_MAX {
            return Err("it has an impossible number of lanes");
        }
        let mut lanes = Vec::new();
        for _ in 0..count {
            let length = usize::from(rest.u16().ok_or(CUT)?);
            if length > NAME_MAX {
                return Err("one of its lanes has too long an address");
            }
            lanes.push(rest.run(length).ok_or(CUT)?.to_vec());
        }
        if rest.is_empty() {
            Ok(Self { provider, protocol, protocol_version, lanes })
        } else {
            Err("it is too long")
        }
    }

    /// Returns whether two ends understand each other.
    pub(crate) fn fits(&self, other: &Self) -> bool {
        (&self.provider, self.protocol, self.protocol_version, self.lanes.len())
            == (&other.provider, other.protocol, other.protocol_version, other.lanes.len())
    }

    /// Returns the provider and what it speaks, for a person.
    pub(crate) fn speaks(&self) -> String {
        format!("{} (protocol {}.{})", self.provider, self.protocol, self.protocol_version)
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn published() -> PublishedAddress {
        PublishedAddress {
            provider: "tcp".into(),
            protocol: 24,
            protocol_version: 1,
            lanes: vec![vec![1, 2], vec![3]],
        }
    }

    #[test]
    fn bytes__are_as_described_and_come_back() {
        let literal = b"cwof\x02\x03tcp\x18\0\0\0\x01\0\0\0\x02\x02\0\x01\x02\x01\0\x03";
        assert_eq!(published().bytes(), literal);
        assert_eq!(PublishedAddress::parse(literal), Ok(published()));
    }

    #[test]
    fn parse__what_is_cut_or_longer_is_refused() {
        let bytes = published().bytes();
        for length in 0..bytes.len() {
            assert!(PublishedAddress::parse(&bytes[..length]).is_err(), "{length} bytes");
        }
        assert_eq!(PublishedAddress::parse(&[bytes, vec![0]].concat()), Err("it is too long"));
    }

    #[test]
    fn fits__another_provider_protocol_or_number_of_lanes_does_not() {
        let ours = published();
        assert!(ours.fits(&PublishedAddress { lanes: vec![vec![9], vec![]], ..ours.clone() }));
        assert!(!ours.fits(&PublishedAddress { provider: "net".into(), ..ours.clone() }));
        assert!(!ours.fits(&PublishedAddress { protocol_version: 2, ..ours.clone() }));
        assert!(!ours.fits(&PublishedAddress { lanes: vec![vec![9]], ..ours.clone() }));
    }

    proptest! {
        #[test]
        fn parse__any_bytes_are_answered(tail in proptest::collection::vec(any::<u8>(), 0..80)) {
            let _ = PublishedAddress::parse(&[MAGIC, &tail].concat());
        }
    }
}
