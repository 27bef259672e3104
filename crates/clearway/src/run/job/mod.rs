//! A run across the ranks of a job: who coordinates, who follows, and how they find each other.
//!
//! # Model
//! A launcher starts the same command on every rank, or this process starts ranks over ssh. All
//! exchange a [`HostDescription`]; that of the coordinator says where its listener is. Under a
//! launcher rank 0 coordinates, and so that coordinating takes nothing from measuring, its own rank
//! is a process next to it, as in a laboratory. The process that started the others over ssh
//! coordinates and does not measure. Every other rank goes to the listener and gives its connection
//! to a process that obeys it; what is left of it waits for that process and tells the coordinator
//! how it ended.
//!
//! Where a run goes on without ranks that die, a process that knows the job's credential can take
//! the place of one (`admission`).
//!
//! Control goes over connections of its own, between phases only.
//!
//! # Invariants
//! I1. A follower ends when its connection does, and its process with it. If it was not notified that
//!     the run is over, it ends the job.
//! I2. A process that comes in at the listener knows a number that only the exchange
//!     carried.

mod admission;
mod follower;
mod host_description;
pub(crate) mod interface;
mod listener;
mod ssh;
mod switches;

use std::cell::RefCell;
use std::collections::BTreeSet;
use std::io::{self, Write};
use std::net::{SocketAddrV4, TcpStream};
use std::process::Child;
use std::rc::Rc;
use std::time::Duration;

use anyhow::{Context, Result};
use clearway_proto::base::{BitsPerSec, Rank};
use clearway_runtime::keys::{JobSecret, KeyScope};
use clearway_runtime::launch::{
    self, Credential, Job, JoinMethod, JoinOptions, LauncherUse, ProgramShare,
};

use super::interrupt::Interrupt;
use super::message::ToRank;
use super::processes::RankProcess;
use super::rank_process::SECRET_VARIABLE;
use crate::run::exit::Exit;
use crate::run::notice;
use admission::AdmissionDoor;
pub(crate) use admission::{JobCredential, JoinCandidate, JoinRefusal, join};
use clearway_wires::hexadecimal::digits_of;
use clearway_wires::{Network, WirePlan, WireRequest};
pub(crate) use follower::Follower;
use host_description::HostDescription;
pub(crate) use listener::tune;
use listener::{JobListener, SecretSource};
pub(crate) use ssh::{SshHosts, follow};
use switches::SwitchTree;
pub(crate) use switches::{JobNeighbourhoods, TopologySource};

/// How long the launcher may take to bring all ranks together: seconds on a busy machine, and a
/// batch system starts slowly.
const TIMEOUT: Duration = Duration::from_secs(60);

/// How a job comes about, and what is wanted of it.
#[derive(Clone, Debug)]
pub(crate) struct JobSpec {
    /// Whether others can read its messages.
    pub(crate) sealing: SealingPolicy,
    /// What its ranks talk over.
    pub(crate) wire: WireRequest,
    /// Whether the run goes on without ranks that end.
    pub(crate) losses: LossPolicy,
    /// The user of the launcher's own ways of meeting.
    pub(crate) launcher: LauncherUse,
    /// Where this process is to start ranks; without it a launcher has started them, this process
    /// among them.
    pub(crate) hosts: Option<SshHosts>,
}

impl JobSpec {
    /// A job that a launcher started: sealed, over any wire, and ended with any of its ranks.
    pub(crate) const LAUNCHED: Self = Self {
        sealing: SealingPolicy::Sealed,
        wire: WireRequest::AUTO,
        losses: LossPolicy::EndJob,
        launcher: LauncherUse::Own,
        hosts: None,
    };
}

/// What this process is in its job.
pub(crate) enum JobRole {
    /// The process that says what is done.
    Coordinator(Box<CoordinatedJob>),
    /// Any other.
    Follower(Follower),
}

/// A job as its coordinator sees it.
pub(crate) struct CoordinatedJob {
    job: Job,
    listener: JobListener,
    /// Of all ranks of the job, the coordinator's included.
    descriptions: Vec<HostDescription>,
    credential: Credential,
    sealing: SealingPolicy,
    wire: WireRequest,
    interrupt: Interrupt,
    /// What a program needs to use the launcher.
    share: ProgramShare,
    losses: LossPolicy,
    /// The connections to the other ranks; their processes end with them.
    followers: Rc<RefCell<Vec<TcpStream>>>,
}

/// Takes processes into the job that join it while it runs.
pub(crate) struct JobAdmission {
    door: AdmissionDoor,
    /// Of the coordinator.
    description: HostDescription,
    network: Network,
    job_secret: String,
    followers: Rc<RefCell<Vec<TcpStream>>>,
}

/// A rank that is coordinated, without a process that measures.
pub(crate) struct ConnectedRank {
    pub(crate) rank: Rank,
    pub(crate) connection: TcpStream,
}

/// Returns the name of this host.
pub(crate) fn host_name() -> Result<String> {
    Ok(nix::unistd::gethostname().context("the name of this host")?.to_string_lossy().into_owned())
}

/// What becomes of a job one of whose ranks ends, the coordinator's aside.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum LossPolicy {
    /// It ends.
    EndJob,
    /// It goes on, as far as its launcher lets it.
    Continue,
}

/// What the user wants of messages between machines.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum SealingPolicy {
    /// Nobody else can read or forge them.
    Sealed,
    /// They travel as they are.
    Insecure,
}

/// Joins the job that a launcher started, or starts it as `order` says, and finds out what this
/// process is in it.
///
/// # Errors
/// One sentence: why ranks did not come together, and what was tried.
pub(crate) fn join_or_start(order: &JobSpec) -> Result<JobRole> {
    let Some(hosts) = &order.hosts else {
        let options =
            JoinOptions { timeout: TIMEOUT, launcher: order.launcher, ..JoinOptions::default() };
        let job = launch::join(&options)?;
        let interrupt = Interrupt::listen()?;
        return match job.rank() {
            Rank(0) => {
                Ok(JobRole::Coordinator(Box::new(CoordinatedJob::new(job, order, interrupt))))
            }
            _ => Ok(JobRole::Follower(Follower::new(job, order))),
        };
    };
    let interrupt = Interrupt::listen()?;
    let job = hosts.start(&interrupt)?;
    Ok(JobRole::Coordinator(Box::new(CoordinatedJob::new(job, order, interrupt))))
}

/// Gives everybody this process's description, with the listener of who has one, and takes theirs;
/// who vouches for them.
fn exchange(
    job: &mut Job,
    listener: Option<&JobListener>,
    sealing: SealingPolicy,
) -> Result<(Vec<HostDescription>, Credential)> {
    let own = serde_json::to_vec(&HostDescription::own(listener)?)
        .context("a card that JSON cannot hold")?;
    // A launcher that gives its ranks a secret needs nobody to vouch for them.
    let is_enough = sealing == SealingPolicy::Insecure || job.secret().is_some();
    let (descriptions, credential) = if is_enough {
        (job.exchange(&own)?, Credential::Nobody)
    } else {
        job.exchange_with_credential(&own)?
    };
    let read = |description: &Vec<u8>| {
        let description: HostDescription = serde_json::from_slice(description)
            .context("a rank of another version of this program takes part")?;
        description.check().map(|()| description)
    };
    Ok((descriptions.iter().map(read).collect::<Result<_>>()?, credential))
}

/// Prepares `job` for what comes behind its last exchange; returns what a program needs that this
/// process leaves the launcher to.
fn settle(job: &mut Job, order: &JobSpec) -> Result<ProgramShare> {
    if order.losses == LossPolicy::Continue {
        job.go_on_without_lost();
    }
    match order.launcher {
        LauncherUse::Own => Ok(ProgramShare::default()),
        LauncherUse::Program => Ok(job.hand_over()?),
    }
}

/// Ends `job` for all its ranks, because of `error`, before it is a run.
fn give_up(job: Job, error: &anyhow::Error) -> ! {
    job.abort(Exit::Failed as i32, &format!("clearway: {error:#}"))
}

/// Returns the secret that the launcher of `job` gave its ranks, as a word.
fn secret_word(job: &Job) -> Option<String> {
    Some(digits_of(job.secret()?))
}

impl CoordinatedJob {
    /// Creates the job that this process coordinates. Where it cannot come about it ends for all.
    fn new(mut job: Job, order: &JobSpec, interrupt: Interrupt) -> Self {
        let (sealing, wire) = (order.sealing, order.wire);
        let exchanged = Self::exchange_addresses(&mut job, sealing);
        match exchanged.and_then(|exchanged| Ok((exchanged, settle(&mut job, order)?))) {
            Ok(((listener, descriptions, credential), share)) => Self {
                job,
                listener,
                descriptions,
                credential,
                sealing,
                wire,
                interrupt,
                share,
                losses: order.losses,
                followers: Rc::default(),
            },
            Err(error) => give_up(job, &error),
        }
    }

    /// Opens the listener and tells everybody where it is.
    fn exchange_addresses(
        job: &mut Job,
        sealing: SealingPolicy,
    ) -> Result<(JobListener, Vec<HostDescription>, Credential)> {
        let secret = if job.secret().is_some() {
            SecretSource::OfLauncher
        } else {
            SecretSource::OfListener
        };
        let listener = JobListener::open(secret)?;
        let (descriptions, credential) = exchange(job, Some(&listener), sealing)?;
        Ok((listener, descriptions, credential))
    }

    /// Returns whether the coordinator only coordinates: it has started the ranks then, is the last
    /// of the job, and none of the run. A coordinator that measures is the first.
    fn is_apart(&self) -> bool {
        self.job.rank() != Rank(0)
    }

    /// Returns the descriptions of the ranks that measure.
    fn measuring(&self) -> &[HostDescription] {
        let apart = usize::from(self.is_apart());
        self.descriptions.get(..self.descriptions.len() - apart).unwrap_or_default()
    }

    /// Returns how many ranks measure.
    pub(crate) fn size(&self) -> u32 {
        self.measuring().len() as u32
    }

    /// Returns the user's wish to stop.
    pub(crate) fn interrupt(&self) -> &Interrupt {
        &self.interrupt
    }

    /// Returns the rate of the slowest host link of the job, shared by the ranks of its host, where
    /// the machines tell it.
    pub(crate) fn rate(&self) -> Option<BitsPerSec> {
        let ranks = self.measuring();
        let sharing = |description: &HostDescription| {
            ranks.iter().filter(|other| other.is_same_host(description)).count() as u64
        };
        let rates = ranks.iter().map(|description| {
            description.rate().map(|rate| BitsPerSec(rate.0 / sharing(description)))
        });
        rates.collect::<Option<Vec<_>>>()?.into_iter().min()
    }

    /// Returns the ranks of each host, in the order of their first.
    pub(crate) fn hosts(&self) -> Vec<Vec<Rank>> {
        let mut hosts: Vec<(&HostDescription, Vec<Rank>)> = Vec::new();
        for (rank, description) in (0..).map(Rank).zip(self.measuring()) {
            match hosts.iter_mut().find(|(first, _)| first.is_same_host(description)) {
                Some((_, ranks)) => ranks.push(rank),
                None => hosts.push((description, vec![rank])),
            }
        }
        hosts.into_iter().map(|(_, ranks)| ranks).collect()
    }

    /// Returns the part of the network that each rank is in, as `source` tells, and prints on
    /// standard error what is not known of it.
    ///
    /// # Errors
    /// The file of `source` cannot be read: one sentence.
    pub(crate) fn neighbourhoods(&self, source: &TopologySource) -> Result<JobNeighbourhoods> {
        let ranks = self.measuring();
        let paths: Vec<_> = match source {
            TopologySource::None | TopologySource::Measured => Vec::new(),
            TopologySource::Auto => host_description::paths_of_slurm(ranks),
            TopologySource::File(path) => {
                let tree = SwitchTree::read(path)?;
                ranks.iter().map(|description| tree.path(&description.host)).collect()
            }
        };
        let unknown: BTreeSet<&str> = ranks
            .iter()
            .zip(&paths)
            .filter(|(_, path)| path.is_none())
            .map(|(description, _)| description.host.as_str())
            .collect();
        if let (Some(first), TopologySource::File(path)) = (unknown.first(), source) {
            notice!(
                "clearway: {} does not name {} of the hosts, as {}: they are taken for neighbours",
                path.display(),
                unknown.len(),
                launch::escaped(first)
            );
        }
        Ok(JobNeighbourhoods::from_paths(&paths))
    }

    /// Returns how the ranks found each other, and who vouches for them.
    pub(super) fn launcher(&self) -> String {
        match self.credential {
            Credential::Nobody => self.job.method().to_string(),
            Credential::Munge => format!("{}, munge", self.job.method()),
        }
    }

    /// Returns why the ranks did not find each other in another way, a line each.
    pub(crate) fn notes(&self) -> &[String] {
        self.job.notes()
    }

    /// Returns what kind of network lies between the ranks, the coordinator included: it tells them
    /// when to begin.
    pub(super) fn network(&self) -> Network {
        host_description::network_between(&self.descriptions, self.sealing)
    }

    /// Returns what its ranks can talk over.
    ///
    /// # Errors
    /// One sentence: which ranks cannot reach each other as the user wants.
    pub(super) fn wire_plan(&self) -> Result<WirePlan> {
        let descriptions = self.measuring();
        let host = |description: &HostDescription| {
            descriptions
                .iter()
                .position(|other| other.is_same_host(description))
                .unwrap_or_default() as u32
        };
        let hosts: Vec<u32> = descriptions.iter().map(host).collect();
        let name = |rank: Rank| {
            format!(
                "rank {rank} on host {}",
                descriptions.get(rank.index()).map_or("?", |description| description.host.as_str())
            )
        };
        Ok(WirePlan::new(self.wire, &hosts, &name)?)
    }

    /// Returns the members of the fleet, this process's own rank among them if it has one. `watch`
    /// is called about ten times a second and can end the wait.
    pub(super) fn members(
        &self,
        watch: &mut dyn FnMut() -> Result<()>,
    ) -> Result<Vec<RankProcess>> {
        // It starts while the others come.
        let own_rank = if self.is_apart() { None } else { Some(self.own_rank()?) };
        let peers =
            self.listener.accept_all(&self.descriptions, self.job.rank(), TIMEOUT, watch)?;
        let name = |rank: usize| {
            self.descriptions
                .get(rank)
                .map_or_else(String::new, |description| description.host.clone())
        };
        let mut members = Vec::new();
        if let Some(child) = own_rank {
            let own = peers.first().map_or(std::net::Ipv4Addr::LOCALHOST, |peer| peer.reached);
            members.push(RankProcess::child(name(0), SocketAddrV4::new(own, 0), child));
        }
        for peer in peers {
            let address = SocketAddrV4::new(peer.from, 0);
            let kept = peer.connection.try_clone().context("a connection that stays")?;
            self.followers.borrow_mut().push(kept);
            members.push(RankProcess::remote(name(peer.rank.index()), address, peer.connection));
        }
        Ok(members)
    }

    /// Returns what a program needs that this process leaves the launcher to.
    pub(crate) fn program_share(&self) -> &ProgramShare {
        &self.share
    }

    /// Returns whether no launcher started this process.
    pub(crate) fn is_alone(&self) -> bool {
        *self.job.method() == JoinMethod::Single
    }

    /// Returns the host of `rank`.
    pub(crate) fn host(&self, rank: Rank) -> &str {
        self.descriptions.get(rank.index()).map_or("?", |description| description.host.as_str())
    }

    /// Returns all other ranks, as they connect.
    ///
    /// # Errors
    /// One does not come.
    pub(crate) fn accept_ranks(&self) -> Result<Vec<ConnectedRank>> {
        let peers =
            self.listener.accept_all(&self.descriptions, self.job.rank(), TIMEOUT, &mut || {
                self.interrupt.check()
            })?;
        let connected = |peer: listener::AcceptedRank| ConnectedRank {
            rank: peer.rank,
            connection: peer.connection,
        };
        Ok(peers.into_iter().map(connected).collect())
    }

    /// Returns the process of this process's own rank. It ends by itself when nobody holds it.
    fn own_rank(&self) -> Result<Child> {
        let mut command = RankProcess::command()?;
        command
            .env(SECRET_VARIABLE, self.secret()?)
            .spawn()
            .context("this process's own rank cannot start")
    }

    /// Opens the way into the job, where its run goes on without ranks that die.
    pub(super) fn admission(&self) -> Result<Option<JobAdmission>> {
        if self.losses == LossPolicy::EndJob {
            return Ok(None);
        }
        let description = HostDescription::own(None)?;
        let network = self.network();
        Ok(Some(JobAdmission {
            door: AdmissionDoor::open(&description, network.is_one_machine())?,
            description,
            network,
            job_secret: self.secret()?,
            followers: self.followers.clone(),
        }))
    }

    /// Returns what the keys of all ranks are made for in the run of number `session`.
    pub(super) fn scope(&self, session: u64) -> Result<KeyScope> {
        Ok(KeyScope {
            session,
            epoch: 0,
            secret: Some(JobSecret::new(self.secret()?.into_bytes())?),
        })
    }

    /// Returns what the keys of all ranks are made with.
    pub(crate) fn secret(&self) -> Result<String> {
        let own = secret_word(&self.job).or_else(|| self.listener.address().job_secret);
        own.context("a job whose ranks share no secret")
    }

    /// Leaves the job in order, together with all followers.
    pub(crate) fn leave(mut self) -> Result<()> {
        let mut line =
            serde_json::to_vec(&ToRank::<()>::Leave).context("an order that JSON cannot hold")?;
        line.push(b'\n');
        dismiss(self.followers.take(), &line);
        self.job.barrier()?;
        Ok(self.job.finish()?)
    }

    /// Ends the job for all its ranks; why has been said.
    pub(crate) fn end(self, code: Exit) -> ! {
        self.job.abort(code as i32, "")
    }

    /// Ends the job for all its ranks, because of `error`.
    pub(crate) fn abort(self, code: Exit, error: &anyhow::Error) -> ! {
        self.job.abort(code as i32, &format!("clearway: {error:#}"))
    }
}

impl JobAdmission {
    /// Returns what a process needs to come in.
    pub(super) fn credential(&self) -> &JobCredential {
        self.door.credential()
    }

    /// Returns the next process that asks for a place, if one does.
    pub(super) fn next(&self) -> Option<JoinCandidate> {
        self.door.next()
    }

    /// Makes `candidate` the process of `rank`, or turns it away; `None` if it has not become that.
    pub(super) fn admit(
        &self,
        candidate: JoinCandidate,
        rank: Rank,
    ) -> Result<Option<RankProcess>> {
        let description = candidate.description();
        let refusal = match description.check() {
            Err(error) => Some(error.to_string()),
            Ok(())
                if self.network.is_one_machine()
                    && !description.is_same_host(&self.description) =>
            {
                Some(format!(
                    "all ranks of this job are on host {}, and only a process there can join it",
                    self.description.host
                ))
            }
            Ok(()) => None,
        };
        if let Some(sentence) = refusal {
            candidate.refuse(JoinRefusal::Now(sentence));
            return Ok(None);
        }
        let host = description.host.clone();
        let address = SocketAddrV4::new(candidate.from(), 0);
        // One that is gone by now has no place to lose.
        let Ok(connection) = candidate.welcome(rank, self.job_secret.clone()) else {
            return Ok(None);
        };
        let kept = connection.try_clone().context("a connection that stays")?;
        self.followers.borrow_mut().push(kept);
        Ok(Some(RankProcess::remote(host, address, connection)))
    }
}

/// Sends `line` to every follower, then reads what each still says until it closes its connection.
/// A rank that reports its progress to a closed connection would fail before it reads `line`.
fn dismiss(mut followers: Vec<TcpStream>, line: &[u8]) {
    // A follower that is gone does not come to the barrier, which reports it.
    for follower in &mut followers {
        let _ = follower.write_all(line);
    }
    for mut follower in followers {
        let _ = io::copy(&mut follower, &mut io::sink());
    }
}

#[cfg(test)]
mod tests {
    use std::io::{BufRead, BufReader, Write};
    use std::net::{Ipv4Addr, TcpListener, TcpStream};
    use std::thread;

    use super::dismiss;

    #[test]
    fn dismiss__a_rank_that_still_speaks_reads_that_the_run_is_over() {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).expect("a port");
        let address = listener.local_addr().expect("an address");
        let rank = thread::spawn(move || {
            let mut coordinator = TcpStream::connect(address).expect("a connection");
            // Far more than both sockets hold.
            (0..64).try_for_each(|_| coordinator.write_all(&[b'.'; 1 << 20])).map(|()| {
                let mut line = String::new();
                BufReader::new(coordinator).read_line(&mut line).expect("a line");
                line
            })
        });
        let follower = listener.accept().expect("a rank").0;
        dismiss(vec![follower], b"leave\n");
        assert_eq!(rank.join().expect("no panic").expect("nothing is refused"), "leave\n");
    }
}
