//! The items of a sequence of archives, once or in cycles, as one stream.
//!
//! # Model
//! Played again, microslices go on in time: each cycle is later than the one before by the time
//! from the first microslice to the last one and from the last but one to the last, so that the
//! stream looks like one long recording. Offsets and contents stay.
//!
//! # Invariants
//! I1. All files of a source hold the same kind of items.

use std::path::PathBuf;

use anyhow::{Context, Result, bail};
use clearway_proto::archive::{ArchiveKind, Header, Item, Limits};
use clearway_proto::microslice::Microslice;

use super::Locator;
use super::file::{ArchiveFile, ReadProgress};
use super::locator::exists;

/// Gives items one after the other.
pub(crate) struct ArchiveSource {
    locator: Locator,
    limits: Limits,
    progress: Option<ReadProgress>,
    file: ArchiveFile,
    /// Number of the open file in its sequence.
    number: u64,
    /// Cycles that are over.
    cycle: u64,
    clock: MicrosliceClock,
    /// Files whose last item was cut off.
    pub(crate) cut_files: u64,
}

impl ArchiveSource {
    /// Opens the first file.
    ///
    /// # Errors
    /// When it cannot be read or is no archive.
    pub(crate) fn open(locator: Locator, limits: Limits) -> Result<Self> {
        Self::start(locator, limits, None)
    }

    /// Opens the first file of those that a command reads to their end, as the part under way of its
    /// forecast.
    ///
    /// # Errors
    /// As [`Self::open`].
    pub(crate) fn open_watched(locator: Locator, limits: Limits) -> Result<Self> {
        // What comes over a connection has no length.
        let bytes = |path: PathBuf| path.metadata().map_or(0, |found| found.len());
        let once = locator.paths().map(bytes).fold(0, u64::saturating_add);
        let progress = ReadProgress::new(once.saturating_mul(locator.cycles));
        Self::start(locator, limits, Some(progress))
    }

    fn start(locator: Locator, limits: Limits, progress: Option<ReadProgress>) -> Result<Self> {
        let file = open(&locator, 0, limits, progress.as_ref())?;
        Ok(Self {
            locator,
            limits,
            progress,
            file,
            number: 0,
            cycle: 0,
            clock: MicrosliceClock::default(),
            cut_files: 0,
        })
    }

    /// Returns the header of the file that the current item is from.
    pub(crate) fn header(&self) -> &Header {
        self.file.header()
    }

    /// Goes on to the next item, which [`Self::item`] then lends out; false when all have been
    /// played.
    ///
    /// # Errors
    /// When a file cannot be read or is broken. A cut last item is none: it is counted and passed
    /// over.
    pub(crate) fn advance(&mut self) -> Result<bool> {
        loop {
            if self.file.advance().with_context(|| self.shown())? {
                if let Some(Item::Microslice(microslice)) = self.file.item() {
                    self.clock.mark_seen(microslice.descriptor.index);
                }
                return Ok(true);
            }
            self.cut_files += u64::from(self.file.cut().is_some());
            if !self.open_next()? {
                return Ok(false);
            }
        }
    }

    /// Returns the item that [`Self::advance`] went to.
    pub(crate) fn item(&self) -> Option<Item<'_>> {
        Some(match self.file.item()? {
            Item::Microslice(Microslice { mut descriptor, content }) => {
                descriptor.index = descriptor.index.wrapping_add(self.clock.shift);
                Item::Microslice(Microslice { descriptor, content })
            }
            timeslice @ Item::Timeslice(_) => timeslice,
        })
    }

    /// Opens the file after this one, or the first one once more; false when there is nothing left
    /// to play.
    fn open_next(&mut self) -> Result<bool> {
        let kind = self.file.header().kind;
        let following = self.locator.path(self.number + 1).filter(|path| exists(path));
        self.number = if following.is_some() { self.number + 1 } else { 0 };
        if following.is_none() {
            self.cycle += 1;
            if self.cycle >= self.locator.cycles
                || !self.clock.seen_before() && kind == ArchiveKind::Microslices
            {
                return Ok(false);
            }
            self.clock.begin_again();
        }
        self.file = open(&self.locator, self.number, self.limits, self.progress.as_ref())?;
        if self.file.header().kind != kind {
            bail!("{}: holds other items than the files before it", self.shown());
        }
        Ok(true)
    }

    /// Returns the open file's name.
    fn shown(&self) -> String {
        self.locator.path(self.number).unwrap_or_default().display().to_string()
    }
}

fn open(
    locator: &Locator,
    number: u64,
    limits: Limits,
    progress: Option<&ReadProgress>,
) -> Result<ArchiveFile> {
    let path = locator.path(number).context("a path without a number names one file")?;
    let opened = match progress {
        Some(progress) => ArchiveFile::open_watched(&path, limits, progress.clone()),
        None => ArchiveFile::open(&path, limits),
    };
    opened.with_context(|| path.display().to_string())
}

/// Keeps the time of microslices going from cycle to cycle.
#[derive(Clone, Copy, Debug, Default)]
struct MicrosliceClock {
    /// First, last but one and last index of this cycle, as they stand in the files.
    first: Option<u64>,
    before: u64,
    last: u64,
    /// What is added in this cycle.
    shift: u64,
}

impl MicrosliceClock {
    fn mark_seen(&mut self, index: u64) {
        self.before = if self.first.is_some() { self.last } else { index };
        self.first.get_or_insert(index);
        self.last = index;
    }

    fn seen_before(&self) -> bool {
        self.first.is_some()
    }

    fn begin_again(&mut self) {
        let Some(first) = self.first.take() else { return };
        // One microslice alone says nothing about the time to the next.
        let step = self.last.wrapping_sub(self.before).max(1);
        self.shift = self.shift.wrapping_add(self.last.wrapping_sub(first)).wrapping_add(step);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn begin_again__the_time_between_cycles_is_that_of_the_last_step() {
        let mut clock = MicrosliceClock::default();
        let mut played = Vec::new();
        for _ in 0..3 {
            for index in [100, 110, 130] {
                clock.mark_seen(index);
                played.push(index + clock.shift);
            }
            clock.begin_again();
        }
        assert_eq!(played, [100, 110, 130, 150, 160, 180, 200, 210, 230]);
        let mut clock = MicrosliceClock::default();
        clock.mark_seen(5);
        clock.begin_again();
        assert_eq!(clock.shift, 1);
    }
}
