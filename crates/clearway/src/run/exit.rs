//! The ways in which the program ends: part of its interface, in `clearway --help` and
//! `docs/method.md`.

use std::fmt;
use std::process::ExitCode;

/// An exit status.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Exit {
    /// Done; a verdict, if there is one, is CONTAINED.
    Good = 0,
    /// Could not be done: the sentence on standard error says why.
    Failed = 1,
    /// The command line asks for something that cannot be; nothing was begun.
    WrongUsage = 2,
    /// The verdict is CONGESTED, a compared run is worse, or what was read of an archive or
    /// of a staging log has faults.
    Findings = 3,
    /// The verdict is INVALID: the measurement allows no statement.
    Invalid = 4,
    /// A permission is missing.
    NoPermission = 5,
    /// Of the process of a rank: the run goes on without it, and its sentence on standard error
    /// says why. The program that started it ends with status 1.
    NoPart = 6,
    /// Interrupted by the user.
    Interrupted = 130,
}

impl From<Exit> for ExitCode {
    fn from(exit: Exit) -> Self {
        Self::from(exit as u8)
    }
}

/// A command line that asks for something that cannot be, in one sentence.
#[derive(Debug)]
pub(crate) struct UsageError(String);

impl UsageError {
    /// Creates the error of this sentence.
    pub(crate) fn new(sentence: impl Into<String>) -> Self {
        Self(sentence.into())
    }

    /// Creates the error that says what `error` and its causes say.
    pub(crate) fn from_error(error: &anyhow::Error) -> Self {
        Self(format!("{error:#}"))
    }
}

impl fmt::Display for UsageError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl std::error::Error for UsageError {}

/// Returns from a function with the [`UsageError`] of a sentence.
macro_rules! wrong_usage {
    ($($words:tt)*) => {
        return Err($crate::run::exit::UsageError::new(format!($($words)*)).into())
    };
}
pub(crate) use wrong_usage;

/// Returns how a run that failed with `error` ends.
pub(crate) fn exit_of(error: &anyhow::Error) -> Exit {
    if refuses_permission(error) {
        Exit::NoPermission
    } else if is_wrong_usage(error) {
        Exit::WrongUsage
    } else if error.chain().any(|cause| cause.is::<super::interrupt::Interrupted>()) {
        Exit::Interrupted
    } else {
        Exit::Failed
    }
}

/// Returns whether the command line asks for something that cannot be.
fn is_wrong_usage(error: &anyhow::Error) -> bool {
    error.is::<UsageError>()
        || matches!(error.downcast_ref(), Some(clearway_lab::LabError::Impossible(_)))
        || matches!(error.downcast_ref(), Some(clearway_fs::FsError::Option(_)))
}

/// Returns whether the lab was refused for want of a permission.
pub(crate) fn refuses_permission(error: &anyhow::Error) -> bool {
    error
        .chain()
        .any(|cause| matches!(cause.downcast_ref(), Some(clearway_lab::LabError::Permission(_))))
}
