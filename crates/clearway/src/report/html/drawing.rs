//! What drawings of the page share: scales, grids, lines, bands, and bars of parts.
//!
//! # Invariants
//! I1. A drawing is well-formed whatever the report holds: only numbers that are finite get into it.

use std::fmt::Write;

use super::tables::number;
use super::text;
use crate::report::model::Real;

/// Colours of the style sheet.
const COLOURS: usize = 6;
/// Shades of parts in the style sheet.
const SHADES: usize = 5;
/// Width of a drawing, in its own units: about the pixels of a wide window, so that letters are as large as others.
pub(crate) const WIDTH: f64 = 1000.0;
/// Width of a drawing that has a neighbour.
pub(crate) const HALF: f64 = 480.0;
/// Where the plot of one of half the width begins, behind percents or times.
pub(crate) const HALF_LEFT: f64 = 64.0;
/// Where the plot begins, behind names and numbers.
pub(crate) const LEFT: f64 = 110.0;
/// Between plot and right border.
pub(crate) const RIGHT: f64 = 24.0;
/// About the width of a letter.
pub(crate) const LETTER: f64 = 7.0;
/// `name` in so many letters. The end stays, which tells hosts apart, without the domain that they share.
pub(crate) fn fitted(name: &str, letters: usize) -> String {
    let fits = |name: &str| name.chars().count() <= letters;
    let short = match name.split_once('.') {
        // An address has no domain.
        Some((host, domain)) if !fits(name) && domain.contains(char::is_alphabetic) => {
            let behind = domain.find(' ').map_or("", |at| &domain[at..]);
            format!("{host}{behind}")
        }
        _ => name.to_owned(),
    };
    if fits(&short) {
        return short;
    }
    let left_out = short.chars().count() + 1 - letters.max(1);
    std::iter::once('\u{2026}').chain(short.chars().skip(left_out)).collect()
}

/// Height of a row of names.
pub(crate) const ROW: f64 = 34.0;

/// A scale from values to places.
#[derive(Clone, Copy)]
pub(crate) struct Scale {
    pub(crate) low: f64,
    pub(crate) high: f64,
    from: f64,
    until: f64,
    kind: Kind,
}

#[derive(Clone, Copy, PartialEq)]
pub(crate) enum Kind {
    Linear,
    Logarithmic,
}

impl Scale {
    pub(crate) fn place(&self, value: f64) -> f64 {
        let value = if value.is_finite() { value.clamp(self.low, self.high) } else { self.high };
        let share = match self.kind {
            Kind::Linear => (value - self.low) / (self.high - self.low).max(1e-12),
            Kind::Logarithmic => (value / self.low).ln() / (self.high / self.low).ln().max(1e-12),
        };
        self.from + share * (self.until - self.from)
    }

    /// Values for lines: decades, or a handful of round ones.
    fn ticks(&self) -> Vec<f64> {
        if self.kind == Kind::Logarithmic {
            let decades = self.low.log10().round() as i32..=self.high.log10().round() as i32;
            return decades.map(|exponent| 10f64.powi(exponent)).collect();
        }
        let span = (self.high - self.low).max(1e-12);
        let step = 10f64.powf((span / 4.0).log10().floor());
        let step = [1.0, 2.0, 5.0, 10.0].map(|n| n * step).into_iter().find(|step| span / step <= 5.0).unwrap_or(span);
        let first = (self.low / step).ceil() as i64;
        (first..).map(|n| n as f64 * step).take_while(|value| *value <= self.high + step * 1e-6).take(12).collect()
    }
}

/// A logarithmic scale of whole decades.
pub(crate) fn decades(values: impl Iterator<Item = f64>, from: f64, until: f64) -> Scale {
    let (low, high) = values
        .filter(|value| value.is_finite() && *value > 0.0)
        .fold((f64::INFINITY, 0.0f64), |(low, high), value| (low.min(value), high.max(value)));
    let (low, high) = if low > high { (1.0, 10.0) } else { (low, high) };
    let low = 10f64.powf((low.log10() + 1e-9).floor());
    let high = 10f64.powf((high.log10() - 1e-9).ceil()).max(low * 10.0);
    Scale { low, high, from, until, kind: Kind::Logarithmic }
}

pub(crate) fn linear(low: f64, high: f64, from: f64, until: f64) -> Scale {
    Scale { low, high: if high > low { high } else { low + 1.0 }, from, until, kind: Kind::Linear }
}

/// The number of a tick, without zeros that say nothing.
pub(crate) fn tick(value: f64) -> String {
    let shown = number(Real::or_infinite(value));
    if shown.contains('.') { shown.trim_end_matches('0').trim_end_matches('.').to_owned() } else { shown }
}

pub(crate) fn open([width, height]: [f64; 2], label: &str) -> String {
    format!(
        "<svg class=\"drawing\" viewBox=\"0 0 {width:.0} {height:.0}\" role=\"img\" aria-label=\"{}\">\n",
        text(label)
    )
}

/// Lines across the plot at the ticks of `y`, each with its number.
pub(crate) fn levels(y: &Scale, width: f64, unit: &str) -> String {
    levels_named(y, [LEFT, width - RIGHT], &|value| format!("{}{unit}", tick(value)))
}

/// The same from one end to another, with names that `name` gives.
pub(crate) fn levels_named(y: &Scale, [from, until]: [f64; 2], name: &dyn Fn(f64) -> String) -> String {
    let line = |value: f64| {
        let at = y.place(value);
        format!(
            "<path class=\"grid\" d=\"M{from} {at:.1}H{until:.1}\"/><text class=\"end\" x=\"{:.1}\" y=\"{:.1}\">{}</text>\n",
            from - 8.0,
            at + 4.0,
            name(value)
        )
    };
    y.ticks().into_iter().map(line).collect()
}

/// Lines down the plot at the ticks of `x`, with numbers below `bottom`.
pub(crate) fn columns(x: &Scale, top: f64, bottom: f64, unit: &str) -> String {
    columns_named(x, top, bottom, &|value| format!("{}{unit}", tick(value)))
}

/// The same with names that `name` gives.
pub(crate) fn columns_named(x: &Scale, top: f64, bottom: f64, name: &dyn Fn(f64) -> String) -> String {
    columns_at(&x.ticks(), x, [top, bottom], name)
}

/// Lines down the plot at `values` of `x`, with their names below.
pub(crate) fn columns_at(values: &[f64], x: &Scale, [top, bottom]: [f64; 2], name: &dyn Fn(f64) -> String) -> String {
    let line = |value: &f64| {
        let at = x.place(*value);
        format!(
            "<path class=\"grid\" d=\"M{at:.1} {top:.1}V{bottom:.1}\"/><text class=\"middle\" x=\"{at:.1}\" y=\"{:.1}\">{}</text>\n",
            bottom + 16.0,
            name(*value)
        )
    };
    values.iter().map(line).collect()
}

/// Seconds with the unit that suits them.
pub(crate) fn time(seconds: f64) -> String {
    let (value, unit) = in_unit(seconds);
    format!("{}\u{202f}{unit}", number(Real::or_infinite(value)))
}

/// The same for a tick.
pub(crate) fn time_tick(seconds: f64) -> String {
    let (value, unit) = in_unit(seconds);
    if value == 0.0 { "0".to_owned() } else { format!("{}\u{202f}{unit}", tick(value)) }
}

fn in_unit(seconds: f64) -> (f64, &'static str) {
    match seconds {
        _ if seconds < 0.999_5e-3 => (seconds * 1e6, "\u{b5}s"),
        _ if seconds < 0.999_5 => (seconds * 1e3, "ms"),
        _ => (seconds, "s"),
    }
}

/// A line through `points`.
pub(crate) fn line(points: impl Iterator<Item = (f64, f64)>) -> String {
    let mut path = String::new();
    for (x, y) in points.filter(|(x, y)| x.is_finite() && y.is_finite()) {
        let _ = write!(path, "{}{x:.1} {y:.1}", if path.is_empty() { "M" } else { "L" });
    }
    path
}

/// The area between two lines over the same places.
pub(crate) fn band(points: &[(f64, f64, f64)]) -> String {
    let up = line(points.iter().map(|(x, low, _)| (*x, *low)));
    let down = line(points.iter().rev().map(|(x, _, high)| (*x, *high))).replace('M', "L");
    if up.is_empty() { up } else { format!("{up}{down}Z") }
}

/// The style class of what stands at `place` of a list: it keeps its colour through the page.
pub(crate) fn colour(place: usize) -> String {
    format!("q{}", place % COLOURS)
}

/// A name in the colour of its place.
pub(crate) fn coloured(place: usize, name: &str) -> String {
    format!("<span class=\"queue {}\">{}</span>", colour(place), text(name))
}

/// What marks mean: a list of `entries`.
pub(crate) fn legend(entries: impl Iterator<Item = String>) -> String {
    let entries: String = entries.map(|entry| format!("<li>{entry}</li>\n")).collect();
    format!("<ul class=\"legend\">\n{entries}</ul>\n")
}

/// A drawing below its title and legend, and above what it shows.
pub(crate) fn figure(title: &str, legend: &str, drawing: &str, caption: &str) -> String {
    format!(
        "<figure>\n<h3>{title}</h3>\n{legend}<div class=\"scroll\">{drawing}</div>\n<figcaption>{caption}</figcaption>\n</figure>\n"
    )
}

/// A bar of parts behind its name.
pub(crate) struct Parted {
    pub(crate) name: String,
    pub(crate) parts: Vec<f64>,
    /// Behind the bar.
    pub(crate) note: String,
}

/// What the shades of [`parted`] mean, in the order of parts.
pub(crate) fn parts_legend(names: &[String]) -> String {
    let entry = |(n, name): (usize, &String)| {
        format!(
            "<svg class=\"drawing\" width=\"16\" height=\"12\" aria-hidden=\"true\"><rect class=\"cause c{}\" width=\"16\" height=\"12\"/></svg>{}",
            n % SHADES,
            text(name)
        )
    };
    legend(names.iter().enumerate().map(entry))
}

/// A bar for each of `rows` on a scale from nothing to `most`.
pub(crate) fn parted(label: &str, rows: &[Parted], most: f64, unit: &str) -> String {
    let longest = |pick: &dyn Fn(&Parted) -> usize| rows.iter().map(pick).max().unwrap_or(0) as f64;
    let left = LEFT.max(longest(&|row| row.name.chars().count()) * LETTER + 16.0);
    let right = RIGHT.max(longest(&|row| row.note.chars().count()) * LETTER + 16.0);
    let height = rows.len() as f64 * ROW + 40.0;
    let x = linear(0.0, most, left, WIDTH - right);
    let mut svg = open([WIDTH, height], label);
    svg.push_str(&columns(&x, 8.0, height - 26.0, unit));
    for (n, row) in rows.iter().enumerate() {
        let y = 12.0 + n as f64 * ROW;
        let base = y + 15.0;
        let _ = writeln!(svg, "<text class=\"end\" x=\"{:.1}\" y=\"{base:.1}\">{}</text>", left - 8.0, text(&row.name));
        let mut sum = 0.0;
        for (n, part) in row.parts.iter().enumerate() {
            let [from, until] = [x.place(sum), x.place(sum + part)];
            sum += part;
            let _ = writeln!(
                svg,
                "<rect class=\"cause c{}\" x=\"{from:.1}\" y=\"{y:.1}\" width=\"{:.1}\" height=\"22\"/>",
                n % SHADES,
                (until - from).max(0.0)
            );
        }
        let _ = writeln!(svg, "<text x=\"{:.1}\" y=\"{base:.1}\">{}</text>", x.place(sum) + 8.0, text(&row.note));
    }
    svg + "</svg>\n"
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fitted__keeps_what_tells_hosts_apart() {
        assert_eq!(fitted("n1", 8), "n1");
        assert_eq!(fitted("node-0017", 8), "\u{2026}de-0017");
        assert_eq!(fitted("node17.cluster.example.org", 8), "node17");
        assert_eq!(fitted("node17.cluster.example.org (3)", 12), "node17 (3)");
        assert_eq!(fitted("10.100.200.17", 8), "\u{2026}.200.17");
        assert_eq!(fitted("n\u{e9}\u{e9}", 0), "\u{2026}");
    }

    #[test]
    fn scale__has_round_ticks_and_keeps_everything_inside() {
        let linear = linear(0.0, 87.0, 100.0, 0.0);
        assert_eq!(linear.ticks(), [0.0, 20.0, 40.0, 60.0, 80.0]);
        assert_eq!([0.0, 87.0, -5.0, f64::INFINITY].map(|value| linear.place(value)), [100.0, 0.0, 100.0, 0.0]);
        let decades = decades([0.0, 0.3, 40.0, f64::INFINITY].into_iter(), 0.0, 300.0);
        assert_eq!(decades.ticks(), [0.1, 1.0, 10.0, 100.0]);
        assert!((decades.place(1.0) - 100.0).abs() < 1e-9 && decades.place(0.0) == 0.0);
        assert_eq!(
            ["0.50", "10.0", "100", "0"].map(|it| tick(it.parse().expect("a number"))),
            ["0.5", "10", "100", "0"]
        );
    }
}
