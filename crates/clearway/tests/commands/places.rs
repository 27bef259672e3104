//! Each kind and place of the table in `docs/scenarios.md`: the smallest scenario of its kind runs
//! there and leaves a whole report.
//!
//! # Not here
//! Pairs that other tests run: a congestion test of a topology across a job (`wires`), a broadcast
//! in a lab (`broadcast`).

use std::fs;
use std::process::Command;
use std::sync::atomic::{AtomicU32, Ordering};

use serde_json::Value;

/// The exit status when namespaces are refused.
const NO_PERMISSION: i32 = 5;

const TOPOLOGY: &str = "[fabric]\ntopology = { kind = \"star\", hosts = 5, rate = \"100Mb/s\" }\n";
const PRESET: &str = "[fabric]\npreset = \"edr\"\nnodes = 8\n";

/// The shortest windows that a laboratory can judge, in one queue, whose congestion harms victims.
const CONGESTION: &str = "[congestion]\nqueues = [\"fifo\"]\nisolated = \"1.2s\"\ncongested = \"1.2s\"\nnull-control = \"skip\"\n";
/// Mounts that write to a server, held back by nothing and by the server.
const STAGED: &str = "[congestion]\nvictims = [\"allreduce\"]\ncongestors = [\"staging\", \"staging-yield\"]\nqueues = [\"fifo\"]\n\
                      isolated = \"1.2s\"\ncongested = \"1.2s\"\nnull-control = \"skip\"\n";
/// The same where windows are those of the machine.
const MACHINE: &str = "[congestion]\nnull-control = \"skip\"\n";
const IMPACT: &str = "congestion_impact_factor";
const SHARES: &str = "[shares]\nmeasured = \"1.2s\"\n";
const TIMESLICE: &str = "[timeslice]\npolicies = [\"offset\"]\ninputs = 2\ncontribution = \"4KiB\"\nring = \"64KiB\"\n\
                         start-skew = \"1ms\"\nwarm-up = \"20ms\"\nmeasured = \"50ms\"\n";
/// Times that suit a machine, which simulates a hundred times as many packets in each.
const BRIEF: &str = "[timeslice]\npolicies = [\"offset\"]\ninputs = 2\ncontribution = \"4KiB\"\nring = \"64KiB\"\n\
                     start-skew = \"20us\"\nwarm-up = \"300us\"\nmeasured = \"300us\"\n";
const THROUGHPUT: &str = "timeslice_throughput_fraction";

/// The exit statuses of a run that is good, of one that finds congestion, and of one on a machine
/// that may be too busy: any verdict may be right there, and the point is that there is one.
const GOOD: &[i32] = &[0];
const CONGESTED: &[i32] = &[3];
const JUDGED: &[i32] = &[0, 3, 4];

/// Runs the scenario of `tables` at `place`: it ends with one of `codes`, and its report is whole
/// and holds `figure`.
fn run(place: &str, tables: &[&str], figure: &str, codes: &[i32]) {
    static CALLS: AtomicU32 = AtomicU32::new(0);
    let call =
        format!("clearway-places-{}-{}", std::process::id(), CALLS.fetch_add(1, Ordering::Relaxed));
    let directory = std::env::temp_dir().join(call);
    fs::create_dir_all(&directory).expect("a directory");
    let (file, out) = (directory.join("scenario.toml"), directory.join("out"));
    fs::write(&file, format!("name = \"cell\"\n{}", tables.concat())).expect("written");
    let mut command = Command::new(env!("CARGO_BIN_EXE_clearway"));
    let output = command
        .arg("run")
        .arg(file)
        .args(["--on", place, "--out"])
        .arg(&out)
        .output()
        .expect("the program");
    let said = String::from_utf8_lossy(&output.stderr);
    let code = output.status.code().expect("no signal");
    if code == NO_PERMISSION && place == "lab" {
        fs::remove_dir_all(directory).expect("removed");
        return eprintln!("skipped: {}", said.trim());
    }
    assert!(codes.contains(&code), "{code}: {said}");
    let report = fs::read(out.join("report.json")).expect("a report");
    let report: Value = serde_json::from_slice(&report).expect("JSON");
    assert_eq!(report["place"], place);
    let figures = report["figures"].as_array().expect("figures");
    assert!(figures.iter().any(|it| it["name"] == figure), "no {figure}: {figures:?}");
    let page = fs::read_to_string(out.join("report.html")).expect("a page");
    assert!(page.ends_with("</html>\n"), "the page is whole");
    fs::remove_dir_all(directory).expect("removed");
}

#[test]
fn congestion__a_topology_on_the_simulator() {
    run("sim", &[TOPOLOGY, CONGESTION], IMPACT, CONGESTED);
}

#[test]
fn congestion__staging_on_the_simulator() {
    run("sim", &[TOPOLOGY, STAGED], IMPACT, JUDGED);
}

#[test]
fn congestion__a_topology_in_a_lab() {
    run("lab", &[TOPOLOGY, CONGESTION], IMPACT, JUDGED);
}

#[test]
fn congestion__a_preset_on_the_simulator() {
    run("sim", &[PRESET, MACHINE], IMPACT, CONGESTED);
}

#[test]
fn shares__a_topology_on_the_simulator() {
    run("sim", &[TOPOLOGY, SHARES], "class_share", GOOD);
}

#[test]
fn shares__a_topology_in_a_lab() {
    run("lab", &[TOPOLOGY, SHARES], "class_share", JUDGED);
}

#[test]
fn shares__a_preset_on_the_simulator() {
    run("sim", &[PRESET, "[shares]\n"], "class_share", GOOD);
}

#[test]
fn timeslice__a_topology_on_the_simulator() {
    run("sim", &[TOPOLOGY, TIMESLICE], THROUGHPUT, GOOD);
}

#[test]
fn timeslice__a_topology_in_a_lab() {
    run("lab", &[TOPOLOGY, TIMESLICE], THROUGHPUT, GOOD);
}

#[test]
fn timeslice__a_preset_on_the_simulator() {
    run("sim", &[PRESET, BRIEF], THROUGHPUT, GOOD);
}

#[test]
fn timeslice__a_preset_with_a_lab_of_its_own() {
    let there = TOPOLOGY.replace("[fabric]", "[lab.fabric]");
    run("lab", &[PRESET, TIMESLICE, &there], THROUGHPUT, GOOD);
}

#[test]
fn broadcast__a_preset_on_the_simulator() {
    run(
        "sim",
        &[PRESET, "[broadcast]\nbytes = [\"4B\"]\nobjects = 3\n"],
        "broadcast_seconds",
        GOOD,
    );
}

#[test]
fn staging__a_preset_on_the_simulator() {
    let section = "[staging]\nqueues = [\"shared\", \"lanes\"]\ntests = [\"latency\", \"bandwidth\"]\nservers = 2\nwindow = 4\n\
        large = \"256KiB\"\nshort-iterations = 10\niterations = 2\n";
    run("sim", &[PRESET, section], "staging_less_time_us", GOOD);
}

#[test]
fn shmem__a_preset_on_the_simulator() {
    let section = "[shmem]\nqueue = \"lanes\"\npes-per-host = 2\ncongestors = [\"both\"]\nwarm-up = \"100us\"\nmeasured = \"300us\"\n";
    run("sim", &[PRESET, section], "shmem_class_gain", GOOD);
}
