//! Order and completion of what a context did: `fence` and `quiet`.
//!
//! # Model
//! A near operation is performed by the thread that calls, in the order of its calls, before the
//! call returns. What is left is the processor's: stores may become visible to others in another
//! order on some machines (`fence` forbids it), and later than a load that follows (`quiet` forbids
//! it). Operations on far PEs are complete when these say that they were applied.

use std::sync::atomic::Ordering;

use crate::address::Caller;
use crate::context::Context;
use crate::fault::Fault;
use crate::job;
use crate::session;

/// Orders what the context did to a PE before what it does to that PE afterwards (`shmem_fence`).
///
/// # Errors
/// The library is not initialised.
#[inline]
pub fn fence(context: Context) -> Result<(), Fault> {
    // What a far PE gets in one class it applies in order.
    session::flush(job::get()?, context)?;
    std::sync::atomic::fence(Ordering::Release);
    Ok(())
}

/// Completes what the context did, for all PEs to see (`shmem_quiet`).
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

/// Completes what the context did to the `count` PEs listed at `pes` (`shmem_pe_quiet`).
///
/// # Errors
/// The library is not initialised, or a PE that the context does not have.
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
