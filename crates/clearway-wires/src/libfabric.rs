//! The libfabric wire as the progress loop waits for it.

use std::io;
use std::os::fd::BorrowedFd;

use clearway_ofi::{OfiWire, Rest as OfiRest};
use clearway_proto::base::{LocalNs, Nanos};
use clearway_proto::wire::{Arrival, Wire, forward_wire};
use clearway_runtime::waiting::{
    self, Pause, Rest, WaitSource, Waitable, Waiting, Wake, WakeDescriptors, WakeReason,
};

/// How long to look away while the provider cannot be waited for: as long as a wake-up takes, so
/// that looking again costs at most about as much as sleeping saves.
const NAP: Nanos = Nanos::from_micros(50);

/// One rank's end over libfabric.
#[derive(Debug)]
pub struct Libfabric {
    wire: OfiWire,
    pause: Pause,
    /// The user knows that somebody was turned away.
    reported: bool,
}

impl Libfabric {
    /// Waits for `wire` as `waiting` says.
    pub fn new(wire: OfiWire, waiting: Waiting) -> Self {
        Self { wire, pause: Pause::new(waiting), reported: false }
    }
}

/// A wire that is looked at by working for it.
struct PolledWire<'a>(&'a mut OfiWire);

impl Wake for PolledWire<'_> {
    fn wake_descriptors(&mut self) -> io::Result<Option<WakeDescriptors>> {
        self.0.wake_descriptor().map(|one| WakeDescriptors::duplicate([one])).transpose()
    }

    fn rest(&mut self) -> Rest {
        match self.0.rest() {
            OfiRest::Descriptor => Rest::Descriptor,
            OfiRest::Again => Rest::Again,
            OfiRest::Poll => Rest::Poll,
        }
    }
}

impl WaitSource for PolledWire<'_> {
    fn poll_ready(&mut self, timeout: Option<Nanos>, extra: &[BorrowedFd<'_>]) -> WakeReason {
        let found = self.0.look();
        let mut woken = WakeReason::default();
        if found || timeout == Some(Nanos::ZERO) {
            if !extra.is_empty() {
                woken = waiting::ready([], Some(Nanos::ZERO), extra);
            }
            woken.wire = found;
            return woken;
        }
        let rest = self.0.rest();
        let longest = match rest {
            OfiRest::Descriptor => waiting::REST_MAX,
            OfiRest::Poll => NAP,
            OfiRest::Again => Nanos::ZERO,
        };
        let descriptor = self.0.wake_descriptor().filter(|_| rest == OfiRest::Descriptor);
        let timeout = timeout.map_or(longest, |timeout| timeout.min(longest));
        woken = waiting::ready(descriptor, Some(timeout), extra);
        woken.wire = self.0.look();
        woken
    }
}

impl Wake for Libfabric {
    fn wake_descriptors(&mut self) -> io::Result<Option<WakeDescriptors>> {
        PolledWire(&mut self.wire).wake_descriptors()
    }

    fn rest(&mut self) -> Rest {
        PolledWire(&mut self.wire).rest()
    }
}

impl WaitSource for Libfabric {
    fn poll_ready(&mut self, timeout: Option<Nanos>, extra: &[BorrowedFd<'_>]) -> WakeReason {
        PolledWire(&mut self.wire).poll_ready(timeout, extra)
    }
}

impl Waitable for Libfabric {
    fn wait(&mut self, until: Option<LocalNs>, extra: &[BorrowedFd<'_>]) -> WakeReason {
        self.pause.wait(&mut PolledWire(&mut self.wire), until, extra)
    }
}

impl Wire for Libfabric {
    forward_wire!(
        wire: rank, capabilities, now, memory, groups, post, deadline, counters
    );

    fn poll(&mut self, limit: usize, sink: &mut dyn FnMut(Arrival<'_>)) -> usize {
        let given = self.wire.poll(limit, sink);
        if !self.reported
            && let Some(refusal) = self.wire.refusal()
        {
            self.reported = true;
            eprintln!("clearway: rank {}: {refusal}", self.rank());
        }
        given
    }
}
