//! Ground whose ranks are processes: in the hosts of a laboratory, or those of a job.
//!
//! # Invariants
//! I1. A rank that ends in the middle of a test ends the run, with its name.

use std::collections::BTreeMap;
use std::time::Duration;

use anyhow::Result;
use clearway_lab::Topology;
use clearway_proto::base::{Nanos, Rank};
use clearway_proto::gpcnet::{Record, Task};
use clearway_proto::wire::OperationSet;

use super::ground::Ground;
use crate::bench::engine::Measure;
use crate::bench::job::Site;
use crate::bench::stage::{self, Crew, JobStage, LabStage, Ranks, Stage};
use crate::scenario::Fabric;

/// Ranks that are processes.
pub(super) struct Processes {
    holder: Holder,
    about: String,
}

/// Who holds them.
enum Holder {
    Lab(Box<LabStage>),
    Job(Box<JobStage>),
}

impl Processes {
    /// So many ranks on each host of the laboratory of `fabric` with this `queue`.
    pub(super) fn in_lab(fabric: &Fabric, queue: &str, seed: u64, per_host: u16) -> Result<Self> {
        let mut lab = stage::lab(fabric, &Crew { seed, measure: Measure::Gpcnet, per_host })?;
        lab.arm(queue)?;
        let about = format!("lab of {}, {queue}; ranks on each: {per_host}", drawn(fabric));
        Ok(Self { holder: Holder::Lab(Box::new(lab)), about })
    }

    /// The ranks of `site`.
    pub(super) fn of_job(site: Option<&Site>, seed: u64) -> Result<Self> {
        let job = stage::job(&Crew { seed, measure: Measure::Gpcnet, per_host: 1 }, site)?;
        let about = job.about();
        Ok(Self { holder: Holder::Job(Box::new(job)), about })
    }

    fn ranks(&self) -> &Ranks {
        match &self.holder {
            Holder::Lab(lab) => &lab.ranks,
            Holder::Job(job) => &job.ranks,
        }
    }
}

/// The hosts of the laboratory `fabric` and how they are joined.
fn drawn(fabric: &Fabric) -> String {
    let Fabric::Lab(fabric) = fabric else { return fabric.to_string() };
    match fabric.topology {
        Topology::Star { hosts, rate } => format!("{hosts} hosts of {rate} on a switch"),
        Topology::TwoSwitch { hosts, rate, trunk } => {
            format!("{hosts} hosts of {rate} on two switches with a trunk of {trunk}")
        }
        Topology::LeafSpine { leaves, hosts_per_leaf, spines, rate, uplink } => {
            format!("{leaves} x {hosts_per_leaf} hosts of {rate} below {spines} spines, uplinks of {uplink}")
        }
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
        self.about.clone()
    }

    fn run(&mut self, tasks: &BTreeMap<Rank, Task>, patience: Nanos) -> Result<BTreeMap<Rank, Record>> {
        let ranks = match &mut self.holder {
            Holder::Lab(lab) => &mut lab.ranks,
            Holder::Job(job) => &mut job.ranks,
        };
        ranks.test(tasks, Duration::from_nanos(patience.0))
    }

    fn remarks(&self) -> Vec<String> {
        let proofs = match &self.holder {
            Holder::Lab(lab) => lab.proofs(),
            Holder::Job(_) => Vec::new(),
        };
        let proofs = proofs.into_iter().map(|(what, fact)| format!("{what}: {fact}"));
        proofs.chain(self.ranks().warnings()).collect()
    }
}
