//! What there is to cast, what receivers have of it, and which blocks therefore leave: without touching a file.
//!
//! # Model
//! A *manifest* is a list of entries, in the order in which they are cast. A file is a row of blocks of [`BLOCK`] bytes. Each receiver
//! says which files it has, and of those of which it has a part, after it was told their hashes, which blocks it lacks. What somebody
//! lacks is cast to all, once.
//!
//! # Invariants
//! I1. A number from outside that is not of the manifest changes nothing.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use super::path::{Below, Text};

/// Bytes of a block: as in rsync's successors, small enough that little is sent twice and large enough that hashes are few.
pub(super) const BLOCK: u64 = 1 << 20;
/// Entries of a manifest: memory of some hundred bytes for each, on both sides.
pub(super) const ENTRIES_MAX: usize = 1 << 24;
/// Blocks of a file, of which one bit each is kept: a petabyte.
const BLOCKS_MAX: u64 = 1 << 30;

/// One thing that shall be at each receiver.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Entry {
    pub(super) path: Below,
    pub(super) kind: Kind,
    /// Permissions, the lowest nine bits of a mode.
    pub(super) mode: u32,
    pub(super) modified: Modified,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) enum Kind {
    File {
        size: u64,
        /// It has holes, and shall have some where it goes.
        sparse: bool,
    },
    /// A file whose length is known when it ends.
    Stream,
    Directory,
    Link {
        to: Text,
    },
}

/// When a file was changed, in seconds since 1970 and nanoseconds.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Modified {
    pub(super) seconds: i64,
    pub(super) nanos: u32,
}

impl Modified {
    /// Whether a file that has `kept` has this time, as far as its file system keeps times: some only whole seconds.
    pub(super) fn is_kept_as(self, kept: Self) -> bool {
        self.seconds == kept.seconds && (self.nanos == kept.nanos || kept.nanos == 0)
    }
}

impl Entry {
    /// How many blocks it has; `None` of what is no file of a known length.
    pub(super) fn blocks(&self) -> Option<u32> {
        match self.kind {
            Kind::File { size, .. } => u32::try_from(size.div_ceil(BLOCK)).ok(),
            _ => None,
        }
    }

    /// Whether it can be of a manifest.
    pub(super) fn is_sound(&self) -> bool {
        let fits = !matches!(self.kind, Kind::File { size, .. } if size.div_ceil(BLOCK) > BLOCKS_MAX);
        // What gives the rights of others is not taken from anybody.
        fits && self.mode <= 0o777 && (matches!(self.kind, Kind::Directory) || self.path != Below::default())
    }
}

/// The length of block `block` of a file of `size` bytes.
pub(super) fn length_of(block: u32, size: u64) -> u64 {
    size.saturating_sub(u64::from(block) * BLOCK).min(BLOCK)
}

/// A set of numbers, told as runs: first number and how many.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Runs(Vec<(u32, u32)>);

impl Runs {
    /// Adds `number`, greater than all before.
    pub(super) fn push(&mut self, number: u32) {
        match self.0.last_mut() {
            Some((first, count)) if first.checked_add(*count) == Some(number) => *count += 1,
            _ => self.0.push((number, 1)),
        }
    }

    /// Those below `end`.
    pub(super) fn below(&self, end: u32) -> impl Iterator<Item = u32> + '_ {
        self.0.iter().flat_map(move |(first, count)| *first..first.saturating_add(*count).min(end))
    }
}

/// What a receiver says of the entries; it has nothing of the others.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Has {
    /// As it shall be.
    pub(super) same: Runs,
    /// Something that may be a part of it: hashes will tell.
    pub(super) part: Runs,
    /// Impossible there.
    pub(super) failed: Runs,
}

/// What leaves of a file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Need {
    /// Everybody has it, or cannot take it.
    Nothing,
    /// These blocks, and the end.
    Blocks(Vec<bool>),
    Everything,
}

/// What somebody lacks, of each entry.
#[derive(Clone, Debug)]
pub(super) struct Union {
    needs: Vec<Need>,
    blocks: Vec<Option<u32>>,
}

impl Union {
    /// Nothing of `entries` yet.
    pub(super) fn of(entries: &[Entry]) -> Self {
        Self { needs: vec![Need::Nothing; entries.len()], blocks: entries.iter().map(Entry::blocks).collect() }
    }

    /// A receiver has `has`, and of files of which it has a part it lacks `lacks`; of one without hashes, everything.
    pub(super) fn add(&mut self, has: &Has, lacks: &BTreeMap<u32, Runs>) {
        let count = self.needs.len() as u32;
        let mut whole = vec![true; self.needs.len()];
        for number in has.same.below(count).chain(has.failed.below(count)) {
            whole[number as usize] = false;
        }
        for number in has.part.below(count).filter(|number| lacks.contains_key(number)) {
            whole[number as usize] = false;
        }
        for (number, _) in whole.iter().enumerate().filter(|(_, whole)| **whole) {
            self.needs[number] = Need::Everything;
        }
        for (number, runs) in lacks {
            let place = self.needs.get_mut(*number as usize).zip(self.blocks.get(*number as usize).copied().flatten());
            let Some((need, blocks)) = place else { continue };
            if *need == Need::Nothing {
                *need = Need::Blocks(vec![false; blocks as usize]);
            }
            if let Need::Blocks(lacking) = need {
                runs.below(blocks).for_each(|block| lacking[block as usize] = true);
            }
        }
    }

    pub(super) fn need(&self, number: usize) -> &Need {
        self.needs.get(number).unwrap_or(&Need::Nothing)
    }

    /// Whether nothing leaves of what has contents.
    pub(super) fn is_nothing(&self, entries: &[Entry]) -> bool {
        let has_contents = |entry: &Entry| matches!(entry.kind, Kind::File { .. } | Kind::Stream);
        !entries.iter().zip(&self.needs).any(|(entry, need)| has_contents(entry) && *need != Need::Nothing)
    }

    /// Bytes that leave, of files of known length.
    pub(super) fn bytes(&self, entries: &[Entry]) -> u64 {
        let of = |(entry, need): (&Entry, &Need)| match (&entry.kind, need) {
            (Kind::File { size, .. }, Need::Everything) => *size,
            (Kind::File { size, .. }, Need::Blocks(lacking)) => {
                (0..).zip(lacking).filter(|(_, lacks)| **lacks).map(|(block, _)| length_of(block, *size)).sum()
            }
            _ => 0,
        };
        entries.iter().zip(&self.needs).map(of).sum()
    }
}

/// The hash of a block.
pub(super) type Hash = [u8; 32];

/// The hash of a whole file: that of its length and of the hashes of its blocks, in order. Blocks are so checked wherever they come
/// from, in any order, and none is read twice.
pub(super) fn root_of(size: u64, blocks: impl IntoIterator<Item = Hash>) -> Hash {
    let mut hasher = blake3::Hasher::new_derive_key("clearway cast 1 file");
    hasher.update(&size.to_le_bytes());
    for block in blocks {
        hasher.update(&block);
    }
    *hasher.finalize().as_bytes()
}

/// The hash of a block of these bytes.
pub(super) fn hash_of(bytes: &[u8]) -> Hash {
    *blake3::hash(bytes).as_bytes()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn file(name: &str, size: u64) -> Entry {
        let path = Below::read(name).expect("a path");
        Entry { path, kind: Kind::File { size, sparse: false }, mode: 0o644, modified: Modified::default() }
    }

    fn runs(numbers: &[u32]) -> Runs {
        let mut runs = Runs::default();
        numbers.iter().for_each(|number| runs.push(*number));
        runs
    }

    #[test]
    fn runs__are_what_was_pushed_and_end_with_what_there_is() {
        let runs = runs(&[0, 1, 2, 7, 9, 10]);
        assert_eq!(runs, Runs(vec![(0, 3), (7, 1), (9, 2)]));
        assert_eq!(runs.below(10).collect::<Vec<_>>(), [0, 1, 2, 7, 9]);
        assert_eq!(Runs(vec![(u32::MAX, u32::MAX), (5, u32::MAX)]).below(7).collect::<Vec<_>>(), [5, 6]);
    }

    #[test]
    fn union__is_what_somebody_lacks() {
        let entries = [file("a", 3 * BLOCK), file("b", 5), file("c", 2 * BLOCK + 1)];
        let mut union = Union::of(&entries);
        let has = |same: &[u32], part: &[u32]| Has { same: runs(same), part: runs(part), failed: Runs::default() };
        union.add(&has(&[0, 1, 2], &[]), &BTreeMap::new());
        assert!(union.is_nothing(&entries) && union.bytes(&entries) == 0);
        union.add(&has(&[0, 1], &[2]), &BTreeMap::from([(2, runs(&[0]))]));
        union.add(&has(&[0, 1], &[2]), &BTreeMap::from([(2, runs(&[2]))]));
        assert_eq!(*union.need(2), Need::Blocks(vec![true, false, true]));
        assert_eq!(union.bytes(&entries), BLOCK + 1);
        union.add(&has(&[1], &[2]), &BTreeMap::from([(2, Runs::default())]));
        assert_eq!((union.need(0), union.need(1)), (&Need::Everything, &Need::Nothing));
        assert_eq!(union.bytes(&entries), 4 * BLOCK + 1);
    }

    #[test]
    fn union__a_part_that_is_complete_still_gets_its_end() {
        let entries = [file("a", BLOCK)];
        let mut union = Union::of(&entries);
        let has = Has { part: runs(&[0]), ..Has::default() };
        union.add(&has, &BTreeMap::from([(0, Runs::default())]));
        assert_eq!(*union.need(0), Need::Blocks(vec![false]));
        assert!(!union.is_nothing(&entries));
    }

    #[test]
    fn union__who_cannot_take_a_file_does_not_make_others_wait() {
        let entries = [file("a", BLOCK), file("b", 1)];
        let mut union = Union::of(&entries);
        union.add(&Has { failed: runs(&[0]), same: runs(&[1]), ..Has::default() }, &BTreeMap::new());
        assert!(union.is_nothing(&entries));
    }

    #[test]
    fn union__numbers_of_nothing_change_nothing() {
        let entries = [file("a", BLOCK)];
        let mut union = Union::of(&entries);
        let wild = Runs(vec![(0, u32::MAX), (u32::MAX, 7)]);
        let has = Has { same: wild.clone(), part: wild.clone(), failed: wild.clone() };
        union.add(&has, &BTreeMap::from([(0, wild.clone()), (77, wild)]));
        assert_eq!(*union.need(0), Need::Blocks(vec![true]));
    }

    #[test]
    fn root_of__tells_lengths_orders_and_contents_apart() {
        let [a, b] = [hash_of(b"a"), hash_of(b"b")];
        let roots = [root_of(2, [a, b]), root_of(2, [b, a]), root_of(3, [a, b]), root_of(2, [a])];
        assert!(roots.iter().enumerate().all(|(i, root)| !roots[i + 1..].contains(root)));
    }

    #[test]
    fn is_sound__permissions_are_nine_bits() {
        let with = |mode| Entry { mode, ..file("a", 1) };
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
