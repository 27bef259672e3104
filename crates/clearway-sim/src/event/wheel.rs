//! A calendar wheel: buckets of time side by side, the next one sorted, what is too far away in a
//! heap next to it.
//!
//! # Model
//! ```text
//!    bucket   front                           front + buckets
//!             |                                   |
//!             sorted run and all that passed      everything later: heap
//!             (taken from its end)
//! ```
//! A bucket is a list through one slab; a bitmap of two floors finds the next bucket that holds
//! anything. The least event is the lesser of the end of the run and the top of the heap, so an
//! event may lie in the heap without being far away: that is where it goes when the run is too long
//! to make room in its middle. Nothing ever moves from the heap to a bucket but by a new tuning,
//! which would cost more than taking it from where it is.
//!
//! # Tuning
//! Now and then the width of a bucket is set so that about [`RUN_AIM`] events fall into it at the
//! rate seen since the last time, and the number of buckets so that the window is some mean delays
//! long. Order does not depend on it.
//!
//! # Invariants
//! I1. The buckets in use lie in `front + 1 .. front + buckets`; what is not later than the bucket
//!     `front` is in the run or
//!     in the heap.
//! I2. The run is sorted, least event last.

use super::{Event, EventHeap};
use crate::time::Picos;

/// Events that should meet in a bucket. Measured with delays as in a network: 8 and 16 are the best
/// from 300 to 100,000 pending, 2 costs up to a third more, 32 begins to cost sorting.
const RUN_AIM: u64 = 8;
/// A longer run is not inserted into: a burst at one instant must not cost its square. From 8 to
/// 128 no difference was measured on even traffic.
const RUN_MAX: usize = 32;
/// Binary digits of the number of buckets, at first and at least: heads and bitmap lie in the
/// first-level cache.
const BUCKETS_LOG_MIN: u32 = 10;
/// At most: one mebibyte of list heads. Measured at 100,000 pending: 2^14 costs a third more, 2^20
/// the same.
const BUCKETS_LOG_MAX: u32 = 18;
/// Width of a bucket at first, as a binary logarithm of picoseconds: 8 ns, a hundredth of a hop.
const WIDTH_LOG_FIRST: u32 = 13;
/// Pops before the first look at the tuning, and at least between two.
const LOOK_AFTER: u64 = 4_096;
/// No node: the end of a list.
const NIL: u32 = u32::MAX;
/// Later than every event.
const NEVER: Event = Event { at: Picos::NEVER, key: u32::MAX, arg: u32::MAX };

/// An event in a bucket.
#[derive(Clone, Copy, Debug)]
struct WheelEntry {
    event: Event,
    /// The next of the same list, or [`NIL`].
    next: u32,
}

/// Buckets of time: O(1) each while the rate of events changes slowly, O(log pending) at worst.
#[derive(Clone, Debug)]
pub(crate) struct TimingWheel {
    width_log: u32,
    /// The bucket that the run was made of.
    front: u64,
    run: Vec<Event>,
    far: EventHeap,
    /// The top of the heap, or [`NEVER`]: looked at far more often than it changes.
    far_first: Event,
    /// First node of each bucket's list; a power of two of them.
    heads: Vec<u32>,
    occupied: Bitmap,
    nodes: Vec<WheelEntry>,
    /// List of the nodes that hold nothing.
    free: u32,
    linked: usize,
    pace: WheelStatistics,
}

/// What tuning looks at.
#[derive(Clone, Copy, Debug)]
struct WheelStatistics {
    pops: u64,
    look_at: u64,
    since: Picos,
}

impl Default for TimingWheel {
    fn default() -> Self {
        let buckets = 1 << BUCKETS_LOG_MIN;
        Self {
            width_log: WIDTH_LOG_FIRST,
            front: 0,
            run: Vec::new(),
            far: EventHeap::default(),
            far_first: NEVER,
            heads: vec![NIL; buckets],
            occupied: Bitmap::new(buckets),
            nodes: Vec::new(),
            free: NIL,
            linked: 0,
            pace: WheelStatistics { pops: 0, look_at: LOOK_AFTER, since: Picos::ZERO },
        }
    }
}

impl TimingWheel {
    /// Pushes as [`super::Queue::push`] says.
    pub(crate) fn push(&mut self, event: Event) {
        let bucket = event.at.0 >> self.width_log;
        if bucket <= self.front {
            self.insert(event);
        } else if bucket - self.front < self.heads.len() as u64 {
            self.link(bucket, event);
        } else {
            self.put_off(event);
        }
    }

    /// Adds an event that no bucket is for.
    #[inline(never)]
    fn put_off(&mut self, event: Event) {
        self.far.push(event);
        self.far_first = self.far_first.min(event);
    }

    /// Looks as [`super::Queue::next_at`] says. Only looks: were the next bucket the run now, what
    /// is put before it would have to be inserted.
    pub(crate) fn next_at(&self) -> Option<Picos> {
        let near = match self.run.last() {
            Some(event) => Some(event.at),
            None => {
                self.next_bucket().and_then(|(slot, _)| self.list(slot).map(|event| event.at).min())
            }
        };
        let far = (self.far.len() > 0).then_some(self.far_first.at);
        near.into_iter().chain(far).min()
    }

    /// Pops as [`super::Queue::pop`] says.
    #[cfg(test)]
    pub(crate) fn pop(&mut self) -> Option<Event> {
        self.settle_until(u64::MAX);
        self.take()
    }

    /// Pops as [`super::Queue::pop_until`] says.
    #[inline(always)]
    pub(crate) fn pop_until(&mut self, instant: Picos) -> Option<Event> {
        // Nearly always there is neither a bucket to open nor a heap to take from.
        match self.run.last() {
            Some(near) if *near <= self.far_first => {
                if near.at <= instant {
                    self.take_near()
                } else {
                    None
                }
            }
            None if instant.0 >> self.width_log <= self.front && self.far_first.at > instant => {
                None
            }
            _ => self.pop_due(instant),
        }
    }

    #[inline(never)]
    fn pop_due(&mut self, instant: Picos) -> Option<Event> {
        self.settle_until(instant.0 >> self.width_log);
        let near = self.run.last().is_some_and(|event| event.at <= instant);
        let due = near || self.far_first.at <= instant;
        if due { self.take() } else { None }
    }

    /// Counts as [`super::Queue::len`] says.
    pub(crate) fn len(&self) -> usize {
        self.run.len() + self.linked + self.far.len()
    }

    /// Takes the lesser of the end of the run and the top of the heap.
    fn take(&mut self) -> Option<Event> {
        match self.run.last() {
            Some(near) if *near <= self.far_first => self.take_near(),
            _ => {
                let far = self.far.pop()?;
                self.far_first = self.far.peek().unwrap_or(NEVER);
                self.front = self.front.max(far.at.0 >> self.width_log);
                self.popped(far)
            }
        }
    }

    /// Takes the end of the run.
    #[inline(always)]
    fn take_near(&mut self) -> Option<Event> {
        let near = self.run.pop()?;
        self.popped(near)
    }

    /// Counts `event`, which was taken.
    #[inline(always)]
    fn popped(&mut self, event: Event) -> Option<Event> {
        self.pace.pops += 1;
        if self.pace.pops >= self.pace.look_at {
            self.tune(event.at);
        }
        Some(event)
    }

    /// Makes the next bucket that holds anything the run, when the run is used up and that bucket
    /// is `last` or before it.
    #[inline]
    fn settle_until(&mut self, last: u64) {
        if self.run.is_empty() && last > self.front {
            self.settle(last);
        }
    }

    fn settle(&mut self, last: u64) {
        let Some((slot, distance)) = self.next_bucket() else { return };
        if distance > last - self.front {
            // Were it the run now, what is put before it would have to be inserted.
            return;
        }
        self.front += distance;
        self.occupied.clear(slot);
        let mut at = core::mem::replace(&mut self.heads[slot], NIL);
        while at != NIL {
            let node = &mut self.nodes[at as usize];
            self.run.push(node.event);
            let next = core::mem::replace(&mut node.next, self.free);
            self.free = at;
            at = next;
        }
        self.linked -= self.run.len();
        if self.run.len() > 1 {
            // Events of one phase were put in the order of their ports: a stable sort finds such
            // stretches.
            self.run.sort_by(|a, b| b.cmp(a));
        }
    }

    /// Returns the first bucket behind the front one that holds anything, and how far behind.
    fn next_bucket(&self) -> Option<(usize, u64)> {
        if self.linked == 0 {
            return None;
        }
        let mask = self.heads.len() as u64 - 1;
        let from = ((self.front + 1) & mask) as usize;
        let slot = self.occupied.next(from)?;
        Some((slot, 1 + ((slot as u64).wrapping_sub(from as u64) & mask)))
    }

    /// Returns the events of a bucket, in no order.
    fn list(&self, slot: usize) -> impl Iterator<Item = Event> + '_ {
        let mut at = self.heads[slot];
        core::iter::from_fn(move || {
            let node = self.nodes.get(at as usize)?;
            at = node.next;
            Some(node.event)
        })
    }

    /// Adds an event that is not later than the front bucket.
    #[inline(never)]
    fn insert(&mut self, event: Event) {
        if self.run.len() > RUN_MAX {
            return self.put_off(event);
        }
        let place = self.run.iter().rposition(|later| *later >= event).map_or(0, |place| place + 1);
        self.run.insert(place, event);
    }

    /// Puts an event into the list of `bucket`, which lies in the window.
    fn link(&mut self, bucket: u64, event: Event) {
        let slot = (bucket & (self.heads.len() as u64 - 1)) as usize;
        let node = WheelEntry { event, next: self.heads[slot] };
        let at = if self.free == NIL {
            self.nodes.push(node);
            self.nodes.len() as u32 - 1
        } else {
            let at = self.free;
            self.free = core::mem::replace(&mut self.nodes[at as usize], node).next;
            at
        };
        if node.next == NIL {
            self.occupied.set(slot);
        }
        self.heads[slot] = at;
        self.linked += 1;
    }

    /// Fits width and number of buckets to the rate and number of events, if they are far off.
    #[cold]
    fn tune(&mut self, now: Picos) {
        let seen = self.pace.pops;
        let elapsed = now - self.pace.since;
        let pending = self.len() as u64;
        self.pace = WheelStatistics { pops: 0, look_at: LOOK_AFTER.max(4 * pending), since: now };
        if elapsed == Picos::ZERO {
            return;
        }
        let width_log = (elapsed.0 / seen).saturating_mul(RUN_AIM).max(1).ilog2();
        let buckets_log =
            pending.max(1).ilog2().saturating_add(1).clamp(BUCKETS_LOG_MIN, BUCKETS_LOG_MAX);
        if width_log.abs_diff(self.width_log) > 1
            || buckets_log.abs_diff(self.heads.len().ilog2()) > 1
        {
            self.rebuild(width_log, buckets_log, now);
        }
    }

    /// Sorts everything into other buckets. O(pending + buckets).
    fn rebuild(&mut self, width_log: u32, buckets_log: u32, now: Picos) {
        let mut all = core::mem::take(&mut self.run);
        all.extend(self.far.drain());
        for slot in 0..self.heads.len() {
            all.extend(self.list(slot));
        }
        let pace = self.pace;
        *self = Self { width_log, pace, ..Self::default() };
        self.heads = vec![NIL; 1 << buckets_log];
        self.occupied = Bitmap::new(1 << buckets_log);
        self.front = now.0 >> width_log;
        for event in all {
            self.push(event);
        }
    }
}

/// Which buckets hold anything; a second floor has a bit for each word.
#[derive(Clone, Debug)]
struct Bitmap {
    words: Vec<u64>,
    summary: Vec<u64>,
}

impl Bitmap {
    /// Creates `bits` zeros; a power of two, at least 64.
    fn new(bits: usize) -> Self {
        let words = bits / 64;
        Self { words: vec![0; words], summary: vec![0; words.div_ceil(64)] }
    }

    fn set(&mut self, bit: usize) {
        self.words[bit / 64] |= 1 << (bit % 64);
        self.summary[bit / 4096] |= 1 << (bit / 64 % 64);
    }

    fn clear(&mut self, bit: usize) {
        self.words[bit / 64] &= !(1 << (bit % 64));
        if self.words[bit / 64] == 0 {
            self.summary[bit / 4096] &= !(1 << (bit / 64 % 64));
        }
    }

    /// Returns the first bit that is set at or after `from`, going round.
    fn next(&self, from: usize) -> Option<usize> {
        let word = from / 64;
        let rest = self.words[word] & (!0 << (from % 64));
        if rest != 0 {
            return Some(word * 64 + rest.trailing_zeros() as usize);
        }
        let found = self.next_word(word + 1).or_else(|| self.next_word(0))?;
        Some(found * 64 + self.words[found].trailing_zeros() as usize)
    }

    /// Returns the first word at or after `from` with a bit set.
    fn next_word(&self, from: usize) -> Option<usize> {
        let mut place = from / 64;
        let mut rest = self.summary.get(place)? & (!0 << (from % 64));
        while rest == 0 {
            place += 1;
            rest = *self.summary.get(place)?;
        }
        Some(place * 64 + rest.trailing_zeros() as usize)
    }
}

#[cfg(test)]
impl TimingWheel {
    /// Returns the binary logarithm of a bucket's picoseconds.
    pub(super) fn width_log(&self) -> u32 {
        self.width_log
    }

    /// Events in the heap.
    pub(super) fn far_len(&self) -> usize {
        self.far.len()
    }
}
