//! `clearway cast serve`: a receiver that waits for senders with the right key.
//!
//! # Invariants
//! I1. A peer who does not know the key is heard for [`GREETING`] at most, and costs a thread;
//!     there are
//!     at most [`STRANGERS_MAX`] at a time,
//!     and the oldest makes room for who comes next.
//! I2. Nothing is written outside the directory that was given.

use std::io::{Write, stderr};
use std::net::{IpAddr, SocketAddrV4};
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use anyhow::{Context, Result};
use clearway_runtime::door::{AcceptedPeer, KeyedListener, Limits};
use clearway_runtime::launch::escaped;

use super::link::admit;
use super::metrics::ServeMetrics;
use super::receiver::{Destination, RemovalRight, receive};
use super::target::TargetDirectory;
use crate::report::model::rfc3339;
use crate::run::job::tune;
use crate::run::key_file::key;
use crate::run::metrics::{MetricsAddress, MetricsListener};
use crate::run::notice;

/// Where receivers listen: a port that IANA gave to nobody, below those that systems give away
/// themselves.
pub(crate) const PORT: u16 = 27182;
/// How long a peer may take to show that it knows the key.
const GREETING: Duration = Duration::from_secs(5);
/// Peers at a time that have not shown it, and those of one address: a sender needs such a place
/// for some milliseconds.
const STRANGERS_MAX: usize = 64;
const STRANGERS_EACH: usize = 8;
/// Casts at a time.
const PEERS_MAX: usize = 64;

/// Listens at `address` for senders with the key in the file `key_file`, and writes into
/// `directory`. Says where, on standard error.
///
/// # Errors
/// One sentence: no key, no directory, no port, or none for `metrics`.
pub(crate) fn serve(
    address: SocketAddrV4,
    key_file: &Path,
    directory: &Path,
    removal: RemovalRight,
    metrics: Option<MetricsAddress>,
) -> Result<()> {
    let secret = key(key_file)?;
    // What is wrong with it is said now, not to each sender.
    TargetDirectory::open(directory)?;
    let directory = directory
        .canonicalize()
        .with_context(|| format!("{} cannot be read", directory.display()))?;
    let limits = Limits {
        strangers: STRANGERS_MAX,
        each: STRANGERS_EACH,
        authenticated: PEERS_MAX,
        greeting: GREETING,
    };
    let door = KeyedListener::open(address, limits)
        .with_context(|| format!("cannot listen at {address}"))?;
    let address = door.address().context("the port that was bound")?;
    let figures = ServeMetrics::default();
    let listener = MetricsListener::bind(metrics)?;
    let _served = MetricsListener::announce(listener, "cast-serve", Arc::new(figures.clone()))?;
    notice!("listening at {address}, writing below {}", directory.display());
    let destination = Destination::Beneath(directory, removal);
    door.serve(move |peer| {
        let from = peer.from();
        if let Err(error) = receive_from(peer, &secret, &destination, &figures) {
            log(from.ip(), &format!("{error:#}"));
        }
    })
}

/// Writes a line of what a peer did, with the time.
fn log(from: IpAddr, line: &str) {
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    let line = format!("{} {from}: {}\n", rfc3339(now.as_secs()), escaped(line));
    // A cast does not fail because nobody reads this.
    let _ = stderr().write_all(line.as_bytes());
}

fn receive_from(
    peer: AcceptedPeer,
    secret: &[u8],
    destination: &Destination,
    metrics: &ServeMetrics,
) -> Result<()> {
    let (from, begun) = (peer.from().ip(), Instant::now());
    tune(peer.stream()).context("a connection that notices the end of its host")?;
    let admitted = admit(peer, secret);
    let Ok(Some((speaker, listener, _stay))) = admitted else {
        metrics.refuse();
        return admitted.map(drop);
    };
    let figures = metrics.begin();
    log(from, "a cast begins");
    let outcome = receive((speaker, listener), secret, destination, None, &figures);
    metrics.end(&figures);
    let took = begun.elapsed().as_secs_f64();
    log(from, &format!("the cast ends: {}, in {took:.2} s", figures.sentence()));
    outcome
}
