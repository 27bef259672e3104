//! A simulated machine that builds timeslices under faults, with the memory, the accounts and the
//! coordination of a run.
//!
//! # Model
//! Inputs have the memory and the accounts of a run, and a detector each that drops what finds no
//! room. Builders have a sink that takes some time for a timeslice. All times are virtual; a report
//! comes each millisecond, which stands for the second of a run.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use clearway_proto::base::{BitsPerSec, Bytes, Class, LocalNs, Nanos, RandomKey, Rank};
use clearway_proto::microslice::{
    Checksum, Generator, GeneratorPlan, MicrosliceDescriptor, SizeDistribution, SliceRule, TimeRule,
};
use clearway_proto::timeslice::{
    ContributionSource, Dfs, Policy, ReleasePolicy, TimesliceCommand, TimesliceConfig,
    TimesliceEvent, TimesliceLayout, TimesliceNode, Window, WriteSlots,
};
use clearway_proto::wire::{RegionId, Span, Wire};
use clearway_sim::Picos;
use clearway_sim::disk::Survival;
use clearway_sim::fabric::{Fabric, FabricOptions};
use clearway_sim::graph::DeviceId;
use clearway_sim::spec::presets;
use clearway_sim::topology;
use clearway_sim::wire::{ContentModel, Network, NetworkConfig};
use clearway_sim::world::World;

use super::super::described::{DescribedTimeslice, TimeslicePlace};
use super::super::input_buffer::InputBuffer;
use super::super::ledger::{BuilderReports, BuiltCounts, LedgerEntry, add_built};
use super::super::numbers::TimesliceNumbers;
use super::super::source::MicrosliceSource;
use super::super::stream::{SourceStream, StreamSender};
use super::{BuilderWait, LossTimeline};

/// Experiment time from one microslice to the next; it passes as simulated time does.
const STEP: u64 = 10_000;
const RULE: TimeRule = TimeRule {
    duration: Nanos(5 * STEP),
    before: Nanos(0),
    after: Nanos(0),
    max_gap: Nanos::from_secs(1),
    silence: Some(Nanos::from_millis(4)),
    step: Some(Nanos(STEP)),
};
/// Less than a millisecond of data.
const DETECTOR: usize = 16 << 10;
const RING: Bytes = Bytes(8 << 10);
const TURN: Nanos = Nanos::from_micros(20);
/// When faults begin.
pub(super) const FAULT: Nanos = Nanos::from_millis(6);

/// What is wrong.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Fault {
    /// The source leaves out these numbers.
    Missing(u32, u64),
    /// It gives this many microslices twice.
    Repeated(u32, u64),
    /// It gives this many behind younger ones.
    Late(u32, u64),
    /// It gives this many with a start out of all reason.
    Damaged(u32, u64),
    /// Contributions of an input come to a builder with other bytes.
    Corrupt(u32, u32),
    /// The sink of a builder takes ten milliseconds for a timeslice.
    SlowSink(u32),
    /// The interface of an input has a fifth of what it makes.
    SlowLink(u32),
    /// The process of an input takes nothing for a while.
    Paused(u32),
    Dead(u32),
    /// A rank goes, as it wishes.
    Retired(u32),
    /// It comes back.
    Joined(u32),
}

/// How many there are, and how they build.
#[derive(Clone, Copy, Debug)]
pub(super) struct Shape {
    pub(super) inputs: u32,
    pub(super) builders: u32,
    pub(super) policy: Policy,
    /// How long detectors give microslices.
    pub(super) length: Nanos,
    /// What an input holds; 256 KiB are four milliseconds of data.
    pub(super) memory: Bytes,
}

/// A fault, and when it begins.
pub(super) type TimedFault = (Nanos, Fault);

pub(super) struct SimulatedInput {
    pub(super) buffer: InputBuffer,
    detector: StreamSender,
    generator: Generator,
    region: RegionId,
    next: u64,
    was_over: bool,
    /// Everything that the detector gave or dropped.
    pub(super) offered: u64,
}

#[derive(Default)]
pub(super) struct SimulatedSink {
    complete: BTreeMap<u64, u64>,
    /// What it works on, and until when.
    under_way: Option<(Picos, u64)>,
    pub(super) built: Vec<BuiltCounts>,
    pub(super) taken: TimesliceNumbers,
}

pub(super) struct Machine {
    shape: Shape,
    pub(super) world: World<TimesliceNode, Fabric>,
    faults: Vec<TimedFault>,
    pub(super) inputs: Vec<SimulatedInput>,
    pub(super) sinks: Vec<SimulatedSink>,
    pub(super) losses: LossTimeline,
    pub(super) dead: BTreeSet<u32>,
    /// Ranks that retired and are not back.
    away: BTreeSet<u32>,
    ended: BTreeSet<u32>,
    /// Ranks that are out, each with one that knows it.
    known: BTreeSet<(u32, u32)>,
    /// Where the stream ends, once that is known.
    pub(super) end: Option<u64>,
    pub(super) corrupted: u64,
}

impl Machine {
    pub(super) fn new(shape: Shape, faults: &[TimedFault]) -> Self {
        let Shape { inputs: count, builders, policy, .. } = shape;
        let spec = presets::load("edr", None).expect("a shipped fabric");
        let network = topology::build(&spec).expect("a sound fabric");
        let carrier = Fabric::new(&spec, network, 1, FabricOptions::default());
        let key = RandomKey::new(1);
        let hosts = (0..count + builders).map(DeviceId).collect();
        let config = NetworkConfig { hosts, bodies: ContentModel::Real, disk: None, key };
        let ranks = |range: std::ops::Range<u32>| range.map(Rank).collect();
        let layout = TimesliceLayout::new(ranks(0..count), ranks(count..count + builders), &[]);
        let layout = Arc::new(layout.expect("a sound layout"));
        let mut inputs = Vec::new();
        let world = World::new(Network::new(carrier, &spec, config), |wire| {
            let rank = wire.rank();
            let rings = wire.register(Bytes(RING.0 * u64::from(count))).expect("room");
            if rank.0 < count {
                let region = wire.register(shape.memory).expect("room");
                inputs.push(SimulatedInput::new(rank.0, region, shape.memory));
            }
            TimesliceNode::new(TimesliceConfig {
                rank,
                run: 0,
                layout: layout.clone(),
                policy,
                window: Window { least: 2, most: 8 },
                dfs: Dfs { interval: 20, history: 5, ..Dfs::default() },
                source: ContributionSource::Given,
                slots: WriteSlots::from_policy(policy),
                rings: Span { region: rings, offset: 0, length: 0 },
                ring: RING,
                release: ReleasePolicy::ByCommand,
                heartbeat: Some(Nanos::from_millis(1)),
                class: Class::Bulk,
                control: Class::Control,
            })
        });
        let mut machine = Self {
            shape,
            world,
            faults: faults.to_vec(),
            inputs,
            sinks: (0..builders).map(|_| SimulatedSink::default()).collect(),
            losses: LossTimeline::default(),
            dead: BTreeSet::new(),
            away: BTreeSet::new(),
            ended: BTreeSet::new(),
            known: BTreeSet::new(),
            end: None,
            corrupted: 0,
        };
        for rank in 0..count {
            machine.command(rank, TimesliceCommand::Begin);
        }
        machine
    }

    fn command(&mut self, rank: u32, command: TimesliceCommand) {
        let now = self.world.now();
        self.world.command(now, Rank(rank), command);
    }

    fn now(&self) -> Nanos {
        self.world.now().nanos()
    }

    fn is_there(&self, rank: u32) -> bool {
        !self.dead.contains(&rank) && !self.away.contains(&rank)
    }

    /// Returns the inputs that take part.
    pub(super) fn living(&self) -> Vec<u32> {
        (0..self.shape.inputs).filter(|rank| self.is_there(*rank)).collect()
    }

    /// Returns whether `rank` suffers from `fault`, that lasts for `length`.
    fn suffers(&self, fault: Fault, length: Nanos) -> bool {
        let now = self.now();
        let is_on = |(at, one): &TimedFault| *one == fault && (*at..*at + length).contains(&now);
        self.faults.iter().any(is_on)
    }

    /// Runs until all is built.
    pub(super) fn run(&mut self) {
        let limit = Nanos(20 * self.shape.length.0.max(20_000_000));
        let ranks = self.shape.inputs + self.shape.builders;
        let is_over = |machine: &Self| {
            let mut all = (0..ranks).filter(|rank| machine.is_there(*rank));
            let knows =
                |rank| machine.dead.iter().all(|dead| machine.known.contains(&(*dead, rank)));
            all.all(|rank| machine.ended.contains(&rank) && knows(rank))
        };
        let last = self.faults.iter().map(|(at, _)| *at).max().unwrap_or(Nanos::ZERO);
        while !is_over(self) || self.now() <= last {
            assert!(self.now() < limit, "{:?}: it never ends", self.faults);
            self.strike();
            self.living().into_iter().for_each(|rank| self.feed(rank));
            self.coordinate();
            self.serve();
            self.step();
            if self.now().0.is_multiple_of(1_000_000) {
                self.report();
            }
        }
        self.report();
    }

    /// Tells inputs how far others are, and where the stream ends.
    fn coordinate(&mut self) {
        if self.end.is_some() {
            return;
        }
        let living = self.living();
        let given = |rank: &u32| self.inputs[*rank as usize].buffer.given();
        let furthest = living.iter().map(given).max().unwrap_or(0);
        let is_over = |rank: &u32| {
            let input = &self.inputs[*rank as usize];
            input.was_over && input.buffer.is_at_rest()
        };
        if living.iter().all(is_over) {
            self.end = Some(furthest);
            for rank in living {
                self.finish(rank, furthest);
            }
            return;
        }
        let over: Vec<u32> = living.into_iter().filter(is_over).collect();
        for rank in over {
            self.inputs[rank as usize].buffer.resume_at(furthest);
        }
    }

    fn finish(&mut self, rank: u32, timeslice: u64) {
        self.inputs[rank as usize].buffer.resume_at(timeslice);
        self.command(rank, TimesliceCommand::Finish { timeslice });
    }

    fn limit_fetch(&mut self, rank: u32, rate: BitsPerSec) {
        let host = self.world.network().host(Rank(rank));
        self.world.network_mut().carrier_mut().limit_fetch(host, rate);
    }

    fn strike(&mut self) {
        let now = self.now();
        let mended = Nanos(self.shape.length.0 / 2);
        for (at, fault) in self.faults.clone() {
            match fault {
                // It is mended before the end, so that all is built.
                Fault::SlowLink(rank) if at + mended == now => {
                    self.limit_fetch(rank, BitsPerSec::mega(40_000))
                }
                _ if at != now => {}
                Fault::SlowLink(rank) => self.limit_fetch(rank, BitsPerSec::mega(40)),
                Fault::Dead(rank) => {
                    self.world.crash(Rank(rank), Survival::Nothing);
                    self.dead.insert(rank);
                }
                Fault::Retired(rank) => self.command(rank, TimesliceCommand::Retire),
                Fault::Joined(rank) => self.command(rank, TimesliceCommand::Join),
                _ => {}
            }
        }
    }

    /// Lets the detector of `rank` give what is due, and the input take what it can.
    fn feed(&mut self, rank: u32) {
        let (now, length) = (self.now(), self.shape.length);
        let is_paused = self.suffers(Fault::Paused(rank), Nanos::from_millis(5));
        let faults = self.faults.clone();
        let input = &mut self.inputs[rank as usize];
        while input.next * STEP <= now.0.min(length.0 - 1) {
            input.give(rank, &faults);
        }
        if now >= length && !input.was_over {
            input.was_over = true;
            input.detector.end(Ok(0));
        }
        if is_paused {
            return;
        }
        let wire = self.world.network_mut().wire(Rank(rank));
        let memory = wire.region_mut(input.region).expect("it was registered");
        let at = LocalNs(now.0);
        let mut given = Vec::new();
        input.buffer.pump(at, memory, &mut |pieces| given.push(pieces)).expect("it has room");
        let node = self.world.engine_mut(Rank(rank)).expect("it lives");
        input.buffer.note_holder(at, |timeslice| node.holder(timeslice).map(|rank| rank.0));
        for pieces in given {
            self.command(rank, TimesliceCommand::Give(pieces));
        }
    }

    /// Lets sinks take what is complete.
    fn serve(&mut self) {
        let now = self.world.now();
        let Shape { inputs, builders, length, .. } = self.shape;
        for place in 0..builders {
            let rank = inputs + place;
            if self.dead.contains(&rank) {
                continue;
            }
            if let Some((_, timeslice)) =
                self.sinks[place as usize].under_way.take_if(|(until, _)| *until <= now)
            {
                self.command(rank, TimesliceCommand::Release { timeslice });
            }
            let is_slow = self.suffers(Fault::SlowSink(rank), Nanos(length.0 / 2));
            let node = self.world.engine_mut(Rank(rank)).expect("it lives");
            let row = node.row().unwrap_or(0);
            let sink = &mut self.sinks[place as usize];
            if sink.under_way.is_some() {
                continue;
            }
            let first = sink.complete.first_entry().filter(|first| *first.key() < row);
            let Some(timeslice) = first.map(|first| first.remove()) else { continue };
            let spans: Vec<_> =
                (0..inputs as usize).map(|input| node.contribution(input, timeslice)).collect();
            let wire = self.world.network_mut().wire(Rank(rank));
            let mut parts = Vec::new();
            for (input, span) in (0..).zip(spans) {
                let bytes = span.and_then(|Span { region, offset, length }| {
                    wire.region(region)?.get(offset as usize..)?.get(..length as usize)
                });
                let mut bytes = bytes.unwrap_or_default().to_vec();
                let is_corrupt =
                    self.faults.iter().any(|(_, it)| *it == Fault::Corrupt(input, rank));
                if is_corrupt && bytes.len() > 8 {
                    bytes[8] ^= 0x55;
                    self.corrupted += 1;
                }
                parts.push(bytes);
            }
            let rule = SliceRule::ByTime(RULE);
            let parts = parts.iter().map(Vec::as_slice);
            let described =
                DescribedTimeslice::new(TimeslicePlace { timeslice, position: 0 }, parts, rule);
            add_built(&mut sink.built, &described.inputs);
            sink.taken.push(timeslice);
            let service = if is_slow { Nanos::from_millis(10) } else { Nanos::from_micros(20) };
            sink.under_way = Some((now + Picos::from(service), timeslice));
        }
    }

    fn step(&mut self) {
        let until = self.world.now() + Picos::from(TURN);
        let mut events = Vec::new();
        self.world.run_until(until, &mut |reported| {
            events.push((reported.rank.0, reported.now, reported.event))
        });
        for (rank, now, event) in events {
            self.handle_event(rank, now, event);
        }
    }

    fn handle_event(&mut self, rank: u32, now: LocalNs, event: TimesliceEvent) {
        let input = self.inputs.get_mut(rank as usize).filter(|_| !self.dead.contains(&rank));
        match (event, input) {
            (TimesliceEvent::Ready, Some(input)) => input.buffer.open(now, Some(0)),
            (TimesliceEvent::Free { timeslice }, Some(input)) => input.buffer.free(timeslice),
            (TimesliceEvent::Retired { timeslice }, Some(input)) => input.buffer.retire(timeslice),
            (TimesliceEvent::Out, _) => drop(self.away.insert(rank)),
            (TimesliceEvent::Joined { timeslice, .. }, input) => {
                self.away.remove(&rank);
                self.ended.remove(&rank);
                let Some(input) = input else { return };
                input.buffer.join(timeslice);
                self.command(rank, TimesliceCommand::Begin);
                if let Some(end) = self.end {
                    self.finish(rank, end);
                }
            }
            (TimesliceEvent::Complete { timeslice, position, .. }, _) => {
                let place = (rank - self.shape.inputs) as usize;
                self.sinks[place].complete.insert(position, timeslice);
            }
            (TimesliceEvent::Ended, _) => drop(self.ended.insert(rank)),
            (TimesliceEvent::Lost { rank: lost, .. }, _) => drop(self.known.insert((lost.0, rank))),
            (TimesliceEvent::Helpless, _) => panic!("{rank}: {:?}", self.faults),
            _ => {}
        }
    }

    fn report(&mut self) {
        let second = self.now().0 / 1_000_000;
        let Shape { inputs, builders, .. } = self.shape;
        for place in 0..builders {
            let sink = &self.sinks[place as usize];
            let is_behind = sink.under_way.is_some() && !sink.complete.is_empty();
            let Some(node) = self.world.engine_mut(Rank(inputs + place)) else { continue };
            let wait = match node.awaited() {
                _ if is_behind => BuilderWait::Sink,
                Some(rank) => BuilderWait::Input(rank.0),
                None => BuilderWait::Nothing,
            };
            self.losses.waits(inputs + place, wait);
        }
        for rank in (0..inputs).filter(|rank| !self.dead.contains(rank)) {
            self.losses.add(second, rank, &self.inputs[rank as usize].buffer.account());
        }
    }

    /// The accounts of all inputs.
    pub(super) fn ledger(&self) -> Vec<LedgerEntry> {
        let inputs = self.shape.inputs;
        let mut built = Vec::new();
        let lives = |place: &usize| !self.dead.contains(&(inputs + *place as u32));
        let sinks = self.sinks.iter().enumerate().filter(|(place, _)| lives(place));
        sinks.for_each(|(_, sink)| add_built(&mut built, &sink.built));
        let is_whole = self.dead.iter().all(|rank| *rank < inputs);
        let reports = if is_whole { BuilderReports::All } else { BuilderReports::Some };
        let entry = |rank: u32| {
            let account = self.inputs[rank as usize].buffer.account();
            let source = Some(&account).filter(|_| !self.dead.contains(&rank));
            let built = built.get(rank as usize).copied().unwrap_or_default();
            LedgerEntry::new(rank, source, built, reports)
        };
        let ledger: Vec<_> = (0..inputs).map(entry).collect();
        for entry in &ledger {
            assert_eq!(entry.fault, None, "{:?}", self.faults);
        }
        ledger
    }
}

impl SimulatedInput {
    fn new(rank: u32, region: RegionId, memory: Bytes) -> Self {
        let (detector, stream) = SourceStream::pair().expect("a way to wake nobody");
        let rule = SliceRule::ByTime(RULE);
        let source = MicrosliceSource::Stream(stream);
        let buffer = InputBuffer::new(rule, source, region, memory, None).expect("enough memory");
        let generator = Generator::new(GeneratorPlan {
            channel: rank as u16,
            seed: 1,
            sizes: SizeDistribution::Constant,
            mean_bytes: 192,
            period: Nanos(STEP),
            checksum: Checksum::Crc32c,
        });
        Self { buffer, detector, generator, region, next: 0, was_over: false, offered: 0 }
    }

    /// Gives the next microslice, with what is wrong about it.
    fn give(&mut self, rank: u32, faults: &[TimedFault]) {
        let number = self.next;
        self.next += 1;
        let mut content = Vec::new();
        let descriptor = self.generator.microslice(number, &mut content);
        let mut push = |index| {
            self.offered += 1;
            let descriptor = MicrosliceDescriptor { index, ..descriptor };
            self.detector.push_or_drop(descriptor, &content, DETECTOR).expect("it is there");
        };
        let mut is_left_out = false;
        for (from, fault) in faults {
            let begin = from.0.div_ceil(STEP);
            let is_struck = |at: u32, count| at == rank && (begin..begin + count).contains(&number);
            match *fault {
                Fault::Missing(at, count) => is_left_out |= is_struck(at, count),
                Fault::Repeated(at, count) if is_struck(at, count) => push(descriptor.index),
                Fault::Late(at, count) if is_struck(at, count) => {
                    push(descriptor.index.saturating_sub(3 * STEP / 2))
                }
                Fault::Damaged(at, count) if is_struck(at, count) => {
                    push(descriptor.index + 5_000_000_000)
                }
                _ => {}
            }
        }
        if !is_left_out {
            push(descriptor.index);
        }
    }
}
