//! A builder: gathers the contributions of all inputs to its timeslices, and gives their room back.
//!
//! # Model
//! One *line* for each input: its ring, and a slot for every contribution that was sent and is not released, by number. A
//! contribution has landed when all its pieces have; a timeslice is complete when the contributions of all inputs have. It is
//! released at once or on command, in any order; the room of a ring is free up to the first slot that is not released.
//!
//! Inputs are told of room and of grants together ([`Frame::Credit`]). Where the policy grants, room alone is told only when a
//! quarter of the ring waits for it or nothing else was said for [`LAZY`]: the next grant says it as well.
//!
//! # Source
//! FLESnet's timeslice builder; release in any order and the quarter of a ring are ours and theirs, in this order.
//!
//! # Invariants
//! I1. A contribution is given to its timeslice once, whatever comes from outside.
//! I2. Released counts only grow, and never pass what landed.
//!
//! # Not here
//! Who is let in: `policy`. Which contributions are missing: `assembly`.

use alloc::boxed::Box;
use alloc::collections::VecDeque;
use alloc::vec::Vec;

use super::assembly::{Assemblies, Progress};
use super::context::{Context, Event, Label, Release};
use super::frame::{Frame, Mark};
use super::layout::Layout;
use super::outbox::Outbox;
use super::policy::{Directing, Report};
use super::record::BuilderRecord;
use crate::base::{LocalNs, Nanos, PeerNs, Rank};
use crate::wire::{Arrival, More, RemoteSpan, Span, Status};

/// How long room may wait for a grant to be told along with.
const LAZY: Nanos = Nanos::from_millis(1);
/// Slots of one line: more than contributions that fit any ring in use, so that a wrong number takes no memory.
const SLOTS_MAX: u32 = 1 << 16;
/// Grants given in one call.
const GRANTS_MAX: usize = 64;
/// A fill in millionths.
const MILLION: u64 = 1_000_000;

/// A contribution of which something landed, or which is expected.
#[derive(Clone, Copy, Debug, Default)]
struct Slot {
    timeslice: u64,
    /// From the region's beginning.
    offset: u64,
    bytes: u32,
    pieces: u8,
    state: State,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum State {
    #[default]
    Landing,
    Landed,
    Released,
}

/// What the input at the other end has not been told.
#[derive(Clone, Copy, Debug, Default)]
struct Owed {
    welcome: bool,
    credit: bool,
    ended: bool,
    proposal: bool,
    /// An answer to a question, and when it was heard.
    answer: Option<(LocalNs, LocalNs)>,
}

impl Owed {
    fn any(self) -> bool {
        self.welcome || self.credit || self.ended || self.proposal || self.answer.is_some()
    }

    /// A frame of `kind` did not leave.
    fn again(&mut self, kind: u8) {
        match kind {
            Frame::WELCOME => self.welcome = true,
            Frame::CREDIT => self.credit = true,
            Frame::PROPOSAL => self.proposal = true,
            // An old answer is worth nothing; the next question is not far.
            Frame::ANSWER => {}
            _ => self.ended = true,
        }
    }
}

/// The connection of one input.
#[derive(Debug)]
struct Line {
    peer: Rank,
    incarnation: Option<u32>,
    /// The number of the first slot.
    first: u32,
    slots: VecDeque<Slot>,
    granted: u32,
    owed: Owed,
    /// Bytes that landed and are not released.
    fill: u64,
    /// Bytes released that the input does not know of.
    untold: u64,
    ended: bool,
}

/// The state of a builder.
#[derive(Debug)]
pub(super) struct Builder {
    lines: Vec<Line>,
    outbox: Outbox,
    assemblies: Assemblies,
    policy: Option<Box<dyn Directing>>,
    /// Inputs that have not said hello.
    silent: usize,
    /// When the last one did.
    barrier: LocalNs,
    /// Inputs whose stream has ended.
    ended: usize,
    over: bool,
    /// When room is told although nobody was let in.
    lazy_at: Option<LocalNs>,
    record: BuilderRecord,
}

impl Builder {
    pub(super) fn new(place: usize, cx: &Context<'_>) -> Self {
        let config = cx.config;
        let inputs = config.layout.inputs();
        let line = |peer: &Rank| Line {
            peer: *peer,
            incarnation: None,
            first: 0,
            slots: VecDeque::new(),
            granted: 0,
            owed: Owed::default(),
            fill: 0,
            untold: 0,
            ended: false,
        };
        Self {
            lines: inputs.iter().map(line).collect(),
            outbox: Outbox::new(inputs.len()),
            assemblies: Assemblies::new(place, &config.layout),
            policy: config.policy.directing(
                place,
                [inputs.len(), config.layout.builders().len()],
                config.window,
                config.dfs,
            ),
            silent: inputs.len(),
            barrier: LocalNs(0),
            ended: 0,
            over: false,
            lazy_at: None,
            record: BuilderRecord::default(),
        }
    }

    /// What was counted since the last call.
    pub(super) fn take_record(&mut self) -> BuilderRecord {
        let window = self.policy.as_ref().and_then(|policy| policy.window());
        BuilderRecord { window, ..core::mem::take(&mut self.record) }
    }

    /// Where the contribution of the input at `place` to `timeslice` lies, while it has landed and is not released.
    pub(super) fn contribution(&self, place: usize, timeslice: u64, region: Span) -> Option<Span> {
        let line = self.lines.get(place)?;
        let slot = line.slots.iter().find(|slot| slot.state == State::Landed && slot.timeslice == timeslice)?;
        Some(Span { offset: slot.offset, length: slot.bytes, ..region })
    }

    /// The oldest timeslice that is not complete.
    pub(super) const fn oldest(&self) -> u64 {
        self.assemblies.near()
    }

    pub(super) fn arrival(&mut self, cx: &mut Context<'_>, place: usize, frame: Frame) -> More {
        match frame {
            Frame::Hello { incarnation } => self.hello(cx.now, place, incarnation),
            Frame::End { .. } => {
                let line = &mut self.lines[place];
                line.owed.ended = true;
                self.ended += usize::from(!line.ended);
                line.ended = true;
                self.outbox.want(place);
            }
            Frame::Report(report) => self.reported(place, report),
            Frame::Ask { asked } => {
                self.lines[place].owed.answer = Some((asked, cx.now));
                self.outbox.want(place);
            }
            _ => self.record.strangers += 1,
        }
        self.go_on(cx)
    }

    pub(super) fn other(&mut self, cx: &mut Context<'_>, arrival: &Arrival<'_>) -> More {
        match *arrival {
            Arrival::Done { token, status, .. } => {
                if let Some(Label::Frame { place, kind }) = Label::of(token) {
                    if status == Status::NoRoom {
                        self.lines[place as usize].owed.again(kind);
                    }
                    self.outbox.done(place as usize, status);
                }
            }
            Arrival::Room { class, .. } if class == cx.config.control => self.outbox.room(),
            _ => return More::No,
        }
        self.go_on(cx)
    }

    /// One write of the input at `place` landed.
    pub(super) fn landed(&mut self, cx: &mut Context<'_>, place: usize, into: Span, word: u64, at: LocalNs) -> More {
        if !cx.config.policy.is_building() {
            self.record.contributions += 1;
            self.record.bytes += u64::from(into.length);
            return More::No;
        }
        match self.piece(&cx.config.layout, place, into, word) {
            Some((timeslice, bytes)) => self.whole(cx, place, timeslice, bytes, at),
            None => return More::No,
        }
        self.go_on(cx)
    }

    /// The application no longer needs `timeslice`.
    pub(super) fn release(&mut self, cx: &mut Context<'_>, timeslice: u64) -> More {
        self.free(cx, timeslice);
        self.go_on(cx)
    }

    pub(super) fn tick(&mut self, cx: &mut Context<'_>) -> More {
        if self.lazy_at.is_some_and(|at| at <= cx.now) {
            self.lazy_at = None;
            for place in 0..self.lines.len() {
                if self.lines[place].owed.credit {
                    self.outbox.want(place);
                }
            }
        }
        self.go_on(cx)
    }

    pub(super) fn deadline(&self) -> Option<LocalNs> {
        let policy = self.policy.as_ref().and_then(|policy| policy.deadline());
        [policy, self.lazy_at].into_iter().flatten().min()
    }

    /// An input is there; when all are, each is told where its ring is.
    fn hello(&mut self, now: LocalNs, place: usize, incarnation: u32) {
        let line = &mut self.lines[place];
        if line.incarnation.is_none() {
            self.silent -= 1;
            self.barrier = now;
        }
        line.incarnation = Some(incarnation);
        line.owed.welcome = true;
        if self.silent == 0 {
            let lines = self.lines.iter().enumerate().filter(|(_, line)| line.owed.welcome);
            lines.for_each(|(place, _)| self.outbox.want(place));
        }
    }

    /// An input reports an interval; what follows from it is proposed to all.
    fn reported(&mut self, place: usize, report: Report) {
        let Some(policy) = &mut self.policy else { return };
        let before = policy.proposal();
        policy.reported(place, report);
        if policy.proposal() != before {
            for (place, line) in self.lines.iter_mut().enumerate() {
                line.owed.proposal = true;
                self.outbox.want(place);
            }
        }
    }

    /// Puts one piece into its slot; the timeslice and length of the contribution when it was the last one.
    fn piece(&mut self, layout: &Layout, place: usize, into: Span, word: u64) -> Option<(u64, u32)> {
        let near = self.assemblies.near();
        let line = &mut self.lines[place];
        let Some((mark, behind)) =
            Mark::of(word).and_then(|mark| mark.behind(line.first).map(|behind| (mark, behind as usize)))
        else {
            self.record.doubled += 1;
            return None;
        };
        let timeslice = mark.timeslice_near(near);
        if behind >= SLOTS_MAX as usize || !self.assemblies.is_of(layout, timeslice) {
            self.record.strangers += 1;
            return None;
        }
        if line.slots.len() <= behind {
            line.slots.resize_with(behind + 1, Slot::default);
        }
        let slot = &mut line.slots[behind];
        if slot.state != State::Landing {
            self.record.doubled += 1;
            return None;
        }
        slot.offset = if slot.pieces == 0 { into.offset } else { slot.offset.min(into.offset) };
        slot.pieces += 1;
        slot.bytes = slot.bytes.saturating_add(into.length);
        if slot.pieces < mark.pieces {
            return None;
        }
        slot.state = State::Landed;
        slot.timeslice = timeslice;
        line.fill += u64::from(slot.bytes);
        Some((slot.timeslice, slot.bytes))
    }

    /// A whole contribution is there.
    fn whole(&mut self, cx: &mut Context<'_>, place: usize, timeslice: u64, bytes: u32, at: LocalNs) {
        self.record.contributions += 1;
        self.record.bytes += u64::from(bytes);
        if let Some(policy) = &mut self.policy {
            policy.landed(at, place, bytes);
        }
        match self.assemblies.landed(at, &cx.config.layout, place, timeslice) {
            Progress::Open => {}
            Progress::Doubled => self.record.doubled += 1,
            Progress::Complete(took) => {
                self.record.timeslices += 1;
                self.record.completion.record(took.0);
                let ring = cx.config.ring.0.max(1);
                self.lines.iter().for_each(|line| self.record.fill.record(line.fill * MILLION / ring));
                cx.out.tell(Event::Complete { timeslice, missing: 0 });
                if cx.config.release == Release::AtOnce {
                    self.free(cx, timeslice);
                }
            }
        }
    }

    /// Gives the room of `timeslice` back in all rings.
    fn free(&mut self, cx: &mut Context<'_>, timeslice: u64) {
        let (quarter, grants) = (cx.config.ring.0 / 4, cx.config.policy.grants());
        for (place, line) in self.lines.iter_mut().enumerate() {
            let found = line.slots.iter_mut().find(|slot| slot.timeslice == timeslice && slot.state == State::Landed);
            let Some(slot) = found else { continue };
            slot.state = State::Released;
            while let Some(slot) = line.slots.front().filter(|slot| slot.state == State::Released) {
                line.fill -= u64::from(slot.bytes);
                line.untold += u64::from(slot.bytes);
                line.first = line.first.wrapping_add(1);
                line.owed.credit = true;
                line.slots.pop_front();
            }
            if line.owed.credit && (!grants || line.untold >= quarter) {
                self.outbox.want(place);
            }
        }
        if grants {
            self.lazy_at = Some(cx.now + LAZY);
        }
    }

    /// Does everything that can be done now.
    fn go_on(&mut self, cx: &mut Context<'_>) -> More {
        let more = self.let_in(cx.now);
        self.send_frames(cx);
        if !self.over && self.ended == self.lines.len() && self.assemblies.open() == 0 {
            self.over = true;
            cx.out.tell(Event::Ended);
        }
        more
    }

    /// Gives the grants that the policy gives now.
    fn let_in(&mut self, now: LocalNs) -> More {
        let Some(policy) = self.policy.as_mut().filter(|_| self.silent == 0) else { return More::No };
        for _ in 0..GRANTS_MAX {
            let Some(place) = policy.grant(now, self.assemblies.row()) else { return More::No };
            let line = &mut self.lines[place];
            line.granted = line.granted.wrapping_add(1);
            line.owed.credit = true;
            self.outbox.want(place);
        }
        More::Yes
    }

    fn send_frames(&mut self, cx: &mut Context<'_>) {
        while cx.out.room() > 0
            && let Some(place) = self.outbox.next()
        {
            let line = &mut self.lines[place];
            let frame = if core::mem::take(&mut line.owed.welcome) {
                let ring = cx.config.ring.0;
                let offset = cx.config.rings.offset + place as u64 * ring;
                let ring_at = RemoteSpan { region: cx.config.rings.region, offset };
                Frame::Welcome { incarnation: line.incarnation.unwrap_or(0), ring: ring_at, length: ring }
            } else if core::mem::take(&mut line.owed.ended) {
                Frame::Ended
            } else if let Some((asked, heard)) = line.owed.answer.take() {
                let [heard, answered] = [heard, cx.now].map(|at| PeerNs(at.since(self.barrier).0));
                Frame::Answer { asked, heard, answered }
            } else if core::mem::take(&mut line.owed.credit) {
                line.untold = 0;
                Frame::Credit { released: line.first, granted: line.granted }
            } else if core::mem::take(&mut line.owed.proposal)
                && let Some(proposal) = self.policy.as_ref().and_then(|policy| policy.proposal())
            {
                Frame::Proposal(proposal)
            } else {
                self.outbox.nothing(place);
                continue;
            };
            cx.send(line.peer, place, frame);
            if line.owed.any() {
                self.outbox.want(place);
            }
        }
    }
}
