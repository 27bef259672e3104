//! The memory that operations on a wire can name: registered regions and the bytes that arrived last, with every check before a byte of them is
//! touched.
//!
//! # Invariants
//! I1. A span that leaves its region is refused, never shortened.
//!
//! # Not here
//! What a region lies in: a vector for datagrams, a segment that peers map for shared memory.

use clearway_proto::base::Bytes;
use clearway_proto::wire::{Missing, RegionId, Span, bytes_of};

/// Regions one wire can register; a region's number fits a bit of a u64.
pub(crate) const REGIONS_MAX: usize = 64;

/// Registered regions.
#[derive(Debug)]
pub(crate) struct Memory<R> {
    regions: Vec<R>,
}

impl<R> Default for Memory<R> {
    fn default() -> Self {
        Self { regions: Vec::new() }
    }
}

impl<R: AsRef<[u8]> + AsMut<[u8]>> Memory<R> {
    /// Adds a region of `length` zeroed bytes, which `make` gives with something for the caller.
    pub(crate) fn register<T>(
        &mut self,
        length: Bytes,
        make: impl FnOnce(usize) -> Option<(R, T)>,
    ) -> Result<(RegionId, T), Missing> {
        let id = RegionId(self.regions.len() as u16);
        let length = usize::try_from(length.0).map_err(|_| Missing::Memory)?;
        if self.regions.len() >= REGIONS_MAX {
            return Err(Missing::Memory);
        }
        let (region, extra) = make(length).ok_or(Missing::Memory)?;
        self.regions.push(region);
        Ok((id, extra))
    }

    /// The bytes of a region: `received` for [`RegionId::RECEIVE`], else those registered.
    pub(crate) fn region<'a>(&'a self, received: &'a [u8], region: RegionId) -> Option<&'a [u8]> {
        if region == RegionId::RECEIVE { Some(received) } else { self.registered(region) }
    }

    fn registered(&self, region: RegionId) -> Option<&[u8]> {
        self.regions.get(usize::from(region.0)).map(AsRef::as_ref)
    }

    /// A registered region's bytes, to be written.
    pub(crate) fn region_mut(&mut self, region: RegionId) -> Option<&mut [u8]> {
        self.regions.get_mut(usize::from(region.0)).map(AsMut::as_mut)
    }

    /// Whether all of `span` is registered memory.
    pub(crate) fn holds(&self, span: Span) -> bool {
        self.registered(span.region).is_some_and(|region| span.range_in(region.len()).is_some())
    }

    /// The bytes of `span`, which may lie in `received`. An empty span names no memory, whatever region it says.
    pub(crate) fn bytes<'a>(&'a self, received: &'a [u8], span: Span) -> Result<&'a [u8], Missing> {
        bytes_of(self.region(received, span.region), span)
    }

    /// The bytes of `span` to be overwritten: registered memory only.
    pub(crate) fn bytes_mut(&mut self, span: Span) -> Result<&mut [u8], Missing> {
        if span.length == 0 {
            return Ok(&mut []);
        }
        part(self.region_mut(span.region).ok_or(Missing::Memory)?, span)
    }

    /// Copies `from` (which may lie in `received`) to `into`.
    pub(crate) fn copy(&mut self, received: &[u8], from: Span, into: Span) -> Result<(), Missing> {
        self.bytes(received, from)?;
        if from.length != into.length || into.region == RegionId::RECEIVE {
            return Err(Missing::Memory);
        }
        if from.length == 0 {
            return Ok(());
        }
        if from.region == RegionId::RECEIVE {
            self.bytes_mut(into)?.copy_from_slice(bytes_of(Some(received), from)?);
        } else if from.region == into.region {
            let region = self.region_mut(into.region).ok_or(Missing::Memory)?;
            let [source, target] = [from, into].map(|span| span.range_in(region.len()).ok_or(Missing::Memory));
            region.copy_within(source?, target?.start);
        } else {
            let both = [from, into].map(|span| usize::from(span.region.0));
            let [source, target] = self.regions.get_disjoint_mut(both).map_err(|_| Missing::Memory)?;
            part(target.as_mut(), into)?.copy_from_slice(bytes_of(Some((*source).as_ref()), from)?);
        }
        Ok(())
    }
}

fn part(region: &mut [u8], span: Span) -> Result<&mut [u8], Missing> {
    let range = span.range_in(region.len()).ok_or(Missing::Memory)?;
    Ok(&mut region[range])
}

#[cfg(test)]
mod tests {
    use super::*;

    fn span(region: RegionId, offset: u64, length: u32) -> Span {
        Span { region, offset, length }
    }

    fn zeroed(length: usize) -> Option<(Vec<u8>, ())> {
        Some((vec![0; length], ()))
    }

    fn memory() -> (Memory<Vec<u8>>, RegionId, RegionId) {
        let mut memory = Memory::default();
        let [a, b] = [4, 6].map(|length| memory.register(Bytes(length), zeroed).expect("room").0);
        memory.region_mut(a).expect("registered").copy_from_slice(b"abcd");
        (memory, a, b)
    }

    #[test]
    fn copy__within_between_and_from_received() {
        let (mut memory, a, b) = memory();
        assert_eq!(memory.copy(b"", span(a, 0, 2), span(a, 2, 2)), Ok(()));
        assert_eq!(memory.region(b"", a), Some(&b"abab"[..]));
        assert_eq!(memory.copy(b"", span(a, 1, 3), span(b, 3, 3)), Ok(()));
        assert_eq!(memory.copy(b"xyz", span(RegionId::RECEIVE, 1, 2), span(b, 0, 2)), Ok(()));
        assert_eq!(memory.region(b"", b), Some(&b"yz\0bab"[..]));
        assert_eq!(memory.copy(b"", span(RegionId(9), 7, 0), Span::EMPTY), Ok(()), "no bytes, no memory");
    }

    #[test]
    fn copy__what_leaves_a_region_changes_nothing() {
        let (mut memory, a, b) = memory();
        for (from, into) in [
            (span(a, 3, 2), span(b, 0, 2)),
            (span(a, 0, 2), span(b, 5, 2)),
            (span(a, 0, 2), span(a, 3, 2)),
            (span(a, 0, 2), span(b, 0, 3)),
            (span(a, 0, 2), span(RegionId(9), 0, 2)),
            (span(a, 0, 2), span(RegionId::RECEIVE, 0, 2)),
            (span(a, 0, 0), span(RegionId::RECEIVE, 0, 0)),
            (span(RegionId::RECEIVE, 0, 2), span(b, 0, 2)),
            (span(RegionId::RECEIVE, 0, 1), span(b, 6, 1)),
            (span(RegionId(9), 0, 2), span(b, 0, 2)),
            (span(a, u64::MAX, u32::MAX), span(b, 0, u32::MAX)),
        ] {
            assert_eq!(memory.copy(b"x", from, into), Err(Missing::Memory), "{from:?} {into:?}");
        }
        assert_eq!((memory.region(b"", a), memory.region(b"", b)), (Some(&b"abcd"[..]), Some(&[0; 6][..])));
    }

    #[test]
    fn holds__registered_memory_only() {
        let (memory, a, _) = memory();
        let held = [span(a, 0, 4), span(a, 4, 0), span(a, 1, 4), span(RegionId::RECEIVE, 0, 0)];
        assert_eq!(held.map(|span| memory.holds(span)), [true, true, false, false]);
    }

    #[test]
    fn register__more_regions_than_there_are_numbers_is_refused() {
        let mut memory = Memory::default();
        for number in 0..REGIONS_MAX {
            assert_eq!(memory.register(Bytes(1), zeroed), Ok((RegionId(number as u16), ())));
        }
        assert_eq!(memory.register(Bytes(1), zeroed), Err(Missing::Memory));
        assert_eq!(Memory::<Vec<u8>>::default().register(Bytes(1), |_| None::<(_, ())>), Err(Missing::Memory));
    }
}
