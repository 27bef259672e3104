//! The processes of this machine, by which tests find those of their runs.

use std::fs;

use nix::unistd::Pid;

use crate::waiting::comes;

/// One that was there when it was looked for.
#[derive(Clone, Debug)]
pub(crate) struct FoundProcess {
    pub(crate) pid: Pid,
    /// Its arguments, separated by spaces.
    pub(crate) line: String,
}

/// All that there are.
pub(crate) fn all() -> impl Iterator<Item = FoundProcess> {
    let table = fs::read_dir("/proc").expect("processes").flatten();
    let pids = table.filter_map(|entry| entry.file_name().to_str()?.parse().ok());
    pids.map(|pid| {
        let line = fs::read(format!("/proc/{pid}/cmdline")).unwrap_or_default();
        FoundProcess {
            pid: Pid::from_raw(pid),
            line: String::from_utf8_lossy(&line).replace('\0', " "),
        }
    })
}

/// Looks with `look` until what it finds `is_so`, which is `what`.
pub(crate) fn wait_until(
    what: &str,
    look: impl Fn() -> Vec<FoundProcess>,
    is_so: impl Fn(&[FoundProcess]) -> bool,
) -> Vec<FoundProcess> {
    let mut found = Vec::new();
    let came = comes(|| {
        found = look();
        is_so(&found)
    });
    assert!(came, "not so: {what}: {found:?}");
    found
}
