//! Where things lie in a rank's segment: its flag of sleep, its groups, and for each local peer
//! five rings.
//!
//! # Model
//! Every rank owns one segment, into which its peers write what is for it.
//!
//! | from | bytes | what | written by |
//! |---|---|---|---|
//! | 0 | 4 | sleep epoch, odd while the owner sleeps | owner |
//! | 4096 | 8192 | one bit for each group that the owner joined | owner |
//! | 12288 | 256 for each local rank | lane: counters of that rank's rings | see below |
//! | behind, on a page | | rings: for each local rank one for each class | that rank |
//!
//! A lane has cache lines in pairs, because some processors fetch them so: the first two are the
//! writer's (tails of the five rings, the word of full classes, how often it showed something, the
//! `slot` of the latest short record), the third the reader's (heads). One word of a peer's tells
//! the owner whether there is anything new in any of its rings, and stands in the same line; rings
//! of their own cost no polling.
//!
//! # Source
//! A ring for each class, because in one ring an urgent record waits until everything before it was
//! taken. Bulk has 256 KiB: larger ones leave the second-level cache (30 to 50 Gb/s with 4 MiB, 90
//! to 98 with 256 KiB, measured), smaller ones collapse when the reader is off its processor.

use clearway_proto::base::{Bytes, Class};

use super::record::{self, WORD};

/// A page of the smallest kind; mappings and segments are counted in them.
pub(super) const PAGE: usize = 4_096;
/// The offset of the owner's sleep epoch.
pub(super) const SLEEP: usize = 0;
/// Groups that there are, each with one bit.
pub(super) const GROUPS_MAX: usize = 1 << 16;
/// The bits of groups.
const GROUPS: usize = PAGE;
const GROUPS_LENGTH: usize = GROUPS_MAX / 8;
const LANES: usize = GROUPS + GROUPS_LENGTH;
const LANE_LENGTH: usize = 256;
/// In a lane: the word of classes that the writer found full.
const FULL: usize = 20;
/// In a lane: how often the writer showed something.
const SHOWN: usize = 24;
/// In a lane: the copy of the latest short record, up to the end of the second line.
const SLOT: usize = 32;
/// In a lane: the heads.
const HEADS: usize = 128;

/// The smallest ring: it takes three of the longest records.
pub(super) const RING_MIN: Bytes = Bytes(32 << 10);
/// The largest ring: beyond, counters of words could not tell full from empty for long.
pub(super) const RING_MAX: Bytes = Bytes(1 << 30);

/// Where one ring lies in its owner's segment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct RingLocation {
    /// The first byte of its records.
    pub(super) start: usize,
    /// Its length in words of 8 bytes, a power of two.
    pub(super) words: u32,
    /// The counter of words written.
    pub(super) tail: usize,
    /// The counter of words read.
    pub(super) head: usize,
    /// The slot that it shares with the writer's other rings.
    pub(super) slot: usize,
}

/// The layout of the segments of a job; the same for all of its local ranks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct SegmentLayout {
    ranks: usize,
    ring: usize,
}

impl SegmentLayout {
    /// Creates the layout for `ranks` local ranks and bulk rings of `ring` bytes, a power of two.
    pub(super) fn new(ranks: usize, ring: Bytes) -> Self {
        Self { ranks, ring: ring.0 as usize }
    }

    /// Returns the length of one ring in bytes: a quarter of bulk's for the other classes, whose
    /// messages are few or small.
    fn ring_length(self, class: Class) -> usize {
        if class == Class::Bulk { self.ring } else { (self.ring / 4).max(RING_MIN.0 as usize) }
    }

    fn rings_start(self) -> usize {
        (LANES + self.ranks * LANE_LENGTH).next_multiple_of(PAGE)
    }

    fn rings_length(self) -> usize {
        Class::ALL.into_iter().map(|class| self.ring_length(class)).sum()
    }

    /// Returns the length of one rank's segment in bytes.
    pub(super) fn segment_length(self) -> usize {
        self.rings_start() + self.ranks * self.rings_length()
    }

    /// Returns the ring in which the local rank number `writer` puts messages of `class` for the
    /// segment's owner.
    pub(super) fn place(self, writer: usize, class: Class) -> RingLocation {
        let lane = LANES + writer * LANE_LENGTH;
        let before: usize =
            Class::ALL[..class.index()].iter().map(|class| self.ring_length(*class)).sum();
        RingLocation {
            start: self.rings_start() + writer * self.rings_length() + before,
            words: (self.ring_length(class) / WORD) as u32,
            tail: lane + 4 * class.index(),
            head: lane + HEADS + 4 * class.index(),
            slot: lane + SLOT,
        }
    }

    /// Returns the tails of the rings of the local rank number `writer`, one word for each class.
    pub(super) fn tails(self, writer: usize) -> usize {
        LANES + writer * LANE_LENGTH
    }

    /// Returns the word in which the local rank number `writer` counts how often it showed
    /// something.
    pub(super) fn shown(self, writer: usize) -> usize {
        LANES + writer * LANE_LENGTH + SHOWN
    }

    /// Returns the word in which the local rank number `writer` says which classes it found full,
    /// as bits.
    pub(super) fn full(self, writer: usize) -> usize {
        LANES + writer * LANE_LENGTH + FULL
    }
}

/// Returns the word and the bit that say whether the segment's owner is in a group.
pub(super) fn group_bit(group: u16) -> (usize, u32) {
    (GROUPS + usize::from(group) / 32 * 4, 1 << (group % 32))
}

/// Returns how many words must be free before a full ring says that it has room: a quarter of it,
/// so that room comes in stretches, and never less than the longest record.
pub(super) const fn room_words(words: u32) -> u32 {
    let quarter = words / 4;
    if quarter > record::WORDS_MAX { quarter } else { record::WORDS_MAX }
}

#[cfg(test)]
mod tests {
    /// A cache line of every processor this runs on, or half of one.
    const LINE: usize = 64;

    use super::super::slot;
    use super::*;

    #[test]
    fn place__rings_and_counters_share_no_byte() {
        let layout = SegmentLayout::new(3, RING_MIN);
        let mut taken = vec![(SLEEP, 4), (GROUPS, GROUPS_LENGTH)];
        for writer in 0..3 {
            taken.extend([
                (layout.full(writer), 4),
                (layout.shown(writer), 4),
                (layout.place(writer, Class::Control).slot, 16 + slot::SHORT),
            ]);
            for class in Class::ALL {
                let place = layout.place(writer, class);
                assert!(place.words.is_power_of_two() && place.start.is_multiple_of(LINE));
                taken.extend([
                    (place.tail, 4),
                    (place.head, 4),
                    (place.start, place.words as usize * WORD),
                ]);
            }
        }
        taken.sort_unstable();
        assert!(taken.windows(2).all(|pair| pair[0].0 + pair[0].1 <= pair[1].0), "{taken:?}");
        let (last, length) = taken[taken.len() - 1];
        assert_eq!(last + length, layout.segment_length());
    }

    #[test]
    fn place__what_the_writer_and_the_reader_write_lies_on_other_pairs_of_lines() {
        let place = SegmentLayout::new(2, RING_MIN).place(1, Class::Scavenger);
        assert_ne!(place.tail / (2 * LINE), place.head / (2 * LINE));
    }

    #[test]
    fn group_bit__every_group_has_its_own() {
        assert_eq!(group_bit(0), (GROUPS, 1));
        assert_eq!(group_bit(33), (GROUPS + 4, 2));
        assert_eq!(group_bit(u16::MAX), (GROUPS + GROUPS_LENGTH - 4, 1 << 31));
    }

    #[test]
    fn room_words__after_room_the_longest_record_fits() {
        for words in [4_096, 1 << 20] {
            assert!(room_words(words) >= record::WORDS_MAX && room_words(words) <= words);
        }
    }
}
