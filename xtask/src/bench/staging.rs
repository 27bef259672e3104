//! `cargo xtask bench staging`: a mounted log compared with a file system that does nothing, and
//! with the disk of the log, in the same run.
//!
//! # Model
//! Each round mounts both and measures them one after the other
//! (`crates/clearway-fs/benches/staging_bench.rs`). What counts are ratios of medians: writes of 1 MiB
//! that fit into memory against the file system that does nothing, a sync of 4 KiB against `fdatasync`
//! on the disk of the log, sixteen that sync at once against one, small files against sshfs and rclone,
//! where those are installed, and a drain into a directory against `cp -r` and `sync`
//! (`drain_bench.rs`).
//!
//! # Not here
//! What survives: the tests of `clearway mount`.

use std::collections::BTreeMap;
use std::path::Path;
use std::process::{Command, ExitCode};

use anyhow::{Context, Result, ensure};
use serde_json::json;

use super::{BenchArguments, build, load, spread};

/// Longest round in s; one that hangs is ended.
const DEADLINE_S: &str = "120";
/// A sentence, two figures whose ratio it is, and what is aimed at.
const RATIOS: [(&str, &str, &str, &str); 8] = [
    ("writes of 1 MiB, mount / nothing", "write_staged", "write_null", "0.85 or more"),
    ("write and sync of 4 KiB, mount / disk", "sync_staged", "sync_disk", "1.5 or less"),
    ("syncs of sixteen at once / of one", "syncs_sixteen", "syncs_one", "4 or more"),
    ("small files, mount / sshfs", "creates_staged", "creates_sshfs", "2 or more"),
    ("small files, mount / rclone", "creates_staged", "creates_rclone", "1 or more"),
    (
        "small files of sixteen, mount / sshfs",
        "creates_sixteen_staged",
        "creates_sixteen_sshfs",
        "2 or more",
    ),
    (
        "small files of sixteen, mount / rclone",
        "creates_sixteen_staged",
        "creates_sixteen_rclone",
        "1 or more",
    ),
    ("drain of 2 GiB, steps of a store / cp and sync", "drain_rate", "copy_rate", "0.8 or more"),
];

/// Figures by name, one a round.
type StagingFigures = BTreeMap<String, Vec<f64>>;

/// Runs the bench.
pub(super) fn run(options: &BenchArguments) -> Result<ExitCode> {
    if !Path::new("/dev/fuse").exists() {
        eprintln!("skipped: bench staging needs /dev/fuse");
        return Ok(ExitCode::SUCCESS);
    }
    let programs = [build("clearway-fs", "staging_bench")?, build("clearway-fs", "drain_bench")?];
    let (loaded, mut figures) = (load(), StagingFigures::new());
    for round in 0..options.rounds {
        for program in &programs {
            measure(program, round, &mut figures)?;
        }
    }
    let ratio = |one: &str, other: &str| {
        let median = |name: &str| figures.get(name).and_then(|values| spread(values));
        Some(median(one)?.0 / median(other)?.0)
    };
    if options.json {
        let ratios: BTreeMap<&str, Option<f64>> =
            RATIOS.iter().map(|(sentence, one, other, _)| (*sentence, ratio(one, other))).collect();
        let record = json!({
            "bench": "staging", "rounds": options.rounds, "load": loaded, "figures": figures, "ratios": ratios,
        });
        println!("{record}");
        return Ok(ExitCode::SUCCESS);
    }
    println!(
        "{} rounds, load {loaded} before and {} after; median (least to greatest)\n",
        options.rounds,
        load()
    );
    for (name, values) in &figures {
        if let Some((median, least, greatest)) = spread(values) {
            println!("  {name:<20} {median:>10.1} ({least:.1} to {greatest:.1})");
        }
    }
    println!();
    for (sentence, one, other, aim) in RATIOS {
        if let Some(ratio) = ratio(one, other) {
            println!("  {sentence:<47} {ratio:>6.2}   aim: {aim}");
        }
    }
    Ok(ExitCode::SUCCESS)
}

/// Runs a round in a directory of its own next to the build, which is on a disk.
fn measure(program: &Path, round: usize, figures: &mut StagingFigures) -> Result<()> {
    let above = program.parent().context("a program lies in a directory")?;
    let place = above.join(format!("staging-bench-{}-{round}", std::process::id()));
    std::fs::create_dir(&place).with_context(|| format!("cannot make {}", place.display()))?;
    let output = Command::new("timeout").arg(DEADLINE_S).arg(program).arg(&place).output();
    let _ = std::fs::remove_dir_all(&place);
    let output = output.context("cannot start the bench")?;
    let said = String::from_utf8_lossy(&output.stderr);
    ensure!(output.status.success(), "round {round} failed: {}", said.trim());
    for line in String::from_utf8_lossy(&output.stdout).lines() {
        if let Some((name, value)) = line.split_once(' ')
            && let Ok(value) = value.parse()
        {
            figures.entry(name.to_owned()).or_default().push(value);
        }
    }
    Ok(())
}
