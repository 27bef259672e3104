//! The tables on a terminal: what victims felt, what programs did, what classes got.

use super::impact::{self, ImpactRow};
use super::programs;
use crate::report::model::{ClassShare, ExtendedReal, Figure, Report, labels};
use crate::report::numerals::{digits, digits_in, fit, interval_in};
use crate::report::terminal::WIDTH;

pub(super) fn impact_table(report: &Report) -> Vec<String> {
    let rows = impact::rows(report);
    let Some(first) = rows.first() else { return Vec::new() };
    let quantile = first.factor().and_then(|factor| factor.label(labels::QUANTILE)).unwrap_or("");
    let mut lines = vec![
        format!("Congestion impact, latency in {}", unit_of(first)),
        format!(
            "{:<11}{:>15}{:>17}{:^22}{:>5}{:>10}",
            "",
            "isolated",
            "congested",
            format!("{} slowdown", fit(quantile, 7).trim()),
            "lost",
            "load"
        ),
        format!(
            "{:<11}{:>7}{:>8}{:>8}{:>9}{:>8} {:<13}{:>5}{:>10}",
            "queue", "p50", "p99", "p50", "p99", "times", "[95 % CI]", "%", "reached %"
        ),
    ];
    let mut group = String::new();
    for row in &rows {
        if group != row.group() {
            group = row.group();
            lines.push(fit(&group, WIDTH));
        }
        lines.push(impact_row(row));
    }
    if rows.iter().any(|row| !is_supported(row)) {
        lines.push("  ~ fewer than ten samples lie beyond the quantile: it may be luck".to_owned());
    }
    lines
}

fn unit_of(row: &ImpactRow<'_>) -> String {
    let latency = row.congested.iter().chain(&row.isolated).flatten().next();
    latency.map_or_else(|| "us".to_owned(), |figure| fit(&figure.unit, 8))
}

fn is_supported(row: &ImpactRow<'_>) -> bool {
    row.factor().is_none_or(Figure::is_supported)
}

fn impact_row(row: &ImpactRow<'_>) -> String {
    let value =
        |figure: Option<&Figure>, width| digits_in(figure.map(|figure| figure.value), width);
    let ([i50, i99], [c50, c99]) = (row.isolated, row.congested);
    let factor = row.factor();
    let ends = factor.map(|figure| interval_in(figure.low, figure.high, 13)).unwrap_or_default();
    let times = format!("{}{}", if is_supported(row) { "" } else { "~" }, value(factor, 6));
    format!(
        "  {:<9}{:>7}{:>8}{:>8}{:>9}{:>8} {:<13}{:>5}{:>10}",
        fit(row.queue, 8),
        value(i50, 6),
        value(i99, 7),
        value(c50, 7),
        value(c99, 8),
        times,
        ends,
        value(row.loss, 4),
        value(row.goodput, 7)
    )
}

/// Returns what programs of the user's did, alone and under load.
pub(super) fn program_table(report: &Report) -> Vec<String> {
    let mut lines: Vec<String> = programs::rows(report).map(|row| program_row(&row)).collect();
    let Some(first) = programs::rows(report).next() else { return lines };
    let unit = first.medians[0].map_or("", Figure::shown_unit);
    let of = if unit.is_empty() {
        "the number that it prints".to_owned()
    } else {
        format!("its time in {unit}")
    };
    lines.insert(
        0,
        format!("The program, {}, medians of {} pairs", fit(&of, 25), first.slowdown.samples),
    );
    let head = ["queue", "congestor", "alone", "loaded", "slowdown", "95 %", "load %"];
    lines.insert(1, program_line(head));
    lines
}

fn program_row(row: &programs::ProgramRow<'_>) -> String {
    let value =
        |figure: Option<&Figure>, width| digits_in(figure.map(|figure| figure.value), width);
    let [alone, loaded] = row.medians.map(|median| value(median, 9));
    let (times, goodput) = (value(Some(row.slowdown), 9), value(row.goodput, 5));
    let ends = interval_in(row.slowdown.low, row.slowdown.high, 16);
    program_line([row.queue, row.congestor, &alone, &loaded, &times, &ends, &goodput])
}

fn program_line([queue, congestor, alone, loaded, times, ends, goodput]: [&str; 7]) -> String {
    let (queue, congestor) = (fit(queue, 9), fit(congestor, 13));
    format!(
        "  {queue:<10}{congestor:<14}{alone:>10}{loaded:>10}{times:>10}  {ends:<17}{goodput:>5}"
    )
    .trim_end()
    .to_owned()
}

pub(super) fn class_table(report: &Report) -> Vec<String> {
    if report.shares.is_empty() {
        return Vec::new();
    }
    if !report.has_shares() {
        return marks_table(report);
    }
    let mut lines = vec![
        "Classes by DSCP".to_owned(),
        format!(
            "  {:<10}{:<13}{:<7}{:<16}{:>10}{:>8}{:>13}",
            "queue", "class", "asked", "granted", "promised %", "got %", "longest gap"
        ),
    ];
    for_places(report, &mut lines, class_row);
    lines
}

/// Returns a line for each share; below the name of its place where there are several.
fn for_places(report: &Report, lines: &mut Vec<String>, row: impl Fn(&ClassShare) -> String) {
    let mut place = None;
    for share in &report.shares {
        let here = share.labels.get(labels::PLACE);
        if place != here {
            place = here;
            lines.extend(here.map(|here| fit(&format!("on {here}"), WIDTH)));
        }
        lines.push(row(share));
    }
}

fn class_row(share: &ClassShare) -> String {
    let number = |number: Option<ExtendedReal>| number.map_or_else(|| "-".to_owned(), digits);
    format!(
        "  {:<10}{:<13}{:<7}{:<16}{:>10}{:>8}{:>13}",
        fit(share.labels.get(labels::QUEUE).map_or("-", String::as_str), 9),
        fit(&share.class, 12),
        fit(&share.asked, 6),
        fit(&share.granted, 15),
        number(share.configured),
        number(share.reached),
        gap(share)
    )
}

/// Returns how marks travelled, in a run that measured no shares.
fn marks_table(report: &Report) -> Vec<String> {
    let has_gaps = report.shares.iter().any(|share| share.starved_ms.is_some());
    let line = |[queue, class, asked, seen, gap]: [&str; 5]| {
        let gap = if has_gaps { gap } else { "" };
        let (queue, class, asked) = (fit(queue, 9), fit(class, 12), fit(asked, 6));
        format!("  {queue:<10}{class:<13}{asked:<7}{:<16}{gap:>13}", fit(seen, 15))
            .trim_end()
            .to_owned()
    };
    let row = |share: &ClassShare| {
        let queue = share.labels.get(labels::QUEUE).map_or("-", String::as_str);
        line([queue, &share.class, &share.asked, share.mark_seen(), &gap(share)])
    };
    let mut lines =
        vec!["Marks (DSCP)".to_owned(), line(["queue", "class", "asked", "seen", "longest gap"])];
    for_places(report, &mut lines, row);
    lines
}

fn gap(share: &ClassShare) -> String {
    share.starved_ms.map_or_else(|| "-".to_owned(), |gap| format!("{} ms", digits(gap)))
}
