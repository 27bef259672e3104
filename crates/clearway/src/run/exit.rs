//! The ways in which the program ends: part of its interface, in `clearway --help` and `docs/method.md`.

use std::process::ExitCode;

/// An exit status.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Exit {
    /// Done; a verdict, if there is one, is CONTAINED.
    Good = 0,
    /// Could not be done: the sentence on standard error says why.
    Failed = 1,
    /// The verdict is CONGESTED, a compared run is worse, or what was read of an archive has faults.
    Congested = 3,
    /// The verdict is INVALID: the measurement allows no statement.
    Invalid = 4,
    /// A permission is missing.
    NoPermission = 5,
    /// Interrupted by the user.
    Interrupted = 130,
}

impl From<Exit> for ExitCode {
    fn from(exit: Exit) -> Self {
        Self::from(exit as u8)
    }
}
