//! Groups PEs into teams, with numbers of their own.
//!
//! # Model
//! A team is an arithmetic sequence of PEs of the world: first, stride, size. Strided and
//! two-dimensional splits of such teams are such teams again. A team's number is that of a *slot*, a
//! set of lines in the memory of each PE ([`clearway_runtime::near`]). All members use the same slot,
//! so a handle is the same number on all of them. Slot 0 is the world, slot 1 the PEs that share
//! memory.
//!
//! The parent team agrees on a split: all PEs exchange their used slots, and choose the lowest slot
//! that is free on every member of the new team. They take it and exchange whether they could. A
//! thread may have taken it for another team meanwhile; then they choose again.
//!
//! The epoch of a slot never decreases, so that the next team of the slot does not block a member that
//! is late in the last barrier of a destroyed team.
//!
//! # Source
//! OpenSHMEM 1.6, "Team Management Routines".
//!
//! # Not here
//! Synchronisation of members (`collective::sync`).

use std::sync::atomic::{AtomicBool, AtomicI32, AtomicU32, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use clearway_runtime::near::SLOTS;

use crate::address::Symmetric;
use crate::collective::hosts::HostPlan;
use crate::collective::sync::Gathering;
use crate::context::{self, Context};
use crate::fault::{Fault, Wrong};
use crate::job::{self, Job};
use crate::session;

/// The slot of the world.
pub(crate) const WORLD_SLOT: usize = 0;
/// The slot of the PEs that share memory.
const SHARED_SLOT: usize = 1;
/// The slot whose lines tell which slots a PE uses; no team has it.
pub(crate) const USED_SLOT: usize = SLOTS - 1;
/// Words in which each slot has a bit.
pub(crate) const SLOT_WORDS: usize = SLOTS / 64;

/// A team of this PE, by its slot plus one (`shmem_team_t`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(transparent)]
pub struct Team(usize);

impl Team {
    /// `SHMEM_TEAM_INVALID`.
    pub const INVALID: Self = Self(0);
    /// `SHMEM_TEAM_WORLD`.
    pub const WORLD: Self = Self(WORLD_SLOT + 1);
    /// `SHMEM_TEAM_SHARED`.
    pub const SHARED: Self = Self(SHARED_SLOT + 1);

    /// The handle that the program has.
    #[inline]
    pub const fn from_raw(raw: usize) -> Self {
        Self(raw)
    }

    /// The handle for the program.
    #[inline]
    pub const fn raw(self) -> usize {
        self.0
    }

    pub(crate) const fn of_slot(slot: usize) -> Self {
        Self(slot + 1)
    }

    pub(crate) const fn slot(self) -> usize {
        self.0.wrapping_sub(1)
    }
}

/// A sequence of PEs of the world.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Members {
    pub(crate) start: i32,
    pub(crate) stride: i32,
    pub(crate) size: i32,
}

impl Members {
    /// The world's number of member `index`.
    #[inline]
    pub(crate) const fn pe(self, index: usize) -> usize {
        (self.start + self.stride * index as i32) as usize
    }

    /// The index of the world's PE `pe`.
    pub(crate) const fn index(self, pe: i32) -> Option<i32> {
        let distance = pe - self.start;
        let index = match self.stride {
            0 => distance,
            stride if distance % stride != 0 => return None,
            stride => distance / stride,
        };
        if index >= 0 && index < self.size { Some(index) } else { None }
    }

    /// Returns the sequence of `pes`, which go up; `None` if they are none.
    fn from_pes(pes: &[usize]) -> Option<Self> {
        let start = *pes.first()? as i32;
        let stride = pes.get(1).map_or(1, |second| *second as i32 - start);
        let members = Self { start, stride, size: pes.len() as i32 };
        pes.iter().enumerate().all(|(at, pe)| members.pe(at) == *pe).then_some(members)
    }

    /// Every `stride`-th of these from `start` on, `size` of them; `None` where that leaves the
    /// team.
    pub(crate) fn split(self, start: i32, stride: i32, size: i32) -> Option<Self> {
        let last = stride.checked_mul(size.checked_sub(1)?)?.checked_add(start)?;
        let inside = |index: i32| (0..self.size).contains(&index);
        if size < 1 || (stride == 0 && size > 1) || !inside(start) || !inside(last) {
            return None;
        }
        Some(Self { start: self.start + self.stride * start, stride: self.stride * stride, size })
    }
}

/// What this PE knows of a team.
#[derive(Debug, Default)]
pub(crate) struct TeamEntry {
    /// Its members; 0 for no team.
    size: AtomicI32,
    start: AtomicI32,
    stride: AtomicI32,
    me: AtomicI32,
    contexts: AtomicI32,
    /// How often its members have waited for each other, from [`Self::origin`] on.
    pub(crate) epoch: AtomicU32,
    pub(crate) origin: AtomicU32,
    /// Whether some of its members are far.
    spans_hosts: AtomicBool,
    /// Its members by host, once asked for.
    plan: Mutex<Option<Arc<HostPlan>>>,
}

impl TeamEntry {
    /// Returns whether some of its members are far.
    #[inline]
    pub(crate) fn spans_hosts(&self) -> bool {
        self.spans_hosts.load(Ordering::Relaxed)
    }

    /// Returns its members by host; `make` sorts them.
    pub(crate) fn plan(&self, make: impl FnOnce() -> HostPlan) -> Arc<HostPlan> {
        let mut plan = self.plan.lock().unwrap_or_else(PoisonError::into_inner);
        Arc::clone(plan.get_or_insert_with(|| Arc::new(make())))
    }

    fn set(&self, members: Members, me: i32, contexts: i32, origin: u32, spans_hosts: bool) {
        *self.plan.lock().unwrap_or_else(PoisonError::into_inner) = None;
        self.spans_hosts.store(spans_hosts, Ordering::Relaxed);
        self.start.store(members.start, Ordering::Relaxed);
        self.stride.store(members.stride, Ordering::Relaxed);
        self.me.store(me, Ordering::Relaxed);
        self.contexts.store(contexts, Ordering::Relaxed);
        self.epoch.store(origin, Ordering::Relaxed);
        self.origin.store(origin, Ordering::Relaxed);
        self.size.store(members.size, Ordering::Release);
    }

    /// Its members, if it is a team.
    #[inline]
    pub(crate) fn members(&self) -> Option<Members> {
        let size = self.size.load(Ordering::Acquire);
        let (start, stride) =
            (self.start.load(Ordering::Relaxed), self.stride.load(Ordering::Relaxed));
        (size > 0).then_some(Members { start, stride, size })
    }

    /// This PE's number in it.
    #[inline]
    pub(crate) fn me(&self) -> i32 {
        self.me.load(Ordering::Relaxed)
    }
}

/// All teams of this PE, by slot.
#[derive(Debug)]
pub(crate) struct Teams(Box<[TeamEntry]>);

impl Teams {
    /// Creates the two that every program has, of all `pes` PEs and of the `near` ones of PE `me`.
    pub(crate) fn new(me: usize, pes: usize, near: &[usize]) -> Self {
        let teams: Box<[TeamEntry]> = (0..SLOTS).map(|_| TeamEntry::default()).collect();
        let world = Members { start: 0, stride: 1, size: pes as i32 };
        // A team is a sequence. PEs that a launcher spread otherwise are each alone.
        let alone = Members { start: me as i32, stride: 1, size: 1 };
        let shared = Members::from_pes(near).unwrap_or(alone);
        for (slot, members) in [(WORLD_SLOT, world), (SHARED_SLOT, shared)] {
            let index = members.index(me as i32).unwrap_or_default();
            teams[slot].set(members, index, 0, 0, members.size as usize > near.len());
        }
        Self(teams)
    }

    /// The team of `slot`.
    #[inline]
    pub(crate) fn entry(&self, slot: usize) -> Option<(&TeamEntry, Members)> {
        let entry = self.0.get(slot)?;
        Some((entry, entry.members()?))
    }

    /// The team of a handle.
    #[inline]
    pub(crate) fn get(&self, team: Team) -> Result<(&TeamEntry, Members), Fault> {
        self.entry(team.slot()).ok_or_else(|| Wrong::Team(team.0).into())
    }
}

/// Says in this PE's memory which slots it uses from the start.
pub(crate) fn publish_used(job: &Job) {
    let used = &job.near.line(job.me, USED_SLOT, 0).payload;
    used[0].store(0b11, Ordering::Release);
    used[SLOT_WORDS - 1].fetch_or(1 << 63, Ordering::Release);
}

/// Ends all teams but those that every program has.
pub(crate) fn clear(job: &Job) {
    for (slot, entry) in job.teams.0.iter().enumerate() {
        let is_own = ![WORLD_SLOT, SHARED_SLOT, USED_SLOT].contains(&slot);
        if is_own && entry.size.swap(0, Ordering::AcqRel) > 0 {
            release(job, slot);
        }
    }
}

/// Returns the slots that PE `pe` uses, as bits.
pub(crate) fn used(job: &'static Job, pe: usize) -> [u64; SLOT_WORDS] {
    if let Some(far) = job.far.as_ref().filter(|_| !job.segments.is_near(pe)) {
        return far.payload(pe, USED_SLOT, 0);
    }
    let line = job.near.line(pe, USED_SLOT, 0);
    std::array::from_fn(|word| line.payload[word].load(Ordering::Acquire))
}

/// Takes `slot`, unless this PE uses it already.
pub(crate) fn claim(job: &Job, slot: usize) -> bool {
    let used = &job.near.line(job.me, USED_SLOT, 0).payload;
    used[slot / 64].fetch_or(1 << (slot % 64), Ordering::AcqRel) & 1 << (slot % 64) == 0
}

/// Gives `slot` back.
fn release(job: &Job, slot: usize) {
    let used = &job.near.line(job.me, USED_SLOT, 0).payload;
    used[slot / 64].fetch_and(!(1 << (slot % 64)), Ordering::AcqRel);
}

/// The lowest slot that is in none of `used`.
pub(crate) fn lowest_free(used: [u64; SLOT_WORDS]) -> Option<usize> {
    used.iter()
        .enumerate()
        .find(|(_, word)| **word != u64::MAX)
        .map(|(at, word)| at * 64 + word.trailing_ones() as usize)
}

/// Prepares the lines of `slot` for `members`. All of them compute the same origin before any sets
/// its lines, and none waits in the slot before all have.
pub(crate) fn origin_of(job: &'static Job, slot: usize, members: Members) -> u32 {
    let lines = (0..members.size as usize).flat_map(|index| {
        let pe = members.pe(index);
        if let Some(far) = job.far.as_ref().filter(|_| !job.segments.is_near(pe)) {
            return far.epochs(pe, slot);
        }
        [0, 1, 3].map(|line| job.near.line(pe, slot, line).epoch.load(Ordering::Acquire))
    });
    lines.reduce(|a, b| if (b.wrapping_sub(a) as i32) > 0 { b } else { a }).unwrap_or_default()
}

/// Makes the team of `slot` usable for this PE, when it is agreed.
pub(crate) fn install(job: &Job, slot: usize, members: Members, contexts: i32, origin: u32) {
    let lines = [0, 1, 2, 3].map(|line| job.near.line(job.me, slot, line));
    for line in [lines[0], lines[1], lines[3]] {
        line.epoch.store(origin, Ordering::Release);
    }
    lines[2].epoch.store(0, Ordering::Release);
    let me = members.index(job.me as i32).unwrap_or_default();
    let far = (0..members.size as usize).map(|index| members.pe(index));
    let far: Vec<usize> = far.filter(|pe| !job.segments.is_near(*pe)).collect();
    for pe in &far {
        // No member steps before all have installed the team, so none has sent a line yet.
        for line in [0, 1] {
            job.near.line(*pe, slot, line).epoch.store(origin, Ordering::Release);
        }
    }
    job.teams.0[slot].set(members, me, contexts, origin, !far.is_empty());
}

/// What a PE tells that has no slot.
const NONE: u64 = u64::MAX;

/// One PE's part in agreeing on slots for the new teams of a parent team.
struct Agreement<'a> {
    job: &'static Job,
    parent: Gathering<'a>,
    /// The new team that this PE becomes a member of.
    wanted: Option<Members>,
    /// The slot, once all its members have taken it.
    settled: Option<usize>,
}

impl Agreement<'_> {
    fn is_wanted(&self, index: usize) -> bool {
        self.wanted
            .is_some_and(|wanted| wanted.index(self.parent.members.pe(index) as i32).is_some())
    }

    /// Exchanges the slots in use; the lowest that all members of the new team have free.
    fn choose(&self) -> Option<usize> {
        let mut used = [0; SLOT_WORDS];
        self.parent.exchange(&self::used(self.job, self.job.me), |index, words| {
            if self.is_wanted(index) {
                used.iter_mut()
                    .zip(words)
                    .for_each(|(used, word)| *used |= word.load(Ordering::Relaxed));
            }
        });
        self.wanted.and_then(|_| lowest_free(used))
    }

    /// One round; whether all are content.
    fn go_round(&mut self, contexts: i32) -> bool {
        let slot = self.choose().filter(|_| self.settled.is_none());
        let claimed = slot.filter(|slot| claim(self.job, *slot));
        let origin =
            claimed.zip(self.wanted).map(|(slot, members)| origin_of(self.job, slot, members));
        let shared = claimed.map_or(NONE, |slot| slot as u64);
        let mut agreed = claimed.is_some();
        self.parent.exchange(&[shared], |index, words| {
            agreed &= !self.is_wanted(index) || words[0].load(Ordering::Relaxed) == shared;
        });
        if let (Some(slot), Some(members), Some(origin)) = (claimed, self.wanted, origin) {
            if agreed {
                install(self.job, slot, members, contexts, origin);
                self.settled = claimed;
            } else {
                release(self.job, slot);
            }
        }
        // Where no slot is free another round finds none either.
        let content = slot.is_none() || agreed;
        let mut all = true;
        self.parent.exchange(&[u64::from(content)], |_, words| {
            all &= words[0].load(Ordering::Relaxed) == 1
        });
        all
    }
}

/// Agrees on a slot for a new team of each member of `parent`: `wanted` is that of this PE, if it
/// gets one. Collective over `parent`.
fn agree(
    job: &'static Job,
    parent: Team,
    wanted: Option<Members>,
    contexts: i32,
) -> Result<Option<Team>, Fault> {
    let mut agreement =
        Agreement { job, parent: Gathering::new(job, parent)?, wanted, settled: None };
    while !agreement.go_round(contexts) {}
    Ok(agreement.settled.map(Team::of_slot))
}

/// Returns this PE's number in a team, -1 for no team (`shmem_team_my_pe`).
///
/// # Errors
/// The library is not initialised.
pub fn my_pe(team: Team) -> Result<i32, Fault> {
    let job = job::get()?;
    Ok(job.teams.entry(team.slot()).map_or(-1, |(entry, _)| entry.me()))
}

/// Returns how many PEs a team has, -1 for no team (`shmem_team_n_pes`).
///
/// # Errors
/// The library is not initialised.
pub fn n_pes(team: Team) -> Result<i32, Fault> {
    let job = job::get()?;
    Ok(job.teams.entry(team.slot()).map_or(-1, |(_, members)| members.size))
}

/// Returns the number in another team of a PE of a team, -1 where it has none
/// (`shmem_team_translate_pe`).
///
/// # Errors
/// The library is not initialised.
pub fn translate_pe(source: Team, pe: i32, dest: Team) -> Result<i32, Fault> {
    let job = job::get()?;
    let (Some((_, from)), Some((_, to))) =
        (job.teams.entry(source.slot()), job.teams.entry(dest.slot()))
    else {
        return Ok(-1);
    };
    if !(0..from.size).contains(&pe) {
        return Ok(-1);
    }
    Ok(to.index(from.pe(pe as usize) as i32).unwrap_or(-1))
}

/// Returns 0 and the `num_contexts` of a team, or -1 (`shmem_team_get_config`).
///
/// # Errors
/// The library is not initialised.
pub fn config(team: Team) -> Result<(i32, i32), Fault> {
    let job = job::get()?;
    let entry = job.teams.entry(team.slot());
    Ok(entry.map_or((-1, 0), |(entry, _)| (0, entry.contexts.load(Ordering::Relaxed))))
}

/// Makes a team of every `stride`-th PE of another one (`shmem_team_split_strided`).
///
/// # Errors
/// The library is not initialised.
pub fn split_strided(
    parent: Team,
    start: i32,
    stride: i32,
    size: i32,
    contexts: i32,
) -> Result<(i32, Team), Fault> {
    let job = job::get()?;
    let Some((_, all)) = job.teams.entry(parent.slot()) else { return Ok((-1, Team::INVALID)) };
    let Some(members) = all.split(start, stride, size) else { return Ok((-1, Team::INVALID)) };
    let wanted = members.index(job.me as i32).map(|_| members);
    let team = agree(job, parent, wanted, contexts)?;
    let failed = wanted.is_some() && team.is_none();
    Ok((if failed { -1 } else { 0 }, team.unwrap_or(Team::INVALID)))
}

/// Makes the teams of this PE's row and column (`shmem_team_split_2d`).
///
/// # Errors
/// The library is not initialised.
pub fn split_2d(
    parent: Team,
    xrange: i32,
    contexts_x: i32,
    contexts_y: i32,
) -> Result<(i32, Team, Team), Fault> {
    let job = job::get()?;
    let none = (-1, Team::INVALID, Team::INVALID);
    let Some((entry, all)) = job.teams.entry(parent.slot()) else { return Ok(none) };
    if xrange < 1 {
        return Ok(none);
    }
    let (xrange, me) = (xrange.min(all.size), entry.me());
    let (row, column) = (me / xrange, me % xrange);
    let x = all.split(row * xrange, 1, xrange.min(all.size - row * xrange));
    let rows_here = (all.size - column + xrange - 1) / xrange;
    let y = all.split(column, xrange, rows_here);
    let x = agree(job, parent, x, contexts_x)?;
    let y = agree(job, parent, y, contexts_y)?;
    let failed = x.is_none() || y.is_none();
    Ok((if failed { -1 } else { 0 }, x.unwrap_or(Team::INVALID), y.unwrap_or(Team::INVALID)))
}

/// Destroys a team and its contexts (`shmem_team_destroy`).
///
/// # Errors
/// The library is not initialised, or the team is one of those that every program has.
pub fn destroy(team: Team) -> Result<(), Fault> {
    let job = job::get()?;
    if team == Team::INVALID {
        return Ok(());
    }
    let (entry, _) = job.teams.get(team)?;
    if [WORLD_SLOT, SHARED_SLOT].contains(&team.slot()) {
        return Err(Fault::value(
            "team",
            team.0 as i64,
            "SHMEM_TEAM_WORLD and SHMEM_TEAM_SHARED cannot be destroyed",
        ));
    }
    // Nobody reads what this team's members tell each other any more.
    Gathering::new(job, team)?.wait();
    for context in job.contexts.sessions_of(team.slot()) {
        session::end(job, context)?;
    }
    job.contexts.destroy_of(team.slot());
    entry.size.store(0, Ordering::Release);
    release(job, team.slot());
    Ok(())
}

/// Creates a context of a team: 0 and the context, or -1 and none (`shmem_team_create_ctx`).
///
/// # Errors
/// The library is not initialised.
pub fn create_context(team: Team, options: i64) -> Result<(i32, Context), Fault> {
    let job = job::get()?;
    if job.teams.entry(team.slot()).is_none() {
        return Ok((-1, Context::INVALID));
    }
    Ok(context::create_in(job, team.slot(), options))
}

/// Returns the address here of an object of a PE of `team`, or null (`shmem_team_ptr`).
///
/// # Errors
/// The library is not initialised.
pub fn ptr(team: Team, dest: Symmetric, pe: i32) -> Result<*mut u8, Fault> {
    match translate_pe(team, pe, Team::WORLD)? {
        -1 => Ok(std::ptr::null_mut()),
        pe => job::ptr(dest, pe),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const WORLD: Members = Members { start: 0, stride: 1, size: 12 };

    fn pes(members: Members) -> Vec<usize> {
        (0..members.size as usize).map(|index| members.pe(index)).collect()
    }

    #[test]
    fn split__of_a_split_is_a_sequence_again() {
        let odd = WORLD.split(1, 2, 6).expect("inside");
        assert_eq!(pes(odd), [1, 3, 5, 7, 9, 11]);
        let back = odd.split(5, -2, 3).expect("inside");
        assert_eq!(pes(back), [11, 7, 3]);
        assert_eq!(back.index(7), Some(1));
        assert_eq!(back.index(9), None);
        assert_eq!(back.index(15), None);
        let one = odd.split(3, 0, 1).expect("one may have stride 0");
        assert_eq!((pes(one), one.index(7), one.index(9)), (vec![7], Some(0), None));
    }

    #[test]
    fn split__what_leaves_the_team_is_none() {
        for (start, stride, size) in
            [(0, 1, 13), (12, 1, 1), (-1, 1, 2), (0, 0, 2), (0, 1, 0), (3, -2, 3), (0, i32::MAX, 3)]
        {
            assert_eq!(WORLD.split(start, stride, size), None, "{start} {stride} {size}");
        }
    }

    #[test]
    fn lowest_free__is_the_first_bit_that_nobody_has() {
        assert_eq!(lowest_free([0b1011, 0, 0, 0]), Some(2));
        assert_eq!(lowest_free([u64::MAX, 0b1, 0, 0]), Some(65));
        assert_eq!(lowest_free([u64::MAX; SLOT_WORDS]), None);
    }
}
