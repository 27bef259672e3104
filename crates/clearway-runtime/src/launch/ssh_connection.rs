//! Shares one connection of ssh to a host among several commands there.
//!
//! # Model
//! OpenSSH multiplexes: a first ssh, the master, listens at a socket in a directory that only this
//! user may enter, and further ones run their commands over its connection. The master's own command
//! on the host is `cat`: its first byte says that the socket is there, and it ends when this process
//! does, however that ends.
//!
//! # Invariants
//! I1. An ssh that cannot share, or a path that its socket cannot have, costs a connection for each
//!     command and no more.

use std::env;
use std::fs::{self, DirBuilder};
use std::io::{self, Read};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::DirBuilderExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use super::remote::{RemoteProcess, ssh_command};
use super::rendezvous::frame;

/// The socket's name.
const SOCKET: &str = "s";
/// Longest path of the socket: that of an address (unix(7), 108 bytes with its end) without the 17
/// that ssh adds while it makes the socket.
const PATH_MAX: usize = 90;

/// Holds the connection to one host; its commands end before it is dropped.
#[derive(Debug)]
pub struct SshConnection {
    /// Looked at by nobody before its end; the lock lets threads share the connection.
    master: Mutex<RemoteProcess>,
    /// Absent where nothing is shared.
    directory: Option<PathBuf>,
}

impl SshConnection {
    /// Commands that one connection carries beside the master's: a server takes 10 sessions in all
    /// (`MaxSessions` of OpenSSH).
    pub const COMMANDS_MAX: usize = 9;

    /// Connects to `host` with the ssh at `program`, which gives up after `connecting` as
    /// [`ssh_command`] does. Returns the master instead, which is about to end, where ssh could not
    /// reach the host or run a command there.
    ///
    /// # Errors
    /// The system has no such program, no process for it, or no directory for a socket.
    pub fn open(
        program: &str,
        host: &str,
        connecting: Duration,
    ) -> io::Result<Result<Self, RemoteProcess>> {
        let directory = new_directory()?;
        let mut ssh = ssh_command(program, connecting);
        ssh.args(["-oControlMaster=yes", "-oControlPersist=no"]).arg(control_path(&directory));
        ssh.args([host, "exec cat"]).stdout(Stdio::piped());
        // What it is given is a line without a secret, which comes back.
        let started = RemoteProcess::start(&mut ssh, host, &[]);
        let mut master = started.inspect_err(|_| remove(&directory))?;
        let is_there = master.read_exact(&mut [0]).is_ok();
        let is_shared = is_there && directory.join(SOCKET).exists();
        if !is_shared {
            remove(&directory);
        }
        Ok(if is_there {
            Ok(Self { master: Mutex::new(master), directory: is_shared.then_some(directory) })
        } else {
            Err(master)
        })
    }

    /// Makes an [`ssh_command`] over this connection, to the host of it.
    pub fn command(&self, program: &str, connecting: Duration) -> Command {
        let mut ssh = ssh_command(program, connecting);
        if let Some(directory) = &self.directory {
            ssh.arg("-oControlMaster=no").arg(control_path(directory));
        }
        ssh
    }

    /// Removes the socket, when all commands have begun: this process may end without more ado.
    pub fn seal(&self) {
        self.directory.iter().for_each(|directory| remove(directory));
    }
}

impl Drop for SshConnection {
    fn drop(&mut self) {
        // It removes its socket at its end; a connection that is stuck does not delay this process.
        let master = self.master.get_mut().unwrap_or_else(PoisonError::into_inner);
        let _ = master.end_within(Duration::from_secs(1));
        self.directory.iter().for_each(|directory| remove(directory));
    }
}

/// Makes a directory that only this user may enter, of an unpredictable name.
fn new_directory() -> io::Result<PathBuf> {
    let random: [u8; 8] = frame::random().map_err(io::Error::other)?;
    let name = format!("clearway-ssh-{:016x}", u64::from_le_bytes(random));
    let usual = env::temp_dir().join(&name);
    let fits = |path: &Path| {
        let bytes = path.as_os_str().as_bytes();
        let plain = |byte: &u8| byte.is_ascii_alphanumeric() || b"/-_.+".contains(byte);
        bytes.len() + SOCKET.len() < PATH_MAX && bytes.iter().all(plain)
    };
    let path = if fits(&usual) { usual } else { Path::new("/tmp").join(name) };
    DirBuilder::new().mode(0o700).create(&path).map(|()| path)
}

fn remove(directory: &Path) {
    // Both may be gone; a directory that is left over is empty.
    let _ = fs::remove_file(directory.join(SOCKET));
    let _ = fs::remove_dir(directory);
}

fn control_path(directory: &Path) -> String {
    format!("-oControlPath={}", directory.join(SOCKET).display())
}
