//! A congestor from its beginning to its end: a first pass that is timed, then passes until the
//! victims are done.
//!
//! # Model
//! ```text
//!    [agree -> line up -> iterate] until the time is over -> wait for all congestors -> [agree -> iterate] until the victims are done
//! ```
//! An agreement is asked for before a block of iterations and looked at after it, so that the load
//! does not pause for it. In the first pass it is the greatest time that a rank of the group has
//! spent; while victims run, whether all know that the victims are done.
//!
//! # Source
//! GPCNeT v1.3. There the congestors look for the end of the victims between passes of up to 256
//! blocks, here after each block: the victims see no difference, the run ends sooner.
//!
//! # Invariants
//! I1. All ranks of a group make the same number of blocks.

use super::channel::CompletionSource;
use super::context::GpcnetContext;
use super::defects::Defect;
use super::exchange::{ExchangePattern, IteratedExchange, SendCompletion};
use super::kinds::Congestor;
use super::record::Collector;
use super::reduce::{Reduction, ReductionLane, ReductionOperator};
use super::task::CongestorTask;
use crate::base::{LocalNs, Rank};

/// The round of the reduction over everyone that is through when the victims are done.
const VICTIMS_DONE: u32 = 2;

/// Where a congestor is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum LoadStage {
    Agreeing,
    LiningUp,
    Iterating,
    Gathering,
    Over,
}

/// Which pass it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum LoadPass {
    First,
    WithVictims,
}

/// A rank's way through one congestor.
#[derive(Debug)]
pub(super) struct LoadRun {
    pub(super) exchange: IteratedExchange,
    /// Agreements of the group; in the place of a victim's lane of all slices.
    pub(super) group: Reduction,
    pub(super) everyone: Option<Reduction>,
    /// By pass.
    pub(super) collectors: [Collector; 2],
    task: CongestorTask,
    iterations: u32,
    pattern: Option<ExchangePattern>,
    stage: LoadStage,
    pass: LoadPass,
    began: LocalNs,
    block: u32,
    turns: u32,
    block_began: LocalNs,
    turn_began: LocalNs,
}

impl LoadRun {
    /// Begins `task`, with the others of `everyone` if there are any.
    pub(super) fn begin(
        task: CongestorTask,
        everyone: &[Rank],
        cx: &mut GpcnetContext<'_>,
    ) -> Self {
        let me = cx.config.rank;
        let mended_incast =
            task.congestor == Congestor::Incast && task.mended.has(Defect::EagerIncast);
        let settled =
            if mended_incast { SendCompletion::OnArrival } else { SendCompletion::ByLength };
        let exchange = IteratedExchange::new(
            &task.group,
            task.congestor.message(),
            settled,
            CompletionSource::OfWire,
            cx,
        );
        let iterations = task.congestor.iterations(task.group.len(), task.mended);
        let pattern = match task.congestor {
            Congestor::Alltoall => Some(ExchangePattern::Pairwise),
            Congestor::Incast => Some(ExchangePattern::Incast),
            // The root of a one-sided pattern is passive.
            _ if exchange.me() == 0 => None,
            Congestor::PutIncast => Some(ExchangePattern::PutToRoot),
            Congestor::GetBroadcast => Some(ExchangePattern::GetFromRoot),
        };
        let mut group = Reduction::new(ReductionLane::Wide, &task.group, me);
        group.start(cx, 0, ReductionOperator::Greatest);
        Self {
            group,
            everyone: (!everyone.is_empty())
                .then(|| Reduction::new(ReductionLane::Everyone, everyone, me)),
            collectors: [Collector::new(iterations), Collector::new(iterations)],
            iterations,
            pattern,
            stage: LoadStage::Agreeing,
            pass: LoadPass::First,
            began: cx.now,
            block: 0,
            turns: 0,
            block_began: cx.now,
            turn_began: cx.now,
            exchange,
            task,
        }
    }

    pub(super) fn is_over(&self) -> bool {
        self.stage == LoadStage::Over
    }

    /// Returns the ranks of the group.
    pub(super) fn ranks(&self) -> usize {
        self.task.group.len()
    }

    /// Takes one turn if one is possible; whether there was one.
    pub(super) fn go_on(&mut self, cx: &mut GpcnetContext<'_>) -> bool {
        match self.stage {
            LoadStage::Agreeing => match self.group.result() {
                None => false,
                Some(agreed) => {
                    match self.pass {
                        LoadPass::First => self.agreed_first(cx, agreed),
                        LoadPass::WithVictims => self.agreed_with_victims(cx, agreed),
                    }
                    true
                }
            },
            LoadStage::LiningUp => self.exchange.slice.result().is_some_and(|_| self.iterate(cx)),
            LoadStage::Iterating => self.exchange.is_over() && self.iterated(cx),
            LoadStage::Gathering => self.gathered(cx),
            LoadStage::Over => false,
        }
    }

    /// Continues, now that the greatest time spent is known.
    fn agreed_first(&mut self, cx: &mut GpcnetContext<'_>, elapsed: u64) {
        if elapsed < self.task.limit.0 && self.block < self.task.measurements {
            self.group.start(cx, cx.now.since(self.began).0, ReductionOperator::Greatest);
            self.stage = LoadStage::LiningUp;
            self.exchange.slice.start(cx, 0, ReductionOperator::Sum);
            return;
        }
        match &mut self.everyone {
            None => self.stage = LoadStage::Over,
            Some(everyone) => {
                everyone.start(cx, 0, ReductionOperator::Sum);
                self.stage = LoadStage::Gathering;
            }
        }
    }

    /// Continues, now that all congestors have made their first pass.
    fn gathered(&mut self, cx: &mut GpcnetContext<'_>) -> bool {
        let Some(everyone) = self.everyone.as_mut().filter(|everyone| everyone.result().is_some())
        else {
            return false;
        };
        // This rank does not hold up the end; the round is through when the victims have joined it
        // too.
        everyone.start(cx, 0, ReductionOperator::Sum);
        self.pass = LoadPass::WithVictims;
        self.group.start(cx, 0, ReductionOperator::Least);
        self.stage = LoadStage::Agreeing;
        true
    }

    /// Continues, now that it is known whether all ranks of the group know that the victims are
    /// done.
    fn agreed_with_victims(&mut self, cx: &mut GpcnetContext<'_>, all_know: u64) {
        if all_know == 1 {
            self.stage = LoadStage::Over;
            return;
        }
        let knows = self.everyone.as_ref().is_some_and(|everyone| {
            everyone.round() == VICTIMS_DONE && everyone.result().is_some()
        });
        self.group.start(cx, u64::from(knows), ReductionOperator::Least);
        self.iterate(cx);
    }

    /// Begins a block.
    fn iterate(&mut self, cx: &mut GpcnetContext<'_>) -> bool {
        self.block += 1;
        if self.pattern.is_none() {
            self.stage = LoadStage::Agreeing;
            return true;
        }
        self.stage = LoadStage::Iterating;
        self.collectors[self.pass as usize].open_block();
        self.turns = 0;
        self.turn(cx);
        true
    }

    fn turn(&mut self, cx: &mut GpcnetContext<'_>) {
        if self.turns == 1 {
            self.block_began = cx.now;
        }
        self.turns += 1;
        self.turn_began = cx.now;
        if let Some(pattern) = self.pattern {
            self.exchange.begin(cx, pattern);
        }
    }

    fn iterated(&mut self, cx: &mut GpcnetContext<'_>) -> bool {
        // The root of the incast receives: it has no rate of its own.
        let counts = self.pattern != Some(ExchangePattern::Incast) || self.exchange.me() != 0;
        let collector = &mut self.collectors[self.pass as usize];
        if self.turns > 1 && counts {
            collector.iteration(cx.now.since(self.turn_began));
        }
        // One untimed iteration comes first.
        if self.turns < self.iterations + 1 {
            self.turn(cx);
            return true;
        }
        if counts {
            collector.close_block(cx.now.since(self.block_began));
        }
        self.stage = LoadStage::Agreeing;
        true
    }
}
