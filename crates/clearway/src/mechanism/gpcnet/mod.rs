//! GPCNeT's own tests in a place: draws the roles, runs test after test, prints the tables of the original.
//!
//! # Model
//! ```text
//!    flags -> ground (simulator, laboratory, job) -> layout -> draw -> [tasks -> records -> row] for each test -> table -> notes
//! ```
//! What the original's table does not say (seed, what was mended, what was refused) stands in lines below it, so that whoever
//! reads the original's output reads this one.
//!
//! # Not here
//! What is sent and how figures come about (`clearway_proto::gpcnet`).

mod flags;
mod ground;
mod processes;
mod suite;

use std::fs;

use anyhow::{Context, Result};
use clearway_proto::gpcnet::Printed;

use crate::run::Place;
use crate::run::job::Site;
use crate::scenario::Fabric;

pub(crate) use flags::{GpcnetFlags, Suite};
use ground::{Ground, Simulated};
use processes::Processes;
use suite::Run;

/// What to run, and on what.
pub(crate) struct GpcnetOrder<'a> {
    /// The fabric of the run.
    pub(crate) fabric: Fabric,
    /// Its queue or policy; the first usual one without it.
    pub(crate) queue: Option<String>,
    /// Where to run; with two places, side by side.
    pub(crate) places: &'a [Place],
    /// What the original draws from its clock.
    pub(crate) seed: u64,
    /// Classes of victims and congestors.
    pub(crate) classes: [clearway_proto::base::Class; 2],
    /// Everything else.
    pub(crate) flags: &'a GpcnetFlags,
}

/// Runs `suite` (on the ranks of `site`, where the place is a job's) and returns the text to print.
///
/// # Errors
/// One sentence: what was refused, which rank died, that the user interrupted, or what the file to compare with lacks.
pub(crate) fn run(order: &GpcnetOrder<'_>, suite: Suite, site: Option<&Site>) -> Result<String> {
    // What cannot be read shall not be waited for.
    let beside = order.flags.beside.as_ref().map(|path| {
        let text = fs::read_to_string(path).with_context(|| format!("{} cannot be read", path.display()))?;
        Printed::parse(&text).with_context(|| path.display().to_string())
    });
    let beside = beside.transpose()?;
    let mut all = String::new();
    let mut first: Option<(Place, Printed)> = None;
    for place in order.places {
        let text = in_place(order, suite, *place, site)?;
        let ours = Printed::parse(&text).context("the own table")?;
        let blank = if all.is_empty() { "" } else { "\n" };
        all += &format!("{blank}{text}");
        if let Some(beside) = &beside {
            all += &format!("\n{}", ours.beside(beside, "here", "theirs"));
        }
        match &first {
            None => first = Some((*place, ours)),
            Some((other, theirs)) => all += &format!("\n{}", ours.beside(theirs, place.name(), other.name())),
        }
    }
    Ok(all)
}

/// The tables of `suite` in `place`, and what they do not say.
fn in_place(order: &GpcnetOrder<'_>, suite: Suite, place: Place, site: Option<&Site>) -> Result<String> {
    let mut run = Run::new(order, ground(order, place, site)?)?;
    match suite {
        Suite::Network => run.network(),
        Suite::Load => run.load(),
    }
}

fn ground(order: &GpcnetOrder<'_>, place: Place, site: Option<&Site>) -> Result<Box<dyn Ground>> {
    if place == Place::Cluster {
        return Ok(Box::new(Processes::of_job(site, order.seed)?));
    }
    let queue = match &order.queue {
        Some(queue) => queue.clone(),
        None => order.fabric.queues().map_err(anyhow::Error::msg)?.into_iter().next().context("no queue")?,
    };
    let per_host = order.flags.ppn.unwrap_or(1).max(1);
    Ok(if place == Place::Lab {
        Box::new(Processes::in_lab(&order.fabric, &queue, order.seed, per_host)?)
    } else {
        Box::new(Simulated::open(&order.fabric, &queue, order.seed, u32::from(per_host))?)
    })
}

#[cfg(test)]
mod tests;
