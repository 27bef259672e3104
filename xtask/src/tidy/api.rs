//! Public items that no other file mentions are refused: between crates the compiler cannot see
//! that they are dead.
//!
//! # Model
//! A word search, blind to comments and re-exports. A function or constant lives when another file
//! says its name; a type also when a signature, field or variant of its own file does. Items that
//! are kept for users stand in `xtask/ratchet.txt`.

use std::collections::BTreeMap;

use super::Finding;
use super::items::{PublicItem, PublicKind};
use super::ratchet::{self, Ratchet, Subject};
use super::tree::{RustFile, Tree};

/// The libraries of the workspace; in a binary the compiler itself sees what is dead.
const LIBRARIES: &[&str] = &[
    "crates/clearway-proto/src/",
    "crates/clearway-runtime/src/",
    "crates/clearway-lab/src/",
    "crates/clearway-ofi/src/",
];

pub(super) fn check(tree: &Tree) -> Vec<Finding> {
    let ratchet = Ratchet::from_tree(tree);
    let mut mentions: BTreeMap<&str, usize> = BTreeMap::new();
    for word in tree.rust.iter().flat_map(|file| &file.tokens.words) {
        *mentions.entry(word).or_default() += 1;
    }
    let is_dead = |file: &RustFile, item: &PublicItem| {
        let own = usize::from(file.tokens.words.contains(&item.name.name));
        let elsewhere = mentions.get(item.name.name.as_str()).copied().unwrap_or_default() > own;
        let in_signature =
            item.kind == PublicKind::Type && file.items.signature_words.contains(&item.name.name);
        !elsewhere && !in_signature
    };
    let (mut found, mut needed) = (Vec::new(), Vec::new());
    let in_library =
        |file: &&RustFile| LIBRARIES.iter().any(|library| file.path.starts_with(library));
    for file in tree.rust.iter().filter(in_library).filter(|file| !file.is_test()) {
        for item in file.items.public.iter().filter(|item| is_dead(file, item)) {
            let subject = Subject::Public { path: file.path.clone(), name: item.name.name.clone() };
            if !ratchet.holds(&subject) {
                found.push(dead_item(&file.path, item));
            }
            needed.push(subject);
        }
    }
    for entry in ratchet
        .entries
        .iter()
        .filter(|entry| entry.lines.is_none() && !needed.contains(&entry.subject))
    {
        found.push(Finding::new(
            ratchet::PATH,
            entry.line,
            "is mentioned by now, or gone; remove the entry",
        ));
    }
    found
}

fn dead_item(path: &str, item: &PublicItem) -> Finding {
    let name = &item.name.name;
    let sentence = format!(
        "no other file mentions the public `{name}`; make it private, delete it, or record why users need it: \
         `public {path} {name} REASON` in {}",
        ratchet::PATH
    );
    Finding::new(path, item.name.line, sentence)
}

#[cfg(test)]
mod tests {
    use super::*;

    const FILE: &str = "crates/clearway-proto/src/a.rs";

    fn check_with(ratchet: &str, text: &str, other: &str) -> usize {
        let texts =
            [(ratchet::PATH, ratchet), (FILE, text), ("crates/clearway/src/main.rs", other)];
        check(&Tree::from_texts(&texts)).len()
    }

    #[test]
    fn check__an_item_that_nobody_mentions_is_dead() {
        assert_eq!(check_with("", "pub fn f() {} fn g() { f() }", ""), 1);
        assert_eq!(check_with("", "pub fn f() {}", "fn main() { f() }"), 0);
    }

    #[test]
    fn check__a_re_export_or_a_comment_is_no_mention() {
        assert_eq!(check_with("", "pub struct A;", "pub use a::A; // A"), 1);
    }

    #[test]
    fn check__a_type_that_a_signature_needs_is_alive() {
        assert_eq!(
            check_with(
                "",
                "pub enum E { A } pub fn f() -> Result<(), E> { g() }",
                "fn main() { f() }"
            ),
            0
        );
    }

    #[test]
    fn check__a_recorded_item_passes_until_the_record_is_stale() {
        let entry = format!("public {FILE} f for users of the library\n");
        assert_eq!(check_with(&entry, "pub fn f() {}", ""), 0);
        assert_eq!(check_with(&entry, "pub fn f() {}", "fn main() { f() }"), 1);
    }
}
