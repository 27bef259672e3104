//! What a queue gave to PEs of other hosts, and how much of that is not complete.
//!
//! # Model
//! Queues and contexts of one class share the streams to far PEs, which count elements. A queue
//! remembers for each PE how far its stream was when it gave it the last element.

use std::sync::atomic::{AtomicU64, Ordering};

use clearway_proto::base::{Class, LocalNs, Nanos};
use clearway_runtime::clock;

use crate::far::Far;

/// What a queue gave to far PEs.
#[derive(Debug)]
pub(super) struct FarElements {
    /// Elements since all were complete.
    pushed: AtomicU64,
    /// When the PEs were asked last what they applied, or the first element was pushed.
    since: AtomicU64,
    /// For each PE, how many elements were issued to it when the queue gave it the last one.
    marks: Box<[AtomicU64]>,
}

impl FarElements {
    /// Creates the state of a queue that gave nothing to any of `pes` PEs.
    pub(super) fn new(pes: usize) -> Self {
        Self {
            pushed: AtomicU64::new(0),
            since: AtomicU64::new(0),
            marks: (0..pes).map(|_| AtomicU64::new(0)).collect(),
        }
    }

    /// Forgets all: the queue is another one.
    pub(super) fn clear(&self) {
        self.pushed.store(0, Ordering::Relaxed);
        self.marks.iter().for_each(|mark| mark.store(0, Ordering::Relaxed));
    }

    /// Counts `elements` elements that were given to `pe` in `class`.
    pub(super) fn count(&self, far: &Far, class: Class, pe: usize, elements: usize) {
        if let Some(mark) = self.marks.get(pe) {
            mark.fetch_max(far.issued(pe, class), Ordering::AcqRel);
        }
        if self.pushed.fetch_add(elements as u64, Ordering::AcqRel) == 0 {
            self.since.store(clock::now().0, Ordering::Relaxed);
        }
    }

    /// Returns how many elements are not complete, as far as this PE has heard.
    pub(super) fn outstanding(&self, far: &Far, class: Class) -> u64 {
        let pushed = self.pushed.load(Ordering::Acquire);
        if pushed == 0 {
            return 0;
        }
        // Other queues and contexts of the class have elements in between.
        let open =
            |(pe, mark): (usize, &AtomicU64)| far.open(pe, class, mark.load(Ordering::Acquire));
        let open: u64 = self.marks.iter().enumerate().map(open).sum();
        if open == 0 {
            self.pushed.fetch_sub(pushed, Ordering::AcqRel);
        }
        open.min(pushed)
    }

    /// Returns whether `deadline` has passed, and begins it anew then.
    pub(super) fn is_late(&self, deadline: Nanos) -> bool {
        let now = clock::now();
        let is_late = now.since(LocalNs(self.since.load(Ordering::Relaxed))) >= deadline;
        if is_late {
            self.since.store(now.0, Ordering::Relaxed);
        }
        is_late
    }
}
