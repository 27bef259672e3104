//! A member that is not the root: puts symbols where they belong, tells what is whole, and serves
//! others.
//!
//! # Model
//! A symbol is copied to its place and digested there; only what the root's memory held is kept. A
//! member that is asked for what is missing serves what it has; what it has not it gets for itself
//! first, and then hands on.
//!
//! # Invariants
//! I1. Objects are reported in order, once, whole, and only after every byte was found to be the
//!     root's.
//!
//! # Not here
//! What is asked for (`repair`), and what is said of it (`report_sender`).

use alloc::vec;
use alloc::vec::Vec;

use super::child_reports::is_later;
use super::context::BroadcastEvent;
use super::frame::{
    Algorithm, Announce, BlockNack, BroadcastFrame, Nacks, ObjectExtent, Poll, Preamble, Symbol,
};
use super::objects::{OPEN_MAX, Object, Size};
use super::receive_window::HeldSymbol;
use super::repair::{PollOrdering, RepairRequests};
use super::report_sender::{ApplicationCredit, ReportSender};
use super::state::{MemberState, NEVER};
use crate::base::{LocalNs, Nanos};
use crate::wire::{Operation, Out, Span};

/// Where a message came from.
#[derive(Clone, Copy, Debug)]
pub(super) struct Sender<'a> {
    pub(super) place: u16,
    pub(super) preamble: &'a Preamble,
    pub(super) body: Span,
}

/// The receiver's own state.
#[derive(Debug)]
pub(super) struct Receiver {
    /// Slots for short messages, and how many messages were taken out of theirs.
    slots: u32,
    released: u32,
    /// Places by the number of the long object modulo their count, and how many were given.
    places: Vec<Option<Span>>,
    given: u32,
    /// The next long object to announce.
    announced: u32,
    /// The next object to report, how many before it were short messages, and how many up to each
    /// of the last objects.
    reported: u32,
    shorts: u32,
    shorts_at: Vec<(u32, u32)>,
    asking: RepairRequests,
    reporting: ReportSender,
    /// The application, or a place too short, wants the cast to end.
    aborting: bool,
    /// When the root last gave a sign of life.
    pub(super) root_heard: LocalNs,
}

impl Receiver {
    pub(super) fn new(state: &MemberState, now: LocalNs) -> Self {
        Self {
            slots: state.config.slots.length / state.config.symbol.max(1),
            released: 0,
            places: vec![None; OPEN_MAX as usize],
            given: 0,
            announced: 0,
            reported: 0,
            shorts: 0,
            shorts_at: vec![(0, 0); OPEN_MAX as usize],
            asking: RepairRequests::new(now),
            reporting: ReportSender::new(),
            aborting: false,
            root_heard: now,
        }
    }

    /// Handles a message of a member that takes part.
    pub(super) fn frame(
        &mut self,
        state: &mut MemberState,
        now: LocalNs,
        from: &Sender<'_>,
        frame: &BroadcastFrame,
        out: &mut Out<BroadcastEvent>,
    ) {
        let Sender { place, preamble, body } = *from;
        match frame {
            BroadcastFrame::Data(symbol) => {
                let relay = state.brings(place, preamble);
                if relay && state.turn(preamble.algorithm, symbol.sequence) {
                    self.asking.restart(now);
                }
                self.symbol(state, now, relay.then_some(preamble.algorithm), symbol, body, out);
                let is_behind = preamble.to_group;
                let order = if is_behind {
                    PollOrdering::Behind(symbol.sequence + 1)
                } else {
                    PollOrdering::Loose
                };
                self.asked_by(state, now, preamble.poll, order, out);
            }
            BroadcastFrame::Announce(announce) => {
                if preamble.hand_down {
                    state.send_down(frame, 0, None, out);
                }
                self.announced(state, announce, out);
            }
            BroadcastFrame::Poll(poll) => {
                let is_new = preamble.poll == 0 || is_later(preamble.poll, state.reports.poll());
                if is_new && state.turn(preamble.algorithm, poll.edge) {
                    self.asking.restart(now);
                }
                self.polled(state, now, preamble, poll, out);
            }
            BroadcastFrame::Status(report) => {
                state.record.reports += 1;
                if state.reports.take(place, preamble.poll, *report, now) {
                    self.reported(state, place, report.known, now, out);
                }
            }
            BroadcastFrame::Need(needs) => self.needed(state, place, needs, now, out),
            _ => {}
        }
    }

    /// Records a message of the root, which perhaps came through the group and was perhaps marked
    /// by the network.
    pub(super) fn packet_received(&mut self, to_group: bool, is_marked: bool, now: LocalNs) {
        self.root_heard = now;
        self.reporting.packet_received(to_group, is_marked);
    }

    /// Handles a symbol, which is handed on along `relay`.
    fn symbol(
        &mut self,
        state: &mut MemberState,
        now: LocalNs,
        relay: Option<Algorithm>,
        symbol: &Symbol,
        body: Span,
        out: &mut Out<BroadcastEvent>,
    ) {
        let sequence = symbol.sequence;
        self.asking.symbol_arrived(sequence, now);
        state.release(sequence.saturating_sub(u64::from(symbol.behind)), out);
        if state.holding.is_placed(sequence) {
            state.record.doubled += 1;
            return;
        }
        if !state.holding.covers(sequence) || body.length != u32::from(symbol.length) {
            return;
        }
        let Some(into) = self.destination(state, symbol) else {
            state.record.early += 1;
            return;
        };
        let highest = state.holding.highest();
        self.reporting.missed(sequence.saturating_sub(highest));
        state.holding.place(sequence, HeldSymbol { crc: symbol.crc, object: symbol.object, relay });
        state.edge = state.edge.max(sequence + 1);
        if into.length > 0 {
            out.operate(Operation::Copy { from: body, into });
        }
        MemberState::digest(into, sequence, out);
    }

    /// Returns where a symbol belongs.
    fn destination(&self, state: &mut MemberState, symbol: &Symbol) -> Option<Span> {
        if symbol.extent == ObjectExtent::Short {
            state.objects.insert(self.message(state, symbol)?).then_some(())?;
        }
        let object = state.objects.get(symbol.object)?;
        let span = object.span(symbol.sequence, state.config.symbol)?;
        (span.length == u32::from(symbol.length)).then_some(span)
    }

    /// Returns a short message as an object, if its slot is free.
    fn message(&self, state: &MemberState, symbol: &Symbol) -> Option<Object> {
        let (length, symbol_length) = (u32::from(symbol.length), u64::from(state.config.symbol));
        symbol.number.checked_sub(self.released).filter(|ahead| *ahead < self.slots)?;
        let slot = u64::from(symbol.number % self.slots);
        let Span { region, offset, .. } = state.config.slots;
        let at = Some(Span { region, offset: offset + slot * symbol_length, length });
        let (number, first, length) = (symbol.object, symbol.sequence, u64::from(length));
        (length <= symbol_length).then_some(Object {
            number,
            first,
            length,
            size: Size::Short(symbol.number),
            at,
        })
    }

    /// Handles the digest of a symbol's place.
    pub(super) fn digested(
        &mut self,
        state: &mut MemberState,
        now: LocalNs,
        sequence: u64,
        crc: u32,
        out: &mut Out<BroadcastEvent>,
    ) {
        if !state.holding.awaits(sequence) {
            return;
        }
        let fact = state.holding.fact(sequence);
        if fact.crc != crc {
            state.holding.discard(sequence);
            state.record.damaged += 1;
            self.asking.damaged(state, sequence, out);
            return;
        }
        let received = state.holding.received();
        state.holding.keep(sequence);
        state.record.received += 1;
        self.reporting.kept();
        if let Some(way) = fact.relay {
            state.hand_on(sequence, way);
        }
        self.notify(state, out);
        self.asking.kept(state, sequence, received, now);
        self.reporting.came(state, self.credit(state), now, out);
    }

    fn credit(&self, state: &MemberState) -> ApplicationCredit {
        // Others may still be served from the slot of a message that is not stable.
        let slots = self.released.min(state.shorts_stable).saturating_add(self.slots);
        ApplicationCredit { slots, places: self.given, all: self.slots }
    }

    fn notify(&mut self, state: &MemberState, out: &mut Out<BroadcastEvent>) {
        while self.reported < state.aborted
            && let Some(object) = state.objects.get(self.reported)
            && object.end(state.config.symbol) <= state.holding.received()
            && let Some(at) = object.at
        {
            out.notify(BroadcastEvent::Received {
                object: self.reported,
                at: Span { length: object.length as u32, ..at },
            });
            self.shorts += u32::from(matches!(object.size, Size::Short(_)));
            self.shorts_at[(self.reported % OPEN_MAX) as usize] = (self.reported, self.shorts);
            self.reported += 1;
        }
    }

    /// Handles the announcement of a long object.
    pub(super) fn announced(
        &mut self,
        state: &mut MemberState,
        announce: &Announce,
        out: &mut Out<BroadcastEvent>,
    ) {
        let Announce { object, first, length, number } = *announce;
        if !state.objects.covers(object)
            || state.objects.get(object).is_some()
            || length > u64::from(u32::MAX)
        {
            return;
        }
        if !state.objects.insert(Object {
            number: object,
            first,
            length,
            size: Size::Long(number),
            at: None,
        }) {
            return;
        }
        if let Some(place) =
            self.places[(number % OPEN_MAX) as usize].filter(|_| number < self.given)
        {
            self.put(state, number, place, object, length, out);
        }
        self.notify_announced(state, out);
    }

    /// Tells of long objects in order, so that places can be given in order.
    fn notify_announced(&mut self, state: &MemberState, out: &mut Out<BroadcastEvent>) {
        let next =
            |number: u32| state.objects.all().find(move |object| object.size == Size::Long(number));
        while let Some(object) = next(self.announced) {
            if self.announced >= self.given {
                out.notify(BroadcastEvent::Announced {
                    object: object.number,
                    length: object.length,
                });
            }
            self.announced += 1;
        }
    }

    /// Takes the application's place for the next long object.
    pub(super) fn place(
        &mut self,
        state: &mut MemberState,
        now: LocalNs,
        into: Span,
        out: &mut Out<BroadcastEvent>,
    ) {
        let number = self.given;
        if self.places[(number % OPEN_MAX) as usize].is_some() {
            out.notify(BroadcastEvent::TryAgain { from: into });
            return;
        }
        self.places[(number % OPEN_MAX) as usize] = Some(into);
        self.given += 1;
        let waits = |object: &&Object| object.size == Size::Long(number);
        let waiting = state.objects.all().find(waits).copied();
        if let Some(Object { number: object, length, .. }) = waiting {
            self.put(state, number, into, object, length, out);
        }
        // Somebody may wait for the place: the report must not wait.
        self.reporting.soon(now, Nanos::ZERO);
    }

    fn put(
        &mut self,
        state: &mut MemberState,
        number: u32,
        into: Span,
        object: u32,
        length: u64,
        out: &mut Out<BroadcastEvent>,
    ) {
        self.places[(number % OPEN_MAX) as usize] = None;
        if state.objects.give_place(number, into).is_none() {
            out.notify(BroadcastEvent::TooLong { object, length });
            self.abort(state, out);
        }
    }

    /// Frees the slots of this message and of all before it: the application has taken them.
    pub(super) fn release(&mut self, state: &MemberState, now: LocalNs, object: u32) {
        let (reported, shorts) = self.shorts_at[(object % OPEN_MAX) as usize];
        if reported == object && object < self.reported {
            self.released = self.released.max(shorts);
            self.reporting.freed(state, self.credit(state), now);
        }
    }

    /// Ends the cast, because this member wants it.
    pub(super) fn abort(&mut self, state: &MemberState, out: &mut Out<BroadcastEvent>) {
        self.aborting = true;
        if state.aborted == NEVER {
            state.send(state.view.root(), &BroadcastFrame::Abort { object: NEVER }, 0, out);
        }
    }

    /// Handles a poll: the root, or a member in its place, says where it is.
    pub(super) fn polled(
        &mut self,
        state: &mut MemberState,
        now: LocalNs,
        preamble: &Preamble,
        poll: &Poll,
        out: &mut Out<BroadcastEvent>,
    ) {
        state.release(poll.stable, out);
        state.abort_at(poll.aborted, out);
        state.edge = state.edge.max(poll.edge);
        state.reports.record_trip(Nanos(u64::from(poll.trip)));
        if preamble.hand_down {
            state.send_down(&BroadcastFrame::Poll(*poll), preamble.poll, None, out);
        }
        self.asked_by(state, now, preamble.poll, PollOrdering::Loose, out);
    }

    /// Records a poll with this number, which came alone or with a symbol.
    fn asked_by(
        &mut self,
        state: &mut MemberState,
        now: LocalNs,
        poll: u16,
        order: PollOrdering,
        out: &mut Out<BroadcastEvent>,
    ) {
        if poll == 0 || !is_later(poll, state.reports.poll()) {
            return;
        }
        state.reports.polled(poll, now);
        // Any member may have handed it down, only the root can have asked.
        self.root_heard = now;
        if self.aborting {
            self.abort(state, out);
        }
        // Before what is asked for: repairs of an object that is not known here are worth nothing,
        // and the report says so.
        self.reporting.polled(state, self.credit(state), now, out);
        self.asking.polled(state, order, now, out);
    }

    /// Enters another view: what was said in the one before counts no more, and what had ended
    /// before has ended in this one.
    pub(super) fn viewed(
        &mut self,
        state: &MemberState,
        now: LocalNs,
        out: &mut Out<BroadcastEvent>,
    ) {
        self.root_heard = now;
        self.asking.restart(now);
        self.reporting.restart(now);
        if state.aborted != NEVER {
            state.send(state.view.root(), &BroadcastFrame::Abort { object: state.aborted }, 0, out);
        }
    }

    /// Handles the report of a member below.
    pub(super) fn reported(
        &mut self,
        state: &mut MemberState,
        place: u16,
        known: u32,
        now: LocalNs,
        out: &mut Out<BroadcastEvent>,
    ) {
        for object in known..state.objects.known().min(known.saturating_add(4)) {
            if let Some(frame) = state.announcement(object) {
                state.send(place, &frame, 0, out);
            }
        }
        let credit = self.credit(state);
        self.reporting.came(state, credit, now, out);
        self.reporting.freed(state, credit, now);
    }

    /// Serves a member below that misses something: what is here leaves, the rest when it is. A
    /// successor root also learns what is here.
    pub(super) fn needed(
        &mut self,
        state: &mut MemberState,
        place: u16,
        needs: &Nacks,
        now: LocalNs,
        out: &mut Out<BroadcastEvent>,
    ) {
        let Some(line) = state.outgoing.line(Some(place)) else { return };
        if place == state.view.root() {
            for need in needs.iter() {
                let held = state.holding.held(need.block);
                state.send(place, &BroadcastFrame::Have { block: need.block, held }, 0, out);
            }
        }
        // A symbol that comes to that one from elsewhere anyway is not kept in mind for it; a
        // neighbour asks elsewhere soon.
        let hands_on = match state.algorithm {
            Algorithm::Multicast => state.links.children.contains(&place),
            Algorithm::Chain => state.links.after == Some(place),
            Algorithm::Tree => state.links.juniors.contains(&place),
            Algorithm::Segments => {
                state.links.after == Some(place) || state.links.children.contains(&place)
            }
        };
        let timeout = state.repair_timeout();
        for need in needs.iter().filter(|need| state.holding.is_inside(need.block)) {
            let held = state.holding.held(need.block);
            let missing = if hands_on { need.missing } else { need.missing & held };
            let fresh = if state.algorithm == Algorithm::Multicast {
                0
            } else {
                !held | state.turned(need.block)
            };
            state.outgoing.repair(line, BlockNack { missing, ..need }, fresh, now, timeout);
        }
    }

    pub(super) fn tick(
        &mut self,
        state: &mut MemberState,
        now: LocalNs,
        out: &mut Out<BroadcastEvent>,
    ) {
        self.asking.tick(state, now, out);
        self.reporting.tick(state, self.credit(state), now, out);
    }

    pub(super) fn deadline(&self) -> Option<LocalNs> {
        [self.asking.deadline(), self.reporting.deadline()].into_iter().flatten().min()
    }
}
