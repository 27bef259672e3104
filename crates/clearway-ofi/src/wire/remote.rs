//! One-sided operations: what must be known of a peer's memory, and what a peer may do with this
//! end's.

use clearway_proto::base::{Class, LocalNs, Rank};
use clearway_proto::wire::{
    AtomicKind, PostOutcome, RefusalReason, RegionId, RemoteSpan, Span, Status, Token,
};

use super::layout::{self, OWN_PIECES, STAGING};
use super::peers::{REGIONS_MAX, RegionKnowledge};
use super::slots::{AfterSend, SlotOwner, SlotStage, SlotWork, Slots};
use super::{OfiWire, ReadyItem, now};
use crate::frame::{ControlMessage, ImmediateWord, RegionHandle};

impl OfiWire {
    pub(super) fn start_write(
        &mut self,
        to: Rank,
        class: Class,
        work: SlotWork,
        from: Span,
    ) -> Result<PostOutcome, RefusalReason> {
        let place = self.place_of_body(from)?;
        if place.length > self.device.facts().message_max {
            return Err(RefusalReason::Length);
        }
        self.start_remote(to, class, work)
    }

    pub(super) fn start_read(
        &mut self,
        peer: Rank,
        class: Class,
        work: SlotWork,
        into: Span,
    ) -> Result<PostOutcome, RefusalReason> {
        let place = self.place(into)?;
        if into.region == RegionId::RECEIVE {
            return Err(RefusalReason::Memory);
        }
        if place.length > self.device.facts().message_max {
            return Err(RefusalReason::Length);
        }
        self.start_remote(peer, class, work)
    }

    pub(super) fn start_atomic(
        &mut self,
        to: Rank,
        class: Class,
        kind: AtomicKind,
        at: RemoteSpan,
        token: Token,
    ) -> Result<PostOutcome, RefusalReason> {
        if !at.offset.is_multiple_of(8) {
            return Err(RefusalReason::Memory);
        }
        if self.native_atomics {
            return self.start_remote(to, class, SlotWork::Atomic { kind, at, token });
        }
        let lane = self.lane_of(class);
        let Some(slot) = self.slots.next(lane, SlotOwner::Engine) else {
            return Ok(self.no_room(class));
        };
        self.slots.take(slot, to, SlotWork::Message { length: 0, then: AfterSend::Answer(token) });
        let question = ControlMessage::AskAtomic { ticket: self.slots.ticket(slot), kind, at };
        let length = self.stage_note(slot, lane, to, question);
        self.slots.get_mut(slot).work =
            SlotWork::Message { length, then: AfterSend::Answer(token) };
        self.submit(slot);
        Ok(PostOutcome::Posted)
    }

    /// Starts an operation on a peer's memory, as soon as it is known where that is.
    fn start_remote(
        &mut self,
        to: Rank,
        class: Class,
        work: SlotWork,
    ) -> Result<PostOutcome, RefusalReason> {
        let Some((span, length)) = work.remote() else { return Err(RefusalReason::Memory) };
        if usize::from(span.region.0) >= REGIONS_MAX {
            return Err(RefusalReason::Memory);
        }
        let known = self.peers.region(to, span.region);
        if let RegionKnowledge::There(handle) = known {
            check(handle, span, length)?;
        }
        let lane = self.lane_of(class);
        let Some(slot) = self.slots.next(lane, SlotOwner::Engine) else {
            return Ok(self.no_room(class));
        };
        self.slots.take(slot, to, work);
        match known {
            RegionKnowledge::There(_) => self.submit_remote(slot),
            RegionKnowledge::Asked => self.wait_for_region(slot),
            RegionKnowledge::Not => {
                self.wait_for_region(slot);
                self.peers.learn(to, span.region, RegionKnowledge::Asked);
                self.note(lane, to, ControlMessage::AskRegion { region: span.region });
            }
        }
        Ok(PostOutcome::Posted)
    }

    fn wait_for_region(&mut self, slot: usize) {
        let entry = self.slots.get_mut(slot);
        (entry.stage, entry.since) = (SlotStage::Region, now());
        self.waiting += 1;
    }

    /// Submits an operation whose peer's memory is known and large enough.
    fn submit_remote(&mut self, slot: usize) {
        let (lane, entry) = (Slots::lane(slot), *self.slots.get(slot));
        match entry.work {
            SlotWork::Atomic { kind, .. } => self.stage_words(slot, kind),
            // No provider is asked to write nothing: the word alone travels.
            SlotWork::Write { from: Span { length: 0, .. }, .. } if self.is_answered() => {
                self.wait_for_answer(slot, now());
                return self.word(slot);
            }
            SlotWork::Write { from: Span { length: 0, .. }, immediate: None, token, .. } => {
                self.slots.give_back(slot);
                let done = token.map(|token| ReadyItem::Done {
                    token,
                    status: Status::Complete,
                    value: 0,
                    at: now(),
                });
                return self.listed.extend(done);
            }
            SlotWork::Write { from: Span { length: 0, .. }, into, immediate, token } => {
                let word = ImmediateWord { into, length: 0, immediate };
                let length = self.stage_note(slot, lane, entry.to, ControlMessage::Landed(word));
                let then = token.map_or(AfterSend::Nothing, AfterSend::Tell);
                self.slots.get_mut(slot).work = SlotWork::Message { length, then };
            }
            _ => {}
        }
        self.submit(slot);
    }

    /// Stages operand, comparand and room for the old value in a slot's memory.
    fn stage_words(&mut self, slot: usize, kind: AtomicKind) {
        let (operand, comparand) = match kind {
            AtomicKind::FetchAdd(n) | AtomicKind::Swap(n) => (n, 0u64),
            AtomicKind::CompareSwap { expected, desired } => (desired, expected),
        };
        let start = layout::staging(slot, 0).offset;
        if let Some(staging) = self.device.bytes_mut(STAGING) {
            staging[start..start + 8].copy_from_slice(&operand.to_ne_bytes());
            staging[start + 8..start + 16].copy_from_slice(&comparand.to_ne_bytes());
        }
    }

    /// Returns the old value that a provider's own atomic left in a slot's memory.
    pub(super) fn fetched(&self, slot: usize) -> u64 {
        let start = layout::staging(slot, 0).offset + 16;
        let word = self
            .device
            .bytes(STAGING)
            .and_then(|staging| staging.get(start..)?.first_chunk().copied());
        word.map_or(0, u64::from_ne_bytes)
    }

    /// Returns what a peer must know of one of this end's regions.
    pub(super) fn handle(&self, region: RegionId) -> Option<RegionHandle> {
        if usize::from(region.0) >= REGIONS_MAX {
            return None;
        }
        let piece = usize::from(region.0) + OWN_PIECES;
        let length = self.device.length(piece)? as u64;
        let (begin, key) = self.device.handle_of(piece)?;
        Some(RegionHandle { begin, length, key })
    }

    /// Learns where a peer's region is, as the peer said: what waited for that goes on, or is
    /// refused.
    pub(super) fn learn(&mut self, peer: Rank, region: RegionId, there: Option<RegionHandle>) {
        if self.peers.region(peer, region) != RegionKnowledge::Asked {
            self.counters.strangers += 1;
            return;
        }
        self.peers.learn(peer, region, there.map_or(RegionKnowledge::Not, RegionKnowledge::There));
        for slot in 0..self.slots.count() {
            let entry = *self.slots.get(slot);
            let Some((span, length)) = entry.work.remote() else { continue };
            if entry.stage != SlotStage::Region || entry.to != peer || span.region != region {
                continue;
            }
            match there.ok_or(RefusalReason::Memory).and_then(|handle| check(handle, span, length))
            {
                Ok(()) => {
                    self.waiting -= 1;
                    self.submit_remote(slot);
                }
                Err(missing) => self.give_up(slot, Status::Refused(missing)),
            }
        }
    }

    /// Changes a word of this end's memory for a peer; its old value, or nothing where there is no
    /// such word.
    pub(super) fn change(&mut self, kind: AtomicKind, at: RemoteSpan) -> Option<u64> {
        if usize::from(at.region.0) >= REGIONS_MAX || !at.offset.is_multiple_of(8) {
            return None;
        }
        if let Some(memory) = self.adopted.get(&at.region) {
            return memory.change(at.offset, kind).ok();
        }
        let offset = usize::try_from(at.offset).ok()?;
        // An atomic operation of the processor: threads and ranks of this host may change the same
        // word.
        self.device.word(usize::from(at.region.0) + OWN_PIECES, offset).map(|word| kind.apply(word))
    }

    /// Takes a peer's answer to an atomic. The answer may come before the provider says that the
    /// question has left: then the slot stays until it does.
    pub(super) fn answered(&mut self, from: Rank, ticket: u64, old: Option<u64>, at: LocalNs) {
        let Some(slot) = self.slots.named(ticket, from) else {
            self.counters.strangers += 1;
            return;
        };
        let entry = self.slots.get_mut(slot);
        let SlotWork::Message { length, then: AfterSend::Answer(token) } = entry.work else {
            self.counters.strangers += 1;
            return;
        };
        match entry.stage {
            SlotStage::Answer => {
                self.waiting -= 1;
                self.slots.give_back(slot);
            }
            _ => entry.work = SlotWork::Message { length, then: AfterSend::Nothing },
        }
        let status =
            if old.is_some() { Status::Complete } else { Status::Refused(RefusalReason::Memory) };
        self.listed.push_back(ReadyItem::Done { token, status, value: old.unwrap_or(0), at });
    }
}

/// Checks that the bytes lie inside the peer's region.
fn check(handle: RegionHandle, span: RemoteSpan, length: u64) -> Result<(), RefusalReason> {
    let end = span.offset.checked_add(length).ok_or(RefusalReason::Memory)?;
    if end <= handle.length { Ok(()) } else { Err(RefusalReason::Memory) }
}
