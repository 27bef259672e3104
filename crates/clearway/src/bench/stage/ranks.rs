//! Rank processes under one conductor, wherever they run: what each shall do, and what they saw of it.
//!
//! # Invariants
//! I1. A phase or a test is over when every rank that was told of it has answered for it, and for no other.

use std::collections::BTreeMap;
use std::time::Duration;

use anyhow::{Context, Result};
use clearway_proto::base::{Bytes, LocalNs, Nanos, Rank};
use clearway_proto::gpcnet;
use clearway_runtime::clock;
use clearway_runtime::noise::{NoiseSample, NoiseSampler};

use super::{Interrupt, Plan, Sighting};
use crate::bench::fleet::Fleet;
use crate::bench::message::{RankRecord, Ready, Seen, ToRank};

/// Time between telling the ranks and the phase's beginning: orders to 16 ranks take about 1 ms on an idle machine, to a
/// thousand some 50 ms; on a busy one each rank may wait some scheduler slices.
pub(super) const LEAD: Nanos = Nanos::from_millis(250);
/// The longest frame where nobody raised it (IEEE 802.3: 1500 bytes and a header of 14).
pub(super) const FRAME_MAX: Bytes = Bytes(1514);
/// What a phase may take beyond its length before its ranks count as stuck.
const PATIENCE: Duration = Duration::from_secs(60);
/// What a rank that answers for something else is.
const ANSWER: &str = "a rank answered for another phase; this is a defect of the program";

/// The ranks of a run.
pub(in crate::bench) struct Ranks {
    fleet: Fleet,
    interrupt: Interrupt,
    phases: u32,
    /// What each rank said last of messages that were none of its own.
    losses: BTreeMap<Rank, Losses>,
}

/// Messages that reached a rank and did not count, since its wire opened.
#[derive(Clone, Copy, Default)]
struct Losses {
    /// Dropped at its socket.
    overflow: u64,
    /// Not of this run.
    strangers: u64,
}

/// What ranks saw, in the order in which they were asked, and what their machine did meanwhile.
type Answers = (Vec<Seen>, Vec<NoiseSample>);

impl Ranks {
    pub(super) fn new(fleet: Fleet, interrupt: Interrupt) -> Self {
        Self { fleet, interrupt, phases: 0, losses: BTreeMap::new() }
    }

    /// The names of the hosts, by rank.
    pub(in crate::bench) fn hosts(&self) -> Vec<String> {
        self.fleet.hosts()
    }

    /// What all their wires can do.
    pub(in crate::bench) fn wire(&self) -> &Ready {
        self.fleet.facts()
    }

    /// An error when the user wants an end.
    pub(super) fn check(&self) -> Result<()> {
        self.interrupt.check()
    }

    /// Runs `plan` from `begin` on, of this process's clock; `local` says when that is by the clock of a rank.
    pub(super) fn phase(
        &mut self,
        plan: &Plan<'_>,
        begin: LocalNs,
        mut local: impl FnMut(&mut Fleet, Rank) -> Result<LocalNs>,
    ) -> Result<Sighting> {
        self.check()?;
        self.phases += 1;
        let overhead = Bytes(self.fleet.facts().overhead);
        for rank in self.fleet.ranks() {
            let local = local(&mut self.fleet, rank)?;
            self.fleet.tell(rank, &ToRank::Phase(plan.orders(rank, self.phases, local, overhead)))?;
        }
        let length = begin.since(clock::now()) + plan.windows.length() + plan.windows.grid.drain;
        let all: Vec<Rank> = self.fleet.ranks().collect();
        let (seen, noise) = self.answers(&all, Duration::from_nanos(length.0) + PATIENCE)?;
        let number = self.phases;
        let record = |seen| if let Seen::Phase(record) = seen { Some(record) } else { None };
        let records = seen.into_iter().map(|seen| record(seen).filter(|record| record.number == number));
        let records = records.collect::<Option<Vec<_>>>().context(ANSWER)?;
        Ok(Sighting { records, noise, begin, number })
    }

    /// Runs one of GPCNeT's tests, which is stuck when it takes longer than `patience`; the record of each rank with a task.
    pub(in crate::bench) fn test(
        &mut self,
        tasks: &BTreeMap<Rank, gpcnet::Task>,
        patience: Duration,
    ) -> Result<BTreeMap<Rank, gpcnet::Record>> {
        self.check()?;
        for (rank, task) in tasks {
            self.fleet.tell(*rank, &ToRank::Test(Box::new(task.clone())))?;
        }
        let ranks: Vec<Rank> = tasks.keys().copied().collect();
        let (seen, _) = self.answers(&ranks, patience)?;
        let record = |(rank, seen): (Rank, Seen)| match seen {
            Seen::Test(record) if Some(record.number) == tasks.get(&rank).map(|task| task.number) => {
                Some((rank, record))
            }
            _ => None,
        };
        ranks.into_iter().zip(seen).map(record).collect::<Option<_>>().context(ANSWER)
    }

    /// What `ranks` answer, and the noise of this machine until then.
    fn answers(&mut self, ranks: &[Rank], patience: Duration) -> Result<Answers> {
        let mut noise = Vec::new();
        let mut sampler = NoiseSampler::new(clock::now());
        let interrupt = &self.interrupt;
        let answers = self.fleet.records(ranks, patience, &mut || {
            noise.extend(sampler.sample(clock::now()));
            interrupt.check()
        })?;
        let losses = |answer: &RankRecord| Losses { overflow: answer.receive_overflow, strangers: answer.strangers };
        self.losses.extend(ranks.iter().copied().zip(answers.iter().map(losses)));
        Ok((answers.into_iter().map(|answer| answer.seen).collect(), noise))
    }

    /// What reached the ranks and was not theirs, or was lost in them, a sentence each.
    pub(in crate::bench) fn warnings(&self) -> Vec<String> {
        let total = |count: fn(&Losses) -> u64| self.losses.values().map(count).sum::<u64>();
        let (strangers, lost) = (total(|losses| losses.strangers), total(|losses| losses.overflow));
        let mut warnings = Vec::new();
        if strangers > 0 {
            warnings
                .push(format!("{strangers} datagrams that were not of this run arrived at its ranks and were ignored"));
        }
        if lost > 0 {
            warnings.push(format!("{lost} messages were lost in receivers' own socket buffers, not in the network"));
        }
        warnings
    }
}
