//! What counts of the work of builders that were out, and of which process it is.
//!
//! # Model
//! Each decision that removes a builder settles what it has built since it joined. A process that
//! retires and joins again continues with what it has; one that is lost leaves all that was settled of
//! it, and another one in its place begins anew. So what a decision settled is of the first process
//! of that rank which was lost and not replaced before that decision.

use clearway_proto::base::Rank;
use clearway_proto::timeslice::{SettledTimeslice, TimesliceNode};
use serde::{Deserialize, Serialize};

use super::numbers::TimesliceNumbers;
use super::run_progress::RunProgress;

/// What a builder had built before the decision of an epoch removed it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct SettledWork {
    pub(super) rank: u32,
    pub(super) epoch: u32,
    pub(super) numbers: TimesliceNumbers,
}

impl SettledWork {
    /// Returns what `node` knows of all.
    pub(super) fn all(node: &TimesliceNode) -> Vec<Self> {
        let mut all: Vec<Self> = Vec::new();
        for SettledTimeslice { rank, epoch, timeslice } in node.settled() {
            match all.last_mut() {
                Some(last) if last.epoch == epoch => last.numbers.push(timeslice),
                _ => {
                    let numbers = TimesliceNumbers::from_iter([timeslice]);
                    all.push(Self { rank: rank.0, epoch, numbers });
                }
            }
        }
        all
    }

    /// Leaves in `all` what no process says at the end of the run of `run_progress`: one that is
    /// there says what it has of all times that it took part.
    pub(super) fn keep_lost(all: &mut Vec<Self>, run_progress: &RunProgress) {
        all.retain(|work| {
            let is_done = run_progress.done.contains_key(&Rank(work.rank));
            !is_done || run_progress.loss_of(Rank(work.rank), work.epoch).is_some()
        });
    }

    /// Returns how many timeslices of `all` the process had that was lost by the `number`th of
    /// [`RunProgress::all_deaths`]; none when that lost no process.
    pub(super) fn of_loss(all: &[Self], run_progress: &RunProgress, number: usize) -> Option<u64> {
        let death = run_progress.all_deaths().nth(number)?;
        let is_its = |work: &&Self| {
            work.rank == death.rank.0
                && run_progress.loss_of(death.rank, work.epoch) == Some(number)
        };
        let count = || all.iter().filter(is_its).map(|work| work.numbers.count()).sum();
        run_progress.has_lost_process(death).then(count)
    }
}

#[cfg(test)]
mod tests {
    use clearway_proto::base::Nanos;
    use clearway_proto::timeslice::Policy;

    use super::super::messages::TimesliceResult;
    use super::super::plan::TimeslicePlan;
    use super::super::scheduled_change::{ScheduledAction, ScheduledChange};
    use super::*;
    use crate::scenario::RankAt;

    const BUILDER: Rank = Rank(3);

    /// A run in which the builder is asked to retire as often as `retirements` says.
    fn run_progress(retirements: usize) -> RunProgress {
        let at = RankAt { rank: BUILDER.0, at: Nanos::ZERO };
        let changes = ScheduledChange::by_time(&[], &vec![at; retirements], &[]);
        let plan = TimeslicePlan { changes, ..TimeslicePlan::sample() };
        RunProgress::new(&plan, Policy::Token, Nanos::ZERO).expect("a sound layout")
    }

    fn dies(run_progress: &mut RunProgress, epoch: u32) {
        run_progress.rank_died(BUILDER, "ended".to_owned());
        run_progress.note_loss_known(BUILDER, Rank(0), epoch);
    }

    fn retires(run_progress: &mut RunProgress, epoch: u32) {
        assert_eq!(run_progress.next_change(), Some((BUILDER, ScheduledAction::Retirement)));
        run_progress.note_loss_known(BUILDER, Rank(0), epoch);
        assert!(run_progress.rank_left(BUILDER, true));
    }

    fn is_replaced(run_progress: &mut RunProgress, epoch: u32) {
        run_progress.restart(BUILDER, "rank 3".to_owned(), None);
        assert!(run_progress.join(BUILDER, epoch));
    }

    /// Ten timeslices by the decision of epoch 2, five by that of epoch 7.
    fn settled() -> Vec<SettledWork> {
        let work = |epoch, numbers: core::ops::Range<u64>| SettledWork {
            rank: BUILDER.0,
            epoch,
            numbers: numbers.collect(),
        };
        vec![work(2, 0..10), work(7, 20..25)]
    }

    /// Returns what counts of the process of each loss, and of how many decisions in all.
    fn counts(run_progress: &RunProgress) -> (Vec<Option<u64>>, usize) {
        let mut all = settled();
        SettledWork::keep_lost(&mut all, run_progress);
        let count = |number| SettledWork::of_loss(&all, run_progress, number);
        ((0..run_progress.all_deaths().count()).map(count).collect(), all.len())
    }

    #[test]
    fn of_loss__of_a_builder_that_died_twice_each_process_has_its_own() {
        let mut run_progress = run_progress(0);
        dies(&mut run_progress, 2);
        is_replaced(&mut run_progress, 4);
        dies(&mut run_progress, 7);
        assert_eq!(counts(&run_progress), (vec![Some(10), Some(5)], 2));
    }

    #[test]
    fn of_loss__a_process_that_retired_after_it_had_replaced_another_says_itself_what_it_has() {
        let mut run_progress = run_progress(1);
        run_progress.rank_died(BUILDER, "ended".to_owned());
        run_progress.note_loss_known(BUILDER, Rank(0), 2);
        is_replaced(&mut run_progress, 4);
        retires(&mut run_progress, 7);
        run_progress.done.insert(BUILDER, TimesliceResult::default());
        assert_eq!(counts(&run_progress), (vec![Some(10), None], 1), "not what the second has");
    }

    #[test]
    fn of_loss__a_process_that_retired_and_came_back_before_it_died_leaves_all() {
        let mut run_progress = run_progress(1);
        retires(&mut run_progress, 2);
        assert!(run_progress.join(BUILDER, 4));
        dies(&mut run_progress, 7);
        assert_eq!(counts(&run_progress), (vec![None, Some(15)], 2), "one archive has both");
    }

    #[test]
    fn keep_lost__nothing_of_a_process_that_is_there() {
        let mut run_progress = run_progress(2);
        retires(&mut run_progress, 2);
        assert!(run_progress.join(BUILDER, 4));
        retires(&mut run_progress, 7);
        run_progress.done.insert(BUILDER, TimesliceResult::default());
        assert_eq!(counts(&run_progress), (vec![None, None], 0));
    }
}
