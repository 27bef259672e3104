//! Watches all sockets of a wire, and decides which is read next.
//!
//! # Model
//! Sockets are numbered: first the classes' in the order of [`Class::ALL`], each with those of all
//! rails, then the groups'. A full round asks which are ready and reads those, the most urgent
//! class first. Between full rounds, and while spinning, the socket that spoke last is read without
//! asking: in a dialogue that is where the next message comes.
//!
//! # Invariants
//! I1. In a full round every ready socket gets at least one slot of the arena. The next round is full
//!     when this one found several messages, or began [`FULL_ROUND_EVERY`] after the last full one,
//!     so that no socket starves.

use std::io;
use std::os::fd::{AsFd, BorrowedFd};

use clearway_proto::base::{Class, GroupId, LocalNs, Nanos};
use clearway_proto::wire::PathId;
use socket2::Socket;

use super::arrival_rate::{ArrivalRate, GATHER};
use super::readiness::{Readiness, ReadySockets, WriteInterest};
use super::receive::{JobAddresses, ReceiveQueue, SocketOrigin};
use super::syscall;
use crate::clock::{self, StampClock};
use crate::waiting::{Rest, WaitSource, Wake, WakeDescriptors, WakeReason};

/// Of this many looks while spinning, one asks about all sockets; the others read the one that
/// spoke last, which costs one system call where asking and then reading costs two.
const LOOKS: u32 = 8;

/// How long after a full round only the socket that spoke last is read, which costs one system call
/// instead of two. A datagram in another socket waits so long at most; one that ends a sleep is read
/// at once.
const FULL_ROUND_EVERY: Nanos = Nanos::from_micros(4);

/// Error reports taken at a time; bounds the work that a stranger's ICMP flood can cause.
const REPORTS_MAX: u64 = 64;

/// The sockets of a wire and what arrives at them.
#[derive(Debug)]
pub(super) struct WireSockets {
    sockets: Vec<Socket>,
    rails: usize,
    /// Whose the sockets behind those of the classes are.
    groups: Vec<GroupId>,
    readiness: Readiness,
    /// Sockets of bulk data and of groups, as bits, and what came in them.
    patient: u64,
    flow: ArrivalRate,
    /// What a wait found, for the next round.
    found: ReadySockets,
    last_speaker: usize,
    /// The socket of the latest datagram. It becomes `last_speaker` with its second one in a row: a
    /// lone acknowledgement does not make its socket that of the dialogue.
    latest: usize,
    /// When the last full round was; `None` if the next round has to be full.
    full_round_at: Option<LocalNs>,
    /// Slots offered to a socket: few while messages come singly, as each offered one costs a
    /// little.
    appetite: usize,
    looks: u32,
    stamps: StampClock,
    pub(super) members: JobAddresses,
    pub(super) inbox: ReceiveQueue,
    /// Failures that packets met, as far as the system reports them.
    pub(super) errors: u64,
    /// What sockets of groups had dropped when they were closed.
    dropped_before: u64,
}

impl WireSockets {
    /// Watches the sockets of all classes on each rail, both in their order.
    pub(super) fn new(sockets: Vec<Vec<Socket>>, members: JobAddresses) -> Self {
        let rails = sockets.len();
        let sockets = by_class(sockets);
        let mut readiness = Readiness::default();
        sockets.iter().for_each(|socket| readiness.add(socket.as_fd()));
        let bulk = Class::Bulk.index() * rails;
        Self {
            sockets,
            rails,
            patient: (bulk..bulk + rails).fold(0, |set, number| set | 1 << number),
            flow: ArrivalRate::default(),
            groups: Vec::new(),
            readiness,
            found: ReadySockets::default(),
            last_speaker: 0,
            latest: 0,
            full_round_at: None,
            appetite: 1,
            looks: 0,
            stamps: StampClock::new(),
            members,
            inbox: ReceiveQueue::new(rails),
            errors: 0,
            dropped_before: 0,
        }
    }

    /// Returns whether this rank is in `group`.
    pub(super) fn has_joined(&self, group: GroupId) -> bool {
        self.groups.contains(&group)
    }

    /// Watches one more socket, that of `group`; `None` when there are as many as slots.
    pub(super) fn add_group(&mut self, group: GroupId, socket: Socket) -> Option<()> {
        (self.sockets.len() < self.inbox.slots).then(|| {
            self.readiness.add(socket.as_fd());
            self.patient |= 1 << self.sockets.len();
            self.sockets.push(socket);
            self.groups.push(group);
        })
    }

    /// Returns how many groups one end can be in at a time.
    pub(super) const fn groups_max(rails: usize) -> usize {
        ReceiveQueue::slots_of(rails).saturating_sub(Class::ALL.len() * rails)
    }

    /// Closes the socket of `group`; `None` when there is none.
    pub(super) fn remove_group(&mut self, group: GroupId) -> Option<()> {
        let place = self.groups.iter().position(|joined| *joined == group)?;
        let number = self.sockets.len() - self.groups.len() + place;
        self.groups.remove(place);
        self.dropped_before += u64::from(syscall::dropped(self.sockets[number].as_fd()));
        self.readiness.remove(number);
        self.sockets.remove(number);
        // The sockets of groups are the last ones, and all of them are patient.
        self.patient &= !(1 << self.sockets.len());
        // What a wait found and who spoke last are by number, and numbers have moved.
        (self.found, self.last_speaker, self.latest) = (ReadySockets::default(), 0, 0);
        Some(())
    }

    /// Returns the number of the socket of `class` on a rail.
    pub(super) const fn number(&self, class: Class, path: PathId) -> usize {
        class.index() * self.rails + path.0 as usize
    }

    /// Returns the socket of `class` on a rail.
    pub(super) fn socket_for(&self, class: Class, path: PathId) -> &Socket {
        &self.sockets[self.number(class, path)]
    }

    /// Returns a socket by its number.
    pub(super) fn socket(&self, number: usize) -> BorrowedFd<'_> {
        self.sockets[number].as_fd()
    }

    /// Returns all sockets.
    pub(super) fn sockets(&self) -> impl Iterator<Item = BorrowedFd<'_>> {
        self.sockets.iter().map(|socket| socket.as_fd())
    }

    /// Returns how many datagrams the sockets dropped because nobody read them, those of groups
    /// that were left included.
    pub(super) fn dropped(&self) -> u64 {
        self.dropped_before
            + self.sockets().map(|socket| u64::from(syscall::dropped(socket))).sum::<u64>()
    }

    /// Returns the bound of the error of receive stamps.
    pub(super) fn stamp_error(&self) -> Nanos {
        self.stamps.error()
    }

    /// Watches a socket for room while it is full.
    pub(super) fn watch(&mut self, number: usize, writing: WriteInterest) {
        self.readiness.watch(number, writing);
    }

    /// Returns whether a round would find something without asking.
    pub(super) fn has_found(&self) -> bool {
        self.inbox.is_waiting() || self.found.is_wire()
    }

    /// Empties the arena and fills it from the sockets that are ready; returns the sockets, as
    /// bits, that have room again.
    pub(super) fn round(&mut self) -> u64 {
        self.inbox.empty();
        let found = std::mem::take(&mut self.found);
        let now = clock::now();
        if !found.is_wire() && self.full_round_at.is_some_and(|at| now.since(at) < FULL_ROUND_EVERY)
        {
            if self.read(self.last_speaker, 1) > 0 {
                self.full_round_at = None;
            }
            return 0;
        }
        let ready =
            if found.is_wire() { found } else { self.readiness.poll(Some(Nanos::ZERO), &[]) };
        self.full_round_at = Some(now);
        self.read_ready(ready)
    }

    /// Reads the sockets of a full round; returns those that have room again.
    fn read_ready(&mut self, ready: ReadySockets) -> u64 {
        let mut waiting = ready.readable.count_ones() as usize;
        if waiting > 1 {
            self.full_round_at = None;
        }
        for number in 0..self.sockets.len() {
            let bit = 1 << number;
            if ready.failed & bit != 0 {
                self.errors += drain_errors(self.sockets[number].as_fd());
            }
            if ready.readable & bit != 0 {
                waiting -= 1;
                let offer = self.appetite.min(self.inbox.free().saturating_sub(waiting));
                let filled = self.read(number, offer);
                self.appetite = if filled == offer {
                    (2 * offer).clamp(1, self.inbox.slots)
                } else {
                    filled.max(1)
                };
                // A lone message is that of a dialogue; behind several there may be more.
                if filled == offer && offer > 1 {
                    self.full_round_at = None;
                }
            }
        }
        ready.writable
    }

    /// Reads a socket into at most `offer` free slots; returns how many it filled.
    fn read(&mut self, number: usize, offer: usize) -> usize {
        let socket = self.sockets[number].as_fd();
        let group = number
            .checked_sub(Class::ALL.len() * self.rails)
            .and_then(|place| self.groups.get(place));
        let rail = PathId((number % self.rails) as u8);
        let origin = group.map_or(SocketOrigin::Port(rail), |group| SocketOrigin::Group(*group));
        let taken = self.inbox.taken;
        match self.inbox.fill(socket, origin, offer, &mut self.members, &mut self.stamps) {
            Ok(0) => 0,
            Ok(filled) => {
                if self.patient & 1 << number != 0 {
                    self.flow.add(self.inbox.taken - taken);
                }
                if core::mem::replace(&mut self.latest, number) == number {
                    self.last_speaker = number;
                }
                filled
            }
            Err(_) => {
                self.errors += drain_errors(socket).max(1);
                0
            }
        }
    }
}

impl Wake for WireSockets {
    fn wake_descriptors(&mut self) -> io::Result<Option<WakeDescriptors>> {
        WakeDescriptors::duplicate(self.sockets()).map(Some)
    }

    fn rest(&mut self) -> Rest {
        if self.has_found() { Rest::Again } else { Rest::Descriptor }
    }
}

impl WaitSource for WireSockets {
    fn poll_ready(&mut self, mut timeout: Option<Nanos>, extra: &[BorrowedFd<'_>]) -> WakeReason {
        if timeout != Some(Nanos::ZERO) && self.flow.is_on(clock::now()) {
            let gather = timeout.map_or(GATHER, |timeout| timeout.min(GATHER));
            self.readiness.mute(self.patient, true);
            let urgent = self.readiness.poll(Some(gather), extra);
            self.readiness.mute(self.patient, false);
            // What gathered is read with what is urgent, or an engine would take it for lost.
            let is_urgent = urgent.is_wire() || urgent.extra != 0;
            timeout =
                if is_urgent { Some(Nanos::ZERO) } else { timeout.map(|timeout| timeout - gather) };
            self.found = self.readiness.poll(timeout, extra);
            return WakeReason::new(self.found.is_wire(), self.found.extra);
        }
        self.looks = self.looks.wrapping_add(1);
        let brief =
            timeout == Some(Nanos::ZERO) && extra.is_empty() && !self.looks.is_multiple_of(LOOKS);
        if brief
            && self.inbox.free() > 0
            && self.read(self.last_speaker, 1) > 0
            && self.inbox.is_waiting()
        {
            return WakeReason::new(true, 0);
        }
        self.found = self.readiness.poll(timeout, extra);
        WakeReason::new(self.found.is_wire(), self.found.extra)
    }
}

/// Returns the sockets of rails, each in the order of classes, in the order of classes and then of
/// rails.
fn by_class(rails: Vec<Vec<Socket>>) -> Vec<Socket> {
    let mut rails: Vec<_> = rails.into_iter().map(Vec::into_iter).collect();
    Class::ALL
        .iter()
        .flat_map(|_| rails.iter_mut().filter_map(Iterator::next).collect::<Vec<_>>())
        .collect()
}

/// Takes error reports off a socket, so that they neither fail a later send nor keep the socket
/// "ready".
pub(super) fn drain_errors(socket: BorrowedFd<'_>) -> u64 {
    (0..REPORTS_MAX).take_while(|_| syscall::take_error_report(socket)).count() as u64
}
