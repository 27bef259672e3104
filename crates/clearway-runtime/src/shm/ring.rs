//! One ring between two processes: who writes and who reads each believe nothing that the other
//! counts.
//!
//! # Model
//! `tail` counts words of 8 bytes written, `head` words read, both modulo 2^32; what lies between
//! them is the reader's. Each side owns one counter, keeps the true one in its own memory and shows
//! copies; it remembers the other's and looks again only when the remembered one says full (or
//! empty).
//!
//! *Order.* The writer fills words, then shows its tail; the reader looks at the tail, then at the
//! words: store and load of the tail are release and acquire at least, so the words (and bytes
//! written one-sided before them) are there. In the other direction the head does the same: the
//! reader has copied a record before it shows that its words are free. Both counters are shown with
//! *sequentially consistent* stores, because the one who shows then looks whether the other sleeps;
//! see `notify`.
//!
//! # Invariants
//! I1. A counter of the other side that moves backwards or past this side's is [`CorruptRing`], and
//!     is not used.
//! I2. Every word of a record is read once; what was checked is what is used.

use std::sync::atomic::Ordering;

use clearway_proto::base::Class;

use super::layout::{RingLocation, room_words};
use super::mapping::SegmentMapping;
use super::record::{self, HEAD_MAX, RecordHeader, WORD};
use super::slot::{self, SHORT};

/// Words of the longest record that fits a slot.
const SHORT_WORDS: u32 = (WORD + SHORT).div_ceil(WORD) as u32;

/// The other side broke the ring's protocol: nothing of it can be believed any more.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct CorruptRing;

/// Whether a ring took a record.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum RingRoom {
    /// There was room.
    Enough,
    /// There was not; nothing changed.
    Full,
}

/// The writing side.
#[derive(Clone, Debug)]
pub(super) struct RingWriter {
    place: RingLocation,
    class: Class,
    tail: u32,
    shown: u32,
    head: u32,
}

/// The reading side.
#[derive(Clone, Debug)]
pub(super) struct RingReader {
    place: RingLocation,
    class: Class,
    head: u32,
    shown: u32,
    tail: u32,
}

impl RingLocation {
    /// Returns the byte of word `counter`, from the ring's beginning.
    #[inline]
    fn byte(self, counter: u32) -> usize {
        (counter & (self.words - 1)) as usize * WORD
    }

    fn length(self) -> usize {
        self.words as usize * WORD
    }

    /// Returns where a record that begins with word `counter` lies in the segment, if it lies there
    /// in one piece.
    #[inline]
    fn whole(self, counter: u32, opening: RecordHeader) -> Option<usize> {
        let from = self.byte(counter);
        (from + opening.words() as usize * WORD <= self.length()).then_some(self.start + from)
    }

    /// Calls `copy` for the one or two stretches of `length` bytes, `ahead` bytes behind the
    /// beginning of word `counter`: with their places in the segment and in the bytes copied.
    fn stretches(
        self,
        counter: u32,
        ahead: usize,
        length: usize,
        mut copy: impl FnMut(usize, usize, usize),
    ) {
        let mut from = self.byte(counter) + ahead;
        if from >= self.length() {
            from -= self.length();
        }
        let first = length.min(self.length() - from);
        copy(self.start + from, 0, first);
        if first < length {
            copy(self.start, first, length);
        }
    }
}

impl RingWriter {
    pub(super) fn new(place: RingLocation, class: Class) -> Self {
        Self { place, class, tail: 0, shown: 0, head: 0 }
    }

    /// Returns how many words are free, by a fresh look at the reader's counter.
    pub(super) fn free(&mut self, segment: &SegmentMapping) -> Result<u32, CorruptRing> {
        let head = segment.half(self.place.head).load(Ordering::SeqCst);
        if self.tail.wrapping_sub(head) > self.tail.wrapping_sub(self.head) {
            return Err(CorruptRing);
        }
        self.head = head;
        Ok(self.place.words - self.tail.wrapping_sub(head))
    }

    /// Returns whether a ring that was found full has room again, for a stretch and not only for
    /// one record.
    pub(super) fn has_room(&mut self, segment: &SegmentMapping) -> Result<bool, CorruptRing> {
        Ok(self.free(segment)? >= room_words(self.place.words))
    }

    /// Returns whether a record of `words` fits.
    #[inline]
    pub(super) fn fits(
        &mut self,
        segment: &SegmentMapping,
        words: u32,
    ) -> Result<RingRoom, CorruptRing> {
        let free = self.place.words - self.tail.wrapping_sub(self.head);
        if free >= words || self.free(segment)? >= words {
            Ok(RingRoom::Enough)
        } else {
            Ok(RingRoom::Full)
        }
    }

    /// Writes a record, if there is room; the reader does not see it before [`RingWriter::show`].
    #[inline]
    pub(super) fn put(
        &mut self,
        segment: &SegmentMapping,
        opening: RecordHeader,
        head: &[u8],
        body: &[u8],
    ) -> Result<RingRoom, CorruptRing> {
        if self.fits(segment, opening.words())? == RingRoom::Full {
            return Ok(RingRoom::Full);
        }
        if let Some(at) = self.place.whole(self.tail, opening) {
            segment.put(at, opening.word(), [head, body]);
        } else {
            self.put_in_pieces(segment, opening, head, body);
        }
        self.tail = self.tail.wrapping_add(opening.words());
        Ok(RingRoom::Enough)
    }

    #[cold]
    fn put_in_pieces(
        &self,
        segment: &SegmentMapping,
        opening: RecordHeader,
        head: &[u8],
        body: &[u8],
    ) {
        segment.put(self.place.start + self.place.byte(self.tail), opening.word(), [&[], &[]]);
        for (ahead, bytes) in [(WORD, head), (WORD + head.len(), body)] {
            self.place.stretches(self.tail, ahead, bytes.len(), |at, from, to| {
                segment.write(at, &bytes[from..to])
            });
        }
    }

    /// Returns how many words were written that the reader was not shown.
    #[inline]
    pub(super) fn hidden(&self) -> u32 {
        self.tail.wrapping_sub(self.shown)
    }

    /// Puts the words not shown into the slot, if they are one record in one piece. Now and not
    /// when it was put: the reader looks at this line all the time, and each of its looks between
    /// two stores makes the line change hands once more.
    #[inline]
    fn show_copy(&self, segment: &SegmentMapping, hidden: u32) {
        let from = self.place.byte(self.shown);
        if from + hidden as usize * WORD <= self.place.length() {
            let from = self.place.start + from;
            slot::write(
                segment,
                self.place.slot,
                slot::stamp(self.class, self.shown),
                from,
                hidden as usize,
            );
        }
    }

    /// Shows the reader everything written; returns whether that was anything. A writer that then
    /// looks whether the reader sleeps puts a sequentially consistent fence between.
    #[inline]
    pub(super) fn show(&mut self, segment: &SegmentMapping) -> bool {
        match self.hidden() {
            0 => return false,
            hidden if hidden <= SHORT_WORDS => self.show_copy(segment, hidden),
            _ => {}
        }
        segment.half(self.place.tail).store(self.tail, Ordering::Release);
        self.shown = self.tail;
        true
    }
}

impl RingReader {
    pub(super) fn new(place: RingLocation, class: Class) -> Self {
        Self { place, class, head: 0, shown: 0, tail: 0 }
    }

    /// Returns whether there is a record, when the writer's counter is `tail`.
    #[inline]
    pub(super) fn is_ready(&self, tail: u32) -> bool {
        self.tail != self.head || tail != self.head
    }

    /// Takes the next record: its header into `head`, its body to the beginning of `into`.
    ///
    /// `None` when there is no record, or when its body is longer than `into`.
    #[inline]
    pub(super) fn take(
        &mut self,
        segment: &SegmentMapping,
        head: &mut [u8; HEAD_MAX],
        into: &mut [u8],
    ) -> Result<Option<RecordHeader>, CorruptRing> {
        if self.tail == self.head && !self.look(segment)? {
            return Ok(None);
        }
        // A short record is in the slot when it is the latest, and then it is also all that there
        // is.
        if self.tail.wrapping_sub(self.head) <= SHORT_WORDS
            && let Some(short) = head.first_chunk_mut()
            && let Some(word) =
                slot::read(segment, self.place.slot, slot::stamp(self.class, self.head), short)
        {
            return self.take_short(word, short, into);
        }
        let word =
            segment.word(self.place.start + self.place.byte(self.head)).load(Ordering::Relaxed);
        let opening = self.check(word)?;
        let (Some(head), Some(body)) = (head.get_mut(..opening.head), into.get_mut(..opening.body))
        else {
            return Ok(None);
        };
        if let Some(at) = self.place.whole(self.head, opening) {
            segment.take(at + WORD, [head, body]);
        } else {
            self.take_in_pieces(segment, head, body);
        }
        self.head = self.head.wrapping_add(opening.words());
        Ok(Some(opening))
    }

    #[cold]
    fn take_in_pieces(&self, segment: &SegmentMapping, head: &mut [u8], body: &mut [u8]) {
        for (ahead, bytes) in [(WORD + head.len(), body), (WORD, head)] {
            self.place.stretches(self.head, ahead, bytes.len(), |at, from, to| {
                segment.read(at, &mut bytes[from..to])
            });
        }
    }

    /// Looks at the writer's counter; whether there is a record.
    fn look(&mut self, segment: &SegmentMapping) -> Result<bool, CorruptRing> {
        let tail = segment.half(self.place.tail).load(Ordering::SeqCst);
        if tail.wrapping_sub(self.head) > self.place.words {
            return Err(CorruptRing);
        }
        self.tail = tail;
        Ok(tail != self.head)
    }

    fn check(&self, word: u64) -> Result<RecordHeader, CorruptRing> {
        let opening = record::parse(word).ok_or(CorruptRing)?;
        if opening.words() > self.tail.wrapping_sub(self.head) {
            Err(CorruptRing)
        } else {
            Ok(opening)
        }
    }

    /// Takes a record whose header and body are in `bytes`.
    #[inline]
    fn take_short(
        &mut self,
        word: u64,
        bytes: &[u8; SHORT],
        into: &mut [u8],
    ) -> Result<Option<RecordHeader>, CorruptRing> {
        let opening = self.check(word)?;
        if opening.body > 0 {
            let body = bytes.get(opening.head..opening.head + opening.body).ok_or(CorruptRing)?;
            let Some(place) = into.get_mut(..opening.body) else { return Ok(None) };
            place.copy_from_slice(body);
        }
        self.head = self.head.wrapping_add(opening.words());
        Ok(Some(opening))
    }

    /// Returns whether the writer, if it found the ring full, would call it empty enough again.
    pub(super) fn has_room(&self, segment: &SegmentMapping) -> bool {
        let tail = segment.half(self.place.tail).load(Ordering::SeqCst);
        self.place.words.saturating_sub(tail.wrapping_sub(self.head))
            >= room_words(self.place.words)
    }

    /// Shows the writer what was read, if that is enough to be worth it; returns whether it was.
    #[inline]
    pub(super) fn show(&mut self, segment: &SegmentMapping) -> bool {
        if self.head.wrapping_sub(self.shown) < self.place.words / 4 {
            return false;
        }
        segment.half(self.place.head).store(self.head, Ordering::SeqCst);
        self.shown = self.head;
        true
    }
}

#[cfg(test)]
mod tests {
    use super::super::layout::{RING_MIN, SegmentLayout};
    use super::super::record::RecordKind;
    use super::*;
    use proptest::prelude::*;

    /// Header and body.
    type RingRecord = (Vec<u8>, Vec<u8>);

    struct RingPair {
        segment: SegmentMapping,
        writer: RingWriter,
        reader: RingReader,
    }

    impl RingPair {
        fn new() -> Self {
            let layout = SegmentLayout::new(1, RING_MIN);
            let place = layout.place(0, Class::Control);
            let (_, segment) = SegmentMapping::create(layout.segment_length()).expect("memory");
            let (writer, reader) =
                (RingWriter::new(place, Class::Control), RingReader::new(place, Class::Control));
            Self { segment, writer, reader }
        }

        fn put(&mut self, head: &[u8], body: &[u8]) -> Result<RingRoom, CorruptRing> {
            let opening =
                RecordHeader { kind: RecordKind::Message, head: head.len(), body: body.len() };
            self.writer.put(&self.segment, opening, head, body)
        }

        fn take(&mut self) -> Result<Option<RingRecord>, CorruptRing> {
            let (mut head, mut into) = ([0; HEAD_MAX], vec![0; record::BODY_MAX]);
            let taken = self.reader.take(&self.segment, &mut head, &mut into)?;
            self.reader.show(&self.segment);
            Ok(taken.map(|opening| (head[..opening.head].to_vec(), into[..opening.body].to_vec())))
        }
    }

    #[test]
    fn take__sees_nothing_before_it_was_shown() {
        let mut pair = RingPair::new();
        assert_eq!(pair.put(b"head", b"body"), Ok(RingRoom::Enough));
        assert_eq!(pair.take(), Ok(None));
        assert!(pair.writer.show(&pair.segment) && !pair.writer.show(&pair.segment));
        assert_eq!(pair.take(), Ok(Some((b"head".to_vec(), b"body".to_vec()))));
        assert_eq!(pair.take(), Ok(None));
    }

    #[test]
    fn take__a_body_longer_than_the_place_for_it_stays() {
        let mut pair = RingPair::new();
        pair.put(b"", b"body").expect("sound");
        pair.writer.show(&pair.segment);
        assert!(
            pair.reader
                .take(&pair.segment, &mut [0; HEAD_MAX], &mut [0; 3])
                .expect("sound")
                .is_none()
        );
        assert_eq!(pair.take(), Ok(Some((vec![], b"body".to_vec()))));
    }

    #[test]
    fn put__a_full_ring_takes_nothing_until_the_reader_shows_that_it_read() {
        let mut pair = RingPair::new();
        let words = pair.writer.place.words;
        for _ in 0..words / 2 {
            assert_eq!(pair.put(b"x", b""), Ok(RingRoom::Enough));
        }
        assert_eq!(pair.put(b"x", b""), Ok(RingRoom::Full));
        pair.writer.show(&pair.segment);
        assert_eq!(pair.writer.has_room(&pair.segment), Ok(false));
        assert!(!pair.reader.has_room(&pair.segment));
        while pair.reader.take(&pair.segment, &mut [0; HEAD_MAX], &mut []).expect("sound").is_some()
        {
        }
        assert_eq!(pair.put(b"x", b""), Ok(RingRoom::Full), "read, but not shown");
        assert!(pair.reader.show(&pair.segment) && !pair.reader.show(&pair.segment));
        assert_eq!(pair.writer.has_room(&pair.segment), Ok(true));
        assert_eq!(pair.put(b"x", b""), Ok(RingRoom::Enough));
    }

    /// Writes a good record, too long for the slot, lets `break_it` change the segment, and reads.
    fn read_after(break_it: impl Fn(&RingPair)) -> Result<Option<RingRecord>, CorruptRing> {
        let mut pair = RingPair::new();
        pair.put(b"head", &[7; 100]).expect("sound");
        pair.writer.show(&pair.segment);
        break_it(&pair);
        pair.take()
    }

    #[test]
    fn take__a_writer_that_counts_or_measures_wrongly_is_corrupt() {
        let tail = |value: u32| {
            read_after(move |pair| {
                pair.segment.half(pair.writer.place.tail).store(value, Ordering::Relaxed)
            })
        };
        assert!(tail(14).is_ok());
        assert_eq!(tail(13), Err(CorruptRing), "less than the record");
        assert_eq!(tail(RING_MIN.0 as u32 / 8 + 1), Err(CorruptRing), "more than the ring holds");
        assert_eq!(tail(u32::MAX), Err(CorruptRing), "backwards");
        for word in [
            0,
            1 << 40 | 1,
            RecordHeader { kind: RecordKind::Message, head: 80, body: 8_192 }.word(),
            u64::MAX,
        ] {
            let got = read_after(|pair| {
                pair.segment.word(pair.writer.place.start).store(word, Ordering::Relaxed)
            });
            assert_eq!(got, Err(CorruptRing), "{word:#x}");
        }
    }

    #[test]
    fn take__a_slot_that_measures_wrongly_is_corrupt() {
        let word = |head, body| RecordHeader { kind: RecordKind::Message, head, body }.word();
        for wrong in [0, word(80, 9), word(0, 8_192), word(81, 0), u64::MAX] {
            let mut pair = RingPair::new();
            pair.put(b"head", b"body").expect("sound");
            pair.writer.show(&pair.segment);
            pair.segment.word(pair.writer.place.slot + 8).store(wrong, Ordering::Relaxed);
            assert_eq!(pair.take(), Err(CorruptRing), "{wrong:#x}");
        }
    }

    #[test]
    fn take__without_its_copy_a_short_record_comes_from_the_ring() {
        let mut pair = RingPair::new();
        pair.put(b"head", b"body").expect("sound");
        pair.writer.show(&pair.segment);
        pair.segment.word(pair.writer.place.slot).store(0, Ordering::Relaxed);
        assert_eq!(pair.take(), Ok(Some((b"head".to_vec(), b"body".to_vec()))));
    }

    #[test]
    fn free__a_reader_that_counts_wrongly_is_corrupt_and_gives_no_room() {
        for wrong in [1_023, 1_201, u32::MAX] {
            let mut pair = RingPair::new();
            for _ in 0..600 {
                pair.put(b"x", b"").expect("sound");
                pair.writer.show(&pair.segment);
                pair.take().expect("sound");
            }
            assert_eq!(
                pair.writer.free(&pair.segment),
                Ok(4_096 - 176),
                "shown when a quarter, 1024 words, was read"
            );
            pair.segment.half(pair.writer.place.head).store(wrong, Ordering::Relaxed);
            assert_eq!(
                pair.writer.free(&pair.segment),
                Err(CorruptRing),
                "{wrong} after 1024, of 1200"
            );
        }
    }

    proptest! {
        #[test]
        fn put_take__what_goes_in_comes_out_in_order(
            lengths in prop::collection::vec((0usize..=HEAD_MAX, 0usize..=record::BODY_MAX), 1..60),
            lag in 0usize..4,
        ) {
            let mut pair = RingPair::new();
            let mut waiting = std::collections::VecDeque::new();
            for (i, (head, body)) in lengths.into_iter().enumerate() {
                let record = (vec![i as u8; head], (0..body).map(|at| (at % 251) as u8).collect::<Vec<u8>>());
                while waiting.len() > lag || pair.put(&record.0, &record.1) == Ok(RingRoom::Full) {
                    pair.writer.show(&pair.segment);
                    prop_assert_eq!(pair.take(), Ok(waiting.pop_front()));
                }
                waiting.push_back(record);
            }
            pair.writer.show(&pair.segment);
            for record in waiting {
                prop_assert_eq!(pair.take(), Ok(Some(record)));
            }
            prop_assert_eq!(pair.take(), Ok(None));
        }

        #[test]
        fn take__any_bytes_are_answered(
            bytes in prop::collection::vec(any::<u8>(), 0..512), tail in any::<u32>(), small in 0u32..600
        ) {
            for tail in [tail, small] {
                let mut pair = RingPair::new();
                pair.segment.write(pair.writer.place.start, &bytes);
                pair.segment.half(pair.writer.place.tail).store(tail, Ordering::Relaxed);
                let mut takes = 0;
                while let Ok(Some(_)) = pair.take() {
                    takes += 1;
                    prop_assert!(takes <= pair.reader.place.words);
                }
            }
        }
    }
}
