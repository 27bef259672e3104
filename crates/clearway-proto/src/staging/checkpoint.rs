//! Snapshots while the log runs: when one is taken, and how it comes to the disk.
//!
//! # Model
//! A snapshot is taken between two groups, when nothing is in the open one. Its bytes are made at
//! once, and written when the last group that it covers is durable: a snapshot on disk never knows
//! more than the log. That doubles the memory of the tree for a while. One that failed is tried again
//! after [`RETRY_AFTER`], and after twice the time before from then on: without a snapshot a full log
//! frees no segment, and takes no call that could lead to another attempt.
//!
//! # Invariants
//! I1. The file of the snapshot in force is not written to.
//! I2. A snapshot is in force when its sync is over, not before.

use alloc::vec::Vec;

use super::disk_queue::DiskJob;
use super::log::{LogPhase, StagingLog};
use super::opening::fault_of;
use super::snapshot::SnapshotHeader;
use super::{BLOCK, LogError, LogEvent, blocks};
use crate::base::{LocalNs, Nanos, crc32c};
use crate::wire::{Fault, FileKind, Span, Status};

/// Bytes of a snapshot that are written at a time.
const SLICE: usize = 64 << 10;

/// How long after the first one that failed another snapshot is tried, and how long at most after a
/// later one.
const RETRY_AFTER: Nanos = Nanos::from_secs(5);
const RETRY_AFTER_MAX: Nanos = Nanos::from_secs(300);

/// Snapshots that failed since the last one in force.
#[derive(Clone, Copy, Debug)]
pub(super) struct SnapshotFailure {
    /// Why the last one failed.
    pub(super) fault: Fault,
    retry_at: LocalNs,
    /// How long that is after the failure.
    wait: Nanos,
}

/// A snapshot that is not in force yet.
#[derive(Debug)]
pub(super) enum Checkpoint {
    /// There is none.
    None,
    /// The last group that it covers is not durable.
    Waiting { header: SnapshotHeader, state: Vec<u8> },
    /// Its state is written; `written` bytes are, or are on their way.
    Writing { header: SnapshotHeader, state: Vec<u8>, written: usize },
    /// Its header is on its way.
    Heading { header: SnapshotHeader },
    /// Its sync is under way.
    Syncing { header: SnapshotHeader },
}

impl StagingLog {
    /// Returns whether a snapshot could be taken now.
    fn can_checkpoint(&self) -> bool {
        matches!(self.checkpoint, Checkpoint::None)
            && matches!(self.phase, LogPhase::Open)
            && self.trouble.is_none()
            && self.open.records == 0
            && self.end.group > self.covered.0
    }

    /// Returns when a snapshot that failed is tried again.
    pub(super) fn checkpoint_at(&self) -> Option<LocalNs> {
        let retry_at = self.snapshot_failure?.retry_at;
        self.can_checkpoint().then_some(retry_at)
    }

    /// Takes a snapshot if one is wanted and can be taken now.
    pub(super) fn begin_checkpoint(&mut self) {
        let is_wanted = match self.snapshot_failure {
            Some(SnapshotFailure { retry_at, .. }) => retry_at <= self.now,
            None => {
                self.since_snapshot >= self.config.snapshot_every.0 || self.waits_for_snapshot()
            }
        };
        if !is_wanted || !self.can_checkpoint() {
            return;
        }
        self.since_snapshot = 0;
        let state = self.state.encode();
        let length = state.len() as u64;
        if BLOCK as u64 + length > self.config.snapshot_size.0 {
            self.checkpoint_failed(Fault::NoSpace);
            return;
        }
        let header =
            SnapshotHeader { log: self.log, end: self.end, length, digest: crc32c(&state) };
        self.checkpoint = Checkpoint::Waiting { header, state };
        self.write_checkpoint();
    }

    /// Forgets a snapshot whose last group is not durable: that group gets another place.
    pub(super) fn drop_checkpoint(&mut self) {
        if matches!(self.checkpoint, Checkpoint::Waiting { .. }) {
            self.checkpoint = Checkpoint::None;
        }
    }

    /// Begins to write a snapshot whose last group is durable.
    pub(super) fn write_checkpoint(&mut self) {
        match core::mem::replace(&mut self.checkpoint, Checkpoint::None) {
            Checkpoint::Waiting { header, state } if header.end.group <= self.durable_end.group => {
                self.write_slice(header, state, 0);
            }
            other => self.checkpoint = other,
        }
    }

    fn write_slice(&mut self, header: SnapshotHeader, state: Vec<u8>, from: usize) {
        let slice = &state[from..state.len().min(from + SLICE)];
        let at = (BLOCK + from) as u64;
        let written = from + slice.len();
        let file = self.config.snapshots[1 - self.covered.1];
        let length = blocks(slice.len() as u64) * BLOCK as u32;
        let memory = Span { length, ..self.work_memory() };
        self.disk.store(slice, memory.region, memory.offset, DiskJob::Snapshot);
        self.disk.file(FileKind::Write, file, at, memory, DiskJob::Snapshot);
        self.checkpoint = Checkpoint::Writing { header, state, written };
    }

    fn checkpoint_failed(&mut self, fault: Fault) {
        let before = self.snapshot_failure;
        let twice = |before: SnapshotFailure| Nanos(before.wait.0 * 2).min(RETRY_AFTER_MAX);
        let wait = before.map_or(RETRY_AFTER, twice);
        self.snapshot_failure = Some(SnapshotFailure { fault, retry_at: self.now + wait, wait });
        if before.is_none_or(|before| before.fault != fault) {
            self.notify(LogEvent::Notice(LogError::SnapshotFailed(fault)));
        }
    }

    /// Takes the end of an operation of a snapshot.
    pub(super) fn checkpoint_done(&mut self, status: Status) {
        let checkpoint = core::mem::replace(&mut self.checkpoint, Checkpoint::None);
        if let Some(fault) = fault_of(status) {
            self.checkpoint_failed(fault);
            return;
        }
        let file = self.config.snapshots[1 - self.covered.1];
        match checkpoint {
            Checkpoint::Writing { header, state, written } if written < state.len() => {
                self.write_slice(header, state, written);
            }
            Checkpoint::Writing { header, .. } => {
                let memory = Span { length: BLOCK as u32, ..self.work_memory() };
                let block = header.encode();
                self.disk.store(&block, memory.region, memory.offset, DiskJob::Snapshot);
                self.disk.file(FileKind::Write, file, 0, memory, DiskJob::Snapshot);
                self.checkpoint = Checkpoint::Heading { header };
            }
            Checkpoint::Heading { header } => {
                self.disk.file(FileKind::Sync, file, 0, Span::EMPTY, DiskJob::Snapshot);
                self.checkpoint = Checkpoint::Syncing { header };
            }
            Checkpoint::Syncing { header } => {
                self.snapshot_failure = None;
                self.covered = (header.end.group, 1 - self.covered.1);
                self.close_if_due();
                self.begin_checkpoint();
                self.compact();
            }
            other => self.checkpoint = other,
        }
    }
}
