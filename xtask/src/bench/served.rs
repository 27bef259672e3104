//! A staging server of a bench and its mounts, on hosts of a lab.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};

use super::budget::private;

/// How long a server may take to listen.
const TIMEOUT: Duration = Duration::from_secs(20);
const LOOK_EVERY: Duration = Duration::from_millis(20);

/// A server and its mounts, which end with this value: mounts first.
pub(super) struct ServedMounts<'a> {
    program: &'a Path,
    place: &'a Path,
    address: String,
    server: Child,
    pub(super) mounts: Vec<PathBuf>,
}

impl Drop for ServedMounts<'_> {
    fn drop(&mut self) {
        for mount in &self.mounts {
            let _ = Command::new(self.program).arg("umount").arg(mount).status();
        }
        let _ = Command::new("kill").arg(self.server.id().to_string()).status();
        let _ = self.server.wait();
    }
}

impl<'a> ServedMounts<'a> {
    /// Starts a server with its files in `place`, by `command`, which runs the program on a host, and
    /// waits until it listens at `address`.
    pub(super) fn up(
        program: &'a Path,
        place: &'a Path,
        address: String,
        mut command: Command,
        flags: &[&str],
    ) -> Result<Self> {
        for name in ["log", "store"] {
            fs::create_dir_all(place.join(name))?;
        }
        let (key, errors) = (place.join("key"), place.join("errors"));
        private(&key)?;
        command.args(["stage", "serve", "--listen", &address]).args(flags).arg("--key").arg(&key);
        command.arg("--data").arg(place.join("log")).arg("--backing").arg(place.join("store"));
        quiet(&mut command, &errors)?;
        let server = command.spawn().context("a server")?;
        let served = Self { program, place, address, server, mounts: Vec::new() };
        let until = Instant::now() + TIMEOUT;
        while !fs::read_to_string(&errors)?.contains(" at ") {
            ensure!(Instant::now() < until, "the server does not listen");
            thread::sleep(LOOK_EVERY);
        }
        Ok(served)
    }

    /// Mounts it once more, by `command`, which runs the program on a host.
    pub(super) fn mount(&mut self, mut command: Command, flags: &[&str]) -> Result<()> {
        let mount = self.place.join(format!("mount{}", self.mounts.len()));
        fs::create_dir_all(&mount)?;
        command.args(["mount", &self.address]).arg(&mount).args(flags);
        command.arg("--key").arg(self.place.join("key"));
        quiet(&mut command, &mount.with_extension("errors"))?;
        ensure!(command.status()?.success(), "{} is not mounted", mount.display());
        self.mounts.push(mount);
        Ok(())
    }
}

/// Gives a command no input, and a file for what it says.
fn quiet(command: &mut Command, errors: &Path) -> Result<()> {
    let file = fs::File::create(errors)?;
    command.stdin(Stdio::null()).stdout(file.try_clone()?).stderr(file);
    Ok(())
}
