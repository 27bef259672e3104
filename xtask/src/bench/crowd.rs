//! `cargo xtask bench crowd`: an allreduce of 8 bytes among eight ranks on two processors, over the
//! shared-memory wire and by Open MPI with the option to yield, in one run.
//!
//! # Not here
//! The measured loops: `crates/clearway-runtime/benches/shm_allreduce.rs`, and `allreduce_peer.c`
//! for MPI.

use std::collections::BTreeMap;
use std::path::Path;
use std::process::{Command, ExitCode, Stdio};

use anyhow::{Context, Result};
use serde_json::json;

use super::contestant::value;
use super::mpi::{OPEN_MPI, OPEN_MPI_AS_ROOT};
use super::shm::{directory, stdout_text};
use super::{BenchArguments, build, link, load, spread};

/// The other program's source.
const PEER: &str = include_str!("allreduce_peer.c");
/// Ranks of both, four for each processor.
const RANKS: u32 = 8;
/// Longest run of any program in s; one that hangs is ended by `timeout`.
const DEADLINE_S: &str = "60";
/// The names of figures in the programs' lines and in tables.
const FIGURES: [(&str, &str); 3] =
    [("p50_ns", "median, us"), ("p99_ns", "p99, us"), ("mean_ns", "mean, us")];
const WIRE: &str = "shm wire";
const MPI: &str = "Open MPI, yielding";

type CrowdFigures = BTreeMap<(&'static str, &'static str), Vec<f64>>;

/// Runs the bench.
pub(super) fn run(options: &BenchArguments) -> Result<ExitCode> {
    let (cores, wire) = (
        link::cores()?.map(|core| core.to_string()).join(","),
        build("clearway-runtime", "shm_allreduce")?,
    );
    let mpi = OPEN_MPI.compile(&directory(), "allreduce_peer", PEER);
    let loaded = load();
    let mut figures = CrowdFigures::new();
    for round in 0..options.rounds {
        let mut contests = [WIRE, MPI];
        if round % 2 == 1 {
            contests.reverse();
        }
        for contest in contests {
            let line = match &mpi {
                _ if contest == WIRE => run_wire(&wire, &cores, round),
                Some(mpi) => run_mpi(mpi, &cores),
                None => continue,
            };
            match line {
                Ok(line) => collect(contest, &line, &mut figures)?,
                Err(error) => eprintln!("skipped: {contest} in round {round}: {error:#}"),
            }
        }
    }
    // Files that stay behind in the system's directory for such things harm nobody.
    let _ = std::fs::remove_dir_all(directory());
    if options.json {
        println!("{}", record(options, &cores, loaded, &figures));
    } else {
        print!("{}", text(options, &cores, loaded, &figures));
    }
    Ok(ExitCode::SUCCESS)
}

fn run_wire(program: &Path, cores: &str, round: usize) -> Result<String> {
    let session = (u64::from(std::process::id()) << 32 | round as u64).to_string();
    let start = |rank: u32| {
        let mut command = Command::new("timeout");
        command.args([DEADLINE_S, "taskset", "-c", cores]);
        command.arg(program).args([&rank.to_string(), &RANKS.to_string(), &session]);
        command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn()
    };
    let ranks: Vec<_> = (0..RANKS).map(start).collect::<Result<_, _>>().context("a rank")?;
    let mut spoken = String::new();
    for rank in ranks {
        spoken.push_str(&stdout_text(rank.wait_with_output().context("a rank")?)?);
    }
    Ok(spoken)
}

fn run_mpi(program: &Path, cores: &str) -> Result<String> {
    let output = Command::new("timeout")
        .args([DEADLINE_S, "taskset", "-c", cores, OPEN_MPI.launcher, "-n", &RANKS.to_string()])
        .args(["--oversubscribe", "--bind-to", "none", "--mca", "mpi_yield_when_idle", "1"])
        .arg(program)
        .envs(OPEN_MPI_AS_ROOT)
        .output()
        .context(OPEN_MPI.launcher)?;
    stdout_text(output)
}

fn collect(contest: &'static str, line: &str, figures: &mut CrowdFigures) -> Result<()> {
    for (key, name) in FIGURES {
        figures.entry((contest, name)).or_default().push(value(line, key)? / 1e3);
    }
    Ok(())
}

/// The ratio of medians for each figure that both have.
fn ratios(figures: &CrowdFigures) -> BTreeMap<&'static str, f64> {
    let of = |contest, name| figures.get(&(contest, name)).and_then(|values| spread(values));
    FIGURES
        .iter()
        .filter_map(|(_, name)| Some((*name, of(WIRE, *name)?.0 / of(MPI, *name)?.0)))
        .collect()
}

fn text(options: &BenchArguments, cores: &str, loaded: f64, figures: &CrowdFigures) -> String {
    let mut text = format!(
        "{RANKS} ranks on cores {cores}, {} rounds, load {loaded} before and {} after\nmedian (least to greatest)\n\n",
        options.rounds,
        load()
    );
    for ((contest, name), values) in figures {
        if let Some((median, least, greatest)) = spread(values) {
            text.push_str(&format!(
                "  {contest:<22} {name:<14} {median:>9.2} ({least:.2} to {greatest:.2})\n"
            ));
        }
    }
    text.push('\n');
    for (name, ratio) in ratios(figures) {
        text.push_str(&format!("  {name}, {WIRE} / {MPI}: {ratio:.2}\n"));
    }
    text
}

fn record(
    options: &BenchArguments,
    cores: &str,
    loaded: f64,
    figures: &CrowdFigures,
) -> serde_json::Value {
    let each: Vec<_> = figures
        .iter()
        .map(
            |((contest, name), values)| json!({"contest": contest, "name": name, "rounds": values}),
        )
        .collect();
    json!({
        "bench": "crowd",
        "rounds": options.rounds,
        "cores": cores,
        "load": [loaded, load()],
        "figures": each,
        "ratios": ratios(figures),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ratios__are_of_medians_and_need_both() {
        let mut figures = CrowdFigures::new();
        collect(WIRE, "p50_ns 5000 p99_ns 9000 mean_ns 6000\n", &mut figures).expect("a line");
        assert!(ratios(&figures).is_empty());
        collect(MPI, "p50_ns 20000 p99_ns 9000 mean_ns 6000\n", &mut figures).expect("a line");
        assert_eq!(ratios(&figures).get("median, us"), Some(&0.25));
    }
}
