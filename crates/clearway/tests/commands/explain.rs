//! A simulated run can be asked afterwards, as long as it is still the same run.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

const FABRIC: &str = "format = 1\nextends = \"hdr100\"\nname = \"mine\"\n";

fn clearway(at: &Path, arguments: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_clearway")).args(arguments).current_dir(at).output().unwrap()
}

fn sentence(at: &Path, arguments: &[&str]) -> String {
    let output = clearway(at, arguments);
    assert_eq!(output.status.code(), Some(1), "{arguments:?}");
    String::from_utf8(output.stderr).unwrap()
}

/// A directory with a run in `run` of the fabric in `mine.toml`.
fn a_run() -> PathBuf {
    let at = std::env::temp_dir().join(format!("clearway-explain-{}", std::process::id()));
    fs::create_dir_all(&at).unwrap();
    fs::write(at.join("mine.toml"), FABRIC).unwrap();
    let bench = "bench --fabric mine.toml --nodes 8 --groups fixed --time 400us --out run";
    let output = clearway(&at, &bench.split(' ').collect::<Vec<_>>());
    assert!(
        output.stderr.windows(5).any(|at| at == b"[1/1]"),
        "{}",
        String::from_utf8_lossy(&output.stderr)
    );
    at
}

#[test]
fn explain__answers_for_the_same_run_only() {
    let at = a_run();
    let listed = clearway(&at, &["sim", "explain", "run"]);
    assert_eq!(listed.status.code(), Some(0), "{}", String::from_utf8_lossy(&listed.stderr));
    let page = String::from_utf8(listed.stdout).unwrap();
    let slowest = page
        .lines()
        .find_map(|line| line.split(' ').next().filter(|word| word.starts_with("p1:")))
        .unwrap();
    let [one, host] = ["--message", slowest];
    let reported = clearway(&at, &["sim", "explain", "run", one, host]);
    assert_eq!(reported.status.code(), Some(0), "{}", String::from_utf8_lossy(&reported.stderr));

    let said = sentence(&at, &["sim", "explain", "run", "--message", "p2:n1:1"]);
    assert!(
        said.contains("no phase 2 in this run, which has 1") && !said.contains("repeated"),
        "{said}"
    );
    let said = sentence(&at, &["sim", "explain", "run", "--message", "p1:n99:1"]);
    assert!(said.contains("no host `n99` takes part in this run; 8 hosts do"), "{said}");

    fs::write(at.join("mine.toml"), format!("{FABRIC}[switch]\ndelay = \"123ns\"\n")).unwrap();
    let said = sentence(&at, &["sim", "explain", "run"]);
    assert!(said.contains("could not be repeated as it was, phase 1"), "{said}");
    fs::write(at.join("mine.toml"), FABRIC).unwrap();
    let report = fs::read_to_string(at.join("run/report.json")).unwrap();
    fs::write(at.join("run/report.json"), report.replace("\"seed\": 1,", "\"seed\": 2,")).unwrap();
    let said = sentence(&at, &["sim", "explain", "run", one, host]);
    assert!(
        said.contains("could not be repeated as it was, phase 1") || said.contains("takes part"),
        "{said}"
    );
    fs::remove_dir_all(&at).unwrap();
}
