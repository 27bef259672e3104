//! One rank's end of the simulated wire: memory, transmit queues, what lies ready; its clock, processor and disk.
//!
//! # Model
//! Time at an end is its processor's: each arrival it takes and each operation it posts costs time, and an operation leaves at
//! the instant at which the processor has come to it. Posted messages wait in the outbox until the network looks; bodies are
//! copied (or their extents noted) at that moment, so that later changes to memory are not sent.
//!
//! # Invariants
//! I1. A queue that answered `NoRoom` gives `Room` once, as soon as it is half empty.
//! I2. No operation touches memory outside its region.

use std::collections::VecDeque;

use clearway_proto::base::{Bytes, Class, GroupId, LocalNs, Rank};
use clearway_proto::wire::{
    Answer, Arrival, AtomicKind, Capabilities, Counters, Datagram, Destination, FileId, FileKind, Missing, Operation,
    OperationKind, PathId, RegionId, RemoteSpan, Span, Status, Token, Wire,
};

use super::capabilities::BODY_MAX;
use super::digest::Digest;
use super::flight::{Acknowledgement, Cargo, Flight, HEAD_MAX, Head, Kind, Outgoing, Queued};
use super::memory::{Body, Extent, Memory, Origin};
use super::{Bodies, Parts, Trouble};
use crate::clock::Clock;
use crate::disk::{Disk, Request};
use crate::processor::Processor;
use crate::time::{Pace, Picos};

/// Regions one end can register: as many as the memory wire.
const REGIONS_MAX: usize = 64;
/// Messages that one transmit queue holds: the send queue depth that verbs programs usually ask for (perftest's `tx-depth`).
const QUEUE_MESSAGES: u32 = 128;
/// Bytes that one transmit queue holds, unless it is empty: one message of the longest body.
const QUEUE_BYTES: u64 = BODY_MAX as u64;
/// Messages that wait for an engine before those of a lossy class are dropped: the longest receive ring of common adapters
/// (mlx5: 8192 descriptors).
const RECEIVE_MESSAGES: usize = 8_192;
/// Bytes of a request to read: address, key and length (InfiniBand's RDMA extended header).
const READ_REQUEST_BYTES: u64 = 16;
/// Bytes of a request to change a word: address, key and two operands (InfiniBand's atomic extended header).
const ATOMIC_REQUEST_BYTES: u64 = 28;

/// A transmit queue: one path, one class.
#[derive(Clone, Copy, Debug, Default)]
struct Queue {
    messages: u32,
    bytes: u64,
    /// Somebody was told `NoRoom`.
    refused: bool,
}

impl Queue {
    /// Whether somebody who was refused should try again, where a queue holds `most` messages.
    fn is_roomy(&self, most: Option<u32>) -> bool {
        let most = most.unwrap_or(QUEUE_MESSAGES);
        most > 0 && self.messages <= most / 2 && self.bytes <= QUEUE_BYTES / 2
    }
}

/// What lies ready for the next harvest.
#[derive(Debug)]
pub(super) enum Ready {
    Message { from: Rank, path: PathId, class: Class, marked: bool, at: LocalNs, head: Head, body: Body },
    Landed { from: Rank, into: Span, immediate: u64, at: LocalNs },
    Done { token: Token, status: Status, value: u64, at: LocalNs },
    Room { path: PathId, class: Class },
}

/// A file operation that was posted.
#[derive(Debug)]
pub(super) struct FileJob {
    pub(super) at: Picos,
    pub(super) request: Request,
    pub(super) memory: Span,
    pub(super) token: Token,
}

/// One rank's end of a [`super::Network`].
#[derive(Debug)]
pub struct SimWire {
    rank: Rank,
    ranks: u32,
    bodies: Bodies,
    capabilities: Capabilities,
    copy_pace: Pace,
    lossy: [bool; Class::ALL.len()],
    /// This node's clock; a disturbance moves deadlines, so the world makes it.
    pub(crate) clock: Clock,
    /// This node's processor.
    pub processor: Processor,
    /// This node's disk, if it has one.
    pub disk: Option<Disk>,
    pub(super) incarnation: u32,
    pub(super) up: bool,
    regions: Vec<Memory>,
    receive: Memory,
    queues: Vec<Queue>,
    pub(super) outbox: Vec<Outgoing>,
    pub(super) file_jobs: Vec<FileJob>,
    pub(super) joins: Vec<GroupId>,
    pub(super) groups: Vec<GroupId>,
    ready: VecDeque<Ready>,
    counters: Counters,
    pub(crate) harvested: usize,
    /// Inputs that the engine took without this end: paid for with the next post.
    pub(crate) owed_inputs: usize,
    pub(crate) digest: Digest,
    /// What is wrong with this end now.
    pub(crate) trouble: Trouble,
}

impl SimWire {
    pub(super) fn new(rank: Rank, parts: Parts) -> Self {
        Self {
            rank,
            ranks: parts.ranks,
            bodies: parts.bodies,
            queues: vec![Queue::default(); parts.capabilities.paths.len() * Class::ALL.len()],
            capabilities: parts.capabilities,
            copy_pace: parts.copy_pace,
            lossy: parts.lossy,
            clock: parts.clock,
            processor: parts.processor,
            disk: parts.disk,
            incarnation: 0,
            up: true,
            regions: Vec::new(),
            receive: memory(parts.bodies, 0, home(rank, RegionId::RECEIVE)),
            outbox: Vec::new(),
            file_jobs: Vec::new(),
            joins: Vec::new(),
            groups: Vec::new(),
            ready: VecDeque::new(),
            counters: Counters::default(),
            harvested: 0,
            owed_inputs: 0,
            digest: Digest::default(),
            trouble: Trouble::default(),
        }
    }

    /// This node's clock.
    pub const fn clock(&self) -> &Clock {
        &self.clock
    }

    /// How often this rank was started again.
    pub const fn incarnation(&self) -> u32 {
        self.incarnation
    }

    /// Opens an empty file for this rank's engine; `size` bytes long where bodies are phantoms, zeroed where they are real.
    ///
    /// # Errors
    /// [`Missing::Operation`] when the node has no disk.
    pub fn open(&mut self, file: FileId, size: Bytes) -> Result<(), Missing> {
        let contents = memory(self.bodies, size.0, Origin::File { rank: self.rank.0, file: file.0 });
        let lacking = Missing::Operation(OperationKind::File);
        self.disk.as_mut().ok_or(lacking)?.open(file, contents);
        Ok(())
    }

    /// Gives phantom bytes a name, so that [`SimWire::extents`] finds them again wherever they are copied to.
    ///
    /// # Errors
    /// [`Missing::Memory`] when the span leaves its region.
    pub fn name(&mut self, span: Span, name: u64) -> Result<(), Missing> {
        let range = self.range(span)?;
        self.regions.get_mut(usize::from(span.region.0)).ok_or(Missing::Memory)?.name(range, name);
        Ok(())
    }

    /// Which bytes lie in `span` of phantom memory; nothing for real memory.
    ///
    /// # Errors
    /// [`Missing::Memory`] when the span leaves its region.
    pub fn extents(&self, span: Span) -> Result<Vec<Extent>, Missing> {
        let range = self.range(span)?;
        Ok(self.memory(span.region).map(|memory| memory.extents(range)).unwrap_or_default())
    }

    /// Whether a harvest would give something.
    pub(crate) fn has_arrivals(&self) -> bool {
        !self.ready.is_empty()
    }

    fn memory(&self, region: RegionId) -> Option<&Memory> {
        if region == RegionId::RECEIVE { Some(&self.receive) } else { self.regions.get(usize::from(region.0)) }
    }

    fn range(&self, span: Span) -> Result<core::ops::Range<u64>, Missing> {
        let length = self.memory(span.region).ok_or(Missing::Memory)?.length();
        let end = span.offset.checked_add(u64::from(span.length)).filter(|end| *end <= length);
        end.map(|end| span.offset..end).ok_or(Missing::Memory)
    }

    /// The bytes of `span`; an empty one names no memory, whatever region it says.
    pub(super) fn take(&self, span: Span) -> Result<Body, Missing> {
        if span.length == 0 {
            return Ok(Body::Empty);
        }
        let range = self.range(span)?;
        Ok(self.memory(span.region).ok_or(Missing::Memory)?.take(range))
    }

    /// Puts `body` into `span` of registered memory.
    pub(super) fn place(&mut self, span: Span, body: &Body) -> Result<(), Missing> {
        self.range(span)?;
        self.regions.get_mut(usize::from(span.region.0)).ok_or(Missing::Memory)?.place(span.offset, body);
        Ok(())
    }

    /// Changes an aligned word; returns what it was.
    pub(super) fn atomic(&mut self, kind: AtomicKind, at: RemoteSpan) -> Result<u64, Missing> {
        let span = Span { region: at.region, offset: at.offset, length: 8 };
        self.range(span)?;
        if !at.offset.is_multiple_of(8) {
            return Err(Missing::Memory);
        }
        Ok(self.regions.get_mut(usize::from(at.region.0)).ok_or(Missing::Memory)?.atomic(at.offset, kind))
    }

    /// Puts something ready; a message of a class that may lose is lost when too many wait.
    pub(super) fn arrive(&mut self, ready: Ready) {
        if let Ready::Message { class, .. } = &ready
            && self.lossy[class.index()]
            && self.ready.len() >= RECEIVE_MESSAGES
        {
            self.counters.receive_overflow += 1;
            return;
        }
        self.ready.push_back(ready);
    }

    /// A message left the transmit queue. `Some` when the engine now has something to hear about it.
    pub(super) fn leave_queue(&mut self, path: PathId, class: Class, bytes: u64) -> Option<()> {
        let queue = self.queues.get_mut(place_of(path, class))?;
        queue.messages = queue.messages.saturating_sub(1);
        queue.bytes = queue.bytes.saturating_sub(bytes);
        let waited_for = queue.refused && queue.is_roomy(self.trouble.queue_messages);
        if waited_for {
            queue.refused = false;
            self.ready.push_back(Ready::Room { path, class });
        }
        waited_for.then_some(())
    }

    /// Fault: transmit queues hold so many messages, or as many as they should; those that have room again say so.
    pub(crate) fn tighten(&mut self, messages: Option<u32>) {
        self.trouble.queue_messages = messages;
        for (place, queue) in self.queues.iter_mut().enumerate() {
            if queue.refused && queue.is_roomy(messages) {
                queue.refused = false;
                let (path, class) = (PathId((place / Class::ALL.len()) as u8), Class::ALL[place % Class::ALL.len()]);
                self.ready.push_back(Ready::Room { path, class });
            }
        }
    }

    /// The node crashed: everything but its clock, its counters and what is safe on its disk is gone.
    pub(super) fn crash(&mut self, now: Picos) {
        self.up = false;
        self.incarnation += 1;
        self.regions.clear();
        self.receive.truncate(0);
        self.queues.fill(Queue::default());
        self.outbox.clear();
        self.file_jobs.clear();
        self.joins.clear();
        self.groups.clear();
        self.ready.clear();
        if let Some(disk) = &mut self.disk {
            disk.crash(now);
        }
    }

    /// Whether the queue takes a message of `bytes`, which then counts.
    fn enter_queue(&mut self, path: PathId, class: Class, bytes: u64) -> Result<(), Answer> {
        let queue = self.queues.get_mut(place_of(path, class)).ok_or(Answer::Refused(Missing::Path))?;
        let most = self.trouble.queue_messages.unwrap_or(QUEUE_MESSAGES);
        let full = queue.messages >= most || queue.messages > 0 && queue.bytes + bytes > QUEUE_BYTES;
        if full {
            queue.refused = true;
            self.counters.no_room += 1;
            return Err(Answer::NoRoom);
        }
        queue.messages += 1;
        queue.bytes += bytes;
        Ok(())
    }

    fn check(&self, operation: &Operation, heads: &[u8]) -> Result<(), Missing> {
        if !self.capabilities.operations.has(operation.kind()) {
            return Err(Missing::Operation(operation.kind()));
        }
        let known = |rank: Rank| if rank.0 < self.ranks { Ok(()) } else { Err(Missing::Rank) };
        let paths = self.capabilities.paths.len();
        let route = |path: PathId| if usize::from(path.0) < paths { Ok(()) } else { Err(Missing::Path) };
        match *operation {
            Operation::Send { to, path, head, body, .. } => {
                route(path)?;
                if let Destination::One(rank) = to {
                    known(rank)?;
                }
                let head = head.of(heads).ok_or(Missing::Memory)?;
                if body.length > 0 {
                    self.range(body)?;
                }
                let fits = head.len() <= HEAD_MAX && body.length as usize <= BODY_MAX;
                if fits { Ok(()) } else { Err(Missing::Length) }
            }
            Operation::Write { to: peer, path, from: here, .. } | Operation::Read { peer, path, into: here, .. } => {
                route(path)?;
                known(peer)?;
                self.range(here).map(drop)
            }
            Operation::Atomic { to, path, .. } => route(path).and_then(|()| known(to)),
            Operation::Copy { from, into } => {
                self.range(from)?;
                self.range(into)?;
                let writable = into.region != RegionId::RECEIVE && from.length == into.length;
                if writable { Ok(()) } else { Err(Missing::Memory) }
            }
            Operation::File { file, memory, .. } => {
                let open = self.disk.as_ref().and_then(|disk| disk.size(file));
                open.ok_or(Missing::Memory)?;
                if memory.length > 0 { self.range(memory).map(drop) } else { Ok(()) }
            }
            _ => Err(Missing::Operation(operation.kind())),
        }
    }

    fn start(&mut self, operation: &Operation, heads: &[u8]) -> Result<Answer, Missing> {
        self.check(operation, heads)?;
        let answer = match *operation {
            Operation::Send { to, path, class, head, body, token } => {
                let head = Head::of(head, heads);
                let bytes = head.bytes().len() as u64 + u64::from(body.length);
                if let Err(answer) = self.enter_queue(path, class, bytes) {
                    return Ok(answer);
                }
                self.counters.sent += 1;
                let body = self.take(body)?;
                self.depart(to, path, class, token, bytes, Cargo::Message { head, body })
            }
            Operation::Write { to, path, class, from, into, immediate, token } => {
                let bytes = u64::from(from.length);
                if let Err(answer) = self.enter_queue(path, class, bytes) {
                    return Ok(answer);
                }
                let cargo = Cargo::Write { into, length: from.length, body: self.take(from)?, immediate };
                self.depart(Destination::One(to), path, class, token, bytes, cargo)
            }
            Operation::Read { peer, path, class, from, into, token } => {
                let cargo = Cargo::ReadRequest { source: from, into };
                self.request(peer, path, class, token, READ_REQUEST_BYTES, cargo)
            }
            Operation::Atomic { to, path, class, kind, at, token } => {
                self.request(to, path, class, token, ATOMIC_REQUEST_BYTES, Cargo::AtomicRequest { kind, at })
            }
            Operation::Copy { from, into } => {
                let body = self.take(from)?;
                self.place(into, &body)?;
                self.processor.spend(self.copy_pace.time(from.length));
                Answer::Done(0)
            }
            Operation::File { kind, file, at, memory, token, .. } => {
                let body = if kind == FileKind::Write { self.take(memory)? } else { Body::Empty };
                let length = if kind == FileKind::Sync { 0 } else { u64::from(memory.length) };
                let request = Request::new(kind, file, at, length, body);
                self.file_jobs.push(FileJob { at: self.processor.free_at(), request, memory, token });
                Answer::Posted
            }
            _ => Answer::Refused(Missing::Operation(operation.kind())),
        };
        Ok(answer)
    }

    fn request(&mut self, peer: Rank, path: PathId, class: Class, token: Token, bytes: u64, cargo: Cargo) -> Answer {
        match self.enter_queue(path, class, bytes) {
            Ok(()) => self.depart(Destination::One(peer), path, class, Some(token), bytes, cargo),
            Err(answer) => answer,
        }
    }

    fn depart(
        &mut self,
        to: Destination,
        path: PathId,
        class: Class,
        token: Option<Token>,
        bytes: u64,
        cargo: Cargo,
    ) -> Answer {
        let (kind, acknowledgement) = match (&cargo, token) {
            (Cargo::Message { .. }, _) => (Kind::Message, Acknowledgement::Unasked),
            (Cargo::Write { .. }, Some(_)) => (Kind::OneSided, Acknowledgement::Awaited),
            _ => (Kind::OneSided, Acknowledgement::Unasked),
        };
        let flight = Flight {
            from: self.rank,
            to,
            incarnation: self.incarnation,
            peer_incarnation: 0,
            path,
            class,
            token,
            kind,
            cargo,
            bytes,
            queued: Queued::Yes,
            receivers: 1,
            acknowledgement,
            outcome: Status::Complete,
            repeats: 0,
        };
        self.outbox.push(Outgoing { at: self.processor.free_at(), flight });
        Answer::Posted
    }

    /// Puts `operation` and its answer into the digest.
    fn note(&mut self, operation: &Operation, heads: &[u8], answer: Answer) {
        let (peer, class, size, place) = match *operation {
            Operation::Send { to: Destination::One(rank), class, body, .. } => {
                (rank.0, class, body.length, body.offset)
            }
            Operation::Send { to: Destination::Group(group), class, body, .. } => {
                (u32::from(group.0), class, body.length, body.offset)
            }
            Operation::Write { to, class, from, into, .. } => (to.0, class, from.length, into.offset),
            Operation::Read { peer, class, from, into, .. } => (peer.0, class, into.length, from.offset),
            Operation::Atomic { to, class, at, .. } => (to.0, class, 8, at.offset),
            Operation::Copy { from, into } => (self.rank.0, Class::Control, from.length, into.offset),
            Operation::File { file, class, at, memory, .. } => (file.0, class, memory.length, at),
            _ => (0, Class::Control, 0, 0),
        };
        let answer = match answer {
            Answer::Done(value) => value << 2,
            Answer::Posted => 1,
            Answer::NoRoom => 2,
            Answer::Refused(_) => 3,
        };
        let kind = 16 + (operation.kind() as u64) * 8 + class.index() as u64;
        self.digest.event(self.processor.free_at(), kind, u64::from(peer) << 32 | u64::from(size));
        self.digest.word(place);
        self.digest.word(answer);
        if let Operation::Send { head, .. } = operation {
            self.digest.bytes(head.of(heads).unwrap_or_default());
        }
    }

    fn give(&mut self, ready: Ready, sink: &mut dyn FnMut(Arrival<'_>)) {
        let now = self.processor.free_at();
        match ready {
            Ready::Message { from, path, class, marked, at, head, body } => {
                self.digest.event(now, 1, u64::from(from.0));
                self.digest.bytes(head.bytes());
                let length = body.length() as u32;
                let body = match length {
                    0 => Span::EMPTY,
                    _ => Span { region: RegionId::RECEIVE, offset: self.receive.append(&body), length },
                };
                self.counters.received += 1;
                let (class, head) = (Some(class), head.bytes());
                sink(Arrival::Datagram(Datagram { from, path, class, congestion_marked: marked, at, head, body }));
            }
            Ready::Landed { from, into, immediate, at } => {
                self.digest.event(now, 2, u64::from(from.0));
                self.digest.word(immediate);
                sink(Arrival::Landed { from, into, immediate, at });
            }
            Ready::Done { token, status, value, at } => {
                self.digest.event(now, 3, token.0);
                self.digest.word(value ^ u64::from(status == Status::Complete) << 63);
                sink(Arrival::Done { token, status, value, at });
            }
            Ready::Room { path, class } => {
                self.digest.event(now, 4, class.index() as u64);
                sink(Arrival::Room { path, class });
            }
        }
    }
}

impl Wire for SimWire {
    fn rank(&self) -> Rank {
        self.rank
    }

    fn capabilities(&self) -> &Capabilities {
        &self.capabilities
    }

    fn now(&self) -> LocalNs {
        self.clock.local(self.processor.free_at())
    }

    fn register(&mut self, length: Bytes) -> Result<RegionId, Missing> {
        if self.regions.len() >= REGIONS_MAX {
            return Err(Missing::Memory);
        }
        let id = RegionId(self.regions.len() as u16);
        self.regions.push(memory(self.bodies, length.0, home(self.rank, id)));
        Ok(id)
    }

    fn region(&self, region: RegionId) -> Option<&[u8]> {
        self.memory(region)?.bytes()
    }

    fn region_mut(&mut self, region: RegionId) -> Option<&mut [u8]> {
        self.regions.get_mut(usize::from(region.0))?.bytes_mut()
    }

    fn join(&mut self, group: GroupId) -> Result<(), Missing> {
        self.joins.push(group);
        Ok(())
    }

    fn post(&mut self, operations: &[Operation], heads: &[u8], answers: &mut Vec<Answer>) {
        (0..core::mem::take(&mut self.owed_inputs)).for_each(|_| self.processor.take_input());
        for operation in operations {
            self.processor.post_operation();
            let answer = self.start(operation, heads).unwrap_or_else(Answer::Refused);
            self.note(operation, heads, answer);
            answers.push(answer);
        }
    }

    fn harvest(&mut self, limit: usize, sink: &mut dyn FnMut(Arrival<'_>)) -> usize {
        let count = limit.min(self.ready.len());
        self.receive.truncate(0);
        for _ in 0..count {
            let Some(ready) = self.ready.pop_front() else { break };
            self.processor.take_input();
            self.give(ready, sink);
        }
        self.harvested += count;
        count
    }

    fn counters(&self) -> Counters {
        self.counters
    }
}

/// The place of a path's and class's queue.
fn place_of(path: PathId, class: Class) -> usize {
    usize::from(path.0) * Class::ALL.len() + class.index()
}

fn home(rank: Rank, region: RegionId) -> Origin {
    Origin::Region { rank: rank.0, region: region.0 }
}

fn memory(bodies: Bodies, length: u64, home: Origin) -> Memory {
    match bodies {
        Bodies::Real => Memory::real(length as usize),
        Bodies::Phantom => Memory::phantom(length, home),
    }
}
