//! `cargo xtask header`: writes the headers of the OpenSHMEM library from its table.
//!
//! # Not here
//! The text (`clearway-shmem`, `header`), and the test that compares it with what is checked in.

use std::process::{Command, ExitCode};

use anyhow::{Context, Result, ensure};

/// Where the headers stand.
const DIRECTORY: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../crates/clearway-shmem/include");

/// Runs the chore.
pub(crate) fn run(arguments: &[String]) -> Result<ExitCode> {
    ensure!(arguments.is_empty(), "it takes no argument, not `{}`", arguments.join(" "));
    let mut command = Command::new(env!("CARGO"));
    command.args([
        "run",
        "--quiet",
        "--package",
        "clearway-shmem",
        "--example",
        "header",
        "--",
        DIRECTORY,
    ]);
    let status = command.status().context("cargo")?;
    Ok(if status.success() { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}
