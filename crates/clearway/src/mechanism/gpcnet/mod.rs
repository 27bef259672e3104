//! GPCNeT's own tests in a place: draws the roles, runs test after test, prints the tables of the
//! original.
//!
//! # Model
//! ```text
//!    flags -> venue (simulator, laboratory, job) -> layout -> draw -> [tasks -> records -> row] for each test -> table -> notes
//! ```
//! What the original's table does not say (seed, what was mended, what was refused) stands in lines
//! below it, so that a reader of the original's output reads this one.
//!
//! # Not here
//! What is sent and how figures come about (`clearway_proto::gpcnet`).

mod figures;
mod flags;
mod runner;
mod suite;
pub(crate) mod test_protocol;

use std::fs;

use anyhow::{Context, Result, bail};
use clearway_proto::gpcnet::PrintedRun;

use crate::report::model::{Parameter, Report, ReportScenario};
use crate::report::place_comparison;
use crate::report::present::Presenter;
use crate::run::job::CoordinatedJob;
use crate::run::rank_process::ServeRank;
use crate::run::session::Protocol as _;
use crate::run::venue::{self, LaunchSpec, Venue};
use crate::run::{CompletedParts, Mechanism, RunSpec, VenueKind, begun_without_scenario};
use crate::scenario::{Fabric, Scenario};

pub(crate) use flags::{GpcnetFlags, Suite};
use runner::TestRunner;
use suite::SuiteRun;
use test_protocol::GpcnetProtocol;

/// The name of its reports.
pub(crate) const NAME: &str = "gpcnet";

/// GPCNeT's own tests, which a command of their own runs.
pub(crate) struct Gpcnet;

// Its tables are those of the original, on the terminal alone.
impl Presenter for Gpcnet {}

impl Mechanism for Gpcnet {
    fn name(&self) -> &'static str {
        GpcnetProtocol::MECHANISM
    }

    fn rank(&self) -> (&'static str, ServeRank) {
        (GpcnetProtocol::MECHANISM, test_protocol::serve)
    }

    fn launch(&self, scenario: &Scenario) -> LaunchSpec {
        LaunchSpec::new::<GpcnetProtocol>(scenario.seed)
    }

    fn refusal(&self, _scenario: &Scenario, _place: VenueKind) -> Option<String> {
        Some("GPCNeT's own tests have no scenario: clearway gpcnet runs them".to_owned())
    }

    fn run(
        &self,
        _order: &RunSpec<'_>,
        _venue: &mut dyn Venue,
        _report: &mut Report,
    ) -> Result<()> {
        bail!("GPCNeT's own tests have no scenario; this is a defect of the program")
    }
}

/// What to run, and on what.
pub(crate) struct GpcnetSpec<'a> {
    /// The fabric of the run.
    pub(crate) fabric: Fabric,
    /// Its queue or policy; the first usual one without it.
    pub(crate) queue: Option<String>,
    /// Where to run; with two places, side by side.
    pub(crate) places: &'a [VenueKind],
    /// What the original draws from its clock.
    pub(crate) seed: u64,
    /// Classes of victims and congestors.
    pub(crate) classes: [clearway_proto::base::Class; 2],
    /// What is in force, as the report has it.
    pub(crate) parameters: Vec<Parameter>,
    /// Everything else.
    pub(crate) flags: &'a GpcnetFlags,
}

/// Runs `suite` (on the ranks of `site`, where the place is a job's) and returns the text to print
/// and the report.
///
/// # Errors
/// One sentence: what was refused, which rank died, that the user interrupted, or what the file to
/// compare with lacks.
pub(crate) fn run(
    order: &GpcnetSpec<'_>,
    suite: Suite,
    site: Option<&CoordinatedJob>,
) -> Result<(String, Report)> {
    // What cannot be read is not waited for.
    let saved = order.flags.saved_run.as_ref().map(|path| {
        let text = fs::read_to_string(path)
            .with_context(|| format!("{} cannot be read", path.display()))?;
        PrintedRun::parse(&text).with_context(|| path.display().to_string())
    });
    let saved = saved.transpose()?;
    let (mut all, mut reports) = (String::new(), Vec::new());
    let mut first: Option<(VenueKind, PrintedRun)> = None;
    for place in order.places {
        let (text, report) = in_place(order, suite, *place, site)?;
        reports.push(report);
        let ours = PrintedRun::parse(&text).context("the own table")?;
        let blank = if all.is_empty() { "" } else { "\n" };
        all += &format!("{blank}{text}");
        if let Some(saved) = &saved {
            all += &format!("\n{}", ours.side_by_side(saved, "here", "theirs"));
        }
        match &first {
            None => first = Some((*place, ours)),
            Some((other, theirs)) => {
                all += &format!("\n{}", ours.side_by_side(theirs, place.name(), other.name()))
            }
        }
    }
    let report = place_comparison::merge(reports, &[]).context("no place to run at")?;
    Ok((all, report))
}

/// Returns the tables of `suite` in `place`, what they do not say, and the report.
fn in_place(
    order: &GpcnetSpec<'_>,
    suite: Suite,
    place: VenueKind,
    site: Option<&CoordinatedJob>,
) -> Result<(String, Report)> {
    let scenario = ReportScenario { name: NAME.to_owned(), text: String::new() };
    let mut report = begun_without_scenario(scenario, order.seed, place.name());
    report.parameters.clone_from(&order.parameters);
    let mut run = SuiteRun::new(order, runner(order, place, site)?)?;
    let text = match suite {
        Suite::Network => run.network(),
        Suite::Load => run.load(),
    }?;
    run.write(&mut report);
    Ok((text, report))
}

fn runner(
    order: &GpcnetSpec<'_>,
    place: VenueKind,
    site: Option<&CoordinatedJob>,
) -> Result<TestRunner> {
    let per_host = order.flags.ppn.unwrap_or(1).max(1);
    let spec = LaunchSpec { per_host, ..LaunchSpec::new::<GpcnetProtocol>(order.seed) };
    if place == VenueKind::Cluster {
        return Ok(TestRunner::new(Box::new(venue::open_job(site, &spec)?)));
    }
    let queue = match &order.queue {
        Some(queue) => queue.clone(),
        None => order
            .fabric
            .queues()
            .map_err(anyhow::Error::msg)?
            .into_iter()
            .next()
            .context("no queue")?,
    };
    let mut venue = venue::open(
        &order.fabric,
        place,
        &spec,
        Box::new(|spec| spec.host.clock_ppm = 0),
        CompletedParts::default(),
    )?;
    venue.arm(&queue)?;
    Ok(TestRunner::new(venue))
}

#[cfg(test)]
mod tests;
