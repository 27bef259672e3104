//! Joins through PMI-1: lines of text on a descriptor that MPICH's hydra, and Slurm's `pmi2`
//! plug-in, leave open.
//!
//! # Model
//! A request is a line `cmd=NAME key=value ...`, and each has one line for an answer. There is a
//! shared space of short values (`put`, `get`) and a barrier that makes them visible, nothing else.
//! [`text`] has the lines, [`pages`] cuts what is longer than a value, [`session`] has the order of
//! requests; only this file has a descriptor.
//!
//! # Source
//! The protocol as hydra 4.0 and Slurm 22.05 speak it.

mod pages;
mod session;
mod text;

use std::io::{BufRead, BufReader, Read};
use std::os::unix::net::UnixStream;
use std::time::Duration;

use super::calls;
use super::environment::Environment;
use super::job::ProgramShare;
use super::send::send_all;
use super::{JoinFailure, JoinMethod, JoinOptions, JoinedJob, LaunchError, RANKS_MAX};
use session::{LineChannel, Pmi1Session};

/// The name in errors.
const METHOD: &str = "PMI-1";
/// The variable with the number of the descriptor.
const DESCRIPTOR: &str = "PMI_FD";

/// Joins when `PMI_FD` is there.
pub(super) fn join(
    environment: &Environment,
    options: &JoinOptions,
) -> Result<JoinedJob, JoinFailure> {
    if environment.get(DESCRIPTOR).is_none() {
        return Err(JoinFailure::Absent("no PMI_FD in the environment"));
    }
    let descriptor = environment.number(DESCRIPTOR)?;
    let (rank, size) = (environment.number("PMI_RANK")?, environment.number("PMI_SIZE")?);
    if rank >= size || size > RANKS_MAX {
        return Err(JoinFailure::Failed(format!(
            "PMI_RANK {rank} of PMI_SIZE {size} is no rank of a job"
        )));
    }
    let socket = UnixStream::from(
        calls::adopt(descriptor).map_err(LaunchError::system("take over PMI_FD"))?,
    );
    let session = Pmi1Session::start(LauncherSocket::new(socket, options)?, rank, size)?;
    Ok(JoinedJob { method: JoinMethod::Pmi1, rank, size, secret: None, link: Box::new(session) })
}

/// The descriptor that hydra left open: a socket, whatever its family.
#[derive(Debug)]
struct LauncherSocket {
    lines: BufReader<UnixStream>,
    timeout: Duration,
}

impl LauncherSocket {
    fn new(socket: UnixStream, options: &JoinOptions) -> Result<Self, LaunchError> {
        let lines = BufReader::new(socket);
        let socket = Self { lines, timeout: options.timeout };
        let is_blocking = socket.lines.get_ref().set_nonblocking(false);
        is_blocking.map_err(LaunchError::system("wait for PMI_FD"))?;
        socket.limit(Some(socket.timeout))?;
        Ok(socket)
    }

    /// Limits how long each line may take. The limit is that of the socket, for all who have it.
    fn limit(&self, timeout: Option<Duration>) -> Result<(), LaunchError> {
        let socket = self.lines.get_ref();
        let set = socket.set_read_timeout(timeout).and_then(|()| socket.set_write_timeout(timeout));
        set.map_err(LaunchError::system("set a time limit on PMI_FD"))
    }
}

impl LineChannel for LauncherSocket {
    fn lend(&mut self) -> Result<ProgramShare, LaunchError> {
        self.limit(None)?;
        let copy = self.lines.get_ref().try_clone();
        let copy = copy.map_err(LaunchError::system("leave PMI_FD to a program"))?;
        Ok(ProgramShare { variables: &[], descriptor: Some((DESCRIPTOR, copy.into())) })
    }

    fn take_back(&mut self) -> Result<(), LaunchError> {
        self.limit(Some(self.timeout))
    }

    fn send_line(&mut self, request: &str) -> Result<(), LaunchError> {
        send_all(self.lines.get_ref(), request.as_bytes())
            .map_err(LaunchError::system("write to PMI_FD"))
    }

    fn next_line(&mut self, what: &'static str) -> Result<Vec<u8>, LaunchError> {
        let mut line = Vec::new();
        let mut bounded = (&mut self.lines).take(text::LINE_MAX as u64);
        match bounded.read_until(b'\n', &mut line) {
            Ok(0) => Err(LaunchError::Launcher {
                method: METHOD,
                what: "the launcher closed PMI_FD".to_owned(),
            }),
            Ok(_) => Ok(line),
            Err(error)
                if matches!(
                    error.kind(),
                    std::io::ErrorKind::WouldBlock | std::io::ErrorKind::TimedOut
                ) =>
            {
                Err(LaunchError::TimedOut { what, timeout: self.timeout })
            }
            Err(cause) => Err(LaunchError::System { what: "read from PMI_FD".to_owned(), cause }),
        }
    }
}
