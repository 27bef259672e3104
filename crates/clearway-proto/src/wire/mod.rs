//! The contract between engines and wires: what an engine may ask, what a wire must answer, and
//! when.
//!
//! # Model
//! An *engine* decides; a *wire* carries. A *driver* stands between them and turns one into calls
//! on the other. One step of an engine is one call of [`Engine::input`]: something happened, at a
//! time, and the engine writes what to do about it into an [`Out`]. The step is a value: it can be
//! batched, logged, replayed or refused, and nothing of it is half done when the call returns.
//!
//! ```text
//!    wire ---poll----> Arrival --\                       /--> Operation --post--> wire
//!    clock -------------> Tick ----> Engine::input -> Out
//!    application ---> Command --/                       \--> event --> application
//! ```
//!
//! # Calling protocol
//! - After *every* input the driver reads [`Engine::deadline`] again, and gives `Tick` when it is
//!   due, never earlier.
//! - `now` never decreases between inputs of one engine. It may jump.
//! - [`More::Yes`] asks for another `Tick` at the same instant, so that one call does a bounded
//!   amount of work.
//! - Operations apply in the order written. An operation with `not_before` in the future leaves
//!   that order and waits.
//! - A token completes exactly once for each time it is issued: at once, by a later
//!   [`Arrival::Done`], or as refused. [`Status::NoRoom`] means that the operation did not start;
//!   it may be issued again after [`Arrival::Room`].
//! - The body of an arrived datagram lies in the region [`RegionId::RECEIVE`] and stays there until
//!   the next poll. An engine that wants to keep it copies it (`Operation::Copy`) in the same step.
//!
//! # Source
//! An effect buffer, not poll functions or callbacks: a step costs 15 ns instead of 5 (measured on
//! a probe of this interface) and can be recorded, compared and refused. Documenting the calling
//! protocol call by call is quinn's habit.
//!
//! # Invariants
//! I1. Bulk bytes never pass through an engine: a [`Span`] names them.
//! I2. A wire refuses by name what it cannot do ([`RefusalReason`]), and what goes wrong ends by
//!     name ([`Fault`]); nothing above a wire asks which
//!     wire it is.
//!
//! # Not here
//! Sockets (`clearway-runtime`); reliability over a lossy wire (an engine); which rank runs where
//! (launch).

mod capabilities;
pub mod conformance;
mod driver;
pub mod foreign_memory;
mod forward;
pub mod memory;
mod mux;
mod operation;
mod out;
pub mod regions;

pub use capabilities::{Capabilities, Delivery, Granted, OperationSet, SHORT_HEAD, StampSource};
pub use driver::{Applier, Driver, Progress};
pub use foreign_memory::{AdoptedMemory, ForeignMemory, HeldBytes, MemoryAccess};
#[doc(inline)]
pub use forward::forward_wire;
pub use mux::{EngineMux, MuxCommand, MuxEvent};
pub use operation::{
    APPLY_MAX, AtomicKind, Destination, FileId, FileKind, HeadRef, Operation, OperationKind,
    PathId, RegionId, RemoteSpan, SHOW_MAX, Span, Token,
};
pub use out::{Effect, Out, TimedOperation};

use alloc::vec::Vec;
use core::fmt;
use core::ops::Add;

use crate::base::{BitsPerSec, Bytes, Class, GroupId, LocalNs, Rank, crc32c};

/// A protocol as a state machine without I/O.
///
/// All allocation happens in the constructor; no statics; the same inputs give the same effects on
/// every machine.
///
/// # Example
/// An engine that sends a greeting to the next rank when it boots, and reports each greeting that
/// it gets:
/// ```
/// use clearway_proto::base::{Class, LocalNs, Rank};
/// use clearway_proto::wire::memory::{MemoryConfig, MemoryFabric};
/// use clearway_proto::wire::{Arrival, Destination, Driver, Engine, Input, More, Out, Span};
///
/// struct Greeter { next: Rank }
///
/// impl Engine for Greeter {
///     type Command = ();
///     type Event = Rank;
///
///     fn input(&mut self, _now: LocalNs, input: Input<'_, ()>, out: &mut Out<Rank>) -> More {
///         match input {
///             Input::Boot { .. } => out.send(Destination::One(self.next), Class::LowLatency, b"hi", Span::EMPTY, None),
///             Input::Arrival(Arrival::Datagram(datagram)) if datagram.head == b"hi" => out.notify(datagram.from),
///             _ => {}
///         }
///         More::No
///     }
///
///     fn deadline(&self) -> Option<LocalNs> {
///         None
///     }
/// }
///
/// let mut fabric = MemoryFabric::new(MemoryConfig::lossless(2));
/// let mut drivers = [1, 0].map(|next| Driver::boot(Greeter { next: Rank(next) }, LocalNs(0), 0));
/// let mut greeted_by = Vec::new();
/// for _ in 0..2 {
///     for (rank, driver) in (0..).map(Rank).zip(&mut drivers) {
///         driver.step(fabric.wire(rank), &mut |from| greeted_by.push((rank, from)));
///     }
///     fabric.advance(LocalNs(10_000));
/// }
/// assert_eq!(greeted_by, [(Rank(0), Rank(1)), (Rank(1), Rank(0))]);
/// ```
pub trait Engine {
    /// What the application may ask.
    type Command;
    /// Events for the application.
    type Event;

    /// Takes one input at `now` and writes what to do into `out`.
    ///
    /// An engine that finds [`Out::room`] at zero stops and returns [`More::Yes`].
    fn input(
        &mut self,
        now: LocalNs,
        input: Input<'_, Self::Command>,
        out: &mut Out<Self::Event>,
    ) -> More;

    /// Returns the next instant at which this engine wants a `Tick`, if nothing else happens
    /// before. O(1).
    fn deadline(&self) -> Option<LocalNs>;
}

/// Whether an engine has more to do at this instant.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[must_use]
pub enum More {
    /// Call again with `Tick`, without waiting.
    Yes,
    /// Nothing left to do before the deadline.
    No,
}

/// What can happen to an engine.
#[derive(Debug)]
pub enum Input<'a, C> {
    /// The node came up; its state is new. `incarnation` grows with every restart of the same rank.
    Boot {
        /// 0 for the first start.
        incarnation: u32,
    },
    /// The deadline is due, or the engine asked for more.
    Tick,
    /// The wire brought something.
    Arrival(Arrival<'a>),
    /// The application asks for something.
    Command(C),
}

/// What a wire brings.
#[derive(Clone, Copy, Debug)]
#[non_exhaustive]
pub enum Arrival<'a> {
    /// A message.
    Datagram(Datagram<'a>),
    /// A peer's one-sided write is complete in this rank's memory.
    Landed {
        /// The rank that wrote.
        from: Rank,
        /// Where the bytes now lie.
        into: Span,
        /// The word the writer sent along.
        immediate: u64,
        /// When the write was complete.
        at: Stamp,
    },
    /// An operation issued earlier is over.
    Done {
        /// The token it was issued with.
        token: Token,
        /// How it ended.
        status: Status,
        /// The old value of an atomic, a digest, the bytes that a file operation moved, or the
        /// length of an answer; zero otherwise.
        value: u64,
        /// When it ended.
        at: LocalNs,
    },
    /// A queue that answered [`Status::NoRoom`] takes operations again.
    Room {
        /// Which queue.
        queue: Queue,
    },
    /// Bytes that [`Operation::Show`] asked for.
    Shown {
        /// The token it was issued with.
        token: Token,
        /// The bytes.
        bytes: &'a [u8],
    },
    /// A path went up, went down, or changed its rate.
    PathState {
        /// Which path.
        path: PathId,
        /// Its rate, or nothing while it is down.
        rate: Option<BitsPerSec>,
    },
}

/// A queue of a wire that can be full.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Queue {
    /// The transmit queue of a path and class.
    Path {
        /// The path.
        path: PathId,
        /// The class.
        class: Class,
    },
    /// File operations.
    Files,
}

impl Queue {
    /// Returns the class of a transmit queue, whatever its path.
    pub const fn class(self) -> Option<Class> {
        match self {
            Self::Path { class, .. } => Some(class),
            Self::Files => None,
        }
    }
}

/// When something arrived.
#[derive(Clone, Copy, Debug)]
pub enum Stamp {
    /// The network, the kernel or the wire took the time.
    Taken(LocalNs),
    /// Nobody did; this reads the clock. For wires that could do no better than read it for each
    /// arrival, wanted or not.
    Reading(fn() -> LocalNs),
}

impl Stamp {
    /// Returns the instant. A caller that wants it asks once and before doing anything else: a
    /// stamp that nobody took is the time of asking. Cost: none, or that of reading a clock.
    #[inline]
    pub fn instant(self) -> LocalNs {
        match self {
            Self::Taken(at) => at,
            Self::Reading(clock) => clock(),
        }
    }
}

/// A message as it arrived.
#[derive(Clone, Copy, Debug)]
pub struct Datagram<'a> {
    /// The rank that sent it.
    pub from: Rank,
    /// The path on which it came.
    pub path: PathId,
    /// The class whose mark it carried *on arrival*; `None` when the mark belongs to no class.
    pub class: Option<Class>,
    /// The network marked it as having met congestion.
    pub congestion_marked: bool,
    /// When it reached this node, by the best clock the wire has (see [`Capabilities::stamp`]).
    pub at: Stamp,
    /// The engine's own header.
    pub head: &'a [u8],
    /// Where the body lies until the next poll; empty when there is none.
    pub body: Span,
}

/// How an operation ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Status {
    /// Done: for a send, the network has it; for a write, it is in the peer's memory.
    Complete,
    /// Not started: its queue is full. May be issued again after [`Arrival::Room`].
    NoRoom,
    /// Not started: this wire lacks the operation, or the operation names something that does not
    /// exist.
    Refused(RefusalReason),
    /// Given up: the peer or the path is gone. It may have been carried out.
    Flushed,
    /// Started and failed, for this reason.
    Failed(Fault),
}

/// Why an operation failed that had what it needs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Fault {
    /// The file system or the quota is full.
    NoSpace,
    /// The device or the file system reported an error.
    Io,
    /// Permission is missing.
    Denied,
    /// The file, or the server that holds it, is not there any more.
    Gone,
    /// The bytes are not in the form that the operation expects.
    Malformed,
}

impl fmt::Display for Fault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::NoSpace => "no space is left",
            Self::Io => "the device reported an error",
            Self::Denied => "permission is missing",
            Self::Gone => "the file is not there any more",
            Self::Malformed => "the bytes are malformed",
        })
    }
}

/// What an operation needs that is not there.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum RefusalReason {
    /// The wire does not have this kind of operation.
    Operation(OperationKind),
    /// No such rank in the job.
    Rank,
    /// No such multicast group joined or configured.
    Group,
    /// No such path.
    Path,
    /// The span leaves its region, or the region does not exist.
    Memory,
    /// The message is longer than [`Capabilities::head_max`], [`Capabilities::body_max`] or
    /// [`Capabilities::message_max`] allow.
    Length,
}

impl fmt::Display for RefusalReason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Operation(kind) => write!(f, "this wire has no {}", kind.name()),
            Self::Rank => f.write_str("no such rank in this job"),
            Self::Group => f.write_str("no such multicast group"),
            Self::Path => f.write_str("no such path"),
            Self::Memory => f.write_str("the span is outside registered memory"),
            Self::Length => {
                f.write_str("the message is longer than this wire carries in one piece")
            }
        }
    }
}

/// A wire's answer to one posted operation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PostOutcome {
    /// Complete; no [`Arrival::Done`] will follow. The value is a fetched one, zero otherwise.
    Done(u64),
    /// Under way; exactly one [`Arrival::Done`] will follow if it has a token.
    Posted,
    /// Not started: queue full.
    NoRoom,
    /// Not started: cannot be done here.
    Refused(RefusalReason),
}

/// Losses and refusals that a wire saw on its own side, since it was opened. Counters only grow.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counters {
    /// Messages handed to the network.
    pub sent: u64,
    /// Messages given to the engine.
    pub received: u64,
    /// Messages that this node received and had to drop before anyone read them (full socket
    /// buffer).
    pub receive_overflow: u64,
    /// Messages that this node's own transmit queue dropped after accepting them, as far as the
    /// system tells.
    pub transmit_dropped: u64,
    /// Operations answered `NoRoom`.
    pub no_room: u64,
    /// Datagrams that were not of this job or not well formed.
    pub strangers: u64,
    /// System calls that failed in a way no other counter names (a peer's port unreachable, for
    /// example).
    pub errors: u64,
}

impl Add for Counters {
    type Output = Self;

    fn add(self, other: Self) -> Self {
        Self {
            sent: self.sent + other.sent,
            received: self.received + other.received,
            receive_overflow: self.receive_overflow + other.receive_overflow,
            transmit_dropped: self.transmit_dropped + other.transmit_dropped,
            no_room: self.no_room + other.no_room,
            strangers: self.strangers + other.strangers,
            errors: self.errors + other.errors,
        }
    }
}

/// A carrier. One value is one rank's end of it.
///
/// # Example
/// Rank 0 posts a message with a body, and rank 1 polls it:
/// ```
/// use clearway_proto::base::{Bytes, Class, LocalNs, Rank};
/// use clearway_proto::wire::memory::{MemoryConfig, MemoryFabric};
/// use clearway_proto::wire::{Arrival, Destination, Operation, Out, PathId, PostOutcome, RegionId, Span, Wire, bytes_of};
///
/// let mut fabric = MemoryFabric::new(MemoryConfig::lossless(2));
/// let sender = fabric.wire(Rank(0));
/// let region = sender.register(Bytes(4))?;
/// let body = Span { region, offset: 0, length: 4 };
/// sender.copy_in(body, b"body")?;
/// let mut out = Out::<()>::with_limit(1);
/// let (to, head) = (Destination::One(Rank(1)), out.head(b"head"));
/// let send = Operation::Send { to, path: PathId(0), class: Class::Bulk, head, body, token: None };
/// let mut answers = Vec::new();
/// sender.post(&[send], out.heads(), &mut answers);
/// // A send without a token is over when the wire has taken it.
/// assert_eq!(answers, [PostOutcome::Done(0)]);
///
/// fabric.advance(LocalNs(10_000));
/// let receiver = fabric.wire(Rank(1));
/// let mut arrived = Vec::new();
/// receiver.poll(64, &mut |arrival| {
///     if let Arrival::Datagram(datagram) = arrival {
///         arrived.push((datagram.from, datagram.head.to_vec(), datagram.body));
///     }
/// });
/// let [(from, head, body)] = arrived.as_slice() else { panic!("one message") };
/// assert_eq!((*from, head.as_slice()), (Rank(0), b"head".as_slice()));
/// assert_eq!(bytes_of(receiver.region(RegionId::RECEIVE), *body)?, b"body");
/// # Ok::<(), clearway_proto::wire::RefusalReason>(())
/// ```
pub trait Wire {
    /// Returns this end's rank.
    fn rank(&self) -> Rank;

    /// Returns what this wire can do; constant after it was opened.
    fn capabilities(&self) -> &Capabilities;

    /// Returns the time on this node's clock.
    fn now(&self) -> LocalNs;

    /// Adds `length` zeroed bytes of memory that operations and peers can name.
    ///
    /// # Errors
    /// [`RefusalReason::Memory`] when the wire has no more room for regions.
    fn register(&mut self, length: Bytes) -> Result<RegionId, RefusalReason>;

    /// Makes memory of others a region, which operations can name as those that [`Wire::register`]
    /// gives: the next number, or [`RegionId::PROCESS`] for memory that only this rank may name
    /// ([`Capabilities::any_local`]). The wire touches it by the methods of [`ForeignMemory`] until
    /// it is dropped; a wire on which peers reach memory by themselves maps its file.
    ///
    /// # Errors
    /// [`RefusalReason::Memory`] when the wire has no more room for regions, or cannot reach this
    /// memory.
    fn adopt(&mut self, _memory: AdoptedMemory) -> Result<RegionId, RefusalReason> {
        Err(RefusalReason::Memory)
    }

    /// Copies the bytes of a span out, of adopted memory too. `into` has the length of the span.
    ///
    /// # Errors
    /// [`RefusalReason::Memory`].
    fn copy_out(&self, from: Span, into: &mut [u8]) -> Result<(), RefusalReason> {
        let bytes = bytes_of(self.region(from.region), from)?;
        if bytes.len() != into.len() {
            return Err(RefusalReason::Memory);
        }
        into.copy_from_slice(bytes);
        Ok(())
    }

    /// Holds the bytes of a span of adopted memory whose owner does not change them
    /// ([`ForeignMemory::hold`]).
    fn hold(&self, _span: Span) -> Option<HeldBytes> {
        None
    }

    /// Copies `from` into a span, of adopted memory too. `from` has the length of the span.
    ///
    /// # Errors
    /// [`RefusalReason::Memory`].
    fn copy_in(&mut self, into: Span, from: &[u8]) -> Result<(), RefusalReason> {
        if into.length as usize != from.len() {
            return Err(RefusalReason::Memory);
        }
        if from.is_empty() {
            return Ok(());
        }
        let region = self.region_mut(into.region).ok_or(RefusalReason::Memory)?;
        let range = into.range_in(region.len()).ok_or(RefusalReason::Memory)?;
        region[range].copy_from_slice(from);
        Ok(())
    }

    /// Returns the bytes of a region; for [`RegionId::RECEIVE`] those of the last poll. `None` for
    /// adopted memory.
    fn region(&self, region: RegionId) -> Option<&[u8]>;

    /// Returns the bytes of a registered region, to be filled by the application.
    fn region_mut(&mut self, region: RegionId) -> Option<&mut [u8]>;

    /// Gives the memory of a registered region back to the system until it is used again; its bytes
    /// are zero then. A wire that cannot keeps memory and bytes as they are.
    fn clear(&mut self, _region: RegionId) {}

    /// Receives what is sent to `group` from now on.
    ///
    /// # Errors
    /// [`RefusalReason::Operation`] without multicast, [`RefusalReason::Group`] when the network
    /// refuses the group.
    fn join(&mut self, group: GroupId) -> Result<(), RefusalReason>;

    /// Receives what is sent to `group` no more, and gives the group's place in the network's
    /// tables back.
    ///
    /// # Errors
    /// [`RefusalReason::Operation`] without multicast, [`RefusalReason::Group`] when this end has
    /// not joined it.
    fn leave(&mut self, _group: GroupId) -> Result<(), RefusalReason> {
        Err(RefusalReason::Operation(OperationKind::Multicast))
    }

    /// Starts `operations` in order and pushes one answer for each onto `answers`. `heads` holds
    /// their headers.
    ///
    /// Never blocks. Cost: on a socket wire one system call for a run of sends, not one for each.
    fn post(&mut self, operations: &[Operation], heads: &[u8], answers: &mut Vec<PostOutcome>);

    /// Gives at most about `limit` arrivals to `sink`; returns how many there were. Never blocks.
    fn poll(&mut self, limit: usize, sink: &mut dyn FnMut(Arrival<'_>)) -> usize;

    /// Returns what was lost or refused on this side.
    fn counters(&self) -> Counters;

    /// Returns when this wire wants a poll though nothing arrived: a wire made of another one has
    /// timers of its own. O(1).
    fn deadline(&self) -> Option<LocalNs> {
        None
    }

    /// Computes the CRC-32C of the bytes in `of`: what [`Operation::Digest`] answers. Reads them
    /// once.
    ///
    /// # Errors
    /// [`RefusalReason::Memory`] when the span leaves its region.
    fn digest(&self, of: Span) -> Result<u32, RefusalReason> {
        bytes_of(self.region(of.region), of).map(crc32c)
    }
}

/// Returns the bytes of `span` in its `region`; none at all for an empty span, whatever region it
/// names.
///
/// # Errors
/// [`RefusalReason::Memory`] when the span leaves the region, or there is none.
pub fn bytes_of(region: Option<&[u8]>, span: Span) -> Result<&[u8], RefusalReason> {
    if span.length == 0 {
        return Ok(&[]);
    }
    let region = region.ok_or(RefusalReason::Memory)?;
    span.range_in(region.len()).map(|range| &region[range]).ok_or(RefusalReason::Memory)
}
