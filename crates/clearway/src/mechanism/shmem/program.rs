//! One PE of the benchmark: an OpenSHMEM program that waits for its small operations one by one, or
//! keeps long puts under way, over the far engine.
//!
//! # Model
//! A victim has a schedule: at each of its instants it wants an operation, a put and quiet, a get or
//! a fetch-and-add in turn, of one word of its peer. It does one at a time, as a program does that
//! waits; an operation takes from the instant at which it was wanted, however late it began. A
//! congestor keeps a window of long puts under way, to its targets in turn.
//!
//! # Invariants
//! I1. An operation that has not ended when a phase is over counts with the time that it has taken
//!     until then.

use std::cell::RefCell;
use std::collections::VecDeque;
use std::rc::Rc;

use clearway_proto::base::{Class, LocalNs, Nanos, Rank};
use clearway_proto::queue::{
    AtomicStep, ContextId, Element, HeapAccess, OpenBuffer, Place, Push, QueueCommand, QueueEvent,
    QueueLimits, QueueNode, Ticket, WordChange, WordWidth, apply,
};
use clearway_proto::stats::Histogram;
use clearway_proto::wire::{
    Applier, Effect, Engine, Fault, Input, More, Operation, Out, RegionId, RemoteSpan, Span,
};
use serde::{Deserialize, Serialize};

/// The word of every heap that operations are on: one for each kind.
pub(super) const WORDS: usize = PeOperation::ALL.len();
/// Bytes of a batch of one element.
pub(super) const BATCH: u32 = 64;
/// Effects of the far engine in one call.
const EFFECTS: usize = 256;
const CONTEXT: ContextId = ContextId(0);

/// What a victim waits for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub(super) enum PeOperation {
    /// A put of a word, and quiet.
    Put,
    /// A get of a word.
    Get,
    /// A fetch-and-add.
    FetchAdd,
}

impl PeOperation {
    pub(super) const ALL: [Self; 3] = [Self::Put, Self::Get, Self::FetchAdd];

    pub(super) const fn name(self) -> &'static str {
        match self {
            Self::Put => "put",
            Self::Get => "get",
            Self::FetchAdd => "fetch-add",
        }
    }

    fn element(self) -> Element<'static> {
        let at = Place { segment: 0, offset: 8 * self as u64 };
        let (width, ticket) = (WordWidth::Eight, Ticket(0));
        match self {
            Self::Put => Element::Word { at, width, value: 1 },
            Self::Get => Element::Get { at, length: 8, ticket },
            Self::FetchAdd => {
                let change = WordChange::new(AtomicStep::Add, width, 1);
                Element::FetchAtomic { at, change, ticket }
            }
        }
    }
}

/// What a PE does.
#[derive(Clone, Debug)]
pub(super) enum PeRole {
    Victim {
        peer: Rank,
        class: Class,
        /// When each operation is wanted.
        wanted: VecDeque<LocalNs>,
    },
    Congestor {
        targets: Vec<Rank>,
        class: Class,
        /// Puts under way.
        window: u32,
        bytes: u32,
    },
    Idle,
}

/// Memory of a PE.
#[derive(Clone, Copy, Debug)]
pub(super) struct PeMemory {
    /// A batch of [`BATCH`] bytes.
    pub(super) batch: Span,
    /// What congestors put.
    pub(super) source: Span,
    /// Where peers put.
    pub(super) target: RegionId,
}

/// What a PE counted.
#[derive(Clone, Debug, Default)]
pub(super) struct PeRecord {
    /// Time of operations that were wanted in the measured window, by kind.
    pub(super) latency: [Histogram; WORDS],
    /// Bytes of long puts that ended in the measured window.
    pub(super) bulk_bytes: u64,
    /// Fetch-and-adds that ended.
    pub(super) added: u64,
}

/// An operation under way.
#[derive(Clone, Copy, Debug)]
struct Awaited {
    operation: PeOperation,
    since: LocalNs,
}

/// One PE.
#[derive(Debug)]
pub(crate) struct PeEngine {
    node: QueueNode,
    inner: Out<QueueEvent>,
    limits: QueueLimits,
    memory: PeMemory,
    role: PeRole,
    /// From when on operations are measured, and until when.
    measured: [LocalNs; 2],
    awaited: Option<Awaited>,
    has_buffer: bool,
    turn: usize,
    under_way: u32,
    record: PeRecord,
    /// The first thing that went wrong.
    fault: Option<String>,
}

impl PeEngine {
    pub(super) fn new(
        node: QueueNode,
        limits: QueueLimits,
        memory: PeMemory,
        role: PeRole,
        measured: [LocalNs; 2],
    ) -> Self {
        Self {
            node,
            inner: Out::with_limit(EFFECTS),
            limits,
            memory,
            role,
            measured,
            awaited: None,
            has_buffer: true,
            turn: 0,
            under_way: 0,
            record: PeRecord::default(),
            fault: None,
        }
    }

    /// Returns the bytes of long puts that have ended in the measured window.
    pub(crate) const fn put_bytes(&self) -> u64 {
        self.record.bulk_bytes
    }

    /// Ends the phase at `now`; what was counted.
    ///
    /// # Errors
    /// One sentence: what went wrong.
    pub(super) fn finish(&mut self, now: LocalNs) -> Result<PeRecord, String> {
        if let Some(awaited) = self.awaited.take() {
            self.count(awaited, now);
        }
        if let PeRole::Victim { wanted, .. } = &mut self.role {
            let late: Vec<_> = wanted.drain(..).filter(|at| *at <= now).collect();
            for since in late {
                let operation = self.next_operation();
                self.count(Awaited { operation, since }, now);
            }
        }
        self.fault.take().map_or_else(|| Ok(std::mem::take(&mut self.record)), Err)
    }

    fn next_operation(&mut self) -> PeOperation {
        self.turn += 1;
        PeOperation::ALL[self.turn % WORDS]
    }

    fn count(&mut self, Awaited { operation, since }: Awaited, now: LocalNs) {
        let [begin, end] = self.measured;
        if (begin..end).contains(&since) {
            self.record.latency[operation as usize].record(now.since(since).0);
        }
    }

    /// Lets the program do what is due.
    fn act(&mut self, now: LocalNs, out: &mut Out<()>) -> More {
        match &mut self.role {
            PeRole::Victim { peer, class, wanted } => {
                let (peer, class) = (*peer, *class);
                let is_due = wanted.front().is_some_and(|at| *at <= now);
                if self.awaited.is_some() || !self.has_buffer || !is_due {
                    return More::No;
                }
                let Some(since) = wanted.pop_front() else { return More::No };
                let operation = self.next_operation();
                self.awaited = Some(Awaited { operation, since });
                self.issue(now, operation, peer, class, out);
                More::Yes
            }
            PeRole::Congestor { .. } => {
                let mut more = More::No;
                while let Some(put) = self.next_put(now) {
                    self.ask(now, put, out);
                    more = More::Yes;
                }
                more
            }
            PeRole::Idle => More::No,
        }
    }

    /// Returns the next long put, if one may leave.
    fn next_put(&mut self, now: LocalNs) -> Option<QueueCommand> {
        let PeRole::Congestor { targets, class, window, bytes } = &self.role else { return None };
        if self.under_way >= *window || now >= self.measured[1] {
            return None;
        }
        let peer = *targets.get(self.turn % targets.len().max(1))?;
        let from = Span { length: *bytes, ..self.memory.source };
        let into = RemoteSpan { region: self.memory.target, offset: 0 };
        let (class, context) = (*class, CONTEXT);
        self.turn += 1;
        self.under_way += 1;
        Some(QueueCommand::Put { peer, class, context, from, into, signal: None })
    }

    /// Writes an element into the buffer and closes it.
    fn issue(
        &mut self,
        now: LocalNs,
        operation: PeOperation,
        peer: Rank,
        class: Class,
        out: &mut Out<()>,
    ) {
        let (mut open, mut bytes) = (OpenBuffer::new(&self.limits), [0; BATCH as usize]);
        if open.push(&mut bytes, operation.element()) == Push::Full {
            self.fault.get_or_insert_with(|| "an element is longer than a batch".to_owned());
        }
        let batch = open.close(&mut bytes, self.memory.batch);
        let bytes = out.bytes(&bytes[..batch.buffer.length as usize]);
        out.operate(Operation::Store { bytes, into: batch.buffer });
        self.has_buffer = false;
        let context = CONTEXT;
        self.ask(now, QueueCommand::Close { peer, class, context, batch }, out);
        self.ask(now, QueueCommand::Flush { context, peer: Some(peer) }, out);
    }

    /// Gives the far engine a command, whose effects leave with the next tick.
    fn ask(&mut self, now: LocalNs, command: QueueCommand, out: &mut Out<()>) {
        let _ = self.give(now, Input::Command(command), out);
    }

    /// Gives the far engine an input, passes its operations on and takes its events.
    fn give(&mut self, now: LocalNs, input: Input<'_, QueueCommand>, out: &mut Out<()>) -> More {
        let more = self.node.input(now, input, &mut self.inner);
        let mut events = Vec::new();
        let (effects, heads) = self.inner.split();
        for effect in effects {
            match effect {
                Effect::Notify(event) => events.push(event),
                Effect::Operate(mut timed) => {
                    if let Operation::Send { head, .. } = &mut timed.operation {
                        *head = out.head(head.bytes_in(heads).unwrap_or_default());
                    }
                    out.operate(timed.operation);
                }
            }
        }
        self.inner.clear();
        events.into_iter().for_each(|event| self.hear(now, event));
        more
    }

    fn hear(&mut self, now: LocalNs, event: QueueEvent) {
        match event {
            QueueEvent::Ended { .. } if self.awaited.is_some() => {
                if let Some(awaited) = self.awaited.take() {
                    self.record.added += u64::from(awaited.operation == PeOperation::FetchAdd);
                    self.count(awaited, now);
                }
            }
            QueueEvent::Ended { count, .. } => {
                self.under_way = self.under_way.saturating_sub(count);
                let [begin, end] = self.measured;
                if let PeRole::Congestor { bytes, .. } = &self.role
                    && (begin..end).contains(&now)
                {
                    self.record.bulk_bytes += u64::from(*bytes) * u64::from(count);
                }
            }
            QueueEvent::Free { .. } => self.has_buffer = true,
            QueueEvent::Room { .. } | QueueEvent::Fetched { .. } | QueueEvent::Finished => {}
            other => {
                self.fault.get_or_insert_with(|| format!("the far engine reports {other:?}"));
            }
        }
    }
}

impl Engine for PeEngine {
    type Command = ();
    type Event = ();

    fn input(&mut self, now: LocalNs, input: Input<'_, ()>, out: &mut Out<()>) -> More {
        let input = match input {
            Input::Boot { incarnation } => Input::Boot { incarnation },
            Input::Tick => Input::Tick,
            Input::Arrival(arrival) => Input::Arrival(arrival),
            Input::Command(()) => return More::No,
        };
        let more = self.give(now, input, out);
        if self.act(now, out) == More::Yes { More::Yes } else { more }
    }

    fn deadline(&self) -> Option<LocalNs> {
        let wanted = match &self.role {
            PeRole::Victim { wanted, .. } if self.awaited.is_none() && self.has_buffer => {
                wanted.front().copied()
            }
            _ => None,
        };
        [wanted, self.node.deadline()].into_iter().flatten().min()
    }
}

/// The words of a PE's heap.
#[derive(Debug, Default)]
pub(super) struct PeHeap([u64; WORDS]);

impl PeHeap {
    /// Returns the word that operations of this kind are on.
    pub(super) const fn word(&self, operation: PeOperation) -> u64 {
        self.0[operation as usize]
    }

    fn find(&mut self, at: Place, bytes: usize) -> Result<&mut u64, Fault> {
        let index = usize::try_from(at.offset / 8).map_err(|_| Fault::Malformed)?;
        let is_word = at.segment == 0 && at.offset.is_multiple_of(8) && bytes == 8;
        self.0.get_mut(index).filter(|_| is_word).ok_or(Fault::Malformed)
    }
}

impl HeapAccess for PeHeap {
    fn put(&mut self, at: Place, bytes: &[u8]) -> Result<(), Fault> {
        let value = bytes.try_into().map_err(|_| Fault::Malformed)?;
        *self.find(at, bytes.len())? = u64::from_le_bytes(value);
        Ok(())
    }

    fn get(&mut self, at: Place, into: &mut [u8]) -> Result<(), Fault> {
        let value = *self.find(at, into.len())?;
        into.copy_from_slice(&value.to_le_bytes());
        Ok(())
    }

    fn atomic(&mut self, at: Place, change: WordChange) -> Result<u64, Fault> {
        let word = self.find(at, change.width.bytes())?;
        let next = change.next(*word);
        Ok(std::mem::replace(word, next))
    }

    fn data(&mut self, _: Rank, _: u32, _: &[u8]) -> Result<(), Fault> {
        Err(Fault::Malformed)
    }

    fn fetched(&mut self, _: Rank, _: Ticket, bytes: &[u8]) -> Result<(), Fault> {
        if bytes.len() == 8 { Ok(()) } else { Err(Fault::Malformed) }
    }
}

/// A heap of which the phase keeps a share.
pub(super) struct SharedHeap(pub(super) Rc<RefCell<PeHeap>>);

impl Applier for SharedHeap {
    fn apply(&mut self, from: Rank, records: &[u8], answer: &mut [u8]) -> Result<usize, Fault> {
        apply(&mut *self.0.borrow_mut(), from, records, answer)
    }
}

/// Returns `count` instants about `interval` apart, the first within one of `begin`; `jitter` gives
/// a number below its argument.
pub(super) fn schedule(
    begin: LocalNs,
    interval: Nanos,
    count: u64,
    jitter: &mut dyn FnMut(u64) -> u64,
) -> VecDeque<LocalNs> {
    (0..count).map(|n| begin + interval.times(n) + Nanos(jitter(interval.0.max(1)))).collect()
}
