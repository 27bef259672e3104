//! Notes what is durable, where the next group would say it if there were one.
//!
//! # Model
//! Only something behind the last group can tell that it was durable, and so a damaged one from a
//! torn one. Under load that is the header of the next group. When the log is quiet for a second,
//! and before it ends, a copy of the superblock says it.
//!
//! # Invariants
//! I1. No copy of the superblock is written before the sync of the other one is over.

use super::disk_queue::{DiskJob, DiskOperation};
use super::log::{LogPhase, StagingLog};
use super::opening::fault_of;
use super::superblock::{COPIES, Superblock};
use super::{BLOCK, LogEvent};
use crate::base::{LocalNs, Nanos};
use crate::wire::{FileKind, Span, Status};

/// How long the log is quiet before it notes: long enough that a client that waits for each call
/// never waits for a note.
const NOTE_AFTER: Nanos = Nanos::from_secs(1);

impl StagingLog {
    fn is_at_rest(&self) -> bool {
        matches!(self.phase, LogPhase::Open)
            && self.open.records == 0
            && self.in_flight.is_empty()
            && self.trouble.is_none()
    }

    fn has_to_note(&self) -> bool {
        self.is_at_rest() && self.noting.is_none() && self.noted < self.durable_end.group
    }

    /// Returns when a note is due.
    pub(super) fn note_at(&self) -> Option<LocalNs> {
        self.quiet_since.filter(|_| self.has_to_note()).map(|since| since + NOTE_AFTER)
    }

    pub(super) fn note_if_quiet(&mut self) {
        if self.note_at().is_some_and(|at| at <= self.now) {
            self.note();
        }
    }

    fn note(&mut self) {
        let superblock = Superblock {
            log: self.log,
            epoch: self.epoch,
            segments: self.config.segments.len() as u32,
            segment_size: self.config.segment_size.0,
            durable: self.durable_end.group,
        };
        self.note_copy = (self.note_copy + 1) % COPIES;
        self.noting = Some(self.durable_end.group);
        let memory = Span { length: BLOCK as u32, ..self.note_memory() };
        self.disk.store(&superblock.encode(), memory.region, memory.offset, DiskJob::Note);
        let at = self.note_copy * BLOCK as u64;
        self.disk.file(FileKind::Write, self.config.superblock, at, memory, DiskJob::Note);
    }

    /// Takes the end of an operation of a note.
    pub(super) fn note_done(&mut self, operation: DiskOperation, status: Status) {
        let is_write = matches!(operation, DiskOperation::File { kind: FileKind::Write, .. });
        if fault_of(status).is_none() && is_write {
            let file = self.config.superblock;
            self.disk.file(FileKind::Sync, file, 0, Span::EMPTY, DiskJob::Note);
            return;
        }
        // A note that failed is not tried again: the next group says what it would have said.
        self.noted = self.noting.take().map_or(self.noted, |noted| noted.max(self.noted));
        self.look_at_end();
    }

    /// Ends what [`super::LogCommand::Finish`] asked for, if nothing is left.
    pub(super) fn look_at_end(&mut self) {
        if !self.wants_end || !self.is_at_rest() || self.compaction.is_reading() {
            return;
        }
        if self.has_to_note() {
            self.note();
        } else if self.noting.is_none() {
            self.wants_end = false;
            self.notify(LogEvent::Finished);
        }
    }
}
