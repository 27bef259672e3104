//! Sessions: a context about to do a series of operations says so.
//!
//! # Model
//! An operation on a neighbour's memory is over when its call returns, so a session changes nothing
//! yet; what the program asks for is checked.
//!
//! # Source
//! OpenSHMEM 1.6, "Sessions".

use crate::constants::{CTX_SESSION_BATCH, CTX_SESSION_SAME_AMO};
use crate::context::Context;
use crate::fault::{Fault, Wrong};
use crate::job;

/// `shmem_ctx_session_start`: begins a session of `context`, or adds options to the one it has.
/// `total_ops` is how many operations the program expects at most, if it says so.
///
/// # Errors
/// No such context, or an option that there is not.
pub fn start(context: Context, options: i64, _total_ops: Option<usize>) -> Result<(), Fault> {
    let job = job::get()?;
    if context == Context::INVALID {
        return Ok(());
    }
    if options & !(CTX_SESSION_BATCH | CTX_SESSION_SAME_AMO) != 0 {
        let works = "use SHMEM_CTX_SESSION_BATCH, SHMEMX_CTX_SESSION_SAME_AMO or 0";
        return Err(Fault::value("options", options, works));
    }
    job.contexts.get(context).map(drop).ok_or_else(|| Wrong::Context(context.raw()).into())
}

/// `shmem_ctx_session_stop`: ends the session of `context`. Nothing is completed by it.
///
/// # Errors
/// No such context.
pub fn stop(context: Context) -> Result<(), Fault> {
    let job = job::get()?;
    if context == Context::INVALID {
        return Ok(());
    }
    job.contexts.get(context).map(drop).ok_or_else(|| Wrong::Context(context.raw()).into())
}
