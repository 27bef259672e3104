//! A small engine of our own in virtual time over the stand-in: ticks, costs, disturbances,
//! crashes, digests.

use clearway_proto::base::{BitsPerSec, Bytes, Class, LocalNs, Nanos, RandomKey, Rank};
use clearway_proto::wire::{
    Applier, Arrival, Destination, Engine, Fault, Input, More, Operation, OperationKind, Out,
    RefusalReason, RegionId, Span, Status, Token, Wire,
};

use super::*;
use crate::graph::DeviceId;
use crate::spec::{FabricSpec, HostSpec, Jitter, Routing, Topology};
use crate::time::Pace;
use crate::wire::test_carrier::TestCarrier;
use crate::wire::{ContentModel, NetworkConfig};

const RATE: BitsPerSec = BitsPerSec::mega(100_000);
const LATENCY: Picos = Picos::from_micros(2);

fn spec(host: impl FnOnce(&mut HostSpec)) -> FabricSpec {
    let mut spec = FabricSpec::plain(Topology::Star { hosts: 64 }, Routing::Minimal, RATE);
    (spec.host.input_cost, spec.host.effect_cost) = (Picos::from_nanos(100), Picos::from_nanos(50));
    host(&mut spec.host);
    spec
}

fn network(ranks: u32, spec: &FabricSpec) -> Network<TestCarrier> {
    let hosts = (0..ranks).map(DeviceId).collect();
    let config =
        NetworkConfig { hosts, bodies: ContentModel::Phantom, disk: None, key: RandomKey::new(8) };
    Network::new(TestCarrier::new(ranks, Pace::from_rate(RATE), LATENCY), spec, config)
}

/// Sends its clock's reading to the next rank every `period`, and says what it hears.
#[derive(Debug)]
struct Heartbeat {
    period: Nanos,
    next: LocalNs,
    incarnation: u32,
    peer: Rank,
}

impl Engine for Heartbeat {
    type Command = Nanos;
    type Event = (LocalNs, Option<Rank>);

    fn input(&mut self, now: LocalNs, input: Input<'_, Nanos>, out: &mut Out<Self::Event>) -> More {
        match input {
            Input::Boot { incarnation } => {
                (self.incarnation, self.next) = (incarnation, now + self.period)
            }
            Input::Tick => {
                out.notify((now, None));
                out.send(
                    Destination::One(self.peer),
                    Class::Control,
                    &now.0.to_le_bytes(),
                    Span::EMPTY,
                    None,
                );
                self.next += self.period;
            }
            Input::Command(period) => self.period = period,
            Input::Arrival(Arrival::Datagram(datagram)) => out.notify((now, Some(datagram.from))),
            Input::Arrival(_) => {}
        }
        More::No
    }

    fn deadline(&self) -> Option<LocalNs> {
        Some(self.next)
    }
}

fn beat(period: Nanos) -> impl FnMut(&mut SimWire) -> Heartbeat {
    move |wire| {
        let peer = Rank((wire.rank().0 + 1) % 2);
        Heartbeat { period, next: LocalNs(0), incarnation: 0, peer }
    }
}

/// Returns the true times of the ticks of rank 0 until `until`.
fn ticks(world: &mut World<Heartbeat, TestCarrier>, until: Picos) -> Vec<u64> {
    let mut ticks = Vec::new();
    let ended = world.run_until(until, &mut |reported| {
        if reported.rank == Rank(0) && reported.event.1.is_none() {
            ticks.push(reported.at.nanos().0 / 1_000);
        }
    });
    assert_eq!(ended, StopReason::InTime);
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
    world
        .network_mut()
        .wire(Rank(0))
        .processor
        .pause(Picos::from_micros(150), Picos::from_micros(200));
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
    world.crash(Rank(0), Survival::Nothing);
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
    world.run_until(Picos::from_micros(1_000), &mut |reported| readings.push(reported.now));
    let at = world.now();
    let [a, b] = [0, 1].map(|rank| world.network().end(Rank(rank)).clock().local(at));
    assert_ne!(a, b);
    assert!(readings.len() > 30);
}

#[test]
fn digest__equal_runs_are_equal_and_a_nanosecond_shows() {
    let digest = |input_cost, jitter| {
        let spec = spec(|host| (host.input_cost, host.jitter) = (input_cost, jitter));
        let mut world = World::new(network(2, &spec), beat(Nanos::from_micros(7)));
        world.run_until(Picos::from_micros(3_000), &mut |_| ());
        world.digest()
    };
    let jitter =
        Jitter { period: Picos::from_micros(100), length: Picos::from_micros(3), rare: 100 };
    let cost = Picos::from_nanos(100);
    assert_eq!(digest(cost, jitter), digest(cost, jitter));
    assert_ne!(digest(cost, jitter), digest(cost, Jitter::default()));
    assert_ne!(digest(cost, jitter), digest(cost + Picos(1_000), jitter));
}

#[test]
fn step__a_message_takes_its_senders_costs_the_link_and_the_latency() {
    let mut world = World::new(network(2, &spec(|_| ())), beat(Nanos::from_micros(100)));
    let mut heard = Vec::new();
    world.run_until(Picos::from_micros(150), &mut |reported| {
        if reported.event.1.is_some() {
            heard.push((reported.rank, reported.event.0, reported.at));
        }
    });
    // The tick 100 ns, the post 50 ns, eight bytes 640 ps, the latency; heard by the clock then,
    // reported one input later.
    heard.sort_unstable();
    let (now, at) = (LocalNs(102_150), Picos(102_250_640));
    assert_eq!(heard, [(Rank(0), now, at), (Rank(1), now, at)]);
}

#[test]
fn pause__what_an_event_asks_for_begins_behind_its_step() {
    let mut world = World::new(network(2, &spec(|_| ())), beat(Nanos::from_micros(100)));
    let mut at = Vec::new();
    world.run_until(Picos::from_micros(450), &mut |reported| {
        if reported.rank == Rank(0) && reported.event.1.is_none() {
            at.push(reported.at.nanos().0 / 1_000);
            reported.processor.pause(reported.at, Picos::from_micros(130));
        }
    });
    assert_eq!(at, [100, 230, 360]);
}

#[test]
fn disturb__a_node_that_was_summoned_and_is_still_paused_is_not_forgotten() {
    let mut world = World::new(network(1, &spec(|_| ())), beat(Nanos::from_micros(100)));
    assert_eq!(ticks(&mut world, Picos::from_micros(150)), [100]);
    world.crash(Rank(0), Survival::Nothing);
    world
        .network_mut()
        .wire(Rank(0))
        .processor
        .pause(Picos::from_micros(150), Picos::from_micros(100));
    world.restart(Rank(0), beat(Nanos::from_micros(40)));
    // It has neither run nor said when it wants to; only that it was started keeps it alive.
    world.disturb(Rank(0), |clock| clock.jump(Picos::from_micros(150), Nanos::from_micros(1)));
    let seen = ticks(&mut world, Picos::from_micros(400));
    assert!(seen.len() >= 3, "{seen:?}");
}

/// Sends its peer one byte when it boots, and has what arrives applied.
#[derive(Debug)]
struct Applying(Rank);

impl Engine for Applying {
    type Command = ();
    type Event = Status;

    fn input(&mut self, _: LocalNs, input: Input<'_, ()>, out: &mut Out<Status>) -> More {
        match input {
            Input::Boot { .. } if self.0 == Rank(1) => {
                let body = Span { region: RegionId(0), offset: 0, length: 1 };
                out.send(Destination::One(self.0), Class::Control, &[], body, None);
            }
            Input::Arrival(Arrival::Datagram(datagram)) => out.operate(Operation::Apply {
                of: datagram.body,
                from: datagram.from,
                answer: Span::EMPTY,
                token: Token(0),
            }),
            Input::Arrival(Arrival::Done { status, .. }) => out.notify(status),
            _ => {}
        }
        More::No
    }

    fn deadline(&self) -> Option<LocalNs> {
        None
    }
}

#[test]
fn set_applier__records_of_a_peer_are_applied_and_refused_without_one() {
    struct Refusing;
    impl Applier for Refusing {
        fn apply(&mut self, from: Rank, records: &[u8], _: &mut [u8]) -> Result<usize, Fault> {
            assert_eq!((from, records), (Rank(0), &[0][..]));
            Err(Fault::Denied)
        }
    }
    let refused = Status::Refused(RefusalReason::Operation(OperationKind::Apply));
    for (has_applier, expected) in [(true, Status::Failed(Fault::Denied)), (false, refused)] {
        let spec = spec(|_| ());
        let hosts = (0..2).map(DeviceId).collect();
        let bodies = ContentModel::Real;
        let config = NetworkConfig { hosts, bodies, disk: None, key: RandomKey::new(8) };
        let carrier = TestCarrier::new(2, Pace::from_rate(RATE), LATENCY);
        let mut world = World::new(Network::new(carrier, &spec, config), |wire| {
            wire.register(Bytes(1)).expect("room");
            Applying(Rank(1 - wire.rank().0))
        });
        if has_applier {
            world.set_applier(Rank(1), Box::new(Refusing));
        }
        let mut statuses = Vec::new();
        world.run_until(Picos::from_micros(100), &mut |reported| statuses.push(reported.event));
        assert_eq!(statuses, [expected]);
    }
}
