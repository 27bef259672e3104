//! `clearway cast serve`: a receiver that waits for senders with the right key.
//!
//! # Invariants
//! I1. Who does not know the key is heard for [`GREETING`] at most, and costs a thread; there are at most [`GUESTS_MAX`] at a time.
//! I2. Nothing is written outside the directory that was given.

use std::io::{self, Read};
use std::net::{SocketAddrV4, TcpListener, TcpStream};
use std::path::Path;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, Result};

use super::crew::{key, over};
use super::link::answer;
use super::peers::Connection;
use super::receiver::{Whither, receive};
use super::target::Target;

/// Where receivers listen: a port that IANA gave to nobody, below those that systems give away themselves.
pub(crate) const PORT: u16 = 27182;
/// How long a visitor may take to show that it knows the key.
const GREETING: Duration = Duration::from_secs(5);
/// Visitors at a time: casts and strangers together.
const GUESTS_MAX: usize = 64;
/// How long nobody is let in when the system cannot.
const AGAIN: Duration = Duration::from_millis(100);

/// Listens at `address` for senders with the key in the file `key_file`, and writes into `directory`. Says where, on standard error.
///
/// # Errors
/// One sentence: no key, no directory, no port.
pub(crate) fn serve(address: SocketAddrV4, key_file: &Path, directory: &Path) -> Result<()> {
    let secret: Arc<[u8]> = key(key_file)?.into();
    // What is wrong with it is said now, not to each sender.
    Target::open(directory)?;
    let directory = directory.canonicalize().with_context(|| format!("{} cannot be read", directory.display()))?;
    let listener = TcpListener::bind(address).with_context(|| format!("cannot listen at {address}"))?;
    let address = listener.local_addr().context("the port that was bound")?;
    eprintln!("listening at {address}, writing below {}", directory.display());
    let guests = Arc::new(AtomicUsize::new(0));
    loop {
        let Ok((stream, from)) = listener.accept() else {
            thread::sleep(AGAIN);
            continue;
        };
        if guests.load(Ordering::Relaxed) >= GUESTS_MAX {
            continue;
        }
        guests.fetch_add(1, Ordering::Relaxed);
        let (left, secret, whither) = (guests.clone(), secret.clone(), Whither::Beneath(directory.clone()));
        let visit = move || {
            if let Err(error) = hear(stream, &secret, &whither) {
                eprintln!("{}: {error:#}", from.ip());
            }
            left.fetch_sub(1, Ordering::Relaxed);
        };
        if thread::Builder::new().name("cast".to_owned()).spawn(visit).is_err() {
            guests.fetch_sub(1, Ordering::Relaxed);
        }
    }
}

fn hear(stream: TcpStream, secret: &[u8], whither: &Whither) -> Result<()> {
    let until = Arc::new(Mutex::new(Some(Instant::now() + GREETING)));
    let visitor = Visitor { stream: stream.try_clone()?, until: until.clone() };
    let Connection { ends: (_, output), .. } = over(stream)?;
    let Some(link) = answer((Box::new(visitor), output), secret)? else { return Ok(()) };
    if let Ok(mut until) = until.lock() {
        *until = None;
    }
    receive(link, secret, whither, None)
}

/// What somebody says who has not shown that it knows the key, until then.
struct Visitor {
    stream: TcpStream,
    until: Arc<Mutex<Option<Instant>>>,
}

impl Read for Visitor {
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

    use super::*;

    #[test]
    fn visitor__one_who_speaks_slowly_is_heard_no_longer_than_one_who_is_silent() {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
        let mut caller = TcpStream::connect(listener.local_addr().expect("bound")).expect("let in");
        let (stream, _) = listener.accept().expect("a caller");
        caller.write_all(b"abc").expect("sent");
        let until = Arc::new(Mutex::new(Some(Instant::now() + Duration::from_secs(600))));
        let mut visitor = Visitor { stream, until: until.clone() };
        let mut byte = [0];
        visitor.read_exact(&mut byte).expect("in time");
        *until.lock().expect("no fault") = Some(Instant::now());
        assert_eq!(visitor.read(&mut byte).expect_err("too late").kind(), io::ErrorKind::TimedOut);
        *until.lock().expect("no fault") = None;
        visitor.read_exact(&mut byte).expect("as long as it takes");
        assert_eq!(byte, *b"b");
    }
}
