//! Ranks of a lab that are killed in the middle of a run and started again.

use std::fs;
use std::path::Path;
use std::process::{Command, Output};

use crate::timeslice_ranks::{directory, text};

const PROGRAM: &str = env!("CARGO_BIN_EXE_clearway");

fn clearway(directory: &Path, words: &str) -> Output {
    let mut command = Command::new(PROGRAM);
    command.args(words.split_whitespace()).current_dir(directory).output().expect("the program")
}

/// Returns how many items the archive at `path` has.
fn items(directory: &Path, path: &str) -> u64 {
    let output = clearway(directory, &format!("msa info {path} --json"));
    let files: serde_json::Value = serde_json::from_slice(&output.stdout).expect("JSON");
    files[0]["contents"]["items"].as_u64().expect("a count")
}

#[test]
fn build__a_builder_and_an_input_that_are_killed_in_a_lab_are_started_again() {
    let directory = directory("ts-restarted");
    let line = "timeslice build --on lab --wire udp --inputs 2 --builders 3 --rate 200Mb/s --timeslices 3000 --contribution 4KiB --ring 64KiB";
    let changes = "--kill 1@100ms,4@100ms --join 1@300ms,4@300ms --heartbeat 100ms";
    let output = clearway(&directory, &format!("{line} {changes} --sink ts_%b.tsa --json"));
    if output.status.code() == Some(5) {
        eprintln!("skipped: {}", text(&output));
        return;
    }
    assert!(output.status.success(), "{}", text(&output));
    let reported: serde_json::Value = serde_json::from_slice(&output.stdout).expect("JSON");
    assert_eq!(
        [&reported["timeslices"], &reported["lost"], &reported["duplicated"], &reported["faults"]],
        [3000, 0, 0, 0],
        "{reported}"
    );
    let out = reported["out"].as_array().expect("a list");
    assert_eq!(out.len(), 2, "{reported}");
    assert!(
        out.iter()
            .all(|death| death["how"] == "was killed by signal 9"
                && death["back_seconds"].is_number()),
        "{reported}"
    );
    // What the first process of the builder had built that counts, and what the second one has.
    let builder = out.iter().find(|death| death["rank"] == 4).expect("the builder");
    let settled = builder["settled"].as_u64().expect("a count");
    assert_eq!(builder["archive"], "ts_2.tsa.unfinished", "{reported}");
    assert!(items(&directory, "ts_2.tsa.unfinished") >= settled, "{reported}");
    let whole = ["ts_0.tsa", "ts_1.tsa", "ts_2.tsa"].map(|name| items(&directory, name));
    assert_eq!(whole.iter().sum::<u64>() + settled, 3000, "{whole:?} {reported}");
    assert!(whole[2] > 0, "it builds again: {reported}");
    fs::remove_dir_all(directory).expect("to remove it");
}

#[test]
fn compare__a_killed_rank_is_back_under_every_schedule() {
    let directory = directory("ts-restarted-schedules");
    let line = "timeslice compare --on lab --wire udp --inputs 2 --builders 3 --policy token,dfs,best-effort --warm-up 100ms --measured 2s";
    let changes = "--kill 3@100ms --join 3@200ms --heartbeat 100ms";
    let output = clearway(&directory, &format!("{line} {changes} --json"));
    let said = text(&output);
    if output.status.code() == Some(5) {
        eprintln!("skipped: {said}");
        return;
    }
    assert!(output.status.success(), "{said}");
    let output: serde_json::Value = serde_json::from_slice(&output.stdout).expect("JSON");
    let figures = output["figures"].as_array().expect("figures");
    for name in ["timeslices_lost", "timeslices_duplicated"] {
        let found = figures.iter().filter(|figure| figure["name"] == name);
        let values: Vec<_> = found.map(|figure| figure["value"].as_f64()).collect();
        assert_eq!(values, [Some(0.0); 3], "{name}: {said}");
    }
    assert_eq!(said.matches("; back after").count(), 3, "{said}");
    fs::remove_dir_all(directory).expect("to remove it");
}

#[test]
fn compare__a_killed_rank_that_cannot_come_back_is_refused_with_what_works() {
    let directory = directory("ts-no-restart");
    let line = "timeslice compare --inputs 2 --builders 2 --measured 2s";
    for (words, sentence) in [
        ("--on lab --kill 3@100ms --join 3@300ms --wire ofi", "is started again over UDP only"),
        (
            "--on lab --kill 3@100ms,3@500ms --join 3@300ms",
            "is killed and started again once in a run",
        ),
    ] {
        let output = clearway(&directory, &format!("{line} {words}"));
        let said = text(&output);
        if output.status.code() == Some(5) || said.contains("has none: ") {
            eprintln!("skipped: {said}");
            continue;
        }
        assert!(!output.status.success() && said.contains(sentence), "{words}: {said}");
    }
    fs::remove_dir_all(directory).expect("to remove it");
}
