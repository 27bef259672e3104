//! Writes what a run showed into its report: figures, charts, class table, verdict.
//!
//! # Invariants
//! I1. A figure's labels name it alone: a label is there whenever the run has more than one value of it.

use std::collections::BTreeMap;
use std::fs;

use clearway_lab::Outcome as PortOutcome;
use clearway_proto::base::{Class, Nanos};
use clearway_proto::congestion::{CongestorKind, Outcome, Rules, VictimKind};
use clearway_proto::stats::{Estimate, Resampled};

use super::Order;
use super::congestion::{CaseResult, DrawResult, judged_queue};
use super::evidence::{P99, QUANTILES, megabits};
use super::stage::Stage;
use super::windows::{SLICE, Window};
use crate::report::model::{
    self, ClassShare, Draw, DrawFactor, Figure, Heat, Host, Labels, PartVerdict, Phase, Real, Report, Rule, Scenario,
    Survival, Timeline, Verdict, labels, names,
};
use crate::scenario::Congestion;

/// What figures with an interval are made of.
const BOOTSTRAP: &str = "block bootstrap, 95 %, blocks of 100 ms";

/// A report with everything that is known before the first packet.
pub(super) fn opened(order: &Order<'_>, stage: &Stage) -> Report {
    let scenario = Scenario { name: order.scenario.name.clone(), text: order.text.to_owned() };
    let mut report = Report::new(std::env::args().collect(), "lab", scenario, order.scenario.seed);
    report.parameters = order.scenario.parameters(order.text, &order.flags);
    report.host = host();
    let hosts = stage.lab().hosts().len();
    let up = Real::finite(stage.up.as_secs_f64());
    let source = "time from nothing to a lab that carries packets";
    report.figures.push(Figure::counted("lab_up_seconds", "s", up, 1, source).with("hosts", hosts.to_string()));
    report
}

/// Adds what is known only at the end.
pub(super) fn close(report: &mut Report, stage: &Stage) {
    report.host.load_after = load_averages();
    for (queue, test) in &stage.self_tests {
        let passed = test.ports.iter().filter(|port| port.outcome == PortOutcome::Pass).count();
        let fact = format!("{passed} of {} ports proven in {}", test.ports.len(), test.took);
        report.host.facts.insert(format!("self-test {queue}"), fact);
        let unclear = test.ports.iter().filter(|port| port.outcome == PortOutcome::Inconclusive).count();
        if unclear > 0 {
            report.warnings.push(format!("the machine was too busy to prove {unclear} ports of the {queue} queues"));
        }
    }
    if let Ok(offloads) = stage.lab().offloads() {
        let real = offloads.iter().all(|offload| offload.gso_segments == Some(1));
        let fact = if real { "off: every packet is real" } else { "on: queues hold joined packets" };
        report.host.facts.insert("segmentation offload in the lab".into(), fact.into());
    }
    if stage.receive_overflow > 0 {
        let lost = stage.receive_overflow;
        report.warnings.push(format!("{lost} messages were lost in receivers' own socket buffers, not in the network"));
    }
}

/// A time in nanoseconds that may be infinite, for a person.
pub(super) fn duration(ns: f64) -> String {
    if ns.is_finite() { Nanos(ns.max(0.0) as u64).to_string() } else { "lost".to_owned() }
}

/// Figures, charts and verdict of the congestion test.
pub(super) fn congestion(
    report: &mut Report,
    test: &Congestion,
    order: &Order<'_>,
    results: &[CaseResult],
    stage: &Stage,
) {
    for result in results {
        figures(report, test, result);
        charts(report, test, result, stage);
    }
    scores(report, test, results);
    class_table(report, test, results);
    draws(report, test, order, results);
    report.verdict = verdict(test, &order.scenario.verdict, results);
}

/// The labels of a case; intensity only where a run has several.
fn labels_of(test: &Congestion, result: &CaseResult) -> Labels {
    let case = result.case;
    let mut all = Labels::from([
        (labels::QUEUE.to_owned(), case.queue.name().to_owned()),
        (labels::VICTIM.to_owned(), case.victim.name().to_owned()),
        (labels::CONGESTOR.to_owned(), case.congestor.name().to_owned()),
    ]);
    if test.intensity_percent.len() > 1 {
        all.insert("intensity".to_owned(), case.intensity.to_string());
    }
    all
}

fn phase_labels(test: &Congestion, result: &CaseResult, phase: &str) -> Labels {
    let mut all = labels_of(test, result);
    all.insert(labels::PHASE.to_owned(), phase.to_owned());
    all
}

/// Whether this case only proves the machine.
fn is_control(test: &Congestion, result: &CaseResult) -> bool {
    result.case.congestor == CongestorKind::None && !test.congestors.contains(&CongestorKind::None)
}

fn figures(report: &mut Report, test: &Congestion, result: &CaseResult) {
    let control = is_control(test, result);
    let of = |name: &str, unit: &str, estimate: &Estimate, scale: f64, labels: &Labels| {
        let mut figure = Figure::estimate(name, unit, estimate, scale, BOOTSTRAP);
        figure.labels.clone_from(labels);
        figure
    };
    for (i, quantile) in QUANTILES.into_iter().enumerate() {
        let phases = [(labels::ISOLATED, &result.isolated[i]), (labels::CONGESTED, &result.congested[i])];
        for (phase, resampled) in phases {
            let all = phase_labels(test, result, phase);
            let estimate = resampled.estimate();
            report
                .figures
                .push(of(names::LATENCY, "us", &estimate, 1e-3, &all).with(labels::QUANTILE, quantile.to_string()));
            if i == P99 && result.case.victim == VictimKind::Ping && !control {
                report.figures.push(of("victim_oneway_p99_us", "us", &estimate, 1e-3, &all));
            }
        }
        if let Some(factor) = &result.factors[i] {
            // The null control has a name of its own: it says something about the machine, not about the network.
            let name = if control { "null_control_factor" } else { names::CIF };
            let figure = of(name, "x", &factor.estimate(), 1.0, &labels_of(test, result));
            report.figures.push(figure.with(labels::QUANTILE, quantile.to_string()));
        }
    }
    counted(report, test, result);
}

/// Figures that are counted, not estimated.
fn counted(report: &mut Report, test: &Congestion, result: &CaseResult) {
    let mean = |pick: &dyn Fn(&DrawResult) -> Option<f64>| {
        let values: Vec<f64> = result.draws.iter().filter_map(pick).collect();
        (!values.is_empty()).then(|| values.iter().sum::<f64>() / values.len() as f64)
    };
    let draws = result.draws.len() as u64;
    let mut push = |name: &str, unit: &str, value: Option<f64>, source: &str, all: Labels| {
        if let Some(value) = value.and_then(Real::new) {
            let figure = Figure::counted(name, unit, value, draws, source);
            report.figures.push(Figure { labels: all, ..figure });
        }
    };
    let all = || labels_of(test, result);
    let loss = mean(&|draw| Some(draw.evidence.loss() * 100.0));
    push(names::LOSS, "%", loss, "sent and never received", phase_labels(test, result, labels::CONGESTED));
    let share = mean(&|draw| draw.evidence.congestor_share.map(|share| share * 100.0));
    push(names::GOODPUT_SHARE, "%", share, "load that arrived over its max-min fair rate", all());
    let delay = mean(&|draw| Some(draw.evidence.processor_delay.as_micros_f64()));
    push("processor_delay_p99_us", "us", delay, "real minus intended time of sends", all());
    push("resent_messages", "", mean(&|draw| Some(draw.evidence.resent as f64)), "counted by ranks", all());
    let withheld = mean(&|draw| Some(draw.evidence.withheld as f64));
    push("load_not_sent_bytes", "B", withheld, "load that was due and did not leave its host", all());
}

fn charts(report: &mut Report, test: &Congestion, result: &CaseResult, stage: &Stage) {
    // One draw is drawn: curves of several would hide each other. The spread has a chart of its own.
    let Some(first) = result.draws.first() else { return };
    if is_control(test, result) {
        return;
    }
    let evidence = &first.evidence;
    let isolated = phase_labels(test, result, labels::ISOLATED);
    let congested = phase_labels(test, result, labels::CONGESTED);
    report.survival.push(Survival::of(&evidence.isolated_times, isolated));
    report.survival.push(Survival::of(&evidence.congested_times, congested));
    report.timelines.push(timeline(labels_of(test, result), first));
    let hosts: Vec<String> = stage.lab().hosts().iter().map(|host| host.name.clone()).collect();
    let mut rows = vec![vec![None; hosts.len()]; hosts.len()];
    // Later draws add pairs; where two draws share one, the worse stays.
    for ((from, to), ratio) in result.draws.iter().flat_map(|draw| &draw.evidence.pair_ratios) {
        let Some(cell) = rows.get_mut(from.index()).and_then(|row: &mut Vec<Option<Real>>| row.get_mut(to.index()))
        else {
            continue;
        };
        let worse = cell.is_none_or(|known: Real| known.get() < *ratio);
        if worse {
            *cell = Real::new(*ratio);
        }
    }
    report.heat.push(Heat { labels: labels_of(test, result), ranks: hosts, rows });
}

fn timeline(labels: Labels, draw: &DrawResult) -> Timeline {
    let seconds = |slice: u32| SLICE.times(u64::from(slice)).as_secs_f64();
    let phase = |name: &str, window: Window| Phase {
        name: name.to_owned(),
        from_s: seconds(window.from),
        to_s: seconds(window.until),
    };
    let windows = &draw.windows;
    let slices = draw.evidence.p99_of_slice.len();
    let noise = (0..slices as u64).map(|slice| {
        let from = draw.sighting.begin + SLICE.times(slice);
        let here = |at: clearway_proto::base::LocalNs| at > from && at <= from + SLICE;
        let sample = draw.sighting.noise.iter().find(|sample| here(sample.at))?;
        Real::new(sample.pressure?.0 as f64 * 100.0 / (sample.length.0 as f64).max(1.0))
    });
    Timeline {
        labels,
        step_ms: SLICE.0 as f64 / 1e6,
        start_s: 0.0,
        victim_p99_us: draw.evidence.p99_of_slice.iter().map(|p99| Real::new((*p99)? / 1e3)).collect(),
        goodput_mbps: draw.evidence.load_of_slice.iter().map(|bytes| Real::new(megabits(*bytes))).collect(),
        cpu_noise: noise.collect(),
        ideal_mbps: draw.fair_mbps.and_then(Real::new),
        phases: vec![
            phase(labels::ISOLATED, windows.before),
            phase(labels::CONGESTED, windows.congested),
            phase(labels::ISOLATED, windows.after),
        ],
    }
}

/// What the last queue takes away of what the first one causes.
fn scores(report: &mut Report, test: &Congestion, results: &[CaseResult]) {
    let [first, .., last] = test.queues[..] else { return };
    for base in results.iter().filter(|result| result.case.queue == first && !is_control(test, result)) {
        let twin = |other: &&CaseResult| {
            let (a, b) = (base.case, other.case);
            b.queue == last && (a.victim, a.congestor, a.intensity) == (b.victim, b.congestor, b.intensity)
        };
        let Some(classed) = results.iter().find(twin) else { continue };
        for (i, quantile) in QUANTILES.into_iter().enumerate() {
            let pair = base.factors[i].as_ref().zip(classed.factors[i].as_ref());
            let Some(score) = pair.and_then(|(without, with)| without.ratio(with)) else { continue };
            let mut figure = Figure::estimate("class_score", "x", &score.estimate(), 1.0, BOOTSTRAP);
            figure.labels = labels_of(test, classed);
            report.figures.push(figure.with("base", first.name()).with(labels::QUANTILE, quantile.to_string()));
        }
    }
}

/// The class of victims and of congestors on each queue: what was asked for, what was seen.
fn class_table(report: &mut Report, test: &Congestion, results: &[CaseResult]) {
    for queue in &test.queues {
        let of_queue = || results.iter().filter(|result| result.case.queue == *queue).flat_map(|result| &result.draws);
        let mut marks: BTreeMap<(Class, Option<Class>), u64> = BTreeMap::new();
        for (mark, count) in of_queue().flat_map(|draw| &draw.evidence.marks) {
            *marks.entry(*mark).or_default() += count;
        }
        for class in [test.victim_class, test.congestor_class] {
            let gap = of_queue().filter_map(|draw| draw.evidence.longest_gap.get(&class)).max();
            let mut row = ClassShare::seen(class, &marks);
            row.labels = Labels::from([(labels::QUEUE.to_owned(), queue.name().to_owned())]);
            row.starved_ms = gap.and_then(|gap| Real::new(gap.0 as f64 / 1e6));
            if !report.shares.contains(&row) {
                report.shares.push(row);
            }
        }
    }
}

impl ClassShare {
    /// A row that says what became of the mark of `class`.
    pub(super) fn seen(class: Class, marks: &BTreeMap<(Class, Option<Class>), u64>) -> Self {
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

fn draws(report: &mut Report, test: &Congestion, order: &Order<'_>, results: &[CaseResult]) {
    for number in 0..test.draws {
        let mut cif = Vec::new();
        for result in results.iter().filter(|result| !is_control(test, result)) {
            let Some(draw) = result.draws.iter().find(|draw| draw.draw.number == number) else { continue };
            let Some(factor) = draw.factor(P99) else { continue };
            let estimate = factor.estimate();
            let [value, low, high] = [estimate.value, estimate.low, estimate.high].map(Real::new);
            let mut all = labels_of(test, result);
            all.insert(labels::QUANTILE.to_owned(), QUANTILES[P99].to_string());
            cif.push(DrawFactor { labels: all, value: value.unwrap_or(Real::INFINITE), low, high });
        }
        report.draws.push(Draw { draw: number, seed: order.scenario.seed, cif });
    }
}

/// The verdict of the run: that of the last queue, unless some part of it allows no statement.
fn verdict(test: &Congestion, rules: &Rules, results: &[CaseResult]) -> Option<Verdict> {
    let judged = judged_queue(test)?;
    let mut parts = Vec::new();
    let mut worst: BTreeMap<&str, Outcome> = BTreeMap::new();
    for result in results.iter().filter(|result| !is_control(test, result)) {
        let Some(verdict) = &result.verdict else { continue };
        let outcome = worst.entry(result.case.queue.name()).or_insert(Outcome::Contained);
        *outcome = (*outcome).max(verdict.outcome);
        let sentence = verdict.reasons.join("; ");
        parts.push(PartVerdict { labels: labels_of(test, result), outcome: word(verdict.outcome), sentence });
    }
    let invalid = worst.values().any(|outcome| *outcome == Outcome::Invalid);
    let outcome = if invalid { Outcome::Invalid } else { *worst.get(judged.name())? };
    let sentence = sentence(test, results, &worst, outcome);
    Some(Verdict { outcome: word(outcome), sentence, reasons: Vec::new(), parts, rules: rules_in_force(rules) })
}

fn word(outcome: Outcome) -> model::Outcome {
    match outcome {
        Outcome::Contained => model::Outcome::Contained,
        Outcome::Congested => model::Outcome::Congested,
        Outcome::Invalid => model::Outcome::Invalid,
    }
}

/// The one sentence that a hurried reader takes along.
fn sentence(test: &Congestion, results: &[CaseResult], worst: &BTreeMap<&str, Outcome>, outcome: Outcome) -> String {
    if outcome == Outcome::Invalid {
        let why = results.iter().filter_map(|result| Some((result.case, result.verdict.as_ref()?)));
        let first = why.into_iter().find(|(_, verdict)| verdict.outcome == Outcome::Invalid);
        let reason =
            first.map_or_else(String::new, |(case, verdict)| format!(" {case}: {}.", verdict.reasons.join("; ")));
        return format!("This run allows no statement.{reason}");
    }
    let of_queue = |name: &&str| {
        let worst_case = results
            .iter()
            .filter(|result| result.case.queue.name() == *name && result.verdict.is_some() && !is_control(test, result))
            .max_by(|a, b| value(&a.factors[P99]).total_cmp(&value(&b.factors[P99])));
        let outcome = worst.get(name).copied().unwrap_or(Outcome::Invalid);
        worst_case.map(|result| {
            let [isolated, congested] =
                [&result.isolated, &result.congested].map(|all| duration(all[P99].estimate().value));
            let (queue, victim, congestor) = (name, result.case.victim.name(), result.case.congestor.name());
            format!(
                "with {queue} queues {outcome}: {congestor} moves the p99 of {victim} from {isolated} to {congested}"
            )
        })
    };
    let queues: Vec<&str> = test.queues.iter().map(|queue| queue.name()).collect();
    let text = queues.iter().filter_map(of_queue).collect::<Vec<_>>().join("; ");
    let mut letters = text.chars();
    letters.next().map_or_else(String::new, |first| format!("{}{}.", first.to_uppercase(), letters.as_str()))
}

fn value(factor: &Option<Resampled>) -> f64 {
    factor.as_ref().map_or(f64::INFINITY, |factor| factor.estimate().value)
}

fn rules_in_force(rules: &Rules) -> Vec<Rule> {
    let rule = |name: &str, limit: f64, unit: &str, sentence: &str| Rule {
        name: name.to_owned(),
        limit: Real::new(limit).unwrap_or(Real::INFINITE),
        unit: unit.to_owned(),
        sentence: sentence.to_owned(),
    };
    vec![
        rule(
            "factor-max",
            rules.factor_max,
            "x",
            "upper end of the impact factor on p99 that still counts as contained",
        ),
        rule("null-low", rules.null_low, "x", "lower limit of the null control's interval"),
        rule("null-high", rules.null_high, "x", "upper limit of the null control's interval"),
        rule(
            "congestor-share-min",
            rules.congestor_share_min,
            "",
            "part of their fair rate that congestors must reach",
        ),
        rule("overload-min", rules.overload_min, "", "offered part of the fullest link that victims use"),
        rule("noise-ratio", rules.noise_ratio, "x", "excess of p99 over what processors alone delay"),
    ]
}

/// This machine.
fn host() -> Host {
    let read = |path: &str| fs::read_to_string(path).unwrap_or_default().trim().to_owned();
    let memory_kib = read("/proc/meminfo")
        .lines()
        .find_map(|line| line.strip_prefix("MemTotal:")?.trim().strip_suffix("kB")?.trim().parse::<u64>().ok());
    let under_hypervisor =
        read("/proc/cpuinfo").lines().any(|line| line.starts_with("flags") && line.contains(" hypervisor"));
    Host {
        kernel: read("/proc/sys/kernel/osrelease"),
        cpus: std::thread::available_parallelism().map_or(0, |n| n.get() as u32),
        memory_bytes: memory_kib.unwrap_or(0) * 1024,
        load_before: load_averages(),
        load_after: None,
        hypervisor: under_hypervisor.then(|| "yes".to_owned()),
        facts: BTreeMap::new(),
    }
}

fn load_averages() -> Option<[f64; 3]> {
    let text = fs::read_to_string("/proc/loadavg").ok()?;
    let mut numbers = text.split_whitespace().map_while(|word| word.parse().ok());
    Some([numbers.next()?, numbers.next()?, numbers.next()?])
}
