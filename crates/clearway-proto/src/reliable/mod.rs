//! Reliable messages: a wire made of one that may lose, double, reorder and damage; memory to
//! memory, over all its paths.
//!
//! # Model
//! ```text
//!   engine above --post--> ReliableWire (a wire) --command--> ReliableNode (an engine) --effects--> driver --> lossy wire
//!                <-poll--                  <--event---                   <-arrivals-
//! ```
//! [`ReliableNode`] is the protocol, an engine like others; [`ReliableWire`] makes a wire of it.
//! Messages to one peer in one class are a *stream*: they arrive in order, and no stream waits for
//! another. A message is cut into *fragments* of one datagram each. A fragment carries the place of
//! its bytes, in a region that the peer registered (a write) or in the peer's *inbox*, memory that
//! it keeps for this stream (a message); so nothing is ever put together. The digest of a fragment
//! is computed from the sender's memory and compared in the receiver's: what a bus, an adapter or a
//! switch changed on the way is sent again.
//!
//! Acknowledgements say what has arrived (a number below which nothing is missing, and a bitmap)
//! and, apart from that, how much of the inbox is free again: an application that reads late holds
//! its sender back, and nothing is sent twice for it.
//!
//! # Source
//! LA-MPI: digests from memory to memory, numbers of what was received apart from what was
//! delivered, fragments over several interfaces with fail-over. Its time-outs of seconds are
//! measured round trips here, and messages go on where they were when a path fails.
//!
//! # Invariants
//! I1. A message is reported once, whole, in order within its stream, or its sender hears that it
//!     was not.
//! I2. A peer's messages change no stream of another, and no memory but its inbox and the regions
//!     that writes may go to.
//! I3. A process in a rank's place gets and ends no message of the process that had the place
//!     before, once both ends forgot that one.
//!
//! # Not here
//! Which process may send at all: sealing is the wire's below. Broadcast (an engine of its own).

mod buffer_pool;
mod frame;
mod key;
mod node;
mod paths;
mod receive_stream;
mod scavenger;
mod segmentation;
mod send_stream;
mod stream_path;
#[cfg(test)]
mod tests;
mod wire;

pub use frame::HEAD_MAX;
pub use node::ReliableNode;
pub use wire::ReliableWire;

use crate::base::{Bytes, Class, Head, LocalNs, Nanos, Rank};
use crate::wire::{Capabilities, RegionId, RemoteSpan, Span, Status, Token};

/// Fragments of one stream between the first that is missing and the newest: what the bitmap of an
/// acknowledgement can name.
pub(super) const WINDOW: u32 = 64 * frame::BITMAP_WORDS as u32;
/// Fragments after which an acknowledgement is sent: one for a large packet of 8 (half the kernel's
/// usual segments).
const ANSWER_EVERY: u32 = 8;
/// How long an acknowledgement may wait otherwise: a few times what a fragment takes at 100 Mb/s
/// (120 us).
const ANSWER_MAX: Nanos = Nanos::from_micros(500);

/// What streams are made like; the same on all ranks.
#[derive(Clone, Debug)]
pub struct StreamConfig {
    /// Bytes of inbox for each peer and class; a power of two. The longest message is half of it.
    pub inbox: Bytes,
    /// How long a queue may keep what arrives in it, by [`Class::index`], until less is sent:
    /// longer than ranks of a busy machine are away. A scavenger's is the queue that all scavengers
    /// of a path together may cause.
    pub allowance: [Nanos; Class::ALL.len()],
    /// After so long without a word a peer is given up: everything for it ends as flushed.
    pub timeout: Nanos,
    /// Messages of one stream that may wait to be cut.
    pub backlog: usize,
    /// Where the digest of what arrived is taken.
    pub check: DigestPolicy,
    /// How long the acknowledgement of a whole message is delayed, at most 500 us. Several messages
    /// then share one, and the application answers first: an acknowledgement costs the processor as
    /// much as a message. While it waits, a short fragment that leaves the other way carries it.
    pub answer_soon: Nanos,
}

/// Where the digest of a fragment that arrived is taken.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DigestPolicy {
    /// Where its bytes belong: what the way into that memory damages is noticed too. For memory
    /// that nobody else changes meanwhile.
    Placed,
    /// Where they arrived, before they are copied: for memory that threads change while writes
    /// land. Damaged bytes never get there.
    Arrived,
}

impl StreamConfig {
    /// Creates a `StreamConfig` for `ranks` ranks: inboxes of 128 KiB, and less where all of a
    /// rank's would be more than 64 MiB.
    pub fn new(ranks: u32) -> Self {
        const ALL: u64 = 64 << 20;
        let streams = u64::from(ranks.max(1)) * Class::ALL.len() as u64;
        let inbox = (ALL / streams).clamp(INBOX_LEAST, 128 << 10);
        Self {
            inbox: Bytes(1 << inbox.ilog2()),
            allowance: [
                Nanos::from_millis(1),
                Nanos::from_micros(500),
                Nanos::from_millis(1),
                Nanos::from_millis(2),
                Nanos::from_micros(500),
            ],
            timeout: Nanos::from_secs(10),
            backlog: 256,
            check: DigestPolicy::Placed,
            answer_soon: Nanos::ZERO,
        }
    }

    /// Returns the longest body of a message.
    const fn body_max(&self) -> u64 {
        self.inbox.0 / 2
    }
}

/// The least inbox: two messages of a datagram of Ethernet.
const INBOX_LEAST: u64 = 4 << 10;

/// What a message is for.
#[derive(Clone, Copy, Debug)]
pub enum MessageTarget {
    /// The peer's engine, with its own header.
    Inbox {
        /// The header.
        head: Head<HEAD_MAX>,
    },
    /// The peer's memory.
    Memory {
        /// Where to.
        into: RemoteSpan,
        /// The word that the peer gets; `None` tells it nothing.
        immediate: Option<u64>,
    },
}

/// What comes back when a message is over.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MessageCompletion {
    /// The token of who sent it, if it wants to know.
    pub token: Option<Token>,
    /// Memory that was kept for it.
    pub kept: Option<Span>,
}

/// A message to one peer.
#[derive(Clone, Copy, Debug)]
pub struct Message {
    /// What for.
    pub target: MessageTarget,
    /// The bytes; they stay as they are until the message is over.
    pub body: Span,
    /// To recognise its end.
    pub ticket: MessageCompletion,
}

/// What [`ReliableNode`] may be asked.
#[derive(Clone, Copy, Debug)]
pub enum ReliableCommand {
    /// Sends a message.
    Send {
        /// To whom.
        to: Rank,
        /// In which class.
        class: Class,
        /// The message.
        message: Message,
    },
    /// Says that the application is done with the body of a message.
    Free(Receipt),
    /// Gives up everything that is for this rank: it ends as flushed.
    Abandon(Rank),
    /// Forgets a rank whose number another process gets: what is under way to it ends as flushed,
    /// and what it sent counts for nothing from now on. Both ends begin their streams anew with the
    /// newcomer's incarnation, which the giver of the number draws: newer than that of every
    /// process that had the number before. The newcomer boots with it, and forgets each peer that
    /// knew its predecessor.
    Forget {
        /// The rank.
        peer: Rank,
        /// The newcomer's incarnation.
        incarnation: u32,
    },
}

/// What a message leaves in the inbox until it is freed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Receipt {
    from: Rank,
    class: Class,
    generation: u16,
    position: u64,
}

/// What [`ReliableNode`] tells.
#[derive(Clone, Copy, Debug)]
pub enum ReliableEvent {
    /// A message has arrived.
    Message {
        /// From whom.
        from: Rank,
        /// In which class.
        class: Class,
        /// Its header.
        head: Head<HEAD_MAX>,
        /// Its body, in this rank's inbox until it is freed.
        body: Span,
        /// When its last datagram came.
        at: LocalNs,
        /// To free its body with.
        receipt: Receipt,
    },
    /// A peer's write is complete in this rank's memory.
    Landed {
        /// From whom.
        from: Rank,
        /// Where the bytes lie.
        into: Span,
        /// The writer's word.
        immediate: u64,
        /// When its last datagram came.
        at: LocalNs,
    },
    /// A message is over.
    Done {
        /// Which.
        ticket: MessageCompletion,
        /// How.
        status: Status,
    },
    /// A stream of this class takes messages again.
    Room {
        /// The class.
        class: Class,
    },
}

/// What a [`ReliableNode`] is made for.
#[derive(Clone, Debug)]
pub struct ReliableConfig {
    /// Ranks of the job.
    pub ranks: u32,
    /// What the wire below can do.
    pub below: Capabilities,
    /// How streams are made.
    pub streams: StreamConfig,
    /// The memory of all inboxes: [`StreamConfig::inbox`] for each rank and class, in this order.
    pub inboxes: RegionId,
    /// The memory of bodies that wait to be sent. Peers write neither there nor into inboxes.
    pub kept: RegionId,
}
