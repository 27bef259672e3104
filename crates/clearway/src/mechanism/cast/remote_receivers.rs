//! How the sender gets to its receivers: those that listen with a key, those that ssh starts, those
//! that a launcher started.

use std::collections::BTreeMap;
use std::io::{self, Read};
use std::net::{IpAddr, Ipv4Addr, SocketAddr, TcpStream, ToSocketAddrs};
use std::process::{Command, ExitStatus, Stdio};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use anyhow::{Context, Result, anyhow};
use clearway_runtime::launch::{ExitReason, RemoteProcess, SshConnection, quoted, ssh_command};
use nix::sys::socket::{setsockopt, sockopt};

use super::path::PathText;
use super::peers::{Connector, ExpectedReceiver, ReceiverConnection};
use super::receiver_list::NamedReceiver;
use crate::run::job::tune;

/// How long a host may take to answer.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(10);
/// The same with ssh, which may have to ask a name server or two.
const SSH_TIMEOUT: Duration = Duration::from_secs(30);
/// How long a process that closed its output may take to end.
const END_TIMEOUT: Duration = Duration::from_secs(1);
const SSH: &str = "ssh";
const NO_SSH: &str = "ssh cannot be started";
/// What a receiver says on its standard output before anything else: an acknowledgement (ASCII).
pub(super) const STARTED: u8 = 6;
/// The hidden command of a receiver.
const RECEIVE: [&str; 2] = ["cast", "receive"];

/// Returns those of `hosts` that run `clearway cast serve`, by default at `port`.
pub(super) fn listening(hosts: Vec<NamedReceiver>, port: u16) -> Vec<ExpectedReceiver> {
    let contact = |host: NamedReceiver| {
        let (name, into) = (host.shown(), into_of(&host));
        let connect = move || {
            let port = host.port.unwrap_or(port);
            let name = &host.name;
            let addresses = (name.as_str(), port)
                .to_socket_addrs()
                .with_context(|| format!("{name} is unknown"))?;
            let address = addresses.into_iter().find(SocketAddr::is_ipv4);
            let address = address.with_context(|| format!("{name} has no address of IPv4"))?;
            let stream = TcpStream::connect_timeout(&address, CONNECT_TIMEOUT);
            let unreachable =
                || format!("nobody answers at {address} (does `clearway cast serve` run there?)");
            to_receiver(stream.with_context(unreachable)?)
        };
        // Strangers there may be in the way of its first words.
        ExpectedReceiver { name, into, connect: Connector::Again(Box::new(connect)) }
    };
    hosts.into_iter().map(contact).collect()
}

/// Returns the sender's end of a connection over TCP. A receiver that is busy may leave what it is
/// sent where it is for as long as it likes: that it is there it says itself.
pub(super) fn to_receiver(stream: TcpStream) -> Result<ReceiverConnection> {
    let connection = over(stream.try_clone().context("a connection in both directions")?)?;
    setsockopt(&stream, sockopt::TcpUserTimeout, &0)
        .context("a connection to a receiver that may be busy")?;
    Ok(connection)
}

/// Returns a connection over TCP, whose end is noticed when the other host is silent.
pub(super) fn over(stream: TcpStream) -> Result<ReceiverConnection> {
    tune(&stream).context("a connection that notices the end of its host")?;
    let address = |address: io::Result<SocketAddr>| match address.map(|address| address.ip()) {
        Ok(IpAddr::V4(address)) => Some(address),
        _ => None,
    };
    let addresses: Option<[Ipv4Addr; 2]> =
        address(stream.local_addr()).zip(address(stream.peer_addr())).map(Into::into);
    let input = stream.try_clone().context("a connection in both directions")?;
    Ok(ReceiverConnection { ends: (Box::new(input), Box::new(stream)), addresses })
}

/// Returns those of `hosts` where ssh starts `program` as a receiver; those of one host share a
/// connection of ssh.
pub(super) fn over_ssh(
    hosts: Vec<NamedReceiver>,
    program: &str,
    secret: &[u8],
) -> Vec<ExpectedReceiver> {
    let mut connections: BTreeMap<String, (usize, Arc<HostConnection>)> = BTreeMap::new();
    let mut of_host: BTreeMap<String, usize> = BTreeMap::new();
    hosts.iter().for_each(|host| *of_host.entry(host.name.clone()).or_default() += 1);
    let contact = |host: NamedReceiver| {
        let (name, into, secret) = (host.shown(), into_of(&host), secret.to_vec());
        let program = program.to_owned();
        let (uses, shared) = connections.entry(host.name.clone()).or_default();
        if *uses == SshConnection::COMMANDS_MAX {
            (*uses, *shared) = (0, Arc::default());
        }
        *uses += 1;
        shared.waiting.fetch_add(1, Ordering::AcqRel);
        let shared = (of_host[&host.name] > 1).then(|| shared.clone());
        let connect = move || {
            let mut ssh = match &shared {
                None => ssh_command(SSH, SSH_TIMEOUT),
                Some(shared) => shared.command(&host.name)?,
            };
            // A name that begins with a dash would be an option; lists of hosts take none.
            ssh.arg(&host.name).arg(format!("exec {} {}", quoted(&program), RECEIVE.join(" ")));
            let started = start(ssh, &host.name, &secret);
            shared.iter().for_each(|shared| shared.note_start());
            let mut connection = started.map_err(|error| match error {
                StartFailure::Unstarted(error) => anyhow!(error).context(NO_SSH),
                StartFailure::Ended(ExitReason::NoProgram, _) => {
                    anyhow!(
                        "there is no program {program}; put the same there, or say where it is with --remote-program"
                    )
                }
                StartFailure::Ended(_, said) => anyhow!(of_ssh(&said)),
            })?;
            if let Some(shared) = shared {
                let (input, output) = connection.ends;
                connection.ends = (Box::new(SharedInput { input, _connection: shared }), output);
            }
            Ok(connection)
        };
        ExpectedReceiver { name, into, connect: Connector::Once(Box::new(connect)) }
    };
    hosts.into_iter().map(contact).collect()
}

/// Returns the sentence of an ssh that failed.
fn of_ssh(said: &str) -> String {
    format!("ssh: {}", said.trim_start_matches("ssh: "))
}

/// Opens the connection to a host with several receivers when the first of them is started.
#[derive(Default)]
struct HostConnection {
    opened: OnceLock<std::result::Result<SshConnection, String>>,
    /// Receivers that are not started yet.
    waiting: AtomicUsize,
}

impl HostConnection {
    /// Returns the command of an ssh over it.
    fn command(&self, host: &str) -> Result<Command> {
        let opened =
            self.opened.get_or_init(|| match SshConnection::open(SSH, host, SSH_TIMEOUT) {
                Ok(Ok(connection)) => Ok(connection),
                Ok(Err(master)) => Err(match last_words(master) {
                    Ok((_, said)) => of_ssh(&said),
                    Err(error) => error.to_string(),
                }),
                Err(error) => Err(format!("{NO_SSH}: {error}")),
            });
        let connection = opened.as_ref().map_err(|sentence| anyhow!(sentence.clone()))?;
        Ok(connection.command(SSH, SSH_TIMEOUT))
    }

    /// Notes that one more receiver is started, or failed to.
    fn note_start(&self) {
        if self.waiting.fetch_sub(1, Ordering::AcqRel) == 1
            && let Some(Ok(connection)) = self.opened.get()
        {
            connection.seal();
        }
    }
}

/// What a receiver sends, over a connection that stays as long as this.
struct SharedInput {
    input: Box<dyn Read + Send>,
    _connection: Arc<HostConnection>,
}

impl Read for SharedInput {
    fn read(&mut self, bytes: &mut [u8]) -> io::Result<usize> {
        self.input.read(bytes)
    }
}

/// Returns a receiver in a process on this host, called `name`.
pub(super) fn on_this_host(name: String, secret: &[u8]) -> ExpectedReceiver {
    let (shown, secret) = (name.clone(), secret.to_vec());
    let connect = move || {
        let mut own = Command::new(std::env::current_exe().context("the path of this program")?);
        own.args(RECEIVE);
        start(own, &shown, &secret).map_err(|error| match error {
            StartFailure::Unstarted(error) => {
                anyhow!(error).context("a receiver on this host cannot be started")
            }
            StartFailure::Ended(_, said) => anyhow!(said),
        })
    };
    ExpectedReceiver { name, into: None, connect: Connector::Once(Box::new(connect)) }
}

fn into_of(host: &NamedReceiver) -> Option<PathText> {
    host.into.as_ref().map(|into| PathText(into.clone().into_bytes()))
}

/// Why a receiver did not begin.
enum StartFailure {
    /// The system could not start it.
    Unstarted(io::Error),
    /// It ended for this reason, with these last words.
    Ended(ExitReason, String),
}

/// Starts `command` as the receiver called `name` and waits for its first word.
fn start(
    mut command: Command,
    name: &str,
    secret: &[u8],
) -> std::result::Result<ReceiverConnection, StartFailure> {
    let mut remote = RemoteProcess::start(command.stdout(Stdio::piped()), name, secret)
        .map_err(StartFailure::Unstarted)?;
    let input =
        remote.input().ok_or_else(|| StartFailure::Unstarted(io::ErrorKind::BrokenPipe.into()))?;
    let mut first = [0];
    if remote.read_exact(&mut first).is_ok() && first == [STARTED] {
        return Ok(ReceiverConnection {
            ends: (Box::new(remote), Box::new(input)),
            addresses: None,
        });
    }
    drop(input);
    let (status, said) = last_words(remote).map_err(StartFailure::Unstarted)?;
    Err(StartFailure::Ended(ExitReason::from_status(status), said))
}

/// Returns how `process`, which is about to end, ended, and its last sentence.
fn last_words(mut process: RemoteProcess) -> io::Result<(ExitStatus, String)> {
    let status = process.end_within(END_TIMEOUT)?;
    let said = process.last_error_line().unwrap_or_else(|| format!("it ended with {status}"));
    Ok((status, said))
}

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
        assert_eq!(getsockopt(&same, sockopt::TcpUserTimeout).expect("an option"), 0);
        assert!(
            getsockopt(&same, sockopt::KeepAlive).expect("an option"),
            "a host that is gone is noticed"
        );
        drop(connection);
    }
}
