//! Order and completion of what a context did: `fence` and `quiet`.
//!
//! # Model
//! A near operation is performed by the thread that calls, in the order of its calls, before the
//! call returns. What is left is the processor's: stores may become visible to others in another
//! order on some machines (`fence` forbids it), and later than a load that follows (`quiet` forbids
//! it).

use std::sync::atomic::Ordering;

use crate::context::Context;
use crate::fault::Fault;
use crate::job;

/// `shmem_fence`: orders what the context did to a PE before what it does to that PE afterwards.
///
/// # Errors
/// The library is not initialised.
#[inline]
pub fn fence(_context: Context) -> Result<(), Fault> {
    job::get()?;
    std::sync::atomic::fence(Ordering::Release);
    Ok(())
}

/// `shmem_quiet`: completes what the context did, for all PEs to see.
///
/// # Errors
/// The library is not initialised.
#[inline]
pub fn quiet(_context: Context) -> Result<(), Fault> {
    job::get()?;
    std::sync::atomic::fence(Ordering::SeqCst);
    Ok(())
}
