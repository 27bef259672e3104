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
use std::ffi::OsString;
use std::fs::{self, DirBuilder};
use std::io::{self, Read};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::DirBuilderExt;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use super::remote::{RemoteProcess, ssh_command};
use super::rendezvous::frame;

/// The socket's name.
const SOCKET: &str = "s";
/// Longest path of the socket: that of an address (unix(7), 108 bytes with its end) without the 17
/// that ssh adds while it makes the socket.
const PATH_MAX: usize = 90;
/// How long a master may take to end.
pub(super) const END_TIMEOUT: Duration = Duration::from_secs(1);

/// Holds the connection to one host; its commands end before it is dropped.
#[derive(Debug)]
pub struct SshConnection {
    /// The lock lets threads share the connection.
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
        let opening = OpeningConnection::begin(ssh_command(program, connecting), &[], host)?;
        Ok(opening.finish())
    }

    /// Makes an [`ssh_command`] over this connection, to the host of it.
    pub fn command(&self, program: &str, connecting: Duration) -> Command {
        let mut ssh = ssh_command(program, connecting);
        self.carry(&mut ssh);
        ssh
    }

    /// Has `ssh`, which has no host yet, use this connection.
    pub(super) fn carry(&self, ssh: &mut Command) {
        if let Some(directory) = &self.directory {
            ssh.arg("-oControlMaster=no").arg(control_path(directory));
        }
    }

    /// Prints from now on what the master says, such as why the connection broke.
    pub(super) fn forward_output(&self) {
        self.lock().forward_output();
    }

    /// Prints nothing of what the master says any more.
    pub(super) fn stop_output(&self) {
        self.lock().stop_output();
    }

    /// Lets all masters end, which they do when their commands have ended, and kills those that have
    /// not within `timeout`: connections that are stuck do not delay this process one by one.
    pub(super) fn end_all(connections: Vec<Self>, timeout: Duration) {
        let until = Instant::now() + timeout;
        connections.iter().for_each(|connection| drop(connection.lock().input()));
        for connection in connections {
            // How it ended is no news.
            let left = until.saturating_duration_since(Instant::now());
            let _ = connection.lock().end_within(left);
        }
    }

    fn lock(&self) -> MutexGuard<'_, RemoteProcess> {
        self.master.lock().unwrap_or_else(PoisonError::into_inner)
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
        let _ = master.end_within(END_TIMEOUT);
        self.directory.iter().for_each(|directory| remove(directory));
    }
}

/// A connection whose master may still be on its way. Dropped before its end it leaves nothing.
#[derive(Debug)]
pub(super) struct OpeningConnection {
    master: Option<RemoteProcess>,
    directory: PathBuf,
    begun: Instant,
}

impl OpeningConnection {
    /// Starts `ssh` as the master, with `arguments` of its own behind those of the sharing: ssh takes
    /// the first value of an option. Does not wait. A signal of the terminal does not reach it.
    ///
    /// # Errors
    /// As [`SshConnection::open`].
    pub(super) fn begin(mut ssh: Command, arguments: &[OsString], host: &str) -> io::Result<Self> {
        let directory = new_directory()?;
        ssh.args(["-oControlMaster=yes", "-oControlPersist=no"]).arg(control_path(&directory));
        ssh.args(arguments).args([host, "exec cat"]).stdout(Stdio::piped()).process_group(0);
        // What it is given is a line without a secret, which comes back.
        match RemoteProcess::start(&mut ssh, host, &[]) {
            Ok(master) => Ok(Self { master: Some(master), directory, begun: Instant::now() }),
            Err(error) => {
                remove(&directory);
                Err(error)
            }
        }
    }

    /// Returns whether [`finish`](Self::finish) returns at once.
    pub(super) fn is_decided(&self) -> bool {
        self.master.as_ref().is_none_or(RemoteProcess::has_output)
    }

    /// Returns how long ago it began.
    pub(super) fn age(&self) -> Duration {
        self.begun.elapsed()
    }

    /// Waits for the connection. Returns the master instead, which is about to end, where ssh could
    /// not reach the host or run a command there.
    pub(super) fn finish(mut self) -> Result<SshConnection, RemoteProcess> {
        let mut master = self.master.take().expect("only this takes it");
        let is_there = master.read_exact(&mut [0]).is_ok();
        let is_shared = is_there && self.directory.join(SOCKET).exists();
        let directory = is_shared.then(|| std::mem::take(&mut self.directory));
        match is_there {
            true => Ok(SshConnection { master: Mutex::new(master), directory }),
            false => Err(master),
        }
    }
}

impl Drop for OpeningConnection {
    fn drop(&mut self) {
        // The master must not make its socket behind this.
        drop(self.master.take());
        if !self.directory.as_os_str().is_empty() {
            remove(&self.directory);
        }
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
