//! The UDP wire: lossy messages and multicast over the kernel's sockets, with classes that do not
//! block each other.
//!
//! # Model
//! `socket` opens five sockets on one port of each rail, one for each class; `transmit` decides how
//! messages leave; `receive` turns bytes into arrivals; `guard` seals and opens datagrams where the
//! job has keys, each once (`window`); `listen` decides which socket is read, `readiness` asks
//! which are ready, `flow` for which it need not wake; `syscall` holds the system calls.
//! [`UdpWire`] ties them to the contract of [`clearway_proto::wire`].
//!
//! Stamps are the kernel's, taken when a packet entered the host, on this node's clock (see
//! [`crate::clock`]).
//!
//! A *rail* is an interface to a network of its own, and a path of the contract: each rank has an
//! address on each. Multicast uses the first. What a rail carries or loses is not known here: who
//! sends finds out.
//!
//! # Invariants
//! I1. Within a class and rail messages leave in the order posted; between classes the more urgent
//!     leave first.
//! I2. A class that found no room on a rail refuses everything there until its `Room` was polled.
//!
//! # Not here
//! Reliability and one-sided operations (an engine above), where keys come from ([`crate::keys`]),
//! which rank runs where (launch).

mod arrival_rate;
mod config;
mod control;
pub mod frame;
mod moves;
mod readiness;
mod receive;
mod sealer;
mod socket;
mod syscall;
mod transmit;
mod window;
mod wire_sockets;

pub use config::{Multicast, Placement, Protection, UdpConfig};
pub use moves::{PeerMove, PeerMoves};
pub use socket::{SocketBuffers, UdpPort};
pub use transmit::Segmentation;

use std::io;
use std::net::SocketAddrV4;
use std::os::fd::{AsFd, BorrowedFd};

use clearway_proto::base::{Bytes, Class, GroupId, LocalNs, Nanos, Rank, SharedClock};
use clearway_proto::wire::regions::{Pages, Regions};
use clearway_proto::wire::{
    AdoptedMemory, Arrival, Capabilities, Counters, Delivery, Destination, Granted, HeadRef,
    Operation, OperationKind, OperationSet, PathId, PostOutcome, Queue, RefusalReason, RegionId,
    Span, StampSource, Wire,
};

use self::readiness::WriteInterest;
use self::receive::JobAddresses;
use self::sealer::DatagramSealer;
use self::syscall::SendCall;
use self::transmit::{PlannedMessage, RunSender, SegmentRun, SendStop};
use self::wire_sockets::{WireSockets, drain_errors};
use crate::RuntimeError;
use crate::clock;
use crate::waiting::{Pause, Rest, WaitSource, Waitable, Wake, WakeDescriptors, WakeReason};

/// When a device's queue was full, how long until the next attempt: a few packets of 1500 bytes at
/// 100 Mb/s (120 us each), the slowest link of the lab. The kernel does not tell when the queue has
/// room.
const DEVICE_TIMEOUT: Nanos = Nanos::from_micros(200);

/// A body of at most this many bytes is copied behind its header: that takes about 10 ns, a second
/// piece of a message 40.
const COPIED_BODY_MAX: usize = 256;

/// What keeps a class from sending.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum SendBlock {
    /// Its send buffer.
    Socket,
    /// The device's queue, until it is tried again.
    Device(LocalNs),
}

/// The sending side of one class on one rail.
#[derive(Debug, Default)]
struct SendLane {
    planned: Vec<PlannedMessage>,
    blocked: Option<SendBlock>,
}

/// One rank's end of a job over UDP.
#[derive(Debug)]
pub struct UdpWire {
    capabilities: Capabilities,
    multicast: Option<Multicast>,
    /// This rank's, by rail.
    addresses: Vec<SocketAddrV4>,
    buffers: SocketBuffers,
    segmentation: Segmentation,
    listener: WireSockets,
    pause: Pause,
    /// By the number of their socket ([`Listener::number`]).
    lanes: Vec<SendLane>,
    memory: Regions<Pages>,
    /// A body of adopted memory on its way into the staging bytes.
    scratch: Vec<u8>,
    /// Frames and engines' headers of planned messages.
    staging: Vec<u8>,
    /// Regions that planned bodies lie in, as bits.
    planned_regions: u64,
    runs: Vec<SegmentRun>,
    call: SendCall,
    moves: PeerMoves,
    sent: u64,
    no_room: u64,
    errors: u64,
}

impl UdpWire {
    /// Opens this rank's end on its ports, one for each rail.
    ///
    /// # Errors
    /// A configuration that cannot work, or a system that refuses what every wire needs; each says
    /// which.
    pub fn open(
        ports: impl IntoIterator<Item = UdpPort>,
        config: UdpConfig,
    ) -> Result<Self, RuntimeError> {
        let ports: Vec<UdpPort> = ports.into_iter().collect();
        let addresses: Vec<SocketAddrV4> = ports.iter().map(UdpPort::address).collect();
        config.check(&addresses)?;
        let open = |(rail, port): (usize, UdpPort)| {
            let interface = config.multicast.filter(|_| rail == 0).map(|_| *port.address().ip());
            port.share(config.buffers, interface)
        };
        let sockets = ports.into_iter().enumerate().map(open).collect::<Result<Vec<_>, _>>()?;
        let capabilities = capabilities(&config);
        let rails = addresses.len();
        let guard = match config.protection {
            Protection::Keys(keys) => Some(DatagramSealer::new(keys, rails)),
            Protection::OnOneMachine | Protection::Insecure => None,
        };
        Ok(Self {
            capabilities,
            multicast: config.multicast,
            addresses,
            buffers: config.buffers,
            segmentation: config.segmentation,
            pause: Pause::new(config.waiting),
            listener: WireSockets::new(
                sockets,
                JobAddresses {
                    rank: config.rank,
                    session: config.session,
                    rails: config.rails,
                    guard,
                },
            ),
            lanes: (0..Class::ALL.len() * rails).map(|_| SendLane::default()).collect(),
            memory: Regions::default(),
            scratch: Vec::new(),
            staging: Vec::new(),
            planned_regions: 0,
            runs: Vec::new(),
            call: SendCall::default(),
            moves: config.moves,
            sent: 0,
            no_room: 0,
            errors: 0,
        })
    }

    /// Returns the address that peers send to, on the first rail.
    pub fn address(&self) -> SocketAddrV4 {
        self.addresses[0]
    }

    /// Returns whether messages leave in large packets now; changes once, when a device refuses.
    pub fn segmentation(&self) -> Segmentation {
        self.segmentation
    }

    /// Returns the buffers that the system granted to the sockets of `class`, as it reports them:
    /// twice what was asked, for its own overhead, or less where a limit (`net.core.rmem_max`) cut
    /// it.
    pub fn granted_buffers(&self, class: Class) -> SocketBuffers {
        let socket = self.listener.socket_for(class, PathId(0));
        let size = |granted: io::Result<usize>| Bytes(granted.unwrap_or(0) as u64);
        SocketBuffers {
            send: size(socket.send_buffer_size()),
            receive: size(socket.recv_buffer_size()),
        }
    }

    /// Returns how many datagrams of `class` to this rank's port were dropped here because nobody
    /// read them in time.
    ///
    /// Exact for real packets. Packets that the kernel had joined (one host's segmentation offload,
    /// a device's receive offload) count as one.
    pub fn overflow(&self, class: Class) -> u64 {
        let rails = (0..self.capabilities.paths.len())
            .map(|rail| self.listener.socket_for(class, PathId(rail as u8)));
        rails.map(|socket| u64::from(syscall::dropped(socket.as_fd()))).sum()
    }

    /// Returns how many bytes this wire puts around head and body of a message.
    pub fn overhead(&self) -> Bytes {
        let length = if self.listener.members.guard.is_some() {
            frame::SEALED_OVERHEAD
        } else {
            frame::FRAME_LENGTH
        };
        Bytes(length as u64)
    }

    /// Returns how many of the strangers counted were genuine datagrams of peers that had come
    /// before: repeated by the network or an attacker. Always 0 without keys, where a repeated
    /// message is given again.
    pub fn replayed(&self) -> u64 {
        self.listener.members.guard.as_ref().map_or(0, |guard| guard.replayed)
    }

    /// Gives `group` a new random key, and returns what to send to each of `members`, in their
    /// order, by any way. From then on this end reads and writes under the new key only. To be
    /// called by one member of the group, at its beginning and whenever somebody joins or leaves
    /// it.
    ///
    /// # Errors
    /// [`RuntimeError::NoKeys`], [`RuntimeError::RankOutside`], [`RuntimeError::System`] without
    /// randomness.
    pub fn renew_group(
        &mut self,
        group: GroupId,
        members: &[Rank],
    ) -> Result<Vec<Vec<u8>>, RuntimeError> {
        self.listener
            .members
            .guard
            .as_mut()
            .ok_or(RuntimeError::NoKeys)?
            .renew_group(group, members)
    }

    /// Takes the group key that `from` sealed for this rank; what was sent under an older one is
    /// lost.
    ///
    /// # Errors
    /// [`RuntimeError::NoKeys`], [`RuntimeError::GroupKey`].
    pub fn accept_group(&mut self, from: Rank, sealed: &[u8]) -> Result<GroupId, RuntimeError> {
        self.listener.members.guard.as_mut().ok_or(RuntimeError::NoKeys)?.accept_group(from, sealed)
    }

    /// Returns the bound of the error of receive stamps.
    pub fn stamp_error(&self) -> Nanos {
        self.listener.stamp_error()
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
    ) -> Result<(), RefusalReason> {
        if usize::from(path.0) >= self.capabilities.paths.len() {
            return Err(RefusalReason::Path);
        }
        let address = match (to, self.multicast) {
            (Destination::One(rank), _) => {
                self.listener.members.address(rank, path).ok_or(RefusalReason::Rank)?
            }
            (Destination::Group(_), Some(_)) if path != PathId(0) => {
                return Err(RefusalReason::Path);
            }
            (Destination::Group(group), Some(multicast)) => multicast.address(group),
            (Destination::Group(_), None) => {
                return Err(RefusalReason::Operation(OperationKind::Multicast));
            }
        };
        self.memory.check(self.listener.inbox.arena(), body)?;
        let head = head.ok_or(RefusalReason::Memory)?;
        if !self.capabilities.carries(head.len(), body.length as usize) {
            return Err(RefusalReason::Length);
        }
        let start = self.staging.len();
        let number = self.listener.number(class, path);
        let body = self.stage(to, path, class, head, body)?;
        let head = start..self.staging.len();
        self.lanes[number].planned.push(PlannedMessage { answer, to: address, head, body });
        Ok(())
    }

    /// Puts a message's frame, head and body into the staging bytes, to be sealed where the job has
    /// keys; returns the body if it leaves from its place.
    fn stage(
        &mut self,
        to: Destination,
        path: PathId,
        class: Class,
        head: &[u8],
        body: Span,
    ) -> Result<Span, RefusalReason> {
        let is_blocked = self.lanes[self.listener.number(class, path)].blocked.is_some();
        let is_adopted = self.memory.adopted(body.region).is_some();
        let bytes =
            self.memory.bytes_or_copy(self.listener.inbox.arena(), body, &mut self.scratch)?;
        let JobAddresses { rank, session, guard, .. } = &mut self.listener.members;
        if let Some(guard) = guard {
            // What cannot leave need not be sealed, and uses up no number.
            if !is_blocked {
                guard.stage(to, path, class, [head, bytes], &mut self.staging)?;
            }
            return Ok(Span::EMPTY);
        }
        let head_length = u8::try_from(head.len()).map_err(|_| RefusalReason::Length)?;
        self.staging.extend_from_slice(&frame::write(*rank, *session, head_length));
        self.staging.extend_from_slice(head);
        if bytes.len() <= COPIED_BODY_MAX || is_adopted {
            self.staging.extend_from_slice(bytes);
            return Ok(Span::EMPTY);
        }
        self.planned_regions |= region_bit(body.region);
        Ok(body)
    }

    /// Sends all plans, the most urgent class first, and corrects the answers of what found no
    /// room.
    fn flush(&mut self, answers: &mut [PostOutcome]) {
        if let Some(guard) = &mut self.listener.members.guard {
            guard.seal(&mut self.staging);
        }
        for (number, lane) in self.lanes.iter_mut().enumerate() {
            if lane.planned.is_empty() {
                continue;
            }
            let mut done = 0;
            if lane.blocked.is_none() {
                let (memory, arena, staging) =
                    (&self.memory, self.listener.inbox.arena(), &self.staging);
                let planned = &lane.planned;
                let pieces_of = |i: usize| {
                    let message: &PlannedMessage = &planned[i];
                    [
                        &staging[message.head.clone()],
                        memory.bytes(arena, message.body).unwrap_or_default(),
                    ]
                };
                let mut outlet =
                    ClassSocket { socket: self.listener.socket(number), call: &mut self.call };
                let sent = transmit::send_all(
                    &mut outlet,
                    planned,
                    &mut self.segmentation,
                    &mut self.runs,
                    &pieces_of,
                );
                self.errors += sent.errors;
                done = sent.messages;
                lane.blocked = sent.full.map(|full| match full {
                    SendStop::Socket => SendBlock::Socket,
                    SendStop::Device => SendBlock::Device(clock::now() + DEVICE_TIMEOUT),
                });
                if lane.blocked == Some(SendBlock::Socket) {
                    self.listener.watch(number, WriteInterest::Watched);
                }
            }
            self.sent += done as u64;
            self.no_room += (lane.planned.len() - done) as u64;
            for message in &lane.planned[done..] {
                answers[message.answer] = PostOutcome::NoRoom;
            }
            lane.planned.clear();
        }
        self.staging.clear();
        self.planned_regions = 0;
    }

    /// Sends to peers, and hears them, where they are now. One whose card is wrong stays where it
    /// was, which is counted as an error.
    fn follow_moves(&mut self) {
        for to in self.moves.take() {
            self.errors += u64::from(self.listener.members.follow(&to).is_err());
        }
    }

    /// Reports the classes that have room again: those of `writable` sockets, and those whose device
    /// may be tried again.
    fn give_room(&mut self, writable: u64, sink: &mut dyn FnMut(Arrival<'_>)) -> usize {
        let mut given = 0;
        let rails = self.capabilities.paths.len();
        for (number, lane) in self.lanes.iter_mut().enumerate() {
            let room = match lane.blocked {
                None => false,
                Some(SendBlock::Socket) => writable & (1 << number) != 0,
                Some(SendBlock::Device(until)) => until <= clock::now(),
            };
            if room {
                self.listener.watch(number, WriteInterest::Ignored);
                lane.blocked = None;
                given += 1;
                let (path, class) = (PathId((number % rails) as u8), Class::ALL[number / rails]);
                sink(Arrival::Room { queue: Queue::Path { path, class } });
            }
        }
        given
    }

    /// Returns what becomes readable when something arrives.
    pub(crate) fn descriptors(&self) -> impl Iterator<Item = BorrowedFd<'_>> {
        self.listener.sockets()
    }

    /// Returns whether a class waits for room.
    pub(crate) fn is_full(&self) -> bool {
        self.lanes.iter().any(|lane| lane.blocked.is_some())
    }

    /// Returns when a class that waits for a device's queue tries again.
    fn next_attempt(&self) -> Option<LocalNs> {
        let attempt = |lane: &SendLane| match lane.blocked {
            Some(SendBlock::Device(until)) => Some(until),
            _ => None,
        };
        self.lanes.iter().filter_map(attempt).min()
    }
}

fn capabilities(config: &UdpConfig) -> Capabilities {
    let mut operations = vec![OperationKind::Send, OperationKind::Copy, OperationKind::Digest];
    let message_max = match config.protection {
        Protection::Keys(_) => frame::SEALED_MESSAGE_MAX,
        Protection::OnOneMachine | Protection::Insecure => frame::MESSAGE_MAX,
    };
    operations.extend(config.multicast.map(|_| OperationKind::Multicast));
    Capabilities {
        name: "udp",
        operations: OperationSet::from_kinds(&operations),
        delivery: Delivery::Lossy,
        head_max: frame::HEAD_MAX,
        body_max: message_max,
        message_max,
        stamp: StampSource::Kernel,
        shared_clock: match config.placement {
            Placement::OneMachine => Some(SharedClock::asserted_by_wire()),
            Placement::ManyMachines => None,
        },
        classes: [Granted::Marked; Class::ALL.len()],
        sends_follow_writes: false,
        adopts: true,
        any_local: true,
        groups_max: config.multicast.map_or(0, |_| WireSockets::groups_max(config.rails.len())),
        paths: vec![None; config.rails.len()],
    }
}

/// Returns the bit of a region in a set of planned ones. Received bytes cannot be overwritten by an
/// operation.
fn region_bit(region: RegionId) -> u64 {
    1u64.checked_shl(u32::from(region.0)).unwrap_or(0)
}

/// A class's socket, as `transmit` sees it.
struct ClassSocket<'s> {
    socket: BorrowedFd<'s>,
    call: &'s mut SendCall,
}

impl RunSender for ClassSocket<'_> {
    fn send<'a>(
        &mut self,
        runs: &[SegmentRun],
        pieces_of: &dyn Fn(usize) -> [&'a [u8]; 2],
    ) -> io::Result<usize> {
        self.call.send(self.socket, runs, pieces_of)
    }

    fn drain_errors(&mut self) -> u64 {
        drain_errors(self.socket)
    }
}

impl Wire for UdpWire {
    fn rank(&self) -> Rank {
        self.listener.members.rank
    }

    fn capabilities(&self) -> &Capabilities {
        &self.capabilities
    }

    fn now(&self) -> LocalNs {
        clock::now()
    }

    fn register(&mut self, length: Bytes) -> Result<RegionId, RefusalReason> {
        self.memory.register_pages(length)
    }

    fn adopt(&mut self, memory: AdoptedMemory) -> Result<RegionId, RefusalReason> {
        self.memory.adopt(memory)
    }

    fn copy_out(&self, from: Span, into: &mut [u8]) -> Result<(), RefusalReason> {
        self.memory.copy_out(self.listener.inbox.arena(), from, into)
    }

    fn copy_in(&mut self, into: Span, from: &[u8]) -> Result<(), RefusalReason> {
        self.memory.copy_in(into, from)
    }

    fn clear(&mut self, region: RegionId) {
        self.memory.clear(region);
    }

    fn region(&self, region: RegionId) -> Option<&[u8]> {
        self.memory.region(self.listener.inbox.arena(), region)
    }

    fn region_mut(&mut self, region: RegionId) -> Option<&mut [u8]> {
        self.memory.region_mut(region)
    }

    fn join(&mut self, group: GroupId) -> Result<(), RefusalReason> {
        let multicast = self.multicast.ok_or(RefusalReason::Operation(OperationKind::Multicast))?;
        if self.listener.has_joined(group) {
            return Ok(());
        }
        let socket =
            socket::group_socket(multicast.address(group), *self.addresses[0].ip(), self.buffers)
                .map_err(|_| RefusalReason::Group)?;
        self.listener.add_group(group, socket).ok_or(RefusalReason::Group)
    }

    fn leave(&mut self, group: GroupId) -> Result<(), RefusalReason> {
        self.multicast.ok_or(RefusalReason::Operation(OperationKind::Multicast))?;
        // The kernel leaves the group when its socket is closed.
        self.listener.remove_group(group).ok_or(RefusalReason::Group)
    }

    fn post(&mut self, operations: &[Operation], heads: &[u8], answers: &mut Vec<PostOutcome>) {
        let first = answers.len();
        for (i, operation) in operations.iter().enumerate() {
            let answer = match *operation {
                Operation::Send { to, path, class, head, body, .. } => {
                    self.plan(i, to, path, class, HeadRef::bytes_in(head, heads), body)
                }
                Operation::Copy { from, into } => {
                    if self.planned_regions & region_bit(into.region) != 0 {
                        self.flush(&mut answers[first..]);
                    }
                    self.memory.copy(self.listener.inbox.arena(), from, into)
                }
                Operation::Digest { of, .. } => {
                    answers.push(self.digest(of).map_or_else(PostOutcome::Refused, |digest| {
                        PostOutcome::Done(u64::from(digest))
                    }));
                    continue;
                }
                // A datagram is over when the kernel has it.
                Operation::Abandon { .. } => Ok(()),
                _ => Err(RefusalReason::Operation(operation.kind())),
            };
            answers.push(answer.map_or_else(PostOutcome::Refused, |()| PostOutcome::Done(0)));
        }
        self.flush(&mut answers[first..]);
    }

    fn poll(&mut self, limit: usize, sink: &mut dyn FnMut(Arrival<'_>)) -> usize {
        self.follow_moves();
        let mut given = 0;
        if !self.listener.inbox.is_waiting() {
            let writable = self.listener.round();
            given = self.give_room(writable, sink);
        }
        given + self.listener.inbox.give(limit.saturating_sub(given), sink)
    }

    fn digest(&self, of: Span) -> Result<u32, RefusalReason> {
        self.memory.digest(self.listener.inbox.arena(), of, crc_fast::crc32_iscsi)
    }

    fn counters(&self) -> Counters {
        Counters {
            sent: self.sent,
            received: self.listener.inbox.received,
            receive_overflow: self.listener.dropped(),
            transmit_dropped: 0,
            no_room: self.no_room,
            strangers: self.listener.inbox.strangers,
            errors: self.errors + self.listener.errors,
        }
    }
}

impl Wake for UdpWire {
    fn wake_descriptors(&mut self) -> io::Result<Option<WakeDescriptors>> {
        self.listener.wake_descriptors()
    }

    fn rest(&mut self) -> Rest {
        // The descriptor does not tell of room in a full queue.
        if self.is_full() { Rest::Poll } else { self.listener.rest() }
    }
}

impl WaitSource for UdpWire {
    fn poll_ready(&mut self, timeout: Option<Nanos>, extra: &[BorrowedFd<'_>]) -> WakeReason {
        let found = self.listener.has_found();
        let attempt = self.next_attempt().map(|at| at.since(clock::now()));
        let due = found || attempt == Some(Nanos::ZERO);
        let timeout = [timeout, attempt, found.then_some(Nanos::ZERO)].into_iter().flatten().min();
        let mut woken = self.listener.poll_ready(timeout, extra);
        woken.wire |= due;
        woken
    }
}

impl Waitable for UdpWire {
    fn wait(&mut self, until: Option<LocalNs>, extra: &[BorrowedFd<'_>]) -> WakeReason {
        let found = self.listener.has_found();
        let until = if found { Some(LocalNs(0)) } else { until };
        let until = [until, self.next_attempt()].into_iter().flatten().min();
        let mut woken = self.pause.wait(&mut self.listener, until, extra);
        woken.wire |= found;
        woken
    }
}

#[cfg(test)]
mod tests;
