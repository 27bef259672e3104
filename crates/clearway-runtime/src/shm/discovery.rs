//! How ranks of one host find each other, and hand each other memory.
//!
//! # Model
//! Each rank listens on a Unix socket whose abstract name holds the session and its rank, calls all
//! lower ranks and is called by all higher ones. On each connection both say *hello* with two
//! descriptors: the segment, and the event counter to wake its owner. Later a rank sends a *card*
//! with a descriptor for each region it registers. Then the socket stays open for one more reason:
//! the kernel hangs it up when its other end is gone, however that ended.
//!
//! Abstract names belong to a network namespace, so virtual hosts never meet although they share a
//! machine and a kernel. Anybody in the namespace can call: who is not of this user (by the
//! kernel's word) and this session is hung up on.
//!
//! | offset | bytes | field of a hello | of a card |
//! |---|---|---|---|
//! | 0 | 4 | `cwsm` | `cwsm` |
//! | 4 | 1 | kind, 1 | kind, 2 |
//! | 5 | 1 | version, 1 | version, 1 |
//! | 6 | 2 | zero | region |
//! | 8 | 8 | session | length of the region |
//! | 16 | 4 | rank | |
//! | 20 | 4 | number of local ranks | |
//! | 24 | 8 | length of a bulk ring | |
//! | 32 | 8 | time namespace | |
//!
//! Numbers are little-endian.
//!
//! # Source
//! `unix(7)`: abstract names, `SCM_RIGHTS`, `SO_PEERCRED`; `time_namespaces(7)`.
//!
//! # Invariants
//! I1. A message is read into a buffer of fixed size, with at most two descriptors; whatever else
//!     it holds is dropped.

use std::io::{self, IoSlice, IoSliceMut};
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use clearway_proto::base::{ByteReader, LocalNs, Nanos, Rank};
use rustix::event::{PollFd, PollFlags, Timespec};
use rustix::io::Errno;
use rustix::net::{
    AddressFamily, RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, SendAncillaryBuffer,
    SendAncillaryMessage, SendFlags, SocketAddrUnix, SocketFlags, SocketType,
};

use super::config::ShmConfig;
use super::mapping::SegmentMapping;
use crate::{RuntimeError, clock};

const MAGIC: [u8; 4] = *b"cwsm";
const VERSION: u8 = 1;
const HELLO: u8 = 1;
const CARD: u8 = 2;
/// Bytes of a hello.
pub(crate) const HELLO_LENGTH: usize = 40;
const CARD_LENGTH: usize = 16;
/// Time between two calls of a rank that does not listen yet.
const RETRY: Timespec = Timespec { tv_sec: 0, tv_nsec: 1_000_000 };
/// Callers that have not said anything yet; more than all local ranks, and strangers next to them.
const SILENT_MAX: usize = 2 * super::config::LOCAL_RANKS_MAX;

/// Another rank of this host.
#[derive(Debug)]
pub(super) struct ConnectedPeer {
    pub(super) rank: Rank,
    /// Hangs up when the rank is gone.
    pub(super) socket: OwnedFd,
    pub(super) segment: SegmentMapping,
    /// Wakes the rank.
    pub(super) counter: OwnedFd,
    /// Whether the rank reads the same monotonic clock.
    pub(super) same_clock: bool,
}

/// A region that a peer registered.
#[derive(Debug)]
pub(super) struct RegionAnnouncement {
    pub(super) region: u16,
    pub(super) length: u64,
    pub(super) file: OwnedFd,
}

/// What came over a socket.
#[derive(Debug)]
pub(super) enum SocketMessage {
    /// Nothing for now.
    Silence,
    /// The other end is gone.
    HungUp,
    /// A region.
    Card(RegionAnnouncement),
    /// Something that no wire says here.
    Noise,
}

/// What this rank says of itself.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct ShmIntroduction {
    session: u64,
    rank: Rank,
    ranks: u32,
    ring: u64,
    time_namespace: u64,
}

impl ShmIntroduction {
    fn new(config: &ShmConfig) -> Self {
        let ranks = config.local.len() as u32;
        let time_namespace = time_namespace();
        Self {
            session: config.session,
            rank: config.rank,
            ranks,
            ring: config.ring.0,
            time_namespace,
        }
    }

    fn bytes(self) -> [u8; HELLO_LENGTH] {
        let mut bytes = [0; HELLO_LENGTH];
        bytes[..4].copy_from_slice(&MAGIC);
        bytes[4..6].copy_from_slice(&[HELLO, VERSION]);
        bytes[8..16].copy_from_slice(&self.session.to_le_bytes());
        bytes[16..20].copy_from_slice(&self.rank.0.to_le_bytes());
        bytes[20..24].copy_from_slice(&self.ranks.to_le_bytes());
        bytes[24..32].copy_from_slice(&self.ring.to_le_bytes());
        bytes[32..40].copy_from_slice(&self.time_namespace.to_le_bytes());
        bytes
    }

    fn parse(bytes: &[u8]) -> Option<Self> {
        let mut rest = ByteReader::new(bytes);
        if rest.take()? != MAGIC || rest.take()? != [HELLO, VERSION, 0, 0] {
            return None;
        }
        let (session, rank, ranks) = (rest.u64()?, Rank(rest.u32()?), rest.u32()?);
        let (ring, time_namespace) = (rest.u64()?, rest.u64()?);
        rest.is_empty().then_some(Self { session, rank, ranks, ring, time_namespace })
    }
}

/// Returns the number of this process's time namespace: two processes in different ones read
/// different monotonic clocks. Zero on a kernel without them.
fn time_namespace() -> u64 {
    let link = std::fs::read_link("/proc/self/ns/time").unwrap_or_default();
    let digits = link.to_string_lossy().replace(|c: char| !c.is_ascii_digit(), "");
    digits.parse().unwrap_or(0)
}

fn name(session: u64, rank: Rank) -> Result<SocketAddrUnix, Errno> {
    SocketAddrUnix::new_abstract_name(format!("clearway/{session:016x}/{rank}").as_bytes())
}

/// Opens a socket that keeps message boundaries and reports when its peer is gone.
pub(crate) fn socket() -> Result<OwnedFd, Errno> {
    let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
    rustix::net::socket_with(AddressFamily::UNIX, SocketType::SEQPACKET, flags, None)
}

fn listen(config: &ShmConfig) -> Result<OwnedFd, RuntimeError> {
    let (session, rank) = (config.session, config.rank);
    let listen = || {
        let listener = socket()?;
        rustix::net::bind(&listener, &name(session, rank)?)?;
        rustix::net::listen(&listener, SILENT_MAX as i32)?;
        Ok(listener)
    };
    listen().map_err(|cause: Errno| match cause {
        Errno::ADDRINUSE => RuntimeError::ShmTaken { rank, session },
        cause => RuntimeError::System { what: "listen on a Unix socket", cause: cause.into() },
    })
}

/// Calls `rank`; `None` when it does not listen yet.
fn connect(session: u64, rank: Rank) -> Option<OwnedFd> {
    let caller = socket().ok()?;
    rustix::net::connect(&caller, &name(session, rank).ok()?).ok()?;
    Some(caller)
}

/// Sends `bytes` with descriptors, all or nothing.
pub(crate) fn send_message(
    socket: BorrowedFd<'_>,
    bytes: &[u8],
    files: &[BorrowedFd<'_>],
) -> io::Result<()> {
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(2))];
    let mut control = SendAncillaryBuffer::new(&mut space);
    control.push(SendAncillaryMessage::ScmRights(files));
    let flags = SendFlags::NOSIGNAL | SendFlags::DONTWAIT;
    rustix::net::sendmsg(socket, &[IoSlice::new(bytes)], &mut control, flags)?;
    Ok(())
}

/// Takes one message off a socket: its bytes and descriptors; no bytes when the other end is gone.
pub(crate) fn receive_raw(
    socket: BorrowedFd<'_>,
    buffer: &mut [u8; HELLO_LENGTH + 1],
) -> Result<(usize, Vec<OwnedFd>), Errno> {
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(2))];
    let mut control = RecvAncillaryBuffer::new(&mut space);
    let flags = RecvFlags::DONTWAIT | RecvFlags::CMSG_CLOEXEC;
    let message =
        rustix::net::recvmsg(socket, &mut [IoSliceMut::new(buffer)], &mut control, flags)?;
    let mut files = Vec::new();
    for part in control.drain() {
        if let RecvAncillaryMessage::ScmRights(rights) = part {
            files.extend(rights);
        }
    }
    Ok((message.bytes, files))
}

/// Tells a peer of a region of `length` bytes in `file`.
pub(super) fn announce_region(
    socket: BorrowedFd<'_>,
    region: u16,
    length: u64,
    file: BorrowedFd<'_>,
) -> io::Result<()> {
    let mut bytes = [0; CARD_LENGTH];
    bytes[..4].copy_from_slice(&MAGIC);
    bytes[4..6].copy_from_slice(&[CARD, VERSION]);
    bytes[6..8].copy_from_slice(&region.to_le_bytes());
    bytes[8..].copy_from_slice(&length.to_le_bytes());
    send_message(socket, &bytes, &[file])
}

/// Hears what a peer says after its hello.
pub(super) fn receive_message(socket: BorrowedFd<'_>) -> SocketMessage {
    let mut buffer = [0; HELLO_LENGTH + 1];
    match receive_raw(socket, &mut buffer) {
        Ok((0, _)) => SocketMessage::HungUp,
        Ok((length, files)) => parse_announcement(&buffer[..length], files)
            .map_or(SocketMessage::Noise, SocketMessage::Card),
        Err(Errno::AGAIN | Errno::INTR) => SocketMessage::Silence,
        Err(_) => SocketMessage::HungUp,
    }
}

fn parse_announcement(bytes: &[u8], files: Vec<OwnedFd>) -> Option<RegionAnnouncement> {
    let mut rest = ByteReader::new(bytes);
    let known = rest.take()? == MAGIC && rest.take()? == [CARD, VERSION];
    let [file] = <[OwnedFd; 1]>::try_from(files).ok()?;
    let (region, length) = (rest.u16()?, rest.u64()?);
    (known && rest.is_empty()).then_some(RegionAnnouncement { region, length, file })
}

/// Somebody who has not said hello.
struct UnidentifiedPeer {
    socket: OwnedFd,
    /// Whom this rank called; `None` for a caller.
    called: Option<Rank>,
}

/// The state of meeting the others.
struct PeerDiscovery<'a> {
    config: &'a ShmConfig,
    hello: ShmIntroduction,
    segment: BorrowedFd<'a>,
    counter: BorrowedFd<'a>,
    listener: OwnedFd,
    uncalled: Vec<Rank>,
    silent: Vec<UnidentifiedPeer>,
    met: Vec<ConnectedPeer>,
}

/// Meets all other local ranks, in the order of their numbers. Waits for them, at most as long as
/// `config` says.
///
/// # Errors
/// Who did not come, who has another configuration, that nobody waits for this rank any more, or
/// what the system refused.
pub(super) fn discover(
    config: &ShmConfig,
    segment: BorrowedFd<'_>,
    counter: BorrowedFd<'_>,
) -> Result<Vec<ConnectedPeer>, RuntimeError> {
    let mut meeting = PeerDiscovery {
        config,
        hello: ShmIntroduction::new(config),
        segment,
        counter,
        listener: listen(config)?,
        uncalled: config.local.iter().copied().filter(|rank| *rank < config.rank).collect(),
        silent: Vec::new(),
        met: Vec::new(),
    };
    let until = clock::now() + config.timeout;
    while meeting.met.len() + 1 < config.local.len() {
        meeting.connect_to_lower();
        meeting.wait(until)?;
        meeting.accept();
        meeting.read_introductions()?;
    }
    meeting.met.sort_by_key(|met| met.rank);
    Ok(meeting.met)
}

impl PeerDiscovery<'_> {
    fn connect_to_lower(&mut self) {
        let session = self.config.session;
        let (silent, hello) = (&mut self.silent, self.hello.bytes());
        let files = [self.segment, self.counter];
        self.uncalled.retain(|rank| {
            let Some(socket) = connect(session, *rank) else { return true };
            if send_message(socket.as_fd(), &hello, &files).is_err() {
                return true;
            }
            silent.push(UnidentifiedPeer { socket, called: Some(*rank) });
            false
        });
    }

    /// Waits until somebody calls or speaks, or until it is time to call again.
    fn wait(&self, until: LocalNs) -> Result<(), RuntimeError> {
        let left = until.since(clock::now());
        if left == Nanos::ZERO {
            return Err(self.absent());
        }
        let mut fds = vec![PollFd::new(&self.listener, PollFlags::IN)];
        fds.extend(self.silent.iter().map(|silent| PollFd::new(&silent.socket, PollFlags::IN)));
        fds.extend(self.config.while_silent.iter().map(|fd| PollFd::new(&**fd, PollFlags::IN)));
        // A signal ends the wait early; the loop looks at the time.
        let _ = rustix::event::poll(&mut fds, Some(&RETRY));
        let is_over = self.config.while_silent.is_some()
            && fds.last().is_some_and(|fd| !fd.revents().is_empty());
        if is_over { Err(RuntimeError::ShmForsaken) } else { Ok(()) }
    }

    fn absent(&self) -> RuntimeError {
        let is_here =
            |rank: &Rank| *rank == self.config.rank || self.met.iter().any(|met| met.rank == *rank);
        let mut missing = self.config.local.iter().copied().filter(|rank| !is_here(rank));
        let first = missing.next().unwrap_or(self.config.rank);
        RuntimeError::ShmAbsent { first, others: missing.count(), within: self.config.timeout }
    }

    fn accept(&mut self) {
        while let Ok(socket) =
            rustix::net::accept_with(&self.listener, SocketFlags::CLOEXEC | SocketFlags::NONBLOCK)
        {
            // Callers that say nothing must not pile up; the oldest has had its chance.
            if self.silent.len() >= SILENT_MAX
                && let Some(oldest) = self.silent.iter().position(|silent| silent.called.is_none())
            {
                self.silent.remove(oldest);
            }
            self.silent.push(UnidentifiedPeer { socket, called: None });
        }
    }

    fn read_introductions(&mut self) -> Result<(), RuntimeError> {
        for silent in std::mem::take(&mut self.silent) {
            let mut buffer = [0; HELLO_LENGTH + 1];
            match receive_raw(silent.socket.as_fd(), &mut buffer) {
                Err(Errno::AGAIN | Errno::INTR) => self.silent.push(silent),
                Ok((length, files)) if length > 0 => {
                    self.read_introduction(silent, &buffer[..length], files)?
                }
                // Hung up before it said anything: a stranger, or a rank that ended and may come
                // again.
                _ => self.uncalled.extend(silent.called),
            }
        }
        Ok(())
    }

    /// Lets a rank of this job in, and forgets anybody else.
    fn read_introduction(
        &mut self,
        silent: UnidentifiedPeer,
        bytes: &[u8],
        files: Vec<OwnedFd>,
    ) -> Result<(), RuntimeError> {
        let Some(hello) =
            ShmIntroduction::parse(bytes).filter(|hello| self.is_expected(&silent, hello))
        else {
            return Ok(());
        };
        // The answer comes first, so that both sides hear of rings that do not fit.
        if silent.called.is_none() {
            send_message(silent.socket.as_fd(), &self.hello.bytes(), &[self.segment, self.counter])
                .map_err(RuntimeError::system("answer a rank of this host"))?;
        }
        if (hello.ranks, hello.ring) != (self.hello.ranks, self.hello.ring) {
            return Err(RuntimeError::ShmShape { rank: hello.rank });
        }
        let Ok([segment, counter]) = <[OwnedFd; 2]>::try_from(files) else { return Ok(()) };
        let length = self.config.layout().segment_length();
        let segment = SegmentMapping::open(segment.as_fd(), length)
            .map_err(RuntimeError::system("map the memory of another rank"))?;
        let same_clock = hello.time_namespace == self.hello.time_namespace;
        self.met.push(ConnectedPeer {
            rank: hello.rank,
            socket: silent.socket,
            segment,
            counter,
            same_clock,
        });
        Ok(())
    }

    fn is_expected(&self, silent: &UnidentifiedPeer, hello: &ShmIntroduction) -> bool {
        let right_rank = match silent.called {
            Some(called) => hello.rank == called,
            None => hello.rank > self.config.rank && self.config.local.contains(&hello.rank),
        };
        let same_user = rustix::net::sockopt::socket_peercred(&silent.socket)
            .is_ok_and(|peer| peer.uid == rustix::process::geteuid());
        let new = self.met.iter().all(|met| met.rank != hello.rank);
        hello.session == self.hello.session && right_rank && same_user && new
    }
}

#[cfg(test)]
mod tests {
    use super::super::ShmWire;
    use super::*;
    use proptest::prelude::*;

    fn pair() -> (OwnedFd, OwnedFd) {
        rustix::net::socketpair(
            AddressFamily::UNIX,
            SocketType::SEQPACKET,
            SocketFlags::CLOEXEC,
            None,
        )
        .expect("a pair")
    }

    #[test]
    fn hello__has_the_bytes_of_the_table() {
        let hello = ShmIntroduction {
            session: 0x0807_0605_0403_0201,
            rank: Rank(258),
            ranks: 3,
            ring: 65_536,
            time_namespace: 9,
        };
        let mut literal =
            b"cwsm\x01\x01\0\0\x01\x02\x03\x04\x05\x06\x07\x08\x02\x01\0\0\x03\0\0\0\0\0\x01\0\0\0\0\0\x09".to_vec();
        literal.resize(40, 0);
        assert_eq!(hello.bytes().to_vec(), literal);
        assert_eq!(ShmIntroduction::parse(&literal), Some(hello));
        for (at, value) in [(0, 0), (4, 2), (5, 2), (6, 1)] {
            let mut other = literal.clone();
            other[at] = value;
            assert_eq!(ShmIntroduction::parse(&other), None, "byte {at} as {value}");
        }
        assert_eq!(ShmIntroduction::parse(&literal[..39]), None);
    }

    #[test]
    fn receive_message__a_card_brings_its_file_and_anything_else_is_noise() {
        let (here, there) = pair();
        let (file, made) = SegmentMapping::create(4_096).expect("memory");
        made.write(0, b"seen");
        announce_region(there.as_fd(), 258, 77, file.as_fd()).expect("room");
        let SocketMessage::Card(card) = receive_message(here.as_fd()) else { panic!("no card") };
        assert_eq!((card.region, card.length), (258, 77));
        assert_eq!(
            SegmentMapping::open(card.file.as_fd(), 4_096).expect("a segment").bytes(4),
            b"seen"
        );
        for noise in [&b"x"[..], b"cwsm\x02\x01\0\0\0\0\0\0\0\0\0\0", &[0xff; 300]] {
            rustix::net::send(&there, noise, SendFlags::empty()).expect("room");
            assert!(
                matches!(receive_message(here.as_fd()), SocketMessage::Noise),
                "a card without a file is none"
            );
        }
        assert!(matches!(receive_message(here.as_fd()), SocketMessage::Silence));
        drop(there);
        assert!(matches!(receive_message(here.as_fd()), SocketMessage::HungUp));
    }

    #[test]
    fn discover__strangers_that_say_nonsense_or_nothing_keep_nobody_out() {
        let session = u64::MAX ^ u64::from(std::process::id());
        let open = |rank| {
            ShmWire::open(ShmConfig::new(Rank(rank), session, vec![Rank(0), Rank(1)])).map(drop)
        };
        std::thread::scope(|scope| {
            let low = scope.spawn(|| open(0));
            let first = std::iter::repeat_with(|| connect(session, Rank(0))).flatten().next();
            // More than may wait; those that find no place are turned away.
            let strangers: Vec<OwnedFd> = (0..3 * SILENT_MAX)
                .filter_map(|_| connect(session, Rank(0)))
                .chain(first)
                .collect();
            for stranger in strangers.iter().step_by(2) {
                let _ = rustix::net::send(stranger, b"let me in", SendFlags::NOSIGNAL);
            }
            assert!(open(1).is_ok());
            assert!(low.join().expect("opened").is_ok());
            assert!(!strangers.is_empty());
        });
    }

    #[test]
    fn discover__ends_when_nobody_waits_for_the_rank_any_more() {
        let (over, coordinator) = io::pipe().expect("a pipe");
        let session = (u64::MAX / 3) ^ u64::from(std::process::id());
        let mut config = ShmConfig::new(Rank(0), session, vec![Rank(0), Rank(1)]);
        // The other never comes; without the pipe that would be the error.
        config.while_silent = Some(std::sync::Arc::new(over.into()));
        drop(coordinator);
        assert!(matches!(ShmWire::open(config).map(drop), Err(RuntimeError::ShmForsaken)));
    }

    proptest! {
        #[test]
        fn parse__any_bytes_are_answered(bytes in prop::collection::vec(any::<u8>(), 0..64)) {
            prop_assert_eq!(ShmIntroduction::parse(&bytes).map(|hello| hello.bytes().to_vec()).unwrap_or(bytes.clone()), bytes);
        }
    }
}
