//! What arrives: messages of peers, and the ends of operations.
//!
//! # Invariants
//! I1. Records are applied in the order of their stream, in the round in which their message
//!     arrived.
//! I2. A peer that sends what no such engine sends is given up; nothing of it is applied any more.

use super::frame::{QueueFrame, QueueMessage, is_frame};
use super::lane::{AnswerState, LaneItem, LaneWork, PulledWrite};
use super::node::QueueNode;
use super::operations::{QueueOperation, ReceivedBody, ReceivedWork};
use super::transmit::signal_item;
use super::{ContextId, QueueEvent, Ticket};
use crate::base::{Class, Rank};
use crate::wire::{Datagram, Operation, Out, RefusalReason, Span, Status, Token};

impl QueueNode {
    /// Takes a message.
    pub(super) fn take_datagram(&mut self, datagram: &Datagram<'_>, out: &mut Out<QueueEvent>) {
        let from = datagram.from;
        if self.is_gone(from) || !is_frame(datagram.head) {
            return;
        }
        let is_good = QueueFrame::decode(datagram.head)
            .and_then(|frame| self.take_frame(from, &frame, datagram.body, out));
        if is_good.is_none() {
            self.condemn(from, out);
        }
    }

    /// Gives up a peer that sent what it cannot have sent.
    fn condemn(&mut self, peer: Rank, out: &mut Out<QueueEvent>) {
        if !self.is_gone(peer) {
            out.notify(QueueEvent::Malformed(peer));
            self.lose(peer, out);
        }
    }

    fn take_frame(
        &mut self,
        from: Rank,
        frame: &QueueFrame,
        body: Span,
        out: &mut Out<QueueEvent>,
    ) -> Option<()> {
        let number = self.lane(from, frame.class)?;
        let limits = self.rules.limits;
        self.lanes[number as usize].was_heard = true;
        self.take_counts(number, frame, out)?;
        self.make_ready(number);
        let incoming = &mut self.lanes[number as usize].incoming;
        let work = match frame.message {
            QueueMessage::Batch { has_requests } => {
                incoming.arrived += 1;
                if frame.number != incoming.arrived {
                    return None;
                }
                let ordinal =
                    if has_requests { Some(incoming.take_request(&limits)?) } else { None };
                ReceivedWork::Records { body, ordinal }
            }
            QueueMessage::Pull { from, into } => {
                let ordinal = incoming.take_request(&limits)?;
                (frame.number == ordinal).then_some(ReceivedWork::Pull { from, into, ordinal })?
            }
            QueueMessage::Answer { is_refused } => {
                let outgoing = &mut self.lanes[number as usize].outgoing;
                let ordinal = frame.number;
                if let Some(pull) = outgoing.end_pull(ordinal) {
                    let refused = Status::Refused(RefusalReason::Memory);
                    let status = if is_refused { refused } else { Status::Complete };
                    self.end_get(from, pull.context, pull.ticket, status, out);
                    return Some(());
                }
                outgoing.waits_for(ordinal).then_some(ReceivedWork::Values { body, ordinal })?
            }
            QueueMessage::Counts => {
                if frame.asks {
                    incoming.promise();
                }
                return Some(());
            }
        };
        if frame.asks {
            self.lanes[number as usize].incoming.promise();
        }
        self.received[frame.class.index()].push(ReceivedBody { lane: number, from, work });
        Some(())
    }

    /// Takes the counts of a message, and reports what has ended by them.
    fn take_counts(
        &mut self,
        number: u32,
        frame: &QueueFrame,
        out: &mut Out<QueueEvent>,
    ) -> Option<()> {
        let lane = &mut self.lanes[number as usize];
        let (peer, mut ended) = (lane.peer, 0);
        // Batches of one context are reported together.
        let mut run: Option<(ContextId, u32)> = None;
        let is_possible = lane.outgoing.take_counts(frame.applied, frame.released, &mut |sent| {
            ended += 1;
            match &mut run {
                Some((context, count)) if *context == sent.context => *count += sent.elements,
                _ => {
                    if let Some((context, count)) = run.replace((sent.context, sent.elements)) {
                        out.notify(QueueEvent::Ended { context, peer, count });
                    }
                }
            }
        });
        if let Some((context, count)) = run {
            out.notify(QueueEvent::Ended { context, peer, count });
        }
        self.unended -= ended;
        is_possible.then_some(())
    }

    /// Reports that a get is over.
    fn end_get(
        &mut self,
        peer: Rank,
        context: ContextId,
        ticket: Ticket,
        status: Status,
        out: &mut Out<QueueEvent>,
    ) {
        out.notify(QueueEvent::Fetched { peer, ticket, status });
        out.notify(QueueEvent::Ended { context, peer, count: 1 });
        self.unended -= 1;
    }

    /// Applies what arrived in this round, the most urgent classes first.
    pub(super) fn apply_received(&mut self, out: &mut Out<QueueEvent>) {
        for class in Class::ALL {
            let mut received = core::mem::take(&mut self.received[class.index()]);
            for ReceivedBody { lane, from, work } in received.drain(..) {
                match work {
                    ReceivedWork::Records { body, ordinal } => {
                        let answer =
                            ordinal.map_or(Span::EMPTY, |ordinal| self.answer_place(lane, ordinal));
                        let token = self.operations.add(lane, QueueOperation::Apply { ordinal });
                        out.operate(Operation::Apply { of: body, from, answer, token });
                    }
                    ReceivedWork::Values { body, ordinal } => {
                        let token = self.operations.add(lane, QueueOperation::Values { ordinal });
                        let answer = Span::EMPTY;
                        out.operate(Operation::Apply { of: body, from, answer, token });
                    }
                    ReceivedWork::Pull { from, into, ordinal } => {
                        let incoming = &mut self.lanes[lane as usize].incoming;
                        if self.config.segments.contains(&Some(from.region)) {
                            incoming.pulls.push_back(PulledWrite { ordinal, from, into });
                        } else if let Some(state) = incoming.answer(ordinal) {
                            *state = AnswerState::Ready { length: 0, is_refused: true };
                        }
                        self.make_ready(lane);
                    }
                }
            }
            self.received[class.index()] = received;
        }
    }

    /// Takes the end of an operation.
    pub(super) fn take_end(
        &mut self,
        token: Token,
        status: Status,
        value: u64,
        out: &mut Out<QueueEvent>,
    ) {
        let Some((number, operation)) = self.operations.take(token) else { return };
        let lane = &mut self.lanes[number as usize];
        let (peer, class) = (lane.peer, lane.class);
        if status == Status::NoRoom && !self.is_gone(peer) {
            self.stalled[class.index()] = true;
            self.take_back(number, operation);
            self.make_ready(number);
            return;
        }
        match operation {
            QueueOperation::Batch { buffer, .. } => self.end_batch(number, buffer, out),
            QueueOperation::Put { item } => self.end_put(number, &item, status, out),
            QueueOperation::Read { item } => {
                if let LaneWork::Get { ticket, .. } = item.work {
                    self.end_get(peer, item.context, ticket, status, out);
                }
            }
            QueueOperation::Apply { ordinal } => {
                let incoming = &mut self.lanes[number as usize].incoming;
                incoming.applied += 1;
                let length = value.min(u64::from(self.rules.limits.answer)) as u32;
                if let Some(state) = ordinal.and_then(|ordinal| incoming.answer(ordinal)) {
                    *state = AnswerState::Ready { length, is_refused: false };
                }
            }
            QueueOperation::Values { ordinal } => self.end_requests(number, ordinal, out),
            QueueOperation::Pulled(PulledWrite { ordinal, .. }) => {
                if let Some(state) = self.lanes[number as usize].incoming.answer(ordinal) {
                    let is_refused = status != Status::Complete;
                    *state = AnswerState::Ready { length: 0, is_refused };
                }
            }
            QueueOperation::Answer { ordinal, .. } => {
                let incoming = &mut self.lanes[number as usize].incoming;
                if let Some(state) = incoming.answer(ordinal) {
                    *state = AnswerState::Over;
                }
                incoming.release();
            }
            QueueOperation::Counts { .. } => {
                self.lanes[number as usize].incoming.counts_under_way -= 1;
            }
            QueueOperation::Pull { .. } => {}
        }
        self.judge(peer, operation, status, out);
        if !self.is_gone(peer) {
            self.make_ready(number);
        }
    }

    /// Decides what the status of an operation says about its peer.
    fn judge(
        &mut self,
        peer: Rank,
        operation: QueueOperation,
        status: Status,
        out: &mut Out<QueueEvent>,
    ) {
        match (operation, status) {
            (_, Status::Complete) => {}
            (QueueOperation::Apply { .. } | QueueOperation::Values { .. }, _) => {
                self.condemn(peer, out);
            }
            // The memory that they name is not there: their business, and reported.
            (
                QueueOperation::Put { .. }
                | QueueOperation::Read { .. }
                | QueueOperation::Pulled { .. },
                Status::Refused(_) | Status::Failed(_),
            ) => {}
            _ => self.lose(peer, out),
        }
    }

    /// Puts back what found no room.
    fn take_back(&mut self, number: u32, operation: QueueOperation) {
        let lane = &mut self.lanes[number as usize];
        match operation {
            QueueOperation::Batch { item, .. } => {
                lane.outgoing.unsend_batch();
                lane.outgoing.pending.push_front(item);
            }
            QueueOperation::Put { item } => {
                // Its signal waits with it.
                self.unended -= u64::from(lane.outgoing.behind.take().is_some());
                lane.outgoing.pending.push_front(item);
            }
            QueueOperation::Read { item } => lane.outgoing.pending.push_front(item),
            QueueOperation::Pull { item, ordinal } => {
                lane.outgoing.requests -= 1;
                lane.outgoing.pulls.retain(|pull| pull.ordinal != ordinal);
                lane.outgoing.pending.push_front(item);
            }
            QueueOperation::Pulled(write) => lane.incoming.pulls.push_front(write),
            QueueOperation::Answer { ordinal, length, is_refused } => {
                if let Some(state) = lane.incoming.answer(ordinal) {
                    *state = AnswerState::Ready { length, is_refused };
                }
            }
            QueueOperation::Counts { asks } => {
                lane.incoming.counts_under_way -= 1;
                lane.incoming.promise();
                lane.outgoing.asks_again |= asks;
            }
            QueueOperation::Apply { .. } | QueueOperation::Values { .. } => {}
        }
    }

    /// Records that the wire does not need the memory of a batch any more.
    fn end_batch(&mut self, number: u32, buffer: Span, out: &mut Out<QueueEvent>) {
        out.notify(QueueEvent::Free { buffer });
        let lane = &mut self.lanes[number as usize];
        lane.outgoing.under_way = lane.outgoing.under_way.saturating_sub(1);
        let (peer, class) = (lane.peer, lane.class);
        if lane.outgoing.under_way == 0 && !self.is_gone(peer) {
            out.notify(QueueEvent::Room { peer, class });
        }
    }

    fn end_put(&mut self, number: u32, item: &LaneItem, status: Status, out: &mut Out<QueueEvent>) {
        let LaneWork::Put { signal, .. } = item.work else { return };
        let (peer, context) = (self.lanes[number as usize].peer, item.context);
        if matches!(status, Status::Refused(_) | Status::Failed(_)) {
            out.notify(QueueEvent::Refused { context, peer, status });
        }
        out.notify(QueueEvent::Ended { context, peer, count: 1 });
        self.unended -= 1;
        let is_gone = self.is_gone(peer);
        let outgoing = &mut self.lanes[number as usize].outgoing;
        let signal = match signal {
            // It left behind the put, unless the put was refused at once.
            Some(_) if self.rules.sends_follow_writes => outgoing.behind.take(),
            Some(batch) => {
                self.unended += 1;
                Some(signal_item(item, batch))
            }
            None => {
                outgoing.end_write(context, item.epoch);
                None
            }
        };
        let Some(signal) = signal else { return };
        if status == Status::Complete && !is_gone {
            return outgoing.pending.push_front(signal);
        }
        outgoing.end_write(context, item.epoch);
        outgoing.end_batch(context, item.epoch);
        outgoing.under_way = outgoing.under_way.saturating_sub(1);
        self.drop_item(peer, &signal, out);
    }

    fn end_requests(&mut self, number: u32, ordinal: u64, out: &mut Out<QueueEvent>) {
        let lane = &mut self.lanes[number as usize];
        if let Some(sent) = lane.outgoing.end_requests(ordinal) {
            let (context, peer, count) = (sent.context, lane.peer, sent.elements);
            out.notify(QueueEvent::Ended { context, peer, count });
            self.unended -= 1;
        }
    }
}
