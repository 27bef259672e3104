//! Lets ranks that a site's launcher started find each other: who am I, how many are we, and
//! everybody's few bytes.
//!
//! # Model
//! [`join`] tries, in this order, PMIx, PMI-1, the environment of a Slurm step, the environment
//! that [`start_over_ssh`] or [`start_here`] makes, and at last a job of one rank. A method that
//! the environment does not offer is passed by; one that is offered and fails falls through to the
//! next, with one line in [`Job::notes`] that says why. Whichever it is, a [`Job`] can do three
//! things: an exchange (each rank gives at most 64 KiB and gets everybody's), a barrier, and an
//! end, good or bad.
//!
//! # Invariants
//! I1. A process that a launcher started never takes itself for a job of one rank, unless the
//!     launcher says so.
//! I2. Nothing waits longer than [`JoinOptions::timeout`] for a launcher or a peer.
//! I3. What is inherited from a launcher, and every socket made here, is closed in programs that
//!     this process starts.
//!
//! # Not here
//! What the exchanged bytes mean, and the network that is measured: control goes through the
//! launcher, or over TCP.

mod calls;
mod environment;
mod error;
mod error_output;
mod here;
mod host_start;
pub mod hostfile;
pub mod hostlist;
mod job;
mod munge;
mod placeholder;
mod pmi1;
mod pmix;
mod remote;
mod rendezvous;
mod send;
mod slurm;
mod ssh;
mod ssh_connection;
mod start;
mod started_job;
mod started_ranks;

use std::collections::BTreeMap;
use std::fmt;
use std::path::PathBuf;
use std::time::Duration;

pub use error::LaunchError;
pub use error_output::{escaped, excerpt};
pub use here::{HereOptions, StandardInput, start_here};
pub use job::{Credential, Job, ProgramShare};
pub use remote::{ExitReason, RemoteProcess, quoted, ssh_command};
pub use send::RemoteInput;
pub(crate) use send::send_all;
pub use ssh_connection::SshConnection;
pub use start::{SshOptions, start_apart_over_ssh, start_over_ssh};
pub use started_job::StartedJob;

use environment::Environment;
use job::JobLink;
use placeholder::PlaceholderShell;
use rendezvous::frame::MemberKey;

/// Most bytes that one rank gives to an exchange: enough for the addresses and keys of one rank,
/// and a bound for peers.
pub const EXCHANGE_MAX: usize = 64 * 1024;

/// Most ranks of a job: far beyond any site, and a bound for what a launcher may claim.
pub const RANKS_MAX: u32 = 1 << 20;

/// What [`join`] may use, and how long it waits.
#[derive(Clone, Debug)]
pub struct JoinOptions {
    /// These variables instead of the process environment, for tests.
    pub variables: Option<BTreeMap<String, String>>,
    /// The longest wait for a launcher's answer, or for the last rank to come.
    pub timeout: Duration,
    /// This PMIx library instead of the `libpmix.so.2` that the loader finds.
    pub pmix_library: Option<PathBuf>,
    /// The way in which this process ends with its job.
    pub ending: JobEndAction,
    /// The user of the launcher's own ways of meeting.
    pub launcher: LauncherUse,
}

/// Says who meets by the launcher's own ways: each rank can do so once.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum LauncherUse {
    /// This process.
    #[default]
    Own,
    /// A program that this process starts, as the same rank: MPI, for instance. This process then
    /// meets the others over TCP where Slurm started them, and elsewhere gives the launcher back
    /// with [`Job::hand_over`]. Over TCP the end of another rank does not end it: it has that program
    /// to end first.
    Program,
}

/// Says how a process ends when its job ends under it, because another rank failed or the starter
/// is gone, or when it aborts the job.
///
/// The end of the job may come at any time, on a thread of this library.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum JobEndAction {
    /// By `exit`: handlers of `atexit` and destructors of the C library run. For a program that has
    /// none that another thread could disturb.
    #[default]
    Exit,
    /// By `_exit`: no handler runs, nothing is flushed. For a program that this library knows
    /// nothing about: its handlers expect the thread of its `main`, or wait for other ranks that
    /// have ended.
    AtOnce,
}

impl Default for JoinOptions {
    /// Returns the usual options: the process environment, and a minute: PMIx needs up to seconds
    /// on a busy machine, and ranks start one by one.
    fn default() -> Self {
        Self {
            variables: None,
            timeout: Duration::from_secs(60),
            pmix_library: None,
            ending: JobEndAction::Exit,
            launcher: LauncherUse::Own,
        }
    }
}

/// How a job was joined.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum JoinMethod {
    /// Through the site's PMIx library.
    Pmix {
        /// The library's version, `4.2.2`.
        version: String,
    },
    /// Through the text protocol of MPICH's launchers.
    Pmi1,
    /// By the environment of a Slurm step, and TCP.
    Slurm,
    /// By the environment that [`start_over_ssh`] makes, and TCP.
    Ssh,
    /// By the environment that [`start_here`] makes, and TCP on this host.
    Here,
    /// Nobody else is there.
    Single,
}

impl fmt::Display for JoinMethod {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Pmix { version } => write!(f, "PMIx {version}"),
            Self::Pmi1 => f.write_str("PMI-1"),
            Self::Slurm => f.write_str("Slurm environment"),
            Self::Ssh => f.write_str("ssh"),
            Self::Here => f.write_str("this host"),
            Self::Single => f.write_str("single"),
        }
    }
}

/// Why a method gave no job.
#[derive(Debug)]
enum JoinFailure {
    /// The environment does not offer it.
    Absent(&'static str),
    /// It is offered and does not work.
    Failed(String),
}

impl From<LaunchError> for JoinFailure {
    fn from(error: LaunchError) -> Self {
        match error {
            // The note has the method's name in front.
            LaunchError::Launcher { what, .. } => Self::Failed(what),
            other => Self::Failed(other.to_string()),
        }
    }
}

/// What a method gives.
struct JoinedJob {
    method: JoinMethod,
    rank: u32,
    size: u32,
    /// What only this job's ranks know.
    secret: Option<MemberKey>,
    link: Box<dyn JobLink>,
}

/// A way to join, under the name that notes use.
type JoinAttempt = (&'static str, fn(&Environment, &JoinOptions) -> Result<JoinedJob, JoinFailure>);

/// The ways, in the order tried.
const WAYS: [JoinAttempt; 4] = [
    ("PMIx", pmix::join),
    ("PMI-1", pmi1::join),
    ("Slurm environment", slurm::join),
    ("ssh", ssh::join),
];

/// Returns the ways, in the order tried where `options` says for whom the launcher is.
fn ways(environment: &Environment, options: &JoinOptions) -> [JoinAttempt; 4] {
    let mut ways = WAYS;
    if options.launcher == LauncherUse::Program && slurm::is_own_step(environment) {
        ways.rotate_left(2);
    }
    ways
}

/// Joins the job that this process was started for.
///
/// Call it once, early, before threads start programs of their own.
///
/// # Errors
/// A launcher started this process, but no method works.
pub fn join(options: &JoinOptions) -> Result<Job, LaunchError> {
    let environment = Environment::new(options);
    ssh::keep_secret(&environment);
    let mut notes = Vec::new();
    let mut failed = Vec::new();
    let stand_in = PlaceholderShell::start(&environment).unwrap_or_else(|error| {
        notes.push(format!("nobody stands in for this rank: {error}"));
        None
    });
    for (name, way) in ways(&environment, options) {
        match way(&environment, options) {
            Ok(joined) => {
                let stand_in = stand_in.and_then(|stand_in| stand_in.kept_for(&joined.method));
                return Ok(Job::new(joined, notes, stand_in, options.ending));
            }
            Err(JoinFailure::Absent(why)) => notes.push(format!("{name}: {why}")),
            Err(JoinFailure::Failed(why)) => {
                failed.push(format!("{name}: {why}"));
                notes.push(format!("{name}: {why}"));
            }
        }
    }
    if !failed.is_empty() && environment.ranks_started() != Some(1) {
        return Err(LaunchError::NoWay { notes: failed.join("; ") });
    }
    if let Some(stand_in) = stand_in {
        stand_in.dismiss();
    }
    Ok(Job::single(notes, options.ending))
}
