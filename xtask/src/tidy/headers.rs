//! Every Rust source begins with one sentence that says what it decides or guarantees.

use super::Finding;
use super::tree::Tree;

pub(super) fn check(tree: &Tree) -> Vec<Finding> {
    tree.texts(".rs").filter_map(|(path, text)| Some(Finding::new(path, 1, fault(text)?))).collect()
}

/// What is wrong with the header of `text`.
fn fault(text: &str) -> Option<&'static str> {
    let sentence: Vec<&str> =
        text.lines().map_while(|line| line.strip_prefix("//! ")).map(str::trim).collect();
    match (sentence.first(), sentence.last()) {
        (None, _) => Some(
            "does not begin with `//! ` and a sentence on what this module decides or guarantees",
        ),
        (Some(first), _) if first.starts_with('#') => {
            Some("begins with a heading; put one sentence in front of it")
        }
        (_, Some(last)) if !last.ends_with('.') => {
            Some("the first paragraph of its header does not end with a period")
        }
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fault__a_sentence_over_one_or_two_lines_is_fine() {
        assert_eq!(fault("//! Decides this.\n\nfn a() {}"), None);
        assert_eq!(fault("//! Decides this\n//! and that.\n//!\n//! # Model"), None);
    }

    #[test]
    fn fault__a_missing_or_open_sentence_is_named() {
        for text in [
            "",
            "fn a() {}",
            "// Decides.",
            "//!\n//! Decides.",
            "//! Decides",
            "//! # Model\n",
            "\n//! Late.",
        ] {
            assert!(fault(text).is_some(), "{text:?}");
        }
    }
}
