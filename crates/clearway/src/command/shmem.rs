//! `clearway shmem`: what the OpenSHMEM library installed with this program is and does here.
//!
//! # Model
//! This program does not contain the library. A small program of the library's runs as PEs, and PE
//! 0 says what it sees.

use std::env;
use std::ffi::OsString;
use std::path::PathBuf;

use anyhow::{Context, Result};
use clap::Subcommand;
use clearway_runtime::launch::{HereOptions, RANKS_MAX};

use super::start;
use crate::run::exit::{Exit, wrong_usage};

/// The library's program that says what it sees.
const DESCRIBE: &str = "clearway-shmem-describe";

/// The OpenSHMEM library.
#[derive(Debug, Subcommand)]
pub(crate) enum ShmemCommand {
    /// Tell the library's version, its segments, and which PEs share memory with PE 0.
    ///
    /// SHMEM_SYMMETRIC_SIZE and the library's other variables count as for any program.
    Info {
        /// Start N PEs.
        #[arg(short = 'n', long, default_value_t = 2, value_name = "N")]
        pes: u32,
    },
}

/// Says it.
///
/// # Errors
/// One sentence: the library is not there, or no PE can begin.
pub(super) fn command(command: &ShmemCommand) -> Result<Exit> {
    let ShmemCommand::Info { pes } = command;
    if *pes == 0 {
        wrong_usage!("-n 0 looks with no PE; give a number of PEs from 1");
    }
    if *pes > RANKS_MAX {
        wrong_usage!("-n {pes} are more PEs than a job has; 1 to {RANKS_MAX} work");
    }
    start::start(*pes, &OsString::from(describe()?), &[], &HereOptions::default())
}

/// Returns the program, next to this one or where an installation keeps it.
fn describe() -> Result<PathBuf> {
    let own = env::current_exe().context("this program does not know where it is")?;
    let directory = own.parent().context("this program is in no directory")?;
    let places = [directory.join(DESCRIBE), directory.join("../libexec/clearway").join(DESCRIBE)];
    let found = places.iter().find(|place| place.is_file()).cloned();
    found.with_context(|| {
        format!(
            "{DESCRIBE} is not in the directory of {}; `cargo xtask install --prefix DIR` installs the library with it",
            own.display()
        )
    })
}
