//! All commands, found in the program's own help: a reader that closes its end ends no command
//! badly, and what is printed with `--json` is JSON and nothing else.
//!
//! # Not here
//! Values that are refused, examples, completions: unit tests of `command`, which have the table.

use std::collections::BTreeSet;
use std::fs;
use std::path::PathBuf;
use std::process::{Command, Output, Stdio};

/// Commands that print at once, without a privilege.
const QUICK: &[&[&str]] = &[
    &["bench", "--print-scenario"],
    &["completions", "bash"],
    &["qos", "emit", "--for", "tc"],
    &["qos", "plan", "--fabric", "edr"],
    &["setup-node", "--mark", "port:2049=bulk"],
    &["topo", "explain", "edr"],
    &["topo", "print", "edr"],
];

fn clearway(words: &[impl AsRef<std::ffi::OsStr>]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_clearway"));
    command.args(words).stdin(Stdio::null());
    command
}

/// Returns the words of every command that help lists.
fn commands() -> Vec<Vec<String>> {
    let mut found = vec![Vec::new()];
    let mut next = 0;
    while let Some(words) = found.get(next).cloned() {
        next += 1;
        let help = clearway(&[&words[..], &["-h".to_owned()]].concat()).output().expect("help");
        let help = String::from_utf8(help.stdout).expect("text");
        let listed = help.split("\nCommands:\n").nth(1).unwrap_or_default();
        let names = listed
            .lines()
            .take_while(|line| !line.is_empty())
            .filter_map(|line| line.strip_prefix("  ")?.split(' ').next())
            .filter(|name| !name.is_empty() && *name != "help");
        found.extend(names.map(|name| [&words[..], &[name.to_owned()]].concat()));
    }
    found
}

/// Returns the exit status of `words` whose outputs nobody reads.
fn unread(words: &[impl AsRef<std::ffi::OsStr>]) -> Option<i32> {
    let mut command = clearway(words);
    for set in [Command::stdout, Command::stderr] {
        let (reader, writer) = std::io::pipe().expect("a pipe");
        set(&mut command, writer);
        drop(reader);
    }
    command.status().expect("the program starts").code()
}

#[test]
fn help__of_every_command_is_there_and_needs_no_reader() {
    let all = commands();
    for some in [&["stage", "set-class"][..], &["cast", "serve"], &["timeslice", "build"]] {
        assert!(all.iter().any(|words| words == some), "{some:?} is not among {all:?}");
    }
    for words in all {
        let line = [&words[..], &["--help".to_owned()]].concat();
        assert_eq!(unread(&line), Some(0), "{words:?}");
    }
}

#[test]
fn output__of_quick_commands_needs_no_reader() {
    for words in QUICK {
        assert_eq!(unread(words), Some(0), "{words:?}");
    }
}

#[test]
fn queue__that_is_not_known_is_refused_and_nothing_is_left() {
    let directory = scratch("queue");
    for line in [
        "broadcast --queue nowhere",
        "broadcast --on sim --queue nowhere",
        "timeslice build --timeslices 10 --queue nowhere",
        "timeslice compare --on lab --queue nowhere",
        "timeslice compare --queue nowhere",
        "bench --queues nowhere",
    ] {
        let words: Vec<&str> = line.split(' ').collect();
        let output = clearway(&words).current_dir(&directory).output().expect("the program");
        let said = String::from_utf8_lossy(&output.stderr);
        assert_eq!(output.status.code(), Some(2), "{line}: {said}");
        assert!(said.contains("nowhere") && said.trim_end().lines().count() == 1, "{said}");
        assert_eq!(fs::read_dir(&directory).expect("there").count(), 0, "{line}");
    }
    fs::remove_dir_all(directory).expect("removed");
}

/// Returns a directory of this test alone.
fn scratch(name: &str) -> PathBuf {
    let directory =
        std::env::temp_dir().join(format!("clearway-surface-{name}-{}", std::process::id()));
    fs::create_dir_all(&directory).expect("a directory");
    directory
}

/// Commands that print figures, with words that make them do so at once; `RUN` is the directory of
/// a report, which the first of them leaves. No words: it needs a lab, a mount or other hosts, and
/// tests of its own read what it prints.
const FIGURES: &[(&str, &str)] = &[
    ("run", "tiny.toml --out RUN"),
    ("bench", "--fabric edr --nodes 8 --time 400us --out bench"),
    ("broadcast", "--on sim --fabric edr --ranks 4 --bytes 4B --objects 3 --out broadcast"),
    ("gpcnet", "network --fabric edr --nodes 4 --rings 1 --measurements 1 --out gpcnet"),
    (
        "timeslice compare",
        "--inputs 2 --builders 2 --contribution 4KiB --ring 64KiB --warm-up 100us --measured 100us --out compared",
    ),
    (
        "timeslice achievable",
        "--inputs 2 --builders 2 --contribution 64KiB --warm-up 100us --measured 100us",
    ),
    ("report", "RUN bench gpcnet"),
    ("diff", "RUN RUN"),
    ("demo", ""),
    ("cast", ""),
    ("stage status", ""),
    ("timeslice build", ""),
];

/// The scenario of the run in [`FIGURES`].
const TINY: &str = "name = \"tiny\"\n[fabric]\npreset = \"edr\"\nnodes = 8\n\
    [congestion]\nisolated = \"400us\"\ncongested = \"400us\"\n";

#[test]
fn figures__of_every_command_have_one_schema() {
    let directory = scratch("figures");
    fs::write(directory.join("tiny.toml"), TINY).expect("written");
    let printing = commands().into_iter().filter(|words| {
        let help = clearway(&[&words[..], &["-h".to_owned()]].concat()).output().expect("help");
        String::from_utf8_lossy(&help.stdout).contains("--csv")
    });
    let found: BTreeSet<String> = printing.map(|words| words.join(" ")).collect();
    let listed: BTreeSet<String> = FIGURES.iter().map(|(words, _)| (*words).to_owned()).collect();
    assert_eq!(found, listed, "commands with --csv, and those that are tried here");
    for (command, words) in FIGURES.iter().filter(|(_, words)| !words.is_empty()) {
        let print = |form: &str| {
            let again = if words.contains("--out") { " --overwrite" } else { "" };
            let line = format!("-q {command} {words}{again} {form}").replace("RUN", "tiny");
            let words: Vec<&str> = line.split_whitespace().collect();
            let output = clearway(&words).current_dir(&directory).output().expect("the program");
            let said = String::from_utf8_lossy(&output.stderr).into_owned();
            assert!(matches!(output.status.code(), Some(0 | 3 | 4)), "{line}: {said}");
            assert_eq!(said, "", "{line}");
            String::from_utf8(output.stdout).expect("text")
        };
        let read: serde_json::Value = serde_json::from_str(&print("--json")).expect("JSON");
        let figures = read["figures"].as_array().expect("an object with figures");
        assert!(!figures.is_empty(), "{command}");
        for figure in figures {
            let is_text = |key: &str| figure[key].is_string();
            let is_number = |key: &str| figure[key].is_number() || figure[key] == "inf";
            let is_end = |key: &str| figure[key].is_null() || is_number(key);
            let is_right = is_text("name") && is_text("unit") && is_number("value");
            assert!(is_right && is_end("low") && is_end("high"), "{command}: {figure}");
            let bytes = &figure["labels"]["bytes"];
            let is_raw = |text: &str| text.parse::<u64>().is_ok();
            assert!(bytes.as_str().is_none_or(is_raw), "{command}: {figure}");
        }
        let rows = print("--csv");
        assert!(rows.starts_with("name,value,unit,low,high,samples,labels\n"), "{command}: {rows}");
        assert_eq!(rows.lines().count(), 1 + figures.len(), "{command}");
    }
    fs::remove_dir_all(directory).expect("removed");
}

#[test]
fn json__is_all_that_standard_output_has() {
    let directory = scratch("json");
    let run = |line: &str| -> Output {
        let words: Vec<&str> = line.split(' ').collect();
        clearway(&words).current_dir(&directory).output().expect("the program")
    };
    fs::write(directory.join("site.toml"), "no policy").expect("written");
    assert_eq!(run("msa make one.msa --items 3 --mean 64B").status.code(), Some(0));
    for (line, status) in [
        ("msa info one.msa --json", 0),
        ("msa check one.msa --json", 0),
        ("policy check site.toml --json", 3),
        (
            "timeslice compare --json --fabric edr --inputs 2 --builders 2 --contribution 4KiB --ring 64KiB \
             --warm-up 100us --measured 100us --out compared",
            0,
        ),
        ("broadcast --json --on sim --fabric edr --ranks 4 --bytes 4B --objects 3 --out cast", 0),
    ] {
        let output = run(line);
        let said = String::from_utf8_lossy(&output.stderr);
        assert_eq!(output.status.code(), Some(status), "{line}: {said}");
        let read: Result<serde_json::Value, _> = serde_json::from_slice(&output.stdout);
        assert!(read.is_ok(), "{line}: {}", String::from_utf8_lossy(&output.stdout));
    }
    let left: Vec<_> = fs::read_dir(&directory).expect("there").flatten().collect();
    assert_eq!(left.len(), 4, "what was made and what was asked for: {left:?}");
    fs::remove_dir_all(directory).expect("removed");
}
