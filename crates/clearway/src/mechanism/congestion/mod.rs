//! The congestion test: victims under load, cell by cell; with programs of the user's in
//! either part; and shares of classes.
//!
//! # Model
//! A phase is: victims alone, congestors on, victims alone again (`windows`). Each cell of a
//! scenario is some phases, whose records become figures and a verdict.
//!
//! # Not here
//! What is sent (`clearway_proto::congestion`); the places in which phases run (`run`).

mod bursts;
mod calibration;
pub(crate) mod cast_load;
mod cell;
pub(crate) mod coordinator;
mod culprit;
mod effect_wire;
mod evidence;
mod figures;
mod judgement;
mod names;
mod outcome;
pub(crate) mod phase_protocol;
mod phases;
pub(crate) mod program;
pub(crate) mod rate;
mod replay;
mod report;
mod section;
pub(crate) mod shares;
mod shares_section;
pub(crate) mod simulated;
mod single_runs;
mod slowest;
pub(crate) mod staging_load;
pub(crate) mod windows;

pub(crate) use bursts::Bursts;
pub(crate) use calibration::small_messages;
pub(crate) use phases::{
    PhaseCompanion, PhasePlan, PhaseResult, PhaseRole, PhaseRunner, PhaseTraces,
};
use replay::is_replay_done;
pub(crate) use replay::{PhaseReplay, ReplayQuestion, micros};
pub(crate) use section::{CongestionSection, GroupGrowth, INTENSITY_MAX, NullControl};
pub(crate) use shares_section::SharesSection;
use simulated::adjust;

use anyhow::{Context, Result, bail};

use self::program::{ProgramVenue, Programs};
use crate::report::model::Report;
use crate::run::rank_process::ServeRank;
use crate::run::session::Protocol;
use crate::run::venue::{AdjustMachine, LaunchSpec, SimVenue, Venue};
use crate::run::{CompletedParts, Mechanism, RunSpec, VenueKind, begun, ended};
use crate::scenario::{Fabric, Scenario, SectionKind};

/// The congestion test, with programs of the user's in either part.
pub(crate) struct CongestionTest;

impl Mechanism for CongestionTest {
    fn name(&self) -> &'static str {
        "congestion"
    }

    fn section(&self) -> Option<SectionKind> {
        Some(SectionKind::new::<CongestionSection>())
    }

    fn rank(&self) -> (&'static str, ServeRank) {
        (phase_protocol::CongestionProtocol::MECHANISM, phase_protocol::serve)
    }

    fn launch(&self, scenario: &Scenario) -> LaunchSpec {
        LaunchSpec::new::<phase_protocol::CongestionProtocol>(scenario.seed)
    }

    fn refusal(&self, scenario: &Scenario, place: VenueKind) -> Option<String> {
        let programs =
            scenario.section::<CongestionSection>().and_then(|test| test.programs.as_ref());
        match place {
            VenueKind::Sim if programs.is_some() => {
                Some("a command of yours runs in a lab or on a cluster; the simulator has no machine for it".to_owned())
            }
            _ => refusal(&scenario.fabric, place),
        }
    }

    fn adjust(&self, scenario: &Scenario) -> AdjustMachine {
        adjust(
            scenario
                .section::<CongestionSection>()
                .and_then(|test| test.processes_per_host)
                .unwrap_or(1),
        )
    }

    fn run(&self, order: &RunSpec<'_>, venue: &mut dyn Venue, report: &mut Report) -> Result<()> {
        let test = test_of(order)?;
        note_policy(test, report);
        run_on(order, test, &mut PhaseRunner::new(venue), report)
    }
}

/// Adds what the policy of the site says.
fn note_policy(test: &CongestionSection, report: &mut Report) {
    if let Some(sentence) = &test.policy {
        report.host.facts.insert("site policy".to_owned(), sentence.clone());
    }
}

/// Shares of classes, whose ranks are those of the congestion test.
pub(crate) struct ClassShares;

impl Mechanism for ClassShares {
    fn name(&self) -> &'static str {
        "shares"
    }

    fn section(&self) -> Option<SectionKind> {
        Some(SectionKind::new::<SharesSection>())
    }

    fn rank(&self) -> (&'static str, ServeRank) {
        CongestionTest.rank()
    }

    fn launch(&self, scenario: &Scenario) -> LaunchSpec {
        CongestionTest.launch(scenario)
    }

    fn refusal(&self, scenario: &Scenario, place: VenueKind) -> Option<String> {
        match place {
            VenueKind::Cluster => Some(
                "only [congestion] runs across a job: shares are those of queues that can be set"
                    .to_owned(),
            ),
            _ => refusal(&scenario.fabric, place),
        }
    }

    fn adjust(&self, _scenario: &Scenario) -> AdjustMachine {
        adjust(1)
    }

    fn run(&self, order: &RunSpec<'_>, venue: &mut dyn Venue, report: &mut Report) -> Result<()> {
        let test = order.scenario.section::<SharesSection>().context("no [shares]")?;
        shares::run(test, order, &mut PhaseRunner::new(venue), report)
    }
}

/// Returns why phases cannot run on `fabric` in `place`, if they cannot.
fn refusal(fabric: &Fabric, place: VenueKind) -> Option<String> {
    match place {
        VenueKind::Sim => None,
        VenueKind::Lab => fabric.as_lab().err(),
        VenueKind::Cluster => fabric.wiring().err(),
    }
}

fn test_of<'a>(order: &RunSpec<'a>) -> Result<&'a CongestionSection> {
    order.scenario.section::<CongestionSection>().context("no [congestion]")
}

fn run_on(
    order: &RunSpec<'_>,
    test: &CongestionSection,
    stage: &mut PhaseRunner<'_>,
    report: &mut Report,
) -> Result<()> {
    match &test.programs {
        Some(programs) if programs.victim.is_some() => {
            program::run(programs, test, order, ProgramVenue::Stage(stage), report)
        }
        _ => coordinator::run(test, order, stage, report),
    }
}

/// Runs the two commands of `programs` on this machine, without any rank, and returns the report.
///
/// # Errors
/// One sentence: a command that fails, or that the user interrupted.
pub(crate) fn run_here(order: &RunSpec<'_>, programs: &Programs) -> Result<Report> {
    let mut report = begun(order, "here");
    let test = test_of(order)?;
    note_policy(test, &mut report);
    program::run(programs, test, order, ProgramVenue::Here, &mut report)?;
    ended(&mut report);
    Ok(report)
}

/// Simulates `order` again and returns what `wanted` asks about. An answer found early ends the
/// run.
///
/// # Errors
/// As [`crate::run::run`].
pub(crate) fn replayed(
    order: &RunSpec<'_>,
    mechanism: &dyn Mechanism,
    wanted: ReplayQuestion,
) -> Result<PhaseReplay> {
    let scenario = order.scenario;
    let queue = match (scenario.section::<CongestionSection>(), scenario.section::<SharesSection>())
    {
        (Some(test), _) => test.queues.first(),
        (_, Some(test)) => test.queues.first(),
        _ => bail!(
            "messages of [{}] are not followed; those of [congestion] and [shares] are",
            mechanism.name()
        ),
    };
    let mut venue = SimVenue::open(
        &scenario.fabric,
        &mechanism.launch(scenario),
        mechanism.adjust(scenario),
        CompletedParts::default(),
    )?;
    venue.arm(queue.context("no queue")?)?;
    let watch = PhaseReplay::new(wanted);
    watch.check(&venue.hosts())?;
    let mut report = begun(order, VenueKind::Sim.name());
    let mut stage = PhaseRunner::new(&mut venue);
    stage.simulated.watch = Some(watch);
    let done = match scenario.section::<SharesSection>() {
        Some(test) => shares::run(test, order, &mut stage, &mut report),
        None => run_on(order, test_of(order)?, &mut stage, &mut report),
    };
    match done {
        Err(error) if !is_replay_done(&error) => Err(error),
        _ => {
            let mut watch = stage.simulated.watch.take().context("nothing was watched")?;
            watch.digests = venue.digests;
            Ok(watch)
        }
    }
}

#[cfg(test)]
mod tests;
