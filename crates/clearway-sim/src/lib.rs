//! One deterministic packet-level network: hosts, switches, lanes and credits on virtual time, bit
//! for bit repeatable.
//!
//! # Model
//! ```text
//!    fabric file -> spec -> graph + routing -> fabric <- posts, deliveries -> wire <- driver -> engine
//! ```
//! A [`spec::FabricSpec`] says what a network is made of. [`topology`] turns it into a
//! [`graph::Graph`] of directed channels, [`routing`] says where packets go, [`fabric::Fabric`]
//! moves them: virtual cut-through, credits for each lane, round robin over inputs, an arbiter for
//! each channel.
//!
//! # Invariants
//! I1. Integers only: time in picoseconds, lengths in bytes. No float, no clock, no static, no hash
//!     map takes part.
//! I2. A run is a function of the specification, the seed and the posts; not of the event queue, of
//!     which events are
//!     elided, or of the order in which events of one instant were put in.
//!
//! # Not here
//! Engines and what their frames mean; wall time; the command line.
#![forbid(unsafe_code)]
#![cfg_attr(test, allow(non_snake_case))]

pub mod arbiter;
pub mod calibrate;
pub mod check;
pub mod clock;
mod control;
pub mod disk;
mod event;
pub mod fabric;
pub mod fault;
pub mod graph;
mod memory;
pub mod processor;
pub mod routing;
pub mod spec;
mod time;
pub mod topology;
pub mod traffic;
pub mod wire;
pub mod world;

pub use time::{Pace, Picos};
