//! What a cast would send to whom: for `--dry-run`, and without sending it.

use serde::Serialize;

use super::message::REPORTED_MAX;
use super::path::RelativePath;
use super::peers::CastReceivers;
use super::plan::MissingOfAll;
use super::source::{CastSource, SkippedPath};
use super::target::reason;
use crate::report::numerals::size;

/// What one receiver would be sent.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub(super) struct MissingSum {
    pub(super) files: u64,
    pub(super) bytes: u64,
}

/// A file that would be cast.
#[derive(Debug, PartialEq, Eq, Serialize)]
pub(super) struct PlannedFile {
    path: RelativePath,
    /// Bytes that would leave, once for all.
    bytes: u64,
    /// Receivers that lack some of it.
    receivers: usize,
}

/// What would be cast.
#[derive(Debug, Serialize)]
pub(super) struct CastPlan {
    /// Bytes that would leave, once for all.
    bytes: u64,
    files: Vec<PlannedFile>,
}

/// Notes what each receiver lacks, and returns what they lack together, and what of it cannot be
/// opened here.
pub(super) fn note_missing(
    peers: &mut CastReceivers,
    source: &CastSource,
) -> (CastPlan, Vec<SkippedPath>) {
    let entries = &source.entries;
    let mut union = MissingOfAll::from_entries(entries);
    let mut wanting = vec![0; entries.len()];
    for peer in peers.here() {
        let has = peer.has.take().unwrap_or_default();
        let mut own = MissingOfAll::from_entries(entries);
        own.add(&has, &peer.lacks);
        union.add(&has, &peer.lacks);
        let mut missing = MissingSum::default();
        for (number, entry) in entries.iter().enumerate() {
            if let Some(bytes) = own.need(number).bytes(entry) {
                missing = MissingSum { files: missing.files + 1, bytes: missing.bytes + bytes };
                wanting[number] += 1;
            }
        }
        peer.missing = Some(missing);
    }
    let (mut files, mut unsent) = (Vec::new(), Vec::new());
    for ((number, entry), receivers) in (0..).zip(entries).zip(wanting) {
        let Some(bytes) = union.need(number as usize).bytes(entry) else { continue };
        match source.open(number) {
            Ok(_) => files.push(PlannedFile { path: entry.path.clone(), bytes, receivers }),
            Err(error) => unsent.push((source.name(number), reason(&error))),
        }
    }
    let bytes = files.iter().map(|file| file.bytes).sum();
    (CastPlan { files, bytes }, unsent)
}

impl CastPlan {
    /// Returns the files for a person, one a line, and a line of what would be cast to some `of`
    /// receivers.
    pub(super) fn lines(&self, of: usize) -> String {
        let mut text = String::new();
        for PlannedFile { path, bytes, receivers } in self.files.iter().take(REPORTED_MAX) {
            let bytes = size(*bytes);
            text.push_str(&format!("would be sent: {path}: {bytes}, to {receivers} of {of}\n"));
        }
        let more = self.files.len().saturating_sub(REPORTED_MAX);
        if more > 0 {
            text.push_str(&format!("would be sent: {more} more\n"));
        }
        text
    }

    /// Returns the last sentence for a person.
    pub(super) fn sentence(&self) -> String {
        let (files, bytes) = (self.files.len(), size(self.bytes));
        let of = if files == 1 { "file" } else { "files" };
        format!("dry run, nothing was changed; {bytes} of {files} {of} would be cast\n")
    }
}
