//! Which completion queues a look is at: those with traffic each time, idle ones when their turn
//! comes.
//!
//! # Model
//! Where lanes have queues of their own, looking at one costs a system call, so a wire that looked
//! at all of them would be as slow for one class as for five. A queue is *lively* for [`LIVELY`]
//! after it gave something or an operation was posted on it, and a look is at all lively ones. An
//! idle one is looked at when its last look is [`IDLE`] old. When none is due the one that waited
//! longest is, so each look is at one at least.
//!
//! # Invariants
//! I1. Somebody who looks all the time looks at each queue every [`IDLE`], or with every look as
//!     far as looks take longer.

use clearway_proto::base::{LocalNs, Nanos};

/// How long a queue is looked at each time after traffic: 1 MiB takes as long at 10 Gb/s, and a
/// peer that writes it gives nothing before its end.
const LIVELY: Nanos = Nanos::from_millis(1);
/// The longest an idle queue waits for a look: as long as waking a thread takes. Four idle queues,
/// at 0.35 us a look, then take 3 % of the time.
const IDLE: Nanos = Nanos::from_micros(50);

/// When each queue was looked at, and when it had traffic.
#[derive(Debug)]
pub(super) struct QueuePolls {
    queues: Vec<PolledQueue>,
}

#[derive(Clone, Copy, Debug, Default)]
struct PolledQueue {
    looked: Option<LocalNs>,
    heard: Option<LocalNs>,
    /// Something was posted since the last look.
    stirred: bool,
    due: bool,
}

impl PolledQueue {
    fn is_due(&self, at: LocalNs) -> bool {
        let within = |time: Option<LocalNs>, span| time.is_some_and(|time| at.since(time) < span);
        self.stirred || within(self.heard, LIVELY) || !within(self.looked, IDLE)
    }
}

impl QueuePolls {
    pub(super) fn new(queues: usize) -> Self {
        Self { queues: vec![PolledQueue::default(); queues] }
    }

    /// Decides which queues are looked at now.
    pub(super) fn begin(&mut self, at: LocalNs) {
        let mut any = false;
        for queue in &mut self.queues {
            queue.due = queue.is_due(at);
            any |= queue.due;
        }
        if !any && let Some(longest) = self.queues.iter_mut().min_by_key(|queue| queue.looked) {
            longest.due = true;
        }
        for queue in self.queues.iter_mut().filter(|queue| queue.due) {
            queue.looked = Some(at);
            if std::mem::take(&mut queue.stirred) {
                queue.heard = Some(at);
            }
        }
    }

    /// Returns whether this look is at `queue`.
    pub(super) fn is_due(&self, queue: usize) -> bool {
        self.queues[queue].due
    }

    /// Notes that the look found something in `queue`.
    pub(super) fn mark_active(&mut self, queue: usize) {
        let queue = &mut self.queues[queue];
        queue.heard = queue.looked;
    }

    /// Notes that an operation was posted on `lane`.
    pub(super) fn operation_posted(&mut self, lane: usize) {
        let queue = lane.min(self.queues.len() - 1);
        self.queues[queue].stirred = true;
    }

    /// Makes the next look one at all queues.
    pub(super) fn all(&mut self) {
        self.queues.iter_mut().for_each(|queue| queue.looked = None);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn due(looks: &mut QueuePolls, at: u64) -> Vec<usize> {
        looks.begin(LocalNs(at));
        (0..looks.queues.len()).filter(|queue| looks.is_due(*queue)).collect()
    }

    #[test]
    fn begin__lively_queues_each_time_and_idle_ones_within_their_bound() {
        let mut looks = QueuePolls::new(3);
        assert_eq!(due(&mut looks, 1_000), [0, 1, 2], "nothing was looked at");
        looks.mark_active(1);
        assert_eq!(due(&mut looks, 1_600), [1]);
        assert_eq!(due(&mut looks, 1_000 + IDLE.0 - 1), [1]);
        assert_eq!(due(&mut looks, 1_000 + IDLE.0), [0, 1, 2]);
        assert_eq!(due(&mut looks, 1_000 + LIVELY.0), [0, 1, 2], "quiet for long");
        assert_eq!(due(&mut looks, 1_001 + LIVELY.0).len(), 1, "idle ones in turn");
    }

    #[test]
    fn begin__what_was_posted_makes_its_queue_lively_and_all_means_all() {
        let mut looks = QueuePolls::new(2);
        due(&mut looks, 10);
        looks.operation_posted(1);
        assert_eq!(due(&mut looks, 20), [1]);
        assert_eq!(due(&mut looks, 30), [1], "lively from then on");
        looks.all();
        assert_eq!(due(&mut looks, 40), [0, 1]);
    }

    #[test]
    fn begin__idle_queues_take_turns() {
        let mut looks = QueuePolls::new(3);
        due(&mut looks, 10);
        let mut turns: Vec<usize> = (11..14).flat_map(|at| due(&mut looks, at)).collect();
        turns.sort_unstable();
        assert_eq!(turns, [0, 1, 2]);
    }
}
