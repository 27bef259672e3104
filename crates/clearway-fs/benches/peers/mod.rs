//! Mounts of other programs on this machine, for small files: sshfs and rclone, each with a directory
//! here behind it.
//!
//! # Model
//! sshfs talks to an sftp server through a pipe, without a network and without encryption, so that it
//! is as fast as it can be. rclone gets `--vfs-cache-mode writes`.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use crate::BenchResult;

/// Where distributions keep the server that OpenSSH starts.
const SFTP_SERVERS: [&str; 3] = [
    "/usr/lib/openssh/sftp-server",
    "/usr/libexec/openssh/sftp-server",
    "/usr/lib/ssh/sftp-server",
];
const PEERS: [&str; 2] = ["sshfs", "rclone"];
/// Longest time until a mount is there.
const START: Duration = Duration::from_secs(10);

/// A mounted peer, which ends with this value.
pub(crate) struct PeerMount {
    pub(crate) name: &'static str,
    pub(crate) directory: PathBuf,
    program: Child,
}

impl PeerMount {
    /// Mounts `name` below `place`; `None` where the program is not installed.
    fn open(name: &'static str, place: &Path) -> BenchResult<Option<Self>> {
        let [behind, directory, cache] =
            ["behind", "mount", "cache"].map(|part| place.join(format!("{name}-{part}")));
        for part in [&behind, &directory, &cache] {
            fs::create_dir_all(part)?;
        }
        let mut command = Command::new(name);
        if name == "sshfs" {
            let installed = |path: &&&str| Path::new(path).exists();
            let Some(server) = SFTP_SERVERS.iter().find(installed) else { return Ok(None) };
            let script = place.join("sftp");
            fs::write(&script, format!("#!/bin/sh\nexec {server}\n"))?;
            fs::set_permissions(&script, fs::Permissions::from_mode(0o755))?;
            let start = format!("ssh_command={}", script.display());
            command.arg(format!("here:{}", behind.display())).arg(&directory);
            command.args(["-f", "-o", &start]);
        } else {
            command.args(["mount", "--vfs-cache-mode", "writes", "--config", "/dev/null"]);
            command.arg("--cache-dir").arg(&cache);
            command.arg(format!(":local:{}", behind.display())).arg(&directory);
        }
        command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
        let Ok(program) = command.spawn() else { return Ok(None) };
        let mut peer = Self { name, directory, program };
        let begun = Instant::now();
        while !peer.is_mounted()? {
            if begun.elapsed() > START || peer.program.try_wait()?.is_some() {
                return Err(format!("{name} did not mount within {START:?}").into());
            }
            std::thread::sleep(Duration::from_millis(20));
        }
        Ok(Some(peer))
    }

    /// Mounts all peers that are installed.
    pub(crate) fn open_all(place: &Path) -> BenchResult<Vec<Self>> {
        PEERS.into_iter().filter_map(|name| Self::open(name, place).transpose()).collect()
    }

    fn is_mounted(&self) -> BenchResult<bool> {
        let mounts = fs::read_to_string("/proc/self/mounts")?;
        let here = self.directory.to_string_lossy();
        Ok(mounts.lines().any(|line| line.split(' ').nth(1) == Some(here.as_ref())))
    }
}

impl Drop for PeerMount {
    fn drop(&mut self) {
        let unmount = Command::new("umount").arg(&self.directory).stderr(Stdio::null()).status();
        if !unmount.is_ok_and(|status| status.success()) {
            let _ = self.program.kill();
        }
        let _ = self.program.wait();
    }
}
