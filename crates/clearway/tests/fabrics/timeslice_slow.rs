//! Timeslice building on a simulated Aries fabric with one builder whose sink is ten times slower
//! than its interface.

use std::collections::BTreeMap;
use std::sync::Arc;

use clearway_proto::base::{BitsPerSec, Bytes, Class, Nanos, RandomKey, Rank};
use clearway_proto::timeslice::{
    ContributionSizes, ContributionSource, Dfs, Policy, ReleasePolicy, TimesliceCommand,
    TimesliceConfig, TimesliceEvent, TimesliceLayout, TimesliceNode, TimesliceRecord, Window,
    WriteSlots,
};
use clearway_proto::wire::{Span, Wire};
use clearway_sim::Picos;
use clearway_sim::fabric::{Fabric, FabricOptions};
use clearway_sim::graph::DeviceId;
use clearway_sim::spec::{Jitter, presets};
use clearway_sim::topology;
use clearway_sim::wire::{ContentModel, Network, NetworkConfig};
use clearway_sim::world::World;

const INPUTS: u32 = 6;
const BUILDERS: u32 = 6;
const SLOW: Rank = Rank(INPUTS + 3);
const CONTRIBUTION: Bytes = Bytes(64 << 10);
const RING: Bytes = Bytes(1 << 20);
/// What an interface carries: 28 Gb/s, as the published measurements had.
const RATE: BitsPerSec = BitsPerSec(28_000_000_000);
/// How long the application looks away.
const TURN: Nanos = Nanos::from_micros(50);

/// A job under way. Builders release timeslices at once, but for the slow one.
struct SlowBuilderJob {
    world: World<TimesliceNode, Fabric>,
    /// What its sink takes for a timeslice; zero while it is as quick as the others.
    service: Nanos,
    busy_until: Picos,
    releases: BTreeMap<(Picos, u64), ()>,
}

impl SlowBuilderJob {
    fn new(policy: Policy, dfs: Dfs) -> Self {
        let mut spec = presets::load("aries", None).expect("a shipped fabric");
        spec.host.memory_rate = RATE;
        spec.host.jitter = Jitter { period: Picos::ZERO, length: Picos::ZERO, rare: 0 };
        let two = Bytes(2 * (CONTRIBUTION.0 + spec.packet.header.0));
        spec.packet.payload = CONTRIBUTION;
        spec.links.iter_mut().for_each(|link| link.buffer = link.buffer.max(two));
        let network = topology::build(&spec).expect("a sound fabric");
        let hosts = (0..INPUTS + BUILDERS).map(DeviceId).collect();
        let carrier = Fabric::new(&spec, network, 1, FabricOptions::default());
        let key = RandomKey::new(1);
        let config = NetworkConfig { hosts, bodies: ContentModel::Lengths, disk: None, key };
        let ranks = |range: std::ops::Range<u32>| range.map(Rank).collect();
        let layout = TimesliceLayout::new(ranks(0..INPUTS), ranks(INPUTS..INPUTS + BUILDERS), &[]);
        let layout = Arc::new(layout.expect("a sound layout"));
        let world = World::new(Network::new(carrier, &spec, config), |wire| {
            let source = wire.register(CONTRIBUTION).expect("room");
            let rings = wire.register(Bytes(RING.0 * u64::from(INPUTS))).expect("room");
            let memory = Span { region: source, offset: 0, length: CONTRIBUTION.0 as u32 };
            let is_slow = wire.rank() == SLOW;
            TimesliceNode::new(TimesliceConfig {
                rank: wire.rank(),
                run: 0,
                layout: layout.clone(),
                policy,
                window: Window { least: 2, most: 64 },
                dfs,
                source: ContributionSource::Endless(
                    memory,
                    ContributionSizes::Constant(CONTRIBUTION),
                ),
                slots: WriteSlots::from_policy(policy),
                rings: Span { region: rings, offset: 0, length: 0 },
                ring: RING,
                release: if is_slow { ReleasePolicy::ByCommand } else { ReleasePolicy::AtOnce },
                heartbeat: Some(Nanos::from_micros(500)),
                class: Class::Bulk,
                control: Class::Control,
            })
        });
        let releases = BTreeMap::new();
        let mut job = Self { world, service: Nanos(0), busy_until: Picos::ZERO, releases };
        for rank in 0..INPUTS {
            job.world.command(Picos::ZERO, Rank(rank), TimesliceCommand::Begin);
        }
        job
    }

    /// Runs for `millis`; returns the bytes that landed at all builders.
    fn run(&mut self, millis: u64) -> u64 {
        let until = self.world.now() + Picos::from(Nanos::from_millis(millis));
        while self.world.now() < until {
            let now = self.world.now();
            while let Some(entry) = self.releases.first_entry().filter(|it| it.key().0 <= now) {
                let ((_, timeslice), ()) = entry.remove_entry();
                self.world.command(now, SLOW, TimesliceCommand::Release { timeslice });
            }
            let (releases, busy_until, service) =
                (&mut self.releases, &mut self.busy_until, self.service);
            self.world.run_until(now + Picos::from(TURN), &mut |reported| {
                if let (SLOW, TimesliceEvent::Complete { timeslice, .. }) =
                    (reported.rank, reported.event)
                {
                    *busy_until = (*busy_until).max(reported.at) + Picos::from(service);
                    releases.insert((*busy_until, timeslice), ());
                }
            });
        }
        let landed = |rank: u32| {
            let now = self.world.network_mut().wire(Rank(rank)).now();
            match self.world.engine_mut(Rank(rank)).and_then(|engine| engine.take_record(now)) {
                Some(TimesliceRecord::Builder(record)) => record.bytes,
                _ => 0,
            }
        };
        (INPUTS..INPUTS + BUILDERS).map(landed).sum()
    }
}

/// Five builders and a tenth of one can carry 0.85 of what six carry. Half of that time is that of
/// the decisions.
#[test]
fn build__one_slow_builder_costs_what_it_cannot_do() {
    let intervals = [Dfs { interval: 160, history: 10, ..Dfs::default() }, Dfs::default()];
    let rotation = RATE.time_for(Bytes(CONTRIBUTION.0 * u64::from(INPUTS)));
    let others = [Policy::Token, Policy::Offset].map(|policy| (policy, intervals[0]));
    let others = if cfg!(debug_assertions) { &[][..] } else { &others };
    let runs = intervals.map(|dfs| (Policy::Dfs, dfs)).into_iter().chain(others.iter().copied());
    for (policy, dfs) in runs {
        let mut job = SlowBuilderJob::new(policy, dfs);
        job.run(10);
        let usual = job.run(20);
        job.service = Nanos(10 * rotation.0);
        let parts: Vec<f64> = (0..5).map(|_| job.run(20) as f64 / usual as f64).collect();
        let possible = (f64::from(BUILDERS - 1) + 0.1) / f64::from(BUILDERS);
        eprintln!("{policy:?} {}: {parts:.3?} of {usual}", dfs.interval);
        let late = parts[3..].iter().sum::<f64>() / 2.0;
        assert!(late >= 0.9 * possible, "{policy:?} {}: {parts:.2?}", dfs.interval);
    }
}
