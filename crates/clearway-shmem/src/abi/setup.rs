//! Exports the functions of setup and exit, and the queries about the library.

use std::ffi::c_char;

use crate::constants::{THREAD_SINGLE, VENDOR, VERSION};
use crate::fault::Fault;
use crate::header::NAME_LENGTH_MAX;
use crate::job;

pub(super) fn init() -> Result<(), Fault> {
    job::init(THREAD_SINGLE).map(drop)
}

/// `npes` was the number of PEs once; today the launcher says it.
pub(super) fn start_pes(_npes: i32) -> Result<(), Fault> {
    init()
}

/// # Safety
/// `provided` is null or points to an `int`.
pub(super) unsafe fn init_thread(requested: i32, provided: *mut i32) -> Result<i32, Fault> {
    let level = job::init(requested)?;
    // SAFETY: the caller promises it.
    unsafe { write(provided, level) };
    Ok(0)
}

/// # Safety
/// As [`init_thread`].
pub(super) unsafe fn query_thread(provided: *mut i32) -> Result<(), Fault> {
    let level = job::query_thread()?;
    // SAFETY: the caller promises it.
    unsafe { write(provided, level) };
    Ok(())
}

/// # Safety
/// `initialized` is null or points to an `int`.
pub(super) unsafe fn query_initialized(initialized: *mut i32) -> Result<(), Fault> {
    // SAFETY: the caller promises it.
    unsafe { write(initialized, job::is_initialized()) };
    Ok(())
}

pub(super) fn global_exit(status: i32) -> Result<(), Fault> {
    job::global_exit(status)
}

/// # Safety
/// Both are null or point to an `int`.
pub(super) unsafe fn version(major: *mut i32, minor: *mut i32) -> Result<(), Fault> {
    // SAFETY: the caller promises it.
    unsafe {
        write(major, VERSION.0);
        write(minor, VERSION.1);
    }
    Ok(())
}

/// # Safety
/// `name` has room for `SHMEM_MAX_NAME_LEN` bytes.
pub(super) unsafe fn name(name: *mut c_char) -> Result<(), Fault> {
    const { assert!(VENDOR.len() < NAME_LENGTH_MAX) };
    for (place, byte) in VENDOR.bytes().chain([0]).enumerate() {
        // SAFETY: the name with its zero is no longer than the room.
        unsafe { name.add(place).write(byte as c_char) };
    }
    Ok(())
}

/// For tools that put their own function in place of this one, which does nothing. More arguments
/// than the first are never looked at.
pub(super) fn pcontrol(_level: i32) -> Result<(), Fault> {
    Ok(())
}

/// # Safety
/// `to` is null or may be written.
pub(super) unsafe fn write<T>(to: *mut T, value: T) {
    if !to.is_null() {
        // SAFETY: the caller promises it.
        unsafe { to.write(value) };
    }
}
