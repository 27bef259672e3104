//! What programs did, as figures, verdict and curves of a report.

use clearway_proto::congestion::{CongestorKind, Figure as Wanted, NetworkOutcome, Rules};
use clearway_proto::stats::Histogram;

use super::super::names;
use super::super::report::programs::{FIGURE, RATE};
use super::{ProgramCaseResult, Programs};
use crate::mechanism::congestion::CongestionSection;
use crate::mechanism::congestion::judgement::{duration, next_steps, outcome_word, rule};
use crate::report::model::{
    ExtendedReal, Figure, Labels, Parameter, ParameterOrigin, PartVerdict, Report, SurvivalCurve,
    Verdict, labels,
};
use crate::report::numerals::digits;

/// How medians and their intervals were obtained.
const EXACT: &str = "median over pairs, exact interval of the sign test";
/// The name of a program in labels: its command line stands among the parameters.
const PROGRAM: &str = "program";

/// Returns the last number above zero of a line; a unit may be attached to it.
pub(crate) fn last_number(line: &str) -> Option<f64> {
    let number = |word: &str| {
        let end =
            word.find(|c: char| !(c.is_ascii_digit() || ".eE+-".contains(c))).unwrap_or(word.len());
        let (digits, rest) = word.split_at(end);
        // `1,234` is not one.
        let digits = if rest.starts_with(',') && rest.len() > 1 {
            ""
        } else {
            digits.trim_end_matches(['e', 'E', '+', '-'])
        };
        digits.parse::<f64>().ok().filter(|number| number.is_finite() && *number > 0.0)
    };
    line.split_whitespace().rev().find_map(number)
}

/// Returns one case in a line for a person.
pub(crate) fn sentence(found: &ProgramCaseResult, figure: Wanted) -> String {
    let [alone, loaded] = found.medians.map(|median| shown(median.value, figure));
    let (queue, congestor, outcome) = (&found.queue, named(found.congestor), found.verdict.outcome);
    let (value, low, high) = (found.slowdown.value, found.slowdown.low, found.slowdown.high);
    format!(
        "{queue}: program under {congestor}: {alone} -> {loaded}, {value:.2} times [{low:.2}..{high:.2}]  {outcome}"
    )
}

fn shown(value: f64, figure: Wanted) -> String {
    match figure {
        Wanted::Wall if value.is_finite() => duration(value),
        Wanted::Time | Wanted::Rate if value.is_finite() => digits(ExtendedReal::finite(value)),
        _ => "no end".to_owned(),
    }
}

/// Returns who congests, for a person.
fn named(congestor: CongestorKind) -> &'static str {
    if congestor == CongestorKind::Program { "the congestor command" } else { congestor.name() }
}

/// Writes `found` into `report`.
pub(crate) fn write(
    report: &mut Report,
    programs: &Programs,
    test: &CongestionSection,
    rules: &Rules,
    found: &[ProgramCaseResult],
) {
    report.parameters.extend(in_force(programs));
    for it in found {
        figures(report, programs, test, it);
        if programs.figure == Wanted::Wall {
            curves(report, test, it);
        }
    }
    report.verdict = verdict(test, programs, rules, found);
}

fn labels_of(test: &CongestionSection, found: &ProgramCaseResult) -> Labels {
    let all = [
        (labels::QUEUE, found.queue.as_str()),
        (labels::VICTIM, PROGRAM),
        (labels::CONGESTOR, found.congestor.name()),
    ];
    let mut all: Labels = all.map(|(key, value)| (key.to_owned(), value.to_owned())).into();
    if test.intensity_percent.len() > 1 {
        all.insert(labels::INTENSITY.to_owned(), found.intensity.to_string());
    }
    if test.bursts.len() > 1 {
        all.insert(labels::BURSTS.to_owned(), found.bursts.to_string());
    }
    all
}

fn figures(
    report: &mut Report,
    programs: &Programs,
    test: &CongestionSection,
    found: &ProgramCaseResult,
) {
    let (unit, scale) = if programs.figure == Wanted::Wall { ("ms", 1e-6) } else { ("", 1.0) };
    for (phase, median) in [labels::ISOLATED, labels::CONGESTED].into_iter().zip(&found.medians) {
        let figure = Figure::estimate(names::PROGRAM, unit, median, scale, EXACT);
        let figure = Figure { labels: labels_of(test, found), ..figure };
        report.figures.push(figure.with(labels::PHASE, phase));
    }
    let slowdown = Figure::estimate(names::SLOWDOWN, "x", &found.slowdown, 1.0, EXACT);
    report.figures.push(Figure { labels: labels_of(test, found), ..slowdown });
    if let Some(share) = found.congestor_share.and_then(|share| ExtendedReal::new(share * 100.0)) {
        let source =
            "load that arrived during a run over its max-min fair rate, the least of all runs";
        let share =
            Figure::counted(names::GOODPUT_SHARE, "%", share, found.slowdown.samples, source);
        report.figures.push(Figure { labels: labels_of(test, found), ..share });
    }
}

/// Adds how many runs took longer than a time.
fn curves(report: &mut Report, test: &CongestionSection, found: &ProgramCaseResult) {
    for (phase, runs) in [labels::ISOLATED, labels::CONGESTED].into_iter().zip(&found.runs) {
        let mut times = Histogram::new();
        for run in runs {
            if run.is_finite() { times.record(*run as u64) } else { times.record_infinite(1) }
        }
        let mut all = labels_of(test, found);
        all.insert(labels::PHASE.to_owned(), phase.to_owned());
        report.survival.push(SurvivalCurve::from_histogram(&times, all));
    }
}

fn in_force(programs: &Programs) -> Vec<Parameter> {
    let Programs { victim, congestor, figure, pairs, limit } = programs;
    let figure = match figure {
        Wanted::Wall => "wall",
        Wanted::Time => "time",
        Wanted::Rate => RATE,
    };
    let parameter = |name: &str, value: &str| Parameter {
        name: name.to_owned(),
        value: value.to_owned(),
        unit: String::new(),
        origin: ParameterOrigin::Flag,
    };
    let commands = [("program.victim-cmd", victim), ("program.congestor-cmd", congestor)];
    let commands = commands
        .into_iter()
        .filter_map(|(name, command)| Some(parameter(name, command.as_deref()?)));
    let rest = [
        (FIGURE, figure.to_owned()),
        ("program.pairs", pairs.to_string()),
        ("program.victim-limit", limit.to_string()),
    ];
    let rest = rest.iter().filter(|_| victim.is_some()).map(|(name, value)| parameter(name, value));
    commands.chain(rest).collect()
}

fn verdict(
    test: &CongestionSection,
    programs: &Programs,
    rules: &Rules,
    found: &[ProgramCaseResult],
) -> Option<Verdict> {
    let outcome = super::outcome(found)?;
    let part = |it: &ProgramCaseResult| PartVerdict {
        labels: labels_of(test, it),
        outcome: outcome_word(it.verdict.outcome),
        sentence: it.verdict.reasons.join("; "),
    };
    let worst = found.iter().filter(|it| it.verdict.outcome == outcome);
    let worst = worst.max_by(|a, b| a.slowdown.value.total_cmp(&b.slowdown.value))?;
    let of_pairs = format!("{} pairs of runs", worst.slowdown.samples);
    let sentence = match outcome {
        NetworkOutcome::Invalid => {
            format!(
                "This run allows no statement. {}: {}.",
                worst.queue,
                worst.verdict.reasons.join("; ")
            )
        }
        _ => {
            let [alone, loaded] = worst.medians.map(|median| shown(median.value, programs.figure));
            let (congestor, value) = (named(worst.congestor), worst.slowdown.value);
            format!(
                "The program goes from {alone} to {loaded} under {congestor}, {value:.2} times, by {of_pairs}."
            )
        }
    };
    let rules = vec![
        rule(
            "slowdown-max",
            rules.slowdown_max,
            "x",
            "upper end of the slowdown that still counts as contained",
        ),
        rule(
            "congestor-share-min",
            rules.congestor_share_min,
            "",
            "part of their fair rate that congestors must reach",
        ),
    ];
    let parts = found.iter().map(part).collect();
    let reasons = next_steps(found.iter().map(|it| &it.verdict));
    Some(Verdict { outcome: outcome_word(outcome), sentence, reasons, parts, rules })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn last_number__is_the_last_of_the_line_with_or_without_a_unit() {
        for (line, expected) in [
            ("8               12.75", Some(12.75)),
            ("[  5]  0.00-10.00 sec  110 MBytes  92.3Mbits/sec  receiver", Some(92.3)),
            ("took 1e3us", Some(1e3)),
            ("latency: 4.5us, all well", Some(4.5)),
            ("1,234", None),
            ("done", None),
            ("errors: 0", None),
            ("", None),
            ("nan inf 1e999", None),
        ] {
            assert_eq!(last_number(line), expected, "{line}");
        }
    }
}
