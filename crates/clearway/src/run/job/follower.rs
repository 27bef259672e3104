//! A rank that is coordinated: a process obeys the coordinator's connection, this one waits for it
//! and says how it ended.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::{Ipv4Addr, TcpStream};
use std::os::fd::OwnedFd;
use std::process::{Command, ExitStatus, Stdio};
use std::thread;
use std::time::Duration;

use anyhow::{Context, Result};
use clearway_runtime::launch::{Job, ProgramShare};
use serde::de::IgnoredAny;

use super::{JobSpec, SealingPolicy, TIMEOUT, exchange, give_up, listener, secret_word, settle};
use crate::run::exit::Exit;
use crate::run::message::{FromRank, ToRank};
use crate::run::processes::ending;
use crate::run::rank_process::{RANK, SECRET_VARIABLE, WITH_PARENT};

/// Returns where the ssh came from that started this process. Other ranks know nobody by an address
/// of loopback.
fn ssh_came_from() -> Option<Ipv4Addr> {
    let words = std::env::var("SSH_CONNECTION").ok()?;
    words.split(' ').next()?.parse().ok().filter(|address: &Ipv4Addr| !address.is_loopback())
}

/// How long a launcher has to end a job whose coordinator is gone, before a rank does it. Launchers
/// do it within some tenths of a second, but for Slurm, which does not do it at all unless it gets
/// the order.
const ENDING: Duration = Duration::from_secs(3);
/// The longest line that still means something when a rank has ended.
const LINE_MAX: u64 = 4096;

/// A rank of a job that another coordinates.
pub(crate) struct Follower {
    job: Job,
    coordinator: CoordinatorConnection,
    /// What a program needs to use the launcher.
    share: ProgramShare,
}

/// How a run ends for a follower.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum FollowerEnd {
    /// The coordinator says so.
    Ordered,
    /// Its connection ends.
    Lost,
}

/// The other end.
pub(super) struct CoordinatorConnection {
    /// Its rank and host.
    pub(super) name: String,
    pub(super) connection: TcpStream,
    pub(super) job_secret: String,
}

impl Follower {
    /// Connects to the coordinator of `job`. Where it cannot, the job ends for all.
    pub(super) fn new(mut job: Job, order: &JobSpec) -> Self {
        let found = CoordinatorConnection::find(&mut job, order.sealing);
        match found.and_then(|found| Ok((found, settle(&mut job, order)?))) {
            Ok((coordinator, share)) => Self { job, coordinator, share },
            Err(error) => give_up(job, &error),
        }
    }

    /// Returns what a program needs that this process leaves the launcher to.
    pub(crate) fn program_share(&self) -> &ProgramShare {
        &self.share
    }

    /// Returns the coordinator's rank and host, for people.
    pub(crate) fn coordinator(&self) -> &str {
        &self.coordinator.name
    }

    /// Returns the connection to the coordinator, and what all ranks know.
    ///
    /// # Errors
    /// The system has no room for another descriptor.
    pub(crate) fn connection(&self) -> Result<(TcpStream, Vec<u8>)> {
        let connection =
            self.coordinator.connection.try_clone().context("a connection in both directions")?;
        Ok((connection, self.coordinator.job_secret.clone().into_bytes()))
    }

    /// Leaves the job in order, together with all others.
    pub(crate) fn leave(mut self) -> Result<()> {
        drop(self.coordinator);
        self.job.barrier()?;
        Ok(self.job.finish()?)
    }

    /// Obeys until the coordinator is done.
    pub(crate) fn follow(mut self) -> Result<Exit> {
        let status = self.coordinator.follow_rank()?;
        // A run may go on without this rank; the coordinator says when it is over.
        if !status.success() && self.coordinator.wait_for_the_end(status) == FollowerEnd::Lost {
            self.end_job(status);
        }
        drop(self.coordinator);
        self.job.barrier()?;
        self.job.finish()?;
        Ok(Exit::Good)
    }

    /// Ends the job after this rank's process ended with `status`. The process that knows most says
    /// why: the coordinator, if it is there.
    fn end_job(self, status: ExitStatus) -> ! {
        let (coordinator, own) = (&self.coordinator, self.job.rank());
        let mut timeout = ENDING;
        // One voice is enough; the others speak up if it is not.
        timeout *= own.0.min(2);
        let sentence = format!(
            "rank {own} {}, and {}, which coordinates this run, is gone",
            ending(status),
            coordinator.name
        );
        thread::sleep(timeout);
        self.job.abort(Exit::Failed as i32, &format!("clearway: {sentence}"))
    }
}

impl CoordinatorConnection {
    /// Looks for it among the ranks of `job`, and connects.
    fn find(job: &mut Job, sealing: SealingPolicy) -> Result<Self> {
        let (descriptions, _) = exchange(job, None, sealing)?;
        let with_door = (0u32..)
            .zip(&descriptions)
            .find_map(|(rank, description)| Some((rank, description, description.door.as_ref()?)));
        let (rank, coordinator, address) =
            with_door.context("no rank of this job coordinates it")?;
        let alone = descriptions.iter().all(|description| description.is_same_host(coordinator));
        let mut addresses = coordinator.reachable(alone);
        if !alone && let Some(address) = ssh_came_from() {
            addresses.insert(0, address);
        }
        let connection = listener::connect(&addresses, address, job.rank(), TIMEOUT)?;
        let job_secret = secret_word(job).or_else(|| address.job_secret.clone());
        let job_secret = job_secret.context("a job whose ranks share no secret")?;
        Ok(Self {
            name: format!("rank {rank} on host {}", coordinator.host),
            connection,
            job_secret,
        })
    }

    /// Lets a process do what it says; how that ended.
    pub(super) fn follow_rank(&self) -> Result<ExitStatus> {
        let program = std::env::current_exe().context("the path of this program")?;
        let both = || self.connection.try_clone().map(|it| Stdio::from(OwnedFd::from(it)));
        let [input, output] =
            [both(), both()].map(|end| end.context("a connection in both directions"));
        let mut rank = Command::new(program)
            .args([RANK, WITH_PARENT])
            .env(SECRET_VARIABLE, &self.job_secret)
            .stdin(input?)
            .stdout(output?)
            .spawn()
            .context("this rank's process cannot start")?;
        rank.wait().context("this rank's process cannot be waited for")
    }

    /// Says that the rank's process ended with `status`, and waits until the coordinator ends the
    /// run, in one way or the other.
    pub(super) fn wait_for_the_end(&self, status: ExitStatus) -> FollowerEnd {
        self.notify(&FromRank::<()>::Ended(ending(status)));
        // The process may have taken the beginning of a line with it.
        let is_leave =
            |line: &[u8]| matches!(serde_json::from_slice(line), Ok(ToRank::<IgnoredAny>::Leave));
        let mut connection = BufReader::new(&self.connection);
        let mut line = Vec::new();
        // What is longer is a task, of which the rest comes as lines that say nothing.
        while connection
            .by_ref()
            .take(LINE_MAX)
            .read_until(b'\n', &mut line)
            .is_ok_and(|count| count > 0)
        {
            if is_leave(&line) {
                return FollowerEnd::Ordered;
            }
            line.clear();
        }
        FollowerEnd::Lost
    }

    /// Says that the rank's process, which has said why, does not take its place.
    pub(super) fn give_back(&self) {
        self.notify(&FromRank::<()>::Ended("could not take part".to_owned()));
    }

    /// Says `what`, if it can still be said.
    fn notify(&self, what: &FromRank<()>) {
        // In the middle of a line this is the end of that line: the coordinator hears that
        // something is wrong.
        let line = serde_json::to_string(what).unwrap_or_default();
        let _ = writeln!(&self.connection, "\n{line}");
    }
}
