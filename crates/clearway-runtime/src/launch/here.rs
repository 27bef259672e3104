//! Starts the ranks of a job on this host, and ends all of them with the first that fails.
//!
//! # Model
//! One child process for each rank, and a hub in this process where they meet. This process is none
//! of the ranks. Each rank has a descriptor from which it reads one line, its secret and the job's,
//! and whose end says that this process ended. A program need not join: all ranks of one that never
//! does end well, but ranks that wait for one that ended without joining would wait in vain.
//!
//! # Invariants
//! I1. When [`LocalRanks`] is dropped no process of it is left.
//! I2. A signal of the terminal reaches this process only, which ends the others. A rank that reads
//!     the terminal is the exception: the
//!     kernel stops a process that reads it from another process group, so that rank stays in the group of this process.
//!
//! # Not here
//! The rank's side (`ssh`). The ranks after their start (`started_ranks`). The process of one rank
//! and its secret (`remote`).

use std::ffi::{OsStr, OsString};
use std::io::{self, ErrorKind, IsTerminal};
use std::net::{Ipv4Addr, TcpListener};
use std::ops::ControlFlow;
use std::os::unix::process::CommandExt;
use std::process::{Command, ExitStatus, Stdio};
use std::thread;
use std::time::Duration;

use super::environment::OF_A_RANK;
use super::remote::RemoteProcess;
use super::rendezvous::hub::Hub;
use super::rendezvous::hub_server::HubServer;
use super::ssh::{HERE, MEET, RANK, SECRET_FD, SIZE};
use super::started_ranks::{LOOK_EVERY, LaunchSecrets, PlacedRank, StartedRanks};
use super::{LaunchError, RANKS_MAX, slurm};

/// How often processes are looked at that have left their job and as a rule end at once.
const LOOK_AT_LAST: Duration = Duration::from_millis(10);

/// Says how [`start_here`] starts ranks.
#[derive(Clone, Debug)]
pub struct HereOptions {
    /// Where the standard input of the ranks comes from.
    pub input: StandardInput,
    /// The longest wait of ranks for the last one to come to an exchange or a barrier.
    pub patience: Duration,
}

impl Default for HereOptions {
    /// Returns the usual options: nothing to read, and one minute.
    fn default() -> Self {
        Self { input: StandardInput::Empty, patience: Duration::from_secs(60) }
    }
}

/// Says where the standard input of ranks on this host comes from.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum StandardInput {
    /// Nowhere: each rank reads its end.
    #[default]
    Empty,
    /// Rank 0 inherits that of this process. The others read its end.
    ToRank0,
}

/// Holds ranks that run on this host, and ends them when it is dropped.
#[derive(Debug)]
pub struct LocalRanks {
    started: StartedRanks,
}

/// Starts `program` with `arguments` as the `ranks` ranks of one job on this host. Returns when all
/// processes run; [`LocalRanks::wait`] follows them to their end. Output and standard error are
/// those of this process.
///
/// # Errors
/// The number of ranks is none that a job can have, or the system has no such program or no room
/// for its processes; nothing is left running then.
pub fn start_here(
    ranks: u32,
    program: &OsStr,
    arguments: &[OsString],
    options: &HereOptions,
) -> Result<LocalRanks, LaunchError> {
    if !(1..=RANKS_MAX).contains(&ranks) {
        let what = format!("{ranks} ranks cannot be started");
        return Err(LaunchError::HostList { list: "this host".to_owned(), what });
    }
    let secrets = LaunchSecrets::draw(ranks)?;
    // Only ranks of this host have to reach it.
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0));
    let listener = listener.map_err(LaunchError::system("open a TCP port for the ranks"))?;
    let hub_server = HubServer::open(listener, Hub::new(ranks, secrets.keys(), options.patience))?;
    let meet = hub_server.address().to_string();
    let mut all = LocalRanks {
        started: StartedRanks::new(hub_server, program.to_string_lossy().into_owned()),
    };
    let host = slurm::host_name();
    for rank in 0..ranks {
        let mut command = Command::new(program);
        command
            .args(arguments)
            .env(RANK, rank.to_string())
            .env(SIZE, ranks.to_string())
            .env(MEET, &meet)
            .env(HERE, "1");
        OF_A_RANK.iter().for_each(|name| {
            command.env_remove(name);
        });
        give_input(&mut command, rank, options.input);
        let process = RemoteProcess::start_here(command, SECRET_FD, &secrets.given_to(rank));
        let process = process.map_err(|error| refused(error, &host, &all.started.program))?;
        all.started.ranks.push(PlacedRank { rank, host: host.clone(), process, has_joined: false });
    }
    Ok(all)
}

/// Gives the process of `rank` its standard input, and the process group that goes with it.
fn give_input(command: &mut Command, rank: u32, input: StandardInput) {
    let is_inherited = rank == 0 && input == StandardInput::ToRank0;
    command.stdin(if is_inherited { Stdio::inherit() } else { Stdio::null() });
    if !(is_inherited && io::stdin().is_terminal()) {
        command.process_group(0);
    }
}

/// Returns why a process could not be started.
fn refused(error: io::Error, host: &str, program: &str) -> LaunchError {
    if error.kind() == ErrorKind::NotFound {
        return LaunchError::NoProgram { host: host.to_owned(), program: program.to_owned() };
    }
    LaunchError::system(format!("start {program}"))(error)
}

impl LocalRanks {
    /// Waits until all processes have ended, for as long as they run. The first that fails ends all
    /// others. `watch` is called at least some twenty times a second and may end the job.
    ///
    /// # Errors
    /// A rank ended badly, left its job without the others, or asked for the end of the job; or
    /// `watch` wants an end. No process is left then. [`LaunchError::exit_code`] has the status to
    /// end with.
    pub fn wait(mut self, watch: &mut dyn FnMut() -> ControlFlow<()>) -> Result<(), LaunchError> {
        loop {
            if watch().is_break() {
                return Err(LaunchError::Stopped);
            }
            // Before the news: the hub hears that a rank joined before that rank can end.
            let ends: Vec<Option<ExitStatus>> =
                self.started.ranks.iter_mut().map(|one| one.process.ended()).collect();
            while let Some(event) = self.started.hub_server.next(Duration::ZERO) {
                self.started.take(event)?;
            }
            let is_job = self.started.ranks.iter().any(|one| one.has_joined);
            for (at, status) in ends.iter().enumerate().filter_map(|(at, end)| Some((at, (*end)?)))
            {
                self.check(at, status, is_job)?;
            }
            if ends.iter().all(Option::is_some) && (self.started.have_left || !is_job) {
                return Ok(());
            }
            if self.started.have_left {
                thread::sleep(LOOK_AT_LAST);
            } else if let Some(event) = self.started.hub_server.next(LOOK_EVERY) {
                self.started.take(event)?;
            }
        }
    }

    /// Looks whether the end of a process is one that the job can have.
    fn check(&mut self, at: usize, status: ExitStatus, is_job: bool) -> Result<(), LaunchError> {
        let Some(one) = self.started.ranks.get(at) else { return Ok(()) };
        if one.has_joined && !status.success() {
            let error = one.ended(status, "");
            // The hub knows more: whether this rank is the reason, or ended because another asked
            // for it.
            let reason = if self.started.have_left { None } else { self.started.end_of_job() };
            return Err(reason.unwrap_or(error));
        }
        if !one.has_joined && (is_job || !status.success()) {
            return Err(one.ended(status, " before it joined"));
        }
        Ok(())
    }
}

impl Drop for LocalRanks {
    fn drop(&mut self) {
        // A rank that has not joined does not look at the descriptor whose end is the word for all
        // others.
        self.started
            .ranks
            .iter_mut()
            .filter(|one| !one.has_joined)
            .for_each(|one| one.process.terminate());
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn run(ranks: u32, program: &str, arguments: &[&str]) -> Result<(), LaunchError> {
        let arguments: Vec<OsString> = arguments.iter().map(OsString::from).collect();
        let started = start_here(ranks, OsStr::new(program), &arguments, &HereOptions::default())?;
        started.wait(&mut || ControlFlow::Continue(()))
    }

    #[test]
    fn start_here__programs_that_never_join_end_well() {
        run(3, "true", &[]).unwrap();
    }

    #[test]
    fn start_here__the_status_of_a_program_that_fails_is_passed_on() {
        for (script, code, said) in [
            (
                "[ $CLEARWAY_RANK = 1 ] && exit 7; exec sleep 1000",
                7,
                "exit status: 7 before it joined",
            ),
            ("[ $CLEARWAY_RANK = 1 ] && kill -9 $$; exec sleep 1000", 137, "signal: 9"),
        ] {
            let error = run(2, "sh", &["-c", script]).unwrap_err();
            assert!(
                error.to_string().starts_with("rank 1 on ") && error.to_string().contains(said),
                "{error}"
            );
            assert_eq!(error.exit_code(), code);
        }
    }

    #[test]
    fn start_here__a_program_that_is_missing_is_named() {
        let error = run(2, "/nowhere/program", &[]).unwrap_err();
        assert!(
            matches!(&error, LaunchError::NoProgram { program, .. } if program == "/nowhere/program"),
            "{error}"
        );
        assert!(run(0, "true", &[]).unwrap_err().to_string().contains("0 ranks"));
    }

    #[test]
    fn wait__the_caller_can_end_it() {
        let started =
            start_here(2, OsStr::new("sleep"), &["1000".into()], &HereOptions::default()).unwrap();
        let error = started.wait(&mut || ControlFlow::Break(())).unwrap_err();
        assert!(matches!(error, LaunchError::Stopped));
    }
}
