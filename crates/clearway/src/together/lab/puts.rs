//! The OpenSHMEM program of a lab: its source, and the tools of the installation that compile and start
//! it.

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use anyhow::{Context, Result, bail};

/// The program.
pub(super) const SOURCE: &str = include_str!("puts.c");
/// Its class, as SHMEM_CLASS names it: bulk, as timeslices and the cast.
pub(super) const CLASS: &str = "low";

/// Tools of the OpenSHMEM library that is installed beside this program.
pub(super) struct ShmemTools {
    oshcc: PathBuf,
    pub(super) oshrun: PathBuf,
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
            "oshcc is not beside {}; `cargo xtask install --prefix DIR` installs oshcc and oshrun with it",
            own.display()
        )
    })?;
    let compiler = Command::new(&tools.oshcc).arg("--version").stdin(Stdio::null()).output();
    match compiler {
        Ok(output) if output.status.success() => Ok(tools),
        _ => Err("there is no C compiler; install one, or name it in CLEARWAY_CC".to_owned()),
    }
}

impl ShmemTools {
    /// Compiles a program.
    pub(super) fn compile(&self, source: &Path, program: &Path) -> Result<()> {
        let mut command = Command::new(&self.oshcc);
        command.args(["-std=gnu11", "-O2", "-o"]).arg(program).arg(source);
        let output = command.stdin(Stdio::null()).output().context("oshcc cannot start")?;
        if !output.status.success() {
            bail!("oshcc failed: {}", String::from_utf8_lossy(&output.stderr).trim());
        }
        Ok(())
    }
}
