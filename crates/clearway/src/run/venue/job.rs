//! The ranks of a job as a venue: one network as it is, real machines, a clock for each.
//!
//! # Model
//! No queue can be put on a site's ports. What can be changed is what is asked of them, and that is
//! in the ranks' orders: all traffic in one class, or each message in its own
//! ([`RequestedClasses`]).
//!
//! Phases begin at one instant everywhere. Where ranks do not read one clock, the coordinator asks
//! each for its time before the phase and takes the quickest of some answers: half of its round
//! trip bounds the error, which is far below a slice.

use anyhow::{Context, Result, bail};
use clearway_proto::base::{LocalNs, Nanos, RandomKey, Rank};
use clearway_proto::wire::OperationKind;
use clearway_runtime::clock;
use clearway_wires::facts::{CLASSES, LIBRARY, UNUSED, WIRES};
use clearway_wires::{Network, RemoteTransport};

use super::{
    ClockAgreement, CongestionReach, FRAME_MAX, HostNoise, LEAD, LaunchSpec, ProcessVenue, Venue,
    VenueFacts, VenueRanks,
};
use crate::report::model::Report;
use crate::run::VenueKind;
use crate::run::job::{
    CoordinatedJob, JobAdmission, JobCredential, JoinCandidate, JoinRefusal, host_name,
};
use crate::run::notice;
use crate::run::processes::{RankProcesses, RunId};
use crate::scenario::RequestedClasses;

/// How often a rank is asked for its time: the quickest of so few answers is close to the quickest
/// there is.
const QUESTIONS: usize = 8;
/// What its user learns of a job's wires at once; the report has the rest.
const SAID: [&str; 4] = [WIRES, CLASSES, LIBRARY, UNUSED];

/// A job.
pub(crate) struct JobVenue {
    processes: RankProcesses,
    network: Network,
    launcher: String,
    /// Where its run goes on without ranks that die.
    admission: Option<JobAdmission>,
    /// The largest error of a beginning so far.
    skew: Nanos,
}

impl JobVenue {
    /// Gathers the ranks of `site` as `spec` says.
    ///
    /// # Errors
    /// One sentence: which rank cannot take part, and why.
    pub(super) fn open(site: &CoordinatedJob, spec: &LaunchSpec) -> Result<Self> {
        let interrupt = site.interrupt().clone();
        let network = site.network();
        // Another job on the same ports must not be taken for this one.
        let session = RandomKey::new(spec.seed)
            .node(u64::from(std::process::id()))
            .node(clock::now().0)
            .stream()
            .next_u64();
        let plan = site.wire_plan()?;
        let members = site.members(&mut || interrupt.check())?;
        let run = RunId { session, seed: spec.seed, mechanism: spec.mechanism, need: spec.need };
        let processes = RankProcesses::gather(
            members,
            network,
            &plan,
            run,
            Some(site.scope(session)?),
            interrupt,
        )?;
        for (name, fact) in
            processes.wires().iter().filter(|(name, _)| SAID.contains(&name.as_str()))
        {
            notice!("{name}: {fact}");
        }
        let admission = site.admission()?;
        Ok(Self { processes, network, launcher: site.launcher(), admission, skew: Nanos::ZERO })
    }

    fn between(&self) -> &'static str {
        match self.network {
            Network::Lab | Network::Machine => "all ranks on one machine, one clock",
            Network::Sealed | Network::Insecure => "several hosts, a clock each",
        }
    }
}

/// Returns when `begin`, of this process's clock, is by the clock of `rank`; and the greatest error
/// of that.
fn time_of(processes: &mut RankProcesses, rank: Rank, begin: LocalNs) -> Result<(LocalNs, Nanos)> {
    let mut quickest: Option<(Nanos, LocalNs)> = None;
    for _ in 0..QUESTIONS {
        let asked = clock::now();
        let theirs = processes.time(rank)?;
        let trip = clock::now().since(asked);
        if quickest.is_none_or(|(least, _)| trip < least) {
            // The answer was right in the middle of the trip, more or less.
            let middle = asked + Nanos(trip.0 / 2);
            quickest = Some((trip, theirs + begin.since(middle)));
        }
    }
    let (trip, local) = quickest.context("a rank that was not asked")?;
    Ok((local, Nanos(trip.0 / 2)))
}

impl Venue for JobVenue {
    fn place(&self) -> VenueKind {
        VenueKind::Cluster
    }

    fn facts(&self) -> VenueFacts {
        let clocks = if self.network.is_one_machine() {
            ClockAgreement::One
        } else {
            ClockAgreement::Several
        };
        let has_multicast = self.processes.facts().operations.has(OperationKind::Multicast);
        VenueFacts {
            frame: FRAME_MAX,
            reach: CongestionReach::Link,
            hosts: HostNoise::Real,
            clocks,
            has_multicast,
        }
    }

    /// Returns how the ranks found each other, and what lies between them.
    fn about(&self) -> String {
        let wires = self.processes.wires().get(WIRES).map_or("", String::as_str);
        format!("job launched by {}; {}; {wires}", self.launcher, self.between())
    }

    fn hosts(&self) -> Vec<String> {
        self.processes.hosts()
    }

    fn arm(&mut self, queue: &str) -> Result<()> {
        // What is asked of the network is in each rank's orders; the network itself stays as it is.
        if RequestedClasses::named(queue).is_none() {
            bail!("a job has no queue `{queue}`");
        }
        Ok(())
    }

    fn ranks(&mut self) -> VenueRanks<'_> {
        VenueRanks::Processes(self)
    }

    fn introduce(&self, report: &mut Report) {
        report.host.facts.insert("launched by".into(), self.launcher.clone());
        report
            .host
            .facts
            .insert("ranks".into(), format!("{}; {}", self.hosts().len(), self.between()));
        report.host.facts.extend(self.processes.wires().clone());
    }

    fn conclude(&self, report: &mut Report) {
        // Only UDP shows its receiver the mark that arrived; elsewhere a message says which class
        // it was sent in.
        let unseen = match self.processes.far() {
            RemoteTransport::Udp | RemoteTransport::Best => None,
            RemoteTransport::Ofi | RemoteTransport::Both => Some("not shown"),
            RemoteTransport::Nothing => Some("no network"),
        };
        if let Some(unseen) = unseen {
            report.shares.iter_mut().for_each(|share| share.granted = unseen.to_owned());
        }
        if !self.network.is_one_machine() {
            report
                .host
                .facts
                .insert("phases begin within".into(), format!("{} of each other", self.skew));
        }
    }
}

impl ProcessVenue for JobVenue {
    fn processes(&self) -> &RankProcesses {
        &self.processes
    }

    fn processes_mut(&mut self) -> &mut RankProcesses {
        &mut self.processes
    }

    fn lead(&self) -> LocalNs {
        let questions = QUESTIONS as u64 * self.processes.hosts().len() as u64;
        clock::now() + LEAD + Nanos(self.skew.0 * 2 * questions)
    }

    fn local_time(&mut self, rank: Rank, begin: LocalNs) -> Result<LocalNs> {
        if self.network.is_one_machine() {
            return Ok(begin);
        }
        let (local, error) = time_of(&mut self.processes, rank, begin)?;
        self.skew = error.max(self.skew);
        Ok(local)
    }

    fn credential(&self) -> Option<&JobCredential> {
        self.admission.as_ref().map(JobAdmission::credential)
    }

    fn candidate(&mut self) -> Option<JoinCandidate> {
        self.admission.as_ref()?.next()
    }

    fn admit(&mut self, candidate: JoinCandidate, rank: Rank) -> Result<bool> {
        if let Some(why) = self.processes.irreplaceable_reason(rank) {
            candidate.refuse(JoinRefusal::Now(format!("{}: {why}", self.processes.name(rank))));
            return Ok(false);
        }
        let admission = self.admission.as_ref().context("a job that nobody can join")?;
        let Some(member) = admission.admit(candidate, rank)? else { return Ok(false) };
        self.processes.restart(rank, member).map(|()| true)
    }

    fn coordinator_host(&self) -> Option<String> {
        host_name().ok()
    }
}
