//! The bytes of one file: which of them lie in the log, which in the backing store, which nowhere.
//!
//! # Model
//! Writes cut what was there before. Every change of the bytes makes a new *version*. Once a
//! version is in the backing store, what was written up to it needs no place in the log; bytes
//! without an extent are then those of the backing store, up to `backed`, and zeros behind.
//!
//! # Invariants
//! I1. Extents do not overlap and end at most at the size.
//! I2. Bytes beyond `backed` never come from the backing store.

use alloc::collections::BTreeMap;
use alloc::vec::Vec;

use super::TreeError;
use crate::staging::GroupNumber;

/// Names a body of the log: the bytes of one write.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct BodyId {
    /// The group that holds it.
    pub group: GroupNumber,
    /// Bodies of the group before it.
    pub index: u16,
}

/// Bytes of a body that no file has any more.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DroppedBytes {
    /// The body.
    pub body: BodyId,
    /// How many of its bytes.
    pub bytes: u32,
}

/// Where a stretch of a file lies.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ByteSource {
    /// Nowhere: its bytes are zeros.
    Zeros,
    /// In the backing store, at the same offset.
    Backing,
    /// In a body of the log.
    Log {
        /// The body.
        body: BodyId,
        /// Bytes of it before the stretch.
        skip: u32,
    },
}

/// A stretch of a body in a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Extent {
    /// Behind its last byte in the file.
    pub(crate) end: u64,
    pub(crate) body: BodyId,
    /// Bytes of the body before it.
    pub(crate) skip: u32,
    /// The version of the file that it made.
    pub(crate) version: u64,
}

/// Bytes of a body that another one has too.
#[derive(Clone, Copy, Debug)]
pub(super) struct MovedBytes {
    /// The place of the first of them in the file.
    pub(super) offset: u64,
    pub(super) length: u32,
    pub(super) body: BodyId,
    /// Bytes of `body` before them.
    pub(super) skip: u32,
    /// Has them from its beginning.
    pub(super) to: BodyId,
}

/// What a file consists of.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct FileContent {
    pub(crate) size: u64,
    /// Counts changes of the bytes.
    pub(crate) version: u64,
    /// The version that last made the file shorter.
    pub(crate) shortened: u64,
    /// Bytes that the backing store has from the beginning.
    pub(crate) backed: u64,
    /// The version that the backing store has.
    pub(crate) drained: u64,
    /// By first byte.
    pub(crate) extents: BTreeMap<u64, Extent>,
    /// Bytes of all extents.
    pub(crate) logged: u64,
}

impl FileContent {
    /// Returns how many bytes lie in the log.
    pub const fn logged(&self) -> u64 {
        self.logged
    }

    /// Returns the size in bytes.
    pub const fn size(&self) -> u64 {
        self.size
    }

    /// Returns how often the bytes were changed.
    pub const fn version(&self) -> u64 {
        self.version
    }

    /// Returns how many bytes lie in the log or in the backing store. Cost: all extents.
    pub fn stored(&self) -> u64 {
        let behind =
            |extent: &Extent, start: u64| extent.end - start.max(self.backed).min(extent.end);
        let in_log: u64 = self.extents.iter().map(|(start, extent)| behind(extent, *start)).sum();
        self.backed + in_log
    }

    /// Returns the last version whose copy in the backing store is recorded.
    pub const fn drained(&self) -> u64 {
        self.drained
    }

    /// Returns how many bytes the backing store has from the beginning.
    pub(crate) const fn backed(&self) -> u64 {
        self.backed
    }

    /// Returns the stretches that lie in the log, by first byte.
    pub(crate) fn extents(&self) -> impl Iterator<Item = (u64, Extent)> {
        self.extents.iter().map(|(start, extent)| (*start, *extent))
    }

    /// Returns the version that last made the file shorter.
    pub(crate) const fn shortened(&self) -> u64 {
        self.shortened
    }

    /// Takes `range` out of the extents; what is cut is added to `dropped`.
    fn cut(&mut self, from: u64, to: u64, dropped: &mut Vec<DroppedBytes>) {
        let first = self.extents.range(..from).next_back().map_or(from, |(start, _)| *start);
        let starts: Vec<u64> = self.extents.range(first..to).map(|(start, _)| *start).collect();
        for start in starts {
            let Some(extent) = self.extents.get(&start).copied() else { continue };
            let (low, high) = (from.max(start), to.min(extent.end));
            if low >= high {
                continue;
            }
            dropped.push(DroppedBytes { body: extent.body, bytes: (high - low) as u32 });
            self.logged -= high - low;
            self.extents.remove(&start);
            if start < low {
                self.extents.insert(start, Extent { end: low, ..extent });
            }
            if high < extent.end {
                let skip = extent.skip + (high - start) as u32;
                self.extents.insert(high, Extent { skip, ..extent });
            }
        }
    }

    /// Writes `length` bytes of `body` at `offset`.
    pub(super) fn write(
        &mut self,
        offset: u64,
        length: u32,
        body: BodyId,
        dropped: &mut Vec<DroppedBytes>,
    ) {
        let end = offset + u64::from(length);
        self.cut(offset, end, dropped);
        self.version += 1;
        self.extents.insert(offset, Extent { end, body, skip: 0, version: self.version });
        self.logged += u64::from(length);
        self.size = self.size.max(end);
    }

    /// Lets `moved.to` have the bytes of `moved.body`, as far as the file still has them from there.
    pub(super) fn relocate(&mut self, moved: MovedBytes, dropped: &mut Vec<DroppedBytes>) {
        let MovedBytes { offset, length, body, skip, to } = moved;
        let end = offset.saturating_add(u64::from(length));
        let first = self.extents.range(..=offset).next_back().map_or(offset, |(start, _)| *start);
        let found = self.extents.range(first..end).map(|(start, extent)| (*start, *extent));
        let beginning = |at: u64, skip: u32| at.wrapping_sub(u64::from(skip));
        let is_moved = |(start, extent): &(u64, Extent)| {
            extent.body == body
                && extent.end > offset
                && beginning(*start, extent.skip) == beginning(offset, skip)
        };
        let extents: Vec<(u64, Extent)> = found.filter(is_moved).collect();
        let mut unused = u64::from(length);
        for (start, extent) in extents {
            let (low, high) = (start.max(offset), extent.end.min(end));
            self.extents.remove(&start);
            if start < low {
                self.extents.insert(start, Extent { end: low, ..extent });
            }
            let skip = (low - offset) as u32;
            self.extents.insert(low, Extent { end: high, body: to, skip, ..extent });
            if high < extent.end {
                let skip = extent.skip + (high - start) as u32;
                self.extents.insert(high, Extent { skip, ..extent });
            }
            dropped.push(DroppedBytes { body, bytes: (high - low) as u32 });
            unused -= high - low;
        }
        dropped.push(DroppedBytes { body: to, bytes: unused as u32 });
    }

    /// Makes the file `size` bytes long.
    pub(super) fn truncate(&mut self, size: u64, dropped: &mut Vec<DroppedBytes>) {
        self.version += 1;
        if size < self.size {
            self.cut(size, self.size, dropped);
            self.backed = self.backed.min(size);
            self.shortened = self.version;
        }
        self.size = size;
    }

    /// Lets go of what was written up to `version`, which the backing store has in `size` bytes.
    pub(super) fn drain(
        &mut self,
        version: u64,
        size: u64,
        dropped: &mut Vec<DroppedBytes>,
    ) -> Result<(), TreeError> {
        // What was cut off since then must not come back from the backing store.
        if version > self.version || version < self.shortened || size > self.size {
            return Err(TreeError::Superseded);
        }
        let logged = &mut self.logged;
        self.extents.retain(|start, extent| {
            let is_drained = extent.version <= version;
            if is_drained {
                let bytes = extent.end - start;
                dropped.push(DroppedBytes { body: extent.body, bytes: bytes as u32 });
                *logged -= bytes;
            }
            !is_drained
        });
        (self.backed, self.drained) = (size, version.max(self.drained));
        Ok(())
    }

    /// Gives up all bytes.
    pub(super) fn clear(&mut self, dropped: &mut Vec<DroppedBytes>) {
        self.cut(0, self.size, dropped);
    }

    /// Returns where the bytes from `offset` on lie, up to `length` of them, in order: stretches by
    /// their length.
    pub fn sources(&self, offset: u64, length: u64) -> Vec<(u64, ByteSource)> {
        let end = offset.saturating_add(length).min(self.size);
        let mut sources = Vec::new();
        let mut at = offset;
        let first = self.extents.range(..=offset).next_back().map_or(offset, |(start, _)| *start);
        for (start, extent) in self.extents.range(first..end.max(first)) {
            if extent.end <= at {
                continue;
            }
            self.gap(at, end.min(*start), &mut sources);
            at = at.max(*start);
            if at < end {
                let skip = extent.skip + (at - start) as u32;
                let source = ByteSource::Log { body: extent.body, skip };
                sources.push((end.min(extent.end) - at, source));
                at = end.min(extent.end);
            }
        }
        self.gap(at, end, &mut sources);
        sources
    }

    /// Adds the stretches from `at` to `end`, which has no extents.
    fn gap(&self, at: u64, end: u64, sources: &mut Vec<(u64, ByteSource)>) {
        let border = self.backed.clamp(at, end.max(at));
        if border > at {
            sources.push((border - at, ByteSource::Backing));
        }
        if end > border {
            sources.push((end - border, ByteSource::Zeros));
        }
    }
}
