//! A process that runs a program of the user's when it is told to, times it, and ends all of it.
//!
//! # Model
//! Orders come by standard input, a word a line; each [`GO`] and each [`AGAIN`] is answered by one [`Finished`] on standard
//! output. The program is a command line for a shell, in a process group of its own, and whatever it leaves behind when it ends
//! becomes a child of this process (it is a subreaper), however often it changed its group or its parent. To end a program is to
//! ask its group first, so that an `mpirun` can end its ranks elsewhere, and to kill what is left.
//!
//! # Source
//! prctl(2), `PR_SET_CHILD_SUBREAPER`.
//!
//! # Invariants
//! I1. When standard input closes, however the conductor ended, the program is ended and so is this process.
//! I2. No descendant of a run lives when that run is answered for.
//! I3. Memory: the last lines of the program, cut, whatever it prints.

use std::fs;
use std::io::{BufRead, BufReader, Read, Write};
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use anyhow::{Context, Result};
use clearway_proto::base::LocalNs;
use clearway_runtime::clock;
use nix::sys::signal::{Signal, kill, killpg};
use nix::sys::wait::{Id, WaitPidFlag, WaitStatus, waitid, waitpid};
use nix::unistd::Pid;
use serde::{Deserialize, Serialize};

use crate::exit::Exit;
use crate::report::numerals::printable;

/// Run it once.
pub(super) const GO: &str = "go";
/// Run it again and again, until it fails or is stopped.
pub(super) const AGAIN: &str = "again";
/// End the run.
pub(super) const STOP: &str = "stop";

/// How long a program may take to end when it is asked to: `mpirun` gives its ranks a second.
const GRACE: Duration = Duration::from_secs(3);
/// The pause before a program that ended is run again: one that ends at once shall not take a processor.
const PAUSE: Duration = Duration::from_millis(20);
/// Longest line that is kept.
const LINE_MAX: u64 = 4096;

/// How a run went.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(super) struct Finished {
    /// When it began, by the machine's clock.
    pub(super) begin: LocalNs,
    /// When its first process ended.
    pub(super) end: LocalNs,
    pub(super) how: How,
    /// The last line that it printed with something in it.
    pub(super) last_line: String,
    /// The same of its standard error.
    pub(super) last_error: String,
}

/// How a program ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub(super) enum How {
    /// With this exit status.
    Status(i32),
    /// By this signal.
    Signal(i32),
    /// Because it was told to.
    Stopped,
}

enum News {
    Go,
    Again,
    Stop,
    /// The first process of a run, by its number, has ended.
    Gone(Pid, LocalNs),
    /// Nobody gives orders any more.
    Closed,
}

/// Obeys standard input for `program`.
pub(crate) fn main(program: &str) -> Result<Exit> {
    nix::sys::prctl::set_child_subreaper(true).context("what a program leaves behind cannot be had")?;
    let (sender, news) = channel();
    let orders = sender.clone();
    thread::spawn(move || listen(&orders));
    let guard = Guard { program, sender, news };
    while let Ok(first) = guard.news.recv() {
        let finished = match first {
            News::Go => guard.run()?,
            News::Again => guard.run_again()?,
            News::Stop | News::Gone(..) => continue,
            News::Closed => return Ok(Exit::Good),
        };
        let mut line = serde_json::to_vec(&finished.0).context("an answer that JSON cannot hold")?;
        line.push(b'\n');
        let said = std::io::stdout().write_all(&line);
        if said.is_err() || finished.1 == After::End {
            return Ok(Exit::Good);
        }
    }
    Ok(Exit::Good)
}

/// Hands on the orders of standard input.
fn listen(news: &Sender<News>) {
    for line in std::io::stdin().lock().lines() {
        let order = match line.as_deref() {
            Ok(GO) => News::Go,
            Ok(AGAIN) => News::Again,
            Ok(STOP) => News::Stop,
            _ => break,
        };
        if news.send(order).is_err() {
            return;
        }
    }
    let _ = news.send(News::Closed);
}

/// What to do once a run is answered for.
#[derive(Clone, Copy, PartialEq, Eq)]
enum After {
    Wait,
    End,
}

struct Guard<'a> {
    program: &'a str,
    sender: Sender<News>,
    news: Receiver<News>,
}

/// A run under way.
struct Run {
    child: Child,
    begin: LocalNs,
    lines: [JoinHandle<String>; 2],
}

impl Guard<'_> {
    fn start(&self) -> Result<Run> {
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
            let _ = sender.send(News::Gone(pid, clock::now()));
        });
        let lines = [child.stdout.take().map(keep_last), child.stderr.take().map(keep_last)];
        let lines = lines.map(|line| line.unwrap_or_else(|| thread::spawn(String::new)));
        Ok(Run { child, begin, lines })
    }

    /// One run, to its end or to a word that ends it.
    fn run(&self) -> Result<(Finished, After)> {
        let run = self.start()?;
        loop {
            match self.news.recv() {
                Ok(News::Gone(pid, end)) if pid == pid_of(&run.child) => return Ok((run.close(end), After::Wait)),
                Ok(News::Stop) => return Ok((run.end(), After::Wait)),
                Ok(News::Closed) | Err(_) => return Ok((run.end(), After::End)),
                // An earlier run's first process, or an order that makes no sense now.
                Ok(News::Go | News::Again | News::Gone(..)) => {}
            }
        }
    }

    /// Runs until one fails, or until a word ends it.
    fn run_again(&self) -> Result<(Finished, After)> {
        let mut first = None;
        loop {
            let (finished, after) = self.run()?;
            let begin = *first.get_or_insert(finished.begin);
            if finished.how != How::Status(0) || after == After::End {
                return Ok((Finished { begin, ..finished }, after));
            }
            match self.news.recv_timeout(PAUSE) {
                Err(RecvTimeoutError::Timeout) | Ok(News::Go | News::Again | News::Gone(..)) => {}
                Ok(News::Stop) => return Ok((Finished { begin, how: How::Stopped, ..finished }, After::Wait)),
                Ok(News::Closed) | Err(RecvTimeoutError::Disconnected) => {
                    return Ok((Finished { begin, how: How::Stopped, ..finished }, After::End));
                }
            }
        }
    }
}

impl Run {
    /// Ends the run: asks, then kills.
    fn end(self) -> Finished {
        let group = pid_of(&self.child);
        // A stopped process hears nothing until it goes on.
        for signal in [Signal::SIGTERM, Signal::SIGCONT] {
            let _ = killpg(group, signal);
        }
        let until = Instant::now() + GRACE;
        while !children().is_empty() && Instant::now() < until {
            reap();
            thread::sleep(Duration::from_millis(2));
        }
        self.finish(clock::now(), How::Stopped)
    }

    /// Sees to a run whose first process ended by itself.
    fn close(mut self, end: LocalNs) -> Finished {
        let how = self.child.wait().map_or(How::Stopped, how_ended);
        self.finish(end, how)
    }

    /// Kills what is left and reads what it said.
    fn finish(self, end: LocalNs, how: How) -> Finished {
        end_children();
        let [last_line, last_error] = self.lines.map(|line| line.join().unwrap_or_default());
        Finished { begin: self.begin, end, how, last_line, last_error }
    }
}

fn pid_of(child: &Child) -> Pid {
    Pid::from_raw(child.id().cast_signed())
}

fn how_ended(status: ExitStatus) -> How {
    match status.code() {
        Some(code) => How::Status(code),
        None => How::Signal(status.signal().unwrap_or_default()),
    }
}

/// Kills all children of this process, those that become its children by that, and so on.
fn end_children() {
    let until = Instant::now() + GRACE;
    loop {
        let children = children();
        if children.is_empty() || Instant::now() >= until {
            return;
        }
        for child in children {
            let _ = kill(child, Signal::SIGKILL);
        }
        reap();
        thread::sleep(Duration::from_millis(1));
    }
}

/// Sees to all children that have ended.
fn reap() {
    while !matches!(waitpid(None, Some(WaitPidFlag::WNOHANG)), Ok(WaitStatus::StillAlive) | Err(_)) {}
}

/// The children of this process, by the table of all.
fn children() -> Vec<Pid> {
    let own = std::process::id();
    let is_child = |pid: &i32| {
        let stat = fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
        // The name in parentheses may hold anything; behind the last of them come the state and the parent.
        let parent = stat.rsplit_once(") ").and_then(|(_, rest)| rest.split(' ').nth(1)?.parse().ok());
        parent == Some(own)
    };
    let Ok(table) = fs::read_dir("/proc") else { return Vec::new() };
    let pids = table.flatten().filter_map(|entry| entry.file_name().to_str()?.parse().ok());
    pids.filter(is_child).map(Pid::from_raw).collect()
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
