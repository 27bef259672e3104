//! One wire made of two: messages to ranks of this host go through shared memory, everything else
//! over the other wire.
//!
//! # Model
//! The *near* wire is shared memory, the *far* one any wire that reaches all ranks. The far wire
//! has the regions, and with them everything that names memory of others: one-sided operations and
//! atomics go over it to every rank, also to one of this host, because a region cannot lie in two
//! memories. So does multicast, or members of this host would hear twice.
//!
//! Bodies of messages lie in the far wire's memory and are copied from there into the near one's
//! rings. Arrived bodies stay where each wire put them: a poll gives arrivals of one wire only, of
//! the two in turns while both have some, and [`RegionId::RECEIVE`] is the memory of that one.
//!
//! # Invariants
//! I1. All ranks of a job are joined, or none: regions have one number everywhere, and a pair of
//!     ranks agrees over which wire its
//!     messages go. A rank that is alone on its host shares memory with itself.
//! I2. What this wire says it can do both can, and in what differs it is as weak as the weaker.
//! I3. Within a peer and class messages keep their order. Between messages and one-sided operations
//!     of one peer of this host
//!     there is none: they go different ways.
//! I4. `Room` says that one of the two wires takes operations of a class again; what then finds the
//!     other full is reported again.
//!
//! # Not here
//! Which ranks are of this host (launch).

use std::io;
use std::os::fd::BorrowedFd;

use clearway_proto::base::{LocalNs, Nanos};
use clearway_proto::wire::{
    Arrival, Capabilities, Counters, Destination, Operation, PathId, PostOutcome, RefusalReason,
    RegionId, Span, Wire, bytes_of, forward_wire,
};

use crate::RuntimeError;
use crate::combined::{copy, passage, weaker};
use crate::shm::ShmWire;
use crate::waiting::{
    Pause, Rest, WaitSource, Waitable, Waiting, Wake, WakeDescriptors, WakeReason, rest_of_both,
};

/// Which of the two.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum JoinedSide {
    Near,
    Far,
}

/// One rank's end of a job over shared memory and another wire.
#[derive(Debug)]
pub struct JoinedWire<F> {
    near: ShmWire,
    far: F,
    capabilities: Capabilities,
    pause: Pause,
    /// Whose arrivals the last poll gave.
    received: JoinedSide,
    /// A body of adopted memory on its way to the near wire.
    scratch: Vec<u8>,
    /// Memory of the far wire, for one body that came over the near one and leaves over the far
    /// one.
    passage: RegionId,
    /// Operations for the far wire, and the places of their answers.
    batch: Vec<Operation>,
    places: Vec<usize>,
    /// Whether one of them changes this rank's memory.
    batch_copies: bool,
    far_answers: Vec<PostOutcome>,
}

impl<F: Wire + WaitSource> JoinedWire<F> {
    /// Joins two ends of one rank. `far` reaches all ranks and has no region yet; it takes a body
    /// before `post` returns.
    ///
    /// # Errors
    /// [`RuntimeError::OtherRank`] when the ends are not of one rank, [`RuntimeError::System`]
    /// without memory.
    pub fn new(near: ShmWire, mut far: F, waiting: Waiting) -> Result<Self, RuntimeError> {
        if near.rank() != far.rank() {
            return Err(RuntimeError::OtherRank { near: near.rank(), far: far.rank() });
        }
        let capabilities = weaker("joined", near.capabilities(), far.capabilities());
        let passage = passage(&mut far, capabilities.body_max as u64)?;
        Ok(Self {
            near,
            far,
            capabilities,
            pause: Pause::new(waiting),
            received: JoinedSide::Far,
            scratch: Vec::new(),
            passage,
            batch: Vec::new(),
            places: Vec::new(),
            batch_copies: false,
            far_answers: Vec::new(),
        })
    }

    /// Returns the wire to ranks of other hosts.
    pub fn far(&self) -> &F {
        &self.far
    }

    /// Returns whether both wires carry a message of `head` and `body`.
    fn carries(&self, head: Option<&[u8]>, body: Span) -> bool {
        self.capabilities.carries(head.map_or(0, <[u8]>::len), body.length as usize)
    }

    /// Returns whether `operation` goes over the near wire.
    fn is_near(&mut self, operation: &Operation) -> bool {
        matches!(*operation, Operation::Send { to: Destination::One(rank), .. } if self.near.reaches(rank))
    }

    /// Returns whether `span` lies where the near wire's arrivals are.
    fn is_from_near(&self, span: Span) -> bool {
        span.length > 0 && span.region == RegionId::RECEIVE && self.received == JoinedSide::Near
    }

    /// Starts a message to a rank of this host.
    fn send_near(
        &mut self,
        operation: &Operation,
        heads: &[u8],
    ) -> Result<PostOutcome, RefusalReason> {
        let Operation::Send { to: Destination::One(to), path, class, head, body, token } =
            *operation
        else {
            return Err(RefusalReason::Operation(operation.kind()));
        };
        if usize::from(path.0) >= self.capabilities.paths.len() {
            return Err(RefusalReason::Path);
        }
        let head_bytes = head.bytes_in(heads).ok_or(RefusalReason::Memory)?;
        if self.is_from_near(body) {
            let mut answers = Vec::new();
            let send = Operation::Send {
                to: Destination::One(to),
                path: PathId(0),
                class,
                head,
                body,
                token,
            };
            self.near.post(&[send], heads, &mut answers);
            return answers.pop().ok_or(RefusalReason::Memory);
        }
        if let Ok(bytes) = bytes_of(self.far.region(body.region), body) {
            return self.near.send_bytes(to, class, head_bytes, bytes, token);
        }
        self.scratch.resize(body.length as usize, 0);
        self.far.copy_out(body, &mut self.scratch)?;
        self.near.send_bytes(to, class, head_bytes, &self.scratch, token)
    }

    /// Posts what names the near wire's arrivals and is for the far one, by way of the far one's
    /// memory.
    fn pass_over(
        &mut self,
        operation: &Operation,
        heads: &[u8],
    ) -> Result<PostOutcome, RefusalReason> {
        match *operation {
            Operation::Copy { from, into } => {
                if into.region == self.passage {
                    return Err(RefusalReason::Memory);
                }
                copy(&self.near, from, &mut self.far, into).map(|()| PostOutcome::Done(0))
            }
            Operation::Digest { of, .. } => {
                self.near.digest(of).map(|digest| PostOutcome::Done(u64::from(digest)))
            }
            Operation::Send { to, path, class, head, body, token } => {
                let bytes = bytes_of(self.near.region(body.region), body)?;
                let passage = self
                    .far
                    .region_mut(self.passage)
                    .and_then(|passage| passage.get_mut(..bytes.len()));
                passage.ok_or(RefusalReason::Length)?.copy_from_slice(bytes);
                let body = Span { region: self.passage, offset: 0, length: body.length };
                self.batch.push(Operation::Send { to, path, class, head, body, token });
                self.far_answers.clear();
                self.far.post(&self.batch, heads, &mut self.far_answers);
                self.batch.clear();
                self.far_answers.pop().ok_or(RefusalReason::Memory)
            }
            // Memory that peers read or write must stay, and arrivals do not.
            _ => Err(RefusalReason::Memory),
        }
    }

    /// Gives the batch to the far wire, and puts its answers in their places.
    fn flush(&mut self, heads: &[u8], answers: &mut [PostOutcome]) {
        if self.batch.is_empty() {
            return;
        }
        self.far_answers.clear();
        self.far.post(&self.batch, heads, &mut self.far_answers);
        for (place, answer) in self.places.drain(..).zip(&self.far_answers) {
            answers[place] = *answer;
        }
        self.batch.clear();
        self.batch_copies = false;
    }

    /// Polls one of the two.
    fn poll_side(
        &mut self,
        side: JoinedSide,
        limit: usize,
        sink: &mut dyn FnMut(Arrival<'_>),
    ) -> usize {
        match side {
            JoinedSide::Far => self.far.poll(limit, sink),
            JoinedSide::Near => {
                let mut given = 0;
                self.near.poll(limit, &mut |arrival| {
                    // That no other rank of this host is left is no news of a path: the far wire
                    // has those.
                    if !matches!(arrival, Arrival::PathState { .. }) {
                        given += 1;
                        sink(arrival);
                    }
                });
                given
            }
        }
    }
}

/// Returns what of `operation` may name arrived bytes.
const fn source_of(operation: &Operation) -> Option<Span> {
    match *operation {
        Operation::Copy { from, .. } | Operation::Write { from, .. } => Some(from),
        Operation::Send { body, .. } => Some(body),
        Operation::Digest { of, .. } => Some(of),
        _ => None,
    }
}

impl<F: Wire + WaitSource> Wire for JoinedWire<F> {
    forward_wire!(far: rank, now, register, adopt, region_mut, groups, deadline);

    fn capabilities(&self) -> &Capabilities {
        &self.capabilities
    }

    fn region(&self, region: RegionId) -> Option<&[u8]> {
        match self.received {
            JoinedSide::Near if region == RegionId::RECEIVE => self.near.region(region),
            _ => self.far.region(region),
        }
    }

    fn copy_out(&self, from: Span, into: &mut [u8]) -> Result<(), RefusalReason> {
        match self.received {
            JoinedSide::Near if from.region == RegionId::RECEIVE => self.near.copy_out(from, into),
            _ => self.far.copy_out(from, into),
        }
    }

    fn copy_in(&mut self, into: Span, from: &[u8]) -> Result<(), RefusalReason> {
        self.far.copy_in(into, from)
    }

    fn digest(&self, of: Span) -> Result<u32, RefusalReason> {
        if self.is_from_near(of) { self.near.digest(of) } else { self.far.digest(of) }
    }

    fn post(&mut self, operations: &[Operation], heads: &[u8], answers: &mut Vec<PostOutcome>) {
        let first = answers.len();
        for operation in operations {
            if matches!(*operation, Operation::Send { head, body, .. } if !self.carries(head.bytes_in(heads), body))
            {
                answers.push(PostOutcome::Refused(RefusalReason::Length));
                continue;
            }
            let near = self.is_near(operation);
            let passes = !near && source_of(operation).is_some_and(|span| self.is_from_near(span));
            if !near && !passes {
                self.places.push(answers.len() - first);
                self.batch.push(*operation);
                self.batch_copies |= matches!(operation, Operation::Copy { .. });
                // Overwritten when the batch leaves.
                answers.push(PostOutcome::Posted);
                continue;
            }
            if passes || self.batch_copies {
                self.flush(heads, &mut answers[first..]);
            }
            let answer = if near {
                self.send_near(operation, heads)
            } else {
                self.pass_over(operation, heads)
            };
            answers.push(answer.unwrap_or_else(PostOutcome::Refused));
        }
        self.flush(heads, &mut answers[first..]);
        self.near.show();
    }

    fn poll(&mut self, limit: usize, sink: &mut dyn FnMut(Arrival<'_>)) -> usize {
        let order = match self.received {
            JoinedSide::Near => [JoinedSide::Far, JoinedSide::Near],
            JoinedSide::Far => [JoinedSide::Near, JoinedSide::Far],
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

    fn counters(&self) -> Counters {
        self.near.counters() + self.far.counters()
    }
}

/// Both wires, as one waits for them.
struct JoinedWaitable<'a, F> {
    near: &'a mut ShmWire,
    far: &'a mut F,
}

impl<F: WaitSource> Wake for JoinedWaitable<'_, F> {
    fn wake_descriptors(&mut self) -> io::Result<Option<WakeDescriptors>> {
        WakeDescriptors::of_both(self.near, self.far)
    }

    fn rest(&mut self) -> Rest {
        rest_of_both(self.near.rest(), self.far.rest())
    }
}

impl<F: WaitSource> WaitSource for JoinedWaitable<'_, F> {
    fn poll_ready(&mut self, timeout: Option<Nanos>, extra: &[BorrowedFd<'_>]) -> WakeReason {
        let far = &mut *self.far;
        self.near.poll_with(timeout, extra, &mut |timeout, extra| far.poll_ready(timeout, extra))
    }
}

impl<F: Wire + WaitSource> Wake for JoinedWire<F> {
    fn wake_descriptors(&mut self) -> io::Result<Option<WakeDescriptors>> {
        WakeDescriptors::of_both(&mut self.near, &mut self.far)
    }

    fn rest(&mut self) -> Rest {
        rest_of_both(self.near.rest(), self.far.rest())
    }
}

impl<F: Wire + WaitSource> Waitable for JoinedWire<F> {
    fn wait(&mut self, until: Option<LocalNs>, extra: &[BorrowedFd<'_>]) -> WakeReason {
        self.pause.wait(
            &mut JoinedWaitable { near: &mut self.near, far: &mut self.far },
            until,
            extra,
        )
    }
}

#[cfg(test)]
mod tests;
