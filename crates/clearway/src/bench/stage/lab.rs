//! The laboratory as a place: virtual hosts, a rank process in each, the machine's clock and its noise.
//!
//! # Invariants
//! I1. No queue is measured that did not prove itself with packets.

use std::net::SocketAddrV4;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, anyhow, bail};
use clearway_lab::{Lab, LabName, Outcome, QueueKind, SelfTest};
use clearway_proto::base::{Bytes, LocalNs, Nanos, RandomKey};
use clearway_proto::congestion::PhaseRecord;
use clearway_runtime::clock;
use clearway_runtime::noise::{NoiseSample, NoiseSampler};

use super::{Clocks, Facts, Hosts, Interrupt, Plan, Reach, Sighting, Stage};
use crate::bench::Place;
use crate::bench::fleet::{Fleet, Member, Run};
use crate::bench::message::{Network, RankRecord, ToRank};
use crate::report::model::{Figure, Real, Report};
use crate::scenario::{Fabric, Scenario};

/// Time between telling the ranks and the phase's beginning: orders to 16 ranks take about 1 ms on an idle machine; on a busy
/// one each rank may wait some scheduler slices.
const LEAD: Nanos = Nanos::from_millis(250);
/// What a phase may take beyond its length before its ranks count as stuck.
const PATIENCE: Duration = Duration::from_secs(60);
/// The port of every rank in its own host.
const PORT: u16 = 7_470;
/// The longest frame of the lab's Ethernet (IEEE 802.3: 1500 bytes and a header of 14).
const FRAME_MAX: Bytes = Bytes(1514);

/// The laboratory.
pub(super) struct LabStage {
    lab: Lab,
    fleet: Fleet,
    interrupt: Interrupt,
    phases: u32,
    /// Time that the lab took to come up.
    up: Duration,
    /// Self-tests, one for each queue that was armed.
    self_tests: Vec<(QueueKind, SelfTest)>,
    /// Messages that arrived at a rank's socket and were dropped there, so far.
    receive_overflow: u64,
    /// Datagrams that arrived at a rank and were not of this run, so far.
    strangers: u64,
}

impl LabStage {
    /// Makes the lab of `scenario` and starts its ranks.
    pub(super) fn open(scenario: &Scenario, interrupt: Interrupt) -> Result<Self> {
        let Fabric::Lab(fabric) = &scenario.fabric else {
            bail!("the fabric `{}` is a machine, which only the simulator has; use --on sim", scenario.fabric);
        };
        clearway_lab::permission::acquire()?;
        let name: LabName = format!("run-{}", std::process::id()).parse()?;
        let started = Instant::now();
        let lab = Lab::up(&name, &fabric.spec(QueueKind::Fifo))?;
        let up = started.elapsed();
        // Runs of one machine never meet, but a number of their own costs nothing.
        let session = RandomKey::new(scenario.seed).node(u64::from(std::process::id())).stream().next_u64();
        let run = Run { session, seed: scenario.seed };
        let fleet = Fleet::gather(members(&lab)?, Network::Lab, run, &mut || interrupt.check())?;
        let (phases, self_tests, receive_overflow, strangers) = (0, Vec::new(), 0, 0);
        Ok(Self { lab, fleet, interrupt, phases, up, self_tests, receive_overflow, strangers })
    }

    fn sighting(&mut self, answers: Vec<RankRecord>, noise: Vec<NoiseSample>, begin: LocalNs) -> Result<Sighting> {
        self.receive_overflow = answers.iter().map(|answer| answer.receive_overflow).sum();
        self.strangers = answers.iter().map(|answer| answer.strangers).sum();
        let records: Vec<PhaseRecord> = answers.into_iter().map(|answer| answer.record).collect();
        if records.iter().any(|record| record.number != self.phases) {
            return Err(anyhow!("a rank answered for another phase; this is a defect of the program"));
        }
        Ok(Sighting { records, noise, begin, number: self.phases })
    }
}

/// A rank on every host of `lab`.
fn members(lab: &Lab) -> Result<Vec<Member>> {
    let mut members = Vec::new();
    for host in lab.hosts() {
        let child = lab
            .spawn(host.rank, Member::command()?)
            .with_context(|| format!("a rank on host {} cannot start", host.name))?;
        members.push(Member::child(host.name.clone(), SocketAddrV4::new(host.address, PORT), child));
    }
    Ok(members)
}

impl Stage for LabStage {
    fn place(&self) -> Place {
        Place::Lab
    }

    fn facts(&self) -> Facts {
        Facts { frame: FRAME_MAX, reach: Reach::Link, hosts: Hosts::Real, clocks: Clocks::One }
    }

    fn hosts(&self) -> Vec<String> {
        self.fleet.hosts()
    }

    /// Puts `queue` on every port and proves with packets that it is there.
    fn arm(&mut self, queue: &str) -> Result<()> {
        let queue: QueueKind = queue.parse()?;
        self.lab.rearm(queue)?;
        self.interrupt.check()?;
        let test = self.lab.self_test()?;
        if let Some(wrong) = test.failed().next() {
            let check = wrong.checks.iter().find(|check| check.outcome == Outcome::Fail);
            let what = check.map_or("its queue", |check| check.name);
            bail!("port {} of the lab does not keep {what} of a {queue} queue, so nothing was measured", wrong.port);
        }
        self.self_tests.push((queue, test));
        // Counters and queues begin empty after the test's own packets.
        self.lab.rearm(queue)?;
        Ok(())
    }

    fn phase(&mut self, plan: &Plan<'_>) -> Result<Sighting> {
        self.interrupt.check()?;
        self.phases += 1;
        let begin = clock::now() + LEAD;
        let overhead = Bytes(self.fleet.facts().overhead);
        for rank in self.fleet.ranks() {
            self.fleet.tell(rank, &ToRank::Phase(plan.orders(rank, self.phases, begin, overhead)))?;
        }
        let mut noise = Vec::new();
        let mut sampler = NoiseSampler::new(clock::now());
        let length = plan.windows.length() + LEAD + plan.windows.grid.drain;
        let interrupt = self.interrupt.clone();
        let answers = self.fleet.records(Duration::from_nanos(length.0) + PATIENCE, &mut || {
            noise.extend(sampler.sample(clock::now()));
            interrupt.check()
        })?;
        self.sighting(answers, noise, begin)
    }

    fn introduce(&self, report: &mut Report) {
        let up = Real::finite(self.up.as_secs_f64());
        let source = "time from nothing to a lab that carries packets";
        let figure = Figure::counted("lab_up_seconds", "s", up, 1, source);
        report.figures.push(figure.with("hosts", self.lab.hosts().len().to_string()));
    }

    fn conclude(&self, report: &mut Report) {
        for (queue, test) in &self.self_tests {
            let passed = test.ports.iter().filter(|port| port.outcome == Outcome::Pass).count();
            let fact = format!("{passed} of {} ports proven in {}", test.ports.len(), test.took);
            report.host.facts.insert(format!("self-test {queue}"), fact);
            let unclear = test.ports.iter().filter(|port| port.outcome == Outcome::Inconclusive).count();
            if unclear > 0 {
                let warning = format!("the machine was too busy to prove {unclear} ports of the {queue} queues");
                report.warnings.push(warning);
            }
        }
        if let Ok(offloads) = self.lab.offloads() {
            let real = offloads.iter().all(|offload| offload.gso_segments == Some(1));
            let fact = if real { "off: every packet is real" } else { "on: queues hold joined packets" };
            report.host.facts.insert("segmentation offload in the lab".into(), fact.into());
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
