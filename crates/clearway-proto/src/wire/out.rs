//! What one engine step wants done: a reusable buffer of effects and header bytes.
//!
//! # Invariants
//! I1. Effects leave in the order they were written.
//! I2. Cleared, never freed: after the first steps a step allocates nothing while engines respect
//!     [`Out::room`].

use alloc::vec::Vec;

use super::operation::Destination;
use super::{HeadRef, Operation, PathId, Span, Token};
use crate::base::{Class, LocalNs};

/// An operation and the earliest instant at which it may start.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TimedOperation {
    /// What to do.
    pub operation: Operation,
    /// `None`: in order, now. `Some`: at that instant or as soon after it as possible.
    pub not_before: Option<LocalNs>,
}

/// One wish of an engine.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Effect<E> {
    /// For the wire.
    Operate(TimedOperation),
    /// For the application.
    Notify(E),
}

/// Collects the effects of engine steps.
#[derive(Debug)]
pub struct Out<E> {
    effects: Vec<Effect<E>>,
    heads: Vec<u8>,
    limit: usize,
}

impl<E> Out<E> {
    /// Creates a buffer for about `limit` effects a step.
    pub fn with_limit(limit: usize) -> Self {
        Self { effects: Vec::with_capacity(limit), heads: Vec::with_capacity(limit * 64), limit }
    }

    /// Creates the same without taking memory in advance.
    pub(super) const fn growing(limit: usize) -> Self {
        Self { effects: Vec::new(), heads: Vec::new(), limit }
    }

    /// Returns how many effects this step may still write. At zero an engine stops and asks for
    /// more.
    pub fn room(&self) -> usize {
        self.limit.saturating_sub(self.effects.len())
    }

    /// Limits what a step may write to about `limit` effects from now on.
    pub(super) const fn limit_to(&mut self, limit: usize) {
        self.limit = limit;
    }

    /// Keeps a copy of `bytes` as the header of an operation that follows. At most 65,535 bytes are
    /// kept; wires refuse far shorter headers than that.
    pub fn head(&mut self, bytes: &[u8]) -> HeadRef {
        let bytes = &bytes[..bytes.len().min(usize::from(u16::MAX))];
        let start = self.heads.len() as u32;
        self.heads.extend_from_slice(bytes);
        HeadRef { start, length: bytes.len() as u16 }
    }

    /// Keeps a copy of `bytes` for an [`Operation::Store`] that follows. At most
    /// [`SHOW_MAX`](super::SHOW_MAX) bytes are kept.
    pub fn bytes(&mut self, bytes: &[u8]) -> HeadRef {
        self.head(&bytes[..bytes.len().min(super::SHOW_MAX)])
    }

    /// Asks for `operation` now, in order.
    pub fn operate(&mut self, operation: Operation) {
        self.effects.push(Effect::Operate(TimedOperation { operation, not_before: None }));
    }

    /// Asks for `operation` at `not_before`.
    pub fn operate_at(&mut self, not_before: LocalNs, operation: Operation) {
        self.effects
            .push(Effect::Operate(TimedOperation { operation, not_before: Some(not_before) }));
    }

    /// Asks for a message with header `head` on the first path: the usual case of [`Out::operate`].
    pub fn send(
        &mut self,
        to: Destination,
        class: Class,
        head: &[u8],
        body: Span,
        token: Option<Token>,
    ) {
        let head = self.head(head);
        self.operate(Operation::Send { to, path: PathId(0), class, head, body, token });
    }

    /// Tells the application something.
    pub fn notify(&mut self, event: E) {
        self.effects.push(Effect::Notify(event));
    }

    /// Returns the effects so far.
    pub fn effects(&self) -> &[Effect<E>] {
        &self.effects
    }

    /// Returns the header bytes that the effects refer to.
    pub fn heads(&self) -> &[u8] {
        &self.heads
    }

    /// Takes all effects out in order, together with the header bytes that they refer to.
    pub fn split(&mut self) -> (impl Iterator<Item = Effect<E>> + '_, &[u8]) {
        (self.effects.drain(..), &self.heads)
    }

    /// Returns whether there is nothing to do.
    pub(super) const fn is_empty(&self) -> bool {
        self.effects.is_empty()
    }

    /// Empties the buffer and keeps its memory.
    pub fn clear(&mut self) {
        self.effects.clear();
        self.heads.clear();
    }
}
