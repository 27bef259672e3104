//! Turns received bytes into arrivals: cuts what the kernel joined, keeps strangers out, hands out
//! bodies in place.
//!
//! # Model
//! The arena has [`SLOTS`] slots for each rail. One system call fills some; a filled slot holds one
//! datagram, or several of one length that the kernel joined (`UDP_GRO`). All of them are checked
//! and listed at once, and given to the engine over one or more polls; the arena is emptied only
//! when all were given. Until then more may be received into its free slots.
//!
//! # Invariants
//! I1. A body given in one poll is not overwritten before the next.
//! I2. A datagram of another session, of no rank, or from another address than its rank's costs one
//!     check and one count; with keys one that was not sealed for this end costs the opening as
//!     well.
//! I3. Own multicast messages are dropped without being counted: they are neither arrivals nor
//!     strangers.

use std::io;
use std::net::SocketAddrV4;
use std::ops::Range;
use std::os::fd::BorrowedFd;

use clearway_proto::base::{Class, Dscp, GroupId, LocalNs, Rank};
use clearway_proto::wire::{Arrival, Datagram, PathId, RegionId, Span, Stamp};

use super::frame::{self, SealedFrame};
use super::moves::PeerMove;
use super::sealer::DatagramSealer;
use super::syscall::{ReceiveCall, ReceiveSlot};
use crate::RuntimeError;
use crate::clock::{self, StampClock};
use crate::keys::TAG_LENGTH;

/// Slots of the arena for each rail: 1 MiB, up to 1,024 messages of one system call.
const SLOTS: usize = 16;

/// The two congestion bits of a TOS byte that say "congestion experienced" (RFC 3168).
const CONGESTION_EXPERIENCED: u8 = 0b11;

/// Which kind of socket a datagram came through.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum SocketOrigin {
    /// This rank's port on a rail.
    Port(PathId),
    /// A group's socket, which also hears what this rank sends.
    Group(GroupId),
}

/// The members of this job.
#[derive(Debug)]
pub(super) struct JobAddresses {
    /// This end.
    pub(super) rank: Rank,
    /// The job.
    pub(super) session: u64,
    /// Everyone's address by rail and rank.
    pub(super) rails: Vec<Vec<SocketAddrV4>>,
    /// Seals and opens, if the job has keys.
    pub(super) guard: Option<DatagramSealer>,
}

/// What a datagram says to be.
#[derive(Clone, Debug, PartialEq, Eq)]
struct DatagramClaim {
    from: Rank,
    /// Where the engine's header lies in the datagram.
    head: Range<usize>,
    /// Where the body ends.
    end: usize,
    /// Present on a wire with keys, which takes nothing else.
    sealed: Option<SealedFrame>,
}

/// What a datagram is to this end.
#[derive(Clone, Debug, PartialEq, Eq)]
enum DatagramVerdict {
    Message(DatagramClaim),
    Own,
    Stranger,
}

impl SocketOrigin {
    /// Returns the rail: groups live on the first.
    pub(super) const fn path(self) -> PathId {
        match self {
            Self::Port(rail) => rail,
            Self::Group(_) => PathId(0),
        }
    }
}

impl JobAddresses {
    /// Returns where a rank is on a rail, if both exist.
    pub(super) fn address(&self, rank: Rank, path: PathId) -> Option<SocketAddrV4> {
        self.rails.get(usize::from(path.0))?.get(rank.index()).copied()
    }

    /// Takes `to` for what a rank is from now on; where there are keys they are new.
    pub(super) fn follow(&mut self, to: &PeerMove) -> Result<(), RuntimeError> {
        let ranks = self.rails.first().map_or(0, Vec::len);
        let first = self.rails.first_mut().and_then(|rail| rail.get_mut(to.rank.index()));
        let place = first.ok_or(RuntimeError::RankOutside { rank: to.rank, ranks })?;
        match (&mut self.guard, &to.card) {
            (Some(guard), Some((epoch, card))) => guard.renew_peer(to.rank, *epoch, card)?,
            (Some(_), None) => return Err(RuntimeError::NoKeys),
            (None, _) => {}
        }
        *place = to.address;
        Ok(())
    }

    /// Judges a datagram; a sealed one is opened in place.
    fn judge(
        &mut self,
        datagram: &mut [u8],
        from: SocketAddrV4,
        origin: SocketOrigin,
    ) -> DatagramVerdict {
        let path = origin.path();
        let claim =
            self.read(datagram).filter(|claim| self.address(claim.from, path) == Some(from));
        let Some(claim) = claim else { return DatagramVerdict::Stranger };
        if claim.from == self.rank && matches!(origin, SocketOrigin::Group(_)) {
            return DatagramVerdict::Own;
        }
        let opened = match (&mut self.guard, &claim.sealed) {
            (Some(guard), Some(sealed)) => guard.open(sealed, datagram, origin),
            _ => Some(()),
        };
        opened.map_or(DatagramVerdict::Stranger, |()| DatagramVerdict::Message(claim))
    }

    fn read(&self, datagram: &[u8]) -> Option<DatagramClaim> {
        if self.guard.is_none() {
            let frame = frame::parse(datagram, self.session)?;
            let head = frame::FRAME_LENGTH..frame.body_start;
            return Some(DatagramClaim {
                from: frame.from,
                head,
                end: datagram.len(),
                sealed: None,
            });
        }
        let sealed = SealedFrame::parse(datagram, self.session)?;
        let head = frame::SEALED_LENGTH..sealed.body_start();
        Some(DatagramClaim {
            from: sealed.from,
            head,
            end: datagram.len().checked_sub(TAG_LENGTH)?,
            sealed: Some(sealed),
        })
    }
}

/// A message in the arena.
#[derive(Clone, Debug)]
struct QueuedMessage {
    from: Rank,
    path: PathId,
    tos: u8,
    at: LocalNs,
    head: Range<usize>,
    body: Range<usize>,
}

/// The receiving side of a wire.
#[derive(Debug)]
pub(super) struct ReceiveQueue {
    call: ReceiveCall,
    pub(super) slots: usize,
    listed: Vec<QueuedMessage>,
    given: usize,
    filled: usize,
    /// Datagrams that were not of this job.
    pub(super) strangers: u64,
    /// Bytes that came, of whomever.
    pub(super) taken: u64,
    /// Messages given to the engine.
    pub(super) received: u64,
}

impl ReceiveQueue {
    /// Returns how many slots there are with `rails` rails.
    pub(super) const fn slots_of(rails: usize) -> usize {
        SLOTS * rails
    }

    pub(super) fn new(rails: usize) -> Self {
        let slots = Self::slots_of(rails);
        Self {
            call: ReceiveCall::new(slots),
            slots,
            listed: Vec::with_capacity(slots * 64),
            given: 0,
            filled: 0,
            strangers: 0,
            taken: 0,
            received: 0,
        }
    }

    /// Returns the arena: what spans of [`RegionId::RECEIVE`] point into.
    pub(super) fn arena(&self) -> &[u8] {
        self.call.arena()
    }

    /// Returns whether messages wait to be given.
    pub(super) fn is_waiting(&self) -> bool {
        self.given < self.listed.len()
    }

    /// Returns how many slots hold none of the messages that were received last.
    pub(super) fn free(&self) -> usize {
        self.slots - self.filled
    }

    /// Forgets what was given, so that the arena can be filled again.
    pub(super) fn empty(&mut self) {
        self.listed.clear();
        self.given = 0;
        self.filled = 0;
    }

    /// Receives from `socket` into at most `offer` free slots; returns how many were filled.
    ///
    /// # Errors
    /// What the kernel said, other than that nothing is there.
    pub(super) fn fill(
        &mut self,
        socket: BorrowedFd<'_>,
        origin: SocketOrigin,
        offer: usize,
        members: &mut JobAddresses,
        stamps: &mut StampClock,
    ) -> io::Result<usize> {
        let slots = self.filled..(self.filled + offer).min(self.slots);
        let filled = match self.call.receive(socket, slots) {
            Ok(filled) => filled,
            Err(error)
                if matches!(
                    error.kind(),
                    io::ErrorKind::WouldBlock | io::ErrorKind::Interrupted
                ) =>
            {
                return Ok(0);
            }
            Err(error) => return Err(error),
        };
        let now = clock::now();
        stamps.refresh(now);
        for i in self.filled..self.filled + filled {
            let slot = self.call.slot(i);
            let at = slot.control.wall_ns.map_or(now, |wall| stamps.local(wall, now));
            self.list(&slot, origin, at, members);
        }
        self.filled += filled;
        Ok(filled)
    }

    /// Lists the messages of one slot.
    fn list(
        &mut self,
        slot: &ReceiveSlot,
        origin: SocketOrigin,
        at: LocalNs,
        members: &mut JobAddresses,
    ) {
        self.taken += slot.length as u64;
        let step = slot.control.segment.unwrap_or(slot.length).max(1);
        let end = slot.start + slot.length;
        for start in (slot.start..end).step_by(step) {
            let datagram = start..(start + step).min(end);
            match members.judge(&mut self.call.arena_mut()[datagram], slot.from, origin) {
                DatagramVerdict::Message(claim) => self.listed.push(QueuedMessage {
                    from: claim.from,
                    path: origin.path(),
                    tos: slot.control.tos,
                    at,
                    head: start + claim.head.start..start + claim.head.end,
                    body: start + claim.head.end..start + claim.end,
                }),
                DatagramVerdict::Own => {}
                DatagramVerdict::Stranger => self.strangers += 1,
            }
        }
        if slot.length == 0 {
            self.strangers += 1;
        }
    }

    /// Returns how many entries and bytes the memory for arrivals holds.
    #[cfg(test)]
    pub(super) fn capacities(&self) -> [usize; 2] {
        [self.listed.capacity(), self.call.arena().len()]
    }

    /// Gives at most `limit` waiting messages to `sink`; returns how many.
    pub(super) fn give(&mut self, limit: usize, sink: &mut dyn FnMut(Arrival<'_>)) -> usize {
        let end = self.listed.len().min(self.given + limit);
        for listed in &self.listed[self.given..end] {
            let body = Span {
                region: RegionId::RECEIVE,
                offset: listed.body.start as u64,
                length: listed.body.len() as u32,
            };
            sink(Arrival::Datagram(Datagram {
                from: listed.from,
                path: listed.path,
                class: Class::from_dscp(Dscp::from_tos(listed.tos)),
                congestion_marked: listed.tos & CONGESTION_EXPERIENCED == CONGESTION_EXPERIENCED,
                at: Stamp::Taken(listed.at),
                head: &self.call.arena()[listed.head.clone()],
                body,
            }));
        }
        let count = end - self.given;
        self.given = end;
        self.received += count as u64;
        count
    }
}

#[cfg(test)]
mod tests;
