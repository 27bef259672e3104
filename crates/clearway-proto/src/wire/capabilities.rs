//! What a wire can do, said once when it is opened.
//!
//! # Invariants
//! I1. A capability that is listed works; the conformance suite tests each one that is listed and
//!     skips the others aloud.

use alloc::vec::Vec;

use serde::{Deserialize, Serialize};

use super::OperationKind;
use crate::base::{BitsPerSec, Class, SharedClock};

/// The kinds of operation that a wire has.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(transparent)]
pub struct OperationSet(u16);

impl OperationSet {
    /// Creates the set of `kinds`.
    pub fn from_kinds(kinds: &[OperationKind]) -> Self {
        Self(kinds.iter().fold(0, |set, kind| set | 1 << *kind as u16))
    }

    /// Returns whether `kind` is in the set.
    pub const fn has(self, kind: OperationKind) -> bool {
        self.0 & (1 << kind as u16) != 0
    }

    /// Returns this set with `kind`.
    #[must_use]
    pub const fn with(self, kind: OperationKind) -> Self {
        Self(self.0 | 1 << kind as u16)
    }

    /// Returns what is in both.
    #[must_use]
    pub const fn and(self, other: Self) -> Self {
        Self(self.0 & other.0)
    }
}

/// What happens to messages between two ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Delivery {
    /// Every accepted message arrives, in order within a path and class, or the path goes down.
    Reliable,
    /// Messages may be lost, doubled or reordered.
    Lossy,
}

/// What the stamp of an arrived message means.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum StampSource {
    /// Taken by the network hardware.
    Hardware,
    /// Taken by the kernel when the packet entered it: free of this process's scheduling delays.
    Kernel,
    /// Taken when this process read the message, or asked for the time: includes the time it waited
    /// for a processor.
    Reading,
    /// The simulator's own time: exact.
    Virtual,
}

/// What a class asked for really becomes on this wire.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Granted {
    /// Packets carry the class's own mark; what queues make of it is the network's matter.
    Marked,
    /// The wire itself keeps this class apart from others.
    Separate,
    /// Nothing: the class travels like best effort.
    Ignored,
}

/// What engines leave for their headers that cut long messages by themselves: behind it, 4 KiB
/// travel in three packets of Ethernet.
pub const SHORT_HEAD: usize = 80;

/// What a wire can do.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Capabilities {
    /// Its name in reports: `udp`, `memory`.
    pub name: &'static str,
    /// The operations it has.
    pub operations: OperationSet,
    /// What happens to messages.
    pub delivery: Delivery,
    /// The longest header of one message, in bytes.
    pub head_max: usize,
    /// The longest body of one message, in bytes, without a header.
    pub body_max: usize,
    /// The longest header and body together, in bytes.
    pub message_max: usize,
    /// The meaning of arrival stamps.
    pub stamp: StampSource,
    /// Present when all ranks read one clock, so that a peer's stamp may be compared.
    pub shared_clock: Option<SharedClock>,
    /// What each class becomes, by [`Class::index`].
    pub classes: [Granted; Class::ALL.len()],
    /// Whether a message to a peer is given to it only when the writes to it before, in the same
    /// class, are in its memory.
    pub sends_follow_writes: bool,
    /// Whether the wire adopts memory that is not its own ([`Wire::adopt`](super::Wire::adopt)).
    pub adopts: bool,
    /// Whether it adopts memory that only this rank may name,
    /// [`RegionId::PROCESS`](super::RegionId::PROCESS).
    pub any_local: bool,
    /// Groups that one end can be in at a time.
    pub groups_max: usize,
    /// The rate of each path as far as known, by path number.
    pub paths: Vec<Option<BitsPerSec>>,
}

impl Capabilities {
    /// Returns the longest body of one message with a header of `head` bytes.
    pub fn body_max_with_head(&self, head: usize) -> usize {
        self.message_max.saturating_sub(head).min(self.body_max)
    }

    /// Returns whether one message can have a header of `head` bytes and a body of `body` bytes.
    pub fn carries(&self, head: usize, body: usize) -> bool {
        head <= self.head_max && body <= self.body_max_with_head(head)
    }
}
