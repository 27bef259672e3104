//! Runs across real processes over each wire: what the report says of it, what cannot be used, and
//! a rank that dies.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};

use nix::unistd::Pid;
use serde_json::Value;

use crate::processes::{self, FoundProcess};

/// A launcher that speaks PMI-1.
const LAUNCHER: &str = "mpiexec.hydra";
/// Five ranks: two victims and the congestors' target and senders, sharing hosts with them.
const RANKS: &str = "5";
/// Two phases of the shortest windows that can be judged.
const SHORT: &str = include_str!("../fixtures/short.toml");
/// The same with windows that are still open when the run is ended.
const LONG: &str = include_str!("../fixtures/long.toml");

/// A directory of this test alone.
fn directory(name: &str) -> PathBuf {
    let directory = std::env::temp_dir().join(format!("clearway-{name}-{}", std::process::id()));
    fs::create_dir_all(&directory).expect("a directory");
    directory
}

/// The run of `scenario` across a job over `wire`, or nothing where there is no launcher.
fn start(directory: &Path, scenario: &str, wire: &str) -> Option<Child> {
    let path = directory.join("scenario.toml");
    fs::write(&path, scenario).expect("a scenario");
    let mut command = Command::new(LAUNCHER);
    command.args(["-n", RANKS, env!("CARGO_BIN_EXE_clearway"), "run"]).arg(path);
    command
        .args(["--on", "cluster", "--wire", wire, "--overwrite", "--out"])
        .arg(directory.join("out"));
    match command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn() {
        Ok(child) => Some(child),
        Err(error) => {
            eprintln!("skipped: {LAUNCHER} cannot be started: {error}");
            None
        }
    }
}

fn text(output: &Output) -> String {
    format!(
        "{}{}",
        String::from_utf8_lossy(&output.stdout),
        String::from_utf8_lossy(&output.stderr)
    )
}

/// Processes of this run: their command lines name its directory, or their parents' do.
fn processes_of(directory: &Path) -> Vec<FoundProcess> {
    let all: Vec<FoundProcess> = processes::all().collect();
    let directory = directory.display().to_string();
    let is_named = |pid: Pid| all.iter().any(|it| it.pid == pid && it.line.contains(&directory));
    all.iter()
        .filter(|it| is_named(it.pid) || parent(it.pid).is_some_and(is_named))
        .cloned()
        .collect()
}

fn parent(pid: Pid) -> Option<Pid> {
    let status = fs::read_to_string(format!("/proc/{pid}/status")).ok()?;
    let parent = status.lines().find_map(|line| line.strip_prefix("PPid:"))?;
    parent.trim().parse().ok().map(Pid::from_raw)
}

/// Waits until no process of this run is left: who was asked to end may be doing it when the
/// launcher has ended.
fn expect_nothing_left(directory: &Path) {
    processes::wait_until(
        "nothing is left",
        || processes_of(directory),
        <[FoundProcess]>::is_empty,
    );
}

/// The report of a run that came to a verdict. On a busy machine any may be right; that there is
/// one is the point.
fn report_of(run: Child, directory: &Path) -> Value {
    let output = run.wait_with_output().expect("an end");
    let code = output.status.code().expect("no signal");
    assert!([0, 3, 4].contains(&code), "{code}: {}", text(&output));
    let report = fs::read(directory.join("out/report.json")).expect("a report");
    serde_json::from_slice(&report).expect("JSON")
}

#[test]
fn wires__ranks_of_a_job_measure_their_network_with_one_class_and_with_several() {
    let directory = directory("job");
    let Some(run) = start(&directory, SHORT, "udp") else { return };
    let report = report_of(run, &directory);
    assert_eq!(
        report["host"]["facts"]["wires"], "UDP, within one machine, not sealed between all ranks",
        "{report}"
    );
    assert_eq!(report["host"]["facts"]["launched by"], "PMI-1", "{report}");
    assert!(
        report["host"]["facts"].get("processors kept awake").is_none(),
        "a cluster's are others' business: {report}"
    );
    let marks = |queue: &str, class: &str| {
        let shares = report["shares"].as_array().expect("classes");
        let row =
            shares.iter().find(|row| row["labels"]["queue"] == queue && row["class"] == class);
        row.unwrap_or_else(|| panic!("no {class} on {queue}")).clone()
    };
    assert_eq!(marks("classes", "low-latency")["granted"], "46 seen");
    assert_eq!(marks("classes", "bulk")["granted"], "8 seen");
    assert_eq!(marks("one-class", "best-effort")["granted"], "0 seen");
    fs::remove_dir_all(&directory).expect("removed");
}

#[test]
fn wires__ranks_of_one_host_share_memory_unless_asked_otherwise() {
    let directory = directory("auto");
    let Some(run) = start(&directory, SHORT, "auto") else { return };
    let report = report_of(run, &directory);
    let facts = &report["host"]["facts"];
    assert_eq!(
        facts["wires"], "all ranks are on one host and share memory; no network is between them",
        "{report}"
    );
    let kept_apart = "control, low-latency, best-effort, bulk, scavenger: kept apart in each host";
    assert_eq!(facts["classes on the wire"], kept_apart);
    assert_eq!(report["shares"][0]["granted"], "no network", "no packet carries a mark");
    fs::remove_dir_all(&directory).expect("removed");
}

#[test]
fn wires__over_libfabric_the_report_names_provider_and_library() {
    let directory = directory("ofi");
    let Some(run) = start(&directory, SHORT, "ofi") else { return };
    let output = run.wait_with_output().expect("an end");
    if text(&output).contains("no libfabric") {
        return eprintln!("skipped: {}", text(&output));
    }
    assert!([Some(0), Some(3), Some(4)].contains(&output.status.code()), "{}", text(&output));
    let report = fs::read(directory.join("out/report.json")).expect("a report");
    let report: Value = serde_json::from_slice(&report).expect("JSON");
    let fact = |name: &str| {
        report["host"]["facts"][name].as_str().unwrap_or_else(|| panic!("no {name}: {report}"))
    };
    assert!(fact("wires").starts_with("libfabric (tcp"), "{}", fact("wires"));
    assert!(
        fact("libfabric").contains("provider tcp")
            && fact("libfabric").contains("on lo, libfabric ")
    );
    assert_eq!(
        fact("classes on the wire"),
        "control, low-latency, best-effort, bulk, scavenger: marked"
    );
    assert!(
        fact("libfabric's offers").contains("sockets on lo (127.0.0.1): deprecated"),
        "{}",
        fact("libfabric's offers")
    );
    fs::remove_dir_all(&directory).expect("removed");
}

#[test]
fn wires__without_a_libfabric_the_sentence_says_so_and_nothing_is_left() {
    let directory = directory("nolib");
    let elsewhere = directory.join("elsewhere");
    fs::create_dir_all(&elsewhere).expect("a directory");
    // The loader looks here first, and what it finds is no library.
    fs::write(elsewhere.join("libfabric.so.1"), "none").expect("a file");
    let mut command = Command::new(LAUNCHER);
    command.args([
        "-n",
        RANKS,
        env!("CARGO_BIN_EXE_clearway"),
        "run",
        "incast",
        "--on",
        "cluster",
        "--wire",
        "ofi",
        "--out",
    ]);
    command
        .arg(directory.join("out"))
        .env("LD_LIBRARY_PATH", &elsewhere)
        .stdout(Stdio::piped())
        .stderr(Stdio::piped());
    let Ok(run) = command.spawn() else {
        return eprintln!("skipped: {LAUNCHER} cannot be started");
    };
    let output = run.wait_with_output().expect("an end");
    let said = text(&output);
    assert_eq!(output.status.code(), Some(1), "{said}");
    assert!(
        said.contains("--wire ofi: rank 0 on host ") && said.contains(" has none: no libfabric: "),
        "{said}"
    );
    expect_nothing_left(&directory);
    fs::remove_dir_all(&directory).expect("removed");
}

#[test]
fn wires__memory_that_cannot_be_shared_is_one_sentence_and_nothing_is_left() {
    let directory = directory("limit");
    let out = directory.join("out");
    // 512,000 bytes; five ranks take 2 MiB each.
    let run = format!(
        "ulimit -f 1000; exec {LAUNCHER} -n {RANKS} {} run incast --on cluster --out {}",
        env!("CARGO_BIN_EXE_clearway"),
        out.display()
    );
    let output = Command::new("sh").args(["-c", &run]).output().expect("a shell");
    if output.status.code() == Some(127) {
        return eprintln!("skipped: {LAUNCHER} cannot be started: {}", text(&output));
    }
    let said = text(&output);
    assert_eq!(output.status.code(), Some(1), "{said}");
    assert!(
        said.contains("ranks of one host cannot share memory (--wire udp does without): "),
        "{said}"
    );
    assert!(said.contains("(ulimit -f)"), "{said}");
    expect_nothing_left(&directory);
    fs::remove_dir_all(&directory).expect("removed");
}

#[test]
fn wires__a_rank_that_is_killed_is_named_and_nothing_is_left() {
    for wire in ["udp", "shm", "ofi"] {
        a_rank_is_killed(wire);
    }
}

/// Kills a follower of a run over `wire`.
fn a_rank_is_killed(wire: &str) {
    let directory = directory(&format!("kill-{wire}"));
    let Some(run) = start(&directory, LONG, wire) else { return };
    let followers = || {
        processes_of(&directory)
            .into_iter()
            .filter(|it| it.line.contains("rank --with-parent"))
            .collect()
    };
    let followers = processes::wait_until("the ranks start", followers, |found| found.len() == 4);
    nix::sys::signal::kill(followers[3].pid, nix::sys::signal::Signal::SIGKILL).expect("killed");
    let output = run.wait_with_output().expect("an end");
    let said = text(&output);
    assert!(!output.status.success(), "{said}");
    assert!(said.contains("was killed by signal 9 in the middle of the run"), "{said}");
    expect_nothing_left(&directory);
    fs::remove_dir_all(&directory).expect("removed");
}
