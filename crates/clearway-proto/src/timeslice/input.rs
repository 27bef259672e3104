//! An input: sends the contributions of its source to their builders, as its policy chooses and as rings have room.
//!
//! # Model
//! One connection for each builder: *calling* until the builder has named its ring, *open* until the stream has ended and
//! everything was released, *ended* when the builder knows. A contribution is written into the builder's ring piece by piece; its
//! room is free again when the builder has released it, and so is the memory that it came from.
//!
//! # Source
//! FLESnet's input channel sender; the end of the stream and the barrier before it as there, without an interval's wait.
//!
//! # Invariants
//! I1. Contributions to one builder are numbered without gaps, and released in the order of their numbers.
//! I2. Nothing is sent before every builder has named its ring: all begin behind one barrier.
//!
//! # Not here
//! Which builder is next: `policy`. Where contributions come from: `supply`.

use alloc::boxed::Box;
use alloc::collections::VecDeque;
use alloc::sync::Arc;
use alloc::vec::Vec;

use super::context::{Context, Event, Label, Slots};
use super::frame::{Frame, Mark, PIECES_MAX, sequence_between};
use super::layout::Layout;
use super::outbox::Outbox;
use super::policy::{Cause, Choice, Policy, Report, Sending};
use super::record::{Blocked, InputRecord};
use super::ring::{Place, Ring};
use super::supply::{Pieces, Supply};
use crate::base::{LocalNs, Nanos, Rank};
use crate::clock::Exchange;
use crate::wire::{Arrival, More, Operation, PathId, RegionId, RemoteSpan, Status};

/// How often a peer that has not answered is asked again. Only lossy wires need it.
const RETRY: Nanos = Nanos::from_millis(50);
/// Contributions posted in one call, so that a process that was away hears its wire again.
const TURNS_MAX: usize = 64;
/// Reports that are kept for builders that have one under way: intervals are reported one or two at a time.
const REPORTS_MAX: usize = 8;
/// Half of all numbers: what lies further ahead lies behind.
const HALF: u32 = 1 << 31;

/// How far a connection is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Stage {
    /// The builder has not named its ring.
    Calling,
    Open,
    /// Everything is released; the builder has not said that it knows.
    Ending,
    Ended,
}

/// A contribution that is not released.
#[derive(Clone, Copy, Debug)]
struct Sent {
    timeslice: u64,
    place: Place,
}

/// The way to one builder.
#[derive(Debug)]
struct Connection {
    peer: Rank,
    stage: Stage,
    into: RemoteSpan,
    ring: Ring,
    sent: VecDeque<Sent>,
    /// The number of the next contribution.
    sequence: u32,
    /// The number of the first one that may not be sent; counts only where builders grant.
    granted: u32,
    /// The next timeslice of this builder.
    next: u64,
    /// Writes that are not complete.
    writes: u32,
    /// Reports that it was sent, or missed.
    reported: u64,
    /// Its clock shall be asked for.
    asks: bool,
}

impl Connection {
    fn first_unreleased(&self) -> u32 {
        self.sequence.wrapping_sub(self.sent.len() as u32)
    }
}

/// What a policy is shown.
#[derive(Debug)]
pub(super) struct Connections {
    all: Vec<Connection>,
    layout: Arc<Layout>,
    supply: Supply,
    policy: Policy,
    slots: Slots,
}

impl Connections {
    /// How many builders there are.
    pub(super) fn builders(&self) -> usize {
        self.all.len()
    }

    /// The place of the builder of `timeslice`.
    pub(super) fn builder_of(&self, timeslice: u64) -> usize {
        self.layout.builder_of(timeslice)
    }

    /// The next timeslice of the builder at `place`.
    pub(super) fn next_of(&self, place: usize) -> u64 {
        self.all[place].next
    }

    /// Whether the next contribution to the builder at `place` could be posted now.
    ///
    /// # Errors
    /// Why not.
    pub(super) fn may_send(&self, place: usize) -> Result<(), Cause> {
        let connection = &self.all[place];
        if connection.next >= self.supply.ready() {
            return Err(Cause::NoMicroslices);
        }
        if !self.policy.is_building() {
            return if connection.writes < self.slots.for_one { Ok(()) } else { Err(Cause::NoTransmitSlot) };
        }
        if self.policy.grants() && connection.sequence == connection.granted {
            return Err(Cause::NoCredit);
        }
        let length = self.supply.pieces(connection.next).map_or(0, |pieces| pieces.length());
        if connection.ring.place(length).is_none() {
            return Err(Cause::NoCredit);
        }
        if connection.writes >= self.slots.for_one { Err(Cause::NoTransmitSlot) } else { Ok(()) }
    }
}

/// The state of an input.
#[derive(Debug)]
pub(super) struct Input {
    connections: Connections,
    policy: Box<dyn Sending>,
    outbox: Outbox,
    incarnation: u32,
    /// Builders that have not named their rings.
    silent: usize,
    begun: bool,
    told_too_long: bool,
    ending: usize,
    ended: usize,
    writes: u32,
    reached: u64,
    /// Writes that found no room: builder, number, piece.
    again: VecDeque<(u32, u32, u8)>,
    retry_at: Option<LocalNs>,
    /// The latest reports of the policy, and how many there were.
    reports: VecDeque<Report>,
    reports_made: u64,
    blocked: Blocked,
    record: InputRecord,
}

impl Input {
    pub(super) fn new(place: usize, cx: &Context<'_>) -> Self {
        let config = cx.config;
        let connection = |(place, peer): (usize, &Rank)| Connection {
            peer: *peer,
            stage: Stage::Calling,
            into: RemoteSpan { region: RegionId(0), offset: 0 },
            ring: Ring::new(0),
            sent: VecDeque::new(),
            sequence: 0,
            granted: 0,
            next: config.layout.next_of(place, 0),
            writes: 0,
            reported: 0,
            asks: false,
        };
        let all: Vec<_> = config.layout.builders().iter().enumerate().map(connection).collect();
        Self {
            policy: config.policy.sending(place, [config.layout.inputs().len(), all.len()], config.dfs),
            outbox: Outbox::new(all.len()),
            silent: all.len(),
            connections: Connections {
                all,
                layout: config.layout.clone(),
                supply: Supply::new(config.source),
                policy: config.policy,
                slots: config.slots,
            },
            incarnation: 0,
            begun: false,
            told_too_long: false,
            ending: 0,
            ended: 0,
            writes: 0,
            reached: 0,
            again: VecDeque::new(),
            retry_at: None,
            reports: VecDeque::new(),
            reports_made: 0,
            blocked: Blocked::default(),
            record: InputRecord::default(),
        }
    }

    /// What was counted since the last call.
    pub(super) fn take_record(&mut self, now: LocalNs) -> InputRecord {
        InputRecord { blocked: self.blocked.take(now), ..core::mem::take(&mut self.record) }
    }

    /// The first timeslice behind all those to which something was posted.
    pub(super) const fn reached(&self) -> u64 {
        self.reached
    }

    pub(super) fn boot(&mut self, cx: &mut Context<'_>, incarnation: u32) -> More {
        self.incarnation = incarnation;
        (0..self.connections.all.len()).for_each(|place| self.outbox.want(place));
        self.retry_at = Some(cx.now + RETRY);
        self.go_on(cx)
    }

    /// Contributions may leave as soon as every builder is there.
    pub(super) fn begin(&mut self, cx: &mut Context<'_>) -> More {
        self.begun = true;
        self.go_on(cx)
    }

    /// One more contribution.
    pub(super) fn give(&mut self, cx: &mut Context<'_>, pieces: Pieces) -> More {
        self.connections.supply.give(pieces);
        if self.silent == 0 {
            self.look_at_length(cx);
        }
        self.go_on(cx)
    }

    /// The stream ends before `timeslice`.
    pub(super) fn finish(&mut self, cx: &mut Context<'_>, timeslice: u64) -> More {
        self.connections.supply.finish(timeslice.max(self.reached));
        (0..self.connections.all.len()).for_each(|place| self.try_to_end(place));
        self.go_on(cx)
    }

    pub(super) fn arrival(&mut self, cx: &mut Context<'_>, place: usize, frame: Frame) -> More {
        match frame {
            Frame::Welcome { incarnation, ring, length } if incarnation == self.incarnation => {
                self.welcome(cx, place, ring, length);
            }
            Frame::Credit { released, granted } => self.credit(cx, place, released, granted),
            Frame::Ended => self.has_ended(cx, place),
            Frame::Proposal(proposal) => self.policy.proposed(proposal),
            Frame::Answer { asked, heard, answered } => {
                self.policy.answered(place, Exchange { asked, heard, answered, back: cx.now });
            }
            _ => self.record.strangers += 1,
        }
        self.go_on(cx)
    }

    pub(super) fn other(&mut self, cx: &mut Context<'_>, arrival: &Arrival<'_>) -> More {
        match *arrival {
            Arrival::Done { token, status, .. } => match Label::of(token) {
                Some(Label::Frame { place, kind }) => self.framed(place as usize, kind, status),
                Some(Label::Write { place, sequence, piece }) => self.written(cx, place, sequence, piece, status),
                None => {}
            },
            Arrival::Room { class, .. } if class == cx.config.control => {
                self.outbox.room();
                if cx.config.control == cx.config.class {
                    self.room(cx);
                }
            }
            Arrival::Room { class, .. } if class == cx.config.class => self.room(cx),
            _ => return More::No,
        }
        self.go_on(cx)
    }

    pub(super) fn tick(&mut self, cx: &mut Context<'_>) -> More {
        if self.retry_at.is_some_and(|at| at <= cx.now) {
            let waits = |stage| matches!(stage, Stage::Calling | Stage::Ending);
            let places = self.connections.all.iter().enumerate().filter(|(_, connection)| waits(connection.stage));
            places.for_each(|(place, _)| self.outbox.want(place));
            self.retry_at = Some(cx.now + RETRY).filter(|_| self.silent > 0 || self.ending > 0);
        }
        self.go_on(cx)
    }

    pub(super) fn deadline(&self) -> Option<LocalNs> {
        [self.retry_at, self.policy.deadline()].into_iter().flatten().min()
    }

    fn welcome(&mut self, cx: &mut Context<'_>, place: usize, ring: RemoteSpan, length: u64) {
        let connection = &mut self.connections.all[place];
        if connection.stage == Stage::Calling {
            (connection.stage, connection.into, connection.ring) = (Stage::Open, ring, Ring::new(length));
            self.silent -= 1;
            if self.silent == 0 {
                self.retry_at = None;
                self.policy.began(cx.now);
                cx.out.tell(Event::Ready);
                self.look_at_length(cx);
                (0..self.connections.all.len()).for_each(|place| self.try_to_end(place));
            }
        }
    }

    fn credit(&mut self, cx: &mut Context<'_>, place: usize, released: u32, granted: u32) {
        let connection = &mut self.connections.all[place];
        let newly = released.wrapping_sub(connection.first_unreleased());
        if newly < HALF {
            if newly as usize > connection.sent.len() {
                // It speaks of what was never sent.
                self.record.strangers += 1;
                return;
            }
            let mut free = None;
            for sent in connection.sent.drain(..newly as usize) {
                connection.ring.release(sent.place.end);
                free = self.connections.supply.release(sent.timeslice).or(free);
                self.policy.released(cx.now, sent.timeslice);
            }
            self.record.released += u64::from(newly);
            if let Some(timeslice) = free {
                cx.out.tell(Event::Free { timeslice });
            }
        }
        let more = granted.wrapping_sub(connection.granted);
        if more > 0 && more < HALF {
            connection.granted = granted;
            self.policy.granted(place, more);
        }
        self.try_to_end(place);
    }

    /// Says so when there is a contribution that no ring will ever hold.
    fn look_at_length(&mut self, cx: &mut Context<'_>) {
        let shortest = self.connections.all.iter().map(|connection| connection.ring.length()).min().unwrap_or(0);
        let bytes = self.connections.supply.longest();
        if bytes > shortest && cx.config.policy.is_building() && !self.told_too_long {
            self.told_too_long = true;
            cx.out.tell(Event::TooLong { bytes, ring: shortest });
        }
    }

    /// Tells the builder at `place` that the stream has ended, if it has.
    fn try_to_end(&mut self, place: usize) {
        let Some(end) = self.connections.supply.end() else { return };
        let connection = &mut self.connections.all[place];
        let is_over = connection.next >= end && connection.sent.is_empty() && connection.writes == 0;
        if connection.stage == Stage::Open && is_over {
            connection.stage = Stage::Ending;
            self.ending += 1;
            self.outbox.want(place);
        }
    }

    fn has_ended(&mut self, cx: &mut Context<'_>, place: usize) {
        let connection = &mut self.connections.all[place];
        if connection.stage == Stage::Ending {
            connection.stage = Stage::Ended;
            self.ending -= 1;
            self.ended += 1;
            if self.ended == self.connections.all.len() {
                cx.out.tell(Event::Ended);
            }
        }
    }

    /// Does everything that can be done now.
    fn go_on(&mut self, cx: &mut Context<'_>) -> More {
        let more = self.post_contributions(cx);
        while let Some(report) = self.policy.report() {
            self.take_report(report);
        }
        if let Some(place) = self.policy.asks() {
            self.connections.all[place].asks = true;
            self.outbox.want(place);
        }
        self.send_frames(cx);
        if self.ending > 0 {
            self.retry_at.get_or_insert(cx.now + RETRY);
        }
        more
    }

    fn post_contributions(&mut self, cx: &mut Context<'_>) -> More {
        if !self.begun || self.silent > 0 {
            return More::No;
        }
        for _ in 0..TURNS_MAX {
            if cx.out.room() < PIECES_MAX {
                return More::Yes;
            }
            let slot = self.again.is_empty() && self.writes < cx.config.slots.in_all;
            let choice = if slot {
                self.policy.choose(cx.now, &self.connections)
            } else {
                Choice::Blocked(Cause::NoTransmitSlot)
            };
            match choice {
                Choice::Post(place) => {
                    self.blocked.turn(cx.now, None);
                    let timeslice = self.connections.next_of(place);
                    self.post(cx, place);
                    self.policy.posted(cx.now, timeslice);
                }
                Choice::Blocked(cause) => {
                    self.blocked.turn(cx.now, Some(cause));
                    return More::No;
                }
            }
        }
        More::Yes
    }

    /// Writes the next contribution to the builder at `place`, which has room.
    fn post(&mut self, cx: &mut Context<'_>, place: usize) {
        let connection = &mut self.connections.all[place];
        let (timeslice, sequence) = (connection.next, connection.sequence);
        let Some(pieces) = self.connections.supply.pieces(timeslice) else { return };
        if cx.config.policy.is_building() {
            let Some(at) = connection.ring.place(pieces.length()) else { return };
            connection.ring.take(at);
            connection.sent.push_back(Sent { timeslice, place: at });
        }
        connection.sequence = sequence.wrapping_add(1);
        connection.next = self.connections.layout.next_of(place, timeslice + 1);
        self.reached = self.reached.max(timeslice + 1);
        self.record.contributions += 1;
        self.record.bytes += pieces.length();
        for piece in 0..pieces.spans().len() as u8 {
            self.write(cx, place, sequence, piece);
        }
    }

    /// Posts one write of contribution `sequence` to the builder at `place`.
    fn write(&mut self, cx: &mut Context<'_>, place: usize, sequence: u32, piece: u8) {
        let connection = &mut self.connections.all[place];
        let (timeslice, offset) = if cx.config.policy.is_building() {
            let behind = sequence_between(connection.first_unreleased(), sequence);
            let Some(sent) = connection.sent.get(behind as usize) else { return };
            (sent.timeslice, sent.place.offset)
        } else {
            (0, 0)
        };
        let Some(pieces) = self.connections.supply.pieces(timeslice) else { return };
        let spans = pieces.spans();
        let before: u64 = spans[..usize::from(piece)].iter().map(|span| u64::from(span.length)).sum();
        let RemoteSpan { region, offset: ring } = connection.into;
        cx.out.operate(Operation::Write {
            to: connection.peer,
            path: PathId(0),
            class: cx.config.class,
            from: spans[usize::from(piece)],
            into: RemoteSpan { region, offset: ring.saturating_add(offset + before) },
            immediate: Mark::new(timeslice, sequence, spans.len() as u8).word(),
            token: Some(Label::Write { place: place as u32, sequence, piece }.token()),
        });
        connection.writes += 1;
        self.writes += 1;
    }

    /// A header has left, or has not.
    fn framed(&mut self, place: usize, kind: u8, status: Status) {
        if kind == Frame::REPORT
            && status == Status::NoRoom
            && let Some(connection) = self.connections.all.get_mut(place)
        {
            connection.reported -= 1;
        }
        // A question that found no room is not repeated: the next one is not far.
        self.outbox.done(place, status);
    }

    /// A write is over.
    fn written(&mut self, cx: &mut Context<'_>, place: u32, sequence: u32, piece: u8, status: Status) {
        let Some(connection) = self.connections.all.get_mut(place as usize) else { return };
        connection.writes = connection.writes.saturating_sub(1);
        self.writes = self.writes.saturating_sub(1);
        match status {
            Status::NoRoom => self.again.push_back((place, sequence, piece)),
            Status::Refused(missing) => cx.out.tell(Event::Refused { peer: connection.peer, missing }),
            _ => self.try_to_end(place as usize),
        }
    }

    /// Writes that found no room try again.
    fn room(&mut self, cx: &mut Context<'_>) {
        for _ in 0..self.again.len() {
            if let Some((place, sequence, piece)) = self.again.pop_front() {
                self.write(cx, place as usize, sequence, piece);
            }
        }
    }

    /// Every builder shall know `report`. Builders that are more than [`REPORTS_MAX`] behind miss some.
    fn take_report(&mut self, report: Report) {
        if self.reports.len() == REPORTS_MAX {
            self.reports.pop_front();
        }
        self.reports.push_back(report);
        self.reports_made += 1;
        (0..self.connections.all.len()).for_each(|place| self.outbox.want(place));
    }

    /// The next report for the builder at `place`.
    fn next_report(&mut self, place: usize) -> Option<Report> {
        let first = self.reports_made - self.reports.len() as u64;
        let connection = &mut self.connections.all[place];
        let next = connection.reported.max(first);
        let report = self.reports.get((next - first) as usize).copied()?;
        connection.reported = next + 1;
        Some(report)
    }

    fn send_frames(&mut self, cx: &mut Context<'_>) {
        while cx.out.room() > 0
            && let Some(place) = self.outbox.next()
        {
            let Connection { peer, stage, asks, .. } = self.connections.all[place];
            let frame = match stage {
                Stage::Calling => Frame::Hello { incarnation: self.incarnation },
                Stage::Ending => Frame::End { timeslices: self.connections.supply.end().unwrap_or(0) },
                Stage::Open if asks => {
                    self.connections.all[place].asks = false;
                    Frame::Ask { asked: cx.now }
                }
                Stage::Open | Stage::Ended => match self.next_report(place) {
                    Some(report) => Frame::Report(report),
                    None => {
                        self.outbox.nothing(place);
                        continue;
                    }
                },
            };
            cx.send(peer, place, frame);
            if self.connections.all[place].reported < self.reports_made {
                self.outbox.want(place);
            }
        }
    }
}
