//! Whole congestion nodes and a small engine of our own in virtual time over the stand-in.

use std::collections::BTreeMap;

use clearway_proto::base::{BitsPerSec, Bytes, Class, LocalNs, Nanos, RandomKey, Rank};
use clearway_proto::congestion::{
    CongestorKind, Event, LoadTask, Metric, Node, NodeConfig, Phase, PhaseRecord, Pressure, VictimKind, VictimTask,
};
use clearway_proto::wire::{Arrival, Destination, Engine, Input, More, Out, Span, Wire};

use super::*;
use crate::graph::DeviceId;
use crate::spec::{FabricSpec, HostSpec, Jitter, Routing, Topology};
use crate::time::Pace;
use crate::wire::stand_in::StandIn;
use crate::wire::{Bodies, NetworkConfig};

const RATE: BitsPerSec = BitsPerSec::mega(100_000);
const LATENCY: Picos = Picos::from_micros(2);
const MS: Nanos = Nanos::from_millis(1);

fn spec(host: impl FnOnce(&mut HostSpec)) -> FabricSpec {
    let mut spec = FabricSpec::plain(Topology::Star { hosts: 64 }, Routing::Minimal, RATE);
    (spec.host.input_cost, spec.host.effect_cost) = (Picos::from_nanos(100), Picos::from_nanos(50));
    host(&mut spec.host);
    spec
}

fn network(ranks: u32, spec: &FabricSpec) -> Network<StandIn> {
    let hosts = (0..ranks).map(DeviceId).collect();
    let config = NetworkConfig { hosts, bodies: Bodies::Phantom, disk: None, key: RandomKey::new(8) };
    Network::new(StandIn::new(ranks, Pace::of(RATE), LATENCY), spec, config)
}

fn node(wire: &mut SimWire) -> Node {
    let body_max = 4_096;
    let region = wire.register(Bytes(u64::from(body_max))).expect("there is room");
    let payload = Span { region, offset: 0, length: body_max };
    let shared_clock = wire.capabilities().shared_clock;
    Node::new(NodeConfig { rank: wire.rank(), payload, body_max, shared_clock, key: RandomKey::new(7) })
}

/// Runs a phase on every rank; begins 1 ms from now by each rank's clock.
fn run(world: &mut World<Node, StandIn>, phase_of: impl Fn(Rank) -> Phase) -> Vec<PhaseRecord> {
    let mut records = BTreeMap::new();
    for rank in (0..world.network().ranks()).map(Rank) {
        let begin = world.network_mut().wire(rank).now() + MS;
        world.command(Picos::ZERO, rank, Phase { begin, ..phase_of(rank) });
    }
    let ended = world.run_until(Picos::NEVER, &mut |told| match told.event {
        Event::PhaseOver { .. } => {
            records.insert(told.rank, told.engine.take_record().expect("a phase is over"));
        }
        Event::Burn(length) => told.processor.pause(told.at, length.into()),
    });
    assert_eq!(ended, Ended::Quiet);
    records.into_values().collect()
}

fn phase(victim: Option<VictimTask>, loads: Vec<LoadTask>) -> Phase {
    let slice = MS;
    Phase { number: 1, begin: LocalNs(0), length: MS.times(8), drain: MS, slice, overhead: Bytes(58), victim, loads }
}

fn victim(kind: VictimKind, ranks: u32) -> Option<VictimTask> {
    let ring = (0..ranks).map(Rank).collect();
    Some(VictimTask { kind, ring, class: Class::LowLatency, interval: Nanos::from_micros(50) })
}

fn load(kind: CongestorKind, ranks: u32, me: Rank) -> Vec<LoadTask> {
    let group: Vec<Rank> = (0..ranks).map(Rank).collect();
    let pressure = Pressure { percent: 30, host_rate: BitsPerSec::mega(10_000), window: None };
    let kind = kind.load(0, &group, me, pressure);
    let task = |kind| LoadTask { kind, class: Class::Bulk, from: Nanos::ZERO, until: MS.times(6) };
    kind.map(task).into_iter().collect()
}

fn times(records: &[PhaseRecord], metric: Metric) -> (u64, u64, u64) {
    let all = records.iter().flat_map(|r| &r.series).filter(|s| s.metric == metric).flat_map(|s| &s.slices);
    all.fold((0, u64::MAX, 0), |(count, low, high), (_, h)| {
        (count + h.count(), low.min(h.min().unwrap_or(u64::MAX)), high.max(h.max().unwrap_or(0)))
    })
}

#[test]
fn congestion__probes_take_the_latency_and_the_processors_costs() {
    let mut world = World::new(network(3, &spec(|_| ())), node);
    let records = run(&mut world, |_| phase(victim(VictimKind::Ping, 3), vec![]));
    let (count, low, high) = times(&records, Metric::OneWay);
    assert!((1_700..2_300).contains(&count), "{count}");
    // The post (50 ns), at most 64 bytes (6 ns), the latency; before that 100 ns for the input, unless it was a second tick.
    assert!((2_050..2_060).contains(&low), "{low}");
    assert!((2_200..6_000).contains(&high), "{high}");
    assert!(records.iter().all(|record| record.foreign == 0));
    assert_eq!(world.network().under_way(), 0);
}

#[test]
fn congestion__every_pattern_runs_under_every_load() {
    for victims in VictimKind::ALL {
        for loads in CongestorKind::ALL {
            let mut world = World::new(network(4, &spec(|_| ())), node);
            let records = run(&mut world, |me| phase(victim(victims, 4), load(loads, 4, me)));
            assert_eq!(records.len(), 4);
            let samples = times(&records, Metric::OneWay).0 + times(&records, Metric::Iteration).0;
            assert!(samples > 20, "{victims:?} under {loads:?}: {samples}");
            let carried = records.iter().any(|record| !record.load.is_empty());
            assert_eq!(carried, loads.sends(), "{loads:?}");
            assert_eq!(world.network().under_way(), 0);
        }
    }
}

#[test]
fn congestion__a_burning_processor_delays_what_it_should_answer() {
    let slowest = |kind| {
        let mut world = World::new(network(2, &spec(|_| ())), node);
        times(&run(&mut world, |me| phase(victim(VictimKind::Get, 2), load(kind, 2, me))), Metric::RoundTrip).2
    };
    let (idle, burning) = (slowest(CongestorKind::None), slowest(CongestorKind::CpuOnly));
    assert!(idle < 20_000 && burning > 1_000_000, "{idle} {burning}");
}

#[test]
fn digest__equal_runs_are_equal_and_a_nanosecond_shows() {
    let digest = |input_cost, jitter| {
        let spec = spec(|host| (host.input_cost, host.jitter) = (input_cost, jitter));
        let mut world = World::new(network(4, &spec), node);
        run(&mut world, |me| phase(victim(VictimKind::Alltoall, 4), load(CongestorKind::Incast, 4, me)));
        world.digest()
    };
    let jitter = Jitter { period: Picos::from_micros(100), length: Picos::from_micros(3), rare: 100 };
    let cost = Picos::from_nanos(100);
    assert_eq!(digest(cost, jitter), digest(cost, jitter));
    assert_ne!(digest(cost, jitter), digest(cost, Jitter::default()));
    assert_ne!(digest(cost, jitter), digest(cost + Picos(1_000), jitter));
}

/// Sends its clock's reading to the next rank every `period`, and says what it hears.
#[derive(Debug)]
struct Beat {
    period: Nanos,
    next: LocalNs,
    incarnation: u32,
    peer: Rank,
}

impl Engine for Beat {
    type Command = Nanos;
    type Event = (LocalNs, Option<Rank>);

    fn input(&mut self, now: LocalNs, input: Input<'_, Nanos>, out: &mut Out<Self::Event>) -> More {
        match input {
            Input::Boot { incarnation } => (self.incarnation, self.next) = (incarnation, now + self.period),
            Input::Tick => {
                out.tell((now, None));
                out.send(Destination::One(self.peer), Class::Control, &now.0.to_le_bytes(), Span::EMPTY, None);
                self.next += self.period;
            }
            Input::Command(period) => self.period = period,
            Input::Arrival(Arrival::Datagram(datagram)) => out.tell((now, Some(datagram.from))),
            Input::Arrival(_) => {}
        }
        More::No
    }

    fn deadline(&self) -> Option<LocalNs> {
        Some(self.next)
    }
}

fn beat(period: Nanos) -> impl FnMut(&mut SimWire) -> Beat {
    move |wire| {
        let peer = Rank((wire.rank().0 + 1) % 2);
        Beat { period, next: LocalNs(0), incarnation: 0, peer }
    }
}

/// True times of the ticks of rank 0 until `until`.
fn ticks(world: &mut World<Beat, StandIn>, until: Picos) -> Vec<u64> {
    let mut ticks = Vec::new();
    let ended = world.run_until(until, &mut |told| {
        if told.rank == Rank(0) && told.event.1.is_none() {
            ticks.push(told.at.nanos().0 / 1_000);
        }
    });
    assert_eq!(ended, Ended::InTime);
    assert_eq!(world.now(), until);
    ticks
}

#[test]
fn deadline__follows_the_nodes_own_clock_also_when_it_is_disturbed() {
    let mut world = World::new(network(2, &spec(|_| ())), beat(Nanos::from_micros(100)));
    assert_eq!(ticks(&mut world, Picos::from_micros(250)), [100, 200]);
    world.disturb(Rank(0), |clock| clock.jump(Picos::from_micros(250), Nanos::from_micros(30)));
    assert_eq!(ticks(&mut world, Picos::from_micros(350)), [270]);
    world.disturb(Rank(0), |clock| clock.freeze(Picos::from_micros(350), Picos::from_micros(500)));
    assert_eq!(ticks(&mut world, Picos::from_micros(1_000)), [870, 970]);
    world.disturb(Rank(0), |clock| clock.drift(Picos::from_micros(1_000), -500_000));
    assert_eq!(ticks(&mut world, Picos::from_micros(1_400)), [1_140, 1_340]);
}

#[test]
fn pause__a_stopped_processor_ticks_late_and_never_twice() {
    let mut world = World::new(network(2, &spec(|_| ())), beat(Nanos::from_micros(100)));
    world.network_mut().wire(Rank(0)).processor.pause(Picos::from_micros(150), Picos::from_micros(200));
    assert_eq!(ticks(&mut world, Picos::from_micros(450)), [100, 350, 350, 400]);
}

#[test]
fn command__is_given_at_its_time_and_waits_for_the_processor() {
    let mut world = World::new(network(2, &spec(|_| ())), beat(Nanos::from_micros(100)));
    world.command(Picos::from_micros(150), Rank(0), Nanos::from_micros(10));
    assert_eq!(ticks(&mut world, Picos::from_micros(225)), [100, 200, 210, 220]);
}

#[test]
fn crash__the_dead_are_silent_and_the_risen_know_that_they_rose() {
    let mut world = World::new(network(2, &spec(|_| ())), beat(Nanos::from_micros(100)));
    assert_eq!(ticks(&mut world, Picos::from_micros(150)), [100]);
    world.crash(Rank(0));
    assert!(world.engine_mut(Rank(0)).is_none());
    world.command(Picos::from_micros(160), Rank(0), Nanos(1));
    assert_eq!(ticks(&mut world, Picos::from_micros(350)), []);
    world.restart(Rank(0), beat(Nanos::from_micros(40)));
    assert_eq!(ticks(&mut world, Picos::from_micros(395)), [390]);
    assert_eq!(world.engine_mut(Rank(0)).map(|engine| engine.incarnation), Some(1));
    assert_eq!(world.network().under_way(), 0);
}

#[test]
fn clock__nodes_that_drift_stay_apart_and_the_wire_does_not_say_otherwise() {
    let spec = spec(|host| host.clock_ppm = 50);
    let mut world = World::new(network(2, &spec), beat(Nanos::from_micros(100)));
    assert!(world.network().end(Rank(0)).capabilities().shared_clock.is_none());
    let mut readings: Vec<LocalNs> = Vec::new();
    world.run_until(Picos::from_micros(1_000), &mut |told| readings.push(told.now));
    let at = world.now();
    let [a, b] = [0, 1].map(|rank| world.network().end(Rank(rank)).clock().local(at));
    assert_ne!(a, b);
    assert!(readings.len() > 30);
}
