//! Faults hit what they name, heal, and are the same however the fabric is computed.

use std::ops::Range;

use clearway_proto::base::{BitsPerSec, Class, GroupId, RandomKey};

use crate::check::draw;
use crate::fabric::tests::WAYS;
use crate::fabric::{
    DownPolicy, Fabric, FabricFault, FabricFaultKind, FabricOptions, FaultOdds, Notice, NoticeSet,
    PacketFault, PacketSort, Payload, SendRequest, Target, Trains,
};
use crate::fault::{self, Disks, FaultPlan, FaultSite};
use crate::graph::{ChannelId, DeviceId};
use crate::spec::{FabricSpec, Replication, Routing, Topology};
use crate::time::Picos;
use crate::{topology, traffic};

const UNTIL: Picos = Picos::from_micros(60);

fn star() -> FabricSpec {
    FabricSpec::plain(Topology::Star { hosts: 4 }, Routing::Minimal, BitsPerSec::mega(100_000))
}

/// Returns messages from everyone to others, to groups and to ranges, in order of time.
fn posts(seed: u64, hosts: u32, casts: bool) -> Vec<(Picos, SendRequest)> {
    let mut stream = RandomKey::new(seed).purpose("posts").stream();
    let mut posts: Vec<(Picos, SendRequest)> = (0..60u64)
        .map(|tag| {
            let from = stream.below(u64::from(hosts)) as u32;
            let class = draw::one_of(&mut stream, &Class::ALL);
            let bytes = draw::one_of(&mut stream, &[0, 100, 4000, 30_000, 100_000]);
            let order = traffic::order(
                from,
                (from + 1 + stream.below(u64::from(hosts) - 1) as u32) % hosts,
                class,
                bytes,
                NoticeSet::All,
                tag,
            );
            let to = match tag % 5 {
                0 if casts => Target::Group(GroupId(7)),
                1 if casts => Target::Range(DeviceId(1), DeviceId(hosts - 1)),
                _ => order.to,
            };
            (Picos::from_nanos(stream.below(50_000)), SendRequest { to, ..order })
        })
        .collect();
    posts.sort_by_key(|(at, _)| *at);
    posts
}

/// Returns all that happens, with the audit of every microsecond where the way of computing has
/// one.
fn run(
    spec: &FabricSpec,
    plan: Vec<FabricFault>,
    seed: u64,
    options: FabricOptions,
    casts: bool,
) -> (u128, Vec<Notice>) {
    let mut fabric = Fabric::new(spec, topology::build(spec).expect("sound"), seed, options);
    let stealing =
        plan.iter().any(|fault| matches!(fault.what, FabricFaultKind::LostCredit { .. }));
    let afflicted = !plan.is_empty();
    fabric.afflict(plan, RandomKey::new(seed).purpose("strikes"));
    let hosts = fabric.graph().hosts();
    (2..hosts).for_each(|host| fabric.join(GroupId(7), DeviceId(host)));
    let mut notices = Vec::new();
    let posts = posts(seed, hosts, casts);
    for (at, order) in &posts {
        while fabric.advance(*at, &mut notices) < *at {}
        fabric.post(*at, *order);
        if options.events == crate::fabric::EventSet::Lazy
            && options.trains == Trains::Off
            && !stealing
        {
            assert_eq!(fabric.audit(), [], "seed {seed} at {at}");
        }
    }
    while fabric.next().is_some() {
        fabric.advance(Picos::NEVER, &mut notices);
    }
    if options.events == crate::fabric::EventSet::Lazy
        && (afflicted || options.trains == Trains::Off)
    {
        assert_eq!(fabric.standstill(), [], "seed {seed}: {spec:?}");
        assert_eq!(fabric.audit(), [], "seed {seed} at the end");
    }
    notices.sort_by_key(|notice| format!("{notice:?}"));
    (fabric.digest(), notices)
}

/// Returns a random network, and the part of a random plan that concerns the fabric.
fn some(seed: u64) -> (FabricSpec, Vec<FabricFault>) {
    let mut stream = RandomKey::new(seed).purpose("network").stream();
    let mut spec = draw::network(&mut stream);
    spec.switch.replication =
        draw::one_of(&mut stream, &[Replication::EachBranch, Replication::HoldAll]);
    if spec.check().is_err() {
        spec.switch.replication = Replication::EachBranch;
    }
    let graph = topology::build(&spec).expect("sound").graph;
    let site = FaultSite { spec: &spec, graph: &graph, hosts: &[], disks: Disks::Absent };
    let plan = fault::draw(RandomKey::new(seed), &site, Picos::ZERO, UNTIL);
    let fabric = plan.resolve(&site).expect("what is drawn fits").fabric;
    (spec, fabric)
}

fn same_in_every_way(seeds: Range<u64>) {
    for seed in seeds {
        let (spec, plan) = some(seed);
        let casts = spec.classes.loss[0] == crate::spec::LossDomain::Credits;
        let plainest = run(&spec, plan.clone(), seed, WAYS[0], casts);
        for options in &WAYS[1..] {
            let other = run(&spec, plan.clone(), seed, *options, casts);
            assert!(plainest == other, "seed {seed}, {options:?}, {plan:?}, {spec:?}");
        }
    }
}

#[test]
fn options__no_way_to_compute_changes_what_happens_under_faults() {
    same_in_every_way(0..40);
}

#[test]
fn options__under_many_faults() {
    if cfg!(debug_assertions) {
        return std::eprintln!("skipped: takes seconds; `cargo xtask swarm` runs it");
    }
    same_in_every_way(40..1_000);
}

#[test]
fn afflict__faults_that_strike_nothing_change_nothing() {
    for seed in 0..40 {
        let (spec, _) = some(seed);
        let what = FabricFaultKind::Packets {
            channel: ChannelId(0),
            harm: PacketFault::Lost,
            odds: FaultOdds::Each(0),
            level: None,
            sort: PacketSort::Any,
        };
        let never = vec![FabricFault { at: Picos(1), until: UNTIL, what, plan: 0 }];
        let sound = run(&spec, Vec::new(), seed, FabricOptions::default(), false);
        assert!(
            sound == run(&spec, never, seed, FabricOptions::default(), false),
            "seed {seed}: {spec:?}"
        );
        assert!(sound == run(&spec, Vec::new(), seed, WAYS[0], false), "seed {seed}: {spec:?}");
    }
}

/// Returns what becomes of one 64-byte message from host 0 to host 1 of a star while `what` lasts.
fn one_message(what: FabricFaultKind, odds_of: u32) -> (Vec<Notice>, u64) {
    let spec = star();
    let mut fabric =
        Fabric::new(&spec, topology::build(&spec).expect("a star"), 1, FabricOptions::default());
    fabric.afflict(
        vec![FabricFault { at: Picos(1), until: UNTIL, what, plan: odds_of }],
        RandomKey::new(1),
    );
    fabric.post(Picos(2), traffic::order(0, 1, Class::Bulk, 64, NoticeSet::SentAndDelivery, 9));
    let mut notices = Vec::new();
    while fabric.next().is_some() {
        fabric.advance(Picos::NEVER, &mut notices);
    }
    assert_eq!(fabric.audit(), []);
    (notices, fabric.strikes(odds_of))
}

fn packets(harm: PacketFault) -> FabricFaultKind {
    FabricFaultKind::Packets {
        channel: ChannelId(0),
        harm,
        odds: FaultOdds::Nth(1),
        level: None,
        sort: PacketSort::Unicast,
    }
}

#[test]
fn packets__each_harm_is_reported_as_what_it_is() {
    let (lost, strikes) = one_message(packets(PacketFault::Lost), 3);
    assert!(matches!(lost[..], [Notice::Sent { .. }, Notice::Lost { tag: 9, .. }]), "{lost:?}");
    assert_eq!(strikes, 1);
    let (damaged, _) = one_message(packets(PacketFault::Damaged), 0);
    assert!(matches!(
        damaged[..],
        [Notice::Sent { .. }, Notice::Delivered { payload: Payload::Corrupt, .. }]
    ));
    let (doubled, _) = one_message(packets(PacketFault::Doubled), 0);
    let delivered =
        doubled.iter().filter(|notice| matches!(notice, Notice::Delivered { tag: 9, .. })).count();
    assert_eq!((delivered, doubled.len()), (2, 4), "{doubled:?}");
    let (sound, _) = one_message(packets(PacketFault::Late(Picos(1))), 0);
    let (late, _) = one_message(packets(PacketFault::Late(Picos::from_nanos(900))), 0);
    let at = |notices: &[Notice]| match notices {
        [Notice::Sent { .. }, Notice::Delivered { at, .. }] => at.0,
        other => panic!("{other:?}"),
    };
    assert!(at(&late) > at(&sound) && at(&late) <= at(&sound) + 900_000);
}

#[test]
fn down__kept_packets_wait_and_lost_ones_are_lost() {
    let down = |packets| FabricFaultKind::Down {
        channel: ChannelId(0),
        packets,
        notice_after: Picos::ZERO,
    };
    let (kept, _) = one_message(down(DownPolicy::Kept), 0);
    assert!(
        matches!(kept[..], [Notice::Sent { at, .. }, Notice::Delivered { .. }] if at > UNTIL),
        "{kept:?}"
    );
    let (lost, _) = one_message(down(DownPolicy::Lost), 0);
    assert!(matches!(lost[..], [Notice::Sent { .. }, Notice::Lost { .. }]), "{lost:?}");
}

#[test]
fn dead__a_switch_loses_what_it_holds() {
    let mut spec = star();
    spec.links[0].buffer = clearway_proto::base::Bytes(16 << 10);
    let mut fabric =
        Fabric::new(&spec, topology::build(&spec).expect("a star"), 1, FabricOptions::default());
    let what = FabricFaultKind::Dead { device: DeviceId(4), notice_after: Picos::ZERO };
    fabric.afflict(
        vec![FabricFault { at: Picos::from_micros(3), until: UNTIL, what, plan: 0 }],
        RandomKey::new(1),
    );
    for from in 0..3 {
        fabric.post(
            Picos(1),
            traffic::order(from, 3, Class::Bulk, 100_000, NoticeSet::Delivery, u64::from(from)),
        );
    }
    let mut notices = Vec::new();
    while fabric.next().is_some() {
        fabric.advance(Picos::NEVER, &mut notices);
    }
    assert!(
        notices.iter().all(|notice| matches!(notice, Notice::Lost { .. })) && notices.len() == 3,
        "{notices:?}"
    );
    assert_eq!(fabric.audit(), []);
}

#[test]
fn lost_credit__the_audit_finds_it_and_the_lane_stands_still_for_good() {
    let mut spec = star();
    spec.links[0].buffer = clearway_proto::base::Bytes(8192);
    let mut fabric =
        Fabric::new(&spec, topology::build(&spec).expect("a star"), 1, FabricOptions::default());
    let what = FabricFaultKind::LostCredit { channel: ChannelId(0), lane: 0, bytes: 8000 };
    let forever = Picos::from_micros(1 << 40);
    fabric.afflict(
        vec![FabricFault { at: Picos::from_micros(1), until: forever, what, plan: 0 }],
        RandomKey::new(1),
    );
    fabric.post(Picos(1), traffic::order(0, 1, Class::Bulk, 100_000, NoticeSet::Delivery, 1));
    let mut notices = Vec::new();
    fabric.advance(Picos::from_micros(100), &mut notices);
    assert_eq!(notices, []);
    let leaks = fabric.audit();
    assert_eq!(
        (leaks.len(), leaks[0].channel, leaks[0].size - leaks[0].found),
        (1, ChannelId(0), 8000)
    );
    let stalls = fabric.standstill();
    assert_eq!((stalls.len(), stalls[0].channel, stalls[0].holders), (1, ChannelId(0), 0));
}

#[test]
fn plan__a_drawn_plan_is_found_again_in_its_text() {
    for seed in 0..300 {
        let mut stream = RandomKey::new(seed).stream();
        let spec = draw::network(&mut stream);
        let graph = topology::build(&spec).expect("sound").graph;
        let hosts: Vec<DeviceId> = (0..graph.hosts()).map(DeviceId).collect();
        let site = FaultSite { spec: &spec, graph: &graph, hosts: &hosts, disks: Disks::Present };
        let plan = fault::draw(RandomKey::new(seed), &site, Picos(1), UNTIL);
        let read = FaultPlan::parse("plan.toml", &plan.to_text()).expect("what was written");
        assert_eq!(read.faults, plan.faults);
        assert_eq!(read.resolve(&site), plan.resolve(&site));
        assert!(plan.healed_at() <= UNTIL);
    }
}
