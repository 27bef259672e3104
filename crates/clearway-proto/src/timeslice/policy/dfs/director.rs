//! A builder's side: makes one history of all inputs' reports, and proposes from it.
//!
//! # Model
//! When every input has reported interval `k`, it began in the middle between the first and the
//! last input's beginning, and took the median of what inputs measured. One that an input calls
//! disturbed took nothing that is known, and does not count. Interval `k + 2` is then
//! proposed: `D` is the median over the history or what the speed-up makes of it, and its beginning
//! that of `k` and twice `D`.
//!
//! Speed-up, in *stages* of some intervals each: while intervals take on average at most
//! `difference` percent of the median longer than was proposed, a stage proposes `step` percent
//! less than the median. Stages follow each other as long as they succeed, and until one has failed
//! each takes half as much again off as the one before. Behind one that failed the duration of the
//! last one that succeeded is *held* for some intervals, before it is tried again.
//!
//! Where builders' shares change, the history begins anew: what intervals took before was the time
//! of the slowest of them, and its share is another one now.

use alloc::collections::{BTreeMap, VecDeque};
use alloc::vec;
use alloc::vec::Vec;
use core::mem;

use super::pace::first_since_weighed;
use super::{DISTURBED, Dfs, IntervalReport, Proposal, SpeedUp};
use crate::base::Nanos;
use crate::timeslice::membership::Deal;
use crate::timeslice::policy::Directing;
use crate::timeslice::policy::{INTERVALS_MAX, IntervalRecord};

/// Intervals of which reports are kept while some are missing: inputs are at most two apart.
const OPEN_MAX: usize = 8;

/// Per mille that a stage takes off at most: half of the time, so that one stage that fails costs
/// no more than it can be late.
const STEP_MAX: u64 = 500;

/// What was measured of an interval.
#[derive(Clone, Copy, Debug)]
struct IntervalMeasurement {
    duration: Nanos,
    /// What was proposed for it.
    proposed: Option<Nanos>,
}

/// A stage of the speed-up.
#[derive(Clone, Copy, Debug)]
struct SpeedUpStage {
    duration: Nanos,
    /// The last interval that it is proposed for.
    until: u32,
    kind: StageKind,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum StageKind {
    /// Less is proposed than was measured.
    Faster,
    /// What worked last is proposed.
    Held,
}

/// A builder that proposes intervals.
#[derive(Debug)]
pub(in crate::timeslice) struct Director {
    parameters: Dfs,
    /// Timeslices of one round.
    round: u64,
    /// Of each input: whether it takes part.
    inputs: Vec<bool>,
    open: BTreeMap<u32, Vec<Option<IntervalReport>>>,
    history: VecDeque<IntervalMeasurement>,
    made: BTreeMap<u32, Proposal>,
    latest: Option<Proposal>,
    stage: Option<SpeedUpStage>,
    /// Per mille by which the next stage is faster than the median.
    step: u64,
    /// No stage has failed yet.
    rising: bool,
    /// The duration of the last stage that inputs kept.
    kept: Option<Nanos>,
    /// The first interval since builders' shares last changed.
    fresh: u32,
    /// Intervals that are over, for observers.
    over: Vec<IntervalRecord>,
}

impl Director {
    /// Creates a `Director` for this many inputs, and timeslices in a round.
    pub(in crate::timeslice) fn new(parameters: Dfs, inputs: usize, round: u64) -> Self {
        Self {
            parameters,
            round,
            inputs: vec![true; inputs],
            open: BTreeMap::new(),
            history: VecDeque::new(),
            made: BTreeMap::new(),
            latest: None,
            stage: None,
            step: parameters.speed_up.map_or(0, |speed_up| speed_up.per_mille()),
            rising: true,
            kept: None,
            fresh: 0,
            over: Vec::new(),
        }
    }

    /// Looks at `interval`, which is open and about which something changed.
    fn look_at(&mut self, interval: u32) {
        let Some(reports) = self.open.get(&interval) else { return };
        let expected = reports.iter().zip(&self.inputs).filter(|(_, takes_part)| **takes_part);
        let all = expected.map(|(report, _)| *report).collect::<Option<Vec<_>>>();
        if let Some(all) = all.filter(|all| !all.is_empty()) {
            self.open.remove(&interval);
            self.complete(interval, &all);
        }
    }

    /// Completes `interval`, which every input has reported.
    fn complete(&mut self, interval: u32, reports: &[IntervalReport]) {
        let starts = || reports.iter().map(|report| report.start.0);
        let (first, last) = (starts().min().unwrap_or(0), starts().max().unwrap_or(0));
        let start = first + (last - first) / 2;
        let rounds =
            u32::try_from(self.parameters.interval / self.round).unwrap_or(u32::MAX).max(1);
        let duration = median(reports.iter().map(|report| as_long_as(rounds, report)).collect());
        // Inputs are at most two intervals apart: of what is older, somebody has nothing to report.
        self.open = self.open.split_off(&interval.saturating_sub(1));
        self.made = self.made.split_off(&interval);
        let proposal = self.made.remove(&interval);
        let proposed = proposal.map(|proposal| proposal.duration);
        let is_disturbed = reports.iter().any(|report| report.duration == DISTURBED);
        if !is_disturbed && self.over.len() < INTERVALS_MAX {
            self.over.push(IntervalRecord {
                interval,
                start: Nanos(start),
                spread: Nanos(last - first),
                duration: Nanos(duration),
                proposed: proposal.map(|proposal| (proposal.start, proposal.duration)),
            });
        }
        if interval < self.fresh {
            return;
        }
        if !is_disturbed {
            self.history.push_back(IntervalMeasurement { duration: Nanos(duration), proposed });
        }
        if self.history.is_empty() {
            return;
        }
        if self.history.len() > self.parameters.history.max(1) {
            self.history.pop_front();
        }
        let target = interval.saturating_add(2);
        let usual = median(self.history.iter().map(|measured| measured.duration.0).collect());
        let duration = self.sped_up(target, usual);
        let start = Nanos(start.saturating_add(duration.saturating_mul(2)));
        let proposal = Proposal { interval: target, rounds, start, duration: Nanos(duration) };
        self.made.insert(target, proposal);
        self.latest = Some(proposal);
    }

    /// Returns what is proposed for interval `target` where the history's median is `usual`.
    fn sped_up(&mut self, target: u32, usual: u64) -> u64 {
        let Some(speed_up) = self.parameters.speed_up else { return usual };
        if let Some(stage) = self.stage.filter(|stage| target <= stage.until) {
            return stage.duration.0;
        }
        let Some(keep_up) = self.keep_up(usual, speed_up) else { return usual };
        let over = self.stage.take();
        let tried =
            over.filter(|stage| stage.kind == StageKind::Faster).map(|stage| stage.duration);
        let next = if keep_up {
            if tried.is_some() {
                self.kept = tried;
                if self.rising {
                    self.step = (self.step * 3 / 2).min(STEP_MAX);
                }
            }
            let duration = usual - (u128::from(usual) * u128::from(self.step) / 1000) as u64;
            Some(SpeedUpStage {
                duration: Nanos(duration),
                until: speed_up.intervals,
                kind: StageKind::Faster,
            })
        } else {
            (self.rising, self.step) = (false, speed_up.per_mille());
            let held = tried.and(self.kept).filter(|_| speed_up.hold > 0);
            held.map(|duration| SpeedUpStage {
                duration,
                until: speed_up.hold,
                kind: StageKind::Held,
            })
        };
        self.stage = next.map(|stage| SpeedUpStage {
            until: target.saturating_add(stage.until.max(1) - 1),
            ..stage
        });
        self.stage.map_or(usual, |stage| stage.duration.0)
    }

    /// Returns whether the latest intervals took about what was proposed; `None` while there are
    /// too few of them.
    fn keep_up(&self, usual: u64, SpeedUp { difference, intervals, .. }: SpeedUp) -> Option<bool> {
        let over = self
            .history
            .iter()
            .filter_map(|measured| Some((measured.duration, measured.proposed?)));
        let late = |(took, proposed): (Nanos, Nanos)| i128::from(took.0) - i128::from(proposed.0);
        let recent: Vec<i128> = over.rev().take(intervals as usize).map(late).collect();
        if recent.len() < intervals.max(1) as usize {
            return None;
        }
        let late = recent.iter().sum::<i128>() / recent.len() as i128;
        Some(late * 100 <= i128::from(usual) * i128::from(difference))
    }
}

impl Directing for Director {
    fn reported(&mut self, place: usize, report: IntervalReport) {
        let known = self.latest.map_or(0, |latest| latest.interval.saturating_sub(1));
        if report.interval < known
            || self.open.len() >= OPEN_MAX && !self.open.contains_key(&report.interval)
        {
            return;
        }
        let reports =
            self.open.entry(report.interval).or_insert_with(|| vec![None; self.inputs.len()]);
        reports[place] = Some(report);
        self.look_at(report.interval);
    }

    fn redealt(&mut self, deals: &[Deal]) {
        self.round = deals.last().map_or(1, |deal| deal.round);
        let fresh = first_since_weighed(deals, self.parameters.interval);
        if fresh != self.fresh {
            let Self { parameters, round, over, .. } = self;
            let anew = Self::new(*parameters, 0, *round);
            let (inputs, open) = (mem::take(&mut self.inputs), mem::take(&mut self.open));
            let (over, latest) = (mem::take(over), self.latest);
            *self = Self { inputs, open, over, latest, fresh, ..anew };
        }
    }

    fn input_left(&mut self, place: usize) {
        self.inputs[place] = false;
        let open: Vec<u32> = self.open.keys().copied().collect();
        open.into_iter().for_each(|interval| self.look_at(interval));
    }

    fn input_joined(&mut self, place: usize, _row: u64) {
        self.inputs[place] = true;
    }

    fn take_intervals(&mut self) -> Vec<IntervalRecord> {
        mem::take(&mut self.over)
    }

    fn proposal(&self) -> Option<Proposal> {
        self.latest
    }
}

/// Returns what an interval of this many `rounds` would have taken.
fn as_long_as(rounds: u32, report: &IntervalReport) -> u64 {
    let duration =
        u128::from(report.duration.0) * u128::from(rounds) / u128::from(report.rounds.max(1));
    u64::try_from(duration).unwrap_or(u64::MAX)
}

/// Returns the middle value; of an even number the upper one.
fn median(mut values: Vec<u64>) -> u64 {
    values.sort_unstable();
    values.get(values.len() / 2).copied().unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn report(interval: u32, start: u64, duration: u64) -> IntervalReport {
        IntervalReport { interval, rounds: 5, start: Nanos(start), duration: Nanos(duration) }
    }

    fn director(speed_up: Option<SpeedUp>) -> Director {
        Director::new(Dfs { interval: 20, history: 4, gate: 995, speed_up }, 3, 4)
    }

    /// Three inputs begin interval 0 at 100, 140 and 300 and take 1,000, 1,100 and 5,000: it began
    /// at 200 and took 1,100, so interval 2 is to begin at 200 + 2 x 1,100 and take 1,100.
    #[test]
    fn proposal__is_worked_out_from_all_reports() {
        let mut director = director(None);
        director.reported(0, report(0, 100, 1_000));
        director.reported(2, report(0, 300, 5_000));
        assert_eq!(director.proposal(), None, "one is missing");
        director.reported(1, report(0, 140, 1_100));
        let expected =
            Proposal { interval: 2, rounds: 5, start: Nanos(2_400), duration: Nanos(1_100) };
        assert_eq!(director.proposal(), Some(expected));
        let [over] = director.take_intervals()[..] else { panic!("one interval is over") };
        assert_eq!(
            (over.start, over.spread, over.duration, over.proposed),
            (Nanos(200), Nanos(200), Nanos(1_100), None)
        );
        assert!(director.take_intervals().is_empty());
    }

    fn run(director: &mut Director, took: impl Fn(u32, u64) -> u64, intervals: u32) -> Vec<u64> {
        let mut proposed = BTreeMap::new();
        let mut start = 0;
        for interval in 0..intervals {
            let duration = took(interval, proposed.get(&interval).copied().unwrap_or(0));
            (0..3).for_each(|place| director.reported(place, report(interval, start, duration)));
            start += duration;
            let proposal = director.proposal().expect("all have reported");
            proposed.insert(proposal.interval, proposal.duration.0);
        }
        proposed.into_values().collect()
    }

    #[test]
    fn proposal__without_speed_up_never_gets_shorter() {
        let slow =
            |interval, proposed: u64| if interval < 10 { 2_000 } else { proposed.max(1_000) };
        assert_eq!(run(&mut director(None), slow, 60).last(), Some(&2_000));
    }

    #[test]
    fn proposal__speed_up_finds_what_is_possible() {
        let speed_up = Some(SpeedUp { difference: 5, step: 5, intervals: 3, hold: 6 });
        let slow =
            |interval, proposed: u64| if interval < 10 { 2_000 } else { proposed.max(1_000) };
        let proposed = run(&mut director(speed_up), slow, 120);
        let last = *proposed.last().expect("proposals were made");
        assert!((950..=1_050).contains(&last), "{proposed:?}");
    }

    /// Inputs can do 700. Stages of two intervals take 10 %, then 15 %, 22.5 % and 33.7 % off the
    /// median of the last two; the fourth fails by 136 in one of two intervals, so what the third
    /// had proposed is held for three, and 10 % of 700 are tried again.
    #[test]
    fn proposal__stages_get_steeper_until_one_fails() {
        let speed_up = Some(SpeedUp { difference: 5, step: 10, intervals: 2, hold: 3 });
        let mut director =
            Director::new(Dfs { interval: 20, history: 2, gate: 995, speed_up }, 3, 4);
        let took = |interval, proposed: u64| if interval < 2 { 1_000 } else { proposed.max(700) };
        let usual = [1_000, 1_000, 1_000];
        let stages = [900, 900, 850, 850, 698, 698, 564, 564];
        assert_eq!(
            run(&mut director, took, 15),
            [&usual[..], &stages, &[698, 698, 698, 630]].concat()
        );
    }

    #[test]
    fn reported__a_disturbed_interval_counts_in_no_proposal() {
        let mut director = director(None);
        let mut proposed = |interval: u32, durations: [u64; 3]| {
            let start = 1_000 * u64::from(interval);
            for (place, duration) in durations.into_iter().enumerate() {
                director.reported(place, report(interval, start, duration));
            }
            director.proposal()
        };
        let [disturbed, usual] = [[DISTURBED.0, 70_000, 70_000], [1_000; 3]];
        assert_eq!(proposed(0, disturbed), None, "nothing is known yet");
        let as_usual = |interval, start| {
            let duration = Nanos(1_000);
            Some(Proposal { interval, rounds: 5, start: Nanos(start), duration })
        };
        assert_eq!(proposed(1, usual), as_usual(3, 3_000));
        assert_eq!(proposed(2, disturbed), as_usual(4, 4_000));
        assert_eq!(proposed(3, disturbed), as_usual(5, 5_000), "however many there are");
        assert_eq!(director.take_intervals().len(), 1, "nobody takes them for what others took");
    }

    #[test]
    fn reported__what_is_far_ahead_takes_no_memory() {
        let mut director = director(None);
        (0..1000).for_each(|interval| director.reported(0, report(interval, 0, 1)));
        assert_eq!(director.open.len(), OPEN_MAX);
    }
}
