//! One target: its queue, its threads, and how much it takes.
//!
//! A thread of the application can do operations of the queue too ([`TargetRunner`]). While it does,
//! short operations wake no other thread: a wake-up takes longer than they do.
//!
//! # Invariants
//! I1. No thread holds the queue's lock during a call on a file.
//! I2. A file is closed by a thread of its target, or by a runner.
//! I3. While operations wait and nobody runs them inline, a thread was woken for each.

use std::collections::VecDeque;
use std::io;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread;

use clearway_proto::wire::RefusalReason;

use super::completions::{CompletionQueue, FileCompletion};
use super::pool::{OperationBuffers, TargetBuffers};
use super::task::{FileTask, OpenFile};
use super::{FileConfig, TargetId};

/// Bytes of an operation for which a thread is woken though a runner is there: it takes longer than
/// the wake-up.
const LONG: u32 = 128 << 10;

/// An item of the queue.
#[derive(Debug)]
enum QueueItem {
    Run(Arc<OpenFile>, FileTask),
    /// Closes the file, if nothing else has it.
    Close(Arc<OpenFile>),
}

impl QueueItem {
    fn run(self) -> Option<FileCompletion> {
        match self {
            Self::Run(opened, mut task) => {
                let outcome = task.run(&opened);
                Some(FileCompletion { task, outcome })
            }
            Self::Close(opened) => {
                drop(opened);
                None
            }
        }
    }
}

#[derive(Debug)]
struct WorkQueue {
    jobs: VecDeque<QueueItem>,
    /// Threads end when the queue is empty and closed.
    is_open: bool,
}

/// The queue, shared by the caller and the threads.
#[derive(Debug)]
struct SharedQueue {
    line: Mutex<WorkQueue>,
    more: Condvar,
}

impl SharedQueue {
    fn line(&self) -> MutexGuard<'_, WorkQueue> {
        self.line.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn put(&self, job: QueueItem) {
        self.line().jobs.push_back(job);
    }

    fn take(&self) -> Option<QueueItem> {
        self.line().jobs.pop_front()
    }

    /// Waits for a job; `None` when there will be none.
    fn next(&self) -> Option<QueueItem> {
        let waits = |line: &mut WorkQueue| line.jobs.is_empty() && line.is_open;
        let line = self.more.wait_while(self.line(), waits);
        line.unwrap_or_else(PoisonError::into_inner).jobs.pop_front()
    }

    /// Ends the threads that do not hang. What they did not begin is not done, and its files are
    /// closed.
    fn end(&self) {
        let mut line = self.line();
        line.is_open = false;
        for job in &mut line.jobs {
            if let QueueItem::Run(opened, _) = job {
                *job = QueueItem::Close(Arc::clone(opened));
            }
        }
        drop(line);
        self.more.notify_all();
    }
}

/// A target, as the caller sees it.
#[derive(Debug)]
pub(super) struct FileTarget {
    shared: Arc<SharedQueue>,
    pool: TargetBuffers,
    under_way: usize,
    depth: usize,
    /// A runner takes short operations.
    is_inline: bool,
    /// The fewest buffers that an operation answered `NoRoom` needs.
    refused: Option<usize>,
}

impl FileTarget {
    /// Starts the threads of `target`; what they finish goes to `finished`.
    pub(super) fn open(
        target: TargetId,
        config: &FileConfig,
        finished: &Arc<CompletionQueue>,
    ) -> io::Result<Self> {
        let line = Mutex::new(WorkQueue { jobs: VecDeque::new(), is_open: true });
        let made = Self {
            shared: Arc::new(SharedQueue { line, more: Condvar::new() }),
            pool: TargetBuffers::new(config.buffers.max(1), config.buffer.0 as usize),
            under_way: 0,
            depth: config.depth.max(1),
            is_inline: false,
            refused: None,
        };
        for number in 0..config.threads.max(1) {
            let (shared, finished) = (Arc::clone(&made.shared), Arc::clone(finished));
            let name = format!("files-{}-{number}", target.0);
            // It is never joined: a thread whose device hangs may never end.
            thread::Builder::new().name(name).spawn(move || work(&shared, &finished))?;
        }
        Ok(made)
    }

    /// Takes the buffers for an operation of `length` bytes; nothing when the target is full.
    ///
    /// # Errors
    /// [`RefusalReason::Length`] when it never has enough.
    pub(super) fn take(&mut self, length: u32) -> Result<Option<OperationBuffers>, RefusalReason> {
        let needed = self.pool.needed(length as usize).ok_or(RefusalReason::Length)?;
        if self.under_way >= self.depth || !self.pool.has(needed) {
            self.refused = Some(self.refused.map_or(needed, |before| before.min(needed)));
            return Ok(None);
        }
        self.under_way += 1;
        Ok(Some(self.pool.take(needed)))
    }

    /// Puts a task with buffers of [`FileTarget::take`] into the queue.
    pub(super) fn put(&self, opened: Arc<OpenFile>, task: FileTask) {
        let is_long = task.length >= LONG;
        self.shared.put(QueueItem::Run(opened, task));
        if is_long || !self.is_inline {
            self.shared.more.notify_one();
        }
    }

    /// Returns a runner of the queue's operations, for a thread of the application.
    pub(super) fn runner(&self, finished: &Arc<CompletionQueue>) -> TargetRunner {
        TargetRunner { shared: Arc::clone(&self.shared), finished: Arc::clone(finished) }
    }

    /// Leaves short operations to a runner.
    pub(super) const fn begin_inline(&mut self) {
        self.is_inline = true;
    }

    /// Wakes the threads for what a runner left.
    pub(super) fn end_inline(&mut self) {
        self.is_inline = false;
        let left = self.shared.line().jobs.len();
        (0..left).for_each(|_| self.shared.more.notify_one());
    }

    /// Takes the buffers of a task that ended or never began; says whether an operation answered
    /// `NoRoom` has room now.
    pub(super) fn give_back(&mut self, buffers: OperationBuffers) -> bool {
        self.under_way -= 1;
        self.pool.give_back(buffers);
        let has_room = self.refused.is_some_and(|needed| self.pool.has(needed));
        if has_room {
            self.refused = None;
        }
        has_room
    }

    /// Closes a file, behind what a thread is doing with it.
    pub(super) fn close(&self, opened: Arc<OpenFile>) {
        opened.close();
        self.shared.put(QueueItem::Close(opened));
        self.shared.more.notify_one();
    }
}

impl Drop for FileTarget {
    fn drop(&mut self) {
        self.shared.end();
    }
}

/// Does operations of one target on a thread of the application.
#[derive(Clone, Debug)]
pub struct TargetRunner {
    shared: Arc<SharedQueue>,
    finished: Arc<CompletionQueue>,
}

impl TargetRunner {
    /// Does the operations that wait; returns how many. The next poll gives their ends; nobody is
    /// woken for them. Blocks for as long as the device.
    pub fn work(&self) -> usize {
        std::iter::from_fn(|| self.shared.take())
            .map(|job| job.run().into_iter().for_each(|end| self.finished.put(end)))
            .count()
    }
}

/// Takes jobs until the queue is closed.
fn work(shared: &SharedQueue, finished: &CompletionQueue) {
    while let Some(job) = shared.next() {
        if let Some(end) = job.run() {
            finished.put(end);
            finished.raise();
        }
    }
}
