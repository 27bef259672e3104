//! Draws broadcasts as SVG.

use super::super::casting::{CastProgressSamples, CastRun};
use super::{MODE, SampledRun, label, lost};
use crate::report::html::drawing::{
    Axis, Chart, HALF, LETTER, ROW, StackedBar, WIDTH, decades, fitted, linear, parted, row, tick,
    time, time_tick,
};
use crate::report::html::tables::number;
use crate::report::html::text;
use crate::report::model::ExtendedReal;
use crate::report::numerals::length_shown;

/// Members that a picture of a way names.
const MEMBERS_MAX: usize = 32;
/// An end foretold this many times later than the last one came is drawn at the border.
const FORETOLD_MAX: f64 = 1.5;
/// A source of less than this part of a member's symbols is not drawn: a repair now and then.
const SOURCE_MIN: f64 = 0.002;
/// The least height of a receiver's row.
const RECEIVER: f64 = 6.0;
/// Receivers that have rows of the usual height.
const RECEIVERS: f64 = 8.0;

/// What was cast under one loss and of one length.
pub(super) struct CastRow {
    pub(super) name: String,
    /// Colour, median and p99 of each mode, in seconds.
    pub(super) marks: Vec<(usize, f64, f64)>,
    /// Seconds that the link needs.
    pub(super) bound: f64,
    /// Seconds of the bare exchange.
    pub(super) bare: Option<f64>,
}

/// Returns a row for each length and loss, a dot for each mode, on a logarithmic scale of seconds.
pub(super) fn times(rows: &[CastRow]) -> String {
    // The bound of a few bytes is far below anything that happens.
    let of_row = |row: &CastRow| {
        let bound = Some(row.bound).filter(|_| row.bare.is_none());
        row.marks
            .iter()
            .flat_map(|(_, p50, p99)| [*p50, *p99])
            .chain(row.bare)
            .chain(bound)
            .collect::<Vec<_>>()
    };
    let x = decades(rows.iter().flat_map(of_row)).named(time_tick);
    let names: Vec<String> = rows.iter().map(|row| row.name.clone()).collect();
    let label = "Time until all receivers have an object, by length, loss and mode";
    let mut chart = Chart::rows(label, WIDTH, [&names, &[]], ROW, &x);
    for (n, CastRow { marks, bound, bare, .. }) in rows.iter().enumerate() {
        if *bound >= x.low {
            chart.mark("line", (*bound, row(n)), ROW - 8.0);
        }
        if let Some(bare) = bare {
            chart.mark("bare", (*bare, row(n)), ROW - 8.0);
        }
        for (m, (place, p50, p99)) in marks.iter().enumerate() {
            // Two thirds of a row for all modes.
            let y = row(n) - ((m as f64 + 0.5) / marks.len() as f64 - 0.5) * 2.0 / 3.0;
            chart.series(*place);
            chart.line("thin", [(*p50, y), (*p99, y)]);
            chart.dot((*p50, y));
        }
    }
    chart.finish()
}

/// Returns the milliseconds until the last receiver of `samples` was whole.
fn end_of(samples: &CastProgressSamples) -> f64 {
    samples
        .whole_ms
        .iter()
        .flatten()
        .map(|ms| ms.get())
        .filter(|ms| ms.is_finite())
        .fold(0.0, f64::max)
}

/// Returns the receivers of `samples` in the order in which they were whole; those that never were
/// come last.
fn by_end(samples: &CastProgressSamples) -> Vec<usize> {
    let mut order: Vec<usize> = (0..samples.progress.len()).collect();
    let end = |receiver: &usize| {
        samples.whole_ms.get(*receiver).copied().flatten().map_or(f64::INFINITY, ExtendedReal::get)
    };
    order.sort_by(|a, b| end(a).total_cmp(&end(b)));
    order
}

/// Returns an axis of milliseconds.
fn milliseconds(until: f64) -> Axis {
    linear(0.0, until).named(|ms| time_tick(ms / 1e3))
}

/// Draws the percent that was there, receiver by receiver, over milliseconds.
pub(super) fn sequence(sampled: &[SampledRun<'_>], bound_ms: f64) -> String {
    let longest = sampled
        .iter()
        .map(|(_, _, samples)| end_of(samples))
        .fold(if bound_ms.is_finite() { bound_ms } else { 0.0 }, f64::max);
    let y = linear(0.0, 100.0).unit("\u{202f}%");
    let label = "Symbols that receivers had, over time";
    let mut chart = Chart::new(label, HALF, &milliseconds(longest * 1.02), &y);
    chart.upright("line", bound_ms, "");
    for (place, _, samples) in sampled {
        let order = by_end(samples);
        let curve = |receiver: usize| {
            samples.progress[receiver].iter().map(|(at, part)| (at.get(), part.get()))
        };
        chart.series(*place);
        chart.lines("class=\"curve faint\"", order.iter().map(|receiver| curve(*receiver)));
        if let (Some(median), Some(last)) =
            (order.get(order.len().saturating_sub(1) / 2), order.last())
        {
            chart.line("curve", curve(*median));
            chart.line("curve last", curve(*last));
        }
        for (at, way) in &samples.switches {
            chart.upright("switch", at.get(), way);
        }
    }
    chart.finish()
}

/// Draws when each receiver had a quarter, half, three quarters and all.
pub(super) fn quarters(place: usize, names: &[String], samples: &CastProgressSamples) -> String {
    let names = &names[..samples.progress.len().min(names.len())];
    let height = ROW * (RECEIVERS / names.len().max(1) as f64).min(1.0);
    let x = milliseconds(end_of(samples));
    let label = "When receivers had parts of the object";
    let mut chart = Chart::rows(label, HALF, [names, &[]], height.max(RECEIVER), &x);
    chart.series(place);
    for (n, progress) in samples.progress.iter().enumerate().take(names.len()) {
        let whole =
            samples.whole_ms.get(n).copied().flatten().map_or(f64::INFINITY, ExtendedReal::get);
        chart.line("thin", [(0.0, row(n)), (whole, row(n))]);
        for part in [25.0, 50.0, 75.0] {
            if let Some((at, _)) = progress.iter().find(|(_, have)| have.get() >= part) {
                chart.mark("median", (at.get(), row(n)), height * 0.7);
            }
        }
        chart.dot((whole, row(n)));
    }
    chart.finish()
}

/// Draws when the slowest receiver would be whole, by what it had so far.
pub(super) fn expected(sampled: &[SampledRun<'_>]) -> String {
    let longest = sampled.iter().map(|(_, _, samples)| end_of(samples)).fold(0.0, f64::max);
    let [x, y] = [longest, longest * FORETOLD_MAX].map(milliseconds);
    let mut chart = Chart::new("The end as foretold, over time", HALF, &x, &y);
    for (place, _, samples) in sampled {
        let Some(last) = by_end(samples).last().copied() else { continue };
        let expected = |(at, part): &(ExtendedReal, ExtendedReal)| {
            let end = at.get() / (part.get() / 100.0);
            (part.get() > 0.0 && end.is_finite()).then_some((at.get(), end))
        };
        chart.series(*place);
        chart.line("curve", samples.progress[last].iter().filter_map(expected));
        chart.level("curve last", end_of(samples));
    }
    chart.finish()
}

/// Returns why symbols of `run` left again; nothing where none was missed and none came twice.
pub(super) fn causes_of(run: &CastRun) -> Option<StackedBar> {
    let symbols = run.symbols;
    let percent = |count: u64| 100.0 * count as f64 / symbols.needed.max(1) as f64;
    let parts = [symbols.lost, symbols.damaged, symbols.early, symbols.doubled].map(percent);
    let again = ExtendedReal::or_infinite(percent(symbols.repairs));
    let [bytes, loss, mode] =
        [super::BYTES, super::LOSS, MODE].map(|key| label(run, key).unwrap_or_default());
    (parts.iter().sum::<f64>() > 0.0 || symbols.repairs > 0).then(|| StackedBar {
        name: format!("{}, {}, {mode}", length_shown(bytes), lost(loss)),
        parts: parts.to_vec(),
        note: format!("again {}\u{202f}%", number(again)),
    })
}

/// Returns a bar for each cast.
pub(super) fn causes(rows: &[StackedBar]) -> String {
    parted("Why symbols were missed", rows, 0.0, "\u{202f}%")
}

/// Draws who gave what to whom.
pub(super) fn way(
    place: usize,
    hosts: &[String],
    run: &CastRun,
    samples: &CastProgressSamples,
) -> String {
    let places = TreeLayout::new(hosts.len().min(MEMBERS_MAX), run);
    let members = places.at.len();
    let axes = [&linear(0.0, HALF), &linear(-places.height, 0.0)];
    let (size, plot) = ([HALF, places.height], [0.0, 0.0, HALF, places.height]);
    let mut chart = Chart::plain("From whom symbols came", size, plot, axes);
    chart.series(place);
    let root = places.at.first().copied().unwrap_or_default();
    let group = (run.way == "multicast").then_some((HALF / 2.0, root.1 - LEVEL / 2.0));
    let mut line = |from: (f64, f64), to: (f64, f64), part: f64| {
        let look = format!("class=\"way\" stroke-width=\"{:.1}\"", 0.6 + 4.0 * part);
        chart.lines(&look, std::iter::once([from, to]));
    };
    for (to, sources) in run.sources.iter().enumerate().take(members) {
        let all = sources.iter().sum::<u64>().max(1) as f64;
        for (from, count) in sources.iter().enumerate().take(members) {
            let part = *count as f64 / all;
            if part >= SOURCE_MIN && from != to {
                line(group.filter(|_| from == 0).unwrap_or(places.at[from]), places.at[to], part);
            }
        }
    }
    if let Some(group) = group {
        line(root, group, 1.0);
        chart.text("knot", group, [22.0, -3.0], "group");
    }
    for (host, at) in places.at.iter().copied().enumerate() {
        let whole = host
            .checked_sub(1)
            .and_then(|receiver| samples.whole_ms.get(receiver).copied().flatten());
        let below = match (host, whole) {
            (0, _) => "root".to_owned(),
            (_, Some(ms)) => time(ms.get() / 1e3),
            (_, None) => "never".to_owned(),
        };
        chart.dot(at);
        chart.text("knot middle", at, [0.0, 20.0], &fitted(&hosts[host], places.letters[host]));
        chart.text("knot middle", at, [0.0, 35.0], &below);
    }
    if hosts.len() > members {
        chart.text(
            "end",
            (HALF, 0.0),
            [-24.0, 14.0],
            &format!("and {} more", hosts.len() - members),
        );
    }
    chart.finish()
}

/// Between two levels of a way.
const LEVEL: f64 = 92.0;
/// Members of one level side by side: their times can be read.
const ROW_MAX: usize = 8;
/// Letters of a member's name; a longer one is shortened.
const NAME_MAX: usize = 24;

/// Where members of a way are drawn, from the upper left corner: what is lower is less.
struct TreeLayout {
    at: Vec<(f64, f64)>,
    /// Letters of each one's name that there is room for.
    letters: Vec<usize>,
    height: f64,
}

impl TreeLayout {
    /// Places each below the one that most of its symbols came from; a level with many takes
    /// several rows.
    fn new(members: usize, run: &CastRun) -> Self {
        let elder = |member: usize| {
            let sources = run.sources.get(member)?;
            let most =
                sources.iter().enumerate().filter(|(from, count)| *from != member && **count > 0);
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
            true => levels.concat().chunks(ROW_MAX).map(<[usize]>::to_vec).collect(),
            false => levels
                .iter()
                .flat_map(|level| level.chunks(ROW_MAX).map(<[usize]>::to_vec))
                .collect(),
        };
        let mut at = vec![(0.0, 0.0); members];
        let mut letters = vec![0; members];
        for (row, line) in rows.iter().enumerate() {
            for (n, member) in line.iter().enumerate() {
                let room = (HALF - 8.0) / line.len() as f64;
                at[*member] = ((n as f64 + 0.5) * room + 4.0, -16.0 - row as f64 * LEVEL);
                // Two stay free between names: the sign of what was left out is wide.
                letters[*member] = ((room / LETTER) as usize).saturating_sub(2).min(NAME_MAX);
            }
        }
        Self { at, letters, height: rows.len() as f64 * LEVEL - 36.0 }
    }
}

/// Returns how many objects went out of the root, into receivers, out of them and into the root.
fn carried(run: &CastRun) -> [f64; 4] {
    let objects =
        |bytes: u64| bytes as f64 / (run.bytes.max(1) as f64 * f64::from(run.objects.max(1)));
    let [out, back] = run.links.first().copied().unwrap_or_default().map(objects);
    let rest = run.links.get(1..).unwrap_or_default();
    let sum = |way: usize| rest.iter().map(|link| objects(link[way])).sum::<f64>();
    [out, sum(1), sum(0), back]
}

/// Returns the busiest direction of any link, in objects.
fn busiest(run: &CastRun) -> f64 {
    let most = run.links.iter().flatten().copied().max().unwrap_or(0);
    most as f64 / (run.bytes.max(1) as f64 * f64::from(run.objects.max(1)))
}

/// Returns what `runs` put on the links of `hosts`, compared with unicast.
pub(super) fn links(runs: &[&CastRun], hosts: usize) -> String {
    let receivers = hosts.saturating_sub(1) as f64;
    let note = |busiest: f64| format!("busiest {}", number(ExtendedReal::or_infinite(busiest)));
    let row = |run: &&CastRun| StackedBar {
        name: label(run, MODE).unwrap_or_default().to_owned(),
        parts: carried(run).to_vec(),
        note: note(busiest(run)),
    };
    let mut rows: Vec<StackedBar> = runs.iter().map(row).collect();
    rows.push(StackedBar {
        name: "unicast to all".to_owned(),
        parts: vec![receivers, receivers],
        note: note(receivers),
    });
    parted("Bytes on all links, by mode", &rows, 0.0, "")
}

/// Returns what the mode that loads links least saves, in a sentence.
pub(super) fn saved(runs: &[&CastRun], hosts: usize) -> String {
    let unicast = 2.0 * hosts.saturating_sub(1) as f64;
    let all = runs.iter().map(|run| (carried(run).iter().sum::<f64>(), busiest(run), run));
    let Some((least, busy, run)) = all.min_by(|(a, _, _), (b, _, _)| a.total_cmp(b)) else {
        return String::new();
    };
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
    use crate::report::html::drawing::assert_well_formed;

    fn run(sources: Vec<Vec<u64>>) -> CastRun {
        CastRun {
            labels: Default::default(),
            bytes: 0,
            objects: 0,
            way: "multicast".to_owned(),
            symbols: CastSymbols::default(),
            links: vec![[u64::MAX, 0]],
            sources,
            samples: None,
        }
    }

    #[test]
    fn drawings__of_nothing_and_of_nonsense_are_well_formed() {
        let (endless, hosts) = (ExtendedReal::INFINITE, vec!["<".to_owned(); 3]);
        let samples = CastProgressSamples {
            object: 0,
            whole_ms: vec![Some(endless), None],
            switches: vec![(endless, "<".to_owned())],
            progress: vec![vec![(endless, endless)], Vec::new()],
        };
        // Each says that its symbols came from the other one.
        let odd = run(vec![vec![1, 0, 5], vec![0, 0, 9], vec![0, 9, 0]]);
        let row = CastRow {
            name: "<".to_owned(),
            marks: vec![(9, f64::INFINITY, 0.0)],
            bound: f64::INFINITY,
            bare: Some(0.0),
        };
        let sampled = [(7, &odd, &samples)];
        assert_well_formed(&[
            times(&[row]),
            times(&[]),
            sequence(&sampled, f64::INFINITY),
            sequence(&[], 0.0),
            quarters(0, &hosts, &samples),
            expected(&sampled),
            causes(&[]),
            way(0, &hosts, &odd, &samples),
            way(0, &[], &run(Vec::new()), &samples),
            links(&[&odd], 0),
        ]);
    }

    #[test]
    fn places__names_next_to_each_other_have_room() {
        let wide = TreeLayout::new(
            9,
            &run(std::iter::once(vec![]).chain((1..9).map(|_| vec![9])).collect()),
        );
        assert!(
            wide.letters[1..]
                .iter()
                .all(|letters| *letters as f64 * LETTER <= (HALF - 8.0) / 8.0 - 2.0 * LETTER),
            "of eight"
        );
        for (x, letters) in wide.at.iter().map(|at| at.0).zip(&wide.letters) {
            let half = *letters as f64 * LETTER / 2.0;
            assert!(x - half >= 0.0 && x + half <= HALF, "{x}");
        }
    }

    #[test]
    fn places__a_chain_is_one_line_and_a_tree_has_levels() {
        let chain = TreeLayout::new(3, &run(vec![vec![], vec![9], vec![0, 9]]));
        assert!(chain.at.iter().all(|at| at.1 == chain.at[0].1) && chain.at[0].0 < chain.at[1].0);
        let tree = TreeLayout::new(4, &run(vec![vec![], vec![9], vec![9], vec![1, 0, 8]]));
        let levels: Vec<f64> = tree.at.iter().map(|at| -at.1).collect();
        assert!(
            levels[0] < levels[1] && levels[1] == levels[2] && levels[2] < levels[3],
            "{levels:?}"
        );
    }
}
