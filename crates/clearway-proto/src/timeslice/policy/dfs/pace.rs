//! An input's side: how far it may go now.
//!
//! # Model
//! With `d` the proposed duration of an interval of `R` rounds, round `r` may be sent from `start + r d / R` on. An input that is
//! behind sends without waiting until it has caught up; one that is ahead waits for the next round. Once the proposed end
//! has passed, or while there is no proposal (the first two intervals), everything may be sent.

use alloc::collections::BTreeMap;
use alloc::collections::VecDeque;

use super::{Dfs, Proposal, Report};
use crate::base::{LocalNs, Nanos, PeerNs};
use crate::clock::{Exchange, PeerClock};
use crate::timeslice::connection::Connections;
use crate::timeslice::policy::{Cause, Choice, InTurn, Sending};

/// Whose clock all inputs go by.
const REFERENCE: usize = 0;
/// Crystal oscillators of two computers drift apart by so many parts per billion at most: 50 parts per million each.
const DRIFT_MAX: u32 = 100_000;

/// An interval under way.
#[derive(Clone, Copy, Debug)]
struct Interval {
    index: u32,
    rounds: u32,
    first: u64,
    /// The first timeslice behind it.
    end: u64,
    /// Since the barrier, and for how long; none when nobody proposed anything.
    proposed: Option<(Nanos, Nanos)>,
    begun: Option<LocalNs>,
    sent: u64,
    acknowledged: u64,
}

impl Interval {
    fn length(&self) -> u64 {
        self.end - self.first
    }
}

/// An input that follows proposals.
#[derive(Debug)]
pub(in crate::timeslice) struct Paced {
    parameters: Dfs,
    builders: u64,
    barrier: LocalNs,
    /// The clock of the builder at [`REFERENCE`], which all times in reports and proposals are of.
    reference: PeerClock,
    asks: bool,
    /// It joined when the others had begun: its own barrier is none of theirs.
    joined: bool,
    turn: InTurn,
    current: Interval,
    /// The one before, until it is acknowledged.
    before: Option<Interval>,
    /// Timeslices below this one are not paced: they were dealt anew, and earlier ones may stand behind later ones.
    unpaced: u64,
    /// Of intervals to come: what was sent and acknowledged of them already, unpaced.
    ahead: BTreeMap<u64, [u64; 2]>,
    proposals: BTreeMap<u32, Proposal>,
    reports: VecDeque<Report>,
    wake: Option<LocalNs>,
}

impl Paced {
    /// The input at `place`, with so many builders.
    pub(in crate::timeslice) fn new(parameters: Dfs, place: usize, builders: usize) -> Self {
        let builders = builders as u64;
        let rounds = (parameters.interval / builders).max(1);
        let current = Interval {
            index: 0,
            rounds: rounds as u32,
            first: 0,
            end: rounds * builders,
            proposed: None,
            begun: None,
            sent: 0,
            acknowledged: 0,
        };
        Self {
            parameters,
            builders,
            barrier: LocalNs(0),
            reference: PeerClock::new(DRIFT_MAX),
            asks: false,
            joined: false,
            turn: InTurn::from(place),
            current,
            before: None,
            unpaced: 0,
            ahead: BTreeMap::new(),
            proposals: BTreeMap::new(),
            reports: VecDeque::new(),
            wake: None,
        }
    }

    /// Goes on to the next interval if the one under way is sent and acknowledged far enough.
    fn open_next(&mut self) {
        let current = self.current;
        let gate = current.length() * u64::from(self.parameters.gate) / 1000;
        if current.sent < current.length() || current.acknowledged < gate || self.before.is_some() {
            return;
        }
        let index = current.index + 1;
        let first_of = |proposal: Proposal| (proposal.rounds.max(1), Some((proposal.start, proposal.duration)));
        // Nobody proposed it in time: like the one before, and right behind it.
        let copied = (current.rounds, current.proposed.map(|(start, duration)| (start + duration, duration)));
        let (rounds, proposed) = self.proposals.remove(&index).map_or(copied, first_of);
        self.proposals = self.proposals.split_off(&index);
        let end = current.end + u64::from(rounds) * self.builders;
        self.before = Some(current).filter(|current| current.acknowledged < current.length());
        self.asks = true;
        let [sent, acknowledged] = self.ahead.remove(&current.end).unwrap_or_default();
        self.current = Interval { index, rounds, first: current.end, end, proposed, begun: None, sent, acknowledged };
    }

    /// The interval to come that `timeslice` belongs to, by its first one.
    fn later(&mut self, timeslice: u64) -> &mut [u64; 2] {
        let Interval { end, rounds, .. } = self.current;
        let length = u64::from(rounds) * self.builders;
        self.ahead.entry(end + (timeslice - end) / length * length).or_default()
    }

    /// The first timeslice that may not be sent yet, and when the next ones may.
    fn limit(&self, now: LocalNs) -> (u64, Option<LocalNs>) {
        let Interval { rounds, first, end, proposed, .. } = self.current;
        let Some((start, duration)) = proposed.filter(|(_, duration)| *duration > Nanos(0)) else { return (end, None) };
        // Before the first answer the barrier is what all have in common.
        let start = match self.reference.local(PeerNs(start.0)) {
            Some(reading) => reading.at,
            None if self.joined => return (end, None),
            None => self.barrier + start,
        };
        if now < start {
            return (first, Some(start));
        }
        let (rounds, passed) = (u64::from(rounds), now.since(start).0);
        let allowed = u128::from(passed) * u128::from(rounds) / u128::from(duration.0) + 1;
        let allowed = u64::try_from(allowed).unwrap_or(u64::MAX);
        if allowed >= rounds {
            return (end, None);
        }
        // Rounded up, so that the round is allowed when the time has come.
        let next = (u128::from(allowed) * u128::from(duration.0)).div_ceil(u128::from(rounds));
        (first + allowed * self.builders, Some(start + Nanos(next as u64)))
    }
}

impl Sending for Paced {
    fn began(&mut self, now: LocalNs) {
        self.barrier = now;
        self.asks = true;
    }

    fn joined(&mut self, first: u64) {
        let Interval { rounds, end: length, .. } = self.current;
        let index = first / length;
        let (begin, passed) = (index * length, first % length);
        let index = u32::try_from(index).unwrap_or(u32::MAX);
        let (proposed, begun) = (None, None);
        let end = begin + length;
        self.current =
            Interval { index, rounds, first: begin, end, proposed, begun, sent: passed, acknowledged: passed };
        self.joined = true;
    }

    fn asks(&mut self) -> Option<usize> {
        core::mem::take(&mut self.asks).then_some(REFERENCE)
    }

    fn answered(&mut self, place: usize, exchange: Exchange) {
        if place == REFERENCE {
            self.reference.take(exchange);
        }
    }

    fn choose(&mut self, now: LocalNs, connections: &Connections) -> Choice {
        self.open_next();
        let (limit, next) = self.limit(now);
        self.wake = None;
        let choice = self.turn.choose_below(limit.max(self.unpaced), connections);
        if choice == Choice::Blocked(Cause::Paced) {
            self.wake = next;
        }
        choice
    }

    fn redealt(&mut self, from: u64) {
        self.unpaced = from;
    }

    fn posted(&mut self, now: LocalNs, timeslice: u64) {
        self.turn.advance();
        if timeslice >= self.current.end {
            self.later(timeslice)[0] += 1;
            return;
        }
        self.current.sent += 1;
        self.current.begun.get_or_insert(now);
    }

    fn released(&mut self, now: LocalNs, timeslice: u64) {
        if timeslice >= self.current.end {
            self.later(timeslice)[1] += 1;
            return;
        }
        let interval = match &mut self.before {
            Some(before) if timeslice < before.end => before,
            _ => &mut self.current,
        };
        interval.acknowledged += 1;
        if interval.acknowledged < interval.length() {
            return;
        }
        let begun = interval.begun.unwrap_or(now);
        let Interval { index, rounds, end, .. } = *interval;
        let start = self.reference.peer(begun).map_or(begun.since(self.barrier), |reading| Nanos(reading.at.0));
        let duration = now.since(begun);
        self.reports.push_back(Report { interval: index, rounds, start, duration });
        if end <= self.current.first {
            self.before = None;
        }
    }

    fn proposed(&mut self, proposal: Proposal) {
        if proposal.interval > self.current.index {
            self.proposals.entry(proposal.interval).or_insert(proposal);
        }
    }

    fn report(&mut self) -> Option<Report> {
        self.reports.pop_front()
    }

    fn deadline(&self) -> Option<LocalNs> {
        self.wake
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn paced() -> Paced {
        let mut paced = Paced::new(Dfs { interval: 20, ..Dfs::default() }, 0, 4);
        paced.began(LocalNs(1_000));
        paced
    }

    /// An interval of five rounds of four timeslices, proposed for 2,000 ns after the barrier and to take 1,000 ns: a round each
    /// 200 ns, from 3,000 ns on.
    #[test]
    fn limit__rounds_are_let_go_one_after_the_other() {
        let mut paced = paced();
        paced.current.proposed = Some((Nanos(2_000), Nanos(1_000)));
        let limits = [
            (2_999, (0, Some(3_000))),
            (3_000, (4, Some(3_200))),
            (3_199, (4, Some(3_200))),
            (3_200, (8, Some(3_400))),
            (3_650, (16, Some(3_800))),
            (3_800, (20, None)),
            (9_000, (20, None)),
        ];
        for (now, (limit, next)) in limits {
            assert_eq!(paced.limit(LocalNs(now)), (limit, next.map(LocalNs)), "at {now}");
        }
    }

    /// The reference's clock shows 500,000 since its barrier where this one shows 10,000, and later 40,000 more than that.
    #[test]
    fn limit__goes_by_the_clock_of_the_reference_also_when_it_jumps() {
        let mut paced = paced();
        paced.current.proposed = Some((Nanos(502_000), Nanos(1_000)));
        let answer = |asked, shown| Exchange {
            asked: LocalNs(asked),
            heard: PeerNs(shown),
            answered: PeerNs(shown),
            back: LocalNs(asked),
        };
        assert_eq!(paced.asks(), Some(REFERENCE));
        paced.answered(REFERENCE + 1, answer(10_000, 7));
        paced.answered(REFERENCE, answer(10_000, 500_000));
        let begins = |paced: &Paced| paced.limit(LocalNs(11_000)).1.expect("it is to begin").0;
        assert!(begins(&paced).abs_diff(12_000) <= 1, "{}", begins(&paced));
        paced.answered(REFERENCE, answer(10_500, 460_500));
        assert!(begins(&paced).abs_diff(52_000) <= 5, "{}", begins(&paced));
        send_all(&mut paced, 52_000);
        (0..20).for_each(|timeslice| paced.released(LocalNs(53_000), timeslice));
        let report = paced.report().expect("the interval is over");
        assert!(report.start.0.abs_diff(502_000) <= 5, "{report:?}");
        assert_eq!((paced.asks(), report.duration), (None, Nanos(1_000)), "it asks when the next one opens");
        paced.open_next();
        assert_eq!(paced.asks(), Some(REFERENCE));
    }

    fn send_all(paced: &mut Paced, now: u64) {
        let Interval { first, end, .. } = paced.current;
        (first..end).for_each(|timeslice| paced.posted(LocalNs(now), timeslice));
    }

    #[test]
    fn open_next__waits_for_the_gate_and_takes_the_first_proposal() {
        let mut paced = paced();
        paced.parameters.gate = 700;
        send_all(&mut paced, 1_100);
        (0..13).for_each(|timeslice| paced.released(LocalNs(1_500), timeslice));
        paced.open_next();
        assert_eq!(paced.current.index, 0, "13 of 20 are less than 70 %");
        paced.released(LocalNs(1_600), 13);
        paced.open_next();
        assert_eq!((paced.current.index, paced.current.first, paced.current.proposed), (1, 20, None));
        let proposal = |duration| Proposal { interval: 2, rounds: 3, start: Nanos(5_000), duration: Nanos(duration) };
        paced.proposed(proposal(900));
        paced.proposed(proposal(100));
        send_all(&mut paced, 2_000);
        (20..40).for_each(|timeslice| paced.released(LocalNs(2_500), timeslice));
        paced.open_next();
        assert_eq!(paced.current.index, 1, "interval 0 is not acknowledged completely");
        (14..20).for_each(|timeslice| paced.released(LocalNs(2_600), timeslice));
        paced.open_next();
        assert_eq!((paced.current.index, paced.current.first, paced.current.end), (2, 40, 52));
        assert_eq!(paced.current.proposed, Some((Nanos(5_000), Nanos(900))));
        let reports: alloc::vec::Vec<_> = core::iter::from_fn(|| paced.report()).collect();
        let report =
            |interval, start, duration| Report { interval, rounds: 5, start: Nanos(start), duration: Nanos(duration) };
        assert_eq!(reports, [report(1, 1_000, 500), report(0, 100, 1_500)]);
    }

    #[test]
    fn open_next__without_a_proposal_the_last_one_is_copied_behind_itself() {
        let mut paced = paced();
        paced.current.proposed = Some((Nanos(500), Nanos(300)));
        send_all(&mut paced, 2_000);
        (0..20).for_each(|timeslice| paced.released(LocalNs(2_500), timeslice));
        paced.open_next();
        assert_eq!(paced.current.proposed, Some((Nanos(800), Nanos(300))));
    }
}
