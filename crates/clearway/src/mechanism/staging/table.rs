//! The test on a terminal.

use super::StagingNoise;
use super::figures::{
    BANDWIDTH, LESS_TIME, MORE_BANDWIDTH, NOISE, P99, PUBLISHED, QUEUE, TEST, TIME, WHAT, WRITTEN,
};
use crate::report::model::{Figure, Report};
use crate::report::present::{Presenter, WorseDirection};

impl Presenter for StagingNoise {
    fn tables(&self, report: &Report) -> Vec<Vec<String>> {
        vec![measured(report), gains(report)]
    }

    fn worsens(&self, figure: &Figure, _report: &Report) -> Option<WorseDirection> {
        match figure.name.as_str() {
            TIME | P99 => Some(WorseDirection::Up),
            BANDWIDTH => Some(WorseDirection::Down),
            _ => None,
        }
    }
}

fn label<'a>(figure: &'a Figure, name: &str) -> &'a str {
    figure.labels.get(name).map_or("", String::as_str)
}

fn named<'a>(report: &'a Report, name: &'static str) -> impl Iterator<Item = &'a Figure> {
    report.figures.iter().filter(move |it| it.name == name)
}

/// Returns a line for each case on each queue, quiet and beside writers.
fn measured(report: &Report) -> Vec<String> {
    let mut lines = Vec::new();
    for time in named(report, TIME) {
        if lines.is_empty() {
            let titles = ["mean us", "p99 us", "MB/s", "written MB/s"];
            lines.push(line("queue", "test", "of", "beside", titles.map(str::to_owned)));
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
    let times = named(report, LESS_TIME).map(|it| sentence(it, "us less beside writers"));
    let rates = named(report, MORE_BANDWIDTH).map(|it| sentence(it, "MB/s more beside writers"));
    times.chain(rates).collect()
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
