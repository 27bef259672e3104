//! The suite that every wire passes: what the contract promises, tested one promise at a time.
//!
//! # Model
//! A [`Fabric`] is a few ends of the wire under test in one process, and a way to let time pass. A
//! case uses only what the wire says it can do; what it lacks is skipped by name, so that a report
//! of the suite is also a list of abilities.
//!
//! # Not here
//! Speed. Behaviour under load: each wire tests its own queues.

mod cases;

use alloc::format;
use alloc::string::String;
use alloc::sync::Arc;
use alloc::vec::Vec;

#[cfg(doc)]
use super::Capabilities;
use super::foreign_memory::WordMemory;
use super::{AdoptedMemory, FileId, MemoryAccess, OperationKind, Wire};
use crate::base::Rank;

/// Some ends of the wire under test.
pub trait Fabric {
    /// Returns the end of `rank`. The suite asks for ranks `0..RANKS`.
    fn wire(&mut self, rank: Rank) -> &mut dyn Wire;

    /// Returns `length` bytes of memory that the wire did not allocate, and that its ends can
    /// adopt; `None` where ends cannot be given any, for example in other processes.
    fn foreign(&mut self, length: usize, reach: MemoryAccess) -> Option<AdoptedMemory> {
        Some(Arc::new(WordMemory::new(length, reach)))
    }

    /// Lets time pass, long enough that what was posted has usually arrived: one latency of virtual
    /// time, or a wait for readable sockets of at most some milliseconds.
    fn pass_time(&mut self);

    /// Opens an empty file for the end of `rank`, to be read and written. Without one, cases about
    /// files are left out.
    fn open_file(&mut self, rank: Rank) -> Option<FileId> {
        let _ = rank;
        None
    }
}

/// Ranks that a fabric under test must have.
pub const RANKS: u32 = 3;

/// A capability that a case needs and a wire can lack.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Need {
    /// An operation of [`Capabilities::operations`].
    Operation(OperationKind),
    /// [`Capabilities::adopts`].
    Adoption,
    /// [`Capabilities::any_local`].
    AnyLocal,
    /// [`Capabilities::sends_follow_writes`].
    SendsFollowWrites,
}

impl Need {
    fn is_in(self, fabric: &mut dyn Fabric) -> bool {
        let capabilities = fabric.wire(Rank(0)).capabilities();
        let has = match self {
            Self::Operation(kind) => capabilities.operations.has(kind),
            Self::Adoption => capabilities.adopts,
            Self::AnyLocal => capabilities.any_local,
            Self::SendsFollowWrites => capabilities.sends_follow_writes,
        };
        has && match self {
            Self::Operation(OperationKind::File) => fabric.open_file(Rank(0)).is_some(),
            Self::Adoption | Self::AnyLocal => fabric.foreign(8, MemoryAccess::Peers).is_some(),
            _ => true,
        }
    }

    /// Returns the name used in reports.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Operation(kind) => kind.name(),
            Self::Adoption => "adoption",
            Self::AnyLocal => "local memory",
            Self::SendsFollowWrites => "order of writes and sends",
        }
    }
}

/// Runs every case on a fresh fabric from `make`. A case is left out when the wire lacks what it
/// needs.
///
/// Returns a line for each case: `conformance: WIRE: CASE: passed`, or `no` and the name of what is
/// missing. `cargo xtask conformance` prints the lines of all wires as one matrix.
///
/// # Errors
/// A sentence, when a promise is broken, or when what the wire lacks is not exactly `lacks`.
///
/// ```
/// use clearway_proto::wire::OperationKind;
/// use clearway_proto::wire::conformance::{self, Need};
/// use clearway_proto::wire::memory::{MemoryConfig, MemoryFabric};
/// let lacks = [Need::Operation(OperationKind::File)];
/// let make = || MemoryFabric::new(MemoryConfig::lossless(conformance::RANKS));
/// print!("{}", conformance::check("memory", &lacks, make)?);
/// # Ok::<(), String>(())
/// ```
pub fn check<F: Fabric>(
    wire: &str,
    lacks: &[Need],
    mut make: impl FnMut() -> F,
) -> Result<String, String> {
    let (mut lines, mut found) = (String::new(), Vec::new());
    for case in cases::ALL {
        let mut fabric = make();
        let missing = case.needs.iter().copied().find(|need| !need.is_in(&mut fabric));
        let outcome = match missing {
            Some(need) => format!("no {}", need.name()),
            None => {
                (case.run)(&mut fabric)
                    .map_err(|sentence| format!("{wire}: {}: {sentence}", case.name))?;
                "passed".into()
            }
        };
        found.extend(missing);
        lines.push_str(&format!("conformance: {wire}: {}: {outcome}\n", case.name));
    }
    match (
        found.iter().find(|need| !lacks.contains(need)),
        lacks.iter().find(|need| !found.contains(need)),
    ) {
        (Some(need), _) => Err(format!("{wire}: it has no {}", need.name())),
        (_, Some(need)) => Err(format!("{wire}: it has {}, which it should lack", need.name())),
        _ => Ok(lines),
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::wire::memory::{MemoryConfig, MemoryFabric};

    fn check_memory(lacks: &[Need]) -> Result<String, String> {
        check("memory", lacks, || MemoryFabric::new(MemoryConfig::lossless(RANKS)))
    }

    #[test]
    fn conformance__the_wire_in_memory_keeps_all_promises() {
        let file = Need::Operation(OperationKind::File);
        let lines = check_memory(&[file]).expect("every promise is kept");
        assert_eq!(lines.lines().count(), cases::ALL.len());
        std::eprint!("{lines}");
        let unexpected = check_memory(&[]).expect_err("it cannot read files");
        assert_eq!(unexpected, "memory: it has no file operation");
        let surplus = check_memory(&[file, Need::Adoption]).expect_err("it adopts");
        assert_eq!(surplus, "memory: it has adoption, which it should lack");
    }
}
