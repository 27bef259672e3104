//! What there is to cast, what receivers have of it, and which blocks therefore leave: without
//! touching a file.
//!
//! # Model
//! A *manifest* is a list of entries, in the order in which they are cast. A file is a row of
//! blocks of [`BLOCK`] bytes. Each receiver says which files it has, and of those of which it has a
//! part, after it received their hashes, which blocks it lacks. What somebody lacks is cast to all,
//! once.
//!
//! # Invariants
//! I1. A number from outside that is not of the manifest changes nothing.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use super::path::{PathText, RelativePath};

/// Bytes of a block: as in rsync's successors, small enough that little is sent twice and large
/// enough that hashes are few.
pub(super) const BLOCK: u64 = 1 << 20;
/// Entries of a manifest: memory of some hundred bytes for each, on both sides.
pub(super) const ENTRIES_MAX: usize = 1 << 24;
/// Blocks of a file, of which one bit each is kept: a petabyte.
const BLOCKS_MAX: u64 = 1 << 30;

/// One thing that must be at each receiver.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct ManifestEntry {
    pub(super) path: RelativePath,
    pub(super) kind: EntryKind,
    /// Permissions, the lowest nine bits of a mode.
    pub(super) mode: u32,
    pub(super) modified: Modified,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) enum EntryKind {
    File {
        size: u64,
        /// It has holes, and gets some where it goes.
        sparse: bool,
    },
    /// A file whose length is known when it ends.
    Stream,
    Directory,
    Link {
        to: PathText,
    },
}

/// When a file was changed, in seconds since 1970 and nanoseconds.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Modified {
    pub(super) seconds: i64,
    pub(super) nanos: u32,
}

impl Modified {
    /// Returns whether a file that has `kept` has this time, as far as its file system keeps times:
    /// some only whole seconds.
    pub(super) fn is_kept_as(self, kept: Self) -> bool {
        self.seconds == kept.seconds && (self.nanos == kept.nanos || kept.nanos == 0)
    }
}

impl ManifestEntry {
    /// Returns how many blocks it has; `None` of what is no file of a known length.
    pub(super) fn blocks(&self) -> Option<u32> {
        match self.kind {
            EntryKind::File { size, .. } => u32::try_from(size.div_ceil(BLOCK)).ok(),
            _ => None,
        }
    }

    /// Returns whether it can be of a manifest.
    pub(super) fn is_sound(&self) -> bool {
        let fits =
            !matches!(self.kind, EntryKind::File { size, .. } if size.div_ceil(BLOCK) > BLOCKS_MAX);
        // What gives the rights of others is not taken from anybody.
        fits && self.mode <= 0o777
            && (matches!(self.kind, EntryKind::Directory) || self.path != RelativePath::default())
    }
}

/// Returns the length of block `block` of a file of `size` bytes.
pub(super) fn length_of(block: u32, size: u64) -> u64 {
    size.saturating_sub(u64::from(block) * BLOCK).min(BLOCK)
}

/// A set of numbers, written as runs: first number and how many.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct NumberRuns(Vec<(u32, u32)>);

impl NumberRuns {
    /// Adds `number`, greater than all before.
    pub(super) fn push(&mut self, number: u32) {
        match self.0.last_mut() {
            Some((first, count)) if first.checked_add(*count) == Some(number) => *count += 1,
            _ => self.0.push((number, 1)),
        }
    }

    /// Returns those below `end`.
    pub(super) fn below(&self, end: u32) -> impl Iterator<Item = u32> + '_ {
        self.0.iter().flat_map(move |(first, count)| *first..first.saturating_add(*count).min(end))
    }
}

/// What a receiver says of the entries; it has nothing of the others.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Inventory {
    /// As it must be.
    pub(super) same: NumberRuns,
    /// Something that may be a part of it: hashes will tell.
    pub(super) part: NumberRuns,
    /// Impossible there.
    pub(super) failed: NumberRuns,
}

/// What leaves of a file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum MissingBlocks {
    /// Everybody has it, or cannot take it.
    Nothing,
    /// These blocks, and the end.
    Blocks(Vec<bool>),
    Everything,
}

impl MissingBlocks {
    /// Returns how many bytes leave of `entry`; `None` when it does not come, or is no file of known
    /// length.
    pub(super) fn bytes(&self, entry: &ManifestEntry) -> Option<u64> {
        match (&entry.kind, self) {
            (EntryKind::File { size, .. }, Self::Everything) => Some(*size),
            (EntryKind::File { size, .. }, Self::Blocks(lacking)) => {
                let blocks = (0..).zip(lacking).filter(|(_, lacks)| **lacks);
                Some(blocks.map(|(block, _)| length_of(block, *size)).sum())
            }
            _ => None,
        }
    }
}

/// What somebody lacks, of each entry.
#[derive(Clone, Debug)]
pub(super) struct MissingOfAll {
    needs: Vec<MissingBlocks>,
    blocks: Vec<Option<u32>>,
}

impl MissingOfAll {
    /// Creates a record in which nothing of `entries` is missing yet.
    pub(super) fn from_entries(entries: &[ManifestEntry]) -> Self {
        Self {
            needs: vec![MissingBlocks::Nothing; entries.len()],
            blocks: entries.iter().map(ManifestEntry::blocks).collect(),
        }
    }

    /// Adds a receiver that has `has`, and of files of which it has a part lacks `lacks`; of one
    /// without hashes, everything.
    pub(super) fn add(&mut self, has: &Inventory, lacks: &BTreeMap<u32, NumberRuns>) {
        let count = self.needs.len() as u32;
        let mut whole = vec![true; self.needs.len()];
        for number in has.same.below(count).chain(has.failed.below(count)) {
            whole[number as usize] = false;
        }
        for number in has.part.below(count).filter(|number| lacks.contains_key(number)) {
            whole[number as usize] = false;
        }
        for (number, _) in whole.iter().enumerate().filter(|(_, whole)| **whole) {
            self.needs[number] = MissingBlocks::Everything;
        }
        for (number, runs) in lacks {
            let place = self
                .needs
                .get_mut(*number as usize)
                .zip(self.blocks.get(*number as usize).copied().flatten());
            let Some((need, blocks)) = place else { continue };
            if *need == MissingBlocks::Nothing {
                *need = MissingBlocks::Blocks(vec![false; blocks as usize]);
            }
            if let MissingBlocks::Blocks(lacking) = need {
                runs.below(blocks).for_each(|block| lacking[block as usize] = true);
            }
        }
    }

    pub(super) fn need(&self, number: usize) -> &MissingBlocks {
        self.needs.get(number).unwrap_or(&MissingBlocks::Nothing)
    }

    /// Returns whether nothing leaves of what has contents.
    pub(super) fn is_nothing(&self, entries: &[ManifestEntry]) -> bool {
        let has_contents = |entry: &ManifestEntry| {
            matches!(entry.kind, EntryKind::File { .. } | EntryKind::Stream)
        };
        !entries
            .iter()
            .zip(&self.needs)
            .any(|(entry, need)| has_contents(entry) && *need != MissingBlocks::Nothing)
    }

    /// Returns how many bytes leave, of files of known length.
    pub(super) fn bytes(&self, entries: &[ManifestEntry]) -> u64 {
        let of = |(entry, need): (&ManifestEntry, &MissingBlocks)| need.bytes(entry);
        entries.iter().zip(&self.needs).filter_map(of).sum()
    }
}

/// The hash of a block.
pub(super) type BlockHash = [u8; 32];

/// Returns the hash of a whole file: that of its length and of the hashes of its blocks, in order.
/// Blocks are so checked wherever they come from, in any order, and none is read twice.
pub(super) fn root_of(size: u64, blocks: impl IntoIterator<Item = BlockHash>) -> BlockHash {
    let mut hasher = blake3::Hasher::new_derive_key("clearway cast 1 file");
    hasher.update(&size.to_le_bytes());
    for block in blocks {
        hasher.update(&block);
    }
    *hasher.finalize().as_bytes()
}

/// Returns the hash of a block of these bytes.
pub(super) fn hash_of(bytes: &[u8]) -> BlockHash {
    *blake3::hash(bytes).as_bytes()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn file(name: &str, size: u64) -> ManifestEntry {
        let path = RelativePath::read(name).expect("a path");
        ManifestEntry {
            path,
            kind: EntryKind::File { size, sparse: false },
            mode: 0o644,
            modified: Modified::default(),
        }
    }

    fn runs(numbers: &[u32]) -> NumberRuns {
        let mut runs = NumberRuns::default();
        numbers.iter().for_each(|number| runs.push(*number));
        runs
    }

    #[test]
    fn runs__are_what_was_pushed_and_end_with_what_there_is() {
        let runs = runs(&[0, 1, 2, 7, 9, 10]);
        assert_eq!(runs, NumberRuns(vec![(0, 3), (7, 1), (9, 2)]));
        assert_eq!(runs.below(10).collect::<Vec<_>>(), [0, 1, 2, 7, 9]);
        assert_eq!(
            NumberRuns(vec![(u32::MAX, u32::MAX), (5, u32::MAX)]).below(7).collect::<Vec<_>>(),
            [5, 6]
        );
    }

    #[test]
    fn union__is_what_somebody_lacks() {
        let entries = [file("a", 3 * BLOCK), file("b", 5), file("c", 2 * BLOCK + 1)];
        let mut union = MissingOfAll::from_entries(&entries);
        let has = |same: &[u32], part: &[u32]| Inventory {
            same: runs(same),
            part: runs(part),
            failed: NumberRuns::default(),
        };
        union.add(&has(&[0, 1, 2], &[]), &BTreeMap::new());
        assert!(union.is_nothing(&entries) && union.bytes(&entries) == 0);
        union.add(&has(&[0, 1], &[2]), &BTreeMap::from([(2, runs(&[0]))]));
        union.add(&has(&[0, 1], &[2]), &BTreeMap::from([(2, runs(&[2]))]));
        assert_eq!(*union.need(2), MissingBlocks::Blocks(vec![true, false, true]));
        assert_eq!(union.bytes(&entries), BLOCK + 1);
        union.add(&has(&[1], &[2]), &BTreeMap::from([(2, NumberRuns::default())]));
        assert_eq!(
            (union.need(0), union.need(1)),
            (&MissingBlocks::Everything, &MissingBlocks::Nothing)
        );
        assert_eq!(union.bytes(&entries), 4 * BLOCK + 1);
    }

    #[test]
    fn union__a_part_that_is_complete_still_gets_its_end() {
        let entries = [file("a", BLOCK)];
        let mut union = MissingOfAll::from_entries(&entries);
        let has = Inventory { part: runs(&[0]), ..Inventory::default() };
        union.add(&has, &BTreeMap::from([(0, NumberRuns::default())]));
        assert_eq!(*union.need(0), MissingBlocks::Blocks(vec![false]));
        assert!(!union.is_nothing(&entries));
    }

    #[test]
    fn union__who_cannot_take_a_file_does_not_make_others_wait() {
        let entries = [file("a", BLOCK), file("b", 1)];
        let mut union = MissingOfAll::from_entries(&entries);
        union.add(
            &Inventory { failed: runs(&[0]), same: runs(&[1]), ..Inventory::default() },
            &BTreeMap::new(),
        );
        assert!(union.is_nothing(&entries));
    }

    #[test]
    fn union__numbers_of_nothing_change_nothing() {
        let entries = [file("a", BLOCK)];
        let mut union = MissingOfAll::from_entries(&entries);
        let wild = NumberRuns(vec![(0, u32::MAX), (u32::MAX, 7)]);
        let has = Inventory { same: wild.clone(), part: wild.clone(), failed: wild.clone() };
        union.add(&has, &BTreeMap::from([(0, wild.clone()), (77, wild)]));
        assert_eq!(*union.need(0), MissingBlocks::Blocks(vec![true]));
    }

    #[test]
    fn root_of__tells_lengths_orders_and_contents_apart() {
        let [a, b] = [hash_of(b"a"), hash_of(b"b")];
        let roots = [root_of(2, [a, b]), root_of(2, [b, a]), root_of(3, [a, b]), root_of(2, [a])];
        assert!(roots.iter().enumerate().all(|(i, root)| !roots[i + 1..].contains(root)));
    }

    #[test]
    fn is_sound__permissions_are_nine_bits() {
        let with = |mode| ManifestEntry { mode, ..file("a", 1) };
        assert!(with(0o777).is_sound() && with(0).is_sound());
        for mode in [0o4755, 0o2755, 0o1777, u32::MAX] {
            assert!(!with(mode).is_sound(), "{mode:o}");
        }
    }

    #[test]
    fn is_kept_as__file_systems_with_whole_seconds_count() {
        let at = |seconds, nanos| Modified { seconds, nanos };
        assert!(at(5, 7).is_kept_as(at(5, 7)) && at(5, 7).is_kept_as(at(5, 0)));
        assert!(!at(5, 7).is_kept_as(at(5, 8)) && !at(5, 7).is_kept_as(at(6, 7)));
    }
}
