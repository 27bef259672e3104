//! Runs GPCNeT's tests in a venue: gives each rank its task, and collects what it recorded.
//!
//! # Model
//! The simulator makes a fabric at rest for every test, so that no test inherits packets of an
//! earlier one, and a test is a function of fabric, seed and number.
//!
//! # Invariants
//! I1. A rank that ends in the middle of a test ends the run, with its name.

use std::collections::BTreeMap;
use std::time::Duration;

use anyhow::{Context, Result, bail};
use clearway_proto::base::{Nanos, Rank};
use clearway_proto::gpcnet::{GpcnetEvent, GpcnetNode, GpcnetRecord, Task};
use clearway_proto::wire::{OperationSet, SHORT_HEAD, Wire};
use clearway_sim::Picos;
use clearway_sim::fabric::{self, FabricOptions};
use clearway_sim::wire::ContentModel;
use clearway_sim::world::{StopReason, World};

use super::test_protocol::{GpcnetProtocol, node};
use crate::report::model::Report;
use crate::run::task::LossCounts;
use crate::run::venue::{ProcessVenue, SimMachine, SimVenue, Venue, VenueRanks};

/// A venue in which tests run.
pub(super) struct TestRunner {
    venue: Box<dyn Venue>,
    /// Tests so far.
    tests: u64,
    losses: LossCounts,
    /// How long each rank waited for a processor, and of how long a time.
    waits: BTreeMap<Rank, [Nanos; 2]>,
}

/// What the wires of all ranks can do.
pub(super) struct WireFacts {
    pub(super) operations: OperationSet,
    /// The longest body that all of them carry in one message.
    pub(super) body_max: u32,
}

impl TestRunner {
    /// Runs tests in `venue`, whose queue is armed.
    pub(super) fn new(venue: Box<dyn Venue>) -> Self {
        Self { venue, tests: 0, losses: LossCounts::default(), waits: BTreeMap::new() }
    }

    /// Returns the host of each rank, by name.
    pub(super) fn names(&self) -> Vec<String> {
        self.venue.hosts()
    }

    /// Adds what is known of the venue before the first test to `report`.
    pub(super) fn introduce(&self, report: &mut Report) {
        self.venue.introduce(report);
    }

    /// Adds what is known of it at the end.
    pub(super) fn conclude(&self, report: &mut Report) {
        report.warnings.extend(self.losses.warnings());
        self.venue.conclude(report);
    }

    /// Returns what it is, for a person.
    pub(super) fn about(&self) -> String {
        self.venue.about()
    }

    /// Returns what the wires of all ranks can do.
    pub(super) fn wires(&mut self) -> Result<WireFacts> {
        match self.venue.ranks() {
            VenueRanks::Processes(ranks) => {
                let facts = ranks.processes().facts();
                Ok(WireFacts { operations: facts.operations, body_max: facts.body_max })
            }
            VenueRanks::Simulated(venue) => {
                let machine = venue.machine()?;
                let mut world = world(venue, machine, 0);
                let capabilities = world.network_mut().wire(Rank(0)).capabilities().clone();
                let most =
                    u32::try_from(capabilities.body_max_with_head(SHORT_HEAD)).unwrap_or(u32::MAX);
                Ok(WireFacts {
                    operations: capabilities.operations,
                    body_max: machine.body_max.min(most),
                })
            }
        }
    }

    /// Returns how many measurements a test has where nobody says how many.
    pub(super) fn measurements(&mut self) -> u32 {
        match self.venue.ranks() {
            // One already has 30 rings of 200 iterations, and the simulator repeats itself exactly.
            VenueRanks::Simulated(_) => 1,
            // As many as the original makes; its limit ends them.
            VenueRanks::Processes(_) => u32::MAX,
        }
    }

    /// Runs one test and returns the record of each rank that has a task. A test that takes longer
    /// than `timeout` is stuck.
    pub(super) fn run(
        &mut self,
        tasks: &BTreeMap<Rank, Task>,
        timeout: Nanos,
    ) -> Result<BTreeMap<Rank, GpcnetRecord>> {
        self.tests += 1;
        match self.venue.ranks() {
            VenueRanks::Simulated(venue) => simulated(venue, self.tests, tasks, timeout),
            VenueRanks::Processes(ranks) => {
                on_processes(ranks, tasks, timeout, &mut self.losses, &mut self.waits)
            }
        }
    }

    /// Returns what is known of the venue after the tests, a sentence each.
    pub(super) fn remarks(&mut self) -> Vec<String> {
        let proofs = match self.venue.ranks() {
            VenueRanks::Processes(ranks) => ranks.proofs(),
            VenueRanks::Simulated(_) => Vec::new(),
        };
        let proofs = proofs.into_iter().map(|(what, fact)| format!("{what}: {fact}"));
        proofs.chain(noise(&self.waits)).chain(self.losses.warnings()).collect()
    }
}

/// Returns the world of test `number` on `machine`.
fn world(venue: &SimVenue, machine: &SimMachine, number: u64) -> World<GpcnetNode, fabric::Fabric> {
    let key = venue.key().purpose("gpcnet").node(number);
    let carrier = machine.carrier(key, FabricOptions::default());
    machine.world(carrier, ContentModel::Phantom, key, |wire| {
        node(wire).expect("a fresh end has room for a region")
    })
}

/// Runs test `number` on the machine of `venue`.
fn simulated(
    venue: &SimVenue,
    number: u64,
    tasks: &BTreeMap<Rank, Task>,
    timeout: Nanos,
) -> Result<BTreeMap<Rank, GpcnetRecord>> {
    let mut world = world(venue, venue.machine()?, number);
    for (rank, task) in tasks {
        world.command(Picos::ZERO, *rank, task.clone());
    }
    let mut records = BTreeMap::new();
    // Longer and longer stretches: a test of a microsecond must not cost a second of idle ranks.
    let mut until = Nanos::from_micros(100);
    while records.len() < tasks.len() {
        let ended = world.run_until(Picos::from(until), &mut |reported| match reported.event {
            GpcnetEvent::Over { .. } => {
                records.extend(reported.engine.take_record().map(|record| (reported.rank, record)))
            }
        });
        if records.len() < tasks.len() && (ended == StopReason::Quiet || until > timeout) {
            bail!("a simulated rank did not end its test; this is a defect of the program");
        }
        until = until + Nanos((until.0 / 16).max(100_000));
    }
    Ok(records)
}

/// Runs one test on the processes of `ranks`.
fn on_processes(
    ranks: &mut dyn ProcessVenue,
    tasks: &BTreeMap<Rank, Task>,
    timeout: Nanos,
    losses: &mut LossCounts,
    waits: &mut BTreeMap<Rank, [Nanos; 2]>,
) -> Result<BTreeMap<Rank, GpcnetRecord>> {
    ranks.processes().check()?;
    let mut session = ranks.processes_mut().session::<GpcnetProtocol>();
    for (rank, task) in tasks {
        session.request(*rank, task.clone())?;
    }
    let all: Vec<Rank> = tasks.keys().copied().collect();
    let records = session.responses(
        &all,
        Duration::from_nanos(timeout.0),
        &mut || Ok(()),
        |rank, answer| {
            losses.count(rank, &answer);
            let [waited, length] = waits.entry(rank).or_default();
            for wait in &answer.waits {
                (*waited, *length) = (*waited + wait.waited, *length + wait.length);
            }
            let is_asked = tasks.get(&rank).is_some_and(|task| task.number == answer.record.number);
            is_asked
                .then_some(Some(answer.record))
                .context("a rank answered for another test; this is a defect of the program")
        },
    )?;
    Ok(all.into_iter().zip(records).collect())
}

/// Returns what part of the time ranks were ready to run and had no processor; nothing where the
/// system does not tell.
fn noise(waits: &BTreeMap<Rank, [Nanos; 2]>) -> Option<String> {
    let known = waits.iter().filter(|(_, [_, length])| *length > Nanos::ZERO);
    let shares =
        known.map(|(rank, [waited, length])| (waited.0 as f64 * 100.0 / length.0 as f64, *rank));
    let shares: Vec<(f64, Rank)> = shares.collect();
    let mean = shares.iter().map(|(share, _)| share).sum::<f64>() / shares.len().max(1) as f64;
    let (worst, rank) = shares.into_iter().max_by(|(a, _), (b, _)| a.total_cmp(b))?;
    Some(format!(
        "noise: ranks waited for a processor {mean:.1} % of the time, rank {rank} {worst:.1} %"
    ))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn noise__is_the_mean_and_the_worst_of_the_ranks_that_know() {
        let wait = |rank, waited, length| (Rank(rank), [waited, length].map(Nanos::from_millis));
        let waits = BTreeMap::from([wait(0, 0, 100), wait(1, 30, 100), wait(2, 0, 0)]);
        let said = "noise: ranks waited for a processor 15.0 % of the time, rank 1 30.0 %";
        assert_eq!(noise(&waits).as_deref(), Some(said));
        assert_eq!(noise(&BTreeMap::from([wait(2, 0, 0)])), None);
    }
}
