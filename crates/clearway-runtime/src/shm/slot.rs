//! A copy of the latest short record next to the counters, so that a waiting reader finds both with
//! one look.
//!
//! # Model
//! Between processors each line of memory that changes hands costs as much as a short message's
//! whole way otherwise. A reader that waits looks at the line of tails; a short record is written
//! there as well, behind the tails, and the reader takes it from there instead of from the ring.
//! The ring holds it too and stays the truth: the copy is used only if its stamp names the very
//! record that the reader is at, before and after it was copied out.
//!
//! | bytes | what |
//! |---|---|
//! | 0 to 7 | stamp: counter of the record's own first word, and above it its class plus one; zero while the copy changes |
//! | 8 to 15 | the record's first word |
//! | 16 to 95 | header and body |
//!
//! # Source
//! The order of accesses is that of a sequence lock: the writer clears the stamp (release fence
//! behind it), writes, and sets the stamp (release); the reader loads the stamp (acquire), copies,
//! and loads it again (acquire fence before it).
//!
//! # Invariants
//! I1. What [`read`] gives is one whole record's copy, as far as the writer keeps the order.

use std::sync::atomic::{Ordering, fence};

use clearway_proto::base::Class;

use super::mapping::SegmentMapping;
use super::record::WORD;

/// The longest header and body together: what two lines leave behind the counters.
pub(super) const SHORT: usize = 80;
/// Words of the longest copy.
const WORDS: usize = SHORT / 8;

/// Returns what names a record: its class and the counter of its first word.
#[inline]
pub(super) fn stamp(class: Class, counter: u32) -> u64 {
    (class.index() as u64 + 1) << 32 | u64::from(counter)
}

/// Copies the `length` words that begin with the record at `from` into the slot at `at`, as far as
/// they fit. The reader believes the first word about the record's length, so other records behind
/// it do not matter.
#[inline]
pub(super) fn write(segment: &SegmentMapping, at: usize, stamp: u64, from: usize, length: usize) {
    let words = segment.words::<{ 2 + WORDS }>(at);
    words[0].store(0, Ordering::Relaxed);
    fence(Ordering::Release);
    for (i, place) in words[1..].iter().enumerate().take(length) {
        place.store(segment.word(from + WORD * i).load(Ordering::Relaxed), Ordering::Relaxed);
    }
    words[0].store(stamp, Ordering::Release);
}

/// Returns the first word of the record named `stamp`, and its bytes in `into`, if the slot at `at`
/// holds its copy.
#[inline]
pub(super) fn read(
    segment: &SegmentMapping,
    at: usize,
    stamp: u64,
    into: &mut [u8; SHORT],
) -> Option<u64> {
    let words = segment.words::<{ 2 + WORDS }>(at);
    if words[0].load(Ordering::Acquire) != stamp {
        return None;
    }
    let word = words[1].load(Ordering::Relaxed);
    let length = (word >> 8 & 0xff) as usize + (word >> 32) as usize;
    let (chunks, _) = into.as_chunks_mut::<8>();
    for (chunk, place) in chunks.iter_mut().zip(&words[2..]).take(length.div_ceil(8)) {
        *chunk = place.load(Ordering::Relaxed).to_ne_bytes();
    }
    fence(Ordering::Acquire);
    (words[0].load(Ordering::Relaxed) == stamp).then_some(word)
}

#[cfg(test)]
mod tests {
    use super::super::layout::PAGE;
    use super::super::record::{RecordHeader, RecordKind};
    use super::*;

    /// Where records lie in these tests, and where the slot.
    const RECORD: usize = 1_024;
    const SLOT: usize = 8;

    fn opening(head: usize, body: usize) -> RecordHeader {
        RecordHeader { kind: RecordKind::Message, head, body }
    }

    /// Puts a record into a ring's place and its copy into the slot.
    fn put(segment: &SegmentMapping, stamp: u64, head: &[u8], body: &[u8]) {
        let opening = opening(head.len(), body.len());
        segment.put(RECORD, opening.word(), [head, body]);
        write(segment, SLOT, stamp, RECORD, opening.words() as usize);
    }

    fn get(segment: &SegmentMapping, stamp: u64) -> Option<(u64, [u8; SHORT])> {
        let mut bytes = [0; SHORT];
        read(segment, SLOT, stamp, &mut bytes).map(|word| (word, bytes))
    }

    #[test]
    fn read__gives_the_copy_of_the_very_record_that_was_asked_for() {
        let (_, segment) = SegmentMapping::create(PAGE).expect("memory");
        assert!(get(&segment, stamp(Class::Control, 0)).is_none(), "nothing was written");
        put(&segment, stamp(Class::Bulk, 7), &[1; 72], &[2; 8]);
        let (word, bytes) = get(&segment, stamp(Class::Bulk, 7)).expect("written");
        assert_eq!(
            (word, &bytes[..72], &bytes[72..]),
            (opening(72, 8).word(), &[1; 72][..], &[2; 8][..])
        );
        for other in [stamp(Class::Bulk, 8), stamp(Class::Control, 7)] {
            assert!(get(&segment, other).is_none());
        }
        put(&segment, stamp(Class::Bulk, 8), &[], b"x");
        assert!(get(&segment, stamp(Class::Bulk, 7)).is_none());
        assert_eq!(get(&segment, stamp(Class::Bulk, 8)).expect("written").1[0], b'x');
    }

    #[test]
    fn read__while_the_writer_goes_on_a_copy_is_whole_or_none() {
        const RECORDS: u32 = 200_000;
        let (file, writing) = SegmentMapping::create(PAGE).expect("memory");
        let reading =
            SegmentMapping::open(std::os::fd::AsFd::as_fd(&file), PAGE).expect("a segment");
        std::thread::scope(|scope| {
            scope.spawn(move || {
                for counter in 0..=RECORDS {
                    put(&writing, stamp(Class::Control, counter), &[counter as u8; 80], &[]);
                }
            });
            let mut counter = 0;
            while counter < RECORDS {
                if let Some((_, bytes)) = get(&reading, stamp(Class::Control, counter)) {
                    assert_eq!(bytes, [counter as u8; 80], "torn");
                }
                counter = reading.half(SLOT).load(Ordering::Acquire).max(counter);
            }
        });
    }

    #[test]
    fn read__any_length_in_the_first_word_stays_inside() {
        let (_, segment) = SegmentMapping::create(PAGE).expect("memory");
        segment.put(RECORD, u64::MAX, [&[3; 80], &[]]);
        write(&segment, SLOT, stamp(Class::Control, 1), RECORD, 11);
        assert_eq!(get(&segment, stamp(Class::Control, 1)).expect("written").0, u64::MAX);
    }
}
