//! Timeslice building: N inputs, each with a stream of contributions, fill complete timeslices at M
//! builders.
//!
//! # Model
//! Timeslice `t` is the contributions of all inputs to it, gathered at one builder, which every
//! node can compute ([`TimesliceLayout`]). A builder keeps a ring for each input; an input writes
//! its contribution into its ring, one-sided, and the builder tells it what is free again. Which
//! builder an input serves next, and which input a builder lets in, is the *policy* ([`Policy`]):
//! the only part in which schedulers differ.
//!
//! ```text
//!   input                                              builder
//!     |-- HELLO ---------------------------------------->|   all inputs are there:
//!     |<--------------------------------------- WELCOME -|   the ring of this input
//!     |<---------------------------- CREDIT (granted) ---|   where the policy grants
//!     |== write of a contribution, with its mark =======>|   last one of a timeslice: complete
//!     |<------------------- CREDIT (released, granted) --|   released: room, and memory of the source
//!     |-- END ------------------------------------------>|   everything was released
//!     |<----------------------------------------- ENDED -|
//! ```
//!
//! A contribution goes from `supply` (what the source gave), by `policy` (whose turn it is) and `ring`
//! (where it lies at the builder), to `input/post` (its writes).
//!
//! # Source
//! FLESnet, the event builder of the CBM experiment, and what its Data-Flow Scheduler was measured
//! against (Salem, Schintke, Schütt, Reinefeld: CUG 2019, doi 10.1002/cpe.5563).
//!
//! # Invariants
//! I1. Every contribution that was taken is given to its timeslice exactly once.
//! I2. A connection never has more unreleased bytes than its ring.
//! I3. One contribution is known to a builder by its number and its timeslice, never by its place
//!     in time or order.
//!
//! # Not here
//! Files of microslices and timeslices: the application fills memory and reads it.

mod assembly;
mod builder;
mod connection;
mod context;
mod frame;
mod input;
mod layout;
mod load_balance;
mod membership;
mod neighbourhoods;
mod node;
mod outbox;
mod policy;
mod record;
mod ring;
mod supply;
mod turns;

#[cfg(test)]
mod swarm;
#[cfg(test)]
mod tests;

pub use context::{ReleasePolicy, TimesliceConfig, TimesliceEvent, WriteSlots};
pub use layout::{LayoutError, Role, TimesliceLayout};
pub use neighbourhoods::{NetworkParts, QUARTERS, RoundTripTable, Tournament};
pub use node::{SettledTimeslice, TimesliceCommand, TimesliceNode};
pub use policy::{Cause, Dfs, IntervalRecord, Policy, SpeedUp, Window};
pub use record::{BuilderRecord, InputRecord, TimesliceRecord};
pub use supply::{ContributionSizes, ContributionSource, ContributionSpans};
