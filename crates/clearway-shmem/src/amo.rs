//! Atomic operations on words of other PEs, by the calling thread's processor.
//!
//! # Model
//! All PEs of the host change a word by the same instructions, so all atomic operations of the
//! library are atomic to each other, in whichever context or team. The non-blocking forms are
//! complete when they return. On a PE of another host its own processor does the same, when it
//! applies the record.
//!
//! # Source
//! OpenSHMEM 1.5, "Atomic Memory Operations".

use std::sync::atomic::Ordering;

use crate::address::{Caller, Symmetric};
use crate::context::Context;
use crate::far::Change;
use crate::fault::{Fault, Wrong};
use crate::job::{self, Reach};
use crate::queue::element::WordStep;
use crate::session;
use crate::word::{Integer, Word};

/// Finds the word.
#[inline]
fn word<T: Word>(
    context: Context,
    at: Symmetric,
    pe: i32,
    argument: &'static str,
) -> Result<Reach<&'static T::Atomic>, Fault> {
    job::get()?.word::<T>(context, at, pe, argument)
}

/// Changes a word: by `near` in this process's memory, else by the record of `change`.
#[inline]
fn alter<T: Word>(
    context: Context,
    at: Symmetric,
    pe: i32,
    change: Change<T>,
    near: impl FnOnce(&T::Atomic),
) -> Result<(), Fault> {
    match word::<T>(context, at, pe, "dest")? {
        Reach::Near(word) => near(word),
        Reach::Far(object) => object.change(change),
        Reach::Nothing => {}
    }
    Ok(())
}

/// The same, and gives what was there.
#[inline]
fn replace<T: Word>(
    context: Context,
    at: Symmetric,
    pe: i32,
    change: Change<T>,
    near: impl FnOnce(&T::Atomic) -> T,
) -> Result<T, Fault> {
    match word::<T>(context, at, pe, "dest")? {
        Reach::Near(word) => Ok(near(word)),
        Reach::Far(object) => Ok(object.fetch(change)),
        Reach::Nothing => Err(Wrong::NotInitialized.into()),
    }
}

/// The same, and leaves what was there in `fetch`, when the operation is complete.
#[inline]
fn replace_nbi<T: Word>(
    context: Context,
    fetch: Caller,
    at: Symmetric,
    pe: i32,
    change: Change<T>,
    near: impl FnOnce(&T::Atomic) -> T,
) -> Result<(), Fault> {
    match word::<T>(context, at, pe, "dest")? {
        Reach::Near(word) => fetch.write(0, near(word)),
        Reach::Far(object) => object.fetch_nbi(change, fetch),
        Reach::Nothing => {}
    }
    Ok(())
}

/// `shmem_atomic_fetch`.
///
/// # Errors
/// No such PE, or no aligned word of symmetric memory.
#[inline]
pub fn fetch<T: Word>(context: Context, source: Symmetric, pe: i32) -> Result<T, Fault> {
    replace(context, source, pe, Change::Fetch, |word| T::load(word, Ordering::Acquire))
}

/// `shmem_atomic_set`.
///
/// # Errors
/// As [`fetch`].
#[inline]
pub fn set<T: Word>(context: Context, dest: Symmetric, value: T, pe: i32) -> Result<(), Fault> {
    if session::gather(job::get()?, context, WordStep::Set, dest, value, pe)? {
        return Ok(());
    }
    alter(context, dest, pe, Change::Set(value), |word| T::store(word, value, Ordering::Release))
}

/// `shmem_atomic_swap`.
///
/// # Errors
/// As [`fetch`].
#[inline]
pub fn swap<T: Word>(context: Context, dest: Symmetric, value: T, pe: i32) -> Result<T, Fault> {
    replace(context, dest, pe, Change::Swap(value), |word| T::swap(word, value))
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
    let change = Change::CompareSwap { wanted, value };
    replace(context, dest, pe, change, |word| T::compare_swap(word, wanted, value))
}

macro_rules! fetching {
    ($($fetch:ident, $fetch_nbi:ident, $plain:ident, $change:ident, $of:literal);*) => { $(
        #[doc = concat!("`shmem_atomic_fetch_", $of, "`.")]
        ///
        /// # Errors
        /// As [`fetch`].
        #[inline]
        pub fn $fetch<T: Integer>(context: Context, dest: Symmetric, value: T, pe: i32) -> Result<T, Fault> {
            replace(context, dest, pe, Change::$change(value), |word| T::$fetch(word, value))
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
            replace_nbi(context, fetch, dest, pe, Change::$change(value), |word| T::$fetch(word, value))
        }

        #[doc = concat!("`shmem_atomic_", $of, "`.")]
        ///
        /// # Errors
        /// As [`fetch`].
        #[inline]
        pub fn $plain<T: Integer>(context: Context, dest: Symmetric, value: T, pe: i32) -> Result<(), Fault> {
            if session::gather(job::get()?, context, WordStep::$change, dest, value, pe)? {
                return Ok(());
            }
            alter(context, dest, pe, Change::$change(value), |word| {
                T::$fetch(word, value);
            })
        }
    )* };
}

fetching!(fetch_add, fetch_add_nbi, add, Add, "add"; fetch_and, fetch_and_nbi, and, And, "and"; fetch_or, fetch_or_nbi, or, Or, "or";
    fetch_xor, fetch_xor_nbi, xor, Xor, "xor");

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
    replace_nbi(context, into, source, pe, Change::<T>::Fetch, |word| {
        T::load(word, Ordering::Acquire)
    })
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
    replace_nbi(context, into, dest, pe, Change::Swap(value), |word| T::swap(word, value))
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
    let change = Change::CompareSwap { wanted, value };
    replace_nbi(context, into, dest, pe, change, |word| T::compare_swap(word, wanted, value))
}
