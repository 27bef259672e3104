//! Words of writes over TCP: several in one message, and the peer's answer to it, which ends the
//! writes.
//!
//! # Model
//! Where the provider keeps messages behind writes, the receiver of a word has the bytes. So a
//! write needs no answer of the provider's to be over: it completes here when its bytes have left,
//! and ends when the peer answers the message with its word.
//!
//! A word leaves at once as long as fewer than [`UNANSWERED_MAX`] words to the peer are unanswered
//! on its lane. Behind that many it waits until they are answered, or until [`WORDS_MAX`] words or
//! [`BYTES_MAX`] bytes wait. So two writes at a time cost no time, and many cost few messages.
//!
//! A message of words keeps its slot until it is answered; behind it, in the slot's memory, lie the
//! tickets of the writes.
//!
//! # Invariants
//! I1. Messages of words leave half of the reserve to answers, so two ends that wait for each
//!     other's answers can give them.
//! I2. A write ends once: by the answer, or because it or the message with its word was given up.

use clearway_proto::base::{Class, LocalNs, Rank};
use clearway_proto::wire::{RegionId, RemoteSpan, Status};

use super::layout::{self, RESERVE, STAGING};
use super::slots::{AfterSend, SlotOwner, SlotStage, SlotWork, Slots};
use super::{OfiWire, ReadyItem};
use crate::frame::{ImmediateWord, WORDS_LENGTH_MAX, WORDS_MAX};
use crate::provider::Marking;

/// Unanswered words behind which more wait: an engine that keeps two writes under way, as timeslice
/// building does, never waits.
const UNANSWERED_MAX: usize = 2;
/// Bytes of writes whose words may wait: at 10 Gb/s they take 0.4 ms. Half of that costs writes of
/// 64 KiB 2 % of their rate.
const BYTES_MAX: u64 = 512 * 1024;

/// Fills a place that no word has taken.
const NOTHING: ImmediateWord = ImmediateWord {
    into: RemoteSpan { region: RegionId(0), offset: 0 },
    length: 0,
    immediate: None,
};

impl OfiWire {
    /// Returns whether writes end by the peer's answer. Other providers' own answers cost its
    /// processor nothing.
    pub(super) fn is_answered(&self) -> bool {
        self.ordered && self.marking == Marking::Sockets
    }

    /// Notes that the provider has done its part; the peer's is to come.
    pub(super) fn wait_for_answer(&mut self, slot: usize, at: LocalNs) {
        let entry = self.slots.get_mut(slot);
        (entry.stage, entry.since) = (SlotStage::Answer, at);
        self.waiting += 1;
    }

    /// Notes that the write in `slot` is under way: its word is to follow.
    pub(super) fn word(&mut self, slot: usize) {
        let (lane, to, ticket) =
            (Slots::lane(slot), self.slots.get(slot).to, self.slots.ticket(slot));
        let SlotWork::Write { from, .. } = self.slots.get(slot).work else { return };
        let words = self.peers.words(to, lane);
        words.tickets.push(ticket);
        words.bytes += u64::from(from.length);
        self.send_words(lane, to);
    }

    /// Sends the words that need not wait.
    fn send_words(&mut self, lane: usize, to: Rank) {
        loop {
            let words = self.peers.words(to, lane);
            let many = words.tickets.len() >= WORDS_MAX || words.bytes >= BYTES_MAX;
            if words.tickets.is_empty() || words.unanswered >= UNANSWERED_MAX && !many {
                return;
            }
            let taker =
                if self.spoken[lane] < RESERVE / 2 { SlotOwner::Wire } else { SlotOwner::Engine };
            let Some(slot) = self.slots.next(lane, taker) else {
                if !self.mute.contains(&(lane, to)) {
                    self.mute.push((lane, to));
                }
                return;
            };
            self.send_word_message(slot, lane, to);
        }
    }

    /// Sends one message of words out of `slot`.
    fn send_word_message(&mut self, slot: usize, lane: usize, to: Rank) {
        let words = self.peers.words(to, lane);
        words.bytes = 0;
        let next = words.tickets.len().min(WORDS_MAX);
        let mut arrived = [(0, NOTHING); WORDS_MAX];
        let mut count = 0;
        for ticket in words.tickets.drain(..next) {
            // What was given up meanwhile says nothing.
            if let Some(SlotWork::Write { from, into, immediate, .. }) =
                self.slots.named(ticket, to).map(|slot| self.slots.get(slot).work)
            {
                arrived[count] = (ticket, ImmediateWord { into, length: from.length, immediate });
                count += 1;
            }
        }
        if count == 0 {
            return;
        }
        self.slots.take(slot, to, SlotWork::Message { length: 0, then: AfterSend::Heard(count) });
        let class = if self.lanes == 1 { Class::BestEffort } else { Class::ALL[lane] };
        let message = self.sender(to).words(
            class,
            self.slots.ticket(slot),
            arrived[..count].iter().map(|arrived| arrived.1),
        );
        let (bytes, length) = (message.bytes(), message.bytes().len());
        let start = layout::staging(slot, 0).offset;
        if let Some(staging) = self.device.bytes_mut(STAGING) {
            staging[start..start + length].copy_from_slice(bytes);
            for (index, (ticket, _)) in arrived[..count].iter().enumerate() {
                let at = start + WORDS_LENGTH_MAX + 8 * index;
                staging[at..at + 8].copy_from_slice(&ticket.to_le_bytes());
            }
        }
        self.slots.get_mut(slot).work = SlotWork::Message { length, then: AfterSend::Heard(count) };
        self.spoken[lane] += 1;
        self.peers.words(to, lane).unanswered += count;
        self.submit(slot);
    }

    /// Sends words that found no slot.
    pub(super) fn speak_again(&mut self) {
        for (lane, to) in std::mem::take(&mut self.mute) {
            self.send_words(lane, to);
        }
    }

    /// Ends the writes of a message of words, which the peer answered.
    pub(super) fn words_answered(&mut self, from: Rank, ticket: u64, at: LocalNs) {
        let slot = self.slots.named(ticket, from);
        let arrived = slot.map(|slot| (slot, *self.slots.get(slot)));
        let Some((slot, entry)) = arrived else {
            self.counters.strangers += 1;
            return;
        };
        let SlotWork::Message { length, then: AfterSend::Heard(count) } = entry.work else {
            self.counters.strangers += 1;
            return;
        };
        if entry.stage == SlotStage::Answer {
            self.waiting -= 1;
            self.slots.give_back(slot);
        } else {
            self.slots.get_mut(slot).work = SlotWork::Message { length, then: AfterSend::Nothing };
        }
        self.end_writes(slot, count, Status::Complete, at);
        self.send_words(Slots::lane(slot), from);
    }

    /// Ends the writes whose words were in the message of `slot`, and forgets the message.
    pub(super) fn end_writes(&mut self, slot: usize, count: usize, status: Status, at: LocalNs) {
        let (lane, to) = (Slots::lane(slot), self.slots.get(slot).to);
        self.spoken[lane] -= 1;
        self.peers.words(to, lane).unanswered -= count;
        let start = layout::staging(slot, 0).offset + WORDS_LENGTH_MAX;
        for index in 0..count {
            let staging = self.device.bytes(STAGING).unwrap_or_default();
            let ticket =
                staging.get(start + 8 * index..).and_then(|bytes| bytes.first_chunk().copied());
            self.end_write(ticket.map_or(u64::MAX, u64::from_le_bytes), to, status, at);
        }
    }

    /// Expects no more answers on this lane: the connection to `to` broke.
    pub(super) fn end_answers(&mut self, lane: usize, to: Rank) {
        for slot in Slots::of_lane(lane) {
            let entry = self.slots.get(slot);
            if entry.work != SlotWork::Free && entry.stage == SlotStage::Answer && entry.to == to {
                self.give_up(slot, Status::Flushed);
            }
        }
    }

    fn end_write(&mut self, ticket: u64, to: Rank, status: Status, at: LocalNs) {
        let Some(slot) = self.slots.named(ticket, to) else { return };
        let entry = *self.slots.get(slot);
        let SlotWork::Write { token, .. } = entry.work else { return };
        if entry.stage == SlotStage::Answer {
            self.waiting -= 1;
            self.slots.give_back(slot);
        } else {
            // The provider still holds its bytes: it has not yet said that they left.
            self.slots.get_mut(slot).work =
                SlotWork::Message { length: 0, then: AfterSend::Nothing };
        }
        if let Some(token) = token {
            self.listed.push_back(ReadyItem::Done { token, status, value: 0, at });
        }
    }
}
