//! Keeps a lab alive beyond the command that made it: one detached process holds it, others find it
//! by name.
//!
//! # Model
//! `lab up` starts a keeper process, which makes the lab, writes a state file and then sleeps for
//! good. Every other command reads that file and reaches the namespaces through the keeper's
//! descriptors in `/proc`. The keeper answers no questions and handles no signals: ending it, in
//! whatever way, ends the lab.
//!
//! # Invariants
//! I1. At most one living keeper per user and name.
//! I2. `down` ends processes only by the rule of the lab: its namespaces and its mark.
//!
//! # Not here
//! The flags and the hidden subcommand: the binary passes its own command line to [`start`] and
//! calls [`run`] in it.

mod names;
mod state;

pub use state::{KeptLab, KeptNamespace, Process};

use std::collections::BTreeSet;
use std::convert::Infallible;
use std::fs::File;
use std::io::{self, BufRead, BufReader, Write};
use std::os::unix::fs::MetadataExt;
use std::process::{Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use nix::errno::Errno;
use nix::sched::{CloneFlags, setns};
use nix::sys::signal::{Signal, kill};
use nix::unistd::{Pid, chdir, setsid};
use serde::Serialize;

use crate::lab::{LAB_VARIABLE, Lab, find_host};
use crate::processes;
use crate::{LabError, LabName, LabSpec};
use state::StateDirectory;

/// What a keeper says on its standard output once the lab is up; anything else is the sentence of
/// its failure.
const READY: &str = "ready";
/// How long a killed keeper may take to go; freeing a large lab is the kernel's work and may take a
/// moment.
const TIMEOUT: Duration = Duration::from_secs(10);

/// A lab as [`status`] sees it.
#[derive(Clone, Debug, Serialize)]
pub struct LabStatus {
    /// What the state file says.
    pub state: KeptLab,
    /// Whether the keeper lives; if not, only the file is left, and `down` or the next `up` of this
    /// name removes it.
    pub up: bool,
    /// Processes that live in the lab's namespaces now.
    pub inhabitants: Vec<i32>,
}

/// What [`down`] did.
#[derive(Clone, Debug, Default, Serialize)]
pub struct RemovalResult {
    /// Processes that lived in the lab and were ended.
    pub ended: Vec<i32>,
    /// Processes in the lab's namespaces that are not marked as the lab's own, or did not go: they
    /// were left alone and keep their namespace alive.
    pub left: Vec<i32>,
}

/// Starts `command`, which must end up in [`run`], as a detached process, and waits until its lab
/// is up.
///
/// # Errors
/// [`LabError::Keeper`] with the sentence that the keeper failed with.
pub fn start(mut command: Command) -> Result<(), LabError> {
    command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::null());
    let failed = |error: io::Error| {
        LabError::Keeper(format!("the lab's keeper could not be started: {error}"))
    };
    let mut child = command.spawn().map_err(failed)?;
    let mut answer = String::new();
    let read =
        child.stdout.take().map_or(Ok(0), |pipe| BufReader::new(pipe).read_line(&mut answer));
    if read.is_ok() && answer.trim_end() == READY {
        return Ok(());
    }
    let ended = child.wait().map_err(failed)?;
    Err(LabError::Keeper(match answer.trim() {
        "" => format!("the lab's keeper ended without a word ({ended})"),
        sentence => sentence.to_owned(),
    }))
}

/// Makes the lab, tells `ready`, and keeps it until this process is ended. Call
/// [`crate::permission::acquire`] first.
///
/// # Errors
/// As [`Lab::up`], and [`LabError::Exists`]; the sentence is written to `ready` too. Success never
/// returns.
pub fn run(name: &LabName, spec: &LabSpec, mut ready: impl Write) -> Result<Infallible, LabError> {
    // A process that leads its group already cannot, and need not, leave the session.
    let _ = setsid();
    let _ = chdir("/");
    let lab = keep(name, spec).inspect_err(|error| {
        let _ = writeln!(ready, "{error}");
    })?;
    let reported = writeln!(ready, "{READY}").and_then(|()| ready.flush());
    reported.map_err(|error| {
        LabError::Keeper(format!("nobody waits for the lab {}: {error}", lab.name()))
    })?;
    loop {
        thread::park();
    }
}

fn keep(name: &LabName, spec: &LabSpec) -> Result<Lab, LabError> {
    let store = StateDirectory::open()?;
    if store.read(name)?.is_some_and(|state| state.keeper.lives()) {
        return Err(LabError::Exists(name.to_string()));
    }
    let lab = Lab::up(name, spec)?;
    let pid = std::process::id() as i32;
    let keeper = Process::find(pid)
        .ok_or_else(|| LabError::Keeper("/proc does not show this process".into()))?;
    let space = |netns: &crate::netns::Netns| KeptNamespace {
        path: format!("/proc/{pid}/fd/{}", netns.fd()).into(),
        inode: netns.inode(),
    };
    let spaces = lab.spaces().iter().map(space).collect();
    store.claim(&KeptLab::new(name.clone(), keeper, *spec, lab.hosts().to_vec(), spaces))?;
    Ok(lab)
}

/// Moves the calling process, which must be single-threaded, into a host of a kept lab.
///
/// The caller then replaces itself by the user's command, with [`crate::LAB_VARIABLE`] and
/// [`crate::HOST_VARIABLE`] set.
///
/// # Errors
/// [`LabError::NotUp`], [`LabError::NoSuchHost`], or the kernel's refusal.
pub fn enter(name: &LabName, host: &str) -> Result<(), LabError> {
    let state = living(name)?;
    let rank = find_host(&state.hosts, host)?.rank;
    let space = state.spaces.get(rank.index()).ok_or_else(|| LabError::NotUp(name.to_string()))?;
    let file = open(name, space)?;
    enter_user_namespace(&state)?;
    setns(&file, CloneFlags::CLONE_NEWNET).map_err(|errno| {
        LabError::kernel(format!("enter host {host} of the lab {name}"), errno.into())
    })
}

/// Lets the calling process, which [`enter`] has moved into a host, find all hosts of the lab by
/// their names (`h0`, `h1` and so on; on further rails `h0-1`). It gets mounts of its own for that:
/// what it mounts is not seen outside.
///
/// # Errors
/// [`LabError::NotUp`] or the kernel's refusal.
pub fn name_hosts(name: &LabName) -> Result<(), LabError> {
    names::give(&living(name)?)
}

/// Takes hold of a kept lab, to run a program on it or look at its counters. The process must be
/// single-threaded.
///
/// The lab outlives the value; queues that are re-armed stay so, while the state file goes on
/// telling how they began. Without root do not call [`crate::permission::acquire`] before: the
/// keeper's user namespace is entered instead.
///
/// # Errors
/// [`LabError::NotUp`] or the kernel's refusal.
pub fn attach(name: &LabName) -> Result<Lab, LabError> {
    let state = living(name)?;
    let files: Result<Vec<File>, LabError> =
        state.spaces.iter().map(|space| open(name, space)).collect();
    let files = files?;
    enter_user_namespace(&state)?;
    Lab::attach(name, &state.spec, files)
}

/// Returns the state of the lab `name`.
///
/// # Errors
/// [`LabError::NotUp`] when there is not even a state file.
pub fn status(name: &LabName) -> Result<LabStatus, LabError> {
    let state =
        StateDirectory::open()?.read(name)?.ok_or_else(|| LabError::NotUp(name.to_string()))?;
    Ok(LabStatus { up: state.keeper.lives(), inhabitants: processes::list(&inodes(&state)), state })
}

/// Returns the states of all labs of this user, by name.
///
/// # Errors
/// [`LabError::State`] when a state file cannot be read.
pub fn list() -> Result<Vec<LabStatus>, LabError> {
    StateDirectory::open()?.names()?.iter().map(status).collect()
}

/// Ends the lab `name` and everything that lives in it, and waits until it is gone. Cleans up after
/// a dead keeper too.
///
/// # Errors
/// [`LabError::NotUp`] when there is not even a state file; [`LabError::Keeper`] when the keeper
/// does not go.
pub fn down(name: &LabName) -> Result<RemovalResult, LabError> {
    let store = StateDirectory::open()?;
    let state = store.read(name)?.ok_or_else(|| LabError::NotUp(name.to_string()))?;
    let (inodes, mark) = (inodes(&state), format!("{LAB_VARIABLE}={name}"));
    // First the inhabitants: while the keeper lives, the namespaces' numbers cannot belong to
    // anyone else.
    let before = processes::end_all(&inodes, &mark);
    end_keeper(&state)?;
    // Then those who slipped in meanwhile: a namespace that someone lives in keeps its number.
    let after = processes::end_all(&inodes, &mark);
    store.remove(&state)?;
    Ok(RemovalResult {
        ended: before.ended.union(&after.ended).copied().collect(),
        left: after.left.into_iter().collect(),
    })
}

fn end_keeper(state: &KeptLab) -> Result<(), LabError> {
    let deadline = Instant::now() + TIMEOUT;
    let pid = state.keeper.pid;
    let stuck = |why: String| {
        LabError::Keeper(format!("the keeper of the lab {} (process {pid}) {why}", state.name))
    };
    while state.keeper.lives() {
        match kill(Pid::from_raw(pid), Signal::SIGKILL) {
            Ok(()) | Err(Errno::ESRCH) => {}
            Err(errno) => return Err(stuck(format!("cannot be ended: {errno}"))),
        }
        if Instant::now() >= deadline {
            return Err(stuck("does not go".into()));
        }
        thread::sleep(Duration::from_millis(1));
    }
    Ok(())
}

fn living(name: &LabName) -> Result<KeptLab, LabError> {
    let state = StateDirectory::open()?.read(name)?.filter(|state| state.keeper.lives());
    state.ok_or_else(|| LabError::NotUp(name.to_string()))
}

/// Opens a namespace of a kept lab, and makes sure it is the one that the state file means.
fn open(name: &LabName, space: &KeptNamespace) -> Result<File, LabError> {
    let failed = |cause| LabError::State { path: space.path.clone(), cause };
    let file = File::open(&space.path).map_err(failed)?;
    match file.metadata().map_err(failed)?.ino() == space.inode {
        true => Ok(file),
        false => Err(LabError::NotUp(name.to_string())),
    }
}

/// Joins the keeper's user namespace when it is not this process's own.
fn enter_user_namespace(state: &KeptLab) -> Result<(), LabError> {
    let path = |of: &str| format!("/proc/{of}/ns/user");
    let theirs = path(&state.keeper.pid.to_string());
    let failed = |path: String| move |cause| LabError::State { path: path.into(), cause };
    let file = File::open(&theirs).map_err(failed(theirs.clone()))?;
    let own = std::fs::metadata(path("self")).map_err(failed(path("self")))?;
    if file.metadata().map_err(failed(theirs))?.ino() == own.ino() {
        return Ok(());
    }
    setns(&file, CloneFlags::CLONE_NEWUSER).map_err(|errno| {
        LabError::kernel(
            format!("enter the user namespace of the lab {}", state.name),
            errno.into(),
        )
    })
}

fn inodes(state: &KeptLab) -> BTreeSet<u64> {
    state.spaces.iter().map(|space| space.inode).collect()
}
