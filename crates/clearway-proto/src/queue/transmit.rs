//! What leaves at the end of a round.
//!
//! # Invariants
//! I1. One issued operation of a stream leaves in a round: whether the wire had room for it is
//!     known before the next one leaves.

use super::frame::{QueueFrame, QueueMessage};
use super::lane::{AnswerState, FollowsPut, LaneItem, LaneWork, PulledWrite, SentPull};
use super::node::QueueNode;
use super::operations::QueueOperation;
use super::{Batch, QueueEvent};
use crate::base::Class;
use crate::wire::{Destination, More, Operation, Out, PathId, RemoteSpan, Span};

/// Effects that one stream writes in a round at most.
const EFFECTS: usize = 8;
/// Messages with nothing but counts that one stream has under way at most: more than a reliable
/// wire acknowledges together.
const COUNTS_MAX: u32 = 16;

impl QueueNode {
    /// Lets streams send, the most urgent classes first.
    pub(super) fn transmit(&mut self, out: &mut Out<QueueEvent>) -> More {
        let mut more = More::No;
        for class in Class::ALL {
            // Those that have more to send wait for the next round.
            for _ in 0..self.ready[class.index()].len() {
                if self.stalled[class.index()] {
                    break;
                }
                if out.room() < EFFECTS {
                    return More::Yes;
                }
                let Some(number) = self.ready[class.index()].pop_front() else { break };
                self.lanes[number as usize].is_ready = false;
                if self.transmit_lane(number, out) {
                    self.make_ready(number);
                    more = More::Yes;
                }
            }
        }
        more
    }

    /// Lets one stream send; whether it may have more.
    fn transmit_lane(&mut self, number: u32, out: &mut Out<QueueEvent>) -> bool {
        if self.is_gone(self.lanes[number as usize].peer) {
            return false;
        }
        if let Some((ordinal, length, is_refused)) =
            self.lanes[number as usize].incoming.ready_answer()
        {
            self.send_answer(number, ordinal, length, is_refused, out);
        }
        if let Some(write) = self.lanes[number as usize].incoming.pulls.pop_front() {
            self.write_pulled(number, write, out);
        }
        let next = self.lanes[number as usize].outgoing.take_next(&self.rules);
        let has_left = next.is_some();
        match next {
            Some(item) => self.send_item(number, item, out),
            None => self.send_counts(number, out),
        }
        let lane = &self.lanes[number as usize];
        let has_answers = lane.incoming.ready_answer().is_some() || !lane.incoming.pulls.is_empty();
        has_answers || has_left && lane.outgoing.has_more()
    }

    /// Sends counts if they are owed or wanted, and nothing else has carried them.
    fn send_counts(&mut self, number: u32, out: &mut Out<QueueEvent>) {
        let lane = &mut self.lanes[number as usize];
        let asks = lane.outgoing.must_ask() | core::mem::take(&mut lane.outgoing.asks_again);
        if !asks && !lane.incoming.owes_counts(&self.rules.limits) {
            return;
        }
        if lane.incoming.counts_under_way >= COUNTS_MAX {
            // The next one leaves when one of them is over.
            lane.outgoing.asks_again |= asks;
            return;
        }
        lane.incoming.counts_under_way += 1;
        let operation = QueueOperation::Counts { asks };
        let message =
            OutgoingMessage { asks, ..OutgoingMessage::short(QueueMessage::Counts, 0, operation) };
        self.send(number, message, out);
    }

    /// Sends a message of a stream, with the counts of this moment.
    fn send(&mut self, number: u32, sent: OutgoingMessage, out: &mut Out<QueueEvent>) {
        let lane = &mut self.lanes[number as usize];
        let (applied, released) = lane.incoming.tell();
        let OutgoingMessage { message, asks, counted, body, operation } = sent;
        let class = lane.class;
        let frame = QueueFrame { message, class, asks, number: counted, applied, released };
        let token = Some(self.operations.add(number, operation));
        out.send(Destination::One(lane.peer), class, frame.encode().bytes(), body, token);
    }

    fn send_answer(
        &mut self,
        number: u32,
        ordinal: u64,
        length: u32,
        is_refused: bool,
        out: &mut Out<QueueEvent>,
    ) {
        if let Some(state) = self.lanes[number as usize].incoming.answer(ordinal) {
            *state = AnswerState::Leaving;
        }
        let body = Span { length, ..self.answer_place(number, ordinal) };
        let operation = QueueOperation::Answer { ordinal, length, is_refused };
        let message = QueueMessage::Answer { is_refused };
        let message =
            OutgoingMessage { body, ..OutgoingMessage::short(message, ordinal, operation) };
        self.send(number, message, out);
    }

    /// Returns the memory of an answer.
    pub(super) fn answer_place(&self, number: u32, ordinal: u64) -> Span {
        let (lane, limits) = (&self.lanes[number as usize], &self.rules.limits);
        let stream = (lane.peer.index() * Class::ALL.len() + lane.class.index()) as u64;
        let requests = u64::from(limits.requests);
        let place = stream * requests + ordinal % requests;
        let offset = place * u64::from(limits.answer);
        Span { region: self.config.answers, offset, length: limits.answer }
    }

    fn send_item(&mut self, number: u32, item: LaneItem, out: &mut Out<QueueEvent>) {
        match item.work {
            LaneWork::Batch { batch, follows_put } => {
                self.send_batch(number, item, batch, follows_put, out);
            }
            LaneWork::Put { from, into, signal } => {
                let lane = &mut self.lanes[number as usize];
                if self.rules.sends_follow_writes {
                    lane.outgoing.behind = signal.map(|batch| signal_item(&item, batch));
                    self.unended += u64::from(signal.is_some());
                }
                let (to, class) = (lane.peer, lane.class);
                let token = Some(self.operations.add(number, QueueOperation::Put { item }));
                let path = PathId(0);
                out.operate(Operation::Write {
                    to,
                    path,
                    class,
                    from,
                    into,
                    immediate: None,
                    token,
                });
            }
            LaneWork::Get { from, into, .. } if self.rules.reads => {
                let (peer, class) =
                    (self.lanes[number as usize].peer, self.lanes[number as usize].class);
                let token = self.operations.add(number, QueueOperation::Read { item });
                out.operate(Operation::Read { peer, path: PathId(0), class, from, into, token });
            }
            LaneWork::Get { from, into, ticket } => {
                let outgoing = &mut self.lanes[number as usize].outgoing;
                outgoing.requests += 1;
                let ordinal = outgoing.requests;
                outgoing.pulls.push(SentPull { ordinal, context: item.context, ticket });
                let operation = QueueOperation::Pull { item, ordinal };
                let message = QueueMessage::Pull { from, into };
                self.send(number, OutgoingMessage::short(message, ordinal, operation), out);
            }
        }
    }

    fn send_batch(
        &mut self,
        number: u32,
        item: LaneItem,
        batch: Batch,
        follows_put: FollowsPut,
        out: &mut Out<QueueEvent>,
    ) {
        let outgoing = &mut self.lanes[number as usize].outgoing;
        let (counted, asks) = outgoing.send_batch(&item, &batch, &self.rules.limits);
        if follows_put == FollowsPut::Yes {
            outgoing.end_write(item.context, item.epoch);
        }
        let message = QueueMessage::Batch { has_requests: batch.requests > 0 };
        let operation = QueueOperation::Batch { item, buffer: batch.buffer };
        let body = batch.buffer;
        self.send(number, OutgoingMessage { message, asks, counted, body, operation }, out);
    }

    /// Writes what a peer asked for.
    fn write_pulled(&mut self, number: u32, write: PulledWrite, out: &mut Out<QueueEvent>) {
        let (to, class) = (self.lanes[number as usize].peer, self.lanes[number as usize].class);
        let token = Some(self.operations.add(number, QueueOperation::Pulled(write)));
        let RemoteSpan { region, offset } = write.from;
        let from = Span { region, offset, length: write.into.length };
        let into = RemoteSpan { region: write.into.region, offset: write.into.offset };
        let path = PathId(0);
        out.operate(Operation::Write { to, path, class, from, into, immediate: None, token });
    }
}

/// A message before it has counts.
struct OutgoingMessage {
    message: QueueMessage,
    asks: bool,
    counted: u64,
    body: Span,
    operation: QueueOperation,
}

impl OutgoingMessage {
    /// Creates one without a body.
    const fn short(message: QueueMessage, counted: u64, operation: QueueOperation) -> Self {
        Self { message, asks: false, counted, body: Span::EMPTY, operation }
    }
}

/// Returns the operation that the signal of a put is.
pub(super) const fn signal_item(put: &LaneItem, batch: Batch) -> LaneItem {
    LaneItem { work: LaneWork::Batch { batch, follows_put: FollowsPut::Yes }, ..*put }
}
