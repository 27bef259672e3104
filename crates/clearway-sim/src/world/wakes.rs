//! When each node wants to run next: one entry for each rank, in a heap that knows where they are.
//!
//! # Invariants
//! I1. The first is the earliest, and of equals the one with the lowest rank: order does not depend
//!     on history.
//! I2. Changing a wake costs O(log ranks) and leaves nothing stale behind.

use clearway_proto::base::Rank;

use crate::time::Picos;

/// Wakes of ranks `0..n`.
#[derive(Clone, Debug)]
pub(super) struct WakeQueue {
    heap: Vec<(Picos, u32)>,
    /// The place of each rank in `heap`.
    place: Vec<u32>,
}

impl WakeQueue {
    /// Creates a table in which nobody wants anything.
    pub(super) fn new(ranks: u32) -> Self {
        Self {
            heap: (0..ranks).map(|rank| (Picos::NEVER, rank)).collect(),
            place: (0..ranks).collect(),
        }
    }

    /// Returns the rank that is first, and when; `None` when nobody wants to run.
    pub(super) fn first(&self) -> Option<(Picos, Rank)> {
        self.heap.first().filter(|(at, _)| *at < Picos::NEVER).map(|(at, rank)| (*at, Rank(*rank)))
    }

    /// Returns when `rank` wants to run; [`Picos::NEVER`] if not at all.
    pub(super) fn wake_at(&self, rank: Rank) -> Picos {
        self.heap[self.place[rank.index()] as usize].0
    }

    /// Sets that `rank` wants to run at `at`, and not when it said before.
    pub(super) fn set(&mut self, rank: Rank, at: Picos) {
        let place = self.place[rank.index()] as usize;
        let before = core::mem::replace(&mut self.heap[place].0, at);
        if at < before {
            self.rise(place);
        } else if at > before {
            self.sink(place);
        }
    }

    fn rise(&mut self, mut place: usize) {
        while place > 0 {
            let parent = (place - 1) / 2;
            if self.heap[parent] <= self.heap[place] {
                break;
            }
            self.swap(parent, place);
            place = parent;
        }
    }

    fn sink(&mut self, mut place: usize) {
        loop {
            let left = place * 2 + 1;
            let children = left..(left + 2).min(self.heap.len());
            let Some(least) = children.min_by_key(|child| self.heap[*child]) else { break };
            if self.heap[place] <= self.heap[least] {
                break;
            }
            self.swap(place, least);
            place = least;
        }
    }

    fn swap(&mut self, a: usize, b: usize) {
        self.heap.swap(a, b);
        self.place[self.heap[a].1 as usize] = a as u32;
        self.place[self.heap[b].1 as usize] = b as u32;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn first__is_what_a_search_finds(changes in prop::collection::vec((0u32..20, 0u64..50), 0..200)) {
            let mut wakes = WakeQueue::new(20);
            let mut plain = [Picos::NEVER; 20];
            for (rank, at) in changes {
                let at = if at == 49 { Picos::NEVER } else { Picos(at) };
                wakes.set(Rank(rank), at);
                plain[rank as usize] = at;
                let least = plain.iter().zip(0..).map(|(at, rank)| (*at, rank)).min();
                prop_assert_eq!(
                    wakes.first(),
                    least.filter(|(at, _)| *at < Picos::NEVER).map(|(at, rank)| (at, Rank(rank)))
                );
                prop_assert_eq!(wakes.wake_at(Rank(rank)), at);
            }
        }
    }
}
