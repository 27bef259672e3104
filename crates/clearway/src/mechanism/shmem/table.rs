//! The benchmark on a terminal.

use super::ShmemClasses;
use super::figures::{BULK, CLASSES, GAIN, IMPACT, OPERATION, P50, P99, PATTERN};
use crate::report::model::{Figure, Report};
use crate::report::present::{Presenter, WorseDirection};

impl Presenter for ShmemClasses {
    fn tables(&self, report: &Report) -> Vec<Vec<String>> {
        vec![table(report)]
    }

    fn worsens(&self, figure: &Figure, _report: &Report) -> Option<WorseDirection> {
        match figure.name.as_str() {
            P99 => Some(WorseDirection::Up),
            BULK => Some(WorseDirection::Down),
            _ => None,
        }
    }
}

fn label<'a>(figure: &'a Figure, name: &str) -> &'a str {
    figure.labels.get(name).map_or("", String::as_str)
}

/// Returns a line for each operation in each phase, and one for each gain.
fn table(report: &Report) -> Vec<String> {
    let of = |name: &'static str| report.figures.iter().filter(move |it| it.name == name);
    let mut lines = Vec::new();
    for p99 in of(P99) {
        if lines.is_empty() {
            let titles = ["classes", "congestors", "operation", "p50 us", "p99 us", "impact"];
            lines.push(line(titles.map(str::to_owned)));
        }
        let same = |name: &'static str| {
            of(name).find(|it| it.labels == p99.labels).map_or(String::new(), number)
        };
        lines.push(line([
            label(p99, CLASSES).to_owned(),
            label(p99, PATTERN).to_owned(),
            label(p99, OPERATION).to_owned(),
            same(P50),
            number(p99),
            same(IMPACT),
        ]));
    }
    for gain in of(GAIN) {
        let (pattern, operation) = (label(gain, PATTERN), label(gain, OPERATION));
        lines.push(format!(
            "{operation} beside {pattern}: p99 is {} times less with classes",
            number(gain)
        ));
    }
    for bulk in of(BULK) {
        let (classes, pattern) = (label(bulk, CLASSES), label(bulk, PATTERN));
        lines.push(format!("long puts, {classes}, {pattern}: {} GB/s", number(bulk)));
    }
    lines
}

fn number(figure: &Figure) -> String {
    format!("{:.2}", figure.value.get())
}

fn line([classes, pattern, operation, p50, p99, impact]: [String; 6]) -> String {
    format!("{classes:<10} {pattern:<11} {operation:<10} {p50:>9} {p99:>9} {impact:>8}")
}
