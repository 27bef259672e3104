//! Functions that return contexts and teams through pointers.
//!
//! # Invariants
//! I1. A function that creates nothing writes the invalid handle.

use super::setup::write;
use crate::constants::{CTX_SESSION_TOTAL_OPS, TEAM_NUM_CONTEXTS};
use crate::context::{self, Context};
use crate::fault::Fault;
use crate::session;
use crate::team::{self, Team};

/// What a program configures of a new team (`shmem_team_config_t`).
#[derive(Clone, Copy, Debug, Default)]
#[repr(C)]
pub(super) struct TeamConfig {
    num_contexts: i32,
}

/// What a program says about a session (`shmem_ctx_session_config_t`).
#[derive(Clone, Copy, Debug, Default)]
#[repr(C)]
pub(super) struct SessionConfig {
    total_ops: usize,
}

/// # Safety
/// The configuration is null or may be read.
pub(super) unsafe fn session_start(
    ctx: usize,
    options: i64,
    config: *const SessionConfig,
    mask: i64,
) -> Result<(), Fault> {
    let is_read = mask & CTX_SESSION_TOTAL_OPS != 0 && !config.is_null();
    // SAFETY: the caller promises it.
    let total_ops = is_read.then(|| unsafe { *config }.total_ops);
    session::start(Context::from_raw(ctx), options, total_ops)
}

/// A configuration, and which parts of it count.
type Configured = (*const TeamConfig, i64);

/// # Safety
/// The pointer is null or points to a configuration.
unsafe fn contexts_of((config, mask): Configured) -> i32 {
    if mask & TEAM_NUM_CONTEXTS == 0 || config.is_null() {
        return 0;
    }
    // SAFETY: the caller promises it.
    unsafe { *config }.num_contexts
}

/// # Safety
/// `ctx` may be written.
pub(super) unsafe fn ctx_create(options: i64, ctx: *mut usize) -> Result<i32, Fault> {
    let (status, made) = context::create(options)?;
    // SAFETY: the caller promises it.
    unsafe { write(ctx, made.raw()) };
    Ok(status)
}

/// # Safety
/// As [`ctx_create`].
pub(super) unsafe fn team_create_ctx(
    team: usize,
    options: i64,
    ctx: *mut usize,
) -> Result<i32, Fault> {
    let (status, made) = team::create_context(Team::from_raw(team), options)?;
    // SAFETY: the caller promises it.
    unsafe { write(ctx, made.raw()) };
    Ok(status)
}

/// # Safety
/// `team` may be written.
pub(super) unsafe fn ctx_get_team(ctx: usize, team: *mut usize) -> Result<i32, Fault> {
    let (status, of) = context::team(Context::from_raw(ctx))?;
    // SAFETY: the caller promises it.
    unsafe { write(team, of.raw()) };
    Ok(status)
}

/// # Safety
/// `config` may be written.
pub(super) unsafe fn team_get_config(
    team: usize,
    mask: i64,
    config: *mut TeamConfig,
) -> Result<i32, Fault> {
    let (status, num_contexts) = team::config(Team::from_raw(team))?;
    if status == 0 && mask & TEAM_NUM_CONTEXTS != 0 {
        // SAFETY: the caller promises it.
        unsafe { write(config, TeamConfig { num_contexts }) };
    }
    Ok(status)
}

/// # Safety
/// The configuration is null or may be read, `made` may be written.
pub(super) unsafe fn team_split_strided(
    parent: usize,
    (start, stride, size): (i32, i32, i32),
    configured: Configured,
    made: *mut usize,
) -> Result<i32, Fault> {
    // SAFETY: the caller promises it.
    let contexts = unsafe { contexts_of(configured) };
    let (status, team) =
        team::split_strided(Team::from_raw(parent), start, stride, size, contexts)?;
    // SAFETY: the caller promises it.
    unsafe { write(made, team.raw()) };
    Ok(status)
}

/// # Safety
/// The configurations are null or may be read, both of `made` may be written.
pub(super) unsafe fn team_split_2d(
    parent: usize,
    xrange: i32,
    configured: [Configured; 2],
    made: [*mut usize; 2],
) -> Result<i32, Fault> {
    // SAFETY: the caller promises it.
    let [x, y] = configured.map(|configured| unsafe { contexts_of(configured) });
    let (status, xaxis, yaxis) = team::split_2d(Team::from_raw(parent), xrange, x, y)?;
    // SAFETY: the caller promises it.
    unsafe {
        write(made[0], xaxis.raw());
        write(made[1], yaxis.raw());
    }
    Ok(status)
}
