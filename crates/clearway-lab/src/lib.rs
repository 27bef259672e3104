//! Virtual hosts on one machine: a lab of network namespaces, shaped links and queues with classes,
//! held as one value.
//!
//! # Model
//! A [`Lab`] owns file descriptors of anonymous network namespaces, one per host and per switch,
//! joined by veth pairs. Both ends of every link are shaped, so each sender has its NIC queue and
//! each switch port the queue toward its receiver. Nothing has a name outside the process that
//! holds the value.
//!
//! # Invariants
//! I1. When the holder of a lab ends, in whatever way, the kernel frees everything: no file, mount
//!     or interface stays.
//! I2. All of it is configured over netlink; no other program is needed.
//! I3. One packet on the wire is one packet in every queue, unless segmentation offload is asked
//!     for ([`Lab::offload`]).
//!
//! # Not here
//! Protocols and measurements of applications; the self-test here proves the queues, nothing above
//! them.

#![forbid(unsafe_code)]
#![cfg_attr(test, allow(non_snake_case))] // tests are named function__case

mod error;
pub mod keeper;
mod processes;

mod lab;
mod link;
mod netlink;
mod netns;
pub mod permission;
mod plan;
mod queue;
mod rtattr;
mod selftest;

mod spec;

pub use error::LabError;
pub use lab::{HOST_VARIABLE, LAB_VARIABLE, Lab, Offload, PortCounters};
pub use link::OFFLOAD_MAX;
pub use plan::{HostPath, PlannedHost, Tier};
pub use queue::burst;

pub use selftest::{CheckOutcome, PortCheck, PortTest, SelfTest};
pub use spec::{LabName, LabSpec, QueueKind, Topology, Weights};
