//! `clearway timeslice achievable`: what unscheduled writes and puts carry.

use anyhow::Result;
use clap::Args;
use clearway_proto::base::Bytes;

use super::network::{FabricFlags, NetworkFlags, TimedFlags, VenueDefaults};
use crate::command::print;
use crate::mechanism::timeslice::{
    LENGTHS, SIMULATED, TimeslicePlan, achievable_table, measure_achievable, simulate_achievable,
};
use crate::report::NothingMore;
use crate::report::model::Figure;
use crate::run::VenueKind;
use crate::run::exit::Exit;

/// What `clearway timeslice achievable` takes: 64KiB, 128KiB, 512KiB and 1MiB are measured, or
/// --contribution alone.
#[derive(Debug, Args)]
pub(crate) struct AchievableFlags {
    #[command(flatten)]
    fabric: FabricFlags,
    #[command(flatten)]
    network: NetworkFlags,
    #[command(flatten)]
    timed: TimedFlags,
}

impl AchievableFlags {
    fn plan(&self, place: VenueKind, parts: [u32; 2]) -> Result<TimeslicePlan> {
        // A ring holds one contribution at least, and where nothing is built no more.
        let ring =
            self.network.contribution.map(|length| length.max(VenueDefaults::at(place).ring));
        let plan = self.network.plan(place, parts, ring)?;
        let plan = match place {
            VenueKind::Sim => {
                TimeslicePlan { warm_up: SIMULATED[0], measured: SIMULATED[1], ..plan }
            }
            VenueKind::Lab | VenueKind::Cluster => plan,
        };
        Ok(TimeslicePlan { hosts: self.fabric.hosts(), ..self.timed.extend(plan)? })
    }

    fn lengths(&self) -> &[Bytes] {
        self.network.contribution.as_ref().map_or(&LENGTHS, core::slice::from_ref)
    }
}

/// Measures where flags say.
pub(super) fn command(flags: &AchievableFlags) -> Result<Exit> {
    let AchievableFlags { fabric, network, .. } = flags;
    let place = fabric.place(network)?;
    if place == VenueKind::Sim {
        network.refuse_metrics_on_sim()?;
        let parts = network.parts(32);
        let plan = flags.plan(place, parts)?;
        let (machine, queue) = fabric.open(network, parts.iter().sum())?;
        let figures = simulate_achievable(&machine, &queue, &plan, flags.lengths())?;
        return show(&format!("{}, {queue}", fabric.name()), &plan, &figures, flags);
    }
    let prepare = |parts| Ok((flags.plan(place, parts)?, ()));
    network.with_ranks(place, prepare, |venue, plan, (), metrics| {
        let about = venue.about();
        let figures =
            measure_achievable(venue, plan, &network.job_name(), flags.lengths(), metrics)?;
        show(&about, plan, &figures, flags)
    })
}

fn show(
    about: &str,
    plan: &TimeslicePlan,
    figures: &[Figure],
    flags: &AchievableFlags,
) -> Result<Exit> {
    let parts = [plan.inputs, plan.builders];
    let table = || achievable_table(about, parts, figures);
    print(&flags.network.format.text(figures, &NothingMore {}, table)?)?;
    Ok(Exit::Good)
}
