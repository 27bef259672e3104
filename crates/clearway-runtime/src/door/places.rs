//! Decides who has a place at a listener: strangers few and not for long, those with the secret
//! apart from them.
//!
//! # Model
//! A client that comes is a stranger until it has shown that it knows the secret, and an
//! authenticated peer from then on. A stranger that finds all places taken gets that of the oldest
//! one: of its own address where that has as many as one address may have, of any address
//! otherwise.
//!
//! # Invariants
//! I1. Strangers take no place of authenticated, and one address takes no more than [`Limits::each`] of
//!     those of strangers.

use std::net::{IpAddr, Shutdown, TcpStream};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use super::{DoorError, Limits};

/// Threads of strangers that were shown out and have not ended yet, at most.
const LEAVING_MAX: usize = 64;

/// All places of a listener.
#[derive(Debug)]
pub(super) struct Places {
    limits: Limits,
    inner: Mutex<PlacesTable>,
}

#[derive(Debug, Default)]
struct PlacesTable {
    next: u64,
    /// The oldest first.
    strangers: Vec<Stranger>,
    authenticated: usize,
    /// Everybody who has a thread.
    inside: usize,
}

#[derive(Debug)]
struct Stranger {
    number: u64,
    from: IpAddr,
    stream: TcpStream,
}

/// One peer's place; free again when it is dropped.
#[derive(Debug)]
pub(super) struct PendingPeer {
    places: Arc<Places>,
    number: u64,
    is_authenticated: bool,
}

impl Places {
    pub(super) fn new(limits: Limits) -> Self {
        Self { limits, inner: Mutex::default() }
    }

    /// Gives a place to a stranger; `None` while too many are on their way out.
    pub(super) fn enter(self: &Arc<Self>, stream: &TcpStream, from: IpAddr) -> Option<PendingPeer> {
        let stream = stream.try_clone().ok()?;
        let mut inner = self.lock();
        if inner.inside >= self.limits.strangers + self.limits.authenticated + LEAVING_MAX {
            return None;
        }
        let is_of_address = |stranger: &&Stranger| stranger.from == from;
        if inner.strangers.iter().filter(is_of_address).count() >= self.limits.each {
            let oldest = inner.strangers.iter().position(|stranger| stranger.from == from);
            inner.show_out(oldest);
        } else if inner.strangers.len() >= self.limits.strangers {
            inner.show_out(Some(0));
        }
        let number = inner.next;
        inner.next += 1;
        inner.inside += 1;
        inner.strangers.push(Stranger { number, from, stream });
        Some(PendingPeer { places: self.clone(), number, is_authenticated: false })
    }

    fn lock(&self) -> MutexGuard<'_, PlacesTable> {
        self.inner.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl PlacesTable {
    /// Ends the connection of a stranger; its thread reads the end.
    fn show_out(&mut self, at: Option<usize>) {
        if let Some(at) = at.filter(|at| *at < self.strangers.len()) {
            // It fails when the stranger has left already.
            let _ = self.strangers.remove(at).stream.shutdown(Shutdown::Both);
        }
    }

    fn forget(&mut self, number: u64) -> bool {
        let before = self.strangers.len();
        self.strangers.retain(|stranger| stranger.number != number);
        self.strangers.len() < before
    }
}

impl PendingPeer {
    /// Makes an authenticated peer of a stranger that has shown that it knows the secret.
    ///
    /// # Errors
    /// [`DoorError::Full`]; it was shown out meanwhile.
    pub(super) fn admit(&mut self) -> Result<(), DoorError> {
        let mut inner = self.places.lock();
        if !inner.forget(self.number) || inner.authenticated >= self.places.limits.authenticated {
            return Err(DoorError::Full);
        }
        inner.authenticated += 1;
        self.is_authenticated = true;
        Ok(())
    }
}

impl Drop for PendingPeer {
    fn drop(&mut self) {
        let mut inner = self.places.lock();
        inner.inside -= 1;
        if self.is_authenticated {
            inner.authenticated -= 1;
        } else {
            inner.forget(self.number);
        }
    }
}

#[cfg(test)]
mod tests {
    use std::io::Read;
    use std::net::{Ipv4Addr, TcpListener};
    use std::time::Duration;

    use super::*;

    /// Returns both ends of a connection.
    fn connection() -> (TcpStream, TcpStream) {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
        let caller = TcpStream::connect(listener.local_addr().expect("bound")).expect("let in");
        (caller, listener.accept().expect("a caller").0)
    }

    fn places(strangers: usize, each: usize, authenticated: usize) -> Arc<Places> {
        Arc::new(Places::new(Limits {
            strangers,
            each,
            authenticated,
            greeting: Duration::from_secs(60),
        }))
    }

    fn is_out((caller, _): &mut (TcpStream, TcpStream)) -> bool {
        caller.set_nonblocking(true).expect("set");
        matches!(caller.read(&mut [0]), Ok(0))
    }

    #[test]
    fn enter__the_oldest_stranger_makes_room_that_of_its_own_address_first() {
        let places = places(3, 2, 9);
        let mut connections: Vec<_> = (0..5).map(|_| connection()).collect();
        let from = [1, 2, 1, 1, 3].map(|last| IpAddr::V4(Ipv4Addr::new(10, 0, 0, last)));
        let _inside: Vec<_> = connections
            .iter()
            .zip(from)
            .map(|((_, stream), from)| places.enter(stream, from).expect("room"))
            .collect();
        // The third of address 1 in place of its first; then the oldest of all.
        let out: Vec<bool> = connections.iter_mut().map(is_out).collect();
        assert_eq!(out, [true, true, false, false, false]);
    }

    #[test]
    fn admit__guests_and_strangers_take_no_places_of_each_other() {
        let places = places(1, 1, 1);
        let mut connections: Vec<_> = (0..3).map(|_| connection()).collect();
        let enter =
            |at: usize| places.enter(&connections[at].1, Ipv4Addr::LOCALHOST.into()).expect("room");
        let mut first = enter(0);
        first.admit().expect("a free place");
        let mut second = enter(1);
        assert!(matches!(second.admit(), Err(DoorError::Full)));
        drop(first);
        assert!(matches!(second.admit(), Err(DoorError::Full)), "it is no stranger any more");
        let mut third = enter(2);
        third.admit().expect("the place of the first");
        assert!(connections.iter_mut().all(|connection| !is_out(connection)));
        drop((second, third));
        assert_eq!(places.lock().inside, 0);
    }
}
