//! Writes the figures of a command for programs: one schema for all commands.
//!
//! # Model
//! JSON is an object whose `figures` are those of `report.json`, whatever else a command adds. CSV
//! has a row for each figure; its labels stand in one column, as `key=value` with `;` between them,
//! because each name has labels of its own.
//!
//! # Not here
//! Tables for people (`terminal`, mechanisms).

use anyhow::{Context, Result};
use clap::Args;
use serde::Serialize;

use super::model::{ExtendedReal, Figure, rounded};

/// The columns of CSV.
const COLUMNS: &str = "name,value,unit,low,high,samples,labels\n";

/// In which form a command prints its figures.
#[derive(Clone, Copy, Debug, Default, Args)]
pub(crate) struct FigureFormat {
    /// Write JSON instead of tables: an object whose `figures` are those of report.json.
    #[arg(long, conflicts_with = "csv")]
    pub(crate) json: bool,
    /// Write the figures as CSV instead of tables.
    #[arg(long)]
    pub(crate) csv: bool,
}

/// The fields of a document that has only figures: none.
#[derive(Debug, Serialize)]
pub(crate) struct NothingMore {}

#[derive(Serialize)]
struct FigureDocument<'a, M> {
    figures: &'a [Figure],
    #[serde(flatten)]
    more: &'a M,
}

impl FigureFormat {
    /// Returns whether a program reads what is printed.
    pub(crate) const fn is_for_programs(self) -> bool {
        self.json || self.csv
    }

    /// Returns `figures` in this form, in JSON with the fields of `more`; `table` where a person
    /// reads it.
    ///
    /// # Errors
    /// `more` is no object of JSON.
    pub(crate) fn text(
        self,
        figures: &[Figure],
        more: &impl Serialize,
        table: impl FnOnce() -> String,
    ) -> Result<String> {
        if self.json {
            let text = serde_json::to_string_pretty(&FigureDocument { figures, more });
            return Ok(text.context("a result that JSON cannot hold")? + "\n");
        }
        if !self.csv {
            return Ok(table());
        }
        let rows: String = figures.iter().map(row).collect();
        Ok(COLUMNS.to_owned() + &rows)
    }
}

fn row(figure: &Figure) -> String {
    let number = |number: Option<ExtendedReal>| number.map_or_else(String::new, plain);
    let labels: Vec<String> =
        figure.labels.iter().map(|(key, value)| format!("{key}={}", escaped(value))).collect();
    let cells = [
        quoted(&figure.name),
        plain(figure.value),
        quoted(&figure.unit),
        number(figure.low),
        number(figure.high),
        figure.samples.to_string(),
        quoted(&labels.join(";")),
    ];
    cells.join(",") + "\n"
}

/// Writes a backslash before what would end a label.
fn escaped(value: &str) -> String {
    value.replace('\\', "\\\\").replace(';', "\\;").replace('=', "\\=")
}

fn plain(number: ExtendedReal) -> String {
    rounded(number.get()).to_string()
}

/// Quotes what would end a cell (RFC 4180).
fn quoted(text: &str) -> String {
    if text.contains([',', '"', '\n', '\r']) {
        format!("\"{}\"", text.replace('"', "\"\""))
    } else {
        text.to_owned()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn figures() -> [Figure; 2] {
        let figure = |name, value| Figure::counted(name, "s", value, 3, "");
        [
            figure("lost", ExtendedReal::INFINITE).with("bytes", "67108864").with("mode", "auto"),
            Figure {
                low: Some(ExtendedReal::finite(1.0)),
                ..figure("took", ExtendedReal::finite(1.5))
            }
            .with("of", "a, \"b\""),
        ]
    }

    #[test]
    fn text__csv_has_a_row_for_each_figure_and_quotes_what_would_end_a_cell() {
        let format = FigureFormat { csv: true, json: false };
        let text = format.text(&figures(), &NothingMore {}, || unreachable!()).expect("CSV");
        assert_eq!(
            text,
            "name,value,unit,low,high,samples,labels\n\
             lost,inf,s,,,3,bytes=67108864;mode=auto\n\
             took,1.5,s,1,,3,\"of=a, \"\"b\"\"\"\n"
        );
    }

    #[test]
    fn text__json_is_an_object_with_figures_and_what_more_there_is() {
        let format = FigureFormat { json: true, csv: false };
        let more = serde_json::json!({ "report": "out/x" });
        let text = format.text(&figures(), &more, || unreachable!()).expect("JSON");
        let read: serde_json::Value = serde_json::from_str(&text).expect("JSON");
        assert_eq!(
            (&read["report"], &read["figures"][0]["value"]),
            (&"out/x".into(), &"inf".into())
        );
        let nothing = format.text(&[], &NothingMore {}, || unreachable!()).expect("JSON");
        assert_eq!(nothing, "{\n  \"figures\": []\n}\n");
        let table = FigureFormat::default().text(&[], &NothingMore {}, || "table".to_owned());
        assert_eq!(table.expect("a table"), "table");
    }
}
