//! Programs of several PEs: this test starts itself as the PEs of a job on this host.
//!
//! Without a launcher in its environment it starts each of [`PROGRAMS`] with several numbers of
//! PEs, as neighbours and over each wire; with one it is a PE, and its first argument names the program. `random --seeds=N` runs N
//! random programs instead of a few.

mod atomics;
mod collectives;
mod failures;
mod local;
mod memory;
mod newer;
mod random;
mod teams;

use std::env;
use std::ffi::{OsStr, OsString};
use std::ops::ControlFlow;
use std::process::Command;

use clearway_runtime::launch::{HereOptions, start_here};
use clearway_shmem::job;

/// A program, what it is called, and with how many PEs it runs.
struct Program {
    name: &'static str,
    run: fn(),
    pes: &'static [u32],
}

const fn program(name: &'static str, run: fn(), pes: &'static [u32]) -> Program {
    Program { name, run, pes }
}

const PROGRAMS: &[Program] = &[
    program("copies", memory::copies, &[1, 2, 3]),
    program("heap", memory::heap, &[1, 3]),
    program("statics", memory::statics, &[1, 2]),
    program("forks", memory::forks, &[2]),
    program("atomics", atomics::atomics, &[1, 2, 4]),
    program("waits", atomics::waits, &[1, 3]),
    program("locks", atomics::locks, &[1, 3]),
    program("threads", atomics::threads, &[2]),
    program("collectives", collectives::all, &[1, 2, 3, 4, 5, 10]),
    program("crossing", collectives::crossing, &[4]),
    program("active_sets", collectives::active_sets, &[1, 4]),
    program("teams", teams::teams, &[1, 2, 5]),
    program("newer", newer::newer, &[1, 2, 4]),
    program("random", random::short, &[1, 2, 3, 4]),
];

/// Variables with which some PEs of a host are far for others.
const PAIRS_OVER_UDP: &[&str] = &["SHMEM_NEAR=2", "SHMEM_WIRE=udp"];
const ALL_OVER_UDP: &[&str] = &["SHMEM_NEAR=1", "SHMEM_WIRE=udp"];
const ALL_OVER_LIBFABRIC: &[&str] = &["SHMEM_NEAR=1", "SHMEM_WIRE=ofi"];
const PAIRS_OVER_LIBFABRIC: &[&str] = &["SHMEM_NEAR=2", "SHMEM_WIRE=ofi"];
/// The most PEs that are started as far ones: they share the processors of a test machine.
const FAR_PES_MAX: u32 = 5;

/// How often a program runs, and how its PEs reach each other: in pairs where they are several
/// pairs, else all far.
fn runs(program: &Program) -> Vec<(u32, &'static [&'static str])> {
    let mut runs: Vec<_> = program.pes.iter().map(|pes| (*pes, &[][..])).collect();
    let far = program.pes.iter().copied().filter(|pes| (2..=FAR_PES_MAX).contains(pes));
    let far: Vec<u32> = far.collect();
    let is_there = Command::new("sh").args(["-c", "ldconfig -p | grep -q libfabric"]).status();
    let has_libfabric = is_there.is_ok_and(|status| status.success());
    runs.extend(far.iter().filter(|pes| **pes > 2).map(|pes| (*pes, PAIRS_OVER_UDP)));
    if far == [2] {
        runs.push((2, ALL_OVER_UDP));
    }
    if has_libfabric && !far.is_empty() {
        runs.push((2, ALL_OVER_LIBFABRIC));
        runs.extend(far.contains(&4).then_some((4, PAIRS_OVER_LIBFABRIC)));
    }
    runs
}

fn run(
    program: &str,
    pes: u32,
    ground: &[&str],
    options: &[&str],
) -> Result<(), clearway_runtime::launch::LaunchError> {
    let this = env::current_exe().expect("this program");
    let this = this.to_string_lossy();
    let words = [ground, &["SHMEM_DEBUG=1", &this, program], options].concat();
    let arguments: Vec<OsString> = words.iter().map(OsString::from).collect();
    let ranks = start_here(pes, OsStr::new("env"), &arguments, &HereOptions::default())?;
    ranks.wait(&mut || ControlFlow::Continue(()))
}

/// Runs one program as a PE.
fn be_a_pe(name: &str) {
    if let Some(failure) = failures::find(name) {
        return failure();
    }
    let program =
        PROGRAMS.iter().find(|program| program.name == name).expect("a program of the list");
    job::init(3).expect("begins");
    (program.run)();
    job::finalize().expect("ends");
}

fn main() {
    let arguments: Vec<String> =
        env::args().skip(1).filter(|argument| !argument.starts_with('-')).collect();
    if env::var_os("CLEARWAY_RANK").is_some() {
        return be_a_pe(arguments.first().map_or("", String::as_str));
    }
    let is_asked = |name: &str| {
        arguments.is_empty() || arguments.iter().any(|word| name.contains(word.as_str()))
    };
    let seeds =
        env::args().find_map(|argument| Some(argument.strip_prefix("--seeds=")?.to_owned()));
    let options = seeds.as_deref().map_or(Vec::new(), |count| vec!["0", count]);
    let mut failed = 0;
    for program in PROGRAMS.iter().filter(|program| is_asked(program.name)) {
        for (pes, ground) in runs(program) {
            let result = run(program.name, pes, ground, &options);
            let end = if result.is_ok() { "ok" } else { "FAILED" };
            eprintln!("{} with {pes} PEs {} ... {end}", program.name, ground.join(" "));
            if let Err(error) = result {
                eprintln!("{error}");
                failed += 1;
            }
        }
    }
    if is_asked("failures") {
        failures::check();
    }
    assert_eq!(failed, 0, "programs failed");
}
