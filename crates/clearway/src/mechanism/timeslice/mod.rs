//! Timeslice building: policies beside each other, and beside what the network carries unscheduled; or of recorded microslices.
//!
//! # Model
//! For each seed the ranks lie elsewhere on the fabric and are delayed otherwise. There every policy runs on a fabric of its own
//! at rest, and so does `raw`: writes of the same size in turn to all builders, two to each at a time, that nobody waits for.
//! What that carries is the line that throughput is divided by.
//!
//! Simulated, all ranks are in this process (`simulated`). In a lab or a job each is one of its own (`rank`), with a source or a
//! sink beside its engine, and this process conducts them (`conduct`).

mod achievable;
pub(crate) mod archive;
mod board;
mod conduct;
mod count;
mod course;
mod figures;
mod film;
mod handover;
mod intake;
mod loss;
mod numbers;
mod outlet;
mod page;
mod part;
mod plan;
mod rank;
mod recovery;
mod report;
mod section;
mod simulated;
mod sink;
mod stream;
mod table;
mod words;

use anyhow::{Context, Result, anyhow};
use clearway_proto::base::BitsPerSec;
use clearway_proto::timeslice::Policy;

use crate::report::model::Report;
use crate::run::rank::Serve;
use crate::run::session::Protocol;
use crate::run::venue::{LaunchSpec, Ranks, Venue};
use crate::run::{Mechanism, Order, Place};
use crate::scenario::{Fabric, Scenario, SectionKind};
pub(crate) use achievable::{LENGTHS, SIMULATED, achievable_table, measure_achievable, simulate_achievable};
pub(crate) use board::watch;
pub(crate) use conduct::{Task, build, compare};
pub(crate) use figures::figures;
pub(crate) use handover::consume;
pub(crate) use loss::{Change, Wanted};
pub(crate) use page::{account, costs, page, told, write_built, write_remarks};
pub(crate) use plan::{HostConditions, Messages, Plan, Rings, Slowdown};
pub(crate) use report::{digests, write_runs};
pub(crate) use section::Timeslice;
use simulated::{Filmed, Ground, Outcome};
pub(crate) use sink::BUILDER;
pub(crate) use table::table;
pub(crate) use words::{Building, Feed, Shape, SinkKind, SourceKind};

/// Timeslice building.
pub(crate) struct TimesliceBuilding;

impl Mechanism for TimesliceBuilding {
    fn name(&self) -> &'static str {
        "timeslice"
    }

    fn section(&self) -> Option<SectionKind> {
        Some(SectionKind::of::<Timeslice>())
    }

    fn rank(&self) -> (&'static str, Serve) {
        (Building::MECHANISM, rank::serve)
    }

    fn launch(&self, scenario: &Scenario) -> LaunchSpec {
        LaunchSpec::new::<Building>(scenario.seed)
    }

    fn refusal(&self, scenario: &Scenario, place: Place) -> Option<String> {
        match place {
            Place::Sim => None,
            Place::Lab => scenario.fabric.as_lab().err(),
            Place::Cluster => Some(
                "a scenario of timeslices runs on the simulator or in a lab; clearway timeslice compare --on cluster builds across a job"
                    .to_owned(),
            ),
        }
    }

    fn run(&self, order: &Order<'_>, venue: &mut dyn Venue, report: &mut Report) -> Result<()> {
        let test = order.scenario.section::<Timeslice>().context("no [timeslice]")?;
        let fabric = &order.scenario.fabric;
        let hosts = fabric.hosts().map_err(|why| anyhow!(why))?;
        if let Ranks::Simulated(venue) = venue.ranks() {
            let plan = test.plan(hosts, order.scenario.seed);
            venue.digests = report::report(fabric, &test.queue, &plan, report)?;
            return Ok(());
        }
        venue.arm(&test.queue)?;
        let Ranks::Processes(ranks) = venue.ranks() else { return Ok(()) };
        let (plan, task) = test.task(hosts, order.scenario.seed).map_err(|why| anyhow!(why))?;
        let (runs, built) = compare(ranks, &plan, &task)?;
        write_runs(&plan, &runs, report);
        report.figures.extend(costs(&built));
        Ok(())
    }
}

/// What one seed showed: the unscheduled writes, and each policy of the plan.
pub(crate) struct Run {
    /// At what a host fetches and places, where that is known.
    host_rate: Option<BitsPerSec>,
    raw: Outcome,
    policies: Vec<(Policy, Outcome)>,
}

/// Runs `plan` under `queue` of a simulated `fabric`. The first seed is filmed. `tell` hears what begins.
pub(crate) fn simulate(fabric: &Fabric, queue: &str, plan: &Plan, tell: &dyn Fn(u64, Policy)) -> Result<Vec<Run>> {
    let run = |(n, seed): (usize, &u64)| {
        let ground = Ground::open(fabric, queue, *seed, &plan.hosts)?;
        let filmed = if n == 0 { Filmed::Yes } else { Filmed::No };
        tell(*seed, Policy::Raw);
        let raw = ground.run(plan, Policy::Raw, *seed, Filmed::No)?;
        let one = |policy: &Policy| {
            tell(*seed, *policy);
            ground.run(plan, *policy, *seed, filmed).map(|outcome| (*policy, outcome))
        };
        let policies = plan.policies.iter().filter(|policy| **policy != Policy::Raw).map(one);
        Ok(Run { host_rate: Some(ground.host_rate()), raw, policies: policies.collect::<Result<_>>()? })
    };
    plan.seeds.iter().enumerate().map(run).collect()
}
