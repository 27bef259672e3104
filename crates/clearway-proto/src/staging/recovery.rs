//! Finds what a log has come to: the newest snapshot, the groups behind it, and where they end.
//!
//! # Model
//! A state machine that says which bytes it wants next and is given them; who reads them, and how,
//! it does not know.
//! ```text
//!   superblock (2) -> snapshot headers (2) -> snapshot -> first header of each segment
//!      -> walk: group, group, .. -> [scan: is a later header there?] -> end
//! ```
//! The group behind the last one is looked for behind it and in segments that begin with it. It
//! counts when its header is whole, names its place and this log, and names the digest of the header
//! before. Where the disk failed, or an earlier life of the log ended, there can be two of them; the
//! one of the latest epoch counts, and in one epoch that of the segment begun last. A group of an
//! earlier epoch behind what the last opening found does not count: it was not whole then, and only
//! equal bodies of a later group can have made it so.
//!
//! Where it is not there whole, all headers that could be later are read: if one of them says that
//! the group was durable, it is damaged, otherwise it is the torn tail. They can be in segments that
//! begin with a later group, and in those that do not begin with a group but have bytes. To look
//! for these, an opening reads blocks 1, 4, 8, 16 and so on of a segment that begins with zeros. An
//! inspection reads all segments to their ends.
//!
//! # Invariants
//! I1. A group is used only whole, and only behind the one that it was written behind.
//! I2. The log is never cut before a group that a header or a snapshot says to be durable.

use alloc::collections::BTreeSet;
use alloc::vec::Vec;

use super::group::{FRONT_MAX, GroupHeader, HEADER, LogPlace};
use super::record::{LogRecord, RecordBody};
use super::snapshot::{LogEnd, SnapshotHeader, parse_snapshot};
use super::state::{BodyCondition, BodyPlace, LogState};
use super::superblock::{COPIES, Superblock};
use super::tree::BodyId;
use super::{BLOCK, GroupNumber, InodeId, LogError, blocks};
use crate::wire::Fault;

/// Bytes that it asks for at most, to look at them.
pub(super) const PIECE: u32 = 8 << 10;

/// A file of a log.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LogFile {
    /// The superblock.
    Superblock,
    /// One of the two snapshots: 0 or 1.
    Snapshot(usize),
    /// A segment, by its number.
    Segment(u32),
}

/// Bytes of a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct FileRange {
    pub(super) file: LogFile,
    pub(super) at: u64,
    pub(super) length: u32,
}

/// What recovery wants.
#[derive(Debug)]
pub(super) enum RecoveryStep {
    /// To see bytes, at most [`PIECE`]: answered by [`Recovery::give_bytes`].
    Bytes(FileRange),
    /// To know the XXH3 of bytes, at most a body: answered by [`Recovery::give_digest`].
    Digest(FileRange),
    /// Nothing: this is what it found.
    Found(alloc::boxed::Box<Recovered>),
    /// Nothing: the log cannot be used.
    Failed(LogError),
}

/// A file that has lost bytes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DamagedFile {
    /// Which.
    pub inode: InodeId,
    /// Its path, if it has a name.
    pub path: Option<Vec<u8>>,
}

/// What recovery found.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct RecoveryReport {
    /// The group that the snapshot covered, if there was one.
    pub snapshot: Option<GroupNumber>,
    /// The last group.
    pub last: GroupNumber,
    /// Whether the header of a group behind it is there, which never became durable.
    pub has_torn_tail: bool,
    /// Whether bytes behind the last group are neither zeros nor a group, in a log whose segments
    /// were all used once at most: a group that a crash tore, or that was damaged.
    pub has_unknown_tail: bool,
    /// Copies of the superblock that are damaged or cut short; the next opening writes them again.
    pub superblocks_damaged: u32,
    /// Snapshots that are damaged or not whole; recovery read the groups that they cover.
    pub snapshots_damaged: u32,
    /// Files with damaged bytes: these are not served, everything else is.
    pub damaged: Vec<DamagedFile>,
}

/// A log as it was found.
#[derive(Debug)]
pub(super) struct Recovered {
    pub(super) superblock: Superblock,
    pub(super) state: LogState,
    pub(super) end: LogEnd,
    /// The last group that the snapshot covers, and in which file it is.
    pub(super) covered: (GroupNumber, usize),
    /// The highest use of any segment.
    pub(super) segment_use: u64,
    /// The last group read in each segment; 0 where none was.
    pub(super) last_groups: Vec<GroupNumber>,
    pub(super) report: RecoveryReport,
}

#[derive(Debug)]
enum RecoveryPhase {
    Superblock(u64),
    SnapshotHeader(usize),
    /// Reads the state of the newest snapshot that is left.
    Snapshot {
        bytes: Vec<u8>,
    },
    FirstHeader(u32),
    /// Looks for bytes in a segment that begins with zeros.
    Probe(LogPlace),
    /// Looks at the place behind the last group.
    Next(LogPlace),
    Front {
        header: GroupHeader,
        digest: u32,
        bytes: Vec<u8>,
    },
    Bodies {
        header: GroupHeader,
        digest: u32,
        records: Vec<LogRecord>,
        sound: Vec<bool>,
    },
    /// Reads headers that can be later than the group that is not there whole.
    Scan {
        missing: MissingGroup,
        ranges: Vec<(LogPlace, u32)>,
    },
    Over,
}

/// A group that is not there whole.
#[derive(Debug)]
enum MissingGroup {
    /// No header of it is there.
    Header,
    /// Its header is there, and not all records.
    Front(LogPlace),
    /// Some of its bodies are bad.
    Bodies { header: GroupHeader, digest: u32, records: Vec<LogRecord>, sound: Vec<bool> },
}

/// Where headers are looked for that are later than a group that is not there whole.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum ScanExtent {
    /// In segments whose beginning says that they can have some.
    Likely,
    /// In all segments, which takes as long as reading the whole log.
    All,
}

/// Reads a log.
#[derive(Debug)]
pub(super) struct Recovery {
    segments: u32,
    segment_blocks: u32,
    snapshot_size: u64,
    inodes_max: u32,
    phase: RecoveryPhase,
    superblock: Result<Superblock, LogError>,
    /// Headers of snapshots, the newest last.
    snapshots: Vec<(SnapshotHeader, usize)>,
    /// The first header of each segment that has one, and its digest.
    firsts: Vec<(GroupHeader, u32)>,
    /// Segments that have bytes and do not begin with a header of this log.
    unknown_firsts: Vec<u32>,
    extent: ScanExtent,
    /// The highest group that is known to have been durable.
    durable: GroupNumber,
    state: LogState,
    end: LogEnd,
    covered: (GroupNumber, usize),
    last_groups: Vec<GroupNumber>,
    report: RecoveryReport,
    failed: Option<LogError>,
}

impl Recovery {
    /// Begins to read a log of this layout.
    pub(super) fn new(
        segments: u32,
        segment_blocks: u32,
        snapshot_size: u64,
        inodes_max: u32,
        extent: ScanExtent,
    ) -> Self {
        Self {
            segments,
            segment_blocks,
            snapshot_size,
            inodes_max,
            phase: RecoveryPhase::Superblock(0),
            superblock: Err(LogError::WrongMagic),
            snapshots: Vec::new(),
            firsts: Vec::new(),
            unknown_firsts: Vec::new(),
            extent,
            durable: GroupNumber(0),
            state: LogState::new(inodes_max),
            end: LogEnd::EMPTY,
            covered: (GroupNumber(0), 1),
            last_groups: alloc::vec![GroupNumber(0); segments as usize],
            report: RecoveryReport::default(),
            failed: None,
        }
    }

    /// Returns what it wants next.
    pub(super) fn step(&mut self) -> RecoveryStep {
        if let Some(why) = self.failed {
            return RecoveryStep::Failed(why);
        }
        let block = BLOCK as u32;
        let of = |file, at, length| RecoveryStep::Bytes(FileRange { file, at, length });
        let segment = |place: LogPlace, block: u32, length| {
            of(
                LogFile::Segment(place.segment),
                (u64::from(place.block) + u64::from(block)) * BLOCK as u64,
                length,
            )
        };
        match &self.phase {
            RecoveryPhase::Superblock(copy) => of(LogFile::Superblock, copy * BLOCK as u64, block),
            RecoveryPhase::SnapshotHeader(slot) => of(LogFile::Snapshot(*slot), 0, block),
            RecoveryPhase::Snapshot { bytes } => {
                let Some((header, slot)) = self.snapshots.last() else { return self.found() };
                let left = header.length - bytes.len() as u64;
                let at = BLOCK as u64 + bytes.len() as u64;
                of(LogFile::Snapshot(*slot), at, left.min(u64::from(PIECE)) as u32)
            }
            RecoveryPhase::FirstHeader(segment) => of(LogFile::Segment(*segment), 0, block),
            RecoveryPhase::Next(place) => segment(*place, 0, block),
            RecoveryPhase::Probe(place) => {
                segment(*place, 0, ((self.segment_blocks - place.block) * block).min(PIECE))
            }
            RecoveryPhase::Front { header, bytes, .. } => {
                let read = blocks(bytes.len() as u64);
                let left = (header.front_blocks() - read) * block;
                segment(header.place, read, left.min(PIECE))
            }
            RecoveryPhase::Bodies { header, records, sound, .. } => {
                let places = body_places(header, records);
                match places.get(sound.len()) {
                    Some((place, body)) => RecoveryStep::Digest(FileRange {
                        file: LogFile::Segment(place.segment),
                        at: place.offset(),
                        length: body.length,
                    }),
                    None => self.found(),
                }
            }
            RecoveryPhase::Scan { ranges, .. } => match ranges.last() {
                Some((place, end)) => segment(*place, 0, ((end - place.block) * block).min(PIECE)),
                None => self.found(),
            },
            RecoveryPhase::Over => self.found(),
        }
    }

    /// Returns what it found out.
    fn found(&mut self) -> RecoveryStep {
        let superblock = match self.superblock {
            Ok(superblock) => superblock,
            Err(why) => return RecoveryStep::Failed(why),
        };
        let mut report = core::mem::take(&mut self.report);
        report.last = self.end.group;
        report.damaged = self.state.damaged_list();
        let uses = self.firsts.iter().map(|(first, _)| first.segment_use);
        RecoveryStep::Found(alloc::boxed::Box::new(Recovered {
            superblock,
            state: core::mem::replace(&mut self.state, LogState::new(0)),
            end: self.end,
            covered: self.covered,
            segment_use: uses.max().unwrap_or(0).max(self.end.segment_use),
            last_groups: core::mem::take(&mut self.last_groups),
            report,
        }))
    }

    /// Takes the bytes that it asked for; fewer where the file ends before.
    pub(super) fn give_bytes(&mut self, answer: Result<&[u8], Fault>) {
        let phase = core::mem::replace(&mut self.phase, RecoveryPhase::Over);
        let bytes = match answer {
            Ok(bytes) => bytes,
            Err(_) if self.can_miss(&phase) => &[],
            Err(fault) => {
                self.failed = Some(LogError::Unreadable(fault));
                return;
            }
        };
        self.phase = match phase {
            RecoveryPhase::Superblock(copy) => self.take_superblock(copy, bytes),
            RecoveryPhase::SnapshotHeader(slot) => self.take_snapshot_header(slot, bytes),
            RecoveryPhase::Snapshot { bytes: before } => self.take_snapshot(before, bytes),
            RecoveryPhase::FirstHeader(segment) => self.take_first_header(segment, bytes),
            RecoveryPhase::Probe(place) => self.take_probe(place, bytes),
            RecoveryPhase::Next(place) => self.take_next(place, bytes),
            RecoveryPhase::Front { header, digest, bytes: before } => {
                self.take_front(header, digest, before, bytes)
            }
            RecoveryPhase::Scan { missing, ranges } => self.take_scanned(missing, ranges, bytes),
            other @ (RecoveryPhase::Bodies { .. } | RecoveryPhase::Over) => other,
        };
    }

    /// Returns whether bytes that cannot be read count as bytes that are not there. Of superblock
    /// and snapshots there are two. Of a group there is one, and one that cannot be read now must
    /// not be taken for one that was never written.
    fn can_miss(&self, phase: &RecoveryPhase) -> bool {
        match phase {
            RecoveryPhase::Superblock(_)
            | RecoveryPhase::SnapshotHeader(_)
            | RecoveryPhase::Snapshot { .. } => true,
            RecoveryPhase::Scan { .. } | RecoveryPhase::Probe(_) => true,
            RecoveryPhase::FirstHeader(segment) => self.state.retired.contains(segment),
            _ => false,
        }
    }

    /// Takes the digest that it asked for; none where the file ends before.
    pub(super) fn give_digest(&mut self, answer: Result<Option<u64>, Fault>) {
        let phase = core::mem::replace(&mut self.phase, RecoveryPhase::Over);
        let RecoveryPhase::Bodies { header, digest, records, mut sound } = phase else { return };
        let found = match answer {
            Ok(found) => found,
            Err(fault) => {
                self.failed = Some(LogError::Unreadable(fault));
                return;
            }
        };
        let places = body_places(&header, &records);
        let body = places.get(sound.len());
        sound.push(body.is_some_and(|(_, expected)| Some(expected.digest) == found));
        self.phase = if sound.len() < places.len() {
            RecoveryPhase::Bodies { header, digest, records, sound }
        } else {
            self.take_group(header, digest, records, sound)
        };
    }

    fn take_superblock(&mut self, copy: u64, bytes: &[u8]) -> RecoveryPhase {
        let parsed = Superblock::parse(bytes);
        self.report.superblocks_damaged += u32::from(parsed.is_err());
        if let Ok(superblock) = parsed {
            self.durable = self.durable.max(superblock.durable);
        }
        self.superblock = match (self.superblock, parsed) {
            (Ok(first), Ok(second)) if second.epoch > first.epoch => Ok(second),
            (Ok(first), _) => Ok(first),
            // A damaged copy says more than one that is none.
            (Err(first), Err(LogError::WrongMagic)) if copy > 0 => Err(first),
            (Err(_), parsed) => parsed,
        };
        if copy + 1 < COPIES {
            return RecoveryPhase::Superblock(copy + 1);
        }
        match self.superblock {
            Err(why) => self.failed = Some(why),
            Ok(Superblock { segments, segment_size, .. }) => {
                if (segments, segment_size) != (self.segments, self.segment_size()) {
                    self.failed = Some(LogError::Geometry { segments, size: segment_size });
                }
            }
        }
        RecoveryPhase::SnapshotHeader(0)
    }

    fn segment_size(&self) -> u64 {
        u64::from(self.segment_blocks) * BLOCK as u64
    }

    fn is_ours(&self, log: super::LogId) -> bool {
        self.superblock.is_ok_and(|superblock| superblock.log == log)
    }

    fn take_snapshot_header(&mut self, slot: usize, bytes: &[u8]) -> RecoveryPhase {
        let header = SnapshotHeader::parse(bytes).filter(|header| self.is_ours(header.log));
        if let Some(header) = header {
            // It was begun when this group was durable.
            self.durable = self.durable.max(header.end.group);
            if (1..=self.snapshot_size.saturating_sub(BLOCK as u64)).contains(&header.length) {
                self.snapshots.push((header, slot));
                self.snapshots.sort_by_key(|(header, _)| header.end.group);
            }
        } else if bytes.iter().any(|byte| *byte != 0) {
            self.report.snapshots_damaged += 1;
        }
        if slot == 0 { RecoveryPhase::SnapshotHeader(1) } else { self.try_snapshot() }
    }

    /// Reads the newest snapshot that is left, or continues without.
    fn try_snapshot(&self) -> RecoveryPhase {
        if self.snapshots.is_empty() {
            RecoveryPhase::FirstHeader(0)
        } else {
            RecoveryPhase::Snapshot { bytes: Vec::new() }
        }
    }

    fn take_snapshot(&mut self, mut before: Vec<u8>, bytes: &[u8]) -> RecoveryPhase {
        let Some((header, slot)) = self.snapshots.last().copied() else {
            return RecoveryPhase::Over;
        };
        before.extend(bytes);
        let is_short = (before.len() as u64) < header.length;
        if is_short && !bytes.is_empty() {
            return RecoveryPhase::Snapshot { bytes: before };
        }
        let is_whole = !is_short && crate::base::crc32c(&before) == header.digest;
        let found = parse_snapshot(&before, self.inodes_max).filter(|state| {
            let mut segments = state.bodies.values().map(|body| body.place.segment);
            let next = header.end.next.map(|next| next.segment);
            is_whole && segments.all(|s| s < self.segments) && next < Some(self.segments)
        });
        match found {
            Some(state) => {
                self.state = state;
                self.end = header.end;
                self.covered = (header.end.group, slot);
                self.report.snapshot = Some(header.end.group);
                RecoveryPhase::FirstHeader(0)
            }
            None => {
                self.report.snapshots_damaged += 1;
                self.snapshots.pop();
                self.try_snapshot()
            }
        }
    }

    fn take_first_header(&mut self, segment: u32, bytes: &[u8]) -> RecoveryPhase {
        let place = LogPlace { segment, block: 0 };
        let parsed = GroupHeader::parse(bytes).filter(|(header, _)| self.is_ours(header.log));
        let is_retired = self.state.retired.contains(&segment);
        match parsed {
            Some((header, _)) if header.place.segment != segment && !is_retired => {
                let from = header.place.segment;
                self.failed = Some(LogError::Misplaced { segment, from });
            }
            Some((header, digest)) if header.place == place => {
                self.durable = self.durable.max(header.durable);
                self.firsts.push((header, digest));
            }
            Some(_) => self.unknown_firsts.push(segment),
            None if bytes.iter().any(|byte| *byte != 0) => self.unknown_firsts.push(segment),
            None if self.segment_blocks > 1 && !is_retired => {
                return RecoveryPhase::Probe(LogPlace { segment, block: 1 });
            }
            None => {}
        }
        self.next_segment(segment)
    }

    /// Looks whether a segment that begins with zeros has bytes further on.
    fn take_probe(&mut self, place: LogPlace, bytes: &[u8]) -> RecoveryPhase {
        if bytes.iter().any(|byte| *byte != 0) {
            self.unknown_firsts.push(place.segment);
        } else {
            let block = place.block.saturating_mul(2).max(PIECE / BLOCK as u32 * 2);
            if block < self.segment_blocks {
                return RecoveryPhase::Probe(LogPlace { block, ..place });
            }
        }
        self.next_segment(place.segment)
    }

    /// Continues behind the beginning of a segment.
    fn next_segment(&mut self, segment: u32) -> RecoveryPhase {
        if segment + 1 < self.segments {
            return RecoveryPhase::FirstHeader(segment + 1);
        }
        self.look_further()
    }

    /// Reads a header of this log that says to lie at `place`.
    fn header_at(&self, place: LogPlace, bytes: &[u8]) -> Option<(GroupHeader, u32)> {
        let parsed = GroupHeader::parse(bytes);
        parsed.filter(|(header, _)| self.is_ours(header.log) && header.place == place)
    }

    /// Looks for the group behind the end.
    fn look_further(&mut self) -> RecoveryPhase {
        match self.end.next.filter(|next| next.block < self.segment_blocks) {
            Some(next) => RecoveryPhase::Next(next),
            None => self.choose(None),
        }
    }

    fn take_next(&mut self, place: LogPlace, bytes: &[u8]) -> RecoveryPhase {
        let behind = self.header_at(place, bytes);
        self.report.has_unknown_tail = behind.is_none() && bytes.iter().any(|byte| *byte != 0);
        self.choose(behind)
    }

    /// Chooses among the groups that can be the next one.
    fn choose(&mut self, behind: Option<(GroupHeader, u32)>) -> RecoveryPhase {
        let candidates = self.firsts.iter().copied().chain(behind);
        let next = candidates
            .filter(|(header, _)| self.follows(header))
            .max_by_key(|(header, _)| (header.epoch, header.segment_use));
        match next {
            Some((header, digest)) => {
                self.durable = self.durable.max(header.durable);
                RecoveryPhase::Front { header, digest, bytes: Vec::new() }
            }
            None => self.scan(MissingGroup::Header),
        }
    }

    /// Returns whether a group was written behind the last one.
    fn follows(&self, header: &GroupHeader) -> bool {
        let fits =
            u64::from(header.place.block) + header.blocks() <= u64::from(self.segment_blocks);
        let is_alive = self.superblock.is_ok_and(|superblock| {
            header.epoch >= superblock.epoch || header.number <= superblock.durable
        });
        is_alive
            && header.number.0 == self.end.group.0.saturating_add(1)
            && header.previous == self.end.digest
            && header.epoch >= self.end.epoch
            && header.segment_use >= self.end.segment_use
            && fits
    }

    fn take_front(
        &mut self,
        header: GroupHeader,
        digest: u32,
        mut before: Vec<u8>,
        bytes: &[u8],
    ) -> RecoveryPhase {
        before.extend(bytes);
        let length = header.front_blocks() as usize * BLOCK;
        debug_assert!(before.len() <= FRONT_MAX && length >= HEADER);
        if before.len() < length && !bytes.is_empty() {
            return RecoveryPhase::Front { header, digest, bytes: before };
        }
        match header.records_in(&before) {
            None => self.scan(MissingGroup::Front(header.place)),
            Some(records) if header.body_blocks == 0 => {
                self.take_group(header, digest, records, Vec::new())
            }
            Some(records) => RecoveryPhase::Bodies { header, digest, records, sound: Vec::new() },
        }
    }

    /// Uses a group whose bodies were looked at.
    fn take_group(
        &mut self,
        header: GroupHeader,
        digest: u32,
        records: Vec<LogRecord>,
        sound: Vec<bool>,
    ) -> RecoveryPhase {
        if sound.contains(&false) && header.number > self.durable {
            return self.scan(MissingGroup::Bodies { header, digest, records, sound });
        }
        self.replay(header, digest, &records, &sound)
    }

    fn replay(
        &mut self,
        header: GroupHeader,
        digest: u32,
        records: &[LogRecord],
        sound: &[bool],
    ) -> RecoveryPhase {
        let mut places = body_places(&header, records).into_iter().zip(sound);
        let mut index = 0;
        for record in records {
            let body = BodyId { group: header.number, index };
            if record.body().is_some()
                && let Some(((place, record), is_sound)) = places.next()
            {
                let condition =
                    if *is_sound { BodyCondition::Sound } else { BodyCondition::Damaged };
                let known = BodyPlace { place, record, live: record.length, condition };
                self.state.bodies.insert(body, known);
                index += 1;
            }
            let mut dropped = Vec::new();
            if self.state.apply(record, body, &mut dropped).is_err() {
                self.failed = Some(LogError::Inconsistent(header.number));
                return RecoveryPhase::Over;
            }
            self.state.release(&dropped, &mut |_, _| ());
        }
        let place = header.place;
        self.last_groups[place.segment as usize] = header.number;
        self.end = LogEnd {
            group: header.number,
            epoch: header.epoch,
            digest,
            segment_use: header.segment_use,
            next: Some(LogPlace { block: place.block + header.blocks() as u32, ..place }),
        };
        self.look_further()
    }

    /// Looks whether a header says that `missing`, the group behind the end, was durable.
    fn scan(&mut self, missing: MissingGroup) -> RecoveryPhase {
        let mut ranges = Vec::new();
        let number = self.end.group.0;
        let later = self.firsts.iter().filter(|(first, _)| first.number.0 > number);
        let later = later.map(|(first, _)| first.place.segment);
        // Groups behind a damaged first header may say that it was durable.
        let segments: BTreeSet<u32> = match self.extent {
            ScanExtent::Likely => later.chain(self.unknown_firsts.iter().copied()).collect(),
            ScanExtent::All => (0..self.segments).collect(),
        };
        if let Some(next) = self.end.next
            && !segments.contains(&next.segment)
            && next.block < self.segment_blocks
        {
            ranges.push((next, self.segment_blocks));
        }
        let whole = |segment| (LogPlace { segment, block: 0 }, self.segment_blocks);
        ranges.extend(segments.into_iter().map(whole));
        if ranges.is_empty() {
            self.judge(missing)
        } else {
            RecoveryPhase::Scan { missing, ranges }
        }
    }

    fn take_scanned(
        &mut self,
        missing: MissingGroup,
        mut ranges: Vec<(LogPlace, u32)>,
        bytes: &[u8],
    ) -> RecoveryPhase {
        let Some((place, end)) = ranges.pop() else { return RecoveryPhase::Over };
        let read = PIECE / BLOCK as u32;
        for (block, bytes) in (place.block..).zip(bytes.chunks_exact(BLOCK)) {
            if let Some((header, _)) = self.header_at(LogPlace { block, ..place }, bytes) {
                self.durable = self.durable.max(header.durable);
            }
        }
        if place.block + read < end {
            ranges.push((LogPlace { block: place.block + read, ..place }, end));
        }
        if ranges.is_empty() {
            self.judge(missing)
        } else {
            RecoveryPhase::Scan { missing, ranges }
        }
    }

    /// Says whether a group that is not there whole is the torn tail or damaged.
    fn judge(&mut self, missing: MissingGroup) -> RecoveryPhase {
        let group = GroupNumber(self.end.group.0.saturating_add(1));
        if group > self.durable {
            self.report.has_torn_tail = !matches!(missing, MissingGroup::Header);
            // A segment that is used again still has what it had before.
            let uses = self.firsts.iter().map(|(first, _)| first.segment_use);
            let is_reused = uses.max().is_some_and(|most| most > u64::from(self.segments));
            let is_unknown = |segment: &u32| !self.state.retired.contains(segment);
            self.report.has_unknown_tail |= self.unknown_firsts.iter().any(is_unknown);
            self.report.has_unknown_tail &= !is_reused && matches!(missing, MissingGroup::Header);
            return RecoveryPhase::Over;
        }
        let place = match missing {
            MissingGroup::Bodies { header, digest, records, sound } => {
                return self.replay(header, digest, &records, &sound);
            }
            MissingGroup::Front(place) => place,
            MissingGroup::Header => self.end.next.unwrap_or_else(|| {
                let segment = self.unknown_firsts.first().copied().unwrap_or(0);
                LogPlace { segment, block: 0 }
            }),
        };
        self.failed = Some(LogError::GroupDamaged { group, place });
        RecoveryPhase::Over
    }
}

/// Returns each body of a group, and where it lies.
fn body_places(header: &GroupHeader, records: &[LogRecord]) -> Vec<(LogPlace, RecordBody)> {
    let mut block = header.place.block + header.front_blocks();
    let bodies = records.iter().filter_map(LogRecord::body);
    let place = bodies.map(|body| {
        let place = LogPlace { block, ..header.place };
        block += blocks(u64::from(body.length));
        (place, body)
    });
    place.collect()
}
