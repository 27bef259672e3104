//! An input: sends the contributions of its source to their builders, as its policy chooses and as
//! rings have room.
//!
//! # Model
//! One connection for each builder: *calling* until the builder has named its ring, *open* until
//! the stream has ended and everything was released, *ended* when the builder knows. A contribution
//! is written into the builder's ring piece by piece; its room is free again when the builder has
//! released it, and so is the memory that it came from.
//!
//! # Source
//! FLESnet's input channel sender; the end of the stream and the barrier before it as there,
//! without an interval's wait.
//!
//! # Invariants
//! I1. Contributions to one builder are sent in its order, and released in it.
//! I2. Nothing is sent before every builder has named its ring: all begin behind one barrier.
//! I3. It holds to what it said to be at stake until the epoch is decided: nothing is sent at or
//!     beyond the horizon, and nothing
//!     more that the builder in question releases is heard.
//! I4. The end of the stream is reported when everything is released everywhere: what a dead
//!     builder had is never needed after it.
//!
//! # Not here
//! Which builder is next: `policy`. Where contributions come from: `supply`.

mod capacity;
mod follow;
mod post;
mod put;
#[cfg(test)]
mod tests;

use alloc::boxed::Box;
use alloc::collections::VecDeque;
use alloc::vec::Vec;

use super::connection::{
    BuilderConnection, CAPACITY_MIN, CAPACITY_UNLIMITED, ConnectionState, Connections,
    ReportedCapacity, UnreleasedContribution,
};
use super::context::{TimesliceContext, TimesliceEvent, TimesliceLabel};
use super::frame::TimesliceFrame;
use super::layout::Role;
use super::load_balance::LoadEstimator;
use super::outbox::Outbox;
use super::policy::{Cause, Choice, IntervalReport, Policy, Sending};
use super::record::{BlockedTimes, InputRecord};
use super::ring::Ring;
use super::supply::{ContributionSource, ContributionSpans, Supply};
use crate::base::{LocalNs, Nanos, Rank};
use crate::clock::ClockExchange;
use crate::wire::{Arrival, More, RemoteSpan, Status};

/// How often a peer that has not answered is asked again. Only lossy wires need it.
const RETRY: Nanos = Nanos::from_millis(50);
/// Reports that are kept for builders that have one under way: intervals are reported one or two at
/// a time.
const REPORTS_MAX: usize = 8;
/// Half of all numbers: what lies further ahead lies behind.
const HALF: u32 = 1 << 31;

/// The state of an input.
#[derive(Debug)]
pub(super) struct InputNode {
    place: usize,
    connections: Connections,
    policy: Box<dyn Sending>,
    outbox: Outbox,
    begun: bool,
    /// Every builder has named its ring.
    ready: bool,
    reported_too_long: bool,
    ended: bool,
    writes: u32,
    reached: u64,
    /// Writes that found no room: builder, number, piece.
    again: VecDeque<(u32, u32, u8)>,
    retry_at: Option<LocalNs>,
    /// The latest reports of the policy, and how many there were.
    reports: VecDeque<IntervalReport>,
    reports_made: u64,
    /// How many contributions builders know it to hold.
    capacity: u32,
    /// Intervals of the heartbeat, since the beginning.
    beats: u64,
    burdens: LoadEstimator,
    blocked: BlockedTimes,
    record: InputRecord,
}

impl InputNode {
    pub(super) fn new(place: usize, cx: &TimesliceContext<'_>) -> Self {
        let config = cx.config;
        let journal = cx.journal.clone();
        let me = journal.member(Role::Input(place));
        let connection = |(builder, peer): (usize, &Rank)| {
            let member = journal.member(Role::Builder(builder));
            let stage = if journal.takes_part(member) {
                ConnectionState::Calling
            } else {
                ConnectionState::Out
            };
            BuilderConnection::new(*peer, stage, journal.life(member).max(journal.life(me)))
        };
        let all: Vec<_> = config.layout.builders().iter().enumerate().map(connection).collect();
        let first = journal.range(place).start;
        // Contributions come from memory that fills, and ranks may die.
        let is_bounded = config.source == ContributionSource::Given
            && config.heartbeat.is_some()
            && config.policy.is_building();
        let mut policy = config.policy.sending(place, config.layout.inputs().len(), config.dfs);
        let mut connections = Connections {
            all,
            range: 0..0,
            horizon: None,
            unreleased: None,
            least_capacity: CAPACITY_UNLIMITED,
            bounded_from: is_bounded.then(|| journal.life(me)),
            supply: Supply::new(config.source, first),
            policy: config.policy,
            slots: config.slots,
            journal,
        };
        connections.look_up_all(place);
        policy.redealt(cx.now, &connections);
        Self {
            place,
            policy,
            outbox: Outbox::new(connections.all.len()),
            burdens: LoadEstimator::new(connections.all.len()),
            connections,
            // An input that joins later has said that it wants to begin.
            begun: first > 0,
            ready: false,
            reported_too_long: false,
            ended: false,
            writes: 0,
            reached: 0,
            again: VecDeque::new(),
            retry_at: None,
            reports: VecDeque::new(),
            reports_made: 0,
            capacity: CAPACITY_MIN,
            beats: 0,
            blocked: BlockedTimes::default(),
            record: InputRecord::default(),
        }
    }

    /// Returns what was counted since the last call.
    pub(super) fn take_record(&mut self, now: LocalNs) -> InputRecord {
        InputRecord { blocked: self.blocked.take(now), ..core::mem::take(&mut self.record) }
    }

    /// Returns the first timeslice behind all those to which something was posted.
    pub(super) const fn reached(&self) -> u64 {
        self.reached
    }

    pub(super) fn boot(&mut self, cx: &mut TimesliceContext<'_>) -> More {
        (0..self.connections.all.len()).for_each(|place| self.outbox.want(place));
        self.retry_at = Some(cx.now + RETRY);
        self.go_on(cx)
    }

    /// Contributions may leave as soon as every builder is there.
    pub(super) fn begin(&mut self, cx: &mut TimesliceContext<'_>) -> More {
        self.begun = true;
        self.go_on(cx)
    }

    /// Returns one more contribution.
    pub(super) fn give(
        &mut self,
        cx: &mut TimesliceContext<'_>,
        pieces: ContributionSpans,
    ) -> More {
        self.connections.supply.give(pieces);
        if self.ready {
            self.look_at_length(cx);
        }
        self.go_on(cx)
    }

    /// Ends the stream before `timeslice`.
    pub(super) fn finish(&mut self, cx: &mut TimesliceContext<'_>, timeslice: u64) -> More {
        self.connections.supply.finish(timeslice.max(self.reached));
        self.connections.look_up_all(self.place);
        self.policy.redealt(cx.now, &self.connections);
        self.notify_end();
        self.try_to_end();
        self.go_on(cx)
    }

    pub(super) fn arrival(
        &mut self,
        cx: &mut TimesliceContext<'_>,
        place: usize,
        frame: TimesliceFrame,
    ) -> More {
        let mine = self.connections.all[place].life;
        match frame {
            TimesliceFrame::Welcome { life, ring, length } if life == mine => {
                self.welcome(cx, place, ring, length)
            }
            TimesliceFrame::Credit { life, released, granted } if life == mine => {
                self.credit(cx, place, released, granted)
            }
            TimesliceFrame::Ended { life } if life == mine => self.has_ended(cx, place),
            TimesliceFrame::Capacity { life, epoch, contributions } if life == mine => {
                self.connections.all[place].capacity =
                    Some(ReportedCapacity { epoch, contributions });
                self.connections.find_least_capacity();
            }
            TimesliceFrame::Proposal(proposal) => self.policy.proposed(proposal),
            TimesliceFrame::Answer { asked, heard, answered } => {
                self.policy.answered(
                    place,
                    ClockExchange {
                        sent: asked,
                        received: heard,
                        replied: answered,
                        returned: cx.now,
                    },
                );
            }
            _ => self.record.strangers += 1,
        }
        self.go_on(cx)
    }

    pub(super) fn other(&mut self, cx: &mut TimesliceContext<'_>, arrival: &Arrival<'_>) -> More {
        match *arrival {
            Arrival::Done { token, status, .. } => match TimesliceLabel::from_token(token) {
                Some(TimesliceLabel::Frame { place, kind }) => {
                    self.framed(place as usize, kind, status)
                }
                Some(TimesliceLabel::Write { place, sequence, piece, life }) => {
                    let life = TimesliceLabel::life(life);
                    self.written(cx, place, sequence, [piece, life], status)
                }
                None => {}
            },
            Arrival::Room { queue } if queue.class() == Some(cx.config.control) => {
                self.outbox.room();
                if cx.config.control == cx.config.class || cx.config.policy == Policy::Put {
                    self.room(cx);
                }
            }
            Arrival::Room { queue } if queue.class() == Some(cx.config.class) => self.room(cx),
            _ => return More::No,
        }
        self.go_on(cx)
    }

    pub(super) fn tick(&mut self, cx: &mut TimesliceContext<'_>) -> More {
        if self.retry_at.is_some_and(|at| at <= cx.now) {
            let waits = |stage| matches!(stage, ConnectionState::Calling | ConnectionState::Ending);
            let places = self
                .connections
                .all
                .iter()
                .enumerate()
                .filter(|(_, connection)| waits(connection.stage));
            places.for_each(|(place, _)| self.outbox.want(place));
            self.retry_at = Some(cx.now + RETRY).filter(|_| self.waits_for_an_answer());
        }
        self.go_on(cx)
    }

    /// Handles the end of an interval of the heartbeat: looks where work piles up, while there is
    /// any to come.
    pub(super) fn beat(&mut self) {
        self.beat_capacity();
        let Self { burdens, connections, outbox, reached, .. } = self;
        if !self.ready || connections.range.end < u64::MAX {
            return;
        }
        let before: Vec<_> =
            (0..connections.all.len()).map(|place| burdens.load_at(place)).collect();
        if burdens.interval(|place| connections.sight(place, *reached)) {
            for (place, _) in before
                .into_iter()
                .enumerate()
                .filter(|(place, before)| burdens.load_at(*place) != *before)
            {
                connections.all[place].tells_burden = true;
                outbox.want(place);
            }
        }
    }

    pub(super) fn deadline(&self) -> Option<LocalNs> {
        [self.retry_at, self.policy.deadline()].into_iter().flatten().min()
    }

    fn waits_for_an_answer(&self) -> bool {
        self.connections.all.iter().any(|connection| {
            matches!(connection.stage, ConnectionState::Calling | ConnectionState::Ending)
        })
    }

    fn welcome(
        &mut self,
        cx: &mut TimesliceContext<'_>,
        place: usize,
        ring: RemoteSpan,
        length: u64,
    ) {
        let connection = &mut self.connections.all[place];
        if connection.stage == ConnectionState::Calling {
            (connection.stage, connection.into, connection.ring) =
                (ConnectionState::Open, ring, Ring::new(length));
            connection.tells_capacity = self.capacity > CAPACITY_MIN;
            if connection.tells_end || connection.tells_capacity {
                self.outbox.want(place);
            }
            self.look_if_ready(cx);
            self.try_to_end();
        }
    }

    /// Begins when every builder has named its ring.
    fn look_if_ready(&mut self, cx: &mut TimesliceContext<'_>) {
        if !self.ready
            && self
                .connections
                .all
                .iter()
                .all(|connection| connection.stage != ConnectionState::Calling)
        {
            self.ready = true;
            self.retry_at = None;
            self.policy.began(cx.now);
            cx.out.notify(TimesliceEvent::Ready);
            self.look_at_length(cx);
        }
    }

    fn credit(&mut self, cx: &mut TimesliceContext<'_>, place: usize, released: u32, granted: u32) {
        if cx.config.policy == Policy::Put {
            return self.taken_in(place, granted);
        }
        let connection = &mut self.connections.all[place];
        let newly = released.wrapping_sub(connection.said as u32);
        let more = granted.wrapping_sub(connection.granted);
        if more > 0 && more < HALF {
            connection.granted = granted;
            self.policy.granted(place, more);
        }
        if newly < HALF {
            let released = connection.said + u64::from(newly);
            if connection.next.is_some() && released > connection.position {
                // The count names contributions that were never sent: it must not release others.
                self.record.strangers += 1;
                return;
            }
            connection.said = released;
            if !connection.is_frozen {
                self.hear_released(cx, place);
            }
        }
        if self.connections.all[place].is_drained() {
            self.try_to_end();
        }
    }

    /// Takes notice of what the builder at `place` says to have released.
    fn hear_released(&mut self, cx: &mut TimesliceContext<'_>, place: usize) {
        let connection = &mut self.connections.all[place];
        let released = connection.said;
        connection.released = released;
        let mut free = None;
        while let Some(sent) =
            connection.sent.front().copied().filter(|sent| sent.position < released)
        {
            connection.sent.pop_front();
            connection.ring.release(sent.place.end);
            free = self.connections.supply.release(sent.timeslice).or(free);
            self.policy.released(cx.now, place, sent.turn);
            self.record.released += 1;
        }
        if self.connections.unreleased.is_some() {
            self.connections.find_unreleased();
        }
        if let Some(timeslice) = free {
            cx.out.notify(TimesliceEvent::Free { timeslice });
        }
    }

    /// Says so when there is a contribution that no ring will ever hold.
    fn look_at_length(&mut self, cx: &mut TimesliceContext<'_>) {
        let named = self
            .connections
            .all
            .iter()
            .map(|connection| connection.ring.length())
            .filter(|length| *length > 0);
        let shortest = named.min().unwrap_or(u64::MAX);
        let bytes = self.connections.supply.longest();
        if bytes > shortest && cx.config.policy.is_building() && !self.reported_too_long {
            self.reported_too_long = true;
            cx.out.notify(TimesliceEvent::TooLong { bytes, ring: shortest });
        }
    }

    /// Tells every builder that the stream has ended, if everything is released everywhere.
    fn try_to_end(&mut self) {
        let all = &mut self.connections.all;
        let ends = self.connections.range.end < u64::MAX && self.ready;
        if !ends
            || !all.iter().all(|connection| {
                connection.stage == ConnectionState::Out || connection.is_drained()
            })
        {
            return;
        }
        for (place, connection) in all.iter_mut().enumerate() {
            if connection.stage == ConnectionState::Open {
                connection.stage = ConnectionState::Ending;
                self.outbox.want(place);
            }
        }
    }

    fn has_ended(&mut self, cx: &mut TimesliceContext<'_>, place: usize) {
        let connection = &mut self.connections.all[place];
        if connection.stage == ConnectionState::Ending {
            connection.stage = ConnectionState::Ended;
            self.look_if_ended(cx);
        }
    }

    /// Says so when every builder knows that the stream has ended.
    fn look_if_ended(&mut self, cx: &mut TimesliceContext<'_>) {
        let over = |connection: &BuilderConnection| {
            matches!(connection.stage, ConnectionState::Ended | ConnectionState::Out)
        };
        if !self.ended && self.ready && self.connections.all.iter().all(over) {
            self.ended = true;
            cx.out.notify(TimesliceEvent::Ended);
        }
    }

    /// Returns the place of the builder that has not released `timeslice`, or that gets it next.
    pub(super) fn holder(&self, timeslice: u64) -> Option<usize> {
        let all = &self.connections.all;
        let is_first = |connection: &BuilderConnection| {
            connection.sent.front().is_some_and(|sent| sent.timeslice == timeslice)
                || connection.next == Some(timeslice)
        };
        all.iter().position(is_first).or_else(|| {
            all.iter().position(|connection| {
                connection.sent.iter().any(|sent| sent.timeslice == timeslice)
            })
        })
    }

    /// Returns whether every builder knows that the stream has ended.
    pub(super) const fn is_over(&self) -> bool {
        self.ended
    }

    /// Does everything that can be done now.
    fn go_on(&mut self, cx: &mut TimesliceContext<'_>) -> More {
        let more = self.post_contributions(cx);
        self.look_at_capacity();
        while let Some(report) = self.policy.report() {
            self.take_report(report);
        }
        if let Some(place) = self.policy.asks() {
            self.connections.all[place].asks = true;
            self.outbox.want(place);
        }
        self.send_frames(cx);
        if self.retry_at.is_none()
            && self.connections.range.end < u64::MAX
            && self.waits_for_an_answer()
        {
            self.retry_at = Some(cx.now + RETRY);
        }
        more
    }

    /// Records that a header has left, or has not.
    fn framed(&mut self, place: usize, kind: u8, status: Status) {
        if status == Status::NoRoom
            && let Some(connection) = self.connections.all.get_mut(place)
        {
            match kind {
                TimesliceFrame::REPORT => {
                    connection.reported = connection.reported.saturating_sub(1)
                }
                TimesliceFrame::LAST => connection.tells_end = true,
                TimesliceFrame::BURDEN => connection.tells_burden = true,
                TimesliceFrame::CAPACITY => connection.tells_capacity = true,
                _ => {}
            }
        }
        // A question that found no room is not repeated: the next one is not far.
        self.outbox.done(place, status);
    }

    /// Takes `report`, which every builder learns. Builders that are more than [`REPORTS_MAX`]
    /// behind miss some.
    fn take_report(&mut self, report: IntervalReport) {
        if self.reports.len() == REPORTS_MAX {
            self.reports.pop_front();
        }
        self.reports.push_back(report);
        self.reports_made += 1;
        (0..self.connections.all.len()).for_each(|place| self.outbox.want(place));
    }

    /// Returns the next report for the builder at `place`.
    fn next_report(&mut self, place: usize) -> Option<IntervalReport> {
        let first = self.reports_made - self.reports.len() as u64;
        let connection = &mut self.connections.all[place];
        let next = connection.reported.max(first);
        let report = self.reports.get((next - first) as usize).copied()?;
        connection.reported = next + 1;
        Some(report)
    }

    fn send_frames(&mut self, cx: &mut TimesliceContext<'_>) {
        while cx.out.room() > 0
            && let Some(place) = self.outbox.next()
        {
            let BuilderConnection {
                peer,
                stage,
                life,
                asks,
                tells_end,
                tells_capacity,
                tells_burden,
                ..
            } = self.connections.all[place];
            let end = self.connections.range.end;
            let frame = match stage {
                ConnectionState::Calling => TimesliceFrame::Hello { life },
                ConnectionState::Ending => TimesliceFrame::End { life, timeslices: end },
                ConnectionState::Open if tells_end => {
                    self.connections.all[place].tells_end = false;
                    TimesliceFrame::Last { life, timeslices: end }
                }
                ConnectionState::Open if tells_capacity => {
                    self.connections.all[place].tells_capacity = false;
                    let (epoch, contributions) = (cx.journal.epoch(), self.capacity);
                    TimesliceFrame::Capacity { life, epoch, contributions }
                }
                ConnectionState::Open if tells_burden => {
                    self.connections.all[place].tells_burden = false;
                    TimesliceFrame::Burden { life, burden: self.burdens.load_at(place) }
                }
                ConnectionState::Open if asks => {
                    self.connections.all[place].asks = false;
                    TimesliceFrame::Ask { asked: cx.now }
                }
                ConnectionState::Open | ConnectionState::Ended | ConnectionState::Out => {
                    match self.next_report(place).filter(|_| stage != ConnectionState::Out) {
                        Some(report) => TimesliceFrame::Report(report),
                        None => {
                            self.outbox.nothing(place);
                            continue;
                        }
                    }
                }
            };
            cx.send(peer, place, frame);
            let connection = &self.connections.all[place];
            if connection.reported < self.reports_made
                || connection.asks
                || connection.tells_end
                || connection.tells_capacity
                || connection.tells_burden
            {
                self.outbox.want(place);
            }
        }
    }
}
