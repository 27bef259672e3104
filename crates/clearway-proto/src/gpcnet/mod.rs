//! GPCNeT's own tests, as published or mended: eight tests of a network, three of them beside four congestors.
//!
//! # Model
//! A run is a list of tests. For each, whoever conducts gives every rank its [`Task`] and collects its [`Record`]; everything in
//! between (rings, barriers, agreements about time, the hand-over between victims and congestors) happens among the ranks, over
//! the wire that is measured, as in the original. [`Summary`] makes the figures of records, [`NetworkReport`] and
//! [`LoadReport`] the tables, [`Printed`] reads tables that either program printed.
//!
//! # Source
//! GPCNeT v1.3 (Chunduri, Groves, Mendygral et al., "GPCNeT: designing a benchmark suite for inducing and measuring contention
//! in HPC networks", SC 2019): tests, sizes, loop counts, draws, statistics and layout of the tables are facts of that
//! program. Its defects are mended unless they are asked for: [`Defect`].
//!
//! # Invariants
//! I1. The same seed gives the groups and rings of the original, as published.
//! I2. A test that the wire cannot carry is named and refused, never replaced by another.
//!
//! # Not here
//! Open-loop victims, verdicts, intervals: [`crate::congestion`].

mod channel;
mod context;
mod course;
mod defects;
mod exchange;
mod frame;
mod kinds;
mod layout;
mod libc_random;
mod load;
mod node;
mod printed;
mod record;
mod reduce;
mod summary;
mod table;
mod task;
mod trip;

pub use context::{Event, Failure, MEMORY, NodeConfig};
pub use defects::{Defect, Mended, UnknownDefect};
pub use frame::{Answer, Frame};
pub use kinds::{Congestor, Counts, LIMIT, Test, Unit};
pub use layout::{Group, Layout, LoadDraw, TooFewNodes};
pub use node::Node;
pub use printed::{Printed, PrintedError, PrintedRow};
pub use record::{Record, Spectrum, Times};
pub use summary::{Impact, Summary};
pub use table::{Beside, Detail, LoadReport, NetworkReport, Row};
pub use task::{CongestorTask, Order, Task, VictimTask, Work};

#[cfg(test)]
mod tests;
