//! A lock that a thread cannot keep from others by taking it again and again.
//!
//! # Model
//! A thread tries for 20 us, as with any lock. Then it joins a line, and while anybody is in
//! the line nobody else takes the lock: the first in the line gets it next. Threads that hold a
//! lock for a moment therefore do not sleep, and one that holds it most of the time lets the others
//! in.
//!
//! # Invariants
//! I1. The line is served in the order in which threads joined it.
//! I2. A thread that was about to take the lock when another one joined the line may take it once
//!     before that one.

use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError, TryLockError};
use std::{hint, thread};

use clearway_proto::base::Nanos;

use crate::clock;

/// How long a thread tries before it joins the line: as long as a step of an engine takes. Being
/// woken in the line takes longer.
const TIMEOUT: Nanos = Nanos::from_micros(20);
/// Looks at the lock between two looks at the clock.
const LOOKS: u32 = 32;

/// A value behind a lock that is passed on in turn where threads contend for it.
#[derive(Debug, Default)]
pub struct FairLock<T> {
    inner: Mutex<T>,
    /// Threads in the line.
    waiting: AtomicU32,
    line: Mutex<WaitingLine>,
    served: Condvar,
}

/// Numbers of those who wait, from `first` up to `next`.
#[derive(Debug, Default)]
struct WaitingLine {
    first: u64,
    next: u64,
}

impl<T> FairLock<T> {
    /// Puts a lock in front of `value`.
    pub fn new(value: T) -> Self {
        Self {
            inner: Mutex::new(value),
            waiting: AtomicU32::new(0),
            line: Mutex::default(),
            served: Condvar::new(),
        }
    }

    /// Takes the lock if it is free and nobody is in the line.
    #[inline]
    pub fn try_lock(&self) -> Option<MutexGuard<'_, T>> {
        if self.waiting.load(Ordering::Relaxed) > 0 {
            return None;
        }
        match self.inner.try_lock() {
            Ok(guard) => Some(guard),
            Err(TryLockError::Poisoned(poisoned)) => Some(poisoned.into_inner()),
            Err(TryLockError::WouldBlock) => None,
        }
    }

    /// Returns with the lock, in turn with other threads.
    #[inline]
    pub fn lock(&self) -> MutexGuard<'_, T> {
        self.try_lock().unwrap_or_else(|| self.lock_in_turn())
    }

    #[cold]
    fn lock_in_turn(&self) -> MutexGuard<'_, T> {
        let begin = clock::now();
        while self.waiting.load(Ordering::Relaxed) == 0 {
            for _ in 0..LOOKS {
                if let Some(guard) = self.try_lock() {
                    return guard;
                }
                hint::spin_loop();
            }
            if clock::now().since(begin) >= TIMEOUT {
                break;
            }
            thread::yield_now();
        }
        self.lock_in_line()
    }

    fn lock_in_line(&self) -> MutexGuard<'_, T> {
        self.waiting.fetch_add(1, Ordering::Relaxed);
        let mut line = self.line.lock().unwrap_or_else(PoisonError::into_inner);
        let number = line.next;
        line.next += 1;
        while line.first != number {
            line = self.served.wait(line).unwrap_or_else(PoisonError::into_inner);
        }
        drop(line);
        let guard = self.inner.lock().unwrap_or_else(PoisonError::into_inner);
        self.line.lock().unwrap_or_else(PoisonError::into_inner).first += 1;
        self.waiting.fetch_sub(1, Ordering::Relaxed);
        self.served.notify_all();
        guard
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Returns when `count` threads are in the line.
    fn until_in_line(lock: &FairLock<Vec<u32>>, count: u64) {
        let joined = || lock.line.lock().map(|line| line.next - line.first).expect("not poisoned");
        while joined() < count {
            thread::yield_now();
        }
    }

    #[test]
    fn lock__a_thread_that_takes_it_again_and_again_lets_others_in_in_their_order() {
        let lock = FairLock::new(Vec::new());
        thread::scope(|scope| {
            let mut guard = lock.lock();
            for number in 1..=3 {
                let lock = &lock;
                scope.spawn(move || lock.lock().push(number));
                until_in_line(lock, number.into());
            }
            // As a thread does that floods: it gives the lock back, and wants it again at once.
            guard.push(0);
            drop(guard);
            lock.lock().push(4);
        });
        assert_eq!(*lock.lock(), [0, 1, 2, 3, 4]);
    }

    #[test]
    fn try_lock__leaves_a_lock_to_those_in_the_line() {
        let lock = FairLock::new(0);
        lock.waiting.store(1, Ordering::Relaxed);
        assert!(lock.try_lock().is_none());
        lock.waiting.store(0, Ordering::Relaxed);
        let guard = lock.try_lock().expect("free");
        assert!(lock.try_lock().is_none());
        drop(guard);
    }
}
