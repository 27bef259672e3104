//! Every asset, scenario and document is mentioned by name in some other file; what nobody mentions
//! is dead.

use super::Finding;
use super::tree::Tree;

/// Directories whose files must be mentioned.
const KEPT_BY_MENTION: &[&str] = &["assets/", "crates/", "docs/", "scenarios/", "bench/"];

/// Parts of paths whose files are found by their directory: records of runs, and what proptest
/// keeps.
const KEPT_BY_PLACE: &[&str] = &["bench/runs/", "proptest-regressions/"];

pub(super) fn check(tree: &Tree) -> Vec<Finding> {
    let mut found = Vec::new();
    for file in &tree.files {
        let name = file.path.rsplit_once('/').map_or(file.path.as_str(), |(_, name)| name);
        let by_mention = KEPT_BY_MENTION.iter().any(|dir| file.path.starts_with(dir));
        let by_place =
            KEPT_BY_PLACE.iter().any(|part| file.path.contains(part)) || name.ends_with(".rs");
        if !by_mention || by_place || matches!(name, "Cargo.toml" | "clippy.toml") {
            continue;
        }
        if !tree.texts("").any(|(path, text)| path != file.path && text.contains(name)) {
            found.push(Finding::new(
                &file.path,
                1,
                "no other file mentions this one; mention it where it is used, or delete it",
            ));
        }
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn check__a_mention_elsewhere_keeps_a_file() {
        let kept = [
            ("docs/a.md", "see a.md"),
            ("README.md", "[a](docs/a.md)"),
            ("bench/runs/x/raw.csv", ""),
        ];
        assert!(check(&Tree::from_texts(&kept)).is_empty());
    }

    #[test]
    fn check__a_file_that_mentions_only_itself_is_dead() {
        let dead = [("scenarios/old.toml", "# old.toml"), ("README.md", "nothing")];
        assert_eq!(check(&Tree::from_texts(&dead)).len(), 1);
    }
}
