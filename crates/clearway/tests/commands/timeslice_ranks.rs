//! Timeslices built by processes: recorded microslices in, archives out, byte for byte; consumers;
//! what is refused.

use std::fs;
use std::io::{BufRead, BufReader};
use std::net::TcpListener;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};

use nix::sys::signal::Signal;

use crate::scraped::{Scraped, address};
use crate::waiting::{has_bytes, wait_until};

/// A launcher that speaks PMI-1.
const LAUNCHER: &str = "mpiexec.hydra";
const PROGRAM: &str = env!("CARGO_BIN_EXE_clearway");
/// Where the time of making stands in an archive: behind signature (40), class (5), kind (4) and
/// compression (4).
const CREATED: std::ops::Range<usize> = 53..61;

/// A directory of this test alone.
pub(crate) fn directory(name: &str) -> PathBuf {
    let directory = std::env::temp_dir().join(format!("clearway-{name}-{}", std::process::id()));
    fs::create_dir_all(&directory).expect("a directory");
    directory
}

/// `subcommand` with `words` as a job of `ranks` ranks that share memory, in `directory`; nothing
/// where there is no launcher.
pub(crate) fn start(directory: &Path, subcommand: &str, ranks: &str, words: &str) -> Option<Child> {
    let mut command = Command::new(LAUNCHER);
    command
        .args(["-n", ranks, PROGRAM, "timeslice", subcommand, "--on", "cluster"])
        .args(words.split_whitespace());
    match command.current_dir(directory).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn() {
        Ok(child) => Some(child),
        Err(error) => {
            eprintln!("skipped: {LAUNCHER} cannot be started: {error}");
            None
        }
    }
}

pub(crate) fn build(directory: &Path, ranks: &str, words: &str) -> Option<Output> {
    Some(start(directory, "build", ranks, words)?.wait_with_output().expect("an end"))
}

/// The program with `words` in `directory`.
fn clearway(directory: &Path, words: &str) -> Output {
    let mut command = Command::new(PROGRAM);
    command.args(words.split_whitespace()).current_dir(directory).output().expect("the program")
}

pub(crate) fn text(output: &Output) -> String {
    format!(
        "{}{}",
        String::from_utf8_lossy(&output.stdout),
        String::from_utf8_lossy(&output.stderr)
    )
}

/// How descriptors of made microslices begin, up to the subsystem's format; no ramp of so few
/// channels has such bytes.
const DESCRIPTOR: [u8; 8] = [0xdd, 1, 1, 0xe0, 1, 0, 0xf0, 0x81];

/// The archive at `path` but for the time at which it was made, and for where offsets of contents
/// begin: in a stream they go on from timeslice to timeslice.
fn timeless(path: &Path) -> Vec<u8> {
    let mut bytes = fs::read(path).expect("an archive");
    let descriptors: Vec<usize> = bytes
        .windows(DESCRIPTOR.len())
        .enumerate()
        .filter(|(_, seen)| *seen == DESCRIPTOR)
        .map(|(at, _)| at)
        .collect();
    assert_eq!(descriptors.len(), 3 * 10 * 9);
    descriptors.into_iter().for_each(|at| bytes[at + 24..at + 32].fill(0));
    bytes.drain(CREATED);
    bytes
}

#[test]
fn build__of_archives_is_what_the_generator_would_have_made() {
    let directory = directory("ts-archives");
    let law = "--mean 3KiB --sizes skewed";
    assert!(
        clearway(&directory, &format!("msa make run_%i.msa --channels 3 --items 81 {law}"))
            .status
            .success()
    );
    let wanted = format!("msa make want.tsa --channels 3 --core 8 --overlap 1 --items 10 {law}");
    assert!(clearway(&directory, &wanted).status.success());
    let line = "--inputs 3 --builders 1 --source run_%i.msa --sink ts_%b.tsa --timeslice-size 8 --overlap 1";
    for wire in ["shm", "udp"] {
        let _ = fs::remove_file(directory.join("ts_0.tsa"));
        let words = format!("{line} --timeslices 10 --ring 256KiB --wire {wire} --json");
        let Some(output) = build(&directory, "4", &words) else { return };
        assert!(output.status.success(), "{wire}: {}", text(&output));
        let reported: serde_json::Value = serde_json::from_slice(&output.stdout).expect("JSON");
        assert_eq!(
            (&reported["timeslices"], &reported["incomplete"]),
            (&10.into(), &0.into()),
            "{wire}: {reported}"
        );
        assert!(
            timeless(&directory.join("ts_0.tsa")) == timeless(&directory.join("want.tsa")),
            "{wire}: other bytes"
        );
    }
    let report = fs::read_to_string(directory.join("out/timeslice-build/latest/report.json"))
        .expect("a report");
    let report: serde_json::Value = serde_json::from_str(&report).expect("JSON");
    let built = report["figures"]
        .as_array()
        .and_then(|all| all.iter().find(|it| it["name"] == "timeslices_built"));
    assert_eq!(built.map(|figure| &figure["value"]), Some(&10.0.into()), "{report}");
    assert_eq!(
        (&report["place"], &report["host"]["facts"]["archives written"]),
        (&"cluster".into(), &"ts_0.tsa".into())
    );
    assert!(directory.join("out/timeslice-build/2/report.html").exists(), "one for each run");
    // What is there is not written over.
    let Some(output) = build(&directory, "4", line) else { return };
    assert!(!output.status.success());
    assert!(
        text(&output).contains("ts_0.tsa is there already, and is not written over"),
        "{}",
        text(&output)
    );
    fs::remove_dir_all(directory).expect("to remove it");
}

/// Sends `archive` to the first who comes in.
fn send<S: std::io::Write>(
    archive: &Path,
    accept: impl FnOnce() -> S + Send + 'static,
) -> std::thread::JoinHandle<()> {
    let archive = fs::read(archive).expect("an archive");
    std::thread::spawn(move || accept().write_all(&archive).expect("to be read"))
}

#[test]
fn build__takes_microslices_from_sockets_pipes_and_ports_and_compresses() {
    let directory = directory("ts-sockets");
    assert!(
        clearway(&directory, "msa make run_%i.msa --channels 2 --items 40 --mean 3KiB")
            .status
            .success()
    );
    let own = |name: &str, input: u32| directory.join(format!("{name}_{input}"));
    let archive = |input| directory.join(format!("run_{input}.msa"));
    let of_socket = |input| {
        let listener =
            std::os::unix::net::UnixListener::bind(own("socket", input)).expect("a socket");
        send(&archive(input), move || listener.accept().expect("an input").0)
    };
    let of_pipe = |input| {
        let pipe = own("pipe", input);
        nix::unistd::mkfifo(&pipe, nix::sys::stat::Mode::S_IRWXU).expect("a pipe");
        send(&archive(input), move || fs::File::create(pipe).expect("an input"))
    };
    // Two ports that differ in one digit, as names of inputs do.
    let bind = |port| TcpListener::bind(("127.0.0.1", port)).ok();
    let (tens, first, second) = (1_100..3_000)
        .find_map(|tens| Some((tens, bind(10 * tens)?, bind(10 * tens + 1)?)))
        .expect("two ports that are free");
    let ports = format!("tcp://127.0.0.1:{tens}%i");
    let of_ports = [(0, first), (1, second)].map(|(input, listener)| {
        send(&archive(input), move || listener.accept().expect("an input").0)
    });
    let givers = [0, 1].map(of_socket).into_iter().chain([0, 1].map(of_pipe)).chain(of_ports);
    let givers: Vec<_> = givers.collect();
    for (number, source) in ["socket_%i", "pipe_%i", &ports].into_iter().enumerate() {
        let sink = format!("--sink ts_{number}_%b.tsa --compress --timeslice-size 8 --ring 256KiB");
        let Some(output) =
            build(&directory, "3", &format!("--inputs 2 --builders 1 --source {source} {sink}"))
        else {
            return;
        };
        assert!(output.status.success(), "{source}: {}", text(&output));
        let output = clearway(&directory, &format!("msa check ts_{number}_0.tsa --json"));
        assert!(output.status.success(), "{source}: {}", text(&output));
        let files: serde_json::Value = serde_json::from_slice(&output.stdout).expect("JSON");
        let contents = &files[0]["contents"];
        assert_eq!(
            (&contents["items"], &contents["microslices"]),
            (&5.into(), &80.into()),
            "{source}: {files}"
        );
        assert!(
            text(&clearway(&directory, &format!("msa info ts_{number}_0.tsa")))
                .contains("compressed by zstd")
        );
    }
    givers.into_iter().for_each(|giver| giver.join().expect("all was given"));
    fs::remove_dir_all(directory).expect("to remove it");
}

#[test]
fn build__inputs_of_other_lengths_lose_nothing() {
    let directory = directory("ts-lengths");
    for (input, items) in [(0, 37), (1, 5), (2, 64)] {
        let line =
            format!("msa make run_{input}.msa --channel {input} --items {items} --mean 1KiB");
        assert!(clearway(&directory, &line).status.success());
    }
    let line = "--inputs 3 --builders 2 --source run_%i.msa --sink ts_%b.tsa --timeslice-size 10 --ring 32KiB";
    let Some(output) = build(&directory, "5", line) else { return };
    assert!(output.status.success(), "{}", text(&output));
    let output = clearway(&directory, "msa check ts_0.tsa ts_1.tsa --json");
    assert!(output.status.success(), "{}", text(&output));
    let files: Vec<serde_json::Value> = serde_json::from_slice(&output.stdout).expect("JSON");
    let sum = |key: &str| {
        files.iter().map(|file| file["contents"][key].as_u64().expect("a count")).sum::<u64>()
    };
    assert_eq!((sum("items"), sum("microslices")), (7, 37 + 5 + 64));
    fs::remove_dir_all(directory).expect("to remove it");
}

#[test]
fn build__a_builder_of_three_times_the_weight_builds_three_times_as_many() {
    let directory = directory("ts-weights");
    let line = "--inputs 1 --builders 2 --weights 3,1 --timeslices 8 --contribution 4KiB --ring 64KiB --sink ts_%b.tsa";
    let Some(output) = build(&directory, "3", line) else { return };
    assert!(output.status.success(), "{}", text(&output));
    let output = clearway(&directory, "msa check ts_0.tsa ts_1.tsa --json");
    let files: Vec<serde_json::Value> = serde_json::from_slice(&output.stdout).expect("JSON");
    assert_eq!(
        [0, 1].map(|file: usize| files[file]["contents"]["items"].as_u64()),
        [Some(6), Some(2)]
    );
    fs::remove_dir_all(directory).expect("to remove it");
}

#[test]
fn compare__with_unequal_weights_unscheduled_writes_end_as_well() {
    let directory = directory("ts-weighed");
    let line = "--inputs 2 --builders 3 --weights 50,1,1 --start-skew 0ms --warm-up 50ms --measured 100ms --json";
    let Some(run) = start(&directory, "compare", "5", line) else { return };
    let output = run.wait_with_output().expect("an end");
    assert!(output.status.success(), "{}", text(&output));
    fs::remove_dir_all(directory).expect("to remove it");
}

#[test]
fn build__of_a_damaged_archive_ends_as_a_check_of_it_does() {
    let directory = directory("ts-damaged");
    assert!(clearway(&directory, "msa make run_0.msa --items 9 --mean 3KiB").status.success());
    let mut bytes = fs::read(directory.join("run_0.msa")).expect("an archive");
    let middle = bytes.len() / 2;
    bytes[middle] ^= 0x10;
    fs::write(directory.join("run_0.msa"), bytes).expect("a file");
    let line = "--inputs 1 --builders 1 --source run_%i.msa --timeslice-size 3 --ring 256KiB";
    let Some(output) = build(&directory, "2", line) else { return };
    assert_eq!(
        output.status.code(),
        clearway(&directory, "msa check run_0.msa").status.code(),
        "{}",
        text(&output)
    );
    assert!(text(&output).contains("FAULT"), "{}", text(&output));
    fs::remove_dir_all(directory).expect("to remove it");
}

#[test]
fn consume__a_consumer_that_dies_loses_nothing() {
    let directory = directory("ts-consumer");
    let line = "--inputs 1 --builders 1 --timeslices 300 --contribution 64KiB --ring 256KiB --sink consumer:here_%b";
    let Some(run) = start(&directory, "build", "2", line) else { return };
    let socket = directory.join("here_0");
    // The first comes in, hears of a timeslice and goes without an answer. A name is there before
    // anybody listens behind it.
    let mut first = None;
    wait_until("somebody listens", || {
        first = std::os::unix::net::UnixStream::connect(&socket).ok();
        first.is_some()
    });
    let mut first = first.expect("connected");
    let mut said = [0; 6];
    std::io::Read::read_exact(&mut first, &mut said).expect("a timeslice");
    assert_eq!(&said, b"/proc/");
    drop(first);
    let output = clearway(&directory, "timeslice consume here_0");
    assert_eq!(text(&output), "300 timeslices taken, 300 microslices looked at, 0 faults\n");
    let output = run.wait_with_output().expect("an end");
    assert!(output.status.success(), "{}", text(&output));
    assert!(!socket.exists(), "its name is left behind");
    fs::remove_dir_all(directory).expect("to remove it");
}

#[test]
fn build__mistakes_have_a_sentence() {
    let directory = directory("ts-mistakes");
    fs::write(directory.join("odd_0.msa"), b"no archive at all, and long enough to be seen as one")
        .expect("a file");
    let small = "--inputs 1 --builders 1 --ring 64KiB";
    for (words, sentence) in [
        (format!("{small} --source gone.msa"), "gone.msa: cannot be read"),
        (format!("{small} --source odd_%i.msa"), "odd_0.msa: "),
        (
            format!(
                "{small} --source pattern --timeslices 4 --contribution 16KiB --sink /nowhere/ts.tsa"
            ),
            "/nowhere/ts.tsa cannot be made",
        ),
        (
            "--inputs 2 --builders 1".to_owned(),
            "2 inputs and 1 builders are not the 2 ranks of this job",
        ),
        (format!("{small} --timeslices 4 --sink /dev/full"), "/dev/full is there already"),
    ] {
        let Some(output) = build(&directory, "2", &words) else { return };
        assert!(!output.status.success(), "{words}");
        assert!(text(&output).contains(sentence), "{words}: {}", text(&output));
    }
    fs::remove_dir_all(directory).expect("to remove it");
}

/// Files of sinks in `directory`, by name.
fn sinks(directory: &Path) -> Vec<String> {
    let names = fs::read_dir(directory)
        .expect("a directory")
        .map(|entry| entry.expect("a file").file_name());
    let mut names: Vec<_> = names.map(|name| name.to_string_lossy().into_owned()).collect();
    names.retain(|name| name.starts_with("ts_"));
    names.sort();
    names
}

#[test]
fn build__that_fails_leaves_nothing_in_the_way_of_its_repeat() {
    let directory = directory("ts-repeat");
    let make = |input: u32| {
        let line = format!("msa make run_{input}.msa --channel {input} --items 400 --mean 3KiB");
        assert!(clearway(&directory, &line).status.success());
    };
    make(0);
    let line = "--inputs 2 --builders 2 --source run_%i.msa --sink ts_%b.tsa --timeslice-size 8 --ring 256KiB";
    // A source that is not there, and one that breaks off when much was built.
    let Some(output) = build(&directory, "4", line) else { return };
    assert!(
        !output.status.success() && text(&output).contains("run_1.msa: cannot be read"),
        "{}",
        text(&output)
    );
    assert!(sinks(&directory).is_empty(), "{:?}", sinks(&directory));
    make(1);
    let bytes = fs::read(directory.join("run_1.msa")).expect("an archive");
    let mut broken = bytes.clone();
    let last =
        bytes.windows(DESCRIPTOR.len()).rposition(|seen| seen == DESCRIPTOR).expect("a descriptor");
    broken[last + 32] ^= 1;
    fs::write(directory.join("run_1.msa"), broken).expect("a file");
    let Some(output) = build(&directory, "4", line) else { return };
    assert!(
        !output.status.success() && text(&output).contains("by its descriptor"),
        "{}",
        text(&output)
    );
    assert!(sinks(&directory).is_empty(), "{:?}", sinks(&directory));
    fs::write(directory.join("run_1.msa"), bytes).expect("a file");
    let Some(output) = build(&directory, "4", line) else { return };
    assert!(output.status.success(), "{}", text(&output));
    assert_eq!(sinks(&directory), ["ts_0.tsa", "ts_1.tsa"]);
    fs::remove_dir_all(directory).expect("to remove it");
}

#[test]
fn build__that_is_interrupted_or_killed_leaves_nothing_in_the_way_of_its_repeat() {
    let directory = directory("ts-interrupted");
    let line = "timeslice build --on lab --wire udp --inputs 2 --builders 2 --sink ts_%b.tsa --rate 200Mb/s --timeslices";
    // Far more than are built before the test looks, also on a busy machine.
    let (long, line) = (format!("{line} 40000"), format!("{line} 400"));
    for signal in [Signal::SIGINT, Signal::SIGKILL] {
        let mut command = Command::new(PROGRAM);
        command
            .args(long.split_whitespace())
            .current_dir(&directory)
            .stdout(Stdio::piped())
            .stderr(Stdio::piped());
        let mut run = command.spawn().expect("the program");
        let written = directory.join("ts_0.tsa.unfinished");
        wait_until("it builds", || {
            has_bytes(&written, 50_000) || run.try_wait().expect("a state").is_some()
        });
        if run.try_wait().expect("a state").is_none() {
            nix::sys::signal::kill(nix::unistd::Pid::from_raw(run.id() as i32), signal)
                .expect("a signal");
        }
        let output = run.wait_with_output().expect("an end");
        let said = text(&output);
        if output.status.code() == Some(5) {
            eprintln!("skipped: {said}");
            return;
        }
        if signal == Signal::SIGINT {
            assert_eq!(output.status.code(), Some(130), "{said}");
            assert!(said.contains("interrupted") && !said.contains("left behind"), "{said}");
            assert!(sinks(&directory).is_empty(), "{:?}", sinks(&directory));
        }
        assert!(
            sinks(&directory).iter().all(|name| name.contains(".unfinished")),
            "{:?}",
            sinks(&directory)
        );
    }
    let output = clearway(&directory, &line);
    assert!(output.status.success(), "{}", text(&output));
    assert!(clearway(&directory, "msa check ts_0.tsa ts_1.tsa").status.success());
    fs::remove_dir_all(directory).expect("to remove it");
}

/// What a run with a death reported, after a look at what every such run must hold to.
fn survived(output: &Output, rank: u64, timeslices: u64) -> serde_json::Value {
    assert!(output.status.success(), "{}", text(output));
    let reported: serde_json::Value = serde_json::from_slice(&output.stdout).expect("JSON");
    assert_eq!(
        [&reported["timeslices"], &reported["lost"], &reported["duplicated"]],
        [timeslices, 0, 0],
        "{reported}"
    );
    let out = reported["out"].as_array().expect("a list");
    assert_eq!((out.len(), &out[0]["rank"]), (1, &rank.into()), "{reported}");
    assert_eq!(out[0]["how"], "was killed by signal 9", "{reported}");
    assert!(out[0]["detection_ms"].as_f64() <= out[0]["redistribution_ms"].as_f64(), "{reported}");
    reported
}

#[test]
fn build__a_builder_that_is_killed_is_replaced_and_nothing_is_lost() {
    let directory = directory("ts-killed-builder");
    let line = "--inputs 2 --builders 3 --timeslices 6000 --kill 3@20ms --sink ts_%b.tsa --contribution 16KiB --ring 256KiB";
    let Some(output) = build(&directory, "5", &format!("{line} --json")) else { return };
    let reported = survived(&output, 3, 6000);
    assert_eq!(reported["incomplete"], 0);
    // The dead builder's archive may hold more than what counts, and a cut item; nobody has given
    // it its name.
    let items = |builder: u32| {
        let end = if builder == 1 { ".unfinished" } else { "" };
        let output = clearway(&directory, &format!("msa info ts_{builder}.tsa{end} --json"));
        let files: serde_json::Value = serde_json::from_slice(&output.stdout).expect("JSON");
        files[0]["contents"]["items"].as_u64().expect("a count")
    };
    let settled = reported["out"][0]["settled"].as_u64().expect("a count");
    assert_eq!(reported["out"][0]["archive"], "ts_1.tsa.unfinished");
    assert_eq!(items(0) + settled + items(2), 6000, "{reported}");
    assert!(items(1) >= settled, "{reported}");
    fs::remove_dir_all(directory).expect("to remove it");
}

#[test]
fn build__an_input_that_is_killed_is_missed_in_what_it_had_not_sent() {
    let directory = directory("ts-killed-input");
    for policy in ["best-effort", "dfs"] {
        let line = format!(
            "--inputs 3 --builders 2 --timeslices 6000 --kill 1@20ms --policy {policy} --ring 256KiB"
        );
        let Some(output) = build(&directory, "5", &format!("{line} --contribution 16KiB --json"))
        else {
            return;
        };
        let reported = survived(&output, 1, 6000);
        assert!(
            reported["incomplete"].as_u64().is_some_and(|count| (1..=6000).contains(&count)),
            "{reported}"
        );
        assert_eq!(reported["faults"], 0);
    }
    fs::remove_dir_all(directory).expect("to remove it");
}

#[test]
fn build__a_builder_that_retires_and_joins_again_keeps_one_archive_in_which_everything_counts() {
    let directory = directory("ts-retired-builder");
    let line = "--inputs 2 --builders 3 --timeslices 30000 --retire 3@20ms,4@40ms --join 3@60ms --contribution 4KiB";
    let words = format!("{line} --sink ts_%b.tsa --ring 256KiB --heartbeat 200ms --json");
    let Some(output) = build(&directory, "5", &words) else { return };
    assert!(output.status.success(), "{}", text(&output));
    let reported: serde_json::Value = serde_json::from_slice(&output.stdout).expect("JSON");
    assert_eq!(
        [&reported["timeslices"], &reported["lost"], &reported["duplicated"]],
        [30_000, 0, 0],
        "{reported}"
    );
    assert_eq!((&reported["incomplete"], &reported["faults"]), (&0.into(), &0.into()));
    let out = reported["out"].as_array().expect("a list");
    let dead_ranks = out
        .iter()
        .map(|one| (one["rank"].as_u64(), one["how"].as_str(), one["back_seconds"].is_number()));
    let wanted = [(Some(3), Some("retired"), true), (Some(4), Some("retired"), false)];
    assert_eq!(dead_ranks.collect::<Vec<_>>(), wanted, "{reported}");
    let output = clearway(&directory, "msa check ts_0.tsa ts_1.tsa ts_2.tsa --json");
    let files: Vec<serde_json::Value> = serde_json::from_slice(&output.stdout).expect("JSON");
    let items = files.iter().map(|file| file["contents"]["items"].as_u64().expect("a count"));
    assert_eq!(items.sum::<u64>(), 30_000);
    fs::remove_dir_all(directory).expect("to remove it");
}

#[test]
fn build__an_input_that_retires_is_not_missed_and_joins_where_the_others_are() {
    let directory = directory("ts-retired-input");
    for item in 0..3 {
        let line = format!("msa make run_{item}.msa --channel {item} --items 60000 --mean 500B");
        assert!(clearway(&directory, &line).status.success());
    }
    let line = "--inputs 3 --builders 2 --source run_%i.msa --timeslice-size 2 --overlap 1 --retire 1@20ms --join 1@60ms";
    for policy in ["token", "best-effort"] {
        let words = format!("{line} --policy {policy} --ring 128KiB --heartbeat 200ms --json");
        let Some(output) = build(&directory, "5", &words) else { return };
        assert!(output.status.success(), "{policy}: {}", text(&output));
        let reported: serde_json::Value = serde_json::from_slice(&output.stdout).expect("JSON");
        assert_eq!(
            [&reported["timeslices"], &reported["lost"], &reported["duplicated"]],
            [30_000, 0, 0],
            "{policy}: {reported}"
        );
        assert_eq!(
            (&reported["faults"], &reported["out"][0]["how"]),
            (&0.into(), &"retired".into()),
            "{policy}: {reported}"
        );
        assert!(reported["out"][0]["back_seconds"].is_number(), "{policy}: {reported}");
        // What the others gave is all there, and of it what it gave while it took part.
        let microslices = reported["microslices"].as_u64().expect("a count");
        assert!((120_000..180_000).contains(&microslices), "{policy}: {reported}");
    }
    fs::remove_dir_all(directory).expect("to remove it");
}

#[test]
fn build__without_a_builder_or_too_many_it_ends_with_a_sentence() {
    let directory = directory("ts-killed-all");
    for (line, sentence) in [
        (
            "--inputs 1 --builders 1 --kill 1@20ms",
            "was killed by signal 9; no builder is left, so the run cannot go on",
        ),
        (
            "--inputs 1 --builders 1 --kill 0@20ms",
            "was killed by signal 9; no input is left, so the run cannot go on",
        ),
        ("--inputs 3 --builders 3 --kill 0@0s,1@0s,3@0s,4@0s", "too few are left to go on"),
    ] {
        let ranks = if line.contains("--inputs 1") { "2" } else { "6" };
        let Some(output) =
            build(&directory, ranks, &format!("{line} --timeslices 60000 --ring 256KiB"))
        else {
            return;
        };
        assert!(!output.status.success(), "{line}");
        assert!(text(&output).contains(sentence), "{line}: {}", text(&output));
    }
    fs::remove_dir_all(directory).expect("to remove it");
}

#[test]
fn compare__every_schedule_in_a_lab_goes_on_without_ranks_that_die() {
    let directory = directory("ts-killed-lab");
    let line = "timeslice compare --on lab --inputs 3 --builders 3 --policy token,best-effort --kill 1@100ms,4@200ms --warm-up 200ms";
    let output = clearway(&directory, &format!("{line} --measured 2s --json"));
    let said = text(&output);
    if output.status.code() == Some(5) || said.contains("libfabric") && !output.status.success() {
        eprintln!("skipped: {said}");
        return;
    }
    assert!(output.status.success(), "{said}");
    let printed: serde_json::Value = serde_json::from_slice(&output.stdout).expect("JSON");
    let figures = printed["figures"].as_array().expect("figures");
    for (policy, name) in ["token", "best-effort"].into_iter().flat_map(|policy| {
        ["timeslices_lost", "timeslices_duplicated", "detection_ms"].map(|name| (policy, name))
    }) {
        let found = figures
            .iter()
            .find(|figure| figure["name"] == name && figure["labels"]["policy"] == policy);
        let value = found.and_then(|figure| figure["value"].as_f64());
        assert!(
            value.is_some_and(|value| name == "detection_ms" || value == 0.0),
            "{policy} {name}: {figures:?}"
        );
    }
    assert_eq!(said.matches("was killed by signal 9").count(), 4, "{said}");
    fs::remove_dir_all(directory).expect("to remove it");
}

/// The loader finds a file of the library's name first that is none.
#[test]
fn compare__in_a_lab_without_libfabric_goes_over_udp_and_says_so() {
    let directory = directory("ts-no-libfabric");
    fs::write(directory.join("libfabric.so.1"), b"").expect("a file");
    let run = |wire: &str| {
        let line = format!(
            "timeslice compare --on lab --inputs 2 --builders 2 --policy token --warm-up 100ms --measured 300ms{wire}"
        );
        let mut command = Command::new(PROGRAM);
        command
            .args(line.split_whitespace())
            .current_dir(&directory)
            .env("LD_LIBRARY_PATH", &directory);
        command.output().expect("the program")
    };
    let output = run("");
    let said = text(&output);
    if output.status.code() == Some(5) {
        eprintln!("skipped: {said}");
        return;
    }
    assert!(output.status.success(), "{said}");
    let is_reported = |line: &str| {
        line.starts_with("UDP, ")
            && line.contains("; not over libfabric: rank 0 on host h0 has none: ")
    };
    assert_eq!(said.lines().filter(|line| is_reported(line)).count(), 1, "{said}");
    let report = fs::read_to_string(directory.join("out/timeslice-compare/1/report.json"))
        .expect("a report");
    let report: serde_json::Value = serde_json::from_str(&report).expect("JSON");
    let facts = report["host"]["facts"].to_string();
    assert!(
        facts.contains("UDP, ") && facts.contains("not over libfabric: rank 0 on host h0 has none"),
        "{facts}"
    );
    let asked = run(" --wire ofi");
    assert!(
        !asked.status.success() && text(&asked).contains("--wire ofi: rank 0 on host h0 has none"),
        "{}",
        text(&asked)
    );
    fs::remove_dir_all(directory).expect("to remove it");
}

/// Returns how long it took until all ranks knew that one is out.
fn gone_after_ms(line: &str) -> u64 {
    let words = line.split("by all after ").nth(1).and_then(|rest| rest.split(' ').next());
    words.and_then(|number| number.parse().ok()).unwrap_or(0)
}

#[test]
fn compare__every_schedule_in_a_lab_goes_on_with_ranks_that_retire_and_join_again() {
    let directory = directory("ts-retired-lab");
    let line = "timeslice compare --on lab --inputs 3 --builders 3 --warm-up 200ms --measured 3s";
    for (wire, policies) in [("udp", "token,dfs,best-effort"), ("ofi", "token")] {
        let count = policies.split(',').count();
        let goings = "--retire 1@100ms,4@200ms --join 1@1200ms,4@1500ms --heartbeat 200ms";
        let output = clearway(
            &directory,
            &format!("{line} --policy {policies} {goings} --wire {wire} --json"),
        );
        let said = text(&output);
        if output.status.code() == Some(5) || said.contains("libfabric") && !output.status.success()
        {
            eprintln!("skipped: {wire}: {said}");
            continue;
        }
        assert!(output.status.success(), "{wire}: {said}");
        let printed: serde_json::Value = serde_json::from_slice(&output.stdout).expect("JSON");
        let figures = printed["figures"].as_array().expect("figures");
        for name in ["timeslices_lost", "timeslices_duplicated"] {
            let found = figures.iter().filter(|figure| figure["name"] == name);
            let values: Vec<_> = found.map(|figure| figure["value"].as_f64()).collect();
            assert_eq!(values, vec![Some(0.0); count], "{wire} {name}");
        }
        let gone: Vec<&str> =
            said.lines().filter(|line| line.contains(" retired under ")).collect();
        // On a busy machine the run can be over before a rank has done what was dealt to it.
        let is_back = |line: &&str| line.contains("; back after") || gone_after_ms(line) > 2_900;
        assert!(gone.len() == 2 * count && gone.iter().all(is_back), "{said}");
    }
    fs::remove_dir_all(directory).expect("to remove it");
}

#[test]
fn watch__shows_a_run_in_a_lab_and_ends_with_it() {
    let directory = directory("ts-watch");
    let job = format!("watched-{}", std::process::id());
    let mut command = Command::new(PROGRAM);
    let line = format!(
        "timeslice compare --on lab --wire udp --inputs 2 --builders 2 --policy token --warm-up 500ms --measured 2s --job {job} --json"
    );
    command
        .args(line.split_whitespace())
        .current_dir(&directory)
        .stdout(Stdio::piped())
        .stderr(Stdio::piped());
    let mut run = command.spawn().expect("the program");
    let mut watched = None;
    wait_until("the run is there", || {
        let output = clearway(&directory, &format!("timeslice watch {job}"));
        let is_over = run.try_wait().expect("a state").is_some();
        watched.insert(output).status.success() || is_over
    });
    let watched = watched.expect("an output");
    let output = run.wait_with_output().expect("an end");
    let said = text(&output);
    if output.status.code() == Some(5) {
        eprintln!("skipped: {said}");
        return;
    }
    assert!(output.status.success(), "{said}");
    let page = text(&watched);
    assert!(page.contains("rank 0 (h0): input") && page.contains("builder, rings"), "{page}");
    let printed: serde_json::Value = serde_json::from_slice(&output.stdout).expect("JSON");
    let figures = printed["figures"].as_array().expect("figures");
    for policy in ["raw", "token"] {
        let carried = figures.iter().any(|figure| {
            figure["name"] == "timeslice_input_rate"
                && figure["labels"]["policy"] == policy
                && figure["value"].as_f64().is_some_and(|value| value > 0.0)
        });
        assert!(carried, "{policy}: {figures:?}");
    }
    fs::remove_dir_all(directory).expect("to remove it");
}

#[test]
fn metrics__show_a_run_in_a_lab_while_it_lasts() {
    let directory = directory("ts-metrics");
    let mut command = Command::new(PROGRAM);
    let line = "timeslice compare --on lab --wire udp --inputs 2 --builders 2 --policy token --warm-up 200ms --measured 2s --metrics 127.0.0.1:0";
    command.args(line.split_whitespace()).current_dir(&directory);
    let mut run =
        command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().expect("the program");
    let mut said = BufReader::new(run.stderr.take().expect("a pipe")).lines().map_while(Result::ok);
    let mut before = Vec::new();
    let address = said.find_map(|line| {
        before.push(line);
        before.last().and_then(|line| address(line))
    });
    let Some(address) = address else {
        let status = run.wait().expect("an end");
        assert_eq!(status.code(), Some(5), "{before:?}");
        eprintln!("skipped: {before:?}");
        return;
    };
    // The rest is read, so that nothing waits for it.
    std::thread::spawn(move || said.count());
    let built = "timeslice_built_total{policy=\"token\"}";
    let landed = "timeslice_landed_bytes_total{policy=\"token\"}";
    let (mut shown, mut last) = (Vec::new(), None);
    while let Some(scraped) = Scraped::from_address(&address) {
        if scraped.has(built) {
            assert_eq!(scraped.get("timeslice_ranks{state=\"alive\"}"), 4.0);
            assert_eq!(scraped.get("timeslice_rank_losses_total{policy=\"token\"}"), 0.0);
            let fill = scraped.get("timeslice_ring_fill_ratio");
            assert!((0.0..=1.0).contains(&fill), "{fill}");
            shown.push((scraped.get(built), scraped.get(landed)));
            last = Some(scraped);
        }
    }
    // The parser takes longer than a run on a busy machine.
    let last = last.expect("it was seen under way");
    last.is_accepted();
    last.is_documented("timeslice_");
    assert!(run.wait().expect("an end").success());
    let (last_built, last_landed) = *shown.last().expect("it was seen under way");
    assert!(shown.is_sorted() && last_built > 0.0 && last_landed > 0.0, "{shown:?}");
    fs::remove_dir_all(directory).expect("to remove it");
}

#[test]
fn metrics__are_refused_on_a_simulated_fabric() {
    let output = clearway(Path::new("."), "timeslice compare --on sim --metrics 27183");
    let said = text(&output);
    assert!(!output.status.success() && said.contains("--metrics is for --on lab"), "{said}");
}
