//! The ranks of a run: brought together, told what to do, heard, and missed when they die.
//!
//! # Model
//! A member is a process of this machine that listens to a pipe, or a connection to one elsewhere. Once all have said where they
//! are and opened their wires they differ in nothing but in how their end is explained.
//!
//! # Invariants
//! I1. Every rank of this machine is ended: dropping the fleet closes all pipes first, which ends the ranks, then reaps them.
//!     Connections belong to whoever gave them, who ends those ranks.

use std::collections::{BTreeMap, BTreeSet};
use std::io::{BufRead, BufReader, Read, Write};
use std::net::{Shutdown, SocketAddrV4, TcpStream};
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::process::{Child, ChildStdin, Command, ExitStatus, Stdio};
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, anyhow, bail};
use clearway_proto::base::{Class, LocalNs, Rank};
use clearway_proto::wire::OperationSet;
use clearway_runtime::keys::Scope;

use super::engine::Measure;
use super::message::{FromRank, RankRecord, Ready, Setup, ToRank};
use super::rank::RANK;
use clearway_wires::facts::CLASSES;
use clearway_wires::{EndLocation, Far, Network, PortRequest, WirePlan, WireSetup};

/// How long ranks may take to start on a busy machine.
const START_PATIENCE: Duration = Duration::from_secs(30);
/// How often a wait looks around.
const LOOK_EVERY: Duration = Duration::from_millis(50);
/// The longest line a rank sends: a record of 6,000 slices with every pair of a large job takes a tenth of this.
const LINE_MAX: u64 = 256 << 20;

/// What tells one run from another.
#[derive(Clone, Copy, Debug)]
pub(super) struct Run {
    pub(super) session: u64,
    pub(super) seed: u64,
    pub(super) measure: Measure,
}

/// One rank, and where it would go if it were not for the run.
pub(super) struct Member {
    host: String,
    /// What to bind.
    address: SocketAddrV4,
    link: Link,
}

/// The way to a rank.
enum Link {
    /// A process of this machine.
    Child(Child, Option<ChildStdin>),
    /// A connection.
    Remote(TcpStream),
}

impl Member {
    /// The command that starts a rank on this machine, not yet placed anywhere.
    pub(super) fn command() -> Result<Command> {
        let program = std::env::current_exe().context("the path of this program")?;
        let mut command = Command::new(program);
        // A process group of its own: an interrupt at the terminal reaches the conductor, which then ends all in order.
        command.arg(RANK).stdin(Stdio::piped()).stdout(Stdio::piped()).process_group(0);
        Ok(command)
    }

    /// A rank that was started with [`Member::command`].
    pub(super) fn child(host: String, address: SocketAddrV4, mut child: Child) -> Self {
        let orders = child.stdin.take();
        Self { host, address, link: Link::Child(child, orders) }
    }

    /// A rank behind `connection`.
    pub(super) fn remote(host: String, address: SocketAddrV4, connection: TcpStream) -> Self {
        Self { host, address, link: Link::Remote(connection) }
    }

    fn output(&mut self) -> Result<Box<dyn Read + Send>> {
        Ok(match &mut self.link {
            Link::Child(child, _) => Box::new(child.stdout.take().context("a rank without output")?),
            Link::Remote(connection) => Box::new(connection.try_clone().context("a connection in both directions")?),
        })
    }

    fn write(&mut self, line: &[u8]) -> std::io::Result<()> {
        match &mut self.link {
            Link::Child(_, Some(orders)) => orders.write_all(line),
            Link::Child(_, None) => Err(std::io::ErrorKind::BrokenPipe.into()),
            Link::Remote(connection) => connection.write_all(line),
        }
    }

    /// Ends what listens to this member.
    fn close(&mut self) {
        match &mut self.link {
            Link::Child(_, orders) => *orders = None,
            Link::Remote(connection) => drop(connection.shutdown(Shutdown::Both)),
        }
    }

    /// How it ended, after it fell silent.
    fn ending(&mut self) -> String {
        self.close();
        match &mut self.link {
            Link::Child(child, _) => child.wait().map_or_else(|error| error.to_string(), ending),
            Link::Remote(_) => "is gone: its process or its host ended, or the connection to it broke".to_owned(),
        }
    }
}

/// How a process ended.
pub(super) fn ending(status: ExitStatus) -> String {
    match (status.signal(), status.code()) {
        (Some(signal), _) => format!("was killed by signal {signal}"),
        (None, Some(code)) => format!("ended with status {code}"),
        (None, None) => "ended".to_owned(),
    }
}

/// What the reader of one rank's output found.
type Heard = (Rank, Option<FromRank>);

/// What is heard of a rank.
pub(super) enum Word {
    Said(FromRank),
    /// Its process ended, or its host did; and how.
    Gone(String),
}

/// All ranks.
pub(crate) struct Fleet {
    members: Vec<Member>,
    heard: Receiver<Heard>,
    /// Those that were missed and told to be.
    gone: BTreeSet<Rank>,
    facts: Ready,
    far: Far,
    /// What they talk over, for a person, by name.
    wires: BTreeMap<String, String>,
}

impl Fleet {
    /// Makes `members`, by rank, a fleet on `network` that talks in one of `ways`: waits until all wires are open. Keys, where there
    /// are any, must be made with those of `job`.
    pub(super) fn gather(
        members: Vec<Member>,
        network: Network,
        ways: &WirePlan,
        run: Run,
        job: Option<&Scope>,
        watch: &mut dyn FnMut() -> Result<()>,
    ) -> Result<Self> {
        let (sender, heard) = channel();
        let facts = Ready { body_max: 0, overhead: 0, operations: OperationSet::default(), classes: Vec::new() };
        let mut fleet =
            Self { members, heard, gone: BTreeSet::new(), facts, far: Far::Nothing, wires: BTreeMap::new() };
        for (rank, member) in (0..).map(Rank).zip(&mut fleet.members) {
            listen(rank, member.output()?, sender.clone());
        }
        for rank in fleet.ranks() {
            let address = fleet.members[rank.index()].address;
            fleet.tell(
                rank,
                &ToRank::Bind(PortRequest { rank, session: run.session, address, network, far: ways.far }),
            )?;
        }
        let all: Vec<Rank> = fleet.ranks().collect();
        let mut peers = fleet.answers(&all, START_PATIENCE, watch, |message| match message {
            FromRank::Bound(place) => Some(place),
            _ => None,
        })?;
        if let Some(job) = job {
            fleet.check_cards(job, &peers)?;
        }
        let choice = ways.choose(network, &peers, &|rank| fleet.name(rank))?;
        (fleet.far, fleet.wires) = (choice.far, choice.facts);
        peers.iter_mut().for_each(|peer| peer.keep(choice.far));
        let wire = WireSetup { far: choice.far, hosts: ways.hosts.clone(), peers, need: run.measure.need() };
        let setup = ToRank::Open(Setup { seed: run.seed, measure: run.measure, wire });
        for rank in fleet.ranks() {
            fleet.tell(rank, &setup)?;
        }
        let ready = fleet.answers(&all, START_PATIENCE, watch, |message| match message {
            FromRank::Ready(ready) => Some(ready),
            _ => None,
        })?;
        // Paths differ in what they let through: the least is what all pairs can do.
        let common = |a: Ready, b: Ready| {
            let operations = a.operations.and(b.operations);
            Ready { operations, ..if b.body_max < a.body_max { b } else { a } }
        };
        fleet.facts = ready.into_iter().reduce(common).context("no ranks")?;
        fleet.wires.insert(CLASSES.to_owned(), classes_of(&fleet.facts));
        Ok(fleet)
    }

    /// Refuses who has another key, by name: its peers would refuse it as well, and it all of them.
    fn check_cards(&self, job: &Scope, peers: &[EndLocation]) -> Result<()> {
        for (rank, card) in (0..).map(Rank).zip(peers).filter_map(|(rank, peer)| Some((rank, peer.card.as_ref()?))) {
            job.check(rank, card).with_context(|| format!("{} cannot take part", self.name(rank)))?;
        }
        Ok(())
    }

    /// All ranks in order.
    pub(super) fn ranks(&self) -> impl Iterator<Item = Rank> + use<> {
        (0..self.members.len() as u32).map(Rank)
    }

    /// The names of their hosts.
    pub(super) fn hosts(&self) -> Vec<String> {
        self.members.iter().map(|member| member.host.clone()).collect()
    }

    /// How ranks reach each other that share no memory.
    pub(super) fn far(&self) -> Far {
        self.far
    }

    /// What the ranks talk over, for a person, by name.
    pub(super) fn wires(&self) -> &BTreeMap<String, String> {
        &self.wires
    }

    /// What the ranks' wires can do.
    pub(super) fn facts(&self) -> &Ready {
        &self.facts
    }

    /// Gives `rank` an order.
    pub(super) fn tell(&mut self, rank: Rank, order: &ToRank) -> Result<()> {
        let line = line_of(order)?;
        let member = self.members.get_mut(rank.index()).context("no such rank")?;
        if member.write(&line).is_err() {
            return Err(self.silence(rank));
        }
        Ok(())
    }

    /// Waits for the records of `ranks`, in that order; `watch` is called about ten times a second and can end the wait.
    pub(super) fn records(
        &mut self,
        ranks: &[Rank],
        patience: Duration,
        watch: &mut dyn FnMut() -> Result<()>,
    ) -> Result<Vec<RankRecord>> {
        self.records_that(ranks, patience, watch, &mut Some)
    }

    /// Waits for the record of every one of `ranks` that `take` keeps.
    pub(super) fn records_that(
        &mut self,
        ranks: &[Rank],
        patience: Duration,
        watch: &mut dyn FnMut() -> Result<()>,
        take: &mut dyn FnMut(RankRecord) -> Option<RankRecord>,
    ) -> Result<Vec<RankRecord>> {
        self.answers(ranks, patience, watch, |message| match message {
            FromRank::Record(record) => take(*record),
            _ => None,
        })
    }

    /// What the clock of `rank` says. Nothing else may be under way.
    pub(super) fn time(&mut self, rank: Rank) -> Result<LocalNs> {
        self.tell(rank, &ToRank::Time)?;
        match self.heard.recv_timeout(START_PATIENCE) {
            Ok((_, Some(FromRank::Time(time)))) => Ok(time),
            Ok((_, Some(FromRank::Failed(sentence)))) => Err(self.refusal(rank, &sentence)),
            Ok((silent, None)) => Err(self.silence(silent)),
            Ok((dead, Some(FromRank::Ended(how)))) => Err(self.death(dead, &how)),
            _ => bail!("{} does not say what time it is", self.name(rank)),
        }
    }

    /// One answer of each of `ranks`, in that order.
    fn answers<T>(
        &mut self,
        ranks: &[Rank],
        patience: Duration,
        watch: &mut dyn FnMut() -> Result<()>,
        mut take: impl FnMut(FromRank) -> Option<T>,
    ) -> Result<Vec<T>> {
        let deadline = Instant::now() + patience;
        let mut answers: BTreeMap<Rank, T> = BTreeMap::new();
        while let Some(silent) = ranks.iter().find(|rank| !answers.contains_key(rank)) {
            match self.hear(LOOK_EVERY, watch)? {
                Some((rank, message)) => answers.extend(take(message).map(|answer| (rank, answer))),
                None if Instant::now() > deadline => {
                    let name = self.name(*silent);
                    bail!("{name} has not answered for {patience:?}; its machine may be too busy");
                }
                None => {}
            }
        }
        Ok(ranks.iter().filter_map(|rank| answers.remove(rank)).collect())
    }

    /// The next that a rank says, or that it is gone, for runs that go on without it. `watch` is called first and can end the wait.
    pub(super) fn hear_or_miss(
        &mut self,
        patience: Duration,
        watch: &mut dyn FnMut() -> Result<()>,
    ) -> Result<Option<(Rank, Word)>> {
        watch()?;
        match self.heard.recv_timeout(patience) {
            Ok((rank, _)) if self.gone.contains(&rank) => Ok(None),
            Ok((rank, Some(FromRank::Failed(sentence)))) => Err(self.refusal(rank, &sentence)),
            Ok((rank, Some(FromRank::Ended(how)))) => Ok(Some(self.miss(rank, how))),
            Ok((rank, Some(message))) => Ok(Some((rank, Word::Said(message)))),
            Ok((rank, None)) => {
                // The user's interrupt may have ended the rank first.
                watch()?;
                let how = self.ending(rank);
                Ok(Some(self.miss(rank, how)))
            }
            Err(RecvTimeoutError::Timeout) => Ok(None),
            Err(RecvTimeoutError::Disconnected) => bail!("all ranks are gone"),
        }
    }

    fn miss(&mut self, rank: Rank, how: String) -> (Rank, Word) {
        self.gone.insert(rank);
        (rank, Word::Gone(how))
    }

    /// Gives `rank` an order, if it is there: whoever hears the fleet hears of its end.
    pub(super) fn try_to_tell(&mut self, rank: Rank, order: &ToRank) -> Result<()> {
        let line = line_of(order)?;
        if let Some(member) = self.members.get_mut(rank.index()) {
            let _ = member.write(&line);
        }
        Ok(())
    }

    /// Ends every rank of this machine.
    pub(super) fn end(&mut self) {
        for member in &mut self.members {
            if let Link::Child(_, orders) = &mut member.link {
                *orders = None;
            }
        }
        for member in &mut self.members {
            if let Link::Child(child, _) = &mut member.link {
                // A rank that is stopped or stuck would not notice its closed pipe.
                let _ = child.kill();
                let _ = child.wait();
            }
        }
    }

    /// The next that a rank says, if one does so within `patience`. `watch` is called first and can end the wait.
    pub(super) fn hear(
        &mut self,
        patience: Duration,
        watch: &mut dyn FnMut() -> Result<()>,
    ) -> Result<Option<(Rank, FromRank)>> {
        watch()?;
        match self.heard.recv_timeout(patience) {
            Ok((rank, Some(FromRank::Failed(sentence)))) => Err(self.refusal(rank, &sentence)),
            Ok((rank, Some(FromRank::Ended(how)))) => Err(self.death(rank, &how)),
            Ok((rank, Some(message))) => Ok(Some((rank, message))),
            Ok((rank, None)) => {
                // The user's interrupt may have ended the rank first.
                watch()?;
                Err(self.silence(rank))
            }
            Err(RecvTimeoutError::Timeout) => Ok(None),
            Err(RecvTimeoutError::Disconnected) => bail!("all ranks are gone"),
        }
    }

    /// A rank for a person.
    pub(super) fn name(&self, rank: Rank) -> String {
        format!("rank {rank} on host {}", self.host(rank))
    }

    /// The name of its host.
    pub(super) fn host(&self, rank: Rank) -> &str {
        self.members.get(rank.index()).map_or("?", |member| &member.host)
    }

    fn refusal(&self, rank: Rank, sentence: &str) -> anyhow::Error {
        anyhow!("{} cannot take part: {sentence}", self.name(rank))
    }

    /// How a rank that went silent ended, as an error.
    fn silence(&mut self, rank: Rank) -> anyhow::Error {
        let how = self.ending(rank);
        self.death(rank, &how)
    }

    fn ending(&mut self, rank: Rank) -> String {
        self.members.get_mut(rank.index()).map_or_else(String::new, Member::ending)
    }

    fn death(&self, rank: Rank, how: &str) -> anyhow::Error {
        anyhow!("{} {how} in the middle of the run; run again", self.name(rank))
    }
}

/// An order as a line.
fn line_of(order: &ToRank) -> Result<Vec<u8>> {
    let mut line = serde_json::to_vec(order).context("an order that JSON cannot hold")?;
    line.push(b'\n');
    Ok(line)
}

/// What becomes of each class between hosts.
fn classes_of(facts: &Ready) -> String {
    let mut by_fate: BTreeMap<&str, Vec<&str>> = BTreeMap::new();
    for (class, fate) in Class::ALL.into_iter().zip(&facts.classes) {
        by_fate.entry(fate).or_default().push(class.name());
    }
    let fates: Vec<String> = by_fate.iter().map(|(fate, classes)| format!("{}: {fate}", classes.join(", "))).collect();
    fates.join("; ")
}

/// Reads a rank's lines on a thread of their own until its output closes.
fn listen(rank: Rank, output: Box<dyn Read + Send>, sender: Sender<Heard>) {
    thread::spawn(move || {
        let mut output = BufReader::new(output);
        let mut line = Vec::new();
        loop {
            line.clear();
            if output.by_ref().take(LINE_MAX).read_until(b'\n', &mut line).unwrap_or(0) == 0 {
                let _ = sender.send((rank, None));
                return;
            }
            // A rank that died in the middle of a line leaves half of one; what follows says how it ended.
            let Ok(message) = serde_json::from_slice(&line) else { continue };
            if sender.send((rank, Some(message))).is_err() {
                return;
            }
        }
    });
}

impl Drop for Fleet {
    fn drop(&mut self) {
        self.end();
    }
}
