//! What leaves: messages and notes into slots, slots to the provider, again when it had no room,
//! given up in the end.

use clearway_proto::base::{Class, Nanos, Rank};
use clearway_proto::wire::{
    Destination, OperationKind, PostOutcome, RefusalReason, Span, Status, Token,
};

use super::layout::{self, STAGING};
use super::peers::{ConnectionState, RegionKnowledge};
use super::slots::{AfterSend, SlotOwner, SlotStage, SlotWork, Slots};
use super::{INJECTED_MAX, NOTES_MAX, OfiWire, ReadyItem, now};
use crate::device::{CompletionLevel, LocalBytes, PostResult, RemoteBytes};
use crate::frame::{BODY_MAX, ControlMessage, FRAME_LENGTH, HEAD_MAX, ImmediateWord};
use crate::provider::Marking;
use crate::sockets;

impl OfiWire {
    /// Checks a message and sends it on its way.
    pub(super) fn start_send(
        &mut self,
        to: Destination,
        class: Class,
        head: Option<&[u8]>,
        body: Span,
        token: Option<Token>,
    ) -> Result<PostOutcome, RefusalReason> {
        let Destination::One(to) = to else {
            return Err(RefusalReason::Operation(OperationKind::Multicast));
        };
        if !self.peers.has(to) {
            return Err(RefusalReason::Rank);
        }
        let body = self.place_of_body(body)?;
        let head = head.ok_or(RefusalReason::Memory)?;
        if head.len() > HEAD_MAX || body.length > BODY_MAX {
            return Err(RefusalReason::Length);
        }
        let lane = self.lane_of(class);
        let Some(slot) = self.slots.next(lane, SlotOwner::Engine) else {
            return Ok(self.no_room(class));
        };
        let length = self.stage(slot, to, class, head, body)?;
        self.counters.sent += 1;
        if self.try_inject(lane, to, slot, length) {
            return Ok(PostOutcome::Done(0));
        }
        let then = token.map_or(AfterSend::Nothing, AfterSend::Tell);
        self.slots.take(slot, to, SlotWork::Message { length, then });
        self.submit(slot);
        Ok(if token.is_some() { PostOutcome::Posted } else { PostOutcome::Done(0) })
    }

    /// Writes a whole message into a slot's memory; its length.
    fn stage(
        &mut self,
        slot: usize,
        to: Rank,
        class: Class,
        head: &[u8],
        body: LocalBytes,
    ) -> Result<usize, RefusalReason> {
        let frame = self.sender(to).message(class, head.len() as u8);
        let start = layout::staging(slot, 0).offset;
        let staging = self.device.bytes_mut(STAGING).ok_or(RefusalReason::Memory)?;
        let body_start = start + FRAME_LENGTH + head.len();
        staging[start..start + FRAME_LENGTH].copy_from_slice(&frame);
        staging[start + FRAME_LENGTH..body_start].copy_from_slice(head);
        if body.length > 0 {
            let into = LocalBytes { piece: STAGING, offset: body_start, length: body.length };
            self.device.copy(body, into).ok_or(RefusalReason::Memory)?;
        }
        Ok(FRAME_LENGTH + head.len() + body.length)
    }

    /// Hands a staged message over without a completion, if it is small and nothing is in its way.
    fn try_inject(&mut self, lane: usize, to: Rank, slot: usize, length: usize) -> bool {
        let small = length <= self.inject_max;
        let link = self.peers.link(to, lane);
        if !small
            || link.standing != ConnectionState::Ready
            || link.queued > 0
            || link.injected >= INJECTED_MAX
        {
            return false;
        }
        let address = link.address;
        let accepted = self.device.inject(lane, address, layout::staging(slot, length))
            == PostResult::Accepted;
        if accepted {
            self.looks.operation_posted(lane);
            self.peers.link(to, lane).injected += 1;
        }
        accepted
    }

    /// Sends a note of the wire's, now or when there is a slot for it.
    pub(super) fn note(&mut self, lane: usize, to: Rank, note: ControlMessage) {
        let sent = self.notes[lane].is_empty()
            && self.send_note(lane, to, note, AfterSend::Nothing).is_some();
        if sent {
            return;
        }
        if self.notes[lane].len() < NOTES_MAX {
            self.notes[lane].push_back((to, note));
        } else {
            self.counters.errors += 1;
        }
    }

    /// Puts a note into a slot and submits it; `None` when the lane has no slot.
    pub(super) fn send_note(
        &mut self,
        lane: usize,
        to: Rank,
        note: ControlMessage,
        then: AfterSend,
    ) -> Option<usize> {
        let slot = self.slots.next(lane, SlotOwner::Wire)?;
        let length = self.stage_note(slot, lane, to, note);
        self.slots.take(slot, to, SlotWork::Message { length, then });
        self.submit(slot);
        Some(slot)
    }

    /// Writes a note into a slot's memory; its length.
    pub(super) fn stage_note(
        &mut self,
        slot: usize,
        lane: usize,
        to: Rank,
        note: ControlMessage,
    ) -> usize {
        let class = if self.lanes == 1 { Class::BestEffort } else { Class::ALL[lane] };
        let message = self.sender(to).note(class, note);
        let (bytes, start) = (message.bytes(), layout::staging(slot, 0).offset);
        if let Some(staging) = self.device.bytes_mut(STAGING) {
            staging[start..start + bytes.len()].copy_from_slice(bytes);
        }
        bytes.len()
    }

    /// Gives a slot to the provider, or puts it behind those that wait.
    pub(super) fn submit(&mut self, slot: usize) {
        let (lane, to) = (Slots::lane(slot), self.slots.get(slot).to);
        let link = *self.peers.link(to, lane);
        match link.standing {
            ConnectionState::Ready if link.queued == 0 && self.attempt(slot) => return,
            ConnectionState::Fresh => self.send_greeting(lane, to),
            _ => {}
        }
        self.enqueue(slot);
    }

    fn enqueue(&mut self, slot: usize) {
        let (lane, to) = (Slots::lane(slot), self.slots.get(slot).to);
        let entry = self.slots.get_mut(slot);
        (entry.stage, entry.since) = (SlotStage::Queued, now());
        self.peers.link(to, lane).queued += 1;
        self.backlog[lane].push_back(slot);
    }

    /// Sends the first message on a connection: after it this end may be heard, and the connection
    /// can be marked.
    pub(super) fn send_greeting(&mut self, lane: usize, to: Rank) {
        let Some(slot) = self.slots.next(lane, SlotOwner::Wire) else { return };
        let proof = self.peers.proof_for(to, lane);
        let length = self.stage_note(slot, lane, to, ControlMessage::Hello { proof });
        self.slots.take(slot, to, SlotWork::Message { length, then: AfterSend::Greeted });
        self.peers.link(to, lane).standing = ConnectionState::Greeting;
        if !self.attempt(slot) {
            self.enqueue(slot);
        }
    }

    /// Offers a slot to the provider; false when it has no room now. A slot that failed is over.
    fn attempt(&mut self, slot: usize) -> bool {
        let entry = *self.slots.get(slot);
        let (lane, to) = (Slots::lane(slot), entry.to);
        let address = self.peers.link(to, lane).address;
        let posting = match entry.work {
            SlotWork::Message { length, .. } => {
                self.device.send(lane, address, layout::staging(slot, length), slot)
            }
            work => self.attempt_remote(slot, lane, to, work),
        };
        match posting {
            PostResult::Accepted => {
                self.looks.operation_posted(lane);
                self.slots.get_mut(slot).stage = SlotStage::Provider;
                self.peers.link(to, lane).injected = 0;
                self.follow(slot, lane, to);
                true
            }
            PostResult::Full => false,
            PostResult::Failed(_) => {
                self.counters.errors += 1;
                self.give_up(slot, Status::Flushed);
                true
            }
        }
    }

    fn attempt_remote(&mut self, slot: usize, lane: usize, to: Rank, work: SlotWork) -> PostResult {
        let Some((span, _)) = work.remote() else { return PostResult::Failed(libc::EINVAL) };
        let RegionKnowledge::There(handle) = self.peers.region(to, span.region) else {
            return PostResult::Failed(libc::EINVAL);
        };
        let through = if self.memory_on_first_lane { 0 } else { lane };
        let address = self.peers.link(to, through).address;
        let at =
            RemoteBytes { address, at: handle.begin.wrapping_add(span.offset), key: handle.key };
        let failed = PostResult::Failed(libc::EFAULT);
        match work {
            SlotWork::Write { from, .. } => {
                let until =
                    if self.is_answered() { CompletionLevel::Left } else { CompletionLevel::There };
                self.place(from)
                    .map_or(failed, |from| self.device.write(lane, from, at, until, slot))
            }
            SlotWork::Read { into, .. } => {
                self.place(into).map_or(failed, |into| self.device.read(lane, at, into, slot))
            }
            SlotWork::Atomic { kind, .. } => {
                self.device.atomic(lane, kind, at, layout::staging(slot, 24), slot)
            }
            SlotWork::Free | SlotWork::Message { .. } => failed,
        }
    }

    /// Sends what goes behind an accepted operation: a write's word, where the provider keeps the
    /// order.
    fn follow(&mut self, slot: usize, lane: usize, to: Rank) {
        let SlotWork::Write { from, into, immediate, .. } = self.slots.get(slot).work else {
            return;
        };
        if self.is_answered() {
            self.word(slot);
        } else if self.ordered && immediate.is_some() {
            self.note(
                lane,
                to,
                ControlMessage::Landed(ImmediateWord { into, length: from.length, immediate }),
            );
        }
    }

    /// Ends what a slot does without success.
    pub(super) fn give_up(&mut self, slot: usize, status: Status) {
        if self.slots.get(slot).stage == SlotStage::Answer
            || self.slots.get(slot).stage == SlotStage::Region
        {
            self.waiting -= 1;
        }
        let (lane, to) = (Slots::lane(slot), self.slots.get(slot).to);
        let work = self.slots.give_back(slot);
        match work {
            SlotWork::Message { then: AfterSend::Greeted, .. } => {
                self.peers.link(to, lane).standing = ConnectionState::Fresh
            }
            SlotWork::Message { then: AfterSend::Nothing, .. } => {
                self.counters.transmit_dropped += 1
            }
            SlotWork::Message { then: AfterSend::Heard(count), .. } => {
                self.end_writes(slot, count, status, now())
            }
            _ => {}
        }
        if let Some(token) = work.token() {
            self.listed.push_back(ReadyItem::Done { token, status, value: 0, at: now() });
        }
    }

    /// Does everything that is due after completions were taken: marks, what waits, what waits too
    /// long.
    pub(super) fn run_due_work(&mut self) {
        if self.unmarked || !self.greeted.is_empty() {
            self.mark();
        }
        for lane in 0..self.lanes {
            while let Some((to, note)) = self.notes[lane].pop_front() {
                if self.send_note(lane, to, note, AfterSend::Nothing).is_none() {
                    self.notes[lane].push_front((to, note));
                    break;
                }
            }
            self.flush(lane);
        }
        self.speak_again();
        if self.waiting > 0 || self.backlog.iter().any(|backlog| !backlog.is_empty()) {
            self.expire();
        }
    }

    /// Offers what waits on a lane to the provider, in order for each peer.
    fn flush(&mut self, lane: usize) {
        self.round += 1;
        for _ in 0..self.backlog[lane].len() {
            let Some(slot) = self.backlog[lane].pop_front() else { return };
            let entry = *self.slots.get(slot);
            let greeting = matches!(entry.work, SlotWork::Message { then: AfterSend::Greeted, .. });
            let link = *self.peers.link(entry.to, lane);
            if link.standing == ConnectionState::Fresh {
                self.send_greeting(lane, entry.to);
            }
            let may_leave =
                (greeting || link.standing == ConnectionState::Ready) && link.full_in != self.round;
            self.peers.link(entry.to, lane).queued -= 1;
            if may_leave && self.attempt(slot) {
                continue;
            }
            let link = self.peers.link(entry.to, lane);
            link.queued += 1;
            link.full_in = self.round;
            self.backlog[lane].push_back(slot);
        }
    }

    /// Marks the sockets of connections that came up.
    fn mark(&mut self) {
        self.unmarked = false;
        if self.marking == Marking::Sockets {
            let (own_at, lane_at) = (&self.own_at, &self.peers.lane_at);
            let marked = sockets::mark(&|own, peer| {
                let listening =
                    own_at.iter().position(|at| at.is_some_and(|at| at.port() == own.port()));
                let lane = listening.or_else(|| lane_at.get(&peer).copied())?;
                Class::ALL.get(lane).copied()
            });
            self.marked.sockets += marked.sockets;
            self.marked.refused += marked.refused;
        }
        for (to, lane) in self.greeted.drain(..) {
            self.peers.link(to, lane).standing = ConnectionState::Ready;
        }
    }

    /// Gives up everything for `peer`, whether it lives or not. What the provider has keeps its
    /// slot until the provider says that it is over.
    pub(super) fn leave(&mut self, peer: Rank) {
        if !self.peers.has(peer) {
            return;
        }
        self.mute.retain(|(_, to)| *to != peer);
        for lane in 0..self.lanes {
            self.notes[lane].retain(|(to, _)| *to != peer);
            let words = self.peers.words(peer, lane);
            words.tickets.clear();
            words.bytes = 0;
        }
        for slot in 0..self.slots.count() {
            let entry = *self.slots.get(slot);
            if entry.work == SlotWork::Free || entry.to != peer {
                continue;
            }
            match entry.stage {
                SlotStage::Provider => self.disown(slot),
                SlotStage::Queued => {
                    self.unqueue(slot);
                    self.give_up(slot, Status::Flushed);
                }
                SlotStage::Region | SlotStage::Answer => self.give_up(slot, Status::Flushed),
            }
        }
    }

    /// Ends what a slot does that the provider has; the slot stays until the provider gives it
    /// back.
    fn disown(&mut self, slot: usize) {
        let entry = *self.slots.get(slot);
        let over = |length| SlotWork::Message { length, then: AfterSend::Nothing };
        let token = match entry.work {
            SlotWork::Message { length, then: AfterSend::Heard(count) } => {
                self.slots.get_mut(slot).work = over(length);
                return self.end_writes(slot, count, Status::Flushed, now());
            }
            SlotWork::Message {
                length,
                then: AfterSend::Tell(token) | AfterSend::Answer(token),
            } => {
                self.slots.get_mut(slot).work = over(length);
                Some(token)
            }
            SlotWork::Write { token, .. } => {
                self.slots.get_mut(slot).work = over(0);
                token
            }
            // The provider may still put something into this end's memory.
            SlotWork::Read { .. }
            | SlotWork::Atomic { .. }
            | SlotWork::Message { .. }
            | SlotWork::Free => None,
        };
        let done = token.map(|token| ReadyItem::Done {
            token,
            status: Status::Flushed,
            value: 0,
            at: now(),
        });
        self.listed.extend(done);
    }

    fn unqueue(&mut self, slot: usize) {
        let (lane, to) = (Slots::lane(slot), self.slots.get(slot).to);
        self.backlog[lane].retain(|queued| *queued != slot);
        self.peers.link(to, lane).queued -= 1;
    }

    /// Gives up what has waited for its peer longer than the timeout allows. Looks four times in
    /// that time.
    fn expire(&mut self) {
        let now = now();
        if now.since(self.looked) < Nanos(self.timeout.0 / 4) {
            return;
        }
        self.looked = now;
        for slot in 0..self.slots.count() {
            let entry = *self.slots.get(slot);
            let waits = entry.work != SlotWork::Free && entry.stage != SlotStage::Provider;
            if !waits || now.since(entry.since) < self.timeout {
                continue;
            }
            if entry.stage == SlotStage::Queued {
                self.unqueue(slot);
            }
            self.give_up(slot, Status::Flushed);
        }
    }
}
