//! What arrives: completions become ends of slots, used-up buffers, messages and notes.

use clearway_proto::base::{Class, LocalNs, Rank};
use clearway_proto::wire::{Arrival, Datagram, PathId, Queue, RegionId, Span, Stamp, Status};

use super::layout::{self, BUFFERS, RECEIVE};
use super::peers::{ProofPolicy, lane_of};
use super::slots::{AfterSend, SlotStage, SlotWork, Slots};
use super::{LISTED_MAX, OfiWire, ReadyItem, now};
use crate::device::{BATCH, Completion, PostResult};
use crate::frame::{self, ControlMessage, ImmediateWord, ReceivedContent};

/// Polls in one poll, so that ends of sends, which are no arrivals, do not keep it for ever.
const POLLS_MAX: usize = 8;

impl OfiWire {
    /// Posts receive buffers whose messages were all given out before this poll.
    pub(super) fn post_buffers(&mut self) {
        let device = &mut self.device;
        let first_key = self.slots.count();
        let counters = &mut self.counters;
        self.released.retain(|buffer| {
            let posting =
                device.receive(buffer / BUFFERS, layout::buffer(*buffer), first_key + buffer);
            counters.errors += u64::from(matches!(posting, PostResult::Failed(_)));
            posting != PostResult::Accepted
        });
    }

    /// Takes what the provider has, and does everything that is due then.
    pub(super) fn progress(&mut self) {
        self.looks.begin(now());
        self.found = false;
        for queue in 0..self.device.queues() {
            if self.looks.is_due(queue) {
                self.drain(queue);
            }
        }
        self.run_due_work();
    }

    /// Takes what a queue has. A batch that is not full was all.
    fn drain(&mut self, queue: usize) {
        let mut completions = std::mem::take(&mut self.completions);
        for _ in 0..POLLS_MAX {
            if self.listed.len() + BATCH > LISTED_MAX {
                break;
            }
            self.device.poll(queue, RECEIVE, &mut completions);
            if !completions.is_empty() {
                self.looks.mark_active(queue);
                self.found = true;
                let at = now();
                completions.iter().for_each(|completion| self.complete(completion, at));
            }
            if completions.len() < BATCH {
                break;
            }
        }
        self.completions = completions;
    }

    fn complete(&mut self, completion: &Completion, at: LocalNs) {
        self.counters.errors += u64::from(completion.failed.is_some());
        let Some(key) = completion.key else { return };
        if key < self.slots.count() {
            return self.complete_slot(key, completion.failed, at);
        }
        if let Some(offset) = completion.offset
            && completion.length > 0
        {
            self.receive(offset, completion.length, at);
        }
        if completion.released || completion.failed.is_some() {
            self.listed.push_back(ReadyItem::Released(key - self.slots.count()));
        }
    }

    fn complete_slot(&mut self, slot: usize, failed: Option<i32>, at: LocalNs) {
        let entry = *self.slots.get(slot);
        if entry.work == SlotWork::Free || entry.stage != SlotStage::Provider {
            self.counters.errors += 1;
            return;
        }
        if failed.is_some() {
            self.give_up(slot, Status::Flushed);
            return self.end_answers(Slots::lane(slot), entry.to);
        }
        let lane = Slots::lane(slot);
        let mut value = 0;
        match entry.work {
            SlotWork::Message { then: AfterSend::Answer(_) | AfterSend::Heard(_), .. } => {
                return self.wait_for_answer(slot, at);
            }
            SlotWork::Write { .. } if self.is_answered() => return self.wait_for_answer(slot, at),
            SlotWork::Message { then: AfterSend::Greeted, .. } => {
                self.greeted.push((entry.to, lane))
            }
            SlotWork::Write { from, into, immediate: immediate @ Some(_), .. } if !self.ordered => {
                self.note(
                    lane,
                    entry.to,
                    ControlMessage::Landed(ImmediateWord { into, length: from.length, immediate }),
                );
            }
            SlotWork::Atomic { .. } => value = self.fetched(slot),
            _ => {}
        }
        if let Some(token) = self.slots.give_back(slot).token() {
            self.listed.push_back(ReadyItem::Done { token, status: Status::Complete, value, at });
        }
    }

    /// Takes a message in the receive memory.
    fn receive(&mut self, offset: usize, length: usize, at: LocalNs) {
        let memory = self.device.bytes(RECEIVE).unwrap_or_default();
        let message = &memory[offset..offset + length];
        let Some(frame) = frame::parse(message, |rank| self.peers.session_from(rank)) else {
            let greeter = frame::greeter(message);
            return self.reject(greeter);
        };
        let lane = lane_of(frame.class, self.lanes);
        match frame.content {
            ReceivedContent::Note(ControlMessage::Hello { proof })
                if self.proof == ProofPolicy::Needed =>
            {
                if !self.peers.admit(frame.from, lane, proof) {
                    return self.reject(Some(frame.from));
                }
                self.unmarked = true;
            }
            _ if !self.peers.link(frame.from, lane).proven => self.reject(None),
            ReceivedContent::Message { body_start } => self.listed.push_back(ReadyItem::Message {
                from: frame.from,
                class: frame.class,
                at,
                head: offset + frame::FRAME_LENGTH..offset + body_start,
                end: offset + length,
            }),
            ReceivedContent::Note(note) => self.handle_control(frame.from, frame.class, note, at),
            ReceivedContent::Words { ticket, count } => {
                for index in 0..count {
                    let memory = self.device.bytes(RECEIVE).unwrap_or_default();
                    if let Some(word) = frame::word(&memory[offset..offset + length], index) {
                        self.landed(frame.from, word, at);
                    }
                }
                self.note(lane, frame.from, ControlMessage::Heard { ticket });
            }
        }
    }

    /// Counts a message that is not taken; remembers who it says to be where it should have proved
    /// that.
    fn reject(&mut self, greeter: Option<Rank>) {
        self.counters.strangers += 1;
        if self.proof == ProofPolicy::Needed && self.refused.is_none() {
            self.refused = greeter.filter(|rank| self.peers.has(*rank));
        }
    }

    /// Handles a note from a peer.
    fn handle_control(&mut self, from: Rank, class: Class, note: ControlMessage, at: LocalNs) {
        let lane = lane_of(class, self.lanes);
        match note {
            ControlMessage::Hello { .. } => self.unmarked = true,
            ControlMessage::Landed(word) => self.landed(from, word, at),
            ControlMessage::AskRegion { region } => {
                let there = self.handle(region);
                self.note(lane, from, ControlMessage::TellRegion { region, there });
            }
            ControlMessage::TellRegion { region, there } => self.learn(from, region, there),
            ControlMessage::AskAtomic { ticket, kind, at } => {
                let old = self.change(kind, at);
                self.note(lane, from, ControlMessage::TellAtomic { ticket, old });
            }
            ControlMessage::TellAtomic { ticket, old } => self.answered(from, ticket, old, at),
            ControlMessage::Heard { ticket } => self.words_answered(from, ticket, at),
        }
    }

    /// Handles a write into this end's memory that is complete.
    fn landed(&mut self, from: Rank, word: ImmediateWord, at: LocalNs) {
        let ImmediateWord { into, length, immediate } = word;
        let into = Span { region: into.region, offset: into.offset, length };
        if into.region == RegionId::RECEIVE || self.place_of_body(into).is_err() {
            self.counters.strangers += 1;
        } else {
            let landed = immediate.map(|immediate| ReadyItem::Landed { from, into, immediate, at });
            self.listed.extend(landed);
        }
    }

    /// Gives at most `limit` arrivals; how many there were.
    pub(super) fn give(&mut self, limit: usize, sink: &mut dyn FnMut(Arrival<'_>)) -> usize {
        let memory = self.device.bytes(RECEIVE).unwrap_or_default();
        let mut given = 0;
        while given < limit || matches!(self.listed.front(), Some(ReadyItem::Released(_))) {
            let Some(listed) = self.listed.pop_front() else { break };
            let arrival = match listed {
                ReadyItem::Released(buffer) => {
                    self.released.push(buffer);
                    continue;
                }
                ReadyItem::Landed { from, into, immediate, at } => {
                    Arrival::Landed { from, into, immediate, at: Stamp::Taken(at) }
                }
                ReadyItem::Done { token, status, value, at } => {
                    Arrival::Done { token, status, value, at }
                }
                ReadyItem::Message { from, class, at, head, end } => {
                    self.counters.received += 1;
                    let length = (end - head.end) as u32;
                    Arrival::Datagram(Datagram {
                        from,
                        path: PathId(0),
                        class: Some(class),
                        congestion_marked: false,
                        at: Stamp::Taken(at),
                        body: Span { region: RegionId::RECEIVE, offset: head.end as u64, length },
                        head: &memory[head],
                    })
                }
            };
            sink(arrival);
            given += 1;
        }
        given
    }

    /// Returns whether a class that found no room would find it now.
    pub(super) fn room_is_due(&self) -> bool {
        Class::ALL.into_iter().any(|class| self.has_room_again(class))
    }

    fn has_room_again(&self, class: Class) -> bool {
        self.no_room[class.index()] && self.slots.has_room(self.lane_of(class))
    }

    /// Tells of classes that found no room and would find it now.
    pub(super) fn give_room(&mut self, sink: &mut dyn FnMut(Arrival<'_>)) -> usize {
        let mut given = 0;
        for class in Class::ALL {
            if self.has_room_again(class) {
                self.no_room[class.index()] = false;
                given += 1;
                sink(Arrival::Room { queue: Queue::Path { path: PathId(0), class } });
            }
        }
        given
    }
}
