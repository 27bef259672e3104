//! The memory that operations on this wire can name, and every check before a byte of it is touched.
//!
//! # Invariants
//! I1. A span that leaves its region is refused, never shortened.

use clearway_proto::base::Bytes;
use clearway_proto::wire::{Missing, RegionId, Span};

/// Regions one wire can register; a region's number fits a bit of a u64.
pub(super) const REGIONS_MAX: usize = 64;

/// Registered regions.
#[derive(Debug, Default)]
pub(super) struct Memory {
    regions: Vec<Vec<u8>>,
}

impl Memory {
    /// Adds `length` zeroed bytes.
    pub(super) fn register(&mut self, length: Bytes) -> Result<RegionId, Missing> {
        let id = u16::try_from(self.regions.len()).map_err(|_| Missing::Memory)?;
        let length = usize::try_from(length.0).map_err(|_| Missing::Memory)?;
        if self.regions.len() >= REGIONS_MAX || isize::try_from(length).is_err() {
            return Err(Missing::Memory);
        }
        self.regions.push(vec![0; length]);
        Ok(RegionId(id))
    }

    /// A registered region's bytes.
    pub(super) fn region(&self, region: RegionId) -> Option<&[u8]> {
        self.regions.get(usize::from(region.0)).map(Vec::as_slice)
    }

    /// A registered region's bytes, to be written.
    pub(super) fn region_mut(&mut self, region: RegionId) -> Option<&mut [u8]> {
        self.regions.get_mut(usize::from(region.0)).map(Vec::as_mut_slice)
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

    /// Copies `from` (which may lie in `received`) to `into`.
    pub(super) fn copy(&mut self, received: &[u8], from: Span, into: Span) -> Result<(), Missing> {
        let length = self.bytes(received, from)?.len();
        if from.length != into.length || into.region == RegionId::RECEIVE {
            return Err(Missing::Memory);
        }
        if length == 0 {
            return Ok(());
        }
        let target = self.region_mut(into.region).ok_or(Missing::Memory)?;
        let target_range = into.range_in(target.len()).ok_or(Missing::Memory)?;
        let source_range = from.offset as usize..from.offset as usize + length;
        if from.region == RegionId::RECEIVE {
            target[target_range].copy_from_slice(&received[source_range]);
            return Ok(());
        }
        let (from, into) = (usize::from(from.region.0), usize::from(into.region.0));
        if from == into {
            self.regions[from].copy_within(source_range, target_range.start);
        } else if let Ok([source, target]) = self.regions.get_disjoint_mut([from, into]) {
            target[target_range].copy_from_slice(&source[source_range]);
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
        let [a, b] = [4, 6].map(|length| memory.register(Bytes(length)).expect("room"));
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
            (span(a, 0, 2), span(b, 0, 3)),
            (span(a, 0, 2), span(RegionId::RECEIVE, 0, 2)),
            (span(RegionId::RECEIVE, 0, 2), span(b, 0, 2)),
            (span(RegionId(9), 0, 2), span(b, 0, 2)),
            (span(a, u64::MAX, u32::MAX), span(b, 0, u32::MAX)),
        ] {
            assert_eq!(memory.copy(b"x", from, into), Err(Missing::Memory), "{from:?} {into:?}");
        }
        assert_eq!(memory.region(b), Some(&[0; 6][..]));
    }

    #[test]
    fn register__more_regions_than_there_are_numbers_is_refused() {
        let mut memory = Memory::default();
        for _ in 0..REGIONS_MAX {
            assert!(memory.register(Bytes(1)).is_ok());
        }
        assert_eq!(memory.register(Bytes(1)), Err(Missing::Memory));
        assert_eq!(Memory::default().register(Bytes(u64::MAX)), Err(Missing::Memory));
    }
}
