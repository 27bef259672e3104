//! A reliable wire made of a lossy one.
//!
//! # Model
//! What is posted becomes a command of [`ReliableNode`], what it tells an arrival. Its driver is
//! flushed in every post and stepped in every poll, and between them when [`Wire::deadline`] says
//! so. Bodies of arrived messages lie in this rank's inboxes, which are [`RegionId::RECEIVE`] here,
//! and are free again with the next poll. Two regions of the wire below are ours: inboxes, and
//! bodies of messages without a token.
//!
//! # Invariants
//! I1. Memory of an operation with a token is read, perhaps again, until the token is back.
//! I2. A peer's writes into our own regions count for nothing but as bodies of its messages.

use alloc::collections::VecDeque;
use alloc::vec::Vec;

use super::buffer_pool::BufferPool;
use super::frame::OFFSET_LIMIT;
use super::{
    HEAD_MAX, Message, MessageCompletion, MessageTarget, Receipt, ReliableCommand, ReliableConfig,
    ReliableEvent, ReliableNode, StreamConfig,
};
use crate::base::{BitsPerSec, Bytes, Class, GroupId, Head, LocalNs, Rank};
use crate::wire::{
    AdoptedMemory, Arrival, Capabilities, Counters, Datagram, Delivery, Destination, Driver,
    HeadRef, Operation, OperationKind, OperationSet, PathId, PostOutcome, Queue, RefusalReason,
    RegionId, RemoteSpan, Span, Stamp, Token, Wire, forward_wire,
};

/// Ranks that a token can name.
const RANKS_MAX: u32 = 1 << 24;

/// A reliable wire over `W`: ordered messages and one-sided writes, each once, checked from memory
/// to memory.
#[derive(Debug)]
pub struct ReliableWire<W> {
    below: W,
    driver: Driver<ReliableNode>,
    capabilities: Capabilities,
    ranks: u32,
    inboxes: RegionId,
    kept: BufferPool,
    /// Lengths of the regions that were registered here.
    regions: Vec<(RegionId, u64)>,
    events: VecDeque<ReliableEvent>,
    /// Of the messages given by the last poll.
    given: Vec<Receipt>,
    next: Option<LocalNs>,
    /// Classes in which a body found no memory to be kept in.
    starved: [bool; Class::ALL.len()],
    no_room: u64,
    lost: u64,
    /// Writes that peers said to have made where there is no memory.
    strange: u64,
}

impl<W: Wire> ReliableWire<W> {
    /// Makes `below` reliable among `ranks` ranks, all of which do so with the same `config` before
    /// they register memory. `incarnation` grows with every start of this rank.
    ///
    /// # Errors
    /// [`RefusalReason`] names what `below` lacks: sends, copies or digests, headers of 128 bytes,
    /// memory, or names for that many ranks.
    pub fn new(
        mut below: W,
        ranks: u32,
        config: &StreamConfig,
        incarnation: u32,
    ) -> Result<Self, RefusalReason> {
        let capabilities = above(below.capabilities(), config)?;
        if ranks > RANKS_MAX {
            return Err(RefusalReason::Rank);
        }
        let streams = u64::from(ranks) * Class::ALL.len() as u64;
        let inboxes = below.register(Bytes(config.inbox.0 * streams))?;
        let kept = below.register(Bytes(BufferPool::LENGTH))?;
        let (capabilities_below, streams) = (below.capabilities().clone(), config.clone());
        let node = ReliableNode::new(ReliableConfig {
            ranks,
            below: capabilities_below,
            streams,
            inboxes,
            kept,
        });
        let kept = BufferPool::new(kept);
        let driver = Driver::boot(node, below.now(), incarnation);
        Ok(Self {
            below,
            driver,
            capabilities,
            ranks,
            inboxes,
            kept,
            regions: Vec::new(),
            events: VecDeque::new(),
            given: Vec::new(),
            next: None,
            starved: [false; Class::ALL.len()],
            no_room: 0,
            lost: 0,
            strange: 0,
        })
    }

    /// Returns the wire below.
    pub const fn below(&self) -> &W {
        &self.below
    }

    /// Returns the wire below, to wait for it.
    pub const fn below_mut(&mut self) -> &mut W {
        &mut self.below
    }

    /// Forgets `peer`, whose number another process with `incarnation` gets; see
    /// [`ReliableCommand::Forget`]. Its messages that were not polled are dropped.
    pub fn forget(&mut self, peer: Rank, incarnation: u32) {
        let is_of_peer = |event: &ReliableEvent| match event {
            ReliableEvent::Message { from, .. } | ReliableEvent::Landed { from, .. } => {
                *from == peer
            }
            ReliableEvent::Done { .. } | ReliableEvent::Room { .. } => false,
        };
        self.events.retain(|event| !is_of_peer(event));
        self.driver.command(self.below.now(), ReliableCommand::Forget { peer, incarnation });
        self.step();
    }

    /// Fragments whose bytes arrived here as something else than they were.
    pub fn damaged(&mut self) -> u64 {
        self.driver.engine_mut().damaged()
    }

    /// Returns whether the next poll gives something at once.
    pub fn has_arrivals(&self) -> bool {
        !self.events.is_empty()
    }

    /// Does everything that can be done now.
    fn step(&mut self) {
        let events = &mut self.events;
        let progress = self.driver.step(&mut self.below, &mut |event| events.push_back(event));
        self.next = progress.next;
    }

    /// Translates `span` to what the wire below names it.
    const fn translate(&self, span: Span) -> Span {
        if span.region.0 == RegionId::RECEIVE.0 {
            Span { region: self.inboxes, ..span }
        } else {
            span
        }
    }

    /// Returns whether `span` lies in memory that was registered here, or that was received.
    fn check(&self, span: Span) -> Result<(), RefusalReason> {
        if span.length == 0 {
            return Ok(());
        }
        let length = if span.region == RegionId::RECEIVE {
            u64::MAX
        } else {
            self.regions
                .iter()
                .find(|(region, _)| *region == span.region)
                .ok_or(RefusalReason::Memory)?
                .1
        };
        let end = span.offset.checked_add(u64::from(span.length)).ok_or(RefusalReason::Memory)?;
        if end <= length { Ok(()) } else { Err(RefusalReason::Memory) }
    }

    fn check_way(&self, to: Rank, path: PathId) -> Result<(), RefusalReason> {
        if path != PathId(0) {
            return Err(RefusalReason::Path);
        }
        if to.0 < self.ranks { Ok(()) } else { Err(RefusalReason::Rank) }
    }

    fn start(&mut self, operation: &Operation, heads: &[u8]) -> Result<PostOutcome, RefusalReason> {
        match *operation {
            Operation::Send { to: Destination::One(to), path, class, head, body, token } => {
                self.check_way(to, path)?;
                let head = HeadRef::bytes_in(head, heads).ok_or(RefusalReason::Memory)?;
                if !self.capabilities.carries(head.len(), body.length as usize) {
                    return Err(RefusalReason::Length);
                }
                let head = Head::from_bytes(head).ok_or(RefusalReason::Length)?;
                self.send(to, class, MessageTarget::Inbox { head }, body, token)
            }
            Operation::Write { to, path, class, from, into, immediate, token } => {
                self.check_way(to, path)?;
                self.check_place(into, from.length)?;
                self.send(to, class, MessageTarget::Memory { into, immediate }, from, token)
            }
            Operation::Copy { from, into } => {
                self.check(from).and_then(|()| self.check(into))?;
                if into.region == RegionId::RECEIVE {
                    return Err(RefusalReason::Memory);
                }
                Ok(self.forward(Operation::Copy { from: self.translate(from), into }))
            }
            Operation::Digest { of, token } => {
                self.check(of)?;
                Ok(self.forward(Operation::Digest { of: self.translate(of), token }))
            }
            Operation::Abandon { peer } => {
                self.driver.command(self.below.now(), ReliableCommand::Abandon(peer));
                Ok(self.forward(*operation))
            }
            _ => Err(RefusalReason::Operation(operation.kind())),
        }
    }

    /// Checks a place: our own regions have the same numbers at every rank, and must not be written
    /// to.
    fn check_place(&self, into: RemoteSpan, length: u32) -> Result<(), RefusalReason> {
        let end = into.offset.checked_add(u64::from(length)).filter(|end| *end <= OFFSET_LIMIT);
        let is_ours = [self.inboxes, self.kept.region(), RegionId::RECEIVE, RegionId::PROCESS]
            .contains(&into.region);
        if end.is_some() && !is_ours { Ok(()) } else { Err(RefusalReason::Memory) }
    }

    fn forward(&mut self, operation: Operation) -> PostOutcome {
        let mut answers = Vec::with_capacity(1);
        self.below.post(&[operation], &[], &mut answers);
        answers.pop().unwrap_or(PostOutcome::Refused(RefusalReason::Memory))
    }

    fn send(
        &mut self,
        to: Rank,
        class: Class,
        target: MessageTarget,
        body: Span,
        token: Option<Token>,
    ) -> Result<PostOutcome, RefusalReason> {
        self.check(body)?;
        if !self.driver.engine_mut().has_room(to, class) {
            self.no_room += 1;
            return Ok(PostOutcome::NoRoom);
        }
        let must_keep = body.length > 0 && (token.is_none() || body.region == RegionId::RECEIVE);
        let kept = if must_keep { self.kept.take(body.length) } else { None };
        if must_keep && kept.is_none() {
            self.no_room += 1;
            self.lost += u64::from(token.is_none());
            self.starved[class.index()] = true;
            return Ok(PostOutcome::NoRoom);
        }
        if let Some(into) = kept {
            self.forward(Operation::Copy { from: self.translate(body), into });
        }
        let message = Message {
            target,
            body: kept.unwrap_or(body),
            ticket: MessageCompletion { token, kept },
        };
        let now = self.below.now();
        self.driver.command(now, ReliableCommand::Send { to, class, message });
        Ok(PostOutcome::Posted)
    }

    /// Gives `event`; how many arrivals that were.
    fn give(&mut self, event: ReliableEvent, sink: &mut dyn FnMut(Arrival<'_>)) -> usize {
        match event {
            ReliableEvent::Message { from, class, head, body, at, receipt } => {
                let body = if body.length == 0 {
                    Span::EMPTY
                } else {
                    Span { region: RegionId::RECEIVE, ..body }
                };
                self.given.push(receipt);
                let (path, class, at) = (PathId(0), Some(class), Stamp::Taken(at));
                let head = head.bytes();
                sink(Arrival::Datagram(Datagram {
                    from,
                    path,
                    class,
                    congestion_marked: false,
                    at,
                    head,
                    body,
                }));
                1
            }
            // Where no byte was written the peer may name any place.
            ReliableEvent::Landed { into, .. }
                if into.region == RegionId::PROCESS || self.check(into).is_err() =>
            {
                self.strange += 1;
                0
            }
            ReliableEvent::Landed { from, into, immediate, at } => {
                sink(Arrival::Landed { from, into, immediate, at: Stamp::Taken(at) });
                1
            }
            ReliableEvent::Done { ticket: MessageCompletion { token, kept }, status } => {
                let roomy = kept.map_or(0, |kept| self.give_back(kept, sink));
                if let Some(token) = token {
                    sink(Arrival::Done { token, status, value: 0, at: self.below.now() });
                }
                roomy + usize::from(token.is_some())
            }
            ReliableEvent::Room { class } => {
                sink(Arrival::Room { queue: Queue::Path { path: PathId(0), class } });
                1
            }
        }
    }

    /// Frees memory of a message; a rank that found none is notified.
    fn give_back(&mut self, kept: Span, sink: &mut dyn FnMut(Arrival<'_>)) -> usize {
        self.kept.give(kept);
        let starved = core::mem::take(&mut self.starved);
        let classes = Class::ALL.into_iter().filter(|class| starved[class.index()]);
        classes
            .map(|class| sink(Arrival::Room { queue: Queue::Path { path: PathId(0), class } }))
            .count()
    }
}

/// Returns what a reliable wire over one with `below` can do.
fn above(below: &Capabilities, config: &StreamConfig) -> Result<Capabilities, RefusalReason> {
    for needed in [OperationKind::Send, OperationKind::Copy, OperationKind::Digest] {
        if !below.operations.has(needed) {
            return Err(RefusalReason::Operation(needed));
        }
    }
    if below.head_max < super::frame::FRAME_MAX
        || below.body_max_with_head(super::frame::FRAME_MAX) == 0
    {
        return Err(RefusalReason::Length);
    }
    let kinds =
        [OperationKind::Send, OperationKind::Write, OperationKind::Copy, OperationKind::Digest];
    let rates = below.paths.iter().copied().collect::<Option<Vec<BitsPerSec>>>();
    let body_max = config.body_max() as usize;
    Ok(Capabilities {
        name: "reliable",
        operations: OperationSet::from_kinds(&kinds),
        delivery: Delivery::Reliable,
        head_max: HEAD_MAX,
        body_max,
        message_max: HEAD_MAX + body_max,
        sends_follow_writes: true,
        groups_max: 0,
        paths: alloc::vec![rates.map(|rates| BitsPerSec(rates.iter().map(|rate| rate.0).sum()))],
        ..below.clone()
    })
}

impl<W: Wire> Wire for ReliableWire<W> {
    forward_wire!(below: rank, now, region_mut);

    fn capabilities(&self) -> &Capabilities {
        &self.capabilities
    }

    fn register(&mut self, length: Bytes) -> Result<RegionId, RefusalReason> {
        let region = self.below.register(length)?;
        self.regions.push((region, length.0));
        Ok(region)
    }

    fn adopt(&mut self, memory: AdoptedMemory) -> Result<RegionId, RefusalReason> {
        let length = memory.length();
        let region = self.below.adopt(memory)?;
        self.regions.push((region, length));
        Ok(region)
    }

    fn copy_out(&self, from: Span, into: &mut [u8]) -> Result<(), RefusalReason> {
        self.check(from)?;
        self.below.copy_out(self.translate(from), into)
    }

    fn copy_in(&mut self, into: Span, from: &[u8]) -> Result<(), RefusalReason> {
        self.check(into)?;
        if into.region == RegionId::RECEIVE {
            Err(RefusalReason::Memory)
        } else {
            self.below.copy_in(into, from)
        }
    }

    fn clear(&mut self, region: RegionId) {
        self.below.clear(region);
    }

    fn region(&self, region: RegionId) -> Option<&[u8]> {
        self.below.region(if region == RegionId::RECEIVE { self.inboxes } else { region })
    }

    fn join(&mut self, _group: GroupId) -> Result<(), RefusalReason> {
        Err(RefusalReason::Operation(OperationKind::Multicast))
    }

    fn post(&mut self, operations: &[Operation], heads: &[u8], answers: &mut Vec<PostOutcome>) {
        for operation in operations {
            let answer = self.start(operation, heads).unwrap_or_else(PostOutcome::Refused);
            answers.push(answer);
        }
        let events = &mut self.events;
        self.next = self.driver.flush(&mut self.below, &mut |event| events.push_back(event), None);
    }

    fn poll(&mut self, limit: usize, sink: &mut dyn FnMut(Arrival<'_>)) -> usize {
        let now = self.below.now();
        for receipt in core::mem::take(&mut self.given) {
            self.driver.command(now, ReliableCommand::Free(receipt));
        }
        self.step();
        let mut given = 0;
        while given < limit
            && let Some(event) = self.events.pop_front()
        {
            given += self.give(event, sink);
        }
        given
    }

    fn counters(&self) -> Counters {
        let below = self.below.counters();
        let (transmit_dropped, strangers) =
            (below.transmit_dropped + self.lost, below.strangers + self.strange);
        Counters { no_room: self.no_room, transmit_dropped, strangers, ..below }
    }

    fn deadline(&self) -> Option<LocalNs> {
        self.next
    }

    fn digest(&self, of: Span) -> Result<u32, RefusalReason> {
        self.check(of)?;
        self.below.digest(self.translate(of))
    }
}
