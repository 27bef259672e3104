//! Locks: one holder at a time among all PEs, first come, first served.
//!
//! # Model
//! A lock is the program's `long`, zero at first, on every PE; only that of one PE counts, its
//! *home*, chosen by the lock's offset so that locks spread. Its halves are two counters: tickets
//! given (high) and tickets served (low). A PE that takes the lock draws a ticket and waits until
//! it is served; who clears it serves the next one. A waiter that has waited long sleeps on the
//! served half, which is a futex in memory that all PEs share; the home's lines say whether anybody
//! sleeps.
//!
//! # Source
//! OpenSHMEM 1.5, "Distributed Locking Routines".

use std::sync::atomic::{AtomicU32, Ordering};

use clearway_runtime::near;

use crate::address::Symmetric;
use crate::context::Context;
use crate::fault::Fault;
use crate::job::{self, Job};
use crate::order;
use crate::team::USED_SLOT;

/// Bytes of a counter; the machine stores the low half of a `long` first.
const HALF: usize = size_of::<u32>();

/// A lock at its home.
struct HomeLock {
    served: &'static AtomicU32,
    given: &'static AtomicU32,
    sleepers: &'static AtomicU32,
}

impl HomeLock {
    fn find(job: &'static Job, lock: Symmetric) -> Result<Self, Fault> {
        job.own_word::<i64>(lock, "lock")?;
        let home = (job.segments.offset(lock) / size_of::<i64>()) % job.segments.pes();
        let half =
            |at: usize| job.word::<u32>(Context::DEFAULT, lock.plus(at), home as i32, "lock");
        let sleepers = &job.near.line(home, USED_SLOT, 1).sleepers;
        Ok(Self { served: half(0)?, given: half(HALF)?, sleepers })
    }
}

/// `shmem_set_lock`: returns when this PE holds it.
///
/// # Errors
/// No aligned `long` of symmetric memory.
pub fn set(lock: Symmetric) -> Result<(), Fault> {
    let job = job::get()?;
    let lock = HomeLock::find(job, lock)?;
    let ticket = lock.given.fetch_add(1, Ordering::AcqRel);
    let is_served = || lock.served.load(Ordering::Acquire) == ticket;
    if !is_served() && !job.patience.look(is_served) {
        near::sleep_while(lock.served, lock.sleepers, |served| served != ticket);
    }
    Ok(())
}

/// `shmem_clear_lock`: completes what the holder did, and lets the next one in.
///
/// # Errors
/// As [`set`].
pub fn clear(lock: Symmetric) -> Result<(), Fault> {
    order::quiet(Context::DEFAULT)?;
    let job = job::get()?;
    let lock = HomeLock::find(job, lock)?;
    lock.served.fetch_add(1, Ordering::AcqRel);
    job.near.waking().after_change();
    if lock.sleepers.load(Ordering::Relaxed) != 0 {
        near::wake(lock.served);
    }
    Ok(())
}

/// `shmem_test_lock`: 0 if it was free and this PE holds it now, otherwise 1.
///
/// # Errors
/// As [`set`].
pub fn test(lock: Symmetric) -> Result<i32, Fault> {
    let lock = HomeLock::find(job::get()?, lock)?;
    let served = lock.served.load(Ordering::Acquire);
    let taken = lock.given.compare_exchange(
        served,
        served.wrapping_add(1),
        Ordering::AcqRel,
        Ordering::Relaxed,
    );
    Ok(i32::from(taken.is_err()))
}
