//! Runs sessions: a context aggregates a series of atomic updates and sends them together.
//!
//! # Model
//! With `SHMEM_CTX_SESSION_BATCH` a context has a [lane](crate::queue), which aggregates non-fetching
//! atomic operations for each PE. The target or the source applies them, whichever is first. All
//! other operations complete when their call returns, as without a session: a copy to a neighbour's
//! memory is as fast as aggregating it.
//!
//! Order and completion are unchanged. A fence and a quiet of the context complete the aggregated
//! operations. So do the end of the session and all waiting calls, because a wait may depend on them.
//!
//! # Source
//! OpenSHMEM 1.6, "Sessions".

use crate::address::Symmetric;
use crate::constants::{CTX_PRIVATE, CTX_SERIALIZED, CTX_SESSION_BATCH, CTX_SESSION_SAME_AMO};
use crate::context::Context;
use crate::fault::{Fault, Wrong};
use crate::job::{self, Job};
use crate::queue;
use crate::queue::element::{WordStep, WordUpdate};
use crate::queue::lane::{LaneUsers, Push, UpdateLane};
use crate::team::WORLD_SLOT;
use crate::word::Word;

/// Begins a session of `context`, or adds options to the one it has (`shmem_ctx_session_start`).
/// `total_ops` is how many operations the program expects at most, if it says so: a session of few
/// gathers nothing, because nothing would fill.
///
/// # Errors
/// No such context, or an option that there is not.
pub fn start(context: Context, options: i64, total_ops: Option<usize>) -> Result<(), Fault> {
    let job = job::get()?;
    if context == Context::INVALID {
        return Ok(());
    }
    if options & !(CTX_SESSION_BATCH | CTX_SESSION_SAME_AMO) != 0 {
        let works = "use SHMEM_CTX_SESSION_BATCH, SHMEMX_CTX_SESSION_SAME_AMO or 0";
        return Err(Fault::value("options", options, works));
    }
    let Some((_, options_of_context)) = job.contexts.get(context) else {
        return Err(Wrong::Context(context.raw()).into());
    };
    let pays = job.queues.gathers() && total_ops.is_none_or(|most| most >= FEW);
    if options & CTX_SESSION_BATCH == 0 || !pays || job.contexts.session(context).is_some() {
        return Ok(());
    }
    let users = match queue::users(options_of_context & (CTX_PRIVATE | CTX_SERIALIZED) == 0)? {
        // Threads take turns, or there is one.
        LaneUsers::Thread(_) if options_of_context & CTX_PRIVATE == 0 => LaneUsers::All,
        users => users,
    };
    // Without a free lane the context goes on as it is.
    if let Some(number) = job.queues.take_session(job.segments.pes(), users) {
        job.contexts.set_session(context, Some(number));
    }
    Ok(())
}

/// Operations that are over sooner than a buffer is filled and emptied.
const FEW: usize = 64;

/// Ends the session of `context` (`shmem_ctx_session_stop`).
///
/// # Errors
/// No such context, or a PE that gave this one what is no update.
pub fn stop(context: Context) -> Result<(), Fault> {
    let job = job::get()?;
    if context == Context::INVALID {
        return Ok(());
    }
    if job.contexts.get(context).is_none() {
        return Err(Wrong::Context(context.raw()).into());
    }
    end(job, context)
}

/// Ends the session of `context`, if it has one.
pub(crate) fn end(job: &'static Job, context: Context) -> Result<(), Fault> {
    if let Some(number) = job.contexts.session(context) {
        flush(job, context)?;
        job.contexts.set_session(context, None);
        job.queues.give_session(number);
    }
    Ok(())
}

/// Completes what the session of `context` has gathered.
#[inline]
pub(crate) fn flush(job: &'static Job, context: Context) -> Result<(), Fault> {
    match lane(job, context) {
        Some(lane) => lane.flush(job),
        None => Ok(()),
    }
}

#[inline]
fn lane(job: &'static Job, context: Context) -> Option<&'static UpdateLane> {
    job.queues.session(job.contexts.session(context)?)
}

/// Gathers an update of a word of PE `pe` in the session of this number, if the word is a
/// neighbour's; whether it did.
///
/// # Errors
/// No such PE, or a PE that gave this one what is no update.
#[inline(always)]
pub(crate) fn gather<T: Word>(
    job: &'static Job,
    number: usize,
    context: Context,
    step: WordStep,
    dest: Symmetric,
    value: T,
    pe: i32,
) -> Result<bool, Fault> {
    let Some(lane) = job.queues.session(number) else { return Ok(false) };
    let target = match job.contexts.get(context) {
        // What is no PE is not near, and refused by the operation itself.
        Some((WORLD_SLOT, _)) => pe as usize,
        _ => job.world_pe(context, pe)?,
    };
    // Far PEs have buffers of their own. This PE's words are gathered as well: to tell them from
    // others costs more than their way through a buffer where targets are random (measured).
    if !job.segments.is_near(target) || size_of::<T>() < 4 {
        return Ok(false);
    }
    let at = job.segments.offset_in(dest, size_of::<T>());
    match at.and_then(|at| WordUpdate::new(step, size_of::<T>(), at, value.bits())) {
        Some(update) => Ok(lane.push(job, target, update)? == Push::Kept),
        None => Ok(false),
    }
}
