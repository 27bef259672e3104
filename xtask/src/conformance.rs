//! `cargo xtask conformance`: every wire against every promise of the contract, as one matrix.
//!
//! # Model
//! The tests named `conformance__*` print a line for each wire and case
//! (`clearway_proto::wire::conformance`). They fail when a promise is broken, and when a wire lacks
//! anything that the test does not name. Columns are wires, rows are cases: `+` is a promise that
//! was kept, a letter is a capability that the wire says it lacks.
//!
//! # Not here
//! The cases: `crates/clearway-proto/src/wire/conformance/cases.rs`.

use std::process::{Command, ExitCode};

use anyhow::{Context, Result, bail};

/// What the lines of the tests begin with.
const PREFIX: &str = "conformance: ";

/// Characters for the columns, in order.
const COLUMNS: &[u8] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789";

/// What one wire did in one case.
#[derive(Debug, PartialEq, Eq)]
struct CaseResult {
    wire: String,
    case: String,
    /// The capability that the wire lacks; `None` when the promise was kept.
    missing: Option<String>,
}

/// Runs `conformance`.
pub(crate) fn run(arguments: &[String]) -> Result<ExitCode> {
    if let Some(argument) = arguments.first() {
        bail!("conformance takes no arguments, not `{argument}`");
    }
    let cargo = std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into());
    let mut command = Command::new(cargo);
    command.args(["test", "--quiet", "--workspace", "conformance__", "--", "--nocapture"]);
    let output = command.output().context("cargo")?;
    let text = String::from_utf8_lossy(&output.stderr);
    print!("{}", matrix(&cells(&text)));
    if output.status.success() {
        return Ok(ExitCode::SUCCESS);
    }
    eprintln!("{}{text}", String::from_utf8_lossy(&output.stdout));
    bail!(
        "a wire breaks a promise, or lacks a capability that its test does not name; the tests' output is above"
    )
}

/// Reads the lines of the tests; all others are skipped. Quiet tests print their dots on the same
/// lines.
fn cells(text: &str) -> Vec<CaseResult> {
    let lines = text.lines().filter_map(|line| line.split_once(PREFIX).map(|(_, rest)| rest));
    lines.filter_map(cell).collect()
}

fn cell(line: &str) -> Option<CaseResult> {
    let (rest, outcome) = line.rsplit_once(": ")?;
    let (wire, case) = rest.split_once(": ")?;
    let missing = outcome.strip_prefix("no ").map(str::to_owned);
    (missing.is_some() || outcome == "passed").then(|| CaseResult {
        wire: wire.to_owned(),
        case: case.to_owned(),
        missing,
    })
}

/// Returns the different values, in the order in which they first appear.
fn distinct<'a>(values: impl Iterator<Item = &'a str>) -> Vec<&'a str> {
    let mut list = Vec::new();
    values.for_each(|value| {
        if !list.contains(&value) {
            list.push(value);
        }
    });
    list
}

/// Draws the matrix, with a legend of wires above and one of missing capabilities below.
fn matrix(cells: &[CaseResult]) -> String {
    let mut wires = distinct(cells.iter().map(|cell| cell.wire.as_str()));
    wires.sort_unstable();
    let cases = distinct(cells.iter().map(|cell| cell.case.as_str()));
    let missing = distinct(cells.iter().filter_map(|cell| cell.missing.as_deref()));
    let column = |index: usize| COLUMNS.get(index).copied().map_or('?', char::from);
    let letter = |name: &str| {
        column(missing.iter().position(|known| *known == name).unwrap_or(usize::MAX))
            .to_ascii_lowercase()
    };
    let mut text = String::new();
    wires
        .iter()
        .enumerate()
        .for_each(|(i, wire)| text.push_str(&format!("{}  {wire}\n", column(i))));
    text.push_str(&format!("\n{}\n", (0..wires.len()).map(column).collect::<String>()));
    for case in &cases {
        let marks = wires.iter().map(|wire| {
            let mut found = cells.iter().filter(|cell| cell.wire == *wire && cell.case == *case);
            found.next().map_or(' ', |cell| cell.missing.as_deref().map_or('+', letter))
        });
        text.push_str(&format!("{}  {case}\n", marks.collect::<String>()));
    }
    text.push_str("\n+  the promise was kept\n");
    missing
        .iter()
        .for_each(|name| text.push_str(&format!("{}  the wire has no {name}\n", letter(name))));
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    const TEXT: &str = "\nrunning 2 tests\n.conformance: memory: a message: passed\nconformance: memory: a file: no file\n\
        conformance: UDP, two rails: a message: passed\nconformance: UDP, two rails: a write: no write\ntest result: ok\n";

    #[test]
    fn cells__are_read_between_other_lines() {
        let cells = cells(TEXT);
        assert_eq!(cells.len(), 4);
        let file = CaseResult {
            wire: "memory".into(),
            case: "a file".into(),
            missing: Some("file".into()),
        };
        assert_eq!(cells[1], file);
    }

    #[test]
    fn matrix__has_a_column_for_each_wire_and_a_row_for_each_case() {
        let expected = "A  UDP, two rails\nB  memory\n\nAB\n++  a message\n a  a file\nb   a write\n\n\
            +  the promise was kept\na  the wire has no file\nb  the wire has no write\n";
        assert_eq!(matrix(&cells(TEXT)), expected);
    }
}
