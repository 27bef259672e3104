//! The OpenSHMEM program of a lab, and the tools of the installation that compile and start it.

use std::path::PathBuf;
use std::process::{Command, Stdio};

use super::c_program::CProgram;

/// The program.
pub(super) const PROGRAM: CProgram = CProgram { name: "puts", source: include_str!("puts.c") };
/// Its class, as SHMEM_CLASS names it: bulk, as timeslices and the cast.
pub(super) const CLASS: &str = "low";

/// Tools of the OpenSHMEM library that is installed with this program.
pub(super) struct ShmemTools {
    pub(super) oshcc: PathBuf,
    pub(super) oshrun: PathBuf,
}

/// Finds the tools, and compiles the program for a trial.
///
/// # Errors
/// One sentence: what is not installed, or what the compiler says.
pub(super) fn tried_tools() -> Result<ShmemTools, String> {
    let tools = tools()?;
    PROGRAM.try_compiler(&tools.oshcc).map(|()| tools)
}

/// Finds the tools.
///
/// # Errors
/// One sentence: what is not installed.
pub(super) fn tools() -> Result<ShmemTools, String> {
    let own = std::env::current_exe().map_err(|why| format!("no path of this program: {why}"))?;
    // Packages give the names an ending, because another library may have them.
    let found = ["", ".clearway"].into_iter().find_map(|ending| {
        let [oshcc, oshrun] =
            ["oshcc", "oshrun"].map(|tool| own.with_file_name(format!("{tool}{ending}")));
        (oshcc.is_file() && oshrun.is_file()).then_some(ShmemTools { oshcc, oshrun })
    });
    let tools = found.ok_or_else(|| {
        format!(
            "oshcc is not in the directory of {}; `cargo xtask install --prefix DIR` installs oshcc and oshrun with it",
            own.display()
        )
    })?;
    let compiler = Command::new(&tools.oshcc).arg("--version").stdin(Stdio::null()).output();
    match compiler {
        Ok(output) if output.status.success() => Ok(tools),
        _ => Err("there is no C compiler; install one, or name it in CLEARWAY_CC".to_owned()),
    }
}
