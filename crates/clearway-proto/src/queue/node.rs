//! The engine of far operations of one rank: what it is asked, and in which order a round goes.
//!
//! # Model
//! Commands and arrivals only change what is known. Everything that leaves does so at the end of a
//! round, in the tick that the engine asks for: first what arrived is applied, then answers, issued
//! operations and counts leave, each class before the less urgent ones. So what a wire refused in
//! the round before is known first, and counts ride on whatever leaves.
//!
//! # Invariants
//! I1. A command ends: by its peer, or because the peer is gone.

use alloc::collections::VecDeque;
use alloc::vec;
use alloc::vec::Vec;

use super::lane::{FollowsPut, Lane, LaneItem, LaneRules, LaneWork};
use super::operations::{Operations, ReceivedBody};
use super::{Batch, ContextId, QueueCommand, QueueConfig, QueueEvent};
use crate::base::{Class, LocalNs, Rank};
use crate::wire::{Arrival, Engine, Input, More, Operation, OperationKind, Out, Queue, Status};

pub(super) const CLASSES: usize = Class::ALL.len();

/// One rank's far operations. Its driver steps with an application that applies records
/// ([`Driver::step_with`](crate::wire::Driver::step_with)).
///
/// # Example
/// Rank 0 adds one to a word of rank 1:
/// ```
/// use clearway_proto::base::{Bytes, Class, LocalNs, Rank};
/// use clearway_proto::queue::{
///     AtomicStep, ContextId, Element, HeapAccess, OpenBuffer, Place, Push, QueueCommand, QueueConfig, QueueEvent,
///     QueueLimits, QueueNode, Ticket, WordChange, WordWidth, apply,
/// };
/// use clearway_proto::wire::memory::{MemoryConfig, MemoryFabric};
/// use clearway_proto::wire::{Applier, Driver, Fault, Span, Wire};
///
/// struct OneWord(u64);
///
/// impl HeapAccess for OneWord {
///     fn put(&mut self, _: Place, _: &[u8]) -> Result<(), Fault> { Err(Fault::Malformed) }
///     fn get(&mut self, _: Place, _: &mut [u8]) -> Result<(), Fault> { Err(Fault::Malformed) }
///     fn atomic(&mut self, at: Place, change: WordChange) -> Result<u64, Fault> {
///         if at != (Place { segment: 0, offset: 0 }) { return Err(Fault::Malformed); }
///         let next = change.next(self.0);
///         Ok(std::mem::replace(&mut self.0, next))
///     }
///     fn data(&mut self, _: Rank, _: u32, _: &[u8]) -> Result<(), Fault> { Err(Fault::Malformed) }
///     fn fetched(&mut self, _: Rank, _: Ticket, _: &[u8]) -> Result<(), Fault> { Err(Fault::Malformed) }
/// }
///
/// impl Applier for OneWord {
///     fn apply(&mut self, from: Rank, records: &[u8], answer: &mut [u8]) -> Result<usize, Fault> {
///         apply(self, from, records, answer)
///     }
/// }
///
/// let mut fabric = MemoryFabric::new(MemoryConfig::lossless(2));
/// let limits = QueueLimits::new(2, fabric.wire(Rank(0)).capabilities())?;
/// let mut nodes = Vec::new();
/// for rank in [Rank(0), Rank(1)] {
///     let wire = fabric.wire(rank);
///     let answers = wire.register(limits.answer_memory(2))?;
///     let config = QueueConfig::new(rank, 2, wire.capabilities(), answers, [None; 4])?;
///     nodes.push((rank, Driver::boot(QueueNode::new(config), LocalNs(0), 0), OneWord(0)));
/// }
///
/// // The buffer is memory of the wire; a thread fills it.
/// let region = fabric.wire(Rank(0)).register(Bytes(u64::from(limits.batch)))?;
/// let mut open = OpenBuffer::new(&limits);
/// let bytes = fabric.wire(Rank(0)).region_mut(region).unwrap();
/// let change = WordChange::new(AtomicStep::Add, WordWidth::Eight, 1);
/// let pushed = open.push(bytes, Element::Atomic { at: Place { segment: 0, offset: 0 }, change });
/// assert_eq!(pushed, Push::Kept);
/// let batch = open.close(bytes, Span { region, offset: 0, length: limits.batch });
///
/// let (peer, context) = (Rank(1), ContextId(0));
/// let close = QueueCommand::Close { peer, class: Class::LowLatency, context, batch };
/// nodes[0].1.command(LocalNs(0), close);
/// nodes[0].1.command(LocalNs(0), QueueCommand::Flush { context, peer: None });
/// let mut ended = 0;
/// while ended == 0 {
///     for (rank, driver, heap) in &mut nodes {
///         let mut on_event = |event| if let QueueEvent::Ended { count, .. } = event { ended += count };
///         driver.step_with(fabric.wire(*rank), &mut on_event, heap);
///     }
///     let next = fabric.now().0 + 1_000;
///     fabric.advance(LocalNs(next));
/// }
/// assert_eq!((ended, nodes[1].2.0), (1, 1));
/// # Ok::<(), clearway_proto::wire::RefusalReason>(())
/// ```
#[derive(Debug)]
pub struct QueueNode {
    pub(super) config: QueueConfig,
    pub(super) rules: LaneRules,
    /// The number of each stream in `lanes`, and one; zero where there is none. By rank and class.
    index: Vec<u32>,
    pub(super) lanes: Vec<Lane>,
    pub(super) operations: Operations,
    /// What arrived in this round and waits to be applied, by class.
    pub(super) received: [Vec<ReceivedBody>; CLASSES],
    /// Streams that have something to send, by class.
    pub(super) ready: [VecDeque<u32>; CLASSES],
    /// Classes whose queue is full.
    pub(super) stalled: [bool; CLASSES],
    /// Peers that are gone.
    pub(super) gone: Vec<bool>,
    /// Operations that have not ended.
    pub(super) unended: u64,
    /// When silent peers are asked again.
    look_at: Option<LocalNs>,
    is_finishing: bool,
}

impl QueueNode {
    /// Creates the engine; nothing is under way.
    pub fn new(config: QueueConfig) -> Self {
        let rules = LaneRules {
            limits: config.limits,
            sends_follow_writes: config.wire.sends_follow_writes,
            reads: config.wire.operations.has(OperationKind::Read),
        };
        Self {
            rules,
            index: vec![0; config.ranks as usize * CLASSES],
            lanes: Vec::new(),
            operations: Operations::default(),
            received: Default::default(),
            ready: Default::default(),
            stalled: [false; CLASSES],
            gone: vec![false; config.ranks as usize],
            unended: 0,
            look_at: None,
            is_finishing: false,
            config,
        }
    }

    /// Returns the number of the stream to `peer` in `class`, which exists from now on; nothing for
    /// a rank that does not exist.
    pub(super) fn lane(&mut self, peer: Rank, class: Class) -> Option<u32> {
        let entry = self.index.get_mut(peer.index() * CLASSES + class.index())?;
        if *entry == 0 {
            self.lanes.push(Lane::new(peer, class));
            *entry = self.lanes.len() as u32;
        }
        Some(*entry - 1)
    }

    /// Returns the number of an existing stream.
    fn known_lane(&self, peer: Rank, class: Class) -> Option<u32> {
        self.index.get(peer.index() * CLASSES + class.index())?.checked_sub(1)
    }

    /// Lets a stream send in the next tick.
    pub(super) fn make_ready(&mut self, number: u32) {
        let lane = &mut self.lanes[number as usize];
        if !core::mem::replace(&mut lane.is_ready, true) {
            self.ready[lane.class.index()].push_back(number);
        }
    }

    fn command(&mut self, command: QueueCommand, out: &mut Out<QueueEvent>) {
        match command {
            QueueCommand::Close { peer, class, context, batch } => {
                let work = LaneWork::Batch { batch, follows_put: FollowsPut::No };
                self.issue(peer, class, context, work, out);
            }
            QueueCommand::Put { peer, class, context, from, into, signal } => {
                self.issue(peer, class, context, LaneWork::Put { from, into, signal }, out);
            }
            QueueCommand::Get { peer, class, context, from, into, ticket } => {
                self.issue(peer, class, context, LaneWork::Get { from, into, ticket }, out);
            }
            QueueCommand::Fence { context, peer } => {
                self.each_lane(peer, &mut |node, number| {
                    node.lanes[number as usize].outgoing.fence(context);
                });
            }
            QueueCommand::Flush { context, peer } => {
                self.each_lane(peer, &mut |node, number| node.flush(number, context));
            }
            QueueCommand::Abandon { peer } => self.lose(peer, out),
            QueueCommand::Finish => self.is_finishing = true,
        }
    }

    fn issue(
        &mut self,
        peer: Rank,
        class: Class,
        context: ContextId,
        work: LaneWork,
        out: &mut Out<QueueEvent>,
    ) {
        self.unended += 1;
        match self.lane(peer, class) {
            Some(number) if !self.is_gone(peer) => {
                self.lanes[number as usize].outgoing.issue(context, work);
                self.make_ready(number);
            }
            _ => self.drop_item(peer, &LaneItem { context, epoch: 0, work }, out),
        }
    }

    fn each_lane(&mut self, peer: Option<Rank>, act: &mut dyn FnMut(&mut Self, u32)) {
        match peer {
            Some(peer) => {
                let known = Class::ALL.map(|class| self.known_lane(peer, class));
                known.into_iter().flatten().for_each(|number| act(self, number));
            }
            None => (0..self.lanes.len() as u32).for_each(|number| act(self, number)),
        }
    }

    fn flush(&mut self, number: u32, context: ContextId) {
        let outgoing = &mut self.lanes[number as usize].outgoing;
        if outgoing.has_open(context) {
            outgoing.wants_counts = true;
            self.make_ready(number);
        }
    }

    /// Returns whether nothing is exchanged with `peer` any more.
    pub(super) fn is_gone(&self, peer: Rank) -> bool {
        self.gone.get(peer.index()).is_none_or(|gone| *gone)
    }

    /// Ends an operation that never left.
    pub(super) fn drop_item(&mut self, peer: Rank, item: &LaneItem, out: &mut Out<QueueEvent>) {
        let mut end_batch = |batch: Batch| {
            out.notify(QueueEvent::Free { buffer: batch.buffer });
            batch.elements
        };
        let count = match item.work {
            LaneWork::Batch { batch, .. } => end_batch(batch),
            LaneWork::Put { signal, .. } => 1 + signal.map_or(0, &mut end_batch),
            LaneWork::Get { ticket, .. } => {
                out.notify(QueueEvent::Fetched { peer, ticket, status: Status::Flushed });
                1
            }
        };
        out.notify(QueueEvent::Ended { context: item.context, peer, count });
        self.unended -= 1;
    }

    /// Gives up `peer`: everything for it ends.
    pub(super) fn lose(&mut self, peer: Rank, out: &mut Out<QueueEvent>) {
        if self.is_gone(peer) {
            return;
        }
        self.gone[peer.index()] = true;
        out.operate(Operation::Abandon { peer });
        out.notify(QueueEvent::Lost(peer));
        for received in &mut self.received {
            received.retain(|body| body.from != peer);
        }
        self.each_lane(Some(peer), &mut |node, number| {
            let (items, sent, pulls) = node.lanes[number as usize].outgoing.abandon();
            items.iter().for_each(|item| node.drop_item(peer, item, out));
            for batch in sent {
                let (context, count) = (batch.context, batch.elements);
                out.notify(QueueEvent::Ended { context, peer, count });
                node.unended -= 1;
            }
            for pull in pulls {
                let (ticket, status) = (pull.ticket, Status::Flushed);
                out.notify(QueueEvent::Fetched { peer, ticket, status });
                out.notify(QueueEvent::Ended { context: pull.context, peer, count: 1 });
                node.unended -= 1;
            }
        });
    }

    /// Asks again where something is open and nothing was heard.
    fn look(&mut self, now: LocalNs) {
        if self.look_at.is_none_or(|at| at > now) {
            return;
        }
        self.look_at = None;
        for number in 0..self.lanes.len() as u32 {
            let lane = &mut self.lanes[number as usize];
            if !core::mem::take(&mut lane.was_heard) && lane.outgoing.is_open() {
                lane.outgoing.asks_again = true;
                self.make_ready(number);
            }
        }
    }

    fn tick(&mut self, now: LocalNs, out: &mut Out<QueueEvent>) -> More {
        self.look(now);
        self.apply_received(out);
        let more = self.transmit(out);
        if self.look_at.is_none() && self.unended > 0 {
            self.look_at = Some(now + self.config.timeout);
        } else if self.unended == 0 {
            self.look_at = None;
        }
        if self.is_finishing && self.unended == 0 && self.operations.is_empty() {
            self.is_finishing = false;
            out.notify(QueueEvent::Finished);
        }
        more
    }
}

impl Engine for QueueNode {
    type Command = QueueCommand;
    type Event = QueueEvent;

    fn input(
        &mut self,
        now: LocalNs,
        input: Input<'_, QueueCommand>,
        out: &mut Out<QueueEvent>,
    ) -> More {
        match input {
            Input::Tick => return self.tick(now, out),
            Input::Command(command) => self.command(command, out),
            Input::Arrival(Arrival::Datagram(datagram)) => self.take_datagram(&datagram, out),
            Input::Arrival(Arrival::Done { token, status, value, .. }) => {
                self.take_end(token, status, value, out);
            }
            Input::Arrival(Arrival::Room { queue: Queue::Path { class, .. } }) => {
                self.stalled[class.index()] = false;
            }
            Input::Boot { .. } | Input::Arrival(_) => return More::No,
        }
        More::Yes
    }

    fn deadline(&self) -> Option<LocalNs> {
        self.look_at
    }
}
