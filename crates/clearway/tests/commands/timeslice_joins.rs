//! Ranks of a job that are killed in the middle of a run, and other processes that take their
//! places.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;

use crate::processes;
use crate::timeslice_ranks::{directory, text};
use crate::waiting::{comes, wait_until};

const PROGRAM: &str = env!("CARGO_BIN_EXE_clearway");
const LAUNCHER: &str = "mpiexec.hydra";
/// By this variable tests find the processes of their jobs.
const MARK: &str = "CLEARWAY_JOINED_JOB";

/// A job that builds, with its credential in its own directory.
struct TestJob {
    directory: PathBuf,
    name: String,
    run: Child,
}

impl TestJob {
    /// Starts two inputs and three builders with `words`, each in what `place` makes of the
    /// program; `None` where there is no launcher.
    fn start(name: &str, place: &str, words: &str) -> Option<Self> {
        let directory = directory(name);
        let name = format!("{name}-{}", std::process::id());
        let line = format!(
            "{place} {PROGRAM} timeslice build --on cluster --inputs 2 --builders 3 --contribution 4KiB --ring 256KiB --sink ts_%b.tsa --json --job {name} {words}"
        );
        let mut launcher = Command::new(LAUNCHER);
        launcher
            .args(["-n", "5", "sh", "-c", &format!("exec {line}")])
            .current_dir(&directory)
            .env("XDG_RUNTIME_DIR", &directory)
            .env(MARK, &name)
            .stdout(Stdio::piped())
            .stderr(fs::File::create(directory.join("said")).expect("a file"));
        let run = match launcher.spawn() {
            Ok(run) => run,
            Err(error) => {
                eprintln!("skipped: {LAUNCHER} cannot be started: {error}");
                return None;
            }
        };
        let mut job = Self { directory, name, run };
        job.wait_until("it builds", |job| {
            let written = fs::metadata(job.directory.join("ts_2.tsa.unfinished"));
            written.is_ok_and(|written| written.len() > 100_000)
        });
        Some(job)
    }

    /// What is said while it runs.
    fn said(&self) -> String {
        fs::read_to_string(self.directory.join("said")).expect("a file")
    }

    fn wait_until(&mut self, what: &str, is_so: impl Fn(&Self) -> bool) {
        let came = comes(|| {
            let is_over = self.run.try_wait().expect("a state").is_some();
            let is_met = is_so(self);
            assert!(is_met || !is_over, "{what}: {}", self.said());
            is_met
        });
        assert!(came, "not so: {what}: {}", self.said());
    }

    /// Kills the process that is `rank`.
    fn kill(&self, rank: u32) {
        let marks = [format!("PMI_RANK={rank}"), format!("{MARK}={}", self.name)];
        let is_of_job = |pid: Pid| {
            let environment = fs::read(format!("/proc/{pid}/environ")).unwrap_or_default();
            let mut of_process = environment.split(|byte| *byte == 0);
            marks.iter().all(|mark| of_process.clone().any(|entry| entry == mark.as_bytes()))
                && of_process.next().is_some()
        };
        let found: Vec<_> = processes::all()
            .filter(|found| found.line.trim_end().ends_with("rank --with-parent"))
            .filter(|found| is_of_job(found.pid))
            .collect();
        assert_eq!(found.len(), 1, "{found:?}");
        kill(found[0].pid, Signal::SIGKILL).expect("it is there");
    }

    /// The command that joins with `words`, run in what `place` makes of the program, with the
    /// credential below `runtime`.
    fn command(&self, place: &str, words: &str, runtime: &Path) -> Command {
        let line = format!("exec {place} {PROGRAM} timeslice join {words}");
        let mut command = Command::new("sh");
        command.args(["-c", &line]).current_dir(&self.directory).env("XDG_RUNTIME_DIR", runtime);
        command.stdout(Stdio::piped()).stderr(Stdio::piped());
        command
    }

    fn join(&self, words: &str) -> Output {
        self.command("", words, &self.directory).output().expect("the program")
    }

    /// Joins as `rank` in `place`, again while its death is not known.
    fn replace(&self, place: &str, rank: u32) -> Child {
        let words = format!("{} --rank {rank}", self.name);
        let mut here = None;
        wait_until("the death is known", || {
            let mut joins =
                self.command(place, &words, &self.directory).spawn().expect("a process");
            let mut said = joins.stderr.take().expect("a pipe");
            let (mut first, mut byte) = (Vec::new(), [0]);
            while std::io::Read::read(&mut said, &mut byte).expect("heard") > 0 && byte != *b"\n" {
                first.push(byte[0]);
            }
            let first = String::from_utf8_lossy(&first).into_owned();
            if first.contains(&format!("rank {rank} of run `{}` is here", self.name)) {
                joins.stderr = Some(said);
                here = Some(joins);
            } else {
                assert!(!joins.wait().expect("an end").success());
                assert!(first.contains("is alive"), "{first}");
            }
            here.is_some()
        });
        here.expect("started")
    }

    /// Waits for the end, at which each of `timeslices` was built once, and `ranks` were replaced.
    fn finish(self, timeslices: u64, ranks: &[u32]) {
        let Self { directory, run, .. } = self;
        let output = run.wait_with_output().expect("an end");
        let said = fs::read_to_string(directory.join("said")).expect("a file");
        assert!(output.status.success(), "{said}{}", text(&output));
        let reported: serde_json::Value = serde_json::from_slice(&output.stdout).expect("JSON");
        assert_eq!(
            [
                &reported["timeslices"],
                &reported["lost"],
                &reported["duplicated"],
                &reported["faults"]
            ],
            [timeslices, 0, 0, 0],
            "{reported}"
        );
        let out = reported["out"].as_array().expect("a list");
        let back: Vec<u64> = out
            .iter()
            .filter(|death| death["back_seconds"].is_number())
            .filter_map(|death| death["rank"].as_u64())
            .collect();
        assert_eq!(
            back,
            ranks.iter().map(|rank| u64::from(*rank)).collect::<Vec<_>>(),
            "{reported}"
        );
        // What counts of processes of builders that are gone, or were silent for too long on a busy
        // machine; and what all the others have.
        let settled: u64 = out.iter().filter_map(|death| death["settled"].as_u64()).sum();
        let is_gone = |rank: u64| {
            out.iter().any(|death| death["rank"] == rank && !death["back_seconds"].is_number())
        };
        let there = (0..3).filter(|place| !is_gone(2 + place));
        let whole: Vec<u64> =
            there.map(|place| items(&directory, &format!("ts_{place}.tsa"))).collect();
        assert_eq!(whole.iter().sum::<u64>() + settled, timeslices, "{whole:?} {reported}");
        fs::remove_dir_all(directory).expect("to remove it");
    }
}

/// Returns how many items the archive at `path` has.
fn items(directory: &Path, path: &str) -> u64 {
    let output = Command::new(PROGRAM)
        .args(["msa", "info", path, "--json"])
        .current_dir(directory)
        .output()
        .expect("the program");
    let files: serde_json::Value = serde_json::from_slice(&output.stdout).expect("JSON");
    files[0]["contents"]["items"].as_u64().expect("a count")
}

#[test]
fn join__a_killed_rank_of_a_job_is_replaced_and_whoever_gets_no_place_learns_why() {
    let Some(job) = TestJob::start("ts-joined", "", "--wire udp --timeslices 12000") else {
        return;
    };
    let name = &job.name;
    for (words, status, sentence) in [
        (format!("{name} --rank 1"), 1, "rank 1 on host "),
        (format!("{name} --rank 5"), 2, "there is no rank 5 in this run, whose ranks are 0 to 4"),
        (name.clone(), 1, "no rank of this run has died"),
        (format!("{name}x"), 1, "of a job is coordinated on this host"),
        ("a/b".to_owned(), 1, "is no name of a run"),
    ] {
        let output = job.join(&words);
        let said = text(&output);
        assert_eq!(output.status.code(), Some(status), "{words}: {said}");
        assert!(said.contains(sentence) && said.lines().count() == 1, "{words}: {said}");
    }
    // Credentials of another run, and of another version.
    let kept = job.directory.join("clearway").join(format!("credential-{name}"));
    let kept = fs::read(kept).expect("a credential");
    let kept: serde_json::Value = serde_json::from_slice(&kept).expect("JSON");
    for (field, sentence) in [("key", "has another key than"), ("version", "runs version 0123")] {
        let other = job.directory.join(field);
        fs::create_dir_all(other.join("clearway")).expect("a directory");
        let mut changed = kept.clone();
        changed[field] = "0123456789abcdef0123456789abcdef".into();
        let path = other.join("clearway").join(format!("credential-{name}"));
        fs::write(path, changed.to_string()).expect("a file");
        let output = job.command("", name, &other).output().expect("the program");
        let said = text(&output);
        assert_eq!(output.status.code(), Some(1), "{said}");
        assert!(said.contains(sentence) && said.lines().count() == 1, "{said}");
    }
    job.kill(4);
    let joins = job.replace("", 4);
    let output = joins.wait_with_output().expect("an end");
    assert!(output.status.success(), "{}", text(&output));
    let directory = job.directory.clone();
    job.finish(12_000, &[4]);
    assert!(!directory.exists());
}

#[test]
fn join__a_builder_that_cannot_write_its_archive_ends_with_a_sentence_and_the_run_goes_on() {
    let Some(job) = TestJob::start("ts-join-full", "", "--wire udp --timeslices 12000") else {
        return;
    };
    job.kill(4);
    // A file of this name is never overwritten.
    fs::write(job.directory.join("ts_2.tsa"), "another run's").expect("a file");
    let mut said = String::new();
    wait_until("the death is known", || {
        let output = job.join(&format!("{} --rank 4", job.name));
        said = text(&output);
        assert_eq!(output.status.code(), Some(1), "{said}");
        !said.contains("is alive")
    });
    let lines: Vec<_> = said.lines().collect();
    assert!(lines[0].contains("rank 4 of run `") && lines.len() == 2, "{said}");
    assert!(lines[1].contains("rank 4 cannot take part: ts_2.tsa"), "{said}");
    let directory = job.directory.clone();
    let output = job.run.wait_with_output().expect("an end");
    let heard = fs::read_to_string(directory.join("said")).expect("a file");
    assert!(output.status.success(), "{heard}{}", text(&output));
    assert!(heard.contains(", which joins: ts_2.tsa"), "{heard}");
    let reported: serde_json::Value = serde_json::from_slice(&output.stdout).expect("JSON");
    assert_eq!([&reported["timeslices"], &reported["lost"]], [12_000, 0], "{reported}");
    assert_eq!(reported["out"][0]["how"], "could not take part", "{reported}");
    fs::remove_dir_all(directory).expect("to remove it");
}

#[test]
fn join__a_rank_that_shared_memory_is_not_replaced_and_the_run_goes_on_without() {
    let Some(job) = TestJob::start("ts-joined-shm", "", "--timeslices 12000") else { return };
    job.kill(4);
    let mut output = job.join(&job.name);
    wait_until("the death is known", || {
        output = job.join(&job.name);
        !text(&output).contains("has died")
    });
    let said = text(&output);
    assert_eq!(output.status.code(), Some(1), "{said}");
    assert!(
        said.contains("start the run with --wire udp, and others can join it")
            && said.lines().count() == 1,
        "{said}"
    );
    let directory = job.directory.clone();
    let output = job.run.wait_with_output().expect("an end");
    assert!(output.status.success(), "{}", text(&output));
    fs::remove_dir_all(directory).expect("to remove it");
}

/// A lab that is there until it is dropped.
struct KeptLab(String);

impl KeptLab {
    fn up(hosts: u32) -> Option<Self> {
        let name = format!("joins{}", std::process::id());
        let line = format!("lab up --name {name} --hosts {hosts} --rate 200Mb/s");
        let output = Self::command(&line).output().expect("the program");
        if output.status.code() == Some(5) {
            eprintln!("skipped: {}", text(&output));
            return None;
        }
        assert!(output.status.success(), "{}", text(&output));
        Some(Self(name))
    }

    /// A command of labs. Jobs keep credentials where an ordinary user's labs are otherwise.
    fn command(line: &str) -> Command {
        let mut command = Command::new(PROGRAM);
        command.args(line.split(' ')).env_remove("XDG_RUNTIME_DIR");
        command
    }

    /// The words that run a program on `host`.
    fn on(&self, host: &str) -> String {
        let keeps = "env XDG_RUNTIME_DIR=$XDG_RUNTIME_DIR";
        format!("env -u XDG_RUNTIME_DIR {PROGRAM} lab exec --name {} {host} -- {keeps}", self.0)
    }
}

impl Drop for KeptLab {
    fn drop(&mut self) {
        let _ = Self::command(&format!("lab down --name {}", self.0)).output();
    }
}

#[test]
fn join__an_input_and_a_builder_come_back_on_other_hosts_with_other_keys() {
    let Some(lab) = KeptLab::up(7) else { return };
    let place = lab.on("h$PMI_RANK");
    let Some(job) = TestJob::start("ts-joined-hosts", &place, "--timeslices 12000") else { return };
    assert!(job.said().contains("UDP, sealed"), "{}", job.said());
    job.kill(1);
    let input = job.replace(&lab.on("h5"), 1);
    job.kill(4);
    let builder = job.replace(&lab.on("h6"), 4);
    for joins in [input, builder] {
        let output = joins.wait_with_output().expect("an end");
        assert!(output.status.success(), "{}", text(&output));
    }
    job.finish(12_000, &[1, 4]);
}
