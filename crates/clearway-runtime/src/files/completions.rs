//! Hands finished tasks from workers to the caller, and makes an event counter readable when there
//! are some.
//!
//! # Invariants
//! I1. The counter is readable while an end that was signalled was not taken, and not after that.

use std::collections::VecDeque;
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, PoisonError};

use clearway_proto::wire::Fault;
use rustix::event::EventfdFlags;

use super::task::FileTask;

/// A task that ended: with a number of bytes moved, or with a fault.
#[derive(Debug)]
pub(super) struct FileCompletion {
    pub(super) task: FileTask,
    pub(super) outcome: Result<u64, Fault>,
}

/// Ends from all workers of one wire.
#[derive(Debug)]
pub(super) struct CompletionQueue {
    ends: Mutex<Vec<FileCompletion>>,
    /// Says without a lock whether there may be some.
    some: AtomicBool,
    counter: OwnedFd,
}

impl CompletionQueue {
    pub(super) fn new() -> io::Result<Self> {
        let counter = rustix::event::eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)?;
        Ok(Self { ends: Mutex::default(), some: AtomicBool::new(false), counter })
    }

    /// Returns the event counter, readable when there is something to take.
    pub(super) fn signal(&self) -> BorrowedFd<'_> {
        self.counter.as_fd()
    }

    /// Returns whether there is something to take.
    pub(super) fn has_some(&self) -> bool {
        self.some.load(Ordering::Acquire)
    }

    /// Adds an end.
    pub(super) fn put(&self, end: FileCompletion) {
        let mut ends = self.ends.lock().unwrap_or_else(PoisonError::into_inner);
        ends.push(end);
        self.some.store(true, Ordering::Release);
    }

    /// Makes the event counter readable if there is something to take.
    pub(super) fn raise(&self) {
        // Under the lock: a counter that is written after its end was taken would wake the caller
        // again and again for nothing.
        let ends = self.ends.lock().unwrap_or_else(PoisonError::into_inner);
        if ends.is_empty() {
            return;
        }
        // A counter that is full can be read as well.
        let _ = rustix::io::write(&self.counter, &1u64.to_ne_bytes());
    }

    /// Resets the event counter and moves all ends.
    pub(super) fn take(&self, into: &mut VecDeque<FileCompletion>) {
        if !self.has_some() {
            return;
        }
        // Under the lock, as it is written.
        let mut ends = self.ends.lock().unwrap_or_else(PoisonError::into_inner);
        self.some.store(false, Ordering::Release);
        let mut count = [0; 8];
        let _ = rustix::io::read(&self.counter, &mut count);
        into.extend(ends.drain(..));
    }
}
