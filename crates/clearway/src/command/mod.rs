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
mod generate;
mod gpcnet;
mod lab;
mod mount;
mod mount_copies;
mod msa;
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

use std::io::{self, Write};
use std::process::ExitCode;

use anyhow::Result;
use clap::Parser;
use clearway_runtime::launch::escaped;

use crate::doctor::OutputFormat;
use crate::run::exit::{Exit, exit_of, refuses_permission};
use crate::run::rank_process;
pub(crate) use crate::run::{json_text, print};

pub(crate) use arguments::{
    Arguments, BenchFlags, Command, JobArguments, LabCommand, MsaCommand, Output, SimCommand,
    TopoCommand,
};

/// Reads the command line and does what it says.
pub(crate) fn main() -> ExitCode {
    let outcome = match rank_process::requested_lifetime(std::env::args_os().skip(1)) {
        Some(bond) => rank_process::main(bond, registry::serve),
        None => dispatch(Arguments::parse().command),
    };
    match outcome {
        Ok(exit) => exit.into(),
        Err(error) => {
            // Line breaks are Clearway's own; everything else may be quoted from outside.
            let lines: Vec<String> = format!("{error:#}").lines().map(escaped).collect();
            // A rank that ended its job has said why, or had nothing to say.
            if !lines.is_empty() {
                // `eprintln` panics when standard error is closed.
                let _ = writeln!(io::stderr(), "clearway: {}", lines.join("\n"));
            }
            // A job's status is that of the rank that failed, whatever it means there.
            error
                .downcast_ref::<start::JobFailed>()
                .map_or_else(|| exit_of(&error).into(), |job| job.status().into())
        }
    }
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
        Command::Umount { directory } => mount::umount(&directory),
        Command::Stage(command) => stage::command(command),
        Command::Msa(command) => msa::command(command),
        Command::Sim(command) => sim::command(command),
        Command::Timeslice(command) => timeslice::command(&command),
        Command::Topo(command) => topo::command(command),
        Command::Qos(command) => qos::command(command),
        Command::Policy(command) => policy::command(&command),
        Command::Start(flags) => start::command(&flags),
        Command::Shmem(command) => shmem::command(&command),
        Command::Doctor { json } => {
            crate::doctor::command(if json { OutputFormat::Json } else { OutputFormat::Text })
        }
        Command::SetupNode { undo: true, .. } => setup_node::undo(),
        Command::SetupNode { mark, policy, undo: false } => {
            setup_node::command(&mark, policy.as_deref())
        }
        Command::Report { directories } => run::report(&directories),
        Command::Diff { a, b } => run::diff(&a, &b),
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
mod tests {
    use super::*;
    use clap::CommandFactory;

    /// First words of help that are no verb in the imperative.
    const NO_VERBS: [&str; 31] = [
        "A", "All", "An", "At", "Bytes", "By", "Class", "Classes", "File", "Files", "Hosts", "How",
        "In", "Inputs", "It", "Its", "Length", "Name", "Number", "Of", "Offered", "Packets",
        "Paths", "Queue", "Ranks", "Rate", "Seed", "Seeds", "That", "The", "What",
    ];

    /// Finds help of `command` and what is below it that does not begin with a verb.
    fn without_verb(command: &clap::Command, found: &mut Vec<String>) {
        let path = command.get_name().to_owned();
        let texts =
            command.get_arguments().filter(|argument| !argument.is_hide_set()).map(|argument| {
                let help = argument.get_help().map(ToString::to_string).unwrap_or_default();
                (format!("{path} {}", argument.get_id()), help)
            });
        let about = command.get_about().map(ToString::to_string).unwrap_or_default();
        for (what, help) in texts.chain([(path.clone(), about)]) {
            // "With --on lab: set the rate."
            let condition = ["With ", "In ", "By "].iter().any(|word| help.starts_with(word));
            let rest = help.split_once(": ").filter(|_| condition).map_or(&*help, |(_, rest)| rest);
            let first = rest.split([' ', ',']).next().unwrap_or_default();
            if NO_VERBS.iter().any(|word| word.eq_ignore_ascii_case(first)) && !is_verb(rest) {
                found.push(format!("{what}: {help}"));
            }
        }
        command
            .get_subcommands()
            .filter(|it| !it.is_hide_set())
            .for_each(|it| without_verb(it, found));
    }

    /// Returns whether a word that may be either is a verb here.
    fn is_verb(help: &str) -> bool {
        let lower = help.to_lowercase();
        ["name the ", "name what ", "name this ", "seed "]
            .iter()
            .any(|words| lower.starts_with(words))
    }

    #[test]
    fn help__begins_with_a_verb_in_the_imperative() {
        let mut found = Vec::new();
        without_verb(&Arguments::command(), &mut found);
        assert!(found.is_empty(), "{}", found.join("\n"));
    }

    #[test]
    fn arguments__the_table_is_consistent() {
        Arguments::command().debug_assert();
    }
}
