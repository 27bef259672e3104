//! Shows a report on a terminal: verdict first, then the tables, in 80 columns.
//!
//! # Invariants
//! I1. No line is wider than [`WIDTH`] characters, whatever the report holds, save for single longer words of sentences.
//! I2. Escape sequences come from here alone, and only when the caller says that a terminal reads them.

use crate::mechanism::congestion::report::impact::{self, Row};
use crate::mechanism::congestion::report::programs;

use super::model::{Building, ClassShare, Figure, Load, Outcome, PartVerdict, Port, Real, Report, labels};
use super::numerals::{digits, digits_in, fit, interval_in, wrap};

/// Columns of the narrowest terminal in use.
pub(crate) const WIDTH: usize = 80;

/// Columns of an outcome.
const OUTCOME: usize = 10;

/// Whether the output obeys colour codes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Paint {
    /// A file, a pipe, or a terminal whose user wants no colours.
    Plain,
    /// A terminal.
    Colour,
}

impl Paint {
    fn bold(self, code: &str, text: &str) -> String {
        match self {
            Self::Plain => text.to_owned(),
            Self::Colour => format!("\u{1b}[1;{code}m{text}\u{1b}[0m"),
        }
    }

    fn outcome(self, outcome: Outcome) -> String {
        // Yellow, blue and magenta stay apart for readers who confuse red and green.
        let code = match outcome {
            Outcome::Contained => "34",
            Outcome::Congested => "33",
            Outcome::Invalid => "35",
        };
        self.bold(code, outcome.word())
    }
}

/// The report as text that ends with a newline.
pub(crate) fn render(report: &Report, paint: Paint) -> String {
    let sections = [
        building_table(report),
        casting_table(report),
        impact_table(report),
        program_table(report),
        beside_table(report),
        class_table(report),
        fabric(report),
        warnings(report),
        verdict(report, paint),
    ];
    let mut text = sections
        .iter()
        .filter(|lines| !lines.is_empty())
        .map(|lines| lines.join("\n"))
        .collect::<Vec<_>>()
        .join("\n\n");
    text.push('\n');
    text
}

fn verdict(report: &Report, paint: Paint) -> Vec<String> {
    let Some(verdict) = &report.verdict else { return Vec::new() };
    let mut lines = vec![paint.outcome(verdict.outcome)];
    lines.extend(wrap(&verdict.sentence, WIDTH));
    let names: Vec<String> = verdict.parts.iter().map(part_name).collect();
    let width = names.iter().map(|name| name.chars().count()).max().unwrap_or(0);
    for (part, name) in verdict.parts.iter().zip(names) {
        let column = 2 + width + 1 + OUTCOME + 1;
        let mut sentence = wrap(&part.sentence, WIDTH - column).into_iter();
        let first = sentence.next().unwrap_or_default();
        let pad = " ".repeat(OUTCOME.saturating_sub(part.outcome.word().len()));
        lines.push(format!("  {name:width$} {}{pad} {first}", paint.outcome(part.outcome)).trim_end().to_owned());
        lines.extend(sentence.map(|line| format!("{:column$}{line}", "")));
    }
    for reason in &verdict.reasons {
        lines.extend(item(reason));
    }
    lines
}

/// What each policy of timeslice building carried, and how long timeslices took.
fn building_table(report: &Report) -> Vec<String> {
    let Some(building) = &report.building else { return Vec::new() };
    let policies: Vec<&str> = building.policies.iter().map(|it| it.policy.as_str()).collect();
    let Building { inputs, builders, .. } = building;
    let mut lines = vec![format!("Timeslices of {inputs} inputs at {builders} builders"), String::new()];
    lines.extend(crate::mechanism::timeslice::rows(&policies, &report.figures));
    lines
}

/// How long broadcasts took by each mode.
fn casting_table(report: &Report) -> Vec<String> {
    let Some(casting) = &report.casting else {
        let rows = crate::mechanism::broadcast::scaling_rows(&report.figures);
        let title = "Broadcasts, until the last rank has the object";
        return if rows.is_empty() {
            rows
        } else {
            [title.to_owned(), String::new()].into_iter().chain(rows).collect()
        };
    };
    let receivers = casting.hosts.len().saturating_sub(1);
    let mut lines = vec![format!("Broadcasts from one host to {receivers} others, every byte compared"), String::new()];
    lines.extend(crate::mechanism::broadcast::rows(&report.figures));
    lines
}

/// Figures of two places, and how far they are apart.
fn beside_table(report: &Report) -> Vec<String> {
    let Some(first) = report.beside.first() else { return Vec::new() };
    let line = |[what, a, b, ratio, limit]: [&str; 5]| {
        format!("  {:<39}{:>9}{:>10}{:>8}  {limit}", fit(what, 38), fit(a, 9), fit(b, 9), ratio)
    };
    let [a, b] = [0, 1].map(|i| first.values.get(i).map_or("-", |(place, _)| place.as_str()));
    let mut lines = vec!["Side by side".to_owned(), line(["", a, b, "ratio", "limit"])];
    let mut name = "";
    for it in &report.beside {
        if name != it.name {
            name = &it.name;
            let unit = if it.unit == "1" { String::new() } else { format!(" ({})", it.unit) };
            lines.push(fit(&format!("{name}{unit}"), WIDTH));
        }
        let of = [labels::QUEUE, labels::VICTIM, labels::CONGESTOR, "class", "intensity"];
        let what: Vec<&str> = of.iter().filter_map(|key| it.labels.get(*key)).map(String::as_str).collect();
        let [a, b] = [0, 1].map(|i| digits_in(it.values.get(i).map(|(_, value)| *value), 9));
        let limit = format!("{} {}", it.distance.word(), digits(it.limit));
        lines.push(line([&what.join(" "), &a, &b, &digits_in(it.ratio, 7), &limit]));
    }
    lines
}

/// The simulated network and the ports that stand out, over all queues.
fn fabric(report: &Report) -> Vec<String> {
    let Some(fabric) = &report.fabric else { return Vec::new() };
    let most = |pick: &dyn Fn(&Load) -> &[Port], by: &dyn Fn(&Port) -> f64, what: &str| {
        let first = fabric.loads.iter().filter_map(|load| Some((load, pick(load).first()?)));
        first.max_by(|(_, a), (_, b)| by(a).total_cmp(&by(b))).map(|(load, port)| {
            let percent = Real::new(by(port)).map_or_else(String::new, digits);
            let queue = load.labels.get(labels::QUEUE).map_or("-", String::as_str);
            format!("{what} {}, {percent} % ({queue})", fabric.label(port).replace('\u{2192}', "->"))
        })
    };
    let busiest = most(&|load| &load.busiest, &|port| port.load, "busiest");
    let stalled = most(&|load| &load.stalled, &|port| port.stalled, "most stalled");
    let ports: Vec<String> = [busiest, stalled].into_iter().flatten().collect();
    let mut lines = vec![fit(&format!("The fabric: {}, {}", fabric.name, fabric.kind), WIDTH)];
    lines.push(format!("  {}", fabric.size()));
    lines.extend(wrap(&ports.join("; "), WIDTH - 2).into_iter().map(|line| format!("  {line}").trim_end().to_owned()));
    lines
}

/// Queue and patterns of a part, at most 34 columns.
fn part_name(part: &PartVerdict) -> String {
    let label = |key: &str| part.labels.get(key).map(String::as_str);
    let patterns = [label(labels::VICTIM), label(labels::CONGESTOR)];
    let patterns = patterns.into_iter().flatten().collect::<Vec<_>>().join(" under ");
    let patterns = label(labels::PLACE).map_or(patterns.clone(), |place| format!("{place}: {patterns}"));
    let name = format!("{:<10}{}", fit(label(labels::QUEUE).unwrap_or("-"), 9), fit(&patterns, 24));
    name.trim_end().to_owned()
}

fn warnings(report: &Report) -> Vec<String> {
    let noted = report.warnings.iter().flat_map(|warning| item(warning));
    let mut lines: Vec<String> = noted.collect();
    if !lines.is_empty() {
        lines.insert(0, "Read with care".to_owned());
    }
    lines
}

/// A sentence with a dash before its first line.
fn item(sentence: &str) -> Vec<String> {
    let lines = wrap(sentence, WIDTH - 4).into_iter().enumerate();
    lines.map(|(i, line)| format!("{}{line}", if i == 0 { "  - " } else { "    " })).collect()
}

fn impact_table(report: &Report) -> Vec<String> {
    let rows = impact::rows(report);
    let Some(first) = rows.first() else { return Vec::new() };
    let quantile = first.factor().and_then(|factor| factor.label(labels::QUANTILE)).unwrap_or("");
    let mut lines = vec![
        format!("Congestion impact, latency in {}", unit_of(first)),
        format!(
            "{:<11}{:>15}{:>17}{:^22}{:>5}{:>10}",
            "",
            "isolated",
            "congested",
            format!("factor of {}", fit(quantile, 7)),
            "lost",
            "load"
        ),
        format!(
            "{:<11}{:>7}{:>8}{:>8}{:>9}{:>8} {:<13}{:>5}{:>10}",
            "queue", "p50", "p99", "p50", "p99", "times", "95 %", "%", "reached %"
        ),
    ];
    let mut group = String::new();
    for row in &rows {
        if group != row.group() {
            group = row.group();
            lines.push(fit(&group, WIDTH));
        }
        lines.push(impact_row(row));
    }
    if rows.iter().any(|row| !is_supported(row)) {
        lines.push("  ~ fewer than ten samples lie beyond the quantile: it may be luck".to_owned());
    }
    lines
}

fn unit_of(row: &Row<'_>) -> String {
    let latency = row.congested.iter().chain(&row.isolated).flatten().next();
    latency.map_or_else(|| "us".to_owned(), |figure| fit(&figure.unit, 8))
}

fn is_supported(row: &Row<'_>) -> bool {
    row.factor().is_none_or(Figure::is_supported)
}

fn impact_row(row: &Row<'_>) -> String {
    let value = |figure: Option<&Figure>, width| digits_in(figure.map(|figure| figure.value), width);
    let ([i50, i99], [c50, c99]) = (row.isolated, row.congested);
    let factor = row.factor();
    let ends = factor.map(|figure| interval_in(figure.low, figure.high, 13)).unwrap_or_default();
    let times = format!("{}{}", if is_supported(row) { "" } else { "~" }, value(factor, 6));
    format!(
        "  {:<9}{:>7}{:>8}{:>8}{:>9}{:>8} {:<13}{:>5}{:>10}",
        fit(row.queue, 8),
        value(i50, 6),
        value(i99, 7),
        value(c50, 7),
        value(c99, 8),
        times,
        ends,
        value(row.loss, 4),
        value(row.goodput, 7)
    )
}

/// What programs of the user's did, alone and beside congestors.
fn program_table(report: &Report) -> Vec<String> {
    let mut lines: Vec<String> = programs::rows(report).map(|row| program_row(&row)).collect();
    let Some(first) = programs::rows(report).next() else { return lines };
    let unit = first.medians[0].map_or("", Figure::shown_unit);
    let of = if unit.is_empty() { "the number that it prints".to_owned() } else { format!("its time in {unit}") };
    lines.insert(0, format!("The program, {}, medians of {} pairs", fit(&of, 25), first.slowdown.samples));
    let head = ["queue", "congestor", "alone", "beside", "slowdown", "95 %", "load %"];
    lines.insert(1, program_line(head));
    lines
}

fn program_row(row: &programs::Row<'_>) -> String {
    let value = |figure: Option<&Figure>, width| digits_in(figure.map(|figure| figure.value), width);
    let [alone, beside] = row.medians.map(|median| value(median, 9));
    let (times, goodput) = (value(Some(row.slowdown), 9), value(row.goodput, 5));
    let ends = interval_in(row.slowdown.low, row.slowdown.high, 16);
    program_line([row.queue, row.congestor, &alone, &beside, &times, &ends, &goodput])
}

fn program_line([queue, congestor, alone, beside, times, ends, goodput]: [&str; 7]) -> String {
    let (queue, congestor) = (fit(queue, 9), fit(congestor, 13));
    format!("  {queue:<10}{congestor:<14}{alone:>10}{beside:>10}{times:>10}  {ends:<17}{goodput:>5}")
        .trim_end()
        .to_owned()
}

fn class_table(report: &Report) -> Vec<String> {
    if report.shares.is_empty() {
        return Vec::new();
    }
    if !report.has_shares() {
        return marks_table(report);
    }
    let mut lines = vec![
        "Classes by DSCP".to_owned(),
        format!(
            "  {:<10}{:<13}{:<7}{:<16}{:>10}{:>8}{:>13}",
            "queue", "class", "asked", "granted", "promised %", "got %", "longest gap"
        ),
    ];
    for_places(report, &mut lines, class_row);
    lines
}

/// A line for each share; below the name of its place where there are several.
fn for_places(report: &Report, lines: &mut Vec<String>, row: impl Fn(&ClassShare) -> String) {
    let mut place = None;
    for share in &report.shares {
        let here = share.labels.get(labels::PLACE);
        if place != here {
            place = here;
            lines.extend(here.map(|here| fit(&format!("on {here}"), WIDTH)));
        }
        lines.push(row(share));
    }
}

fn class_row(share: &ClassShare) -> String {
    let number = |number: Option<Real>| number.map_or_else(|| "-".to_owned(), digits);
    format!(
        "  {:<10}{:<13}{:<7}{:<16}{:>10}{:>8}{:>13}",
        fit(share.labels.get(labels::QUEUE).map_or("-", String::as_str), 9),
        fit(&share.class, 12),
        fit(&share.asked, 6),
        fit(&share.granted, 15),
        number(share.configured),
        number(share.reached),
        gap(share)
    )
}

/// How marks travelled, in a run that measured no shares.
fn marks_table(report: &Report) -> Vec<String> {
    let has_gaps = report.shares.iter().any(|share| share.starved_ms.is_some());
    let line = |[queue, class, asked, seen, gap]: [&str; 5]| {
        let gap = if has_gaps { gap } else { "" };
        let (queue, class, asked) = (fit(queue, 9), fit(class, 12), fit(asked, 6));
        format!("  {queue:<10}{class:<13}{asked:<7}{:<16}{gap:>13}", fit(seen, 15)).trim_end().to_owned()
    };
    let row = |share: &ClassShare| {
        let queue = share.labels.get(labels::QUEUE).map_or("-", String::as_str);
        line([queue, &share.class, &share.asked, share.mark_seen(), &gap(share)])
    };
    let mut lines = vec!["Marks (DSCP)".to_owned(), line(["queue", "class", "asked", "seen", "longest gap"])];
    for_places(report, &mut lines, row);
    lines
}

fn gap(share: &ClassShare) -> String {
    share.starved_ms.map_or_else(|| "-".to_owned(), |gap| format!("{} ms", digits(gap)))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::report::{model, sample};

    #[test]
    fn render__of_the_demo_is_this() {
        assert_eq!(render(&sample::incast_demo(), Paint::Plain), include_str!("terminal/demo.txt"));
    }

    #[test]
    fn render__never_exceeds_eighty_columns_nor_lets_escapes_through() {
        let mut report = sample::incast_demo();
        for figure in &mut report.figures {
            figure.value = Real::finite(123_456_789.0);
            figure.high = Some(Real::INFINITE);
            figure.labels.insert(labels::QUEUE.to_owned(), "a-queue-with-a-very-long-name\u{1b}[31m".to_owned());
        }
        for share in &mut report.shares {
            share.class = "x".repeat(100);
            share.granted = "\u{1b}]0;title\u{7}".repeat(9);
        }
        let text = render(&report, Paint::Plain);
        let widest = text.lines().map(|line| line.chars().count()).max();
        assert!(widest <= Some(WIDTH), "{widest:?}\n{text}");
        assert!(!text.contains('\u{1b}'));
    }

    #[test]
    fn render__a_simulated_fabric_takes_a_few_lines_and_a_real_network_none() {
        let text = render(&sample::simulated(), Paint::Plain);
        let lines: Vec<&str> = text.lines().skip_while(|line| !line.starts_with("The fabric")).take(4).collect();
        let wanted = [
            "The fabric: pairs, a dragonfly",
            "  8 hosts, 4 switches, 12 cables",
            "  busiest g0s1 -> g1s0 (port 3), 99.8 % (strict); most stalled g0s1 -> g1s0",
            "  (port 3), 76.0 % (strict)",
        ];
        assert_eq!(lines, wanted);
        assert!(!render(&sample::incast_demo(), Paint::Plain).contains("The fabric"));
    }

    #[test]
    fn render__timeslices_have_a_row_for_each_policy_within_eighty_columns() {
        let text = render(&sample::building(), Paint::Plain);
        let row = |policy: &str| text.lines().find(|line| line.starts_with(policy)).map(str::to_owned);
        assert!(row("raw").is_some_and(|row| row.contains("1.00")) && row("a-policy-w.").is_some(), "{text}");
        assert!(text.lines().all(|line| line.chars().count() <= WIDTH), "{text}");
    }

    #[test]
    fn render__marks_a_factor_that_stands_on_few_samples() {
        let mut report = sample::incast_demo();
        report.figures.iter_mut().for_each(|figure| figure.samples = 999);
        let text = render(&report, Paint::Plain);
        assert!(text.contains("~426 [405..448]") && text.contains("~ fewer than ten samples"), "{text}");
    }

    #[test]
    fn render__a_run_without_shares_shows_marks_and_no_empty_column() {
        let mut report = sample::incast_demo();
        for share in &mut report.shares {
            (share.configured, share.reached, share.starved_ms) = (None, None, None);
            share.granted = "46 seen".to_owned();
        }
        let text = render(&report, Paint::Plain);
        let heading = text.lines().position(|line| line == "Marks (DSCP)").expect("the table");
        let columns = text.lines().nth(heading + 1).expect("its head").split_whitespace().collect::<Vec<_>>();
        assert_eq!(columns, ["queue", "class", "asked", "seen"]);
        assert!(!text.contains("got %") && !text.contains("46 seen"), "{text}");
    }

    #[test]
    fn render__colours_only_a_terminal_and_says_the_same() {
        let report = sample::incast_demo();
        let coloured = render(&report, Paint::Colour);
        assert!(coloured.contains("\u{1b}[1;33mCONGESTED\u{1b}[0m"));
        let stripped: String = coloured
            .split('\u{1b}')
            .map(|part| part.trim_start_matches("[1;33m").trim_start_matches("[1;34m").trim_start_matches("[0m"))
            .collect();
        assert_eq!(stripped, render(&report, Paint::Plain));
    }

    #[test]
    fn render__an_empty_report_is_an_empty_line() {
        let scenario = model::Scenario { name: String::new(), text: String::new() };
        assert_eq!(render(&Report::new(Vec::new(), "lab", scenario, 0), Paint::Plain), "\n");
    }
}
