//! Sets up the shared memory of one host's PEs: each PE connects to the leader, which sends the
//! host's file and the statics of all PEs.
//!
//! # Model
//! Every PE opens an *entrance*, a listening Unix socket with a random abstract name, before the
//! PEs of the job exchange their cards. So the leader, the PE at place 0, listens before the others
//! learn its name. Each other PE sends a hello with its statics. When all hellos have arrived the
//! leader answers each with the host's file and all statics. The connection stays open: the kernel
//! closes it when a process ends.
//!
//! The kernel limits the descriptors in messages that were not read yet; at the limit the leader
//! retries.
//!
//! | offset | bytes | field of a hello | of a part |
//! |---|---|---|---|
//! | 0 | 4 | `cwnr` | `cwnr` |
//! | 4 | 4 | version, 1 | version, 1 |
//! | 8 | 8 | name of the entrance | place; 2^32 for the host's file |
//! | 16 | 8 | place | length of the statics |
//! | 24 | 8 | bytes of a heap | |
//! | 32 | 8 | length of the statics | |
//!
//! Numbers are little-endian. Descriptors: the statics of a hello, if it has any; the file of a
//! part.
//!
//! # Source
//! `unix(7)`: abstract names belong to a network namespace; `SCM_RIGHTS` and its limit
//! (`ETOOMANYREFS`), `SO_PEERCRED`.

use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::time::{Duration, Instant};

use aws_lc_rs::rand;
use clearway_proto::base::ByteReader;
use rustix::event::{PollFd, PollFlags, Timespec};
use rustix::io::Errno;
use rustix::net::{SocketAddrUnix, SocketFlags};

use super::memory::{ForeignStatics, HostLayout, HostMemory};
use super::{MappedPart, NearConfig, PLACES_MAX};
use crate::RuntimeError;
use crate::shm::meeting::{self, HELLO_LENGTH};

const MAGIC: [u8; 4] = *b"cwnr";
const VERSION: u32 = 1;
const PART_LENGTH: usize = 24;
/// The place that stands for the host's file.
const HOST: u64 = 1 << 32;
/// Between two tries to send, and at most between two looks at the time.
const RETRY: Timespec = Timespec { tv_sec: 0, tv_nsec: 1_000_000 };

/// A listening socket, to which the other PEs of the host connect.
#[derive(Debug)]
pub struct Entrance {
    name: u64,
    listener: OwnedFd,
}

impl Entrance {
    /// Opens an entrance under a new name.
    ///
    /// # Errors
    /// The system has no random numbers or cannot make a socket.
    pub fn open() -> Result<Self, RuntimeError> {
        let mut bytes = [0; 8];
        rand::fill(&mut bytes)
            .map_err(|_| std::io::Error::other("no randomness"))
            .map_err(refused("draw a name"))?;
        let name = u64::from_le_bytes(bytes);
        let listen = || {
            let listener = meeting::socket()?;
            rustix::net::bind(&listener, &address(name)?)?;
            rustix::net::listen(&listener, PLACES_MAX as i32)?;
            Ok(listener)
        };
        let listener =
            listen().map_err(|cause: Errno| refused("listen on a Unix socket")(cause.into()))?;
        Ok(Self { name, listener })
    }

    /// Returns its name, for the others.
    pub fn name(&self) -> u64 {
        self.name
    }
}

fn address(name: u64) -> Result<SocketAddrUnix, Errno> {
    SocketAddrUnix::new_abstract_name(format!("clearway-near/{name:016x}").as_bytes())
}

fn refused(what: &'static str) -> impl FnOnce(std::io::Error) -> RuntimeError {
    RuntimeError::system(what)
}

/// The first message of a PE, about itself.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct NearHello {
    name: u64,
    place: u64,
    heap: u64,
    statics: u64,
}

impl NearHello {
    fn bytes(self) -> [u8; HELLO_LENGTH] {
        let mut bytes = [0; HELLO_LENGTH];
        bytes[..4].copy_from_slice(&MAGIC);
        bytes[4..8].copy_from_slice(&VERSION.to_le_bytes());
        for (field, value) in
            bytes[8..].chunks_exact_mut(8).zip([self.name, self.place, self.heap, self.statics])
        {
            field.copy_from_slice(&value.to_le_bytes());
        }
        bytes
    }

    fn parse(bytes: &[u8]) -> Option<Self> {
        let mut rest = ByteReader::new(bytes);
        let known = rest.take()? == MAGIC && rest.u32()? == VERSION;
        let (name, place, heap, statics) = (rest.u64()?, rest.u64()?, rest.u64()?, rest.u64()?);
        (known && rest.is_empty()).then_some(Self { name, place, heap, statics })
    }
}

fn part_bytes(place: u64, length: u64) -> [u8; PART_LENGTH] {
    let mut bytes = [0; PART_LENGTH];
    bytes[..4].copy_from_slice(&MAGIC);
    bytes[4..8].copy_from_slice(&VERSION.to_le_bytes());
    bytes[8..16].copy_from_slice(&place.to_le_bytes());
    bytes[16..].copy_from_slice(&length.to_le_bytes());
    bytes
}

fn parse_part(bytes: &[u8]) -> Option<(u64, usize)> {
    let mut rest = ByteReader::new(bytes);
    let known = rest.take()? == MAGIC && rest.u32()? == VERSION;
    let (place, length) = (rest.u64()?, usize::try_from(rest.u64()?).ok()?);
    (known && rest.is_empty()).then_some((place, length))
}

/// The result of a meeting.
pub(super) struct MetNeighbours {
    pub(super) memory: HostMemory,
    /// By place; none for this PE itself.
    pub(super) statics: Vec<Option<MappedPart>>,
    /// Sockets that close when the PE at their place ends: the leader has those of all other PEs, and
    /// these have the leader's.
    pub(super) lives: Vec<(usize, OwnedFd)>,
}

/// How long the meeting may take.
#[derive(Clone, Copy)]
struct Deadline {
    end: Instant,
    within: Duration,
}

impl Deadline {
    fn new(within: Duration) -> Self {
        Self { end: Instant::now() + within, within }
    }

    /// Waits until one of `fds` is ready or a moment has passed. Fails for the PE at `place` when the
    /// time is over.
    fn poll(self, fds: &mut [PollFd<'_>], place: usize) -> Result<(), RuntimeError> {
        if Instant::now() >= self.end {
            return Err(RuntimeError::NearAbsent { place, within: self.within });
        }
        // A signal ends the wait early; callers look again.
        let _ = rustix::event::poll(fds, Some(&RETRY));
        Ok(())
    }
}

/// Waits for the hellos of all other PEs and sends them the memory.
pub(super) fn lead(
    entrance: Entrance,
    config: &NearConfig,
    layout: HostLayout,
) -> Result<MetNeighbours, RuntimeError> {
    let memory =
        HostMemory::create(layout, 0).map_err(refused("make memory for the symmetric heaps"))?;
    let deadline = Deadline::new(config.timeout);
    let mut callers: Vec<Option<Caller>> = (0..config.places).map(|_| None).collect();
    let mut silent: Vec<OwnedFd> = Vec::new();
    while let Some(place) = (1..config.places).find(|place| callers[*place].is_none()) {
        let mut fds = vec![PollFd::new(&entrance.listener, PollFlags::IN)];
        fds.extend(silent.iter().map(|socket| PollFd::new(socket, PollFlags::IN)));
        deadline.poll(&mut fds, place)?;
        let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
        while let Ok(socket) = rustix::net::accept_with(&entrance.listener, flags) {
            // A PE that never sends anything must not block the others.
            silent.truncate(2 * PLACES_MAX);
            silent.push(socket);
        }
        for socket in std::mem::take(&mut silent) {
            match hear_hello(&socket, entrance.name) {
                HelloOutcome::Nothing => silent.push(socket),
                HelloOutcome::Stranger => {}
                HelloOutcome::Caller(hello, file) => {
                    let at = usize::try_from(hello.place).unwrap_or(usize::MAX);
                    if hello.heap != layout.heap as u64 {
                        return Err(RuntimeError::NearShape { place: at });
                    }
                    if let Some(free @ None) = callers.get_mut(at) {
                        let statics = file.map(|file| (file, hello.statics as usize));
                        *free = Some(Caller { socket, statics });
                    }
                }
            }
        }
    }
    hand_out(&memory, config, &callers, deadline)?;
    let statics = callers
        .iter()
        .map(|caller| map_statics(caller.as_ref()?.statics.as_ref()?))
        .map(Option::transpose);
    let statics = statics.collect::<Result<_, _>>()?;
    let lives = callers
        .into_iter()
        .enumerate()
        .filter_map(|(place, caller)| Some((place, caller?.socket)))
        .collect();
    Ok(MetNeighbours { memory, statics, lives })
}

/// Another PE, as the leader sees it.
struct Caller {
    socket: OwnedFd,
    statics: Option<(OwnedFd, usize)>,
}

/// The state of a connection's hello.
enum HelloOutcome {
    Nothing,
    Stranger,
    Caller(NearHello, Option<OwnedFd>),
}

fn hear_hello(socket: &OwnedFd, name: u64) -> HelloOutcome {
    let same_user = rustix::net::sockopt::socket_peercred(socket)
        .is_ok_and(|peer| peer.uid == rustix::process::geteuid());
    let mut buffer = [0; HELLO_LENGTH + 1];
    match meeting::receive_raw(socket.as_fd(), &mut buffer) {
        Err(Errno::AGAIN | Errno::INTR) => HelloOutcome::Nothing,
        Ok((length, files)) => match NearHello::parse(&buffer[..length]) {
            Some(hello) if same_user && hello.name == name => {
                HelloOutcome::Caller(hello, files.into_iter().next())
            }
            _ => HelloOutcome::Stranger,
        },
        Err(_) => HelloOutcome::Stranger,
    }
}

/// Maps one PE's statics.
fn map_statics((file, length): &(OwnedFd, usize)) -> Option<Result<MappedPart, RuntimeError>> {
    let mapped = ForeignStatics::open(file.as_fd(), *length)
        .map_err(refused("map the statics of another PE"));
    Some(mapped.map(ForeignStatics::part))
}

/// Sends each PE the host's file and all statics.
fn hand_out(
    memory: &HostMemory,
    config: &NearConfig,
    callers: &[Option<Caller>],
    deadline: Deadline,
) -> Result<(), RuntimeError> {
    let own = config.statics.as_ref().map(|statics| (0, statics.file.as_fd(), statics.length));
    let others = callers.iter().enumerate().filter_map(|(place, caller)| {
        let (file, length) = caller.as_ref()?.statics.as_ref()?;
        Some((place, file.as_fd(), *length))
    });
    let parts: Vec<(usize, BorrowedFd<'_>, usize)> = own.into_iter().chain(others).collect();
    for (place, caller) in
        callers.iter().enumerate().filter_map(|(place, caller)| Some((place, caller.as_ref()?)))
    {
        for (of, file, length) in parts.iter().filter(|(of, ..)| *of != place) {
            send(caller, &part_bytes(*of as u64, *length as u64), *file, place, deadline)?;
        }
        send(caller, &part_bytes(HOST, 0), memory.file(), place, deadline)?;
    }
    Ok(())
}

fn send(
    caller: &Caller,
    bytes: &[u8],
    file: BorrowedFd<'_>,
    place: usize,
    deadline: Deadline,
) -> Result<(), RuntimeError> {
    loop {
        match meeting::send_message(caller.socket.as_fd(), bytes, &[file]) {
            Ok(()) => return Ok(()),
            Err(error) if retries(&error) => deadline.poll(&mut [], place)?,
            Err(error) => return Err(refused("send memory to another PE")(error)),
        }
    }
}

/// Returns whether a send succeeds once earlier messages were read.
fn retries(error: &std::io::Error) -> bool {
    let errno = Errno::from_io_error(error);
    errno.is_some_and(|errno| {
        [Errno::AGAIN, Errno::INTR, Errno::TOOMANYREFS, Errno::NOBUFS].contains(&errno)
    })
}

/// Connects to the leader and maps the memory that it sends.
pub(super) fn follow(
    leader: u64,
    config: &NearConfig,
    layout: HostLayout,
) -> Result<MetNeighbours, RuntimeError> {
    let call = || {
        let socket = meeting::socket()?;
        rustix::net::connect(&socket, &address(leader)?)?;
        Ok(socket)
    };
    let socket = call().map_err(|cause: Errno| match cause {
        Errno::CONNREFUSED => RuntimeError::NearAbsent { place: 0, within: Duration::ZERO },
        cause => refused("call the leader of this host")(cause.into()),
    })?;
    let length = config.statics.as_ref().map_or(0, |statics| statics.length as u64);
    let hello = NearHello {
        name: leader,
        place: config.place as u64,
        heap: layout.heap as u64,
        statics: length,
    };
    let files: Vec<BorrowedFd<'_>> =
        config.statics.iter().map(|statics| statics.file.as_fd()).collect();
    meeting::send_message(socket.as_fd(), &hello.bytes(), &files)
        .map_err(refused("speak to the leader of this host"))?;
    let deadline = Deadline::new(config.timeout);
    let mut statics = vec![None; config.places];
    loop {
        let mut buffer = [0; HELLO_LENGTH + 1];
        match meeting::receive_raw(socket.as_fd(), &mut buffer) {
            Err(Errno::AGAIN | Errno::INTR) => {
                deadline.poll(&mut [PollFd::new(&socket, PollFlags::IN)], 0)?
            }
            Ok((length, files)) if length > 0 => {
                let Some(file) = files.into_iter().next() else { continue };
                match parse_part(&buffer[..length]) {
                    Some((HOST, _)) => {
                        let memory = HostMemory::open(file, layout, config.place);
                        let memory = memory.map_err(refused("map the symmetric heaps"))?;
                        return Ok(MetNeighbours { memory, statics, lives: vec![(0, socket)] });
                    }
                    Some((place, length)) => {
                        let part = map_statics(&(file, length)).transpose()?;
                        if let Some(of) =
                            usize::try_from(place).ok().and_then(|place| statics.get_mut(place))
                        {
                            *of = part;
                        }
                    }
                    None => {}
                }
            }
            _ => return Err(RuntimeError::NearAbsent { place: 0, within: Duration::ZERO }),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn hello__has_the_bytes_of_the_table() {
        let hello = NearHello { name: 0x0807_0605_0403_0201, place: 258, heap: 4_096, statics: 9 };
        let mut literal =
            b"cwnr\x01\0\0\0\x01\x02\x03\x04\x05\x06\x07\x08\x02\x01\0\0\0\0\0\0\0\x10\0\0\0\0\0\0\x09".to_vec();
        literal.resize(40, 0);
        assert_eq!(hello.bytes().to_vec(), literal);
        assert_eq!(NearHello::parse(&literal), Some(hello));
        assert_eq!(parse_part(&part_bytes(3, 77)), Some((3, 77)));
        assert_eq!(parse_part(&literal), None);
    }

    proptest! {
        #[test]
        fn parse__any_bytes_are_answered(bytes in prop::collection::vec(any::<u8>(), 0..64)) {
            prop_assert_eq!(NearHello::parse(&bytes).map(|hello| hello.bytes().to_vec()).unwrap_or(bytes.clone()), bytes);
        }
    }
}
