//! Reads tables that GPCNeT or Clearway printed, and lays two runs side by side.
//!
//! # Model
//! A line that begins with `|` is a title (one cell), a line of column names (its first cell is
//! `Name`), or a row. What other lines say is passed over, so a whole job's output can be given. A
//! figure of `-`, `nan` or `inf` is read as none.
//!
//! # Invariants
//! I1. Any text gives a result or an error, never a panic; no more than [`ROWS_MAX`] rows are kept.

use alloc::borrow::ToOwned;
use alloc::format;
use alloc::string::String;
use alloc::vec::Vec;
use core::fmt;

/// Rows of a run: the longest form has 25.
const ROWS_MAX: usize = 256;
/// The title of the table of impact factors.
const KEY_RESULTS: &str = "Key Results";

/// One row as it was printed.
#[derive(Clone, Debug, PartialEq)]
pub struct PrintedRow {
    /// The title of its table.
    pub table: String,
    /// The test or congestor.
    pub name: String,
    /// Each column's name and figure.
    pub figures: Vec<(String, Option<f64>)>,
    /// What the figures are counted in; `X` for impact factors.
    pub unit: String,
}

impl PrintedRow {
    /// Returns the figure in the column `name`.
    pub fn figure(&self, name: &str) -> Option<f64> {
        self.figures.iter().find(|(column, _)| column == name)?.1
    }
}

/// A run as it was printed.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct PrintedRun {
    /// In the order of printing.
    pub rows: Vec<PrintedRow>,
}

/// The text is not GPCNeT's; prints as a sentence.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum PrintedError {
    /// There is no table with rows in it.
    NoTable,
    /// The program itself refused to run.
    Refused,
    /// More rows than any run has.
    TooLong,
}

impl fmt::Display for PrintedError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::NoTable => "there is no table of GPCNeT in it; save what network_test or network_load_test printed",
            Self::Refused => "GPCNeT refused to run: its output says ERROR",
            Self::TooLong => "there are more rows than a run of GPCNeT prints; keep one run in the file",
        })
    }
}

impl core::error::Error for PrintedError {}

/// Reads a figure; impact factors end in `X`.
fn figure(cell: &str) -> Option<f64> {
    cell.trim_end_matches('X').parse().ok().filter(|value: &f64| value.is_finite())
}

impl PrintedRun {
    /// Reads `text`.
    ///
    /// # Errors
    /// [`PrintedError`] when there is nothing to read, or too much.
    pub fn parse(text: &str) -> Result<Self, PrintedError> {
        let (mut table, mut columns) = (String::new(), Vec::new());
        let mut rows: Vec<PrintedRow> = Vec::new();
        for line in text.lines().map(str::trim) {
            let Some(inner) = line.strip_prefix('|').and_then(|line| line.strip_suffix('|')) else {
                if line.starts_with("ERROR") {
                    return Err(PrintedError::Refused);
                }
                continue;
            };
            let cells: Vec<&str> = inner.split('|').map(str::trim).collect();
            match cells.as_slice() {
                [title] => {
                    (table, columns) =
                        (title.split_whitespace().collect::<Vec<_>>().join(" "), Vec::new())
                }
                ["Name", "Congestion Impact Factor"] => {}
                ["Name" | "", names @ ..] => {
                    columns = names.iter().map(|name| (*name).to_owned()).collect()
                }
                [name, figures @ ..] if figures.len() == columns.len() => {
                    if rows.len() == ROWS_MAX {
                        return Err(PrintedError::TooLong);
                    }
                    rows.push(row(&table, name, &columns, figures));
                }
                _ => {}
            }
        }
        if rows.is_empty() { Err(PrintedError::NoTable) } else { Ok(Self { rows }) }
    }

    /// Returns the row of this run that shows the same as `row` of another. The wide form has a
    /// table for each test under load, the narrow one a table for all of them.
    fn twin_of(&self, row: &PrintedRow) -> Option<&PrintedRow> {
        let test = |table: &str| table.split(" (").next().unwrap_or_default().to_owned();
        let named = || self.rows.iter().filter(|twin| twin.name == row.name);
        let exact = named().find(|twin| twin.table == row.table);
        exact.or_else(|| named().find(|twin| test(&twin.table) == test(&row.table)))
    }

    /// Compares this run, called `ours`, and `other`, called `theirs`: rows of both, and what
    /// `ours` is of `theirs`.
    ///
    /// Columns that only one of them has are left out; rows that only one has show `-`.
    pub fn side_by_side(&self, other: &Self, ours: &str, theirs: &str) -> String {
        let width = ours.len().max(theirs.len()).clamp(9, 16);
        let mut text = String::new();
        let mut table = "";
        for row in &self.rows {
            if row.table != table {
                table = &row.table;
                text += &format!("{}{table}\n", if text.is_empty() { "" } else { "\n" });
                let pair = format!("{ours:>width$.width$} {theirs:>width$.width$} {:>7}", "ratio");
                text += &format!("{:>31}  {:>10}  {pair}  Units\n", "Name", "Column");
            }
            let twin = other.twin_of(row);
            for (column, figure) in &row.figures {
                let twin = twin.and_then(|twin| twin.figure(column));
                let shown = |figure: Option<f64>| {
                    figure.map_or("-".to_owned(), |figure| format!("{figure:.1}"))
                };
                let ratio = figure.zip(twin).filter(|(_, b)| *b != 0.0).map(|(a, b)| a / b);
                let ratio = ratio.map_or("-".to_owned(), |ratio| format!("{ratio:.2}"));
                text += &format!(
                    "{:>31.31}  {column:>10}  {:>width$} {:>width$} {ratio:>7}  {}\n",
                    row.name,
                    shown(*figure),
                    shown(twin),
                    row.unit
                );
            }
        }
        text
    }
}

fn row(table: &str, name: &str, columns: &[String], cells: &[&str]) -> PrintedRow {
    let is_impact = table.ends_with(KEY_RESULTS);
    let unit = if is_impact { "X" } else { cells.last().copied().unwrap_or_default() };
    let figures = columns.iter().zip(cells).filter(|(column, _)| *column != "Units");
    PrintedRow {
        table: table.to_owned(),
        name: name.to_owned(),
        figures: figures.map(|(column, cell)| (column.clone(), figure(cell))).collect(),
        unit: unit.to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const LOAD: &str = include_str!("golden/load_short.txt");
    const LOAD_LONG: &str = include_str!("golden/load_long.txt");

    #[test]
    fn parse__finds_every_row_of_both_forms() {
        let short = PrintedRun::parse(LOAD).expect("a run");
        assert_eq!(short.rows.len(), 9);
        assert_eq!(short.rows[1].table, "Isolated Network Tests");
        assert_eq!(short.rows[1].name, "RR Two-sided BW+Sync (131072 B)");
        assert_eq!(
            [short.rows[1].figure("Avg"), short.rows[1].figure("99%")],
            [Some(203.4), Some(207.8)]
        );
        assert_eq!(short.rows[1].unit, "MiB/s/rank");
        assert_eq!(
            short.rows[6].table,
            "Network Tests running with Congestion Tests - Key Results"
        );
        assert_eq!(
            [short.rows[6].figure("Avg"), short.rows[6].figure("99%")],
            [Some(3.9), Some(3.8)]
        );
        assert_eq!(short.rows[6].unit, "X");
        let long = PrintedRun::parse(LOAD_LONG).expect("a run");
        assert_eq!(long.rows.len(), 3 + 4 + 15 + 3);
        assert_eq!(long.rows[0].figure("99.9%"), Some(108.1));
    }

    #[test]
    fn parse__says_why_there_is_nothing_to_read() {
        assert_eq!(PrintedRun::parse("mpirun: not found\n"), Err(PrintedError::NoTable));
        let refusal = "ERROR: this application must be run on at least 10 nodes\n";
        assert_eq!(PrintedRun::parse(refusal), Err(PrintedError::Refused));
        let endless =
            "| T |\n| Name | Avg | Units |\n".to_owned() + &"| a | 1 | s |\n".repeat(ROWS_MAX + 1);
        assert_eq!(PrintedRun::parse(&endless), Err(PrintedError::TooLong));
    }

    #[test]
    fn side_by_side__shows_both_and_their_ratio() {
        let theirs = "| Isolated Network Tests |\n| Name | Avg | 99% | Units |\n| RR Two-sided Lat (8 B) | 206.8 | nan | usec |\n";
        let theirs = PrintedRun::parse(theirs).expect("a run");
        let text = PrintedRun::parse(LOAD).expect("a run").side_by_side(&theirs, "here", "cluster");
        let lines: Vec<&str> = text.lines().collect();
        assert_eq!(lines[0], "Isolated Network Tests");
        assert_eq!(
            lines[2],
            "         RR Two-sided Lat (8 B)         Avg      103.4     206.8    0.50  usec"
        );
        assert_eq!(
            lines[3],
            "         RR Two-sided Lat (8 B)         99%      107.8         -       -  usec"
        );
    }

    #[test]
    fn side_by_side__finds_a_row_in_the_other_form() {
        let (short, long) =
            (PrintedRun::parse(LOAD).expect("a run"), PrintedRun::parse(LOAD_LONG).expect("a run"));
        let text = short.side_by_side(&long, "a", "b");
        assert!(
            text.lines().filter(|line| line.contains(" B)")).all(|line| line.contains(" 1.00  ")),
            "{text}"
        );
        assert!(
            long.side_by_side(&short, "a", "b")
                .contains("Multiple Allreduce (8 B)         Avg      603.4     603.4    1.00")
        );
    }

    proptest! {
        #[test]
        fn parse__any_text_gives_a_result(text in "[|+A-Za-z0-9.% \n-]{0,400}") {
            if let Ok(printed) = PrintedRun::parse(&text) {
                printed.side_by_side(&printed, "a", "b");
            }
        }
    }
}
