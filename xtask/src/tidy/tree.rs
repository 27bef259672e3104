//! Reads the workspace once: every file of the tree, Rust sources parsed, packages as cargo sees
//! them.
//!
//! # Invariants
//! I1. Paths are relative to the root, with `/`, and files are in the order of their paths.
//! I2. What `.gitignore` names with a leading `/`, and hidden directories other than `.ci` and
//!     `.cargo`, are no part of the tree.

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;

use anyhow::Context as _;
use cargo_metadata::{DependencyKind, MetadataCommand};

use super::Finding;
use super::items::Items;
use super::tokens::Tokens;

/// One file of the tree.
pub(super) struct TextFile {
    pub(super) path: String,
    /// `None` for what is not UTF-8: fonts, pictures.
    pub(super) text: Option<String>,
}

/// One Rust source, parsed.
pub(super) struct RustFile {
    pub(super) path: String,
    pub(super) items: Items,
    pub(super) tokens: Tokens,
}

impl RustFile {
    /// True for files that hold tests only: `tests.rs`, and everything under `tests/` or
    /// `benches/`.
    pub(super) fn is_test(&self) -> bool {
        self.path.ends_with("/tests.rs")
            || self.path.split('/').any(|part| part == "tests" || part == "benches")
    }
}

/// What a dependency is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Purpose {
    /// Part of what is shipped, or needed to build it.
    Product,
    /// Tests and examples only.
    Tests,
}

/// One member of the workspace.
pub(super) struct Package {
    pub(super) name: String,
    /// The directory of its manifest.
    pub(super) dir: String,
    /// The root source of each target.
    pub(super) roots: Vec<String>,
    pub(super) dependencies: Vec<(String, Purpose)>,
}

/// The workspace as the rules see it.
pub(super) struct Tree {
    pub(super) files: Vec<TextFile>,
    pub(super) rust: Vec<RustFile>,
    pub(super) packages: Vec<Package>,
    broken: Vec<Finding>,
}

impl Tree {
    /// Reads the workspace at `root`; a Rust file that does not parse becomes a finding, not an
    /// error.
    ///
    /// # Errors
    /// A directory cannot be read, or cargo refuses a manifest.
    pub(super) fn read(root: &Path) -> anyhow::Result<Self> {
        let ignored = fs::read_to_string(root.join(".gitignore")).unwrap_or_default();
        let ignored: Vec<&str> =
            ignored.lines().filter_map(|line| line.strip_prefix('/')).collect();
        let mut files = Vec::new();
        read_directory(root, "", &ignored, &mut files)?;
        files.sort_by(|a, b| a.path.cmp(&b.path));
        Ok(Self::new(files, packages(root)?))
    }

    fn new(files: Vec<TextFile>, packages: Vec<Package>) -> Self {
        let (mut rust, mut broken) = (Vec::new(), Vec::new());
        for file in files.iter().filter(|file| file.path.ends_with(".rs")) {
            let text = file.text.as_deref().unwrap_or("\u{0}");
            match (syn::parse_file(text), text.parse()) {
                (Ok(syntax), Ok(stream)) => rust.push(RustFile {
                    path: file.path.clone(),
                    items: Items::from_file(&syntax, text.lines().count()),
                    tokens: Tokens::from_stream(stream),
                }),
                (Err(error), _) => {
                    let line = error.span().start().line;
                    broken.push(Finding::new(
                        &file.path,
                        line,
                        format!("does not parse ({error}); no rule was checked"),
                    ));
                }
                (_, Err(_)) => {
                    broken.push(Finding::new(&file.path, 1, "is no Rust text; no rule was checked"))
                }
            }
        }
        Self { files, rust, packages, broken }
    }

    /// Files that could not be parsed.
    pub(super) fn unreadable(&self) -> Vec<Finding> {
        self.broken.clone()
    }

    /// The text of the file at `path`.
    pub(super) fn text(&self, path: &str) -> Option<&str> {
        let at = self.files.binary_search_by(|file| file.path.as_str().cmp(path)).ok()?;
        self.files[at].text.as_deref()
    }

    /// True when the tree has a file or a directory at `path`.
    pub(super) fn has(&self, path: &str) -> bool {
        let directory = format!("{}/", path.trim_end_matches('/'));
        self.files.iter().any(|file| file.path == path || file.path.starts_with(&directory))
    }

    /// Texts with the given ending, with their paths.
    pub(super) fn texts(&self, ending: &str) -> impl Iterator<Item = (&str, &str)> {
        self.files
            .iter()
            .filter(move |file| file.path.ends_with(ending))
            .filter_map(|file| Some((file.path.as_str(), file.text.as_deref()?)))
    }

    /// The package whose directory holds `path`.
    pub(super) fn package_of(&self, path: &str) -> Option<&Package> {
        self.packages.iter().find(|package| {
            path.strip_prefix(&package.dir).is_some_and(|rest| rest.starts_with('/'))
        })
    }

    /// A tree made of texts, for tests of rules.
    #[cfg(test)]
    pub(super) fn from_texts(texts: &[(&str, &str)]) -> Self {
        Self::with_packages(texts, Vec::new())
    }

    /// A tree made of texts and packages, for tests of rules.
    #[cfg(test)]
    pub(super) fn with_packages(texts: &[(&str, &str)], packages: Vec<Package>) -> Self {
        let mut files: Vec<TextFile> = texts
            .iter()
            .map(|(path, text)| TextFile {
                path: (*path).to_owned(),
                text: Some((*text).to_owned()),
            })
            .collect();
        files.sort_by(|a, b| a.path.cmp(&b.path));
        Self::new(files, packages)
    }
}

#[cfg(test)]
impl Package {
    /// A library in `crates/<name>` with the given dependencies, for tests of rules.
    pub(super) fn library(name: &str, dependencies: &[&str]) -> Self {
        Self {
            name: name.to_owned(),
            dir: format!("crates/{name}"),
            roots: vec![format!("crates/{name}/src/lib.rs")],
            dependencies: dependencies
                .iter()
                .map(|name| ((*name).to_owned(), Purpose::Product))
                .collect(),
        }
    }
}

/// Adds the files below `root/relative` to `files`.
fn read_directory(
    root: &Path,
    relative: &str,
    ignored: &[&str],
    files: &mut Vec<TextFile>,
) -> anyhow::Result<()> {
    let directory = root.join(relative);
    for entry in
        fs::read_dir(&directory).with_context(|| format!("cannot list {}", directory.display()))?
    {
        let entry = entry?;
        let name = entry.file_name().into_string().ok().context("a file name is not UTF-8")?;
        let path = if relative.is_empty() { name.clone() } else { format!("{relative}/{name}") };
        let hidden = name.starts_with('.') && !matches!(name.as_str(), ".ci" | ".cargo");
        if ignored.contains(&path.as_str()) {
            continue;
        }
        let kind = entry.file_type()?;
        if kind.is_dir() && !hidden {
            read_directory(root, &path, ignored, files)?;
        } else if kind.is_file() {
            let text = fs::read(entry.path()).ok().and_then(|bytes| String::from_utf8(bytes).ok());
            files.push(TextFile { path, text });
        }
    }
    Ok(())
}

/// The members of the workspace at `root`, in the order of their names.
fn packages(root: &Path) -> anyhow::Result<Vec<Package>> {
    let metadata =
        MetadataCommand::new().manifest_path(root.join("Cargo.toml")).no_deps().exec()?;
    let relative = |path: &Path| -> String {
        path.strip_prefix(metadata.workspace_root.as_std_path())
            .unwrap_or(path)
            .to_string_lossy()
            .into_owned()
    };
    let mut packages = BTreeMap::new();
    for package in &metadata.packages {
        let dir = package
            .manifest_path
            .parent()
            .map(|dir| relative(dir.as_std_path()))
            .unwrap_or_default();
        let dependencies = package.dependencies.iter().map(|dependency| {
            let tests = dependency.kind == DependencyKind::Development;
            (dependency.name.clone(), if tests { Purpose::Tests } else { Purpose::Product })
        });
        let member = Package {
            name: package.name.to_string(),
            dir,
            roots: package
                .targets
                .iter()
                .map(|target| relative(target.src_path.as_std_path()))
                .collect(),
            dependencies: dependencies.collect(),
        };
        packages.insert(member.name.clone(), member);
    }
    Ok(packages.into_values().collect())
}
