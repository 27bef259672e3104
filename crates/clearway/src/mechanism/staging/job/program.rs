//! The program of a task: it runs in a process group of its own, and ends when its task dies.

use std::ffi::OsString;
use std::io::{self, IsTerminal};
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::path::Path;
use std::process::{Child, Command, ExitStatus};
use std::thread;

use anyhow::{Context, Result, anyhow};
use clap::Args;
use clearway_runtime::launch::escaped;
use nix::sys::prctl::set_pdeathsig;
use nix::sys::signal::Signal::{self, SIGKILL};
use nix::sys::signal::{kill, killpg};
use nix::sys::wait::{Id, WaitPidFlag, WaitStatus, waitid};
use nix::unistd::{Pid, getpgrp, getpid, getppid};
use signal_hook::consts::{SIGHUP, SIGINT, SIGQUIT, SIGTERM, SIGUSR1, SIGUSR2};
use signal_hook::iterator::Signals;

use super::message::ApplicationEnd;
use super::{DIRECTORY_VARIABLE, TaskSpec};
use crate::run::exit::Exit;

/// The exit status of a shell for a program that is not there.
const NOT_FOUND: i32 = 127;
/// What a shell adds to the number of a signal for the exit status.
const SIGNALED: i32 = 128;

/// Signals that are passed on to the program.
pub(super) const PASSED_ON: [i32; 6] = [SIGHUP, SIGINT, SIGQUIT, SIGTERM, SIGUSR1, SIGUSR2];
/// What the process that holds the program gets when its task dies: a signal that nobody else sends.
const TASK_DIED: i32 = Signal::SIGPWR as i32;

/// Flags of the process that holds the program.
#[derive(Debug, Args)]
pub(crate) struct HeldProgramFlags {
    /// Name the task.
    #[arg(long, value_name = "PID")]
    task: u32,
    /// Run this program with these arguments.
    #[arg(required = true, trailing_var_arg = true)]
    program: Vec<OsString>,
}

/// Holds the program: starts it, ends as it ends, and kills it with its children when the task dies.
///
/// # Errors
/// One sentence: it cannot be held.
pub(crate) fn hold(flags: &HeldProgramFlags) -> Result<Exit> {
    let all = PASSED_ON.iter().chain([&TASK_DIED]);
    let mut signals = Signals::new(all).context("cannot listen for signals")?;
    set_pdeathsig(Signal::SIGPWR).context("cannot ask for a signal at the death of the task")?;
    if getppid() != Pid::from_raw(flags.task.cast_signed()) {
        return Ok(Exit::Failed);
    }
    let (program, arguments) = flags.program.split_first().context("no program is named")?;
    let mut child = match Command::new(program).args(arguments).spawn() {
        Ok(child) => child,
        Err(why) => {
            let shown = Path::new(program).display();
            eprintln!("clearway: cannot start {}: {why}", escaped(&shown.to_string()));
            std::process::exit(NOT_FOUND)
        }
    };
    let process = Pid::from_raw(child.id().cast_signed());
    // What came until now reached only this process: there was no program yet.
    let early: Vec<i32> = signals.pending().collect();
    thread::spawn(move || {
        for signal in early {
            match Signal::try_from(signal) {
                Ok(passed) if signal != TASK_DIED => drop(kill(process, passed)),
                _ => kill_all(process),
            }
        }
        // Other signals reach the program without help: they are sent to the whole group.
        signals.forever().filter(|signal| *signal == TASK_DIED).for_each(|_| kill_all(process));
    });
    let status = child.wait().context("the program cannot be waited for")?;
    match status.signal() {
        Some(signal) if signal == SIGKILL as i32 => drop(kill(getpid(), SIGKILL)),
        // A signal that cannot be raised becomes a status, as in a shell.
        Some(signal) => drop(signal_hook::low_level::emulate_default_handler(signal)),
        None => {}
    }
    std::process::exit(shell_status(status))
}

/// Kills the program, and its children where they have a group of their own.
fn kill_all(process: Pid) {
    let is_group = getpgrp() == getpid();
    let _ = if is_group { killpg(getpid(), SIGKILL) } else { kill(process, SIGKILL) };
}

/// A program that runs.
pub(super) struct RunningProgram {
    child: Child,
    /// It has a process group of its own.
    has_group: bool,
}

impl RunningProgram {
    /// Starts the program of a task; `directory` is the mount point.
    ///
    /// # Errors
    /// The system has no room for a process.
    pub(super) fn spawn(spec: &TaskSpec<'_>, directory: &Path) -> Result<Self> {
        let program = std::env::current_exe().context("cannot find this program")?;
        let mut command = Command::new(program);
        command.args(["stage", "job-program", "--task", &std::process::id().to_string(), "--"]);
        command.args(&spec.flags.program).env(DIRECTORY_VARIABLE, directory);
        spec.share.give_to(&mut command)?;
        // At a terminal only its foreground group can read, and its signals reach that group.
        let has_group = !io::stdin().is_terminal();
        if has_group {
            command.process_group(0);
        }
        let child = command.spawn().context("cannot start the program")?;
        Ok(Self { child, has_group })
    }

    pub(super) fn id(&self) -> u32 {
        self.child.id()
    }

    /// Returns whether the program has ended; its status is still to be taken.
    pub(super) fn has_ended(&self) -> bool {
        let process = Pid::from_raw(self.child.id().cast_signed());
        let flags = WaitPidFlag::WEXITED | WaitPidFlag::WNOHANG | WaitPidFlag::WNOWAIT;
        !matches!(waitid(Id::Pid(process), flags), Ok(WaitStatus::StillAlive))
    }

    /// Sends a signal to the program and its children.
    pub(super) fn signal(&self, signal: Signal) {
        let process = Pid::from_raw(self.child.id().cast_signed());
        // One that has ended needs none.
        let _ = if self.has_group { killpg(process, signal) } else { kill(process, signal) };
    }

    /// Passes on a signal that the task got. At a terminal the program got it, too.
    pub(super) fn pass_on(&self, signal: Signal) {
        if self.has_group || !matches!(signal, Signal::SIGINT | Signal::SIGQUIT) {
            self.signal(signal);
        }
    }

    /// Takes the status of a program that has ended, and ends what it left in its group.
    ///
    /// # Errors
    /// The status cannot be had.
    pub(super) fn finish(mut self) -> Result<ExitStatus> {
        if self.has_group {
            self.signal(SIGKILL);
        }
        self.child.wait().map_err(|why| anyhow!("the program cannot be waited for: {why}"))
    }
}

/// Returns the status that a shell has for a program that ended with `status`.
pub(super) fn shell_status(status: ExitStatus) -> i32 {
    status.code().unwrap_or_else(|| SIGNALED + status.signal().unwrap_or_default())
}

/// Returns how a program with this status ended.
pub(super) fn end_with(status: ExitStatus) -> ApplicationEnd {
    match status.code() {
        Some(0) => ApplicationEnd::Good,
        Some(_) => ApplicationEnd::Bad,
        None => ApplicationEnd::Killed,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn shell_status__of_a_status_and_of_a_signal() {
        assert_eq!(shell_status(ExitStatus::from_raw(7 << 8)), 7);
        assert_eq!(shell_status(ExitStatus::from_raw(9)), 137);
        let ends = [0, 7 << 8, 9].map(|raw| end_with(ExitStatus::from_raw(raw)));
        assert_eq!(ends, [ApplicationEnd::Good, ApplicationEnd::Bad, ApplicationEnd::Killed]);
    }
}
