//! A type name occurs once in a crate, and no function is called `of`; what is left of both may
//! only become fewer.
//!
//! # Model
//! Counted by crate, of any visibility, tests and examples included. The counts stand in
//! `xtask/ratchet.txt`; a crate without an entry has none.

use std::collections::BTreeMap;

use super::Finding;
use super::ratchet::{self, Ratchet, Subject, length_of};
use super::tree::{RustFile, Tree};

/// Names that a sentence lists.
const LISTED_MAX: usize = 12;

pub(super) fn check(tree: &Tree) -> Vec<Finding> {
    let ratchet = Ratchet::from_tree(tree);
    let mut found = Vec::new();
    for package in &tree.packages {
        let name = package.name.clone();
        for subject in [
            Subject::RepeatedTypes { package: name.clone() },
            Subject::OfFunctions { package: name.clone() },
        ] {
            let allowed = ratchet.allowed(&subject).unwrap_or(0);
            if length_of(tree, &subject).is_some_and(|now| now > allowed) {
                found.push(Finding::new(
                    format!("{}/Cargo.toml", package.dir),
                    1,
                    sentence(tree, &subject, allowed),
                ));
            }
        }
    }
    let counts = |subject: &Subject| {
        matches!(subject, Subject::RepeatedTypes { .. } | Subject::OfFunctions { .. })
    };
    for entry in ratchet.entries.iter().filter(|entry| counts(&entry.subject)) {
        if length_of(tree, &entry.subject).is_none_or(|now| now == 0) {
            let sentence = "counts nothing that is left; `cargo xtask tidy --update` removes it";
            found.push(Finding::new(ratchet::PATH, entry.line, sentence));
        }
    }
    found
}

fn sentence(tree: &Tree, subject: &Subject, allowed: usize) -> String {
    match subject {
        Subject::RepeatedTypes { package } => {
            let names = repeated_types(tree, package);
            let (count, list) = (names.len(), listed(names.keys().map(|name| format!("`{name}`"))));
            format!(
                "{count} type names occur more than once in this crate, {allowed} may; name each type for what it is: {list}"
            )
        }
        Subject::OfFunctions { package } => {
            let places = of_functions(tree, package);
            let (count, list) = (places.len(), listed(places.into_iter()));
            format!(
                "{count} functions of this crate are called `of`, {allowed} may; a constructor is `new`, `open`, `parse` or \
                 `from_...`, a look-up says what it returns: {list}"
            )
        }
        Subject::File { .. }
        | Subject::Function { .. }
        | Subject::Public { .. }
        | Subject::Phrases { .. } => String::new(),
    }
}

/// The first of `all`, joined by commas.
pub(super) fn listed(all: impl ExactSizeIterator<Item = String>) -> String {
    let count = all.len();
    let mut list = all.take(LISTED_MAX).collect::<Vec<_>>().join(", ");
    if count > LISTED_MAX {
        list.push_str(", ...");
    }
    list
}

fn files<'a>(tree: &'a Tree, package: &'a str) -> impl Iterator<Item = &'a RustFile> {
    tree.rust
        .iter()
        .filter(move |file| tree.package_of(&file.path).is_some_and(|owner| owner.name == package))
}

/// Names of types that `package` declares more than once, and how often.
pub(super) fn repeated_types(tree: &Tree, package: &str) -> BTreeMap<String, usize> {
    let mut counts = BTreeMap::new();
    for name in files(tree, package).flat_map(|file| &file.items.types) {
        *counts.entry(name.name.clone()).or_default() += 1;
    }
    counts.retain(|_, count| *count > 1);
    counts
}

/// Where `package` declares functions called `of`.
pub(super) fn of_functions(tree: &Tree, package: &str) -> Vec<String> {
    let places = |file: &RustFile| -> Vec<String> {
        file.items.of_functions.iter().map(|line| format!("{}:{line}", file.path)).collect()
    };
    files(tree, package).flat_map(places).collect()
}

#[cfg(test)]
mod tests {
    use super::super::tree::Package;
    use super::*;

    fn tree(ratchet: &str, text: &str, other: &str) -> Tree {
        let texts = [
            (ratchet::PATH, ratchet),
            ("crates/a/src/lib.rs", text),
            ("crates/a/tests/t.rs", other),
        ];
        Tree::with_packages(&texts, vec![Package::library("a", &[]), Package::library("b", &[])])
    }

    fn sentences(ratchet: &str, text: &str, other: &str) -> Vec<String> {
        check(&tree(ratchet, text, other)).into_iter().map(|finding| finding.to_string()).collect()
    }

    #[test]
    fn check__a_type_name_occurs_once_tests_included() {
        assert_eq!(sentences("", "struct A; mod m { enum B {} }", "struct C;"), [""; 0]);
        let found = sentences("", "struct A;", "#[cfg(test)] mod t { fn f() { enum A {} } }");
        assert_eq!(found.len(), 1);
        assert!(
            found[0].contains("1 type names occur more than once in this crate, 0 may"),
            "{}",
            found[0]
        );
        assert!(found[0].ends_with("`A`"), "{}", found[0]);
    }

    #[test]
    fn check__associated_types_and_other_crates_do_not_count() {
        let texts = [
            (
                "crates/a/src/lib.rs",
                "struct A; impl T for A { type Error = (); } impl U for A { type Error = (); }",
            ),
            ("crates/b/src/lib.rs", "struct A;"),
        ];
        let tree = Tree::with_packages(
            &texts,
            vec![Package::library("a", &[]), Package::library("b", &[])],
        );
        assert_eq!(check(&tree), []);
    }

    #[test]
    fn check__no_function_is_called_of() {
        let found =
            sentences("", "impl A { fn of() {} }", "trait T { fn of(); } fn of() {} fn off() {}");
        assert_eq!(found.len(), 1);
        assert!(
            found[0].contains("3 functions of this crate are called `of`, 0 may"),
            "{}",
            found[0]
        );
        assert!(found[0].contains("crates/a/src/lib.rs:1"), "{}", found[0]);
    }

    #[test]
    fn check__a_recorded_count_may_fall_but_not_rise() {
        let (one, two) = (
            "struct A; mod m { struct A; }",
            "struct A; mod m { struct A; } enum B {} mod n { enum B {} }",
        );
        assert_eq!(sentences("types a 2\n", two, "").len(), 0);
        assert_eq!(sentences("types a 2\n", one, "").len(), 0);
        assert_eq!(sentences("types a 1\n", two, "").len(), 1);
        assert_eq!(sentences("of a 1\n", "fn of() {}", "").len(), 0);
        assert_eq!(sentences("of a 1\n", "fn of() {} mod m { fn of() {} }", "").len(), 1);
    }

    #[test]
    fn check__a_count_that_is_not_needed_is_refused() {
        assert_eq!(sentences("types a 1\n", "struct A;", "").len(), 1);
        assert_eq!(sentences("of gone 1\n", "", "").len(), 1);
    }

    #[test]
    fn listed__ends_after_a_dozen() {
        let names = |count: usize| {
            listed((0..count).map(|n| n.to_string()).collect::<Vec<_>>().into_iter())
        };
        assert_eq!(names(2), "0, 1");
        assert!(names(13).ends_with("11, ..."));
    }
}
