//! Runs the mechanisms' own commands in the hosts of a lab.
//!
//! # Model
//! The application is the congestion test's rank on each host. Transfers are commands: `clearway
//! timeslice build`, `clearway cast`, `dd` into `clearway mount` of a `clearway stage serve`, and a C
//! program under `oshrun`, each started when transfers begin and ended with them. What they carry is
//! read from their metrics, or the files of the C program; what links carry from their hosts. An MPI
//! program is an application, too, which runs all along. The applications and the commands have a
//! half of the processors each ([`ProcessorHalf`]).

mod c_program;
mod commands;
mod counters;
mod mpi_ping;
mod puts;

use std::cell::RefCell;
use std::fs::{self, OpenOptions};

use anyhow::{Context, Result, bail};
use clearway_proto::base::{BitsPerSec, LocalNs, Nanos, RandomKey, Rank};
use nix::unistd::geteuid;

use self::commands::LabCommands;
use self::counters::{HostReader, HostReading, spread};
pub(super) use self::mpi_ping::MpiPart;
use self::mpi_ping::{MpiRun, add_trips};
use super::outcome::{BusiestLink, SharedRun, TransferSet};
use super::roles::{HostRoles, Transfer};
use super::section::TogetherSection;
use crate::mechanism::congestion::program::{ProgramGroup, ProgramPart, TimedCommand};
use crate::mechanism::congestion::windows::Windows;
use crate::mechanism::congestion::{
    PhaseCompanion, PhasePlan, PhaseResult, PhaseRole, PhaseRunner, PhaseTraces,
};
use crate::run::processor_halves::ProcessorHalf;
use crate::run::task::RankWait;

/// Returns the transfers that this machine can run in a lab, and why it cannot run the others.
pub(super) fn transfers() -> (Vec<Transfer>, Vec<String>) {
    let (mut transfers, mut left_out) = (Vec::new(), Vec::new());
    match puts::tried_tools() {
        Ok(_) => transfers.push(Transfer::Puts),
        Err(why) => left_out.push(format!("the puts of an OpenSHMEM program were left out: {why}")),
    }
    transfers.extend([Transfer::Timeslices, Transfer::Cast]);
    match mount_refusal() {
        None => transfers.push(Transfer::Checkpoint),
        Some(why) => left_out.push(format!("the checkpoint was left out: {why}")),
    }
    (transfers, left_out)
}

/// Returns why nothing can be mounted by this process, if so.
fn mount_refusal() -> Option<String> {
    // user_namespaces(7): only the machine's first user namespace maps all users to themselves.
    let map = fs::read_to_string("/proc/self/uid_map").unwrap_or_default();
    if map.split_whitespace().ne(["0", "0", "4294967295"]) || !geteuid().is_root() {
        return Some("only root can mount; run this as root of the machine".to_owned());
    }
    let device = OpenOptions::new().read(true).write(true).open("/dev/fuse");
    device.err().map(|why| format!("/dev/fuse does not open ({why}); load the module fuse"))
}

/// Slices over which a drawn rate is a mean: a mount sends a call of 1 MiB in two of them.
const SMOOTHING: usize = 5;
/// The share of time without a processor from which on times of the application are in doubt.
pub(super) const WAIT_MAX: f64 = 0.05;

const NO_LAB: &str = "commands run in a lab only";

/// All commands that load in one run, and the MPI program, which runs before, during and after them.
struct TimedPrograms {
    transfers: Vec<(Transfer, TimedCommand)>,
    mpi: Option<MpiRun>,
}

impl PhaseCompanion for TimedPrograms {
    fn step(&mut self, elapsed: Nanos) -> Result<()> {
        self.mpi.iter_mut().for_each(MpiRun::check);
        self.transfers.iter_mut().try_for_each(|(transfer, command)| {
            command.step(elapsed).with_context(|| format!("the {}", transfer.name()))
        })
    }
}

/// Runs `set` of `transfers` in the lab of `stage`, whose links have `rate` and whose queue is `queue`.
///
/// # Errors
/// One sentence: what did not start, or failed.
pub(super) fn run(
    stage: &mut PhaseRunner<'_>,
    test: &TogetherSection,
    key: RandomKey,
    windows: Windows,
    (set, transfers): (TransferSet, &[Transfer]),
    (queue, rate): (&str, BitsPerSec),
    mpi: &mut MpiPart,
) -> Result<SharedRun> {
    let hosts = stage.hosts().len() as u32;
    // One server: one for each few hosts would need more processors than a machine has.
    let roles = HostRoles::new(hosts, hosts, key);
    let chosen: Vec<Transfer> = transfers.iter().copied().filter(|it| set.has(*it)).collect();
    let mut commands = LabCommands::new(key)?;
    let started = || prepare(stage, &mut commands, &roles, &chosen);
    let timed = ProcessorHalf::Commands.run(started)?;
    let timed =
        timed.into_iter().map(|(transfer, group)| (transfer, TimedCommand::new(group, windows)));
    let program = start_mpi(stage, &mut commands, &roles, mpi);
    let timed = RefCell::new(TimedPrograms { transfers: timed.collect(), mpi: program });
    let lab = stage.lab().context(NO_LAB)?;
    let mut readers = Vec::new();
    for host in (0..hosts).map(Rank) {
        let here = |transfer: &&Transfer| transfer.counting_host(&roles) == Some(host);
        let served = chosen.iter().filter(here).map(|transfer| commands.counter(*transfer));
        readers.push(HostReader::new(lab, host, served.collect())?);
    }
    let part = |rank| PhaseRole {
        victim: Some(roles.application(rank, test.application_interval.0)),
        loads: Vec::new(),
    };
    let what = format!("{} with the application", set.name());
    let plan = PhasePlan {
        windows: &windows,
        part: &part,
        what,
        traces: PhaseTraces::Kept,
        companion: Some(&timed),
    };
    let phase = stage.phase(&plan)?;
    let program = timed.into_inner().mpi;
    let readings = readers.into_iter().map(HostReader::finish).collect::<Result<Vec<_>>>()?;
    let mut run = SharedRun::new(queue, set, windows.after.until);
    for record in &phase.records {
        run.add_record(record);
    }
    for transfer in &chosen {
        add_transfer(&mut run, *transfer, &chosen, &roles, &readings, &phase, &windows);
    }
    if let Some(program) = program {
        let added = program.finish().and_then(|trips| {
            add_trips(&mut run, &trips, phase.begin, &windows).map_err(anyhow::Error::msg)
        });
        added.unwrap_or_else(|why| mpi.miss(&format!("{queue}, {}", set.name()), &why));
    }
    run.smoothing = SMOOTHING;
    run.processor_wait = processor_wait(&phase, &windows);
    let hosts = stage.hosts();
    run.link = busiest(&readings, &hosts, rate, phase.begin, &windows);
    if chosen.iter().any(|transfer| run.rate(*transfer, &windows) > 0.0) {
        return Ok(run);
    }
    bail!("no transfer carried anything on {queue} queues; the machine may be too busy, run again")
}

/// Starts what the `chosen` transfers need, and the guards of the commands that load.
fn prepare(
    stage: &mut PhaseRunner<'_>,
    commands: &mut LabCommands,
    roles: &HostRoles,
    chosen: &[Transfer],
) -> Result<Vec<(Transfer, ProgramGroup)>> {
    let lab = stage.lab().context(NO_LAB)?;
    let mut lines = Vec::new();
    for transfer in chosen {
        let prepared = commands.prepare(lab, roles, *transfer);
        lines.extend(prepared.with_context(|| format!("the {}", transfer.name()))?);
    }
    let guarded = lines.into_iter().map(|line| {
        let group = stage.start_group(ProgramPart::Congestor, &line.line, &line.hosts);
        Ok((line.transfer, group.with_context(|| format!("the {}", line.transfer.name()))?))
    });
    guarded.collect()
}

/// Starts the MPI program, if it takes part; where it does not start, runs go on without it.
fn start_mpi(
    stage: &mut PhaseRunner<'_>,
    commands: &mut LabCommands,
    roles: &HostRoles,
    mpi: &mut MpiPart,
) -> Option<MpiRun> {
    let tools = mpi.tools()?;
    let hosts = roles.mpi();
    let start = || {
        let (line, times) = commands.mpi(stage.lab().context(NO_LAB)?, hosts, &tools)?;
        let group = stage.start_group(ProgramPart::Victim, &line, &hosts[..1])?;
        MpiRun::start(group, times)
    };
    ProcessorHalf::Ranks.run(start).inspect_err(|why| mpi.leave_out(&format!("{why:#}"))).ok()
}

/// Returns the share of the time with all transfers that ranks waited for a processor.
fn processor_wait(phase: &PhaseResult, windows: &Windows) -> f64 {
    let [from, until] = [windows.congested.from, windows.congested.until]
        .map(|slice| phase.begin + windows.grid.slices(slice));
    let counted = || phase.waits.iter().filter(|wait| wait.at > from && wait.at <= until);
    let sum = |of: fn(&RankWait) -> u64| counted().map(of).sum::<u64>() as f64;
    sum(|wait| wait.waited.0) / sum(|wait| wait.length.0).max(1.0)
}

/// Adds to `run` what `transfer`, one of those that ran, counted.
fn add_transfer(
    run: &mut SharedRun,
    transfer: Transfer,
    chosen: &[Transfer],
    roles: &HostRoles,
    readings: &[Vec<HostReading>],
    phase: &PhaseResult,
    windows: &Windows,
) {
    let Some(host) = transfer.counting_host(roles) else { return };
    let before = chosen.iter().take_while(|it| **it != transfer);
    let place = before.filter(|it| it.counting_host(roles) == Some(host)).count();
    let Some(readings) = readings.get(host.index()) else { return };
    let counted: Vec<(LocalNs, u64)> = readings
        .iter()
        .filter_map(|it| Some((it.at, it.served.get(place).copied().flatten()?)))
        .collect();
    let slices = spread(&counted, phase.begin, windows.grid.slice, windows.after.until);
    for (slice, bytes) in (0..).zip(slices) {
        run.carried(transfer, slice, bytes);
    }
}

/// Returns the link that carried most while all transfers ran.
fn busiest(
    readings: &[Vec<HostReading>],
    hosts: &[String],
    rate: BitsPerSec,
    begin: LocalNs,
    windows: &Windows,
) -> Option<BusiestLink> {
    let room = rate.bytes_in(windows.congested.length(windows.grid)).0.max(1) as f64;
    let of_host = |(host, readings): (&String, &Vec<HostReading>)| {
        [0, 1].map(|way| {
            let counted: Vec<_> = readings.iter().map(|it| (it.at, it.link[way])).collect();
            let slices = spread(&counted, begin, windows.grid.slice, windows.after.until);
            let chosen = (0..).zip(slices).filter(|(slice, _)| windows.congested.contains(*slice));
            let bytes: u64 = chosen.map(|(_, bytes)| bytes).sum();
            let name = if way == 0 { format!("to {host}") } else { format!("from {host}") };
            BusiestLink { name, fraction: bytes as f64 / room }
        })
    };
    let links = hosts.iter().zip(readings).flat_map(of_host);
    links.max_by(|a, b| a.fraction.total_cmp(&b.fraction))
}
