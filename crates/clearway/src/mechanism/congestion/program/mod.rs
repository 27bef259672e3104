//! Programs of the user's own as victims and congestors: run in pairs, timed, ended wholly.
//!
//! # Model
//! ```text
//!    victim's command     alone     loaded     loaded     alone   ...   one slowdown for each pair
//!    congestors                  ramp ------ ------ pause
//! ```
//! Which run comes next and what the pairs say is decided in
//! `clearway_proto::congestion::RunPairs`. Congestors are Clearway's own, on the ranks of a stage,
//! or another command. With two commands no rank is needed, and without a stage both run here.
//!
//! Where a stage has hosts that can be entered, a command runs once on each host of its part, as
//! drawn, with [`PLACE_VARIABLE`] and [`ADDRESSES_VARIABLE`] in its environment. Elsewhere it runs
//! once, on the coordinator's host.
//!
//! # Invariants
//! I1. A run under load begins after the ramp of the congestors, and ends before they get the order
//!     to end.
//! I2. Every command is ended with the coordinator: see `guard`.

mod descendants;
mod flags;
mod group;
mod guard;
mod rows;
mod timed_command;

use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, anyhow, bail};
use clearway_proto::base::{Nanos, RandomKey, Rank};
use clearway_proto::congestion::{
    CongestorKind, Draw, Figure, NetworkOutcome, NetworkSharing, ProgramEvidence, RunPairs,
    judge_program,
};
use clearway_proto::stats::{Estimate, MEDIAN_MAX};

use super::cell::{Case, Cell, CongestorPresence};
use super::windows::{Grid, Windows};
use crate::mechanism::congestion::phases::{BackgroundLoad, PhaseResult, PhaseRunner};
use crate::mechanism::congestion::{Bursts, CongestionSection};
use crate::report::model::Report;
use crate::run::interrupt::Interrupt;
use crate::run::{RemainingTime, RunSpec, ended, notice};

pub(crate) use flags::{ProgramFlags, Programs};
pub(crate) use group::{ProgramGroup, ProgramRole as ProgramPart};
pub(crate) use guard::{main as guard, watch};
pub(crate) use timed_command::TimedCommand;

use group::GroupRun;

/// The variable that tells a command which of its hosts it is on, from 0.
pub(crate) const PLACE_VARIABLE: &str = "CLEARWAY_PLACE";
/// The variable with the addresses of its hosts in that order, separated by commas.
pub(crate) const ADDRESSES_VARIABLE: &str = "CLEARWAY_ADDRESSES";

/// What a congestor command gets to become a load: an `mpirun` takes half a second to have its
/// ranks start.
const RAMP: Duration = Duration::from_secs(2);
/// What the network gets to empty after it, several times what the longest queue of a laboratory
/// needs.
const PAUSE: Duration = Duration::from_millis(500);
/// Slices until Clearway's own load counts as one, as in every other run.
const RAMP_SLICES: u32 = 5;

/// Where the commands run.
pub(crate) enum ProgramVenue<'a, 'v> {
    /// On this machine, both of them.
    Here,
    /// On the hosts of a stage, or once while its ranks run.
    Stage(&'a mut PhaseRunner<'v>),
}

/// One case over all its draws.
struct ProgramCaseResult {
    queue: String,
    congestor: CongestorKind,
    intensity: u32,
    bursts: Bursts,
    slowdown: Estimate,
    /// Median figures alone and under load.
    medians: [Estimate; 2],
    congestor_share: Option<f64>,
    /// All figures alone and under load, in the order of pairs.
    runs: [Vec<f64>; 2],
    verdict: clearway_proto::congestion::Verdict,
}

/// Runs the victim's command of `programs` and writes what it shows into `report`.
pub(crate) fn run(
    programs: &Programs,
    test: &CongestionSection,
    order: &RunSpec<'_>,
    venue: ProgramVenue<'_, '_>,
    report: &mut Report,
) -> Result<()> {
    if u64::from(programs.pairs) * u64::from(test.draws) > MEDIAN_MAX as u64 {
        bail!(
            "{} pairs in each of {} draws are more than {MEDIAN_MAX} pairs",
            programs.pairs,
            test.draws
        );
    }
    let victim = programs.victim.as_deref().context("no command of a victim")?;
    let interrupt = Interrupt::listen()?;
    let mut show =
        ProgramTest { programs, victim, test, order, venue, interrupt, cases: 0, remaining: None };
    let mut found = Vec::new();
    let total = show.queues().len() * show.congestors().len();
    let runs = 2 * total * (programs.pairs * show.draws()) as usize;
    show.remaining = Some(RemainingTime::begin("run", vec![1.0; runs], None));
    for queue in show.queues() {
        if let ProgramVenue::Stage(stage) = &mut show.venue {
            stage.arm(&queue)?;
        }
        for (congestor, load) in show.congestors() {
            found.push(show.case(&queue, congestor, load)?);
            let mut partial = report.clone();
            rows::write(&mut partial, programs, test, &order.scenario.verdict, &found);
            ended(&mut partial);
            order.complete.cells(partial, [found.len(), total]);
        }
    }
    rows::write(report, programs, test, &order.scenario.verdict, &found);
    if let ProgramVenue::Stage(stage) = &show.venue {
        stage.conclude(report);
    }
    Ok(())
}

/// Goes through the cases.
struct ProgramTest<'a, 'g, 'v> {
    programs: &'a Programs,
    victim: &'a str,
    test: &'a CongestionSection,
    order: &'a RunSpec<'a>,
    venue: ProgramVenue<'g, 'v>,
    interrupt: Interrupt,
    /// Begun so far.
    cases: u64,
    /// Tells how long the runs of all pairs take.
    remaining: Option<RemainingTime>,
}

/// The load during a run.
enum ConcurrentLoad<'a> {
    Command(ProgramGroup),
    Ranks(Cell<'a>),
}

impl ProgramTest<'_, '_, '_> {
    /// Returns what is compared; without a stage there is one network, as it is.
    fn queues(&self) -> Vec<String> {
        match &self.venue {
            ProgramVenue::Here => vec!["as-is".to_owned()],
            ProgramVenue::Stage(_) => self.test.queues.clone(),
        }
    }

    /// Returns all congestors, with the intensity and the bursts of each.
    fn congestors(&self) -> Vec<(CongestorKind, (u32, Bursts))> {
        if self.programs.congestor.is_some() {
            return vec![(CongestorKind::Program, (0, Bursts::Steady))];
        }
        let kinds = self.test.congestors.iter().filter(|kind| **kind != CongestorKind::None);
        kinds.flat_map(|kind| self.test.loads(*kind).map(|load| (*kind, load))).collect()
    }

    fn draws(&self) -> u32 {
        match &self.venue {
            ProgramVenue::Here => 1,
            ProgramVenue::Stage(_) => self.test.draws,
        }
    }

    fn case(
        &mut self,
        queue: &str,
        congestor: CongestorKind,
        load: (u32, Bursts),
    ) -> Result<ProgramCaseResult> {
        self.cases += 1;
        let (mut slowdowns, mut runs, mut least) = (Vec::new(), [Vec::new(), Vec::new()], None);
        for number in 0..self.draws() {
            let (pairs, share) = self.draw(queue, congestor, load, number)?;
            slowdowns.extend(pairs.slowdowns());
            for (all, company) in
                runs.iter_mut().zip([NetworkSharing::Alone, NetworkSharing::Congestors])
            {
                all.extend(pairs.figures(company));
            }
            least = [least, share].into_iter().flatten().min_by(f64::total_cmp);
        }
        let median = |values: &[f64]| Estimate::median(values).context("no pair was run");
        let slowdown = median(&slowdowns)?;
        let evidence = ProgramEvidence { slowdown, congestor_share: least };
        let verdict = judge_program(&self.order.scenario.verdict, &evidence);
        let medians = [median(&runs[0])?, median(&runs[1])?];
        let queue = queue.to_owned();
        let found = ProgramCaseResult {
            queue,
            congestor,
            intensity: load.0,
            bursts: load.1,
            slowdown,
            medians,
            congestor_share: least,
            runs,
            verdict,
        };
        notice!("{}", rows::sentence(&found, self.programs.figure));
        Ok(found)
    }

    /// Runs all pairs of one draw; returns them and the least that congestors reached of their fair
    /// rate.
    fn draw(
        &mut self,
        queue: &str,
        congestor: CongestorKind,
        (intensity, bursts): (u32, Bursts),
        number: u32,
    ) -> Result<(RunPairs, Option<f64>)> {
        let key = RandomKey::new(self.order.scenario.seed);
        let layout = match &self.venue {
            ProgramVenue::Here => None,
            ProgramVenue::Stage(_) => {
                Some(self.order.scenario.layout().map_err(|why| anyhow!(why))?)
            }
        };
        let draw = layout
            .as_ref()
            .map(|layout| Draw::new(&**layout, &self.test.request(), key, number))
            .transpose()?;
        let victims = draw.as_ref().map_or(Vec::new(), |draw| draw.victims.clone());
        let mut victim = self.start_group(ProgramPart::Victim, self.victim, &victims)?;
        let mut load = match (&self.programs.congestor, &self.venue, &draw, &layout) {
            (Some(program), ..) => {
                let hosts: Vec<Rank> =
                    draw.iter().flat_map(|draw| draw.groups.iter().flatten().copied()).collect();
                ConcurrentLoad::Command(self.start_group(
                    ProgramPart::Congestor,
                    program,
                    &hosts,
                )?)
            }
            (None, ProgramVenue::Stage(stage), Some(draw), Some(layout)) => {
                let windows = Windows::new(self.grid(), Nanos(1), Nanos(1));
                let case = Case::for_program(queue, congestor, intensity, bursts);
                ConcurrentLoad::Ranks(Cell {
                    case,
                    draw,
                    test: self.test,
                    layout: &**layout,
                    windows,
                    facts: stage.facts(),
                    congestors: CongestorPresence::Loading,
                })
            }
            _ => bail!("there are no ranks that could load; give --congestor-cmd"),
        };
        let mut pairs = RunPairs::new(
            key.purpose("pairs").node(self.cases).node(u64::from(number)),
            self.programs.figure,
            self.programs.pairs as usize,
        );
        let mut least: Option<f64> = None;
        while let Some(company) = pairs.next() {
            let how = if company == NetworkSharing::Alone { "alone" } else { "under" };
            if let Some(remaining) = &self.remaining {
                remaining.part(format!("{queue}, {how} {}", congestor.name()));
            }
            let figure = match company {
                NetworkSharing::Alone => self.alone(&mut victim)?,
                NetworkSharing::Congestors => {
                    let (figure, share) = self.run_under_load(&mut victim, &mut load)?;
                    least = [least, share].into_iter().flatten().min_by(f64::total_cmp);
                    figure
                }
            };
            pairs.record(figure);
        }
        Ok((pairs, least))
    }

    fn grid(&self) -> Grid {
        Grid::new(&self.order.scenario.fabric, self.test.slice)
    }

    fn start_group(
        &mut self,
        part: ProgramPart,
        program: &str,
        ranks: &[Rank],
    ) -> Result<ProgramGroup> {
        match &mut self.venue {
            ProgramVenue::Here => ProgramGroup::here(part, program),
            ProgramVenue::Stage(stage) => stage.start_group(part, program, ranks),
        }
    }

    /// Does one run and returns its figure; infinite when it did not end in time.
    fn run_once(
        &self,
        victim: &mut ProgramGroup,
        watch: &mut dyn FnMut() -> Result<()>,
    ) -> Result<(f64, Option<GroupRun>)> {
        let limit = Duration::from_nanos(self.programs.limit.0);
        let Some(group_run) = victim.run_once(limit, watch)? else {
            return Ok((f64::INFINITY, None));
        };
        let figure = match self.programs.figure {
            Figure::Wall => group_run.end.since(group_run.begin).0 as f64,
            Figure::Time | Figure::Rate => rows::last_number(&group_run.last_line).with_context(|| {
                format!(
                    "the victim command's last line holds no number above 0: `{}`; --victim-figure wall times the command itself",
                    group_run.last_line
                )
            })?,
        };
        Ok((figure, Some(group_run)))
    }

    fn alone(&self, victim: &mut ProgramGroup) -> Result<f64> {
        match self.run_once(victim, &mut || self.interrupt.check())? {
            (_, None) => bail!(
                "the victim command alone takes longer than {}, so there is nothing to compare with; --victim-limit allows more",
                self.programs.limit
            ),
            (figure, Some(_)) => Ok(figure),
        }
    }

    /// Does a run under `load`; returns its figure, and what the load reached of its fair rate
    /// where it is known.
    fn run_under_load(
        &mut self,
        victim: &mut ProgramGroup,
        load: &mut ConcurrentLoad<'_>,
    ) -> Result<(f64, Option<f64>)> {
        match load {
            ConcurrentLoad::Command(congestor) => {
                congestor.run_repeatedly()?;
                self.pause(RAMP, congestor)?;
                let mut watch = || {
                    congestor.check()?;
                    self.interrupt.check()
                };
                let (figure, _) = self.run_once(victim, &mut watch)?;
                congestor.check()?;
                congestor.stop()?;
                self.pause(PAUSE, congestor)?;
                Ok((figure, None))
            }
            ConcurrentLoad::Ranks(cell) => self.run_during_load(victim, cell),
        }
    }

    /// Waits, and sees to it that the congestor goes on.
    fn pause(&self, length: Duration, congestor: &mut ProgramGroup) -> Result<()> {
        let until = Instant::now() + length;
        while Instant::now() < until {
            self.interrupt.check()?;
            congestor.check()?;
            thread::sleep(Duration::from_millis(10));
        }
        Ok(())
    }

    /// Does a run during the load of a stage's ranks.
    fn run_during_load(
        &mut self,
        victim: &mut ProgramGroup,
        cell: &Cell<'_>,
    ) -> Result<(f64, Option<f64>)> {
        let grid = self.grid();
        let ramp = grid.slices(RAMP_SLICES);
        let longest = self.programs.limit + ramp + Nanos::from_secs(60);
        // The stage lends itself to the load; what the run needs is the rest of this.
        let mut venue = std::mem::replace(&mut self.venue, ProgramVenue::Here);
        let ProgramVenue::Stage(stage) = &mut venue else {
            bail!("there are no ranks that could load")
        };
        let mut performed = None;
        let background = BackgroundLoad { grid, loads: &|rank| cell.loads(rank), ramp, longest };
        let phase_result = stage.run_during_load(&background, &mut || {
            performed = Some(self.run_once(victim, &mut || self.interrupt.check())?);
            Ok(())
        });
        self.venue = venue;
        let phase_result = phase_result?;
        let (figure, group_run) = performed.context("a run that was not made")?;
        thread::sleep(PAUSE);
        let share =
            group_run.and_then(|group_run| load_share(&phase_result, &group_run, cell, grid));
        Ok((figure, share))
    }
}

/// Returns what arrived of the load of `cell` in the slices of `performance`, over what a fair
/// network would have let through.
fn load_share(
    phase_result: &PhaseResult,
    group_run: &GroupRun,
    cell: &Cell<'_>,
    grid: Grid,
) -> Option<f64> {
    let fair = cell.fair_rate()?;
    let slice = |at: clearway_proto::base::LocalNs| {
        at.since(phase_result.begin).steps_of(grid.slice) as u32
    };
    let (begin, end) = (slice(group_run.begin), slice(group_run.end));
    // A run within one slice: the load was on in the slice before it already.
    let slices = if begin < end { begin..end } else { begin.saturating_sub(1)..begin };
    let count = slices.len() as u32;
    let load = phase_result
        .records
        .iter()
        .flat_map(|record| &record.load)
        .flat_map(|series| &series.slices);
    let arrived: u64 =
        load.filter(|bytes| slices.contains(&bytes.slice)).map(|bytes| bytes.link).sum();
    Some(arrived as f64 / (fair.bytes_in(grid.slices(count)).0 as f64).max(1.0))
}

/// Returns the outcome: the worst one of the last queue decides, unless some part allows no
/// statement.
fn outcome(found: &[ProgramCaseResult]) -> Option<NetworkOutcome> {
    let judged = &found.last()?.queue;
    let is_invalid = |found: &&ProgramCaseResult| found.verdict.outcome == NetworkOutcome::Invalid;
    if found.iter().any(|it| is_invalid(&it)) {
        return Some(NetworkOutcome::Invalid);
    }
    found.iter().filter(|it| it.queue == *judged).map(|it| it.verdict.outcome).max()
}
