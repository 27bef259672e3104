//! Traces next to the same runs without them, and what they say of jams made on purpose.

use clearway_proto::base::{BitsPerSec, Class, RandomKey};

use super::{MessageId, MessageSelection, RootCause, Trace, WaitCause};
use crate::check::draw;
use crate::fabric::{EventSet, Fabric, FabricOptions, NoticeSet, Trains};
use crate::graph::DeviceId;
use crate::spec::{FabricSpec, Routing, Topology};
use crate::time::Picos;
use crate::{topology, traffic};

/// What a trace needs.
const PLAIN: FabricOptions = FabricOptions { trains: Trains::Off, ..DEFAULT };
const DEFAULT: FabricOptions = FabricOptions {
    queue: crate::fabric::EventQueueKind::Wheel,
    events: EventSet::Lazy,
    trains: Trains::On,
};

/// Checks that the causes of each hop add up to the wait, and hops follow each other.
fn check(trace: &Trace, seed: u64) {
    let mut before = trace.posted;
    for hop in &trace.hops {
        assert!(before <= hop.arrived && hop.arrived <= hop.started, "seed {seed}: {trace:?}");
        let sum = hop.waits.iter().fold(Picos::ZERO, |sum, wait| sum + wait.length);
        assert_eq!(sum, hop.started - hop.arrived, "seed {seed}: {hop:?}");
        before = hop.started;
    }
    assert!(before <= trace.tail && trace.tail <= trace.placed, "seed {seed}: {trace:?}");
}

#[test]
fn trace__watching_changes_nothing_and_waits_add_up() {
    let mut waited = 0;
    for seed in 0..60 {
        let mut stream = RandomKey::new(seed).purpose("network").stream();
        let spec = draw::network(&mut stream);
        let network = topology::build(&spec).expect("a sound network");
        let sources = draw::traffic(&mut stream, network.graph.hosts());
        let run = |options: FabricOptions, prepare: &dyn Fn(&mut Fabric)| {
            let mut fabric = Fabric::new(&spec, network.clone(), seed, options);
            prepare(&mut fabric);
            let last = Picos::from_micros(120);
            traffic::open(
                &mut fabric,
                &sources,
                Picos::from_micros(40),
                last,
                RandomKey::new(seed),
            );
            fabric.settle();
            fabric
        };
        let unwatched = run(DEFAULT, &|_| {});
        let ranked = run(DEFAULT, &|fabric| fabric.rank_slowest(MessageSelection::default()));
        assert_eq!(ranked.digest(), unwatched.digest(), "seed {seed}");
        let Some(slowest) = ranked.slowest().first().copied() else { continue };
        let traced = run(PLAIN, &|fabric| fabric.trace(slowest.id));
        assert_eq!(traced.digest(), unwatched.digest(), "seed {seed}");
        let trace = traced.traced().expect("it was posted");
        assert_eq!((trace.posted, trace.to), (slowest.posted, Some(slowest.to)), "seed {seed}");
        assert_eq!(trace.delivered, Some(slowest.posted + slowest.latency), "seed {seed}");
        assert!(!trace.hops.is_empty(), "seed {seed}");
        check(&trace, seed);
        waited += usize::from(trace.hops.iter().any(|hop| !hop.waits.is_empty()));
    }
    assert!(waited > 30, "{waited}");
}

/// Returns two switches of four hosts; 1, 2, 6 and 7 send to 4 without end, 0 sends one packet to 5
/// after 200 us.
fn victim_under_incast() -> (Fabric, Trace) {
    let topology = Topology::TwoSwitch { hosts: 8, trunks: 1 };
    let spec = FabricSpec::plain(topology, Routing::Minimal, BitsPerSec::mega(100_000));
    let mut fabric = Fabric::new(&spec, topology::build(&spec).expect("two switches"), 1, PLAIN);
    fabric.trace(MessageId { from: DeviceId(0), number: 0 });
    for from in [1, 2, 6, 7] {
        fabric.post(
            Picos::ZERO,
            traffic::order(from, 4, Class::Bulk, 4 << 20, NoticeSet::Delivery, 0),
        );
    }
    fabric.post(
        Picos::from_micros(200),
        traffic::order(0, 5, Class::LowLatency, 4096, NoticeSet::Delivery, 1),
    );
    let mut notices = Vec::new();
    while fabric.next().is_some() {
        fabric.advance(Picos::NEVER, &mut notices);
    }
    let trace = fabric.traced().expect("posted");
    (fabric, trace)
}

#[test]
fn trace__the_chain_of_a_victim_ends_at_the_port_of_the_hot_host() {
    let (fabric, trace) = victim_under_incast();
    check(&trace, 0);
    let graph = fabric.graph();
    let way: Vec<u32> = trace.hops.iter().map(|hop| graph.channel(hop.channel).to.0).collect();
    assert_eq!((way.len(), way.last()), (3, Some(&5)), "{trace:?}");
    let longest = trace.hops[1].waits[0];
    let WaitCause::Credit(chain) = longest.cause else {
        panic!("it waits for room on the trunk: {trace:?}")
    };
    let chain = &trace.chains[chain];
    let ports: Vec<(u32, u32)> = chain
        .links
        .iter()
        .map(|link| (graph.channel(link.channel).from.0, graph.channel(link.channel).to.0))
        .collect();
    assert_eq!(ports, [(way[1], 4)], "the second switch's port to the hot host");
    assert_eq!(chain.root, RootCause::Busy);
    assert_eq!(chain.senders, 4);
    // Nearly all of the buffer waits for the hot host: but for the victim's packet and what is
    // under way.
    assert!(chain.links[0].bytes > 480 << 10, "{chain:?}");
}

#[test]
fn trace__in_its_host_a_message_waits_its_turn_behind_another() {
    let spec =
        FabricSpec::plain(Topology::Star { hosts: 3 }, Routing::Minimal, BitsPerSec::mega(100_000));
    let mut fabric = Fabric::new(&spec, topology::build(&spec).expect("a star"), 1, PLAIN);
    fabric.trace(MessageId { from: DeviceId(0), number: 1 });
    for tag in 0..2 {
        fabric.post(Picos(tag), traffic::order(0, 1, Class::Bulk, 8192, NoticeSet::Delivery, tag));
    }
    while fabric.next().is_some() {
        fabric.advance(Picos::NEVER, &mut Vec::new());
    }
    let trace = fabric.traced().expect("posted");
    check(&trace, 0);
    // Two packets of 4096 bytes at 80 ps go first: one was under way, the other has its turn; then
    // its own first one.
    let wait = |cause: WaitCause| {
        trace.hops[0].waits.iter().find(|wait| wait.cause == cause).map(|wait| wait.length)
    };
    let first = MessageId { from: DeviceId(0), number: 0 };
    assert_eq!(wait(WaitCause::Busy(first)), Some(Picos(4096 * 80 - 1)), "{trace:?}");
    assert_eq!(wait(WaitCause::Turn(None)), Some(Picos(4096 * 80)));
    assert_eq!(wait(WaitCause::Own), Some(Picos(4096 * 80)));
    assert_eq!(trace.to, Some(DeviceId(1)));
}

#[test]
fn slowest__the_list_is_ordered_and_keeps_to_those_it_was_asked_for() {
    let spec =
        FabricSpec::plain(Topology::Star { hosts: 4 }, Routing::Minimal, BitsPerSec::mega(100_000));
    let mut fabric = Fabric::new(&spec, topology::build(&spec).expect("a star"), 1, DEFAULT);
    fabric.rank_slowest(MessageSelection {
        class: Some(Class::LowLatency),
        hosts: vec![DeviceId(0), DeviceId(1)],
    });
    for tag in 0..15 {
        fabric.post(
            Picos(tag),
            traffic::order(0, 1, Class::LowLatency, 4096, NoticeSet::Delivery, tag),
        );
        fabric
            .post(Picos(tag), traffic::order(0, 1, Class::Bulk, 1 << 20, NoticeSet::Delivery, tag));
        fabric.post(
            Picos(tag),
            traffic::order(3, 1, Class::LowLatency, 1 << 20, NoticeSet::Delivery, tag),
        );
    }
    while fabric.next().is_some() {
        fabric.advance(Picos::NEVER, &mut Vec::new());
    }
    let numbers: Vec<u64> = fabric.slowest().iter().map(|slow| slow.id.number).collect();
    assert_eq!(numbers, [28, 26, 24, 22, 20, 18, 16, 14, 12, 10]);
    assert!(fabric.slowest().is_sorted_by(|a, b| a.latency >= b.latency));
}
