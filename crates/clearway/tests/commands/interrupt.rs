//! The program ends when it gets the order, whatever it computes.

use std::fs;
use std::io::{BufRead, BufReader};
use std::process::{Child, Command, Stdio};

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;

use crate::waiting::wait_until;

/// A run in its first uninterruptible seconds: a network of 11,664 hosts is being built.
fn large_run(out: &std::path::Path) -> Child {
    Command::new(env!("CARGO_BIN_EXE_clearway"))
        .args(["bench", "--on", "sim", "--fabric", "edr", "--nodes", "11664", "--out"])
        .arg(out)
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .spawn()
        .unwrap()
}

/// Whether the process has a handler for `signal`.
fn catches(process: &Child, signal: Signal) -> bool {
    let status = fs::read_to_string(format!("/proc/{}/status", process.id())).unwrap();
    let mask = status.lines().find_map(|line| line.strip_prefix("SigCgt:")).unwrap();
    u64::from_str_radix(mask.trim(), 16).unwrap() >> (signal as u32 - 1) & 1 == 1
}

#[test]
fn interrupt__ends_a_large_simulation_with_its_own_status() {
    let out = std::env::temp_dir().join(format!("clearway-interrupt-{}", std::process::id()));
    for signal in [Signal::SIGINT, Signal::SIGTERM] {
        let mut run = large_run(&out);
        wait_until("it handles the signal", || catches(&run, signal));
        kill(Pid::from_raw(run.id() as i32), signal).unwrap();
        // One that does not listen goes on for many minutes, and ends with another status.
        assert_eq!(run.wait().unwrap().code(), Some(130), "{signal}");
        assert!(!out.exists(), "neither a report nor its directory");
    }
}

#[test]
fn interrupt__of_a_run_of_many_cells_keeps_those_that_are_complete() {
    let home =
        std::env::temp_dir().join(format!("clearway-interrupt-cells-{}", std::process::id()));
    fs::create_dir_all(&home).unwrap();
    let victims = "ping,get,bandwidth-sync,barrier,allreduce,allgather,alltoall";
    let mut run = Command::new(env!("CARGO_BIN_EXE_clearway"))
        .args([
            "bench",
            "--on",
            "sim",
            "--fabric",
            "edr",
            "--nodes",
            "200",
            "--victims",
            victims,
            "--draws",
            "10",
        ])
        .args(["--congestors", "none,incast,put-incast,alltoall,permutation,burst,gpcnet"])
        .current_dir(&home)
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let mut said = BufReader::new(run.stderr.take().unwrap()).lines();
    let first = said.find(|line| line.as_ref().unwrap().starts_with("[1/49] "));
    assert!(first.is_some(), "no cell was complete");
    kill(Pid::from_raw(run.id() as i32), Signal::SIGINT).unwrap();
    let output = run.wait_with_output().unwrap();
    assert_eq!(output.status.code(), Some(130));
    assert!(String::from_utf8(output.stdout).unwrap().ends_with("out/bench/1/report.html\n"));
    let report = fs::read(home.join("out/bench/latest/report.json")).unwrap();
    let report: serde_json::Value = serde_json::from_slice(&report).unwrap();
    assert!(report["verdict"].is_null() && !report["figures"].as_array().unwrap().is_empty());
    let reported = report["host"]["facts"]["interrupted"].as_str().unwrap();
    assert!(
        reported.ends_with(" of 49 cells were measured") && !reported.starts_with("49"),
        "{reported}"
    );
    fs::remove_dir_all(&home).unwrap();
}
