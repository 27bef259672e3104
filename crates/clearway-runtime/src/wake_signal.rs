//! Wakes a thread that waits for descriptors when another thread, or another process, has something
//! for it.
//!
//! # Model
//! An event counter of the kernel. Rings add to it, and it can be read as long as it is not zero.
//! It has no second end that another process could close, so a ring raises no SIGPIPE.
//!
//! # Source
//! `eventfd(2)`.
//!
//! # Not here
//! The work itself: the signal carries no data, and several rings may be heard as one. When another
//! process need not ring (`shm::notify`).

use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use rustix::event::EventfdFlags;

/// Is raised by any number of threads and heard by one. Its descriptor can be read when the signal
/// was raised.
#[derive(Debug)]
pub struct WakeSignal(OwnedFd);

impl WakeSignal {
    /// Makes one that was not raised.
    ///
    /// # Errors
    /// The system has no room for another descriptor.
    pub fn new() -> io::Result<Self> {
        Ok(Self(rustix::event::eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)?))
    }

    /// Wakes the thread that waits. Call it when the work for that thread can be seen.
    pub fn raise(&self) {
        // A counter that is full is heard anyway.
        let _ = rustix::io::write(&self.0, &1u64.to_ne_bytes());
    }

    /// Takes all rings so far. Call it before looking for work: a ring between a look and this call
    /// is lost.
    pub fn clear(&self) {
        let mut count = [0; 8];
        // Empty is the only way to fail, and then there is nothing to take.
        let _ = rustix::io::read(&self.0, &mut count);
    }
}

impl AsFd for WakeSignal {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }
}

/// The signal of another process, from a descriptor that it sent.
impl From<OwnedFd> for WakeSignal {
    fn from(counter: OwnedFd) -> Self {
        Self(counter)
    }
}

#[cfg(test)]
mod tests {
    use rustix::event::{PollFd, PollFlags, Timespec};

    use super::*;

    fn is_raised(wake_signal: &WakeSignal) -> bool {
        let mut fds = [PollFd::new(wake_signal, PollFlags::IN)];
        rustix::event::poll(&mut fds, Some(&Timespec { tv_sec: 0, tv_nsec: 0 })).expect("poll") == 1
    }

    #[test]
    fn raise__is_heard_until_it_is_taken_and_several_are_one() {
        let wake_signal = WakeSignal::new().expect("a counter");
        let other =
            WakeSignal::from(wake_signal.as_fd().try_clone_to_owned().expect("a descriptor"));
        assert!(!is_raised(&wake_signal));
        wake_signal.raise();
        other.raise();
        assert!(is_raised(&wake_signal) && is_raised(&other));
        wake_signal.clear();
        assert!(!is_raised(&wake_signal) && !is_raised(&other));
        wake_signal.clear();
    }
}
