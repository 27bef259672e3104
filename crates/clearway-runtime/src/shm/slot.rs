//! A copy of the latest short record beside the counters, so that a waiting reader finds both with one look.
//!
//! # Model
//! Between processors each line of memory that changes hands costs as much as a short message's whole way otherwise. A
//! reader that waits looks at the line of tails; a short record is written there as well, behind the tails, and the
//! reader takes it from there instead of from the ring. The ring holds it too and stays the truth: the copy is used only if
//! its stamp names the very record that the reader is at, before and after it was copied out.
//!
//! | bytes | what |
//! |---|---|
//! | 0 to 7 | stamp: counter of the record's first line, and above it its class plus one; zero while the copy changes |
//! | 8 to 15 | the record's first word |
//! | 16 to 103 | header and body |
//!
//! # Source
//! The order of accesses is that of a sequence lock: the writer clears the stamp (release fence behind it), writes, and sets
//! the stamp (release); the reader loads the stamp (acquire), copies, and loads it again (acquire fence before it).
//!
//! # Invariants
//! I1. What [`read`] gives is one whole record's copy, as far as the writer keeps the order.

use std::sync::atomic::{Ordering, fence};

use clearway_proto::base::Class;

use super::mapping::Mapping;

/// The longest header and body together: what two lines leave behind the counters; the longest header is in it.
pub(super) const SHORT: usize = 88;
/// Words of the longest copy.
const WORDS: usize = SHORT / 8;

fn stamp(class: Class, counter: u32) -> u64 {
    (class.index() as u64 + 1) << 32 | u64::from(counter)
}

/// Copies a record, whose first line is `counter`, into the slot at `at`. `head` and `body` together are at most [`SHORT`].
#[inline]
pub(super) fn write(segment: &Mapping, at: usize, class: Class, counter: u32, word: u64, head: &[u8], body: &[u8]) {
    let mut bytes = [0; SHORT];
    let length = head.len() + body.len();
    bytes[..head.len()].copy_from_slice(head);
    bytes[head.len()..length].copy_from_slice(body);
    let words = segment.words::<{ 2 + WORDS }>(at);
    words[0].store(0, Ordering::Relaxed);
    fence(Ordering::Release);
    words[1].store(word, Ordering::Relaxed);
    let (chunks, _) = bytes.as_chunks::<8>();
    for (place, chunk) in words[2..].iter().zip(chunks).take(length.div_ceil(8)) {
        place.store(u64::from_ne_bytes(*chunk), Ordering::Relaxed);
    }
    words[0].store(stamp(class, counter), Ordering::Release);
}

/// The first word and the bytes of the record whose first line is `counter`, if the slot at `at` holds its copy.
#[inline]
pub(super) fn read(segment: &Mapping, at: usize, class: Class, counter: u32) -> Option<(u64, [u8; SHORT])> {
    let words = segment.words::<{ 2 + WORDS }>(at);
    let stamp = stamp(class, counter);
    if words[0].load(Ordering::Acquire) != stamp {
        return None;
    }
    let word = words[1].load(Ordering::Relaxed);
    let length = (word >> 8 & 0xff) as usize + (word >> 32) as usize;
    let mut bytes = [0; SHORT];
    let (chunks, _) = bytes.as_chunks_mut::<8>();
    for (chunk, place) in chunks.iter_mut().zip(&words[2..]).take(length.div_ceil(8)) {
        *chunk = place.load(Ordering::Relaxed).to_ne_bytes();
    }
    fence(Ordering::Acquire);
    (words[0].load(Ordering::Relaxed) == stamp).then_some((word, bytes))
}

#[cfg(test)]
mod tests {
    use super::super::layout::PAGE;
    use super::super::record::{Kind, Opening};
    use super::*;

    fn word(head: usize, body: usize) -> u64 {
        Opening { kind: Kind::Message, head, body }.word()
    }

    #[test]
    fn read__gives_the_copy_of_the_very_record_that_was_asked_for() {
        let (_, segment) = Mapping::create(PAGE).expect("memory");
        assert!(read(&segment, 8, Class::Control, 0).is_none(), "nothing was written");
        write(&segment, 8, Class::Bulk, 7, word(80, 8), &[1; 80], &[2; 8]);
        let (opening, bytes) = read(&segment, 8, Class::Bulk, 7).expect("written");
        assert_eq!((opening, &bytes[..80], &bytes[80..]), (word(80, 8), &[1; 80][..], &[2; 8][..]));
        assert!(read(&segment, 8, Class::Bulk, 8).is_none() && read(&segment, 8, Class::Control, 7).is_none());
        write(&segment, 8, Class::Bulk, 8, word(0, 1), &[], b"x");
        assert!(read(&segment, 8, Class::Bulk, 7).is_none());
        assert_eq!(read(&segment, 8, Class::Bulk, 8).expect("written").1[0], b'x');
    }

    #[test]
    fn read__while_the_writer_goes_on_a_copy_is_whole_or_none() {
        const RECORDS: u32 = 200_000;
        let (file, writing) = Mapping::create(PAGE).expect("memory");
        let reading = Mapping::open(std::os::fd::AsFd::as_fd(&file), PAGE).expect("a segment");
        std::thread::scope(|scope| {
            scope.spawn(move || {
                for counter in 0..=RECORDS {
                    write(&writing, 64, Class::Control, counter, word(80, 0), &[counter as u8; 80], &[]);
                }
            });
            let mut counter = 0;
            while counter < RECORDS {
                if let Some((_, bytes)) = read(&reading, 64, Class::Control, counter) {
                    assert_eq!(bytes[..80], [counter as u8; 80], "torn");
                }
                counter = reading.half(64).load(Ordering::Acquire).max(counter);
            }
        });
    }

    #[test]
    fn read__any_length_in_the_first_word_stays_inside() {
        let (_, segment) = Mapping::create(PAGE).expect("memory");
        write(&segment, 0, Class::Control, 1, u64::MAX, &[3; 80], &[]);
        assert_eq!(read(&segment, 0, Class::Control, 1).expect("written").0, u64::MAX);
    }
}
