//! Ranks that this process starts over ssh, on the hosts of a file: which program they run there,
//! and what to say when they cannot.

use std::ops::ControlFlow;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, anyhow, bail};
use clearway_runtime::launch::{self, JoinMethod, JoinOptions, LaunchError, SshOptions, hostfile};

use super::{Follower, JobSpec, TIMEOUT};
use crate::run::exit::Exit;
use crate::run::interrupt::Interrupt;

/// The hidden command that a rank runs on its host.
const FOLLOW: &str = "follow";

/// Where ranks are to be started.
#[derive(Clone, Debug)]
pub(crate) struct SshHosts {
    entries: Vec<hostfile::HostEntry>,
    /// The program's path on every host.
    program: String,
}

impl SshHosts {
    /// Reads the hosts of the file at `path`; without `program` this program is expected at its own
    /// path on each.
    pub(crate) fn read(path: &Path, program: Option<&Path>) -> Result<Self> {
        let entries = hostfile::read(path)?;
        let program: PathBuf = match program {
            Some(program) => program.to_owned(),
            None => std::env::current_exe().context("the path of this program")?,
        };
        let program = program.to_str().context("the path of this program is no text")?.to_owned();
        Ok(Self { entries, program })
    }

    /// Returns how many ranks the file asks for.
    pub(crate) fn ranks(&self) -> u32 {
        self.entries.iter().fold(0, |sum, host| sum.saturating_add(host.slots))
    }

    /// Starts them all.
    pub(super) fn start(&self, interrupt: &Interrupt) -> Result<launch::Job> {
        let options = SshOptions { timeout: TIMEOUT, ..SshOptions::default() };
        let arguments = [FOLLOW.to_owned()];
        let mut watch = || {
            if interrupt.check().is_err() {
                ControlFlow::Break(())
            } else {
                ControlFlow::Continue(())
            }
        };
        let job =
            launch::start_over_ssh(&self.entries, &self.program, &arguments, &options, &mut watch);
        job.map_err(|error| match error {
            LaunchError::Stopped => interrupt.check().err().unwrap_or_else(|| anyhow!(error)),
            LaunchError::NoProgram { .. } => {
                anyhow!("{error}; put the same there, or say where it is with --remote-program")
            }
            other => anyhow!(other),
        })
    }
}

/// Runs one rank, on the host to which its coordinator's ssh came. What becomes of the job without
/// it is up to the coordinator.
pub(crate) fn follow() -> Result<Exit> {
    let job = launch::join(&JoinOptions { timeout: TIMEOUT, ..JoinOptions::default() })?;
    if *job.method() != JoinMethod::Ssh {
        bail!("this command is for the program itself; use --hostfile");
    }
    Follower::new(job, &JobSpec::LAUNCHED).follow()
}
