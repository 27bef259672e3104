//! `unsafe` stands only in the files that `ARCHITECTURE.md` names; crates without such a file
//! forbid it.

use super::Finding;
use super::house::{self, CrateRow, House};
use super::tree::{Package, Tree};

pub(super) fn check(tree: &Tree) -> Vec<Finding> {
    let Ok(house) = House::read(tree) else { return Vec::new() };
    let mut found = Vec::new();
    for package in &tree.packages {
        if let Some(row) = house.row(&package.name) {
            check_package(tree, package, row, &mut found);
        }
    }
    found
}

fn check_package(tree: &Tree, package: &Package, row: &CrateRow, found: &mut Vec<Finding>) {
    let named: Vec<String> =
        row.unsafe_in.iter().map(|file| format!("{}/{file}", package.dir)).collect();
    let in_package =
        |path: &str| tree.package_of(path).is_some_and(|owner| owner.name == package.name);
    for file in
        tree.rust.iter().filter(|file| in_package(&file.path) && !named.contains(&file.path))
    {
        for line in &file.tokens.unsafe_lines {
            let sentence = format!(
                "`unsafe` is not allowed here; the column `unsafe in` of {} names the files",
                house::PATH
            );
            found.push(Finding::new(&file.path, *line, sentence));
        }
    }
    for path in &named {
        let holds =
            tree.rust.iter().any(|file| file.path == *path && !file.tokens.unsafe_lines.is_empty());
        if !holds {
            found.push(Finding::new(
                house::PATH,
                row.line,
                format!("{path} holds no `unsafe`; remove it from the row"),
            ));
        }
    }
    if named.is_empty() {
        let product =
            |path: &&String| path.ends_with("/src/lib.rs") || path.ends_with("/src/main.rs");
        for root in package.roots.iter().filter(product) {
            if tree.rust.iter().any(|file| file.path == *root && !file.items.forbids_unsafe) {
                found.push(Finding::new(
                    root,
                    1,
                    "lacks `#![forbid(unsafe_code)]`; this crate holds no unsafe code",
                ));
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check_with(row: &str, lib: &str) -> usize {
        let text = format!(
            "| crate | unsafe in |\n|---|---|\n| clearway-a | {row} |\n\n| room | x |\n|---|---|\n| r | |\n\n\
             | room of the binary | x |\n|---|---|\n| run | |\n\nfloor 0 clearway-a\n"
        );
        let texts = [
            (house::PATH, text.as_str()),
            ("crates/clearway-a/src/lib.rs", lib),
            ("crates/clearway-a/src/raw.rs", "unsafe fn f() {}"),
        ];
        check(&Tree::with_packages(&texts, vec![Package::library("clearway-a", &[])])).len()
    }

    #[test]
    fn check__a_named_file_may_hold_unsafe_and_no_other() {
        assert_eq!(check_with("`src/raw.rs`", ""), 0);
        assert_eq!(check_with("`src/raw.rs`", "unsafe fn g() {}"), 1);
        assert_eq!(check_with("nowhere", "#![forbid(unsafe_code)]"), 1);
    }

    #[test]
    fn check__a_crate_without_unsafe_forbids_it() {
        assert_eq!(check_with("nowhere", ""), 2);
    }

    #[test]
    fn check__a_named_file_without_unsafe_is_stale() {
        assert_eq!(check_with("`src/raw.rs`, `src/gone.rs`", ""), 1);
    }
}
