//! `clearway timeslice`: its subcommands.
//!
//! # Model
//! Each subcommand has the flags that mean something for it, and no others: groups of flags that
//! several have in common are flattened into them (`ground`, `schedule`).

mod achievable;
mod build;
mod compare;
mod feed;
mod network;
mod schedule;
mod values;

use std::path::PathBuf;

use anyhow::Result;
use clap::Subcommand;

use super::{for_output, print};
use crate::mechanism::timeslice::{consume, credential_text, join_run, watch};
use crate::run::exit::Exit;
use achievable::AchievableFlags;
use build::BuildFlags;
use compare::CompareFlags;

/// Timeslice building.
#[derive(Debug, Subcommand)]
#[command(subcommand_value_name = "compare|build|achievable|watch|join|consume")]
pub(crate) enum TimesliceCommand {
    /// Compare schedules for a time, on a simulated fabric, in a lab or across a job.
    ///
    /// N inputs, each with a stream of contributions, fill complete timeslices at M builders.
    /// Throughput is reported next to what the same network carries when nobody waits for anybody.
    Compare(Box<CompareFlags>),
    /// Build the timeslices of archives, or a number of made ones, in a lab or across a job.
    Build(Box<BuildFlags>),
    /// Measure what unscheduled writes and puts carry, by length, each without and with FLESnet's
    /// short messages next to it.
    Achievable(Box<AchievableFlags>),
    /// Show a run while it lasts: rate, completion time, how full rings are, stragglers, who waits
    /// for whom.
    Watch {
        /// Name the run as it prints it when it begins; `NAME@HOST` where another host coordinates
        /// it, which ssh must reach.
        #[arg(value_name = "JOB[@HOST]")]
        job: String,
        /// Run this program on that host [default: the path of this one].
        #[arg(long, value_name = "PATH")]
        remote_program: Option<PathBuf>,
    },
    /// Replace a rank that died: become that rank of a run of a job, on this host, until the run is
    /// over.
    ///
    /// Works for jobs whose ranks talk over UDP (--wire udp). Inputs read their source on this host,
    /// and builders write their archive here, in the directory where this is run. Ends with 0 when
    /// the run is over; with 2 when the run has no such rank; and with 1 and one sentence when there
    /// is no such run, it has another key or is of another version, the rank is alive, or the rank
    /// dies again.
    Join {
        /// Name the run as it prints it when it begins; `NAME@HOST` where another host coordinates
        /// it, which ssh must reach.
        #[arg(value_name = "JOB[@HOST]")]
        job: String,
        /// Become this rank [default: the first one that died].
        #[arg(long, value_name = "RANK")]
        rank: Option<u32>,
        /// Run this program on that host [default: the path of this one].
        #[arg(long, value_name = "PATH")]
        remote_program: Option<PathBuf>,
    },
    /// Print the credential of a run; for the program itself.
    #[command(hide = true)]
    Credential { job: String },
    /// Take timeslices from a builder of this host (`--sink consumer:SOCKET`) and look at every
    /// microslice.
    Consume {
        /// Where the builder listens.
        socket: PathBuf,
        /// Put them into this archive instead.
        #[arg(long, value_name = "FILE")]
        to: Option<PathBuf>,
    },
}

/// Does what flags say.
pub(super) fn command(command: &TimesliceCommand) -> Result<Exit> {
    match command {
        TimesliceCommand::Compare(flags) => compare::command(flags),
        TimesliceCommand::Build(flags) => build::command(flags),
        TimesliceCommand::Achievable(flags) => achievable::command(flags),
        TimesliceCommand::Watch { job, remote_program } => {
            watch(job, remote_program.as_deref(), &mut |text| print(&for_output(text)))
        }
        TimesliceCommand::Join { job, rank, remote_program } => {
            join_run(job, *rank, remote_program.as_deref())
        }
        TimesliceCommand::Credential { job } => {
            print(&credential_text(job)?)?;
            Ok(Exit::Good)
        }
        TimesliceCommand::Consume { socket, to } => {
            print(&consume(socket, to.as_deref())?)?;
            Ok(Exit::Good)
        }
    }
}
