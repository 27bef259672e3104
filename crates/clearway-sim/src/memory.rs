//! What memory holds: real bytes, or for runs too large for them which bytes of whom would lie
//! there.
//!
//! # Model
//! Both kinds answer the same questions: bytes are taken as a [`MessageBody`], carried, and placed.
//! Real memory copies them; phantom memory copies what is known of them (`phantom`), and keeps only
//! the words that atomics changed.
//!
//! One run can have both kinds. Real bytes that are placed into phantom memory stay real there
//! (`mixed`), so that records in front of phantom contents can be read again. Phantoms that are
//! placed into real memory are zeros there: a copy ends as it does where all is real, and bytes
//! that nobody has never look like bytes of somebody.
//!
//! # Not here
//! Whether a span may be touched: the wire's ends check before they ask, and a disk asks only for
//! what its files hold.

mod mixed;
mod phantom;

pub(crate) use phantom::CopyHistory;
pub use phantom::{ByteOrigin, Extent};

use core::ops::Range;
use std::collections::BTreeMap;

use clearway_proto::base::crc32c;
use clearway_proto::wire::AtomicKind;
use clearway_proto::wire::regions::Pages;

use mixed::{BodyRun, RealRuns};
use phantom::PhantomMemory;

/// Bytes on their way from one memory to another.
#[derive(Clone, Debug, Default)]
pub(crate) enum MessageBody {
    /// None.
    #[default]
    Empty,
    /// Real ones.
    Bytes(Box<[u8]>),
    /// Phantoms of one origin: nearly all are.
    One(Extent),
    /// Phantoms of several.
    Many(Box<[Extent]>),
    /// Real ones and phantoms.
    Mixed(Box<[BodyRun]>),
}

impl MessageBody {
    /// Returns how many bytes.
    pub(crate) fn length(&self) -> u64 {
        match self {
            Self::Empty => 0,
            Self::Bytes(bytes) => bytes.len() as u64,
            Self::One(extent) => extent.length,
            Self::Many(extents) => extents.iter().map(|extent| extent.length).sum(),
            Self::Mixed(pieces) => pieces.iter().map(BodyRun::length).sum(),
        }
    }

    fn extents(&self) -> &[Extent] {
        match self {
            Self::One(extent) => core::slice::from_ref(extent),
            Self::Many(extents) => extents,
            Self::Empty | Self::Bytes(_) | Self::Mixed(_) => &[],
        }
    }

    /// Returns whether some of them are real.
    pub(crate) const fn has_bytes(&self) -> bool {
        matches!(self, Self::Bytes(_) | Self::Mixed(_))
    }

    /// Returns the bytes; zeros for phantoms.
    pub(crate) fn to_bytes(&self) -> Vec<u8> {
        let mut bytes = vec![0; self.length() as usize];
        place_real(&mut bytes, self);
        bytes
    }

    /// Computes the CRC-32C of real bytes, or of what is known of phantoms.
    pub(crate) fn digest(&self) -> u32 {
        match self {
            Self::Empty => crc32c(&[]),
            Self::Bytes(bytes) => crc32c(bytes),
            Self::One(_) | Self::Many(_) => {
                let words = self.extents().iter().flat_map(|extent| extent.words());
                crc32c(&words.flat_map(u64::to_le_bytes).collect::<Vec<u8>>())
            }
            Self::Mixed(pieces) => {
                let known = |piece: &BodyRun| match piece {
                    BodyRun::Bytes(bytes) => bytes.to_vec(),
                    BodyRun::Extent(extent) => {
                        extent.words().into_iter().flat_map(u64::to_le_bytes).collect()
                    }
                };
                crc32c(&pieces.iter().flat_map(known).collect::<Vec<u8>>())
            }
        }
    }

    /// Returns the first `length` bytes, or all.
    pub(crate) fn prefix(&self, length: u64) -> Self {
        self.part(0..length.min(self.length()))
    }

    /// Returns the bytes in `range`, which lies within this body.
    pub(crate) fn part(&self, range: Range<u64>) -> Self {
        match self {
            _ if range.is_empty() => Self::Empty,
            Self::Bytes(bytes) => {
                let range = range.start as usize..range.end as usize;
                Self::Bytes(bytes.get(range).unwrap_or_default().into())
            }
            Self::One(_) | Self::Many(_) => PhantomMemory::from_extents(self.extents()).take(range),
            Self::Mixed(pieces) => mixed::memory_of(pieces).take(range),
            Self::Empty => Self::Empty,
        }
    }

    /// Damages the memory, as a fault: flips bit `bit` of byte `place`.
    pub(crate) fn damage(&mut self, place: u64, bit: u32) {
        match self {
            Self::Bytes(bytes) => {
                if let Some(byte) =
                    usize::try_from(place).ok().and_then(|place| bytes.get_mut(place))
                {
                    *byte ^= 1 << (bit % 8);
                }
            }
            Self::One(_) | Self::Many(_) => {
                let mut memory = PhantomMemory::from_extents(self.extents());
                memory
                    .place(place, &[Extent { origin: ByteOrigin::Damaged, offset: 0, length: 1 }]);
                *self = memory.take(0..memory.length());
            }
            Self::Mixed(pieces) => {
                let mut memory = mixed::memory_of(pieces);
                let mut byte = memory.take(place..place + 1);
                byte.damage(0, bit);
                memory.place(place, &byte);
                *self = memory.take(0..memory.length());
            }
            Self::Empty => {}
        }
    }
}

/// A region, a file, or the place of arrived bodies.
#[derive(Clone, Debug)]
pub(crate) enum Memory {
    /// Real bytes.
    Real(Pages),
    /// Extents, those words that atomics changed, and real bytes that were placed here.
    Phantom(PhantomMemory, BTreeMap<u64, u64>, RealRuns),
}

impl Memory {
    /// Creates real memory of zeroed bytes.
    pub(crate) fn real(length: usize) -> Self {
        let mut pages = Pages::default();
        pages.grow(length);
        Self::Real(pages)
    }

    /// Creates `length` bytes that are `home`'s.
    pub(crate) fn phantom(kept: CopyHistory, length: u64, home: ByteOrigin) -> Self {
        Self::Phantom(PhantomMemory::new(kept, length, home), BTreeMap::new(), RealRuns::default())
    }

    /// Returns bytes.
    pub(crate) fn length(&self) -> u64 {
        match self {
            Self::Real(bytes) => bytes.as_ref().len() as u64,
            Self::Phantom(phantom, ..) => phantom.length(),
        }
    }

    /// Returns what lies in `range`, which lies within this memory.
    pub(crate) fn take(&self, range: Range<u64>) -> MessageBody {
        match self {
            _ if range.is_empty() => MessageBody::Empty,
            Self::Real(bytes) => {
                let range = range.start as usize..range.end as usize;
                MessageBody::Bytes(bytes.as_ref().get(range).unwrap_or_default().into())
            }
            Self::Phantom(phantom, _, runs) => runs.take(phantom, range),
        }
    }

    /// Puts `body` to `at`; it fits. Phantoms become zeros in real memory.
    pub(crate) fn place(&mut self, at: u64, body: &MessageBody) {
        let end = at + body.length();
        match self {
            Self::Real(bytes) => {
                if let Some(place) = bytes.as_mut().get_mut(at as usize..end as usize) {
                    place_real(place, body);
                }
            }
            Self::Phantom(phantom, words, runs) => {
                words.retain(|word, _| word + 8 <= at || *word >= end);
                runs.remove(at..end);
                match body {
                    MessageBody::Bytes(bytes) => runs.insert(at, bytes),
                    MessageBody::Mixed(pieces) => {
                        let mut at = at;
                        for piece in pieces {
                            match piece {
                                BodyRun::Bytes(bytes) => runs.insert(at, bytes),
                                BodyRun::Extent(extent) => {
                                    phantom.place(at, core::slice::from_ref(extent))
                                }
                            }
                            at += piece.length();
                        }
                    }
                    MessageBody::Empty | MessageBody::One(_) | MessageBody::Many(_) => {
                        phantom.place(at, body.extents())
                    }
                }
            }
        }
    }

    /// Puts `body` behind everything and returns where.
    pub(crate) fn append(&mut self, body: &MessageBody) -> u64 {
        let at = self.length();
        self.grow(at + body.length());
        self.place(at, body);
        at
    }

    /// Makes this memory at least `length` long.
    pub(crate) fn grow(&mut self, length: u64) {
        match self {
            Self::Real(bytes) => bytes.grow(length as usize),
            Self::Phantom(phantom, ..) => phantom.grow(length),
        }
    }

    /// Makes this memory at most `length` long.
    pub(crate) fn truncate(&mut self, length: u64) {
        if self.length() <= length {
            return;
        }
        match self {
            Self::Real(bytes) => bytes.truncate(length as usize),
            Self::Phantom(phantom, words, runs) => {
                words.retain(|word, _| word + 8 <= length);
                runs.remove(length..u64::MAX);
                phantom.truncate(length);
            }
        }
    }

    /// Returns the real bytes, if there are any.
    pub(crate) fn bytes(&self) -> Option<&[u8]> {
        if let Self::Real(bytes) = self { Some(bytes.as_ref()) } else { None }
    }

    /// Returns the same, to be changed.
    pub(crate) fn bytes_mut(&mut self) -> Option<&mut [u8]> {
        if let Self::Real(bytes) = self { Some(bytes.as_mut()) } else { None }
    }

    /// Returns which bytes lie in `range`; real ones are left out.
    pub(crate) fn extents(&self, range: Range<u64>) -> Vec<Extent> {
        match self.take(range) {
            MessageBody::Mixed(pieces) => {
                let phantoms = pieces.iter().filter_map(|piece| match piece {
                    BodyRun::Extent(extent) => Some(*extent),
                    BodyRun::Bytes(_) => None,
                });
                phantoms.collect()
            }
            body => body.extents().to_vec(),
        }
    }

    /// Gives the bytes of `range` a name.
    pub(crate) fn name(&mut self, range: Range<u64>, name: u64) {
        if let Self::Phantom(phantom, _, runs) = self {
            let extent = Extent {
                origin: ByteOrigin::Named(name),
                offset: 0,
                length: range.end - range.start,
            };
            runs.remove(range.clone());
            phantom.place(range.start, &[extent]);
        }
    }

    /// Changes the 64-bit word at `at`, which lies within this memory; returns what it was. Words
    /// of phantom memory that no atomic has touched are zero.
    pub(crate) fn atomic(&mut self, at: u64, kind: AtomicKind) -> u64 {
        match self {
            Self::Real(bytes) => {
                let Some(word) = bytes.as_mut().get_mut(at as usize..at as usize + 8) else {
                    return 0;
                };
                let old = (&*word).try_into().map_or(0, u64::from_le_bytes);
                word.copy_from_slice(&kind.next(old).to_le_bytes());
                old
            }
            Self::Phantom(_, words, _) => {
                let word = words.entry(at).or_default();
                let old = *word;
                *word = kind.next(old);
                old
            }
        }
    }
}

/// Puts `body`, which is as long as `place`, there.
pub(crate) fn place_real(place: &mut [u8], body: &MessageBody) {
    match body {
        MessageBody::Bytes(bytes) => place.copy_from_slice(bytes),
        MessageBody::Mixed(pieces) => {
            let mut rest = place;
            for piece in pieces {
                let (first, behind) = rest.split_at_mut(piece.length() as usize);
                match piece {
                    BodyRun::Bytes(bytes) => first.copy_from_slice(bytes),
                    BodyRun::Extent(_) => first.fill(0),
                }
                rest = behind;
            }
        }
        MessageBody::Empty | MessageBody::One(_) | MessageBody::Many(_) => place.fill(0),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const SIZE: u64 = 64;

    fn home(rank: u32) -> ByteOrigin {
        ByteOrigin::Region { rank, region: 0 }
    }

    /// Returns which byte of whom lies at each place: what extents stand for.
    fn spelt(memory: &Memory) -> Vec<(ByteOrigin, u64)> {
        let extents = memory.extents(0..memory.length());
        extents.iter().flat_map(|e| (0..e.length).map(|i| (e.origin, e.offset + i))).collect()
    }

    proptest! {
        #[test]
        fn place__extents_say_what_a_copy_byte_by_byte_says(
            copies in prop::collection::vec((0usize..3, 0usize..3, 0..SIZE, 0..SIZE, 0..SIZE), 0..40)
        ) {
            let mut memories: Vec<Memory> = (0..3).map(|rank| Memory::phantom(CopyHistory::Extents, SIZE, home(rank))).collect();
            let mut plain: Vec<Vec<(ByteOrigin, u64)>> = memories.iter().map(spelt).collect();
            for (from, to, source, target, length) in copies {
                let length = length.min(SIZE - source).min(SIZE - target);
                let body = memories[from].take(source..source + length);
                prop_assert_eq!(body.length(), length);
                memories[to].place(target, &body);
                let bytes = plain[from][source as usize..(source + length) as usize].to_vec();
                plain[to][target as usize..(target + length) as usize].copy_from_slice(&bytes);
                prop_assert_eq!(&spelt(&memories[to]), &plain[to]);
                if let Memory::Phantom(phantom, ..) = &memories[to] {
                    prop_assert!(phantom.is_normal(), "{phantom:?}");
                }
            }
        }
    }

    #[test]
    fn append__bodies_behind_each_other_keep_their_places() {
        let source = Memory::phantom(CopyHistory::Extents, SIZE, home(4));
        let mut receive = Memory::phantom(CopyHistory::Extents, 0, home(9));
        assert_eq!(receive.append(&source.take(8..12)), 0);
        assert_eq!(receive.append(&source.take(12..20)), 4);
        assert_eq!(receive.extents(0..12), [Extent { origin: home(4), offset: 8, length: 12 }]);
    }

    #[test]
    fn place__memory_that_keeps_nothing_stays_its_own_and_knows_its_length() {
        let mut memory = Memory::phantom(CopyHistory::Nothing, SIZE, home(0));
        memory.place(4, &Memory::phantom(CopyHistory::Extents, SIZE, home(1)).take(8..24));
        assert_eq!(memory.extents(0..SIZE), [Extent { origin: home(0), offset: 0, length: SIZE }]);
        assert_eq!((memory.take(3..9).length(), memory.length()), (6, SIZE));
        assert_eq!(memory.atomic(8, AtomicKind::FetchAdd(5)), 0);
        assert_eq!(memory.atomic(8, AtomicKind::FetchAdd(5)), 5);
    }

    #[test]
    fn damage__changes_one_byte_and_says_which() {
        let mut body = Memory::phantom(CopyHistory::Extents, SIZE, home(1)).take(0..10);
        body.damage(3, 0);
        let damaged = Extent { origin: ByteOrigin::Damaged, offset: 0, length: 1 };
        let kept = |offset, length| Extent { origin: home(1), offset, length };
        assert_eq!(body.extents(), [kept(0, 3), damaged, kept(4, 6)]);
        let mut body = MessageBody::Bytes([0u8; 4].into());
        body.damage(2, 9);
        assert!(matches!(body, MessageBody::Bytes(bytes) if *bytes == [0, 0, 2, 0]));
    }

    #[test]
    fn atomic__phantom_words_are_kept_until_they_are_written_over() {
        let mut memory = Memory::phantom(CopyHistory::Extents, SIZE, home(0));
        assert_eq!(memory.atomic(8, AtomicKind::FetchAdd(5)), 0);
        assert_eq!(memory.atomic(8, AtomicKind::Swap(9)), 5);
        memory.place(12, &Memory::phantom(CopyHistory::Extents, SIZE, home(1)).take(0..1));
        assert_eq!(memory.atomic(8, AtomicKind::Swap(1)), 0);
    }
}
