//! Where a run takes place: a simulated machine, a lab, or the ranks of a job, behind one trait.
//!
//! # Model
//! A venue puts a queue on every port and has ranks: engines of a simulated machine in this process
//! ([`SimVenue`]), or processes ([`ProcessVenue`]) in the hosts of a lab or of a job. What differs
//! between places is data ([`VenueFacts`]), so a mechanism asks once which kind of ranks there are,
//! and never which place it is.
//!
//! # Invariants
//! I1. An interrupt is noticed within a tenth of a second and ends everything in order.

mod job;
mod lab;
mod machine;
mod ports;
mod sim;

use anyhow::{Context, Result, bail};
use clearway_lab::Lab;
use clearway_proto::base::{Bytes, LocalNs, Nanos, Rank};
use clearway_wires::{WireNeeds, WireRequest};

use super::job::{CoordinatedJob, JobCredential, JoinCandidate};
use super::processes::RankProcesses;
use super::processor_halves::ProcessorHalf;
use super::session::Protocol;
use super::{CompletedParts, VenueKind};
use crate::report::model::Report;
use crate::scenario::Fabric;
pub(crate) use job::JobVenue;
pub(crate) use lab::LabVenue;
pub(crate) use machine::SimMachine;
pub(crate) use ports::CounterReading;
pub(crate) use sim::{AdjustMachine, SimVenue, stretches};

/// Time between an order to all ranks and what it begins: orders to 16 ranks take about 1 ms on an
/// idle machine, to a thousand some 50 ms; on a busy one each rank may wait some scheduler slices.
const LEAD: Nanos = Nanos::from_millis(250);
/// The longest frame where nobody raised it (IEEE 802.3: 1500 bytes and a header of 14).
const FRAME_MAX: Bytes = Bytes(1514);

/// The ranks to start for a run.
#[derive(Clone, Copy, Debug)]
pub(crate) struct LaunchSpec {
    pub(crate) seed: u64,
    /// The mechanism's name, by which rank processes find their part.
    pub(crate) mechanism: &'static str,
    /// What its engine needs of the wire.
    pub(crate) need: WireNeeds,
    /// Ranks on each host; a job's launcher decides that itself.
    pub(crate) per_host: u16,
    /// What they talk over in a lab; a job's site knows.
    pub(crate) wire: WireRequest,
    /// The half of the processors that ranks have in a lab; `None` where nothing else runs.
    pub(crate) processors: Option<ProcessorHalf>,
}

impl LaunchSpec {
    /// Specifies one rank on each host, over the wire that suits the mechanism of `P`.
    pub(crate) const fn new<P: Protocol>(seed: u64) -> Self {
        Self {
            seed,
            mechanism: P::MECHANISM,
            need: P::NEED,
            per_host: 1,
            wire: WireRequest::AUTO,
            processors: None,
        }
    }
}

/// What figures and verdicts need to know of a place.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct VenueFacts {
    /// The longest packet on a link, all headers included: what a message can wait for however it
    /// is classed.
    pub(crate) frame: Bytes,
    /// How far from a full link victims suffer.
    pub(crate) reach: CongestionReach,
    /// What isolated latencies can contain next to the network.
    pub(crate) hosts: HostNoise,
    /// Whether stamps of two ranks can be compared.
    pub(crate) clocks: ClockAgreement,
    /// Whether ranks' wires have multicast.
    pub(crate) has_multicast: bool,
}

/// Whether stamps of two ranks can be compared.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ClockAgreement {
    /// All read one.
    One,
    /// Each machine has its own.
    Several,
}

/// How far from a full link victims suffer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum CongestionReach {
    /// Full queues drop: only who crosses the link.
    Link,
    /// Full buffers hold packets back: congestion spreads to links that are not full.
    Tree,
}

/// What isolated latencies can contain next to the network.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum HostNoise {
    /// Other people's work on the processors: long times alone prove a busy machine.
    Real,
    /// Nothing that the fabric's file does not say.
    Simulated,
}

/// The place of a run.
pub(crate) trait Venue {
    /// Returns which it is.
    fn place(&self) -> VenueKind;

    /// Returns what figures and verdicts need to know of it.
    fn facts(&self) -> VenueFacts;

    /// Returns what it is, for a person.
    fn about(&self) -> String;

    /// Returns the names of the hosts, by rank.
    fn hosts(&self) -> Vec<String>;

    /// Puts `queue` on every port.
    fn arm(&mut self, queue: &str) -> Result<()>;

    /// Returns its ranks.
    fn ranks(&mut self) -> VenueRanks<'_>;

    /// Writes what is known of it before the first packet into `report`.
    fn introduce(&self, report: &mut Report);

    /// Adds what is known at the end.
    fn conclude(&self, report: &mut Report);
}

/// The ranks of a venue.
pub(crate) enum VenueRanks<'a> {
    /// Engines on virtual time, in this process.
    Simulated(&'a mut SimVenue),
    /// Processes, each with a wire of its own.
    Processes(&'a mut dyn ProcessVenue),
}

/// A venue whose ranks are processes.
pub(crate) trait ProcessVenue: Venue {
    /// Returns the ranks.
    fn processes(&self) -> &RankProcesses;

    /// Returns the ranks, to be sent something.
    fn processes_mut(&mut self) -> &mut RankProcesses;

    /// Returns when something can begin that ranks are ordered from now on, by this process's
    /// clock.
    fn lead(&self) -> LocalNs;

    /// Returns when `begin`, of this process's clock, is by the clock of `rank`.
    fn local_time(&mut self, rank: Rank, begin: LocalNs) -> Result<LocalNs>;

    /// Returns the virtual hosts, where there are any: programs can be started in them.
    fn lab(&self) -> Option<&Lab> {
        None
    }

    /// Starts all ranks anew where that is possible, after one of them ended; whether it is.
    fn renew(&mut self) -> Result<bool> {
        // The launcher of a job does not start a rank twice.
        Ok(false)
    }

    /// Returns whether a rank whose process has ended can be started again while the others go on.
    fn can_restart(&self) -> bool {
        false
    }

    /// Starts the process of `rank`, which has ended, again.
    ///
    /// # Errors
    /// It is not possible here, or the process does not start.
    fn restart(&mut self, rank: Rank) -> Result<()> {
        bail!("rank {rank} cannot be started again here")
    }

    /// Returns what a process needs to ask for the place of a rank of a job that died, where that is
    /// possible.
    fn credential(&self) -> Option<&JobCredential> {
        None
    }

    /// Returns the next process that asks for such a place, if one does.
    fn candidate(&mut self) -> Option<JoinCandidate> {
        None
    }

    /// Makes `candidate` the process of `rank`, or turns it away; whether it is that now.
    ///
    /// # Errors
    /// The system refuses what the job needs.
    fn admit(&mut self, _candidate: JoinCandidate, rank: Rank) -> Result<bool> {
        bail!("rank {rank} gets no other process here; this is a defect of the program")
    }

    /// Lets packets of up to `frames` frames pass whole where a lab's queues do not count packets,
    /// as between hosts with segmentation offload.
    fn offload(&mut self, _frames: u32) -> Result<()> {
        Ok(())
    }

    /// Returns the host from where the ranks of a job are coordinated.
    fn coordinator_host(&self) -> Option<String> {
        None
    }

    /// Returns how the self-tests of a lab's queues went: which, and the result.
    fn proofs(&self) -> Vec<(String, String)> {
        Vec::new()
    }
}

/// Makes the `place` of `fabric`, which is not a job's, with the ranks of `spec`; `adjust` changes
/// a simulated machine, and an interrupt of the simulator keeps what is `complete`.
pub(crate) fn open(
    fabric: &Fabric,
    place: VenueKind,
    spec: &LaunchSpec,
    adjust: AdjustMachine,
    complete: CompletedParts,
) -> Result<Box<dyn Venue>> {
    Ok(match place {
        VenueKind::Cluster => {
            bail!("the ranks of a job are gathered before a run; this is a defect of the program")
        }
        VenueKind::Lab => Box::new(LabVenue::open(fabric, spec)?),
        VenueKind::Sim => Box::new(SimVenue::open(fabric, spec, adjust, complete)?),
    })
}

/// Returns the ranks of `site`, which a launcher started, as `spec` says.
pub(crate) fn open_job(site: Option<&CoordinatedJob>, spec: &LaunchSpec) -> Result<JobVenue> {
    JobVenue::open(site.context("no launcher started this process as a rank of a job")?, spec)
}
