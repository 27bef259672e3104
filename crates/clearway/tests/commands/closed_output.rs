//! A reader that closes its end has seen enough: no command fails for it, and none panics.

use std::process::{Command, Stdio};

/// Runs the program with both outputs closed by their reader; returns its exit status.
fn status_with_closed_outputs(arguments: &[&str]) -> Option<i32> {
    let mut command = Command::new(env!("CARGO_BIN_EXE_clearway"));
    command.args(arguments).stdin(Stdio::null());
    for set in [Command::stdout, Command::stderr] {
        let (reader, writer) = std::io::pipe().expect("a pipe");
        set(&mut command, writer);
        drop(reader);
    }
    command.status().expect("the program starts").code()
}

#[test]
fn status__a_reader_that_closes_both_outputs_changes_it_nowhere() {
    for arguments in [&["doctor"][..], &["doctor", "--json"], &["topo", "list"], &["man"]] {
        assert_eq!(status_with_closed_outputs(arguments), Some(0), "{arguments:?}");
    }
    assert_eq!(status_with_closed_outputs(&["run", "no-such-scenario"]), Some(1));
}
