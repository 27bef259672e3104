//! Sends over sockets without SIGPIPE, the signal that a write to a closed connection raises.
//!
//! # Invariants
//! I1. A peer that is gone is an error of the call. The signal ends a program that does not ignore
//!     it, and only a program whose `main` is
//!     Rust's ignores it from the start; a library cannot change that for its program.
//!
//! # Not here
//! Pipes, for which the kernel has no such flag (`calls::without_sigpipe`). The PMIx library, which
//! writes by itself.

use std::io::{self, ErrorKind, Write};
use std::os::fd::AsFd;
use std::os::unix::net::UnixStream;

use rustix::net::SendFlags;

use super::calls;

/// Sends a first part of `bytes` and returns its length.
pub(super) fn send(socket: impl AsFd, bytes: &[u8]) -> io::Result<usize> {
    Ok(rustix::net::send(socket, bytes, SendFlags::NOSIGNAL)?)
}

/// Sends all of `bytes`.
pub(crate) fn send_all(socket: impl AsFd, mut bytes: &[u8]) -> io::Result<()> {
    let socket = socket.as_fd();
    while !bytes.is_empty() {
        match send(socket, bytes) {
            Ok(0) => return Err(ErrorKind::WriteZero.into()),
            Ok(count) => bytes = bytes.get(count..).unwrap_or_default(),
            Err(error) if error.kind() == ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    }
    Ok(())
}

/// Writes one line to standard error. A reader that is gone is no failure: nothing depends on it.
pub(super) fn say_line(line: &str) {
    let _ = calls::without_sigpipe(|| writeln!(io::stderr(), "{line}"));
}

/// Writes to the standard input of a [`RemoteProcess`](super::RemoteProcess), whose process reads
/// the end of it when this is dropped.
#[derive(Debug)]
pub struct RemoteInput(pub(super) UnixStream);

impl Write for RemoteInput {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        send(&self.0, bytes)
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}
