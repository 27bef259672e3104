//! `cargo xtask bench put`: what unscheduled writes and puts carry compared with MPI_Put, by
//! length, in the same run.
//!
//! # Model
//! Two senders and two receivers on this machine, over shared memory and over libfabric on
//! loopback: `clearway timeslice achievable` under Hydra, and a small program of the same pattern
//! by Open MPI, which chooses its own way. Everybody runs once a round.
//!
//! # Not here
//! The pattern: `clearway`'s `timeslice::achievable`.

use std::collections::BTreeMap;
use std::path::Path;
use std::process::{Command, ExitCode};

use anyhow::{Context, Result, ensure};
use serde_json::{Value, json};

use super::hosts::are_there;
use super::mpi::{MPICH, OPEN_MPI, OPEN_MPI_AS_ROOT};
use super::shm::{directory, stdout_text};
use super::{BenchArguments, build_program, load, spread};

/// The launcher of our ranks.
const LAUNCHER: &str = MPICH.launcher;
/// Half of them send.
const RANKS: &str = "4";
/// Wires, as `--wire` names them.
const WIRES: [&str; 2] = ["shm", "ofi"];
/// Lengths of the slides.
const LENGTHS: [(&str, u64); 4] =
    [("64 KiB", 64 << 10), ("128 KiB", 128 << 10), ("512 KiB", 512 << 10), ("1 MiB", 1 << 20)];
/// The other side's program.
const PEER: &str = include_str!("put_peer.c");
/// Longest run in s; one that hangs is ended.
const DEADLINE_S: &str = "180";

/// GB/s of a sender by who, kind, mix and length: a value for each round.
type Rates = BTreeMap<[String; 4], Vec<f64>>;

/// Runs the bench.
pub(super) fn run(options: &BenchArguments) -> Result<ExitCode> {
    if !are_there("bench put", &[LAUNCHER]) {
        return Ok(ExitCode::SUCCESS);
    }
    let program = build_program()?;
    let peer = OPEN_MPI.compile(&directory(), "put_peer", PEER);
    let loaded = load();
    let mut rates = Rates::new();
    for round in 0..options.rounds {
        for wire in WIRES {
            for (key, rate) in ours(&program, wire)? {
                rates.entry(key).or_default().push(rate);
            }
        }
        if let Some(peer) = &peer {
            match theirs(peer) {
                Ok(seen) => seen
                    .into_iter()
                    .for_each(|(key, rate)| rates.entry(key).or_default().push(rate)),
                Err(error) => eprintln!("skipped: MPI_Put in round {round}: {error:#}"),
            }
        }
    }
    let _ = peer.as_deref().and_then(Path::parent).map(std::fs::remove_dir_all);
    if options.json {
        println!("{}", record(options, loaded, &rates));
    } else {
        print!("{}", text(options, loaded, &rates));
    }
    Ok(ExitCode::SUCCESS)
}

/// Our writes and puts over `wire`.
fn ours(program: &Path, wire: &str) -> Result<Vec<([String; 4], f64)>> {
    let mut command = Command::new("timeout");
    command.args([DEADLINE_S, LAUNCHER, "-n", RANKS]).arg(program);
    command.args(["timeslice", "achievable", "--on", "cluster", "--wire", wire, "--json"]);
    command.args(["--start-skew", "0ms", "--warm-up", "300ms", "--measured", "1500ms"]);
    let output = command.output().context("timeout")?;
    ensure!(
        output.status.success(),
        "{LAUNCHER}: {}",
        String::from_utf8_lossy(&output.stderr).trim()
    );
    let printed: Value =
        serde_json::from_slice(&output.stdout).context("the figures are no JSON")?;
    rates_of(wire, &printed["figures"])
}

/// What the figures of a run over `wire` say.
fn rates_of(wire: &str, figures: &Value) -> Result<Vec<([String; 4], f64)>> {
    let length = |bytes: &str| {
        let known = LENGTHS.iter().find(|(_, length)| length.to_string() == bytes);
        known.map_or_else(|| bytes.to_owned(), |(name, _)| (*name).to_owned())
    };
    let one = |figure: &Value| {
        let label = |key: &str| figure["labels"][key].as_str().map(str::to_owned);
        Some((
            [wire.to_owned(), label("kind")?, label("messages")?, length(&label("length")?)],
            figure["value"].as_f64()?,
        ))
    };
    figures
        .as_array()
        .into_iter()
        .flatten()
        .map(|figure| one(figure).context("a figure without labels"))
        .collect()
}

/// The same by Open MPI.
fn theirs(program: &Path) -> Result<Vec<([String; 4], f64)>> {
    let mut rates = Vec::new();
    for (mix, flag) in [("alone", "0"), ("mix", "1")] {
        for (name, bytes) in LENGTHS {
            let mut command = Command::new("timeout");
            command
                .args([DEADLINE_S, OPEN_MPI.launcher, "-n", RANKS, "--oversubscribe"])
                .arg(program);
            command.args([&bytes.to_string(), flag]).envs(OPEN_MPI_AS_ROOT);
            let output = command.output().context(OPEN_MPI.launcher)?;
            let line = stdout_text(output)?;
            let rate = line.strip_prefix("rate ").and_then(|rate| rate.trim().parse::<f64>().ok());
            let key = ["Open MPI", "MPI_Put", mix, name].map(str::to_owned);
            rates.push((
                key,
                rate.with_context(|| format!("the peer said `{}`", line.trim()))? / 1e9,
            ));
        }
    }
    Ok(rates)
}

fn text(options: &BenchArguments, loaded: f64, rates: &Rates) -> String {
    let mut text = format!(
        "two senders, two receivers, {} rounds, load {loaded} before and {} after\nGB/s of a sender; median (least to greatest)\n\n",
        options.rounds,
        load()
    );
    for ([who, kind, mix, length], values) in rates {
        if let Some((median, least, greatest)) = spread(values) {
            text.push_str(&format!(
                "  {who:<9} {kind:<8} {mix:<6} {length:<7} {median:>7.3} ({least:.3} to {greatest:.3})\n"
            ));
        }
    }
    text
}

fn record(options: &BenchArguments, loaded: f64, rates: &Rates) -> Value {
    let figure = |([who, kind, mix, length], values): (&[String; 4], &Vec<f64>)| json!({"who": who, "kind": kind, "messages": mix, "length": length, "gigabytes_per_second": values});
    let figures: Vec<Value> = rates.iter().map(figure).collect();
    json!({"bench": "put", "rounds": options.rounds, "load": [loaded, load()], "figures": figures})
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rates_of__are_known_by_who_kind_mix_and_length() {
        let figures = json!([{"labels": {"kind": "put", "messages": "mix", "length": "1MiB"}, "value": 2.5, "name": "any"}]);
        let key = ["shm", "put", "mix", "1MiB"].map(str::to_owned);
        assert_eq!(rates_of("shm", &figures).expect("figures"), [(key, 2.5)]);
        assert!(rates_of("shm", &json!([{"labels": {}}])).is_err());
    }
}
