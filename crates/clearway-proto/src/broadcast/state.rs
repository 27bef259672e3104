//! What every member has, the root or not: the view, what lies here, what is to leave, and how
//! messages are written.
//!
//! # Invariants
//! I1. A symbol that leaves here carries the check of the root's memory, not of this one.
//! I2. No event names an object behind the one with which the cast was aborted.

use super::child_reports::ChildReports;
use super::context::{BroadcastConfig, BroadcastEvent, BroadcastRecord};
use super::frame::{
    Algorithm, Announce, BroadcastFrame, LONGEST, ObjectExtent, Poll, Preamble, Symbol,
};
use super::objects::{Object, Objects, Size};
use super::polls::{Departure, Polls};
use super::receive_window::{BLOCK, ReceiveWindow, below};
use super::transmit_queues::TransmitQueues;
use super::tree::{TreeLinks, View};
use crate::base::{Head, LocalNs, Nanos};
use crate::wire::{Destination, More, Operation, Out, PathId, Span, Status, Token};

/// No object is aborted.
pub(super) const NEVER: u32 = u32::MAX;
/// Effects left free at the end of a buffer, for what one arrival causes.
const RESERVE: usize = 16;
/// Bits of a token that hold a sequence; above them the line, above that the kind.
const SEQUENCE_BITS: u32 = 44;
const LINE_BITS: u32 = 12;

/// What an operation was for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum BroadcastLabel {
    /// A digest of a symbol.
    Digest { sequence: u64 },
    /// A symbol on its way.
    Sent { line: usize, sequence: u64 },
}

impl BroadcastLabel {
    const fn token(self) -> Token {
        let (kind, line, sequence) = match self {
            Self::Digest { sequence } => (1, 0, sequence),
            Self::Sent { line, sequence } => (2, line as u64, sequence),
        };
        Token(
            kind << (SEQUENCE_BITS + LINE_BITS)
                | line << SEQUENCE_BITS
                | sequence & ((1 << SEQUENCE_BITS) - 1),
        )
    }

    /// Reads a token; sequences are those next to `near`.
    pub(super) const fn from_token(token: Token, near: u64) -> Option<Self> {
        let mask = (1 << SEQUENCE_BITS) - 1;
        let sequence = near.wrapping_add((token.0.wrapping_sub(near)) & mask);
        match token.0 >> (SEQUENCE_BITS + LINE_BITS) {
            1 => Some(Self::Digest { sequence }),
            2 => Some(Self::Sent {
                line: (token.0 >> SEQUENCE_BITS) as usize & ((1 << LINE_BITS) - 1),
                sequence,
            }),
            _ => None,
        }
    }
}

/// What every member has.
#[derive(Debug)]
pub(super) struct MemberState {
    pub(super) config: BroadcastConfig,
    pub(super) me: u16,
    pub(super) view: View,
    /// All members of the view take part in it; and the last view of which that was so.
    pub(super) is_formed: bool,
    pub(super) base: View,
    pub(super) links: TreeLinks,
    /// How symbols leave the root now, and the first one of which that is sure: before it some may
    /// have come to others already.
    pub(super) algorithm: Algorithm,
    pub(super) since: u64,
    pub(super) holding: ReceiveWindow,
    pub(super) objects: Objects,
    pub(super) outgoing: TransmitQueues,
    pub(super) reports: ChildReports,
    /// Asked by the root only.
    pub(super) polls: Option<Polls>,
    /// Everything below has left the root, as far as is known here.
    pub(super) edge: u64,
    /// The first object that ends without success.
    pub(super) aborted: u32,
    pub(super) end_reported: bool,
    /// Short messages that are with everybody.
    pub(super) shorts_stable: u32,
    /// Messages that this root sent to the group.
    pub(super) to_group: u32,
    pub(super) record: BroadcastRecord,
}

impl MemberState {
    /// Returns the place of `rank`, if it is a member.
    pub(super) fn place_of(&self, rank: crate::base::Rank) -> Option<u16> {
        let members = &self.config.members;
        // Lists of ranks usually are in order, so that the first look finds it.
        let is = |place: &usize| members.get(*place).is_some_and(|member| member.rank == rank);
        let place = Some(rank.index()).filter(is).or_else(|| (0..members.len()).find(is))?;
        u16::try_from(place).ok()
    }

    /// Begins a view that everybody has joined.
    pub(super) fn formed(&mut self) {
        if !self.is_formed {
            self.is_formed = true;
            self.base.clone_from(&self.view);
        }
    }

    /// Returns whether the cast was aborted, as far as is known here.
    pub(super) const fn is_aborted(&self) -> bool {
        self.aborted != NEVER
    }

    /// Returns the end of the last object that is known here.
    pub(super) fn tail(&self) -> u64 {
        let last = self.objects.known().checked_sub(1).and_then(|last| self.objects.get(last));
        last.map_or(self.holding.floor(), |last| last.end(self.config.symbol))
    }

    pub(super) fn is_root(&self) -> bool {
        self.view.root() == self.me
    }

    /// Takes up the neighbours of a new view.
    pub(super) fn rewire(&mut self, now: LocalNs) {
        self.links = TreeLinks::new(&self.config.members, &self.view, self.me);
        self.reports.children_alive(&self.links.children, now);
        let sends_to_group = self.is_root() || self.links.is_head && !self.links.is_last;
        let group = self.config.group.filter(|_| sends_to_group).map(|_| None);
        let root = (!self.is_root()).then_some(self.view.root());
        let TreeLinks { children, before, after, juniors, near, .. } = &self.links;
        let near =
            children.iter().chain(after).chain(juniors).chain(&root).chain(before).chain(near);
        self.outgoing
            .lead_to(group.into_iter().chain(near.map(|place| Some(*place))), &self.holding);
    }

    fn preamble(&self, poll: u16) -> Preamble {
        let (key, view) = (self.config.key, self.view.word());
        Preamble {
            algorithm: self.algorithm,
            to_group: false,
            hand_down: false,
            formed: self.is_formed,
            poll,
            key,
            view,
        }
    }

    /// Sends a header to the member at `place`.
    pub(super) fn send(
        &self,
        place: u16,
        frame: &BroadcastFrame,
        poll: u16,
        out: &mut Out<BroadcastEvent>,
    ) {
        self.send_head(place, &frame.encode(&self.preamble(poll)), None, out);
    }

    fn send_head(
        &self,
        place: u16,
        head: &Head<LONGEST>,
        at: Option<LocalNs>,
        out: &mut Out<BroadcastEvent>,
    ) {
        let Some(member) = self.config.members.get(usize::from(place)) else { return };
        let (to, class, head) =
            (Destination::One(member.rank), self.config.control, out.head(head.bytes()));
        let operation =
            Operation::Send { to, path: PathId(0), class, head, body: Span::EMPTY, token: None };
        match at {
            Some(at) => out.operate_at(at, operation),
            None => out.operate(operation),
        }
    }

    /// Sends a header to all children, who hand it on; not before `at`.
    pub(super) fn send_down(
        &self,
        frame: &BroadcastFrame,
        poll: u16,
        at: Option<LocalNs>,
        out: &mut Out<BroadcastEvent>,
    ) {
        let head = frame.encode(&Preamble { hand_down: true, ..self.preamble(poll) });
        // The one that comes last when there is little room is another one each time.
        let children = &self.links.children;
        let (last, first) = children.split_at(usize::from(poll) % children.len().max(1));
        first.iter().chain(last).for_each(|child| self.send_head(*child, &head, at, out));
    }

    /// Sends a header to the group, not before `at`.
    pub(super) fn send_to_group(
        &mut self,
        frame: &BroadcastFrame,
        poll: u16,
        at: LocalNs,
        out: &mut Out<BroadcastEvent>,
    ) {
        let Some(group) = self.config.group else { return };
        self.to_group = self.to_group.saturating_add(1);
        let head =
            out.head(frame.encode(&Preamble { to_group: true, ..self.preamble(poll) }).bytes());
        let (to, class) = (Destination::Group(group), self.config.control);
        out.operate_at(
            at,
            Operation::Send { to, path: PathId(0), class, head, body: Span::EMPTY, token: None },
        );
    }

    /// Returns what the root says of itself.
    pub(super) fn poll(&self) -> BroadcastFrame {
        let (edge, stable) = (self.edge, self.holding.floor());
        let trip = u32::try_from(self.reports.trip().0).unwrap_or(u32::MAX);
        BroadcastFrame::Poll(Poll {
            edge,
            stable,
            objects: self.objects.known(),
            aborted: self.aborted,
            trip,
        })
    }

    /// Returns the announcement of a long object.
    pub(super) fn announcement(&self, object: u32) -> Option<BroadcastFrame> {
        let object = self.objects.get(object)?;
        let Size::Long(number) = object.size else { return None };
        Some(BroadcastFrame::Announce(Announce {
            object: object.number,
            first: object.first,
            length: object.length,
            number,
        }))
    }

    /// Returns a round trip, during which nothing is sent again.
    pub(super) fn quiet(&self) -> Nanos {
        self.reports.trip()
    }

    /// Returns how long nothing may come though all goes well: a round trip, and until the next
    /// burst leaves.
    pub(super) fn pause(&self) -> Nanos {
        self.quiet() + self.outgoing.burst(self.config.symbol)
    }

    /// Returns how long what was asked for, or has left, may be under way: through a group no
    /// longer than any pause; along a chain or tree it stands in queues in which polls do not
    /// stand, so as long as any answer may take.
    pub(super) fn repair_timeout(&self) -> Nanos {
        match self.algorithm {
            Algorithm::Multicast => self.pause(),
            Algorithm::Chain | Algorithm::Tree | Algorithm::Segments => self.reports.time_out(),
        }
    }

    /// Returns whether symbols come to this member through the group, so that its neighbours have
    /// them as well.
    pub(super) fn is_fed_by_group(&self) -> bool {
        match self.algorithm {
            Algorithm::Multicast => true,
            Algorithm::Segments => !self.links.is_head,
            Algorithm::Chain | Algorithm::Tree => false,
        }
    }

    /// Symbols take `way` from sequence `since` on. Missing symbols of those before are asked for,
    /// of others than before. Says whether they took another one before.
    pub(super) fn turn(&mut self, way: Algorithm, since: u64) -> bool {
        let is_new = way != self.algorithm;
        if is_new {
            (self.algorithm, self.since) = (way, since.max(self.edge));
            self.outgoing.forget(&self.holding);
        }
        is_new
    }

    /// Returns what of `block` took another way before: on this one nobody has lost it yet.
    pub(super) fn turned(&self, block: u64) -> u64 {
        if self.algorithm == Algorithm::Multicast { 0 } else { below(block, self.since) }
    }

    /// Returns whether symbols come from `place` by their way, and are not what somebody had to be
    /// asked for.
    pub(super) fn brings(&self, place: u16, preamble: &Preamble) -> bool {
        match preamble.algorithm {
            Algorithm::Multicast => preamble.to_group,
            Algorithm::Chain => self.links.before == Some(place),
            Algorithm::Tree => self.links.elder == Some(place),
            // Symbols that the last of a segment had to ask for are still to be handed on.
            Algorithm::Segments => {
                preamble.to_group || [self.links.before, self.links.parent].contains(&Some(place))
            }
        }
    }

    /// Hands on a symbol that is here, on every line of the way it took.
    pub(super) fn hand_on(&mut self, sequence: u64, way: Algorithm) {
        if sequence < self.since {
            return;
        }
        let TreeLinks { after, juniors, is_head, is_last, .. } = &self.links;
        let (to_group, lines) = match way {
            Algorithm::Multicast => return,
            Algorithm::Chain => (false, after.as_slice()),
            Algorithm::Tree => (false, &juniors[..]),
            Algorithm::Segments => {
                (*is_head && !is_last, if *is_last { after.as_slice() } else { &[] })
            }
        };
        for to in to_group.then_some(None).into_iter().chain(lines.iter().map(|place| Some(*place)))
        {
            if let Some(line) = self.outgoing.line(to) {
                self.outgoing.want(line, sequence);
            }
        }
    }

    /// Sends a symbol of this root for the first time.
    pub(super) fn leave(&mut self, sequence: u64) {
        match self.outgoing.line(None) {
            Some(group) if self.algorithm == Algorithm::Multicast => {
                self.outgoing.want(group, sequence)
            }
            _ => self.hand_on(sequence, self.algorithm),
        }
    }

    /// Lets leave what may.
    pub(super) fn pump(&mut self, now: LocalNs, out: &mut Out<BroadcastEvent>) -> More {
        let timeout = self.repair_timeout();
        loop {
            if out.room() < RESERVE {
                return More::Yes;
            }
            let (holding, objects) = (&self.holding, &self.objects);
            let length = |sequence| {
                objects
                    .span(holding.fact(sequence).object, sequence)
                    .map_or(0, |span| u64::from(span.length))
            };
            let Some(next) = self.outgoing.take(holding, length, now, timeout) else {
                return More::No;
            };
            self.record.repairs += u64::from(next.was_asked);
            self.emit(next.line, next.sequence, next.slot, out);
        }
    }

    fn emit(&mut self, line: usize, sequence: u64, slot: LocalNs, out: &mut Out<BroadcastEvent>) {
        let fact = self.holding.fact(sequence);
        let Some(object) = self.objects.get(fact.object) else { return };
        let Some(body) = object.span(sequence, self.config.symbol) else { return };
        let (number, extent) = match object.size {
            Size::Short(number) => (number, ObjectExtent::Short),
            Size::Long(_) => ((sequence - object.first) as u32, ObjectExtent::Long),
        };
        let to_group = self.outgoing.to(line).is_none();
        let leaves = self.leaves(line, object, sequence);
        self.to_group = self.to_group.saturating_add(u32::from(to_group));
        self.record.sent += 1;
        self.edge = self.edge.max(sequence + 1);
        let trip = self.reports.trip();
        let asks =
            self.polls.as_mut().is_some_and(|polls| polls.left(leaves, sequence, slot, trip));
        let reaches_all = to_group && self.algorithm == Algorithm::Multicast;
        let poll = if asks { self.ask(slot, reaches_all, out) } else { 0 };
        let symbol = Symbol {
            sequence,
            object: fact.object,
            number,
            behind: (sequence - self.holding.floor()) as u32,
            crc: fact.crc,
            length: body.length as u16,
            extent,
        };
        let head = out.head(
            BroadcastFrame::Data(symbol)
                .encode(&Preamble { to_group, ..self.preamble(poll) })
                .bytes(),
        );
        let to = match (self.outgoing.to(line), self.config.group) {
            (None, Some(group)) => Destination::Group(group),
            (Some(place), _) => Destination::One(self.config.members[usize::from(place)].rank),
            (None, None) => return,
        };
        let token = Some(BroadcastLabel::Sent { line, sequence }.token());
        self.outgoing.handed();
        let class = self.config.class;
        out.operate_at(slot, Operation::Send { to, path: PathId(0), class, head, body, token });
    }

    /// Returns what a symbol of `object` on `line` is to the root that sends it; of others
    /// everything left the root before.
    fn leaves(&self, line: usize, object: &Object, sequence: u64) -> Departure {
        match object.size {
            _ if sequence < self.edge => Departure::Again,
            Size::Short(_) => Departure::Short,
            Size::Long(_) if sequence + 1 < object.end(self.config.symbol) => Departure::Long,
            Size::Long(_) if self.follows(line, sequence) => Departure::Seam,
            Size::Long(_) => Departure::End,
        }
    }

    /// Returns whether the symbol behind `sequence` leaves as soon as it can.
    fn follows(&self, line: usize, sequence: u64) -> bool {
        self.holding.awaits(sequence + 1) || self.outgoing.wants(line, sequence + 1)
    }

    /// Makes this member the root from `now` on, which asks.
    pub(super) fn ask_from(&mut self, now: LocalNs) {
        let BroadcastConfig { window, sync_every, silence, .. } = self.config;
        self.polls = Some(Polls::new(window, sync_every, silence, now));
    }

    /// Returns the number of a new poll, which a symbol to the group carries, or else a message of
    /// its own down the tree.
    fn ask(&mut self, at: LocalNs, with_symbol: bool, out: &mut Out<BroadcastEvent>) -> u16 {
        let poll = self.next_poll(at);
        if with_symbol {
            return poll;
        }
        self.send_down(&self.poll(), poll, Some(at), out);
        0
    }

    /// Returns the number of a new poll that is asked at `at`.
    pub(super) fn next_poll(&mut self, at: LocalNs) -> u16 {
        let poll = self.reports.poll().wrapping_add(1).max(1);
        self.reports.polled(poll, at);
        self.record.polls += 1;
        poll
    }

    /// Records that a symbol that was to leave did or did not.
    pub(super) fn sent(&mut self, line: usize, sequence: u64, status: Status) {
        if status != Status::NoRoom {
            return self.outgoing.left();
        }
        self.record.sent -= 1;
        self.outgoing.refused();
        if self.holding.covers(sequence) {
            self.outgoing.want(line, sequence);
        }
    }

    /// Asks for the digest of where a symbol lies.
    pub(super) fn digest(of: Span, sequence: u64, out: &mut Out<BroadcastEvent>) {
        out.operate(Operation::Digest { of, token: BroadcastLabel::Digest { sequence }.token() });
    }

    /// Releases everything below `stable`: every member has it.
    pub(super) fn release(&mut self, stable: u64, out: &mut Out<BroadcastEvent>) {
        let from = self.holding.floor();
        // A symbol that was given up counts as held by nobody.
        let stable = stable.min(self.end().unwrap_or(u64::MAX));
        if stable <= from {
            return;
        }
        self.holding.release(stable);
        let stable = self.holding.floor();
        self.outgoing.release(from / BLOCK, stable / BLOCK);
        let missing = self.view.removed().as_slice().len() as u32;
        while self.objects.first() < self.aborted
            && let Some(object) = self.objects.take_first(stable)
        {
            self.shorts_stable += u32::from(matches!(object.size, Size::Short(_)));
            out.notify(BroadcastEvent::Stable { object: object.number, missing });
        }
        self.notify_end(out);
    }

    /// Ends the cast before `object`, at the latest.
    pub(super) fn abort_at(&mut self, object: u32, out: &mut Out<BroadcastEvent>) {
        self.aborted = self.aborted.min(object);
        self.notify_end(out);
    }

    /// Tells the end when all that comes before it is stable: until then it can still come earlier.
    fn notify_end(&mut self, out: &mut Out<BroadcastEvent>) {
        if self.objects.first() >= self.aborted && !self.end_reported {
            self.end_reported = true;
            out.notify(BroadcastEvent::Aborted { object: self.aborted });
        }
    }

    /// Returns the first sequence behind what is to be finished, once the cast was aborted; none as
    /// long as the last object is not known.
    pub(super) fn end(&self) -> Option<u64> {
        if self.aborted == NEVER {
            return None;
        }
        let last = self.aborted.checked_sub(1).and_then(|last| self.objects.get(last));
        let end = self.objects.get(self.aborted).map(|object| object.first);
        let over = (self.aborted <= self.objects.first()).then_some(self.holding.floor());
        end.or(last.map(|last| last.end(self.config.symbol))).or(over)
    }

    /// Returns the object to which `sequence` belongs.
    pub(super) fn object_at(&self, sequence: u64) -> Option<u32> {
        let is_of = |object: &&Object| {
            object.first <= sequence && sequence < object.end(self.config.symbol)
        };
        self.objects.all().find(is_of).map(|object| object.number)
    }
}
