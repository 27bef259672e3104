//! The processes of this machine, by which tests find those of their runs.

use std::fs;
use std::time::{Duration, Instant};

use nix::unistd::Pid;

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

/// Looks with `look` until what it finds `is_so`, which is `what` and comes within `timeout`.
pub(crate) fn wait_until(
    what: &str,
    timeout: Duration,
    look: impl Fn() -> Vec<FoundProcess>,
    is_so: impl Fn(&[FoundProcess]) -> bool,
) -> Vec<FoundProcess> {
    let until = Instant::now() + timeout;
    loop {
        let found = look();
        if is_so(&found) {
            return found;
        }
        assert!(Instant::now() < until, "not so: {what}: {found:?}");
        std::thread::yield_now();
    }
}
