//! The agent of a node (`clearway agent`): measures the low-latency class all along, and limits the rate of
//! the scavengers of the node.
//!
//! # Model
//! One thread waits for probes (UDP), scavengers (a Unix socket), signals and time. All decisions are
//! those of [`clearway_proto::flow::NodeAgent`]. A scavenger has a [`client::AgentClient`], whose grants it
//! applies together with those of its budget ([`SenderLimits`]).
//!
//! # Invariants
//! I1. Nothing from outside makes the agent wait, or its memory grow: messages have a fixed length,
//!     connections and answers a bound, and a peer that does not read loses its connection.
//! I2. No answer is longer than its question.

mod client;
mod limits;
mod metrics;
mod probes;
mod scavengers;
mod serve;

pub(crate) use client::{AgentFlags, AgentPlace, NodeAgentState, ask_agent};
pub(crate) use limits::SenderLimits;
pub(crate) use serve::{AgentArguments, serve};
