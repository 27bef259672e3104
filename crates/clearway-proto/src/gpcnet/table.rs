//! The tables, character for character as the published benchmark prints them.
//!
//! # Model
//! The short form is 80 columns wide, the long one 140. A row that could not be measured has `-` in
//! place of its figures, which the original never prints, and its reason stands below the tables,
//! with everything else that the original does not say.
//!
//! # Source
//! GPCNeT v1.3: widths, titles, legends and the places of blank lines.
//!
//! # Not here
//! The figures: `summary`. Reading tables: `printed`.

use alloc::format;
use alloc::string::String;
use alloc::vec::Vec;

use super::defects::CorrectedDefects;
use super::kinds::{Congestor, Test, Unit};
use super::summary::{Impact, Summary};

/// The version whose tables these are.
const VERSION: &str = "1.3";
/// The beginning of a line of the legend, common to both programs.
const LEGEND: &str = "  Legend\n   RR = random ring communication pattern\n";
/// The rest of it.
const LEGEND_END: &str = "   Lat = latency\n   BW = bandwidth\n   BW+Sync = bandwidth with barrier";

/// How much a table says.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Detail {
    /// Name, Avg, 99%, Units.
    Short,
    /// Also Min, Max, Avg(Worst), 99.9%, and the congestors' rows.
    Long,
}

impl Detail {
    const fn width(self) -> usize {
        match self {
            Self::Short => 80,
            Self::Long => 140,
        }
    }

    const fn columns(self) -> &'static [&'static str] {
        match self {
            Self::Short => &["Avg", "99%", "Units"],
            Self::Long => &["Min", "Max", "Avg", "Avg(Worst)", "99%", "99.9%", "Units"],
        }
    }

    /// Returns a line across the table.
    fn outer_bar(self) -> String {
        format!("+{}+\n", "-".repeat(self.width() - 2))
    }

    /// Returns a line between rows.
    fn inner_bar(self) -> String {
        let columns = format!("{}+", "-".repeat(14)).repeat(self.columns().len());
        format!("+{}+{columns}\n", "-".repeat(33))
    }

    /// Returns the head of a table called `title`, which has `left` blanks before it.
    fn head(self, left: usize, title: &str) -> String {
        let columns: String = self.columns().iter().map(|name| format!(" {name:>12} |")).collect();
        let inner = self.inner_bar();
        let title = format!("{:left$}{title}", "");
        format!(
            "\n{}| {title:<width$} |\n{inner}| {:>31} |{columns}\n{inner}",
            self.outer_bar(),
            "Name",
            width = self.width() - 4
        )
    }

    /// Returns one row and the line below it.
    fn row(self, name: &str, unit: Unit, summary: Option<&Summary>) -> String {
        let figures: Vec<Option<f64>> = match self {
            Self::Short => [summary.map(|s| s.avg), summary.map(|s| s.p99)].into(),
            Self::Long => {
                let all = |s: &Summary| [s.min, s.max, s.avg, s.avg_worst, s.p99, s.p999].map(Some);
                summary.map_or([None; 6], all).into()
            }
        };
        let cells: String =
            figures.into_iter().map(|figure| format!(" {:>12} |", shown(figure))).collect();
        format!("| {name:>31.31} |{cells} {:>12.12} |\n{}", unit.name(), self.inner_bar())
    }
}

/// Returns a figure as the C library prints it with one decimal.
fn shown(figure: Option<f64>) -> String {
    match figure {
        None => "-".into(),
        Some(value) if value.is_nan() => "nan".into(),
        Some(value) => format!("{value:.1}"),
    }
}

/// A figure and its name.
#[derive(Clone, Debug, PartialEq)]
pub struct TableRow<K> {
    /// Of what.
    pub of: K,
    /// Its figures, if it could be measured.
    pub summary: Option<Summary>,
}

/// What the network test found.
#[derive(Clone, Debug, PartialEq)]
pub struct NetworkReport {
    /// Ranks in all.
    pub ranks: usize,
    /// Nodes in all.
    pub nodes: usize,
    /// In the order of printing.
    pub rows: Vec<TableRow<Test>>,
}

impl NetworkReport {
    /// Returns the text that the original would print.
    pub fn text(&self, detail: Detail) -> String {
        let Self { ranks, nodes, rows } = self;
        let natural = "   Nat = natural ring communication pattern\n";
        let mut text =
            format!("Network Tests v{VERSION}\n  Test with {ranks} MPI ranks ({nodes} nodes)\n\n");
        text += &format!("{LEGEND}{natural}{LEGEND_END}");
        text += &isolated(rows, detail);
        text
    }
}

/// Returns the table of tests that ran alone.
fn isolated(rows: &[TableRow<Test>], detail: Detail) -> String {
    let left = match detail {
        Detail::Short => 27,
        Detail::Long => 57,
    };
    let mut text = detail.head(left, "Isolated Network Tests");
    for row in rows {
        text += &detail.row(&row.of.name(), row.of.unit(), row.summary.as_ref());
    }
    text
}

/// A test under load, and what congestors did meanwhile.
#[derive(Clone, Debug, PartialEq)]
pub struct CongestedTest {
    /// The test.
    pub row: TableRow<Test>,
    /// The congestors.
    pub congestors: Vec<TableRow<Congestor>>,
}

/// What the network load test found.
#[derive(Clone, Debug, PartialEq)]
pub struct LoadReport {
    /// Ranks in all.
    pub ranks: usize,
    /// Nodes that are measured.
    pub victim_nodes: usize,
    /// Nodes that load.
    pub congestor_nodes: usize,
    /// Tests alone.
    pub isolated: Vec<TableRow<Test>>,
    /// Congestors alone; printed in the long form only.
    pub congestors: Vec<TableRow<Congestor>>,
    /// Tests under load, in the order of `isolated`.
    pub congested: Vec<CongestedTest>,
    /// What is not as published: decides how the impact is computed.
    pub mended: CorrectedDefects,
}

impl LoadReport {
    /// Returns the impact on each test that has figures of both kinds.
    fn impacts(&self) -> Vec<(Test, Option<Impact>)> {
        let impact = |(alone, loaded): (&TableRow<Test>, &CongestedTest)| {
            let summaries = alone.summary.as_ref().zip(loaded.row.summary.as_ref());
            (
                alone.of,
                summaries.map(|(alone_is, loaded_is)| {
                    Impact::new(alone.of.unit(), alone_is, loaded_is, self.mended)
                }),
            )
        };
        self.isolated.iter().zip(&self.congested).map(impact).collect()
    }

    /// Returns the text that the original would print.
    pub fn text(&self, detail: Detail) -> String {
        let nodes = self.victim_nodes + self.congestor_nodes;
        let mut text = format!(
            "NetworkLoad Tests v{VERSION}\n  Test with {} MPI ranks ({nodes} nodes)\n",
            self.ranks
        );
        text += &format!("  {} nodes running Network Tests\n", self.victim_nodes);
        let each = self.congestor_nodes / Congestor::ALL.len();
        text += &format!(
            "  {} nodes running Congestion Tests (min {each} nodes per congestor)\n\n{LEGEND}{LEGEND_END}",
            self.congestor_nodes
        );
        text += &isolated(&self.isolated, detail);
        text += &match detail {
            Detail::Short => self.congested_short(),
            Detail::Long => self.congested_long(),
        };
        text + &self.key_results()
    }

    fn congested_short(&self) -> String {
        let detail = Detail::Short;
        let mut text = detail.head(16, "Network Tests running with Congestion Tests");
        for CongestedTest { row, .. } in &self.congested {
            text += &detail.row(&row.of.name(), row.of.unit(), row.summary.as_ref());
        }
        text
    }

    fn congested_long(&self) -> String {
        let detail = Detail::Long;
        let rows = |congestors: &[TableRow<Congestor>]| -> String {
            congestors
                .iter()
                .map(|row| detail.row(row.of.name(), Unit::Rate, row.summary.as_ref()))
                .collect()
        };
        let mut text = detail.head(55, "Isolated Congestion Tests") + &rows(&self.congestors);
        for CongestedTest { row, congestors } in &self.congested {
            let title = format!(
                "Network Tests running with Congestion Tests ({:>20} Network Test)",
                row.of.title()
            );
            text += &detail.head(28, &title);
            text += &detail.row(&row.of.name(), row.of.unit(), row.summary.as_ref());
            text += &rows(congestors);
        }
        text
    }

    fn key_results(&self) -> String {
        let bar = |columns: &[usize]| -> String {
            let columns: String =
                columns.iter().map(|width| format!("{}+", "-".repeat(*width))).collect();
            format!("+{columns}\n")
        };
        let (two, three) = (bar(&[33, 44]), bar(&[33, 22, 21]));
        let title = "Network Tests running with Congestion Tests - Key Results";
        let mut text = format!("\n{}| {:9}{title}{:10} |\n{two}", bar(&[78]), "", "");
        text += &format!("| {:>31} | {:>42} |\n{three}", "Name", "Congestion Impact Factor");
        text += &format!("| {:>31} | {:>20} | {:>19} |\n{three}", "", "Avg", "99%");
        for (test, impact) in self.impacts() {
            let cell = |factor: Option<f64>| match factor {
                None => "-".into(),
                figure => format!("{}X", shown(figure)),
            };
            let (avg, p99) = (cell(impact.map(|i| i.avg)), cell(impact.map(|i| i.p99)));
            text += &format!("| {:>31.31} | {avg:>20} | {p99:>19} |\n{three}", test.name());
        }
        text
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Returns the figures that tell rows and columns apart.
    fn summary(row: u32) -> Option<Summary> {
        let at = |value: f64| f64::from(row) * 100.0 + value;
        let (min, max, avg, avg_worst) = (at(1.25), at(9.0), at(3.44), at(5.66));
        Some(Summary { min, max, avg, avg_worst, p99: at(7.75), p999: at(8.0625) })
    }

    fn rows<K: Copy>(of: &[K], first: u32) -> Vec<TableRow<K>> {
        of.iter()
            .zip(first..)
            .map(|(of, row)| TableRow { of: *of, summary: summary(row) })
            .collect()
    }

    fn load() -> LoadReport {
        let congested = rows(&Test::LOAD, 4).into_iter().map(|row| {
            let congestors = rows(&Congestor::ALL, 20);
            CongestedTest { row, congestors }
        });
        LoadReport {
            ranks: 22,
            victim_nodes: 5,
            congestor_nodes: 17,
            isolated: rows(&Test::LOAD, 1),
            congestors: rows(&Congestor::ALL, 10),
            congested: congested.collect(),
            mended: CorrectedDefects::NONE,
        }
    }

    #[test]
    fn text__is_what_the_formats_of_the_original_make() {
        let network = NetworkReport { ranks: 40, nodes: 20, rows: rows(&Test::NETWORK, 1) };
        assert_eq!(network.text(Detail::Short), include_str!("golden/network_short.txt"));
        assert_eq!(network.text(Detail::Long), include_str!("golden/network_long.txt"));
        assert_eq!(load().text(Detail::Short), include_str!("golden/load_short.txt"));
        assert_eq!(load().text(Detail::Long), include_str!("golden/load_long.txt"));
    }

    #[test]
    fn text__what_was_not_measured_keeps_its_line_and_its_width() {
        let mut report = load();
        report.isolated[1].summary = None;
        let text = report.text(Detail::Short);
        let line = text
            .lines()
            .find(|line| line.contains("BW+Sync (131072 B)"))
            .expect("the row is there");
        assert!(
            line.ends_with("|            - |            - |   MiB/s/rank |") && line.len() == 80,
            "{line}"
        );
        let last = text.lines().rev().nth(3).expect("the row is there");
        assert!(last.ends_with("|                    - |                   - |"), "{last}");
    }
}
