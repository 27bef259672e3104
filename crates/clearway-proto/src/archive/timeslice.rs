//! Timeslices as they lie in an archive or in memory, and the walk through their microslices.
//!
//! # Model
//! The data of a component are the descriptors of all its microslices, and behind them the
//! contents. A content begins at its descriptor's offset minus that of the first one.
//!
//! # Invariants
//! I1. No offset, size or count of a descriptor is followed beyond the data that are there.

use core::ops::Range;

use crate::base::{ByteReader, Head};
use crate::microslice::{Microslice, MicrosliceDescriptor};

/// What is missing or cut in a timeslice or a component of it, by bit, as FLESnet has it since
/// 2026.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct TimesliceFlags(pub u32);

impl TimesliceFlags {
    /// Microslices are missing.
    pub const MISSING_MICROSLICES: Self = Self(1);
    /// The readout cut a content off.
    pub const OVERFLOW_READOUT: Self = Self(2);
    /// A component of a part is missing; for timeslices only.
    pub const MISSING_COMPONENTS: Self = Self(4);
    /// A whole part is missing; for timeslices only.
    pub const MISSING_PARTS: Self = Self(8);
    /// Microslices came twice, and are there once. FLESnet has no such flag.
    pub const REPEATED_MICROSLICES: Self = Self(1 << 16);
    /// Microslices came too late, and are not there. FLESnet has no such flag.
    pub const LATE_MICROSLICES: Self = Self(1 << 17);

    /// Returns whether data that belong here are missing or cut.
    pub const fn is_incomplete(self) -> bool {
        let all = Self::MISSING_MICROSLICES.0
            | Self::OVERFLOW_READOUT.0
            | Self::MISSING_COMPONENTS.0
            | Self::MISSING_PARTS.0
            | Self::LATE_MICROSLICES.0;
        self.0 & all != 0
    }
}

/// Describes a timeslice.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct TimesliceDescriptor {
    /// Its number in the run; zero before version 1.
    pub index: u64,
    /// When it begins, in nanoseconds of experiment time; zero before version 2.
    pub start_ns: u64,
    /// How long it is, in nanoseconds; zero before version 2.
    pub duration_ns: u64,
    /// What is missing; nothing before version 2.
    pub flags: TimesliceFlags,
    /// Its number at its builder; all bits set where nobody counted.
    pub position: u64,
    /// Microslices of each component without those that overlap the next timeslice.
    pub core_microslices: u32,
    /// Components.
    pub components: u32,
}

impl TimesliceDescriptor {
    /// The newest version.
    pub(super) const NEWEST: u32 = 2;
    /// Length in bytes by version.
    pub(super) const BYTES: [usize; 3] = [16, 24, 44];

    /// Creates the descriptor that begins `bytes`; one of zeros when they are too few.
    pub(super) fn from_bytes(bytes: &[u8], version: u32) -> Self {
        Self::read(ByteReader::new(bytes), version).unwrap_or_default()
    }

    fn read(mut rest: ByteReader<'_>, version: u32) -> Option<Self> {
        let mut descriptor = Self::default();
        if version >= 1 {
            descriptor.index = rest.u64()?;
        }
        if version >= 2 {
            descriptor.start_ns = rest.u64()?;
            descriptor.duration_ns = rest.u64()?;
            descriptor.flags = TimesliceFlags(rest.u32()?);
        }
        descriptor.position = rest.u64()?;
        descriptor.core_microslices = rest.u32()?;
        descriptor.components = rest.u32()?;
        Some(descriptor)
    }

    /// Returns the descriptor as bytes.
    pub(super) fn to_bytes(self, version: u32) -> Head<44> {
        let mut bytes = Head::new();
        if version >= 1 {
            bytes.put(&self.index.to_le_bytes());
        }
        if version >= 2 {
            bytes.put(&self.start_ns.to_le_bytes());
            bytes.put(&self.duration_ns.to_le_bytes());
            bytes.put(&self.flags.0.to_le_bytes());
        }
        bytes.put(&self.position.to_le_bytes());
        bytes.put(&self.core_microslices.to_le_bytes());
        bytes.put(&self.components.to_le_bytes());
        bytes
    }
}

/// Describes one component of a timeslice: what one input gave to it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ComponentDescriptor {
    /// The timeslice that it belongs to.
    pub timeslice: u64,
    /// Where its data began in the ring of the builder, in bytes; of no further use.
    pub offset: u64,
    /// Length of its data in bytes.
    pub size: u64,
    /// Its microslices.
    pub microslices: u64,
    /// What is missing; nothing before version 1.
    pub flags: TimesliceFlags,
}

impl ComponentDescriptor {
    /// The newest version.
    pub(super) const NEWEST: u32 = 1;
    /// Length in bytes by version.
    pub(super) const BYTES: [usize; 2] = [32, 36];

    /// Creates the descriptor that begins `bytes`; one of zeros when they are too few.
    pub(super) fn from_bytes(bytes: &[u8], version: u32) -> Self {
        Self::read(ByteReader::new(bytes), version).unwrap_or_default()
    }

    fn read(mut rest: ByteReader<'_>, version: u32) -> Option<Self> {
        let [timeslice, offset, size, microslices] =
            [rest.u64()?, rest.u64()?, rest.u64()?, rest.u64()?];
        let flags = TimesliceFlags(if version >= 1 { rest.u32()? } else { 0 });
        Some(Self { timeslice, offset, size, microslices, flags })
    }

    /// Returns the descriptor as bytes.
    pub(super) fn to_bytes(self, version: u32) -> Head<44> {
        let mut bytes = Head::new();
        for number in [self.timeslice, self.offset, self.size, self.microslices] {
            bytes.put(&number.to_le_bytes());
        }
        if version >= 1 {
            bytes.put(&self.flags.0.to_le_bytes());
        }
        bytes
    }
}

/// One component where it lies.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Component<'a> {
    /// Describes it.
    pub descriptor: ComponentDescriptor,
    /// Descriptors of its microslices, then their contents.
    pub data: &'a [u8],
}

impl<'a> Component<'a> {
    /// Returns its microslices in order; `Err` with the descriptor for one whose content is not
    /// within the data. Ends early where the data hold fewer descriptors than stated.
    pub fn microslices(
        &self,
    ) -> impl Iterator<Item = Result<Microslice<'a>, MicrosliceDescriptor>> + use<'a> {
        let (heads, contents, origin) = self.split();
        heads.iter().map(move |bytes| {
            let descriptor = MicrosliceDescriptor::from_bytes(bytes);
            let begin = usize::try_from(descriptor.offset.wrapping_sub(origin)).ok();
            let content = begin.and_then(|begin| {
                contents.get(begin..begin.checked_add(descriptor.size as usize)?)
            });
            content.map(|content| Microslice { descriptor, content }).ok_or(descriptor)
        })
    }

    /// Returns where the content of `descriptor` begins behind the descriptors, in bytes.
    pub(super) fn begin_of(&self, descriptor: &MicrosliceDescriptor) -> u64 {
        descriptor.offset.wrapping_sub(self.split().2)
    }

    /// Returns the length of what stands behind the descriptors.
    pub(super) fn contents_bytes(&self) -> u64 {
        self.split().1.len() as u64
    }

    /// Returns the descriptors, the contents, and the offset at which these begin.
    fn split(&self) -> (&'a [[u8; MicrosliceDescriptor::BYTES]], &'a [u8], u64) {
        let (heads, _) = self.data.as_chunks::<{ MicrosliceDescriptor::BYTES }>();
        let stated = usize::try_from(self.descriptor.microslices).unwrap_or(usize::MAX);
        // Where even the descriptors are cut short there are no contents.
        let (heads, contents) = match heads.get(..stated) {
            Some(heads) => (heads, &self.data[heads.len() * MicrosliceDescriptor::BYTES..]),
            None => (heads, &[][..]),
        };
        let origin =
            heads.first().map_or(0, |first| MicrosliceDescriptor::from_bytes(first).offset);
        (heads, contents, origin)
    }
}

/// A timeslice where it lies.
#[derive(Clone, Copy, Debug)]
pub struct Timeslice<'a> {
    /// Describes it.
    pub descriptor: TimesliceDescriptor,
    pub(super) bytes: &'a [u8],
    pub(super) parts: &'a [Range<usize>],
    pub(super) descriptors: &'a [ComponentDescriptor],
}

impl<'a> Timeslice<'a> {
    /// Returns its components in the order of the archive.
    pub fn components(&self) -> impl ExactSizeIterator<Item = Component<'a>> + Clone + use<'a> {
        let bytes = self.bytes;
        let parts = self.parts.iter().zip(self.descriptors);
        parts.map(move |(part, descriptor)| Component {
            descriptor: *descriptor,
            data: &bytes[part.clone()],
        })
    }
}
