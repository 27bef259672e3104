//! All mechanisms on one network: an application beside OpenSHMEM puts, timeslice building, a cast
//! and a checkpoint, in one class and in classes.
//!
//! # Model
//! Each transfer runs alone first. Then all run at once, on the queue without classes and on that
//! with classes. The application runs all along: alone, beside the transfers, alone again.
//!
//! # Not here
//! The mechanisms: their engines are those of `clearway_proto`, or their own commands.

mod figures;
mod job;
mod outcome;
mod report;
mod roles;
mod section;
mod simulated;

use anyhow::{Context, Result, bail};
use clearway_wires::{WireNeeds, WireRequest};

use self::outcome::TransferSet;
use self::roles::Transfer;
use self::section::TogetherSection;
use crate::mechanism::congestion;
use crate::report::model::Report;
use crate::run::exit::Exit;
use crate::run::rank_process::{RankContext, ServeRank};
use crate::run::venue::{AdjustMachine, LaunchSpec, Venue, VenueRanks};
use crate::run::{Mechanism, RunSpec, VenueKind};
use crate::scenario::{Fabric, Scenario, SectionKind};

const NAME: &str = "together";
/// Why it has no rank processes.
const ELSEWHERE: &str = "[together] runs on a simulated machine, use --on sim";

/// The scenario in which all mechanisms share a network.
pub(crate) struct Together;

impl Mechanism for Together {
    fn name(&self) -> &'static str {
        NAME
    }

    fn section(&self) -> Option<SectionKind> {
        Some(SectionKind::new::<TogetherSection>())
    }

    fn rank(&self) -> (&'static str, ServeRank) {
        (NAME, serve)
    }

    fn launch(&self, scenario: &Scenario) -> LaunchSpec {
        LaunchSpec {
            seed: scenario.seed,
            mechanism: NAME,
            need: WireNeeds::Packets,
            per_host: 1,
            wire: WireRequest::AUTO,
        }
    }

    fn refusal(&self, scenario: &Scenario, place: VenueKind) -> Option<String> {
        match (place, &scenario.fabric) {
            (VenueKind::Sim, Fabric::Machine(_)) => None,
            (VenueKind::Sim, _) => Some("[together] needs a machine: a `preset` works".to_owned()),
            _ => Some(ELSEWHERE.to_owned()),
        }
    }

    fn adjust(&self, _: &Scenario) -> AdjustMachine {
        // All times are of one clock.
        congestion::simulated::adjust(1)
    }

    fn run(&self, order: &RunSpec<'_>, venue: &mut dyn Venue, report: &mut Report) -> Result<()> {
        let test = order.scenario.section::<TogetherSection>().context("no [together]")?;
        let windows = test.windows(&order.scenario.fabric);
        let [one_class, classes] = &test.queues[..] else { bail!("[together] has two queues") };
        let alone = Transfer::ALL.map(|transfer| (one_class, TransferSet::Alone(transfer)));
        let all = [one_class, classes].map(|queue| (queue, TransferSet::All));
        let mut runs = Vec::new();
        let mut armed = None;
        for (queue, set) in alone.into_iter().chain(all) {
            if armed != Some(queue) {
                venue.arm(queue)?;
                armed = Some(queue);
            }
            eprintln!("{queue}: {}", set.name());
            let VenueRanks::Simulated(venue) = venue.ranks() else { bail!(ELSEWHERE) };
            runs.push(simulated::run(venue, test, windows, set, queue)?);
        }
        report.figures.extend(figures::figures(&runs, &windows));
        report.set_part(&figures::series(&runs, &windows));
        Ok(())
    }
}

fn serve(_: RankContext) -> Result<Exit> {
    bail!(ELSEWHERE)
}
