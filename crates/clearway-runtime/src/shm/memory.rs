//! The regions that this rank registered: each a segment of its own, so that peers can write into it directly.
//!
//! # Invariants
//! I1. A span that leaves its region is refused, never shortened.
//! I2. A region's segment is sealed before a peer hears of it.

use std::os::fd::OwnedFd;

use clearway_proto::base::Bytes;
use clearway_proto::wire::{Missing, RegionId, Span};

use super::layout::PAGE;
use super::mapping::Mapping;
use super::room;

/// Regions one wire can register: those of the UDP wire.
pub(super) const REGIONS_MAX: usize = 64;

/// A region: so many bytes at the beginning of a segment.
#[derive(Debug)]
pub(super) struct Region {
    pub(super) segment: Mapping,
    pub(super) length: usize,
}

impl Region {
    /// Where `length` bytes from `offset` on lie, when they lie inside.
    pub(super) fn offset(&self, offset: u64, length: usize) -> Result<usize, Missing> {
        let start = usize::try_from(offset).map_err(|_| Missing::Memory)?;
        let end = start.checked_add(length).ok_or(Missing::Memory)?;
        if end <= self.length { Ok(start) } else { Err(Missing::Memory) }
    }
}

/// Bytes of the segment that holds `length` bytes: whole pages, and one for none.
pub(super) fn segment_length(length: usize) -> Option<usize> {
    length.max(1).checked_next_multiple_of(PAGE)
}

/// Registered regions.
#[derive(Debug, Default)]
pub(super) struct Memory {
    regions: Vec<Region>,
}

impl Memory {
    /// Adds `length` zeroed bytes; gives the file that peers map, too.
    pub(super) fn register(&mut self, length: Bytes) -> Result<(RegionId, OwnedFd), Missing> {
        let id = u16::try_from(self.regions.len()).map_err(|_| Missing::Memory)?;
        let length = usize::try_from(length.0).map_err(|_| Missing::Memory)?;
        let size = segment_length(length).ok_or(Missing::Memory)?;
        if self.regions.len() >= REGIONS_MAX || !room::is_there(size) {
            return Err(Missing::Memory);
        }
        let (file, segment) = Mapping::create(size).map_err(|_| Missing::Memory)?;
        self.regions.push(Region { segment, length });
        Ok((RegionId(id), file))
    }

    /// A registered region's bytes.
    pub(super) fn region(&self, region: RegionId) -> Option<&[u8]> {
        self.regions.get(usize::from(region.0)).map(|region| region.segment.bytes(region.length))
    }

    /// A registered region's bytes, to be written.
    pub(super) fn region_mut(&mut self, region: RegionId) -> Option<&mut [u8]> {
        self.regions.get_mut(usize::from(region.0)).map(|region| region.segment.bytes_mut(region.length))
    }

    /// Whether all of `span` is registered memory.
    pub(super) fn holds(&self, span: Span) -> bool {
        let region = self.regions.get(usize::from(span.region.0));
        region.is_some_and(|region| region.offset(span.offset, span.length as usize).is_ok())
    }

    /// The bytes of `span`, which may lie in `received`. An empty span names no memory, whatever region it says.
    pub(super) fn bytes<'a>(&'a self, received: &'a [u8], span: Span) -> Result<&'a [u8], Missing> {
        if span.length == 0 {
            return Ok(&[]);
        }
        let region = if span.region == RegionId::RECEIVE { Some(received) } else { self.region(span.region) };
        let region = region.ok_or(Missing::Memory)?;
        let range = span.range_in(region.len()).ok_or(Missing::Memory)?;
        Ok(&region[range])
    }

    /// The bytes of `span` to be overwritten: registered memory only.
    pub(super) fn bytes_mut(&mut self, span: Span) -> Result<&mut [u8], Missing> {
        if span.length == 0 {
            return Ok(&mut []);
        }
        let region = self.region_mut(span.region).ok_or(Missing::Memory)?;
        let range = span.range_in(region.len()).ok_or(Missing::Memory)?;
        Ok(&mut region[range])
    }

    /// Copies `from` (which may lie in `received`) to `into`.
    pub(super) fn copy(&mut self, received: &[u8], from: Span, into: Span) -> Result<(), Missing> {
        self.bytes(received, from)?;
        if from.length != into.length || into.region == RegionId::RECEIVE {
            return Err(Missing::Memory);
        }
        if from.region == into.region {
            let region = self.region_mut(into.region).ok_or(Missing::Memory)?;
            let [source, target] = [from, into].map(|span| span.range_in(region.len()));
            region.copy_within(source.ok_or(Missing::Memory)?, target.ok_or(Missing::Memory)?.start);
            return Ok(());
        }
        self.bytes_mut(into)?;
        let source = self.bytes(received, from)?;
        if let Some(region) = self.regions.get(usize::from(into.region.0)) {
            region.segment.write(region.offset(into.offset, source.len())?, source);
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn span(region: RegionId, offset: u64, length: u32) -> Span {
        Span { region, offset, length }
    }

    fn memory() -> (Memory, RegionId, RegionId) {
        let mut memory = Memory::default();
        let [a, b] = [4, 6].map(|length| memory.register(Bytes(length)).expect("room").0);
        memory.region_mut(a).expect("registered").copy_from_slice(b"abcd");
        (memory, a, b)
    }

    #[test]
    fn copy__within_between_and_from_received() {
        let (mut memory, a, b) = memory();
        assert_eq!(memory.copy(b"", span(a, 0, 2), span(a, 2, 2)), Ok(()));
        assert_eq!(memory.region(a), Some(&b"abab"[..]));
        assert_eq!(memory.copy(b"", span(a, 1, 3), span(b, 3, 3)), Ok(()));
        assert_eq!(memory.copy(b"xyz", span(RegionId::RECEIVE, 1, 2), span(b, 0, 2)), Ok(()));
        assert_eq!(memory.region(b), Some(&b"yz\0bab"[..]));
    }

    #[test]
    fn copy__what_leaves_a_region_changes_nothing() {
        let (mut memory, a, b) = memory();
        for (from, into) in [
            (span(a, 3, 2), span(b, 0, 2)),
            (span(a, 0, 2), span(b, 5, 2)),
            (span(a, 0, 2), span(a, 3, 2)),
            (span(a, 0, 2), span(b, 0, 3)),
            (span(a, 0, 2), span(RegionId::RECEIVE, 0, 2)),
            (span(RegionId::RECEIVE, 0, 2), span(b, 0, 2)),
            (span(RegionId(9), 0, 2), span(b, 0, 2)),
            (span(a, u64::MAX, u32::MAX), span(b, 0, u32::MAX)),
        ] {
            assert_eq!(memory.copy(b"x", from, into), Err(Missing::Memory), "{from:?} {into:?}");
        }
        assert_eq!((memory.region(a), memory.region(b)), (Some(&b"abcd"[..]), Some(&[0; 6][..])));
    }

    #[test]
    fn register__more_regions_or_bytes_than_there_are_is_refused() {
        let mut memory = Memory::default();
        for length in [u64::MAX, u64::MAX - 4_096, 1 << 50] {
            assert_eq!(memory.register(Bytes(length)).err(), Some(Missing::Memory), "{length}");
        }
        for _ in 0..REGIONS_MAX {
            assert!(memory.register(Bytes(0)).is_ok());
        }
        assert_eq!(memory.register(Bytes(1)).err(), Some(Missing::Memory));
    }

    #[test]
    fn offset__what_leaves_the_region_is_refused_although_its_page_goes_on() {
        let (file, segment) = Mapping::create(PAGE).expect("memory");
        drop(file);
        let region = Region { segment, length: 32 };
        assert_eq!([region.offset(32, 0), region.offset(24, 8)], [Ok(32), Ok(24)]);
        for (offset, length) in [(25, 8), (33, 0), (u64::MAX, 1), (1, usize::MAX)] {
            assert_eq!(region.offset(offset, length), Err(Missing::Memory));
        }
    }
}
