//! `cargo xtask bench collectives`: barrier, allreduce and allgather among eight ranks of this host, over shared memory and over reliable
//! messages on UDP, beside Open MPI over its own shared memory and over TCP.
//!
//! # Model
//! Eight ranks share two processors, so a round that waits for another costs turns of the scheduler; both sides give their processor up while
//! they wait. What counts is the time of rank 0.
//!
//! # Not here
//! The measured loops: `crates/clearway/examples/collective_bench.rs`, and `collective_peer.c` for MPI.

use std::collections::BTreeMap;
use std::path::Path;
use std::process::{Command, ExitCode, Stdio};

use anyhow::{Context, Result};
use serde_json::json;

use super::contest::value;
use super::mpi::{OPEN_MPI, OPEN_MPI_AS_ROOT};
use super::shm::{directory, said};
use super::{Asked, build, link, load, spread};

/// The other program's source.
const PEER: &str = include_str!("collective_peer.c");
const RANKS: u32 = 8;
/// Longest run of any program in s; one that hangs is ended by `timeout`.
const DEADLINE_S: &str = "120";
const OPERATIONS: [&str; 3] = ["barrier", "allreduce", "allgather"];

/// Contestants: name, and what the program is told of the way.
const CONTESTS: [(&str, Way); 4] = [
    ("shared memory", Way::Ours("shm")),
    ("Open MPI", Way::Mpi("vader,self")),
    ("reliable over UDP", Way::Ours("udp")),
    ("Open MPI over TCP", Way::Mpi("tcp,self")),
];

#[derive(Clone, Copy)]
enum Way {
    Ours(&'static str),
    Mpi(&'static str),
}

/// Median microseconds by operation and contestant, one a round.
type Figures = BTreeMap<(&'static str, &'static str), Vec<f64>>;

/// Runs the bench.
pub(super) fn run(asked: &Asked) -> Result<ExitCode> {
    let cores = link::cores()?.map(|core| core.to_string()).join(",");
    let ours = build("clearway", "collective_bench")?;
    let mpi = OPEN_MPI.compile(&directory(), "collective_peer", PEER);
    let loaded = load();
    let mut figures = Figures::new();
    for round in 0..asked.rounds {
        let mut contests = CONTESTS;
        if round % 2 == 1 {
            contests.reverse();
        }
        for (name, way) in contests {
            let lines = match (way, &mpi) {
                (Way::Ours(way), _) => run_ours(&ours, way, &cores, round),
                (Way::Mpi(way), Some(mpi)) => run_mpi(mpi, way, &cores),
                (Way::Mpi(_), None) => continue,
            };
            match lines {
                Ok(lines) => collect(name, &lines, &mut figures)?,
                Err(error) => eprintln!("skipped: {name} in round {round}: {error:#}"),
            }
        }
    }
    // What stays behind in the system's directory for such things harms nobody.
    let _ = std::fs::remove_dir_all(directory());
    if asked.json {
        let each: Vec<_> = figures
            .iter()
            .map(|((operation, name), values)| json!({"operation": operation, "contest": name, "median_us": values}))
            .collect();
        println!(
            "{}",
            json!({"bench": "collectives", "ranks": RANKS, "rounds": asked.rounds, "load": [loaded, load()], "figures": each})
        );
    } else {
        print!("{}", text(asked, &cores, loaded, &figures));
    }
    Ok(ExitCode::SUCCESS)
}

fn run_ours(program: &Path, way: &str, cores: &str, round: usize) -> Result<String> {
    let session = (u64::from(std::process::id()) * 64 + round as u64).to_string();
    let start = |rank: u32| {
        let mut command = Command::new("timeout");
        command.args([DEADLINE_S, "taskset", "-c", cores]).arg(program);
        command.args([way, &rank.to_string(), &RANKS.to_string(), &session]);
        command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn()
    };
    let ranks: Vec<_> = (0..RANKS).map(start).collect::<Result<_, _>>().context("a rank")?;
    let mut spoken = String::new();
    for rank in ranks {
        spoken.push_str(&said(rank.wait_with_output().context("a rank")?)?);
    }
    Ok(spoken)
}

fn run_mpi(program: &Path, way: &str, cores: &str) -> Result<String> {
    let output = Command::new("timeout")
        .args([DEADLINE_S, "taskset", "-c", cores, OPEN_MPI.launcher, "-n", &RANKS.to_string()])
        .args(["--oversubscribe", "--bind-to", "none", "--mca", "mpi_yield_when_idle", "1"])
        .args(["--mca", "pml", "ob1", "--mca", "btl", way])
        .arg(program)
        .envs(OPEN_MPI_AS_ROOT)
        .output()
        .context(OPEN_MPI.launcher)?;
    said(output)
}

fn collect(name: &'static str, lines: &str, figures: &mut Figures) -> Result<()> {
    for operation in OPERATIONS {
        let line = lines.lines().find(|line| line.starts_with(operation)).context("an operation is missing")?;
        figures.entry((operation, name)).or_default().push(value(line, "p50_ns")? / 1e3);
    }
    Ok(())
}

fn text(asked: &Asked, cores: &str, loaded: f64, figures: &Figures) -> String {
    let mut text = format!(
        "{RANKS} ranks on cores {cores}, {} rounds, load {loaded} before and {} after\n\
         medians of rank 0 in us: median over rounds (least to greatest)\n\n",
        asked.rounds,
        load()
    );
    for operation in OPERATIONS {
        for (name, _) in CONTESTS {
            if let Some((median, least, greatest)) = figures.get(&(operation, name)).and_then(|values| spread(values)) {
                text.push_str(&format!("  {operation:<10} {name:<20} {median:>9.1} ({least:.1} to {greatest:.1})\n"));
            }
        }
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn collect__takes_the_median_of_each_operation() {
        let lines = "barrier p50_ns 5000 p99_ns 9000 mean_ns 6000\nallreduce p50_ns 7000\nallgather p50_ns 8000\n";
        let mut figures = Figures::new();
        collect("Open MPI", lines, &mut figures).expect("three lines");
        assert_eq!(figures.get(&("allreduce", "Open MPI")), Some(&vec![7.0]));
        assert!(collect("Open MPI", "barrier p50_ns 5000\n", &mut figures).is_err());
    }
}
