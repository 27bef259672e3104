//! Ends of PEs that end the job, and what is said then.

use clearway_runtime::launch::LaunchError;
use clearway_shmem::address::Symmetric;
use clearway_shmem::constants::CMP_EQ;
use clearway_shmem::context::Context;
use clearway_shmem::team::Team;
use clearway_shmem::{collective, heap, job, rma, wait};

use super::local::{at, die};
use super::memory::{barrier, who};
use super::{random, run};

/// A program that ends its job, and the exit status with which.
struct Failure {
    name: &'static str,
    run: fn(),
    code: Option<i32>,
}

const FAILURES: &[Failure] = &[
    Failure { name: "killed_in_a_barrier", run: || dies(barrier), code: Some(137) },
    Failure { name: "killed_in_a_wait", run: || dies(waits_for_ever), code: Some(137) },
    Failure {
        name: "killed_while_others_compute",
        run: || dies(computes_for_ever),
        code: Some(137),
    },
    Failure { name: "exits_for_all", run: exits_for_all, code: Some(7) },
    Failure { name: "names_a_wrong_address", run: names_a_wrong_address, code: Some(70) },
    Failure {
        name: "calls_collectives_differently",
        run: calls_collectives_differently,
        code: Some(70),
    },
    Failure { name: "has_a_planted_fault", run: random::faulty, code: None },
];

fn dies(others: fn()) {
    barrier();
    if who().0 == 1 {
        die();
    }
    others();
}

fn waits_for_ever() {
    let base = heap_of_old();
    wait::until(at(base, 0), CMP_EQ, 1i64).expect("never");
}

/// Memory without a collective: the heap's beginning is there from the start.
fn heap_of_old() -> *mut u8 {
    let report = job::report();
    let start = report
        .lines()
        .find_map(|line| line.strip_prefix("heap: ")?.split_once("from 0x"))
        .expect("a line")
        .1;
    std::ptr::with_exposed_provenance_mut(usize::from_str_radix(start, 16).expect("a number"))
}

fn computes_for_ever() {
    loop {
        std::hint::spin_loop();
    }
}

fn exits_for_all() {
    barrier();
    match who() {
        (1, ..) => job::global_exit(7),
        (0, ..) => waits_for_ever(),
        _ => computes_for_ever(),
    }
}

fn names_a_wrong_address() {
    let base = heap::malloc(8).expect("began");
    barrier();
    if who().0 == 0
        && let Err(fault) =
            rma::p(Context::DEFAULT, Symmetric::new(base.wrapping_byte_sub(1 << 40)), 1i64, 1)
    {
        fault.end("shmem_long_p");
    }
    waits_for_ever();
}

/// Checked with `SHMEM_DEBUG` only.
fn calls_collectives_differently() {
    let base = heap::malloc(64).expect("began");
    let root = i32::from(who().0 == 1);
    if let Err(fault) = collective::broadcast(Team::WORLD, at(base, 0), at(base, 8), 8, root) {
        fault.end("shmem_long_broadcast");
    }
}

/// The PE's side of a failure.
pub(crate) fn find(name: &str) -> Option<fn()> {
    let failure = FAILURES.iter().find(|failure| failure.name == name)?;
    job::init(3).expect("begins");
    Some(failure.run)
}

/// Runs them all.
pub(crate) fn check() {
    for failure in FAILURES {
        let error = run(failure.name, 3, &[], &[]).expect_err("the job fails");
        eprintln!("{} with 3 PEs ... {error}", failure.name);
        assert!(!matches!(error, LaunchError::Stopped));
        if let Some(code) = failure.code {
            assert_eq!(error.exit_code(), code, "{}", failure.name);
        }
    }
}
