//! Joins by the environment of a Slurm step, when its PMI is off (`srun --mpi=none`): rank 0 hosts
//! the rendezvous.
//!
//! # Model
//! The hub is on the first node of the step, where Slurm puts rank 0, at the first free of a few
//! ports that follow from the numbers of job and step. The others try these ports until a hub of
//! this step answers.
//!
//! # Invariants
//! I1. A hub of another step, or anything else at such a port, is passed by.
//!
//! # Not here
//! Protection from other users of the machine: the ranks know nothing that others do not
//! (`rendezvous`, I2). With `--mpi=pmix` or `--mpi=pmi2` Slurm's own daemons carry the bytes.

use std::fs;
use std::net::{Ipv4Addr, Ipv6Addr, SocketAddr, TcpListener, ToSocketAddrs};
use std::sync::mpsc::channel;
use std::sync::{Arc, Mutex, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use super::environment::Environment;
use super::job::{self, JobLink};
use super::rendezvous::frame::MemberKey;
use super::rendezvous::hub::{Hub, JobFailure, MemberKeys};
use super::rendezvous::hub_server::HubServer;
use super::rendezvous::member::{EndSource, JoinClaim, MemberLink};
use super::{
    JoinFailure, JoinMethod, JoinOptions, JoinedJob, LaunchError, LauncherUse, RANKS_MAX, hostlist,
};

/// Ports tried, should others use the first ones.
const TRIES: u32 = 8;

/// Where these ports are: above those of services, below those that Linux gives to outgoing
/// connections (32768).
const PORT_FIRST: u32 = 20_000;
const PORTS: u32 = 12_000;

/// The distance of one try from the next: a prime, so that the tries of neighbouring steps do not
/// run into each other.
const STRIDE: u32 = 1_009;

/// How long the host of the hub stays to let the others hear the news.
const FAREWELL: Duration = Duration::from_secs(3);

/// A step as its environment describes it.
#[derive(Debug, PartialEq, Eq)]
struct SlurmStep {
    job: u32,
    step: u32,
    rank: u32,
    size: u32,
    first: String,
}

/// Returns whether Slurm itself started this process as a rank, and not a launcher that runs in a
/// step of one process for each node.
pub(super) fn is_own_step(environment: &Environment) -> bool {
    let Ok(step) = SlurmStep::read(environment) else { return false };
    let agrees = |names: &[&str], own: u32| {
        let mut said = names.iter().filter_map(|name| environment.get(name));
        said.all(|said| said.trim() == own.to_string())
    };
    agrees(&["PMI_RANK", "PMIX_RANK", "OMPI_COMM_WORLD_RANK"], step.rank)
        && agrees(&["PMI_SIZE", "OMPI_COMM_WORLD_SIZE"], step.size)
}

impl SlurmStep {
    fn read(environment: &Environment) -> Result<Self, JoinFailure> {
        let Some(nodes) = environment.get("SLURM_STEP_NODELIST") else {
            return Err(JoinFailure::Absent("no SLURM_STEP_NODELIST in the environment"));
        };
        let job = environment.number("SLURM_JOB_ID")?;
        let step = environment.number("SLURM_STEP_ID")?;
        let (rank, size) =
            (environment.number("SLURM_PROCID")?, environment.number("SLURM_STEP_NUM_TASKS")?);
        if rank >= size || size > RANKS_MAX {
            return Err(JoinFailure::Failed(format!(
                "SLURM_PROCID {rank} of SLURM_STEP_NUM_TASKS {size} is no rank of a job"
            )));
        }
        let first = hostlist::expand(&nodes)?.into_iter().next();
        let first = first
            .ok_or_else(|| JoinFailure::Failed("SLURM_STEP_NODELIST names no node".to_owned()))?;
        Ok(Self { job, step, rank, size, first })
    }

    /// Returns the ports to try, in this order.
    fn ports(&self) -> impl Iterator<Item = u16> {
        let begin = self.job.wrapping_mul(97).wrapping_add(self.step.wrapping_mul(13)) % PORTS;
        (0..TRIES).map(move |i| (PORT_FIRST + (begin + i * STRIDE) % PORTS) as u16)
    }

    /// Returns the key of a hub. A program that this process starts can have a hub of its own.
    fn key(&self, launcher: LauncherUse) -> MemberKey {
        let whose = match launcher {
            LauncherUse::Own => "clearway",
            LauncherUse::Program => "clearway around a program",
        };
        MemberKey::new(format!("{whose}, step {} of job {}", self.step, self.job).as_bytes())
    }
}

/// Joins when the variables of a step are there.
pub(super) fn join(
    environment: &Environment,
    options: &JoinOptions,
) -> Result<JoinedJob, JoinFailure> {
    let step = SlurmStep::read(environment)?;
    let host = environment.get("SLURMD_NODENAME").unwrap_or_else(host_name);
    let claim =
        JoinClaim { rank: step.rank, size: step.size, host, key: step.key(options.launcher) };
    let link: Box<dyn JobLink> = if step.rank == 0 {
        Box::new(HubLink::open(&step, &claim, options)?)
    } else {
        Box::new(join_hub(&step, &claim, options)?)
    };
    Ok(JoinedJob {
        method: JoinMethod::Slurm,
        rank: step.rank,
        size: step.size,
        secret: None,
        link,
    })
}

/// Returns the name of this machine, for people.
pub(super) fn host_name() -> String {
    let name = fs::read_to_string("/proc/sys/kernel/hostname").unwrap_or_default();
    if name.trim().is_empty() { "an unnamed host".to_owned() } else { name.trim().to_owned() }
}

/// Joins as a rank that does not host the hub.
fn join_hub(
    step: &SlurmStep,
    claim: &JoinClaim,
    options: &JoinOptions,
) -> Result<MemberLink, LaunchError> {
    let begun = Instant::now();
    let addresses = resolve(vec![step.first.clone()], step.ports().collect(), options.timeout)?;
    let (ending, launcher) = (options.ending, options.launcher);
    let on_end = move |end: &JobFailure, source| {
        if launcher == LauncherUse::Program {
            return;
        }
        // When the hub tells, rank 0 says it for all.
        job::end_process(
            ending,
            end.code,
            (source == EndSource::Silence).then_some(end.sentence.as_str()),
        )
    };
    MemberLink::join(
        claim,
        &addresses,
        options.timeout.saturating_sub(begun.elapsed()),
        Box::new(on_end),
    )
}

/// Returns the addresses of `names` with each of `ports`.
///
/// # Errors
/// No name has an address, or the name service takes too long.
pub(super) fn resolve(
    names: Vec<String>,
    ports: Vec<u16>,
    timeout: Duration,
) -> Result<Vec<SocketAddr>, LaunchError> {
    let (found, answer) = channel();
    let shown = names.join(", ");
    // The system's resolver has a timeout of its own; a thread that waits for it is left
    // behind.
    let look_up = move || {
        let all =
            names.iter().filter_map(|name| (name.as_str(), 0).to_socket_addrs().ok()).flatten();
        let mut hosts: Vec<_> = all.map(|address| address.ip()).collect();
        hosts.dedup();
        let _ = found.send(hosts);
    };
    thread::Builder::new().spawn(look_up).map_err(LaunchError::system("start a thread"))?;
    let hosts = answer.recv_timeout(timeout).unwrap_or_default();
    if hosts.is_empty() {
        let what = format!("no address is known for {shown}");
        return Err(LaunchError::Launcher { method: "rendezvous", what });
    }
    Ok(ports
        .iter()
        .flat_map(|port| hosts.iter().map(|host| SocketAddr::new(*host, *port)))
        .collect())
}

/// Listens for both families where the machine has both.
pub(super) fn listen(port: u16) -> std::io::Result<TcpListener> {
    TcpListener::bind((Ipv6Addr::UNSPECIFIED, port))
        .or_else(|_| TcpListener::bind((Ipv4Addr::UNSPECIFIED, port)))
}

/// Rank 0, with the hub in a thread of its own.
#[derive(Debug)]
struct HubLink {
    member: MemberLink,
    hub_server: Arc<Mutex<HubServer>>,
}

impl HubLink {
    fn open(
        step: &SlurmStep,
        claim: &JoinClaim,
        options: &JoinOptions,
    ) -> Result<Self, LaunchError> {
        let listener = step.ports().map(listen).find_map(Result::ok).ok_or_else(|| {
            let what = format!(
                "all of its {TRIES} ports ({} and so on) are taken",
                step.ports().next().unwrap_or_default()
            );
            LaunchError::Launcher { method: "rendezvous", what }
        })?;
        let hub =
            Hub::new(step.size, MemberKeys::Shared(step.key(options.launcher)), options.timeout);
        let hub_server = HubServer::open(listener, hub)?;
        let near = SocketAddr::from((Ipv4Addr::LOCALHOST, hub_server.address().port()));
        let hub_server = Arc::new(Mutex::new(hub_server));
        let (others, ending, launcher) =
            (Arc::clone(&hub_server), options.ending, options.launcher);
        let on_end = move |end: &JobFailure, _| {
            if launcher == LauncherUse::Program {
                return;
            }
            wait_for_others(&others);
            job::end_process(ending, end.code, Some(&end.sentence))
        };
        let member = MemberLink::join(claim, &[near], options.timeout, Box::new(on_end))?;
        Ok(Self { member, hub_server })
    }
}

/// Stays until every rank has heard that the job is over: the hub ends with this process.
fn wait_for_others(hub_server: &Mutex<HubServer>) {
    let _ = hub_server.lock().unwrap_or_else(PoisonError::into_inner).wait_over(FAREWELL);
}

impl JobLink for HubLink {
    fn exchange(&mut self, own: &[u8]) -> Result<Vec<Vec<u8>>, LaunchError> {
        self.member.exchange(own)
    }

    fn barrier(&mut self) -> Result<(), LaunchError> {
        self.member.barrier()
    }

    fn go_on_without_lost(&mut self) -> bool {
        self.hub_server.lock().unwrap_or_else(PoisonError::into_inner).go_on_without_lost();
        true
    }

    fn finish(mut self: Box<Self>) -> Result<(), LaunchError> {
        self.member.leave()?;
        wait_for_others(&self.hub_server);
        Ok(())
    }

    fn abort(&mut self, code: i32, sentence: &str) {
        self.member.send_abort(code, sentence);
        wait_for_others(&self.hub_server);
    }
}

#[cfg(test)]
mod tests;
