//! Faults as data: what goes wrong, where and when, is a plan that can be drawn, saved, read,
//! shrunk and applied.
//!
//! # Model
//! ```text
//!    seed -> draw -> FaultPlan <-> TOML        FaultPlan -> resolve -> fabric's faults + nodes' faults -> Injector -> World
//! ```
//! A [`FaultPlan`] names its targets as a person would: `leaf0 -> n3`, `n3`, `spine1`. Resolving it
//! against a network finds them, or says in one sentence why not. Nothing is drawn while a run goes
//! on: the plan and one key decide everything, and the model's own randomness does not know that
//! there is a plan.
//!
//! # Invariants
//! I1. A fault either takes effect or is refused by name; none is silently without effect.
//! I2. Every fault ends: after the last `until` of a plan the network is sound.
//!
//! # Not here
//! How a fabric is struck ([`crate::fabric`]); who notices ([`crate::check`]).

mod apply;
mod draw;
mod form;
mod plan;
mod resolve;
mod shrink;

#[cfg(test)]
mod tests;

pub(crate) use plan::{line_of, wrong};

pub use apply::{Injector, RestartEngine};
pub use draw::draw;
pub use plan::{Fault, FaultDurations, FaultKind, FaultPlan, PacketMatch, Side};
pub use resolve::{Disks, FaultSite, ResolvedPlan};
pub use shrink::shrink;
