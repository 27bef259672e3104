//! Signals for programs that wait for space in a full log, and for the commands that mount it.

use std::fs;
use std::os::unix::process::ExitStatusExt;
use std::process::{Child, Command, ExitStatus, Stdio};

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;

use super::drained::status;
use super::job::JobPlace;
use super::{PROGRAM, StagingPlace, stage};
use crate::waiting::comes;

/// A drain that takes hours for what a program here writes.
const SLOW: [&str; 2] = ["--drain-rate", "1Mb/s"];
/// A program that writes more than a log takes.
const FILL: &str = "dd if=/dev/zero of=\"$1/big\" bs=1M count=400";

/// Starts a shell with this script in a mounted directory.
fn start(place: &StagingPlace, script: &str) -> Child {
    // A job in the background of a script inherits that SIGINT and SIGQUIT are ignored.
    let mut command = Command::new("env");
    command.args(["--default-signal", "sh", "-c", script, "sh"]).arg(place.path("mnt"));
    command.stdin(Stdio::null()).stderr(Stdio::piped()).spawn().expect("a shell")
}

fn send(process: u32, signal: Signal) {
    kill(Pid::from_raw(process as i32), signal).expect("a process");
}

/// Waits for the end of a process, which it may not have.
fn end(process: &mut Child) -> ExitStatus {
    assert!(comes(|| process.try_wait().expect("a child").is_some()), "it does not end");
    process.wait().expect("a child")
}

fn fill(place: &StagingPlace, script: &str) -> Child {
    let program = start(place, script);
    assert!(comes(|| status(place)["stalls"].as_u64() > Some(0)), "the log is full");
    program
}

#[test]
fn signal__a_program_that_waits_for_space_ends_and_the_mount_works_on() {
    let Some(mut place) = StagingPlace::new() else { return };
    if !place.mount(&SLOW) {
        return;
    }
    for signal in [Signal::SIGTERM, Signal::SIGKILL, Signal::SIGQUIT] {
        let mut program = fill(&place, &format!("exec {FILL}"));
        send(program.id(), signal);
        assert_eq!(end(&mut program).signal(), Some(signal as i32));
        // Removing frees space, and what was not written is not there.
        fs::remove_file(place.on_mount("big")).expect("removed");
        fs::write(place.on_mount("small"), [7; 100_000]).expect("written");
        place.umount();
        assert!(place.mount(&SLOW));
        assert_eq!(fs::read(place.on_mount("small")).expect("read"), [7; 100_000]);
    }
    place.umount();
}

#[test]
fn signal__a_program_that_handles_it_can_do_so_while_its_write_waits() {
    let Some(mut place) = StagingPlace::new() else { return };
    if !place.mount(&SLOW) {
        return;
    }
    // The shell itself writes.
    let script = "trap 'exit 7' TERM; exec >\"$1/big\"; \
        line=$(head -c 100000 /dev/zero | tr '\\0' a); while printf %s $line; do :; done; wait";
    let mut program = fill(&place, script);
    send(program.id(), Signal::SIGTERM);
    assert_eq!(end(&mut program).code(), Some(7));
    fs::remove_file(place.on_mount("big")).expect("removed");
    place.umount();
}

#[test]
fn mount__a_signal_ends_it_while_a_program_waits_for_space() {
    let Some(mut place) = StagingPlace::new() else { return };
    let places = format!("{}:{}", place.path("log").display(), place.path("store").display());
    let mut command = Command::new(PROGRAM);
    command.args(["mount", "--foreground", "--size", "128MiB", "--local", &places]).args(SLOW);
    let mut mount = command.arg(place.path("mnt")).spawn().expect("the program");
    let is_mounted = || stage(&["status"], &[&place.path("mnt")]).status.success();
    if !comes(|| is_mounted() || mount.try_wait().expect("a child").is_some()) || !is_mounted() {
        return eprintln!("skipped: nothing can be mounted");
    }
    place.process = Some(mount.id());
    let mut program = fill(&place, &format!("exec {FILL}"));
    send(mount.id(), Signal::SIGTERM);
    assert_eq!(end(&mut program).code(), Some(1));
    let mut said = String::new();
    std::io::Read::read_to_string(&mut program.stderr.take().expect("piped"), &mut said)
        .expect("text");
    assert!(said.contains("No space left on device"), "{said}");
    assert_eq!(end(&mut mount).code(), Some(130));
    place.process = None;
    assert_eq!(fs::read_dir(place.path("mnt")).expect("there").count(), 0, "unmounted");
    // What was acknowledged is there, and drains on.
    assert!(place.mount(&[]));
    let written = fs::metadata(place.on_mount("big")).expect("there").len();
    assert!(written > 50 << 20, "{written}");
    place.umount();
}

#[test]
fn job__a_signal_ends_it_while_its_program_waits_for_space() {
    let Some(place) = JobPlace::new() else { return };
    let script =
        format!("set -- \"$CLEARWAY_STAGE\"; echo 1 >$1/kept; sync $1/kept; echo $$; exec {FILL}");
    let flags = [&SLOW[..], &["--memory", "16MiB"]].concat();
    let (mut job, program) = place.start_with(&flags, &script);
    let mounted = place.temporary_directories().pop().expect("a mount");
    let is_full = || {
        let space = rustix::fs::statvfs(&mounted).expect("space");
        let free = space.f_bavail * space.f_bsize;
        let waits = fs::read_to_string(format!("/proc/{program}/wchan")).unwrap_or_default();
        free < 20 << 20 && waits == "request_wait_answer"
    };
    assert!(comes(is_full), "the log is full");
    send(job.id(), Signal::SIGTERM);
    assert_eq!(end(&mut job).code(), Some(128 + Signal::SIGTERM as i32));
    let mut said = String::new();
    std::io::Read::read_to_string(&mut job.stderr.take().expect("piped"), &mut said).expect("text");
    assert!(said.contains("the next server of the log continues the drain"), "{said}");
    assert!(said.contains("that were written to big; they are lost"), "{said}");
    place.expect_nothing_left();
    let output = place.run(&["--no-drain"], "cat \"$CLEARWAY_STAGE/kept\"");
    assert_eq!(output.stdout, b"1\n", "{}", super::error_of(&output));
}
