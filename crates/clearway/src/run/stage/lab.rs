//! The laboratory as a place: virtual hosts, a rank process in each, the machine's clock and its noise.
//!
//! # Invariants
//! I1. No queue is measured that did not prove itself with packets.
//! I2. The machine's processors are awake from the first measurement to the last, under load or not, where that is allowed.

use std::net::SocketAddrV4;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use clearway_lab::{Lab, LabName, Outcome, QueueKind, SelfTest};
use clearway_proto::base::{BitsPerSec, RandomKey, Rank};
use clearway_proto::wire::OperationKind;
use clearway_runtime::awake::Awake;
use clearway_runtime::clock;

use super::ranks::{FRAME_MAX, LEAD, Ranks};
use super::{Backdrop, Clocks, Crew, Facts, Hosts, Interrupt, Plan, Reach, Sighting, Stage};
use crate::mechanism::congestion::program::{ADDRESSES_VARIABLE, PLACE_VARIABLE, ProgramPart, Troupe};
use crate::report::model::{Figure, Real, Report};
use crate::run::Place;
use crate::run::fleet::{Fleet, Member, Run};
use crate::scenario::Fabric;
use clearway_wires::Network;
use clearway_wires::WirePlan;

/// The port of the first rank of every host.
const PORT: u16 = 7_470;

/// The laboratory.
pub(crate) struct LabStage {
    lab: Lab,
    crew: Crew,
    pub(crate) ranks: Ranks,
    /// Time that the lab took to come up.
    up: Duration,
    /// Self-tests, one for each queue that was armed.
    self_tests: Vec<(QueueKind, SelfTest)>,
    /// Of which packets can be now, and the most that they ever could.
    frames: (u32, u32),
    /// What keeps processors awake, or why they sleep.
    awake: Result<Awake, String>,
}

impl LabStage {
    /// Makes the lab of `fabric` and starts `crew` in it.
    pub(crate) fn open(fabric: &Fabric, crew: &Crew, interrupt: Interrupt) -> Result<Self> {
        let Fabric::Lab(fabric) = fabric else {
            bail!("the fabric `{fabric}` is a machine, which only the simulator has; use --on sim");
        };
        clearway_lab::permission::acquire()?;
        let name: LabName = format!("run-{}", std::process::id()).parse()?;
        let started = Instant::now();
        let lab = Lab::up(&name, &fabric.spec(QueueKind::Fifo))?;
        let up = started.elapsed();
        let fleet = gather(&lab, crew, &interrupt)?;
        let awake = Awake::keep().map_err(|why| why.to_string());
        if let Err(why) = &awake {
            eprintln!("{}", asleep(why));
        }
        Ok(Self {
            lab,
            crew: *crew,
            ranks: Ranks::new(fleet, interrupt),
            up,
            self_tests: Vec::new(),
            frames: (1, 1),
            awake,
        })
    }
}

/// Starts `crew` in `lab`.
fn gather(lab: &Lab, crew: &Crew, interrupt: &Interrupt) -> Result<Fleet> {
    // Runs of one machine never meet, but a number of their own costs nothing.
    let session = RandomKey::new(crew.seed).node(u64::from(std::process::id())).stream().next_u64();
    let run = Run { session, seed: crew.seed, measure: crew.measure };
    let ways = WirePlan::apart(crew.wire.in_lab(crew.measure.need())?);
    Fleet::gather(members(lab, crew.per_host)?, Network::Lab, &ways, run, None, &mut || interrupt.check())
}

/// Says that processors sleep, because of `why`.
fn asleep(why: &str) -> String {
    format!("idle processors sleep and are late to receive, so small messages are quicker beside a load: {why}")
}

/// So many ranks on every host of `lab`, host by host.
fn members(lab: &Lab, per_host: u16) -> Result<Vec<Member>> {
    let mut members = Vec::new();
    for host in lab.hosts() {
        for port in (PORT..).take(usize::from(per_host)) {
            let child = lab
                .spawn(host.rank, Member::command()?)
                .with_context(|| format!("a rank on host {} cannot start", host.name))?;
            members.push(Member::child(host.name.clone(), SocketAddrV4::new(host.address, port), child));
        }
    }
    Ok(members)
}

impl LabStage {
    /// The self-tests of its queues: which, and how it went; and whether packets were real ones.
    pub(crate) fn proofs(&self) -> Vec<(String, String)> {
        let proof = |(queue, test): &(QueueKind, SelfTest)| {
            let passed = test.ports.iter().filter(|port| port.outcome == Outcome::Pass).count();
            let fact = format!("{passed} of {} ports proven in {}", test.ports.len(), test.took);
            (format!("self-test {queue}"), fact)
        };
        let offload = match self.frames.1 {
            1 => "off: every packet is real".to_owned(),
            frames => format!("on for long objects: packets of up to {frames} frames"),
        };
        let offload = ("segmentation offload in the lab".to_owned(), offload);
        self.self_tests.iter().map(proof).chain([offload]).collect()
    }
}

impl LabStage {
    /// Starts all ranks anew: one of them ended.
    pub(crate) fn renew(&mut self) -> Result<()> {
        let (lab, crew) = (&self.lab, &self.crew);
        self.ranks.replace(|interrupt| gather(lab, crew, interrupt))
    }

    /// Lets packets of up to so many `frames` pass whole where queues do not count packets. What waits in queues is lost.
    pub(crate) fn offload(&mut self, frames: u32) -> Result<()> {
        if self.frames.0 != frames && self.lab.spec().queue == QueueKind::Fifo {
            self.lab.offload(frames)?;
            self.frames = (frames, self.frames.1.max(frames));
        }
        Ok(())
    }

    /// Of how many frames the largest packets could be.
    pub(crate) const fn frames_most(&self) -> u32 {
        self.frames.1
    }

    /// Multicast stays on the switch where it was sent.
    pub(crate) fn confine_multicast(&self) -> Result<()> {
        Ok(self.lab.confine_multicast()?)
    }

    /// Gives the link of `host` another rate than all others have.
    pub(crate) fn slow(&mut self, host: Rank, rate: BitsPerSec) -> Result<()> {
        Ok(self.lab.slow(host, rate)?)
    }
}

impl Stage for LabStage {
    fn place(&self) -> Place {
        Place::Lab
    }

    fn facts(&self) -> Facts {
        let has_multicast = self.ranks.wire().operations.has(OperationKind::Multicast);
        Facts { frame: FRAME_MAX, reach: Reach::Link, hosts: Hosts::Real, clocks: Clocks::One, has_multicast }
    }

    fn hosts(&self) -> Vec<String> {
        self.ranks.hosts()
    }

    /// Puts `queue` on every port and proves with packets that it is there.
    fn arm(&mut self, queue: &str) -> Result<()> {
        let queue: QueueKind = queue.parse()?;
        self.lab.rearm(queue)?;
        self.frames.0 = 1;
        self.ranks.check()?;
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
        let begin = clock::now() + LEAD;
        self.ranks.phase(plan, begin, |_, _| Ok(begin))
    }

    fn before(&mut self, backdrop: &Backdrop<'_>, work: &mut dyn FnMut() -> Result<()>) -> Result<Sighting> {
        let begin = clock::now() + LEAD;
        self.ranks.before(backdrop, begin, |_, _| Ok(begin), work)
    }

    /// On the host of each rank.
    fn troupe(&self, part: ProgramPart, program: &str, ranks: &[Rank]) -> Result<Troupe> {
        let hosts = || ranks.iter().filter_map(|rank| self.lab.hosts().get(rank.index()));
        let addresses: Vec<String> = hosts().map(|host| host.address.to_string()).collect();
        let mut troupe = Troupe::new(part, program);
        for (place, host) in hosts().enumerate() {
            let mut guard = troupe.guard()?;
            guard.env(PLACE_VARIABLE, place.to_string()).env(ADDRESSES_VARIABLE, addresses.join(","));
            let guard = self.lab.spawn(host.rank, guard);
            troupe.add(&host.name, guard.with_context(|| format!("a command on host {} cannot start", host.name))?)?;
        }
        Ok(troupe)
    }

    fn introduce(&self, report: &mut Report) {
        let up = Real::finite(self.up.as_secs_f64());
        let source = "time from nothing to a lab that carries packets";
        let figure = Figure::counted("lab_up_seconds", "s", up, 1, source);
        report.figures.push(figure.with("hosts", self.lab.hosts().len().to_string()));
        match &self.awake {
            Ok(awake) => drop(report.host.facts.insert("processors kept awake".into(), awake.to_string())),
            Err(why) => report.warnings.push(asleep(why)),
        }
    }

    fn conclude(&self, report: &mut Report) {
        report.host.facts.extend(self.proofs());
        for (queue, test) in &self.self_tests {
            let unclear = test.ports.iter().filter(|port| port.outcome == Outcome::Inconclusive).count();
            if unclear > 0 {
                let warning = format!("the machine was too busy to prove {unclear} ports of the {queue} queues");
                report.warnings.push(warning);
            }
        }
        report.warnings.extend(self.ranks.warnings());
    }
}
