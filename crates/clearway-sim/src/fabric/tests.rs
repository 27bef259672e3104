use clearway_proto::base::{BitsPerSec, Bytes, Class, RandomKey, RandomStream};

use super::{EventQueue, Events, Fabric, Options, Trains};
use crate::graph::ChannelId;
use crate::spec::{Arbiter, FabricSpec, Routing, Service, Switching, Topology};
use crate::time::Picos;
use crate::topology;
use crate::traffic::{self, Arrivals, Source, Timed};

/// All ways to compute, the plainest first.
const WAYS: [Options; 5] = [
    Options { queue: EventQueue::Heap, events: Events::Eager, trains: Trains::Off },
    Options { queue: EventQueue::Wheel, events: Events::Eager, trains: Trains::Off },
    Options { queue: EventQueue::Wheel, events: Events::Lazy, trains: Trains::Off },
    Options { queue: EventQueue::Heap, events: Events::Eager, trains: Trains::On },
    Options { queue: EventQueue::Wheel, events: Events::Lazy, trains: Trains::On },
];

fn one_of<T: Copy>(stream: &mut RandomStream, all: &[T]) -> T {
    all[stream.below(all.len() as u64) as usize]
}

/// A small network with everything that a train can meet: other rates, small buffers, slow hosts, lanes.
fn some_network(stream: &mut RandomStream) -> FabricSpec {
    let tree = |children: &[u32], parents: &[u32]| Topology::FatTree {
        children: children.to_vec(),
        parents: parents.to_vec(),
        cables: vec![1; children.len()],
    };
    let dragonfly =
        Topology::Dragonfly { groups: 3, switches: 2, hosts_per_switch: 2, local_cables: 1, global_cables: 1 };
    let shapes = [
        (Topology::Star { hosts: 5 }, Routing::Minimal),
        (Topology::TwoSwitch { hosts: 6, trunks: 1 }, Routing::Ecmp),
        (tree(&[4, 4], &[1, 2]), Routing::DestinationModulo),
        (tree(&[3, 3], &[1, 3]), Routing::Spray),
        (tree(&[3, 3], &[1, 3]), Routing::Adaptive { minimal: 2, detour: 0, bias: 0 }),
        (tree(&[2, 2, 3], &[1, 2, 2]), Routing::DestinationModulo),
        (dragonfly.clone(), Routing::Minimal),
        (dragonfly, Routing::Adaptive { minimal: 2, detour: 2, bias: 4096 }),
    ];
    let (topology, routing) = shapes[stream.below(shapes.len() as u64) as usize].clone();
    let mut spec = FabricSpec::plain(topology, routing, BitsPerSec::mega(100_000));
    for link in &mut spec.links {
        link.rate = BitsPerSec::mega(one_of(stream, &[100_000, 42_000, 90_909]));
        link.buffer = Bytes(one_of(stream, &[8192, 16_384, 65_536, 524_288]));
    }
    let header = stream.below(2) * 64;
    spec.packet.header = Bytes(header);
    spec.packet.payload = Bytes(4096 - header);
    spec.host.memory_rate = BitsPerSec::mega(one_of(stream, &[u64::MAX / 1_000_000, 80_000, 30_000]));
    spec.host.service = one_of(stream, &[Service::ByConnection, Service::InOrder]);
    spec.switch.switching = one_of(stream, &[Switching::CutThrough, Switching::StoreAndForward]);
    if stream.below(2) == 0 {
        spec.classes.virtual_lanes = 2;
        spec.classes.service_level = [0, 1, 0, 1, 1];
        spec.classes.lane_of_level[1] = 1;
    }
    if stream.below(3) == 0 {
        let mut rank = [0; 16];
        rank[1] = 1;
        spec.arbitration.switch = Arbiter::Strict { rank };
    }
    spec
}

fn some_traffic(stream: &mut RandomStream, hosts: u32) -> Vec<Source> {
    let mut sources = Vec::new();
    for from in 0..hosts {
        for _ in 0..1 + stream.below(2) {
            sources.push(Source {
                from,
                to: (stream.below(4) == 0).then_some((from + 1) % hosts),
                class: one_of(stream, &Class::ALL),
                bytes: one_of(stream, &[0, 100, 4096, 30_000, 65_536, 200_000]),
                interval: Picos::from_micros(1 + stream.below(10)),
                arrivals: one_of(stream, &[Arrivals::Poisson, Arrivals::Regular]),
                timed: Timed::From(Picos::ZERO),
            });
        }
    }
    sources
}

/// Everything that a run shows: digest, totals but for the events, statistics of all channels, messages delivered.
fn run(spec: &FabricSpec, sources: &[Source], options: Options, seed: u64) -> (u128, u64, String) {
    let network = topology::build(spec).expect("a sound network");
    let mut fabric = Fabric::new(spec, network, seed, options);
    let (until, last) = (Picos::from_micros(40), Picos::from_micros(120));
    let outcome = traffic::open(&mut fabric, sources, until, last, RandomKey::new(seed));
    fabric.settle();
    let channels = (0..fabric.graph().channels().len() as u32).map(ChannelId);
    let seen: Vec<_> =
        channels.map(|channel| (fabric.port_statistics(channel), fabric.lane_statistics(channel).to_vec())).collect();
    (fabric.digest(), outcome.delivered, format!("{seen:?}"))
}

#[test]
fn options__no_way_to_compute_changes_what_happens() {
    for seed in 0..60 {
        let mut stream = RandomKey::new(seed).purpose("network").stream();
        let spec = some_network(&mut stream);
        let hosts = topology::build(&spec).expect("a sound network").graph.hosts();
        let sources = some_traffic(&mut stream, hosts);
        let plainest = run(&spec, &sources, WAYS[0], seed);
        assert!(plainest.1 > 0);
        for options in &WAYS[1..] {
            let other = run(&spec, &sources, *options, seed);
            assert_eq!(plainest, other, "seed {seed}, {options:?}, {spec:?}");
        }
    }
}
