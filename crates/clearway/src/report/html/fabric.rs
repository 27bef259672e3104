//! Shows a simulated network: a picture of its links by load for each queue, and the ports that
//! matter by name.

use std::fmt::Write;

use super::tables::{cell, head, number, table};
use super::{queue_class, queue_name, section, text};
use crate::report::model::{ExtendedReal, PhaseLoad, PortLoad, Report, ReportFabric, labels};

mod layout;
mod picture;

/// The shares of a link's rate from which its colour changes, in percent; the style sheet has one
/// more colour.
const STEPS: [f64; 5] = [10.0, 30.0, 50.0, 70.0, 90.0];
/// Ports that a picture marks: more would hide what they stand on.
const MARKED: usize = 5;
/// A stall that is worth a mark, in percent of the window.
const MARK_MIN: f64 = 1.0;

/// Returns the section, or nothing where the network was real.
pub(super) fn fabric(report: &Report, queues: &[String]) -> String {
    let Some(fabric) = &report.fabric else { return String::new() };
    let mut body = legend();
    for load in &fabric.loads {
        let queue = load.labels.get(labels::QUEUE).map_or("", String::as_str);
        let class = queue_class(queue, queues);
        let title = queue_name(queue, queues);
        let caption = format!(
            "{}: {} under load. Colours are those of the busier direction.",
            text(&load.phase),
            window(load.window_ms)
        );
        let _ = write!(
            body,
            "<figure class=\"fabric {class}\">\n<h3>{title}</h3>\n<div class=\"scroll\">{}</div>\n<figcaption>{caption}</figcaption>\n</figure>\n{}",
            picture::draw(fabric, load),
            ports(fabric, load)
        );
    }
    let lead = format!("{}, {}: {}.", text(&fabric.name), text(&fabric.kind), fabric.size());
    section("fabric", "The fabric", &lead, &body)
}

/// Returns `value` as a number of a report; what a foreign file holds instead counts as nothing.
fn real(value: f64) -> ExtendedReal {
    ExtendedReal::new(value).unwrap_or(ExtendedReal::finite(0.0))
}

/// Returns the class of the colour of a link that carries `percent` of its rate, to the tenth that
/// tables show: links that read the same there look the same here.
fn step(percent: f64) -> usize {
    let shown = (percent * 10.0).round() / 10.0;
    STEPS.iter().filter(|from| shown >= **from).count()
}

/// Returns the ports of `load` that deserve a mark in its picture.
fn marked(load: &PhaseLoad) -> impl Iterator<Item = (usize, &PortLoad)> {
    load.stalled.iter().take(MARKED).filter(|port| port.stalled >= MARK_MIN).enumerate()
}

fn legend() -> String {
    let mut entries = String::new();
    for i in 0..=STEPS.len() {
        let range = match (i.checked_sub(1).and_then(|i| STEPS.get(i)), STEPS.get(i)) {
            (None, Some(to)) => format!("below {to}\u{202f}%"),
            (Some(from), Some(to)) => format!("{from} to {to}\u{202f}%"),
            (Some(from), None) => format!("{from}\u{202f}% and more"),
            (None, None) => String::new(),
        };
        let _ = writeln!(
            entries,
            "<li><svg class=\"load\" width=\"26\" height=\"10\" aria-hidden=\"true\"><line class=\"l{i}\" x1=\"1\" x2=\"25\" y1=\"5\" y2=\"5\"/></svg>{range}</li>"
        );
    }
    format!(
        "<ul class=\"legend\">\n<li>Load, percent of the rate:</li>{entries}</ul>\n<ul class=\"legend\">\n\
         <li>Thicker lines have a higher rate.</li>\
         <li><svg class=\"load\" width=\"20\" height=\"20\" aria-hidden=\"true\"><g class=\"mark\"><circle cx=\"10\" cy=\"10\" r=\"8\"/><text x=\"10\" y=\"14\">1</text></g></svg>\
         the ports that stood still longest, at their senders</li>\
         <li><svg class=\"load\" width=\"16\" height=\"16\" aria-hidden=\"true\"><rect class=\"host\" x=\"3\" y=\"3\" width=\"9\" height=\"9\"/></svg>a host, in the colour of its cable</li></ul>\n"
    )
}

/// Returns both lists of ports.
fn ports(fabric: &ReportFabric, load: &PhaseLoad) -> String {
    let list = |title: &str, ports: &[PortLoad], caption: &str| {
        if ports.is_empty() {
            return String::new();
        }
        let body: String = ports.iter().map(|port| row(fabric, load, port)).collect();
        let columns = [
            ("From \u{2192} to", ""),
            ("Load", "n"),
            ("Of it, by virtual lane", ""),
            ("Stalled", "n"),
            ("Longest queue", "n"),
            ("Drops", "n"),
        ];
        format!("<h3>{title}</h3>\n{}", table("cards ports", caption, &head(&columns), &body))
    };
    let busiest = list(
        "Busiest ports",
        &load.busiest,
        "Load is what the port sent, headers included, of what its cable can carry. The longest queue is that of the whole phase.",
    );
    let stalled = list(
        "Most stalled ports",
        &load.stalled,
        "Stalled is the part of the time in which something waited and nothing could be sent: no credit, a pause, or a slow host. The first five have their numbers in the picture.",
    );
    format!("{busiest}{stalled}")
}

fn row(fabric: &ReportFabric, load: &PhaseLoad, port: &PortLoad) -> String {
    let percent = |value: f64| format!("{}\u{202f}%", number(real(value)));
    let lanes: Vec<String> = port
        .lanes
        .iter()
        .zip(&load.lanes)
        .filter(|(share, _)| **share > 0.0)
        .map(|(share, name)| {
            if *share >= 100.0 { text(name) } else { format!("{} {}", text(name), percent(*share)) }
        })
        .collect();
    let lanes = if lanes.is_empty() { "\u{2013}".to_owned() } else { lanes.join("; ") };
    format!(
        "<tr><th scope=\"row\">{}</th>{}{}{}{}{}</tr>\n",
        text(&fabric.label(port)),
        cell("load", "n", &percent(port.load)),
        cell("by lane", "", &lanes),
        cell("stalled", "n", &percent(port.stalled)),
        cell("longest queue", "n", &bytes(port.queue_bytes)),
        cell("drops", "n", &number(real(port.drops as f64)))
    )
}

fn bytes(count: u64) -> String {
    let scaled =
        |scale: f64, unit: &str| format!("{}\u{202f}{unit}", number(real(count as f64 / scale)));
    match count {
        0..1_000 => format!("{count}\u{202f}B"),
        1_000..1_000_000 => scaled(1e3, "kB"),
        _ => scaled(1e6, "MB"),
    }
}

/// Returns the length of a window.
fn window(ms: f64) -> String {
    if ms < 1000.0 {
        format!("{}\u{202f}ms", number(real(ms)))
    } else {
        format!("{}\u{202f}s", number(real(ms / 1e3)))
    }
}

#[cfg(test)]
mod tests;
