//! The benchmark on a terminal: simulated, and as `shmem-tail` measures it.

use super::ShmemClasses;
use super::figures::{
    BULK, CLASSES, CONGESTOR, GAIN, IMPACT, ISOLATED, LATENCY, OPERATION, P50, P99, PATTERN,
};
use crate::report::model::{Figure, Report};
use crate::report::present::{Presenter, WorseDirection};

impl Presenter for ShmemClasses {
    fn tables(&self, report: &Report) -> Vec<Vec<String>> {
        [table(report), measured(&report.figures)]
            .into_iter()
            .filter(|lines| !lines.is_empty())
            .collect()
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
    for p99 in of(P99).filter(|it| !it.labels.contains_key(CONGESTOR)) {
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
        if pattern == ISOLATED {
            continue;
        }
        lines.push(format!(
            "{operation} under {pattern}: p99 is {} times less with classes",
            number(gain)
        ));
    }
    for bulk in of(BULK) {
        let (classes, pattern) = (label(bulk, CLASSES), label(bulk, PATTERN));
        lines.push(format!("long puts, {classes}, {pattern}: {} GB/s", number(bulk)));
    }
    lines
}

/// Returns one line for each pair of a victim and a congestor, in the form of the output of `shmem-tail`.
fn measured(figures: &[Figure]) -> Vec<String> {
    let of = |name: &'static str| figures.iter().filter(move |it| it.name == name);
    let mut lines = Vec::new();
    for impact in of(IMPACT).filter(|it| it.labels.contains_key(CONGESTOR)) {
        if lines.is_empty() {
            lines.push(
                "latencies in us, impact: p99 under load over p99 without, bulk: rate with \
                 victims over rate alone"
                    .to_owned(),
            );
            lines.push(measured_line(
                ["classes", "victim", "congestor"],
                ["p50 calm", "p99 calm", "p50 busy", "p99 busy", "impact", "bulk"]
                    .map(str::to_owned),
            ));
        }
        let value = |name, more: &[(&str, &str)]| {
            let mut labels = impact.labels.clone();
            labels.extend(more.iter().map(|(key, value)| ((*key).into(), (*value).into())));
            of(name).find(|it| it.labels == labels).map_or(String::new(), number)
        };
        let p50 = |phase| value(LATENCY, &[("phase", phase), ("quantile", "p50")]);
        let p99 = |phase| value(P99, &[("phase", phase)]);
        lines.push(measured_line(
            ["class", PATTERN, CONGESTOR].map(|name| label(impact, name)),
            [
                p50(ISOLATED),
                p99(ISOLATED),
                p50("congested"),
                p99("congested"),
                number(impact),
                value("shmem_bulk_share", &[]),
            ],
        ));
    }
    for rate in of("shmem_message_rate") {
        let factor = of("shmem_aggregation_factor").find(|it| it.labels == rate.labels);
        let factor = factor
            .map_or(String::new(), |factor| format!(", {} elements in a message", number(factor)));
        let [classes, congestor] = ["class", CONGESTOR].map(|name| label(rate, name));
        let thousands = rate.value.get() / 1e3;
        lines.push(format!(
            "bulk alone, {classes}, {congestor}: {thousands:.1} thousand puts/s{factor}"
        ));
    }
    lines
}

fn measured_line(
    [classes, victim, congestor]: [&str; 3],
    [p50_calm, p99_calm, p50, p99, impact, bulk]: [String; 6],
) -> String {
    format!(
        "{classes:<10} {victim:<10} {congestor:<9} {p50_calm:>10} {p99_calm:>10} {p50:>10} {p99:>10} \
         {impact:>8} {bulk:>7}"
    )
}

fn number(figure: &Figure) -> String {
    format!("{:.2}", figure.value.get())
}

fn line([classes, pattern, operation, p50, p99, impact]: [String; 6]) -> String {
    format!("{classes:<10} {pattern:<11} {operation:<10} {p50:>9} {p99:>9} {impact:>8}")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::report::model::ExtendedReal;

    #[test]
    fn measured__a_victim_under_a_congestor_is_one_line_with_all_its_figures() {
        let figure = |name: &str, value: f64, more: &[(&str, &str)]| {
            let figure = Figure::counted(name, "", ExtendedReal::finite(value), 1, "");
            let labels = [("class", "classes"), (PATTERN, "get"), (CONGESTOR, "both")];
            let labels = labels.iter().chain(more);
            labels.fold(figure, |figure, (key, value)| figure.with(key, *value))
        };
        let figures = [
            figure(P99, 2.0, &[("phase", ISOLATED)]),
            figure(LATENCY, 1.0, &[("phase", ISOLATED), ("quantile", "p50")]),
            figure(LATENCY, 9.0, &[("phase", ISOLATED), ("quantile", "p99.9")]),
            figure(P99, 4.0, &[("phase", "congested")]),
            figure(LATENCY, 3.0, &[("phase", "congested"), ("quantile", "p50")]),
            figure(IMPACT, 2.5, &[]),
            figure("shmem_bulk_share", 0.5, &[]),
            figure("shmem_message_rate", 40_000.0, &[("phase", ISOLATED)]),
            figure("shmem_aggregation_factor", 8.0, &[("phase", ISOLATED)]),
        ];
        let lines = measured(&figures);
        let words: Vec<&str> = lines[2].split_whitespace().collect();
        assert_eq!(
            words,
            ["classes", "get", "both", "1.00", "2.00", "3.00", "4.00", "2.50", "0.50"]
        );
        let bulk = "bulk alone, classes, both: 40.0 thousand puts/s, 8.00 elements in a message";
        assert_eq!(lines[3..], [bulk], "{lines:?}");
    }
}
