//! Timed barriers, reductions and gatherings, one after the other.
//!
//! # Model
//! An iteration's time runs from its beginning on this rank to the instant at which its last
//! message is here. Whether the result is the right one is found out after that, and not timed:
//! every number and block differs by rank and iteration, so that a barrier which somebody left
//! alone, a sum that misses a rank and a block of another iteration all show.
//!
//! # Invariants
//! I1. An iteration with a wrong result counts as foreign and takes for ever: the right ones around
//!     it make no good figure of it.

use crate::base::{LocalNs, Nanos, Participant, Rank, Schedule};
use crate::wire::{More, Span, Status, Token};

use super::collective::Collective;
use super::context::{CongestionConfig, CongestionContext};
use super::frame::CongestionFrame;
use super::task::{Phase, VictimTask};

/// One rank's part in repeated operations.
#[derive(Debug)]
pub(super) struct TimedCollective {
    collective: Collective,
    schedule: Schedule,
    interval: Nanos,
    iteration: u32,
    state: TimedState,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum TimedState {
    /// The next iteration begins then.
    Resting(LocalNs),
    /// Messages are under way since then.
    Moving(LocalNs),
    /// It began and was over then; what lies in memory is being looked at.
    Looking(LocalNs, LocalNs),
    /// The phase is over.
    Ended,
}

impl TimedCollective {
    pub(super) fn new(
        schedule: Schedule,
        task: &VictimTask,
        phase: &Phase,
        config: &CongestionConfig,
    ) -> Self {
        let collective = Collective::new(schedule, &task.ring, task.class, config);
        Self {
            collective,
            schedule,
            interval: task.interval,
            iteration: 0,
            state: TimedState::Resting(phase.begin),
        }
    }

    /// Returns when the iteration under way began.
    pub(super) const fn begun(&self) -> Option<LocalNs> {
        match self.state {
            TimedState::Moving(started) | TimedState::Looking(started, _) => Some(started),
            TimedState::Resting(_) | TimedState::Ended => None,
        }
    }

    pub(super) const fn deadline(&self) -> Option<LocalNs> {
        match self.state {
            TimedState::Resting(until) => Some(until),
            TimedState::Moving(_) => self.collective.deadline(),
            TimedState::Looking(..) | TimedState::Ended => None,
        }
    }

    pub(super) fn tick(&mut self, cx: &mut CongestionContext<'_>) -> More {
        match self.state {
            TimedState::Resting(until) if cx.now >= cx.end() && until <= cx.now => {
                self.state = TimedState::Ended
            }
            TimedState::Resting(until) if until <= cx.now => {
                self.iteration += 1;
                self.state = TimedState::Moving(cx.now);
                let own = self.contribution(self.collective.place().rank);
                self.collective.start(cx, self.iteration, own);
            }
            _ => {}
        }
        self.collective.tick(cx);
        self.go_on(cx);
        More::No
    }

    pub(super) fn arrival(
        &mut self,
        cx: &mut CongestionContext<'_>,
        from: Rank,
        body: Span,
        frame: CongestionFrame,
    ) {
        self.collective.arrival(cx, from, body, frame);
        self.go_on(cx);
    }

    /// Handles a digest that is there, or was refused.
    pub(super) fn done(
        &mut self,
        cx: &mut CongestionContext<'_>,
        token: Token,
        status: Status,
        digest: u64,
    ) {
        let TimedState::Looking(started, over) = self.state else { return };
        let Some(blocks) = self.collective.blocks() else { return };
        if let Some(are_all_here) = blocks.are_all_here(self.iteration, token, digest) {
            self.finish(cx, started, over, are_all_here && status == Status::Complete);
        }
    }

    /// Returns what the rank at `place` of the ring adds: differs by rank and iteration, so that a
    /// wrong sum shows.
    fn contribution(&self, place: u32) -> u64 {
        u64::from(self.iteration) * 1_000_003 + u64::from(place)
    }

    /// Returns the sum that shows that all ranks took part.
    fn expected(&self) -> u64 {
        let Participant { rank, ranks } = self.collective.place();
        match self.schedule {
            // Each step names as many ranks more as were known, also when it names some of them
            // twice.
            Schedule::Barrier => {
                let count = 1 << self.collective.place().steps(self.schedule);
                (0..count)
                    .map(|distance| self.contribution((rank + ranks - distance % ranks) % ranks))
                    .sum()
            }
            Schedule::Allreduce | Schedule::Allgather => {
                (0..ranks).map(|place| self.contribution(place)).sum()
            }
        }
    }

    fn go_on(&mut self, cx: &mut CongestionContext<'_>) {
        let (TimedState::Moving(started), Some(sum)) = (self.state, self.collective.result())
        else {
            return;
        };
        match self.collective.blocks() {
            Some(blocks) => {
                blocks.ask(cx, self.iteration);
                self.state = TimedState::Looking(started, cx.now);
            }
            None => self.finish(cx, started, cx.now, sum == self.expected()),
        }
    }

    fn finish(
        &mut self,
        cx: &mut CongestionContext<'_>,
        started: LocalNs,
        over: LocalNs,
        is_right: bool,
    ) {
        if is_right {
            cx.iteration_took(started, over);
        } else {
            cx.iteration_never(started);
            cx.record.foreign += 1;
        }
        self.state = TimedState::Resting(cx.next_round(self.interval));
    }
}
