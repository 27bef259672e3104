//! Ground whose ranks are processes: in the hosts of a laboratory, or those of a job.
//!
//! # Invariants
//! I1. A rank that ends in the middle of a test ends the run, with its name.

use std::collections::BTreeMap;
use std::time::Duration;

use anyhow::Result;
use clearway_proto::base::{Nanos, Rank};
use clearway_proto::gpcnet::{Record, Task};
use clearway_proto::wire::OperationSet;

use super::ground::Ground;
use crate::run::engine::Measure;
use crate::run::job::Site;
use crate::run::stage::{Crew, Held, Ranks};
use crate::scenario::Fabric;

/// Ranks that are processes.
pub(super) struct Processes {
    held: Held,
    /// How long each rank waited for a processor, and of how long a time.
    waits: BTreeMap<Rank, [Nanos; 2]>,
}

impl Processes {
    /// So many ranks on each host of the laboratory of `fabric` with this `queue`.
    pub(super) fn in_lab(fabric: &Fabric, queue: &str, seed: u64, per_host: u16) -> Result<Self> {
        let held = Held::in_lab(fabric, queue, &Crew { per_host, ..Crew::of(seed, Measure::Gpcnet) })?;
        Ok(Self { held, waits: BTreeMap::new() })
    }

    /// The ranks of `site`.
    pub(super) fn of_job(site: Option<&Site>, seed: u64) -> Result<Self> {
        let held = Held::of_job(site, seed, Measure::Gpcnet)?;
        Ok(Self { held, waits: BTreeMap::new() })
    }

    fn ranks(&self) -> &Ranks {
        self.held.ranks()
    }
}

impl Ground for Processes {
    fn names(&self) -> Vec<String> {
        self.ranks().hosts()
    }

    fn operations(&self) -> OperationSet {
        self.ranks().wire().operations
    }

    fn body_max(&self) -> u32 {
        self.ranks().wire().body_max
    }

    fn measurements(&self) -> u32 {
        // As many as the original makes; its limit ends them.
        u32::MAX
    }

    fn about(&self) -> String {
        self.held.about()
    }

    fn run(&mut self, tasks: &BTreeMap<Rank, Task>, patience: Nanos) -> Result<BTreeMap<Rank, Record>> {
        let ranks = self.held.ranks_mut();
        let mut records = BTreeMap::new();
        for (rank, (record, waits)) in ranks.test(tasks, Duration::from_nanos(patience.0))? {
            let [waited, length] = self.waits.entry(rank).or_default();
            for wait in waits {
                (*waited, *length) = (*waited + wait.waited, *length + wait.length);
            }
            records.insert(rank, record);
        }
        Ok(records)
    }

    fn remarks(&self) -> Vec<String> {
        let proofs = self.held.proofs().into_iter().map(|(what, fact)| format!("{what}: {fact}"));
        proofs.chain(noise(&self.waits)).chain(self.ranks().warnings()).collect()
    }
}

/// What part of the time ranks were ready to run and had no processor; nothing where the system does not tell.
fn noise(waits: &BTreeMap<Rank, [Nanos; 2]>) -> Option<String> {
    let known = waits.iter().filter(|(_, [_, length])| *length > Nanos::ZERO);
    let shares = known.map(|(rank, [waited, length])| (waited.0 as f64 * 100.0 / length.0 as f64, *rank));
    let shares: Vec<(f64, Rank)> = shares.collect();
    let mean = shares.iter().map(|(share, _)| share).sum::<f64>() / shares.len().max(1) as f64;
    let (worst, rank) = shares.into_iter().max_by(|(a, _), (b, _)| a.total_cmp(b))?;
    Some(format!("noise: ranks waited for a processor {mean:.1} % of the time, rank {rank} {worst:.1} %"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn noise__is_the_mean_and_the_worst_of_the_ranks_that_know() {
        let wait = |rank, waited, length| (Rank(rank), [waited, length].map(Nanos::from_millis));
        let waits = BTreeMap::from([wait(0, 0, 100), wait(1, 30, 100), wait(2, 0, 0)]);
        let said = "noise: ranks waited for a processor 15.0 % of the time, rank 1 30.0 %";
        assert_eq!(noise(&waits).as_deref(), Some(said));
        assert_eq!(noise(&BTreeMap::from([wait(2, 0, 0)])), None);
    }
}
