//! The log that a store belongs to, and its names in the root of the store.
//!
//! # Model
//! ```text
//!   one log        STORE/.clearway-log            the mark: the identifier of the log
//!                  STORE/.clearway-objects/       its objects
//!   several logs   STORE/.clearway-log-ID         the same for each log, by its identifier
//!                  STORE/.clearway-objects-ID/
//! ```
//! Logs that share a store never change objects of each other: each knows its own objects only. They
//! share directories, and each moves an entry of another log out of the way as it does with those of
//! other programs.

use std::ffi::OsString;
use std::fs;
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

use clearway_proto::staging::LogId;

use super::place::OBJECTS_NAME;
use crate::names::STORE_MARK;

/// Whether a store belongs to one log.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum StoreSharing {
    /// To one.
    #[default]
    Alone,
    /// To several, with different names at the top of their trees.
    Shared,
}

/// A log, and how it has its store.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct StoreOwner {
    /// The log.
    pub log: LogId,
    /// Whether other logs are drained into the same store.
    pub sharing: StoreSharing,
}

impl StoreOwner {
    /// Returns the name of the mark.
    pub(crate) fn mark_name(&self) -> OsString {
        self.name(STORE_MARK)
    }

    /// Returns the name of the directory of objects.
    pub(crate) fn objects_name(&self) -> OsString {
        self.name(OBJECTS_NAME)
    }

    /// Returns what the mark has.
    pub(crate) fn mark(&self) -> String {
        format!("{:032x}\n", self.log.0)
    }

    fn name(&self, alone: &str) -> OsString {
        match self.sharing {
            StoreSharing::Alone => alone.into(),
            StoreSharing::Shared => format!("{alone}-{:032x}", self.log.0).into(),
        }
    }
}

/// Returns whether a name in the root of a store is one that logs need for themselves.
pub(crate) fn is_reserved(name: &[u8]) -> bool {
    [STORE_MARK, OBJECTS_NAME].iter().any(|reserved| {
        name.strip_prefix(reserved.as_bytes()).is_some_and(|rest| rest.is_empty() || is_log(rest))
    })
}

/// Returns whether bytes name a log, behind the name of what it has.
fn is_log(rest: &[u8]) -> bool {
    rest.strip_prefix(b"-").is_some_and(|id| id.len() == 32 && id.iter().all(u8::is_ascii_hexdigit))
}

/// Returns whether logs share a store.
///
/// # Errors
/// The system's: the store cannot be read.
pub(crate) fn is_shared(store: &Path) -> io::Result<bool> {
    for entry in fs::read_dir(store)? {
        if entry?.file_name().as_bytes().strip_prefix(STORE_MARK.as_bytes()).is_some_and(is_log) {
            return Ok(true);
        }
    }
    Ok(false)
}
