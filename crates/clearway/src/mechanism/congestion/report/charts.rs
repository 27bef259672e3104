//! The places that the page's script fills with charts, each with the sentence that says what to
//! see.

use std::fmt::Write;

use super::super::names;
use super::{conclusion, heat, tables};
use crate::report::html::drawing::{ALONG, figure, legend, pairs, sample};
use crate::report::html::tables::number;
use crate::report::html::{queue_class, section, text};
use crate::report::model::{
    ExtendedReal, HeatMap, Labels, Report, SurvivalCurve, Timeline, labels,
};
use crate::report::title::title_of;

/// Fewer pairs are a list: a map of them is mostly empty.
const MAP_MIN: usize = 5;

/// Returns the place of one chart over `items` of a list of the report, below what its lines are
/// called.
fn chart(kind: &str, items: &[usize], title: &str, legend: &str, caption: &str) -> String {
    let items = items.iter().map(usize::to_string).collect::<Vec<_>>().join(",");
    let title = text(if title.is_empty() { "All messages" } else { title });
    let place = format!(
        "<div class=\"chart\" data-kind=\"{kind}\" data-items=\"{items}\" role=\"img\" aria-label=\"{title}. {caption}\"></div>\n\
         <p class=\"readout\" aria-hidden=\"true\"></p>\n"
    );
    figure(&title, legend, &place, caption)
}

/// Returns labels without those that one chart lays over each other.
fn group_of(all: &Labels) -> Labels {
    let laid_over = [labels::QUEUE, labels::PHASE, labels::QUANTILE];
    all.iter()
        .filter(|(key, _)| !laid_over.contains(&key.as_str()))
        .map(|(k, v)| (k.clone(), v.clone()))
        .collect()
}

/// Returns the places in `all` by group, in order of appearance.
fn grouped<'a>(all: impl Iterator<Item = &'a Labels>) -> Vec<(Labels, Vec<usize>)> {
    let mut groups: Vec<(Labels, Vec<usize>)> = Vec::new();
    for (i, one) in all.enumerate() {
        let group = group_of(one);
        match groups.iter_mut().find(|(known, _)| *known == group) {
            Some((_, items)) => items.push(i),
            None => groups.push((group, vec![i])),
        }
    }
    groups
}

/// Title, lead and caption of the curves of messages, and of runs of a program.
const MESSAGES: [&str; 3] = [
    "How long messages take",
    "For every latency, the share of messages that took longer. Both scales are logarithmic: each step down is ten times rarer.",
    "The further a solid line lies to the right of its dashed one, the more the queue costs; \
     a line that stays level up to the right edge stands for messages that never came back.",
];
const RUNS: [&str; 3] = [
    "How long runs of the program take",
    "For every time, the share of runs that took longer. Both scales are logarithmic: each step down is ten times rarer.",
    "The further a solid line lies to the right of its dashed one, the more congestors cost; \
     a line that stays level up to the right edge stands for runs that did not end in their time.",
];

/// Draws survival curves: queues and phases over each other.
pub(super) fn survival(report: &Report, queues: &[String]) -> String {
    let is_of_program = |curve: &SurvivalCurve| {
        let victim = curve.labels.get(labels::VICTIM).map(String::as_str);
        victim == Some(conclusion::PROGRAM)
    };
    let [title, lead, caption] = match report.survival.iter().all(is_of_program) {
        true => RUNS,
        false => MESSAGES,
    };
    let groups = grouped(report.survival.iter().map(|curve| &curve.labels));
    let one = |(group, items): &(Labels, Vec<usize>)| {
        let curves = items.iter().filter_map(|i| report.survival.get(*i));
        let legend = legend(curves.map(|curve| legend_entry(report, curve, queues)));
        chart("survival", items, &title_of(group), &legend, caption)
    };
    let body: String = groups.iter().map(one).collect();
    section("survival", title, lead, &body)
}

/// Returns a sample of a curve's line, as the script draws it, and its name; lost messages are
/// named here because the line only ends.
fn legend_entry(report: &Report, curve: &SurvivalCurve, queues: &[String]) -> String {
    let of = |key: &str| curve.labels.get(key).map_or("", String::as_str);
    let (queue, phase) = (of(labels::QUEUE), of(labels::PHASE));
    let dashed = if phase == labels::ISOLATED { " dashed" } else { "" };
    let name =
        [queue, phase].into_iter().filter(|word| !word.is_empty()).collect::<Vec<_>>().join(", ");
    let name = if name.is_empty() { "all messages".to_owned() } else { text(&name) };
    // The curve is of one draw, and the table of all: where the table tells what was lost, so does
    // this.
    let percent = report
        .figures
        .iter()
        .find(|figure| figure.name == names::LOSS && figure.labels == curve.labels);
    let percent = percent.map(|figure| figure.value);
    let lost = match (curve.points.last(), percent) {
        (None, _) => ": nothing measured".to_owned(),
        (Some((_, lost)), percent) => percent
            .or_else(|| ExtendedReal::new(lost * 100.0))
            .filter(|percent| percent.get() > 0.0)
            .map_or_else(String::new, |percent| format!(": {}\u{202f}% lost", number(percent))),
    };
    let class = format!("curve{dashed} {}", queue_class(queue, queues));
    sample(ALONG, &class, &format!("{name}{lost}"))
}

/// Draws timelines: victim above, congestor and processors below.
pub(super) fn timelines(report: &Report) -> String {
    let caption = "Top: p99 of the victim in each step, logarithmic; a triangle marks steps whose p99 was lost. Middle: what the congestor delivered. \
                   Bottom, where the machine is real: how long the run itself waited for a processor; a peak that stands below a victim's peak makes that peak doubtful.";
    let one = |(i, timeline): (usize, &Timeline)| {
        chart("timeline", &[i], &title_of(&timeline.labels), "", caption)
    };
    let body: String = report.timelines.iter().enumerate().map(one).collect();
    section(
        "timeline",
        "What happened when",
        "The victim first alone, then under load, then alone again.",
        &body,
    )
}

/// Draws heat maps with the hosts and pairs that stand out by name.
pub(super) fn heat(report: &Report) -> String {
    let caption = "Rows send, columns receive. All maps share one logarithmic scale from the 5 % to the 95 % quantile of all pairs, so that a single pair cannot hide the others.";
    let mut body = String::new();
    for (i, map) in report.heat.iter().enumerate() {
        let measured = heat::measured(map);
        if measured.len() < MAP_MIN {
            let _ =
                writeln!(body, "<div>{}</div>", tables::pairs(&title_of(&map.labels), &measured));
        } else {
            let map_of_pairs = chart("heat", &[i], &title_of(&map.labels), "", caption);
            let _ = writeln!(body, "<div>{map_of_pairs}{}</div>", standouts(map, &measured));
        }
    }
    let lead = "p99 of the victim between each two hosts, congested over isolated.";
    section("heat", "Which pairs suffer", lead, &pairs("", &body))
}

/// Returns what stands out by name; when nothing does and yet pairs differ, from where to where
/// they reach.
fn standouts(map: &HeatMap, pairs: &[heat::MeasuredPair<'_>]) -> String {
    let found = heat::standouts(map);
    let times = |value: f64| {
        ExtendedReal::new(value).map_or_else(String::new, |real| format!("{}\u{d7}", number(real)))
    };
    let mut items = Vec::new();
    for host in &found.receivers {
        items.push(format!(
            "<li>All messages <b>to {}</b>: {} in the median.</li>\n",
            text(host.name),
            times(host.median)
        ));
    }
    for host in &found.senders {
        items.push(format!(
            "<li>All messages <b>from {}</b>: {} in the median.</li>\n",
            text(host.name),
            times(host.median)
        ));
    }
    for pair in &found.pairs {
        let (from, to) = (text(pair.from), text(pair.to));
        items.push(format!(
            "<li><b>{from} to {to}</b>: {}, where others suggest {}.</li>\n",
            times(pair.value),
            times(pair.expected)
        ));
    }
    if items.is_empty() {
        return format!("<p class=\"standouts\">{}</p>\n", no_standout(pairs));
    }
    format!("<div class=\"standouts\"><p>Standing out:</p><ul>\n{}</ul></div>\n", items.concat())
}

fn no_standout(pairs: &[heat::MeasuredPair<'_>]) -> String {
    let side = |pair: &heat::MeasuredPair<'_>| {
        format!("{}\u{d7} ({} to {})", number(pair.value), text(pair.from), text(pair.to))
    };
    match (pairs.last(), pairs.first()) {
        (Some(fastest), Some(slowest)) if !heat::is_even(pairs) => {
            format!(
                "Pairs reach from {} to {}; no single host or pair explains that.",
                side(fastest),
                side(slowest)
            )
        }
        _ => "No host and no pair stands out.".to_owned(),
    }
}

/// Returns the spread between draws; a single draw has none.
pub(super) fn draws(report: &Report) -> String {
    if report.draws.len() < 2 {
        return String::new();
    }
    let caption = "Each dot is one random choice of hosts with its own 95 % interval; the dashed line is the median. \
                   Dots that lie apart by more than their intervals differ by the choice of hosts alone.";
    section(
        "draws",
        "How much the choice of hosts changes",
        "",
        &chart("draws", &[], "Times slower in each draw", "", caption),
    )
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::report::model::Figure;

    #[test]
    fn legend__tells_the_loss_of_the_table_and_not_that_of_one_draw() {
        let labels = Labels::from(
            [(labels::QUEUE, "fifo"), (labels::PHASE, "congested")]
                .map(|(k, v)| (k.into(), v.into())),
        );
        let curve =
            SurvivalCurve { labels: labels.clone(), points: vec![(1.0, 0.5), (9.0, 0.108)] };
        let mut report = crate::report::sample::incast_demo();
        report.figures = Vec::new();
        assert!(legend_entry(&report, &curve, &[]).contains("fifo, congested: 10.8\u{202f}% lost"));
        let figure = Figure::counted(names::LOSS, "%", ExtendedReal::finite(8.6), 3, "");
        report.figures = vec![Figure { labels, ..figure }];
        assert!(legend_entry(&report, &curve, &[]).contains("fifo, congested: 8.60\u{202f}% lost"));
    }
}
