//! An input's memory: microslices go in as they come, and leave as contributions to timeslices.
//!
//! # Model
//! Two rings in one region: descriptors, and contents. Positions are counters that only grow; a
//! place is a counter modulo the ring's length. The contribution to timeslice `t` is the
//! microslices from `t * core` on, `core + overlap` of them: their descriptors, then their
//! contents, each in two pieces where its ring ends. What timeslices share lies there once. Memory
//! is free when all timeslices that it belongs to are.
//!
//! The last timeslice of a source may have fewer microslices. An input whose source is over before
//! those of others gives *empty* contributions, a byte each, which no contribution with microslices
//! can be.
//!
//! # Source
//! FLESnet's input buffers; there what does not fill a timeslice at the end is not sent.
//!
//! # Invariants
//! I1. Nothing that a contribution names is written over before its timeslice is free.
//! I2. Every microslice is in one timeslice that does not call it overlap.

use std::collections::VecDeque;

use anyhow::{Result, bail};
use clearway_proto::base::Bytes;
use clearway_proto::microslice::MicrosliceDescriptor;
use clearway_proto::timeslice::ContributionSpans;
use clearway_proto::wire::{RegionId, Span};

use super::messages::TimesliceShape;
use super::stream::{MicrosliceBatch, SourceStream, StreamItem};

/// The part of the memory that descriptors take: they fill it last where contents have 480 bytes
/// and more.
const DESCRIPTORS_PART: u64 = 16;
const DESCRIPTOR: u64 = MicrosliceDescriptor::BYTES as u64;

/// A part of a region in which positions go round.
#[derive(Clone, Copy, Debug)]
struct RegionRing {
    offset: u64,
    length: u64,
    head: u64,
    tail: u64,
}

impl RegionRing {
    const fn new(offset: u64, length: u64) -> Self {
        Self { offset, length, head: 0, tail: 0 }
    }

    const fn has_room(&self, bytes: u64) -> bool {
        self.head + bytes - self.tail <= self.length
    }

    /// Returns the two spans of the bytes from position `begin` to `end`; the second one is empty
    /// unless the ring ends between them.
    fn spans(&self, region: RegionId, begin: u64, end: u64) -> [Span; 2] {
        let (at, bytes) = (begin % self.length, end - begin);
        let first = bytes.min(self.length - at);
        let span =
            |offset, length| Span { region, offset: self.offset + offset, length: length as u32 };
        [span(at, first), span(0, bytes - first)]
    }

    /// Appends `bytes`, for which there is room, to the ring in `memory`.
    fn write(&mut self, memory: &mut [u8], bytes: &[u8]) {
        let at = (self.head % self.length) as usize;
        let (first, second) = bytes.split_at(bytes.len().min(self.length as usize - at));
        let begin = self.offset as usize;
        memory[begin + at..begin + at + first.len()].copy_from_slice(first);
        memory[begin..begin + second.len()].copy_from_slice(second);
        self.head += bytes.len() as u64;
    }
}

/// How far the source is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum SourceStage {
    Flowing,
    /// There are no more microslices.
    Over,
}

/// An input's memory and its source.
#[derive(Debug)]
pub(super) struct InputBuffer {
    shape: TimesliceShape,
    region: RegionId,
    descriptors: RegionRing,
    contents: RegionRing,
    stream: SourceStream,
    stage: SourceStage,
    /// What was drawn and has not gone in, and how many microslices and bytes of it have.
    batch: Option<(MicrosliceBatch, usize, usize)>,
    /// Where contents begin, from microslice `first` on; the end of the last one is the ring's
    /// head.
    begins: VecDeque<u64>,
    first: u64,
    /// Timeslices that were given.
    given: u64,
    /// How many of those, the first ones, may be given at present.
    limit: u64,
    /// The limit unless an order changes it.
    most: u64,
    /// From here on nothing is dealt with this input in mind, because it retires.
    range_end: u64,
    /// Up to here empty contributions may be given once the source is over.
    padding: u64,
    /// Archives that ended with a cut item.
    pub(super) cut: u64,
    /// Contents of all microslices given, in bytes, and how many.
    pub(super) bytes: u64,
    pub(super) microslices: u64,
}

impl InputBuffer {
    /// Gives timeslices of `shape` from `stream`, `most` at most, through `memory` bytes of
    /// `region`.
    ///
    /// # Errors
    /// When the memory is less than a timeslice needs at least.
    pub(super) fn new(
        shape: TimesliceShape,
        stream: SourceStream,
        region: RegionId,
        memory: Bytes,
        most: Option<u64>,
    ) -> Result<Self> {
        let descriptors = memory.0 / DESCRIPTORS_PART / DESCRIPTOR * DESCRIPTOR;
        if shape.all() * DESCRIPTOR > descriptors {
            let least = Bytes(shape.all() * DESCRIPTOR * DESCRIPTORS_PART);
            bail!(
                "timeslices of {} microslices need more than the {memory} of --memory; {least} would do",
                shape.all()
            );
        }
        Ok(Self {
            shape,
            region,
            descriptors: RegionRing::new(0, descriptors),
            contents: RegionRing::new(descriptors, memory.0 - descriptors),
            stream,
            stage: SourceStage::Flowing,
            batch: None,
            begins: VecDeque::new(),
            first: 0,
            given: 0,
            limit: most.unwrap_or(u64::MAX),
            most: most.unwrap_or(u64::MAX),
            range_end: u64::MAX,
            padding: 0,
            cut: 0,
            bytes: 0,
            microslices: 0,
        })
    }

    /// Returns what can be read when there may be more to do.
    pub(super) const fn stream(&self) -> &SourceStream {
        &self.stream
    }

    /// Returns how many timeslices were given.
    pub(super) const fn given(&self) -> u64 {
        self.given
    }

    /// Gives no more for now.
    pub(super) const fn hold(&mut self) {
        self.limit = self.given;
    }

    /// Gives them up to this timeslice, empty ones if there are no others.
    pub(super) fn resume_at(&mut self, timeslice: u64) {
        self.limit = self.limit.max(timeslice);
        self.padding = timeslice;
    }

    /// Lets all that it has be given.
    pub(super) const fn open(&mut self) {
        self.limit = self.most;
    }

    /// Retires the input: from `timeslice` on nobody builds anything with it. What was given of
    /// that stays here.
    pub(super) fn retire(&mut self, timeslice: u64) {
        self.range_end = timeslice;
        let core = u64::from(self.shape.core);
        let [begin, end] = [timeslice, self.given]
            .map(|given| given.saturating_mul(core).clamp(self.first, self.end()));
        if begin < end {
            self.microslices -= end - begin;
            self.bytes -= self.begin_of(end) - self.begin_of(begin);
        }
        self.given = self.given.min(timeslice);
    }

    /// Lets the input join: from `timeslice` on it is built with again; what it has for earlier
    /// ones is passed over. Nothing is given before [`InputBuffer::open`].
    pub(super) fn join(&mut self, timeslice: u64) {
        (self.range_end, self.limit, self.padding, self.given) =
            (u64::MAX, timeslice, 0, timeslice);
        self.free(timeslice);
    }

    /// Returns the first timeslice that may not be given at present.
    fn limit(&self) -> u64 {
        self.limit.min(self.range_end)
    }

    /// Returns whether nothing will be given without an order to go on.
    pub(super) fn is_at_rest(&self) -> bool {
        let is_over = self.stage == SourceStage::Over
            && self.given * u64::from(self.shape.core) >= self.end();
        self.given >= self.limit() || is_over && self.given >= self.padding
    }

    /// Returns the microslice behind the last one that is there.
    fn end(&self) -> u64 {
        self.first + self.begins.len() as u64
    }

    /// Frees all timeslices below this one.
    pub(super) fn free(&mut self, timeslice: u64) {
        let first = timeslice.saturating_mul(u64::from(self.shape.core)).min(self.end());
        while self.first < first {
            self.begins.pop_front();
            self.first += 1;
        }
        self.contents.tail = self.begins.front().copied().unwrap_or(self.contents.head);
        self.descriptors.tail = self.first * DESCRIPTOR;
    }

    /// Takes microslices into `memory` as far as there is room, and hands `give` the contributions
    /// that became whole.
    ///
    /// # Errors
    /// When the source cannot go on, or one timeslice needs more than all the memory.
    pub(super) fn pump(
        &mut self,
        memory: &mut [u8],
        give: &mut dyn FnMut(ContributionSpans),
    ) -> Result<()> {
        loop {
            self.give(give);
            if self.given >= self.limit() || !self.take(memory)? {
                return Ok(());
            }
        }
    }

    /// Gives what is whole.
    fn give(&mut self, give: &mut dyn FnMut(ContributionSpans)) {
        let core = u64::from(self.shape.core);
        while self.given < self.limit() {
            let (begin, whole) = (self.given * core, self.given * core + self.shape.all());
            let end = match self.stage {
                SourceStage::Flowing if self.end() < whole => return,
                SourceStage::Over if begin >= self.end() => break,
                _ => whole.min(self.end()),
            };
            let [from, to] = [begin, end].map(|at| self.begin_of(at));
            let descriptors =
                self.descriptors.spans(self.region, begin * DESCRIPTOR, end * DESCRIPTOR);
            let contents = self.contents.spans(self.region, from, to);
            give(
                ContributionSpans::new(descriptors.into_iter().chain(contents))
                    .expect("four spans, of which one has a descriptor"),
            );
            self.given += 1;
            let core_end = (begin + core).min(end);
            self.microslices += core_end - begin;
            self.bytes += self.begin_of(core_end) - from;
        }
        while self.stage == SourceStage::Over && self.given < self.padding.min(self.limit()) {
            let byte = Span { region: self.region, offset: self.contents.offset, length: 1 };
            give(ContributionSpans::new([byte]).expect("a span"));
            self.given += 1;
        }
    }

    /// Returns where the content of a microslice begins that is there, or the one behind the last.
    fn begin_of(&self, microslice: u64) -> u64 {
        self.begins.get((microslice - self.first) as usize).copied().unwrap_or(self.contents.head)
    }

    /// Takes what there is room for; whether that was anything, or the source is over now.
    fn take(&mut self, memory: &mut [u8]) -> Result<bool> {
        if self.stage == SourceStage::Over {
            return Ok(false);
        }
        let (batch, mut items, mut bytes) = match self.batch.take() {
            Some(waiting) => waiting,
            None => match self.stream.draw() {
                StreamItem::Some(batch) => (batch, 0, 0),
                StreamItem::Nothing => return Ok(false),
                StreamItem::Over(cut) => {
                    (self.stage, self.cut) = (SourceStage::Over, cut);
                    return Ok(true);
                }
                StreamItem::Failed(sentence) => bail!(sentence),
            },
        };
        let before = items;
        while let Some(descriptor) = batch.descriptors.get(items) {
            let size = descriptor.size as usize;
            if self.end() < self.given * u64::from(self.shape.core) {
                // It came while this input took no part.
                self.first += 1;
                [self.descriptors.head, self.descriptors.tail] = [self.first * DESCRIPTOR; 2];
                (items, bytes) = (items + 1, bytes + size);
                continue;
            }
            if !self.contents.has_room(size as u64) || !self.descriptors.has_room(DESCRIPTOR) {
                break;
            }
            let descriptor = MicrosliceDescriptor { offset: self.contents.head, ..*descriptor };
            self.begins.push_back(self.contents.head);
            self.descriptors.write(memory, &descriptor.to_bytes());
            self.contents.write(memory, &batch.contents[bytes..bytes + size]);
            (items, bytes) = (items + 1, bytes + size);
        }
        if items < batch.descriptors.len() {
            self.batch = Some((batch, items, bytes));
            if items == before && self.first == self.given * u64::from(self.shape.core) {
                bail!(
                    "timeslice {} alone needs more than the {} that this input holds; --memory gives it more",
                    self.given,
                    Bytes(self.contents.length)
                );
            }
        } else {
            self.stream.done_with(batch);
        }
        Ok(items > before)
    }
}
