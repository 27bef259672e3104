//! Makes a failing trial smaller: fewer and shorter faults, fewer operations, fewer ranks.
//!
//! # Invariants
//! I1. The trial that is returned violates the same check as the one that was given.

use super::trial::{Symptom, Trial, TrialOutcome};
use crate::fault::{FaultPlan, shrink as shrink_plan};

/// Runs at most: a second or two of a small network.
const TRIES_MAX: u32 = 400;

impl Trial {
    /// Returns the smallest trial found that still shows `symptom`, and what it showed.
    pub fn shrink(&self, symptom: Symptom) -> (Self, Option<TrialOutcome>) {
        let mut tries = TRIES_MAX;
        let mut small = self.clone();
        let plan = shrink_plan(&self.plan, &mut tries, &mut |plan| {
            self.with(plan).shows(symptom).is_some()
        });
        if small.with(&plan).shows(symptom).is_some() {
            small = small.with(&plan);
        }
        // Fewer operations first: every run after that is shorter.
        small = small.halve(symptom, &mut tries, |trial| Self {
            operations: trial.operations / 2,
            ..trial.clone()
        });
        small = small.halve(symptom, &mut tries, |trial| Self {
            operations: trial.operations - 1,
            ..trial.clone()
        });
        small = small
            .halve(symptom, &mut tries, |trial| Self { ranks: trial.ranks - 1, ..trial.clone() });
        let again = small.with(&shrink_plan(&small.plan, &mut tries, &mut |plan| {
            small.with(plan).shows(symptom).is_some()
        }));
        let small = if again.shows(symptom).is_some() { again } else { small };
        let shown = small.shows(symptom);
        (small, shown)
    }

    fn with(&self, plan: &FaultPlan) -> Self {
        Self { plan: plan.clone(), ..self.clone() }
    }

    /// Applies `smaller` as often as the symptom stays.
    fn halve(&self, symptom: Symptom, tries: &mut u32, smaller: impl Fn(&Self) -> Self) -> Self {
        let mut best = self.clone();
        while *tries > 0 {
            if smaller(&best).operations == 0 || smaller(&best).ranks < 2 {
                break;
            }
            *tries -= 1;
            let next = smaller(&best);
            if next.shows(symptom).is_none() {
                break;
            }
            best = next;
        }
        best
    }

    /// Returns what this trial shows, if it is `symptom`.
    fn shows(&self, symptom: Symptom) -> Option<TrialOutcome> {
        let outcome = match symptom {
            Symptom::Differs => self.run_both_ways(),
            _ => self.run(&mut |_, _| ()),
        };
        outcome.ok().filter(|outcome| {
            outcome.violation.as_ref().is_some_and(|found| found.symptom == symptom)
        })
    }
}
