//! A builder: gathers the contributions of all inputs to its timeslices, and gives their room back.
//!
//! # Model
//! One *line* for each input: its ring, and a slot for every position of this builder's order that
//! is not released. A contribution has landed when all its pieces have; a timeslice is complete
//! when the contributions of all inputs have that take part and have something for it. It is
//! released at once or on command, in any order; the room of a ring is free up to the first
//! position that is not released.
//!
//! A builder reports room and grants to inputs together ([`Frame::Credit`]). Where the policy
//! grants, it reports room alone only when a quarter of the ring waits for it or nobody was let in
//! for [`LAZY`]: the next grant says it as well. It also reports the least capacity of all
//! inputs, so that none goes further ahead than that.
//!
//! # Source
//! FLESnet's timeslice builder; release in any order and the quarter of a ring are ours and theirs,
//! in this order.
//!
//! # Invariants
//! I1. A contribution is given to its timeslice once, whatever comes from outside.
//! I2. Released counts only grow, never pass what is complete, and are the same for all inputs:
//!     a timeslice that one of them may release is built.
//!
//! # Not here
//! Which inputs are let in: `policy`. Which contributions are missing: `assembly`.

mod follow;
mod put;
#[cfg(test)]
mod tests;

use alloc::boxed::Box;
use alloc::collections::{BTreeMap, BTreeSet, VecDeque};
use alloc::vec::Vec;

use super::assembly::{Assemblies, AssemblyProgress, CompleteTimeslice};
use super::connection::{CAPACITY_MIN, CAPACITY_UNLIMITED};
use super::context::{ReleasePolicy, TimesliceContext, TimesliceEvent, TimesliceLabel};
use super::frame::{TimesliceFrame, WriteImmediate};
use super::layout::Role;
use super::load_balance::{BuilderLoad, LoadShedder};
use super::membership::{Change, Decision, Journal, RosterMember, Stake};
use super::outbox::Outbox;
use super::policy::{Directing, IntervalReport};
use super::record::BuilderRecord;
use crate::base::{LocalNs, Nanos, PeerNs, Rank};
use crate::wire::{Arrival, More, RemoteSpan, Span, Status};

/// How long room waits for a grant that carries it, after the last grant that anybody got: as
/// long as there are grants, everybody's turn comes round.
const LAZY: Nanos = Nanos::from_millis(1);
/// Slots of one line: more than contributions that fit any ring in use, so that a wrong number
/// takes no memory.
const SLOTS_MAX: u32 = 1 << 16;
/// Grants given in one call.
const GRANTS_MAX: usize = 64;
/// A fill in millionths.
const MILLION: u64 = 1_000_000;

/// A contribution of which something landed, or which is expected.
#[derive(Clone, Copy, Debug, Default)]
struct ContributionSlot {
    /// From the region's beginning.
    offset: u64,
    timeslice: u64,
    bytes: u32,
    pieces: u8,
    state: ContributionState,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum ContributionState {
    #[default]
    Landing,
    Landed,
}

/// What the input at the other end does not know.
#[derive(Clone, Copy, Debug, Default)]
struct PendingNotices {
    welcome: bool,
    credit: bool,
    ended: bool,
    proposal: bool,
    capacity: bool,
    /// An answer to a question, and when it was heard.
    answer: Option<(LocalNs, LocalNs)>,
}

impl PendingNotices {
    fn any(self) -> bool {
        self.welcome
            || self.credit
            || self.ended
            || self.proposal
            || self.capacity
            || self.answer.is_some()
    }

    /// Sends a frame of `kind` again that did not leave.
    fn again(&mut self, kind: u8) {
        match kind {
            TimesliceFrame::WELCOME => self.welcome = true,
            TimesliceFrame::CREDIT => self.credit = true,
            TimesliceFrame::PROPOSAL => self.proposal = true,
            TimesliceFrame::CAPACITY => self.capacity = true,
            // An old answer is worth nothing; the next question is not far.
            TimesliceFrame::ANSWER => {}
            _ => self.ended = true,
        }
    }
}

/// A write that came before it could be understood.
#[derive(Clone, Copy, Debug)]
struct EarlyWrite {
    into: Span,
    word: u64,
    at: LocalNs,
}

/// The connection of one input.
#[derive(Debug)]
struct InputConnection {
    peer: Rank,
    /// It takes part.
    is_in: bool,
    /// The epoch in which the younger of the two joined.
    life: u32,
    /// The position of the first contribution that it has something for, since it joined.
    begins: u64,
    /// The life with which it said hello.
    hello: Option<u32>,
    /// Where it said that its stream ends.
    end: u64,
    /// It knows where its ring is.
    welcomed: bool,
    /// By position, from the first one that is not released.
    slots: VecDeque<ContributionSlot>,
    early: Vec<EarlyWrite>,
    granted: u32,
    pending: PendingNotices,
    /// Bytes that landed and are not released.
    fill: u64,
    /// Bytes released that the input does not know of.
    unadvertised: u64,
    /// What the input thinks of this builder.
    burden: BuilderLoad,
    /// Its capacity, in contributions.
    capacity: u32,
    ended: bool,
}

impl InputConnection {
    fn new(peer: Rank, is_in: bool, life: u32) -> Self {
        Self {
            peer,
            is_in,
            life,
            begins: 0,
            hello: None,
            end: u64::MAX,
            welcomed: false,
            slots: VecDeque::new(),
            early: Vec::new(),
            granted: 0,
            pending: PendingNotices::default(),
            fill: 0,
            unadvertised: 0,
            burden: BuilderLoad::default(),
            capacity: CAPACITY_MIN,
            ended: false,
        }
    }

    /// Forgets contributions that have landed for which `is_void` is true, by how far they are behind
    /// the first position that is not released, and their timeslice.
    fn forget(&mut self, is_void: impl Fn(u64, u64) -> bool) {
        for (behind, slot) in (0..).zip(&mut self.slots) {
            if slot.state == ContributionState::Landed && is_void(behind, slot.timeslice) {
                self.fill -= u64::from(slot.bytes);
                *slot = ContributionSlot::default();
            }
        }
    }

    /// Returns whether it said hello in this life, and nothing of an earlier one lies in its ring.
    fn can_begin(&self) -> bool {
        self.is_in
            && self.hello == Some(self.life)
            && (self.welcomed
                || self.slots.iter().all(|slot| slot.state != ContributionState::Landed))
    }
}

/// The state of a builder.
#[derive(Debug)]
pub(super) struct Builder {
    place: usize,
    run: u32,
    lines: Vec<InputConnection>,
    /// The first position that is not released.
    first: u64,
    /// Released ones behind it.
    freed: BTreeSet<u64>,
    /// Complete timeslices that are not released, and their positions.
    held: BTreeMap<u64, u64>,
    outbox: Outbox,
    assemblies: Assemblies,
    policy: Option<Box<dyn Directing>>,
    relief: LoadShedder,
    /// When all inputs had said hello.
    barrier: Option<LocalNs>,
    over: bool,
    /// When room is reported if nobody is let in before.
    lazy_at: Option<LocalNs>,
    /// The least capacity of all inputs.
    least_capacity: u32,
    puts: put::PendingFetches,
    record: BuilderRecord,
}

impl Builder {
    pub(super) fn new(place: usize, cx: &TimesliceContext<'_>) -> Self {
        let config = cx.config;
        let inputs = config.layout.inputs();
        let journal = cx.journal;
        let mine = journal.life(journal.member(Role::Builder(place)));
        let line = |(input, peer): (usize, &Rank)| {
            let member = journal.member(Role::Input(input));
            InputConnection::new(*peer, journal.takes_part(member), journal.life(member).max(mine))
        };
        let mut builder = Self {
            place,
            run: config.run.into(),
            lines: inputs.iter().enumerate().map(line).collect(),
            first: 0,
            freed: BTreeSet::new(),
            held: BTreeMap::new(),
            outbox: Outbox::new(inputs.len()),
            assemblies: Assemblies::new(place, inputs.len(), journal),
            policy: config.policy.directing(
                place,
                inputs.len(),
                journal.round(),
                config.window,
                config.dfs,
            ),
            relief: LoadShedder::new(config.layout.weights()[place]),
            // A builder that comes later must not wait for all.
            barrier: (mine > 0).then_some(cx.now),
            over: false,
            lazy_at: None,
            least_capacity: CAPACITY_MIN,
            puts: put::PendingFetches::default(),
            record: BuilderRecord::default(),
        };
        for input in 0..inputs.len() {
            builder
                .assemblies
                .expect(input, builder.lines[input].is_in.then(|| journal.range(input)));
            if !builder.lines[input].is_in
                && let Some(policy) = &mut builder.policy
            {
                policy.input_left(input);
            }
        }
        builder.skip(journal);
        builder
    }

    /// Returns what was counted since the last call.
    pub(super) fn take_record(&mut self) -> BuilderRecord {
        let window = self.policy.as_ref().and_then(|policy| policy.window());
        let intervals =
            self.policy.as_mut().map_or_else(Vec::new, |policy| policy.take_intervals());
        BuilderRecord { window, intervals, ..core::mem::take(&mut self.record) }
    }

    /// Returns how many contributions of the input at `place` have landed, modulo 2^32.
    /// O(contributions that are not released).
    pub(super) fn landed_of(&self, place: usize) -> Option<u32> {
        let line = self.lines.get(place)?;
        let landed =
            line.slots.iter().filter(|slot| slot.state != ContributionState::Landing).count();
        Some((self.first as u32).wrapping_add(landed as u32))
    }

    /// Returns where the contribution of the input at `place` to `timeslice` lies, while it has
    /// landed and is not released.
    pub(super) fn contribution(&self, place: usize, timeslice: u64, region: Span) -> Option<Span> {
        let behind = self.held.get(&timeslice)? - self.first;
        let slot = self
            .lines
            .get(place)?
            .slots
            .get(behind as usize)
            .filter(|slot| slot.state == ContributionState::Landed)?;
        Some(Span { offset: slot.offset, length: slot.bytes, ..region })
    }

    /// Returns the place of the first input that the oldest timeslice in the making lacks.
    pub(super) fn awaited(&self) -> Option<usize> {
        self.assemblies.awaited()
    }

    /// Returns the position of the first timeslice of its order that is not complete.
    pub(super) const fn row(&self) -> u64 {
        self.assemblies.row()
    }

    pub(super) fn arrival(
        &mut self,
        cx: &mut TimesliceContext<'_>,
        place: usize,
        frame: TimesliceFrame,
    ) -> More {
        let line = &mut self.lines[place];
        match frame {
            TimesliceFrame::Hello { life } => {
                line.hello = Some(life);
                self.greet(cx.now, place);
            }
            TimesliceFrame::Last { life, timeslices } if line.is_in && life == line.life => {
                self.expect_until(cx, place, timeslices);
            }
            TimesliceFrame::End { life, timeslices } if line.is_in && life == line.life => {
                line.pending.ended = true;
                line.ended = true;
                self.outbox.want(place);
                if cx.journal.epoch() > 0 {
                    self.expect_until(cx, place, timeslices);
                }
                self.look_at_capacity();
            }
            TimesliceFrame::Burden { life, burden } if life == line.life => line.burden = burden,
            TimesliceFrame::Capacity { life, contributions, .. } if life == line.life => {
                line.capacity = contributions.max(CAPACITY_MIN);
                self.look_at_capacity();
            }
            TimesliceFrame::Report(report) => self.reported(place, report),
            TimesliceFrame::Ask { asked } => {
                self.lines[place].pending.answer = Some((asked, cx.now));
                self.outbox.want(place);
            }
            _ => self.record.strangers += 1,
        }
        self.go_on(cx)
    }

    pub(super) fn other(&mut self, cx: &mut TimesliceContext<'_>, arrival: &Arrival<'_>) -> More {
        match *arrival {
            Arrival::Done { token, status, .. } => match TimesliceLabel::from_token(token) {
                Some(TimesliceLabel::Frame { place, kind }) => {
                    if status == Status::NoRoom {
                        self.lines[place as usize].pending.again(kind);
                    }
                    self.outbox.done(place as usize, status);
                }
                Some(TimesliceLabel::Write { sequence, .. }) => self.fetched(cx, sequence, status),
                None => {}
            },
            Arrival::Room { queue } => {
                if queue.class() == Some(cx.config.control) {
                    self.outbox.room();
                }
                self.fetch_again(cx);
            }
            _ => return More::No,
        }
        self.go_on(cx)
    }

    /// Records that one write of the input at `place` landed.
    pub(super) fn landed(
        &mut self,
        cx: &mut TimesliceContext<'_>,
        place: usize,
        into: Span,
        word: u64,
        at: LocalNs,
    ) -> More {
        if !cx.config.policy.is_building() {
            self.record.contributions += 1;
            self.record.bytes += u64::from(into.length);
            return More::No;
        }
        match self.piece(cx.journal, place, into, word, at) {
            Some((position, timeslice, bytes)) => {
                self.whole(cx, place, [position, timeslice], bytes, at)
            }
            None => return More::No,
        }
        self.go_on(cx)
    }

    /// Releases `timeslice`, which the application no longer needs.
    pub(super) fn release(&mut self, cx: &mut TimesliceContext<'_>, timeslice: u64) -> More {
        self.free(cx, timeslice);
        self.go_on(cx)
    }

    pub(super) fn tick(&mut self, cx: &mut TimesliceContext<'_>) -> More {
        if self.lazy_at.is_some_and(|at| at <= cx.now) {
            self.lazy_at = None;
            for place in 0..self.lines.len() {
                if self.lines[place].pending.credit {
                    self.outbox.want(place);
                }
            }
        }
        self.go_on(cx)
    }

    /// Handles the end of an interval of the heartbeat. Says what this builder wants to weigh from
    /// now on, if that is something else.
    pub(super) fn beat(&mut self, journal: &Journal) -> Option<u32> {
        let weight = journal.weight(self.place);
        let burdens =
            self.lines.iter().filter(|line| line.is_in && !line.ended).map(|line| line.burden);
        self.relief.interval(weight, burdens).filter(|_| weight > 0)
    }

    /// Sets what the application wants it to weigh with all its turns.
    pub(super) const fn weigh(&mut self, full: u32) {
        self.relief.set_full(full);
    }

    pub(super) fn deadline(&self) -> Option<LocalNs> {
        let policy = self.policy.as_ref().and_then(|policy| policy.deadline());
        [policy, self.lazy_at].into_iter().flatten().min()
    }

    /// Welcomes the input at `place`, if it can begin; the first time when all can.
    fn greet(&mut self, now: LocalNs, place: usize) {
        if self.barrier.is_none()
            && self.lines.iter().all(|line| !line.is_in || line.hello == Some(line.life))
        {
            self.barrier = Some(now);
            return (0..self.lines.len()).for_each(|place| self.greet(now, place));
        }
        let line = &mut self.lines[place];
        if self.barrier.is_some() && line.can_begin() {
            line.pending.welcome = true;
            line.welcomed = true;
            // Grants to it before it followed the decision that brought it were sent to nobody, and
            // what was released before it has not heard.
            line.pending.credit |= line.granted > 0 || self.first > 0;
            line.pending.capacity |= self.least_capacity > CAPACITY_MIN;
            self.outbox.want(place);
        }
    }

    /// Finds the least capacity of all inputs, which all learn when it has changed.
    fn look_at_capacity(&mut self) {
        let sends = |line: &&InputConnection| line.is_in && !line.ended;
        let least = self.lines.iter().filter(sends).map(|line| line.capacity).min();
        let before =
            core::mem::replace(&mut self.least_capacity, least.unwrap_or(CAPACITY_UNLIMITED));
        if self.least_capacity != before {
            for (place, line) in self.lines.iter_mut().enumerate().filter(|(_, line)| line.welcomed)
            {
                line.pending.capacity = true;
                self.outbox.want(place);
            }
        }
    }

    /// Handles an input's report of an interval; what follows from it is proposed to all.
    fn reported(&mut self, place: usize, report: IntervalReport) {
        let Some(policy) = &mut self.policy else { return };
        let before = policy.proposal();
        policy.reported(place, report);
        if policy.proposal() != before {
            for (place, line) in self.lines.iter_mut().enumerate() {
                line.pending.proposal = true;
                self.outbox.want(place);
            }
        }
    }

    /// Puts one piece into its slot; position, timeslice and length of the contribution when it was
    /// the last one.
    fn piece(
        &mut self,
        journal: &Journal,
        place: usize,
        into: Span,
        word: u64,
        at: LocalNs,
    ) -> Option<(u64, u64, u32)> {
        let (mark, line) = (WriteImmediate::from_word(word), &mut self.lines[place]);
        if !line.is_in || !line.welcomed || !mark.is_of(line.life, self.run) {
            self.record.strangers += 1;
            return None;
        }
        let Some(behind) = mark.behind(self.first) else {
            self.record.doubled += 1;
            return None;
        };
        let position = self.first + u64::from(behind);
        let timeslice = journal
            .nth(self.place, position)
            .filter(|timeslice| mark.belongs_to(*timeslice) && behind < SLOTS_MAX);
        // An input that knows more may send what another one contributes to that is not expected
        // here yet: complete without it, its own could never be released.
        let Some(timeslice) = timeslice.filter(|_| !mark.is_ahead_of(journal.epoch())) else {
            if line.early.len() < SLOTS_MAX as usize && behind < SLOTS_MAX {
                line.early.push(EarlyWrite { into, word, at });
            }
            self.record.strangers += 1;
            return None;
        };
        let behind = behind as usize;
        if line.slots.len() <= behind {
            line.slots.resize_with(behind + 1, ContributionSlot::default);
        }
        let slot = &mut line.slots[behind];
        if slot.state != ContributionState::Landing {
            self.record.doubled += 1;
            return None;
        }
        slot.offset = if slot.pieces == 0 { into.offset } else { slot.offset.min(into.offset) };
        slot.pieces += 1;
        slot.timeslice = timeslice;
        slot.bytes = slot.bytes.saturating_add(into.length);
        if slot.pieces < mark.pieces {
            return None;
        }
        slot.state = ContributionState::Landed;
        line.fill += u64::from(slot.bytes);
        Some((position, timeslice, slot.bytes))
    }

    /// Handles a whole contribution.
    fn whole(
        &mut self,
        cx: &mut TimesliceContext<'_>,
        place: usize,
        which: [u64; 2],
        bytes: u32,
        at: LocalNs,
    ) {
        self.record.contributions += 1;
        self.record.bytes += u64::from(bytes);
        if let Some(policy) = &mut self.policy {
            policy.landed(at, place, bytes);
        }
        match self.assemblies.landed(at, cx.journal, place, which) {
            AssemblyProgress::Open => {}
            AssemblyProgress::Doubled => self.record.doubled += 1,
            AssemblyProgress::Complete(complete) => self.complete(cx, complete),
        }
    }

    fn complete(&mut self, cx: &mut TimesliceContext<'_>, complete: CompleteTimeslice) {
        let CompleteTimeslice { position, timeslice, took, missing } = complete;
        self.record.timeslices += 1;
        self.record.completion.record(took.0);
        let ring = cx.config.ring.0.max(1);
        self.lines.iter().for_each(|line| self.record.fill.record(line.fill * MILLION / ring));
        self.held.insert(timeslice, position);
        cx.out.notify(TimesliceEvent::Complete { timeslice, position, missing });
        if cx.config.release == ReleasePolicy::AtOnce {
            self.free(cx, timeslice);
        }
        if cx.journal.epoch() > 0 {
            self.skip(cx.journal);
        }
    }

    /// Gives the room of `timeslice` back in all rings.
    fn free(&mut self, cx: &mut TimesliceContext<'_>, timeslice: u64) {
        let Some(position) = self.held.remove(&timeslice) else { return };
        self.freed.insert(position);
        self.pass();
        let (quarter, grants) = (cx.config.ring.0 / 4, cx.config.policy.grants());
        for (place, line) in self.lines.iter_mut().enumerate() {
            // One that joined may wait until what stands before its own is released.
            let waits = line.begins >= self.first;
            if line.pending.credit && (!grants || waits || line.unadvertised >= quarter) {
                self.outbox.want(place);
            }
        }
        if grants {
            self.lazy_at = Some(cx.now + LAZY);
        }
    }

    /// Goes on to the first position that is not released.
    fn pass(&mut self) {
        while self.freed.remove(&self.first) {
            self.first += 1;
            for line in &mut self.lines {
                if let Some(slot) =
                    line.slots.pop_front().filter(|slot| slot.state == ContributionState::Landed)
                {
                    line.fill -= u64::from(slot.bytes);
                    line.unadvertised += u64::from(slot.bytes);
                }
                line.pending.credit = line.welcomed;
            }
        }
    }

    /// Does everything that can be done now.
    fn go_on(&mut self, cx: &mut TimesliceContext<'_>) -> More {
        let more = self.let_in(cx.now);
        self.send_frames(cx);
        let mut in_part = self.lines.iter().filter(|line| line.is_in);
        if !self.over
            && self.barrier.is_some()
            && in_part.all(|line| line.ended)
            && self.assemblies.open() == 0
        {
            self.over = true;
            cx.out.notify(TimesliceEvent::Ended);
        }
        more
    }

    /// Gives the grants that the policy gives now.
    fn let_in(&mut self, now: LocalNs) -> More {
        let Some(policy) = self.policy.as_mut().filter(|_| self.barrier.is_some()) else {
            return More::No;
        };
        for _ in 0..GRANTS_MAX {
            let Some(place) = policy.grant(now, self.assemblies.row()) else { return More::No };
            let line = &mut self.lines[place];
            line.granted = line.granted.wrapping_add(1);
            line.pending.credit = true;
            self.outbox.want(place);
            self.lazy_at = self.lazy_at.map(|_| now + LAZY);
        }
        More::Yes
    }

    fn send_frames(&mut self, cx: &mut TimesliceContext<'_>) {
        while cx.out.room() > 0
            && let Some(place) = self.outbox.next()
        {
            let line = &mut self.lines[place];
            let frame = if core::mem::take(&mut line.pending.welcome) {
                let ring = cx.config.ring.0;
                let offset = cx.config.rings.offset + place as u64 * ring;
                let ring_at = RemoteSpan { region: cx.config.rings.region, offset };
                TimesliceFrame::Welcome { life: line.life, ring: ring_at, length: ring }
            } else if core::mem::take(&mut line.pending.ended) {
                TimesliceFrame::Ended { life: line.life }
            } else if let Some((asked, heard)) = line.pending.answer.take() {
                let [heard, answered] =
                    [heard, cx.now].map(|at| PeerNs(at.since(self.barrier.unwrap_or(at)).0));
                TimesliceFrame::Answer { asked, heard, answered }
            } else if core::mem::take(&mut line.pending.credit) {
                line.unadvertised = 0;
                TimesliceFrame::Credit {
                    life: line.life,
                    released: self.first as u32,
                    granted: line.granted,
                }
            } else if core::mem::take(&mut line.pending.capacity) {
                let (epoch, contributions) = (cx.journal.epoch(), self.least_capacity);
                TimesliceFrame::Capacity { life: line.life, epoch, contributions }
            } else if core::mem::take(&mut line.pending.proposal)
                && let Some(proposal) = self.policy.as_ref().and_then(|policy| policy.proposal())
            {
                TimesliceFrame::Proposal(proposal)
            } else {
                self.outbox.nothing(place);
                continue;
            };
            cx.send(line.peer, place, frame);
            if line.pending.any() {
                self.outbox.want(place);
            }
        }
    }
}
