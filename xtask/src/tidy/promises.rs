//! Each cell of a table of promises names a test, and each test that it names exists: what attackers can
//! do (`docs/security.md`), and what survives which failure (`docs/staging.md`).
//!
//! # Model
//! A table is known by the first cell of its header. A name is what stands in backquotes
//! with `__` in it, as tests are named. A test is a function of that name behind `#[test]`.

use std::collections::BTreeSet;

use super::Finding;
use super::tree::Tree;

/// Where the tables stand, and how each begins.
const TABLES: [(&str, &str); 4] = [
    ("docs/security.md", "who"),
    ("docs/staging.md", "promise"),
    ("docs/staging.md", "promise of the store"),
    ("docs/staging.md", "promise of a server"),
];

pub(super) fn check(tree: &Tree) -> Vec<Finding> {
    let tests: BTreeSet<&str> = tree.texts(".rs").flat_map(|(_, text)| tests(text)).collect();
    TABLES.iter().flat_map(|(path, first)| check_table(tree, path, first, &tests)).collect()
}

fn check_table(tree: &Tree, path: &str, first: &str, tests: &BTreeSet<&str>) -> Vec<Finding> {
    let Some(text) = tree.text(path) else { return Vec::new() };
    let rows: Vec<(usize, Vec<&str>)> = rows(text, first).collect();
    if rows.is_empty() {
        let sentence = format!("has no table that begins with `{first}`; restore it");
        return vec![Finding::new(path, 1, sentence)];
    }
    let mut found = Vec::new();
    for (line, cells) in rows {
        for (cell, words) in cells.iter().enumerate().skip(1) {
            let names: Vec<&str> = names(words).collect();
            if names.is_empty() {
                let column = cell + 1;
                found.push(Finding::new(
                    path,
                    line,
                    format!("column {column} names no test; name the one that shows it"),
                ));
            }
            for name in names.into_iter().filter(|name| !tests.contains(name)) {
                found.push(Finding::new(
                    path,
                    line,
                    format!("names the test `{name}`, which does not exist; correct it"),
                ));
            }
        }
    }
    found
}

/// The rows of the table: line and cells.
fn rows<'a>(text: &'a str, first: &'a str) -> impl Iterator<Item = (usize, Vec<&'a str>)> {
    let lines = (1..).zip(text.lines());
    let table = lines
        .skip_while(move |(_, line)| cells(line).is_none_or(|cells| cells.first() != Some(&first)));
    table.skip(2).map_while(|(at, line)| Some((at, cells(line)?)))
}

fn cells(line: &str) -> Option<Vec<&str>> {
    let inner = line.trim().strip_prefix('|')?.strip_suffix('|')?;
    Some(inner.split('|').map(str::trim).collect())
}

/// The names of tests in backquotes.
fn names(cell: &str) -> impl Iterator<Item = &str> {
    cell.split('`').skip(1).step_by(2).filter(|name| name.contains("__"))
}

/// The tests in a source.
fn tests(text: &str) -> impl Iterator<Item = &str> {
    text.lines().zip(text.lines().skip(1)).filter_map(|(attribute, line)| {
        let name = line.trim_start().strip_prefix("fn ")?.split('(').next()?;
        (attribute.trim() == "#[test]").then_some(name)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    const SOURCE: &str = "#[test]\nfn a__holds() {}\n\nfn b__helps() {}\n";

    fn lines(table: &str) -> Vec<usize> {
        let text = format!("# Title\n\n{table}");
        check(&Tree::from_texts(&[(TABLES[0].0, &text), ("crates/x/y.rs", SOURCE)]))
            .into_iter()
            .map(|it| it.line)
            .collect()
    }

    #[test]
    fn check__each_cell_names_a_test_that_exists() {
        assert!(
            lines(
                "| who | reads | writes |\n|---|---|---|\n| all | no: `a__holds` | `a__holds` |\n"
            )
            .is_empty()
        );
        let table = "| who | reads |\n|---|---|\n| all | nothing |\n| some | `b__helps` |\n| few | `c__gone`, `a__holds` |\n\n";
        assert_eq!(lines(table), [5, 6, 7]);
        assert_eq!(lines("no table"), [1]);
    }

    #[test]
    fn check__each_table_is_known_by_its_place_and_its_first_word() {
        for (path, first) in TABLES {
            let found = |first: &str, line: usize| {
                let text = format!("| {first} | power |\n|---|---|\n| write | lost |\n");
                check(&Tree::from_texts(&[(path, &text)])).iter().any(|it| it.line == line)
            };
            assert!(found(first, 3) && found("what", 1) && !found("what", 3), "{path}: {first}");
        }
    }

    #[test]
    fn check__other_tables_are_their_own_matter() {
        assert!(
            lines("| who | a |\n|---|---|\n| all | `a__holds` |\n\n| what | b |\n|---|---|\n| all | - |\n").is_empty()
        );
    }
}
