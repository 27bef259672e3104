//! Calls into the PMIx library, and the take-over of an inherited descriptor: the only unsafe code of this room.
//!
//! # Invariants
//! I1. No pointer outlives the call that it was made for.
//!
//! # Not here
//! When what is called, and how long it may take (`pmix`).

#![allow(unsafe_code)]

use std::io;
use std::os::fd::{AsRawFd, BorrowedFd, OwnedFd, RawFd};

use rustix::io::{FdFlags, fcntl_dupfd_cloexec, fcntl_setfd};

/// Takes over a descriptor that a launcher left open and named in the environment: the result, and the original from now
/// on, are closed in programs that this process starts.
pub(super) fn adopt(number: u32) -> io::Result<OwnedFd> {
    /// Copies stay clear of the three standard descriptors.
    const ABOVE_STANDARD: RawFd = 3;
    let number = RawFd::try_from(number).map_err(|_| io::Error::from(io::ErrorKind::InvalidInput))?;
    // SAFETY: the descriptor is only used for two calls of fcntl here, which fail with EBADF when it is not open. It is
    // neither closed nor kept, so nobody else's descriptor can be harmed if the environment names a wrong one.
    let inherited = unsafe { BorrowedFd::borrow_raw(number) };
    fcntl_setfd(inherited, FdFlags::CLOEXEC)?;
    let own = fcntl_dupfd_cloexec(inherited, ABOVE_STANDARD)?;
    debug_assert_ne!(own.as_raw_fd(), number);
    Ok(own)
}
