//! Finds mounts in the kernel's table, and ends one whose process does not answer.
//!
//! # Model
//! Every access to a mount whose process is stopped or hangs waits for that process. The table says
//! what is mounted without an access. An abort of the connection between kernel and process fails all
//! requests, those included that wait already.
//!
//! # Source
//! `mountinfo` in proc(5): fields 3 (device) and 5 (mount point), and the type of the file system
//! behind a field `-`. The connections of FUSE (`fuse.rst` of the kernel's documentation): a directory
//! for each, named by the device.

use std::ffi::OsString;
use std::fs;
use std::io::{self, Write};
use std::os::unix::ffi::OsStringExt;
use std::path::{Component, Path, PathBuf};

use rustix::mount::{MountFlags, UnmountFlags};

use crate::FsError;

/// The type of file system of mounts of this program that fusermount3 made, and of those that root
/// made, whose source is LOG:STORE or SERVER:/TREE.
const TYPE: &[u8] = b"fuse.clearway";
const TYPE_OF_ROOT: &[u8] = b"fuse";
/// Where the kernel shows connections, once its file system is mounted there.
const CONNECTIONS: &str = "/sys/fs/fuse/connections";

/// A mount of this program.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TableMount {
    /// The mount point.
    pub point: PathBuf,
    device: (u32, u32),
}

impl TableMount {
    /// Finds the mount that a path lies on, links resolved, without an access to the mount; returns it
    /// and the path on it.
    ///
    /// # Errors
    /// The table cannot be read.
    pub fn find(path: &Path) -> io::Result<Option<(Self, PathBuf)>> {
        let table = fs::read("/proc/self/mountinfo")?;
        let path =
            resolved(&std::path::absolute(path)?, |path| Self::in_table(&table, path).is_some());
        Ok(Self::in_table(&table, &path).map(|mount| (mount, path)))
    }

    fn in_table(table: &[u8], path: &Path) -> Option<Self> {
        let lines = table.split(|byte| *byte == b'\n').filter_map(MountLine::parse);
        let above = lines.filter(|line| path.starts_with(&line.mount.point));
        // Of several on one directory the last one is seen.
        let nearest = above.max_by_key(|line| line.mount.point.as_os_str().len())?;
        nearest.is_own.then_some(nearest.mount)
    }

    /// Fails all requests to its process, now and later.
    ///
    /// # Errors
    /// One sentence: a permission or a file system of the kernel is missing.
    pub fn abort(&self) -> Result<(), FsError> {
        let (major, minor) = self.device;
        let number = major << 20 | minor;
        let connection = Path::new(CONNECTIONS).join(number.to_string());
        let flags = MountFlags::NOSUID | MountFlags::NODEV | MountFlags::NOEXEC;
        // Without the privilege, or the right directory, it is still missing.
        let has_mounted = !connection.exists()
            && rustix::mount::mount("none", CONNECTIONS, "fusectl", flags, None).is_ok();
        let opened = fs::OpenOptions::new().write(true).open(connection.join("abort"));
        let aborted = opened.and_then(|mut file| file.write_all(b"1"));
        if has_mounted {
            // As it was before; a process that looks there meanwhile keeps it.
            let _ = rustix::mount::unmount(CONNECTIONS, UnmountFlags::DETACH);
        }
        let point = self.point.display();
        aborted.map_err(|why| {
            let is_root = rustix::process::geteuid().is_root();
            FsError::Refused(match why.kind() {
                io::ErrorKind::NotFound if !is_root => format!(
                    "the process of the mount on {point} does not answer; repeat the command as root"
                ),
                io::ErrorKind::PermissionDenied => format!(
                    "the process of the mount on {point} does not answer, and only root and the user of the mount can end the mount without it; repeat the command as one of them"
                ),
                io::ErrorKind::NotFound => format!(
                    "the process of the mount on {point} does not answer, and the kernel shows no connection {number} in {CONNECTIONS}; repeat the command after `mount -t fusectl none {CONNECTIONS}`"
                ),
                _ => format!(
                    "the process of the mount on {point} does not answer, and the kernel does not abort its connection: {why}; end that process"
                ),
            })
        })
    }
}

/// A line of the table.
struct MountLine {
    mount: TableMount,
    is_own: bool,
}

impl MountLine {
    fn parse(line: &[u8]) -> Option<Self> {
        let fields: Vec<&[u8]> = line.split(|byte| *byte == b' ').collect();
        let text = |field: &[u8]| std::str::from_utf8(field).ok().map(str::to_owned);
        let device = text(fields.get(2)?)?;
        let (major, minor) = device.split_once(':')?;
        let device = (major.parse().ok()?, minor.parse().ok()?);
        let end = fields.iter().position(|field| *field == b"-")?;
        let (kind, source) = (*fields.get(end + 1)?, *fields.get(end + 2)?);
        let is_own = kind == TYPE || kind == TYPE_OF_ROOT && source.contains(&b':');
        let point = OsString::from_vec(unescaped(fields.get(4)?)).into();
        Some(Self { mount: TableMount { point, device }, is_own })
    }
}

/// Returns a field of the table without the octal escapes of blanks and backslashes.
fn unescaped(field: &[u8]) -> Vec<u8> {
    let mut bytes = Vec::with_capacity(field.len());
    let mut rest = field;
    while let Some((first, behind)) = rest.split_first() {
        let digits = behind.get(..3).filter(|_| *first == b'\\');
        let escaped =
            digits.and_then(|digits| u8::from_str_radix(std::str::from_utf8(digits).ok()?, 8).ok());
        bytes.push(escaped.unwrap_or(*first));
        rest = if escaped.is_some() { behind.get(3..).unwrap_or_default() } else { behind };
    }
    bytes
}

/// Links that a path may have, as the kernel allows them.
const LINKS_MAX: usize = 40;

/// Returns an absolute path without `..` and links. Behind a directory that `is_mount` names, nothing is
/// looked at.
fn resolved(path: &Path, is_mount: impl Fn(&Path) -> bool) -> PathBuf {
    let mut done = PathBuf::from("/");
    let mut rest: Vec<OsString> = parts(path);
    let mut links = 0;
    while let Some(name) = rest.pop() {
        if name == ".." {
            done.pop();
            continue;
        }
        done.push(name);
        if is_mount(&done) {
            continue;
        }
        if let Ok(target) = fs::read_link(&done)
            && links < LINKS_MAX
        {
            links += 1;
            done.pop();
            if target.is_absolute() {
                done = PathBuf::from("/");
            }
            rest.extend(parts(&target));
        }
    }
    done
}

/// Returns the names of a path, the last one first.
fn parts(path: &Path) -> Vec<OsString> {
    let named = |component| match component {
        Component::Normal(name) => Some(name.to_owned()),
        Component::ParentDir => Some("..".into()),
        Component::CurDir | Component::RootDir | Component::Prefix(_) => None,
    };
    path.components().rev().filter_map(named).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn in_table__the_nearest_mount_counts_if_it_is_one_of_this_program() {
        let table = b"22 1 8:1 / / rw - ext4 /dev/a rw\n\
            90 22 0:57 / /mnt/ck rw,nosuid shared:5 - fuse.clearway a:b rw\n\
            94 22 0:61 / /mnt/other rw - fuse.sshfs a:b rw\n\
            91 22 0:58 / /mnt/a\\040b rw - fuse.clearway a:b rw\n\
            92 90 0:59 / /mnt/ck/inner rw - tmpfs none rw\n\
            93 22 0:60 / /mnt/ck rw - fuse c:d rw\nnonsense\n";
        let find = |path: &str| TableMount::in_table(table, Path::new(path));
        let mount = |point: &str, minor| {
            Some(TableMount { point: PathBuf::from(point), device: (0, minor) })
        };
        assert_eq!(find("/mnt/ck"), mount("/mnt/ck", 60), "the last one");
        assert_eq!(find("/mnt/ck/below/it"), mount("/mnt/ck", 60));
        assert_eq!(find("/mnt/a b"), mount("/mnt/a b", 58));
        assert_eq!(find("/mnt/ck/inner/x"), None);
        assert_eq!((find("/mnt/ckk"), find("/mnt/other")), (None, None));
        assert_eq!(find("/mnt"), None);
    }

    #[test]
    fn resolved__follows_links_up_to_a_mount_and_looks_at_nothing_on_it() {
        let name = format!("clearway-links-{}", std::process::id());
        let place = fs::canonicalize(std::env::temp_dir()).expect("a directory").join(name);
        fs::create_dir_all(place.join("mnt/ck")).expect("made");
        let link = |target: &str, name: &str| {
            std::os::unix::fs::symlink(target, place.join(name)).expect("a link");
        };
        link("mnt/ck", "link");
        link("../link", "mnt/up");
        link("loop", "loop");
        // On the mount, where nobody may look.
        link("/nowhere", "mnt/ck/inner");
        let mount = place.join("mnt/ck");
        let resolve = |path: &str| resolved(&place.join(path), |path| path.starts_with(&mount));
        for (path, expected) in [
            ("link", "mnt/ck"),
            ("mnt/up", "mnt/ck"),
            ("mnt/../mnt/./ck/../ck", "mnt/ck"),
            ("link/inner/x", "mnt/ck/inner/x"),
            ("missing/x", "missing/x"),
            ("loop", "loop"),
        ] {
            assert_eq!(resolve(path), place.join(expected), "{path}");
        }
        fs::remove_dir_all(&place).expect("removed");
        assert_eq!(resolved(Path::new("/../a"), |_| true), Path::new("/a"));
    }
}
