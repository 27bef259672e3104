//! Queues: every call, gathered and alone, and the names of the proposal.

use crate::pes::{Ground, run};
use crate::prefix::{oshrun, program_of, said};

#[test]
fn queues__every_call_does_what_it_promises() {
    run("queues.c");
}

#[test]
fn queues__every_call_does_what_it_promises_without_gathering() {
    let program = program_of("queues.c");
    for threshold in ["0", "64"] {
        let mut command = oshrun(2);
        let output = command.args(["-x", &format!("SHMEMX_QUEUE_THRESHOLD={threshold}")]);
        let output = output.arg(&program).output().expect("oshrun");
        assert!(output.status.success(), "{threshold}: {}", said(&output));
    }
}

#[test]
fn queues__every_call_does_what_it_promises_over_udp() {
    Ground::Udp.run("queues.c", &[2, 4], &[]);
}

#[test]
fn queues__every_call_does_what_it_promises_over_libfabric() {
    Ground::Libfabric.run("queues.c", &[2], &[]);
}

#[test]
fn queues__the_declarations_of_the_proposal_compile_and_run() {
    run("proposal.c");
    Ground::Udp.run("proposal.c", &[2, 4], &[]);
    Ground::Libfabric.run("proposal.c", &[2], &[]);
}

#[test]
fn queues__with_debug_a_mistake_is_one_sentence() {
    let program = program_of("queues.c");
    let output = oshrun(1).args(["-x", "SHMEM_DEBUG=1"]).arg(program).output().expect("oshrun");
    let text = said(&output);
    assert!(output.status.success(), "{text}");
    for part in [
        "PE 0: queue: a shared queue needs SHMEM_THREAD_MULTIPLE",
        "`op` is 99, which elements of this type do not have",
        "that takes the call; it may have been destroyed",
    ] {
        assert!(text.contains(part), "no `{part}` in {text}");
    }
}
