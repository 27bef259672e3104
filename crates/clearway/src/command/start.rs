//! `clearway start`: starts a program as the ranks of one job on this host, and ends as the job
//! does.
//!
//! # Model
//! What a site's launcher does on a cluster, on a machine that has none: `oshrun` is this command
//! where there is no launcher to hand over to. The first rank that fails ends all others, and this
//! command with that rank's status.
//!
//! # Not here
//! Processes and how ranks find each other (`launch::start_here`).

use std::ffi::OsString;
use std::fmt;
use std::ops::ControlFlow;
use std::path::{Path, PathBuf};

use anyhow::{Result, bail, ensure};
use clap::Args;
use clearway_runtime::launch::{HereOptions, LaunchError, StandardInput, hostfile, start_here};

use crate::run::exit::Exit;
use crate::run::interrupt::{Interrupt, Interrupted};

/// The names of every host for itself.
const THIS_HOST: [&str; 3] = ["localhost", "127.0.0.1", "::1"];

/// What `clearway start` starts.
#[derive(Debug, Args)]
pub(crate) struct StartFlags {
    /// How many ranks [default: the slots of --hostfile, or the processors that this command may
    /// use].
    #[arg(short = 'n', long = "ranks", value_name = "N")]
    ranks: Option<u32>,
    /// A file of hosts (`host slots=4`), which may name this host only.
    #[arg(long, value_name = "FILE")]
    hostfile: Option<PathBuf>,
    /// The program and its arguments.
    #[arg(
        required = true,
        trailing_var_arg = true,
        allow_hyphen_values = true,
        value_name = "PROGRAM"
    )]
    program: Vec<OsString>,
}

/// A job that did not end well.
#[derive(Debug)]
pub(crate) struct JobFailed {
    error: LaunchError,
}

impl JobFailed {
    /// Returns the status to end with: that of the rank that failed.
    pub(crate) fn status(&self) -> u8 {
        u8::try_from(self.error.exit_code()).unwrap_or(1)
    }
}

impl fmt::Display for JobFailed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.error {
            LaunchError::Ended { was_said: true, .. } => Ok(()),
            ref error => error.fmt(f),
        }
    }
}

impl std::error::Error for JobFailed {}

/// Starts the program and waits for its end.
///
/// # Errors
/// One sentence: what cannot be started, or which rank failed and how.
pub(super) fn command(flags: &StartFlags) -> Result<Exit> {
    let ranks = ranks(flags)?;
    let Some((program, arguments)) = flags.program.split_first() else {
        bail!("name the program to start")
    };
    start(ranks, program, arguments, StandardInput::ToRank0)
}

/// Starts `ranks` ranks of `program` on this host and waits for their end.
pub(super) fn start(
    ranks: u32,
    program: &OsString,
    arguments: &[OsString],
    input: StandardInput,
) -> Result<Exit> {
    let interrupt = Interrupt::listen()?;
    let options = HereOptions { input, ..HereOptions::default() };
    let done = start_here(ranks, program, arguments, &options).and_then(|started| {
        started.wait(&mut || {
            if interrupt.check().is_err() {
                ControlFlow::Break(())
            } else {
                ControlFlow::Continue(())
            }
        })
    });
    match done {
        // A rank may end all others and be content, as with `shmem_global_exit(0)`.
        Ok(()) | Err(LaunchError::Ended { code: 0, .. }) => Ok(Exit::Good),
        Err(LaunchError::Stopped) => Err(Interrupted::default().into()),
        Err(error) => Err(JobFailed { error }.into()),
    }
}

/// Returns how many ranks `flags` ask for.
fn ranks(flags: &StartFlags) -> Result<u32> {
    let slots = flags.hostfile.as_deref().map(slots).transpose()?;
    let ranks = match flags.ranks.or(slots) {
        Some(ranks) => ranks,
        None => u32::try_from(std::thread::available_parallelism()?.get())?,
    };
    ensure!(ranks > 0, "-n 0 starts nothing; give a number of ranks from 1");
    if let Some(slots) = slots {
        let file = flags.hostfile.as_deref().unwrap_or(Path::new("")).display();
        ensure!(
            ranks <= slots,
            "-n {ranks} are more ranks than the {slots} slots of {file}; raise slots= there"
        );
    }
    Ok(ranks)
}

/// Returns the slots of the file at `path`, whose hosts are this one.
fn slots(path: &Path) -> Result<u32> {
    let own = nix::unistd::gethostname()?;
    let own = own.to_string_lossy();
    let short = own.split('.').next().unwrap_or_default();
    let mut slots = 0;
    for host in hostfile::read(path)? {
        let is_here =
            THIS_HOST.contains(&host.name.as_str()) || host.name == own || host.name == short;
        ensure!(
            is_here,
            "{}: {} is another host than this one ({own}), and only a site's launcher starts ranks there: srun, prterun or mpiexec",
            path.display(),
            host.name
        );
        slots += host.slots;
    }
    Ok(slots)
}

#[cfg(test)]
mod tests {
    use clap::Parser;

    use super::*;

    #[derive(Debug, Parser)]
    struct Line {
        #[command(flatten)]
        flags: StartFlags,
    }

    fn flags(line: &str) -> StartFlags {
        Line::try_parse_from(line.split(' ')).expect(line).flags
    }

    #[test]
    fn ranks__are_those_asked_for() {
        assert_eq!(ranks(&flags("start -n 3 true")).ok(), Some(3));
        assert!(ranks(&flags("start true")).is_ok_and(|ranks| ranks > 0));
        let said = ranks(&flags("start -n 0 true")).unwrap_err().to_string();
        assert!(said.starts_with("-n 0 starts nothing"), "{said}");
    }

    #[test]
    fn ranks__a_hostfile_may_name_this_host_only() {
        let path = std::env::temp_dir().join(format!("clearway-start-{}", std::process::id()));
        let asked = |text: &str, line: &str| {
            std::fs::write(&path, text).expect("written");
            ranks(&StartFlags { hostfile: Some(path.clone()), ..flags(line) })
                .map_err(|error| error.to_string())
        };
        assert_eq!(asked("localhost slots=4\n", "start true"), Ok(4));
        assert_eq!(asked("localhost slots=4\n", "start -n 2 true"), Ok(2));
        assert!(
            asked("localhost slots=4\n", "start -n 5 true")
                .is_err_and(|said| said.contains("raise slots="))
        );
        assert!(
            asked("n7 slots=4\n", "start true")
                .is_err_and(|said| said.contains("n7 is another host"))
        );
        std::fs::remove_file(path).expect("removed");
    }

    #[test]
    fn program__its_flags_are_its_own() {
        let flags = flags("start -n 2 -- ls -n 5 --ranks");
        assert_eq!(flags.program, ["ls", "-n", "5", "--ranks"]);
        assert_eq!(flags.ranks, Some(2));
    }
}
