//! `clearway timeslice compare`: schedules side by side, for a time.

use anyhow::Result;
use clap::Args;
use clearway_proto::timeslice::Policy;

use super::feed::{GeneratedFlags, ShapeFlags};
use super::network::{FabricFlags, NetworkFlags, TimedFlags};
use super::schedule::ScheduleFlags;
use super::values::{plan_values, task_values, time_values};
use crate::command::flagged::FlaggedRun;
use crate::command::results::{ReportDestination, ReportFlags};
use crate::command::{for_output, print};
use crate::mechanism::timeslice::{
    TimesliceMetrics, TimeslicePlan, TimesliceProtocol, TimesliceTask, account, compare, costs,
    digests, figures, simulate, table, write_remarks, write_runs,
};
use crate::report::NothingMore;
use crate::report::model::Figure;
use crate::run::exit::Exit;
use crate::run::venue::{LaunchSpec, ProcessVenue, SimVenue};
use crate::run::{CompletedParts, VenueKind};

/// The name of its reports.
const NAME: &str = "timeslice-compare";

/// What `clearway timeslice compare` takes.
#[derive(Debug, Args)]
pub(crate) struct CompareFlags {
    #[command(flatten)]
    fabric: FabricFlags,
    #[command(flatten)]
    network: NetworkFlags,
    /// Compare these schedules: best-effort, offset, dfs, token.
    #[arg(long, value_name = "POLICY", value_delimiter = ',', default_value = "token")]
    policy: Vec<Policy>,
    #[command(flatten)]
    schedule: ScheduleFlags,
    #[command(flatten)]
    timed: TimedFlags,
    #[command(flatten)]
    report: ReportFlags,
    #[command(flatten)]
    made: GeneratedFlags,
    #[command(flatten)]
    shape: ShapeFlags,
}

impl CompareFlags {
    fn plan(&self, place: VenueKind, parts: [u32; 2]) -> Result<TimeslicePlan> {
        let plan = self.timed.extend(self.network.plan(place, parts, self.schedule.ring)?)?;
        let until = plan.measured;
        let plan = self.schedule.extend(plan, place, until)?;
        Ok(TimeslicePlan { policies: self.policy.clone(), hosts: self.fabric.hosts(), ..plan })
    }
}

/// Compares schedules where flags say.
pub(super) fn command(flags: &CompareFlags) -> Result<Exit> {
    let CompareFlags { fabric, network, .. } = flags;
    let place = fabric.place(network)?;
    if place == VenueKind::Sim {
        return simulated(flags);
    }
    let prepare = |parts| {
        let plan = flags.plan(place, parts)?;
        let feed = flags.made.feed(&flags.shape, &plan)?;
        let task = flags.shape.task(feed, &plan, network.job_name())?;
        // What cannot be written must not be measured first.
        Ok((plan, (task, ReportDestination::open(NAME, &flags.report)?)))
    };
    network.with_ranks(place, prepare, |venue, plan, (task, results), metrics| {
        on_ranks(venue, (plan, task), flags, results, metrics)
    })
}

/// Compares on the fabric that flags name.
fn simulated(flags: &CompareFlags) -> Result<Exit> {
    flags.network.refuse_metrics_on_sim()?;
    flags.made.refuse_on_sim()?;
    flags.shape.refuse_on_sim()?;
    let parts = flags.network.parts(32);
    let plan = flags.plan(VenueKind::Sim, parts)?;
    let (fabric, queue) = flags.fabric.open(&flags.network, parts.iter().sum())?;
    let results = ReportDestination::open(NAME, &flags.report)?;
    let seed = plan.seeds.first().copied().unwrap_or(1);
    let spec = LaunchSpec::new::<TimesliceProtocol>(seed);
    let mut venue = SimVenue::open(&fabric, &spec, Box::new(|_| ()), CompletedParts::default())?;
    let values = [
        flags.fabric.values(&queue),
        flags.network.values(VenueKind::Sim),
        plan_values(&plan),
        time_values(&plan),
    ]
    .concat();
    let mut run = FlaggedRun::begin(NAME, seed, values, &venue, &results);
    let runs = simulate(&fabric, &queue, &plan)?;
    show(&format!("{}, {queue}", flags.fabric.name()), &plan, &figures(&plan, &runs), flags)?;
    write_runs(&plan, &runs, &mut run.report);
    venue.digests = digests(&runs);
    run.end(&venue)?;
    Ok(Exit::Good)
}

/// Compares with the ranks of `venue`.
fn on_ranks(
    venue: &mut dyn ProcessVenue,
    (plan, task): (&TimeslicePlan, &TimesliceTask),
    flags: &CompareFlags,
    results: &ReportDestination,
    metrics: &TimesliceMetrics,
) -> Result<Exit> {
    let seed = plan.seeds.first().copied().unwrap_or(1);
    let values = [
        flags.network.values(venue.place()),
        plan_values(plan),
        time_values(plan),
        task_values(task),
    ]
    .concat();
    let mut run = FlaggedRun::begin(NAME, seed, values, venue, results);
    let (runs, built) = compare(venue, plan, task, metrics)?;
    eprint!("{}", account(&built));
    let figures: Vec<Figure> = figures(plan, &runs).into_iter().chain(costs(&built)).collect();
    show(&venue.about(), plan, &figures, flags)?;
    write_runs(plan, &runs, &mut run.report);
    write_remarks(&built, &mut run.report);
    run.end(venue)?;
    Ok(built.exit())
}

fn show(about: &str, plan: &TimeslicePlan, figures: &[Figure], flags: &CompareFlags) -> Result<()> {
    let shown = || for_output(&table(about, plan, figures));
    print(&flags.network.format.text(figures, &NothingMore {}, shown)?)
}
