//! The figures of timeslice building: medians over seeds, with the least and the most.

use std::time::Duration;

use clearway_proto::base::Nanos;
use clearway_proto::stats::{Histogram, Quantile};
use clearway_proto::timeslice::{Cause, Policy};

use super::plan::TimeslicePlan;
use super::simulated::TimesliceOutcome;
use super::{SeedRun, recovery, scheduled_change};
use crate::report::model::{ExtendedReal, Figure, labels};

/// Bytes of each input in a second, in GB/s; label policy.
pub(super) const RATE: &str = "timeslice_input_rate";
/// Throughput over that of unscheduled writes; label policy.
pub(super) const FRACTION: &str = "timeslice_throughput_fraction";
/// From the first to the last contribution of a timeslice, in ms; labels policy, quantile.
pub(super) const COMPLETION: &str = "timeslice_completion_ms";
/// The same in rotations: the time in which unscheduled writes carry one contribution of each input
/// to each builder.
pub(super) const ROTATIONS: &str = "timeslice_completion_rotations";
/// Contributions by which the furthest input is ahead of the last; labels policy, quantile.
pub(super) const GAP: &str = "synchronisation_gap_contributions";
/// Bytes in a connection's ring over its length; labels policy, quantile.
pub(super) const FILL: &str = "builder_buffer_fill_fraction";
/// Contributions let in at a time, the mean of all builders; label policy.
pub(super) const WINDOW: &str = "builder_window_contributions";
/// Time in which an input could send nothing, in %; labels policy, cause.
pub(super) const BLOCKED: &str = "input_blocked_share";

/// Throughput over what hosts' interfaces could fetch; label policy.
pub(super) const LINE: &str = "timeslice_line_fraction";
/// From the end of a drop of bandwidth until ten rotations carry as much as before; label policy.
pub(super) const RECOVERY: &str = "recovery_rotations";
/// The same in intervals that took longer than before; label policy.
pub(super) const RECOVERY_INTERVALS: &str = "recovery_intervals";
/// From a rank's death until another one knew of it, in ms; label policy.
pub(super) const DETECTION: &str = "detection_ms";
/// The same until the last one did, and so what it had was dealt to others.
pub(super) const REDISTRIBUTION: &str = "redistribution_ms";
/// Timeslices that were built; no labels.
pub(super) const BUILT: &str = "timeslices_built";
/// Timeslices that living inputs had something for and nobody built; label policy.
pub(super) const LOST: &str = "timeslices_lost";
/// Timeslices that were built twice, by decision; label policy.
pub(super) const DUPLICATED: &str = "timeslices_duplicated";
/// Seconds of one processor for a simulated second; label policy.
const SPEED: &str = "simulation_seconds_per_second";

/// Labels of these figures.
pub(super) const POLICY: &str = "policy";
/// The policy of writes in turn that nobody waits for.
pub(super) const RAW: &str = "raw";
pub(super) const CAUSE: &str = "cause";
/// Quantiles that are reported.
const QUANTILES: [&str; 4] = ["p10", "p50", "p90", "p99"];

/// One number of one policy on one seed.
struct PolicyFigure {
    name: &'static str,
    unit: &'static str,
    /// Key and value, where it has more than the policy's.
    label: Option<(&'static str, &'static str)>,
    value: f64,
}

/// Returns all figures of `runs`.
pub(crate) fn figures(plan: &TimeslicePlan, runs: &[SeedRun]) -> Vec<Figure> {
    over_seeds(plan, runs, |run, outcome, policy| {
        if !policy.is_building() {
            throughput(plan, outcome, run)
        } else {
            policy_figures(plan, outcome, run)
        }
    })
}

/// Returns what the simulation cost: the only figures that another run of the same plan does not
/// repeat.
pub(crate) fn speeds(plan: &TimeslicePlan, runs: &[SeedRun]) -> Vec<Figure> {
    over_seeds(plan, runs, |_, outcome, _| {
        let of_second =
            |spent: Duration| spent.as_secs_f64() / outcome.simulated.as_secs_f64().max(1e-12);
        let reported = |value| PolicyFigure { name: SPEED, unit: "s", label: None, value };
        outcome.spent.map(of_second).map(reported).into_iter().collect()
    })
}

/// Returns, of raw and of each policy, what `tell` makes of every run, as medians.
fn over_seeds(
    plan: &TimeslicePlan,
    runs: &[SeedRun],
    tell: impl Fn(&SeedRun, &TimesliceOutcome, Policy) -> Vec<PolicyFigure>,
) -> Vec<Figure> {
    let raw: Vec<Vec<PolicyFigure>> =
        runs.iter().map(|run| tell(run, &run.raw, Policy::Raw)).collect();
    let mut figures = merged(Policy::Raw, &raw);
    for policy in plan.policies.iter().filter(|policy| **policy != Policy::Raw) {
        let of = |run: &'_ SeedRun| run.policies.iter().position(|(its, _)| its == policy);
        let reported =
            |run: &SeedRun| of(run).map(|place| tell(run, &run.policies[place].1, *policy));
        figures.extend(merged(*policy, &runs.iter().filter_map(reported).collect::<Vec<_>>()));
    }
    figures
}

/// Returns the median of each figure over all seeds.
fn merged(policy: Policy, seeds: &[Vec<PolicyFigure>]) -> Vec<Figure> {
    // What was not measured on one seed may have been on another.
    let mut all: Vec<&PolicyFigure> = Vec::new();
    let is_same = |a: &PolicyFigure, b: &PolicyFigure| (a.name, a.label) == (b.name, b.label);
    for reported in seeds.iter().flatten() {
        if !all.iter().any(|known| is_same(known, reported)) {
            all.push(reported);
        }
    }
    let one = |reported: &PolicyFigure| {
        let same = seeds.iter().filter_map(|seed| seed.iter().find(|it| is_same(it, reported)));
        let mut values: Vec<f64> = same.map(|reported| reported.value).collect();
        values.sort_by(f64::total_cmp);
        let [low, median, high] =
            [0, values.len() / 2, values.len() - 1].map(|at| ExtendedReal::or_infinite(values[at]));
        let source = "median of the seeds, between the least and the most";
        let figure =
            Figure::counted(reported.name, reported.unit, median, values.len() as u64, source);
        let figure =
            Figure { low: Some(low), high: Some(high), ..figure }.with(POLICY, policy.name());
        reported.label.into_iter().fold(figure, |figure, (key, value)| figure.with(key, value))
    };
    all.into_iter().map(one).collect()
}

/// Returns the bytes that landed in a second.
pub(super) fn rate(outcome: &TimesliceOutcome) -> f64 {
    outcome.bytes as f64 / outcome.measured.as_secs_f64().max(1e-12)
}

fn throughput(
    plan: &TimeslicePlan,
    outcome: &TimesliceOutcome,
    run: &SeedRun,
) -> Vec<PolicyFigure> {
    let of_input = rate(outcome) / f64::from(plan.inputs);
    let reported = |name, unit, value| PolicyFigure { name, unit, label: None, value };
    let mut all = vec![
        reported(RATE, "GB/s", of_input / 1e9),
        reported(FRACTION, "", rate(outcome) / rate(&run.raw).max(1.0)),
    ];
    all.extend(run.host_rate.map(|line| reported(LINE, "", of_input * 8.0 / line.0 as f64)));
    all
}

fn policy_figures(
    plan: &TimeslicePlan,
    outcome: &TimesliceOutcome,
    run: &SeedRun,
) -> Vec<PolicyFigure> {
    let mut all = throughput(plan, outcome, run);
    let rotation = rotation(plan, &run.raw);
    let fill = Histogram::merged(&outcome.fills);
    for quantile in QUANTILES {
        let mut tell = |name, unit, value: Option<f64>| {
            let label = Some((labels::QUANTILE, quantile));
            all.extend(value.map(|value| PolicyFigure { name, unit, label, value }));
        };
        let completion = reading(&outcome.completion, quantile);
        tell(COMPLETION, "ms", completion.map(|nanos| nanos / 1e6));
        tell(ROTATIONS, "", completion.map(|nanos| nanos / rotation.0 as f64));
        tell(GAP, "", reading(&outcome.gap, quantile));
        tell(FILL, "", reading(&fill, quantile).map(|fill| fill / 1e6));
    }
    let mut tell = |name, unit, label, value| all.push(PolicyFigure { name, unit, label, value });
    if !outcome.windows.is_empty() {
        let sum = outcome.windows.iter().map(|window| f64::from(*window)).sum::<f64>();
        tell(WINDOW, "", None, sum / outcome.windows.len() as f64);
    }
    if let Some(slow) = &plan.slowdown {
        tell(RECOVERY, "", None, recovery::rotations(outcome, slow.time(), 1.0, rotation));
        if let Some(intervals) = recovery::intervals(outcome, plan, slow) {
            tell(RECOVERY_INTERVALS, "", None, intervals);
        }
    }
    if let Some([first, last]) = scheduled_change::slowest(&outcome.losses) {
        tell(DETECTION, "ms", None, first);
        tell(REDISTRIBUTION, "ms", None, last);
        // Until all know, others carry what was granted before; then it shows how they go on.
        let died = outcome.losses.values().map(|known| known.died).min().unwrap_or_default();
        let last = outcome
            .losses
            .values()
            .filter_map(|known| known.by)
            .map(|[_, last]| last)
            .max()
            .unwrap_or(died);
        let after = recovery::rotations(outcome, died..last, left(plan, outcome), rotation);
        tell(RECOVERY, "", None, (last.0 - died.0) as f64 / rotation.0 as f64 + after);
    }
    if let Some(audit) = outcome.audit {
        tell(LOST, "", None, audit.lost as f64);
        tell(DUPLICATED, "", None, audit.duplicated as f64);
    }
    let whole = outcome.measured.as_secs_f64() * f64::from(plan.inputs);
    for cause in Cause::ALL {
        let value = 100.0 * outcome.blocked[cause as usize].as_secs_f64() / whole;
        tell(BLOCKED, "%", Some((CAUSE, cause.name())), value);
    }
    all
}

/// Returns what part of what all carried those can that are left.
fn left(plan: &TimeslicePlan, outcome: &TimesliceOutcome) -> f64 {
    let inputs = outcome.losses.keys().filter(|rank| rank.0 < plan.inputs).count();
    let builders = outcome.losses.len() - inputs;
    let left = |of: u32, lost: usize| 1.0 - lost as f64 / f64::from(of);
    left(plan.inputs, inputs).min(left(plan.builders, builders))
}

/// Returns a quantile; nothing where nothing was counted.
pub(super) fn reading(histogram: &Histogram, quantile: &str) -> Option<f64> {
    let quantile = quantile.parse::<Quantile>().ok()?;
    histogram.quantile(quantile).finite().map(|value| value as f64)
}

/// Returns the time in which unscheduled writes carry a contribution of every input to every
/// builder.
pub(super) fn rotation(plan: &TimeslicePlan, raw: &TimesliceOutcome) -> Nanos {
    let bytes = plan.contribution.0 as f64 * f64::from(plan.inputs) * f64::from(plan.builders);
    Nanos(((bytes / rate(raw).max(1.0) * 1e9) as u64).max(1))
}
