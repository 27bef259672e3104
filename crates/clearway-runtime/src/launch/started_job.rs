//! A job that this process started and takes no part in, followed to its end.
//!
//! # Invariants
//! I1. When [`StartedJob`] is dropped no process of it is left.
//!
//! # Not here
//! How its ranks were started (`here` on this host, `start` on others).

use std::ops::ControlFlow;
use std::process::ExitStatus;
use std::thread;
use std::time::Duration;

use super::LaunchError;
use super::started_ranks::{HINDSIGHT, LOOK_EVERY, StartedRanks};

/// How often processes are looked at that have left their job and as a rule end at once.
const LOOK_AT_LAST: Duration = Duration::from_millis(10);

/// Holds the ranks of a job, and ends them when it is dropped.
#[derive(Debug)]
pub struct StartedJob {
    started: StartedRanks,
}

impl StartedJob {
    /// Follows `started`.
    pub(super) fn new(started: StartedRanks) -> Self {
        Self { started }
    }

    /// Waits until all processes have ended, for as long as they run. The first that fails ends all
    /// others. `watch` is called at least some twenty times a second and may end the job.
    ///
    /// # Errors
    /// A rank ended badly, left its job without the others, or asked for the end of the job; or
    /// `watch` wants an end. No process is left then. [`LaunchError::exit_code`] has the status to
    /// end with.
    pub fn wait(mut self, watch: &mut dyn FnMut() -> ControlFlow<()>) -> Result<(), LaunchError> {
        loop {
            if watch().is_break() {
                return Err(LaunchError::Stopped);
            }
            // Before the news: the hub hears that a rank joined before that rank can end.
            let ends: Vec<Option<ExitStatus>> =
                self.started.ranks.iter_mut().map(|one| one.process.ended()).collect();
            while let Some(event) = self.started.hub_server.next(Duration::ZERO) {
                self.started.take(event)?;
            }
            let is_job = self.started.ranks.iter().any(|one| one.has_joined);
            for (at, status) in ends.iter().enumerate().filter_map(|(at, end)| Some((at, (*end)?)))
            {
                self.check(at, status, is_job)?;
            }
            if ends.iter().all(Option::is_some) && (self.started.have_left || !is_job) {
                return Ok(());
            }
            if self.started.have_left {
                thread::sleep(LOOK_AT_LAST);
            } else if let Some(event) = self.started.hub_server.next(LOOK_EVERY) {
                self.started.take(event)?;
            }
        }
    }

    /// Looks whether the end of a process is one that the job can have.
    fn check(&mut self, at: usize, status: ExitStatus, is_job: bool) -> Result<(), LaunchError> {
        let Some(one) = self.started.ranks.get(at) else { return Ok(()) };
        if one.has_joined && !status.success() {
            let error = one.ended(status, "");
            // The hub knows more: whether this rank is the reason, or ended because another asked
            // for it.
            let reason = match self.started.have_left {
                true => None,
                false => self.started.end_of_job(HINDSIGHT),
            };
            return Err(reason.unwrap_or(error));
        }
        if !one.has_joined && (is_job || !status.success()) {
            return Err(one.ended(status, " before it joined"));
        }
        Ok(())
    }
}

impl Drop for StartedJob {
    fn drop(&mut self) {
        // A rank that has not joined does not look at the descriptor whose end is the word for all
        // others.
        self.started
            .ranks
            .iter_mut()
            .filter(|one| !one.has_joined)
            .for_each(|one| one.process.terminate());
    }
}
