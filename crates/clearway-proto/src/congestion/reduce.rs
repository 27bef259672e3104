//! Sums over all victims by recursive doubling, on a wire that loses messages.
//!
//! # Model
//! Of `n` ranks the first `p` (the largest power of two) exchange partial sums with partner `i xor 2^(s-1)` in steps
//! `s = 1..=log2 p`. Each of the other `n - p` gives its value to a rank of the first `p` before (step 0) and gets the sum
//! after (the last step). A rank that waits sends its latest message again after a time-out and asks for an answer; a
//! rank that has that message already sends again what the asker must have missed.
//!
//! # Source
//! Thakur, Rabenseifner, Gropp, "Optimization of collective communication operations in MPICH" (2005), §4.5.
//!
//! # Invariants
//! I1. Every value enters the sum once: messages are known by (iteration, step), and a step's value is taken once.

use alloc::vec;
use alloc::vec::Vec;

use crate::base::{Class, LocalNs, Nanos, Rank};
use crate::wire::More;

use super::context::{Context, NodeConfig};
use super::frame::{Answer, Frame};
use super::task::{Phase, VictimTask};
use super::transfer::{TIMEOUT_FIRST, TIMEOUT_MAX};

/// One rank's part in one reduction after another.
#[derive(Debug)]
pub(super) struct Reduction {
    ring: Vec<Rank>,
    me: usize,
    class: Class,
    /// Ranks that exchange: the largest power of two not above the number of ranks.
    core: usize,
    round: Round,
    previous: Round,
    /// Values of the next iteration that came early, by step.
    early: Vec<Option<u64>>,
    timeout: Nanos,
    timeout_at: Option<LocalNs>,
}

/// One iteration: what was sent and heard at each step.
#[derive(Clone, Debug)]
struct Round {
    iteration: u32,
    value: u64,
    step: usize,
    sent: Vec<Option<u64>>,
    heard: Vec<Option<u64>>,
    result: Option<u64>,
}

impl Round {
    fn new(iteration: u32, value: u64, heard: Vec<Option<u64>>) -> Self {
        Self { iteration, value, step: 0, sent: vec![None; heard.len()], heard, result: None }
    }
}

impl Reduction {
    /// A part for `me` among `ring`. A rank that is not in the ring reduces alone.
    pub(super) fn new(ring: &[Rank], me: Rank, class: Class) -> Self {
        let place = ring.iter().position(|rank| *rank == me);
        let ring = if place.is_some() { ring.to_vec() } else { vec![me] };
        let core = 1usize << ring.len().ilog2();
        let steps = core.ilog2() as usize + 2;
        Self {
            me: place.unwrap_or(0),
            class,
            core,
            round: Round::new(0, 0, vec![None; steps]),
            previous: Round::new(u32::MAX, 0, vec![None; steps]),
            early: vec![None; steps],
            timeout: TIMEOUT_FIRST,
            timeout_at: None,
            ring,
        }
    }

    /// Begins `iteration`, which must be the one after the last.
    pub(super) fn start(&mut self, cx: &mut Context<'_>, iteration: u32, value: u64) {
        let steps = self.early.len();
        let heard = core::mem::replace(&mut self.early, vec![None; steps]);
        self.previous = core::mem::replace(&mut self.round, Round::new(iteration, value, heard));
        self.timeout = TIMEOUT_FIRST;
        self.timeout_at = Some(cx.now + self.timeout);
        self.advance(cx);
    }

    /// The sum of the current iteration, once it is known.
    pub(super) fn result(&self) -> Option<u64> {
        self.round.result
    }

    pub(super) fn deadline(&self) -> Option<LocalNs> {
        self.timeout_at
    }

    pub(super) fn arrival(&mut self, cx: &mut Context<'_>, from: Rank, frame: Frame) {
        let Frame::Sum { iteration, step, value, answer } = frame else { return };
        let step = usize::from(step);
        if step >= self.early.len() || self.partner(step) != Some(from) {
            cx.record.foreign += 1;
            return;
        }
        let asked = answer == Answer::Wanted;
        match iteration.wrapping_sub(self.round.iteration) {
            0 => {
                if self.round.heard[step].replace(value).is_some() && asked {
                    self.send_again_to(cx, step, &self.round);
                }
                self.advance(cx);
            }
            1 => self.early[step] = Some(value),
            u32::MAX if asked => self.send_again_to(cx, step, &self.previous),
            u32::MAX => {}
            _ => cx.record.foreign += 1,
        }
    }

    /// Sends the latest message again if its answer is overdue.
    pub(super) fn tick(&mut self, cx: &mut Context<'_>) {
        if self.timeout_at.is_none_or(|at| at > cx.now) {
            return;
        }
        if let Some(step) = self.round.sent.iter().rposition(Option::is_some) {
            self.send(cx, step, &self.round, Answer::Wanted);
            cx.record.resent += 1;
        }
        self.timeout = TIMEOUT_MAX.min(self.timeout.times(2));
        self.timeout_at = Some(cx.now + self.timeout);
    }

    fn last_step(&self) -> usize {
        self.early.len() - 1
    }

    /// With whom this rank exchanges at `step`, if with anyone.
    fn partner(&self, step: usize) -> Option<Rank> {
        let outer = step == 0 || step == self.last_step();
        let place = match (outer, self.me >= self.core) {
            (true, true) => self.me - self.core,
            (true, false) => self.me + self.core,
            (false, true) => return None,
            (false, false) => self.me ^ (1 << (step - 1)),
        };
        self.ring.get(place).copied()
    }

    /// Takes every step whose message is here.
    fn advance(&mut self, cx: &mut Context<'_>) {
        while self.round.result.is_none() && self.take_step(cx) {}
        if self.round.result.is_some() {
            self.timeout_at = None;
        }
    }

    /// One step; whether there was one to take.
    fn take_step(&mut self, cx: &mut Context<'_>) -> bool {
        let (step, last) = (self.round.step, self.last_step());
        if self.me >= self.core {
            if self.round.sent[0].is_none() {
                self.send_first(cx, 0);
            }
            self.round.result = self.round.heard[last];
            return self.round.result.is_some();
        }
        let alone = self.partner(step).is_none();
        if step == last {
            if !alone {
                self.send_first(cx, last);
            }
            self.round.result = Some(self.round.value);
            return true;
        }
        if step > 0 && self.round.sent[step].is_none() {
            self.send_first(cx, step);
        }
        let heard = if alone { Some(0) } else { self.round.heard[step] };
        let Some(value) = heard else { return false };
        self.round.value = self.round.value.wrapping_add(value);
        self.round.step += 1;
        true
    }

    fn send_first(&mut self, cx: &mut Context<'_>, step: usize) {
        self.round.sent[step] = Some(self.round.value);
        self.send(cx, step, &self.round, Answer::Given);
    }

    fn send(&self, cx: &mut Context<'_>, step: usize, round: &Round, answer: Answer) {
        if let (Some(to), Some(value)) = (self.partner(step), round.sent[step]) {
            let frame = Frame::Sum { iteration: round.iteration, step: step as u8, value, answer };
            cx.send(to, self.class, frame, 0, None);
        }
    }

    /// The partner of `step` asks: it missed this rank's message of that step, or the sum if it is an outer rank.
    fn send_again_to(&self, cx: &mut Context<'_>, step: usize, round: &Round) {
        self.send(cx, if step == 0 { self.last_step() } else { step }, round, Answer::Given);
    }
}

/// Timed reductions, one after the other.
#[derive(Debug)]
pub(super) struct AllreduceLoop {
    reduction: Reduction,
    interval: Nanos,
    iteration: u32,
    started: Option<LocalNs>,
    next: Option<LocalNs>,
}

impl AllreduceLoop {
    pub(super) fn new(task: &VictimTask, phase: &Phase, config: &NodeConfig) -> Self {
        let reduction = Reduction::new(&task.ring, config.rank, task.class);
        Self { reduction, interval: task.interval, iteration: 0, started: None, next: Some(phase.begin) }
    }

    /// When the iteration under way began.
    pub(super) fn begun(&self) -> Option<LocalNs> {
        self.started
    }

    pub(super) fn deadline(&self) -> Option<LocalNs> {
        if self.started.is_some() { self.reduction.deadline() } else { self.next }
    }

    pub(super) fn tick(&mut self, cx: &mut Context<'_>) -> More {
        if self.started.is_none() && self.next.is_some_and(|at| at <= cx.now) {
            if cx.now >= cx.end() {
                self.next = None;
                return More::No;
            }
            self.iteration += 1;
            self.started = Some(cx.now);
            self.reduction.start(cx, self.iteration, self.contribution(self.reduction.me));
        }
        self.reduction.tick(cx);
        self.go_on(cx);
        More::No
    }

    pub(super) fn arrival(&mut self, cx: &mut Context<'_>, from: Rank, frame: Frame) {
        self.reduction.arrival(cx, from, frame);
        self.go_on(cx);
    }

    /// What the rank at `place` of the ring adds: differs by rank and iteration, so that a wrong sum shows.
    fn contribution(&self, place: usize) -> u64 {
        u64::from(self.iteration) * 1_000_003 + place as u64
    }

    fn go_on(&mut self, cx: &mut Context<'_>) {
        if let (Some(started), Some(sum)) = (self.started, self.reduction.result()) {
            let expected: u64 = (0..self.reduction.ring.len()).map(|place| self.contribution(place)).sum();
            if sum == expected {
                cx.iteration_over(started);
            } else {
                cx.record.foreign += 1;
            }
            self.started = None;
            self.next = Some(cx.next_round(self.interval));
        }
    }
}
