//! A mount connects to its server.

use std::net::{SocketAddr, SocketAddrV4, TcpStream, ToSocketAddrs};
use std::os::fd::AsFd;
use std::str::FromStr;
use std::time::Duration;

use anyhow::{Context, Result, anyhow, bail};
use clearway_fs::network::connection::{ConnectError, ServerConnection, ServerConnector};
use clearway_fs::network::{CLIENT_RANK, ClientName};
use clearway_runtime::door::{self, DoorError, SealedReceiver, SealedSender};
use clearway_runtime::keys::{self, JobSecret};
use clearway_runtime::munge::MungeDaemon;
use clearway_wires::{RankPort, RemoteTransport};

use super::message::{
    Join, Joined, PROTOCOL, Welcome, key_pair, next, port_request, send, sentence, wire_setup,
};
use super::munge;
use super::serve::PORT;
use crate::run::job::tune;

/// How long a server may take to accept a connection, and to answer.
const TIMEOUT: Duration = Duration::from_secs(10);

/// Where a server is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct ServerAddress {
    host: String,
    port: u16,
}

/// What a mount shows: one directory of the trees of some servers.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct RemoteTree {
    pub(crate) servers: Vec<ServerAddress>,
    /// The directory; empty for the root.
    pub(crate) tree: String,
}

impl FromStr for RemoteTree {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let (places, tree) = match text.split_once(":/") {
            Some((places, tree)) => (places, tree),
            None => (text, ""),
        };
        if let Some((directory, last)) = tree.rsplit_once(',')
            && !tree.ends_with('/')
            && (!last.contains('/') || last.contains(":/"))
        {
            return Err(format!(
                "'{text}' has a comma behind the tree: the tree comes after the last server, as in {places},{}:/{directory}; end the name of a directory that has a comma with a slash, as in {text}/",
                last.split_once(":/").map_or(last, |(server, _)| server)
            ));
        }
        let servers = places.split(',').map(|place| ServerAddress::parse(place, text));
        Ok(Self {
            servers: servers.collect::<Result<_, _>>()?,
            tree: tree.trim_matches('/').into(),
        })
    }
}

impl ServerAddress {
    /// Reads a host with or without a port; `all` is the whole text, for the error.
    fn parse(place: &str, all: &str) -> Result<Self, String> {
        let (host, port) = match place.rsplit_once(':') {
            Some((host, port)) => {
                let port = port.parse().map_err(|_| format!("'{port}' is not a port; write HOST[:PORT][,HOST[:PORT]...][:/TREE], or `--local LOG:STORE` for directories of this machine"))?;
                (host, port)
            }
            None => (place, PORT),
        };
        if host.is_empty() {
            return Err(format!(
                "'{all}' names no host; write HOST[:PORT][,HOST[:PORT]...][:/TREE]"
            ));
        }
        Ok(Self { host: host.to_owned(), port })
    }
}

impl From<SocketAddrV4> for ServerAddress {
    fn from(address: SocketAddrV4) -> Self {
        Self { host: address.ip().to_string(), port: address.port() }
    }
}

impl std::fmt::Display for ServerAddress {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}:{}", self.host, self.port)
    }
}

/// How a mount authenticates to a server.
pub(crate) enum MountProof {
    /// With a key that the server knows.
    Key(Vec<u8>),
    /// With credentials of this host's munge, for the user of this process.
    Munge(MungeDaemon),
}

/// Connects a mount to its server, each time as the same client.
pub(crate) struct MountConnector {
    server: ServerAddress,
    proof: MountProof,
    far: RemoteTransport,
    /// The client, once the server said whose key it is.
    client: Option<ClientName>,
}

/// Why an attempt failed: for now, or for good.
struct Failure {
    is_final: bool,
    why: anyhow::Error,
}

impl From<anyhow::Error> for Failure {
    fn from(why: anyhow::Error) -> Self {
        Self { is_final: false, why }
    }
}

impl MountConnector {
    /// Creates a connector for a server that accepts the proof.
    pub(crate) fn new(server: ServerAddress, proof: MountProof, far: RemoteTransport) -> Self {
        Self { server, proof, far, client: None }
    }

    fn open(&self) -> Result<TcpStream> {
        let ServerAddress { host, port, .. } = &self.server;
        let addresses = (host.as_str(), *port)
            .to_socket_addrs()
            .with_context(|| format!("cannot find the host {host}"))?;
        let mut last = None;
        for address in addresses.filter(SocketAddr::is_ipv4) {
            match TcpStream::connect_timeout(&address, TIMEOUT) {
                Ok(stream) => return Ok(stream),
                Err(why) => last = Some(why),
            }
        }
        match last {
            Some(why) => Err(anyhow!(why)).with_context(|| {
                format!("no server answers at {}; start `clearway stage serve` there", self.server)
            }),
            None => bail!("{host} has no IPv4 address"),
        }
    }

    /// Returns the secret of this end and the server, which munge carries there if there is no key.
    fn shared_secret(&self, mut stream: &TcpStream) -> Result<Vec<u8>> {
        match &self.proof {
            MountProof::Key(secret) => Ok(secret.clone()),
            MountProof::Munge(daemon) => {
                let own = nix::unistd::geteuid().as_raw();
                munge::send_credential(&mut stream, own, |bytes, reader| daemon.seal(bytes, reader))
                    .with_context(|| format!("the server {}", self.server))
            }
        }
    }

    /// Shows the server that this end has a key, and sees that the server has it too.
    fn greet(&self, stream: &TcpStream) -> Result<(SealedSender, SealedReceiver), Failure> {
        let secret = self.shared_secret(stream)?;
        let copy = || stream.try_clone().context("cannot duplicate the connection");
        let (input, output) = (copy()?, copy()?);
        let name = JobSecret::new(secret.clone()).map_err(|why| anyhow!(why))?.identifier();
        let ends = (Box::new(input) as _, Box::new(output) as _);
        let called = door::call(ends, &PROTOCOL, name, &secret);
        called.map_err(|why| self.failure(why))
    }

    /// Returns what a failed handshake means for the mount. It ends only the first connection for
    /// good: later, anybody who listens at the port could have answered so.
    fn failure(&self, why: DoorError) -> Failure {
        let is_final = self.client.is_none();
        match (why, &self.proof) {
            (DoorError::OtherKey, MountProof::Key(_)) => {
                let why = anyhow!(
                    "the server {} does not know this key; ask its administrator",
                    self.server
                );
                Failure { is_final, why }
            }
            (DoorError::OtherKey, MountProof::Munge(_)) => anyhow!(
                "the server {} accepted the munge credential but does not know its secret; another program may listen at this port, so check the server's host",
                self.server
            )
            .into(),
            (other, _) => {
                let is_final = is_final && matches!(other, DoorError::OtherProtocol);
                let why = sentence(other).context(format!("the server {}", self.server));
                Failure { is_final, why }
            }
        }
    }

    fn try_connect(&mut self) -> Result<ServerConnection, Failure> {
        let stream = self.open()?;
        stream.set_read_timeout(Some(TIMEOUT)).context("cannot limit how long an answer takes")?;
        tune(&stream).context("cannot set options of the connection")?;
        let (mut sender, mut receiver) = self.greet(&stream)?;
        let Welcome { log, uid } = next(&mut receiver)?;
        let log =
            u128::from_str_radix(&log, 16).context("the server sent no identifier of its log")?;
        let is_new = self.client.is_none();
        let client = match self.client {
            Some(client) => client,
            None => {
                let drawn = keys::random::<4>().context("the system has no randomness")?;
                ClientName::new(uid, u32::from_le_bytes(drawn))
            }
        };
        let local = local_address(&stream)?;
        let random = || keys::random::<32>().context("the system has no randomness");
        let (secret, [a, b, c, d, e, f, g, h, ..]) = (random()?, random()?);
        let session = u64::from_le_bytes([a, b, c, d, e, f, g, h]);
        let request = port_request(CLIENT_RANK, session, local, self.far);
        let identity = key_pair(CLIENT_RANK, session, secret)?;
        let port = RankPort::take(&request, Some(identity)).map_err(|why| anyhow!(why))?;
        let location = port.location();
        let join = Join {
            client: client.number(),
            is_new,
            session,
            secret,
            far: self.far,
            location: location.clone(),
        };
        send(&mut sender, &join)?;
        let there = match next(&mut receiver)? {
            Joined::At(there) => *there,
            Joined::Taken => {
                return Err(anyhow!("the drawn name of this client is taken; mount again").into());
            }
            Joined::Refused(why) => return Err(Failure { is_final: true, why: anyhow!(why) }),
        };
        let setup =
            wire_setup(self.far, there, location).map_err(|why| Failure { is_final: true, why })?;
        let wire = port.open(&request, &setup, stream.as_fd()).map_err(|why| anyhow!(why))?;
        stream.set_read_timeout(None).context("cannot wait for the end of the server")?;
        self.client = Some(client);
        // The server's silence: the ends of a sealed link are not needed any more.
        Ok(ServerConnection { wire: wire.wire, link: stream.into(), log })
    }
}

/// Returns the address of this end, where the system chooses a port.
pub(super) fn local_address(stream: &TcpStream) -> Result<SocketAddrV4> {
    match stream.local_addr().context("the connection has no address")? {
        SocketAddr::V4(local) => Ok(SocketAddrV4::new(*local.ip(), 0)),
        SocketAddr::V6(_) => bail!("the connection has no IPv4 address"),
    }
}

impl ServerConnector for MountConnector {
    fn connect(&mut self) -> Result<ServerConnection, ConnectError> {
        self.try_connect().map_err(|Failure { is_final, why }| {
            let sentence = format!("{why:#}");
            if is_final { ConnectError::Never(sentence) } else { ConnectError::Later(sentence) }
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn from_str__hosts_ports_and_directory() {
        let parse = |text: &str| {
            text.parse().map(|RemoteTree { servers, tree }| {
                let servers = servers.into_iter().map(|it| (it.host, it.port));
                (servers.collect::<Vec<_>>(), tree)
            })
        };
        let is = |servers: &[(&str, u16)], tree: &str| {
            let servers = servers.iter().map(|(host, port)| ((*host).to_owned(), *port));
            Ok((servers.collect(), tree.to_owned()))
        };
        assert_eq!(parse("server1"), is(&[("server1", PORT)], ""));
        assert_eq!(parse("server1:7"), is(&[("server1", 7)], ""));
        assert_eq!(parse("server1:/a/b/"), is(&[("server1", PORT)], "a/b"));
        assert_eq!(parse("10.0.0.1:7:/a"), is(&[("10.0.0.1", 7)], "a"));
        assert_eq!(parse("a,b:7,c:/x"), is(&[("a", PORT), ("b", 7), ("c", PORT)], "x"));
        assert_eq!(parse("a:/d0,s2/"), is(&[("a", PORT)], "d0,s2"));
        assert_eq!(parse("a:/d0,d1/x"), is(&[("a", PORT)], "d0,d1/x"));
        for wrong in ["s1:/d0,s2", "s1:/d0,s2:/d0", "s1:/d0,s2:7:/d0"] {
            let why = parse(wrong).expect_err(wrong);
            assert!(why.contains("as in s1,s2") && why.contains(":/d0; "), "{why}");
        }
        for wrong in ["", ":7", "server1:x", "server1:70000", "a,", ",a", "a,,b", "a:7x,b"] {
            assert!(parse(wrong).is_err(), "{wrong}");
        }
    }
}
