//! The same programs under the launchers of sites, without `oshrun`; which are not there is said.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::process::Command;

use crate::prefix::{bounded, prefix, program_of, said, tool};

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
            command
                .args(arguments)
                .args(["-n", pes])
                .arg(&program)
                .env("SHMEM_SYMMETRIC_SIZE", "16m");
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
    let as_root: &[&str] =
        if Path::new("/proc/self").exists() && is_root() { &["--allow-run-as-root"] } else { &[] };
    let arguments: Vec<&str> = as_root.iter().copied().chain(["--oversubscribe"]).collect();
    run("mpirun.openmpi", &arguments, &["movement.c", "together.c"]);
}

fn is_root() -> bool {
    let id = Command::new("id").arg("-u").output();
    id.is_ok_and(|output| output.stdout == b"0\n")
}

/// A launcher that says how it was called.
const ECHO: &str = "#!/bin/sh\necho \"${0##*/} $*\"\n";

#[test]
fn oshrun__hands_over_inside_an_allocation() {
    let directory = prefix().join("launchers");
    fs::create_dir_all(&directory).expect("a directory");
    for launcher in ["srun", "prterun"] {
        let place = directory.join(launcher);
        fs::write(&place, ECHO).expect("written");
        fs::set_permissions(&place, fs::Permissions::from_mode(0o755)).expect("a program");
    }
    let path = format!("{}:{}", directory.display(), std::env::var("PATH").unwrap_or_default());
    let ask = |variable: &str, arguments: &[&str]| {
        let output = tool("oshrun")
            .env("PATH", &path)
            .env(variable, "7")
            .args(arguments)
            .output()
            .expect("oshrun");
        said(&output)
    };
    assert!(ask("SLURM_JOB_ID", &["-n", "3", "app", "-x"]).ends_with("srun -n 3 app -x\n"));
    assert!(ask("SLURM_JOB_ID", &["app"]).ends_with("srun app\n"));
    assert!(
        ask("PBS_JOBID", &["-np", "2", "--hostfile", "f", "app"])
            .ends_with("prterun -n 2 --hostfile f app\n")
    );
    let refused = ask("SLURM_JOB_ID", &["--hostfile", "f", "app"]);
    assert!(refused.contains("--hostfile is for a machine without an allocation"), "{refused}");
    let here = ask("SLURM_JOB_ID", &["--launcher", "here", "-n", "1", "echo", "mine"]);
    assert!(here.ends_with("mine\n"), "{here}");
}
