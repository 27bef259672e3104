//! Compares two reports figure by figure and decides whether the second is significantly worse.
//!
//! # Model
//! Figures meet when name and labels are equal. Two figures differ significantly when both have intervals and these do not
//! overlap: for independent runs that is stricter than a test at 5 %, so it cries wolf less often. A difference counts as
//! worse only where a direction is known: latencies, factors and losses (`us`, `ms`, `ns`, `s`, `x`, names of loss) worsen
//! upwards, rates and shares of goodput (`b/s` and its multiples, `congestor_goodput_share`) downwards. Everything else is only shown.
//!
//! # Invariants
//! I1. A figure that stands on one side only is listed and never decides: a missing measurement is not a regression.

use std::collections::{BTreeMap, BTreeSet};

use super::model::{Figure, Labels, Real, Report, names};
use super::numerals::{digits, fit, interval};
use super::terminal::{Paint, WIDTH};

/// What two runs say together; the command line turns it into its exit code.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum DiffResult {
    /// No figure of the second run is significantly worse: exit code 0.
    SameOrBetter,
    /// At least one is: exit code 1.
    Worse,
}

/// How the second figure relates to the first.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Change {
    /// The intervals overlap.
    Same,
    /// Significantly better.
    Better,
    /// Significantly worse.
    Worse,
    /// The intervals lie apart, and which side is better is not known.
    Different,
    /// One of the two has no interval, or the units differ.
    Unknown,
}

impl Change {
    const fn word(self) -> &'static str {
        match self {
            Self::Same => "same",
            Self::Better => "better",
            Self::Worse => "WORSE",
            Self::Different => "differs",
            Self::Unknown => "?",
        }
    }
}

/// One figure that both reports hold.
pub(crate) struct Pair<'a> {
    pub(crate) a: &'a Figure,
    pub(crate) b: &'a Figure,
    /// B over A; `None` when both are zero, or both infinite, or the units differ.
    pub(crate) ratio: Option<Real>,
    pub(crate) change: Change,
}

/// Two reports, laid side by side.
pub(crate) struct Comparison<'a> {
    pub(crate) pairs: Vec<Pair<'a>>,
    pub(crate) only_a: Vec<&'a Figure>,
    pub(crate) only_b: Vec<&'a Figure>,
    /// Scenario, seed or place differ: sentences to print above the table.
    pub(crate) remarks: Vec<String>,
    pub(crate) result: DiffResult,
}

type Key<'a> = (&'a str, &'a Labels);

fn by_key(report: &Report) -> BTreeMap<Key<'_>, &Figure> {
    report.figures.iter().map(|figure| ((figure.name.as_str(), &figure.labels), figure)).collect()
}

/// Lays `b` beside `a`.
pub(crate) fn compare<'a>(a: &'a Report, b: &'a Report) -> Comparison<'a> {
    let (in_a, in_b) = (by_key(a), by_key(b));
    let keys: BTreeSet<Key<'_>> = in_a.keys().chain(in_b.keys()).copied().collect();
    let mut comparison = Comparison {
        pairs: Vec::new(),
        only_a: Vec::new(),
        only_b: Vec::new(),
        remarks: remarks(a, b),
        result: DiffResult::SameOrBetter,
    };
    for key in keys {
        match (in_a.get(&key), in_b.get(&key)) {
            (Some(a), Some(b)) => comparison.pairs.push(pair(a, b)),
            (Some(a), None) => comparison.only_a.push(a),
            (None, Some(b)) => comparison.only_b.push(b),
            (None, None) => {}
        }
    }
    if comparison.pairs.iter().any(|pair| pair.change == Change::Worse) {
        comparison.result = DiffResult::Worse;
    }
    comparison
}

fn remarks(a: &Report, b: &Report) -> Vec<String> {
    let facts = [
        ("scenarios", a.scenario.text == b.scenario.text),
        ("places", a.place == b.place),
        ("seeds", a.seed == b.seed),
        ("versions", a.program == b.program),
        ("kernels", a.host.kernel == b.host.kernel),
    ];
    let differing = facts.iter().filter(|(_, same)| !same).map(|(name, _)| *name).collect::<Vec<_>>();
    if differing.is_empty() { Vec::new() } else { vec![format!("The runs have different {}.", differing.join(", "))] }
}

fn pair<'a>(a: &'a Figure, b: &'a Figure) -> Pair<'a> {
    let same_unit = a.unit == b.unit;
    let ratio = Real::new(b.value.get() / a.value.get()).filter(|_| same_unit);
    let change = if same_unit { change(a, b) } else { Change::Unknown };
    Pair { a, b, ratio, change }
}

fn change(a: &Figure, b: &Figure) -> Change {
    let (Some(a_low), Some(a_high), Some(b_low), Some(b_high)) = (a.low, a.high, b.low, b.high) else {
        return Change::Unknown;
    };
    if a_low <= b_high && b_low <= a_high {
        return Change::Same;
    }
    let upwards = b_low > a_high;
    match worsens(a) {
        Some(Direction::Up) if upwards => Change::Worse,
        Some(Direction::Down) if !upwards => Change::Worse,
        Some(_) => Change::Better,
        None => Change::Different,
    }
}

enum Direction {
    Up,
    Down,
}

/// The side on which a figure is worse, as far as its name and unit tell.
fn worsens(figure: &Figure) -> Option<Direction> {
    match (figure.name.as_str(), figure.unit.as_str()) {
        (names::GOODPUT_SHARE, _) => Some(Direction::Down),
        (names::LATENCY | names::CIF | names::LOSS, _) | (_, "ns" | "us" | "ms" | "s" | "x") => Some(Direction::Up),
        (_, "b/s" | "kb/s" | "Mb/s" | "Gb/s") => Some(Direction::Down),
        _ => None,
    }
}

/// The comparison as a table that ends with a newline.
pub(crate) fn render(comparison: &Comparison<'_>, paint: Paint) -> String {
    let mut lines: Vec<String> = comparison.remarks.clone();
    lines.push(format!("{:<38}{:>10}{:>10}{:>9}  {:<11}", "figure", "A", "B", "B/A", "change").trim_end().to_owned());
    lines.extend(comparison.pairs.iter().flat_map(|pair| pair_lines(pair, paint)));
    for (side, only) in [("A", &comparison.only_a), ("B", &comparison.only_b)] {
        lines.extend(only.iter().map(|figure| {
            fit(&format!("only in {side}: {} = {} {}", title(figure), digits(figure.value), figure.unit), WIDTH)
        }));
    }
    let worse = comparison.pairs.iter().filter(|pair| pair.change == Change::Worse).count();
    lines.push(match comparison.result {
        DiffResult::SameOrBetter => format!("No figure of {} is significantly worse.", comparison.pairs.len()),
        DiffResult::Worse => format!("{worse} of {} figures are significantly worse.", comparison.pairs.len()),
    });
    lines.join("\n") + "\n"
}

fn title(figure: &Figure) -> String {
    let labels: Vec<&str> = figure.labels.values().map(String::as_str).collect();
    format!("{} {}", figure.name, labels.join(" "))
}

/// One line for a figure, and one for the intervals where they decide.
fn pair_lines(pair: &Pair<'_>, paint: Paint) -> Vec<String> {
    let number = |figure: &Figure| fit(&digits(figure.value), 9);
    let ratio = pair.ratio.map_or_else(|| "-".to_owned(), digits);
    let mut word = pair.change.word().to_owned();
    if (pair.change, paint) == (Change::Worse, Paint::Colour) {
        word = format!("\u{1b}[1;33m{word}\u{1b}[0m");
    }
    let unit = fit(&pair.b.unit, 5);
    let name = format!("{} ({unit})", fit(&title(pair.a), 29));
    let mut lines =
        vec![format!("{name:<38}{:>10}{:>10}{:>9}  {word}", number(pair.a), number(pair.b), fit(&ratio, 8))];
    if matches!(pair.change, Change::Worse | Change::Better | Change::Different) {
        let ends = |figure: &Figure| interval(figure.low, figure.high);
        lines.push(fit(&format!("    95 %: A {}  B {}", ends(pair.a), ends(pair.b)), WIDTH));
    }
    lines
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::report::model::labels;
    use crate::report::sample;

    fn figure<'a>(report: &'a mut Report, name: &str) -> &'a mut Figure {
        report.figures.iter_mut().find(|figure| figure.name == name).expect("a figure")
    }

    fn move_to(figure: &mut Figure, value: f64) {
        figure.value = Real::finite(value);
        figure.low = Some(Real::finite(value * 0.99));
        figure.high = Some(Real::finite(value * 1.01));
    }

    fn changed(name: &str, value: f64) -> DiffResult {
        let a = sample::incast_demo();
        let mut b = a.clone();
        move_to(figure(&mut b, name), value);
        compare(&a, &b).result
    }

    #[test]
    fn compare__a_report_with_itself_is_the_same() {
        let report = sample::incast_demo();
        let comparison = compare(&report, &report);
        assert_eq!(comparison.result, DiffResult::SameOrBetter);
        assert_eq!(comparison.pairs.len(), report.figures.len());
        assert!(comparison.only_a.is_empty() && comparison.only_b.is_empty() && comparison.remarks.is_empty());
        assert!(comparison.pairs.iter().all(|pair| matches!(pair.change, Change::Same | Change::Unknown)));
    }

    #[test]
    fn compare__worse_is_up_for_latency_and_down_for_goodput() {
        assert_eq!(changed(names::LATENCY, 1e6), DiffResult::Worse);
        assert_eq!(changed(names::LATENCY, 1.0), DiffResult::SameOrBetter);
        assert_eq!(changed(names::GOODPUT_SHARE, 10.0), DiffResult::Worse);
        assert_eq!(changed(names::GOODPUT_SHARE, 100.0), DiffResult::SameOrBetter);
    }

    #[test]
    fn compare__overlapping_intervals_do_not_decide() {
        let a = sample::incast_demo();
        let mut b = a.clone();
        let wide = figure(&mut b, names::CIF);
        wide.value = Real::finite(1e6);
        wide.high = Some(Real::INFINITE);
        let comparison = compare(&a, &b);
        assert_eq!(comparison.result, DiffResult::SameOrBetter);
        assert!(comparison.pairs.iter().any(|pair| pair.ratio > Some(Real::finite(100.0))));
    }

    #[test]
    fn compare__lists_what_one_side_lacks_and_ignores_another_unit() {
        let a = sample::incast_demo();
        let mut b = a.clone();
        b.figures.remove(0);
        b.seed = 20;
        move_to(figure(&mut b, names::CIF), 9e9);
        figure(&mut b, names::CIF).unit = "%".to_owned();
        b.figures.push(Figure::counted("new", "ms", Real::INFINITE, 1, "").with(labels::QUEUE, "wfq"));
        let comparison = compare(&a, &b);
        assert_eq!((comparison.only_a.len(), comparison.only_b.len()), (1, 1));
        assert_eq!((comparison.result, comparison.remarks.len()), (DiffResult::SameOrBetter, 1));
        let text = render(&comparison, Paint::Plain);
        assert!(text.starts_with("The runs have different seeds.\n"), "{text}");
        assert!(text.contains("only in B: new wfq = inf ms"), "{text}");
    }

    #[test]
    fn render__fits_eighty_columns_and_names_what_is_worse() {
        let a = sample::incast_demo();
        let mut b = a.clone();
        move_to(figure(&mut b, names::LATENCY), 4e7);
        let text = render(&compare(&a, &b), Paint::Plain);
        assert!(text.contains("WORSE") && text.ends_with("1 of 16 figures are significantly worse.\n"), "{text}");
        assert!(text.lines().all(|line| line.chars().count() <= WIDTH), "{text}");
    }
}
