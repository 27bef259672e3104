//! What one run of timeslice building is: sizes, rings, policies, how long it is watched.

use core::ops::Range;
use std::time::Duration;

use anyhow::{Result, bail};
use clearway_proto::base::{BitsPerSec, Bytes, Class, Nanos, Rank};
use clearway_proto::timeslice::{Dfs, Policy, Role, TimesliceLayout, Window};
use serde::{Deserialize, Serialize};

use super::scheduled_change::ScheduledChange;
use crate::policy::Grant;
use crate::run::RemainingTime;

/// One run.
#[derive(Clone, Debug)]
pub(crate) struct TimeslicePlan {
    /// Ranks with contributions; they come first.
    pub(crate) inputs: u32,
    /// Ranks that build.
    pub(crate) builders: u32,
    /// How many turns each builder has; empty where all have one.
    pub(crate) weights: Vec<u32>,
    /// Between which parts of the network turns alternate.
    pub(crate) neighbourhoods: Neighbourhoods,
    /// What is compared.
    pub(crate) policies: Vec<Policy>,
    /// Bytes of one contribution.
    pub(crate) contribution: Bytes,
    /// Whether short messages go along with unscheduled ones.
    pub(crate) messages: UnscheduledMessages,
    /// Bytes of the ring of each connection.
    pub(crate) ring: Bytes,
    /// Bounds of the window of a policy that grants.
    pub(crate) window: Window,
    /// Constants of the Data-Flow Scheduler.
    pub(crate) dfs: Dfs,
    /// Inputs begin within this time of each other.
    pub(crate) start_skew: Nanos,
    /// How long nothing is counted at the beginning.
    pub(crate) warm_up: Nanos,
    /// How long everything is counted.
    pub(crate) measured: Nanos,
    /// Seeds, each a run of its own.
    pub(crate) seeds: Vec<u64>,
    /// How far builders' rings are at the beginning.
    pub(crate) rings: InitialRings,
    /// What hosts are like, next to what the fabric file says.
    pub(crate) hosts: HostConditions,
    /// A time in which inputs are slower.
    pub(crate) slowdown: Option<Slowdown>,
    /// Ranks that go or come, by time.
    pub(crate) changes: Vec<ScheduledChange>,
    /// How often ranks say that they are there; none where nobody is watched.
    pub(crate) heartbeat: Option<Nanos>,
    /// The class that the policy of the site grants to contributions, if there is one.
    pub(crate) grant: Option<Grant>,
}

/// Between which parts of the network turns alternate.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) enum Neighbourhoods {
    /// Those that a simulated fabric has; else none.
    #[default]
    OfFabric,
    /// Those that the hosts of a simulated fabric measure; else none.
    Measured,
    /// The part that each rank is in; empty where turns are in the order of ranks.
    OfRanks(Vec<u32>),
}

/// What unscheduled writes and puts are made of.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum UnscheduledMessages {
    /// Messages as long as a contribution.
    #[default]
    Alone,
    /// The same, each with the short ones that FLESnet sends with a contribution.
    Mixed,
}

/// How far rings are at the beginning.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub(crate) enum InitialRings {
    /// Empty; they fill as fast as inputs get out of step.
    #[default]
    Empty,
    /// As after a long run of a policy without bound: inputs begin within the time in which a ring
    /// drains, so that the first has filled its rings when the last begins. Policies that bound how
    /// far an input is ahead begin with empty rings all the same.
    Full,
}

/// What hosts are like; what is absent is as in the fabric file.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct HostConditions {
    /// At what the interface fetches and places.
    pub(crate) rate: Option<BitsPerSec>,
    /// Inputs fetch by up to this many thousandths slower, each by its own part.
    pub(crate) spread: u32,
    /// Interruptions of the processor: mean time between two, and how long each takes.
    pub(crate) interruptions: Option<(Nanos, Nanos)>,
    /// Payload of a packet: longer ones are a coarser and faster simulation.
    pub(crate) packet: Option<Bytes>,
}

/// A time in which inputs are slower.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Slowdown {
    /// By this many hundredths of their rate.
    pub(crate) percent: u32,
    /// When it begins, after the warm-up.
    pub(crate) from: Nanos,
    /// How long it takes.
    pub(crate) length: Nanos,
}

impl Slowdown {
    /// Returns when it is, after the warm-up.
    pub(super) fn time(&self) -> Range<Nanos> {
        self.from..self.from + self.length
    }
}

/// Returns the layout of `inputs` and, behind them, `builders` with these `weights`, in whose turns
/// the `neighbourhoods` of ranks alternate, if there are any.
///
/// # Errors
/// There is no such layout, or neighbourhoods are of other ranks.
pub(super) fn layout(
    [inputs, builders]: [u32; 2],
    weights: &[u32],
    neighbourhoods: &[u32],
) -> Result<TimesliceLayout> {
    let ranks = inputs.saturating_add(builders);
    let layout = TimesliceLayout::new(
        (0..inputs).map(Rank).collect(),
        (inputs..ranks).map(Rank).collect(),
        weights,
    )?;
    if neighbourhoods.is_empty() {
        return Ok(layout);
    }
    if neighbourhoods.len() != ranks as usize {
        let named = neighbourhoods.len();
        bail!("the order of turns is of {named} ranks and this run has {ranks}; run again");
    }
    Ok(layout.spread(|rank| neighbourhoods.get(rank.index()).copied().unwrap_or_default()))
}

/// Returns what `rank` is, with its number among inputs or builders: sources, sinks and components
/// go by that, and its place in turns may be another.
pub(super) fn numbered_role(rank: Rank, [inputs, builders]: [u32; 2]) -> Option<Role> {
    match rank.0.checked_sub(inputs) {
        None => Some(Role::Input(rank.index())),
        Some(number) if number < builders => Some(Role::Builder(number as usize)),
        Some(_) => None,
    }
}

impl TimeslicePlan {
    /// Begins to tell how long `runs` on real hosts take.
    pub(super) fn remaining(&self, runs: usize) -> RemainingTime {
        let each = (self.warm_up + self.measured).as_secs_f64();
        RemainingTime::begin("run", vec![each; runs], Some(Duration::from_secs(1)))
    }

    /// What contributions ask for.
    pub(crate) const REQUESTED: Class = Class::Bulk;

    /// Returns the class of contributions.
    pub(crate) fn class(&self) -> Class {
        self.grant.as_ref().map_or(Self::REQUESTED, |grant| grant.granted)
    }

    /// Returns the part of the network that each rank of a lab or a job is in; empty where turns are
    /// in the order of ranks.
    pub(super) fn neighbourhoods(&self) -> &[u32] {
        match &self.neighbourhoods {
            Neighbourhoods::OfFabric | Neighbourhoods::Measured => &[],
            Neighbourhoods::OfRanks(by_rank) => by_rank,
        }
    }

    /// Returns a plan for tests: two inputs and two builders that watch each other.
    #[cfg(test)]
    pub(super) fn sample() -> Self {
        Self {
            inputs: 2,
            builders: 2,
            weights: Vec::new(),
            neighbourhoods: Neighbourhoods::default(),
            policies: vec![Policy::Token],
            contribution: Bytes(1),
            messages: UnscheduledMessages::Alone,
            ring: Bytes(1),
            window: Window { least: 2, most: 8 },
            dfs: Dfs::default(),
            start_skew: Nanos::ZERO,
            warm_up: Nanos::ZERO,
            measured: Nanos::ZERO,
            seeds: vec![1],
            rings: InitialRings::Empty,
            hosts: HostConditions::default(),
            slowdown: None,
            changes: Vec::new(),
            heartbeat: Some(Nanos::from_millis(1)),
            grant: None,
        }
    }

    /// Returns the same plan as `policy` runs it, on hosts of this rate.
    pub(super) fn with_policy(&self, policy: Policy, rate: BitsPerSec) -> Self {
        if !policy.is_building() {
            // Nobody is watched where nothing is built, and who writes unscheduled stays: it is the
            // line to compare with.
            return Self {
                changes: Vec::new(),
                heartbeat: None,
                weights: Vec::new(),
                ..self.clone()
            };
        }
        let unbounded = matches!(policy, Policy::BestEffort | Policy::Offset);
        if self.rings == InitialRings::Empty || !unbounded {
            return self.clone();
        }
        let drain = rate.time_for(Bytes(self.ring.0.saturating_mul(u64::from(self.inputs))));
        // The last begins after one such time, and what is measured began after it; a timeslice
        // takes about another.
        Self {
            start_skew: drain,
            warm_up: Nanos(drain.0 / 2 * 5),
            measured: self.measured.max(Nanos(drain.0 / 4)),
            ..self.clone()
        }
    }

    /// Returns the time in which a host of this rate takes one contribution of each input.
    pub(super) fn rotation_at(&self, rate: BitsPerSec) -> Nanos {
        rate.time_for(Bytes(self.contribution.0.saturating_mul(u64::from(self.inputs))))
    }
}

#[cfg(test)]
mod tests {
    //! Whose turn comes when, and who is called what.

    use super::*;

    #[test]
    fn layout__turns_alternate_and_numbers_stay() {
        let layout = layout([2, 3], &[], &[0, 0, 0, 0, 1]).expect("a sound layout");
        assert_eq!(layout.builders(), [2, 4, 3].map(Rank));
        let numbers = [1, 4, 5].map(|rank| numbered_role(Rank(rank), [2, 3]));
        assert_eq!(numbers, [Some(Role::Input(1)), Some(Role::Builder(2)), None]);
    }

    #[test]
    fn layout__an_order_of_other_ranks_is_refused() {
        let sentence = layout([2, 3], &[], &[0, 1, 0, 1]).expect_err("four of five").to_string();
        assert!(sentence.contains("of 4 ranks and this run has 5"), "{sentence}");
    }
}
