//! The memory of an input: stores microslices, and forms contributions to timeslices from them.
//!
//! # Model
//! The region has two rings: contents, and *blocks*. A block is the head of a contribution with its
//! descriptors. [`Slicer`] decides which microslices a timeslice has. A contribution is a block, then
//! the contents, each in two pieces where its ring wraps. Contents that timeslices share are stored
//! once. Memory is free when all timeslices that use it are free.
//!
//! The last timeslice of a source may have fewer microslices. An input whose source ends before the
//! others gives contributions without microslices.
//!
//! # Source
//! FLESnet's input buffers. FLESnet does not send an incomplete timeslice at the end.
//!
//! # Invariants
//! I1. No bytes of a contribution are overwritten before its timeslice is free.
//! I2. Every kept microslice is in the core of one timeslice.

use std::collections::{BTreeMap, VecDeque};
use std::os::unix::net::UnixStream;

use anyhow::{Result, bail};
use clearway_proto::base::{Bytes, LocalNs};
use clearway_proto::microslice::{MicrosliceDescriptor, Offered, SliceCut, SliceRule, Slicer};
use clearway_proto::timeslice::ContributionSpans;
use clearway_proto::wire::RegionId;

use super::contribution::ContributionHead;
use super::ledger::SourceCounts;
use super::region_ring::RegionRing;
use super::source::MicrosliceSource;
use super::stream::{MicrosliceBatch, StreamItem};

/// The part of the memory that blocks take: they fill it last where contents have 480 bytes and
/// more.
const BLOCKS_PART: u64 = 16;
/// Bytes that are made before peers are looked after again: they stay in a second-level cache of
/// today until they are sent.
const MADE_AT_ONCE: usize = 256 << 10;
const DESCRIPTOR: u64 = MicrosliceDescriptor::BYTES as u64;

/// How far the source is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum SourceStage {
    Flowing,
    /// There are no more microslices.
    Over,
}

/// When the first microslice of a source starts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum FirstStart {
    /// Nobody knows yet.
    Awaited,
    At(u64),
    /// The source is over without one.
    Never,
}

/// A contribution that was given and is not free.
#[derive(Clone, Debug)]
struct GivenCut {
    timeslice: u64,
    /// Where its block begins.
    block: u64,
    counts: SourceCounts,
}

/// An input's memory and its source.
#[derive(Debug)]
pub(super) struct InputBuffer {
    rule: SliceRule,
    slicer: Slicer,
    region: RegionId,
    blocks: RegionRing,
    contents: RegionRing,
    source: MicrosliceSource,
    stage: SourceStage,
    /// What was drawn and has not gone in, and how many microslices and bytes of it have.
    batch: Option<(MicrosliceBatch, usize, usize)>,
    /// Memory for a content that is made and lies in two pieces.
    scratch: Vec<u8>,
    /// Microslices that are needed, their offsets positions in the ring of contents.
    kept: VecDeque<MicrosliceDescriptor>,
    /// Contributions that are not free.
    cuts: VecDeque<GivenCut>,
    /// Timeslices that were given.
    given: u64,
    /// How many of those, the first ones, may be given at present.
    limit: u64,
    /// The limit unless an order changes it.
    most: u64,
    /// From here on nothing is dealt with this input in mind, because it retires.
    range_end: u64,
    /// Up to here contributions without microslices may be given once the source is over.
    padding: u64,
    /// Archives that ended with a cut item.
    pub(super) cut: u64,
    /// What became of all microslices so far.
    counts: SourceCounts,
    /// What the source says that it offered, once it is over.
    offered: Option<u64>,
    /// Something waits for memory.
    is_full: bool,
    /// The oldest timeslice that is not free while something waits for memory, the builder that
    /// holds it, and since when.
    held: Option<HeldMemory>,
    /// How long each builder held the memory since the last batch was drawn, in ns.
    holds: BTreeMap<u32, u64>,
    /// The builder that held it longest while the source filled the batch that was drawn.
    holder: Option<u32>,
}

/// Memory that something waits for.
#[derive(Clone, Copy, Debug)]
struct HeldMemory {
    timeslice: u64,
    builder: Option<u32>,
    since: LocalNs,
}

impl InputBuffer {
    /// Gives timeslices cut by `rule` from `source`, `most` at most, through `memory` bytes of
    /// `region`.
    ///
    /// # Errors
    /// When the memory is less than a timeslice needs at least.
    pub(super) fn new(
        rule: SliceRule,
        source: MicrosliceSource,
        region: RegionId,
        memory: Bytes,
        most: Option<u64>,
    ) -> Result<Self> {
        let blocks = memory.0 / BLOCKS_PART / DESCRIPTOR * DESCRIPTOR;
        if let SliceRule::ByIndex { core, overlap } = rule {
            let count = u64::from(core) + u64::from(overlap);
            if block_bytes(count) > blocks {
                let least = Bytes((count + 1) * DESCRIPTOR * BLOCKS_PART);
                bail!(
                    "timeslices of {count} microslices need more than the {memory} of --memory; {least} would do"
                );
            }
        }
        Ok(Self {
            rule,
            slicer: Slicer::new(rule),
            region,
            blocks: RegionRing::new(0, blocks),
            contents: RegionRing::new(blocks, memory.0 - blocks),
            source,
            stage: SourceStage::Flowing,
            batch: None,
            scratch: Vec::new(),
            kept: VecDeque::new(),
            cuts: VecDeque::new(),
            given: 0,
            limit: most.unwrap_or(u64::MAX),
            most: most.unwrap_or(u64::MAX),
            range_end: u64::MAX,
            padding: 0,
            cut: 0,
            counts: SourceCounts::default(),
            offered: None,
            is_full: false,
            held: None,
            holds: BTreeMap::new(),
            holder: None,
        })
    }

    /// Returns what can be read when there may be more to do.
    pub(super) const fn wake_signal(&self) -> Option<&UnixStream> {
        self.source.wake_signal()
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

    /// Lets all that it has be given, where timeslices are cut by time from `origin` on.
    pub(super) fn open(&mut self, now: LocalNs, origin: Option<u64>) {
        self.limit = self.most;
        self.source.begin();
        if let Some(origin) = origin {
            self.set_origin(now, origin);
        }
    }

    /// Cuts by time from this stretch on, unless it does so already.
    pub(super) fn set_origin(&mut self, now: LocalNs, origin: u64) {
        self.slicer.set_origin(now, origin);
    }

    /// Retires the input: from `timeslice` on nobody builds anything with it. What was given of
    /// that stays here.
    pub(super) fn retire(&mut self, timeslice: u64) {
        self.range_end = timeslice;
        for cut in self.cuts.iter().rev().take_while(|cut| cut.timeslice >= timeslice) {
            self.counts.take_back(&cut.counts);
        }
        self.given = self.given.min(timeslice);
    }

    /// Lets the input join: from `timeslice` on it is built with again; what it has for earlier
    /// ones is passed over. Nothing is given before [`InputBuffer::open`].
    pub(super) fn join(&mut self, timeslice: u64) {
        (self.range_end, self.limit, self.padding, self.given) =
            (u64::MAX, timeslice, 0, timeslice);
        // What was taken back of these is given again.
        for cut in self.cuts.drain(..).filter(|cut| cut.timeslice >= timeslice) {
            self.counts.keep_again(&cut.counts);
        }
        self.slicer.join(timeslice);
        self.release();
    }

    /// Returns the first timeslice that may not be given at present.
    fn limit(&self) -> u64 {
        self.limit.min(self.range_end)
    }

    /// Returns whether nothing will be given without an order to go on.
    pub(super) fn is_at_rest(&self) -> bool {
        let is_over = self.stage == SourceStage::Over && self.slicer.is_done();
        self.given >= self.limit() || is_over && self.given >= self.padding
    }

    /// Returns when the first microslice starts.
    ///
    /// # Errors
    /// When the source cannot go on.
    pub(super) fn first_start(&mut self) -> Result<FirstStart> {
        if let MicrosliceSource::Generated(generated) = &mut self.source {
            let first = generated.peek();
            return Ok(first.map_or(FirstStart::Never, |(start, _)| FirstStart::At(start)));
        }
        if self.batch.is_none() && self.stage == SourceStage::Flowing {
            self.draw()?;
        }
        let first = self.batch.as_ref().and_then(|(batch, ..)| batch.descriptors.first());
        Ok(match first {
            Some(first) => FirstStart::At(first.index),
            None if self.stage == SourceStage::Over => FirstStart::Never,
            None => FirstStart::Awaited,
        })
    }

    /// Returns when there is something to do although nothing came.
    pub(super) fn deadline(&self) -> Option<LocalNs> {
        let is_live = self.stage == SourceStage::Flowing && self.source.is_live();
        self.slicer.deadline().filter(|_| is_live && self.given < self.limit())
    }

    /// Returns what became of all microslices.
    pub(super) fn account(&self) -> SourceCounts {
        let here = self.batch.as_ref().map_or((0, 0), |(batch, items, _)| batch.count_from(*items));
        let there = self.source.waiting();
        let (waiting, dropped) = (here.0 + there.0, here.1 + there.1);
        let counts = &self.counts;
        let mut held_back = counts.held_back.clone();
        let pending = [(here.1, self.holder), (there.1, self.longest_holder())];
        for (count, builder) in pending.into_iter().filter(|(count, _)| *count > 0) {
            builder.into_iter().for_each(|it| *held_back.entry(it).or_default() += count);
        }
        SourceCounts {
            offered: self.offered.unwrap_or(counts.offered + waiting + dropped),
            overflowed: counts.overflowed + dropped,
            unused: counts.unused + waiting,
            held_back,
            ..counts.clone()
        }
    }

    /// Returns the builder that held the memory longest since the last batch was drawn.
    fn longest_holder(&self) -> Option<u32> {
        self.holds.iter().max_by_key(|(_, held)| **held).map(|(builder, _)| *builder)
    }

    /// Notes which builder holds the memory that something waits for, where something does;
    /// `holder` says which builder has a timeslice.
    pub(super) fn note_holder(&mut self, now: LocalNs, holder: impl Fn(u64) -> Option<u32>) {
        let oldest = self.cuts.front().filter(|_| self.is_full).map(|cut| cut.timeslice);
        self.count_hold(now);
        if oldest == self.held.map(|held| held.timeslice) {
            return;
        }
        self.held = oldest.map(|timeslice| HeldMemory {
            timeslice,
            builder: holder(timeslice),
            since: now,
        });
    }

    /// Counts how long the memory was held up to now.
    fn count_hold(&mut self, now: LocalNs) {
        if let Some(HeldMemory { builder: Some(builder), since, .. }) = &mut self.held {
            *self.holds.entry(*builder).or_default() += now.since(*since).0;
            *since = now;
        }
    }

    /// Frees all timeslices below this one.
    pub(super) fn free(&mut self, timeslice: u64) {
        while self.cuts.front().is_some_and(|cut| cut.timeslice < timeslice) {
            self.cuts.pop_front();
        }
        self.slicer.free(timeslice);
        self.release();
    }

    /// Gives memory back that nothing needs.
    fn release(&mut self) {
        let needed = (self.slicer.end() - self.slicer.first()) as usize;
        let gone = self.kept.len().saturating_sub(needed);
        self.kept.drain(..gone);
        let contents = self.kept.front().map_or(self.contents.head(), |kept| kept.offset);
        let blocks = self.cuts.front().map_or(self.blocks.head(), |cut| cut.block);
        self.contents.free(contents);
        self.blocks.free(blocks);
    }

    /// Takes microslices into `memory` as far as there is room, and hands `give` the contributions
    /// that became whole. Returns whether there is more to make at once.
    ///
    /// # Errors
    /// When the source cannot go on, or one timeslice needs more than all the memory.
    pub(super) fn pump(
        &mut self,
        now: LocalNs,
        memory: &mut [u8],
        give: &mut dyn FnMut(ContributionSpans),
    ) -> Result<bool> {
        if !self.slicer.is_ready() {
            return Ok(false);
        }
        self.is_full = false;
        let mut work = MADE_AT_ONCE;
        loop {
            self.give(memory, give)?;
            // What was only seen may end a timeslice.
            let goes_on = self.given < self.limit()
                && !self.is_next_whole()
                && (self.take(now, memory, &mut work)? || self.is_next_whole());
            if !goes_on {
                return Ok(work == 0 && self.given < self.limit());
            }
        }
    }

    /// Returns whether the next contribution is whole and waits for room.
    fn is_next_whole(&self) -> bool {
        self.slicer.peek(self.padding).is_some()
    }

    /// Gives what is whole.
    fn give(&mut self, memory: &mut [u8], give: &mut dyn FnMut(ContributionSpans)) -> Result<()> {
        while self.given < self.limit()
            && let Some(cut) = self.slicer.peek(self.padding)
        {
            let count = cut.microslices.end - cut.microslices.start;
            if !self.blocks.has_room(block_bytes(count)) {
                self.is_full = true;
                if self.cuts.is_empty() {
                    self.refuse(count)?;
                }
                return Ok(());
            }
            self.slicer.advance();
            let counts = self.count(&cut);
            let block = self.blocks.head();
            self.write_block(memory, &cut);
            let blocks = self.blocks.spans(self.region, block, self.blocks.head());
            let [from, to] =
                [cut.microslices.start, cut.microslices.end].map(|number| self.position_of(number));
            let contents = self.contents.spans(self.region, from, to.max(from));
            give(
                ContributionSpans::new(blocks.into_iter().chain(contents))
                    .expect("four spans, of which one has a head"),
            );
            self.counts.give(&counts);
            self.cuts.push_back(GivenCut { timeslice: cut.timeslice, block, counts });
            self.given = cut.timeslice + 1;
        }
        Ok(())
    }

    /// Returns what a cut adds to the counts.
    fn count(&self, cut: &SliceCut) -> SourceCounts {
        let [from, to] = [cut.core.start, cut.core.end].map(|number| self.position_of(number));
        SourceCounts {
            given: cut.core.end - cut.core.start,
            bytes: to - from,
            missing: cut.missing,
            short: u64::from(cut.is_short()),
            ..SourceCounts::default()
        }
    }

    fn write_block(&mut self, memory: &mut [u8], cut: &SliceCut) {
        let start = match self.rule {
            SliceRule::ByIndex { .. } => None,
            SliceRule::ByTime(rule) => {
                self.slicer.origin().map(|origin| rule.start_of(origin + cut.timeslice))
            }
        };
        let head = ContributionHead {
            start,
            microslices: (cut.microslices.end - cut.microslices.start) as u32,
            core: (cut.core.end - cut.core.start) as u32,
            faults: cut.faults,
        };
        self.blocks.write(memory, &head.to_bytes());
        let first = self.slicer.first();
        for number in cut.microslices.clone() {
            if let Some(kept) = self.kept.get((number - first) as usize) {
                self.blocks.write(memory, &kept.to_bytes());
            }
        }
    }

    /// Returns where the content of a microslice begins that is there, or the one behind the last.
    fn position_of(&self, number: u64) -> u64 {
        let place = number.saturating_sub(self.slicer.first()) as usize;
        self.kept.get(place).map_or(self.contents.head(), |kept| kept.offset)
    }

    /// Says that a timeslice alone does not fit.
    fn refuse(&self, count: u64) -> Result<()> {
        bail!(
            "timeslice {} alone, with {count} microslices, needs more than the {} that this input holds; --memory gives it \
             more, and shorter timeslices need less",
            self.given,
            Bytes(self.contents.length() + self.blocks.length())
        )
    }

    /// Draws the next batch; whether there is one, or the source is over now.
    fn draw(&mut self) -> Result<bool> {
        let MicrosliceSource::Stream(stream) = &mut self.source else { return Ok(false) };
        match stream.draw() {
            StreamItem::Some(batch) => {
                self.holder = self.longest_holder();
                self.holds.clear();
                self.batch = Some((batch, 0, 0));
            }
            StreamItem::Nothing => return Ok(false),
            StreamItem::Over { cut, offered } => {
                (self.stage, self.cut, self.offered) = (SourceStage::Over, cut, Some(offered));
                self.slicer.finish();
            }
            StreamItem::Failed(sentence) => bail!(sentence),
        }
        Ok(true)
    }

    /// Notes what the source dropped before microslice `items` of `batch`.
    fn overflow(&mut self, batch: &mut MicrosliceBatch, items: usize) {
        let first = batch.dropped.front().copied();
        if let Some((_, count)) = first.filter(|(before, _)| *before == items) {
            batch.dropped.pop_front();
            self.counts.overflow(count, self.holder);
            self.slicer.dropped(count);
        }
    }

    /// Returns whether the memory has room for one more microslice of `size` bytes; notes it where it
    /// has none.
    fn has_room(&mut self, size: u32) -> bool {
        let is_room = self.contents.has_room(u64::from(size))
            && block_bytes(self.kept.len() as u64 + 1) <= self.blocks.length();
        self.is_full |= !is_room;
        is_room
    }

    /// Takes what there is room for, of made microslices no more than `work`; whether that was
    /// anything, or the source is over now.
    fn take(&mut self, now: LocalNs, memory: &mut [u8], work: &mut usize) -> Result<bool> {
        if self.stage == SourceStage::Over && self.batch.is_none() {
            return Ok(false);
        }
        match self.source {
            MicrosliceSource::Stream(_) => self.take_batch(now, memory),
            MicrosliceSource::Generated(_) => self.make(now, memory, work),
        }
    }

    /// Makes what there is room for while there is `work`; as [`InputBuffer::take`].
    fn make(&mut self, now: LocalNs, memory: &mut [u8], work: &mut usize) -> Result<bool> {
        let mut has_made = false;
        while *work > 0 {
            let MicrosliceSource::Generated(generated) = &mut self.source else { break };
            let Some((start, size)) = generated.peek() else {
                (self.stage, self.offered) = (SourceStage::Over, Some(generated.count()));
                self.slicer.finish();
                return Ok(true);
            };
            if !self.has_room(size) {
                self.slicer.announce(start);
                if !has_made {
                    self.refuse_if_stuck()?;
                }
                break;
            }
            let offered = self.slicer.offer(now, start);
            self.counts.offer(offered);
            has_made = true;
            *work = work.saturating_sub(size as usize + MicrosliceDescriptor::BYTES);
            let MicrosliceSource::Generated(generated) = &mut self.source else { break };
            if offered == Offered::Kept {
                let offset = self.contents.head();
                let fill = |content: &mut [u8]| generated.fill(content);
                let (contents, scratch) = (&mut self.contents, &mut self.scratch);
                let descriptor = contents.write_with(memory, size as usize, scratch, fill);
                self.kept.push_back(MicrosliceDescriptor { offset, ..descriptor });
            } else {
                generated.advance();
                self.release_if_empty();
            }
        }
        Ok(has_made)
    }

    /// Frees memory when no microslice is needed.
    fn release_if_empty(&mut self) {
        if self.kept.is_empty() {
            self.release();
        }
    }

    /// Refuses a timeslice that waits for memory that nothing will free.
    fn refuse_if_stuck(&self) -> Result<()> {
        if self.cuts.is_empty() && self.slicer.peek(self.padding).is_none() {
            self.refuse(self.kept.len() as u64)?;
        }
        Ok(())
    }

    /// Takes what there is room for of the next batch; as [`InputBuffer::take`].
    fn take_batch(&mut self, now: LocalNs, memory: &mut [u8]) -> Result<bool> {
        if self.batch.is_none() && !self.draw()? {
            if self.source.is_live() {
                self.slicer.idle(now);
            }
            return Ok(false);
        }
        let Some((mut batch, mut items, mut bytes)) = self.batch.take() else { return Ok(true) };
        let before = items;
        self.overflow(&mut batch, items);
        while let Some(descriptor) = batch.descriptors.get(items) {
            let size = descriptor.size as usize;
            if !self.has_room(descriptor.size) {
                self.slicer.announce(descriptor.index);
                break;
            }
            let offered = self.slicer.offer(now, descriptor.index);
            self.counts.offer(offered);
            if offered == Offered::Kept {
                self.kept.push_back(MicrosliceDescriptor {
                    offset: self.contents.head(),
                    ..*descriptor
                });
                self.contents.write(memory, &batch.contents[bytes..bytes + size]);
            } else {
                self.release_if_empty();
            }
            (items, bytes) = (items + 1, bytes + size);
            self.overflow(&mut batch, items);
        }
        if items == batch.descriptors.len() {
            if let MicrosliceSource::Stream(stream) = &mut self.source {
                stream.done_with(batch);
            }
            return Ok(true);
        }
        self.batch = Some((batch, items, bytes));
        if items == before {
            self.refuse_if_stuck()?;
        }
        Ok(items > before)
    }
}

/// Returns the bytes of the block of a contribution with `count` microslices.
const fn block_bytes(count: u64) -> u64 {
    ContributionHead::BYTES as u64 + count * DESCRIPTOR
}
