//! A test from its beginning to its end, as one of the ranks that are measured: agreements, rings,
//! barriers, iterations.
//!
//! # Model
//! ```text
//!    gather -> agree -> [enter ring -> warm up -> iterate -> leave ring] x rings -> agree ... -> close -> disperse -> over
//! ```
//! All ranks agree about the least time that any of them has spent, so all end together. Tests
//! without rings have no barriers around their iterations. Gathering and dispersing wait for the
//! congestors, where there are some.
//!
//! # Source
//! GPCNeT v1.3. As published, the time is looked at before each measurement, and after the end
//! there is one agreement for each measurement that is left out; mended, it is looked at before
//! each ring, and the end is the end.
//!
//! # Invariants
//! I1. Warm-up iterations leave no trace in the record.

use super::channel::CompletionSource;
use super::context::GpcnetContext;
use super::defects::Defect;
use super::exchange::{ExchangePattern, IteratedExchange, SendCompletion};
use super::kinds::{OUTSTANDING, Test};
use super::layout::RingDraws;
use super::record::Collector;
use super::reduce::{Reduction, ReductionLane, ReductionOperator};
use super::task::TestTask;
use crate::base::{LocalNs, Rank};

/// Where a test is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum TestStage {
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
pub(super) struct TestRun {
    pub(super) exchange: IteratedExchange,
    pub(super) wide: Reduction,
    pub(super) everyone: Option<Reduction>,
    pub(super) collector: Collector,
    task: TestTask,
    rings: RingDraws,
    stage: TestStage,
    began: LocalNs,
    measurement: u32,
    ring: u32,
    /// Iterations of this ring that have begun, warm-up included.
    turns: u32,
    pattern: ExchangePattern,
    ring_began: LocalNs,
    turn_began: LocalNs,
}

impl TestRun {
    /// Begins `task`, with the others of `everyone` if there are any.
    pub(super) fn begin(task: TestTask, everyone: &[Rank], cx: &mut GpcnetContext<'_>) -> Self {
        let me = cx.config.rank;
        let carried = if task.test == Test::Latency {
            CompletionSource::Carried
        } else {
            CompletionSource::OfWire
        };
        let exchange = IteratedExchange::new(
            &task.slice,
            task.test.message(),
            SendCompletion::ByLength,
            carried,
            cx,
        );
        let mut course = Self {
            wide: Reduction::new(ReductionLane::Wide, &task.wide, me),
            everyone: (!everyone.is_empty())
                .then(|| Reduction::new(ReductionLane::Everyone, everyone, me)),
            collector: Collector::new(task.counts.iterations),
            rings: RingDraws::new(task.slice.len(), task.slice_number, task.mended),
            stage: TestStage::Gathering,
            began: cx.now,
            measurement: 0,
            ring: 0,
            turns: 0,
            pattern: ExchangePattern::Sum,
            ring_began: cx.now,
            turn_began: cx.now,
            exchange,
            task,
        };
        if let Some(everyone) = &mut course.everyone {
            everyone.start(cx, 0, ReductionOperator::Sum);
        }
        course
    }

    pub(super) fn is_over(&self) -> bool {
        self.stage == TestStage::Over
    }

    /// Returns the ranks of the slice.
    pub(super) fn ranks(&self) -> usize {
        self.task.slice.len()
    }

    /// Takes one turn if one is possible; whether there was one.
    pub(super) fn go_on(&mut self, cx: &mut GpcnetContext<'_>) -> bool {
        match self.stage {
            TestStage::Gathering => {
                let gathered =
                    self.everyone.as_ref().is_none_or(|everyone| everyone.result().is_some());
                if gathered {
                    self.began = cx.now;
                    self.agree(cx);
                }
                gathered
            }
            TestStage::Agreeing => {
                self.wide.result().is_some_and(|elapsed| self.agreed(cx, elapsed))
            }
            TestStage::Entering => self.wide.result().is_some_and(|_| self.iterate(cx)),
            TestStage::Iterating => self.exchange.is_over() && self.iterated(cx),
            TestStage::Leaving => self.exchange.slice.result().is_some_and(|_| self.left(cx)),
            TestStage::Closing => self.wide.result().is_some_and(|_| self.closed(cx)),
            TestStage::Dispersing => {
                let apart =
                    self.everyone.as_ref().is_none_or(|everyone| everyone.result().is_some());
                if apart {
                    self.stage = TestStage::Over;
                }
                apart
            }
            TestStage::Over => false,
        }
    }

    /// Asks all what time they have spent.
    fn agree(&mut self, cx: &mut GpcnetContext<'_>) {
        if self.measurement >= self.task.counts.measurements {
            self.stage = TestStage::Closing;
            self.wide.start(cx, 0, ReductionOperator::Sum);
            return;
        }
        self.stage = TestStage::Agreeing;
        self.wide.start(cx, cx.now.since(self.began).0, ReductionOperator::Least);
    }

    fn agreed(&mut self, cx: &mut GpcnetContext<'_>, elapsed: u64) -> bool {
        if elapsed >= self.task.limit.0 {
            let mended = self.task.mended.has(Defect::IdleTurns);
            self.ring = 0;
            self.measurement =
                if mended { self.task.counts.measurements } else { self.measurement + 1 };
            self.agree(cx);
            return true;
        }
        if self.ring == 0 {
            self.rings = RingDraws::new(self.ranks(), self.task.slice_number, self.task.mended);
        }
        self.enter(cx)
    }

    /// Moves on to the next ring.
    fn enter(&mut self, cx: &mut GpcnetContext<'_>) -> bool {
        self.collector.open_block();
        if !self.task.test.has_rings() {
            self.pattern = if self.task.test == Test::Allreduce {
                ExchangePattern::Sum
            } else {
                ExchangePattern::Pairwise
            };
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
            Test::Latency => ExchangePattern::Neighbours(places, 1),
            Test::GetLatency => ExchangePattern::Gets(places),
            Test::PutBandwidth => ExchangePattern::Puts(places, OUTSTANDING),
            Test::BandwidthSync => ExchangePattern::NeighboursSync(places, OUTSTANDING),
            _ => ExchangePattern::Neighbours(places, OUTSTANDING),
        };
        self.stage = TestStage::Entering;
        self.wide.start(cx, 0, ReductionOperator::Sum);
        true
    }

    /// Begins the first iteration of a ring.
    fn iterate(&mut self, cx: &mut GpcnetContext<'_>) -> bool {
        self.stage = TestStage::Iterating;
        self.turns = 0;
        self.turn(cx);
        true
    }

    fn turn(&mut self, cx: &mut GpcnetContext<'_>) {
        if self.turns == self.task.counts.warm_up {
            self.ring_began = cx.now;
        }
        self.turns += 1;
        self.turn_began = cx.now;
        self.exchange.begin(cx, self.pattern);
    }

    fn iterated(&mut self, cx: &mut GpcnetContext<'_>) -> bool {
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
            self.stage = TestStage::Leaving;
            self.exchange.slice.start(cx, 0, ReductionOperator::Sum);
        } else {
            self.measurement += 1;
            self.agree(cx);
        }
        true
    }

    fn left(&mut self, cx: &mut GpcnetContext<'_>) -> bool {
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

    fn closed(&mut self, cx: &mut GpcnetContext<'_>) -> bool {
        self.stage = TestStage::Dispersing;
        if let Some(everyone) = &mut self.everyone {
            everyone.start(cx, 0, ReductionOperator::Sum);
        }
        true
    }
}
