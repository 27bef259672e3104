//! The notices that licences of libraries ask for: what the program and the library contain, and
//! under which terms.
//!
//! # Model
//! The packages that `clearway` and `clearway-shmem` reach by ordinary dependencies on this kind of
//! machine, each with its licence; then each different text among their files, with the packages
//! that carry it. What only runs during a build (build scripts, macros) is not in the program.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write as _;
use std::fs;
use std::path::Path;

use anyhow::{Context, Result};
use cargo_metadata::{DependencyKind, Metadata, MetadataCommand, Package, PackageId, TargetKind};

/// Packages of this workspace that are installed.
const INSTALLED: [&str; 2] = ["clearway", "clearway-shmem"];
/// How names of files with terms begin, in small letters.
const BEGINNINGS: [&str; 5] = ["license", "licence", "copying", "notice", "copyright"];

/// Returns the notices of all libraries inside the program and the library.
pub(super) fn third_party(root: &Path) -> Result<String> {
    let machine = format!("{}-unknown-linux-gnu", std::env::consts::ARCH);
    let metadata = MetadataCommand::new()
        .current_dir(root)
        .other_options(["--locked".to_owned(), "--filter-platform".to_owned(), machine])
        .exec()
        .context("cargo metadata")?;
    let mut listed = BTreeMap::new();
    let mut texts: BTreeMap<String, BTreeSet<String>> = BTreeMap::new();
    for package in contained(&metadata)? {
        let name = format!("{} {}", package.name, package.version);
        let directory = package.manifest_path.parent().context("a manifest is in a directory")?;
        for text in terms(directory.as_std_path())? {
            texts.entry(text).or_default().insert(name.clone());
        }
        listed.insert(name, package.license.clone().unwrap_or_else(|| "see its files".to_owned()));
    }
    Ok(written(&listed, &texts))
}

/// The foreign packages that are linked into what is installed.
fn contained(metadata: &Metadata) -> Result<Vec<&Package>> {
    let resolve = metadata.resolve.as_ref().context("cargo resolved no dependencies")?;
    let mut waiting: Vec<&PackageId> = metadata
        .workspace_packages()
        .into_iter()
        .filter(|package| INSTALLED.contains(&package.name.as_str()))
        .map(|package| &package.id)
        .collect();
    let mut seen = BTreeSet::new();
    let mut found = Vec::new();
    while let Some(id) = waiting.pop() {
        let package = &metadata[id];
        let is_macro = |target: &cargo_metadata::Target| target.is_kind(TargetKind::ProcMacro);
        if !seen.insert(id) || package.targets.iter().any(is_macro) {
            continue;
        }
        if package.source.is_some() {
            found.push(package);
        }
        let Some(node) = resolve.nodes.iter().find(|node| node.id == *id) else { continue };
        for dependency in &node.deps {
            if dependency.dep_kinds.iter().any(|kind| kind.kind == DependencyKind::Normal) {
                waiting.push(&dependency.pkg);
            }
        }
    }
    Ok(found)
}

/// The texts of terms in a package: in its directory and, for libraries in C that it carries, in
/// those directly below.
fn terms(directory: &Path) -> Result<Vec<String>> {
    let mut texts = Vec::new();
    let mut directories = vec![directory.to_owned()];
    for entry in fs::read_dir(directory).with_context(|| directory.display().to_string())? {
        let path = entry?.path();
        if path.is_dir() {
            directories.push(path);
        }
    }
    for directory in directories {
        for entry in fs::read_dir(&directory)? {
            let entry = entry?;
            let name = entry.file_name().to_string_lossy().to_lowercase();
            if entry.path().is_file() && BEGINNINGS.iter().any(|word| name.starts_with(word)) {
                let bytes = fs::read(entry.path())?;
                texts.push(String::from_utf8_lossy(&bytes).replace("\r\n", "\n").trim().to_owned());
            }
        }
    }
    Ok(texts)
}

fn written(
    listed: &BTreeMap<String, String>,
    texts: &BTreeMap<String, BTreeSet<String>>,
) -> String {
    let mut text = String::from(
        "Clearway contains these libraries. Their licences follow, each text once, with the libraries that carry it.\n\n",
    );
    for (name, licence) in listed {
        let _ = writeln!(text, "{name}: {licence}");
    }
    for (terms, names) in texts {
        let names: Vec<&str> = names.iter().map(String::as_str).collect();
        let _ = write!(text, "\n{}\n{}\n\n{terms}\n", "=".repeat(80), names.join(", "));
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn third_party__names_what_is_linked_and_not_what_only_builds_or_tests() {
        let root = Path::new(env!("CARGO_MANIFEST_DIR")).parent().expect("the root");
        let text = third_party(root).expect("notices");
        let (list, terms) = text.split_once("====").expect("texts");
        let has = |name: &str| list.lines().any(|line| line.starts_with(name));
        assert!(has("aws-lc-sys ") && has("zstd-sys ") && has("fuser ") && has("libc "), "{list}");
        assert!(!has("clearway") && !has("proptest ") && !has("serde_derive ") && !has("cc "));
        assert!(terms.contains("Permission is hereby granted"));
        // The library in C that a package carries.
        assert!(terms.contains("Meta Platforms") || terms.contains("Facebook"), "{terms:.400}");
    }
}
