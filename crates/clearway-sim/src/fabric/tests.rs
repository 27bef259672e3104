//! No way to compute changes what happens; multicasts reach every member once.

use std::ops::Range;

use clearway_proto::base::{BitsPerSec, Bytes, Class, GroupId, RandomKey};

use super::{
    EventQueueKind, EventSet, Fabric, FabricOptions, Notice, NoticeSet, SendRequest, Target, Trains,
};
use crate::check::draw;
use crate::graph::{ChannelId, DeviceId};
use crate::spec::{
    CongestionControl, FabricSpec, LossDomain, Replication, Routing, Service, Switching, Topology,
};
use crate::time::Picos;
use crate::topology;
use crate::traffic::{self, TrafficSource};

/// All ways to compute, the plainest first.
pub(super) const WAYS: [FabricOptions; 5] = [
    FabricOptions { queue: EventQueueKind::Heap, events: EventSet::Eager, trains: Trains::Off },
    FabricOptions { queue: EventQueueKind::Wheel, events: EventSet::Eager, trains: Trains::Off },
    FabricOptions { queue: EventQueueKind::Wheel, events: EventSet::Lazy, trains: Trains::Off },
    FabricOptions { queue: EventQueueKind::Heap, events: EventSet::Eager, trains: Trains::On },
    FabricOptions { queue: EventQueueKind::Wheel, events: EventSet::Lazy, trains: Trains::On },
];

/// Returns everything that a run shows: digest, totals but for the events, statistics of all
/// channels, messages delivered.
fn run(
    spec: &FabricSpec,
    sources: &[TrafficSource],
    options: FabricOptions,
    seed: u64,
) -> (u128, u64, String) {
    let network = topology::build(spec).expect("a sound network");
    let mut fabric = Fabric::new(spec, network, seed, options);
    let (until, last) = (Picos::from_micros(40), Picos::from_micros(120));
    let outcome = traffic::open(&mut fabric, sources, until, last, RandomKey::new(seed));
    fabric.settle();
    let channels = (0..fabric.graph().channels().len() as u32).map(ChannelId);
    let seen: Vec<_> = channels
        .map(|channel| (fabric.port_statistics(channel), fabric.lane_statistics(channel).to_vec()))
        .collect();
    if !matches!(spec.classes.loss[0], LossDomain::Drops { .. }) {
        assert_eq!(fabric.totals().dropped, 0, "seed {seed}: {spec:?}");
    }
    (fabric.digest(), outcome.delivered, format!("{seen:?}"))
}

fn same_in_every_way(seeds: Range<u64>) {
    for seed in seeds {
        let mut stream = RandomKey::new(seed).purpose("network").stream();
        let mut spec = draw::network(&mut stream);
        if spec.switch.switching == Switching::TokenBucket {
            let packets = RandomKey::new(seed).purpose("burst").stream().below(4);
            spec.links
                .iter_mut()
                .for_each(|link| link.burst = (packets > 0).then_some(Bytes(packets * 4096)));
        }
        if seed % 3 == 0 {
            spec.host.service = Service::ByMessage;
        }
        let hosts = topology::build(&spec).expect("a sound network").graph.hosts();
        let sources = draw::traffic(&mut stream, hosts);
        let plainest = run(&spec, &sources, WAYS[0], seed);
        assert!(plainest.1 > 0);
        for options in &WAYS[1..] {
            let other = run(&spec, &sources, *options, seed);
            assert_eq!(plainest, other, "seed {seed}, {options:?}, {spec:?}");
        }
    }
}

#[test]
fn options__no_way_to_compute_changes_what_happens() {
    same_in_every_way(0..30);
}

#[test]
fn options__on_many_networks() {
    if cfg!(debug_assertions) {
        return std::eprintln!("skipped: takes seconds; `cargo xtask swarm` runs it");
    }
    same_in_every_way(30..600);
}

/// Sends multicasts and unicasts from several hosts; returns which host gets which message when.
fn run_casts(spec: &FabricSpec, options: FabricOptions, seed: u64) -> Vec<(u64, u32, Picos)> {
    let mut fabric =
        Fabric::new(spec, topology::build(spec).expect("a sound network"), seed, options);
    let hosts = fabric.graph().hosts();
    let mut stream = RandomKey::new(seed).purpose("casts").stream();
    for host in 0..hosts {
        if host != 1 {
            fabric.join(GroupId(7), DeviceId(host));
        }
    }
    let mut posts: Vec<(Picos, SendRequest)> = (0..40u64)
        .map(|tag| {
            let from = DeviceId(stream.below(u64::from(hosts)) as u32);
            let to = match tag % 3 {
                0 => Target::Group(GroupId(7)),
                1 => Target::Range(DeviceId(1), DeviceId(hosts - 1)),
                _ => Target::Host(DeviceId((from.0 + 1) % hosts)),
            };
            let order = SendRequest {
                to,
                ..traffic::order(
                    from.0,
                    0,
                    Class::Bulk,
                    1 + stream.below(20_000),
                    NoticeSet::All,
                    tag,
                )
            };
            (Picos::from_nanos(stream.below(20_000)), order)
        })
        .collect();
    posts.sort_by_key(|(at, _)| *at);
    let mut notices = Vec::new();
    for (at, order) in &posts {
        while fabric.advance(*at, &mut notices) < *at {}
        fabric.post(*at, *order);
    }
    while fabric.next().is_some() {
        fabric.advance(Picos::NEVER, &mut notices);
    }
    let acknowledged =
        notices.iter().filter(|notice| matches!(notice, Notice::Acknowledged { .. })).count();
    assert_eq!(acknowledged, posts.len(), "every message ends: seed {seed}, {options:?}, {spec:?}");
    let mut seen: Vec<_> = notices
        .iter()
        .filter_map(|notice| match notice {
            Notice::Delivered { tag, to, at, .. } => Some((*tag, to.0, *at)),
            _ => None,
        })
        .collect();
    seen.sort_unstable();
    for (_, order) in &posts {
        let expected: Vec<u32> = match order.to {
            Target::Host(to) => vec![to.0],
            Target::Group(_) => {
                (0..hosts).filter(|host| *host != 1 && *host != order.from.0).collect()
            }
            Target::Range(first, last) => {
                (first.0..=last.0).filter(|host| *host != order.from.0).collect()
            }
        };
        let got: Vec<u32> =
            seen.iter().filter(|(tag, ..)| *tag == order.tag).map(|(_, host, _)| *host).collect();
        assert_eq!(got, expected, "{order:?}");
    }
    seen
}

#[test]
fn multicast__every_member_gets_every_message_once_however_it_is_computed() {
    for seed in 0..40 {
        let mut stream = RandomKey::new(seed).purpose("network").stream();
        let mut spec = draw::network(&mut stream);
        spec.switch.replication =
            draw::one_of(&mut stream, &[Replication::EachBranch, Replication::HoldAll]);
        if spec.check().is_err() {
            spec.switch.replication = Replication::EachBranch;
        }
        if spec.classes.loss[0] != LossDomain::Credits {
            continue;
        }
        let plainest = run_casts(&spec, WAYS[0], seed);
        for options in &WAYS[1..] {
            assert_eq!(
                plainest,
                run_casts(&spec, *options, seed),
                "seed {seed}, {options:?}, {spec:?}"
            );
        }
    }
}

#[test]
fn multicast__shares_a_connection_that_marks_have_slowed_down() {
    // Hosts that serve in order have one connection for all targets of a class, groups too.
    let marking =
        (0..).map(|seed| draw::network(&mut RandomKey::new(seed).purpose("network").stream()));
    let mut marking =
        marking.filter(|spec| matches!(spec.congestion_control, CongestionControl::Dcqcn(_)));
    let mut spec = marking.next().expect("some mark");
    spec.host.service = Service::InOrder;
    let mut fabric =
        Fabric::new(&spec, topology::build(&spec).expect("sound"), 1, FabricOptions::default());
    let hosts = fabric.graph().hosts();
    (0..hosts).for_each(|host| fabric.join(GroupId(7), DeviceId(host)));
    for from in 1..hosts {
        fabric.post(
            Picos::ZERO,
            traffic::order(from, 0, Class::Bulk, 1 << 20, NoticeSet::Delivery, 0),
        );
        let cast = traffic::order(from, 0, Class::Bulk, 5_000, NoticeSet::Delivery, 1);
        fabric.post(Picos::from_micros(1), SendRequest { to: Target::Group(GroupId(7)), ..cast });
    }
    let mut notices = Vec::new();
    while fabric.next().is_some() {
        fabric.advance(Picos::NEVER, &mut notices);
    }
    let heard =
        notices.iter().filter(|notice| matches!(notice, Notice::Delivered { tag: 1, .. })).count();
    assert_eq!(heard as u32, (hosts - 1) * (hosts - 1));
}

/// Returns when a 64-byte multicast from host 0 to hosts 1 and 2 of a star arrives while host 2's
/// link is busy with bulk.
fn cast_under_bulk(replication: Replication) -> (Picos, Picos) {
    let mut spec =
        FabricSpec::plain(Topology::Star { hosts: 4 }, Routing::Minimal, BitsPerSec::mega(100_000));
    spec.switch.replication = replication;
    let network = topology::build(&spec).expect("a star");
    let mut fabric = Fabric::new(&spec, network, 1, FabricOptions::default());
    fabric.post(Picos::ZERO, traffic::order(3, 2, Class::Bulk, 1 << 20, NoticeSet::Delivery, 0));
    let range = Target::Range(DeviceId(1), DeviceId(2));
    let cast =
        SendRequest { to: range, ..traffic::order(0, 0, Class::Bulk, 64, NoticeSet::Delivery, 1) };
    fabric.post(Picos::from_micros(10), cast);
    let mut notices = Vec::new();
    while fabric.next().is_some() {
        fabric.advance(Picos::NEVER, &mut notices);
    }
    let when = |host: u32| {
        let of = |notice: &Notice| match *notice {
            Notice::Delivered { tag: 1, to, at, .. } if to.0 == host => Some(at),
            _ => None,
        };
        notices.iter().find_map(of).expect("delivered")
    };
    (when(1), when(2))
}

#[test]
fn multicast__a_busy_branch_delays_the_others_only_where_all_are_held() {
    // Two cables of 5 ns, 100 ns in the switch, 64 bytes at 80 ps, and 1 ps at each host's
    // interface.
    let unloaded = Picos::from_micros(10) + Picos(110_000 + 64 * 80 + 2);
    let (idle, busy) = cast_under_bulk(Replication::EachBranch);
    assert_eq!(idle, unloaded);
    assert!(busy > unloaded);
    let (idle, busy) = cast_under_bulk(Replication::HoldAll);
    assert_eq!(idle, busy);
    assert!(idle > unloaded);
}

#[test]
fn token_bucket__a_message_has_left_before_it_arrives() {
    let mut spec =
        FabricSpec::plain(Topology::Star { hosts: 2 }, Routing::Ecmp, BitsPerSec::mega(25));
    spec.switch.switching = Switching::TokenBucket;
    let mut fabric =
        Fabric::new(&spec, topology::build(&spec).expect("a star"), 1, FabricOptions::default());
    for tag in 0..3 {
        fabric.post(Picos::ZERO, traffic::order(0, 1, Class::Bulk, 1000, NoticeSet::All, tag));
    }
    let mut notices = Vec::new();
    while fabric.next().is_some() {
        fabric.advance(Picos::NEVER, &mut notices);
    }
    let of = |wanted: u64| {
        notices.iter().filter(
            move |notice| matches!(**notice, Notice::Sent { tag, .. } | Notice::Delivered { tag, .. } if tag == wanted),
        )
    };
    for tag in 0..3 {
        let both: Vec<_> = of(tag).collect();
        assert!(matches!(both[..], [Notice::Sent { .. }, Notice::Delivered { .. }]), "{both:?}");
    }
}

/// Returns when each of `bytes`, all posted at once by host 0 to host 1 of a star with token
/// buckets that hold `burst`, was delivered after the first. A full packet of 4096 bytes takes
/// 1310.72 us at 25 Mb/s.
fn behind_buckets(burst: Option<Bytes>, bytes: &[u64]) -> Vec<u64> {
    let mut spec =
        FabricSpec::plain(Topology::Star { hosts: 2 }, Routing::Ecmp, BitsPerSec::mega(25));
    spec.switch.switching = Switching::TokenBucket;
    spec.host.service = Service::InOrder;
    spec.links.iter_mut().for_each(|link| link.burst = burst);
    let mut fabric =
        Fabric::new(&spec, topology::build(&spec).expect("a star"), 1, FabricOptions::default());
    for (tag, bytes) in (0..).zip(bytes) {
        fabric
            .post(Picos::ZERO, traffic::order(0, 1, Class::Bulk, *bytes, NoticeSet::Delivery, tag));
    }
    let mut notices = Vec::new();
    while fabric.next().is_some() {
        fabric.advance(Picos::NEVER, &mut notices);
    }
    let delivered = notices.iter().filter_map(|notice| match notice {
        Notice::Delivered { at, .. } => Some(at.0),
        _ => None,
    });
    let delivered: Vec<u64> = delivered.collect();
    delivered.iter().map(|at| at - delivered[0]).collect()
}

#[test]
fn token_bucket__what_its_burst_holds_leaves_back_to_back_and_the_rest_at_the_rate() {
    const PACKET: u64 = 1_310_720_000;
    let full = [4096; 5];
    assert_eq!(behind_buckets(None, &full), [0, PACKET, 2 * PACKET, 3 * PACKET, 4 * PACKET]);
    assert_eq!(
        behind_buckets(Some(Bytes(4096)), &full),
        behind_buckets(None, &full),
        "one packet is one packet"
    );
    // An instant apart: nothing happens twice in one.
    assert_eq!(
        behind_buckets(Some(Bytes(2 * 4096)), &full),
        [0, 1, PACKET, 2 * PACKET, 3 * PACKET]
    );
    assert_eq!(behind_buckets(Some(Bytes(3 * 4096)), &full), [0, 1, 2, PACKET, 2 * PACKET]);
    // Short ones are through before a full packet is owed.
    assert_eq!(behind_buckets(Some(Bytes(2 * 4096)), &[64; 3]), [0, 1, 2]);
    assert_eq!(behind_buckets(None, &[64; 3]), [0, PACKET / 64, PACKET / 32]);
}

/// Returns a host that sends messages of three packets to each of `targets` hosts of a star, all
/// posted at once and one short one to the first a little later: which target each tail reached, in
/// order of time.
fn by_message(options: FabricOptions, seed: u64, targets: u32) -> Vec<u64> {
    let mut spec = FabricSpec::plain(
        Topology::Star { hosts: targets + 1 },
        Routing::Ecmp,
        BitsPerSec::mega(1_000),
    );
    spec.host.service = Service::ByMessage;
    let packet = spec.packet.payload.0;
    let mut fabric = Fabric::new(&spec, topology::build(&spec).expect("a star"), seed, options);
    for tag in 0..u64::from(targets) {
        let order =
            traffic::order(0, tag as u32 + 1, Class::Bulk, 3 * packet, NoticeSet::Delivery, tag);
        fabric.post(Picos::ZERO, order);
    }
    let short = traffic::order(0, 1, Class::Control, 8, NoticeSet::Delivery, 99);
    fabric.post(Picos::from_micros(1), short);
    let mut notices = Vec::new();
    while fabric.next().is_some() {
        fabric.advance(Picos::NEVER, &mut notices);
    }
    let tag = |notice: &Notice| match notice {
        Notice::Delivered { tag, .. } => Some(*tag),
        _ => None,
    };
    notices.iter().filter_map(tag).collect()
}

#[test]
fn by_message__messages_follow_each_other_in_a_drawn_order_and_short_ones_pass() {
    let orders: Vec<Vec<u64>> =
        (0..8).map(|seed| by_message(FabricOptions::default(), seed, 6)).collect();
    for order in &orders {
        assert_eq!(order.len(), 7, "each is there once: {order:?}");
        assert!(order[0] == 99 || order[1] == 99, "it waits for one packet at most: {order:?}");
    }
    assert!(orders.iter().any(|order| order[2..] != orders[0][2..]), "the seed draws: {orders:?}");
    for options in &WAYS {
        assert_eq!(by_message(*options, 3, 6), orders[3], "{options:?}");
    }
}

#[test]
fn limit_fetch__holds_one_host_to_its_rate() {
    let spec =
        FabricSpec::plain(Topology::Star { hosts: 4 }, Routing::Ecmp, BitsPerSec::mega(1_000));
    let mut fabric =
        Fabric::new(&spec, topology::build(&spec).expect("a star"), 1, FabricOptions::default());
    fabric.limit_fetch(DeviceId(0), BitsPerSec::mega(500));
    for (from, to) in [(0, 2), (1, 3)] {
        fabric.post(
            Picos::ZERO,
            traffic::order(from, to, Class::Bulk, 1 << 20, NoticeSet::Delivery, u64::from(from)),
        );
    }
    let mut notices = Vec::new();
    while fabric.next().is_some() {
        fabric.advance(Picos::NEVER, &mut notices);
    }
    let at = |wanted: u64| {
        notices.iter().find_map(|notice| match notice {
            Notice::Delivered { tag, at, .. } if *tag == wanted => Some(at.as_secs_f64()),
            _ => None,
        })
    };
    let ratio = at(0).expect("delivered") / at(1).expect("delivered");
    assert!((1.95..=2.0).contains(&ratio), "{ratio}");
}
