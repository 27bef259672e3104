//! The OpenSHMEM program of a lab: its source, and the tools of the installation that compile and start
//! it.

use std::fs::{self, DirBuilder};
use std::os::unix::fs::DirBuilderExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use anyhow::{Context, Result, bail};
use clearway_runtime::launch::escaped;

/// The program.
pub(super) const SOURCE: &str = include_str!("puts.c");
/// Its class, as SHMEM_CLASS names it: bulk, as timeslices and the cast.
pub(super) const CLASS: &str = "low";

/// Tools of the OpenSHMEM library that is installed beside this program.
pub(super) struct ShmemTools {
    oshcc: PathBuf,
    pub(super) oshrun: PathBuf,
}

/// Finds the tools, and compiles the program for a trial.
///
/// # Errors
/// One sentence: what is not installed, or what the compiler says.
pub(super) fn tried_tools() -> Result<ShmemTools, String> {
    let tools = tools()?;
    let name = format!("clearway-together-trial-{}", std::process::id());
    let directory = std::env::temp_dir().join(name);
    let made = DirBuilder::new().mode(0o700).create(&directory);
    made.map_err(|why| format!("{} cannot be made: {why}", directory.display()))?;
    let tried = tools.try_program(&directory);
    let _ = fs::remove_dir_all(&directory);
    tried.map(|()| tools)
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

impl ShmemTools {
    /// Compiles the program in `directory`.
    fn try_program(&self, directory: &Path) -> Result<(), String> {
        let source = directory.join("puts.c");
        fs::write(&source, SOURCE)
            .map_err(|why| format!("{} cannot be written: {why}", source.display()))?;
        let compiled = self.compile(&source, &directory.join("puts"));
        compiled.map_err(|why| reason(&format!("{why:#}")))
    }

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

/// Returns the line of what a compiler says that stands for all: its first error, else its first line.
fn reason(said: &str) -> String {
    let line = said.lines().find(|line| line.contains("error"));
    escaped(line.or_else(|| said.lines().next()).unwrap_or_default().trim())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reason__the_first_error_of_a_compiler_stands_for_all_that_it_says() {
        let said =
            "oshcc failed: In file included from puts.c:1:\na.h:2: fatal error: no\x1b file\nnote";
        assert_eq!(reason(said), "a.h:2: fatal error: no\\u{1b} file");
        assert_eq!(reason("oshcc failed: stopped\nlater"), "oshcc failed: stopped");
    }

    #[test]
    fn try_program__a_compiler_that_fails_is_a_reason() {
        let name = format!("clearway-together-puts-{}", std::process::id());
        let directory = std::env::temp_dir().join(name);
        fs::create_dir_all(&directory).expect("a directory");
        let tried = |oshcc: &str| {
            ShmemTools { oshcc: oshcc.into(), oshrun: PathBuf::new() }.try_program(&directory)
        };
        assert_eq!(tried("true"), Ok(()));
        assert!(tried("false").is_err_and(|why| why.starts_with("oshcc failed")));
        assert!(tried("/no/such/oshcc").is_err_and(|why| why.starts_with("oshcc cannot start")));
        fs::remove_dir_all(&directory).expect("removed");
    }
}
