//! The 32 bytes that describe a microslice.
//!
//! # Model
//! All numbers little-endian, no padding:
//!
//! | offset | bytes | field |
//! |---|---|---|
//! | 0 | 1 | header format, 0xDD |
//! | 1 | 1 | header version, 1 |
//! | 2 | 2 | equipment |
//! | 4 | 2 | flags |
//! | 6 | 1 | subsystem |
//! | 7 | 1 | subsystem's format |
//! | 8 | 8 | index: start time, ns |
//! | 16 | 4 | CRC-32C of the content |
//! | 20 | 4 | size of the content |
//! | 24 | 8 | offset of the content |
//!
//! # Invariants
//! I1. Any 32 bytes are a descriptor and are written back as they were; whether they make sense is
//!     asked afterwards.

/// What a microslice's flags can say, by bit.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct MicrosliceFlags(pub u16);

impl MicrosliceFlags {
    /// The CRC field holds the CRC-32C of the content.
    pub const CRC_VALID: Self = Self(1);
    /// The readout cut the content off for want of room.
    pub const OVERFLOW_READOUT: Self = Self(2);
    /// The detector's own logic cut the content off.
    pub const OVERFLOW_USER: Self = Self(4);
    /// The detector's own logic calls the content wrong.
    pub const DATA_ERROR: Self = Self(8);

    /// Returns whether all bits of `other` are set.
    pub const fn has(self, other: Self) -> bool {
        self.0 & other.0 == other.0
    }
}

/// Describes one microslice.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MicrosliceDescriptor {
    /// Format of this header: [`Self::FORMAT`].
    pub format: u8,
    /// Version of this header: [`Self::VERSION`].
    pub version: u8,
    /// The piece of equipment that the data come from.
    pub equipment: u16,
    /// Status and errors.
    pub flags: MicrosliceFlags,
    /// The subsystem, as CBM numbers them: 0xF0 is FLESnet itself.
    pub subsystem: u8,
    /// How the content is written, in the subsystem's own numbering.
    pub subsystem_format: u8,
    /// Start of the stretch of experiment time in nanoseconds; older generators count microslices
    /// instead.
    pub index: u64,
    /// CRC-32C of the content where the flags say so.
    pub crc: u32,
    /// Length of the content in bytes.
    pub size: u32,
    /// Where the content begins in its stream, in bytes; differences count, not the origin.
    pub offset: u64,
}

impl MicrosliceDescriptor {
    /// Length of a descriptor in bytes.
    pub const BYTES: usize = 32;
    /// The only header format there is.
    pub const FORMAT: u8 = 0xdd;
    /// The only header version there is.
    pub const VERSION: u8 = 1;

    /// Reads a descriptor; any bytes will do.
    pub fn from_bytes(bytes: &[u8; Self::BYTES]) -> Self {
        let number = |at: usize, length: usize| {
            bytes[at..at + length]
                .iter()
                .rev()
                .fold(0u64, |number, byte| number << 8 | u64::from(*byte))
        };
        Self {
            format: bytes[0],
            version: bytes[1],
            equipment: number(2, 2) as u16,
            flags: MicrosliceFlags(number(4, 2) as u16),
            subsystem: bytes[6],
            subsystem_format: bytes[7],
            index: number(8, 8),
            crc: number(16, 4) as u32,
            size: number(20, 4) as u32,
            offset: number(24, 8),
        }
    }

    /// Returns the descriptor as bytes.
    pub fn to_bytes(&self) -> [u8; Self::BYTES] {
        let mut bytes = [0; Self::BYTES];
        bytes[..2].copy_from_slice(&[self.format, self.version]);
        bytes[2..4].copy_from_slice(&self.equipment.to_le_bytes());
        bytes[4..6].copy_from_slice(&self.flags.0.to_le_bytes());
        bytes[6..8].copy_from_slice(&[self.subsystem, self.subsystem_format]);
        bytes[8..16].copy_from_slice(&self.index.to_le_bytes());
        bytes[16..20].copy_from_slice(&self.crc.to_le_bytes());
        bytes[20..24].copy_from_slice(&self.size.to_le_bytes());
        bytes[24..].copy_from_slice(&self.offset.to_le_bytes());
        bytes
    }
}

/// One microslice where it lies.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Microslice<'a> {
    /// Describes it.
    pub descriptor: MicrosliceDescriptor,
    /// Its data.
    pub content: &'a [u8],
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn from_bytes__every_field_has_its_place() {
        let bytes = [
            0xdd, 0x01, 0x02, 0xe0, 0x0b, 0x00, 0xf0,
            0x81, // format, version, equipment, flags, subsystem, its format
            8, 7, 6, 5, 4, 3, 2, 1, // index
            0x78, 0x56, 0x34, 0x12, 0x90, 0x26, 0, 0, // CRC, size
            0, 1, 0, 0, 0, 0, 0, 0x80, // offset
        ];
        let descriptor = MicrosliceDescriptor {
            format: MicrosliceDescriptor::FORMAT,
            version: MicrosliceDescriptor::VERSION,
            equipment: 0xe002,
            flags: MicrosliceFlags(11),
            subsystem: 0xf0,
            subsystem_format: 0x81,
            index: 0x0102_0304_0506_0708,
            crc: 0x1234_5678,
            size: 9872,
            offset: 0x8000_0000_0000_0100,
        };
        assert_eq!(MicrosliceDescriptor::from_bytes(&bytes), descriptor);
        assert_eq!(descriptor.to_bytes(), bytes);
        assert!(
            descriptor.flags.has(MicrosliceFlags::CRC_VALID)
                && descriptor.flags.has(MicrosliceFlags::DATA_ERROR)
        );
        assert!(!descriptor.flags.has(MicrosliceFlags::OVERFLOW_USER));
    }

    proptest! {
        #[test]
        fn to_bytes__any_descriptor_is_written_as_it_was_read(bytes in any::<[u8; 32]>()) {
            prop_assert_eq!(MicrosliceDescriptor::from_bytes(&bytes).to_bytes(), bytes);
        }
    }
}
