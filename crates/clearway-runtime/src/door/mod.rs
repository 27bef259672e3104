//! A listener for peers that prove that they know a secret. Strangers cost it a bounded number of
//! threads, each for a bounded time.
//!
//! # Model
//! Each peer gets a thread of its own. Its proof and all messages after it go over a link
//! ([`call`] and [`answer`]), which works over any connection. Which peers may stay when many
//! come is decided in `places`.
//!
//! # Invariants
//! I1. A peer without the secret has a thread for [`Limits::greeting`] at most, and costs no
//!     memory but a few kB. There are at most
//!     [`Limits::strangers`] of them, and [`Limits::authenticated`] peers with the secret.
//! I2. A recorded conversation proves nothing: the proof answers random bytes of this connection.
//!
//! # Not here
//! The meaning of messages: a link carries bytes.

mod link;
mod places;

use std::io::{self, Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream, ToSocketAddrs};
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::{Duration, Instant};

use thiserror::Error;

use link::answer_if;
pub use link::{HandshakeLabels, SealedReceiver, SealedSender, StreamEnds, answer, call};

use crate::RuntimeError;
use places::{PendingPeer, Places};

/// The pause before the next try when the system cannot accept a connection.
const AGAIN: Duration = Duration::from_millis(100);

/// Says why a connection between a peer and a listener failed.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum DoorError {
    /// The other end takes nothing that is sent to it: look whether it runs.
    #[error("the other end does not listen")]
    SendFailed(#[source] io::Error),
    /// The connection ended or broke before the other end had said all: look whether it runs.
    #[error("the other end does not speak")]
    ReceiveFailed(#[source] io::Error),
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
    /// The other end has as many peers as it takes: come again later.
    #[error("the other end has as many peers as it takes; try again later")]
    Full,
    /// Keys could not be made.
    #[error(transparent)]
    Keys(#[from] RuntimeError),
}

/// Bounds what peers cost.
#[derive(Clone, Copy, Debug)]
pub struct Limits {
    /// Peers at a time that have not shown the secret. One more takes the place of the oldest.
    pub strangers: usize,
    /// How many of them may come from one address.
    pub each: usize,
    /// Peers at a time that have. One more is notified of that.
    pub authenticated: usize,
    /// How long a peer may take to show that it knows the secret.
    pub greeting: Duration,
}

/// Listens for peers.
#[derive(Debug)]
pub struct KeyedListener {
    listener: TcpListener,
    limits: Limits,
}

/// Holds the connection of a peer that has not shown anything yet. Where it has to be introduced
/// before its proof, it is read and written to in the clear; all of that, the proof included, is
/// done within [`Limits::greeting`].
#[derive(Debug)]
pub struct AcceptedPeer {
    stream: TcpStream,
    from: SocketAddr,
    input: Greeting,
    place: PendingPeer,
}

impl KeyedListener {
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

    /// Lets peers in for as long as the process runs, and calls `receive` for each on a thread
    /// of its own. A peer has a place until what `receive` was given, or got from
    /// [`AcceptedPeer::answer`], is dropped.
    pub fn serve(&self, receive: impl Fn(AcceptedPeer) + Send + Sync + 'static) -> ! {
        let places = Arc::new(Places::new(self.limits));
        let receive = Arc::new(receive);
        loop {
            let Ok((stream, from)) = self.listener.accept() else {
                thread::sleep(AGAIN);
                continue;
            };
            let Some(place) = places.enter(&stream, from.ip()) else { continue };
            let Ok(input) = Greeting::new(&stream, self.limits.greeting) else { continue };
            let peer = AcceptedPeer { stream, from, input, place };
            let receive = receive.clone();
            // Without a thread the peer is turned away, and its place is free again.
            let _ = thread::Builder::new().name("peer".to_owned()).spawn(move || receive(peer));
        }
    }
}

/// Holds the place of a peer that has shown the secret, for as long as it is not dropped.
#[derive(Debug)]
pub struct PeerPlace {
    _place: PendingPeer,
}

impl AcceptedPeer {
    /// Returns where it came from.
    pub fn from(&self) -> SocketAddr {
        self.from
    }

    /// Returns its connection, for options of the socket.
    pub fn stream(&self) -> &TcpStream {
        &self.stream
    }

    /// Returns whether it begins with `magic`, which is read then; anything else is left for the
    /// proof.
    ///
    /// # Errors
    /// The connection broke, or the peer says nothing in time.
    pub fn begins_with(&mut self, magic: &[u8; 16]) -> Result<bool, DoorError> {
        let mut begun = Vec::new();
        let wanted = magic.len() as u64;
        self.input
            .by_ref()
            .take(wanted)
            .read_to_end(&mut begun)
            .map_err(DoorError::ReceiveFailed)?;
        let is_same = begun == magic;
        if !is_same {
            self.input.unread = begun;
        }
        Ok(is_same)
    }

    /// Hears its proof and gives one, as [`answer`] does, within [`Limits::greeting`].
    ///
    /// # Errors
    /// As for [`answer`]; the proof takes too long, or there is no place ([`DoorError::Full`]).
    pub fn answer(
        self,
        protocol: &HandshakeLabels,
        secret: &[u8],
    ) -> Result<Option<(SealedSender, SealedReceiver, PeerPlace)>, DoorError> {
        self.answer_by(protocol, |_| Some(secret.to_vec()))
    }

    /// Does the same with the secret that `secret_of` has for the peer's session number; `None`
    /// refuses the peer as one with another key.
    ///
    /// # Errors
    /// As for [`AcceptedPeer::answer`].
    pub fn answer_by(
        self,
        protocol: &HandshakeLabels,
        secret_of: impl FnOnce(u64) -> Option<Vec<u8>>,
    ) -> Result<Option<(SealedSender, SealedReceiver, PeerPlace)>, DoorError> {
        let Self { stream, input, mut place, .. } = self;
        let until = input.until.clone();
        let heard = stream.try_clone().map_err(DoorError::ReceiveFailed)?;
        let ends: StreamEnds = (Box::new(input), Box::new(stream));
        let link = answer_if(ends, protocol, secret_of, || place.admit())?;
        if let Ok(mut until) = until.lock() {
            *until = None;
        }
        // From now on the limit is what the owner of the connection sets.
        heard.set_read_timeout(None).map_err(DoorError::ReceiveFailed)?;
        Ok(link.map(|(speaker, listener)| (speaker, listener, PeerPlace { _place: place })))
    }
}

impl Read for AcceptedPeer {
    fn read(&mut self, bytes: &mut [u8]) -> io::Result<usize> {
        self.input.read(bytes)
    }
}

impl Write for AcceptedPeer {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.stream.write(bytes)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.stream.flush()
    }
}

/// The input from a peer. Until the peer has shown that it knows the secret, a read has a
/// time limit.
#[derive(Debug)]
struct Greeting {
    stream: TcpStream,
    /// What was read and belongs to the proof.
    unread: Vec<u8>,
    until: Arc<Mutex<Option<Instant>>>,
}

impl Greeting {
    fn new(stream: &TcpStream, time: Duration) -> io::Result<Self> {
        let until = Arc::new(Mutex::new(Some(Instant::now() + time)));
        Ok(Self { stream: stream.try_clone()?, unread: Vec::new(), until })
    }
}

impl Read for Greeting {
    fn read(&mut self, bytes: &mut [u8]) -> io::Result<usize> {
        if !self.unread.is_empty() {
            let count = self.unread.as_slice().read(bytes)?;
            self.unread.drain(..count);
            return Ok(count);
        }
        let until = self.until.lock().map(|until| *until).unwrap_or_default();
        if let Some(until) = until {
            let left = until.saturating_duration_since(Instant::now());
            if left.is_zero() {
                return Err(io::ErrorKind::TimedOut.into());
            }
            self.stream.set_read_timeout(Some(left))?;
        }
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
        let mut greeting = Greeting::new(&stream, Duration::from_secs(600)).expect("a duplicate");
        let until = greeting.until.clone();
        let mut byte = [0];
        greeting.read_exact(&mut byte).expect("in time");
        *until.lock().expect("no fault") = Some(Instant::now());
        assert_eq!(greeting.read(&mut byte).expect_err("too late").kind(), io::ErrorKind::TimedOut);
        *until.lock().expect("no fault") = None;
        greeting.read_exact(&mut byte).expect("as long as it takes");
        assert_eq!(byte, *b"b");
    }

    const PROTOCOL: HandshakeLabels =
        HandshakeLabels { magic: *b"a test of doors\n", message_max: 1000 };
    const SECRET: &[u8] = b"sixteen bytes at least";
    const LIMITS: Limits =
        Limits { strangers: 4, each: 4, authenticated: 4, greeting: Duration::from_secs(60) };

    /// Lets in one peer, which `caller` is; returns both.
    fn one_peer() -> (TcpStream, AcceptedPeer) {
        let door = KeyedListener::open("127.0.0.1:0", LIMITS).expect("a port");
        let address = door.address().expect("bound");
        let (came, peers) = channel();
        // The thread ends with the tests: a door has no end.
        thread::spawn(move || door.serve(move |peer| came.send(peer).expect("the test")));
        let caller = TcpStream::connect(address).expect("let in");
        (caller, peers.recv().expect("one came"))
    }

    fn ends_of(stream: TcpStream) -> StreamEnds {
        (Box::new(stream.try_clone().expect("two ends")), Box::new(stream))
    }

    #[test]
    fn begins_with__what_is_not_the_magic_is_left_for_the_proof() {
        let (caller, mut peer) = one_peer();
        let calls = thread::spawn(move || call(ends_of(caller), &PROTOCOL, 7, SECRET));
        assert!(!peer.begins_with(b"an introduction\n").expect("heard"));
        assert!(peer.answer(&PROTOCOL, SECRET).expect("agreed").is_some());
        assert!(calls.join().expect("no panic").is_ok());
    }

    #[test]
    fn begins_with__an_introduction_is_in_the_clear_and_the_proof_comes_behind_it() {
        let (mut caller, mut peer) = one_peer();
        let calls = thread::spawn(move || {
            caller.write_all(b"an introduction\nshe").expect("sent");
            let mut word = [0; 2];
            caller.read_exact(&mut word).expect("heard");
            (word, call(ends_of(caller), &PROTOCOL, 7, SECRET).is_ok())
        });
        assert!(peer.begins_with(b"an introduction\n").expect("heard"));
        let mut word = [0; 3];
        peer.read_exact(&mut word).expect("heard");
        peer.write_all(b"he").expect("sent");
        assert!(peer.answer(&PROTOCOL, SECRET).expect("agreed").is_some());
        assert_eq!((word, calls.join().expect("no panic")), (*b"she", (*b"he", true)));
    }

    #[test]
    fn answer__an_authenticated_peer_that_says_nothing_more_is_heard_as_long_as_its_host_likes() {
        let (caller, peer) = one_peer();
        let stream = peer.stream().try_clone().expect("the same");
        let calls = thread::spawn(move || call(ends_of(caller), &PROTOCOL, 7, SECRET));
        let authenticated = peer.answer(&PROTOCOL, SECRET).expect("agreed").expect("called");
        let (_sender, mut receiver, _place) = authenticated;
        let _silent = calls.join().expect("no panic").expect("agreed");
        stream.set_read_timeout(Some(Duration::from_millis(1))).expect("set");
        assert!(matches!(receiver.receive(), Err(DoorError::ReceiveFailed(_))));
    }

    #[test]
    fn serve__whoever_comes_last_is_heard_and_the_oldest_stranger_is_not() {
        let limits =
            Limits { strangers: 1, each: 1, authenticated: 1, greeting: Duration::from_secs(60) };
        let door = KeyedListener::open("127.0.0.1:0", limits).expect("a port");
        let address = door.address().expect("bound");
        let (came, peers) = channel();
        // The thread ends with the tests: a door has no end.
        thread::spawn(move || {
            door.serve(move |peer| {
                let from = peer.from();
                came.send((from, peer)).expect("the test");
            })
        });
        let mut inside = Vec::new();
        let mut before: Option<TcpStream> = None;
        for _ in 0..3 {
            let caller = TcpStream::connect(address).expect("let in");
            let (from, peer) = peers.recv().expect("one came");
            assert_eq!(from, caller.local_addr().expect("bound"));
            inside.push(peer);
            if let Some(mut before) = before.replace(caller) {
                assert_eq!(before.read(&mut [0]).expect("closed in order"), 0);
            }
        }
    }
}
