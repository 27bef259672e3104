//! Opens a log: reads it, makes safe what was read, and begins a new epoch.
//!
//! # Model
//! What recovery read may still be in a cache of the system: a process was killed, and no power
//! lost. Before a client learns how far it is, the files that were read are synced. Otherwise a
//! later loss of power could take what the client let go of.
//!
//! # Invariants
//! I1. At every instant one copy of the superblock is whole.

use alloc::boxed::Box;
use alloc::collections::VecDeque;

use super::disk_queue::{DiskJob, DiskOperation};
use super::log::{LogPhase, StagingLog};
use super::recovery::{
    FileRange, LogFile, Recovered, Recovery, RecoveryReport, RecoveryStep, ScanExtent,
};
use super::superblock::{COPIES, Superblock};
use super::{BLOCK, Epoch, GroupNumber, LogError, LogEvent, LogOrigin};
use crate::base::Xxh3;
use crate::wire::{Fault, FileId, FileKind, RefusalReason, SHOW_MAX, Span, Status};

/// What is left to do until the log is open.
#[derive(Debug)]
pub(super) struct Opening {
    recovery: Recovery,
    /// The digest that recovery waits for, so far; none while it waits for bytes.
    digest: Option<BodyDigest>,
    found: Option<Box<Recovered>>,
    superblock: Option<Superblock>,
    steps: VecDeque<OpeningStep>,
}

/// A digest of bytes in memory, computed piece by piece.
#[derive(Debug)]
struct BodyDigest {
    of: Xxh3,
    /// Bytes that are not in it yet.
    left: Span,
}

impl BodyDigest {
    /// Creates the digest of nothing.
    fn new() -> Self {
        Self { of: Xxh3::new(), left: Span::EMPTY }
    }

    /// Takes the next piece out of what is left.
    fn next_piece(&mut self) -> Span {
        let length = self.left.length.min(SHOW_MAX as u32);
        let piece = Span { length, ..self.left };
        self.left.offset += u64::from(length);
        self.left.length -= length;
        piece
    }
}

#[derive(Clone, Copy, Debug)]
enum OpeningStep {
    Sync(FileId),
    WriteSuperblock(u64),
}

/// Returns the fault of an operation that did not end well.
pub(super) const fn fault_of(status: Status) -> Option<Fault> {
    match status {
        Status::Complete => None,
        Status::Failed(fault) => Some(fault),
        Status::Refused(RefusalReason::Memory) => Some(Fault::Gone),
        _ => Some(Fault::Io),
    }
}

impl StagingLog {
    /// Begins to open the log.
    pub(super) fn open(&mut self) {
        if let Err(why) = self.config.check() {
            self.not_opened(why);
            return;
        }
        let segments = self.config.segments.len() as u32;
        let recovery = Recovery::new(
            segments,
            self.segment_blocks(),
            self.config.snapshot_size.0,
            self.config.inodes_max,
            ScanExtent::Likely,
        );
        let mut opening = Opening {
            recovery,
            digest: None,
            found: None,
            superblock: None,
            steps: VecDeque::new(),
        };
        match self.config.origin {
            LogOrigin::Existing => self.continue_recovery(opening),
            LogOrigin::New(log) => {
                let segment_size = self.config.segment_size.0;
                let durable = GroupNumber(0);
                let epoch = Epoch(1);
                opening.superblock =
                    Some(Superblock { log, epoch, segments, segment_size, durable });
                self.write_superblocks(opening);
            }
        }
    }

    fn not_opened(&mut self, why: LogError) {
        self.phase = LogPhase::Closed;
        self.notify(LogEvent::NotOpened(why));
    }

    fn file_of(&self, file: LogFile) -> FileId {
        match file {
            LogFile::Superblock => self.config.superblock,
            LogFile::Snapshot(slot) => self.config.snapshots[slot % 2],
            LogFile::Segment(segment) => self.segment_file(segment),
        }
    }

    fn continue_recovery(&mut self, mut opening: Opening) {
        let (FileRange { file, at, length }, digest) = match opening.recovery.step() {
            RecoveryStep::Bytes(range) => (range, None),
            RecoveryStep::Digest(range) => (range, Some(BodyDigest::new())),
            RecoveryStep::Failed(why) => return self.not_opened(why),
            RecoveryStep::Found(found) => return self.take_found(opening, found),
        };
        opening.digest = digest;
        let memory = Span { length, ..self.work_memory() };
        self.disk.file(FileKind::Read, self.file_of(file), at, memory, DiskJob::Opening);
        self.phase = LogPhase::Opening(Box::new(opening));
    }

    fn take_found(&mut self, mut opening: Opening, found: Box<Recovered>) {
        let read = (0..).zip(&found.last_groups).filter(|(_, last)| **last > GroupNumber(0));
        opening
            .steps
            .extend(read.map(|(segment, _)| OpeningStep::Sync(self.segment_file(segment))));
        let snapshot = self.file_of(LogFile::Snapshot(found.covered.1));
        opening.steps.push_back(OpeningStep::Sync(snapshot));
        let epoch = Epoch(found.superblock.epoch.0.saturating_add(1));
        let durable = found.end.group;
        opening.superblock = Some(Superblock { epoch, durable, ..found.superblock });
        opening.found = Some(found);
        self.write_superblocks(opening);
    }

    fn write_superblocks(&mut self, mut opening: Opening) {
        for copy in 0..COPIES {
            let sync = OpeningStep::Sync(self.config.superblock);
            opening.steps.extend([OpeningStep::WriteSuperblock(copy), sync]);
        }
        self.next_step(opening);
    }

    fn next_step(&mut self, mut opening: Opening) {
        let (Some(superblock), step) = (opening.superblock, opening.steps.pop_front()) else {
            return;
        };
        match step {
            Some(OpeningStep::Sync(file)) => {
                self.disk.file(FileKind::Sync, file, 0, Span::EMPTY, DiskJob::Opening);
            }
            Some(OpeningStep::WriteSuperblock(copy)) => {
                let memory = Span { length: BLOCK as u32, ..self.work_memory() };
                let block = superblock.encode();
                self.disk.store(&block, memory.region, memory.offset, DiskJob::Opening);
                let at = copy * BLOCK as u64;
                self.disk.file(
                    FileKind::Write,
                    self.config.superblock,
                    at,
                    memory,
                    DiskJob::Opening,
                );
            }
            None => {
                self.begin_epoch(&superblock, opening.found);
                return;
            }
        }
        self.phase = LogPhase::Opening(Box::new(opening));
    }

    fn begin_epoch(&mut self, superblock: &Superblock, found: Option<Box<Recovered>>) {
        (self.log, self.epoch) = (superblock.log, superblock.epoch);
        self.noted = superblock.durable;
        self.phase = LogPhase::Open;
        let report = match found {
            Some(found) => self.commit_from(*found),
            None => RecoveryReport::default(),
        };
        self.notify(LogEvent::Opened(report));
        self.compact();
    }

    /// Takes the end of an operation of opening.
    pub(super) fn opening_done(&mut self, operation: DiskOperation, status: Status, value: u64) {
        let phase = core::mem::replace(&mut self.phase, LogPhase::Closed);
        let LogPhase::Opening(mut opening) = phase else {
            self.phase = phase;
            return;
        };
        let fault = fault_of(status);
        match (operation, fault) {
            (DiskOperation::File { kind: FileKind::Read, .. }, Some(fault)) => {
                if opening.digest.is_some() {
                    opening.recovery.give_digest(Err(fault));
                } else {
                    opening.recovery.give_bytes(Err(fault));
                }
                self.continue_recovery(*opening);
            }
            (DiskOperation::File { kind: FileKind::Read, memory, .. }, None) => {
                let read = Span { length: (value as u32).min(memory.length), ..memory };
                let is_short = read.length < memory.length;
                if is_short && (opening.digest.is_some() || read.length == 0) {
                    if opening.digest.is_some() {
                        opening.recovery.give_digest(Ok(None));
                    } else {
                        opening.recovery.give_bytes(Ok(&[]));
                    }
                    return self.continue_recovery(*opening);
                }
                let piece = opening.digest.as_mut().map_or(read, |digest| {
                    digest.left = read;
                    digest.next_piece()
                });
                self.disk.operate(DiskOperation::Show(piece), DiskJob::Opening);
                self.phase = LogPhase::Opening(opening);
            }
            (_, Some(fault)) => self.not_opened(LogError::Unreadable(fault)),
            (_, None) => self.next_step(*opening),
        }
    }

    /// Takes bytes that opening asked to see.
    pub(super) fn opening_shown(&mut self, bytes: &[u8]) {
        let phase = core::mem::replace(&mut self.phase, LogPhase::Closed);
        let LogPhase::Opening(mut opening) = phase else {
            self.phase = phase;
            return;
        };
        match &mut opening.digest {
            None => opening.recovery.give_bytes(Ok(bytes)),
            Some(digest) => {
                digest.of.update(bytes);
                if digest.left.length > 0 {
                    let piece = digest.next_piece();
                    self.disk.operate(DiskOperation::Show(piece), DiskJob::Opening);
                    self.phase = LogPhase::Opening(opening);
                    return;
                }
                let value = digest.of.value();
                opening.recovery.give_digest(Ok(Some(value)));
            }
        }
        self.continue_recovery(*opening);
    }
}
