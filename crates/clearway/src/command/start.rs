//! `clearway start`: starts a program as the ranks of one job, on this host or on those of a file,
//! and ends as the job does.
//!
//! # Model
//! What a site's launcher does on a cluster, on a machine that has none: `oshrun` is this command
//! where there is no launcher to hand over to. The first rank that fails ends all others, and this
//! command with that rank's status.
//!
//! # Not here
//! Processes and how ranks find each other (`launch::start_here`, `launch::start_apart_over_ssh`).

use std::ffi::{OsStr, OsString};
use std::fmt;
use std::ops::ControlFlow;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, bail};
use clap::Args;
use clearway_runtime::launch::hostfile::{self, HostEntry};
use clearway_runtime::launch::{
    HereOptions, LaunchError, SshOptions, StandardInput, StartedJob, start_apart_over_ssh,
    start_here,
};
use clearway_wires::addresses;

use crate::policy::{PolicyFlags, shmem_class};
use crate::run::exit::{Exit, wrong_usage};
use crate::run::interrupt::{Interrupt, Interrupted};

/// The names of every host for itself.
const THIS_HOST: [&str; 3] = ["localhost", "127.0.0.1", "::1"];

/// The variable with the class of an OpenSHMEM program.
const CLASS: &str = "SHMEM_CLASS";

/// What `clearway start` starts.
#[derive(Debug, Args)]
pub(crate) struct StartFlags {
    /// Start N ranks [default: the slots of --hostfile, or the processors that this command may
    /// use].
    #[arg(short = 'n', long = "ranks", value_name = "N")]
    ranks: Option<u32>,
    /// Start the ranks on the hosts of a file (`host slots=4`), by ssh where it names others than
    /// this one.
    #[arg(long, value_name = "FILE")]
    hostfile: Option<PathBuf>,
    /// Give a variable to the ranks of other hosts as well, which get SHMEM_* and SHMEMX_* by
    /// themselves.
    #[arg(short = 'x', long = "env", value_name = "NAME[=VALUE]")]
    variables: Vec<String>,
    /// Start the ranks of other hosts by this program, which takes two arguments, a host and a
    /// command line for its shell.
    #[arg(long, value_name = "PROGRAM", default_value = "ssh")]
    rsh: OsString,
    #[command(flatten)]
    policy: PolicyFlags,
    /// Run this program with these arguments.
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
    /// Returns the status to end with: that of the rank that failed, of which a parent sees eight
    /// bits, and never 0.
    pub(crate) fn status(&self) -> u8 {
        (self.error.exit_code() as u8).max(1)
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
    let hosts = flags.hostfile.as_deref().map(hostfile::read).transpose()?;
    let ranks = ranks(flags, hosts.as_deref())?;
    let Some((program, arguments)) = flags.program.split_first() else {
        bail!("name the program to start")
    };
    let class = class_of_program(flags, program);
    match hosts {
        Some(hosts) if !hosts.iter().all(is_this_host) => {
            start_on(&first_slots(&hosts, ranks), flags, class, (program, arguments))
        }
        _ => {
            let variables =
                class.into_iter().map(|class| (CLASS.to_owned(), class.to_owned())).collect();
            let input = StandardInput::ToRank0;
            let options = HereOptions { input, variables, ..HereOptions::default() };
            start(ranks, program, arguments, &options)
        }
    }
}

/// Returns the value of [`CLASS`] that the policy of the site grants, if there is a policy.
fn class_of_program(flags: &StartFlags, program: &OsStr) -> Option<&'static str> {
    let given = flags.variables.iter().rev().find_map(|word| {
        let (name, value) = word.split_once('=')?;
        (name == CLASS).then(|| value.to_owned())
    });
    let requested = given.or_else(|| std::env::var(CLASS).ok());
    shmem_class(&flags.policy, requested.as_deref(), program).map(|(_, word)| word)
}

/// Starts the program on `hosts` by ssh, in the directory of this process.
fn start_on(
    hosts: &[HostEntry],
    flags: &StartFlags,
    class: Option<&str>,
    (program, arguments): (&OsString, &[OsString]),
) -> Result<Exit> {
    let text = |word: &OsString| {
        word.to_str().map(str::to_owned).with_context(|| {
            format!("{} is no UTF-8, and ssh takes nothing else", word.to_string_lossy())
        })
    };
    let words = arguments.iter().map(text).collect::<Result<Vec<_>>>()?;
    let directory = std::env::current_dir().context("the directory of this process")?;
    let ssh = flags.rsh.clone();
    let variables = variables(flags, class);
    let addresses = addresses::of_host().unwrap_or_default();
    let addresses = addresses.iter().map(|found| found.address.into()).collect();
    let directory = Some(directory);
    let options = SshOptions { ssh, variables, directory, addresses, ..SshOptions::default() };
    let program = text(program)?;
    follow(|watch| start_apart_over_ssh(hosts, &program, &words, &options, watch))
}

/// Returns the variables that ranks of other hosts get, with a class of the policy if there is one.
fn variables(flags: &StartFlags, class: Option<&str>) -> Vec<String> {
    let own = std::env::vars_os().filter_map(|(name, value)| {
        let (name, value) = (name.into_string().ok()?, value.into_string().ok()?);
        (is_of_openshmem(&name) || flags.variables.contains(&name))
            .then(|| format!("{name}={value}"))
    });
    let given = flags.variables.iter().filter(|word| word.contains('=')).cloned();
    // The last one of a name counts.
    own.chain(given).chain(class.map(|class| format!("{CLASS}={class}"))).collect()
}

/// Returns whether programs of OpenSHMEM read this variable.
fn is_of_openshmem(name: &str) -> bool {
    ["SHMEM_", "SHMEMX_", "SMA_"].iter().any(|of| name.starts_with(of))
}

/// Returns the first `ranks` slots of `hosts`.
fn first_slots(hosts: &[HostEntry], ranks: u32) -> Vec<HostEntry> {
    let mut left = ranks;
    let take = |host: &HostEntry| {
        let slots = host.slots.min(left);
        left -= slots;
        HostEntry { slots, ..host.clone() }
    };
    hosts.iter().map(take).filter(|host| host.slots > 0).collect()
}

/// Starts `ranks` ranks of `program` on this host and waits for their end.
pub(super) fn start(
    ranks: u32,
    program: &OsString,
    arguments: &[OsString],
    options: &HereOptions,
) -> Result<Exit> {
    follow(|_| start_here(ranks, program, arguments, options))
}

/// Starts a job and waits for its end.
fn follow(
    start: impl FnOnce(&mut dyn FnMut() -> ControlFlow<()>) -> Result<StartedJob, LaunchError>,
) -> Result<Exit> {
    let interrupt = Interrupt::listen()?;
    let mut watch = || match interrupt.check() {
        Ok(()) => ControlFlow::Continue(()),
        Err(_) => ControlFlow::Break(()),
    };
    match start(&mut watch).and_then(|started| started.wait(&mut watch)) {
        // A rank may end all others and be content, as with `shmem_global_exit(0)`.
        Ok(()) | Err(LaunchError::Ended { code: 0, .. }) => Ok(Exit::Good),
        Err(LaunchError::Stopped) => Err(Interrupted::default().into()),
        Err(error) => Err(JobFailed { error }.into()),
    }
}

/// Returns how many ranks `flags` ask for, of the slots of `hosts`.
fn ranks(flags: &StartFlags, hosts: Option<&[HostEntry]>) -> Result<u32> {
    let slots = hosts.map(|hosts| hosts.iter().map(|host| host.slots).sum::<u32>());
    let ranks = match flags.ranks.or(slots) {
        Some(ranks) => ranks,
        None => u32::try_from(std::thread::available_parallelism()?.get())?,
    };
    if ranks == 0 {
        wrong_usage!("-n 0 starts nothing; give a number of ranks from 1");
    }
    if let Some(slots) = slots {
        let file = flags.hostfile.as_deref().unwrap_or(Path::new("")).display();
        if ranks > slots {
            wrong_usage!(
                "-n {ranks} are more ranks than the {slots} slots of {file}; raise slots= there"
            );
        }
    }
    Ok(ranks)
}

/// Returns whether a line of a file of hosts names this host.
fn is_this_host(host: &HostEntry) -> bool {
    let own = nix::unistd::gethostname().unwrap_or_default();
    let own = own.to_string_lossy();
    let short = own.split('.').next().unwrap_or_default();
    THIS_HOST.contains(&host.name.as_str()) || host.name == own || host.name == short
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
        assert_eq!(ranks(&flags("start -n 3 true"), None).ok(), Some(3));
        assert!(ranks(&flags("start true"), None).is_ok_and(|ranks| ranks > 0));
        let said = ranks(&flags("start -n 0 true"), None).unwrap_err().to_string();
        assert!(said.starts_with("-n 0 starts nothing"), "{said}");
    }

    #[test]
    fn ranks__are_at_most_the_slots_of_a_hostfile_and_fill_it_from_its_beginning() {
        let hosts = hostfile::parse(b"localhost slots=2\nn7 slots=3\n").expect("hosts");
        let asked =
            |line: &str| ranks(&flags(line), Some(&hosts)).map_err(|error| error.to_string());
        assert_eq!(asked("start true"), Ok(5));
        assert_eq!(asked("start -n 2 true"), Ok(2));
        assert!(asked("start -n 6 true").is_err_and(|said| said.contains("raise slots=")));
        let slots =
            |ranks| first_slots(&hosts, ranks).iter().map(|host| host.slots).collect::<Vec<_>>();
        assert_eq!((slots(1), slots(3)), (vec![1], vec![2, 1]));
        assert!(is_this_host(&hosts[0]) && !is_this_host(&hosts[1]));
    }

    #[test]
    fn variables__are_those_asked_for() {
        let flags = flags("start -x A=1 -x CLEARWAY_NO_SUCH -n 2 true");
        assert!(variables(&flags, None).contains(&"A=1".to_owned()));
        let last = variables(&flags, Some("low")).pop();
        assert_eq!(last.as_deref(), Some("SHMEM_CLASS=low"));
        assert!(!variables(&flags, None).iter().any(|word| word.starts_with("CLEARWAY_NO_SUCH")));
        let given = ["SHMEM_CLASS", "SHMEMX_QUEUE_THRESHOLD", "SMA_SYMMETRIC_SIZE"];
        assert!(given.iter().all(|name| is_of_openshmem(name)) && !is_of_openshmem("PATH"));
    }

    #[test]
    fn program__its_flags_are_its_own() {
        let flags = flags("start -n 2 -- ls -n 5 --ranks");
        assert_eq!(flags.program, ["ls", "-n", "5", "--ranks"]);
        assert_eq!(flags.ranks, Some(2));
    }
}
