//! What a repeated run is asked: which of the victims' messages were slowest, or what one message
//! waited for.
//!
//! # Invariants
//! I1. What is watched changes no result: a repeated run is the run.

use std::fmt;

use anyhow::{Result, anyhow, bail};
use clearway_proto::base::Rank;
use clearway_sim::Picos;
use clearway_sim::fabric::{
    Fabric, FabricOptions, MessageId, MessageSelection, RankedMessage, Trace, Trains,
};
use clearway_sim::graph::{DeviceId, Graph};

use super::phases::PhasePlan;

/// Messages on the list of a whole run.
const LIST_MAX: usize = 10;

/// The question.
#[derive(Clone, Debug)]
pub(crate) enum ReplayQuestion {
    /// The slowest messages of all phases.
    Slowest,
    /// One message: its phase, the name of its host, its number there.
    Message(u32, String, u64),
}

/// The answer.
pub(crate) struct PhaseReplay {
    wanted: ReplayQuestion,
    /// The slowest of all phases, each with its phase, sender and receiver.
    pub(crate) slowest: Vec<(u32, RankedMessage, [String; 2])>,
    /// The message, and where it went.
    pub(crate) traced: Option<(Trace, Graph)>,
    /// What each repeated phase did, as in the report.
    pub(crate) digests: Vec<String>,
}

/// The phase that was asked about is over; there is no need to repeat the others.
#[derive(Debug)]
struct ReplayDone;

impl fmt::Display for ReplayDone {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("the phase is over")
    }
}

impl std::error::Error for ReplayDone {}

/// Returns whether `error` only says that the answer is there.
pub(crate) fn is_replay_done(error: &anyhow::Error) -> bool {
    error.is::<ReplayDone>()
}

impl PhaseReplay {
    pub(crate) fn new(wanted: ReplayQuestion) -> Self {
        Self { wanted, slowest: Vec::new(), traced: None, digests: Vec::new() }
    }

    /// Refuses a message of a host that is not one of `hosts`: those that take part.
    pub(crate) fn check(&self, hosts: &[String]) -> Result<()> {
        match &self.wanted {
            ReplayQuestion::Message(_, name, _) if !hosts.contains(name) => {
                let of = hosts
                    .first()
                    .zip(hosts.last())
                    .map_or(String::new(), |(a, z)| format!(", among them {a} and {z}"));
                bail!("no host `{name}` takes part in this run; {} hosts do{of}", hosts.len())
            }
            _ => Ok(()),
        }
    }

    fn is_here(&self, phase: u32) -> bool {
        matches!(self.wanted, ReplayQuestion::Message(wanted, ..) if wanted == phase)
    }

    /// Returns how `phase` is to be computed: one by one where packets are followed.
    pub(crate) fn options(&self, phase: u32) -> FabricOptions {
        let trains = if self.is_here(phase) { Trains::Off } else { Trains::On };
        FabricOptions { trains, ..FabricOptions::default() }
    }

    /// Begins `phase`.
    pub(crate) fn begin(
        &self,
        phase: u32,
        fabric: &mut Fabric,
        plan: &PhasePlan<'_>,
        hosts: &[DeviceId],
    ) -> Result<()> {
        if let ReplayQuestion::Slowest = self.wanted {
            fabric.rank_slowest(victims(plan, hosts));
        }
        if let ReplayQuestion::Message(_, name, number) = &self.wanted
            && self.is_here(phase)
        {
            let graph = fabric.graph();
            let from = (0..graph.hosts()).map(DeviceId).find(|host| graph.name(*host) == name);
            let from = from.ok_or_else(|| anyhow!("this fabric has no host `{name}`"))?;
            fabric.trace(MessageId { from, number: *number });
        }
        Ok(())
    }

    /// Ends `phase`.
    pub(crate) fn end(&mut self, phase: u32, fabric: &Fabric) -> Result<()> {
        let name = |host: DeviceId| fabric.graph().name(host).to_owned();
        self.slowest.extend(
            fabric.slowest().iter().map(|slow| (phase, *slow, [slow.id.from, slow.to].map(name))),
        );
        self.slowest
            .sort_by_key(|(phase, slow, _)| (std::cmp::Reverse(slow.latency), *phase, slow.id));
        self.slowest.truncate(LIST_MAX);
        if self.is_here(phase) {
            self.traced = fabric.traced().map(|trace| (trace, fabric.graph().clone()));
            return Err(ReplayDone.into());
        }
        Ok(())
    }
}

/// Returns the victims' messages; those of all where nobody is a victim.
pub(crate) fn victims(plan: &PhasePlan<'_>, hosts: &[DeviceId]) -> MessageSelection {
    let mut among = MessageSelection::default();
    for (rank, host) in hosts.iter().enumerate() {
        if let Some(victim) = (plan.part)(Rank(rank as u32)).victim {
            among.class = Some(victim.class);
            among.hosts.push(*host);
        }
    }
    among.hosts.sort_unstable();
    among
}

/// Returns microseconds with three digits behind the point.
pub(crate) fn micros(time: Picos) -> String {
    format!("{}.{:03} us", time.0 / 1_000_000, time.0 / 1_000 % 1_000)
}
