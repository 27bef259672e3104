//! A tree of files as it should be: what each step of a writer makes of it, and what tells two trees
//! apart.
//!
//! # Not here
//! Times and owners: no promise is about them.

use std::collections::{BTreeMap, hash_map::DefaultHasher};
use std::fs;
use std::hash::Hasher;
use std::io;
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::path::Path;
use std::sync::Arc;

/// Returns a digest of bytes: that of `crates/clearway-fs/examples/recover.rs`.
pub(super) fn bytes_digest(bytes: &[u8]) -> u64 {
    let mut hasher = DefaultHasher::new();
    hasher.write(bytes);
    hasher.finish()
}

/// What was found under one name.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct FoundName {
    pub(super) path: String,
    pub(super) inode: u64,
    pub(super) kind: String,
    pub(super) mode: u32,
    pub(super) size: u64,
    pub(super) digest: u64,
}

impl FoundName {
    /// Reads a line of `recover`.
    pub(super) fn parse(line: &str) -> Option<Self> {
        let mut words = line.strip_prefix("entry ")?.splitn(6, ' ');
        let mut next = || words.next();
        Some(Self {
            inode: next()?.parse().ok()?,
            kind: next()?.to_owned(),
            mode: u32::from_str_radix(next()?, 8).ok()?,
            size: next()?.parse().ok()?,
            digest: u64::from_str_radix(next()?, 16).ok()?,
            path: next()?.to_owned(),
        })
    }

    /// Returns the directory at the top that it is in.
    pub(super) fn top(&self) -> &str {
        self.path.split('/').next().unwrap_or_default()
    }
}

/// Returns what tells trees apart, a line a name: kinds, bytes, modes of files, and which names are one
/// file.
pub(super) fn tree_text(names: impl IntoIterator<Item = FoundName>) -> Arc<str> {
    let mut names: Vec<FoundName> = names.into_iter().collect();
    names.sort();
    let mut firsts: BTreeMap<u64, usize> = BTreeMap::new();
    let mut text = String::new();
    for (at, FoundName { path, inode, kind, mode, size, digest }) in names.iter().enumerate() {
        let first = *firsts.entry(*inode).or_insert(at);
        let mode = if kind == "file" { mode & 0o7777 } else { 0 };
        text.push_str(&format!("{path} {first} {kind} {mode:o} {size} {digest:x}\n"));
    }
    text.into()
}

/// Returns the lines in which two trees differ.
pub(super) fn difference(found: &str, expected: &str) -> String {
    let only = |one: &str, other: &str, sign: &str| {
        let lines = one.lines().filter(|line| !other.lines().any(|it| it == *line));
        lines.map(|line| format!("{sign}{line}; ")).collect::<String>()
    };
    only(found, expected, "there: ") + &only(expected, found, "missing: ")
}

/// Lists what is below `root` in a directory of this system, with `top` and what is in it.
///
/// # Errors
/// The system's.
pub(super) fn walk(root: &Path, top: &str) -> io::Result<Vec<FoundName>> {
    let (mut found, mut left) = (Vec::new(), vec![top.to_owned()]);
    while let Some(path) = left.pop() {
        let place = root.join(&path);
        let metadata = match fs::symlink_metadata(&place) {
            Err(why) if why.kind() == io::ErrorKind::NotFound => continue,
            metadata => metadata?,
        };
        let (kind, bytes) = if metadata.is_dir() {
            for entry in fs::read_dir(&place)? {
                left.push(format!("{path}/{}", entry?.file_name().to_string_lossy()));
            }
            ("directory", Vec::new())
        } else if metadata.is_symlink() {
            ("symlink", fs::read_link(&place)?.into_os_string().into_encoded_bytes())
        } else {
            ("file", fs::read(&place)?)
        };
        found.push(FoundName {
            path,
            inode: metadata.ino(),
            kind: kind.to_owned(),
            mode: metadata.permissions().mode() & 0o7777,
            size: bytes.len() as u64,
            digest: bytes_digest(&bytes),
        });
    }
    Ok(found)
}

/// What a node of a tree is.
#[derive(Clone, Debug)]
enum ModelContent {
    Directory,
    File { bytes: Arc<Vec<u8>>, digest: u64, mode: u32 },
    Symlink(String),
}

/// One change of a tree.
#[derive(Clone, Debug)]
pub(super) enum TreeStep {
    MakeDirectory(String),
    RemoveDirectory(String),
    Create(String),
    Write { node: usize, at: u64, bytes: Vec<u8> },
    Cut { node: usize, size: u64 },
    Mode { node: usize, mode: u32 },
    Rename(String, String),
    Link(String, String),
    Unlink(String),
    Symlink { target: String, path: String },
}

/// A tree of files.
#[derive(Clone, Debug, Default)]
pub(super) struct ModelTree {
    pub(super) names: BTreeMap<String, usize>,
    nodes: Vec<ModelContent>,
}

impl ModelTree {
    pub(super) fn text(&self) -> Arc<str> {
        let found = self.names.iter().map(|(path, node)| {
            let (kind, mode, size, digest) = match &self.nodes[*node] {
                ModelContent::Directory => ("directory", 0, 0, bytes_digest(&[])),
                ModelContent::File { bytes, digest, mode } => ("file", *mode, bytes.len(), *digest),
                ModelContent::Symlink(target) => {
                    ("symlink", 0, target.len(), bytes_digest(target.as_bytes()))
                }
            };
            let (path, inode, kind) = (path.clone(), *node as u64, kind.to_owned());
            FoundName { path, inode, kind, mode, size: size as u64, digest }
        });
        tree_text(found)
    }

    pub(super) fn is_directory(&self, path: &str) -> bool {
        let node = self.names.get(path);
        node.is_some_and(|node| matches!(self.nodes[*node], ModelContent::Directory))
    }

    pub(super) fn is_file(&self, path: &str) -> bool {
        let node = self.names.get(path);
        node.is_some_and(|node| matches!(self.nodes[*node], ModelContent::File { .. }))
    }

    /// Returns whether nothing is in a directory.
    pub(super) fn is_empty(&self, path: &str) -> bool {
        let inside = format!("{path}/");
        !self.names.keys().any(|name| name.starts_with(&inside))
    }

    /// Returns the bytes of a file.
    pub(super) fn size(&self, node: usize) -> u64 {
        match &self.nodes[node] {
            ModelContent::File { bytes, .. } => bytes.len() as u64,
            _ => 0,
        }
    }

    fn add(&mut self, path: &str, content: ModelContent) {
        self.nodes.push(content);
        self.names.insert(path.to_owned(), self.nodes.len() - 1);
    }

    fn change(&mut self, node: usize, change: impl FnOnce(&mut Vec<u8>)) {
        if let ModelContent::File { bytes, digest, .. } = &mut self.nodes[node] {
            change(Arc::make_mut(bytes));
            *digest = bytes_digest(bytes);
        }
    }

    /// Makes a change that can be made. Returns the file that it is of, if it is of one.
    pub(super) fn apply(&mut self, step: &TreeStep) -> Option<usize> {
        match step {
            TreeStep::MakeDirectory(path) => self.add(path, ModelContent::Directory),
            TreeStep::Symlink { target, path } => {
                self.add(path, ModelContent::Symlink(target.clone()));
            }
            TreeStep::Create(path) => {
                let (bytes, digest) = (Arc::default(), bytes_digest(&[]));
                self.add(path, ModelContent::File { bytes, digest, mode: 0o600 });
                return self.names.get(path).copied();
            }
            TreeStep::RemoveDirectory(path) | TreeStep::Unlink(path) => {
                self.names.remove(path);
            }
            TreeStep::Link(from, to) => {
                let node = self.names[from];
                self.names.insert(to.clone(), node);
                return Some(node);
            }
            TreeStep::Rename(from, to) => self.rename(from, to),
            TreeStep::Write { node, at, bytes } => {
                self.change(*node, |old| {
                    let end = *at as usize + bytes.len();
                    old.resize(old.len().max(end), 0);
                    old[*at as usize..end].copy_from_slice(bytes);
                });
                return Some(*node);
            }
            TreeStep::Cut { node, size } => {
                self.change(*node, |old| old.resize(*size as usize, 0));
                return Some(*node);
            }
            TreeStep::Mode { node, mode: new } => {
                if let ModelContent::File { mode, .. } = &mut self.nodes[*node] {
                    *mode = *new;
                }
                return Some(*node);
            }
        }
        None
    }

    fn rename(&mut self, from: &str, to: &str) {
        let inside = format!("{from}/");
        let below: Vec<String> =
            self.names.keys().filter(|name| name.starts_with(&inside)).cloned().collect();
        for name in below {
            if let Some(node) = self.names.remove(&name) {
                self.names.insert(format!("{to}/{}", &name[inside.len()..]), node);
            }
        }
        if let Some(node) = self.names.remove(from) {
            self.names.insert(to.to_owned(), node);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn walk__a_directory_has_the_text_of_its_model() {
        let root = std::env::temp_dir().join(format!("clearway-crash-tree-{}", std::process::id()));
        fs::create_dir_all(root.join("w/d")).unwrap();
        fs::write(root.join("w/a"), b"0123456789").unwrap();
        fs::set_permissions(root.join("w/a"), fs::Permissions::from_mode(0o640)).unwrap();
        fs::hard_link(root.join("w/a"), root.join("w/d/b")).unwrap();
        std::os::unix::fs::symlink("a", root.join("w/s")).unwrap();
        let mut model = ModelTree::default();
        let path = |text: &str| text.to_owned();
        for step in [
            TreeStep::MakeDirectory(path("w")),
            TreeStep::Create(path("w/x")),
            TreeStep::Write { node: 1, at: 2, bytes: b"23456789xx".to_vec() },
            TreeStep::Write { node: 1, at: 0, bytes: b"01".to_vec() },
            TreeStep::Cut { node: 1, size: 10 },
            TreeStep::Mode { node: 1, mode: 0o640 },
            TreeStep::Rename(path("w/x"), path("w/a")),
            TreeStep::MakeDirectory(path("w/e")),
            TreeStep::Link(path("w/a"), path("w/e/b")),
            TreeStep::Rename(path("w/e"), path("w/d")),
            TreeStep::Symlink { target: path("a"), path: path("w/s") },
        ] {
            assert_ne!(model.text(), tree_text(walk(&root, "w").unwrap()));
            model.apply(&step);
        }
        assert_eq!(model.text(), tree_text(walk(&root, "w").unwrap()));
        assert_eq!(ModelTree::default().text(), tree_text(walk(&root, "none").unwrap()));
        fs::remove_dir_all(&root).unwrap();
    }
}
