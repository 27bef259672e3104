//! Puts data and then updates a signal.
//!
//! # Source
//! OpenSHMEM 1.6, "Signaling Operations". Without data the signal is still sent.

#![allow(clippy::too_many_arguments)] // the standard's functions have as many

use std::sync::atomic::{AtomicU64, Ordering};

use crate::address::{Caller, Symmetric};
use crate::constants::{SIGNAL_ADD, SIGNAL_SET};
use crate::context::Context;
use crate::far::Change;
use crate::fault::Fault;
use crate::job::{self, Reach};
use crate::word::{Integer, Word};
use crate::{rma, wait};

/// Copies, and then sets the signal or adds to it (`shmem_put_signal`). A PE that sees the signal
/// sees the data.
///
/// # Errors
/// As [`rma::put`], for both objects; another operation than set and add.
#[inline]
pub fn put(
    context: Context,
    dest: Symmetric,
    source: Caller,
    bytes: usize,
    signal: Symmetric,
    value: u64,
    operation: i32,
    pe: i32,
) -> Result<(), Fault> {
    let word = job::get()?.word::<u64>(context, signal, pe, "sig_addr")?;
    if !matches!(operation, SIGNAL_SET | SIGNAL_ADD) {
        return Err(Fault::value(
            "sig_op",
            operation.into(),
            "use SHMEM_SIGNAL_SET or SHMEM_SIGNAL_ADD",
        ));
    }
    rma::put(context, dest, source, bytes, pe)?;
    send(word, if operation == SIGNAL_SET { Change::Set(value) } else { Change::Add(value) });
    Ok(())
}

/// Copies and signals as [`put`], complete after a quiet (`shmem_put_signal_nbi`).
///
/// # Errors
/// As [`put`].
#[inline]
pub fn put_nbi(
    context: Context,
    dest: Symmetric,
    source: Caller,
    bytes: usize,
    signal: Symmetric,
    value: u64,
    operation: i32,
    pe: i32,
) -> Result<(), Fault> {
    put(context, dest, source, bytes, signal, value, operation, pe)
}

/// Changes a signal.
fn send(signal: Reach<&AtomicU64>, change: Change<u64>) {
    match (signal, change) {
        (Reach::Near(word), Change::Set(value)) => u64::store(word, value, Ordering::Release),
        (Reach::Near(word), Change::Add(value)) => {
            u64::fetch_add(word, value);
        }
        (Reach::Far(object), change) => object.change(change),
        (Reach::Near(_) | Reach::Nothing, _) => {}
    }
}

/// Adds to a signal of PE `pe` (`shmem_signal_add`).
///
/// # Errors
/// No such PE, or no aligned word of symmetric memory.
#[inline]
pub fn add(context: Context, signal: Symmetric, value: u64, pe: i32) -> Result<(), Fault> {
    send(job::get()?.word::<u64>(context, signal, pe, "sig_addr")?, Change::Add(value));
    Ok(())
}

/// Sets a signal of PE `pe` (`shmem_signal_set`).
///
/// # Errors
/// As [`add`].
#[inline]
pub fn set(context: Context, signal: Symmetric, value: u64, pe: i32) -> Result<(), Fault> {
    send(job::get()?.word::<u64>(context, signal, pe, "sig_addr")?, Change::Set(value));
    Ok(())
}

/// Returns this PE's signal (`shmem_signal_fetch`).
///
/// # Errors
/// No aligned word of symmetric memory.
#[inline]
pub fn fetch(signal: Symmetric) -> Result<u64, Fault> {
    Ok(job::get()?.own_word::<u64>(signal, "sig_addr")?.load(Ordering::Acquire))
}

/// Waits for this PE's signal, and returns the value that ended the wait
/// (`shmem_signal_wait_until`).
///
/// # Errors
/// As [`fetch`], or no such comparison.
pub fn wait_until(signal: Symmetric, comparison: i32, value: u64) -> Result<u64, Fault> {
    wait::until_value(signal, comparison, value)
}
