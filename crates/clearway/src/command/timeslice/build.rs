//! `clearway timeslice build`: what a source has, under one schedule.

use anyhow::Result;
use clap::{Args, ValueEnum};
use clearway_proto::timeslice::Policy;

use super::feed::{ShapeFlags, StreamFlags};
use super::ground::{GroundFlags, TIME_MAX};
use super::schedule::ScheduleFlags;
use super::values::{of_plan, of_task};
use crate::command::flagged::FlaggedRun;
use crate::command::results::{ReportFlags, Results};
use crate::command::{json_text, print};
use crate::mechanism::timeslice::{Plan, Task, build, page, told, write_built};
use crate::run::Place;
use crate::run::exit::Exit;
use crate::run::venue::ProcessVenue;

/// The name of its reports.
const NAME: &str = "timeslice-build";

/// Where bytes can be: a simulated fabric carries none.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum RealPlace {
    /// Virtual hosts of this machine.
    Lab,
    /// The ranks of a job.
    Cluster,
}

impl From<RealPlace> for Place {
    fn from(place: RealPlace) -> Self {
        match place {
            RealPlace::Lab => Self::Lab,
            RealPlace::Cluster => Self::Cluster,
        }
    }
}

/// What `clearway timeslice build` takes.
#[derive(Debug, Args)]
pub(crate) struct BuildFlags {
    /// Where to build [default: lab].
    #[arg(long, value_enum)]
    on: Option<RealPlace>,
    #[command(flatten)]
    ground: GroundFlags,
    /// The schedule: best-effort, offset, dfs, token.
    #[arg(long, value_name = "POLICY", default_value = "token")]
    policy: Policy,
    #[command(flatten)]
    schedule: ScheduleFlags,
    /// The seed of what is made, and of when inputs begin.
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
    fn plan(&self, place: Place, parts: [u32; 2]) -> Result<Plan> {
        let plan = self.ground.plan(place, parts, self.schedule.ring)?;
        // It is over when the source is.
        let plan = self.schedule.extend(plan, place, TIME_MAX.0)?;
        Ok(Plan { policies: vec![self.policy], seeds: vec![self.seed], ..plan })
    }
}

/// Builds where flags say.
pub(super) fn command(flags: &BuildFlags) -> Result<Exit> {
    let ground = &flags.ground;
    let place = ground.place(flags.on.map(Place::from), Place::Lab)?;
    let prepare = |parts| {
        let plan = flags.plan(place, parts)?;
        let feed = flags.stream.feed(&flags.shape, &plan)?;
        let task = flags.shape.task(feed, &plan, ground.job_name())?;
        // What cannot be written must not be built first.
        Ok((plan, (task, Results::of(NAME, &flags.report)?)))
    };
    ground.with_ranks(place, prepare, |venue, plan, (task, results)| on_ranks(venue, plan, task, flags, results))
}

/// Builds with the ranks of `venue`.
fn on_ranks(
    venue: &mut dyn ProcessVenue,
    plan: &Plan,
    task: &Task,
    flags: &BuildFlags,
    results: &Results,
) -> Result<Exit> {
    let values = [flags.ground.values(venue.place()), of_plan(plan), of_task(task)].concat();
    let mut run = FlaggedRun::begin(NAME, flags.seed, values, venue, results);
    let built = build(venue, plan, task)?;
    let text = match flags.ground.json {
        true => json_text(&told(&built))?,
        false => page(&venue.about(), plan, &built),
    };
    print(&text)?;
    write_built(plan, &built, &mut run.report);
    run.end(venue)?;
    Ok(built.exit())
}
