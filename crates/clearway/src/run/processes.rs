//! The processes of a run's ranks: brought together, sent messages, heard, and missed when they
//! die.
//!
//! # Model
//! A member is a process of this machine that listens to a pipe, or a connection to one elsewhere.
//! Once all have said where they are and opened their wires they differ in nothing but in how their
//! end is explained.
//!
//! # Invariants
//! I1. Every rank of this machine is ended: dropping them closes all pipes first, which ends the
//!     ranks, then reaps them.
//!     Connections belong to the caller that gave them, which ends those ranks.

mod start;

use std::collections::{BTreeMap, BTreeSet};
use std::io::{BufRead, BufReader, Read, Write};
use std::net::{Shutdown, SocketAddrV4, TcpStream};
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::process::{Child, ChildStdin, Command, ExitStatus, Stdio};
use std::sync::mpsc::{Receiver, RecvTimeoutError, SyncSender, sync_channel};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, anyhow, bail};
use clearway_proto::base::{Class, LocalNs, Rank};
use clearway_proto::wire::OperationSet;
use clearway_runtime::keys::KeyScope;
use clearway_wires::facts::CLASSES;
use clearway_wires::{
    EndLocation, Network, PortRequest, RemoteTransport, WireNeeds, WirePlan, WireSetup,
};
use serde::Serialize;
use serde::de::{DeserializeOwned, IgnoredAny};

use self::start::StartStep;
use super::interrupt::Interrupt;
use super::message::{FromRank, Ready, Setup, ToRank};
#[cfg(not(test))]
use super::rank_process::RANK;
use super::session::{Protocol, Session};

/// How long ranks may take to start on a busy machine.
const START_TIMEOUT: Duration = Duration::from_secs(30);
/// What ranks do first.
const START: StartStep = StartStep { wanted: "said where it is", timeout: START_TIMEOUT };
/// How often a wait looks for the user's interrupt.
const LOOK_EVERY: Duration = Duration::from_millis(50);
/// The longest line a rank sends: a record of 6,000 slices with every pair of a large job takes 26
/// MB.
const LINE_MAX: u64 = 64 << 20;
/// Lines that wait: a rank that says more than is heard waits, and its host's memory holds what it
/// says.
const LINES_MAX: usize = 1;

/// What tells one run from another.
#[derive(Clone, Copy, Debug)]
pub(super) struct RunId {
    pub(super) session: u64,
    pub(super) seed: u64,
    /// The mechanism's name.
    pub(super) mechanism: &'static str,
    pub(super) need: WireNeeds,
}

/// One rank, and where it would go if it were not for the run.
pub(super) struct RankProcess {
    host: String,
    /// What to bind.
    address: SocketAddrV4,
    link: RankLink,
    /// How many processes were this rank before.
    incarnation: u32,
    stage: MemberStage,
}

/// How far a process that takes the place of another is.
enum MemberStage {
    /// It takes an address; what it hears when it has a wire.
    Binding(Vec<u8>),
    /// It opens its wire.
    Opening,
    /// It has one.
    Open,
}

/// The way to a rank.
enum RankLink {
    /// A process of this machine.
    Child(Child, Option<ChildStdin>),
    /// A connection.
    Remote(TcpStream),
}

impl RankProcess {
    /// Returns the command that starts a rank on this machine, not yet placed anywhere.
    pub(super) fn command() -> Result<Command> {
        let program = std::env::current_exe().context("the path of this program")?;
        let mut command = Command::new(program);
        as_rank(&mut command);
        // A process group of its own: an interrupt at the terminal reaches the coordinator, which
        // then ends all in order.
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).process_group(0);
        Ok(command)
    }

    /// Creates a rank that was started with [`RankProcess::command`].
    pub(super) fn child(host: String, address: SocketAddrV4, mut child: Child) -> Self {
        let orders = child.stdin.take();
        Self::new(host, address, RankLink::Child(child, orders))
    }

    /// Creates a rank behind `connection`.
    pub(super) fn remote(host: String, address: SocketAddrV4, connection: TcpStream) -> Self {
        Self::new(host, address, RankLink::Remote(connection))
    }

    const fn new(host: String, address: SocketAddrV4, link: RankLink) -> Self {
        Self { host, address, link, incarnation: 0, stage: MemberStage::Open }
    }

    fn output(&mut self) -> Result<Box<dyn Read + Send>> {
        Ok(match &mut self.link {
            RankLink::Child(child, _) => {
                Box::new(child.stdout.take().context("a rank without output")?)
            }
            RankLink::Remote(connection) => {
                Box::new(connection.try_clone().context("a connection in both directions")?)
            }
        })
    }

    fn write(&mut self, line: &[u8]) -> std::io::Result<()> {
        match &mut self.link {
            RankLink::Child(_, Some(orders)) => orders.write_all(line),
            RankLink::Child(_, None) => Err(std::io::ErrorKind::BrokenPipe.into()),
            RankLink::Remote(connection) => connection.write_all(line),
        }
    }

    /// Writes `line` when it has a wire.
    fn write_or_keep(&mut self, line: &[u8]) -> std::io::Result<()> {
        match &mut self.stage {
            MemberStage::Binding(kept) => {
                kept.extend_from_slice(line);
                Ok(())
            }
            MemberStage::Opening | MemberStage::Open => self.write(line),
        }
    }

    /// Ends its process if it is one of this machine. A connection stays open: the process behind
    /// it ends its whole job when it is closed before the run is over.
    fn discard(self) {
        if let RankLink::Child(mut child, _) = self.link {
            let _ = child.kill();
            let _ = child.wait();
        }
    }

    /// Ends what listens to this member.
    fn close(&mut self) {
        match &mut self.link {
            RankLink::Child(_, orders) => *orders = None,
            RankLink::Remote(connection) => drop(connection.shutdown(Shutdown::Both)),
        }
    }

    /// Returns how it ended, after it fell silent.
    fn ending(&mut self) -> String {
        self.close();
        match &mut self.link {
            RankLink::Child(child, _) => {
                child.wait().map_or_else(|error| error.to_string(), ending)
            }
            RankLink::Remote(_) => {
                "is gone: its process or its host ended, or the connection to it broke".to_owned()
            }
        }
    }
}

/// Makes `command`, which starts this program, start a rank.
#[cfg(not(test))]
fn as_rank(command: &mut Command) {
    command.arg(RANK);
}

/// Does the same in a test, whose program is that of all tests: the one test that serves a rank.
#[cfg(test)]
fn as_rank(command: &mut Command) {
    command.args([
        "--exact",
        "command::registry::tests::serve__a_rank_process_of_a_test",
        "--nocapture",
    ]);
    command.env(RANK_OF_TEST, "1");
}

/// Set for rank processes of tests.
#[cfg(test)]
pub(crate) const RANK_OF_TEST: &str = "CLEARWAY_RANK_OF_TEST";

/// Returns how a process ended.
pub(super) fn ending(status: ExitStatus) -> String {
    match (status.signal(), status.code()) {
        (Some(signal), _) => format!("was killed by signal {signal}"),
        (None, Some(code)) => format!("ended with status {code}"),
        (None, None) => "ended".to_owned(),
    }
}

/// What came of a rank, if anything did: a message, or how the rank ended.
pub(crate) type RankEvent<S> = Option<(Rank, Result<S, String>)>;

/// A line that a rank sent, and the incarnation of the process that sent it; `None` when its output
/// closed.
type RankLine = (Rank, u32, Option<Vec<u8>>);

/// The processes of all ranks of a run.
pub(crate) struct RankProcesses {
    members: Vec<RankProcess>,
    lines: Receiver<RankLine>,
    /// Ranks whose end was reported.
    dead_ranks: BTreeSet<Rank>,
    facts: Ready,
    far: RemoteTransport,
    /// What they talk over, for a person, by name.
    wires: BTreeMap<String, String>,
    interrupt: Interrupt,
    /// For those that are started again.
    lines_in: SyncSender<RankLine>,
    introduction: Option<Introduction>,
}

/// What a rank hears before it has a wire.
struct Introduction {
    session: u64,
    network: Network,
    plan: RemoteTransport,
    setup: Setup,
    /// What the cards of its ranks are made for, if they have any.
    job: Option<KeyScope>,
}

impl RankProcesses {
    /// Creates processes that have not met.
    fn new(members: Vec<RankProcess>, interrupt: Interrupt) -> Self {
        let (sender, lines) = sync_channel(LINES_MAX);
        let facts = Ready {
            body_max: 0,
            overhead: 0,
            operations: OperationSet::default(),
            classes: Vec::new(),
        };
        let (dead_ranks, far, wires) = (BTreeSet::new(), RemoteTransport::Nothing, BTreeMap::new());
        Self {
            members,
            lines,
            dead_ranks,
            facts,
            far,
            wires,
            interrupt,
            lines_in: sender,
            introduction: None,
        }
    }

    /// Brings `members`, by rank, together on `network` over the wires of `plan`: waits until all
    /// wires are open. Keys, where there are any, must be made with those of `job`.
    pub(super) fn gather(
        members: Vec<RankProcess>,
        network: Network,
        plan: &WirePlan,
        run: RunId,
        job: Option<KeyScope>,
        interrupt: Interrupt,
    ) -> Result<Self> {
        let mut all = Self::new(members, interrupt);
        for (rank, member) in (0..).map(Rank).zip(&mut all.members) {
            listen((rank, 0), member.output()?, all.lines_in.clone());
        }
        for rank in all.ranks() {
            let address = all.members[rank.index()].address;
            let (session, far) = (run.session, plan.far);
            let request = PortRequest { rank, session, address, network, far, incarnation: 0 };
            all.send::<()>(rank, &ToRank::Bind(request))?;
        }
        let mut peers = all.started(&START, |message| match message {
            FromRank::Bound(location) => Some(location),
            _ => None,
        })?;
        if let Some(job) = &job {
            all.check_descriptions(job, &peers)?;
        }
        let choice = plan.choose(network, &peers, &|rank| all.name(rank))?;
        (all.far, all.wires) = (choice.far, choice.facts);
        peers.iter_mut().for_each(|peer| peer.keep(choice.far));
        let wire = WireSetup {
            far: choice.far,
            hosts: plan.hosts.clone(),
            peers,
            need: run.need,
            incarnation: 0,
        };
        let setup = Setup { seed: run.seed, mechanism: run.mechanism.to_owned(), wire };
        all.introduction = Some(Introduction {
            session: run.session,
            network,
            plan: plan.far,
            setup: setup.clone(),
            job,
        });
        let setup = ToRank::<()>::Open(setup);
        for rank in all.ranks() {
            all.send(rank, &setup)?;
        }
        let opening = StartStep { wanted: "opened its wire", ..START };
        let ready = all.started(&opening, |message| match message {
            FromRank::Ready(ready) => Some(ready),
            _ => None,
        })?;
        // Paths differ in what they let through: the least is what all pairs can do.
        let common = |a: Ready, b: Ready| {
            let operations = a.operations.and(b.operations);
            Ready { operations, ..if b.body_max < a.body_max { b } else { a } }
        };
        all.facts = ready.into_iter().reduce(common).context("no ranks")?;
        all.wires.insert(CLASSES.to_owned(), classes_of(&all.facts));
        Ok(all)
    }

    /// Refuses a rank that has another key, by name: its peers would refuse it as well, and it all
    /// of them.
    fn check_descriptions(&self, job: &KeyScope, peers: &[EndLocation]) -> Result<()> {
        for (rank, card) in
            (0..).map(Rank).zip(peers).filter_map(|(rank, peer)| Some((rank, peer.card.as_ref()?)))
        {
            job.check(rank, 0, card)
                .with_context(|| format!("{} cannot take part", self.name(rank)))?;
        }
        Ok(())
    }

    /// Returns why no other process can take the place of that of `rank`, if none can.
    pub(super) fn irreplaceable_reason(&self, rank: Rank) -> Option<&'static str> {
        if self.far != RemoteTransport::Udp {
            return Some(
                "no process takes the place of another in this run, whose ranks do not talk over UDP: start the run with --wire udp, and others can join it",
            );
        }
        let hosts = self.introduction.as_ref()?.setup.wire.hosts.as_ref()?;
        let own = hosts.get(rank.index())?;
        let shares = |other: &Rank| {
            *other != rank
                && !self.dead_ranks.contains(other)
                && hosts.get(other.index()) == Some(own)
        };
        self.ranks().find(shares).map(|_| {
            "it shares memory with a rank that lives, which knows no other process: start the run with --wire udp, and others can join it"
        })
    }

    /// Puts `member`, a process that has just started, in the place of that of `rank`. What is sent
    /// to it next it hears when its wire is open, and what the one before still says is passed over.
    ///
    /// # Errors
    /// There is no such rank.
    pub(super) fn restart(&mut self, rank: Rank, mut member: RankProcess) -> Result<()> {
        let intro = self.introduction.as_mut().context("ranks that have not met")?;
        let place = self.members.get_mut(rank.index()).context("no such rank")?;
        // Ranks that shared memory with the one before share none with this one.
        if let Some(hosts) = &mut intro.setup.wire.hosts {
            let unused = hosts.iter().max().map_or(0, |most| most + 1);
            if let Some(host) = hosts.get_mut(rank.index()) {
                *host = unused;
            }
        }
        let incarnation = place.incarnation + 1;
        let (address, far) = (member.address, intro.plan);
        let Introduction { session, network, .. } = *intro;
        let bind = PortRequest { rank, session, address, network, far, incarnation };
        listen((rank, incarnation), member.output()?, self.lines_in.clone());
        // An end of it is noticed like any other.
        let _ = member.write(&line_of(&ToRank::<()>::Bind(bind))?);
        (member.incarnation, member.stage) = (incarnation, MemberStage::Binding(Vec::new()));
        std::mem::replace(place, member).discard();
        self.dead_ranks.remove(&rank);
        Ok(())
    }

    fn is_open(&self, rank: Rank) -> bool {
        let member = self.members.get(rank.index());
        member.is_none_or(|member| matches!(member.stage, MemberStage::Open))
    }

    /// Takes what the new process of `rank` says before its wire is open.
    fn bring_in<S>(&mut self, rank: Rank, message: FromRank<S>) -> Result<()> {
        match message {
            FromRank::Bound(location) => self.introduce(rank, location),
            FromRank::Ready(_) => {
                let member = self.members.get_mut(rank.index()).context("no such rank")?;
                member.stage = MemberStage::Open;
                Ok(())
            }
            FromRank::Failed(sentence) => bail!("{sentence}"),
            FromRank::Time(_) | FromRank::Response(_) | FromRank::Ended(_) => {
                bail!("it says something else than where it is")
            }
        }
    }

    /// Tells the others that the new process of `rank` is at `location`, and it where they are.
    fn introduce(&mut self, rank: Rank, mut location: EndLocation) -> Result<()> {
        let intro = self.introduction.as_mut().context("ranks that have not met")?;
        let incarnation = self.members.get(rank.index()).map_or(0, |member| member.incarnation);
        if let (Some(job), Some(card)) = (&intro.job, &location.card) {
            job.check(rank, incarnation, card)?;
        }
        location.keep(self.far);
        let place = intro.setup.wire.peers.get_mut(rank.index()).context("no such rank")?;
        let has_moved = place.address != location.address || location.card.is_some();
        *place = location.clone();
        let mut setup = intro.setup.clone();
        setup.wire.incarnation = incarnation;
        if has_moved {
            let moved = line_of(&ToRank::<()>::Moved { rank, location })?;
            let others = (0..).map(Rank).zip(&mut self.members).filter(|(other, member)| {
                *other != rank && !matches!(member.stage, MemberStage::Binding(_))
            });
            // One that is gone needs not know.
            others.for_each(|(_, member)| drop(member.write(&moved)));
        }
        let member = self.members.get_mut(rank.index()).context("no such rank")?;
        let stage = std::mem::replace(&mut member.stage, MemberStage::Opening);
        let _ = member.write(&line_of(&ToRank::<()>::Open(setup))?);
        if let MemberStage::Binding(kept) = stage {
            let _ = member.write(&kept);
        }
        Ok(())
    }

    /// Returns the conversation of the mechanism that they were started for.
    pub(crate) fn session<P: Protocol>(&mut self) -> Session<'_, P> {
        Session::new(self)
    }

    /// Returns all ranks in order.
    pub(crate) fn ranks(&self) -> impl Iterator<Item = Rank> + use<> {
        (0..self.members.len() as u32).map(Rank)
    }

    /// Returns the names of their hosts.
    pub(crate) fn hosts(&self) -> Vec<String> {
        self.members.iter().map(|member| member.host.clone()).collect()
    }

    /// Returns how ranks reach each other that share no memory.
    pub(super) fn far(&self) -> RemoteTransport {
        self.far
    }

    /// Returns what the ranks talk over, for a person, by name.
    pub(crate) fn wires(&self) -> &BTreeMap<String, String> {
        &self.wires
    }

    /// Returns what all their wires can do.
    pub(crate) fn facts(&self) -> &Ready {
        &self.facts
    }

    /// Returns an error when the user wants an end.
    pub(crate) fn check(&self) -> Result<()> {
        self.interrupt.check()
    }

    /// Sends `message` to `rank`.
    ///
    /// # Errors
    /// The rank is gone; the sentence says how it ended.
    pub(super) fn send<R: Serialize>(&mut self, rank: Rank, message: &ToRank<R>) -> Result<()> {
        let line = line_of(message)?;
        let member = self.members.get_mut(rank.index()).context("no such rank")?;
        if member.write_or_keep(&line).is_err() {
            return Err(self.silence(rank));
        }
        Ok(())
    }

    /// Sends `message` to `rank`, if it is there: [`RankProcesses::poll_or_end`] tells of its end.
    pub(super) fn try_send<R: Serialize>(&mut self, rank: Rank, message: &ToRank<R>) -> Result<()> {
        let line = line_of(message)?;
        if let Some(member) = self.members.get_mut(rank.index()) {
            let _ = member.write_or_keep(&line);
        }
        Ok(())
    }

    /// Returns what the clock of `rank` says. Nothing else may be under way.
    pub(super) fn time(&mut self, rank: Rank) -> Result<LocalNs> {
        self.send::<()>(rank, &ToRank::Time)?;
        let until = Instant::now() + START_TIMEOUT;
        loop {
            match self.poll::<IgnoredAny>(until.saturating_duration_since(Instant::now()))? {
                Some((_, FromRank::Time(time))) => return Ok(time),
                // A rank that dies in the middle of its answer leaves a part of it; its end, which says
                // how, comes behind.
                None if Instant::now() < until => {}
                _ => bail!("{} does not say what time it is", self.name(rank)),
            }
        }
    }

    /// Returns the next message of a rank, if one comes within `timeout`, for runs that end with
    /// any rank.
    ///
    /// # Errors
    /// The user interrupted, or a rank is gone or refuses to go on.
    pub(super) fn poll<S: DeserializeOwned>(
        &mut self,
        timeout: Duration,
    ) -> Result<Option<(Rank, FromRank<S>)>> {
        match self.poll_or_end(timeout)? {
            Some((rank, Ok(message))) => Ok(Some((rank, message))),
            Some((rank, Err(how))) => Err(self.death(rank, &how)),
            None => Ok(None),
        }
    }

    /// Returns the next message of a rank, or how it ended, for runs that go on without it. A
    /// message that is none is passed over: a rank that died in the middle of a line leaves half of
    /// one, and what follows says how it ended.
    ///
    /// # Errors
    /// The user interrupted, or a rank refuses to go on.
    pub(super) fn poll_or_end<S: DeserializeOwned>(
        &mut self,
        timeout: Duration,
    ) -> Result<RankEvent<FromRank<S>>> {
        self.check()?;
        if self.dead_ranks.len() == self.members.len() {
            bail!("all ranks are gone");
        }
        let (rank, line) = match self.lines.recv_timeout(timeout) {
            Ok((rank, incarnation, line)) => {
                let is_of_now = self
                    .members
                    .get(rank.index())
                    .is_some_and(|member| member.incarnation == incarnation);
                if !is_of_now || self.dead_ranks.contains(&rank) {
                    return Ok(None);
                }
                (rank, line)
            }
            Err(RecvTimeoutError::Timeout) => return Ok(None),
            Err(RecvTimeoutError::Disconnected) => bail!("all ranks are gone"),
        };
        let how = match line.as_deref().map(serde_json::from_slice) {
            Some(Ok(FromRank::Ended(how))) => how,
            Some(Ok(message)) if !self.is_open(rank) => match self.bring_in(rank, message) {
                Ok(()) => return Ok(None),
                Err(error) => format!("cannot take part: {error:#}"),
            },
            Some(Ok(FromRank::Failed(sentence))) => return Err(self.refusal(rank, &sentence)),
            Some(Ok(message)) => return Ok(Some((rank, Ok(message)))),
            Some(Err(_)) => return Ok(None),
            None => {
                // The user's interrupt may have ended the rank first.
                self.check()?;
                self.ending(rank)
            }
        };
        self.dead_ranks.insert(rank);
        Ok(Some((rank, Err(how))))
    }

    /// Ends them, and continues with others that `gather` brings, which hears of the user's
    /// interrupt.
    pub(super) fn replace(&mut self, gather: impl FnOnce(Interrupt) -> Result<Self>) -> Result<()> {
        self.end();
        *self = gather(self.interrupt.clone())?;
        Ok(())
    }

    /// Ends every rank of this machine.
    pub(crate) fn end(&mut self) {
        for member in &mut self.members {
            if let RankLink::Child(_, orders) = &mut member.link {
                *orders = None;
            }
        }
        for member in &mut self.members {
            if let RankLink::Child(child, _) = &mut member.link {
                // A rank that is stopped or stuck would not notice its closed pipe.
                let _ = child.kill();
                let _ = child.wait();
            }
        }
    }

    /// Returns a rank for a person.
    pub(crate) fn name(&self, rank: Rank) -> String {
        format!("rank {rank} on host {}", self.host(rank))
    }

    /// Returns the name of its host.
    pub(crate) fn host(&self, rank: Rank) -> &str {
        self.members.get(rank.index()).map_or("?", |member| &member.host)
    }

    fn refusal(&self, rank: Rank, sentence: &str) -> anyhow::Error {
        anyhow!("{} cannot take part: {sentence}", self.name(rank))
    }

    /// Returns the error that nothing came of `rank` for `timeout`.
    pub(super) fn silent(&self, rank: Rank, timeout: Duration) -> anyhow::Error {
        anyhow!("{} has not answered for {timeout:?}; its machine may be too busy", self.name(rank))
    }

    /// Returns how a rank that cannot be written to ended, as an error.
    fn silence(&mut self, rank: Rank) -> anyhow::Error {
        let how = self.ending(rank);
        self.death(rank, &how)
    }

    fn ending(&mut self, rank: Rank) -> String {
        self.members.get_mut(rank.index()).map_or_else(String::new, RankProcess::ending)
    }

    fn death(&self, rank: Rank, how: &str) -> anyhow::Error {
        anyhow!("{} {how} in the middle of the run; run again", self.name(rank))
    }
}

/// Returns a message as a line.
fn line_of<R: Serialize>(message: &ToRank<R>) -> Result<Vec<u8>> {
    let mut line = serde_json::to_vec(message).context("a message that JSON cannot hold")?;
    line.push(b'\n');
    Ok(line)
}

/// Returns what becomes of each class between hosts.
fn classes_of(facts: &Ready) -> String {
    let mut by_fate: BTreeMap<&str, Vec<&str>> = BTreeMap::new();
    for (class, fate) in Class::ALL.into_iter().zip(&facts.classes) {
        by_fate.entry(fate).or_default().push(class.name());
    }
    let fates: Vec<String> =
        by_fate.iter().map(|(fate, classes)| format!("{}: {fate}", classes.join(", "))).collect();
    fates.join("; ")
}

/// Reads the lines of a rank's process on a thread of their own until its output closes.
fn listen(
    (rank, incarnation): (Rank, u32),
    output: Box<dyn Read + Send>,
    sender: SyncSender<RankLine>,
) {
    thread::spawn(move || {
        let mut output = BufReader::new(output);
        loop {
            let mut line = Vec::new();
            let is_over =
                output.by_ref().take(LINE_MAX).read_until(b'\n', &mut line).unwrap_or(0) == 0;
            let line = (!is_over).then_some(line);
            if sender.send((rank, incarnation, line)).is_err() || is_over {
                return;
            }
        }
    });
}

impl Drop for RankProcesses {
    fn drop(&mut self) {
        self.end();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::net::{Ipv4Addr, TcpListener};
    use std::sync::Arc;
    use std::sync::atomic::{AtomicU64, Ordering};

    /// A rank that never stops, and how much of what it says was taken.
    struct Talkative(Arc<AtomicU64>);

    impl Read for Talkative {
        fn read(&mut self, bytes: &mut [u8]) -> std::io::Result<usize> {
            bytes.fill(b'x');
            bytes.last_mut().into_iter().for_each(|last| *last = b'\n');
            self.0.fetch_add(bytes.len() as u64, Ordering::Relaxed);
            Ok(bytes.len())
        }
    }

    /// Returns both ends of a connection: the coordinator's member, and what its rank has.
    pub(super) fn member(host: &str) -> (RankProcess, BufReader<TcpStream>) {
        let address = (Ipv4Addr::LOCALHOST, 0);
        let listener = TcpListener::bind(address).expect("a port");
        let far = TcpStream::connect(listener.local_addr().expect("bound")).expect("connected");
        far.set_read_timeout(Some(START_TIMEOUT)).expect("a limit");
        let near = listener.accept().expect("it came").0;
        let member = RankProcess::remote(host.to_owned(), SocketAddrV4::new(address.0, 0), near);
        (member, BufReader::new(far))
    }

    /// Returns what a rank hears next.
    fn heard(rank: &mut BufReader<TcpStream>) -> ToRank<IgnoredAny> {
        let mut line = String::new();
        rank.read_line(&mut line).expect("a line");
        serde_json::from_str(&line).expect("a message")
    }

    /// Returns where a rank is whose port is this.
    fn at(port: u16) -> EndLocation {
        let address = Some(SocketAddrV4::new(Ipv4Addr::LOCALHOST, port));
        EndLocation { address, ..EndLocation::default() }
    }

    fn wire_setup() -> WireSetup {
        WireSetup {
            far: RemoteTransport::Udp,
            hosts: Some(vec![0, 0]),
            peers: vec![at(1), at(2)],
            need: WireNeeds::Writes,
            incarnation: 0,
        }
    }

    #[test]
    fn restart__others_hear_where_the_new_process_is_and_nothing_of_the_one_before_counts() {
        let [(other, mut other_end), (before, before_end), (member, mut end)] =
            ["h0", "h1", "h2"].map(member);
        let interrupt = Interrupt::listen().expect("signals");
        let mut all = RankProcesses::new(vec![other, before], interrupt);
        for (rank, member) in (0..).map(Rank).zip(&mut all.members) {
            listen((rank, 0), member.output().expect("an output"), all.lines_in.clone());
        }
        let setup = Setup { seed: 1, mechanism: "echo".to_owned(), wire: wire_setup() };
        let (network, plan) = (Network::Machine, RemoteTransport::Udp);
        all.introduction = Some(Introduction { session: 7, network, plan, setup, job: None });
        all.far = RemoteTransport::Udp;
        assert!(
            all.irreplaceable_reason(Rank(1)).is_some(),
            "it shares memory with one that lives"
        );
        all.restart(Rank(1), member).expect("it takes the place");
        all.send(Rank(1), &ToRank::Request(3)).expect("it is kept");
        let ToRank::Bind(bind) = heard(&mut end) else { panic!("no address first") };
        assert_eq!((bind.rank, bind.session, bind.incarnation), (Rank(1), 7, 1));
        drop(before_end);
        let bound = serde_json::to_string(&FromRank::<()>::Bound(at(3))).expect("JSON");
        writeln!(end.get_mut(), "{bound}").expect("said");
        let until = Instant::now() + START_TIMEOUT;
        while !matches!(all.members[1].stage, MemberStage::Opening) {
            let heard = all.poll_or_end::<IgnoredAny>(LOOK_EVERY).expect("no interrupt");
            assert!(heard.is_none() && Instant::now() < until, "{:?}", heard.map(|it| it.0));
        }
        let ToRank::Moved { rank, location } = heard(&mut other_end) else { panic!("no move") };
        assert_eq!((rank, location.address), (Rank(1), at(3).address));
        let ToRank::Open(setup) = heard(&mut end) else { panic!("no setup") };
        assert_eq!(setup.wire.peers[1].address, at(3).address);
        assert_eq!((setup.wire.incarnation, setup.wire.hosts), (1, Some(vec![0, 1])));
        assert!(matches!(heard(&mut end), ToRank::Request(_)), "what was kept comes behind");
        let failed = FromRank::<()>::Failed("no port".to_owned());
        writeln!(end.get_mut(), "{}", serde_json::to_string(&failed).expect("JSON")).expect("said");
        let ended = loop {
            if let Some(ended) = all.poll_or_end::<IgnoredAny>(LOOK_EVERY).expect("no refusal") {
                break ended;
            }
        };
        assert_eq!(ended.0, Rank(1));
        assert_eq!(ended.1.err().as_deref(), Some("cannot take part: no port"));
        assert_eq!(
            all.irreplaceable_reason(Rank(1)),
            None,
            "nobody shares memory with it any more"
        );
    }

    #[test]
    fn time__a_rank_that_dies_in_the_middle_of_its_answer_is_reported_as_dead() {
        let (member, end) = member("h0");
        let mut all = RankProcesses::new(vec![member], Interrupt::listen().expect("signals"));
        let output = all.members[0].output().expect("an output");
        listen((Rank(0), 0), output, all.lines_in.clone());
        write!(end.get_ref(), "{{\"ti").expect("a part of a line");
        drop(end);
        let why = all.time(Rank(0)).expect_err("it is gone").to_string();
        assert!(why.contains("rank 0 on host h0") && !why.contains("what time"), "{why}");
    }

    #[test]
    fn listen__no_more_is_taken_from_a_rank_than_is_heard() {
        let (taken, (sender, lines)) = (Arc::new(AtomicU64::new(0)), sync_channel(LINES_MAX));
        listen((Rank(0), 0), Box::new(Talkative(taken.clone())), sender);
        let heard = lines.recv().expect("a line").2.expect("no end").len();
        // Time for the other thread to take more, if it would.
        (0..20_000).for_each(|_| thread::yield_now());
        let ahead = taken.load(Ordering::Relaxed) - heard as u64;
        // One line waits, one is about to, and one is read into a buffer of 8 KiB.
        assert!(ahead <= 4 * (8 << 10), "{ahead} bytes ahead");
    }
}
