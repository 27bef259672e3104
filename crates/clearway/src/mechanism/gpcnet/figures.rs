//! GPCNeT's figures as those of a report.

use clearway_proto::gpcnet::{Congestor, CorrectedDefects, Impact, Summary, TableRow, Test, Unit};

use crate::report::model::{ExtendedReal, Figure, labels};

/// Times and rates of a test; labels test, bytes, phase, statistic.
const LATENCY: &str = "gpcnet_latency";
const BANDWIDTH: &str = "gpcnet_bandwidth";
/// What a congestor sends; labels congestor, bytes, phase, statistic, and the test that it loads.
const CONGESTOR: &str = "gpcnet_congestor_bandwidth";
/// How many times worse a test is under load; labels test, bytes, statistic.
const IMPACT: &str = "gpcnet_impact";
/// Labels of these figures.
const TEST: &str = "test";
const BYTES: &str = "bytes";
const STATISTIC: &str = "statistic";

/// Returns the columns of a row, by the names that the original gives them.
fn statistics(summary: &Summary) -> [(&'static str, f64); 6] {
    let Summary { min, max, avg, avg_worst, p99, p999 } = *summary;
    [
        ("min", min),
        ("max", max),
        ("avg", avg),
        ("avg-worst", avg_worst),
        ("p99", p99),
        ("p99.9", p999),
    ]
}

fn figure(name: &str, unit: &str, statistic: &str, value: f64) -> Figure {
    let source = "GPCNeT's own statistics of all ranks and rings";
    Figure::counted(name, unit, ExtendedReal::or_infinite(value), 1, source)
        .with(STATISTIC, statistic)
}

/// Returns the figures of `test` in `phase`.
pub(super) fn of_test(test: Test, phase: &str, summary: Option<&Summary>) -> Vec<Figure> {
    let (name, unit) = match test.unit() {
        Unit::Usec => (LATENCY, "us"),
        Unit::Rate => (BANDWIDTH, "MiB/s"),
    };
    let one = |(statistic, value): (&str, f64)| {
        let figure = figure(name, unit, statistic, value).with(labels::PHASE, phase);
        figure.with(TEST, test.title()).with(BYTES, test.message().0.to_string())
    };
    summary.into_iter().flat_map(statistics).map(one).collect()
}

/// Returns the figures of a congestor, alone or during the test `victim`.
pub(super) fn of_congestor(row: &TableRow<Congestor>, victim: Option<Test>) -> Vec<Figure> {
    let phase = if victim.is_some() { labels::CONGESTED } else { labels::ISOLATED };
    let one = |(statistic, value): (&str, f64)| {
        let figure = figure(CONGESTOR, "MiB/s", statistic, value)
            .with(labels::PHASE, phase)
            .with(labels::CONGESTOR, row.of.name())
            .with(BYTES, row.of.message().0.to_string());
        victim.into_iter().fold(figure, |figure, test| figure.with(TEST, test.title()))
    };
    row.summary.iter().flat_map(statistics).map(one).collect()
}

/// Returns how many times worse a test is under congestors, `loaded`, than `alone`.
pub(super) fn of_impact(
    alone: &TableRow<Test>,
    loaded: &TableRow<Test>,
    mended: CorrectedDefects,
) -> Vec<Figure> {
    let Some((isolated, congested)) = alone.summary.as_ref().zip(loaded.summary.as_ref()) else {
        return Vec::new();
    };
    let impact = Impact::new(alone.of.unit(), isolated, congested, mended);
    let one = |(statistic, value): (&str, f64)| {
        let figure = figure(IMPACT, "x", statistic, value).with(TEST, alone.of.title());
        figure.with(BYTES, alone.of.message().0.to_string())
    };
    [("avg", impact.avg), ("p99", impact.p99)].into_iter().map(one).collect()
}
