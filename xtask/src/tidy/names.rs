//! Names that say nothing are refused, tests are named after what they prove, `bool` parameters
//! have a name at the call.

use super::Finding;
use super::tree::{RustFile, Tree};

/// Words that fit every module and type, and so distinguish none.
const EMPTY_WORDS: &[&str] = &[
    "manager",
    "util",
    "utils",
    "helper",
    "helpers",
    "common",
    "misc",
    "info",
    "data",
    "proxy",
    "orchestrator",
];

pub(super) fn check(tree: &Tree) -> Vec<Finding> {
    tree.rust.iter().flat_map(check_file).collect()
}

fn check_file(file: &RustFile) -> Vec<Finding> {
    let mut found = Vec::new();
    let modules = file.path.trim_end_matches(".rs").split('/');
    if let Some(word) =
        modules.flat_map(|module| module.split(['_', '-'])).find(|word| EMPTY_WORDS.contains(word))
    {
        found.push(Finding::new(
            &file.path,
            1,
            format!("`{word}` says nothing about this module; name what it decides"),
        ));
    }
    for name in &file.items.types {
        if let Some(word) =
            words_of(&name.name).into_iter().find(|word| EMPTY_WORDS.contains(&word.as_str()))
        {
            let sentence =
                format!("`{word}` in `{}` says nothing; name what the type is", name.name);
            found.push(Finding::new(&file.path, name.line, sentence));
        }
    }
    for test in file.items.tests.iter().filter(|test| !test.name.contains("__")) {
        let sentence =
            format!("the test `{}` needs a name of the form `function__case`", test.name);
        found.push(Finding::new(&file.path, test.line, sentence));
    }
    for name in &file.items.bool_parameters {
        let sentence = format!(
            "`{}` takes a bare `bool`; an enum of two says at the call what is meant",
            name.name
        );
        found.push(Finding::new(&file.path, name.line, sentence));
    }
    found
}

/// The words of a name in camel case, in lower case.
fn words_of(name: &str) -> Vec<String> {
    let mut words: Vec<String> = Vec::new();
    for c in name.chars() {
        match words.last_mut() {
            Some(word) if !c.is_uppercase() => word.push(c),
            _ => words.push(c.to_lowercase().collect()),
        }
    }
    words
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check_text(path: &str, text: &str) -> usize {
        check(&Tree::from_texts(&[(path, text)])).len()
    }

    #[test]
    fn check__empty_words_in_files_and_types_are_refused() {
        assert_eq!(check_text("a/src/host_utils.rs", ""), 1);
        assert_eq!(check_text("a/src/common/x.rs", ""), 1);
        assert_eq!(
            check_text("a/src/x.rs", "struct LinkManager; enum HostInfo {} trait Data {}"),
            3
        );
    }

    #[test]
    fn check__a_word_that_only_contains_one_is_fine() {
        assert_eq!(
            check_text("a/src/datagram.rs", "struct Datagram; struct Metadata; struct Informed;"),
            0
        );
    }

    #[test]
    fn check__a_test_says_what_it_proves() {
        assert_eq!(
            check_text("a/src/x.rs", "#[test] fn works() {} #[test] fn parse__works() {}"),
            1
        );
    }

    #[test]
    fn check__a_bare_bool_is_refused() {
        assert_eq!(check_text("a/src/x.rs", "pub fn start(fast: bool) {}"), 1);
    }
}
