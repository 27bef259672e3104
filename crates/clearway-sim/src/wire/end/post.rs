//! What becomes of an operation that is posted: refused by name, done at once, or put into the
//! outbox with what it carries.
//!
//! # Model
//! An operation leaves at the instant at which the processor has come to it. Bodies are copied (or
//! their extents noted) when it is posted, so that later changes to memory are not sent.
//!
//! # Invariants
//! I1. No operation touches memory outside its region.
//! I2. An operation that is refused takes no room in a queue and changes no memory.

use clearway_proto::base::{Class, Rank};
use clearway_proto::wire::{
    Destination, FileKind, Operation, PathId, PostOutcome, RefusalReason, RegionId, Status, Token,
    Wire,
};

use super::{FileJob, SimWire};
use crate::disk::DiskRequest;
use crate::memory::MessageBody;
use crate::wire::flight::{
    Acknowledgement, FlightKind, FlightPayload, InFlight, InlineHeader, Outgoing, Queued,
};

/// Bytes of a request to read: address, key and length (InfiniBand's RDMA extended header).
const READ_REQUEST_BYTES: u64 = 16;
/// Bytes of a request to change a word: address, key and two operands (InfiniBand's atomic extended
/// header).
const ATOMIC_REQUEST_BYTES: u64 = 28;

impl SimWire {
    /// Returns whether `operation` can be carried, and touches only memory that is there.
    fn check(&self, operation: &Operation, heads: &[u8]) -> Result<(), RefusalReason> {
        if !self.capabilities.operations.has(operation.kind()) {
            return Err(RefusalReason::Operation(operation.kind()));
        }
        let known =
            |rank: Rank| if rank.0 < self.ranks { Ok(()) } else { Err(RefusalReason::Rank) };
        let paths = self.capabilities.paths.len();
        let route = |path: PathId| {
            if usize::from(path.0) < paths { Ok(()) } else { Err(RefusalReason::Path) }
        };
        match *operation {
            Operation::Send { to, path, head, body, .. } => {
                route(path)?;
                if let Destination::One(rank) = to {
                    known(rank)?;
                }
                let head = head.bytes_in(heads).ok_or(RefusalReason::Memory)?;
                if body.length > 0 {
                    self.range(body)?;
                }
                if self.capabilities.carries(head.len(), body.length as usize) {
                    Ok(())
                } else {
                    Err(RefusalReason::Length)
                }
            }
            Operation::Write { to: peer, path, from: here, .. }
            | Operation::Read { peer, path, into: here, .. } => {
                route(path)?;
                known(peer)?;
                self.range(here).map(drop)
            }
            Operation::Atomic { to, path, .. } => route(path).and_then(|()| known(to)),
            Operation::Copy { from, into } => {
                self.range(from)?;
                self.range(into)?;
                let writable = into.region != RegionId::RECEIVE && from.length == into.length;
                if writable { Ok(()) } else { Err(RefusalReason::Memory) }
            }
            Operation::Digest { of, .. } => {
                if of.length > 0 {
                    self.range(of).map(drop)
                } else {
                    Ok(())
                }
            }
            Operation::File { file, memory, .. } => {
                let open = self.disk.as_ref().and_then(|disk| disk.size(file));
                open.ok_or(RefusalReason::Memory)?;
                if memory.length > 0 { self.range(memory).map(drop) } else { Ok(()) }
            }
            _ => Err(RefusalReason::Operation(operation.kind())),
        }
    }

    /// Starts `operation`.
    ///
    /// # Errors
    /// What it lacks.
    pub(super) fn start(
        &mut self,
        operation: &Operation,
        heads: &[u8],
    ) -> Result<PostOutcome, RefusalReason> {
        self.check(operation, heads)?;
        let answer = match *operation {
            Operation::Send { to, path, class, head, body, token } => {
                let head = InlineHeader::new(head, heads);
                let bytes = head.bytes().len() as u64 + u64::from(body.length);
                if let Err(answer) = self.enter_queue(path, class, bytes) {
                    return Ok(answer);
                }
                self.counters.sent += 1;
                let body = self.take(body)?;
                self.depart(to, path, class, token, bytes, FlightPayload::Message { head, body })
            }
            Operation::Write { to, path, class, from, into, immediate, token } => {
                let bytes = u64::from(from.length);
                if let Err(answer) = self.enter_queue(path, class, bytes) {
                    return Ok(answer);
                }
                let cargo = FlightPayload::Write {
                    into,
                    length: from.length,
                    body: self.take(from)?,
                    immediate,
                };
                self.depart(Destination::One(to), path, class, token, bytes, cargo)
            }
            Operation::Read { peer, path, class, from, into, token } => {
                let cargo = FlightPayload::ReadRequest { source: from, into };
                self.request(peer, path, class, token, READ_REQUEST_BYTES, cargo)
            }
            Operation::Atomic { to, path, class, kind, at, token } => self.request(
                to,
                path,
                class,
                token,
                ATOMIC_REQUEST_BYTES,
                FlightPayload::AtomicRequest { kind, at },
            ),
            Operation::Copy { from, into } => {
                let body = self.take(from)?;
                self.place(into, &body)?;
                self.processor.spend(self.copy_pace.time(from.length));
                PostOutcome::Done(0)
            }
            Operation::Digest { of, .. } => {
                self.processor.spend(self.copy_pace.time(of.length));
                PostOutcome::Done(u64::from(self.digest(of)?))
            }
            Operation::File { kind, file, at, memory, token, .. } => {
                let body =
                    if kind == FileKind::Write { self.take(memory)? } else { MessageBody::Empty };
                let length = if kind == FileKind::Sync { 0 } else { u64::from(memory.length) };
                let request = DiskRequest::new(kind, file, at, length, body);
                self.file_jobs.push(FileJob {
                    at: self.processor.free_at(),
                    request,
                    memory,
                    token,
                });
                PostOutcome::Posted
            }
            _ => PostOutcome::Refused(RefusalReason::Operation(operation.kind())),
        };
        Ok(answer)
    }

    fn request(
        &mut self,
        peer: Rank,
        path: PathId,
        class: Class,
        token: Token,
        bytes: u64,
        cargo: FlightPayload,
    ) -> PostOutcome {
        match self.enter_queue(path, class, bytes) {
            Ok(()) => self.depart(Destination::One(peer), path, class, Some(token), bytes, cargo),
            Err(answer) => answer,
        }
    }

    fn depart(
        &mut self,
        to: Destination,
        path: PathId,
        class: Class,
        token: Option<Token>,
        bytes: u64,
        cargo: FlightPayload,
    ) -> PostOutcome {
        let (kind, acknowledgement) = match (&cargo, token) {
            (FlightPayload::Message { .. }, _) => (FlightKind::Message, Acknowledgement::Unasked),
            (FlightPayload::Write { .. }, Some(_)) => {
                (FlightKind::OneSided, Acknowledgement::Awaited)
            }
            _ => (FlightKind::OneSided, Acknowledgement::Unasked),
        };
        let flight = InFlight {
            from: self.rank,
            to,
            incarnation: self.incarnation,
            peer_incarnation: 0,
            path,
            class,
            token,
            kind,
            cargo,
            bytes,
            queued: Queued::Yes,
            receivers: 1,
            acknowledgement,
            outcome: Status::Complete,
            repeats: 0,
        };
        self.outbox.push(Outgoing { at: self.processor.free_at(), flight });
        PostOutcome::Posted
    }

    /// Puts `operation` and its answer into the digest.
    pub(super) fn note(&mut self, operation: &Operation, heads: &[u8], answer: PostOutcome) {
        let (peer, class, size, place) = match *operation {
            Operation::Send { to: Destination::One(rank), class, body, .. } => {
                (rank.0, class, body.length, body.offset)
            }
            Operation::Send { to: Destination::Group(group), class, body, .. } => {
                (u32::from(group.0), class, body.length, body.offset)
            }
            Operation::Write { to, class, from, into, .. } => {
                (to.0, class, from.length, into.offset)
            }
            Operation::Read { peer, class, from, into, .. } => {
                (peer.0, class, into.length, from.offset)
            }
            Operation::Atomic { to, class, at, .. } => (to.0, class, 8, at.offset),
            Operation::Copy { from, into } => {
                (self.rank.0, Class::Control, from.length, into.offset)
            }
            Operation::File { file, class, at, memory, .. } => (file.0, class, memory.length, at),
            Operation::Digest { of, .. } => (self.rank.0, Class::Control, of.length, of.offset),
            _ => (0, Class::Control, 0, 0),
        };
        let answer = match answer {
            PostOutcome::Done(value) => value << 2,
            PostOutcome::Posted => 1,
            PostOutcome::NoRoom => 2,
            PostOutcome::Refused(_) => 3,
        };
        let kind = 16 + (operation.kind() as u64) * 8 + class.index() as u64;
        self.digest.event(self.processor.free_at(), kind, u64::from(peer) << 32 | u64::from(size));
        self.digest.word(place);
        self.digest.word(answer);
        if let Operation::Send { head, .. } = operation {
            self.digest.bytes(head.bytes_in(heads).unwrap_or_default());
        }
    }
}
