//! `xtask/ratchet.txt`: what is larger or more than the rules allow and may only shrink, and public
//! items kept for users.
//!
//! # Model
//! One entry a line: `file PATH LINES`, `function PATH NAME LINES`, `types PACKAGE COUNT`, `of
//! PACKAGE COUNT`, `phrases PACKAGE COUNT`, `public PATH NAME REASON...`; `#` begins a comment.
//!
//! # Invariants
//! I1. [`Ratchet::lowered`] never raises a number and never adds an entry: growth is written by
//!     hand and seen in review.

use std::fmt;

use super::Finding;
use super::lengths::{FILE_LINES_MAX, FUNCTION_LINES_MAX};
use super::phrases::phrases;
use super::repeats::{of_functions, repeated_types};
use super::tree::Tree;

/// Where the entries stand.
pub(super) const PATH: &str = "xtask/ratchet.txt";

/// What an entry is about.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Subject {
    File {
        path: String,
    },
    Function {
        path: String,
        name: String,
    },
    Public {
        path: String,
        name: String,
    },
    /// Type names that occur more than once in a package.
    RepeatedTypes {
        package: String,
    },
    /// Functions of a package that are called `of`.
    OfFunctions {
        package: String,
    },
    /// Phrases that slow a reader down, in the comments of a package or in all documents.
    Phrases {
        package: String,
    },
}

/// One line of the file.
#[derive(Clone, Debug)]
pub(super) struct Entry {
    pub(super) line: usize,
    pub(super) subject: Subject,
    /// The recorded length or count; `None` for public items.
    pub(super) lines: Option<usize>,
    text: String,
}

/// The entries, with the comments between them.
#[derive(Default)]
pub(super) struct Ratchet {
    pub(super) entries: Vec<Entry>,
    comments: Vec<(usize, String)>,
    faults: Vec<Finding>,
}

impl Ratchet {
    pub(super) fn from_tree(tree: &Tree) -> Self {
        let mut ratchet = Self::default();
        for (at, text) in tree.text(PATH).unwrap_or_default().lines().enumerate() {
            let line = at + 1;
            if text.trim().is_empty() || text.starts_with('#') {
                ratchet.comments.push((line, text.to_owned()));
                continue;
            }
            match parse(text) {
                Some((subject, lines)) => {
                    ratchet.entries.push(Entry { line, subject, lines, text: text.to_owned() });
                }
                None => {
                    let forms = "`file PATH LINES`, `function PATH NAME LINES`, `types PACKAGE COUNT`, `of PACKAGE COUNT`, \
                                 `phrases PACKAGE COUNT` or `public PATH NAME REASON`";
                    ratchet.faults.push(Finding::new(PATH, line, format!("is none of {forms}")));
                }
            }
        }
        ratchet
    }

    /// Lines that are no entries.
    pub(super) fn faults(&self) -> Vec<Finding> {
        self.faults.clone()
    }

    /// The length or count recorded for `subject`.
    pub(super) fn allowed(&self, subject: &Subject) -> Option<usize> {
        self.entries.iter().find(|entry| entry.subject == *subject)?.lines
    }

    /// True when `subject` is recorded.
    pub(super) fn holds(&self, subject: &Subject) -> bool {
        self.entries.iter().any(|entry| entry.subject == *subject)
    }

    /// This ratchet with every number at most what the tree has, without entries that are no longer
    /// needed.
    pub(super) fn lowered(mut self, tree: &Tree) -> Self {
        self.entries.retain_mut(|entry| {
            let (Some(allowed), Some(now)) = (entry.lines, length_of(tree, &entry.subject)) else {
                return entry.lines.is_none();
            };
            entry.lines = Some(allowed.min(now));
            now > limit(&entry.subject)
        });
        self
    }
}

impl fmt::Display for Ratchet {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut lines: Vec<(usize, String)> = self.comments.clone();
        for entry in &self.entries {
            let text = match (&entry.subject, entry.lines) {
                (Subject::File { path }, Some(lines)) => format!("file {path} {lines}"),
                (Subject::Function { path, name }, Some(lines)) => {
                    format!("function {path} {name} {lines}")
                }
                (Subject::RepeatedTypes { package }, Some(count)) => {
                    format!("types {package} {count}")
                }
                (Subject::OfFunctions { package }, Some(count)) => format!("of {package} {count}"),
                (Subject::Phrases { package }, Some(count)) => format!("phrases {package} {count}"),
                _ => entry.text.clone(),
            };
            lines.push((entry.line, text));
        }
        lines.sort();
        lines.iter().try_for_each(|(_, text)| writeln!(f, "{text}"))
    }
}

/// The length or count of `subject` in the tree now; `None` when it is gone.
pub(super) fn length_of(tree: &Tree, subject: &Subject) -> Option<usize> {
    let file = |path: &str| tree.rust.iter().find(|file| file.path == path);
    match subject {
        Subject::File { path } => Some(file(path)?.items.production_lines),
        Subject::Function { path, name } => {
            let functions = file(path)?.items.functions.iter();
            functions
                .filter(|function| function.name == *name && !function.is_table)
                .map(|function| function.length)
                .max()
        }
        Subject::Public { .. } => None,
        Subject::RepeatedTypes { package } => Some(repeated_types(tree, package).len()),
        Subject::OfFunctions { package } => Some(of_functions(tree, package).len()),
        Subject::Phrases { package } => Some(phrases(tree, package).len()),
    }
}

/// The length or count up to which `subject` needs no entry.
pub(super) fn limit(subject: &Subject) -> usize {
    match subject {
        Subject::File { .. } => FILE_LINES_MAX,
        Subject::Function { .. } | Subject::Public { .. } => FUNCTION_LINES_MAX,
        Subject::RepeatedTypes { .. } | Subject::OfFunctions { .. } | Subject::Phrases { .. } => 0,
    }
}

fn parse(text: &str) -> Option<(Subject, Option<usize>)> {
    let words: Vec<&str> = text.split_whitespace().collect();
    match words.as_slice() {
        ["file", path, lines] => {
            Some((Subject::File { path: (*path).to_owned() }, Some(lines.parse().ok()?)))
        }
        ["function", path, name, lines] => {
            let subject = Subject::Function { path: (*path).to_owned(), name: (*name).to_owned() };
            Some((subject, Some(lines.parse().ok()?)))
        }
        ["types", package, count] => Some((
            Subject::RepeatedTypes { package: (*package).to_owned() },
            Some(count.parse().ok()?),
        )),
        ["of", package, count] => Some((
            Subject::OfFunctions { package: (*package).to_owned() },
            Some(count.parse().ok()?),
        )),
        ["phrases", package, count] => {
            Some((Subject::Phrases { package: (*package).to_owned() }, Some(count.parse().ok()?)))
        }
        ["public", path, name, _reason, ..] => {
            Some((Subject::Public { path: (*path).to_owned(), name: (*name).to_owned() }, None))
        }
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::super::tree::Package;
    use super::*;

    fn function(lines: usize) -> String {
        format!("fn f() {{\n{}}}\n", "    g();\n".repeat(lines - 2))
    }

    fn lowered(entry: &str, lines: usize) -> String {
        let tree = Tree::from_texts(&[(PATH, entry), ("a.rs", &function(lines))]);
        Ratchet::from_tree(&tree).lowered(&tree).to_string()
    }

    #[test]
    fn lowered__a_number_shrinks_and_never_grows() {
        assert_eq!(lowered("# why\nfunction a.rs f 90\n", 80), "# why\nfunction a.rs f 80\n");
        assert_eq!(lowered("function a.rs f 90\n", 100), "function a.rs f 90\n");
    }

    #[test]
    fn lowered__entries_no_longer_needed_go_and_reasons_stay() {
        assert_eq!(lowered("function a.rs f 90\nfunction gone.rs g 90\nfile a.rs 900\n", 70), "");
        let public = "public a.rs f users build their own wires\n";
        assert_eq!(lowered(public, 3), public);
    }

    #[test]
    fn lowered__counts_of_a_package_fall_too() {
        let texts = |entries| {
            [
                (PATH, entries),
                ("crates/a/src/lib.rs", "// It is told.\nstruct A; mod m { struct A; fn of() {} }"),
            ]
        };
        let lowered = |entries| {
            let tree = Tree::with_packages(&texts(entries), vec![Package::library("a", &[])]);
            Ratchet::from_tree(&tree).lowered(&tree).to_string()
        };
        assert_eq!(lowered("types a 7\nof a 3\nphrases a 2\n"), "types a 1\nof a 1\nphrases a 1\n");
        assert_eq!(lowered("types b 7\nof b 3\nphrases b 1\n"), "");
    }

    #[test]
    fn of__a_line_that_is_no_entry_is_a_fault() {
        let tree = Tree::from_texts(&[(PATH, "file a.rs many\npublic a.rs f\n\nfile a.rs 3\n")]);
        let ratchet = Ratchet::from_tree(&tree);
        assert_eq!((ratchet.faults().len(), ratchet.entries.len()), (2, 1));
    }
}
