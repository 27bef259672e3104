//! Orders and completes operations of a context: `fence` and `quiet`.
//!
//! # Model
//! The calling thread performs a near operation before the call returns, in the order of its calls.
//! Only the processor may still reorder: stores may become visible in another order on some machines
//! (`fence` forbids it), and after a later load (`quiet` forbids it). Operations on far PEs are
//! complete when these PEs acknowledge that they were applied.

use std::sync::atomic::Ordering;

use crate::address::Caller;
use crate::context::Context;
use crate::fault::Fault;
use crate::job;
use crate::session;

/// Orders earlier operations of the context on each PE before later ones on it (`shmem_fence`).
///
/// # Errors
/// The library is not initialised.
#[inline]
pub fn fence(context: Context) -> Result<(), Fault> {
    // A far PE applies the operations of a class in order.
    session::flush(job::get()?, context)?;
    std::sync::atomic::fence(Ordering::Release);
    Ok(())
}

/// Completes the context's operations, so that all PEs see them (`shmem_quiet`).
///
/// # Errors
/// The library is not initialised.
#[inline]
pub fn quiet(context: Context) -> Result<(), Fault> {
    let job = job::get()?;
    session::flush(job, context)?;
    std::sync::atomic::fence(Ordering::SeqCst);
    if let Some(far) = &job.far {
        far.quiet(job.contexts.class(context));
    }
    Ok(())
}

/// Completes the context's operations on the `count` PEs listed at `pes` (`shmem_pe_quiet`).
///
/// # Errors
/// The library is not initialised, or the context lacks a PE.
pub fn pe_quiet(context: Context, pes: Caller, count: usize) -> Result<(), Fault> {
    let job = job::get()?;
    if context == Context::INVALID || count == 0 {
        return Ok(());
    }
    for index in 0..count {
        job.world_pe(context, pes.read::<i32>(index))?;
    }
    quiet(context)
}
