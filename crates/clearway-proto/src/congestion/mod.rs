//! The congestion test: small messages measured alone, then while other traffic loads the
//! same links.
//!
//! # Model
//! Ranks are split into *victims*, whose messages are timed, and *congestors*, who load the
//! network. In one phase the victims run from beginning to end and the load is switched on in the
//! middle: isolated, congested, isolated again. The congestion impact factor is a quantile of the
//! victims' latency congested over the same quantile isolated.
//!
//! Victims that time single messages are open loop: each message has an *intended* time from a
//! schedule that no reply delays, and a message that is lost counts as one that takes forever. The
//! one-way time runs from the stamp taken at the send to the stamp that the receiver's wire took,
//! where all ranks read one clock.
//!
//! # Source
//! GPCNeT (Mendygral, Wichmann, Roweth, Kandalla, McMahon, "Characterizing full-system network
//! performance and congestion management capabilities with improved network benchmarks"): the split
//! into victims and congestors, random rings, patterns and message sizes. The tail-latency
//! benchmark for OpenSHMEM queues (Venkatesan, Gorentla Venkata, UCF 2022): the impact factor on
//! p99, with and without a class. Where this test differs: `docs/method.md`.
//!
//! # Invariants
//! I1. The sender counts what is sent, the receiver what arrives: a loss cannot vanish from the
//!     statistics.
//! I2. Load is counted where it arrives, in the same time slices as the victims' samples.
//!
//! # Not here
//! Processes, files, printing; quantiles and intervals ([`crate::stats`]).

mod blocks;
mod collective;
mod context;
mod exchange;
mod frame;
mod load;
mod node;
mod pattern;
mod plan;
mod probe;
mod program;
mod record;
mod task;
mod timed;
mod transfer;
mod verdict;

pub use context::{CongestionConfig, CongestionEvent};
pub use frame::{CongestionFrame, ReplyKind, SegmentPosition};
pub use node::CongestionNode;
pub use pattern::LoadIntensity;
pub use plan::{
    Draw, DrawRequest, LinkId, NetworkLayout, Placement, PlanError, SwitchedLayout, TrafficStream,
    max_min_fair, offered_loads,
};
pub use program::{Figure, NetworkSharing, ProgramEvidence, RunPairs, judge_program};
pub use record::{LoadSeries, MarkCount, Metric, PhaseRecord, SentSeries, Series, SliceBytes};
pub use task::{
    BroadcastLoad, BroadcastLoadAlgorithm, Burst, CongestorKind, Flow, FlowStyle, LoadKind,
    LoadTask, Phase, StagingLoad, StagingPace, UnknownPattern, VictimKind, VictimTask,
};
pub use verdict::{
    LimitingFactor, NetworkOutcome, NullEvidence, Rules, Verdict, VictimEvidence, judge,
};

#[cfg(test)]
mod tests;
