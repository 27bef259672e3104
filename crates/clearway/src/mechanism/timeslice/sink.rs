//! Where timeslices go: nowhere after a look at all of them, into archives, or to a consumer.
//!
//! # Invariants
//! I1. What a sink has taken is where it belongs: with the kernel at least, on the disk when it is
//!     over.
//! I2. An archive has its name once those of all builders are whole: a run that fails leaves none
//!     that would be in its way again.

use std::path::Path;

use anyhow::{Result, bail};
use clearway_proto::archive::{ArchiveKind, Compression, Finding, Inspector, Versions};

use super::consumer::ConsumerSink;
use super::described::DescribedTimeslice;
use super::ledger::add_built;
use super::messages::{SinkKind, TimesliceResult};
use crate::mechanism::timeslice::archive::{ArchiveFormat, ArchiveSink, UnfinishedFile, filled};

/// Stands for the number of a builder, each of which has a sink of its own.
pub(crate) const BUILDER: &str = "%b";

/// A sink at work; it may wait.
pub(super) trait TimesliceSink: Send {
    /// Takes one timeslice.
    ///
    /// # Errors
    /// One sentence: nothing more can be taken, and why.
    fn take(&mut self, built: DescribedTimeslice<'_>) -> Result<()>;

    /// Finishes: there are no more.
    ///
    /// # Errors
    /// As above.
    fn finish(&mut self) -> Result<TimesliceResult>;
}

/// Opens the sink of `kind` of the builder at `place`; returns it and the archive that it writes,
/// if it writes one, to be kept when all is over.
///
/// # Errors
/// When it cannot be opened.
pub(super) fn open(
    kind: &SinkKind,
    place: u64,
) -> Result<(Box<dyn TimesliceSink>, Option<UnfinishedFile>)> {
    let sink = match kind {
        SinkKind::Discard => {
            bail!("what is discarded unread needs no sink; this is a defect of the program")
        }
        SinkKind::Check => Box::new(CheckingSink {
            inspector: Inspector::default(),
            result: TimesliceResult::default(),
        }) as Box<dyn TimesliceSink>,
        SinkKind::Consumer(template) => {
            Box::new(ConsumerSink::open(filled(template, BUILDER, place))?)
        }
        SinkKind::Archives(template) | SinkKind::Compressed(template) => {
            let path = filled(template, BUILDER, place);
            let is_compressed = matches!(kind, SinkKind::Compressed(_));
            let mut sink = new_archive(
                &path,
                if is_compressed { Compression::Zstd } else { Compression::None },
            )?;
            let unfinished = sink.detach();
            let result = TimesliceResult {
                written: vec![path.display().to_string()],
                ..TimesliceResult::default()
            };
            return Ok((Box::new(ArchivingSink { sink: Some(sink), result }), unfinished));
        }
    };
    Ok((sink, None))
}

/// Creates a new archive of timeslices at `path`.
///
/// # Errors
/// When there is a file already, or none can be made.
pub(super) fn new_archive(path: &Path, compression: Compression) -> Result<ArchiveSink> {
    ArchiveSink::create(
        path,
        ArchiveKind::Timeslices,
        ArchiveFormat { versions: Versions::NEWEST, compression },
    )
}

/// Adds `built` to `result`.
pub(super) fn count(result: &mut TimesliceResult, built: &DescribedTimeslice<'_>) {
    result.take(built.descriptor.index);
    add_built(&mut result.built, &built.inputs);
    result.incomplete += u64::from(built.descriptor.flags.is_incomplete());
}

/// Looks at everything and keeps nothing.
struct CheckingSink {
    inspector: Inspector,
    result: TimesliceResult,
}

impl TimesliceSink for CheckingSink {
    fn take(&mut self, built: DescribedTimeslice<'_>) -> Result<()> {
        count(&mut self.result, &built);
        self.inspector.look_at(&built.descriptor, built.components.into_iter());
        Ok(())
    }

    fn finish(&mut self) -> Result<TimesliceResult> {
        let tally = self.inspector.tally();
        let mut result = std::mem::take(&mut self.result);
        result.checked = tally.microslices - tally.unchecked;
        let found = Finding::ALL
            .iter()
            .map(|finding| (finding.sentence().to_owned(), tally.found(*finding).0));
        result.faults = found.filter(|(_, count)| *count > 0).collect();
        Ok(result)
    }
}

/// Writes an archive.
struct ArchivingSink {
    /// None when it is closed.
    sink: Option<ArchiveSink>,
    result: TimesliceResult,
}

impl TimesliceSink for ArchivingSink {
    fn take(&mut self, built: DescribedTimeslice<'_>) -> Result<()> {
        count(&mut self.result, &built);
        match &mut self.sink {
            Some(sink) => sink.timeslice(&built.descriptor, built.components.into_iter()),
            None => bail!("the archive is closed; this is a defect of the program"),
        }
    }

    fn finish(&mut self) -> Result<TimesliceResult> {
        self.sink.take().map_or(Ok(()), ArchiveSink::finish)?;
        Ok(std::mem::take(&mut self.result))
    }
}
