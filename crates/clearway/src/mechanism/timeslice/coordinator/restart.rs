//! Ranks that are started again in the middle of a run, as other processes.
//!
//! # Model
//! A process in the place of one that was killed opens its wire, is given what all were given at the
//! beginning, and is out. When it says that it is ready it is asked to join, as one that retired. A
//! lab starts it; to a job it comes by itself, and gets a place if a rank died.

use anyhow::{Result, bail};
use clearway_proto::base::Rank;

use super::super::count::RunCounts;
use super::super::messages::{
    RankRestart, TimesliceAssignment, TimesliceRequest, TimesliceResponse,
};
use super::super::plan::TimeslicePlan;
use super::super::run_progress::RunProgress;
use super::super::scheduled_change::ScheduledAction;
use super::TimesliceCoordinator;
use crate::run::notice;
use crate::run::venue::ProcessVenue;

/// Refuses a plan in which a rank comes back whose process cannot be started again.
pub(super) fn check(venue: &dyn ProcessVenue, plan: &TimeslicePlan) -> Result<()> {
    let is_killed_before = |rank: u32, number: usize| {
        plan.changes[..number]
            .iter()
            .rfind(|change| change.when.rank == rank)
            .is_some_and(|change| change.wanted == ScheduledAction::Death)
    };
    for (number, change) in plan.changes.iter().enumerate() {
        let rank = change.when.rank;
        if change.wanted == ScheduledAction::Return
            && is_killed_before(rank, number)
            && !venue.can_restart()
        {
            bail!(
                "--join {rank}@{}: a process that was killed is started again over UDP only, since the others know its address: \
                 --wire udp works",
                change.when.at
            );
        }
    }
    Ok(())
}

impl TimesliceCoordinator<'_> {
    /// Takes what `rank` says, whose process was started again and is out.
    pub(super) fn introduce(&mut self, rank: Rank, said: TimesliceResponse) -> Result<()> {
        match said {
            TimesliceResponse::Writes(name) => drop(self.unfinished.insert(rank, name)),
            TimesliceResponse::Taken => self.request(rank, TimesliceRequest::Join)?,
            // A lab was asked to bring it back. A job does without it, as before.
            TimesliceResponse::Failed(sentence) if self.venue.can_restart() => {
                bail!("{}, started again: {sentence}", self.name(rank))
            }
            TimesliceResponse::Failed(sentence) => {
                notice!("clearway: {}, which joins: {sentence}", self.name(rank));
            }
            _ => {}
        }
        Ok(())
    }

    /// Starts the process of `rank`, which has ended, again.
    pub(super) fn restart(
        &mut self,
        run_progress: &mut RunProgress,
        count: &mut RunCounts,
        rank: Rank,
    ) -> Result<()> {
        let name = self.name(rank);
        self.venue.restart(rank)?;
        self.assign_again(run_progress, count, rank, name)
    }

    /// Gives the process that asks for a place the one of a rank that died, if there is one of both;
    /// whether a rank has another process now.
    pub(super) fn admit_newcomer(
        &mut self,
        run_progress: &mut RunProgress,
        count: &mut RunCounts,
    ) -> Result<bool> {
        let Some(candidate) = self.venue.candidate() else { return Ok(false) };
        let rank = match run_progress.vacancy(candidate.wanted(), &|rank| self.name(rank)) {
            Ok(rank) => rank,
            Err(refusal) => {
                candidate.refuse(refusal);
                return Ok(false);
            }
        };
        let name = self.name(rank);
        if !self.venue.admit(candidate, rank)? {
            return Ok(false);
        }
        self.board.move_rank(rank, self.venue.processes().host(rank));
        notice!("clearway: {name} is replaced by {}", self.name(rank));
        self.assign_again(run_progress, count, rank, name)?;
        Ok(true)
    }

    /// Gives the new process of `rank`, which was called `name` before, its part.
    fn assign_again(
        &mut self,
        run_progress: &mut RunProgress,
        count: &mut RunCounts,
        rank: Rank,
        name: String,
    ) -> Result<()> {
        let Some(assignment) = self.assignment.clone() else { return Ok(()) };
        // Also where its process is only silent.
        self.dead_ranks.insert(rank);
        let archive = self.archive_of(rank);
        self.unfinished.remove(&rank);
        self.dead_ranks.remove(&rank);
        count.restart(rank);
        let incarnation = run_progress.restart(rank, name, archive);
        let is_alone = !self.venue.can_restart();
        let restart = Some(RankRestart { incarnation, origin: self.origin, is_alone });
        let assignment = TimesliceAssignment { restart, ..assignment };
        self.request(rank, TimesliceRequest::Take(Box::new(assignment)))
    }
}
