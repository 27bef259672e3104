//! What one run of timeslice building is: sizes, rings, policies, how long it is watched.

use clearway_proto::base::{Bytes, Nanos};
use clearway_proto::timeslice::{Dfs, Policy, Window};

/// One run.
#[derive(Clone, Debug)]
pub(crate) struct Plan {
    /// Ranks with contributions; they come first.
    pub(crate) inputs: u32,
    /// Ranks that build.
    pub(crate) builders: u32,
    /// What is compared.
    pub(crate) policies: Vec<Policy>,
    /// Bytes of one contribution.
    pub(crate) contribution: Bytes,
    /// Bytes of the ring of each connection.
    pub(crate) ring: Bytes,
    /// Bounds of the window of a policy that grants.
    pub(crate) window: Window,
    /// Constants of the Data-Flow Scheduler.
    pub(crate) dfs: Dfs,
    /// Inputs begin within this time of each other.
    pub(crate) start_skew: Nanos,
    /// How long nothing is counted at the beginning.
    pub(crate) warm_up: Nanos,
    /// How long everything is counted.
    pub(crate) measured: Nanos,
    /// Seeds, each a run of its own.
    pub(crate) seeds: Vec<u64>,
}
