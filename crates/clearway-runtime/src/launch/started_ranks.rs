//! The ranks that this process started: who has joined, who ended and why, and their end with the
//! first that fails.
//!
//! # Invariants
//! I1. When [`StartedRanks`] is dropped no process of it is left.
//!
//! # Not here
//! How a rank is started (`start` on hosts, `here` on this one). The process of one rank
//! (`remote`).

use std::collections::BTreeMap;
use std::os::unix::process::ExitStatusExt;
use std::process::ExitStatus;
use std::thread;
use std::time::{Duration, Instant};

use clearway_proto::base::Rank;

use super::LaunchError;
use super::remote::{ExitReason, RemoteProcess};
use super::rendezvous::LOST;
use super::rendezvous::frame::{self, MemberKey};
use super::rendezvous::hub::{JobFailure, MemberKeys};
use super::rendezvous::hub_server::{HubEvent, HubServer};
use super::ssh::SECRET;
use super::ssh_connection::{END_TIMEOUT, SshConnection};

/// How often the children are looked at while nothing else happens.
pub(super) const LOOK_EVERY: Duration = Duration::from_millis(50);

/// The number that a shell adds to the number of a signal that ended a program (POSIX).
const SIGNALLED: i32 = 128;

/// How long ranks have to end by the word of the hub before they learn from their descriptor that
/// this process goes: a busy machine needs some scheduler slices for it.
const HEARING: Duration = Duration::from_millis(200);

/// How long the hub has to say why a rank ended badly that is gone already. What ended it came
/// through the hub before; the end of its connection may come late, as a child of it holds that too.
pub(super) const HINDSIGHT: Duration = Duration::from_millis(300);

/// How long ranks have to end by themselves when the job is over.
pub(super) const FAREWELL: Duration = Duration::from_secs(3);

/// The secrets of a job's ranks.
pub(super) struct LaunchSecrets {
    /// By rank.
    each: Vec<[u8; SECRET]>,
    of_job: [u8; SECRET],
}

impl LaunchSecrets {
    /// Draws new ones for `size` ranks.
    pub(super) fn draw(size: u32) -> Result<Self, LaunchError> {
        let each = (0..size).map(|_| frame::random()).collect::<Result<_, _>>()?;
        Ok(Self { each, of_job: frame::random()? })
    }

    /// Returns the keys by which the hub knows the ranks.
    pub(super) fn keys(&self) -> MemberKeys {
        MemberKeys::Each(self.each.iter().map(|secret| MemberKey::new(secret)).collect())
    }

    /// Returns the key of rank `rank`.
    pub(super) fn key(&self, rank: u32) -> MemberKey {
        MemberKey::new(&self.each[rank as usize])
    }

    /// Returns the secret that all ranks share.
    pub(super) fn job_key(&self) -> MemberKey {
        MemberKey::new(&self.of_job)
    }

    /// Returns the bytes for rank `rank`: its own secret and that of the job.
    pub(super) fn given_to(&self, rank: u32) -> Vec<u8> {
        [self.each[rank as usize], self.of_job].concat()
    }
}

/// The ranks; ended when this is dropped.
#[derive(Debug)]
pub(super) struct StartedRanks {
    pub(super) hub_server: HubServer,
    pub(super) program: String,
    pub(super) ranks: Vec<PlacedRank>,
    /// The connections of ssh that ranks share.
    pub(super) connections: Vec<SshConnection>,
    /// A rank that ends before the job does is a failure of the job.
    pub(super) needs_all: bool,
    /// All ranks have left the job. Their processes may go on.
    pub(super) have_left: bool,
}

/// One rank and its process, which is that of its ssh on another host.
#[derive(Debug)]
pub(super) struct PlacedRank {
    pub(super) rank: u32,
    pub(super) host: String,
    pub(super) process: RemoteProcess,
    pub(super) has_joined: bool,
}

impl PlacedRank {
    fn error(&self, what: String) -> LaunchError {
        LaunchError::Host { rank: Rank(self.rank), host: self.host.clone(), what, code: None }
    }

    /// Returns the error of a process that ended with `status`, and `when`.
    pub(super) fn ended(&self, status: ExitStatus, when: &str) -> LaunchError {
        let what = format!("ended with {status}{when}");
        // A signal counts as it does in a shell.
        let code = status.code().or_else(|| status.signal().map(|signal| SIGNALLED + signal));
        LaunchError::Host { rank: Rank(self.rank), host: self.host.clone(), what, code }
    }

    /// Returns why it never joined: its ssh ended with `status`.
    fn refused(&self, status: ExitStatus, program: &str) -> LaunchError {
        let host = self.host.clone();
        let said = self.process.last_error_line();
        match ExitReason::from_status(status) {
            ExitReason::Unreachable => {
                LaunchError::Unreachable { what: said.unwrap_or_else(|| status.to_string()), host }
            }
            ExitReason::NoProgram => LaunchError::NoProgram { host, program: program.to_owned() },
            ExitReason::Ended => {
                let said = said.map_or_else(String::new, |said| format!(" ({said})"));
                self.ended(status, &format!(" before it joined{said}"))
            }
        }
    }
}

impl StartedRanks {
    /// Creates a job without ranks yet. All are to run `program` and to meet at `hub_server`.
    pub(super) fn new(hub_server: HubServer, program: String) -> Self {
        let (ranks, connections) = (Vec::new(), Vec::new());
        Self { hub_server, program, ranks, connections, needs_all: true, have_left: false }
    }

    pub(super) fn is_complete(&self, ranks: usize) -> bool {
        self.ranks.len() == ranks && self.ranks.iter().all(|one| one.has_joined)
    }

    /// Returns how many ranks of each host have not yet said their first word.
    pub(super) fn waiting(&self) -> BTreeMap<String, usize> {
        let mut waiting: BTreeMap<String, usize> = BTreeMap::new();
        for one in self.ranks.iter().filter(|one| !one.has_joined) {
            *waiting.entry(one.host.clone()).or_default() += 1;
        }
        waiting
    }

    /// Takes in an event of the hub.
    ///
    /// # Errors
    /// The job came to a bad end.
    pub(super) fn take(&mut self, event: HubEvent) -> Result<(), LaunchError> {
        match event {
            HubEvent::Joined(rank) => {
                for one in self.ranks.iter_mut().filter(|one| one.rank == rank) {
                    one.has_joined = true;
                    one.process.forward_output();
                }
            }
            HubEvent::Over(Ok(())) => self.have_left = true,
            HubEvent::Over(Err(end)) => return Err(self.name_the_end(end)),
        }
        Ok(())
    }

    /// Takes in what happens next, within `pause`, while ranks are being started.
    pub(super) fn watch_start(
        &mut self,
        pause: Duration,
        until: Instant,
        timeout: Duration,
    ) -> Result<(), LaunchError> {
        if let Some(event) = self.hub_server.next(pause) {
            self.take(event)?;
        }
        for one in self.ranks.iter_mut().filter(|one| !one.has_joined) {
            if let Some(status) = one.process.ended() {
                return Err(one.refused(status, &self.program));
            }
        }
        let late = self.ranks.iter().find(|one| !one.has_joined && Instant::now() >= until);
        match late {
            Some(one) => Err(one.error(format!("did not join within {} s", timeout.as_secs_f32()))),
            None => Ok(()),
        }
    }

    /// Waits, not forever, until the processes of the ranks have ended, which all have left.
    pub(super) fn wait(mut self) -> Result<(), LaunchError> {
        let until = Instant::now() + FAREWELL;
        loop {
            let mut is_over = true;
            for one in &mut self.ranks {
                match one.process.ended() {
                    Some(status) if self.needs_all && !status.success() => {
                        return Err(one.ended(status, ""));
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

    /// Returns how the job came to its end, when it did not end well and the hub says so within
    /// `timeout`.
    pub(super) fn end_of_job(&mut self, timeout: Duration) -> Option<LaunchError> {
        let end = self.hub_server.wait_over(timeout)?.err()?;
        Some(self.name_the_end(end))
    }

    /// Returns the error for `end`, with the exit status of the rank that was its reason.
    fn name_the_end(&mut self, end: JobFailure) -> LaunchError {
        let until = Instant::now() + FAREWELL;
        let reason = self.ranks.iter_mut().find(|one| Some(one.rank) == end.rank);
        let Some(one) = reason else { return self.ended_by_wish(end) };
        loop {
            match one.process.ended() {
                Some(status) => return one.ended(status, " before the job did"),
                None if Instant::now() >= until => return ended(end),
                None => thread::sleep(LOOK_EVERY),
            }
        }
    }

    /// Returns the error for an end that a rank asked for. Its sentence may have come before this
    /// process heard that the rank joined, or may still be on its way: then nobody has read it.
    fn ended_by_wish(&self, mut end: JobFailure) -> LaunchError {
        let until = Instant::now() + HINDSIGHT;
        let may_be_lost = end.was_said
            && !end.sentence.is_empty()
            && self.ranks.iter().any(|one| one.process.has_own_output());
        while may_be_lost && end.was_said {
            let found = self.ranks.iter().find_map(|one| one.process.has_printed(&end.sentence));
            match found {
                Some(true) => break,
                None if Instant::now() < until => thread::sleep(LOOK_EVERY / 10),
                Some(false) | None => end.was_said = false,
            }
        }
        ended(end)
    }

    /// Ends all that is left.
    pub(super) fn end(&mut self) {
        // That their coordinator is gone, which they may notice first, is no news here.
        self.ranks.iter().for_each(|one| one.process.stop_output());
        self.connections.iter().for_each(SshConnection::stop_output);
        self.hub_server.end(LOST, "the coordinator of this job ended it".to_owned());
        let until = Instant::now() + HEARING;
        while self.ranks.iter_mut().any(|one| one.has_joined && one.process.ended().is_none())
            && Instant::now() < until
        {
            thread::sleep(LOOK_EVERY / 10);
        }
        for one in &mut self.ranks {
            // The end of the connection that carried the secret ends the rank, and with it its ssh.
            drop(one.process.input());
        }
        let until = Instant::now() + FAREWELL;
        for mut one in self.ranks.drain(..) {
            // How it ended is no news either.
            let _ = one.process.end_within(until.saturating_duration_since(Instant::now()));
        }
        SshConnection::end_all(std::mem::take(&mut self.connections), END_TIMEOUT);
    }
}

fn ended(end: JobFailure) -> LaunchError {
    LaunchError::Ended { code: end.code, sentence: end.sentence, was_said: end.was_said }
}

impl Drop for StartedRanks {
    fn drop(&mut self) {
        self.end();
    }
}
