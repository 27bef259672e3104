//! Broadcasts on ranks that are processes: every way, length and loss, beside a bare exchange, with every byte compared. The same casts
//! on a simulated fabric (`simulated`) show what more ranks than a machine holds would take.
//!
//! # Model
//! One rank is the root (rank 0), the others receive. This process conducts them (`conduct`): casts go one after the other, each with
//! nodes of its own (`rank`); what they saw becomes figures (`figures`). The same run measures a bare datagram to all with an answer of
//! each (`bare`), which is what the network and the machine take. Several roots at once (`roots`) have a team and a channel each (`together`).
//!
//! # Not here
//! The engine (`clearway_proto::broadcast`); files (`clearway cast`).

mod bare;
mod conduct;
mod faults;
mod figures;
mod film;
mod outcome;
mod pattern;
mod plan;
mod rank;
mod report;
mod roots;
mod rough;
mod section;
pub(crate) mod simulated;
mod table;
mod together;
mod traffic;
mod words;

use anyhow::{Context, Result, anyhow};
use clearway_proto::base::Rank;

use crate::report::model::Report;
use crate::run::rank::Serve;
use crate::run::session::Protocol;
use crate::run::venue::{LaunchSpec, Ranks, Venue};
use crate::run::{Mechanism, Order, Place};
use crate::scenario::{Fabric, Scenario, SectionKind};

pub(crate) use conduct::conduct;
pub(crate) use faults::suffer;
pub(crate) use figures::{explained, figures};
pub(crate) use plan::{Mode, Plan, Share};
pub(crate) use report::casting;
pub(crate) use roots::{RootsRun, with_roots};
pub(crate) use section::{Broadcast, RANKS_MAX};
pub(crate) use table::table;
pub(crate) use words::Casts;

/// Broadcasts.
pub(crate) struct Broadcasts;

impl Mechanism for Broadcasts {
    fn name(&self) -> &'static str {
        "broadcast"
    }

    fn section(&self) -> Option<SectionKind> {
        Some(SectionKind::of::<Broadcast>())
    }

    fn rank(&self) -> (&'static str, Serve) {
        (Casts::MECHANISM, rank::serve)
    }

    fn launch(&self, scenario: &Scenario) -> LaunchSpec {
        LaunchSpec::new::<Casts>(scenario.seed)
    }

    fn refusal(&self, scenario: &Scenario, place: Place) -> Option<String> {
        match (place, &scenario.fabric) {
            (Place::Lab, fabric) => fabric.as_lab().err(),
            (Place::Sim, Fabric::Machine(_)) => None,
            (Place::Sim, _) => Some(
                "broadcasts of a `topology` run in a laboratory, use --on lab; on the simulator they need a `preset`"
                    .to_owned(),
            ),
            (Place::Cluster, _) => Some(
                "a scenario of broadcasts runs in a laboratory or on a machine; clearway broadcast --on cluster casts there"
                    .to_owned(),
            ),
        }
    }

    fn run(&self, order: &Order<'_>, venue: &mut dyn Venue, report: &mut Report) -> Result<()> {
        let test = order.scenario.section::<Broadcast>().context("no [broadcast]")?;
        let fabric = &order.scenario.fabric;
        if let Ranks::Simulated(_) = venue.ranks() {
            for (machine, ranks) in test.machines(fabric) {
                let plan = test.plan(ranks, None, order.scenario.seed);
                // Another machine has policies of its own.
                let queue = (fabric.to_string() == machine).then_some(test.queue.as_str());
                eprintln!("{ranks} ranks on {machine}");
                report.figures.extend(simulated::on_machine(machine, queue, &plan)?);
            }
            return Ok(());
        }
        venue.arm(&test.queue)?;
        let place = venue.place();
        let Ranks::Processes(ranks) = venue.ranks() else { return Ok(()) };
        let hosts = fabric.hosts().map_err(|why| anyhow!(why))?;
        let rate = fabric.host_rate().map_err(|why| anyhow!(why))?;
        let plan = test.plan(hosts, Some(rate), order.scenario.seed);
        let outcomes = conduct(ranks, &plan, place)?;
        report.figures.extend(figures(&plan, &outcomes));
        let names = (0..plan.ranks).map(|rank| ranks.processes().host(Rank(rank)).to_owned()).collect();
        report.set_part(&casting(&plan, names, &outcomes));
        Ok(())
    }
}
