//! Synchronises the members of a team: the step from which all collectives are built.
//!
//! # Model
//! Each member increments its own epoch, in a line that only it writes, and waits until the others
//! have done so. Up to 56 bytes of payload share the cache line, so that a small reduction costs one
//! step. Two lines alternate: a member that is one step ahead does not overwrite data that others
//! still read, and no member can be two steps ahead.
//!
//! In a small team each member polls the lines of all others. In a large team each member increments
//! a counter at the first member, and the last to arrive raises the epoch of a line on which all
//! wait: a sleeper is then woken once, not for each member. With 16 and 64 PEs on two busy processors such a step
//! takes 1.8 to 2.8 and 2.2 to 8.5 us of processor time for each PE; a tree of lines with eight
//! members in a node takes 1.8 to 14 and 2 to 47, polling all lines 1.8 to 5 and 2.6 to 31 (measured).
//! It is not measured with a processor for each PE.
//!
//! Between hosts only the first member on each host exchanges lines, which the members of the host
//! read in shared memory ([`super::hosts`]).
//!
//! | line of a slot | written by | holds |
//! |---|---|---|
//! | 0, 1 | its PE | epoch of that parity, payload |
//! | 2 | all, at the first member | number of arrivals |
//! | 3 | the last to arrive, at the first member; between hosts, the first member on a host | the epoch in which all arrived |
//!
//! # Invariants
//! I1. All members call the same steps of a team in the same order, one thread of each at a time
//!     (a duty of the program).

use std::sync::atomic::{AtomicU64, Ordering};

use clearway_runtime::near::{self, Line, PeerLocation};

use super::hosts::StepContents;
use crate::fault::Fault;
use crate::job::Job;
use crate::team::{Members, Team, TeamEntry, USED_SLOT};

/// Members that look at each other. Beyond it the first counts them.
const FLAT_MAX: i32 = 8;
/// Words that travel with a step.
pub(crate) const WORDS: usize = 7;
/// The line that counts arrivals, and the one that shows that all arrived.
const COUNT: usize = 2;
pub(super) const ALL_CAME: usize = 3;
/// The line of the slot that is no team's by which each PE notes its processor, plus one.
const NOTES: usize = 2;
/// Steps after which a PE notes its processor, whether it had to wait or not: an old note has the
/// others yield for a PE that runs.
const NOTED_EACH: u32 = 64;

/// The members of a team, about to do a step together.
#[derive(Clone, Copy)]
pub(crate) struct Gathering<'a> {
    pub(super) job: &'a Job,
    pub(super) entry: &'a TeamEntry,
    pub(crate) members: Members,
    pub(super) slot: usize,
}

impl<'a> Gathering<'a> {
    /// Those of `team`.
    #[inline]
    pub(crate) fn new(job: &'a Job, team: Team) -> Result<Self, Fault> {
        let (entry, members) = job.teams.get(team)?;
        Ok(Self { job, entry, members, slot: team.slot() })
    }

    /// This PE's number among them.
    pub(crate) fn me(&self) -> usize {
        self.entry.me() as usize
    }

    /// How many they are.
    pub(crate) fn size(&self) -> usize {
        self.members.size as usize
    }

    /// Returns when all have called it. What they stored before is seen afterwards.
    #[inline]
    pub(crate) fn wait(&self) {
        self.step(&[], StepContents::Nothing);
    }

    /// Tells all members up to [`WORDS`] words, and gives `read` what each sent, in the order of
    /// their numbers.
    #[inline]
    pub(crate) fn exchange(
        &self,
        shared: &[u64],
        mut read: impl FnMut(usize, &[AtomicU64; WORDS]),
    ) {
        let epoch = self.step(shared, StepContents::Lines);
        for index in 0..self.size() {
            read(index, &self.line(index, epoch).payload);
        }
    }

    /// Returns whether some of them are far.
    pub(super) fn spans_hosts(&self) -> bool {
        self.entry.spans_hosts()
    }

    /// The line of member `index` for `epoch`.
    #[inline]
    pub(super) fn line(&self, index: usize, epoch: u32) -> &'a Line {
        self.numbered(index, (epoch & 1) as usize)
    }

    /// The line of member `index` that has this number.
    #[inline]
    pub(super) fn numbered(&self, index: usize, number: usize) -> &'a Line {
        self.job.near.line(self.members.pe(index), self.slot, number)
    }

    #[inline]
    fn step(&self, shared: &[u64], given: StepContents) -> u32 {
        let epoch = self.entry.epoch.load(Ordering::Relaxed).wrapping_add(1);
        self.entry.epoch.store(epoch, Ordering::Relaxed);
        let own = self.job.near.line(self.job.me, self.slot, (epoch & 1) as usize);
        own.payload
            .iter()
            .zip(shared)
            .for_each(|(word, value)| word.store(*value, Ordering::Relaxed));
        if epoch.is_multiple_of(NOTED_EACH) {
            self.note_processor();
        }
        if let Some(far) = self.job.far.as_ref().filter(|_| self.entry.spans_hosts()) {
            own.reach(epoch, self.job.near.waking());
            self.step_between_hosts(far, epoch, given);
            return epoch;
        }
        if self.members.size > FLAT_MAX {
            self.count(epoch);
            return epoch;
        }
        own.reach(epoch, self.job.near.waking());
        let me = self.me();
        for index in (me + 1..self.size()).chain(0..me) {
            self.line(index, epoch).wait(epoch, &self.job.wait_policy, || self.location(epoch));
        }
        epoch
    }

    /// Returns where the members are that have not come.
    #[cold]
    fn location(&self, epoch: u32) -> PeerLocation {
        let here = self.note_processor();
        let is_missing = |index: &usize| !self.line(*index, epoch).has_reached(epoch);
        let is_here = |index| self.noted(self.members.pe(index)).load(Ordering::Relaxed) == here;
        if (0..self.size()).filter(is_missing).any(is_here) {
            PeerLocation::Here
        } else {
            PeerLocation::Elsewhere
        }
    }

    /// Notes for the others on which processor this PE is, and returns what stands there.
    #[cold]
    fn note_processor(&self) -> u64 {
        let here = near::processor() as u64 + 1;
        let noted = self.noted(self.job.me);
        // The others read it often, and it changes rarely.
        if noted.load(Ordering::Relaxed) != here {
            noted.store(here, Ordering::Relaxed);
        }
        here
    }

    fn noted(&self, pe: usize) -> &'a AtomicU64 {
        &self.job.near.line(pe, USED_SLOT, NOTES).payload[0]
    }

    /// The step of many members.
    fn count(&self, epoch: u32) {
        let first = self.members.pe(0);
        let (count, all) = (
            self.job.near.line(first, self.slot, COUNT),
            self.job.near.line(first, self.slot, ALL_CAME),
        );
        let steps = epoch.wrapping_sub(self.entry.origin.load(Ordering::Relaxed));
        let full = steps.wrapping_mul(self.members.size as u32);
        if count.epoch.fetch_add(1, Ordering::AcqRel).wrapping_add(1) == full {
            all.reach(epoch, self.job.near.waking());
        } else {
            all.wait(epoch, &self.job.wait_policy, || PeerLocation::Unknown);
        }
    }
}
