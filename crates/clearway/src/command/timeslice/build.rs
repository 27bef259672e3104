//! `clearway timeslice build`: what a source has, under one schedule.

use anyhow::Result;
use clap::{Args, ValueEnum};
use clearway_proto::timeslice::Policy;

use super::feed::{ShapeFlags, StreamFlags};
use super::network::{NetworkFlags, TIME_MAX};
use super::schedule::ScheduleFlags;
use super::values::{plan_values, task_values};
use crate::command::flagged::FlaggedRun;
use crate::command::results::{ReportDestination, ReportFlags};
use crate::command::{for_output, print};
use crate::mechanism::timeslice::{
    TimesliceMetrics, TimeslicePlan, TimesliceTask, build, page, run_summary, write_built,
};
use crate::run::VenueKind;
use crate::run::exit::Exit;
use crate::run::venue::ProcessVenue;

/// The name of its reports.
const NAME: &str = "timeslice-build";

/// Where bytes can be: a simulated fabric carries none.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum ByteVenue {
    /// Virtual hosts of this machine.
    Lab,
    /// The ranks of a job.
    Cluster,
}

impl From<ByteVenue> for VenueKind {
    fn from(place: ByteVenue) -> Self {
        match place {
            ByteVenue::Lab => Self::Lab,
            ByteVenue::Cluster => Self::Cluster,
        }
    }
}

/// What `clearway timeslice build` takes.
#[derive(Debug, Args)]
pub(crate) struct BuildFlags {
    /// Build at this place [default: lab].
    #[arg(long, value_enum)]
    on: Option<ByteVenue>,
    #[command(flatten)]
    network: NetworkFlags,
    /// Build by this schedule: best-effort, offset, dfs, token.
    #[arg(long, value_name = "POLICY", default_value = "token")]
    policy: Policy,
    #[command(flatten)]
    schedule: ScheduleFlags,
    /// Seed the generated contents and the starts of inputs.
    #[arg(long, value_name = "SEED", default_value_t = 1)]
    seed: u64,
    #[command(flatten)]
    report: ReportFlags,
    #[command(flatten)]
    stream: StreamFlags,
    #[command(flatten)]
    shape: ShapeFlags,
}

impl BuildFlags {
    fn plan(&self, place: VenueKind, parts: [u32; 2]) -> Result<TimeslicePlan> {
        let plan = self.network.plan(place, parts, self.schedule.ring)?;
        // It is over when the source is.
        let plan = self.schedule.extend(plan, place, TIME_MAX.0)?;
        Ok(TimeslicePlan { policies: vec![self.policy], seeds: vec![self.seed], ..plan })
    }
}

/// Builds where flags say.
pub(super) fn command(flags: &BuildFlags) -> Result<Exit> {
    let network = &flags.network;
    let place = network.place(flags.on.map(VenueKind::from), VenueKind::Lab)?;
    let prepare = |parts| {
        let plan = flags.plan(place, parts)?;
        let feed = flags.stream.feed(&flags.shape, &plan)?;
        let task = flags.shape.task(feed, &plan, network.job_name())?;
        // What cannot be written must not be built first.
        Ok((plan, (task, ReportDestination::open(NAME, &flags.report)?)))
    };
    network.with_ranks(place, prepare, |venue, plan, (task, results), metrics| {
        on_ranks(venue, (plan, task), flags, results, metrics)
    })
}

/// Builds with the ranks of `venue`.
fn on_ranks(
    venue: &mut dyn ProcessVenue,
    (plan, task): (&TimeslicePlan, &TimesliceTask),
    flags: &BuildFlags,
    results: &ReportDestination,
    metrics: &TimesliceMetrics,
) -> Result<Exit> {
    let values =
        [flags.network.values(venue.place()), plan_values(plan), task_values(task)].concat();
    let mut run = FlaggedRun::begin(NAME, flags.seed, values, venue, results);
    let built = build(venue, plan, task, metrics)?;
    write_built(plan, &built, &mut run.report);
    let shown = || for_output(&page(&venue.about(), plan, &built));
    let figures = &run.report.figures;
    print(&flags.network.format.text(figures, &run_summary(&built), shown)?)?;
    run.end(venue)?;
    Ok(built.exit())
}
