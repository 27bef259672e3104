//! Ranks that are processes, for tests that conduct them without phases: in the hosts of a laboratory, or those of a job.
//!
//! # Invariants
//! I1. A rank that ends is told once, by name; whether the run goes on without it is decided by who conducts it.

use anyhow::Result;
use clearway_lab::Topology;
use clearway_proto::base::{BitsPerSec, Rank};
use clearway_proto::wire::OperationKind;

use super::{Crew, JobStage, LabStage, Ranks, Stage};
use crate::run::engine::Measure;
use crate::run::job::Site;
use crate::scenario::Fabric;

/// Ranks, and what holds them.
pub(crate) struct Held {
    holder: Holder,
    about: String,
}

/// Who holds them.
enum Holder {
    Lab(Box<LabStage>),
    Job(Box<JobStage>),
}

impl Held {
    /// `crew` on the hosts of the laboratory of `fabric` with this `queue`.
    pub(crate) fn in_lab(fabric: &Fabric, queue: &str, crew: &Crew) -> Result<Self> {
        let mut lab = super::lab(fabric, crew)?;
        lab.arm(queue)?;
        let about = format!("lab of {}, {queue}; ranks on each: {}", drawn(fabric), crew.per_host);
        Ok(Self { holder: Holder::Lab(Box::new(lab)), about })
    }

    /// The ranks of `site`.
    pub(crate) fn of_job(site: Option<&Site>, seed: u64, measure: Measure) -> Result<Self> {
        let job = super::job(&Crew::of(seed, measure), site)?;
        let about = job.about();
        Ok(Self { holder: Holder::Job(Box::new(job)), about })
    }

    /// Multicast of a laboratory stays on the switch where it was sent.
    pub(crate) fn confine_multicast(&mut self) -> Result<()> {
        if let Holder::Lab(lab) = &mut self.holder {
            lab.confine_multicast()?;
            self.about += "; no multicast between switches";
        }
        Ok(())
    }

    /// Gives the link of the first host of a laboratory another rate than all others have.
    pub(crate) fn slow_first(&mut self, rate: BitsPerSec) -> Result<()> {
        if let Holder::Lab(lab) = &mut self.holder {
            lab.slow(Rank(0), rate)?;
            self.about += &format!("; the first host has {rate}");
        }
        Ok(())
    }

    /// In a laboratory whose queues do not count packets, lets those of up to so many `frames` pass whole, as between hosts with
    /// segmentation offload.
    pub(crate) fn offload(&mut self, frames: u32) -> Result<()> {
        match &mut self.holder {
            Holder::Lab(lab) => lab.offload(frames),
            Holder::Job(_) => Ok(()),
        }
    }

    /// Starts all ranks anew where that is possible, after one of them ended; whether it is.
    pub(crate) fn renew(&mut self) -> Result<bool> {
        match &mut self.holder {
            Holder::Lab(lab) => lab.renew().map(|()| true),
            // Whoever started the ranks of a job does not start one twice.
            Holder::Job(_) => Ok(false),
        }
    }

    /// The host from where the ranks of a job are conducted.
    pub(crate) fn conductor(&self) -> Option<String> {
        match &self.holder {
            Holder::Lab(_) => None,
            Holder::Job(_) => crate::run::job::host_name().ok(),
        }
    }

    /// What it is, for a person.
    pub(crate) fn about(&self) -> String {
        match &self.holder {
            Holder::Lab(lab) if lab.frames_most() > 1 => format!(
                "{}\nlong objects: packets of up to {} frames, as with segmentation offload",
                self.about,
                lab.frames_most()
            ),
            Holder::Lab(_) | Holder::Job(_) => self.about.clone(),
        }
    }

    /// The ranks.
    pub(crate) fn ranks(&self) -> &Ranks {
        match &self.holder {
            Holder::Lab(lab) => &lab.ranks,
            Holder::Job(job) => &job.ranks,
        }
    }

    /// The ranks, to be told something.
    pub(crate) fn ranks_mut(&mut self) -> &mut Ranks {
        match &mut self.holder {
            Holder::Lab(lab) => &mut lab.ranks,
            Holder::Job(job) => &mut job.ranks,
        }
    }

    /// The longest body beside an engine's usual header that all ranks' wires carry.
    pub(crate) fn body_max(&self) -> u32 {
        self.ranks().wire().body_max
    }

    /// Whether all ranks' wires have multicast.
    pub(crate) fn has_multicast(&self) -> bool {
        self.ranks().wire().operations.has(OperationKind::Multicast)
    }

    /// How the self-tests of a laboratory's queues went.
    pub(crate) fn proofs(&self) -> Vec<(String, String)> {
        match &self.holder {
            Holder::Lab(lab) => lab.proofs(),
            Holder::Job(_) => Vec::new(),
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
