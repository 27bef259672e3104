//! Runs a plan on a simulated fabric, writes what it showed into a report, and shows a report of
//! that.

mod building;
mod pages;
#[cfg(test)]
mod sample;

use anyhow::Result;
use clearway_proto::stats::Histogram;
use clearway_proto::timeslice::{Cause, IntervalRecord, Policy};

use super::figures::{
    BUILT, FRACTION, LOST, POLICY, RAW, ROTATIONS, figures, rate, reading, rotation, speeds,
};
use super::gantt::Gantt;
use super::plan::{InitialRings, TimeslicePlan};
use super::simulated::TimesliceOutcome;
use super::table::rows;
use super::{SeedRun, TimesliceBuilding, simulate};
use crate::report::model::{ExtendedReal, Figure, Report, labels};
use crate::report::numerals::digits;
use crate::report::present::Presenter;
use crate::scenario::Fabric;
use building::{BuildingGantt, BuildingInterval, BuildingPolicy, BuildingReport};

/// Runs `plan` under `queue` of `fabric` and adds what it showed to `report`; what each run did, as
/// digests. Progress goes to standard error.
pub(super) fn report(
    fabric: &Fabric,
    queue: &str,
    plan: &TimeslicePlan,
    report: &mut Report,
) -> Result<Vec<String>> {
    let runs = simulate(fabric, queue, plan)?;
    write_runs(plan, &runs, report);
    Ok(digests(&runs))
}

/// Adds what `runs` of `plan` showed to `report`.
pub(crate) fn write_runs(plan: &TimeslicePlan, runs: &[SeedRun], report: &mut Report) {
    report.figures.extend(figures(plan, runs));
    report.figures.extend(speeds(plan, runs));
    if let Some(run) = runs.first() {
        report.set_part(&building(plan, run));
    }
    if plan.rings == InitialRings::Full {
        report.warnings.push(
            "best-effort and offset began with a start skew of one ring's draining time, so that rings are full from the \
             beginning on; other policies began as the parameters say"
                .to_owned(),
        );
    }
    if let Some(packet) = plan.hosts.packet {
        report.warnings.push(format!(
            "packets carry {packet} and buffers hold at least two of them: coarser and faster than the fabric file says"
        ));
    }
}

/// Returns what each of simulated `runs` did.
pub(crate) fn digests(runs: &[SeedRun]) -> Vec<String> {
    runs.iter().flat_map(outcomes).map(|(_, outcome)| format!("{:032x}", outcome.digest)).collect()
}

/// Returns the outcomes, raw first.
fn outcomes(run: &SeedRun) -> impl Iterator<Item = (Policy, &TimesliceOutcome)> {
    let policies = run.policies.iter().map(|(policy, outcome)| (*policy, outcome));
    [(Policy::Raw, &run.raw)].into_iter().chain(policies)
}

fn building(plan: &TimeslicePlan, run: &SeedRun) -> BuildingReport {
    BuildingReport {
        inputs: plan.inputs,
        builders: plan.builders,
        contribution_bytes: plan.contribution.0,
        ring_bytes: plan.ring.0,
        rotation_ms: rotation(plan, &run.raw).0 as f64 / 1e6,
        slower_ms: plan.slowdown.map(|slow| {
            [slow.time().start, slow.time().end]
                .map(|at| ExtendedReal::or_infinite(at.0 as f64 / 1e6))
        }),
        policies: outcomes(run)
            .map(|(policy, outcome)| policy_report(policy, outcome, rate(&run.raw)))
            .collect(),
    }
}

fn policy_report(policy: Policy, outcome: &TimesliceOutcome, raw: f64) -> BuildingPolicy {
    let steps = outcome.pulse.len().max(1) as f64;
    let step = outcome.measured.as_secs_f64() / steps;
    let builds = policy.is_building();
    let inputs_time = outcome.measured.as_secs_f64() * f64::from(outcome.inputs);
    let blocked = |cause: Cause| {
        let percent =
            100.0 * outcome.blocked[cause as usize].as_secs_f64() / inputs_time.max(1e-12);
        (cause.name().to_owned(), ExtendedReal::or_infinite(percent))
    };
    BuildingPolicy {
        policy: policy.name().to_owned(),
        completion_ms: candle(&outcome.completion, 1e6).filter(|_| builds),
        fills: outcome.fills.iter().filter_map(|fill| candle(fill, 1e4)).collect(),
        blocked: Cause::ALL.into_iter().map(blocked).collect(),
        step_ms: step * 1e3,
        pulse: outcome
            .pulse
            .iter()
            .map(|bytes| ExtendedReal::or_infinite(*bytes as f64 / step / raw.max(1.0)))
            .collect(),
        intervals: outcome.intervals.iter().map(interval).collect(),
        gantt: outcome.gantt.as_ref().map(gantt_report),
    }
}

/// Returns least, p10, p50, p90 and most, over `unit`; nothing where nothing was counted.
fn candle(histogram: &Histogram, unit: f64) -> Option<[ExtendedReal; 5]> {
    let (least, most) = (histogram.min()? as f64, histogram.max()? as f64);
    let quantile = |quantile| reading(histogram, quantile);
    Some(
        [least, quantile("p10")?, quantile("p50")?, quantile("p90")?, most]
            .map(|value| ExtendedReal::or_infinite(value / unit)),
    )
}

fn interval(record: &IntervalRecord) -> BuildingInterval {
    let ms = |time: clearway_proto::base::Nanos| ExtendedReal::or_infinite(time.0 as f64 / 1e6);
    BuildingInterval {
        interval: record.interval,
        start_ms: ms(record.start),
        spread_ms: ms(record.spread),
        duration_ms: ms(record.duration),
        proposed_ms: record.proposed.map(|(start, duration)| [ms(start), ms(duration)]),
    }
}

fn gantt_report(gantt: &Gantt) -> BuildingGantt {
    BuildingGantt { step_us: gantt.step.as_micros_f64(), rows: gantt.rows.clone() }
}

impl Presenter for TimesliceBuilding {
    fn check(&self, report: &Report) -> Result<(), String> {
        report.check_part::<BuildingReport>()
    }

    fn conclusion(&self, report: &Report) -> Option<String> {
        conclusion(&report.figures)
    }

    fn tables(&self, report: &Report) -> Vec<Vec<String>> {
        report.part().map(|building| building_table(report, &building)).into_iter().collect()
    }

    fn sections(&self, report: &Report, _queues: &[String]) -> String {
        pages::building(report)
    }

    /// Returns the limit of a ratio. Parts of raw and rotations have no unit, so that a machine and
    /// a lab of it can be compared: the one within a tenth, the other as other times are.
    fn places_limit(&self, figure: &Figure) -> Option<f64> {
        match figure.name.as_str() {
            FRACTION => Some(1.1),
            ROTATIONS if figure.label(labels::QUANTILE) == Some("p50") => Some(1.5),
            _ => None,
        }
    }
}

/// Returns what part of the achievable rate each policy built, the best one first; of a run of one
/// policy how many timeslices it built and lost.
fn conclusion(figures: &[Figure]) -> Option<String> {
    let named = |name: &'static str| figures.iter().filter(move |figure| figure.name == name);
    if let Some(built) = named(BUILT).next() {
        let lost: f64 = named(LOST).map(|figure| figure.value.get()).sum();
        let lost = if lost == 0.0 { "none".to_owned() } else { lost.to_string() };
        return Some(format!("{} timeslices are built, lost: {lost}", built.value.get()));
    }
    let mut parts: Vec<(&str, ExtendedReal)> = named(FRACTION)
        .filter_map(|figure| Some((figure.label(POLICY)?, figure.value)))
        .filter(|(policy, _)| *policy != RAW)
        .collect();
    parts.sort_by(|a, b| b.1.get().total_cmp(&a.1.get()));
    let percent = |value: ExtendedReal| digits(ExtendedReal::or_infinite(100.0 * value.get()));
    let mut parts = parts.iter();
    let (policy, part) = parts.next()?;
    let rest: String =
        parts.map(|(policy, part)| format!(", {} % under {policy}", percent(*part))).collect();
    let first = percent(*part);
    Some(format!("Timeslices reach {first} % of what the network carries under {policy}{rest}"))
}

/// Returns what each policy carried, and how long timeslices took.
fn building_table(report: &Report, building: &BuildingReport) -> Vec<String> {
    let policies: Vec<&str> = building.policies.iter().map(|it| it.policy.as_str()).collect();
    let BuildingReport { inputs, builders, .. } = building;
    let mut lines =
        vec![format!("Timeslices of {inputs} inputs at {builders} builders"), String::new()];
    lines.extend(rows(&policies, &report.figures));
    lines
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::report::html::browser;
    use crate::report::terminal::{ColourMode, WIDTH, render};

    #[test]
    fn conclusion__has_the_best_policy_first_and_counts_what_one_built() {
        let part = |policy: &str, value| {
            let figure = Figure::counted(FRACTION, "", ExtendedReal::finite(value), 1, "");
            figure.with(POLICY, policy)
        };
        let compared = [part(RAW, 1.0), part("dfs", 0.9), part("token", 0.985)];
        let sentence =
            "Timeslices reach 98.5 % of what the network carries under token, 90.0 % under dfs";
        assert_eq!(conclusion(&compared).as_deref(), Some(sentence));
        assert_eq!(conclusion(&compared[..1]), None);
        let counted = |name, value| Figure::counted(name, "", ExtendedReal::finite(value), 1, "");
        let built = [counted(BUILT, 4000.0), counted(LOST, 0.0)];
        assert_eq!(conclusion(&built).as_deref(), Some("4000 timeslices are built, lost: none"));
    }

    #[test]
    fn render__timeslices_have_a_row_for_each_policy_within_eighty_columns() {
        let text = render(&sample::building(), &[&TimesliceBuilding], ColourMode::Plain);
        let row =
            |policy: &str| text.lines().find(|line| line.starts_with(policy)).map(str::to_owned);
        assert!(
            row("raw").is_some_and(|row| row.contains("1.00")) && row("a-policy-w.").is_some(),
            "{text}"
        );
        assert!(text.lines().all(|line| line.chars().count() <= WIDTH), "{text}");
    }

    #[test]
    fn check__refuses_a_report_that_says_nothing_of_its_builders() {
        let mut report = sample::building();
        assert_eq!(TimesliceBuilding.check(&report), Ok(()));
        report.parts.get_mut("building").and_then(|part| part.as_object_mut()?.remove("builders"));
        assert_eq!(
            TimesliceBuilding.check(&report),
            Err("building: missing field `builders`".to_owned())
        );
    }

    #[test]
    fn page__shows_timeslice_building_in_every_window() {
        browser::check("building", &sample::building(), &[&TimesliceBuilding], 0);
    }
}
