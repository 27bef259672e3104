//! Which receiver holds the others up: judged by what the engine's root knows of each member, not
//! by how much each says that it has written.
//!
//! # Model
//! Everybody's disk is behind the network by what lies in memory, and the window keeps all members
//! near each other, so counts of bytes name anybody. The root knows who has the least of what has
//! left. It is asked ten times a second; who is it most of the time lately is named, and at the end
//! who was it most of the whole time.

use std::collections::{BTreeMap, VecDeque};

/// Answers that count as lately: two seconds.
const LATELY: usize = 20;
/// Of fewer answers nobody is named at the end.
const ENOUGH: u32 = 5;

/// Whom the others wait for.
#[derive(Debug, Default)]
pub(super) struct Blame {
    lately: VecDeque<Option<u32>>,
    all: BTreeMap<u32, u32>,
    asked: u32,
}

impl Blame {
    /// Notes the root's answer: this rank is last, or nobody while nothing is under way.
    pub(super) fn note(&mut self, last: Option<u32>) {
        if self.lately.len() == LATELY {
            self.lately.pop_front();
        }
        self.lately.push_back(last);
        self.asked += 1;
        last.into_iter().for_each(|rank| *self.all.entry(rank).or_default() += 1);
    }

    /// Returns who is last most of the time lately.
    pub(super) fn lately(&self) -> Option<u32> {
        let mut counts = BTreeMap::new();
        self.lately.iter().flatten().for_each(|rank| *counts.entry(*rank).or_default() += 1);
        most(&counts, self.lately.len() as u32)
    }

    /// Returns who was last most of the whole time.
    pub(super) fn in_all(&self) -> Option<u32> {
        most(&self.all, self.asked).filter(|_| self.asked >= ENOUGH)
    }
}

/// Returns who has more than half of all counts.
fn most(counts: &BTreeMap<u32, u32>, all: u32) -> Option<u32> {
    counts.iter().find(|(_, count)| **count * 2 > all).map(|(rank, _)| *rank)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn blame__is_on_who_is_last_most_of_the_time() {
        let mut blame = Blame::default();
        assert_eq!((blame.lately(), blame.in_all()), (None, None));
        [Some(3), None, Some(1), Some(3), Some(3)].into_iter().for_each(|last| blame.note(last));
        assert_eq!((blame.lately(), blame.in_all()), (Some(3), Some(3)));
        (0..LATELY).for_each(|_| blame.note(Some(2)));
        assert_eq!((blame.lately(), blame.in_all()), (Some(2), Some(2)));
        [1, 4].into_iter().cycle().take(LATELY).for_each(|rank| blame.note(Some(rank)));
        assert_eq!((blame.lately(), blame.in_all()), (None, None), "now one and now another");
        blame.note(None);
        assert_eq!(blame.lately(), None);
    }
}
