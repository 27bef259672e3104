//! The coordinator's listener: ranks come in with the right word, strangers do not, and nobody
//! keeps others waiting.
//!
//! # Invariants
//! I1. A stranger costs a thread for at most [`GREETING_TIMEOUT`], and there are at most
//!     [`PEERS_MAX`] of them at a time.
//! I2. One connection for each rank: the first that knows the word.

use std::io::{self, ErrorKind, Read, Write};
use std::net::{Ipv4Addr, SocketAddr, TcpListener, TcpStream};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Arc, mpsc::RecvTimeoutError};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use clearway_proto::base::Rank;
use clearway_runtime::keys;
use nix::sys::socket::{setsockopt, sockopt};

use super::host_description::{CoordinatorAddress, HostDescription};
use clearway_wires::hexadecimal::digits_of;

/// How long a caller may take to say who it is.
const GREETING_TIMEOUT: Duration = Duration::from_secs(2);
/// Peers that are heard at the same time: more than a job's ranks can be that connect at one
/// instant on few processors.
const PEERS_MAX: usize = 256;
/// A silent host is asked for a sign of life after this many seconds, then every [`PROBE_EVERY`];
/// after [`PROBES`] without one it is gone, and so is one that does not take what was sent to it
/// for as long. Between phases nothing else is said for minutes.
const PROBE_AFTER: u32 = 10;
const PROBE_EVERY: u32 = 5;
const PROBES: u32 = 3;
/// How often the listener is looked at while nobody comes: ranks come one after the other, and each
/// look costs some us.
const LOOK_EVERY: Duration = Duration::from_millis(1);
/// Bytes of a greeting: a rank, a space, a word, a newline.
const GREETING_MAX: usize = 64;

/// A listening socket and its word.
pub(super) struct JobListener {
    listener: TcpListener,
    address: CoordinatorAddress,
}

/// Where the keys of a job's ranks come from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum SecretSource {
    /// The launcher gave all ranks a secret.
    OfLauncher,
    /// It did not: the listener has one, which travels with the descriptions.
    OfListener,
}

/// A rank that came.
pub(super) struct AcceptedRank {
    pub(super) rank: Rank,
    pub(super) connection: TcpStream,
    /// Its address as seen from here.
    pub(super) from: Ipv4Addr,
    /// The address of this host at which it arrived.
    pub(super) reached: Ipv4Addr,
}

/// Returns what a rank says at the listener.
pub(super) fn greeting(rank: Rank, secret: &str) -> String {
    format!("{rank} {secret}\n")
}

impl JobListener {
    /// Opens a listener on a port of the system's choice; `secret` is the job's, where its ranks
    /// have one already.
    pub(super) fn open(secret: SecretSource) -> Result<Self> {
        let listener = TcpListener::bind((Ipv4Addr::UNSPECIFIED, 0))
            .context("a port for the ranks to connect to")?;
        let port = listener.local_addr().context("the port that was bound")?.port();
        let job_secret = match secret {
            SecretSource::OfLauncher => None,
            SecretSource::OfListener => Some(random_word()?),
        };
        Ok(Self {
            listener,
            address: CoordinatorAddress { port, word: random_word()?, job_secret },
        })
    }

    /// Returns what to tell the others.
    pub(super) fn address(&self) -> CoordinatorAddress {
        self.address.clone()
    }

    /// Waits for all ranks of `descriptions` but the coordinator's `own`. In order of rank.
    pub(super) fn accept_all(
        &self,
        descriptions: &[HostDescription],
        own: Rank,
        timeout: Duration,
        watch: &mut dyn FnMut() -> Result<()>,
    ) -> Result<Vec<AcceptedRank>> {
        self.listener.set_nonblocking(true).context("a door that does not block")?;
        let (sender, came): (Sender<AcceptedRank>, Receiver<AcceptedRank>) = channel();
        let unread = Arc::new(AtomicUsize::new(0));
        let deadline = Instant::now() + timeout;
        let mut peers: Vec<Option<AcceptedRank>> = descriptions.iter().map(|_| None).collect();
        let is_missing =
            |(rank, peer): (usize, &Option<AcceptedRank>)| rank != own.index() && peer.is_none();
        while let Some(missing) = peers.iter().enumerate().position(is_missing) {
            watch()?;
            if Instant::now() > deadline {
                let host = |rank: usize| {
                    descriptions.get(rank).map_or("?", |description| &description.host)
                };
                bail!(
                    "rank {missing} on host {} did not connect within {timeout:?}: can it reach TCP port {} of host {}?",
                    host(missing),
                    self.address.port,
                    host(own.index())
                );
            }
            self.accept_waiting(&unread, &sender)?;
            match came.recv_timeout(LOOK_EVERY) {
                Ok(peer) => {
                    let is_other = peer.rank != own;
                    if let Some(place @ None) =
                        peers.get_mut(peer.rank.index()).filter(|_| is_other)
                    {
                        *place = Some(peer);
                    }
                }
                Err(RecvTimeoutError::Timeout | RecvTimeoutError::Disconnected) => {}
            }
        }
        Ok(peers.into_iter().flatten().collect())
    }

    /// Lets everybody say who they are who knocks now.
    fn accept_waiting(
        &self,
        unread: &Arc<AtomicUsize>,
        sender: &Sender<AcceptedRank>,
    ) -> Result<()> {
        while unread.load(Ordering::Relaxed) < PEERS_MAX {
            let (connection, from) = match self.listener.accept() {
                Ok(peer) => peer,
                Err(error) if error.kind() == ErrorKind::WouldBlock => return Ok(()),
                // A peer that hung up before being let in is no reason to stop.
                Err(error)
                    if matches!(
                        error.kind(),
                        ErrorKind::ConnectionAborted | ErrorKind::Interrupted
                    ) =>
                {
                    continue;
                }
                Err(error) => return Err(error).context("ranks cannot connect"),
            };
            unread.fetch_add(1, Ordering::Relaxed);
            let (unread, sender, secret) =
                (unread.clone(), sender.clone(), self.address.word.clone());
            thread::spawn(move || {
                if let Some(peer) = read_greeting(connection, from, &secret) {
                    let _ = sender.send(peer);
                }
                unread.fetch_sub(1, Ordering::Relaxed);
            });
        }
        Ok(())
    }
}

/// Returns 128 random bits in hexadecimal digits.
pub(super) fn random_word() -> Result<String> {
    let random: [u8; 16] = keys::random().context("random bytes")?;
    Ok(digits_of(&random))
}

/// Reads one greeting; who does not know the word is nobody.
fn read_greeting(
    mut connection: TcpStream,
    from: SocketAddr,
    secret: &str,
) -> Option<AcceptedRank> {
    let deadline = Instant::now() + GREETING_TIMEOUT;
    connection.set_nonblocking(false).ok()?;
    let mut line = Vec::new();
    let mut byte = [0];
    while !line.ends_with(b"\n") {
        let left =
            deadline.checked_duration_since(Instant::now()).filter(|left| !left.is_zero())?;
        connection.set_read_timeout(Some(left)).ok()?;
        if connection.read(&mut byte).ok()? == 0 || line.len() >= GREETING_MAX {
            return None;
        }
        line.push(byte[0]);
    }
    connection.set_read_timeout(None).ok()?;
    tune(&connection).ok()?;
    let (rank, word) = std::str::from_utf8(&line).ok()?.trim_end().split_once(' ')?;
    let (SocketAddr::V4(from), SocketAddr::V4(reached)) = (from, connection.local_addr().ok()?)
    else {
        return None;
    };
    if !is_same(word, secret) {
        return None;
    }
    Some(AcceptedRank {
        rank: Rank(rank.parse().ok()?),
        connection,
        from: *from.ip(),
        reached: *reached.ip(),
    })
}

/// Sees to it that small orders leave at once, none waits for the next; and a host that vanished
/// without a word is noticed by the other end.
pub(crate) fn tune(connection: &TcpStream) -> io::Result<()> {
    connection.set_nodelay(true)?;
    setsockopt(connection, sockopt::KeepAlive, &true)?;
    setsockopt(connection, sockopt::TcpKeepIdle, &PROBE_AFTER)?;
    setsockopt(connection, sockopt::TcpKeepInterval, &PROBE_EVERY)?;
    setsockopt(connection, sockopt::TcpKeepCount, &PROBES)?;
    // In ms. It bounds the probes, too.
    setsockopt(
        connection,
        sockopt::TcpUserTimeout,
        &((PROBE_AFTER + PROBES * PROBE_EVERY) * 1000),
    )?;
    Ok(())
}

/// Compares in a time that does not tell how much is right.
fn is_same(word: &str, secret: &str) -> bool {
    word.len() == secret.len()
        && word.bytes().zip(secret.bytes()).fold(0, |all, (a, b)| all | (a ^ b)) == 0
}

/// Goes through the first listener among `addresses` that opens, as `rank`.
pub(super) fn connect(
    addresses: &[Ipv4Addr],
    coordinator: &CoordinatorAddress,
    rank: Rank,
    timeout: Duration,
) -> Result<TcpStream> {
    let each = timeout / addresses.len().max(1) as u32;
    let mut refused = Vec::new();
    for address in addresses {
        match TcpStream::connect_timeout(&SocketAddr::from((*address, coordinator.port)), each) {
            Ok(mut connection) => {
                tune(&connection).context("a connection that notices the end of its host")?;
                connection
                    .write_all(greeting(rank, &coordinator.word).as_bytes())
                    .context("the coordinator closed its door")?;
                return Ok(connection);
            }
            Err(error) => refused.push(format!("{address}: {error}")),
        }
    }
    bail!("the coordinator cannot be reached at port {} ({})", coordinator.port, refused.join("; "))
}

#[cfg(test)]
mod tests {
    use nix::sys::socket::getsockopt;

    use super::*;

    fn descriptions(count: usize) -> Vec<HostDescription> {
        vec![HostDescription::own(None).expect("a card"); count]
    }

    #[test]
    fn accept_all__ranks_come_in_among_strangers_and_in_any_order() {
        let door = JobListener::open(SecretSource::OfListener).expect("a door");
        let address = door.address();
        let here = [Ipv4Addr::LOCALHOST];
        let strangers: Vec<TcpStream> = (0..20)
            .map(|i| {
                let mut stranger =
                    TcpStream::connect((Ipv4Addr::LOCALHOST, address.port)).expect("connects");
                let rubbish =
                    [&b"1 wrong word\n"[..], b"", &[0xff; 500], b"99999999999 \n", b"\n"][i % 5];
                stranger.write_all(rubbish).expect("sends");
                stranger
            })
            .collect();
        let ranks: Vec<TcpStream> = [2, 0, 1, 1]
            .map(|rank| connect(&here, &address, Rank(rank), TIMEOUT).expect("reaches the door"))
            .into();
        let peers =
            door.accept_all(&descriptions(3), Rank(0), TIMEOUT, &mut || Ok(())).expect("both came");
        assert_eq!(peers.iter().map(|peer| peer.rank.0).collect::<Vec<_>>(), [1, 2]);
        assert!(peers.iter().all(|peer| peer.from == Ipv4Addr::LOCALHOST));
        drop((ranks, strangers));
    }

    #[test]
    fn accept_all__who_is_missing_is_named() {
        let door = JobListener::open(SecretSource::OfLauncher).expect("a door");
        let rank = connect(&[Ipv4Addr::LOCALHOST], &door.address(), Rank(1), TIMEOUT)
            .expect("reaches the door");
        let error = door
            .accept_all(&descriptions(3), Rank(2), Duration::ZERO, &mut || Ok(()))
            .err()
            .expect("rank 0 is missing");
        assert!(error.to_string().starts_with("rank 0 on host"), "{error}");
        assert!(error.to_string().contains("did not connect within 0ns"), "{error}");
        drop(rank);
    }

    #[test]
    fn accept_all__both_ends_notice_a_host_that_vanished_within_half_a_minute() {
        let door = JobListener::open(SecretSource::OfListener).expect("a door");
        let rank = connect(&[Ipv4Addr::LOCALHOST], &door.address(), Rank(1), TIMEOUT)
            .expect("reaches the door");
        let peers =
            door.accept_all(&descriptions(2), Rank(0), TIMEOUT, &mut || Ok(())).expect("it came");
        for end in [&rank, &peers[0].connection] {
            assert!(
                end.nodelay().expect("an option")
                    && getsockopt(end, sockopt::KeepAlive).expect("an option")
            );
            let idle = getsockopt(end, sockopt::TcpKeepIdle).expect("an option");
            let every = getsockopt(end, sockopt::TcpKeepInterval).expect("an option");
            let probes = getsockopt(end, sockopt::TcpKeepCount).expect("an option");
            let unanswered = getsockopt(end, sockopt::TcpUserTimeout).expect("an option");
            assert!(
                idle + every * probes <= 30 && unanswered <= 30_000,
                "{idle} {every} {probes} {unanswered}"
            );
        }
    }

    const TIMEOUT: Duration = Duration::from_secs(10);
}
