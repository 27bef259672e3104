//! What has to be done when a bench ends, however it ends.

use std::ffi::OsStr;
use std::path::Path;
use std::process::{Child, Command, Stdio};

use anyhow::{Context, Result};

/// Waits for the end of its input, deaf to what ends the bench from a terminal, and then does what
/// it is for.
const SCRIPT: &str = "trap '' HUP INT TERM; cat; exec \"$@\"";

/// A command that runs when this value ends, or the process that has it.
pub(super) struct Afterwards(Child);

impl Afterwards {
    /// `program` with `arguments`.
    pub(super) fn run(program: &Path, arguments: &[impl AsRef<OsStr>]) -> Result<Self> {
        let mut shell = Command::new("sh");
        shell.args(["-c", SCRIPT, "sh"]).arg(program).args(arguments);
        // The pipe ends with this process, whatever ends that.
        shell.stdin(Stdio::piped()).stdout(Stdio::null()).stderr(Stdio::null());
        shell.spawn().map(Self).context("a shell that cleans up")
    }
}

impl Drop for Afterwards {
    fn drop(&mut self) {
        drop(self.0.stdin.take());
        let _ = self.0.wait();
    }
}

#[cfg(test)]
#[allow(non_snake_case)] // tests are named function__case
mod tests {
    use super::*;

    #[test]
    fn run__what_is_for_the_end_is_done_then_and_not_before() {
        let path = std::env::temp_dir().join(format!("clearway-afterwards-{}", std::process::id()));
        std::fs::create_dir_all(&path).expect("a directory");
        let afterwards = Afterwards::run(Path::new("rmdir"), &[&path]).expect("a shell");
        assert!(path.exists());
        drop(afterwards);
        assert!(!path.exists());
    }
}
