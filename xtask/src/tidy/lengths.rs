//! Files and functions stay short; what is long already may shrink, never grow. So do documents.
//!
//! # Source
//! The marks are those of `CONTRIBUTING.md`: well-kept Rust systems have a median function of 4 to
//! 7 lines and at most 2.4 % of functions over a screen of 70; their files sink a reader where one
//! grows past 800.

use super::Finding;
use super::ratchet::{self, Ratchet, Subject, length_of, limit};
use super::tree::Tree;

/// Production lines at which a file is looked at again.
const FILE_LINES_NOTED: usize = 600;
/// Production lines past which a file needs an entry in the ratchet.
pub(super) const FILE_LINES_MAX: usize = 800;
/// Lines past which a function needs an entry in the ratchet.
pub(super) const FUNCTION_LINES_MAX: usize = 70;

/// Words of documents, at most: those of one file, or of a directory's `.md` files together.
const WORDS_MAX: [(&str, usize); 2] = [("README.md", 1_000), ("docs/", 30_000)];

/// Finds documents that are too long to be read.
fn long_documents(tree: &Tree) -> Vec<Finding> {
    let mut found = Vec::new();
    for (place, most) in WORDS_MAX {
        let texts = tree.texts(".md").filter(|(path, _)| match place.strip_suffix('/') {
            Some(_) => path.starts_with(place),
            None => *path == place,
        });
        let words: usize = texts.map(|(_, text)| text.split_whitespace().count()).sum();
        if words > most {
            let sentence = format!(
                "{words} words, {most} is the most; cut what repeats, and move tables of measurements to bench/runs"
            );
            found.push(Finding::new(place, 1, sentence));
        }
    }
    found
}

pub(super) fn check(tree: &Tree) -> Vec<Finding> {
    let ratchet = Ratchet::from_tree(tree);
    let mut found = ratchet.faults();
    found.extend(long_documents(tree));
    for (subject, line, now) in subjects(tree) {
        let allowed = ratchet.allowed(&subject);
        if now > allowed.unwrap_or(0).max(limit(&subject)) {
            let (path, what) = described(&subject);
            let sentence = match allowed {
                Some(allowed) => format!(
                    "{what} grew from {allowed} to {now} lines; it may only shrink, split it"
                ),
                None => {
                    format!("{what} has {now} lines, {} is the most; split it", limit(&subject))
                }
            };
            found.push(Finding::new(path, line, sentence));
        }
    }
    let has_length =
        |subject: &Subject| matches!(subject, Subject::File { .. } | Subject::Function { .. });
    for entry in ratchet.entries.iter().filter(|entry| has_length(&entry.subject)) {
        if length_of(tree, &entry.subject).is_none_or(|now| now <= limit(&entry.subject)) {
            let (path, what) = described(&entry.subject);
            let sentence = format!(
                "{what} of {path} needs no entry any more; `cargo xtask tidy --update` removes it"
            );
            found.push(Finding::new(ratchet::PATH, entry.line, sentence));
        }
    }
    found
}

/// Files past the mark at which they are looked at again, longest first.
pub(super) fn notes(tree: &Tree) -> Vec<String> {
    let production = tree.rust.iter().filter(|file| !file.is_test());
    let mut long: Vec<_> =
        production.map(|file| (file.items.production_lines, &file.path)).collect();
    long.retain(|(lines, _)| *lines > FILE_LINES_NOTED);
    long.sort();
    long.iter()
        .rev()
        .map(|(lines, path)| format!("{path} has {lines} lines; is it still one thing?"))
        .collect()
}

/// Everything that has a length, with the line it begins at and the length it has.
fn subjects(tree: &Tree) -> Vec<(Subject, usize, usize)> {
    let mut all = Vec::new();
    for file in tree.rust.iter().filter(|file| !file.is_test()) {
        all.push((Subject::File { path: file.path.clone() }, 1, file.items.production_lines));
        for function in file.items.functions.iter().filter(|function| !function.is_table) {
            let subject =
                Subject::Function { path: file.path.clone(), name: function.name.clone() };
            all.push((subject, function.line, function.length));
        }
    }
    all
}

fn described(subject: &Subject) -> (&str, String) {
    match subject {
        Subject::File { path } => (path, "the file".to_owned()),
        Subject::Function { path, name } | Subject::Public { path, name } => {
            (path, format!("`{name}`"))
        }
        Subject::RepeatedTypes { package }
        | Subject::OfFunctions { package }
        | Subject::Phrases { package } => (package, "the package".to_owned()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check_with(ratchet: &str, text: &str) -> Vec<Finding> {
        check(&Tree::from_texts(&[(ratchet::PATH, ratchet), ("src/a.rs", text)]))
    }

    fn function(lines: usize) -> String {
        format!("fn f() {{\n{}}}\n", "    g();\n".repeat(lines - 2))
    }

    #[test]
    fn check__seventy_lines_are_a_screen_and_seventy_one_are_refused() {
        assert!(check_with("", &function(70)).is_empty());
        assert_eq!(check_with("", &function(71)).len(), 1);
    }

    #[test]
    fn check__documents_have_a_number_of_words_together() {
        let words = |count: usize| "word ".repeat(count);
        let found = |files: &[(&str, &str)]| check(&Tree::from_texts(files)).len();
        let (half, more) = (words(15_000), words(15_001));
        assert_eq!(found(&[("docs/a.md", &half), ("docs/b.md", &half)]), 0);
        assert_eq!(found(&[("docs/a.md", &half), ("docs/b.md", &more)]), 1);
        assert_eq!(found(&[("README.md", &words(1_001)), ("bench/README.md", &half)]), 1);
    }

    #[test]
    fn check__a_recorded_function_may_shrink_but_not_grow() {
        assert!(check_with("function src/a.rs f 80\n", &function(80)).is_empty());
        assert!(check_with("function src/a.rs f 80\n", &function(75)).is_empty());
        assert_eq!(check_with("function src/a.rs f 80\n", &function(81)).len(), 1);
    }

    #[test]
    fn check__an_entry_that_is_not_needed_is_refused() {
        assert_eq!(check_with("function src/a.rs f 80\n", &function(70)).len(), 1);
        assert_eq!(check_with("file src/gone.rs 900\n", "").len(), 1);
    }

    #[test]
    fn check__a_match_alone_is_a_table_and_may_be_long() {
        let arms = "        1 => {}\n".repeat(90);
        assert!(
            check_with("", &format!("fn f() {{\n    match 1 {{\n{arms}    }}\n}}\n")).is_empty()
        );
        assert_eq!(
            check_with("", &format!("fn f() {{\n    g();\n    match 1 {{\n{arms}    }}\n}}\n"))
                .len(),
            1
        );
    }

    #[test]
    fn check__a_file_counts_up_to_its_tests() {
        let tests = format!("#[cfg(test)]\nmod tests {{\n{}}}\n", "    // text\n".repeat(500));
        let lines = |n: usize| format!("{}{tests}", "// text\n".repeat(n));
        assert!(check_with("", &lines(800)).is_empty());
        assert_eq!(check_with("", &lines(801)).len(), 1);
        assert_eq!(notes(&Tree::from_texts(&[("src/a.rs", &lines(601))])).len(), 1);
    }
}
