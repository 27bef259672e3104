//! Names of another kind than what is cast under them: when they make room, and what else than
//! contents would change.
//!
//! # Invariants
//! I1. A directory makes room for a file or a link only at the end, when everything has come.

use std::ffi::OsStr;
use std::io;
use std::os::unix::ffi::OsStrExt;

use nix::errno::Errno;

use super::{Assembly, EntryProgress, FileFailure, READY_MAX};
use crate::mechanism::cast::exclusion::NameKind;
use crate::mechanism::cast::message::PlannedChanges;
use crate::mechanism::cast::plan::EntryKind;
use crate::mechanism::cast::target::{FoundKind, TemporaryFile, reason};

impl Assembly {
    /// Returns whether what has the name of an entry and is of another kind is removed.
    pub(super) fn may_replace(&self, number: u32) -> bool {
        let path = &self.entries[number as usize].path;
        self.replaced_below.iter().any(|root| path != root && path.is_below(root))
    }

    /// Makes the directory of an entry. A file or a link that has its name goes first, for nothing
    /// that is in the directory could be written else.
    pub(super) fn make(&mut self, number: u32) -> io::Result<()> {
        let may_replace = self.may_replace(number);
        let path = &self.entries[number as usize].path;
        match self.target.make(path) {
            Err(error) if may_replace && is_in_the_way(&error) => {
                if self.target.only_looks() {
                    return Ok(());
                }
                self.target.remove(path, NameKind::Other)?;
                self.target.make(path)
            }
            made => made,
        }
    }

    pub(super) fn in_the_way() -> FileFailure {
        "a directory is where a file must be".to_owned()
    }

    /// Puts a whole file into its place, or keeps it until the directory that has its name goes.
    pub(super) fn put(&mut self, number: u32, unfinished: TemporaryFile) {
        match self.target.appear(&self.entries[number as usize].path, &unfinished) {
            Ok(()) => self.set(number, EntryProgress::Done),
            Err(error) if self.waits(number, &error) => {
                self.set(number, EntryProgress::Ready);
                self.blocked.push((number, Some(unfinished)));
            }
            Err(error) => self.fail(number, reason(&error)),
        }
    }

    /// Returns whether an entry gets its place at the end, for which `error` is no reason against.
    pub(super) fn waits(&self, number: u32, error: &io::Error) -> bool {
        let is_blocked = error.kind() == io::ErrorKind::IsADirectory;
        is_blocked && self.may_replace(number) && self.blocked.len() < READY_MAX
    }

    /// Puts what directories blocked into its place, now that they are gone.
    pub(super) fn put_blocked(&mut self) {
        for (number, unfinished) in std::mem::take(&mut self.blocked) {
            let Self { target, entries, .. } = self;
            let entry = &entries[number as usize];
            let (put, state) = match (&entry.kind, &unfinished) {
                (_, Some(file)) => (target.appear(&entry.path, file), EntryProgress::Done),
                (EntryKind::Link { to }, None) => {
                    (target.link(&entry.path, OsStr::from_bytes(&to.0)), EntryProgress::Same)
                }
                _ => continue,
            };
            match put {
                Ok(()) => self.set(number, state),
                Err(error) if error.kind() == io::ErrorKind::IsADirectory => {
                    self.fail(number, Self::in_the_way());
                }
                Err(error) => self.fail(number, reason(&error)),
            }
        }
    }

    /// Returns the changes other than those of contents.
    pub(super) fn changes(&mut self) -> PlannedChanges {
        let mut changes = PlannedChanges::default();
        for (entry, state) in self.entries.iter().zip(&self.states) {
            if let EntryKind::Link { to } = &entry.kind {
                let is_there = self.target.is_link_to(&entry.path, OsStr::from_bytes(&to.0));
                changes.links += u64::from(!is_there);
                continue;
            }
            let keeps_contents = match state {
                EntryProgress::Same => true,
                EntryProgress::Part(part) => part.in_place.is_some(),
                _ => entry.kind == EntryKind::Directory && entry.path.split().is_some(),
            };
            let found = self.target.find(&entry.path).ok().flatten().filter(|_| keeps_contents);
            let is_other = found
                .is_some_and(|found| found.kind != FoundKind::Other && found.mode != entry.mode);
            changes.permissions += u64::from(is_other);
        }
        changes
    }
}

/// Returns whether something that is no directory is where one is looked for.
pub(super) fn is_in_the_way(error: &io::Error) -> bool {
    matches!(error.raw_os_error().map(Errno::from_raw), Some(Errno::ENOTDIR | Errno::ELOOP))
}
