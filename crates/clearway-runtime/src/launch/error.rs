//! What can go wrong when ranks find each other, each as one sentence for a person.

use std::io;
use std::path::PathBuf;
use std::time::Duration;

use clearway_proto::base::Rank;
use thiserror::Error;

use super::remote::NOT_FOUND;

/// Why a job could not be joined, started or kept together.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum LaunchError {
    /// A launcher started this process, but none of its ways to the peers works: correct one of
    /// them.
    #[error(
        "a launcher started this process, but the other ranks cannot be found through it ({notes}); start it as \
         described in docs/launch.md"
    )]
    NoWay {
        /// Why each method that was offered fell through, in the order tried.
        notes: String,
    },
    /// More bytes than an exchange carries: publish less.
    #[error("a rank may give {limit} bytes to an exchange, not {length}")]
    TooLong {
        /// Bytes given.
        length: usize,
        /// Bytes allowed.
        limit: usize,
    },
    /// Somebody did not come in time: look whether all ranks run, or be more patient.
    #[error("{what} did not happen within {} s", .timeout.as_secs_f32())]
    TimedOut {
        /// What was waited for.
        what: &'static str,
        /// For how long.
        timeout: Duration,
    },
    /// The launcher refused or answered nonsense: report it with the launcher's version.
    #[error("{method}: {what}")]
    Launcher {
        /// The method in use.
        method: &'static str,
        /// What it said.
        what: String,
    },
    /// Another rank is gone, and the job with it: look why it ended.
    #[error("{sentence}")]
    Ended {
        /// The exit code that the job's end asks for.
        code: i32,
        /// The process that ended, and how.
        sentence: String,
        /// Whether the sentence stands on the standard error of this process already: ranks of one
        /// host share it with their starter, and lines of other hosts are printed there.
        was_said: bool,
    },
    /// A list of hosts cannot be read: correct it.
    #[error("cannot read the host list `{list}`: {what}")]
    HostList {
        /// The beginning of the list.
        list: String,
        /// What is wrong with it.
        what: String,
    },
    /// A file of hosts cannot be read: correct the line.
    #[error("{}, line {line}: {what}", .path.display())]
    HostFile {
        /// The file.
        path: PathBuf,
        /// The line, from 1.
        line: usize,
        /// What is wrong with it.
        what: String,
    },
    /// A rank could not be started, or ended badly: look at its host.
    #[error("rank {rank} on {host} {what}")]
    Host {
        /// The rank.
        rank: Rank,
        /// Its host.
        host: String,
        /// What became of it.
        what: String,
        /// The exit status of its process, 128 and the number of the signal that ended it, where it
        /// has ended.
        code: Option<i32>,
    },
    /// ssh could not reach a host: try it by hand.
    #[error(
        "host {host} cannot be reached over ssh ({what}); does `ssh -o BatchMode=yes {host} true` work?"
    )]
    Unreachable {
        /// The host.
        host: String,
        /// What ssh said last.
        what: String,
    },
    /// A host does not have the program that its ranks are to run: put it there.
    #[error("host {host} has no program {program}")]
    NoProgram {
        /// The host.
        host: String,
        /// The path that was tried.
        program: String,
    },
    /// The caller that watched the start wanted it to end.
    #[error("the start of the ranks was interrupted")]
    Stopped,
    /// The system refused something that launching needs.
    #[error("the system refused to {what}: {cause}")]
    System {
        /// What was asked of it.
        what: String,
        /// What it said.
        cause: io::Error,
    },
}

impl LaunchError {
    /// Returns the exit status for a command whose job ended so: that of the rank that failed or of
    /// the abort, 127 as in a shell where there is no program, and otherwise 1.
    pub fn exit_code(&self) -> i32 {
        match self {
            Self::Host { code: Some(code), .. } | Self::Ended { code, .. } if *code != 0 => *code,
            Self::NoProgram { .. } => NOT_FOUND,
            _ => 1,
        }
    }

    /// Names what was asked of the system when it refused.
    pub(super) fn system(what: impl Into<String>) -> impl FnOnce(io::Error) -> Self {
        move |cause| Self::System { what: what.into(), cause }
    }
}
