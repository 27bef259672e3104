//! Completions and man pages, from the same table as the command line.
//!
//! # Model
//! A completion script is made of a copy of the table: without commands and flags that are hidden,
//! and with the words that a flag knows as its possible values, which the command line itself reads
//! in other ways. Where a file may stand in place of a word, the script offers both.

use std::any::TypeId;
use std::fs;
use std::io::Write;
use std::path::Path;

use anyhow::{Context, Result};
use clap::builder::PossibleValuesParser;
use clap::{Arg, Command};
use clap_complete::Shell;
use clap_mangen::Man;
use clearway_lab::QueueKind;
use clearway_proto::base::Class;
use clearway_proto::congestion::{CongestorKind, VictimKind};
use clearway_proto::timeslice::Policy;
use clearway_sim::spec::presets;

use super::pages::{self, CommandPage};
use crate::run::exit::Exit;
use crate::run::job::TopologySource;
use crate::scenario::shipped_names;

/// Prints the completion script of `shell`.
pub(crate) fn completions(shell: Shell) -> Result<Exit> {
    super::print(&script(shell))?;
    Ok(Exit::Good)
}

pub(super) fn script(shell: Shell) -> String {
    let mut table = offered(&pages::table());
    let mut script = Vec::new();
    clap_complete::generate(shell, &mut table, "clearway", &mut script);
    let script = String::from_utf8_lossy(&script).into_owned();
    names_or_files(script, shell)
}

/// Returns a copy of `command` for completions.
fn offered(command: &Command) -> Command {
    let arguments = command.get_arguments().filter(|argument| !argument.is_hide_set());
    let parts = command.get_subcommands().filter(|part| !part.is_hide_set());
    let copy = Command::new(command.get_name().to_owned());
    let copy = match command.get_about() {
        Some(about) => copy.about(about.clone()),
        None => copy,
    };
    copy.args(arguments.cloned().map(with_names)).subcommands(parts.map(offered))
}

/// Returns `argument` with the words that it takes, if the program knows them.
fn with_names(argument: Arg) -> Arg {
    let names = names_of(&argument);
    if names.is_empty() {
        return argument;
    }
    argument.value_parser(PossibleValuesParser::new(names))
}

pub(super) fn names_of(argument: &Arg) -> Vec<String> {
    let kind = argument.get_value_parser().type_id();
    let named = |names: &[&str]| names.iter().map(|name| (*name).to_owned()).collect();
    if kind == TypeId::of::<Class>() {
        return named(&Class::ALL.map(Class::name));
    } else if kind == TypeId::of::<QueueKind>() {
        return named(&QueueKind::ALL.map(QueueKind::name));
    } else if kind == TypeId::of::<VictimKind>() {
        return named(&VictimKind::ALL.map(VictimKind::name));
    } else if kind == TypeId::of::<CongestorKind>() {
        return named(&CongestorKind::ALL.map(CongestorKind::name));
    } else if kind == TypeId::of::<Policy>() {
        let building = Policy::ALL.into_iter().filter(|policy| policy.is_building());
        return building.map(|policy| policy.name().to_owned()).collect();
    }
    match argument.get_id().as_str() {
        "scenario" => scenarios(),
        "fabric" | "base" => fabrics(),
        "topology" => topologies(),
        "queue" | "queues" => named(&QueueKind::ALL.map(QueueKind::name)),
        "sizes" => named(&["constant", "poisson", "skewed"]),
        _ => Vec::new(),
    }
}

fn scenarios() -> Vec<String> {
    shipped_names().split(", ").map(str::to_owned).collect()
}

fn fabrics() -> Vec<String> {
    presets::names().into_iter().map(str::to_owned).collect()
}

fn topologies() -> Vec<String> {
    TopologySource::WORDS.map(str::to_owned).to_vec()
}

/// Lets `script` offer files in addition to the known names.
fn names_or_files(mut script: String, shell: Shell) -> String {
    let all = [
        ("scenario", "shipped", scenarios()),
        ("fabric", "shipped", fabrics()),
        ("topology", "known", topologies()),
    ];
    for (what, which, names) in all {
        let joined = names.join(" ");
        match shell {
            Shell::Bash => {
                let words = format!("compgen -W \"{joined}\"");
                script = script.replace(&words, &format!("compgen -f -W \"{joined}\""));
            }
            Shell::Zsh => {
                let function = format!("_clearway_{what}");
                script = script.replace(&format!("({joined})'"), &format!("{function}'"));
                let begin = script.find('\n').map_or(0, |end| end + 1);
                let text = format!(
                    "\n(( $+functions[{function}] )) ||\n{function}() {{\n    \
                     _alternative 'names:{which} {what}:({joined})' 'files:file:_files'\n}}\n"
                );
                script.insert_str(begin, &text);
            }
            Shell::Fish => {
                let words =
                    names.iter().map(|name| format!("{name}\\t''")).collect::<Vec<_>>().join("\n");
                let [names_only, with_files] =
                    ["-f", "-F"].map(|files| format!("-r {files} -a \"{words}\""));
                script = script.replace(&names_only, &with_files);
            }
            _ => {}
        }
    }
    if shell == Shell::Fish {
        script.push_str(&fish_positionals());
    }
    script
}

/// Returns lines that offer the names of what is shipped to commands that take one without a flag,
/// for which the generator writes none.
fn fish_positionals() -> String {
    let lines = [
        ("run", "", scenarios()),
        ("topo", "; and __fish_seen_subcommand_from explain check print", fabrics()),
    ];
    let line = |(command, then, names): (&str, &str, Vec<String>)| {
        let names = names.join(" ");
        format!(
            "complete -c clearway -n \"__fish_clearway_using_subcommand {command}{then}\" -a \"{names}\"\n"
        )
    };
    lines.map(line).concat()
}

/// Prints the main man page, or writes one page for each command into `dir`.
pub(crate) fn man(dir: Option<&Path>) -> Result<Exit> {
    let mut table = pages::table().disable_help_subcommand(true);
    table.build();
    match dir {
        None => {
            let page = man_page(&table, "").context("cannot make the man page")?;
            super::print(&String::from_utf8_lossy(&page))?;
        }
        Some(dir) => {
            fs::create_dir_all(dir)
                .with_context(|| format!("{}: cannot be made", dir.display()))?;
            write_pages(&table, "", dir)
                .with_context(|| format!("{}: cannot write man pages", dir.display()))?;
        }
    }
    Ok(Exit::Good)
}

/// Writes the pages of `command`, whose words are `words`, and of all below it.
fn write_pages(command: &Command, words: &str, dir: &Path) -> std::io::Result<()> {
    let file = dir.join(Man::new(command.clone()).get_filename());
    fs::write(file, man_page(command, words)?)?;
    for part in command.get_subcommands().filter(|part| !part.is_hide_set()) {
        write_pages(part, &pages::joined(words, part.get_name()), dir)?;
    }
    Ok(())
}

/// Returns the page of `command`, whose words are `words`.
pub(super) fn man_page(command: &Command, words: &str) -> std::io::Result<Vec<u8>> {
    let mut page = Vec::new();
    let man = Man::new(command.clone());
    man.render_title(&mut page)?;
    man.render_name_section(&mut page)?;
    man.render_synopsis_section(&mut page)?;
    man.render_description_section(&mut page)?;
    man.render_options_section(&mut page)?;
    if command.get_subcommands().any(|part| !part.is_hide_set()) {
        man.render_subcommands_section(&mut page)?;
    }
    if let Some(extra) = CommandPage::find(words) {
        page.write_all(extra.roff().as_bytes())?;
    }
    if command.get_version().is_some() {
        man.render_version_section(&mut page)?;
    }
    Ok(page)
}
