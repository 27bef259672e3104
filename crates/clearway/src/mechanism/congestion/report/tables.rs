//! The tables of the page: what victims felt, what programs did, what classes got.

use std::fmt::Write;

use super::heat;
use super::impact::{self, ImpactRow};
use super::programs;
use crate::report::html::drawing::{Axis, cell_bar, logarithmic};
use crate::report::html::tables::{cell, ends, few, head, number, or_dash, table};
use crate::report::html::{queue_name, queue_place, section, text};
use crate::report::model::{ClassShare, ExtendedReal, Figure, Report, labels};

/// Returns the factor of every victim, congestor and queue, with its interval drawn to scale.
pub(super) fn impact(report: &Report, queues: &[String]) -> String {
    let rows = impact::rows(report);
    if rows.is_empty() {
        return String::new();
    }
    let unit = rows
        .iter()
        .flat_map(|row| row.congested)
        .flatten()
        .next()
        .map_or("us", |figure| figure.unit.as_str());
    let unit = &text(if unit == "us" { "\u{b5}s" } else { unit });
    let scale = scale_of(&rows);
    let mut body = String::new();
    let mut group = String::new();
    for row in &rows {
        if group != row.group() {
            group = row.group();
            let title = text(&group);
            let _ = writeln!(
                body,
                "<tr class=\"group\"><th scope=\"rowgroup\" colspan=\"9\">{title}</th></tr>"
            );
        }
        body.push_str(&impact_row(row, queues, &scale, unit));
    }
    let head = format!(
        "<tr><th rowspan=\"2\" scope=\"col\">Queue</th><th colspan=\"2\" scope=\"colgroup\">Isolated, {unit}</th><th colspan=\"2\" scope=\"colgroup\">Congested, {unit}</th>\
         <th colspan=\"2\" scope=\"colgroup\">p99 slowdown [95 % CI]</th><th rowspan=\"2\" scope=\"col\" class=\"n\">Lost</th><th rowspan=\"2\" scope=\"col\" class=\"n\">Load<br>reached</th></tr>\
         <tr><th scope=\"col\" class=\"n\">p50</th><th scope=\"col\" class=\"n\">p99</th><th scope=\"col\" class=\"n\">p50</th><th scope=\"col\" class=\"n\">p99</th>\
         <th scope=\"col\" class=\"n\">factor</th><th scope=\"col\">interval</th></tr>"
    );
    let caption = "A factor of 1 means that the victim does not notice the congestor; the bar is the 95 % interval on a logarithmic scale, the thin line marks 1.";
    section(
        "impact",
        "Congestion impact",
        "How many times slower small messages become when another pattern loads the same network, and what that pattern reached meanwhile.",
        &table("cards impact", caption, &head, &body),
    )
}

/// Returns what programs of the user's did.
pub(super) fn programs(report: &Report, queues: &[String]) -> String {
    let value = |figure: Option<&Figure>| or_dash(figure.map(|figure| figure.value));
    let mut body = String::new();
    let mut unit = "";
    for row in programs::rows(report) {
        unit = row.medians[0].map_or("", Figure::shown_unit);
        let [alone, loaded] = row.medians;
        let times = format!(
            "<b>{}\u{d7}</b> <small>{}</small>",
            number(row.slowdown.value),
            ends(row.slowdown)
        );
        let load = row
            .goodput
            .map_or_else(|| "\u{2013}".to_owned(), |f| format!("{}\u{202f}%", number(f.value)));
        let _ = writeln!(
            body,
            "<tr><th scope=\"row\">{}</th>{}{}{}{}{}</tr>",
            queue_name(row.queue, queues),
            cell("congestor", "", &text(row.congestor)),
            cell("alone", "n", &value(alone)),
            cell("loaded", "n", &value(loaded)),
            cell("times slower", "n times", &times),
            cell("load reached", "n", &load)
        );
    }
    if body.is_empty() {
        return body;
    }
    let of = if unit.is_empty() { "what it prints".to_owned() } else { text(unit) };
    let columns = [
        ("Queue", ""),
        ("Congestor", ""),
        (&*format!("Alone, {of}"), "n"),
        (&*format!("Under load, {of}"), "n"),
        ("Slowdown [95 % CI]", "n"),
        ("Load reached", "n"),
    ];
    let caption = "Medians over pairs of runs, one alone and one under load; the interval is that of the sign test, which asks nothing of the distribution.";
    let lead = "How many times longer a program of yours takes when others load the same network.";
    section("programs", "The program", lead, &table("cards", caption, &head(&columns), &body))
}

fn impact_row(row: &ImpactRow<'_>, queues: &[String], scale: &Axis, unit: &str) -> String {
    let value = |figure: Option<&Figure>| or_dash(figure.map(|figure| figure.value));
    let percent = |figure: Option<&Figure>| {
        figure.map_or_else(|| "\u{2013}".to_owned(), |f| format!("{}\u{202f}%", number(f.value)))
    };
    let factor = row.factor();
    let times = factor.map_or_else(String::new, |f| {
        format!(
            "<span><b>{}\u{d7}</b> <small>{}{}</small></span>",
            number(f.value),
            ends(f),
            few(f)
        )
    });
    let bar = factor.map_or_else(String::new, |figure| interval_bar(scale, figure));
    let [i50, i99] = row.isolated;
    let [c50, c99] = row.congested;
    format!(
        "<tr><th scope=\"row\">{}</th>{}{}{}{}{}{}{}{}</tr>\n",
        queue_name(row.queue, queues),
        cell(&format!("isolated p50, {unit}"), "n", &value(i50)),
        cell(&format!("isolated p99, {unit}"), "n", &value(i99)),
        cell(&format!("congested p50, {unit}"), "n", &value(c50)),
        cell(&format!("congested p99, {unit}"), "n", &value(c99)),
        cell("times slower (p99)", "n times", &times),
        cell("", "drawn", &bar),
        cell("lost", "n", &percent(row.loss)),
        cell("load reached", "n", &percent(row.goodput))
    )
}

/// Returns a logarithmic scale that holds 1 and every finite factor of `rows`.
fn scale_of(rows: &[ImpactRow<'_>]) -> Axis {
    let factors = rows.iter().filter_map(ImpactRow::factor);
    let ends =
        factors.flat_map(|f| [Some(f.value), f.low, f.high]).flatten().map(ExtendedReal::get);
    let [low, high] = ends
        .filter(|n| n.is_finite() && *n > 0.0)
        .fold([1.0, 2.0f64], |[low, high], n| [low.min(n), high.max(n)]);
    logarithmic(low * 0.8, high * 1.25)
}

/// Returns a figure and its interval on `scale`.
fn interval_bar(scale: &Axis, figure: &Figure) -> String {
    let percent = |n: f64| 100.0 * scale.share(n);
    let value = percent(figure.value.get());
    let [low, high] =
        [figure.low, figure.high].map(|end| end.map_or(value, |end| percent(end.get())));
    format!(
        "<span class=\"interval\" aria-hidden=\"true\"><i class=\"one\" style=\"left:{:.2}%\"></i><i class=\"range\" style=\"left:{low:.2}%;width:{:.2}%\"></i><i class=\"dot\" style=\"left:{value:.2}%\"></i></span>",
        percent(1.0),
        high - low
    )
}

/// Returns the few pairs of a map that were measured.
pub(super) fn pairs(title: &str, pairs: &[heat::MeasuredPair<'_>]) -> String {
    let title = text(if title.is_empty() { "All messages" } else { title });
    if pairs.is_empty() {
        return format!("<h3>{title}</h3>\n<p>No pair was measured.</p>\n");
    }
    let row = |pair: &heat::MeasuredPair<'_>| {
        let (name, times) = (
            format!("{} to {}", text(pair.from), text(pair.to)),
            format!("{}\u{d7}", number(pair.value)),
        );
        format!("<tr><th scope=\"row\">{name}</th>{}</tr>\n", cell("times slower", "n", &times))
    };
    let body: String = pairs.iter().map(row).collect();
    let columns = [("Pair", ""), ("p99 slowdown", "n")];
    format!(
        "<h3>{title}</h3>\n{}",
        table("cards", "Every pair that was measured.", &head(&columns), &body)
    )
}

/// Returns what each class was promised and reached, with the promise as a mark on the bar; in a
/// run that measured no shares, only how its marks travelled.
pub(super) fn classes(report: &Report, queues: &[String]) -> String {
    if report.shares.is_empty() {
        return String::new();
    }
    if !report.has_shares() {
        return marks(report, queues);
    }
    let body: String = report.shares.iter().map(|share| class_row(share, queues)).collect();
    let columns = [
        ("Queue", ""),
        ("Class", ""),
        ("Asked", ""),
        ("Granted", ""),
        ("Promised", "n"),
        ("Reached", "n"),
        ("Share of the link", ""),
        ("Longest gap", "n"),
    ];
    let caption = "Bars show the share reached, the mark the share promised; a class that asked for a queue of its own and shares one has no promise.";
    section(
        "classes",
        "Shares reached and promised",
        "All classes send at once: what each asked for, what the network granted, and the share of the link it got.",
        &table("cards classes", caption, &head(&columns), &body),
    )
}

fn marks(report: &Report, queues: &[String]) -> String {
    let has_gaps = report.shares.iter().any(|share| share.starved_ms.is_some());
    let row = |share: &ClassShare| {
        let queue = share.labels.get(labels::QUEUE).map_or("", String::as_str);
        format!(
            "<tr><th scope=\"row\">{}{}</th>{}{}{}{}</tr>\n",
            queue_name(queue, queues),
            on_place(share),
            cell("class", "", &text(&share.class)),
            cell("asked", "", &text(&share.asked)),
            cell("seen", "", &text(share.mark_seen())),
            if has_gaps { cell("longest gap", "n", &gap(share)) } else { String::new() }
        )
    };
    let body: String = report.shares.iter().map(row).collect();
    let columns = [("Queue", ""), ("Class", ""), ("Asked", ""), ("Seen", ""), ("Longest gap", "n")];
    let shown = columns.len() - usize::from(!has_gaps);
    let caption = "The mark (DSCP) that senders set and that receivers saw; the gap is the longest time without a delivery.";
    let table = table("cards", caption, &head(columns.get(..shown).unwrap_or(&columns)), &body);
    section(
        "classes",
        "Marks",
        "Whether the network leaves the classes' marks as they were sent.",
        &table,
    )
}

/// Returns where it was measured, in a run at several places.
fn on_place(share: &ClassShare) -> String {
    share.labels.get(labels::PLACE).map_or_else(String::new, |place| format!(" on {}", text(place)))
}

fn gap(share: &ClassShare) -> String {
    share.starved_ms.map_or_else(|| "\u{2013}".to_owned(), |ms| format!("{}\u{202f}ms", number(ms)))
}

fn class_row(share: &ClassShare, queues: &[String]) -> String {
    let percent = |real: Option<ExtendedReal>| {
        real.map_or_else(|| "\u{2013}".to_owned(), |real| format!("{}\u{202f}%", number(real)))
    };
    let width = |real: ExtendedReal| real.get().clamp(0.0, 100.0);
    let queue = share.labels.get(labels::QUEUE).map_or("", String::as_str);
    let bar = cell_bar(
        queue_place(queue, queues),
        share.reached.map_or(0.0, width),
        share.configured.map(width),
        None,
    );
    format!(
        "<tr><th scope=\"row\">{}{}</th>{}{}{}{}{}{}{}</tr>\n",
        queue_name(queue, queues),
        on_place(share),
        cell("class", "", &text(&share.class)),
        cell("asked", "", &text(&share.asked)),
        cell("granted", "", &text(&share.granted)),
        cell("promised", "n", &percent(share.configured)),
        cell("reached", "n", &percent(share.reached)),
        cell("", "drawn", &bar),
        cell("longest gap", "n", &gap(share))
    )
}
