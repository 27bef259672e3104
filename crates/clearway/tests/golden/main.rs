//! The congestion figures of the simulated machines are what they were, to the last decimal, and
//! inside their bars.
//!
//! # Model
//! A run on the simulator is a function of its scenario. So its figures are text next to this file,
//! and the program is run anew and compared with them. Runs of the shipped machines take minutes in
//! a development build, which leaves them out; `cargo xtask golden` makes them in the release
//! build. A shorter run is compared in the same way by every `cargo test`.
//!
//! Whether figures are inside their bars is asked of the golden text, which costs nothing.
//!
//! # Invariants
//! I1. Nothing of the machine is in a golden text: no time of a clock, no count of processors, no
//!     path.
#![forbid(unsafe_code)]
#![allow(non_snake_case)]

mod bars;
mod figures;

use std::path::{Path, PathBuf};
use std::process::Command;

/// Runs `scenario`, a path or the name of a shipped one, on the simulator and gives the text of its
/// figures.
fn run(scenario: &str, out: &Path) -> String {
    // What an earlier run left must not pass for this one's.
    let _ = std::fs::remove_dir_all(out);
    let mut command = Command::new(env!("CARGO_BIN_EXE_clearway"));
    let output = command
        .args(["run", scenario, "--on", "sim", "--out"])
        .arg(out)
        .output()
        .expect("the program starts");
    let report = std::fs::read_to_string(out.join("report.json")).unwrap_or_else(|why| {
        panic!("no report: {why}\n{}", String::from_utf8_lossy(&output.stderr))
    });
    figures::text(&serde_json::from_str(&report).expect("a report is JSON"))
}

/// Compares the golden text `file` with what `scenario` gives now, which is kept for `cargo xtask
/// golden --update`.
fn unchanged(file: &str, scenario: &str) {
    let found = PathBuf::from(env!("CARGO_TARGET_TMPDIR")).join("golden");
    let now = run(scenario, &found.join(file).with_extension(""));
    std::fs::write(found.join(file), &now).expect("the target directory can be written");
    let before = std::fs::read_to_string(kept(file)).unwrap_or_default();
    assert!(
        before == now,
        "{file} is not what {scenario} gives now; if that is meant, `cargo xtask golden --update` writes them\n\
         was:\n{before}\nis:\n{now}"
    );
}

/// Where the golden text `file` is.
fn kept(file: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/golden").join(file)
}

/// The same for a run of minutes in a development build.
fn unchanged_in_full(file: &str, scenario: &str) {
    if cfg!(debug_assertions) {
        eprintln!(
            "skipped: {scenario} takes minutes in a development build; `cargo xtask golden` runs it"
        );
        return;
    }
    unchanged(file, scenario);
}

#[test]
fn golden__short_edr() {
    unchanged("short-edr.txt", concat!(env!("CARGO_MANIFEST_DIR"), "/tests/golden/short-edr.toml"));
}

#[test]
fn golden__short_staging() {
    unchanged(
        "short-staging.txt",
        concat!(env!("CARGO_MANIFEST_DIR"), "/tests/golden/short-staging.toml"),
    );
}

#[test]
fn golden__staging_qdr() {
    unchanged_in_full("staging-qdr.txt", "staging-qdr");
}

#[test]
fn golden__staging_checkpoint() {
    unchanged_in_full("staging-checkpoint.txt", "staging-checkpoint");
}

#[test]
fn golden__gpcnet_edr() {
    unchanged_in_full("gpcnet-edr.txt", "gpcnet-edr");
}

#[test]
fn golden__gpcnet_aries() {
    unchanged_in_full("gpcnet-aries.txt", "gpcnet-aries");
}

#[test]
fn golden__gpcnet_slingshot() {
    unchanged_in_full("gpcnet-slingshot.txt", "gpcnet-slingshot");
}

#[test]
fn golden__shmem_640() {
    unchanged_in_full("shmem-640.txt", "shmem-640");
}

#[test]
fn golden__shmem_1024() {
    unchanged_in_full("shmem-1024.txt", "shmem-1024");
}

#[test]
fn golden__short_together() {
    unchanged(
        "short-together.txt",
        concat!(env!("CARGO_MANIFEST_DIR"), "/tests/golden/short-together.toml"),
    );
}

#[test]
fn golden__together() {
    unchanged_in_full("together.txt", "together");
}
