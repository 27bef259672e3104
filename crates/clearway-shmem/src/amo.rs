//! Performs atomic operations on words of other PEs.
//!
//! # Model
//! The calling thread changes words of PEs of its host by atomic instructions, so all atomic
//! operations of the library are atomic to each other, in all contexts and teams. The non-blocking
//! forms are complete when they return. A PE of another host executes the same instruction when it
//! applies the record.
//!
//! # Source
//! OpenSHMEM 1.6, "Atomic Memory Operations".

#![allow(clippy::too_many_arguments)] // a call's, and how it is done near and far

use std::sync::atomic::Ordering;

use crate::address::{Caller, Place, Symmetric};
use crate::context::Context;
use crate::far::{Change, FarObject};
use crate::fault::Fault;
use crate::job::{self, Job, Reach};
use crate::queue::element::WordStep;
use crate::session;
use crate::word::{Integer, Word};

/// The name of the argument in sentences.
const DEST: &str = "dest";

/// Finds the word in this process's memory.
#[inline(always)]
fn near<T: Word>(
    job: &Job,
    context: Context,
    at: Symmetric,
    pe: i32,
) -> Option<&'static T::Atomic> {
    job.near(context, at, size_of::<T>(), pe).and_then(Place::word::<T>)
}

/// Finds the word that is not there.
#[cold]
#[inline(never)]
fn far<T: Word>(context: Context, at: Symmetric, pe: i32) -> Result<FarObject, Fault> {
    match job::get()?.word::<T>(context, at, pe, DEST)? {
        Reach::Far(object) => Ok(object),
        Reach::Near(_) | Reach::Nothing => Err(Fault::value(
            DEST,
            at.raw() as i64,
            "give the address of a word of symmetric memory",
        )),
    }
}

/// Changes a word: by `here` in this process's memory, else by the record of `change`, which is not
/// made before: its stores would stand before a locked instruction. In a session `step` with
/// `value` is gathered.
#[inline(always)]
fn alter<T: Word>(
    context: Context,
    at: Symmetric,
    pe: i32,
    (step, value): (WordStep, T),
    change: impl FnOnce() -> Change<T>,
    here: impl FnOnce(&T::Atomic),
) -> Result<(), Fault> {
    let job = job::get()?;
    if let Some(number) = job.contexts.session(context) {
        return alter_in_session(job, number, context, at, pe, (step, value), change, here);
    }
    match near::<T>(job, context, at, pe) {
        Some(word) => here(word),
        None => far::<T>(context, at, pe)?.change(change()),
    }
    Ok(())
}

/// Changes a word as [`alter`], with a context that has the session of this number.
#[inline(never)]
fn alter_in_session<T: Word>(
    job: &'static Job,
    number: usize,
    context: Context,
    at: Symmetric,
    pe: i32,
    (step, value): (WordStep, T),
    change: impl FnOnce() -> Change<T>,
    here: impl FnOnce(&T::Atomic),
) -> Result<(), Fault> {
    if session::gather(job, number, context, step, at, value, pe)? {
        return Ok(());
    }
    match near::<T>(job, context, at, pe) {
        Some(word) => here(word),
        None => far::<T>(context, at, pe)?.change(change()),
    }
    Ok(())
}

/// Changes a word as [`alter`], and returns the old value.
#[inline(always)]
fn replace<T: Word>(
    context: Context,
    at: Symmetric,
    pe: i32,
    change: impl FnOnce() -> Change<T>,
    here: impl FnOnce(&T::Atomic) -> T,
) -> Result<T, Fault> {
    match near::<T>(job::get()?, context, at, pe) {
        Some(word) => Ok(here(word)),
        None => Ok(far::<T>(context, at, pe)?.fetch(change())),
    }
}

/// Changes a word as [`alter`]; what was there is in `fetch` when the operation is complete.
#[inline(always)]
fn replace_nbi<T: Word>(
    context: Context,
    fetch: Caller,
    at: Symmetric,
    pe: i32,
    change: impl FnOnce() -> Change<T>,
    here: impl FnOnce(&T::Atomic) -> T,
) -> Result<(), Fault> {
    match near::<T>(job::get()?, context, at, pe) {
        Some(word) => fetch.write(0, here(word)),
        None => far::<T>(context, at, pe)?.fetch_nbi(change(), fetch),
    }
    Ok(())
}

/// Reads a word (`shmem_atomic_fetch`).
///
/// # Errors
/// No such PE, or no aligned word of symmetric memory.
#[inline(always)]
pub fn fetch<T: Word>(context: Context, source: Symmetric, pe: i32) -> Result<T, Fault> {
    replace(context, source, pe, || Change::Fetch, |word| T::load(word, Ordering::Acquire))
}

/// Writes a word (`shmem_atomic_set`).
///
/// # Errors
/// As [`fetch`].
#[inline(always)]
pub fn set<T: Word>(context: Context, dest: Symmetric, value: T, pe: i32) -> Result<(), Fault> {
    let step = (WordStep::Set, value);
    alter(
        context,
        dest,
        pe,
        step,
        move || Change::Set(value),
        move |word| T::store(word, value, Ordering::Release),
    )
}

/// Writes a word, and returns the old value (`shmem_atomic_swap`).
///
/// # Errors
/// As [`fetch`].
#[inline(always)]
pub fn swap<T: Word>(context: Context, dest: Symmetric, value: T, pe: i32) -> Result<T, Fault> {
    replace(context, dest, pe, || Change::Swap(value), |word| T::swap(word, value))
}

/// Writes a word if its value is `wanted`, and returns the old value (`shmem_atomic_compare_swap`).
///
/// # Errors
/// As [`fetch`].
#[inline(always)]
pub fn compare_swap<T: Word>(
    context: Context,
    dest: Symmetric,
    wanted: T,
    value: T,
    pe: i32,
) -> Result<T, Fault> {
    let change = || Change::CompareSwap { wanted, value };
    replace(context, dest, pe, change, |word| T::compare_swap(word, wanted, value))
}

macro_rules! fetching {
    ($($fetch:ident, $fetch_nbi:ident, $plain:ident, $change:ident, $of:literal);*) => { $(
        #[doc = concat!("Changes a word by *", $of, "*, and returns the old value (`shmem_atomic_fetch_", $of, "`).")]
        ///
        /// # Errors
        /// As [`fetch`].
        #[inline(always)]
        pub fn $fetch<T: Integer>(context: Context, dest: Symmetric, value: T, pe: i32) -> Result<T, Fault> {
            replace(context, dest, pe, || Change::$change(value), |word| T::$fetch(word, value))
        }

        #[doc = concat!("Changes a word by *", $of, "*; the old value is in `fetch` after a quiet (`shmem_atomic_fetch_", $of, "_nbi`).")]
        ///
        /// # Errors
        /// As [`fetch`].
        #[inline(always)]
        pub fn $fetch_nbi<T: Integer>(
            context: Context,
            fetch: Caller,
            dest: Symmetric,
            value: T,
            pe: i32,
        ) -> Result<(), Fault> {
            replace_nbi(context, fetch, dest, pe, || Change::$change(value), |word| T::$fetch(word, value))
        }

        #[doc = concat!("Changes a word by *", $of, "* (`shmem_atomic_", $of, "`).")]
        ///
        /// # Errors
        /// As [`fetch`].
        #[inline(always)]
        pub fn $plain<T: Integer>(context: Context, dest: Symmetric, value: T, pe: i32) -> Result<(), Fault> {
            let step = (WordStep::$change, value);
            alter(context, dest, pe, step, move || Change::$change(value), move |word| {
                T::$fetch(word, value);
            })
        }
    )* };
}

fetching!(fetch_add, fetch_add_nbi, add, Add, "add"; fetch_and, fetch_and_nbi, and, And, "and"; fetch_or, fetch_or_nbi, or, Or, "or";
    fetch_xor, fetch_xor_nbi, xor, Xor, "xor");

/// Reads a word, which is in `into` after a quiet (`shmem_atomic_fetch_nbi`).
///
/// # Errors
/// As [`fetch()`].
#[inline(always)]
pub fn fetch_nbi<T: Word>(
    context: Context,
    into: Caller,
    source: Symmetric,
    pe: i32,
) -> Result<(), Fault> {
    replace_nbi(
        context,
        into,
        source,
        pe,
        || Change::<T>::Fetch,
        |word| T::load(word, Ordering::Acquire),
    )
}

/// Writes a word; the old value is in `into` after a quiet (`shmem_atomic_swap_nbi`).
///
/// # Errors
/// As [`fetch()`].
#[inline(always)]
pub fn swap_nbi<T: Word>(
    context: Context,
    into: Caller,
    dest: Symmetric,
    value: T,
    pe: i32,
) -> Result<(), Fault> {
    replace_nbi(context, into, dest, pe, || Change::Swap(value), |word| T::swap(word, value))
}

/// Writes a word if its value is `wanted`; the old value is in `into` after a quiet
/// (`shmem_atomic_compare_swap_nbi`).
///
/// # Errors
/// As [`fetch()`].
#[inline(always)]
pub fn compare_swap_nbi<T: Word>(
    context: Context,
    into: Caller,
    dest: Symmetric,
    wanted: T,
    value: T,
    pe: i32,
) -> Result<(), Fault> {
    let change = || Change::CompareSwap { wanted, value };
    replace_nbi(context, into, dest, pe, change, |word| T::compare_swap(word, wanted, value))
}
