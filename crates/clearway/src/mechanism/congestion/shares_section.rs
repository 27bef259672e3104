//! The class share test as a scenario describes it: one sender for each class, all to one port.

use clearway_proto::base::{Class, Rank};
use serde::{Deserialize, Serialize};
use toml::de::DeTable;

use crate::scenario::{
    Fabric, SLICES_MIN, Section, Time, check_queues, check_slice, check_window, distinct, is_given,
    within,
};

/// The class share test: one sender for each class, all to one port.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields, rename_all = "kebab-case")]
pub(crate) struct SharesSection {
    /// Queues to test.
    pub(crate) queues: Vec<String>,
    /// Classes that fill the port together.
    pub(crate) classes: Vec<Class>,
    /// What each class offers, in hundredths of the port's rate.
    pub(crate) offered_percent: u32,
    /// The grid of the records, and the unit of what is resampled.
    pub(crate) slice: Time,
    /// Time measured.
    pub(crate) measured: Time,
}

impl Default for SharesSection {
    fn default() -> Self {
        Self {
            queues: vec!["weighted".to_owned()],
            classes: vec![Class::LowLatency, Class::BestEffort, Class::Bulk, Class::Scavenger],
            offered_percent: 60,
            slice: Time::millis(100),
            measured: Time::millis(5000),
        }
    }
}

impl Section for SharesSection {
    const NAME: &'static str = "shares";

    fn apply_defaults(&mut self, fabric: &mut Fabric, given: &DeTable<'_>) -> Result<(), String> {
        let Fabric::Machine(_) = fabric else { return Ok(()) };
        let missing = |key: &str| !is_given(given, Self::NAME, key);
        if missing("queues") {
            self.queues = fabric.queues()?.into_iter().take(1).collect();
        }
        if missing("slice") {
            self.slice = fabric.slice()?;
        }
        if missing("measured") {
            self.measured = Time(self.slice.0.times(SLICES_MIN));
        }
        Ok(())
    }

    fn check(&self, fabric: &Fabric) -> Result<(), String> {
        check_queues(fabric, &self.queues)?;
        check_slice(fabric, self.slice)?;
        distinct("classes", &self.classes)?;
        within("offered-percent", self.offered_percent, 1, 100)?;
        check_window("measured", self.measured, self.slice)?;
        let offered = self.offered_percent * self.classes.len() as u32;
        if offered < 120 {
            return Err(format!(
                "{} classes at {} % offer {offered} % of the port, 120 % are needed to fill it",
                self.classes.len(),
                self.offered_percent
            ));
        }
        let needed = self.classes.len() + 1;
        let hosts = fabric.hosts()? as usize;
        if hosts < needed {
            return Err(format!(
                "{} classes need {needed} hosts, the fabric has {hosts}",
                self.classes.len()
            ));
        }
        Ok(())
    }

    fn on_job(&mut self, _: &Fabric) -> Result<(), String> {
        Err("only [congestion] runs across a job: shares are those of queues that can be set"
            .to_owned())
    }
}

impl SharesSection {
    /// Returns the receiver, and each class with its sender.
    pub(crate) fn senders(&self) -> (Rank, Vec<(Rank, Class)>) {
        (Rank(0), self.classes.iter().zip(1..).map(|(class, rank)| (Rank(rank), *class)).collect())
    }
}
