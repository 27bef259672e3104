//! The memory that operations on a wire can name: registered regions, adopted memory and the bytes
//! that arrived last, with every check before a byte of them is touched.
//!
//! # Model
//! A registered region lies in an `R` of the wire's choice: pages of this process, or a segment
//! that peers map. Adopted memory is reached by the methods of [`ForeignMemory`] alone. Numbers of
//! regions count up in the order in which they were added, whichever kind they are.
//!
//! # Invariants
//! I1. A span that leaves its region is refused, never shortened.
//! I2. A registered region begins at a multiple of 4096 bytes.

use alloc::sync::Arc;
use alloc::vec;
use alloc::vec::Vec;

use super::foreign_memory::PIECE;
use super::{
    AtomicKind, ForeignMemory, MemoryAccess, RefusalReason, RegionId, RemoteSpan, Span, bytes_of,
};
use crate::base::Bytes;

/// Regions one wire can have: adaptors keep sets of regions as bits of a `u64`.
pub const REGIONS_MAX: usize = 64;

/// Zeroed bytes of this process that begin at a multiple of 4096.
#[derive(Debug, Default)]
pub struct Pages {
    bytes: Vec<u8>,
    start: usize,
    length: usize,
}

impl Pages {
    /// Where they begin: the largest logical block of common devices (NVMe's 4Kn format), and the
    /// page of x86-64.
    pub const ALIGNMENT: usize = 4096;

    /// Allocates `length` bytes; `None` when no process has that many.
    pub fn new(length: usize) -> Option<Self> {
        let size = length
            .checked_add(Self::ALIGNMENT - 1)
            .filter(|size| isize::try_from(*size).is_ok())?;
        let bytes = vec![0; size];
        let start = bytes.as_ptr().align_offset(Self::ALIGNMENT);
        // An allocator that cannot tell gives no offset that fits.
        (start < Self::ALIGNMENT).then_some(Self { bytes, start, length })
    }

    /// Makes this at least `length` bytes long; new ones are zero. The bytes may move. Cost: that
    /// of the new bytes, now and then of all.
    ///
    /// # Panics
    /// When no process has that many bytes.
    pub fn grow(&mut self, length: usize) {
        if self.start + length > self.bytes.len() {
            let room = length.max(2 * self.length);
            let mut larger = Self::new(room).expect("as many bytes as a process can have");
            larger.length = self.length;
            larger.as_mut().copy_from_slice(self.as_ref());
            *self = larger;
        }
        if length > self.length {
            self.bytes[self.start + self.length..self.start + length].fill(0);
            self.length = length;
        }
    }

    /// Makes this at most `length` bytes long.
    pub fn truncate(&mut self, length: usize) {
        self.length = self.length.min(length);
    }
}

impl Clone for Pages {
    fn clone(&self) -> Self {
        let mut other = Self::default();
        other.grow(self.length);
        other.as_mut().copy_from_slice(self.as_ref());
        other
    }
}

impl AsRef<[u8]> for Pages {
    fn as_ref(&self) -> &[u8] {
        &self.bytes[self.start..self.start + self.length]
    }
}

impl AsMut<[u8]> for Pages {
    fn as_mut(&mut self) -> &mut [u8] {
        &mut self.bytes[self.start..self.start + self.length]
    }
}

/// One region.
#[derive(Debug)]
enum Region<R> {
    Own(R),
    Adopted(Arc<dyn ForeignMemory>),
}

/// All regions of one end of a wire.
#[derive(Debug)]
pub struct Regions<R> {
    regions: Vec<Region<R>>,
    process: Option<Arc<dyn ForeignMemory>>,
}

impl<R> Default for Regions<R> {
    fn default() -> Self {
        Self { regions: Vec::new(), process: None }
    }
}

impl Regions<Pages> {
    /// Adds a region of `length` zeroed bytes of this process.
    ///
    /// # Errors
    /// [`RefusalReason::Memory`] when there are [`REGIONS_MAX`] regions already, or no process has
    /// that many bytes.
    pub fn register_pages(&mut self, length: Bytes) -> Result<RegionId, RefusalReason> {
        self.register(length, |length| Pages::new(length).map(|pages| (pages, ())))
            .map(|(region, ())| region)
    }

    /// Gives the memory of a registered region back to the system; its bytes are zero then.
    pub fn clear(&mut self, region: RegionId) {
        if let Some(Region::Own(pages)) = self.regions.get_mut(usize::from(region.0)) {
            let length = pages.as_ref().len();
            // First the old memory: a limit may hold just one.
            *pages = Pages::default();
            if let Some(fresh) = Pages::new(length) {
                *pages = fresh;
            }
        }
    }
}

impl<R: AsRef<[u8]> + AsMut<[u8]>> Regions<R> {
    /// Adds a region of `length` zeroed bytes, which `make` gives with something for the caller.
    ///
    /// # Errors
    /// [`RefusalReason::Memory`] without room for one more, or when `make` gives none.
    pub fn register<T>(
        &mut self,
        length: Bytes,
        make: impl FnOnce(usize) -> Option<(R, T)>,
    ) -> Result<(RegionId, T), RefusalReason> {
        let length = usize::try_from(length.0).map_err(|_| RefusalReason::Memory)?;
        let id = self.next()?;
        let (region, extra) = make(length).ok_or(RefusalReason::Memory)?;
        self.regions.push(Region::Own(region));
        Ok((id, extra))
    }

    /// Adds memory that is not this wire's.
    ///
    /// # Errors
    /// [`RefusalReason::Memory`] without room for one more.
    pub fn adopt(&mut self, memory: Arc<dyn ForeignMemory>) -> Result<RegionId, RefusalReason> {
        match memory.reach() {
            MemoryAccess::Local if self.process.is_some() => Err(RefusalReason::Memory),
            MemoryAccess::Local => {
                self.process = Some(memory);
                Ok(RegionId::PROCESS)
            }
            MemoryAccess::Peers => {
                let id = self.next()?;
                self.regions.push(Region::Adopted(memory));
                Ok(id)
            }
        }
    }

    /// Returns the number of the region that is added next.
    fn next(&self) -> Result<RegionId, RefusalReason> {
        if self.regions.len() < REGIONS_MAX {
            Ok(RegionId(self.regions.len() as u16))
        } else {
            Err(RefusalReason::Memory)
        }
    }

    /// Returns the bytes of a region: `received` for [`RegionId::RECEIVE`], else those registered;
    /// none of adopted memory.
    pub fn region<'a>(&'a self, received: &'a [u8], region: RegionId) -> Option<&'a [u8]> {
        if region == RegionId::RECEIVE {
            return Some(received);
        }
        match self.regions.get(usize::from(region.0))? {
            Region::Own(own) => Some(own.as_ref()),
            Region::Adopted(_) => None,
        }
    }

    /// Returns a registered region's bytes, to be written.
    pub fn region_mut(&mut self, region: RegionId) -> Option<&mut [u8]> {
        match self.regions.get_mut(usize::from(region.0))? {
            Region::Own(own) => Some(own.as_mut()),
            Region::Adopted(_) => None,
        }
    }

    /// Returns the adopted memory with this number.
    pub fn adopted(&self, region: RegionId) -> Option<&Arc<dyn ForeignMemory>> {
        if region == RegionId::PROCESS {
            return self.process.as_ref();
        }
        match self.regions.get(usize::from(region.0))? {
            Region::Own(_) => None,
            Region::Adopted(memory) => Some(memory),
        }
    }

    /// Returns whether peers may name all of `span`.
    pub fn holds(&self, span: Span) -> bool {
        let length = match self.regions.get(usize::from(span.region.0)) {
            None => return false,
            Some(Region::Own(own)) => own.as_ref().len() as u64,
            Some(Region::Adopted(memory)) => memory.length(),
        };
        span.offset.checked_add(u64::from(span.length)).is_some_and(|end| end <= length)
    }

    /// Returns whether all of `span` is memory that this rank may read.
    ///
    /// # Errors
    /// [`RefusalReason::Memory`].
    pub fn check(&self, received: &[u8], span: Span) -> Result<(), RefusalReason> {
        match self.adopted(span.region).filter(|_| span.length > 0) {
            Some(memory) => {
                let end = span.offset.checked_add(u64::from(span.length));
                end.filter(|end| *end <= memory.length()).map(drop).ok_or(RefusalReason::Memory)
            }
            None => self.bytes(received, span).map(drop),
        }
    }

    /// Returns the bytes of `span`, which may lie in `received`, where a reference can be given. An
    /// empty span names no memory, whatever region it says.
    ///
    /// # Errors
    /// [`RefusalReason::Memory`], also for adopted memory.
    pub fn bytes<'a>(&'a self, received: &'a [u8], span: Span) -> Result<&'a [u8], RefusalReason> {
        bytes_of(self.region(received, span.region), span)
    }

    /// Returns the bytes of `span`, which may lie in `received`; those of adopted memory are copied
    /// into `scratch`.
    ///
    /// # Errors
    /// [`RefusalReason::Memory`].
    pub fn bytes_or_copy<'a>(
        &'a self,
        received: &'a [u8],
        span: Span,
        scratch: &'a mut Vec<u8>,
    ) -> Result<&'a [u8], RefusalReason> {
        let Some(memory) = self.adopted(span.region).filter(|_| span.length > 0) else {
            return self.bytes(received, span);
        };
        self.check(received, span)?;
        scratch.resize(span.length as usize, 0);
        memory.read(span.offset, scratch)?;
        Ok(scratch)
    }

    /// Returns the bytes of `span` to be overwritten: registered memory only.
    ///
    /// # Errors
    /// [`RefusalReason::Memory`].
    pub fn bytes_mut(&mut self, span: Span) -> Result<&mut [u8], RefusalReason> {
        if span.length == 0 {
            return Ok(&mut []);
        }
        part(self.region_mut(span.region).ok_or(RefusalReason::Memory)?, span)
    }

    /// Copies the bytes of `from`, which may lie in `received`, out.
    ///
    /// # Errors
    /// [`RefusalReason::Memory`], also when `into` has another length.
    pub fn copy_out(
        &self,
        received: &[u8],
        from: Span,
        into: &mut [u8],
    ) -> Result<(), RefusalReason> {
        if into.len() != from.length as usize {
            return Err(RefusalReason::Memory);
        }
        match self.adopted(from.region).filter(|_| from.length > 0) {
            Some(memory) => memory.read(from.offset, into),
            None => self.bytes(received, from).map(|bytes| into.copy_from_slice(bytes)),
        }
    }

    /// Copies `from` in.
    ///
    /// # Errors
    /// [`RefusalReason::Memory`], also when `into` has another length.
    pub fn copy_in(&mut self, into: Span, from: &[u8]) -> Result<(), RefusalReason> {
        if from.len() != into.length as usize || into.region == RegionId::RECEIVE {
            return Err(RefusalReason::Memory);
        }
        match self.adopted(into.region).filter(|_| into.length > 0) {
            Some(memory) => memory.write(into.offset, from),
            None => self.bytes_mut(into).map(|bytes| bytes.copy_from_slice(from)),
        }
    }

    /// Copies `from` (which may lie in `received`) to `into`.
    ///
    /// # Errors
    /// [`RefusalReason::Memory`]; nothing is changed then, unless adopted memory begins to refuse
    /// within the copy.
    pub fn copy(&mut self, received: &[u8], from: Span, into: Span) -> Result<(), RefusalReason> {
        self.check(received, from)?;
        if from.length != into.length || into.region == RegionId::RECEIVE {
            return Err(RefusalReason::Memory);
        }
        if from.length == 0 {
            return Ok(());
        }
        self.check(received, into)?;
        match (self.adopted(from.region).cloned(), self.adopted(into.region).cloned()) {
            (Some(source), Some(target)) => in_pieces(&*source, from, &*target, into),
            (Some(source), None) => source.read(from.offset, self.bytes_mut(into)?),
            (None, Some(target)) => target.write(into.offset, self.bytes(received, from)?),
            (None, None) if from.region == RegionId::RECEIVE => {
                self.bytes_mut(into)?.copy_from_slice(bytes_of(Some(received), from)?);
                Ok(())
            }
            (None, None) => self.copy_own(from, into),
        }
    }

    /// Copies between registered regions.
    fn copy_own(&mut self, from: Span, into: Span) -> Result<(), RefusalReason> {
        if from.region == into.region {
            let region = self.region_mut(into.region).ok_or(RefusalReason::Memory)?;
            let [source, target] =
                [from, into].map(|span| span.range_in(region.len()).ok_or(RefusalReason::Memory));
            region.copy_within(source?, target?.start);
            return Ok(());
        }
        let both = [from, into].map(|span| usize::from(span.region.0));
        let Ok([Region::Own(source), Region::Own(target)]) = self.regions.get_disjoint_mut(both)
        else {
            return Err(RefusalReason::Memory);
        };
        part(target.as_mut(), into)?.copy_from_slice(bytes_of(Some((*source).as_ref()), from)?);
        Ok(())
    }

    /// Returns the digest of the bytes of `of`, which may lie in `received`: by `digest` where a
    /// reference can be given.
    ///
    /// # Errors
    /// [`RefusalReason::Memory`].
    pub fn digest(
        &self,
        received: &[u8],
        of: Span,
        digest: fn(&[u8]) -> u32,
    ) -> Result<u32, RefusalReason> {
        match self.adopted(of.region).filter(|_| of.length > 0) {
            Some(memory) => memory.digest(of.offset, of.length),
            None => self.bytes(received, of).map(digest),
        }
    }

    /// Changes a word for a peer; returns its old value. Nobody else changes registered memory
    /// while this wire is borrowed.
    ///
    /// # Errors
    /// [`RefusalReason::Memory`], also for an offset that is no multiple of 8.
    pub fn change(&mut self, at: RemoteSpan, kind: AtomicKind) -> Result<u64, RefusalReason> {
        if !at.offset.is_multiple_of(8) {
            return Err(RefusalReason::Memory);
        }
        if let Some(memory) = self.adopted(at.region).filter(|_| at.region != RegionId::PROCESS) {
            return memory.change(at.offset, kind);
        }
        let word = self.bytes_mut(Span { region: at.region, offset: at.offset, length: 8 })?;
        let old = word.try_into().map_or(0, u64::from_ne_bytes);
        word.copy_from_slice(&kind.next(old).to_ne_bytes());
        Ok(old)
    }
}

fn part(region: &mut [u8], span: Span) -> Result<&mut [u8], RefusalReason> {
    let range = span.range_in(region.len()).ok_or(RefusalReason::Memory)?;
    Ok(&mut region[range])
}

/// Copies from one adopted memory to another.
fn in_pieces(
    source: &dyn ForeignMemory,
    from: Span,
    target: &dyn ForeignMemory,
    into: Span,
) -> Result<(), RefusalReason> {
    let mut piece = [0; PIECE];
    let mut done = 0;
    while done < from.length {
        let part = &mut piece[..(from.length - done).min(PIECE as u32) as usize];
        source.read(from.offset + u64::from(done), part)?;
        target.write(into.offset + u64::from(done), part)?;
        done += part.len() as u32;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn span(region: RegionId, offset: u64, length: u32) -> Span {
        Span { region, offset, length }
    }

    fn zeroed(length: usize) -> Option<(Pages, ())> {
        Some((Pages::new(length)?, ()))
    }

    fn memory() -> (Regions<Pages>, RegionId, RegionId) {
        let mut memory = Regions::default();
        let [a, b] = [4, 6].map(|length| memory.register(Bytes(length), zeroed).expect("room").0);
        memory.region_mut(a).expect("registered").copy_from_slice(b"abcd");
        (memory, a, b)
    }

    #[test]
    fn pages__what_grows_keeps_its_bytes_and_its_place_on_a_page() {
        let mut pages = Pages::new(3).expect("memory");
        pages.as_mut().copy_from_slice(b"abc");
        for length in [5, 4_096, 4_097, 20_000] {
            pages.grow(length);
            assert_eq!((pages.as_ref().len(), &pages.as_ref()[..5]), (length, &b"abc\0\0"[..]));
            assert_eq!(pages.clone().as_ref().as_ptr().addr() % Pages::ALIGNMENT, 0);
            assert_eq!(pages.as_ref().as_ptr().addr() % Pages::ALIGNMENT, 0);
        }
        pages.truncate(2);
        pages.grow(4);
        assert_eq!(pages.as_ref(), b"ab\0\0", "what was cut off is not there again");
    }

    #[test]
    fn copy__within_between_and_from_received() {
        let (mut memory, a, b) = memory();
        assert_eq!(memory.copy(b"", span(a, 0, 2), span(a, 2, 2)), Ok(()));
        assert_eq!(memory.region(b"", a), Some(&b"abab"[..]));
        assert_eq!(memory.copy(b"", span(a, 1, 3), span(b, 3, 3)), Ok(()));
        assert_eq!(memory.copy(b"xyz", span(RegionId::RECEIVE, 1, 2), span(b, 0, 2)), Ok(()));
        assert_eq!(memory.region(b"", b), Some(&b"yz\0bab"[..]));
        assert_eq!(
            memory.copy(b"", span(RegionId(9), 7, 0), Span::EMPTY),
            Ok(()),
            "no bytes, no memory"
        );
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
            assert_eq!(
                memory.copy(b"x", from, into),
                Err(RefusalReason::Memory),
                "{from:?} {into:?}"
            );
        }
        assert_eq!(
            (memory.region(b"", a), memory.region(b"", b)),
            (Some(&b"abcd"[..]), Some(&[0; 6][..]))
        );
    }

    #[test]
    fn holds__registered_memory_only() {
        let (memory, a, _) = memory();
        let held = [span(a, 0, 4), span(a, 4, 0), span(a, 1, 4), span(RegionId::RECEIVE, 0, 0)];
        assert_eq!(held.map(|span| memory.holds(span)), [true, true, false, false]);
    }

    #[test]
    fn clear__bytes_are_zero_then_and_other_regions_stay() {
        let mut regions = Regions::default();
        let one = regions.register_pages(Bytes(10_000)).expect("memory");
        let other = regions.register_pages(Bytes(10)).expect("memory");
        for region in [one, other] {
            regions.region_mut(region).expect("its own").fill(7);
        }
        regions.clear(one);
        regions.clear(RegionId(9));
        assert_eq!(regions.region(&[], one), Some(&[0; 10_000][..]));
        assert_eq!(regions.region(&[], other), Some(&[7; 10][..]));
    }

    #[test]
    fn register__more_regions_than_there_are_numbers_is_refused() {
        let mut memory = Regions::default();
        for number in 0..REGIONS_MAX {
            assert_eq!(memory.register(Bytes(1), zeroed), Ok((RegionId(number as u16), ())));
        }
        assert_eq!(memory.register(Bytes(1), zeroed), Err(RefusalReason::Memory));
        assert_eq!(
            Regions::<Pages>::default().register(Bytes(1), |_| None::<(_, ())>),
            Err(RefusalReason::Memory)
        );
    }
}
