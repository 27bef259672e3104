//! The test on a simulated machine: each case in a world of its own, quiet and with writers.
//!
//! # Invariants
//! I1. A case differs from itself on another queue in the queue, and from its quiet twin in the
//!     writers, in nothing else.

use anyhow::{Context, Result, anyhow, bail};
use clearway_proto::base::{BitsPerSec, Bytes, LocalNs, Nanos, Rank};
use clearway_proto::stats::Histogram;
use clearway_sim::Picos;
use clearway_sim::fabric::{Fabric, FabricOptions};
use clearway_sim::wire::{ContentModel, SimWire};
use clearway_sim::world::World;

use super::PROCESSES;
use super::engine::{
    APPLICATION, ApplicationPart, ProcessRecord, ProcessRole, WRITTEN, WriterPart,
};
use super::plan::{HostPace, StagingCase, StagingPlaces, StorageRates, cases};
use super::process::{NodeProcess, StorageEnd};
use super::section::{StagingSection, StagingTest};
use super::storage::{ServePart, StoragePart, WritePart};
use crate::run::venue::{SimMachine, SimVenue};
use crate::run::{detail, reached};

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
    /// How long the last client of a checkpoint wrote.
    pub(super) blocked: Option<Nanos>,
    /// Whether a part of a checkpoint was on its way until the end.
    pub(super) outlasts: bool,
}

impl StagingResult {
    /// Returns a warning where a checkpoint ended before its application.
    pub(super) fn too_short(&self) -> Option<String> {
        let is_loaded = matches!(self.noise, NoiseKind::Drain | NoiseKind::Mounts);
        let Self { queue, case, noise, .. } = self;
        (is_loaded && !self.outlasts).then(|| {
            format!(
                "{queue}: {} ran longer than the checkpoint ({}), so its ratio is lower than under a longer one; \
                 a larger `checkpoint` or fewer `pattern-iterations` work",
                case.what,
                noise.name()
            )
        })
    }
}

/// What is written meanwhile, and to where.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum NoiseKind {
    Quiet,
    /// Writers of requests.
    Writers,
    /// Servers drain a checkpoint.
    Drain,
    /// Clients write a checkpoint, and servers drain what they have of it.
    Mounts,
    /// Clients write a checkpoint to the store.
    Direct,
    /// Clients write a checkpoint to servers, which drain it.
    Staged,
}

impl NoiseKind {
    pub(super) const QUIET_AND_WRITERS: [Self; 2] = [Self::Quiet, Self::Writers];

    pub(super) const fn name(self) -> &'static str {
        match self {
            Self::Quiet => "quiet",
            Self::Writers => "writers",
            Self::Drain => "drain",
            Self::Mounts => "mounts",
            Self::Direct => "direct",
            Self::Staged => "staged",
        }
    }
}

/// Runs all cases of `test` on the machine of `venue`, whose queue is called `queue`; weights are swept
/// on the first queue that has some, and checkpoints are written on the first queue.
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
    if !earlier.is_empty() {
        // A checkpoint has the network for itself: all of it is one class.
        cases.retain(|case| case.test != StagingTest::Checkpoint);
    }
    let mut results = Vec::new();
    let count = cases.len() as u64;
    for (number, case) in (0..).zip(cases) {
        reached(number, count);
        detail!("{queue}: {} {}", case.test.name(), case.what);
        for noise in &case.noises {
            results.push(world(venue, test, queue, &case, *noise)?);
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
    if let Some(rates) = &case.storage {
        let storage = storage(test, case, rates, noise, &places);
        for (node, part) in storage {
            roles[StagingPlaces::staging(node).index()] = ProcessRole::Storage(part);
        }
    }
    roles
}

/// Returns what the nodes of a checkpoint do.
fn storage(
    test: &StagingSection,
    case: &StagingCase,
    rates: &StorageRates,
    noise: NoiseKind,
    places: &StagingPlaces,
) -> Vec<(u32, StoragePart)> {
    let is_staged = match noise {
        NoiseKind::Quiet | NoiseKind::Writers => return Vec::new(),
        NoiseKind::Direct => false,
        NoiseKind::Drain | NoiseKind::Mounts | NoiseKind::Staged => true,
    };
    let server = |rate, room, kept, drains_to| {
        StoragePart::Server(ServePart { rate, room, kept, drains_to })
    };
    let store = places.store();
    let mut parts = vec![(store, server(rates.store, Bytes(u64::MAX), Bytes(0), None))];
    if is_staged {
        let clients = case.writing.len() as u64 / places.servers().count().max(1) as u64;
        let whole = Bytes(clients * test.checkpoint.0);
        let kept = if noise == NoiseKind::Drain { whole } else { Bytes(0) };
        let to = Some(StagingPlaces::staging(store));
        parts.extend(places.servers().map(|node| (node, server(rates.log, rates.room, kept, to))));
    }
    if noise != NoiseKind::Drain {
        parts.extend(case.writing.iter().map(|node| {
            let to = if is_staged { places.server(*node) } else { store };
            let to = StagingPlaces::staging(to);
            let begin = LocalNs(test.warm_up.0.0);
            (*node, StoragePart::Client(WritePart { to, bytes: test.checkpoint, begin }))
        }));
    }
    parts
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
        let role = roles.next().unwrap_or(ProcessRole::Waiting);
        NodeProcess::new(role, ranks, longest, wire)
    });
    let limit = Picos::from(test.limit.0);
    let mut until = Picos::from(test.warm_up.0);
    let all = || (0..ranks).map(Rank);
    let named = |why| anyhow!("{} on {queue}: {why}", case.test.name());
    loop {
        until = Picos(until.0 + STRETCH.0);
        world.run_until(until, &mut |_| ());
        // An application does not wait for a checkpoint that is written next to it.
        let end = match case.test {
            StagingTest::Checkpoint => StorageEnd::Awaited,
            _ => StorageEnd::Ignored,
        };
        let is_over = |process: &mut NodeProcess| process.is_over(end);
        if all().all(|rank| world.engine_mut(rank).is_some_and(is_over)) {
            break;
        }
        if until >= limit {
            // The reason may be one that more time does not help.
            whole(&mut world, ranks, &named)?;
            bail!(
                "{} {} on {queue} is not over after {} of simulated time; more of `limit` works, or fewer iterations",
                case.test.name(),
                case.what,
                test.limit
            );
        }
    }
    let outlasts =
        all().any(|rank| world.engine_mut(rank).is_some_and(|process| process.has_unwritten()));
    let ProcessRecord { iterations, sum, requests, wrote_for: blocked } =
        whole(&mut world, ranks, &named)?;
    let measured = Nanos((until.0 / 1000).saturating_sub(test.warm_up.0.0).max(1));
    let written = (requests * test.request.0) as f64 / measured.as_secs_f64();
    venue.count(&world, Nanos(until.0 / 1000), started);
    let (queue, case) = (queue.to_owned(), case.clone());
    let mean = sum as f64 / iterations.count().max(1) as f64;
    Ok(StagingResult { queue, case, noise, iterations, mean, written, blocked, outlasts })
}

/// Returns what all processes counted together; of times, the longest.
fn whole(
    world: &mut World<NodeProcess, Fabric>,
    ranks: u32,
    named: &dyn Fn(String) -> anyhow::Error,
) -> Result<ProcessRecord> {
    let mut all = ProcessRecord::default();
    for rank in (0..ranks).map(Rank) {
        let process = world.engine_mut(rank).context("a process is down")?;
        let record = process.record().map_err(named)?;
        all.iterations.merge(&record.iterations);
        all.sum += record.sum;
        all.requests += record.requests;
        all.wrote_for = all.wrote_for.max(record.wrote_for);
    }
    Ok(all)
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
