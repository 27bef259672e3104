//! Every Rust source is reached from the root of some target by `mod` lines; what is not reached is
//! dead.
//!
//! # Source
//! The Rust Reference, "Modules": where the text of `mod name;` is looked for.

use std::collections::{BTreeMap, BTreeSet};

use super::Finding;
use super::items::FileModule;
use super::tree::{RustFile, Tree};

/// Programs of their own that need another compiler and are therefore outside the workspace.
const ROOTS_OUTSIDE: &str = "fuzz/targets/";

pub(super) fn check(tree: &Tree) -> Vec<Finding> {
    if tree.packages.is_empty() {
        return Vec::new();
    }
    let files: BTreeMap<&str, &RustFile> =
        tree.rust.iter().map(|file| (file.path.as_str(), file)).collect();
    let roots: BTreeSet<&str> =
        tree.packages.iter().flat_map(|package| &package.roots).map(String::as_str).collect();
    let mut reached = BTreeSet::new();
    let mut open: Vec<String> = roots.iter().map(|root| (*root).to_owned()).collect();
    while let Some(path) = open.pop() {
        if let Some(file) = files.get(path.as_str()) {
            let is_root = roots.contains(path.as_str());
            for module in &file.items.modules {
                open.extend(
                    places(&path, is_root, module)
                        .into_iter()
                        .filter(|place| !reached.contains(place)),
                );
            }
        }
        reached.insert(path);
    }
    let dead =
        files.keys().filter(|path| !reached.contains(**path) && !path.starts_with(ROOTS_OUTSIDE));
    dead.map(|path| Finding::new(*path, 1, "no `mod` line leads here; add one or delete the file"))
        .collect()
}

/// Where the text of `module`, declared in the file at `path`, may stand.
fn places(path: &str, is_root: bool, module: &FileModule) -> Vec<String> {
    let (dir, file) = path.rsplit_once('/').unwrap_or(("", path));
    let stem = file.trim_end_matches(".rs");
    let mut base = dir.to_owned();
    if let Some(path) = &module.path {
        return vec![format!("{base}/{path}")];
    }
    if !is_root && stem != "mod" {
        base = format!("{base}/{stem}");
    }
    for inside in &module.inside {
        base = format!("{base}/{inside}");
    }
    vec![format!("{base}/{}.rs", module.name), format!("{base}/{}/mod.rs", module.name)]
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tidy::tree::Package;

    fn dead(texts: &[(&str, &str)]) -> Vec<String> {
        let tree = Tree::with_packages(texts, vec![Package::library("a", &[])]);
        check(&tree).into_iter().map(|finding| finding.path).collect()
    }

    #[test]
    fn check__follows_mod_lines_through_files_and_directories() {
        let texts = [
            ("crates/a/src/lib.rs", "mod b; mod c; mod i { mod j; }"),
            ("crates/a/src/b.rs", "mod d; #[path = \"odd.rs\"] mod e;"),
            ("crates/a/src/b/d.rs", ""),
            ("crates/a/src/odd.rs", ""),
            ("crates/a/src/c/mod.rs", "mod f;"),
            ("crates/a/src/c/f.rs", ""),
            ("crates/a/src/i/j.rs", ""),
        ];
        assert_eq!(dead(&texts), Vec::<String>::new());
    }

    #[test]
    fn check__a_file_without_a_mod_line_is_dead() {
        let texts = [
            ("crates/a/src/lib.rs", "mod b;"),
            ("crates/a/src/b.rs", ""),
            ("crates/a/src/old.rs", "mod x;"),
        ];
        assert_eq!(dead(&texts), ["crates/a/src/old.rs"]);
    }
}
