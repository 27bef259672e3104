//! Starts one process, on another host over ssh or on this one, gives it a secret, and names why it
//! ended.
//!
//! # Model
//! The secret is the first line of the process's standard input, in hexadecimal digits; a rank of
//! this host gets it by a descriptor of its own. That stays open behind it: the process reads its
//! end when the caller drops it. The last line on standard error is kept, for the sentence that
//! says why the process ended (`words`).
//!
//! # Invariants
//! I1. A secret stands in no command line, no environment and no file.
//! I2. When a [`RemoteProcess`] is dropped its process has ended.
//!
//! # Not here
//! A host's own settings, keys and passwords: ssh is asked not to ask, the rest is its
//! configuration.

use std::ffi::OsStr;
use std::io::{self, Read};
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixStream;
use std::process::{Child, Command, ExitStatus, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, Timespec};
use rustix::process::{Pid, Signal, getpgid, kill_process, kill_process_group};

use super::calls;
use super::error_output::ErrorOutput;
use super::send::{RemoteInput, send_all};

/// How often [`RemoteProcess::end_within`] looks whether the process has ended.
const LOOK_EVERY: Duration = Duration::from_millis(5);

/// What ssh ends with when it is ssh that failed (ssh(1)).
const SSH_FAILED: i32 = 255;

/// What a shell and `env` end with when there is no such program (POSIX).
pub(super) const NOT_FOUND: i32 = 127;

/// Makes the command of an ssh that never asks, gives up on a host that does not answer within
/// `connecting` (whole seconds, at least one), and ends when its host falls silent. `program` is
/// its path or name. The caller appends further options, the host, and one word, the line for the
/// host's shell.
pub fn ssh_command(program: impl AsRef<OsStr>, connecting: Duration) -> Command {
    let mut ssh = Command::new(program);
    ssh.args(["-T", "-oBatchMode=yes", "-oServerAliveInterval=15", "-oServerAliveCountMax=3"]);
    ssh.arg(format!("-oConnectTimeout={}", connecting.as_secs().max(1)));
    ssh
}

/// Quotes `word` so that a shell reads it back as one word.
pub fn quoted(word: &str) -> String {
    format!("'{}'", word.replace('\'', r"'\''"))
}

/// Says why a process ended, from the exit status of its ssh.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ExitReason {
    /// ssh could not reach the host.
    Unreachable,
    /// The host has no such program.
    NoProgram,
    /// The process ended by itself or by a signal.
    Ended,
}

impl ExitReason {
    /// Reads `status`, which is that of ssh or of the process itself.
    pub fn from_status(status: ExitStatus) -> Self {
        match status.code() {
            Some(SSH_FAILED) => Self::Unreachable,
            Some(NOT_FOUND) => Self::NoProgram,
            _ => Self::Ended,
        }
    }
}

/// Holds a process that was given a secret, and ends it when it is dropped. Reading gives what the
/// process prints, where its command makes a pipe of standard output.
#[derive(Debug)]
pub struct RemoteProcess {
    child: Child,
    /// The other end of the connection that carries its secret: a socket, because a write to a pipe
    /// can raise SIGPIPE.
    input: Option<UnixStream>,
    /// Unless its standard error is that of this process.
    words: Option<ErrorOutput>,
}

impl RemoteProcess {
    /// Starts `command`, an [`ssh_command`] or a program of this host, and writes `secret` to its
    /// standard input. `host` stands in front of each line of its standard error that is printed.
    ///
    /// # Errors
    /// The system has no such program, or no process or thread for it.
    pub fn start(command: &mut Command, host: &str, secret: &[u8]) -> io::Result<Self> {
        let (input, theirs) = UnixStream::pair()?;
        let spawned = command.stdin(OwnedFd::from(theirs)).stderr(Stdio::piped()).spawn();
        // The command holds the child's end, which must close when the child does.
        command.stdin(Stdio::null());
        let mut child = spawned?;
        let words = ErrorOutput::open(&mut child, host).inspect_err(|_| end(&mut child))?;
        // A process that has ended already is noticed where its status is asked for.
        let _ = send_all(&input, secret_line(secret).as_bytes());
        Ok(Self { child, input: Some(input), words: Some(words) })
    }

    /// Starts `command`, a program of this host, which finds `secret` at the descriptor whose
    /// number is in the variable `name`. Its standard streams are those that the caller gave the
    /// command.
    ///
    /// # Errors
    /// The system has no such program, or no process for it.
    pub(super) fn start_here(mut command: Command, name: &str, secret: &[u8]) -> io::Result<Self> {
        let (input, theirs) = UnixStream::pair()?;
        let number = calls::pass_on(&mut command, theirs.into())?;
        let child = command.env(name, number.to_string()).spawn()?;
        // As above.
        let _ = send_all(&input, secret_line(secret).as_bytes());
        Ok(Self { child, input: Some(input), words: None })
    }

    /// Takes the standard input of the process, whose end the process reads when this is dropped.
    /// Nothing is left after the first call.
    pub fn input(&mut self) -> Option<RemoteInput> {
        self.input.take().map(RemoteInput)
    }

    /// Returns whether reading returns at once: something is there, or the end.
    pub(super) fn has_output(&self) -> bool {
        let Some(output) = &self.child.stdout else { return true };
        let mut fds = [PollFd::new(output, PollFlags::IN)];
        let now = Timespec { tv_sec: 0, tv_nsec: 0 };
        rustix::event::poll(&mut fds, Some(&now)).is_ok_and(|ready| ready > 0)
    }

    /// Returns the exit status, once the process has ended. Does not wait.
    pub(super) fn ended(&mut self) -> Option<ExitStatus> {
        self.child.try_wait().ok().flatten()
    }

    /// Closes the input and output of the process, waits until it has ended, and kills it when it
    /// has not within `timeout`.
    ///
    /// # Errors
    /// The system cannot say how the process ended.
    pub fn end_within(&mut self, timeout: Duration) -> io::Result<ExitStatus> {
        drop((self.input.take(), self.child.stdout.take()));
        let until = Instant::now() + timeout;
        while Instant::now() < until {
            if let Some(status) = self.ended() {
                return Ok(status);
            }
            thread::sleep(LOOK_EVERY);
        }
        // This fails only when the process has ended meanwhile.
        let _ = self.child.kill();
        self.child.wait()
    }

    /// Asks the process to end, and those that it started in its process group, by SIGTERM.
    pub(super) fn terminate(&mut self) {
        // A process that was waited for has given its number away.
        if self.ended().is_some() {
            return;
        }
        let process = Pid::from_child(&self.child);
        // Both fail only when it has ended meanwhile.
        let _ = match getpgid(Some(process)) {
            Ok(group) if group == process => kill_process_group(process, Signal::TERM),
            _ => kill_process(process, Signal::TERM),
        };
    }

    /// Prints from now on every line of standard error.
    pub(super) fn forward_output(&self) {
        self.words.iter().for_each(ErrorOutput::forward);
    }

    /// Prints nothing any more.
    pub(super) fn stop_output(&self) {
        self.words.iter().for_each(ErrorOutput::stop);
    }

    /// Returns whether this process printed `sentence` of its standard error; nothing as long as it
    /// has not come, or where standard error is shared.
    pub(super) fn has_printed(&self, sentence: &str) -> Option<bool> {
        self.words.as_ref()?.has_printed(sentence)
    }

    /// Returns whether the standard error of the process comes through this one.
    pub(super) fn has_own_output(&self) -> bool {
        self.words.is_some()
    }

    /// Returns the last line of standard error that was not printed. Call it when the process has
    /// ended: it waits, not forever, until nothing more comes.
    pub fn last_error_line(&self) -> Option<String> {
        self.words.as_ref().and_then(ErrorOutput::last)
    }
}

impl Read for RemoteProcess {
    fn read(&mut self, bytes: &mut [u8]) -> io::Result<usize> {
        self.child.stdout.as_mut().map_or(Ok(0), |output| output.read(bytes))
    }
}

impl Drop for RemoteProcess {
    fn drop(&mut self) {
        end(&mut self.child);
    }
}

fn end(child: &mut Child) {
    // Both fail only when the process has ended and was seen to.
    let _ = child.kill();
    let _ = child.wait();
}

/// Returns the line that carries a secret.
pub(super) fn secret_line(secret: &[u8]) -> String {
    let mut line: String = secret.iter().map(|byte| format!("{byte:02x}")).collect();
    line.push('\n');
    line
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shell(script: &str) -> RemoteProcess {
        RemoteProcess::start(
            Command::new("sh").args(["-c", script]).stdout(Stdio::piped()),
            "n1",
            &[0xa5, 0x0f],
        )
        .unwrap()
    }

    #[test]
    fn start__the_process_reads_its_secret_and_its_last_words_are_kept() {
        let mut remote =
            shell("read secret; echo \"$secret\"; echo first >&2; echo last >&2; exit 127");
        let mut printed = String::new();
        remote.read_to_string(&mut printed).unwrap();
        let status = remote.end_within(Duration::from_secs(60)).unwrap();
        assert_eq!(
            (printed.as_str(), ExitReason::from_status(status)),
            ("a50f\n", ExitReason::NoProgram)
        );
        assert_eq!(remote.last_error_line().as_deref(), Some("last"));
    }

    #[test]
    fn end_within__a_process_that_does_not_end_is_killed() {
        let status = shell("exec sleep 1000").end_within(Duration::ZERO).unwrap();
        assert_eq!((status.code(), ExitReason::from_status(status)), (None, ExitReason::Ended));
    }

    #[test]
    fn of__each_exit_status_has_its_reason() {
        let reason = |script: &str| {
            ExitReason::from_status(Command::new("sh").args(["-c", script]).status().unwrap())
        };
        let scripts =
            ["exit 255", "exit 127", "/no/such/program 2>/dev/null", "exit 1", "kill -9 $$"];
        let [unreachable, said, missing, failed, killed] = scripts.map(reason);
        assert_eq!(
            [unreachable, said, missing],
            [ExitReason::Unreachable, ExitReason::NoProgram, ExitReason::NoProgram]
        );
        assert_eq!([failed, killed], [ExitReason::Ended; 2]);
    }

    #[test]
    fn quoted__a_shell_reads_back_one_word() {
        let word = "it's $HOME \"a\" `b` \\ *\n";
        let line = format!("printf %s {}", quoted(word));
        assert_eq!(
            Command::new("sh").args(["-c", &line]).output().unwrap().stdout,
            word.as_bytes()
        );
    }
}
