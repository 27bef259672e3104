//! The congestion test: victims beside congestors, cell by cell; with programs of the user's in either part; and shares of classes.
//!
//! # Model
//! A phase is: victims alone, congestors on, victims alone again (`windows`). Each cell of a scenario is some phases, whose records
//! become figures and a verdict.
//!
//! # Not here
//! What is sent (`clearway_proto::congestion`); the places in which phases run (`run`).

mod calibration;
mod cell;
pub(crate) mod conduct;
mod evidence;
mod figures;
mod judgement;
mod names;
mod outcome;
mod phases;
pub(crate) mod program;
pub(crate) mod rank;
pub(crate) mod rate;
mod report;
mod section;
pub(crate) mod shares;
mod shares_section;
mod simulated;
mod slowest;
mod watch;
pub(crate) mod windows;
pub(crate) mod with_cast;

pub(crate) use calibration::small_messages;
pub(crate) use phases::Stage;
pub(crate) use section::{Congestion, INTENSITY_MAX, NullControl};
pub(crate) use shares_section::Shares;
use simulated::adjust;
use watch::is_enough;
pub(crate) use watch::{Wanted, Watch, micros};

use anyhow::{Context, Result, bail};

use self::program::{Ground, Programs};
use crate::report::model::Report;
use crate::run::rank::Serve;
use crate::run::session::Protocol;
use crate::run::venue::{Adjust, LaunchSpec, SimVenue, Venue};
use crate::run::{Complete, Mechanism, Order, Place, begun, ended};
use crate::scenario::{Fabric, Scenario, SectionKind};

/// The congestion test, with programs of the user's in either part.
pub(crate) struct CongestionTest;

impl Mechanism for CongestionTest {
    fn name(&self) -> &'static str {
        "congestion"
    }

    fn section(&self) -> Option<SectionKind> {
        Some(SectionKind::of::<Congestion>())
    }

    fn rank(&self) -> (&'static str, Serve) {
        (rank::Phases::MECHANISM, rank::serve)
    }

    fn launch(&self, scenario: &Scenario) -> LaunchSpec {
        LaunchSpec::new::<rank::Phases>(scenario.seed)
    }

    fn refusal(&self, scenario: &Scenario, place: Place) -> Option<String> {
        let programs = scenario.section::<Congestion>().and_then(|test| test.programs.as_ref());
        match place {
            Place::Sim if programs.is_some() => {
                Some("a command of yours runs in a lab or on a cluster; the simulator has no machine for it".to_owned())
            }
            _ => refusal(&scenario.fabric, place),
        }
    }

    fn adjust(&self, scenario: &Scenario) -> Adjust {
        adjust(scenario.section::<Congestion>().and_then(|test| test.processes_per_host).unwrap_or(1))
    }

    fn run(&self, order: &Order<'_>, venue: &mut dyn Venue, report: &mut Report) -> Result<()> {
        let test = test_of(order)?;
        run_on(order, test, &mut Stage::new(venue), report)
    }
}

/// Shares of classes, whose ranks are those of the congestion test.
pub(crate) struct ClassShares;

impl Mechanism for ClassShares {
    fn name(&self) -> &'static str {
        "shares"
    }

    fn section(&self) -> Option<SectionKind> {
        Some(SectionKind::of::<Shares>())
    }

    fn rank(&self) -> (&'static str, Serve) {
        CongestionTest.rank()
    }

    fn launch(&self, scenario: &Scenario) -> LaunchSpec {
        CongestionTest.launch(scenario)
    }

    fn refusal(&self, scenario: &Scenario, place: Place) -> Option<String> {
        match place {
            Place::Cluster => {
                Some("only [congestion] runs across a job: shares are those of queues that can be set".to_owned())
            }
            _ => refusal(&scenario.fabric, place),
        }
    }

    fn adjust(&self, _scenario: &Scenario) -> Adjust {
        adjust(1)
    }

    fn run(&self, order: &Order<'_>, venue: &mut dyn Venue, report: &mut Report) -> Result<()> {
        let test = order.scenario.section::<Shares>().context("no [shares]")?;
        shares::run(test, order, &mut Stage::new(venue), report)
    }
}

/// Why phases cannot run on `fabric` in `place`, if they cannot.
fn refusal(fabric: &Fabric, place: Place) -> Option<String> {
    match place {
        Place::Sim => None,
        Place::Lab => fabric.as_lab().err(),
        Place::Cluster => fabric.wiring().err(),
    }
}

fn test_of<'a>(order: &Order<'a>) -> Result<&'a Congestion> {
    order.scenario.section::<Congestion>().context("no [congestion]")
}

fn run_on(order: &Order<'_>, test: &Congestion, stage: &mut Stage<'_>, report: &mut Report) -> Result<()> {
    match &test.programs {
        Some(programs) if programs.victim.is_some() => {
            program::run(programs, test, order, Ground::Stage(stage), report)
        }
        _ => conduct::run(test, order, stage, report),
    }
}

/// Runs the two commands of `programs` on this machine, without any rank, and returns the report.
///
/// # Errors
/// One sentence: a command that fails, or that the user interrupted.
pub(crate) fn run_here(order: &Order<'_>, programs: &Programs) -> Result<Report> {
    let mut report = begun(order, "here");
    program::run(programs, test_of(order)?, order, Ground::Here, &mut report)?;
    ended(&mut report);
    Ok(report)
}

/// Simulates `order` again and returns what `wanted` asks about. An answer found early ends the run.
///
/// # Errors
/// As [`crate::run::run`].
pub(crate) fn watched(order: &Order<'_>, mechanism: &dyn Mechanism, wanted: Wanted) -> Result<Watch> {
    let scenario = order.scenario;
    let queue = match (scenario.section::<Congestion>(), scenario.section::<Shares>()) {
        (Some(test), _) => test.queues.first(),
        (_, Some(test)) => test.queues.first(),
        _ => bail!("messages of [{}] are not followed; those of [congestion] and [shares] are", mechanism.name()),
    };
    let mut venue =
        SimVenue::open(&scenario.fabric, &mechanism.launch(scenario), mechanism.adjust(scenario), Complete::default())?;
    venue.arm(queue.context("no queue")?)?;
    let watch = Watch::new(wanted);
    watch.check(&venue.hosts())?;
    let mut report = begun(order, Place::Sim.name());
    let mut stage = Stage::new(&mut venue);
    stage.simulated.watch = Some(watch);
    let done = match scenario.section::<Shares>() {
        Some(test) => shares::run(test, order, &mut stage, &mut report),
        None => run_on(order, test_of(order)?, &mut stage, &mut report),
    };
    match done {
        Err(error) if !is_enough(&error) => Err(error),
        _ => {
            let mut watch = stage.simulated.watch.take().context("nothing was watched")?;
            watch.digests = venue.digests;
            Ok(watch)
        }
    }
}

#[cfg(test)]
mod tests;
