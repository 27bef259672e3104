//! Barriers, sums and gathered blocks of all victims, one after the other, on a wire that loses
//! messages.
//!
//! # Model
//! A schedule of `base` says which rank sends to which in each step. A rank keeps what it sent in
//! this iteration and in the one before. When what it waits for does not come, it asks its sender,
//! and a sender that has sent it already sends it again: only what is missed is repeated, and a
//! sender that has not come so far answers when it has.
//!
//! Messages of a barrier and of a reduction carry the sum of the numbers of those for whom they
//! speak; those of a gathering carry blocks (`blocks`), in as many parts as they need.
//!
//! # Invariants
//! I1. A message is known by iteration, step and part, and is taken once, however often and in
//!     which order it comes.
//! I2. A rank is at most one iteration ahead of another, for no schedule ends anywhere before all
//!     have begun it.

use alloc::vec;
use alloc::vec::Vec;

use crate::base::{Class, LocalNs, Nanos, Participant, Rank, STEPS_MAX, Schedule, Step};
use crate::wire::{Operation, Span};

use super::blocks::Blocks;
use super::context::{CongestionConfig, CongestionContext};
use super::frame::CongestionFrame;
use super::transfer::{TIMEOUT_FIRST, TIMEOUT_MAX};

/// One rank's part in one operation after another.
#[derive(Debug)]
pub(super) struct Collective {
    ring: Vec<Rank>,
    place: Participant,
    schedule: Schedule,
    class: Class,
    /// Only where blocks are gathered.
    blocks: Option<Blocks>,
    round: CollectiveRound,
    previous: CollectiveRound,
    /// What came early of the next iteration, by step.
    early: [StepArrivals; STEPS_MAX],
    timeout: Nanos,
    timeout_at: Option<LocalNs>,
}

/// What came in one step.
#[derive(Clone, Copy, Debug, Default)]
struct StepArrivals {
    /// Bit `i` is set when part `i` is here.
    parts: u128,
    value: u64,
}

/// One iteration: what was sent and heard at each step.
#[derive(Clone, Copy, Debug)]
struct CollectiveRound {
    iteration: u32,
    value: u64,
    /// The step to take next.
    step: usize,
    sent: [Option<u64>; STEPS_MAX],
    heard: [StepArrivals; STEPS_MAX],
}

impl CollectiveRound {
    const fn new(iteration: u32, value: u64, heard: [StepArrivals; STEPS_MAX]) -> Self {
        Self { iteration, value, step: 0, sent: [None; STEPS_MAX], heard }
    }
}

/// What a message says of itself.
#[derive(Clone, Copy, Debug)]
struct CollectiveMessage {
    iteration: u32,
    step: usize,
    part: u8,
    value: u64,
}

impl Collective {
    /// Creates a part for the rank of `config` among `ring`. A rank that is not in the ring acts
    /// alone.
    pub(super) fn new(
        schedule: Schedule,
        ring: &[Rank],
        class: Class,
        config: &CongestionConfig,
    ) -> Self {
        let place = ring.iter().position(|rank| *rank == config.rank);
        let ring = if place.is_some() { ring.to_vec() } else { vec![config.rank] };
        let place = Participant { rank: place.unwrap_or(0) as u32, ranks: ring.len() as u32 };
        let gathers = schedule == Schedule::Allgather;
        Self {
            blocks: gathers.then(|| Blocks::new(&ring, place.rank, config.body_max)),
            ring,
            place,
            schedule,
            class,
            round: CollectiveRound::new(0, 0, [StepArrivals::default(); STEPS_MAX]),
            previous: CollectiveRound::new(u32::MAX, 0, [StepArrivals::default(); STEPS_MAX]),
            early: [StepArrivals::default(); STEPS_MAX],
            timeout: TIMEOUT_FIRST,
            timeout_at: None,
        }
    }

    /// Begins `iteration`, which must be the one after the last, with this rank's `value`.
    pub(super) fn start(&mut self, cx: &mut CongestionContext<'_>, iteration: u32, value: u64) {
        let heard = core::mem::take(&mut self.early);
        self.previous =
            core::mem::replace(&mut self.round, CollectiveRound::new(iteration, value, heard));
        if let Some(blocks) = &self.blocks {
            blocks.put_own(cx, iteration);
        }
        self.wait_anew(cx.now);
        self.advance(cx);
    }

    /// Returns this rank's place in the ring, and how many there are.
    pub(super) const fn place(&self) -> Participant {
        self.place
    }

    /// Returns what the current iteration made of the values, once it is over; nothing to speak of
    /// where blocks are gathered.
    pub(super) fn result(&self) -> Option<u64> {
        (self.round.step == self.steps()).then_some(self.round.value)
    }

    /// Returns the blocks, where there are any.
    pub(super) const fn blocks(&mut self) -> Option<&mut Blocks> {
        self.blocks.as_mut()
    }

    pub(super) const fn deadline(&self) -> Option<LocalNs> {
        self.timeout_at
    }

    /// Takes a message of this kind of operation, or a question; `body` is what came with it.
    pub(super) fn arrival(
        &mut self,
        cx: &mut CongestionContext<'_>,
        from: Rank,
        body: Span,
        frame: CongestionFrame,
    ) {
        let is_taken = match (frame, &self.blocks) {
            (CongestionFrame::Sum { iteration, step, value }, None) => self.message(
                cx,
                from,
                body,
                CollectiveMessage { iteration, step: step.into(), part: 0, value },
            ),
            (CongestionFrame::Blocks { iteration, step, part }, Some(_)) => self.message(
                cx,
                from,
                body,
                CollectiveMessage { iteration, step: step.into(), part, value: 0 },
            ),
            (CongestionFrame::Question { iteration, step }, _) => {
                self.question(cx, from, iteration, step.into())
            }
            _ => None,
        };
        if is_taken.is_none() {
            cx.record.foreign += 1;
        }
        self.advance(cx);
    }

    /// Asks for what is overdue.
    pub(super) fn tick(&mut self, cx: &mut CongestionContext<'_>) {
        if self.timeout_at.is_none_or(|at| at > cx.now) {
            return;
        }
        let CollectiveRound { iteration, step, .. } = self.round;
        if let Some(from) = self.rank_at(self.step(step).from) {
            cx.send(
                from,
                self.class,
                CongestionFrame::Question { iteration, step: step as u8 },
                0,
                None,
            );
        }
        self.timeout = TIMEOUT_MAX.min(self.timeout.times(2));
        self.timeout_at = Some(cx.now + self.timeout);
    }

    fn wait_anew(&mut self, now: LocalNs) {
        self.timeout = TIMEOUT_FIRST;
        self.timeout_at = Some(now + self.timeout);
    }

    const fn steps(&self) -> usize {
        self.place.steps(self.schedule) as usize
    }

    fn step(&self, step: usize) -> Step {
        self.place.step(self.schedule, step as u32)
    }

    fn rank_at(&self, place: Option<u32>) -> Option<Rank> {
        self.ring.get(place? as usize).copied()
    }

    /// Returns how many messages one step's is.
    fn parts(&self, step: usize) -> u8 {
        self.blocks.as_ref().map_or(1, |blocks| blocks.parts(self.step(step).blocks))
    }

    /// Returns how far ahead of this rank's iteration another one is.
    const fn ahead(&self, iteration: u32) -> i32 {
        iteration.wrapping_sub(self.round.iteration).cast_signed()
    }

    /// Takes a message, or leaves it because it came before or late; `None` for one that no rank
    /// sends.
    fn message(
        &mut self,
        cx: &mut CongestionContext<'_>,
        from: Rank,
        body: Span,
        message: CollectiveMessage,
    ) -> Option<()> {
        let CollectiveMessage { iteration, step, part, value } = message;
        let expected = (step < self.steps()).then(|| self.step(step))?;
        let is_expected = self.rank_at(expected.from) == Some(from) && part < self.parts(step);
        let into = match &self.blocks {
            Some(blocks) => blocks.part(cx, iteration, 1 << step, expected.blocks, part)?,
            None => Span::EMPTY,
        };
        let ahead = self.ahead(iteration);
        if !is_expected || into.length != body.length || ahead > 1 {
            return None;
        }
        let heard = match ahead {
            0 => &mut self.round.heard[step],
            1 => &mut self.early[step],
            _ => return Some(()),
        };
        if heard.parts & (1 << part) == 0 {
            *heard = StepArrivals { parts: heard.parts | (1 << part), value };
            if into.length > 0 {
                cx.out.operate(Operation::Copy { from: body, into });
            }
        }
        Some(())
    }

    /// Sends again what `from` misses, if it was sent; `None` for a question that no rank asks.
    fn question(
        &self,
        cx: &mut CongestionContext<'_>,
        from: Rank,
        iteration: u32,
        step: usize,
    ) -> Option<()> {
        let expected = (step < self.steps()).then(|| self.step(step))?;
        let ahead = self.ahead(iteration);
        if self.rank_at(expected.to) != Some(from) || ahead > 1 {
            return None;
        }
        let round = match ahead {
            0 => &self.round,
            -1 => &self.previous,
            // A rank that is ahead gets it in time; one that was further behind has it by now.
            _ => return Some(()),
        };
        if round.sent[step].is_some() {
            self.send(cx, step, round);
            cx.record.resent += u64::from(self.parts(step));
        }
        Some(())
    }

    /// Takes every step whose message is here.
    fn advance(&mut self, cx: &mut CongestionContext<'_>) {
        while self.take_step(cx) {}
        if self.result().is_some() {
            self.timeout_at = None;
        }
    }

    /// Takes one step; returns whether there was one to take.
    fn take_step(&mut self, cx: &mut CongestionContext<'_>) -> bool {
        let CollectiveRound { iteration, value, step, .. } = self.round;
        if iteration == 0 || step == self.steps() {
            return false;
        }
        let Step { to, from, .. } = self.step(step);
        if to.is_some() && self.round.sent[step].is_none() {
            self.round.sent[step] = Some(value);
            self.send(cx, step, &self.round);
        }
        if from.is_some() {
            let heard = self.round.heard[step];
            if heard.parts.count_ones() < u32::from(self.parts(step)) {
                return false;
            }
            let is_result = self.schedule == Schedule::Allreduce && step + 1 == self.steps();
            self.round.value =
                if is_result { heard.value } else { value.wrapping_add(heard.value) };
            self.wait_anew(cx.now);
        }
        self.round.step += 1;
        true
    }

    /// Sends what was sent at `step` of `round`, for the first time or again.
    fn send(&self, cx: &mut CongestionContext<'_>, step: usize, round: &CollectiveRound) {
        let Step { to, blocks: count, .. } = self.step(step);
        let (Some(to), Some(value)) = (self.rank_at(to), round.sent[step]) else { return };
        let (iteration, step) = (round.iteration, step as u8);
        let Some(blocks) = &self.blocks else {
            return cx.send(
                to,
                self.class,
                CongestionFrame::Sum { iteration, step, value },
                0,
                None,
            );
        };
        for part in 0..blocks.parts(count) {
            if let Some(body) = blocks.part(cx, iteration, 0, count, part) {
                cx.send_span(
                    to,
                    self.class,
                    CongestionFrame::Blocks { iteration, step, part },
                    body,
                    None,
                );
            }
        }
    }
}
