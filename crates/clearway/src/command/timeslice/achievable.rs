//! `clearway timeslice achievable`: what unscheduled writes and puts carry.

use anyhow::Result;
use clap::Args;
use clearway_proto::base::Bytes;

use super::ground::{FabricFlags, GroundFlags, TimedFlags, Usual};
use crate::command::{json_text, print};
use crate::mechanism::timeslice::{
    LENGTHS, Plan, SIMULATED, achievable_table, measure_achievable, simulate_achievable,
};
use crate::report::model::Figure;
use crate::run::Place;
use crate::run::exit::Exit;

/// What `clearway timeslice achievable` takes: 64KiB, 128KiB, 512KiB and 1MiB are measured, or --contribution alone.
#[derive(Debug, Args)]
pub(crate) struct AchievableFlags {
    #[command(flatten)]
    fabric: FabricFlags,
    #[command(flatten)]
    ground: GroundFlags,
    #[command(flatten)]
    timed: TimedFlags,
}

impl AchievableFlags {
    fn plan(&self, place: Place, parts: [u32; 2]) -> Result<Plan> {
        // A ring holds one contribution at least, and where nothing is built no more.
        let ring = self.ground.contribution.map(|length| length.max(Usual::at(place).ring));
        let plan = self.ground.plan(place, parts, ring)?;
        let plan = match place {
            Place::Sim => Plan { warm_up: SIMULATED[0], measured: SIMULATED[1], ..plan },
            Place::Lab | Place::Cluster => plan,
        };
        Ok(Plan { hosts: self.fabric.hosts(), ..self.timed.extend(plan)? })
    }

    fn lengths(&self) -> &[Bytes] {
        self.ground.contribution.as_ref().map_or(&LENGTHS, core::slice::from_ref)
    }
}

/// Measures where flags say.
pub(super) fn command(flags: &AchievableFlags) -> Result<Exit> {
    let AchievableFlags { fabric, ground, .. } = flags;
    let place = fabric.place(ground)?;
    if place == Place::Sim {
        let parts = ground.parts(32);
        let plan = flags.plan(place, parts)?;
        let (machine, queue) = fabric.open(ground, parts.iter().sum())?;
        let figures = simulate_achievable(&machine, &queue, &plan, flags.lengths())?;
        return show(&format!("{}, {queue}", fabric.name()), &plan, &figures, flags);
    }
    let prepare = |parts| Ok((flags.plan(place, parts)?, ()));
    ground.with_ranks(place, prepare, |venue, plan, ()| {
        let about = venue.about();
        let figures = measure_achievable(venue, plan, &ground.job_name(), flags.lengths())?;
        show(&about, plan, &figures, flags)
    })
}

fn show(about: &str, plan: &Plan, figures: &[Figure], flags: &AchievableFlags) -> Result<Exit> {
    let parts = [plan.inputs, plan.builders];
    let text = match flags.ground.json {
        true => json_text(figures)?,
        false => achievable_table(about, parts, figures),
    };
    print(&text)?;
    Ok(Exit::Good)
}
