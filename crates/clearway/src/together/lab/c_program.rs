//! The C programs of a lab, compiled where a library is installed.

use std::fs::{self, DirBuilder};
use std::os::unix::fs::DirBuilderExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use anyhow::{Context, Result, bail};
use clearway_runtime::clock;
use clearway_runtime::launch::escaped;

/// A program in C.
#[derive(Clone, Copy, Debug)]
pub(super) struct CProgram {
    pub(super) name: &'static str,
    pub(super) source: &'static str,
}

impl CProgram {
    /// Compiles it for a trial.
    ///
    /// # Errors
    /// One sentence: what the compiler says.
    pub(super) fn try_compiler(self, compiler: &Path) -> Result<(), String> {
        // In a container processes of later runs have the same number.
        let name = format!("clearway-together-{}-{:x}", std::process::id(), clock::now().0);
        let directory = std::env::temp_dir().join(name);
        let made = DirBuilder::new().mode(0o700).create(&directory);
        made.map_err(|why| format!("{} cannot be made: {why}", directory.display()))?;
        let tried = self.compile(compiler, &directory);
        let _ = fs::remove_dir_all(&directory);
        tried.map(|_| ()).map_err(|why| reason(&format!("{why:#}")))
    }

    /// Compiles it in `directory`, and returns the path of the program.
    pub(super) fn compile(self, compiler: &Path, directory: &Path) -> Result<PathBuf> {
        let [source, program] =
            [format!("{}.c", self.name), self.name.to_owned()].map(|name| directory.join(name));
        fs::write(&source, self.source)
            .with_context(|| format!("{} cannot be written", source.display()))?;
        let tool = compiler.file_name().unwrap_or_default().display();
        let mut command = Command::new(compiler);
        command.args(["-std=gnu11", "-O2", "-o"]).arg(&program).arg(&source);
        let output = command.stdin(Stdio::null()).output();
        let output = output.with_context(|| format!("{tool} cannot start"))?;
        if !output.status.success() {
            bail!("{tool} failed: {}", String::from_utf8_lossy(&output.stderr).trim());
        }
        Ok(program)
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
    fn try_compiler__a_compiler_that_fails_is_a_reason() {
        let program = CProgram { name: "sample", source: "" };
        let tried = |compiler: &str| program.try_compiler(Path::new(compiler));
        assert_eq!(tried("true"), Ok(()));
        assert!(tried("false").is_err_and(|why| why.starts_with("false failed")));
        assert!(tried("/no/such/oshcc").is_err_and(|why| why.starts_with("oshcc cannot start")));
    }
}
