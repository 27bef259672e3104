//! How long it takes until a run is as fast again as before inputs were slower.

use core::ops::Range;

use clearway_proto::base::Nanos;
use clearway_proto::timeslice::IntervalRecord;

use super::plan::{Slowdown, TimeslicePlan};
use super::simulated::TimesliceOutcome;

/// What is left to the old rate or duration and counts as back, in hundredths.
const WITHIN: f64 = 3.0;
/// Rotations that must carry as much as before: policies that send in bursts carry that in single
/// ones by chance.
const ROTATIONS: f64 = 10.0;
/// Intervals in a row that must be as short as before.
const INTERVALS: usize = 3;

/// Returns the rotations from the end of `disturbed` to the first moment from which on ten
/// rotations carry what they did before, or that `share` of it which can be carried without those
/// that died, in rotations; infinite when that does not come.
pub(super) fn rotations(
    outcome: &TimesliceOutcome,
    disturbed: Range<Nanos>,
    share: f64,
    rotation: Nanos,
) -> f64 {
    let step = outcome.measured.0 as f64 / outcome.pulse.len().max(1) as f64;
    let [from, until] =
        [disturbed.start, disturbed.end].map(|at| (at.0 as f64 / step).ceil() as usize);
    let window = ((rotation.0 as f64 * ROTATIONS / step).round() as usize).max(1);
    let mean = |samples: &[u64]| samples.iter().sum::<u64>() as f64 / samples.len().max(1) as f64;
    let Some((before, after)) = outcome.pulse.get(..from).zip(outcome.pulse.get(until..)) else {
        return f64::INFINITY;
    };
    let enough = mean(before) * share * (1.0 - WITHIN / 100.0);
    let back = after.windows(window).position(|samples| mean(samples) >= enough);
    back.map_or(f64::INFINITY, |at| at as f64 * step / rotation.0 as f64)
}

/// Returns how many intervals begin behind the end of `slow` until three in a row take as long as
/// the median before it did; infinite when they never do. None without intervals.
pub(super) fn intervals(
    outcome: &TimesliceOutcome,
    plan: &TimeslicePlan,
    slow: &Slowdown,
) -> Option<f64> {
    // Starts of intervals count from the barrier, which falls into the start skew.
    let [from, until] = [slow.time().start, slow.time().end].map(|at| plan.warm_up + at);
    let settled = from.0 / 2;
    let mut before: Vec<u64> =
        starting(&outcome.intervals, settled, from.0).map(|it| it.duration.0).collect();
    before.sort_unstable();
    let usual = *before.get(before.len() / 2)? as f64;
    let after: Vec<f64> =
        starting(&outcome.intervals, until.0, u64::MAX).map(|it| it.duration.0 as f64).collect();
    let back = |all: &[f64]| all.iter().all(|took| *took <= usual * (1.0 + WITHIN / 100.0));
    Some(after.windows(INTERVALS).position(back).map_or(f64::INFINITY, |at| at as f64))
}

fn starting(
    all: &[IntervalRecord],
    from: u64,
    until: u64,
) -> impl Iterator<Item = &IntervalRecord> {
    all.iter().filter(move |it| (from..until).contains(&it.start.0))
}

#[cfg(test)]
mod tests {
    use super::*;

    const SLOW: Range<Nanos> = Nanos(100)..Nanos(200);

    fn outcome(pulse: Vec<u64>) -> TimesliceOutcome {
        TimesliceOutcome { measured: Nanos(1_000), pulse, ..TimesliceOutcome::default() }
    }

    #[test]
    fn rotations__count_from_the_end_of_the_slowdown_to_the_first_ten_full_ones() {
        let mut pulse = vec![100; 100];
        pulse[10..24].fill(75);
        // A rotation is two samples; with two slow ones of twenty, 97.5 of 100 are carried.
        assert_eq!(rotations(&outcome(pulse.clone()), SLOW, 1.0, Nanos(20)), 1.0);
        pulse[10..100].fill(96);
        pulse[30] = 110;
        assert_eq!(rotations(&outcome(pulse), SLOW, 1.0, Nanos(20)), f64::INFINITY);
        assert_eq!(rotations(&outcome(vec![100; 100]), SLOW, 1.0, Nanos(20)), 0.0);
    }

    #[test]
    fn rotations__without_a_builder_the_others_carry_their_share() {
        let mut pulse = vec![100; 100];
        pulse[10..].fill(75);
        pulse[10..14].fill(0);
        let death = Nanos(100)..Nanos(100);
        assert_eq!(rotations(&outcome(pulse.clone()), death.clone(), 0.75, Nanos(20)), 2.0);
        assert_eq!(rotations(&outcome(pulse), death, 1.0, Nanos(20)), f64::INFINITY);
    }

    #[test]
    fn rotations__of_a_run_that_ends_within_the_drop_are_endless() {
        let short = TimesliceOutcome {
            measured: Nanos(50),
            pulse: vec![1; 5],
            ..TimesliceOutcome::default()
        };
        assert_eq!(rotations(&short, SLOW, 1.0, Nanos(20)), f64::INFINITY);
    }
}
