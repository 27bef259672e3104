//! How a PE waits for another one: it spins briefly, yields while the processor comes back soon,
//! and then sleeps.
//!
//! # Model
//! What a neighbour stores is seen within 100 ns, so spinning pays if the neighbour runs. Where PEs
//! outnumber processors it may well not run, and yielding is what lets it. A processor that comes
//! back late went to somebody who computes; who sleeps is scheduled before who yields.
//!
//! Whether a processor is free shows when it is yielded: if it comes back at once nobody else wants
//! it, and the next wait spins for longer.
//!
//! # Source
//! Half a round trip between two processes takes 48 to 74 ns, a yield 0.4 to 1 us, a wake-up 15 to
//! 30 us (measured).

use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use clearway_proto::base::Nanos;

use crate::clock;

/// Looks one behind the other, without a pause: about 250 ns, for a PE that is just about to. A
/// change of processes takes 1.7 us, and one pause of this processor 30 to 120 ns in a virtual
/// machine (measured), which would be as long as what is waited for.
const PLAIN_LOOKS: u32 = 128;
/// Looks with a pause behind them, before the first yield, where nobody else wants the processor:
/// about 2 us.
const PAUSED_LOOKS: u32 = 32;
/// A yield after which the processor came back sooner gave it to nobody, one after which it came
/// back later did: a system call without a change of processes takes 0.8 us here, with two changes
/// 3.4 (measured).
const YIELD_TO_NOBODY: Nanos = Nanos(1_300);
const YIELD_TO_SOMEBODY: Nanos = Nanos(2_500);
/// How long to yield at most.
const YIELDS: Nanos = Nanos::from_micros(200);
/// A processor that was yielded for longer went to somebody who computes.
const YIELD_LONG: Nanos = Nanos::from_micros(400);
/// The first nap of who is not woken, and the longest. A nap costs 5 to 10 us of processor time
/// (measured): at most 1 % of it.
const NAP_MIN: Nanos = Nanos::from_micros(50);
const NAP_MAX: Nanos = Nanos::from_millis(1);
/// A nap is this part of the time waited so far, so that it delays what is waited for by no more.
const NAP_PART: u64 = 8;

/// Questions between two yields of a program that asks instead of waiting: where nobody else wants
/// the processor, where somebody who waits as well does, and where somebody computes. A question
/// takes 2 to 5 ns, a yield 0.8 us.
const ASKS_ALONE: u32 = 1_024;
const ASKS_CROWDED: u32 = 32;
const ASKS_COMPUTING: u32 = 65_536;

/// What this process knows about how to wait.
#[derive(Debug)]
pub struct Patience {
    /// Looks with a pause before the first yield.
    paused_looks: AtomicU32,
    /// Questions left before the next yield.
    asks: AtomicU32,
}

impl Patience {
    /// Creates the patience of `places` PEs that share this many processors.
    pub fn new(places: usize, processors: usize) -> Self {
        Self {
            paused_looks: AtomicU32::new(if places > processors { 0 } else { PAUSED_LOOKS }),
            asks: AtomicU32::new(ASKS_ALONE),
        }
    }

    /// Looks again and again, as long as that is better than sleeping. Returns whether `ready` was.
    #[inline]
    pub fn look(&self, mut ready: impl FnMut() -> bool) -> bool {
        for _ in 0..PLAIN_LOOKS {
            if ready() {
                return true;
            }
        }
        for _ in 0..self.paused_looks.load(Ordering::Relaxed) {
            if ready() {
                return true;
            }
            std::hint::spin_loop();
        }
        self.yield_until(&mut ready)
    }

    /// Yields between looks, until that takes long; whether `ready` was.
    #[cold]
    fn yield_until(&self, ready: &mut dyn FnMut() -> bool) -> bool {
        let begin = clock::now();
        let mut before = begin;
        loop {
            if ready() {
                return true;
            }
            std::thread::yield_now();
            let now = clock::now();
            let gone = now.since(before);
            if gone > YIELD_LONG || now.since(begin) > YIELDS {
                return ready();
            }
            if gone < YIELD_TO_NOBODY {
                self.paused_looks.store(PAUSED_LOOKS, Ordering::Relaxed);
            } else if gone > YIELD_TO_SOMEBODY {
                self.paused_looks.store(0, Ordering::Relaxed);
            }
            before = now;
        }
    }

    /// Counts a question of a program that waits by asking, and yields now and then: whom it waits
    /// for may want the processor.
    #[inline]
    pub fn ask(&self) {
        // Threads may overwrite each other's count; it only has to go down.
        match self.asks.load(Ordering::Relaxed).checked_sub(1) {
            Some(left) => self.asks.store(left, Ordering::Relaxed),
            None => self.yield_once(),
        }
    }

    #[cold]
    fn yield_once(&self) {
        let before = clock::now();
        std::thread::yield_now();
        let gone = clock::now().since(before);
        let next = match gone {
            gone if gone > YIELD_LONG => ASKS_COMPUTING,
            gone if gone > YIELD_TO_SOMEBODY => ASKS_CROWDED,
            _ => ASKS_ALONE,
        };
        self.asks.store(next, Ordering::Relaxed);
    }

    /// Returns when `ready` does, which nobody wakes this thread for.
    #[inline]
    pub fn wait(&self, mut ready: impl FnMut() -> bool) {
        if !self.look(&mut ready) {
            nap_until(&mut ready);
        }
    }
}

/// Naps between looks.
#[cold]
fn nap_until(ready: &mut dyn FnMut() -> bool) {
    let begin = clock::now();
    while !ready() {
        std::thread::sleep(Duration::from_nanos(nap_after(clock::now().since(begin)).0));
    }
}

/// Returns how long to nap after this much time waited.
fn nap_after(waited: Nanos) -> Nanos {
    Nanos((waited.0 / NAP_PART).clamp(NAP_MIN.0, NAP_MAX.0))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn wait__looks_until_it_is_ready() {
        for processors in [1, 2] {
            for at in [1, 3, 150] {
                let mut looks = 0;
                Patience::new(2, processors).wait(|| {
                    looks += 1;
                    looks == at
                });
                assert_eq!(looks, at);
            }
        }
    }

    #[test]
    fn nap_after__is_a_part_of_the_time_waited_within_bounds() {
        let ms = Nanos::from_millis;
        assert_eq!(
            [Nanos::ZERO, ms(4), ms(8), ms(9_000)].map(nap_after),
            [NAP_MIN, Nanos(500_000), NAP_MAX, NAP_MAX]
        );
    }
}
