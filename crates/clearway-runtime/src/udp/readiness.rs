//! Asks the kernel which of a wire's sockets can be read or written.
//!
//! # Model
//! One epoll instance holds all sockets by number. Asking it costs one system call however many sockets there are, and
//! far less than reading an empty one. A socket is watched for writing only while its class is full.

use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use rustix::event::{Timespec, epoll};

/// Sockets one instance can hold: their numbers are bits of a u64.
pub(super) const SOCKETS_MAX: usize = 64;

/// Sockets by number, as bits.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Ready {
    /// Have something to read, or an error to be read.
    pub(super) readable: u64,
    /// Were full and have room.
    pub(super) writable: u64,
    /// Have reports of what packets met.
    pub(super) failed: u64,
}

impl Ready {
    pub(super) fn is_empty(self) -> bool {
        self == Self::default()
    }
}

/// The sockets of a wire.
pub(super) struct Readiness {
    epoll: OwnedFd,
    events: Vec<epoll::Event>,
}

impl std::fmt::Debug for Readiness {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Readiness").field("epoll", &self.epoll).finish_non_exhaustive()
    }
}

impl Readiness {
    pub(super) fn new() -> io::Result<Self> {
        let none = epoll::Event { flags: epoll::EventFlags::empty(), data: epoll::EventData::new_u64(0) };
        let epoll = epoll::create(epoll::CreateFlags::CLOEXEC)?;
        Ok(Self { epoll, events: vec![none; 16] })
    }

    /// The instance itself, readable when a socket is ready.
    pub(super) fn as_fd(&self) -> BorrowedFd<'_> {
        self.epoll.as_fd()
    }

    /// Watches `socket` for reading.
    pub(super) fn add(&self, number: usize, socket: BorrowedFd<'_>) -> io::Result<()> {
        let data = epoll::EventData::new_u64(number as u64);
        Ok(epoll::add(&self.epoll, socket, data, epoll::EventFlags::IN)?)
    }

    /// Watches `socket` for reading, and for writing as well if its class is full.
    pub(super) fn watch(&self, number: usize, socket: BorrowedFd<'_>, writing: Writing) {
        let flags = match writing {
            Writing::Watched => epoll::EventFlags::IN | epoll::EventFlags::OUT,
            Writing::Ignored => epoll::EventFlags::IN,
        };
        let data = epoll::EventData::new_u64(number as u64);
        let changed = epoll::modify(&self.epoll, socket, data, flags);
        debug_assert!(changed.is_ok(), "a socket of this wire is in its epoll instance");
    }

    /// Which sockets are ready now. Never blocks.
    pub(super) fn poll(&mut self) -> Ready {
        let now = Timespec { tv_sec: 0, tv_nsec: 0 };
        let mut ready = Ready::default();
        let Ok(count) = epoll::wait(&self.epoll, self.events.as_mut_slice(), Some(&now)) else { return ready };
        for event in &self.events[..count] {
            let (flags, data) = (event.flags, event.data);
            let bit = 1 << data.u64();
            for (flag, set) in [
                (epoll::EventFlags::IN, &mut ready.readable),
                (epoll::EventFlags::OUT, &mut ready.writable),
                (epoll::EventFlags::ERR, &mut ready.failed),
            ] {
                if flags.contains(flag) {
                    *set |= bit;
                }
            }
        }
        ready
    }
}

/// Whether a socket is watched for writing.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Writing {
    Watched,
    Ignored,
}
