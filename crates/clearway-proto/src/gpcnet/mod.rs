//! GPCNeT's own tests, as published or mended: eight tests of a network, three of them also under
//! the load of four congestors.
//!
//! # Model
//! A run is a list of tests. For each, the coordinator gives every rank its [`Task`] and collects
//! its [`GpcnetRecord`]; everything in between (rings, barriers, agreements about time, the
//! hand-over between victims and congestors) happens among the ranks, over the wire that is
//! measured, as in the original. [`Summary`] makes the figures of records, [`NetworkReport`] and
//! [`LoadReport`] the tables, [`PrintedRun`] reads tables that either program printed.
//!
//! # Source
//! GPCNeT v1.3 (Chunduri, Groves, Mendygral et al., "GPCNeT: designing a benchmark suite for
//! inducing and measuring contention in HPC networks", SC 2019): tests, sizes, loop counts, draws,
//! statistics and layout of the tables are facts of that program. Its defects are mended unless
//! they are asked for: [`Defect`].
//!
//! # Invariants
//! I1. The same seed gives the groups and rings of the original, as published.
//! I2. A test that the wire cannot carry is named and refused, never replaced by another.
//!
//! # Not here
//! Open-loop victims, verdicts, intervals: [`crate::congestion`].

mod channel;
mod context;
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
mod round_trip;
mod summary;
mod table;
mod task;
mod test_run;

pub use context::{GpcnetConfig, GpcnetEvent, MEMORY, TestFailure};
pub use defects::{CorrectedDefects, Defect, UnknownDefect};
pub use frame::{GpcnetFrame, StepAnswer};
pub use kinds::{Congestor, Counts, LIMIT, Test, Unit};
pub use layout::{GpcnetLayout, Group, LoadDraw, TooFewNodes};
pub use node::GpcnetNode;
pub use printed::{PrintedError, PrintedRow, PrintedRun};
pub use record::{DurationCounts, GpcnetRecord, Times};
pub use summary::{Impact, Summary};
pub use table::{CongestedTest, Detail, LoadReport, NetworkReport, TableRow};
pub use task::{CongestorTask, Task, TaskKind, TestParameters, TestTask};

#[cfg(test)]
mod tests;
