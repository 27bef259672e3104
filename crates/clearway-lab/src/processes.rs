//! Finds and ends the processes that live in a lab's namespaces, and never any other.
//!
//! # Invariants
//! I1. A process is ended only when its network namespace is one of the lab's AND its environment
//!     carries the lab's mark.

use std::collections::BTreeSet;
use std::fs;
use std::os::unix::fs::MetadataExt;
use std::thread;
use std::time::{Duration, Instant};

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;

/// How long ended processes may take to go; one that hangs in the kernel for longer is reported as
/// left.
const TIMEOUT: Duration = Duration::from_secs(5);
/// How often to look again.
const LOOK: Duration = Duration::from_millis(2);

/// What [`end_all`] found.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct EndedProcesses {
    /// Processes that were ended.
    pub(crate) ended: BTreeSet<i32>,
    /// Processes in the lab's namespaces that do not carry its mark, or did not go.
    pub(crate) left: BTreeSet<i32>,
}

/// Returns the processes whose network namespace is one of `inodes`, each with whether it carries
/// `mark` (`NAME=value`).
fn living(inodes: &BTreeSet<u64>, mark: &str) -> Vec<(i32, EnvironmentMark)> {
    let Ok(entries) = fs::read_dir("/proc") else { return Vec::new() };
    let pids =
        entries.flatten().filter_map(|entry| entry.file_name().to_str()?.parse::<i32>().ok());
    let here = |pid: &i32| {
        fs::metadata(format!("/proc/{pid}/ns/net"))
            .is_ok_and(|namespace| inodes.contains(&namespace.ino()))
    };
    pids.filter(here).map(|pid| (pid, marked(pid, mark))).collect()
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum EnvironmentMark {
    Yes,
    No,
}

fn marked(pid: i32, mark: &str) -> EnvironmentMark {
    let environment = fs::read(format!("/proc/{pid}/environ")).unwrap_or_default();
    match environment.split(|byte| *byte == 0).any(|variable| variable == mark.as_bytes()) {
        true => EnvironmentMark::Yes,
        false => EnvironmentMark::No,
    }
}

/// Returns the processes now in the namespaces `inodes`.
pub(crate) fn list(inodes: &BTreeSet<u64>) -> Vec<i32> {
    living(inodes, "").into_iter().map(|(pid, _)| pid).collect()
}

/// Ends every process in the namespaces `inodes` that carries `mark`, and waits until they are
/// gone.
pub(crate) fn end_all(inodes: &BTreeSet<u64>, mark: &str) -> EndedProcesses {
    let mut all = EndedProcesses::default();
    let deadline = Instant::now() + TIMEOUT;
    loop {
        let living = living(inodes, mark);
        let ours: Vec<i32> = living
            .iter()
            .filter(|(_, m)| *m == EnvironmentMark::Yes)
            .map(|(pid, _)| *pid)
            .collect();
        if ours.is_empty() || Instant::now() >= deadline {
            all.left = living.into_iter().map(|(pid, _)| pid).collect();
            all.ended = all.ended.difference(&all.left).copied().collect();
            return all;
        }
        for pid in ours {
            // A process that has just gone is no error, nor is one that another user owns: it is
            // reported as left.
            let _ = kill(Pid::from_raw(pid), Signal::SIGKILL);
            all.ended.insert(pid);
        }
        thread::sleep(LOOK);
    }
}
