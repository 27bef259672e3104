//! Reads the tables and the picture of `ARCHITECTURE.md` as data.
//!
//! # Model
//! Three tables, known by the first cell of their header: `crate`, `room` and `room of the binary`;
//! and one fenced picture whose lines begin with `floor N`. A cell is a list: names in backquotes
//! or bare, separated by commas; `nothing` and `nowhere` are the empty list.

use std::collections::BTreeMap;

use super::Finding;
use super::tree::Tree;

/// Where the tables stand.
pub(super) const PATH: &str = "ARCHITECTURE.md";

/// One crate of a `may import` cell.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Import {
    /// The full name, `clearway-proto`.
    pub(super) name: String,
    /// Its rooms that may be named; `None` when all may.
    pub(super) rooms: Option<Vec<String>>,
}

/// One row of the table of crates.
#[derive(Clone, Debug)]
pub(super) struct CrateRow {
    pub(super) line: usize,
    pub(super) name: String,
    pub(super) imports: Vec<Import>,
    pub(super) libraries: Vec<String>,
    /// Files that may hold `unsafe`, relative to the crate's directory.
    pub(super) unsafe_in: Vec<String>,
}

/// One row of a table of rooms: inside `clearway-proto`, or inside the binary.
#[derive(Clone, Debug)]
pub(super) struct RoomRow {
    pub(super) line: usize,
    pub(super) name: String,
    pub(super) imports: Vec<String>,
}

/// The house as its document describes it.
#[derive(Default)]
pub(super) struct House {
    pub(super) crates: Vec<CrateRow>,
    pub(super) rooms: Vec<RoomRow>,
    pub(super) binary: Vec<RoomRow>,
    /// The floor of each crate in the picture.
    pub(super) floors: BTreeMap<String, usize>,
}

impl House {
    /// Reads the document of `tree`.
    ///
    /// # Errors
    /// One finding for each of the three tables and the picture that is missing.
    pub(super) fn read(tree: &Tree) -> Result<Self, Vec<Finding>> {
        let text = tree.text(PATH).unwrap_or_default();
        let mut house = Self::default();
        for table in tables(text) {
            match table.columns.first().map(String::as_str) {
                Some("crate") => house.crates = table.rows().map(|row| crate_row(&row)).collect(),
                Some("room") => house.rooms = table.rows().map(|row| room_row(&row)).collect(),
                Some("room of the binary") => {
                    house.binary = table.rows().map(|row| room_row(&row)).collect()
                }
                _ => {}
            }
        }
        house.floors = floors(text);
        let mut missing = Vec::new();
        for (is_missing, what) in [
            (house.crates.is_empty(), "a table whose first column is `crate`"),
            (house.rooms.is_empty(), "a table whose first column is `room`"),
            (house.binary.is_empty(), "a table whose first column is `room of the binary`"),
            (house.floors.is_empty(), "a fenced picture with lines `floor N  crate  crate`"),
        ] {
            if is_missing {
                missing.push(Finding::new(
                    PATH,
                    1,
                    format!("lacks {what}; the dependency rule is read from it"),
                ));
            }
        }
        if missing.is_empty() { Ok(house) } else { Err(missing) }
    }

    /// The row of the crate called `name`.
    pub(super) fn row(&self, name: &str) -> Option<&CrateRow> {
        self.crates.iter().find(|row| row.name == name)
    }

    /// The row of the room called `name`.
    pub(super) fn room(&self, name: &str) -> Option<&RoomRow> {
        self.rooms.iter().find(|row| row.name == name)
    }

    /// The row of the binary's room called `name`.
    pub(super) fn binary_room(&self, name: &str) -> Option<&RoomRow> {
        self.binary.iter().find(|row| row.name == name)
    }
}

/// A Markdown table.
struct Table {
    columns: Vec<String>,
    body: Vec<(usize, Vec<String>)>,
}

/// A row of a [`Table`] whose cells are found by the name of their column.
struct Row<'a> {
    table: &'a Table,
    line: usize,
    cells: &'a [String],
}

impl Table {
    fn rows(&self) -> impl Iterator<Item = Row<'_>> {
        self.body.iter().map(|(line, cells)| Row { table: self, line: *line, cells })
    }
}

impl Row<'_> {
    /// The list in the cell below `column`; empty when there is no such column.
    fn list(&self, column: &str) -> Vec<String> {
        let at = self.table.columns.iter().position(|name| name == column);
        let cell = at.and_then(|at| self.cells.get(at)).map(String::as_str).unwrap_or_default();
        split_list(cell)
            .into_iter()
            .filter(|item| !matches!(item.as_str(), "" | "nothing" | "nowhere"))
            .collect()
    }

    fn name(&self) -> String {
        self.cells.first().map(|cell| cell.replace('`', "")).unwrap_or_default()
    }
}

/// Splits at the commas outside braces and drops backquotes.
fn split_list(cell: &str) -> Vec<String> {
    let (mut items, mut depth) = (vec![String::new()], 0);
    for c in cell.chars().filter(|c| *c != '`') {
        match c {
            '{' => depth += 1,
            '}' => depth -= 1,
            _ => {}
        }
        if c == ',' && depth == 0 {
            items.push(String::new());
        } else if let Some(last) = items.last_mut() {
            last.push(c);
        }
    }
    items.into_iter().map(|item| item.trim().to_owned()).collect()
}

/// `proto`, `proto::base` or `proto::{base, wire}`.
fn import(item: &str) -> Import {
    let (name, rooms) = match item.split_once("::") {
        Some((name, rooms)) => (name, Some(split_list(rooms.trim_matches(['{', '}'])))),
        None => (item, None),
    };
    Import { name: full_name(name), rooms }
}

fn full_name(short: &str) -> String {
    if short.starts_with("clearway") { short.to_owned() } else { format!("clearway-{short}") }
}

fn crate_row(row: &Row<'_>) -> CrateRow {
    CrateRow {
        line: row.line,
        name: row.name(),
        imports: row.list("may import").iter().map(|item| import(item)).collect(),
        libraries: row.list("libraries"),
        unsafe_in: row.list("unsafe in"),
    }
}

fn room_row(row: &Row<'_>) -> RoomRow {
    RoomRow { line: row.line, name: row.name(), imports: row.list("may import") }
}

/// All tables of a Markdown text, with the line of each row.
fn tables(text: &str) -> Vec<Table> {
    let cells = |line: &str| -> Vec<String> {
        line.trim().trim_matches('|').split('|').map(|cell| cell.trim().to_owned()).collect()
    };
    let mut tables: Vec<Table> = Vec::new();
    let mut in_table = false;
    for (at, line) in text.lines().enumerate() {
        if !line.trim_start().starts_with('|') {
            in_table = false;
        } else if !in_table {
            tables.push(Table { columns: cells(line), body: Vec::new() });
            in_table = true;
        } else if let Some(table) = tables.last_mut().filter(|_| !line.contains("---")) {
            table.body.push((at + 1, cells(line)));
        }
    }
    tables
}

/// Lines `floor N  name  name  (remarks)`.
fn floors(text: &str) -> BTreeMap<String, usize> {
    let mut floors = BTreeMap::new();
    for line in text.lines() {
        let mut words = line.split_whitespace();
        if words.next() != Some("floor") {
            continue;
        }
        let Some(floor) = words.next().and_then(|word| word.parse().ok()) else { continue };
        for word in words.take_while(|word| !word.starts_with('(')) {
            floors.insert(word.to_owned(), floor);
        }
    }
    floors
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn of__reads_the_tables_and_the_picture() {
        let text = "\
| crate | may import | libraries | unsafe in |\n|---|---|---|---|\n\
| `clearway-lab` | `proto::{base, wire}`, runtime | `nix`, `libc` | `src/a.rs` |\n| `xtask` | nothing | | nowhere |\n\
\n| room | may import |\n|---|---|\n| `wire` | base |\n\
\n| room of the binary | may import |\n|---|---|\n| `run` | report |\n\n```\nfloor 0  clearway-proto  (no I/O)\nfloor 1  clearway-lab\n```\n";
        let house = House::read(&Tree::from_texts(&[(PATH, text)])).ok().unwrap();
        let lab = house.row("clearway-lab").unwrap();
        assert_eq!(lab.imports[0], import("proto::{base, wire}"));
        assert_eq!(lab.imports[0].rooms, Some(vec!["base".to_owned(), "wire".to_owned()]));
        assert_eq!(lab.imports[1], Import { name: "clearway-runtime".to_owned(), rooms: None });
        assert_eq!(lab.libraries, ["nix", "libc"]);
        assert_eq!((lab.line, lab.unsafe_in.as_slice()), (3, &["src/a.rs".to_owned()][..]));
        assert!(house.row("xtask").unwrap().unsafe_in.is_empty());
        assert_eq!(house.room("wire").unwrap().imports, ["base"]);
        assert_eq!(house.binary_room("run").unwrap().imports, ["report"]);
        assert_eq!(house.floors.get("clearway-lab"), Some(&1));
        assert_eq!(house.floors.len(), 2);
    }

    #[test]
    fn of__a_missing_table_is_a_finding() {
        let missing = House::read(&Tree::from_texts(&[(PATH, "# House\n")])).err().unwrap();
        assert_eq!(missing.len(), 4);
    }
}
