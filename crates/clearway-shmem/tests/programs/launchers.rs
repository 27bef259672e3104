//! The same programs under the launchers of sites, without `oshrun`; which are not there is said.

use std::path::Path;
use std::process::Command;

use crate::prefix::{bounded, program_of, said};

fn is_there(program: &str) -> bool {
    let found = Command::new("sh").args(["-c", "command -v \"$0\" >/dev/null", program]).status();
    found.is_ok_and(|status| status.success())
}

/// Runs all programs as `pes` PEs by `launcher` and its `arguments`.
fn run(launcher: &str, arguments: &[&str], programs: &[&str]) {
    if !is_there(launcher) {
        println!("skipped: OpenSHMEM programs under {launcher} (it is not installed)");
        return;
    }
    for file in programs {
        let program = program_of(file);
        for pes in ["2", "4"] {
            let mut command = bounded(launcher);
            command.args(arguments).args(["-n", pes]).arg(&program).env("SHMEM_SYMMETRIC_SIZE", "16m");
            let output = command.output().expect("the launcher");
            assert!(output.status.success(), "{file} under {launcher}: {}", said(&output));
        }
    }
}

#[test]
fn hydra__its_pes_find_each_other() {
    run("mpiexec.hydra", &[], &["movement.c", "together.c", "counting.c"]);
}

#[test]
fn prrte__its_pes_find_each_other() {
    let as_root: &[&str] = if Path::new("/proc/self").exists() && is_root() { &["--allow-run-as-root"] } else { &[] };
    let arguments: Vec<&str> = as_root.iter().copied().chain(["--oversubscribe"]).collect();
    run("mpirun.openmpi", &arguments, &["movement.c", "together.c"]);
}

fn is_root() -> bool {
    let id = Command::new("id").arg("-u").output();
    id.is_ok_and(|output| output.stdout == b"0\n")
}
