//! All commands, found in the program's own help: a reader that closes its end ends no command
//! badly, and what is printed with `--json` is JSON and nothing else.
//!
//! # Not here
//! Values that are refused, examples, completions: unit tests of `command`, which have the table.

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
