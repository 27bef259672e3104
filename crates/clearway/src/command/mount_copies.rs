//! Finds copies of a mount that was unmounted: in the namespaces of other processes, or under another
//! path.
//!
//! # Source
//! `mountinfo` in proc(5): the third field of a line has the device, the fifth the mount point.

use std::collections::BTreeSet;
use std::fmt;
use std::fs;
use std::path::PathBuf;

/// A place where a file system is still mounted.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct MountCopy {
    process: u32,
    name: String,
    mounted_on: String,
}

impl fmt::Display for MountCopy {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { process, name, mounted_on } = self;
        write!(f, "process {process} ({name}) at {mounted_on}")
    }
}

/// Returns a place where the file system of a device is mounted, as far as this user may see.
pub(super) fn find(device: u64) -> Option<MountCopy> {
    let mut seen = BTreeSet::new();
    let own = std::process::id();
    let listed = fs::read_dir("/proc").into_iter().flatten().flatten();
    let others = listed.filter_map(|entry| entry.file_name().to_str()?.parse::<u32>().ok());
    for process in std::iter::once(own).chain(others) {
        let directory = PathBuf::from(format!("/proc/{process}"));
        let Ok(namespace) = fs::read_link(directory.join("ns/mnt")) else { continue };
        if !seen.insert(namespace) {
            continue;
        }
        let table = fs::read_to_string(directory.join("mountinfo")).unwrap_or_default();
        if let Some(mounted_on) = mount_point(&table, device) {
            let name = fs::read_to_string(directory.join("comm")).unwrap_or_default();
            return Some(MountCopy { process, name: name.trim().to_owned(), mounted_on });
        }
    }
    None
}

/// Returns the first mount point of a device.
fn mount_point(table: &str, device: u64) -> Option<String> {
    let device = format!("{}:{}", rustix::fs::major(device), rustix::fs::minor(device));
    let of_device = |line: &str| {
        let mut fields = line.split(' ').skip(2);
        let is_same = fields.next() == Some(device.as_str());
        fields.nth(1).filter(|_| is_same).map(str::to_owned)
    };
    table.lines().find_map(of_device)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn mount_point__is_the_fifth_field_of_the_line_of_a_device() {
        let table =
            "22 27 0:21 / /proc rw - proc proc rw\n95 27 0:57 / /mnt/ck rw - fuse a:b rw\nx\n";
        assert_eq!(mount_point(table, rustix::fs::makedev(0, 57)).as_deref(), Some("/mnt/ck"));
        assert_eq!(mount_point(table, rustix::fs::makedev(0, 5)), None);
    }
}
