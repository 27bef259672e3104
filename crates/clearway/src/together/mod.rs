//! All mechanisms on one network: an application with OpenSHMEM puts, timeslice building, a cast
//! and a checkpoint, in one class and in classes.
//!
//! # Model
//! Each transfer runs alone first. Then all run at once, on the queue without classes and on that
//! with classes. The application runs all along: alone, with the transfers, alone again.
//!
//! # Not here
//! The mechanisms: their engines are those of `clearway_proto`, or their own commands.

mod figures;
mod job;
mod lab;
mod outcome;
mod report;
mod roles;
mod section;
mod simulated;

use std::time::Duration;

use anyhow::{Context, Result, anyhow, bail};
use clearway_proto::base::RandomKey;

use self::lab::MpiPart;
use self::outcome::TransferSet;
use self::roles::Transfer;
use self::section::TogetherSection;
use crate::mechanism::congestion::{self, CongestionTest, PhaseRunner};
use crate::report::model::Report;
use crate::run::processor_halves::ProcessorHalf;
use crate::run::rank_process::ServeRank;
use crate::run::venue::{AdjustMachine, LaunchSpec, Venue};
use crate::run::{Mechanism, RemainingTime, RunSpec, VenueKind, detail};
use crate::scenario::{Fabric, Scenario, SectionKind};

const NAME: &str = "together";

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
        // The application is a rank of the congestion test on each host.
        CongestionTest.rank()
    }

    fn launch(&self, scenario: &Scenario) -> LaunchSpec {
        LaunchSpec { processors: Some(ProcessorHalf::Ranks), ..CongestionTest.launch(scenario) }
    }

    fn refusal(&self, scenario: &Scenario, place: VenueKind) -> Option<String> {
        match (place, &scenario.fabric) {
            (VenueKind::Sim, Fabric::Machine(_)) => None,
            (VenueKind::Sim, _) => {
                Some("on the simulator [together] needs a machine: a `preset` works".to_owned())
            }
            (VenueKind::Lab, fabric) => fabric.as_lab().err(),
            (VenueKind::Cluster, _) => Some(
                "[together] runs on a simulated machine or in a lab: --on sim, --on lab".to_owned(),
            ),
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
        let in_lab = venue.place() == VenueKind::Lab;
        let (transfers, left_out) =
            if in_lab { lab::transfers() } else { (Transfer::ALL.to_vec(), Vec::new()) };
        report.warnings.extend(left_out);
        let mut mpi = MpiPart::new(if in_lab { test.mpi } else { Some(false) });
        let alone = transfers.iter().map(|transfer| (one_class, TransferSet::Alone(*transfer)));
        let all = [one_class, classes].map(|queue| (queue, TransferSet::All));
        let rate = order.scenario.fabric.host_rate().map_err(|why| anyhow!(why))?;
        let key = RandomKey::new(order.scenario.seed);
        let count = transfers.len() + 2;
        let length = in_lab.then(|| Duration::from_nanos(windows.length().0));
        let remaining = RemainingTime::begin("run", vec![1.0; count], length);
        let mut runs = Vec::new();
        let mut armed = None;
        let mut stage = PhaseRunner::new(venue);
        for (queue, set) in alone.chain(all) {
            if armed != Some(queue) {
                stage.arm(queue)?;
                armed = Some(queue);
            }
            detail!("{queue}: {}", set.name());
            remaining.part(format!("{queue}: {}", set.name()));
            runs.push(match stage.simulator() {
                Some(venue) => simulated::run(venue, test, windows, set, queue)?,
                None => {
                    let chosen = (set, &transfers[..]);
                    lab::run(&mut stage, test, key, windows, chosen, (queue, rate), &mut mpi)?
                }
            });
        }
        stage.conclude(report);
        report.warnings.extend(mpi.warnings());
        let busy = runs.iter().filter(|run| run.processor_wait > lab::WAIT_MAX);
        report.warnings.extend(busy.map(|run| {
            format!(
                "{} with {}: the application's ranks waited {:.0} % of the time for a processor, so its times are also \
                 the machine's; repeat on a quiet one",
                run.queue,
                run.set.name(),
                run.processor_wait * 100.0
            )
        }));
        report.figures.extend(figures::figures(&runs, &windows));
        report.set_part(&figures::series(&runs, &windows));
        Ok(())
    }
}
