//! The child process: takes steps from its standard input, and sends their outcomes there.
//!
//! # Model
//! One thread does nothing but read frames, so it notices at once that the mount has ended. The
//! process then ends, even if its other threads wait for the store. Each of these does one step at
//! a time.
//!
//! # Invariants
//! I1. The child ends with the process that started it, or when it reads anything but steps.

use std::cell::Cell;
use std::io::{self, Write};
use std::os::fd::AsFd;
use std::os::unix::net::UnixStream;
use std::sync::mpsc::{Receiver, channel};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use clearway_proto::staging::StoreStep;
use rustix::fs::{FileType, fstat};
use rustix::process::{Signal, getppid, set_parent_process_death_signal};

use super::drain_pace::DrainPace;
use super::frame::{
    ChildPlaces, StepNews, TASK_MAX, news_frame, parse_rate, parse_task, read_frame,
};
use super::place::file_type;
use super::steps::StepRunner;

/// How often progress is worth a frame: often enough for any timeout in seconds.
const PROGRESS_EVERY: Duration = Duration::from_millis(50);

/// The exit status of a process that a panic ends.
const PANICKED: i32 = 101;

type Task = (u64, StoreStep);

/// Does steps that come over standard input, until it ends. The command that a mount starts calls
/// this and nothing else.
///
/// # Errors
/// Standard input is no socket of a mount.
pub fn serve() -> io::Result<()> {
    report_panics();
    let parent = getppid();
    // The kernel names a process by the file that it was started from, here `exe`.
    let _ = rustix::thread::set_name(c"clearway-store");
    // A child that is stopped does not see the end of its input.
    set_parent_process_death_signal(Some(Signal::KILL))?;
    if getppid() != parent {
        return Ok(());
    }
    let input = io::stdin().as_fd().try_clone_to_owned()?;
    if file_type(&fstat(&input)?) != FileType::Socket {
        return Err(io::Error::other("the standard input is no socket of a mount"));
    }
    let mut input = UnixStream::from(input);
    let output = Arc::new(Mutex::new(input.try_clone()?));
    let malformed = || io::Error::from(io::ErrorKind::InvalidData);
    let Some(first) = read_frame(&mut input, TASK_MAX)? else { return Ok(()) };
    let ChildPlaces { store, log, steps, owner, rate } =
        ChildPlaces::parse(&first).ok_or_else(malformed)?;
    let mut runner = StepRunner::new(&store, &log, owner);
    runner.pace = rate.map(DrainPace::new);
    let runner = Arc::new(runner);
    let (give, take) = channel();
    let take = Arc::new(Mutex::new(take));
    for _ in 0..steps {
        let (runner, take, output) = (Arc::clone(&runner), Arc::clone(&take), Arc::clone(&output));
        let thread = std::thread::Builder::new().name("staging-store".into());
        thread.spawn(move || work(&runner, &take, &output))?;
    }
    while let Some(frame) = read_frame(&mut input, TASK_MAX)? {
        if let (Some(rate), Some(pace)) = (parse_rate(&frame), &runner.pace) {
            pace.set_rate(rate);
            continue;
        }
        let task = parse_task(&frame).ok_or_else(malformed)?;
        give.send(task).map_err(io::Error::other)?;
    }
    Ok(())
}

/// Lets a panic of any thread end the process, after one line on standard error: the step of that
/// thread would never end.
pub(super) fn report_panics() {
    std::panic::set_hook(Box::new(|panic| {
        let what = panic.to_string().replace('\n', " ");
        // One write: the mount reads what is there.
        let _ = io::stderr().write_all(format!("it ends because of a bug: {what}\n").as_bytes());
        std::process::exit(PANICKED);
    }));
}

/// Does steps until the process ends.
fn work(runner: &StepRunner, take: &Mutex<Receiver<Task>>, output: &Mutex<UnixStream>) {
    loop {
        let task = take.lock().unwrap_or_else(PoisonError::into_inner).recv();
        let Ok((number, step)) = task else { return };
        let say = |news| {
            let mut output = output.lock().unwrap_or_else(PoisonError::into_inner);
            // Without a mount that listens the process ends anyway.
            let _ = output.write_all(&news_frame(number, news));
        };
        let said = Cell::new(Instant::now());
        let progress = || {
            if said.get().elapsed() >= PROGRESS_EVERY {
                said.set(Instant::now());
                say(StepNews::Progress);
            }
        };
        say(StepNews::End(runner.carry_out(&step, &progress)));
    }
}
