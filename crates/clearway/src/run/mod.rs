//! Runs a scenario in a place: makes it, gives every rank its part, conducts the phases, writes the report.
//!
//! # Model
//! ```text
//!    scenario -> stage (lab or simulator) -> queue -> phases -> records -> figures -> verdict -> report
//! ```
//! In a lab ranks are processes that talk to each other over the lab's network only, and to this process over pipes only, so
//! that control never disturbs what is measured. In the simulator they are engines in this process.
//!
//! # Invariants
//! I1. Whatever ends this process ends the ranks (their pipes close) and the lab (its namespaces have no other holder).
//! I2. No report is written for a run that did not finish.
//!
//! # Not here
//! What is sent (`clearway_proto`); how a report looks (`report`).

pub(crate) mod engine;
pub(crate) mod exit;
mod fleet;
pub(crate) mod job;
mod message;
mod place;
pub(crate) mod rank;
pub(crate) mod stage;
mod summary;

use std::collections::BTreeSet;

use anyhow::{Context, Result, anyhow, bail};
use clearway_proto::base::Rank;

use crate::mechanism::broadcast::Broadcast;
use crate::mechanism::congestion::program::{self, Ground, Programs};
use crate::mechanism::congestion::{conduct as congestion, shares};
use crate::mechanism::timeslice::Timeslice;
use crate::report::model::Report;
use crate::scenario::{Fabric, Mechanism, Scenario};

pub(crate) use engine::Measure;
pub(crate) use place::Place;
pub(crate) use stage::{Crew, Held, Interrupt, Interrupted, Ranks, Wanted, Watch, micros};

/// What to run and how it came about.
pub(crate) struct Order<'a> {
    /// The scenario in force.
    pub(crate) scenario: &'a Scenario,
    /// Its text as it was written.
    pub(crate) text: &'a str,
    /// Parameters that the command line set, as `table.key`.
    pub(crate) flags: BTreeSet<String>,
    /// Commands of the user's that take the part of victims or congestors.
    pub(crate) programs: Option<&'a Programs>,
}

/// Runs `order` in `place`, which is no job's, and returns its report. Progress goes to standard error.
///
/// # Errors
/// One sentence: what was refused, which host died, or that the user interrupted.
pub(crate) fn run(order: &Order<'_>, place: Place) -> Result<Report> {
    match order.scenario.mechanism().map_err(|why| anyhow!(why))? {
        Mechanism::Timeslice(test) if place == Place::Sim => build(order, test),
        Mechanism::Broadcast(test) if place == Place::Lab => cast(order, test),
        Mechanism::Broadcast(test) if matches!(order.scenario.fabric, Fabric::Machine(_)) => {
            cast_on_machines(order, test)
        }
        Mechanism::Broadcast(_) => {
            bail!("broadcasts of a `topology` run in a laboratory, use --on lab; on the simulator they need a `preset`")
        }
        Mechanism::Timeslice(_) => bail!("a scenario of timeslices runs on the simulator: use --on sim"),
        _ => complete(order, stage::open(order.scenario, place)?),
    }
}

/// Builds timeslices as `test` says and returns the report of that.
fn build(order: &Order<'_>, test: &Timeslice) -> Result<Report> {
    let mut report = summary::begun(order, Place::Sim.name());
    let hosts = order.scenario.fabric.hosts().map_err(|why| anyhow!(why))?;
    let plan = test.plan(hosts, order.scenario.seed);
    crate::mechanism::timeslice::report(&order.scenario.fabric, &test.queue, &plan, &mut report)?;
    summary::ended(&mut report);
    Ok(report)
}

/// Casts as `test` says and returns the report of that.
fn cast(order: &Order<'_>, test: &Broadcast) -> Result<Report> {
    let mut report = summary::begun(order, Place::Lab.name());
    let fabric = &order.scenario.fabric;
    let hosts = fabric.hosts().map_err(|why| anyhow!(why))?;
    let rate = fabric.host_rate().map_err(|why| anyhow!(why))?;
    let plan = test.plan(hosts, Some(rate), order.scenario.seed);
    let crew = Crew::of(order.scenario.seed, Measure::Broadcast);
    let mut held = Held::in_lab(fabric, &test.queue, &crew)?;
    report.host.facts.extend(held.ranks().wires().clone());
    let outcomes = crate::mechanism::broadcast::conduct(&mut held, &plan, Place::Lab)?;
    report.host.facts.extend(held.proofs());
    report.figures = crate::mechanism::broadcast::figures(&plan, &outcomes);
    let names = (0..plan.ranks).map(|rank| held.ranks().host(Rank(rank)).to_owned()).collect();
    report.casting = Some(crate::mechanism::broadcast::casting(&plan, names, &outcomes));
    report.warnings.extend(held.ranks().warnings());
    summary::ended(&mut report);
    Ok(report)
}

/// The same on every machine that `test` names.
fn cast_on_machines(order: &Order<'_>, test: &Broadcast) -> Result<Report> {
    let mut report = summary::begun(order, Place::Sim.name());
    for (machine, ranks) in test.machines(&order.scenario.fabric) {
        let plan = test.plan(ranks, None, order.scenario.seed);
        // Another machine has policies of its own.
        let queue = (order.scenario.fabric.to_string() == machine).then_some(test.queue.as_str());
        eprintln!("{ranks} ranks on {machine}");
        report.figures.extend(crate::mechanism::broadcast::simulated::on_machine(machine, queue, &plan)?);
    }
    summary::ended(&mut report);
    Ok(report)
}

fn complete(order: &Order<'_>, mut stage: Box<dyn stage::Stage>) -> Result<Report> {
    let mut report = summary::opened(order, &*stage);
    conduct(order, &mut *stage, &mut report)?;
    summary::close(&mut report, &*stage);
    Ok(report)
}

/// The ranks of a job, ready for a run.
pub(crate) struct Gathered(stage::JobStage);

impl Gathered {
    /// Brings the ranks of `site` together for runs with `seed`.
    ///
    /// # Errors
    /// One sentence: which rank cannot take part, and why.
    pub(crate) fn new(site: &job::Site, seed: u64) -> Result<Self> {
        stage::job(&Crew::of(seed, Measure::Congestion), Some(site)).map(Self)
    }

    /// Measures how fast the host links of `site` are; tells it on standard error.
    ///
    /// # Errors
    /// Nothing comes through between two hosts.
    pub(crate) fn measure_rate(&mut self, site: &job::Site) -> Result<clearway_proto::base::BitsPerSec> {
        let measured = self.0.measure_rate(site).context("the interfaces do not say how fast they are; --rate does")?;
        eprintln!("host links: {measured}; --rate says it instead");
        Ok(measured.rate)
    }

    /// Runs `order` and returns its report.
    ///
    /// # Errors
    /// As [`run`].
    pub(crate) fn run(self, order: &Order<'_>) -> Result<Report> {
        complete(order, Box::new(self.0))
    }
}

/// Runs the two commands of `order` on this machine, without any rank, and returns the report.
///
/// # Errors
/// As [`run`]; a command that fails.
pub(crate) fn run_here(order: &Order<'_>) -> Result<Report> {
    let programs = order.programs.context("no commands to run")?;
    let test = order.scenario.congestion.as_ref().context("no congestion test")?;
    let mut report = summary::begun(order, "here");
    program::run(programs, test, order, Ground::Here, &mut report)?;
    summary::ended(&mut report);
    Ok(report)
}

/// Brings the ranks of `site` together until all of them could send, and lets them go.
///
/// # Errors
/// As [`run`].
pub(crate) fn gather(site: &job::Site) -> Result<()> {
    stage::job(&Crew::of(0, Measure::Congestion), Some(site)).map(drop)
}

/// Simulates `order` again and returns what `wanted` asks about.
///
/// # Errors
/// As [`run`].
pub(crate) fn watched(order: &Order<'_>, wanted: Wanted) -> Result<Watch> {
    stage::watched(order.scenario, wanted, |stage| {
        let mut report = summary::opened(order, &*stage);
        conduct(order, stage, &mut report)
    })
}

fn conduct(order: &Order<'_>, stage: &mut dyn stage::Stage, report: &mut Report) -> Result<()> {
    match order.scenario.mechanism().map_err(|why| anyhow!(why))? {
        Mechanism::Congestion(test) => match order.programs {
            Some(programs) if programs.victim.is_some() => {
                program::run(programs, test, order, Ground::Stage(stage), report)
            }
            _ => congestion::run(test, order, stage, report),
        },
        Mechanism::Shares(test) => shares::run(test, order, stage, report),
        Mechanism::Broadcast(_) => bail!("broadcasts are cast without a stage; this is a defect of the program"),
        Mechanism::Timeslice(_) => bail!("timeslices are built without a stage; this is a defect of the program"),
    }
}
