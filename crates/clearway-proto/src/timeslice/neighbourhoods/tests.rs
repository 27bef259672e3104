//! Trees, dragonflies, flat networks, and what noise makes of them.

use proptest::prelude::*;

use super::*;
use crate::base::{RandomKey, RandomStream};

/// What pings add to the least round trip of a pair.
#[derive(Clone, Copy, Debug)]
struct PingNoise {
    /// The most, in ns.
    most: u64,
    /// Pings in a quarter.
    pings: u32,
}

const EXACT: PingNoise = PingNoise { most: 0, pings: 1 };

/// Creates the table of `hosts` whose round trips are `distance`, but for pairs that `is_missing`
/// names.
fn table(
    hosts: u32,
    noise: PingNoise,
    stream: &mut RandomStream,
    distance: impl Fn(u32, u32) -> u64,
    is_missing: impl Fn(u32, u32) -> bool,
) -> RoundTripTable {
    let mut table = RoundTripTable::new(hosts);
    for a in 0..hosts {
        for b in (a + 1..hosts).filter(|b| !is_missing(a, *b)) {
            for ping in 0..QUARTERS * noise.pings as usize {
                // Most pings are quick, and some are late by far.
                let late = stream.below(noise.most + 1) * stream.below(noise.most + 1);
                let late = late / noise.most.max(1);
                table.add(b, a, ping % QUARTERS, Nanos(distance(a, b) + late));
            }
        }
    }
    table
}

fn exact(hosts: u32, distance: impl Fn(u32, u32) -> u64) -> NetworkParts {
    table(hosts, EXACT, &mut RandomKey::new(1).stream(), distance, |_, _| false).parts()
}

#[test]
fn parts__of_a_tree_are_what_lies_below_the_top() {
    // Twelve hosts: leaves of two, three leaves below each of two switches.
    let found = exact(12, |a, b| match (a / 2 == b / 2, a / 6 == b / 6) {
        (true, _) => 2_000,
        (false, true) => 2_600,
        (false, false) => 3_200,
    });
    assert_eq!(found.of_host, [0, 0, 0, 0, 0, 0, 1, 1, 1, 1, 1, 1]);
    assert_eq!((found.within, found.between), (Nanos(2_600), Nanos(3_200)));
    assert_eq!((found.count(), found.silent), (2, None));
    // Hosts of both sides in turn; parts have the numbers of their first hosts.
    let found = exact(8, |a, b| if a % 2 == b % 2 { 2_000 } else { 2_400 });
    assert_eq!(found.of_host, [0, 1, 0, 1, 0, 1, 0, 1]);
}

#[test]
fn parts__of_a_dragonfly_are_its_groups_although_some_hosts_of_two_are_near() {
    // Four groups of four routers with two hosts. One router of each pair of groups has the cable.
    let router = |host: u32| (host / 8, host / 2 % 4);
    let found = exact(32, |a, b| {
        let ((group, own), (other, theirs)) = (router(a), router(b));
        let hops = if group == other {
            u64::from(own != theirs)
        } else {
            // The cable lies at the router that has the number of the other group.
            2 + u64::from(own != other) + u64::from(theirs != group)
        };
        1_500 + 300 * hops
    });
    assert_eq!(found.count(), 4);
    assert!(found.of_host.iter().zip(0..).all(|(part, host): (_, u32)| *part == host / 8));
}

#[test]
fn parts__a_slow_host_is_no_part_and_does_not_hide_those_there_are() {
    let slow = |a: u32, b: u32| 500 * u64::from(a == 5 || b == 5);
    let flat = exact(8, |a, b| 2_000 + slow(a, b));
    assert_eq!((flat.count(), flat.within), (1, Nanos(2_000)), "one host stands not for all");
    let two = exact(8, |a, b| if a / 4 == b / 4 { 2_000 } else { 3_000 } + slow(a, b));
    assert_eq!(two.of_host, [0, 0, 0, 0, 1, 1, 1, 1]);
    // Half of the hosts are of a slower kind: the slow ones are no nearer to each other.
    let kinds = exact(8, |a, b| 2_000 + 400 * u64::from(a % 2) + 400 * u64::from(b % 2));
    assert_eq!(kinds.count(), 1);
}

#[test]
fn parts__hosts_that_do_not_answer_are_one_of_their_own() {
    let distance = |a: u32, b: u32| if a / 4 == b / 4 { 2_000 } else { 3_000 };
    let is_silent = |host: u32| host == 1 || host == 6;
    let mut stream = RandomKey::new(1).stream();
    let found = |distance: &dyn Fn(u32, u32) -> u64, stream: &mut RandomStream| {
        table(8, EXACT, stream, distance, |a, b| is_silent(a) || is_silent(b)).parts()
    };
    let parts = found(&distance, &mut stream);
    assert_eq!(parts.of_host, [0, 1, 0, 0, 2, 2, 1, 2]);
    assert_eq!((parts.silent, parts.between), (Some(1), Nanos(3_000)));
    let flat = found(&|_, _| 2_000, &mut stream);
    assert_eq!((flat.of_host, flat.silent), (vec![0, 1, 0, 0, 0, 0, 1, 0], Some(1)));
    // Two halves that do not reach each other: the first is taken for the network.
    let halves = table(6, EXACT, &mut stream, |_, _| 2_000, |a, b| a / 3 != b / 3).parts();
    assert_eq!((halves.of_host, halves.silent), (vec![0, 0, 0, 1, 1, 1], Some(1)));
}

#[test]
fn parts__few_hosts_are_one() {
    assert_eq!(RoundTripTable::new(0).parts(), NetworkParts::default());
    assert_eq!(exact(1, |_, _| 0).of_host, [0]);
    assert_eq!(exact(2, |_, _| 2_000).of_host, [0, 0]);
    assert_eq!(exact(3, |a, _| 2_000 + 9_000 * u64::from(a)).of_host, [0, 0, 0]);
    // So few distances can be of two kinds by chance.
    assert_eq!(exact(4, |a, b| if a / 2 == b / 2 { 1 } else { 9 }).count(), 1);
    assert_eq!(exact(6, |a, b| if a / 3 == b / 3 { 1 } else { 9 }).count(), 2);
    // Nobody answers.
    assert_eq!(RoundTripTable::new(3).parts().of_host, [0, 0, 0]);
}

#[test]
fn parts__pairs_that_are_near_among_many_that_are_not_are_no_parts() {
    // Sixteen hosts on twelve routers of a group: four routers have two.
    let pair = |host: u32| if host < 8 { host / 2 } else { host };
    assert_eq!(exact(16, |a, b| if pair(a) == pair(b) { 2_139 } else { 2_367 }).count(), 1);
    assert_eq!(exact(14, |a, b| if pair(a) == pair(b) { 2_139 } else { 2_367 }).count(), 10);
}

#[test]
fn parts__one_busy_host_does_not_hide_those_there_are() {
    // What a busy host answers is late, each time otherwise.
    let mut stream = RandomKey::new(1).stream();
    let mut table = table(
        8,
        EXACT,
        &mut stream,
        |a, b| if a / 4 == b / 4 { 2_000 } else { 3_000 } + 9_000 * u64::from(a == 0),
        |_, _| false,
    );
    for host in 1..8 {
        for quarter in 0..QUARTERS {
            let late = 200 + stream.below(600);
            table.add(0, host, quarter, Nanos(late + if host < 4 { 2_000 } else { 3_000 }));
        }
    }
    assert_eq!(table.parts().of_host, [0, 0, 0, 0, 1, 1, 1, 1]);
}

#[test]
fn parts__without_a_second_quarter_nothing_is_known_of_the_noise() {
    let mut table = RoundTripTable::new(6);
    for (a, b) in (0..6).flat_map(|a| (a + 1..6).map(move |b| (a, b))) {
        table.add(a, b, 0, Nanos(if a / 3 == b / 3 { 1_000 } else { 9_000 }));
    }
    assert_eq!(table.parts().count(), 1);
}

#[test]
fn add__keeps_the_least_of_a_pair_and_passes_over_what_is_none() {
    let mut table = RoundTripTable::new(2);
    assert_eq!(table.known_pairs(), 0);
    for (a, b, quarter) in [(0, 0, 0), (0, 2, 0), (7, 1, 0), (0, 1, QUARTERS)] {
        table.add(a, b, quarter, Nanos(1));
    }
    assert_eq!(table.known_pairs(), 0);
    table.add(0, 1, 3, Nanos(9));
    table.add(1, 0, 3, Nanos(7));
    table.add(0, 1, 3, Nanos(8));
    assert_eq!((table.known_pairs(), table.parts().within), (1, Nanos(7)));
}

/// Returns whether all hosts of each part are joined by known pairs.
fn are_joined(of_host: &[u32], is_missing: &dyn Fn(u32, u32) -> bool) -> bool {
    let hosts = of_host.len() as u32;
    (0..hosts).all(|host| {
        let mates = (0..hosts).filter(|mate| of_host[*mate as usize] == of_host[host as usize]);
        let known = mates.clone().filter(|mate| *mate != host && !is_missing(host, *mate)).count();
        2 * known >= mates.count()
    })
}

fn drawn_sizes() -> impl Strategy<Value = Vec<u32>> {
    proptest::collection::vec(3u32..8, 2..5)
}

proptest! {
    #[test]
    fn parts__are_those_drawn_where_the_gap_is_above_the_noise(
        sizes in drawn_sizes(),
        near in 1_000u64..5_000,
        gap_percent in 20u64..150,
        noise_percent in 0u64..50,
        missing_percent in 0u64..15,
        seed: u64,
    ) {
        let mut of_host: Vec<u32> =
            (0..).zip(&sizes).flat_map(|(part, size)| vec![part; *size as usize]).collect();
        let mut stream = RandomKey::new(seed).stream();
        stream.shuffle(&mut of_host);
        let gap = near * gap_percent / 100;
        let key = RandomKey::new(seed).purpose("missing");
        let is_missing = |a: u32, b: u32| {
            let pair = u64::from(a.min(b)) << 32 | u64::from(a.max(b));
            key.node(pair).stream().below(100) < missing_percent
        };
        prop_assume!(are_joined(&of_host, &is_missing));
        let distance = |a: u32, b: u32| {
            near + gap * u64::from(of_host[a as usize] != of_host[b as usize])
        };
        let noise = PingNoise { most: gap * noise_percent / 100, pings: 8 };
        let hosts = of_host.len() as u32;
        let table = table(hosts, noise, &mut stream, distance, is_missing);
        prop_assume!(table.known_pairs() >= PAIRS_MIN);
        let found = table.parts();
        let mut numbers = BTreeMap::new();
        let drawn: Vec<u32> = of_host
            .iter()
            .map(|part| {
                let next = numbers.len() as u32;
                *numbers.entry(*part).or_insert(next)
            })
            .collect();
        prop_assert_eq!(found.of_host, drawn);
    }

    #[test]
    fn parts__a_flat_network_is_never_split(
        hosts in 1u32..20,
        near in 1_000u64..5_000,
        noise_percent in 0u64..1_000,
        pings in 1u32..9,
        missing_percent in 0u64..15,
        seed: u64,
    ) {
        let mut stream = RandomKey::new(seed).stream();
        let noise = PingNoise { most: near * noise_percent / 100, pings };
        let key = RandomKey::new(seed).purpose("missing");
        let is_missing = |a: u32, b: u32| {
            // Every host is known to the first one.
            let pair = u64::from(a) << 32 | u64::from(b);
            a > 0 && key.node(pair).stream().below(100) < missing_percent
        };
        let found = table(hosts, noise, &mut stream, |_, _| near, is_missing).parts();
        prop_assert_eq!(found.count(), 1);
    }
}
