//! The table `[shmem]` of a scenario.

use clearway_proto::base::Bytes;
use serde::{Deserialize, Serialize};
use toml::de::DeTable;

use crate::scenario::{Fabric, Section, Time, check_queues, distinct, is_given, within};

/// What congestors do.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub(super) enum ShmemPattern {
    /// All put to one PE.
    Incast,
    /// All put to all in turn.
    Alltoall,
    /// Half of them does one, half the other.
    Both,
}

impl ShmemPattern {
    pub(super) const fn name(self) -> &'static str {
        match self {
            Self::Incast => "incast",
            Self::Alltoall => "alltoall",
            Self::Both => "both",
        }
    }
}

/// Victims with small OpenSHMEM operations under load with long puts, in one class and in
/// classes of their own.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields, rename_all = "kebab-case")]
pub(crate) struct ShmemSection {
    /// The queue at every port, a policy of the fabric file.
    pub(super) queue: String,
    /// PEs of each host.
    pub(super) pes_per_host: u16,
    /// PEs that are victims, in hundredths; the others are congestors.
    pub(super) victims_percent: u32,
    /// What congestors do, one after the other.
    pub(super) congestors: Vec<ShmemPattern>,
    /// Bytes of a congestor's put.
    pub(super) put: Bytes,
    /// Puts that each congestor keeps under way.
    pub(super) window: u32,
    /// Mean time between two operations of a victim.
    pub(super) interval: Time,
    /// Time before anything is measured.
    pub(super) warm_up: Time,
    /// Time measured.
    pub(super) measured: Time,
}

impl Default for ShmemSection {
    fn default() -> Self {
        Self {
            queue: String::new(),
            pes_per_host: 1,
            victims_percent: 25,
            congestors: vec![ShmemPattern::Incast, ShmemPattern::Alltoall, ShmemPattern::Both],
            put: Bytes(64 << 10),
            window: 32,
            interval: Time::micros(100),
            warm_up: Time::micros(500),
            measured: Time::millis(2),
        }
    }
}

/// The most PEs: every one has memory for answers to all others.
const PES_MAX: u32 = 4096;

impl Section for ShmemSection {
    const NAME: &'static str = "shmem";

    fn apply_defaults(&mut self, fabric: &mut Fabric, given: &DeTable<'_>) -> Result<(), String> {
        if !is_given(given, Self::NAME, "queue") {
            self.queue = fabric.usual_queue()?;
        }
        Ok(())
    }

    fn check(&self, fabric: &Fabric) -> Result<(), String> {
        check_queues(fabric, std::slice::from_ref(&self.queue))?;
        within("pes-per-host", self.pes_per_host, 1, 256)?;
        let pes = fabric.hosts()?.saturating_mul(u32::from(self.pes_per_host));
        within("hosts times pes-per-host", pes, 8, PES_MAX)?;
        within("victims-percent", self.victims_percent, 1, 99)?;
        distinct("congestors", &self.congestors)?;
        within("put", self.put, Bytes(1), Bytes(1 << 20))?;
        within("window", self.window, 1, 1024)?;
        within("interval", self.interval, Time::micros(1), Time::millis(100))?;
        within("warm-up", self.warm_up, Time::micros(1), Time::millis(1_000))?;
        within("measured", self.measured, self.interval, Time::millis(1_000))
    }
}
