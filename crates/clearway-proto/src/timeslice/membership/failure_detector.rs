//! The watchers of each member, and when silence is too long.
//!
//! # Model
//! Every member sends a *beat* to its three watchers, once in an interval, so that watching costs a
//! node the same however large the job is. A watcher suspects a member that is silent for
//! [`TIMEOUT`] intervals, or for the usual time between its beats and four deviations of that,
//! whichever is longer. When somebody speaks who was silent for too long, the network is slower
//! than was believed, and all silence may last twice as long for a while. The three stand a third
//! of the roster apart: no rack holds all of them.
//!
//! # Source
//! RFC 6298 for the usual gap and its deviation, and for doubling (5.5).
//!
//! # Invariants
//! I1. A member that was away itself suspects nobody for it: [`FailureDetector::restart`].

use alloc::vec::Vec;

use super::journal::{Journal, RosterMember};
use crate::base::{LocalNs, Nanos, Smoothed};

/// Intervals of silence that are always allowed: two beats may be lost or late.
const TIMEOUT: u64 = 3;
/// Intervals of silence that are never allowed, however irregular beats were.
const TIMEOUT_MAX: u64 = 30;
/// Intervals that a member has which was not heard of before: it may be starting.
const GRACE: u64 = 10;
/// Times that the silence which is always allowed is doubled at most: it stays below the longest.
const DOUBLINGS_MAX: u32 = 3;
/// Beats in time after which one doubling is taken back: far more than come between two false
/// suspicions while a network is overloaded.
const CALM: u32 = 1000;
/// Watchers of one member.
const WATCHERS: usize = 3;

/// Returns the watchers of `member`.
pub(super) fn watchers(journal: &Journal, member: RosterMember) -> Vec<RosterMember> {
    let roster = journal.roster();
    let mut watchers = Vec::with_capacity(WATCHERS);
    for number in 0..WATCHERS {
        let begin = member.index() + 1 + number * roster / WATCHERS;
        let around = (begin..begin + roster).map(|place| RosterMember((place % roster) as u32));
        let mut free = around.filter(|other| *other != member && !watchers.contains(other));
        watchers.extend(free.find(|other| journal.takes_part(*other)));
    }
    watchers
}

/// One member that is watched.
#[derive(Clone, Copy, Debug)]
struct WatchedMember {
    member: RosterMember,
    /// Silent since then; none while it was never heard.
    last_heard: Option<LocalNs>,
    /// The time between beats.
    gap: Smoothed,
}

/// What one member watches.
#[derive(Debug)]
pub(super) struct FailureDetector {
    interval: Nanos,
    watched: Vec<WatchedMember>,
    /// How often allowed silence is doubled, and beats in time since then.
    doublings: u32,
    calm: u32,
}

impl FailureDetector {
    /// Creates a detector that watches nobody yet; beats come in this `interval`.
    pub(super) const fn new(interval: Nanos) -> Self {
        Self { interval, watched: Vec::new(), doublings: 0, calm: 0 }
    }

    /// Turns to the members that `me` watches from `now` on, by `journal`. Those that it has not
    /// watched before have some time to speak; at the very beginning, when everybody starts, all
    /// time.
    pub(super) fn turn_to(&mut self, journal: &Journal, me: RosterMember, now: LocalNs) {
        let first = (journal.epoch() > 0).then(|| now + self.interval.times(GRACE));
        let others = journal.members().filter(|member| *member != me);
        let mine = others.filter(|member| watchers(journal, *member).contains(&me));
        let gap = Smoothed { mean: self.interval, deviation: Nanos::ZERO };
        let one = |member| {
            let known = self.watched.iter().find(|watched| watched.member == member).copied();
            known.unwrap_or(WatchedMember { member, last_heard: first, gap })
        };
        self.watched = mine.map(one).collect();
    }

    /// Records a beat of `member`.
    pub(super) fn heartbeat_received(&mut self, member: RosterMember, now: LocalNs) {
        let was_late = self.overdue(now).any(|late| late == member);
        let Some(watched) = self.watched.iter_mut().find(|watched| watched.member == member) else {
            return;
        };
        self.calm = if was_late { 0 } else { self.calm + 1 };
        if was_late {
            self.doublings = (self.doublings + 1).min(DOUBLINGS_MAX);
        } else if self.calm == CALM {
            (self.calm, self.doublings) = (0, self.doublings.saturating_sub(1));
        }
        if let Some(heard) = watched.last_heard {
            watched.gap = watched.gap.with(now.since(heard));
        }
        watched.last_heard = Some(now);
    }

    /// Restarts all silences: this node was away, or its clock has jumped, so all silence until
    /// `now` is its own.
    pub(super) fn restart(&mut self, now: LocalNs) {
        self.watched
            .iter_mut()
            .filter(|watched| watched.last_heard.is_some())
            .for_each(|watched| watched.last_heard = Some(now));
    }

    /// Returns whether everybody that was ever heard has been silent for too long.
    pub(super) fn is_alone(&self, now: LocalNs) -> bool {
        let heard = self.watched.iter().filter(|watched| watched.last_heard.is_some()).count();
        heard > 0 && self.overdue(now).count() == heard
    }

    /// Returns the members that have been silent for too long.
    pub(super) fn overdue(&self, now: LocalNs) -> impl Iterator<Item = RosterMember> + '_ {
        let [least, most] = [TIMEOUT << self.doublings, TIMEOUT_MAX]
            .map(|intervals| self.interval.times(intervals));
        let late = move |watched: &&WatchedMember| {
            let allowed = watched.gap.bound().clamp(least, most);
            watched.last_heard.is_some_and(|heard| now.since(heard) > allowed)
        };
        self.watched.iter().filter(late).map(|watched| watched.member)
    }
}

#[cfg(test)]
mod tests {
    use alloc::sync::Arc;

    use super::*;
    use crate::base::Rank;
    use crate::timeslice::layout::TimesliceLayout;
    use crate::timeslice::membership::{Change, Decision};

    fn journal(inputs: u32, builders: u32) -> Journal {
        let ranks = |range: core::ops::Range<u32>| range.map(Rank).collect();
        let layout = TimesliceLayout::new(ranks(0..inputs), ranks(inputs..inputs + builders), &[])
            .expect("a sound layout");
        Journal::new(&Arc::new(layout))
    }

    #[test]
    fn watchers__stand_apart_and_are_replaced() {
        let journal = journal(6, 6);
        assert_eq!(
            watchers(&journal, RosterMember(0)),
            [RosterMember(1), RosterMember(5), RosterMember(9)]
        );
        let change = Change::Remove { member: RosterMember(1), settled: 0 };
        let journal = journal.with(Decision { change, from: 0 }).expect("it is permitted");
        assert_eq!(
            watchers(&journal, RosterMember(0)),
            [RosterMember(2), RosterMember(5), RosterMember(9)]
        );
    }

    #[test]
    fn watchers__of_a_small_job_are_all_others() {
        let journal = journal(1, 2);
        assert_eq!(watchers(&journal, RosterMember(2)), [RosterMember(0), RosterMember(1)]);
    }

    #[test]
    fn overdue__after_three_intervals_and_later_for_who_was_irregular() {
        let mut watch = FailureDetector::new(Nanos(100));
        watch.turn_to(&journal(1, 1), RosterMember(0), LocalNs(0));
        let overdue = |watch: &FailureDetector, now| watch.overdue(LocalNs(now)).count();
        assert_eq!(overdue(&watch, 1_000_000), 0, "it has not begun");
        (1..10).for_each(|beat| watch.heartbeat_received(RosterMember(1), LocalNs(beat * 100)));
        assert_eq!((overdue(&watch, 1_200), overdue(&watch, 1_201)), (0, 1));
        watch.heartbeat_received(RosterMember(1), LocalNs(1_800));
        assert_eq!(overdue(&watch, 2_200), 0, "it was late before");
        watch.restart(LocalNs(9_000));
        assert_eq!(overdue(&watch, 9_300), 0);
        assert_eq!(overdue(&watch, 12_001), 1, "thirty intervals are too long for anybody");
    }

    #[test]
    fn heard__who_was_suspected_wrongly_doubles_the_silence_of_all_for_a_while() {
        let mut watch = FailureDetector::new(Nanos(100));
        watch.turn_to(&journal(1, 2), RosterMember(0), LocalNs(0));
        let mut now = 0;
        let mut beat = |watch: &mut FailureDetector, gap| {
            now += gap;
            [1, 2]
                .into_iter()
                .for_each(|member| watch.heartbeat_received(RosterMember(member), LocalNs(now)));
            now
        };
        (0..20).for_each(|_| {
            beat(&mut watch, 100);
        });
        beat(&mut watch, 301);
        let now = (0..40).map(|_| beat(&mut watch, 100)).last().unwrap_or(0);
        assert_eq!(watch.overdue(LocalNs(now + 600)).count(), 0);
        assert_eq!(watch.overdue(LocalNs(now + 601)).count(), 2);
        let now = (0..CALM).map(|_| beat(&mut watch, 100)).last().unwrap_or(0);
        assert_eq!(watch.overdue(LocalNs(now + 301)).count(), 2);
    }
}
