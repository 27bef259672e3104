//! The ranks of a job as a place: one network as it is, real machines, a clock for each.
//!
//! # Model
//! No queue can be put on a site's ports. What can be changed is what is asked of them, and that is in the ranks' orders: all
//! traffic in one class, or each message in its own ([`Asked`]).
//!
//! Phases begin at one instant everywhere. Where ranks do not read one clock, the conductor asks each for its time before the
//! phase and takes the quickest of some answers: half of its round trip bounds the error, which is far below a slice.

use anyhow::{Context, Result, bail};
use clearway_proto::base::{LocalNs, Nanos, RandomKey, Rank};
use clearway_proto::wire::OperationKind;
use clearway_runtime::clock;

use super::ranks::{FRAME_MAX, LEAD, Ranks};
use super::rate::{self, MeasuredRate};
use super::{Backdrop, Clocks, Crew, Facts, Hosts, Plan, Reach, Sighting, Stage};
use crate::mechanism::congestion::program::{ProgramPart, Troupe};
use crate::report::model::Report;
use crate::run::Place;
use crate::run::fleet::{Fleet, Run};
use crate::run::job::Site;
use crate::scenario::Asked;
use clearway_wires::Far;
use clearway_wires::Network;
use clearway_wires::facts::{CLASSES, LIBRARY, UNUSED, WIRES};

/// How often a rank is asked for its time: the quickest of so few answers is close to the quickest there is.
const QUESTIONS: usize = 8;
/// What of a job's wires its user is told at once; the report has the rest.
const SAID: [&str; 4] = [WIRES, CLASSES, LIBRARY, UNUSED];

/// A job.
pub(crate) struct JobStage {
    pub(crate) ranks: Ranks,
    network: Network,
    far: Far,
    launcher: String,
    /// The largest error of a phase's beginning so far.
    skew: Nanos,
    /// The rate of its host links, where that was measured.
    rate: Option<MeasuredRate>,
}

impl JobStage {
    /// Gathers the ranks of `site` as `crew`.
    pub(crate) fn open(crew: &Crew, site: &Site) -> Result<Self> {
        let interrupt = site.interrupt().clone();
        let network = site.network();
        // Another job on the same ports shall not be taken for this one.
        let session =
            RandomKey::new(crew.seed).node(u64::from(std::process::id())).node(clock::now().0).stream().next_u64();
        let ways = site.ways()?;
        let members = site.members(&mut || interrupt.check())?;
        let run = Run { session, seed: crew.seed, measure: crew.measure };
        let fleet =
            Fleet::gather(members, network, &ways, run, Some(&site.scope(session)?), &mut || interrupt.check())?;
        for (name, fact) in fleet.wires().iter().filter(|(name, _)| SAID.contains(&name.as_str())) {
            eprintln!("{name}: {fact}");
        }
        let (launcher, far) = (site.launcher(), fleet.far());
        Ok(Self { ranks: Ranks::new(fleet, interrupt), network, far, launcher, skew: Nanos::ZERO, rate: None })
    }

    /// Measures how fast the host links are, for a second or some; `site` knows which ranks share a host.
    ///
    /// # Errors
    /// A pair of hosts between which nothing comes through.
    pub(crate) fn measure_rate(&mut self, site: &Site) -> Result<MeasuredRate> {
        let measured = rate::measure(self, &site.hosts())?;
        self.rate = Some(measured);
        Ok(measured)
    }

    /// When a phase can begin that ranks are told of from now on.
    fn lead(&self) -> LocalNs {
        let questions = QUESTIONS as u64 * self.ranks.hosts().len() as u64;
        clock::now() + LEAD + Nanos(self.skew.0 * 2 * questions)
    }
}

/// When `begin` is by the clock of `rank`, which may be this process's; the greatest error so far is kept in `skew`.
fn on_clock(network: Network, fleet: &mut Fleet, rank: Rank, begin: LocalNs, skew: &mut Nanos) -> Result<LocalNs> {
    if network.is_one_machine() {
        return Ok(begin);
    }
    let (local, error) = local_time(fleet, rank, begin)?;
    *skew = error.max(*skew);
    Ok(local)
}

impl JobStage {
    /// How the ranks found each other, and what lies between them, for a person.
    pub(crate) fn about(&self) -> String {
        let wires = self.ranks.wires().get(WIRES).map_or("", String::as_str);
        format!("job launched by {}; {}; {wires}", self.launcher, self.between())
    }

    fn between(&self) -> &'static str {
        match self.network {
            Network::Lab | Network::Machine => "all ranks on one machine, one clock",
            Network::Sealed | Network::Insecure => "several machines, a clock each",
        }
    }
}

/// When `begin`, of this process's clock, is by the clock of `rank`; and the greatest error of that.
fn local_time(fleet: &mut Fleet, rank: Rank, begin: LocalNs) -> Result<(LocalNs, Nanos)> {
    let mut quickest: Option<(Nanos, LocalNs)> = None;
    for _ in 0..QUESTIONS {
        let asked = clock::now();
        let theirs = fleet.time(rank)?;
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

impl Stage for JobStage {
    fn place(&self) -> Place {
        Place::Cluster
    }

    fn facts(&self) -> Facts {
        let clocks = if self.network.is_one_machine() { Clocks::One } else { Clocks::Several };
        let has_multicast = self.ranks.wire().operations.has(OperationKind::Multicast);
        Facts { frame: FRAME_MAX, reach: Reach::Link, hosts: Hosts::Real, clocks, has_multicast }
    }

    fn hosts(&self) -> Vec<String> {
        self.ranks.hosts()
    }

    fn arm(&mut self, queue: &str) -> Result<()> {
        // What is asked of the network is in each rank's orders; the network itself stays as it is.
        if Asked::named(queue).is_none() {
            bail!("a job has no queue `{queue}`");
        }
        Ok(())
    }

    fn phase(&mut self, plan: &Plan<'_>) -> Result<Sighting> {
        let begin = self.lead();
        let (network, skew) = (self.network, &mut self.skew);
        self.ranks.phase(plan, begin, |fleet, rank| on_clock(network, fleet, rank, begin, skew))
    }

    fn before(&mut self, backdrop: &Backdrop<'_>, work: &mut dyn FnMut() -> Result<()>) -> Result<Sighting> {
        let begin = self.lead();
        let (network, skew) = (self.network, &mut self.skew);
        self.ranks.before(backdrop, begin, |fleet, rank| on_clock(network, fleet, rank, begin, skew), work)
    }

    /// Once, beside the conductor: hosts of a site are entered by its own launcher, and a command that wants to be on several says
    /// so to it.
    fn troupe(&self, part: ProgramPart, program: &str, _ranks: &[Rank]) -> Result<Troupe> {
        Troupe::here(part, program)
    }

    fn introduce(&self, report: &mut Report) {
        if let Some(rate) = self.rate {
            report.host.facts.insert("rate of host links".into(), rate.to_string());
        }
        report.host.facts.insert("launched by".into(), self.launcher.clone());
        report.host.facts.insert("ranks".into(), format!("{}; {}", self.hosts().len(), self.between()));
        report.host.facts.extend(self.ranks.wires().clone());
    }

    fn conclude(&self, report: &mut Report) {
        // Only UDP shows its receiver the mark that arrived; elsewhere a message says which class it was sent in.
        let unseen = match self.far {
            Far::Udp | Far::Best => None,
            Far::Ofi | Far::Both => Some("not shown"),
            Far::Nothing => Some("no network"),
        };
        if let Some(unseen) = unseen {
            report.shares.iter_mut().for_each(|share| share.granted = unseen.to_owned());
        }
        if !self.network.is_one_machine() {
            report.host.facts.insert("phases begin within".into(), format!("{} of each other", self.skew));
        }
        report.warnings.extend(self.ranks.warnings());
    }
}
