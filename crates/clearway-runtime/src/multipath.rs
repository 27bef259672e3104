//! One wire made of two that both reach every rank: its paths are those of the first, then those of
//! the second.
//!
//! # Model
//! Each message goes the way that its path says; who chooses paths, and goes on over others when
//! one fails, is the engine above ([`Reliable`](clearway_proto::reliable::ReliableWire)). The
//! second wire is UDP, the first one any other, as a rule libfabric: when a device, a driver or a
//! connection fails there, messages go on in datagrams, and back when it is mended.
//!
//! The first wire has the regions. Bodies that leave over the other one are copied through a
//! *passage*, memory of that wire. Arrived bodies stay where each wire put them: a poll gives
//! arrivals of one wire only, of the two in turns while both have some, and [`RegionId::RECEIVE`]
//! is the memory of that one.
//!
//! # Invariants
//! I1. What this wire says it can do both can, and no more: messages to one rank, copies, digests.
//! I2. It promises to deliver nothing, whatever its two wires do: what one of them accepted is lost
//!     when that one fails.
//! I3. Operations that read or change memory apply in the order written, whichever wires they
//!     concern.
//!
//! # Not here
//! One-sided operations: a region lies in one memory, so only one of the two could have them.
//! Choosing a path.

use std::io;
use std::os::fd::BorrowedFd;

use clearway_proto::base::{GroupId, LocalNs, Nanos};
use clearway_proto::wire::{
    Arrival, Capabilities, Counters, Datagram, Delivery, Destination, Operation, OperationKind,
    OperationSet, PathId, PostOutcome, Queue, RefusalReason, RegionId, Span, Wire, forward_wire,
};

use crate::RuntimeError;
use crate::combined::{copy, passage, weaker};
use crate::udp::UdpWire;
use crate::waiting::{
    Pause, Rest, WaitSource, Waitable, Waiting, Wake, WakeDescriptors, WakeReason, rest_of_both,
};

/// Bytes of a passage: as many as one call hands to the kernel at a time, 64 datagrams of Ethernet.
const PASSAGE: u64 = 128 << 10;
/// How soon a class of the second wire that was full is looked at again while the first one is
/// waited for: as the UDP wire does where the kernel does not tell.
const FULL_AGAIN: Nanos = Nanos::from_micros(200);

/// Which of the two.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum MultipathSide {
    First,
    Second,
}

/// What becomes of an operation.
#[derive(Clone, Copy, Debug)]
enum Forwarding {
    /// It was done here.
    Done(PostOutcome),
    /// It is to be handed over.
    For(MultipathSide, Operation),
}

/// Operations for one of the two that were not handed over yet.
#[derive(Debug)]
struct UnsentBatch {
    operations: Vec<Operation>,
    /// The places of their answers.
    places: Vec<usize>,
    /// One of them changes memory.
    copies: bool,
    /// Memory for bodies that lie in the other wire's, and how much of it is in use.
    passage: RegionId,
    passing: u64,
}

impl UnsentBatch {
    const fn new(passage: RegionId) -> Self {
        Self { operations: Vec::new(), places: Vec::new(), copies: false, passage, passing: 0 }
    }
}

/// One rank's end of a job over two wires.
#[derive(Debug)]
pub struct MultipathWire<F> {
    first: F,
    second: UdpWire,
    capabilities: Capabilities,
    pause: Pause,
    /// Whose arrivals the last poll gave.
    received: MultipathSide,
    /// By [`MultipathSide`].
    batches: [UnsentBatch; 2],
    answered: Vec<PostOutcome>,
}

impl<F: Wire + WaitSource> MultipathWire<F> {
    /// Makes one wire of two ends of one rank. Both reach all ranks, have no region yet, and take a
    /// body before `post` returns.
    ///
    /// # Errors
    /// [`RuntimeError::OtherRank`] when the ends are not of one rank, [`RuntimeError::System`]
    /// without memory.
    pub fn new(mut first: F, mut second: UdpWire, waiting: Waiting) -> Result<Self, RuntimeError> {
        if first.rank() != second.rank() {
            return Err(RuntimeError::OtherRank { near: first.rank(), far: second.rank() });
        }
        let batches =
            [passage(&mut first, PASSAGE)?, passage(&mut second, PASSAGE)?].map(UnsentBatch::new);
        let capabilities = together(first.capabilities(), second.capabilities());
        Ok(Self {
            first,
            second,
            capabilities,
            pause: Pause::new(waiting),
            received: MultipathSide::First,
            batches,
            answered: Vec::new(),
        })
    }

    /// Returns the wire of the first paths.
    pub const fn first(&self) -> &F {
        &self.first
    }

    fn wire(&mut self, side: MultipathSide) -> &mut dyn Wire {
        match side {
            MultipathSide::First => &mut self.first,
            MultipathSide::Second => &mut self.second,
        }
    }

    /// Returns which wire has the path, and as which of its own.
    fn way(&self, path: PathId) -> Result<(MultipathSide, PathId), RefusalReason> {
        let before = self.first.capabilities().paths.len();
        match usize::from(path.0) {
            number if number < before => Ok((MultipathSide::First, path)),
            number if number < self.capabilities.paths.len() => {
                Ok((MultipathSide::Second, PathId((number - before) as u8)))
            }
            _ => Err(RefusalReason::Path),
        }
    }

    /// Returns where the bytes of `span` lie.
    fn side_of(&self, span: Span) -> MultipathSide {
        if span.region == RegionId::RECEIVE { self.received } else { MultipathSide::First }
    }

    /// Copies the bytes of `body` to where `side` can send them from.
    fn pass(
        &mut self,
        side: MultipathSide,
        body: Span,
        heads: &[u8],
        answers: &mut [PostOutcome],
    ) -> Result<Span, RefusalReason> {
        if body.length == 0 || self.side_of(body) == side {
            return Ok(body);
        }
        if self.batches[MultipathSide::First as usize].copies {
            self.flush(MultipathSide::First, heads, answers);
        }
        if self.batches[side as usize].passing + u64::from(body.length) > PASSAGE {
            self.flush(side, heads, answers);
        }
        let batch = &mut self.batches[side as usize];
        let into = Span { region: batch.passage, offset: batch.passing, length: body.length };
        batch.passing += u64::from(body.length);
        match side {
            MultipathSide::First => copy(&self.second, body, &mut self.first, into)?,
            MultipathSide::Second => copy(&self.first, body, &mut self.second, into)?,
        }
        Ok(into)
    }

    /// Puts `operation` into its wire's batch, or does it.
    fn begin(
        &mut self,
        operation: &Operation,
        heads: &[u8],
        answers: &mut Vec<PostOutcome>,
        first: usize,
    ) {
        match self.turn(operation, heads, &mut answers[first..]) {
            Ok(Forwarding::Done(answer)) => answers.push(answer),
            Err(missing) => answers.push(PostOutcome::Refused(missing)),
            Ok(Forwarding::For(side, operation)) => {
                let batch = &mut self.batches[side as usize];
                batch.copies |= matches!(operation, Operation::Copy { .. });
                batch.operations.push(operation);
                batch.places.push(answers.len() - first);
                // Overwritten when the batch leaves.
                answers.push(PostOutcome::Posted);
            }
        }
    }

    fn turn(
        &mut self,
        operation: &Operation,
        heads: &[u8],
        answers: &mut [PostOutcome],
    ) -> Result<Forwarding, RefusalReason> {
        match *operation {
            Operation::Send { to, path, class, head, body, token } => {
                if matches!(to, Destination::Group(_)) {
                    return Err(RefusalReason::Operation(OperationKind::Multicast));
                }
                let (side, path) = self.way(path)?;
                if !self
                    .capabilities
                    .carries(head.bytes_in(heads).map_or(0, <[u8]>::len), body.length as usize)
                {
                    return Err(RefusalReason::Length);
                }
                let body = self.pass(side, body, heads, answers)?;
                Ok(Forwarding::For(side, Operation::Send { to, path, class, head, body, token }))
            }
            Operation::Copy { from, into }
                if from.length > 0 && self.side_of(from) == MultipathSide::Second =>
            {
                self.flush(MultipathSide::First, heads, answers);
                copy(&self.second, from, &mut self.first, into)
                    .map(|()| Forwarding::Done(PostOutcome::Done(0)))
            }
            Operation::Digest { of, .. } if self.side_of(of) == MultipathSide::Second => self
                .second
                .digest(of)
                .map(|digest| Forwarding::Done(PostOutcome::Done(u64::from(digest)))),
            // A datagram of the second wire is over when the kernel has it.
            Operation::Copy { .. } | Operation::Digest { .. } | Operation::Abandon { .. } => {
                Ok(Forwarding::For(MultipathSide::First, *operation))
            }
            _ => Err(RefusalReason::Operation(operation.kind())),
        }
    }

    /// Hands a batch over, and puts its answers in their places.
    fn flush(&mut self, side: MultipathSide, heads: &[u8], answers: &mut [PostOutcome]) {
        let mut answered = core::mem::take(&mut self.answered);
        let operations = core::mem::take(&mut self.batches[side as usize].operations);
        if !operations.is_empty() {
            self.wire(side).post(&operations, heads, &mut answered);
        }
        let batch = &mut self.batches[side as usize];
        for (place, answer) in batch.places.drain(..).zip(answered.drain(..)) {
            answers[place] = answer;
        }
        (batch.operations, batch.copies, batch.passing) = (operations, false, 0);
        batch.operations.clear();
        self.answered = answered;
    }

    /// Polls one of the two; paths are reported as this wire's.
    fn poll_side(
        &mut self,
        side: MultipathSide,
        limit: usize,
        sink: &mut dyn FnMut(Arrival<'_>),
    ) -> usize {
        let before = self.first.capabilities().paths.len() as u8;
        let shift = |path: PathId| PathId(path.0 + before);
        match side {
            MultipathSide::First => self.first.poll(limit, sink),
            MultipathSide::Second => self.second.poll(limit, &mut |arrival| {
                sink(match arrival {
                    Arrival::Datagram(datagram) => {
                        Arrival::Datagram(Datagram { path: shift(datagram.path), ..datagram })
                    }
                    Arrival::Room { queue: Queue::Path { path, class } } => {
                        Arrival::Room { queue: Queue::Path { path: shift(path), class } }
                    }
                    Arrival::PathState { path, rate } => {
                        Arrival::PathState { path: shift(path), rate }
                    }
                    other => other,
                });
            }),
        }
    }
}

/// Returns what both can do.
fn together(first: &Capabilities, second: &Capabilities) -> Capabilities {
    let kinds = OperationSet::from_kinds(&[
        OperationKind::Send,
        OperationKind::Copy,
        OperationKind::Digest,
    ]);
    Capabilities {
        operations: kinds.and(first.operations).and(second.operations),
        delivery: Delivery::Lossy,
        sends_follow_writes: false,
        groups_max: 0,
        paths: first.paths.iter().chain(&second.paths).copied().collect(),
        ..weaker("multipath", first, second)
    }
}

impl<F: Wire + WaitSource> Wire for MultipathWire<F> {
    forward_wire!(first: rank, now, register, adopt, region_mut);

    fn capabilities(&self) -> &Capabilities {
        &self.capabilities
    }

    fn region(&self, region: RegionId) -> Option<&[u8]> {
        match self.received {
            MultipathSide::Second if region == RegionId::RECEIVE => self.second.region(region),
            _ => self.first.region(region),
        }
    }

    fn copy_out(&self, from: Span, into: &mut [u8]) -> Result<(), RefusalReason> {
        match self.side_of(from) {
            MultipathSide::First => self.first.copy_out(from, into),
            MultipathSide::Second => self.second.copy_out(from, into),
        }
    }

    fn copy_in(&mut self, into: Span, from: &[u8]) -> Result<(), RefusalReason> {
        self.first.copy_in(into, from)
    }

    fn digest(&self, of: Span) -> Result<u32, RefusalReason> {
        match self.side_of(of) {
            MultipathSide::First => self.first.digest(of),
            MultipathSide::Second => self.second.digest(of),
        }
    }

    fn join(&mut self, _group: GroupId) -> Result<(), RefusalReason> {
        Err(RefusalReason::Operation(OperationKind::Multicast))
    }

    fn post(&mut self, operations: &[Operation], heads: &[u8], answers: &mut Vec<PostOutcome>) {
        let first = answers.len();
        for operation in operations {
            self.begin(operation, heads, answers, first);
        }
        for side in [MultipathSide::First, MultipathSide::Second] {
            self.flush(side, heads, &mut answers[first..]);
        }
    }

    fn poll(&mut self, limit: usize, sink: &mut dyn FnMut(Arrival<'_>)) -> usize {
        let order = match self.received {
            MultipathSide::First => [MultipathSide::Second, MultipathSide::First],
            MultipathSide::Second => [MultipathSide::First, MultipathSide::Second],
        };
        for side in order {
            let given = self.poll_side(side, limit, sink);
            if given > 0 {
                self.received = side;
                return given;
            }
        }
        0
    }

    fn deadline(&self) -> Option<LocalNs> {
        [self.first.deadline(), self.second.deadline()].into_iter().flatten().min()
    }

    fn counters(&self) -> Counters {
        self.first.counters() + self.second.counters()
    }
}

/// Both wires, as one waits for them.
struct MultipathWaitable<'a, F> {
    first: &'a mut F,
    second: &'a mut UdpWire,
}

impl<F: WaitSource> Wake for MultipathWaitable<'_, F> {
    fn wake_descriptors(&mut self) -> io::Result<Option<WakeDescriptors>> {
        WakeDescriptors::of_both(self.first, self.second)
    }

    fn rest(&mut self) -> Rest {
        rest_of_both(self.first.rest(), self.second.rest())
    }
}

impl<F: WaitSource> WaitSource for MultipathWaitable<'_, F> {
    fn poll_ready(&mut self, timeout: Option<Nanos>, extra: &[BorrowedFd<'_>]) -> WakeReason {
        let is_ready = self.second.poll_ready(Some(Nanos::ZERO), &[]).wire;
        if is_ready || timeout == Some(Nanos::ZERO) {
            let woken = self.first.poll_ready(Some(Nanos::ZERO), extra);
            return WakeReason::new(woken.wire || is_ready, woken.extra_set());
        }
        let again = self.second.is_full().then_some(FULL_AGAIN);
        let timeout = [timeout, again].into_iter().flatten().min();
        let descriptors: Vec<BorrowedFd<'_>> =
            extra.iter().copied().chain(self.second.descriptors()).collect();
        let woken = self.first.poll_ready(timeout, &descriptors);
        let others = 1u64.checked_shl(extra.len() as u32).map_or(u64::MAX, |bit| bit - 1);
        WakeReason::new(woken.wire || woken.extra_set() & !others != 0, woken.extra_set() & others)
    }
}

impl<F: Wire + WaitSource> WaitSource for MultipathWire<F> {
    fn poll_ready(&mut self, timeout: Option<Nanos>, extra: &[BorrowedFd<'_>]) -> WakeReason {
        MultipathWaitable { first: &mut self.first, second: &mut self.second }
            .poll_ready(timeout, extra)
    }
}

impl<F: Wire + WaitSource> Wake for MultipathWire<F> {
    fn wake_descriptors(&mut self) -> io::Result<Option<WakeDescriptors>> {
        WakeDescriptors::of_both(&mut self.first, &mut self.second)
    }

    fn rest(&mut self) -> Rest {
        rest_of_both(self.first.rest(), self.second.rest())
    }
}

impl<F: Wire + WaitSource> Waitable for MultipathWire<F> {
    fn wait(&mut self, until: Option<LocalNs>, extra: &[BorrowedFd<'_>]) -> WakeReason {
        self.pause.wait(
            &mut MultipathWaitable { first: &mut self.first, second: &mut self.second },
            until,
            extra,
        )
    }
}

#[cfg(test)]
mod tests;
