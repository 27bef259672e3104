//! An input's side: how far it may go now.
//!
//! # Model
//! With `d` the proposed duration of an interval of `R` rounds, round `r` may be sent from `start +
//! r d / R` on. An input that is behind sends without waiting until it has caught up; one that is
//! ahead waits for the next round. Once the proposed end has passed, or while there is no proposal
//! (the first two intervals), everything may be sent.
//!
//! A proposal is disregarded when it begins more than two of its durations from now. An interval
//! begins two durations behind the beginning of one that is over, so no sound one can: it is of a
//! clock that is not read any more. That happens when the builder whose clock all go by is another
//! process, whose barrier is a later one.
//!
//! Where intervals begin follows from the deals ([`Deal`]), so that all inputs agree on it: an
//! interval has as many whole rounds as the scheduler's constants say, and ends early where
//! timeslices were dealt anew. A timeslice that is inherited from a builder that was removed
//! belongs to the interval that ends there.
//!
//! A builder that is too slow for all of its turns has fewer of them from some timeslice on, and
//! much of what was dealt before to catch up with. It is *relieved*: contributions to it leave in
//! turn as well, but they count in no interval, so that none waits for it. Where builders' shares
//! have changed, earlier intervals say nothing about later ones: the next two are as the first two
//! of all.
//!
//! An interval in which something was decided took as long as the decision did. It is reported as
//! *disturbed*, and no later one is proposed to take as long: with a pace nobody would find out
//! that it can be quicker.

use alloc::collections::{BTreeMap, VecDeque};
use alloc::vec::Vec;

use super::{DISTURBED, Dfs, IntervalReport, Proposal};
use crate::base::{LocalNs, Nanos, PeerNs};
use crate::clock::{ClockExchange, PeerClock};
use crate::timeslice::membership::Deal;
use crate::timeslice::policy::{Cause, Choice, RoundRobin, Sending, TurnView};

/// Whose clock all inputs go by.
const REFERENCE: usize = 0;
/// Parts per billion by which crystal oscillators of two computers drift apart, at most: 50 parts
/// per million each.
const DRIFT_MAX: u32 = 100_000;

/// Intervals ahead of which proposals are kept: builders propose the one after the next.
const PROPOSALS_MAX: u32 = 8;

/// Where an interval lies.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct IntervalExtent {
    index: u32,
    first: u64,
    /// The first timeslice behind it.
    end: u64,
    /// Timeslices of one round.
    round: u64,
}

impl IntervalExtent {
    /// Creates the interval of `timeslice`, where timeslices are dealt by `deals` and an interval
    /// has about `length`.
    fn new(deals: &[Deal], interval: u64, timeslice: u64) -> Self {
        let mut before = 0;
        let ends = deals.iter().skip(1).map(|next| next.from).chain([u64::MAX]);
        for (deal, until) in deals.iter().zip(ends) {
            let length = (interval / deal.round).max(1) * deal.round;
            if timeslice < until {
                let number = (timeslice - deal.from) / length;
                let first = deal.from + number * length;
                let index = u32::try_from(before + number).unwrap_or(u32::MAX);
                return Self {
                    index,
                    first,
                    end: first.saturating_add(length).min(until),
                    round: deal.round,
                };
            }
            before += (until - deal.from).div_ceil(length);
        }
        Self { index: u32::MAX, first: timeslice, end: u64::MAX, round: 1 }
    }

    /// Returns how many rounds it has, the last of which may be short.
    fn rounds(&self) -> u32 {
        u32::try_from((self.end - self.first).div_ceil(self.round)).unwrap_or(u32::MAX)
    }
}

/// Returns the first interval since builders' shares last changed.
pub(super) fn first_since_weighed(deals: &[Deal], interval: u64) -> u32 {
    let last = deals.iter().rfind(|deal| deal.is_weighed);
    last.map_or(0, |deal| IntervalExtent::new(deals, interval, deal.from).index)
}

/// An interval under way.
#[derive(Clone, Copy, Debug, Default)]
struct Interval {
    extent: IntervalExtent,
    /// What was proposed for it, or for the one before; none when nobody proposed anything.
    proposed: Option<Proposal>,
    begun: Option<LocalNs>,
    /// Of this input's contributions: all, those that were not sent, and those that were not
    /// acknowledged.
    total: u64,
    unsent: u64,
    unacknowledged: u64,
    reported: bool,
    /// Something was decided while it was under way.
    is_disturbed: bool,
}

impl Interval {
    /// Counts anew after other dealing: this many are not sent, and not acknowledged.
    fn recount(&mut self, unsent: u64, unacknowledged: u64) {
        self.total = self.total - self.unacknowledged + unacknowledged;
        (self.unsent, self.unacknowledged) = (unsent, unacknowledged);
    }
}

/// An input that follows proposals.
#[derive(Debug)]
pub(in crate::timeslice) struct Paced {
    parameters: Dfs,
    barrier: LocalNs,
    /// The clock of the builder at [`REFERENCE`], which all times in reports and proposals are of.
    reference: PeerClock,
    asks: bool,
    /// It joined when the others had begun: its own barrier is none of theirs.
    joined: bool,
    /// Of each builder: whether it counts in intervals.
    counts: Vec<bool>,
    /// The first interval since builders' shares last changed.
    fresh: u32,
    turn: RoundRobin,
    /// None before anything was dealt.
    current: Option<Interval>,
    /// The one before, until it is acknowledged.
    before: Option<Interval>,
    proposals: BTreeMap<u32, Proposal>,
    reports: VecDeque<IntervalReport>,
    wake: Option<LocalNs>,
}

impl Paced {
    /// Creates the input at `place`.
    pub(in crate::timeslice) fn new(parameters: Dfs, place: usize) -> Self {
        Self {
            parameters,
            barrier: LocalNs(0),
            reference: PeerClock::new(DRIFT_MAX),
            asks: false,
            joined: false,
            counts: Vec::new(),
            fresh: 0,
            turn: RoundRobin::from(place),
            current: None,
            before: None,
            proposals: BTreeMap::new(),
            reports: VecDeque::new(),
            wake: None,
        }
    }

    /// Returns the interval at `extent`, of which nothing was sent.
    fn opened(
        &self,
        extent: IntervalExtent,
        proposed: Option<Proposal>,
        view: &dyn TurnView,
    ) -> Interval {
        let total = self.sum(|place| view.unsent_before(place, extent.end));
        Interval {
            extent,
            proposed,
            total,
            unsent: total,
            unacknowledged: total,
            ..Interval::default()
        }
    }

    /// Adds up what counts.
    fn sum(&self, count: impl Fn(usize) -> u64) -> u64 {
        let places = self.counts.iter().enumerate().filter(|(_, counts)| **counts);
        places.map(|(place, _)| count(place)).sum()
    }

    /// Returns whether the builder at `place` counts in intervals.
    fn counts(&self, place: usize) -> bool {
        self.counts.get(place).copied().unwrap_or(true)
    }

    /// Returns whether a proposal for `interval` may rest on other shares than those of now.
    fn is_stale(&self, interval: u32) -> bool {
        self.fresh > 0 && (self.fresh..self.fresh.saturating_add(2)).contains(&interval)
    }

    /// Returns whether the interval under way is sent, and acknowledged to the gate.
    fn is_through(&self) -> bool {
        let acknowledged = |current: &Interval| current.total - current.unacknowledged;
        let gate = |current: &Interval| current.total * u64::from(self.parameters.gate) / 1000;
        let through =
            |current: &Interval| current.unsent == 0 && acknowledged(current) >= gate(current);
        self.before.is_none() && self.current.as_ref().is_some_and(through)
    }

    /// Returns the first timeslice of the next interval that is to be opened behind `end`; none where
    /// nothing is left. Without anything for those that count, intervals that have nothing for the
    /// others either are passed over: they would all be through at once.
    fn next_first(&self, view: &dyn TurnView, end: u64) -> Option<u64> {
        let turns = || (0..view.builders()).filter_map(|place| Some((place, view.turn_of(place)?)));
        if turns().any(|(place, _)| self.counts(place)) {
            return Some(end);
        }
        turns().map(|(_, turn)| turn).min().filter(|turn| *turn >= end)
    }

    /// Goes on to the next interval in which this input has something, if the one under way is far
    /// enough.
    fn open_next(&mut self, view: &dyn TurnView) {
        while self.is_through()
            && let Some(current) = self.current
            && let Some(first) = self.next_first(view, current.extent.end)
        {
            let extent = IntervalExtent::new(view.deals(), self.parameters.interval, first);
            // Nobody proposed it in time: like the one before, and right behind it.
            let behind = |last: Proposal| Proposal { start: last.start + last.duration, ..last };
            let last = current.proposed.filter(|_| !self.is_stale(extent.index));
            let proposed = self.proposals.remove(&extent.index).or(last.map(behind));
            self.proposals = self.proposals.split_off(&extent.index);
            self.before = Some(current).filter(|current| current.unacknowledged > 0);
            self.asks = true;
            self.current = Some(self.opened(extent, proposed, view));
            // A round that was cut short has left everybody at the same builder.
            self.turn.restart();
        }
    }

    /// Returns when the interval of `proposal` begins on this clock, and the error of that; none
    /// where that is not known.
    fn beginning(&self, proposal: Proposal) -> Option<(LocalNs, Nanos)> {
        match self.reference.local(PeerNs(proposal.start.0)) {
            Some(reading) => Some((reading.at, reading.error)),
            // Before the first answer the barrier is what all have in common.
            None if self.joined => None,
            None => Some((self.barrier + proposal.start, Nanos(0))),
        }
    }

    /// Forgets the proposal for the interval under way if it is of another clock.
    fn forget_foreign(&mut self, now: LocalNs) {
        let Some(proposal) = self.current.and_then(|current| current.proposed) else { return };
        let wait = self
            .beginning(proposal)
            .map_or(Nanos(0), |(start, error)| Nanos(start.since(now).0.saturating_sub(error.0)));
        if wait.0 > proposal.duration.0.saturating_mul(2)
            && let Some(current) = &mut self.current
        {
            current.proposed = None;
        }
    }

    /// Returns the first timeslice that may not be sent yet, and when the next ones may.
    fn limit(&self, now: LocalNs) -> (u64, Option<LocalNs>) {
        let Some(Interval { extent: IntervalExtent { first, end, round, .. }, proposed, .. }) =
            self.current
        else {
            return (0, None);
        };
        let Some(proposal) = proposed.filter(|proposal| proposal.duration > Nanos(0)) else {
            return (end, None);
        };
        let Some((start, _)) = self.beginning(proposal) else { return (end, None) };
        if now < start {
            return (first, Some(start));
        }
        let (rounds, duration) =
            (u128::from(proposal.rounds.max(1)), u128::from(proposal.duration.0));
        let allowed = u128::from(now.since(start).0) * rounds / duration + 1;
        let allowed = u64::try_from(allowed).unwrap_or(u64::MAX);
        let limit = first.saturating_add(allowed.saturating_mul(round));
        if limit >= end {
            return (end, None);
        }
        // Rounded up, so that the round is allowed when the time has come.
        let next = (u128::from(allowed) * duration).div_ceil(rounds);
        (limit, Some(start + Nanos(next as u64)))
    }

    /// Reports intervals of which everything is acknowledged.
    fn settle(&mut self, now: LocalNs) {
        for interval in [&mut self.before, &mut self.current].into_iter().flatten() {
            let Interval { extent, begun, total, unacknowledged, reported, is_disturbed, .. } =
                *interval;
            if unacknowledged > 0 || total == 0 || reported {
                continue;
            }
            interval.reported = true;
            let begun = begun.unwrap_or(now);
            let start = self
                .reference
                .peer(begun)
                .map_or(begun.since(self.barrier), |reading| Nanos(reading.at.0));
            let duration =
                if is_disturbed { DISTURBED } else { now.since(begun).max(Nanos(DISTURBED.0 + 1)) };
            self.reports.push_back(IntervalReport {
                interval: extent.index,
                rounds: extent.rounds(),
                start,
                duration,
            });
        }
        self.before = self.before.take_if(|before| before.unacknowledged > 0);
    }
}

impl Sending for Paced {
    fn began(&mut self, now: LocalNs) {
        self.barrier = now;
        self.asks = true;
    }

    fn redealt(&mut self, now: LocalNs, view: &dyn TurnView) {
        let deals = view.deals();
        let before = self.before.map(|before| before.extent.end);
        // What is known of builders that counted and count no more goes with them.
        self.counts = (0..view.builders()).map(|place| !view.is_relieved(place)).collect();
        self.fresh = first_since_weighed(deals, self.parameters.interval);
        let fresh = self.fresh;
        self.proposals.retain(|interval, _| fresh == 0 || !(fresh..=fresh + 1).contains(interval));
        let Some(mut current) = self.current else {
            let first = view.first();
            self.joined = first > 0;
            let extent = IntervalExtent::new(deals, self.parameters.interval, first);
            self.current = Some(self.opened(extent, None, view));
            return;
        };
        let unreleased_before = |end| self.sum(|place| view.unreleased_before(place, end));
        let ended = before.map_or(0, unreleased_before);
        current.extent = IntervalExtent::new(deals, self.parameters.interval, current.extent.first);
        let unsent = self.sum(|place| view.unsent_before(place, current.extent.end));
        let unreleased = unreleased_before(current.extent.end) - ended;
        current.recount(unsent, unsent + unreleased);
        current.reported &= current.unacknowledged == 0;
        current.is_disturbed = true;
        current.proposed = current.proposed.filter(|_| !self.is_stale(current.extent.index));
        self.current = Some(current);
        if let Some(before) = &mut self.before {
            before.recount(0, ended);
            before.is_disturbed = true;
        }
        self.settle(now);
    }

    fn asks(&mut self) -> Option<usize> {
        core::mem::take(&mut self.asks).then_some(REFERENCE)
    }

    fn answered(&mut self, place: usize, exchange: ClockExchange) {
        if place == REFERENCE {
            self.reference.take(exchange);
        }
    }

    fn choose(&mut self, now: LocalNs, view: &dyn TurnView) -> Choice {
        self.open_next(view);
        self.forget_foreign(now);
        let (limit, next) = self.limit(now);
        self.wake = None;
        let choice = self.turn.choose_below(limit, view);
        if choice == Choice::Blocked(Cause::Paced) {
            self.wake = next;
        }
        choice
    }

    fn posted(&mut self, now: LocalNs, _turn: u64) {
        self.turn.advance();
        let counts = self.counts(self.turn.chosen());
        if let Some(current) = self.current.as_mut().filter(|_| counts) {
            current.unsent = current.unsent.saturating_sub(1);
            current.begun.get_or_insert(now);
        }
    }

    fn released(&mut self, now: LocalNs, place: usize, turn: u64) {
        if !self.counts(place) {
            return;
        }
        let before = self.before.as_mut().filter(|before| turn < before.extent.end);
        if let Some(interval) = before.or(self.current.as_mut()) {
            interval.unacknowledged = interval.unacknowledged.saturating_sub(1);
            self.settle(now);
        }
    }

    fn proposed(&mut self, proposal: Proposal) {
        let index = self.current.map_or(0, |current| current.extent.index);
        let is_next = (1..=PROPOSALS_MAX).contains(&proposal.interval.saturating_sub(index));
        if is_next && !self.is_stale(proposal.interval) {
            self.proposals.entry(proposal.interval).or_insert(proposal);
        }
    }

    fn report(&mut self) -> Option<IntervalReport> {
        self.reports.pop_front()
    }

    fn deadline(&self) -> Option<LocalNs> {
        self.wake
    }
}

#[cfg(test)]
mod tests;
