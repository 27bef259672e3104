//! Waiting for a reliable wire: for the wire below, for its timers, and not at all while it has
//! something to give.

use std::io;
use std::os::fd::BorrowedFd;

use clearway_proto::base::{LocalNs, Nanos};
use clearway_proto::reliable::ReliableWire;
use clearway_proto::wire::Wire;

use crate::waiting::{Rest, WaitSource, Waitable, Wake, WakeDescriptors, WakeReason};

/// Returns how long until the next poll is wanted though nothing arrives.
fn until_due<W: Wire>(wire: &ReliableWire<W>) -> Option<Nanos> {
    if wire.has_arrivals() {
        return Some(Nanos::ZERO);
    }
    wire.deadline().map(|at| at.since(wire.now()))
}

impl<W: Wire + Wake> Wake for ReliableWire<W> {
    fn wake_descriptors(&mut self) -> io::Result<Option<WakeDescriptors>> {
        self.below_mut().wake_descriptors()
    }

    fn rest(&mut self) -> Rest {
        if self.has_arrivals() { Rest::Again } else { self.below_mut().rest() }
    }
}

impl<W: Wire + WaitSource> WaitSource for ReliableWire<W> {
    fn poll_ready(&mut self, timeout: Option<Nanos>, extra: &[BorrowedFd<'_>]) -> WakeReason {
        let until_due = until_due(self);
        let timeout = [timeout, until_due].into_iter().flatten().min();
        let woken = self.below_mut().poll_ready(timeout, extra);
        WakeReason::new(woken.wire || is_due(self), woken.extra_set())
    }
}

impl<W: Waitable> Waitable for ReliableWire<W> {
    fn wait(&mut self, until: Option<LocalNs>, extra: &[BorrowedFd<'_>]) -> WakeReason {
        let own = if self.has_arrivals() { Some(LocalNs(0)) } else { self.deadline() };
        let until = [until, own].into_iter().flatten().min();
        let woken = self.below_mut().wait(until, extra);
        WakeReason::new(woken.wire || is_due(self), woken.extra_set())
    }
}

fn is_due<W: Wire>(wire: &ReliableWire<W>) -> bool {
    until_due(wire) == Some(Nanos::ZERO)
}
