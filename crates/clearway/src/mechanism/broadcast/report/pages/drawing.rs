//! Draws broadcasts as SVG.
//!
//! # Invariants
//! I1. A drawing is well-formed whatever the report holds: only numbers that are finite get into it.

use std::fmt::Write;

use super::super::casting::{CastFilm, CastRun};
use super::{Filmed, MODE, label, lost};
use crate::report::html::drawing::{
    HALF, HALF_LEFT, LEFT, LETTER, Parted, RIGHT, ROW, WIDTH, colour, columns_named, decades, fitted, levels_named,
    line, linear, open, parted, tick, time, time_tick,
};
use crate::report::html::tables::number;
use crate::report::html::text;
use crate::report::model::Real;

/// Members that a picture of a way names.
const MEMBERS_MAX: usize = 32;
/// An end foretold so many times later than the last one came is drawn at the border.
const FORETOLD_MAX: f64 = 1.5;
/// A source of less than this part of a member's symbols is not drawn: a repair now and then.
const SOURCE_MIN: f64 = 0.002;

/// What was cast under one loss and of one length.
pub(super) struct Row {
    pub(super) name: String,
    /// Colour, median and p99 of each mode, in seconds.
    pub(super) marks: Vec<(usize, f64, f64)>,
    /// Seconds that the link needs.
    pub(super) bound: f64,
    /// Seconds of the bare exchange.
    pub(super) bare: Option<f64>,
}

/// A row for each length and loss, a dot for each mode, on a logarithmic scale of seconds.
pub(super) fn times(rows: &[Row]) -> String {
    let height = rows.len() as f64 * ROW + 44.0;
    let bottom = height - 28.0;
    let longest = rows.iter().map(|row| row.name.chars().count()).max().unwrap_or(0) as f64;
    let left = LEFT.max(longest * LETTER + 16.0);
    // The bound of a few bytes is far below anything that happens.
    let of_row = |row: &Row| {
        let bound = Some(row.bound).filter(|_| row.bare.is_none());
        row.marks.iter().flat_map(|(_, p50, p99)| [*p50, *p99]).chain(row.bare).chain(bound).collect::<Vec<_>>()
    };
    let x = decades(rows.iter().flat_map(of_row), left, WIDTH - RIGHT);
    let mut svg = open([WIDTH, height], "Time until all receivers have an object, by length, loss and mode");
    svg.push_str(&columns_named(&x, 8.0, bottom, &time_tick));
    for (n, row) in rows.iter().enumerate() {
        let y = 12.0 + (n as f64 + 0.5) * ROW;
        let _ = writeln!(
            svg,
            "<text class=\"end\" x=\"{:.1}\" y=\"{:.1}\">{}</text>",
            left - 8.0,
            y + 4.0,
            text(&row.name)
        );
        if row.bound >= x.low {
            let _ = writeln!(svg, "<path class=\"line\" d=\"M{:.1} {:.1}v26\"/>", x.place(row.bound), y - 13.0);
        }
        if let Some(bare) = row.bare {
            let _ = writeln!(svg, "<path class=\"bare\" d=\"M{:.1} {:.1}v26\"/>", x.place(bare), y - 13.0);
        }
        let step = (ROW - 12.0) / row.marks.len().max(1) as f64;
        for (m, (place, p50, p99)) in row.marks.iter().enumerate() {
            let at = y + (m as f64 - (row.marks.len() as f64 - 1.0) / 2.0) * step;
            let [from, until] = [x.place(*p50), x.place(*p99)];
            let _ = writeln!(
                svg,
                "<g class=\"{}\"><path class=\"thin\" d=\"M{from:.1} {at:.1}H{until:.1}\"/><circle class=\"dot\" cx=\"{from:.1}\" cy=\"{at:.1}\" r=\"4\"/></g>",
                colour(*place)
            );
        }
    }
    svg + "</svg>\n"
}

/// Milliseconds until the last receiver of `film` was whole.
fn end_of(film: &CastFilm) -> f64 {
    film.whole_ms.iter().flatten().map(|ms| ms.get()).filter(|ms| ms.is_finite()).fold(0.0, f64::max)
}

/// Receivers of `film` in the order in which they were whole; those that never were come last.
fn by_end(film: &CastFilm) -> Vec<usize> {
    let mut order: Vec<usize> = (0..film.progress.len()).collect();
    let end = |receiver: &usize| film.whole_ms.get(*receiver).copied().flatten().map_or(f64::INFINITY, Real::get);
    order.sort_by(|a, b| end(a).total_cmp(&end(b)));
    order
}

/// Percent that was there, receiver by receiver, over milliseconds.
pub(super) fn sequence(films: &[Filmed<'_>], bound_ms: f64) -> String {
    let longest =
        films.iter().map(|(_, _, film)| end_of(film)).fold(if bound_ms.is_finite() { bound_ms } else { 0.0 }, f64::max);
    let (x, y) = (linear(0.0, longest * 1.02, HALF_LEFT, HALF - RIGHT), linear(0.0, 100.0, 230.0, 14.0));
    let mut svg = open([HALF, 260.0], "Symbols that receivers had, over time");
    svg.push_str(&levels_named(&y, [HALF_LEFT, HALF - RIGHT], &|part| format!("{part}\u{202f}%")));
    svg.push_str(&columns_named(&x, 14.0, 230.0, &|ms| time_tick(ms / 1e3)));
    let _ = writeln!(svg, "<path class=\"line\" d=\"M{:.1} 14V230\"/>", x.place(bound_ms));
    for (place, _, film) in films {
        let order = by_end(film);
        let curve = |receiver: usize| {
            line(film.progress[receiver].iter().map(|(at, part)| (x.place(at.get()), y.place(part.get()))))
        };
        let _ = writeln!(svg, "<g class=\"{}\">", colour(*place));
        let faint: String = order.iter().map(|receiver| curve(*receiver)).collect();
        let _ = writeln!(svg, "<path class=\"curve faint\" d=\"{faint}\"/>");
        if let (Some(median), Some(last)) = (order.get(order.len().saturating_sub(1) / 2), order.last()) {
            let _ = writeln!(
                svg,
                "<path class=\"curve\" d=\"{}\"/><path class=\"curve last\" d=\"{}\"/>",
                curve(*median),
                curve(*last)
            );
        }
        for (at, way) in &film.switches {
            let at = x.place(at.get());
            let _ = writeln!(
                svg,
                "<path class=\"switch\" d=\"M{at:.1} 14V230\"/><text x=\"{:.1}\" y=\"26\">{}</text>",
                at + 4.0,
                text(way)
            );
        }
        svg.push_str("</g>\n");
    }
    svg + "</svg>\n"
}

/// Letters of a name beside a small drawing: more would leave the plot less than half of it.
const NAME_MAX: usize = 24;

/// When each receiver had a quarter, half, three quarters and all.
pub(super) fn quarters(place: usize, names: &[String], film: &CastFilm) -> String {
    let receivers = film.progress.len().min(names.len());
    let row = (ROW * 8.0 / receivers.max(8) as f64).max(6.0);
    let height = receivers as f64 * row + 44.0;
    let names: Vec<String> = names.iter().map(|name| fitted(name, NAME_MAX)).collect();
    let longest = names.iter().map(|name| name.chars().count()).max().unwrap_or(0) as f64;
    let left = HALF_LEFT.max(longest * LETTER + 16.0);
    let x = linear(0.0, end_of(film), left, HALF - RIGHT);
    let mut svg = open([HALF, height], "When receivers had parts of the object");
    svg.push_str(&columns_named(&x, 8.0, height - 28.0, &|ms| time_tick(ms / 1e3)));
    for (n, (name, progress)) in names.iter().zip(&film.progress).enumerate() {
        let y = 8.0 + (n as f64 + 0.5) * row;
        let whole = film.whole_ms.get(n).copied().flatten().map_or(x.place(f64::INFINITY), |ms| x.place(ms.get()));
        if row > 12.0 || n == 0 {
            let _ =
                writeln!(svg, "<text class=\"end\" x=\"{:.1}\" y=\"{:.1}\">{}</text>", left - 8.0, y + 4.0, text(name));
        }
        let reached = |part: f64| progress.iter().find(|(_, have)| have.get() >= part).map(|(at, _)| x.place(at.get()));
        let marks = [25.0, 50.0, 75.0].into_iter().filter_map(reached);
        let marks: String = marks.map(|at| format!("M{at:.1} {:.1}v{:.1}", y - row * 0.35, row * 0.7)).collect();
        let _ = writeln!(
            svg,
            "<g class=\"{}\"><path class=\"thin\" d=\"M{left:.1} {y:.1}H{whole:.1}\"/><path class=\"median\" d=\"{marks}\"/><circle class=\"dot\" cx=\"{whole:.1}\" cy=\"{y:.1}\" r=\"4\"/></g>",
            colour(place)
        );
    }
    svg + "</svg>\n"
}

/// When the slowest receiver would be whole, by what it had so far.
pub(super) fn foretold(films: &[Filmed<'_>]) -> String {
    let longest = films.iter().map(|(_, _, film)| end_of(film)).fold(0.0, f64::max);
    let x = linear(0.0, longest, HALF_LEFT, HALF - RIGHT);
    let y = linear(0.0, longest * FORETOLD_MAX, 230.0, 14.0);
    let mut svg = open([HALF, 260.0], "The end as foretold, over time");
    svg.push_str(&levels_named(&y, [HALF_LEFT, HALF - RIGHT], &|ms| time_tick(ms / 1e3)));
    svg.push_str(&columns_named(&x, 14.0, 230.0, &|ms| time_tick(ms / 1e3)));
    for (place, _, film) in films {
        let Some(last) = by_end(film).last().copied() else { continue };
        let foretold = |(at, part): &(Real, Real)| {
            let end = at.get() / (part.get() / 100.0);
            (part.get() > 0.0 && end.is_finite()).then(|| (x.place(at.get()), y.place(end)))
        };
        let _ = writeln!(
            svg,
            "<g class=\"{}\"><path class=\"curve\" d=\"{}\"/><path class=\"curve last\" d=\"M{HALF_LEFT} {:.1}H{:.1}\"/></g>",
            colour(*place),
            line(film.progress[last].iter().filter_map(foretold)),
            y.place(end_of(film)),
            HALF - RIGHT
        );
    }
    svg + "</svg>\n"
}

/// Why symbols of `run` left again; nothing where none was missed and none came twice.
pub(super) fn causes_of(run: &CastRun) -> Option<Parted> {
    let symbols = run.symbols;
    let percent = |count: u64| 100.0 * count as f64 / symbols.needed.max(1) as f64;
    let parts = [symbols.lost, symbols.damaged, symbols.early, symbols.doubled].map(percent);
    let again = Real::or_infinite(percent(symbols.repairs));
    let [bytes, loss, mode] = [super::BYTES, super::LOSS, MODE].map(|key| label(run, key).unwrap_or_default());
    (parts.iter().sum::<f64>() > 0.0 || symbols.repairs > 0).then(|| Parted {
        name: format!("{bytes}, {}, {mode}", lost(loss)),
        parts: parts.to_vec(),
        note: format!("again {}\u{202f}%", number(again)),
    })
}

/// A bar for each cast.
pub(super) fn causes(rows: &[Parted]) -> String {
    let most = rows.iter().map(|row| row.parts.iter().sum::<f64>()).fold(0.0, f64::max);
    parted("Why symbols were missed", rows, most, "\u{202f}%")
}

/// Who gave what to whom.
pub(super) fn way(place: usize, hosts: &[String], run: &CastRun, film: &CastFilm) -> String {
    let places = Places::of(hosts.len().min(MEMBERS_MAX), run);
    let mut svg = open([HALF, places.height], "From whom symbols came");
    let _ = writeln!(svg, "<g class=\"{}\">", colour(place));
    let is_group = run.way == "multicast";
    let group = (HALF / 2.0, places.at.first().map_or(0.0, |(_, y)| y + LEVEL / 2.0));
    for (to, sources) in run.sources.iter().enumerate().take(places.at.len()) {
        let all = sources.iter().sum::<u64>().max(1) as f64;
        for (from, count) in sources.iter().enumerate().take(places.at.len()) {
            let part = *count as f64 / all;
            if part < SOURCE_MIN || from == to {
                continue;
            }
            let (x, y) = if is_group && from == 0 { group } else { places.at[from] };
            let (a, b) = places.at[to];
            let _ = writeln!(
                svg,
                "<path class=\"way\" stroke-width=\"{:.1}\" d=\"M{x:.1} {y:.1}L{a:.1} {b:.1}\"/>",
                0.6 + 4.0 * part
            );
        }
    }
    if is_group {
        let (x, y) = places.at.first().copied().unwrap_or_default();
        let _ = writeln!(
            svg,
            "<path class=\"way\" stroke-width=\"4.6\" d=\"M{x:.1} {y:.1}L{:.1} {:.1}\"/><text class=\"knot\" x=\"{:.1}\" y=\"{:.1}\">group</text>",
            group.0,
            group.1,
            group.0 + 12.0,
            group.1 - 6.0
        );
    }
    for (host, (x, y)) in places.at.iter().enumerate() {
        let whole = host.checked_sub(1).and_then(|receiver| film.whole_ms.get(receiver).copied().flatten());
        let below = match (host, whole) {
            (0, _) => "root".to_owned(),
            (_, Some(ms)) => time(ms.get() / 1e3),
            (_, None) => "never".to_owned(),
        };
        let _ = writeln!(
            svg,
            "<circle class=\"dot\" cx=\"{x:.1}\" cy=\"{y:.1}\" r=\"5\"/><text class=\"knot middle\" x=\"{x:.1}\" y=\"{:.1}\">{}</text><text class=\"knot middle\" x=\"{x:.1}\" y=\"{:.1}\">{below}</text>",
            y + 20.0,
            text(&fitted(&hosts[host], places.letters[host])),
            y + 35.0
        );
    }
    let rest = hosts.len() - places.at.len();
    if rest > 0 {
        let _ = writeln!(svg, "<text class=\"end\" x=\"{:.1}\" y=\"14\">and {rest} more</text>", HALF - RIGHT);
    }
    svg + "</g></svg>\n"
}

/// Between two levels of a way.
const LEVEL: f64 = 92.0;
/// Members of one level beside each other: their times can be read.
const BESIDE: usize = 8;

/// Where members of a way are drawn.
struct Places {
    at: Vec<(f64, f64)>,
    /// Letters of each one's name that there is room for.
    letters: Vec<usize>,
    height: f64,
}

impl Places {
    /// Each below the one that most of its symbols came from; a level with many takes several rows.
    fn of(members: usize, run: &CastRun) -> Self {
        let elder = |member: usize| {
            let sources = run.sources.get(member)?;
            let most = sources.iter().enumerate().filter(|(from, count)| *from != member && **count > 0);
            most.max_by_key(|(from, count)| (**count, usize::MAX - from)).map(|(from, _)| from)
        };
        let depth = |member: usize| {
            let (mut depth, mut at) = (0, member);
            while at != 0 && depth < members {
                depth += 1;
                at = elder(at).unwrap_or(0);
            }
            depth
        };
        let mut levels: Vec<Vec<usize>> = Vec::new();
        for member in 0..members {
            let depth = depth(member);
            if levels.len() <= depth {
                levels.resize(depth + 1, Vec::new());
            }
            levels[depth].push(member);
        }
        // A chain is read along a line and not down a page.
        let is_chain = members > 2 && levels.iter().all(|level| level.len() <= 1);
        let rows: Vec<Vec<usize>> = match is_chain {
            true => levels.concat().chunks(BESIDE).map(<[usize]>::to_vec).collect(),
            false => levels.iter().flat_map(|level| level.chunks(BESIDE).map(<[usize]>::to_vec)).collect(),
        };
        let mut at = vec![(0.0, 0.0); members];
        let mut letters = vec![0; members];
        for (row, line) in rows.iter().enumerate() {
            for (n, member) in line.iter().enumerate() {
                let room = (HALF - 8.0) / line.len() as f64;
                at[*member] = ((n as f64 + 0.5) * room + 4.0, 16.0 + row as f64 * LEVEL);
                // Two stay free between names: the sign of what was left out is wide.
                letters[*member] = ((room / LETTER) as usize).saturating_sub(2).min(NAME_MAX);
            }
        }
        Self { at, letters, height: rows.len() as f64 * LEVEL - 36.0 }
    }
}

/// Objects that went out of the root, into receivers, out of them and into the root.
fn carried(run: &CastRun) -> [f64; 4] {
    let objects = |bytes: u64| bytes as f64 / (run.bytes.max(1) as f64 * f64::from(run.objects.max(1)));
    let [out, back] = run.links.first().copied().unwrap_or_default().map(objects);
    let rest = run.links.get(1..).unwrap_or_default();
    let sum = |way: usize| rest.iter().map(|link| objects(link[way])).sum::<f64>();
    [out, sum(1), sum(0), back]
}

/// The busiest direction of any link, in objects.
fn busiest(run: &CastRun) -> f64 {
    let most = run.links.iter().flatten().copied().max().unwrap_or(0);
    most as f64 / (run.bytes.max(1) as f64 * f64::from(run.objects.max(1)))
}

/// What `runs` put on the links of `hosts`, beside unicast.
pub(super) fn links(runs: &[&CastRun], hosts: usize) -> String {
    let receivers = hosts.saturating_sub(1) as f64;
    let note = |busiest: f64| format!("busiest {}", number(Real::or_infinite(busiest)));
    let row = |run: &&CastRun| Parted {
        name: label(run, MODE).unwrap_or_default().to_owned(),
        parts: carried(run).to_vec(),
        note: note(busiest(run)),
    };
    let mut rows: Vec<Parted> = runs.iter().map(row).collect();
    rows.push(Parted { name: "unicast to all".to_owned(), parts: vec![receivers, receivers], note: note(receivers) });
    let most = rows.iter().map(|row| row.parts.iter().sum::<f64>()).fold(0.0, f64::max);
    parted("Bytes on all links, by mode", &rows, most, "")
}

/// What the mode that loads links least saves, in a sentence.
pub(super) fn saved(runs: &[&CastRun], hosts: usize) -> String {
    let unicast = 2.0 * hosts.saturating_sub(1) as f64;
    let all = runs.iter().map(|run| (carried(run).iter().sum::<f64>(), busiest(run), run));
    let Some((least, busy, run)) = all.min_by(|(a, _, _), (b, _, _)| a.total_cmp(b)) else { return String::new() };
    format!(
        "Unicast to all would put the object on links {} times, {} of them on the root\u{2019}s own; by {} it is {} and {}: {}\u{202f}% of the bytes are saved for others.",
        tick(unicast),
        tick(unicast / 2.0),
        text(label(run, MODE).unwrap_or_default()),
        tick(least),
        tick(busy),
        tick((100.0 * (1.0 - least / unicast)).max(0.0))
    )
}

#[cfg(test)]
mod tests {
    use super::super::super::casting::CastSymbols;
    use super::*;

    fn run(sources: Vec<Vec<u64>>) -> CastRun {
        CastRun {
            labels: Default::default(),
            bytes: 0,
            objects: 0,
            way: "multicast".to_owned(),
            symbols: CastSymbols::default(),
            links: vec![[u64::MAX, 0]],
            sources,
            film: None,
        }
    }

    #[test]
    fn drawings__of_nothing_and_of_nonsense_are_well_formed() {
        let (endless, hosts) = (Real::INFINITE, vec!["<".to_owned(); 3]);
        let film = CastFilm {
            object: 0,
            whole_ms: vec![Some(endless), None],
            switches: vec![(endless, "<".to_owned())],
            progress: vec![vec![(endless, endless)], Vec::new()],
        };
        // Each says that its symbols came from the other one.
        let odd = run(vec![vec![1, 0, 5], vec![0, 0, 9], vec![0, 9, 0]]);
        let row =
            Row { name: "<".to_owned(), marks: vec![(9, f64::INFINITY, 0.0)], bound: f64::INFINITY, bare: Some(0.0) };
        let films = [(7, &odd, &film)];
        let drawings = [
            times(&[row]),
            times(&[]),
            sequence(&films, f64::INFINITY),
            sequence(&[], 0.0),
            quarters(0, &hosts, &film),
            foretold(&films),
            causes(&[]),
            way(0, &hosts, &odd, &film),
            way(0, &[], &run(Vec::new()), &film),
            links(&[&odd], 0),
        ];
        for drawing in drawings {
            assert!(drawing.starts_with("<svg") && drawing.ends_with("</svg>\n"), "{drawing}");
            assert!(!drawing.contains("NaN") && !drawing.contains("inf"), "{drawing}");
            assert!(!drawing.contains("><<"), "{drawing}");
        }
    }

    #[test]
    fn places__names_beside_each_other_have_room() {
        let wide = Places::of(9, &run(std::iter::once(vec![]).chain((1..9).map(|_| vec![9])).collect()));
        assert!(
            wide.letters[1..].iter().all(|letters| *letters as f64 * LETTER <= (HALF - 8.0) / 8.0 - 2.0 * LETTER),
            "of eight"
        );
        for (x, letters) in wide.at.iter().map(|(x, _)| *x).zip(&wide.letters) {
            let half = *letters as f64 * LETTER / 2.0;
            assert!(x - half >= 0.0 && x + half <= HALF, "{x}");
        }
    }

    #[test]
    fn places__a_chain_is_one_line_and_a_tree_has_levels() {
        let chain = Places::of(3, &run(vec![vec![], vec![9], vec![0, 9]]));
        assert!(chain.at.iter().all(|(_, y)| *y == chain.at[0].1) && chain.at[0].0 < chain.at[1].0);
        let tree = Places::of(4, &run(vec![vec![], vec![9], vec![9], vec![1, 0, 8]]));
        let levels: Vec<f64> = tree.at.iter().map(|(_, y)| *y).collect();
        assert!(levels[0] < levels[1] && levels[1] == levels[2] && levels[2] < levels[3], "{levels:?}");
    }
}
