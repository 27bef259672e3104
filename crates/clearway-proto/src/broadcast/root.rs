//! The sender: takes objects, lets them leave as far as credits and the window go, and acts on what
//! is reported and missing.
//!
//! # Model
//! Objects are digested symbol by symbol, as far as the slowest member has a slot or a place and
//! the window reaches; what is digested is wanted by all. Needs of children are gathered for half a
//! round trip: what more than two members miss leaves to the group again, what fewer miss to the
//! child above them, who serves its own.
//!
//! # Invariants
//! I1. Nothing leaves for which the slowest member has no memory, by what it reported.
//! I2. Everything below the floor was reported by every member of the view, in this view.

use alloc::vec::Vec;

use super::context::BroadcastEvent;
use super::cost::{self, Costs, NetworkConditions};
use super::frame::{Algorithm, BlockNack, Nacks, ProgressReport};
use super::multicast_probe::{MulticastProbe, MulticastScope, PROBES};
use super::objects::{Object, Size};
use super::polls::{Pending, Polls};
use super::rate_control::RateControl;
use super::receive_window::HeldSymbol;
use super::state::{MemberState, NEVER};
use super::successor_root::SuccessorRoot;
use super::transmit_queues::TransmitQueues;
use super::window_control::{PacingReport, WindowControl};
use crate::base::{BitsPerSec, Bytes, LocalNs, Nanos};
use crate::wire::{Out, Span};

/// Digests under way: so few that symbols leave in between.
const DIGESTS: u64 = 16;
/// Those that are remembered: all that report to the root, and a neighbour.
const ASKERS: usize = 17;
/// How long a stable edge waits for a symbol to travel with.
const TELL: Nanos = Nanos::from_millis(1);

/// What children miss of one block: each, at least two, more than two.
#[derive(Clone, Copy, Debug)]
struct GatheredNacks {
    block: u64,
    once: u64,
    twice: u64,
    many: u64,
    /// Which children, and what each.
    from: [(u16, u64); ASKERS],
    askers: usize,
}

impl GatheredNacks {
    fn add(&mut self, place: u16, missing: u64) {
        let known = self.from[..self.askers].iter_mut().find(|(asker, _)| *asker == place);
        let new = match known {
            Some((_, known)) => missing & !core::mem::replace(known, *known | missing),
            None if self.askers < ASKERS => {
                self.from[self.askers] = (place, missing);
                self.askers += 1;
                missing
            }
            None => {
                self.many |= missing;
                missing
            }
        };
        self.many |= self.twice & new;
        self.twice |= self.once & new;
        self.once |= new;
    }
}

/// The sender's own state.
#[derive(Debug)]
pub(super) struct Root {
    /// The number and the first sequence of the next object, and how many of each size there were.
    next: u32,
    next_sequence: u64,
    shorts: u32,
    longs: u32,
    /// The object that is being digested, and the first sequence that is not.
    current: u32,
    digested: u64,
    under_way: u64,
    /// What the slowest member has.
    slots: u32,
    places: u32,
    window_from: u64,
    gathered: Vec<GatheredNacks>,
    gather_until: Option<LocalNs>,
    tell_at: Option<LocalNs>,
    sent_when_reported: u64,
    ready: bool,
    /// Somebody wanted the end before this successor root knew what its predecessor has called
    /// stable.
    abort_wanted: bool,
    /// All know where the cast was aborted.
    settled: bool,
    /// The last stable edge, and since when it has not moved though more has left.
    stuck: (u64, LocalNs),
    slowest: u16,
    parked: bool,
    /// What this root has to do because another one died.
    successor: Option<SuccessorRoot>,
    pace: RateControl,
    /// Where the network has to be found out.
    control: Option<WindowControl>,
    reach: MulticastProbe,
}

impl Root {
    pub(super) fn new(state: &MemberState) -> Self {
        Self {
            next: 0,
            next_sequence: 0,
            shorts: 0,
            longs: 0,
            current: 0,
            digested: 0,
            under_way: 0,
            slots: 0,
            places: 0,
            window_from: 0,
            gathered: Vec::with_capacity(state.holding.blocks() as usize),
            gather_until: None,
            tell_at: None,
            sent_when_reported: 0,
            ready: false,
            abort_wanted: false,
            settled: false,
            stuck: (0, LocalNs(0)),
            slowest: 0,
            parked: false,
            successor: None,
            pace: RateControl::new(state.config.rate),
            control: state
                .config
                .first_rate
                .map(|first| WindowControl::new(state.config.window, first, state.config.rate)),
            reach: MulticastProbe::default(),
        }
    }

    /// Creates the root of what another one has left, which casts nothing itself.
    pub(super) fn successor(state: &MemberState, now: LocalNs) -> Self {
        let next = state.objects.known();
        let last = next.checked_sub(1).and_then(|last| state.objects.get(last));
        let end = last.map_or(state.holding.floor(), |last| last.end(state.config.symbol));
        let successor = Some(SuccessorRoot::new(end, now));
        Self {
            next,
            next_sequence: end,
            current: next,
            digested: end,
            successor,
            ready: true,
            ..Self::new(state)
        }
    }

    /// Enters another view: what was reported counts no more, and everybody is asked at once.
    pub(super) fn viewed(&mut self, state: &mut MemberState, now: LocalNs) {
        self.gathered.clear();
        self.settled = false;
        self.stuck.1 = now;
        if let Some(polls) = &mut state.polls {
            polls.poll_soon(now);
        }
        if let Some(successor) = &mut self.successor {
            successor.restart(now);
        }
        // A symbol on its way on lines that are no more is asked for again; one that had not left
        // yet leaves on the new ones.
        for sequence in state.edge..state.holding.received() {
            state.leave(sequence);
        }
    }

    /// Returns the members that have held everybody up for longer than `timeout`.
    pub(super) fn hopeless(
        &self,
        state: &MemberState,
        timeout: Nanos,
        now: LocalNs,
    ) -> Option<u16> {
        let waits =
            self.ready && state.holding.floor() < state.edge && now.since(self.stuck.1) > timeout;
        waits.then_some(self.slowest).filter(|place| *place != state.me)
    }

    /// Returns the member that had the least of what has left when all reported last; `None` while
    /// nothing is under way.
    pub(super) fn slowest(&self, state: &MemberState) -> Option<u16> {
        let is_under_way = self.ready && state.holding.floor() < state.edge;
        is_under_way.then_some(self.slowest).filter(|place| *place != state.me)
    }

    /// Ends the cast, because a member wants it to end, or has seen it end before `object`.
    pub(super) fn abort(
        &mut self,
        state: &mut MemberState,
        object: u32,
        now: LocalNs,
        out: &mut Out<BroadcastEvent>,
    ) {
        if object == NEVER && self.successor.is_some() && !state.is_formed {
            self.abort_wanted = true;
            return;
        }
        let object = if object == NEVER { state.objects.first() } else { object };
        if object < state.aborted {
            state.abort_at(object, out);
            if let Some(polls) = &mut state.polls {
                polls.poll_soon(now);
            }
        }
    }

    /// Handles a member's answer to the successor root.
    pub(super) fn have(
        &mut self,
        state: &mut MemberState,
        place: u16,
        block: u64,
        held: u64,
        out: &mut Out<BroadcastEvent>,
    ) {
        if let Some(successor) = &mut self.successor {
            successor.answered(state, place, block, held, out);
        }
    }

    /// Handles a symbol that came to a successor root.
    pub(super) fn symbol_arrived(&mut self, state: &MemberState, now: LocalNs) {
        if let Some(successor) = &mut self.successor {
            successor.symbol_arrived(state, now);
        }
    }

    /// Takes an object.
    pub(super) fn cast(
        &mut self,
        state: &mut MemberState,
        from: Span,
        now: LocalNs,
        out: &mut Out<BroadcastEvent>,
    ) {
        if state.aborted <= self.next || self.successor.is_some() {
            return;
        }
        let was_idle = state.holding.floor() == self.next_sequence;
        let is_short = from.length <= state.config.symbol;
        let size = if is_short { Size::Short(self.shorts) } else { Size::Long(self.longs) };
        let object = Object {
            number: self.next,
            first: self.next_sequence,
            length: u64::from(from.length),
            size,
            at: Some(from),
        };
        if !state.objects.insert(object) {
            out.notify(BroadcastEvent::TryAgain { from });
            return;
        }
        if let Some(polls) = state.polls.as_mut().filter(|_| was_idle) {
            // Perhaps somebody has a place for it, and what said so was lost.
            polls.poll_soon(now);
        }
        self.next += 1;
        self.next_sequence = object.end(state.config.symbol);
        self.shorts += u32::from(is_short);
        self.longs += u32::from(!is_short);
        if !is_short {
            Self::announce(state, object.number, out);
        }
    }

    /// Holds what leaves to `rate` from now on, where the network has to be found out.
    pub(super) fn limit(&mut self, state: &mut MemberState, rate: Option<BitsPerSec>) {
        if let Some(control) = &mut self.control {
            control.limit(rate.or(state.config.rate));
            state.outgoing.set_rate(control.rate());
        }
    }

    fn announce(state: &mut MemberState, object: u32, out: &mut Out<BroadcastEvent>) {
        let Some(frame) = state.announcement(object) else { return };
        match state.algorithm {
            Algorithm::Multicast => state.send_to_group(&frame, 0, LocalNs(0), out),
            Algorithm::Chain | Algorithm::Tree => state.send_down(&frame, 0, None, out),
            Algorithm::Segments => {
                // In the root's leaf symbols are quicker than what goes down the tree.
                state.send_to_group(&frame, 0, LocalNs(0), out);
                state.send_down(&frame, 0, None, out);
            }
        }
    }

    /// Asks about everything cast so far as soon as it has left.
    pub(super) fn flush(
        &mut self,
        state: &mut MemberState,
        now: LocalNs,
        out: &mut Out<BroadcastEvent>,
    ) {
        if state.edge >= self.next_sequence {
            self.beat(state, now, out);
        } else if let Some(polls) = &mut state.polls {
            polls.flush(self.next_sequence);
        }
    }

    /// Asks for digests as far as credits and the window go.
    pub(super) fn prepare(&mut self, state: &mut MemberState, out: &mut Out<BroadcastEvent>) {
        while self.under_way < DIGESTS && self.current < self.next && self.current < state.aborted {
            let Some(object) = state.objects.get(self.current) else { return };
            let has_room = match object.size {
                Size::Short(number) => number < self.slots,
                Size::Long(number) => number < self.places,
            };
            let sequence = self.digested;
            let in_window =
                sequence < self.window_from.saturating_add(u64::from(self.window(state)));
            if !has_room || !in_window || !state.holding.covers(sequence) {
                return;
            }
            let Some(span) = object.span(sequence, state.config.symbol) else { return };
            let object = *object;
            state
                .holding
                .place(sequence, HeldSymbol { crc: 0, object: object.number, relay: None });
            MemberState::digest(span, sequence, out);
            self.under_way += 1;
            self.digested += 1;
            if self.digested == object.end(state.config.symbol) {
                self.current += 1;
            }
        }
    }

    /// Handles a digest: its symbol can leave.
    pub(super) fn digested(&mut self, state: &mut MemberState, sequence: u64, crc: u32) {
        self.under_way = self.under_way.saturating_sub(1);
        if state.holding.awaits(sequence) {
            let fact = state.holding.fact(sequence);
            state.holding.place(sequence, HeldSymbol { crc, ..fact });
            state.holding.keep(sequence);
            state.leave(sequence);
        }
    }

    /// Handles a child's report.
    pub(super) fn reported(
        &mut self,
        state: &mut MemberState,
        now: LocalNs,
        out: &mut Out<BroadcastEvent>,
    ) {
        if let Some(polls) = state.polls.as_mut().filter(|_| state.reports.all_answered()) {
            polls.answered();
        }
        let Some(merged) = state.reports.merged(None, now) else { return };
        if merged.alive + 1 < state.view.count() {
            return;
        }
        state.formed();
        if !self.ready {
            self.ready = true;
            out.notify(BroadcastEvent::Ready);
        }
        let moved = merged.received > self.window_from && self.window_from < state.edge;
        self.slots = self.slots.max(merged.slots);
        self.places = self.places.max(merged.places);
        self.window_from = self.window_from.max(merged.received.min(state.holding.received()));
        if let Some(polls) = state.polls.as_mut().filter(|_| moved) {
            polls.progress(now, state.reports.trip());
        }
        self.settled = merged.settled;
        self.watch_slowest(state, &merged, now, out);
        self.react(state, &merged, now, out);
        self.stable(state, merged.stable, now, out);
        if core::mem::take(&mut self.abort_wanted) {
            self.abort(state, NEVER, now, out);
        }
        if merged.known < state.objects.known() && merged.known >= state.objects.first() {
            let unknown = merged.known..state.objects.known().min(merged.known.saturating_add(4));
            unknown.for_each(|object| Self::announce(state, object, out));
        }
    }

    /// Slows down or speeds up, and names a member that is too slow.
    fn adapt(
        &mut self,
        state: &mut MemberState,
        merged: &ProgressReport,
        now: LocalNs,
        out: &mut Out<BroadcastEvent>,
    ) {
        let (trip, symbol) = (state.quiet(), state.config.symbol);
        let Some(control) = &mut self.control else {
            if let Some(rate) = self.pace.reported(merged.lost, merged.marked, trip, symbol, now) {
                state.outgoing.set_rate(rate);
            }
            return;
        };
        let copies = if state.algorithm == Algorithm::Tree { state.links.juniors.len() } else { 1 };
        let packet = Bytes(TransmitQueues::packet(symbol).0 * copies.max(1) as u64);
        let edge = state.edge;
        let wait = state.outgoing.behind_all(now).since(now);
        control.reported(&PacingReport { merged, edge, trip, packet, wait, now });
        state.outgoing.set_rate(control.rate());
        if let Some(polls) = &mut state.polls {
            polls.set_window(control.window());
        }
        if let Some(place) = control.below_floor(now) {
            control.recover();
            let named = state.config.members.get(usize::from(place));
            named
                .into_iter()
                .for_each(|member| out.notify(BroadcastEvent::BelowFloor { rank: member.rank }));
        }
    }

    /// Returns how many symbols may be under way to the slowest member.
    fn window(&self, state: &MemberState) -> u32 {
        self.control.as_ref().map_or(state.config.window, WindowControl::window)
    }

    /// Acts on a report: changes the pace, leaves the group or comes back to it.
    fn react(
        &mut self,
        state: &mut MemberState,
        merged: &ProgressReport,
        now: LocalNs,
        out: &mut Out<BroadcastEvent>,
    ) {
        self.adapt(state, merged, now, out);
        state.reports.consume();
        if state.algorithm != Algorithm::Multicast && self.reach.is_back(merged, now) {
            return self.switch(state, Algorithm::Multicast, now, out);
        }
        if !matches!(state.algorithm, Algorithm::Multicast | Algorithm::Segments)
            || !state.reports.all_answered()
        {
            return;
        }
        let members = &state.config.members;
        let leaf = members[usize::from(state.me)].leaf;
        let near = state.reports.least_received(|place| members[usize::from(place)].leaf == leaf);
        let sent = (state.algorithm == Algorithm::Segments).then_some(state.to_group);
        let reached =
            self.reach.answered((merged.heard, near), sent, state.reports.time_out(), now);
        let way = match (reached, state.algorithm) {
            (MulticastScope::All, _) | (MulticastScope::Leaf, Algorithm::Segments) => return,
            // Perhaps a member of each other leaf reaches its own.
            (MulticastScope::Leaf, _) => Algorithm::Segments,
            // A root that is alone in its leaf sends nothing to the group.
            (MulticastScope::None, Algorithm::Segments) if near.is_none() => return,
            (MulticastScope::None, _) => self.relayed(state),
        };
        self.reach.give_up(now);
        self.switch(state, way, now, out);
    }

    /// Returns the better way for the longest object that is open, without a group.
    fn relayed(&self, state: &MemberState) -> Algorithm {
        let longest = state.objects.all().map(|object| object.length).max().unwrap_or_default();
        let circumstances = NetworkConditions {
            receivers: state.view.count().saturating_sub(1),
            length: Bytes(longest),
            symbol: Bytes(u64::from(state.config.symbol)),
            rate: state.config.rate.unwrap_or(BitsPerSec::mega(10_000)),
            latency: Nanos(state.quiet().0 / 2),
            lost: 0,
        };
        Costs::new(&circumstances, cost::MulticastReach::Some).best()
    }

    /// Symbols go another way from here on. Symbols that have arrived stay: members ask for the
    /// rest.
    fn switch(
        &mut self,
        state: &mut MemberState,
        way: Algorithm,
        now: LocalNs,
        out: &mut Out<BroadcastEvent>,
    ) {
        state.turn(way, state.edge);
        self.gathered.clear();
        for sequence in state.edge..state.holding.received() {
            state.leave(sequence);
        }
        if let Some(polls) = &mut state.polls {
            polls.poll_soon(now);
        }
        out.notify(BroadcastEvent::Switched { way });
    }

    /// Notes who is last, and whether the others wait for it.
    fn watch_slowest(
        &mut self,
        state: &MemberState,
        merged: &ProgressReport,
        now: LocalNs,
        out: &mut Out<BroadcastEvent>,
    ) {
        if merged.stable > self.stuck.0 || state.edge == state.holding.floor() {
            self.stuck = (merged.stable, now);
        }
        self.slowest = merged.slowest;
        let parked = merged.received > merged.stable.max(state.holding.received());
        let parked = parked || merged.received > merged.stable && merged.received != u64::MAX;
        if parked != self.parked {
            self.parked = parked;
            let rank =
                state.config.members.get(usize::from(merged.slowest)).map(|member| member.rank);
            match (parked, rank) {
                (true, Some(rank)) => out.notify(BroadcastEvent::Parked { rank }),
                _ => out.notify(BroadcastEvent::CaughtUp),
            }
        }
    }

    fn stable(
        &mut self,
        state: &mut MemberState,
        stable: u64,
        now: LocalNs,
        out: &mut Out<BroadcastEvent>,
    ) {
        let before = state.holding.floor();
        state.release(stable, out);
        if state.holding.floor() > before && self.tell_at.is_none() {
            self.tell_at = Some(now + TELL);
            self.sent_when_reported = state.record.sent;
        }
    }

    /// Makes what is digested stable, because nobody else takes part.
    pub(super) fn alone(
        &mut self,
        state: &mut MemberState,
        now: LocalNs,
        out: &mut Out<BroadcastEvent>,
    ) {
        if state.view.count() == 1 {
            state.formed();
            (self.slots, self.places) = (u32::MAX, u32::MAX);
            self.window_from = state.holding.received();
            state.edge = state.edge.max(state.holding.received());
            self.stable(state, state.holding.received(), now, out);
            if !self.ready {
                self.ready = true;
                out.notify(BroadcastEvent::Ready);
            }
        }
    }

    /// Handles a child's list of what it and those below it miss.
    pub(super) fn needed(
        &mut self,
        state: &mut MemberState,
        place: u16,
        needs: &Nacks,
        now: LocalNs,
    ) {
        let Some(line) = state.outgoing.line(Some(place)) else { return };
        for need in needs.iter().filter(|need| state.holding.is_inside(need.block)) {
            if state.algorithm != Algorithm::Multicast || state.outgoing.line(None).is_none() {
                let fresh = state.turned(need.block);
                state.outgoing.repair(line, need, fresh, now, state.repair_timeout());
                continue;
            }
            self.gather(place, need.block, need.missing);
            let until = now + Nanos(state.quiet().0 / 2);
            self.gather_until.get_or_insert(until);
        }
    }

    fn gather(&mut self, place: u16, block: u64, missing: u64) {
        if let Some(known) = self.gathered.iter_mut().find(|known| known.block == block) {
            known.add(place, missing);
        } else if self.gathered.len() < self.gathered.capacity() {
            let mut new = GatheredNacks {
                block,
                once: 0,
                twice: 0,
                many: 0,
                from: [(0, 0); ASKERS],
                askers: 0,
            };
            new.add(place, missing);
            self.gathered.push(new);
        }
    }

    /// Repairs what more than two miss to the group; any other member that misses something serves
    /// those below.
    fn repair(&mut self, state: &mut MemberState, now: LocalNs) {
        let (timeout, group) = (state.repair_timeout(), state.outgoing.line(None));
        for need in self.gathered.drain(..) {
            if let Some(group) = group {
                state.outgoing.repair(
                    group,
                    BlockNack { block: need.block, missing: need.many },
                    0,
                    now,
                    timeout,
                );
            }
            for (place, missing) in &need.from[..need.askers] {
                if let Some(line) = state.outgoing.line(Some(*place)) {
                    let need = BlockNack { block: need.block, missing: missing & !need.many };
                    state.outgoing.repair(line, need, 0, now, timeout);
                }
            }
        }
        self.gather_until = None;
    }

    /// Asks all how far they are.
    fn beat(&mut self, state: &mut MemberState, now: LocalNs, out: &mut Out<BroadcastEvent>) {
        let at = state.outgoing.behind_all(now);
        let poll = state.next_poll(at);
        self.reach.polled(state.to_group);
        let frame = state.poll();
        let is_over = self.settled && state.end().is_some_and(|end| state.holding.floor() >= end);
        let is_idle = self.ready
            && (is_over || state.holding.floor() == self.next_sequence && self.successor.is_none());
        let waits = if is_idle { Pending::Nothing } else { Pending::Something };
        let Some(polls) = &mut state.polls else { return };
        let alone = state.algorithm != Algorithm::Multicast || polls.somebody_is_silent();
        polls.beat(at, waits);
        if state.algorithm == Algorithm::Multicast {
            state.send_to_group(&frame, poll, at, out);
        }
        if alone {
            state.send_down(&frame, poll, Some(at), out);
        }
        self.tell_at = None;
    }

    /// Does what is due.
    pub(super) fn tick(
        &mut self,
        state: &mut MemberState,
        now: LocalNs,
        out: &mut Out<BroadcastEvent>,
    ) {
        if self.gather_until.is_some_and(|at| at <= now) {
            self.repair(state, now);
        }
        if state.polls.as_ref().is_some_and(|polls| polls.due() <= now) {
            self.beat(state, now, out);
        }
        // In a view that others have not joined nothing is decided for them.
        if let Some(successor) = self.successor.as_mut().filter(|_| state.is_formed) {
            successor.tick(state, now, out);
        }
        if self.reach.probes(now) {
            (0..PROBES).for_each(|_| state.send_to_group(&state.poll(), 0, now, out));
        }
        if self.tell_at.is_some_and(|at| at <= now) {
            self.tell_at = None;
            if state.record.sent == self.sent_when_reported {
                let at = state.outgoing.behind_all(now);
                match state.algorithm {
                    Algorithm::Multicast => state.send_to_group(&state.poll(), 0, at, out),
                    Algorithm::Chain | Algorithm::Tree | Algorithm::Segments => {
                        state.send_down(&state.poll(), 0, Some(at), out)
                    }
                }
            }
        }
    }

    pub(super) fn deadline(&self, state: &MemberState) -> Option<LocalNs> {
        let poll = state.polls.as_ref().map(Polls::due);
        let successor =
            self.successor.as_ref().filter(|_| state.is_formed).and_then(SuccessorRoot::deadline);
        [poll, self.gather_until, self.tell_at, successor, self.reach.deadline()]
            .into_iter()
            .flatten()
            .min()
    }
}
