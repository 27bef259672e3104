//! The suite that every wire passes: what the contract promises, tested one promise at a time.
//!
//! # Model
//! A [`Fabric`] is a few ends of the wire under test in one process, and a way to let time pass. A case uses only what
//! the wire says it can do; what it lacks is skipped by name, so that a report of the suite is also a list of abilities.
//!
//! # Not here
//! Speed. Behaviour under load: each wire tests its own queues.

mod cases;

use alloc::string::String;
use alloc::vec::Vec;

use super::{OperationKind, Wire};
use crate::base::Rank;

/// Some ends of the wire under test.
pub trait Fabric {
    /// The end of `rank`. The suite asks for ranks `0..RANKS`.
    fn wire(&mut self, rank: Rank) -> &mut dyn Wire;

    /// Lets time pass, long enough that what was posted has usually arrived: one latency of virtual time, or a wait for
    /// readable sockets of at most some milliseconds.
    fn pass_time(&mut self);
}

/// Ranks that a fabric under test must have.
pub const RANKS: u32 = 3;

/// How one case ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// As promised.
    Passed,
    /// The wire says it lacks what the case needs.
    Skipped(OperationKind),
    /// Not as promised; the sentence says what was seen.
    Failed(String),
}

/// Runs every case on a fresh fabric from `make`; returns the cases in order.
///
/// ```
/// use clearway_proto::wire::conformance::{self, Outcome};
/// use clearway_proto::wire::memory::{MemoryConfig, MemoryFabric};
/// let cases = conformance::run(&mut || MemoryFabric::new(MemoryConfig::lossless(conformance::RANKS)));
/// assert!(cases.iter().all(|(name, outcome)| *outcome == Outcome::Passed || panic!("{name}: {outcome:?}")));
/// ```
pub fn run<F: Fabric>(make: &mut dyn FnMut() -> F) -> Vec<(&'static str, Outcome)> {
    cases::ALL.iter().map(|case| (case.name, run_one(case, &mut make()))).collect()
}

fn run_one(case: &cases::Case, fabric: &mut dyn Fabric) -> Outcome {
    let operations = fabric.wire(Rank(0)).capabilities().operations;
    if let Some(missing) = case.needs.iter().find(|kind| !operations.has(**kind)) {
        return Outcome::Skipped(*missing);
    }
    match (case.run)(fabric) {
        Ok(()) => Outcome::Passed,
        Err(sentence) => Outcome::Failed(sentence),
    }
}

impl Fabric for super::memory::MemoryFabric {
    fn wire(&mut self, rank: Rank) -> &mut dyn Wire {
        self.wire(rank)
    }

    fn pass_time(&mut self) {
        if let Some(at) = self.next_arrival() {
            self.advance(at);
        }
    }
}
