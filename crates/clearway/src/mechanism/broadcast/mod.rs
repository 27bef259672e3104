//! Broadcasts on ranks that are processes: every way, length and loss, next to a bare exchange,
//! with every byte compared. The same casts on a simulated fabric (`simulated`) show what more
//! ranks than a machine holds would take.
//!
//! # Model
//! One rank is the root (rank 0), the others receive. This process coordinates them (`coordinate`):
//! casts go one after the other, each with nodes of its own (`rank`); what they saw becomes figures
//! (`figures`). The same run measures a bare datagram to all with an answer of each (`bare`), which
//! is what the network and the machine take. Several roots at once (`roots`) have a team and a
//! channel each (`together`).
//!
//! # Not here
//! The engine (`clearway_proto::broadcast`); files (`clearway cast`).

mod bare_exchange;
mod coordinator;
mod fault_injection;
mod faults;
mod figures;
mod member_host;
mod messages;
mod multi_root;
mod outcome;
mod pattern;
mod plan;
mod progress_samples;
mod report;
mod section;
pub(crate) mod simulated;
mod table;
mod teams;
mod traffic;

use anyhow::{Context, Result, anyhow};
use clearway_proto::base::Rank;

use crate::report::model::Report;
use crate::run::rank_process::ServeRank;
use crate::run::session::Protocol;
use crate::run::venue::{LaunchSpec, Venue, VenueRanks};
use crate::run::{Mechanism, RunSpec, VenueKind};
use crate::run::{RemainingTime, detail};
use crate::scenario::{Fabric, Scenario, SectionKind};

pub(crate) use coordinator::coordinate;
pub(crate) use faults::run_with_faults;
pub(crate) use figures::{explained, figures};
pub(crate) use messages::BroadcastProtocol;
pub(crate) use multi_root::{MultiRootRun, with_roots};
pub(crate) use plan::{BroadcastPlan, CastMode, Millionths};
pub(crate) use report::casting;
pub(crate) use section::{BroadcastSection, RANKS_MAX};
pub(crate) use table::table;

/// Broadcasts.
pub(crate) struct BroadcastMechanism;

impl Mechanism for BroadcastMechanism {
    fn name(&self) -> &'static str {
        "broadcast"
    }

    fn section(&self) -> Option<SectionKind> {
        Some(SectionKind::new::<BroadcastSection>())
    }

    fn rank(&self) -> (&'static str, ServeRank) {
        (BroadcastProtocol::MECHANISM, member_host::serve)
    }

    fn launch(&self, scenario: &Scenario) -> LaunchSpec {
        LaunchSpec::new::<BroadcastProtocol>(scenario.seed)
    }

    fn refusal(&self, scenario: &Scenario, place: VenueKind) -> Option<String> {
        match (place, &scenario.fabric) {
            (VenueKind::Lab, fabric) => fabric.as_lab().err(),
            (VenueKind::Sim, Fabric::Machine(_)) => None,
            (VenueKind::Sim, _) => Some(
                "broadcasts of a `topology` run in a laboratory, use --on lab; on the simulator they need a `preset`"
                    .to_owned(),
            ),
            (VenueKind::Cluster, _) => Some(
                "a scenario of broadcasts runs in a laboratory or on a machine; clearway broadcast --on cluster casts there"
                    .to_owned(),
            ),
        }
    }

    fn run(&self, order: &RunSpec<'_>, venue: &mut dyn Venue, report: &mut Report) -> Result<()> {
        let test = order.scenario.section::<BroadcastSection>().context("no [broadcast]")?;
        let fabric = &order.scenario.fabric;
        if let VenueRanks::Simulated(_) = venue.ranks() {
            let machines = test.machines(fabric);
            let weights = machines.iter().map(|(_, ranks)| f64::from(*ranks)).collect();
            let remaining = RemainingTime::begin("run", weights, None);
            for (machine, ranks) in machines {
                let plan = test.plan(ranks, None, order.scenario.seed);
                // Another machine has policies of its own.
                let queue = (fabric.to_string() == machine).then_some(test.queue.as_str());
                detail!("{ranks} ranks on {machine}");
                remaining.part(format!("{ranks} ranks on {machine}"));
                report.figures.extend(simulated::on_machine(machine, queue, &plan)?);
            }
            return Ok(());
        }
        venue.arm(&test.queue)?;
        let place = venue.place();
        let VenueRanks::Processes(ranks) = venue.ranks() else { return Ok(()) };
        let hosts = fabric.hosts().map_err(|why| anyhow!(why))?;
        let rate = fabric.host_rate().map_err(|why| anyhow!(why))?;
        let plan = test.plan(hosts, Some(rate), order.scenario.seed);
        let outcomes = coordinate(ranks, &plan, place)?;
        report.figures.extend(figures(&plan, &outcomes));
        let names =
            (0..plan.ranks).map(|rank| ranks.processes().host(Rank(rank)).to_owned()).collect();
        report.set_part(&casting(&plan, names, &outcomes));
        Ok(())
    }
}
