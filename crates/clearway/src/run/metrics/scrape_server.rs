//! Answers scrapes (HTTP requests for one text) on one thread that never blocks on a client.
//!
//! # Model
//! ```text
//!   accept --> read a request, up to its empty line --> send the answer --> drain --> close
//! ```
//! The thread sleeps until a connection is ready or its time is over. A connection carries one
//! request. There is nothing to configure or to route, so this needs no library: 20 lines parse the
//! request, and the rest are limits, which a library would need as settings.
//!
//! # Source
//! RFC 9112; a scraper sends `GET` with a path and reads the answer.
//!
//! # Invariants
//! I1. A request has at most [`REQUEST_MAX`] bytes, an exchange takes at most [`EXCHANGE_MAX`], and
//!     there are at most [`CONNECTIONS_MAX`], of which the oldest is closed for a new one.

use std::io::{self, ErrorKind, Read, Write};
use std::net::{Shutdown, SocketAddr, TcpListener, TcpStream};
use std::os::fd::AsFd;
use std::sync::Arc;
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use clearway_runtime::wake_signal::WakeSignal;
use rustix::event::{PollFd, PollFlags, Timespec, poll};

/// The path of the text.
pub(super) const PATH: &str = "/metrics";
/// The one format: OpenMetrics 1.0.0, section "Content-Type".
const CONTENT_TYPE: &str = "application/openmetrics-text; version=1.0.0; charset=utf-8";
/// The longest request in bytes; scrapers send some hundreds.
const REQUEST_MAX: usize = 8 << 10;
/// Bytes after the request that are read and dropped: a close with unread bytes would discard the
/// answer.
const REST_MAX: usize = 64 << 10;
/// How long an exchange may take; scrapers give up after ten seconds.
const EXCHANGE_MAX: Duration = Duration::from_secs(5);
/// The most connections at a time: some scrapers, and some people.
const CONNECTIONS_MAX: usize = 32;
/// How long no connection is accepted after the system refused one.
const PAUSE: Duration = Duration::from_millis(100);

/// A thread that answers scrapes until this is dropped.
pub(super) struct ScrapeServer {
    address: SocketAddr,
    end: Arc<WakeSignal>,
    thread: Option<JoinHandle<()>>,
}

impl ScrapeServer {
    /// Starts to answer connections to `listener` with the result of `text`.
    ///
    /// # Errors
    /// The system has no room for a thread or a descriptor.
    pub(super) fn open(
        listener: TcpListener,
        text: impl FnMut() -> Arc<str> + Send + 'static,
    ) -> io::Result<Self> {
        Self::open_with(listener, EXCHANGE_MAX, text)
    }

    /// Answers the same way, with exchanges that take at most `timeout`.
    fn open_with(
        listener: TcpListener,
        timeout: Duration,
        text: impl FnMut() -> Arc<str> + Send + 'static,
    ) -> io::Result<Self> {
        listener.set_nonblocking(true)?;
        let address = listener.local_addr()?;
        let end = Arc::new(WakeSignal::new()?);
        let mut scrapes =
            Scrapes { listener, end: Arc::clone(&end), timeout, text, exchanges: Vec::new() };
        let thread = thread::Builder::new().name("metrics".to_owned()).spawn(move || scrapes.run());
        Ok(Self { address, end, thread: Some(thread?) })
    }

    /// Returns the address that was bound.
    pub(super) const fn address(&self) -> SocketAddr {
        self.address
    }
}

impl Drop for ScrapeServer {
    fn drop(&mut self) {
        self.end.raise();
        // The thread has no result.
        let _ = self.thread.take().map(JoinHandle::join);
    }
}

/// The state of the thread.
struct Scrapes<T> {
    listener: TcpListener,
    end: Arc<WakeSignal>,
    timeout: Duration,
    text: T,
    /// The oldest first.
    exchanges: Vec<Exchange>,
}

impl<T: FnMut() -> Arc<str>> Scrapes<T> {
    fn run(&mut self) {
        while self.sleep() {
            self.accept();
            let (text, now) = (&mut self.text, Instant::now());
            self.exchanges.retain_mut(|exchange| {
                // A client that went away needs no answer.
                now < exchange.until && matches!(exchange.advance(text), Ok(true))
            });
        }
    }

    /// Waits until a connection is ready. Returns `false` at the end.
    fn sleep(&self) -> bool {
        let mut fds =
            vec![PollFd::new(&self.end, PollFlags::IN), PollFd::new(&self.listener, PollFlags::IN)];
        fds.extend(self.exchanges.iter().map(|exchange| {
            let wanted = match exchange.phase {
                ExchangePhase::Answer { .. } => PollFlags::OUT,
                _ => PollFlags::IN,
            };
            PollFd::from_borrowed_fd(exchange.stream.as_fd(), wanted)
        }));
        let first = self.exchanges.iter().map(|exchange| exchange.until).min();
        let timeout = first.and_then(|until| {
            let left = until.saturating_duration_since(Instant::now());
            // Not before it is over.
            Timespec::try_from(left + Duration::from_millis(1)).ok()
        });
        if poll(&mut fds, timeout.as_ref()).is_err() {
            return true;
        }
        fds.first().is_none_or(|end| end.revents().is_empty())
    }

    /// Accepts waiting connections, up to the limit.
    fn accept(&mut self) {
        for _ in 0..CONNECTIONS_MAX {
            match self.listener.accept() {
                Ok((stream, _)) if stream.set_nonblocking(true).is_ok() => {
                    if self.exchanges.len() >= CONNECTIONS_MAX {
                        self.exchanges.remove(0);
                    }
                    let until = Instant::now() + self.timeout;
                    let phase = ExchangePhase::Request(Vec::new());
                    self.exchanges.push(Exchange { stream, until, phase });
                }
                Err(why) if why.kind() == ErrorKind::WouldBlock => return,
                // It is gone already.
                Ok(_) => {}
                Err(why) if why.kind() == ErrorKind::ConnectionAborted => {}
                Err(why) if why.kind() == ErrorKind::Interrupted => {}
                // No descriptors, no memory: it still waits, and would wake the thread at once.
                Err(_) => return thread::sleep(PAUSE),
            }
        }
    }
}

/// A connection.
struct Exchange {
    stream: TcpStream,
    until: Instant,
    phase: ExchangePhase,
}

enum ExchangePhase {
    Request(Vec<u8>),
    Answer {
        bytes: Vec<u8>,
        sent: usize,
    },
    /// Input is read and dropped until the other end closes; an earlier close would discard the
    /// answer.
    Rest(usize),
}

impl Exchange {
    /// Does all that can be done now. Returns `false` when the exchange is over.
    fn advance(&mut self, text: &mut impl FnMut() -> Arc<str>) -> io::Result<bool> {
        let mut room = [0; 4096];
        loop {
            let moved = match &mut self.phase {
                ExchangePhase::Request(_) | ExchangePhase::Rest(_) => self.stream.read(&mut room),
                ExchangePhase::Answer { bytes, sent } => {
                    self.stream.write(bytes.get(*sent..).unwrap_or_default())
                }
            };
            let moved = match moved {
                Ok(0) => return Ok(false),
                Ok(moved) => moved,
                Err(why) if why.kind() == ErrorKind::WouldBlock => return Ok(true),
                Err(why) if why.kind() == ErrorKind::Interrupted => continue,
                Err(why) => return Err(why),
            };
            match &mut self.phase {
                ExchangePhase::Request(request) => {
                    request.extend_from_slice(room.get(..moved).unwrap_or_default());
                    if let Some(bytes) = answer(request, text) {
                        self.phase = ExchangePhase::Answer { bytes, sent: 0 };
                    }
                }
                ExchangePhase::Answer { bytes, sent } => {
                    *sent += moved;
                    if *sent >= bytes.len() {
                        self.stream.shutdown(Shutdown::Write)?;
                        self.phase = ExchangePhase::Rest(0);
                    }
                }
                ExchangePhase::Rest(taken) => {
                    *taken += moved;
                    if *taken > REST_MAX {
                        return Ok(false);
                    }
                }
            }
        }
    }
}

/// Returns the answer to `request`, or none while the request is incomplete.
fn answer(request: &[u8], text: &mut impl FnMut() -> Arc<str>) -> Option<Vec<u8>> {
    let is_whole = request.windows(4).any(|end| end == b"\r\n\r\n")
        || request.windows(2).any(|end| end == b"\n\n");
    if request.len() > REQUEST_MAX {
        return Some(refusal("431 Request Header Fields Too Large", "a request has 8 KiB at most"));
    }
    if !is_whole {
        return None;
    }
    let line = request.split(|byte| matches!(byte, b'\r' | b'\n')).next().unwrap_or_default();
    let words: Vec<&[u8]> = line.split(|byte| *byte == b' ').collect();
    Some(match words[..] {
        [method, target, version] if version.starts_with(b"HTTP/1.") => {
            match (method, path_of(target) == PATH.as_bytes()) {
                (_, false) => refusal("404 Not Found", "metrics are at /metrics"),
                (b"GET", true) => response("200 OK", CONTENT_TYPE, &text(), true),
                (b"HEAD", true) => response("200 OK", CONTENT_TYPE, &text(), false),
                (_, true) => refusal("405 Method Not Allowed", "metrics can only be read"),
            }
        }
        _ => refusal("400 Bad Request", "this is no request of HTTP/1"),
    })
}

/// Returns the path of a request's target, which may begin with the server and end with a query.
fn path_of(target: &[u8]) -> &[u8] {
    let path = match target.strip_prefix(b"http://") {
        Some(rest) => {
            rest.iter().position(|byte| *byte == b'/').and_then(|at| rest.get(at..)).unwrap_or(b"/")
        }
        None => target,
    };
    path.split(|byte| *byte == b'?').next().unwrap_or_default()
}

fn refusal(status: &str, why: &str) -> Vec<u8> {
    response(status, "text/plain; charset=utf-8", &format!("{why}\n"), true)
}

fn response(status: &str, content_type: &str, body: &str, with_body: bool) -> Vec<u8> {
    let allow = if status.starts_with("405") { "Allow: GET, HEAD\r\n" } else { "" };
    let head = format!(
        "HTTP/1.1 {status}\r\nContent-Type: {content_type}\r\nContent-Length: {}\r\nCache-Control: no-store\r\n{allow}Connection: \
         close\r\n\r\n",
        body.len()
    );
    let body = if with_body { body } else { "" };
    [head.as_bytes(), body.as_bytes()].concat()
}

#[cfg(test)]
mod tests {
    use clearway_proto::base::RandomKey;

    use super::*;

    const TEXT: &str = "# EOF\n";

    fn server(timeout: Duration) -> ScrapeServer {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
        ScrapeServer::open_with(listener, timeout, || Arc::from(TEXT)).expect("a thread")
    }

    fn connect(server: &ScrapeServer) -> TcpStream {
        let stream = TcpStream::connect(server.address()).expect("it listens");
        // A test that fails does so in time.
        stream.set_read_timeout(Some(Duration::from_secs(20))).expect("set");
        stream
    }

    /// Returns what the server says to `request`, and whether it said it in order to its end.
    fn said(server: &ScrapeServer, request: &[u8]) -> (String, bool) {
        let mut stream = connect(server);
        let is_sent = stream.write_all(request).is_ok();
        let mut answer = String::new();
        let is_whole = stream.read_to_string(&mut answer).is_ok();
        (answer, is_sent && is_whole)
    }

    fn scrape(server: &ScrapeServer) -> String {
        let (answer, is_whole) = said(server, b"GET /metrics HTTP/1.1\r\nHost: n\r\n\r\n");
        assert!(is_whole && answer.ends_with("\r\n\r\n# EOF\n"), "{answer}");
        answer
    }

    #[test]
    fn answer__a_scraper_gets_the_text_in_its_one_format() {
        let server = server(EXCHANGE_MAX);
        let answer = scrape(&server);
        assert!(answer.starts_with("HTTP/1.1 200 OK\r\n"), "{answer}");
        let kind =
            "\r\nContent-Type: application/openmetrics-text; version=1.0.0; charset=utf-8\r\n";
        assert!(answer.contains(kind) && answer.contains("\r\nContent-Length: 6\r\n"), "{answer}");
        let status = |request: &[u8]| {
            let (answer, is_whole) = said(&server, request);
            assert!(is_whole, "{answer}");
            answer.split(' ').nth(1).unwrap_or_default().to_owned()
        };
        assert_eq!(status(b"GET http://n:27183/metrics?x=1 HTTP/1.0\n\n"), "200");
        assert_eq!(status(b"GET / HTTP/1.1\r\n\r\n"), "404");
        assert_eq!(status(b"GET http:// HTTP/1.1\r\n\r\n"), "404");
        assert_eq!(status(b"POST /metrics HTTP/1.1\r\n\r\nbody"), "405");
        let (answer, _) = said(&server, b"HEAD /metrics HTTP/1.1\r\n\r\n");
        assert!(
            answer.contains("Content-Length: 6\r\n") && answer.ends_with("\r\n\r\n"),
            "{answer}"
        );
    }

    #[test]
    fn answer__what_is_no_request_does_no_harm() {
        let server = server(EXCHANGE_MAX);
        for garbage in
            [&b"\r\n\r\n"[..], b"\0\xff\n\n", b"GET /metrics\n\n", b"GET  /metrics HTTP/1.1\n\n"]
        {
            let (answer, is_whole) = said(&server, garbage);
            assert!(is_whole && answer.starts_with("HTTP/1.1 400 "), "{answer}");
        }
        let long =
            [b"GET /metrics HTTP/1.1\r\nx: ".to_vec(), vec![b'y'; REQUEST_MAX + 9000]].concat();
        let (answer, is_whole) = said(&server, &long);
        assert!(is_whole && answer.starts_with("HTTP/1.1 431 "), "{answer}");
        // One that never ends is cut off.
        said(&server, &vec![b'z'; 64 << 20]);
        scrape(&server);
    }

    #[test]
    fn answer__any_bytes_are_answered_or_waited_for() {
        let mut request = b"GET /metrics?a HTTP/1.1\r\n\r\n".to_vec();
        let mut draws = RandomKey::new(7).stream();
        for _ in 0..20_000 {
            let at = draws.below(request.len() as u64) as usize;
            let before = std::mem::replace(&mut request[at], draws.below(256) as u8);
            let status = answer(&request, &mut || Arc::from(TEXT));
            let status = status.map(|bytes| bytes[9..12].to_vec());
            let known = [b"200", b"400", b"404", b"405"];
            assert!(status.is_none_or(|status| known.iter().any(|known| status == *known)));
            // Half of them are damaged further.
            if draws.below(2) == 0 {
                request[at] = before;
            }
            let end = draws.below(request.len() as u64) as usize;
            let _ = answer(&request[..end], &mut || Arc::from(TEXT));
        }
    }

    #[test]
    fn run__a_silent_client_delays_nobody_and_is_disconnected() {
        let server = server(Duration::from_millis(200));
        let mut silent = connect(&server);
        silent.write_all(b"GET /metrics HTT").expect("sent");
        scrape(&server);
        let mut rest = Vec::new();
        assert_eq!(silent.read_to_end(&mut rest).ok(), Some(0), "it is closed without an answer");
    }

    #[test]
    fn accept__the_oldest_of_many_connections_makes_room() {
        let server = server(Duration::from_secs(600));
        let mut idle: Vec<TcpStream> = (0..100).map(|_| connect(&server)).collect();
        scrape(&server);
        let mut rest = Vec::new();
        assert_eq!(idle[0].read_to_end(&mut rest).ok(), Some(0), "it is closed");
        let last = idle.last_mut().expect("a hundred");
        last.write_all(b"GET /metrics HTTP/1.1\r\n\r\n").expect("sent");
        last.read_to_end(&mut rest).expect("answered");
        assert!(rest.ends_with(TEXT.as_bytes()));
    }
}
