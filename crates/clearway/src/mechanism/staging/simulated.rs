//! The test on a simulated machine: each case in a world of its own, quiet and beside writers.
//!
//! # Invariants
//! I1. A case differs from itself on another queue in the queue, and from its quiet twin in the
//!     writers, in nothing else.

use anyhow::{Context, Result, anyhow, bail};
use clearway_proto::base::{BitsPerSec, Bytes, LocalNs, Nanos, Rank};
use clearway_proto::stats::Histogram;
use clearway_proto::wire::{RegionId, Wire};
use clearway_sim::Picos;
use clearway_sim::fabric::FabricOptions;
use clearway_sim::wire::{ContentModel, SimWire};

use super::PROCESSES;
use super::engine::{
    APPLICATION, ApplicationPart, ProcessEngine, ProcessRole, WRITTEN, WriterPart,
};
use super::plan::{HostPace, StagingCase, StagingPlaces, cases};
use super::section::{StagingSection, StagingTest};
use crate::run::venue::{SimMachine, SimVenue};

/// How long a world runs before it is asked whether the application is over.
const STRETCH: Picos = Picos::from_micros(500);

/// What a case showed.
#[derive(Clone, Debug)]
pub(super) struct StagingResult {
    pub(super) queue: String,
    pub(super) case: StagingCase,
    pub(super) noise: NoiseKind,
    /// Iterations of all processes that measured, and the mean of them in ns.
    pub(super) iterations: Histogram,
    pub(super) mean: f64,
    /// Bytes in a second that all writers got rid of.
    pub(super) written: f64,
}

/// Whether anybody writes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum NoiseKind {
    Quiet,
    Writers,
}

impl NoiseKind {
    pub(super) const ALL: [Self; 2] = [Self::Quiet, Self::Writers];

    pub(super) const fn name(self) -> &'static str {
        match self {
            Self::Quiet => "quiet",
            Self::Writers => "writers",
        }
    }
}

/// Runs all cases of `test` on the machine of `venue`, whose queue is called `queue`; weights are swept
/// on the first queue that has some.
///
/// # Errors
/// One sentence: the fabric cannot carry it, or a case does not come to its end.
pub(super) fn run(
    venue: &mut SimVenue,
    test: &StagingSection,
    queue: &str,
    earlier: &[StagingResult],
) -> Result<Vec<StagingResult>> {
    let machine = venue.machine()?;
    if !machine.spec.holds_back() {
        bail!("{} drops messages; a fabric with credits or pause frames works", machine.spec.name);
    }
    let nodes = machine.hosts.len() as u32 / u32::from(PROCESSES);
    let mut cases = cases(test, &machine.spec, nodes);
    if earlier.iter().any(|it| it.case.test == StagingTest::Weights) {
        // Weights are of adapters' tables, and no port of a switch is full meanwhile.
        cases.retain(|case| case.test != StagingTest::Weights);
    }
    let mut results = Vec::new();
    for case in cases {
        eprintln!("{queue}: {} {}", case.test.name(), case.what);
        // Weights are of two that send.
        let is_swept = case.levels.is_some();
        for noise in NoiseKind::ALL.into_iter().filter(|it| !is_swept || *it == NoiseKind::Writers)
        {
            results.push(world(venue, test, queue, &case, noise)?);
        }
    }
    Ok(results)
}

/// Returns what each process does in `case`.
fn roles(
    test: &StagingSection,
    case: &StagingCase,
    noise: NoiseKind,
    ranks: u32,
) -> Vec<ProcessRole> {
    let places = StagingPlaces::new(test, ranks / u32::from(PROCESSES));
    let begin = LocalNs(test.warm_up.0.0);
    let mut roles = vec![ProcessRole::Waiting; ranks as usize];
    for (rank, steps) in &case.pattern.processes {
        let part = ApplicationPart { steps: steps.clone(), iterations: case.iterations, begin };
        roles[rank.index()] = ProcessRole::Application(part);
    }
    let writing = case.writing.iter().filter(|_| noise == NoiseKind::Writers);
    for (turn, node) in (0..).zip(writing) {
        let slots = test.writers * test.depth;
        // Writers that began at one instant would write in step for ever.
        let first = LocalNs(test.pause.0.0 * turn / case.writing.len().max(1) as u64);
        roles[StagingPlaces::staging(*node).index()] = ProcessRole::Writer(WriterPart {
            server: StagingPlaces::staging(places.server(*node)),
            request: test.request.0 as u32,
            pause: test.pause.0,
            slots: vec![Some(first); slots as usize],
            begin,
        });
    }
    roles
}

fn world(
    venue: &mut SimVenue,
    test: &StagingSection,
    queue: &str,
    case: &StagingCase,
    noise: NoiseKind,
) -> Result<StagingResult> {
    let started = std::time::Instant::now();
    let key = venue.key();
    let machine = altered(venue.machine()?, case)?;
    let ranks = machine.hosts.len() as u32;
    let mut roles = roles(test, case, noise, ranks).into_iter();
    let longest = test.large.max(test.block).max(test.request).max(Bytes(2 << 20));
    let carrier = machine.carrier(key, FabricOptions::default());
    let mut world = machine.world(carrier, ContentModel::Lengths, key, |wire: &mut SimWire| {
        let memory = wire.register(longest).unwrap_or(RegionId::RECEIVE);
        ProcessEngine::new(roles.next().unwrap_or(ProcessRole::Waiting), memory)
    });
    let limit = Picos::from(test.limit.0);
    let mut until = Picos::from(test.warm_up.0);
    let all = || (0..ranks).map(Rank);
    loop {
        until = Picos(until.0 + STRETCH.0);
        world.run_until(until, &mut |_| ());
        if all().all(|rank| world.engine_mut(rank).is_some_and(|engine| engine.is_over())) {
            break;
        }
        if until >= limit {
            bail!(
                "{} {} on {queue} is not over after {} of simulated time; more of `limit` works, or fewer iterations",
                case.test.name(),
                case.what,
                test.limit
            );
        }
    }
    let (mut iterations, mut sum, mut requests) = (Histogram::new(), 0u64, 0u64);
    for rank in all() {
        let engine = world.engine_mut(rank).context("a process is down")?;
        let record =
            engine.record().map_err(|why| anyhow!("{} on {queue}: {why}", case.test.name()))?;
        iterations.merge(&record.iterations);
        sum += record.sum;
        requests += record.requests;
    }
    let measured = Nanos((until.0 / 1000).saturating_sub(test.warm_up.0.0).max(1));
    let written = (requests * test.request.0) as f64 / measured.as_secs_f64();
    let (digest, totals, steps) =
        (world.digest(), world.network().carrier().totals(), world.steps());
    venue.digests.push(format!("{digest:032x}"));
    let spent = &mut venue.spent;
    spent.wall += started.elapsed();
    spent.simulated = spent.simulated + Nanos(until.0 / 1000);
    spent.events += totals.events;
    spent.packets += totals.packets;
    spent.steps += steps;
    let (queue, case) = (queue.to_owned(), case.clone());
    let mean = sum as f64 / iterations.count().max(1) as f64;
    Ok(StagingResult { queue, case, noise, iterations, mean, written })
}

/// Returns `machine` with the service levels and the hosts of `case`.
fn altered(machine: &SimMachine, case: &StagingCase) -> Result<SimMachine> {
    let mut spec = machine.spec.clone();
    if let Some([application, written]) = case.levels {
        spec.classes.service_level[APPLICATION.index()] = application;
        spec.classes.service_level[WRITTEN.index()] = written;
    }
    if case.host == HostPace::AboveCable {
        spec.host.memory_rate = BitsPerSec(machine.host_rate().0.saturating_mul(2));
    }
    SimMachine::build(spec, machine.hosts.clone())
}
