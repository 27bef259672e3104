//! Checks that ride along: random networks and loads, detectors, an engine that checks what it
//! gets, failures that replay.
//!
//! # Model
//! ```text
//!    seed -> Trial (network, plan, load) -> run -> TrialOutcome: coverage, or a Violation
//!    Violation -> shrink -> Failure (a file) -> replay
//! ```
//! Everything works in release builds and costs nothing where it is not asked for.
//!
//! # Not here
//! What faults do ([`crate::fabric`], [`crate::wire`], [`crate::world`]); thousands of seeds
//! (`cargo xtask swarm`).

mod checked_engine;
mod coverage;
pub mod draw;
mod failure;
mod memory;
mod shrink;
mod starvation;
mod trial;

#[cfg(test)]
mod tests;

pub use coverage::{Coverage, State};
pub use failure::Failure;
pub use trial::{Listener, Symptom, Trial, TrialOutcome, Violation};
