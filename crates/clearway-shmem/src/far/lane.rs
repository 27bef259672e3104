//! The stream of elements to one peer in one class, and when its open buffer waits for more.
//!
//! # Model
//! See [`super`]. Nothing here sends.

use std::sync::MutexGuard;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};

use clearway_proto::base::{Class, LocalNs, Nanos, Rank};
use clearway_proto::queue::{ClosingPolicy, ContextId, OpenBuffer, QueueLimits, StreamState};
use clearway_runtime::fair_lock::FairLock;

/// How long a lane gathers after it was closed, even if nothing is under way: a message costs a few
/// us, and a loop issues its next operation sooner.
const GATHER: Nanos = Nanos::from_micros(8);
/// The longest time of gathering where loops fill messages and the class allows it: as long as a loop
/// takes for a message of 8 KiB.
const GATHER_MOST: Nanos = Nanos::from_micros(64);
/// Gathering takes at most this part of a class's deadline.
const GATHER_SHARE: u64 = 10;
/// Elements of a message that shows a loop, and of one that shows none.
const OF_LOOP: u32 = 32;
const OF_NO_LOOP: u32 = 8;
/// Elements between two looks at the clock, which takes as long as an element, in a loop.
const CLOCK_EVERY: u32 = 8;

/// A stream of elements to one peer in one class.
pub(super) struct Lane {
    pub(super) state: FairLock<OpenLane>,
    pub(super) peer: Rank,
    pub(super) class: Class,
    pub(super) issued: AtomicU64,
    /// How many issued elements were closed.
    pub(super) closed: AtomicU64,
    pub(super) ended: AtomicU64,
    pub(super) is_under_way: AtomicBool,
    /// The time of the last close, and how long it gathers from then on.
    pub(super) closed_at: AtomicU64,
    gather_ns: AtomicU64,
    /// How many elements were issued when a thread that looks saw more of them last, and the time.
    seen_issued: AtomicU64,
    seen_at: AtomicU64,
    /// It is in the list of lanes to close at their time.
    pub(super) is_listed: AtomicBool,
    /// Messages since the last `quiet`.
    pub(super) messages: AtomicU32,
    /// The last `quiet` completed a single message, so open elements wait for the next `quiet`. A
    /// hint, which is wrong for at most one poll.
    pub(super) is_completed_next: AtomicBool,
}

/// Elements that are not closed yet.
pub(super) struct OpenLane {
    pub(super) open: OpenBuffer,
    pub(super) buffer: Box<[u8]>,
}

impl Lane {
    /// Creates a lane to which nothing was issued.
    pub(super) fn new(peer: Rank, class: Class, limits: &QueueLimits) -> Self {
        let state = OpenLane {
            open: OpenBuffer::new(limits),
            buffer: vec![0; limits.batch as usize].into_boxed_slice(),
        };
        Self {
            state: FairLock::new(state),
            peer,
            class,
            issued: AtomicU64::new(0),
            closed: AtomicU64::new(0),
            ended: AtomicU64::new(0),
            is_under_way: AtomicBool::new(false),
            closed_at: AtomicU64::new(0),
            gather_ns: AtomicU64::new(GATHER.0),
            seen_issued: AtomicU64::new(0),
            seen_at: AtomicU64::new(0),
            is_listed: AtomicBool::new(false),
            messages: AtomicU32::new(0),
            is_completed_next: AtomicBool::new(false),
        }
    }

    pub(super) fn lock(&self) -> MutexGuard<'_, OpenLane> {
        self.state.lock()
    }

    /// Returns whether elements should wait for later ones at `now`, if the lane gathers for
    /// `gather` after a message.
    fn gathers(&self, now: LocalNs, gather: Nanos) -> StreamState {
        let closed_at = LocalNs(self.closed_at.load(Ordering::Relaxed));
        if self.is_under_way.load(Ordering::Acquire)
            || self.is_completed_next.load(Ordering::Relaxed)
            || now.since(closed_at) < gather
        {
            StreamState::Busy
        } else {
            StreamState::Idle
        }
    }

    /// Returns the same for a thread that pushed the last of `elements`: a loop looks at the clock
    /// only now and then. A first element that comes late is no loop's.
    #[inline]
    pub(super) fn gathers_now(&self, elements: u32, now: impl FnOnce() -> LocalNs) -> StreamState {
        if elements > CLOCK_EVERY && !elements.is_multiple_of(CLOCK_EVERY) {
            return StreamState::Busy;
        }
        let gather = Nanos(self.gather_ns.load(Ordering::Relaxed));
        self.gathers(now(), if elements == 1 { gather.min(GATHER) } else { gather })
    }

    /// Returns the same for a thread that looks at `now` whether the lane is due: not if a loop has
    /// paused for [`GATHER`]. The threads that look share what they saw; it is a hint.
    pub(super) fn gathers_still(&self, now: LocalNs) -> StreamState {
        let issued = self.issued.load(Ordering::Relaxed);
        if self.seen_issued.swap(issued, Ordering::Relaxed) != issued {
            self.seen_at.store(now.0, Ordering::Relaxed);
        }
        let has_paused = now.since(LocalNs(self.seen_at.load(Ordering::Relaxed))) >= GATHER;
        let gather = Nanos(self.gather_ns.load(Ordering::Relaxed));
        self.gathers(now, if has_paused { GATHER } else { gather })
    }

    /// Adapts how long it gathers, where `elements` elements leave because it has gathered long
    /// enough: a loop pays for each message, a lone operation waits for it.
    pub(super) fn adapt(&self, elements: u32, policy: &ClosingPolicy) {
        let gather = self.gather_ns.load(Ordering::Relaxed);
        let deadline = policy.deadline[self.class.index()].map_or(u64::MAX, |deadline| deadline.0);
        let most = GATHER_MOST.0.min(deadline / GATHER_SHARE).max(GATHER.0);
        let next = match elements {
            OF_LOOP.. => (2 * gather).min(most),
            OF_NO_LOOP.. => gather,
            _ => GATHER.0,
        };
        self.gather_ns.store(next, Ordering::Relaxed);
    }

    /// Returns how many elements are not complete.
    pub(super) fn outstanding(&self) -> u64 {
        let ended = self.ended.load(Ordering::Acquire);
        self.issued.load(Ordering::Acquire).saturating_sub(ended)
    }

    pub(super) const fn context(&self) -> ContextId {
        ContextId(self.class.index() as u32)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const CLOSED: LocalNs = LocalNs(5_000_000);

    /// Returns a lane that sent messages with these numbers of elements, the last of them at
    /// [`CLOSED`].
    fn lane_after(class: Class, messages: &[u32]) -> Lane {
        let limits = QueueLimits { batch: 256, answer: 64, element: 44, window: 4, requests: 2 };
        let (lane, policy) = (Lane::new(Rank(1), class, &limits), ClosingPolicy::new(256));
        messages.iter().for_each(|elements| lane.adapt(*elements, &policy));
        lane.closed_at.store(CLOSED.0, Ordering::Relaxed);
        lane
    }

    /// Returns how long a lane gathers behind messages with these numbers of elements.
    fn gathers_for(class: Class, messages: &[u32]) -> Nanos {
        Nanos(lane_after(class, messages).gather_ns.load(Ordering::Relaxed))
    }

    #[test]
    fn gathers_now__a_lone_operation_behind_a_loop_leaves_at_once() {
        let lane = lane_after(Class::Bulk, &[90; 8]);
        let gathers = |elements, after| lane.gathers_now(elements, || CLOSED + after);
        assert_eq!(gathers(1, Nanos(GATHER.0 - 1)), StreamState::Busy, "a loop's first");
        assert_eq!(gathers(1, GATHER), StreamState::Idle);
        assert_eq!(gathers(2, GATHER), StreamState::Busy, "a loop's second");
        assert_eq!(gathers(CLOCK_EVERY, GATHER_MOST), StreamState::Idle);
    }

    #[test]
    fn gathers_still__a_loop_that_paused_is_not_waited_for() {
        let lane = lane_after(Class::Bulk, &[90; 8]);
        let step = Nanos(GATHER.0 / 2);
        for number in 1..=4 {
            lane.issued.fetch_add(1, Ordering::Relaxed);
            let state = lane.gathers_still(CLOSED + step.times(number));
            assert_eq!(state, StreamState::Busy, "{number}");
        }
        assert_eq!(lane.gathers_still(CLOSED + step.times(5)), StreamState::Busy);
        assert_eq!(lane.gathers_still(CLOSED + step.times(6)), StreamState::Idle);
    }

    #[test]
    fn adapt__loops_gather_longer_until_an_operation_comes_alone() {
        assert_eq!(gathers_for(Class::BestEffort, &[90, 180]), GATHER.times(4));
        assert_eq!(gathers_for(Class::Bulk, &[90, 180, 20, 900, 900, 900]), GATHER_MOST);
        assert_eq!(gathers_for(Class::BestEffort, &[90, 180, 1]), GATHER);
    }

    #[test]
    fn adapt__a_class_with_a_short_deadline_gathers_as_ever() {
        assert_eq!(gathers_for(Class::LowLatency, &[90, 900, 900]), GATHER);
    }
}
