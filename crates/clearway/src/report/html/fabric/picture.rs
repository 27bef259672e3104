//! Draws a network as SVG: links by load, hosts and switches where `place` has them, marks on the
//! most stalled ports.
//!
//! # Invariants
//! I1. The picture is well-formed whatever the report holds; numbers of a foreign file that make no
//!     sense are not drawn.

use std::fmt::Write;

use super::layout::{BOX, FabricLayout, Point, SwitchNames, WIDTH};
use super::{marked, step, text};
use crate::report::model::{FabricLink, PhaseLoad, ReportFabric};

/// Links between switches that are drawn: the busiest of those that a screen can tell apart.
const DRAWN_MAX: usize = 4000;
/// Width of a line with the highest rate, where few are drawn.
const LINE: f64 = 3.4;
/// More lines than this are thinner.
const LINES: f64 = 60.0;
/// Radius of a mark.
const MARK: f64 = 8.0;

/// One link as a curve of two ends and a point that it bends towards.
struct LinkCurve {
    ends: [Point; 2],
    bend: Point,
}

impl LinkCurve {
    /// Creates a curve from `a` to `b`: straight, unless it would run over devices of its own row
    /// or column.
    fn new(a: Point, b: Point, size: [f64; 2]) -> Self {
        let [dx, dy] = [b[0] - a[0], b[1] - a[1]];
        let middle = [(a[0] + b[0]) / 2.0, (a[1] + b[1]) / 2.0];
        let bend = if dy.abs() < 0.5 && dx.abs() > size[0] * 2.2 {
            [middle[0], middle[1] - (dx.abs() * 0.22).min(120.0) - BOX / 2.0]
        } else if dx.abs() < 0.5 && dy.abs() > BOX * 3.0 {
            [middle[0] + 12.0 + (dy.abs() * 0.09).min(50.0), middle[1]]
        } else {
            middle
        };
        Self { ends: [a, b], bend }
    }

    /// Returns the point at the fraction `t` of the way.
    fn at(&self, t: f64) -> Point {
        let [a, b] = self.ends;
        let u = 1.0 - t;
        [0, 1].map(|i| u * u * a[i] + 2.0 * u * t * self.bend[i] + t * t * b[i])
    }
}

/// Returns the picture of `fabric` under `load`.
pub(super) fn draw(fabric: &ReportFabric, load: &PhaseLoad) -> String {
    let places = FabricLayout::from_fabric(fabric);
    let mut svg = format!(
        "<svg class=\"load\" viewBox=\"0 0 1000 {:.0}\" role=\"img\" aria-label=\"{}: links by load\">\n",
        places.height,
        text(&fabric.name)
    );
    svg.push_str(&links(fabric, load, &places));
    svg.push_str(&hosts(fabric, load, &places));
    svg.push_str(&switches(fabric, &places));
    for ([x, y], caption) in &places.captions {
        let _ = writeln!(
            svg,
            "<text class=\"caption\" x=\"{x:.1}\" y=\"{:.1}\">{}</text>",
            y + 5.0,
            text(caption)
        );
    }
    svg.push_str(&marks(load, &places));
    svg.push_str("</svg>\n");
    svg
}

/// Returns the links of the picture with their loads, the busiest last and so on top.
fn by_load<'a>(fabric: &'a ReportFabric, load: &PhaseLoad) -> Vec<(&'a FabricLink, [f64; 2])> {
    let mut all: Vec<_> = fabric.links.iter().zip(load.links.iter().copied()).collect();
    all.sort_by(|(_, a), (_, b)| a[0].max(a[1]).total_cmp(&b[0].max(b[1])));
    all
}

fn links(fabric: &ReportFabric, load: &PhaseLoad, places: &FabricLayout) -> String {
    let hosts = fabric.hosts.len();
    let drawn = |link: &FabricLink| places.cell.is_none() || link.ends[0] as usize >= hosts;
    let all: Vec<_> = by_load(fabric, load).into_iter().filter(|(link, _)| drawn(link)).collect();
    let rate = |link: &FabricLink| link.gbps * f64::from(link.cables);
    let highest = all.iter().map(|(link, _)| rate(link)).fold(0.0, f64::max).max(1e-9);
    let line = LINE * (LINES / all.len().max(1) as f64).powf(0.3).clamp(0.4, 1.0);
    let mut out = String::from("<g class=\"links\">\n");
    for (link, [there, back]) in all.iter().skip(all.len().saturating_sub(DRAWN_MAX)) {
        let [Some(a), Some(b)] = link.ends.map(|end| places.device_position(end)) else { continue };
        let LinkCurve { ends: [a, b], bend } = LinkCurve::new(a, b, places.switch);
        let width = (line * (rate(link) / highest).max(0.0).sqrt()).clamp(0.5, line);
        let [from, to] = link.ends.map(|end| text(fabric.device(end)));
        let _ = writeln!(
            out,
            "<path class=\"l{}\" stroke-width=\"{width:.1}\" d=\"M{:.1} {:.1}Q{:.1} {:.1} {:.1} {:.1}\"><title>{from} to {to}: {there:.0} %; back: {back:.0} %</title></path>",
            step(there.max(*back)),
            a[0],
            a[1],
            bend[0],
            bend[1],
            b[0],
            b[1]
        );
    }
    out.push_str("</g>\n");
    out
}

fn hosts(fabric: &ReportFabric, load: &PhaseLoad, places: &FabricLayout) -> String {
    let mut out = String::new();
    let mut steps = vec![[0.0, 0.0]; fabric.hosts.len()];
    for (link, [there, back]) in by_load(fabric, load) {
        if let Some(known) = steps.get_mut(link.ends[0] as usize) {
            *known = [there, back];
        }
    }
    for ((name, at), [there, back]) in fabric.hosts.iter().zip(&places.hosts).zip(steps) {
        let (Some([x, y]), name, step) = (*at, text(name), step(there.max(back))) else { continue };
        let side = places.cell.map_or(12.0, |cell| (cell - 2.0).max(cell * 0.7));
        let (left, top) = (x - side / 2.0, y - side / 2.0);
        let _ = writeln!(
            out,
            "<rect class=\"host l{step}\" x=\"{left:.1}\" y=\"{top:.1}\" width=\"{side:.1}\" height=\"{side:.1}\"><title>{name} sends {there:.0} %, receives {back:.0} %</title></rect>"
        );
        if places.cell.is_none() {
            let _ = writeln!(out, "<text x=\"{x:.1}\" y=\"{:.1}\">{name}</text>", y + 23.0);
        }
    }
    out
}

fn switches(fabric: &ReportFabric, places: &FabricLayout) -> String {
    let mut out = String::new();
    let [width, height] = places.switch;
    for (switch, [x, y]) in fabric.switches.iter().zip(&places.switches) {
        let (name, left, top) = (text(&switch.name), x - width / 2.0, y - height / 2.0);
        let _ = writeln!(
            out,
            "<rect class=\"switch\" x=\"{left:.1}\" y=\"{top:.1}\" width=\"{width:.1}\" height=\"{height:.1}\" rx=\"{:.1}\"><title>{name}</title></rect>",
            height * 0.2
        );
        if places.named == SwitchNames::Yes {
            let _ = writeln!(out, "<text x=\"{x:.1}\" y=\"{:.1}\">{name}</text>", y + 4.0);
        }
    }
    out
}

/// Returns the numbers at the senders of the ports that stood still longest, each next to those
/// before it.
fn marks(load: &PhaseLoad, places: &FabricLayout) -> String {
    let mut out = String::new();
    let mut taken: Vec<Point> = Vec::new();
    for (i, port) in marked(load) {
        let [Some(from), Some(to)] = port.ends.map(|end| places.device_position(end)) else {
            continue;
        };
        let is_host = |end: u32| (end as usize) < places.hosts.len();
        let mut at = match port.ends.map(is_host) {
            [true, _] if places.cell.is_some() => from,
            [_, true] if places.cell.is_some() => to,
            // Bends do not depend on the direction.
            _ => LinkCurve::new(from, to, places.switch).at(0.2),
        };
        let [wide, high] = places.switch.map(|side| side / 2.0 + MARK);
        let on_name = |at: Point| {
            places
                .switches
                .iter()
                .any(|s| (s[0] - at[0]).abs() < wide && (s[1] - at[1]).abs() < high)
        };
        if places.named == SwitchNames::Yes && on_name(at) {
            at[1] -= high;
        }
        let inwards = if at[0] < WIDTH / 2.0 { MARK } else { -MARK };
        while taken.iter().any(|it| (it[0] - at[0]).hypot(it[1] - at[1]) < 2.0 * MARK) {
            at[0] += inwards;
        }
        at[1] = at[1].max(MARK + 1.0);
        taken.push(at);
        let _ = writeln!(
            out,
            "<g class=\"mark\"><circle cx=\"{:.1}\" cy=\"{:.1}\" r=\"{MARK}\"/><text x=\"{:.1}\" y=\"{:.1}\">{}</text></g>",
            at[0],
            at[1],
            at[0],
            at[1] + 4.0,
            i + 1
        );
    }
    out
}
