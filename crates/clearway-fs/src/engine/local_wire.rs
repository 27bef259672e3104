//! A wire of one rank: its memory, its clock, and a signal that wakes the thread that drives it.
//!
//! # Invariants
//! I1. Nothing is carried; every operation between ranks is refused.

use std::io;
use std::os::fd::AsFd;
use std::sync::Arc;

use clearway_proto::base::{Bytes, Class, GroupId, LocalNs, Rank};
use clearway_proto::wire::regions::{Pages, Regions};
use clearway_proto::wire::{
    AdoptedMemory, Arrival, Capabilities, Counters, Delivery, Granted, HeldBytes, Operation,
    OperationKind, OperationSet, PostOutcome, RefusalReason, RegionId, Span, StampSource, Wire,
};
use clearway_runtime::clock;
use clearway_runtime::waiting::{Rest, Wake, WakeDescriptors};
use clearway_runtime::wake_signal::WakeSignal;

/// The wire.
pub(super) struct LocalWire {
    regions: Regions<Pages>,
    capabilities: Capabilities,
    signal: Arc<WakeSignal>,
}

impl LocalWire {
    /// Creates a wire that `signal` wakes.
    pub(super) fn new(signal: Arc<WakeSignal>) -> Self {
        let capabilities = Capabilities {
            name: "local",
            operations: OperationSet::from_kinds(&[]),
            delivery: Delivery::Reliable,
            head_max: 0,
            body_max: 0,
            message_max: 0,
            stamp: StampSource::Reading,
            shared_clock: None,
            classes: [Granted::Ignored; Class::ALL.len()],
            sends_follow_writes: false,
            adopts: true,
            any_local: false,
            groups_max: 0,
            paths: Vec::new(),
        };
        Self { regions: Regions::default(), capabilities, signal }
    }
}

impl Wire for LocalWire {
    fn rank(&self) -> Rank {
        Rank(0)
    }

    fn capabilities(&self) -> &Capabilities {
        &self.capabilities
    }

    fn now(&self) -> LocalNs {
        clock::now()
    }

    fn register(&mut self, length: Bytes) -> Result<RegionId, RefusalReason> {
        self.regions.register_pages(length)
    }

    fn adopt(&mut self, memory: AdoptedMemory) -> Result<RegionId, RefusalReason> {
        self.regions.adopt(memory)
    }

    fn copy_out(&self, from: Span, into: &mut [u8]) -> Result<(), RefusalReason> {
        self.regions.copy_out(&[], from, into)
    }

    fn hold(&self, span: Span) -> Option<HeldBytes> {
        self.regions.adopted(span.region)?.hold(span.offset, span.length)
    }

    fn copy_in(&mut self, into: Span, from: &[u8]) -> Result<(), RefusalReason> {
        self.regions.copy_in(into, from)
    }

    fn region(&self, region: RegionId) -> Option<&[u8]> {
        self.regions.region(&[], region)
    }

    fn region_mut(&mut self, region: RegionId) -> Option<&mut [u8]> {
        self.regions.region_mut(region)
    }

    fn join(&mut self, _group: GroupId) -> Result<(), RefusalReason> {
        Err(RefusalReason::Operation(OperationKind::Multicast))
    }

    fn post(&mut self, operations: &[Operation], _heads: &[u8], answers: &mut Vec<PostOutcome>) {
        let refused = |operation: &Operation| {
            PostOutcome::Refused(RefusalReason::Operation(operation.kind()))
        };
        answers.extend(operations.iter().map(refused));
    }

    fn poll(&mut self, _limit: usize, _sink: &mut dyn FnMut(Arrival<'_>)) -> usize {
        self.signal.clear();
        0
    }

    fn counters(&self) -> Counters {
        Counters::default()
    }
}

impl Wake for LocalWire {
    fn wake_descriptors(&mut self) -> io::Result<Option<WakeDescriptors>> {
        WakeDescriptors::duplicate([self.signal.as_fd()]).map(Some)
    }

    fn rest(&mut self) -> Rest {
        Rest::Descriptor
    }
}
