//! Memory without bytes: a list of which bytes of whom would lie there.
//!
//! # Model
//! An *extent* says that bytes `[start, start + length)` are those that `origin` had from `offset`
//! on. Bytes that no extent covers are the memory's own. Copies carry extents along, so that an
//! engine which puts the right number of bytes into the wrong place is caught without one byte
//! being kept.
//!
//! Memory that keeps *nothing* does not know of copies: its bytes are always its own. Where a run
//! fills gigabytes piece by piece and nobody looks at them, lists of pieces would be most of what
//! it costs.
//!
//! # Invariants
//! I1. Extents are sorted, do not overlap, are not empty, and neighbours that continue each other
//!     are one.

use core::ops::Range;

use super::MessageBody;

/// Whose bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum ByteOrigin {
    /// Those that this rank's region has had since it was registered.
    Region {
        /// The rank.
        rank: u32,
        /// Its region.
        region: u16,
    },
    /// Those that the application named so.
    Named(u64),
    /// Those that a file has had since it was opened.
    File {
        /// The rank that opened it.
        rank: u32,
        /// The file.
        file: u32,
    },
    /// A fault changed them.
    Damaged,
}

/// A run of bytes of one origin.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Extent {
    /// Whose bytes.
    pub origin: ByteOrigin,
    /// The place of the first of them at their origin.
    pub offset: u64,
    /// How many.
    pub length: u64,
}

impl Extent {
    fn cut(self, skip: u64, length: u64) -> Self {
        Self { origin: self.origin, offset: self.offset + skip, length }
    }

    /// Returns the numbers that tell this extent from every other.
    pub(super) const fn words(self) -> [u64; 4] {
        let (kind, name) = match self.origin {
            ByteOrigin::Region { rank, region } => ((region as u64) << 8, rank as u64),
            ByteOrigin::Named(name) => (1, name),
            ByteOrigin::File { rank, file } => ((file as u64) << 8 | 2, rank as u64),
            ByteOrigin::Damaged => (3, 0),
        };
        [kind, name, self.offset, self.length]
    }

    fn continues(&self, before: &Self) -> bool {
        self.origin == before.origin && before.offset + before.length == self.offset
    }
}

/// Whether memory knows what was copied into it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum CopyHistory {
    Extents,
    Nothing,
}

/// Extents instead of bytes.
#[derive(Clone, Debug)]
pub(crate) struct PhantomMemory {
    kept: CopyHistory,
    length: u64,
    /// Whose the bytes are that no extent covers, at their own offsets.
    home: ByteOrigin,
    extents: Vec<(u64, Extent)>,
}

impl PhantomMemory {
    /// Creates `length` bytes that are `home`'s.
    pub(super) const fn new(kept: CopyHistory, length: u64, home: ByteOrigin) -> Self {
        Self { kept, length, home, extents: Vec::new() }
    }

    /// Creates memory that holds `pieces` and nothing else.
    pub(super) fn from_extents(pieces: &[Extent]) -> Self {
        let length = pieces.iter().map(|piece| piece.length).sum();
        let mut memory = Self::new(CopyHistory::Extents, length, ByteOrigin::Damaged);
        memory.place(0, pieces);
        memory
    }

    pub(super) const fn length(&self) -> u64 {
        self.length
    }

    /// Makes this memory at least `length` long.
    pub(super) fn grow(&mut self, length: u64) {
        self.length = self.length.max(length);
    }

    /// Returns whether the extents are as they should be (I1).
    #[cfg(test)]
    pub(super) fn is_normal(&self) -> bool {
        let in_order = self.extents.windows(2).all(|pair| {
            let ((a, before), (b, extent)) = (pair[0], pair[1]);
            let end = a + before.length;
            end < b || end == b && !extent.continues(&before)
        });
        in_order && self.extents.iter().all(|(_, extent)| extent.length > 0)
    }

    /// Returns the first extent that ends behind `at`.
    fn first_behind(&self, at: u64) -> usize {
        self.extents.partition_point(|(start, extent)| start + extent.length <= at)
    }

    /// Returns what lies in `range`.
    pub(super) fn take(&self, range: Range<u64>) -> MessageBody {
        let mut at = range.start;
        let first = self.extents[self.first_behind(at)..]
            .iter()
            .take_while(|(start, _)| *start < range.end);
        let mut pieces = ExtentList::default();
        for (start, extent) in first {
            if *start > at {
                pieces.push(Extent { origin: self.home, offset: at, length: start - at });
                at = *start;
            }
            let end = (start + extent.length).min(range.end);
            pieces.push(extent.cut(at - start, end - at));
            at = end;
        }
        if at < range.end {
            pieces.push(Extent { origin: self.home, offset: at, length: range.end - at });
        }
        pieces.into_body()
    }

    /// Makes this memory at most `length` long.
    pub(super) fn truncate(&mut self, length: u64) {
        self.length = self.length.min(length);
        let kept = self.extents.partition_point(|(start, _)| *start < length);
        self.extents.truncate(kept);
        if let Some((start, last)) = self.extents.last_mut() {
            last.length = last.length.min(length - *start);
        }
    }

    /// Puts `pieces` to `at`. O(log extents) behind all others, O(extents) in between.
    pub(super) fn place(&mut self, at: u64, pieces: &[Extent]) {
        let end = at + pieces.iter().map(|piece| piece.length).sum::<u64>();
        if end == at || self.kept == CopyHistory::Nothing {
            return;
        }
        let first = self.first_behind(at);
        let last =
            self.extents[first..].iter().take_while(|(start, _)| *start < end).count() + first;
        let mut new: Vec<(u64, Extent)> = Vec::new();
        let mut put = |start: u64, extent: Extent| match new.last_mut() {
            Some((place, before))
                if *place + before.length == start && extent.continues(before) =>
            {
                before.length += extent.length;
            }
            _ => new.push((start, extent)),
        };
        // One more on each side, so that neighbours which continue each other become one.
        let low = first.saturating_sub(1);
        let high = (last + 1).min(self.extents.len());
        for (start, extent) in &self.extents[low..last] {
            if *start < at {
                put(*start, extent.cut(0, extent.length.min(at - start)));
            }
        }
        let mut next = at;
        for piece in pieces.iter().filter(|piece| piece.length > 0) {
            put(next, *piece);
            next += piece.length;
        }
        for (start, extent) in &self.extents[first..high] {
            if start + extent.length > end {
                let skip = end.saturating_sub(*start);
                put(start + skip, extent.cut(skip, extent.length - skip));
            }
        }
        if low == self.extents.len() {
            self.extents.append(&mut new);
        } else {
            self.extents.splice(low..high, new);
        }
    }
}

/// Collects extents; allocates from the second on.
#[derive(Default)]
struct ExtentList {
    first: Option<Extent>,
    more: Vec<Extent>,
}

impl ExtentList {
    fn push(&mut self, extent: Extent) {
        match (self.more.last_mut(), &mut self.first) {
            (Some(last), _) if extent.continues(last) => last.length += extent.length,
            (None, Some(first)) if extent.continues(first) => first.length += extent.length,
            (None, None) => self.first = Some(extent),
            (None, Some(first)) => self.more.extend([*first, extent]),
            _ => self.more.push(extent),
        }
    }

    fn into_body(self) -> MessageBody {
        match self.first {
            None => MessageBody::Empty,
            Some(first) if self.more.is_empty() => MessageBody::One(first),
            Some(_) => MessageBody::Many(self.more.into()),
        }
    }
}
