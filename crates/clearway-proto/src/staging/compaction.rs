//! Moves bytes out of segments that have few, so that these segments become free.
//!
//! # Model
//! ```text
//!   segment --its bodies, one by one: read, digest compared--> records RELOCATE --durable--> free
//! ```
//! Files that stay keep their segments: without this, a byte in each segment fills a log. When few
//! segments are free, the one with the fewest blocks in use is emptied, if these are few enough. Its
//! bodies are read into memory of the engine's own; what files still have of them goes into the open
//! group, as the bytes of a write do. The memory is used again when that group is durable. Until
//! then readers find the bytes at their old place ([`super::LogState::readable`]).
//!
//! # Invariants
//! I1. No byte of a body with a wrong digest is written.
//! I2. A segment is free only when all that was in it is durable elsewhere.
//! I3. What one segment gives fits in half of the last free segment: the other half is for removals.

use alloc::collections::{BTreeMap, VecDeque};
use alloc::vec::Vec;
use core::ops::Range;

use super::commit::RESERVED;
use super::disk_queue::{DiskJob, DiskOperation};
use super::log::{LogPhase, StagingLog};
use super::opening::fault_of;
use super::record::{LogChange, LogRecord, RecordBody};
use super::state::{BodyCondition, BodyPlace};
use super::tree::{BodyId, TreeChange};
use super::{BLOCK, BODY_MAX, ClientId, GroupNumber, LogError, blocks};
use crate::base::{Class, Xxh3};
use crate::wire::{FileKind, SHOW_MAX, Span, Status};

/// Compaction begins when no more than this part of the segments is free or about to be, and
/// [`RESERVED`] more.
const WANTED_PART: usize = 8;

/// What files have of a segment.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct SegmentUse {
    /// Bodies.
    pub(super) bodies: u32,
    /// Blocks that their bytes take at least.
    pub(super) blocks: u64,
}

impl SegmentUse {
    /// Replaces a body by what it is now.
    pub(super) fn change(&mut self, before: Option<&BodyPlace>, after: Option<&BodyPlace>) {
        let blocks_of = |body: Option<&BodyPlace>| {
            body.map_or(0, |body| u64::from(blocks(u64::from(body.live))))
        };
        self.bodies = self.bodies + u32::from(after.is_some()) - u32::from(before.is_some());
        self.blocks = self.blocks + blocks_of(after) - blocks_of(before);
    }
}

/// What is moved.
#[derive(Debug, Default)]
pub(super) struct Compaction {
    victim: Option<VictimSegment>,
    /// Bytes of the memory that are in use.
    used: u32,
    /// The last group with bytes of the memory.
    last: GroupNumber,
    unfit: BTreeMap<u32, UnfitSegment>,
    /// Bytes that were given another place.
    pub(super) moved: u64,
}

/// A segment that is emptied.
#[derive(Debug)]
struct VictimSegment {
    segment: u32,
    /// Bodies that were not read.
    bodies: VecDeque<BodyId>,
    reading: Option<BodyRead>,
    /// Changes whose bytes are in memory.
    ready: VecDeque<(TreeChange, Span)>,
}

/// A segment that could not be emptied, and what it was then.
#[derive(Clone, Copy, Debug)]
struct UnfitSegment {
    last: GroupNumber,
    in_use: u64,
    /// Blocks that its bytes would take elsewhere.
    needed: u64,
}

/// What became of a victim for now.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum VictimState {
    Waits,
    Over,
    /// The log has no space for its bytes.
    Dropped,
}

/// A body that is read.
#[derive(Debug)]
struct BodyRead {
    body: BodyId,
    memory: Span,
    /// Bytes of it that were looked at.
    seen: u32,
    digest: Xxh3,
    /// What its file has of it, and the digest of each run.
    runs: Vec<(Range<u32>, Xxh3)>,
}

impl BodyRead {
    /// Returns the piece that is looked at next.
    fn next_piece(&self) -> Span {
        let length = (self.memory.length - self.seen).min(SHOW_MAX as u32);
        Span { offset: self.memory.offset + u64::from(self.seen), length, ..self.memory }
    }

    /// Looks at the bytes of the piece.
    fn see(&mut self, bytes: &[u8]) {
        let seen = self.seen..self.seen + bytes.len() as u32;
        self.digest.update(bytes);
        for (run, digest) in &mut self.runs {
            let (low, high) = (seen.start.max(run.start), seen.end.min(run.end));
            if low < high {
                let range = (low - seen.start) as usize..(high - seen.start) as usize;
                digest.update(bytes.get(range).unwrap_or_default());
            }
        }
        self.seen = seen.end;
    }

    /// Returns the changes that move the runs, with their bytes.
    fn changes(&self, record: &RecordBody) -> impl Iterator<Item = (TreeChange, Span)> {
        let RecordBody { inode, offset, .. } = *record;
        self.runs.iter().map(move |(run, digest)| {
            let (skip, length) = (run.start, run.end - run.start);
            let change = TreeChange::Relocate {
                inode,
                offset: offset + u64::from(skip),
                length,
                body: self.body,
                skip,
                digest: digest.value(),
            };
            let offset = self.memory.offset + u64::from(skip);
            (change, Span { offset, length, ..self.memory })
        })
    }
}

impl Compaction {
    /// Returns whether a segment is emptied.
    pub(super) const fn is_active(&self) -> bool {
        self.victim.is_some()
    }

    /// Returns whether a read is under way.
    pub(super) fn is_reading(&self) -> bool {
        self.victim.as_ref().is_some_and(|victim| victim.reading.is_some())
    }
}

impl StagingLog {
    /// Continues to move bytes, or begins to if that is wanted.
    pub(super) fn compact(&mut self) {
        while matches!(self.phase, LogPhase::Open)
            && self.trouble.is_none()
            && let Some(mut victim) = self.compaction.victim.take().or_else(|| self.choose_victim())
        {
            match self.empty(&mut victim) {
                VictimState::Over => {}
                VictimState::Dropped => return,
                VictimState::Waits => {
                    self.compaction.victim = Some(victim);
                    return;
                }
            }
        }
    }

    /// Chooses the segment with the fewest blocks in use.
    fn choose_victim(&mut self) -> Option<VictimSegment> {
        let (current, segments) = (self.end.next, self.live.len());
        let is_usable = |segment: &u32| {
            current.is_none_or(|next| next.segment != *segment)
                && !self.state.retired.contains(segment)
        };
        let (empty, used): (Vec<u32>, Vec<u32>) = (0..segments as u32)
            .filter(is_usable)
            .partition(|segment| self.live[*segment as usize].bodies == 0);
        let is_wanted = empty.len() <= (segments / WANTED_PART).max(1) + RESERVED;
        if !is_wanted || self.wants_end {
            return None;
        }
        let half = u64::from(self.segment_blocks()) / 2;
        let limit = match self.free_segments().count() {
            0 => half.saturating_sub(current.map_or(half, |next| u64::from(next.block))),
            // Fronts of groups take some of the half.
            RESERVED => half - half / 8,
            _ => half / 2,
        };
        let is_candidate = |segment: &u32| {
            let (in_use, last) = (self.live[*segment as usize].blocks, self.last_group(*segment));
            let unfit = self.compaction.unfit.get(segment).filter(|unfit| unfit.last == last);
            let is_unfit = unfit.is_some_and(|unfit| {
                let has_less = unfit.in_use.saturating_sub(in_use) > unfit.in_use / 8;
                unfit.needed >= limit && !has_less
            });
            in_use < limit && !is_unfit && last <= self.durable_end.group
        };
        let mut candidates: Vec<u32> = used.into_iter().filter(is_candidate).collect();
        candidates.sort_unstable_by_key(|segment| self.live[*segment as usize].blocks);
        candidates.into_iter().find_map(|segment| self.victim(segment, limit))
    }

    fn last_group(&self, segment: u32) -> GroupNumber {
        self.last_groups[segment as usize]
    }

    /// Notes that a segment cannot be emptied where it needs `needed` blocks.
    fn note_unfit(&mut self, segment: u32, needed: u64) {
        let (last, in_use) = (self.last_group(segment), self.live[segment as usize].blocks);
        self.compaction.unfit.insert(segment, UnfitSegment { last, in_use, needed });
    }

    /// Returns the work to do for a segment; none when its bytes take `limit` blocks or more, when
    /// some are damaged, and when its last bytes are about to go. Cost: all bodies.
    fn victim(&mut self, segment: u32, limit: u64) -> Option<VictimSegment> {
        let (mut needed, mut bodies) = (0, VecDeque::new());
        for (id, body) in self.state.bodies.iter().filter(|(_, b)| b.place.segment == segment) {
            if body.condition == BodyCondition::Damaged {
                needed = u64::MAX;
                break;
            }
            let runs = self.state.live_runs(*id, &body.record);
            needed += runs.iter().map(|run| u64::from(blocks(run.len() as u64))).sum::<u64>();
            bodies.extend((!runs.is_empty()).then_some(*id));
        }
        if needed >= limit {
            self.note_unfit(segment, needed);
            return None;
        }
        let victim = VictimSegment { segment, bodies, reading: None, ready: VecDeque::new() };
        (needed > 0).then_some(victim)
    }

    /// Does what can be done now to empty a segment.
    fn empty(&mut self, victim: &mut VictimSegment) -> VictimState {
        if victim.reading.is_some() {
            return VictimState::Waits;
        }
        while let Some((change, memory)) = victim.ready.front() {
            match self.relocate(change.clone(), *memory) {
                Err(LogError::Busy) => return VictimState::Waits,
                Err(LogError::Full) => return VictimState::Dropped,
                // The file may be gone, and need no bytes.
                Ok(()) | Err(_) => drop(victim.ready.pop_front()),
            }
        }
        let is_durable = self.compaction.last <= self.durable_end.group;
        if is_durable {
            self.compaction.used = 0;
        }
        if self.read_next(victim) {
            return VictimState::Waits;
        }
        if self.compaction.last > self.end.group {
            // Nothing more comes before the bytes in the open group are durable.
            self.commit();
        }
        if is_durable && victim.bodies.is_empty() { VictimState::Over } else { VictimState::Waits }
    }

    fn relocate(&mut self, change: TreeChange, memory: Span) -> Result<(), LogError> {
        let need = change.space_need();
        let record = LogRecord {
            client: ClientId::LOG,
            number: 0,
            class: Class::Scavenger,
            time: self.record_time(),
            change: LogChange::Tree(change),
        };
        self.take_record(&record, need, memory)?;
        self.compaction.last = GroupNumber(self.end.group.0 + 1);
        self.compaction.moved += u64::from(memory.length);
        Ok(())
    }

    /// Begins to read the next body that a file needs, if the memory has room for it.
    fn read_next(&mut self, victim: &mut VictimSegment) -> bool {
        while let Some(id) = victim.bodies.front().copied().filter(|_| !self.wants_end) {
            let body = self.state.bodies.get(&id).filter(|b| b.place.segment == victim.segment);
            let runs = body.map_or(Vec::new(), |body| self.state.live_runs(id, &body.record));
            let Some(BodyPlace { place, record, .. }) = body.filter(|_| !runs.is_empty()) else {
                victim.bodies.pop_front();
                continue;
            };
            let padded = blocks(u64::from(record.length)) * BLOCK as u32;
            if self.compaction.used + padded > BODY_MAX {
                return false;
            }
            let all = self.compaction_memory();
            let offset = all.offset + u64::from(self.compaction.used);
            let memory = Span { offset, length: record.length, ..all };
            let runs = runs.into_iter().map(|run| (run, Xxh3::new())).collect();
            victim.reading =
                Some(BodyRead { body: id, memory, seen: 0, digest: Xxh3::new(), runs });
            victim.bodies.pop_front();
            self.compaction.used += padded;
            let (file, at) = (self.segment_file(victim.segment), place.offset());
            self.disk.file(FileKind::Read, file, at, memory, DiskJob::Compaction);
            return true;
        }
        false
    }

    /// Takes the end of a read.
    pub(super) fn compaction_read(&mut self, status: Status, value: u64) {
        let Some(victim) = &mut self.compaction.victim else { return };
        let Some(reading) = &victim.reading else { return };
        if fault_of(status).is_none() && value >= u64::from(reading.memory.length) {
            self.disk.operate(DiskOperation::Show(reading.next_piece()), DiskJob::Compaction);
        } else {
            self.abandon_victim();
        }
    }

    /// Takes bytes of a body.
    pub(super) fn compaction_shown(&mut self, bytes: &[u8]) {
        let Some(victim) = &mut self.compaction.victim else { return };
        let Some(reading) = &mut victim.reading else { return };
        reading.see(bytes);
        if reading.seen < reading.memory.length {
            self.disk.operate(DiskOperation::Show(reading.next_piece()), DiskJob::Compaction);
            return;
        }
        // Without a body, no file needs any of it any more.
        if let Some(BodyPlace { record, .. }) = self.state.bodies.get(&reading.body) {
            if record.digest != reading.digest.value() {
                return self.abandon_victim();
            }
            victim.ready.extend(reading.changes(record));
        }
        victim.reading = None;
        self.compact();
        self.look_at_end();
    }

    /// Gives up a segment with bytes that cannot be read. A reader of the file hears of it.
    fn abandon_victim(&mut self) {
        if let Some(VictimSegment { segment, .. }) = self.compaction.victim.take() {
            self.note_unfit(segment, u64::MAX);
        }
        self.compact();
        self.look_at_end();
    }
}
