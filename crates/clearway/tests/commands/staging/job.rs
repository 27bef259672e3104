//! `clearway stage job` without a launcher: what the program sees, what is there afterwards, and that
//! nothing is left, whichever process dies.

use std::fs;
use std::io::{BufRead, BufReader, Read};
use std::path::PathBuf;
use std::process::{Child, Command, Output, Stdio};

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;

use super::{PROGRAM, StagingPlace, error_of};
use crate::processes::{self, FoundProcess};

/// A program that says which process it is, and waits.
const WAITING: &str = "echo $$; sleep 1000 & wait";

/// Directories of a job, in which its mount is, too.
pub(super) struct JobPlace(StagingPlace);

impl JobPlace {
    /// Makes them; `None`, and says why, where nothing can be mounted.
    pub(super) fn new() -> Option<Self> {
        if !nix::unistd::geteuid().is_root() {
            eprintln!("skipped: the mount of a job needs root, or fusermount3 on the machine");
            return None;
        }
        StagingPlace::new().map(Self)
    }

    fn command(&self, flags: &[&str], program: &[&str]) -> Command {
        let mut command = Command::new(PROGRAM);
        command.args(["stage", "job", "--size", "128MiB"]).args(flags);
        command.arg("--data").arg(self.0.path("log"));
        command.arg("--backing").arg(self.0.path("store"));
        command.arg("--").args(program).env("TMPDIR", self.0.path(""));
        command.env("ROOT", self.0.path("")).stdin(Stdio::null());
        command
    }

    pub(super) fn run(&self, flags: &[&str], script: &str) -> Output {
        self.command(flags, &["sh", "-c", script]).output().expect("the program")
    }

    /// Starts a job, and returns when its program has printed the number of its process.
    fn start(&self, script: &str) -> (Child, Pid) {
        self.start_with(&[], script)
    }

    pub(super) fn start_with(&self, flags: &[&str], script: &str) -> (Child, Pid) {
        let mut command = self.command(flags, &["sh", "-c", script]);
        let mut job =
            command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().expect("the program");
        let mut line = String::new();
        let output = job.stdout.as_mut().expect("piped");
        BufReader::new(output).read_line(&mut line).expect("a program that runs");
        (job, Pid::from_raw(line.trim_end().parse().expect("a number")))
    }

    /// Returns processes whose command line has `word` and a path of this place.
    fn processes(&self, word: &str) -> Vec<FoundProcess> {
        let root = self.0.path("").display().to_string();
        let is_one = |line: &str| line.contains(&root) && line.contains(word);
        processes::all().filter(|process| is_one(&process.line)).collect()
    }

    fn mount_process(&self) -> Pid {
        self.processes("job-mount").first().expect("a mount").pid
    }

    pub(super) fn temporary_directories(&self) -> Vec<PathBuf> {
        let all = fs::read_dir(self.0.path("")).expect("listed").flatten();
        let paths = all.map(|entry| entry.path());
        paths.filter(|path| path.display().to_string().contains("clearway-stage-")).collect()
    }

    pub(super) fn expect_nothing_left(&self) {
        processes::wait_until("nothing runs", || self.processes(""), |found| found.is_empty());
        let root = self.0.path("").display().to_string();
        let mounts = fs::read_to_string("/proc/self/mounts").expect("read");
        assert!(!mounts.contains(&root), "{mounts}");
        assert_eq!(self.temporary_directories(), Vec::<PathBuf>::new());
    }

    fn stored(&self, name: &str) -> String {
        fs::read_to_string(self.0.path("store").join(name)).expect("in the store")
    }
}

/// Waits for the end of a job: its status, and what it said on standard error.
fn end(mut job: Child) -> (Option<i32>, String) {
    let status = job.wait().expect("an end");
    let mut said = String::new();
    job.stderr.take().expect("piped").read_to_string(&mut said).expect("text");
    (status.code(), said)
}

#[test]
fn job__the_store_has_what_the_program_wrote_and_the_status_is_that_of_the_program() {
    let Some(place) = JobPlace::new() else { return };
    let script = "cd \"$CLEARWAY_STAGE\" && mkdir sub && head -c 3000000 /dev/urandom >sub/file && \
        sha256sum <sub/file >sum && pwd && env | grep -c SECRET; exit 3";
    let output = place.run(&[], script);
    assert_eq!(output.status.code(), Some(3), "{}", error_of(&output));
    assert_eq!(error_of(&output), "");
    let said = String::from_utf8_lossy(&output.stdout);
    assert!(said.contains("/clearway-stage-") && said.ends_with("\n0\n"), "{said}");
    let file = fs::File::open(place.0.path("store/sub/file")).expect("in the store");
    let sum = Command::new("sha256sum").stdin(file).output().expect("a program of the system");
    assert_eq!(place.stored("sum").as_bytes(), sum.stdout);
    place.expect_nothing_left();
    let output = place.run(
        &["--mount", &place.0.path("mnt").display().to_string()],
        "test -d \"$CLEARWAY_STAGE/sub\" && echo \"$CLEARWAY_STAGE\"",
    );
    assert!(output.status.success(), "{}", error_of(&output));
    let said = String::from_utf8_lossy(&output.stdout);
    assert_eq!(said.trim_end(), place.0.path("mnt").display().to_string());
    place.expect_nothing_left();
    assert!(place.0.path("mnt").is_dir(), "a directory of the user stays");
}

#[test]
fn job__a_signal_reaches_the_program_which_decides_how_it_ends() {
    let Some(place) = JobPlace::new() else { return };
    for (signal, status) in [(Signal::SIGUSR1, 7), (Signal::SIGTERM, 8), (Signal::SIGKILL, 137)] {
        let name = format!("{signal}");
        let script = format!(
            "trap 'echo {name} >\"$CLEARWAY_STAGE/{name}\"; exit {status}' USR1 TERM; {WAITING}"
        );
        let (job, program) = place.start(&script);
        let process = match signal {
            Signal::SIGKILL => program,
            _ => Pid::from_raw(job.id().cast_signed()),
        };
        kill(process, signal).expect("sent");
        let (code, said) = end(job);
        assert_eq!(code, Some(status), "{said}");
        place.expect_nothing_left();
        if signal == Signal::SIGUSR1 {
            assert_eq!(place.stored(&name), format!("{name}\n"));
        }
    }
}

#[test]
fn job__a_mount_that_dies_ends_the_job_in_one_sentence() {
    let Some(place) = JobPlace::new() else { return };
    let (job, _) = place.start(WAITING);
    kill(place.mount_process(), Signal::SIGKILL).expect("killed");
    let (code, said) = end(job);
    assert_eq!(code, Some(1), "{said}");
    assert_eq!(said.lines().count(), 1, "{said}");
    assert!(said.contains("the process of the mount") && said.contains(" ended"), "{said}");
    place.expect_nothing_left();
}

#[test]
fn job__a_command_that_is_killed_takes_program_and_mount_with_it() {
    let Some(place) = JobPlace::new() else { return };
    let script = format!("exec 3>\"$CLEARWAY_STAGE/open\"; {WAITING}");
    let (mut job, _) = place.start(&script);
    job.kill().expect("killed");
    job.wait().expect("an end");
    place.expect_nothing_left();
    let output = place.run(&[], "test -e \"$CLEARWAY_STAGE/open\"");
    assert!(output.status.success(), "{}", error_of(&output));
}

#[test]
fn job__what_the_store_does_not_have_is_left_to_the_next_job() {
    let Some(place) = JobPlace::new() else { return };
    let script = "mv \"$ROOT/store\" \"$ROOT/hidden\" && echo 1 >\"$CLEARWAY_STAGE/left\"";
    let output = place.run(&["--no-drain"], script);
    assert!(output.status.success(), "{}", error_of(&output));
    place.0.show_store();
    assert!(!place.0.path("store/left").exists());
    // A job that waits for a store that is away can be interrupted.
    let (mut job, _) = place.start("mv \"$ROOT/store\" \"$ROOT/hidden\"; echo $$");
    let mut said = BufReader::new(job.stderr.take().expect("piped")).lines();
    let notice = said.by_ref().map_while(Result::ok).find(|line| line.contains("waits"));
    assert!(notice.is_some(), "a wait that says what it waits for");
    kill(Pid::from_raw(job.id().cast_signed()), Signal::SIGTERM).expect("sent");
    // The server may say more about its store, before or after.
    let rest: Vec<String> = said.map_while(Result::ok).collect();
    assert_eq!(job.wait().expect("an end").code(), Some(130));
    let is_end = |line: &String| line.contains("the next server of the log continues");
    assert!(rest.iter().any(is_end), "{rest:?}");
    place.expect_nothing_left();
    place.0.show_store();
    let output = place.run(&[], "true");
    assert!(output.status.success(), "{}", error_of(&output));
    assert_eq!(place.stored("left"), "1\n");
}

#[test]
fn job__what_cannot_work_is_said_in_one_sentence() {
    let Some(place) = JobPlace::new() else { return };
    let refused = |output: Output, status: i32, words: &str| {
        let said = error_of(&output);
        assert_eq!(output.status.code(), Some(status), "{said}");
        assert!(said.contains(words) && said.trim_end().lines().count() == 1, "{said}");
        place.expect_nothing_left();
    };
    let missing = place.command(&[], &["./no-such-program"]).output().expect("the program");
    refused(missing, 127, "cannot start ./no-such-program");
    refused(place.run(&["--mount", "/no/such/directory"], "true"), 1, "/no/such/directory");
    place.0.hide_store();
    refused(place.run(&[], "true"), 1, "store");
}

#[test]
fn job__more_servers_than_nodes_are_refused() {
    let Some(place) = JobPlace::new() else { return };
    let output = place.run(&["--servers", "2"], "true");
    assert_eq!(output.status.code(), Some(2), "{}", error_of(&output));
    assert!(error_of(&output).contains("--servers 2 is more than the nodes of the job"));
    place.expect_nothing_left();
}
