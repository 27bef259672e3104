//! A region that ranks registered: a segment of its own, so that peers can write into it directly.
//!
//! # Invariants
//! I1. A region's segment is sealed before a peer hears of it.
//!
//! # Not here
//! Which regions this rank has: `crate::memory`.

use std::os::fd::OwnedFd;

use clearway_proto::wire::RefusalReason;

use super::layout::PAGE;
use super::mapping::SegmentMapping;
use super::room;

/// A region: this many bytes at the beginning of a segment.
#[derive(Debug)]
pub(super) struct ShmRegion {
    pub(super) segment: SegmentMapping,
    pub(super) length: usize,
}

impl ShmRegion {
    /// Makes a region of `length` zeroed bytes, and the file that peers map.
    pub(super) fn create(length: usize) -> Option<(Self, OwnedFd)> {
        let size = segment_length(length).filter(|size| room::is_there(*size))?;
        let (file, segment) = SegmentMapping::create(size).ok()?;
        Some((Self { segment, length }, file))
    }

    /// Returns where `length` bytes from `offset` on lie, when they lie inside.
    pub(super) fn offset(&self, offset: u64, length: usize) -> Result<usize, RefusalReason> {
        let start = usize::try_from(offset).map_err(|_| RefusalReason::Memory)?;
        let end = start.checked_add(length).ok_or(RefusalReason::Memory)?;
        if end <= self.length { Ok(start) } else { Err(RefusalReason::Memory) }
    }
}

impl AsRef<[u8]> for ShmRegion {
    fn as_ref(&self) -> &[u8] {
        self.segment.bytes(self.length)
    }
}

impl AsMut<[u8]> for ShmRegion {
    fn as_mut(&mut self) -> &mut [u8] {
        self.segment.bytes_mut(self.length)
    }
}

/// Returns how many bytes the segment has that holds `length` bytes: whole pages, and one for none.
pub(super) fn segment_length(length: usize) -> Option<usize> {
    length.max(1).checked_next_multiple_of(PAGE)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn create__more_bytes_than_there_are_is_refused() {
        for length in [usize::MAX, usize::MAX - 4_096, 1 << 50] {
            assert!(ShmRegion::create(length).is_none(), "{length}");
        }
        assert!(ShmRegion::create(0).is_some_and(|(region, _)| region.as_ref().is_empty()));
    }

    #[test]
    fn offset__what_leaves_the_region_is_refused_although_its_page_goes_on() {
        let (region, _) = ShmRegion::create(32).expect("memory");
        assert_eq!([region.offset(32, 0), region.offset(24, 8)], [Ok(32), Ok(24)]);
        for (offset, length) in [(25, 8), (33, 0), (u64::MAX, 1), (1, usize::MAX)] {
            assert_eq!(region.offset(offset, length), Err(RefusalReason::Memory));
        }
    }
}
