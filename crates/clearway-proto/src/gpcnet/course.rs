//! A test from its beginning to its end, as one of the ranks that are measured: agreements, rings, barriers, iterations.
//!
//! # Model
//! ```text
//!    gather -> agree -> [enter ring -> warm up -> iterate -> leave ring] x rings -> agree ... -> close -> disperse -> over
//! ```
//! All ranks agree about the least time that any of them has spent, so all end together. Tests without rings have no barriers
//! around their iterations. Gathering and dispersing wait for the congestors, where there are some.
//!
//! # Source
//! GPCNeT v1.3. As published, the time is looked at before each measurement, and after the end there is one agreement for each
//! measurement that is left out; mended, it is looked at before each ring, and the end is the end.
//!
//! # Invariants
//! I1. Warm-up iterations leave no trace in the record.

use super::channel::Receipts;
use super::context::Context;
use super::defects::Defect;
use super::exchange::{Exchange, Pattern, Settled};
use super::kinds::{OUTSTANDING, Test};
use super::layout::Rings;
use super::record::Collector;
use super::reduce::{Fold, Lane, Reduction};
use super::task::VictimTask;
use crate::base::{LocalNs, Rank};

/// Where a test is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Stage {
    Gathering,
    Agreeing,
    Entering,
    Iterating,
    Leaving,
    Closing,
    Dispersing,
    Over,
}

/// A rank's way through one test.
#[derive(Debug)]
pub(super) struct Course {
    pub(super) exchange: Exchange,
    pub(super) wide: Reduction,
    pub(super) everyone: Option<Reduction>,
    pub(super) collector: Collector,
    task: VictimTask,
    rings: Rings,
    stage: Stage,
    began: LocalNs,
    measurement: u32,
    ring: u32,
    /// Iterations of this ring that have begun, warm-up included.
    turns: u32,
    pattern: Pattern,
    ring_began: LocalNs,
    turn_began: LocalNs,
}

impl Course {
    /// Begins `task`, beside the others of `everyone` if there are any.
    pub(super) fn begin(task: VictimTask, everyone: &[Rank], cx: &mut Context<'_>) -> Self {
        let me = cx.config.rank;
        let carried = if task.test == Test::Latency { Receipts::Carried } else { Receipts::OfWire };
        let exchange = Exchange::new(&task.slice, task.test.message(), Settled::ByLength, carried, cx);
        let mut course = Self {
            wide: Reduction::new(Lane::Wide, &task.wide, me),
            everyone: (!everyone.is_empty()).then(|| Reduction::new(Lane::Everyone, everyone, me)),
            collector: Collector::new(task.counts.iterations),
            rings: Rings::new(task.slice.len(), task.slice_number, task.mended),
            stage: Stage::Gathering,
            began: cx.now,
            measurement: 0,
            ring: 0,
            turns: 0,
            pattern: Pattern::Sum,
            ring_began: cx.now,
            turn_began: cx.now,
            exchange,
            task,
        };
        if let Some(everyone) = &mut course.everyone {
            everyone.start(cx, 0, Fold::Sum);
        }
        course
    }

    pub(super) fn is_over(&self) -> bool {
        self.stage == Stage::Over
    }

    /// The ranks of the slice.
    pub(super) fn ranks(&self) -> usize {
        self.task.slice.len()
    }

    /// Takes one turn if one is possible; whether there was one.
    pub(super) fn go_on(&mut self, cx: &mut Context<'_>) -> bool {
        match self.stage {
            Stage::Gathering => {
                let gathered = self.everyone.as_ref().is_none_or(|everyone| everyone.result().is_some());
                if gathered {
                    self.began = cx.now;
                    self.agree(cx);
                }
                gathered
            }
            Stage::Agreeing => self.wide.result().is_some_and(|elapsed| self.agreed(cx, elapsed)),
            Stage::Entering => self.wide.result().is_some_and(|_| self.iterate(cx)),
            Stage::Iterating => self.exchange.is_over() && self.iterated(cx),
            Stage::Leaving => self.exchange.slice.result().is_some_and(|_| self.left(cx)),
            Stage::Closing => self.wide.result().is_some_and(|_| self.closed(cx)),
            Stage::Dispersing => {
                let apart = self.everyone.as_ref().is_none_or(|everyone| everyone.result().is_some());
                if apart {
                    self.stage = Stage::Over;
                }
                apart
            }
            Stage::Over => false,
        }
    }

    /// Asks all what time they have spent.
    fn agree(&mut self, cx: &mut Context<'_>) {
        if self.measurement >= self.task.counts.measurements {
            self.stage = Stage::Closing;
            self.wide.start(cx, 0, Fold::Sum);
            return;
        }
        self.stage = Stage::Agreeing;
        self.wide.start(cx, cx.now.since(self.began).0, Fold::Least);
    }

    fn agreed(&mut self, cx: &mut Context<'_>, elapsed: u64) -> bool {
        if elapsed >= self.task.limit.0 {
            let mended = self.task.mended.has(Defect::IdleTurns);
            self.ring = 0;
            self.measurement = if mended { self.task.counts.measurements } else { self.measurement + 1 };
            self.agree(cx);
            return true;
        }
        if self.ring == 0 {
            self.rings = Rings::new(self.ranks(), self.task.slice_number, self.task.mended);
        }
        self.enter(cx)
    }

    /// Moves on to the next ring.
    fn enter(&mut self, cx: &mut Context<'_>) -> bool {
        self.collector.open_block();
        if !self.task.test.has_rings() {
            self.pattern = if self.task.test == Test::Allreduce { Pattern::Sum } else { Pattern::Pairwise };
            return self.iterate(cx);
        }
        let (me, n) = (self.exchange.me(), self.ranks());
        let places = if self.task.test == Test::NaturalBandwidth {
            [(me + n - 1) % n, (me + 1) % n]
        } else {
            self.rings.draw();
            self.rings.neighbours(me)
        };
        self.pattern = match self.task.test {
            Test::Latency => Pattern::Neighbours(places, 1),
            Test::GetLatency => Pattern::Gets(places),
            Test::PutBandwidth => Pattern::Puts(places, OUTSTANDING),
            Test::BandwidthSync => Pattern::NeighboursSync(places, OUTSTANDING),
            _ => Pattern::Neighbours(places, OUTSTANDING),
        };
        self.stage = Stage::Entering;
        self.wide.start(cx, 0, Fold::Sum);
        true
    }

    /// Begins the first iteration of a ring.
    fn iterate(&mut self, cx: &mut Context<'_>) -> bool {
        self.stage = Stage::Iterating;
        self.turns = 0;
        self.turn(cx);
        true
    }

    fn turn(&mut self, cx: &mut Context<'_>) {
        if self.turns == self.task.counts.warm_up {
            self.ring_began = cx.now;
        }
        self.turns += 1;
        self.turn_began = cx.now;
        self.exchange.begin(cx, self.pattern);
    }

    fn iterated(&mut self, cx: &mut Context<'_>) -> bool {
        let counts = self.task.counts;
        if self.turns > counts.warm_up {
            self.collector.iteration(cx.now.since(self.turn_began));
        }
        if self.turns < counts.warm_up + counts.iterations {
            self.turn(cx);
            return true;
        }
        self.collector.close_block(cx.now.since(self.ring_began));
        if self.task.test.has_rings() {
            self.stage = Stage::Leaving;
            self.exchange.slice.start(cx, 0, Fold::Sum);
        } else {
            self.measurement += 1;
            self.agree(cx);
        }
        true
    }

    fn left(&mut self, cx: &mut Context<'_>) -> bool {
        self.ring += 1;
        if self.ring >= self.task.counts.rings {
            self.ring = 0;
            self.measurement += 1;
            self.agree(cx);
        } else if self.task.mended.has(Defect::LongMeasurements) {
            self.agree(cx);
        } else {
            return self.enter(cx);
        }
        true
    }

    fn closed(&mut self, cx: &mut Context<'_>) -> bool {
        self.stage = Stage::Dispersing;
        if let Some(everyone) = &mut self.everyone {
            everyone.start(cx, 0, Fold::Sum);
        }
        true
    }
}
