//! Draws charts: axes with their lines and names, shapes at values instead of places, their legend,
//! and the figure around them.
//!
//! # Model
//! An [`Axis`] maps values to a share of its length and is the same for all charts that are
//! compared. A [`Chart`] has one across and one upwards, or a row for each of some names in place
//! of the second. Margins are as wide as the names in them need.
//!
//! # Invariants
//! I1. A drawing is well-formed whatever the report holds: only numbers that are finite get into
//!     it, and text is escaped.
//! I2. No value leaves the plot: what is beyond an end of an axis, or is no number, is drawn at the
//!     border.
//! I3. No name of an axis or a mark covers another one.

use std::fmt::Write;

use super::tables::number;
use super::text;
use crate::report::model::ExtendedReal;

/// Width of a drawing, in its own units: about the pixels of a wide window, so that letters are as
/// large as others.
pub(crate) const WIDTH: f64 = 1000.0;
/// Width of a drawing that has a neighbour.
pub(crate) const HALF: f64 = 480.0;
/// Height of a row with a name of its own.
pub(crate) const ROW: f64 = 34.0;
/// Width of a letter, about.
pub(crate) const LETTER: f64 = 7.0;
/// Height of a line of text.
const LINE: f64 = 14.0;
/// Height of a plot that has no rows.
pub(crate) const HEIGHT: f64 = 216.0;
/// Above the plot: a line of names of marks.
const TOP: f64 = 16.0;
/// Below and right of the plot: a line of names, and half a name of the last tick.
const BELOW: f64 = 30.0;
/// The least left of the plot: short numbers, so that drawings below each other begin alike.
const LEFT: f64 = 64.0;
/// Between a name and what it stands at.
const GAP: f64 = 8.0;
/// The part of a drawing that names left of the plot may take: more would leave the plot less than
/// half.
const NAMES: f64 = 0.36;
/// Colours and shades of parts in the style sheet.
const COLOURS: usize = 7;
const SHADES: usize = 5;

/// Values from one end to the other, and the names of some.
#[derive(Clone)]
pub(crate) struct Axis {
    pub(crate) low: f64,
    pub(crate) high: f64,
    is_logarithmic: bool,
    ticks: Vec<f64>,
    name: fn(f64) -> String,
    unit: &'static str,
}

/// Returns an axis of equal steps, with a handful of round ticks.
pub(crate) fn linear(low: f64, high: f64) -> Axis {
    let low = if low.is_finite() { low } else { 0.0 };
    let high = if high.is_finite() && high > low { high } else { low + 1.0 };
    let span = high - low;
    let step = 10f64.powf((span / 4.0).log10().floor());
    let step = [1.0, 2.0, 5.0, 10.0]
        .map(|n| n * step)
        .into_iter()
        .find(|step| span / step <= 5.0)
        .unwrap_or(span);
    let first = (low / step).ceil() as i64;
    let ticks = (first..)
        .map(|n| n as f64 * step)
        .take_while(|value| *value <= high + step * 1e-6)
        .take(12)
        .collect();
    Axis { low, high, is_logarithmic: false, ticks, name: tick, unit: "" }
}

/// Returns a logarithmic axis from `low` to `high`, which are positive, without ticks.
pub(crate) fn logarithmic(low: f64, high: f64) -> Axis {
    Axis { low, high, is_logarithmic: true, ticks: Vec::new(), name: tick, unit: "" }
}

/// Returns a logarithmic axis of the whole decades that hold `values`, with a tick at each.
pub(crate) fn decades(values: impl Iterator<Item = f64>) -> Axis {
    let (low, high) = values
        .filter(|value| value.is_finite() && *value > 0.0)
        .fold((f64::INFINITY, 0.0f64), |(low, high), value| (low.min(value), high.max(value)));
    let (low, high) = if low > high { (1.0, 10.0) } else { (low, high) };
    let low = (low.log10() + 1e-9).floor() as i32;
    let high = ((high.log10() - 1e-9).ceil() as i32).max(low + 1);
    logarithmic(10f64.powi(low), 10f64.powi(high))
        .at((low..=high).map(|exponent| 10f64.powi(exponent)).collect())
}

impl Axis {
    /// Sets the ticks.
    pub(crate) fn at(self, ticks: Vec<f64>) -> Self {
        Self { ticks, ..self }
    }

    /// Sets what a tick is called.
    pub(crate) fn named(self, name: fn(f64) -> String) -> Self {
        Self { name, ..self }
    }

    /// Sets what stands behind the number of a tick.
    pub(crate) fn unit(self, unit: &'static str) -> Self {
        Self { unit, ..self }
    }

    /// Returns where `value` is, from 0 at the low end to 1 at the high one.
    pub(crate) fn share(&self, value: f64) -> f64 {
        let value = if value.is_finite() { value.clamp(self.low, self.high) } else { self.high };
        match self.is_logarithmic {
            true => (value / self.low).ln() / (self.high / self.low).ln().max(1e-12),
            false => (value - self.low) / (self.high - self.low).max(1e-12),
        }
    }

    fn names(&self) -> impl Iterator<Item = (f64, String)> + '_ {
        self.ticks.iter().map(|value| (*value, (self.name)(*value) + self.unit))
    }
}

/// Shortens `name` to at most `letters`. The end stays, which tells hosts apart, without the domain
/// that they share.
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

/// Writes a number without zeros that say nothing.
pub(crate) fn tick(value: f64) -> String {
    let shown = number(ExtendedReal::or_infinite(value));
    if shown.contains('.') {
        shown.trim_end_matches('0').trim_end_matches('.').to_owned()
    } else {
        shown
    }
}

/// Writes seconds with the unit that suits them.
pub(crate) fn time(seconds: f64) -> String {
    let (value, unit) = in_unit(seconds);
    format!("{}\u{202f}{unit}", number(ExtendedReal::or_infinite(value)))
}

/// Writes the seconds of a tick.
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

/// Returns the style class of what stands at `place` of a list: it keeps its colour through the
/// page.
pub(crate) fn colour(place: usize) -> String {
    format!("q{}", place % COLOURS)
}

/// Writes a name behind a swatch of the colour of its place.
pub(crate) fn coloured(place: usize, name: &str) -> String {
    format!("<span class=\"queue {}\">{}</span>", colour(place), text(name))
}

/// Returns the width of the longest of `names`, but at least `least`.
fn margin<'a>(names: impl Iterator<Item = &'a String>, least: f64) -> f64 {
    names.map(|name| width_of(name) + 2.0 * GAP).fold(least, f64::max)
}

fn width_of(name: &str) -> f64 {
    name.chars().count() as f64 * LETTER
}

/// A drawing under construction; its shapes stand at values of its axes.
pub(crate) struct Chart {
    svg: String,
    has_series: bool,
    width: f64,
    x: Axis,
    y: Axis,
    /// Left, upper, right and lower end of the plot.
    plot: [f64; 4],
    /// Where names of marks stand: from, until, line.
    taken: Vec<[f64; 3]>,
}

impl Chart {
    /// Begins a chart of values `y` over `x`. A screen reader announces it as `label`.
    pub(crate) fn new(label: &str, width: f64, x: &Axis, y: &Axis) -> Self {
        let names: Vec<(f64, String)> = y.names().collect();
        let plot =
            [margin(names.iter().map(|(_, name)| name), LEFT), TOP, width - BELOW, TOP + HEIGHT];
        let mut chart = Self::plain(label, [width, TOP + HEIGHT + BELOW], plot, [x, y]);
        for (value, name) in names {
            chart.level("grid", value);
            chart.text("end", (x.low, value), [-GAP, 4.0], &name);
        }
        chart.columns();
        chart
    }

    /// Begins a chart of a row of `height` for each of `names`, over `x`, with room for the longest
    /// of `notes` behind it.
    pub(crate) fn rows(
        label: &str,
        width: f64,
        [names, notes]: [&[String]; 2],
        height: f64,
        x: &Axis,
    ) -> Self {
        let names: Vec<String> =
            names.iter().map(|name| fitted(name, (width * NAMES / LETTER) as usize)).collect();
        let rows = names.len() as f64;
        let bottom = TOP + rows * height;
        let plot = [margin(names.iter(), LEFT), TOP, width - margin(notes.iter(), BELOW), bottom];
        let mut chart = Self::plain(label, [width, bottom + BELOW], plot, [x, &linear(-rows, 0.0)]);
        for (n, name) in names.iter().enumerate().step_by((LINE / height).ceil() as usize) {
            chart.text("end", (x.low, row(n)), [-GAP, 4.0], name);
        }
        chart.columns();
        chart
    }

    /// Begins a drawing of `size` whose axes have no lines; they end at the borders of `plot`.
    pub(crate) fn plain(label: &str, size: [f64; 2], plot: [f64; 4], [x, y]: [&Axis; 2]) -> Self {
        let svg = format!(
            "<div class=\"scroll\"><svg class=\"drawing\" viewBox=\"0 0 {:.0} {:.0}\" role=\"img\" aria-label=\"{}\">\n",
            size[0],
            size[1],
            text(label)
        );
        Self {
            svg,
            has_series: false,
            width: size[0],
            x: x.clone(),
            y: y.clone(),
            plot,
            taken: Vec::new(),
        }
    }

    /// Draws the lines of the axis across, and the names for which there is room.
    fn columns(&mut self) {
        let mut free = 0.0;
        for (value, name) in self.x.names().collect::<Vec<_>>() {
            self.upright("grid", value, "");
            let [at, half] = [self.place(value, self.y.low)[0], width_of(&name) / 2.0];
            if at - half >= free {
                self.text("middle", (value, self.y.low), [0.0, 2.0 * GAP], &name);
                free = at + half + GAP;
            }
        }
    }

    fn place(&self, x: f64, y: f64) -> [f64; 2] {
        let [left, top, right, bottom] = self.plot;
        [left + self.x.share(x) * (right - left), bottom - self.y.share(y) * (bottom - top)]
    }

    /// Gives all shapes that follow the colour of `place`, until the next call.
    pub(crate) fn series(&mut self, place: usize) {
        let end = if self.has_series { "</g>\n" } else { "" };
        let _ = writeln!(self.svg, "{end}<g class=\"{}\">", colour(place));
        self.has_series = true;
    }

    /// Draws `lines` as one shape with `attributes`, where no style class says how it looks.
    pub(crate) fn lines<L: IntoIterator<Item = (f64, f64)>>(
        &mut self,
        attributes: &str,
        lines: impl Iterator<Item = L>,
    ) {
        let path = lines.map(|line| self.through(line.into_iter())).collect::<String>();
        let _ = writeln!(self.svg, "<path {attributes} d=\"{path}\"/>");
    }

    fn through(&self, points: impl Iterator<Item = (f64, f64)>) -> String {
        let place = |(n, (x, y))| {
            let [x, y] = self.place(x, y);
            format!("{}{x:.1} {y:.1}", if n == 0 { "M" } else { "L" })
        };
        points.enumerate().map(place).collect()
    }

    /// Draws a line of the style class `class` through `points`.
    pub(crate) fn line(&mut self, class: &str, points: impl IntoIterator<Item = (f64, f64)>) {
        self.lines(&format!("class=\"{class}\""), std::iter::once(points));
    }

    /// Draws a line at `y` through the whole plot.
    pub(crate) fn level(&mut self, class: &str, y: f64) {
        self.line(class, [(self.x.low, y), (self.x.high, y)]);
    }

    /// Draws a line at `x` through the whole plot, and writes `name` above it or, where another
    /// name is, below that.
    pub(crate) fn upright(&mut self, class: &str, x: f64, name: &str) {
        self.line(class, [(x, self.y.low), (x, self.y.high)]);
        let half = width_of(name) / 2.0;
        let at = self.place(x, self.y.low)[0];
        let middle = at.min(self.width - half).max(half);
        let mut down = -4.0;
        while self
            .taken
            .iter()
            .any(|it| it[2] == down && it[0] < middle + half && it[1] > middle - half)
        {
            down += LINE;
        }
        if !name.is_empty() {
            self.taken.push([middle - half, middle + half, down]);
            self.text("knot middle", (x, self.y.high), [middle - at, down], name);
        }
    }

    /// Fills the area between the second and the third of `points` over the first.
    pub(crate) fn band(&mut self, points: &[(f64, f64, f64)]) {
        let there = points.iter().map(|(x, low, _)| (*x, *low));
        self.line("wash", there.chain(points.iter().rev().map(|(x, _, high)| (*x, *high))));
    }

    /// Draws a bar of `height` units around `y`, at least a hair wide.
    pub(crate) fn bar(&mut self, class: &str, y: f64, [from, until]: [f64; 2], height: f64) {
        let [[left, middle], [right, _]] = [self.place(from, y), self.place(until, y)];
        let (top, width) = (middle - height / 2.0, (right - left).max(1.0));
        let _ = writeln!(
            self.svg,
            "<rect class=\"{class}\" x=\"{left:.1}\" y=\"{top:.1}\" width=\"{width:.1}\" height=\"{height:.1}\"/>"
        );
    }

    /// Draws a mark of `height` units around a point.
    pub(crate) fn mark(&mut self, class: &str, (x, y): (f64, f64), height: f64) {
        let [x, y] = self.place(x, y);
        let _ = writeln!(
            self.svg,
            "<path class=\"{class}\" d=\"M{x:.1} {:.1}v{height:.1}\"/>",
            y - height / 2.0
        );
    }

    /// Draws a dot.
    pub(crate) fn dot(&mut self, (x, y): (f64, f64)) {
        let [x, y] = self.place(x, y);
        let _ = writeln!(self.svg, "<circle class=\"dot\" cx=\"{x:.1}\" cy=\"{y:.1}\" r=\"4\"/>");
    }

    /// Writes `words` this many units from a point; `class` says on which side: `end` left of it,
    /// `middle` around it.
    pub(crate) fn text(
        &mut self,
        class: &str,
        (x, y): (f64, f64),
        [right, down]: [f64; 2],
        words: &str,
    ) {
        let [x, y] = self.place(x, y);
        let (x, y, words) = (x + right, y + down, text(words));
        let _ =
            writeln!(self.svg, "<text class=\"{class}\" x=\"{x:.1}\" y=\"{y:.1}\">{words}</text>");
    }

    /// Ends the drawing.
    pub(crate) fn finish(self) -> String {
        self.svg + if self.has_series { "</g></svg></div>\n" } else { "</svg></div>\n" }
    }
}

/// Returns the value of the middle of the row `n`. Rows are counted from above.
pub(crate) fn row(n: usize) -> f64 {
    -(n as f64 + 0.5)
}

/// A bar of parts behind its name.
pub(crate) struct StackedBar {
    pub(crate) name: String,
    pub(crate) parts: Vec<f64>,
    /// Behind the bar.
    pub(crate) note: String,
}

/// Draws a bar for each of `rows`, over an axis from nothing to the longest, or to `most` where
/// that is more.
pub(crate) fn parted(label: &str, rows: &[StackedBar], most: f64, unit: &'static str) -> String {
    let sums = rows.iter().map(|row| row.parts.iter().sum::<f64>());
    let x = linear(0.0, sums.filter(|sum| sum.is_finite()).fold(most, f64::max)).unit(unit);
    let [names, notes]: [Vec<String>; 2] =
        [|row: &StackedBar| row.name.clone(), |row: &StackedBar| row.note.clone()]
            .map(|of| rows.iter().map(of).collect());
    let mut chart = Chart::rows(label, WIDTH, [&names, &notes], ROW, &x);
    for (n, StackedBar { parts, note, .. }) in rows.iter().enumerate() {
        let mut sum = 0.0;
        for (part, value) in parts.iter().enumerate().filter(|(_, value)| **value > 0.0) {
            chart.bar(&format!("c{}", part % SHADES), row(n), [sum, sum + value], 22.0);
            sum += value;
        }
        chart.text("", (sum, row(n)), [GAP, 4.0], note);
    }
    chart.finish()
}

/// Lists what the shades of [`parted`] mean, in the order of parts.
pub(crate) fn parts_legend(names: &[String]) -> String {
    let entry =
        |(n, name): (usize, &String)| sample(FULL, &format!("c{}", n % SHADES), &text(name));
    legend(names.iter().enumerate().map(entry))
}

/// Shapes of samples: a line along, a line down, a filled area.
pub(crate) const ALONG: &str = "M0 6H26";
pub(crate) const DOWN: &str = "M13 0V12";
const FULL: &str = "M0 0H26V12H0Z";

/// Writes `name`, which is markup, behind a sample of what is drawn with the style class `class`.
pub(crate) fn sample(shape: &str, class: &str, name: &str) -> String {
    format!(
        "<svg class=\"drawing\" width=\"26\" height=\"12\" aria-hidden=\"true\"><path class=\"{class}\" d=\"{shape}\"/></svg>{name}"
    )
}

/// Lists what marks mean; `entries` are markup.
pub(crate) fn legend(entries: impl Iterator<Item = String>) -> String {
    let entries: String = entries.map(|entry| format!("<li>{entry}</li>\n")).collect();
    format!("<ul class=\"legend\">\n{entries}</ul>\n")
}

/// Puts a drawing below its title and legend, and above what it shows. All are markup.
pub(crate) fn figure(title: &str, legend: &str, drawing: &str, caption: &str) -> String {
    let caption = if caption.is_empty() {
        String::new()
    } else {
        format!("<figcaption>{caption}</figcaption>\n")
    };
    format!("<figure>\n<h3>{title}</h3>\n{legend}{drawing}{caption}</figure>\n")
}

/// Puts figures side by side, below their legend; nothing where there are none.
pub(crate) fn pairs(legend: &str, figures: &str) -> String {
    if figures.is_empty() {
        String::new()
    } else {
        format!("{legend}<div class=\"pair\">\n{figures}</div>\n")
    }
}

/// Draws a bar for a cell of a table, in the colour of `place`: all numbers are percent of its
/// width.
pub(crate) fn cell_bar(
    place: usize,
    fill: f64,
    mark: Option<f64>,
    spread: Option<[f64; 2]>,
) -> String {
    let part = |class: &str, left: f64, width: Option<f64>| {
        let width = width.map_or_else(String::new, |width| format!(";width:{width:.2}%"));
        format!("<i class=\"{class}\" style=\"left:{left:.2}%{width}\"></i>")
    };
    let mark = mark.map_or_else(String::new, |mark| part("mark", mark, None));
    let spread =
        spread.map_or_else(String::new, |[low, high]| part("spread", low, Some(high - low)));
    let fill = part("fill", 0.0, Some(fill));
    format!(
        "<span class=\"share {}\" aria-hidden=\"true\">{fill}{mark}{spread}</span>",
        colour(place)
    )
}

/// Fails unless `drawings` are whole and hold nothing that is no number.
#[cfg(test)]
pub(crate) fn assert_well_formed(drawings: &[String]) {
    for drawing in drawings {
        assert!(
            drawing.starts_with("<div class=\"scroll\"><svg")
                && drawing.ends_with("</svg></div>\n"),
            "{drawing}"
        );
        assert!(
            !drawing.contains("NaN") && !drawing.contains("inf") && !drawing.contains("><<"),
            "{drawing}"
        );
        assert_eq!(drawing.matches("<g").count(), drawing.matches("</g>").count(), "{drawing}");
    }
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
    fn tick__has_no_zeros_that_say_nothing() {
        assert_eq!(
            ["0.50", "10.0", "100", "0"].map(|it| tick(it.parse().expect("a number"))),
            ["0.5", "10", "100", "0"]
        );
    }

    #[test]
    fn axis__has_round_ticks_and_keeps_everything_inside() {
        let linear = linear(0.0, 87.0);
        assert_eq!(linear.ticks, [0.0, 20.0, 40.0, 60.0, 80.0]);
        assert_eq!(
            [0.0, 87.0, -5.0, f64::INFINITY].map(|value| linear.share(value)),
            [0.0, 1.0, 0.0, 1.0]
        );
        let decades = decades([0.0, 0.3, 40.0, f64::INFINITY].into_iter());
        assert_eq!(decades.ticks, [0.1, 1.0, 10.0, 100.0]);
        assert!((decades.share(1.0) - 1.0 / 3.0).abs() < 1e-9 && decades.share(0.0) == 0.0);
    }

    #[test]
    fn axis__of_nonsense_has_an_end_and_few_ticks() {
        for axis in [linear(f64::NAN, f64::INFINITY), linear(3.0, 3.0), decades([].into_iter())] {
            assert!(axis.low < axis.high && axis.high.is_finite() && axis.ticks.len() < 12);
        }
    }

    #[test]
    fn chart__names_leave_each_other_room() {
        let x = linear(0.0, 100.0).at(vec![0.0, 1.0, 50.0, 51.0]);
        let mut chart = Chart::new("chart", HALF, &x, &linear(0.0, 1.0).at(Vec::new()));
        chart.upright("line", 20.0, "one name");
        chart.upright("line", 21.0, "another");
        chart.upright("line", 90.0, "far away");
        let lines: Vec<f64> = chart.taken.iter().map(|it| it[2]).collect();
        assert_eq!((lines[1] - lines[0], lines[2] - lines[0]), (LINE, 0.0));
        let drawing = chart.finish();
        assert!(drawing.contains(">50<") && !drawing.contains(">51<"), "{drawing}");
        assert_eq!(
            drawing.matches("class=\"grid\"").count(),
            4,
            "a tick without a name has its line"
        );
    }

    #[test]
    fn rows__that_are_low_leave_names_out() {
        let names: Vec<String> = (0..40).map(|n| format!("row {n}")).collect();
        let drawing = Chart::rows("rows", HALF, [&names, &[]], 6.0, &linear(0.0, 1.0)).finish();
        assert!(
            drawing.contains(">row 0<")
                && !drawing.contains(">row 1<")
                && drawing.contains(">row 3<"),
            "{drawing}"
        );
    }
}
