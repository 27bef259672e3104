//! The archives of a run: those that inputs read are looked for before anything is made, those that
//! builders write get their names when all of them are whole.
//!
//! # Invariants
//! I1. A run that fails leaves no file that is in the way of the same run.

use std::collections::BTreeSet;
use std::fs;
use std::io::ErrorKind;
use std::time::Instant;

use anyhow::{Result, bail};
use clearway_proto::base::Rank;
use clearway_proto::timeslice::Policy;

use super::super::messages::{SinkKind, SourceKind, TimesliceRequest, TimesliceResponse};
use super::super::run_progress::{RankLoss, RunProgress};
use super::super::settled::SettledWork;
use super::super::sink::BUILDER;
use super::origin::FirstStarts;
use super::{LOOK_EVERY, TIMEOUT, TimesliceCoordinator};
use crate::mechanism::timeslice::archive::{INPUT, filled};
use crate::run::interrupt::Interrupted;

impl TimesliceCoordinator<'_> {
    /// Refuses a source that is not there, before anything is made.
    pub(super) fn check_sources(&mut self) -> Result<()> {
        let SourceKind::Archives(template) = &self.task.feed.source else { return Ok(()) };
        for input in 0..self.plan.inputs {
            let own = filled(template, INPUT, input.into()).to_string_lossy().into_owned();
            self.request(Rank(input), TimesliceRequest::Look(own))?;
        }
        self.await_all(self.plan.inputs as usize, &mut FirstStarts::default())
    }

    /// Gives the archives of builders their names. Those of `done` are whole; who is out and lives
    /// gives its own what counts of it.
    pub(super) fn keep(&mut self, done: &BTreeSet<Rank>) -> Result<()> {
        let living: Vec<Rank> = self
            .unfinished
            .keys()
            .filter(|rank| !self.dead_ranks.contains(rank))
            .copied()
            .collect();
        let mut awaited: BTreeSet<Rank> =
            living.iter().filter(|rank| done.contains(rank)).copied().collect();
        living.into_iter().try_for_each(|rank| self.request(rank, TimesliceRequest::Keep))?;
        let deadline = Instant::now() + TIMEOUT;
        while let Some(first) = awaited.first().copied() {
            match self.next_response(LOOK_EVERY)? {
                Some((rank, Ok(TimesliceResponse::Kept))) => {
                    awaited.remove(&rank);
                    self.unfinished.remove(&rank);
                }
                Some((rank, Ok(TimesliceResponse::Failed(sentence)))) => {
                    bail!("{}: {sentence}", self.name(rank))
                }
                Some((rank, Err(how))) if awaited.contains(&rank) => {
                    bail!("{} {how} before its archive had its name", self.name(rank))
                }
                None if Instant::now() > deadline => {
                    bail!("{} does not name its archive", self.name(first))
                }
                _ => {}
            }
        }
        Ok(())
    }

    /// Ends the ranks after `error` and removes what they left unfinished on this host; elsewhere
    /// they do. The error, which says what is left.
    pub(super) fn give_up(&mut self, error: anyhow::Error) -> anyhow::Error {
        self.venue.processes_mut().end();
        let host = self.venue.coordinator_host();
        let ranks = self.venue.processes();
        let is_here = |rank: &Rank| host.as_deref().is_none_or(|host| ranks.host(*rank) == host);
        let mut left: Vec<String> = self
            .unfinished
            .iter()
            .filter(|(rank, _)| is_here(rank))
            .map(|it| it.1.clone())
            .collect();
        left.retain(|name| {
            fs::remove_file(name).is_err_and(|error| error.kind() != ErrorKind::NotFound)
        });
        match error.downcast::<Interrupted>() {
            Ok(_) => Interrupted { left }.into(),
            Err(error) if left.is_empty() => error,
            Err(error) => error.context(format!("{} is left behind, unfinished", left.join(", "))),
        }
    }

    /// Returns who was out, what counts of the work of each, and where that is; `settled` has what was
    /// settled of each that no rank has.
    pub(super) fn deaths(
        &self,
        policy: Policy,
        run_progress: &RunProgress,
        settled: &[SettledWork],
    ) -> Vec<RankLoss> {
        let mut deaths: Vec<RankLoss> = run_progress.all_deaths().cloned().collect();
        for (number, death) in deaths.iter_mut().enumerate() {
            death.policy = Some(policy);
            if death.name.is_empty() {
                death.name = self.name(death.rank);
            }
            if let Some(count) = SettledWork::of_loss(settled, run_progress, number) {
                death.settled = count;
                death.archive = death.archive.take().or_else(|| self.archive_of(death.rank));
            }
        }
        deaths
    }

    /// Returns where the timeslices of the builder `rank` are, which is out, if it writes archives:
    /// one that is dead gives its own no name.
    pub(super) fn archive_of(&self, rank: Rank) -> Option<String> {
        let place = rank.0.checked_sub(self.plan.inputs)?;
        match &self.task.feed.sink {
            SinkKind::Archives(_) | SinkKind::Compressed(_) if self.dead_ranks.contains(&rank) => {
                self.unfinished.get(&rank).cloned()
            }
            SinkKind::Archives(template) | SinkKind::Compressed(template) => {
                Some(filled(template, BUILDER, u64::from(place)).display().to_string())
            }
            _ => None,
        }
    }
}
