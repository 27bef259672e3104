//! The examples of queues: many seeds, and each gives what it should.

use std::path::{Path, PathBuf};

use crate::prefix::{compile, oshrun, said};

/// Seeds of a test; `cargo xtask swarm` runs more of them.
const SEEDS: u64 = if cfg!(debug_assertions) { 5 } else { 100 };
/// PEs that draw them.
const PES: [u32; 2] = [2, 4];
/// Variables with which pairs of PEs are far for others.
const PAIRS_OVER_UDP: [(&str, &str); 2] = [("SHMEM_NEAR", "2"), ("SHMEM_WIRE", "udp")];

fn example(file: &str, name: &str) -> PathBuf {
    let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("examples/queues").join(file);
    let flags = ["-std=c11", "-D_GNU_SOURCE", "-O2", "-Wall", "-Wextra", "-Werror"];
    compile("oshcc", name, &source, &flags)
}

/// Runs an example with each number of PEs and each seed.
fn run(program: &Path, mode: &str, sizes: [&str; 2], variables: &[(&str, &str)]) {
    for pes in PES {
        for seed in 1..=SEEDS {
            let seed = (u64::from(pes) << 8 | seed).to_string();
            let mut command = oshrun(pes);
            command.envs(variables.iter().copied());
            command.arg(program).args(["-m", mode, "-s", &seed, "-n", sizes[0], "-w", sizes[1]]);
            let output = command.output().expect("oshrun");
            let text = said(&output);
            assert!(output.status.success() && text.contains("a PE"), "{mode} {seed}: {text}");
        }
    }
}

#[test]
fn histogram__counts_are_right_by_queue_and_session_and_alone() {
    let program = example("histogram.c", "example-histogram");
    for mode in ["queue", "session", "plain"] {
        run(&program, mode, ["20000", "500"], &[]);
    }
    for mode in ["queue", "session"] {
        run(&program, mode, ["2000", "50"], &PAIRS_OVER_UDP);
    }
}

#[test]
fn indexgather__each_pe_gets_its_words_and_stops() {
    let program = example("indexgather.c", "example-indexgather");
    run(&program, "queue", ["20000", "500"], &[]);
    run(&program, "queue", ["2000", "50"], &PAIRS_OVER_UDP);
}

#[test]
fn examples__a_wrong_option_or_too_large_a_table_is_one_sentence() {
    for file in ["histogram", "indexgather"] {
        let program = example(&format!("{file}.c"), &format!("example-{file}-refused"));
        for (arguments, part) in [
            (["-m", "fast"], "-m: `fast`; use queue"),
            (["-n", "few"], "-n: `few`; give a number from 1"),
            (["-w", "0"], "-w: `0`; give a number from 1"),
            (["-n", ""], "-n: ``; give a number from 1"),
            (["--help", ""], "there is no option: `--help`; use -s SEED, -w WORDS"),
            (["-w", "999999999"], "`-w, -n`; give smaller numbers, or more SHMEM_SYMMETRIC_SIZE"),
        ] {
            let output = oshrun(2).arg(&program).args(arguments).output().expect("oshrun");
            let text = said(&output);
            assert_eq!(output.status.code(), Some(2), "{text}");
            assert_eq!((text.matches(part).count(), text.lines().count()), (1, 1), "{text}");
        }
    }
}

#[test]
fn puts__the_program_of_the_shared_lab_delivers_and_counts_on_near_and_far_pes() {
    let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("../clearway/src/together/lab/puts.c");
    let flags = ["-std=gnu11", "-O2", "-Wall", "-Wextra", "-Werror"];
    let program = compile("oshcc", "lab-puts", &source, &flags);
    for (variables, name) in [(&[][..], "near"), (&PAIRS_OVER_UDP[..], "far")] {
        let counters = program.with_file_name(format!("lab-puts-{name}"));
        let mut command = oshrun(4);
        command.envs(variables.iter().copied()).arg(&program).arg(&counters).arg("3");
        let output = command.output().expect("oshrun");
        assert!(output.status.success(), "{}", said(&output));
        for pe in 0..4 {
            let counted = std::fs::read(counters.with_extension(pe.to_string())).expect("counted");
            // Three rounds of two blocks of 16 KiB.
            assert_eq!(counted, (6u64 << 14).to_ne_bytes());
        }
    }
    let output = oshrun(1).arg(&program).output().expect("oshrun");
    assert_eq!(output.status.code(), Some(2), "{}", said(&output));
}
