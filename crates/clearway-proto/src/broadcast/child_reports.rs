//! What the members below this one have reported, merged into one report however many they are.
//!
//! # Invariants
//! I1. A merged report claims nothing that a member below has not reported in this view, and says
//!     how many it is about.

use alloc::vec::Vec;

use super::frame::ProgressReport;
use crate::base::{LocalNs, Nanos, Smoothed};

/// Polls whose time is remembered.
const POLLS: usize = 16;
/// Round trips before the first one was measured: that of a local network.
const FIRST_TRIP: Nanos = Nanos::from_micros(200);
/// The shortest that is acted on: an adapter's and a scheduler's own jitter.
const SHORTEST_TRIP: Nanos = Nanos::from_micros(40);

/// One member that reports here, for itself and those below it.
#[derive(Clone, Copy, Debug)]
struct Child {
    place: u16,
    report: Option<ProgressReport>,
    poll: u16,
    heard: LocalNs,
}

/// All of them.
#[derive(Debug)]
pub(super) struct ChildReports {
    children: Vec<Child>,
    polls: [(u16, LocalNs); POLLS],
    /// The last poll.
    poll: u16,
    /// Time from a poll to its answer.
    trip: Option<Smoothed>,
    /// The root's own, for those to whom nobody reports.
    given_trip: Option<Nanos>,
    /// How long a child may be silent before the others go on without it.
    timeout: Option<Nanos>,
}

/// Returns whether poll `a` is later than poll `b`.
pub(super) const fn is_later(a: u16, b: u16) -> bool {
    let ahead = a.wrapping_sub(b);
    ahead != 0 && ahead < 1 << 15
}

impl ChildReports {
    pub(super) const fn new(timeout: Option<Nanos>) -> Self {
        Self {
            children: Vec::new(),
            polls: [(0, LocalNs(0)); POLLS],
            poll: 0,
            trip: None,
            given_trip: None,
            timeout,
        }
    }

    /// Sets the members that report here from now on; nothing that was reported in another view
    /// counts.
    pub(super) fn children_alive(&mut self, children: &[u16], now: LocalNs) {
        self.children.clear();
        self.children.extend(children.iter().map(|place| Child {
            place: *place,
            report: None,
            poll: 0,
            heard: now,
        }));
    }

    /// Returns the last poll.
    pub(super) const fn poll(&self) -> u16 {
        self.poll
    }

    /// Records that a poll was asked or heard at `at`, later than the last one.
    pub(super) fn polled(&mut self, poll: u16, at: LocalNs) {
        self.poll = poll;
        self.polls[usize::from(poll) % POLLS] = (poll, at);
    }

    /// Records a sign of life from `place`.
    pub(super) fn alive(&mut self, place: u16, now: LocalNs) {
        if let Some(child) = self.children.iter_mut().find(|child| child.place == place) {
            child.heard = now;
        }
    }

    /// Begins all silences anew: after this node itself stood still it is not the others that were
    /// silent.
    pub(super) fn reset_silence(&mut self, now: LocalNs) {
        self.children.iter_mut().for_each(|child| child.heard = now);
    }

    /// Takes a report in; false when `place` does not report here.
    pub(super) fn take(
        &mut self,
        place: u16,
        poll: u16,
        report: ProgressReport,
        now: LocalNs,
    ) -> bool {
        let (asked, at) = self.polls[usize::from(poll) % POLLS];
        let Some(child) = self.children.iter_mut().find(|child| child.place == place) else {
            return false;
        };
        if child.report.is_some() && is_later(child.poll, poll) {
            return true;
        }
        // A report that only grows may come in another order than it left.
        let merged = child.report.map_or(report, |old| old.latest(&report));
        child.report = Some(merged);
        let is_first = poll != 0 && child.poll != poll && asked == poll && now >= at;
        child.poll = poll;
        if is_first {
            self.waited(now.since(at));
        }
        true
    }

    /// Records how long something that was asked for took to come.
    pub(super) fn waited(&mut self, sample: Nanos) {
        self.trip = Some(Smoothed::after(self.trip, sample));
    }

    /// Records how long a round trip is, as the root says.
    pub(super) fn record_trip(&mut self, trip: Nanos) {
        self.given_trip = Some(trip);
    }

    /// Returns whether all have answered the last poll.
    pub(super) fn all_answered(&self) -> bool {
        self.children.iter().all(|child| child.report.is_some() && child.poll == self.poll)
    }

    /// Returns the members that have not answered the last poll.
    pub(super) fn unanswered(&self) -> impl Iterator<Item = u16> + '_ {
        self.children
            .iter()
            .filter(|child| child.report.is_none() || child.poll != self.poll)
            .map(|child| child.place)
    }

    /// Returns the members that have been silent for longer than `silence`.
    pub(super) fn silent(&self, silence: Nanos, now: LocalNs) -> impl Iterator<Item = u16> + '_ {
        self.children
            .iter()
            .filter(move |child| now.since(child.heard) > silence)
            .map(|child| child.place)
    }

    /// Polls are counted anew: another root asks.
    pub(super) fn forget_polls(&mut self) {
        self.poll = 0;
        self.polls = [(0, LocalNs(0)); POLLS];
    }

    /// Returns all reports and this node's `own` in one.
    pub(super) fn merged(
        &self,
        own: Option<ProgressReport>,
        now: LocalNs,
    ) -> Option<ProgressReport> {
        let parked =
            |child: &Child| self.timeout.is_some_and(|timeout| now.since(child.heard) > timeout);
        let below = self.children.iter().filter_map(|child| {
            let report = child.report?;
            Some(if parked(child) {
                ProgressReport { received: u64::MAX, ..report }
            } else {
                report
            })
        });
        own.into_iter().chain(below).reduce(|a, b| a.with(&b))
    }

    /// Returns the least that those of these `places` who report here, and who report to them, have
    /// heard of the group.
    pub(super) fn least_received(&self, is_of: impl Fn(u16) -> bool) -> Option<u32> {
        let of = self.children.iter().filter(|child| is_of(child.place));
        of.filter_map(|child| child.report.map(|report| report.heard)).min()
    }

    /// Forgets what was lost and marked: it is acted on, or reported, once.
    pub(super) fn consume(&mut self) {
        for report in self.children.iter_mut().filter_map(|child| child.report.as_mut()) {
            (report.lost, report.marked) = (0, 0);
        }
    }

    /// Returns a round trip to those below.
    pub(super) fn trip(&self) -> Nanos {
        self.trip.map(|trip| trip.mean).or(self.given_trip).unwrap_or(FIRST_TRIP).max(SHORTEST_TRIP)
    }

    /// Returns how long an answer may take (RFC 6298 with a floor for local networks).
    pub(super) fn time_out(&self) -> Nanos {
        self.trip.unwrap_or_else(|| Smoothed::first(self.trip())).bound().max(Nanos::from_millis(2))
    }
}

impl ProgressReport {
    /// Returns the same member's report, where `later` came after this one. Within a view a report
    /// is about more and more members: what one says that is about fewer is not said of the others.
    fn latest(&self, later: &Self) -> Self {
        if later.alive != self.alive {
            return if later.alive > self.alive { *later } else { *self };
        }
        Self {
            stable: self.stable.max(later.stable),
            known: self.known.max(later.known),
            slots: self.slots.max(later.slots),
            places: self.places.max(later.places),
            settled: self.settled || later.settled,
            ..*later
        }
    }

    /// Returns what is true of the members of both.
    fn with(&self, other: &Self) -> Self {
        let slowest = if other.stable < self.stable { other.slowest } else { self.slowest };
        Self {
            received: self.received.min(other.received),
            stable: self.stable.min(other.stable),
            known: self.known.min(other.known),
            slots: self.slots.min(other.slots),
            places: self.places.min(other.places),
            alive: self.alive.saturating_add(other.alive),
            heard: self.heard.min(other.heard),
            slowest,
            lost: self.lost.max(other.lost),
            losing: self.losing.saturating_add(other.losing),
            marked: self.marked.max(other.marked),
            settled: self.settled && other.settled,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn report(stable: u64, slowest: u16) -> ProgressReport {
        ProgressReport {
            received: stable,
            stable,
            known: 1,
            slots: 5,
            places: 5,
            alive: 1,
            heard: 9,
            slowest,
            lost: stable as u32,
            losing: 1,
            marked: 0,
            settled: true,
        }
    }

    #[test]
    fn merged__is_the_least_of_all_and_names_the_last() {
        let mut reports = ChildReports::new(Some(Nanos(100)));
        reports.children_alive(&[4, 7], LocalNs(0));
        assert_eq!(reports.merged(None, LocalNs(0)), None);
        assert!(
            reports.take(4, 0, report(30, 4), LocalNs(50))
                && reports.take(7, 0, report(10, 7), LocalNs(50))
        );
        assert!(!reports.take(5, 0, report(30, 5), LocalNs(50)), "it does not report here");
        reports.alive(4, LocalNs(200));
        reports.alive(7, LocalNs(50));
        let merged = reports.merged(Some(report(20, 1)), LocalNs(150)).expect("three reports");
        assert_eq!(
            (
                merged.received,
                merged.stable,
                merged.slowest,
                merged.alive,
                merged.lost,
                merged.losing
            ),
            (10, 10, 7, 3, 30, 3)
        );
        let merged = reports.merged(Some(report(20, 1)), LocalNs(151)).expect("three reports");
        assert_eq!(
            (merged.received, merged.stable),
            (20, 10),
            "7 was silent for too long, and is not waited for"
        );
    }

    #[test]
    fn take__a_report_about_fewer_members_says_nothing_of_the_others() {
        let mut reports = ChildReports::new(None);
        reports.children_alive(&[4], LocalNs(0));
        let merged = |reports: &ChildReports| {
            reports.merged(None, LocalNs(0)).map(|merged| (merged.stable, merged.alive))
        };
        assert!(reports.take(4, 1, report(35, 4), LocalNs(10)));
        assert!(reports.take(4, 2, ProgressReport { alive: 2, ..report(7, 6) }, LocalNs(20)));
        assert_eq!(merged(&reports), Some((7, 2)), "one below it has reported since, and has less");
        assert!(reports.take(4, 2, report(35, 4), LocalNs(30)));
        assert_eq!(merged(&reports), Some((7, 2)), "overtaken on the way");
    }

    #[test]
    fn take__the_first_answer_to_a_poll_measures_the_way() {
        let mut reports = ChildReports::new(None);
        reports.children_alive(&[4], LocalNs(0));
        reports.polled(1, LocalNs(1_000));
        assert!(!reports.all_answered());
        assert!(reports.take(4, 1, report(1, 4), LocalNs(101_000)) && reports.all_answered());
        assert_eq!(reports.trip(), Nanos(100_000));
        assert!(reports.take(4, 1, report(1, 4), LocalNs(900_000)), "again, when more had come");
        assert_eq!(reports.trip(), Nanos(100_000));
        reports.polled(2, LocalNs(1_000_000));
        assert!(reports.take(4, 1, report(2, 4), LocalNs(1_100_000)) && !reports.all_answered());
        assert!(is_later(1, u16::MAX) && !is_later(u16::MAX, 1) && !is_later(3, 3));
    }
}
