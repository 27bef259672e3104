//! What is due first, and the rate that keeps all deadlines.
//!
//! # Model
//! Items leave in the order of their deadlines; equal ones in that in which they came. An item
//! without a deadline of its own is given one by its owner, so nothing waits for ever.
//!
//! # Source
//! Liu and Layland, "Scheduling algorithms for multiprogramming" (1973): if any order keeps all
//! deadlines, this one does. The rate that does is the greatest, over all deadlines, of the bytes
//! due until then by the time until then.

use alloc::collections::BTreeMap;

use crate::base::{BitsPerSec, Bytes};

/// Items by deadline, in nanoseconds of whatever clock their owner has.
#[derive(Clone, Debug)]
pub struct DeadlineQueue<T> {
    items: BTreeMap<(u64, u64), (Bytes, T)>,
    count: u64,
}

impl<T> Default for DeadlineQueue<T> {
    fn default() -> Self {
        Self { items: BTreeMap::new(), count: 0 }
    }
}

impl<T> DeadlineQueue<T> {
    /// Adds an item of `size` that is due at `deadline`.
    pub fn push(&mut self, deadline: u64, size: Bytes, item: T) {
        self.items.insert((deadline, self.count), (size, item));
        self.count += 1;
    }

    /// Takes the first item that `can_leave`, with its deadline. Cost: the items in front of it.
    pub fn pop_first(&mut self, mut can_leave: impl FnMut(&T) -> bool) -> Option<(u64, T)> {
        let first = self.items.iter().find(|(_, (_, item))| can_leave(item));
        let key = first.map(|(key, _)| *key)?;
        self.items.remove(&key).map(|(_, item)| (key.0, item))
    }

    /// Removes the items that are not to be kept.
    pub fn retain(&mut self, mut keeps: impl FnMut(&T) -> bool) {
        self.items.retain(|_, (_, item)| keeps(item));
    }

    /// Returns how many items wait.
    pub fn len(&self) -> usize {
        self.items.len()
    }

    /// Returns whether none waits.
    pub fn is_empty(&self) -> bool {
        self.items.is_empty()
    }

    /// Returns the earliest deadline.
    pub fn earliest(&self) -> Option<u64> {
        self.items.first_key_value().map(|((deadline, _), _)| *deadline)
    }

    /// Returns the least rate from `now` on that keeps all deadlines; the highest there is when one
    /// has passed. Cost: all items.
    pub fn rate_needed(&self, now: u64) -> BitsPerSec {
        let (mut bits, mut rate) = (0_u128, 0_u128);
        for ((deadline, _), (size, _)) in &self.items {
            bits += u128::from(size.0) * 8;
            let left = u128::from(deadline.saturating_sub(now));
            let needed = (bits * 1_000_000_000).checked_div(left).map(|rate| rate + 1);
            rate = rate.max(needed.unwrap_or(if bits > 0 { u128::MAX } else { 0 }));
        }
        BitsPerSec(u64::try_from(rate).unwrap_or(u64::MAX))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::vec::Vec;
    use proptest::prelude::*;

    #[test]
    fn pop_first__the_first_that_can_leave_of_those_due_first() {
        let mut queue = DeadlineQueue::default();
        for (deadline, item) in [(30, 'a'), (10, 'b'), (10, 'c'), (20, 'd')] {
            queue.push(deadline, Bytes(1), item);
        }
        assert_eq!((queue.earliest(), queue.len()), (Some(10), 4));
        assert_eq!(queue.pop_first(|item| *item != 'b'), Some((10, 'c')));
        assert_eq!(queue.pop_first(|_| true), Some((10, 'b')));
        queue.retain(|item| *item != 'd');
        assert_eq!(queue.pop_first(|item| *item == 'd'), None);
        assert_eq!(queue.pop_first(|_| true), Some((30, 'a')));
        assert!(queue.is_empty());
    }

    #[test]
    fn rate_needed__the_tightest_deadline_counts() {
        let mut queue = DeadlineQueue::default();
        assert_eq!(queue.rate_needed(0), BitsPerSec(0));
        // A byte a microsecond until 1 ms, then less.
        queue.push(2_000_000, Bytes(500), ());
        queue.push(1_000_000, Bytes(1_000), ());
        assert_eq!(queue.rate_needed(0), BitsPerSec(8_000_001));
        assert_eq!(queue.rate_needed(1_000_000), BitsPerSec(u64::MAX));
    }

    proptest! {
        #[test]
        fn rate_needed__at_that_rate_nothing_is_late(items in prop::collection::vec((1_000_u64..1_000_000, 1_u64..100_000), 1..30)) {
            let mut queue = DeadlineQueue::default();
            for (deadline, size) in &items {
                queue.push(*deadline, Bytes(*size), *size);
            }
            let rate = queue.rate_needed(0);
            let mut bytes = 0;
            let mut order = Vec::new();
            while let Some((deadline, size)) = queue.pop_first(|_| true) {
                bytes += size;
                order.push(deadline);
                prop_assert!(rate.time_for(Bytes(bytes)).0 <= deadline);
            }
            prop_assert!(order.is_sorted());
        }
    }
}
