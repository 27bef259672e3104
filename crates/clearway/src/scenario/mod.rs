//! What to run: a TOML file, read strictly and checked before anything is built.
//!
//! # Model
//! One file names a fabric, one mechanism with its parameters, a seed, and the limits of the
//! verdict. The same file runs in every place that has the fabric. Everything but the fabric and
//! the mechanism has a default. The table of a mechanism is its own ([`Section`]): no mechanism is
//! known here, and who reads a scenario says which there are.
//!
//! # Invariants
//! I1. A key that nothing reads is refused, with the nearest one that something does.
//! I2. A scenario that was read is possible: sizes, rates and roles fit its fabric.

pub(crate) mod fabric;
mod layout;
mod nearest;
#[cfg(test)]
pub(crate) mod sample;
mod section;
mod shipped;
mod text;
pub(crate) mod time;

use std::any::Any;
use std::collections::btree_map::Entry;
use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write;

use anyhow::{Context, Result as Anyhow};
use clearway_lab::QueueKind;
use clearway_proto::base::{BitsPerSec, Nanos, RandomKey};
use clearway_proto::congestion::{NetworkLayout, Rules};
use serde::{Deserialize, Serialize};

use section::{AnySection, table};

pub(crate) use fabric::{Fabric, RequestedClasses, SmallMessage, requested_class};
pub(crate) use nearest::nearest;
pub(crate) use section::{Section, SectionKind, is_given};
pub(crate) use shipped::{shipped, shipped_names};
pub(crate) use text::{line_of, read_file, read_text};
pub(crate) use time::{RankAt, Time, percent, seconds};

/// A whole run.
#[derive(Clone, Debug)]
pub(crate) struct Scenario {
    /// Its name in reports.
    pub(crate) name: String,
    /// One sentence for a person.
    pub(crate) about: String,
    /// The seed of every random choice; `--seed` overrides it.
    pub(crate) seed: u64,
    /// The network.
    pub(crate) fabric: Fabric,
    /// The parameters of its mechanism.
    section: Box<dyn AnySection>,
    /// The limits of the verdict.
    pub(crate) verdict: Rules,
    /// The same in a laboratory with its text, where the file says what differs there.
    in_lab: Option<Box<(Self, String)>>,
}

/// The longest name of a scenario: a part of a path, far below the kernel's 255 bytes.
const NAME_MAX: usize = 64;
/// The shortest window that holds blocks enough for an interval: six on each side.
pub(crate) const SLICES_MIN: u64 = 12;
/// The longest: ten minutes of a laboratory. Longer ones are mistyped units.
const SLICES_MAX: u64 = 6000;

impl Scenario {
    /// Creates the scenario called `name` with this `section` on `fabric`, and the usual seed and
    /// limits.
    pub(crate) fn new(name: &str, about: &str, fabric: Fabric, section: impl Section) -> Self {
        let (name, about, section) = (name.to_owned(), about.to_owned(), Box::new(section));
        Self {
            name,
            about,
            seed: text::SEED,
            fabric,
            section,
            verdict: Rules::default(),
            in_lab: None,
        }
    }

    /// Returns the parameters of its mechanism, if that is the one of `T`.
    pub(crate) fn section<T: Section>(&self) -> Option<&T> {
        (&*self.section as &dyn Any).downcast_ref()
    }

    /// Returns the same, to be changed.
    pub(crate) fn section_mut<T: Section>(&mut self) -> Option<&mut T> {
        (&mut *self.section as &mut dyn Any).downcast_mut()
    }

    /// Returns this scenario and its text in a laboratory, with the same seed; `None` where the
    /// file says that nothing differs there.
    pub(crate) fn in_lab(&self) -> Option<(Self, String)> {
        let (in_lab, text) = &**self.in_lab.as_ref()?;
        Some((Self { seed: self.seed, ..in_lab.clone() }, text.clone()))
    }

    /// Returns the name of its mechanism's table.
    pub(crate) fn section_name(&self) -> &'static str {
        self.section.name()
    }

    /// Says in one sentence why this cannot run, if it cannot.
    pub(crate) fn check(&self) -> Result<(), String> {
        self.check_head()?;
        self.check_section()
    }

    /// Checks the same of the section.
    fn check_section(&self) -> Result<(), String> {
        self.section.check(&self.fabric).map_err(|why| format!("[{}]: {why}", self.section.name()))
    }

    /// Checks the same of everything but the section.
    fn check_head(&self) -> Result<(), String> {
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
        self.fabric.check().map_err(|why| format!("[fabric]: {why}"))
    }

    /// Moves this scenario to the network of a job of `ranks` whose host links have this rate
    /// (without it the scenario's own). Queues cannot be chosen there: what is compared is one
    /// class for all against a class for each purpose.
    pub(crate) fn on_job(&mut self, ranks: u32, rate: Option<BitsPerSec>) -> Result<(), String> {
        self.fabric = self.fabric.for_job(ranks, rate)?;
        self.section.on_job(&self.fabric)?;
        self.check()
    }

    /// Returns the text from which this is read.
    ///
    /// # Errors
    /// A number is beyond those of TOML.
    pub(crate) fn text(&self) -> Result<String, toml::ser::Error> {
        #[derive(Serialize)]
        struct SerializedHeader<'a> {
            name: &'a str,
            about: &'a str,
            seed: u64,
        }
        let Self { name, about, seed, fabric, section, verdict, in_lab: _ } = self;
        let head = toml::to_string(&SerializedHeader { name, about, seed: *seed })?;
        Ok([head, table("fabric", fabric)?, section.text()?, table("verdict", verdict)?].join("\n"))
    }

    /// Takes what small messages were `measured` to take in the laboratory, unless the scenario
    /// says it, and returns `text` with that, so that who reads it later runs the same.
    pub(crate) fn calibrate(
        &mut self,
        text: &str,
        measured: BTreeMap<QueueKind, SmallMessage>,
    ) -> Anyhow<String> {
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
        #[derive(Deserialize)]
        struct SerializedScenario {
            fabric: Fabric,
        }
        match toml::from_str::<SerializedScenario>(&text) {
            Ok(read) if read.fabric == self.fabric => Ok(text),
            // The tables of a fabric that was written on one line cannot be added to.
            _ => self.text().context("the scenario cannot be written"),
        }
    }

    /// Returns the fabric as draws and expected rates see it.
    pub(crate) fn layout(&self) -> Result<Box<dyn NetworkLayout>, String> {
        self.fabric.layout(RandomKey::new(self.seed))
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

pub(crate) fn within<T: PartialOrd + std::fmt::Display>(
    what: &str,
    value: T,
    low: T,
    high: T,
) -> Result<(), String> {
    if value >= low && value <= high {
        Ok(())
    } else {
        Err(format!("{what} is {value}; {low} to {high} work"))
    }
}

/// Refuses names that are no queues of `fabric`.
pub(crate) fn check_queues(fabric: &Fabric, queues: &[String]) -> Result<(), String> {
    distinct("queues", &queues.iter().collect::<Vec<_>>())?;
    let known = fabric.queues()?;
    let known: Vec<&str> = known.iter().map(String::as_str).collect();
    match queues.iter().find(|queue| !known.contains(&queue.as_str())) {
        Some(queue) => {
            Err(format!("`{queue}` is no queue of this fabric; {}", nearest(queue, &known)))
        }
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

/// Returns the longest slice of a machine.
pub(crate) fn slice_max(fabric: &Fabric) -> Result<Time, String> {
    Ok(Time(Nanos(fabric.slice()?.0.0.saturating_mul(1000).max(1))))
}

/// Refuses a window that holds too few slices, or too many.
pub(crate) fn check_window(what: &str, window: Time, slice: Time) -> Result<(), String> {
    within(what, window, Time(slice.0.times(SLICES_MIN)), Time(slice.0.times(SLICES_MAX)))
}

#[cfg(test)]
mod tests;
