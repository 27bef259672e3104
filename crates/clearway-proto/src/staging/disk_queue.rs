//! What the engine wants of its disk: in order, as many at a time as a step has room for.
//!
//! # Invariants
//! I1. Bytes are in memory before the operation behind them is posted.
//! I2. Every job ends once; one that found no room in the queue of files is posted again.

use alloc::collections::{BTreeMap, VecDeque};
use alloc::vec::Vec;

use super::GroupNumber;
use crate::base::Class;
use crate::wire::{FileId, FileKind, Operation, Out, RegionId, SHOW_MAX, Span, Status, Token};

/// What an operation is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum DiskJob {
    /// Opening the log.
    Opening,
    /// A part of a group.
    GroupWrite(GroupNumber),
    /// Groups of a segment.
    GroupSync,
    /// A snapshot.
    Snapshot,
    /// A note of what is durable.
    Note,
    /// Bytes that are to have another place.
    Compaction,
}

/// What to do.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum DiskOperation {
    File { kind: FileKind, file: FileId, at: u64, memory: Span },
    Show(Span),
}

#[derive(Clone, Debug)]
enum DiskTask {
    Store { bytes: Vec<u8>, into: Span, job: DiskJob },
    Operate { operation: DiskOperation, job: DiskJob },
}

/// Operations that wait and those under way.
#[derive(Debug, Default)]
pub(super) struct DiskQueue {
    waiting: VecDeque<DiskTask>,
    posted: BTreeMap<u64, (DiskOperation, DiskJob)>,
    next_token: u64,
    /// The queue of files was full, and has not said that there is room again.
    is_full: bool,
}

impl DiskQueue {
    /// Puts `bytes` into memory.
    pub(super) fn store(&mut self, bytes: &[u8], region: RegionId, offset: u64, job: DiskJob) {
        for (piece, bytes) in (0..).zip(bytes.chunks(SHOW_MAX)) {
            let offset = offset + piece * SHOW_MAX as u64;
            let into = Span { region, offset, length: bytes.len() as u32 };
            self.waiting.push_back(DiskTask::Store { bytes: bytes.into(), into, job });
        }
    }

    /// Asks for an operation behind those before.
    pub(super) fn operate(&mut self, operation: DiskOperation, job: DiskJob) {
        self.waiting.push_back(DiskTask::Operate { operation, job });
    }

    /// Asks for a file operation.
    pub(super) fn file(
        &mut self,
        kind: FileKind,
        file: FileId,
        at: u64,
        memory: Span,
        job: DiskJob,
    ) {
        self.operate(DiskOperation::File { kind, file, at, memory }, job);
    }

    /// Drops what waits of groups.
    pub(super) fn drop_groups(&mut self) {
        self.waiting.retain(|task| match task {
            DiskTask::Store { job, .. } | DiskTask::Operate { job, .. } => !is_of_groups(*job),
        });
    }

    /// Returns whether operations of groups are under way.
    pub(super) fn has_groups(&self) -> bool {
        self.posted.values().any(|(_, job)| is_of_groups(*job))
    }

    /// Notes that the queue of files has room.
    pub(super) const fn room(&mut self) {
        self.is_full = false;
    }

    /// Writes as many effects as there is room for; returns whether some are left that could be.
    pub(super) fn flush<E>(&mut self, out: &mut Out<E>) -> bool {
        while let Some(task) = self.waiting.front() {
            let is_held =
                matches!(task, DiskTask::Operate { operation: DiskOperation::File { .. }, .. });
            if is_held && self.is_full {
                return false;
            }
            if out.room() == 0 {
                return true;
            }
            match self.waiting.pop_front() {
                Some(DiskTask::Store { bytes, into, .. }) => {
                    let bytes = out.bytes(&bytes);
                    out.operate(Operation::Store { bytes, into });
                }
                Some(DiskTask::Operate { operation, job }) => self.post(operation, job, out),
                None => {}
            }
        }
        false
    }

    fn post<E>(&mut self, operation: DiskOperation, job: DiskJob, out: &mut Out<E>) {
        let token = Token(self.next_token);
        self.next_token += 1;
        self.posted.insert(token.0, (operation, job));
        out.operate(match operation {
            DiskOperation::File { kind, file, at, memory } => {
                Operation::File { kind, file, at, memory, class: Class::Bulk, token }
            }
            DiskOperation::Show(of) => Operation::Show { of, token },
        });
    }

    /// Takes the job of an operation that is over. One that found no room waits again.
    pub(super) fn end(&mut self, token: Token, status: Status) -> Option<(DiskOperation, DiskJob)> {
        let (operation, job) = self.posted.remove(&token.0)?;
        if status == Status::NoRoom {
            self.is_full = true;
            self.waiting.push_front(DiskTask::Operate { operation, job });
            return None;
        }
        Some((operation, job))
    }
}

const fn is_of_groups(job: DiskJob) -> bool {
    matches!(job, DiskJob::GroupWrite(_) | DiskJob::GroupSync)
}
