//! A program of the user's on the hosts where it plays its part: one guard on each, which get
//! commands and are heard together.
//!
//! # Invariants
//! I1. Dropping a group closes its guards' standard input, which ends every program, and waits for
//!     them.

use std::fmt;
use std::io::{BufRead, BufReader, Read, Write};
use std::os::unix::process::CommandExt;
use std::process::{Child, ChildStdin, Command, Stdio};
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use clearway_proto::base::LocalNs;

use super::guard::{AGAIN, FinishedRun, GO, ProgramEnd, STOP};

/// Longest answer of a guard: two lines and some numbers, each character perhaps escaped.
const ANSWER_MAX: u64 = 64 << 10;
/// How long a guard may take to answer for a program that it was asked to end, beyond the time that
/// it gives the program.
const TIMEOUT: Duration = Duration::from_secs(30);
/// How often one that waits looks around.
const LOOK_EVERY: Duration = Duration::from_millis(20);

/// What a program is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ProgramRole {
    /// It is timed.
    Victim,
    /// It loads.
    Congestor,
}

impl fmt::Display for ProgramRole {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Victim => "victim",
            Self::Congestor => "congestor",
        })
    }
}

/// One guard.
struct GuardProcess {
    host: String,
    guard: Child,
    orders: Option<ChildStdin>,
    /// The run that it was asked to make is answered for.
    finished: Option<FinishedRun>,
}

/// A program on its hosts.
pub(crate) struct ProgramGroup {
    part: ProgramRole,
    program: String,
    members: Vec<GuardProcess>,
    sender: Sender<(usize, Option<FinishedRun>)>,
    heard: Receiver<(usize, Option<FinishedRun>)>,
}

/// A run of a group that came to its end.
pub(crate) struct GroupRun {
    /// From the first beginning.
    pub(crate) begin: LocalNs,
    /// To the last end.
    pub(crate) end: LocalNs,
    /// The last line that the program printed on its first host.
    pub(crate) last_line: String,
}

impl ProgramGroup {
    /// Creates the group of `program` as `part`, nowhere yet.
    pub(crate) fn new(part: ProgramRole, program: &str) -> Self {
        let (sender, heard) = channel();
        Self { part, program: program.to_owned(), members: Vec::new(), sender, heard }
    }

    /// Creates the group of `program` as `part`, once, on this machine.
    pub(crate) fn here(part: ProgramRole, program: &str) -> Result<Self> {
        let mut group = Self::new(part, program);
        let guard = group.guard()?.spawn().context("a guard for a command cannot start")?;
        group.add("this host", guard)?;
        Ok(group)
    }

    /// Returns the command that starts a guard, not yet placed anywhere.
    pub(crate) fn guard(&self) -> Result<Command> {
        let mut command =
            Command::new(std::env::current_exe().context("the path of this program")?);
        // A process group of its own: an interrupt at the terminal reaches the coordinator, which
        // then ends all in order.
        command.args(["guard", &self.program]).process_group(0);
        command.stdin(Stdio::piped()).stdout(Stdio::piped());
        Ok(command)
    }

    /// Takes a guard that was started with [`ProgramGroup::guard`] on `host`.
    pub(crate) fn add(&mut self, host: &str, mut guard: Child) -> Result<()> {
        let output = guard.stdout.take().context("a guard without output")?;
        let (number, sender) = (self.members.len(), self.sender.clone());
        thread::spawn(move || {
            let mut output = BufReader::new(output);
            let mut line = Vec::new();
            loop {
                line.clear();
                let read =
                    output.by_ref().take(ANSWER_MAX).read_until(b'\n', &mut line).unwrap_or(0);
                let finished = serde_json::from_slice(&line).ok().filter(|_| read > 0);
                let is_over = finished.is_none();
                if sender.send((number, finished)).is_err() || is_over {
                    return;
                }
            }
        });
        let orders = guard.stdin.take();
        self.members.push(GuardProcess { host: host.to_owned(), guard, orders, finished: None });
        Ok(())
    }

    fn send_order(&mut self, order: &str) -> Result<()> {
        for member in &mut self.members {
            let reported =
                member.orders.as_mut().map(|pipe| pipe.write_all(format!("{order}\n").as_bytes()));
            if !matches!(reported, Some(Ok(()))) {
                bail!(
                    "the guard of the {} command on {} is gone; run again",
                    self.part,
                    member.host
                );
            }
        }
        Ok(())
    }

    /// Takes in what guards say within `timeout`.
    fn receive_answers(&mut self, timeout: Duration) -> Result<()> {
        match self.heard.recv_timeout(timeout) {
            Ok((number, Some(finished))) => {
                let member = self.members.get_mut(number).context("a guard that nobody started")?;
                member.finished = Some(finished);
                Ok(())
            }
            Ok((number, None)) => {
                let host = self.members.get(number).map_or("?", |member| &member.host);
                bail!("the guard of the {} command on {host} is gone; run again", self.part)
            }
            Err(RecvTimeoutError::Timeout) => Ok(()),
            Err(RecvTimeoutError::Disconnected) => {
                bail!("the guards of the {} command are gone; run again", self.part)
            }
        }
    }

    fn begin(&mut self, order: &str) -> Result<()> {
        for member in &mut self.members {
            member.finished = None;
        }
        self.send_order(order)
    }

    /// Runs the program once. `None` when it was ended because it took longer than `limit`; `watch`
    /// is called some fifty times a second and can end the wait, the program with it.
    ///
    /// # Errors
    /// One sentence: the program failed, and its last word.
    pub(crate) fn run_once(
        &mut self,
        limit: Duration,
        watch: &mut dyn FnMut() -> Result<()>,
    ) -> Result<Option<GroupRun>> {
        self.begin(GO)?;
        let until = Instant::now() + limit;
        while self.members.iter().any(|member| member.finished.is_none()) {
            self.receive_answers(LOOK_EVERY)?;
            // On several hosts, one that failed leaves the others waiting for it.
            self.check()?;
            if Instant::now() >= until {
                self.stop()?;
                return Ok(None);
            }
            watch()?;
        }
        let finished = || self.members.iter().filter_map(|member| member.finished.as_ref());
        let (begin, end) = (finished().map(|it| it.begin).min(), finished().map(|it| it.end).max());
        let (begin, end) = begin.zip(end).context("a program on no host")?;
        let last_line = finished().next().map(|it| it.last_line.clone()).unwrap_or_default();
        Ok(Some(GroupRun { begin, end, last_line }))
    }

    /// Starts the program, to be run again and again until [`ProgramGroup::stop`].
    pub(crate) fn run_repeatedly(&mut self) -> Result<()> {
        self.begin(AGAIN)
    }

    /// Says in one sentence on which host the program failed, if it did.
    pub(crate) fn check(&mut self) -> Result<()> {
        self.receive_answers(Duration::ZERO)?;
        for GuardProcess { host, finished, .. } in &self.members {
            let Some(FinishedRun { how, last_error, .. }) = finished else { continue };
            let how = match how {
                ProgramEnd::Status(0) | ProgramEnd::Stopped => continue,
                ProgramEnd::Status(code) => format!("ended with status {code}"),
                ProgramEnd::Signal(signal) => format!("was killed by signal {signal}"),
            };
            let said = if last_error.is_empty() {
                "it said nothing on standard error"
            } else {
                last_error
            };
            bail!("the {} command {how} on {host}: {said}", self.part);
        }
        Ok(())
    }

    /// Asks the program to end on all hosts.
    pub(crate) fn ask_to_stop(&mut self) -> Result<()> {
        self.send_order(STOP)
    }

    /// Returns whether nothing is left of the program that was started last.
    pub(crate) fn is_over(&mut self) -> Result<bool> {
        self.receive_answers(Duration::ZERO)?;
        Ok(self.members.iter().all(|member| member.finished.is_some()))
    }

    /// Names the command and a host on which something of it is left.
    pub(crate) fn unfinished(&self) -> String {
        let left = self.members.iter().find(|member| member.finished.is_none());
        let host = left.map_or("no host", |member| &member.host);
        format!("the {} command on {host}", self.part)
    }

    /// Ends the program on all hosts and waits until nothing of it is left.
    pub(crate) fn stop(&mut self) -> Result<()> {
        self.ask_to_stop()?;
        let until = Instant::now() + TIMEOUT;
        while let Some(member) = self.members.iter().find(|member| member.finished.is_none()) {
            if Instant::now() >= until {
                bail!("the {} command on {} cannot be ended", self.part, member.host);
            }
            self.receive_answers(LOOK_EVERY)?;
        }
        Ok(())
    }
}

impl Drop for ProgramGroup {
    fn drop(&mut self) {
        for member in &mut self.members {
            member.orders = None;
        }
        for member in &mut self.members {
            let _ = member.guard.wait();
        }
    }
}
