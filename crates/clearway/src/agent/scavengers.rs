//! The Unix socket of an agent, and the scavengers that are connected to it.
//!
//! # Model
//! Messages are datagrams of one length over connections (SOCK_SEQPACKET). Every local user may
//! connect. The agent waits for none: what a scavenger does not read ends its connection, and so do a
//! wrong message and a flood.

use std::fs::{self, DirBuilder, Permissions};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::fs::{DirBuilderExt, FileTypeExt, MetadataExt, PermissionsExt};
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, bail};
use clearway_proto::base::{BitsPerSec, Bytes, LocalNs};
use clearway_proto::flow::{
    AGENT_MESSAGE_BYTES, AgentAnswer, AgentDemand, NodeAgent, SCAVENGERS_MAX, TokenBucket,
};
use clearway_runtime::clock;
use clearway_runtime::launch::escaped;
use rustix::net::sockopt::socket_peercred;
use rustix::net::{
    AddressFamily, RecvFlags, SendFlags, SocketAddrUnix, SocketFlags, SocketType, accept_with,
    bind, connect, listen, recv, send, socket_with,
};

/// Connections that wait to be accepted.
const BACKLOG: i32 = 16;
/// Connections that are accepted before something else is looked at.
const ACCEPTED_AT_ONCE: usize = 16;
/// Connections of one user but root: a quarter of all.
pub(super) const USER_MAX: usize = SCAVENGERS_MAX / 4;
/// Messages of a connection in a second, and at once: a scavenger sends one when its demand changes.
const MESSAGES: u64 = 50;
const MESSAGES_AT_ONCE: u64 = 100;

/// A connected scavenger.
struct ScavengerLink {
    name: u64,
    socket: OwnedFd,
    user: u32,
    messages: TokenBucket,
}

/// The socket, and all connections.
pub(super) struct ScavengerSocket {
    path: PathBuf,
    /// The file's device and number: another agent's is not removed.
    file: (u64, u64),
    listener: OwnedFd,
    links: Vec<ScavengerLink>,
    names: u64,
    /// Connections that were ended for a wrong message, a flood, or since they did not read.
    pub(super) ended: u64,
    /// Connections without a place.
    pub(super) refused: u64,
}

impl ScavengerSocket {
    /// Opens the socket, in place of that of a dead agent.
    ///
    /// # Errors
    /// One sentence: another agent listens there, or there can be no socket.
    pub(super) fn open(path: &Path) -> Result<Self> {
        let shown = escaped(&path.display().to_string());
        let directory = path.parent().filter(|it| !it.as_os_str().is_empty());
        if let Some(directory) = directory {
            open_directory(directory)?;
        }
        let address = SocketAddrUnix::new(path).with_context(|| {
            format!("{shown} is no path of a socket; give a shorter one with --socket")
        })?;
        take_over(path, &address, &shown)?;
        let listener = new_socket(SocketFlags::NONBLOCK)?;
        let made = || -> std::io::Result<(u64, u64)> {
            bind(&listener, &address)?;
            fs::set_permissions(path, Permissions::from_mode(0o666))?;
            listen(&listener, BACKLOG)?;
            let file = fs::symlink_metadata(path)?;
            Ok((file.dev(), file.ino()))
        };
        let file = made().with_context(|| {
            format!("the socket {shown} cannot be made; give another path with --socket")
        })?;
        let path = path.to_owned();
        Ok(Self { path, file, listener, links: Vec::new(), names: 0, ended: 0, refused: 0 })
    }

    /// Returns what is to be waited for: the listener first.
    pub(super) fn descriptors(&self) -> impl Iterator<Item = BorrowedFd<'_>> {
        std::iter::once(self.listener.as_fd())
            .chain(self.links.iter().map(|link| link.socket.as_fd()))
    }

    /// Takes new connections. One without a place gets a refusal, and its end.
    pub(super) fn accept(&mut self) {
        for _ in 0..ACCEPTED_AT_ONCE {
            let flags = SocketFlags::NONBLOCK | SocketFlags::CLOEXEC;
            let Ok(socket) = accept_with(&self.listener, flags) else { return };
            let user = socket_peercred(&socket).map_or(u32::MAX, |peer| peer.uid.as_raw());
            let of_user = self.links.iter().filter(|link| link.user == user).count();
            if self.links.len() >= SCAVENGERS_MAX || (user != 0 && of_user >= USER_MAX) {
                self.refused += 1;
                let flags = SendFlags::NOSIGNAL | SendFlags::DONTWAIT;
                let _ = send(&socket, &AgentAnswer::Full.encode(), flags);
                continue;
            }
            self.names += 1;
            let messages =
                TokenBucket::new(BitsPerSec(MESSAGES * 8), Bytes(MESSAGES_AT_ONCE), clock::now());
            self.links.push(ScavengerLink { name: self.names, socket, user, messages });
        }
    }

    /// Takes what scavengers say.
    pub(super) fn receive(&mut self, now: LocalNs, agent: &mut NodeAgent) {
        let ended = &mut self.ended;
        self.links.retain_mut(|link| match link.receive(now, agent) {
            LinkEnd::None => true,
            LinkEnd::Left => {
                agent.leave(now, link.name);
                false
            }
            LinkEnd::Fault => {
                *ended += 1;
                agent.leave(now, link.name);
                false
            }
        });
    }

    /// Sends the grants that are due.
    pub(super) fn send(&mut self, now: LocalNs, agent: &mut NodeAgent) {
        while let Some((name, grant)) = agent.grant(now) {
            let Some(place) = self.links.iter().position(|link| link.name == name) else {
                continue;
            };
            let is_sent =
                self.links.get(place).is_some_and(|link| link.send(&AgentAnswer::Granted(grant)));
            if !is_sent {
                self.ended += 1;
                self.links.swap_remove(place);
                agent.leave(now, name);
            }
        }
    }

    /// Says to all that the agent ends, and removes the socket.
    pub(super) fn close(self) {
        for link in &self.links {
            link.send(&AgentAnswer::Ends);
        }
        let is_own = |file: fs::Metadata| (file.dev(), file.ino()) == self.file;
        if fs::symlink_metadata(&self.path).is_ok_and(is_own) {
            let _ = fs::remove_file(&self.path);
        }
    }
}

/// How a connection ended.
enum LinkEnd {
    None,
    Left,
    Fault,
}

impl ScavengerLink {
    fn receive(&mut self, now: LocalNs, agent: &mut NodeAgent) -> LinkEnd {
        loop {
            // A longer message is cut, and has another length.
            let mut bytes = [0; AGENT_MESSAGE_BYTES + 1];
            let length = match recv(&self.socket, &mut bytes, RecvFlags::DONTWAIT) {
                Ok((0, _)) => return LinkEnd::Left,
                Ok((length, _)) => length,
                Err(rustix::io::Errno::AGAIN | rustix::io::Errno::INTR) => return LinkEnd::None,
                Err(_) => return LinkEnd::Left,
            };
            let demand = bytes.get(..length).and_then(AgentDemand::decode);
            let (Some(AgentDemand(demand)), Ok(())) = (demand, self.messages.take(now, Bytes(1)))
            else {
                return LinkEnd::Fault;
            };
            if let Err(full) = agent.demand(now, self.name, self.user, demand) {
                self.send(&full);
                return LinkEnd::Left;
            }
        }
    }

    /// Sends a message; false if there is no room for it.
    fn send(&self, answer: &AgentAnswer) -> bool {
        let flags = SendFlags::NOSIGNAL | SendFlags::DONTWAIT;
        send(&self.socket, &answer.encode(), flags).is_ok()
    }
}

fn new_socket(flags: SocketFlags) -> Result<OwnedFd> {
    let flags = flags | SocketFlags::CLOEXEC;
    socket_with(AddressFamily::UNIX, SocketType::SEQPACKET, flags, None)
        .context("the system has no room for a socket")
}

/// Makes the directory of the socket if it is missing, and lets every user pass the usual one.
fn open_directory(directory: &Path) -> Result<()> {
    let shown = escaped(&directory.display().to_string());
    match DirBuilder::new().mode(0o711).create(directory) {
        Err(why) if why.kind() != std::io::ErrorKind::AlreadyExists => {
            return Err(why).with_context(|| {
                format!("the directory {shown} cannot be made; give another path with --socket")
            });
        }
        _ => {}
    }
    let is_usual = Path::new(super::client::SOCKET).parent() == Some(directory);
    let found =
        fs::symlink_metadata(directory).with_context(|| format!("{shown} cannot be used"))?;
    let mode = found.permissions().mode();
    if is_usual && found.is_dir() && mode & 0o011 != 0o011 {
        // A mount of root makes it for itself; its own sockets are closed to others.
        fs::set_permissions(directory, Permissions::from_mode(mode & 0o7777 | 0o011))
            .with_context(|| format!("{shown} cannot be opened to other users"))?;
    }
    Ok(())
}

/// Removes the socket of an agent that is dead.
fn take_over(path: &Path, address: &SocketAddrUnix, shown: &str) -> Result<()> {
    let Ok(found) = fs::symlink_metadata(path) else { return Ok(()) };
    if !found.file_type().is_socket() {
        bail!("{shown} is there and no socket; give another path with --socket");
    }
    // A full queue of connections also means that somebody lives.
    if connect(new_socket(SocketFlags::NONBLOCK)?, address) != Err(rustix::io::Errno::CONNREFUSED) {
        bail!("another agent listens at {shown}; stop it, or give another path with --socket");
    }
    fs::remove_file(path)
        .with_context(|| format!("the socket {shown} of a dead agent cannot be removed"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use clearway_proto::base::Nanos;

    const LINK: BitsPerSec = BitsPerSec(1_000_000);

    fn place(name: &str) -> PathBuf {
        let place = format!("clearway-agent-{name}-{}.socket", std::process::id());
        let path = std::env::temp_dir().join(place);
        let _ = fs::remove_file(&path);
        path
    }

    fn call(path: &Path) -> OwnedFd {
        let socket = new_socket(SocketFlags::empty()).expect("a socket");
        connect(&socket, &SocketAddrUnix::new(path).expect("a path")).expect("it listens");
        socket
    }

    fn say(socket: &OwnedFd, bytes: &[u8]) {
        send(socket, bytes, SendFlags::NOSIGNAL).expect("it is taken");
    }

    /// Returns the next message; none at the end of the connection.
    fn hear(socket: &OwnedFd) -> Option<AgentAnswer> {
        let mut bytes = [0; 64];
        let (length, _) =
            recv(socket, &mut bytes, RecvFlags::DONTWAIT).expect("a message or an end");
        AgentAnswer::decode(&bytes[..length])
    }

    #[test]
    fn open__a_living_agent_is_refused_and_a_dead_one_replaced() {
        let path = place("twice");
        let first = ScavengerSocket::open(&path).expect("nobody listens");
        let mode = fs::symlink_metadata(&path).expect("a socket").permissions().mode();
        assert_eq!(mode & 0o777, 0o666);
        let why = ScavengerSocket::open(&path).err().expect("one is there").to_string();
        assert!(why.starts_with("another agent listens at "), "{why}");
        // A killed agent leaves its file.
        drop(first.listener);
        let second = ScavengerSocket::open(&path).expect("the first is dead");
        second.close();
        assert!(!path.exists());
        fs::write(&path, b"").expect("a file");
        let why = ScavengerSocket::open(&path).err().expect("no socket").to_string();
        assert!(why.contains("is there and no socket"), "{why}");
        fs::remove_file(&path).expect("removed");
    }

    #[test]
    fn receive__wrong_messages_floods_and_those_that_do_not_read_end_their_connection() {
        let path = place("faults");
        let mut socket = ScavengerSocket::open(&path).expect("a socket");
        let now = LocalNs(5);
        let mut agent = NodeAgent::new(now, LINK, 0);
        let good = AgentDemand(BitsPerSec(500_000)).encode();
        let all: Vec<OwnedFd> = (0..6).map(|_| call(&path)).collect();
        socket.accept();
        say(&all[0], &good);
        say(&all[1], &good[..39]);
        say(&all[2], &[&good[..], &[0; 30]].concat());
        say(&all[3], &[0; 40]);
        // More than a second's messages; the buffer takes some of them at a time.
        for _ in 0..=MESSAGES_AT_ONCE {
            say(&all[4], &good);
            socket.receive(now, &mut agent);
        }
        socket.send(now, &mut agent);
        assert_eq!((socket.links.len(), socket.ended), (2, 4));
        assert!(
            matches!(hear(&all[0]), Some(AgentAnswer::Granted(grant)) if grant.rate.0 == 500_000)
        );
        assert_eq!(hear(&all[4]), None, "its connection has ended");
        assert_eq!(agent.figures().scavengers, 1, "one has not greeted");
        // It reads nothing more, while grants are renewed.
        let mut later = now;
        while socket.ended == 4 {
            later += Nanos::from_secs(1);
            agent.advance(later);
            socket.send(later, &mut agent);
        }
        assert_eq!((socket.links.len(), agent.figures().scavengers), (1, 0));
        socket.close();
    }

    #[test]
    fn accept__places_have_an_end_and_the_end_of_the_agent_is_said() {
        let path = place("full");
        let mut socket = ScavengerSocket::open(&path).expect("a socket");
        let now = LocalNs(5);
        let mut agent = NodeAgent::new(now, LINK, 0);
        let most = if nix::unistd::geteuid().is_root() { SCAVENGERS_MAX } else { USER_MAX };
        let mut all = Vec::new();
        for _ in 0..=most {
            all.push(call(&path));
            socket.accept();
        }
        assert_eq!((socket.links.len(), socket.refused), (most, 1));
        assert_eq!(hear(&all[most]), Some(AgentAnswer::Full));
        drop(all.remove(0));
        socket.receive(now, &mut agent);
        assert_eq!((socket.links.len(), socket.ended), (most - 1, 0));
        socket.close();
        assert_eq!(hear(&all[0]), Some(AgentAnswer::Ends));
    }
}
