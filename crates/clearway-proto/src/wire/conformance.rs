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
use alloc::sync::Arc;
use alloc::vec::Vec;

use super::foreign::Words;
use super::{AdoptedMemory, Capabilities, FileId, OperationKind, Reach, Wire};
use crate::base::Rank;

/// Some ends of the wire under test.
pub trait Fabric {
    /// The end of `rank`. The suite asks for ranks `0..RANKS`.
    fn wire(&mut self, rank: Rank) -> &mut dyn Wire;

    /// `length` bytes of memory that the wire did not allocate, and that its ends can adopt; `None` where ends cannot be given any, for
    /// example in other processes.
    fn foreign(&mut self, length: usize, reach: Reach) -> Option<AdoptedMemory> {
        Some(Arc::new(Words::new(length, reach)))
    }

    /// Lets time pass, long enough that what was posted has usually arrived: one latency of virtual time, or a wait for
    /// readable sockets of at most some milliseconds.
    fn pass_time(&mut self);

    /// Opens an empty file for the end of `rank`, to be read and written. Without one, cases about files are skipped by name.
    fn open_file(&mut self, rank: Rank) -> Option<FileId> {
        let _ = rank;
        None
    }
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
    /// The wire says that it does not promise this.
    Without(Feature),
    /// Not as promised; the sentence says what was seen.
    Failed(String),
}

/// What a case needs beside operations: a capability that a wire may lack.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Feature {
    /// [`Capabilities::adopts`].
    Adoption,
    /// [`Capabilities::any_local`].
    AnyLocal,
    /// [`Capabilities::sends_follow_writes`].
    SendsFollowWrites,
}

impl Feature {
    fn is_in(self, capabilities: &Capabilities) -> bool {
        match self {
            Self::Adoption => capabilities.adopts,
            Self::AnyLocal => capabilities.any_local,
            Self::SendsFollowWrites => capabilities.sends_follow_writes,
        }
    }

    /// The name used in reports.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Adoption => "adoption",
            Self::AnyLocal => "local memory",
            Self::SendsFollowWrites => "order of writes and sends",
        }
    }
}

impl Outcome {
    /// Whether the promise is kept, or the wire says that it lacks what the promise needs.
    pub fn is_kept(&self) -> bool {
        !matches!(self, Self::Failed(_))
    }
}

/// Runs every case on a fresh fabric from `make`; returns the cases in order.
///
/// ```
/// use clearway_proto::wire::OperationKind;
/// use clearway_proto::wire::conformance::{self, Outcome};
/// use clearway_proto::wire::memory::{MemoryConfig, MemoryFabric};
/// let cases = conformance::run(&mut || MemoryFabric::new(MemoryConfig::lossless(conformance::RANKS)));
/// for (name, outcome) in cases {
///     assert!(matches!(outcome, Outcome::Passed | Outcome::Skipped(OperationKind::File)), "{name}: {outcome:?}");
/// }
/// ```
pub fn run<F: Fabric>(make: &mut dyn FnMut() -> F) -> Vec<(&'static str, Outcome)> {
    cases::ALL.iter().map(|case| (case.name, run_one(case, &mut make()))).collect()
}

fn run_one(case: &cases::Case, fabric: &mut dyn Fabric) -> Outcome {
    let operations = fabric.wire(Rank(0)).capabilities().operations;
    if let Some(missing) = case.needs.iter().find(|kind| !operations.has(**kind)) {
        return Outcome::Skipped(*missing);
    }
    if let Some(missing) = case.features.iter().find(|feature| !feature.is_in(fabric.wire(Rank(0)).capabilities())) {
        return Outcome::Without(*missing);
    }
    let adopts = |feature: &&Feature| matches!(feature, Feature::Adoption | Feature::AnyLocal);
    if let Some(feature) = case.features.iter().find(adopts).filter(|_| fabric.foreign(8, Reach::Peers).is_none()) {
        return Outcome::Without(*feature);
    }
    if case.needs.contains(&OperationKind::File) && fabric.open_file(Rank(0)).is_none() {
        return Outcome::Skipped(OperationKind::File);
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
