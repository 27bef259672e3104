//! What a queue gave to PEs of other hosts, and how much of that is not complete.
//!
//! # Model
//! Queues and contexts of one class share the streams to far PEs, which count elements. A queue
//! remembers for each PE how far its stream was when it gave it the last element. One element at a
//! time is timed. Messages have elements of all queues of the class.

use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};

use clearway_proto::base::{Class, LocalNs, Nanos};
use clearway_proto::stats::Histogram;
use clearway_runtime::clock;

use crate::far::Far;

/// What a queue gave to far PEs.
#[derive(Debug)]
pub(super) struct FarElements {
    /// Elements since all were complete.
    pushed: AtomicU64,
    /// When acknowledgements were requested last, or the first element was pushed.
    since: AtomicU64,
    /// For each PE, how many elements were issued to it when the queue gave it the last one.
    marks: Box<[AtomicU64]>,
    timed: TimedElement,
    /// Messages and bytes of the class that left before there was this queue.
    before: [AtomicU64; 2],
    /// Nanoseconds from pushes until this PE knew that they were complete.
    delays: Mutex<Histogram>,
}

/// One element that is timed until it is complete; then another one is.
#[derive(Debug, Default)]
struct TimedElement {
    /// How many elements of the stream have to be complete; 0 for no element.
    mark: AtomicU64,
    pe: AtomicUsize,
    since: AtomicU64,
}

/// How many threads write a counter at a time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Writers {
    /// One: an addition need not be one step for others.
    One,
    /// Any number.
    Many,
}

impl Writers {
    /// Adds `more` to `counter`; what it was before.
    #[inline]
    pub(super) fn add(self, counter: &AtomicU64, more: u64) -> u64 {
        match self {
            Self::One => {
                let before = counter.load(Ordering::Acquire);
                counter.store(before + more, Ordering::Release);
                before
            }
            Self::Many => counter.fetch_add(more, Ordering::AcqRel),
        }
    }
}

/// A mark that stands for an element that a thread is about to time.
const TAKEN: u64 = u64::MAX;

impl TimedElement {
    /// Returns whether an element is timed.
    fn is_begun(&self) -> bool {
        self.mark.load(Ordering::Relaxed) != 0
    }

    /// Begins to time the element number `mark` to `pe`, if no other one is timed.
    fn begin(&self, pe: usize, mark: u64) {
        let order = (Ordering::Acquire, Ordering::Relaxed);
        if self.mark.compare_exchange(0, TAKEN, order.0, order.1).is_ok() {
            self.pe.store(pe, Ordering::Relaxed);
            self.since.store(clock::now().0, Ordering::Relaxed);
            self.mark.store(mark, Ordering::Release);
        }
    }

    /// Returns how long the element took, if it is complete.
    fn end(&self, far: &Far, class: Class) -> Option<Nanos> {
        let mark = self.mark.load(Ordering::Acquire);
        let pe = self.pe.load(Ordering::Relaxed);
        if mark == 0 || mark == TAKEN || far.open(pe, class, mark) > 0 {
            return None;
        }
        let since = LocalNs(self.since.load(Ordering::Relaxed));
        let order = (Ordering::Acquire, Ordering::Relaxed);
        let is_mine = self.mark.compare_exchange(mark, 0, order.0, order.1).is_ok();
        is_mine.then(|| clock::now().since(since))
    }
}

impl FarElements {
    /// Creates the state of a queue that gave nothing to any of `pes` PEs.
    pub(super) fn new(pes: usize) -> Self {
        Self {
            pushed: AtomicU64::new(0),
            since: AtomicU64::new(0),
            marks: (0..pes).map(|_| AtomicU64::new(0)).collect(),
            timed: TimedElement::default(),
            before: Default::default(),
            delays: Mutex::default(),
        }
    }

    /// Forgets all: the queue is another one, and `before` is what its class has sent.
    pub(super) fn clear(&self, before: [u64; 2]) {
        self.before.iter().zip(before).for_each(|(mine, sent)| mine.store(sent, Ordering::Relaxed));
        self.pushed.store(0, Ordering::Relaxed);
        self.marks.iter().for_each(|mark| mark.store(0, Ordering::Relaxed));
        self.timed.mark.store(0, Ordering::Relaxed);
        *self.delays() = Histogram::new();
    }

    /// Returns how many of `sent` messages and bytes of the class left since there is this queue.
    pub(super) fn sent(&self, sent: [u64; 2]) -> [u64; 2] {
        let before = self.before.each_ref().map(|count| count.load(Ordering::Relaxed));
        [sent[0] - before[0], sent[1] - before[1]]
    }

    /// Counts `elements` elements that were given to `pe` in `class`, behind which `issued` elements
    /// had been issued to it.
    #[inline]
    pub(super) fn count(
        &self,
        far: &Far,
        class: Class,
        pe: usize,
        elements: usize,
        issued: u64,
        writers: Writers,
    ) {
        if let Some(mark) = self.marks.get(pe) {
            match writers {
                Writers::One => mark.store(issued, Ordering::Release),
                Writers::Many => drop(mark.fetch_max(issued, Ordering::AcqRel)),
            }
        }
        if self.timed.is_begun() {
            self.time(far, class);
        } else {
            self.timed.begin(pe, issued);
        }
        if writers.add(&self.pushed, elements as u64) == 0 {
            self.since.store(clock::now().0, Ordering::Relaxed);
        }
    }

    /// Returns how many elements are not acknowledged as complete.
    pub(super) fn outstanding(&self, far: &Far, class: Class) -> u64 {
        let pushed = self.pushed.load(Ordering::Acquire);
        if pushed == 0 {
            return 0;
        }
        self.time(far, class);
        // Other queues and contexts of the class have elements in between.
        let open =
            |(pe, mark): (usize, &AtomicU64)| far.open(pe, class, mark.load(Ordering::Acquire));
        let open: u64 = self.marks.iter().enumerate().map(open).sum();
        if open == 0 {
            self.pushed.fetch_sub(pushed, Ordering::AcqRel);
        }
        open.min(pushed)
    }

    /// Notes how long the timed element took, if it is complete.
    fn time(&self, far: &Far, class: Class) {
        if let Some(delay) = self.timed.end(far, class) {
            self.delays().record(delay.0);
        }
    }

    pub(super) fn delays(&self) -> MutexGuard<'_, Histogram> {
        self.delays.lock().unwrap_or_else(PoisonError::into_inner)
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
