//! Shows how broadcasts on simulated machines grow with the number of ranks: time by mode, and what
//! links carried.

use super::pages::{distinct, lost};
use crate::report::html::drawing::{
    Axis, Chart, HALF, StackedBar, coloured, decades, figure, legend, pairs, parted, parts_legend,
    tick, time_tick,
};
use crate::report::html::tables::number;
use crate::report::html::{section, text};
use crate::report::model::{ExtendedReal, Figure, Report};
use crate::report::numerals::length_shown;

/// Returns the sections, or nothing where nothing was cast on machines.
pub(super) fn scaling(report: &Report) -> String {
    let times: Vec<&Figure> = figures_named(report, "broadcast_seconds")
        .filter(|figure| figure.label("ranks").is_some())
        .collect();
    if times.is_empty() {
        return String::new();
    }
    let modes = distinct(times.iter().filter_map(|figure| figure.label("mode")));
    grown(&times, &modes) + &links(report, &modes)
}

fn figures_named<'a>(report: &'a Report, name: &str) -> impl Iterator<Item = &'a Figure> {
    report.figures.iter().filter(move |figure| figure.name == name)
}

fn ranks_of(figure: &Figure) -> f64 {
    figure.label("ranks").and_then(|ranks| ranks.parse().ok()).unwrap_or(1.0)
}

fn grown(times: &[&Figure], modes: &[&str]) -> String {
    let label = |key: &'static str| distinct(times.iter().filter_map(|figure| figure.label(key)));
    let mut body = String::new();
    for bytes in label("bytes") {
        // One scale for all machines, so that they can be compared.
        let alike: Vec<&Figure> =
            times.iter().copied().filter(|figure| figure.label("bytes") == Some(bytes)).collect();
        let y = decades(alike.iter().map(|figure| figure.value.get())).named(time_tick);
        let x = decades(alike.iter().map(|figure| ranks_of(figure)));
        for loss in label("loss") {
            for fabric in label("fabric") {
                let is_here = |figure: &&&Figure| {
                    figure.label("fabric") == Some(fabric) && figure.label("loss") == Some(loss)
                };
                let here: Vec<&Figure> = alike.iter().filter(is_here).copied().collect();
                let title = format!("{}, {}, {}", length_shown(bytes), text(fabric), lost(loss));
                body.push_str(&figure(&title, "", &curves(&here, modes, &x, &y), ""));
            }
        }
    }
    section(
        "scaling",
        "How broadcasts grow",
        "From the order until the last rank has the object, over the number of ranks, both scales logarithmic. A flat line is a way that does not mind \
         how many there are; a chain climbs with every rank, a tree with every power of four: where lines cross, the best way changes.",
        &pairs(&legend(modes.iter().enumerate().map(|(place, mode)| coloured(place, mode))), &body),
    )
}

/// Returns a curve for each mode.
fn curves(figures: &[&Figure], modes: &[&str], x: &Axis, y: &Axis) -> String {
    let mut ranks: Vec<f64> = figures.iter().map(|figure| ranks_of(figure)).collect();
    ranks.sort_by(f64::total_cmp);
    ranks.dedup();
    let mut chart =
        Chart::new("Time over the number of ranks, by mode", HALF, &x.clone().at(ranks), y);
    for (place, mode) in modes.iter().enumerate() {
        let of_mode = figures
            .iter()
            .filter(|figure| figure.label("mode") == Some(mode) && figure.value.is_finite());
        let mut points: Vec<(f64, f64)> =
            of_mode.map(|figure| (ranks_of(figure), figure.value.get())).collect();
        points.sort_by(|a, b| a.0.total_cmp(&b.0));
        chart.series(place);
        chart.line("curve", points.iter().copied());
        points.into_iter().for_each(|point| chart.dot(point));
    }
    chart.finish()
}

/// Returns the bytes on links, of the longest object among most ranks.
fn links(report: &Report, modes: &[&str]) -> String {
    let all: Vec<&Figure> = figures_named(report, "broadcast_link_bytes").collect();
    // Of a few bytes headers are nearly everything.
    let Some(bytes) = all.last().and_then(|figure| figure.label("bytes")) else {
        return String::new();
    };
    let Some(loss) = all.first().and_then(|figure| figure.label("loss")) else {
        return String::new();
    };
    let ranks = all.iter().map(|figure| ranks_of(figure)).fold(0.0, f64::max);
    let kinds = distinct(all.iter().filter_map(|figure| figure.label("links")));
    let parts = |name: &str, fabric: &str, mode: Option<&str>| -> Vec<f64> {
        let part = |kind: &&str| {
            let same = |figure: &&Figure| {
                let is =
                    |key: &str, value: &str| figure.label(key).is_none_or(|label| label == value);
                is("bytes", bytes)
                    && is("loss", loss)
                    && is("links", kind)
                    && is("fabric", fabric)
                    && mode.is_none_or(|mode| is("mode", mode))
                    && ranks_of(figure) == ranks
            };
            figures_named(report, name).find(same).map_or(0.0, |figure| figure.value.get())
        };
        kinds.iter().map(part).collect()
    };
    let mut rows = Vec::new();
    for fabric in distinct(all.iter().filter_map(|figure| figure.label("fabric"))) {
        let ways =
            modes.iter().map(|mode| (*mode, parts("broadcast_link_bytes", fabric, Some(mode))));
        let unicast = ("unicast to all", parts("broadcast_unicast_link_bytes", fabric, None));
        for (name, parts) in ways.chain([unicast]) {
            let sum = ExtendedReal::or_infinite(parts.iter().sum());
            rows.push(StackedBar { name: format!("{fabric}, {name}"), parts, note: number(sum) });
        }
    }
    let names: Vec<String> = kinds.iter().map(|kind| kind.replace('-', " ")).collect();
    let drawing = parted("Bytes on links, by machine and mode", &rows, 0.0, "");
    let caption = "In objects for each receiver: 1 is the object\u{2019}s bytes once over one link. Headers, reports and repairs are counted; of \
                   <b>unicast to all</b>, on shortest ways, they are not.";
    let lead = format!(
        "{} among {} ranks. Every receiver\u{2019}s own link carries the object once whatever the way; what multicast saves are the root\u{2019}s link and \
         those between switches, which other jobs use as well.",
        text(bytes),
        tick(ranks)
    );
    section(
        "links",
        "What links carried",
        &lead,
        &figure("Bytes on all links", &parts_legend(&names), &drawing, caption),
    )
}
