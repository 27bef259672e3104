//! When an open buffer is closed.
//!
//! # Model
//! An idle wire sends at once, a busy one gathers: the first element of a burst leaves alone, and
//! those that come while it is under way leave together. A full buffer and an old one leave anyway.
//!
//! # Source
//! Nagle's rule (RFC 896), for each peer and class instead of each connection, and with a deadline.

use super::OpenBuffer;
use crate::base::{Class, Nanos};

/// Why a buffer is closed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum ClosingCause {
    /// It holds as much as is gathered.
    Full,
    /// Nothing is under way to its peer in its class.
    Idle,
    /// Its oldest element has waited long enough.
    Deadline,
    /// The application wants order or completion: a fence, a quiet, a flush.
    Ordered,
}

/// Whether anything is under way to a peer in a class: from the first
/// [`QueueCommand::Close`](super::QueueCommand::Close) to
/// [`QueueEvent::Room`](super::QueueEvent::Room).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum StreamState {
    /// Nothing is.
    Idle,
    /// Something is.
    Busy,
}

/// The rule of closing.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ClosingPolicy {
    /// Bytes from which a buffer counts as full; zero sends each element by itself.
    pub threshold: u32,
    /// How long an element waits in a buffer at most, by [`Class::index`]; nothing for ever.
    pub deadline: [Option<Nanos>; Class::ALL.len()],
    /// Whether a buffer is closed as soon as nothing is under way. Sessions and queues gather until
    /// their buffers are full.
    pub closes_idle: bool,
}

impl ClosingPolicy {
    /// Creates the rule of plain operations: full at `threshold` bytes, or idle, or after 20 us for
    /// the most urgent classes, a millisecond for the others.
    pub const fn new(threshold: u32) -> Self {
        let (soon, late) = (Some(Nanos::from_micros(20)), Some(Nanos::from_millis(1)));
        Self { threshold, deadline: [soon, soon, late, late, late], closes_idle: true }
    }

    /// Returns why a buffer of `class` is closed now, if it is. Its oldest element waits for `age`.
    pub fn cause(
        &self,
        buffer: &OpenBuffer,
        class: Class,
        stream: StreamState,
        age: Nanos,
    ) -> Option<ClosingCause> {
        if buffer.is_empty() {
            return None;
        }
        if buffer.length() >= self.threshold as usize {
            return Some(ClosingCause::Full);
        }
        if self.closes_idle && stream == StreamState::Idle {
            return Some(ClosingCause::Idle);
        }
        let is_late = self.deadline[class.index()].is_some_and(|deadline| age >= deadline);
        is_late.then_some(ClosingCause::Deadline)
    }
}
