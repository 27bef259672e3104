//! The same programs under the launchers of sites, without `oshrun`; which are not there is said.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::process::Command;

use crate::prefix::{bounded, prefix, program_of, said, tool};
use crate::{slurm, two_hosts};

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

/// Near and far PEs in one job.
#[test]
fn hydra__its_pes_find_each_other_on_two_hosts() {
    if let Some(reason) = two_hosts::missing(&["mpiexec.hydra"]) {
        println!("skipped: OpenSHMEM programs under mpiexec.hydra on two hosts ({reason})");
        return;
    }
    run_on_two_hosts("hydra", |each, pes| {
        format!(
            "mpiexec.hydra -launcher ssh -launcher-exec {{directory}}/agent \
             -hosts n1:{each},n2:{each} -n {pes}"
        )
    });
}

/// A program of two words, as for the hosts of a lab, and a host whose name is its loopback address.
#[test]
fn oshrun__another_program_than_ssh_gets_two_words_and_its_pes_find_each_other() {
    if let Some(reason) = two_hosts::missing(&[]) {
        println!("skipped: OpenSHMEM programs on two hosts without ssh ({reason})");
        return;
    }
    let script = format!(
        "printf '127.0.0.1 localhost n1\\n192.0.2.2 n2\\n' >hosts
printf '#!/bin/sh\\n[ $# = 2 ] || exit 9\\nexec {{directory}}/agent \"$1\" \"$2\"\\n' >on-host
chmod +x on-host
printf 'n1 slots=2\\nn2 slots=2\\n' >four
{}/bin/oshrun --launcher here -n 4 --rsh ./on-host --hostfile four {}
",
        prefix().display(),
        program_of("counting.c").display()
    );
    let output = two_hosts::run("rsh", &script, &[]);
    assert!(output.status.success(), "{}", said(&output));
}

/// Runs programs on two hosts. `launch` returns the launcher's command for a number of PEs on each
/// host and a number in all.
fn run_on_two_hosts(name: &str, launch: impl Fn(u32, u32) -> String) {
    let mut script = String::new();
    for file in ["movement.c", "together.c", "counting.c", "queues.c"] {
        let program = program_of(file);
        for (each, pes) in [(1, 2), (2, 4)] {
            let run = format!("{} {}", launch(each, pes), program.display());
            script += &format!("echo '{run}'; {run}\n");
        }
    }
    let output = two_hosts::run(name, &script, &[]);
    assert!(output.status.success(), "{}", said(&output));
}

/// Open MPI's launcher, up to version 4.
#[test]
fn orte__its_pes_find_each_other() {
    run("mpirun.openmpi", &as_root(&["--oversubscribe"]), &["movement.c", "together.c"]);
}

/// Open MPI's launcher from version 5 on.
#[test]
fn prrte__its_pes_find_each_other() {
    let arguments = as_root(&["--map-by", ":OVERSUBSCRIBE"]);
    run("prterun", &arguments, &["movement.c", "together.c", "counting.c"]);
}

#[test]
fn prrte__its_pes_find_each_other_on_two_hosts() {
    if let Some(reason) = two_hosts::missing(&["prterun"]) {
        println!("skipped: OpenSHMEM programs under prterun on two hosts ({reason})");
        return;
    }
    run_on_two_hosts("prrte", |each, pes| {
        format!(
            "prterun --prefix $(dirname $(dirname $(command -v prterun))) --allow-run-as-root \
             --prtemca plm_ssh_agent {{directory}}/agent --map-by :OVERSUBSCRIBE \
             --host n1:{each},n2:{each} -n {pes}"
        )
    });
}

/// Such launchers refuse to be started by root unless asked to.
fn as_root<'a>(arguments: &[&'a str]) -> Vec<&'a str> {
    let root = if is_root() { Some("--allow-run-as-root") } else { None };
    root.into_iter().chain(arguments.iter().copied()).collect()
}

/// By each way in which Slurm lets processes find each other.
#[test]
fn slurm__its_pes_find_each_other() {
    let programs = ["srun", "sinfo", "slurmctld", "slurmd", "munged"];
    if let Some(reason) = two_hosts::missing(&programs) {
        println!("skipped: OpenSHMEM programs under srun ({reason})");
        return;
    }
    for way in ["none", "pmi2", "pmix"] {
        if !slurm::has_plugin(way) {
            println!("skipped: OpenSHMEM programs under srun --mpi={way} (not installed)");
            continue;
        }
        // A busy machine runs no more of them in the time after which a script counts as hung.
        let mut script = String::new();
        for file in ["movement.c", "together.c", "counting.c"] {
            let program = program_of(file);
            for (nodes, pes) in [(1, 1), (1, 2), (2, 2), (2, 4)] {
                let run = format!(
                    "srun --mpi={way} --overcommit -N {nodes} -n {pes} {}",
                    program.display()
                );
                script += &format!("echo '{run}'; {run}\n");
            }
        }
        let output = slurm::run(&script);
        assert!(output.status.success(), "{}", said(&output));
    }
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
