//! Ends a step of Slurm one of whose ranks ended without leaving its job, because Slurm itself lets it go on.
//!
//! # Model
//! `srun` tells nobody in a step that a rank was killed. So each rank of a step begins with starting a shell that reads from a pipe
//! whose other end only the rank holds. A rank that leaves its job sends an end of line. When the pipe ends without one the rank is
//! gone, and the shell says so and asks Slurm to end the step.
//!
//! # Invariants
//! I1. Nothing of it is left when the rank left its job.
//!
//! # Not here
//! Ranks that end before they came here, within some milliseconds of their start: only the launcher knows of them.

use std::env;
use std::io::{self, Write};
use std::process::{Child, ChildStdin, Command, Stdio};

use super::environment::Environment;
use super::{Method, pmix};

/// What it does. Others, who know more, come first: a conductor notices within some tenths of a second.
const SCRIPT: &str = "read -r _ || { sleep 1; \
    echo \"${0##*/}: rank $SLURM_PROCID on host $SLURMD_NODENAME is gone\" >&2; \
    exec scancel --signal=KILL \"$SLURM_JOB_ID.$SLURM_STEP_ID\"; }";

/// The shell that stands in for this rank.
#[derive(Debug)]
pub(super) struct StandIn {
    shell: Child,
    pipe: ChildStdin,
}

impl StandIn {
    /// Starts one where Slurm started this process.
    pub(super) fn start(environment: &Environment) -> io::Result<Option<Self>> {
        if !is_needed(environment) {
            return Ok(None);
        }
        let mut command = Command::new("/bin/sh");
        command.args(["-c", SCRIPT]).args(env::args_os().take(1)).stdin(Stdio::piped()).stdout(Stdio::null());
        let mut shell = command.spawn()?;
        Ok(shell.stdin.take().map(|pipe| Self { shell, pipe }))
    }

    /// This one if it is needed by a rank that joined by `method`: over TCP others notice from now on when a connection breaks.
    pub(super) fn kept_for(self, method: &Method) -> Option<Self> {
        if *method != Method::Slurm {
            return Some(self);
        }
        self.dismiss();
        None
    }

    /// Ends it, because the rank needs none any more.
    pub(super) fn dismiss(mut self) {
        // One that is gone already needs no word.
        let _ = self.pipe.write_all(b"\n");
        drop(self.pipe);
        let _ = self.shell.wait();
    }
}

/// Whether Slurm itself started this rank, and not a launcher that runs in a step.
fn is_needed(environment: &Environment) -> bool {
    let is_set = |name| environment.get(name).is_some();
    let is_step = ["SLURM_JOB_ID", "SLURM_STEP_ID", "SLURM_PROCID", "SLURMD_NODENAME"].into_iter().all(is_set);
    is_step
        && environment.is_of_process()
        && environment.get("PMIX_NAMESPACE").is_none_or(|namespace| pmix::is_of_slurm(&namespace))
}
