//! Writes what a congestion test found into its report: figures, charts, class table, draws.
//!
//! # Invariants
//! I1. A figure's labels name it alone: a label is there whenever the run has more than one value
//!     of it.

use std::collections::BTreeMap;

use clearway_proto::base::Class;
use clearway_proto::congestion::VictimKind;
use clearway_proto::stats::Estimate;

use super::cell::Case;
use super::evidence::{P99, QUANTILES};
use super::names;
use super::outcome::{CaseResult, DrawResult};
use super::windows::Window;
use crate::mechanism::congestion::CongestionSection;
use crate::mechanism::congestion::phases::PhaseRunner;
use crate::report::model::{
    ClassShare, Draw, DrawFactor, ExtendedReal, Figure, HeatMap, Labels, Report, SurvivalCurve,
    Timeline, TimelinePhase, labels,
};
use crate::run::RunSpec;
use crate::run::venue::ClockAgreement;
use crate::scenario::requested_class;

/// Returns what figures with an interval are made of.
fn bootstrap(test: &CongestionSection) -> String {
    format!("block bootstrap, 95 %, blocks of {}", test.slice.0)
}

/// Hosts of the largest map that shows everybody; on larger ones most were not asked.
const MAP_HOSTS_MAX: usize = 64;

/// Writes the figures and charts of the congestion test.
pub(super) fn write(
    report: &mut Report,
    test: &CongestionSection,
    order: &RunSpec<'_>,
    results: &[CaseResult<'_>],
    stage: &PhaseRunner<'_>,
) {
    for result in results {
        estimates(report, test, result, stage.facts().clocks);
        charts(report, test, result, stage);
    }
    scores(report, test, results);
    class_table(report, test, results);
    draws(report, test, order, results);
}

/// Returns the labels of a case; intensity, bursts and members only where a run has several.
pub(super) fn labels_of(test: &CongestionSection, result: &CaseResult<'_>) -> Labels {
    labels_of_case(test, &result.case)
}

/// Returns the labels of `case`, as [`labels_of`] does.
pub(super) fn labels_of_case(test: &CongestionSection, case: &Case<'_>) -> Labels {
    let mut all = Labels::from([
        (labels::QUEUE.to_owned(), case.queue.to_owned()),
        (labels::VICTIM.to_owned(), case.victim.name().to_owned()),
        (labels::CONGESTOR.to_owned(), case.congestor.name().to_owned()),
    ]);
    if test.intensity_percent.len() > 1 {
        all.insert(labels::INTENSITY.to_owned(), case.intensity.to_string());
    }
    if test.bursts.len() > 1 {
        all.insert(labels::BURSTS.to_owned(), case.bursts.to_string());
    }
    if let Some(members) = case.members {
        all.insert(labels::MEMBERS.to_owned(), members.to_string());
    }
    all
}

fn phase_labels(test: &CongestionSection, result: &CaseResult<'_>, phase: &str) -> Labels {
    let mut all = labels_of(test, result);
    all.insert(labels::PHASE.to_owned(), phase.to_owned());
    all
}

fn estimates(
    report: &mut Report,
    test: &CongestionSection,
    result: &CaseResult<'_>,
    clocks: ClockAgreement,
) {
    let control = result.is_control(test);
    let one_way = result.case.victim == VictimKind::Ping && clocks == ClockAgreement::One;
    let source = bootstrap(test);
    let of = |name: &str, unit: &str, estimate: &Estimate, scale: f64, labels: &Labels| {
        let mut figure = Figure::estimate(name, unit, estimate, scale, &source);
        figure.labels.clone_from(labels);
        figure
    };
    for (i, quantile) in QUANTILES.into_iter().enumerate() {
        let phases =
            [(labels::ISOLATED, &result.isolated[i]), (labels::CONGESTED, &result.congested[i])];
        for (phase, resampled) in phases {
            let all = phase_labels(test, result, phase);
            let estimate = resampled.estimate();
            report.figures.push(
                of(names::LATENCY, "us", &estimate, 1e-3, &all)
                    .with(labels::QUANTILE, quantile.to_string()),
            );
            if i == P99 && one_way && !control {
                let mut named = all.clone();
                if test.congestors.len() == 1 {
                    named.remove(labels::CONGESTOR);
                }
                report.figures.push(of("victim_oneway_p99_us", "us", &estimate, 1e-3, &named));
            }
        }
        if let Some(factor) = &result.factors[i] {
            // The null control has a name of its own: it says something about the machine, not
            // about the network.
            let name = if control { "null_control_factor" } else { names::CIF };
            let figure = of(name, "x", &factor.estimate(), 1.0, &labels_of(test, result));
            report.figures.push(figure.with(labels::QUANTILE, quantile.to_string()));
        }
    }
    counted(report, test, result);
}

/// Adds figures that are counted, not estimated.
fn counted(report: &mut Report, test: &CongestionSection, result: &CaseResult<'_>) {
    let mean = |pick: &dyn Fn(&DrawResult) -> Option<f64>| {
        let values: Vec<f64> = result.draws.iter().filter_map(pick).collect();
        (!values.is_empty()).then(|| values.iter().sum::<f64>() / values.len() as f64)
    };
    let draws = result.draws.len() as u64;
    let mut push = |name: &str, unit: &str, value: Option<f64>, source: &str, all: Labels| {
        if let Some(value) = value.and_then(ExtendedReal::new) {
            let figure = Figure::counted(name, unit, value, draws, source);
            report.figures.push(Figure { labels: all, ..figure });
        }
    };
    let all = || labels_of(test, result);
    let loss = mean(&|draw| Some(draw.evidence.loss() * 100.0));
    push(
        names::LOSS,
        "%",
        loss,
        "sent and never received",
        phase_labels(test, result, labels::CONGESTED),
    );
    let share = mean(&|draw| draw.evidence.congestor_share.map(|share| share * 100.0));
    push(names::GOODPUT_SHARE, "%", share, "load that arrived over its max-min fair rate", all());
    let delay = mean(&|draw| Some(draw.evidence.processor_delay.as_micros_f64()));
    push("processor_delay_p99_us", "us", delay, "real minus intended time of sends", all());
    push(
        "resent_messages",
        "",
        mean(&|draw| Some(draw.evidence.resent as f64)),
        "counted by ranks",
        all(),
    );
    let withheld = mean(&|draw| Some(draw.evidence.withheld as f64));
    push(
        "load_not_sent_bytes",
        "B",
        withheld,
        "load that was due and did not leave its host",
        all(),
    );
}

fn charts(
    report: &mut Report,
    test: &CongestionSection,
    result: &CaseResult<'_>,
    stage: &PhaseRunner<'_>,
) {
    // One draw is drawn: curves of several would hide each other. The spread has a chart of its
    // own.
    let Some(first) = result.draws.first() else { return };
    if result.is_control(test) {
        return;
    }
    let evidence = &first.evidence;
    let isolated = phase_labels(test, result, labels::ISOLATED);
    let congested = phase_labels(test, result, labels::CONGESTED);
    report.survival.push(SurvivalCurve::from_histogram(&evidence.isolated_times, isolated));
    report.survival.push(SurvivalCurve::from_histogram(&evidence.congested_times, congested));
    report.timelines.push(timeline(labels_of(test, result), first));
    let mut hosts: Vec<String> = stage.hosts();
    let mut rows = vec![vec![None; hosts.len()]; hosts.len()];
    // Later draws add pairs; where two draws share one, the worse stays.
    for ((from, to), ratio) in result.draws.iter().flat_map(|draw| &draw.evidence.pair_ratios) {
        let Some(cell) = rows
            .get_mut(from.index())
            .and_then(|row: &mut Vec<Option<ExtendedReal>>| row.get_mut(to.index()))
        else {
            continue;
        };
        let worse = cell.is_none_or(|known: ExtendedReal| known.get() < *ratio);
        if worse {
            *cell = ExtendedReal::new(*ratio);
        }
    }
    if hosts.len() > MAP_HOSTS_MAX {
        drop_unmeasured(&mut hosts, &mut rows);
    }
    report.heat.push(HeatMap { labels: labels_of(test, result), ranks: hosts, rows });
}

/// Takes hosts that no victim was on out of a map.
fn drop_unmeasured(hosts: &mut Vec<String>, rows: &mut Vec<Vec<Option<ExtendedReal>>>) {
    let met =
        |i: usize| rows[i].iter().any(Option::is_some) || rows.iter().any(|row| row[i].is_some());
    let measured: Vec<usize> = (0..hosts.len()).filter(|i| met(*i)).collect();
    *hosts = measured.iter().map(|i| hosts[*i].clone()).collect();
    *rows = measured.iter().map(|i| measured.iter().map(|j| rows[*i][*j]).collect()).collect();
}

fn timeline(labels: Labels, draw: &DrawResult) -> Timeline {
    let grid = draw.windows.grid;
    let seconds = |slice: u32| grid.slices(slice).as_secs_f64();
    let phase = |name: &str, window: Window| TimelinePhase {
        name: name.to_owned(),
        from_s: seconds(window.from),
        to_s: seconds(window.until),
    };
    let windows = &draw.windows;
    let slices = draw.evidence.p99_of_slice.len() as u32;
    let noise = (0..slices).map(|slice| {
        let from = draw.phase_result.begin + grid.slices(slice);
        let here = draw
            .phase_result
            .waits
            .iter()
            .filter(|wait| wait.at > from && wait.at <= from + grid.slice);
        ExtendedReal::new(here.map(|wait| wait.percent()).max_by(f64::total_cmp)?)
    });
    Timeline {
        labels,
        step_ms: grid.slice.0 as f64 / 1e6,
        start_s: 0.0,
        victim_p99_us: draw
            .evidence
            .p99_of_slice
            .iter()
            .map(|p99| ExtendedReal::new((*p99)? / 1e3))
            .collect(),
        goodput_mbps: draw
            .evidence
            .load_of_slice
            .iter()
            .map(|bytes| ExtendedReal::new(grid.megabits(*bytes)))
            .collect(),
        cpu_noise: noise.collect(),
        ideal_mbps: draw.fair_mbps.and_then(ExtendedReal::new),
        phases: vec![
            phase(labels::ISOLATED, windows.before),
            phase(labels::CONGESTED, windows.congested),
            phase(labels::ISOLATED, windows.after),
        ],
    }
}

/// Adds what the last queue takes away of what the first one causes.
fn scores(report: &mut Report, test: &CongestionSection, results: &[CaseResult<'_>]) {
    let [first, .., last] = &test.queues[..] else { return };
    for base in results
        .iter()
        .filter(|result| result.case.queue == first.as_str() && !result.is_control(test))
    {
        let twin = |other: &&CaseResult| {
            let (a, b) = (base.case, other.case);
            b.queue == last.as_str() && a == Case { queue: a.queue, ..b }
        };
        let Some(classed) = results.iter().find(twin) else { continue };
        for (i, quantile) in QUANTILES.into_iter().enumerate() {
            let pair = base.factors[i].as_ref().zip(classed.factors[i].as_ref());
            let Some(score) = pair.and_then(|(without, with)| without.ratio(with)) else {
                continue;
            };
            let mut figure =
                Figure::estimate("class_score", "x", &score.estimate(), 1.0, &bootstrap(test));
            figure.labels = labels_of(test, classed);
            report.figures.push(
                figure.with("base", first.as_str()).with(labels::QUANTILE, quantile.to_string()),
            );
        }
    }
}

/// Adds the class of victims and of congestors on each queue: what was asked for, what was seen.
fn class_table(report: &mut Report, test: &CongestionSection, results: &[CaseResult<'_>]) {
    for queue in &test.queues {
        let of_queue = || {
            results
                .iter()
                .filter(|result| result.case.queue == queue.as_str())
                .flat_map(|result| &result.draws)
        };
        if of_queue().next().is_none() {
            continue;
        }
        let mut marks: BTreeMap<(Class, Option<Class>), u64> = BTreeMap::new();
        for (mark, count) in of_queue().flat_map(|draw| &draw.evidence.marks) {
            *marks.entry(*mark).or_default() += count;
        }
        let mut classes = [test.victim_class, test.congestor_class]
            .map(|class| requested_class(queue, class))
            .to_vec();
        classes.dedup();
        for class in classes {
            let gap = of_queue().filter_map(|draw| draw.evidence.longest_gap.get(&class)).max();
            let mut row = ClassShare::from_marks(class, &marks);
            row.labels = Labels::from([(labels::QUEUE.to_owned(), queue.clone())]);
            row.starved_ms = gap.and_then(|gap| ExtendedReal::new(gap.0 as f64 / 1e6));
            if !report.shares.contains(&row) {
                report.shares.push(row);
            }
        }
    }
}

impl ClassShare {
    /// Creates a row that says what became of the mark of `class`.
    pub(super) fn from_marks(class: Class, marks: &BTreeMap<(Class, Option<Class>), u64>) -> Self {
        let of_class = || marks.iter().filter(|((asked, _), _)| *asked == class);
        let total: u64 = of_class().map(|(_, count)| count).sum();
        let kept = marks.get(&(class, Some(class))).copied().unwrap_or(0);
        let granted = match (total, kept) {
            (0, _) => "not seen".to_owned(),
            (total, kept) if total == kept => format!("{} seen", class.dscp().0),
            (total, kept) => format!("{} on {} %", class.dscp().0, kept * 100 / total),
        };
        Self {
            labels: Labels::new(),
            class: class.name().to_owned(),
            asked: class.dscp().0.to_string(),
            granted,
            configured: None,
            reached: None,
            starved_ms: None,
        }
    }
}

fn draws(
    report: &mut Report,
    test: &CongestionSection,
    order: &RunSpec<'_>,
    results: &[CaseResult<'_>],
) {
    for number in 0..test.draws {
        let mut cif = Vec::new();
        for result in results.iter().filter(|result| !result.is_control(test)) {
            let Some(draw) = result.draws.iter().find(|draw| draw.draw.number == number) else {
                continue;
            };
            let Some(factor) = draw.factor(P99) else { continue };
            let estimate = factor.estimate();
            let [value, low, high] =
                [estimate.value, estimate.low, estimate.high].map(ExtendedReal::new);
            let mut all = labels_of(test, result);
            all.insert(labels::QUANTILE.to_owned(), QUANTILES[P99].to_string());
            cif.push(DrawFactor {
                labels: all,
                value: value.unwrap_or(ExtendedReal::INFINITE),
                low,
                high,
            });
        }
        report.draws.push(Draw { draw: number, seed: order.scenario.seed, cif });
    }
}
