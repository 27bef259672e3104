//! Archives whose bytes depend only on names, contents and one time: tar as in POSIX (ustar), and
//! ar as `dpkg` reads it.
//!
//! # Invariants
//! I1. Entries are in the order of their names, belong to root, and have the given time.
//! I2. Permissions are 0755 for directories and what may be executed, 0644 for other files.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, bail, ensure};

/// The unit in which tar counts.
const BLOCK: usize = 512;
/// The unit in which tar programs write: 20 blocks.
const RECORD: usize = 20 * BLOCK;
/// Longest name without, and longest first part of one with, a prefix (POSIX).
const NAME_MAX: usize = 100;
const PREFIX_MAX: usize = 155;

/// What an entry of a tree is.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) enum Body {
    /// A directory.
    Directory,
    /// A file: whether it may be executed is in its mode.
    File { bytes: Vec<u8>, mode: u32 },
    /// A symbolic link.
    Link(String),
}

/// One entry of a tree, with its path from the root of the tree.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) struct TreeEntry {
    pub(super) path: String,
    pub(super) body: Body,
}

/// Reads the tree below `root`, directories before what is in them, sorted.
pub(super) fn read_tree(root: &Path) -> Result<Vec<TreeEntry>> {
    let mut entries = Vec::new();
    read_below(root, "", &mut entries)?;
    entries.sort_by(|a, b| a.path.cmp(&b.path));
    Ok(entries)
}

fn read_below(directory: &Path, path: &str, entries: &mut Vec<TreeEntry>) -> Result<()> {
    for entry in fs::read_dir(directory).with_context(|| directory.display().to_string())? {
        let place = entry?.path();
        let name = place.file_name().unwrap_or_default().to_string_lossy();
        let path = if path.is_empty() { name.into_owned() } else { format!("{path}/{name}") };
        let metadata = fs::symlink_metadata(&place)?;
        let body = if metadata.is_dir() {
            read_below(&place, &path, entries)?;
            Body::Directory
        } else if metadata.is_symlink() {
            Body::Link(fs::read_link(&place)?.to_string_lossy().into_owned())
        } else {
            let executed = metadata.permissions().mode() & 0o111 != 0;
            let mode = if executed { 0o755 } else { 0o644 };
            Body::File { bytes: fs::read(&place)?, mode }
        };
        entries.push(TreeEntry { path, body });
    }
    Ok(())
}

/// Returns `entries` as a tar archive below the directory `root` (`.` for Debian's).
pub(super) fn tar(root: &str, entries: &[TreeEntry], time: u64) -> Result<Vec<u8>> {
    let mut archive = Vec::new();
    archive.extend(tar_header(&format!("{root}/"), &Body::Directory, time)?);
    for entry in entries {
        let end = if entry.body == Body::Directory { "/" } else { "" };
        archive.extend(tar_header(&format!("{root}/{}{end}", entry.path), &entry.body, time)?);
        if let Body::File { bytes, .. } = &entry.body {
            archive.extend_from_slice(bytes);
            archive.resize(archive.len().next_multiple_of(BLOCK), 0);
        }
    }
    // Two empty blocks end an archive; programs fill the record.
    archive.resize((archive.len() + 2 * BLOCK).next_multiple_of(RECORD), 0);
    Ok(archive)
}

fn tar_header(name: &str, body: &Body, time: u64) -> Result<[u8; BLOCK]> {
    let (prefix, short) = split_name(name)?;
    let (kind, mode, size, link) = match body {
        Body::Directory => (b'5', 0o755, 0, ""),
        Body::File { bytes, mode } => (b'0', *mode, bytes.len(), ""),
        Body::Link(target) => (b'2', 0o777, 0, target.as_str()),
    };
    ensure!(link.len() <= NAME_MAX, "the link {name} leads to a path that is too long for tar");
    let mut header = [0; BLOCK];
    let mut put = |at: usize, bytes: &[u8]| {
        if let Some(field) = header.get_mut(at..at + bytes.len()) {
            field.copy_from_slice(bytes);
        }
    };
    put(0, short.as_bytes());
    put(100, format!("{mode:07o}\0{:07o}\0{:07o}\0", 0, 0).as_bytes());
    put(124, format!("{size:011o}\0{time:011o}\0").as_bytes());
    // The sum counts its own field as blanks.
    put(148, b"        ");
    put(156, &[kind]);
    put(157, link.as_bytes());
    put(257, b"ustar\x0000root\0");
    put(297, b"root\0");
    put(345, prefix.as_bytes());
    let sum: u32 = header.iter().map(|byte| u32::from(*byte)).sum();
    if let Some(field) = header.get_mut(148..156) {
        field.copy_from_slice(format!("{sum:06o}\0 ").as_bytes());
    }
    Ok(header)
}

/// Splits a name at a slash so that both parts fit their fields.
fn split_name(name: &str) -> Result<(&str, &str)> {
    if name.len() <= NAME_MAX {
        return Ok(("", name));
    }
    let fits = |(at, _): &(usize, &str)| *at <= PREFIX_MAX && name.len() - at - 1 <= NAME_MAX;
    // A slash at the end would leave an empty name.
    let inner = name.match_indices('/').filter(|(at, _)| at + 1 < name.len());
    match inner.rev().find(fits).and_then(|(at, _)| name.split_at_checked(at)) {
        Some((prefix, rest)) => Ok((prefix, rest.strip_prefix('/').unwrap_or(rest))),
        None => bail!("the path {name} is too long for tar"),
    }
}

/// Returns an ar archive of `members`, in this order.
pub(super) fn ar(members: &[(&str, &[u8])], time: u64) -> Result<Vec<u8>> {
    let mut archive = b"!<arch>\n".to_vec();
    for (name, bytes) in members {
        ensure!(name.len() <= 16, "the name {name} is too long for ar");
        let size = bytes.len();
        archive.extend(format!("{name:<16}{time:<12}0     0     100644  {size:<10}`\n").bytes());
        archive.extend_from_slice(bytes);
        if size % 2 == 1 {
            archive.push(b'\n');
        }
    }
    Ok(archive)
}

/// Compresses by gzip, without a name or a time; `scratch` is a directory for a file. Level 9 takes
/// 2.6 times as long for 1 % (an archive of 71 MB).
pub(super) fn gzip(bytes: &[u8], scratch: &Path) -> Result<Vec<u8>> {
    let file: PathBuf = scratch.join("to-compress");
    fs::write(&file, bytes)?;
    let made = Command::new("gzip").arg("-6nc").arg(&file).output();
    fs::remove_file(&file)?;
    let made = made.context("gzip is needed to compress packages")?;
    ensure!(made.status.success(), "gzip failed: {}", String::from_utf8_lossy(&made.stderr));
    Ok(made.stdout)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn file(path: &str, bytes: &[u8]) -> TreeEntry {
        let body = Body::File { bytes: bytes.to_vec(), mode: 0o644 };
        TreeEntry { path: path.to_owned(), body }
    }

    /// The bytes of a field.
    fn field(archive: &[u8], at: usize, long: usize) -> &[u8] {
        archive.get(at..at + long).expect("a field")
    }

    #[test]
    fn tar__has_the_fields_of_posix() {
        let link = TreeEntry { path: "b".to_owned(), body: Body::Link("a".to_owned()) };
        let archive = tar(".", &[file("a", b"xyz"), link], 0o17).expect("an archive");
        assert_eq!(archive.len(), RECORD);
        assert_eq!(field(&archive, 0, 3), b"./\0");
        assert_eq!(field(&archive, 156, 1), b"5");
        assert_eq!(field(&archive, 512, 4), b"./a\0");
        assert_eq!(field(&archive, 512 + 100, 24), b"0000644\x000000000\x000000000\0");
        assert_eq!(field(&archive, 512 + 124, 24), b"00000000003\x0000000000017\0");
        assert_eq!(field(&archive, 512 + 257, 13), b"ustar\x0000root\0");
        assert_eq!(field(&archive, 1024, 4), b"xyz\0");
        assert_eq!(field(&archive, 1536 + 156, 3), b"2a\0");
        // The sum of a header, its own field counted as blanks.
        let header = field(&archive, 512, 512);
        let sum: u32 = header
            .iter()
            .enumerate()
            .map(|(at, byte)| if (148..156).contains(&at) { 32 } else { u32::from(*byte) })
            .sum();
        assert_eq!(field(header, 148, 8), format!("{sum:06o}\0 ").as_bytes());
    }

    #[test]
    fn split_name__long_paths_are_cut_at_a_slash() {
        let long = format!("{}/{}", "d".repeat(90), "f".repeat(90));
        assert_eq!(split_name(&long).expect("fits"), (&*"d".repeat(90), &*"f".repeat(90)));
        assert!(split_name(&"f".repeat(101)).is_err());
        assert!(split_name(&format!("{}/", "f".repeat(100))).is_err());
        assert_eq!(split_name(&"f".repeat(100)).expect("fits").0, "");
    }

    #[test]
    fn ar__pads_odd_members() {
        let archive = ar(&[("debian-binary", b"2.0"), ("x", b"ab")], 9).expect("an archive");
        let expected: &[u8] = b"!<arch>\n\
            debian-binary   9           0     0     100644  3         `\n2.0\n\
            x               9           0     0     100644  2         `\nab";
        assert_eq!(archive, expected);
        assert!(ar(&[("a-name-of-17-bytes", b"")], 0).is_err());
    }

    #[test]
    fn read_tree__is_sorted_and_drops_what_an_umask_left() {
        let root = std::env::temp_dir().join(format!("clearway-tree-{}", std::process::id()));
        fs::create_dir_all(root.join("b")).expect("a directory");
        for (name, mode) in [("b/z", 0o600), ("a", 0o700)] {
            fs::write(root.join(name), b"1").expect("a file");
            fs::set_permissions(root.join(name), fs::Permissions::from_mode(mode)).expect("a mode");
        }
        let entries = read_tree(&root).expect("a tree");
        fs::remove_dir_all(root).expect("removed");
        let shown: Vec<(&str, u32)> = entries
            .iter()
            .map(|entry| match &entry.body {
                Body::File { mode, .. } => (entry.path.as_str(), *mode),
                _ => (entry.path.as_str(), 0),
            })
            .collect();
        assert_eq!(shown, [("a", 0o755), ("b", 0), ("b/z", 0o644)]);
    }
}
