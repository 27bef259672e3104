//! The test on a terminal.

use super::StagingNoise;
use super::figures::{
    BANDWIDTH, BLOCKED, BLOCKED_RATIO, LESS_TIME, MORE_BANDWIDTH, NOISE, OVERLAP, P99, PUBLISHED,
    QUEUE, TEST, TIME, WHAT, WRITTEN,
};
use super::section::StagingTest;
use super::simulated::NoiseKind;
use crate::report::model::{Figure, Report};
use crate::report::numerals::digits;
use crate::report::present::{Presenter, WorseDirection};

impl Presenter for StagingNoise {
    fn tables(&self, report: &Report) -> Vec<Vec<String>> {
        vec![measured(report), gains(report), checkpoints(report)]
    }

    fn conclusion(&self, report: &Report) -> Option<String> {
        conclusion(&report.figures)
    }

    fn worsens(&self, figure: &Figure, _report: &Report) -> Option<WorseDirection> {
        match figure.name.as_str() {
            TIME | P99 | BLOCKED | OVERLAP => Some(WorseDirection::Up),
            BANDWIDTH | BLOCKED_RATIO => Some(WorseDirection::Down),
            _ => None,
        }
    }
}

fn label<'a>(figure: &'a Figure, name: &str) -> &'a str {
    figure.labels.get(name).map_or("", String::as_str)
}

fn named<'a>(report: &'a Report, name: &'static str) -> impl Iterator<Item = &'a Figure> {
    among(&report.figures, name)
}

fn among<'a>(figures: &'a [Figure], name: &'static str) -> impl Iterator<Item = &'a Figure> {
    figures.iter().filter(move |it| it.name == name)
}

/// Says how checkpoints and applications fare, where there are checkpoints; else what queues give back.
fn conclusion(figures: &[Figure]) -> Option<String> {
    let parts = [blocked(figures), overlapped(figures)];
    let parts: Vec<String> = parts.into_iter().flatten().collect();
    if parts.is_empty() { gained(figures) } else { Some(parts.join("; ")) }
}

/// Returns a line for each case on each queue, quiet and with writers.
fn measured(report: &Report) -> Vec<String> {
    let mut lines = Vec::new();
    for time in named(report, TIME) {
        if lines.is_empty() {
            let titles = ["mean us", "p99 us", "MB/s", "written MB/s"];
            lines.push(line("queue", "test", "of", "with", titles.map(str::to_owned)));
        }
        let same = |name| {
            named(report, name).find(|it| it.labels == time.labels).map_or(String::new(), number)
        };
        let [queue, test, what, noise] = [QUEUE, TEST, WHAT, NOISE].map(|name| label(time, name));
        let numbers = [number(time), same(P99), same(BANDWIDTH), same(WRITTEN)];
        lines.push(line(queue, test, what, noise, numbers));
    }
    lines
}

/// Returns what other queues give back, and what was published of it.
fn gains(report: &Report) -> Vec<String> {
    let published = |figure: &Figure| {
        let is_same = |it: &&Figure| {
            label(it, TEST) == label(figure, TEST) && label(it, WHAT) == label(figure, WHAT)
        };
        named(report, PUBLISHED)
            .find(is_same)
            .map_or(String::new(), |it| format!(" (the study: {:.0})", it.value.get()))
    };
    let sentence = |figure: &Figure, words: &str| {
        let [queue, test, what] = [QUEUE, TEST, WHAT].map(|name| label(figure, name));
        let case = format!("{test} {what}");
        format!("{queue}, {}: {} {words}{}", case.trim_end(), number(figure), published(figure))
    };
    let times = named(report, LESS_TIME).map(|it| sentence(it, "us less with writers"));
    let rates = named(report, MORE_BANDWIDTH).map(|it| sentence(it, "MB/s more with writers"));
    times.chain(rates).collect()
}

/// Returns how long checkpoints block their application, and how long applications run next to
/// them.
fn checkpoints(report: &Report) -> Vec<String> {
    let mut lines = Vec::new();
    for blocked in named(report, BLOCKED) {
        let [queue, what, noise] = [QUEUE, WHAT, NOISE].map(|name| label(blocked, name));
        let is_same = |it: &&Figure| label(it, QUEUE) == queue && label(it, WHAT) == what;
        let ratio = named(report, BLOCKED_RATIO)
            .find(is_same)
            .filter(|_| noise == NoiseKind::Staged.name())
            .map_or(String::new(), |it| format!(", direct over staged {}", number(it)));
        let time = number(blocked);
        lines.push(format!("{queue}, checkpoint, store {what}: {noise} blocks {time} ms{ratio}"));
    }
    lines.extend(named(report, OVERLAP).map(|figure| {
        let [queue, what, noise] = [QUEUE, WHAT, NOISE].map(|name| label(figure, name));
        let times = format!("{:.4}", figure.value.get());
        format!("{queue}, {what} with {noise}: {times} times as long as without a checkpoint")
    }));
    lines
}

/// Says how many times longer a checkpoint blocks its application without servers, at the middle one
/// of the ratios.
fn blocked(figures: &[Figure]) -> Option<String> {
    let small_first = |a: &&Figure, b: &&Figure| a.value.get().total_cmp(&b.value.get());
    let mut ratios: Vec<&Figure> =
        among(figures, BLOCKED_RATIO).filter(|it| !label(it, WHAT).contains(',')).collect();
    ratios.sort_by(small_first);
    let ratio = ratios.get(ratios.len() / 2)?;
    let study = among(figures, PUBLISHED)
        .find(|it| label(it, TEST) == StagingTest::Checkpoint.name())
        .map_or(String::new(), |it| format!(" (the study: {})", digits(it.value)));
    let (times, store) = (digits(ratio.value), label(ratio, WHAT));
    Some(format!(
        "A checkpoint blocks its application {times} times longer without servers{study} at {store} of the store"
    ))
}

/// Says how long applications run during a drain on each queue: the longest of them.
fn overlapped(figures: &[Figure]) -> Option<String> {
    let mut longest: Vec<(&str, f64)> = Vec::new();
    for figure in among(figures, OVERLAP).filter(|it| label(it, NOISE) == NoiseKind::Drain.name()) {
        let (queue, times) = (label(figure, QUEUE), figure.value.get());
        match longest.iter_mut().find(|(other, _)| *other == queue) {
            Some((_, most)) => *most = most.max(times),
            None => longest.push((queue, times)),
        }
    }
    let each = longest.iter().map(|(queue, times)| format!("{times:.3} times as long on {queue}"));
    let each = each.collect::<Vec<_>>().join(" and ");
    (!longest.is_empty()).then(|| format!("during the drain applications run at most {each}"))
}

/// Says what the last queue gives back of the longest messages.
fn gained(figures: &[Figure]) -> Option<String> {
    let less =
        among(figures, LESS_TIME).filter(|it| label(it, TEST) == StagingTest::Latency.name());
    let less = less.last()?;
    let [queue, what] = [QUEUE, WHAT].map(|name| label(less, name));
    let time = digits(less.value);
    Some(format!(
        "With writers, messages of {what} take {time} us less on {queue} than on the first queue"
    ))
}

fn number(figure: &Figure) -> String {
    format!("{:.2}", figure.value.get())
}

fn line(queue: &str, test: &str, what: &str, noise: &str, numbers: [String; 4]) -> String {
    let [mean, p99, rate, written] = numbers;
    format!(
        "{queue:<13} {test:<9} {what:<18} {noise:<7} {mean:>11} {p99:>11} {rate:>8} {written:>12}"
    )
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::report::model::ExtendedReal;

    fn figure(name: &str, value: f64, queue: &str, what: &str, noise: &str) -> Figure {
        let figure = Figure::counted(name, "", ExtendedReal::finite(value), 1, "a test");
        figure.with(QUEUE, queue).with(WHAT, what).with(NOISE, noise)
    }

    #[test]
    fn conclusion__is_of_the_middle_store_and_of_the_longest_run_during_a_drain() {
        let figures = [
            figure(BLOCKED_RATIO, 19.0, "shared", "300 MB/s", ""),
            figure(BLOCKED_RATIO, 38.0, "shared", "150 MB/s", ""),
            figure(BLOCKED_RATIO, 9.5, "shared", "600 MB/s", ""),
            figure(BLOCKED_RATIO, 1.3, "shared", "300 MB/s, small log", ""),
            figure(OVERLAP, 1.5, "shared", "cg", "mounts"),
            figure(OVERLAP, 1.02, "shared", "cg", "drain"),
            figure(OVERLAP, 1.04, "shared", "awp-odc", "drain"),
            figure(OVERLAP, 1.0, "lanes", "cg", "drain"),
        ];
        assert_eq!(
            conclusion(&figures).as_deref(),
            Some(
                "A checkpoint blocks its application 19.0 times longer without servers at 300 MB/s of the store; during the drain applications run at most 1.040 times as long on shared and 1.000 times as long on lanes"
            )
        );
        assert_eq!(conclusion(&[]), None);
    }
}
