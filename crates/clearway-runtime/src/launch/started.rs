//! The ranks that this process started: who has joined, who ended and why, and their end with the first that fails.
//!
//! # Invariants
//! I1. When [`Started`] is dropped no process of it is left.
//!
//! # Not here
//! How a rank is started (`start`, for hosts). The process of one rank (`remote`).

use std::process::ExitStatus;
use std::thread;
use std::time::{Duration, Instant};

use clearway_proto::base::Rank;

use super::LaunchError;
use super::remote::{Reason, Remote};
use super::rendezvous::LOST;
use super::rendezvous::hall::{Event, Hall};
use super::rendezvous::hub::End;

/// How often the children are looked at while nothing else happens.
const LOOK_EVERY: Duration = Duration::from_millis(50);

/// How long ranks have to end by themselves when the job is over.
const FAREWELL: Duration = Duration::from_secs(3);

/// The ranks of the hosts; ended when this is dropped.
#[derive(Debug)]
pub(super) struct Started {
    pub(super) hall: Hall,
    pub(super) program: String,
    pub(super) ranks: Vec<Placed>,
    /// A rank that ends before the job does is a failure of the job.
    pub(super) needs_all: bool,
}

/// One rank and its ssh.
#[derive(Debug)]
pub(super) struct Placed {
    pub(super) rank: u32,
    pub(super) host: String,
    pub(super) ssh: Remote,
    pub(super) has_joined: bool,
}

impl Placed {
    fn error(&self, what: String) -> LaunchError {
        LaunchError::Host { rank: Rank(self.rank), host: self.host.clone(), what }
    }

    /// Why it never joined: its ssh ended with `status`.
    fn refused(&self, status: ExitStatus, program: &str) -> LaunchError {
        let host = self.host.clone();
        let said = self.ssh.last_words();
        match Reason::of(status) {
            Reason::Unreachable => LaunchError::Unreachable { what: said.unwrap_or_else(|| status.to_string()), host },
            Reason::NoProgram => LaunchError::NoProgram { host, program: program.to_owned() },
            Reason::Ended => {
                let said = said.map_or_else(String::new, |said| format!(" ({said})"));
                self.error(format!("ended with {status} before it joined{said}"))
            }
        }
    }
}

impl Started {
    pub(super) fn is_complete(&self, ranks: usize) -> bool {
        self.ranks.len() == ranks && self.ranks.iter().all(|one| one.has_joined)
    }

    /// Ranks of `host` that have not yet said their first word.
    pub(super) fn waiting(&self, host: &str) -> usize {
        self.ranks.iter().filter(|one| !one.has_joined && one.host == host).count()
    }

    /// Takes in what happens next while ranks are being started.
    pub(super) fn watch_start(&mut self, until: Instant, patience: Duration) -> Result<(), LaunchError> {
        match self.hall.next(LOOK_EVERY) {
            Some(Event::Joined(rank)) => {
                for one in self.ranks.iter_mut().filter(|one| one.rank == rank) {
                    one.has_joined = true;
                    one.ssh.speak_out();
                }
            }
            Some(Event::Over(outcome)) => return outcome.map_err(|end| self.name_the_end(end)),
            None => {}
        }
        for one in self.ranks.iter_mut().filter(|one| !one.has_joined) {
            if let Some(status) = one.ssh.ended() {
                return Err(one.refused(status, &self.program));
            }
        }
        let late = self.ranks.iter().find(|one| !one.has_joined && Instant::now() >= until);
        match late {
            Some(one) => Err(one.error(format!("did not join within {} s", patience.as_secs_f32()))),
            None => Ok(()),
        }
    }

    /// Waits, not forever, until the processes of the ranks have ended, which all have left.
    pub(super) fn wait(mut self) -> Result<(), LaunchError> {
        let until = Instant::now() + FAREWELL;
        loop {
            let mut is_over = true;
            for one in &mut self.ranks {
                match one.ssh.ended() {
                    Some(status) if self.needs_all && !status.success() => {
                        return Err(one.error(format!("ended with {status}")));
                    }
                    status => is_over &= status.is_some(),
                }
            }
            if is_over || Instant::now() >= until {
                return Ok(());
            }
            thread::sleep(LOOK_EVERY / 10);
        }
    }

    /// How the job came to its end, when it did not end well.
    pub(super) fn end_of_job(&mut self) -> Option<LaunchError> {
        let end = self.hall.wait_over(FAREWELL)?.err()?;
        Some(self.name_the_end(end))
    }

    /// The error for `end`, with the exit status of the rank that was its reason.
    fn name_the_end(&mut self, end: End) -> LaunchError {
        let until = Instant::now() + FAREWELL;
        let reason = self.ranks.iter_mut().find(|one| Some(one.rank) == end.rank);
        let Some(one) = reason else { return ended(end) };
        loop {
            match one.ssh.ended() {
                Some(status) => return one.error(format!("ended with {status} before the job did")),
                None if Instant::now() >= until => return ended(end),
                None => thread::sleep(LOOK_EVERY),
            }
        }
    }

    /// Ends all that is left.
    pub(super) fn end(&mut self) {
        // That their conductor is gone, which they may notice first, is no news here.
        self.ranks.iter().for_each(|one| one.ssh.fall_silent());
        self.hall.end(LOST, "the conductor of this job ended it".to_owned());
        for one in &mut self.ranks {
            // The end of its standard input ends the rank, and with it its ssh.
            drop(one.ssh.input());
        }
        let until = Instant::now() + FAREWELL;
        for mut one in self.ranks.drain(..) {
            // How it ended is no news either.
            let _ = one.ssh.end_within(until.saturating_duration_since(Instant::now()));
        }
    }
}

fn ended(end: End) -> LaunchError {
    LaunchError::Ended { code: end.code, sentence: end.sentence }
}

impl Drop for Started {
    fn drop(&mut self) {
        self.end();
    }
}
