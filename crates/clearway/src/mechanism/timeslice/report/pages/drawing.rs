//! Draws timeslice building as SVG.
//!
//! # Invariants
//! I1. A drawing is well-formed whatever the report holds: only numbers that are finite get into it.

use std::fmt::Write;

use super::super::building::{BuildingFilm, BuildingInterval};
use super::BuildingPolicy;
use crate::report::html::drawing::{
    HALF, LEFT, Parted, RIGHT, ROW, WIDTH, band, colour, columns, decades, levels, line, linear, open, parted,
    parts_legend,
};
use crate::report::html::text;
use crate::report::model::{Figure, Real};

/// Points of one line: more than a drawing is wide.
const POINTS_MAX: usize = 900;
/// Colours of builders in a film: neighbours can be told apart, and stripes of the same colour are far from each other.
const HUES: u32 = 12;

/// A throughput as a bar up to the achievable line and beyond it, with the least and the most of all seeds.
pub(super) fn bar(place: usize, fraction: Option<&Figure>) -> String {
    let Some(fraction) = fraction else { return String::new() };
    // One and a third of raw: more than any schedule reaches.
    let width = |value: Real| (value.get() * 75.0).clamp(0.0, 100.0);
    let value = width(fraction.value);
    let [low, high] = [fraction.low, fraction.high].map(|end| end.map_or(value, width));
    format!(
        "<span class=\"share {}\" aria-hidden=\"true\"><i class=\"fill\" style=\"width:{value:.2}%\"></i><i class=\"mark\" style=\"left:75%\"></i>\
         <i class=\"spread\" style=\"left:{low:.2}%;width:{:.2}%\"></i></span>",
        colour(place),
        high - low
    )
}

/// A candle for each policy: least, p10, p50, p90, most; lines at one and ten times `rotation`.
pub(super) fn candles(candles: &[(usize, &str, [f64; 5])], rotation: f64) -> String {
    let height = candles.len() as f64 * ROW + 44.0;
    let bottom = height - 28.0;
    let values = candles.iter().flat_map(|(_, _, five)| *five).chain([rotation, rotation * 10.0]);
    let x = decades(values, LEFT, WIDTH - RIGHT);
    let mut svg = open([WIDTH, height], "Time to complete a timeslice, by policy");
    svg.push_str(&columns(&x, 14.0, bottom, ""));
    for (n, label) in [(1.0, "1 rotation"), (10.0, "10")] {
        let at = x.place(rotation * n);
        let _ = writeln!(
            svg,
            "<path class=\"line\" d=\"M{at:.1} 14V{bottom:.1}\"/><text class=\"middle\" x=\"{at:.1}\" y=\"10\">{label}</text>"
        );
    }
    for (row, (place, policy, five)) in candles.iter().enumerate() {
        let y = 18.0 + (row as f64 + 0.5) * ROW;
        let [least, p10, p50, p90, most] = five.map(|value| x.place(value));
        let _ = writeln!(
            svg,
            "<g class=\"{}\"><text class=\"end\" x=\"{:.1}\" y=\"{:.1}\">{}</text><path class=\"thin\" d=\"M{least:.1} {y:.1}H{most:.1}\"/>\
             <rect x=\"{p10:.1}\" y=\"{:.1}\" width=\"{:.1}\" height=\"14\"/><path class=\"median\" d=\"M{p50:.1} {:.1}v20\"/></g>",
            colour(*place),
            LEFT - 8.0,
            y + 4.0,
            text(policy),
            y - 7.0,
            (p90 - p10).max(1.5),
            y - 10.0
        );
    }
    svg + "</svg>\n"
}

/// Fill of each builder, in the order of medians.
pub(super) fn fills(place: usize, fills: &[[Real; 5]]) -> String {
    let mut fills: Vec<[f64; 5]> = fills.iter().map(|five| five.map(Real::get)).collect();
    fills.sort_by(|a, b| b[2].total_cmp(&a[2]));
    let most = fills.iter().map(|five| five[4]).filter(|value| value.is_finite()).fold(0.0, f64::max);
    let y = linear(0.0, if most > 50.0 { 100.0 } else { most }, 230.0, 14.0);
    let x = linear(1.0, fills.len() as f64, LEFT, HALF - RIGHT);
    let at = |n: usize| x.place(n as f64 + 1.0);
    let area = |low: usize, high: usize| {
        let points = fills.iter().enumerate().map(|(n, five)| (at(n), y.place(five[low]), y.place(five[high])));
        band(&points.collect::<Vec<_>>())
    };
    let mut svg = open([HALF, 260.0], "Fill of rings, by builder");
    svg.push_str(&levels(&y, HALF, "\u{202f}%"));
    let _ = writeln!(
        svg,
        "<g class=\"{}\"><path class=\"wash\" d=\"{}\"/><path class=\"wash\" d=\"{}\"/><path class=\"curve\" d=\"{}\"/></g>\
         <text class=\"middle\" x=\"{:.0}\" y=\"254\">{} builders, fullest first</text>",
        colour(place),
        area(0, 4),
        area(1, 3),
        line(fills.iter().enumerate().map(|(n, five)| (at(n), y.place(five[2])))),
        (LEFT + HALF - RIGHT) / 2.0,
        fills.len()
    );
    svg + "</svg>\n"
}

/// What landed step by step.
pub(super) fn pulse(policies: &[(usize, &BuildingPolicy)], slower: Option<[f64; 2]>) -> String {
    let length = |policy: &BuildingPolicy| policy.step_ms * policy.pulse.len() as f64;
    let longest = policies.iter().map(|(_, policy)| length(policy)).filter(|it| it.is_finite()).fold(0.0, f64::max);
    let curves: Vec<(usize, Vec<(f64, f64)>)> = policies.iter().map(|(place, it)| (*place, smooth(it))).collect();
    let most = curves.iter().flat_map(|(_, curve)| curve).map(|(_, value)| *value).fold(1.05, f64::max);
    let (x, y) = (linear(0.0, longest, LEFT, WIDTH - RIGHT), linear(0.0, most, 270.0, 14.0));
    let mut svg = open([WIDTH, 300.0], "Throughput over time, by policy");
    if let Some([from, until]) = slower.map(|ends| ends.map(|at| x.place(at))) {
        let _ = writeln!(
            svg,
            "<rect class=\"slower\" x=\"{from:.1}\" y=\"14\" width=\"{:.1}\" height=\"256\"/>",
            (until - from).max(0.0)
        );
    }
    svg.push_str(&levels(&y, WIDTH, ""));
    svg.push_str(&columns(&x, 14.0, 270.0, "\u{202f}ms"));
    let _ = writeln!(svg, "<path class=\"line\" d=\"M{LEFT} {:.1}H{:.1}\"/>", y.place(1.0), WIDTH - RIGHT);
    for (place, curve) in curves {
        let path = line(curve.into_iter().map(|(at, value)| (x.place(at), y.place(value))));
        let _ = writeln!(svg, "<g class=\"{}\"><path class=\"curve\" d=\"{path}\"/></g>", colour(place));
    }
    svg + "</svg>\n"
}

/// Time in ms and throughput, steps joined so that a line has no more points than it is wide.
fn smooth(policy: &BuildingPolicy) -> Vec<(f64, f64)> {
    let join = policy.pulse.len().div_ceil(POINTS_MAX / 6).max(1);
    let mean = |steps: &[Real]| steps.iter().map(|step| step.get()).sum::<f64>() / steps.len() as f64;
    let at = |n: usize| (n as f64 + 0.5) * join as f64 * policy.step_ms;
    policy.pulse.chunks_exact(join).enumerate().map(|(n, steps)| (at(n), mean(steps))).collect()
}

/// Durations of intervals, proposed and measured.
pub(super) fn durations(place: usize, intervals: &[BuildingInterval]) -> String {
    let proposed = |it: &BuildingInterval| it.proposed_ms.map(|[_, duration]| duration.get());
    let most = intervals.iter().flat_map(|it| [Some(it.duration_ms.get()), proposed(it)]).flatten().fold(0.0, f64::max);
    let x = linear(0.0, intervals.len().max(2) as f64 - 1.0, LEFT, WIDTH - RIGHT);
    let y = decades(intervals.iter().flat_map(|it| [Some(it.duration_ms.get()), proposed(it)]).flatten(), 230.0, 14.0);
    let y = if y.high / y.low <= 10.0 { linear(0.0, most, 230.0, 14.0) } else { y };
    let places = || intervals.iter().enumerate().map(|(n, it)| (x.place(n as f64), it));
    let mut svg = open([WIDTH, 270.0], "Durations of intervals");
    svg.push_str(&levels(&y, WIDTH, ""));
    svg.push_str(&columns(&x, 14.0, 230.0, ""));
    let _ = writeln!(
        svg,
        "<path class=\"proposed\" d=\"{}\"/><g class=\"{}\"><path class=\"curve\" d=\"{}\"/></g>",
        line(places().filter_map(|(at, it)| Some((at, y.place(proposed(it)?))))),
        colour(place),
        line(places().map(|(at, it)| (at, y.place(it.duration_ms.get())))),
    );
    svg + "</svg>\n"
}

/// How much later than proposed intervals began.
pub(super) fn starts(place: usize, intervals: &[BuildingInterval]) -> String {
    let late = |it: &BuildingInterval| {
        let [start, _] = it.proposed_ms?;
        let late = it.start_ms.get() - start.get();
        let half = it.spread_ms.get() / 2.0;
        [late - half, late, late + half].iter().all(|n| n.is_finite()).then_some([late - half, late, late + half])
    };
    let all: Vec<(usize, [f64; 3])> = intervals.iter().enumerate().filter_map(|(n, it)| Some((n, late(it)?))).collect();
    let (low, high) =
        all.iter().fold((0.0f64, 0.0f64), |(low, high), (_, three)| (low.min(three[0]), high.max(three[2])));
    let x = linear(0.0, intervals.len().max(2) as f64 - 1.0, LEFT, WIDTH - RIGHT);
    let y = linear(low, high, 230.0, 14.0);
    let places = || all.iter().map(|(n, three)| (x.place(*n as f64), three.map(|value| y.place(value))));
    let mut svg = open([WIDTH, 270.0], "Starts of intervals against proposals");
    svg.push_str(&levels(&y, WIDTH, ""));
    svg.push_str(&columns(&x, 14.0, 230.0, ""));
    let _ = writeln!(
        svg,
        "<g class=\"{}\"><path class=\"wash\" d=\"{}\"/><path class=\"curve\" d=\"{}\"/></g>",
        colour(place),
        band(&places().map(|(at, [low, _, high])| (at, low, high)).collect::<Vec<_>>()),
        line(places().map(|(at, [_, late, _])| (at, late))),
    );
    svg + "</svg>\n"
}

/// The causes of `policies` in one order.
fn all_causes<'a>(policies: &[(usize, &'a BuildingPolicy)]) -> Vec<&'a str> {
    let mut causes: Vec<&str> =
        policies.iter().flat_map(|(_, policy)| policy.blocked.keys()).map(String::as_str).collect();
    causes.sort_unstable();
    causes.dedup();
    causes
}

/// What the shades of [`blocked`] mean.
pub(super) fn causes(policies: &[(usize, &BuildingPolicy)]) -> String {
    parts_legend(&all_causes(policies).iter().map(|cause| cause.replace('-', " ")).collect::<Vec<_>>())
}

/// A bar for each policy, parted by cause.
pub(super) fn blocked(policies: &[(usize, &BuildingPolicy)]) -> String {
    let causes = all_causes(policies);
    let row = |(_, policy): &(usize, &BuildingPolicy)| {
        let part = |cause: &&str| policy.blocked.get(*cause).map_or(0.0, |part| part.get().clamp(0.0, 100.0));
        Parted { name: policy.policy.clone(), parts: causes.iter().map(part).collect(), note: String::new() }
    };
    let rows: Vec<Parted> = policies.iter().map(row).collect();
    parted("Time that inputs waited, by cause", &rows, 100.0, "\u{202f}%")
}

/// Who sent to whom: a row for each input, a colour for each builder.
pub(super) fn film(film: &BuildingFilm, builders: u32) -> String {
    let steps = film.rows.iter().map(Vec::len).max().unwrap_or(0).max(1);
    let row = (360.0 / film.rows.len().max(1) as f64).clamp(3.0, 16.0);
    let height = film.rows.len() as f64 * row + 40.0;
    let x = linear(0.0, steps as f64, LEFT, WIDTH - RIGHT);
    let mut paths = vec![String::new(); HUES as usize];
    for (n, cells) in film.rows.iter().enumerate() {
        let y = 8.0 + (n as f64 + 0.5) * row;
        let mut at = 0;
        for run in cells.chunk_by(|a, b| a == b) {
            if let Some(builder) = run[0] {
                let hue = (u64::from(builder) * u64::from(HUES) / u64::from(builders.max(1))).min(u64::from(HUES) - 1);
                let (from, until) = (x.place(at as f64), x.place((at + run.len()) as f64));
                let _ = write!(paths[hue as usize], "M{from:.1} {y:.1}H{until:.1}");
            }
            at += run.len();
        }
    }
    let bottom = 8.0 + film.rows.len() as f64 * row;
    let mut svg = open([WIDTH, height], "Who sends to whom");
    for (hue, path) in paths.iter().enumerate() {
        let _ = writeln!(
            svg,
            "<path d=\"{path}\" fill=\"none\" stroke=\"hsl({} 65% {}%)\" stroke-width=\"{:.1}\"/>",
            hue * 360 / HUES as usize,
            if hue % 2 == 0 { 45 } else { 62 },
            (row - 0.6).max(1.0)
        );
    }
    let _ = writeln!(
        svg,
        "<text class=\"end\" x=\"{:.1}\" y=\"{:.1}\">input 0</text><text class=\"end\" x=\"{:.1}\" y=\"{:.1}\">input {}</text>",
        LEFT - 8.0,
        8.0 + row.max(11.0),
        LEFT - 8.0,
        bottom,
        film.rows.len().saturating_sub(1)
    );
    let length = linear(0.0, steps as f64 * film.step_us / 1e3, LEFT, WIDTH - RIGHT);
    svg.push_str(&columns(&length, bottom, bottom + 4.0, "\u{202f}ms"));
    svg + "</svg>\n"
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn drawings__of_nothing_and_of_nonsense_are_well_formed() {
        let endless = [Real::INFINITE; 5];
        let film = BuildingFilm { step_us: f64::INFINITY, rows: vec![Vec::new(), vec![Some(u32::MAX), None]] };
        let interval = BuildingInterval {
            interval: 0,
            start_ms: Real::INFINITE,
            spread_ms: Real::INFINITE,
            duration_ms: Real::INFINITE,
            proposed_ms: Some([Real::INFINITE; 2]),
        };
        let drawings = [
            candles(&[(0, "<", endless.map(Real::get))], f64::INFINITY),
            candles(&[], 0.0),
            fills(7, &[endless]),
            fills(0, &[]),
            durations(0, &[interval; 2]),
            starts(0, &[interval; 2]),
            starts(0, &[]),
            pulse(&[], Some([f64::INFINITY, 0.0])),
            blocked(&[]),
            super::film(&film, 0),
        ];
        for drawing in drawings {
            assert!(drawing.starts_with("<svg") && drawing.ends_with("</svg>\n"), "{drawing}");
            assert!(!drawing.contains("NaN") && !drawing.contains("inf"), "{drawing}");
        }
    }
}
