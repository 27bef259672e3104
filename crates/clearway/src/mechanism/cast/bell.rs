//! Wakes who waits for descriptors when another thread has something for it.

use std::io::{Read, Write};
use std::os::fd::{AsFd, BorrowedFd};
use std::os::unix::net::UnixStream;

use anyhow::{Context, Result};

/// Rung by some, heard by one.
#[derive(Debug)]
pub(super) struct Bell {
    heard: UnixStream,
    rung: UnixStream,
}

impl Bell {
    pub(super) fn new() -> Result<Self> {
        let bell = || -> std::io::Result<Self> {
            let (heard, rung) = UnixStream::pair()?;
            heard.set_nonblocking(true)?;
            rung.set_nonblocking(true)?;
            Ok(Self { heard, rung })
        };
        bell().context("a pair of sockets to wake a thread")
    }

    /// There is something. A bell that is full is heard anyway.
    pub(super) fn ring(&self) {
        let _ = (&self.rung).write(&[0]);
    }

    /// What is said before the next ring has been heard.
    pub(super) fn hush(&self) {
        let mut rings = [0; 64];
        while (&self.heard).read(&mut rings).is_ok_and(|count| count > 0) {}
    }

    /// Can be read when it was rung.
    pub(super) fn descriptor(&self) -> BorrowedFd<'_> {
        self.heard.as_fd()
    }
}
