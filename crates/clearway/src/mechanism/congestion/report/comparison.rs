//! Which figures of the congestion test decide whether one run is worse than another, and how far
//! those of two places may be apart.
//!
//! # Model
//! Only absolute figures of what the network does under load decide: `victim_latency`,
//! `victim_oneway_p99_us` and `program_figure` of the phase `congested`, and `class_share`. Ratios,
//! as `congestion_impact_factor`, are context: they rise as well when the idle network becomes
//! faster. Everything else describes the machine or the run itself.
//!
//! Two places are compared by impact factors, the latencies that they are made of, and shares of
//! classes. The larger value may be 1.5 times the smaller one for latencies and their factors, of
//! which a queue's depth and a frame decide; 1.1 times for shares, which weights decide.
//!
//! # Invariants
//! I1. Null controls never decide, nor does any figure whose congestor is `none`: they measure the
//!     machine.

use super::super::names;
use super::programs;
use crate::report::model::{Figure, Report, labels};
use crate::report::present::WorseDirection;

/// The limit for latencies and impact factors.
const TIMES_MAX: f64 = 1.5;
/// The limit for shares: 10 %.
const SHARE_TIMES_MAX: f64 = 1.1;

/// Returns the side on which a figure of `report` is worse; `None` for one that does not decide.
pub(super) fn worsens(figure: &Figure, report: &Report) -> Option<WorseDirection> {
    let is_alone = figure.label(labels::CONGESTOR) == Some(labels::NOBODY);
    let congested = figure.label(labels::PHASE) == Some(labels::CONGESTED);
    match figure.name.as_str() {
        _ if is_alone => None,
        names::LATENCY | names::ONEWAY_P99 if congested => Some(WorseDirection::Up),
        names::PROGRAM if congested && prints_rates(report) => Some(WorseDirection::Down),
        names::PROGRAM if congested => Some(WorseDirection::Up),
        names::CLASS_SHARE => Some(WorseDirection::Down),
        _ => None,
    }
}

/// Returns whether what a program of the user's prints is better when it is more.
fn prints_rates(report: &Report) -> bool {
    report
        .parameters
        .iter()
        .any(|parameter| parameter.name == programs::FIGURE && parameter.value == programs::RATE)
}

/// Returns what the ratio of two values of `figure` may be; absent for figures that places need not
/// share.
pub(super) fn places_limit(figure: &Figure) -> Option<f64> {
    let of_p99 = figure.label(labels::QUANTILE) == Some("p99");
    let congested = figure.label(labels::PHASE) == Some(labels::CONGESTED);
    let is_alone = figure.label(labels::CONGESTOR) == Some(labels::NOBODY);
    match figure.name.as_str() {
        _ if is_alone => None,
        names::CIF if of_p99 => Some(TIMES_MAX),
        names::LATENCY if of_p99 && congested => Some(TIMES_MAX),
        names::CLASS_SHARE => Some(SHARE_TIMES_MAX),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::super::super::CongestionTest;
    use super::*;
    use crate::report::diff::{DiffResult, compare, render};
    use crate::report::model::{ExtendedReal, Parameter, ParameterOrigin};
    use crate::report::sample;
    use crate::report::terminal::ColourMode;

    fn move_to(figure: &mut Figure, value: f64) {
        figure.value = ExtendedReal::finite(value);
        figure.low = Some(ExtendedReal::finite(value * 0.99));
        figure.high = Some(ExtendedReal::finite(value * 1.01));
    }

    /// Returns what the second of two reports is called that differ in one figure alone, which
    /// moves from 10 to `value`.
    fn moved(name: &str, pairs: &[(&str, &str)], value: f64) -> DiffResult {
        let [a, b] = [10.0, value].map(|value| {
            let mut report = sample::incast_demo();
            let mut figure = Figure::counted(name, "us", ExtendedReal::finite(value), 1, "");
            move_to(&mut figure, value);
            report.figures =
                vec![pairs.iter().fold(figure, |figure, (key, value)| figure.with(key, *value))];
            report
        });
        compare(&a, &b, &[&CongestionTest]).result
    }

    #[test]
    fn compare__worse_is_up_under_load_and_down_for_classes() {
        let congested = [(labels::PHASE, labels::CONGESTED), (labels::CONGESTOR, "incast")];
        for name in [names::LATENCY, names::ONEWAY_P99, names::PROGRAM] {
            assert_eq!(
                (moved(name, &congested, 20.0), moved(name, &congested, 5.0)),
                (DiffResult::Worse, DiffResult::SameOrBetter)
            );
        }
        let share = |value| moved(names::CLASS_SHARE, &[], value);
        assert_eq!((share(20.0), share(5.0)), (DiffResult::SameOrBetter, DiffResult::Worse));
    }

    #[test]
    fn compare__of_a_program_that_prints_rates_less_is_worse() {
        let run = |value| {
            let mut report = sample::incast_demo();
            let mut figure =
                Figure::counted(names::PROGRAM, "", ExtendedReal::finite(value), 1, "");
            move_to(&mut figure, value);
            report.figures = vec![figure.with(labels::PHASE, labels::CONGESTED)];
            report.parameters = vec![Parameter {
                name: programs::FIGURE.to_owned(),
                value: programs::RATE.to_owned(),
                unit: String::new(),
                origin: ParameterOrigin::Flag,
            }];
            report
        };
        assert_eq!(compare(&run(10.0), &run(5.0), &[&CongestionTest]).result, DiffResult::Worse);
        assert_eq!(
            compare(&run(10.0), &run(20.0), &[&CongestionTest]).result,
            DiffResult::SameOrBetter
        );
    }

    #[test]
    fn compare__an_idle_network_that_became_faster_makes_nothing_worse() {
        let run = |isolated| {
            let mut report = sample::incast_demo();
            let of = |name: &str, value| {
                let mut figure = Figure::counted(name, "us", ExtendedReal::finite(value), 1, "");
                move_to(&mut figure, value);
                figure.with(labels::CONGESTOR, "incast")
            };
            let phase = |value, phase: &str| of(names::LATENCY, value).with(labels::PHASE, phase);
            report.figures = vec![
                phase(isolated, labels::ISOLATED),
                phase(1000.0, labels::CONGESTED),
                of(names::CIF, 1000.0 / isolated),
                of(names::SLOWDOWN, 1000.0 / isolated),
            ];
            report
        };
        let (a, b) = (run(100.0), run(50.0));
        let comparison = compare(&a, &b, &[&CongestionTest]);
        assert_eq!(comparison.result, DiffResult::SameOrBetter);
        let text = render(&comparison, ColourMode::Plain);
        assert!(
            !text.contains("WORSE")
                && text.contains("Context, which decides nothing:\ncongestion_impact_factor"),
            "{text}"
        );
        assert!(text.contains("Unchanged: 1 figure.\n"), "{text}");
        assert!(text.ends_with("No figure is significantly worse, of 1 that decide.\n"), "{text}");
    }

    #[test]
    fn compare__what_measures_the_machine_never_decides() {
        let isolated = [(labels::PHASE, labels::ISOLATED)];
        let nobody = [(labels::PHASE, labels::CONGESTED), (labels::CONGESTOR, labels::NOBODY)];
        let machine = [
            "null_control_factor",
            "lab_up_seconds",
            "processor_delay_p99_us",
            "load_not_sent_bytes",
            "resent_messages",
        ];
        let figures = machine.map(|name| (name, &[][..]));
        for (name, pairs) in figures
            .into_iter()
            .chain([(names::LATENCY, &isolated[..]), (names::LATENCY, &nobody[..])])
        {
            let results = [moved(name, pairs, 20.0), moved(name, pairs, 5.0)];
            assert_eq!(results, [DiffResult::SameOrBetter; 2], "{name}");
        }
    }

    #[test]
    fn places_limit__is_for_latencies_under_load_their_factors_and_shares() {
        let report = sample::incast_demo();
        let limits: Vec<(&str, f64)> = report
            .figures
            .iter()
            .filter_map(|figure| Some((figure.name.as_str(), places_limit(figure)?)))
            .collect();
        let [latency, factor] = [(names::LATENCY, TIMES_MAX), (names::CIF, TIMES_MAX)];
        assert_eq!(limits, [latency, factor, latency, factor], "p99 of two queues");
        let share = Figure::counted(names::CLASS_SHARE, "", ExtendedReal::finite(0.5), 1, "");
        assert_eq!(places_limit(&share), Some(SHARE_TIMES_MAX));
        assert_eq!(places_limit(&share.with(labels::CONGESTOR, labels::NOBODY)), None);
    }
}
