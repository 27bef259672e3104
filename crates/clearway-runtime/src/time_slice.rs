//! A short time slice for a thread that waits for messages: on a busy processor it runs soon after
//! it wakes.
//!
//! # Model
//! A thread that wakes runs at once only if its request for processor time ends before that of the
//! running thread. A request is one slice long, so a thread with a short slice goes first, and runs
//! for a short time. Its share of the processor stays the same, and no privilege is needed.
//!
//! # Source
//! `Documentation/scheduler/sched-eevdf.rst`; `sched_setattr(2)`: since Linux 6.12 `sched_runtime` of
//! a thread under the usual policy is its slice, 0.1 to 100 ms. Earlier kernels ignore it.
//!
//! # Invariants
//! I1. Policy and nice value of the thread stay as they are.

#![allow(unsafe_code)]

use std::marker::PhantomData;
use std::mem::size_of;

use libc::sched_attr;

/// The shortest slice that the kernel takes. A message is handled in less.
const SHORT_NS: u64 = 100_000;

/// The slice of this thread is short as long as this lives.
pub(crate) struct ShortSlice {
    /// What the thread had; `None` where nothing was changed.
    before: Option<sched_attr>,
    /// It belongs to its thread.
    _thread: PhantomData<*const ()>,
}

impl ShortSlice {
    /// Shortens the slice of this thread, if it runs under the usual policy.
    pub(crate) fn take() -> Self {
        let before = get().filter(|attributes| {
            attributes.sched_policy == libc::SCHED_OTHER as u32
                && attributes.sched_runtime > SHORT_NS
                && set(&sched_attr { sched_runtime: SHORT_NS, ..*attributes })
        });
        Self { before, _thread: PhantomData }
    }
}

impl Drop for ShortSlice {
    fn drop(&mut self) {
        if let Some(before) = &self.before {
            set(before);
        }
    }
}

/// Returns the attributes of this thread.
fn get() -> Option<sched_attr> {
    let mut attributes = sched_attr {
        size: 0,
        sched_policy: 0,
        sched_flags: 0,
        sched_nice: 0,
        sched_priority: 0,
        sched_runtime: 0,
        sched_deadline: 0,
        sched_period: 0,
    };
    let size = size_of::<sched_attr>();
    // SAFETY: the kernel writes at most `size` bytes to `attributes`, which is as long and lives
    // until the call returns.
    let done = unsafe {
        libc::syscall(libc::SYS_sched_getattr, 0, &raw mut attributes, size as libc::c_uint, 0)
    };
    (done == 0).then_some(attributes)
}

/// Changes the attributes of this thread. Returns whether the kernel took them.
fn set(attributes: &sched_attr) -> bool {
    // SAFETY: the kernel reads `attributes`, which has the size that it says and lives until the
    // call returns, and changes nothing but this thread's scheduling.
    unsafe { libc::syscall(libc::SYS_sched_setattr, 0, &raw const *attributes, 0) == 0 }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn take__the_slice_is_short_until_the_end_and_nothing_else_changes() {
        let before = get().expect("attributes");
        if before.sched_runtime == 0 {
            return eprintln!("skipped: this kernel has no slices of threads");
        }
        let slice = ShortSlice::take();
        let short = get().expect("attributes");
        drop(slice);
        let after = get().expect("attributes");
        let others = |of: &sched_attr| (of.sched_policy, of.sched_nice, of.sched_priority);
        assert_eq!(short.sched_runtime, SHORT_NS);
        assert_eq!(after.sched_runtime, before.sched_runtime);
        assert_eq!([others(&short), others(&after)], [others(&before); 2]);
    }
}
