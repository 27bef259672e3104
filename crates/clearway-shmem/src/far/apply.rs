//! What records of far PEs do to this PE's memory.

use std::sync::atomic::{Ordering, fence};

use clearway_proto::base::{ByteReader, Rank};
use clearway_proto::queue::{
    AtomicStep, HeapAccess, Place as FarPlace, QueueEvent, QueueNode, Ticket, WordChange,
    WordWidth, apply,
};
use clearway_proto::wire::{Applier, Fault};
use clearway_runtime::attend::Application;
use clearway_runtime::near::{LINES, Line, SLOTS};

use super::Far;
use crate::address::{Caller, Place, Segment};
use crate::job::Job;
use crate::word::Integer;

/// Bytes of a line, by which PEs wait for each other.
pub(super) const LINE: usize = 64;

/// Returns where a line lies in its segment.
pub(super) const fn line_offset(owner: usize, slot: usize, line: usize) -> u64 {
    (((owner * SLOTS + slot) * LINES + line) * LINE) as u64
}

/// The bytes of a line: its epoch, and what goes with it.
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

/// This PE, as records and events reach it.
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

    /// Writes what a far PE says in its line.
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
        self.far.hear(self.job, event);
    }
}
