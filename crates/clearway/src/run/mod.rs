//! Runs a scenario in a place: makes the venue, lets the scenario's mechanism run in it, and
//! returns the report.
//!
//! # Model
//! ```text
//!    scenario -> mechanism (registry) -> venue (simulator, lab, job) -> figures, verdict -> report
//! ```
//! In a lab and in a job ranks are processes that talk to each other over the network under test
//! only, and to this process over pipes or connections of their own only, so that control never
//! disturbs what is measured. In the simulator they are engines in this process.
//!
//! # Invariants
//! I1. Whatever ends this process ends the ranks (their pipes close) and the lab (its namespaces
//!     have no other holder).
//! I2. The report of a run that was interrupted has whole cells only, says so, and has no verdict.
//!
//! # Not here
//! What is sent and measured: the mechanisms; how a report looks: `report`.

mod complete;
pub(crate) mod exit;
mod forecast;
pub(crate) mod interrupt;
pub(crate) mod job;
pub(crate) mod key_file;
mod message;
pub(crate) mod metrics;
mod parameters;
mod print;
pub(crate) mod processes;
pub(crate) mod processor_halves;
pub(crate) mod rank_process;
mod remaining;
pub(crate) mod session;
mod summary;
pub(crate) mod task;
pub(crate) mod venue;
mod venue_kind;

use std::collections::BTreeSet;

use anyhow::{Result, bail};

use self::rank_process::ServeRank;
use self::venue::{AdjustMachine, LaunchSpec, Venue};
use crate::report::model::Report;
use crate::report::present::Presenter;
use crate::scenario::{Scenario, SectionKind};

pub(crate) use complete::CompletedParts;
pub(crate) use print::{for_output, json_text, print};
pub(crate) use remaining::{
    RemainingTime, Verbosity, detail, erase_line, notice, reached, say, set_verbosity,
};
pub(crate) use summary::{begun, begun_without_scenario, ended};
pub(crate) use venue_kind::VenueKind;

/// What to run and how it came about.
pub(crate) struct RunSpec<'a> {
    /// The scenario in force.
    pub(crate) scenario: &'a Scenario,
    /// Its text as it was written.
    pub(crate) text: &'a str,
    /// Parameters that the command line set, as `table.key`.
    pub(crate) flags: BTreeSet<String>,
    /// Where cells go that are complete.
    pub(crate) complete: CompletedParts,
}

/// A mechanism as the runner sees it.
pub(crate) trait Mechanism: Presenter {
    /// Returns the name of its table in scenario files.
    fn name(&self) -> &'static str;

    /// Returns its table, where scenario files have one.
    fn section(&self) -> Option<SectionKind> {
        None
    }

    /// Returns the name by which rank processes find their part, and that part.
    fn rank(&self) -> (&'static str, ServeRank);

    /// Returns the ranks that `scenario` wants.
    fn launch(&self, scenario: &Scenario) -> LaunchSpec;

    /// Returns why `scenario` cannot run in `place`, if it cannot: what works instead.
    fn refusal(&self, scenario: &Scenario, place: VenueKind) -> Option<String>;

    /// Returns what `scenario` changes of a simulated machine.
    fn adjust(&self, _scenario: &Scenario) -> AdjustMachine {
        Box::new(|_| ())
    }

    /// Runs `order` in `venue` and writes what it showed into `report`.
    ///
    /// # Errors
    /// One sentence: what was refused, which host died, or that the user interrupted.
    fn run(&self, order: &RunSpec<'_>, venue: &mut dyn Venue, report: &mut Report) -> Result<()>;
}

/// Runs `order`, a scenario of `mechanism`, in `place`, which is no job's, and returns its report.
/// Progress goes to standard error.
///
/// # Errors
/// One sentence: what was refused, which host died, or that the user interrupted.
pub(crate) fn run(
    order: &RunSpec<'_>,
    mechanism: &dyn Mechanism,
    place: VenueKind,
) -> Result<Report> {
    if let Some(why) = mechanism.refusal(order.scenario, place) {
        bail!("{why}");
    }
    let (launch, adjust) = (mechanism.launch(order.scenario), mechanism.adjust(order.scenario));
    let mut venue =
        venue::open(&order.scenario.fabric, place, &launch, adjust, order.complete.clone())?;
    run_in(order, mechanism, &mut *venue)
}

/// Runs `order`, a scenario of `mechanism`, in `venue` and returns its report.
///
/// # Errors
/// As [`run`].
pub(crate) fn run_in(
    order: &RunSpec<'_>,
    mechanism: &dyn Mechanism,
    venue: &mut dyn Venue,
) -> Result<Report> {
    let mut report = begun(order, venue.place().name());
    venue.introduce(&mut report);
    mechanism.run(order, venue, &mut report)?;
    ended(&mut report);
    venue.conclude(&mut report);
    Ok(report)
}
