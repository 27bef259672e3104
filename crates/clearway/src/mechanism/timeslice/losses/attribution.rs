//! Faults at known ranks of a simulated machine with 64 nodes, and the accounts that name them.
//!
//! # Model
//! Inputs have the memory and the accounts of a run, and a detector each that drops what finds no
//! room. Builders have a sink that takes some time for a timeslice. All times are virtual; a report
//! comes each millisecond, which stands for the second of a run.

use std::collections::BTreeMap;
use std::sync::Arc;

use clearway_proto::base::{BitsPerSec, Bytes, Class, LocalNs, Nanos, RandomKey, Rank};
use clearway_proto::microslice::{
    Checksum, Generator, GeneratorPlan, MicrosliceDescriptor, SizeDistribution, SliceRule,
    TimeSlices,
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

use super::super::builder_output::OutgoingTimeslice;
use super::super::input_buffer::InputBuffer;
use super::super::ledger::{BuilderReports, BuiltCounts, LedgerEntry, SourceCounts, add_built};
use super::super::stream::{SourceStream, StreamSender};
use super::{BuilderWait, DropCause, LossTimeline, by_cause};

const INPUTS: u32 = 32;
const BUILDERS: u32 = 32;
/// Experiment time from one microslice to the next; it passes as simulated time does.
const STEP: u64 = 10_000;
const RULE: TimeSlices = TimeSlices {
    duration: Nanos(5 * STEP),
    before: Nanos(0),
    after: Nanos(0),
    max_gap: Nanos::from_secs(1),
    silence: Some(Nanos::from_millis(4)),
    step: Some(Nanos(STEP)),
};
/// Four milliseconds of an input's data, and less than one of a detector's.
const MEMORY: Bytes = Bytes(256 << 10);
const DETECTOR: usize = 16 << 10;
const RING: Bytes = Bytes(8 << 10);
const TURN: Nanos = Nanos::from_micros(20);
/// How long detectors give microslices.
const LENGTH: Nanos = Nanos::from_millis(18);
/// When faults begin.
const FAULT: Nanos = Nanos::from_millis(6);

/// What is wrong.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Fault {
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
}

struct SimulatedInput {
    buffer: InputBuffer,
    detector: StreamSender,
    generator: Generator,
    region: RegionId,
    next: u64,
    was_over: bool,
}

#[derive(Default)]
struct SimulatedSink {
    complete: BTreeMap<u64, u64>,
    /// What it works on, and until when.
    under_way: Option<(Picos, u64)>,
    built: Vec<BuiltCounts>,
}

struct Machine {
    world: World<TimesliceNode, Fabric>,
    faults: Vec<Fault>,
    inputs: Vec<SimulatedInput>,
    sinks: Vec<SimulatedSink>,
    losses: LossTimeline,
    dead: Vec<u32>,
    ended: usize,
    corrupted: u64,
}

impl Machine {
    fn new(faults: &[Fault]) -> Self {
        let spec = presets::load("edr", None).expect("a shipped fabric");
        let network = topology::build(&spec).expect("a sound fabric");
        let carrier = Fabric::new(&spec, network, 1, FabricOptions::default());
        let key = RandomKey::new(1);
        let hosts = (0..INPUTS + BUILDERS).map(DeviceId).collect();
        let config = NetworkConfig { hosts, bodies: ContentModel::Real, disk: None, key };
        let ranks = |range: std::ops::Range<u32>| range.map(Rank).collect();
        let layout = TimesliceLayout::new(ranks(0..INPUTS), ranks(INPUTS..INPUTS + BUILDERS), &[]);
        let layout = Arc::new(layout.expect("a sound layout"));
        let mut inputs = Vec::new();
        let world = World::new(Network::new(carrier, &spec, config), |wire| {
            let rank = wire.rank();
            let rings = wire.register(Bytes(RING.0 * u64::from(INPUTS))).expect("room");
            if rank.0 < INPUTS {
                let region = wire.register(MEMORY).expect("room");
                inputs.push(SimulatedInput::new(rank.0, region));
            }
            TimesliceNode::new(TimesliceConfig {
                rank,
                run: 0,
                layout: layout.clone(),
                policy: Policy::Token,
                window: Window { least: 2, most: 8 },
                dfs: Dfs::default(),
                source: ContributionSource::Given,
                slots: WriteSlots::from_policy(Policy::Token),
                rings: Span { region: rings, offset: 0, length: 0 },
                ring: RING,
                release: ReleasePolicy::ByCommand,
                heartbeat: Some(Nanos::from_millis(1)),
                class: Class::Bulk,
                control: Class::Control,
            })
        });
        let mut machine = Self {
            world,
            faults: faults.to_vec(),
            inputs,
            sinks: (0..BUILDERS).map(|_| SimulatedSink::default()).collect(),
            losses: LossTimeline::default(),
            dead: Vec::new(),
            ended: 0,
            corrupted: 0,
        };
        for rank in 0..INPUTS {
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

    /// Runs until all is built, or nothing more comes of it.
    fn run(&mut self) {
        let mut end = None;
        let limit = Nanos(20 * LENGTH.0);
        while self.now() < limit && self.ended + self.dead.len() < (INPUTS + BUILDERS) as usize {
            self.strike();
            for rank in (0..INPUTS).filter(|rank| !self.dead.contains(rank)).collect::<Vec<_>>() {
                self.feed(rank);
            }
            let living = |rank: &u32| !self.dead.contains(rank);
            let mut all = (0..INPUTS).filter(living).map(|rank| &self.inputs[rank as usize]);
            if end.is_none() && all.all(|input| input.was_over && input.buffer.is_at_rest()) {
                let given = self.inputs.iter().map(|input| input.buffer.given()).max();
                end = given;
                let timeslice = given.unwrap_or(0);
                for rank in (0..INPUTS).filter(living).collect::<Vec<_>>() {
                    self.inputs[rank as usize].buffer.resume_at(timeslice);
                    self.command(rank, TimesliceCommand::Finish { timeslice });
                }
            }
            self.serve();
            self.step();
            if self.now().0.is_multiple_of(1_000_000) {
                self.report();
            }
        }
        assert!(self.now() < limit, "{:?}: it never ends", self.faults);
        self.report();
    }

    fn strike(&mut self) {
        if self.now() != FAULT {
            return;
        }
        for fault in self.faults.clone() {
            match fault {
                Fault::SlowLink(rank) => {
                    let host = self.world.network().host(Rank(rank));
                    let carrier = self.world.network_mut().carrier_mut();
                    carrier.limit_fetch(host, BitsPerSec::mega(40));
                }
                Fault::Dead(rank) => {
                    self.world.crash(Rank(rank), Survival::Nothing);
                    self.dead.push(rank);
                }
                _ => {}
            }
        }
    }

    /// Lets the detector of `rank` give what is due, and the input take what it can.
    fn feed(&mut self, rank: u32) {
        let now = self.now();
        // It is mended before the end, so that all is built.
        if now == FAULT + Nanos(LENGTH.0 / 2) && self.faults.contains(&Fault::SlowLink(rank)) {
            let host = self.world.network().host(Rank(rank));
            let carrier = self.world.network_mut().carrier_mut();
            carrier.limit_fetch(host, BitsPerSec::mega(40_000));
        }
        let faults = self.faults.clone();
        let input = &mut self.inputs[rank as usize];
        while input.next * STEP <= now.0.min(LENGTH.0 - 1) {
            input.give(rank, &faults);
        }
        if now >= LENGTH && !input.was_over {
            input.was_over = true;
            input.detector.end(Ok(0));
        }
        let is_paused = faults.contains(&Fault::Paused(rank))
            && (FAULT..FAULT + Nanos::from_millis(5)).contains(&now);
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
        for place in 0..BUILDERS {
            let rank = INPUTS + place;
            if self.dead.contains(&rank) {
                continue;
            }
            if let Some((_, timeslice)) =
                self.sinks[place as usize].under_way.take_if(|(until, _)| *until <= now)
            {
                self.command(rank, TimesliceCommand::Release { timeslice });
            }
            let node = self.world.engine_mut(Rank(rank)).expect("it lives");
            let row = node.row().unwrap_or(0);
            let sink = &mut self.sinks[place as usize];
            if sink.under_way.is_some() {
                continue;
            }
            let first = sink.complete.first_entry().filter(|first| *first.key() < row);
            let Some(timeslice) = first.map(|first| first.remove()) else { continue };
            let spans: Vec<_> =
                (0..INPUTS as usize).map(|input| node.contribution(input, timeslice)).collect();
            let wire = self.world.network_mut().wire(Rank(rank));
            let mut built = OutgoingTimeslice::default();
            built.timeslice = timeslice;
            for (input, span) in (0..).zip(spans) {
                let bytes = span.and_then(|Span { region, offset, length }| {
                    wire.region(region)?.get(offset as usize..)?.get(..length as usize)
                });
                let mut bytes = bytes.unwrap_or_default().to_vec();
                if self.faults.contains(&Fault::Corrupt(input, rank)) && bytes.len() > 8 {
                    bytes[8] ^= 0x55;
                    self.corrupted += 1;
                }
                built.push(&bytes);
            }
            let described = built.described(SliceRule::ByTime(RULE));
            add_built(&mut sink.built, &described.inputs);
            let is_slow = self.faults.contains(&Fault::SlowSink(rank))
                && (FAULT..FAULT + Nanos(LENGTH.0 / 2)).contains(&now.nanos());
            let service = if is_slow { Nanos::from_millis(10) } else { Nanos::from_micros(20) };
            sink.under_way = Some((now + Picos::from(service), timeslice));
        }
    }

    fn step(&mut self) {
        let until = self.world.now() + Picos::from(TURN);
        let (inputs, sinks, ended) = (&mut self.inputs, &mut self.sinks, &mut self.ended);
        self.world.run_until(until, &mut |told| match told.event {
            TimesliceEvent::Ready => inputs[told.rank.index()].buffer.open(told.now, Some(0)),
            TimesliceEvent::Free { timeslice } => inputs[told.rank.index()].buffer.free(timeslice),
            TimesliceEvent::Complete { timeslice, position, .. } => {
                let place = told.rank.index() - INPUTS as usize;
                sinks[place].complete.insert(position, timeslice);
            }
            TimesliceEvent::Ended => *ended += 1,
            TimesliceEvent::Out | TimesliceEvent::Helpless => panic!("{:?}", told.rank),
            _ => {}
        });
    }

    fn report(&mut self) {
        let second = self.now().0 / 1_000_000;
        for place in 0..BUILDERS {
            let sink = &self.sinks[place as usize];
            let is_behind = sink.under_way.is_some() && !sink.complete.is_empty();
            let Some(node) = self.world.engine_mut(Rank(INPUTS + place)) else { continue };
            let wait = match node.awaited() {
                _ if is_behind => BuilderWait::Sink,
                Some(rank) => BuilderWait::Input(rank.0),
                None => BuilderWait::Nothing,
            };
            self.losses.waits(INPUTS + place, wait);
        }
        for rank in (0..INPUTS).filter(|rank| !self.dead.contains(rank)) {
            self.losses.add(second, rank, &self.inputs[rank as usize].buffer.account());
        }
    }

    /// The accounts of all inputs.
    fn ledger(&self) -> Vec<LedgerEntry> {
        let mut built = Vec::new();
        let lives = |place: &usize| !self.dead.contains(&(INPUTS + *place as u32));
        let sinks = self.sinks.iter().enumerate().filter(|(place, _)| lives(place));
        sinks.for_each(|(_, sink)| add_built(&mut built, &sink.built));
        let is_whole = self.dead.iter().all(|rank| *rank < INPUTS);
        let reports = if is_whole { BuilderReports::All } else { BuilderReports::Some };
        let entry = |rank: u32| {
            let account = self.inputs[rank as usize].buffer.account();
            let source = Some(&account).filter(|_| !self.dead.contains(&rank));
            let built = built.get(rank as usize).copied().unwrap_or_default();
            LedgerEntry::new(rank, source, built, reports)
        };
        let ledger: Vec<_> = (0..INPUTS).map(entry).collect();
        for entry in &ledger {
            assert_eq!(entry.fault, None, "{:?}", self.faults);
        }
        ledger
    }
}

impl SimulatedInput {
    fn new(rank: u32, region: RegionId) -> Self {
        let (detector, stream) = SourceStream::pair().expect("a way to wake nobody");
        let rule = SliceRule::ByTime(RULE);
        let buffer = InputBuffer::new(rule, stream, region, MEMORY, None).expect("enough memory");
        let generator = Generator::new(GeneratorPlan {
            channel: rank as u16,
            seed: 1,
            sizes: SizeDistribution::Constant,
            mean_bytes: 192,
            period: Nanos(STEP),
            checksum: Checksum::Crc32c,
        });
        Self { buffer, detector, generator, region, next: 0, was_over: false }
    }

    /// Gives the next microslice, with what is wrong about it.
    fn give(&mut self, rank: u32, faults: &[Fault]) {
        let number = self.next;
        self.next += 1;
        let mut content = Vec::new();
        let descriptor = self.generator.microslice(number, &mut content);
        let begin = FAULT.0 / STEP;
        let push = |index| {
            let descriptor = MicrosliceDescriptor { index, ..descriptor };
            self.detector.push_or_drop(descriptor, &content, DETECTOR).expect("it is there");
        };
        let is_struck = |at: u32, count| at == rank && (begin..begin + count).contains(&number);
        let mut is_left_out = false;
        for fault in faults {
            match *fault {
                Fault::Missing(at, count) => is_left_out |= is_struck(at, count),
                Fault::Repeated(at, count) if is_struck(at, count) => push(descriptor.index),
                Fault::Late(at, count) if is_struck(at, count) => {
                    push(descriptor.index - 3 * STEP / 2)
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

fn ran(faults: &[Fault]) -> Machine {
    let mut machine = Machine::new(faults);
    machine.run();
    machine
}

/// Which part of what `count` says of all inputs is that of input `rank`; and how much that is.
fn part_at(ledger: &[LedgerEntry], rank: u32, count: impl Fn(&SourceCounts) -> u64) -> (f64, u64) {
    let counts = |entry: &LedgerEntry| entry.source.as_ref().map_or(0, &count);
    let all: u64 = ledger.iter().map(counts).sum();
    let own = counts(&ledger[rank as usize]);
    (own as f64 / all.max(1) as f64, own)
}

/// Which part of the microslices that were dropped has a cause for which `is_right` holds, and how
/// many were dropped.
fn part_of_causes(machine: &mut Machine, is_right: impl Fn(u32, DropCause) -> bool) -> (f64, u64) {
    let causes = by_cause(&machine.losses.finish());
    let all: u64 = causes.iter().map(|(_, _, count, _)| count).sum();
    let right = causes.iter().filter(|(input, cause, ..)| is_right(*input, *cause));
    (right.map(|(_, _, count, _)| count).sum::<u64>() as f64 / all.max(1) as f64, all)
}

#[test]
fn ledger__faults_of_sources_and_links_are_found_where_they_are() {
    let mut machine = ran(&[
        Fault::Missing(3, 40),
        Fault::Repeated(5, 30),
        Fault::Late(7, 20),
        Fault::Damaged(11, 10),
        Fault::Corrupt(13, INPUTS + 19),
    ]);
    let ledger = machine.ledger();
    assert_eq!(part_at(&ledger, 3, |source| source.missing), (1.0, 40));
    assert_eq!(part_at(&ledger, 5, |source| source.repeated), (1.0, 30));
    assert_eq!(part_at(&ledger, 7, |source| source.late), (1.0, 20));
    assert_eq!(part_at(&ledger, 11, |source| source.damaged), (1.0, 10));
    assert_eq!(part_at(&ledger, 0, |source| source.overflowed).1, 0);
    let corrupt = machine.sinks.iter().enumerate().flat_map(|(place, sink)| {
        let inputs = sink.built.iter().enumerate().filter(|(_, counts)| counts.corrupt > 0);
        inputs.map(move |(input, counts)| (place, input, counts.corrupt))
    });
    assert_eq!(corrupt.collect::<Vec<_>>(), [(19, 13, machine.corrupted)]);
    assert!(machine.corrupted > 5);
    for row in machine.losses.finish() {
        assert!((6..9).contains(&row.second), "{row:?}");
    }
}

/// Runs with `fault`, and asks for causes for which `is_right` holds.
fn check_causes(fault: Fault, is_right: impl Fn(u32, DropCause) -> bool) {
    let mut machine = ran(&[fault]);
    machine.ledger();
    let (right, all) = part_of_causes(&mut machine, is_right);
    let causes = by_cause(&machine.losses.finish());
    assert!(right >= 0.99 && all > 100, "{right} of {all}: {causes:?}");
}

#[test]
fn ledger__a_drop_names_the_sink_that_is_too_slow() {
    let slow = INPUTS + 8;
    check_causes(Fault::SlowSink(slow), |_, cause| cause == DropCause::Sink(slow));
}

#[test]
fn ledger__a_drop_names_the_input_whose_link_is_too_slow() {
    check_causes(Fault::SlowLink(9), |_, cause| cause == DropCause::Input(9));
}

#[test]
fn ledger__a_drop_names_the_input_whose_process_is_away() {
    check_causes(Fault::Paused(30), |input, cause| match cause {
        DropCause::Itself => input == 30,
        cause => cause == DropCause::Input(30),
    });
}

#[test]
fn ledger__what_the_dead_take_along_is_counted_for_them_alone() {
    let machine = ran(&[Fault::Dead(21)]);
    let ledger = machine.ledger();
    let absent: Vec<_> = ledger.iter().map(|entry| entry.absent).collect();
    assert!(ledger[21].is_dead && absent[21] > 100, "{absent:?}");
    assert_eq!(absent.iter().sum::<u64>(), absent[21]);

    let dead = INPUTS + 13;
    let mut machine = ran(&[Fault::Dead(dead)]);
    let ledger = machine.ledger();
    let node = machine.world.engine_mut(Rank(0)).expect("it lives");
    let settled = node.settled().filter(|(rank, _)| rank.0 == dead).count() as u64;
    assert!(settled > 0);
    for entry in &ledger {
        assert_eq!(entry.undelivered, Some(5 * settled), "{entry:?}");
    }
}
