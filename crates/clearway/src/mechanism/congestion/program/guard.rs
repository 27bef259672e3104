//! A process that runs a program of the user's when it gets the order, times it, and ends all of
//! it.
//!
//! # Model
//! Orders come by standard input, a word a line; each [`GO`] and each [`AGAIN`] is answered by one
//! [`FinishedRun`] on standard output. The program is a command line for a shell, in a process
//! group of its own, and whatever it leaves behind when it ends becomes a child of this process (it
//! is a subreaper), however often it changed its group or its parent. To end a program is to ask
//! its group first, so that an `mpirun` can end its ranks elsewhere, and to kill what is left.
//!
//! A guard has a process above it that only waits for it ([`watch`]). Whichever of the two is
//! killed, the other ends the program.
//!
//! # Source
//! prctl(2), `PR_SET_CHILD_SUBREAPER`, `PR_SET_PDEATHSIG`.
//!
//! # Invariants
//! I1. When standard input closes, however the coordinator ended, the program is ended and so is
//!     this process. The same when it is
//!     asked to end by a signal, or either of the two processes is killed.
//! I2. No descendant of a run lives when that run is answered for.
//! I3. Memory: the last lines of the program, cut, whatever it prints.

use std::io::{BufRead, BufReader, Read, Write};
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use anyhow::{Context, Result};
use clearway_proto::base::LocalNs;
use clearway_runtime::clock;
use nix::sys::prctl::{set_child_subreaper, set_pdeathsig};
use nix::sys::signal::Signal;
use nix::sys::wait::{Id, WaitPidFlag, waitid};
use nix::unistd::{Pid, getppid};
use serde::{Deserialize, Serialize};
use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};
use signal_hook::iterator::Signals;

use super::descendants;
use crate::report::numerals::printable;
use crate::run::exit::Exit;

/// Run it once.
pub(crate) const GO: &str = "go";
/// Run it again and again, until it fails or is stopped.
pub(crate) const AGAIN: &str = "again";
/// End the run.
pub(crate) const STOP: &str = "stop";

/// The pause before a program that ended is run again: one that ends at once must not take a
/// processor.
const PAUSE: Duration = Duration::from_millis(20);
/// What asks a guard to end; the first also says that its watcher is gone.
const SIGNALS: [i32; 3] = [SIGTERM, SIGINT, SIGHUP];
/// Longest line that is kept.
const LINE_MAX: u64 = 4096;

/// How a run went.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct FinishedRun {
    /// When it began, by the machine's clock.
    pub(crate) begin: LocalNs,
    /// When its first process ended.
    pub(crate) end: LocalNs,
    pub(crate) how: ProgramEnd,
    /// The last line that it printed with something in it.
    pub(crate) last_line: String,
    /// The same of its standard error.
    pub(crate) last_error: String,
}

/// How a program ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub(crate) enum ProgramEnd {
    /// With this exit status.
    Status(i32),
    /// By this signal.
    Signal(i32),
    /// Because it was asked to.
    Stopped,
}

enum GuardEvent {
    Go,
    Again,
    Stop,
    /// The first process of a run, by its number, has ended.
    Gone(Pid, LocalNs),
    /// Nobody gives orders any more.
    Closed,
}

/// Has a guard obey standard input for `program`, and ends what it leaves behind if it is killed.
pub(crate) fn watch(program: &str) -> Result<Exit> {
    set_child_subreaper(true).context("what a guard leaves behind cannot be had")?;
    let mut guard = Command::new(std::env::current_exe().context("the path of this program")?);
    guard.args(["guard", "--watched-by", &std::process::id().to_string(), program]);
    let status = guard.status().context("a guard cannot start")?;
    if status.success() {
        return Ok(Exit::Good);
    }
    descendants::ask_to_end();
    descendants::kill_all();
    Ok(Exit::Failed)
}

/// Obeys standard input for `program`, as long as `watcher` is there.
pub(crate) fn main(program: &str, watcher: u32) -> Result<Exit> {
    set_child_subreaper(true).context("what a program leaves behind cannot be had")?;
    let mut signals = Signals::new(SIGNALS).context("cannot listen for signals")?;
    set_pdeathsig(Signal::SIGTERM).context("a bond to the watching process")?;
    if getppid() != Pid::from_raw(watcher.cast_signed()) {
        return Ok(Exit::Failed);
    }
    let (sender, news) = channel();
    let orders = sender.clone();
    thread::spawn(move || listen(&orders));
    let end = sender.clone();
    thread::spawn(move || signals.forever().next().map(|_| end.send(GuardEvent::Closed)));
    let guard = Guard { program, sender, news };
    while let Ok(first) = guard.news.recv() {
        let finished = match first {
            GuardEvent::Go => guard.run()?,
            GuardEvent::Again => guard.run_again()?,
            GuardEvent::Stop | GuardEvent::Gone(..) => continue,
            GuardEvent::Closed => return Ok(Exit::Good),
        };
        let mut line =
            serde_json::to_vec(&finished.0).context("an answer that JSON cannot hold")?;
        line.push(b'\n');
        let said = std::io::stdout().write_all(&line);
        if said.is_err() || finished.1 == AfterAnswer::End {
            return Ok(Exit::Good);
        }
    }
    Ok(Exit::Good)
}

/// Hands on the orders of standard input.
fn listen(news: &Sender<GuardEvent>) {
    for line in std::io::stdin().lock().lines() {
        let order = match line.as_deref() {
            Ok(GO) => GuardEvent::Go,
            Ok(AGAIN) => GuardEvent::Again,
            Ok(STOP) => GuardEvent::Stop,
            _ => break,
        };
        if news.send(order).is_err() {
            return;
        }
    }
    let _ = news.send(GuardEvent::Closed);
}

/// What to do once a run is answered for.
#[derive(Clone, Copy, PartialEq, Eq)]
enum AfterAnswer {
    Wait,
    End,
}

struct Guard<'a> {
    program: &'a str,
    sender: Sender<GuardEvent>,
    news: Receiver<GuardEvent>,
}

/// A run under way.
struct GuardedRun {
    child: Child,
    begin: LocalNs,
    lines: [JoinHandle<String>; 2],
}

impl Guard<'_> {
    fn start(&self) -> Result<GuardedRun> {
        let mut command = Command::new("sh");
        command.args(["-c", self.program]).process_group(0);
        command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
        let begin = clock::now();
        let mut child = command.spawn().context("a shell for the program cannot start")?;
        let pid = pid_of(&child);
        let sender = self.sender.clone();
        // Seen, not reaped: until it is, its number and that of its group are nobody else's.
        thread::spawn(move || {
            let _ = waitid(Id::Pid(pid), WaitPidFlag::WEXITED | WaitPidFlag::WNOWAIT);
            let _ = sender.send(GuardEvent::Gone(pid, clock::now()));
        });
        let lines = [child.stdout.take().map(keep_last), child.stderr.take().map(keep_last)];
        let lines = lines.map(|line| line.unwrap_or_else(|| thread::spawn(String::new)));
        Ok(GuardedRun { child, begin, lines })
    }

    /// Does one run, to its end or to a word that ends it.
    fn run(&self) -> Result<(FinishedRun, AfterAnswer)> {
        let run = self.start()?;
        loop {
            match self.news.recv() {
                Ok(GuardEvent::Gone(pid, end)) if pid == pid_of(&run.child) => {
                    return Ok((run.close(end), AfterAnswer::Wait));
                }
                Ok(GuardEvent::Stop) => return Ok((run.end(), AfterAnswer::Wait)),
                Ok(GuardEvent::Closed) | Err(_) => return Ok((run.end(), AfterAnswer::End)),
                // An earlier run's first process, or an order that makes no sense now.
                Ok(GuardEvent::Go | GuardEvent::Again | GuardEvent::Gone(..)) => {}
            }
        }
    }

    /// Runs until one fails, or until a word ends it.
    fn run_again(&self) -> Result<(FinishedRun, AfterAnswer)> {
        let mut first = None;
        loop {
            let (finished, after) = self.run()?;
            let begin = *first.get_or_insert(finished.begin);
            if finished.how != ProgramEnd::Status(0) || after == AfterAnswer::End {
                return Ok((FinishedRun { begin, ..finished }, after));
            }
            match self.news.recv_timeout(PAUSE) {
                Err(RecvTimeoutError::Timeout)
                | Ok(GuardEvent::Go | GuardEvent::Again | GuardEvent::Gone(..)) => {}
                Ok(GuardEvent::Stop) => {
                    return Ok((
                        FinishedRun { begin, how: ProgramEnd::Stopped, ..finished },
                        AfterAnswer::Wait,
                    ));
                }
                Ok(GuardEvent::Closed) | Err(RecvTimeoutError::Disconnected) => {
                    return Ok((
                        FinishedRun { begin, how: ProgramEnd::Stopped, ..finished },
                        AfterAnswer::End,
                    ));
                }
            }
        }
    }
}

impl GuardedRun {
    /// Ends the run: asks, then kills.
    fn end(self) -> FinishedRun {
        descendants::ask_to_end();
        self.finish(clock::now(), ProgramEnd::Stopped)
    }

    /// Sees to a run whose first process ended by itself.
    fn close(mut self, end: LocalNs) -> FinishedRun {
        let how = self.child.wait().map_or(ProgramEnd::Stopped, how_ended);
        self.finish(end, how)
    }

    /// Kills what is left and reads what it said.
    fn finish(self, end: LocalNs, how: ProgramEnd) -> FinishedRun {
        descendants::kill_all();
        let [last_line, last_error] = self.lines.map(|line| line.join().unwrap_or_default());
        FinishedRun { begin: self.begin, end, how, last_line, last_error }
    }
}

fn pid_of(child: &Child) -> Pid {
    Pid::from_raw(child.id().cast_signed())
}

fn how_ended(status: ExitStatus) -> ProgramEnd {
    match status.code() {
        Some(code) => ProgramEnd::Status(code),
        None => ProgramEnd::Signal(status.signal().unwrap_or_default()),
    }
}

/// Reads `output` to its end and keeps its last line that says something.
fn keep_last(output: impl Read + Send + 'static) -> JoinHandle<String> {
    thread::spawn(move || {
        let mut output = BufReader::new(output);
        let (mut line, mut last) = (Vec::new(), String::new());
        loop {
            line.clear();
            if output.by_ref().take(LINE_MAX).read_until(b'\n', &mut line).unwrap_or(0) == 0 {
                return last;
            }
            let text = printable(&String::from_utf8_lossy(&line));
            if !text.trim().is_empty() {
                text.trim().clone_into(&mut last);
            }
        }
    })
}
