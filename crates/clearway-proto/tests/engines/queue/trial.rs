//! Programs that put, fetch, order and wait, on model heaps over the wire in memory; what must hold
//! at every fence, signal and quiet, and in the end.
//!
//! # Model
//! Every program has a part of every heap for each of its contexts, and nobody else writes there;
//! so it knows at each push what the peer's words will be, and what a request will answer. Each
//! part has words for elements, two blocks for long puts, and flags that say which bytes a block
//! has: a heap looks at the block when a flag is set.

mod heap;
mod program;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use clearway_proto::base::{Bytes, Class, LocalNs, Nanos, RandomKey, RandomStream, Rank};
use clearway_proto::queue::{
    AtomicStep, ClosingPolicy, ContextId, Element, HeapAccess, OpenBuffer, Place, Push,
    QueueCommand, QueueConfig, QueueEvent, QueueLimits, QueueNode, StreamState, Ticket, WordChange,
    WordWidth, apply,
};
use clearway_proto::reliable::{DigestPolicy, ReliableWire, StreamConfig};
use clearway_proto::wire::foreign_memory::WordMemory;
use clearway_proto::wire::memory::{FaultInjection, MemoryConfig, MemoryFabric, MemoryWire};
use clearway_proto::wire::{
    Applier, Driver, Fault, ForeignMemory, MemoryAccess, OperationKind, OperationSet, RegionId,
    RemoteSpan, Span, Status, Wire,
};

use self::heap::{
    AwaitedAnswer, BLOCK, BLOCKS, CONTEXTS, FLAGS, ModelHeap, PART, SOURCES, WORDS, part, pattern,
};
use self::program::{Program, Wait};
use super::faulty::{FaultyQueue, PlantedFault};

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
        (streams.check, streams.timeout) = (DigestPolicy::Arrived, Nanos::from_millis(500));
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

/// A trial that runs.
pub(super) struct QueueTrial {
    plan: QueuePlan,
    fabric: TrialFabric,
    programs: Vec<Program>,
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

    fn state(&self) -> String {
        use std::fmt::Write;
        let mut text = String::new();
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
