//! Calls of the C library about this process: its streams, its end, its forks.

#![allow(unsafe_code)]

use std::ffi::{c_int, c_void};

unsafe extern "C" {
    /// glibc: as `atexit`, and the function hears the status.
    fn on_exit(function: extern "C" fn(c_int, *mut c_void), argument: *mut c_void) -> c_int;
}

/// Writes out what the program has printed and not yet written.
pub(crate) fn flush_streams() {
    // SAFETY: null stands for all streams; the C library locks each.
    let _ = unsafe { libc::fflush(std::ptr::null_mut()) };
}

/// Has `function` called with the status when the program exits.
pub(crate) fn at_exit(function: extern "C" fn(c_int, *mut c_void)) {
    // SAFETY: the function is one of this library, which stays loaded, and ignores its argument.
    let _ = unsafe { on_exit(function, std::ptr::null_mut()) };
}

/// Has the three functions called around each `fork`: before it, and after it in the parent and in
/// the child.
pub(crate) fn at_fork(
    before: extern "C" fn(),
    parent: extern "C" fn(),
    child: extern "C" fn(),
) -> bool {
    // SAFETY: all three are functions of this library, which stays loaded.
    let refused = unsafe { libc::pthread_atfork(Some(before), Some(parent), Some(child)) };
    refused == 0
}

/// Has the function called in each child of a `fork`, behind those that were named before it.
pub(crate) fn at_fork_child(child: extern "C" fn()) -> bool {
    // SAFETY: as in `at_fork`; nothing is called in the parent.
    let refused = unsafe { libc::pthread_atfork(None, None, Some(child)) };
    refused == 0
}

/// Ends this process at once.
pub(crate) fn exit_at_once(status: i32) -> ! {
    // SAFETY: it does not return, runs no handler and touches no memory of the process.
    unsafe { libc::_exit(status) }
}

/// Writes `text` on standard error, in one piece if it is short. Nothing can be done where that
/// fails.
pub(crate) fn say(text: &str) {
    // SAFETY: the bytes live through the call, and the kernel reads no more than their number.
    let _ = unsafe { libc::write(libc::STDERR_FILENO, text.as_ptr().cast(), text.len()) };
}
