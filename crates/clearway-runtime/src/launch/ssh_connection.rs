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
use std::fs::{self, DirBuilder, File};
use std::io::{self, Read};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{DirBuilderExt, MetadataExt};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::{Mutex, MutexGuard, Once, PoisonError};
use std::time::{Duration, Instant};

use rustix::fs::{FlockOperation, Mode, OFlags};
use rustix::io::Errno;

use super::remote::{RemoteProcess, ssh_command};
use super::rendezvous::frame;

/// How the names of directories for sockets begin.
const PREFIX: &str = "clearway-ssh-";
/// A temporary directory can be long: this process looks once.
static LEFT_REMOVED: Once = Once::new();
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
    directory: Option<SocketDirectory>,
}

impl SshConnection {
    /// Commands that one connection carries in addition to the master's: a server takes 10 sessions
    /// in all (`MaxSessions` of OpenSSH).
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
            ssh.arg("-oControlMaster=no").arg(directory.option());
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
        self.directory.iter().for_each(SocketDirectory::remove);
    }
}

impl Drop for SshConnection {
    fn drop(&mut self) {
        // It removes its socket at its end; a connection that is stuck does not delay this process.
        let master = self.master.get_mut().unwrap_or_else(PoisonError::into_inner);
        let _ = master.end_within(END_TIMEOUT);
    }
}

/// A connection whose master may still be on its way. Dropped before its end it leaves nothing.
#[derive(Debug)]
pub(super) struct OpeningConnection {
    master: Option<RemoteProcess>,
    /// Absent once it is given away.
    directory: Option<SocketDirectory>,
    begun: Instant,
}

impl OpeningConnection {
    /// Starts `ssh` as the master, with `arguments` of its own behind those of the sharing: ssh takes
    /// the first value of an option. Does not wait. A signal of the terminal does not reach it.
    ///
    /// # Errors
    /// As [`SshConnection::open`].
    pub(super) fn begin(mut ssh: Command, arguments: &[OsString], host: &str) -> io::Result<Self> {
        let directory = SocketDirectory::new()?;
        ssh.args(["-oControlMaster=yes", "-oControlPersist=no"]).arg(directory.option());
        ssh.args(arguments).args([host, "exec cat"]).stdout(Stdio::piped()).process_group(0);
        // What it is given is a line without a secret, which comes back.
        let master = RemoteProcess::start(&mut ssh, host, &[])?;
        Ok(Self { master: Some(master), directory: Some(directory), begun: Instant::now() })
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
        let directory = self.directory.take().filter(|it| is_there && it.has_socket());
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
    }
}

/// The directory of the master's socket, which only this user may enter; it is removed when this is
/// dropped, or by a later process if this one is killed.
#[derive(Debug)]
struct SocketDirectory {
    path: PathBuf,
    /// Locked for as long as this process may use the directory; none where the file system has no
    /// locks, so that nobody removes what others left there.
    _lock: Option<File>,
}

impl SocketDirectory {
    /// Makes one of an unpredictable name, and removes those that killed processes of this user left.
    fn new() -> io::Result<Self> {
        let usual = env::temp_dir();
        let fits = |path: &Path| {
            let bytes = path.as_os_str().as_bytes();
            let plain = |byte: &u8| byte.is_ascii_alphanumeric() || b"/-_.+".contains(byte);
            let name = 1 + PREFIX.len() + 16 + SOCKET.len();
            bytes.len() + name < PATH_MAX && bytes.iter().all(plain)
        };
        let above = if fits(&usual) { usual } else { PathBuf::from("/tmp") };
        LEFT_REMOVED.call_once(|| remove_left(&above));
        loop {
            let random: [u8; 8] = frame::random().map_err(io::Error::other)?;
            let path = above.join(format!("{PREFIX}{:016x}", u64::from_le_bytes(random)));
            DirBuilder::new().mode(0o700).create(&path)?;
            match lock(&path) {
                // Another process took it for one that was left, and removes it.
                Ok(None) => {}
                locked => return Ok(Self { path, _lock: locked.ok().flatten() }),
            }
        }
    }

    /// Returns the option of ssh that names its socket.
    fn option(&self) -> String {
        format!("-oControlPath={}", self.path.join(SOCKET).display())
    }

    fn has_socket(&self) -> bool {
        self.path.join(SOCKET).exists()
    }

    fn remove(&self) {
        // Both may be gone; a directory that is left over is empty.
        let _ = fs::remove_file(self.path.join(SOCKET));
        let _ = fs::remove_dir(&self.path);
    }
}

impl Drop for SocketDirectory {
    fn drop(&mut self) {
        self.remove();
    }
}

/// Locks a directory of this user; `None` when another process has it, or it is not there any more.
fn lock(path: &Path) -> io::Result<Option<File>> {
    let flags = OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let opened = match rustix::fs::open(path, OFlags::RDONLY | flags, Mode::empty()) {
        Err(Errno::NOENT) => return Ok(None),
        opened => File::from(opened?),
    };
    match rustix::fs::flock(&opened, FlockOperation::NonBlockingLockExclusive) {
        Err(Errno::WOULDBLOCK) => return Ok(None),
        locked => locked?,
    }
    let found = opened.metadata()?;
    // It may have been removed before it was locked.
    let is_there = fs::symlink_metadata(path).is_ok_and(|now| now.ino() == found.ino());
    let is_own = found.uid() == rustix::process::geteuid().as_raw();
    Ok((is_there && is_own).then_some(opened))
}

/// Removes the empty directories of processes of this user that ended without removing them.
fn remove_left(above: &Path) {
    for entry in fs::read_dir(above).into_iter().flatten().flatten() {
        let is_one = entry.file_name().as_bytes().starts_with(PREFIX.as_bytes());
        if is_one && let Ok(Some(_locked)) = lock(&entry.path()) {
            // One with a socket stays: an ssh may still use it.
            let _ = fs::remove_dir(entry.path());
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn remove_left__empty_ones_without_a_process_and_no_others() {
        let above = env::temp_dir().join(format!("clearway-left-ssh-{}", std::process::id()));
        let path = |name: &str| above.join(name);
        for name in ["clearway-ssh-left", "clearway-ssh-used", "clearway-ssh-locked", "other"] {
            fs::create_dir_all(path(name)).expect("made");
        }
        fs::write(path("clearway-ssh-used").join(SOCKET), "").expect("made");
        fs::write(path("clearway-ssh-file"), "").expect("made");
        std::os::unix::fs::symlink(path("other"), path("clearway-ssh-link")).expect("made");
        let held = lock(&path("clearway-ssh-locked")).expect("opened").expect("free");
        remove_left(&above);
        let mut left: Vec<_> = fs::read_dir(&above)
            .expect("there")
            .map(|entry| entry.expect("read").file_name().into_string().expect("text"))
            .collect();
        left.sort();
        let expected =
            ["clearway-ssh-file", "clearway-ssh-link", "clearway-ssh-locked", "clearway-ssh-used"];
        assert_eq!(left, [&expected[..], &["other"]].concat());
        // A process that another test starts can have a copy of the file for a moment.
        rustix::fs::flock(&held, FlockOperation::Unlock).expect("unlocked");
        remove_left(&above);
        assert!(!path("clearway-ssh-locked").exists(), "its process is gone");
        fs::remove_dir_all(&above).expect("removed");
    }
}
