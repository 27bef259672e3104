//! Draws timeslice building as SVG.

use super::super::building::{BuildingGantt, BuildingInterval};
use super::BuildingPolicy;
use crate::report::html::drawing::{
    Axis, Chart, HALF, HEIGHT, ROW, StackedBar, WIDTH, cell_bar, decades, linear, parted,
    parts_legend, row,
};
use crate::report::model::{ExtendedReal, Figure};

/// Points of one line: more than a drawing can tell apart.
const POINTS_MAX: usize = 150;
/// Colours of builders in a gantt: neighbours differ visibly, and stripes of the same colour are
/// far from each other.
const HUES: u32 = 12;
/// Heights of a row and of all rows of a gantt, as far as there is a choice.
const FILM_ROW: [f64; 2] = [3.0, 16.0];
const FILM: f64 = 360.0;

/// Returns a throughput as a bar up to the achievable line and beyond it, with the least and the
/// most of all seeds.
pub(super) fn bar(place: usize, fraction: Option<&Figure>) -> String {
    let Some(fraction) = fraction else { return String::new() };
    // One and a third of raw: more than any schedule reaches.
    let width = |value: ExtendedReal| (value.get() * 75.0).clamp(0.0, 100.0);
    let value = width(fraction.value);
    let ends = [fraction.low, fraction.high].map(|end| end.map_or(value, width));
    cell_bar(place, value, Some(75.0), Some(ends))
}

/// Returns a candle for each policy: least, p10, p50, p90, most; lines at one and ten times
/// `rotation`.
pub(super) fn candles(candles: &[(usize, &str, [f64; 5])], rotation: f64) -> String {
    let marks = [(rotation, "1 rotation"), (rotation * 10.0, "10")];
    let values = candles.iter().flat_map(|(_, _, five)| *five).chain(marks.map(|(value, _)| value));
    let names: Vec<String> = candles.iter().map(|(_, policy, _)| (*policy).to_owned()).collect();
    let label = "Time to complete a timeslice, by policy";
    let mut chart = Chart::rows(label, WIDTH, [&names, &[]], ROW, &decades(values));
    for (value, name) in marks {
        chart.upright("line", value, name);
    }
    for (n, (place, _, [least, p10, p50, p90, most])) in candles.iter().enumerate() {
        chart.series(*place);
        chart.line("thin", [(*least, row(n)), (*most, row(n))]);
        chart.bar("box", row(n), [*p10, *p90], 14.0);
        chart.mark("median", (*p50, row(n)), 20.0);
    }
    chart.finish()
}

/// Draws the fill of each builder, in the order of medians.
pub(super) fn fills(place: usize, fills: &[[ExtendedReal; 5]]) -> String {
    let mut fills: Vec<[f64; 5]> = fills.iter().map(|five| five.map(ExtendedReal::get)).collect();
    fills.sort_by(|a, b| b[2].total_cmp(&a[2]));
    let most =
        fills.iter().map(|five| five[4]).filter(|value| value.is_finite()).fold(0.0, f64::max);
    let y = linear(0.0, if most > 50.0 { 100.0 } else { most }).unit("\u{202f}%");
    let mut chart =
        Chart::new("Fill of rings, by builder", HALF, &linear(1.0, fills.len() as f64), &y);
    let numbered = || (1..).map(f64::from).zip(&fills);
    chart.series(place);
    for [low, high] in [[0, 4], [1, 3]] {
        chart.band(&numbered().map(|(n, five)| (n, five[low], five[high])).collect::<Vec<_>>());
    }
    chart.line("curve", numbered().map(|(n, five)| (n, five[2])));
    chart.finish()
}

/// Returns what landed step by step.
pub(super) fn pulse(policies: &[(usize, &BuildingPolicy)], slower: Option<[f64; 2]>) -> String {
    let length = |policy: &BuildingPolicy| policy.step_ms * policy.pulse.len() as f64;
    let longest = policies
        .iter()
        .map(|(_, policy)| length(policy))
        .filter(|it| it.is_finite())
        .fold(0.0, f64::max);
    let curves: Vec<(usize, Vec<(f64, f64)>)> =
        policies.iter().map(|(place, it)| (*place, smooth(it))).collect();
    let most =
        curves.iter().flat_map(|(_, curve)| curve).map(|(_, value)| *value).fold(1.05, f64::max);
    let x = linear(0.0, longest).unit("\u{202f}ms");
    let mut chart = Chart::new("Throughput over time, by policy", WIDTH, &x, &linear(0.0, most));
    if let Some(ends) = slower {
        chart.bar("slower", most / 2.0, ends, HEIGHT);
    }
    chart.level("line", 1.0);
    for (place, curve) in curves {
        chart.series(place);
        chart.line("curve", curve);
    }
    chart.finish()
}

/// Returns the time in ms and throughput, steps joined so that a line has at most [`POINTS_MAX`].
fn smooth(policy: &BuildingPolicy) -> Vec<(f64, f64)> {
    let join = policy.pulse.len().div_ceil(POINTS_MAX).max(1);
    let mean = |steps: &[ExtendedReal]| {
        steps.iter().map(|step| step.get()).sum::<f64>() / steps.len() as f64
    };
    let at = |n: usize| (n as f64 + 0.5) * join as f64 * policy.step_ms;
    policy.pulse.chunks_exact(join).enumerate().map(|(n, steps)| (at(n), mean(steps))).collect()
}

/// Returns an axis of the number of each of `intervals`.
fn numbers(intervals: &[BuildingInterval]) -> Axis {
    linear(0.0, intervals.len().max(2) as f64 - 1.0)
}

/// Draws the durations of intervals, proposed and measured.
pub(super) fn durations(place: usize, intervals: &[BuildingInterval]) -> String {
    let measured = || (0..).map(f64::from).zip(intervals.iter().map(|it| it.duration_ms.get()));
    let proposed = |(n, it): (usize, &BuildingInterval)| Some((n as f64, it.proposed_ms?[1].get()));
    let proposed = || intervals.iter().enumerate().filter_map(proposed);
    let values = || measured().chain(proposed()).map(|(_, duration)| duration);
    let y = decades(values());
    let y = if y.high / y.low <= 10.0 { linear(0.0, values().fold(0.0, f64::max)) } else { y };
    let mut chart = Chart::new("Durations of intervals", WIDTH, &numbers(intervals), &y);
    chart.line("proposed", proposed());
    chart.series(place);
    chart.line("curve", measured());
    chart.finish()
}

/// Returns how much later than proposed intervals began.
pub(super) fn starts(place: usize, intervals: &[BuildingInterval]) -> String {
    let late = |(n, it): (usize, &BuildingInterval)| {
        let late = it.start_ms.get() - it.proposed_ms?[0].get();
        let half = it.spread_ms.get() / 2.0;
        (late.is_finite() && half.is_finite())
            .then_some((n as f64, [late - half, late, late + half]))
    };
    let all: Vec<(f64, [f64; 3])> = intervals.iter().enumerate().filter_map(late).collect();
    let ends = all
        .iter()
        .fold([0.0f64; 2], |[low, high], (_, three)| [low.min(three[0]), high.max(three[2])]);
    let (x, y) = (numbers(intervals), linear(ends[0], ends[1]));
    let mut chart = Chart::new("Starts of intervals against proposals", WIDTH, &x, &y);
    chart.series(place);
    chart.band(&all.iter().map(|(n, [low, _, high])| (*n, *low, *high)).collect::<Vec<_>>());
    chart.line("curve", all.iter().map(|(n, [_, late, _])| (*n, *late)));
    chart.finish()
}

/// Returns the causes of `policies` in one order.
fn all_causes<'a>(policies: &[(usize, &'a BuildingPolicy)]) -> Vec<&'a str> {
    let mut causes: Vec<&str> =
        policies.iter().flat_map(|(_, policy)| policy.blocked.keys()).map(String::as_str).collect();
    causes.sort_unstable();
    causes.dedup();
    causes
}

/// Returns what the shades of [`blocked`] mean.
pub(super) fn causes(policies: &[(usize, &BuildingPolicy)]) -> String {
    parts_legend(
        &all_causes(policies).iter().map(|cause| cause.replace('-', " ")).collect::<Vec<_>>(),
    )
}

/// Returns a bar for each policy, parted by cause.
pub(super) fn blocked(policies: &[(usize, &BuildingPolicy)]) -> String {
    let causes = all_causes(policies);
    let row = |(_, policy): &(usize, &BuildingPolicy)| {
        let part = |cause: &&str| {
            policy.blocked.get(*cause).map_or(0.0, |part| part.get().clamp(0.0, 100.0))
        };
        StackedBar {
            name: policy.policy.clone(),
            parts: causes.iter().map(part).collect(),
            note: String::new(),
        }
    };
    let rows: Vec<StackedBar> = policies.iter().map(row).collect();
    parted("Time that inputs waited, by cause", &rows, 100.0, "\u{202f}%")
}

/// Draws who sent to whom: a row for each input, a colour for each builder.
pub(super) fn gantt(gantt: &BuildingGantt, builders: u32) -> String {
    let steps = gantt.rows.iter().map(Vec::len).max().unwrap_or(0).max(1);
    let names: Vec<String> = (0..gantt.rows.len()).map(|input| format!("input {input}")).collect();
    let height = (FILM / names.len().max(1) as f64).clamp(FILM_ROW[0], FILM_ROW[1]);
    let ms = |step: usize| step as f64 * gantt.step_us / 1e3;
    let mut chart = Chart::rows(
        "Who sends to whom",
        WIDTH,
        [&names, &[]],
        height,
        &linear(0.0, ms(steps)).unit("\u{202f}ms"),
    );
    let mut lines = vec![Vec::new(); HUES as usize];
    for (input, cells) in gantt.rows.iter().enumerate() {
        let mut at = 0;
        for run in cells.chunk_by(|a, b| a == b) {
            let until = at + run.len();
            if let Some(builder) = run[0] {
                let hue = (u64::from(builder) * u64::from(HUES) / u64::from(builders.max(1)))
                    .min(u64::from(HUES) - 1);
                lines[hue as usize].push([(ms(at), row(input)), (ms(until), row(input))]);
            }
            at = until;
        }
    }
    for (hue, lines) in lines.into_iter().enumerate() {
        let (turn, light) = (hue * 360 / HUES as usize, if hue % 2 == 0 { 45 } else { 62 });
        let width = (height - 0.6).max(1.0);
        let look = format!(
            "fill=\"none\" stroke=\"hsl({turn} 65% {light}%)\" stroke-width=\"{width:.1}\""
        );
        chart.lines(&look, lines.into_iter());
    }
    chart.finish()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::report::html::drawing::assert_well_formed;

    #[test]
    fn drawings__of_nothing_and_of_nonsense_are_well_formed() {
        let endless = [ExtendedReal::INFINITE; 5];
        let gantt = BuildingGantt {
            step_us: f64::INFINITY,
            rows: vec![Vec::new(), vec![Some(u32::MAX), None]],
        };
        let interval = BuildingInterval {
            interval: 0,
            start_ms: ExtendedReal::INFINITE,
            spread_ms: ExtendedReal::INFINITE,
            duration_ms: ExtendedReal::INFINITE,
            proposed_ms: Some([ExtendedReal::INFINITE; 2]),
        };
        assert_well_formed(&[
            candles(&[(0, "<", endless.map(ExtendedReal::get))], f64::INFINITY),
            candles(&[], 0.0),
            fills(7, &[endless]),
            fills(0, &[]),
            durations(0, &[interval; 2]),
            starts(0, &[interval; 2]),
            starts(0, &[]),
            pulse(&[], Some([f64::INFINITY, 0.0])),
            blocked(&[]),
            super::gantt(&gantt, 0),
        ]);
    }
}
