//! A listener for peers that prove that they know a secret. Strangers cost it a bounded number of threads, each for a bounded time.
//!
//! # Model
//! Each visitor gets a thread of its own. Its proof and all messages after it go over a link ([`call`] and [`answer`]), which works over
//! any connection.
//!
//! # Invariants
//! I1. A visitor without the secret has a thread for [`Limits::greeting`] at most. There are at most [`Limits::guests`] visitors at a
//!     time.
//!
//! # Not here
//! The meaning of messages: a link carries bytes.

mod link;

use std::io::{self, Read};
use std::net::{SocketAddr, TcpListener, TcpStream, ToSocketAddrs};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::{Duration, Instant};

use thiserror::Error;

pub use link::{Ends, Listener, Protocol, Speaker, answer, call};

use crate::RuntimeError;

/// The pause before the next try when the system cannot accept a connection.
const AGAIN: Duration = Duration::from_millis(100);

/// Says why a connection between a visitor and a listener failed.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum DoorError {
    /// The other end takes nothing that it is told: look whether it runs.
    #[error("the other end does not listen")]
    Unheard(#[source] io::Error),
    /// The connection ended or broke before the other end had said all: look whether it runs.
    #[error("the other end does not speak")]
    Unspoken(#[source] io::Error),
    /// The other end is another program or another version: put the same on all hosts.
    #[error("the other end speaks another protocol")]
    OtherProtocol,
    /// The other end does not know the secret: give it the same.
    #[error("the other end has another key")]
    OtherKey,
    /// A message is longer than the protocol has: say less.
    #[error("a message of {length} bytes")]
    TooLong {
        /// Its length.
        length: usize,
    },
    /// A message was changed, left out, repeated or made up on its way: end the connection.
    #[error("a message that the other end did not say")]
    Forged,
    /// Keys could not be made.
    #[error(transparent)]
    Keys(#[from] RuntimeError),
}

/// Bounds what visitors cost.
#[derive(Clone, Copy, Debug)]
pub struct Limits {
    /// Visitors at a time, those with the secret and strangers together.
    pub guests: usize,
    /// How long a visitor may take to show that it knows the secret.
    pub greeting: Duration,
}

/// Listens for visitors.
#[derive(Debug)]
pub struct Door {
    listener: TcpListener,
    limits: Limits,
}

/// Holds the connection of a visitor that has not shown anything yet.
#[derive(Debug)]
pub struct Visitor {
    stream: TcpStream,
    from: SocketAddr,
    greeting: Duration,
}

impl Door {
    /// Listens at `address`.
    ///
    /// # Errors
    /// The address is not free or not of this host.
    pub fn open(address: impl ToSocketAddrs, limits: Limits) -> io::Result<Self> {
        Ok(Self { listener: TcpListener::bind(address)?, limits })
    }

    /// Returns where it listens.
    ///
    /// # Errors
    /// The system does not say.
    pub fn address(&self) -> io::Result<SocketAddr> {
        self.listener.local_addr()
    }

    /// Lets visitors in for as long as the process runs, and calls `receive` for each on a thread of its own. A visitor beyond the
    /// limit is turned away.
    pub fn serve(&self, receive: impl Fn(Visitor) + Send + Sync + 'static) -> ! {
        let guests = Arc::new(AtomicUsize::new(0));
        let receive = Arc::new(receive);
        loop {
            let Ok((stream, from)) = self.listener.accept() else {
                thread::sleep(AGAIN);
                continue;
            };
            if guests.load(Ordering::Relaxed) >= self.limits.guests {
                continue;
            }
            let (place, receive) = (Place::take(&guests), receive.clone());
            let visitor = Visitor { stream, from, greeting: self.limits.greeting };
            let visit = move || {
                receive(visitor);
                drop(place);
            };
            // Without a thread the visitor is turned away, and its place is free again.
            let _ = thread::Builder::new().name("visitor".to_owned()).spawn(visit);
        }
    }
}

/// One of the places for visitors; free again when it is dropped.
struct Place(Arc<AtomicUsize>);

impl Place {
    fn take(guests: &Arc<AtomicUsize>) -> Self {
        guests.fetch_add(1, Ordering::Relaxed);
        Self(guests.clone())
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::Relaxed);
    }
}

impl Visitor {
    /// Returns where it came from.
    pub fn from(&self) -> SocketAddr {
        self.from
    }

    /// Returns its connection, for options of the socket.
    pub fn stream(&self) -> &TcpStream {
        &self.stream
    }

    /// Hears its proof and gives one, as [`answer`] does, within [`Limits::greeting`].
    ///
    /// # Errors
    /// As for [`answer`]; the proof takes too long.
    pub fn answer(self, protocol: &Protocol, secret: &[u8]) -> Result<Option<(Speaker, Listener)>, DoorError> {
        let until = Arc::new(Mutex::new(Some(Instant::now() + self.greeting)));
        let stream = self.stream.try_clone().map_err(DoorError::Unspoken)?;
        let input = Greeting { stream, until: until.clone() };
        let link = answer((Box::new(input), Box::new(self.stream)), protocol, secret)?;
        if let Ok(mut until) = until.lock() {
            *until = None;
        }
        Ok(link)
    }
}

/// The input from a visitor. Until the visitor has shown that it knows the secret, a read has a time limit.
struct Greeting {
    stream: TcpStream,
    until: Arc<Mutex<Option<Instant>>>,
}

impl Read for Greeting {
    fn read(&mut self, bytes: &mut [u8]) -> io::Result<usize> {
        let until = self.until.lock().map(|until| *until).unwrap_or_default();
        let left = until.map(|until| until.saturating_duration_since(Instant::now()));
        if left == Some(Duration::ZERO) {
            return Err(io::ErrorKind::TimedOut.into());
        }
        self.stream.set_read_timeout(left)?;
        self.stream.read(bytes)
    }
}

#[cfg(test)]
mod tests {
    use std::io::Write;
    use std::sync::mpsc::channel;

    use super::*;

    #[test]
    fn greeting__one_who_speaks_slowly_is_heard_no_longer_than_one_who_is_silent() {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
        let mut caller = TcpStream::connect(listener.local_addr().expect("bound")).expect("let in");
        let (stream, _) = listener.accept().expect("a caller");
        caller.write_all(b"abc").expect("sent");
        let until = Arc::new(Mutex::new(Some(Instant::now() + Duration::from_secs(600))));
        let mut greeting = Greeting { stream, until: until.clone() };
        let mut byte = [0];
        greeting.read_exact(&mut byte).expect("in time");
        *until.lock().expect("no fault") = Some(Instant::now());
        assert_eq!(greeting.read(&mut byte).expect_err("too late").kind(), io::ErrorKind::TimedOut);
        *until.lock().expect("no fault") = None;
        greeting.read_exact(&mut byte).expect("as long as it takes");
        assert_eq!(byte, *b"b");
    }

    #[test]
    fn serve__a_visitor_beyond_the_limit_is_turned_away() {
        let limits = Limits { guests: 1, greeting: Duration::from_secs(60) };
        let door = Door::open("127.0.0.1:0", limits).expect("a port");
        let address = door.address().expect("bound");
        let (came, visitors) = channel();
        let (leave, stay) = channel::<()>();
        let stay = Mutex::new(stay);
        // The thread ends with the tests: a door has no end.
        thread::spawn(move || {
            door.serve(move |visitor| {
                came.send(visitor.from()).expect("the test");
                let _ = stay.lock().expect("no fault").recv();
            })
        });
        let first = TcpStream::connect(address).expect("let in");
        assert_eq!(visitors.recv().expect("one came"), first.local_addr().expect("bound"));
        let mut second = TcpStream::connect(address).expect("the system lets it in");
        assert_eq!(second.read(&mut [0]).expect("closed in order"), 0);
        leave.send(()).expect("the first");
        let until = Instant::now() + Duration::from_secs(60);
        let third = loop {
            assert!(Instant::now() < until, "the place of the first does not become free");
            let again = TcpStream::connect(address).expect("the system lets it in");
            match visitors.recv_timeout(Duration::from_millis(10)) {
                Ok(from) if from == again.local_addr().expect("bound") => break from,
                _ => {}
            }
        };
        assert_ne!(third, first.local_addr().expect("bound"));
    }
}
