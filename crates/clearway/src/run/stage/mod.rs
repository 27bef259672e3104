//! Where a run takes place: two rooms with one door, so that who conducts a test does not know in which it is.
//!
//! # Model
//! A stage puts a queue on every port, runs one phase with a task for each rank, and hands back what the ranks recorded. What
//! differs between places is data: [`Facts`], and the noise of the machine where there is a real one.
//!
//! # Invariants
//! I1. An interrupt is noticed within a tenth of a second and ends everything in order.

mod held;
mod job;
mod lab;
mod ports;
mod ranks;
mod rate;
mod sim;
mod slowest;
mod watch;

use std::cell::RefCell;
use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::{self, JoinHandle};

use anyhow::{Context, Result, bail};
use clearway_proto::base::{Bytes, LocalNs, Nanos, Rank};
use clearway_proto::congestion::{LoadTask, Phase, PhaseRecord, VictimTask};
use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};
use signal_hook::iterator::{Handle, Signals};

use super::Place;
use super::engine::Measure;
use super::job::Site;
use super::message::Waited;
use crate::mechanism::congestion::program::{Beside, ProgramPart, Troupe};
use crate::mechanism::congestion::windows::{Grid, Windows};
use crate::report::model::{Report, Slowest};
use crate::run::exit::Exit;
use crate::scenario::{Fabric, Scenario};
use clearway_wires::WireRequest;
pub(crate) use held::Held;
pub(crate) use job::JobStage;
pub(crate) use lab::LabStage;
pub(crate) use ranks::Ranks;
use watch::is_enough;
pub(crate) use watch::{Wanted, Watch, micros};

/// The user pressed Ctrl-C, or the system asked this process to end.
#[derive(Debug, Default)]
pub(crate) struct Interrupted {
    /// Files that are not whole and could not be removed.
    pub(crate) left: Vec<String>,
}

impl fmt::Display for Interrupted {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.left.is_empty() {
            return f.write_str("interrupted; nothing is left behind and no report was written");
        }
        write!(f, "interrupted; no report was written, and {} is left behind, unfinished", self.left.join(", "))
    }
}

impl std::error::Error for Interrupted {}

/// The user's wish to stop.
#[derive(Clone, Debug)]
pub(crate) struct Interrupt(Arc<AtomicBool>);

impl Interrupt {
    /// Listens from now on.
    pub(crate) fn listen() -> Result<Self> {
        let flag = Arc::new(AtomicBool::new(false));
        for signal in [SIGINT, SIGTERM, SIGHUP] {
            signal_hook::flag::register(signal, flag.clone()).context("cannot listen for signals")?;
        }
        Ok(Self(flag))
    }

    /// An error when the user wants an end.
    pub(crate) fn check(&self) -> Result<()> {
        if self.0.load(Ordering::Relaxed) { Err(Interrupted::default().into()) } else { Ok(()) }
    }
}

/// Ends this process when the user wishes it to stop, whatever it is busy with: for places that hold nothing outside it, so
/// that nothing has to be taken down. Dropped, it listens no more.
pub(crate) struct EndAtOnce {
    handle: Handle,
    listener: Option<JoinHandle<()>>,
}

impl EndAtOnce {
    pub(crate) fn listen() -> Result<Self> {
        let mut signals = Signals::new([SIGINT, SIGTERM, SIGHUP]).context("cannot listen for signals")?;
        let handle = signals.handle();
        let wait = move || {
            if signals.forever().next().is_some() {
                eprintln!("clearway: {}", Interrupted::default());
                std::process::exit(Exit::Interrupted as i32);
            }
        };
        let listener =
            thread::Builder::new().name("signals".into()).spawn(wait).context("cannot listen for signals")?;
        Ok(Self { handle, listener: Some(listener) })
    }
}

impl Drop for EndAtOnce {
    fn drop(&mut self) {
        self.handle.close();
        // It only waits, so it has nothing to tell.
        let _ = self.listener.take().map(JoinHandle::join);
    }
}

/// The ranks of a place where they are processes.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Crew {
    pub(crate) seed: u64,
    pub(crate) measure: Measure,
    /// Ranks on each host; a job's are its launcher's business.
    pub(crate) per_host: u16,
    /// What they shall talk over in a laboratory; a job's site knows.
    pub(crate) wire: WireRequest,
}

impl Crew {
    /// One rank on each host, over the wire that suits `measure`.
    pub(crate) const fn of(seed: u64, measure: Measure) -> Self {
        Self { seed, measure, per_host: 1, wire: WireRequest::AUTO }
    }
}

/// A phase as all ranks saw it.
pub(crate) struct Sighting {
    /// By rank.
    pub(crate) records: Vec<PhaseRecord>,
    /// How long each rank waited for a processor, by the conductor's clock; none where nothing real runs.
    pub(crate) waits: Vec<Waited>,
    /// When the phase began.
    pub(crate) begin: LocalNs,
    /// Its number, from 1.
    pub(crate) number: u32,
}

/// What figures and verdicts need to know of a place.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Facts {
    /// The longest packet on a link, all headers included: what a message can wait for however it is classed.
    pub(crate) frame: Bytes,
    /// How far from a full link victims suffer.
    pub(crate) reach: Reach,
    /// What isolated latencies can contain beside the network.
    pub(crate) hosts: Hosts,
    /// Whether stamps of two ranks can be compared.
    pub(crate) clocks: Clocks,
    /// Whether ranks' wires have multicast.
    pub(crate) has_multicast: bool,
}

/// Whether stamps of two ranks can be compared.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Clocks {
    /// All read one.
    One,
    /// Each machine has its own.
    Several,
}

/// How far from a full link victims suffer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Reach {
    /// Full queues drop: only who crosses the link.
    Link,
    /// Full buffers hold packets back: congestion spreads to links that are not full.
    Tree,
}

/// What isolated latencies can contain beside the network.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Hosts {
    /// Other people's work on the processors: long times alone prove a busy machine.
    Real,
    /// Nothing that the fabric's file does not say.
    Simulated,
}

/// What a rank does in a phase.
pub(crate) struct Part {
    pub(crate) victim: Option<VictimTask>,
    pub(crate) loads: Vec<LoadTask>,
}

/// A phase to run: when, and who does what.
pub(crate) struct Plan<'a> {
    pub(crate) windows: &'a Windows,
    pub(crate) part: &'a dyn Fn(Rank) -> Part,
    /// What it is, for a person.
    pub(crate) what: String,
    /// A command of the user's that loads in the middle of it.
    pub(crate) beside: Option<&'a RefCell<Beside>>,
}

/// Load alone, for as long as something else takes that is no message of Clearway's.
pub(crate) struct Backdrop<'a> {
    pub(crate) grid: Grid,
    pub(crate) loads: &'a dyn Fn(Rank) -> Vec<LoadTask>,
    /// Until the load is on.
    pub(crate) ramp: Nanos,
    /// Longer it will not be needed.
    pub(crate) longest: Nanos,
}

impl Backdrop<'_> {
    /// The orders of `rank`.
    fn orders(&self, rank: Rank, number: u32, begin: LocalNs, overhead: Bytes) -> Phase {
        let Grid { slice, drain } = self.grid;
        let all_along = |load: LoadTask| LoadTask { from: Nanos::ZERO, until: self.longest, ..load };
        let loads = (self.loads)(rank).into_iter().map(all_along).collect();
        Phase { number, begin, length: self.longest, drain, slice, overhead, victim: None, loads }
    }
}

impl Plan<'_> {
    /// The orders of `rank`.
    fn orders(&self, rank: Rank, number: u32, begin: LocalNs, overhead: Bytes) -> Phase {
        let Part { victim, loads } = (self.part)(rank);
        let Windows { grid, .. } = *self.windows;
        let (length, drain, slice) = (self.windows.length(), grid.drain, grid.slice);
        Phase { number, begin, length, drain, slice, overhead, victim, loads }
    }
}

/// The place of a run.
pub(crate) trait Stage {
    /// Which it is.
    fn place(&self) -> Place;

    /// What figures and verdicts need to know of it.
    fn facts(&self) -> Facts;

    /// The names of the hosts, by rank.
    fn hosts(&self) -> Vec<String>;

    /// Puts `queue` on every port.
    fn arm(&mut self, queue: &str) -> Result<()>;

    /// Runs one phase.
    fn phase(&mut self, plan: &Plan<'_>) -> Result<Sighting>;

    /// Does `work` before `backdrop`; returns when the load began and what arrived of it.
    fn before(&mut self, backdrop: &Backdrop<'_>, work: &mut dyn FnMut() -> Result<()>) -> Result<Sighting>;

    /// Brings `program` to where a command plays the part of `ranks`.
    fn troupe(&self, part: ProgramPart, program: &str, ranks: &[Rank]) -> Result<Troupe>;

    /// The slowest messages of the victims in phase `number`, which was `plan` on `queue`, and what held them up. `None` where
    /// messages cannot be followed.
    fn slowest(&mut self, _queue: &str, _number: u32, _plan: &Plan<'_>) -> Result<Option<Slowest>> {
        Ok(None)
    }

    /// Writes what is known of the place before the first packet into `report`.
    fn introduce(&self, report: &mut Report);

    /// Adds what is known at the end.
    fn conclude(&self, report: &mut Report);
}

/// Makes the `place` of `scenario`, which is not a job.
pub(crate) fn open(scenario: &Scenario, place: Place) -> Result<Box<dyn Stage>> {
    let crew = Crew::of(scenario.seed, Measure::Congestion);
    Ok(match place {
        Place::Cluster => bail!("the ranks of a job are gathered before a run; this is a defect of the program"),
        Place::Lab => Box::new(lab(&scenario.fabric, &crew)?),
        Place::Sim => Box::new(sim::SimStage::open(scenario)?),
    })
}

/// Makes the laboratory of `fabric` with `crew` in it.
pub(crate) fn lab(fabric: &Fabric, crew: &Crew) -> Result<LabStage> {
    LabStage::open(fabric, crew, Interrupt::listen()?)
}

/// Takes the ranks of `site` as `crew`.
pub(crate) fn job(crew: &Crew, site: Option<&Site>) -> Result<JobStage> {
    let site = site.context("no launcher started this process as a rank of a job")?;
    JobStage::open(crew, site)
}

/// Simulates `scenario`, watched, and lets `conduct` run it; what was seen. An answer found early ends the run.
pub(crate) fn watched(
    scenario: &Scenario,
    wanted: Wanted,
    conduct: impl FnOnce(&mut dyn Stage) -> Result<()>,
) -> Result<Watch> {
    let mut stage = sim::SimStage::open(scenario)?;
    let watch = Watch::new(wanted);
    watch.check(&stage.hosts())?;
    stage.watch = Some(watch);
    match conduct(&mut stage) {
        Err(error) if !is_enough(&error) => Err(error),
        _ => {
            let mut watch = stage.watch.take().context("nothing was watched")?;
            watch.digests = stage.digests;
            Ok(watch)
        }
    }
}
