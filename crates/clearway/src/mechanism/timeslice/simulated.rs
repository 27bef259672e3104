//! Timeslice building on a simulated fabric: one policy, one seed, from the first hello to the end
//! of what is counted.

use std::cell::{OnceCell, RefCell};
use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Result, anyhow, bail};
use clearway_proto::base::{BitsPerSec, Bytes, Class, Nanos, RandomKey, Rank};
use clearway_proto::stats::Histogram;
use clearway_proto::timeslice::{
    Cause, ContributionSizes, ContributionSource, IntervalRecord, Policy, ReleasePolicy,
    TimesliceCommand, TimesliceConfig, TimesliceEvent, TimesliceLayout, TimesliceNode,
    TimesliceRecord, WriteSlots,
};
use clearway_proto::wire::{RefusalReason, Span, Wire};
use clearway_sim::Picos;
use clearway_sim::disk::Survival;
use clearway_sim::fabric::{self, FabricOptions};
use clearway_sim::spec::{FabricSpec, Jitter};
use clearway_sim::wire::{ContentModel, SimWire};
use clearway_sim::world::{World, WorldEvent};

use super::gantt::{self, Gantt};
use super::measured::{MeasuredNetwork, measure_simulated};
use super::numbers::CompletenessAudit;
use super::plan::{HostConditions, Neighbourhoods, TimeslicePlan, UnscheduledMessages, layout};
use super::scheduled_change::{DetectionTimes, ScheduledAction, ScheduledChange};
use crate::run::venue::SimMachine;
use crate::run::{notice, reached};
use crate::scenario::Fabric;

/// Samples of progress within what is counted.
const SAMPLES: u64 = 200;
/// The most of them, where a rotation is short.
const SAMPLES_MAX: u64 = 4_000;
/// Rotations of a gantt.
const FILM_ROTATIONS: u64 = 2;

/// A fabric, ready for runs.
pub(super) struct TimesliceTestBed {
    machine: SimMachine,
    seed: u64,
    /// Once it was asked for.
    measured: OnceCell<MeasuredNetwork>,
}

/// What one run showed.
#[derive(Clone, Debug, Default)]
pub(super) struct TimesliceOutcome {
    /// Whose time it was.
    pub(super) inputs: u32,
    /// How long it was counted.
    pub(super) measured: Nanos,
    /// Bytes that landed while it was counted.
    pub(super) bytes: u64,
    /// Timeslices complete while it was counted.
    pub(super) timeslices: u64,
    /// From the first to the last contribution of a timeslice, in ns.
    pub(super) completion: Histogram,
    /// Ring of a connection, in millionths of its length: by builder.
    pub(super) fills: Vec<Histogram>,
    /// Contributions by which the furthest input is ahead of the last.
    pub(super) gap: Histogram,
    /// Time of all inputs, by cause.
    pub(super) blocked: [Nanos; Cause::ALL.len()],
    /// Contributions let in at a time, of each builder.
    pub(super) windows: Vec<u32>,
    /// Bytes that landed in each sample.
    pub(super) pulse: Vec<u64>,
    /// Ranks that died, and when the others knew of it.
    pub(super) losses: BTreeMap<Rank, DetectionTimes>,
    /// How much was lost, or came twice; where all of it was counted.
    pub(super) audit: Option<CompletenessAudit>,
    /// What one builder made of the intervals, where the policy has any; from the beginning on.
    pub(super) intervals: Vec<IntervalRecord>,
    /// Which input sent to whom behind what was counted, where it was asked for.
    pub(super) gantt: Option<Gantt>,
    /// Simulated time, gantt left out.
    pub(super) simulated: Nanos,
    /// What that took of one processor; none where the kernel does not count it.
    pub(super) spent: Option<Duration>,
    /// Packets that arrived in it.
    pub(super) packets: u64,
    /// What happened: equal for equal runs.
    pub(super) digest: u128,
}

impl TimesliceOutcome {
    /// Creates an outcome with nothing yet, of a run of `plan` that is counted for `measured`.
    pub(super) fn new(plan: &TimeslicePlan, measured: Nanos) -> Self {
        let fills = vec![Histogram::new(); plan.builders as usize];
        Self { inputs: plan.inputs, measured, fills, ..Self::default() }
    }

    /// Adds what `rank` counted in one sample.
    pub(super) fn add(&mut self, rank: Rank, record: &TimesliceRecord) {
        match record {
            TimesliceRecord::Input(record) => {
                self.blocked
                    .iter_mut()
                    .zip(record.blocked)
                    .for_each(|(sum, more)| *sum = *sum + more);
            }
            TimesliceRecord::Builder(record) => {
                self.bytes += record.bytes;
                self.timeslices += record.timeslices;
                self.completion.merge(&record.completion);
                self.fills[rank.index() - self.inputs as usize].merge(&record.fill);
            }
        }
    }
}

/// What all ranks of one run know.
struct SimulatedJob<'a> {
    plan: &'a TimeslicePlan,
    policy: Policy,
    seed: u64,
    layout: Arc<TimesliceLayout>,
    /// Inputs among those that have joined wait for the request to begin.
    joined: RefCell<Vec<Rank>>,
}

impl<'a> SimulatedJob<'a> {
    fn new(
        plan: &'a TimeslicePlan,
        policy: Policy,
        seed: u64,
        test_bed: &TimesliceTestBed,
    ) -> Result<Self> {
        let ranks = (0..plan.inputs + plan.builders).map(Rank);
        let neighbourhoods = match &plan.neighbourhoods {
            Neighbourhoods::OfFabric => &ranks.map(|rank| test_bed.neighbourhood(rank)).collect(),
            Neighbourhoods::Measured => &test_bed.measured().by_rank,
            Neighbourhoods::OfRanks(by_rank) => by_rank,
        };
        let layout = layout([plan.inputs, plan.builders], &plan.weights, neighbourhoods)?;
        Ok(Self { plan, policy, seed, layout: Arc::new(layout), joined: RefCell::default() })
    }

    /// Lets a rank go or come.
    fn change(&self, world: &mut World<TimesliceNode, fabric::Fabric>, change: &ScheduledChange) {
        let (rank, now) = (Rank(change.when.rank), world.now());
        match change.wanted {
            ScheduledAction::Death => world.crash(rank, Survival::Nothing),
            ScheduledAction::Retirement => world.command(now, rank, TimesliceCommand::Retire),
            ScheduledAction::Return => {
                if world.engine_mut(rank).is_none() {
                    world.restart(rank, |wire| self.node(wire));
                }
                world.command(now, rank, TimesliceCommand::Join);
            }
        }
    }

    /// Returns the engine at the end of `wire`.
    fn node(&self, wire: &mut SimWire) -> TimesliceNode {
        let Self { plan, policy, .. } = *self;
        let sizes = match plan.messages {
            UnscheduledMessages::Alone => ContributionSizes::Constant(plan.contribution),
            UnscheduledMessages::Mixed => ContributionSizes::Mixed(plan.contribution),
        };
        let length = sizes.length_at(0);
        let source = wire.register(length).expect("a fresh end has room for a region");
        let rings = Bytes(plan.ring.0 * u64::from(plan.inputs));
        let region = wire.register(rings).expect("a fresh end has room for a region");
        let memory = Span { region: source, offset: 0, length: length.0 as u32 };
        TimesliceNode::new(TimesliceConfig {
            rank: wire.rank(),
            run: 0,
            layout: self.layout.clone(),
            policy,
            window: plan.window,
            dfs: plan.dfs,
            source: ContributionSource::Endless(memory, sizes),
            slots: WriteSlots::from_policy(policy),
            rings: Span { region, offset: 0, length: 0 },
            ring: plan.ring,
            release: ReleasePolicy::AtOnce,
            heartbeat: plan.heartbeat,
            class: plan.class(),
            control: Class::Control,
        })
    }
}

/// Whether the end of a run is filmed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum GanttRecording {
    Yes,
    No,
}

impl TimesliceTestBed {
    /// Opens the hosts of `fabric` under `queue`, under these `conditions`.
    pub(super) fn open(
        fabric: &Fabric,
        queue: &str,
        seed: u64,
        conditions: &HostConditions,
    ) -> Result<Self> {
        SimMachine::open(fabric, queue, RandomKey::new(seed), &|spec| apply(spec, conditions))
            .map(|machine| Self { machine, seed, measured: OnceCell::new() })
    }

    /// Returns the rate at which an interface fetches and places.
    pub(super) fn host_rate(&self) -> BitsPerSec {
        self.machine.spec.host.memory_rate
    }

    /// Returns the neighbourhood of the host of `rank`.
    fn neighbourhood(&self, rank: Rank) -> u32 {
        self.machine.spec.topology.neighbourhood(self.machine.hosts[rank.index()])
    }

    /// Returns what its hosts measure of the network, and says it the first time.
    fn measured(&self) -> &MeasuredNetwork {
        self.measured.get_or_init(|| {
            let measured = measure_simulated(&self.machine, self.seed);
            notice!("seed {}: {}", self.seed, measured.about());
            measured
        })
    }

    fn world(&self, job: &SimulatedJob<'_>) -> World<TimesliceNode, fabric::Fabric> {
        let key = RandomKey::new(job.seed);
        let carrier = self.machine.carrier(key, FabricOptions::default());
        self.machine.world(carrier, ContentModel::Lengths, key, |wire| job.node(wire))
    }

    /// Lets every input fetch at this many hundredths of its own rate.
    fn pace_inputs(
        &self,
        world: &mut World<TimesliceNode, fabric::Fabric>,
        plan: &TimeslicePlan,
        seed: u64,
        percent: u32,
    ) {
        for rank in 0..plan.inputs {
            let mut stream = RandomKey::new(seed).purpose("rate").node(u64::from(rank)).stream();
            let slower = stream.below(u64::from(plan.hosts.spread) * 1_000 + 1);
            let rate = u128::from(self.host_rate().0)
                * u128::from(1_000_000 - slower)
                * u128::from(percent)
                / 100_000_000;
            let host = world.network().host(Rank(rank));
            world.network_mut().carrier_mut().limit_fetch(host, BitsPerSec((rate as u64).max(1)));
        }
    }

    /// Runs `policy` once.
    pub(super) fn run(
        &self,
        plan: &TimeslicePlan,
        policy: Policy,
        seed: u64,
        recording: GanttRecording,
    ) -> Result<TimesliceOutcome> {
        let plan = &plan.with_policy(policy, self.host_rate());
        if self.machine.hosts.len() < (plan.inputs + plan.builders) as usize {
            bail!(
                "the fabric has {} hosts for {} inputs and {} builders",
                self.machine.hosts.len(),
                plan.inputs,
                plan.builders
            );
        }
        let started = processor_time();
        let job = SimulatedJob::new(plan, policy, seed, self)?;
        let mut world = self.begun(&job);
        let mut refused = None;
        let deaths = plan
            .changes
            .iter()
            .filter(|change| change.wanted == ScheduledAction::Death)
            .map(|change| change.when);
        let mut losses: BTreeMap<Rank, DetectionTimes> =
            deaths.map(|kill| (Rank(kill.rank), DetectionTimes::from_death(kill.at))).collect();

        let mut hear = |reported: WorldEvent<'_, TimesliceNode>| match reported.event {
            TimesliceEvent::Refused { missing, .. } => refused = refused.or(Some(missing)),
            TimesliceEvent::Lost { rank, .. } => {
                let known = losses.get_mut(&rank);
                known.into_iter().for_each(|known| {
                    known.and(Nanos(reported.at.nanos().0.saturating_sub(plan.warm_up.0)))
                });
            }
            TimesliceEvent::Joined { .. } => job.joined.borrow_mut().push(reported.rank),
            _ => {}
        };
        world.run_until(Picos::from(plan.warm_up), &mut hear);
        let mut outcome = self.measure(&mut world, &job, &mut hear);
        outcome.simulated = plan.warm_up + plan.measured;
        outcome.spent =
            processor_time().zip(started).map(|(now, started)| now.saturating_sub(started));
        (outcome.packets, outcome.digest) =
            (world.network().carrier().totals().packets, world.digest());
        if recording == GanttRecording::Yes {
            let (rate, slot) = (self.host_rate(), self.host_rate().time_for(plan.contribution));
            let length = plan.rotation_at(rate).times(FILM_ROTATIONS);
            outcome.gantt = Some(gantt::record(&mut world, plan, length, slot, &mut hear));
        }
        outcome.losses = losses;
        refused.map_or(Ok(outcome), |missing: RefusalReason| {
            Err(anyhow!("timeslices cannot be built on this fabric: {missing}"))
        })
    }

    /// Returns a world in which every input knows when it begins.
    fn begun(&self, job: &SimulatedJob<'_>) -> World<TimesliceNode, fabric::Fabric> {
        let SimulatedJob { plan, seed, .. } = *job;
        let mut world = self.world(job);
        if plan.hosts.spread > 0 {
            self.pace_inputs(&mut world, plan, seed, 100);
        }
        for rank in 0..plan.inputs {
            let skew = RandomKey::new(seed)
                .purpose("start")
                .node(u64::from(rank))
                .stream()
                .below(plan.start_skew.0 + 1);
            world.command(Picos::from(Nanos(skew)), Rank(rank), TimesliceCommand::Begin);
        }
        world
    }

    /// Counts what happens behind the warm-up, sample by sample.
    fn measure(
        &self,
        world: &mut World<TimesliceNode, fabric::Fabric>,
        job: &SimulatedJob<'_>,
        hear: &mut dyn FnMut(WorldEvent<'_, TimesliceNode>),
    ) -> TimesliceOutcome {
        let SimulatedJob { plan, seed, .. } = *job;
        let mut tally = SampleTally::begun(world, plan, self.host_rate());
        let samples = samples(plan, self.host_rate());
        let mut slowed = false;
        for sample in 1..=samples {
            let at = Nanos(plan.measured.0 / samples * (sample - 1));
            let slow = plan.slowdown.filter(|slow| slow.time().contains(&at));
            if slow.is_some() != slowed {
                slowed = slow.is_some();
                self.pace_inputs(world, plan, seed, slow.map_or(100, |slow| 100 - slow.percent));
            }
            let step = Nanos(plan.measured.0 / samples);
            for change in
                plan.changes.iter().filter(|change| (at..at + step).contains(&change.when.at))
            {
                world.run_until(Picos::from(plan.warm_up + change.when.at), hear);
                job.change(world, change);
            }
            let until = plan.warm_up + at + step;
            world.run_until(Picos::from(until), hear);
            for rank in job.joined.take() {
                world.command(world.now(), rank, TimesliceCommand::Begin);
            }
            tally.sample(world, plan);
            reached(until.0, (plan.warm_up + plan.measured).0);
        }
        tally.outcome
    }
}

/// What is counted sample by sample.
struct SampleTally {
    /// By input: contributions since the beginning. Which input is ahead of which counts from
    /// there.
    sent: Vec<u64>,
    outcome: TimesliceOutcome,
}

impl SampleTally {
    /// Creates the tally of a world that is warm.
    fn begun(
        world: &mut World<TimesliceNode, fabric::Fabric>,
        plan: &TimeslicePlan,
        rate: BitsPerSec,
    ) -> Self {
        let count = samples(plan, rate);
        let measured = Nanos(plan.measured.0 / count * count);
        let mut tally = Self {
            sent: vec![0; plan.inputs as usize],
            outcome: TimesliceOutcome::new(plan, measured),
        };
        for (rank, record) in records(world, plan) {
            match record {
                TimesliceRecord::Input(record) => tally.sent[rank.index()] = record.contributions,
                TimesliceRecord::Builder(record) if rank.0 == plan.inputs => {
                    tally.outcome.intervals = record.intervals
                }
                TimesliceRecord::Builder(_) => {}
            }
        }
        tally
    }

    fn sample(&mut self, world: &mut World<TimesliceNode, fabric::Fabric>, plan: &TimeslicePlan) {
        let outcome = &mut self.outcome;
        let before = outcome.bytes;
        outcome.windows.clear();
        for (rank, record) in records(world, plan) {
            outcome.add(rank, &record);
            match record {
                TimesliceRecord::Input(record) => self.sent[rank.index()] += record.contributions,
                TimesliceRecord::Builder(record) => {
                    outcome.windows.extend(record.window);
                    if rank.0 == plan.inputs {
                        outcome.intervals.extend(record.intervals);
                    }
                }
            }
        }
        outcome.pulse.push(outcome.bytes - before);
        let (first, last) = (self.sent.iter().max(), self.sent.iter().min());
        outcome.gap.record(first.unwrap_or(&0) - last.unwrap_or(&0));
    }
}

/// Returns how often progress is looked at: twice a rotation where something is to be seen of
/// recovery.
fn samples(plan: &TimeslicePlan, rate: BitsPerSec) -> u64 {
    let half = (plan.rotation_at(rate).0 / 2).max(1);
    let wanted = if plan.slowdown.is_some() || !plan.changes.is_empty() {
        plan.measured.0 / half
    } else {
        SAMPLES
    };
    wanted.clamp(SAMPLES, SAMPLES_MAX).min(plan.measured.0.max(1))
}

/// Returns how long this thread has had a processor: other work on the machine does not count.
/// proc_pid_schedstat: the first number, in ns.
fn processor_time() -> Option<Duration> {
    let text = std::fs::read_to_string("/proc/thread-self/schedstat").ok()?;
    text.split_whitespace().next()?.parse().ok().map(Duration::from_nanos)
}

/// Makes the hosts of `spec` what `conditions` say.
fn apply(spec: &mut FabricSpec, conditions: &HostConditions) {
    spec.host.memory_rate = conditions.rate.unwrap_or(spec.host.memory_rate);
    if let Some((period, length)) = conditions.interruptions {
        spec.host.jitter = Jitter { period: period.into(), length: length.into(), rare: 0 };
    }
    if let Some(payload) = conditions.packet {
        // Buffers that hold two packets keep a cable busy, whatever the grain.
        let two = Bytes(2 * (payload.0 + spec.packet.header.0));
        spec.packet.payload = payload;
        spec.links.iter_mut().for_each(|link| link.buffer = link.buffer.max(two));
    }
}

fn records(
    world: &mut World<TimesliceNode, fabric::Fabric>,
    plan: &TimeslicePlan,
) -> Vec<(Rank, TimesliceRecord)> {
    let take = |rank| {
        let now = world.network_mut().wire(rank).now();
        world
            .engine_mut(rank)
            .and_then(|engine| engine.take_record(now))
            .map(|record| (rank, record))
    };
    (0..plan.inputs + plan.builders).map(Rank).filter_map(take).collect()
}
