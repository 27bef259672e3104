//! All ends and what is under way between them: turns posts into orders, and notices into arrivals.
//!
//! # Model
//! One-sided messages that the carrier lost are sent again by the interface, as reliable
//! connections do, until it gives up and their token ends as flushed. Datagrams that were lost are
//! lost. Ranks on one host reach each other through the host's interface: its delays and its
//! memory's rate, one message after another, no cable.
//!
//! # Invariants
//! I1. A token completes once, also when the peer is down or was started again in between.
//! I2. Stale writes, reads and changes (posted to an earlier incarnation) touch no memory: keys
//!     died with it. Stale datagrams
//!     arrive.
//! I3. The cost of an event does not grow with the number of ranks; that of a multicast grows with
//!     its members.
//!
//! # Not here
//! Queues, lanes and loss: the carrier's. When engines run: `world`.

mod delivery;

use std::collections::{BTreeMap, BTreeSet};

use clearway_proto::base::{GroupId, RandomKey, Rank};
use clearway_proto::wire::{Destination, OperationKind, Span, Status, Token};

use super::end::SimWire;
use super::flight::{Acknowledgement, FlightId, InFlight, InFlightTable, Queued};
use super::{Carrier, EndConfig, NetworkConfig, capabilities};
use crate::clock::Clock;
use crate::disk::{Disk, DiskRequest, Survival};
use crate::fabric::{EcnMark, Notice, NoticeSet, Payload, SendRequest, Target};
use crate::graph::DeviceId;
use crate::processor::Processor;
use crate::spec::FabricSpec;
use crate::time::{Pace, Picos};

/// How far behind its next event the carrier may be sent at once: it would take an endless time
/// literally.
const STRIDE: Picos = Picos::from_micros(1_000);

/// An event that is not the carrier's.
#[derive(Debug)]
enum NetworkEvent {
    /// A message reaches a rank (or nobody) through its own host.
    Loopback { tag: FlightId, to: Option<Rank> },
    /// A lost one-sided message leaves again.
    Repeat { tag: FlightId },
    /// An interface reports late that something ended.
    Report { rank: Rank, incarnation: u32, token: Token, status: Status, value: u64 },
    /// An interface gives up.
    GiveUp { rank: Rank, incarnation: u32, token: Token },
    /// A disk is done.
    File { rank: Rank, incarnation: u32, memory: Span, token: Token, request: Box<DiskRequest> },
}

/// All ends, and what is under way between them.
#[derive(Debug)]
pub struct Network<C> {
    carrier: C,
    ends: Vec<SimWire>,
    hosts: Vec<DeviceId>,
    /// Ranks by host: those of host `h` are `ranks[first[h]..first[h + 1]]`.
    first: Vec<u32>,
    ranks: Vec<Rank>,
    groups: BTreeMap<GroupId, BTreeSet<DeviceId>>,
    flights: InFlightTable,
    later: BTreeMap<(Picos, u64), NetworkEvent>,
    later_count: u64,
    loopback_free: Vec<Picos>,
    transmit_delay: Picos,
    receive_delay: Picos,
    memory_pace: Pace,
    /// The rank that may have posted since the last look.
    turned: Option<Rank>,
    notices: Vec<Notice>,
    woken: Vec<Rank>,
    now: Picos,
    damage: RandomKey,
}

impl<C: Carrier> Network<C> {
    /// Ends for all ranks of `config` on `carrier`, which is a fabric of `spec`.
    pub fn new(carrier: C, spec: &FabricSpec, config: NetworkConfig) -> Self {
        let mut lacks = C::LACKS.to_vec();
        if config.disk.is_none() {
            lacks.push(OperationKind::File);
        }
        let end = |rank: u32| {
            let key = config.key.node(u64::from(rank));
            let parts = EndConfig {
                ranks: config.hosts.len() as u32,
                bodies: config.bodies,
                capabilities: capabilities::capabilities(spec, &lacks),
                copy_pace: Pace::from_rate(spec.host.memory_rate),
                lossy: capabilities::lossy(&spec.classes),
                clock: Clock::drawn(key, spec.host.clock_ppm),
                processor: Processor::new(&spec.host, key),
                disk: config.disk.map(Disk::new),
            };
            SimWire::new(Rank(rank), parts)
        };
        let hosts_count = config.hosts.iter().map(|host| host.index() + 1).max().unwrap_or(0);
        let mut first = vec![0u32; hosts_count + 1];
        config.hosts.iter().for_each(|host| first[host.index() + 1] += 1);
        (1..first.len()).for_each(|host| first[host] += first[host - 1]);
        let mut ranks: Vec<Rank> = (0..config.hosts.len() as u32).map(Rank).collect();
        ranks.sort_by_key(|rank| config.hosts[rank.index()]);
        Self {
            now: carrier.now(),
            carrier,
            ends: (0..config.hosts.len() as u32).map(end).collect(),
            first,
            ranks,
            groups: BTreeMap::new(),
            flights: InFlightTable::default(),
            later: BTreeMap::new(),
            later_count: 0,
            loopback_free: vec![Picos::ZERO; hosts_count],
            transmit_delay: spec.host.transmit_delay,
            receive_delay: spec.host.receive_delay,
            memory_pace: Pace::from_rate(spec.host.memory_rate),
            turned: None,
            notices: Vec::new(),
            woken: Vec::new(),
            damage: config.key.purpose("damage"),
            hosts: config.hosts,
        }
    }

    /// Returns how far virtual time has come.
    pub const fn now(&self) -> Picos {
        self.now
    }

    /// Returns the fabric.
    pub const fn carrier(&self) -> &C {
        &self.carrier
    }

    /// Returns the fabric, to disturb it.
    pub const fn carrier_mut(&mut self) -> &mut C {
        &mut self.carrier
    }

    /// Returns the host of `rank`.
    pub fn host(&self, rank: Rank) -> DeviceId {
        self.hosts[rank.index()]
    }

    /// Returns how many ranks there are.
    pub fn ranks(&self) -> u32 {
        self.ends.len() as u32
    }

    /// Returns the messages under way.
    pub fn under_way(&self) -> usize {
        self.flights.count()
    }

    /// Returns the end of `rank`, its processor brought to the present.
    ///
    /// # Panics
    /// When there is no such rank: a mistake of the caller.
    pub fn wire(&mut self, rank: Rank) -> &mut SimWire {
        if self.turned != Some(rank) {
            self.collect();
            self.turned = Some(rank);
        }
        let end = &mut self.ends[rank.index()];
        end.processor.wake(self.now);
        end
    }

    /// Returns when the processor of `rank` is there for it next.
    pub(crate) fn free_at(&mut self, rank: Rank) -> Picos {
        self.ends[rank.index()].processor.wake(self.now)
    }

    /// Returns the end of `rank`, to look at.
    pub fn end(&self, rank: Rank) -> &SimWire {
        &self.ends[rank.index()]
    }

    /// Returns when something happens next, posts so far included.
    pub fn next_at(&mut self) -> Option<Picos> {
        self.collect();
        let own = self.later.first_key_value().map(|((at, _), _)| *at);
        [self.carrier.next(), own].into_iter().flatten().min()
    }

    /// Lets time pass to `until` or to the first instant at which something may have reached a
    /// rank.
    pub fn advance(&mut self, until: Picos) -> Picos {
        self.collect();
        let own = self.later.first_key_value().map_or(Picos::NEVER, |((at, _), _)| *at);
        let horizon = until.min(own).max(self.now);
        let next = self.carrier.next().filter(|next| *next <= horizon);
        self.now = match next {
            Some(next) => self.carrier.advance(horizon.min(next + STRIDE), &mut self.notices),
            None => horizon,
        };
        let mut notices = core::mem::take(&mut self.notices);
        notices.drain(..).for_each(|notice| self.handle_notice(notice));
        self.notices = notices;
        while let Some(entry) = self.later.first_entry()
            && entry.key().0 <= self.now
        {
            let later = entry.remove();
            self.happen(later);
        }
        self.now
    }

    /// Moves the ranks for whom something lies ready since the last call to `woken`; some may be
    /// named twice.
    pub(crate) fn take_woken(&mut self, woken: &mut Vec<Rank>) {
        woken.append(&mut self.woken);
    }

    /// Stops the node of `rank` at once, as a fault. What it sent goes on its way; `survival` says
    /// what is on its disk.
    pub fn crash(&mut self, rank: Rank, survival: Survival) {
        self.collect();
        if survival != Survival::Nothing {
            self.interrupt_files(rank);
        }
        self.ends[rank.index()].crash(self.now, survival);
    }

    /// Gives the disk of `rank` the operations that are under way, in the order in which they
    /// began.
    fn interrupt_files(&mut self, rank: Rank) {
        let incarnation = self.ends[rank.index()].incarnation;
        let Some(disk) = &mut self.ends[rank.index()].disk else { return };
        let own = |later: &NetworkEvent| match later {
            NetworkEvent::File { rank: of, incarnation: n, .. } => (*of, *n) == (rank, incarnation),
            _ => false,
        };
        let under_way: Vec<(Picos, u64)> =
            self.later.iter().filter(|(_, later)| own(later)).map(|(key, _)| *key).collect();
        for key in under_way {
            if let Some(NetworkEvent::File { request, .. }) = self.later.remove(&key) {
                disk.interrupt(*request);
            }
        }
    }

    /// Brings the node of `rank` back, with another incarnation, no memory and no groups.
    pub fn revive(&mut self, rank: Rank) {
        self.ends[rank.index()].up = true;
    }

    /// Takes what the rank that was turned to has posted.
    fn collect(&mut self) {
        let Some(rank) = self.turned.take() else { return };
        let place = rank.index();
        for group in core::mem::take(&mut self.ends[place].joins) {
            let host = self.hosts[place];
            if !self.ends[place].groups.contains(&group) {
                self.ends[place].groups.push(group);
            }
            if self.groups.entry(group).or_default().insert(host) {
                self.carrier.join(group, host);
            }
        }
        if !self.ends[place].file_jobs.is_empty() {
            let jobs = core::mem::take(&mut self.ends[place].file_jobs);
            jobs.into_iter().for_each(|job| self.begin_file(rank, job));
        }
        // The buffer wanders from rank to rank, so that it exists once.
        let mut outbox = core::mem::take(&mut self.ends[place].outbox);
        for outgoing in outbox.drain(..) {
            match outgoing.flight.to {
                Destination::One(to) => self.launch(outgoing.at, outgoing.flight, to),
                Destination::Group(group) => {
                    self.launch_to_group(outgoing.at, outgoing.flight, group)
                }
            }
        }
        self.ends[place].outbox = outbox;
    }

    fn launch(&mut self, at: Picos, mut flight: InFlight, to: Rank) {
        flight.peer_incarnation = self.ends[to.index()].incarnation;
        self.depart(at, flight, to);
    }

    fn depart(&mut self, at: Picos, flight: InFlight, to: Rank) {
        let (from, to_host) = (self.host(flight.from), self.host(to));
        let bytes = flight.bytes;
        if from == to_host {
            let tag = self.flights.insert(flight);
            self.loop_back(at, from, bytes, tag, Some(to));
        } else {
            let tag = self.flights.insert(flight);
            self.order(at, tag, Target::Host(to_host));
        }
    }

    fn launch_to_group(&mut self, at: Picos, mut flight: InFlight, group: GroupId) {
        let (sender, bytes) = (flight.from, flight.bytes);
        let here = self.host(sender);
        let members = self.groups.get(&group);
        let remote = members.map_or(0, |hosts| hosts.len() - usize::from(hosts.contains(&here)));
        let local: Vec<Rank> = self.members_on(here, group, sender).collect();
        flight.receivers = (remote + local.len()) as u32;
        let tag = self.flights.insert(flight);
        if remote > 0 {
            self.order(at, tag, Target::Group(group));
        } else if local.is_empty() {
            self.loop_back(at, here, bytes, tag, None);
        }
        for rank in local {
            self.loop_back(at, here, bytes, tag, Some(rank));
        }
    }

    /// Returns the members of `group` on `host`, without `sender`.
    fn members_on(
        &self,
        host: DeviceId,
        group: GroupId,
        sender: Rank,
    ) -> impl Iterator<Item = Rank> + '_ {
        let range = self.first[host.index()] as usize..self.first[host.index() + 1] as usize;
        let joined =
            move |rank: &Rank| *rank != sender && self.ends[rank.index()].groups.contains(&group);
        self.ranks[range].iter().copied().filter(joined)
    }

    fn order(&mut self, at: Picos, tag: FlightId, to: Target) {
        let Some(flight) = self.flights.get_mut(tag) else { return };
        let reports = match (flight.acknowledgement, flight.queued) {
            (Acknowledgement::Awaited, _) => NoticeSet::All,
            (_, Queued::Yes) => NoticeSet::SentAndDelivery,
            (_, Queued::No) => NoticeSet::Delivery,
        };
        let (class, bytes, rail) = (flight.class, flight.bytes, flight.path.0);
        let from = self.hosts[flight.from.index()];
        self.carrier.post(at, SendRequest { from, to, class, bytes, rail, reports, tag: tag.0 });
    }

    fn loop_back(
        &mut self,
        at: Picos,
        host: DeviceId,
        bytes: u64,
        tag: FlightId,
        to: Option<Rank>,
    ) {
        let begins = self.loopback_free[host.index()].max(at + self.transmit_delay);
        let bytes = u32::try_from(bytes).unwrap_or(u32::MAX);
        let ends = begins + self.memory_pace.time(bytes).max(Picos(1));
        self.loopback_free[host.index()] = ends;
        self.put_later(ends + self.receive_delay, NetworkEvent::Loopback { tag, to });
    }

    fn put_later(&mut self, at: Picos, later: NetworkEvent) {
        self.later.insert((at, self.later_count), later);
        self.later_count += 1;
    }

    fn handle_notice(&mut self, notice: Notice) {
        match notice {
            Notice::Sent { tag, at, .. } => self.sent(FlightId(tag), at),
            Notice::Delivered { tag, to, at, marked, payload } => {
                let tag = FlightId(tag);
                let Some(flight) = self.flights.get_mut(tag) else { return };
                match flight.to {
                    Destination::One(rank) => self.delivered(tag, rank, at, marked, payload),
                    Destination::Group(group) => {
                        let sender = flight.from;
                        let ranks: Vec<Rank> = self.members_on(to, group, sender).collect();
                        self.delivered_to_host(tag, &ranks, at, marked, payload);
                    }
                }
            }
            Notice::Doubled { tag, .. } => self.with(FlightId(tag), |flight| {
                // Interfaces number what they send one-sidedly: a second copy of that never gets to
                // anyone.
                flight.receivers += u32::from(flight.kind == super::flight::FlightKind::Message);
            }),
            Notice::Acknowledged { tag, at, .. } => self.acknowledged(FlightId(tag), at),
            Notice::Lost { tag, at, .. } => self.lost(FlightId(tag), at),
        }
    }

    fn happen(&mut self, later: NetworkEvent) {
        let at = self.now;
        match later {
            NetworkEvent::Loopback { tag, to } => {
                self.sent(tag, at);
                match to {
                    Some(rank) => self.delivered(tag, rank, at, EcnMark::No, Payload::Intact),
                    None => self.flights.retire(tag),
                }
                self.acknowledged(tag, at);
            }
            NetworkEvent::Repeat { tag } => {
                if let Some(flight) = self.flights.get_mut(tag)
                    && let Destination::One(to) = flight.to
                {
                    let target = Target::Host(self.host(to));
                    self.order(at, tag, target);
                }
            }
            NetworkEvent::Report { rank, incarnation, token, status, value } => {
                self.report(rank, incarnation, token, status, value, at);
            }
            NetworkEvent::GiveUp { rank, incarnation, token } => {
                self.complete(rank, incarnation, token, Status::Flushed, 0, at);
            }
            NetworkEvent::File { rank, incarnation, memory, token, request } => {
                self.end_file(rank, incarnation, memory, token, *request);
            }
        }
    }

    fn with(&mut self, tag: FlightId, change: impl FnOnce(&mut InFlight)) {
        if let Some(flight) = self.flights.get_mut(tag) {
            change(flight);
        }
    }

    fn one_less(&mut self, tag: FlightId) {
        self.with(tag, |flight| flight.receivers = flight.receivers.saturating_sub(1));
        self.flights.retire(tag);
    }
}
