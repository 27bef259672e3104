//! Draws small networks and traffic that meet everything: other rates, small buffers, slow hosts,
//! lanes, loss, control.
//!
//! # Invariants
//! I1. Every network drawn can be built, and its routing is free of deadlock.

use clearway_proto::base::{BitsPerSec, Bytes, Class, RandomStream};

use crate::spec::{
    Arbiter, CongestionControl, Dcqcn, EdgeControl, FabricSpec, LossDomain, Routing, Service,
    Switching, Topology,
};
use crate::time::Picos;
use crate::traffic::{Arrivals, Timed, TrafficSource};

/// Returns one of `all`.
pub(crate) fn one_of<T: Copy>(stream: &mut RandomStream, all: &[T]) -> T {
    all[stream.below(all.len() as u64) as usize]
}

/// Returns a small network with everything that a train can meet: other rates, small buffers, slow
/// hosts, lanes.
pub fn network(stream: &mut RandomStream) -> FabricSpec {
    let tree = |children: &[u32], parents: &[u32]| Topology::FatTree {
        children: children.to_vec(),
        parents: parents.to_vec(),
        cables: vec![1; children.len()],
    };
    let dragonfly = Topology::Dragonfly {
        groups: 3,
        switches: 2,
        hosts_per_switch: 2,
        local_cables: 1,
        global_cables: 1,
    };
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
    spec.host.memory_rate =
        BitsPerSec::mega(one_of(stream, &[u64::MAX / 1_000_000, 80_000, 30_000]));
    spec.host.service = one_of(stream, &[Service::ByConnection, Service::InOrder]);
    spec.switch.switching = one_of(
        stream,
        &[Switching::CutThrough, Switching::StoreAndForward, Switching::TokenBucket],
    );
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
    what_is_lost(stream, &mut spec);
    spec
}

/// Draws what happens where there is no room ahead, and what is done against congestion.
fn what_is_lost(stream: &mut RandomStream, spec: &mut FabricSpec) {
    match stream.below(6) {
        0 => {
            spec.congestion_control = CongestionControl::Edge(EdgeControl {
                threshold: Bytes(16 << 10),
                sources: 2,
                notice_delay: Picos::from_nanos(500),
            })
        }
        1 => {
            spec.classes.loss =
                [LossDomain::Drops { queue: Bytes(one_of(stream, &[5000, 40_000])) }; 16];
            spec.arbitration.express = stream.below(3) as u16;
        }
        2 => {
            spec.links.iter_mut().for_each(|link| link.buffer = Bytes(200_000));
            spec.classes.loss = [LossDomain::Pauses; 16];
        }
        3 => {
            spec.links.iter_mut().for_each(|link| link.buffer = Bytes(200_000));
            spec.classes.loss = [LossDomain::Pauses; 16];
            spec.congestion_control = CongestionControl::Dcqcn(Dcqcn {
                mark_min: Bytes(8 << 10),
                mark_max: Bytes(64 << 10),
                mark_probability: 200_000,
                notice_interval: Picos::from_micros(5),
                increase_period: Picos::from_micros(20),
                increase: BitsPerSec::mega(400),
                gain_shift: 4,
            });
        }
        _ => {}
    }
}

/// Returns a source or two for each of `hosts` hosts.
pub fn traffic(stream: &mut RandomStream, hosts: u32) -> Vec<TrafficSource> {
    let mut sources = Vec::new();
    for from in 0..hosts {
        for _ in 0..1 + stream.below(2) {
            sources.push(TrafficSource {
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
