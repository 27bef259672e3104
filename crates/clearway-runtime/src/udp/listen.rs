//! Watches all sockets of a wire, and decides which is read next.
//!
//! # Model
//! Sockets are numbered: first the classes' in the order of [`Class::ALL`], then the groups'. A full round asks which are
//! ready and reads those, the most urgent class first. While spinning between rounds, the socket that spoke last is
//! read without asking: in a dialogue that is where the next message comes.
//!
//! # Invariants
//! I1. In a round every ready socket gets at least one slot of the arena, so that none starves.

use std::os::fd::{AsFd, BorrowedFd};

use clearway_proto::base::{Class, GroupId, Nanos};
use socket2::Socket;

use super::readiness::{Readiness, Ready, Writing};
use super::receive::{Inbox, Members, Origin, SLOTS};
use super::syscall;
use crate::clock::StampClock;
use crate::waiting::{Source, Woken};

/// Of so many looks while spinning, one asks about all sockets; the others read the one that spoke last, which costs one
/// system call where asking and then reading costs two.
const LOOKS: u32 = 8;

/// Error reports taken at a time; bounds the work that a stranger's ICMP flood can cause.
const REPORTS_MAX: u64 = 64;

/// The sockets of a wire and what arrives at them.
#[derive(Debug)]
pub(super) struct Listener {
    sockets: Vec<Socket>,
    /// Whose the sockets behind those of the classes are.
    groups: Vec<GroupId>,
    readiness: Readiness,
    /// What a wait found, for the next round.
    found: Ready,
    last_speaker: usize,
    /// Slots offered to a socket: few while messages come singly, as each offered one costs a little.
    appetite: usize,
    looks: u32,
    stamps: StampClock,
    pub(super) members: Members,
    pub(super) inbox: Inbox,
    /// Failures that packets met, as far as the system told.
    pub(super) errors: u64,
}

impl Listener {
    /// Watches the sockets of all classes.
    pub(super) fn new(sockets: Vec<Socket>, members: Members) -> Self {
        let mut readiness = Readiness::default();
        sockets.iter().for_each(|socket| readiness.add(socket.as_fd()));
        Self {
            sockets,
            groups: Vec::new(),
            readiness,
            found: Ready::default(),
            last_speaker: 0,
            appetite: 1,
            looks: 0,
            stamps: StampClock::new(),
            members,
            inbox: Inbox::new(),
            errors: 0,
        }
    }

    /// Whether this rank is in `group`.
    pub(super) fn has_joined(&self, group: GroupId) -> bool {
        self.groups.contains(&group)
    }

    /// Watches one more socket, that of `group`; `None` when there are as many as slots.
    pub(super) fn add_group(&mut self, group: GroupId, socket: Socket) -> Option<()> {
        (self.sockets.len() < SLOTS).then(|| {
            self.readiness.add(socket.as_fd());
            self.sockets.push(socket);
            self.groups.push(group);
        })
    }

    /// The socket of `class`.
    pub(super) fn of(&self, class: Class) -> &Socket {
        &self.sockets[class.index()]
    }

    /// All sockets.
    pub(super) fn sockets(&self) -> impl Iterator<Item = BorrowedFd<'_>> {
        self.sockets.iter().map(|socket| socket.as_fd())
    }

    /// The bound of the error of receive stamps.
    pub(super) fn stamp_error(&self) -> Nanos {
        self.stamps.error()
    }

    /// Watches the socket of `class` for room while it is full.
    pub(super) fn watch(&mut self, class: Class, writing: Writing) {
        self.readiness.watch(class.index(), writing);
    }

    /// Whether a round would find something without asking.
    pub(super) fn has_found(&self) -> bool {
        self.inbox.is_waiting() || self.found.is_wire()
    }

    /// Empties the arena and fills it from the sockets that are ready; returns the classes, as bits, that have room again.
    pub(super) fn round(&mut self) -> u64 {
        let found = std::mem::take(&mut self.found);
        let ready = if found.is_wire() { found } else { self.readiness.poll(Some(Nanos::ZERO), &[]) };
        self.inbox.empty();
        let mut waiting = ready.readable.count_ones() as usize;
        for number in 0..self.sockets.len() {
            let bit = 1 << number;
            if ready.failed & bit != 0 {
                self.errors += drain_errors(self.sockets[number].as_fd());
            }
            if ready.readable & bit != 0 {
                waiting -= 1;
                let offer = self.appetite.min(self.inbox.free().saturating_sub(waiting));
                let filled = self.read(number, offer);
                self.appetite = if filled == offer { (2 * offer).clamp(1, SLOTS) } else { filled.max(1) };
            }
        }
        ready.writable
    }

    /// Reads a socket into at most `offer` free slots; returns how many it filled.
    fn read(&mut self, number: usize, offer: usize) -> usize {
        let socket = self.sockets[number].as_fd();
        let group = number.checked_sub(Class::ALL.len()).and_then(|place| self.groups.get(place));
        let origin = group.map_or(Origin::Port, |group| Origin::Group(*group));
        match self.inbox.fill(socket, origin, offer, &mut self.members, &mut self.stamps) {
            Ok(0) => 0,
            Ok(filled) => {
                self.last_speaker = number;
                filled
            }
            Err(_) => {
                self.errors += drain_errors(socket).max(1);
                0
            }
        }
    }
}

impl Source for Listener {
    fn poll(&mut self, timeout: Option<Nanos>, extra: &[BorrowedFd<'_>]) -> Woken {
        self.looks = self.looks.wrapping_add(1);
        let brief = timeout == Some(Nanos::ZERO) && extra.is_empty() && !self.looks.is_multiple_of(LOOKS);
        if brief && self.inbox.free() > 0 && self.read(self.last_speaker, 1) > 0 && self.inbox.is_waiting() {
            return Woken::new(true, 0);
        }
        self.found = self.readiness.poll(timeout, extra);
        Woken::new(self.found.is_wire(), self.found.extra)
    }
}

/// Takes error reports off a socket, so that they neither fail a later send nor keep the socket "ready".
pub(super) fn drain_errors(socket: BorrowedFd<'_>) -> u64 {
    (0..REPORTS_MAX).take_while(|_| syscall::take_error_report(socket)).count() as u64
}
