//! `clearway timeslice compare`: schedules beside each other, for a time.

use anyhow::Result;
use clap::Args;
use clearway_proto::timeslice::Policy;

use super::feed::{MadeFlags, ShapeFlags};
use super::ground::{FabricFlags, GroundFlags, TimedFlags};
use super::schedule::ScheduleFlags;
use crate::command::print;
use crate::mechanism::timeslice::{Plan, Task, account, compare, costs, figures, simulate, table};
use crate::report::model::Figure;
use crate::run::Place;
use crate::run::exit::Exit;
use crate::run::venue::ProcessVenue;

/// What `clearway timeslice compare` takes.
#[derive(Debug, Args)]
pub(crate) struct CompareFlags {
    #[command(flatten)]
    fabric: FabricFlags,
    #[command(flatten)]
    ground: GroundFlags,
    /// Schedules to compare: best-effort, offset, dfs, token.
    #[arg(long, value_name = "POLICY", value_delimiter = ',', default_value = "token")]
    policy: Vec<Policy>,
    #[command(flatten)]
    schedule: ScheduleFlags,
    #[command(flatten)]
    timed: TimedFlags,
    #[command(flatten)]
    made: MadeFlags,
    #[command(flatten)]
    shape: ShapeFlags,
}

impl CompareFlags {
    fn plan(&self, place: Place, parts: [u32; 2]) -> Result<Plan> {
        let plan = self.timed.extend(self.ground.plan(place, parts, self.schedule.ring)?)?;
        let until = plan.measured;
        let plan = self.schedule.extend(plan, place, until)?;
        Ok(Plan { policies: self.policy.clone(), hosts: self.fabric.hosts(), ..plan })
    }
}

/// Compares schedules where flags say.
pub(super) fn command(flags: &CompareFlags) -> Result<Exit> {
    let CompareFlags { fabric, ground, .. } = flags;
    let place = fabric.place(ground)?;
    if place == Place::Sim {
        return simulated(flags);
    }
    let prepare = |parts| {
        let plan = flags.plan(place, parts)?;
        let feed = flags.made.feed(&flags.shape, &plan)?;
        let task = flags.shape.task(feed, &plan, ground.job_name())?;
        Ok((plan, task))
    };
    ground.with_ranks(place, prepare, |venue, plan, task| on_ranks(venue, plan, task, flags))
}

/// Compares on the fabric that flags name.
fn simulated(flags: &CompareFlags) -> Result<Exit> {
    flags.made.refuse_on_sim()?;
    flags.shape.refuse_on_sim()?;
    let parts = flags.ground.parts(32);
    let plan = flags.plan(Place::Sim, parts)?;
    let (fabric, queue) = flags.fabric.open(&flags.ground, parts.iter().sum())?;
    let runs = simulate(&fabric, &queue, &plan, &|_, _| {})?;
    show(&format!("{}, {queue}", flags.fabric.name()), &plan, &figures(&plan, &runs), flags)?;
    Ok(Exit::Good)
}

/// Compares with the ranks of `venue`.
fn on_ranks(venue: &mut dyn ProcessVenue, plan: &Plan, task: &Task, flags: &CompareFlags) -> Result<Exit> {
    let (runs, built) = compare(venue, plan, task)?;
    eprint!("{}", account(&built));
    let figures: Vec<Figure> = figures(plan, &runs).into_iter().chain(costs(&built)).collect();
    show(&venue.about(), plan, &figures, flags)?;
    Ok(built.exit())
}

fn show(about: &str, plan: &Plan, figures: &[Figure], flags: &CompareFlags) -> Result<()> {
    let text =
        if flags.ground.json { serde_json::to_string_pretty(figures)? + "\n" } else { table(about, plan, figures) };
    print(&text)
}
