//! The laboratory as a venue: virtual hosts, a rank process in each, the machine's clock and its
//! noise.
//!
//! # Invariants
//! I1. No queue is measured that did not prove itself with packets.
//! I2. The machine's processors are awake from the first measurement to the last, under load or
//!     not, where that is allowed.

use std::net::SocketAddrV4;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, anyhow, bail};
use clearway_lab::{CheckOutcome, Lab, LabName, QueueKind, SelfTest, Topology};
use clearway_proto::base::{BitsPerSec, LocalNs, RandomKey, Rank};
use clearway_proto::wire::OperationKind;
use clearway_runtime::awake::Awake;
use clearway_runtime::clock;
use clearway_wires::facts::{UNUSED, WIRES};
use clearway_wires::{Network, RemoteTransport, WirePlan};

use super::{
    ClockAgreement, CongestionReach, FRAME_MAX, HostNoise, LEAD, LaunchSpec, ProcessVenue, Venue,
    VenueFacts, VenueRanks,
};
use crate::report::model::{ExtendedReal, Figure, Report};
use crate::run::VenueKind;
use crate::run::interrupt::Interrupt;
use crate::run::notice;
use crate::run::processes::{RankProcess, RankProcesses, RunId};
use crate::scenario::Fabric;

/// The port of the first rank of every host.
const PORT: u16 = 7_470;

/// A laboratory.
pub(crate) struct LabVenue {
    lab: Lab,
    spec: LaunchSpec,
    processes: RankProcesses,
    /// What it is, for a person: hosts and links, and what was changed of them.
    drawn: String,
    /// The queue on every port.
    queue: Option<QueueKind>,
    /// Time that the lab took to come up.
    up: Duration,
    /// Self-tests, one for each queue that was armed.
    self_tests: Vec<(QueueKind, SelfTest)>,
    /// Of which packets can be now, and the most that they ever could.
    frames: (u32, u32),
    /// What keeps processors awake, or why they sleep.
    awake: Result<Awake, String>,
}

impl LabVenue {
    /// Makes the lab of `fabric` and starts the ranks of `spec` in it.
    ///
    /// # Errors
    /// One sentence: what the system refused, or which rank cannot start.
    pub(crate) fn open(fabric: &Fabric, spec: &LaunchSpec) -> Result<Self> {
        let drawn = fabric.as_lab().map_err(|why| anyhow!(why))?;
        let interrupt = Interrupt::listen()?;
        clearway_lab::permission::acquire()?;
        let name: LabName = format!("run-{}", std::process::id()).parse()?;
        let started = Instant::now();
        let lab = Lab::up(&name, &drawn.spec(QueueKind::Fifo))?;
        let up = started.elapsed();
        let processes = gather(&lab, spec, interrupt)?;
        if let (Some(wires), Some(why)) =
            (processes.wires().get(WIRES), processes.wires().get(UNUSED))
        {
            notice!("{wires}; {why}");
        }
        let awake = Awake::keep().map_err(|why| why.to_string());
        if let Err(why) = &awake {
            notice!("{}", asleep(why));
        }
        Ok(Self {
            lab,
            spec: *spec,
            processes,
            drawn: sentence(drawn.topology),
            queue: None,
            up,
            self_tests: Vec::new(),
            frames: (1, 1),
            awake,
        })
    }

    /// Keeps multicast on the switch where it was sent.
    pub(crate) fn confine_multicast(&mut self) -> Result<()> {
        self.lab.confine_multicast()?;
        self.drawn += "; no multicast between switches";
        Ok(())
    }

    /// Gives the link of the first host another rate than all others have.
    pub(crate) fn slow_first(&mut self, rate: BitsPerSec) -> Result<()> {
        self.lab.slow(Rank(0), rate)?;
        self.drawn += &format!("; the first host has {rate}");
        Ok(())
    }
}

/// Starts a rank where those of `spec` run.
fn on_processors<T>(spec: &LaunchSpec, start: impl FnOnce() -> T) -> T {
    match spec.processors {
        Some(half) => half.run(start),
        None => start(),
    }
}

/// Starts the ranks of `spec` in `lab`.
fn gather(lab: &Lab, spec: &LaunchSpec, interrupt: Interrupt) -> Result<RankProcesses> {
    // Runs of one machine never meet, but a number of their own costs nothing.
    let session = RandomKey::new(spec.seed).node(u64::from(std::process::id())).stream().next_u64();
    let run = RunId { session, seed: spec.seed, mechanism: spec.mechanism, need: spec.need };
    let plan = WirePlan::apart(spec.wire.in_lab(spec.need)?);
    let members = on_processors(spec, || members(lab, spec.per_host))?;
    RankProcesses::gather(members, Network::Lab, &plan, run, None, interrupt)
}

/// Returns the hosts of a laboratory and how they are joined, for a person.
fn sentence(topology: Topology) -> String {
    match topology {
        Topology::Star { hosts, rate } => format!("{hosts} hosts of {rate} on a switch"),
        Topology::TwoSwitch { hosts, rate, trunk } => {
            format!("{hosts} hosts of {rate} on two switches with a trunk of {trunk}")
        }
        Topology::LeafSpine { leaves, hosts_per_leaf, spines, rate, uplink } => {
            format!(
                "{leaves} x {hosts_per_leaf} hosts of {rate} below {spines} spines, uplinks of {uplink}"
            )
        }
    }
}

/// Says that processors sleep, because of `why`.
fn asleep(why: &str) -> String {
    format!(
        "idle processors sleep and are late to receive, so small messages are quicker under load: {why}"
    )
}

/// Starts `per_host` ranks on every host of `lab`, host by host.
fn members(lab: &Lab, per_host: u16) -> Result<Vec<RankProcess>> {
    let ranks = lab.hosts().len() as u32 * u32::from(per_host);
    (0..ranks).map(|rank| member(lab, per_host, Rank(rank))).collect()
}

/// Starts one of them.
fn member(lab: &Lab, per_host: u16, rank: Rank) -> Result<RankProcess> {
    let per_host = u32::from(per_host);
    let host = lab.hosts().get((rank.0 / per_host) as usize).context("no such host")?;
    let child = lab
        .spawn(host.rank, RankProcess::command()?)
        .with_context(|| format!("a rank on host {} cannot start", host.name))?;
    let address = SocketAddrV4::new(host.address, PORT + (rank.0 % per_host) as u16);
    Ok(RankProcess::child(host.name.clone(), address, child))
}

impl Venue for LabVenue {
    fn place(&self) -> VenueKind {
        VenueKind::Lab
    }

    fn facts(&self) -> VenueFacts {
        let has_multicast = self.processes.facts().operations.has(OperationKind::Multicast);
        VenueFacts {
            frame: FRAME_MAX,
            reach: CongestionReach::Link,
            hosts: HostNoise::Real,
            clocks: ClockAgreement::One,
            has_multicast,
        }
    }

    fn about(&self) -> String {
        let queue = self.queue.map_or_else(String::new, |queue| format!(", {queue}"));
        let about = format!("lab of {}{queue}; ranks on each: {}", self.drawn, self.spec.per_host);
        match self.frames.1 {
            1 => about,
            frames => format!(
                "{about}\nlong objects: packets of up to {frames} frames, as with segmentation offload"
            ),
        }
    }

    fn hosts(&self) -> Vec<String> {
        self.processes.hosts()
    }

    /// Puts `queue` on every port and proves with packets that it is there.
    fn arm(&mut self, queue: &str) -> Result<()> {
        let queue: QueueKind = queue.parse()?;
        self.lab.rearm(queue)?;
        self.frames.0 = 1;
        self.processes.check()?;
        let test = self.lab.self_test()?;
        if let Some(wrong) = test.failed().next() {
            let check = wrong.checks.iter().find(|check| check.outcome == CheckOutcome::Fail);
            let what = check.map_or("its queue", |check| check.name);
            bail!(
                "port {} of the lab does not keep {what} of a {queue} queue, so nothing was measured",
                wrong.port
            );
        }
        self.self_tests.push((queue, test));
        // Counters and queues begin empty after the test's own packets.
        self.lab.rearm(queue)?;
        self.queue = Some(queue);
        Ok(())
    }

    fn ranks(&mut self) -> VenueRanks<'_> {
        VenueRanks::Processes(self)
    }

    fn introduce(&self, report: &mut Report) {
        let up = ExtendedReal::finite(self.up.as_secs_f64());
        let source = "time from nothing to a lab that carries packets";
        let figure = Figure::counted("lab_up_seconds", "s", up, 1, source);
        report.figures.push(figure.with("hosts", self.lab.hosts().len().to_string()));
        report.host.facts.extend(self.processes.wires().clone());
        match &self.awake {
            Ok(awake) => {
                drop(report.host.facts.insert("processors kept awake".into(), awake.to_string()))
            }
            Err(why) => report.warnings.push(asleep(why)),
        }
    }

    fn conclude(&self, report: &mut Report) {
        report.host.facts.extend(self.proofs());
        for (queue, test) in &self.self_tests {
            let unclear =
                test.ports.iter().filter(|port| port.outcome == CheckOutcome::Inconclusive).count();
            if unclear > 0 {
                let warning = format!(
                    "the machine was too busy to prove {unclear} ports of the {queue} queues"
                );
                report.warnings.push(warning);
            }
        }
    }
}

impl ProcessVenue for LabVenue {
    fn processes(&self) -> &RankProcesses {
        &self.processes
    }

    fn processes_mut(&mut self) -> &mut RankProcesses {
        &mut self.processes
    }

    fn lead(&self) -> LocalNs {
        clock::now() + LEAD
    }

    /// Returns `begin` as it is: all hosts read the machine's one clock.
    fn local_time(&mut self, _rank: Rank, begin: LocalNs) -> Result<LocalNs> {
        Ok(begin)
    }

    fn lab(&self) -> Option<&Lab> {
        Some(&self.lab)
    }

    fn renew(&mut self) -> Result<bool> {
        let (lab, spec) = (&self.lab, &self.spec);
        self.processes.replace(|interrupt| gather(lab, spec, interrupt)).map(|()| true)
    }

    /// Over UDP the others know an address, which the new process takes; libfabric's endpoints have
    /// another one each time, and memory of one host is shared by those that met.
    fn can_restart(&self) -> bool {
        self.processes.far() == RemoteTransport::Udp && self.spec.per_host == 1
    }

    fn restart(&mut self, rank: Rank) -> Result<()> {
        let member = on_processors(&self.spec, || member(&self.lab, self.spec.per_host, rank))?;
        self.processes.restart(rank, member)
    }

    /// Replaces the queues where `frames` differs: what waits in queues is lost.
    fn offload(&mut self, frames: u32) -> Result<()> {
        if self.frames.0 != frames && self.lab.spec().queue == QueueKind::Fifo {
            self.lab.offload(frames)?;
            self.frames = (frames, self.frames.1.max(frames));
        }
        Ok(())
    }

    fn proofs(&self) -> Vec<(String, String)> {
        let proof = |(queue, test): &(QueueKind, SelfTest)| {
            let passed =
                test.ports.iter().filter(|port| port.outcome == CheckOutcome::Pass).count();
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
