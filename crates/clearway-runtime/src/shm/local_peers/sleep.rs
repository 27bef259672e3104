//! How a rank sleeps until another one of its host has something for it: on its signal, on the
//! sockets, and on what it is given.
//!
//! # Invariants
//! I1. A rank looks for work once more after it has announced that it sleeps; see `notify`.

use std::io;
use std::os::fd::{AsFd, BorrowedFd};

use clearway_proto::base::Nanos;
use rustix::event::{PollFd, PollFlags, Timespec};

use super::LocalPeers;
use crate::waiting::{Rest, WaitSource, Wake, WakeDescriptors, WakeReason, any_of};

impl LocalPeers {
    /// Waits for the signal, the sockets and `extra`; what there is of the wire was looked for
    /// before.
    fn poll_descriptors(&mut self, timeout: Option<Nanos>, extra: &[BorrowedFd<'_>]) -> WakeReason {
        let mut fds = Vec::with_capacity(1 + self.peers.len() + extra.len());
        fds.push(PollFd::from_borrowed_fd(self.sleeper.fd(), PollFlags::IN));
        let sockets = self.peers.iter().filter_map(|peer| peer.socket.as_ref());
        fds.extend(sockets.map(|socket| PollFd::new(socket, PollFlags::IN)));
        let wire = fds.len();
        // As many as a `WakeReason` has bits for.
        fds.extend(extra.iter().take(64).map(|fd| PollFd::from_borrowed_fd(*fd, PollFlags::IN)));
        let timeout = timeout.map(|timeout| Timespec {
            tv_sec: (timeout.0 / 1_000_000_000) as _,
            tv_nsec: (timeout.0 % 1_000_000_000) as _,
        });
        // A signal ends the wait early, with nothing ready.
        if rustix::event::poll(&mut fds, timeout.as_ref()).unwrap_or(0) == 0 {
            return WakeReason::default();
        }
        let is_ready = |fd: &PollFd<'_>| !fd.revents().is_empty();
        let found = fds[wire..].iter().enumerate().filter(|(_, fd)| is_ready(fd));
        let extra = found.fold(0, |set, (i, _)| set | 1 << i);
        let (rung, spoken) = (is_ready(&fds[0]), fds[1..wire].iter().any(is_ready));
        self.after_sleep(rung, spoken);
        WakeReason::new(self.has_something(), extra)
    }

    /// Takes what a sleep was ended with.
    fn after_sleep(&mut self, rung: bool, spoken: bool) {
        if rung {
            self.sleeper.clear();
        }
        if spoken {
            self.check_connections();
        }
    }

    /// Polls as [`Source::poll`] does, together with another wire: `sleep` polls that one, with
    /// `extra` and, behind them, the descriptors that end a sleep of this one. As many as a
    /// `WakeReason` has bits for: what is lost of a peer behind them is noticed by a poll.
    pub(in crate::shm) fn poll_with(
        &mut self,
        timeout: Option<Nanos>,
        extra: &[BorrowedFd<'_>],
        sleep: &mut dyn FnMut(Option<Nanos>, &[BorrowedFd<'_>]) -> WakeReason,
    ) -> WakeReason {
        let found = self.has_something();
        if found && extra.is_empty() {
            return WakeReason::new(true, 0);
        }
        if found || timeout == Some(Nanos::ZERO) {
            let woken = sleep(Some(Nanos::ZERO), extra);
            return WakeReason::new(found || woken.wire, woken.extra_set());
        }
        self.sleeper.prepare_sleep(&self.own);
        let timeout = if self.has_something() { Some(Nanos::ZERO) } else { timeout };
        let sockets = self.peers.iter().filter_map(|peer| peer.socket.as_ref().map(AsFd::as_fd));
        let fds: Vec<BorrowedFd<'_>> =
            extra.iter().copied().chain([self.sleeper.fd()]).chain(sockets).collect();
        let woken = sleep(timeout, &fds);
        let own = woken.extra_set().checked_shr(extra.len() as u32).unwrap_or(0);
        self.after_sleep(own & 1 != 0, own > 1);
        self.sleeper.end_sleep(&self.own);
        let others = woken.extra_set() & !u64::MAX.checked_shl(extra.len() as u32).unwrap_or(0);
        WakeReason::new(woken.wire || self.has_something(), others)
    }
}

impl LocalPeers {
    /// Ends a sleep that [`Wake::rest`] prepared, if there is one.
    #[inline]
    pub(in crate::shm) fn end_sleep(&mut self) {
        if self.sleeper.is_asleep() {
            self.sleeper.clear();
            self.check_connections();
            self.sleeper.end_sleep(&self.own);
        }
    }
}

impl Wake for LocalPeers {
    fn wake_descriptors(&mut self) -> io::Result<Option<WakeDescriptors>> {
        let sockets = self.peers.iter().filter_map(|peer| peer.socket.as_ref().map(AsFd::as_fd));
        let all = [self.sleeper.fd()].into_iter().chain(sockets);
        // The one descriptor forgets a peer that is gone, which would otherwise end every sleep.
        if self.wake.is_none() {
            self.wake = Some(any_of(all)?);
        }
        WakeDescriptors::duplicate(self.wake.as_ref().map(AsFd::as_fd)).map(Some)
    }

    fn rest(&mut self) -> Rest {
        self.sleeper.prepare_sleep(&self.own);
        // Looked for again, after the epoch: what was shown before this cannot ring any more.
        if self.has_something() {
            self.sleeper.end_sleep(&self.own);
            return Rest::Again;
        }
        Rest::Descriptor
    }
}

impl WaitSource for LocalPeers {
    fn poll_ready(&mut self, timeout: Option<Nanos>, extra: &[BorrowedFd<'_>]) -> WakeReason {
        let found = self.has_something();
        if timeout == Some(Nanos::ZERO) && extra.is_empty() {
            return WakeReason::new(found, 0);
        }
        if found || timeout == Some(Nanos::ZERO) {
            let woken = self.poll_descriptors(Some(Nanos::ZERO), extra);
            return WakeReason::new(found || woken.wire, woken.extra_set());
        }
        self.sleeper.prepare_sleep(&self.own);
        // Looked for again, after the epoch: what was shown before this cannot ring any more.
        let timeout = if self.has_something() { Some(Nanos::ZERO) } else { timeout };
        let woken = self.poll_descriptors(timeout, extra);
        self.sleeper.end_sleep(&self.own);
        WakeReason::new(woken.wire || self.has_something(), woken.extra_set())
    }
}
