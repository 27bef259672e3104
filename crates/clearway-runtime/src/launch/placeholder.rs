//! Ends a step of Slurm one of whose ranks ended without leaving its job, because Slurm itself lets
//! it go on.
//!
//! # Model
//! `srun` tells nobody in a step that a rank was killed. So each rank of a step begins with
//! starting a shell that reads from a socket whose other end only the rank holds. A rank that
//! leaves its job sends an end of line. When the connection ends without one the rank is gone, and
//! the shell says so and asks Slurm to end the step.
//!
//! The shell is no child of the rank: a first shell starts it and ends at once. A program that
//! waits for any of its children would otherwise wait for the shell too, or take its end for that
//! of another child.
//!
//! # Invariants
//! I1. Nothing of it is left when the rank left its job.
//! I2. When [`PlaceholderShell::start`] returns this process has no more children than before.
//!
//! # Not here
//! Ranks that end before they came here, within some milliseconds of their start: only the launcher
//! knows of them.

use std::env;
use std::io::{self, Read};
use std::net::Shutdown;
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixStream;
use std::process::{Command, Stdio};
use std::time::Duration;

use super::environment::Environment;
use super::send::send_all;
use super::{JoinMethod, pmix};

/// The script of both shells. The pause lets others speak first that know more: a coordinator
/// notices within some tenths of a second. A command in the background has an empty standard input,
/// so the connection moves to another descriptor.
const SCRIPT: &str = "exec 3<&0 </dev/null; { read -r _ <&3 || { sleep 1; \
    echo \"${0##*/}: rank $SLURM_PROCID on host $SLURMD_NODENAME is gone\" >&2; \
    exec scancel --signal=KILL \"$SLURM_JOB_ID.$SLURM_STEP_ID\"; }; } &";

/// How long the shell may take to end when it is dismissed: some milliseconds, more on a busy
/// machine.
const FAREWELL: Duration = Duration::from_secs(1);

/// The shell that stands in for this rank.
#[derive(Debug)]
pub(super) struct PlaceholderShell {
    /// To the shell, which alone holds the other end.
    connection: UnixStream,
}

impl PlaceholderShell {
    /// Starts one where Slurm started this process.
    pub(super) fn start(environment: &Environment) -> io::Result<Option<Self>> {
        if !is_needed(environment) {
            return Ok(None);
        }
        let (connection, theirs) = UnixStream::pair()?;
        connection.set_read_timeout(Some(FAREWELL))?;
        let mut command = Command::new("/bin/sh");
        command
            .args(["-c", SCRIPT])
            .args(env::args_os().take(1))
            .stdin(OwnedFd::from(theirs))
            .stdout(Stdio::null());
        let mut first = command.spawn()?;
        // The program may have waited for it already, or have asked the system to do so; how it
        // ended says nothing.
        let _ = first.wait();
        Ok(Some(Self { connection }))
    }

    /// Returns this one if it is needed by a rank that joined by `method`: over TCP others notice
    /// from now on when a connection breaks.
    pub(super) fn kept_for(self, method: &JoinMethod) -> Option<Self> {
        if *method != JoinMethod::Slurm {
            return Some(self);
        }
        self.dismiss();
        None
    }

    /// Ends it, because the rank needs none any more.
    pub(super) fn dismiss(mut self) {
        // One that is gone already needs no word.
        let _ = send_all(&self.connection, b"\n")
            .and_then(|()| self.connection.shutdown(Shutdown::Write));
        // It says nothing, so this returns when it has ended, or too late.
        let _ = self.connection.read(&mut [0]);
    }
}

/// Returns whether Slurm itself started this rank, and not a launcher that runs in a step.
fn is_needed(environment: &Environment) -> bool {
    let is_set = |name| environment.get(name).is_some();
    let is_step = ["SLURM_JOB_ID", "SLURM_STEP_ID", "SLURM_PROCID", "SLURMD_NODENAME"]
        .into_iter()
        .all(is_set);
    is_step
        && environment.is_of_process()
        && environment.get("PMIX_NAMESPACE").is_none_or(|namespace| pmix::is_of_slurm(&namespace))
}
