//! Broadcasts on simulated fabrics under random faults: every byte is the root's, in order, once,
//! and all survivors learn the same.
//!
//! # Model
//! A seed gives a fat tree or a dragonfly, members, objects, a way, and what goes wrong: packets
//! lost singly or in bursts, damaged, doubled, late; a group that does not reach some; receivers a
//! tenth or a hundredth as fast as they should be; links that carry one way only; processors that
//! stop; a receiver, a leader or the root that dies. Bodies are real bytes. They are compared when
//! they are reported, and long objects again when they are stable, because until then others may be
//! served from them.

use std::collections::BTreeMap;
use std::sync::Arc;

use clearway_proto::base::{
    BitsPerSec, Bytes, Class, GroupId, Nanos, RandomKey, RandomStream, Rank,
};
use clearway_proto::broadcast::{
    Algorithm, BroadcastCommand, BroadcastConfig, BroadcastEvent, BroadcastNode, Member,
    SlowReceivers,
};
use clearway_proto::wire::{RegionId, Span, Wire};
use clearway_sim::Picos;
use clearway_sim::fabric::{DownPolicy, FaultOdds, PacketSort};
use clearway_sim::fault::{Fault, FaultDurations, FaultKind, FaultPlan, PacketMatch, Side};
use clearway_sim::spec::FabricSpec;
use clearway_sim::wire::SimWire;
use clearway_sim::world::WorldEvent;

use crate::faulty_world::{self, FaultyWorld};

const GROUP: GroupId = GroupId(3);
const SYMBOL: u32 = 1_000;
const SLOTS: u32 = 32;
/// Longer than any fault that is not a death.
const SILENCE: Nanos = Nanos::from_millis(20);
/// Whatever happened is over by then.
const LIMIT: Picos = Picos::from_micros(20_000_000);

/// What a seed is.
struct CastTrial {
    spec: FabricSpec,
    ranks: u32,
    root: u32,
    way: Algorithm,
    lengths: Vec<u32>,
    plan: FaultPlan,
    /// The ranks that die.
    killed: Vec<u32>,
    laggards: SlowReceivers,
    window: u32,
    seed: u64,
}

/// What one application saw.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
struct MemberView {
    received: Vec<(u32, Span)>,
    stable: u32,
    aborted: Option<u32>,
    out: bool,
}

fn content(object: u32, at: usize) -> u8 {
    (object as usize * 131 + at * 7 + at / 251) as u8
}

fn drawn(seed: u64) -> CastTrial {
    let mut stream = RandomKey::new(seed).purpose("broadcast on a fabric").stream();
    let mut below = |bound: u64| stream.below(bound);
    let spec = faulty_world::drawn(&mut below);
    let ranks = 2 + below(23) as u32;
    let lengths = (0..1 + below(12))
        .map(|_| [below(900) + 1, below(60_000) + 1][below(2) as usize] as u32)
        .collect();
    let mut trial = CastTrial {
        spec,
        ranks,
        root: below(u64::from(ranks)) as u32,
        way: [Algorithm::Multicast, Algorithm::Segments, Algorithm::Chain, Algorithm::Tree]
            [below(4) as usize],
        lengths,
        plan: FaultPlan::new(Vec::new()),
        killed: Vec::new(),
        laggards: [SlowReceivers::Wait, SlowReceivers::Park(Nanos(SILENCE.0 / 4))]
            [below(2) as usize],
        window: 64 * (1 + below(4) as u32),
        seed,
    };
    let faults = (0..1 + stream.below(4)).filter_map(|_| fault(&mut trial, &mut stream)).collect();
    trial.plan = FaultPlan::new(faults);
    trial
}

/// One thing that goes wrong within the first milliseconds.
fn fault(trial: &mut CastTrial, stream: &mut RandomStream) -> Option<Fault> {
    let mut below = |bound: u64| stream.below(bound);
    let at = Picos::from_nanos(below(1_500_000));
    let length = Picos::from_nanos(1 + below(SILENCE.0 / 4));
    let rank = below(u64::from(trial.ranks)) as u32;
    let host = faulty_world::host(rank);
    let (_, switch) = faulty_world::leaf(&trial.spec, rank);
    let (inward, outward) = (format!("{switch} -> {host}"), format!("{host} -> {switch}"));
    let some = |odds| PacketMatch { odds, class: None, sort: PacketSort::Any };
    let one_way = [inward.clone(), outward][below(2) as usize].clone();
    let each = FaultOdds::Each([1_000, 10_000, 100_000][below(3) as usize]);
    // As a full port does: some forty packets of a row.
    let bursts = FaultOdds::Bursts { begin: 1_000, end: 25_000, inside: 1_000_000 };
    let (target, kind) = match below(12) {
        0 => (one_way, FaultKind::Loss(some(each))),
        1 => (inward, FaultKind::Loss(some(bursts))),
        2 => (one_way, FaultKind::Corruption(some(each))),
        3 => (one_way, FaultKind::Duplication(some(each))),
        4 => (
            inward,
            FaultKind::Reordering { by: Picos::from_micros(1 + below(100)), struck: some(each) },
        ),
        5 => {
            let odds = FaultOdds::Each(1_000_000);
            (
                inward,
                FaultKind::Loss(PacketMatch { odds, class: None, sort: PacketSort::Multicast }),
            )
        }
        6 => (host, FaultKind::SlowReceiver { percent: [1, 10][below(2) as usize] }),
        7 => {
            let every = Picos::from_micros(10 + below(100));
            let length = Picos(every.0 / 100 * 99);
            (host, FaultKind::Interruptions { every, length, lengths: FaultDurations::Equal })
        }
        8 => (
            one_way,
            FaultKind::LinkDown { packets: DownPolicy::Lost, notice_after: Picos::from_micros(1) },
        ),
        9 => (host, FaultKind::Paused),
        10 => (
            host,
            FaultKind::InterfaceDead { side: [Side::Transmit, Side::Receive][below(2) as usize] },
        ),
        _ => {
            if trial.killed.contains(&rank) || trial.killed.len() + 2 > trial.ranks as usize {
                return None;
            }
            trial.killed.push(rank);
            return Some(Fault { at, until: LIMIT + LIMIT, target: host, kind: FaultKind::Crash });
        }
    };
    Some(Fault { at, until: at + length, target, kind })
}

fn node(
    wire: &mut SimWire,
    trial: &CastTrial,
    members: &Arc<[Member]>,
) -> (BroadcastNode, RegionId) {
    let total: u64 = trial.lengths.iter().map(|length| u64::from(*length)).sum();
    let slots = u64::from(SLOTS * SYMBOL);
    let region = wire.register(Bytes(total + slots)).expect("a fresh end has room for a region");
    wire.join(GROUP).expect("there are groups");
    if wire.rank() == Rank(trial.root) {
        let bytes = wire.region_mut(region).expect("it was registered");
        let mut place = 0;
        for (object, length) in (0..).zip(&trial.lengths) {
            (0..*length as usize).for_each(|at| bytes[place + at] = content(object, at));
            place += *length as usize;
        }
    }
    let config = BroadcastConfig {
        rank: wire.rank(),
        members: members.clone(),
        root: Rank(trial.root),
        group: Some(GROUP),
        key: 9,
        symbol: SYMBOL,
        window: trial.window,
        history: trial.window * 2,
        slots: Span { region, offset: total, length: slots as u32 },
        rate: Some(BitsPerSec::mega(10_000)),
        first_rate: None,
        sync_every: 8,
        silence: SILENCE,
        slow_receivers: trial.laggards,
        algorithm: trial.way,
        class: Class::Bulk,
        control: Class::Control,
    };
    (BroadcastNode::new(config), region)
}

/// A cast under way.
struct CastUnderTest {
    stage: FaultyWorld<BroadcastNode>,
    seen: Vec<MemberView>,
    regions: Vec<RegionId>,
    /// Bytes of each rank's region that long objects have been given.
    given: Vec<u64>,
}

impl CastUnderTest {
    fn new(trial: &CastTrial) -> Self {
        let leaf = |rank| faulty_world::leaf(&trial.spec, rank).0;
        let members: Arc<[Member]> =
            (0..trial.ranks).map(|rank| Member { rank: Rank(rank), leaf: leaf(rank) }).collect();
        let mut regions = Vec::new();
        let stage = FaultyWorld::new(&trial.spec, trial.ranks, trial.seed, &trial.plan, |wire| {
            let (node, region) = node(wire, trial, &members);
            regions.push(region);
            node
        });
        let ranks = trial.ranks as usize;
        Self { stage, seen: vec![MemberView::default(); ranks], regions, given: vec![0; ranks] }
    }

    /// Runs a while, and gives the applications' answers.
    fn turn(&mut self, trial: &CastTrial) {
        let mut reported = Vec::new();
        let mut remake =
            |_: &mut SimWire| -> BroadcastNode { unreachable!("nobody who died comes back") };
        self.stage.turn(&mut remake, &mut |it: WorldEvent<'_, BroadcastNode>| {
            reported.push((it.rank, it.event))
        });
        for (rank, event) in reported {
            self.handle_event(trial, rank, event);
        }
    }

    fn handle_event(&mut self, trial: &CastTrial, rank: Rank, event: BroadcastEvent) {
        let now = self.stage.world.now();
        let place = rank.index();
        match event {
            BroadcastEvent::Announced { length, .. } => {
                let into = Span {
                    region: self.regions[place],
                    offset: self.given[place],
                    length: length as u32,
                };
                self.given[place] += length;
                self.stage.world.command(now, rank, BroadcastCommand::Place { into });
            }
            BroadcastEvent::Received { object, at } => {
                assert_eq!(self.seen[place].received.len() as u32, object, "in order, once");
                self.seen[place].received.push((object, at));
                self.compare(trial, rank, object, at);
                self.stage.world.command(now, rank, BroadcastCommand::Release { object });
            }
            BroadcastEvent::Stable { object, .. } => {
                assert_eq!(self.seen[place].stable, object, "in order, once");
                self.seen[place].stable += 1;
                let long = trial.lengths[object as usize] > SYMBOL;
                if let Some((_, at)) =
                    self.seen[place].received.get(object as usize).copied().filter(|_| long)
                {
                    self.compare(trial, rank, object, at);
                }
            }
            BroadcastEvent::Aborted { object } => self.seen[place].aborted = Some(object),
            BroadcastEvent::Out => self.seen[place].out = true,
            BroadcastEvent::Refused { missing } => panic!("{missing}"),
            _ => {}
        }
    }

    fn compare(&mut self, trial: &CastTrial, rank: Rank, object: u32, at: Span) {
        if trial.killed.contains(&rank.0) {
            return;
        }
        let region =
            self.stage.world.network_mut().wire(rank).region(at.region).expect("it was registered");
        let bytes = &region[at.range_in(region.len()).expect("within its region")];
        assert_eq!(bytes.len() as u32, trial.lengths[object as usize]);
        assert!(
            (0..).zip(bytes).all(|(place, byte)| *byte == content(object, place)),
            "object {object} at {rank:?}"
        );
    }

    fn is_over(&self, trial: &CastTrial) -> bool {
        let all = trial.lengths.len() as u32;
        let over = |seen: &MemberView| {
            seen.out || seen.stable == all || seen.aborted.is_some_and(|end| seen.stable >= end)
        };
        (0..).zip(&self.seen).all(|(rank, seen)| trial.killed.contains(&rank) || over(seen))
    }
}

fn run(seed: u64) {
    let trial = drawn(seed);
    let mut cast = CastUnderTest::new(&trial);
    let mut offset = 0;
    for length in &trial.lengths {
        let from = Span { region: cast.regions[trial.root as usize], offset, length: *length };
        cast.stage.world.command(
            Picos::from_micros(50),
            Rank(trial.root),
            BroadcastCommand::Cast { from },
        );
        offset += u64::from(*length);
    }
    let deaths: BTreeMap<Picos, u32> =
        trial.killed.iter().zip(1..).map(|(rank, nth)| (death(nth), *rank)).collect();
    for (at, dead) in &deaths {
        let living = (0..trial.ranks).filter(|rank| !trial.killed.contains(rank));
        living.for_each(|rank| {
            cast.stage.world.command(*at, Rank(rank), BroadcastCommand::Dead { rank: Rank(*dead) })
        });
    }
    while !cast.is_over(&trial) && cast.stage.world.now() < LIMIT {
        cast.turn(&trial);
    }
    let about = || {
        let states: Vec<_> =
            cast.seen.iter().map(|it| (it.received.len(), it.stable, it.aborted, it.out)).collect();
        let CastTrial { ranks, root, way, lengths, plan, killed, window, .. } = &trial;
        format!(
            "{ranks} ranks, root {root}, {way:?}, window {window}, {lengths:?}, killed {killed:?}: {states:?}\n{}",
            plan.to_text()
        )
    };
    assert!(cast.is_over(&trial), "seed {seed} never ends: {}", about());
    let all = trial.lengths.len() as u32;
    let survivors =
        (0..).zip(&cast.seen).filter(|(rank, seen)| !trial.killed.contains(rank) && !seen.out);
    let mut ends: Vec<_> =
        survivors.map(|(_, seen)| (seen.stable, seen.aborted.filter(|end| *end < all))).collect();
    ends.dedup();
    assert_eq!(ends.len(), 1, "seed {seed}: one outcome for all: {}", about());
    assert!(
        !trial.killed.is_empty() || ends == [(all, None)],
        "seed {seed}: nobody died: {}",
        about()
    );
}

/// When the `nth` death becomes known.
fn death(nth: u64) -> Picos {
    Picos::from(Nanos(SILENCE.0 * 3 * nth))
}

/// `BROADCAST_SEEDS=2000 cargo test -p clearway --test fabrics broadcast` runs as many as you like.
#[test]
fn swarm__the_same_bytes_and_the_same_end_for_all_on_fabrics() {
    let seeds = std::env::var("BROADCAST_SEEDS").ok().and_then(|seeds| seeds.parse().ok());
    (0..seeds.unwrap_or(24)).for_each(run);
}
