//! CRC-32C: the checksum of microslices, and of messages from memory to memory.

use crc::{CRC_32_ISCSI, Crc, Digest, Table};

/// CRC-32C (Castagnoli), which catalogues list under the name of iSCSI; 16 bytes a step.
static CRC: Crc<u32, Table<16>> = Crc::<u32, Table<16>>::new(&CRC_32_ISCSI);

/// Computes the CRC-32C of `bytes`, by tables: about a nanosecond for two bytes. Wires with a
/// processor of their own do it faster.
pub fn crc32c(bytes: &[u8]) -> u32 {
    CRC.checksum(bytes)
}

/// A CRC-32C that is computed piece by piece.
pub struct Crc32c(Digest<'static, u32, Table<16>>);

impl Crc32c {
    /// Creates the digest of no bytes.
    pub fn new() -> Self {
        Self(CRC.digest())
    }

    /// Adds bytes behind those before.
    pub fn update(&mut self, bytes: &[u8]) {
        self.0.update(bytes);
    }

    /// Returns the digest of all bytes so far.
    pub fn value(self) -> u32 {
        self.0.finalize()
    }
}

impl Default for Crc32c {
    fn default() -> Self {
        Self::new()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

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
