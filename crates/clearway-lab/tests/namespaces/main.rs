//! Labs on the real kernel: run as root or as anyone who may make user namespaces, skipped with the
//! reason otherwise.
//!
//! # Model
//! A program of its own instead of the test harness, because a user namespace must be taken before
//! any thread starts. The keeper's tests run in a second process that takes no permission: there
//! `enter` and `attach` must find their own way in.

#![allow(non_snake_case)] // tests are named function__case

mod kept;
mod live;
mod traffic;

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::process::{Command, ExitCode};

use clearway_lab::permission;

/// A test and its name.
type Case = (&'static str, fn());

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let words: Vec<&str> = arguments.iter().map(String::as_str).collect();
    match words.as_slice() {
        ["--as-keeper", name, spec] => kept::as_keeper(name, spec),
        ["--as-echo"] => traffic::as_echo(),
        ["--as-entered", name, host] => kept::as_entered(name, host),
        ["--kept", filter @ ..] => run(&kept::CASES, filter),
        filter => {
            let filter: Vec<&str> =
                filter.iter().copied().filter(|word| !word.starts_with('-')).collect();
            all(&filter)
        }
    }
}

fn all(filter: &[&str]) -> ExitCode {
    let mut kept = Command::new(std::env::current_exe().expect("own path"));
    // Before this process changes its namespaces, so that these tests see the world as a command
    // line does.
    let mut kept = kept.arg("--kept").args(filter).spawn().expect("the keeper's tests start");
    let ended = kept.wait().expect("the keeper's tests end");
    match permission::acquire() {
        Ok(road) => {
            eprintln!("labs are made by the road {road:?}");
            let here = run(&live::CASES, filter);
            if ended.success() { here } else { ExitCode::FAILURE }
        }
        Err(reason) => {
            eprintln!("skipped: {} tests of labs: {reason}", live::CASES.len());
            ExitCode::SUCCESS
        }
    }
}

fn run(cases: &[Case], filter: &[&str]) -> ExitCode {
    let chosen = cases
        .iter()
        .filter(|(name, _)| filter.is_empty() || filter.iter().any(|word| name.contains(word)));
    let mut failed = 0;
    for (name, case) in chosen {
        let passed = catch_unwind(AssertUnwindSafe(case)).is_ok();
        failed += u32::from(!passed);
        eprintln!("test {name} ... {}", if passed { "ok" } else { "FAILED" });
    }
    if failed == 0 { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}
