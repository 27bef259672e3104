//! How contributions leave: what the policy chose takes its place in the builder's ring, and is
//! written there piece by piece.
//!
//! # Invariants
//! I1. A write that found no room is repeated before anything else leaves.

use super::*;
use crate::timeslice::frame::WriteImmediate;
use crate::timeslice::supply::PIECES_MAX;
use crate::wire::{Operation, PathId};

/// Contributions posted in one call, so that a process that was away hears its wire again.
const TURNS_MAX: usize = 64;

impl InputNode {
    pub(super) fn post_contributions(&mut self, cx: &mut TimesliceContext<'_>) -> More {
        if !self.begun || !self.ready {
            return More::No;
        }
        for _ in 0..TURNS_MAX {
            if cx.out.room() < PIECES_MAX {
                return More::Yes;
            }
            let slot = self.again.is_empty() && self.writes < cx.config.slots.in_all;
            let choice = if slot {
                self.policy.choose(cx.now, &self.connections)
            } else {
                Choice::Blocked(Cause::NoTransmitSlot)
            };
            match choice {
                Choice::Post(place) => {
                    self.blocked.turn(cx.now, None);
                    if let Some(turn) = self.post(cx, place) {
                        self.policy.posted(cx.now, turn);
                    }
                }
                Choice::Blocked(cause) => {
                    self.blocked.turn(cx.now, Some(cause));
                    return More::No;
                }
            }
        }
        More::Yes
    }

    /// Writes the next contribution to the builder at `place`, which has room; says whose turn it
    /// was.
    pub(super) fn post(&mut self, cx: &mut TimesliceContext<'_>, place: usize) -> Option<u64> {
        let connection = &mut self.connections.all[place];
        let (timeslice, turn, position) = (connection.next?, connection.turn, connection.position);
        let pieces = self.connections.supply.pieces(timeslice)?;
        if cx.config.policy.is_building() {
            let at = connection.ring.place(pieces.length())?;
            connection.ring.take(at);
            connection.sent.push_back(UnreleasedContribution {
                timeslice,
                turn,
                position,
                place: at,
            });
        }
        connection.posted = connection.posted.wrapping_add(1);
        connection.position = position + 1;
        self.connections.look_up(place);
        self.reached = self.reached.max(timeslice + 1);
        self.record.contributions += 1;
        self.record.bytes += pieces.length();
        for piece in 0..pieces.spans().len() as u8 {
            self.write(cx, place, position as u32, piece);
        }
        Some(turn)
    }

    /// Posts one write of the contribution at a position that ends in `sequence` to the builder at
    /// `place`.
    pub(super) fn write(
        &mut self,
        cx: &mut TimesliceContext<'_>,
        place: usize,
        sequence: u32,
        piece: u8,
    ) {
        let connection = &mut self.connections.all[place];
        let (timeslice, position, offset) = if cx.config.policy.is_building() {
            let Some(sent) = connection.unreleased(sequence) else { return };
            (sent.timeslice, sent.position, sent.place.offset)
        } else {
            (0, 0, 0)
        };
        let Some(pieces) = self.connections.supply.pieces(timeslice) else { return };
        let spans = pieces.spans();
        let before: u64 =
            spans[..usize::from(piece)].iter().map(|span| u64::from(span.length)).sum();
        let RemoteSpan { region, offset: ring } = connection.into;
        let (from, token) = (
            spans[usize::from(piece)],
            TimesliceLabel::Write { place: place as u32, sequence, piece, life: connection.life }
                .token(),
        );
        if cx.config.policy == Policy::Put {
            put::send(cx, connection.peer, from, before, token);
        } else {
            cx.out.operate(Operation::Write {
                to: connection.peer,
                path: PathId(0),
                class: cx.config.class,
                from,
                into: RemoteSpan { region, offset: ring.saturating_add(offset + before) },
                immediate: Some(
                    WriteImmediate::new(
                        timeslice,
                        position,
                        spans.len() as u8,
                        [cx.journal.epoch(), connection.life, cx.config.run.into()],
                    )
                    .word(),
                ),
                token: Some(token),
            });
        }
        connection.writes += 1;
        self.writes += 1;
    }

    /// Handles the end of the `piece` of a write to the builder at `place` in `life` of the
    /// connection.
    pub(super) fn written(
        &mut self,
        cx: &mut TimesliceContext<'_>,
        place: u32,
        sequence: u32,
        [piece, life]: [u8; 2],
        status: Status,
    ) {
        if cx.config.policy == Policy::Put && status == Status::Complete {
            // It has left; the builder says when it is there.
            return;
        }
        let Some(connection) = self.connections.all.get_mut(place as usize) else { return };
        // What is left of an earlier connection to the same builder says nothing about this one.
        if connection.stage == ConnectionState::Out || TimesliceLabel::life(connection.life) != life
        {
            return;
        }
        connection.writes = connection.writes.saturating_sub(1);
        self.writes = self.writes.saturating_sub(1);
        match status {
            Status::NoRoom => self.again.push_back((place, sequence, piece)),
            Status::Refused(missing) => {
                cx.out.notify(TimesliceEvent::Refused { peer: connection.peer, missing })
            }
            _ if connection.is_drained() => self.try_to_end(),
            _ => {}
        }
    }

    /// Writes that found no room try again.
    pub(super) fn room(&mut self, cx: &mut TimesliceContext<'_>) {
        for _ in 0..self.again.len() {
            if let Some((place, sequence, piece)) = self.again.pop_front() {
                self.write(cx, place as usize, sequence, piece);
            }
        }
    }
}
