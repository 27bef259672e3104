//! Starts the ranks of a job on this host, and ends all of them with the first that fails.
//!
//! # Model
//! One child process for each rank, and a hub in this process where they meet. This process is none
//! of the ranks. Each rank has a descriptor from which it reads one line, its secret and the job's,
//! and whose end says that this process ended. A program need not join: all ranks of one that never
//! does end well, but ranks that wait for one that ended without joining would wait in vain.
//!
//! # Invariants
//! I1. When [`StartedJob`] is dropped no process of it is left.
//! I2. A signal of the terminal reaches this process only, which ends the others. A rank that reads
//!     the terminal is the exception: the
//!     kernel stops a process that reads it from another process group, so that rank stays in the group of this process.
//!
//! # Not here
//! The rank's side (`ssh`). The ranks after their start (`started_ranks`). The process of one rank
//! and its secret (`remote`).

use std::ffi::{OsStr, OsString};
use std::io::{self, ErrorKind, IsTerminal};
use std::net::{Ipv4Addr, SocketAddr, TcpListener, UdpSocket};
use std::os::unix::process::CommandExt;
use std::process::{Command, Stdio};
use std::time::Duration;

use super::environment::OF_A_RANK;
use super::remote::RemoteProcess;
use super::rendezvous::hub::Hub;
use super::rendezvous::hub_server::HubServer;
use super::ssh::{HERE, MEET, RANK, SECRET_FD, SIZE};
use super::started_job::StartedJob;
use super::started_ranks::{LaunchSecrets, PlacedRank, StartedRanks};
use super::{LaunchError, RANKS_MAX, slurm};

/// Says how [`start_here`] starts ranks.
#[derive(Clone, Debug)]
pub struct HereOptions {
    /// Where the standard input of the ranks comes from.
    pub input: StandardInput,
    /// The longest wait of ranks for the last one to come to an exchange or a barrier.
    pub timeout: Duration,
    /// Names and values of variables that the ranks get next to those of this process, or instead
    /// of them.
    pub variables: Vec<(String, String)>,
}

impl Default for HereOptions {
    /// Returns the usual options: nothing to read, one minute, and the variables of this process.
    fn default() -> Self {
        Self {
            input: StandardInput::Empty,
            timeout: Duration::from_secs(60),
            variables: Vec::new(),
        }
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

/// Starts `program` with `arguments` as the `ranks` ranks of one job on this host. Returns when all
/// processes run; [`StartedJob::wait`] follows them to their end. Output and standard error are
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
) -> Result<StartedJob, LaunchError> {
    if !(1..=RANKS_MAX).contains(&ranks) {
        let what = format!("{ranks} ranks cannot be started");
        return Err(LaunchError::HostList { list: "this host".to_owned(), what });
    }
    let secrets = LaunchSecrets::draw(ranks)?;
    // Only ranks of this host have to reach it.
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0));
    let listener = listener.map_err(LaunchError::system("open a TCP port for the ranks"))?;
    let hub_server = HubServer::open(listener, Hub::new(ranks, secrets.keys(), options.timeout))?;
    check_way_to(hub_server.address())?;
    let meet = hub_server.address().to_string();
    let program_name = program.to_string_lossy().into_owned();
    let mut started = StartedRanks::new(hub_server, program_name);
    let host = slurm::host_name();
    for rank in 0..ranks {
        let mut command = Command::new(program);
        command
            .args(arguments)
            .envs(options.variables.iter().map(|(name, value)| (name, value)))
            .env(RANK, rank.to_string())
            .env(SIZE, ranks.to_string())
            .env(MEET, &meet)
            .env(HERE, "1");
        OF_A_RANK.iter().for_each(|name| {
            command.env_remove(name);
        });
        give_input(&mut command, rank, options.input);
        let process = RemoteProcess::start_here(command, SECRET_FD, &secrets.given_to(rank));
        let process = process.map_err(|error| refused(error, &host, &started.program))?;
        started.ranks.push(PlacedRank { rank, host: host.clone(), process, has_joined: false });
    }
    Ok(StartedJob::new(started))
}

/// Looks whether ranks of this host would reach `meet`: in a new network namespace the loopback
/// interface is down. This asks for the route and sends nothing.
fn check_way_to(meet: SocketAddr) -> Result<(), LaunchError> {
    let asked = UdpSocket::bind((Ipv4Addr::UNSPECIFIED, 0)).and_then(|any| any.connect(meet));
    let what = format!("reach {}, where ranks meet (is the interface lo up?)", meet.ip());
    asked.map_err(LaunchError::system(what))
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

#[cfg(test)]
mod tests {
    use std::ops::ControlFlow;

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
        assert_eq!(error.exit_code(), 127);
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
