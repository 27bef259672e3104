//! Decides which packet numbers of one sender may still be accepted: each at most once.
//!
//! # Model
//! A ring of bits, one for each of the latest numbers. The ring moves on in whole words when a
//! higher number comes, so moving costs the same however far it goes.
//!
//! # Source
//! The way of moving: RFC 6479. Size: a window belongs to one peer and one class. Within a class
//! packets leave one socket in order; they overtake each other on several paths only, by the
//! difference of their delays. 4,032 packets of 1,500 bytes are 2.4 ms at 20 Gb/s. Classes overtake
//! each other without bound, as they are meant to, which is why each has a window of its own.
//!
//! # Invariants
//! I1. A number that was marked is never fresh again.

/// Words of the ring.
const WORDS: u64 = 64;
/// Numbers behind the highest that are still distinguished; one word is being moved into.
pub(super) const REACH: u64 = (WORDS - 1) * 64;

/// Which of the latest numbers came.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct ReplayWindow {
    /// One more than the highest number that came.
    end: u64,
    came: [u64; WORDS as usize],
}

impl Default for ReplayWindow {
    fn default() -> Self {
        Self { end: 0, came: [0; WORDS as usize] }
    }
}

/// Returns the place of a number in the ring.
fn place(number: u64) -> (usize, u64) {
    ((number / 64 % WORDS) as usize, 1 << (number % 64))
}

impl ReplayWindow {
    /// Returns whether `number` did not come yet, as far as can be known.
    pub(super) fn is_fresh(&self, number: u64) -> bool {
        let (word, bit) = place(number);
        number >= self.end || (self.end - number <= REACH && self.came[word] & bit == 0)
    }

    /// Remembers a fresh number, once its packet was found genuine.
    pub(super) fn mark(&mut self, number: u64) {
        if number >= self.end {
            let newest = self.end.saturating_sub(1) / 64;
            let steps = (number / 64 - newest).min(WORDS);
            (1..=steps).for_each(|step| self.came[((newest + step) % WORDS) as usize] = 0);
            self.end = number.saturating_add(1);
        }
        let (word, bit) = place(number);
        self.came[word] |= bit;
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;
    use proptest::prelude::*;

    fn accept(window: &mut ReplayWindow, number: u64) -> bool {
        let fresh = window.is_fresh(number);
        if fresh {
            window.mark(number);
        }
        fresh
    }

    #[test]
    fn window__takes_each_number_once_in_any_order() {
        let mut window = ReplayWindow::default();
        for number in [0, 5, 3, 64, 63, 4_000, 1] {
            assert!(accept(&mut window, number), "{number}");
            assert!(!accept(&mut window, number), "{number} again");
        }
    }

    #[test]
    fn window__ends_where_it_says() {
        let mut window = ReplayWindow::default();
        assert!(accept(&mut window, REACH + 10));
        assert!(!window.is_fresh(10), "just too old");
        assert!(window.is_fresh(11));
        assert!(accept(&mut window, u64::MAX - 1), "a leap");
        assert!(!window.is_fresh(11) && !window.is_fresh(REACH + 10));
    }

    proptest! {
        #[test]
        fn window__accepts_what_is_new_and_near_and_nothing_twice(
            steps in prop::collection::vec((any::<bool>(), 0u64..6_000), 1..300)
        ) {
            let (mut window, mut came, mut highest) = (ReplayWindow::default(), BTreeSet::new(), 0u64);
            for (ahead, distance) in steps {
                let number = if ahead { highest + distance } else { highest.saturating_sub(distance) };
                let near = number + REACH > highest || came.is_empty();
                let accepted = accept(&mut window, number);
                prop_assert_eq!(accepted, near && !came.contains(&number), "{} of {}", number, highest);
                if accepted {
                    came.insert(number);
                    highest = highest.max(number);
                }
            }
        }
    }
}
