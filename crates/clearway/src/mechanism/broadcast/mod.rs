//! Broadcasts on ranks that are processes: every way, length and loss, beside a bare exchange, with every byte compared. The same casts
//! on a simulated fabric (`simulated`) show what more ranks than a machine holds would take.
//!
//! # Model
//! One rank is the root (rank 0), the others receive. This process conducts them (`conduct`): casts go one after the other, each with
//! nodes of its own (`rank`); what they saw becomes figures (`figures`). The same run measures a bare datagram to all with an answer of
//! each (`bare`), which is what the network and the machine take. Several roots at once (`roots`) have a team and a channel each (`together`).
//!
//! # Not here
//! The engine (`clearway_proto::broadcast`); files (`clearway cast`).

mod bare;
mod conduct;
mod faults;
mod figures;
mod film;
mod outcome;
mod pattern;
mod plan;
mod rank;
mod report;
mod roots;
mod rough;
mod section;
pub(crate) mod simulated;
mod table;
mod together;
mod traffic;
mod words;

pub(crate) use conduct::conduct;
pub(crate) use faults::suffer;
pub(crate) use figures::{explained, figures};
pub(crate) use plan::{Mode, Plan, Share};
pub(crate) use rank::serve;
pub(crate) use report::casting;
pub(crate) use roots::{RootsRun, with_roots};
pub(crate) use section::{Broadcast, RANKS_MAX};
pub(crate) use table::{rows, scaling_rows, table};
pub(crate) use words::{Asked, Said};
