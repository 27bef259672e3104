//! Fabric files: one file, and what it extends, becomes one checked [`FabricSpec`].
//!
//! # Model
//! `extends` names a shipped fabric or another file (relative to the file that says so); the file's
//! own keys are laid over it. A file has *policies*, each a map of classes to lanes and the
//! arbitration that goes with it; the first is taken unless `default-policy` or the caller names
//! another.
//!
//! # Invariants
//! I1. A specification that is returned has passed [`FabricSpec::check`].
//! I2. Whatever the text, the answer is a value or one sentence; no more is read than a bounded
//!     number of bytes and files.

use std::fs;
use std::io::Read;
use std::path::Path;

use super::figure::Figure;
use super::tree::{self, SpecNode};
use super::{FabricSpec, presets, read, size};
use crate::routing::{DeadlockProof, prove_deadlock_free};
use crate::topology::{self, RoutedGraph, TopologyError};

/// The only format there is.
pub(super) const FORMAT: i64 = 1;
/// An explicit graph of 100,000 cables fits; anything larger is somebody's log file.
const FILE_BYTES_MAX: u64 = 16 << 20;
/// Files that extend each other at most.
const CHAIN_MAX: usize = 8;

/// What is wrong with a fabric file: one sentence with the file and the line.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum FileError {
    /// There is no such file or fabric, or it cannot be read as text.
    #[error("{file}: {why}")]
    Unreadable {
        /// What was asked for.
        file: String,
        /// Why it cannot be had, and what could.
        why: String,
    },
    /// Something in it is wrong.
    #[error("{file}: line {line}: {why}")]
    Wrong {
        /// The file.
        file: String,
        /// The line, from 1.
        line: u32,
        /// What is wrong and what would work.
        why: String,
    },
}

/// A fabric with everything its file says about it.
#[derive(Clone, Debug)]
pub struct FabricFile {
    /// The fabric under the chosen policy.
    pub spec: FabricSpec,
    /// Every policy: its name and one sentence.
    pub policies: Vec<(String, String)>,
    /// The chosen one.
    pub policy: String,
    /// Every number, of all policies.
    pub figures: Vec<Figure>,
    root: SpecNode,
}

/// What to take from a file.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct FileOptions<'a> {
    /// The policy; the file's own choice when `None`.
    pub policy: Option<&'a str>,
    /// Hosts at least: the outermost level of the network grows or shrinks to the smallest that has
    /// them.
    pub hosts: Option<u32>,
}

impl FabricFile {
    /// Reads a shipped fabric by its name, or a file by its path.
    ///
    /// # Errors
    /// The first thing that is wrong.
    pub fn open(name_or_path: &str, wanted: FileOptions<'_>) -> Result<Self, FileError> {
        Self::from_tree(load(name_or_path, None, 0)?, wanted)
    }

    /// Reads `text`, which is the file `file` for messages; what it extends is looked up as for a
    /// file here.
    ///
    /// # Errors
    /// The first thing that is wrong.
    pub fn parse(file: &str, text: &str, wanted: FileOptions<'_>) -> Result<Self, FileError> {
        Self::from_tree(extended(tree::parse(file, text)?, 0)?, wanted)
    }

    fn from_tree(root: SpecNode, wanted: FileOptions<'_>) -> Result<Self, FileError> {
        let mut reading = read::read(&root, wanted.policy)?;
        if let Some(hosts) = wanted.hosts {
            let grown = size::resize(&reading.spec.topology, hosts, reading.ports);
            reading.spec.topology = grown.map_err(|why| root.blame("topology").wrong(why))?;
        }
        let spec = &reading.spec;
        let checked = spec.check().and_then(|()| size::check_ports(&spec.topology, reading.ports));
        checked.map_err(|flaw| {
            let key = flaw.key.replacen("policy", &format!("policy.{}", reading.policy), 1);
            root.blame(&key).wrong(format!("{key}: {}", flaw.why))
        })?;
        let read::SpecReader { spec, policies, policy, figures, .. } = reading;
        Ok(Self { spec, policies, policy, figures, root })
    }

    /// Builds the network and proves that its routing is free of deadlock.
    ///
    /// # Errors
    /// Why it cannot be built or deadlocks, with the line of what asks for it.
    ///
    /// # Cost
    /// As [`topology::build`] and [`prove_deadlock_free`]: about a second for the largest.
    pub fn prove(&self) -> Result<(RoutedGraph, DeadlockProof), FileError> {
        let network = topology::build(&self.spec)
            .map_err(|error| self.root.blame(key_of(&error)).wrong(error.to_string()))?;
        let proof = prove_deadlock_free(&network);
        let proof = proof.map_err(|cycle| self.root.blame("routing").wrong(cycle.to_string()))?;
        Ok((network, proof))
    }
}

/// Returns what in a file asks for what cannot be built.
fn key_of(error: &TopologyError) -> &'static str {
    match error {
        TopologyError::Routing { .. } | TopologyError::NoCandidate => "routing",
        TopologyError::NoLink { .. } => "link",
        _ => "topology",
    }
}

/// Returns the tree of a fabric, all that it extends laid under it.
fn load(name: &str, asker: Option<&Path>, depth: usize) -> Result<SpecNode, FileError> {
    if let Some(text) = presets::shipped(name) {
        return extended(tree::parse(&format!("{name}.toml"), text)?, depth);
    }
    let path = asker.and_then(Path::parent).unwrap_or(Path::new("")).join(name);
    let shown = path.display().to_string();
    let text = read_text(&path).map_err(|why| {
        let why = format!(
            "{why}; give a file, or one of the shipped fabrics: {}",
            presets::names().join(", ")
        );
        FileError::Unreadable { file: shown.clone(), why }
    })?;
    extended(tree::parse(&shown, &text)?, depth)
}

/// Lays `root` over what it extends.
fn extended(mut root: SpecNode, depth: usize) -> Result<SpecNode, FileError> {
    let Some(base) = take_extends(&mut root)? else { return Ok(root) };
    let place = root.place.clone();
    if depth + 1 >= CHAIN_MAX {
        return Err(place
            .wrong(format!("more than {CHAIN_MAX} files extend each other; perhaps in a circle")));
    }
    check_format(&root)?;
    let mut under = load(&base, Some(Path::new(&*place.file)), depth + 1)?;
    under.lay(root);
    Ok(under)
}

fn take_extends(root: &mut SpecNode) -> Result<Option<String>, FileError> {
    let tree::Value::Table(entries) = &mut root.value else { return Ok(None) };
    let Some(at) = entries.iter().position(|(key, _)| key == "extends") else { return Ok(None) };
    let (_, node) = entries.remove(at);
    match node.value {
        tree::Value::Text(base) => Ok(Some(base)),
        other => Err(node
            .place
            .wrong(format!("extends: {} where the name of a fabric belongs", other.kind()))),
    }
}

/// Refuses files of another format before anything else of them is judged.
pub(super) fn check_format(root: &SpecNode) -> Result<(), FileError> {
    let Some(node) = root.get("format") else {
        return Err(root.place.wrong(format!(
            "a fabric file begins with `format = {FORMAT}`; this one has no `format`"
        )));
    };
    if node.value == tree::Value::Integer(FORMAT) {
        return Ok(());
    }
    let why =
        format!("this is not a fabric file of format {FORMAT}, the only one this program reads");
    Err(node.place.wrong(why))
}

fn read_text(path: &Path) -> Result<String, String> {
    // Asked before opening: a named pipe would wait for its writer. And a fabric is read more than
    // once.
    if !fs::metadata(path).map_err(|error| error.to_string())?.is_file() {
        return Err("is not a regular file".to_owned());
    }
    let file = fs::File::open(path).map_err(|error| error.to_string())?;
    let mut text = String::new();
    file.take(FILE_BYTES_MAX + 1).read_to_string(&mut text).map_err(|error| error.to_string())?;
    if text.len() as u64 > FILE_BYTES_MAX {
        return Err(format!("larger than {FILE_BYTES_MAX} bytes, which no fabric file is"));
    }
    Ok(text)
}

#[cfg(test)]
mod tests;
