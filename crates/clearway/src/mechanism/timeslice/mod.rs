//! Timeslice building: policies side by side, and next to what the network carries unscheduled;
//! or of recorded microslices.
//!
//! # Model
//! For each seed the ranks lie elsewhere on the fabric and are delayed otherwise. There every
//! policy runs on a fabric of its own at rest, and so does `raw`: writes of the same size in turn
//! to all builders, two to each at a time, that nobody waits for. What that carries is the line
//! that throughput is divided by.
//!
//! Simulated, all ranks are in this process (`simulated`). In a lab or a job each is a process of its
//! own with an engine and a source or a sink (`rank`), and this process coordinates them
//! (`coordinate`).

mod achievable;
pub(crate) mod archive;
mod builder_output;
mod consumer;
mod contribution;
mod coordinator;
mod count;
mod described;
mod figures;
mod gantt;
mod input_buffer;
mod join;
mod ledger;
mod losses;
mod measured;
mod messages;
mod metrics;
mod numbers;
mod page;
mod plan;
mod rank_host;
mod recovery;
mod region_ring;
mod report;
mod role;
mod run_progress;
mod scheduled_change;
mod section;
mod settled;
mod simulated;
mod sink;
mod source;
mod status_board;
mod stream;
mod table;

use anyhow::{Context, Result, anyhow};
use clearway_proto::base::BitsPerSec;
use clearway_proto::timeslice::Policy;

use crate::report::model::Report;
use crate::run::rank_process::ServeRank;
use crate::run::session::Protocol;
use crate::run::venue::{LaunchSpec, Venue, VenueRanks};
use crate::run::{Mechanism, RemainingTime, RunSpec, VenueKind, detail};
use crate::scenario::{Fabric, Scenario, SectionKind};
pub(crate) use achievable::{
    LENGTHS, SIMULATED, achievable_table, measure_achievable, simulate_achievable,
};
pub(crate) use consumer::consume;
pub(crate) use coordinator::{TimesliceTask, build, compare};
pub(crate) use figures::figures;
pub(crate) use join::{credential_text, join_run};
pub(crate) use measured::measure;
pub(crate) use messages::{
    BuildSpec, MadeMicroslices, SinkKind, SourceKind, TimesliceProtocol, mean_length,
};
pub(crate) use metrics::TimesliceMetrics;
pub(crate) use page::{account, costs, page, run_summary, write_built, write_remarks};
pub(crate) use plan::{
    HostConditions, InitialRings, Neighbourhoods, Slowdown, TimeslicePlan, UnscheduledMessages,
};
pub(crate) use report::{digests, write_runs};
pub(crate) use scheduled_change::{ScheduledAction, ScheduledChange};
pub(crate) use section::TimesliceSection;
use simulated::{GanttRecording, TimesliceOutcome, TimesliceTestBed};
pub(crate) use sink::BUILDER;
pub(crate) use status_board::watch;
pub(crate) use table::table;

/// Timeslice building.
pub(crate) struct TimesliceBuilding;

impl Mechanism for TimesliceBuilding {
    fn name(&self) -> &'static str {
        "timeslice"
    }

    fn section(&self) -> Option<SectionKind> {
        Some(SectionKind::new::<TimesliceSection>())
    }

    fn rank(&self) -> (&'static str, ServeRank) {
        (TimesliceProtocol::MECHANISM, rank_host::serve)
    }

    fn launch(&self, scenario: &Scenario) -> LaunchSpec {
        LaunchSpec::new::<TimesliceProtocol>(scenario.seed)
    }

    fn refusal(&self, scenario: &Scenario, place: VenueKind) -> Option<String> {
        match place {
            VenueKind::Sim => None,
            VenueKind::Lab => scenario.fabric.as_lab().err(),
            VenueKind::Cluster => Some(
                "a scenario of timeslices runs on the simulator or in a lab; clearway timeslice compare --on cluster builds across a job"
                    .to_owned(),
            ),
        }
    }

    fn run(&self, order: &RunSpec<'_>, venue: &mut dyn Venue, report: &mut Report) -> Result<()> {
        let test = order.scenario.section::<TimesliceSection>().context("no [timeslice]")?;
        let fabric = &order.scenario.fabric;
        let hosts = fabric.hosts().map_err(|why| anyhow!(why))?;
        if let VenueRanks::Simulated(venue) = venue.ranks() {
            let plan = test.plan(hosts, order.scenario.seed);
            venue.digests = report::report(fabric, &test.queue, &plan, report)?;
            return Ok(());
        }
        venue.arm(&test.queue)?;
        let VenueRanks::Processes(ranks) = venue.ranks() else { return Ok(()) };
        let (plan, task) = test.task(hosts, order.scenario.seed).map_err(|why| anyhow!(why))?;
        let (runs, built) = compare(ranks, &plan, &task, &TimesliceMetrics::default())?;
        write_runs(&plan, &runs, report);
        report.figures.extend(costs(&built));
        Ok(())
    }
}

/// What one seed showed: the unscheduled writes, and each policy of the plan.
pub(crate) struct SeedRun {
    /// At what a host fetches and places, where that is known.
    host_rate: Option<BitsPerSec>,
    raw: TimesliceOutcome,
    policies: Vec<(Policy, TimesliceOutcome)>,
}

/// Runs `plan` under `queue` of a simulated `fabric`. The first seed is filmed.
/// Progress goes to standard error.
pub(crate) fn simulate(fabric: &Fabric, queue: &str, plan: &TimeslicePlan) -> Result<Vec<SeedRun>> {
    let policies = plan.policies.iter().filter(|policy| **policy != Policy::Raw).count();
    let count = plan.seeds.len() * (policies + 1);
    let remaining = RemainingTime::begin("run", vec![1.0; count], None);
    let tell = |seed: u64, policy: Policy| {
        let what = format!("seed {seed}, {}", policy.name());
        detail!("{what}");
        remaining.part(what);
    };
    let run = |(n, seed): (usize, &u64)| {
        let test_bed = TimesliceTestBed::open(fabric, queue, *seed, &plan.hosts)?;
        let recording = if n == 0 { GanttRecording::Yes } else { GanttRecording::No };
        tell(*seed, Policy::Raw);
        let raw = test_bed.run(plan, Policy::Raw, *seed, GanttRecording::No)?;
        let one = |policy: &Policy| {
            tell(*seed, *policy);
            test_bed.run(plan, *policy, *seed, recording).map(|outcome| (*policy, outcome))
        };
        let policies = plan.policies.iter().filter(|policy| **policy != Policy::Raw).map(one);
        Ok(SeedRun {
            host_rate: Some(test_bed.host_rate()),
            raw,
            policies: policies.collect::<Result<_>>()?,
        })
    };
    plan.seeds.iter().enumerate().map(run).collect()
}
