//! Compares two reports figure by figure and decides whether the second is significantly worse.
//!
//! # Model
//! Figures meet when name and labels are equal. Two figures differ significantly when both have intervals and these do not
//! overlap: for independent runs that is stricter than a test at 5 %, so it cries wolf less often. Only figures about what the
//! network does under load decide: `congestion_impact_factor`, `victim_latency` and `victim_oneway_p99_us` of the phase
//! `congested` worsen upwards, `class_share` and `class_score` downwards. Everything else describes the machine or the run
//! itself and is only shown. A significantly worse figure ends `clearway diff` with exit status 3.
//!
//! # Invariants
//! I1. A figure that stands on one side only is counted and never decides: a missing measurement is not a regression.
//! I2. Null controls never decide, nor does any figure whose congestor is `none`: they measure the machine.

use std::collections::{BTreeMap, BTreeSet};

use super::model::{Figure, Labels, Real, Report, labels, names};
use super::numerals::{digits, fit, interval, printable, wrap};
use super::terminal::{Paint, WIDTH};

/// What two runs say together; the command line turns it into its exit code.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum DiffResult {
    /// No figure of the second run is significantly worse: exit status 0.
    SameOrBetter,
    /// At least one is: exit status 3.
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
    /// The intervals lie apart, in a figure that does not decide.
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

#[derive(Clone, Copy, PartialEq, Eq)]
enum Direction {
    Up,
    Down,
}

/// The side on which a figure is worse; `None` for one that does not decide.
fn worsens(figure: &Figure) -> Option<Direction> {
    let beside_nobody = figure.label(labels::CONGESTOR) == Some(labels::NOBODY);
    let congested = figure.label(labels::PHASE) == Some(labels::CONGESTED);
    match figure.name.as_str() {
        _ if beside_nobody => None,
        names::CIF | names::SLOWDOWN => Some(Direction::Up),
        names::LATENCY | names::ONEWAY_P99 if congested => Some(Direction::Up),
        names::CLASS_SHARE | names::CLASS_SCORE => Some(Direction::Down),
        _ => None,
    }
}

/// Columns of a figure's labels, behind two of indentation.
const ROW: usize = 36;

/// Figures of one side only that are named; the others are counted.
const NAMED_MAX: usize = 3;

/// The comparison as a table that ends with a newline.
pub(crate) fn render(comparison: &Comparison<'_>, paint: Paint) -> String {
    let mut lines: Vec<String> = comparison.remarks.clone();
    lines.push(row("", ["A", "B", "B/A"], "change"));
    let mut group = None;
    for pair in &comparison.pairs {
        let title = (pair.a.name.as_str(), pair.b.unit.as_str());
        if group.replace(title) != Some(title) {
            lines.push(fit(&heading(pair.b), WIDTH));
        }
        lines.extend(pair_lines(pair, paint));
    }
    lines.extend(only("A", &comparison.only_a));
    lines.extend(only("B", &comparison.only_b));
    let decides = |pair: &&Pair<'_>| pair.change != Change::Unknown && worsens(pair.b).is_some();
    let deciding = comparison.pairs.iter().filter(decides).count();
    let worse = comparison.pairs.iter().filter(|pair| pair.change == Change::Worse).count();
    lines.push(match comparison.result {
        DiffResult::SameOrBetter if deciding == 0 => {
            "The runs share no figure that decides: nothing is said about better or worse.".to_owned()
        }
        DiffResult::SameOrBetter => format!("No figure is significantly worse, of {deciding} that decide."),
        DiffResult::Worse => format!("Significantly worse: {worse} of the {deciding} figures that decide."),
    });
    lines.join("\n") + "\n"
}

fn row(name: &str, [a, b, ratio]: [&str; 3], change: &str) -> String {
    format!("  {name:<ROW$}{a:>10}{b:>10}{ratio:>9}  {change}")
}

fn heading(figure: &Figure) -> String {
    match figure.shown_unit() {
        "" => figure.name.clone(),
        unit => format!("{} ({unit})", figure.name),
    }
}

/// What tells a figure from others of its name: the values of labels that every reader knows, the others with their keys.
fn labels_of(figure: &Figure) -> String {
    let known = [labels::QUEUE, labels::VICTIM, labels::CONGESTOR, labels::QUANTILE, labels::PHASE];
    let mut words: Vec<String> = known.iter().filter_map(|key| figure.label(key)).map(str::to_owned).collect();
    let others = figure.labels.iter().filter(|(key, _)| !known.contains(&key.as_str()));
    words.extend(others.map(|(key, value)| format!("{key}={value}")));
    if words.is_empty() { "whole run".to_owned() } else { printable(&words.join(" ")) }
}

/// How many figures one side alone has, and which they begin with.
fn only(side: &str, figures: &[&Figure]) -> Vec<String> {
    let count = match figures.len() {
        0 => return Vec::new(),
        1 => format!("1 figure stands only in {side}:"),
        n => format!("{n} figures stand only in {side}:"),
    };
    let named = figures.iter().take(NAMED_MAX);
    let named = named.map(|figure| fit(&format!("  {} {}", figure.name, labels_of(figure)), WIDTH));
    let more = figures.len().checked_sub(NAMED_MAX).filter(|more| *more > 0);
    let more = more.map(|more| format!("  and {more} more"));
    std::iter::once(count).chain(named).chain(more).collect()
}

/// The numbers of a figure, below its labels where these are long, and the intervals where they lie apart.
fn pair_lines(pair: &Pair<'_>, paint: Paint) -> Vec<String> {
    let mut word = pair.change.word().to_owned();
    if (pair.change, paint) == (Change::Worse, Paint::Colour) {
        word = format!("\u{1b}[1;33m{word}\u{1b}[0m");
    }
    let [a, b] = [pair.a, pair.b].map(|figure| fit(&digits(figure.value), 9));
    let ratio = fit(&pair.ratio.map_or_else(|| "-".to_owned(), digits), 8);
    let mut name = labels_of(pair.b);
    let mut lines = Vec::new();
    if name.chars().count() > ROW {
        lines.extend(wrap(&name, WIDTH - 2).iter().map(|line| fit(&format!("  {line}"), WIDTH)));
        name.clear();
    }
    lines.push(row(&name, [&a, &b, &ratio], &word));
    if matches!(pair.change, Change::Worse | Change::Better | Change::Different) {
        let ends = |figure: &Figure| interval(figure.low, figure.high);
        lines.push(fit(&format!("      95 %: A {}  B {}", ends(pair.a), ends(pair.b)), WIDTH));
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

    #[test]
    fn compare__a_report_with_itself_is_the_same() {
        let report = sample::incast_demo();
        let comparison = compare(&report, &report);
        assert_eq!(comparison.result, DiffResult::SameOrBetter);
        assert_eq!(comparison.pairs.len(), report.figures.len());
        assert!(comparison.only_a.is_empty() && comparison.only_b.is_empty() && comparison.remarks.is_empty());
        assert!(comparison.pairs.iter().all(|pair| matches!(pair.change, Change::Same | Change::Unknown)));
    }

    /// What the second of two reports is called that differ in one figure alone, which moves from 10 to `value`.
    fn moved(name: &str, pairs: &[(&str, &str)], value: f64) -> DiffResult {
        let [a, b] = [10.0, value].map(|value| {
            let mut report = sample::incast_demo();
            let mut figure = Figure::counted(name, "us", Real::finite(value), 1, "");
            move_to(&mut figure, value);
            report.figures = vec![pairs.iter().fold(figure, |figure, (key, value)| figure.with(key, *value))];
            report
        });
        compare(&a, &b).result
    }

    #[test]
    fn compare__worse_is_up_under_load_and_down_for_classes() {
        let congested = [(labels::PHASE, labels::CONGESTED), (labels::CONGESTOR, "incast")];
        for (name, pairs) in [(names::CIF, &[][..]), (names::LATENCY, &congested), (names::ONEWAY_P99, &congested)] {
            assert_eq!(
                (moved(name, pairs, 20.0), moved(name, pairs, 5.0)),
                (DiffResult::Worse, DiffResult::SameOrBetter)
            );
        }
        for name in [names::CLASS_SHARE, names::CLASS_SCORE] {
            assert_eq!((moved(name, &[], 20.0), moved(name, &[], 5.0)), (DiffResult::SameOrBetter, DiffResult::Worse));
        }
    }

    #[test]
    fn compare__what_measures_the_machine_never_decides() {
        let isolated = [(labels::PHASE, labels::ISOLATED)];
        let nobody = [(labels::PHASE, labels::CONGESTED), (labels::CONGESTOR, labels::NOBODY)];
        let machine = [
            "null_control_factor",
            "lab_up_seconds",
            "processor_delay_p99_us",
            "load_not_sent_bytes",
            "resent_messages",
        ];
        let figures = machine.map(|name| (name, &[][..]));
        for (name, pairs) in figures.into_iter().chain([(names::LATENCY, &isolated[..]), (names::LATENCY, &nobody[..])])
        {
            let results = [moved(name, pairs, 20.0), moved(name, pairs, 5.0)];
            assert_eq!(results, [DiffResult::SameOrBetter; 2], "{name}");
        }
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
        assert!(text.contains("1 figure stands only in B:\n  new wfq\n"), "{text}");
    }

    #[test]
    fn render__fits_eighty_columns_and_tells_rows_apart() {
        let a = sample::incast_demo();
        let mut b = a.clone();
        for figure in b.figures.iter_mut().filter(|figure| figure.name == names::CIF) {
            move_to(figure, 4e7);
        }
        for report in [a.clone(), sample::odd()] {
            let text = render(&compare(&report, &b), Paint::Plain);
            assert!(text.lines().all(|line| line.chars().count() <= WIDTH), "{text}");
        }
        let text = render(&compare(&a, &b), Paint::Plain);
        assert!(text.contains("WORSE") && text.ends_with("worse: 4 of the 8 figures that decide.\n"), "{text}");
        let rows = text.lines().filter(|line| line.starts_with("  fifo") || line.starts_with("  strict"));
        let names: BTreeSet<String> = rows.map(|line| line.chars().take(ROW + 2).collect()).collect();
        assert_eq!(names.len(), a.figures.len(), "{text}");
        assert_eq!(text.lines().filter(|line| *line == "congestion_impact_factor (x)").count(), 1);
    }

    #[test]
    fn render__counts_what_one_side_lacks() {
        let a = sample::incast_demo();
        let mut b = a.clone();
        b.figures.clear();
        let text = render(&compare(&a, &b), Paint::Plain);
        assert!(text.contains("16 figures stand only in A:\n") && text.contains("  and 13 more\n"), "{text}");
        assert!(text.contains("no figure that decides"), "{text}");
    }
}
