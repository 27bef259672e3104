//! A rank's end of its connection to the hub.
//!
//! # Model
//! A thread reads all that comes, so that the end of the job is noticed also while the rank works
//! on something else: then it calls what it was given for that case, which for a real rank ends the
//! process.
//!
//! # Invariants
//! I1. The thread ends with the connection, and the connection with the [`MemberLink`].

use std::fmt;
use std::io::{ErrorKind, Read};
use std::net::{Shutdown, SocketAddr, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::thread;
use std::time::{Duration, Instant};

use socket2::{SockRef, TcpKeepalive};

use super::super::LaunchError;
use super::super::job::JobLink;
use super::super::send::send_all;
use super::frame::{
    self, CHALLENGE, FRAME_MAX, FrameBuffer, FrameSeal, FrameSender, MemberKey, ToHub, ToRank,
};
use super::hub::JobFailure;
use super::{LOST, STRANGER_TIMEOUT};

/// How much longer a rank waits than the hub, so that the hub can say who is missing.
const MARGIN: Duration = Duration::from_secs(5);

/// How long a listener has for its challenge, which a hub sends at once. A slow hub is asked again
/// later.
const FIRST_WORD: Duration = Duration::from_secs(1);

/// The pause before all addresses are tried again.
const PAUSE: Duration = Duration::from_millis(20);

/// A silent peer is asked for a sign of life after this time, then every `PROBE_EVERY`; after three
/// without one it is gone. A host that loses its power is noticed within a minute.
const PROBE_AFTER: Duration = Duration::from_secs(30);
const PROBE_EVERY: Duration = Duration::from_secs(10);

/// The rank that wants to join, and how it proves it.
#[derive(Clone, Debug)]
pub(in crate::launch) struct JoinClaim {
    pub(in crate::launch) rank: u32,
    pub(in crate::launch) size: u32,
    pub(in crate::launch) host: String,
    pub(in crate::launch) key: MemberKey,
}

/// How a rank learnt that the job is over.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::launch) enum EndSource {
    /// The hub notified all ranks, rank 0 among them.
    Hub,
    /// The hub is gone.
    Silence,
}

/// What is called, once, when the job ends under a rank.
pub(in crate::launch) type OnEnd = Box<dyn FnOnce(&JobFailure, EndSource) + Send>;

/// A rank's connection to the hub.
pub(in crate::launch) struct MemberLink {
    stream: TcpStream,
    outgoing: FrameSeal,
    incoming: Receiver<Result<ToRank, JobFailure>>,
    size: u32,
    timeout: Duration,
    /// The rank is on its way out: that the hub closes is no news.
    is_leaving: Arc<AtomicBool>,
}

impl fmt::Debug for MemberLink {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("MemberLink").field("stream", &self.stream).finish_non_exhaustive()
    }
}

impl MemberLink {
    /// Looks for the hub at `addresses`, again and again until `timeout` is over, and joins.
    ///
    /// # Errors
    /// No hub of this job is there; the sentence says what the last address answered.
    pub(in crate::launch) fn join(
        claim: &JoinClaim,
        addresses: &[SocketAddr],
        timeout: Duration,
        on_end: OnEnd,
    ) -> Result<Self, LaunchError> {
        let until = Instant::now() + timeout;
        let mut last = "nobody was asked".to_owned();
        loop {
            for address in addresses {
                let rest = until.saturating_duration_since(Instant::now());
                if rest.is_zero() {
                    let what =
                        format!("no hub of this job within {} s ({last})", timeout.as_secs_f32());
                    return Err(LaunchError::Launcher { method: "rendezvous", what });
                }
                match authenticate(claim, *address, rest.min(STRANGER_TIMEOUT)) {
                    Ok(hands) => return Self::start(claim, hands, timeout, on_end),
                    Err(why) => last = format!("{address}: {why}"),
                }
            }
            thread::sleep(PAUSE);
        }
    }

    fn start(
        claim: &JoinClaim,
        hands: AuthenticatedConnection,
        timeout: Duration,
        on_end: OnEnd,
    ) -> Result<Self, LaunchError> {
        let AuthenticatedConnection { stream, incoming, outgoing, inbox } = hands;
        let refused = || LaunchError::system("keep the connection to the hub");
        stream.set_read_timeout(None).map_err(refused())?;
        stream.set_write_timeout(Some(timeout)).map_err(refused())?;
        let reading = stream.try_clone().map_err(refused())?;
        let is_leaving = Arc::new(AtomicBool::new(false));
        let (news, heard) = channel();
        let mut reader = MemberThread { stream: reading, seal: incoming, inbox };
        let leaving = Arc::clone(&is_leaving);
        let life = move || {
            let (end, source) = reader.read_all(&news);
            let is_news = !leaving.load(Ordering::Acquire);
            if is_news {
                on_end(&end, source);
            }
            let _ = news.send(Err(end));
        };
        thread::Builder::new().name("rendezvous".to_owned()).spawn(life).map_err(refused())?;
        Ok(Self { stream, outgoing, incoming: heard, size: claim.size, timeout, is_leaving })
    }

    fn send_message(&mut self, words: &ToHub) -> Result<(), LaunchError> {
        let mut bytes = Vec::new();
        words.put(&mut self.outgoing, &mut bytes);
        match send_all(&self.stream, &bytes) {
            Ok(()) => Ok(()),
            // The reader may know the reason.
            Err(cause) => match self.incoming.recv_timeout(MARGIN) {
                Ok(Err(JobFailure { code, sentence, was_said, .. })) => {
                    Err(LaunchError::Ended { code, sentence, was_said })
                }
                _ => Err(LaunchError::System { what: "write to the hub".to_owned(), cause }),
            },
        }
    }

    fn next_message(&mut self, what: &'static str) -> Result<ToRank, LaunchError> {
        match self.incoming.recv_timeout(self.timeout + MARGIN) {
            Ok(Ok(words)) => Ok(words),
            Ok(Err(JobFailure { code, sentence, was_said, .. })) => {
                Err(LaunchError::Ended { code, sentence, was_said })
            }
            Err(RecvTimeoutError::Timeout) => {
                Err(LaunchError::TimedOut { what, timeout: self.timeout + MARGIN })
            }
            Err(RecvTimeoutError::Disconnected) => Err(nonsense()),
        }
    }

    fn request_round(&mut self, words: &ToHub, what: &'static str) -> Result<(), LaunchError> {
        self.send_message(words)?;
        match self.next_message(what)? {
            ToRank::Go => Ok(()),
            ToRank::Welcome | ToRank::Piece(_) | ToRank::Ended { .. } => Err(nonsense()),
        }
    }

    /// Tells the hub that the job failed.
    pub(in crate::launch) fn send_abort(&mut self, code: i32, sentence: &str) {
        self.is_leaving.store(true, Ordering::Release);
        // This process ends whatever comes of it, and the hub sees that too.
        let _ = self.send_message(&ToHub::Abort { code, sentence: sentence.to_owned() });
    }

    /// Leaves together with all others.
    pub(in crate::launch) fn leave(&mut self) -> Result<(), LaunchError> {
        self.is_leaving.store(true, Ordering::Release);
        self.request_round(&ToHub::Leave, "the end of all ranks")
    }
}

impl JobLink for MemberLink {
    fn exchange(&mut self, own: &[u8]) -> Result<Vec<Vec<u8>>, LaunchError> {
        self.send_message(&ToHub::Give(own.to_vec()))?;
        let size = self.size;
        let piece = |_| match self.next_message("an exchange with all ranks")? {
            ToRank::Piece(bytes) => Ok(bytes),
            ToRank::Welcome | ToRank::Go | ToRank::Ended { .. } => Err(nonsense()),
        };
        (0..size).map(piece).collect()
    }

    fn barrier(&mut self) -> Result<(), LaunchError> {
        self.request_round(&ToHub::Wait, "a barrier of all ranks")
    }

    fn go_on_without_lost(&mut self) -> bool {
        // The hub knows who is gone.
        true
    }

    fn finish(mut self: Box<Self>) -> Result<(), LaunchError> {
        self.leave()
    }

    fn abort(&mut self, code: i32, sentence: &str) {
        self.send_abort(code, sentence);
    }
}

impl Drop for MemberLink {
    fn drop(&mut self) {
        self.is_leaving.store(true, Ordering::Release);
        // A connection that is broken already needs no end.
        let _ = self.stream.shutdown(Shutdown::Both);
    }
}

/// Sees to it that small frames leave at once, and a host that vanished is noticed.
pub(super) fn tune(stream: &TcpStream) {
    let alive =
        TcpKeepalive::new().with_time(PROBE_AFTER).with_interval(PROBE_EVERY).with_retries(3);
    // Without them everything still works, later.
    let _ = stream.set_nodelay(true);
    let _ = SockRef::from(stream).set_tcp_keepalive(&alive);
}

fn nonsense() -> LaunchError {
    LaunchError::Launcher {
        method: "rendezvous",
        what: "the hub gave an answer to another question".to_owned(),
    }
}

/// A connection on which both sides know each other.
struct AuthenticatedConnection {
    stream: TcpStream,
    incoming: FrameSeal,
    outgoing: FrameSeal,
    inbox: FrameBuffer,
}

/// Connects, and proves to each other who is there.
fn authenticate(
    claim: &JoinClaim,
    address: SocketAddr,
    timeout: Duration,
) -> Result<AuthenticatedConnection, String> {
    let until = Instant::now() + timeout;
    let system = |error: std::io::Error| error.to_string();
    let mut stream = TcpStream::connect_timeout(&address, timeout).map_err(system)?;
    tune(&stream);
    stream.set_write_timeout(Some(timeout)).map_err(system)?;
    let mut challenge = [0; CHALLENGE];
    read_until(&mut stream, until.min(Instant::now() + FIRST_WORD), &mut challenge)?;
    let hub = frame::read_challenge(&challenge).ok_or("something else listens there")?;
    let own = frame::random().map_err(|error| error.to_string())?;
    let direction = |side| FrameSeal::new(&claim.key, &hub, claim.rank, &own, side);
    let (mut incoming, mut outgoing) = (direction(FrameSender::Hub), direction(FrameSender::Rank));
    let mut bytes = Vec::new();
    let hello = ToHub::Hello { rank: claim.rank, nonce: own, host: claim.host.clone() };
    hello.put(&mut outgoing, &mut bytes);
    send_all(&stream, &bytes).map_err(system)?;
    let mut inbox = FrameBuffer::default();
    loop {
        if let Some(frame) = inbox.next(FRAME_MAX).map_err(|_| "it is no hub")? {
            if !incoming.is_next(&frame) {
                return Err("it is a hub of another job".to_owned());
            }
            return match ToRank::read(&frame) {
                Ok(ToRank::Welcome) => {
                    Ok(AuthenticatedConnection { stream, incoming, outgoing, inbox })
                }
                _ => Err("the hub does not want this rank".to_owned()),
            };
        }
        let mut byte = [0; 1];
        read_until(&mut stream, until, &mut byte).map_err(|why| format!("not let in: {why}"))?;
        inbox.push(&byte);
    }
}

/// Fills `bytes`, but not after `until`.
fn read_until(stream: &mut TcpStream, until: Instant, mut bytes: &mut [u8]) -> Result<(), String> {
    while !bytes.is_empty() {
        let rest = until.saturating_duration_since(Instant::now());
        if rest.is_zero() {
            return Err("no answer".to_owned());
        }
        stream.set_read_timeout(Some(rest)).map_err(|error| error.to_string())?;
        match stream.read(bytes) {
            Ok(0) => return Err("the connection was closed".to_owned()),
            Ok(count) => bytes = &mut bytes[count..],
            Err(error)
                if matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::Interrupted) => {}
            Err(error) => return Err(error.to_string()),
        }
    }
    Ok(())
}

/// The thread's side.
struct MemberThread {
    stream: TcpStream,
    seal: FrameSeal,
    inbox: FrameBuffer,
}

impl MemberThread {
    /// Hands on what comes, until there is an end to report.
    fn read_all(&mut self, news: &Sender<Result<ToRank, JobFailure>>) -> (JobFailure, EndSource) {
        let lost = |how: &str| {
            let sentence = format!("the connection to the hub of this job {how}");
            (JobFailure { code: LOST, sentence, rank: None, was_said: false }, EndSource::Silence)
        };
        let mut bytes = [0; 16 * 1024];
        loop {
            loop {
                let frame = match self.inbox.next(FRAME_MAX) {
                    Ok(None) => break,
                    Ok(Some(frame)) if self.seal.is_next(&frame) => frame,
                    Ok(Some(_)) | Err(_) => return lost("carries bytes that the hub did not send"),
                };
                match ToRank::read(&frame) {
                    Ok(ToRank::Ended { code, sentence }) => {
                        return (
                            JobFailure { code, sentence, rank: None, was_said: false },
                            EndSource::Hub,
                        );
                    }
                    Ok(words) => {
                        // A rank that does not listen any more is on its way out.
                        let _ = news.send(Ok(words));
                    }
                    Err(_) => return lost("carries bytes that no rank understands"),
                }
            }
            match self.stream.read(&mut bytes) {
                Ok(0) => return lost("was closed"),
                Ok(count) => self.inbox.push(&bytes[..count]),
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(error) => return lost(&format!("broke: {error}")),
            }
        }
    }
}
