//! Applies records of far PEs to this PE's memory.

use std::sync::atomic::{Ordering, fence};

use clearway_proto::base::{ByteReader, Rank};
use clearway_proto::queue::{
    AtomicRun, AtomicStep, HeapAccess, Place as FarPlace, QueueEvent, QueueNode, Ticket,
    WordChange, WordWidth, apply,
};
use clearway_proto::wire::{Applier, Fault};
use clearway_runtime::attend::Application;
use clearway_runtime::near::{LINES, Line, MappedPart, SLOTS};

use super::Far;
use crate::address::{Caller, PREFETCH_AHEAD, Place, Segment};
use crate::job::Job;
use crate::word::Integer;

/// Bytes of a line, on which PEs wait for each other.
pub(super) const LINE: usize = 64;

/// Returns where a line lies in its segment.
pub(super) const fn line_offset(owner: usize, slot: usize, line: usize) -> u64 {
    (((owner * SLOTS + slot) * LINES + line) * LINE) as u64
}

/// Returns the bytes of a line: its epoch and its payload.
pub(super) fn line_bytes(line: &Line) -> [u8; LINE] {
    let mut bytes = [0; LINE];
    let epoch = u64::from(line.epoch.load(Ordering::Acquire));
    let words = line.payload.iter().map(|word| word.load(Ordering::Relaxed));
    let words = std::iter::once(epoch).chain(words);
    bytes
        .chunks_exact_mut(8)
        .zip(words)
        .for_each(|(to, word)| to.copy_from_slice(&word.to_le_bytes()));
    bytes
}

/// This PE as the target of records and events.
pub(super) struct Local<'a> {
    pub(super) far: &'a Far,
    pub(super) job: &'static Job,
}

impl Local<'_> {
    fn place(&self, at: FarPlace, bytes: usize) -> Result<Place, Fault> {
        let segment = Segment::from_number(at.segment).ok_or(Fault::Malformed)?;
        self.job.segments.own_place(segment, at.offset, bytes).ok_or(Fault::Malformed)
    }

    /// Finds the line at `at`.
    fn line(&self, at: FarPlace) -> Result<&'static Line, Fault> {
        let number = usize::try_from(at.offset / LINE as u64).map_err(|_| Fault::Malformed)?;
        let (owner, slot, line) = (number / LINES / SLOTS, number / LINES % SLOTS, number % LINES);
        let is_line = owner < self.job.segments.pes() && at.offset.is_multiple_of(LINE as u64);
        if is_line { Ok(self.job.near.line(owner, slot, line)) } else { Err(Fault::Malformed) }
    }

    /// Writes the line of a far PE.
    fn put_line(&self, at: FarPlace, bytes: &[u8]) -> Result<(), Fault> {
        let line = self.line(at)?;
        let mut rest = ByteReader::new(bytes);
        let epoch = rest.u64().ok_or(Fault::Malformed)?;
        for word in &line.payload {
            word.store(rest.u64().ok_or(Fault::Malformed)?, Ordering::Relaxed);
        }
        line.reach(epoch as u32, self.job.near.waking());
        Ok(())
    }
}

/// Applies `change` to the word at `place`.
fn change<T: Integer>(
    place: Place,
    change: WordChange,
    bits: impl Fn(u64) -> T,
) -> Result<T, Fault> {
    let word = place.word::<T>().ok_or(Fault::Malformed)?;
    let operand = bits(change.operand);
    Ok(match change.step {
        AtomicStep::Fetch => T::load(word, Ordering::Acquire),
        AtomicStep::Set => T::swap(word, operand),
        AtomicStep::Add => T::fetch_add(word, operand),
        AtomicStep::And => T::fetch_and(word, operand),
        AtomicStep::Or => T::fetch_or(word, operand),
        AtomicStep::Xor => T::fetch_xor(word, operand),
        AtomicStep::CompareSwap => T::compare_swap(word, bits(change.compare), operand),
    })
}

/// Changes each word of `run` by `update`.
#[inline(always)]
fn change_each<T: Integer>(
    part: MappedPart,
    run: AtomicRun<'_>,
    update: impl Fn(&T::Atomic),
) -> Result<(), Fault> {
    let place = |offset: u64| Place::in_part(part, usize::try_from(offset).ok()?, size_of::<T>());
    let mut later = run.offsets().skip(PREFETCH_AHEAD);
    run.offsets().try_for_each(|offset| {
        if let Some(later) = later.next().and_then(place) {
            later.prefetch();
        }
        update(place(offset).and_then(Place::word::<T>).ok_or(Fault::Malformed)?);
        Ok(())
    })
}

impl HeapAccess for Local<'_> {
    #[inline]
    fn put(&mut self, at: FarPlace, bytes: &[u8]) -> Result<(), Fault> {
        if at.segment == Segment::Lines as u8 {
            return self.put_line(at, bytes);
        }
        let place = self.place(at, bytes.len())?;
        // A word may be a flag for what was put before it.
        fence(Ordering::Release);
        place.put(Caller::from_slice(bytes), bytes.len());
        Ok(())
    }

    #[inline]
    fn get(&mut self, at: FarPlace, into: &mut [u8]) -> Result<(), Fault> {
        if at.segment == Segment::Lines as u8 {
            let bytes = line_bytes(self.line(at)?);
            into.copy_from_slice(bytes.get(..into.len()).ok_or(Fault::Malformed)?);
            return Ok(());
        }
        let place = self.place(at, into.len())?;
        let length = into.len();
        place.get(Caller::from_slice_mut(into), length);
        Ok(())
    }

    #[inline]
    fn atomic(&mut self, at: FarPlace, how: WordChange) -> Result<u64, Fault> {
        let place = self.place(at, how.width.bytes())?;
        match how.width {
            WordWidth::Eight => change::<u64>(place, how, |word| word),
            WordWidth::Four => change::<u32>(place, how, |word| word as u32).map(u64::from),
            WordWidth::Two => change::<u16>(place, how, |word| word as u16).map(u64::from),
            WordWidth::One => Err(Fault::Malformed),
        }
    }

    #[inline]
    fn atomics(&mut self, run: AtomicRun<'_>) -> Result<(), Fault> {
        let (segment, WordChange { step, width, operand, .. }) = (run.segment(), run.change);
        let part = Segment::from_number(segment).and_then(|one| self.job.segments.own_part(one));
        let part = part.ok_or(Fault::Malformed)?;
        match (step, width) {
            (AtomicStep::Add, WordWidth::Eight) => change_each::<u64>(part, run, |word| {
                u64::fetch_add(word, operand);
            }),
            (AtomicStep::Add, WordWidth::Four) => {
                let operand = operand as u32;
                change_each::<u32>(part, run, |word| {
                    u32::fetch_add(word, operand);
                })
            }
            _ => run.offsets().try_for_each(|offset| {
                self.atomic(FarPlace { segment, offset }, run.change).map(drop)
            }),
        }
    }

    fn data(&mut self, _from: Rank, _queue: u32, _bytes: &[u8]) -> Result<(), Fault> {
        // Elements of data queues are puts into channels.
        Err(Fault::Malformed)
    }

    #[inline]
    fn fetched(&mut self, from: Rank, ticket: Ticket, bytes: &[u8]) -> Result<(), Fault> {
        self.far.tickets.answer(from, ticket, bytes)
    }
}

impl Applier for Local<'_> {
    fn apply(&mut self, from: Rank, records: &[u8], answer: &mut [u8]) -> Result<usize, Fault> {
        apply(self, from, records, answer)
    }
}

impl Application<QueueNode> for Local<'_> {
    fn event(&mut self, event: QueueEvent) {
        self.far.handle(self.job, event);
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::AtomicU64;

    use clearway_proto::queue::{Element, OpenBuffer, Push, QueueLimits};
    use clearway_proto::wire::Span;

    use super::*;

    /// Counters of 64 bits, and nothing else.
    struct Counters(MappedPart);

    impl HeapAccess for Counters {
        fn put(&mut self, _: FarPlace, _: &[u8]) -> Result<(), Fault> {
            Err(Fault::Malformed)
        }
        fn get(&mut self, _: FarPlace, _: &mut [u8]) -> Result<(), Fault> {
            Err(Fault::Malformed)
        }
        fn atomic(&mut self, _: FarPlace, _: WordChange) -> Result<u64, Fault> {
            Err(Fault::Malformed)
        }
        fn atomics(&mut self, run: AtomicRun<'_>) -> Result<(), Fault> {
            let operand = run.change.operand;
            change_each::<u64>(self.0, run, |word| {
                u64::fetch_add(word, operand);
            })
        }
        fn data(&mut self, _: Rank, _: u32, _: &[u8]) -> Result<(), Fault> {
            Err(Fault::Malformed)
        }
        fn fetched(&mut self, _: Rank, _: Ticket, _: &[u8]) -> Result<(), Fault> {
            Err(Fault::Malformed)
        }
    }

    /// Returns the records of additions of 5 to the words at `offsets`.
    fn additions(offsets: &[u64]) -> Vec<u8> {
        let mut bytes = vec![0; 256];
        let limits = QueueLimits { batch: 256, answer: 64, element: 44, window: 4, requests: 2 };
        let mut open = OpenBuffer::new(&limits);
        for offset in offsets {
            let change = WordChange::new(AtomicStep::Add, WordWidth::Eight, 5);
            let at = FarPlace { segment: 0, offset: *offset };
            assert_eq!(open.push(&mut bytes, Element::Atomic { at, change }), Push::Kept);
        }
        bytes.truncate(open.length());
        let _ = open.close(&mut bytes, Span::EMPTY);
        bytes
    }

    #[test]
    fn change_each__a_word_that_leaves_the_segment_or_lies_askew_ends_the_run() {
        for (outside, name) in
            [(32, "behind"), (u64::MAX - 7, "before"), (25, "askew"), (28, "both")]
        {
            let words: Vec<AtomicU64> = (0..5).map(Into::into).collect();
            let part = MappedPart { start: words.as_ptr().expose_provenance(), length: 32 };
            let bytes = additions(&[24, 0, 0, outside, 8]);
            let done = apply(&mut Counters(part), Rank(0), &bytes, &mut []);
            let now: Vec<u64> = words.into_iter().map(AtomicU64::into_inner).collect();
            assert_eq!((done, now), (Err(Fault::Malformed), vec![10, 1, 2, 8, 4]), "{name}");
        }
    }
}
