//! The command line: one table of commands and flags, from which help, man pages and completions
//! are made.
//!
//! # Model
//! A command either succeeds with one of the outcomes of [`Exit`], or fails with one sentence on
//! standard error. Namespaces are asked for before anything else happens, because a process with
//! threads may no longer enter a user namespace.

mod arguments;
mod broadcast;
mod cast;
mod flagged;
mod forced_unmount;
mod generate;
mod gpcnet;
mod lab;
mod mount;
mod mount_copies;
mod mount_lookup;
mod msa;
mod pages;
mod policy;
mod qos;
mod registry;
mod results;
mod run;
mod setup_node;
mod shmem;
mod sim;
mod stage;
mod start;
mod timeslice;
mod topo;
mod warm;

use std::error::Error;
use std::ffi::OsString;
use std::io::{self, IsTerminal, Write};
use std::num::{IntErrorKind, ParseFloatError, ParseIntError};
use std::process::ExitCode;

use anyhow::Result;
use clap::FromArgMatches;
use clap::error::{ContextKind, ErrorKind};
use clearway_runtime::launch::escaped;

use crate::agent;
use crate::doctor::{self, OutputFormat};
use crate::report::numerals::wrap;
use crate::run::exit::{Exit, exit_of, refuses_permission};
use crate::run::rank_process;
use crate::run::set_verbosity;
pub(crate) use crate::run::{for_output, json_text, print};

pub(crate) use arguments::{
    Arguments, BenchFlags, Command, JobArguments, LabCommand, MsaCommand, Output, SimCommand,
    TopoCommand,
};

/// Columns of a terminal that sentences fill.
const SENTENCE_COLUMNS: usize = 78;

/// Reads the command line and does what it says.
pub(crate) fn main() -> ExitCode {
    ExitCode::from(status(&std::env::args_os().collect::<Vec<_>>()))
}

/// Does what `words` say, the name of the program first; returns the exit status.
fn status(words: &[OsString]) -> u8 {
    let outcome = match rank_process::requested_lifetime(words.iter().skip(1).cloned()) {
        Some(bond) => rank_process::main(bond, registry::serve),
        None => match parse(words) {
            Ok(arguments) => {
                set_verbosity(arguments.saying.into());
                dispatch(arguments.command)
            }
            Err(refusal) => refusal.exit(),
        },
    };
    match outcome {
        Ok(exit) => exit as u8,
        Err(error) => {
            // Line breaks are Clearway's own; everything else may be quoted from outside.
            let lines: Vec<String> = format!("{error:#}").lines().map(escaped).collect();
            // A rank that ended its job has said why, or had nothing to say.
            if !lines.is_empty() {
                let mut said = format!("clearway: {}", lines.join("\n"));
                // A program that reads it finds a sentence in a line.
                if io::stderr().is_terminal() {
                    said = said
                        .lines()
                        .map(|line| folded(line, SENTENCE_COLUMNS, "\n  "))
                        .collect::<Vec<_>>()
                        .join("\n");
                }
                // `eprintln` panics when standard error is closed.
                let _ = writeln!(io::stderr(), "{said}");
            }
            // A job's status is that of the rank that failed, whatever it means there.
            error
                .downcast_ref::<start::JobFailed>()
                .map_or_else(|| exit_of(&error) as u8, start::JobFailed::status)
        }
    }
}

/// Reads a command line.
///
/// # Errors
/// What is wrong with it, or the help that it asks for.
fn parse(words: &[OsString]) -> Result<Arguments, clap::Error> {
    let mut table = pages::table();
    let read = table.try_get_matches_from_mut(words);
    read.and_then(|matches| Arguments::from_arg_matches(&matches)).map_err(with_remedy)
}

/// Says what works in place of a word that is no number, which the standard library does not, and
/// breaks long lines.
fn with_remedy(refusal: clap::Error) -> clap::Error {
    let [flag, value] = [ContextKind::InvalidArg, ContextKind::InvalidValue]
        .map(|kind| refusal.get(kind).map(ToString::to_string));
    let (Some(why), Some(flag), Some(value)) = (refusal.source(), flag, value) else {
        return refusal;
    };
    let why = match why.downcast_ref::<ParseIntError>().map(ParseIntError::kind) {
        Some(IntErrorKind::PosOverflow) => "it is too large; a smaller number works".to_owned(),
        Some(_) => "it is no whole number; 2 is one".to_owned(),
        None if why.is::<ParseFloatError>() => "it is no number; 1.5 is one".to_owned(),
        None => escaped(&why.to_string()),
    };
    let begin = format!("invalid value '{}' for '{flag}':", escaped(&value));
    let length = "error:".len() + 2 + begin.chars().count() + why.chars().count();
    let between = if length > SENTENCE_COLUMNS { "\n  " } else { " " };
    let why = folded(&why, SENTENCE_COLUMNS - 2, "\n  ");
    let said = format!("{begin}{between}{why}\n\nFor more information, try '--help'.\n");
    clap::Error::raw(ErrorKind::ValueValidation, said)
}

/// Breaks `sentence` between words into lines of `columns`, with `between` from line to line.
fn folded(sentence: &str, columns: usize, between: &str) -> String {
    wrap(sentence, columns).join(between)
}

fn dispatch(command: Command) -> Result<Exit> {
    match command {
        Command::Demo(output) => run::demo(&output),
        Command::Broadcast(flags) => broadcast::command(&flags),
        Command::Bench(flags) => run::bench(&flags),
        Command::Gpcnet(flags) => gpcnet::command(&flags),
        Command::Run { scenario, on, job, output } => run::scenario(&scenario, &on, &job, &output),
        Command::Lab(command) => lab::command(command),
        Command::Cast(flags) => cast::command(&flags),
        Command::Mount(flags) => mount::mount(&flags),
        Command::Umount { force, directory } => {
            let kind = if force { mount::UnmountKind::Forced } else { mount::UnmountKind::Usual };
            mount::umount(&directory, kind)
        }
        Command::Stage(command) => stage::command(command),
        Command::Msa(command) => msa::command(command),
        Command::Sim(command) => sim::command(command),
        Command::Timeslice(command) => timeslice::command(&command),
        Command::Topo(command) => topo::command(command),
        Command::Qos(command) => qos::command(command),
        Command::Policy(command) => policy::command(&command),
        Command::Agent(flags) => agent::serve(&flags),
        Command::Start(flags) => start::command(&flags),
        Command::Shmem(command) => shmem::command(&command),
        Command::Doctor { json, node, policy } => {
            let form = if json { OutputFormat::Json } else { OutputFormat::Text };
            match node {
                true => doctor::node(form, policy.as_deref(), &setup_node::policy_rules),
                false => doctor::command(form),
            }
        }
        Command::SetupNode { undo: true, .. } => setup_node::undo(),
        Command::SetupNode { mark, policy, undo: false } => {
            setup_node::command(&mark, policy.as_deref())
        }
        Command::Report { directories, format } => run::report(&directories, format),
        Command::Diff { a, b, format } => run::diff([&a, &b], format),
        Command::Completions { shell } => generate::completions(shell),
        Command::Man { dir } => generate::man(dir.as_deref()),
        Command::Follow => crate::run::job::follow(),
        Command::Guard { watched_by: None, command } => {
            crate::mechanism::congestion::program::watch(&command)
        }
        Command::Guard { watched_by: Some(watcher), command } => {
            crate::mechanism::congestion::program::guard(&command, watcher)
        }
        Command::Gather => run::gather(),
        Command::LabKeeper { name } => lab::keep(&name),
        Command::StoreWorker => mount::serve_store(),
    }
}

/// Returns `count` and the noun in its number.
fn counted(count: u64, noun: &str) -> String {
    format!("{count} {noun}{}", if count == 1 { "" } else { "s" })
}

#[cfg(test)]
mod tests;
