//! Timeslice building on a simulated fabric: one policy, one seed, from the first hello to the end of what is counted.

use std::sync::Arc;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, anyhow};
use clearway_proto::base::{Bytes, Class, Nanos, RandomKey, Rank};
use clearway_proto::stats::Histogram;
use clearway_proto::timeslice::{
    Cause, Command, Event, Layout, Node, NodeConfig, Policy, Record, Release, Sizes, Slots, Source,
};
use clearway_proto::wire::{Span, Wire};
use clearway_sim::Picos;
use clearway_sim::fabric::{self, Options};
use clearway_sim::graph::DeviceId;
use clearway_sim::spec::FabricSpec;
use clearway_sim::topology::{self, Network as Topology};
use clearway_sim::wire::{Bodies, Network, NetworkConfig, SimWire};
use clearway_sim::world::World;

use super::plan::Plan;
use crate::scenario::Fabric;

/// Samples of progress within what is counted.
const SAMPLES: u64 = 200;

/// A fabric, ready for runs.
pub(super) struct Ground {
    spec: FabricSpec,
    network: Topology,
    hosts: Vec<DeviceId>,
}

/// What one run showed.
#[derive(Clone, Debug, Default)]
pub(super) struct Outcome {
    /// Bytes that landed while it was counted.
    pub(super) bytes: u64,
    /// Timeslices complete while it was counted.
    pub(super) timeslices: u64,
    /// From the first to the last contribution of a timeslice, in ns.
    pub(super) completion: Histogram,
    /// Ring of a connection, in millionths of its length.
    pub(super) fill: Histogram,
    /// Contributions by which the furthest input is ahead of the last.
    pub(super) gap: Histogram,
    /// Time of all inputs, by cause.
    pub(super) blocked: [Nanos; Cause::ALL.len()],
    /// Contributions let in at a time, of each builder.
    pub(super) windows: Vec<u32>,
    pub(super) packets: u64,
    pub(super) wall: Duration,
    pub(super) digest: u128,
}

impl Ground {
    /// The hosts of `fabric` under `queue`.
    pub(super) fn open(fabric: &Fabric, queue: &str, seed: u64) -> Result<Self> {
        let (spec, hosts) = fabric.simulated(queue, RandomKey::new(seed)).map_err(|why| anyhow!(why))?;
        let network = topology::build(&spec).with_context(|| format!("the fabric {}", spec.name))?;
        Ok(Self { spec, network, hosts })
    }

    fn world(&self, plan: &Plan, policy: Policy, layout: &Arc<Layout>, seed: u64) -> World<Node, fabric::Fabric> {
        let key = RandomKey::new(seed);
        let fabric_seed = key.purpose("fabric").stream().next_u64();
        let carrier = fabric::Fabric::new(&self.spec, self.network.clone(), fabric_seed, Options::default());
        let config = NetworkConfig { hosts: self.hosts.clone(), bodies: Bodies::Phantom, disk: None, key };
        World::new(Network::new(carrier, &self.spec, config), |wire| node(wire, plan, policy, layout))
    }

    /// Runs `policy` once.
    pub(super) fn run(&self, plan: &Plan, policy: Policy, seed: u64) -> Result<Outcome> {
        let started = Instant::now();
        let ranks = plan.inputs + plan.builders;
        let (inputs, builders) = ((0..plan.inputs).map(Rank), (plan.inputs..ranks).map(Rank));
        let layout = Arc::new(Layout::new(inputs.collect(), builders.collect(), &[])?);
        let mut world = self.world(plan, policy, &layout, seed);
        for rank in 0..plan.inputs {
            let skew =
                RandomKey::new(seed).purpose("start").node(u64::from(rank)).stream().below(plan.start_skew.0 + 1);
            world.command(Picos::from(Nanos(skew)), Rank(rank), Command::Begin);
        }
        let mut refused = None;
        let mut hear = |told: clearway_sim::world::Told<'_, Node>| {
            if let Event::Refused { missing, .. } = told.event {
                refused.get_or_insert(missing);
            }
        };
        world.run_until(Picos::from(plan.warm_up), &mut hear);
        // Who is ahead of whom counts from the beginning.
        let mut sent = vec![0; plan.inputs as usize];
        for (rank, record) in records(&mut world, ranks) {
            if let Record::Input(record) = record {
                sent[rank.index()] = record.contributions;
            }
        }
        let packets = world.network().carrier().totals().packets;
        let mut gap = Histogram::new();
        let mut outcome = Outcome::default();
        for sample in 1..=SAMPLES {
            let at = plan.warm_up + Nanos(plan.measured.0 * sample / SAMPLES);
            world.run_until(Picos::from(at), &mut hear);
            for (rank, record) in records(&mut world, ranks) {
                match record {
                    Record::Input(record) => {
                        sent[rank.index()] += record.contributions;
                        outcome.blocked.iter_mut().zip(record.blocked).for_each(|(sum, more)| *sum = *sum + more);
                    }
                    Record::Builder(record) => {
                        outcome.bytes += record.bytes;
                        outcome.timeslices += record.timeslices;
                        outcome.completion.merge(&record.completion);
                        outcome.fill.merge(&record.fill);
                        if sample == SAMPLES {
                            outcome.windows.extend(record.window);
                        }
                    }
                }
            }
            gap.record(sent.iter().max().unwrap_or(&0) - sent.iter().min().unwrap_or(&0));
        }
        if let Some(missing) = refused {
            return Err(anyhow!("timeslices cannot be built on this fabric: {missing}"));
        }
        outcome.gap = gap;
        outcome.packets = world.network().carrier().totals().packets - packets;
        outcome.wall = started.elapsed();
        outcome.digest = world.digest();
        Ok(outcome)
    }
}

fn records(world: &mut World<Node, fabric::Fabric>, ranks: u32) -> Vec<(Rank, Record)> {
    let take = |rank| {
        let now = world.network_mut().wire(rank).now();
        world.engine_mut(rank).and_then(|engine| engine.take_record(now)).map(|record| (rank, record))
    };
    (0..ranks).map(Rank).filter_map(take).collect()
}

fn node(wire: &mut SimWire, plan: &Plan, policy: Policy, layout: &Arc<Layout>) -> Node {
    let source = wire.register(plan.contribution).expect("a fresh end has room for a region");
    let rings = Bytes(plan.ring.0 * u64::from(plan.inputs));
    let region = wire.register(rings).expect("a fresh end has room for a region");
    let memory = Span { region: source, offset: 0, length: plan.contribution.0 as u32 };
    Node::new(NodeConfig {
        rank: wire.rank(),
        layout: layout.clone(),
        policy,
        window: plan.window,
        dfs: plan.dfs,
        source: Source::Endless(memory, Sizes::Constant(plan.contribution)),
        slots: Slots::of(policy),
        rings: Span { region, offset: 0, length: 0 },
        ring: plan.ring,
        release: Release::AtOnce,
        heartbeat: None,
        class: Class::Bulk,
        control: Class::Control,
    })
}
