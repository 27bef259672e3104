//! Completions and man pages, from the same table as the command line.

use std::fs;
use std::path::Path;

use anyhow::{Context, Result};
use clap::CommandFactory;
use clap_complete::Shell;

use super::Arguments;
use crate::run::exit::Exit;

/// Prints the completion script of `shell`.
pub(crate) fn completions(shell: Shell) -> Result<Exit> {
    let mut script = Vec::new();
    clap_complete::generate(shell, &mut Arguments::command(), "clearway", &mut script);
    super::print(&String::from_utf8_lossy(&script))?;
    Ok(Exit::Good)
}

/// Prints the main man page, or writes one page for each command into `dir`.
pub(crate) fn man(dir: Option<&Path>) -> Result<Exit> {
    match dir {
        None => {
            let mut page = Vec::new();
            clap_mangen::Man::new(Arguments::command())
                .render(&mut page)
                .context("cannot make the man page")?;
            super::print(&String::from_utf8_lossy(&page))?;
        }
        Some(dir) => {
            fs::create_dir_all(dir)
                .with_context(|| format!("{}: cannot be made", dir.display()))?;
            clap_mangen::generate_to(Arguments::command(), dir)
                .with_context(|| format!("{}: cannot write man pages", dir.display()))?;
        }
    }
    Ok(Exit::Good)
}
