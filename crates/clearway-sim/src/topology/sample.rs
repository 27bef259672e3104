//! Small networks of every shape for tests.

use clearway_proto::base::BitsPerSec;
use proptest::prelude::*;

use crate::spec::{FabricSpec, Routing, Topology};

/// Returns the plain network of `topology`, at 100 Gb/s.
pub(crate) fn spec(topology: Topology, routing: Routing) -> FabricSpec {
    FabricSpec::plain(topology, routing, BitsPerSec::mega(100_000))
}

pub(crate) fn fat_tree(children: &[u32], parents: &[u32], cables: &[u32]) -> Topology {
    Topology::FatTree { children: children.into(), parents: parents.into(), cables: cables.into() }
}

/// Returns an XC dragonfly from [groups, rows, columns, hosts, black, blue].
pub(crate) fn xc(
    [groups, rows, columns, hosts_per_router, black_cables, blue_cables]: [u32; 6],
) -> Topology {
    Topology::DragonflyXc { groups, columns, rows, hosts_per_router, black_cables, blue_cables }
}

/// Returns a dragonfly from [groups, switches, hosts, local, global].
pub(crate) fn dragonfly(
    [groups, switches, hosts_per_switch, local_cables, global_cables]: [u32; 5],
) -> Topology {
    Topology::Dragonfly { groups, switches, hosts_per_switch, local_cables, global_cables }
}

/// Switches `s0`, ... with a host each, joined as `edges` say.
pub(crate) fn explicit(switches: u32, edges: impl IntoIterator<Item = (u32, u32)>) -> Topology {
    let name = |kind: &str, n: u32| format!("{kind}{n}");
    let hosts = (0..switches).map(|n| (name("h", n), name("s", n), 0));
    let trunks = edges.into_iter().map(|(a, b)| (name("s", a), name("s", b), 1));
    Topology::Explicit {
        hosts: (0..switches).map(|n| name("h", n)).collect(),
        switches: (0..switches).map(|n| name("s", n)).collect(),
        cables: hosts.chain(trunks).collect(),
    }
}

/// Returns a ring of switches with a host each.
pub(crate) fn ring(switches: u32) -> Topology {
    explicit(switches, (0..switches).map(move |n| (n, (n + 1) % switches)))
}

const DIRECT: [Routing; 4] = [
    Routing::Minimal,
    Routing::Ecmp,
    Routing::Spray,
    Routing::Adaptive { minimal: 2, detour: 0, bias: 0 },
];

/// Returns any tree, star or pair of switches with a routing that works on it.
pub(crate) fn any_tree() -> impl Strategy<Value = FabricSpec> {
    let level = (1..4u32, 1..4u32, 1..3u32);
    let trees = prop::collection::vec(level, 1..4).prop_map(|mut levels| {
        levels[0].1 = 1;
        let part = |of: fn(&(u32, u32, u32)) -> u32| levels.iter().map(of).collect::<Vec<_>>();
        fat_tree(&part(|l| l.0), &part(|l| l.1), &part(|l| l.2))
    });
    let shapes = prop_oneof![
        4 => trees,
        1 => (1..9u32).prop_map(|hosts| Topology::Star { hosts }),
        1 => (1..5u32, 1..4u32).prop_map(|(half, trunks)| Topology::TwoSwitch { hosts: half * 2, trunks }),
    ];
    let routing = prop::sample::select([&DIRECT[..], &[Routing::DestinationModulo]].concat());
    with_rails(shapes, routing)
}

/// Returns any dragonfly of either kind with a routing that works on it.
pub(crate) fn any_dragonfly() -> impl Strategy<Value = FabricSpec> {
    let grids = (1..5u32, 1..4u32, 1..4u32, 1..3u32, 1..3u32, 1..4u32);
    let flat = (1..5u32, 1..6u32, 1..3u32, 1..3u32, 1..4u32);
    let shapes = prop_oneof![
        grids.prop_map(|(groups, rows, columns, hosts, black, blue)| xc([
            groups, rows, columns, hosts, black, blue
        ])),
        flat.prop_map(|(groups, switches, hosts, local, global)| dragonfly([
            groups, switches, hosts, local, global
        ])),
    ];
    let detours = [Routing::Valiant, Routing::Adaptive { minimal: 2, detour: 2, bias: 4096 }];
    with_rails(shapes, prop::sample::select([&DIRECT[..], &detours[..]].concat()))
}

/// Returns any connected graph of up to ten switches with a host each, parallel cables and hosts at
/// several switches included.
pub(crate) fn any_graph() -> impl Strategy<Value = FabricSpec> {
    let spots = |count| {
        prop::collection::vec(
            (any::<prop::sample::Index>(), any::<prop::sample::Index>()),
            0..count,
        )
    };
    let spanning = prop::collection::vec(any::<prop::sample::Index>(), 0..9);
    let shapes = (spanning, spots(12), spots(4)).prop_map(|(spanning, more, second)| {
        let switches = spanning.len() as u32 + 1;
        let tree =
            spanning.iter().enumerate().map(|(n, below)| (n as u32 + 1, below.index(n + 1) as u32));
        let place = |index: &prop::sample::Index| index.index(switches as usize) as u32;
        let extra = more.iter().map(|(a, b)| (place(a), place(b))).filter(|(a, b)| a != b);
        let mut topology = explicit(switches, tree.chain(extra).collect::<Vec<_>>());
        if let Topology::Explicit { cables, .. } = &mut topology {
            cables.extend(
                second.iter().map(|(a, b)| (format!("h{}", place(a)), format!("s{}", place(b)), 0)),
            );
        }
        topology
    });
    (shapes, prop::sample::select(&DIRECT[..]))
        .prop_map(|(topology, routing)| spec(topology, routing))
}

fn with_rails(
    shapes: impl Strategy<Value = Topology>,
    routing: impl Strategy<Value = Routing>,
) -> impl Strategy<Value = FabricSpec> {
    (shapes, routing, 1..3u32).prop_map(|(topology, routing, rails)| {
        let mut spec = spec(topology, routing);
        spec.host.rails = rails;
        spec
    })
}
