//! What a report holds of timeslice building: what charts are drawn from. Its figures stand with
//! the others.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use crate::report::model::{ExtendedReal, ReportPart, write_rounded};

/// One job that built timeslices, under several policies.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(crate) struct BuildingReport {
    pub(crate) inputs: u32,
    pub(crate) builders: u32,
    pub(crate) contribution_bytes: u64,
    /// Of each connection.
    pub(crate) ring_bytes: u64,
    /// The time in which unscheduled writes carry one contribution of each input to each builder.
    #[serde(serialize_with = "write_rounded")]
    pub(crate) rotation_ms: f64,
    /// When inputs were slower, in ms of what was counted.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) slower_ms: Option<[ExtendedReal; 2]>,
    /// Raw writes first.
    #[serde(default)]
    pub(crate) policies: Vec<BuildingPolicy>,
}

impl ReportPart for BuildingReport {
    const NAME: &'static str = "building";
}

/// What one policy did on the first seed.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(crate) struct BuildingPolicy {
    pub(crate) policy: String,
    /// From the first to the last contribution of a timeslice: least, p10, p50, p90, most. Absent
    /// where none was complete.
    #[serde(default)]
    pub(crate) completion_ms: Option<[ExtendedReal; 5]>,
    /// Of each builder, how full rings were in percent: least, p10, p50, p90, most.
    #[serde(default)]
    pub(crate) fills: Vec<[ExtendedReal; 5]>,
    /// Percent of all inputs' time, by cause.
    #[serde(default)]
    pub(crate) blocked: BTreeMap<String, ExtendedReal>,
    /// Length of a step of `pulse`.
    #[serde(serialize_with = "write_rounded")]
    pub(crate) step_ms: f64,
    /// What landed in each step, over what raw writes carry.
    #[serde(default)]
    pub(crate) pulse: Vec<ExtendedReal>,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub(crate) intervals: Vec<BuildingInterval>,
    #[serde(default, rename = "film", skip_serializing_if = "Option::is_none")]
    pub(crate) gantt: Option<BuildingGantt>,
}

/// An interval of the Data-Flow Scheduler; times from the barrier on.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub(crate) struct BuildingInterval {
    pub(crate) interval: u32,
    /// The middle between the first and the last input's beginning.
    pub(crate) start_ms: ExtendedReal,
    /// The time between these two.
    pub(crate) spread_ms: ExtendedReal,
    pub(crate) duration_ms: ExtendedReal,
    /// Start and duration that builders proposed.
    #[serde(default)]
    pub(crate) proposed_ms: Option<[ExtendedReal; 2]>,
}

/// Which input sent to whom.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(crate) struct BuildingGantt {
    /// Length of a step.
    #[serde(serialize_with = "write_rounded")]
    pub(crate) step_us: f64,
    /// By input: the builder at which its latest contribution landed, step by step; `null` where
    /// none did.
    pub(crate) rows: Vec<Vec<Option<u32>>>,
}
