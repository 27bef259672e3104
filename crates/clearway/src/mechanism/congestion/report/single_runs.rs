//! The tables of runs that have a verdict each: the rate of false alarms, and that of detection.

use super::super::names;
use crate::report::html::tables::{cell, ends, head, number, table};
use crate::report::html::{queue_name, section, text};
use crate::report::model::{Figure, Report, labels};
use crate::report::numerals::{digits, fit, interval_in};
use crate::report::terminal::WIDTH;
use crate::report::title::cell_title;

/// Runs without congestion.
const SILENT: &str = "A = A runs, with silent congestors";
const LOADED: &str = "Runs under load";
/// The rate of false alarms, as a column is called.
const FALSE_ALARMS: &str = "False alarms [95 % CI]";
/// The rate of detection, as a column is called.
const DETECTED: &str = "Detected [95 % CI]";
/// Characters of a cell's name in a terminal.
const NAME: usize = 30;

/// Outcomes in the order of columns.
const OUTCOMES: [&str; 3] = ["contained", "congested", "invalid"];

/// One row: the runs of one cell.
struct Row<'a> {
    /// Some figure of it, whose labels tell it apart.
    of: &'a Figure,
    /// Runs by outcome.
    counts: [u64; 3],
    /// False alarms, or what was found; absent where no run had a verdict.
    rate: Option<&'a Figure>,
}

impl Row<'_> {
    fn label(&self, key: &str) -> &str {
        self.of.label(key).unwrap_or("-")
    }

    fn is_silent(&self) -> bool {
        self.of.label(labels::CONGESTOR) == Some(labels::NOBODY)
    }
}

/// Returns the rows of `report` in the order of its figures.
fn rows(report: &Report) -> Vec<Row<'_>> {
    let is_same = |a: &Figure, b: &Figure| {
        let plain = |figure: &Figure| {
            let mut all = figure.labels.clone();
            all.remove(names::OUTCOME);
            all
        };
        plain(a) == plain(b)
    };
    let mut rows: Vec<Row<'_>> = Vec::new();
    for figure in report.figures.iter().filter(|figure| figure.name == names::SINGLE_RUNS) {
        let place = rows.iter().position(|row| is_same(row.of, figure)).unwrap_or_else(|| {
            let is_rate = |it: &&Figure| [names::FALSE_ALARMS, names::FOUND].contains(&&*it.name);
            let rate = report.figures.iter().filter(is_rate).find(|it| is_same(it, figure));
            rows.push(Row { of: figure, counts: [0; 3], rate });
            rows.len() - 1
        });
        let outcome = OUTCOMES.iter().position(|it| figure.label(names::OUTCOME) == Some(it));
        if let Some(outcome) = outcome {
            rows[place].counts[outcome] = figure.value.get() as u64;
        }
    }
    rows
}

/// Returns the tables for a terminal.
pub(super) fn lines(report: &Report) -> Vec<String> {
    let (silent, loaded): (Vec<_>, Vec<_>) = rows(report).into_iter().partition(Row::is_silent);
    let mut lines = Vec::new();
    for (rows, title, rate) in [
        (silent, format!("{SILENT}: CONGESTED is a false alarm"), FALSE_ALARMS),
        (loaded, format!("{LOADED}: CONGESTED is what there is to find"), DETECTED),
    ] {
        if !rows.is_empty() {
            lines.push(title);
            lines.push(line("queue and cell", ["runs", "congested", "invalid"], rate));
            lines.extend(rows.iter().flat_map(row_lines));
        }
    }
    lines
}

/// Returns the lines of one cell: a name that is too long for the column has one of its own.
fn row_lines(row: &Row<'_>) -> Vec<String> {
    let [_, congested, invalid] = row.counts;
    let numbers = [row.counts.iter().sum(), congested, invalid].map(|count: u64| count.to_string());
    let rate = row.rate.map_or_else(
        || "-".to_owned(),
        |rate| format!("{} {}", digits(rate.value), interval_in(rate.low, rate.high, 11)),
    );
    let name = format!("{}: {}", row.label(labels::QUEUE), cell_title(&row.of.labels));
    let numbers = numbers.each_ref().map(String::as_str);
    if name.chars().count() <= NAME {
        return vec![line(&name, numbers, &rate)];
    }
    vec![fit(&format!("  {name}"), WIDTH), line("", numbers, &rate)]
}

fn line(name: &str, [runs, congested, invalid]: [&str; 3], rate: &str) -> String {
    format!("  {name:<NAME$}{runs:>5}{congested:>10}{invalid:>8}  {rate}")
}

/// Returns the section of the page.
pub(super) fn page(report: &Report, queues: &[String]) -> String {
    let (silent, loaded): (Vec<_>, Vec<_>) = rows(report).into_iter().partition(Row::is_silent);
    if silent.is_empty() && loaded.is_empty() {
        return String::new();
    }
    let false_alarms = "Congestors are silent in A = A runs, so CONGESTED is a false alarm. The rate is that among runs with a verdict other than INVALID.";
    let detected = "Congestors send. The rate is that of CONGESTED among all runs; 0 % is right for queues that contain them.";
    let lead = "The same cell many times; each run has a verdict of its own, by the same rules.";
    let tables = page_table(&silent, (SILENT, FALSE_ALARMS), false_alarms, queues)
        + &page_table(&loaded, (LOADED, DETECTED), detected, queues);
    section("single-runs", "How often the verdict is right", lead, &tables)
}

/// Returns the table of `rows` below `title`, whose last column is the rate called `rate`; nothing
/// without rows.
fn page_table(
    rows: &[Row<'_>],
    (title, rate): (&str, &str),
    caption: &str,
    queues: &[String],
) -> String {
    let row = |row: &Row<'_>| {
        let counts: String = OUTCOMES
            .into_iter()
            .zip(row.counts)
            .map(|(outcome, count)| cell(outcome, "n", &count.to_string()))
            .collect();
        let found = row.rate.map_or_else(
            || "\u{2013}".to_owned(),
            |rate| format!("<b>{}\u{202f}%</b> <small>{}</small>", number(rate.value), ends(rate)),
        );
        format!(
            "<tr><th scope=\"row\">{}</th>{}{counts}{}</tr>\n",
            queue_name(row.label(labels::QUEUE), queues),
            cell("cell", "", &text(&cell_title(&row.of.labels))),
            cell(rate, "n", &found)
        )
    };
    let body: String = rows.iter().map(row).collect();
    if body.is_empty() {
        return body;
    }
    let columns = [
        ("Queue", ""),
        ("Cell", ""),
        ("Contained", "n"),
        ("Congested", "n"),
        ("Invalid", "n"),
        (rate, "n"),
    ];
    format!("<h3>{title}</h3>\n") + &table("cards", caption, &head(&columns), &body)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::report::model::ExtendedReal;
    use crate::report::sample;

    fn counted() -> Report {
        let mut report = sample::incast_demo();
        for (congestor, rate, counts) in
            [("none", names::FALSE_ALARMS, [396, 1, 3]), ("incast", names::FOUND, [0, 400, 0])]
        {
            let labelled = |name: &str, value: f64| {
                Figure::counted(name, "", ExtendedReal::finite(value), 400, "")
                    .with(labels::QUEUE, "a-queue-of-a-long-name")
                    .with(labels::VICTIM, "bandwidth-sync")
                    .with(labels::CONGESTOR, congestor)
            };
            for (outcome, count) in OUTCOMES.into_iter().zip(counts) {
                let figure = labelled(names::SINGLE_RUNS, f64::from(count));
                report.figures.push(figure.with(names::OUTCOME, outcome));
            }
            let ends = [12.345, 99.999].map(ExtendedReal::new);
            let figure = labelled(rate, 100.0);
            report.figures.push(Figure { low: ends[0], high: ends[1], ..figure });
        }
        report
    }

    #[test]
    fn lines__have_the_counts_of_each_cell_and_fit_a_terminal() {
        assert!(lines(&sample::incast_demo()).is_empty());
        let lines = lines(&counted());
        assert_eq!(lines.len(), 8, "{lines:?}");
        assert!(lines.iter().all(|line| line.chars().count() <= WIDTH), "{lines:#?}");
        let words = |line: &str| line.split_whitespace().map(str::to_owned).collect::<Vec<_>>();
        assert!(lines[1].ends_with("False alarms [95 % CI]"), "{}", lines[1]);
        assert!(lines[2].ends_with("bandwidth-sync, A = A"), "{}", lines[2]);
        assert_eq!(words(&lines[3]), words("400 1 3 100 [12.3..100]"));
        assert!(lines[5].ends_with("Detected [95 % CI]"), "{}", lines[5]);
        assert!(lines[6].ends_with("bandwidth-sync under incast"), "{}", lines[6]);
        assert_eq!(words(&lines[7]), words("400 400 0 100 [12.3..100]"));
    }

    #[test]
    fn page__says_of_each_rate_what_it_is() {
        assert!(page(&sample::incast_demo(), &[]).is_empty());
        let page = page(&counted(), &[]);
        for (rate, cell) in [(FALSE_ALARMS, "A = A"), (DETECTED, "under incast")] {
            let table = page.split("<table").find(|table| table.contains(rate)).expect(rate);
            assert!(table.contains(cell), "{table}");
        }
        assert!(page.contains("bandwidth-sync, A = A"));
    }
}
