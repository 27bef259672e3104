//! The class of traffic with a deadline: the lowest one in which it arrives in time.
//!
//! # Model
//! Work begins in the requested class, and rises while its deadlines need a higher rate than its
//! class has: scavenger, bulk, best effort, and never above. The owner measures the rate of the
//! present class from one review (every 50 ms) to the next. Deadlines count as 400 ms earlier, so
//! that there is time to try the next class when the rate of one breaks down:
//! ```text
//!   needed(now + 400 ms) > 7/8 of the measured rate   one class up
//!   a deadline is nearer than 400 ms                  best effort
//!   needed x 2 <= the measured rate, for a second     one class down
//! ```
//!
//! # Invariants
//! I1. The class is never above best effort, and never below the requested one. Work of a higher
//!     requested class stays there.
//! I2. It falls at most once a second, so that it does not alternate between two classes.
//!
//! # Not here
//! The order inside a class ([`DeadlineQueue`]).

use super::DeadlineQueue;
use crate::base::{BitsPerSec, Class, Nanos};

/// Classes that deadlines raise work through.
const LADDER: [Class; 3] = [Class::Scavenger, Class::Bulk, Class::BestEffort];
/// By how much earlier deadlines count: eight reviews, of which two find out that a class carries
/// nothing.
const RESERVE: Nanos = Nanos::from_millis(400);
/// The time between reviews.
const REVIEW: Nanos = Nanos::from_millis(50);
/// How long a class is kept before a lower one is tried.
const KEPT_FOR: Nanos = Nanos::from_secs(1);

/// A change of the class.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ClassChange {
    /// The class until now.
    pub from: Class,
    /// The class from now on.
    pub to: Class,
    /// The rate that the deadlines need.
    pub needed: BitsPerSec,
    /// The measured rate of the class until now.
    pub carried: Option<BitsPerSec>,
}

/// The class of one queue of work.
#[derive(Clone, Debug)]
pub struct ClassPromotion {
    requested: Class,
    class: Class,
    /// Since when the class has twice the needed rate, in the clock of the deadlines.
    idle_since: Option<u64>,
}

impl ClassPromotion {
    /// Time between two calls of [`Self::review`].
    pub const REVIEW: Nanos = REVIEW;

    /// Creates a promotion that begins in the requested class.
    pub const fn new(requested: Class) -> Self {
        Self { requested, class: requested, idle_since: None }
    }

    /// Returns the class to travel in.
    pub const fn class(&self) -> Class {
        self.class
    }

    /// Reviews the class at `now` of the deadlines' clock. `carried` is the rate of the class since
    /// the last review; `None` if there was not enough to send to measure it. Cost: all items.
    pub fn review<T>(
        &mut self,
        now: u64,
        queue: &DeadlineQueue<T>,
        carried: Option<BitsPerSec>,
    ) -> Option<ClassChange> {
        let place = LADDER.iter().position(|class| *class == self.class)?;
        let needed = queue.rate_needed(now.saturating_add(RESERVE.0));
        let to = if needed == BitsPerSec(u64::MAX) {
            Class::BestEffort
        } else if carried.is_some_and(|carried| needed.0 > carried.0 / 8 * 7) {
            *LADDER.get(place + 1)?
        } else {
            self.lower(now, place, needed, carried)
        };
        if to == self.class {
            return None;
        }
        let from = core::mem::replace(&mut self.class, to);
        self.idle_since = None;
        Some(ClassChange { from, to, needed, carried })
    }

    /// Returns the class below, if half of the measured rate has been enough for [`KEPT_FOR`]; else
    /// the present one.
    fn lower(
        &mut self,
        now: u64,
        place: usize,
        needed: BitsPerSec,
        carried: Option<BitsPerSec>,
    ) -> Class {
        let is_idle = match carried {
            Some(carried) => needed.0.saturating_mul(2) <= carried.0,
            None => needed.0 == 0,
        };
        let since = if is_idle { *self.idle_since.get_or_insert(now) } else { now };
        if !is_idle {
            self.idle_since = None;
        }
        if self.class == self.requested || now.saturating_sub(since) < KEPT_FOR.0 {
            return self.class;
        }
        LADDER[place.saturating_sub(1)]
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::base::{Bytes, RandomKey, RandomStream};
    use alloc::vec::Vec;
    use proptest::prelude::*;

    const MILLI: u64 = 1_000_000;
    /// What best effort carries.
    const RATE: u64 = 80_000_000;

    fn queue(items: &[(u64, u64)]) -> DeadlineQueue<u64> {
        let mut queue = DeadlineQueue::default();
        items.iter().for_each(|(deadline, size)| queue.push(*deadline, Bytes(*size), *size));
        queue
    }

    #[test]
    fn review__rises_one_class_at_a_time_and_not_above_best_effort() {
        let waiting = queue(&[(10_000 * MILLI, 100 << 20)]);
        let mut promotion = ClassPromotion::new(Class::Scavenger);
        assert_eq!(promotion.review(0, &waiting, None), None, "nothing was measured");
        let mut seen = Vec::new();
        for at in 1..9 {
            let change = promotion.review(at * 50 * MILLI, &waiting, Some(BitsPerSec(RATE)));
            seen.extend(change.map(|change| (change.from, change.to)));
        }
        let up = [(Class::Scavenger, Class::Bulk), (Class::Bulk, Class::BestEffort)];
        assert_eq!(seen, up);
    }

    #[test]
    fn review__a_deadline_that_is_near_is_best_effort_at_once() {
        let mut promotion = ClassPromotion::new(Class::Scavenger);
        let far = queue(&[(401 * MILLI, 1)]);
        assert_eq!(promotion.review(0, &far, Some(BitsPerSec(RATE))), None);
        let near = queue(&[(400 * MILLI, 1)]);
        let change = promotion.review(0, &near, Some(BitsPerSec(RATE))).expect("it is late");
        assert_eq!((change.from, change.to), (Class::Scavenger, Class::BestEffort));
    }

    #[test]
    fn review__falls_a_class_a_second_to_the_one_asked_for() {
        let mut promotion = ClassPromotion::new(Class::Scavenger);
        promotion.review(0, &queue(&[(0, 1)]), None);
        let classes: Vec<_> = (1..=60)
            .map(|at| {
                promotion.review(at * 50 * MILLI, &queue(&[]), None);
                promotion.class()
            })
            .collect();
        let of = |class| classes.iter().filter(|seen| **seen == class).count();
        assert_eq!((of(Class::BestEffort), of(Class::Bulk)), (20, 21));
        assert_eq!(classes.last(), Some(&Class::Scavenger));
    }

    #[test]
    fn review__a_class_above_best_effort_is_left_alone() {
        let mut promotion = ClassPromotion::new(Class::LowLatency);
        assert_eq!(promotion.review(0, &queue(&[(0, 1)]), Some(BitsPerSec(1))), None);
        assert_eq!(promotion.class(), Class::LowLatency);
    }

    /// A server that gives best effort its rate and lower classes what it likes, changing.
    struct Server {
        promotion: ClassPromotion,
        waiting: DeadlineQueue<u64>,
        random: RandomStream,
        now: u64,
        lower_permille: [u64; 2],
        /// How late each item was that ended.
        late: Vec<u64>,
    }

    impl Server {
        fn new(seed: u64) -> Self {
            Self {
                promotion: ClassPromotion::new(Class::Scavenger),
                waiting: DeadlineQueue::default(),
                random: RandomKey::new(seed).purpose("promotion").stream(),
                now: 0,
                lower_permille: [1_000; 2],
                late: Vec::new(),
            }
        }

        /// Returns whether best effort keeps all deadlines from now on, with an eighth to spare.
        fn is_possible(&self) -> bool {
            self.waiting.rate_needed(self.now + RESERVE.0).0 <= RATE / 8 * 7
        }

        /// Adds an item as soon as best effort could meet all deadlines with it.
        fn push_when_possible(&mut self, timeout: u64, size: u64) {
            for _ in 0..1_000 {
                let before = self.waiting.clone();
                self.waiting.push(self.now + timeout, Bytes(size), size);
                if self.is_possible() {
                    return;
                }
                self.waiting = before;
                self.step();
            }
            panic!("{size} bytes never fit");
        }

        /// Serves until the next review.
        fn step(&mut self) {
            if self.random.below(8) == 0 {
                self.lower_permille = [0; 2].map(|_| self.random.below(11) * 100);
            }
            let permille = match self.promotion.class() {
                Class::BestEffort => 1_000,
                Class::Bulk => self.lower_permille[1],
                _ => self.lower_permille[0],
            };
            let rate = BitsPerSec(RATE / 1_000 * permille);
            let budget = rate.bytes_in(REVIEW).0;
            let (mut left, start) = (budget, self.now);
            self.now += REVIEW.0;
            while left > 0 {
                let Some((deadline, size)) = self.waiting.pop_first(|_| true) else { break };
                if size > left {
                    // What is due earlier may come before its rest.
                    self.waiting.push(deadline, Bytes(size - left), size - left);
                    left = 0;
                } else {
                    left -= size;
                    let at = start + rate.time_for(Bytes(budget - left)).0;
                    self.late.push(at.saturating_sub(deadline));
                }
            }
            let carried = (left == 0).then_some(rate);
            self.promotion.review(self.now, &self.waiting, carried);
        }
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(64))]

        #[test]
        fn review__no_deadline_is_missed_that_best_effort_could_meet(seed: u64, items in prop::collection::vec((0_u64..40, 600_u64..5_000, 1_u64..60_000_000), 1..20)) {
            let mut server = Server::new(seed);
            let count = items.len();
            for (steps, timeout, size) in items {
                (0..steps).for_each(|_| server.step());
                let at_best = BitsPerSec(RATE).time_for(Bytes(size)).0;
                server.push_when_possible(timeout * MILLI + at_best * 9 / 8, size);
            }
            (0..2_000).for_each(|_| server.step());
            prop_assert_eq!(server.late.len(), count, "something waits for ever");
            prop_assert!(server.late.iter().all(|late| *late == 0), "{:?}", server.late);
        }

        #[test]
        fn review__nothing_waits_for_ever_whatever_its_deadline(seed: u64, items in prop::collection::vec((0_u64..5_000, 1_u64..4_000_000), 1..40)) {
            let mut server = Server::new(seed);
            let bytes: u64 = items.iter().map(|(_, size)| size).sum();
            for (deadline, size) in &items {
                server.waiting.push(deadline * MILLI, Bytes(*size), *size);
            }
            // Its own time at best effort, behind the last deadline.
            let enough = 5_000 * MILLI + BitsPerSec(RATE).time_for(Bytes(bytes)).0;
            while server.now < enough + 100 * MILLI {
                server.step();
            }
            prop_assert_eq!(server.late.len(), items.len());
        }
    }
}
