//! Reliable broadcast: one root sends objects to all members, checked from memory to memory, over a
//! wire that may lose, double, reorder and damage, with the network's own multicast if there is
//! one.
//!
//! # Model
//! The root's objects are one sequence of *symbols*, each of a packet. A symbol carries the digest
//! of the root's memory; a receiver copies it to its place, digests that, and keeps what agrees.
//! Short messages (one symbol) go to slots, longer objects to places that the application gives.
//! How far everybody is climbs a tree as one merged report; what is missing is asked for by bits,
//! and served by the nearest who has it, or by the root to the group when many miss it.
//!
//! ```text
//!   root                                                  receivers
//!     |-- ANNOUNCE (long object) ------------------------->|   a place for it
//!     |<------------------------------- STATUS (merged) ---|   slots, places
//!     |== DATA, DATA, .. DATA with a poll ================>|   copy, digest, keep
//!     |<------------------------------- STATUS (merged) ---|   received, known
//!     |<------------- NEED (block, bits) ------------------|   to the parent, who serves it
//!     |-- POLL at the tail: 0.5, 1, 2 .. 50 ms ----------->|
//!     |-- stable edge, with what leaves next ------------->|   memory is the application's again
//! ```
//!
//! # Source
//! LA-MPI over Quadrics (reliable broadcast with delayed synchronisation), and what its published
//! code left open: repair of what is missing only, a tree that works for any root, a report that
//! costs the same however many members there are.
//!
//! # Invariants
//! I1. An object that is reported as received is byte for byte what the root's memory held, once,
//!     in order.
//! I2. A sequence never stands for other bytes.
//! I3. No slot is used again before its last message is with everybody.
//!
//! # Not here
//! Joining the group, files, and who is alive: the application's.

mod child_reports;
mod context;
mod cost;
mod frame;
mod multicast_probe;
mod node;
mod objects;
mod polls;
mod rate_control;
mod receive_window;
mod receiver;
mod repair;
mod repair_allowance;
mod report_sender;
mod root;
mod state;
mod successor_root;
mod transmit_queues;
mod tree;
mod view_monitor;
mod window_control;

#[cfg(test)]
mod slow_links;
#[cfg(test)]
mod swarm;
#[cfg(test)]
mod tests;
#[cfg(test)]
mod trial;

pub use context::{
    BroadcastCommand, BroadcastConfig, BroadcastEvent, BroadcastRecord, SlowReceivers,
};
pub use cost::{Costs, MulticastReach, NetworkConditions};
pub use frame::Algorithm;
pub use node::BroadcastNode;
pub use tree::Member;
