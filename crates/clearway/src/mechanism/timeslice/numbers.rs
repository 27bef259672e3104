//! Which timeslices somebody has: few words for many, since builders take turns.
//!
//! # Model
//! *Steps*: a first number, how far the next one is, and how many there are. Numbers that are
//! nearly in order are put in order first.
//!
//! # Invariants
//! I1. What was put in comes out, as often as it was put in.

use std::collections::BTreeSet;

use serde::{Deserialize, Serialize};

/// How far numbers may come out of order and cost nothing: more than timeslices that are complete
/// before older ones, by far.
const WAITING_MAX: usize = 256;

/// Numbers of timeslices.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct TimesliceNumbers {
    /// First, distance, count.
    steps: Vec<[u64; 3]>,
    /// Not yet among them.
    #[serde(default, skip_serializing_if = "BTreeSet::is_empty")]
    waiting: BTreeSet<u64>,
}

impl TimesliceNumbers {
    /// Adds one more.
    pub(super) fn push(&mut self, number: u64) {
        if !self.waiting.insert(number) {
            return self.put(number);
        }
        if self.waiting.len() > WAITING_MAX
            && let Some(first) = self.waiting.pop_first()
        {
            self.put(first);
        }
    }

    fn put(&mut self, number: u64) {
        match self.steps.last_mut() {
            Some([first, step, count @ 1]) if number > *first => {
                (*step, *count) = (number - *first, 2)
            }
            Some([first, step, count]) if *first + *step * *count == number && *count > 1 => {
                *count += 1
            }
            _ => self.steps.push([number, 0, 1]),
        }
    }

    /// Returns how many there are.
    pub(super) fn count(&self) -> u64 {
        self.steps.iter().map(|[.., count]| count).sum::<u64>() + self.waiting.len() as u64
    }

    /// Returns all of them.
    pub(super) fn iter(&self) -> impl Iterator<Item = u64> + '_ {
        let of = |[first, step, count]: &[u64; 3]| {
            let (first, step) = (*first, *step);
            (0..*count).map(move |number| first.wrapping_add(step.wrapping_mul(number)))
        };
        self.steps.iter().flat_map(of).chain(self.waiting.iter().copied())
    }
}

impl FromIterator<u64> for TimesliceNumbers {
    fn from_iter<I: IntoIterator<Item = u64>>(all: I) -> Self {
        let mut numbers = Self::default();
        all.into_iter().for_each(|number| numbers.push(number));
        numbers
    }
}

/// Whether everything is there, once.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct CompletenessAudit {
    /// Nobody has them.
    pub(super) lost: u64,
    /// Somebody had them already, or nobody gave them.
    pub(super) duplicated: u64,
}

impl CompletenessAudit {
    /// Creates the numbers of the timeslices below `given`, that were built as `all` say. Takes a
    /// bit for each.
    pub(super) fn new<'a>(given: u64, all: impl Iterator<Item = &'a TimesliceNumbers>) -> Self {
        let mut seen = vec![0_u64; given.div_ceil(64) as usize];
        let (mut built, mut duplicated) = (0, 0);
        for number in all.flat_map(TimesliceNumbers::iter) {
            match seen.get_mut((number / 64) as usize).filter(|_| number < given) {
                Some(word) if *word >> (number % 64) & 1 == 0 => {
                    *word |= 1 << (number % 64);
                    built += 1;
                }
                _ => duplicated += 1,
            }
        }
        Self { lost: given - built, duplicated }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn push__turns_of_a_builder_are_one_step_in_whatever_order_they_end() {
        let swapped = (0..10_000_u64).map(|turn| 3 + 4 * (turn ^ 5));
        let numbers: TimesliceNumbers = swapped.clone().collect();
        assert!(numbers.steps.len() <= 2, "{:?}", numbers.steps);
        let mut wanted: Vec<u64> = swapped.collect();
        wanted.sort_unstable();
        assert!(numbers.iter().eq(wanted));
        assert_eq!(numbers.count(), 10_000);
    }

    #[test]
    fn push__keeps_what_comes_twice_and_what_goes_back() {
        let numbers: TimesliceNumbers =
            [9, 9, 2, 700, 1, 9].into_iter().chain(1_000..2_000).chain([0]).collect();
        let mut all: Vec<u64> = numbers.iter().collect();
        all.sort_unstable();
        assert_eq!((&all[..7], all.len()), (&[0, 1, 2, 9, 9, 9, 700][..], 1_007));
        let reported = serde_json::to_string(&numbers).expect("JSON");
        assert_eq!(serde_json::from_str::<TimesliceNumbers>(&reported).ok(), Some(numbers));
    }

    #[test]
    fn audit__finds_one_lost_and_one_twice_although_the_sums_agree() {
        let [even, odd]: [TimesliceNumbers; 2] =
            [0, 1].map(|first| (first..100).step_by(2).collect());
        let audit = |all: &[&TimesliceNumbers]| CompletenessAudit::new(100, all.iter().copied());
        assert_eq!(audit(&[&even, &odd]), CompletenessAudit::default());
        let wrong: TimesliceNumbers =
            (0..100).step_by(2).map(|number| if number == 40 { 44 } else { number }).collect();
        assert_eq!(audit(&[&wrong, &odd]), CompletenessAudit { lost: 1, duplicated: 1 });
        let beyond: TimesliceNumbers = [100, u64::MAX].into_iter().collect();
        assert_eq!(audit(&[&beyond, &odd]), CompletenessAudit { lost: 50, duplicated: 2 });
    }
}
