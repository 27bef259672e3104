//! A program: draws what it does next, and knows what every heap will be for it.

use super::*;

/// What a program waits for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Wait {
    Buffer,
    Quiet { context: usize, peer: Option<u32> },
    Until(u64),
    Finish,
    Over,
}

/// What a program does after it waited.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Errand {
    None,
    /// Fetches a block, when its peer has it for sure.
    Get {
        context: usize,
        peer: u32,
        block: u64,
    },
}

pub(super) struct Program {
    pub(super) rank: u32,
    pub(super) stream: RandomStream,
    pub(super) driver: Option<Driver<FaultyQueue>>,
    pub(super) heap: ModelHeap,
    pub(super) buffers: RegionId,
    pub(super) sources: RegionId,
    pub(super) landing: RegionId,
    pub(super) heap_region: RegionId,
    pub(super) limits: QueueLimits,
    pub(super) free: Vec<u32>,
    pub(super) open: BTreeMap<(usize, u32), (OpenBuffer, u32, LocalNs)>,
    pub(super) under_way: BTreeSet<(u32, Class)>,
    pub(super) issued: BTreeMap<(usize, u32), u64>,
    pub(super) ended: BTreeMap<(usize, u32), u64>,
    /// What each part of this program in each heap will be.
    pub(super) models: BTreeMap<(usize, u32), Vec<u8>>,
    /// Blocks that were written since the last fence.
    pub(super) dirty: BTreeSet<(usize, u32, u64)>,
    /// Long puts whose bytes are kept, by context.
    pub(super) kept: Vec<usize>,
    pub(super) sent_data: BTreeMap<(usize, u32), u64>,
    pub(super) tickets: u32,
    /// The block that is fetched, by its ticket.
    pub(super) landing_of: Option<(u32, Vec<u8>)>,
    pub(super) wait: Option<Wait>,
    pub(super) errand: Errand,
    pub(super) lost: BTreeSet<u32>,
    pub(super) steps: u32,
    pub(super) stamp: u64,
    pub(super) next: Option<LocalNs>,
}

impl Program {
    pub(super) fn new(plan: &QueuePlan, rank: u32, wire: &mut dyn Wire) -> Self {
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
            timeout: Nanos::from_millis(50),
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

    pub(super) fn command(&mut self, now: LocalNs, command: QueueCommand) {
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
            let expected = AwaitedAnswer { peer: Rank(peer), bytes: bytes.to_vec() };
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
        let is_busy = self.under_way.contains(&(key.1, class));
        let stream = if is_busy { StreamState::Busy } else { StreamState::Idle };
        let age = Nanos(wire.now().0 - since.0);
        if policy.cause(open, class, stream, age).is_some() {
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

    pub(super) fn is_quiet(&self, context: usize, peer: Option<u32>) -> bool {
        let issued = self
            .issued
            .iter()
            .filter(|((of, to), _)| *of == context && peer.is_none_or(|peer| peer == *to));
        issued.into_iter().all(|(key, count)| self.ended.get(key).unwrap_or(&0) == count)
    }

    pub(super) fn hear(&mut self, wire: &mut dyn Wire, event: QueueEvent) {
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
    pub(super) fn run(&mut self, wire: &mut dyn Wire, plan: &QueuePlan) {
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
            match std::mem::replace(&mut self.errand, Errand::None) {
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
