//! Calls the library as C would, with slices of this process.

#![allow(unsafe_code)]

use clearway_shmem::address::{Caller, Symmetric};
use clearway_shmem::context::Context;
use clearway_shmem::rma;
use clearway_shmem::word::Plain;

/// A slice as memory of the caller.
pub(crate) fn from<T: Plain>(slice: &[T]) -> Caller {
    // SAFETY: the slice lives through the call that gets it, which reads no more than its elements.
    unsafe { Caller::new(slice.as_ptr().cast()) }
}

/// A slice as memory of the caller, to be written.
pub(crate) fn into<T: Plain>(slice: &mut [T]) -> Caller {
    // SAFETY: as in `from`; it may be written.
    unsafe { Caller::new(slice.as_mut_ptr().cast_const().cast()) }
}

/// Puts a slice.
pub(crate) fn put<T: Plain>(dest: Symmetric, source: &[T], pe: usize) {
    rma::put(Context::DEFAULT, dest, from(source), size_of_val(source), pe as i32).expect("put");
}

/// Gets `count` elements.
pub(crate) fn get<T: Plain + Default>(source: Symmetric, count: usize, pe: usize) -> Vec<T> {
    let mut dest = vec![T::default(); count];
    rma::get(Context::DEFAULT, into(&mut dest), source, count * size_of::<T>(), pe as i32)
        .expect("get");
    dest
}

/// The symmetric address `bytes` behind `base`.
pub(crate) fn at(base: *mut u8, bytes: usize) -> Symmetric {
    Symmetric::new(base.wrapping_add(bytes))
}

/// Ends this process at once, as a program that was killed.
pub(crate) fn die() -> ! {
    // SAFETY: the signal ends this process.
    unsafe { libc::kill(libc::getpid(), libc::SIGKILL) };
    loop {
        std::thread::park();
    }
}

/// Runs `body` in a child that `fork` makes, and waits for it.
pub(crate) fn in_a_fork(body: impl FnOnce()) {
    // SAFETY: the child runs `body`, which only touches memory, and ends.
    match unsafe { libc::fork() } {
        0 => {
            body();
            // SAFETY: ends the child at once.
            unsafe { libc::_exit(0) }
        }
        child => {
            let mut status = 1;
            // SAFETY: `status` has room for one.
            assert_eq!(unsafe { libc::waitpid(child, &raw mut status, 0) }, child);
            assert_eq!(status, 0, "the child failed");
        }
    }
}
