//! The module of queues for Python, where Python and cffi are.

use std::path::Path;
use std::process::Command;

use crate::prefix::{oshrun, prefix, said};
use crate::two_hosts;

#[test]
fn python__queues_work_together_with_the_library() {
    let has_cffi = Command::new("python3").args(["-c", "import cffi"]).output();
    if !has_cffi.is_ok_and(|output| output.status.success()) {
        println!("skipped: queues from Python (python3 has no cffi)");
        return;
    }
    let sources = Path::new(env!("CARGO_MANIFEST_DIR"));
    for (pes, far) in [(1, None), (3, None), (3, Some("udp"))] {
        let mut command = oshrun(pes);
        if let Some(wire) = far {
            command.env("SHMEM_NEAR", "1").env("SHMEM_WIRE", wire);
        }
        command
            .env("PYTHONPATH", sources.join("python"))
            .env("PYTHONDONTWRITEBYTECODE", "1")
            .env("LD_LIBRARY_PATH", prefix().join("lib"))
            .arg("python3")
            .arg(sources.join("tests/programs/queues.py"));
        let output = command.output().expect("oshrun");
        let text = said(&output);
        assert!(output.status.success() && text.contains("is content"), "{pes}: {text}");
    }
}

/// The tests that the package shmem4py brings, on PEs of two hosts. On two PEs each, those of
/// `shmem_ptr` would hang or fail: they synchronise only where the next PE is near.
#[test]
fn python__the_tests_of_a_package_pass_on_two_hosts() {
    let Ok(package) = std::env::var("CLEARWAY_SHMEM4PY") else {
        println!("skipped: a Python package on two hosts (CLEARWAY_SHMEM4PY names no directory)");
        return;
    };
    if let Some(reason) = two_hosts::missing(&["python3"]) {
        println!("skipped: a Python package on two hosts ({reason})");
        return;
    }
    let script = "\
printf 'n1 slots=1\\nn2 slots=1\\n' >two
printf 'n1 slots=2\\nn2 slots=2\\n' >four
hosts=$PWD
cd $CLEARWAY_SHMEM4PY
for run in '2 two test*.py' '4 four test_[!p]*.py'; do
    set -f -- $run
    $PREFIX/bin/oshrun --launcher here -n $1 --rsh $hosts/agent --hostfile $hosts/$2 \\
        -x PYTHONPATH -x LD_LIBRARY_PATH -x PYTHONDONTWRITEBYTECODE \\
        python3 -m unittest discover --quiet --start-directory test --pattern \"$3\"
done
";
    let lib = prefix().join("lib");
    let variables = [
        ("CLEARWAY_SHMEM4PY", Path::new(&package)),
        ("PREFIX", prefix()),
        ("LD_LIBRARY_PATH", &lib),
        ("PYTHONDONTWRITEBYTECODE", Path::new("1")),
        ("SHMEM_SYMMETRIC_SIZE", Path::new("256m")),
    ];
    let output = two_hosts::run("python", script, &variables);
    let text = said(&output);
    assert!(output.status.success() && text.matches(": OK\n").count() == 6, "{text}");
}
