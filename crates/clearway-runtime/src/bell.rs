//! Wakes a thread that waits for descriptors when another thread has something for it.
//!
//! # Not here
//! What the other thread has: the bell carries nothing, and several rings may be heard as one.

use std::io::{self, Read, Write};
use std::os::fd::{AsFd, BorrowedFd};
use std::os::unix::net::UnixStream;

/// Is rung by any number of threads and heard by one. Its descriptor can be read when the bell was rung.
#[derive(Debug)]
pub struct Bell {
    heard: UnixStream,
    rung: UnixStream,
}

impl Bell {
    /// Makes one that was not rung.
    ///
    /// # Errors
    /// The system has no room for another descriptor.
    pub fn new() -> io::Result<Self> {
        let (heard, rung) = UnixStream::pair()?;
        heard.set_nonblocking(true)?;
        rung.set_nonblocking(true)?;
        Ok(Self { heard, rung })
    }

    /// Wakes who waits. Call it when what there is to do can be seen.
    pub fn ring(&self) {
        // A bell that is full is heard anyway.
        let _ = (&self.rung).write(&[0]);
    }

    /// Takes all rings so far. Call it before looking for what there is to do, or a ring may be lost.
    pub fn hush(&self) {
        let mut rings = [0; 64];
        while (&self.heard).read(&mut rings).is_ok_and(|count| count > 0) {}
    }
}

impl AsFd for Bell {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.heard.as_fd()
    }
}
