//! What an engine can ask of a wire, and the names it uses for memory, peers and paths.
//!
//! # Invariants
//! I1. A span is data: it proves nothing about memory. Wires check every span before they touch a
//!     byte.

use core::ops::Range;
use core::sync::atomic::{AtomicU64, Ordering};

use crate::base::{Class, GroupId, Rank};

/// Chosen by the engine to recognise the end of an operation.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Token(pub u64);

/// One way out of this node: an interface, a rail, a port.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct PathId(pub u8);

/// A stretch of memory that a wire knows.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct RegionId(pub u16);

impl RegionId {
    /// Where bodies of arrived datagrams lie until the next poll. Read-only, never registered.
    pub const RECEIVE: Self = Self(u16::MAX);
    /// All memory of this process, where the wire adopted it: offsets are addresses. Only this
    /// rank's operations can name it.
    pub const PROCESS: Self = Self(u16::MAX - 1);
}

/// A file that the application opened for an engine.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct FileId(pub u32);

/// Bytes in this rank's memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Span {
    /// The region they lie in.
    pub region: RegionId,
    /// Bytes from the region's beginning.
    pub offset: u64,
    /// Bytes.
    pub length: u32,
}

impl Span {
    /// No bytes at all.
    pub const EMPTY: Self = Self { region: RegionId(0), offset: 0, length: 0 };

    /// Returns this span as a range of a region of `size` bytes; `None` when it leaves the region.
    pub fn range_in(self, size: usize) -> Option<Range<usize>> {
        let start = usize::try_from(self.offset).ok()?;
        let end = start.checked_add(usize::try_from(self.length).ok()?)?;
        (end <= size).then_some(start..end)
    }
}

/// The beginning of a place in a peer's memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RemoteSpan {
    /// The peer's region.
    pub region: RegionId,
    /// Bytes from that region's beginning.
    pub offset: u64,
}

/// Where a message goes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Destination {
    /// To one rank.
    One(Rank),
    /// To all members of a group but the sender.
    Group(GroupId),
}

/// Where an operation's header lies in the head bytes of its [`super::Out`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct HeadRef {
    pub(super) start: u32,
    pub(super) length: u16,
}

impl HeadRef {
    /// Returns the header's bytes; `None` when `heads` is not the buffer it was written to.
    pub fn bytes_in(self, heads: &[u8]) -> Option<&[u8]> {
        let start = self.start as usize;
        heads.get(start..start.checked_add(usize::from(self.length))?)
    }
}

/// A remote atomic on one aligned 64-bit word.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AtomicKind {
    /// Adds and fetches the old value.
    FetchAdd(u64),
    /// Replaces `expected` by `desired` and fetches the old value.
    CompareSwap {
        /// Stored only if the word has this value.
        expected: u64,
        /// The new value.
        desired: u64,
    },
    /// Replaces the word and fetches the old value.
    Swap(u64),
}

impl AtomicKind {
    /// Returns what the word becomes that was `old`.
    pub const fn next(self, old: u64) -> u64 {
        match self {
            Self::FetchAdd(n) => old.wrapping_add(n),
            Self::CompareSwap { expected, desired } if old == expected => desired,
            Self::CompareSwap { .. } => old,
            Self::Swap(n) => n,
        }
    }

    /// Changes `word` by an atomic operation of the processor; returns its old value.
    pub fn apply(self, word: &AtomicU64) -> u64 {
        match self {
            Self::FetchAdd(n) => word.fetch_add(n, Ordering::SeqCst),
            Self::Swap(n) => word.swap(n, Ordering::SeqCst),
            Self::CompareSwap { expected, desired } => word
                .compare_exchange(expected, desired, Ordering::SeqCst, Ordering::SeqCst)
                .unwrap_or_else(|old| old),
        }
    }
}

/// What to do with a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FileKind {
    /// File to memory.
    Read,
    /// Memory to file.
    Write,
    /// Make everything written durable.
    Sync,
}

/// Bytes that an engine can store or be shown at a time: a record with the longest name of a file
/// or target of a link, and its header.
pub const SHOW_MAX: usize = 8 << 10;

/// Bytes that an application can be given at a time, and that it can answer: the longest message of
/// a reliable wire among few ranks.
pub const APPLY_MAX: usize = 64 << 10;

/// One thing a wire can be asked to do.
///
/// A `token` of `None` wants no completion; such a send that finds no room is lost like on the
/// network, and counted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Operation {
    /// Sends a message: a header and, behind it, the bytes of a span.
    Send {
        /// One rank or a group.
        to: Destination,
        /// The way out.
        path: PathId,
        /// The class asked for.
        class: Class,
        /// The header.
        head: HeadRef,
        /// The body; [`Span::EMPTY`] for none.
        body: Span,
        /// Completes when the network has the message.
        token: Option<Token>,
    },
    /// Writes a span into a peer's memory.
    Write {
        /// Whose memory.
        to: Rank,
        /// The way out.
        path: PathId,
        /// The class asked for.
        class: Class,
        /// What to write.
        from: Span,
        /// Where to.
        into: RemoteSpan,
        /// The word of the `Landed` that the peer gets when all bytes are there; `None` tells the
        /// peer nothing.
        immediate: Option<u64>,
        /// Completes when the bytes are in the peer's memory.
        token: Option<Token>,
    },
    /// Reads a peer's memory into a span.
    Read {
        /// Whose memory.
        peer: Rank,
        /// The way out.
        path: PathId,
        /// The class asked for.
        class: Class,
        /// What to read.
        from: RemoteSpan,
        /// Where to, and how much.
        into: Span,
        /// Completes when the bytes are here.
        token: Token,
    },
    /// Changes one word of a peer's memory and fetches its old value.
    Atomic {
        /// Whose memory.
        to: Rank,
        /// The way out.
        path: PathId,
        /// The class asked for.
        class: Class,
        /// The change.
        kind: AtomicKind,
        /// Which word.
        at: RemoteSpan,
        /// Completes with the old value.
        token: Token,
    },
    /// Copies within this rank's memory, at once. Both spans have the same length and do not
    /// overlap.
    Copy {
        /// What; may lie in [`RegionId::RECEIVE`].
        from: Span,
        /// Where to.
        into: Span,
    },
    /// Computes the CRC-32C of bytes in this rank's memory as they are now, operations before it
    /// included.
    Digest {
        /// Which bytes; may lie in [`RegionId::RECEIVE`].
        of: Span,
        /// Completes with the digest, at once.
        token: Token,
    },
    /// Gives up a peer that the job continues without. Operations for it that were posted or that
    /// the driver holds end as [`Status::Flushed`](super::Status::Flushed) in bounded time, and
    /// hold no place that operations for others need. Messages already sent to the peer may still
    /// arrive there. Every wire accepts it.
    Abandon {
        /// The peer.
        peer: Rank,
    },
    /// Copies bytes within this rank's memory, at once, if their CRC-32C is as expected; other
    /// bytes are not copied. Both spans have the same length. The driver does it.
    CopyChecked {
        /// What; may lie in [`RegionId::RECEIVE`].
        from: Span,
        /// Where to.
        into: Span,
        /// The digest that the bytes have.
        digest: u32,
        /// Completes with the digest of the bytes that are there.
        token: Token,
    },
    /// Copies bytes that the engine wrote into this rank's memory, at once. The driver does it, in
    /// order with the other operations.
    Store {
        /// What [`Out::bytes`](super::Out::bytes) gave.
        bytes: HeadRef,
        /// Where to, as many.
        into: Span,
    },
    /// Shows bytes of this rank's memory to the engine, as they are now. The driver does it.
    Show {
        /// Which bytes, at most [`SHOW_MAX`]; may lie in [`RegionId::RECEIVE`].
        of: Span,
        /// Comes back in [`Arrival::Shown`](super::Arrival::Shown), first in the next round, or as
        /// refused.
        token: Token,
    },
    /// Gives bytes of this rank's memory to the application's [`Applier`](super::Applier), and
    /// stores what it answers. The driver does it, while received bytes are valid.
    Apply {
        /// The records, at most [`APPLY_MAX`] bytes; may lie in [`RegionId::RECEIVE`].
        of: Span,
        /// The rank that sent them.
        from: Rank,
        /// Room for the answer, at most [`APPLY_MAX`] bytes.
        answer: Span,
        /// Completes at once, with the bytes of the answer, or with the fault that the applier
        /// names.
        token: Token,
    },
    /// Reads, writes or syncs a file.
    File {
        /// What to do.
        kind: FileKind,
        /// Which file.
        file: FileId,
        /// Where in the file.
        at: u64,
        /// The bytes.
        memory: Span,
        /// The class of the traffic, if the file lies behind the network.
        class: Class,
        /// Completes when the system says it is done.
        token: Token,
    },
}

/// The kinds of operations, for capabilities and refusals.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum OperationKind {
    /// A message to one rank.
    Send,
    /// A message to a group.
    Multicast,
    /// A one-sided write.
    Write,
    /// A one-sided read.
    Read,
    /// A remote atomic.
    Atomic,
    /// A local copy.
    Copy,
    /// A file operation.
    File,
    /// A digest of local memory.
    Digest,
    /// The end of what is under way to a peer.
    Abandon,
    /// A local copy of bytes whose digest is known.
    CopyChecked,
    /// Bytes of the engine into local memory.
    Store,
    /// Bytes of local memory to the engine.
    Show,
    /// Bytes of local memory to the application.
    Apply,
}

impl OperationKind {
    /// All kinds.
    pub const ALL: [Self; 13] = [
        Self::Send,
        Self::Multicast,
        Self::Write,
        Self::Read,
        Self::Atomic,
        Self::Copy,
        Self::File,
        Self::Digest,
        Self::Abandon,
        Self::CopyChecked,
        Self::Store,
        Self::Show,
        Self::Apply,
    ];

    /// Returns whether the driver does operations of this kind, on every wire.
    pub const fn is_of_driver(self) -> bool {
        matches!(self, Self::CopyChecked | Self::Store | Self::Show | Self::Apply)
    }

    /// Returns the name used in reports and refusals.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Send => "send",
            Self::Multicast => "multicast",
            Self::Write => "one-sided write",
            Self::Read => "one-sided read",
            Self::Atomic => "remote atomic",
            Self::Copy => "local copy",
            Self::File => "file operation",
            Self::Digest => "local digest",
            Self::Abandon => "abandonment of a peer",
            Self::CopyChecked => "checked copy",
            Self::Store => "store of bytes",
            Self::Show => "show of bytes",
            Self::Apply => "application of records",
        }
    }
}

impl Operation {
    /// Returns what kind of operation this is.
    pub const fn kind(&self) -> OperationKind {
        match self {
            Self::Send { to: Destination::One(_), .. } => OperationKind::Send,
            Self::Send { to: Destination::Group(_), .. } => OperationKind::Multicast,
            Self::Write { .. } => OperationKind::Write,
            Self::Read { .. } => OperationKind::Read,
            Self::Atomic { .. } => OperationKind::Atomic,
            Self::Copy { .. } => OperationKind::Copy,
            Self::File { .. } => OperationKind::File,
            Self::Digest { .. } => OperationKind::Digest,
            Self::Abandon { .. } => OperationKind::Abandon,
            Self::CopyChecked { .. } => OperationKind::CopyChecked,
            Self::Store { .. } => OperationKind::Store,
            Self::Show { .. } => OperationKind::Show,
            Self::Apply { .. } => OperationKind::Apply,
        }
    }

    /// Returns the token to complete, if any.
    pub const fn token(&self) -> Option<Token> {
        match *self {
            Self::Send { token, .. } | Self::Write { token, .. } => token,
            Self::Read { token, .. }
            | Self::Atomic { token, .. }
            | Self::File { token, .. }
            | Self::Digest { token, .. }
            | Self::CopyChecked { token, .. }
            | Self::Show { token, .. }
            | Self::Apply { token, .. } => Some(token),
            Self::Copy { .. } | Self::Abandon { .. } | Self::Store { .. } => None,
        }
    }

    /// Returns the one rank that takes part in it next to this one, if any.
    pub const fn peer(&self) -> Option<Rank> {
        match *self {
            Self::Send { to: Destination::One(peer), .. }
            | Self::Write { to: peer, .. }
            | Self::Read { peer, .. }
            | Self::Atomic { to: peer, .. }
            | Self::Abandon { peer } => Some(peer),
            _ => None,
        }
    }

    /// Returns where its bytes lie among those that its engine wrote, if it has any.
    pub(super) const fn own_bytes(&mut self) -> Option<&mut HeadRef> {
        match self {
            Self::Send { head, .. } => Some(head),
            Self::Store { bytes, .. } => Some(bytes),
            _ => None,
        }
    }

    /// Returns whether the driver does it, and no wire sees it.
    pub(super) const fn is_of_driver(&self) -> bool {
        self.kind().is_of_driver()
    }

    /// Replaces the token, if there is one.
    pub(super) fn relabel(&mut self, label: impl FnOnce(Token) -> Token) {
        match self {
            Self::Send { token, .. } | Self::Write { token, .. } => *token = token.map(label),
            Self::Read { token, .. }
            | Self::Atomic { token, .. }
            | Self::File { token, .. }
            | Self::Digest { token, .. }
            | Self::CopyChecked { token, .. }
            | Self::Show { token, .. }
            | Self::Apply { token, .. } => *token = label(*token),
            Self::Copy { .. } | Self::Abandon { .. } | Self::Store { .. } => {}
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn range_in__a_span_that_leaves_its_region_is_none() {
        let span = |offset, length| Span { region: RegionId(0), offset, length };
        assert_eq!(span(2, 3).range_in(5), Some(2..5));
        assert_eq!(span(3, 3).range_in(5), None);
        assert_eq!(span(u64::MAX, u32::MAX).range_in(5), None);
        assert_eq!(Span::EMPTY.range_in(0), Some(0..0));
    }

    #[test]
    fn head_ref__of_a_foreign_buffer_is_none() {
        let head = HeadRef { start: 4, length: 4 };
        assert_eq!(head.bytes_in(&[0; 8]), Some(&[0u8; 4][..]));
        assert_eq!(head.bytes_in(&[0; 7]), None);
    }
}
