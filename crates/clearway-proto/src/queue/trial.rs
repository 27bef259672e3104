//! Programs that put, fetch, order and wait, on model heaps over the wire in memory; what must hold
//! at every fence, signal and quiet, and in the end.
//!
//! # Model
//! Every program has a part of every heap for each of its contexts, and nobody else writes there;
//! so it knows at each push what the peer's words will be, and what a request will answer. Each
//! part has words for elements, two blocks for long puts, and flags that say which bytes a block
//! has: a heap looks at the block when a flag is set.

use alloc::collections::{BTreeMap, BTreeSet};
use alloc::sync::Arc;
use alloc::vec;
use alloc::vec::Vec;

use super::faulty::{FaultyQueue, PlantedFault};
use super::*;
use crate::base::{LocalNs, RandomKey, RandomStream};
use crate::reliable::{DigestPolicy, ReliableWire, StreamConfig};
use crate::wire::foreign_memory::WordMemory;
use crate::wire::memory::{FaultInjection, MemoryConfig, MemoryFabric, MemoryWire};
use crate::wire::{Applier, Driver, Fault, ForeignMemory, MemoryAccess, OperationSet, Wire};

/// The class of each context.
pub(super) const CONTEXTS: [Class; 3] = [Class::LowLatency, Class::BestEffort, Class::Bulk];
/// Bytes of a part: words, flags of blocks, blocks.
const WORDS: u64 = 64;
const FLAGS: u64 = WORDS;
const BLOCKS: u64 = 128;
const BLOCK: u64 = 1024;
const PART: u64 = BLOCKS + 2 * BLOCK;
/// Long puts whose bytes a program keeps until it waits.
const SOURCES: u64 = 4;

/// How a trial's wires are.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum TrialWire {
    /// With reads, and sends that follow writes.
    Plain,
    /// As if it had neither.
    Bare,
    /// Reliable over one that loses, doubles and delays.
    Lossy { loss: u32, doubled: u32, late: u32 },
}

/// What a trial is of.
#[derive(Clone, Debug)]
pub(super) struct QueuePlan {
    pub(super) ranks: u32,
    pub(super) wire: TrialWire,
    /// Messages that a wire takes at a time.
    pub(super) room: usize,
    pub(super) steps: u32,
    pub(super) buffers: u32,
    pub(super) window: u32,
    pub(super) requests: u32,
    pub(super) closes_idle: bool,
    /// Ranks that never run again from a time on.
    pub(super) killed: Vec<(u32, u64)>,
    /// Ranks that do not run from a time on, for so long.
    pub(super) paused: Vec<(u32, u64, u64)>,
    pub(super) fault: Option<PlantedFault>,
    pub(super) seed: u64,
}

/// How long it takes until the living hear that a rank was killed, where the wire does not say it.
const NEWS: u64 = 2_000_000;

enum TrialFabric {
    Plain(MemoryFabric),
    Lossy(MemoryFabric, Vec<ReliableWire<MemoryWire>>),
}

impl TrialFabric {
    fn new(plan: &QueuePlan) -> Self {
        let config =
            MemoryConfig { room: plan.room, seed: plan.seed, ..MemoryConfig::lossless(plan.ranks) };
        let TrialWire::Lossy { loss, doubled, late } = plan.wire else {
            return Self::Plain(MemoryFabric::new(config));
        };
        let fault_injection = FaultInjection { doubled, late, damaged: 0 };
        let config = MemoryConfig { loss_per_million: loss, fault_injection, ..config };
        let mut streams = StreamConfig::new(plan.ranks);
        (streams.check, streams.patience) = (DigestPolicy::Arrived, Nanos::from_millis(500));
        streams.inbox = streams.inbox.min(Bytes(16 << 10));
        let mut fabric = MemoryFabric::new(config);
        let wires = (0..plan.ranks).map(|rank| {
            let wire = ReliableWire::new(fabric.take(Rank(rank)), plan.ranks, &streams, 0);
            wire.expect("the memory wire has all that is needed")
        });
        let wires = wires.collect();
        Self::Lossy(fabric, wires)
    }

    fn wire(&mut self, rank: u32) -> &mut dyn Wire {
        match self {
            Self::Plain(fabric) => fabric.wire(Rank(rank)),
            Self::Lossy(_, wires) => &mut wires[rank as usize],
        }
    }

    fn now(&self) -> LocalNs {
        match self {
            Self::Plain(fabric) | Self::Lossy(fabric, _) => fabric.now(),
        }
    }

    fn lend(&mut self) {
        if let Self::Lossy(fabric, wires) = self {
            for (rank, wire) in (0..).map(Rank).zip(wires) {
                fabric.exchange(rank, wire.below_mut());
            }
        }
    }

    /// Moves time to the next instant at which something happens, `wake` at the latest.
    fn pass(&mut self, wake: Option<LocalNs>) {
        self.lend();
        let (Self::Plain(fabric) | Self::Lossy(fabric, _)) = self;
        let now = fabric.now();
        let next = [fabric.next_arrival(), wake].into_iter().flatten().min();
        fabric.advance(next.unwrap_or(now).max(now + Nanos(200)));
        self.lend();
    }
}

/// A request that waits, and what it will answer.
struct Expected {
    peer: Rank,
    bytes: Vec<u8>,
}

/// The application's side of one rank: its heap, and what it waits for.
struct ModelHeap {
    rank: u32,
    memory: Arc<WordMemory>,
    expected: BTreeMap<u32, Expected>,
    /// Elements of data by source and queue.
    data: BTreeMap<(Rank, u32), u64>,
}

/// Returns the bytes that a block has whose flag is `stamp`.
fn pattern(stamp: u64) -> Vec<u8> {
    let mut stream = RandomKey::new(stamp).stream();
    (0..BLOCK / 8).flat_map(|_| stream.next_u64().to_le_bytes()).collect()
}

/// Returns where a part of each heap begins.
fn part(source: u32, context: usize) -> u64 {
    (u64::from(source) * CONTEXTS.len() as u64 + context as u64) * PART
}

impl ModelHeap {
    fn place(&self, at: Place, length: u64) -> Result<u64, Fault> {
        let end = at.offset.checked_add(length).ok_or(Fault::Malformed)?;
        let is_inside = at.segment == 0 && end <= self.memory.length();
        is_inside.then_some(at.offset).ok_or(Fault::Malformed)
    }

    fn bytes(&self, at: u64, length: u64) -> Vec<u8> {
        let mut bytes = vec![0; length as usize];
        self.memory.read(at, &mut bytes).expect("inside");
        bytes
    }

    /// Checks that a block is there when its flag says so.
    fn check_flag(&self, at: u64, stamp: u64) {
        let inner = at % PART;
        if (FLAGS..FLAGS + 32).contains(&inner) {
            let block = (inner - FLAGS) / 16;
            let found = self.bytes(at - inner + BLOCKS + block * BLOCK, BLOCK);
            assert!(found == pattern(stamp), "{}: a flag before its block, at {at}", self.rank);
        }
    }
}

impl HeapAccess for ModelHeap {
    fn put(&mut self, at: Place, bytes: &[u8]) -> Result<(), Fault> {
        let at = self.place(at, bytes.len() as u64)?;
        self.memory.write(at, bytes).map_err(|_| Fault::Malformed)?;
        if let Ok(word) = bytes.try_into() {
            self.check_flag(at, u64::from_le_bytes(word));
        }
        Ok(())
    }

    fn get(&mut self, at: Place, into: &mut [u8]) -> Result<(), Fault> {
        let at = self.place(at, into.len() as u64)?;
        self.memory.read(at, into).map_err(|_| Fault::Malformed)
    }

    fn atomic(&mut self, at: Place, change: WordChange) -> Result<u64, Fault> {
        let mut word = [0; 8];
        let bytes = &mut word[..change.width.bytes()];
        self.get(at, bytes)?;
        let old = u64::from_le_bytes(word);
        let new = change.next(old);
        self.put(at, &new.to_le_bytes()[..change.width.bytes()])?;
        Ok(old)
    }

    fn data(&mut self, from: Rank, queue: u32, bytes: &[u8]) -> Result<(), Fault> {
        let count = self.data.entry((from, queue)).or_default();
        let number = bytes.get(..8).and_then(|bytes| bytes.try_into().ok()).map(u64::from_le_bytes);
        assert_eq!(number, Some(*count), "{}: data of {from:?} out of order", self.rank);
        *count += 1;
        Ok(())
    }

    fn fetched(&mut self, from: Rank, ticket: Ticket, bytes: &[u8]) -> Result<(), Fault> {
        let expected = self.expected.remove(&ticket.0).expect("a ticket is answered once");
        assert_eq!((expected.peer, expected.bytes.as_slice()), (from, bytes), "{}", self.rank);
        Ok(())
    }
}

impl Applier for ModelHeap {
    fn apply(&mut self, from: Rank, records: &[u8], answer: &mut [u8]) -> Result<usize, Fault> {
        apply(self, from, records, answer)
    }
}

/// What a program waits for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Wait {
    Buffer,
    Quiet { context: usize, peer: Option<u32> },
    Until(u64),
    Finish,
    Over,
}

/// What a program does after it waited.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Errand {
    None,
    /// Fetches a block, when its peer has it for sure.
    Get {
        context: usize,
        peer: u32,
        block: u64,
    },
}

struct Program {
    rank: u32,
    stream: RandomStream,
    driver: Option<Driver<FaultyQueue>>,
    heap: ModelHeap,
    buffers: RegionId,
    sources: RegionId,
    landing: RegionId,
    heap_region: RegionId,
    limits: QueueLimits,
    free: Vec<u32>,
    open: BTreeMap<(usize, u32), (OpenBuffer, u32, LocalNs)>,
    under_way: BTreeSet<(u32, Class)>,
    issued: BTreeMap<(usize, u32), u64>,
    ended: BTreeMap<(usize, u32), u64>,
    /// What each part of this program in each heap will be.
    models: BTreeMap<(usize, u32), Vec<u8>>,
    /// Blocks that were written since the last fence.
    dirty: BTreeSet<(usize, u32, u64)>,
    /// Long puts whose bytes are kept, by context.
    kept: Vec<usize>,
    sent_data: BTreeMap<(usize, u32), u64>,
    tickets: u32,
    /// The block that is fetched, by its ticket.
    landing_of: Option<(u32, Vec<u8>)>,
    wait: Option<Wait>,
    errand: Errand,
    lost: BTreeSet<u32>,
    steps: u32,
    stamp: u64,
    next: Option<LocalNs>,
}

/// A trial that runs.
pub(super) struct QueueTrial {
    plan: QueuePlan,
    fabric: TrialFabric,
    programs: Vec<Program>,
}

impl Program {
    fn new(plan: &QueuePlan, rank: u32, wire: &mut dyn Wire) -> Self {
        let mut capabilities = wire.capabilities().clone();
        if plan.wire == TrialWire::Bare {
            capabilities.sends_follow_writes = false;
            let kinds = [OperationKind::Send, OperationKind::Write, OperationKind::Copy];
            capabilities.operations = OperationSet::from_kinds(&kinds);
        }
        let mut limits = QueueLimits::new(plan.ranks, &capabilities).expect("a wire that will do");
        (limits.window, limits.requests) = (plan.window, plan.requests);
        let length = part(plan.ranks, 0) as usize;
        let memory = Arc::new(WordMemory::new(length, MemoryAccess::Peers));
        let heap_region = wire.adopt(memory.clone()).expect("room");
        let answers = wire.register(limits.answer_memory(plan.ranks)).expect("room");
        let buffers = Bytes(u64::from(plan.buffers) * u64::from(limits.batch));
        let buffers = wire.register(buffers).expect("room");
        let sources = wire.register(Bytes(SOURCES * BLOCK)).expect("room");
        let landing = wire.register(Bytes(BLOCK)).expect("room");
        let config = QueueConfig {
            rank: Rank(rank),
            ranks: plan.ranks,
            wire: capabilities,
            limits,
            answers,
            segments: [Some(heap_region), None, None, None],
            patience: Nanos::from_millis(50),
        };
        let node = FaultyQueue::new(QueueNode::new(config), plan.fault);
        Self {
            rank,
            stream: RandomKey::new(plan.seed).node(u64::from(rank)).purpose("program").stream(),
            driver: Some(Driver::boot_lean(node, wire.now(), 0)),
            heap: ModelHeap { rank, memory, expected: BTreeMap::new(), data: BTreeMap::new() },
            buffers,
            sources,
            landing,
            heap_region,
            limits,
            free: (0..plan.buffers).collect(),
            open: BTreeMap::new(),
            under_way: BTreeSet::new(),
            issued: BTreeMap::new(),
            ended: BTreeMap::new(),
            models: BTreeMap::new(),
            dirty: BTreeSet::new(),
            kept: Vec::new(),
            sent_data: BTreeMap::new(),
            tickets: 0,
            landing_of: None,
            wait: None,
            errand: Errand::None,
            lost: BTreeSet::new(),
            steps: plan.steps,
            stamp: u64::from(rank) << 32,
            next: Some(wire.now()),
        }
    }

    fn command(&mut self, now: LocalNs, command: QueueCommand) {
        self.driver.as_mut().expect("it lives").command(now, command);
    }

    fn buffer(&self, slot: u32) -> Span {
        let length = self.limits.batch;
        let offset = u64::from(slot) * u64::from(length);
        Span { region: self.buffers, offset, length }
    }

    fn close(&mut self, wire: &mut dyn Wire, context: usize, peer: u32) {
        let Some((mut open, slot, _)) = self.open.remove(&(context, peer)) else { return };
        let span = self.buffer(slot);
        let batch = open.close(bytes_mut(wire, span), span);
        *self.issued.entry((context, peer)).or_default() += u64::from(batch.elements);
        self.under_way.insert((peer, CONTEXTS[context]));
        let close = QueueCommand::Close {
            peer: Rank(peer),
            class: CONTEXTS[context],
            context: ContextId(context as u32),
            batch,
        };
        self.command(wire.now(), close);
    }

    fn close_all(&mut self, wire: &mut dyn Wire, context: usize, peer: Option<u32>) {
        let open: Vec<_> = self.open.keys().copied().collect();
        for (of, to) in open {
            if of == context && peer.is_none_or(|peer| peer == to) {
                self.close(wire, of, to);
            }
        }
    }

    /// Pushes `element`; the program waits if there is no buffer.
    fn push(&mut self, wire: &mut dyn Wire, key: (usize, u32), element: Element<'_>) -> bool {
        for _ in 0..2 {
            if !self.open.contains_key(&key) {
                let Some(slot) = self.free.pop() else {
                    if let Some((context, peer)) = self.open.keys().next().copied() {
                        self.close(wire, context, peer);
                    }
                    self.wait = Some(Wait::Buffer);
                    return false;
                };
                self.open.insert(key, (OpenBuffer::new(&self.limits), slot, wire.now()));
            }
            let slot = self.open[&key].1;
            let span = self.buffer(slot);
            let open = &mut self.open.get_mut(&key).expect("open").0;
            if open.push(bytes_mut(wire, span), element) == Push::Kept {
                return true;
            }
            self.close(wire, key.0, key.1);
        }
        panic!("a fresh buffer keeps {element:?}");
    }

    fn step(&mut self, wire: &mut dyn Wire, plan: &QueuePlan) {
        let context = self.stream.below(CONTEXTS.len() as u64) as usize;
        let peer = self.stream.below(u64::from(plan.ranks)) as u32;
        match self.stream.below(100) {
            0..70 => self.push_drawn(wire, context, peer),
            70..76 => self.put_block(wire, context, peer),
            76..79 => {
                let block = self.stream.below(2);
                self.errand = Errand::Get { context, peer, block };
                self.quiet(wire, context, Some(peer));
            }
            79..86 => self.fence(wire, context, Some(peer).filter(|peer| peer % 2 == 0)),
            86..90 => self.quiet(wire, context, None),
            90..94 => self.quiet(wire, context, Some(peer)),
            _ => self.wait = Some(Wait::Until(wire.now().0 + self.stream.below(50_000))),
        }
    }

    fn push_drawn(&mut self, wire: &mut dyn Wire, context: usize, peer: u32) {
        let base = part(self.rank, context);
        let width = WordWidth::ALL[self.stream.below(4) as usize];
        let wide = WordWidth::ALL[2 + self.stream.below(2) as usize];
        let aligned = |stream: &mut RandomStream, width: WordWidth| {
            let bytes = width.bytes() as u64;
            stream.below(WORDS / bytes) * bytes
        };
        let [operand, compare] =
            [self.stream.next_u64() & 0x0101_0101_0101_0103, self.stream.below(2)];
        let mut bytes = [0; 24];
        for byte in &mut bytes {
            *byte = self.stream.below(256) as u8;
        }
        let place = |offset: u64| Place { segment: 0, offset: base + offset };
        let ticket = Ticket(self.tickets);
        let step = AtomicStep::ALL[self.stream.below(7) as usize];
        let change = WordChange { step, width: wide, operand, compare };
        let length = 1 + self.stream.below(24);
        let element = match self.stream.below(8) {
            0 => {
                Element::Word { at: place(aligned(&mut self.stream, width)), width, value: operand }
            }
            1 => {
                let at = place(self.stream.below(WORDS - length));
                Element::Put { at, bytes: &bytes[..length as usize] }
            }
            2 => {
                let at = place(aligned(&mut self.stream, WordWidth::Eight) / 2);
                let stride = [8, 16, -8][self.stream.below(3) as usize];
                let at = if stride < 0 { place(24) } else { at };
                Element::Strided { at, width: WordWidth::Four, stride, words: &bytes[..12] }
            }
            3 => {
                Element::FetchAtomic { at: place(aligned(&mut self.stream, wide)), change, ticket }
            }
            4 => {
                let at = place(self.stream.below(WORDS - length));
                Element::Get { at, length: length as u16, ticket }
            }
            5 => {
                let count = self.sent_data.get(&(context, peer)).unwrap_or(&0);
                bytes[..8].copy_from_slice(&count.to_le_bytes());
                Element::Data { queue: context as u32, bytes: &bytes[..8 + length as usize / 2] }
            }
            _ => {
                let steps = [AtomicStep::Add, AtomicStep::Xor, AtomicStep::Set, AtomicStep::Or];
                let step = steps[self.stream.below(4) as usize];
                let change = WordChange::new(step, wide, 1 + self.stream.below(2));
                Element::Atomic { at: place(aligned(&mut self.stream, wide)), change }
            }
        };
        if self.push(wire, (context, peer), element) {
            self.note(context, peer, base, element);
            self.close_by_policy(wire, (context, peer), true);
        }
    }

    /// Does to the model what the peer will do to its heap.
    fn note(&mut self, context: usize, peer: u32, base: u64, element: Element<'_>) {
        if let Element::Data { .. } = element {
            *self.sent_data.entry((context, peer)).or_default() += 1;
            return;
        }
        let model = self.models.entry((context, peer)).or_insert_with(|| vec![0; PART as usize]);
        let mut expect = |ticket: Ticket, bytes: &[u8]| {
            self.tickets += 1;
            let expected = Expected { peer: Rank(peer), bytes: bytes.to_vec() };
            assert!(self.heap.expected.insert(ticket.0, expected).is_none());
        };
        let index = |at: Place| (at.offset - base) as usize;
        let change_word = |model: &mut Vec<u8>, at: Place, change: WordChange| {
            let bytes = &mut model[index(at)..index(at) + change.width.bytes()];
            let (mut word, old) = ([0; 8], bytes.to_vec());
            word[..bytes.len()].copy_from_slice(bytes);
            let new = change.next(u64::from_le_bytes(word)).to_le_bytes();
            bytes.copy_from_slice(&new[..bytes.len()]);
            old
        };
        match element {
            Element::Word { at, width, value } => model[index(at)..index(at) + width.bytes()]
                .copy_from_slice(&value.to_le_bytes()[..width.bytes()]),
            Element::Put { at, bytes } => {
                model[index(at)..index(at) + bytes.len()].copy_from_slice(bytes);
            }
            Element::Strided { at, width, stride, words } => {
                for (word, number) in words.chunks(width.bytes()).zip(0..) {
                    let at = (index(at) as i64 + stride * number) as usize;
                    model[at..at + word.len()].copy_from_slice(word);
                }
            }
            Element::Atomic { at, change } => drop(change_word(model, at, change)),
            Element::FetchAtomic { at, change, ticket } => {
                expect(ticket, &change_word(model, at, change));
            }
            Element::Get { at, length, ticket } => {
                expect(ticket, &model[index(at)..index(at) + usize::from(length)]);
            }
            Element::Data { .. } | Element::Value { .. } => unreachable!("no words"),
        }
    }

    fn close_by_policy(&mut self, wire: &mut dyn Wire, key: (usize, u32), closes_idle: bool) {
        let policy = ClosingPolicy { closes_idle, ..ClosingPolicy::new(self.limits.batch * 3 / 4) };
        let Some((open, _, since)) = self.open.get(&key) else { return };
        let class = CONTEXTS[key.0];
        let is_under_way = self.under_way.contains(&(key.1, class));
        let age = Nanos(wire.now().0 - since.0);
        if policy.cause(open, class, is_under_way, age).is_some() {
            self.close(wire, key.0, key.1);
        }
    }

    /// Orders what follows behind what is there.
    fn fence(&mut self, wire: &mut dyn Wire, context: usize, peer: Option<u32>) {
        self.close_all(wire, context, peer);
        let fence =
            QueueCommand::Fence { context: ContextId(context as u32), peer: peer.map(Rank) };
        self.command(wire.now(), fence);
        self.dirty.retain(|(of, to, _)| *of != context || peer.is_some_and(|peer| peer != *to));
    }

    fn quiet(&mut self, wire: &mut dyn Wire, context: usize, peer: Option<u32>) {
        self.close_all(wire, context, peer);
        let flush =
            QueueCommand::Flush { context: ContextId(context as u32), peer: peer.map(Rank) };
        self.command(wire.now(), flush);
        self.wait = Some(Wait::Quiet { context, peer });
    }

    /// Writes a block, with its flag behind it.
    fn put_block(&mut self, wire: &mut dyn Wire, context: usize, peer: u32) {
        let block = self.stream.below(2);
        if self.kept.len() as u64 >= SOURCES {
            return self.quiet(wire, self.kept[0], None);
        }
        if self.dirty.contains(&(context, peer, block)) {
            self.fence(wire, context, Some(peer));
        }
        let (base, class) = (part(self.rank, context), CONTEXTS[context]);
        let place = |offset: u64| Place { segment: 0, offset: base + offset };
        let (start, flag) = (BLOCKS + block * BLOCK, FLAGS + block * 16);
        // A word that the block replaces.
        if self.stream.below(2) == 0 {
            let (at, width) = (place(start), WordWidth::Eight);
            if !self.push(wire, (context, peer), Element::Word { at, width, value: 7 }) {
                return;
            }
            self.model(context, peer, start, &7_u64.to_le_bytes());
            self.fence(wire, context, Some(peer));
        }
        let is_signalled = self.stream.below(2) == 0;
        if is_signalled && self.free.is_empty() {
            self.wait = Some(Wait::Buffer);
            return;
        }
        self.stamp += 1;
        let stamp = self.stamp;
        let change = WordChange::new(AtomicStep::Set, WordWidth::Eight, stamp);
        let signal = Element::Atomic { at: place(flag + 8 * self.stream.below(2)), change };
        let bytes = pattern(stamp);
        let slot = self.kept.len() as u64;
        let from = Span { region: self.sources, offset: slot * BLOCK, length: BLOCK as u32 };
        wire.copy_in(from, &bytes).expect("inside");
        self.kept.push(context);
        self.model(context, peer, start, &bytes);
        let batch = is_signalled.then(|| {
            let slot = self.free.pop().expect("there is one");
            let span = self.buffer(slot);
            let mut open = OpenBuffer::new(&self.limits);
            assert_eq!(open.push(bytes_mut(wire, span), signal), Push::Kept);
            open.close(bytes_mut(wire, span), span)
        });
        *self.issued.entry((context, peer)).or_default() += 1 + u64::from(batch.is_some());
        let put = QueueCommand::Put {
            peer: Rank(peer),
            class,
            context: ContextId(context as u32),
            from,
            into: RemoteSpan { region: self.heap_region, offset: base + start },
            signal: batch,
        };
        self.command(wire.now(), put);
        self.dirty.insert((context, peer, block));
        if is_signalled {
            self.note(context, peer, base, signal);
        } else if self.stream.below(2) == 0 {
            self.fence(wire, context, Some(peer));
            let element = Element::Word { at: place(flag), width: WordWidth::Eight, value: stamp };
            if self.push(wire, (context, peer), element) {
                self.note(context, peer, base, element);
            }
            // The flag speaks of these bytes.
            self.dirty.insert((context, peer, block));
        }
    }

    fn model(&mut self, context: usize, peer: u32, at: u64, bytes: &[u8]) {
        let model = self.models.entry((context, peer)).or_insert_with(|| vec![0; PART as usize]);
        model[at as usize..at as usize + bytes.len()].copy_from_slice(bytes);
    }

    fn get_block(&mut self, wire: &mut dyn Wire, context: usize, peer: u32, block: u64) {
        let start = BLOCKS + block * BLOCK;
        let blank = vec![0; PART as usize];
        let model = self.models.get(&(context, peer)).unwrap_or(&blank);
        let expected = model[start as usize..(start + BLOCK) as usize].to_vec();
        self.landing_of = Some((self.tickets, expected));
        *self.issued.entry((context, peer)).or_default() += 1;
        let offset = part(self.rank, context) + start;
        let get = QueueCommand::Get {
            peer: Rank(peer),
            class: CONTEXTS[context],
            context: ContextId(context as u32),
            from: RemoteSpan { region: self.heap_region, offset },
            into: Span { region: self.landing, offset: 0, length: BLOCK as u32 },
            ticket: Ticket(self.tickets),
        };
        self.tickets += 1;
        self.command(wire.now(), get);
        self.quiet(wire, context, Some(peer));
    }

    fn is_quiet(&self, context: usize, peer: Option<u32>) -> bool {
        let issued = self
            .issued
            .iter()
            .filter(|((of, to), _)| *of == context && peer.is_none_or(|peer| peer == *to));
        issued.into_iter().all(|(key, count)| self.ended.get(key).unwrap_or(&0) == count)
    }

    fn hear(&mut self, wire: &mut dyn Wire, event: QueueEvent) {
        match event {
            QueueEvent::Ended { context, peer, count } => {
                let key = (context.0 as usize, peer.0);
                let ended = self.ended.entry(key).or_default();
                *ended += u64::from(count);
                assert!(*ended <= self.issued[&key], "more has ended than was issued");
            }
            QueueEvent::Fetched { peer, ticket, status } => {
                let (expected, bytes) = self.landing_of.take().expect("one at a time");
                assert_eq!(ticket.0, expected);
                if !self.lost.contains(&peer.0) {
                    assert_eq!(status, Status::Complete);
                    let mut found = vec![0; BLOCK as usize];
                    let landing = Span { region: self.landing, offset: 0, length: BLOCK as u32 };
                    wire.copy_out(landing, &mut found).expect("inside");
                    assert!(found == bytes, "{}: another block was fetched", self.rank);
                }
            }
            QueueEvent::Free { buffer } => {
                let slot = (buffer.offset / u64::from(self.limits.batch)) as u32;
                assert!(!self.free.contains(&slot), "a buffer is free twice");
                assert!(self.open.values().all(|(_, open, _)| *open != slot), "it is open");
                self.free.push(slot);
                if self.wait == Some(Wait::Buffer) {
                    self.wait = None;
                }
            }
            QueueEvent::Room { peer, class } => {
                self.under_way.remove(&(peer.0, class));
            }
            QueueEvent::Lost(peer) => {
                self.lost.insert(peer.0);
                self.heap.expected.retain(|_, expected| expected.peer != peer);
            }
            QueueEvent::Finished => {
                assert_eq!(self.wait, Some(Wait::Finish));
                self.wait = Some(Wait::Over);
            }
            other => panic!("{}: {other:?}", self.rank),
        }
    }

    /// Runs the program until it waits.
    fn run(&mut self, wire: &mut dyn Wire, plan: &QueuePlan) {
        let keys: Vec<_> = self.open.keys().copied().collect();
        for key in keys {
            self.close_by_policy(wire, key, plan.closes_idle);
        }
        for _ in 0..20 {
            match self.wait {
                Some(Wait::Until(at)) if at <= wire.now().0 => self.wait = None,
                Some(_) => return,
                None => {}
            }
            match core::mem::replace(&mut self.errand, Errand::None) {
                Errand::Get { context, peer, block } => self.get_block(wire, context, peer, block),
                Errand::None if self.steps == 0 => {
                    let last = (0..CONTEXTS.len()).find(|context| {
                        !self.is_quiet(*context, None)
                            || self.open.keys().any(|(of, _)| of == context)
                    });
                    if let Some(context) = last {
                        self.quiet(wire, context, None);
                    } else {
                        self.wait = Some(Wait::Finish);
                        self.command(wire.now(), QueueCommand::Finish);
                    }
                }
                Errand::None => {
                    self.steps -= 1;
                    self.step(wire, plan);
                }
            }
        }
    }
}

fn bytes_mut(wire: &mut dyn Wire, span: Span) -> &mut [u8] {
    let region = wire.region_mut(span.region).expect("registered");
    let range = span.range_in(region.len()).expect("inside");
    &mut region[range]
}

impl QueueTrial {
    pub(super) fn new(plan: QueuePlan) -> Self {
        let mut fabric = TrialFabric::new(&plan);
        let programs =
            (0..plan.ranks).map(|rank| Program::new(&plan, rank, fabric.wire(rank))).collect();
        Self { plan, fabric, programs }
    }

    /// Runs until every program that lives is over, and checks everything meanwhile.
    pub(super) fn run(&mut self) {
        while self.programs.iter().any(|it| it.driver.is_some() && it.wait != Some(Wait::Over)) {
            assert!(self.fabric.now() < LocalNs(20_000_000_000), "it never ends: {}", self.state());
            self.turn();
        }
        self.check_end();
    }

    fn state(&self) -> alloc::string::String {
        use core::fmt::Write;
        let mut text = alloc::string::String::new();
        for it in self.programs.iter().filter(|it| it.wait != Some(Wait::Over)) {
            let _ = write!(
                text,
                "{} {:?} issued {:?} ended {:?}; ",
                it.rank, it.wait, it.issued, it.ended
            );
        }
        text
    }

    fn turn(&mut self) {
        let now = self.fabric.now().0;
        for (rank, at) in self.plan.killed.clone() {
            if at <= now && self.programs[rank as usize].driver.take().is_some() {
                continue;
            }
            let is_known = matches!(self.plan.wire, TrialWire::Lossy { .. });
            if at + NEWS <= now && !is_known {
                for program in &mut self.programs {
                    if let Some(driver) = &mut program.driver
                        && !program.lost.contains(&rank)
                    {
                        driver.command(LocalNs(now), QueueCommand::Abandon { peer: Rank(rank) });
                        program.next = Some(LocalNs(now));
                    }
                }
            }
        }
        for rank in 0..self.plan.ranks {
            self.step(rank);
        }
        let waits = self.programs.iter().filter(|it| it.driver.is_some()).filter_map(|it| {
            let until = match it.wait {
                Some(Wait::Until(at)) => Some(LocalNs(at)),
                _ => None,
            };
            [until, it.next].into_iter().flatten().min()
        });
        let news = self.plan.killed.iter().flat_map(|(_, at)| [LocalNs(*at), LocalNs(at + NEWS)]);
        let news = news.filter(|at| at.0 > now);
        let open = self.programs.iter().any(|it| it.driver.is_some() && !it.open.is_empty());
        let poll = open.then_some(LocalNs(now + 20_000));
        let wake = waits.chain(news).chain(poll).min();
        self.fabric.pass(Some(wake.unwrap_or(LocalNs(now + 1_000_000))));
    }

    fn step(&mut self, rank: u32) {
        let now = self.fabric.now();
        let program = &mut self.programs[rank as usize];
        let sleeps = self
            .plan
            .paused
            .iter()
            .find(|(of, at, length)| *of == rank && (*at..at + length).contains(&now.0));
        if let Some((_, at, length)) = sleeps {
            program.next = Some(LocalNs(at + length));
            return;
        }
        if program.driver.is_none() {
            return;
        }
        let wire = self.fabric.wire(rank);
        program.run(wire, &self.plan);
        let mut events = Vec::new();
        let driver = program.driver.as_mut().expect("it lives");
        program.next =
            driver.step_with(wire, &mut |event| events.push(event), &mut program.heap).next;
        for event in events {
            program.hear(wire, event);
        }
        self.check_quiet(rank);
    }

    /// Ends a quiet that is over, and checks that everything is where it belongs.
    fn check_quiet(&mut self, rank: u32) {
        let program = &mut self.programs[rank as usize];
        let Some(Wait::Quiet { context, peer }) = program.wait else { return };
        if !program.is_quiet(context, peer) {
            return;
        }
        program.wait = None;
        program.next = Some(self.fabric.now());
        program.dirty.retain(|(of, to, _)| *of != context || peer.is_some_and(|it| it != *to));
        if peer.is_none() {
            while program.kept.last() == Some(&context) {
                program.kept.pop();
            }
        }
        let program = &self.programs[rank as usize];
        for ((of, to), model) in &program.models {
            if *of == context && peer.is_none_or(|peer| peer == *to) {
                self.check_part(rank, *of, *to, model);
            }
        }
    }

    fn check_part(&self, rank: u32, context: usize, peer: u32, model: &[u8]) {
        let target = &self.programs[peer as usize];
        if target.driver.is_none() || self.programs[rank as usize].lost.contains(&peer) {
            return;
        }
        let found = target.heap.bytes(part(rank, context), PART);
        let differs = found.iter().zip(model).position(|(found, model)| found != model);
        assert_eq!(differs, None, "part of {rank} in context {context} at {peer}");
    }

    fn check_end(&self) {
        for program in self.programs.iter().filter(|it| it.driver.is_some()) {
            let (rank, free) = (program.rank, program.free.len());
            for ((context, peer), model) in &program.models {
                self.check_part(rank, *context, *peer, model);
            }
            let mut open = program.heap.expected.values();
            let is_answered = open.all(|expected| program.lost.contains(&expected.peer.0));
            assert!(is_answered, "{rank}: requests without an answer");
            assert_eq!(free, self.plan.buffers as usize, "{rank}: buffers are lost");
            for ((context, peer), count) in &program.sent_data {
                let target = &self.programs[*peer as usize];
                if target.driver.is_some() && !program.lost.contains(peer) {
                    let key = (Rank(rank), *context as u32);
                    assert_eq!(target.heap.data.get(&key), Some(count), "data of {rank}");
                }
            }
        }
    }
}
