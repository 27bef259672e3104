//! Runs across real processes that a launcher starts: that they find each other, and that the death of one ends all.
#![allow(non_snake_case)] // tests are named function__case

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use std::time::{Duration, Instant};

use serde_json::Value;

/// A launcher that speaks PMI-1.
const LAUNCHER: &str = "mpiexec.hydra";
/// Five ranks: two victims and the congestors' target and senders, sharing hosts with them.
const RANKS: &str = "5";
/// Two phases of the shortest windows that can be judged.
const SCENARIO: &str = r#"
name = "short"
[fabric]
topology = { kind = "star", hosts = 8, rate = "100Mb/s" }
[congestion]
isolated = "1.2s"
congested = "1.2s"
null-control = "skip"
"#;

/// A directory of this test alone.
fn directory(name: &str) -> PathBuf {
    let directory = std::env::temp_dir().join(format!("clearway-{name}-{}", std::process::id()));
    fs::create_dir_all(&directory).expect("a directory");
    directory
}

/// The run of [`SCENARIO`] across a job, or nothing where there is no launcher.
fn start(directory: &Path) -> Option<Child> {
    let scenario = directory.join("short.toml");
    fs::write(&scenario, SCENARIO).expect("a scenario");
    let mut command = Command::new(LAUNCHER);
    command.args(["-n", RANKS, env!("CARGO_BIN_EXE_clearway"), "run"]).arg(scenario);
    command.args(["--on", "cluster", "--out"]).arg(directory.join("out"));
    match command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn() {
        Ok(child) => Some(child),
        Err(error) => {
            eprintln!("skipped: {LAUNCHER} cannot be started: {error}");
            None
        }
    }
}

fn text(output: &Output) -> String {
    format!("{}{}", String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr))
}

/// Processes of this run: their command lines name its directory, or their parents' do.
fn processes(directory: &Path) -> Vec<(u32, String)> {
    let mut found: Vec<(u32, u32, String)> = Vec::new();
    for entry in fs::read_dir("/proc").expect("processes").flatten() {
        let Some(pid) = entry.file_name().to_str().and_then(|name| name.parse().ok()) else { continue };
        let line = fs::read_to_string(entry.path().join("cmdline")).unwrap_or_default().replace('\0', " ");
        let status = fs::read_to_string(entry.path().join("status")).unwrap_or_default();
        let parent = status.lines().find_map(|line| line.strip_prefix("PPid:")?.trim().parse().ok()).unwrap_or(0);
        found.push((pid, parent, line));
    }
    let named =
        |pid: u32| found.iter().any(|(own, _, line)| *own == pid && line.contains(&directory.display().to_string()));
    let of_run = found.iter().filter(|(pid, parent, _)| named(*pid) || named(*parent));
    of_run.map(|(pid, _, line)| (*pid, line.clone())).collect()
}

#[test]
fn cluster__ranks_of_a_job_measure_their_network_with_one_class_and_with_several() {
    let directory = directory("job");
    let Some(run) = start(&directory) else { return };
    let output = run.wait_with_output().expect("an end");
    // On a busy machine any verdict may be right; that there is one is the point.
    let code = output.status.code().expect("no signal");
    assert!([0, 3, 4].contains(&code), "{code}: {}", text(&output));
    let report = fs::read(directory.join("out/report.json")).expect("a report");
    let report: Value = serde_json::from_slice(&report).expect("JSON");
    assert_eq!(report["host"]["facts"]["launched by"], "PMI-1", "{report}");
    let marks = |queue: &str, class: &str| {
        let shares = report["shares"].as_array().expect("classes");
        let row = shares.iter().find(|row| row["labels"]["queue"] == queue && row["class"] == class);
        row.unwrap_or_else(|| panic!("no {class} on {queue}")).clone()
    };
    assert_eq!(marks("classes", "low-latency")["granted"], "46 seen");
    assert_eq!(marks("classes", "bulk")["granted"], "8 seen");
    assert_eq!(marks("one-class", "best-effort")["granted"], "0 seen");
    fs::remove_dir_all(&directory).expect("removed");
}

#[test]
fn cluster__a_rank_that_is_killed_is_named_and_nothing_is_left() {
    let directory = directory("kill");
    let Some(run) = start(&directory) else { return };
    let deadline = Instant::now() + Duration::from_secs(60);
    let victim = loop {
        let followers: Vec<u32> = processes(&directory)
            .into_iter()
            .filter(|(_, line)| line.contains("rank --with-parent"))
            .map(|(pid, _)| pid)
            .collect();
        match followers.last() {
            Some(pid) if followers.len() == 4 => break *pid,
            _ => assert!(Instant::now() < deadline, "the ranks do not start"),
        }
        std::thread::yield_now();
    };
    let pid = i32::try_from(victim).expect("a process");
    nix::sys::signal::kill(nix::unistd::Pid::from_raw(pid), nix::sys::signal::Signal::SIGKILL).expect("killed");
    let output = run.wait_with_output().expect("an end");
    let said = text(&output);
    assert!(!output.status.success(), "{said}");
    assert!(said.contains("was killed by signal 9 in the middle of the run"), "{said}");
    while !processes(&directory).is_empty() {
        assert!(Instant::now() < deadline, "left behind: {:?}", processes(&directory));
        std::thread::yield_now();
    }
    fs::remove_dir_all(&directory).expect("removed");
}
