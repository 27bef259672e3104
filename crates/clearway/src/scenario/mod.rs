//! What to run: a TOML file, read strictly and checked before anything is built.
//!
//! # Model
//! One file names a fabric, one mechanism with its parameters, a seed, and the limits of the verdict. The same file runs in
//! every place that has the fabric. Everything but the fabric and the mechanism has a default; [`Scenario::parameters`] lists
//! every value in force with its origin.
//!
//! # Invariants
//! I1. A key that nothing reads is refused, with the nearest one that something does.
//! I2. A scenario that was read is possible: sizes, rates and roles fit its fabric.

pub(crate) mod fabric;
mod layout;
mod shipped;
mod text;
pub(crate) mod time;

use std::collections::btree_map::Entry;
use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write;

use anyhow::{Context, Result as Anyhow};
use clearway_lab::QueueKind;
use clearway_proto::base::{BitsPerSec, Nanos, RandomKey};
use clearway_proto::congestion::{Layout, Rules};
use serde::{Deserialize, Serialize};

use crate::mechanism::broadcast::Broadcast;
use crate::mechanism::congestion::{Congestion, Shares};
use crate::mechanism::timeslice::Timeslice;
use crate::report::model::{Origin, Parameter};

pub(crate) use fabric::{Asked, Fabric, SmallMessage, asked_class};
pub(crate) use shipped::{shipped, shipped_names};
pub(crate) use text::{read_file, read_text};
pub(crate) use time::{RankAt, Time};

/// A whole run.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub(crate) struct Scenario {
    /// Its name in reports.
    pub(crate) name: String,
    /// One sentence for a person.
    #[serde(default)]
    pub(crate) about: String,
    /// The seed of every random choice; `--seed` overrides it.
    #[serde(default = "one")]
    pub(crate) seed: u64,
    /// The network.
    pub(crate) fabric: Fabric,
    /// Victims beside congestors.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) congestion: Option<Congestion>,
    /// Several classes fill one port.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) shares: Option<Shares>,
    /// Timeslice building.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) timeslice: Option<Timeslice>,
    /// Broadcasts.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) broadcast: Option<Broadcast>,
    /// The limits of the verdict.
    #[serde(default)]
    pub(crate) verdict: Rules,
}

/// What a scenario runs: exactly one of its tables.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Mechanism<'a> {
    /// Victims beside congestors.
    Congestion(&'a Congestion),
    /// Several classes fill one port.
    Shares(&'a Shares),
    /// Timeslice building.
    Timeslice(&'a Timeslice),
    /// Broadcasts.
    Broadcast(&'a Broadcast),
}

impl Mechanism<'_> {
    /// The name of its table.
    pub(crate) const fn name(&self) -> &'static str {
        match self {
            Self::Congestion(_) => "congestion",
            Self::Shares(_) => "shares",
            Self::Timeslice(_) => "timeslice",
            Self::Broadcast(_) => "broadcast",
        }
    }
}

fn one() -> u64 {
    1
}

/// The longest name of a scenario: a part of a path, far below the kernel's 255 bytes.
const NAME_MAX: usize = 64;
/// The shortest window that holds blocks enough for an interval: six on each side.
pub(crate) const SLICES_MIN: u64 = 12;
/// The longest: ten minutes of a laboratory. Longer ones are mistyped units.
const SLICES_MAX: u64 = 6000;

impl Scenario {
    /// Says in one sentence why this cannot run, if it cannot.
    pub(crate) fn check(&self) -> Result<(), String> {
        let plain = |c: char| c.is_ascii_alphanumeric() || "-_.".contains(c);
        // The name is a directory under out/ unless --out says otherwise.
        if self.name.is_empty()
            || self.name.len() > NAME_MAX
            || self.name.starts_with('.')
            || !self.name.chars().all(plain)
        {
            let name = self.name.escape_debug();
            return Err(format!(
                "the name `{name}` is unusable: 1 to {NAME_MAX} letters, digits, `-`, `_` and `.` work"
            ));
        }
        self.verdict.check().map_err(|why| format!("[verdict]: {why}"))?;
        self.fabric.check().map_err(|why| format!("[fabric]: {why}"))?;
        match self.mechanism()? {
            Mechanism::Congestion(it) => it.check(&self.fabric).map_err(|why| format!("[congestion]: {why}")),
            Mechanism::Shares(it) => it.check(&self.fabric).map_err(|why| format!("[shares]: {why}")),
            Mechanism::Timeslice(it) => it.check(&self.fabric).map_err(|why| format!("[timeslice]: {why}")),
            Mechanism::Broadcast(it) => it.check(&self.fabric).map_err(|why| format!("[broadcast]: {why}")),
        }
    }

    /// What this scenario runs, or why that is not clear.
    pub(crate) fn mechanism(&self) -> Result<Mechanism<'_>, String> {
        let congestion = self.congestion.as_ref().map(Mechanism::Congestion);
        let shares = self.shares.as_ref().map(Mechanism::Shares);
        let timeslice = self.timeslice.as_ref().map(Mechanism::Timeslice);
        let broadcast = self.broadcast.as_ref().map(Mechanism::Broadcast);
        let mut all = [congestion, shares, timeslice, broadcast].into_iter().flatten();
        match (all.next(), all.next()) {
            (Some(it), None) => Ok(it),
            (None, _) => {
                Err("there is nothing to run: add a table [congestion], [shares], [timeslice] or [broadcast]".into())
            }
            (Some(_), Some(_)) => {
                Err("there are two mechanisms: keep one of [congestion], [shares], [timeslice] and [broadcast]".into())
            }
        }
    }

    /// Makes a congestion test smaller that has no room on so many `hosts`, but for the parameters that are `given` (`congestion.draws`).
    /// Says what it chose, if anything.
    pub(crate) fn fit(&mut self, hosts: u32, given: &BTreeSet<String>) -> Option<String> {
        self.congestion.as_mut()?.fit(hosts, |key| given.contains(&format!("congestion.{key}")))
    }

    /// The same on the network of a job of `ranks` whose host links have this rate (without it the scenario's own). Queues
    /// cannot be chosen there: what is compared is one class for all against a class for each purpose.
    pub(crate) fn on_job(&mut self, ranks: u32, rate: Option<BitsPerSec>) -> Result<(), String> {
        self.fabric = self.fabric.of_job(ranks, rate)?;
        let queues = self.fabric.queues()?;
        match (&mut self.congestion, &self.shares) {
            (Some(it), None) => it.queues = queues,
            _ => {
                return Err(
                    "only [congestion] runs across a job: shares are those of queues that can be set".to_owned()
                );
            }
        }
        self.check()
    }

    /// Takes what small messages were `measured` to take in the laboratory, unless the scenario says it, and returns `text` with
    /// that, so that who reads it later runs the same.
    pub(crate) fn calibrate(&mut self, text: &str, measured: BTreeMap<QueueKind, SmallMessage>) -> Anyhow<String> {
        let mut text = text.to_owned();
        let Fabric::Lab(lab) = &mut self.fabric else { return Ok(text) };
        for (queue, small) in measured {
            if let Entry::Vacant(vacant) = lab.small_message.entry(queue) {
                vacant.insert(small);
                let SmallMessage { p50, p99 } = small;
                write!(
                    text,
                    "\n# Measured in the laboratory by this run.\n[fabric.small-message.{queue}]\np50 = \"{p50}\"\np99 = \"{p99}\"\n"
                )?;
            }
        }
        match read_text(&text) {
            Ok(read) if read.fabric == self.fabric => Ok(text),
            // The tables of a fabric that was written on one line cannot be added to.
            _ => toml::to_string(self).context("the scenario cannot be written"),
        }
    }

    /// Takes what is usual on this fabric for the keys that the scenario, as `given`, leaves out.
    pub(crate) fn settle(&mut self, given: &toml::Table) -> Result<(), String> {
        let none = toml::Table::new();
        let table = |name: &str| given.get(name).and_then(toml::Value::as_table).unwrap_or(&none);
        if let Some(it) = &mut self.congestion {
            it.settle(&self.fabric, table("congestion")).map_err(|why| format!("[fabric]: {why}"))?;
        }
        if let Some(it) = &mut self.shares {
            it.settle(&self.fabric, table("shares")).map_err(|why| format!("[fabric]: {why}"))?;
        }
        if let Some(it) = &mut self.timeslice {
            it.settle(&self.fabric, table("timeslice")).map_err(|why| format!("[fabric]: {why}"))?;
        }
        if let Some(it) = &mut self.broadcast {
            it.settle(&self.fabric, table("broadcast")).map_err(|why| format!("[fabric]: {why}"))?;
            it.settle_map(&mut self.fabric, table("fabric")).map_err(|why| format!("[fabric]: {why}"))?;
        }
        Ok(())
    }

    /// The fabric as draws and expected rates see it.
    pub(crate) fn layout(&self) -> Result<Box<dyn Layout>, String> {
        self.fabric.layout(RandomKey::new(self.seed))
    }

    /// Every value in force, as `table.key`, with who chose it: `given` is the file as it was written.
    pub(crate) fn parameters(&self, given: &str, flags: &BTreeSet<String>) -> Vec<Parameter> {
        let written = given.parse::<toml::Table>().unwrap_or_default();
        let all = toml::Table::try_from(self).unwrap_or_default();
        let mut parameters = Vec::new();
        list(&all, Some(&written), "", flags, &mut parameters);
        parameters
    }
}

/// Appends the leaves of `table` to `parameters`.
fn list(
    table: &toml::Table,
    written: Option<&toml::Table>,
    prefix: &str,
    flags: &BTreeSet<String>,
    parameters: &mut Vec<Parameter>,
) {
    for (key, value) in table {
        let name = format!("{prefix}{key}");
        let there = written.and_then(|table| table.get(key));
        if let toml::Value::Table(inner) = value {
            list(inner, there.and_then(toml::Value::as_table), &format!("{name}."), flags, parameters);
            continue;
        }
        let origin = match (flags.contains(&name), there) {
            (true, _) => Origin::Flag,
            (false, Some(_)) => Origin::Scenario,
            (false, None) => Origin::Default,
        };
        let value = value.as_str().map_or_else(|| value.to_string(), str::to_owned);
        parameters.push(Parameter { name, value, unit: String::new(), origin });
    }
}

/// Refuses an empty list, or one with the same entry twice.
pub(crate) fn distinct<T: Ord + Copy>(what: &str, list: &[T]) -> Result<(), String> {
    if list.is_empty() {
        return Err(format!("{what} is empty; name at least one"));
    }
    let set: BTreeSet<T> = list.iter().copied().collect();
    if set.len() == list.len() { Ok(()) } else { Err(format!("{what} names something twice")) }
}

pub(crate) fn within<T: PartialOrd + std::fmt::Display>(what: &str, value: T, low: T, high: T) -> Result<(), String> {
    if value >= low && value <= high { Ok(()) } else { Err(format!("{what} is {value}; {low} to {high} work")) }
}

/// Refuses names that are no queues of `fabric`.
pub(crate) fn check_queues(fabric: &Fabric, queues: &[String]) -> Result<(), String> {
    distinct("queues", &queues.iter().collect::<Vec<_>>())?;
    let known = fabric.queues()?;
    let known: Vec<&str> = known.iter().map(String::as_str).collect();
    match queues.iter().find(|queue| !known.contains(&queue.as_str())) {
        Some(queue) => Err(format!("`{queue}` is no queue of this fabric; {}", crate::command::nearest(queue, &known))),
        None => Ok(()),
    }
}

/// Refuses a grid that does not fit the network.
pub(crate) fn check_slice(fabric: &Fabric, slice: Time) -> Result<(), String> {
    let usual = fabric.slice()?;
    match fabric {
        Fabric::Lab(_) | Fabric::Site(_) if slice != usual => {
            Err(format!("slice is {slice}; a laboratory is measured in slices of {usual}"))
        }
        Fabric::Lab(_) | Fabric::Site(_) => Ok(()),
        Fabric::Machine(_) => {
            let least = Time(Nanos((usual.0.0 / 10).max(1)));
            within("slice", slice, least, slice_max(fabric)?)
        }
    }
}

/// The longest slice of a machine.
pub(crate) fn slice_max(fabric: &Fabric) -> Result<Time, String> {
    Ok(Time(Nanos(fabric.slice()?.0.0.saturating_mul(1000).max(1))))
}

/// Refuses a window that holds too few slices, or too many.
pub(crate) fn check_window(what: &str, window: Time, slice: Time) -> Result<(), String> {
    within(what, window, Time(slice.0.times(SLICES_MIN)), Time(slice.0.times(SLICES_MAX)))
}

#[cfg(test)]
mod tests;
