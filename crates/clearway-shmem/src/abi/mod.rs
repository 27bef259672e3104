//! Exports the functions that C programs call: each is one line of the list that `build.rs` makes
//! from the table.
//!
//! # Model
//! A function takes the arguments of C, states the memory of each pointer (`at`: symmetric memory,
//! looked up at its use; `own`: the caller's, trusted), and calls the function of this crate that the
//! table names. A mistake of the program returns a fault, which ends the job with the name of the
//! function.
//!
//! Each function has a second name with the prefix `p`, for tools that replace the first and call the
//! second. This crate calls neither.
//!
//! # Not here
//! Functions that return through pointers (`handles`, `setup`), and those that move a `long double`
//! by value (`thunks`).

#![allow(unsafe_code)]
#![allow(non_snake_case)] // the standard's names of arguments
#![allow(unused_unsafe)] // some functions take nothing of the caller's

mod handles;
mod queues;
mod setup;

use std::ffi::{c_char, c_void};

use crate::address::{Caller, Symmetric};
use crate::blocks::{self, Blocks};
use crate::collective;
use crate::collective::active::{self, ActiveSet};
use crate::collective::scan;
use crate::constants::CMP_NE;
use crate::context::{self, Context};
use crate::operand::{ComplexDouble, ComplexFloat, ReduceOp};
use crate::queue::channel::Pushing;
use crate::queue::comm::{self, ElementClass, Elements};
use crate::queue::{self, ClassGrant, QueueAttributes, channel};
use crate::team::{self, Team};
use crate::thunks::LongDouble;
use crate::{amo, heap, job, lock, order, rma, session, signal, wait};
use handles::{SessionConfig, TeamConfig};
use queues::{QueueCall, QueueShape};

/// Defines a function of C and its second name.
macro_rules! entry {
    ($name:ident, $profiling:ident, ($($argument:ident: $type:ty),*) -> $returns:ty, $call:expr) => {
        entry!(@one $name, ($($argument: $type),*) -> $returns, $call, stringify!($name));
        entry!(@one $profiling, ($($argument: $type),*) -> $returns, $call, stringify!($name));
    };
    (@one $name:ident, ($($argument:ident: $type:ty),*) -> $returns:ty, $call:expr, $said:expr) => {
        #[unsafe(no_mangle)]
        unsafe extern "C" fn $name($($argument: $type),*) -> $returns {
            // SAFETY: the caller is C, and gives memory as the standard demands it of the function.
            let done = unsafe { $call };
            match done {
                Ok(value) => value,
                Err(fault) => fault.end($said),
            }
        }
    };
}

include!(concat!(env!("OUT_DIR"), "/entries.rs"));

/// Handles under the names that programs of other libraries ask for; those of this library have
/// them as constants.
macro_rules! handle {
    ($($name:ident = $value:expr;)*) => { $(
        #[unsafe(no_mangle)]
        static $name: usize = $value;
    )* };
}

handle! {
    SHMEM_CTX_DEFAULT = Context::DEFAULT.raw();
    SHMEM_TEAM_WORLD = Team::WORLD.raw();
    SHMEM_TEAM_SHARED = Team::SHARED.raw();
}

/// An address of symmetric memory.
#[inline]
fn at<T>(address: *const T) -> Symmetric {
    Symmetric::new(address)
}

/// Memory of the caller.
///
/// # Safety
/// As [`Caller::new`].
#[inline]
unsafe fn own<T>(memory: *const T) -> Caller {
    // SAFETY: the caller of this function promises the same.
    unsafe { Caller::new(memory.cast()) }
}

/// The bytes of `count` elements; more than any memory has if that is no number.
#[inline]
fn bytes<T>(count: usize) -> usize {
    count.saturating_mul(size_of::<T>())
}

/// A number of elements that C gives as an `int`; a negative one is more than any memory has.
#[inline]
fn count(nreduce: i32) -> usize {
    usize::try_from(nreduce).unwrap_or(usize::MAX)
}

#[inline]
fn void(pointer: *mut u8) -> *mut c_void {
    pointer.cast()
}

#[inline]
fn set(start: i32, log_stride: i32, size: i32) -> ActiveSet {
    ActiveSet::new(start, log_stride, size)
}
