//! The table of runs that were judged alone: false alarms, and what was found.

use super::super::names;
use crate::report::html::tables::{cell, ends, head, number, table};
use crate::report::html::{queue_name, section, text};
use crate::report::model::{Figure, Report, labels};
use crate::report::numerals::{digits, fit, interval_in};

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

    /// Returns what the rate is of.
    fn meaning(&self) -> &'static str {
        if self.is_silent() { "false" } else { "found" }
    }

    /// Returns victim, congestor and load.
    fn subject(&self) -> String {
        let place = self.of.label(labels::PLACE);
        let place = place.map_or_else(String::new, |place| format!(" on {place}"));
        if self.is_silent() {
            return format!("{}, A = A{place}", self.label(labels::VICTIM));
        }
        let load = |key: &str, unit: &str| {
            self.of.label(key).map_or_else(String::new, |load| format!(" {load}{unit}"))
        };
        let (intensity, bursts) = (load(labels::INTENSITY, " %"), load(labels::BURSTS, ""));
        let (victim, congestor) = (self.label(labels::VICTIM), self.label(labels::CONGESTOR));
        let members = self.of.label(labels::MEMBERS);
        let members = members.map_or_else(String::new, |members| format!(" of {members}"));
        format!("{victim} under {congestor}{members}{intensity}{bursts}{place}")
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

/// Returns the table for a terminal.
pub(super) fn lines(report: &Report) -> Vec<String> {
    let rows = rows(report);
    if rows.is_empty() {
        return Vec::new();
    }
    let mut lines = vec![
        "Verdicts of runs judged alone, and the rate of CONGESTED in %".to_owned(),
        format!(
            "  {:<9}{:<28}{:>4}{:>10}{:>8}  rate [95 %]",
            "queue", "cell", "runs", "congested", "invalid"
        ),
    ];
    for row in &rows {
        let [_, congested, invalid] = row.counts;
        let total: u64 = row.counts.iter().sum();
        let rate = row.rate.map_or_else(
            || "-".to_owned(),
            |rate| format!("{} {}", digits(rate.value), interval_in(rate.low, rate.high, 11)),
        );
        let subject = fit(&row.subject(), 27);
        let queue = fit(row.label(labels::QUEUE), 8);
        lines.push(format!(
            "  {queue:<9}{subject:<28}{total:>4}{congested:>10}{invalid:>8}  {rate}"
        ));
    }
    lines
}

/// Returns the section of the page.
pub(super) fn page(report: &Report, queues: &[String]) -> String {
    let mut body = String::new();
    for row in rows(report) {
        let counts: String = OUTCOMES
            .into_iter()
            .zip(row.counts)
            .map(|(outcome, count)| cell(outcome, "n", &count.to_string()))
            .collect();
        let rate = row.rate.map_or_else(
            || "\u{2013}".to_owned(),
            |rate| {
                format!(
                    "<b>{}\u{202f}%</b> <small>{}</small> {}",
                    number(rate.value),
                    ends(rate),
                    row.meaning()
                )
            },
        );
        body.push_str(&format!(
            "<tr><th scope=\"row\">{}</th>{}{counts}{}</tr>\n",
            queue_name(row.label(labels::QUEUE), queues),
            cell("runs", "", &text(&row.subject())),
            cell("congested, 95 %", "n", &rate)
        ));
    }
    if body.is_empty() {
        return body;
    }
    let columns = [
        ("Queue", ""),
        ("Runs", ""),
        ("Contained", "n"),
        ("Congested", "n"),
        ("Invalid", "n"),
        ("Congested [95 % CI]", "n"),
    ];
    let caption = "In A = A runs congestors are silent, and CONGESTED is a false alarm, counted among the runs with a verdict; in the others it is what was to be found, counted among all.";
    let lead = "The same cell many times, each run judged alone by the same rules.";
    let table = table("cards", caption, &head(&columns), &body);
    section("single-runs", "How often the verdict is right", lead, &table)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::report::model::ExtendedReal;
    use crate::report::sample;
    use crate::report::terminal::WIDTH;

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
        assert_eq!(lines.len(), 4, "{lines:?}");
        assert!(lines.iter().all(|line| line.chars().count() <= WIDTH), "{lines:#?}");
        let words = |line: &str| line.split_whitespace().map(str::to_owned).collect::<Vec<_>>();
        assert!(
            words(&lines[2]).ends_with(&words("A = A 400 1 3 100 [12.3..100]")),
            "{}",
            lines[2]
        );
        assert!(words(&lines[3]).contains(&"400".to_owned()), "{}", lines[3]);
    }

    #[test]
    fn page__says_of_each_rate_what_it_is() {
        assert!(page(&sample::incast_demo(), &[]).is_empty());
        let page = page(&counted(), &[]);
        assert!(page.contains("</small> false<") && page.contains("</small> found<"), "{page}");
        assert!(page.contains("bandwidth-sync, A = A"));
    }
}
