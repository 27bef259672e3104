//! Small OpenSHMEM operations during long puts on simulated machines, in one class and in
//! classes of their own.
//!
//! # Model
//! Every PE is the far engine (`clearway_proto::queue`) with a small program around it (`program`):
//! the code that the library runs across hosts. What victims wait, what congestors carry, and how
//! much less p99 is with classes are figures (`figures`).
//!
//! # Source
//! OpenSHMEM queues with quality of service (Venkatesan, Gorentla Venkata, UCF 2022 talk): 32 nodes
//! of 20 PEs, victims under an incast and an all-to-all, 2.5 times less tail latency.
//!
//! # Not here
//! The same benchmark on real networks is a C program, which runs on the installed library.

mod figures;
mod program;
mod section;
mod simulated;
mod table;

pub(crate) use program::PeEngine;
pub(crate) use simulated::putter;

use anyhow::{Context, Result, bail};
use clearway_wires::{WireNeeds, WireRequest};

use self::section::ShmemSection;
use crate::report::model::Report;
use crate::run::exit::Exit;
use crate::run::rank_process::{RankContext, ServeRank};
use crate::run::venue::{AdjustMachine, LaunchSpec, Venue, VenueRanks};
use crate::run::{Mechanism, RunSpec, VenueKind};
use crate::scenario::{Fabric, Scenario, SectionKind};

const NAME: &str = "shmem";
/// Why it has no rank processes.
const ELSEWHERE: &str = "[shmem] runs on a simulated machine, use --on sim; on real networks OpenSHMEM programs run with the library";

/// The benchmark.
pub(crate) struct ShmemClasses;

impl Mechanism for ShmemClasses {
    fn name(&self) -> &'static str {
        NAME
    }

    fn section(&self) -> Option<SectionKind> {
        Some(SectionKind::new::<ShmemSection>())
    }

    fn rank(&self) -> (&'static str, ServeRank) {
        (NAME, serve)
    }

    fn launch(&self, scenario: &Scenario) -> LaunchSpec {
        let per_host = scenario.section::<ShmemSection>().map_or(1, |test| test.pes_per_host);
        LaunchSpec {
            seed: scenario.seed,
            mechanism: NAME,
            need: WireNeeds::Packets,
            per_host,
            wire: WireRequest::AUTO,
            processors: None,
        }
    }

    fn refusal(&self, scenario: &Scenario, place: VenueKind) -> Option<String> {
        match (place, &scenario.fabric) {
            (VenueKind::Sim, Fabric::Machine(_)) => None,
            (VenueKind::Sim, _) => Some("[shmem] needs a machine: a `preset` works".to_owned()),
            _ => Some(ELSEWHERE.to_owned()),
        }
    }

    fn adjust(&self, _: &Scenario) -> AdjustMachine {
        // Schedules are times of one clock.
        Box::new(|spec| spec.host.clock_ppm = 0)
    }

    fn run(&self, order: &RunSpec<'_>, venue: &mut dyn Venue, report: &mut Report) -> Result<()> {
        let test = order.scenario.section::<ShmemSection>().context("no [shmem]")?;
        venue.arm(&test.queue)?;
        let VenueRanks::Simulated(venue) = venue.ranks() else { bail!(ELSEWHERE) };
        let phases = simulated::run(venue, test)?;
        report.figures.extend(figures::figures(test, &phases));
        Ok(())
    }
}

fn serve(_: RankContext) -> Result<Exit> {
    bail!(ELSEWHERE)
}
