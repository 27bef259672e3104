//! Wakes a rank that sleeps: a flag in the sleeper's segment, and an event counter that one can
//! wait for with `ppoll`.
//!
//! # Model
//! An *epoch* in the owner's segment is odd while the owner sleeps or is about to. Peers ring only
//! then, and only once for each epoch: a system call for a message is paid only when somebody must
//! be woken. An event counter ([`crate::wake_signal`]) and not a futex, because the owner also
//! waits for control pipes and for the hang-up of peers.
//!
//! *No wake-up is lost.* The owner makes its epoch odd, and then looks at everything it could be
//! woken for; a peer shows what it did (a tail, a head), and then looks at the epoch. The owner's
//! store and loads are sequentially consistent; so is the peer's showing, or else a fence between
//! it and the look. So there is one order of all of them, in which either the peer's showing comes
//! before the owner's look, and the owner does not sleep, or the owner's epoch comes before the
//! peer's look, and the peer rings. A ring before the owner really sleeps is not lost: the counter
//! keeps it. For room in a full ring it is the same with one more flag: the owner sets the word of
//! full classes before its epoch, and the peer reads it between its head and the epoch.
//!
//! A peer that dies between looking and ringing is noticed by the hang-up of its socket, which
//! wakes as well. That is why nobody but the owner writes the epoch: a peer that answered for
//! others and died would let them sleep.
//!
//! # Source
//! The pattern of two flags is Dekker's.
//!
//! # Not here
//! When to sleep (`waiting`).

use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::atomic::Ordering;

use super::layout::SLEEP;
use super::mapping::SegmentMapping;
use crate::wake_signal::WakeSignal;

/// The owner's side.
#[derive(Debug)]
pub(super) struct Sleeper {
    wake_signal: WakeSignal,
    epoch: u32,
}

impl Sleeper {
    pub(super) fn new() -> io::Result<Self> {
        Ok(Self { wake_signal: WakeSignal::new()?, epoch: 0 })
    }

    /// Returns what peers ring and the owner waits for.
    pub(super) fn fd(&self) -> BorrowedFd<'_> {
        self.wake_signal.as_fd()
    }

    /// Says in the owner's segment that peers must ring from now on. What they did before must be
    /// looked for afterwards.
    pub(super) fn prepare_sleep(&mut self, own: &SegmentMapping) {
        self.epoch = self.epoch.wrapping_add(1) | 1;
        own.half(SLEEP).store(self.epoch, Ordering::SeqCst);
    }

    /// Says that peers need not ring.
    pub(super) fn end_sleep(&mut self, own: &SegmentMapping) {
        self.epoch = self.epoch.wrapping_add(1) & !1;
        own.half(SLEEP).store(self.epoch, Ordering::SeqCst);
    }

    /// Returns whether this rank has announced that it sleeps, so that peers wake it.
    #[inline]
    pub(super) const fn is_asleep(&self) -> bool {
        self.epoch & 1 == 1
    }

    /// Clears what was raised.
    pub(super) fn clear(&self) {
        self.wake_signal.clear();
    }
}

/// A peer's side: rings for one owner.
#[derive(Debug)]
pub(super) struct Notifier {
    wake_signal: WakeSignal,
    rung: u32,
}

impl Notifier {
    pub(super) fn new(counter: OwnedFd) -> Self {
        Self { wake_signal: counter.into(), rung: 0 }
    }

    /// Rings if the owner of `segment` sleeps and was not woken in this epoch. To be called after
    /// showing.
    #[inline]
    pub(super) fn notify(&mut self, segment: &SegmentMapping) {
        let epoch = segment.half(SLEEP).load(Ordering::SeqCst);
        if epoch & 1 == 1 && epoch != self.rung {
            self.rung = epoch;
            self.wake_signal.raise();
        }
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use rustix::event::{PollFd, PollFlags, Timespec};

    use super::super::layout::PAGE;
    use super::*;

    fn is_raised(sleeper: &Sleeper) -> bool {
        let mut fds = [PollFd::new(&sleeper.wake_signal, PollFlags::IN)];
        rustix::event::poll(&mut fds, Some(&Timespec { tv_sec: 0, tv_nsec: 0 })).expect("poll") == 1
    }

    #[test]
    fn notify__rings_once_for_each_sleep_and_never_for_who_is_awake() {
        let (_, own) = SegmentMapping::create(PAGE).expect("memory");
        let mut sleeper = Sleeper::new().expect("a counter");
        let mut notifier = Notifier::new(sleeper.fd().try_clone_to_owned().expect("a descriptor"));
        notifier.notify(&own);
        assert!(!is_raised(&sleeper), "awake");
        for _ in 0..2 {
            sleeper.prepare_sleep(&own);
            notifier.notify(&own);
            assert!(is_raised(&sleeper));
            sleeper.clear();
            notifier.notify(&own);
            assert!(!is_raised(&sleeper), "once is enough");
            sleeper.end_sleep(&own);
            notifier.notify(&own);
            assert!(!is_raised(&sleeper), "awake again");
        }
    }

    /// The owner and two peers, one step each at a time; memory is one, as it is for sequentially
    /// consistent accesses.
    #[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
    struct WakeupModel {
        owner: u8,
        peers: [u8; 2],
        shown: [bool; 2],
        asleep: bool,
        rung: bool,
        saw: bool,
    }

    /// In which order the owner does its two steps.
    #[derive(Clone, Copy, PartialEq)]
    enum StepOrder {
        SaysThenLooks,
        LooksThenSays,
    }

    impl WakeupModel {
        /// Returns the states after one step of anybody; a peer may also die before any of its
        /// steps, and then its hang-up rings.
        fn next(self, order: StepOrder) -> Vec<Self> {
            let mut next = Vec::new();
            let says = (self.owner == 0) == (order == StepOrder::SaysThenLooks);
            match self.owner {
                0 | 1 if says => next.push(Self { owner: self.owner + 1, asleep: true, ..self }),
                0 | 1 => next.push(Self {
                    owner: self.owner + 1,
                    saw: self.shown.contains(&true),
                    ..self
                }),
                _ => {}
            }
            for i in 0..2 {
                let mut then = self;
                then.peers[i] += 1;
                match self.peers[i] {
                    0 => then.shown[i] = true,
                    1 if self.asleep => {}
                    1 => then.peers[i] = 3,
                    2 => then.rung = true,
                    _ => continue,
                }
                next.push(then);
                let mut dead = self;
                dead.peers[i] = 3;
                dead.rung = true;
                next.push(dead);
            }
            next
        }

        /// Returns whether everybody is done, there is something to read, and the owner sleeps and
        /// nobody rang.
        fn is_lost(self) -> bool {
            self.owner == 2
                && self.peers == [3, 3]
                && self.shown.contains(&true)
                && !self.saw
                && !self.rung
        }
    }

    fn loses_a_wake_up(order: StepOrder) -> bool {
        let (mut seen, mut open) = (BTreeSet::new(), vec![WakeupModel::default()]);
        while let Some(world) = open.pop() {
            if world.is_lost() {
                return true;
            }
            if seen.insert(world) {
                open.extend(world.next(order));
            }
        }
        false
    }

    #[test]
    fn protocol__in_every_order_of_steps_and_deaths_no_wake_up_is_lost() {
        assert!(!loses_a_wake_up(StepOrder::SaysThenLooks));
        assert!(loses_a_wake_up(StepOrder::LooksThenSays), "the model must be able to see a loss");
    }
}
