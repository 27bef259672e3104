//! Where the state of a data queue lies: with the thread that uses the queue, or behind a lock.
//!
//! # Model
//! A queue of one thread has its state in this thread's own memory, so that a push needs no lock,
//! which takes twice as long as the copy of an element. A queue of several threads has it behind a
//! lock.
//!
//! # Invariants
//! I1. No thread but its own sees the state of a queue of one thread.

use std::cell::RefCell;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, PoisonError};

use super::channel::ChannelQueue;

/// Which threads use a data queue.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum ChannelUsers {
    /// The one that creates it.
    Creator,
    /// Several, together or in turn.
    Several,
}

thread_local! {
    /// The states of this thread's queues, each with its key.
    static OWN: RefCell<Vec<(u64, ChannelQueue)>> = const { RefCell::new(Vec::new()) };
}

/// The key of no state.
const NONE: u64 = 0;

/// The state of a data queue, if there is one.
#[derive(Debug, Default)]
pub(super) struct ChannelState {
    /// That of the state in a thread's memory; never used again in this process.
    key: AtomicU64,
    shared: Mutex<Option<ChannelQueue>>,
}

impl ChannelState {
    /// Keeps the state of a new queue. There is no other one.
    pub(super) fn put(&self, state: ChannelQueue, users: ChannelUsers) {
        static NEXT: AtomicU64 = AtomicU64::new(NONE + 1);
        match users {
            ChannelUsers::Creator => {
                let key = NEXT.fetch_add(1, Ordering::Relaxed);
                OWN.with_borrow_mut(|own| own.push((key, state)));
                self.key.store(key, Ordering::Release);
            }
            ChannelUsers::Several => {
                *self.shared.lock().unwrap_or_else(PoisonError::into_inner) = Some(state);
            }
        }
    }

    /// Runs `run` with the state, or with none where there is no such queue or it is another
    /// thread's.
    #[inline]
    pub(super) fn with<R>(&self, run: impl FnOnce(Option<&mut ChannelQueue>) -> R) -> R {
        let key = self.key.load(Ordering::Relaxed);
        if key == NONE {
            let mut shared = self.shared.lock().unwrap_or_else(PoisonError::into_inner);
            return run(shared.as_mut());
        }
        OWN.with(|own| {
            let mut own = own.try_borrow_mut().ok();
            let own = own.as_mut().and_then(|own| own.iter_mut().find(|(of, _)| *of == key));
            run(own.map(|(_, state)| state))
        })
    }

    /// Drops the state. That of another thread is dropped when that thread ends.
    pub(super) fn clear(&self) {
        let key = self.key.swap(NONE, Ordering::AcqRel);
        OWN.with_borrow_mut(|own| own.retain(|(of, _)| *of != key));
        *self.shared.lock().unwrap_or_else(PoisonError::into_inner) = None;
    }
}
