//! Shows a report on a terminal: verdict first, then the tables, in 80 columns.
//!
//! # Invariants
//! I1. No line is wider than [`WIDTH`] characters, whatever the report holds, save for single
//!     longer words of sentences.
//! I2. Escape sequences come from here alone, and only when the caller says that a terminal reads
//!     them.

use super::model::{
    ExtendedReal, Labels, PartVerdict, PhaseLoad, PortLoad, Report, RunOutcome, labels,
};
use super::numerals::{digits, digits_in, fit, printable, wrap};
use super::present::Presenter;
use super::title::cell_title;

/// Columns of the narrowest terminal in use.
pub(crate) const WIDTH: usize = 80;
/// The longest name on the line of its verdict; a longer one has a line of its own.
const NAME_MAX: usize = 44;

/// Columns of an outcome.
const OUTCOME: usize = 10;

/// Whether the output obeys colour codes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ColourMode {
    /// A file, a pipe, or a terminal whose user wants no colours.
    Plain,
    /// A terminal.
    Colour,
}

impl ColourMode {
    fn bold(self, code: &str, text: &str) -> String {
        match self {
            Self::Plain => text.to_owned(),
            Self::Colour => format!("\u{1b}[1;{code}m{text}\u{1b}[0m"),
        }
    }

    fn outcome(self, outcome: RunOutcome) -> String {
        // Yellow, blue and magenta stay apart for readers who confuse red and green.
        let code = match outcome {
            RunOutcome::Contained => "34",
            RunOutcome::Congested => "33",
            RunOutcome::Invalid => "35",
        };
        self.bold(code, outcome.word())
    }
}

/// Returns the report as text that ends with a newline: the tables of `presenters`, then those that
/// any report has.
pub(crate) fn render(report: &Report, presenters: &[&dyn Presenter], paint: ColourMode) -> String {
    let tables = presenters.iter().flat_map(|presenter| presenter.tables(report));
    let plain = |lines: Vec<String>| lines.iter().map(|line| printable(line)).collect::<Vec<_>>();
    let mut sections: Vec<Vec<String>> = tables.map(plain).collect();
    if sections.iter().all(Vec::is_empty) {
        sections.push(figures(report));
    }
    sections.extend([
        comparison_table(report),
        fabric(report),
        warnings(report),
        verdict(report, paint),
    ]);
    let mut text = sections
        .iter()
        .filter(|lines| !lines.is_empty())
        .map(|lines| lines.join("\n"))
        .collect::<Vec<_>>()
        .join("\n\n");
    text.push('\n');
    text
}

/// Returns the figures of a report for which no mechanism has tables.
fn figures(report: &Report) -> Vec<String> {
    let mut lines = Vec::new();
    let mut title = String::new();
    for figure in &report.figures {
        let of = format!("{} {}", figure.name, figure.shown_unit());
        if of != title {
            lines.push(fit(&printable(of.trim_end()), WIDTH));
            title = of;
        }
        let labels = fit(&printable(&subject(&figure.labels).join(" ")), WIDTH - 14);
        lines.push(format!("  {labels:<width$}{:>11}", digits(figure.value), width = WIDTH - 13));
    }
    lines
}

fn verdict(report: &Report, paint: ColourMode) -> Vec<String> {
    let Some(verdict) = &report.verdict else { return Vec::new() };
    let mut lines = vec![paint.outcome(verdict.outcome)];
    lines.extend(wrap(&verdict.sentence, WIDTH));
    let names: Vec<String> = verdict.parts.iter().map(part_name).collect();
    let length = |name: &String| name.chars().count();
    let width = names.iter().map(length).filter(|it| *it <= NAME_MAX).max().unwrap_or(0);
    for (part, mut name) in verdict.parts.iter().zip(names) {
        if length(&name) > NAME_MAX {
            lines.push(fit(&format!("  {name}"), WIDTH));
            name.clear();
        }
        let column = 2 + width + 1 + OUTCOME + 1;
        let mut sentence = wrap(&part.sentence, WIDTH - column).into_iter();
        let first = sentence.next().unwrap_or_default();
        let pad = " ".repeat(OUTCOME.saturating_sub(part.outcome.word().len()));
        lines.push(
            format!("  {name:width$} {}{pad} {first}", paint.outcome(part.outcome))
                .trim_end()
                .to_owned(),
        );
        lines.extend(sentence.map(|line| format!("{:column$}{line}", "")));
    }
    for reason in &verdict.reasons {
        lines.extend(item(reason));
    }
    lines
}

/// Returns the figures of two places, and how far they are apart.
fn comparison_table(report: &Report) -> Vec<String> {
    let Some(first) = report.place_comparisons.first() else { return Vec::new() };
    let line = |[what, a, b, ratio, limit]: [&str; 5]| {
        format!("  {:<39}{:>9}{:>10}{:>8}  {limit}", fit(what, 38), fit(a, 9), fit(b, 9), ratio)
    };
    let [a, b] = [0, 1].map(|i| first.values.get(i).map_or("-", |(place, _)| place.as_str()));
    let mut lines = vec!["Side by side".to_owned(), line(["", a, b, "ratio", "limit"])];
    let mut name = "";
    for it in &report.place_comparisons {
        if name != it.name {
            name = &it.name;
            let unit = if it.unit == "1" { String::new() } else { format!(" ({})", it.unit) };
            lines.push(fit(&format!("{name}{unit}"), WIDTH));
        }
        let what = subject(&it.labels);
        let [a, b] = [0, 1].map(|i| digits_in(it.values.get(i).map(|(_, value)| *value), 9));
        let limit = format!("{} {}", it.distance.word(), digits(it.limit));
        lines.push(line([&what.join(" "), &a, &b, &digits_in(it.ratio, 7), &limit]));
    }
    lines
}

/// Returns the values of all labels: first those of the congestion test in their usual order, then
/// all others.
fn subject(all: &Labels) -> Vec<&str> {
    let usual = [
        labels::QUEUE,
        labels::VICTIM,
        labels::CONGESTOR,
        "class",
        labels::INTENSITY,
        labels::BURSTS,
    ];
    let first = usual.iter().filter_map(|key| all.get(*key));
    let others =
        all.iter().filter(|(key, _)| !usual.contains(&key.as_str())).map(|(_, value)| value);
    first.chain(others).map(String::as_str).collect()
}

/// Returns the simulated network and the ports that stand out, over all queues.
fn fabric(report: &Report) -> Vec<String> {
    let Some(fabric) = &report.fabric else { return Vec::new() };
    let most =
        |pick: &dyn Fn(&PhaseLoad) -> &[PortLoad], by: &dyn Fn(&PortLoad) -> f64, what: &str| {
            let first = fabric.loads.iter().filter_map(|load| Some((load, pick(load).first()?)));
            first.max_by(|(_, a), (_, b)| by(a).total_cmp(&by(b))).map(|(load, port)| {
                let percent = ExtendedReal::new(by(port)).map_or_else(String::new, digits);
                let queue = load.labels.get(labels::QUEUE).map_or("-", String::as_str);
                format!(
                    "{what} {}, {percent} % ({queue})",
                    fabric.label(port).replace('\u{2192}', "->")
                )
            })
        };
    let busiest = most(&|load| &load.busiest, &|port| port.load, "busiest");
    let stalled = most(&|load| &load.stalled, &|port| port.stalled, "most stalled");
    let ports: Vec<String> = [busiest, stalled].into_iter().flatten().collect();
    let mut lines = vec![fit(&format!("The fabric: {}, {}", fabric.name, fabric.kind), WIDTH)];
    lines.push(format!("  {}", fabric.size()));
    lines.extend(
        wrap(&ports.join("; "), WIDTH - 2)
            .into_iter()
            .map(|line| format!("  {line}").trim_end().to_owned()),
    );
    lines
}

/// Returns the queue and cell of a part.
fn part_name(part: &PartVerdict) -> String {
    let queue = part.labels.get(labels::QUEUE).map_or("-", String::as_str);
    format!("{:<10}{}", fit(queue, 9), cell_title(&part.labels)).trim_end().to_owned()
}

fn warnings(report: &Report) -> Vec<String> {
    let noted = report.warnings.iter().flat_map(|warning| item(warning));
    let mut lines: Vec<String> = noted.collect();
    if !lines.is_empty() {
        lines.insert(0, "Read with care".to_owned());
    }
    lines
}

/// Returns a sentence with a dash before its first line.
fn item(sentence: &str) -> Vec<String> {
    let lines = wrap(sentence, WIDTH - 4).into_iter().enumerate();
    lines.map(|(i, line)| format!("{}{line}", if i == 0 { "  - " } else { "    " })).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::report::{model, sample};

    #[test]
    fn render__a_simulated_fabric_takes_a_few_lines_and_a_real_network_none() {
        let text = render(&sample::simulated(), &[], ColourMode::Plain);
        let lines: Vec<&str> =
            text.lines().skip_while(|line| !line.starts_with("The fabric")).take(4).collect();
        let wanted = [
            "The fabric: pairs, a dragonfly",
            "  8 hosts, 4 switches, 12 cables",
            "  busiest g0s1 -> g1s0 (port 3), 99.8 % (strict); most stalled g0s1 -> g1s0",
            "  (port 3), 76.0 % (strict)",
        ];
        assert_eq!(lines, wanted);
        assert!(!render(&sample::incast_demo(), &[], ColourMode::Plain).contains("The fabric"));
    }

    #[test]
    fn comparison_table__rows_of_one_figure_say_what_they_are_of() {
        let mut report = sample::incast_demo();
        let row = |policy: &str, value: f64| model::PlaceComparison {
            name: "timeslice_throughput_fraction".to_owned(),
            labels: Labels::from([("policy".to_owned(), policy.to_owned())]),
            unit: "1".to_owned(),
            values: vec![
                ("sim".to_owned(), ExtendedReal::finite(value)),
                ("lab".to_owned(), ExtendedReal::finite(1.0)),
            ],
            ratio: Some(ExtendedReal::finite(value)),
            limit: ExtendedReal::finite(1.1),
            distance: model::FigureDistance::Within,
        };
        report.place_comparisons = vec![row("dfs", 0.95), row("token", 0.97)];
        let lines = comparison_table(&report);
        let subjects: Vec<&str> =
            lines[3..].iter().filter_map(|line| line.split_whitespace().next()).collect();
        assert_eq!(subjects, ["dfs", "token"], "{lines:?}");
    }

    #[test]
    fn render__colours_only_a_terminal_and_says_the_same() {
        let report = sample::incast_demo();
        let coloured = render(&report, &[], ColourMode::Colour);
        assert!(coloured.contains("\u{1b}[1;33mCONGESTED\u{1b}[0m"));
        let stripped: String = coloured
            .split('\u{1b}')
            .map(|part| {
                part.trim_start_matches("[1;33m")
                    .trim_start_matches("[1;34m")
                    .trim_start_matches("[0m")
            })
            .collect();
        assert_eq!(stripped, render(&report, &[], ColourMode::Plain));
    }

    #[test]
    fn render__an_empty_report_is_an_empty_line() {
        let scenario = model::ReportScenario { name: String::new(), text: String::new() };
        assert_eq!(
            render(&Report::new(Vec::new(), "lab", scenario, 0), &[], ColourMode::Plain),
            "\n"
        );
    }
}
