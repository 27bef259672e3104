//! The ranks of a job as a place: one network as it is, real machines, a clock for each.
//!
//! # Model
//! No queue can be put on a site's ports. What can be changed is what is asked of them, and that is in the ranks' orders: all
//! traffic in one class, or each message in its own ([`Asked`]).
//!
//! Phases begin at one instant everywhere. Where ranks do not read one clock, the conductor asks each for its time before the
//! phase and takes the quickest of some answers: half of its round trip bounds the error, which is far below a slice.

use std::time::Duration;

use anyhow::{Context, Result, anyhow, bail};
use clearway_proto::base::{Bytes, LocalNs, Nanos, RandomKey, Rank};
use clearway_proto::congestion::PhaseRecord;
use clearway_runtime::clock;
use clearway_runtime::noise::NoiseSampler;

use super::{Clocks, Facts, Hosts, Interrupt, Plan, Reach, Sighting, Stage};
use crate::bench::Place;
use crate::bench::fleet::{Fleet, Run};
use crate::bench::job::Site;
use crate::bench::message::{Network, ToRank};
use crate::report::model::Report;
use crate::scenario::{Asked, Scenario};

/// Time between telling the ranks and the phase's beginning: orders to a thousand ranks take some 50 ms, a busy machine more.
const LEAD: Nanos = Nanos::from_millis(250);
/// What a phase may take beyond its length before its ranks count as stuck.
const PATIENCE: Duration = Duration::from_secs(60);
/// The longest frame where nobody raised it (IEEE 802.3: 1500 bytes and a header of 14).
const FRAME_MAX: Bytes = Bytes(1514);
/// How often a rank is asked for its time: the quickest of so few answers is close to the quickest there is.
const QUESTIONS: usize = 8;

/// A job.
pub(super) struct JobStage {
    fleet: Fleet,
    interrupt: Interrupt,
    network: Network,
    launcher: String,
    phases: u32,
    /// The largest error of a phase's beginning so far.
    skew: Nanos,
    receive_overflow: u64,
    strangers: u64,
}

impl JobStage {
    /// Gathers the ranks of `site`.
    pub(super) fn open(scenario: &Scenario, site: &Site, interrupt: Interrupt) -> Result<Self> {
        let network = site.network();
        // Another job on the same ports shall not be taken for this one.
        let session =
            RandomKey::new(scenario.seed).node(u64::from(std::process::id())).node(clock::now().0).stream().next_u64();
        let members = site.members(&mut || interrupt.check())?;
        let run = Run { session, seed: scenario.seed };
        let fleet = Fleet::gather(members, network, run, &mut || interrupt.check())?;
        let launcher = site.launcher();
        let (phases, skew, receive_overflow, strangers) = (0, Nanos::ZERO, 0, 0);
        Ok(Self { fleet, interrupt, network, launcher, phases, skew, receive_overflow, strangers })
    }

    /// When `begin`, of this process's clock, is by the clock of `rank`.
    fn local(&mut self, rank: Rank, begin: LocalNs) -> Result<LocalNs> {
        if self.network.is_one_machine() {
            return Ok(begin);
        }
        let mut quickest: Option<(Nanos, LocalNs)> = None;
        for _ in 0..QUESTIONS {
            let asked = clock::now();
            let theirs = self.fleet.time(rank)?;
            let answered = clock::now();
            let trip = answered.since(asked);
            if quickest.is_none_or(|(least, _)| trip < least) {
                // The answer was right in the middle of the trip, more or less.
                let middle = asked + Nanos(trip.0 / 2);
                quickest = Some((trip, theirs + begin.since(middle)));
            }
        }
        let (trip, begin) = quickest.context("a rank that was not asked")?;
        self.skew = self.skew.max(Nanos(trip.0 / 2));
        Ok(begin)
    }
}

impl Stage for JobStage {
    fn place(&self) -> Place {
        Place::Cluster
    }

    fn facts(&self) -> Facts {
        let clocks = if self.network.is_one_machine() { Clocks::One } else { Clocks::Several };
        Facts { frame: FRAME_MAX, reach: Reach::Link, hosts: Hosts::Real, clocks }
    }

    fn hosts(&self) -> Vec<String> {
        self.fleet.hosts()
    }

    fn arm(&mut self, queue: &str) -> Result<()> {
        // What is asked of the network is in each rank's orders; the network itself stays as it is.
        if Asked::named(queue).is_none() {
            bail!("a job has no queue `{queue}`");
        }
        Ok(())
    }

    fn phase(&mut self, plan: &Plan<'_>) -> Result<Sighting> {
        self.interrupt.check()?;
        self.phases += 1;
        let begin = clock::now() + LEAD + Nanos(self.skew.0 * 2 * QUESTIONS as u64 * self.hosts().len() as u64);
        for rank in self.fleet.ranks() {
            let local = self.local(rank, begin)?;
            let phase = plan.orders(rank, self.phases, local, Bytes(self.fleet.facts().overhead));
            self.fleet.tell(rank, &ToRank::Phase(phase))?;
        }
        let mut noise = Vec::new();
        let mut sampler = NoiseSampler::new(clock::now());
        let length = plan.windows.length() + begin.since(clock::now()) + plan.windows.grid.drain;
        let interrupt = self.interrupt.clone();
        let answers = self.fleet.records(Duration::from_nanos(length.0) + PATIENCE, &mut || {
            noise.extend(sampler.sample(clock::now()));
            interrupt.check()
        })?;
        self.receive_overflow = answers.iter().map(|answer| answer.receive_overflow).sum();
        self.strangers = answers.iter().map(|answer| answer.strangers).sum();
        let records: Vec<PhaseRecord> = answers.into_iter().map(|answer| answer.record).collect();
        if records.iter().any(|record| record.number != self.phases) {
            return Err(anyhow!("a rank answered for another phase; this is a defect of the program"));
        }
        Ok(Sighting { records, noise, begin, number: self.phases })
    }

    fn introduce(&self, report: &mut Report) {
        report.host.facts.insert("launched by".into(), self.launcher.clone());
        let network = match self.network {
            Network::Lab | Network::Machine => "all ranks on one machine, one clock",
            Network::Sealed => "several machines, a clock each; messages are sealed",
            Network::Insecure => "several machines, a clock each; messages are NOT sealed",
        };
        report.host.facts.insert("ranks".into(), format!("{}; {network}", self.fleet.ranks().count()));
    }

    fn conclude(&self, report: &mut Report) {
        if !self.network.is_one_machine() {
            report.host.facts.insert("phases begin within".into(), format!("{} of each other", self.skew));
        }
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
