//! A wire whose operations are effects of an engine: for a reliable wire inside one.
//!
//! # Model
//! What is posted waits here until the engine around it writes it into its own effects; what the
//! engine is given waits here until it is polled. Memory is the real wire's, registered before.
//!
//! # Invariants
//! I1. A token that is posted comes back with what the real wire says of it.

use std::collections::VecDeque;

use clearway_proto::base::{Bytes, Class, GroupId, Head, LocalNs, Rank};
use clearway_proto::wire::{
    Arrival, Capabilities, Counters, Datagram, HeadRef, Operation, OperationKind, PathId,
    PostOutcome, Queue, RefusalReason, RegionId, Span, Stamp, Status, Token, Wire,
};

/// Bytes of the longest header of a reliable wire's frame.
const HEAD: usize = 128;

/// An operation that is to leave, and its header.
pub(super) type LeavingOperation = (Operation, Vec<u8>);

/// The wire.
#[derive(Debug)]
pub(super) struct EffectWire {
    rank: Rank,
    capabilities: Capabilities,
    pub(super) now: LocalNs,
    /// Regions to give, in the order in which they are asked for.
    regions: VecDeque<RegionId>,
    /// Lengths that were asked for.
    pub(super) asked: Vec<Bytes>,
    pub(super) leaving: VecDeque<LeavingOperation>,
    waiting: VecDeque<WaitingArrival>,
}

/// An arrival with a header of its own.
#[derive(Clone, Copy, Debug)]
enum WaitingArrival {
    Message {
        from: Rank,
        path: PathId,
        class: Option<Class>,
        congestion_marked: bool,
        at: LocalNs,
        head: Head<HEAD>,
        body: Span,
    },
    Done {
        token: Token,
        status: Status,
        value: u64,
        at: LocalNs,
    },
    Room(Queue),
}

impl EffectWire {
    /// Creates the end of `rank`, which gives these regions to the engine that registers memory;
    /// behind the last of them it gives numbers that are none.
    pub(super) fn new(
        rank: Rank,
        capabilities: Capabilities,
        now: LocalNs,
        regions: &[RegionId],
    ) -> Self {
        Self {
            rank,
            capabilities,
            now,
            regions: regions.iter().copied().collect(),
            asked: Vec::new(),
            leaving: VecDeque::new(),
            waiting: VecDeque::new(),
        }
    }

    /// Takes what the real wire brought. The body of a message must be read in this step.
    pub(super) fn bring(&mut self, arrival: Arrival<'_>) {
        let waiting = match arrival {
            Arrival::Datagram(Datagram {
                from,
                path,
                class,
                congestion_marked,
                at,
                head,
                body,
            }) => {
                let at = at.instant();
                Head::from_bytes(head).map(|head| WaitingArrival::Message {
                    from,
                    path,
                    class,
                    congestion_marked,
                    at,
                    head,
                    body,
                })
            }
            Arrival::Done { token, status, value, at } => {
                Some(WaitingArrival::Done { token, status, value, at })
            }
            Arrival::Room { queue } => Some(WaitingArrival::Room(queue)),
            _ => None,
        };
        self.waiting.extend(waiting);
    }
}

impl WaitingArrival {
    fn give(&self, sink: &mut dyn FnMut(Arrival<'_>)) {
        match *self {
            Self::Message { from, path, class, congestion_marked, at, ref head, body } => {
                sink(Arrival::Datagram(Datagram {
                    from,
                    path,
                    class,
                    congestion_marked,
                    at: Stamp::Taken(at),
                    head: head.bytes(),
                    body,
                }));
            }
            Self::Done { token, status, value, at } => {
                sink(Arrival::Done { token, status, value, at });
            }
            Self::Room(queue) => sink(Arrival::Room { queue }),
        }
    }
}

impl Wire for EffectWire {
    fn rank(&self) -> Rank {
        self.rank
    }

    fn capabilities(&self) -> &Capabilities {
        &self.capabilities
    }

    fn now(&self) -> LocalNs {
        self.now
    }

    fn register(&mut self, length: Bytes) -> Result<RegionId, RefusalReason> {
        self.asked.push(length);
        Ok(self.regions.pop_front().unwrap_or(RegionId(self.asked.len() as u16)))
    }

    fn region(&self, _region: RegionId) -> Option<&[u8]> {
        None
    }

    fn region_mut(&mut self, _region: RegionId) -> Option<&mut [u8]> {
        None
    }

    fn join(&mut self, _group: GroupId) -> Result<(), RefusalReason> {
        Err(RefusalReason::Operation(OperationKind::Multicast))
    }

    fn post(&mut self, operations: &[Operation], heads: &[u8], answers: &mut Vec<PostOutcome>) {
        for operation in operations {
            let head = match operation {
                Operation::Send { head, .. } => HeadRef::bytes_in(*head, heads).unwrap_or_default(),
                _ => &[],
            };
            self.leaving.push_back((*operation, head.to_vec()));
            let has_token = operation.token().is_some();
            answers.push(if has_token { PostOutcome::Posted } else { PostOutcome::Done(0) });
        }
    }

    fn poll(&mut self, limit: usize, sink: &mut dyn FnMut(Arrival<'_>)) -> usize {
        let count = self.waiting.len().min(limit);
        self.waiting.drain(..count).for_each(|arrival| arrival.give(sink));
        count
    }

    fn counters(&self) -> Counters {
        Counters::default()
    }
}
