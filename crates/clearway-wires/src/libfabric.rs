//! The libfabric wire as the progress loop waits for it.

use std::os::fd::BorrowedFd;

use clearway_ofi::{OfiWire, Rest};
use clearway_proto::base::{Bytes, GroupId, LocalNs, Nanos, Rank};
use clearway_proto::wire::{Answer, Arrival, Capabilities, Counters, Missing, Operation, RegionId, Wire};
use clearway_runtime::waiting::{self, Pause, Source, Waitable, Waiting, Woken};

/// How long to look away while the provider cannot be waited for: as long as a wake-up takes, so that looking again costs at most
/// about as much as sleeping saves.
const NAP: Nanos = Nanos::from_micros(50);
/// The longest sleep on the provider's descriptor: what waits in the wire for a peer is given up by looking. A fiftieth of the
/// shortest time that matters there, some seconds.
const DOZE: Nanos = Nanos::from_millis(100);

/// One rank's end over libfabric.
#[derive(Debug)]
pub struct Libfabric {
    wire: OfiWire,
    pause: Pause,
    /// The user knows that somebody was turned away.
    told: bool,
}

impl Libfabric {
    /// Waits for `wire` as `waiting` says.
    pub fn new(wire: OfiWire, waiting: Waiting) -> Self {
        Self { wire, pause: Pause::new(waiting), told: false }
    }
}

/// A wire that is looked at by working for it.
struct Looked<'a>(&'a mut OfiWire);

impl Source for Looked<'_> {
    fn poll(&mut self, timeout: Option<Nanos>, extra: &[BorrowedFd<'_>]) -> Woken {
        let found = self.0.look();
        let mut woken = Woken::default();
        if found || timeout == Some(Nanos::ZERO) {
            if !extra.is_empty() {
                woken = waiting::ready(None, Some(Nanos::ZERO), extra);
            }
            woken.wire = found;
            return woken;
        }
        let (descriptor, longest) = match self.0.rest() {
            Rest::Descriptor(descriptor) => (Some(descriptor), DOZE),
            Rest::Poll => (None, NAP),
            Rest::Again => (None, Nanos::ZERO),
        };
        let timeout = timeout.map_or(longest, |timeout| timeout.min(longest));
        woken = waiting::ready(descriptor, Some(timeout), extra);
        woken.wire = self.0.look();
        woken
    }
}

impl Source for Libfabric {
    fn poll(&mut self, timeout: Option<Nanos>, extra: &[BorrowedFd<'_>]) -> Woken {
        Looked(&mut self.wire).poll(timeout, extra)
    }
}

impl Waitable for Libfabric {
    fn wait(&mut self, until: Option<LocalNs>, extra: &[BorrowedFd<'_>]) -> Woken {
        self.pause.wait(&mut Looked(&mut self.wire), until, extra)
    }
}

impl Wire for Libfabric {
    fn rank(&self) -> Rank {
        self.wire.rank()
    }

    fn capabilities(&self) -> &Capabilities {
        self.wire.capabilities()
    }

    fn now(&self) -> LocalNs {
        self.wire.now()
    }

    fn register(&mut self, length: Bytes) -> Result<RegionId, Missing> {
        self.wire.register(length)
    }

    fn region(&self, region: RegionId) -> Option<&[u8]> {
        self.wire.region(region)
    }

    fn region_mut(&mut self, region: RegionId) -> Option<&mut [u8]> {
        self.wire.region_mut(region)
    }

    fn join(&mut self, group: GroupId) -> Result<(), Missing> {
        self.wire.join(group)
    }

    fn post(&mut self, operations: &[Operation], heads: &[u8], answers: &mut Vec<Answer>) {
        self.wire.post(operations, heads, answers);
    }

    fn harvest(&mut self, limit: usize, sink: &mut dyn FnMut(Arrival<'_>)) -> usize {
        let given = self.wire.harvest(limit, sink);
        if !self.told
            && let Some(refusal) = self.wire.refusal()
        {
            self.told = true;
            eprintln!("clearway: rank {}: {refusal}", self.rank());
        }
        given
    }

    fn abandon(&mut self, peer: Rank) {
        self.wire.abandon(peer);
    }

    fn counters(&self) -> Counters {
        self.wire.counters()
    }
}
