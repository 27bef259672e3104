//! Far one-sided operations: small ones gathered as records of messages, which the target's
//! processor applies in order; long ones as writes and reads of the wire; each class for itself.
//!
//! # Model
//! ```text
//!   application                                 peer
//!     | push, push, push            (OpenBuffer)   |
//!     |-- BATCH n ------------------------------->|   its application applies the records (HeapAccess)
//!     |<-------------------------- ANSWER (n) ----|   values of the requests among them
//!     |<------------------------ COUNTS (n, ..) --|   where they were asked for: all up to n is applied
//!     |== silent write of a long put ============>|
//!     |-- PULL n (no read on this wire) --------->|
//!     |<== silent write, then ANSWER -------------|
//! ```
//! Batches to one peer in one class are a *stream*: they are applied in order. Completion is a
//! count: every message carries how many batches of the other direction were applied, and a message
//! that only carries counts leaves where the sender asked: on the last batch before the application
//! waits ([`QueueCommand::Flush`]), and twice a window. A stream of puts costs no answer each.
//!
//! A batch with requests holds the place of its answer in the peer's memory before it leaves. So
//! answers always leave, and no wait for room goes in a circle.
//!
//! A thread of the application pushes elements into a buffer without the engine ([`OpenBuffer`]),
//! and closes it when it is full, when nothing is under way to the peer, when its oldest element
//! has waited long enough, or when the application wants order or completion ([`ClosingPolicy`]).
//!
//! # Invariants
//! I1. Every element is applied once, and in order within its peer and class.
//! I2. What was issued behind a fence of a context is not seen at a peer before what was issued
//!     there before it in this context.
//! I3. An element outside the peer's segments changes nothing.
//! I4. In one round, nothing of a class is sent or applied before what is there of more urgent
//!     ones.
//!
//! # Not here
//! The heap: the application applies records ([`apply`]). Delivery over lossy wires
//! ([`crate::reliable`]). Threads, waiting, contexts of programs: the library above.

mod apply;
mod closing;
mod frame;
mod lane;
mod node;
mod open;
mod operations;
mod receive;
mod record;
mod transmit;

#[cfg(test)]
mod tests;

pub use apply::{HeapAccess, apply};
pub use closing::{ClosingCause, ClosingPolicy, StreamState};
pub use node::QueueNode;
pub use open::{OpenBuffer, Push};
pub use record::{
    AtomicRun, AtomicStep, Element, PUT_MAX, Place, WordChange, WordWidth, read_elements,
};

use crate::base::{Bytes, Class, Nanos, Rank};
use crate::wire::{
    APPLY_MAX, Capabilities, Delivery, OperationKind, RefusalReason, RegionId, RemoteSpan, Span,
    Status,
};

/// Names operations that complete together and are ordered by fences: a context of a program, or a
/// queue. All of one context to one peer have one class.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ContextId(pub u32);

/// Names a request that waits for an answer; the application chooses it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Ticket(pub u32);

/// A closed buffer: records that leave as one message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Batch {
    /// Where the records lie. The memory is the engine's until [`QueueEvent::Free`].
    pub buffer: Span,
    /// Elements in it.
    pub elements: u32,
    /// Those of them that have a ticket.
    pub requests: u32,
}

/// What the application may ask of a [`QueueNode`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum QueueCommand {
    /// Sends a closed buffer. [`QueueEvent::Ended`] counts its elements when they are applied and
    /// their answers are here.
    Close {
        /// To which rank.
        peer: Rank,
        /// The class of the stream; answers travel in it too.
        class: Class,
        /// Which operations they are.
        context: ContextId,
        /// The records; at least one element.
        batch: Batch,
    },
    /// Writes bytes into a peer's memory by the wire. Ends as one element when they are there.
    Put {
        /// To which rank.
        peer: Rank,
        /// The class.
        class: Class,
        /// Which operation it is.
        context: ContextId,
        /// The bytes; they stay as they are until the end.
        from: Span,
        /// Where to.
        into: RemoteSpan,
        /// Records that the peer applies behind these bytes, usually one signal. They end as
        /// elements of their own.
        signal: Option<Batch>,
    },
    /// Fetches bytes of a peer's memory: by a read of the wire, or else the peer writes them.
    /// [`QueueEvent::Fetched`] follows, and it ends as one element.
    Get {
        /// Of which rank.
        peer: Rank,
        /// The class.
        class: Class,
        /// Which operation it is.
        context: ContextId,
        /// Which bytes.
        from: RemoteSpan,
        /// Where to, and how many. Without a read of the wire, a region that peers may write to.
        into: Span,
        /// Comes back with the end.
        ticket: Ticket,
    },
    /// Orders what follows of a context behind what was issued of it before: at a peer, or at each.
    Fence {
        /// Which operations.
        context: ContextId,
        /// The peer, or all.
        peer: Option<Rank>,
    },
    /// Asks peers to say what they have applied of a context, because the application waits for it.
    /// Everything that was issued before ends without another command.
    Flush {
        /// Which operations.
        context: ContextId,
        /// The peer, or all.
        peer: Option<Rank>,
    },
    /// Gives up a peer: everything for it ends.
    Abandon {
        /// Which one.
        peer: Rank,
    },
    /// Asks for [`QueueEvent::Finished`] when everything issued has ended and all answers have
    /// left.
    Finish,
}

/// What a [`QueueNode`] reports. Nothing has to be looked up: an application adds counts to its
/// own.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum QueueEvent {
    /// Elements are over: applied at the peer, or written there, or their answers are here.
    Ended {
        /// Of which context.
        context: ContextId,
        /// At which peer.
        peer: Rank,
        /// How many more.
        count: u32,
    },
    /// A [`QueueCommand::Get`] is over.
    Fetched {
        /// From which peer.
        peer: Rank,
        /// Which one.
        ticket: Ticket,
        /// [`Status::Complete`] if the bytes are here.
        status: Status,
    },
    /// The memory of a batch may be filled again.
    Free {
        /// Which.
        buffer: Span,
    },
    /// Nothing is under way to a peer in a class any more: an open buffer may be closed.
    Room {
        /// The peer.
        peer: Rank,
        /// The class.
        class: Class,
    },
    /// A long put of the application was not carried out, for example because it leaves the peer's
    /// memory. It ends all the same.
    Refused {
        /// Of which context.
        context: ContextId,
        /// At which peer.
        peer: Rank,
        /// Why.
        status: Status,
    },
    /// A peer sent what is no message of this engine, or records that the application refused. What
    /// it sends from now on counts for nothing; [`QueueEvent::Lost`] follows.
    Malformed(Rank),
    /// A peer is gone. What was for it has ended; nobody knows whether it was applied.
    Lost(Rank),
    /// What [`QueueCommand::Finish`] asked for.
    Finished,
}

/// How far the streams of a job go, computed from what its wire can do; the same on all ranks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct QueueLimits {
    /// The longest batch, in bytes: how long buffers are made.
    pub batch: u32,
    /// The longest answer to a batch.
    pub answer: u32,
    /// The longest element with bytes, among them puts and answers to gets.
    pub element: u32,
    /// Batches of a stream that are not known to be applied.
    pub window: u32,
    /// Batches with requests of a stream whose answers hold a place at the peer.
    pub requests: u32,
}

/// Bytes of the longest batch: behind it the head of a message costs under a hundredth.
const BATCH_MAX: usize = 16 << 10;
/// Bytes of the longest answer: that to one get of [`PUT_MAX`].
const ANSWER_MAX: usize = PUT_MAX + record::BLOCK_HEADER_MAX;
/// The least batch that a wire must carry: an element of each kind fits.
const BATCH_LEAST: usize = 256;
/// Batches under way without a count: half of them is a round trip at 8 GB/s and 16 us.
const WINDOW: u32 = 16;

impl QueueLimits {
    /// Computes the limits for `ranks` ranks on a wire with `capabilities`.
    ///
    /// # Errors
    /// [`RefusalReason::Operation`] when messages are not reliable or there is no way to write,
    /// [`RefusalReason::Length`] when they are too short.
    pub fn new(ranks: u32, capabilities: &Capabilities) -> Result<Self, RefusalReason> {
        for kind in [OperationKind::Send, OperationKind::Write] {
            if !capabilities.operations.has(kind) || capabilities.delivery != Delivery::Reliable {
                return Err(RefusalReason::Operation(kind));
            }
        }
        let batch = capabilities.body_max_with_head(frame::HEAD_MAX).min(BATCH_MAX).min(APPLY_MAX);
        if batch < BATCH_LEAST || capabilities.head_max < frame::HEAD_MAX {
            return Err(RefusalReason::Length);
        }
        let answer = batch.min(ANSWER_MAX);
        Ok(Self {
            batch: batch as u32,
            answer: answer as u32,
            element: (answer - record::BLOCK_HEADER_MAX).min(PUT_MAX) as u32,
            window: WINDOW,
            // A place is free again when the answer is acknowledged, which may take 100 us. Among
            // many ranks the memory of answers counts.
            requests: if ranks > 100 { 4 } else { 16 },
        })
    }

    /// Returns the memory of answers that a rank among `ranks` registers.
    pub fn answer_memory(&self, ranks: u32) -> Bytes {
        let places = u64::from(ranks) * Class::ALL.len() as u64 * u64::from(self.requests);
        Bytes(places * u64::from(self.answer))
    }
}

/// What a [`QueueNode`] is made for.
#[derive(Clone, Debug)]
pub struct QueueConfig {
    /// This rank.
    pub rank: Rank,
    /// Ranks of the job.
    pub ranks: u32,
    /// What the wire can do.
    pub wire: Capabilities,
    /// The limits of the job.
    pub limits: QueueLimits,
    /// [`QueueLimits::answer_memory`] of this engine's own.
    pub answers: RegionId,
    /// The regions that peers may fetch bytes of, by segment.
    pub segments: [Option<RegionId>; record::SEGMENTS],
    /// How long a stream waits for what it asked for until it asks again, which shows whether the
    /// peer lives.
    pub timeout: Nanos,
}

impl QueueConfig {
    /// Creates a configuration with the limits of `wire` and a timeout of half a second.
    ///
    /// # Errors
    /// As [`QueueLimits::new`].
    pub fn new(
        rank: Rank,
        ranks: u32,
        wire: &Capabilities,
        answers: RegionId,
        segments: [Option<RegionId>; record::SEGMENTS],
    ) -> Result<Self, RefusalReason> {
        Ok(Self {
            rank,
            ranks,
            wire: wire.clone(),
            limits: QueueLimits::new(ranks, wire)?,
            answers,
            segments,
            timeout: Nanos::from_millis(500),
        })
    }
}
