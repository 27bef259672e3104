//! Locks with one holder among all PEs, granted in order of requests (ticket locks).
//!
//! # Model
//! A lock is a symmetric `long` of the program, initially zero. Only the copy of one PE is used, its
//! *home*, chosen by the lock's offset to distribute locks. Its halves are two counters: tickets
//! issued (high) and tickets served (low). A PE that takes the lock draws a ticket and waits until it
//! is served; a PE that clears the lock serves the next ticket. After a while a waiter sleeps on the
//! served half, a futex in shared memory; the home's lines count sleepers. In a job on several hosts
//! waiters do not sleep on it: far PEs poll the home.
//!
//! # Source
//! OpenSHMEM 1.6, "Distributed Locking Routines".

use std::sync::atomic::{AtomicU32, Ordering};

use clearway_runtime::near::{self, PeerLocation};

use crate::address::Symmetric;
use crate::context::Context;
use crate::far::Change;
use crate::fault::Fault;
use crate::job::{self, Job, Reach};
use crate::order;
use crate::queue;
use crate::team::USED_SLOT;
use crate::word::Word;

/// Bytes of a counter; the machine stores the low half of a `long` first.
const HALF: usize = size_of::<u32>();

/// A lock at its home.
struct HomeLock {
    job: &'static Job,
    served: Reach<&'static AtomicU32>,
    given: Reach<&'static AtomicU32>,
    sleepers: &'static AtomicU32,
}

impl HomeLock {
    fn find(lock: Symmetric) -> Result<Self, Fault> {
        let job = job::get()?;
        job.own_word::<i64>(lock, "lock")?;
        let home = (job.segments.offset(lock) / size_of::<i64>()) % job.segments.pes();
        let half =
            |at: usize| job.word::<u32>(Context::DEFAULT, lock.plus(at), home as i32, "lock");
        let sleepers = &job.near.line(home, USED_SLOT, 1).sleepers;
        Ok(Self { job, served: half(0)?, given: half(HALF)?, sleepers })
    }

    fn served(&self) -> u32 {
        match self.served {
            Reach::Near(served) => served.load(Ordering::Acquire),
            Reach::Far(served) => served.fetch(Change::Fetch),
            Reach::Nothing => 0,
        }
    }

    /// Returns when `ticket` is served.
    fn wait(&self, ticket: u32) {
        match self.served {
            // Every change is by a PE of this host, which wakes who sleeps.
            Reach::Near(served) if self.job.far.is_none() => {
                let is_served = || served.load(Ordering::Acquire) == ticket;
                let policy = &self.job.wait_policy;
                if !is_served() && !policy.spin(is_served, || PeerLocation::Unknown) {
                    near::sleep_while(served, self.sleepers, |served| served != ticket);
                }
            }
            _ => self.job.wait(|| self.served() == ticket),
        }
    }

    /// Serves the next ticket.
    fn serve(&self) {
        match self.served {
            Reach::Near(served) => {
                served.fetch_add(1, Ordering::AcqRel);
                self.job.near.waking().after_change();
                if self.sleepers.load(Ordering::Relaxed) != 0 {
                    near::wake(served);
                }
            }
            Reach::Far(served) => served.change(Change::Add(1u32)),
            Reach::Nothing => {}
        }
    }
}

/// Takes the lock, and returns when this PE holds it (`shmem_set_lock`).
///
/// # Errors
/// No aligned `long` of symmetric memory.
pub fn set(lock: Symmetric) -> Result<(), Fault> {
    queue::finish(job::get()?)?;
    let lock = HomeLock::find(lock)?;
    let ticket = match lock.given {
        Reach::Near(given) => given.fetch_add(1, Ordering::AcqRel),
        Reach::Far(given) => given.fetch(Change::Add(1)),
        Reach::Nothing => 0,
    };
    lock.wait(ticket);
    Ok(())
}

/// Completes what the holder did, and lets the next one in (`shmem_clear_lock`).
///
/// # Errors
/// As [`set`].
pub fn clear(lock: Symmetric) -> Result<(), Fault> {
    order::quiet(Context::DEFAULT)?;
    HomeLock::find(lock)?.serve();
    // The next holder must not wait until this PE has something else to send.
    order::quiet(Context::DEFAULT)
}

/// Takes the lock if it is free (`shmem_test_lock`). Returns 0 if this PE holds it now, otherwise 1.
///
/// # Errors
/// As [`set`].
pub fn test(lock: Symmetric) -> Result<i32, Fault> {
    let lock = HomeLock::find(lock)?;
    let served = lock.served();
    let next = served.wrapping_add(1);
    let found = match lock.given {
        Reach::Near(given) => u32::compare_swap(given, served, next),
        Reach::Far(given) => given.fetch(Change::CompareSwap { wanted: served, value: next }),
        Reach::Nothing => next,
    };
    Ok(i32::from(found != served))
}
