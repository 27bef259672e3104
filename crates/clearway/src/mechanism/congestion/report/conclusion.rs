//! The headings of the page: the present state and the remedy, in one sentence.

use super::super::names::{CIF, CLASS_SHARE, CLASS_SHARE_CONFIGURED, SLOWDOWN};
use crate::report::model::{ExtendedReal, Figure, Labels, PartVerdict, Report, RunOutcome, labels};
use crate::report::numerals::digits;

/// What runs of commands are called in labels: the command, and the network as it is.
pub(super) const PROGRAM: &str = "program";
const AS_IS: &str = "as-is";
/// The quantile that decides.
const DECIDES: &str = "p99";
/// The largest distance of a share from its promise, as a part of it, that is as promised.
const AS_PROMISED: f64 = 0.05;

/// Returns how much slower victims become on the judged queues, and which queue contains that; nothing
/// for a run that supports no judgement.
pub(super) fn impact(report: &Report) -> Option<String> {
    let verdict = report.verdict.as_ref().filter(|it| it.outcome != RunOutcome::Invalid)?;
    let of = |outcome| verdict.parts.iter().filter(move |part| part.outcome == outcome);
    let worst = |outcome| {
        let known =
            of(outcome).filter_map(|part| Some((part, factor(report, &part.labels)?.value)));
        known.max_by(|a, b| a.1.get().total_cmp(&b.1.get()))
    };
    let name = |part: &PartVerdict, key: &str| part.labels.get(key).cloned().unwrap_or_default();
    let queues = |part: &PartVerdict| match name(part, labels::QUEUE) {
        queue if queue.is_empty() || queue == AS_IS => String::new(),
        queue => format!("With {queue} queues "),
    };
    let is_program = |part: &PartVerdict, key| name(part, key) == PROGRAM;
    let congestors = |part: &PartVerdict| match name(part, labels::CONGESTOR) {
        of if of == PROGRAM => "the congestor command".to_owned(),
        congestor => congestor,
    };
    let Some((part, slowdown)) = worst(RunOutcome::Congested) else {
        let (part, slowdown) = worst(RunOutcome::Contained)?;
        let (queues, congestor) = (queues(part), congestors(part));
        if is_program(part, labels::VICTIM) {
            let times = digits(slowdown);
            let sentence = format!(
                "{queues}the program stays fast under {congestor}: it takes {times} times as long"
            );
            return Some(capital(&sentence));
        }
        let (victim, times) = (name(part, labels::VICTIM), times(slowdown));
        let limit = verdict.rules.iter().find(|rule| rule.name == "factor-max");
        let high = factor(report, &part.labels).and_then(|it| it.high);
        // The factor alone would not do.
        let rests_on_frames = high.zip(limit).is_some_and(|(high, rule)| high > rule.limit);
        let why = if rests_on_frames { ", less than full frames in service cost" } else { "" };
        let sentence = format!("{queues}{victim} stays fast under {congestor}: {times}{why}");
        return Some(capital(&sentence));
    };
    let (queue, congestor) = (queues(part), congestors(part));
    let state = match is_program(part, labels::VICTIM) {
        true if slowdown.is_finite() => {
            format!("{queue}the program takes {} times as long under {congestor}", digits(slowdown))
        }
        true => format!("{queue}the program does not end in its time under {congestor}"),
        false => {
            let victim = name(part, labels::VICTIM);
            format!("{queue}{victim} is {} under {congestor}", times(slowdown))
        }
    };
    let suffers =
        |queue: &str| of(RunOutcome::Congested).any(|it| name(it, labels::QUEUE) == queue);
    let mut remedies = of(RunOutcome::Contained).map(|it| name(it, labels::QUEUE));
    let remedy = remedies.rfind(|queue| !queue.is_empty() && !suffers(queue));
    let remedy = remedy.map_or_else(String::new, |queue| format!("; {queue} queues contain it"));
    Some(capital(&(state + &remedy)))
}

/// Returns the factor by which the part of `part` became slower.
fn factor<'a>(report: &'a Report, part: &Labels) -> Option<&'a Figure> {
    let is_of = |figure: &&Figure| {
        (figure.name == SLOWDOWN || figure.name == CIF)
            && figure.label(labels::QUANTILE).is_none_or(|quantile| quantile == DECIDES)
            && part.iter().all(|(key, value)| figure.label(key) == Some(value))
    };
    report.figures.iter().find(is_of)
}

fn times(slowdown: ExtendedReal) -> String {
    if slowdown.is_finite() {
        format!("{} times slower", digits(slowdown))
    } else {
        "infinitely slower".to_owned()
    }
}

fn capital(sentence: &str) -> String {
    let mut letters = sentence.chars();
    letters.next().map_or_else(String::new, |first| first.to_uppercase().chain(letters).collect())
}

/// Returns whether every class gets the share that its queue promises, else the one that is furthest
/// from it.
pub(super) fn shares(report: &Report) -> Option<String> {
    let named = |name: &'static str| report.figures.iter().filter(move |it| it.name == name);
    let pairs = named(CLASS_SHARE_CONFIGURED).filter_map(|promised| {
        let reached = named(CLASS_SHARE).find(|it| it.labels == promised.labels)?;
        Some((promised, promised.value.get(), reached.value.get()))
    });
    let distance = |(_, promised, reached): &(_, f64, f64)| (reached / promised - 1.0).abs();
    let worst = pairs.max_by(|a, b| distance(a).total_cmp(&distance(b)))?;
    let percent = |part: f64| digits(ExtendedReal::or_infinite(100.0 * part));
    let (figure, promised, reached) = worst;
    if distance(&worst) <= AS_PROMISED {
        let most = percent(distance(&worst));
        return Some(format!(
            "Every class gets the share that it is promised, within {most} % of it"
        ));
    }
    let of = |key| figure.label(key).unwrap_or_default();
    let (class, queue) = (of("class"), of(labels::QUEUE));
    let sentence = format!(
        "{class} gets {} % of the link, where {queue} promises {} %",
        percent(reached),
        percent(promised)
    );
    Some(capital(&sentence))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::report::model::{Verdict, VerdictRule};
    use crate::report::sample;

    /// A judged run: each part with its queue, outcome and factor.
    fn judged(outcome: RunOutcome, parts: &[(&str, RunOutcome, f64)]) -> Report {
        let mut report = sample::incast_demo();
        report.figures.clear();
        let labels_of = |queue: &str| {
            let all =
                [(labels::QUEUE, queue), (labels::VICTIM, "ping"), (labels::CONGESTOR, "incast")];
            all.into_iter()
                .map(|(key, value)| (key.to_owned(), value.to_owned()))
                .collect::<Labels>()
        };
        for (queue, _, factor) in parts {
            let figure = Figure::counted(CIF, "x", ExtendedReal::or_infinite(*factor), 1, "");
            let figure = Figure { labels: labels_of(queue), ..figure };
            report.figures.push(figure.clone().with(labels::QUANTILE, "p50"));
            report.figures.last_mut().expect("pushed").value = ExtendedReal::finite(9999.0);
            report.figures.push(figure.with(labels::QUANTILE, DECIDES));
        }
        let part = |(queue, outcome, _): &(&str, RunOutcome, f64)| PartVerdict {
            labels: labels_of(queue),
            outcome: *outcome,
            sentence: String::new(),
        };
        let parts = parts.iter().map(part).collect();
        let (sentence, reasons, rules) = (String::new(), Vec::new(), Vec::new());
        report.verdict = Some(Verdict { outcome, sentence, reasons, parts, rules });
        report
    }

    #[test]
    fn impact__names_the_worst_queue_and_the_one_that_contains_it() {
        use RunOutcome::{Congested, Contained, Invalid};
        let both = [("fifo", Congested, 580.5), ("strict", Contained, 1.02)];
        let concluded = |outcome, parts: &[_]| impact(&judged(outcome, parts));
        assert_eq!(
            concluded(Contained, &both).as_deref(),
            Some(
                "With fifo queues ping is 580 times slower under incast; strict queues contain it"
            )
        );
        assert_eq!(
            concluded(Congested, &[("fifo", Congested, f64::INFINITY), ("fifo", Contained, 1.0)])
                .as_deref(),
            Some("With fifo queues ping is infinitely slower under incast")
        );
        assert_eq!(
            concluded(Contained, &both[1..]).as_deref(),
            Some("With strict queues ping stays fast under incast: 1.02 times slower")
        );
        assert_eq!(concluded(Invalid, &both), None);
    }

    #[test]
    fn impact__says_when_frames_in_service_and_not_the_factor_decide() {
        let mut report = judged(RunOutcome::Contained, &[("strict", RunOutcome::Contained, 1.8)]);
        for figure in &mut report.figures {
            figure.high = Some(ExtendedReal::finite(2.1));
        }
        let limit = ExtendedReal::finite(1.5);
        let [name, unit, sentence] = ["factor-max", "x", ""].map(str::to_owned);
        let rules = vec![VerdictRule { name, limit, unit, sentence }];
        report.verdict.as_mut().expect("judged").rules = rules;
        assert_eq!(
            impact(&report).as_deref(),
            Some(
                "With strict queues ping stays fast under incast: 1.80 times slower, less than full frames in service cost"
            )
        );
    }

    #[test]
    fn impact__of_a_program_is_no_message() {
        let mut report = judged(RunOutcome::Contained, &[("as-is", RunOutcome::Contained, 0.93)]);
        let part = &mut report.verdict.as_mut().expect("judged").parts[0];
        for labels in [&mut part.labels]
            .into_iter()
            .chain(report.figures.iter_mut().map(|figure| &mut figure.labels))
        {
            for key in [labels::VICTIM, labels::CONGESTOR] {
                labels.insert(key.to_owned(), PROGRAM.to_owned());
            }
        }
        assert_eq!(
            impact(&report).as_deref(),
            Some("The program stays fast under the congestor command: it takes 0.93 times as long")
        );
    }

    #[test]
    fn shares__name_the_class_that_is_furthest_from_its_promise() {
        let mut report = sample::incast_demo();
        report.figures.clear();
        for (class, promised, reached) in [("bulk", 0.2, 0.2), ("scavenger", 0.1, 0.098)] {
            for (name, value) in [(CLASS_SHARE_CONFIGURED, promised), (CLASS_SHARE, reached)] {
                let figure = Figure::counted(name, "1", ExtendedReal::finite(value), 1, "");
                report.figures.push(figure.with("class", class).with(labels::QUEUE, "weighted"));
            }
        }
        let promised = "Every class gets the share that it is promised, within 2.00 % of it";
        assert_eq!(shares(&report).as_deref(), Some(promised));
        report.figures[1].value = ExtendedReal::finite(0.05);
        assert_eq!(
            shares(&report).as_deref(),
            Some("Bulk gets 5.00 % of the link, where weighted promises 20.0 %")
        );
    }
}
