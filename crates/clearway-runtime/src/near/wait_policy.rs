//! Decides how a PE waits for another one: it spins briefly, then yields while the processor comes
//! back soon, then sleeps.
//!
//! # Model
//! A neighbour's store is seen within 100 ns, so spinning pays if the neighbour runs. Where PEs
//! outnumber processors, the neighbour may only run after a yield. A yield that takes long gave the
//! processor to a thread that computes; then sleeping is better, because the scheduler prefers
//! threads that wake up to threads that yield.
//!
//! A yield shows whether the processor is wanted: if the yield returns at once, no other thread
//! wants it, and the next wait spins for longer.
//!
//! Where another thread wants the processor, the choice depends on where the awaited PE runs
//! ([`PeerLocation`]). A PE of this processor cannot run before this thread yields. A PE of another
//! processor may store sooner than a yield returns. A wait that any PE may end cannot know; it learns
//! from the waits before it.
//!
//! # Source
//! Half a round trip between two processes takes 48 to 74 ns, a yield to nobody 0.4 to 0.8 us, a
//! change of processes by a yield 1.2 to 1.7 us, a wake-up 15 to 30 us (measured).

use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use clearway_proto::base::Nanos;

use crate::clock;

/// Looks in a row without a pause: about 250 ns, for a PE that is about to store. One pause
/// instruction takes 30 to 120 ns in a virtual machine (measured), as long as the wait itself.
const PLAIN_LOOKS: u32 = 128;
/// The first of them, before the policy is consulted.
const FIRST_LOOKS: u32 = 4;
/// Looks for a PE of another processor: about 2 us, longer than a change of processes.
const LOOKS_ELSEWHERE: u32 = 1_024;
/// One of this many waits for an unknown PE spins, although earlier waits spun in vain.
const LOOKS_AGAIN: u32 = 8;
/// Looks followed by a pause, before the first yield, where no other thread wants the processor:
/// about 2 us.
const PAUSED_LOOKS: u32 = 32;
/// A yield that takes less than the first gave the processor to no other thread; one that takes
/// more than the second did: two context switches take 2.3 us or more.
pub(crate) const YIELD_TO_NOBODY: Nanos = Nanos(1_300);
const YIELD_TO_SOMEBODY: Nanos = Nanos(2_000);
/// The longest time of yields in one wait.
const YIELDS: Nanos = Nanos::from_micros(200);
/// A yield that takes longer gave the processor to a thread that computes.
pub(crate) const YIELD_LONG: Nanos = Nanos::from_micros(400);
/// The shortest and the longest sleep of a thread that nobody wakes. A sleep costs 5 to 10 us of
/// processor time (measured): at most 1 % of the longest.
const SLEEP_MIN: Nanos = Nanos::from_micros(50);
const SLEEP_MAX: Nanos = Nanos::from_millis(1);
/// A sleep is this part of the time waited so far, so that it lengthens the wait by no more.
const SLEEP_PART: u64 = 8;

/// Tests between two yields of a program that tests in a loop: where no other thread wants the
/// processor, where another waiting thread does, and where a computing thread does. A test takes 2
/// to 5 ns, a yield 0.8 us.
const TESTS_ALONE: u32 = 1_024;
const TESTS_CROWDED: u32 = 32;
const TESTS_COMPUTING: u32 = 65_536;

/// Where the awaited PE runs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PeerLocation {
    /// On the processor of the waiting thread; of several PEs, at least one.
    Here,
    /// On other processors.
    Elsewhere,
    /// Any PE may end the wait.
    Unknown,
}

/// Returns the number of the processor on which this thread runs.
pub fn processor() -> usize {
    rustix::thread::sched_getcpu()
}

/// Chooses between spinning, yielding and sleeping, and learns from the waits of this process.
#[derive(Debug)]
pub struct WaitPolicy {
    /// Looks with a pause before the first yield.
    paused_looks: AtomicU32,
    /// Waits in a row that ended after a yield.
    yielded: AtomicU32,
    /// Tests left before the next yield.
    tests: AtomicU32,
}

impl WaitPolicy {
    /// Creates the policy of `places` PEs that share this many processors.
    pub fn new(places: usize, processors: usize) -> Self {
        Self {
            paused_looks: AtomicU32::new(if places > processors { 0 } else { PAUSED_LOOKS }),
            yielded: AtomicU32::new(0),
            tests: AtomicU32::new(TESTS_ALONE),
        }
    }

    /// Spins and yields as long as that is better than sleeping. Returns whether `ready` returned
    /// true. `location` is called only where another thread wants the processor.
    #[inline]
    pub fn spin(
        &self,
        mut ready: impl FnMut() -> bool,
        location: impl Fn() -> PeerLocation,
    ) -> bool {
        if (0..FIRST_LOOKS).any(|_| ready()) {
            return true;
        }
        let paused_looks = self.paused_looks.load(Ordering::Relaxed);
        let looks = if paused_looks > 0 { PLAIN_LOOKS } else { self.looks(location()) };
        if (0..looks).any(|_| ready()) {
            if self.yielded.load(Ordering::Relaxed) != 0 {
                self.yielded.store(0, Ordering::Relaxed);
            }
            return true;
        }
        for _ in 0..paused_looks {
            if ready() {
                return true;
            }
            std::hint::spin_loop();
        }
        self.yield_until(&mut ready, &location)
    }

    /// Returns how many looks are better than a yield.
    fn looks(&self, location: PeerLocation) -> u32 {
        match location {
            PeerLocation::Here => 0,
            PeerLocation::Elsewhere => LOOKS_ELSEWHERE,
            PeerLocation::Unknown => {
                let yielded = self.yielded.load(Ordering::Relaxed);
                if yielded.is_multiple_of(LOOKS_AGAIN) { PLAIN_LOOKS } else { 0 }
            }
        }
    }

    /// Yields between looks until that takes long. Returns whether `ready` returned true.
    #[cold]
    fn yield_until(
        &self,
        ready: &mut dyn FnMut() -> bool,
        location: &dyn Fn() -> PeerLocation,
    ) -> bool {
        // Threads may overwrite each other's count; an estimate suffices.
        self.yielded.fetch_add(1, Ordering::Relaxed);
        let begin = clock::now();
        let mut before = begin;
        loop {
            std::thread::yield_now();
            let now = clock::now();
            let gone = now.since(before);
            if gone < YIELD_TO_NOBODY {
                self.paused_looks.store(PAUSED_LOOKS, Ordering::Relaxed);
            } else if gone > YIELD_TO_SOMEBODY {
                self.paused_looks.store(0, Ordering::Relaxed);
            }
            if ready() || (0..self.looks(location())).any(|_| ready()) {
                return true;
            }
            if gone > YIELD_LONG || now.since(begin) > YIELDS {
                return ready();
            }
            before = clock::now();
        }
    }

    /// Counts a test of a program that tests in a loop, and yields now and then, because the awaited
    /// PE may want the processor.
    #[inline]
    pub fn count_test(&self) {
        // Threads may overwrite each other's count; it only has to go down.
        match self.tests.load(Ordering::Relaxed).checked_sub(1) {
            Some(left) => self.tests.store(left, Ordering::Relaxed),
            None => self.yield_once(),
        }
    }

    #[cold]
    fn yield_once(&self) {
        let before = clock::now();
        std::thread::yield_now();
        let gone = clock::now().since(before);
        let next = match gone {
            gone if gone > YIELD_LONG => TESTS_COMPUTING,
            gone if gone > YIELD_TO_SOMEBODY => TESTS_CROWDED,
            _ => TESTS_ALONE,
        };
        self.tests.store(next, Ordering::Relaxed);
    }

    /// Waits until `ready` returns true. No other thread has to wake this one.
    #[inline]
    pub fn wait(&self, mut ready: impl FnMut() -> bool) {
        if !self.spin(&mut ready, || PeerLocation::Unknown) {
            sleep_until(&mut ready);
        }
    }
}

/// Sleeps between looks.
#[cold]
fn sleep_until(ready: &mut dyn FnMut() -> bool) {
    let begin = clock::now();
    while !ready() {
        std::thread::sleep(Duration::from_nanos(sleep_after(clock::now().since(begin)).0));
    }
}

/// Returns how long to sleep after this much time waited.
pub(crate) fn sleep_after(waited: Nanos) -> Nanos {
    Nanos((waited.0 / SLEEP_PART).clamp(SLEEP_MIN.0, SLEEP_MAX.0))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn wait__looks_until_it_is_ready() {
        for processors in [1, 2] {
            for at in [1, 3, 150] {
                let mut looks = 0;
                WaitPolicy::new(2, processors).wait(|| {
                    looks += 1;
                    looks == at
                });
                assert_eq!(looks, at);
            }
        }
    }

    #[test]
    fn spin__a_pe_of_another_processor_is_looked_for_without_a_yield() {
        let policy = WaitPolicy::new(2, 1);
        let yielded = |at: u32, location| {
            let mut looks = 0;
            let ready = || {
                looks += 1;
                looks == at
            };
            assert!(policy.spin(ready, || location));
            policy.yielded.load(Ordering::Relaxed)
        };
        assert_eq!(yielded(PLAIN_LOOKS * 2, PeerLocation::Elsewhere), 0);
        assert_eq!(yielded(FIRST_LOOKS + 1, PeerLocation::Here), 1);
        // A wait for an unknown PE yields at once where the last one had to, but not for ever.
        assert_eq!(policy.looks(PeerLocation::Unknown), 0);
        policy.yielded.store(LOOKS_AGAIN, Ordering::Relaxed);
        assert_eq!(yielded(PLAIN_LOOKS, PeerLocation::Unknown), 0);
    }

    #[test]
    fn sleep_after__is_a_part_of_the_time_waited_within_bounds() {
        let ms = Nanos::from_millis;
        assert_eq!(
            [Nanos::ZERO, ms(4), ms(8), ms(9_000)].map(sleep_after),
            [SLEEP_MIN, Nanos(500_000), SLEEP_MAX, SLEEP_MAX]
        );
    }
}
