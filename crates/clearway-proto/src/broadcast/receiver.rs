//! A member that is not the root: puts symbols where they belong, tells what is whole, asks for what is missing, and reports for
//! itself and those below it.
//!
//! # Model
//! A symbol is copied to its place and digested there; only what the root's memory held is kept. A gap is asked for when three
//! newer symbols are here and a quarter of a round trip has passed, and at once when a poll says that everything below its edge
//! has left. Requests go to the neighbour from whom symbols come, who serves what it has; what it has not it gets for itself
//! first, and then hands on.
//!
//! # Invariants
//! I1. Objects are told in order, once, whole, and only after every byte was found to be the root's.

use alloc::vec;
use alloc::vec::Vec;

use super::context::{Event, Laggards};
use super::frame::{Announce, Extent, Frame, Need, Needs, Poll, Preamble, Report, Symbol, Way};
use super::holding::Fact;
use super::objects::{OPEN_MAX, Object, Size};
use super::reports::is_later;
use super::state::{NEVER, State};
use crate::base::{LocalNs, Nanos};
use crate::wire::{Operation, Out, Span};

/// Newer symbols behind a gap before it is taken for one: three, as for TCP (RFC 5681).
const REORDER: u64 = 3;
/// Messages of needs in one go: a quarter of the largest window; the next poll asks for the rest.
const NEEDS: usize = 4;

/// Who is asked for what is missing.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Whom {
    /// From whom symbols come.
    Source,
    /// To whom this member reports: where the other one does not help.
    Parent,
}

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
    /// The next long object to be told of.
    announced: u32,
    /// The next object to be told, how many before it were short messages, and how many up to each of the last objects.
    told: u32,
    shorts: u32,
    shorts_at: Vec<(u32, u32)>,
    /// Gaps below were asked for, and when the others will be.
    asked: u64,
    ask_at: Option<LocalNs>,
    /// When `received` last moved: without progress it is another one who is asked.
    moved_at: LocalNs,
    /// When a report is due, and what the last one said.
    report_at: Option<LocalNs>,
    reported: Option<Report>,
    /// Messages that came through the group, symbols that were missed at first and were marked, since the beginning.
    heard: u32,
    missed: u64,
    marked: u64,
    new: u64,
    counted: [u64; 3],
    rates: [u32; 2],
    /// Since when it is far behind, and whether the others go on without waiting for it.
    behind_since: Option<LocalNs>,
    is_parked: bool,
    /// The application, or a place too short, wants the cast to end.
    aborting: bool,
    /// When the root last gave a sign of life.
    pub(super) root_heard: LocalNs,
}

impl Receiver {
    pub(super) fn new(state: &State, now: LocalNs) -> Self {
        Self {
            slots: state.config.slots.length / state.config.symbol.max(1),
            released: 0,
            places: vec![None; OPEN_MAX as usize],
            given: 0,
            announced: 0,
            told: 0,
            shorts: 0,
            shorts_at: vec![(0, 0); OPEN_MAX as usize],
            asked: 0,
            ask_at: None,
            moved_at: now,
            report_at: None,
            reported: None,
            heard: 0,
            missed: 0,
            marked: 0,
            new: 0,
            counted: [0; 3],
            rates: [0; 2],
            behind_since: None,
            is_parked: false,
            aborting: false,
            root_heard: now,
        }
    }

    /// A message of somebody who takes part.
    pub(super) fn frame(
        &mut self,
        state: &mut State,
        now: LocalNs,
        from: &Sender<'_>,
        frame: &Frame,
        out: &mut Out<Event>,
    ) {
        let Sender { place, preamble, body } = *from;
        match frame {
            Frame::Data(symbol) => {
                state.way = preamble.way;
                self.symbol(state, preamble.way, symbol, body, out);
                self.asked_by(state, now, preamble.poll, out);
            }
            Frame::Announce(announce) => {
                if preamble.hand_down {
                    state.send_down(frame, 0, None, out);
                }
                self.announced(state, announce, out);
            }
            Frame::Poll(poll) => {
                state.way = preamble.way;
                self.polled(state, now, preamble, poll, out);
            }
            Frame::Status(report) => {
                state.record.reports += 1;
                if state.reports.take(place, preamble.poll, *report, now) {
                    self.reported(state, place, report.known, now, out);
                }
            }
            Frame::Need(needs) => self.needed(state, place, needs, now, out),
            _ => {}
        }
    }

    /// A message of the root came, perhaps through the group, perhaps marked by the network.
    pub(super) fn heard(&mut self, to_group: bool, is_marked: bool, now: LocalNs) {
        self.root_heard = now;
        self.heard = self.heard.saturating_add(u32::from(to_group));
        self.marked += u64::from(is_marked);
    }

    /// A symbol came.
    pub(super) fn symbol(&mut self, state: &mut State, way: Way, symbol: &Symbol, body: Span, out: &mut Out<Event>) {
        let sequence = symbol.sequence;
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
        self.missed += sequence.saturating_sub(highest);
        state.holding.place(sequence, Fact { crc: symbol.crc, object: symbol.object, way });
        state.edge = state.edge.max(sequence + 1);
        if into.length > 0 {
            out.operate(Operation::Copy { from: body, into });
        }
        State::digest(into, sequence, out);
    }

    /// Where a symbol belongs.
    fn destination(&self, state: &mut State, symbol: &Symbol) -> Option<Span> {
        if symbol.extent == Extent::Short {
            state.objects.insert(self.message(state, symbol)?).then_some(())?;
        }
        let object = state.objects.get(symbol.object)?;
        let span = object.span(symbol.sequence, state.config.symbol)?;
        (span.length == u32::from(symbol.length)).then_some(span)
    }

    /// A short message as an object, if its slot is free.
    fn message(&self, state: &State, symbol: &Symbol) -> Option<Object> {
        let (length, symbol_length) = (u32::from(symbol.length), u64::from(state.config.symbol));
        symbol.number.checked_sub(self.released).filter(|ahead| *ahead < self.slots)?;
        let slot = u64::from(symbol.number % self.slots);
        let Span { region, offset, .. } = state.config.slots;
        let at = Some(Span { region, offset: offset + slot * symbol_length, length });
        let (number, first, length) = (symbol.object, symbol.sequence, u64::from(length));
        (length <= symbol_length).then_some(Object { number, first, length, size: Size::Short(symbol.number), at })
    }

    /// The digest of a symbol's place is there.
    pub(super) fn digested(&mut self, state: &mut State, now: LocalNs, sequence: u64, crc: u32, out: &mut Out<Event>) {
        if !state.holding.awaits(sequence) {
            return;
        }
        let fact = state.holding.fact(sequence);
        if fact.crc != crc {
            state.holding.discard(sequence);
            state.record.damaged += 1;
            self.ask(state, sequence, sequence + 1, Whom::Source, out);
            return;
        }
        let received = state.holding.received();
        state.holding.keep(sequence);
        if state.holding.received() > received {
            self.moved_at = now;
        }
        state.record.received += 1;
        self.new += 1;
        state.hand_on(sequence, fact.way);
        self.tell(state, out);
        let newer = state.holding.highest().saturating_sub(REORDER);
        if self.ask_at.is_none() && state.holding.received().max(self.asked) < newer {
            self.ask_at = Some(now + Nanos(state.quiet().0 / 4));
        }
        self.report_if_whole(state, now, out);
    }

    fn tell(&mut self, state: &State, out: &mut Out<Event>) {
        while self.told < state.aborted
            && let Some(object) = state.objects.get(self.told)
            && object.end(state.config.symbol) <= state.holding.received()
            && let Some(at) = object.at
        {
            out.tell(Event::Received { object: self.told, at: Span { length: object.length as u32, ..at } });
            self.shorts += u32::from(matches!(object.size, Size::Short(_)));
            self.shorts_at[(self.told % OPEN_MAX) as usize] = (self.told, self.shorts);
            self.told += 1;
        }
    }

    /// A long object was announced.
    pub(super) fn announced(&mut self, state: &mut State, announce: &Announce, out: &mut Out<Event>) {
        let Announce { object, first, length, number } = *announce;
        if !state.objects.covers(object) || state.objects.get(object).is_some() || length > u64::from(u32::MAX) {
            return;
        }
        if !state.objects.insert(Object { number: object, first, length, size: Size::Long(number), at: None }) {
            return;
        }
        if let Some(place) = self.places[(number % OPEN_MAX) as usize].filter(|_| number < self.given) {
            self.put(state, number, place, object, length, out);
        }
        self.tell_announced(state, out);
    }

    /// Tells of long objects in order, so that places can be given in order.
    fn tell_announced(&mut self, state: &State, out: &mut Out<Event>) {
        let next = |number: u32| state.objects.all().find(move |object| object.size == Size::Long(number));
        while let Some(object) = next(self.announced) {
            if self.announced >= self.given {
                out.tell(Event::Announced { object: object.number, length: object.length });
            }
            self.announced += 1;
        }
    }

    /// The application has a place for the next long object.
    pub(super) fn place(&mut self, state: &mut State, now: LocalNs, into: Span, out: &mut Out<Event>) {
        let number = self.given;
        if self.places[(number % OPEN_MAX) as usize].is_some() {
            out.tell(Event::TryAgain { from: into });
            return;
        }
        self.places[(number % OPEN_MAX) as usize] = Some(into);
        self.given += 1;
        let waits = |object: &&Object| object.size == Size::Long(number);
        let waiting = state.objects.all().find(waits).copied();
        if let Some(Object { number: object, length, .. }) = waiting {
            self.put(state, number, into, object, length, out);
        }
        // A place that somebody may wait for is told at once.
        self.report_at.get_or_insert(now);
    }

    fn put(&mut self, state: &mut State, number: u32, into: Span, object: u32, length: u64, out: &mut Out<Event>) {
        self.places[(number % OPEN_MAX) as usize] = None;
        if state.objects.give_place(number, into).is_none() {
            out.tell(Event::TooLong { object, length });
            self.abort(state, out);
        }
    }

    /// The application has taken this message and all before it out of their slots.
    pub(super) fn release(&mut self, state: &State, now: LocalNs, object: u32) {
        let (told, shorts) = self.shorts_at[(object % OPEN_MAX) as usize];
        if told == object && object < self.told {
            self.released = self.released.max(shorts);
            self.report_if_blocked(state, now);
        }
    }

    /// This member wants the cast to end.
    pub(super) fn abort(&mut self, state: &State, out: &mut Out<Event>) {
        self.aborting = true;
        if state.aborted == NEVER {
            state.send(state.view.root(), &Frame::Abort { object: NEVER }, 0, out);
        }
    }

    /// The root, or somebody for it, says where it is.
    pub(super) fn polled(
        &mut self,
        state: &mut State,
        now: LocalNs,
        preamble: &Preamble,
        poll: &Poll,
        out: &mut Out<Event>,
    ) {
        state.release(poll.stable, out);
        state.abort_at(poll.aborted, out);
        state.edge = state.edge.max(poll.edge);
        if preamble.hand_down {
            state.send_down(&Frame::Poll(*poll), preamble.poll, None, out);
        }
        self.asked_by(state, now, preamble.poll, out);
    }

    /// A poll with this number came, alone or with a symbol.
    pub(super) fn asked_by(&mut self, state: &mut State, now: LocalNs, poll: u16, out: &mut Out<Event>) {
        if poll == 0 || !is_later(poll, state.reports.poll()) {
            return;
        }
        state.reports.polled(poll, now);
        // Whoever handed it down, only the root can have asked.
        self.root_heard = now;
        if self.aborting {
            self.abort(state, out);
        }
        self.park(state, now);
        // Before what is asked for: repairs of an object that is not known here are worth nothing, and the report says so.
        if state.links.children.is_empty() {
            self.report(state, now, out);
        } else {
            self.report_at = Some(now + Nanos(state.quiet().0 / 2));
        }
        let edge = state.edge.min(state.end().unwrap_or(u64::MAX));
        if state.holding.received() < edge {
            let whom = if now.since(self.moved_at) > state.reports.time_out() { Whom::Parent } else { Whom::Source };
            self.ask(state, 0, edge, whom, out);
        }
    }

    /// Leaves the others alone, or comes back to them, by how far behind this member is and for how long.
    fn park(&mut self, state: &State, now: LocalNs) {
        let Laggards::Park(patience) = state.config.laggards else { return };
        let behind = state.edge.saturating_sub(state.holding.received());
        let most = u64::from(state.config.window / 2);
        match self.behind_since {
            _ if behind < most => (self.behind_since, self.is_parked) = (None, false),
            None => self.behind_since = Some(now),
            Some(since) => self.is_parked = now.since(since) > patience,
        }
    }

    /// Another view: what was said in the one before counts no more, and what had ended before has ended in this one.
    pub(super) fn viewed(&mut self, state: &State, now: LocalNs, out: &mut Out<Event>) {
        self.root_heard = now;
        self.reported = None;
        self.report_at = Some(now);
        if state.aborted != NEVER {
            state.send(state.view.root(), &Frame::Abort { object: state.aborted }, 0, out);
        }
    }

    /// Asks for what is missing from sequence `from` on below `edge`.
    fn ask(&mut self, state: &State, from: u64, edge: u64, whom: Whom, out: &mut Out<Event>) {
        let near = match (whom, state.way) {
            (Whom::Source, Way::Chain) => state.links.before,
            (Whom::Source, Way::Tree) => state.links.elder,
            _ => None,
        };
        let Some(place) = near.or(state.links.parent) else { return };
        let mut messages = 0;
        let mut needs = Needs::default();
        for block in state.holding.gaps(edge) {
            let missing = state.holding.missing(block, edge) & !super::holding::below(block, from);
            if missing == 0 {
                continue;
            }
            let need = Need { block, members: 1 + state.outgoing.waiting(block), missing };
            if !needs.push(need) {
                state.send(place, &Frame::Need(needs), 0, out);
                messages += 1;
                needs = Needs::default();
                needs.push(need);
            }
            if messages == NEEDS {
                return;
            }
        }
        if !needs.is_empty() {
            state.send(place, &Frame::Need(needs), 0, out);
        }
    }

    /// A member below has reported.
    pub(super) fn reported(&mut self, state: &mut State, place: u16, known: u32, now: LocalNs, out: &mut Out<Event>) {
        for object in known..state.objects.known().min(known.saturating_add(4)) {
            if let Some(frame) = state.announcement(object) {
                state.send(place, &frame, 0, out);
            }
        }
        if self.report_at.is_some() && state.reports.all_answered() {
            self.report(state, now, out);
        }
        self.report_if_whole(state, now, out);
        self.report_if_blocked(state, now);
    }

    /// A member below misses something: what is here leaves, the rest when it is. An heir is told what is here as well.
    pub(super) fn needed(&mut self, state: &mut State, place: u16, needs: &Needs, now: LocalNs, out: &mut Out<Event>) {
        let Some(line) = state.outgoing.line(Some(place)) else { return };
        if place == state.view.root() {
            for need in needs.iter() {
                let held = state.holding.held(need.block);
                state.send(place, &Frame::Have { block: need.block, held }, 0, out);
            }
        }
        let quiet = state.quiet();
        for need in needs.iter().filter(|need| state.holding.is_inside(need.block)) {
            state.outgoing.repair(line, need.block, need.missing, now, quiet);
        }
    }

    /// What this member alone has to say.
    fn own(&self, state: &State) -> Report {
        // What was given up is not reported, so that nobody finds it to be with everybody.
        let stable = state.holding.received().min(state.end().unwrap_or(u64::MAX));
        Report {
            received: if self.is_parked { u64::MAX } else { stable },
            stable,
            known: state.objects.known(),
            // Others may still be served from the slot of a message that is not stable.
            slots: self.released.min(state.shorts_stable).saturating_add(self.slots),
            places: self.given,
            alive: 1,
            heard: self.heard,
            slowest: state.me,
            lost: self.rates[0],
            marked: self.rates[1],
            settled: state.aborted != NEVER,
        }
    }

    /// Shares of symbols missed and marked since the last report.
    fn count(&mut self) {
        let [missed, marked, new] = [self.missed, self.marked, self.new];
        let since = [missed - self.counted[0], marked - self.counted[1], new - self.counted[2]];
        if since[2] > 0 {
            let share = |part: u64| (part.min(since[2] + since[0]) * 1_000_000 / (since[2] + since[0])) as u32;
            self.rates = [share(since[0]), share(since[1])];
            self.counted = [missed, marked, new];
        } else {
            self.rates = [0; 2];
        }
    }

    fn report(&mut self, state: &mut State, now: LocalNs, out: &mut Out<Event>) {
        self.report_at = None;
        self.count();
        let Some(parent) = state.links.parent else { return };
        if let Some(report) = state.reports.merged(Some(self.own(state)), now) {
            state.send(parent, &Frame::Status(report), state.reports.poll(), out);
            self.reported = Some(report);
            state.reports.consume();
        }
    }

    /// Reports when the last poll's edge is reached only now.
    fn report_if_whole(&mut self, state: &mut State, now: LocalNs, out: &mut Out<Event>) {
        if state.holding.received() < state.edge || self.reported.is_none_or(|last| last.stable >= state.edge) {
            return;
        }
        let merged = state.reports.merged(Some(self.own(state)), now);
        if merged.is_some_and(|merged| merged.stable >= state.edge) {
            self.report(state, now, out);
        }
    }

    /// Reports when the root may wait for slots or places that are there.
    fn report_if_blocked(&mut self, state: &State, now: LocalNs) {
        let (Some(last), Some(merged)) = (self.reported, state.reports.merged(Some(self.own(state)), now)) else {
            return;
        };
        let half = self.slots / 2;
        if merged.places > last.places || merged.slots > last.slots.saturating_add(half) {
            self.report_at.get_or_insert(now + state.quiet());
        }
    }

    pub(super) fn tick(&mut self, state: &mut State, now: LocalNs, out: &mut Out<Event>) {
        if self.ask_at.is_some_and(|at| at <= now) {
            self.ask_at = None;
            let newer = state.holding.highest().saturating_sub(REORDER);
            self.ask(state, self.asked, newer, Whom::Source, out);
            self.asked = self.asked.max(newer);
        }
        if self.report_at.is_some_and(|at| at <= now) {
            // Perhaps the group does not reach them.
            let poll = state.poll();
            state.reports.unanswered().for_each(|child| state.send(child, &poll, state.reports.poll(), out));
            self.report(state, now, out);
        }
    }

    pub(super) fn deadline(&self) -> Option<LocalNs> {
        [self.ask_at, self.report_at].into_iter().flatten().min()
    }
}
