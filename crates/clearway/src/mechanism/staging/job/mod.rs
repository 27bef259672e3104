//! Staging for one job: servers on its first nodes, a mount on each node, and the application.
//!
//! # Model
//! ```text
//!   launcher --starts--> a task for each rank --starts--> program, with CLEARWAY_STAGE
//!                        first task of a node --starts--> the node's mount (a process)
//!                        first task of the first nodes: a server of the node's log
//!                        rank 0: coordinator of all tasks (its own included)
//!
//!   coordinator --TaskRequest--> task     serve, mount, run, unmount, drain, leave
//!   coordinator <--TaskReport--- task     serving, mounted, ended, unmounted, drained
//! ```
//! Tasks find each other as the ranks of a run do (`run::job`), over connections that last as long
//! as the job. When all mounts are gone, the servers have everything, and the coordinator waits for
//! their drains. The key of servers and mounts is the secret that the ranks agreed on.
//!
//! # Invariants
//! I1. No mount and no program outlives its task: a mount ends with its standard input; the process
//!     that holds a program kills it, with its children, when the task dies.
//! I2. A failure anywhere ends all tasks, and one sentence says why.
//! I3. The key is on no command line, in no file, and not in the environment of the program.

mod coordinator;
mod message;
mod node_mount;
mod node_server;
mod program;
mod shared_store;
mod task;

use std::ffi::OsString;
use std::net::{Ipv4Addr, SocketAddr, TcpStream};
use std::os::unix::net::UnixStream;
use std::path::PathBuf;
use std::thread;
use std::time::Duration;

use anyhow::{Context, Result, anyhow};
use clap::Args;
use clearway_runtime::launch::{LauncherUse, ProgramShare};

use super::log_flags::LogFlags;
use super::yield_flags::YieldFlags;
use crate::run::exit::{Exit, UsageError, exit_of};
use crate::run::job::{CoordinatedJob, Follower, JobRole, JobSpec, join_or_start};
use coordinator::{TaskCoordinator, TaskPlace};
use node_server::NodeServer;
use task::Task;

pub(crate) use node_mount::{NodeMountFlags, serve as serve_mount};
pub(crate) use program::{HeldProgramFlags, hold as hold_program};

/// The variable in the program's environment that names the mount point.
const DIRECTORY_VARIABLE: &str = "CLEARWAY_STAGE";

/// Flags of `clearway stage job`.
#[derive(Debug, Args)]
pub(crate) struct StageJobFlags {
    /// Keep the log of a server in this directory of its node. If it is missing or empty, the
    /// command makes a log there.
    #[arg(long, value_name = "DIR")]
    data: PathBuf,
    /// Drain the logs into this existing directory, which the nodes of all servers reach.
    #[arg(long, value_name = "DIR")]
    backing: PathBuf,
    /// Serve on the first N nodes: each name at the top of the mount is on one of the servers
    /// [default: 1].
    #[arg(long, value_name = "N", default_value_t = 1, hide_default_value = true, value_parser = clap::value_parser!(u32).range(1..))]
    servers: u32,
    /// Mount on this existing directory of each node [default: a new directory in $TMPDIR or /tmp].
    #[arg(long, value_name = "DIR")]
    mount: Option<PathBuf>,
    /// End without waiting for the drain; the next `clearway stage serve` or `stage job` of the log
    /// continues it.
    #[arg(long)]
    no_drain: bool,
    #[command(flatten)]
    log: LogFlags,
    #[command(flatten)]
    yields: YieldFlags,
    /// Run this program with these arguments in each task, with the mount point in CLEARWAY_STAGE.
    #[arg(required = true, trailing_var_arg = true, value_name = "PROGRAM")]
    program: Vec<OsString>,
}

/// How long the mount of a dead task has to unmount before other tasks of its node end: then a
/// launcher may kill what is left on the node. An unmount takes some milliseconds.
const ORPHAN_GRACE: Duration = Duration::from_millis(500);

/// Whether the end of a job waits for the drain.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum DrainPolicy {
    Wait,
    Leave,
}

/// What a task knows of its job.
struct TaskSpec<'a> {
    flags: &'a StageJobFlags,
    /// The host of the coordinator, as this task reaches it.
    coordinator_host: Ipv4Addr,
    /// The coordinator's name in messages.
    coordinator: String,
    secret: String,
    /// What the program needs to use the launcher.
    share: &'a ProgramShare,
}

/// Runs the program with a mount, as one task of a job.
///
/// # Errors
/// One sentence: no server, no mount, no program, or what failed meanwhile.
pub(crate) fn run(flags: &StageJobFlags) -> Result<Exit> {
    let spec = JobSpec { launcher: LauncherUse::Program, ..JobSpec::LAUNCHED };
    let status = match join_or_start(&spec)? {
        JobRole::Coordinator(job) => coordinate(flags, *job)?,
        JobRole::Follower(follower) => follow(flags, follower)?,
    };
    match status {
        0 => Ok(Exit::Good),
        // The program has said why.
        other => std::process::exit(other),
    }
}

/// Runs a task that another process coordinates; returns the status of its program.
fn follow(flags: &StageJobFlags, follower: Follower) -> Result<i32> {
    let (connection, secret) = follower.connection()?;
    let coordinator_host = peer_host(&connection, "the coordinator")?;
    let secret = String::from_utf8(secret).context("the secret of the job is no text")?;
    let coordinator = follower.coordinator().to_owned();
    let share = follower.program_share();
    let spec = TaskSpec { flags, coordinator_host, coordinator, secret, share };
    let input = connection.try_clone().context("cannot duplicate a connection")?;
    let status = Task::new(spec, (Box::new(input), Box::new(connection)))?.run()?;
    follower.leave()?;
    Ok(status)
}

/// Returns the host of the peer of `connection`, which messages call `name`.
fn peer_host(connection: &TcpStream, name: &str) -> Result<Ipv4Addr> {
    match connection.peer_addr().with_context(|| format!("{name} has no address"))? {
        SocketAddr::V4(there) => Ok(*there.ip()),
        SocketAddr::V6(_) => Err(anyhow!("{name} has no IPv4 address")),
    }
}

/// Runs the first task, and coordinates all tasks; returns the status of its own program.
fn coordinate(flags: &StageJobFlags, job: CoordinatedJob) -> Result<i32> {
    let (status, ended) = match serve_tasks(flags, &job) {
        Ok(both) => both,
        Err(error) => job.abort(exit_of(&error), &error),
    };
    match ended {
        Ok(()) => job.leave().map(|()| status),
        Err(failure) if failure.is_incomplete => job.end(failure.exit),
        Err(failure) => job.leave().map(|()| failure.exit as i32),
    }
}

/// Serves the logs to all tasks until they have ended; returns the status of the own program, and
/// how the job ended.
fn serve_tasks(
    flags: &StageJobFlags,
    job: &CoordinatedJob,
) -> Result<(i32, Result<(), coordinator::JobFailure>)> {
    let secret = job.secret()?;
    let hosts = job.hosts();
    if flags.servers as usize > hosts.len() {
        let sentence = format!(
            "--servers {} is more than the nodes of the job, of which there are {}; start tasks on more nodes, or use fewer servers",
            flags.servers,
            hosts.len()
        );
        return Err(UsageError::new(sentence).into());
    }
    let address = if hosts.len() == 1 { Ipv4Addr::LOCALHOST } else { Ipv4Addr::UNSPECIFIED };
    // Before any other task is asked for anything: most faults of flags show here.
    let server = NodeServer::open(flags, &secret, address)?;
    let port = server.port();
    let (own, other) = UnixStream::pair().context("cannot connect to the own task")?;
    let copy = |stream: &UnixStream| stream.try_clone().context("cannot duplicate a connection");
    let spec = TaskSpec {
        flags,
        coordinator_host: Ipv4Addr::LOCALHOST,
        coordinator: "the first task".to_owned(),
        secret,
        share: job.program_share(),
    };
    let task = Task::new(spec, (Box::new(copy(&own)?), Box::new(own)))?.with_server(server);
    job.interrupt().check()?;
    let mut coordinator = TaskCoordinator::new(port, flags.servers as usize, flags.backing.clone());
    let place = |rank: u32, address| {
        let host = hosts.iter().position(|ranks| ranks.iter().any(|one| one.0 == rank));
        let host = host.context("a rank without a host")?;
        let name = job.host(clearway_proto::base::Rank(rank)).to_owned();
        Ok::<_, anyhow::Error>(TaskPlace { rank, host, name, address })
    };
    coordinator.add(place(0, None)?, (Box::new(copy(&other)?), Box::new(other)));
    for joined in job.accept_ranks()? {
        let input: TcpStream =
            joined.connection.try_clone().context("cannot duplicate a connection")?;
        let address = peer_host(&joined.connection, "a task")?;
        let task = place(joined.rank.0, Some(address))?;
        coordinator.add(task, (Box::new(input), Box::new(joined.connection)));
    }
    let policy = if flags.no_drain { DrainPolicy::Leave } else { DrainPolicy::Wait };
    let thread = thread::Builder::new().name("coordinator".to_owned());
    let thread = thread.spawn(move || coordinator.run(policy)).context("cannot start a thread")?;
    // Programs end with the thread that starts them, so this one is the task.
    let status = task.run();
    let ended = thread.join().map_err(|_| anyhow!("the thread of the coordinator panicked"))?;
    Ok((status?, ended))
}
