//! Rank processes under one conductor, wherever they run: a phase given to all of them, and what they saw of it.
//!
//! # Invariants
//! I1. A phase is over when every rank has answered for it, and for no other.

use std::time::Duration;

use anyhow::{Result, bail};
use clearway_proto::base::{Bytes, LocalNs, Nanos, Rank};
use clearway_proto::congestion::PhaseRecord;
use clearway_runtime::clock;
use clearway_runtime::noise::NoiseSampler;

use super::{Interrupt, Plan, Sighting};
use crate::bench::fleet::Fleet;
use crate::bench::message::ToRank;
use crate::report::model::Report;

/// Time between telling the ranks and the phase's beginning: orders to 16 ranks take about 1 ms on an idle machine, to a
/// thousand some 50 ms; on a busy one each rank may wait some scheduler slices.
pub(super) const LEAD: Nanos = Nanos::from_millis(250);
/// The longest frame where nobody raised it (IEEE 802.3: 1500 bytes and a header of 14).
pub(super) const FRAME_MAX: Bytes = Bytes(1514);
/// What a phase may take beyond its length before its ranks count as stuck.
const PATIENCE: Duration = Duration::from_secs(60);

/// The ranks of a run.
pub(super) struct Ranks {
    fleet: Fleet,
    interrupt: Interrupt,
    phases: u32,
    /// Messages that arrived at a rank's socket and were dropped there, so far.
    receive_overflow: u64,
    /// Datagrams that arrived at a rank and were not of this run, so far.
    strangers: u64,
}

impl Ranks {
    pub(super) fn new(fleet: Fleet, interrupt: Interrupt) -> Self {
        Self { fleet, interrupt, phases: 0, receive_overflow: 0, strangers: 0 }
    }

    /// The names of the hosts, by rank.
    pub(super) fn hosts(&self) -> Vec<String> {
        self.fleet.hosts()
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
        let mut noise = Vec::new();
        let mut sampler = NoiseSampler::new(clock::now());
        let length = begin.since(clock::now()) + plan.windows.length() + plan.windows.grid.drain;
        let interrupt = &self.interrupt;
        let answers = self.fleet.records(Duration::from_nanos(length.0) + PATIENCE, &mut || {
            noise.extend(sampler.sample(clock::now()));
            interrupt.check()
        })?;
        self.receive_overflow = answers.iter().map(|answer| answer.receive_overflow).sum();
        self.strangers = answers.iter().map(|answer| answer.strangers).sum();
        let records: Vec<PhaseRecord> = answers.into_iter().map(|answer| answer.record).collect();
        if records.iter().any(|record| record.number != self.phases) {
            bail!("a rank answered for another phase; this is a defect of the program");
        }
        Ok(Sighting { records, noise, begin, number: self.phases })
    }

    /// Warns of what reached the ranks and was not theirs, or was lost in them.
    pub(super) fn warn(&self, report: &mut Report) {
        let (strangers, lost) = (self.strangers, self.receive_overflow);
        if strangers > 0 {
            let warning =
                format!("{strangers} datagrams that were not of this run arrived at its ranks and were ignored");
            report.warnings.push(warning);
        }
        if lost > 0 {
            let warning = format!("{lost} messages were lost in receivers' own socket buffers, not in the network");
            report.warnings.push(warning);
        }
    }
}
