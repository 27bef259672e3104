//! The order in which one builder gets its timeslices: the same at every input, computed and never
//! sent.
//!
//! # Model
//! A *position* counts the timeslices of a builder, and is what contributions on a connection are
//! numbered by. An order is a list of *runs*: turns in which timeslices were dealt, the last of
//! them without an end, and between them what was inherited from builders that were removed. A
//! builder inherits positions of what the other one left, at equal steps, so that a run costs no
//! memory, however long it is.
//!
//! The *turn* of a position is the timeslice as of which it is due: its own, or for what was
//! inherited the last one before those that were dealt then.
//!
//! # Invariants
//! I1. Runs follow each other without gaps, and what stands at a position that may have been sent
//!     never changes.
//! I2. Turns never descend.

use alloc::sync::Arc;
use alloc::vec::Vec;
use core::ops::Range;

use crate::timeslice::turns::Turns;

/// A builder's order.
#[derive(Clone, Debug)]
pub(in crate::timeslice) struct BuilderOrder {
    builder: usize,
    runs: Vec<PositionRange>,
}

/// Positions from `begin` up to `end`.
#[derive(Clone, Debug)]
struct PositionRange {
    begin: u64,
    end: u64,
    what: OrderSource,
}

#[derive(Clone, Debug)]
enum OrderSource {
    /// Turns, from this one on.
    Turns { turns: Arc<Turns>, skipped: u64 },
    /// The builder's turns of what another left behind `settled`.
    Inherited { of: Arc<BuilderOrder>, settled: u64, turns: Arc<Turns>, turn: u64 },
}

impl BuilderOrder {
    /// Creates an empty order.
    pub(super) const fn new(builder: usize) -> Self {
        Self { builder, runs: Vec::new() }
    }

    /// Returns how many positions there are; all numbers while the turns have no end.
    pub(super) fn length(&self) -> u64 {
        self.runs.last().map_or(0, |run| run.end)
    }

    /// Cuts the turns from `from` on.
    pub(super) fn cut(&mut self, from: u64) {
        let builder = self.builder;
        if let Some(PositionRange { begin, end, what: OrderSource::Turns { turns, skipped } }) =
            self.runs.last_mut()
            && *end == u64::MAX
        {
            *end = *begin + turns.before(builder, from).saturating_sub(*skipped);
            if *begin == *end {
                self.runs.pop();
            }
        }
    }

    /// Deals, behind everything, the turns from timeslice `from` on, without an end. Nothing when
    /// the builder has no turns.
    pub(super) fn deal(&mut self, turns: &Arc<Turns>, from: u64) {
        if turns.nth(self.builder, 0).is_some() {
            let (begin, skipped) = (self.length(), turns.before(self.builder, from));
            self.runs.push(PositionRange {
                begin,
                end: u64::MAX,
                what: OrderSource::Turns { turns: turns.clone(), skipped },
            });
        }
    }

    /// Inherits, behind everything, this builder's turns of what `of`, an order with an end, has
    /// from position `settled` on. They are due before `from`.
    pub(super) fn inherit(&mut self, of: &Arc<Self>, settled: u64, turns: &Arc<Turns>, from: u64) {
        let share = turns.before(self.builder, of.length().saturating_sub(settled));
        if share > 0 {
            let begin = self.length();
            let turn = from.saturating_sub(1);
            let what =
                OrderSource::Inherited { of: of.clone(), settled, turns: turns.clone(), turn };
            self.runs.push(PositionRange { begin, end: begin.saturating_add(share), what });
        }
    }

    /// Returns the timeslice at `position`; `None` behind the end.
    pub(super) fn nth(&self, position: u64) -> Option<u64> {
        let run = &self.runs[self.run_of(position)..].first()?;
        run.nth(self.builder, position)
    }

    /// Returns the first position not before `position` whose timeslice lies in `range`, and that
    /// timeslice.
    pub(super) fn next(&self, position: u64, range: &Range<u64>) -> Option<(u64, u64)> {
        let mut position = position;
        for run in &self.runs[self.run_of(position)..] {
            position = position.max(run.begin);
            if let OrderSource::Turns { turns, skipped } = &run.what {
                if range.start > 0 {
                    let early = turns.before(self.builder, range.start).saturating_sub(*skipped);
                    position = position.max(run.begin.saturating_add(early)).min(run.end);
                }
                // Turns ascend: if this one lies behind the range, so do all.
                let found = (position < run.end).then(|| run.nth(self.builder, position)).flatten();
                if let Some(timeslice) = found.filter(|timeslice| range.contains(timeslice)) {
                    return Some((position, timeslice));
                }
            } else {
                let one = |position| {
                    run.nth(self.builder, position).map(|timeslice| (position, timeslice))
                };
                if let Some(found) =
                    (position..run.end).filter_map(one).find(|(_, t)| range.contains(t))
                {
                    return Some(found);
                }
            }
        }
        None
    }

    /// Returns the turn of `position`; `None` behind the end.
    pub(super) fn turn(&self, position: u64) -> Option<u64> {
        let run = self.runs[self.run_of(position)..].first()?;
        match run.what {
            OrderSource::Turns { .. } => run.nth(self.builder, position),
            OrderSource::Inherited { turn, .. } => Some(turn),
        }
    }

    /// Returns how many positions from `position` on have a timeslice in `range` and a turn below
    /// `end`.
    pub(super) fn count(&self, position: u64, range: &Range<u64>, end: u64) -> u64 {
        let mut count = 0;
        for run in &self.runs[self.run_of(position)..] {
            let begin = position.max(run.begin);
            match &run.what {
                OrderSource::Turns { turns, skipped } => {
                    let at = |timeslice| {
                        run.begin + turns.before(self.builder, timeslice).saturating_sub(*skipped)
                    };
                    count += at(range.end.min(end))
                        .min(run.end)
                        .saturating_sub(at(range.start).max(begin));
                }
                OrderSource::Inherited { turn, .. } if *turn < end => {
                    let own =
                        (begin..run.end).filter_map(|position| run.nth(self.builder, position));
                    count += own.filter(|timeslice| range.contains(timeslice)).count() as u64;
                }
                OrderSource::Inherited { .. } => {}
            }
        }
        count
    }

    /// Returns the earliest timeslice before `end` that stands at `position` or behind it. O(what
    /// was inherited).
    pub(super) fn earliest(&self, position: u64, end: u64) -> Option<u64> {
        let of_run = |run: &PositionRange| {
            let from = position.max(run.begin);
            let to = match run.what {
                // Turns ascend.
                OrderSource::Turns { .. } => run.end.min(from.saturating_add(1)),
                OrderSource::Inherited { .. } => run.end,
            };
            (from..to).filter_map(|position| run.nth(self.builder, position)).min()
        };
        let runs = &self.runs[self.run_of(position)..];
        runs.iter().filter_map(of_run).min().filter(|earliest| *earliest < end)
    }

    fn run_of(&self, position: u64) -> usize {
        self.runs.partition_point(|run| run.end <= position)
    }
}

impl PositionRange {
    fn nth(&self, builder: usize, position: u64) -> Option<u64> {
        let number = position - self.begin;
        match &self.what {
            OrderSource::Turns { turns, skipped } => {
                turns.nth(builder, skipped.saturating_add(number))
            }
            OrderSource::Inherited { of, settled, turns, .. } => {
                of.nth(settled.saturating_add(turns.nth(builder, number)?))
            }
        }
    }
}
