//! A binary heap of events: the simplest thing that can be right.

use std::cmp::Reverse;
use std::collections::BinaryHeap;

use super::Event;
use crate::time::Picos;

/// The oracle of event queues: O(log pending) each.
#[derive(Clone, Debug, Default)]
pub(crate) struct EventHeap(BinaryHeap<Reverse<Event>>);

impl EventHeap {
    /// Pushes as [`super::Queue::push`] says.
    pub(crate) fn push(&mut self, event: Event) {
        self.0.push(Reverse(event));
    }

    /// Returns the next event, left where it is.
    pub(crate) fn peek(&self) -> Option<Event> {
        self.0.peek().map(|event| event.0)
    }

    /// Pops as [`super::Queue::pop`] says.
    pub(crate) fn pop(&mut self) -> Option<Event> {
        self.0.pop().map(|event| event.0)
    }

    /// Pops as [`super::Queue::pop_until`] says.
    pub(crate) fn pop_until(&mut self, instant: Picos) -> Option<Event> {
        if self.peek()?.at <= instant { self.pop() } else { None }
    }

    /// Counts as [`super::Queue::len`] says.
    pub(crate) fn len(&self) -> usize {
        self.0.len()
    }

    /// Takes all of them, in no order.
    pub(super) fn drain(&mut self) -> impl Iterator<Item = Event> + '_ {
        self.0.drain().map(|event| event.0)
    }
}
