//! Ends what descends from this process, a subreaper: all of it is among its children sooner or
//! later.
//!
//! # Source
//! prctl(2), `PR_SET_CHILD_SUBREAPER`; `proc_pid_stat(5)`; setpriority(2).

use std::collections::BTreeSet;
use std::fs;
use std::thread;
use std::time::{Duration, Instant};

use nix::sys::signal::{Signal, kill, killpg};
use nix::sys::wait::{WaitPidFlag, WaitStatus, waitpid};
use nix::unistd::{Pid, getpgid, getpgrp};
use rustix::process::{getpriority_process, setpriority_pgrp};

/// How long processes may take to end when they are asked to, and when they are killed: `mpirun`
/// gives its ranks a second.
const GRACE: Duration = Duration::from_secs(3);
/// The first and the longest pause between two scans of the table of processes: a scan takes a
/// millisecond.
const PAUSE_FIRST: Duration = Duration::from_millis(1);
const PAUSE_MAX: Duration = Duration::from_millis(16);

/// Asks the groups of all children to end, once each, and waits until none is left, but not
/// forever.
pub(crate) fn ask_to_end() {
    let mut asked = BTreeSet::from([getpgrp()]);
    until_none_is_left(|child| {
        let group = getpgid(Some(child)).unwrap_or_else(|_| getpgrp());
        adopt_priority(group);
        if asked.insert(group) {
            // A stopped process hears nothing until it goes on.
            for signal in [Signal::SIGTERM, Signal::SIGCONT] {
                let _ = killpg(group, signal);
            }
        }
    });
}

/// Kills all children, those that become children by that, and so on.
pub(crate) fn kill_all() {
    until_none_is_left(|child| {
        if let Ok(group) = getpgid(Some(child)) {
            adopt_priority(group);
        }
        let _ = kill(child, Signal::SIGKILL);
    });
}

/// Gives the processes of `group` the priority of this one: on a busy machine a nice process gets no
/// processor to end with. Only root may raise a priority.
fn adopt_priority(group: Pid) {
    let group = rustix::process::Pid::from_raw(group.as_raw());
    if let Ok(own) = getpriority_process(None) {
        let _ = setpriority_pgrp(group, own);
    }
}

/// Does `what` to every child, again and again, until there is none or [`GRACE`] is over.
fn until_none_is_left(mut what: impl FnMut(Pid)) {
    let until = Instant::now() + GRACE;
    let mut pause = PAUSE_FIRST;
    loop {
        let children = children();
        if children.is_empty() || Instant::now() >= until {
            return;
        }
        children.into_iter().for_each(&mut what);
        reap();
        thread::sleep(pause);
        pause = PAUSE_MAX.min(pause * 2);
    }
}

/// Sees to all children that have ended.
fn reap() {
    while !matches!(waitpid(None, Some(WaitPidFlag::WNOHANG)), Ok(WaitStatus::StillAlive) | Err(_))
    {
    }
}

/// Returns the children of this process, by the table of all.
fn children() -> Vec<Pid> {
    let own = std::process::id();
    let is_child = |pid: &i32| {
        // Not `stat`: reading that waits for a process that is about to run another program, and such
        // a process may itself wait, for the server of a file that it closes.
        let status = fs::read_to_string(format!("/proc/{pid}/status")).unwrap_or_default();
        let parent =
            status.lines().find_map(|line| line.strip_prefix("PPid:")?.trim().parse().ok());
        parent == Some(own)
    };
    let Ok(table) = fs::read_dir("/proc") else { return Vec::new() };
    let pids = table.flatten().filter_map(|entry| entry.file_name().to_str()?.parse().ok());
    pids.filter(is_child).map(Pid::from_raw).collect()
}
