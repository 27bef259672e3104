//! GPCNeT's own tests in a place: draws the roles, runs test after test, prints the tables of the original.
//!
//! # Model
//! ```text
//!    flags -> ground (simulator) -> layout -> draw -> [tasks -> records -> row] for each test -> table -> notes
//! ```
//! What the original's table does not say (seed, what was mended, what was refused) stands in lines below it, so that whoever
//! reads the original's output reads this one.
//!
//! # Not here
//! What is sent and how figures come about (`clearway_proto::gpcnet`).

mod flags;
mod ground;
mod suite;

use std::fs;

use anyhow::{Context, Result, bail};
use clearway_proto::gpcnet::Printed;

use super::Place;
use crate::scenario::Fabric;

pub(crate) use flags::{GpcnetFlags, Suite};
use suite::Run;

/// What to run, and on what.
pub(crate) struct GpcnetOrder<'a> {
    /// The fabric of the run.
    pub(crate) fabric: Fabric,
    /// Its queue or policy; the first usual one without it.
    pub(crate) queue: Option<String>,
    /// Where to run; the simulator without it.
    pub(crate) on: &'a [Place],
    /// What the original draws from its clock.
    pub(crate) seed: u64,
    /// Classes of victims and congestors.
    pub(crate) classes: [clearway_proto::base::Class; 2],
    /// Everything else.
    pub(crate) flags: &'a GpcnetFlags,
}

/// Runs `suite` and returns the text to print.
///
/// # Errors
/// One sentence: what was refused, or what the file to compare with lacks.
pub(crate) fn run(order: &GpcnetOrder<'_>, suite: Suite) -> Result<String> {
    if order.on.iter().any(|place| *place != Place::Sim) {
        bail!("GPCNeT's own tests run in the simulator so far: use --on sim");
    }
    // What cannot be read shall not be waited for.
    let beside = order.flags.beside.as_ref().map(|path| {
        let text = fs::read_to_string(path).with_context(|| format!("{} cannot be read", path.display()))?;
        Printed::parse(&text).with_context(|| path.display().to_string())
    });
    let beside = beside.transpose()?;
    let queue = match &order.queue {
        Some(queue) => queue.clone(),
        None => order.fabric.queues().map_err(anyhow::Error::msg)?.into_iter().next().context("no queue")?,
    };
    let ppn = order.flags.ppn.unwrap_or(1).max(1);
    let ground = ground::Simulated::open(&order.fabric, &queue, order.seed, ppn)?;
    let mut run = Run::new(order, Box::new(ground))?;
    let text = match suite {
        Suite::Network => run.network()?,
        Suite::Load => run.load()?,
    };
    let Some(beside) = beside else { return Ok(text) };
    let ours = Printed::parse(&text).context("the own table")?;
    Ok(format!("{text}\n{}", ours.beside(&beside, "here", "theirs")))
}

#[cfg(test)]
mod tests;
