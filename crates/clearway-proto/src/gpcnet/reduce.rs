//! Sums, least and greatest of one number a rank, by recursive doubling, on a wire that may lose
//! messages.
//!
//! # Model
//! Ranks exchange partial results by the steps of a reduction (`base`): what MPI does for 8 bytes.
//! A rank that waits sends its latest message again after a time-out and asks for an answer; a rank
//! that has that message already sends again what the asker must have missed. Several reductions
//! run side by side on *lanes*.
//!
//! # Invariants
//! I1. Every value enters the result once: messages are known by (round, step), and a step's value
//!     is taken once.
//! I2. A partner is at most one round ahead, so the values of one round in advance are all that is
//!     kept.

use alloc::vec::Vec;

use super::context::{GpcnetContext, GpcnetLabel, GpcnetPurpose};
use super::frame::{GpcnetFrame, StepAnswer};
use super::round_trip::{FIRST, MOST, RoundTrip};
use crate::base::{LocalNs, Nanos, Participant, Rank, STEPS_MAX, Schedule, Step};

/// The reductions that can run side by side in a test.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum ReductionLane {
    /// Of the slice: the timed ones, and barriers.
    Slice,
    /// Of all slices: barriers before a ring, agreement about the time.
    Wide,
    /// Of everyone: victims and congestors wait for each other.
    Everyone,
}

/// What a reduction makes of two values.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum ReductionOperator {
    /// Their sum, modulo 2^64.
    Sum,
    /// The lesser.
    Least,
    /// The greater.
    Greatest,
}

impl ReductionOperator {
    fn apply(self, a: u64, b: u64) -> u64 {
        match self {
            Self::Sum => a.wrapping_add(b),
            Self::Least => a.min(b),
            Self::Greatest => a.max(b),
        }
    }
}

/// One round: what was sent and heard at each step.
#[derive(Clone, Copy, Debug)]
struct ReductionRound {
    number: u32,
    value: u64,
    /// The step to take next.
    step: usize,
    sent: [Option<u64>; STEPS_MAX],
    heard: [Option<u64>; STEPS_MAX],
    result: Option<u64>,
}

impl ReductionRound {
    const fn new(number: u32, value: u64, heard: [Option<u64>; STEPS_MAX]) -> Self {
        Self { number, value, step: 0, sent: [None; STEPS_MAX], heard, result: None }
    }
}

/// One rank's part in one reduction after another.
#[derive(Debug)]
pub(super) struct Reduction {
    lane: ReductionLane,
    ranks: Vec<Rank>,
    place: Participant,
    fold: ReductionOperator,
    round: ReductionRound,
    previous: ReductionRound,
    early: [Option<u64>; STEPS_MAX],
    /// How long rounds take. Ranks come to a barrier when they are ready, so it only shortens the
    /// first time-out.
    trip: RoundTrip,
    timeout: Nanos,
    timeout_at: Option<LocalNs>,
    /// A message found no room in a transmit queue.
    blocked: bool,
}

impl Reduction {
    /// Creates a part for `me` among `ranks`. A rank that is not among them reduces alone.
    pub(super) fn new(lane: ReductionLane, ranks: &[Rank], me: Rank) -> Self {
        let place = ranks.iter().position(|rank| *rank == me);
        let ranks: Vec<Rank> = if place.is_some() { ranks.into() } else { [me].into() };
        Self {
            lane,
            place: Participant { rank: place.unwrap_or(0) as u32, ranks: ranks.len() as u32 },
            fold: ReductionOperator::Sum,
            round: ReductionRound::new(0, 0, [None; STEPS_MAX]),
            previous: ReductionRound::new(u32::MAX, 0, [None; STEPS_MAX]),
            early: [None; STEPS_MAX],
            trip: RoundTrip::new(),
            timeout: FIRST,
            timeout_at: None,
            blocked: false,
            ranks,
        }
    }

    /// Begins the next round.
    pub(super) fn start(
        &mut self,
        cx: &mut GpcnetContext<'_>,
        value: u64,
        fold: ReductionOperator,
    ) {
        let heard = core::mem::replace(&mut self.early, [None; STEPS_MAX]);
        let next = ReductionRound::new(self.round.number.wrapping_add(1), value, heard);
        self.previous = core::mem::replace(&mut self.round, next);
        self.fold = fold;
        self.timeout = FIRST.min(self.trip.timeout());
        self.timeout_at = Some(cx.now + self.timeout);
        self.trip.forget();
        self.trip.sent(u64::from(self.round.number), cx.now);
        self.advance(cx);
    }

    /// Returns the number of the round that runs or ran last; 0 before the first.
    pub(super) fn round(&self) -> u32 {
        self.round.number
    }

    /// Returns the result of the round, once it is known.
    pub(super) fn result(&self) -> Option<u64> {
        self.round.result
    }

    pub(super) fn deadline(&self) -> Option<LocalNs> {
        self.timeout_at.filter(|_| !self.blocked)
    }

    pub(super) fn arrival(
        &mut self,
        cx: &mut GpcnetContext<'_>,
        from: Rank,
        round: u32,
        step: u8,
        value: u64,
        answer: StepAnswer,
    ) {
        let step = usize::from(step);
        if step >= self.steps() || self.partner(step) != Some(from) {
            return;
        }
        match round.wrapping_sub(self.round.number) {
            0 => {
                if self.round.heard[step].replace(value).is_some() && answer == StepAnswer::Wanted {
                    self.send_again_to(cx, step, self.round);
                }
            }
            1 => self.early[step] = Some(value),
            u32::MAX if answer == StepAnswer::Wanted => self.send_again_to(cx, step, self.previous),
            _ => return,
        }
        self.advance(cx);
    }

    /// Sends the latest message again when its answer does not come.
    pub(super) fn tick(&mut self, cx: &mut GpcnetContext<'_>) {
        if self.deadline().is_none_or(|at| at > cx.now) {
            return;
        }
        if let Some(latest) = self.round.sent.iter().rposition(Option::is_some) {
            self.send(cx, latest, self.round, StepAnswer::Wanted);
        }
        self.trip.forget();
        self.timeout = MOST.min(self.timeout.times(2));
        self.timeout_at = Some(cx.now + self.timeout);
    }

    /// Records that a message of this lane found no room; it is sent again when there is some.
    pub(super) fn no_room(&mut self) {
        self.blocked = true;
    }

    /// Continues: a transmit queue has room again.
    pub(super) fn room(&mut self, cx: &mut GpcnetContext<'_>) {
        if !core::mem::take(&mut self.blocked) {
            return;
        }
        for step in 0..self.steps() {
            if self.round.sent[step].is_some() {
                self.send(cx, step, self.round, StepAnswer::Given);
            }
        }
    }

    fn steps(&self) -> usize {
        self.place.steps(Schedule::Allreduce) as usize
    }

    fn step(&self, step: usize) -> Step {
        self.place.step(Schedule::Allreduce, step as u32)
    }

    /// Returns the rank with which this rank exchanges at `step`, if with anyone.
    fn partner(&self, step: usize) -> Option<Rank> {
        let Step { to, from, .. } = self.step(step);
        self.ranks.get(to.or(from)? as usize).copied()
    }

    /// Takes every step whose message is here.
    fn advance(&mut self, cx: &mut GpcnetContext<'_>) {
        while self.round.number > 0 && self.round.result.is_none() && self.take_step(cx) {}
        if self.round.result.is_some() {
            self.timeout_at = None;
            self.trip.confirmed(u64::from(self.round.number) + 1, cx.now);
        }
    }

    /// Takes one step; returns whether there was one to take.
    fn take_step(&mut self, cx: &mut GpcnetContext<'_>) -> bool {
        let (step, steps) = (self.round.step, self.steps());
        if step == steps {
            self.round.result = Some(self.round.value);
            return false;
        }
        let Step { to, from, .. } = self.step(step);
        if to.is_some() && self.round.sent[step].is_none() {
            self.send_first(cx, step);
        }
        if from.is_some() {
            let Some(value) = self.round.heard[step] else { return false };
            let is_result = step + 1 == steps;
            self.round.value =
                if is_result { value } else { self.fold.apply(self.round.value, value) };
        }
        self.round.step += 1;
        true
    }

    fn send_first(&mut self, cx: &mut GpcnetContext<'_>, step: usize) {
        self.round.sent[step] = Some(self.round.value);
        self.send(cx, step, self.round, StepAnswer::Given);
    }

    fn send(
        &self,
        cx: &mut GpcnetContext<'_>,
        step: usize,
        round: ReductionRound,
        answer: StepAnswer,
    ) {
        if let (Some(to), Some(value)) = (self.partner(step), round.sent[step]) {
            let frame = GpcnetFrame::Step {
                lane: self.lane as u8,
                round: round.number,
                step: step as u8,
                value,
                answer,
            };
            let label = GpcnetLabel {
                purpose: GpcnetPurpose::Step,
                place: self.lane as usize,
                sequence: 0,
            };
            cx.send(to, frame, 0, Some(label));
        }
    }

    /// Answers the partner of `step`, which asks: it missed this rank's message of that step, or
    /// the result if it is an outer rank.
    fn send_again_to(&self, cx: &mut GpcnetContext<'_>, step: usize, round: ReductionRound) {
        self.send(cx, if step == 0 { self.steps() - 1 } else { step }, round, StepAnswer::Given);
    }
}
