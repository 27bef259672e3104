//! How far a run is, who takes part in it, and who is out.
//!
//! # Model
//! A rank is *there* until its process ends or another one says that it is out. Its process may live on, when it was silent for too long.
//! A run goes on when all that are there know of all that are not, and is over when all of them are done.

use std::collections::{BTreeMap, BTreeSet};
use std::time::{Duration, Instant};

use clearway_proto::base::{Nanos, Rank};
use clearway_proto::timeslice::Policy;

use super::loss::{Kill, Known};
use super::plan::Plan;
use super::words::Account;

/// How long a rank may say that it is helpless before the run ends: it may be the one that is out, and the others say so.
const HELPLESS: Duration = Duration::from_secs(2);

/// A rank that the run went on without.
#[derive(Clone, Debug)]
pub(super) struct Death {
    pub(super) rank: Rank,
    /// For a person.
    pub(super) name: String,
    pub(super) policy: Option<Policy>,
    /// How its process ended; none while it lives.
    how: Option<String>,
    /// When, since the run began, and when the others knew.
    pub(super) known: Known,
    /// Who knows.
    knowing: BTreeSet<Rank>,
    /// Of a builder: timeslices that count as built by it.
    pub(super) settled: u64,
    /// Where it wrote them.
    pub(super) archive: Option<String>,
}

impl Death {
    /// How it ended, as the end of a sentence.
    pub(super) fn how(&self) -> &str {
        self.how.as_deref().unwrap_or("was silent for too long")
    }
}

/// How far a run is.
pub(super) struct Course {
    begun: Instant,
    inputs: u32,
    ranks: u32,
    /// Ranks watch each other.
    pub(super) is_watched: bool,
    /// How long nothing is counted: deaths are told since then.
    uncounted: Nanos,
    /// Deaths to come, the next one last.
    kills: Vec<Kill>,
    /// Those that were ordered, and when.
    ordered: BTreeMap<Rank, Nanos>,
    out: BTreeMap<Rank, Death>,
    helpless: Option<(Rank, Instant)>,
    /// Inputs were told to hold.
    pub(super) held: bool,
    /// Inputs that give no more by themselves, and how many they gave.
    pub(super) over: BTreeMap<Rank, u64>,
    /// How far they were told to go on with empty contributions.
    pub(super) padded: BTreeMap<Rank, u64>,
    pub(super) end: Option<u64>,
    pub(super) done: BTreeMap<Rank, Account>,
}

impl Course {
    /// Of a run of `policy` that begins now and is counted after some time.
    pub(super) fn new(plan: &Plan, policy: Policy, uncounted: Nanos) -> Self {
        let is_watched = policy.is_building() && plan.heartbeat.is_some();
        let mut kills = if is_watched { plan.kills.clone() } else { Vec::new() };
        kills.sort_by_key(|kill| std::cmp::Reverse(kill.at));
        Self {
            begun: Instant::now(),
            inputs: plan.inputs,
            ranks: plan.inputs + plan.builders,
            is_watched,
            uncounted,
            kills,
            ordered: BTreeMap::new(),
            out: BTreeMap::new(),
            helpless: None,
            held: false,
            over: BTreeMap::new(),
            padded: BTreeMap::new(),
            end: None,
            done: BTreeMap::new(),
        }
    }

    /// Since it began.
    pub(super) fn took(&self) -> Duration {
        self.begun.elapsed()
    }

    fn now(&self) -> Nanos {
        Nanos(u64::try_from(self.took().as_nanos()).unwrap_or(u64::MAX))
    }

    /// Whether `rank` takes part.
    pub(super) fn is_there(&self, rank: Rank) -> bool {
        rank.0 < self.ranks && !self.out.contains_key(&rank)
    }

    /// Those that take part.
    pub(super) fn living(&self) -> impl Iterator<Item = Rank> + '_ {
        (0..self.ranks).map(Rank).filter(|rank| self.is_there(*rank))
    }

    /// The inputs among them.
    pub(super) fn inputs(&self) -> impl Iterator<Item = Rank> + '_ {
        self.living().filter(|rank| rank.0 < self.inputs)
    }

    /// Those that are out.
    pub(super) fn deaths(&self) -> impl Iterator<Item = &Death> {
        self.out.values()
    }

    /// Deaths that have not come.
    pub(super) fn kills(&self) -> impl Iterator<Item = &Kill> {
        self.kills.iter()
    }

    /// Whether all are done, and everybody knows of everybody that is out.
    pub(super) fn is_over(&self) -> bool {
        self.living().all(|rank| self.done.contains_key(&rank)) && self.unknown().is_none()
    }

    /// The first rank that is not done.
    pub(super) fn missing(&self) -> Option<Rank> {
        self.living().find(|rank| !self.done.contains_key(rank))
    }

    /// One that is out, and one that does not know.
    pub(super) fn unknown(&self) -> Option<(&Death, Rank)> {
        let not_knowing = |death: &Death| self.living().find(|rank| !death.knowing.contains(rank));
        self.deaths().find_map(|death| not_knowing(death).map(|rank| (death, rank)))
    }

    /// What nobody is any more, if there is such a thing.
    pub(super) fn lacks(&self) -> Option<&'static str> {
        match (self.inputs().next(), self.living().any(|rank| rank.0 >= self.inputs)) {
            (None, _) => Some("input"),
            (_, false) => Some("builder"),
            _ => None,
        }
    }

    /// Whether too few are there to decide anything: half of those that were there at the last decision, without the first, or fewer.
    pub(super) fn are_too_few(&self) -> bool {
        let was_there = |rank: &Rank| self.out.get(rank).is_none_or(|death| death.knowing.is_empty());
        let before = (0..self.ranks).map(Rank).filter(was_there);
        let has_first = before.clone().next().is_some_and(|first| self.is_there(first));
        let (all, left) = (before.count(), self.living().count());
        2 * left < all || 2 * left == all && !has_first
    }

    /// Who is to die now.
    pub(super) fn next_death(&mut self) -> Option<Rank> {
        let now = self.now();
        let Kill { rank, .. } = self.kills.pop_if(|kill| self.uncounted + kill.at <= now)?;
        self.ordered.insert(Rank(rank), now);
        Some(Rank(rank))
    }

    /// How long can be waited, `most` at most.
    pub(super) fn patience(&self, most: Duration) -> Duration {
        let until = |kill: &Kill| Duration::from_nanos((self.uncounted + kill.at).0).saturating_sub(self.took());
        self.kills.last().map_or(most, |kill| until(kill).min(most))
    }

    /// The process of `rank` ended, and how; whether it was there until now.
    pub(super) fn miss(&mut self, rank: Rank, how: String) -> bool {
        let was_there = self.is_there(rank);
        let died = self.ordered.get(&rank).copied().unwrap_or_else(|| self.now());
        self.lose(rank, died).how = Some(how);
        was_there
    }

    /// `by` knows that `rank` is out; whether that is news.
    pub(super) fn know(&mut self, rank: Rank, by: Rank) -> bool {
        let (was_there, now) = (self.is_there(rank), self.now());
        let died = self.ordered.get(&rank).copied().unwrap_or(now);
        let death = self.lose(rank, died);
        if death.knowing.insert(by) {
            death.known.and(now);
        }
        self.helpless = None;
        was_there
    }

    fn lose(&mut self, rank: Rank, died: Nanos) -> &mut Death {
        self.over.remove(&rank);
        self.done.remove(&rank);
        let known = Known::of(died);
        self.out.entry(rank).or_insert_with(|| Death {
            rank,
            name: String::new(),
            policy: None,
            how: None,
            known,
            knowing: BTreeSet::new(),
            settled: 0,
            archive: None,
        })
    }

    /// `rank` says that nothing can be decided.
    pub(super) fn helpless(&mut self, rank: Rank) {
        self.helpless.get_or_insert((rank, Instant::now()));
    }

    /// Who has said so for so long that it must be so.
    pub(super) fn is_helpless(&self) -> Option<Rank> {
        let (rank, since) = self.helpless?;
        (self.is_there(rank) && since.elapsed() > HELPLESS).then_some(rank)
    }

    /// When the others knew of those that are out; times since counting began.
    pub(super) fn losses(&self) -> BTreeMap<Rank, Known> {
        let counted = |at: Nanos| Nanos(at.0.saturating_sub(self.uncounted.0));
        let known = |Known { died, by }| Known { died: counted(died), by: by.map(|by| by.map(counted)) };
        self.out.iter().map(|(rank, death)| (*rank, known(death.known))).collect()
    }
}

#[cfg(test)]
mod tests {
    use clearway_proto::base::Bytes;

    use super::*;

    fn course(kills: Vec<Kill>) -> Course {
        let plan = Plan {
            inputs: 2,
            builders: 2,
            policies: vec![Policy::Token],
            contribution: Bytes(1),
            messages: crate::timeslice::Messages::Alone,
            ring: Bytes(1),
            window: "2-8".parse().expect("a window"),
            dfs: clearway_proto::timeslice::Dfs::default(),
            start_skew: Nanos::ZERO,
            warm_up: Nanos::ZERO,
            measured: Nanos::ZERO,
            seeds: vec![1],
            rings: crate::timeslice::Rings::Empty,
            hosts: crate::timeslice::HostConditions::default(),
            slowdown: None,
            kills,
            heartbeat: Some(Nanos::from_millis(1)),
        };
        Course::new(&plan, Policy::Token, Nanos::ZERO)
    }

    #[test]
    fn is_over__when_all_that_are_there_are_done_and_know_who_is_not() {
        let mut course = course(Vec::new());
        for rank in [0, 1, 2, 3] {
            assert!(!course.is_over());
            course.done.insert(Rank(rank), Account::default());
        }
        assert!(course.is_over());
        // A rank that dies behind its end is counted by what the others know of it.
        assert!(course.miss(Rank(3), "ended".to_owned()) && !course.miss(Rank(3), "ended".to_owned()));
        for by in [0, 1, 2] {
            assert_eq!(course.unknown().map(|(death, rank)| (death.rank, rank)), Some((Rank(3), Rank(by))));
            assert!(!course.know(Rank(3), Rank(by)));
        }
        assert!(course.is_over() && !course.done.contains_key(&Rank(3)));
        assert_eq!((course.inputs().count(), course.lacks()), (2, None));
        assert!(!course.are_too_few());
        course.miss(Rank(2), "ended".to_owned());
        assert_eq!((course.lacks(), course.are_too_few()), (Some("builder"), false));
        course.miss(Rank(0), "ended".to_owned());
        assert!(course.are_too_few(), "one of three");
    }

    #[test]
    fn next_death__comes_in_the_order_of_time() {
        let kill = |rank, at| Kill { rank, at: Nanos(at) };
        let mut course = course(vec![kill(1, 0), kill(3, u64::MAX / 2), kill(0, 1)]);
        assert_eq!(
            [course.next_death(), course.next_death(), course.next_death()],
            [Some(Rank(1)), Some(Rank(0)), None]
        );
        assert_eq!(course.kills().map(|kill| kill.rank).collect::<Vec<_>>(), [3]);
        assert_eq!(course.patience(Duration::from_secs(1)), Duration::from_secs(1));
    }
}
