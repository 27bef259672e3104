//! What stands before the items: the signature, and who wrote the archive when.

use core::ops::RangeInclusive;

use alloc::vec::Vec;

use super::ArchiveFault;

/// The signature up to the version of the library, with the length before it.
const SIGNATURE: &[u8; 30] = b"\x16\0\0\0\0\0\0\0serialization::archive";

/// Widths of int, long, float and double, and the number 1 in the order of the machine.
const MACHINE: [u8; 8] = [4, 8, 4, 8, 1, 0, 0, 0];

/// Length of signature, version and machine.
pub(super) const SIGNATURE_BYTES: usize = SIGNATURE.len() + 2 + MACHINE.len();

/// Versions of Boost's archives with this layout: 10 is that of Boost 1.54 and of FLESnet's first
/// files, 20 the newest there is.
const LIBRARIES: RangeInclusive<u16> = 10..=20;

/// The newest version of the header's class.
pub(super) const HEADER_NEWEST: u32 = 2;

/// Host and user are at most as long as no system allows: names of hosts have 255 bytes.
pub(super) const NAME_BYTES_MAX: u64 = 1024;

/// What the items are.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ArchiveKind {
    /// Timeslices: `.tsa`.
    Timeslices,
    /// Microslices: `.msa`.
    Microslices,
}

impl ArchiveKind {
    pub(super) const fn from_number(number: i32) -> Result<Self, ArchiveFault> {
        match number {
            0 => Ok(Self::Timeslices),
            1 => Ok(Self::Microslices),
            _ => Err(ArchiveFault::Kind(number)),
        }
    }

    const fn number(self) -> i32 {
        match self {
            Self::Timeslices => 0,
            Self::Microslices => 1,
        }
    }
}

/// How the items are stored.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Compression {
    /// As they are.
    None,
    /// In one zstd stream.
    Zstd,
}

impl Compression {
    pub(super) const fn from_number(number: i32) -> Result<Self, ArchiveFault> {
        match number {
            0 => Ok(Self::None),
            1 => Ok(Self::Zstd),
            _ => Err(ArchiveFault::Compression(number)),
        }
    }

    const fn number(self) -> i32 {
        match self {
            Self::None => 0,
            Self::Zstd => 1,
        }
    }
}

/// Versions of everything that has one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Versions {
    /// Boost's archives: 10 to 20.
    pub library: u16,
    /// The header: 0 knows timeslices only, 1 the kind, 2 the compression.
    pub header: u32,
    /// Descriptors of timeslices: 0 has no index, 2 has time, duration and flags.
    pub timeslice: u32,
    /// Descriptors of components: 1 has flags.
    pub component: u32,
}

impl Versions {
    /// What FLESnet writes since 2026, under the oldest version of the library, which every newer
    /// one reads.
    pub const NEWEST: Self =
        Self { library: 10, header: HEADER_NEWEST, timeslice: 2, component: 1 };
    /// What FLESnet 1.0 read and wrote until then.
    pub const FLESNET_1: Self = Self { timeslice: 1, component: 0, ..Self::NEWEST };
}

/// What an archive says of itself.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Header {
    /// Of library and header; those of items are known when the first of them has been read, and
    /// the newest until then.
    pub versions: Versions,
    /// What the items are.
    pub kind: ArchiveKind,
    /// How they are stored.
    pub compression: Compression,
    /// When the archive was made: seconds since 1970.
    pub created_s: i64,
    /// The host that it was made on, in whatever encoding that host has.
    pub host: Vec<u8>,
    /// The user who made it.
    pub user: Vec<u8>,
}

impl Header {
    /// Returns the signature and header as bytes.
    pub(super) fn to_bytes(&self) -> Vec<u8> {
        let mut bytes =
            Vec::with_capacity(SIGNATURE_BYTES + 37 + self.host.len() + self.user.len());
        bytes.extend_from_slice(SIGNATURE);
        bytes.extend_from_slice(&self.versions.library.to_le_bytes());
        bytes.extend_from_slice(&MACHINE);
        bytes.push(0);
        bytes.extend_from_slice(&self.versions.header.to_le_bytes());
        if self.versions.header >= 1 {
            bytes.extend_from_slice(&self.kind.number().to_le_bytes());
        }
        if self.versions.header >= 2 {
            bytes.extend_from_slice(&self.compression.number().to_le_bytes());
        }
        bytes.extend_from_slice(&self.created_s.to_le_bytes());
        for name in [&self.host, &self.user] {
            bytes.extend_from_slice(&(name.len() as u64).to_le_bytes());
            bytes.extend_from_slice(name);
        }
        bytes
    }
}

/// Returns the version of the library by the first [`SIGNATURE_BYTES`] bytes.
pub(super) fn library_of(bytes: &[u8]) -> Result<u16, ArchiveFault> {
    let (signature, rest) = bytes.split_first_chunk().ok_or(ArchiveFault::Signature)?;
    let (library, machine) = rest.split_first_chunk().ok_or(ArchiveFault::Signature)?;
    let machine = *machine.first_chunk().ok_or(ArchiveFault::Signature)?;
    let library = u16::from_le_bytes(*library);
    match () {
        () if signature != SIGNATURE => Err(ArchiveFault::Signature),
        () if !LIBRARIES.contains(&library) => Err(ArchiveFault::Library(library)),
        () if machine != MACHINE => Err(ArchiveFault::Machine(machine)),
        () => Ok(library),
    }
}
