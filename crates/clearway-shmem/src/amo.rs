//! Atomic operations on words of other PEs, by the calling thread's processor.
//!
//! # Model
//! All PEs of the host change a word by the same instructions, so all atomic operations of the
//! library are atomic to each other, in whichever context or team. The non-blocking forms are
//! complete when they return.
//!
//! # Source
//! OpenSHMEM 1.5, "Atomic Memory Operations".

use std::sync::atomic::Ordering;

use crate::address::{Caller, Symmetric};
use crate::context::Context;
use crate::fault::Fault;
use crate::job;
use crate::word::{Integer, Word};

/// Finds the word.
#[inline]
fn word<T: Word>(
    context: Context,
    at: Symmetric,
    pe: i32,
    argument: &'static str,
) -> Result<&'static T::Atomic, Fault> {
    job::get()?.word::<T>(context, at, pe, argument)
}

/// `shmem_atomic_fetch`.
///
/// # Errors
/// No such PE, or no aligned word of symmetric memory.
#[inline]
pub fn fetch<T: Word>(context: Context, source: Symmetric, pe: i32) -> Result<T, Fault> {
    Ok(T::load(word::<T>(context, source, pe, "source")?, Ordering::Acquire))
}

/// `shmem_atomic_set`.
///
/// # Errors
/// As [`fetch`].
#[inline]
pub fn set<T: Word>(context: Context, dest: Symmetric, value: T, pe: i32) -> Result<(), Fault> {
    T::store(word::<T>(context, dest, pe, "dest")?, value, Ordering::Release);
    Ok(())
}

/// `shmem_atomic_swap`.
///
/// # Errors
/// As [`fetch`].
#[inline]
pub fn swap<T: Word>(context: Context, dest: Symmetric, value: T, pe: i32) -> Result<T, Fault> {
    Ok(T::swap(word::<T>(context, dest, pe, "dest")?, value))
}

/// `shmem_atomic_compare_swap`.
///
/// # Errors
/// As [`fetch`].
#[inline]
pub fn compare_swap<T: Word>(
    context: Context,
    dest: Symmetric,
    wanted: T,
    value: T,
    pe: i32,
) -> Result<T, Fault> {
    Ok(T::compare_swap(word::<T>(context, dest, pe, "dest")?, wanted, value))
}

macro_rules! fetching {
    ($($fetch:ident, $fetch_nbi:ident, $plain:ident, $of:literal);*) => { $(
        #[doc = concat!("`shmem_atomic_fetch_", $of, "`.")]
        ///
        /// # Errors
        /// As [`fetch`].
        #[inline]
        pub fn $fetch<T: Integer>(context: Context, dest: Symmetric, value: T, pe: i32) -> Result<T, Fault> {
            Ok(T::$fetch(word::<T>(context, dest, pe, "dest")?, value))
        }

        #[doc = concat!("`shmem_atomic_fetch_", $of, "_nbi`.")]
        ///
        /// # Errors
        /// As [`fetch`].
        #[inline]
        pub fn $fetch_nbi<T: Integer>(
            context: Context,
            fetch: Caller,
            dest: Symmetric,
            value: T,
            pe: i32,
        ) -> Result<(), Fault> {
            fetch.write(0, $fetch(context, dest, value, pe)?);
            Ok(())
        }

        #[doc = concat!("`shmem_atomic_", $of, "`.")]
        ///
        /// # Errors
        /// As [`fetch`].
        #[inline]
        pub fn $plain<T: Integer>(context: Context, dest: Symmetric, value: T, pe: i32) -> Result<(), Fault> {
            T::$fetch(word::<T>(context, dest, pe, "dest")?, value);
            Ok(())
        }
    )* };
}

fetching!(fetch_add, fetch_add_nbi, add, "add"; fetch_and, fetch_and_nbi, and, "and"; fetch_or, fetch_or_nbi, or, "or";
    fetch_xor, fetch_xor_nbi, xor, "xor");

/// `shmem_atomic_fetch_nbi`.
///
/// # Errors
/// As [`fetch()`].
#[inline]
pub fn fetch_nbi<T: Word>(
    context: Context,
    into: Caller,
    source: Symmetric,
    pe: i32,
) -> Result<(), Fault> {
    into.write(0, fetch::<T>(context, source, pe)?);
    Ok(())
}

/// `shmem_atomic_swap_nbi`.
///
/// # Errors
/// As [`fetch()`].
#[inline]
pub fn swap_nbi<T: Word>(
    context: Context,
    into: Caller,
    dest: Symmetric,
    value: T,
    pe: i32,
) -> Result<(), Fault> {
    into.write(0, swap(context, dest, value, pe)?);
    Ok(())
}

/// `shmem_atomic_compare_swap_nbi`.
///
/// # Errors
/// As [`fetch()`].
#[inline]
pub fn compare_swap_nbi<T: Word>(
    context: Context,
    into: Caller,
    dest: Symmetric,
    wanted: T,
    value: T,
    pe: i32,
) -> Result<(), Fault> {
    into.write(0, compare_swap(context, dest, wanted, value, pe)?);
    Ok(())
}
