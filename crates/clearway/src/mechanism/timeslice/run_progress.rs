//! How far a run is, who takes part in it, and who is out.
//!
//! # Model
//! A rank is *there* until its process ends or another one says that it is out, and again from when
//! it says that it has joined. The process of one that is out may live on: it was silent for too
//! long, or it *retired* and keeps what its sink has until the end. A run goes on when all that are
//! there know of all that are not, and is over when all of them are done, and those that retired.

use std::collections::{BTreeMap, BTreeSet};
use std::time::{Duration, Instant};

use anyhow::Result;
use clearway_proto::base::{Nanos, Rank};
use clearway_proto::timeslice::Policy;

use super::losses::{BuilderWait, LossTimeline};
use super::messages::{TimesliceProgress, TimesliceResult};
use super::plan::{TimeslicePlan, layout};
use super::scheduled_change::{DetectionTimes, ScheduledAction, ScheduledChange};
use crate::run::job::JoinRefusal;

/// How long a rank may say that it is helpless before the run ends: it may be the one that is out,
/// and the others say so.
const HELPLESS: Duration = Duration::from_secs(2);

/// A rank that the run went on without.
#[derive(Clone, Debug)]
pub(super) struct RankLoss {
    pub(super) rank: Rank,
    /// For a person.
    pub(super) name: String,
    pub(super) policy: Option<Policy>,
    /// How its process ended; none while it lives.
    how: Option<String>,
    /// It went because it was asked to.
    pub(super) is_retired: bool,
    /// Its process is started again, and has not joined yet.
    is_restarting: bool,
    /// By the last decision that the others spoke of; none while nobody did.
    epoch: Option<u32>,
    /// When, since the run began, and when the others knew.
    pub(super) known: DetectionTimes,
    /// When it took part again, and by which decision.
    pub(super) back: Option<Nanos>,
    back_epoch: Option<u32>,
    /// Another process has its place.
    is_replaced: bool,
    /// The ranks that know.
    knowing: BTreeSet<Rank>,
    /// Of a builder: timeslices that count as built by it.
    pub(super) settled: u64,
    /// Where it wrote them.
    pub(super) archive: Option<String>,
}

impl RankLoss {
    /// Returns how it ended, as the end of a sentence.
    pub(super) fn how_it_ended(&self) -> &str {
        let alive = if self.is_retired { "retired" } else { "was silent for too long" };
        self.how.as_deref().unwrap_or(alive)
    }

    /// Returns whether its process waits for the end, with what it has built.
    const fn waits(&self) -> bool {
        self.is_retired && self.how.is_none()
    }
}

/// How far a run is.
pub(super) struct RunProgress {
    begun: Instant,
    inputs: u32,
    ranks: u32,
    /// All ranks, in the order in which the first one decides where halves differ.
    roster: Vec<Rank>,
    /// Ranks watch each other.
    pub(super) is_watched: bool,
    /// How long nothing is counted: deaths are reported since then.
    uncounted: Nanos,
    /// What is still to be asked for, the next one last.
    changes: Vec<ScheduledChange>,
    /// The ranks that were asked to go, when, and how.
    ordered: BTreeMap<Rank, (Nanos, ScheduledAction)>,
    out: BTreeMap<Rank, RankLoss>,
    /// Retired, and known by itself to be out.
    aside: BTreeSet<Rank>,
    /// Those among them that were asked to come back.
    returning: BTreeSet<Rank>,
    /// Those that were out and came back.
    back: Vec<RankLoss>,
    /// By which decisions they did: what was decided of them before is over.
    joined: BTreeMap<Rank, u32>,
    /// What builders said last that they wait for.
    waits: BTreeMap<Rank, BuilderWait>,
    /// How often the process of a rank was started again.
    restarts: BTreeMap<Rank, u32>,
    helpless: Option<(Rank, Instant)>,
    /// Inputs were asked to hold.
    pub(super) held: bool,
    /// Inputs that give no more by themselves, and how many they gave.
    pub(super) over: BTreeMap<Rank, u64>,
    /// How far they were asked to go on with empty contributions.
    pub(super) padded: BTreeMap<Rank, u64>,
    pub(super) end: Option<u64>,
    pub(super) done: BTreeMap<Rank, TimesliceResult>,
    /// Where microslices were lost.
    pub(super) lost: LossTimeline,
}

impl RunProgress {
    /// Creates the progress of a run of `policy` that begins now and is counted after some time.
    ///
    /// # Errors
    /// The ranks of `plan` are no layout.
    pub(super) fn new(plan: &TimeslicePlan, policy: Policy, uncounted: Nanos) -> Result<Self> {
        let layout = layout([plan.inputs, plan.builders], &plan.weights, plan.neighbourhoods())?;
        let is_watched = policy.is_building() && plan.heartbeat.is_some();
        let mut changes = if is_watched { plan.changes.clone() } else { Vec::new() };
        changes.reverse();
        Ok(Self {
            begun: Instant::now(),
            inputs: plan.inputs,
            ranks: plan.inputs + plan.builders,
            roster: layout.inputs().iter().chain(layout.builders()).copied().collect(),
            is_watched,
            uncounted,
            changes,
            ordered: BTreeMap::new(),
            out: BTreeMap::new(),
            aside: BTreeSet::new(),
            returning: BTreeSet::new(),
            back: Vec::new(),
            joined: BTreeMap::new(),
            waits: BTreeMap::new(),
            restarts: BTreeMap::new(),
            helpless: None,
            held: false,
            over: BTreeMap::new(),
            padded: BTreeMap::new(),
            end: None,
            done: BTreeMap::new(),
            lost: LossTimeline::default(),
        })
    }

    /// Returns the time since it began.
    pub(super) fn took(&self) -> Duration {
        self.begun.elapsed()
    }

    /// Notes what `rank` says of its losses, or of what it waits for.
    pub(super) fn note_losses(&mut self, rank: Rank, progress: &TimesliceProgress) {
        match &progress.source {
            Some(source) => self.lost.add(self.took().as_secs(), rank.0, source),
            None if rank.0 >= self.inputs => {
                self.waits.insert(rank, progress.waits);
                self.lost.waits(rank.0, progress.waits);
            }
            None => {}
        }
    }

    /// Notes that `rank` is done, and what it has done.
    pub(super) fn note_done(&mut self, rank: Rank, result: TimesliceResult) {
        if rank.0 < self.inputs {
            self.lost.add(self.took().as_secs(), rank.0, &result.source);
        }
        self.done.insert(rank, result);
    }

    fn now(&self) -> Nanos {
        Nanos(u64::try_from(self.took().as_nanos()).unwrap_or(u64::MAX))
    }

    /// Returns whether `rank` takes part.
    pub(super) fn is_there(&self, rank: Rank) -> bool {
        rank.0 < self.ranks && !self.out.contains_key(&rank)
    }

    /// Returns those that take part.
    pub(super) fn living(&self) -> impl Iterator<Item = Rank> + '_ {
        (0..self.ranks).map(Rank).filter(|rank| self.is_there(*rank))
    }

    /// Returns the inputs among them.
    pub(super) fn inputs(&self) -> impl Iterator<Item = Rank> + '_ {
        self.living().filter(|rank| rank.0 < self.inputs)
    }

    /// Returns those that are out.
    pub(super) fn deaths(&self) -> impl Iterator<Item = &RankLoss> {
        self.out.values()
    }

    /// Returns those that were out at some time, whether they are back or not.
    pub(super) fn all_deaths(&self) -> impl Iterator<Item = &RankLoss> {
        self.back.iter().chain(self.out.values())
    }

    /// Returns whether a process of `death`, which is one of [`RunProgress::all_deaths`], is gone
    /// with all that it has built.
    pub(super) fn has_lost_process(&self, death: &RankLoss) -> bool {
        death.is_replaced || death.back.is_none() && !self.done.contains_key(&death.rank)
    }

    /// Returns the number, among [`RunProgress::all_deaths`], of the loss of the process of `rank`
    /// that took part when the decision of `epoch` removed it; none when it is there.
    pub(super) fn loss_of(&self, rank: Rank, epoch: u32) -> Option<usize> {
        self.all_deaths().position(|death| {
            death.rank == rank
                && self.has_lost_process(death)
                && death.back_epoch.is_none_or(|back| epoch < back)
        })
    }

    /// Returns what was not asked for, by time.
    pub(super) fn left_out(&self) -> impl Iterator<Item = &ScheduledChange> {
        self.changes.iter().rev()
    }

    /// Returns whether all are done, and everybody knows of everybody that is out.
    pub(super) fn is_over(&self) -> bool {
        self.missing().is_none() && self.unknown().is_none()
    }

    /// Returns whether something is still to come of `rank`: it takes part, or is retired.
    pub(super) fn is_awaited(&self, rank: Rank) -> bool {
        self.out.get(&rank).map_or(rank.0 < self.ranks, RankLoss::waits)
    }

    /// Returns the first rank that is not done.
    pub(super) fn missing(&self) -> Option<Rank> {
        (0..self.ranks)
            .map(Rank)
            .find(|rank| self.is_awaited(*rank) && !self.done.contains_key(rank))
    }

    /// Returns all that are not done, and the inputs that builders among them said to wait for.
    pub(super) fn all_missing(&self) -> impl Iterator<Item = (Rank, Option<Rank>)> + '_ {
        let missing = |rank: &Rank| self.is_awaited(*rank) && !self.done.contains_key(rank);
        (0..self.ranks).map(Rank).filter(missing).map(|rank| match self.waits.get(&rank) {
            Some(BuilderWait::Input(input)) => (rank, Some(Rank(*input))),
            _ => (rank, None),
        })
    }

    /// Returns those that retired and know it.
    pub(super) fn retired(&self) -> impl Iterator<Item = Rank> + '_ {
        self.aside.iter().copied()
    }

    /// Returns one that is out, and one that does not know.
    pub(super) fn unknown(&self) -> Option<(&RankLoss, Rank)> {
        let not_knowing =
            |death: &RankLoss| self.living().find(|rank| !death.knowing.contains(rank));
        self.deaths().find_map(|death| not_knowing(death).map(|rank| (death, rank)))
    }

    /// Returns what nobody is any more, if there is such a thing.
    pub(super) fn next_missing(&self) -> Option<&'static str> {
        match (self.inputs().next(), self.living().any(|rank| rank.0 >= self.inputs)) {
            (None, _) => Some("input"),
            (_, false) => Some("builder"),
            _ => None,
        }
    }

    /// Returns whether too few are there to decide anything: half of those that were there at the
    /// last decision, without the first, or fewer.
    pub(super) fn are_too_few(&self) -> bool {
        let was_there =
            |rank: &Rank| self.out.get(rank).is_none_or(|death| death.knowing.is_empty());
        let before = self.roster.iter().copied().filter(was_there);
        let has_first = before.clone().next().is_some_and(|first| self.is_there(first));
        let (all, left) = (before.count(), self.living().count());
        2 * left < all || 2 * left == all && !has_first
    }

    /// Returns what is to be asked of whom now. A rank that is to come back is asked when it is
    /// out, and not before.
    pub(super) fn next_change(&mut self) -> Option<(Rank, ScheduledAction)> {
        let now = self.now();
        let is_due = |change: &ScheduledChange| {
            let rank = Rank(change.when.rank);
            // At the end nobody comes back any more.
            let can_be = change.wanted != ScheduledAction::Return
                || !self.held
                    && self.end.is_none()
                    && (self.aside.contains(&rank) || self.has_no_process(rank));
            self.uncounted + change.when.at <= now && can_be
        };
        let ScheduledChange { when, wanted } =
            self.changes.remove(self.changes.iter().rposition(is_due)?);
        let rank = Rank(when.rank);
        if wanted != ScheduledAction::Return {
            self.ordered.insert(rank, (now, wanted));
        } else if self.aside.contains(&rank) {
            self.returning.insert(rank);
        }
        Some((rank, wanted))
    }

    /// Returns whether the end can be said: all inputs are over, and no rank is about to take part
    /// again. One that hears of the end while it is out concludes, and then could join all the same.
    pub(super) fn can_end(&self) -> bool {
        self.returning.is_empty() && self.over.len() == self.inputs().count()
    }

    /// Returns how long can be waited, `most` at most.
    pub(super) fn timeout(&self, most: Duration) -> Duration {
        let until = |change: &ScheduledChange| {
            Duration::from_nanos((self.uncounted + change.when.at).0).checked_sub(self.took())
        };
        self.changes.iter().rev().find_map(until).map_or(most, |until| until.min(most))
    }

    /// Notes that the process of `rank` ended, and how; returns whether it was there until now.
    pub(super) fn rank_died(&mut self, rank: Rank, how: String) -> bool {
        let was_there = self.is_there(rank);
        self.done.remove(&rank);
        self.aside.remove(&rank);
        self.returning.remove(&rank);
        let death = self.lose(rank);
        (death.how, death.is_restarting) = (Some(how), false);
        was_there
    }

    /// Notes that `by` knows that `rank` is out by the decision of `epoch`; returns whether that is
    /// news.
    pub(super) fn note_loss_known(&mut self, rank: Rank, by: Rank, epoch: u32) -> bool {
        if self.joined.get(&rank).is_some_and(|joined| epoch < *joined) {
            // It is back already.
            return false;
        }
        // A rank that joins hears late of those that went while it was out.
        let (was_there, is_late, now) = (self.is_there(rank), !self.is_there(by), self.now());
        let death = self.lose(rank);
        death.epoch = death.epoch.max(Some(epoch));
        if death.knowing.insert(by) && !is_late {
            death.known.and(now);
        }
        self.helpless = None;
        was_there
    }

    /// Returns whether the process of `rank` has ended.
    pub(super) fn has_no_process(&self, rank: Rank) -> bool {
        self.out.get(&rank).is_some_and(|death| death.how.is_some() && !death.is_restarting)
    }

    /// Returns the rank whose place a process gets that wants to be `wanted`, or any that died;
    /// `name` is a rank's for a person.
    pub(super) fn vacancy(
        &self,
        wanted: Option<Rank>,
        name: &dyn Fn(Rank) -> String,
    ) -> Result<Rank, JoinRefusal> {
        let now = |sentence: String| Err(JoinRefusal::Now(sentence));
        if let Some(rank) = wanted.filter(|rank| rank.0 >= self.ranks) {
            let last = self.ranks.saturating_sub(1);
            let sentence =
                format!("there is no rank {rank} in this run, whose ranks are 0 to {last}");
            return Err(JoinRefusal::Never(sentence));
        }
        if self.held || self.end.is_some() {
            return now("the run is about to end and takes nobody in any more".to_owned());
        }
        let is_free = |death: &&RankLoss| {
            !death.is_retired && !death.is_restarting && !self.was_restarted(death.rank)
        };
        let Some(rank) = wanted else {
            let free = self.deaths().find(is_free).map(|death| death.rank);
            let none = "no rank of this run has died, or all that have are replaced".to_owned();
            return free.ok_or(JoinRefusal::Now(none));
        };
        let why = match self.out.get(&rank) {
            None => "is alive; only a rank that has died is replaced",
            Some(death) if death.is_retired => "has retired; only a rank that has died is replaced",
            Some(death) if death.is_restarting => "is being replaced by another process",
            Some(_) if self.was_restarted(rank) => "was replaced already; that works once in a run",
            Some(_) => return Ok(rank),
        };
        now(format!("{} {why}", name(rank)))
    }

    /// Notes that the process of `rank`, which was called `name`, is another one, and that `archive`
    /// has what the one before had built; returns how often that was done.
    pub(super) fn restart(&mut self, rank: Rank, name: String, archive: Option<String>) -> u32 {
        if let Some(death) = self.out.get_mut(&rank) {
            (death.is_restarting, death.is_replaced) = (true, true);
            (death.name, death.archive) = (name, archive);
        }
        self.lost.restart(rank.0);
        let restarts = self.restarts.entry(rank).or_default();
        *restarts += 1;
        *restarts
    }

    /// Returns whether the process of `rank` was started again and has not joined yet.
    pub(super) fn is_restarting(&self, rank: Rank) -> bool {
        self.out.get(&rank).is_some_and(|death| death.is_restarting)
    }

    /// Returns those.
    pub(super) fn restarting(&self) -> impl Iterator<Item = Rank> + '_ {
        self.out.values().filter(|death| death.is_restarting).map(|death| death.rank)
    }

    /// Returns whether the process of `rank` is not the one of the beginning.
    pub(super) fn was_restarted(&self, rank: Rank) -> bool {
        self.restarts.contains_key(&rank)
    }

    /// Notes that `rank` itself knows that it is out; returns whether that is news: what the others
    /// say of it may come later than what it says next.
    pub(super) fn note_out(&mut self, rank: Rank) -> bool {
        let was_there = self.is_there(rank);
        self.lose(rank).knowing.insert(rank);
        was_there
    }

    /// Notes that `rank` is no part of the run any more, and whether it retired; returns whether it
    /// waits for the end, or to come back.
    pub(super) fn rank_left(&mut self, rank: Rank, is_retired: bool) -> bool {
        if is_retired {
            self.aside.insert(rank);
            return true;
        }
        // The others took it for dead before it could go as asked. Its sink is closed: nothing that
        // it builds later would count.
        self.ordered.remove(&rank);
        self.done.remove(&rank);
        if let Some(death) = self.out.get_mut(&rank) {
            death.is_retired = false;
        }
        false
    }

    /// Lets `rank` take part again, by the decision of `epoch`; returns whether it did not before,
    /// and is not out again by now.
    pub(super) fn join(&mut self, rank: Rank, epoch: u32) -> bool {
        if self.out.get(&rank).is_some_and(|death| death.epoch > Some(epoch)) {
            return false;
        }
        self.joined.insert(rank, epoch);
        let now = self.now();
        let death = self.out.remove(&rank).map(|death| RankLoss {
            back: Some(now),
            back_epoch: Some(epoch),
            is_restarting: false,
            ..death
        });
        let was_out = death.is_some();
        self.back.extend(death);
        self.aside.remove(&rank);
        self.returning.remove(&rank);
        self.ordered.remove(&rank);
        self.done.remove(&rank);
        was_out
    }

    fn lose(&mut self, rank: Rank) -> &mut RankLoss {
        let (died, wanted) =
            self.ordered.get(&rank).copied().unwrap_or((self.now(), ScheduledAction::Death));
        let is_retired = wanted == ScheduledAction::Retirement;
        self.over.remove(&rank);
        if !is_retired {
            self.done.remove(&rank);
        }
        self.out.entry(rank).or_insert_with(|| RankLoss {
            rank,
            name: String::new(),
            policy: None,
            how: None,
            is_retired,
            is_restarting: false,
            epoch: None,
            known: DetectionTimes::from_death(died),
            back: None,
            back_epoch: None,
            is_replaced: false,
            knowing: BTreeSet::new(),
            settled: 0,
            archive: None,
        })
    }

    /// Notes that `rank` says that nothing can be decided.
    pub(super) fn helpless(&mut self, rank: Rank) {
        self.helpless.get_or_insert((rank, Instant::now()));
    }

    /// Returns the rank that has said so for so long that it must be so.
    pub(super) fn is_helpless(&self) -> Option<Rank> {
        let (rank, since) = self.helpless?;
        (self.is_there(rank) && since.elapsed() > HELPLESS).then_some(rank)
    }

    /// Returns when the others knew of those that died; times since counting began.
    pub(super) fn losses(&self) -> BTreeMap<Rank, DetectionTimes> {
        let counted = |at: Nanos| Nanos(at.0.saturating_sub(self.uncounted.0));
        let known = |DetectionTimes { died, by }| DetectionTimes {
            died: counted(died),
            by: by.map(|by| by.map(counted)),
        };
        let dead = self.out.iter().filter(|(_, death)| !death.is_retired);
        dead.map(|(rank, death)| (*rank, known(death.known))).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::super::plan::Neighbourhoods;
    use super::*;
    use crate::scenario::RankAt;

    fn run_progress(changes: Vec<ScheduledChange>) -> RunProgress {
        let plan = TimeslicePlan { changes, ..TimeslicePlan::sample() };
        RunProgress::new(&plan, Policy::Token, Nanos::ZERO).expect("a sound layout")
    }

    fn vacancy(run_progress: &RunProgress, wanted: Option<u32>) -> Result<u32, String> {
        let given = run_progress.vacancy(wanted.map(Rank), &|rank| format!("rank {rank}"));
        given.map(|rank| rank.0).map_err(|(JoinRefusal::Now(why) | JoinRefusal::Never(why))| why)
    }

    #[test]
    fn vacancy__is_of_a_rank_that_died_and_was_not_replaced_before() {
        let mut run_progress = run_progress(ScheduledChange::by_time(&[], &[at(3, 0)], &[]));
        assert!(vacancy(&run_progress, None).is_err_and(|why| why.contains("has died")));
        assert!(vacancy(&run_progress, Some(1)).is_err_and(|why| why.contains("rank 1 is alive")));
        assert!(vacancy(&run_progress, Some(4)).is_err_and(|why| why.contains("are 0 to 3")));
        // The others say that it is out, and its connection is there: a host without power.
        assert!(run_progress.note_loss_known(Rank(1), Rank(0), 1));
        assert_eq!([vacancy(&run_progress, None), vacancy(&run_progress, Some(1))], [Ok(1), Ok(1)]);
        assert_eq!(run_progress.next_change(), Some((Rank(3), ScheduledAction::Retirement)));
        run_progress.note_loss_known(Rank(3), Rank(0), 2);
        assert!(vacancy(&run_progress, Some(3)).is_err_and(|why| why.contains("has retired")));
        run_progress.restart(Rank(1), "rank 1".to_owned(), None);
        let sentence = "is being replaced by another process";
        assert!(vacancy(&run_progress, Some(1)).is_err_and(|why| why.contains(sentence)));
        assert!(run_progress.join(Rank(1), 3));
        run_progress.rank_died(Rank(1), "ended".to_owned());
        assert!(vacancy(&run_progress, Some(1)).is_err_and(|why| why.contains("once in a run")));
        assert!(vacancy(&run_progress, None).is_err());
        run_progress.rank_died(Rank(2), "ended".to_owned());
        assert_eq!(vacancy(&run_progress, None), Ok(2));
        run_progress.end = Some(9);
        assert!(vacancy(&run_progress, None).is_err_and(|why| why.contains("about to end")));
    }

    #[test]
    fn is_over__when_all_that_are_there_are_done_and_know_who_is_not() {
        let mut run_progress = run_progress(Vec::new());
        for rank in [0, 1, 2, 3] {
            assert!(!run_progress.is_over());
            run_progress.done.insert(Rank(rank), TimesliceResult::default());
        }
        assert!(run_progress.is_over());
        // A rank that dies behind its end is counted by what the others know of it.
        assert!(
            run_progress.rank_died(Rank(3), "ended".to_owned())
                && !run_progress.rank_died(Rank(3), "ended".to_owned())
        );
        for by in [0, 1, 2] {
            assert_eq!(
                run_progress.unknown().map(|(death, rank)| (death.rank, rank)),
                Some((Rank(3), Rank(by)))
            );
            assert!(!run_progress.note_loss_known(Rank(3), Rank(by), 1));
        }
        assert!(run_progress.is_over() && !run_progress.done.contains_key(&Rank(3)));
        assert_eq!((run_progress.inputs().count(), run_progress.next_missing()), (2, None));
        assert!(!run_progress.are_too_few());
        run_progress.rank_died(Rank(2), "ended".to_owned());
        assert_eq!(
            (run_progress.next_missing(), run_progress.are_too_few()),
            (Some("builder"), false)
        );
        run_progress.rank_died(Rank(0), "ended".to_owned());
        assert!(run_progress.are_too_few(), "one of three");
    }

    #[test]
    fn are_too_few__half_with_the_first_of_the_order_of_turns_is_enough() {
        // Of three neighbours and one more, a neighbour comes first: the roster is 1, 0, 2, 3.
        let neighbourhoods = Neighbourhoods::OfRanks(vec![0, 1, 1, 1]);
        let plan =
            TimeslicePlan { neighbourhoods, inputs: 3, builders: 1, ..TimeslicePlan::sample() };
        let left_with = |dead: [u32; 2]| {
            let mut run = RunProgress::new(&plan, Policy::Token, Nanos::ZERO).expect("a layout");
            for rank in dead {
                assert!(run.rank_died(Rank(rank), "ended".to_owned()));
            }
            run.are_too_few()
        };
        assert_eq!([left_with([0, 2]), left_with([1, 2])], [false, true]);
    }

    fn at(rank: u32, at: u64) -> RankAt {
        RankAt { rank, at: Nanos(at) }
    }

    #[test]
    fn next_change__comes_in_the_order_of_time() {
        let mut run_progress = run_progress(ScheduledChange::by_time(
            &[at(1, 0), at(3, u64::MAX / 2), at(0, 1)],
            &[],
            &[],
        ));
        let death = |rank| Some((Rank(rank), ScheduledAction::Death));
        assert_eq!(
            [run_progress.next_change(), run_progress.next_change(), run_progress.next_change()],
            [death(1), death(0), None]
        );
        assert_eq!(run_progress.left_out().map(|change| change.when.rank).collect::<Vec<_>>(), [3]);
        assert_eq!(run_progress.timeout(Duration::from_secs(1)), Duration::from_secs(1));
    }

    #[test]
    fn join__who_retired_is_asked_when_it_is_out_and_late_words_about_it_count_for_nothing() {
        let mut run_progress =
            run_progress(ScheduledChange::by_time(&[], &[at(3, 0)], &[at(3, 0)]));
        assert_eq!(run_progress.next_change(), Some((Rank(3), ScheduledAction::Retirement)));
        assert_eq!(run_progress.next_change(), None, "it is not out yet");
        assert!(
            run_progress.note_loss_known(Rank(3), Rank(0), 2)
                && run_progress.rank_left(Rank(3), true)
        );
        assert!(
            run_progress.is_awaited(Rank(3)) && !run_progress.is_there(Rank(3)),
            "it has what it built"
        );
        assert_eq!(run_progress.next_change(), Some((Rank(3), ScheduledAction::Return)));
        assert!(run_progress.join(Rank(3), 3) && !run_progress.join(Rank(3), 3));
        assert!(!run_progress.note_loss_known(Rank(3), Rank(1), 2), "that was before");
        assert!(run_progress.is_there(Rank(3)));
        assert_eq!(
            run_progress
                .all_deaths()
                .map(|death| (death.how_it_ended(), death.back.is_some()))
                .collect::<Vec<_>>(),
            [("retired", true)]
        );
        assert!(run_progress.note_loss_known(Rank(3), Rank(0), 4), "it is out again");
    }

    /// What ranks say comes over a line of each: one that joins may be heard before the others that
    /// said before that it is out.
    #[test]
    fn join__heard_before_what_the_others_say_of_the_time_before_it_counts() {
        let mut run_progress =
            run_progress(ScheduledChange::by_time(&[], &[at(3, 0)], &[at(3, 0)]));
        assert!(run_progress.next_change().is_some());
        assert!(run_progress.note_out(Rank(3)) && !run_progress.note_out(Rank(3)));
        assert!(run_progress.rank_left(Rank(3), true) && !run_progress.are_too_few());
        assert_eq!(run_progress.next_change(), Some((Rank(3), ScheduledAction::Return)));
        assert!(run_progress.join(Rank(3), 7));
        for by in [0, 1, 2] {
            assert!(!run_progress.note_loss_known(Rank(3), Rank(by), 6));
        }
        assert!(run_progress.is_there(Rank(3)) && run_progress.unknown().is_none());
        // It was silent, joins again, and is taken for dead once more, which is heard first.
        assert!(run_progress.note_loss_known(Rank(3), Rank(0), 8));
        assert!(!run_progress.note_loss_known(Rank(3), Rank(0), 10));
        assert!(!run_progress.join(Rank(3), 9) && !run_progress.is_there(Rank(3)));
        assert!(run_progress.join(Rank(3), 11) && run_progress.is_there(Rank(3)));
    }

    #[test]
    fn all_missing__says_what_builders_wait_for() {
        let mut run_progress = run_progress(Vec::new());
        run_progress.waits.insert(Rank(2), BuilderWait::Input(1));
        run_progress.waits.insert(Rank(3), BuilderWait::Nothing);
        run_progress.done.insert(Rank(0), TimesliceResult::default());
        let missing: Vec<_> = run_progress.all_missing().collect();
        assert_eq!(missing, [(Rank(1), None), (Rank(2), Some(Rank(1))), (Rank(3), None)]);
    }

    #[test]
    fn can_end__not_before_a_rank_that_was_asked_to_come_back_is_back() {
        let mut run_progress = run_progress(ScheduledChange::by_time(
            &[],
            &[at(3, 0), at(2, 0)],
            &[at(3, 0), at(2, 0)],
        ));
        assert!(run_progress.next_change().is_some() && run_progress.next_change().is_some());
        for rank in [Rank(2), Rank(3)] {
            run_progress.note_loss_known(rank, Rank(0), 1 + rank.0);
        }
        run_progress.rank_left(Rank(3), true);
        assert_eq!(run_progress.next_change(), Some((Rank(3), ScheduledAction::Return)));
        for input in run_progress.inputs().collect::<Vec<_>>() {
            run_progress.over.insert(input, 9);
        }
        assert!(!run_progress.can_end(), "the builder would hear of the end before it joins");
        assert!(run_progress.join(Rank(3), 5) && run_progress.can_end());
        run_progress.end = Some(9);
        run_progress.rank_left(Rank(2), true);
        assert_eq!(run_progress.next_change(), None, "it is over");
    }

    #[test]
    fn restart__a_new_process_joins_and_hears_again_of_those_that_were_out() {
        let mut run_progress =
            run_progress(ScheduledChange::by_time(&[at(3, 0)], &[at(1, 0)], &[at(1, 0), at(3, 0)]));
        assert!(run_progress.next_change().is_some() && run_progress.next_change().is_some());
        // An input retires, which the builder hears, and is back.
        assert!(run_progress.note_loss_known(Rank(1), Rank(3), 2));
        assert!(run_progress.rank_left(Rank(1), true));
        assert_eq!(run_progress.next_change(), Some((Rank(1), ScheduledAction::Return)));
        assert_eq!(run_progress.next_change(), None, "the builder's process lives");
        assert!(run_progress.join(Rank(1), 3));
        assert!(run_progress.rank_died(Rank(3), "ended".to_owned()));
        assert_eq!(run_progress.next_change(), Some((Rank(3), ScheduledAction::Return)));
        assert_eq!(run_progress.restart(Rank(3), "b".to_owned(), Some("a".to_owned())), 1);
        assert!(run_progress.is_restarting(Rank(3)) && !run_progress.is_awaited(Rank(3)));
        assert!(!run_progress.note_loss_known(Rank(1), Rank(3), 2), "it was back long before");
        assert!(run_progress.is_there(Rank(1)));
        assert!(run_progress.join(Rank(3), 5) && !run_progress.is_restarting(Rank(3)));
        assert_eq!(run_progress.missing(), Some(Rank(0)));
        assert!(run_progress.is_awaited(Rank(3)) && run_progress.was_restarted(Rank(3)));
        let archives = run_progress.all_deaths().map(|death| death.archive.clone());
        assert_eq!(archives.collect::<Vec<_>>(), [None, Some("a".to_owned())]);
    }

    #[test]
    fn rank_left__a_rank_that_was_silent_before_it_could_retire_is_out_for_good() {
        let mut run_progress =
            run_progress(ScheduledChange::by_time(&[], &[at(3, 0)], &[at(3, 0)]));
        assert_eq!(run_progress.next_change(), Some((Rank(3), ScheduledAction::Retirement)));
        assert!(
            run_progress.note_loss_known(Rank(3), Rank(0), 1)
                && !run_progress.rank_left(Rank(3), false)
        );
        assert_eq!(
            run_progress.next_change(),
            None,
            "its sink is closed, so it is not asked to come back"
        );
        assert!(!run_progress.is_awaited(Rank(3)), "what it built counts as the others say");
        assert_eq!(
            run_progress.deaths().map(RankLoss::how_it_ended).collect::<Vec<_>>(),
            ["was silent for too long"]
        );
    }
}
