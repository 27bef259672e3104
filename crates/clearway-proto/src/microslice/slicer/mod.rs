//! Cuts the microslices of one input into its components of timeslices.
//!
//! # Model
//! The source offers microslices in its own order. Kept microslices get consecutive numbers from
//! zero. A *cut* is the range of numbers in the component of a timeslice.
//!
//! By index, timeslice `t` has `core + overlap` microslices from number `t * core` on. By time,
//! experiment time is divided into stretches of `duration`, and the timeslice has the microslices
//! whose start lies in
//! ```text
//!   [k * duration - before, (k + 1) * duration + after)      k = origin + t
//! ```
//! Only the start of a microslice counts. So a microslice is in the stretch of one timeslice, whose
//! *core* it belongs to, and may be in the overlap of neighbours. A cut is made when a younger
//! microslice arrives, when the source ends, or when the source is silent. For a silent source, the
//! experiment time is estimated from its newest microslice and the local time since then. The cut
//! is made when this time is later than the end of the stretch by [`TimeRule::silence`].
//!
//! A microslice with the start of an earlier one is repeated. An older one is late, and so is one
//! that arrives after its timeslice was cut. One that starts more than [`TimeRule::max_gap`] after
//! the one before it has a damaged start. None of these is kept.
//!
//! # Source
//! FLESnet's sub-timeslices (`stserver`), which cut by time and decide availability the same way.
//! FLESnet leaves an incomplete component out; here it has the microslices that arrived.
//!
//! # Invariants
//! I1. Each offered microslice has one outcome ([`Offered`]).
//! I2. Each microslice that is kept is in the core of one timeslice, or older than the first one.
//!
//! # Not here
//! Contents: the caller keeps them under the same numbers.

mod gaps;
#[cfg(test)]
mod tests;

use alloc::collections::{BTreeMap, VecDeque};
use core::ops::Range;

use serde::{Deserialize, Serialize};

use self::gaps::{GapList, MicrosliceStep};
use crate::base::{LocalNs, Nanos};

/// How timeslices are cut.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum SliceRule {
    /// By the number of microslices.
    ByIndex {
        /// Microslices that are of no other timeslice.
        core: u32,
        /// Microslices behind them, with which the next timeslice begins.
        overlap: u32,
    },
    /// By the start of microslices.
    ByTime(TimeRule),
}

/// Timeslices by time. All times are of the experiment, but for `silence`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct TimeRule {
    /// The stretch of a timeslice, positive.
    pub duration: Nanos,
    /// How much of the time before its stretch a timeslice has as well.
    pub before: Nanos,
    /// How much of the time behind it.
    pub after: Nanos,
    /// How far a microslice may start behind the one before it.
    pub max_gap: Nanos,
    /// How long behind the end of its stretch a component is waited for, while the source gives
    /// nothing; for ever without it.
    pub silence: Option<Nanos>,
    /// The time from the start of a microslice to that of the next one; learned without it.
    pub step: Option<Nanos>,
}

impl TimeRule {
    /// Returns the number of the stretch in which `start` lies.
    pub fn stretch_of(&self, start: u64) -> u64 {
        start / self.duration.0.max(1)
    }

    /// Returns the start of stretch `number`.
    pub fn start_of(&self, number: u64) -> u64 {
        number.saturating_mul(self.duration.0.max(1))
    }

    /// Returns the stretch `number` with its overlaps.
    fn span_of(&self, number: u64) -> Range<u64> {
        let core = self.core_of(number);
        core.start.saturating_sub(self.before.0)..core.end.saturating_add(self.after.0)
    }

    fn core_of(&self, number: u64) -> Range<u64> {
        self.start_of(number)..self.start_of(number.saturating_add(1))
    }
}

/// What becomes of a microslice that was offered.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Offered {
    /// It is kept, under the next number.
    Kept,
    /// It belongs to a timeslice in which this input takes no part.
    Passed,
    /// One with the same start was kept.
    Repeated,
    /// It came behind a younger one, or after its timeslice was given up.
    Late,
    /// Its start is too far from that of the one before it.
    Damaged,
}

/// What is wrong with a component.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct CutFaults(pub u32);

impl CutFaults {
    /// Microslices are missing in it.
    pub const MISSING: Self = Self(1);
    /// Microslices of its stretch came twice; the first one was kept.
    pub const REPEATED: Self = Self(2);
    /// Microslices of its stretch came too late, and are not in it.
    pub const LATE: Self = Self(4);

    /// Returns whether all bits of `other` are set.
    pub const fn has(self, other: Self) -> bool {
        self.0 & other.0 == other.0
    }
}

/// One component.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SliceCut {
    /// Of this timeslice, from zero.
    pub timeslice: u64,
    /// The numbers of its microslices.
    pub microslices: Range<u64>,
    /// Those of them that are in no other timeslice's core.
    pub core: Range<u64>,
    /// What is wrong.
    pub faults: CutFaults,
    /// Microslices that its core lacks because the source had none there.
    pub missing: u64,
    /// Microslices that its core lacks because the source dropped them.
    pub dropped: u64,
}

impl SliceCut {
    /// Returns whether it is marked as lacking microslices although none is counted in its core:
    /// an overlap lacks some, or the source never showed the step from which to count.
    pub const fn is_short(&self) -> bool {
        self.faults.has(CutFaults::MISSING) && self.missing == 0 && self.dropped == 0
    }
}

/// Cuts the stream of one input.
#[derive(Debug)]
pub struct Slicer {
    rule: SliceRule,
    /// The stretch of timeslice zero, once that is known.
    origin: Option<u64>,
    /// The next timeslice to cut.
    next: u64,
    /// The first timeslice in which this input takes part since it last joined.
    joined: u64,
    /// Starts of microslices that are kept, from number `first` on.
    starts: VecDeque<u64>,
    first: u64,
    newest: Option<u64>,
    /// The first start that was kept.
    oldest: Option<u64>,
    /// The time up to which nothing more comes, because it was seen or given up.
    horizon: u64,
    newest_at: LocalNs,
    is_over: bool,
    step: MicrosliceStep,
    gaps: GapList,
    /// Microslices that the source dropped behind the newest one.
    dropped: u64,
    /// Faults of timeslices to come.
    faults: BTreeMap<u64, CutFaults>,
}

impl Slicer {
    /// Creates a `Slicer` that begins with timeslice zero.
    pub fn new(rule: SliceRule) -> Self {
        let step = match rule {
            SliceRule::ByTime(TimeRule { step, .. }) => step,
            SliceRule::ByIndex { .. } => None,
        };
        Self {
            rule,
            origin: None,
            next: 0,
            joined: 0,
            starts: VecDeque::new(),
            first: 0,
            newest: None,
            oldest: None,
            horizon: 0,
            newest_at: LocalNs(0),
            is_over: false,
            step: MicrosliceStep::new(step),
            gaps: GapList::default(),
            dropped: 0,
            faults: BTreeMap::new(),
        }
    }

    /// Returns whether microslices can be offered: by time, the origin has to be known.
    pub const fn is_ready(&self) -> bool {
        self.origin.is_some() || matches!(self.rule, SliceRule::ByIndex { .. })
    }

    /// Sets the stretch of timeslice zero; nothing where it is set, or cut by index.
    pub fn set_origin(&mut self, now: LocalNs, stretch: u64) {
        if let (SliceRule::ByTime(_), None) = (self.rule, self.origin) {
            (self.origin, self.newest_at) = (Some(stretch), now);
        }
    }

    /// Returns the stretch of timeslice zero, once that is known.
    pub const fn origin(&self) -> Option<u64> {
        self.origin
    }

    /// Returns the number behind the last microslice that was kept.
    pub fn end(&self) -> u64 {
        self.first + self.starts.len() as u64
    }

    /// Returns the number of the first microslice that is needed.
    pub const fn first(&self) -> u64 {
        self.first
    }

    /// Offers a microslice that starts at `start`.
    pub fn offer(&mut self, now: LocalNs, start: u64) -> Offered {
        match self.rule {
            SliceRule::ByIndex { core, .. } => {
                if self.end() < self.next.saturating_mul(u64::from(core)) {
                    self.first += 1;
                    return Offered::Passed;
                }
                self.starts.push_back(start);
                Offered::Kept
            }
            SliceRule::ByTime(rule) => {
                let offered = self.place(&rule, start);
                match offered {
                    Offered::Kept => self.keep(now, start),
                    Offered::Repeated => self.mark(&rule, start, CutFaults::REPEATED),
                    Offered::Late => self.mark(&rule, start, CutFaults::LATE),
                    Offered::Passed | Offered::Damaged => {}
                }
                offered
            }
        }
    }

    /// Says where a microslice that starts at `start` belongs.
    fn place(&self, rule: &TimeRule, start: u64) -> Offered {
        let origin = self.origin.unwrap_or(0);
        if start.saturating_sub(self.near(rule).unwrap_or(start)) > rule.max_gap.0 {
            return Offered::Damaged;
        }
        match self.newest {
            Some(newest) if start == newest => return Offered::Repeated,
            Some(newest) if start < newest => {
                let is_repeated = self.starts.binary_search(&start).is_ok();
                return if is_repeated { Offered::Repeated } else { Offered::Late };
            }
            _ => {}
        }
        let stretch = rule.stretch_of(start);
        if stretch < origin.saturating_add(self.joined) {
            let is_overlap = start >= rule.span_of(origin.saturating_add(self.next)).start;
            let is_first = self.next == self.joined;
            return if is_overlap && is_first { Offered::Kept } else { Offered::Passed };
        }
        if stretch < origin.saturating_add(self.next) { Offered::Late } else { Offered::Kept }
    }

    fn keep(&mut self, now: LocalNs, start: u64) {
        let dropped = core::mem::take(&mut self.dropped);
        if let Some(newest) = self.newest {
            let lacking = self.step.lacking(start - newest);
            self.gaps.push(newest, start, lacking, dropped);
        }
        self.starts.push_back(start);
        self.oldest.get_or_insert(start);
        (self.newest, self.newest_at) = (Some(start), now);
        self.horizon = self.horizon.max(start);
    }

    /// Notes a fault of the timeslice in whose core `start` lies, unless that was cut.
    fn mark(&mut self, rule: &TimeRule, start: u64, fault: CutFaults) {
        let number = rule.stretch_of(start).checked_sub(self.origin.unwrap_or(0));
        if let Some(timeslice) = number.filter(|timeslice| *timeslice >= self.next) {
            self.faults.entry(timeslice).or_default().0 |= fault.0;
        }
    }

    /// Notes that the source dropped `count` microslices before the next one that is offered, for
    /// want of room: what is lacking there is not missing at the source.
    pub fn dropped(&mut self, count: u64) {
        self.dropped = self.dropped.saturating_add(count);
    }

    /// Notes that a microslice that starts at `start` is the next one, although there is no room to
    /// keep it: what ends before it can be cut.
    pub fn announce(&mut self, start: u64) {
        if let SliceRule::ByTime(rule) = self.rule
            && self.place(&rule, start) == Offered::Kept
        {
            self.horizon = self.horizon.max(start);
        }
    }

    /// Notes that there are no more microslices.
    pub const fn finish(&mut self) {
        self.is_over = true;
    }

    /// Notes that the source gives nothing at `now`: components whose time is past are given up.
    pub fn idle(&mut self, now: LocalNs) {
        if let SliceRule::ByTime(rule) = self.rule
            && let (Some(silence), Some(near)) = (rule.silence, self.near(&rule))
        {
            let passed = now.since(self.newest_at).0.saturating_sub(silence.0);
            self.horizon = self.horizon.max(near.saturating_add(passed));
        }
    }

    /// Returns the newest start; before there is one, that of the first timeslice.
    fn near(&self, rule: &TimeRule) -> Option<u64> {
        self.newest.or_else(|| self.origin.map(|origin| rule.start_of(origin)))
    }

    /// Returns when the next component is given up if the source gives nothing until then.
    pub fn deadline(&self) -> Option<LocalNs> {
        let SliceRule::ByTime(rule) = self.rule else { return None };
        let silence = rule.silence.filter(|_| !self.is_over)?;
        let end = rule.span_of(self.origin?.saturating_add(self.next)).end;
        let wait = end.saturating_sub(self.near(&rule)?);
        Some(self.newest_at + Nanos(wait.saturating_add(silence.0)))
    }

    /// Returns whether the source is over, and everything that was kept is in a cut.
    pub fn is_done(&self) -> bool {
        self.is_over
            && match self.rule {
                SliceRule::ByIndex { core, .. } => {
                    self.next.saturating_mul(u64::from(core)) >= self.end()
                }
                SliceRule::ByTime(rule) => self.newest.is_none_or(|newest| {
                    rule.start_of(self.origin.unwrap_or(0).saturating_add(self.next)) > newest
                }),
            }
    }

    /// Returns the next component without taking it, if it can be cut; `None` as well when all was
    /// cut and no timeslice below `padding` is left.
    pub fn peek(&self, padding: u64) -> Option<SliceCut> {
        if self.is_done() && self.next >= padding {
            return None;
        }
        match self.rule {
            SliceRule::ByIndex { core, overlap } => self.by_index(core, overlap),
            SliceRule::ByTime(rule) => self.by_time(&rule),
        }
    }

    /// Takes the component that [`Slicer::peek`] returned.
    pub fn advance(&mut self) {
        self.faults.remove(&self.next);
        self.next += 1;
        if let (SliceRule::ByTime(rule), Some(origin)) = (self.rule, self.origin) {
            self.gaps.forget(rule.span_of(origin.saturating_add(self.next)).start);
        }
    }

    fn by_index(&self, core: u32, overlap: u32) -> Option<SliceCut> {
        let begin = self.next.saturating_mul(u64::from(core));
        let core_end = begin.saturating_add(u64::from(core));
        let whole = core_end.saturating_add(u64::from(overlap));
        if !self.is_over && self.end() < whole {
            return None;
        }
        let up_to = |number: u64| number.min(self.end()).max(begin.min(self.end()));
        let faults = if self.end() < whole { CutFaults::MISSING } else { CutFaults::default() };
        Some(SliceCut {
            timeslice: self.next,
            microslices: up_to(begin)..up_to(whole),
            core: up_to(begin)..up_to(core_end),
            faults,
            missing: core_end.saturating_sub(self.end().max(begin)),
            dropped: 0,
        })
    }

    fn by_time(&self, rule: &TimeRule) -> Option<SliceCut> {
        let stretch = self.origin?.saturating_add(self.next);
        let (span, core) = (rule.span_of(stretch), rule.core_of(stretch));
        // One microslice alone does not tell how many are lacking before it.
        let is_new = self.step.get().is_none() && self.newest == Some(self.horizon);
        if !self.is_over && (self.horizon < span.end || is_new) {
            return None;
        }
        let number =
            |time: u64| self.first + self.starts.partition_point(|start| *start < time) as u64;
        let microslices = number(span.start)..number(span.end);
        let mut faults = self.faults.get(&self.next).copied().unwrap_or_default();
        // No source has anything before the first timeslice.
        let begin = span.start.max(rule.start_of(self.origin?));
        if microslices.is_empty() || self.lacking(&(begin..span.end)).0 > 0 {
            faults.0 |= CutFaults::MISSING.0;
        }
        let (lacking, dropped) = self.lacking(&core);
        Some(SliceCut {
            timeslice: self.next,
            microslices,
            core: number(core.start)..number(core.end),
            faults,
            missing: lacking.saturating_sub(dropped),
            dropped,
        })
    }

    /// Returns how many microslices are lacking in `span`, and how many of these the source
    /// dropped.
    fn lacking(&self, span: &Range<u64>) -> (u64, u64) {
        let (mut lacking, mut dropped) = self.gaps.within(span);
        let (Some(step), Some(oldest), Some(newest)) = (self.step.get(), self.oldest, self.newest)
        else {
            return (lacking, dropped);
        };
        // Multiples of the step from `from` on, that lie `low` to `high` away from it.
        let steps =
            |low: u64, high: u64| high.div_ceil(step).saturating_sub(low.div_ceil(step).max(1));
        if span.start < oldest {
            let high = (oldest - span.start) / step;
            let low = oldest.saturating_sub(span.end) / step;
            lacking = lacking.saturating_add(high - low);
        }
        if span.end > newest {
            let behind = steps(span.start.saturating_sub(newest), span.end.saturating_sub(newest));
            lacking = lacking.saturating_add(behind);
            dropped = dropped.saturating_add(behind.min(self.dropped));
        }
        (lacking, dropped)
    }

    /// Notes that timeslices below `timeslice` are not needed any more; [`Slicer::first`] says
    /// which microslices are.
    pub fn free(&mut self, timeslice: u64) {
        let timeslice = timeslice.min(self.next);
        match self.rule {
            SliceRule::ByIndex { core, .. } => {
                let first = timeslice.saturating_mul(u64::from(core)).min(self.end());
                while self.first < first && self.starts.pop_front().is_some() {
                    self.first += 1;
                }
            }
            SliceRule::ByTime(rule) => {
                let from = rule.span_of(self.origin.unwrap_or(0).saturating_add(timeslice)).start;
                while self.starts.front().is_some_and(|start| *start < from) {
                    self.starts.pop_front();
                    self.first += 1;
                }
            }
        }
    }

    /// Goes to `timeslice`, the first one in which this input takes part again. Earlier ones are
    /// not cut.
    pub fn join(&mut self, timeslice: u64) {
        (self.next, self.joined) = (timeslice, timeslice);
        self.faults = self.faults.split_off(&timeslice);
        self.free(timeslice);
        if let (SliceRule::ByTime(rule), Some(origin)) = (self.rule, self.origin) {
            self.gaps.forget(rule.span_of(origin.saturating_add(timeslice)).start);
        }
    }
}
