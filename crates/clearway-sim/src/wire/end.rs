//! One rank's end of the simulated wire: memory, transmit queues, what lies ready; its clock,
//! processor and disk.
//!
//! # Model
//! Time at an end is its processor's: each arrival it takes and each operation it posts costs time.
//! A posted operation (`post`) waits in the outbox until the network looks; what the network brings
//! lies ready until the engine's driver polls it.
//!
//! # Invariants
//! I1. Arrivals that lie ready are given in the order in which they came.
//! I2. Of what an engine can see, a crash leaves the clock, the counters and what the disk keeps.
//!
//! # Not here
//! How much an end takes before it answers `NoRoom` (`queue`); what its neighbours do to its memory
//! (`network`).

mod post;
mod queue;

use std::collections::{BTreeMap, VecDeque};

use clearway_proto::base::{Bytes, Class, GroupId, LocalNs, Rank};
use clearway_proto::wire::{
    AdoptedMemory, Arrival, AtomicKind, Capabilities, Counters, Datagram, FileId, MemoryAccess,
    Operation, OperationKind, PathId, PostOutcome, Queue, RefusalReason, RegionId, RemoteSpan,
    Span, Stamp, Status, Token, Wire,
};

use super::digest::NodeDigest;
use super::flight::{InlineHeader, Outgoing};
use super::{ContentModel, EndConfig, EndFault};
use crate::clock::Clock;
use crate::disk::{Disk, DiskRequest, Survival};
use crate::memory::{ByteOrigin, CopyHistory, Extent, Memory, MessageBody, place_real};
use crate::processor::Processor;
use crate::time::{Pace, Picos};
use queue::TransmitQueue;

/// Regions one end can register: as many as the memory wire.
const REGIONS_MAX: usize = 64;
/// Messages that wait for an engine before those of a lossy class are dropped: the longest receive
/// ring of common adapters (mlx5: 8192 descriptors).
const RECEIVE_MESSAGES: usize = 8_192;

/// What lies ready for the next poll.
#[derive(Debug)]
pub(super) enum ReadyArrivals {
    Message {
        from: Rank,
        path: PathId,
        class: Class,
        marked: bool,
        at: LocalNs,
        head: InlineHeader,
        body: MessageBody,
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
        path: PathId,
        class: Class,
    },
}

/// A file operation that was posted.
#[derive(Debug)]
pub(super) struct FileJob {
    pub(super) at: Picos,
    pub(super) request: DiskRequest,
    pub(super) memory: Span,
    pub(super) token: Token,
}

/// One rank's end of a [`super::Network`].
#[derive(Debug)]
pub struct SimWire {
    rank: Rank,
    ranks: u32,
    bodies: ContentModel,
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
    /// Memory that is not the wire's own, by region.
    adopted: BTreeMap<RegionId, AdoptedMemory>,
    receive: Memory,
    /// The real bytes in `receive` where it is phantom memory, at their places; empty when the last
    /// poll brought none.
    received: Vec<u8>,
    queues: Vec<TransmitQueue>,
    pub(super) outbox: Vec<Outgoing>,
    pub(super) file_jobs: Vec<FileJob>,
    pub(super) joins: Vec<GroupId>,
    pub(super) groups: Vec<GroupId>,
    ready: VecDeque<ReadyArrivals>,
    counters: Counters,
    pub(crate) polled: usize,
    /// Inputs that the engine took without this end: paid for with the next post.
    pub(crate) deferred_inputs: usize,
    pub(crate) digest: NodeDigest,
    /// What is wrong with this end now.
    pub(crate) trouble: EndFault,
}

impl SimWire {
    pub(super) fn new(rank: Rank, parts: EndConfig) -> Self {
        Self {
            rank,
            ranks: parts.ranks,
            bodies: parts.bodies,
            queues: vec![
                TransmitQueue::default();
                parts.capabilities.paths.len() * Class::ALL.len()
            ],
            capabilities: parts.capabilities,
            copy_pace: parts.copy_pace,
            lossy: parts.lossy,
            clock: parts.clock,
            processor: parts.processor,
            disk: parts.disk,
            incarnation: 0,
            up: true,
            regions: Vec::new(),
            adopted: BTreeMap::new(),
            receive: memory(parts.bodies, 0, home(rank, RegionId::RECEIVE)),
            received: Vec::new(),
            outbox: Vec::new(),
            file_jobs: Vec::new(),
            joins: Vec::new(),
            groups: Vec::new(),
            ready: VecDeque::new(),
            counters: Counters::default(),
            polled: 0,
            deferred_inputs: 0,
            digest: NodeDigest::default(),
            trouble: EndFault::default(),
        }
    }

    /// Returns this node's clock.
    pub const fn clock(&self) -> &Clock {
        &self.clock
    }

    /// Returns how often this rank was started again.
    pub const fn incarnation(&self) -> u32 {
        self.incarnation
    }

    /// Opens an empty file for this rank's engine; `size` bytes long where bodies are phantoms,
    /// zeroed where they are real. A file stays open over a crash; opened again, it is empty.
    ///
    /// # Errors
    /// [`RefusalReason::Operation`] when the node has no disk.
    pub fn open(&mut self, file: FileId, size: Bytes) -> Result<(), RefusalReason> {
        let contents =
            memory(self.bodies, size.0, ByteOrigin::File { rank: self.rank.0, file: file.0 });
        let lacking = RefusalReason::Operation(OperationKind::File);
        self.disk.as_mut().ok_or(lacking)?.open(file, contents);
        Ok(())
    }

    /// Registers a region with real bytes, whatever other regions have: names and records in it can
    /// be read where they arrive. A phantom that is placed into it is zeros there.
    ///
    /// # Errors
    /// [`RefusalReason::Memory`] when there are too many regions.
    pub fn register_real(&mut self, length: Bytes) -> Result<RegionId, RefusalReason> {
        self.add_region(Memory::real(length.0 as usize))
    }

    fn next_region(&self) -> RegionId {
        RegionId(self.regions.len() as u16)
    }

    fn add_region(&mut self, memory: Memory) -> Result<RegionId, RefusalReason> {
        let id = self.next_region();
        if self.regions.len() >= REGIONS_MAX {
            return Err(RefusalReason::Memory);
        }
        self.regions.push(memory);
        Ok(id)
    }

    /// Gives phantom bytes a name, so that [`SimWire::extents`] finds them again wherever they are
    /// copied to.
    ///
    /// # Errors
    /// [`RefusalReason::Memory`] when the span leaves its region.
    pub fn name(&mut self, span: Span, name: u64) -> Result<(), RefusalReason> {
        let range = self.range(span)?;
        self.regions
            .get_mut(usize::from(span.region.0))
            .ok_or(RefusalReason::Memory)?
            .name(range, name);
        Ok(())
    }

    /// Returns which bytes lie in `span` of phantom memory; real bytes are left out.
    ///
    /// # Errors
    /// [`RefusalReason::Memory`] when the span leaves its region.
    pub fn extents(&self, span: Span) -> Result<Vec<Extent>, RefusalReason> {
        let range = self.range(span)?;
        Ok(self.memory(span.region).map(|memory| memory.extents(range)).unwrap_or_default())
    }

    /// Returns whether a poll would give something.
    pub(crate) fn has_arrivals(&self) -> bool {
        !self.ready.is_empty()
    }

    fn length(&self, region: RegionId) -> Option<u64> {
        match self.adopted.get(&region) {
            Some(memory) => Some(memory.length()),
            None => self.memory(region).map(Memory::length),
        }
    }

    fn memory(&self, region: RegionId) -> Option<&Memory> {
        if region == RegionId::RECEIVE {
            Some(&self.receive)
        } else {
            self.regions.get(usize::from(region.0))
        }
    }

    fn range(&self, span: Span) -> Result<core::ops::Range<u64>, RefusalReason> {
        let length = self.length(span.region).ok_or(RefusalReason::Memory)?;
        let end = span.offset.checked_add(u64::from(span.length)).filter(|end| *end <= length);
        end.map(|end| span.offset..end).ok_or(RefusalReason::Memory)
    }

    /// Returns the bytes of `span`; an empty one names no memory, whatever region it says.
    pub(super) fn take(&self, span: Span) -> Result<MessageBody, RefusalReason> {
        if span.length == 0 {
            return Ok(MessageBody::Empty);
        }
        let range = self.range(span)?;
        let Some(memory) = self.adopted.get(&span.region) else {
            return Ok(self.memory(span.region).ok_or(RefusalReason::Memory)?.take(range));
        };
        let mut bytes = vec![0; span.length as usize];
        memory.read(span.offset, &mut bytes)?;
        Ok(MessageBody::Bytes(bytes.into()))
    }

    /// Puts `body` into `span` of registered or adopted memory. Phantoms become zeros in adopted
    /// memory, whose bytes are real.
    pub(super) fn place(&mut self, span: Span, body: &MessageBody) -> Result<(), RefusalReason> {
        self.range(span)?;
        if let Some(memory) = self.adopted.get(&span.region) {
            let mut bytes = vec![0; span.length as usize];
            place_real(&mut bytes, body);
            return memory.write(span.offset, &bytes);
        }
        self.regions
            .get_mut(usize::from(span.region.0))
            .ok_or(RefusalReason::Memory)?
            .place(span.offset, body);
        Ok(())
    }

    /// Changes an aligned word; returns what it was.
    pub(super) fn atomic(
        &mut self,
        kind: AtomicKind,
        at: RemoteSpan,
    ) -> Result<u64, RefusalReason> {
        let span = Span { region: at.region, offset: at.offset, length: 8 };
        self.range(span)?;
        if !at.offset.is_multiple_of(8) {
            return Err(RefusalReason::Memory);
        }
        if let Some(memory) = self.adopted.get(&at.region) {
            return memory.change(at.offset, kind);
        }
        Ok(self
            .regions
            .get_mut(usize::from(at.region.0))
            .ok_or(RefusalReason::Memory)?
            .atomic(at.offset, kind))
    }

    /// Puts something ready; a message of a class that may lose is lost when too many wait.
    pub(super) fn arrive(&mut self, ready: ReadyArrivals) {
        if let ReadyArrivals::Message { class, .. } = &ready
            && self.lossy[class.index()]
            && self.ready.len() >= RECEIVE_MESSAGES
        {
            self.counters.receive_overflow += 1;
            return;
        }
        self.ready.push_back(ready);
    }

    /// Crashes the node: everything but its clock, its counters and what its disk keeps is gone.
    pub(super) fn crash(&mut self, now: Picos, survival: Survival) {
        self.up = false;
        self.incarnation += 1;
        self.regions.clear();
        self.adopted.clear();
        self.receive.truncate(0);
        self.received.clear();
        self.queues.fill(TransmitQueue::default());
        self.outbox.clear();
        self.file_jobs.clear();
        self.joins.clear();
        self.groups.clear();
        self.ready.clear();
        if let Some(disk) = &mut self.disk {
            disk.crash(now, survival);
        }
    }

    /// Appends a body to those of this poll; returns where it lies.
    fn receive(&mut self, body: &MessageBody) -> u64 {
        let at = self.receive.append(body);
        if self.receive.bytes().is_none() && body.has_bytes() {
            // Phantoms in front of it are zeros to a reader.
            self.received.resize(at as usize, 0);
            self.received.extend(body.to_bytes());
        }
        at
    }

    fn give(&mut self, ready: ReadyArrivals, sink: &mut dyn FnMut(Arrival<'_>)) {
        let now = self.processor.free_at();
        match ready {
            ReadyArrivals::Message { from, path, class, marked, at, head, body } => {
                self.digest.event(now, 1, u64::from(from.0));
                self.digest.bytes(head.bytes());
                let length = body.length() as u32;
                let body = match length {
                    0 => Span::EMPTY,
                    _ => Span { region: RegionId::RECEIVE, offset: self.receive(&body), length },
                };
                self.counters.received += 1;
                let (class, head, at) = (Some(class), head.bytes(), Stamp::Taken(at));
                sink(Arrival::Datagram(Datagram {
                    from,
                    path,
                    class,
                    congestion_marked: marked,
                    at,
                    head,
                    body,
                }));
            }
            ReadyArrivals::Landed { from, into, immediate, at } => {
                self.digest.event(now, 2, u64::from(from.0));
                self.digest.word(immediate);
                sink(Arrival::Landed { from, into, immediate, at: Stamp::Taken(at) });
            }
            ReadyArrivals::Done { token, status, value, at } => {
                self.digest.event(now, 3, token.0);
                self.digest.word(value ^ u64::from(status == Status::Complete) << 63);
                sink(Arrival::Done { token, status, value, at });
            }
            ReadyArrivals::Room { path, class } => {
                self.digest.event(now, 4, class.index() as u64);
                sink(Arrival::Room { queue: Queue::Path { path, class } });
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

    fn register(&mut self, length: Bytes) -> Result<RegionId, RefusalReason> {
        self.add_region(memory(self.bodies, length.0, home(self.rank, self.next_region())))
    }

    fn adopt(&mut self, memory: AdoptedMemory) -> Result<RegionId, RefusalReason> {
        if self.regions.len() >= REGIONS_MAX || memory.reach() == MemoryAccess::Local {
            return Err(RefusalReason::Memory);
        }
        let id = RegionId(self.regions.len() as u16);
        // The empty region keeps the number: the next one must not get it.
        self.regions.push(Memory::real(0));
        self.adopted.insert(id, memory);
        Ok(id)
    }

    fn copy_out(&self, from: Span, into: &mut [u8]) -> Result<(), RefusalReason> {
        if from.length as usize != into.len() {
            return Err(RefusalReason::Memory);
        }
        place_real(into, &self.take(from)?);
        Ok(())
    }

    fn copy_in(&mut self, into: Span, from: &[u8]) -> Result<(), RefusalReason> {
        if from.len() != into.length as usize {
            return Err(RefusalReason::Memory);
        }
        if from.is_empty() { Ok(()) } else { self.place(into, &MessageBody::Bytes(from.into())) }
    }

    fn region(&self, region: RegionId) -> Option<&[u8]> {
        if region == RegionId::RECEIVE && !self.received.is_empty() {
            return Some(&self.received);
        }
        if self.adopted.contains_key(&region) { None } else { self.memory(region)?.bytes() }
    }

    fn leave(&mut self, group: GroupId) -> Result<(), RefusalReason> {
        let before = self.joins.len() + self.groups.len();
        // Switches carry to this host still, as real ones do until they learn of it; its interface
        // drops what comes.
        self.joins.retain(|joined| *joined != group);
        self.groups.retain(|joined| *joined != group);
        if self.joins.len() + self.groups.len() < before {
            Ok(())
        } else {
            Err(RefusalReason::Group)
        }
    }

    fn region_mut(&mut self, region: RegionId) -> Option<&mut [u8]> {
        if self.adopted.contains_key(&region) {
            return None;
        }
        self.regions.get_mut(usize::from(region.0))?.bytes_mut()
    }

    fn join(&mut self, group: GroupId) -> Result<(), RefusalReason> {
        self.joins.push(group);
        Ok(())
    }

    fn post(&mut self, operations: &[Operation], heads: &[u8], answers: &mut Vec<PostOutcome>) {
        (0..core::mem::take(&mut self.deferred_inputs)).for_each(|_| self.processor.take_input());
        for operation in operations {
            if matches!(operation, Operation::Abandon { .. }) {
                // An interface gives up by itself, after its repetitions.
                answers.push(PostOutcome::Done(0));
                continue;
            }
            self.processor.post_operation();
            let answer = self.start(operation, heads).unwrap_or_else(PostOutcome::Refused);
            self.note(operation, heads, answer);
            answers.push(answer);
        }
    }

    fn poll(&mut self, limit: usize, sink: &mut dyn FnMut(Arrival<'_>)) -> usize {
        let count = limit.min(self.ready.len());
        self.receive.truncate(0);
        self.received.clear();
        for _ in 0..count {
            let Some(ready) = self.ready.pop_front() else { break };
            self.processor.take_input();
            self.give(ready, sink);
        }
        self.polled += count;
        count
    }

    fn counters(&self) -> Counters {
        self.counters
    }

    fn digest(&self, of: Span) -> Result<u32, RefusalReason> {
        self.take(of).map(|body| body.digest())
    }
}

fn home(rank: Rank, region: RegionId) -> ByteOrigin {
    ByteOrigin::Region { rank: rank.0, region: region.0 }
}

fn memory(bodies: ContentModel, length: u64, home: ByteOrigin) -> Memory {
    match bodies {
        ContentModel::Real => Memory::real(length as usize),
        ContentModel::Phantom => Memory::phantom(CopyHistory::Extents, length, home),
        ContentModel::Lengths => Memory::phantom(CopyHistory::Nothing, length, home),
    }
}
