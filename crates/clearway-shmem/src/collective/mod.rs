//! Runs the collectives of a team: barriers, broadcasts, collections, exchanges and reductions.
//!
//! # Model
//! All consist of synchronisation steps ([`sync`]) and copies. A step carries up to 56 bytes. Longer
//! data is fetched: after a first step every source is ready, each member copies what it needs from
//! the others' memory, and a second step completes when all reads are done. A member writes only its own
//! memory, except in long reductions, which divide the work. Between hosts, the members of a host
//! share data that one of them fetched (`hosts`).
//!
//! # Source
//! OpenSHMEM 1.6, "Collective Routines".
//!
//! # Not here
//! Active sets, the deprecated form of teams (`active`).

pub mod active;
pub(crate) mod hosts;
mod reduce;
pub mod scan;
pub(crate) mod sync;

use std::sync::atomic::Ordering;

use crate::address::{Caller, Place, Symmetric};
use crate::context::Context;
use crate::fault::{Fault, Wrong};
use crate::job::{self, Job, Reach};
use crate::operand::{Operand, ReduceOp};
use crate::queue;
use crate::team::Team;

use self::sync::{Gathering, WORDS};

/// Bytes that travel with a step.
const SMALL: usize = WORDS * size_of::<u64>();

/// Completes what this PE did and waits until all PEs have called it (`shmem_barrier_all`).
///
/// # Errors
/// The library is not initialised.
#[inline]
pub fn barrier_all() -> Result<(), Fault> {
    let job = job::get()?;
    queue::finish(job)?;
    // What this PE stored in memory that is shared is seen by every PE that sees its step.
    if let Some(far) = &job.far {
        queue::complete_far(job);
        far.quiet(job.contexts.class(Context::DEFAULT));
    }
    Gathering::new(job, Team::WORLD)?.wait();
    Ok(())
}

/// Waits until all PEs have called it (`shmem_sync_all`).
///
/// # Errors
/// The library is not initialised.
#[inline]
pub fn sync_all() -> Result<(), Fault> {
    let job = job::get()?;
    queue::finish(job)?;
    Gathering::new(job, Team::WORLD)?.wait();
    Ok(())
}

/// Waits until all PEs of the team have called it (`shmem_team_sync`). Returns -1 for no team.
///
/// # Errors
/// The library is not initialised.
#[inline]
pub fn sync(team: Team) -> Result<i32, Fault> {
    on(team, |all| {
        all.wait();
        Ok(())
    })
}

/// Runs a collective of `team`: 0, or -1 for no team.
#[inline]
fn on(team: Team, run: impl FnOnce(&Together<'_>) -> Result<(), Fault>) -> Result<i32, Fault> {
    let job = job::get()?;
    queue::finish(job)?;
    if team == Team::INVALID {
        return Ok(-1);
    }
    run(&Together { job, all: Gathering::new(job, team)? })?;
    Ok(0)
}

/// The members of a team in a collective, and their memory.
pub(crate) struct Together<'a> {
    job: &'static Job,
    all: Gathering<'a>,
}

/// Whether the root of a broadcast writes its own `dest`.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum RootDest {
    Written,
    Kept,
}

/// Where the elements of a strided exchange lie.
#[derive(Clone, Copy)]
pub(crate) struct Pattern {
    pub(crate) dst: isize,
    pub(crate) sst: isize,
    pub(crate) count: usize,
    pub(crate) size: usize,
}

impl Together<'_> {
    fn wait(&self) {
        self.all.wait();
    }

    /// Returns the `bytes` bytes of member `index`.
    fn member(
        &self,
        index: usize,
        at: Symmetric,
        bytes: usize,
        argument: &'static str,
    ) -> Result<Reach<Place>, Fault> {
        let pe = self.all.members.pe(index) as i32;
        self.job.target(Context::DEFAULT, at, bytes, pe, argument)
    }

    /// Returns the place of `bytes` bytes of this PE; any place for none.
    fn own(&self, at: Symmetric, bytes: usize, argument: &'static str) -> Result<Place, Fault> {
        match self.member(self.all.me(), at, bytes, argument)? {
            Reach::Near(place) => Ok(place),
            Reach::Far(_) | Reach::Nothing => Ok(self.job.segments.nowhere()),
        }
    }

    /// Copies `bytes` bytes of a member to `into`, where they are after [`Self::complete`].
    fn fetch(&self, into: Place, from: Reach<Place>, bytes: usize) {
        match from {
            Reach::Near(from) => into.copy(from, bytes),
            Reach::Far(from) => from.get_nbi(into.as_caller(), bytes),
            Reach::Nothing => {}
        }
    }

    /// Returns the `bytes` bytes of member `index` where they can be read: in its memory, or in
    /// `copy`, into which they are fetched.
    fn elements(
        &self,
        index: usize,
        at: Symmetric,
        bytes: usize,
        copy: &mut Vec<u64>,
    ) -> Result<Option<Caller>, Fault> {
        Ok(match self.member(index, at, bytes, "source")? {
            Reach::Near(place) => Some(place.as_caller()),
            Reach::Far(object) => {
                copy.resize(bytes.div_ceil(size_of::<u64>()), 0);
                object.get(Caller::from_slice_mut(copy), bytes);
                Some(Caller::from_slice(copy))
            }
            Reach::Nothing => None,
        })
    }

    /// Returns when all that this PE fetched and put is where it belongs.
    fn complete(&self) {
        if let Some(far) = &self.job.far {
            far.quiet(self.job.contexts.class(Context::DEFAULT));
        }
    }

    /// Ends a collective: waits until no other PE reads this PE's memory.
    fn finish(&self) {
        self.complete();
        self.wait();
    }

    /// Sends up to [`SMALL`] bytes of this PE's memory, and gives `read` what each member sent.
    fn tell(&self, source: Place, bytes: usize, mut read: impl FnMut(usize, Caller)) {
        let mut words = [0u64; WORDS];
        source.get(Caller::from_slice_mut(&mut words), bytes);
        self.all.exchange(&words[..bytes.div_ceil(size_of::<u64>())], |index, line| {
            let copy: [u64; WORDS] = std::array::from_fn(|at| line[at].load(Ordering::Relaxed));
            read(index, Caller::from_slice(&copy));
        });
    }

    /// With `SHMEM_DEBUG`, refuses a collective that the members call differently: another one, or
    /// with other `arguments`.
    pub(crate) fn expect_same(&self, name: &'static str, arguments: [u64; 2]) -> Result<(), Fault> {
        if !self.job.debug {
            return Ok(());
        }
        // Names differ in their first letters.
        let shared = [
            name.bytes().take(8).fold(0, |word, byte| word << 8 | u64::from(byte)),
            arguments[0],
            arguments[1],
        ];
        let mut other = None;
        self.all.exchange(&shared, |index, words| {
            let theirs = [0, 1, 2].map(|at| words[at].load(Ordering::Relaxed));
            other = other.or((theirs != shared).then_some((index, theirs)));
        });
        let Some((index, theirs)) = other else { return Ok(()) };
        let what = if theirs[0] == shared[0] {
            "the same collective with other arguments"
        } else {
            "another collective"
        };
        let sentence = format!(
            "PE {index} of the team called {what}: {} and {} there, {} and {} here",
            theirs[1], theirs[2], shared[1], shared[2]
        );
        Err(Wrong::Failed(sentence).into())
    }

    /// With `SHMEM_DEBUG`, refuses a `dest` of `into` bytes and a `source` of `from` bytes that
    /// overlap. They may be the same.
    pub(crate) fn expect_apart(
        &self,
        (dest, into): (Symmetric, usize),
        (source, from): (Symmetric, usize),
    ) -> Result<(), Fault> {
        let ends = |at: Symmetric, bytes| at.raw().saturating_add(bytes);
        let overlap = dest.raw() < ends(source, from) && source.raw() < ends(dest, into);
        if !self.job.debug || !overlap || dest == source {
            return Ok(());
        }
        let (dest, source) = (dest.raw(), source.raw());
        Err(Wrong::Failed(format!(
            "`dest` is {dest:#x} with {into} bytes and `source` is {source:#x} with {from} bytes, which overlap; use \
             buffers that lie apart"
        ))
        .into())
    }

    pub(crate) fn broadcast(
        &self,
        dest: Symmetric,
        source: Symmetric,
        bytes: usize,
        root: i32,
        root_dest: RootDest,
    ) -> Result<(), Fault> {
        if !(0..self.all.members.size).contains(&root) {
            return Err(Fault::value("PE_root", root.into(), "use the number of a member"));
        }
        self.expect_same("broadcast", [bytes as u64, root as u64])?;
        self.expect_apart((dest, bytes), (source, bytes))?;
        let (root, me) = (root as usize, self.all.me());
        let is_written = me != root || (root_dest == RootDest::Written && dest != source);
        let into = if is_written { Some(self.own(dest, bytes, "dest")?) } else { None };
        if bytes <= SMALL {
            // Only the root's source counts, and only the root must have one.
            let from = if me == root {
                self.own(source, bytes, "source")?
            } else {
                self.job.segments.nowhere()
            };
            let shared = if me == root { bytes } else { 0 };
            self.tell(from, shared, |index, words| {
                if let (true, Some(into)) = (index == root, into) {
                    into.put(words, bytes);
                }
            });
            return Ok(());
        }
        let from = self.member(root, source, bytes, "source")?;
        if let Some(plan) = self.plan() {
            self.broadcast_to_hosts(&plan, dest, source, bytes, root)?;
            if let (true, Some(into)) = (me == root, into) {
                self.fetch(into, from, bytes);
            }
            return Ok(());
        }
        self.wait();
        if let Some(into) = into {
            self.fetch(into, from, bytes);
        }
        self.finish();
        Ok(())
    }

    /// Concatenates the `bytes` bytes of all members; `bytes` may differ.
    pub(crate) fn collect(
        &self,
        dest: Symmetric,
        source: Symmetric,
        bytes: usize,
    ) -> Result<(), Fault> {
        self.expect_same("collect", [0; 2])?;
        let mut lengths = vec![0usize; self.all.size()];
        self.all.exchange(&[bytes as u64], |index, words| {
            lengths[index] = words[0].load(Ordering::Relaxed) as usize
        });
        let total = lengths.iter().fold(0usize, |total, length| total.saturating_add(*length));
        let into = self.own(dest, total, "dest")?;
        self.expect_apart((dest, total), (source, bytes))?;
        let mut end = 0;
        let place = |length| {
            end += length;
            (end - length, length)
        };
        let blocks: Vec<(usize, usize)> = lengths.into_iter().map(place).collect();
        if let Some(plan) = self.plan() {
            return self.gather_blocks(&plan, dest, source, &blocks);
        }
        for (index, (at, length)) in blocks.into_iter().enumerate() {
            self.fetch(into.plus(at), self.member(index, source, length, "source")?, length);
        }
        self.finish();
        Ok(())
    }

    /// Concatenates the `bytes` bytes of all members.
    pub(crate) fn fcollect(
        &self,
        dest: Symmetric,
        source: Symmetric,
        bytes: usize,
    ) -> Result<(), Fault> {
        self.expect_same("fcollect", [bytes as u64, 0])?;
        let whole = bytes.saturating_mul(self.all.size());
        let into = self.own(dest, whole, "dest")?;
        let own = self.own(source, bytes, "source")?;
        self.expect_apart((dest, whole), (source, bytes))?;
        if bytes <= SMALL {
            self.tell(own, bytes, |index, words| into.plus(index * bytes).put(words, bytes));
            return Ok(());
        }
        self.wait();
        if let Some(plan) = self.plan() {
            let blocks: Vec<_> = (0..self.all.size()).map(|at| (at * bytes, bytes)).collect();
            return self.gather_blocks(&plan, dest, source, &blocks);
        }
        for index in self.rotated() {
            let from = self.member(index, source, bytes, "source")?;
            self.fetch(into.plus(index * bytes), from, bytes);
        }
        self.finish();
        Ok(())
    }

    /// Returns all members, beginning after this one, so that they do not all read the same one.
    fn rotated(&self) -> impl Iterator<Item = usize> + use<> {
        let (me, size) = (self.all.me(), self.all.size());
        (me + 1..size).chain(0..=me)
    }

    /// Gives block `i` of each source to member `i`.
    pub(crate) fn alltoall(
        &self,
        dest: Symmetric,
        source: Symmetric,
        bytes: usize,
    ) -> Result<(), Fault> {
        let (size, me) = (self.all.size(), self.all.me());
        self.expect_same("alltoall", [bytes as u64, 0])?;
        let whole = bytes.saturating_mul(size);
        let into = self.own(dest, whole, "dest")?;
        let own = self.own(source, whole, "source")?;
        self.expect_apart((dest, whole), (source, whole))?;
        if whole <= SMALL {
            let block = |words: Caller| words.plus((me * bytes) as isize);
            self.tell(own, whole, |index, words| into.plus(index * bytes).put(block(words), bytes));
            return Ok(());
        }
        self.wait();
        for index in self.rotated() {
            let from = self.member(index, source, whole, "source")?.plus(me * bytes);
            self.fetch(into.plus(index * bytes), from, bytes);
        }
        self.finish();
        Ok(())
    }

    /// Gives block `i` of each source to member `i`, where the elements of blocks lie apart.
    pub(crate) fn alltoalls(
        &self,
        dest: Symmetric,
        source: Symmetric,
        pattern: Pattern,
    ) -> Result<(), Fault> {
        let (size, me) = (self.all.size(), self.all.me());
        let (dst, sst) = (stride(pattern.dst, "dst")?, stride(pattern.sst, "sst")?);
        self.expect_same("s-alltoall", [pattern.count as u64, pattern.size as u64])?;
        let elements = pattern.count.saturating_mul(size);
        let span = |stride: usize| match elements {
            0 => 0,
            _ => {
                (elements - 1).saturating_mul(stride).saturating_add(1).saturating_mul(pattern.size)
            }
        };
        let into = self.own(dest, span(dst), "dest")?;
        self.own(source, span(sst), "source")?;
        self.wait();
        for index in self.rotated() {
            let from = self.member(index, source, span(sst), "source")?;
            for element in 0..pattern.count {
                let to = (index * pattern.count + element) * dst * pattern.size;
                let at = (me * pattern.count + element) * sst * pattern.size;
                self.fetch(into.plus(to), from.plus(at), pattern.size);
            }
        }
        self.finish();
        Ok(())
    }
}

fn stride(stride: isize, argument: &'static str) -> Result<usize, Fault> {
    match usize::try_from(stride) {
        Ok(stride) if stride > 0 => Ok(stride),
        _ => Err(Fault::value(argument, stride as i64, "use a stride of at least 1 element")),
    }
}

/// Copies the root's `source` to the `dest` of all PEs of the team, its own included
/// (`shmem_broadcast`).
///
/// # Errors
/// No such PE, or a buffer that leaves symmetric memory.
pub fn broadcast(
    team: Team,
    dest: Symmetric,
    source: Symmetric,
    bytes: usize,
    root: i32,
) -> Result<i32, Fault> {
    on(team, |all| all.broadcast(dest, source, bytes, root, RootDest::Written))
}

/// Concatenates the `source` of each PE of the team, of any length (`shmem_collect`).
///
/// # Errors
/// Not so much symmetric memory.
pub fn collect(team: Team, dest: Symmetric, source: Symmetric, bytes: usize) -> Result<i32, Fault> {
    on(team, |all| all.collect(dest, source, bytes))
}

/// Concatenates the `source` of each PE of the team, all of one length
/// (`shmem_fcollect`).
///
/// # Errors
/// Not so much symmetric memory.
pub fn fcollect(
    team: Team,
    dest: Symmetric,
    source: Symmetric,
    bytes: usize,
) -> Result<i32, Fault> {
    on(team, |all| all.fcollect(dest, source, bytes))
}

/// Gives block `i` of `bytes` bytes of each `source` to PE `i` of the team (`shmem_alltoall`).
///
/// # Errors
/// Not so much symmetric memory.
pub fn alltoall(
    team: Team,
    dest: Symmetric,
    source: Symmetric,
    bytes: usize,
) -> Result<i32, Fault> {
    on(team, |all| all.alltoall(dest, source, bytes))
}

/// Gives block `i` of each `source` to PE `i` of the team, element by element (`shmem_alltoalls`).
///
/// # Errors
/// Not so much symmetric memory, or a stride below 1.
pub fn alltoalls(
    team: Team,
    dest: Symmetric,
    source: Symmetric,
    dst: isize,
    sst: isize,
    count: usize,
    size: usize,
) -> Result<i32, Fault> {
    on(team, |all| all.alltoalls(dest, source, Pattern { dst, sst, count, size }))
}

/// Combines the elements of all PEs of the team (`shmem_<op>_reduce`).
///
/// # Errors
/// Not so much symmetric memory.
pub fn reduce<T: Operand>(
    team: Team,
    op: ReduceOp,
    dest: Symmetric,
    source: Symmetric,
    count: usize,
) -> Result<i32, Fault> {
    on(team, |all| all.reduce::<T>(op, dest, source, count))
}
