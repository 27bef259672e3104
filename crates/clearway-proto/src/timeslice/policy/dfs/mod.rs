//! The Data-Flow Scheduler: inputs pace themselves by intervals that builders propose from what
//! earlier intervals took.
//!
//! # Model
//! An *interval* is a run of timeslices, sent in *rounds* of one timeslice for each builder. Every
//! input measures when it began an interval and how long it took until the last contribution was
//! acknowledged, and reports that to all builders. Each builder keeps the same history and proposes
//! when the interval after the next begins and how long it takes; an input follows the first
//! proposal that reaches it.
//!
//! All times in frames are those of one builder's clock since its barrier. Every input asks for it
//! when an interval opens, and keeps an estimate with its error ([`crate::clock`]); before the
//! first answer the input's own barrier stands for it.
//!
//! # Source
//! Salem, Schintke, Schütt, Reinefeld (CUG 2019), and the branches of FLESnet that they published.
//! Where these differ the slides are followed; where the slides are silent, the later branch. Not
//! taken over: clocks that are compared once, at the barrier, and so know nothing of drift and of
//! jumps; rounding of durations to microseconds and the arithmetic of unsigned differences, which
//! there turn one interval that was faster than proposed into no speed-up at all; the load
//! balancer, whose calls are commented out there and whose two parameters are never read: builders
//! ask for fewer turns by one rule under all policies (`burden`). The rest behind a failed stage
//! and the steeper ones before it are commented out there as well; they are built, since intervals
//! settle by them. When a builder has failed, timeslices stay mapped to the old number of builders
//! there; here an interval ends where they are dealt anew, and its successors have rounds of the
//! builders that are left.
//!
//! # Invariants
//! I1. Every builder that has the same reports makes the same proposal.
//! I2. An interval is opened only when the one before is acknowledged to the gate and the one
//!     before that completely.

mod director;
mod pace;

use serde::{Deserialize, Serialize};

use crate::base::Nanos;

pub(in crate::timeslice) use director::Director;
pub(in crate::timeslice) use pace::Paced;

/// The constants of the scheduler.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Dfs {
    /// Timeslices of one interval (published: 10,000); rounded down to whole rounds, at least one.
    pub interval: u64,
    /// Intervals whose durations the median is taken of (published: 100).
    pub history: usize,
    /// Acknowledged part of an interval that lets the next one begin, in parts of 1000 (published:
    /// 700, later 995).
    pub gate: u32,
    /// How durations get shorter; never by themselves without it (published: built, off by default,
    /// values not recorded).
    pub speed_up: Option<SpeedUp>,
}

/// Staged speed-up: proposes less than was measured while what is measured follows.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct SpeedUp {
    /// Intervals may take so much longer than proposed, in percent of the median, and count as
    /// keeping up.
    pub difference: u32,
    /// So much less is then proposed, in percent of the median; half as much again with every stage
    /// until one has failed.
    pub step: u32,
    /// The number of intervals, before it is looked at again.
    pub intervals: u32,
    /// The number of intervals for which what worked last is kept when a stage has failed.
    pub hold: u32,
}

impl SpeedUp {
    /// Returns the step in parts of 1000.
    fn per_mille(self) -> u64 {
        u64::from(self.step.min(50)) * 10
    }
}

impl Default for Dfs {
    /// Creates a `Dfs` as published, but for the speed-up, which is on: 5 % for five intervals
    /// whenever intervals take less than 5 % longer than proposed, and twenty at rest behind a
    /// stage that failed. Without it an interval never gets shorter, since a duration includes the
    /// wait for its pace; without rest it is probed all the time.
    fn default() -> Self {
        let speed_up = Some(SpeedUp { difference: 5, step: 5, intervals: 5, hold: 20 });
        Self { interval: 10_000, history: 100, gate: 995, speed_up }
    }
}

/// What an input measured of an interval.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::timeslice) struct IntervalReport {
    pub(in crate::timeslice) interval: u32,
    pub(in crate::timeslice) rounds: u32,
    /// When its first contribution was posted, since the barrier.
    pub(in crate::timeslice) start: Nanos,
    /// Until the last one was acknowledged; [`DISTURBED`] when ranks came or went meanwhile, since
    /// then it says how long a decision took.
    pub(in crate::timeslice) duration: Nanos,
}

/// The duration of an interval that says nothing of others.
pub(in crate::timeslice) const DISTURBED: Nanos = Nanos(0);

/// What a builder wants of an interval.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::timeslice) struct Proposal {
    pub(in crate::timeslice) interval: u32,
    pub(in crate::timeslice) rounds: u32,
    /// When it begins, since the barrier.
    pub(in crate::timeslice) start: Nanos,
    /// How long it takes.
    pub(in crate::timeslice) duration: Nanos,
}
