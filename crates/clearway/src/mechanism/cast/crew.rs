//! How the sender gets to its receivers: those that listen with a key, those that ssh starts, those that a launcher started.

use std::io::{self, BufRead, BufReader, Read, Write};
use std::net::{IpAddr, Ipv4Addr, SocketAddr, TcpStream, ToSocketAddrs};
use std::path::Path;
use std::process::{Child, ChildStdout, Command, ExitStatus, Stdio};
use std::sync::mpsc::{Receiver, channel};
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, anyhow, bail};
use nix::sys::socket::{setsockopt, sockopt};

use super::path::Text;
use super::peers::{Connection, Contact};
use super::whom::Host;
use crate::run::job::tune;
use clearway_wires::hexadecimal::digits_of;

/// How long a host may take to answer.
const PATIENCE: Duration = Duration::from_secs(10);
/// The same with ssh, which may have to ask a name server or two.
const SSH_PATIENCE: u32 = 30;
/// How long the last words of a process that ended may be on their way.
const WORDS_PATIENCE: Duration = Duration::from_secs(1);
/// How often it is looked whether a process has ended.
const LOOK_EVERY: Duration = Duration::from_millis(5);
/// What a receiver says on its standard output before anything else: an acknowledgement (ASCII).
pub(super) const STARTED: u8 = 6;
/// What a shell and `env` end with when there is no such program (POSIX).
const NOT_FOUND: i32 = 127;
/// The hidden command of a receiver.
const RECEIVE: [&str; 2] = ["cast", "receive"];

/// Those of `hosts` that run `clearway cast serve`, by default at `port`.
pub(super) fn listening(hosts: Vec<Host>, port: u16) -> Vec<Contact> {
    let contact = |host: Host| {
        let (name, into) = (host.shown(), into_of(&host));
        let connect = move || {
            let port = host.port.unwrap_or(port);
            let name = host.name;
            let addresses = (name.as_str(), port).to_socket_addrs().with_context(|| format!("{name} is unknown"))?;
            let address = addresses.into_iter().find(SocketAddr::is_ipv4);
            let address = address.with_context(|| format!("{name} has no address of IPv4"))?;
            let stream = TcpStream::connect_timeout(&address, PATIENCE);
            let unreachable = || format!("nobody answers at {address} (does `clearway cast serve` run there?)");
            to_receiver(stream.with_context(unreachable)?)
        };
        Contact { name, into, connect: Box::new(connect) }
    };
    hosts.into_iter().map(contact).collect()
}

/// The sender's end of a connection over TCP. A receiver that is busy may leave what it is sent where it is for as long as it likes:
/// that it is there it says itself.
pub(super) fn to_receiver(stream: TcpStream) -> Result<Connection> {
    let connection = over(stream.try_clone().context("a connection in both directions")?)?;
    setsockopt(&stream, sockopt::TcpUserTimeout, &0).context("a connection to a receiver that may be busy")?;
    Ok(connection)
}

/// A connection over TCP, whose end is noticed when the other host is silent.
pub(super) fn over(stream: TcpStream) -> Result<Connection> {
    tune(&stream).context("a connection that notices the end of its host")?;
    let address = |address: io::Result<SocketAddr>| match address.map(|address| address.ip()) {
        Ok(IpAddr::V4(address)) => Some(address),
        _ => None,
    };
    let addresses: Option<[Ipv4Addr; 2]> =
        address(stream.local_addr()).zip(address(stream.peer_addr())).map(Into::into);
    let input = stream.try_clone().context("a connection in both directions")?;
    Ok(Connection { ends: (Box::new(input), Box::new(stream)), addresses })
}

/// Those of `hosts` where ssh starts `program` as a receiver.
pub(super) fn over_ssh(hosts: Vec<Host>, program: &str, secret: &[u8]) -> Vec<Contact> {
    let contact = |host: Host| {
        let (name, into, line) = (host.shown(), into_of(&host), secret_line(secret));
        let program = program.to_owned();
        let connect = move || {
            if host.port.is_some() {
                bail!("a port is for receivers that listen (--key); that of ssh belongs into ~/.ssh/config");
            }
            let mut ssh = Command::new("ssh");
            ssh.args(["-T", "-oBatchMode=yes", "-oServerAliveInterval=15", "-oServerAliveCountMax=3"]);
            ssh.arg(format!("-oConnectTimeout={SSH_PATIENCE}"));
            // A name that begins with a dash would be an option; lists of hosts take none.
            ssh.arg(&host.name).arg(format!("exec '{}' {}", program.replace('\'', r"'\''"), RECEIVE.join(" ")));
            start(ssh, &line).map_err(|error| match error {
                Ended::Unstarted(error) => anyhow!(error).context("ssh cannot be started"),
                Ended::Status(Some(NOT_FOUND), _) => {
                    anyhow!(
                        "there is no program {program}; put the same there, or say where it is with --remote-program"
                    )
                }
                Ended::Status(_, said) => anyhow!("ssh: {}", said.trim_start_matches("ssh: ")),
            })
        };
        Contact { name, into, connect: Box::new(connect) }
    };
    hosts.into_iter().map(contact).collect()
}

/// A receiver beside this process, called `name`.
pub(super) fn beside(name: String, secret: &[u8]) -> Contact {
    let line = secret_line(secret);
    let connect = move || {
        let mut own = Command::new(std::env::current_exe().context("the path of this program")?);
        own.args(RECEIVE);
        start(own, &line).map_err(|error| match error {
            Ended::Unstarted(error) => anyhow!(error).context("a receiver on this host cannot be started"),
            Ended::Status(_, said) => anyhow!(said),
        })
    };
    Contact { name, into: None, connect: Box::new(connect) }
}

fn into_of(host: &Host) -> Option<Text> {
    host.into.as_ref().map(|into| Text(into.clone().into_bytes()))
}

fn secret_line(secret: &[u8]) -> String {
    digits_of(secret) + "\n"
}

/// Why a receiver did not begin.
enum Ended {
    Unstarted(io::Error),
    /// With this status, and these last words.
    Status(Option<i32>, String),
}

/// A receiver that is another process's child; ended when it is not listened to any more.
struct Remote {
    child: Child,
    output: ChildStdout,
}

impl Read for Remote {
    fn read(&mut self, bytes: &mut [u8]) -> io::Result<usize> {
        self.output.read(bytes)
    }
}

impl Drop for Remote {
    fn drop(&mut self) {
        // It ends by itself when its input does; one that hangs is not waited for.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Starts `command` and waits for its first word.
fn start(mut command: Command, secret: &str) -> std::result::Result<Connection, Ended> {
    command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut child = command.spawn().map_err(Ended::Unstarted)?;
    let missing = || Ended::Unstarted(io::ErrorKind::BrokenPipe.into());
    let mut input = child.stdin.take().ok_or_else(missing)?;
    let mut output = child.stdout.take().ok_or_else(missing)?;
    let last = last_words(child.stderr.take());
    // A pipe that is closed already belongs to a child that ended, which is noticed next.
    let _ = input.write_all(secret.as_bytes()).and_then(|()| input.flush());
    let mut first = [0];
    match output.read_exact(&mut first) {
        Ok(()) if first == [STARTED] => {
            let remote = Remote { child, output };
            Ok(Connection { ends: (Box::new(remote), Box::new(input)), addresses: None })
        }
        _ => {
            drop((input, output));
            let status = ended(&mut child);
            let said = last.wait();
            let silent = || status.map_or_else(String::new, |status| format!("it ended with {status}"));
            let said = if said.is_empty() { silent() } else { said };
            Err(Ended::Status(status.and_then(|status| status.code()), said))
        }
    }
}

/// How `child` ended, which has closed its output: by itself, if it does so soon.
fn ended(child: &mut Child) -> Option<ExitStatus> {
    let until = Instant::now() + WORDS_PATIENCE;
    while Instant::now() < until {
        if let Ok(Some(status)) = child.try_wait() {
            return Some(status);
        }
        thread::sleep(LOOK_EVERY);
    }
    let _ = child.kill();
    child.wait().ok()
}

/// The last line that a child says on its standard error.
struct LastWords {
    line: Arc<Mutex<String>>,
    /// Closed behind the last one.
    more: Receiver<()>,
}

impl LastWords {
    /// Those of a child that ended. What it has left behind may keep the pipe open.
    fn wait(&self) -> String {
        let _ = self.more.recv_timeout(WORDS_PATIENCE);
        self.line.lock().map(|line| line.clone()).unwrap_or_default()
    }
}

fn last_words(from: Option<impl Read + Send + 'static>) -> LastWords {
    let line = Arc::new(Mutex::new(String::new()));
    let (end, more) = channel::<()>();
    let keep = line.clone();
    thread::spawn(move || {
        let lines = from.into_iter().flat_map(|from| BufReader::new(from).lines().map_while(Result::ok));
        for line in lines.filter(|line| !line.trim().is_empty()) {
            if let Ok(mut last) = keep.lock() {
                *last = line.trim().to_owned();
            }
        }
        drop(end);
    });
    LastWords { line, more }
}

/// The key in the file at `path`.
///
/// # Errors
/// One sentence: it cannot be read, others can read it, or it is too short.
pub(super) fn key(path: &Path) -> Result<Vec<u8>> {
    use std::os::unix::fs::MetadataExt;
    let mut file = std::fs::File::open(path).with_context(|| format!("the key {} cannot be read", path.display()))?;
    let mode = file.metadata().map(|found| found.mode()).unwrap_or_default();
    if mode & 0o077 != 0 {
        bail!("the key {0} can be read by others: chmod 600 {0}", path.display());
    }
    let mut key = Vec::new();
    (&mut file).take(KEY_MAX + 1).read_to_end(&mut key).with_context(|| format!("the key {}", path.display()))?;
    if key.len() < KEY_MIN || key.len() as u64 > KEY_MAX {
        bail!("the key {} has {} bytes; head -c 32 /dev/urandom makes one", path.display(), key.len());
    }
    Ok(key)
}

/// Lengths of a key: as many random bytes as the keys that it protects, and what nobody mistakes for one.
const KEY_MIN: usize = 16;
const KEY_MAX: u64 = 4096;

#[cfg(test)]
mod tests {
    use std::net::TcpListener;

    use nix::sys::socket::getsockopt;

    use super::*;

    #[test]
    fn to_receiver__what_is_not_taken_for_long_does_not_end_the_connection() {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
        let stream = TcpStream::connect(listener.local_addr().expect("bound")).expect("let in");
        let same = stream.try_clone().expect("the same");
        let connection = to_receiver(stream).expect("a connection");
        assert_eq!(getsockopt(&same, sockopt::TcpUserTimeout).expect("told"), 0);
        assert!(getsockopt(&same, sockopt::KeepAlive).expect("told"), "a host that is gone is noticed");
        drop(connection);
    }
}
