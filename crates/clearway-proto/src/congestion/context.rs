//! What every part of a node needs to act: the time, the phase, the way out, the record.
//!
//! # Not here
//! Which part gets which input: `node`.

use crate::base::{Class, LocalNs, Nanos, RandomKey, Rank, SharedClock};
use crate::wire::{Destination, Out, Span, Token};

use super::frame::CongestionFrame;
use super::record::{Metric, PhaseRecord};
use super::task::Phase;

/// What a node knows from its beginning.
#[derive(Clone, Copy, Debug)]
pub struct CongestionConfig {
    /// This rank.
    pub rank: Rank,
    /// Registered memory from which bodies are sent; at least as long as the longest body.
    pub payload: Span,
    /// The longest body of one message.
    pub body_max: u32,
    /// Registered memory for victims that need some; see
    /// [`CongestionNode::give_memory`](super::CongestionNode::give_memory).
    pub memory: Option<Span>,
    /// Present when one-way times can be taken.
    pub shared_clock: Option<SharedClock>,
    /// Root of this run's randomness.
    pub key: RandomKey,
}

/// Events for the application.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CongestionEvent {
    /// The phase and its drain are over; the record can be taken.
    PhaseOver {
        /// Which phase.
        number: u32,
    },
    /// Keep the processor busy for this long, now.
    Burn(Nanos),
}

/// What a part needs to act: the time, the phase, the way out, the record.
pub(super) struct CongestionContext<'a> {
    pub(super) now: LocalNs,
    pub(super) phase: &'a Phase,
    pub(super) config: &'a CongestionConfig,
    pub(super) out: &'a mut Out<CongestionEvent>,
    pub(super) record: &'a mut PhaseRecord,
}

impl CongestionContext<'_> {
    /// Sends `frame` with `body` bytes of payload behind it. At most `body_max` bytes are sent.
    pub(super) fn send(
        &mut self,
        to: Rank,
        class: Class,
        frame: CongestionFrame,
        body: u32,
        token: Option<Token>,
    ) {
        let body = Span { length: body.min(self.config.body_max), ..self.config.payload };
        self.send_span(to, class, frame, body, token);
    }

    /// Sends `frame` with the bytes of `body` behind it.
    pub(super) fn send_span(
        &mut self,
        to: Rank,
        class: Class,
        frame: CongestionFrame,
        body: Span,
        token: Option<Token>,
    ) {
        let head = frame.encode(class, self.phase.number);
        self.out.send(Destination::One(to), class, head.bytes(), body, token);
    }

    /// Returns the slice of the phase in which `at` lies.
    pub(super) fn slice_at(&self, at: LocalNs) -> u32 {
        u32::try_from(at.since(self.phase.begin).steps_of(self.phase.slice)).unwrap_or(u32::MAX)
    }

    /// Returns when the victims stop.
    pub(super) fn end(&self) -> LocalNs {
        self.phase.begin + self.phase.length
    }

    /// Returns when the next iteration begins: at the next multiple of `interval` since the phase's
    /// beginning.
    ///
    /// All ranks count from the same instant. A rank that rested for an interval of its own would
    /// keep whatever delay it once had, and its partners would time that delay in every later
    /// iteration instead of the network.
    pub(super) fn next_round(&self, interval: Nanos) -> LocalNs {
        let interval = Nanos(interval.0.max(1));
        let begun = self.now.since(self.phase.begin).steps_of(interval);
        self.phase.begin + interval.times(begun.saturating_add(1))
    }

    /// Records how long an iteration that began at `started` took.
    pub(super) fn iteration_over(&mut self, started: LocalNs) {
        self.iteration_took(started, self.now);
    }

    /// Records an iteration from `started` until `over`.
    pub(super) fn iteration_took(&mut self, started: LocalNs, over: LocalNs) {
        let slice = self.slice_at(started);
        self.record.time(Metric::Iteration, self.config.rank, slice, over.since(started));
    }

    /// Records an iteration that began at `started` and did not do what it should.
    pub(super) fn iteration_never(&mut self, started: LocalNs) {
        let slice = self.slice_at(started);
        self.record.never(Metric::Iteration, self.config.rank, slice);
    }

    /// Returns the bytes of `frame` with `body` on the link, all headers included.
    pub(super) fn link_bytes(&self, head: usize, body: u64) -> u64 {
        self.phase.overhead.0 + head as u64 + body
    }
}
