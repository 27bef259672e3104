//! The implementations of MPI that benches compare with, each by programs of its own.
//!
//! # Model
//! Where several are installed, `mpicc` and `mpirun` belong to the one that the system prefers, and
//! a program of one fails or runs as many jobs of one rank under the launcher of another. Only
//! names with an ending say which they are.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Result, ensure};

use super::hosts::are_there;

/// One implementation.
pub(super) struct Mpi {
    name: &'static str,
    compiler: &'static str,
    /// What starts its ranks.
    pub(super) launcher: &'static str,
}

/// Open MPI, as Debian and its relatives name its programs.
pub(super) const OPEN_MPI: Mpi =
    Mpi { name: "Open MPI", compiler: "mpicc.openmpi", launcher: "mpirun.openmpi" };
/// MPICH, likewise; Hydra is its launcher everywhere.
pub(super) const MPICH: Mpi =
    Mpi { name: "MPICH", compiler: "mpicc.mpich", launcher: "mpiexec.hydra" };

/// What lets Open MPI run for root.
pub(super) const OPEN_MPI_AS_ROOT: [(&str, &str); 2] =
    [("OMPI_ALLOW_RUN_AS_ROOT", "1"), ("OMPI_ALLOW_RUN_AS_ROOT_CONFIRM", "1")];

impl Mpi {
    /// Compiles `source` as the program `name` into `directory`; `None`, with a reason on standard
    /// error, where it could not be run either.
    pub(super) fn compile(&self, directory: &Path, name: &str, source: &str) -> Option<PathBuf> {
        self.compile_with(directory, name, source, &[])
    }

    /// As [`compile`](Self::compile), with further libraries behind the source.
    pub(super) fn compile_with(
        &self,
        directory: &Path,
        name: &str,
        source: &str,
        libraries: &[&str],
    ) -> Option<PathBuf> {
        if !are_there(self.name, &[self.compiler, self.launcher]) {
            return None;
        }
        let compiled = compile(self.compiler, directory, name, source, libraries);
        compiled
            .inspect_err(|error| {
                eprintln!("skipped: {}: {error:#}; it needs the library's headers", self.name)
            })
            .ok()
    }
}

fn compile(
    compiler: &str,
    directory: &Path,
    name: &str,
    source: &str,
    libraries: &[&str],
) -> Result<PathBuf> {
    fs::create_dir_all(directory)?;
    let (file, program) =
        (directory.join(format!("{name}.c")), directory.join(format!("{name}-{compiler}")));
    fs::write(&file, source)?;
    let output = Command::new(compiler)
        .args(["-O2", "-o"])
        .arg(&program)
        .arg(&file)
        .args(libraries)
        .output()?;
    ensure!(
        output.status.success(),
        "{compiler}: {}",
        String::from_utf8_lossy(&output.stderr).trim()
    );
    Ok(program)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sources__start_no_program_whose_name_two_implementations_share() {
        let benches = Path::new(env!("CARGO_MANIFEST_DIR")).join("src/bench");
        let sources: Vec<_> = fs::read_dir(benches)
            .expect("sources")
            .map(|entry| entry.expect("a file").path())
            .collect();
        assert!(sources.len() > 10, "{sources:?}");
        for file in sources {
            let text = fs::read_to_string(&file).expect("text");
            for shared in ["cc", "run", "exec"].map(|end| format!("\"mpi{end}\"")) {
                assert!(!text.contains(&shared), "{} starts {shared}", file.display());
            }
        }
    }
}
