//! What one stream knows: the batches, puts and gets to one peer in one class, and what the peer
//! sends in it.
//!
//! # Model
//! Issued operations wait in one queue. One of them leaves in each round, because a wire says in
//! the round behind that it had no room: an operation that was refused is first again before
//! another one follows it. Each context counts its open operations by *epoch*, the fences before
//! them: a put or get leaves when everything of older epochs has ended, a batch when the writes of
//! older ones are in the peer's memory, or at once where the wire keeps that order itself.
//!
//! # Invariants
//! I1. At most a window of batches is not known to be applied, and at most as many requests are
//!     unreleased as the peer has places for answers.
//! I2. Operations of one context leave in the order in which they were issued.

use alloc::collections::VecDeque;
use alloc::vec::Vec;

use super::{Batch, ContextId, QueueLimits, Ticket};
use crate::base::{Class, Rank};
use crate::wire::{RemoteSpan, Span};

/// Operations that are looked at in one round for one that may leave.
const LOOK_MAX: usize = 64;
/// Contexts that a stream remembers though nothing of them is open.
const FLOWS_KEPT: usize = 16;

/// An operation that was issued.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct LaneItem {
    pub(super) context: ContextId,
    /// Fences of its context before it.
    pub(super) epoch: u64,
    pub(super) work: LaneWork,
}

/// What an operation does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum LaneWork {
    Batch { batch: Batch, follows_put: FollowsPut },
    Put { from: Span, into: RemoteSpan, signal: Option<Batch> },
    Get { from: RemoteSpan, into: Span, ticket: Ticket },
}

impl LaneWork {
    /// Returns whether a batch belongs to it.
    const fn has_batch(&self) -> bool {
        match self {
            Self::Batch { .. } => true,
            Self::Put { signal, .. } => signal.is_some(),
            Self::Get { .. } => false,
        }
    }
}

/// What decides when operations leave; the same for all streams of a node.
#[derive(Clone, Copy, Debug)]
pub(super) struct LaneRules {
    pub(super) limits: QueueLimits,
    /// A batch may leave right behind a write.
    pub(super) sends_follow_writes: bool,
    /// Gets are reads of the wire.
    pub(super) reads: bool,
}

/// Whether a batch is the signal of a put, which stays open until the signal leaves.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum FollowsPut {
    No,
    Yes,
}

/// A batch that left and has not ended.
#[derive(Clone, Copy, Debug)]
pub(super) struct SentBatch {
    pub(super) context: ContextId,
    pub(super) epoch: u64,
    pub(super) elements: u32,
    /// The number of its requests among all of the stream.
    pub(super) ordinal: Option<u64>,
    pub(super) is_over: bool,
}

/// A request for a write that was sent.
#[derive(Clone, Copy, Debug)]
pub(super) struct SentPull {
    pub(super) ordinal: u64,
    pub(super) context: ContextId,
    pub(super) ticket: Ticket,
}

/// A write that a peer asked for.
#[derive(Clone, Copy, Debug)]
pub(super) struct PulledWrite {
    pub(super) ordinal: u64,
    /// Which bytes of ours.
    pub(super) from: RemoteSpan,
    /// Where to, in the peer's memory.
    pub(super) into: Span,
}

/// Open operations of one epoch.
#[derive(Clone, Copy, Debug, Default)]
struct OpenEpoch {
    /// Puts that are not in the peer's memory, or whose signal has not left.
    writes: u32,
    /// Batches that have not ended.
    batches: u32,
}

/// The operations of one context in one stream.
#[derive(Clone, Debug)]
struct ContextFlow {
    context: ContextId,
    /// The epoch of the first of `open`.
    first: u64,
    /// By epoch; the last one is that of operations that are issued now.
    open: VecDeque<OpenEpoch>,
}

impl ContextFlow {
    fn epoch(&self) -> u64 {
        self.first + self.open.len() as u64 - 1
    }

    fn at(&mut self, epoch: u64) -> Option<&mut OpenEpoch> {
        self.open.get_mut(usize::try_from(epoch.checked_sub(self.first)?).ok()?)
    }

    fn older(&self, epoch: u64) -> impl Iterator<Item = &OpenEpoch> {
        self.open.iter().take(epoch.saturating_sub(self.first) as usize)
    }

    /// Forgets epochs that are over.
    fn trim(&mut self) {
        while self.open.len() > 1
            && self.open.front().is_some_and(|open| open.writes == 0 && open.batches == 0)
        {
            self.open.pop_front();
            self.first += 1;
        }
    }
}

/// Whether an operation may leave.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Leave {
    Now,
    /// A fence before it holds it back.
    Fenced,
    /// There is no credit.
    Blocked,
}

/// The sending half of a stream.
#[derive(Debug, Default)]
pub(super) struct OutgoingLane {
    pub(super) pending: VecDeque<LaneItem>,
    /// The signal of the put that left last, until it is known that the put had room.
    pub(super) behind: Option<LaneItem>,
    pub(super) sent: VecDeque<SentBatch>,
    /// The number of the last batch that left.
    pub(super) last: u64,
    /// Batches that the peer has applied.
    pub(super) applied: u64,
    /// The last batch that the peer was asked about.
    pub(super) asked: u64,
    /// The application waits for what was sent.
    pub(super) wants_counts: bool,
    /// The peer is asked though it was asked before.
    pub(super) asks_again: bool,
    /// Requests that left, and those whose places at the peer are free again.
    pub(super) requests: u64,
    pub(super) released: u64,
    pub(super) pulls: Vec<SentPull>,
    /// Batches that wait or that the wire still has.
    pub(super) under_way: u32,
    flows: Vec<ContextFlow>,
}

impl OutgoingLane {
    fn flow(&mut self, context: ContextId) -> &mut ContextFlow {
        let place = self.flows.iter().position(|flow| flow.context == context);
        let place = place.unwrap_or_else(|| {
            if self.flows.len() >= FLOWS_KEPT {
                let pending = &self.pending;
                let is_used = |flow: &ContextFlow| {
                    flow.open.iter().any(|open| open.writes > 0 || open.batches > 0)
                        || pending.iter().any(|item| item.context == flow.context)
                };
                self.flows.retain(is_used);
            }
            let open = VecDeque::from([OpenEpoch::default()]);
            self.flows.push(ContextFlow { context, first: 0, open });
            self.flows.len() - 1
        });
        &mut self.flows[place]
    }

    /// Adds an operation that was issued now.
    pub(super) fn issue(&mut self, context: ContextId, work: LaneWork) {
        let flow = self.flow(context);
        let epoch = flow.epoch();
        if let Some(open) = flow.at(epoch) {
            open.writes += u32::from(matches!(work, LaneWork::Put { .. }));
            open.batches += u32::from(work.has_batch());
        }
        self.under_way += u32::from(work.has_batch());
        self.pending.push_back(LaneItem { context, epoch, work });
    }

    /// Orders what follows of `context` behind what is here of it.
    pub(super) fn fence(&mut self, context: ContextId) {
        let Some(flow) = self.flows.iter_mut().find(|flow| flow.context == context) else {
            return;
        };
        flow.trim();
        if flow.open.back().is_some_and(|open| open.writes > 0 || open.batches > 0) {
            flow.open.push_back(OpenEpoch::default());
        }
    }

    /// Returns whether batches of `context` are open.
    pub(super) fn has_open(&self, context: ContextId) -> bool {
        let flow = self.flows.iter().find(|flow| flow.context == context);
        flow.is_some_and(|flow| flow.open.iter().any(|open| open.batches > 0))
    }

    /// Records that a put of this epoch does not hold back batches any more.
    pub(super) fn end_write(&mut self, context: ContextId, epoch: u64) {
        let flow = self.flow(context);
        if let Some(open) = flow.at(epoch) {
            open.writes = open.writes.saturating_sub(1);
        }
        flow.trim();
    }

    /// Records that a batch of this epoch has ended.
    pub(super) fn end_batch(&mut self, context: ContextId, epoch: u64) {
        let flow = self.flow(context);
        if let Some(open) = flow.at(epoch) {
            open.batches = open.batches.saturating_sub(1);
        }
        flow.trim();
    }

    /// Takes the next operation that may leave.
    pub(super) fn take_next(&mut self, rules: &LaneRules) -> Option<LaneItem> {
        if let Some(signal) = self.behind.take() {
            self.pending.push_front(signal);
        }
        let mut held: [Option<ContextId>; 8] = [None; 8];
        let mut is_blocked = false;
        for index in 0..self.pending.len().min(LOOK_MAX) {
            let item = self.pending[index];
            let leave = match item.work {
                _ if held.contains(&Some(item.context)) => continue,
                LaneWork::Batch { .. } if is_blocked => Leave::Blocked,
                _ => self.may_leave(&item, rules),
            };
            if leave == Leave::Now {
                return self.pending.remove(index);
            }
            is_blocked |= leave == Leave::Blocked;
            *held.iter_mut().find(|held| held.is_none())? = Some(item.context);
        }
        None
    }

    fn may_leave(&mut self, item: &LaneItem, rules: &LaneRules) -> Leave {
        let has_credit = self.has_credit(item, rules);
        let Some(flow) = self.flows.iter().find(|flow| flow.context == item.context) else {
            return if has_credit { Leave::Now } else { Leave::Blocked };
        };
        let mut older = flow.older(item.epoch);
        let is_fenced = match item.work {
            LaneWork::Batch { .. } => {
                !rules.sends_follow_writes && older.any(|open| open.writes > 0)
            }
            LaneWork::Put { .. } | LaneWork::Get { .. } => {
                older.any(|open| open.writes > 0 || open.batches > 0)
            }
        };
        if is_fenced {
            // It ends when the peer has said what it applied.
            self.wants_counts |= !matches!(item.work, LaneWork::Batch { .. });
            return Leave::Fenced;
        }
        if has_credit { Leave::Now } else { Leave::Blocked }
    }

    fn has_credit(&self, item: &LaneItem, rules: &LaneRules) -> bool {
        let limits = &rules.limits;
        let has_place = self.requests - self.released < u64::from(limits.requests);
        match item.work {
            LaneWork::Batch { batch, .. } => {
                self.last - self.applied < u64::from(limits.window)
                    && (batch.requests == 0 || has_place)
            }
            LaneWork::Put { .. } => true,
            LaneWork::Get { .. } => rules.reads || has_place,
        }
    }

    /// Returns whether something has not ended that waits for a word of the peer: that it was
    /// applied, an answer, or credit.
    pub(super) fn is_open(&self) -> bool {
        !self.sent.is_empty() || !self.pulls.is_empty() || !self.pending.is_empty()
    }

    /// Returns whether something may leave in the next round.
    pub(super) fn has_more(&self) -> bool {
        self.behind.is_some() || !self.pending.is_empty() || self.wants_counts || self.asks_again
    }

    /// Records that a batch leaves; its number, and whether the peer is asked with it.
    pub(super) fn send_batch(
        &mut self,
        item: &LaneItem,
        batch: &Batch,
        limits: &QueueLimits,
    ) -> (u64, bool) {
        self.last += 1;
        let has_requests = batch.requests > 0;
        self.requests += u64::from(has_requests);
        self.sent.push_back(SentBatch {
            context: item.context,
            epoch: item.epoch,
            elements: batch.elements,
            ordinal: has_requests.then_some(self.requests),
            is_over: false,
        });
        let is_last_wanted = self.wants_counts && self.pending.is_empty();
        let half = u64::from(limits.window.div_ceil(2));
        let asks = is_last_wanted || self.last - self.asked >= half;
        if asks {
            self.asked = self.last;
            self.wants_counts &= !is_last_wanted;
        }
        (self.last, asks)
    }

    /// Undoes [`OutgoingLane::send_batch`] for the batch that was sent last.
    pub(super) fn unsend_batch(&mut self) {
        if let Some(sent) = self.sent.pop_back() {
            self.last -= 1;
            self.requests -= u64::from(sent.ordinal.is_some());
            // What was asked with it has to be asked again.
            self.wants_counts |= self.asked > self.last;
            self.asked = self.asked.min(self.last);
        }
    }

    /// Returns the number of the first batch of `sent`.
    pub(super) fn first(&self) -> u64 {
        self.last + 1 - self.sent.len() as u64
    }

    /// Takes counts of the peer; `false` when it counts what was never sent. `end` gets each batch
    /// that is over by them.
    pub(super) fn take_counts(
        &mut self,
        applied: u64,
        released: u64,
        end: &mut dyn FnMut(SentBatch),
    ) -> bool {
        if applied > self.last || released > self.requests {
            return false;
        }
        self.released = self.released.max(released);
        if applied <= self.applied {
            return true;
        }
        let first = self.first();
        let news = self.applied + 1..=applied;
        self.applied = applied;
        for number in news {
            let index = number.checked_sub(first).and_then(|index| usize::try_from(index).ok());
            let sent = index.and_then(|index| self.sent.get_mut(index));
            if let Some(sent) = sent.filter(|sent| sent.ordinal.is_none() && !sent.is_over) {
                sent.is_over = true;
                let sent = *sent;
                self.end_batch(sent.context, sent.epoch);
                end(sent);
            }
        }
        self.forget_ended();
        true
    }

    /// Ends the batch whose requests have this number, if it is open.
    pub(super) fn end_requests(&mut self, ordinal: u64) -> Option<SentBatch> {
        let sent = self.sent.iter_mut().find(|sent| sent.ordinal == Some(ordinal))?;
        if core::mem::replace(&mut sent.is_over, true) {
            return None;
        }
        let sent = *sent;
        self.end_batch(sent.context, sent.epoch);
        self.forget_ended();
        Some(sent)
    }

    /// Ends the request for a write that has this number, if it is open.
    pub(super) fn end_pull(&mut self, ordinal: u64) -> Option<SentPull> {
        let place = self.pulls.iter().position(|pull| pull.ordinal == ordinal)?;
        Some(self.pulls.swap_remove(place))
    }

    /// Returns whether a batch waits for the answer with this number.
    pub(super) fn waits_for(&self, ordinal: u64) -> bool {
        self.sent.iter().any(|sent| sent.ordinal == Some(ordinal) && !sent.is_over)
    }

    fn forget_ended(&mut self) {
        while self.sent.front().is_some_and(|sent| sent.is_over) {
            self.sent.pop_front();
        }
    }

    /// Returns whether the peer is asked by a message of its own now, when nothing else can leave.
    pub(super) fn must_ask(&mut self) -> bool {
        let must = self.wants_counts && self.asked < self.last;
        self.asked = self.asked.max(if must { self.last } else { 0 });
        // The last of what still waits for credit asks when it leaves.
        self.wants_counts &= !self.pending.is_empty();
        must
    }

    /// Gives up everything; what was issued, and the batches that left and had not ended.
    pub(super) fn abandon(&mut self) -> (Vec<LaneItem>, Vec<SentBatch>, Vec<SentPull>) {
        let items = self.behind.take().into_iter().chain(self.pending.drain(..)).collect();
        let sent = core::mem::take(&mut self.sent).into_iter().filter(|sent| !sent.is_over);
        (items, sent.collect(), core::mem::take(&mut self.pulls))
    }
}

/// Where an answer is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum AnswerState {
    /// Its records are applied, or its bytes are written, at this moment.
    Working,
    /// It waits to leave.
    Ready { length: u32, is_refused: bool },
    /// The wire has it.
    Leaving,
    /// Its place is free.
    Over,
}

/// The receiving half of a stream.
#[derive(Debug, Default)]
pub(super) struct IncomingLane {
    /// The number of the last batch that arrived.
    pub(super) arrived: u64,
    pub(super) applied: u64,
    /// Requests that arrived, and those whose places are free again from the first on.
    pub(super) requests: u64,
    pub(super) released: u64,
    /// Answers from number `released + 1` on.
    pub(super) answers: VecDeque<AnswerState>,
    /// Writes that the peer asked for and that have not left.
    pub(super) pulls: VecDeque<PulledWrite>,
    /// What the last message said.
    advertised_released: u64,
    /// The peer wants to know when this batch is applied.
    due: Option<u64>,
    /// Messages with nothing but counts that are on their way.
    pub(super) counts_under_way: u32,
}

impl IncomingLane {
    /// Takes a request; its number, or nothing when the peer has no place for the answer.
    pub(super) fn take_request(&mut self, limits: &QueueLimits) -> Option<u64> {
        if self.answers.len() >= limits.requests as usize {
            return None;
        }
        self.requests += 1;
        self.answers.push_back(AnswerState::Working);
        Some(self.requests)
    }

    /// Returns the state of the answer with this number.
    pub(super) fn answer(&mut self, ordinal: u64) -> Option<&mut AnswerState> {
        let index = ordinal.checked_sub(self.released + 1)?;
        self.answers.get_mut(usize::try_from(index).ok()?)
    }

    /// Returns the number of an answer that may leave, and what it is.
    pub(super) fn ready_answer(&self) -> Option<(u64, u32, bool)> {
        self.answers.iter().zip(self.released + 1..).find_map(|(state, ordinal)| match state {
            AnswerState::Ready { length, is_refused } => Some((ordinal, *length, *is_refused)),
            _ => None,
        })
    }

    /// Frees the places of answers that are over.
    pub(super) fn release(&mut self) {
        while self.answers.front() == Some(&AnswerState::Over) {
            self.answers.pop_front();
            self.released += 1;
        }
    }

    /// Promises to say when everything that has arrived is applied.
    pub(super) fn promise(&mut self) {
        self.due = Some(self.arrived);
    }

    /// Returns whether a message with counts is owed now.
    pub(super) fn owes_counts(&self, limits: &QueueLimits) -> bool {
        let unadvertised = self.released - self.advertised_released;
        let most = u64::from(limits.requests);
        self.due.is_some_and(|due| self.applied >= due)
            || unadvertised >= most.min((most / 2).max(2))
    }

    /// Returns the counts for a message that leaves now.
    pub(super) fn tell(&mut self) -> (u64, u64) {
        if self.due.is_some_and(|due| self.applied >= due) {
            self.due = None;
        }
        self.advertised_released = self.released;
        (self.applied, self.released)
    }
}

/// One stream: both halves.
#[derive(Debug)]
pub(super) struct Lane {
    pub(super) peer: Rank,
    pub(super) class: Class,
    pub(super) outgoing: OutgoingLane,
    pub(super) incoming: IncomingLane,
    /// It stands among those that have something to send.
    pub(super) is_ready: bool,
    /// Something came from the peer since the last look.
    pub(super) was_heard: bool,
}

impl Lane {
    pub(super) fn new(peer: Rank, class: Class) -> Self {
        Self {
            peer,
            class,
            outgoing: OutgoingLane::default(),
            incoming: IncomingLane::default(),
            is_ready: false,
            was_heard: true,
        }
    }
}
