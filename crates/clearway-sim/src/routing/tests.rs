//! Ways end where they should, within their bounds, without circles.

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use proptest::prelude::*;

use super::proof::{collect, prove};
use super::selection::mix;
use super::*;
use crate::spec::{FabricSpec, Topology};
use crate::topology::build;
use crate::topology::sample::{
    any_dragonfly, any_graph, any_tree, dragonfly, explicit, fat_tree, ring, spec, xc,
};

/// Queues made up from a seed, except those that are given; channels that are down.
#[derive(Default)]
struct TestBacklog {
    seed: u32,
    bytes: BTreeMap<ChannelId, u64>,
    down: BTreeSet<ChannelId>,
}

impl Backlog for TestBacklog {
    fn bytes(&self, channel: ChannelId) -> u64 {
        let made_up = if self.seed == 0 { 0 } else { u64::from(mix(channel.0, self.seed) >> 15) };
        self.bytes.get(&channel).copied().unwrap_or(made_up)
    }

    fn up(&self, channel: ChannelId) -> bool {
        !self.down.contains(&channel)
    }

    fn intact(&self) -> bool {
        self.down.is_empty()
    }
}

/// Returns the way of one packet with its steps. `None`: dropped.
fn follow(
    network: &RoutedGraph,
    from: u32,
    to: u32,
    seed: u32,
    queues: &TestBacklog,
) -> Option<Vec<(ChannelId, u8)>> {
    follow_changing(network, from, to, seed, [queues, queues])
}

/// Returns the same where the packet stays at each device until the queues are others, and asks
/// again. Checks what holds for all ways.
fn follow_changing(
    network: &RoutedGraph,
    from: u32,
    to: u32,
    seed: u32,
    [queues, later]: [&TestBacklog; 2],
) -> Option<Vec<(ChannelId, u8)>> {
    let graph = &network.graph;
    let (source, target) = (DeviceId(from), DeviceId(to));
    let (flow_hash, packet_hash) = (mix(from, to), mix(seed, mix(from, to)));
    let mut transit =
        Transit { source, target, flow_hash, packet_hash, via: Transit::DIRECT, hops: 0, step: 0 };
    let (mut at, mut way, mut last) = (source, Vec::new(), 0);
    while at != target {
        let first = network.router.next(graph, at, &mut transit, queues)?;
        let mut again = transit;
        assert_eq!(
            network.router.next(graph, at, &mut again, queues),
            Some(first),
            "asked again at {at:?}"
        );
        assert_eq!(again, transit);
        let channel = network.router.next(graph, at, &mut transit, later)?;
        assert!(ports(graph, at).contains(&channel) && later.up(channel));
        assert!(transit.step >= last && transit.step < network.router.steps(), "{transit:?}");
        last = transit.step;
        way.push((channel, last));
        assert!(way.len() < 64, "{}", labels(graph, &way));
        at = graph.channel(channel).to;
        assert!(at == target || !graph.is_host(at), "{}", labels(graph, &way));
    }
    Some(way)
}

fn ports(graph: &Graph, device: DeviceId) -> Vec<ChannelId> {
    graph.ports(device).map(ChannelId).collect()
}

fn labels(graph: &Graph, way: &[(ChannelId, u8)]) -> String {
    way.iter().map(|(channel, step)| format!("{} @{step}; ", graph.label(*channel))).collect()
}

fn network(topology: Topology, routing: Routing) -> RoutedGraph {
    build(&spec(topology, routing)).unwrap()
}

fn pairs(graph: &Graph) -> impl Iterator<Item = (u32, u32)> {
    let hosts = graph.hosts();
    (0..hosts).flat_map(move |a| (0..hosts).filter(move |&b| a != b).map(move |b| (a, b)))
}

/// Distances in channels to `to`, found without routing; hosts forward nothing.
fn distances(graph: &Graph, to: DeviceId) -> Vec<usize> {
    let mut distance = vec![usize::MAX; graph.devices() as usize];
    distance[to.index()] = 0;
    let mut reached = VecDeque::from([to]);
    while let Some(device) = reached.pop_front() {
        for next in ports(graph, device).into_iter().map(|channel| graph.channel(channel).to) {
            if distance[next.index()] == usize::MAX {
                distance[next.index()] = distance[device.index()] + 1;
                if !graph.is_host(next) {
                    reached.push_back(next);
                }
            }
        }
    }
    distance
}

/// Channels of a way at most: those of hosts, and what each leg inside a group and each cable
/// between groups adds.
fn longest(spec: &FabricSpec) -> usize {
    let detours = match spec.routing {
        Routing::Valiant => 1,
        Routing::Adaptive { detour, .. } => usize::from(detour > 0),
        _ => 0,
    };
    let grid = |groups: u32, dimensions: usize| match groups {
        1 => 2 + dimensions * (1 + detours),
        2 => 2 + (2 * dimensions + 1).max(dimensions * (1 + detours)),
        _ => 2 + (2 + detours) * dimensions + 1 + detours,
    };
    match &spec.topology {
        Topology::Star { .. } => 2,
        Topology::TwoSwitch { .. } => 3,
        Topology::FatTree { children, .. } => 2 * children.len(),
        Topology::DragonflyXc { groups, rows, columns, .. } => {
            grid(*groups, usize::from(*rows > 1) + usize::from(*columns > 1))
        }
        Topology::Dragonfly { groups, switches, .. } => grid(*groups, usize::from(*switches > 1)),
        Topology::Explicit { .. } => unreachable!("distances are computed"),
    }
}

proptest! {
    #[test]
    fn next__in_trees_every_pair_arrives_over_a_shortest_way(spec in any_tree(), seed in 1..u32::MAX) {
        let network = build(&spec).unwrap();
        let queues = TestBacklog { seed, ..TestBacklog::default() };
        for (from, to) in pairs(&network.graph) {
            let way = follow(&network, from, to, seed, &queues).unwrap();
            prop_assert!(way.len() <= longest(&spec));
            let shown = network.router.way(&network.graph, DeviceId(from), DeviceId(to));
            let shortest = distances(&network.graph, DeviceId(to))[from as usize];
            prop_assert_eq!((way.len(), shown.len()), (shortest, shortest));
            if spec.routing == Routing::DestinationModulo && !matches!(spec.topology, Topology::TwoSwitch { .. }) {
                prop_assert_eq!(way.iter().map(|hop| hop.0).collect::<Vec<_>>(), shown);
            }
        }
    }

    #[test]
    fn next__in_dragonflies_every_pair_arrives_within_the_bound(spec in any_dragonfly(), seed in 1..u32::MAX) {
        let network = build(&spec).unwrap();
        let queues = TestBacklog { seed, ..TestBacklog::default() };
        for (from, to) in pairs(&network.graph) {
            let way = follow(&network, from, to, seed, &queues).unwrap();
            prop_assert!(way.len() <= longest(&spec), "{}", labels(&network.graph, &way));
            let shown = network.router.way(&network.graph, DeviceId(from), DeviceId(to));
            prop_assert!(shown.len() <= longest(&spec));
            let direct = !matches!(spec.routing, Routing::Valiant | Routing::Adaptive { detour: 1.., .. });
            prop_assert!(!direct || shown.len() <= way.len(), "{}", labels(&network.graph, &way));
        }
    }

    #[test]
    fn next__in_any_graph_every_pair_arrives_over_a_shortest_way(spec in any_graph(), seed in 1..u32::MAX) {
        let network = build(&spec).unwrap();
        let queues = TestBacklog { seed, ..TestBacklog::default() };
        for (from, to) in pairs(&network.graph) {
            let way = follow(&network, from, to, seed, &queues).unwrap();
            let shown = network.router.way(&network.graph, DeviceId(from), DeviceId(to));
            let shortest = distances(&network.graph, DeviceId(to))[from as usize];
            prop_assert_eq!((way.len(), shown.len()), (shortest, shortest));
        }
    }

    #[test]
    fn proof__every_shape_is_free_of_deadlock(spec in prop_oneof![any_tree(), any_dragonfly(), any_graph()]) {
        let proof = prove_deadlock_free(&build(&spec).unwrap());
        prop_assert!(proof.is_ok_and(|proof| proof.scope == ProofScope::Every));
    }

    #[test]
    fn proof__covers_every_way_that_packets_take(
        spec in prop_oneof![any_tree(), any_dragonfly(), any_graph()],
        seed in 1..u32::MAX,
    ) {
        let network = build(&spec).unwrap();
        let graph = &network.graph;
        let (all, _) = collect(&network, |step| step);
        let queues = TestBacklog { seed, ..TestBacklog::default() };
        let later = TestBacklog { seed: !seed | 1, ..TestBacklog::default() };
        // The proof walks the first of parallel cables and the first host of each switch.
        let first = |channel: ChannelId| {
            let it = graph.channel(channel);
            ports(graph, it.from).into_iter().find(|&other| graph.channel(other).to == it.to).unwrap()
        };
        let parallel = !matches!(spec.topology, Topology::Explicit { .. });
        for (from, to) in pairs(graph) {
            let way = follow_changing(&network, from, to, seed, [&queues, &later]).unwrap();
            for pair in way[1..way.len() - 1].windows(2) {
                let same = |hop: (ChannelId, u8)| (if parallel { first(hop.0) } else { hop.0 }, hop.1);
                prop_assert!(all.has(same(pair[0]), same(pair[1])), "{}", labels(graph, &way));
            }
        }
    }

    #[test]
    fn next__with_anything_down_packets_arrive_or_are_dropped(
        spec in prop_oneof![any_tree(), any_dragonfly(), any_graph()],
        seed in 1..u32::MAX,
        share in 1..32u32,
    ) {
        let network = build(&spec).unwrap();
        let channels = 0..network.graph.channels().len() as u32;
        let down = channels.filter(|n| mix(*n, seed) % 32 < share).map(ChannelId).collect();
        let queues = TestBacklog { seed, down, ..TestBacklog::default() };
        for (from, to) in pairs(&network.graph) {
            let way = follow(&network, from, to, seed, &queues);
            prop_assert!(way.is_none_or(|way| way.len() < 40));
        }
    }

    #[test]
    fn tree__covers_each_member_once(
        spec in prop_oneof![any_tree(), any_dragonfly(), any_graph()],
        from in any::<prop::sample::Index>(),
        chosen in any::<u64>(),
    ) {
        let network = build(&spec).unwrap();
        let hosts = network.graph.hosts();
        let from = DeviceId(from.index(hosts as usize) as u32);
        let members: Vec<_> = (0..hosts).filter(|n| chosen >> (n % 64) & 1 == 1).map(DeviceId).collect();
        let copies = tree(&network, from, &members);
        let (mut entered, mut reached) = (BTreeMap::new(), vec![(from, 0)]);
        while let Some((at, step)) = reached.pop() {
            for branch in copies.branches(at) {
                let next = network.graph.channel(branch.channel).to;
                prop_assert_eq!(network.graph.channel(branch.channel).from, at);
                prop_assert!(branch.step >= step && branch.step < network.router.steps());
                prop_assert!(entered.insert(next, branch.channel).is_none(), "{:?} twice", next);
                reached.push((next, branch.step));
            }
        }
        let ends: Vec<_> = entered.keys().copied().filter(|&device| network.graph.is_host(device)).collect();
        let wanted: Vec<_> = members.into_iter().filter(|&member| member != from).collect();
        prop_assert_eq!(ends, wanted);
    }
}

#[test]
fn tree__in_a_fat_tree_one_copy_goes_up() {
    let network = network(fat_tree(&[4, 4, 4], &[1, 4, 4], &[1, 1, 1]), Routing::DestinationModulo);
    let channels = |members: &[DeviceId]| {
        let copies = tree(&network, DeviceId(0), members);
        (0..network.graph.devices())
            .map(|device| copies.branches(DeviceId(device)).len())
            .sum::<usize>()
    };
    // One channel into each of 63 hosts, 16 leaves, one middle switch of each of 4 pods, one spine.
    assert_eq!(channels(&(0..64).map(DeviceId).collect::<Vec<_>>()), 63 + 16 + 4 + 1);
    // Three up to the spine; then a middle switch, a leaf and a host for each, whose numbers would
    // ask for three spines.
    assert_eq!(channels(&[17, 34, 51].map(DeviceId)), 3 + 3 * 3);
}

#[test]
fn tree__enters_each_group_of_a_dragonfly_once() {
    let network = network(dragonfly([4, 4, 2, 1, 3]), Routing::Minimal);
    let graph = &network.graph;
    let group = |device: DeviceId| {
        if graph.is_host(device) { device.0 / 8 } else { (device.0 - graph.hosts()) / 4 }
    };
    for from in 0..graph.hosts() {
        let copies =
            tree(&network, DeviceId(from), &(0..graph.hosts()).map(DeviceId).collect::<Vec<_>>());
        let taken = (0..graph.devices()).flat_map(|device| copies.branches(DeviceId(device)));
        let ends = taken
            .map(|branch| graph.channel(branch.channel))
            .map(|it| (group(it.from), group(it.to)));
        assert_eq!(ends.filter(|(from, to)| from != to).count(), 3);
    }
}

#[test]
fn modulo__gives_each_target_one_way_down() {
    let network = network(fat_tree(&[3, 4, 2], &[1, 3, 2], &[1, 1, 2]), Routing::DestinationModulo);
    for to in 0..network.graph.hosts() {
        let mut down: BTreeMap<usize, BTreeSet<ChannelId>> = BTreeMap::new();
        for from in (0..network.graph.hosts()).filter(|&from| from != to) {
            let way = follow(&network, from, to, 7, &TestBacklog::default()).unwrap();
            for (place, (channel, _)) in way.iter().rev().take(way.len() / 2).enumerate() {
                down.entry(place).or_default().insert(*channel);
            }
        }
        assert!(down.values().all(|channels| channels.len() == 1), "{to}: {down:?}");
        assert_eq!(down.len(), 3);
    }
}

#[test]
fn modulo__shifts_share_no_channel_in_a_full_tree() {
    for topology in [
        fat_tree(&[4, 4], &[1, 4], &[1, 1]),
        fat_tree(&[2, 2, 4], &[1, 2, 2], &[1, 1, 1]),
        fat_tree(&[4, 3], &[1, 2], &[1, 2]),
        fat_tree(&[2, 2, 2], &[1, 2, 1], &[1, 1, 2]),
    ] {
        let network = network(topology, Routing::DestinationModulo);
        let hosts = network.graph.hosts();
        for shift in 1..hosts {
            let mut used = BTreeSet::new();
            for from in 0..hosts {
                for (channel, _) in
                    follow(&network, from, (from + shift) % hosts, 0, &TestBacklog::default())
                        .unwrap()
                {
                    assert!(
                        used.insert(channel),
                        "shift {shift}: {} twice",
                        network.graph.label(channel)
                    );
                }
            }
        }
    }
}

#[test]
fn minimal__is_the_same_for_all_packets_and_spray_is_not() {
    let ways = |routing| {
        let network = network(fat_tree(&[4, 4], &[1, 4], &[1, 1]), routing);
        (0..100)
            .map(|seed| follow(&network, 0, 15, seed, &TestBacklog::default()).unwrap())
            .collect::<BTreeSet<_>>()
            .len()
    };
    assert_eq!([ways(Routing::Minimal), ways(Routing::Ecmp), ways(Routing::Spray)], [1, 1, 4]);
}

#[test]
fn valiant__goes_by_each_other_group_and_by_each_router_of_its_own() {
    let network = network(xc([5, 2, 3, 1, 1, 2]), Routing::Valiant);
    let group = |device: DeviceId| (device.0 - network.graph.hosts()) / 6;
    let mut groups = BTreeSet::new();
    let mut routers = BTreeSet::new();
    for seed in 0..400 {
        let far = follow(&network, 0, 29, seed, &TestBacklog::default()).unwrap();
        let passed: Vec<u32> =
            far[..far.len() - 1].iter().map(|hop| group(network.graph.channel(hop.0).to)).collect();
        let between: BTreeSet<u32> =
            passed.iter().copied().filter(|g| ![0, 4].contains(g)).collect();
        assert_eq!(between.len(), 1, "{passed:?}");
        groups.extend(between);
        let near = follow(&network, 0, 4, seed, &TestBacklog::default()).unwrap();
        assert!(near.len() > 3, "{}", labels(&network.graph, &near));
        // The intermediate router is where the step rises.
        let turn = near.iter().find(|hop| hop.1 == 1).unwrap().0;
        routers.insert(network.graph.channel(turn).from.0 - network.graph.hosts());
    }
    assert_eq!(groups, BTreeSet::from([1, 2, 3]));
    assert_eq!(routers, BTreeSet::from([1, 2, 3, 5]));
}

#[test]
fn valiant__draws_both_cables_between_groups_apart() {
    let network = network(dragonfly([3, 3, 1, 1, 3]), Routing::Valiant);
    let graph = &network.graph;
    let group = |device: DeviceId| device.0.checked_sub(graph.hosts()).map(|router| router / 3);
    let between = |channel: &ChannelId| {
        group(graph.channel(*channel).from) != group(graph.channel(*channel).to)
    };
    let inner = |way: Vec<(ChannelId, u8)>| {
        way[1..way.len() - 1].iter().map(|hop| hop.0).filter(between).collect()
    };
    let used: BTreeSet<Vec<ChannelId>> = (0..300)
        .map(|seed| inner(follow(&network, 0, 8, seed, &TestBacklog::default()).unwrap()))
        .collect();
    assert!(used.iter().all(|cables| cables.len() == 2));
    assert_eq!(used.len(), 9);
}

#[test]
fn adaptive__weighs_backlog_by_length_and_asks_for_more_than_the_bias() {
    let network = network(
        dragonfly([1, 8, 1, 1, 1]),
        Routing::Adaptive { minimal: 1, detour: 6, bias: 1000 },
    );
    let graph = &network.graph;
    let direct = ports(graph, DeviceId(8))
        .into_iter()
        .find(|&c| graph.channel(c).to == DeviceId(9))
        .unwrap();
    let hops = |here: u64, elsewhere: u64| {
        let mut queues = TestBacklog::default();
        queues
            .bytes
            .extend(ports(graph, DeviceId(8)).into_iter().map(|channel| (channel, elsewhere)));
        queues.bytes.insert(direct, here);
        follow(&network, 0, 1, 5, &queues).unwrap().len()
    };
    assert_eq!([hops(0, 0), hops(1000, 0), hops(1001, 0)], [3, 3, 4]);
    assert_eq!([hops(3000, 1000), hops(3001, 1000)], [3, 4]);
}

#[test]
fn adaptive__takes_the_least_of_all_parents_where_all_are_asked() {
    let network = network(
        fat_tree(&[4, 4], &[1, 4], &[1, 1]),
        Routing::Adaptive { minimal: 4, detour: 0, bias: 0 },
    );
    let leaf = DeviceId(16);
    for free in ports(&network.graph, leaf).into_iter().skip(4) {
        let mut queues = TestBacklog::default();
        queues.bytes.extend(ports(&network.graph, leaf).into_iter().map(|channel| (channel, 1)));
        queues.bytes.insert(free, 0);
        assert_eq!(follow(&network, 0, 15, 3, &queues).unwrap()[1].0, free);
    }
}

#[test]
fn next__goes_round_a_cable_that_is_down_where_the_shape_has_another() {
    let shapes = [
        (fat_tree(&[2, 3, 2], &[1, 2, 2], &[1, 1, 1]), Routing::DestinationModulo),
        (fat_tree(&[3, 4], &[1, 3], &[1, 1]), Routing::Ecmp),
        (fat_tree(&[3, 4], &[1, 3], &[1, 1]), Routing::Adaptive { minimal: 2, detour: 0, bias: 0 }),
        (Topology::TwoSwitch { hosts: 6, trunks: 2 }, Routing::DestinationModulo),
        (dragonfly([3, 1, 2, 1, 2]), Routing::Minimal),
        (dragonfly([5, 1, 1, 1, 1]), Routing::Valiant),
        (dragonfly([4, 1, 1, 1, 1]), Routing::Adaptive { minimal: 1, detour: 1, bias: 0 }),
        (dragonfly([1, 5, 1, 1, 1]), Routing::Adaptive { minimal: 1, detour: 1, bias: 0 }),
        (xc([3, 1, 1, 2, 1, 3]), Routing::Spray),
    ];
    for (topology, routing) in shapes {
        let network = network(topology.clone(), routing);
        let graph = &network.graph;
        let cables =
            graph.channels().iter().filter(|c| !graph.is_host(c.from) && !graph.is_host(c.to));
        for cable in cables {
            let there = graph.channel(cable.reverse).reverse;
            let queues =
                TestBacklog { down: [there, cable.reverse].into(), ..TestBacklog::default() };
            for (from, to) in pairs(graph) {
                let way = follow(&network, from, to, from ^ to, &queues);
                assert!(
                    way.is_some(),
                    "{topology:?}: {} is down, n{from} to n{to}",
                    graph.label(there)
                );
            }
        }
    }
}

#[test]
fn next__is_none_when_every_way_is_down() {
    let network = network(Topology::TwoSwitch { hosts: 4, trunks: 2 }, Routing::Spray);
    let graph = &network.graph;
    let trunk = |c: &&ChannelId| !graph.is_host(graph.channel(**c).to);
    let down = ports(graph, DeviceId(4)).iter().filter(trunk).copied().collect();
    let queues = TestBacklog { down, ..TestBacklog::default() };
    assert_eq!(follow(&network, 0, 3, 1, &queues), None);
    assert!(follow(&network, 0, 1, 1, &queues).is_some());
}

#[test]
fn steps__are_as_many_as_the_shape_needs() {
    let ugal = Routing::Adaptive { minimal: 2, detour: 2, bias: 0 };
    let steps = |topology, routing| network(topology, routing).router.steps();
    assert_eq!(steps(fat_tree(&[2, 2, 2], &[1, 2, 2], &[1, 1, 1]), Routing::Spray), 1);
    assert_eq!(steps(Topology::Star { hosts: 5 }, Routing::DestinationModulo), 1);
    assert_eq!(
        [steps(xc([1, 2, 3, 1, 1, 1]), Routing::Minimal), steps(xc([1, 2, 3, 1, 1, 1]), ugal)],
        [2, 2]
    );
    assert_eq!(
        [steps(xc([3, 2, 3, 1, 1, 1]), Routing::Minimal), steps(xc([3, 2, 3, 1, 1, 1]), ugal)],
        [2, 3]
    );
    assert_eq!(
        [steps(dragonfly([1, 4, 1, 1, 1]), Routing::Ecmp), steps(dragonfly([1, 4, 1, 1, 1]), ugal)],
        [1, 2]
    );
    // A line waits for nothing; ways of two hops round a ring do, ways of one hop round a triangle
    // do not.
    assert_eq!(steps(explicit(5, [(0, 1), (1, 2), (2, 3), (3, 4)]), Routing::Minimal), 1);
    assert_eq!([steps(ring(3), Routing::Ecmp), steps(ring(5), Routing::Ecmp)], [1, 2]);
}

#[test]
fn proof__a_constant_step_is_refused_with_the_circle() {
    let ugal = Routing::Adaptive { minimal: 1, detour: 1, bias: 0 };
    let shapes = [
        (ring(5), Routing::Minimal),
        (dragonfly([3, 2, 1, 1, 1]), Routing::Minimal),
        (dragonfly([1, 3, 1, 1, 1]), Routing::Valiant),
        (xc([1, 2, 2, 1, 1, 1]), Routing::Minimal),
        (xc([3, 2, 2, 1, 1, 1]), ugal),
    ];
    for (topology, routing) in shapes {
        let network = network(topology.clone(), routing);
        assert!(prove_deadlock_free(&network).is_ok());
        assert!(prove(&network, |_| 0).is_err(), "{topology:?}");
    }
    let cycle = prove(&network(ring(5), Routing::Minimal), |_| 0).unwrap_err().to_string();
    assert!(
        cycle.starts_with("packets can wait for each other in a circle of channels: s"),
        "{cycle}"
    );
    assert_eq!(cycle.matches(" at step 0").count(), 5, "{cycle}");
}

#[test]
fn proof__the_last_of_three_steps_cannot_be_saved() {
    let network = network(dragonfly([4, 2, 1, 1, 1]), Routing::Valiant);
    assert_eq!(network.router.steps(), 3);
    assert!(prove(&network, |step| step.min(1)).is_err());
}

#[test]
fn proof__a_full_xc_group_is_walked_whole_and_a_big_machine_sampled() {
    let ugal = Routing::Adaptive { minimal: 2, detour: 2, bias: 8192 };
    let group = prove_deadlock_free(&network(xc([1, 6, 16, 4, 3, 1]), ugal)).unwrap();
    assert_eq!(group.scope, ProofScope::Every);
    let machine = prove_deadlock_free(&network(xc([8, 6, 16, 4, 3, 12]), ugal)).unwrap();
    assert!(matches!(machine.scope, ProofScope::Sampled(1_000_000..)));
}
