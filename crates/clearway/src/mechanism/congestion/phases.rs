//! Phases of the congestion test in a venue: what each rank does in them, and what all ranks
//! recorded.
//!
//! # Invariants
//! I1. A phase is over when every rank that takes part has answered for it, and for no other.

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::thread;
use std::time::Duration;

use anyhow::{Context, Result, bail};
use clearway_lab::Lab;
use clearway_proto::base::{Bytes, LocalNs, Nanos, Rank};
use clearway_proto::congestion::{LinkId, LoadTask, NetworkLayout, Phase, PhaseRecord, VictimTask};
use clearway_runtime::clock;

use super::phase_protocol::CongestionProtocol;
use super::program::{ADDRESSES_VARIABLE, PLACE_VARIABLE, ProgramGroup, ProgramPart, TimedCommand};
use super::simulated::{self, SimulatedPhases};
use super::windows::{Grid, Windows};
use crate::report::model::{Report, Slowest};
use crate::run::ended;
use crate::run::task::{LossCounts, RankRecord, RankWait};
use crate::run::venue::{ProcessVenue, SimVenue, Venue, VenueFacts, VenueRanks};

/// How often a wait looks for the user's interrupt.
const LOOK_EVERY: Duration = Duration::from_millis(20);
/// What a phase may take beyond its length before its ranks count as stuck.
const TIMEOUT: Duration = Duration::from_secs(60);
/// What a rank that answers for something else is.
const ANSWER: &str = "a rank answered for another phase; this is a defect of the program";
/// Why no command of the user's runs on the simulator.
const NO_PROGRAMS: &str =
    "a command of yours needs a machine to run on, which the simulator has not";

/// A phase as all ranks saw it.
pub(crate) struct PhaseResult {
    /// By rank.
    pub(crate) records: Vec<PhaseRecord>,
    /// How long each rank waited for a processor, by the coordinator's clock; none where nothing
    /// real runs.
    pub(crate) waits: Vec<RankWait>,
    /// When the phase began.
    pub(crate) begin: LocalNs,
    /// Its number, from 1.
    pub(crate) number: u32,
    /// The ports at which most waited or was dropped, where somebody counts.
    pub(crate) full: Vec<FullPort>,
}

/// What one port counted in one phase.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct FullPort {
    /// As a report names it.
    pub(crate) name: String,
    pub(crate) amount: u64,
    /// What the amount is of, as the end of a sentence.
    pub(crate) unit: &'static str,
}

/// Ports of one phase that are kept.
pub(super) const FULL_PORTS: usize = 256;

/// What a rank does in a phase.
pub(crate) struct PhaseRole {
    pub(crate) victim: Option<VictimTask>,
    pub(crate) loads: Vec<LoadTask>,
}

/// A phase to run: when, and who does what.
pub(crate) struct PhasePlan<'a> {
    pub(crate) windows: &'a Windows,
    pub(crate) part: &'a dyn Fn(Rank) -> PhaseRole,
    /// What it is, for a person.
    pub(crate) what: String,
    /// What is kept of it in addition to the records.
    pub(crate) traces: PhaseTraces,
    /// What else runs in the middle of it: commands that load.
    pub(crate) companion: Option<&'a RefCell<dyn PhaseCompanion + 'a>>,
}

/// What a simulator keeps of a phase in addition to the records of its ranks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum PhaseTraces {
    /// What ports did, and the slowest messages.
    Kept,
    /// Nothing: of many phases only a count is asked for.
    Dropped,
}

/// Does what the coordinator does during a phase in addition to measuring, such as starting the
/// commands that load.
pub(crate) trait PhaseCompanion {
    /// Does what is due `elapsed` after the phase's beginning.
    ///
    /// # Errors
    /// One sentence that ends the phase.
    fn step(&mut self, elapsed: Nanos) -> Result<()>;
}

impl PhaseCompanion for TimedCommand {
    fn step(&mut self, elapsed: Nanos) -> Result<()> {
        Self::step(self, elapsed)
    }
}

/// Load alone, for as long as something else takes that is no message of Clearway's.
pub(crate) struct BackgroundLoad<'a> {
    pub(crate) grid: Grid,
    pub(crate) loads: &'a dyn Fn(Rank) -> Vec<LoadTask>,
    /// Until the load is on.
    pub(crate) ramp: Nanos,
    /// Longer it will not be needed.
    pub(crate) longest: Nanos,
}

impl BackgroundLoad<'_> {
    /// Returns the orders of `rank`.
    pub(super) fn orders(&self, rank: Rank, number: u32, begin: LocalNs, overhead: Bytes) -> Phase {
        let Grid { slice, drain } = self.grid;
        let all_along =
            |load: LoadTask| LoadTask { from: Nanos::ZERO, until: self.longest, ..load };
        let loads = (self.loads)(rank).into_iter().map(all_along).collect();
        Phase { number, begin, length: self.longest, drain, slice, overhead, victim: None, loads }
    }
}

impl PhasePlan<'_> {
    /// Returns the orders of `rank`.
    pub(super) fn orders(&self, rank: Rank, number: u32, begin: LocalNs, overhead: Bytes) -> Phase {
        let PhaseRole { victim, loads } = (self.part)(rank);
        let Windows { grid, .. } = *self.windows;
        let (length, drain, slice) = (self.windows.length(), grid.drain, grid.slice);
        Phase { number, begin, length, drain, slice, overhead, victim, loads }
    }
}

/// A venue in which phases run.
pub(crate) struct PhaseRunner<'v> {
    venue: &'v mut dyn Venue,
    /// Phases so far.
    phases: u32,
    losses: LossCounts,
    pub(super) simulated: SimulatedPhases,
}

impl<'v> PhaseRunner<'v> {
    /// Runs phases in `venue`.
    pub(crate) fn new(venue: &'v mut dyn Venue) -> Self {
        Self {
            venue,
            phases: 0,
            losses: LossCounts::default(),
            simulated: SimulatedPhases::default(),
        }
    }

    /// Returns what figures and verdicts need to know of the venue.
    pub(crate) fn facts(&self) -> VenueFacts {
        self.venue.facts()
    }

    /// Returns the names of the hosts, by rank.
    pub(crate) fn hosts(&self) -> Vec<String> {
        self.venue.hosts()
    }

    /// Returns the virtual hosts, where there are any.
    pub(crate) fn lab(&mut self) -> Option<&Lab> {
        match self.venue.ranks() {
            VenueRanks::Simulated(_) => None,
            VenueRanks::Processes(ranks) => ranks.lab(),
        }
    }

    /// Returns the simulator, where ranks are simulated.
    pub(crate) fn simulator(&mut self) -> Option<&mut SimVenue> {
        match self.venue.ranks() {
            VenueRanks::Simulated(sim) => Some(sim),
            VenueRanks::Processes(_) => None,
        }
    }

    /// Puts `queue` on every port.
    pub(crate) fn arm(&mut self, queue: &str) -> Result<()> {
        self.venue.arm(queue)
    }

    /// Runs one phase.
    pub(crate) fn phase(&mut self, plan: &PhasePlan<'_>) -> Result<PhaseResult> {
        self.phases += 1;
        match self.venue.ranks() {
            VenueRanks::Simulated(sim) => self.simulated.phase(sim, plan, self.phases),
            VenueRanks::Processes(ranks) => phase(ranks, plan, self.phases, &mut self.losses),
        }
    }

    /// Does `work` before `background`; returns when the load began and what arrived of it. The
    /// load is ended by the next phase, which is empty.
    pub(crate) fn run_during_load(
        &mut self,
        background: &BackgroundLoad<'_>,
        work: &mut dyn FnMut() -> Result<()>,
    ) -> Result<PhaseResult> {
        let numbers = [self.phases + 1, self.phases + 2];
        self.phases += 2;
        match self.venue.ranks() {
            VenueRanks::Simulated(_) => bail!("{NO_PROGRAMS}"),
            VenueRanks::Processes(ranks) => {
                run_during_load(ranks, background, numbers, &mut self.losses, work)
            }
        }
    }

    /// Brings `program` to where a command plays the part of `ranks`: on the virtual host of each;
    /// once, on the coordinator's host, where hosts can be entered by a site's own launcher only.
    pub(crate) fn start_group(
        &mut self,
        part: ProgramPart,
        program: &str,
        ranks: &[Rank],
    ) -> Result<ProgramGroup> {
        let VenueRanks::Processes(venue) = self.venue.ranks() else { bail!("{NO_PROGRAMS}") };
        let Some(lab) = venue.lab() else { return ProgramGroup::here(part, program) };
        let hosts = || ranks.iter().filter_map(|rank| lab.hosts().get(rank.index()));
        let addresses: Vec<String> = hosts().map(|host| host.address.to_string()).collect();
        let mut group = ProgramGroup::new(part, program);
        for (place, host) in hosts().enumerate() {
            let mut guard = group.guard()?;
            guard
                .env(PLACE_VARIABLE, place.to_string())
                .env(ADDRESSES_VARIABLE, addresses.join(","));
            let guard = lab.spawn(host.rank, guard);
            group.add(
                &host.name,
                guard.with_context(|| format!("a command on host {} cannot start", host.name))?,
            )?;
        }
        Ok(group)
    }

    /// Returns the names of the ports of `link` in the network that `layout` describes; none where
    /// ports have no names.
    pub(crate) fn port_names(&mut self, link: LinkId, layout: &dyn NetworkLayout) -> Vec<String> {
        match self.venue.ranks() {
            VenueRanks::Simulated(sim) => simulated::port_names(sim, link, layout),
            VenueRanks::Processes(ranks) => {
                ranks.lab().and_then(|lab| lab_port(lab, link)).into_iter().collect()
            }
        }
    }

    /// Returns the slowest messages of the victims in phase `number`, which was `plan` on `queue`,
    /// and what held them up. `None` where messages cannot be followed.
    pub(crate) fn slowest(
        &mut self,
        queue: &str,
        number: u32,
        plan: &PhasePlan<'_>,
    ) -> Result<Option<Slowest>> {
        match self.venue.ranks() {
            VenueRanks::Simulated(sim) => self.simulated.slowest(sim, queue, number, plan),
            VenueRanks::Processes(_) => Ok(None),
        }
    }

    /// Adds to `report`, of a run that may not be over, what is known of the venue so far.
    pub(crate) fn close(&self, report: &mut Report) {
        ended(report);
        self.conclude(report);
        self.venue.conclude(report);
    }

    /// Adds what is known at the end to `report`.
    pub(crate) fn conclude(&self, report: &mut Report) {
        report.warnings.extend(self.losses.warnings());
    }
}

/// Returns the name of the port of `link` in `lab`, as its counters have it; `None` where several
/// ports share the link.
fn lab_port(lab: &Lab, link: LinkId) -> Option<String> {
    let host = |rank: Rank| lab.hosts().get(rank.index());
    match link {
        LinkId::FromHost(rank) => {
            host(rank).map(|host| format!("{}:{}", host.name, host.interface))
        }
        LinkId::ToHost(rank) => host(rank).map(|host| format!("{}:p{}", host.switch, rank.0)),
        LinkId::FromSwitch(switch) => Some(format!("s{switch}:up0")),
        LinkId::ToSwitch(_) | LinkId::Cable(_) => None,
    }
}

/// Runs phase `number`, which is `plan`, on processes.
fn phase(
    ranks: &mut dyn ProcessVenue,
    plan: &PhasePlan<'_>,
    number: u32,
    losses: &mut LossCounts,
) -> Result<PhaseResult> {
    let dropped_before = drops(ranks);
    let begin = ranks.lead();
    ranks.processes().check()?;
    let begins =
        order(ranks, begin, |rank, local, overhead| plan.orders(rank, number, local, overhead))?;
    let length = begin.since(clock::now()) + plan.windows.length() + plan.windows.grid.drain;
    let all: Vec<Rank> = ranks.processes().ranks().collect();
    let mut watch = || match plan.companion.filter(|_| clock::now() >= begin) {
        Some(companion) => companion.borrow_mut().step(clock::now().since(begin)),
        None => Ok(()),
    };
    let timeout = Duration::from_nanos(length.0) + TIMEOUT;
    let mut session = ranks.processes_mut().session::<CongestionProtocol>();
    let answers = session.responses(&all, timeout, &mut watch, |_, answer| Ok(Some(answer)))?;
    all.iter().zip(&answers).for_each(|(rank, answer)| losses.count(*rank, answer));
    let waits = answers
        .iter()
        .zip(begins)
        .flat_map(|(answer, local)| waits(answer, local, begin))
        .collect();
    let records =
        answers.into_iter().map(|it| Some(it.record).filter(|record| record.number == number));
    let records = records.collect::<Option<Vec<_>>>().context(ANSWER)?;
    let mut full = drops(ranks);
    for (port, before) in full.iter_mut().zip(dropped_before) {
        port.amount = port.amount.saturating_sub(before.amount);
    }
    full.retain(|port| port.amount > 0);
    Ok(PhaseResult { records, waits, begin, number, full })
}

/// Returns what each port of a lab dropped since its queues were armed; nothing elsewhere, or where
/// the kernel does not say.
fn drops(ranks: &mut dyn ProcessVenue) -> Vec<FullPort> {
    let counters = ranks.lab().and_then(|lab| lab.port_counters().ok()).unwrap_or_default();
    let mut ports: BTreeMap<String, u64> = BTreeMap::new();
    for counter in counters {
        *ports.entry(counter.port).or_default() += counter.drops;
    }
    let unit = "packets were dropped there";
    ports.into_iter().map(|(name, amount)| FullPort { name, amount, unit }).collect()
}

/// Gives every rank its orders of a phase that begins at `begin`; when that is by each rank's
/// clock.
fn order(
    ranks: &mut dyn ProcessVenue,
    begin: LocalNs,
    orders: impl Fn(Rank, LocalNs, Bytes) -> Phase,
) -> Result<Vec<LocalNs>> {
    let overhead = Bytes(ranks.processes().facts().overhead);
    let mut begins = Vec::new();
    for rank in ranks.processes().ranks() {
        let local = ranks.local_time(rank, begin)?;
        ranks
            .processes_mut()
            .session::<CongestionProtocol>()
            .request(rank, orders(rank, local, overhead))?;
        begins.push(local);
    }
    Ok(begins)
}

/// Returns how long a rank waited in a phase that began at `local` of its clock and `begin` of this
/// process's, by the latter.
fn waits<R>(
    answer: &RankRecord<R>,
    local: LocalNs,
    begin: LocalNs,
) -> impl Iterator<Item = RankWait> {
    let of_phase = answer.waits.iter().filter(move |wait| wait.at > local);
    of_phase.map(move |wait| RankWait { at: begin + wait.at.since(local), ..*wait })
}

/// Does `work` before `background`, which is phase `loaded`, on processes; phase `empty` ends it.
fn run_during_load(
    ranks: &mut dyn ProcessVenue,
    background: &BackgroundLoad<'_>,
    [loaded, empty]: [u32; 2],
    losses: &mut LossCounts,
    work: &mut dyn FnMut() -> Result<()>,
) -> Result<PhaseResult> {
    let begin = ranks.lead();
    ranks.processes().check()?;
    order(ranks, begin, |rank, local, overhead| background.orders(rank, loaded, local, overhead))?;
    while clock::now() < begin + background.ramp {
        ranks.processes().check()?;
        thread::sleep(LOOK_EVERY);
    }
    work()?;
    let overhead = Bytes(ranks.processes().facts().overhead);
    let all: Vec<Rank> = ranks.processes().ranks().collect();
    let mut session = ranks.processes_mut().session::<CongestionProtocol>();
    for rank in &all {
        let phase = Phase {
            length: Nanos::ZERO,
            drain: Nanos::ZERO,
            loads: Vec::new(),
            // Long ago: it is over when it begins.
            ..background.orders(*rank, empty, LocalNs(0), overhead)
        };
        session.request(*rank, phase)?;
    }
    let mut records = Vec::new();
    session.responses(&all, TIMEOUT, &mut || Ok(()), |rank, answer| {
        losses.count(rank, &answer);
        let is_last = answer.record.number == empty;
        if !is_last {
            records.push(answer.record);
        }
        Ok(is_last.then_some(()))
    })?;
    Ok(PhaseResult { records, waits: Vec::new(), begin, number: loaded, full: Vec::new() })
}
