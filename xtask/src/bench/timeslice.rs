//! `cargo xtask bench timeslice`: what building costs a processor next to bare writes of the same
//! size, in the same run.
//!
//! # Model
//! One input and one builder under Hydra, over shared memory and over libfabric on loopback. Each
//! run measures `raw`, writes that nobody waits for, and then policies on the same wire between the
//! same processes; contributions come from memory that nobody writes and are dropped when they are
//! complete. The figure is bytes landed for each second of processor time of both.
//!
//! What made and checked contents add is the difference between two inputs and two builders with and
//! without them. It is compared with one pass that writes as many bytes and one that computes their
//! CRC, in the same run.

use std::collections::BTreeMap;
use std::path::Path;
use std::process::{Command, ExitCode};

use anyhow::{Context, Result, ensure};
use serde_json::{Value, json};

use super::hosts::are_there;
use super::mpi::MPICH;
use super::{BenchArguments, build, build_program, load, spread};

/// The launcher.
const LAUNCHER: &str = MPICH.launcher;
/// Wires, as `--wire` names them.
const WIRES: [&str; 2] = ["shm", "ofi"];
/// Lengths of contributions.
const SIZES: [&str; 2] = ["64KiB", "1MiB"];
/// The schedules that are compared.
const POLICIES: &str = "best-effort,token";
/// The line to compare with.
const RAW: &str = "raw";
/// The figure that counts.
const COST: &str = "timeslice_bytes_per_processor_second";
/// Longest run in s; one that hangs is ended.
const DEADLINE_S: &str = "60";

/// Part of what raw writes move, by wire, size and policy: a value for each round.
type ThroughputShares = BTreeMap<(&'static str, &'static str, String), Vec<f64>>;

/// What contents add, and what the two passes take, in seconds of a processor for each GB.
#[derive(Clone, Copy, Debug)]
struct ContentsCost {
    added: f64,
    passes: f64,
}

/// Runs the bench.
pub(super) fn run(options: &BenchArguments) -> Result<ExitCode> {
    if !are_there("bench timeslice", &[LAUNCHER]) {
        return Ok(ExitCode::SUCCESS);
    }
    let program = build_program()?;
    let passes = build("clearway-runtime", "contents_bench")?;
    let loaded = load();
    let (mut parts, mut contents) = (ThroughputShares::new(), Vec::new());
    for _ in 0..options.rounds {
        contents.push(ContentsCost {
            added: seconds(&program, ["pattern", "check"])?
                - seconds(&program, ["memory", "discard"])?,
            passes: seconds_of_passes(&passes)?,
        });
        for wire in WIRES {
            for size in SIZES {
                for (policy, part) in measure(&program, wire, size)? {
                    parts.entry((wire, size, policy)).or_default().push(part);
                }
            }
        }
    }
    if options.json {
        println!("{}", record(options, loaded, &parts, &contents));
    } else {
        print!("{}", text(options, loaded, &parts));
        print!("{}", contents_text(&contents));
    }
    Ok(ExitCode::SUCCESS)
}

/// One run: for each policy what part it moves of what raw writes do.
fn measure(program: &Path, wire: &str, size: &str) -> Result<Vec<(String, f64)>> {
    let line = format!(
        "--wire {wire} --contribution {size} --policy {POLICIES} --inputs 1 --builders 1 --source memory --sink discard --ring 8MiB"
    );
    parts_of(&figures(program, "2", &line)?)
}

/// Returns the seconds of a processor for each GB that two inputs with the source and two builders
/// with the sink of `ends` move.
fn seconds(program: &Path, [source, sink]: [&str; 2]) -> Result<f64> {
    let line = format!(
        "--wire shm --contribution 64KiB --policy token --inputs 2 --builders 2 --source {source} --sink {sink} --ring 8MiB"
    );
    let figures = figures(program, "4", &line)?;
    let costs = costs_of(&figures);
    let cost = costs.get("token").copied().filter(|cost| *cost > 0.0);
    Ok(1e9 / cost.context("nothing was moved")?)
}

/// Returns the seconds of a processor that a pass of each kind takes for each GB, together.
fn seconds_of_passes(program: &Path) -> Result<f64> {
    let output = Command::new(program).output().context("the passes")?;
    ensure!(output.status.success(), "the passes end with {}", output.status);
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    let seconds = text.lines().filter_map(|line| line.split(' ').nth(1)?.parse::<f64>().ok());
    Ok(seconds.sum())
}

/// Runs `clearway timeslice compare` with `line` by `ranks` processes and returns its figures.
fn figures(program: &Path, ranks: &str, line: &str) -> Result<Value> {
    let mut command = Command::new("timeout");
    command.args([DEADLINE_S, LAUNCHER, "-n", ranks]).arg(program);
    command.args(["timeslice", "compare", "--on", "cluster"]).args(line.split(' '));
    // Its report is of no use to anybody: the figures are read from standard output.
    let report =
        std::env::temp_dir().join(format!("clearway-bench-timeslice-{}", std::process::id()));
    command
        .args(["--warm-up", "500ms", "--measured", "2s", "--json", "--overwrite", "--out"])
        .arg(&report);
    let output = command.output().context("timeout")?;
    let _ = std::fs::remove_dir_all(&report);
    ensure!(
        output.status.success(),
        "{LAUNCHER}: {}",
        String::from_utf8_lossy(&output.stderr).trim()
    );
    let mut printed: Value =
        serde_json::from_slice(&output.stdout).context("the figures are no JSON")?;
    Ok(printed["figures"].take())
}

/// What each policy moves for each second of a processor, by the figures of a run.
fn costs_of(figures: &Value) -> BTreeMap<String, f64> {
    let cost = |figure: &Value| {
        let policy = figure["labels"]["policy"].as_str().filter(|_| figure["name"] == COST)?;
        Some((policy.to_owned(), figure["value"].as_f64()?))
    };
    figures.as_array().into_iter().flatten().filter_map(cost).collect()
}

/// What part each policy moves of what raw writes do, by the figures of a run.
fn parts_of(figures: &Value) -> Result<Vec<(String, f64)>> {
    let costs = costs_of(figures);
    let raw =
        costs.get(RAW).copied().filter(|raw| *raw > 0.0).context("raw writes moved nothing")?;
    Ok(costs
        .into_iter()
        .filter(|(policy, _)| policy != RAW)
        .map(|(policy, cost)| (policy, cost / raw))
        .collect())
}

fn text(options: &BenchArguments, loaded: f64, parts: &ThroughputShares) -> String {
    let mut text = format!(
        "one input, one builder, {} rounds, load {loaded} before and {} after\nbytes for each second of processor time, part of raw \
         writes'; median (least to greatest)\n\n",
        options.rounds,
        load()
    );
    for ((wire, size, policy), values) in parts {
        if let Some((median, least, greatest)) = spread(values) {
            text.push_str(&format!(
                "  {wire:<4} {size:<6} {policy:<12} {median:>6.2} ({least:.2} to {greatest:.2})\n"
            ));
        }
    }
    text
}

/// Returns what contents add, as text.
fn contents_text(contents: &[ContentsCost]) -> String {
    let line = |name: &str, value: fn(&ContentsCost) -> f64, unit: &str| {
        let values: Vec<f64> = contents.iter().map(value).collect();
        spread(&values).map_or_else(String::new, |(median, least, greatest)| {
            format!("  {name:<38} {median:>6.2} ({least:.2} to {greatest:.2}){unit}\n")
        })
    };
    "\nmade and checked contents, two inputs and two builders over shm\n\n".to_owned()
        + &line("add", |cost| cost.added, " s/GB")
        + &line("a pass that writes and one for the CRC", |cost| cost.passes, " s/GB")
        + &line("ratio", |cost| cost.added / cost.passes, "   aim: 1.5 or less")
}

fn record(
    options: &BenchArguments,
    loaded: f64,
    parts: &ThroughputShares,
    contents: &[ContentsCost],
) -> Value {
    let figure = |((wire, size, policy), values): (&(&str, &str, String), &Vec<f64>)| json!({"wire": wire, "contribution": size, "policy": policy, "part_of_raw": values});
    let figures: Vec<Value> = parts.iter().map(figure).collect();
    json!({"bench": "timeslice", "rounds": options.rounds, "load": [loaded, load()], "figures": figures, "contents": contents.iter().map(|cost| json!({"added_s_per_gb": cost.added, "passes_s_per_gb": cost.passes})).collect::<Vec<_>>()})
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parts_of__compares_with_raw_writes_of_the_same_run() {
        let figure = |name: &str, policy: &str, value: f64| json!({"name": name, "labels": {"policy": policy}, "value": value});
        let figures = json!([
            figure(COST, "raw", 4.0),
            figure(COST, "token", 3.0),
            figure("other", "dfs", 1.0)
        ]);
        assert_eq!(parts_of(&figures).expect("figures"), [("token".to_owned(), 0.75)]);
        assert!(parts_of(&json!([])).is_err());
    }
}
