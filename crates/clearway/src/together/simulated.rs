//! Runs all mechanisms on one simulated machine.
//!
//! # Model
//! Each run is a world of its own. Its ranks are four jobs: on each host one of the application, and
//! one that is a member of the cast and a staging client or server (the engines of the congestion
//! test, with their loads); the ranks of timeslice building; and the PEs. Each rank has a processor;
//! the ranks of a host share its interface.
//!
//! # Invariants
//! I1. Runs differ in the queue and in which transfers there are, in nothing else.

use std::time::Instant;

use anyhow::{Context, Result, anyhow, bail};
use clearway_proto::base::{BitsPerSec, Bytes, Class, LocalNs, Nanos, RandomKey, Rank};
use clearway_proto::congestion::{
    CongestionEvent, CongestorKind, LoadIntensity, LoadTask, Phase, PhaseRecord,
};
use clearway_proto::timeslice::{
    ContributionSizes, ContributionSource, Dfs, Policy, ReleasePolicy, TimesliceCommand,
    TimesliceConfig, TimesliceEvent, TimesliceLayout, TimesliceNode, TimesliceRecord,
    Window as GrantWindow, WriteSlots,
};
use clearway_proto::wire::{Engine, Input, More, Out, Span, Wire};
use clearway_sim::Picos;
use clearway_sim::fabric::{self, FabricOptions};
use clearway_sim::wire::{ContentModel, SimWire};
use clearway_sim::world::{World, WorldEvent};

use super::job::JobRank;
use super::outcome::{BusiestLink, SharedRun, TransferSet};
use super::roles::{HostRoles, Transfer};
use super::section::TogetherSection;
use crate::mechanism::congestion::simulated::{overhead, test_rank};
use crate::mechanism::congestion::staging_load::TestWithStaging;
use crate::mechanism::congestion::windows::Windows;
use crate::mechanism::shmem::{PeEngine, putter};
use crate::run::reached;
use crate::run::venue::{CounterReading, SimMachine, SimVenue};

/// Virtual time between boot and the beginning of a run: commands are read long before.
const LEAD: Nanos = Nanos::from_micros(10);
const BEGIN: LocalNs = LocalNs(LEAD.0);

/// An engine of one rank.
enum SharedRank {
    Test(Box<TestWithStaging>),
    Timeslices(Box<CountedTimeslices>),
    Pe(Box<JobRank<PeEngine>>),
    /// Of a transfer that takes no part.
    Absent,
}

/// A rank of timeslice building, and the bytes that landed at it.
struct CountedTimeslices {
    job: JobRank<TimesliceNode>,
    bytes: u64,
}

impl CountedTimeslices {
    /// Returns the bytes that have landed by `now`.
    fn landed(&mut self, now: LocalNs) -> u64 {
        if let Some(TimesliceRecord::Builder(record)) = self.job.engine_mut().take_record(now) {
            self.bytes += record.bytes;
        }
        self.bytes
    }
}

impl Engine for SharedRank {
    type Command = Phase;
    type Event = CongestionEvent;

    fn input(
        &mut self,
        now: LocalNs,
        input: Input<'_, Phase>,
        out: &mut Out<CongestionEvent>,
    ) -> More {
        match self {
            Self::Test(test) => test.input(now, input, out),
            // Nothing ends before the run does, and nobody dies in it.
            Self::Timeslices(rank) => rank.job.input(now, &input, out, &mut |_: TimesliceEvent| ()),
            Self::Pe(rank) => rank.input(now, &input, out, &mut |()| ()),
            Self::Absent => More::No,
        }
    }

    fn deadline(&self) -> Option<LocalNs> {
        match self {
            Self::Test(test) => test.deadline(),
            Self::Timeslices(rank) => rank.job.deadline(),
            Self::Pe(rank) => rank.deadline(),
            Self::Absent => None,
        }
    }
}

/// One run before it begins.
struct SharedPlan<'a> {
    test: &'a TogetherSection,
    roles: &'a HostRoles,
    windows: Windows,
    set: TransferSet,
    /// Hosts, and the rate of their links.
    hosts: u32,
    rate: BitsPerSec,
}

impl SharedPlan<'_> {
    /// Returns the world's number of the first rank of timeslice building, and of the first PE. Before
    /// them come those of the application, then those of the cast and the checkpoint.
    const fn first(&self) -> [u32; 2] {
        [2 * self.hosts, 2 * self.hosts + self.roles.builders.end - self.roles.inputs.start]
    }

    /// Returns the ranks on `hosts` that cast and stage.
    fn loading(&self, hosts: &[Rank]) -> Vec<Rank> {
        hosts.iter().map(|host| Rank(self.hosts + host.0)).collect()
    }

    fn ranks(&self) -> u32 {
        self.first()[1] + self.roles.pes.len() as u32
    }

    /// Returns when transfers run.
    fn load(&self) -> [Nanos; 2] {
        let Windows { grid, load, .. } = self.windows;
        [load.from, load.until].map(|slice| grid.slices(slice))
    }

    /// Returns how long the run takes: a rank whose processor is away when it ends answers later.
    fn length(&self) -> Nanos {
        LEAD + self.windows.length() + self.windows.grid.drain.times(2)
    }

    fn lifetime(&self) -> [LocalNs; 2] {
        self.load().map(|at| BEGIN + at)
    }

    /// Returns what `rank` does, of those with the engines of the congestion test.
    fn order(&self, rank: Rank, overhead: Bytes) -> Phase {
        let Windows { grid, .. } = self.windows;
        let is_application = rank.0 < self.hosts;
        let interval = self.test.application_interval.0;
        let victim = is_application.then(|| self.roles.application(rank, interval));
        let loads = if is_application { Vec::new() } else { self.loads(rank) };
        let (length, drain, slice) = (self.windows.length(), grid.drain, grid.slice);
        Phase { number: 1, begin: BEGIN, length, drain, slice, overhead, victim, loads }
    }

    /// Returns the parts of `rank` in the cast and the checkpoint.
    fn loads(&self, rank: Rank) -> Vec<LoadTask> {
        let pressure =
            LoadIntensity { percent: 100, host_rate: self.rate, window: None, burst: None };
        let [from, until] = self.load();
        let load = |transfer: Transfer, kind: CongestorKind, number: usize, hosts: &[Rank]| {
            let kind = kind.load(number, &self.loading(hosts), rank, pressure)?;
            Some(LoadTask { kind, class: transfer.class(), from, until })
        };
        let mut loads = Vec::new();
        if self.set.has(Transfer::Cast) {
            loads.extend(load(Transfer::Cast, CongestorKind::Cast, 0, &self.roles.members));
        }
        if self.set.has(Transfer::Checkpoint) {
            let groups = self.roles.staging.iter();
            let staging = CongestorKind::Staging;
            loads.extend(groups.filter_map(|group| load(Transfer::Checkpoint, staging, 1, group)));
        }
        loads
    }

    /// Returns the engine of the rank `me` of timeslice building.
    fn timeslices(&self, wire: &mut SimWire, me: u32) -> Result<TimesliceNode> {
        let HostRoles { inputs, builders, .. } = self.roles;
        let ranks = inputs.end - inputs.start + builders.end - builders.start;
        let count = inputs.end - inputs.start;
        let layout = TimesliceLayout::new(
            (0..count).map(Rank).collect(),
            (count..ranks).map(Rank).collect(),
            &[],
        )?;
        let length = self.test.contribution;
        let ring = Bytes(length.0 * u64::from(self.test.ring_contributions));
        let mut register = |length| wire.register(length).map_err(|why| anyhow!("{why}"));
        let source = register(length)?;
        let region = register(Bytes(ring.0 * u64::from(count)))?;
        let memory = Span { region: source, offset: 0, length: length.0 as u32 };
        Ok(TimesliceNode::new(TimesliceConfig {
            rank: Rank(me),
            run: 0,
            layout: layout.into(),
            policy: Policy::Token,
            window: GrantWindow { least: 2, most: self.test.ring_contributions },
            dfs: Dfs::default(),
            source: ContributionSource::Endless(memory, ContributionSizes::Constant(length)),
            slots: WriteSlots::from_policy(Policy::Token),
            rings: Span { region, offset: 0, length: 0 },
            ring,
            release: ReleasePolicy::AtOnce,
            heartbeat: None,
            class: Transfer::Timeslices.class(),
            control: Class::Control,
        }))
    }

    /// Returns the machine with the ranks of all jobs.
    fn machine(&self, machine: &SimMachine) -> Result<SimMachine> {
        let of_building = self.roles.inputs.start..self.roles.builders.end;
        let more = of_building.map(Rank).chain(self.roles.pes.iter().copied());
        let mut hosts = machine.hosts.repeat(2);
        hosts.extend(more.map(|host| machine.hosts[host.index()]));
        let built = SimMachine::build(machine.spec.clone(), hosts)?;
        Ok(SimMachine { body_max: machine.body_max, ..built })
    }

    /// Returns the engine at the end of `wire`; `order` is what it does where it is that of the congestion
    /// test.
    fn engine(
        &self,
        machine: &SimMachine,
        key: RandomKey,
        wire: &mut SimWire,
        order: Option<&Phase>,
    ) -> Result<SharedRank> {
        let rank = wire.rank().0;
        if let Some(order) = order {
            let (test, refused) = test_rank(machine, wire, key, order);
            return refused.map_or_else(|| Ok(SharedRank::Test(Box::new(test))), Err);
        }
        let ([timeslices, pes], lifetime) = (self.first(), self.lifetime());
        let transfer = if rank < pes { Transfer::Timeslices } else { Transfer::Puts };
        if !self.set.has(transfer) {
            return Ok(SharedRank::Absent);
        }
        if transfer == Transfer::Timeslices {
            let node = self.timeslices(wire, rank - timeslices)?;
            let is_input = rank - timeslices < self.roles.inputs.len() as u32;
            let begin = is_input.then_some(TimesliceCommand::Begin);
            let job = JobRank::new(node, timeslices, lifetime, begin);
            return Ok(SharedRank::Timeslices(Box::new(CountedTimeslices { job, bytes: 0 })));
        }
        let place = [rank - pes, self.roles.pes.len() as u32];
        let load = (transfer.class(), self.test.put_window);
        let pe = putter(wire, place, self.test.put, load, lifetime[1]);
        let pe = pe.context(
            "this fabric cannot carry OpenSHMEM puts; the preset of `clearway run together` can",
        )?;
        Ok(SharedRank::Pe(Box::new(JobRank::new(pe, pes, lifetime, None))))
    }
}

/// Runs `set` of transfers on the machine of `venue`, whose queue is `queue`.
///
/// # Errors
/// One sentence: the fabric cannot carry a transfer.
pub(super) fn run(
    venue: &mut SimVenue,
    test: &TogetherSection,
    windows: Windows,
    set: TransferSet,
    queue: &str,
) -> Result<SharedRun> {
    let started = Instant::now();
    let given = venue.machine()?;
    if !given.spec.holds_back() {
        bail!(
            "the fabric {} drops messages, which [together] does not repeat; a fabric with credits or pause frames works",
            given.spec.name
        );
    }
    let (hosts, rate) = (given.hosts.len() as u32, given.host_rate());
    let roles = &HostRoles::new(hosts, test.staging_group, venue.key());
    let plan = SharedPlan { test, roles, windows, set, hosts, rate };
    let machine = plan.machine(given)?;
    let mut world = world(&plan, &machine, venue)?;
    let (mut run, readings) = measure(&plan, &machine, &mut world, queue)?;
    let what = format!("{} with the application", set.name());
    let [first, last] = &readings;
    let load = venue.keep(&what, [first, last])?;
    run.link = load.busiest.first().map(|port| BusiestLink::new(port, &load, &machine));
    venue.count(&world, plan.length(), started);
    Ok(run)
}

/// Returns the world of `plan` with all orders given.
fn world(
    plan: &SharedPlan<'_>,
    machine: &SimMachine,
    venue: &SimVenue,
) -> Result<World<SharedRank, fabric::Fabric>> {
    let key = venue.key().purpose("together");
    let head = overhead(machine);
    let orders: Vec<Phase> =
        (0..plan.first()[0]).map(|rank| plan.order(Rank(rank), head)).collect();
    let carrier = machine.carrier(key, FabricOptions::default());
    let mut refused = None;
    let mut world = machine.world(carrier, ContentModel::Phantom, key, |wire| {
        let order = orders.get(wire.rank().index());
        plan.engine(machine, key, wire, order).unwrap_or_else(|why| {
            refused = Some(why);
            SharedRank::Absent
        })
    });
    for (host, order) in (0..).map(Rank).zip(orders) {
        world.command(Picos::ZERO, host, order);
    }
    refused.map_or(Ok(world), Err)
}

/// Runs `world`, which is `plan`; what it showed, but for links, and what all ports had sent when the
/// window that counts began and ended.
fn measure(
    plan: &SharedPlan<'_>,
    machine: &SimMachine,
    world: &mut World<SharedRank, fabric::Fabric>,
    queue: &str,
) -> Result<(SharedRun, [CounterReading; 2])> {
    let Windows { grid, congested, after, .. } = plan.windows;
    let mut records: Vec<Option<PhaseRecord>> = vec![None; plan.first()[0] as usize];
    let mut hear = |reported: WorldEvent<'_, SharedRank>| match (reported.event, reported.engine) {
        (CongestionEvent::PhaseOver { .. }, SharedRank::Test(test)) => {
            if let Some(record) = records.get_mut(reported.rank.index()) {
                *record = test.take_record();
            }
        }
        (CongestionEvent::Burn(length), _) => reported.processor.spend(length.into()),
        _ => {}
    };
    let mut run = SharedRun::new(queue, plan.set, after.until);
    let (mut readings, mut earlier) = (Vec::new(), [0; 2]);
    for slice in 0..=after.until {
        let until = Picos::from(LEAD + grid.slices(slice));
        world.run_until(until, &mut hear);
        reached(until.0, Picos::from(plan.length()).0);
        if [congested.from, congested.until].contains(&slice) {
            readings.push(CounterReading::read(world.network().carrier(), &machine.spec, until));
        }
        let landed = landed(plan, world);
        if let Some(slice) = slice.checked_sub(1) {
            for ((transfer, now), before) in
                [Transfer::Puts, Transfer::Timeslices].into_iter().zip(landed).zip(earlier)
            {
                run.carried(transfer, slice, now - before);
            }
        }
        earlier = landed;
    }
    world.run_until(Picos::from(plan.length()), &mut hear);
    for record in records {
        let record = record
            .context("a simulated rank did not end its phase; this is a defect of the program")?;
        run.add_record(&record);
    }
    let readings = readings.try_into().map_err(|_| anyhow!("no window was measured"))?;
    Ok((run, readings))
}

/// Returns the bytes so far of puts, and of contributions to timeslices.
fn landed(plan: &SharedPlan<'_>, world: &mut World<SharedRank, fabric::Fabric>) -> [u64; 2] {
    let mut sums = [0; 2];
    for rank in (plan.first()[0]..plan.ranks()).map(Rank) {
        let now = world.network_mut().wire(rank).now();
        match world.engine_mut(rank) {
            Some(SharedRank::Pe(pe)) => sums[0] += pe.engine_mut().put_bytes(),
            Some(SharedRank::Timeslices(node)) => sums[1] += node.landed(now),
            _ => {}
        }
    }
    sums
}
