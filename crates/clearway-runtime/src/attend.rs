//! Shares one engine and its wire among the threads of a process: a waiting thread drives them, and
//! otherwise a progress thread does.
//!
//! # Model
//! A thread of the program takes the lock, gives a command, steps, and lets go. A thread that waits
//! steps as long as it waits ([`SharedEngine::poll`]). The *progress thread* answers peers while
//! the program computes: it sleeps on the wire's descriptors without holding the lock, and pauses
//! while other threads step, so that they do not contend for each packet.
//!
//! A waiting thread yields its processor between polls, so that ranks that share one take turns. Where
//! much is under way, the network decides when the wait ends: a thread that yields for each packet
//! takes the processor from threads that have work. Once it has seen that others want the processor,
//! it sleeps between packets.
//!
//! A yield to a thread that computes gives up the rest of a time slice, which is some ms. Once waits
//! have seen that, they sleep in place of yielding, for some time: a thread that wakes up goes before
//! one that computes, and at once if its slice is short.
//!
//! # Invariants
//! I1. No thread sleeps while it holds the lock.
//! I2. An arrival is handled within `STAND_BACK` and one wake-up if no other thread steps.
//!
//! # Not here
//! The meaning of events: each step gets the application, which handles them.

use std::os::fd::AsFd;
use std::sync::MutexGuard;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};
use std::time::Duration;

use clearway_proto::base::{LocalNs, Nanos};
use clearway_proto::wire::{Applier, Driver, Engine, Wire};

use crate::fair_lock::FairLock;
use crate::near::{YIELD_LONG, YIELD_TO_NOBODY, sleep_after};
use crate::time_slice::ShortSlice;
use crate::waiting::{REST_MAX, Rest, Waitable, WakeDescriptors};
use crate::wake_signal::WakeSignal;
use crate::{RuntimeError, clock};

/// Polls of a waiting thread before it yields where no other thread wants the processor, and how
/// long it yields before it sleeps: a wake-up takes 15 to 30 us (measured), which pays only after
/// some time without arrivals.
const POLLS: u32 = 16;
const YIELDS: Nanos = Nanos::from_micros(200);
/// Where much is under way: how long it gives the processor to others before it sleeps. This is
/// longer than a wake-up, so that a wait costs at most about twice the better choice.
const GIVEN_MAX: Nanos = Nanos::from_micros(40);
/// How long waits then sleep at once: a later wait yields in vain for at most a fiftieth of this.
const REST_FIRST: Nanos = Nanos::from_millis(2);
/// The longest such sleep: an acknowledgement may be due, or another thread may end the wait.
const REST_LONG: Nanos = Nanos::from_micros(500);
/// How long waits sleep in place of yielding after a yield to a thread that computes: a later wait
/// yields in vain for a tenth of this or more. The time doubles with each such yield, and halves with
/// each wait that yields briefly. So where threads compute all the time, few waits find it out again.
const CROWDED_MIN: Nanos = Nanos::from_millis(4);
const CROWDED_MAX: Nanos = Nanos::from_secs(5);
/// How long the progress thread pauses after other threads stepped.
const STAND_BACK: Duration = Duration::from_nanos(YIELDS.0);
/// Between two looks at a wire that has no descriptor to sleep on.
const LOOK: Duration = Duration::from_micros(50);

/// The application around a shared engine.
pub trait Application<E: Engine>: Applier {
    /// Handles an event of the engine, after the step that caused it.
    fn event(&mut self, event: E::Event);
}

/// An engine, its wire, and the lock around both.
pub struct SharedEngine<E: Engine> {
    inner: FairLock<LockedEngine<E>>,
    /// Steps of threads of the program.
    steps: AtomicU64,
    /// Threads of the program that wait and poll ([`SharedEngine::wait`]).
    waiting: AtomicU32,
    /// Until when waits sleep at once if much is under way, in ns of the local clock.
    rest_first_until: AtomicU64,
    crowding: Crowding,
    is_ended: AtomicBool,
    /// Ends the sleep of the progress thread.
    signal: WakeSignal,
    is_asleep: AtomicBool,
}

/// Whether threads compute on the processors of waiting threads, as far as yields have shown it.
#[derive(Debug)]
struct Crowding {
    /// In ns of the local clock.
    until: AtomicU64,
    /// How long the next long yield makes it last.
    next_ns: AtomicU64,
}

impl Crowding {
    const fn new() -> Self {
        Self { until: AtomicU64::new(0), next_ns: AtomicU64::new(CROWDED_MIN.0) }
    }

    /// Returns whether waits sleep in place of yielding.
    fn is_on(&self, now: LocalNs) -> bool {
        now.0 < self.until.load(Ordering::Relaxed)
    }

    /// Learns from a yield that took `gone` and ended at `back`. Threads may overwrite each other's
    /// times; estimates suffice.
    fn note_yield(&self, back: LocalNs, gone: Nanos) {
        let length = Nanos(self.next_ns.load(Ordering::Relaxed));
        if gone > YIELD_LONG {
            self.until.store((back + length).0, Ordering::Relaxed);
            self.next_ns.store(length.times(2).min(CROWDED_MAX).0, Ordering::Relaxed);
        } else if length > CROWDED_MIN {
            self.next_ns.store((length.0 / 2).max(CROWDED_MIN.0), Ordering::Relaxed);
        }
    }
}

/// An engine and its wire, as the holder of the lock sees them.
pub struct LockedEngine<E: Engine> {
    driver: Driver<E>,
    wire: Box<dyn Waitable + Send>,
    events: Vec<E::Event>,
    next: Option<LocalNs>,
}

impl<E: Engine> LockedEngine<E> {
    /// Gives the engine a command; its effects leave with the next step.
    pub fn command(&mut self, command: E::Command) {
        self.driver.command(self.wire.now(), command);
    }

    /// Returns the wire, whose memory may be read and filled between steps.
    pub fn wire(&mut self) -> &mut dyn Wire {
        &mut *self.wire
    }

    /// Sends what commands asked for, without polling for arrivals. The caller steps soon after.
    pub fn flush(&mut self, application: &mut impl Application<E>) {
        let events = &mut self.events;
        let on_event = &mut |event| events.push(event);
        self.next = self.driver.flush(&mut *self.wire, on_event, Some(application));
        self.deliver(application);
    }

    /// Does all that can be done now. Returns whether there was anything to do.
    pub fn step(&mut self, application: &mut impl Application<E>) -> bool {
        let events = &mut self.events;
        let progress =
            self.driver.step_with(&mut *self.wire, &mut |event| events.push(event), application);
        self.next = progress.next;
        let did = progress.inputs > 0 || !self.events.is_empty();
        self.deliver(application);
        did
    }

    fn deliver(&mut self, application: &mut impl Application<E>) {
        self.events.drain(..).for_each(|event| application.event(event));
    }
}

impl<E: Engine> SharedEngine<E> {
    /// Puts a lock around `driver` and `wire`.
    ///
    /// # Errors
    /// The system cannot make another descriptor.
    pub fn new(driver: Driver<E>, wire: Box<dyn Waitable + Send>) -> Result<Self, RuntimeError> {
        let signal =
            WakeSignal::new().map_err(RuntimeError::system("make a descriptor for a thread"))?;
        Ok(Self {
            inner: FairLock::new(LockedEngine { driver, wire, events: Vec::new(), next: None }),
            steps: AtomicU64::new(0),
            waiting: AtomicU32::new(0),
            rest_first_until: AtomicU64::new(0),
            crowding: Crowding::new(),
            is_ended: AtomicBool::new(false),
            signal,
            is_asleep: AtomicBool::new(false),
        })
    }

    /// Wakes the progress thread if it sleeps, for work that it does not know of.
    pub fn wake(&self) {
        if self.is_asleep.load(Ordering::SeqCst) && self.is_asleep.swap(false, Ordering::SeqCst) {
            self.signal.raise();
        }
    }

    /// Takes the lock, for a command and a step.
    pub fn lock(&self) -> MutexGuard<'_, LockedEngine<E>> {
        self.steps.fetch_add(1, Ordering::Relaxed);
        self.inner.lock()
    }

    /// Steps, unless another thread does. Returns whether this call did anything.
    #[inline]
    pub fn poll(&self, application: &mut impl Application<E>) -> bool {
        self.steps.fetch_add(1, Ordering::Relaxed);
        self.inner.try_lock().is_some_and(|mut locked| locked.step(application))
    }

    /// Waits until `ready` returns true. `poll` polls the engine and returns whether that did
    /// anything; this thread does not sleep while it does, nor soon afterwards. Then the thread
    /// sleeps until the wire behind `descriptors` may have an arrival, at most for a part of the time
    /// waited, because another thread or a neighbour may make `ready` true. `is_bulk` returns
    /// whether more is under way than the network carries in the time of a wake-up.
    pub fn wait(
        &self,
        descriptors: Option<&WakeDescriptors>,
        mut ready: impl FnMut() -> bool,
        mut poll: impl FnMut() -> bool,
        is_bulk: impl Fn() -> bool,
    ) {
        if ready() {
            return;
        }
        self.waiting.fetch_add(1, Ordering::Relaxed);
        let (mut polls, mut idle, mut given) = (POLLS, None, Nanos::ZERO);
        let (mut slice, mut has_yielded) = (None, false);
        while !ready() {
            if poll() {
                (polls, idle, given) = (POLLS, None, Nanos::ZERO);
                continue;
            }
            polls -= 1;
            if polls > 0 {
                continue;
            }
            let now = clock::now();
            let waited = now.since(*idle.get_or_insert(now));
            polls = 1;
            if now.0 < self.rest_first_until.load(Ordering::Relaxed) && is_bulk() {
                rest(descriptors, REST_LONG);
            } else if self.crowding.is_on(now) {
                slice.get_or_insert_with(ShortSlice::take);
                rest(descriptors, sleep_after(waited));
            } else if waited >= YIELDS {
                rest(descriptors, sleep_after(waited));
            } else {
                std::thread::yield_now();
                let back = clock::now();
                let gone = back.since(now);
                if gone > YIELD_LONG || !has_yielded {
                    self.crowding.note_yield(back, gone);
                    has_yielded = true;
                }
                if gone < YIELD_TO_NOBODY {
                    polls = POLLS;
                } else {
                    given = given + gone;
                }
                if given > GIVEN_MAX {
                    // Threads may overwrite each other's time; an estimate suffices.
                    self.rest_first_until.store((back + REST_FIRST).0, Ordering::Relaxed);
                }
            }
        }
        self.waiting.fetch_sub(1, Ordering::Relaxed);
    }

    /// Returns descriptors on which a waiting thread can sleep, if the wire has some.
    ///
    /// # Errors
    /// The system cannot make another descriptor.
    pub fn wake_descriptors(&self) -> Result<Option<WakeDescriptors>, RuntimeError> {
        self.lock().wire.wake_descriptors().map_err(RuntimeError::system("duplicate a descriptor"))
    }

    /// Runs the progress thread: answers peers while no other thread steps, until
    /// [`SharedEngine::end`]. `descriptors` are from [`SharedEngine::wake_descriptors`]. `after` is
    /// called after each step, without the lock; `has_more` returns whether it has to be called again
    /// soon. A thread that changes this to true then calls [`SharedEngine::wake`].
    pub fn attend<A: Application<E>>(
        &self,
        descriptors: Option<&WakeDescriptors>,
        application: &mut A,
        after: &mut dyn FnMut(&mut A),
        has_more: &dyn Fn() -> bool,
    ) {
        let _slice = ShortSlice::take();
        let mut seen = self.steps.load(Ordering::Relaxed);
        while !self.is_ended.load(Ordering::Acquire) {
            let steps = self.steps.load(Ordering::Relaxed);
            if steps != seen || self.waiting.load(Ordering::Relaxed) > 0 {
                seen = steps;
                std::thread::sleep(STAND_BACK);
                continue;
            }
            // The thread that holds the lock steps.
            let Some(mut locked) = self.inner.try_lock() else {
                std::thread::sleep(STAND_BACK);
                continue;
            };
            let did = locked.step(application);
            let now = locked.wire.now();
            let timeout = locked.next.map_or(REST_MAX, |next| next.since(now)).min(REST_MAX);
            let rest = if did { Rest::Again } else { locked.wire.rest() };
            drop(locked);
            after(application);
            match (rest, descriptors) {
                (Rest::Again, _) => {}
                (Rest::Descriptor, Some(descriptors)) => {
                    self.is_asleep.store(true, Ordering::SeqCst);
                    let has_more = has_more();
                    if !has_more {
                        descriptors.sleep(timeout, &[self.signal.as_fd()]);
                        self.signal.clear();
                    }
                    self.is_asleep.store(false, Ordering::SeqCst);
                    if has_more {
                        // The thread that it waits for may need this processor.
                        std::thread::yield_now();
                    }
                }
                (Rest::Poll, _) | (Rest::Descriptor, None) => {
                    std::thread::sleep(LOOK.min(Duration::from_nanos(timeout.0)));
                }
            }
        }
    }

    /// Ends the use of the wire by any thread, for good: the layers below it may go afterwards.
    /// [`SharedEngine::attend`] returns if it is about to step, and sleeps for ever otherwise.
    pub fn end(&self) {
        self.is_ended.store(true, Ordering::Release);
        // The wire is not dropped: others may still use memory that is registered with it.
        std::mem::forget(self.lock());
    }
}

/// Sleeps until the wire behind `descriptors` may have an arrival, at most for `timeout`.
fn rest(descriptors: Option<&WakeDescriptors>, timeout: Nanos) {
    match descriptors {
        Some(descriptors) => {
            descriptors.sleep(timeout, &[]);
        }
        None => std::thread::sleep(Duration::from_nanos(timeout.0)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn note_yield__where_threads_compute_all_the_time_few_waits_find_it_out() {
        let (crowding, mut now, mut found) = (Crowding::new(), LocalNs(1), 0);
        let ms = Nanos::from_millis(1);
        assert!(!crowding.is_on(now));
        // A wait each 20 ms.
        for _ in 0..5_000 {
            if !crowding.is_on(now) {
                found += 1;
                crowding.note_yield(now, ms);
            }
            now += ms.times(20);
        }
        assert!(found < 50, "{found} of 5,000 waits yielded");
        crowding.note_yield(now, ms);
        assert!(!crowding.is_on(now + CROWDED_MAX));
    }

    #[test]
    fn note_yield__waits_that_yield_briefly_make_it_short_again() {
        let (crowding, now) = (Crowding::new(), LocalNs(1));
        (0..20).for_each(|_| crowding.note_yield(now, YIELD_LONG + Nanos(1)));
        (0..20).for_each(|_| crowding.note_yield(now, YIELD_TO_NOBODY));
        crowding.note_yield(now, YIELD_LONG + Nanos(1));
        assert!(
            crowding.is_on(now + Nanos(CROWDED_MIN.0 - 1)) && !crowding.is_on(now + CROWDED_MIN)
        );
    }
}
