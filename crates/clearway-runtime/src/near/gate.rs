//! Waiting for the epoch of a line: the PE that counts it up wakes whoever sleeps for it.
//!
//! # Model
//! A waiting thread looks for a while ([`WaitPolicy::spin`]), then counts itself among the line's
//! sleepers and sleeps on the futex of the epoch. A thread that counts the epoch up looks at the
//! number of sleepers behind it, and wakes them.
//!
//! *No wake-up is lost.* The waker's store and its look must not change places, and neither must
//! the sleeper's count and its look. A fence on both sides would do, but the waker's would stand in
//! every barrier. So the sleeper, who has time, has the kernel put a fence into all running threads
//! of all PEs (`membarrier`), and the waker needs none. Where the kernel has no such call the waker
//! fences.
//!
//! A sleeper that dies leaves its count; later wakers make a system call too many and nothing else.
//!
//! # Source
//! `futex(2)`, `membarrier(2)` (`MEMBARRIER_CMD_GLOBAL_EXPEDITED`: all processes that registered).

use std::sync::OnceLock;
use std::sync::atomic::{AtomicU32, Ordering, compiler_fence, fence};

use rustix::thread::futex::{self, Flags};
use rustix::thread::{MembarrierCommand, Timespec, membarrier};

use super::memory::Line;
use super::wait_policy::{WaitPolicy, Whereabouts};

/// The longest sleep: a second protection, against a kernel that forgets.
const SLEEP_MAX: Timespec = Timespec { tv_sec: 0, tv_nsec: 100_000_000 };

/// Registers this process for the others' fences; whether the kernel has them. To be called by all
/// PEs before any waits.
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

    /// Counts the epoch up to `epoch` and wakes who waits for it. What was written before is seen
    /// by who sees the epoch. `how` says whether all PEs are registered for fences.
    #[inline]
    pub fn reach(&self, epoch: u32, how: Waking) {
        // Not a store: by the time that a swap takes to own the line, the others have stored too,
        // and are not asked before. Between two PEs a barrier takes 50 ns with it and 250 with a
        // store (measured).
        self.epoch.swap(epoch, Ordering::AcqRel);
        how.after_change();
        if self.sleepers.load(Ordering::Relaxed) != 0 {
            wake(&self.epoch);
        }
    }

    /// Returns when the epoch is `wanted` or later. `whereabouts` is that of [`WaitPolicy::spin`].
    #[inline]
    pub fn wait(&self, wanted: u32, policy: &WaitPolicy, whereabouts: impl Fn() -> Whereabouts) {
        if !self.has_reached(wanted) && !policy.spin(|| self.has_reached(wanted), whereabouts) {
            sleep_while(&self.epoch, &self.sleepers, |_| !self.has_reached(wanted));
        }
    }
}

/// How a sleeper and its waker keep from missing each other.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Waking {
    /// The sleeper fences for both.
    SleeperFences,
    /// Each fences for itself.
    BothFence,
}

impl Waking {
    /// Keeps the waker's change before its look at the number of sleepers.
    #[inline]
    pub fn after_change(self) {
        match self {
            Self::SleeperFences => compiler_fence(Ordering::SeqCst),
            Self::BothFence => fence(Ordering::SeqCst),
        }
    }
}

/// Wakes all that sleep on `word`.
#[cold]
pub fn wake(word: &AtomicU32) {
    // Nobody there is no failure.
    let _ = futex::wake(word, Flags::empty(), i32::MAX as u32);
}

/// Sleeps on `word` while `must` says so for its value. `sleepers` tells whoever changes the word
/// that somebody sleeps.
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
        // Another value, a signal and the time are all reasons to look again.
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
                    // No patience: straight to sleep.
                    sleep_while(&there.epoch, &there.sleepers, |_| !there.has_reached(epoch));
                    assert_eq!(there.payload[0].load(Ordering::Relaxed), u64::from(epoch));
                    back.reach(epoch, how);
                }
            });
            for epoch in 1..2_000 {
                there.payload[0].store(u64::from(epoch), Ordering::Relaxed);
                there.reach(epoch, how);
                back.wait(epoch, &WaitPolicy::new(2, 1), || Whereabouts::Unknown);
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
