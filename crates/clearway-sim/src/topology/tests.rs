//! Counts of each shape against closed formulas, and what is refused.

use std::collections::{BTreeMap, BTreeSet};

use clearway_proto::base::RandomKey;
use proptest::prelude::*;

use super::sample::{
    any_dragonfly, any_graph, any_tree, dragonfly, explicit, fat_tree, ring, spec, xc,
};
use super::*;
use crate::graph::{ChannelId, DeviceId};

fn graph(topology: Topology) -> Graph {
    build(&spec(topology, Routing::Minimal)).unwrap().graph
}

/// Returns the peers of `device` and how many cables lead to each.
fn peers(graph: &Graph, device: DeviceId) -> BTreeMap<DeviceId, u32> {
    let mut peers = BTreeMap::new();
    graph
        .ports(device)
        .for_each(|port| *peers.entry(graph.channel(ChannelId(port)).to).or_default() += 1);
    peers
}

/// Cables whose ends fall on both sides.
fn cut(graph: &Graph, inside: impl Fn(DeviceId) -> bool) -> usize {
    graph.channels().iter().filter(|channel| inside(channel.from) && !inside(channel.to)).count()
}

fn find(graph: &Graph, name: &str) -> DeviceId {
    (0..graph.devices()).map(DeviceId).find(|&device| graph.name(device) == name).unwrap()
}

fn links(graph: &Graph, device: DeviceId) -> [u32; 7] {
    let mut count = [0; 7];
    graph
        .ports(device)
        .for_each(|port| count[usize::from(graph.channel(ChannelId(port)).link)] += 1);
    count
}

proptest! {
    #[test]
    fn build__what_was_estimated_comes_out(spec in prop_oneof![any_tree(), any_dragonfly(), any_graph()]) {
        let size = estimate(&spec).unwrap();
        let network = build(&spec).unwrap();
        let graph = &network.graph;
        prop_assert_eq!(size.hosts, u128::from(graph.hosts()));
        prop_assert_eq!(size.hosts, u128::from(spec.topology.hosts()));
        prop_assert_eq!(size.devices, u128::from(graph.devices()));
        prop_assert_eq!(size.channels, graph.channels().len() as u128);
        prop_assert!(size.lanes >= size.channels * u128::from(network.router.steps()));
        let names: BTreeSet<&str> = (0..graph.devices()).map(|device| graph.name(DeviceId(device))).collect();
        prop_assert_eq!(names.len() as u32, graph.devices());
    }

    #[test]
    fn for_hosts__is_the_smallest_that_holds_them(spec in prop_oneof![any_tree(), any_dragonfly()], hosts in 1..500u32) {
        let grown = spec.topology.for_hosts(hosts);
        prop_assert!(grown.hosts() >= hosts);
        prop_assert_eq!(&grown.for_hosts(grown.hosts()), &grown);
        // One less at the top holds fewer.
        let mut less = grown.clone();
        match &mut less {
            Topology::Star { hosts } => *hosts -= 1,
            Topology::TwoSwitch { hosts, .. } => *hosts -= 2,
            Topology::FatTree { children, .. } => *children.last_mut().unwrap() -= 1,
            Topology::DragonflyXc { groups, .. } | Topology::Dragonfly { groups, .. } => *groups -= 1,
            Topology::Explicit { .. } => unreachable!("not drawn"),
        }
        prop_assert!(less.hosts() < hosts);
    }

    #[test]
    fn node_map__gives_each_host_its_share(hosts in 1..40u32, ranks in 0..100u32, seed in any::<u64>()) {
        let map = node_map(hosts, ranks, RandomKey::new(seed));
        let mut count = vec![0; hosts as usize];
        map.iter().for_each(|host| count[host.index()] += 1);
        prop_assert_eq!(map.len() as u32, ranks);
        prop_assert!(count.iter().all(|&n| n == ranks / hosts || n == ranks.div_ceil(hosts)));
    }
}

#[test]
fn node_map__is_another_for_each_key_and_the_same_for_one() {
    let map = |seed| node_map(384, 384, RandomKey::new(seed));
    assert_eq!(map(1), map(1));
    assert_ne!(map(1), map(2));
    let moved = map(1).iter().enumerate().filter(|(rank, host)| *rank != host.index()).count();
    assert!(moved > 370, "{moved}");
}

#[test]
fn fat_tree__edr_of_648_hosts_has_full_bisection() {
    let graph = graph(fat_tree(&[18, 36], &[1, 18], &[1, 1]));
    assert_eq!((graph.hosts(), graph.devices()), (648, 648 + 36 + 18));
    assert_eq!(graph.channels().len(), 2 * (648 + 36 * 18));
    let leaf = find(&graph, "leaf35");
    assert_eq!(peers(&graph, leaf)[&DeviceId(647)], 1);
    assert_eq!(peers(&graph, find(&graph, "spine17")).len(), 36);
    // Half of the leaves and half of the spines on each side: 18 x 9 cables up and as many down.
    let inside = |device: DeviceId| match device.0 {
        0..324 => true,
        324..648 => false,
        leaf @ 648..684 => leaf < 648 + 18,
        spine => spine < 684 + 9,
    };
    assert_eq!(cut(&graph, inside), 324);
}

#[test]
fn fat_tree__over_subscription_and_parallel_cables_are_as_asked() {
    // 33 hosts to 7 uplinks, as Narval's leaves have; here 3:1 with the uplinks in pairs.
    let graph = graph(fat_tree(&[12, 4], &[1, 2], &[1, 2]));
    let leaf = find(&graph, "leaf0");
    assert_eq!(links(&graph, leaf)[..2], [12, 4]);
    assert_eq!(peers(&graph, leaf)[&find(&graph, "spine1")], 2);
    assert_eq!(links(&graph, find(&graph, "spine0"))[..2], [0, 8]);
}

#[test]
fn fat_tree__levels_follow_the_formula_of_xgft() {
    // XGFT(3; 4,3,2; 1,2,3): level l has (children above) * (parents up to l) switches.
    let graph = graph(fat_tree(&[4, 3, 2], &[1, 2, 3], &[1, 1, 1]));
    let count = |part: &str| {
        (0..graph.devices()).filter(|&d| graph.name(DeviceId(d)).contains(part)).count()
    };
    assert_eq!(
        [graph.hosts() as usize, count("leaf"), count("mid"), count("spine")],
        [24, 6, 4, 6]
    );
    assert_eq!(peers(&graph, find(&graph, "pod1mid0")).len(), 3 + 3);
    assert_eq!(peers(&graph, find(&graph, "spine5")).len(), 2);
}

#[test]
fn xc__a_group_of_96_routers_has_15_green_and_5_times_3_black_ports_each() {
    let graph = graph(xc([1, 6, 16, 4, 3, 1]));
    assert_eq!((graph.hosts(), graph.devices()), (384, 480));
    for router in (384..480).map(DeviceId) {
        let [host, _, green, black, blue, ..] = links(&graph, router);
        assert_eq!([host, green, black, blue], [4, 15, 15, 0]);
    }
    let router = find(&graph, "g0c2s5");
    let joined = peers(&graph, router);
    assert_eq!((joined[&find(&graph, "g0c2s15")], joined[&find(&graph, "g0c5s5")]), (1, 3));
    assert!(!joined.contains_key(&find(&graph, "g0c3s6")));
    // Three chassis against three: 16 columns x 9 pairs x 3 cables.
    assert_eq!(cut(&graph, |d| if d.0 < 384 { d.0 < 192 } else { d.0 < 432 }), 16 * 9 * 3);
}

#[test]
fn dragonflies__cables_between_groups_are_spread_evenly() {
    for topology in [xc([5, 2, 3, 2, 1, 4]), dragonfly([7, 4, 2, 2, 3])] {
        let (groups, routers, blue) = match topology {
            Topology::DragonflyXc { groups, blue_cables, .. } => (groups, 6, blue_cables),
            _ => (7, 4, 3),
        };
        let graph = graph(topology);
        let group = |device: DeviceId| (device.0 - graph.hosts()) / routers;
        let mut between: BTreeMap<(u32, u32), u32> = BTreeMap::new();
        let mut ends = vec![0; (graph.devices() - graph.hosts()) as usize];
        for channel in
            graph.channels().iter().filter(|c| !graph.is_host(c.from) && !graph.is_host(c.to))
        {
            if group(channel.from) != group(channel.to) {
                *between.entry((group(channel.from), group(channel.to))).or_default() += 1;
                ends[(channel.from.0 - graph.hosts()) as usize] += 1;
            }
        }
        assert_eq!(between.len() as u32, groups * (groups - 1));
        assert!(between.values().all(|&cables| cables == blue), "{between:?}");
        let (least, most) = (ends.iter().min().unwrap(), ends.iter().max().unwrap());
        assert!(most - least <= 1, "{ends:?}");
    }
}

#[test]
fn dragonfly__a_group_is_joined_all_to_all() {
    let graph = graph(dragonfly([3, 5, 2, 2, 1]));
    let joined = peers(&graph, find(&graph, "g1s2"));
    for other in [0, 1, 3, 4] {
        assert_eq!(joined[&find(&graph, &format!("g1s{other}"))], 2);
    }
    assert_eq!(joined.keys().filter(|device| graph.is_host(**device)).count(), 2);
}

#[test]
fn two_switch__has_half_of_the_hosts_on_each_side_and_the_trunk_between() {
    let graph = graph(Topology::TwoSwitch { hosts: 6, trunks: 3 });
    let (left, right) = (find(&graph, "left"), find(&graph, "right"));
    assert_eq!(
        peers(&graph, left),
        BTreeMap::from([(DeviceId(0), 1), (DeviceId(1), 1), (DeviceId(2), 1), (right, 3)])
    );
    assert_eq!(links(&graph, right)[..2], [3, 3]);
}

#[test]
fn build__rails_are_parallel_cables_of_each_host() {
    let mut railed = spec(fat_tree(&[2, 2], &[1, 2], &[1, 1]), Routing::Minimal);
    railed.host.rails = 2;
    let graph = build(&railed).unwrap().graph;
    assert_eq!(peers(&graph, DeviceId(3)), BTreeMap::from([(find(&graph, "leaf1"), 2)]));
}

#[test]
fn for_hosts__of_machines_people_have() {
    assert_eq!(
        fat_tree(&[18, 36], &[1, 18], &[1, 1]).for_hosts(128),
        fat_tree(&[18, 8], &[1, 18], &[1, 1])
    );
    assert_eq!(xc([1, 6, 16, 4, 3, 12]).for_hosts(9_984), xc([26, 6, 16, 4, 3, 12]));
    assert_eq!(
        Topology::TwoSwitch { hosts: 2, trunks: 1 }.for_hosts(7),
        Topology::TwoSwitch { hosts: 8, trunks: 1 }
    );
    assert_eq!(ring(4).for_hosts(100), ring(4));
}

/// Returns the sentence that refuses `topology` under `routing`.
fn refusal(topology: Topology, routing: Routing) -> String {
    build(&spec(topology, routing)).unwrap_err().to_string()
}

#[test]
fn build__bad_shapes_are_refused_by_a_sentence() {
    let ugal = Routing::Adaptive { minimal: 2, detour: 2, bias: 0 };
    let blind = Routing::Adaptive { minimal: 0, detour: 1, bias: 0 };
    let cases = [
        (Topology::Star { hosts: 0 }, Routing::Minimal, "a star has no hosts; give at least 1"),
        (
            Topology::TwoSwitch { hosts: 7, trunks: 1 },
            Routing::Minimal,
            "a pair of switches cannot have 7 hosts, half each; give an even number, for example 8",
        ),
        (
            Topology::TwoSwitch { hosts: 8, trunks: 0 },
            Routing::Minimal,
            "a pair of switches has no trunks; give at least 1",
        ),
        (
            fat_tree(&[4, 4], &[1, 4], &[1]),
            Routing::Minimal,
            "a fat tree has children for 2 levels, parents for 2 and cables for 1; give each one entry a level",
        ),
        (
            fat_tree(&[], &[], &[]),
            Routing::Minimal,
            "a fat tree has no children on one level; give at least 1",
        ),
        (
            fat_tree(&[4, 4], &[2, 4], &[1, 1]),
            Routing::Minimal,
            "hosts of a fat tree have one leaf, but parents begins with 2; write 1 there, and ports of a host as rails",
        ),
        (
            xc([2, 1, 4, 1, 0, 0]),
            Routing::Minimal,
            "an XC dragonfly has no blue cables; give at least 1",
        ),
        (
            dragonfly([70_000, 1, 1, 1, 1]),
            Routing::Minimal,
            "a dragonfly has 70000 groups; at most 65535 can be numbered",
        ),
        (
            dragonfly([2, 2, 1, 1, 1]),
            Routing::DestinationModulo,
            "destination-modulo routing does not work on a dragonfly; minimal, ecmp, spray, valiant and adaptive do",
        ),
        (
            fat_tree(&[2, 2], &[1, 2], &[1, 1]),
            Routing::Valiant,
            "valiant routing does not work on a fat tree; minimal, destination-modulo, ecmp, spray and adaptive without detours do",
        ),
        (
            ring(4),
            ugal,
            "adaptive routing with detours does not work on an explicit graph; adaptive without detours, minimal, ecmp and spray do",
        ),
        (ring(4), blind, "adaptive routing has no shortest candidate; set minimal to 1 or more"),
        (
            explicit(4, [(0, 1), (2, 3)]),
            Routing::Minimal,
            "there is no way from s2 to s0; join them by a cable",
        ),
        (
            explicit(300, (1..300).map(|n| (n - 1, n))),
            Routing::Minimal,
            "s0 and s251 are more than 250 cables apart; add shorter ways",
        ),
        (
            explicit(2, [(0, 1), (1, 1)]),
            Routing::Minimal,
            "a cable goes from s1 to s1; both ends are the same device; remove it",
        ),
    ];
    for (topology, routing, sentence) in cases {
        assert_eq!(refusal(topology, routing), sentence);
    }
}

#[test]
fn build__bad_cables_and_names_are_refused_by_a_sentence() {
    type Cables = Vec<(String, String, u8)>;
    let with = |change: fn(&mut Vec<String>, &mut Cables)| {
        let mut topology = ring(3);
        if let Topology::Explicit { hosts, cables, .. } = &mut topology {
            change(hosts, cables);
        }
        refusal(topology, Routing::Minimal)
    };
    assert_eq!(
        with(|hosts, _| hosts.push("extra".to_owned())),
        "host extra has no cable; join it to a switch"
    );
    assert_eq!(
        with(|hosts, _| hosts[0] = "s1".to_owned()),
        "two devices are called s1; give one another name"
    );
    assert_eq!(
        with(|_, cables| cables[0].1 = "s9".to_owned()),
        "a cable goes from h0 to s9, but there is no device s9; name it among hosts or switches"
    );
    assert_eq!(
        with(|_, cables| cables[0].1 = "h1".to_owned()),
        "a cable goes from h0 to h1; both ends are hosts; put a switch between them"
    );
    assert_eq!(
        with(|_, cables| cables[4].2 = 7),
        "a cable goes from s1 to s2; its link is not among the links; name one that is"
    );
}

#[test]
fn build__a_link_that_is_missing_is_named() {
    let mut bare = spec(xc([2, 2, 2, 1, 1, 1]), Routing::Minimal);
    bare.links.retain(|link| link.role != LinkRole::Black);
    assert_eq!(
        build(&bare).unwrap_err().to_string(),
        "an XC dragonfly needs a link of role black; add one"
    );
    bare.topology = xc([2, 1, 2, 1, 1, 1]);
    assert!(build(&bare).is_ok());
}

#[test]
fn build__too_few_lanes_are_refused_with_the_number_that_fits() {
    let mut wide = spec(xc([3, 2, 2, 1, 1, 1]), Routing::Valiant);
    wide.classes.virtual_lanes = 11;
    let sentence = "routing needs 3 steps for each of 11 virtual lanes to be free of deadlock, 33 lanes together, \
                    but a channel has at most 32; use at most 10 virtual lanes";
    assert_eq!(build(&wide).unwrap_err().to_string(), sentence);
    wide.classes.virtual_lanes = 10;
    assert!(build(&wide).is_ok());
}

#[test]
fn estimate__absurd_sizes_are_refused_before_anything_is_allocated() {
    let billion = estimate(&spec(Topology::Star { hosts: 1_000_000_000 }, Routing::Minimal))
        .unwrap_err()
        .to_string();
    assert_eq!(
        billion,
        "a star of 1000000000 hosts takes 488281 MiB, more than the 4096 MiB that are allowed; 8388607 hosts of the same kind would fit"
    );
    let most = u32::MAX;
    for topology in [
        fat_tree(&[most; 9], &[1, most, most, most, most, most, most, most, most], &[most; 9]),
        xc([60_000, 200, 200, most, most, 60_000]),
        dragonfly([60_000, 60_000, most, most, 60_000]),
        Topology::TwoSwitch { hosts: most - 1, trunks: most },
    ] {
        let sentence = refusal(topology, Routing::Minimal);
        assert!(
            sentence.contains("more than the 4096 MiB that are allowed; use smaller switches"),
            "{sentence}"
        );
    }
}

#[test]
fn estimate__the_number_that_would_fit_does_and_one_more_does_not() {
    let fits = |spec: &FabricSpec| match estimate(spec) {
        Err(TopologyError::Memory { fitting: Some(hosts), .. }) => hosts,
        other => panic!("{other:?}"),
    };
    for topology in [
        Topology::Star { hosts: u32::MAX },
        fat_tree(&[18, 18, 9_000_000], &[1, 18, 18], &[1, 1, 1]),
        xc([50_000, 6, 16, 4, 3, 1]),
    ] {
        let mut spec = spec(topology, Routing::Minimal);
        let hosts = fits(&spec);
        spec.topology = spec.topology.for_hosts(hosts);
        assert_eq!(spec.topology.hosts(), hosts, "the number is a whole machine");
        assert!(estimate(&spec).is_ok());
        spec.topology = spec.topology.for_hosts(hosts + 1);
        assert!(estimate(&spec).is_err());
    }
}

#[test]
fn estimate__a_machine_of_9984_hosts_takes_less_than_200_mib() {
    let ugal = Routing::Adaptive { minimal: 2, detour: 2, bias: 8192 };
    let size = estimate(&spec(xc([26, 6, 16, 4, 3, 4]), ugal)).unwrap();
    assert_eq!(size.hosts, 9_984);
    assert!(size.bytes < 200 << 20, "{} MiB", size.bytes >> 20);
}
