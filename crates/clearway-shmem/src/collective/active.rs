//! Runs collectives of active sets (deprecated): first PE, logarithm of the stride, size, and a
//! `pSync` array of the program.
//!
//! # Model
//! A set is an implicit team. At its first use its PEs synchronise over the program's `pSync`, and
//! agree on a slot as teams do. From then on its collectives are those of a team, without `pSync`. In
//! both cases `pSync` has its required value between calls.
//!
//! | word of `pSync` | of | is |
//! |---|---|---|
//! | 0 | the first PE | number of other PEs that arrived |
//! | 1 | each other PE | whether it may continue |
//!
//! # Source
//! OpenSHMEM 1.6, the deprecated routines of "Collective Routines".

#![allow(clippy::too_many_arguments)] // the standard's functions have as many

use std::collections::BTreeMap;
use std::sync::atomic::Ordering;
use std::sync::{Mutex, PoisonError};

use super::sync::Gathering;
use super::{Pattern, RootDest, Together};
use crate::address::Symmetric;
use crate::constants::SYNC_VALUE;
use crate::context::Context;
use crate::fault::{Fault, Wrong};
use crate::job::{self, Job};
use crate::operand::{Operand, ReduceOp};
use crate::team::{self, Members, SLOT_WORDS, Team};
use crate::{amo, order};

/// Bytes of a word of `pSync`.
const WORD: usize = size_of::<i64>();

/// The PEs that take part.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ActiveSet {
    start: i32,
    log_stride: i32,
    size: i32,
}

impl ActiveSet {
    /// From the arguments of the program.
    pub fn new(start: i32, log_stride: i32, size: i32) -> Self {
        Self { start, log_stride, size }
    }

    fn members(self, job: &Job) -> Result<Members, Fault> {
        let world = Members { start: 0, stride: 1, size: job.segments.pes() as i32 };
        let stride = u32::try_from(self.log_stride)
            .ok()
            .and_then(|log| 1i32.checked_shl(log))
            .filter(|stride| *stride > 0);
        let members = stride.and_then(|stride| world.split(self.start, stride, self.size));
        let members = members.filter(|members| members.index(job.me as i32).is_some());
        members.ok_or_else(|| {
            let Self { start, log_stride, size } = self;
            let pes = job.segments.pes();
            Wrong::Failed(format!(
                "PE_start {start}, logPE_stride {log_stride} and PE_size {size} are no set of the {pes} PEs that contains PE {}",
                job.me
            ))
            .into()
        })
    }
}

/// The sets that have a slot.
#[derive(Debug, Default)]
pub(crate) struct ActiveTeams(Mutex<BTreeMap<Members, Team>>);

impl ActiveTeams {
    /// Forgets all sets. Their slots are given back by `team::clear`.
    pub(crate) fn clear(&self) {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).clear();
    }

    /// The team of `members`, made if it is new.
    fn get(&self, job: &'static Job, members: Members, sync: Symmetric) -> Result<Team, Fault> {
        if members == (Members { start: 0, stride: 1, size: job.segments.pes() as i32 }) {
            return Ok(Team::WORLD);
        }
        let known = self.0.lock().unwrap_or_else(PoisonError::into_inner).get(&members).copied();
        if let Some(team) = known {
            return Ok(team);
        }
        let team = make(job, members, sync)?;
        self.0.lock().unwrap_or_else(PoisonError::into_inner).insert(members, team);
        Ok(team)
    }
}

/// Agrees on a slot over `sync`.
fn make(job: &'static Job, members: Members, sync: Symmetric) -> Result<Team, Fault> {
    let meet = || meet(job, members, sync);
    meet()?;
    let mut used = [0; SLOT_WORDS];
    for index in 0..members.size as usize {
        let theirs = team::used(job, members.pe(index));
        used.iter_mut().zip(theirs).for_each(|(used, word)| *used |= word);
    }
    let slot = team::lowest_free(used);
    let origin = slot.map(|slot| team::origin_of(job, slot, members)).unwrap_or_default();
    meet()?;
    let no_slot =
        || Wrong::Failed("all slots are used by teams and active sets; destroy teams".to_owned());
    let slot = slot.filter(|slot| team::claim(job, *slot)).ok_or_else(no_slot)?;
    team::install(job, slot, members, 0, origin);
    meet()?;
    Ok(Team::of_slot(slot))
}

/// Waits for all members over the program's words.
fn meet(job: &'static Job, members: Members, sync: Symmetric) -> Result<(), Fault> {
    let others = i64::from(members.size) - 1;
    let context = Context::DEFAULT;
    if members.pe(0) == job.me {
        let came = job.own_word::<i64>(sync, "pSync")?;
        job.wait(|| came.load(Ordering::Acquire) == SYNC_VALUE + others);
        came.store(SYNC_VALUE, Ordering::Relaxed);
        for index in 1..members.size as usize {
            amo::set(context, sync.plus(WORD), SYNC_VALUE + 1, members.pe(index) as i32)?;
        }
        return order::quiet(context);
    }
    let own = job.own_word::<i64>(sync.plus(WORD), "pSync")?;
    amo::add(context, sync, 1i64, members.pe(0) as i32)?;
    order::quiet(context)?;
    job.wait(|| own.load(Ordering::Acquire) != SYNC_VALUE);
    own.store(SYNC_VALUE, Ordering::Relaxed);
    Ok(())
}

/// Runs a collective of `set`.
fn on<R>(
    set: ActiveSet,
    sync: Symmetric,
    run: impl FnOnce(&Together<'_>) -> Result<R, Fault>,
) -> Result<R, Fault> {
    let job = job::get()?;
    let team = job.active.get(job, set.members(job)?, sync)?;
    run(&Together { job, all: Gathering::new(job, team)? })
}

/// Waits until all PEs of the set have called it (`shmem_barrier`). What they stored before is seen.
///
/// # Errors
/// No such set.
pub fn barrier(set: ActiveSet, sync: Symmetric) -> Result<(), Fault> {
    on(set, sync, |all| {
        all.wait();
        Ok(())
    })
}

/// Waits until all PEs of the set have called it (`shmem_sync`).
///
/// # Errors
/// No such set.
pub fn sync(set: ActiveSet, sync: Symmetric) -> Result<(), Fault> {
    barrier(set, sync)
}

/// Copies the root's `source` to the `dest` of all other PEs of the set (`shmem_broadcast64`).
///
/// # Errors
/// No such set or root, or a buffer that leaves symmetric memory.
pub fn broadcast(
    set: ActiveSet,
    sync: Symmetric,
    dest: Symmetric,
    source: Symmetric,
    bytes: usize,
    root: i32,
) -> Result<(), Fault> {
    on(set, sync, |all| all.broadcast(dest, source, bytes, root, RootDest::Kept))
}

/// Concatenates the `source` of each PE of the set, of any length (`shmem_collect64`).
///
/// # Errors
/// No such set, or a buffer that leaves symmetric memory.
pub fn collect(
    set: ActiveSet,
    sync: Symmetric,
    dest: Symmetric,
    source: Symmetric,
    bytes: usize,
) -> Result<(), Fault> {
    on(set, sync, |all| all.collect(dest, source, bytes))
}

/// Concatenates the `source` of each PE of the set, all of one length
/// (`shmem_fcollect64`).
///
/// # Errors
/// As [`collect`].
pub fn fcollect(
    set: ActiveSet,
    sync: Symmetric,
    dest: Symmetric,
    source: Symmetric,
    bytes: usize,
) -> Result<(), Fault> {
    on(set, sync, |all| all.fcollect(dest, source, bytes))
}

/// Gives block `i` of each `source` to PE `i` of the set (`shmem_alltoall64`).
///
/// # Errors
/// As [`collect`].
pub fn alltoall(
    set: ActiveSet,
    sync: Symmetric,
    dest: Symmetric,
    source: Symmetric,
    bytes: usize,
) -> Result<(), Fault> {
    on(set, sync, |all| all.alltoall(dest, source, bytes))
}

/// Gives block `i` of each `source` to PE `i` of the set, element by element
/// (`shmem_alltoalls64`).
///
/// # Errors
/// As [`collect`], or a stride below 1.
pub fn alltoalls(
    set: ActiveSet,
    sync: Symmetric,
    dest: Symmetric,
    source: Symmetric,
    dst: isize,
    sst: isize,
    count: usize,
    size: usize,
) -> Result<(), Fault> {
    on(set, sync, |all| all.alltoalls(dest, source, Pattern { dst, sst, count, size }))
}

/// Combines the elements of all PEs of the set (`shmem_<type>_<op>_to_all`).
///
/// # Errors
/// As [`collect`].
pub fn reduce<T: Operand>(
    set: ActiveSet,
    sync: Symmetric,
    op: ReduceOp,
    dest: Symmetric,
    source: Symmetric,
    count: usize,
) -> Result<(), Fault> {
    on(set, sync, |all| all.reduce::<T>(op, dest, source, count))
}
