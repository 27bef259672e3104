//! The shared-memory wire: reliable messages, multicast and one-sided operations between processes
//! of one host.
//!
//! # Model
//! `meet` brings the ranks of a host together over Unix sockets. Each has a segment of memory
//! (`mapping`, `layout`) with a `ring` for every class of every other rank; a message is a `record`
//! in a ring. Regions are segments too, so one-sided operations are done by the rank that asks,
//! directly in the memory of the other, with a small record behind a write. `neighbours` ties
//! rings, sockets and the `notify` that wakes who sleeps; [`ShmWire`] ties them to the contract of
//! [`clearway_proto::wire`].
//!
//! # Invariants
//! I1. No class waits behind another: each has its own ring, and the more urgent are read first.
//! I2. Everything that a peer wrote is checked when it is read, and read once. A peer that breaks
//!     the rules is given up; one
//!     that ends, at any instant, is noticed by the kernel's hang-up. Neither can stop this rank.
//! I3. Within a peer and class messages and notices of writes arrive in the order posted.
//!
//! # Not here
//! Ranks of other hosts: they are refused by name. Protection from processes of the same user: they
//! could end this one.

mod config;
mod discovery;
mod layout;
mod local_peers;
mod mapping;
mod notify;
mod record;
mod region;
mod ring;
mod room;
mod scan;
mod shared;
mod slot;

pub use config::{LOCAL_RANKS_MAX, ShmConfig};
pub use shared::SharedMemory;

/// What meetings over Unix sockets share, for all kinds of peers.
pub(crate) mod meeting {
    pub(crate) use super::discovery::{HELLO_LENGTH, receive_raw, send_message, socket};
}

use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use clearway_proto::base::{Bytes, Class, GroupId, LocalNs, Nanos, Rank, SharedClock};
use clearway_proto::wire::regions::Regions;
use clearway_proto::wire::{
    AdoptedMemory, Arrival, AtomicKind, Capabilities, Counters, Datagram, Delivery, Destination,
    Granted, MemoryAccess, Operation, OperationKind, OperationSet, PathId, PostOutcome, Queue,
    RefusalReason, RegionId, RemoteSpan, Span, Stamp, StampSource, Status, Token, Wire,
};

use self::discovery::ConnectedPeer;
use self::layout::GROUPS_MAX;
use self::local_peers::{LocalPeers, PeerEvent, PutOutcome};
use self::mapping::SegmentMapping;
use self::notify::Sleeper;
use self::record::{BODY_MAX, HEAD_MAX, LANDED_LENGTH, RecordHeader, RecordKind};
use self::region::ShmRegion;
use crate::RuntimeError;
use crate::clock;
use crate::waiting::{Pause, Rest, Waitable, Wake, WakeDescriptors, WakeReason};

/// Where bodies of one poll lie: as many of the longest as a driver takes at a time.
const ARENA: usize = 64 * BODY_MAX;
/// Polls between two looks at the sockets: a look takes as long as about 100 empty polls do
/// (measured), so that they cost at most a hundredth.
const ATTEND: u32 = 16_384;

/// One rank's end of a job over shared memory.
#[derive(Debug)]
pub struct ShmWire {
    rank: Rank,
    capabilities: Capabilities,
    neighbours: LocalPeers,
    pause: Pause,
    memory: Regions<ShmRegion>,
    /// Bytes of adopted memory on their way.
    scratch: Vec<u8>,
    arena: Vec<u8>,
    received_bytes: usize,
    polls: u32,
    counters: Counters,
}

impl ShmWire {
    /// Opens this rank's end: makes its memory, and waits until all ranks of the host are there.
    ///
    /// # Errors
    /// A configuration that cannot work, too little memory, ranks that do not come; each says
    /// which.
    pub fn open(config: ShmConfig) -> Result<Self, RuntimeError> {
        let me = config.check()?;
        let layout = config.layout();
        let length = layout.segment_length();
        let (file, own) = create(length, config.local.len())?;
        let sleeper = Sleeper::new().map_err(RuntimeError::system("make an event counter"))?;
        let mut met = discovery::discover(&config, file.as_fd(), sleeper.fd())?;
        let same_clock = met.iter().all(|met| met.same_clock);
        met.insert(me, myself(config.rank, &file, length, &sleeper)?);
        Ok(Self {
            rank: config.rank,
            capabilities: capabilities(same_clock),
            neighbours: LocalPeers::new(own, layout, me, sleeper, met),
            pause: Pause::yielding(config.waiting),
            memory: Regions::default(),
            scratch: Vec::new(),
            arena: vec![0; ARENA],
            received_bytes: 0,
            polls: 0,
            counters: Counters::default(),
        })
    }

    /// Returns the ranks of this host that are gone: their process ended, or they wrote what no
    /// wire writes. What is for them ends as [`Status::Flushed`]. When no other is left, the path
    /// goes down.
    pub fn dead_peers(&self) -> impl Iterator<Item = Rank> + '_ {
        self.neighbours.dead_peers()
    }

    /// Returns what a completed or lost operation is answered with.
    fn answer(&mut self, put: PutOutcome, token: Option<Token>) -> PostOutcome {
        match put {
            PutOutcome::Taken => PostOutcome::Done(0),
            PutOutcome::Full => {
                self.counters.no_room += 1;
                PostOutcome::NoRoom
            }
            PutOutcome::Gone => self.flushed(token),
        }
    }

    /// Returns the end of an operation for a rank that is gone.
    fn flushed(&mut self, token: Option<Token>) -> PostOutcome {
        self.counters.errors += 1;
        if let Some(token) = token {
            self.neighbours.queue_event(PeerEvent::Done { token, status: Status::Flushed });
        }
        PostOutcome::Posted
    }

    #[inline]
    fn send(
        &mut self,
        to: Destination,
        class: Class,
        head: Option<&[u8]>,
        body: Span,
        token: Option<Token>,
    ) -> Result<PostOutcome, RefusalReason> {
        let place = match to {
            Destination::One(rank) => Some(self.neighbours.place(rank)?),
            Destination::Group(_) => None,
        };
        let body = self.memory.bytes_or_copy(
            &self.arena[..self.received_bytes],
            body,
            &mut self.scratch,
        )?;
        let head = head.ok_or(RefusalReason::Memory)?;
        if head.len() > HEAD_MAX || body.len() > BODY_MAX {
            return Err(RefusalReason::Length);
        }
        let opening =
            RecordHeader { kind: RecordKind::Message, head: head.len(), body: body.len() };
        let put = match (place, to) {
            (Some(place), _) => self.neighbours.put(place, class, opening, head, body),
            (None, Destination::Group(group)) => {
                put_to_all(&mut self.neighbours, group, class, opening, head, body)
            }
            (None, Destination::One(_)) => return Err(RefusalReason::Rank),
        };
        self.counters.sent += u64::from(put == PutOutcome::Taken);
        Ok(self.answer(put, token))
    }

    /// Returns whether `rank` is one of those that share memory with this one.
    pub(crate) fn reaches(&mut self, rank: Rank) -> bool {
        self.neighbours.place(rank).is_ok()
    }

    /// Starts a message whose body lies anywhere. The caller has checked its lengths, and lets
    /// peers see it by [`Self::show`].
    pub(crate) fn send_bytes(
        &mut self,
        to: Rank,
        class: Class,
        head: &[u8],
        body: &[u8],
        token: Option<Token>,
    ) -> Result<PostOutcome, RefusalReason> {
        let place = self.neighbours.place(to)?;
        let opening =
            RecordHeader { kind: RecordKind::Message, head: head.len(), body: body.len() };
        let put = self.neighbours.put(place, class, opening, head, body);
        self.counters.sent += u64::from(put == PutOutcome::Taken);
        Ok(self.answer(put, token))
    }

    /// Lets peers see what was sent since.
    pub(crate) fn show(&mut self) {
        self.neighbours.show();
    }

    /// Polls together with another wire; see [`LocalPeers::poll_with`].
    pub(crate) fn poll_with(
        &mut self,
        timeout: Option<Nanos>,
        extra: &[BorrowedFd<'_>],
        sleep: &mut dyn FnMut(Option<Nanos>, &[BorrowedFd<'_>]) -> WakeReason,
    ) -> WakeReason {
        self.neighbours.poll_with(timeout, extra, sleep)
    }

    fn write(
        &mut self,
        to: Rank,
        class: Class,
        from: Span,
        into: RemoteSpan,
        immediate: Option<u64>,
        token: Option<Token>,
    ) -> Result<PostOutcome, RefusalReason> {
        let place = self.neighbours.place(to)?;
        let bytes = self.memory.bytes_or_copy(
            &self.arena[..self.received_bytes],
            from,
            &mut self.scratch,
        )?;
        let Some((segment, offset)) = self.neighbours.remote(place, into, bytes.len())? else {
            return Ok(self.flushed(token));
        };
        let Some(immediate) = immediate else {
            segment.write(offset, bytes);
            self.counters.sent += 1;
            return Ok(PostOutcome::Done(0));
        };
        let opening = RecordHeader { kind: RecordKind::Landed, head: LANDED_LENGTH, body: 0 };
        let mut put = self.neighbours.reserve(place, class, opening);
        if put == PutOutcome::Taken
            && let Some((segment, offset)) = self.neighbours.remote(place, into, bytes.len())?
        {
            segment.write(offset, bytes);
            let into = Span { region: into.region, offset: into.offset, length: from.length };
            put = self.neighbours.put(place, class, opening, &record::landed(into, immediate), &[]);
        }
        self.counters.sent += u64::from(put == PutOutcome::Taken);
        Ok(self.answer(put, token))
    }

    fn read(
        &mut self,
        peer: Rank,
        from: RemoteSpan,
        into: Span,
        token: Token,
    ) -> Result<PostOutcome, RefusalReason> {
        let place = self.neighbours.place(peer)?;
        self.memory.check(&[], into)?;
        let Some((segment, offset)) = self.neighbours.remote(place, from, into.length as usize)?
        else {
            return Ok(self.flushed(Some(token)));
        };
        match self.memory.bytes_mut(into) {
            Ok(bytes) => segment.read(offset, bytes),
            Err(_) => {
                self.scratch.resize(into.length as usize, 0);
                segment.read(offset, &mut self.scratch);
                self.memory.copy_in(into, &self.scratch)?;
            }
        }
        self.neighbours.queue_event(PeerEvent::Done { token, status: Status::Complete });
        Ok(PostOutcome::Posted)
    }

    fn change(
        &mut self,
        to: Rank,
        kind: AtomicKind,
        at: RemoteSpan,
        token: Token,
    ) -> Result<PostOutcome, RefusalReason> {
        let place = self.neighbours.place(to)?;
        if !at.offset.is_multiple_of(8) {
            return Err(RefusalReason::Memory);
        }
        match self.neighbours.remote(place, at, 8)? {
            Some((segment, offset)) => Ok(PostOutcome::Done(kind.apply(segment.word(offset)))),
            None => Ok(self.flushed(Some(token))),
        }
    }

    fn start(&mut self, operation: &Operation, heads: &[u8]) -> Result<PostOutcome, RefusalReason> {
        match *operation {
            Operation::Send { to, path, class, head, body, token } => {
                on_path(path)?;
                self.send(to, class, head.bytes_in(heads), body, token)
            }
            Operation::Write { to, path, class, from, into, immediate, token } => {
                on_path(path)?;
                self.write(to, class, from, into, immediate, token)
            }
            Operation::Read { peer, path, from, into, token, .. } => {
                on_path(path)?;
                self.read(peer, from, into, token)
            }
            Operation::Atomic { to, path, kind, at, token, .. } => {
                on_path(path)?;
                self.change(to, kind, at, token)
            }
            Operation::Copy { from, into } => self
                .memory
                .copy(&self.arena[..self.received_bytes], from, into)
                .map(|()| PostOutcome::Done(0)),
            Operation::Digest { of, .. } => {
                self.digest(of).map(|digest| PostOutcome::Done(u64::from(digest)))
            }
            // Every operation ends when it is posted.
            Operation::Abandon { .. } => Ok(PostOutcome::Done(0)),
            _ => Err(RefusalReason::Operation(operation.kind())),
        }
    }

    /// Gives what did not come through a ring.
    fn deliver_events(&mut self, limit: usize, sink: &mut dyn FnMut(Arrival<'_>)) -> usize {
        let mut given = 0;
        while given < limit
            && let Some(news) = self.neighbours.next_event()
        {
            given += 1;
            sink(match news {
                PeerEvent::Done { token, status } => {
                    Arrival::Done { token, status, value: 0, at: clock::now() }
                }
                PeerEvent::Room { class } => {
                    Arrival::Room { queue: Queue::Path { path: PathId(0), class } }
                }
                PeerEvent::Alone => Arrival::PathState { path: PathId(0), rate: None },
            });
        }
        given
    }

    /// Gives what the rings hold, the most urgent class first.
    #[inline]
    fn deliver_records(&mut self, limit: usize, sink: &mut dyn FnMut(Arrival<'_>)) -> usize {
        let Some(scan) = self.neighbours.scan() else { return 0 };
        let mut given = 0;
        let mut head = [0; HEAD_MAX];
        for class in Class::ALL {
            for place in scan.places(class) {
                while given < limit {
                    let room = &mut self.arena[self.received_bytes..];
                    let Some(opening) = self.neighbours.take(place, class, &mut head, room) else {
                        break;
                    };
                    given += self.deliver(place, class, opening, &head[..opening.head], sink);
                }
            }
        }
        // Without room for the longest body a record may have stayed where it is.
        if given >= limit || self.arena.len() - self.received_bytes < BODY_MAX {
            self.neighbours.leave(&scan);
        }
        given
    }

    #[inline]
    fn deliver(
        &mut self,
        place: usize,
        class: Class,
        opening: RecordHeader,
        head: &[u8],
        sink: &mut dyn FnMut(Arrival<'_>),
    ) -> usize {
        let from = self.neighbours.rank(place);
        self.counters.received += 1;
        let at = Stamp::Reading(clock::now);
        match opening.kind {
            RecordKind::Message => {
                let offset = self.received_bytes as u64;
                let body = Span { region: RegionId::RECEIVE, offset, length: opening.body as u32 };
                self.received_bytes += opening.body;
                let (path, class, congestion_marked) = (PathId(0), Some(class), false);
                sink(Arrival::Datagram(Datagram {
                    from,
                    path,
                    class,
                    congestion_marked,
                    at,
                    head,
                    body,
                }));
            }
            RecordKind::Landed => {
                let landed =
                    record::parse_landed(head).filter(|(into, _)| self.memory.holds(*into));
                let Some((into, immediate)) = landed else {
                    self.neighbours.discard(place);
                    return 0;
                };
                sink(Arrival::Landed { from, into, immediate, at });
            }
        }
        1
    }
}

/// Makes this rank's segment, if the machine has the memory.
fn create(length: usize, ranks: usize) -> Result<(OwnedFd, SegmentMapping), RuntimeError> {
    if let Some(available) = room::available()
        && length as u64 > available.0
    {
        return Err(RuntimeError::ShmMemory { ranks, needed: Bytes(length as u64), available });
    }
    SegmentMapping::create(length).map_err(RuntimeError::system("allocate memory to share"))
}

/// Connects this rank as its own neighbour: it maps its segment a second time, and so needs no ways
/// of its own.
fn myself(
    rank: Rank,
    file: &OwnedFd,
    length: usize,
    sleeper: &Sleeper,
) -> Result<ConnectedPeer, RuntimeError> {
    let segment =
        SegmentMapping::open(file.as_fd(), length).map_err(RuntimeError::system("map memory"))?;
    let clone = || {
        sleeper.fd().try_clone_to_owned().map_err(RuntimeError::system("duplicate a descriptor"))
    };
    Ok(ConnectedPeer { rank, socket: clone()?, segment, counter: clone()?, same_clock: true })
}

fn capabilities(same_clock: bool) -> Capabilities {
    Capabilities {
        name: "shm",
        operations: OperationSet::from_kinds(&[
            OperationKind::Send,
            OperationKind::Multicast,
            OperationKind::Write,
            OperationKind::Read,
            OperationKind::Atomic,
            OperationKind::Copy,
            OperationKind::Digest,
        ]),
        delivery: Delivery::Reliable,
        head_max: HEAD_MAX,
        body_max: BODY_MAX,
        message_max: HEAD_MAX + BODY_MAX,
        stamp: StampSource::Reading,
        shared_clock: same_clock.then(SharedClock::asserted_by_wire),
        classes: [Granted::Separate; Class::ALL.len()],
        sends_follow_writes: true,
        adopts: true,
        any_local: true,
        groups_max: GROUPS_MAX,
        paths: vec![None],
    }
}

fn on_path(path: PathId) -> Result<(), RefusalReason> {
    if path == PathId(0) { Ok(()) } else { Err(RefusalReason::Path) }
}

/// Puts a message into the rings of all members, or of none when one of them is full.
fn put_to_all(
    neighbours: &mut LocalPeers,
    group: GroupId,
    class: Class,
    opening: RecordHeader,
    head: &[u8],
    body: &[u8],
) -> PutOutcome {
    let members = neighbours.members(group);
    let places = (0..LOCAL_RANKS_MAX).filter(|place| members & 1 << place != 0);
    if places.clone().any(|place| neighbours.reserve(place, class, opening) == PutOutcome::Full) {
        return PutOutcome::Full;
    }
    for place in places {
        neighbours.put(place, class, opening, head, body);
    }
    PutOutcome::Taken
}

impl Wire for ShmWire {
    fn rank(&self) -> Rank {
        self.rank
    }

    fn capabilities(&self) -> &Capabilities {
        &self.capabilities
    }

    fn now(&self) -> LocalNs {
        clock::now()
    }

    fn register(&mut self, length: Bytes) -> Result<RegionId, RefusalReason> {
        let (region, file) = self.memory.register(length, ShmRegion::create)?;
        self.neighbours.announce(region, length, file.as_fd())?;
        Ok(region)
    }

    fn adopt(&mut self, memory: AdoptedMemory) -> Result<RegionId, RefusalReason> {
        let length = Bytes(memory.length());
        let file =
            match (memory.reach(), memory.file().and_then(|file| file.downcast_ref::<OwnedFd>())) {
                (MemoryAccess::Local, _) => return self.memory.adopt(memory),
                // Peers write into their own mappings of it.
                (MemoryAccess::Peers, None) => return Err(RefusalReason::Memory),
                (MemoryAccess::Peers, Some(file)) => {
                    file.try_clone().map_err(|_| RefusalReason::Memory)?
                }
            };
        let region = self.memory.adopt(memory)?;
        self.neighbours.announce(region, length, file.as_fd())?;
        Ok(region)
    }

    fn copy_out(&self, from: Span, into: &mut [u8]) -> Result<(), RefusalReason> {
        self.memory.copy_out(&self.arena[..self.received_bytes], from, into)
    }

    fn copy_in(&mut self, into: Span, from: &[u8]) -> Result<(), RefusalReason> {
        self.memory.copy_in(into, from)
    }

    fn digest(&self, of: Span) -> Result<u32, RefusalReason> {
        self.memory.digest(&self.arena[..self.received_bytes], of, crc_fast::crc32_iscsi)
    }

    fn region(&self, region: RegionId) -> Option<&[u8]> {
        self.memory.region(&self.arena[..self.received_bytes], region)
    }

    fn region_mut(&mut self, region: RegionId) -> Option<&mut [u8]> {
        self.memory.region_mut(region)
    }

    fn join(&mut self, group: GroupId) -> Result<(), RefusalReason> {
        self.neighbours.join(group);
        Ok(())
    }

    fn leave(&mut self, group: GroupId) -> Result<(), RefusalReason> {
        self.neighbours.leave_group(group).ok_or(RefusalReason::Group)
    }

    fn post(&mut self, operations: &[Operation], heads: &[u8], answers: &mut Vec<PostOutcome>) {
        answers.extend(
            operations
                .iter()
                .map(|operation| self.start(operation, heads).unwrap_or_else(PostOutcome::Refused)),
        );
        self.neighbours.show();
    }

    fn poll(&mut self, limit: usize, sink: &mut dyn FnMut(Arrival<'_>)) -> usize {
        self.neighbours.end_sleep();
        self.received_bytes = 0;
        self.polls = self.polls.wrapping_add(1);
        if self.polls.is_multiple_of(ATTEND) {
            self.neighbours.check_connections();
        }
        self.neighbours.find_room();
        let given = self.deliver_events(limit, sink);
        let given = given + self.deliver_records(limit.saturating_sub(given), sink);
        self.neighbours.show_taken();
        given
    }

    fn counters(&self) -> Counters {
        Counters { strangers: self.neighbours.broken(), ..self.counters }
    }
}

impl Wake for ShmWire {
    fn wake_descriptors(&mut self) -> io::Result<Option<WakeDescriptors>> {
        self.neighbours.wake_descriptors()
    }

    fn rest(&mut self) -> Rest {
        self.neighbours.rest()
    }
}

impl Waitable for ShmWire {
    fn wait(&mut self, until: Option<LocalNs>, extra: &[BorrowedFd<'_>]) -> WakeReason {
        self.pause.wait(&mut self.neighbours, until, extra)
    }
}

#[cfg(test)]
mod tests;
