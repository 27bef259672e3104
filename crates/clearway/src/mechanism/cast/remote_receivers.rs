//! How the sender gets to its receivers: those that listen with a key, those that ssh starts, those
//! that a launcher started.

use std::io::{self, Read};
use std::net::{IpAddr, Ipv4Addr, SocketAddr, TcpStream, ToSocketAddrs};
use std::process::{Command, Stdio};
use std::time::Duration;

use anyhow::{Context, Result, anyhow};
use clearway_runtime::launch::{ExitReason, RemoteProcess, quoted, ssh_command};
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

/// Returns those of `hosts` where ssh starts `program` as a receiver.
pub(super) fn over_ssh(
    hosts: Vec<NamedReceiver>,
    program: &str,
    secret: &[u8],
) -> Vec<ExpectedReceiver> {
    let contact = |host: NamedReceiver| {
        let (name, into, secret) = (host.shown(), into_of(&host), secret.to_vec());
        let program = program.to_owned();
        let connect = move || {
            let mut ssh = ssh_command("ssh", SSH_TIMEOUT);
            // A name that begins with a dash would be an option; lists of hosts take none.
            ssh.arg(&host.name).arg(format!("exec {} {}", quoted(&program), RECEIVE.join(" ")));
            start(ssh, &host.name, &secret).map_err(|error| match error {
                StartFailure::Unstarted(error) => anyhow!(error).context("ssh cannot be started"),
                StartFailure::Ended(ExitReason::NoProgram, _) => {
                    anyhow!(
                        "there is no program {program}; put the same there, or say where it is with --remote-program"
                    )
                }
                StartFailure::Ended(_, said) => anyhow!("ssh: {}", said.trim_start_matches("ssh: ")),
            })
        };
        ExpectedReceiver { name, into, connect: Connector::Once(Box::new(connect)) }
    };
    hosts.into_iter().map(contact).collect()
}

/// Returns a receiver beside this process, called `name`.
pub(super) fn beside(name: String, secret: &[u8]) -> ExpectedReceiver {
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
    let status = remote.end_within(END_TIMEOUT).map_err(StartFailure::Unstarted)?;
    let said = remote.last_error_line().unwrap_or_else(|| format!("it ended with {status}"));
    Err(StartFailure::Ended(ExitReason::from_status(status), said))
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
        assert_eq!(getsockopt(&same, sockopt::TcpUserTimeout).expect("told"), 0);
        assert!(
            getsockopt(&same, sockopt::KeepAlive).expect("told"),
            "a host that is gone is noticed"
        );
        drop(connection);
    }
}
