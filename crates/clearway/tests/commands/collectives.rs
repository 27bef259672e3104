//! Victims that act all together, where ranks are processes of a lab.

use std::fs;
use std::process::Command;

/// The exit status of a run that lacks a permission.
const NO_PERMISSION: i32 = 5;
const VICTIMS: [&str; 3] = ["barrier", "allreduce", "allgather"];

#[test]
fn lab__barriers_sums_and_blocks_of_processes_are_right() {
    let directory =
        std::env::temp_dir().join(format!("clearway-collectives-{}", std::process::id()));
    let mut command = Command::new(env!("CARGO_BIN_EXE_clearway"));
    // Nobody loads the network: what is asked is that iterations end with what they should.
    command.args([
        "bench",
        "--on",
        "lab",
        "--hosts",
        "8",
        "--victim-hosts",
        "5",
        "--congestors",
        "none",
    ]);
    command.args(["--queues", "strict", "--time", "1200ms", "--victims", &VICTIMS.join(",")]);
    let output = command.arg("--out").arg(&directory).output().expect("the program");
    let said = String::from_utf8_lossy(&output.stderr);
    if output.status.code() == Some(NO_PERMISSION) {
        return eprintln!("skipped: {}", said.trim());
    }
    let report =
        fs::read(directory.join("report.json")).unwrap_or_else(|why| panic!("{why}: {said}"));
    let report: serde_json::Value = serde_json::from_slice(&report).expect("a report is JSON");
    for victim in VICTIMS {
        let figures = report["figures"].as_array().expect("figures").iter();
        let of_victim = figures.filter(|figure| {
            figure["name"] == "victim_latency" && figure["labels"]["victim"] == victim
        });
        let samples: Vec<u64> = of_victim.filter_map(|figure| figure["samples"].as_u64()).collect();
        // Five ranks, hundreds of iterations; how many of them a busy machine ends in time is its
        // business.
        assert!(
            !samples.is_empty() && samples.iter().all(|samples| *samples >= 50),
            "{victim}: {samples:?}\n{said}"
        );
    }
    fs::remove_dir_all(&directory).expect("removed");
}
