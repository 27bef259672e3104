//! Compares two reports figure by figure and decides whether the second is significantly worse.
//!
//! # Model
//! Figures meet when name and labels are equal. Two figures differ significantly when both have
//! intervals and these do not overlap: for independent runs that is stricter than a test at 5 %, so
//! it cries wolf less often. Which figures decide, and on which side they are worse, is what
//! mechanisms say ([`Presenter::worsens`]); all others are context. What changed is shown, the rest
//! is counted. A significantly worse figure ends `clearway diff` with exit status 3.
//!
//! # Invariants
//! I1. A figure that stands on one side only is counted and never decides: a missing measurement is
//!     not a regression.

use std::collections::{BTreeMap, BTreeSet};

use serde::Serialize;

use super::model::{ExtendedReal, Figure, Labels, Report, labels};
use super::numerals::{digits_in, fit, interval, printable, wrap};
use super::present::{Presenter, WorseDirection};
use super::terminal::{ColourMode, WIDTH};

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
pub(crate) enum FigureChange {
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

impl FigureChange {
    const fn name(self) -> &'static str {
        match self {
            Self::Same => "same",
            Self::Better => "better",
            Self::Worse => "worse",
            Self::Different => "differs",
            Self::Unknown => "unknown",
        }
    }

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
pub(crate) struct FigurePair<'a> {
    pub(crate) a: &'a Figure,
    pub(crate) b: &'a Figure,
    /// B over A; `None` when both are zero, or both infinite, or the units differ.
    pub(crate) ratio: Option<ExtendedReal>,
    /// On which side it is worse; `None` for context.
    worsens: Option<WorseDirection>,
    pub(crate) change: FigureChange,
}

impl FigurePair<'_> {
    /// Returns whether the intervals lie apart.
    const fn is_changed(&self) -> bool {
        matches!(self.change, FigureChange::Worse | FigureChange::Better | FigureChange::Different)
    }
}

/// Two reports, laid side by side.
pub(crate) struct Comparison<'a> {
    pub(crate) pairs: Vec<FigurePair<'a>>,
    pub(crate) only_a: Vec<&'a Figure>,
    pub(crate) only_b: Vec<&'a Figure>,
    /// Scenario, seed or place differ: sentences to print above the table.
    pub(crate) remarks: Vec<String>,
    pub(crate) result: DiffResult,
}

/// What changed, as programs read it.
#[derive(Serialize)]
pub(crate) struct ChangeDocument<'a> {
    /// Whether a deciding figure is worse.
    is_worse: bool,
    changes: Vec<FigureRatio<'a>>,
}

#[derive(Serialize)]
struct FigureRatio<'a> {
    name: &'a str,
    labels: &'a Labels,
    /// B over A.
    ratio: Option<ExtendedReal>,
    change: &'static str,
    decides: bool,
}

impl Comparison<'_> {
    /// Returns the figures of both runs, with the label `run` (`A`, `B`), and how each changed.
    pub(crate) fn for_programs(&self) -> (Vec<Figure>, ChangeDocument<'_>) {
        let both = self.pairs.iter().flat_map(|pair| [("A", pair.a), ("B", pair.b)]);
        let only_a = self.only_a.iter().map(|figure| ("A", *figure));
        let only_b = self.only_b.iter().map(|figure| ("B", *figure));
        let all = both.chain(only_a).chain(only_b);
        let figures = all.map(|(run, figure)| figure.clone().with("run", run)).collect();
        let changes = self.pairs.iter().map(|pair| FigureRatio {
            name: &pair.a.name,
            labels: &pair.a.labels,
            ratio: pair.ratio,
            change: pair.change.name(),
            decides: pair.worsens.is_some(),
        });
        let changes = changes.collect();
        (figures, ChangeDocument { is_worse: self.result == DiffResult::Worse, changes })
    }
}

type FigureKey<'a> = (&'a str, &'a Labels);

fn by_key(report: &Report) -> BTreeMap<FigureKey<'_>, &Figure> {
    report.figures.iter().map(|figure| ((figure.name.as_str(), &figure.labels), figure)).collect()
}

/// Compares `b` with `a`; `presenters` say which figures decide.
pub(crate) fn compare<'a>(
    a: &'a Report,
    b: &'a Report,
    presenters: &[&dyn Presenter],
) -> Comparison<'a> {
    let (in_a, in_b) = (by_key(a), by_key(b));
    let worsens =
        |figure: &Figure| presenters.iter().find_map(|presenter| presenter.worsens(figure, a));
    let keys: BTreeSet<FigureKey<'_>> = in_a.keys().chain(in_b.keys()).copied().collect();
    let mut comparison = Comparison {
        pairs: Vec::new(),
        only_a: Vec::new(),
        only_b: Vec::new(),
        remarks: remarks(a, b),
        result: DiffResult::SameOrBetter,
    };
    for key in keys {
        match (in_a.get(&key), in_b.get(&key)) {
            (Some(before), Some(after)) => {
                comparison.pairs.push(pair(before, after, worsens(before)))
            }
            (Some(before), None) => comparison.only_a.push(before),
            (None, Some(after)) => comparison.only_b.push(after),
            (None, None) => {}
        }
    }
    if comparison.pairs.iter().any(|pair| pair.change == FigureChange::Worse) {
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
    let differing =
        facts.iter().filter(|(_, same)| !same).map(|(name, _)| *name).collect::<Vec<_>>();
    if differing.is_empty() {
        Vec::new()
    } else {
        vec![format!("The runs have different {}.", differing.join(", "))]
    }
}

fn pair<'a>(a: &'a Figure, b: &'a Figure, worsens: Option<WorseDirection>) -> FigurePair<'a> {
    let same_unit = a.unit == b.unit;
    let ratio = ExtendedReal::new(b.value.get() / a.value.get()).filter(|_| same_unit);
    let change = if same_unit { change(a, b, worsens) } else { FigureChange::Unknown };
    FigurePair { a, b, ratio, worsens, change }
}

fn change(a: &Figure, b: &Figure, worsens: Option<WorseDirection>) -> FigureChange {
    let (Some(a_low), Some(a_high), Some(b_low), Some(b_high)) = (a.low, a.high, b.low, b.high)
    else {
        return FigureChange::Unknown;
    };
    if a_low <= b_high && b_low <= a_high {
        return FigureChange::Same;
    }
    let upwards = b_low > a_high;
    match worsens {
        Some(WorseDirection::Up) if upwards => FigureChange::Worse,
        Some(WorseDirection::Down) if !upwards => FigureChange::Worse,
        Some(_) => FigureChange::Better,
        None => FigureChange::Different,
    }
}

/// Columns of a figure's labels, behind two of indentation.
const ROW: usize = 36;

/// Figures of one side only that are named; the others are counted.
const NAMED_MAX: usize = 3;

/// Returns the comparison as a table that ends with a newline: what decides first, what changed
/// besides, how many did not.
pub(crate) fn render(comparison: &Comparison<'_>, paint: ColourMode) -> String {
    let mut lines: Vec<String> = comparison.remarks.clone();
    let changed = || comparison.pairs.iter().filter(|pair| pair.is_changed());
    let (deciding, context) = changed().partition::<Vec<_>, _>(|pair| pair.worsens.is_some());
    if changed().next().is_some() {
        lines.push(row("", ["A", "B", "B/A"], "change"));
    }
    lines.extend(groups(&deciding, paint));
    if !context.is_empty() {
        lines.push("Context, which decides nothing:".to_owned());
    }
    lines.extend(groups(&context, paint));
    lines.extend(unchanged(&comparison.pairs));
    lines.extend(only("A", &comparison.only_a));
    lines.extend(only("B", &comparison.only_b));
    let decides =
        |pair: &&FigurePair<'_>| pair.change != FigureChange::Unknown && pair.worsens.is_some();
    let decide = comparison.pairs.iter().filter(decides).count();
    let worse = comparison.pairs.iter().filter(|pair| pair.change == FigureChange::Worse).count();
    lines.push(match comparison.result {
        DiffResult::SameOrBetter if decide == 0 => {
            "The runs share no figure that decides: nothing is said about better or worse."
                .to_owned()
        }
        DiffResult::SameOrBetter => {
            format!("No figure is significantly worse, of {decide} that decide.")
        }
        DiffResult::Worse => {
            format!("Significantly worse: {worse} of the {decide} figures that decide.")
        }
    });
    lines.join("\n") + "\n"
}

/// Returns the rows of `pairs`, each group of a name and unit below its heading.
fn groups(pairs: &[&FigurePair<'_>], paint: ColourMode) -> Vec<String> {
    let mut lines = Vec::new();
    let mut group = None;
    for pair in pairs {
        let title = (pair.a.name.as_str(), pair.b.unit.as_str());
        if group.replace(title) != Some(title) {
            lines.push(fit(&heading(pair.b), WIDTH));
        }
        lines.extend(pair_lines(pair, paint));
    }
    lines
}

/// Returns how many figures did not change, and how many cannot be compared, in a line.
fn unchanged(pairs: &[FigurePair<'_>]) -> Option<String> {
    let count = |change| pairs.iter().filter(|pair| pair.change == change).count();
    let figures =
        |count: usize| if count == 1 { "1 figure".to_owned() } else { format!("{count} figures") };
    match (count(FigureChange::Same), count(FigureChange::Unknown)) {
        (0, 0) => None,
        (same, 0) => Some(format!("Unchanged: {}.", figures(same))),
        (same, unknown) => {
            Some(format!("Unchanged: {}. Without intervals: {}.", figures(same), figures(unknown)))
        }
    }
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

/// Returns what tells a figure from others of its name: the values of labels that every reader
/// knows, the others with their keys.
fn labels_of(figure: &Figure) -> String {
    let known = [labels::QUEUE, labels::VICTIM, labels::CONGESTOR, labels::QUANTILE, labels::PHASE];
    let mut words: Vec<String> =
        known.iter().filter_map(|key| figure.label(key)).map(str::to_owned).collect();
    let others = figure.labels.iter().filter(|(key, _)| !known.contains(&key.as_str()));
    words.extend(others.map(|(key, value)| format!("{key}={value}")));
    if words.is_empty() { "whole run".to_owned() } else { printable(&words.join(" ")) }
}

/// Returns how many figures one side alone has, and which they begin with.
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

/// Returns the numbers of a figure, below its labels where these are long, and the intervals where
/// they lie apart.
fn pair_lines(pair: &FigurePair<'_>, paint: ColourMode) -> Vec<String> {
    let mut word = pair.change.word().to_owned();
    if (pair.change, paint) == (FigureChange::Worse, ColourMode::Colour) {
        word = format!("\u{1b}[1;33m{word}\u{1b}[0m");
    }
    let [a, b] = [pair.a, pair.b].map(|figure| digits_in(Some(figure.value), 9));
    let ratio = digits_in(pair.ratio, 8);
    let mut name = labels_of(pair.b);
    let mut lines = Vec::new();
    if name.chars().count() > ROW {
        lines.extend(wrap(&name, WIDTH - 2).iter().map(|line| fit(&format!("  {line}"), WIDTH)));
        name.clear();
    }
    lines.push(row(&name, [&a, &b, &ratio], &word));
    let ends = |figure: &Figure| interval(figure.low, figure.high);
    lines.push(fit(&format!("      95 %: A {}  B {}", ends(pair.a), ends(pair.b)), WIDTH));
    lines
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::report::sample;

    /// Latencies under load decide.
    struct UnderLoad;

    impl Presenter for UnderLoad {
        fn worsens(&self, figure: &Figure, _report: &Report) -> Option<WorseDirection> {
            let is_congested = figure.label(labels::PHASE) == Some(labels::CONGESTED);
            (figure.name == "victim_latency" && is_congested).then_some(WorseDirection::Up)
        }
    }

    fn figure<'a>(report: &'a mut Report, name: &str) -> &'a mut Figure {
        report.figures.iter_mut().find(|figure| figure.name == name).expect("a figure")
    }

    fn move_to(figure: &mut Figure, value: f64) {
        figure.value = ExtendedReal::finite(value);
        figure.low = Some(ExtendedReal::finite(value * 0.99));
        figure.high = Some(ExtendedReal::finite(value * 1.01));
    }

    #[test]
    fn compare__a_report_with_itself_is_the_same() {
        let report = sample::incast_demo();
        let comparison = compare(&report, &report, &[&UnderLoad]);
        assert_eq!(comparison.result, DiffResult::SameOrBetter);
        assert_eq!(comparison.pairs.len(), report.figures.len());
        assert!(
            comparison.only_a.is_empty()
                && comparison.only_b.is_empty()
                && comparison.remarks.is_empty()
        );
        assert!(
            comparison
                .pairs
                .iter()
                .all(|pair| matches!(pair.change, FigureChange::Same | FigureChange::Unknown))
        );
    }

    #[test]
    fn compare__overlapping_intervals_do_not_decide() {
        let a = sample::incast_demo();
        let mut b = a.clone();
        let wide = figure(&mut b, "congestion_impact_factor");
        wide.value = ExtendedReal::finite(1e6);
        wide.high = Some(ExtendedReal::INFINITE);
        let comparison = compare(&a, &b, &[&UnderLoad]);
        assert_eq!(comparison.result, DiffResult::SameOrBetter);
        assert!(comparison.pairs.iter().any(|pair| pair.ratio > Some(ExtendedReal::finite(100.0))));
    }

    #[test]
    fn compare__lists_what_one_side_lacks_and_ignores_another_unit() {
        let a = sample::incast_demo();
        let mut b = a.clone();
        b.figures.remove(0);
        b.seed = 20;
        move_to(figure(&mut b, "congestion_impact_factor"), 9e9);
        figure(&mut b, "congestion_impact_factor").unit = "%".to_owned();
        b.figures.push(
            Figure::counted("new", "ms", ExtendedReal::INFINITE, 1, "").with(labels::QUEUE, "wfq"),
        );
        let comparison = compare(&a, &b, &[&UnderLoad]);
        assert_eq!((comparison.only_a.len(), comparison.only_b.len()), (1, 1));
        assert_eq!((comparison.result, comparison.remarks.len()), (DiffResult::SameOrBetter, 1));
        let text = render(&comparison, ColourMode::Plain);
        assert!(text.starts_with("The runs have different seeds.\n"), "{text}");
        assert!(text.contains("1 figure stands only in B:\n  new wfq\n"), "{text}");
    }

    #[test]
    fn render__fits_eighty_columns_and_tells_rows_apart() {
        let a = sample::incast_demo();
        let mut b = a.clone();
        let is_congested = |figure: &Figure| figure.label(labels::PHASE) == Some(labels::CONGESTED);
        for figure in b
            .figures
            .iter_mut()
            .filter(|figure| figure.name == "victim_latency" && is_congested(figure))
        {
            move_to(figure, 4e7);
        }
        for report in [a.clone(), sample::odd()] {
            let text = render(&compare(&report, &b, &[&UnderLoad]), ColourMode::Plain);
            assert!(text.lines().all(|line| line.chars().count() <= WIDTH), "{text}");
        }
        let text = render(&compare(&a, &b, &[&UnderLoad]), ColourMode::Plain);
        assert!(
            text.contains("WORSE") && text.ends_with("worse: 4 of the 4 figures that decide.\n"),
            "{text}"
        );
        let rows =
            text.lines().filter(|line| line.starts_with("  fifo") || line.starts_with("  strict"));
        let names: BTreeSet<String> =
            rows.map(|line| line.chars().take(ROW + 2).collect()).collect();
        assert_eq!(names.len(), 4, "what did not change is counted only: {text}");
        assert!(text.contains("\nUnchanged: "), "{text}");
        assert_eq!(text.lines().filter(|line| *line == "victim_latency (us)").count(), 1);
    }

    #[test]
    fn render__counts_what_one_side_lacks() {
        let a = sample::incast_demo();
        let mut b = a.clone();
        b.figures.clear();
        let text = render(&compare(&a, &b, &[&UnderLoad]), ColourMode::Plain);
        assert!(
            text.contains("16 figures stand only in A:\n") && text.contains("  and 13 more\n"),
            "{text}"
        );
        assert!(text.contains("no figure that decides"), "{text}");
    }
}
