//! When an end takes another message for sending, and when those whom it refused hear that there is
//! room.
//!
//! # Model
//! Each path has a transmit queue for each class, so that no class waits behind another inside a
//! host. A queue counts what was posted and has not yet left the host's memory.
//!
//! # Invariants
//! I1. A queue that answered `NoRoom` gives `Room` once, as soon as it is half empty.

use clearway_proto::base::Class;
use clearway_proto::wire::{PathId, PostOutcome, RefusalReason};

use super::{ReadyArrivals, SimWire};
use crate::wire::capabilities::BODY_MAX;

/// Messages that one transmit queue holds: the send queue depth that verbs programs usually ask for
/// (perftest's `tx-depth`).
const QUEUE_MESSAGES: u32 = 128;
/// Bytes that one transmit queue holds, unless it is empty: one message of the longest body.
const QUEUE_BYTES: u64 = BODY_MAX as u64;

/// A transmit queue: one path, one class.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct TransmitQueue {
    messages: u32,
    bytes: u64,
    /// Somebody got `NoRoom`.
    refused: bool,
}

impl TransmitQueue {
    /// Returns whether somebody who was refused should try again, where a queue holds `most`
    /// messages.
    fn is_roomy(&self, most: Option<u32>) -> bool {
        let most = most.unwrap_or(QUEUE_MESSAGES);
        most > 0 && self.messages <= most / 2 && self.bytes <= QUEUE_BYTES / 2
    }
}

impl SimWire {
    /// Returns whether the queue takes a message of `bytes`, which then counts.
    pub(super) fn enter_queue(
        &mut self,
        path: PathId,
        class: Class,
        bytes: u64,
    ) -> Result<(), PostOutcome> {
        let queue = self
            .queues
            .get_mut(place_of(path, class))
            .ok_or(PostOutcome::Refused(RefusalReason::Path))?;
        let most = self.trouble.queue_messages.unwrap_or(QUEUE_MESSAGES);
        let full =
            queue.messages >= most || queue.messages > 0 && queue.bytes + bytes > QUEUE_BYTES;
        if full {
            queue.refused = true;
            self.counters.no_room += 1;
            return Err(PostOutcome::NoRoom);
        }
        queue.messages += 1;
        queue.bytes += bytes;
        Ok(())
    }

    /// Records that a message left the transmit queue. `Some` when the engine now has something to
    /// hear about it.
    pub(in crate::wire) fn leave_queue(
        &mut self,
        path: PathId,
        class: Class,
        bytes: u64,
    ) -> Option<()> {
        let queue = self.queues.get_mut(place_of(path, class))?;
        queue.messages = queue.messages.saturating_sub(1);
        queue.bytes = queue.bytes.saturating_sub(bytes);
        let waited_for = queue.refused && queue.is_roomy(self.trouble.queue_messages);
        if waited_for {
            queue.refused = false;
            self.ready.push_back(ReadyArrivals::Room { path, class });
        }
        waited_for.then_some(())
    }

    /// Limits transmit queues, as a fault, to this many messages, or to as many as they should
    /// hold; those that have room again say so.
    pub(crate) fn tighten(&mut self, messages: Option<u32>) {
        self.trouble.queue_messages = messages;
        for (place, queue) in self.queues.iter_mut().enumerate() {
            if queue.refused && queue.is_roomy(messages) {
                queue.refused = false;
                let (path, class) = (
                    PathId((place / Class::ALL.len()) as u8),
                    Class::ALL[place % Class::ALL.len()],
                );
                self.ready.push_back(ReadyArrivals::Room { path, class });
            }
        }
    }
}

/// Returns the place of a path's and class's queue.
fn place_of(path: PathId, class: Class) -> usize {
    usize::from(path.0) * Class::ALL.len() + class.index()
}
