//! The congestion test: victims beside congestors, cell by cell; with programs of the user's in either part; and shares of classes.
//!
//! # Model
//! A phase is: victims alone, congestors on, victims alone again (`windows`). Each cell of a scenario is some phases, whose records
//! become figures and a verdict.
//!
//! # Not here
//! What is sent (`clearway_proto::congestion`); the places in which phases run (`run`).

mod calibration;
mod cell;
pub(crate) mod conduct;
mod evidence;
mod figures;
mod judgement;
mod outcome;
pub(crate) mod program;
mod section;
pub(crate) mod shares;
mod shares_section;
pub(crate) mod windows;
pub(crate) mod with_cast;

pub(crate) use calibration::small_messages;
pub(crate) use section::{Congestion, INTENSITY_MAX, NullControl};
pub(crate) use shares_section::Shares;

#[cfg(test)]
mod tests;
