//! `cargo xtask bench shm`: the shared-memory wire next to Open MPI's, between two processes of
//! this machine, in one run.
//!
//! # Model
//! Two measurements, the same in both programs: messages of 8 bytes in turns (half a turn is the
//! latency one way), and messages of 64 bytes, 64 at a time, as fast as they are taken. Each end
//! has a core of its own. Each round runs every contestant once, forwards and then backwards.
//!
//! Two processes that spin need two free cores: on a machine that does other work every figure of
//! either side is worse, some by a lot. So the table also shows the least and the greatest value, and the load.
//!
//! # Not here
//! The measured loops: `crates/clearway-runtime/benches/shm_bench.rs`, and `shm_peer.c` for MPI.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode, Output, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};

use anyhow::{Context, Result, ensure};
use serde_json::json;

use super::contestant::value;
use super::mpi::{OPEN_MPI, OPEN_MPI_AS_ROOT};
use super::{BenchArguments, build, link, load, spread};

/// The other program's source.
const PEER: &str = include_str!("shm_peer.c");
/// Longest run of any program in s; one that hangs is ended by `timeout`.
const DEADLINE_S: &str = "60";

/// The names of figures in the programs' lines and in tables, and what one of the former is in the
/// latter.
const FIGURES: [(&str, &str, f64); 3] = [
    ("min_ns", "8 B one way, least, ns", 1.0),
    ("p50_ns", "8 B one way, median, ns", 1.0),
    ("rate", "64 B messages, millions/s", 1e-6),
];
const WIRE: &str = "shm wire";
const WAITED: &str = "shm wire, waited for";
const MPI: &str = "Open MPI vader";

type ShmFigures = BTreeMap<(&'static str, &'static str), Vec<f64>>;

/// What runs: cores, and the programs that there are.
struct ShmContest {
    cores: [u32; 2],
    wire: PathBuf,
    mpi: Option<PathBuf>,
}

/// Runs the bench.
pub(super) fn run(options: &BenchArguments) -> Result<ExitCode> {
    let mpi = OPEN_MPI.compile(&directory(), "shm_peer", PEER);
    let shm_contest =
        ShmContest { cores: link::cores()?, wire: build("clearway-runtime", "shm_bench")?, mpi };
    let loaded = load();
    let mut figures = ShmFigures::new();
    for round in 0..options.rounds {
        let mut contests = [WIRE, WAITED, MPI];
        if round % 2 == 1 {
            contests.reverse();
        }
        for contest in contests {
            match shm_contest.run(contest) {
                Ok(None) => {}
                Ok(Some(line)) => collect(contest, &line, &mut figures)?,
                Err(error) => eprintln!("skipped: {contest} in round {round}: {error:#}"),
            }
        }
    }
    if options.json {
        println!("{}", record(options, &shm_contest, loaded, &figures));
    } else {
        print!("{}", text(options, &shm_contest, loaded, &figures));
    }
    Ok(ExitCode::SUCCESS)
}

/// A directory for the compiled programs of this process.
pub(super) fn directory() -> PathBuf {
    std::env::temp_dir().join(format!("clearway-bench-{}", std::process::id()))
}

impl Drop for ShmContest {
    fn drop(&mut self) {
        // Files that stay behind in the system's directory for such things harm nobody.
        let _ = std::fs::remove_dir_all(directory());
    }
}

impl ShmContest {
    fn run(&self, contest: &str) -> Result<Option<String>> {
        match (contest, &self.mpi) {
            (WIRE, _) => self.run_wire("poll").map(Some),
            (WAITED, _) => self.run_wire("wait").map(Some),
            (_, Some(program)) => run_mpi(program).map(Some),
            (_, None) => Ok(None),
        }
    }

    fn run_wire(&self, looking: &str) -> Result<String> {
        static RUNS: AtomicU32 = AtomicU32::new(0);
        let run = u64::from(RUNS.fetch_add(1, Ordering::Relaxed));
        let session = (u64::from(std::process::id()) << 32 | run).to_string();
        let end = |core: u32, role: &str| {
            let mut command = Command::new("timeout");
            command.args([DEADLINE_S, "taskset", "-c", &core.to_string()]);
            command.arg(&self.wire).args([role, &session, looking]);
            command
        };
        let mut far =
            end(self.cores[1], "far").stdout(Stdio::null()).spawn().context("the far end")?;
        let near = end(self.cores[0], "near").output();
        let far = far.wait().context("the far end")?;
        ensure!(far.success(), "the far end failed");
        stdout_text(near.context("the near end")?)
    }
}

fn run_mpi(program: &Path) -> Result<String> {
    let output = Command::new("timeout")
        .args([
            DEADLINE_S,
            OPEN_MPI.launcher,
            "-n",
            "2",
            "--bind-to",
            "core",
            "--mca",
            "pml",
            "ob1",
            "--mca",
            "btl",
            "vader,self",
        ])
        .arg(program)
        .envs(OPEN_MPI_AS_ROOT)
        .output()
        .context(OPEN_MPI.launcher)?;
    stdout_text(output)
}

pub(super) fn stdout_text(output: Output) -> Result<String> {
    ensure!(
        output.status.success(),
        "{}: {}",
        output.status,
        String::from_utf8_lossy(&output.stderr).trim()
    );
    Ok(String::from_utf8_lossy(&output.stdout).into_owned())
}

fn collect(contest: &'static str, line: &str, figures: &mut ShmFigures) -> Result<()> {
    for (key, name, unit) in FIGURES {
        figures.entry((contest, name)).or_default().push(value(line, key)? * unit);
    }
    Ok(())
}

fn ratio(figures: &ShmFigures, name: &'static str, a: &'static str) -> Option<f64> {
    let of = |contest| figures.get(&(contest, name)).and_then(|values| spread(values));
    Some(of(a)?.0 / of(MPI)?.0)
}

fn text(
    options: &BenchArguments,
    shm_contest: &ShmContest,
    loaded: f64,
    figures: &ShmFigures,
) -> String {
    let mut text = format!(
        "two processes, {} rounds, cores {} and {}, load {loaded} before and {} after\nmedian (least to greatest)\n\n",
        options.rounds,
        shm_contest.cores[0],
        shm_contest.cores[1],
        load()
    );
    for ((contest, name), values) in figures {
        if let Some((median, least, greatest)) = spread(values) {
            text.push_str(&format!(
                "  {contest:<22} {name:<28} {median:>9.2} ({least:.2} to {greatest:.2})\n"
            ));
        }
    }
    text.push('\n');
    for (_, name, _) in FIGURES {
        if let Some(ratio) = ratio(figures, name, WIRE) {
            text.push_str(&format!("  {name}, {WIRE} / {MPI}: {ratio:.2}\n"));
        }
    }
    text
}

fn record(
    options: &BenchArguments,
    shm_contest: &ShmContest,
    loaded: f64,
    figures: &ShmFigures,
) -> serde_json::Value {
    let each: Vec<_> = figures
        .iter()
        .map(
            |((contest, name), values)| json!({"contest": contest, "name": name, "rounds": values}),
        )
        .collect();
    let ratios: BTreeMap<_, _> = FIGURES
        .iter()
        .filter_map(|(_, name, _)| Some((*name, ratio(figures, name, WIRE)?)))
        .collect();
    json!({
        "bench": "shm",
        "rounds": options.rounds,
        "cores": shm_contest.cores,
        "load": [loaded, load()],
        "figures": each,
        "ratios": ratios,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn collect__reads_all_figures_of_a_line_in_their_units() {
        let mut figures = ShmFigures::new();
        collect(WIRE, "min_ns 90 p50_ns 110.5 rate 20000000\n", &mut figures).expect("a line");
        assert_eq!(figures.values().flatten().copied().collect::<Vec<_>>(), [20.0, 90.0, 110.5]);
        assert!(collect(WIRE, "min_ns 90\n", &mut figures).is_err());
    }

    #[test]
    fn ratio__is_of_medians_and_needs_both() {
        let mut figures = ShmFigures::new();
        collect(WIRE, "min_ns 50 p50_ns 100 rate 4", &mut figures).expect("a line");
        assert_eq!(ratio(&figures, FIGURES[1].1, WIRE), None);
        collect(MPI, "min_ns 200 p50_ns 400 rate 2", &mut figures).expect("a line");
        assert_eq!(ratio(&figures, FIGURES[1].1, WIRE), Some(0.25));
    }
}
