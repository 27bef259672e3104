//! `clearway run together --on lab`: the program's own commands load a lab while an application
//! runs, and leave nothing behind.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};

use nix::sys::signal::{Signal, kill};
use nix::unistd::{Pid, geteuid};
use serde_json::Value;

use crate::waiting::wait_until;

/// The exit status when namespaces are refused.
const NO_PERMISSION: i32 = 5;
const SCENARIO: &str = r#"
name = "short"
[fabric]
topology = { kind = "star", hosts = 8, rate = "25Mb/s" }
[together]
isolated = "1200ms"
congested = "1200ms"
"#;

/// Starts the scenario with `more` lines in `directory`.
fn start(directory: &Path, more: &str) -> Child {
    fs::create_dir_all(directory).expect("a directory");
    fs::write(directory.join("short.toml"), format!("{SCENARIO}{more}")).expect("written");
    let mut command = Command::new(env!("CARGO_BIN_EXE_clearway"));
    command.args(["run", "short.toml", "--on", "lab", "--out", "out"]).current_dir(directory);
    command.env("TMPDIR", directory);
    command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().expect("the program")
}

fn place(name: &str) -> PathBuf {
    std::env::temp_dir().join(format!("clearway-test-{name}-{}", std::process::id()))
}

/// Returns whether something is mounted below `directory`.
fn is_mounted(directory: &Path) -> bool {
    let mounts = fs::read_to_string("/proc/self/mounts").expect("mounts");
    mounts.contains(&directory.display().to_string())
}

/// Asserts that a run in `directory` left only its own output.
fn left_nothing(directory: &Path) {
    assert!(!is_mounted(directory));
    let left: Vec<_> = fs::read_dir(directory)
        .expect("a directory")
        .map(|entry| entry.expect("an entry").file_name())
        .filter(|name| name.to_string_lossy().starts_with("clearway-together"))
        .collect();
    assert!(left.is_empty(), "{left:?}");
    fs::remove_dir_all(directory).expect("removed");
}

/// Returns whether namespaces were refused, or the machine was too busy.
fn cannot_run(output: &Output) -> bool {
    let is_busy = !output.status.success() && errors(output).contains("busy");
    is_busy || output.status.code() == Some(NO_PERMISSION)
}

fn errors(output: &Output) -> String {
    String::from_utf8_lossy(&output.stderr).trim().to_owned()
}

#[test]
fn lab__commands_load_the_applications_and_leave_nothing() {
    let directory = place("together");
    let output = start(&directory, "mpi = true\n").wait_with_output().expect("ended");
    let report = fs::read(directory.join("out/report.json"));
    left_nothing(&directory);
    if cannot_run(&output) {
        return eprintln!("skipped: {}", errors(&output));
    }
    assert!(output.status.success(), "{}", errors(&output));
    let report: Value = serde_json::from_slice(&report.expect("a report")).expect("JSON");
    let figures = report["figures"].as_array().expect("figures");
    let mut warnings = report["warnings"].as_array().into_iter().flatten();
    let without_mpi = warnings
        .find(|it| it.as_str().is_some_and(|it| it.contains("the MPI program was left out")));
    if let Some(why) = without_mpi {
        eprintln!("skipped: pings of an MPI program: {why}");
    }
    for queue in ["fifo", "strict"] {
        let of_queue = |name: &'static str| {
            figures.iter().filter(move |it| it["name"] == name && it["labels"]["queue"] == queue)
        };
        let timed = of_queue("together_application_us").all(|it| it["samples"].as_u64() > Some(0));
        assert!(timed, "{figures:?}");
        let is_of_mpi = |it: &&Value| it["labels"]["application"] == "mpi ping";
        let [ratios, times] = ["together_application_p99_ratio", "together_application_us"]
            .map(|name| of_queue(name).partition::<Vec<_>, _>(|it| is_of_mpi(it)));
        assert_eq!(ratios.1.len(), 2);
        // The median and the p99, isolated and congested.
        let found = [ratios.0.len(), times.0.len()];
        assert!(found == [1, 4] || found == [0, 0] && without_mpi.is_some(), "{found:?}");
        let is_positive = |it: &&Value| it["value"].as_f64() > Some(0.0);
        assert!(ratios.0.iter().chain(&times.0).all(is_positive), "{figures:?}");
        assert_eq!(of_queue("together_bulk_line_fraction").count(), 1);
        let carried: f64 = of_queue("together_transfer_rate")
            .filter(|it| it["labels"]["company"] == "all")
            .filter_map(|it| it["value"].as_f64())
            .sum();
        assert!(carried > 0.0, "{queue}");
    }
}

#[test]
fn lab__an_interrupt_unmounts_and_ends_all_commands() {
    if !geteuid().is_root() {
        return eprintln!("skipped: only root can mount");
    }
    let directory = place("together-interrupt");
    let mut run = start(&directory, "");
    wait_until("it mounts", || {
        is_mounted(&directory) || run.try_wait().expect("a status").is_some()
    });
    let _ = kill(Pid::from_raw(run.id().cast_signed()), Signal::SIGINT);
    let output = run.wait_with_output().expect("ended");
    left_nothing(&directory);
    let said = errors(&output) + &String::from_utf8_lossy(&output.stdout);
    if cannot_run(&output) || said.contains("the checkpoint was left out") {
        return eprintln!("skipped: {said}");
    }
    assert_eq!(output.status.code(), Some(130), "{said}");
}
