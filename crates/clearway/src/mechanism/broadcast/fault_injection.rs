//! A wire whose arrivals suffer: what comes in is lost, doubled, damaged or late by chance, each
//! datagram by itself.
//!
//! # Model
//! The adaptor stands at the receiving end, behind everything that the kernel does. It cannot write
//! where datagrams lie, so damage to a body is done to the copy that the engine makes of it, before
//! the engine can look at that; what is late lies in memory of its own.
//!
//! # Invariants
//! I1. With nothing asked for it changes nothing; from whom bodies came it counts always.

use std::cell::{Cell, RefCell};
use std::collections::BTreeMap;
use std::io;
use std::os::fd::BorrowedFd;
use std::rc::Rc;

use clearway_proto::base::{Bytes, LocalNs, Nanos, RandomKey, RandomStream};
use clearway_proto::wire::{
    Arrival, Datagram, Destination, Operation, PostOutcome, RegionId, Span, Wire, bytes_of,
    forward_wire,
};
use clearway_runtime::waiting::{Rest, Waitable, Wake, WakeDescriptors, WakeReason};
use serde::{Deserialize, Serialize};

/// What arrivals suffer, in millionths of all of them.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct ArrivalFaults {
    pub(crate) lost: u32,
    pub(crate) doubled: u32,
    pub(crate) damaged: u32,
    pub(crate) late: u32,
}

impl ArrivalFaults {
    fn is_none(self) -> bool {
        self == Self::default()
    }
}

/// How late what is late comes: some dozens of packets at 200 Mb/s.
const LATE: Nanos = Nanos::from_millis(3);
/// What can be late at a time; more comes in time.
const SHELVES: usize = 64;
/// Bytes of one: the longest datagram of an Ethernet without jumbo frames.
const SHELF: usize = 2048;
/// Of how many.
const WHOLE: u64 = 1_000_000;

/// A datagram that is late.
struct DelayedDatagram {
    shelf: usize,
    length: usize,
    head: Vec<u8>,
    datagram: DatagramHeader,
}

/// All of a datagram but its bytes.
type DatagramHeader = Datagram<'static>;

/// A wire, and what its arrivals suffer.
pub(super) struct FaultInjectingWire {
    wire: Box<dyn Waitable>,
    faults: ArrivalFaults,
    dice: RandomStream,
    /// What goes to groups reaches nobody.
    is_filtered: Rc<Cell<bool>>,
    /// Bodies of the last poll that are to be damaged.
    spoiled: Vec<Span>,
    late: BTreeMap<(LocalNs, u64), DelayedDatagram>,
    count: u64,
    /// Where late bodies lie.
    region: Option<RegionId>,
    free: Vec<usize>,
    /// Shelves whose datagrams were given, and may be read until the next poll.
    given: Vec<usize>,
    tally: Rc<RefCell<PayloadTally>>,
}

/// Datagrams with a body, which carry what is cast.
#[derive(Clone, Debug, Default)]
pub(super) struct PayloadTally {
    /// That were lost here.
    pub(super) lost: u64,
    /// By rank: that came from it.
    pub(super) sources: Vec<u64>,
}

impl PayloadTally {
    /// Counts one that was not lost.
    fn count(&mut self, datagram: &Datagram<'_>) {
        if datagram.body.length == 0 {
            return;
        }
        // The wire gives nothing but what ranks of this run sent.
        let from = datagram.from.index();
        if self.sources.len() <= from {
            self.sources.resize(from + 1, 0);
        }
        self.sources[from] += 1;
    }
}

impl FaultInjectingWire {
    pub(super) fn new(wire: Box<dyn Waitable>) -> Self {
        Self {
            wire,
            faults: ArrivalFaults::default(),
            dice: RandomKey::new(0).stream(),
            is_filtered: Rc::default(),
            spoiled: Vec::new(),
            late: BTreeMap::new(),
            count: 0,
            region: None,
            free: Vec::new(),
            given: Vec::new(),
            tally: Rc::default(),
        }
    }

    /// Returns what is counted since [`FaultInjectingWire::set`].
    pub(super) fn tally(&self) -> Rc<RefCell<PayloadTally>> {
        self.tally.clone()
    }

    /// Lets arrivals suffer `faults` from now on; which of them follows from `seed`.
    pub(super) fn set(&mut self, faults: ArrivalFaults, seed: u64) {
        self.faults = faults;
        self.dice =
            RandomKey::new(seed).purpose("rough").node(u64::from(self.wire.rank().0)).stream();
        self.is_filtered.set(false);
        self.late.clear();
        self.spoiled.clear();
        self.given.clear();
        *self.tally.borrow_mut() = PayloadTally::default();
        if faults.late > 0 && self.region.is_none() {
            self.region = self.wire.register(Bytes((SHELVES * SHELF) as u64)).ok();
        }
        self.free = if self.region.is_some() { (0..SHELVES).collect() } else { Vec::new() };
    }

    /// Returns a cell; while it is set, the network filters groups: what is sent to one leaves and
    /// arrives nowhere.
    pub(super) fn is_filtered(&self) -> Rc<Cell<bool>> {
        Rc::clone(&self.is_filtered)
    }

    /// Polls into `kept`, by the way of everything that an arrival can suffer.
    fn poll_with_faults(&mut self, limit: usize, sink: &mut dyn FnMut(Arrival<'_>)) -> usize {
        let Self { wire, faults, dice, spoiled, tally, .. } = self;
        let mut given = 0;
        let mut shelve = Vec::new();
        let now = wire.now();
        let mut hits = |part: u32| part > 0 && dice.below(WHOLE) < u64::from(part);
        wire.poll(limit, &mut |arrival| {
            let Arrival::Datagram(datagram) = arrival else {
                given += 1;
                return sink(arrival);
            };
            if hits(faults.lost) {
                tally.borrow_mut().lost += u64::from(datagram.body.length > 0);
                return;
            }
            tally.borrow_mut().count(&datagram);
            if hits(faults.late) && datagram.body.length as usize <= SHELF {
                let Datagram { from, path, class, congestion_marked, at, head, body } = datagram;
                let envelope =
                    Datagram { from, path, class, congestion_marked, at, head: &[], body };
                return shelve.push((head.to_vec(), envelope));
            }
            given += 1;
            if hits(faults.damaged) {
                if datagram.body.length > 0 {
                    spoiled.push(datagram.body);
                } else if !datagram.head.is_empty() {
                    let mut head = datagram.head.to_vec();
                    let at = head.len() / 2;
                    head[at] ^= 0x10;
                    return sink(Arrival::Datagram(Datagram { head: &head, ..datagram }));
                }
            }
            if hits(faults.doubled) {
                sink(Arrival::Datagram(datagram));
            }
            sink(Arrival::Datagram(datagram));
        });
        for (head, datagram) in shelve {
            self.delay(now + LATE, head, datagram);
        }
        given + self.deliver_late(now, sink)
    }

    fn delay(&mut self, at: LocalNs, head: Vec<u8>, datagram: DatagramHeader) {
        let (Some(region), Some(shelf)) = (self.region, self.free.pop()) else { return };
        let bytes = bytes_of(self.wire.region(datagram.body.region), datagram.body)
            .unwrap_or_default()
            .to_vec();
        if let Some(memory) = self.wire.region_mut(region) {
            memory[shelf * SHELF..][..bytes.len()].copy_from_slice(&bytes);
        }
        self.count += 1;
        self.late.insert(
            (at, self.count),
            DelayedDatagram { shelf, length: bytes.len(), head, datagram },
        );
    }

    fn deliver_late(&mut self, now: LocalNs, sink: &mut dyn FnMut(Arrival<'_>)) -> usize {
        let mut given = 0;
        while let (Some(region), Some(first)) = (self.region, self.late.first_entry()) {
            if first.key().0 > now {
                break;
            }
            let DelayedDatagram { shelf, length, head, datagram } = first.remove();
            let body = Span { region, offset: (shelf * SHELF) as u64, length: length as u32 };
            sink(Arrival::Datagram(Datagram { head: &head, body, ..datagram }));
            self.given.push(shelf);
            given += 1;
        }
        given
    }

    /// Turns one bit of what was copied from a body that is damaged.
    fn corrupt(&mut self, from: Span, into: Span) {
        let is_of = |body: &Span| body.region == from.region && body.offset == from.offset;
        if self.spoiled.iter().any(is_of)
            && let Some(memory) = self.wire.region_mut(into.region)
            && let Some(byte) = memory.get_mut((into.offset + u64::from(into.length / 2)) as usize)
        {
            *byte ^= 0x10;
        }
    }

    /// Posts, and damages the copies of what is to be damaged.
    fn post_corrupting(
        &mut self,
        operations: &[Operation],
        heads: &[u8],
        answers: &mut Vec<PostOutcome>,
    ) {
        let mut rest = operations;
        while !self.spoiled.is_empty()
            && let Some(at) =
                rest.iter().position(|operation| matches!(operation, Operation::Copy { .. }))
        {
            let (now, later) = rest.split_at(at + 1);
            self.wire.post(now, heads, answers);
            if let Some(Operation::Copy { from, into }) = now.last() {
                self.corrupt(*from, *into);
            }
            rest = later;
        }
        if !rest.is_empty() {
            self.wire.post(rest, heads, answers);
        }
    }
}

impl Wire for FaultInjectingWire {
    forward_wire!(wire: rank, capabilities, now, memory, groups, counters);

    fn post(&mut self, operations: &[Operation], heads: &[u8], answers: &mut Vec<PostOutcome>) {
        if !self.is_filtered.get() {
            return self.post_corrupting(operations, heads, answers);
        }
        let is_to_group =
            |one: &Operation| matches!(one, Operation::Send { to: Destination::Group(_), .. });
        for alike in operations.chunk_by(|a, b| is_to_group(a) == is_to_group(b)) {
            match alike.first().is_some_and(is_to_group) {
                true => answers.extend(alike.iter().map(|_| PostOutcome::Done(0))),
                false => self.post_corrupting(alike, heads, answers),
            }
        }
    }

    fn poll(&mut self, limit: usize, sink: &mut dyn FnMut(Arrival<'_>)) -> usize {
        if self.faults.is_none() {
            let Self { wire, tally, .. } = self;
            return wire.poll(limit, &mut |arrival| {
                if let Arrival::Datagram(datagram) = &arrival {
                    tally.borrow_mut().count(datagram);
                }
                sink(arrival);
            });
        }
        self.spoiled.clear();
        self.free.append(&mut self.given);
        self.poll_with_faults(limit, sink)
    }

    fn deadline(&self) -> Option<LocalNs> {
        let late = self.late.first_key_value().map(|((at, _), _)| *at);
        [late, self.wire.deadline()].into_iter().flatten().min()
    }
}

impl Wake for FaultInjectingWire {
    fn wake_descriptors(&mut self) -> io::Result<Option<WakeDescriptors>> {
        self.wire.wake_descriptors()
    }

    fn rest(&mut self) -> Rest {
        self.wire.rest()
    }
}

impl Waitable for FaultInjectingWire {
    fn wait(&mut self, until: Option<LocalNs>, extra: &[BorrowedFd<'_>]) -> WakeReason {
        self.wire.wait(until, extra)
    }
}
