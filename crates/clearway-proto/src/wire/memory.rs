//! A wire inside one process, on virtual time: every operation of the contract, exact, with loss on
//! request.
//!
//! # Model
//! All ranks' ends live in one [`MemoryFabric`]. A posted operation waits in the outbox of its end;
//! [`MemoryFabric::advance`] moves time forward and carries everything `latency` later to its
//! target. A send is lost with a chance of `loss_per_million`, drawn from a seed. Each end accepts
//! `room` messages at a time.
//!
//! # Invariants
//! I1. Same configuration, same posts, same times: same arrivals, byte for byte.
//! I2. Without loss nothing is lost, doubled or reordered.
//!
//! # Not here
//! Switches, credits, and queues but for one in front of an end ([`MemoryFabric::limit_rate`]):
//! that is the simulated fabric's subject.

mod faults;
mod inlet;
mod lanes;

pub use faults::FaultInjection;

use alloc::boxed::Box;
use alloc::collections::{BTreeMap, BTreeSet, VecDeque};
use alloc::vec;
use alloc::vec::Vec;

use self::faults::{FaultState, MessageFate};
use self::inlet::Inlet;
use self::lanes::{DelayLane, Lanes};
use super::regions::{Pages, Regions};
use super::{
    AdoptedMemory, Arrival, AtomicKind, Capabilities, Counters, Datagram, Delivery, Destination,
    Granted, HeldBytes, Operation, OperationKind, OperationSet, PathId, PostOutcome, Queue,
    RefusalReason, RegionId, RemoteSpan, Span, Stamp, StampSource, Status, Token, Wire,
};
use crate::base::{
    BitsPerSec, Bytes, Class, GroupId, LocalNs, Nanos, RandomKey, RandomStream, Rank, SharedClock,
    crc32c,
};

/// The longest header: as long as the UDP wire's, so that an engine that fits here fits there.
const HEAD_MAX: usize = 128;
/// The longest message: what is left of a 1500-byte packet after IP (20), UDP (8) and the UDP
/// wire's header (16).
const MESSAGE_MAX: usize = 1_456;

/// How a [`MemoryFabric`] behaves.
#[derive(Clone, Copy, Debug)]
pub struct MemoryConfig {
    /// Ranks, each with one end.
    pub ranks: u32,
    /// Time from post to arrival. Must be longer than zero, or nothing would ever be "later".
    pub latency: Nanos,
    /// Messages of one end under way at a time.
    pub room: usize,
    /// Chance of losing a message, in millionths.
    pub loss_per_million: u32,
    /// What else is done to messages.
    pub fault_injection: FaultInjection,
    /// Paths between any two ends, all alike.
    pub paths: u8,
    /// Decides which messages are lost, and the rest.
    pub seed: u64,
}

impl MemoryConfig {
    /// Creates a lossless fabric of `ranks` with 10 us latency.
    pub const fn lossless(ranks: u32) -> Self {
        let fault_injection = FaultInjection { doubled: 0, late: 0, damaged: 0 };
        Self {
            ranks,
            latency: Nanos::from_micros(10),
            room: 256,
            loss_per_million: 0,
            fault_injection,
            paths: 1,
            seed: 0,
        }
    }
}

/// What is under way to one end, or back to it.
#[derive(Clone, Debug)]
enum InFlight {
    Message {
        from: Rank,
        path: PathId,
        class: Class,
        head: Box<[u8]>,
        body: Box<[u8]>,
        /// Of who waits until it has arrived.
        token: Option<Token>,
    },
    Write {
        from: Rank,
        into: RemoteSpan,
        bytes: Box<[u8]>,
        immediate: Option<u64>,
        token: Option<Token>,
    },
    Read {
        from: Rank,
        source: RemoteSpan,
        into: Span,
        token: Token,
    },
    ReadReply {
        bytes: Box<[u8]>,
        into: Span,
        token: Token,
    },
    Atomic {
        from: Rank,
        kind: AtomicKind,
        at: RemoteSpan,
        token: Token,
    },
    Done {
        token: Token,
        status: Status,
        value: u64,
    },
    /// The sender gives up what is under way to the target.
    Abandon {
        from: Rank,
    },
}

impl InFlight {
    /// Returns on which lane to `to` it goes, if it is a message or a write.
    fn lane(&self, to: Rank) -> Option<DelayLane> {
        match self {
            Self::Message { from, class, .. } => Some((*from, to, Some(*class))),
            Self::Write { from, .. } => Some((*from, to, None)),
            _ => None,
        }
    }
}

/// What lies ready for one end's next poll.
#[derive(Debug)]
enum ReadyArrivals {
    Message {
        from: Rank,
        path: PathId,
        class: Class,
        at: LocalNs,
        head: Box<[u8]>,
        body: Box<[u8]>,
    },
    Landed {
        from: Rank,
        into: Span,
        immediate: u64,
        at: LocalNs,
    },
    Done {
        token: Token,
        status: Status,
        value: u64,
        at: LocalNs,
    },
    Room {
        class: Class,
    },
}

/// All ends, and what is under way between them.
#[derive(Debug)]
pub struct MemoryFabric {
    config: MemoryConfig,
    wires: Vec<MemoryWire>,
    groups: BTreeMap<GroupId, BTreeSet<Rank>>,
    under_way: BTreeMap<(LocalNs, u64), (Rank, InFlight)>,
    posted: u64,
    now: LocalNs,
    latency: Nanos,
    loss_per_million: u32,
    loss: RandomStream,
    fault_state: FaultState,
    /// Of ends whose messages come one after the other.
    inlets: BTreeMap<Rank, Inlet>,
    /// Where delays are drawn.
    lanes: Option<Lanes>,
}

/// One rank's end of a [`MemoryFabric`].
#[derive(Debug)]
pub struct MemoryWire {
    rank: Rank,
    ranks: u32,
    now: LocalNs,
    room: usize,
    in_flight: usize,
    /// Sends end when they have arrived, not when they have left.
    acknowledges: bool,
    refused: BTreeSet<Class>,
    capabilities: Capabilities,
    memory: Regions<Pages>,
    receive: Vec<u8>,
    outbox: Vec<(Destination, InFlight)>,
    joins: Vec<GroupId>,
    leaves: Vec<GroupId>,
    joined: BTreeSet<GroupId>,
    ready: VecDeque<ReadyArrivals>,
    counters: Counters,
}

impl MemoryFabric {
    /// Ends for all ranks of `config`, at time zero.
    pub fn new(config: MemoryConfig) -> Self {
        Self {
            config,
            wires: (0..config.ranks).map(|rank| MemoryWire::new(Rank(rank), &config)).collect(),
            groups: BTreeMap::new(),
            under_way: BTreeMap::new(),
            posted: 0,
            now: LocalNs(0),
            latency: config.latency,
            loss_per_million: config.loss_per_million,
            loss: RandomKey::new(config.seed).purpose("memory wire loss").stream(),
            fault_state: FaultState::new(config.fault_injection, config.seed),
            inlets: BTreeMap::new(),
            lanes: None,
        }
    }

    /// Returns the end of `rank`.
    ///
    /// # Panics
    /// When the fabric has no such rank: a mistake of the test that asks.
    pub fn wire(&mut self, rank: Rank) -> &mut MemoryWire {
        &mut self.wires[rank.index()]
    }

    /// Takes the end of a rank out; until it is put back by [`MemoryFabric::exchange`], another one
    /// that nobody knows stands in its place.
    ///
    /// # Panics
    /// When the fabric has no such rank.
    pub fn take(&mut self, rank: Rank) -> MemoryWire {
        let mut stand_in = MemoryWire::new(rank, &self.config);
        self.exchange(rank, &mut stand_in);
        stand_in
    }

    /// Exchanges the end of a rank for `wire`: an adaptor that owns the end lends it back while
    /// time moves.
    ///
    /// # Panics
    /// When the fabric has no such rank.
    pub fn exchange(&mut self, rank: Rank, wire: &mut MemoryWire) {
        core::mem::swap(&mut self.wires[rank.index()], wire);
    }

    /// Cuts `path`: nothing that is posted on it from now on arrives.
    pub fn cut_path(&mut self, path: PathId) {
        self.fault_state.cut_path(path);
    }

    /// Restores `path`: it carries again.
    pub fn restore_path(&mut self, path: PathId) {
        self.fault_state.restore_path(path);
    }

    /// Blocks messages to groups at `rank`, as when a switch drops its membership: they arrive no
    /// more.
    pub fn block_multicast(&mut self, rank: Rank) {
        self.fault_state.block_multicast(rank);
    }

    /// Lets messages to groups arrive at `rank` again.
    pub fn unblock_multicast(&mut self, rank: Rank) {
        self.fault_state.unblock_multicast(rank);
    }

    /// Limits messages to groups to the sender's leaf of this many ranks, as where routers between
    /// leaves do not carry them.
    pub fn limit_multicast_to_leaf(&mut self, leaf: u32) {
        self.fault_state.limit_multicast_to_leaf(leaf);
    }

    /// Lets messages come to `rank` at `rate`, one after the other, from a queue of `room` bytes; a
    /// message that finds no room there is lost.
    pub fn limit_rate(&mut self, rank: Rank, rate: BitsPerSec, room: Bytes) {
        self.inlets.insert(rank, Inlet::new(rate, room));
    }

    /// Returns how many messages to `rank` came through its queue, and how many found no room.
    pub fn passed_and_dropped(&self, rank: Rank) -> (u64, u64) {
        self.inlets.get(&rank).map_or((0, 0), Inlet::counts)
    }

    /// Returns the fabric's time.
    pub fn now(&self) -> LocalNs {
        self.now
    }

    /// Returns when the next thing under way arrives; posts since the last
    /// [`MemoryFabric::advance`] included.
    pub fn next_arrival(&mut self) -> Option<LocalNs> {
        self.collect();
        self.under_way.first_key_value().map(|((at, _), _)| *at)
    }

    /// Moves time to `to` and delivers everything that arrives until then.
    pub fn advance(&mut self, to: LocalNs) {
        self.collect();
        while let Some(entry) = self.under_way.first_entry()
            && entry.key().0 <= to
        {
            let (at, _) = *entry.key();
            let (target, flight) = entry.remove();
            self.now = self.now.max(at);
            self.deliver(target, flight);
        }
        self.now = self.now.max(to);
        for wire in &mut self.wires {
            wire.now = self.now;
        }
    }

    /// Takes what the ends posted and puts it under way.
    fn collect(&mut self) {
        for i in 0..self.wires.len() {
            let rank = Rank(i as u32);
            for group in core::mem::take(&mut self.wires[i].joins) {
                self.groups.entry(group).or_default().insert(rank);
            }
            for group in core::mem::take(&mut self.wires[i].leaves) {
                self.groups.entry(group).or_default().remove(&rank);
            }
        }
        for i in 0..self.wires.len() {
            let from = Rank(i as u32);
            for (to, flight) in core::mem::take(&mut self.wires[i].outbox) {
                match to {
                    Destination::One(rank) => self.launch(rank, flight),
                    Destination::Group(group) => self.launch_to_group(from, group, &flight),
                }
            }
        }
    }

    fn launch_to_group(&mut self, from: Rank, group: GroupId, flight: &InFlight) {
        let InFlight::Message { path, class, head, body, .. } = flight else { return };
        self.wires[from.index()].landed_one();
        let members = self.groups.get(&group).cloned().unwrap_or_default();
        for member in members.into_iter().filter(|member| *member != from) {
            if self.fault_state.is_multicast_blocked(from, member) {
                continue;
            }
            let copy = InFlight::Message {
                from,
                path: *path,
                class: *class,
                head: head.clone(),
                body: body.clone(),
                token: None,
            };
            self.wires[from.index()].in_flight += 1;
            self.launch(member, copy);
        }
    }

    fn launch(&mut self, to: Rank, mut flight: InFlight) {
        if let InFlight::Abandon { from } = flight {
            return self.abandon(from, to);
        }
        let mut fate = MessageFate { again: None, late: 0 };
        let mut queued = Nanos::ZERO;
        if let InFlight::Message { from, path, head, body, .. } = &flight {
            let length = Bytes((head.len() + body.len()) as u64);
            if let Some(inlet) = self.inlets.get_mut(&to) {
                let Some(wait) = inlet.enter(length, self.now) else {
                    self.wires[from.index()].landed_one();
                    return;
                };
                queued = wait;
            }
            if self.loss.below(1_000_000) < u64::from(self.loss_per_million)
                || self.fault_state.is_cut(*path)
            {
                self.wires[from.index()].landed_one();
                return;
            }
            fate = self.fault_state.decide(&mut flight);
        }
        if let Some(again) = fate.again
            && let InFlight::Message { from, .. } = &flight
        {
            self.wires[from.index()].in_flight += 1;
            self.put_under_way(self.latency.times(again), to, flight.clone());
        }
        self.put_under_way(queued + self.latency.times(fate.late), to, flight);
    }

    fn put_under_way(&mut self, late: Nanos, to: Rank, flight: InFlight) {
        let mut at = self.now + self.latency + late;
        if let (Some(lanes), Some(lane)) = (&mut self.lanes, flight.lane(to)) {
            at = lanes.arrival(lane, at);
        }
        self.under_way.insert((at, self.posted), (to, flight));
        self.posted += 1;
    }

    fn deliver(&mut self, target: Rank, flight: InFlight) {
        let at = self.now;
        match flight {
            InFlight::Message { from, path, class, head, body, token } => {
                self.wires[from.index()].landed_one();
                self.answer(from, token, Status::Complete, 0);
                self.wires[target.index()].ready.push_back(ReadyArrivals::Message {
                    from,
                    path,
                    class,
                    at,
                    head,
                    body,
                });
            }
            InFlight::Write { from, into, bytes, immediate, token } => {
                let into =
                    Span { region: into.region, offset: into.offset, length: bytes.len() as u32 };
                let status = match self.wires[target.index()].peer_copies_in(into, &bytes) {
                    Ok(()) => {
                        let landed = immediate.map(|immediate| ReadyArrivals::Landed {
                            from,
                            into,
                            immediate,
                            at,
                        });
                        self.wires[target.index()].ready.extend(landed);
                        Status::Complete
                    }
                    Err(missing) => Status::Refused(missing),
                };
                self.answer(from, token, status, 0);
            }
            InFlight::Read { from, source, into, token } => {
                let source =
                    Span { region: source.region, offset: source.offset, length: into.length };
                match self.wires[target.index()].peer_takes(source) {
                    Ok(bytes) => self.launch(from, InFlight::ReadReply { bytes, into, token }),
                    Err(missing) => self.answer(from, Some(token), Status::Refused(missing), 0),
                }
            }
            InFlight::ReadReply { bytes, into, token } => {
                let wire = &mut self.wires[target.index()];
                let status = wire
                    .memory
                    .copy_in(into, &bytes)
                    .map_or_else(Status::Refused, |()| Status::Complete);
                wire.ready.push_back(ReadyArrivals::Done { token, status, value: 0, at });
            }
            InFlight::Atomic { from, kind, at: word, token } => {
                match self.wires[target.index()].memory.change(word, kind) {
                    Ok(old) => self.answer(from, Some(token), Status::Complete, old),
                    Err(missing) => self.answer(from, Some(token), Status::Refused(missing), 0),
                }
            }
            InFlight::Abandon { .. } => {}
            InFlight::Done { token, status, value } => {
                self.wires[target.index()].ready.push_back(ReadyArrivals::Done {
                    token,
                    status,
                    value,
                    at,
                });
            }
        }
    }

    fn answer(&mut self, to: Rank, token: Option<Token>, status: Status, value: u64) {
        if let Some(token) = token {
            self.launch(to, InFlight::Done { token, status, value });
        }
    }
}

impl MemoryWire {
    fn new(rank: Rank, config: &MemoryConfig) -> Self {
        let delivery =
            if config.loss_per_million == 0 { Delivery::Reliable } else { Delivery::Lossy };
        let operations = OperationSet::from_kinds(&[
            OperationKind::Send,
            OperationKind::Multicast,
            OperationKind::Write,
            OperationKind::Read,
            OperationKind::Atomic,
            OperationKind::Copy,
            OperationKind::Digest,
        ]);
        Self {
            rank,
            ranks: config.ranks,
            now: LocalNs(0),
            room: config.room,
            in_flight: 0,
            acknowledges: false,
            refused: BTreeSet::new(),
            capabilities: Capabilities {
                name: "memory",
                operations,
                delivery,
                head_max: HEAD_MAX,
                body_max: MESSAGE_MAX,
                message_max: MESSAGE_MAX,
                stamp: StampSource::Virtual,
                shared_clock: Some(SharedClock::asserted_by_wire()),
                classes: [Granted::Marked; Class::ALL.len()],
                sends_follow_writes: config.loss_per_million == 0,
                adopts: true,
                any_local: true,
                groups_max: usize::MAX,
                paths: vec![None; usize::from(config.paths)],
            },
            memory: Regions::default(),
            receive: Vec::new(),
            outbox: Vec::new(),
            joins: Vec::new(),
            leaves: Vec::new(),
            joined: BTreeSet::new(),
            ready: VecDeque::new(),
            counters: Counters::default(),
        }
    }

    /// Records that a message of this end arrived or was lost: room for another.
    fn landed_one(&mut self) {
        self.in_flight = self.in_flight.saturating_sub(1);
        if self.in_flight < self.room {
            while let Some(class) = self.refused.pop_first() {
                self.ready.push_back(ReadyArrivals::Room { class });
            }
        }
    }

    /// Returns a copy of the bytes of `span`.
    fn take(&self, span: Span) -> Result<Box<[u8]>, RefusalReason> {
        let mut scratch = Vec::new();
        self.memory.bytes_or_copy(&self.receive, span, &mut scratch).map(Box::from)
    }

    /// Copies bytes in for a peer.
    fn peer_copies_in(&mut self, into: Span, bytes: &[u8]) -> Result<(), RefusalReason> {
        if self.memory.holds(into) {
            self.memory.copy_in(into, bytes)
        } else {
            Err(RefusalReason::Memory)
        }
    }

    /// Returns a copy of bytes for a peer.
    fn peer_takes(&self, from: Span) -> Result<Box<[u8]>, RefusalReason> {
        if self.memory.holds(from) { self.take(from) } else { Err(RefusalReason::Memory) }
    }

    /// Returns whether this end may touch `span`.
    fn holds(&self, span: Span) -> Result<(), RefusalReason> {
        self.memory.check(&self.receive, span)
    }

    fn check(&self, operation: &Operation, heads: &[u8]) -> Result<(), RefusalReason> {
        if !self.capabilities.operations.has(operation.kind())
            && operation.kind() != OperationKind::Abandon
        {
            return Err(RefusalReason::Operation(operation.kind()));
        }
        let known =
            |rank: Rank| if rank.0 < self.ranks { Ok(()) } else { Err(RefusalReason::Rank) };
        let paths = self.capabilities.paths.len();
        let route = |path: PathId| {
            if usize::from(path.0) < paths { Ok(()) } else { Err(RefusalReason::Path) }
        };
        match *operation {
            Operation::Send { to, path, head, body, .. } => {
                route(path)?;
                if let Destination::One(rank) = to {
                    known(rank)?;
                }
                self.holds(body)?;
                let head = head.bytes_in(heads).ok_or(RefusalReason::Memory)?;
                if self.capabilities.carries(head.len(), body.length as usize) {
                    Ok(())
                } else {
                    Err(RefusalReason::Length)
                }
            }
            Operation::Write { to, path, from, .. } => {
                route(path)?;
                known(to)?;
                self.holds(from)
            }
            Operation::Read { peer, path, into, .. } => {
                route(path)?;
                known(peer)?;
                self.holds(into)
            }
            Operation::Atomic { to, path, .. } => route(path).and_then(|()| known(to)),
            Operation::Copy { from, into } => {
                self.holds(from)?;
                let writable = into.region != RegionId::RECEIVE && from.length == into.length;
                self.holds(into)?;
                if writable { Ok(()) } else { Err(RefusalReason::Memory) }
            }
            Operation::Digest { of, .. } => self.holds(of),
            Operation::File { .. } => Err(RefusalReason::Operation(OperationKind::File)),
            Operation::Abandon { .. } => Ok(()),
            Operation::CopyChecked { .. }
            | Operation::Store { .. }
            | Operation::Show { .. }
            | Operation::Apply { .. } => Err(RefusalReason::Operation(operation.kind())),
        }
    }

    fn start(&mut self, operation: &Operation, heads: &[u8]) -> Result<PostOutcome, RefusalReason> {
        self.check(operation, heads)?;
        match *operation {
            Operation::Send { to, path, class, head, body, token } => {
                if self.in_flight >= self.room {
                    self.refused.insert(class);
                    self.counters.no_room += 1;
                    return Ok(PostOutcome::NoRoom);
                }
                self.in_flight += 1;
                self.counters.sent += 1;
                let head = head.bytes_in(heads).unwrap_or_default().into();
                let body = self.take(body)?;
                let token = token.filter(|_| self.acknowledges);
                let from = self.rank;
                self.outbox.push((to, InFlight::Message { from, path, class, head, body, token }));
                Ok(token.map_or(PostOutcome::Done(0), |_| PostOutcome::Posted))
            }
            Operation::Write { to, from, into, immediate, token, .. } => {
                let bytes = self.take(from)?;
                let flight = InFlight::Write { from: self.rank, into, bytes, immediate, token };
                self.outbox.push((Destination::One(to), flight));
                Ok(PostOutcome::Posted)
            }
            Operation::Read { peer, from, into, token, .. } => {
                let flight = InFlight::Read { from: self.rank, source: from, into, token };
                self.outbox.push((Destination::One(peer), flight));
                Ok(PostOutcome::Posted)
            }
            Operation::Atomic { to, kind, at, token, .. } => {
                self.outbox.push((
                    Destination::One(to),
                    InFlight::Atomic { from: self.rank, kind, at, token },
                ));
                Ok(PostOutcome::Posted)
            }
            Operation::Copy { from, into } => {
                self.memory.copy(&self.receive, from, into).map(|()| PostOutcome::Done(0))
            }
            Operation::Digest { of, .. } => {
                self.digest(of).map(|digest| PostOutcome::Done(u64::from(digest)))
            }
            Operation::File { .. } => Err(RefusalReason::Operation(OperationKind::File)),
            Operation::Abandon { peer } => {
                // Elsewhere every operation ends one latency later, whatever its peer does.
                if self.acknowledges {
                    let flight = InFlight::Abandon { from: self.rank };
                    self.outbox.push((Destination::One(peer), flight));
                }
                Ok(PostOutcome::Done(0))
            }
            Operation::CopyChecked { .. }
            | Operation::Store { .. }
            | Operation::Show { .. }
            | Operation::Apply { .. } => Err(RefusalReason::Operation(operation.kind())),
        }
    }
}

impl Wire for MemoryWire {
    fn rank(&self) -> Rank {
        self.rank
    }

    fn capabilities(&self) -> &Capabilities {
        &self.capabilities
    }

    fn now(&self) -> LocalNs {
        self.now
    }

    fn register(&mut self, length: Bytes) -> Result<RegionId, RefusalReason> {
        self.memory.register_pages(length)
    }

    fn adopt(&mut self, memory: AdoptedMemory) -> Result<RegionId, RefusalReason> {
        self.memory.adopt(memory)
    }

    fn copy_out(&self, from: Span, into: &mut [u8]) -> Result<(), RefusalReason> {
        self.memory.copy_out(&self.receive, from, into)
    }

    fn hold(&self, span: Span) -> Option<HeldBytes> {
        self.memory.adopted(span.region)?.hold(span.offset, span.length)
    }

    fn copy_in(&mut self, into: Span, from: &[u8]) -> Result<(), RefusalReason> {
        self.memory.copy_in(into, from)
    }

    fn digest(&self, of: Span) -> Result<u32, RefusalReason> {
        self.memory.digest(&self.receive, of, crc32c)
    }

    fn region(&self, region: RegionId) -> Option<&[u8]> {
        self.memory.region(&self.receive, region)
    }

    fn region_mut(&mut self, region: RegionId) -> Option<&mut [u8]> {
        self.memory.region_mut(region)
    }

    fn leave(&mut self, group: GroupId) -> Result<(), RefusalReason> {
        if self.joined.remove(&group) {
            self.leaves.push(group);
            return Ok(());
        }
        Err(RefusalReason::Group)
    }

    fn join(&mut self, group: GroupId) -> Result<(), RefusalReason> {
        self.joined.insert(group);
        self.joins.push(group);
        Ok(())
    }

    fn post(&mut self, operations: &[Operation], heads: &[u8], answers: &mut Vec<PostOutcome>) {
        for operation in operations {
            answers.push(self.start(operation, heads).unwrap_or_else(PostOutcome::Refused));
        }
    }

    fn poll(&mut self, limit: usize, sink: &mut dyn FnMut(Arrival<'_>)) -> usize {
        let count = limit.min(self.ready.len());
        self.receive.clear();
        for ready in self.ready.drain(..count) {
            match ready {
                ReadyArrivals::Message { from, path, class, at, head, body } => {
                    let offset = self.receive.len() as u64;
                    self.receive.extend_from_slice(&body);
                    let body =
                        Span { region: RegionId::RECEIVE, offset, length: body.len() as u32 };
                    self.counters.received += 1;
                    let class = Some(class);
                    sink(Arrival::Datagram(Datagram {
                        from,
                        path,
                        class,
                        congestion_marked: false,
                        at: Stamp::Taken(at),
                        head: &head,
                        body,
                    }));
                }
                ReadyArrivals::Landed { from, into, immediate, at } => {
                    sink(Arrival::Landed { from, into, immediate, at: Stamp::Taken(at) })
                }
                ReadyArrivals::Done { token, status, value, at } => {
                    sink(Arrival::Done { token, status, value, at })
                }
                ReadyArrivals::Room { class } => {
                    sink(Arrival::Room { queue: Queue::Path { path: PathId(0), class } })
                }
            }
        }
        count
    }

    fn counters(&self) -> Counters {
        self.counters
    }
}
