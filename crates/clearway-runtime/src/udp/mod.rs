//! The UDP wire: lossy messages and multicast over the kernel's sockets, with classes that do not block each other.
//!
//! # Model
//! `socket` opens five sockets on one port, one for each class; `transmit` decides how messages leave; `receive` turns
//! bytes into arrivals; `readiness` asks which sockets are ready; `syscall` holds the system calls. [`UdpWire`] ties
//! them to the contract of [`clearway_proto::wire`].
//!
//! Stamps are the kernel's, taken when a packet entered the host, on this node's clock (see [`crate::clock`]).
//!
//! # Invariants
//! I1. Within a class messages leave in the order posted; between classes the more urgent leave first.
//! I2. A class that found no room refuses everything until its `Room` was harvested.
//!
//! # Not here
//! Reliability and one-sided operations (an engine above), keys (launch), which rank runs where (launch).

mod config;
mod control;
pub mod frame;
mod memory;
mod readiness;
mod receive;
mod socket;
mod syscall;
mod transmit;

pub use config::{Multicast, Placement, UdpConfig};
pub use socket::{Buffers, UdpPort};
pub use transmit::Segmentation;

use std::io;
use std::net::SocketAddrV4;
use std::os::fd::{AsFd, BorrowedFd};

use clearway_proto::base::{Bytes, Class, GroupId, LocalNs, Nanos, Rank, SharedClock};
use clearway_proto::wire::{
    Answer, Arrival, Capabilities, Counters, Delivery, Destination, Granted, HeadRef, Missing, Operation,
    OperationKind, OperationSet, PathId, RegionId, Span, StampSource, Wire,
};
use socket2::Socket;

use self::memory::Memory;
use self::readiness::{Readiness, Ready, SOCKETS_MAX, Writing};
use self::receive::{Inbox, Members, Origin};
use self::syscall::SendCall;
use self::transmit::{Full, Outlet, Planned, Run};
use crate::RuntimeError;
use crate::clock::{self, StampClock};
use crate::waiting::{Pause, Source, Waitable, Woken};

/// When a device's queue was full, how long until the next attempt: a few packets of 1500 bytes at 100 Mb/s (120 us
/// each), the slowest link of the lab. The kernel does not tell when the queue has room.
const DEVICE_PATIENCE: Nanos = Nanos::from_micros(200);

/// Error reports taken at a time; bounds the work that a stranger's ICMP flood can cause.
const REPORTS_MAX: u64 = 64;

/// What keeps a class from sending.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Blocked {
    /// Its send buffer.
    Socket,
    /// The device's queue, until it is tried again.
    Device(LocalNs),
}

/// The sending side of one class.
#[derive(Debug)]
struct Lane {
    socket: Socket,
    planned: Vec<Planned>,
    blocked: Option<Blocked>,
}

/// One rank's end of a job over UDP.
#[derive(Debug)]
pub struct UdpWire {
    members: Members,
    capabilities: Capabilities,
    multicast: Option<Multicast>,
    address: SocketAddrV4,
    buffers: Buffers,
    segmentation: Segmentation,
    /// By [`Class::index`]; socket numbers 0 to 4 of `readiness`.
    lanes: Vec<Lane>,
    /// Socket numbers from 5 on.
    groups: Vec<(GroupId, Socket)>,
    readiness: Readiness,
    /// What [`Waitable::wait`] found, for the next harvest.
    found: Ready,
    pause: Pause,
    stamps: StampClock,
    memory: Memory,
    inbox: Inbox,
    /// Frames and engines' headers of planned messages.
    staging: Vec<u8>,
    /// Regions that planned bodies lie in, as bits.
    planned_regions: u64,
    runs: Vec<Run>,
    call: SendCall,
    sent: u64,
    no_room: u64,
    errors: u64,
}

impl UdpWire {
    /// Opens this rank's end on `port`.
    ///
    /// # Errors
    /// A configuration that cannot work, or a system that refuses what every wire needs; each says which.
    pub fn open(port: UdpPort, config: UdpConfig) -> Result<Self, RuntimeError> {
        let address = port.address();
        config.check(address)?;
        let interface = config.multicast.map(|_| *address.ip());
        let lanes: Vec<Lane> = port
            .share(config.buffers, interface)?
            .into_iter()
            .map(|socket| Lane { socket, planned: Vec::new(), blocked: None })
            .collect();
        let readiness = Readiness::new().map_err(RuntimeError::system("watch sockets"))?;
        for (number, lane) in lanes.iter().enumerate() {
            readiness.add(number, lane.socket.as_fd()).map_err(RuntimeError::system("watch sockets"))?;
        }
        Ok(Self {
            capabilities: capabilities(&config),
            members: Members { rank: config.rank, session: config.session, peers: config.peers },
            multicast: config.multicast,
            address,
            buffers: config.buffers,
            segmentation: config.segmentation,
            lanes,
            groups: Vec::new(),
            readiness,
            found: Ready::default(),
            pause: Pause::new(config.waiting),
            stamps: StampClock::new(),
            memory: Memory::default(),
            inbox: Inbox::new(),
            staging: Vec::new(),
            planned_regions: 0,
            runs: Vec::new(),
            call: SendCall::default(),
            sent: 0,
            no_room: 0,
            errors: 0,
        })
    }

    /// The address that peers send to.
    pub fn address(&self) -> SocketAddrV4 {
        self.address
    }

    /// Whether messages leave in large packets now; changes once, when a device refuses.
    pub fn segmentation(&self) -> Segmentation {
        self.segmentation
    }

    /// The buffers that the system granted to the socket of `class`, as it reports them: twice what was asked, for
    /// its own overhead, or less where a limit (`net.core.rmem_max`) cut it.
    pub fn granted_buffers(&self, class: Class) -> Buffers {
        let socket = &self.lanes[class.index()].socket;
        let size = |granted: io::Result<usize>| Bytes(granted.unwrap_or(0) as u64);
        Buffers { send: size(socket.send_buffer_size()), receive: size(socket.recv_buffer_size()) }
    }

    /// Datagrams of `class` to this rank's port that were dropped here because nobody read them in time.
    ///
    /// Exact for real packets. Packets that the kernel had joined (one host's segmentation offload, a device's receive
    /// offload) count as one.
    pub fn overflow(&self, class: Class) -> u64 {
        u64::from(syscall::dropped(self.lanes[class.index()].socket.as_fd()))
    }

    /// The bound of the error of receive stamps.
    pub fn stamp_error(&self) -> Nanos {
        self.stamps.error()
    }

    /// Checks a send and puts it into its class's plan.
    fn plan(
        &mut self,
        answer: usize,
        to: Destination,
        path: PathId,
        class: Class,
        head: Option<&[u8]>,
        body: Span,
    ) -> Result<(), Missing> {
        if path != PathId(0) {
            return Err(Missing::Path);
        }
        let to = match (to, self.multicast) {
            (Destination::One(rank), _) => *self.members.peers.get(rank.index()).ok_or(Missing::Rank)?,
            (Destination::Group(group), Some(multicast)) => multicast.address(group),
            (Destination::Group(_), None) => return Err(Missing::Operation(OperationKind::Multicast)),
        };
        self.memory.bytes(self.inbox.arena(), body)?;
        let head = head.ok_or(Missing::Memory)?;
        let head_length = u8::try_from(head.len()).map_err(|_| Missing::Length)?;
        if head.len() > frame::HEAD_MAX || body.length as usize > frame::BODY_MAX {
            return Err(Missing::Length);
        }
        let start = self.staging.len();
        self.staging.extend_from_slice(&frame::write(self.members.rank, self.members.session, head_length));
        self.staging.extend_from_slice(head);
        self.planned_regions |= region_bit(body.region);
        let head = start..self.staging.len();
        self.lanes[class.index()].planned.push(Planned { answer, to, head, body });
        Ok(())
    }

    /// Sends all plans, the most urgent class first, and corrects the answers of what found no room.
    fn flush(&mut self, answers: &mut [Answer]) {
        for (number, lane) in self.lanes.iter_mut().enumerate() {
            if lane.planned.is_empty() {
                continue;
            }
            let done = if lane.blocked.is_some() {
                0
            } else {
                let (memory, arena, staging) = (&self.memory, self.inbox.arena(), &self.staging);
                let planned = &lane.planned;
                let pieces_of = |i: usize| {
                    let message: &Planned = &planned[i];
                    [&staging[message.head.clone()], memory.bytes(arena, message.body).unwrap_or_default()]
                };
                let mut outlet = ClassSocket { socket: lane.socket.as_fd(), call: &mut self.call };
                let sent = transmit::send_all(&mut outlet, planned, &mut self.segmentation, &mut self.runs, &pieces_of);
                self.errors += sent.errors;
                lane.blocked = sent.full.map(|full| match full {
                    Full::Socket => Blocked::Socket,
                    Full::Device => Blocked::Device(clock::now() + DEVICE_PATIENCE),
                });
                if lane.blocked == Some(Blocked::Socket) {
                    self.readiness.watch(number, lane.socket.as_fd(), Writing::Watched);
                }
                sent.messages
            };
            self.sent += done as u64;
            self.no_room += (lane.planned.len() - done) as u64;
            for message in &lane.planned[done..] {
                answers[message.answer] = Answer::NoRoom;
            }
            lane.planned.clear();
        }
        self.staging.clear();
        self.planned_regions = 0;
    }

    /// Tells of classes that have room again.
    fn give_room(&mut self, writable: u64, sink: &mut dyn FnMut(Arrival<'_>)) -> usize {
        let mut given = 0;
        for (number, class) in Class::ALL.into_iter().enumerate() {
            let lane = &mut self.lanes[number];
            let room = match lane.blocked {
                None => false,
                Some(Blocked::Socket) => writable & (1 << number) != 0,
                Some(Blocked::Device(until)) => until <= clock::now(),
            };
            if room {
                if lane.blocked == Some(Blocked::Socket) {
                    self.readiness.watch(number, lane.socket.as_fd(), Writing::Ignored);
                }
                lane.blocked = None;
                given += 1;
                sink(Arrival::Room { path: PathId(0), class });
            }
        }
        given
    }

    /// Fills the arena from the sockets that are ready, the most urgent class first; each gets at least one slot.
    fn fill(&mut self, ready: Ready) {
        self.inbox.empty();
        if ready.readable == 0 && ready.failed == 0 {
            return;
        }
        self.stamps.refresh(clock::now());
        let ports = self.lanes.iter().map(|lane| (lane.socket.as_fd(), Origin::Port));
        let groups = self.groups.iter().map(|(_, socket)| (socket.as_fd(), Origin::Group));
        let mut waiting = ready.readable.count_ones() as usize;
        for (number, (socket, origin)) in ports.chain(groups).enumerate() {
            let bit = 1 << number;
            if ready.failed & bit != 0 {
                self.errors += drain_errors(socket);
            }
            if ready.readable & bit != 0 {
                waiting -= 1;
                if self.inbox.fill(socket, origin, waiting, &self.members, &self.stamps).is_err() {
                    self.errors += drain_errors(socket).max(1);
                }
            }
        }
    }

    /// When a class that waits for a device's queue tries again.
    fn next_attempt(&self) -> Option<LocalNs> {
        let attempt = |lane: &Lane| match lane.blocked {
            Some(Blocked::Device(until)) => Some(until),
            _ => None,
        };
        self.lanes.iter().filter_map(attempt).min()
    }
}

fn capabilities(config: &UdpConfig) -> Capabilities {
    let mut operations = vec![OperationKind::Send, OperationKind::Copy];
    operations.extend(config.multicast.map(|_| OperationKind::Multicast));
    Capabilities {
        name: "udp",
        operations: OperationSet::of(&operations),
        delivery: Delivery::Lossy,
        head_max: frame::HEAD_MAX,
        body_max: frame::BODY_MAX,
        stamp: StampSource::Kernel,
        shared_clock: match config.placement {
            Placement::OneMachine => Some(SharedClock::asserted_by_wire()),
            Placement::ManyMachines => None,
        },
        classes: [Granted::Marked; Class::ALL.len()],
        paths: vec![None],
    }
}

/// The bit of a region in a set of planned ones. Received bytes cannot be overwritten by an operation.
fn region_bit(region: RegionId) -> u64 {
    1u64.checked_shl(u32::from(region.0)).unwrap_or(0)
}

/// Takes error reports off a socket, so that they neither fail a later send nor keep the socket "ready".
fn drain_errors(socket: BorrowedFd<'_>) -> u64 {
    (0..REPORTS_MAX).take_while(|_| syscall::take_error_report(socket)).count() as u64
}

/// A class's socket, as `transmit` sees it.
struct ClassSocket<'s> {
    socket: BorrowedFd<'s>,
    call: &'s mut SendCall,
}

impl Outlet for ClassSocket<'_> {
    fn send<'a>(&mut self, runs: &[Run], pieces_of: &dyn Fn(usize) -> [&'a [u8]; 2]) -> io::Result<usize> {
        self.call.send(self.socket, runs, pieces_of)
    }

    fn drain_errors(&mut self) -> u64 {
        drain_errors(self.socket)
    }
}

impl Wire for UdpWire {
    fn rank(&self) -> Rank {
        self.members.rank
    }

    fn capabilities(&self) -> &Capabilities {
        &self.capabilities
    }

    fn now(&self) -> LocalNs {
        clock::now()
    }

    fn register(&mut self, length: Bytes) -> Result<RegionId, Missing> {
        self.memory.register(length)
    }

    fn region(&self, region: RegionId) -> Option<&[u8]> {
        if region == RegionId::RECEIVE { Some(self.inbox.arena()) } else { self.memory.region(region) }
    }

    fn region_mut(&mut self, region: RegionId) -> Option<&mut [u8]> {
        self.memory.region_mut(region)
    }

    fn join(&mut self, group: GroupId) -> Result<(), Missing> {
        let multicast = self.multicast.ok_or(Missing::Operation(OperationKind::Multicast))?;
        if self.groups.iter().any(|(joined, _)| *joined == group) {
            return Ok(());
        }
        let number = self.lanes.len() + self.groups.len();
        if number >= SOCKETS_MAX {
            return Err(Missing::Group);
        }
        let socket = socket::group_socket(multicast.address(group), *self.address.ip(), self.buffers)
            .map_err(|_| Missing::Group)?;
        self.readiness.add(number, socket.as_fd()).map_err(|_| Missing::Group)?;
        self.groups.push((group, socket));
        Ok(())
    }

    fn post(&mut self, operations: &[Operation], heads: &[u8], answers: &mut Vec<Answer>) {
        let first = answers.len();
        for (i, operation) in operations.iter().enumerate() {
            let answer = match *operation {
                Operation::Send { to, path, class, head, body, .. } => {
                    self.plan(i, to, path, class, HeadRef::of(head, heads), body)
                }
                Operation::Copy { from, into } => {
                    if self.planned_regions & region_bit(into.region) != 0 {
                        self.flush(&mut answers[first..]);
                    }
                    self.memory.copy(self.inbox.arena(), from, into)
                }
                _ => Err(Missing::Operation(operation.kind())),
            };
            answers.push(answer.map_or_else(Answer::Refused, |()| Answer::Done(0)));
        }
        self.flush(&mut answers[first..]);
    }

    fn harvest(&mut self, limit: usize, sink: &mut dyn FnMut(Arrival<'_>)) -> usize {
        let mut given = 0;
        if !self.inbox.is_waiting() {
            let found = std::mem::take(&mut self.found);
            let ready = if found.is_empty() { self.readiness.poll() } else { found };
            given += self.give_room(ready.writable, sink);
            self.fill(ready);
        }
        given + self.inbox.give(limit.saturating_sub(given), sink)
    }

    fn counters(&self) -> Counters {
        let ports = self.lanes.iter().map(|lane| lane.socket.as_fd());
        let groups = self.groups.iter().map(|(_, socket)| socket.as_fd());
        Counters {
            sent: self.sent,
            received: self.inbox.received,
            receive_overflow: ports.chain(groups).map(|socket| u64::from(syscall::dropped(socket))).sum(),
            transmit_dropped: 0,
            no_room: self.no_room,
            strangers: self.inbox.strangers,
            errors: self.errors,
        }
    }
}

/// The sockets as something to wait for.
struct Sockets<'w> {
    readiness: &'w mut Readiness,
    found: &'w mut Ready,
}

impl Source for Sockets<'_> {
    fn poll(&mut self) -> bool {
        *self.found = self.readiness.poll();
        !self.found.is_empty()
    }

    fn as_fd(&self) -> BorrowedFd<'_> {
        self.readiness.as_fd()
    }
}

impl Waitable for UdpWire {
    fn wait(&mut self, until: Option<LocalNs>, extra: &[BorrowedFd<'_>]) -> Woken {
        let something = self.inbox.is_waiting() || !self.found.is_empty();
        let until = if something { Some(LocalNs(0)) } else { until };
        let until = [until, self.next_attempt()].into_iter().flatten().min();
        let mut sockets = Sockets { readiness: &mut self.readiness, found: &mut self.found };
        self.pause.wait(&mut sockets, until, extra)
    }
}

#[cfg(test)]
mod tests;
