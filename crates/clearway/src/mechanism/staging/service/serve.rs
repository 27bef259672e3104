//! `clearway stage serve`: a log and its store for mounts of other hosts.
//!
//! # Invariants
//! I1. A peer without a key or credential takes a thread for [`GREETING`] at most, and for as long as
//!     munged takes to answer.
//! I2. A client acts as the user of its key or credential; only a key of a host speaks for all users.

use std::io;
use std::net::{SocketAddr, SocketAddrV4};
use std::os::fd::AsFd;
use std::path::PathBuf;
use std::str::FromStr;
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context, Result, anyhow, bail};
use clap::Args;
use clearway_fs::mount::{LogOptions, Reporter};
use clearway_fs::network::server::{ClientAcceptor, StagingServer};
use clearway_fs::network::{ClientName, SERVER_RANK, User};
use clearway_proto::base::Bytes;
use clearway_proto::calls::PacerConfig;
use clearway_proto::staging::LogShares;
use clearway_runtime::door::{
    AcceptedPeer, KeyedListener, Limits, PeerPlace, SealedReceiver, SealedSender,
};
use clearway_runtime::keys::JobSecret;
use clearway_runtime::launch::escaped;
use clearway_runtime::machine_memory::return_large_blocks;
use clearway_runtime::munge::{MungeDaemon, SOCKET};
use clearway_wires::{RankPort, RemoteTransport};
use signal_hook::consts::{SIGINT, SIGTERM};
use signal_hook::iterator::Signals;

use super::super::log_flags::LogFlags;
use super::super::metrics::ServerMetrics;
use super::super::yield_flags::YieldFlags;
use super::connect::local_address;
use super::message::{
    Join, Joined, PROTOCOL, Welcome, key_pair, next, port_request, send, sentence, wire_setup,
};
use super::munge::{self, MungePeer};
use crate::run::exit::Exit;
use crate::run::job::tune;
use crate::run::key_file::key;
use crate::run::metrics::{MetricSource, MetricsAddress, MetricsListener};

/// Where servers listen: a port that IANA gave to nobody, next to that of `cast serve`.
pub(crate) const PORT: u16 = 27183;
/// How long a peer may take to show that it knows a key.
const GREETING: Duration = Duration::from_secs(5);
/// How long a client may take then to open its end of the wire: some fabrics need seconds.
const JOINING: Duration = Duration::from_secs(30);
/// Peers at a time that have not shown it: all, and those of one address.
const STRANGERS_MAX: usize = 64;
const STRANGERS_EACH: usize = 16;
/// Clients at a time.
const CLIENTS_MAX: usize = 1024;

/// Flags of `clearway stage serve`.
#[derive(Debug, Args)]
pub(crate) struct ServeFlags {
    /// Keep the log in this directory. If it is missing or empty, the command makes a log there.
    #[arg(long, value_name = "DIR")]
    data: PathBuf,
    /// Drain the log into this existing directory.
    #[arg(long, value_name = "DIR")]
    backing: PathBuf,
    /// Accept connections of mounts at this TCP address; data uses ephemeral UDP ports.
    #[arg(long, value_name = "ADDR:PORT", default_value_t = SocketAddrV4::new([0, 0, 0, 0].into(), PORT))]
    listen: SocketAddrV4,
    /// Accept hosts with the key in this file (16 to 4096 random bytes, mode 600). Such a host
    /// speaks for all of its users, as an NFS client does. Repeat the option for more keys.
    #[arg(long = "key", value_name = "FILE")]
    keys: Vec<PathBuf>,
    /// Accept mounts of one user with the key in this file; the server checks their requests
    /// against owners, groups and modes. Repeat the option for more users.
    #[arg(long = "user-key", value_name = "USER:FILE")]
    user_keys: Vec<UserKey>,
    /// Accept mounts of every user except root, from hosts that have the munge key of this host. A
    /// mount acts as its user. munged listens at SOCKET [default: /run/munge/munge.socket.2].
    #[arg(long, value_name = "SOCKET", num_args = 0..=1, require_equals = true, default_missing_value = SOCKET)]
    munge: Option<PathBuf>,
    #[command(flatten)]
    log: LogFlags,
    /// Limit the bytes in the log of each user's files that are not drained [default: no fixed
    /// limit; the last eighth of the log is for users below their part].
    #[arg(long, value_name = "BYTES")]
    user_quota: Option<Bytes>,
    #[command(flatten)]
    yields: YieldFlags,
    /// Serve metrics of the server for Prometheus over HTTP, at ADDR:PORT, or at a port of the
    /// loopback address. There is no authentication: everyone who reaches the address can read
    /// them [default: none].
    #[arg(long, value_name = "ADDR:PORT")]
    metrics: Option<MetricsAddress>,
}

/// A user, and the file with its key.
#[derive(Clone, Debug)]
struct UserKey {
    user: String,
    file: PathBuf,
}

impl FromStr for UserKey {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        match text.split_once(':') {
            Some((user, file)) if !user.is_empty() && !file.is_empty() => {
                Ok(Self { user: user.to_owned(), file: file.into() })
            }
            _ => Err(format!("'{text}' is not USER:FILE, as in alice:/etc/clearway/alice.key")),
        }
    }
}

/// A key that a server accepts.
struct AcceptedKey {
    name: u64,
    secret: Vec<u8>,
    user: User,
}

impl AcceptedKey {
    fn new(secret: Vec<u8>, user: User) -> Result<Self> {
        let name = JobSecret::new(secret.clone())?.identifier();
        Ok(Self { name, secret, user })
    }
}

/// The clients that a server accepts: those with a key, and users for whom munge vouches.
pub(in super::super) struct AcceptedClients {
    keys: Vec<AcceptedKey>,
    munge: Option<MungeDaemon>,
}

impl AcceptedClients {
    /// Accepts hosts with a key.
    pub(in super::super) fn hosts(secret: Vec<u8>) -> Result<Self> {
        Ok(Self { keys: vec![AcceptedKey::new(secret, User::Host)?], munge: None })
    }

    fn from_flags(flags: &ServeFlags) -> Result<Self> {
        let keys = accepted_keys(flags)?;
        let munge = flags.munge.as_deref().map(MungeDaemon::at).transpose()?;
        if keys.is_empty() && munge.is_none() {
            bail!(
                "no client could connect: accept users with --munge, or name a key with --key FILE or --user-key USER:FILE; head -c 32 /dev/urandom makes one"
            );
        }
        Ok(Self { keys, munge })
    }

    /// Returns the user and the secret of a peer that authenticates by munge; `None` if it begins
    /// with the proof of a key.
    fn munge_peer(&self, peer: &mut AcceptedPeer) -> Result<Option<MungePeer>> {
        if !peer.begins_with(&munge::MAGIC).map_err(sentence)? {
            return Ok(None);
        }
        let Some(daemon) = &self.munge else { return munge::refuse(peer).map(Some) };
        let own = nix::unistd::geteuid().as_raw();
        let find = |uid: u32| find_user(&uid.to_string());
        munge::receive_credential(peer, own, |credential| daemon.open(credential), find).map(Some)
    }
}

/// Finds a user of this host by name or number, with all groups.
fn find_user(name: &str) -> Result<User> {
    let number = name.parse().ok().map(nix::unistd::Uid::from_raw);
    let found = match number {
        Some(uid) => nix::unistd::User::from_uid(uid),
        None => nix::unistd::User::from_name(name),
    };
    let found = found
        .with_context(|| format!("cannot look up the user {name}"))?
        .with_context(|| format!("there is no user {name} on this host"))?;
    if found.uid.is_root() {
        bail!("--user-key is for other users than root; use --key FILE for root of a host");
    }
    let login = std::ffi::CString::new(found.name.clone()).context("a user without a name")?;
    let groups = nix::unistd::getgrouplist(&login, found.gid)
        .with_context(|| format!("cannot look up the groups of {name}"))?;
    let own = found.gid.as_raw();
    let others = groups.into_iter().map(nix::unistd::Gid::as_raw).filter(|gid| *gid != own);
    let gids = std::iter::once(own).chain(others).collect();
    Ok(User::Person { uid: found.uid.as_raw(), gids })
}

fn accepted_keys(flags: &ServeFlags) -> Result<Vec<AcceptedKey>> {
    let hosts = flags.keys.iter().map(|file| AcceptedKey::new(key(file)?, User::Host));
    let users =
        flags.user_keys.iter().map(|of| AcceptedKey::new(key(&of.file)?, find_user(&of.user)?));
    let keys = hosts.chain(users).collect::<Result<Vec<_>>>()?;
    for (number, one) in keys.iter().enumerate() {
        if keys.iter().take(number).any(|other| other.name == one.name) {
            bail!("two of the keys are the same; give each user a key of its own");
        }
    }
    Ok(keys)
}

/// Returns what prints sentences of a log on standard error.
pub(in super::super) fn error_reporter() -> Reporter {
    Arc::new(|sentence: &str| {
        // One write for the whole line: processes of a job share a terminal.
        let line = format!("clearway: {}\n", escaped(sentence));
        eprint!("{line}");
    })
}

/// Serves until a signal ends it.
///
/// # Errors
/// One sentence: no log, no store, no key, no munge, no port.
pub(crate) fn serve(flags: &ServeFlags) -> Result<Exit> {
    return_large_blocks();
    let pace = flags.yields.pace()?;
    let clients = AcceptedClients::from_flags(flags)?;
    let reporter = error_reporter();
    let mut signals = Signals::new([SIGINT, SIGTERM]).context("cannot listen for signals")?;
    let shares = Some(LogShares { quota: flags.user_quota });
    let options = LogOptions { shares, ..flags.log.options(&flags.data, &flags.backing) };
    let metrics = MetricsListener::bind(flags.metrics)?;
    let service = Service::open(flags.listen, clients, &options, pace, &reporter)?;
    eprintln!("clearway: serving {} at {}", flags.data.display(), service.address);
    let _served = MetricsListener::announce(metrics, "stage-serve", service.metrics())?;
    let _signal = signals.forever().next();
    service.close()?;
    Ok(Exit::Good)
}

/// A server that accepts mounts.
pub(in super::super) struct Service {
    server: StagingServer,
    pub(in super::super) address: SocketAddr,
}

impl Service {
    /// Opens a log, and accepts mounts of `clients` at the address `listen`.
    ///
    /// # Errors
    /// One sentence: no log, no store, no port.
    pub(in super::super) fn open(
        listen: SocketAddrV4,
        clients: AcceptedClients,
        options: &LogOptions,
        pace: Option<PacerConfig>,
        reporter: &Reporter,
    ) -> Result<Self> {
        let limits = Limits {
            strangers: STRANGERS_MAX,
            each: STRANGERS_EACH,
            authenticated: CLIENTS_MAX,
            greeting: GREETING,
        };
        let listener = KeyedListener::open(listen, limits)
            .with_context(|| format!("cannot listen at {listen}"))?;
        let address = listener.address().context("the port that was bound has no address")?;
        let server = StagingServer::open(options, pace, reporter)?;
        let door = ServiceDoor { acceptor: server.acceptor(), log: server.log(), clients };
        let refused = Arc::clone(reporter);
        std::thread::Builder::new()
            .name("staging-door".to_owned())
            .spawn(move || -> io::Result<()> {
                listener.serve(move |peer| {
                    let from = peer.from();
                    if let Err(why) = door.receive(peer) {
                        refused(&format!("{}: {why:#}", from.ip()));
                    }
                })
            })
            .context("cannot start a thread")?;
        Ok(Self { server, address })
    }

    /// Returns the figures of the log and of its clients.
    fn metrics(&self) -> Arc<dyn MetricSource> {
        let (log, clients) = (self.server.status_reader(), self.server.acceptor());
        Arc::new(ServerMetrics { log, clients })
    }

    /// Writes what is left to the log, and ends. The next server of the log continues the drain.
    pub(in super::super) fn close(self) -> Result<()> {
        Ok(self.server.close()?)
    }
}

/// What a peer and the server say to each other, and the place of the peer.
type Link = (SealedSender, SealedReceiver, PeerPlace);

/// Gives peers with a key or a credential to the server.
struct ServiceDoor {
    acceptor: ClientAcceptor,
    log: u128,
    clients: AcceptedClients,
}

impl ServiceDoor {
    /// Hears the proof of a peer; `None` when it leaves without a word.
    fn welcome(&self, mut peer: AcceptedPeer) -> Result<Option<(User, Link)>> {
        let introduced = self.clients.munge_peer(&mut peer)?;
        let mut named = introduced.as_ref().map(|peer| peer.user.clone());
        let secret_of = |name: u64| {
            if let Some(peer) = introduced {
                return Some(peer.secret);
            }
            let found = self.clients.keys.iter().find(|key| key.name == name);
            named = found.map(|key| key.user.clone());
            found.map(|key| key.secret.clone())
        };
        let Some(link) = peer.answer_by(&PROTOCOL, secret_of).map_err(sentence)? else {
            return Ok(None);
        };
        Ok(Some((named.context("a key that is not known")?, link)))
    }

    fn receive(&self, peer: AcceptedPeer) -> Result<()> {
        tune(peer.stream()).context("cannot set options of the connection")?;
        let stream = peer.stream().try_clone().context("cannot duplicate the connection")?;
        let Some((user, (mut sender, mut receiver, place))) = self.welcome(peer)? else {
            return Ok(());
        };
        stream.set_read_timeout(Some(JOINING)).context("cannot limit how long a word takes")?;
        send(&mut sender, &Welcome { log: format!("{:032x}", self.log), uid: user.uid() })?;
        let join: Join = next(&mut receiver)?;
        let Some(client) = ClientName::parse(join.client, user.uid()) else {
            let why = "the client's name belongs to another user";
            send(&mut sender, &Joined::Refused(why.to_owned()))?;
            bail!(why);
        };
        if join.is_new && !self.acceptor.is_free(client) {
            return send(&mut sender, &Joined::Taken);
        }
        let address = local_address(&stream)?;
        let far = match join.far {
            far @ (RemoteTransport::Udp | RemoteTransport::Ofi) => far,
            _ => RemoteTransport::Udp,
        };
        let request = port_request(SERVER_RANK, join.session, address, far);
        let identity = key_pair(SERVER_RANK, join.session, join.secret)?;
        let port = RankPort::take(&request, Some(identity)).map_err(|why| anyhow!(why))?;
        let location = port.location();
        let setup = match wire_setup(far, location.clone(), join.location) {
            Ok(setup) => setup,
            Err(why) => return send(&mut sender, &Joined::Refused(why.to_string())),
        };
        send(&mut sender, &Joined::At(Box::new(location)))?;
        let wire = port.open(&request, &setup, stream.as_fd()).map_err(|why| anyhow!(why))?;
        stream.set_read_timeout(None).context("cannot wait for the end of the client")?;
        let remains = self.acceptor.serve(client, user, wire.wire, stream.into())?;
        // Another client may have the place meanwhile.
        drop(place);
        remains.forget();
        Ok(())
    }
}
