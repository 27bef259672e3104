//! What becomes of a message at its end: contents come into memory, requests are answered, tokens
//! complete.
//!
//! # Invariants
//! I1. An interface answers without its node's processor; an engine hears of what concerns it, and
//!     of nothing else.

use clearway_proto::base::{Class, RandomKey, Rank};
use clearway_proto::wire::{Destination, FileKind, PathId, RefusalReason, Span, Status, Token};

use super::{Network, NetworkEvent};
use crate::disk::{DiskCompletion, DiskRequest};
use crate::fabric::{EcnMark, Payload};
use crate::memory::MessageBody;
use crate::time::Picos;
use crate::wire::end::{FileJob, ReadyArrivals, SimWire};
use crate::wire::flight::{Acknowledgement, FlightId, FlightKind, FlightPayload, InFlight, Queued};
use crate::wire::{Carrier, Completion};

/// Bytes of an acknowledgement without data (InfiniBand's AETH), and with the old value of a word
/// (AtomicAckETH too).
const ACKNOWLEDGEMENT_BYTES: u64 = 4;
/// See [`ACKNOWLEDGEMENT_BYTES`].
const ATOMIC_REPLY_BYTES: u64 = 12;

/// Time after which a reliable connection repeats what was not acknowledged: 4.096 us * 2^14,
/// perftest's default.
const REPEAT_AFTER: Picos = Picos::from_nanos(4_096 << 14);
/// Repetitions before it gives up: the largest value of InfiniBand's three-bit counter.
const REPEATS_MAX: u8 = 7;
/// What the receiving end needs to know of a message in addition to its cargo.
#[derive(Clone, Copy)]
struct DeliveryRecord {
    tag: FlightId,
    from: Rank,
    to: Rank,
    at: Picos,
    path: PathId,
    class: Class,
    token: Option<Token>,
    incarnation: u32,
    peer_incarnation: u32,
    marked: EcnMark,
}

/// Whether memory can be reached that a message was meant for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum MemoryReach {
    /// The same node is there.
    Here,
    /// It was started again; the keys are void.
    Stale,
    /// Nobody answers.
    Down,
}

impl DeliveryRecord {
    const fn reaches(&self, end: &SimWire) -> MemoryReach {
        match (end.up, end.incarnation == self.peer_incarnation) {
            (false, _) => MemoryReach::Down,
            (true, true) => MemoryReach::Here,
            (true, false) => MemoryReach::Stale,
        }
    }
}

impl<C: Carrier> Network<C> {
    /// Records that the last byte left its sender.
    pub(super) fn sent(&mut self, tag: FlightId, at: Picos) {
        let Some(flight) = self.flights.get_mut(tag).filter(|flight| flight.queued == Queued::Yes)
        else {
            return;
        };
        flight.queued = Queued::No;
        let (from, incarnation, path, class) =
            (flight.from, flight.incarnation, flight.path, flight.class);
        let (bytes, token) =
            (flight.bytes, flight.token.filter(|_| flight.kind == FlightKind::Message));
        self.flights.retire(tag);
        let end = &mut self.ends[from.index()];
        if end.incarnation != incarnation || !end.up {
            return;
        }
        if end.leave_queue(path, class, bytes).is_some() {
            self.woken.push(from);
        }
        if let Some(token) = token {
            self.complete(from, incarnation, token, Status::Complete, 0, at);
        }
    }

    /// Handles a message all of which reached `to`.
    pub(super) fn delivered(
        &mut self,
        tag: FlightId,
        to: Rank,
        at: Picos,
        marked: EcnMark,
        payload: Payload,
    ) {
        let Some(flight) = self.flights.get_mut(tag) else { return };
        flight.receivers = flight.receivers.saturating_sub(1);
        let mut cargo = match flight.receivers {
            0 => core::mem::replace(&mut flight.cargo, FlightPayload::Gone),
            _ => flight.cargo.clone(),
        };
        let parcel = DeliveryRecord {
            tag,
            from: flight.from,
            to,
            at,
            path: flight.path,
            class: flight.class,
            token: flight.token,
            incarnation: flight.incarnation,
            peer_incarnation: flight.peer_incarnation,
            marked,
        };
        self.flights.retire(tag);
        if payload == Payload::Corrupt {
            damage(&mut cargo, self.damage.node(tag.0).node(u64::from(to.0)));
        }
        self.unpack(parcel, cargo);
    }

    /// Handles a copy of a multicast that reached a host: one for each member there.
    pub(super) fn delivered_to_host(
        &mut self,
        tag: FlightId,
        ranks: &[Rank],
        at: Picos,
        marked: EcnMark,
        payload: Payload,
    ) {
        // While the host itself counts as a receiver, the message stays.
        self.with(tag, |flight| flight.receivers += ranks.len() as u32);
        for rank in ranks {
            self.delivered(tag, *rank, at, marked, payload);
        }
        self.one_less(tag);
    }

    fn unpack(&mut self, parcel: DeliveryRecord, cargo: FlightPayload) {
        let DeliveryRecord { from, to, at, path, class, token, .. } = parcel;
        let end = &mut self.ends[to.index()];
        let reach = parcel.reaches(end);
        match cargo {
            FlightPayload::Message { head, body } => {
                if end.up {
                    let (marked, at) = (parcel.marked == EcnMark::Yes, end.clock.local(at));
                    end.arrive(ReadyArrivals::Message {
                        from,
                        path,
                        class,
                        marked,
                        at,
                        head,
                        body,
                    });
                    self.woken.push(to);
                }
            }
            FlightPayload::Write { into, length, body, immediate } => {
                let into = Span { region: into.region, offset: into.offset, length };
                let outcome = match reach {
                    MemoryReach::Here => {
                        end.place(into, &body).map_or_else(Status::Refused, |()| Status::Complete)
                    }
                    MemoryReach::Stale => Status::Refused(RefusalReason::Memory),
                    MemoryReach::Down => Status::Flushed,
                };
                if let (Status::Complete, Some(immediate)) = (outcome, immediate) {
                    let at = end.clock.local(at);
                    end.arrive(ReadyArrivals::Landed { from, into, immediate, at });
                    self.woken.push(to);
                }
                self.with(parcel.tag, |flight| flight.outcome = outcome);
            }
            FlightPayload::ReadRequest { source, into } => {
                let source =
                    Span { region: source.region, offset: source.offset, length: into.length };
                match reach {
                    MemoryReach::Here => {
                        let (status, body) = split(end.take(source));
                        let bytes = body.length().max(ACKNOWLEDGEMENT_BYTES);
                        self.reply(
                            parcel,
                            bytes,
                            FlightPayload::Reply { into, body, status, value: 0 },
                        );
                    }
                    MemoryReach::Stale => self.refuse(parcel),
                    MemoryReach::Down => self.give_up(parcel),
                }
            }
            FlightPayload::AtomicRequest { kind, at: word } => match reach {
                MemoryReach::Here => {
                    let (status, value) = split(end.atomic(kind, word));
                    let cargo = FlightPayload::Reply {
                        into: Span::EMPTY,
                        body: MessageBody::Empty,
                        status,
                        value,
                    };
                    self.reply(parcel, ATOMIC_REPLY_BYTES, cargo);
                }
                MemoryReach::Stale => self.refuse(parcel),
                MemoryReach::Down => self.give_up(parcel),
            },
            FlightPayload::Reply { into, body, status, value } => {
                let placed = if reach == MemoryReach::Here && body.length() > 0 {
                    end.place(into, &body)
                } else {
                    Ok(())
                };
                let status = placed.map_or_else(Status::Refused, |()| status);
                if let Some(token) = token {
                    self.complete(to, parcel.peer_incarnation, token, status, value, at);
                }
            }
            FlightPayload::Gone => {}
        }
    }

    /// Records that the sender's interface knows that all was delivered.
    pub(super) fn acknowledged(&mut self, tag: FlightId, at: Picos) {
        let awaited = |flight: &&mut InFlight| flight.acknowledgement == Acknowledgement::Awaited;
        let Some(flight) = self.flights.get_mut(tag).filter(awaited) else { return };
        flight.acknowledgement = Acknowledgement::Unasked;
        let (from, incarnation, outcome) = (flight.from, flight.incarnation, flight.outcome);
        let token = flight.token;
        self.flights.retire(tag);
        let Some(token) = token else { return };
        if outcome == Status::Flushed {
            self.put_later(at + timeout(), NetworkEvent::GiveUp { rank: from, incarnation, token });
        } else {
            self.complete(from, incarnation, token, outcome, 0, at);
        }
    }

    /// Handles a message some of which was dropped on the way.
    pub(super) fn lost(&mut self, tag: FlightId, at: Picos) {
        let Some(flight) = self.flights.get_mut(tag) else { return };
        if flight.kind == FlightKind::Message {
            return self.one_less(tag);
        }
        if flight.repeats < REPEATS_MAX {
            flight.repeats += 1;
            return self.put_later(at + REPEAT_AFTER, NetworkEvent::Repeat { tag });
        }
        // A reply's token belongs to where it goes, any other to where it came from.
        let (rank, incarnation) = match (&flight.cargo, flight.to) {
            (FlightPayload::Reply { .. }, Destination::One(to)) => (to, flight.peer_incarnation),
            _ => (flight.from, flight.incarnation),
        };
        let token = flight.token;
        flight.acknowledgement = Acknowledgement::Unasked;
        flight.receivers = 0;
        self.flights.retire(tag);
        if let Some(token) = token {
            self.put_later(at + REPEAT_AFTER, NetworkEvent::GiveUp { rank, incarnation, token });
        }
    }

    fn refuse(&mut self, parcel: DeliveryRecord) {
        let status = Status::Refused(RefusalReason::Memory);
        let cargo =
            FlightPayload::Reply { into: Span::EMPTY, body: MessageBody::Empty, status, value: 0 };
        self.reply(parcel, ACKNOWLEDGEMENT_BYTES, cargo);
    }

    /// Gives up `request`, which nobody answers: its sender learns it when its timeout ends.
    fn give_up(&mut self, request: DeliveryRecord) {
        if let Some(token) = request.token {
            let (rank, incarnation) = (request.from, request.incarnation);
            self.put_later(
                request.at + timeout(),
                NetworkEvent::GiveUp { rank, incarnation, token },
            );
        }
    }

    /// Answers `request` at the interface that got it.
    fn reply(&mut self, request: DeliveryRecord, bytes: u64, cargo: FlightPayload) {
        let flight = InFlight {
            from: request.to,
            to: Destination::One(request.from),
            incarnation: request.peer_incarnation,
            peer_incarnation: request.incarnation,
            path: request.path,
            class: request.class,
            token: request.token,
            kind: FlightKind::OneSided,
            cargo,
            bytes,
            queued: Queued::No,
            receivers: 1,
            acknowledgement: Acknowledgement::Unasked,
            outcome: Status::Complete,
            repeats: 0,
        };
        self.depart(self.now, flight, request.from);
    }

    /// Completes a token of `rank`, if the node that issued it is still there.
    pub(super) fn complete(
        &mut self,
        rank: Rank,
        incarnation: u32,
        token: Token,
        status: Status,
        value: u64,
        at: Picos,
    ) {
        match self.ends[rank.index()].trouble.completions {
            None => self.report(rank, incarnation, token, status, value, at),
            Some(Completion::Error) => {
                self.report(rank, incarnation, token, Status::Flushed, 0, at)
            }
            Some(Completion::Late(by)) => {
                self.put_later(
                    self.now + by,
                    NetworkEvent::Report { rank, incarnation, token, status, value },
                );
            }
            Some(Completion::Never) => {}
        }
    }

    /// Reports to the engine of `rank` how an operation ended, if it is still the one that issued
    /// it.
    pub(super) fn report(
        &mut self,
        rank: Rank,
        incarnation: u32,
        token: Token,
        status: Status,
        value: u64,
        at: Picos,
    ) {
        let end = &mut self.ends[rank.index()];
        if end.up && end.incarnation == incarnation {
            let at = end.clock.local(at);
            end.arrive(ReadyArrivals::Done { token, status, value, at });
            self.woken.push(rank);
        }
    }

    /// Gives a disk a job.
    pub(super) fn begin_file(&mut self, rank: Rank, job: FileJob) {
        let FileJob { at, mut request, memory, token } = job;
        let end = &mut self.ends[rank.index()];
        let Some(disk) = &mut end.disk else { return };
        let over = disk.begin(at, &mut request);
        let incarnation = end.incarnation;
        self.put_later(
            over,
            NetworkEvent::File { rank, incarnation, memory, token, request: Box::new(request) },
        );
    }

    /// Ends a job of a disk.
    pub(super) fn end_file(
        &mut self,
        rank: Rank,
        incarnation: u32,
        memory: Span,
        token: Token,
        mut request: DiskRequest,
    ) {
        let end = &mut self.ends[rank.index()];
        if end.incarnation != incarnation {
            return;
        }
        let Some(disk) = &mut end.disk else { return };
        let ended = disk.end(&mut request);
        let moved =
            if request.kind == FileKind::Read { request.body.length() } else { request.length };
        let status = match ended {
            DiskCompletion::Well if request.kind == FileKind::Read && moved > 0 => {
                // At the end of the file there are fewer bytes; the rest of the memory stays as it
                // is.
                let memory = Span { length: moved as u32, ..memory };
                end.place(memory, &request.body).map_or_else(Status::Refused, |()| Status::Complete)
            }
            DiskCompletion::Well => Status::Complete,
            DiskCompletion::Badly(fault) => Status::Failed(fault),
        };
        let moved = if status == Status::Complete { moved } else { 0 };
        self.complete(rank, incarnation, token, status, moved, self.now);
    }
}

/// Returns how long an interface tries to reach a node that is down.
fn timeout() -> Picos {
    Picos(REPEAT_AFTER.0 * u64::from(REPEATS_MAX))
}

fn split<T: Default>(result: Result<T, RefusalReason>) -> (Status, T) {
    match result {
        Ok(value) => (Status::Complete, value),
        Err(missing) => (Status::Refused(missing), T::default()),
    }
}

/// Flips one bit of header or body, chosen by `key`.
fn damage(cargo: &mut FlightPayload, key: RandomKey) {
    let mut stream = key.stream();
    match cargo {
        FlightPayload::Message { head, body } => {
            let header = head.bytes().len() as u64;
            let place = stream.below(header + body.length());
            let bit = stream.below(8) as u32;
            match place.checked_sub(header) {
                None => head.damage(place as usize, bit),
                Some(place) => body.damage(place, bit),
            }
        }
        FlightPayload::Write { body, .. } | FlightPayload::Reply { body, .. } => {
            let place = stream.below(body.length());
            body.damage(place, stream.below(8) as u32);
        }
        FlightPayload::ReadRequest { .. }
        | FlightPayload::AtomicRequest { .. }
        | FlightPayload::Gone => {}
    }
}
