//! Settings that keep the classes apart, for the networks that have some: as text for the programs
//! that set them. Nothing here changes a network.
//!
//! # Not here
//! The plan and the faults of somebody else's tables: [`clearway_sim::spec::qos`].

mod emit;
mod page;
mod simulation;
mod verify;

pub(crate) use emit::{EmitTarget, InterfaceName, emit};
pub(crate) use page::{devices, page};
pub(crate) use verify::{AnswerSource, differences, path_differences};

use clearway_proto::base::Class;
use clearway_sim::spec::qos::QosPlan;

/// The port of the first class where each class listens at a port of its own.
pub(crate) const PORT: u16 = 50_000;

/// Returns the service level of `class`.
fn level(plan: &QosPlan, class: Class) -> u8 {
    plan.levels[class.index()]
}
