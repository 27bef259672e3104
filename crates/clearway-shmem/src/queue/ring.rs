//! Rings between the PEs of a host: slots that one PE fills with updates, and that either end
//! applies.
//!
//! # Model
//! For each ordered pair of PEs there is a ring of eight slots of a page in the target's memory.
//! The source fills a slot and counts it as written. *The PE that takes the ring's lock applies*:
//! the target, when it looks at what came, or the source, when it needs room or completion. So a
//! flush never waits for a target that computes. Slots are applied in the order in which they were
//! written.
//!
//! A source sets its bit at the target behind each slot, so that a target looks at few words to see
//! that nothing came.
//!
//! | bytes of the ring | written by | is |
//! |---|---|---|
//! | 0 | the source | slots written |
//! | 64 | who holds the lock | slots applied |
//! | 128 | the PE that takes it | the lock: who holds it, plus one |
//! | 4,096 and on | the source | eight slots: number of words, words |
//!
//! # Invariants
//! I1. A slot is written only when it was applied before.
//! I2. One thread at a time fills a ring, and one applies.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, PoisonError};

use clearway_runtime::near::{MappedPart, Near, RING_LENGTH};

use super::element::{self, Malformed};
use crate::address::{Caller, Place};
use crate::fault::{Fault, Wrong};
use crate::job::Job;
use crate::team::USED_SLOT;

/// Bytes of a slot, and of what is in front of the slots.
const SLOT: usize = 4_096;
/// Slots of a ring.
const SLOTS: u64 = (RING_LENGTH / SLOT - 1) as u64;
/// Words that a slot holds.
pub(super) const SLOT_WORDS: usize = SLOT / 4 - 1;
/// The line of a PE that shows which rings to it have something new.
const NEWS: usize = 2;

/// A ring from one PE to another.
#[derive(Clone, Copy, Debug)]
pub(super) struct Ring {
    written: &'static AtomicU64,
    applied: &'static AtomicU64,
    lock: &'static AtomicU64,
    part: MappedPart,
}

/// What became of a look at a ring.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Drained {
    /// Everything that was there is applied.
    All,
    /// Another thread was applying.
    Busy,
}

impl Ring {
    /// Finds the one to the PE at place `target` from the one at `source`, which has allocated it.
    fn new(near: &Near, target: usize, source: usize) -> Self {
        let part = near.ring(target, source);
        let word = |at: usize| {
            let place = Place::in_part(part, at, 8);
            place.and_then(Place::word::<u64>).expect("a ring begins with its counters")
        };
        Self { written: word(0), applied: word(64), lock: word(128), part }
    }

    fn slot(&self, number: u64) -> Place {
        let at = SLOT * (1 + (number % SLOTS) as usize);
        Place::in_part(self.part, at, SLOT).expect("slots lie in the ring")
    }

    /// Returns how many slots were applied so far.
    pub(super) fn applied(&self) -> u64 {
        self.applied.load(Ordering::Acquire)
    }

    /// Writes `slot`, whose first word is the number of those that follow; the number of slots written so far, or
    /// `None` if none is free.
    fn write(&self, slot: &[u32]) -> Option<u64> {
        let number = self.written.load(Ordering::Relaxed);
        if number - self.applied() >= SLOTS {
            return None;
        }
        self.slot(number).put(Caller::from_slice(slot), size_of_val(slot));
        self.written.store(number + 1, Ordering::Release);
        Some(number + 1)
    }

    /// Applies all slots in order, as PE `me`.
    fn drain(
        &self,
        me: usize,
        mut apply: impl FnMut(&[u32]) -> Result<u64, Malformed>,
    ) -> Result<Drained, Malformed> {
        let holder = me as u64 + 1;
        if self.lock.compare_exchange(0, holder, Ordering::Acquire, Ordering::Relaxed).is_err() {
            return Ok(Drained::Busy);
        }
        let mut words = [0u32; SLOT_WORDS];
        let mut done = Ok(Drained::All);
        loop {
            let number = self.applied.load(Ordering::Relaxed);
            if self.written.load(Ordering::Acquire) == number {
                break;
            }
            let slot = self.slot(number);
            let count = (slot.load::<u32>() as usize).min(SLOT_WORDS);
            let words = &mut words[..count];
            slot.plus(4).get(Caller::from_slice_mut(words), 4 * count);
            if let Err(malformed) = apply(words) {
                done = Err(malformed);
            }
            self.applied.store(number + 1, Ordering::Release);
        }
        self.lock.store(0, Ordering::Release);
        done
    }
}

/// The rings to and from this PE.
#[derive(Debug)]
pub(crate) struct Rings {
    /// The place of each PE of the job on this host, and the PE at each place.
    places: Vec<Option<usize>>,
    pes: Vec<usize>,
    /// For each place, whether its ring is allocated; held by the thread that fills it.
    targets: Box<[Mutex<RingState>]>,
}

/// Whether the ring to a target can be filled.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum RingState {
    Unknown,
    Allocated,
    /// The system had no memory for it.
    Refused,
}

/// Where updates are that were given to a ring.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Given {
    /// In the ring; applied when this many slots are.
    Slot(u64),
    /// They are applied: there is no ring, or they are for this PE.
    Applied,
}

impl Rings {
    pub(super) fn new(places: Vec<Option<usize>>, pes: Vec<usize>) -> Self {
        let targets = pes.iter().map(|_| Mutex::new(RingState::Unknown)).collect();
        Self { places, pes, targets }
    }

    /// Returns whether there is another PE on this host.
    pub(super) fn has_neighbours(&self) -> bool {
        self.pes.len() > 1
    }

    /// Returns the place of a PE of this host.
    pub(super) fn place(&self, pe: usize) -> Option<usize> {
        self.places.get(pe).copied().flatten()
    }

    /// Finds the ring to PE `target` from PE `source`, which has allocated it.
    pub(super) fn ring(&self, near: &Near, target: usize, source: usize) -> Ring {
        let place = |pe| self.place(pe).expect("rings lead to neighbours");
        Ring::new(near, place(target), place(source))
    }

    /// Gives `slot`, whose first word is the number of those that follow, to PE `target`. Where no slot is free
    /// this thread applies what is there.
    pub(super) fn give(
        &self,
        job: &'static Job,
        target: usize,
        slot: &[u32],
    ) -> Result<Given, Fault> {
        if target == job.me {
            let applied = element::apply(&job.segments, target, slot.get(1..).unwrap_or_default());
            return applied.map(|_| Given::Applied).map_err(|_| malformed(job.me));
        }
        let (place, me) = (self.place(target), self.place(job.me));
        let (place, me) = place.zip(me).expect("rings lead to neighbours");
        let mut state = self.targets[place].lock().unwrap_or_else(PoisonError::into_inner);
        if *state == RingState::Unknown {
            let allocated = job.near.commit_ring(place).is_ok();
            *state = if allocated { RingState::Allocated } else { RingState::Refused };
        }
        if *state == RingState::Refused {
            let applied = element::apply(&job.segments, target, slot.get(1..).unwrap_or_default());
            return applied.map(|_| Given::Applied).map_err(|_| malformed(job.me));
        }
        let ring = Ring::new(job.near, place, me);
        let mut written = ring.write(slot);
        if written.is_none() {
            let mut fault = Ok(());
            job.wait(|| {
                fault = self.make_room(job, target, ring);
                written = ring.write(slot);
                written.is_some() || fault.is_err()
            });
            fault?;
        }
        let news = &job.near.line(target, USED_SLOT, NEWS).payload;
        news[me / 64].fetch_or(1 << (me % 64), Ordering::Release);
        Ok(Given::Slot(written.unwrap_or_default()))
    }

    /// Looks first at what came here, which the target may be waiting for as this PE does, and
    /// then applies at the target.
    fn make_room(&self, job: &'static Job, target: usize, ring: Ring) -> Result<(), Fault> {
        self.take_news(job)?;
        if ring.written.load(Ordering::Relaxed) - ring.applied() >= SLOTS {
            drain(job, target, job.me)?;
        }
        Ok(())
    }

    /// Applies what other PEs gave to this one.
    pub(super) fn take_news(&self, job: &'static Job) -> Result<(), Fault> {
        let news = &job.near.line(job.me, USED_SLOT, NEWS).payload;
        for (at, word) in news.iter().enumerate().take(self.pes.len().div_ceil(64)) {
            if word.load(Ordering::Relaxed) == 0 {
                continue;
            }
            let mut bits = word.swap(0, Ordering::Acquire);
            while bits != 0 {
                let place = at * 64 + bits.trailing_zeros() as usize;
                bits &= bits - 1;
                if let Some(source) = self.pes.get(place) {
                    drain(job, job.me, *source)?;
                }
            }
        }
        Ok(())
    }
}

/// Applies everything in the ring to `target` from `source`, which has allocated it.
pub(super) fn drain(job: &'static Job, target: usize, source: usize) -> Result<Drained, Fault> {
    let ring = job.queues.rings.ring(job.near, target, source);
    ring.drain(job.me, |words| element::apply(&job.segments, target, words))
        .map_err(|Malformed| malformed(source))
}

#[cold]
fn malformed(source: usize) -> Fault {
    let sentence = format!(
        "PE {source} gave an update that is none or lies outside its segment; its program may have overwritten memory"
    );
    Wrong::Failed(sentence).into()
}
