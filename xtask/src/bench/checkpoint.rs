//! `cargo xtask bench checkpoint`: the latency of an unmodified MPI program during checkpoints that
//! `dd` writes through mounts of a staging server, with and without classes.
//!
//! # Model
//! ```text
//!   h0  rank 0 of the MPI program, `clearway stage serve`
//!   h1  rank 1
//!   h2  `dd oflag=direct` into `clearway mount`
//!   h3  the same
//! ```
//! All writes and half of each ping cross the link to h0. Each case has a lab of its own: the
//! program runs while the server is idle, then while `dd` writes. Rounds take the cases in turns.
//! Ranks wait for messages without sleeping, each on a processor; staging shares these, with the
//! lowest priority.

use std::fs;
use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitCode, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, Result};

use super::hosts::Hosts;
use super::mpi::MPICH;
use super::pair::value_of;
use super::served::ServedMounts;
use super::{build_program, load, parse_with_program, spread};

const PING: &str = include_str!("ping_peer.c");
/// The rate of each host's link, and the same in bit/s.
const RATE: &str = "200Mb/s";
const RATE_BITS: f64 = 200e6;
const SERVER_PORT: u16 = 7_300;
/// How long the program pings.
const PINGS_S: &str = "5";
/// From the beginning of `dd` to that of the program: longer than a server's pace takes to settle.
const SETTLE: Duration = Duration::from_secs(4);
/// Hosts that write.
const WRITERS: [usize; 2] = [2, 3];

/// A queue, how the server serves, and the ratio of p99 that is wanted.
struct CheckpointCase {
    name: &'static str,
    queue: &'static str,
    flags: &'static [&'static str],
    aim: &'static str,
}

const CASES: [CheckpointCase; 3] = [
    CheckpointCase {
        name: "one FIFO, bulk",
        queue: "fifo",
        flags: &["--size", "512MiB", "--class", "bulk"],
        aim: ">= 5",
    },
    CheckpointCase {
        name: "one FIFO, scavenger that yields",
        queue: "fifo",
        flags: &["--size", "512MiB", "--class", "scavenger", "--yield", RATE],
        aim: "<= 3",
    },
    CheckpointCase {
        name: "strict queues, bulk",
        queue: "strict",
        flags: &["--size", "512MiB", "--class", "bulk"],
        aim: "<= 1.2",
    },
];

/// What a round says of a case.
struct CheckpointFigures {
    quiet_us: f64,
    loaded_us: f64,
    /// The utilization of the link to h0, from 0 to 1.
    of_link: f64,
}

/// Runs the bench.
pub(super) fn run(arguments: &[String]) -> Result<ExitCode> {
    let (rounds, program) = parse_with_program("checkpoint", arguments)?;
    if !Path::new("/dev/fuse").exists() {
        eprintln!("skipped: bench checkpoint needs /dev/fuse");
        return Ok(ExitCode::SUCCESS);
    }
    let directory =
        std::env::temp_dir().join(format!("clearway-checkpoint-{}", std::process::id()));
    let Some(ping) = MPICH.compile(&directory, "ping_peer", PING) else {
        return Ok(ExitCode::SUCCESS);
    };
    let program = program.map_or_else(build_program, Ok)?;
    println!("{RATE}, {rounds} rounds, load {} before", load());
    let mut figures: Vec<Vec<CheckpointFigures>> = CASES.iter().map(|_| Vec::new()).collect();
    for round in 0..rounds {
        for (case, figures) in CASES.iter().zip(&mut figures) {
            let place = directory.join(format!("{round}-{}", figures.len()));
            match measure(&program, &ping, case, &place) {
                Ok(seen) => figures.push(seen),
                Err(error) => eprintln!("skipped: {} in round {round}: {error:#}", case.name),
            }
            let _ = fs::remove_dir_all(&place);
        }
    }
    let _ = fs::remove_dir_all(&directory);
    println!("load {} after; median (least to greatest)\n", load());
    println!("  p99 loaded / quiet                quiet, us   of the link   aim");
    for (case, figures) in CASES.iter().zip(&figures) {
        let column = |of: fn(&CheckpointFigures) -> f64| {
            spread(&figures.iter().map(of).collect::<Vec<_>>()).unwrap_or((
                f64::NAN,
                f64::NAN,
                f64::NAN,
            ))
        };
        let (ratio, least, greatest) = column(|it| it.loaded_us / it.quiet_us);
        let (quiet, _, _) = column(|it| it.quiet_us);
        let (of_link, _, _) = column(|it| it.of_link);
        println!(
            "  {:<32} {ratio:.2} ({least:.2} to {greatest:.2})   {quiet:.0}   {of_link:.2}   {}",
            case.name, case.aim
        );
    }
    Ok(ExitCode::SUCCESS)
}

/// `dd` on hosts, which ends with this value.
struct Writers(Vec<Child>);

impl Drop for Writers {
    fn drop(&mut self) {
        for writer in &mut self.0 {
            let _ = writer.kill();
            let _ = writer.wait();
        }
    }
}

impl Writers {
    fn start(lab: &Hosts, mounts: &[PathBuf]) -> Result<Self> {
        let mut writers = Self(Vec::new());
        for (host, mount) in WRITERS.into_iter().zip(mounts) {
            let script = format!(
                "n=0; while nice -n 19 dd if=/dev/zero of={}/part.$n bs=1M count=4 oflag=direct \
                 2>/dev/null; do n=$(( (n + 1) % 8 )); done",
                mount.display()
            );
            let mut command = lab.on(host, "sh");
            command.args(["-c", &script]).stdin(Stdio::null());
            writers.0.push(command.spawn().context("a writer")?);
        }
        Ok(writers)
    }
}

fn measure(
    program: &Path,
    ping: &Path,
    case: &CheckpointCase,
    place: &Path,
) -> Result<CheckpointFigures> {
    let lab = Hosts::up(program.to_owned(), 4, RATE, case.queue, 1)?;
    let nice = |host| {
        let mut command = lab.on(host, "nice");
        command.args(["-n", "19"]).arg(program);
        command
    };
    let address = format!("{}:{SERVER_PORT}", lab.addresses[0]);
    let mut staging = ServedMounts::up(program, place, address, nice(0), case.flags)?;
    WRITERS.into_iter().try_for_each(|host| staging.mount(nice(host), &[]))?;
    let agent = lab.agent(place)?;
    let quiet_us = p99(&lab, &agent, ping)?;
    // They end before the mounts do.
    let writers = Writers::start(&lab, &staging.mounts)?;
    thread::sleep(SETTLE);
    let before = (received(&lab)?, Instant::now());
    let loaded_us = p99(&lab, &agent, ping)?;
    let bytes = received(&lab)? - before.0;
    let of_link = bytes * 8.0 / (RATE_BITS * before.1.elapsed().as_secs_f64());
    drop(writers);
    Ok(CheckpointFigures { quiet_us, loaded_us, of_link })
}

/// Runs the MPI program on h0 and h1; returns the p99 of its round trips in us.
fn p99(lab: &Hosts, agent: &Path, ping: &Path) -> Result<f64> {
    let hosts = lab.addresses[..2].join(",");
    let mut command = lab.on(0, "nice");
    command
        .args(["-n", "-15", "timeout", "60", MPICH.launcher, "-launcher", "ssh", "-launcher-exec"])
        .arg(agent);
    command.args(["-localhost", &lab.addresses[0], "-hosts", &hosts, "-ppn", "1", "-n", "2"]);
    // Else shared memory is found, whose names are those of the whole machine.
    command.args(["-genv", "UCX_TLS", "tcp", "-genv", "MPIR_CVAR_NOLOCAL", "1"]);
    command.arg(ping).arg(PINGS_S).stdin(Stdio::null());
    command.stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut job = command.spawn().context(MPICH.launcher)?;
    let mut text = String::new();
    if let Some(output) = job.stdout.take() {
        BufReader::new(output).read_line(&mut text)?;
    }
    // MPI_Finalize of this library sometimes does not return over TCP: one rank waits for the other, which
    // has left the progress loop. Everything is measured then.
    Command::new("kill").arg(job.id().to_string()).status().context("kill")?;
    let rest = job.wait_with_output()?;
    value_of(&text, "p99_us").with_context(|| {
        format!("the MPI program said {text:?}, {}", String::from_utf8_lossy(&rest.stderr))
    })
}

/// Returns the bytes that h0 has received.
fn received(lab: &Hosts) -> Result<f64> {
    let output = lab.on(0, "cat").arg("/proc/self/net/dev").output()?;
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    Ok(text.lines().filter_map(super::budget::received).sum())
}
