//! Joins a job from a program whose `main` is not Rust's, as a C program does that loads this
//! library: SIGPIPE has its default action, which ends the program, and the program has a handler
//! of `atexit`.
//!
//! `foreign [--at-once] [--hang]`, started as a rank like `meet`. It prints one line when it has
//! joined and looked for children, and one from its handler.

#![no_main]
#![allow(unsafe_code)]

use std::env;
use std::io::{self, Write};
use std::thread;
use std::time::Duration;

use clearway_runtime::launch::{self, JobEndAction, JoinOptions, LaunchError};
use rustix::io::Errno;
use rustix::process::{WaitOptions, wait};

/// How long it waits for the end of the job.
const HANG: Duration = Duration::from_secs(120);

/// Says `line` in one write, so that lines of ranks that share a pipe do not mix.
fn print_line(line: &str) {
    let _ = io::stdout().write_all(format!("{line}\n").as_bytes());
}

extern "C" fn handler() {
    print_line("the handler of atexit ran");
}

fn run() -> Result<(), LaunchError> {
    let has = |word: &str| env::args().any(|argument| argument == word);
    let ending = if has("--at-once") { JobEndAction::AtOnce } else { JobEndAction::Exit };
    let mut job = launch::join(&JoinOptions { ending, ..JoinOptions::default() })?;
    job.barrier()?;
    let children = match wait(WaitOptions::NOHANG) {
        Err(Errno::CHILD) => "no child".to_owned(),
        other => format!("{other:?}"),
    };
    let (rank, size, method, process) = (job.rank(), job.size(), job.method(), std::process::id());
    print_line(&format!("rank {rank} of {size} by {method}, process {process}: {children}"));
    if has("--hang") {
        thread::sleep(HANG);
    }
    job.finish()
}

/// Takes the place of Rust's own `main`, which would ignore SIGPIPE.
// SAFETY: no other symbol of the program has this name, and the C library calls it with the
// arguments of `main`, which it may leave alone.
#[unsafe(no_mangle)]
pub extern "C" fn main() -> i32 {
    // SAFETY: the handler takes nothing, does not unwind (a failed write is no panic), and lives as
    // long as the program.
    if unsafe { libc::atexit(handler) } != 0 {
        return 2;
    }
    match run() {
        Ok(()) => 0,
        Err(error) => {
            print_line(&error.to_string());
            1
        }
    }
}
