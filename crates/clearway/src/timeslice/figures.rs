//! The figures of timeslice building: medians over seeds, with the least and the most.

use clearway_proto::stats::{Histogram, Quantile};
use clearway_proto::timeslice::{Cause, Policy};

use super::Run;
use super::plan::Plan;
use super::simulated::Outcome;
use crate::report::model::{Figure, Real, labels};

/// Bytes of each input in a second, in GB/s; label policy.
pub(super) const RATE: &str = "timeslice_input_rate";
/// Throughput over that of unscheduled writes; label policy.
pub(super) const FRACTION: &str = "timeslice_throughput_fraction";
/// From the first to the last contribution of a timeslice, in ms; labels policy, quantile.
pub(super) const COMPLETION: &str = "timeslice_completion_ms";
/// The same in rotations: the time in which unscheduled writes carry one contribution of each input to each builder.
pub(super) const ROTATIONS: &str = "timeslice_completion_rotations";
/// Contributions by which the furthest input is ahead of the last; labels policy, quantile.
pub(super) const GAP: &str = "synchronisation_gap_contributions";
/// Bytes in a connection's ring over its length; labels policy, quantile.
pub(super) const FILL: &str = "builder_buffer_fill_fraction";
/// Contributions let in at a time, the mean of all builders; label policy.
pub(super) const WINDOW: &str = "builder_window_contributions";
/// Time in which an input could send nothing, in %; labels policy, cause.
pub(super) const BLOCKED: &str = "input_blocked_share";

/// Labels of these figures.
pub(super) const POLICY: &str = "policy";
const CAUSE: &str = "cause";
/// Quantiles that are told.
const QUANTILES: [&str; 2] = ["p50", "p99"];

/// One number of one policy on one seed.
struct Told {
    name: &'static str,
    unit: &'static str,
    /// Key and value, where it has more than the policy's.
    label: Option<(&'static str, &'static str)>,
    value: f64,
}

/// All figures of `runs`.
pub(crate) fn figures(plan: &Plan, runs: &[Run]) -> Vec<Figure> {
    let raw: Vec<Vec<Told>> = runs.iter().map(|run| throughput(plan, &run.raw, &run.raw)).collect();
    let mut figures = merged(Policy::Raw, &raw);
    for (place, policy) in plan.policies.iter().enumerate() {
        let told = |run: &Run| run.policies.get(place).map(|(_, outcome)| told(plan, outcome, &run.raw));
        figures.extend(merged(*policy, &runs.iter().filter_map(told).collect::<Vec<_>>()));
    }
    figures
}

/// The median of each figure over all seeds.
fn merged(policy: Policy, seeds: &[Vec<Told>]) -> Vec<Figure> {
    let Some(first) = seeds.first() else { return Vec::new() };
    let one = |(place, told): (usize, &Told)| {
        let mut values: Vec<f64> = seeds.iter().filter_map(|told| told.get(place)).map(|told| told.value).collect();
        values.sort_by(f64::total_cmp);
        let [low, median, high] = [0, values.len() / 2, values.len() - 1].map(|at| Real::finite(values[at]));
        let source = "median of the seeds, between the least and the most";
        let figure = Figure::counted(told.name, told.unit, median, values.len() as u64, source);
        let figure = Figure { low: Some(low), high: Some(high), ..figure }.with(POLICY, policy.name());
        told.label.into_iter().fold(figure, |figure, (key, value)| figure.with(key, value))
    };
    first.iter().enumerate().map(one).collect()
}

fn throughput(plan: &Plan, outcome: &Outcome, raw: &Outcome) -> Vec<Told> {
    let rate = outcome.bytes as f64 / plan.measured.as_secs_f64() / f64::from(plan.inputs) / 1e9;
    let fraction = outcome.bytes as f64 / raw.bytes.max(1) as f64;
    let told = |name, unit, value| Told { name, unit, label: None, value };
    vec![told(RATE, "GB/s", rate), told(FRACTION, "", fraction)]
}

fn told(plan: &Plan, outcome: &Outcome, raw: &Outcome) -> Vec<Told> {
    let mut all = throughput(plan, outcome, raw);
    let rotation = rotation_ms(plan, raw);
    for quantile in QUANTILES {
        let reading = |histogram: &Histogram| {
            let quantile = quantile.parse::<Quantile>().ok();
            quantile.and_then(|quantile| histogram.quantile(quantile).finite()).unwrap_or(0) as f64
        };
        let mut tell = |name, unit, value| {
            all.push(Told { name, unit, label: Some((labels::QUANTILE, quantile)), value });
        };
        let completion = reading(&outcome.completion) / 1e6;
        tell(COMPLETION, "ms", completion);
        tell(ROTATIONS, "", completion / rotation);
        tell(GAP, "", reading(&outcome.gap));
        tell(FILL, "", reading(&outcome.fill) / 1e6);
    }
    if !outcome.windows.is_empty() {
        let sum = outcome.windows.iter().map(|window| f64::from(*window)).sum::<f64>();
        all.push(Told { name: WINDOW, unit: "", label: None, value: sum / outcome.windows.len() as f64 });
    }
    let whole = plan.measured.as_secs_f64() * f64::from(plan.inputs);
    for cause in Cause::ALL {
        let value = 100.0 * outcome.blocked[cause as usize].as_secs_f64() / whole;
        all.push(Told { name: BLOCKED, unit: "%", label: Some((CAUSE, cause.name())), value });
    }
    all
}

/// The time in which unscheduled writes carry a contribution of every input to every builder.
fn rotation_ms(plan: &Plan, raw: &Outcome) -> f64 {
    let bytes = plan.contribution.0 as f64 * f64::from(plan.inputs) * f64::from(plan.builders);
    bytes * plan.measured.as_secs_f64() * 1e3 / raw.bytes.max(1) as f64
}
