//! Applications with writers of a staging file system on simulated machines, under arbitration
//! tables.
//!
//! # Model
//! Every node has two processes: one of an application, whose messages are a program (`pattern`), and
//! one that writes to its staging node as `dd` does (`engine`). Each test runs quiet and with the
//! writers, on every queue; what the writers cost and what a queue gives back are figures.
//!
//! A checkpoint is written with the engines of mounts and of their server (`storage`): to the store, to
//! servers with logs, and while an application runs.
//!
//! # Source
//! Rajachandrasekar, Jaswani, Subramoni, Panda: QoS-aware data staging (talk of 2012): 160 nodes
//! with QDR adapters, OSU's tests, CG of class D and AWP-ODC on 64 processes, while `dd` writes
//! with direct I/O.
//!
//! # Not here
//! The file system: writers and servers exchange messages, and nothing is stored. A log and a store
//! are rates.

mod drain_limits;
mod engine;
mod figures;
pub(crate) mod job;
pub(crate) mod log_flags;
pub(crate) mod metrics;
mod pattern;
mod plan;
mod process;
mod section;
pub(crate) mod service;
mod simulated;
mod storage;
mod table;
mod yield_flags;

use anyhow::{Context, Result, bail};
use clearway_wires::{WireNeeds, WireRequest};

use self::section::StagingSection;
use self::simulated::StagingResult;
use crate::report::model::Report;
use crate::run::exit::Exit;
use crate::run::rank_process::{RankContext, ServeRank};
use crate::run::venue::{AdjustMachine, LaunchSpec, Venue, VenueRanks};
use crate::run::{Mechanism, RemainingTime, RunSpec, VenueKind};
use crate::scenario::{Fabric, Scenario, SectionKind};

const NAME: &str = "staging";
/// Why it has no rank processes.
const ELSEWHERE: &str = "[staging] runs on a simulated machine, use --on sim; on a real network `clearway qos` reads its tables back";
/// Processes of a node: one of the application, and a writer or server.
const PROCESSES: u16 = 2;

/// The test.
pub(crate) struct StagingNoise;

impl Mechanism for StagingNoise {
    fn name(&self) -> &'static str {
        NAME
    }

    fn section(&self) -> Option<SectionKind> {
        Some(SectionKind::new::<StagingSection>())
    }

    fn rank(&self) -> (&'static str, ServeRank) {
        (NAME, serve)
    }

    fn launch(&self, scenario: &Scenario) -> LaunchSpec {
        LaunchSpec {
            seed: scenario.seed,
            mechanism: NAME,
            need: WireNeeds::Packets,
            per_host: PROCESSES,
            wire: WireRequest::AUTO,
            processors: None,
        }
    }

    fn refusal(&self, scenario: &Scenario, place: VenueKind) -> Option<String> {
        match (place, &scenario.fabric) {
            (VenueKind::Sim, Fabric::Machine(_)) => None,
            (VenueKind::Sim, _) => Some("[staging] needs a machine: a `preset` works".to_owned()),
            _ => Some(ELSEWHERE.to_owned()),
        }
    }

    fn adjust(&self, _: &Scenario) -> AdjustMachine {
        // Times are read from one clock.
        Box::new(|spec| spec.host.clock_ppm = 0)
    }

    fn run(&self, order: &RunSpec<'_>, venue: &mut dyn Venue, report: &mut Report) -> Result<()> {
        let test = order.scenario.section::<StagingSection>().context("no [staging]")?;
        let mut results = Vec::new();
        let remaining = RemainingTime::begin("queue", vec![1.0; test.queues.len()], None);
        for queue in &test.queues {
            venue.arm(queue)?;
            remaining.part(queue);
            let VenueRanks::Simulated(venue) = venue.ranks() else { bail!(ELSEWHERE) };
            let more = simulated::run(venue, test, queue, &results)?;
            results.extend(more);
        }
        report.warnings.extend(results.iter().filter_map(StagingResult::too_short));
        report.figures.extend(figures::figures(test, &results));
        Ok(())
    }
}

fn serve(_: RankContext) -> Result<Exit> {
    bail!(ELSEWHERE)
}
