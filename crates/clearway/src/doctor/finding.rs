//! What an examination says: an item, how it stands, what was seen, and what would help.

use serde::Serialize;

/// How an item stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub(super) enum Status {
    /// It is there and works.
    Ok,
    /// It works, less well than it could.
    Limited,
    /// It is not there, or does not work.
    Missing,
}

impl Status {
    /// Returns the word for a person, as in JSON.
    pub(super) const fn word(self) -> &'static str {
        match self {
            Self::Ok => "ok",
            Self::Limited => "limited",
            Self::Missing => "missing",
        }
    }
}

/// One item.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub(super) struct Finding {
    /// Its name, at most 16 characters.
    pub(super) item: String,
    /// How it stands.
    pub(super) status: Status,
    /// What was seen.
    pub(super) found: String,
    /// What would help, each a step of its own; empty when nothing is needed.
    pub(super) remedies: Vec<String>,
}

impl Finding {
    /// Creates an item that works.
    pub(super) fn ok(item: &str, found: impl Into<String>) -> Self {
        Self { item: item.into(), status: Status::Ok, found: found.into(), remedies: Vec::new() }
    }

    /// Creates an item that works less well than it could.
    pub(super) fn limited(item: &str, found: impl Into<String>, remedy: impl Into<String>) -> Self {
        Self {
            item: item.into(),
            status: Status::Limited,
            found: found.into(),
            remedies: vec![remedy.into()],
        }
    }

    /// Creates an item that is not there.
    pub(super) fn missing(item: &str, found: impl Into<String>, remedy: impl Into<String>) -> Self {
        Self {
            item: item.into(),
            status: Status::Missing,
            found: found.into(),
            remedies: vec![remedy.into()],
        }
    }
}

/// Items that belong together.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub(super) struct FindingGroup {
    /// What they are about.
    pub(super) title: &'static str,
    /// The items, in the order they are shown.
    pub(super) findings: Vec<Finding>,
}
