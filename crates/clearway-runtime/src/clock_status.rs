//! What the kernel knows of its own clock: whether something synchronises it, and how well.
//!
//! # Source
//! `adjtimex(2)`.

#![allow(unsafe_code)]

use std::io;

use clearway_proto::base::Nanos;

/// How true the clock of this host is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ClockStatus {
    /// Whether a program keeps the clock true.
    pub is_synchronised: bool,
    /// The error that this program estimates.
    pub error: Nanos,
    /// The most that the error can be.
    pub error_max: Nanos,
}

/// Asks the kernel, which changes nothing.
///
/// # Errors
/// The system has no such call, or forbids it.
pub fn clock_status() -> io::Result<ClockStatus> {
    // SAFETY: all fields are numbers, for which zeros are values; no mode asks for a change.
    let mut status: libc::timex = unsafe { std::mem::zeroed() };
    // SAFETY: the kernel fills the struct, which outlives the call.
    let state = unsafe { libc::adjtimex(&raw mut status) };
    if state < 0 {
        return Err(io::Error::last_os_error());
    }
    Ok(read(state, &status))
}

fn read(state: i32, status: &libc::timex) -> ClockStatus {
    let is_synchronised = state != libc::TIME_ERROR && status.status & libc::STA_UNSYNC == 0;
    let micros = |error: libc::c_long| Nanos::from_micros(u64::try_from(error).unwrap_or(u64::MAX));
    ClockStatus {
        is_synchronised,
        error: micros(status.esterror),
        error_max: micros(status.maxerror),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn read__a_clock_is_true_when_the_kernel_says_neither_error_nor_unsynchronised() {
        // SAFETY: all fields are numbers.
        let mut status: libc::timex = unsafe { std::mem::zeroed() };
        (status.esterror, status.maxerror) = (7, 1_000);
        let good = read(libc::TIME_OK, &status);
        let (error, error_max) = (Nanos::from_micros(7), Nanos::from_millis(1));
        assert_eq!(good, ClockStatus { is_synchronised: true, error, error_max });
        assert!(!read(libc::TIME_ERROR, &status).is_synchronised);
        status.status = libc::STA_UNSYNC;
        assert!(!read(libc::TIME_OK, &status).is_synchronised);
    }
}
