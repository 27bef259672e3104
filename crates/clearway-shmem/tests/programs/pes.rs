//! Programs of C and C++ as one, two and four PEs under `oshrun`, and alone.

use std::process::{Command, Output, Stdio};
use std::time::{Duration, Instant};

use crate::prefix::{bounded, has_cxx, oshrun, prefix, program_of, said};

fn expect_good(output: &Output, of: &str) {
    assert!(output.status.success(), "{of}: {}", said(output));
}

/// Runs `file` with each number of PEs, and without any launcher.
pub(crate) fn run(file: &str) {
    Ground::Near.run(file, &[1, 2, 4], &[]);
    let program = program_of(file);
    let mut alone = bounded(&program.to_string_lossy());
    expect_good(
        &alone.env("SHMEM_SYMMETRIC_SIZE", "16m").output().expect("the program"),
        &format!("{file} alone"),
    );
}

/// How PEs of one machine reach each other.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Ground {
    /// In each other's memory.
    Near,
    /// Over sealed UDP.
    Udp,
    /// Over libfabric.
    Libfabric,
}

impl Ground {
    /// Runs `file` on this ground with each number of PEs of `pes`: all PEs far, and in pairs.
    /// Skips, and says so, where there is no libfabric.
    pub(crate) fn run(self, file: &str, pes: &[u32], arguments: &[&str]) {
        let program = program_of(file);
        let wire = match self {
            Self::Near => None,
            Self::Udp => Some("udp"),
            Self::Libfabric if !has_libfabric() => {
                println!("skipped: {file} over libfabric (there is none)");
                return;
            }
            Self::Libfabric => Some("ofi"),
        };
        for pes in pes {
            let sizes: &[u32] = if wire.is_some() && *pes > 2 { &[1, 2] } else { &[1] };
            for near in sizes {
                let mut command = oshrun(*pes);
                if let Some(wire) = wire {
                    command.env("SHMEM_NEAR", near.to_string()).env("SHMEM_WIRE", wire);
                }
                let output = command.arg(&program).args(arguments).output().expect("oshrun");
                let of = format!("{file} {arguments:?}, {pes} PEs, {self:?}, {near} a host");
                expect_good(&output, &of);
            }
        }
    }
}

fn has_libfabric() -> bool {
    let found = Command::new("sh").args(["-c", "ldconfig -p | grep -q libfabric"]).status();
    found.is_ok_and(|status| status.success())
}

#[test]
fn movement__puts_and_gets_arrive_whole_in_heap_and_statics() {
    run("movement.c");
    Ground::Udp.run("movement.c", &[4], &[]);
}

#[test]
fn counting__no_atomic_operation_is_lost() {
    run("counting.c");
}

#[test]
fn tables__histogram_and_index_gather_have_the_right_results() {
    run("tables.c");
}

#[test]
fn waiting__words_are_seen_when_they_change() {
    run("waiting.c");
}

#[test]
fn together__collectives_of_teams_and_active_sets_are_right() {
    run("together.c");
    Ground::Udp.run("together.c", &[4], &[]);
    Ground::Libfabric.run("together.c", &[4], &[]);
}

#[test]
fn memory__the_heap_is_the_same_everywhere() {
    run("memory.c");
}

#[test]
fn newer__scans_blocks_sessions_and_a_second_begin_work() {
    run("newer.c");
}

#[test]
fn newer__global_exit_after_a_second_begin_ends_all_with_its_status() {
    let program = program_of("newer.c");
    let output = oshrun(3).arg(&program).args(["exit", "42"]).output().expect("oshrun");
    assert_eq!(output.status.code(), Some(42), "{}", said(&output));
}

#[test]
fn threads__contexts_and_locks_hold() {
    run("threads.c");
}

#[test]
fn urgent__operations_do_not_wait_for_a_flood_of_another_thread() {
    Ground::Udp.run("urgent.c", &[3], &[]);
}

#[test]
fn full__a_put_that_waits_for_memory_sleeps() {
    Ground::Udp.run("full.c", &[2], &[]);
}

#[test]
fn resting__a_put_behind_quiets_leaves_while_its_program_computes() {
    Ground::Udp.run("resting.c", &[2], &[]);
    Ground::Libfabric.run("resting.c", &[2], &[]);
}

#[test]
fn overloads__a_tool_can_put_its_function_in_place() {
    if has_cxx() {
        run("overloads.cpp");
    }
}

#[test]
fn leaving__a_child_of_a_pe_has_memory_of_its_own() {
    let program = program_of("leaving.c");
    let output = oshrun(2).arg(program).arg("fork").output().expect("oshrun");
    expect_good(&output, "leaving.c fork");
}

#[test]
fn leaving__global_exit_ends_all_with_its_status() {
    let program = program_of("leaving.c");
    for (asked, status) in [(42, 42), (0, 0), (300, 44), (256, 1)] {
        let output =
            oshrun(3).arg(&program).args(["exit", &asked.to_string()]).output().expect("oshrun");
        assert_eq!(output.status.code(), Some(status), "{}", said(&output));
        assert!(output.stderr.is_empty(), "{}", said(&output));
    }
}

#[test]
fn leaving__a_pe_that_is_killed_ends_all_with_one_sentence() {
    let program = program_of("leaving.c");
    let output = oshrun(3).arg(program).arg("kill").output().expect("oshrun");
    let text = said(&output);
    assert!(!output.status.success() && text.contains("signal: 9"), "{text}");
    assert_eq!(output.stderr.iter().filter(|byte| **byte == b'\n').count(), 1, "{text}");
}

#[test]
fn killed__a_far_pe_ends_all_with_one_sentence_whatever_they_do() {
    let program = program_of("killed.c");
    for state in ["push", "flush", "data", "advance", "barrier"] {
        let began = Instant::now();
        let mut command = oshrun(2);
        command.env("SHMEM_NEAR", "1").env("SHMEM_WIRE", "udp");
        let output = command.arg(&program).arg(state).output().expect("oshrun");
        let text = said(&output);
        assert_eq!(output.status.code(), Some(137), "{state}: {text}");
        assert_eq!((text.lines().count(), text.matches("signal: 9").count()), (1, 1), "{text}");
        assert!(began.elapsed() < Duration::from_secs(3), "{state}: {:?}", began.elapsed());
    }
}

/// A child holds the connections of its parent, whose end the launcher knows all the same.
#[test]
fn leaving__a_child_that_lives_on_does_not_delay_the_end() {
    let program = program_of("leaving.c");
    let began = Instant::now();
    let mut command = oshrun(3);
    let job = command.arg(program).arg("orphan").stdout(Stdio::null()).stderr(Stdio::null());
    assert_eq!(job.status().expect("oshrun").code(), Some(137));
    assert!(began.elapsed() < Duration::from_millis(2_500), "{:?}", began.elapsed());
}

#[test]
fn leaving__an_end_that_meets_a_barrier_is_one_sentence() {
    let program = program_of("leaving.c");
    let output = oshrun(3).arg(program).arg("early").output().expect("oshrun");
    let text = said(&output);
    assert!(output.status.code() == Some(1) && text.contains("PE 2: left the program"), "{text}");
    assert_eq!(output.stderr.iter().filter(|byte| **byte == b'\n').count(), 1, "{text}");
}

/// Nothing that a program left, good or bad, has a name in the file system.
#[test]
fn leaving__nothing_stays_in_the_file_system() {
    let program = program_of("leaving.c");
    let left = || {
        let listed = Command::new("sh").args(["-c", "ls -A /dev/shm | grep -i clearway"]).output();
        String::from_utf8_lossy(&listed.expect("sh").stdout).into_owned()
    };
    let before = left();
    oshrun(2).arg(program).arg("kill").output().expect("oshrun");
    assert_eq!(left(), before);
}

#[test]
fn oshrun__asks_the_policy_for_a_class_also_under_a_launcher() {
    let policy = std::env::temp_dir().join(format!("clearway-class-{}.toml", std::process::id()));
    std::fs::write(&policy, "[[rule]]\nprogram = \"sh\"\nclass = \"bulk\"\n").expect("written");
    // `env` starts what follows, as a launcher does.
    for launcher in ["here", "env"] {
        let mut command = bounded(&prefix().join("bin/oshrun").to_string_lossy());
        command.arg("--policy").arg(&policy).args(["--launcher", launcher, "sh", "-c"]);
        command.arg("echo class $SHMEM_CLASS").env("SHMEM_CLASS", "high");
        let output = command.output().expect("oshrun");
        assert!(
            output.status.success() && said(&output).contains("class low\n"),
            "{launcher}: {}",
            said(&output)
        );
    }
    std::fs::remove_file(&policy).expect("removed");
}
