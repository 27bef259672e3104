//! Every dependency is used and says why it is there, and the oldest supported Rust is stated once.

use super::Finding;
use super::tree::Tree;

/// The manifest whose comments hold for every crate that inherits from it.
const ROOT: &str = "Cargo.toml";

pub(super) fn check(tree: &Tree) -> Vec<Finding> {
    let shared = dependencies(tree.text(ROOT).unwrap_or_default());
    let has_reason = |name: &str| shared.iter().any(|line| line.name == name && line.has_reason);
    let mut found = Vec::new();
    for (path, text) in tree.texts("Cargo.toml") {
        for line in dependencies(text)
            .iter()
            .filter(|line| !line.has_reason && !line.is_own && !has_reason(line.name))
        {
            let sentence = format!(
                "`{}` has no reason; put one behind `#` on its line, here or in {ROOT}",
                line.name
            );
            found.push(Finding::new(path, line.line, sentence));
        }
    }
    for line in &shared {
        let inherits = |text: &str| dependencies(text).iter().any(|other| other.name == line.name);
        if !tree.texts("Cargo.toml").any(|(path, text)| path != ROOT && inherits(text)) {
            let sentence = format!("no crate uses `{}`; remove the line", line.name);
            found.push(Finding::new(ROOT, line.line, sentence));
        }
    }
    found.extend(check_oldest_rust(tree));
    found
}

/// One line below a `dependencies` heading.
struct DependencyLine<'a> {
    line: usize,
    name: &'a str,
    has_reason: bool,
    /// A crate of this workspace; its reason is its row in the table of crates.
    is_own: bool,
}

fn dependencies(text: &str) -> Vec<DependencyLine<'_>> {
    let (mut inside, mut found) = (false, Vec::new());
    for (at, line) in text.lines().enumerate() {
        if line.starts_with('[') {
            inside = line.trim_end_matches(']').ends_with("dependencies");
        } else if let Some((name, value)) =
            line.split_once('=').filter(|_| inside && !line.starts_with([' ', '#']))
        {
            let name = name.trim().trim_end_matches(".workspace");
            let has_reason =
                value.split_once('#').is_some_and(|(_, reason)| !reason.trim().is_empty());
            found.push(DependencyLine {
                line: at + 1,
                name,
                has_reason,
                is_own: name.starts_with("clearway"),
            });
        }
    }
    found
}

/// `rust-version` stands in the root manifest; prose that gives a version of Rust gives the same
/// one.
fn check_oldest_rust(tree: &Tree) -> Vec<Finding> {
    let stated = tree.text(ROOT).and_then(|text| {
        text.lines().find_map(|line| {
            Some(line.strip_prefix("rust-version = \"")?.trim_end_matches('"').to_owned())
        })
    });
    let Some(stated) = stated else { return Vec::new() };
    let mut found = Vec::new();
    for (path, text) in tree.texts(".md") {
        for (at, line) in text.lines().enumerate() {
            for version in rust_versions(line).into_iter().filter(|version| *version != stated) {
                let sentence = format!(
                    "says Rust {version}, {ROOT} says {stated}; leave the number to {ROOT}"
                );
                found.push(Finding::new(path, at + 1, sentence));
            }
        }
    }
    for (path, text) in tree.texts("Cargo.toml").filter(|(path, _)| *path != ROOT) {
        for (at, _) in
            text.lines().enumerate().filter(|(_, line)| line.starts_with("rust-version = "))
        {
            found.push(Finding::new(
                path,
                at + 1,
                "states `rust-version` again; write `rust-version.workspace = true`",
            ));
        }
    }
    found
}

/// Versions `1.N` that follow the word Rust (or rustc, MSRV) within a few words.
fn rust_versions(line: &str) -> Vec<String> {
    let words: Vec<&str> = line
        .split(|c: char| !(c.is_ascii_alphanumeric() || c == '.'))
        .filter(|w| !w.is_empty())
        .collect();
    let is_rust =
        |word: &&str| matches!(word.to_lowercase().as_str(), "rust" | "rustc" | "msrv" | "cargo");
    let mut found = Vec::new();
    for (at, word) in words.iter().enumerate() {
        let minor = word
            .trim_end_matches('.')
            .strip_prefix("1.")
            .filter(|minor| minor.parse::<u32>().is_ok());
        if let Some(minor) = minor.filter(|_| {
            words[..at].iter().rev().take(3).take_while(|word| !word.ends_with('.')).any(is_rust)
        }) {
            found.push(format!("1.{minor}"));
        }
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    const BOTH: &str = "[dependencies]\nlibm.workspace = true\nclearway-a.workspace = true\n";

    fn check_with(member: &str, readme: &str) -> Vec<String> {
        let root = "[workspace.package]\nrust-version = \"1.89\"\n[workspace.dependencies]\nclearway-a = { path = \"a\" }\nlibm = \"0.2\" # same everywhere\n";
        let texts = [(ROOT, root), ("crates/a/Cargo.toml", member), ("README.md", readme)];
        check(&Tree::from_texts(&texts)).iter().map(ToString::to_string).collect()
    }

    #[test]
    fn check__a_reason_stands_here_or_in_the_root() {
        let member = "[dependencies]\nlibm.workspace = true\nserde = \"1\" # plans cross borders\nclearway-a.workspace = true\n";
        assert_eq!(check_with(member, ""), Vec::<String>::new());
    }

    #[test]
    fn check__a_dependency_without_a_reason_is_refused() {
        assert_eq!(
            check_with(
                &format!("{BOTH}[dev-dependencies]\nrand = \"1\"\n[lints]\nworkspace = true\n"),
                ""
            )
            .len(),
            1
        );
        assert_eq!(check_with(&format!("{BOTH}rand = \"1\" #\n"), "").len(), 1);
    }

    #[test]
    fn check__a_shared_dependency_that_no_crate_uses_is_refused() {
        let member = "[dependencies]\nlibm.workspace = true\n";
        assert_eq!(
            check_with(member, ""),
            ["Cargo.toml:4: no crate uses `clearway-a`; remove the line"]
        );
    }

    #[test]
    fn check__the_oldest_rust_is_stated_once() {
        assert!(check_with(BOTH, "Needs Rust 1.89. Version 1.2 of the report.").is_empty());
        assert_eq!(check_with(BOTH, "needs Rust (at least 1.88)").len(), 1);
        assert_eq!(check_with(&format!("rust-version = \"1.89\"\n{BOTH}"), "").len(), 1);
    }
}
