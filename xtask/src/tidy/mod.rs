//! Holds the tree to the house rules of `ARCHITECTURE.md` and `CONTRIBUTING.md`, one finding a
//! line.
//!
//! # Model
//! The tree is read once ([`tree::Tree`]): texts as they are, Rust sources as tokens and items,
//! packages as cargo sees them. Each rule is a function from the tree to findings, in a module of
//! its own, with tests that break it on purpose. `tests` below runs all of them on the real tree,
//! so `cargo test` knows what `cargo xtask tidy` would say.
//!
//! # Invariants
//! I1. A rule only reads. `--update` writes one file, `xtask/ratchet.txt`, and only downwards.
//!
//! # Not here
//! Formatting (`cargo fmt`), lints (`cargo clippy`), licences and duplicates (`cargo deny`).

mod api;
mod comments;
mod headers;
mod house;
mod items;
mod lengths;
mod links;
mod manifests;
mod mentions;
mod names;
mod phrases;
mod promises;
mod ratchet;
mod reach;
mod repeats;
mod rooms;
#[cfg(test)]
mod tests;
mod texts;
mod tokens;
mod tree;
mod unsafety;

use std::fmt;
use std::path::Path;
use std::process::ExitCode;

use anyhow::Context as _;

use ratchet::Ratchet;
use tree::Tree;

/// One broken rule: where, and a sentence that says what is wrong and what would work.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Finding {
    path: String,
    line: usize,
    sentence: String,
}

impl Finding {
    fn new(path: impl Into<String>, line: usize, sentence: impl Into<String>) -> Self {
        Self { path: path.into(), line, sentence: sentence.into() }
    }
}

impl fmt::Display for Finding {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}: {}", self.path, self.line, self.sentence)
    }
}

/// All rules; what a rule needs besides the tree it reads from the tree.
const RULES: &[fn(&Tree) -> Vec<Finding>] = &[
    Tree::unreadable,
    rooms::check,
    unsafety::check,
    headers::check,
    names::check,
    texts::check,
    comments::check,
    lengths::check,
    reach::check,
    repeats::check,
    phrases::check,
    mentions::check,
    links::check,
    api::check,
    manifests::check,
    promises::check,
];

/// The findings of all rules, sorted by place.
fn findings(tree: &Tree) -> Vec<Finding> {
    let mut all: Vec<Finding> = RULES.iter().flat_map(|rule| rule(tree)).collect();
    all.sort();
    all.dedup();
    all
}

/// `cargo xtask tidy [--update]`.
pub(crate) fn run(arguments: &[String]) -> anyhow::Result<ExitCode> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"))
        .parent()
        .context("xtask has no directory above it")?;
    let mut tree = Tree::read(root)?;
    match arguments {
        [] => {}
        [flag] if flag == "--update" => {
            let lowered = Ratchet::from_tree(&tree).lowered(&tree);
            std::fs::write(root.join(ratchet::PATH), lowered.to_string())?;
            tree = Tree::read(root)?;
        }
        _ => anyhow::bail!("the only argument is `--update`, not `{}`", arguments.join(" ")),
    }
    let findings = findings(&tree);
    for finding in &findings {
        println!("{finding}");
    }
    for note in lengths::notes(&tree) {
        println!("note: {note}");
    }
    println!("tidy: {} files, {} findings", tree.files.len(), findings.len());
    Ok(if findings.is_empty() { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}
