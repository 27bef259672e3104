//! The sender of a cast: asks receivers what they have, sends the rest once for all, and collects
//! the outcomes.
//!
//! # Model
//! Receivers get the manifest and answer with what they have; of parts they get hashes.
//! The plan is the union of what they lack. Only receivers that lack something take part in the
//! broadcast; one that is lost meanwhile is reported dead to the others at once.

use std::collections::btree_map::Entry;
use std::collections::{BTreeMap, BTreeSet};
use std::net::Ipv4Addr;
use std::ops::ControlFlow;
use std::os::fd::AsFd;
use std::sync::Arc;
use std::sync::mpsc::TryRecvError;
use std::time::{Duration, Instant};

use anyhow::{Context, Result};
use clearway_proto::base::{BitsPerSec, Class, LocalNs, Nanos, Rank};
use clearway_proto::broadcast::{BroadcastCommand, BroadcastConfig, BroadcastEvent, BroadcastNode};
use clearway_proto::wire::{Driver, RegionId, Span, Wire};
use clearway_runtime::launch::escaped;
use clearway_runtime::{keys, progress};

use super::blame::Blame;
use super::feeder::{Feeder, FeederOutput};
use super::membership::{MemberEnd, MemberPort, PLACES, ROOT, group, place_of};
use super::message::{
    BroadcastMembership, CHUNK, CastTask, ExtrasPolicy, MemberNetwork, TargetAccess, ToReceiver,
};
use super::metrics::CastMetrics;
use super::outbox::SharedMessage;
use super::peers::{CastReceiver, CastReceivers, ExpectedReceiver};
use super::plan::{BlockHash, MissingOfAll};
use super::preview;
use super::progress::ProgressLine;
use super::rate_limit::RateLimit;
use super::rate_share::RateShare;
use super::receiver::network;
use super::source::{CastSource, SkippedPath};
use super::summary::CastSummary;
use crate::agent::{AgentPlace, SenderLimits};
use crate::policy::Grant;
use crate::run::interrupt::Interrupt;
use crate::run::job::interface::speed;
use clearway_wires::hexadecimal::digits_of;

/// How often the engine's loop looks at the user and the display.
const LOOK_EVERY: Nanos = Nanos::from_millis(100);

/// Within this time other casts notice a new one with which they share a rate.
const JOINED: Duration = Duration::from_millis(2 * LOOK_EVERY.0 / 1_000_000);

/// A cast of which nothing moves for so long will not go on: twice what it takes to put out a
/// member that is silent.
const STUCK: Nanos = Nanos::from_secs(60);

/// What is wanted of a cast.
pub(super) struct CastOptions {
    pub(super) source: CastSource,
    pub(super) contacts: Vec<ExpectedReceiver>,
    pub(super) task: CastTask,
    /// What all members of the cast know.
    pub(super) secret: Vec<u8>,
    /// The most that one host sends.
    pub(super) rate: Option<BitsPerSec>,
    /// The class that the policy of the site grants, if there is one.
    pub(super) grant: Option<Grant>,
    /// The agent that the cast follows, if there is one.
    pub(super) agent: Option<AgentPlace>,
    pub(super) display: ProgressLine,
    /// Where is counted what happens.
    pub(super) metrics: CastMetrics,
}

/// Casts, to the end.
///
/// # Errors
/// What is no receiver's failure: the user's wish to stop, a file that went away.
pub(super) fn send(order: CastOptions, interrupt: Interrupt) -> Result<CastSummary> {
    let CastOptions { source, contacts, task, secret, rate, grant, agent, mut display, metrics } =
        order;
    let session = u64::from_le_bytes(random()?);
    let begun = Instant::now();
    let mut peers =
        CastReceivers::call(contacts, &task, session, &secret, interrupt, metrics.clone())?;
    wait(&mut peers, &mut display, "waiting for receivers", &|peer| peer.boot.is_some())?;
    let source = Arc::new(source);
    survey(&mut peers, &source, &mut display)?;
    part_twins(&mut peers);
    let known = compare(&mut peers, &source, &mut display)?;
    if task.access == TargetAccess::Look {
        let (files, unsent) = preview::note_missing(&mut peers, &source);
        finish(&mut peers, extras(&source, &unsent), &mut display)?;
        peers.leave()?;
        display.end();
        let summary = CastSummary::new(&source, peers.all, unsent, (begun, 0), None);
        return Ok(summary.planned(files).removing(task.removal.as_ref()).granted(grant));
    }
    let mut course = CastCourse::default();
    let class = grant.as_ref().map_or(Class::Bulk, |grant| grant.granted);
    let terms = grant.as_ref().and_then(|grant| grant.budget.clone());
    let limits = SenderLimits::join(terms, agent, warn);
    let limits = &limits;
    let options = SeatOptions { session, secret: &secret, rate, class, limits, metrics: &metrics };
    course.round(&mut peers, &source, known, &options, &mut display)?;
    while peers.here().any(|peer| peer.is_parked) {
        resume(&mut peers, &mut display)?;
        course.round(&mut peers, &source, BTreeMap::new(), &options, &mut display)?;
    }
    peers.leave()?;
    display.end();
    let CastCourse { unsent, bytes, slowest } = course;
    let slowest = slowest.filter(|_| peers.all.len() > 1);
    let summary = CastSummary::new(&source, peers.all, unsent, (begun, bytes), slowest);
    Ok(summary.removing(task.removal.as_ref()).granted(grant).held(limits.held()))
}

/// Says a sentence while a cast goes on.
fn warn(sentence: &str) {
    eprintln!("clearway: {}", escaped(sentence));
}

/// What seats are made with.
struct SeatOptions<'o> {
    session: u64,
    secret: &'o [u8],
    rate: Option<BitsPerSec>,
    /// Of blocks; what agrees on them is control.
    class: Class,
    /// The budget of the site, and the agent of the node.
    limits: &'o SenderLimits,
    metrics: &'o CastMetrics,
}

/// What a cast has come to, over all its rounds: the first is for all, each other one for those
/// that were parked in the one before.
#[derive(Default)]
struct CastCourse {
    unsent: Vec<SkippedPath>,
    /// That left in the first round.
    bytes: u64,
    /// For whom the others waited in the first round.
    slowest: Option<String>,
}

impl CastCourse {
    /// Casts what receivers lack that have not ended, and waits for the outcomes of those that are
    /// not parked.
    fn round(
        &mut self,
        peers: &mut CastReceivers,
        source: &Arc<CastSource>,
        known: BTreeMap<u32, Vec<BlockHash>>,
        options: &SeatOptions<'_>,
        display: &mut ProgressLine,
    ) -> Result<()> {
        let union = missing(peers, source);
        if !union.is_nothing(&source.entries) {
            let bytes = union.bytes(&source.entries);
            let share = options.rate.map(RateShare::join).transpose()?;
            let rate = share.as_ref().map(RateShare::part);
            let seat = seat(peers, options, rate)?;
            let end = take_seats(peers, &seat, options.secret)?;
            let taken =
                peers.here().filter(|peer| peer.rank.is_some()).map(|peer| peer.taken).min();
            display.begin(bytes + taken.unwrap_or_default());
            options.metrics.note_expected(bytes + taken.unwrap_or_default());
            let feeder = Feeder::start(source.clone(), union, known, peers.bell.clone())?;
            let limit = RateLimit::new(share, options.limits);
            let is_first = self.bytes == 0;
            let (unsent, blame) =
                SendingHost::run(peers, source, (feeder, limit), end, (display, options.metrics))?;
            let new = unsent.into_iter().filter(|path| !self.unsent.contains(path));
            let new: Vec<_> = new.collect();
            self.unsent.extend(new);
            if is_first {
                let last = peers
                    .all
                    .iter()
                    .find(|peer| peer.rank.is_some() && peer.rank == blame.in_all());
                (self.bytes, self.slowest) = (bytes, last.map(|peer| peer.name.clone()));
            }
        }
        finish(peers, extras(source, &self.unsent), display)
    }
}

/// Returns what becomes of other names at receivers: nobody knows what a directory lacks that was
/// not read.
fn extras(source: &CastSource, unsent: &[SkippedPath]) -> ExtrasPolicy {
    match (&source.unread[..], unsent) {
        ([], []) => ExtrasPolicy::Remove,
        _ => ExtrasPolicy::Keep,
    }
}

/// Asks those that are not parked how it ended, and waits for that.
fn finish(
    peers: &mut CastReceivers,
    extras: ExtrasPolicy,
    display: &mut ProgressLine,
) -> Result<()> {
    let message = ToReceiver::Finish(extras);
    peers.send_to(&|peer| !peer.is_parked && peer.outcome.is_none(), &message)?;
    let has_ended = |peer: &CastReceiver| peer.is_parked || peer.outcome.is_some();
    peers.gather(&has_ended, &mut |all| display.show(all, None))
}

/// Returns what receivers lack that have not ended.
fn missing(peers: &mut CastReceivers, source: &CastSource) -> MissingOfAll {
    let mut union = MissingOfAll::from_entries(&source.entries);
    for peer in peers.here() {
        peer.lacks_some = false;
        if peer.outcome.is_some() {
            continue;
        }
        let mut own = MissingOfAll::from_entries(&source.entries);
        let has = peer.has.take().unwrap_or_default();
        own.add(&has, &peer.lacks);
        peer.lacks_some = !own.is_nothing(&source.entries);
        union.add(&has, &std::mem::take(&mut peer.lacks));
    }
    union
}

/// Asks those that were parked what they lack.
fn resume(peers: &mut CastReceivers, display: &mut ProgressLine) -> Result<()> {
    for peer in &mut peers.all {
        peer.rank = None;
        if std::mem::take(&mut peer.is_parked) && peer.is_here() {
            (peer.was_parked, peer.has_compared, peer.is_open) = (true, false, false);
            peer.send(&ToReceiver::Resume);
        }
    }
    let is_ready = |peer: &CastReceiver| peer.outcome.is_some() || peer.has_compared;
    wait(peers, display, "waiting for parked receivers", &is_ready)
}

/// Returns random bytes from the system.
pub(super) fn random<const N: usize>() -> Result<[u8; N]> {
    keys::random().context("random bytes")
}

/// Waits until `is_done` is true of everybody who is there, and shows for whom in `what`.
fn wait(
    peers: &mut CastReceivers,
    display: &mut ProgressLine,
    what: &str,
    is_done: &dyn Fn(&CastReceiver) -> bool,
) -> Result<()> {
    display.phase(what);
    let is_late = |peer: &&CastReceiver| peer.is_here() && !is_done(peer);
    peers.gather(is_done, &mut |all| display.waiting(what, all.iter().filter(is_late)))
}

/// Sends the manifest to all, and waits for what each has.
fn survey(
    peers: &mut CastReceivers,
    source: &CastSource,
    display: &mut ProgressLine,
) -> Result<()> {
    peers.give_tasks();
    for entries in source.entries.chunks(CHUNK) {
        peers.send(&ToReceiver::Entries(entries.to_vec()))?;
        peers.keep_up()?;
    }
    peers.send(&ToReceiver::Survey)?;
    wait(peers, display, "comparing", &|peer| peer.has.is_some())
}

/// Leaves out receivers whose directory another one fills too: it is the same, or lies in that of
/// the other.
fn part_twins(peers: &mut CastReceivers) {
    // The number of the machine's start; namespaces of it share directories.
    let machine = |peer: &CastReceiver| {
        let boot = peer.boot.as_deref().and_then(|boot| boot.split(' ').next());
        boot.unwrap_or_default().to_owned()
    };
    let mut seen: BTreeMap<(String, (u64, u64)), String> = BTreeMap::new();
    for peer in peers.here() {
        let Some(target) = peer.places.first() else { continue };
        match seen.entry((machine(peer), *target)) {
            Entry::Vacant(vacant) => drop(vacant.insert(peer.name.clone())),
            Entry::Occupied(first) => {
                peer.lose(&format!(
                    "its directory is that of {} too, which gets everything; name it once",
                    first.get()
                ));
            }
        }
    }
    for peer in peers.here() {
        let machine = machine(peer);
        let mut around = peer.places.iter().skip(1);
        let outer = around.find_map(|place| seen.get(&(machine.clone(), *place)));
        if let Some(outer) = outer {
            peer.lose(&format!(
                "its directory lies in that of {outer}, which this cast fills too; name directories that are apart"
            ));
        }
    }
}

/// Sends the hashes of each file to receivers that have a part of it, and waits for what they lack.
/// Returns the hashes that were sent.
fn compare(
    peers: &mut CastReceivers,
    source: &CastSource,
    display: &mut ProgressLine,
) -> Result<BTreeMap<u32, Vec<BlockHash>>> {
    let count = source.entries.len() as u32;
    let part = |peer: &CastReceiver| {
        peer.has.as_ref().map(|has| has.part.below(count).collect::<BTreeSet<u32>>())
    };
    let parts: Vec<BTreeSet<u32>> =
        peers.all.iter().map(|peer| part(peer).unwrap_or_default()).collect();
    let files: BTreeSet<u32> = parts.iter().flatten().copied().collect();
    let mut known = BTreeMap::new();
    for file in files {
        let hashes = source.hashes(file, &mut || peers.check().is_ok());
        peers.check()?;
        // One that cannot be read is cast as broken.
        let Ok(hashes) = hashes else { continue };
        for chunk in hashes.chunks(CHUNK) {
            let message = ToReceiver::Hashes { file, hashes: digits_of(chunk.as_flattened()) };
            let message = SharedMessage::from_message(&message)?;
            let wanting = peers
                .all
                .iter_mut()
                .zip(&parts)
                .filter(|(peer, parts)| peer.is_here() && parts.contains(&file));
            wanting.for_each(|(peer, _)| peer.post(&message));
            peers.keep_up()?;
        }
        known.insert(file, hashes);
    }
    if parts.iter().any(|parts| !parts.is_empty()) {
        peers.send(&ToReceiver::Compare)?;
        wait(peers, display, "comparing contents", &|peer| peer.has_compared)?;
    }
    Ok(known)
}

/// Returns what all seats have in common, with the sender's address.
fn seat(
    peers: &mut CastReceivers,
    options: &SeatOptions<'_>,
    rate: Option<BitsPerSec>,
) -> Result<BroadcastMembership> {
    let (session, class) = (options.session, options.class);
    let own = network()?;
    for peer in peers.here() {
        if peer.addresses.is_none() && peer.boot.as_deref() != Some(&own) {
            peer.lose("nobody knows at which address it can be reached");
        }
    }
    let here = || peers.all.iter().filter(|peer| peer.is_here());
    // Nobody but root can listen to the loopback; everything else is sealed.
    let is_loopback = here().all(|peer| peer.boot.as_deref() == Some(&own));
    // Others reach this host where it is reached from outside.
    let outside =
        here().filter_map(|peer| peer.addresses).map(|[own, _]| own).find(|own| !own.is_loopback());
    let address = outside.filter(|_| !is_loopback).unwrap_or(Ipv4Addr::LOCALHOST);
    let network = if is_loopback { MemberNetwork::Loopback } else { MemberNetwork::Sealed };
    let key = u32::from_le_bytes(random()?);
    let rate = rate.or_else(|| rate_at(address)).map(|rate| rate.0);
    Ok(BroadcastMembership {
        session,
        rank: ROOT.0,
        address,
        network,
        group: group(session, address),
        key,
        rate,
        class,
    })
}

/// Returns what the interface at `address` says that it carries, where it has hardware that knows.
fn rate_at(address: Ipv4Addr) -> Option<BitsPerSec> {
    let is_it = |interface: &nix::ifaddrs::InterfaceAddress| {
        let own = interface.address.as_ref().and_then(|address| address.as_sockaddr_in());
        own.is_some_and(|own| own.ip() == address)
    };
    let interface = nix::ifaddrs::getifaddrs().ok()?.find(is_it)?;
    speed(&interface.interface_name).map(BitsPerSec::mega)
}

/// Gives each receiver of the broadcast a rank; returns the sender's end.
fn take_seats(
    peers: &mut CastReceivers,
    seat: &BroadcastMembership,
    secret: &[u8],
) -> Result<MemberEnd> {
    // Ranks have no gaps: when somebody fails meanwhile, the others take their seats anew.
    loop {
        for (rank, peer) in (1..).zip(peers.here().filter(|peer| peer.lacks_some)) {
            (peer.rank, peer.place) = (Some(rank), None);
            let theirs = peer.addresses.map(|[_, theirs]| theirs);
            let theirs = theirs
                .filter(|theirs| !theirs.is_loopback() && seat.network == MemberNetwork::Sealed);
            peer.send(&ToReceiver::Seat(BroadcastMembership {
                rank,
                address: theirs.unwrap_or(seat.address),
                ..seat.clone()
            }));
        }
        peers.gather(&|peer| peer.rank.is_none() || peer.place.is_some(), &mut |_| {})?;
        let gone = peers.all.iter_mut().filter(|peer| !peer.is_here() && peer.rank.is_some());
        if gone.map(|peer| peer.rank = None).count() == 0 {
            break;
        }
    }
    let port = MemberPort::take(seat.clone(), secret)?;
    let seated =
        peers.all.iter().filter(|peer| peer.rank.is_some()).filter_map(|peer| peer.place.clone());
    let places: Vec<_> = std::iter::once(port.place()).chain(seated).collect();
    let mut end = port.open(&places)?;
    peers.send_to(&|peer| peer.rank.is_some(), &ToReceiver::Open(places))?;
    peers.gather(&|peer| peer.rank.is_none() || peer.is_open, &mut |_| {})?;
    let keys = end.group_keys()?;
    for peer in peers.here() {
        let key = |rank: u32| keys.as_ref()?.get(rank.checked_sub(1)? as usize).cloned();
        if let Some(rank) = peer.rank {
            peer.send(&ToReceiver::Begin { group_key: key(rank) });
        }
    }
    Ok(end)
}

/// What is around the engine.
struct SendingHost<'p> {
    peers: &'p mut CastReceivers,
    feeder: Feeder,
    limit: RateLimit<'p>,
    limit_at: LocalNs,
    /// Bytes of a symbol.
    symbol: u64,
    /// What was read cannot be read again for a receiver that was parked.
    is_stream: bool,
    display: &'p mut ProgressLine,
    metrics: &'p CastMetrics,
    region: RegionId,
    idle: Vec<usize>,
    /// Places of objects that are not with everybody, in the order of their numbers.
    open: std::collections::VecDeque<usize>,
    /// Files that could not be sent, once everything was.
    unsent: Option<Vec<SkippedPath>>,
    /// Peers whose death the engine knows.
    buried: BTreeSet<u32>,
    look_at: LocalNs,
    course: SendProgress,
    blame: Blame,
    /// Objects that are with everybody.
    stable: u64,
    stirred: bool,
    over: Option<Result<()>>,
}

/// Whether a cast gets on.
#[derive(Debug, Default)]
struct SendProgress {
    /// Objects that left, and were with everybody, and bytes that receivers had taken; and when
    /// that last changed.
    seen: [u64; 3],
    since: LocalNs,
}

impl SendProgress {
    /// Returns whether nothing has moved for too long, though there is something that should.
    fn is_stuck(&mut self, now: LocalNs, seen: [u64; 3], under_way: bool) -> bool {
        if !under_way || seen != self.seen {
            *self = Self { seen, since: now };
        }
        now.since(self.since) > STUCK
    }
}

impl<'p> SendingHost<'p> {
    fn run(
        peers: &'p mut CastReceivers,
        source: &CastSource,
        (feeder, limit): (Feeder, RateLimit<'p>),
        mut end: MemberEnd,
        (display, metrics): (&'p mut ProgressLine, &'p CastMetrics),
    ) -> Result<(Vec<SkippedPath>, Blame)> {
        if limit.is_shared() {
            // Until the others have counted this one they have the whole rate.
            std::thread::sleep(JOINED);
        }
        let (region, mut driver) = end.start()?;
        let symbol = BroadcastConfig::symbol_max(end.wire.capabilities());
        let symbol = symbol.map_or(0, u64::from);
        let mut cast = Self {
            peers,
            feeder,
            limit,
            limit_at: LocalNs(0),
            symbol,
            is_stream: source.is_stream(),
            display,
            metrics,
            region,
            idle: (0..PLACES).collect(),
            open: std::collections::VecDeque::new(),
            unsent: None,
            buried: BTreeSet::new(),
            look_at: LocalNs(0),
            course: SendProgress::default(),
            blame: Blame::default(),
            stable: 0,
            stirred: false,
            over: None,
        };
        let bell = cast.peers.bell.clone();
        progress::run(&mut driver, &mut end.wire, &[bell.as_fd()], &mut cast);
        metrics.note_traffic(driver.engine_mut().record(), end.wire.counters());
        metrics.end_round();
        cast.over.unwrap_or(Ok(()))?;
        Ok((cast.unsent.unwrap_or_default(), cast.blame))
    }

    /// Lets objects leave as long as there is memory.
    fn feed(&mut self, now: LocalNs, driver: &mut Driver<BroadcastNode>, wire: &mut dyn Wire) {
        while self.unsent.is_none()
            && let Some(place) = self.idle.last().copied()
        {
            match self.feeder.objects.try_recv() {
                Ok(FeederOutput::Object(object)) => {
                    self.idle.pop();
                    let from = place_of(self.region, place, object.len());
                    self.put(from, &object, wire);
                    self.open.push_back(place);
                    driver.command(now, BroadcastCommand::Cast { from });
                    self.stirred = true;
                }
                Ok(FeederOutput::End(unsent)) => {
                    self.unsent = Some(unsent);
                    driver.command(now, BroadcastCommand::Flush);
                    self.stirred = true;
                }
                Err(TryRecvError::Empty) => return,
                Err(TryRecvError::Disconnected) => {
                    self.over =
                        Some(Err(anyhow::anyhow!("the thread that reads ended by a fault")));
                    return;
                }
            }
        }
    }

    fn put(&mut self, from: Span, object: &[u8], wire: &mut dyn Wire) {
        let region = wire.region_mut(from.region).unwrap_or_default();
        let range = from.range_in(region.len());
        match range.and_then(|range| region.get_mut(range)) {
            Some(place) => place.copy_from_slice(object),
            None => self.over = Some(Err(anyhow::anyhow!("an object longer than its place"))),
        }
    }

    /// Tells the engine who died.
    fn bury(&mut self, now: LocalNs, driver: &mut Driver<BroadcastNode>) {
        for peer in self.peers.all.iter().filter(|peer| !peer.is_here() || peer.is_parked) {
            if let Some(rank) = peer.rank.filter(|rank| self.buried.insert(*rank)) {
                driver.command(now, BroadcastCommand::Dead { rank: Rank(rank) });
                self.stirred = true;
            }
        }
    }

    /// Looks at the other casts that share a rate, at the budget, and at the agent of the node.
    fn keep_limit(&mut self, now: LocalNs, driver: &mut Driver<BroadcastNode>) {
        if now < self.limit_at {
            return;
        }
        self.limit_at = self.limit.look_again(now, LOOK_EVERY);
        if let Some(until) = self.limit.paused_until(now) {
            driver.command(now, BroadcastCommand::Pause { until });
        }
        let bytes = driver.engine_mut().record().sent * self.symbol;
        if let Some(rate) = self.limit.changed(now, bytes) {
            driver.command(now, BroadcastCommand::Limit { rate });
            self.stirred = true;
        }
    }

    /// Looks at the user and the display.
    fn look(&mut self, now: LocalNs, driver: &mut Driver<BroadcastNode>, wire: &dyn Wire) {
        if now < self.look_at {
            return;
        }
        self.look_at = now + LOOK_EVERY;
        self.metrics.note_traffic(driver.engine_mut().record(), wire.counters());
        self.blame.note(driver.engine_mut().slowest().map(|last| last.0));
        self.display.show(&self.peers.all, self.blame.lately());
        if let Err(error) = self.peers.check() {
            self.over = Some(Err(error));
        }
        let taken = self.peers.all.iter().map(|peer| peer.taken).sum();
        let seen = [self.stable + self.open.len() as u64, self.stable, taken];
        if self.course.is_stuck(now, seen, !self.open.is_empty()) {
            self.over = Some(Err(anyhow::anyhow!(
                "nothing has moved for {STUCK}, though receivers answer; repeat the cast: it sends only what is missing"
            )));
        }
    }
}

impl progress::EngineHost<BroadcastNode> for SendingHost<'_> {
    fn event(&mut self, event: BroadcastEvent) {
        match event {
            BroadcastEvent::Stable { .. } => {
                self.idle.extend(self.open.pop_front());
                self.stable += 1;
            }
            BroadcastEvent::Lost { rank } => {
                self.buried.insert(rank.0);
                let peer = self.peers.all.iter_mut().find(|peer| peer.rank == Some(rank.0));
                if let Some(peer) = peer.filter(|peer| !peer.is_parked) {
                    peer.lose("it did not answer for 30 s, and the others went on without it");
                }
            }
            BroadcastEvent::BelowFloor { rank } if !self.is_stream => {
                if let Some(peer) = self.peers.all.iter_mut().find(|peer| peer.rank == Some(rank.0))
                {
                    peer.is_parked = true;
                }
            }
            BroadcastEvent::Out | BroadcastEvent::Aborted { .. } => {
                self.over = Some(Err(anyhow::anyhow!(
                    "the receivers went on without this host, or ended the cast"
                )));
            }
            BroadcastEvent::Refused { missing } => {
                self.over = Some(Err(anyhow::anyhow!("the network wire: {missing}")))
            }
            BroadcastEvent::Switched { way } => self.display.switched(way),
            _ => {}
        }
    }

    fn control(&mut self, _which: usize, now: LocalNs, driver: &mut Driver<BroadcastNode>) {
        self.peers.look();
        self.bury(now, driver);
    }

    fn after_step(
        &mut self,
        now: LocalNs,
        driver: &mut Driver<BroadcastNode>,
        wire: &mut dyn Wire,
    ) -> ControlFlow<(), Option<LocalNs>> {
        // Before the first bytes.
        self.keep_limit(now, driver);
        self.feed(now, driver, wire);
        self.bury(now, driver);
        self.look(now, driver, wire);
        let nobody_is_left = !self
            .peers
            .all
            .iter()
            .any(|peer| peer.is_here() && peer.rank.is_some() && !peer.is_parked);
        let is_all_cast = self.unsent.is_some() && self.open.is_empty();
        if self.over.is_some() || nobody_is_left || is_all_cast {
            return ControlFlow::Break(());
        }
        let next =
            if std::mem::take(&mut self.stirred) { now } else { self.look_at.min(self.limit_at) };
        ControlFlow::Continue(Some(next))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn is_stuck__when_nothing_moves_and_something_should() {
        let mut course = SendProgress::default();
        let at = |seconds| LocalNs(0) + Nanos::from_secs(seconds);
        assert!(!course.is_stuck(at(100), [1, 0, 0], true), "it has just begun");
        assert!(!course.is_stuck(at(160), [1, 0, 0], true));
        assert!(course.is_stuck(at(161), [1, 0, 0], true));
        assert!(!course.is_stuck(at(161), [1, 0, 7], true), "somebody took something");
        assert!(
            !course.is_stuck(at(900), [1, 1, 7], false),
            "a stream may bring nothing for as long as it likes"
        );
        assert!(!course.is_stuck(at(950), [2, 1, 7], true));
    }
}
