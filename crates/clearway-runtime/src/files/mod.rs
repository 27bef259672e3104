//! Adds file operations to any wire: threads do them, and a completion wakes the thread that waits
//! for the wire.
//!
//! # Model
//! ```text
//!    post --copy--> buffer --queue of the target--> worker thread --pread, pwrite, fdatasync
//!    poll <--copy-- buffer <------ finished, event counter ------------'
//! ```
//! A thread of the application can do the operations of the queue too ([`FileWire::runner`]): that
//! spares the changes of threads, which take longer than a short operation.
//!
//! The application opens files and gives them to [`FileWire::open`]; an engine names them by
//! [`FileId`]. A *target* is a device or a file system. Each target has worker threads, a queue and
//! buffers of its own. Bytes of a write are copied into buffers when it is posted, those of a read
//! into memory when it is polled, so that no thread but the caller's touches a region. Bytes that
//! nobody changes are held and not copied ([`Wire::hold`]); they need no buffers.
//!
//! - A sync covers exactly the writes of its file whose completion was given before the sync was
//!   posted.
//! - Nothing else among file operations is ordered, not even two operations of one file.
//! - The value of a completion is the number of bytes that were moved; it is zero for a sync and
//!   for what failed.
//! - A read that reaches the end of its file completes with the bytes in front of the end, and
//!   leaves the rest of its memory.
//! - A write that fails may have changed any part of its range.
//! - A failed sync is not repeated: the kernel reports lost bytes once, and a second sync that
//!   succeeds says nothing about them.
//! - An operation of a file that is closed before a worker begins it fails with
//!   [`Fault::Gone`](clearway_proto::wire::Fault::Gone).
//! - A directory is a file that can be synced.
//! - A full queue, or too few free buffers, answers `NoRoom`; `Room` follows when the target can
//!   take such an operation.
//!
//! # Invariants
//! I1. Posting and polling make no call on a file, closing included: each can block for as long as
//!     a device hangs. Worker threads and runners make them.
//! I2. A target that hangs takes its own threads, queue and buffers, and nothing of another target.
//! I3. No wake-up is lost. A worker adds an end before it writes the event counter; a poll takes all
//!     ends and resets the counter under the lock under which it is written.
//!
//! # Not here
//! Names of files, and which of them lie on one target: the application knows.

mod combining;
mod completions;
mod pool;
mod target;
mod task;

use std::collections::{BTreeMap, VecDeque};
use std::fs::File;
use std::io;
use std::os::fd::BorrowedFd;
use std::sync::Arc;

use clearway_proto::base::{Bytes, LocalNs, Nanos};
use clearway_proto::wire::{
    Arrival, Capabilities, Counters, FileId, FileKind, Operation, OperationKind, PostOutcome,
    Queue, RefusalReason, RegionId, Span, Status, Token, Wire, forward_wire,
};

use self::combining::CombiningFile;
use self::completions::{CompletionQueue, FileCompletion};
use self::target::FileTarget;
pub use self::target::TargetRunner;
use self::task::{FileDevice, FileTask, OpenFile};
use crate::RuntimeError;
use crate::waiting::{Rest, WaitSource, Waitable, Wake, WakeDescriptors, WakeReason};

/// A device or a file system, by the application's number.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct TargetId(pub u32);

/// Limits of each target.
#[derive(Clone, Copy, Debug)]
pub struct FileConfig {
    /// Threads, at least one: operations that are under way at the device together.
    pub threads: usize,
    /// Operations posted and not yet polled.
    pub depth: usize,
    /// Bytes of one buffer; a longer operation takes several. Memory is taken when it is first
    /// used.
    pub buffer: Bytes,
    /// Buffers. What needs more than all of them is refused as [`RefusalReason::Length`].
    pub buffers: usize,
}

impl Default for FileConfig {
    /// Returns the usual configuration: two threads, so that a sync and a write overlap, and 16
    /// MiB: four of the longest groups of writes that one sync covers.
    fn default() -> Self {
        Self { threads: 2, depth: 64, buffer: Bytes(1 << 20), buffers: 16 }
    }
}

/// A wire with the operations of another one and file operations.
#[derive(Debug)]
pub struct FileWire<W> {
    below: W,
    capabilities: Capabilities,
    files: FileState,
}

impl<W: Wire> FileWire<W> {
    /// Adds file operations to `below`; its own, if it has any, are hidden.
    ///
    /// # Errors
    /// [`RuntimeError::System`] when the system gives no event counter.
    pub fn new(below: W, config: FileConfig) -> Result<Self, RuntimeError> {
        let mut capabilities = below.capabilities().clone();
        capabilities.operations = capabilities.operations.with(OperationKind::File);
        Ok(Self { below, capabilities, files: FileState::new(config)? })
    }

    /// Opens a file for an engine. The first file of a target starts the target's threads. A file
    /// that was opened to append ignores where a write should go.
    ///
    /// # Errors
    /// [`RuntimeError::System`] when the system starts no thread.
    pub fn open(&mut self, file: File, target: TargetId) -> Result<FileId, RuntimeError> {
        self.files.open(Box::new(file), target)
    }

    /// Opens a file whose small writes follow each other and are synced soon: the wire holds them
    /// until a sync, a read of them or a longer write, so they are lost if this process ends before.
    /// `direct` is the same file opened with `O_DIRECT`, on a file system that makes a direct write
    /// with `RWF_DSYNC` durable: such a sync takes one call.
    ///
    /// # Errors
    /// [`RuntimeError::System`] when the system starts no thread.
    pub fn open_combining(
        &mut self,
        file: File,
        direct: Option<File>,
        target: TargetId,
    ) -> Result<FileId, RuntimeError> {
        self.files.open(Box::new(CombiningFile::new(file, direct)), target)
    }

    /// Closes a file, without waiting for it. Its number is not used again.
    pub fn close(&mut self, file: FileId) {
        self.files.close(file);
    }

    /// Returns what does the operations of `target` on a thread of the application, which spares
    /// two wake-ups; none while no file of it is open.
    pub fn runner(&self, target: TargetId) -> Option<TargetRunner> {
        let files = &self.files;
        files.targets.get(&target).map(|target| target.runner(&files.finished))
    }

    /// Leaves short operations of `target` to a runner, which works until [`FileWire::end_inline`].
    pub fn begin_inline(&mut self, target: TargetId) {
        if let Some(target) = self.files.targets.get_mut(&target) {
            target.begin_inline();
        }
    }

    /// Wakes the threads of `target` for operations that are left.
    pub fn end_inline(&mut self, target: TargetId) {
        if let Some(target) = self.files.targets.get_mut(&target) {
            target.end_inline();
        }
    }

    /// Returns the wire that carries all other operations.
    pub fn below_mut(&mut self) -> &mut W {
        &mut self.below
    }
}

/// Files, targets, and what ended.
#[derive(Debug)]
struct FileState {
    config: FileConfig,
    targets: BTreeMap<TargetId, FileTarget>,
    opened: BTreeMap<FileId, (TargetId, Arc<OpenFile>)>,
    next: u32,
    finished: Arc<CompletionQueue>,
    /// Ends that a poll has not given yet.
    ended: VecDeque<FileCompletion>,
    no_room: u64,
    /// Whether the next poll begins with files: where both have much, they take turns.
    comes_first: bool,
    /// An operation that was refused gave back what another one found missing.
    has_room: bool,
}

impl FileState {
    fn new(config: FileConfig) -> Result<Self, RuntimeError> {
        Ok(Self {
            config,
            targets: BTreeMap::new(),
            opened: BTreeMap::new(),
            next: 0,
            has_room: false,
            finished: Arc::new(
                CompletionQueue::new().map_err(RuntimeError::system("make an event counter"))?,
            ),
            ended: VecDeque::new(),
            no_room: 0,
            comes_first: true,
        })
    }

    fn open(
        &mut self,
        device: Box<dyn FileDevice>,
        target: TargetId,
    ) -> Result<FileId, RuntimeError> {
        if !self.targets.contains_key(&target) {
            let made = FileTarget::open(target, &self.config, &self.finished);
            self.targets.insert(target, made.map_err(RuntimeError::system("start a thread"))?);
        }
        let id = FileId(self.next);
        self.next += 1;
        self.opened.insert(id, (target, Arc::new(OpenFile::new(device))));
        Ok(id)
    }

    fn close(&mut self, file: FileId) {
        if let Some((target, opened)) = self.opened.remove(&file)
            && let Some(target) = self.targets.get(&target)
        {
            target.close(opened);
        }
    }

    /// Starts one operation on memory of `below`.
    fn start(
        &mut self,
        below: &mut dyn Wire,
        kind: FileKind,
        file: FileId,
        at: u64,
        memory: Span,
        token: Token,
    ) -> Result<PostOutcome, RefusalReason> {
        let (target, opened) = self.opened.get(&file).ok_or(RefusalReason::Memory)?;
        let target_id = *target;
        let target = self.targets.get_mut(&target_id).ok_or(RefusalReason::Memory)?;
        check(below, kind, memory)?;
        let length = if kind == FileKind::Sync { 0 } else { memory.length };
        let held = if kind == FileKind::Write { below.hold(memory) } else { None };
        let Some(mut buffers) = target.take(if held.is_some() { 0 } else { length })? else {
            self.no_room += 1;
            return Ok(PostOutcome::NoRoom);
        };
        if kind == FileKind::Write
            && held.is_none()
            && let Err(missing) =
                in_parts(memory, buffers.parts_mut(length as usize), |span, part| {
                    below.copy_out(span, part)
                })
        {
            self.has_room |= target.give_back(buffers);
            return Err(missing);
        }
        target.put(
            Arc::clone(opened),
            FileTask { kind, at, length, buffers, held, memory, token, target: target_id },
        );
        Ok(PostOutcome::Posted)
    }

    /// Returns whether a poll would give something.
    fn is_ready(&self) -> bool {
        self.has_room || !self.ended.is_empty() || self.finished.has_some()
    }

    /// Gives at most about `limit` arrivals.
    fn poll(
        &mut self,
        below: &mut dyn Wire,
        limit: usize,
        sink: &mut dyn FnMut(Arrival<'_>),
    ) -> usize {
        self.finished.take(&mut self.ended);
        let mut given = 0;
        if limit > 0 && std::mem::take(&mut self.has_room) {
            sink(Arrival::Room { queue: Queue::Files });
            given += 1;
        }
        while given < limit
            && let Some(FileCompletion { task, outcome }) = self.ended.pop_front()
        {
            let (status, value) = match outcome {
                Ok(moved) => copied(below, &task, moved),
                Err(fault) => (Status::Failed(fault), 0),
            };
            sink(Arrival::Done { token: task.token, status, value, at: below.now() });
            given += 1;
            if let Some(target) = self.targets.get_mut(&task.target)
                && target.give_back(task.buffers)
            {
                sink(Arrival::Room { queue: Queue::Files });
                given += 1;
            }
        }
        given
    }
}

impl Drop for FileState {
    /// Leaves every file to its target's threads: closing can block.
    fn drop(&mut self) {
        while let Some((file, _)) = self.opened.first_key_value() {
            self.close(*file);
        }
    }
}

/// Checks that there is such memory, and a read may go there.
fn check(below: &dyn Wire, kind: FileKind, memory: Span) -> Result<(), RefusalReason> {
    if memory.length == 0 {
        return Ok(());
    }
    if kind == FileKind::Read && memory.region == RegionId::RECEIVE {
        return Err(RefusalReason::Memory);
    }
    let last =
        memory.offset.checked_add(u64::from(memory.length) - 1).ok_or(RefusalReason::Memory)?;
    below.copy_out(Span { offset: last, length: 1, ..memory }, &mut [0])
}

/// Gives each part with the part of `memory` that belongs to it.
fn in_parts<P: AsRef<[u8]>>(
    memory: Span,
    parts: impl Iterator<Item = P>,
    mut copy: impl FnMut(Span, P) -> Result<(), RefusalReason>,
) -> Result<(), RefusalReason> {
    let mut offset = memory.offset;
    for part in parts {
        let length = part.as_ref().len() as u32;
        copy(Span { offset, length, ..memory }, part)?;
        offset += u64::from(length);
    }
    Ok(())
}

/// Copies what `task` read to its place; says how it ended.
fn copied(below: &mut dyn Wire, task: &FileTask, moved: u64) -> (Status, u64) {
    if task.kind == FileKind::Read && moved > 0 {
        let parts = task.buffers.parts(moved as usize);
        if let Err(missing) = in_parts(task.memory, parts, |span, part| below.copy_in(span, part)) {
            return (Status::Refused(missing), 0);
        }
    }
    (Status::Complete, moved)
}

impl<W: Wire> Wire for FileWire<W> {
    forward_wire!(below: rank, now, memory, groups, deadline);

    fn capabilities(&self) -> &Capabilities {
        &self.capabilities
    }

    fn post(&mut self, operations: &[Operation], heads: &[u8], answers: &mut Vec<PostOutcome>) {
        // Runs of other operations stay together, and in order with the copies that a file
        // operation needs.
        for run in operations.chunk_by(|a, b| is_file(a) == is_file(b)) {
            if !run.first().is_some_and(is_file) {
                self.below.post(run, heads, answers);
                continue;
            }
            for operation in run {
                let Operation::File { kind, file, at, memory, token, .. } = *operation else {
                    continue;
                };
                let answer = self.files.start(&mut self.below, kind, file, at, memory, token);
                answers.push(answer.unwrap_or_else(PostOutcome::Refused));
            }
        }
    }

    fn poll(&mut self, limit: usize, sink: &mut dyn FnMut(Arrival<'_>)) -> usize {
        let first = self.files.comes_first;
        self.files.comes_first = !first;
        let before = if first { self.files.poll(&mut self.below, limit, sink) } else { 0 };
        // A wire makes progress in a poll, also in one of nothing.
        let given = before + self.below.poll(limit.saturating_sub(before), sink);
        let behind = if first {
            0
        } else {
            self.files.poll(&mut self.below, limit.saturating_sub(given), sink)
        };
        given + behind
    }

    fn counters(&self) -> Counters {
        self.below.counters() + Counters { no_room: self.files.no_room, ..Counters::default() }
    }
}

const fn is_file(operation: &Operation) -> bool {
    matches!(operation, Operation::File { .. })
}

/// Puts the event counter in front of `extra`, of which then 63 can be distinguished.
fn with_signal<'a>(signal: BorrowedFd<'a>, extra: &[BorrowedFd<'a>]) -> Vec<BorrowedFd<'a>> {
    [&[signal], extra].concat()
}

/// Reads the outcome of a wait with the event counter in front as one without it.
fn without_signal(woken: WakeReason, is_ready: bool) -> WakeReason {
    WakeReason::new(woken.wire || woken.extra(0) || is_ready, woken.extra_set() >> 1)
}

impl<W: Wire + Wake> Wake for FileWire<W> {
    fn wake_descriptors(&mut self) -> io::Result<Option<WakeDescriptors>> {
        let below = self.below.wake_descriptors()?;
        below.map(|below| below.with(self.files.finished.signal())).transpose()
    }

    fn rest(&mut self) -> Rest {
        if self.files.is_ready() { Rest::Again } else { self.below.rest() }
    }
}

impl<W: Wire + WaitSource> WaitSource for FileWire<W> {
    fn poll_ready(&mut self, timeout: Option<Nanos>, extra: &[BorrowedFd<'_>]) -> WakeReason {
        if self.files.is_ready() || timeout == Some(Nanos::ZERO) {
            let woken = self.below.poll_ready(Some(Nanos::ZERO), extra);
            return WakeReason::new(woken.wire || self.files.is_ready(), woken.extra_set());
        }
        let woken =
            self.below.poll_ready(timeout, &with_signal(self.files.finished.signal(), extra));
        without_signal(woken, self.files.is_ready())
    }
}

impl<W: Waitable> Waitable for FileWire<W> {
    fn wait(&mut self, until: Option<LocalNs>, extra: &[BorrowedFd<'_>]) -> WakeReason {
        if self.files.is_ready() {
            let woken = self.below.wait(Some(LocalNs(0)), extra);
            return WakeReason::new(true, woken.extra_set());
        }
        let woken = self.below.wait(until, &with_signal(self.files.finished.signal(), extra));
        without_signal(woken, self.files.is_ready())
    }
}

#[cfg(test)]
mod tests;
