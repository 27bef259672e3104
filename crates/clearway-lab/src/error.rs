//! What can go wrong with a lab, named by what the caller can do next.

use std::io;
use std::path::PathBuf;

/// Why a lab could not be made, found or ended. Every variant prints as one sentence.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum LabError {
    /// The specification cannot be built; change it.
    #[error("{0}")]
    Impossible(String),
    /// This process may not make network namespaces; the sentence says what would allow it.
    #[error("{0}")]
    Permission(String),
    /// The kernel refused one step; `hint` says what is missing where that is known.
    #[error("the kernel refused to {doing}: {cause}{hint}")]
    Kernel {
        /// The step, as a verb phrase.
        doing: String,
        /// The kernel's answer.
        cause: io::Error,
        /// Empty, or `; ` and what would help.
        hint: String,
    },
    /// A lab of this name is running already.
    #[error(
        "a lab named `{0}` is already up; end it with `clearway lab down --name {0}` or choose another name"
    )]
    Exists(String),
    /// No lab of this name is running.
    #[error("no lab named `{0}` is up; `clearway lab up --name {0}` starts one")]
    NotUp(String),
    /// The process that keeps a lab could not be started or ended.
    #[error("{0}")]
    Keeper(String),
    /// The lab has no such host.
    #[error("the lab has no host `{given}`; its hosts are {first} to {last}")]
    NoSuchHost {
        /// What was asked for.
        given: String,
        /// The first host.
        first: String,
        /// The last host.
        last: String,
    },
    /// A file of a running lab's state could not be read or written.
    #[error("{}: {cause}", path.display())]
    State {
        /// The file.
        path: PathBuf,
        /// The reason.
        cause: io::Error,
    },
}

impl LabError {
    /// Creates a refused step without a hint.
    pub(crate) fn kernel(doing: impl Into<String>, cause: io::Error) -> Self {
        Self::Kernel { doing: doing.into(), cause, hint: String::new() }
    }
}
