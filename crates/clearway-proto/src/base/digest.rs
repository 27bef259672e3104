//! CRC-32C: the checksum of microslices, and of messages from memory to memory. XXH3: the digest of
//! bytes that may end in a CRC of their own.

use core::fmt;
use core::hash::Hasher as _;

use crc_fast::{CrcAlgorithm, Digest, crc32_iscsi};
use twox_hash::xxhash3_64::Hasher;

/// Computes the CRC-32C (Castagnoli) of `bytes`, which catalogues list under the name of iSCSI. Takes
/// about 0.05 ns a byte where the processor multiplies without carry, else 0.5 ns.
pub fn crc32c(bytes: &[u8]) -> u32 {
    crc32_iscsi(bytes)
}

/// A CRC-32C that is computed piece by piece.
pub struct Crc32c(Digest);

impl Crc32c {
    /// Creates the digest of no bytes.
    pub fn new() -> Self {
        Self(Digest::new(CrcAlgorithm::Crc32Iscsi))
    }

    /// Adds bytes behind those before.
    pub fn update(&mut self, bytes: &[u8]) {
        self.0.update(bytes);
    }

    /// Returns the digest of all bytes so far.
    pub fn value(self) -> u32 {
        // A CRC of 32 bits comes in the lower half.
        self.0.finalize() as u32
    }
}

impl Default for Crc32c {
    fn default() -> Self {
        Self::new()
    }
}

/// Computes the XXH3 of `bytes`, of 64 bits. Unlike a CRC it is not linear: all bytes that end in a
/// CRC of their own have the same CRC, but different XXH3.
pub fn xxh3(bytes: &[u8]) -> u64 {
    Hasher::oneshot(bytes)
}

/// An XXH3 that is computed piece by piece.
pub struct Xxh3(Hasher);

impl Xxh3 {
    /// Creates the digest of no bytes.
    pub fn new() -> Self {
        Self(Hasher::new())
    }

    /// Adds bytes behind those before.
    pub fn update(&mut self, bytes: &[u8]) {
        self.0.write(bytes);
    }

    /// Returns the digest of all bytes so far.
    pub fn value(&self) -> u64 {
        self.0.finish()
    }
}

impl Default for Xxh3 {
    fn default() -> Self {
        Self::new()
    }
}

impl fmt::Debug for Xxh3 {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Xxh3").field(&self.value()).finish()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The reference implementation of xxHash 0.8, `XXH3_64bits`.
    #[test]
    fn xxh3__is_that_of_the_standard() {
        assert_eq!(xxh3(&[]), 0x2d06_8005_38d3_94c2);
        let bytes: alloc::vec::Vec<u8> = (0..20_000_u32).map(|i| (i % 251) as u8).collect();
        let mut pieces = Xxh3::new();
        bytes.chunks(777).for_each(|piece| pieces.update(piece));
        assert_eq!(pieces.value(), xxh3(&bytes));
    }

    #[test]
    fn xxh3__tells_bytes_apart_that_end_in_their_own_crc() {
        let with_crc = |first: u8| {
            let mut bytes = alloc::vec![first; 100];
            let check = crc32c(&bytes);
            bytes.extend(check.to_le_bytes());
            bytes
        };
        let (one, other) = (with_crc(1), with_crc(2));
        assert_eq!(crc32c(&one), crc32c(&other));
        assert_ne!(xxh3(&one), xxh3(&other));
    }

    /// RFC 3720, appendix B.4.
    #[test]
    fn crc32c__is_that_of_the_standard() {
        assert_eq!(crc32c(&[0; 32]), 0x8a91_36aa);
        assert_eq!(crc32c(&[0xff; 32]), 0x62a8_ab43);
        let counted: [u8; 32] = core::array::from_fn(|i| i as u8);
        assert_eq!(crc32c(&counted), 0x46dd_794e);
        assert_eq!(crc32c(&[]), 0);
    }
}
