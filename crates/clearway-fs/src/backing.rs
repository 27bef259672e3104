//! Bytes that only the store has, for readers.
//!
//! # Model
//! A read of the store waits as long as the store likes, so it is made by threads of its own, and the
//! threads that answer the kernel stay free. Objects are kept open for a while. A version of a file in
//! the store is found in the object that was opened when the tree said so, or in a later one: what the
//! tree has of the store has not changed between them.
//!
//! # Invariants
//! I1. A store that hangs delays nobody but those who read what only the store has.

use std::collections::VecDeque;
use std::fs::File;
use std::io;
use std::os::unix::fs::{FileExt, MetadataExt};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use clearway_proto::staging::InodeId;
use rustix::io::Errno;

use crate::engine::Engine;

/// Threads that read from the store.
const THREADS_MAX: usize = 16;
/// How long a thread waits for the next read.
const IDLE_MAX: Duration = Duration::from_secs(10);
/// The unit of `st_blocks`: `stat(2)`.
const BLOCK: u64 = 512;
/// Objects that are kept open.
const OBJECTS_MAX: usize = 64;

/// Sends the bytes of a read.
pub(crate) type ReadAnswer = Box<dyn FnOnce(Result<&[u8], Errno>) + Send>;

/// A read that needs the store.
struct StoreRead {
    inode: InodeId,
    offset: u64,
    length: u32,
    answer: ReadAnswer,
}

/// An object of a file, opened when the store had at least this version.
struct OpenObject {
    inode: InodeId,
    drained: u64,
    file: Arc<File>,
}

#[derive(Default)]
struct ReadLists {
    waiting: VecDeque<StoreRead>,
    threads: usize,
    idle: usize,
}

/// Reads of the store, and what they have open.
#[derive(Default)]
pub(crate) struct StoreReads {
    lists: Mutex<ReadLists>,
    comes: Condvar,
    objects: Mutex<VecDeque<OpenObject>>,
    /// Whether an operator knows that reads fail.
    is_said: AtomicBool,
}

impl StoreReads {
    fn lists(&self) -> MutexGuard<'_, ReadLists> {
        self.lists.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Returns the next read; none when none came for a while.
    fn next(&self) -> Option<StoreRead> {
        let mut lists = self.lists();
        lists.idle += 1;
        let waited = self.comes.wait_timeout_while(lists, IDLE_MAX, |l| l.waiting.is_empty());
        let (mut lists, _) = waited.unwrap_or_else(PoisonError::into_inner);
        lists.idle -= 1;
        let next = lists.waiting.pop_front();
        if next.is_none() {
            lists.threads -= 1;
        }
        next
    }
}

impl Engine {
    /// Sends the bytes from `offset` on, at most `length` of them: at once, unless the store has some.
    pub(crate) fn read_for(
        self: &Arc<Self>,
        inode: InodeId,
        offset: u64,
        length: u32,
        answer: ReadAnswer,
    ) {
        if !self.look(|core| core.needs_store(inode, offset, u64::from(length))) {
            return self.read(inode, offset, length, answer);
        }
        let mut lists = self.store_reads.lists();
        lists.waiting.push_back(StoreRead { inode, offset, length, answer });
        let wants_thread = lists.idle < lists.waiting.len() && lists.threads < THREADS_MAX;
        if wants_thread {
            let shared = Arc::clone(self);
            let thread = std::thread::Builder::new().name("staging-read".into());
            let work = move || {
                while let Some(StoreRead { inode, offset, length, answer }) =
                    shared.store_reads.next()
                {
                    shared.read(inode, offset, length, answer);
                }
            };
            // Without one, those that are there take it; without any, the read is made here.
            match thread.spawn(work) {
                Ok(_) => lists.threads += 1,
                Err(_) if lists.threads == 0 => {
                    let read = lists.waiting.pop_back();
                    drop(lists);
                    if let Some(StoreRead { inode, offset, length, answer }) = read {
                        self.read(inode, offset, length, answer);
                    }
                    return;
                }
                Err(_) => {}
            }
        }
        drop(lists);
        self.store_reads.comes.notify_one();
    }

    /// Fills `bytes` from a place of a file in the store on; whether the store has all of them.
    pub(crate) fn read_store(
        &self,
        inode: InodeId,
        drained: u64,
        at: u64,
        bytes: &mut [u8],
    ) -> io::Result<bool> {
        let file = self.object(inode, drained)?;
        match file.read_exact_at(bytes, at) {
            Ok(()) => {
                self.store_reads.is_said.store(false, Ordering::Relaxed);
                Ok(true)
            }
            Err(why) if why.kind() == io::ErrorKind::UnexpectedEof => Ok(false),
            Err(why) => Err(why),
        }
    }

    fn object(&self, inode: InodeId, drained: u64) -> io::Result<Arc<File>> {
        let objects = || self.store_reads.objects.lock().unwrap_or_else(PoisonError::into_inner);
        let is_it = |open: &&OpenObject| (open.inode, open.drained) == (inode, drained);
        if let Some(open) = objects().iter().find(is_it) {
            return Ok(Arc::clone(&open.file));
        }
        let reader = self.reader.get().ok_or(io::ErrorKind::NotFound)?;
        let file = Arc::new(reader.open_object(inode)?);
        if let Ok(found) = file.metadata() {
            let bytes = found.blocks().saturating_mul(BLOCK);
            self.look(|core| core.note_object(inode, drained, bytes));
        }
        let mut objects = objects();
        objects.retain(|open| open.inode != inode);
        if objects.len() >= OBJECTS_MAX {
            objects.pop_front();
        }
        objects.push_back(OpenObject { inode, drained, file: Arc::clone(&file) });
        Ok(file)
    }

    /// Says once that bytes of the store cannot be read, until they can be again.
    pub(crate) fn say_unreadable(&self, inode: InodeId, why: &str) {
        if !self.store_reads.is_said.swap(true, Ordering::Relaxed) {
            let path = self.look(|core| core.tree().path(inode)).unwrap_or_default();
            let path = String::from_utf8_lossy(&path).into_owned();
            self.say(&format!("the store: cannot read the bytes of /{path}: {why}"));
        }
    }
}
