//! Waits for the epoch of a line: the PE that raises the epoch wakes the threads that sleep on it.
//!
//! # Model
//! A waiting thread spins for a while ([`WaitPolicy::spin`]), then adds itself to the line's count of
//! sleepers and sleeps on the futex of the epoch. A thread that raises the epoch reads the count
//! afterwards, and wakes the sleepers if there are any.
//!
//! *No wake-up is lost.* The waker stores the epoch and then loads the count; the sleeper stores the
//! count and then loads the epoch. Neither pair may be reordered. A fence on both sides forbids it,
//! but the waker's would slow every barrier. So the sleeper has the kernel execute a fence in all
//! running threads of all PEs (`membarrier`), and the waker needs none. Where the kernel lacks this
//! call, the waker executes a fence too.
//!
//! A sleeper that dies leaves its count behind; later wakers then make a needless system call.
//!
//! # Source
//! `futex(2)`, `membarrier(2)` (`MEMBARRIER_CMD_GLOBAL_EXPEDITED`: all processes that registered).

use std::sync::OnceLock;
use std::sync::atomic::{AtomicU32, Ordering, compiler_fence, fence};

use rustix::thread::futex::{self, Flags};
use rustix::thread::{MembarrierCommand, Timespec, membarrier};

use super::memory::Line;
use super::wait_policy::{PeerLocation, WaitPolicy};

/// The longest sleep: bounds the delay should a wake-up be lost after all.
const SLEEP_MAX: Timespec = Timespec { tv_sec: 0, tv_nsec: 100_000_000 };

/// Registers this process for the fences of other PEs. Returns whether the kernel has them. All PEs
/// call this before any PE waits.
pub(super) fn register() -> bool {
    static REGISTERED: OnceLock<bool> = OnceLock::new();
    *REGISTERED.get_or_init(|| membarrier(MembarrierCommand::RegisterGlobalExpedited).is_ok())
}

impl Line {
    /// Returns whether the epoch is `wanted` or a later one.
    #[inline]
    pub fn has_reached(&self, wanted: u32) -> bool {
        (self.epoch.load(Ordering::Acquire).wrapping_sub(wanted) as i32) >= 0
    }

    /// Raises the epoch to `epoch` and wakes the threads that sleep on it. A thread that sees the
    /// epoch sees all earlier writes of the caller. `how` says whether all PEs registered for fences.
    #[inline]
    pub fn reach(&self, epoch: u32, how: Waking) {
        // Not a store: while a swap acquires the cache line, the other PEs store theirs, so that
        // they are not polled too early. Between two PEs a barrier takes 50 ns with a swap and 250
        // with a store (measured).
        self.epoch.swap(epoch, Ordering::AcqRel);
        how.after_change();
        if self.sleepers.load(Ordering::Relaxed) != 0 {
            wake(&self.epoch);
        }
    }

    /// Waits until the epoch is `wanted` or later. `location` is that of [`WaitPolicy::spin`].
    #[inline]
    pub fn wait(&self, wanted: u32, policy: &WaitPolicy, location: impl Fn() -> PeerLocation) {
        if !self.has_reached(wanted) && !policy.spin(|| self.has_reached(wanted), location) {
            sleep_while(&self.epoch, &self.sleepers, |_| !self.has_reached(wanted));
        }
    }
}

/// How a sleeper and its waker avoid a lost wake-up.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Waking {
    /// The sleeper executes the fences of both.
    SleeperFences,
    /// Each executes its own fence.
    BothFence,
}

impl Waking {
    /// Orders the waker's change before its load of the count of sleepers.
    #[inline]
    pub fn after_change(self) {
        match self {
            Self::SleeperFences => compiler_fence(Ordering::SeqCst),
            Self::BothFence => fence(Ordering::SeqCst),
        }
    }
}

/// Wakes all threads that sleep on `word`.
#[cold]
pub fn wake(word: &AtomicU32) {
    // Waking no thread is no failure.
    let _ = futex::wake(word, Flags::empty(), i32::MAX as u32);
}

/// Sleeps on `word` while `must` is true for its value. `sleepers` counts sleeping threads, for the
/// thread that changes the word.
#[cold]
pub fn sleep_while(word: &AtomicU32, sleepers: &AtomicU32, must: impl Fn(u32) -> bool) {
    sleepers.fetch_add(1, Ordering::SeqCst);
    if membarrier(MembarrierCommand::GlobalExpedited).is_err() {
        fence(Ordering::SeqCst);
    }
    loop {
        let seen = word.load(Ordering::Acquire);
        if !must(seen) {
            break;
        }
        // Another value, a signal and the time limit all lead to another look.
        let _ = futex::wait(word, Flags::empty(), seen, Some(&SLEEP_MAX));
    }
    sleepers.fetch_sub(1, Ordering::SeqCst);
}

#[cfg(test)]
mod tests {
    use super::super::memory::{HostLayout, HostMemory};
    use super::*;

    #[test]
    fn wait__sleepers_are_woken_for_each_epoch() {
        let memory =
            HostMemory::create(HostLayout::new(2, 2, 4_096).expect("fits"), 0).expect("memory");
        let how = if register() { Waking::SleeperFences } else { Waking::BothFence };
        let (there, back) = (memory.line(0, 0, 0), memory.line(1, 0, 0));
        std::thread::scope(|scope| {
            scope.spawn(|| {
                for epoch in 1..2_000 {
                    // Without spinning, so that each epoch needs a wake-up.
                    sleep_while(&there.epoch, &there.sleepers, |_| !there.has_reached(epoch));
                    assert_eq!(there.payload[0].load(Ordering::Relaxed), u64::from(epoch));
                    back.reach(epoch, how);
                }
            });
            for epoch in 1..2_000 {
                there.payload[0].store(u64::from(epoch), Ordering::Relaxed);
                there.reach(epoch, how);
                back.wait(epoch, &WaitPolicy::new(2, 1), || PeerLocation::Unknown);
            }
        });
        assert_eq!(there.sleepers.load(Ordering::Relaxed), 0);
    }

    #[test]
    fn has_reached__goes_on_behind_the_largest_number() {
        let memory =
            HostMemory::create(HostLayout::new(1, 1, 4_096).expect("fits"), 0).expect("memory");
        let line = memory.line(0, 0, 0);
        line.reach(u32::MAX, Waking::BothFence);
        assert!(
            line.has_reached(u32::MAX - 5) && line.has_reached(u32::MAX) && !line.has_reached(0)
        );
        line.reach(1, Waking::BothFence);
        assert!(line.has_reached(u32::MAX) && line.has_reached(1) && !line.has_reached(2));
    }
}
