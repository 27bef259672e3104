//! What is in an archive: counted by walking through it, and checked when that is asked for.
//!
//! # Not here
//! What counts as wrong: `clearway_proto::archive::Finding`. How it is shown: [`super::page`].

use std::fs;
use std::path::Path;

use anyhow::{Context, Result};
use clearway_proto::archive::{
    ArchiveKind, ArchivePosition, Compression, Finding, Header, InspectionSummary, Inspector, Item,
    Limits, Timeslice,
};
use clearway_proto::microslice::MicrosliceDescriptor;
use serde::Serialize;

use super::file::{ArchiveFile, ArchiveReadError, ReadProgress, Truncation};
use super::unfinished::is_unfinished;

/// This many origins of microslices are listed; an archive with more is unusual, and one with 65536
/// should not fill the memory.
const ORIGINS_MAX: usize = 16;

/// How closely archives are looked at.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum SurveyDepth {
    /// What is there.
    Contents,
    /// Also whether it is right.
    Faults,
}

/// One archive.
#[derive(Clone, Debug, Serialize)]
pub(crate) struct FileReport {
    pub(crate) file: String,
    pub(crate) header: Option<HeaderReport>,
    pub(crate) contents: ContentReport,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) check: Option<CheckReport>,
    /// The archive ends within an item, or its compressed stream is not closed.
    pub(crate) cut: bool,
    /// This many bytes of the item that it ends within are there.
    pub(crate) cut_item_bytes: u64,
    /// By its name nobody has finished it.
    pub(crate) unfinished: bool,
    /// Why it could not be read to its end.
    pub(crate) broken: Option<String>,
}

/// What an archive says of itself.
#[derive(Clone, Debug, Serialize)]
pub(crate) struct HeaderReport {
    /// `microslices` or `timeslices`.
    pub(crate) kind: &'static str,
    /// `none` or `zstd`.
    pub(crate) compression: &'static str,
    pub(crate) created_s: i64,
    pub(crate) host: String,
    pub(crate) user: String,
    pub(crate) library_version: u16,
    pub(crate) header_version: u32,
    pub(crate) timeslice_version: Option<u32>,
    pub(crate) component_version: Option<u32>,
}

/// What was counted.
#[derive(Clone, Debug, Default, Serialize)]
pub(crate) struct ContentReport {
    pub(crate) items: u64,
    pub(crate) microslices: u64,
    pub(crate) content_bytes: u64,
    pub(crate) smallest_bytes: Option<u64>,
    pub(crate) largest_bytes: Option<u64>,
    /// First and last time of a microslice, in the order of the archive.
    pub(crate) first_ns: Option<u64>,
    pub(crate) last_ns: Option<u64>,
    /// Numbers of the first and the last timeslice.
    pub(crate) first_timeslice: Option<u64>,
    pub(crate) last_timeslice: Option<u64>,
    /// Fewest and most components of a timeslice.
    pub(crate) fewest_components: Option<u64>,
    pub(crate) most_components: Option<u64>,
    pub(crate) incomplete_timeslices: u64,
    /// Where microslices are from, as they come first; not all when there are many.
    pub(crate) origins: Vec<OriginReport>,
}

/// Where microslices are from.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub(crate) struct OriginReport {
    pub(crate) subsystem: u8,
    pub(crate) subsystem_format: u8,
    pub(crate) equipment: u16,
}

/// What was checked.
#[derive(Clone, Debug, Serialize)]
pub(crate) struct CheckReport {
    pub(crate) crcs: u64,
    pub(crate) ramps: u64,
    /// Contents without a CRC and without a known pattern.
    pub(crate) unchecked: u64,
    /// Microslices that their detector marks as cut off or wrong.
    pub(crate) marked: u64,
    pub(crate) faults: u64,
    pub(crate) findings: Vec<FindingReport>,
}

/// One kind of fault.
#[derive(Clone, Debug, Serialize)]
pub(crate) struct FindingReport {
    pub(crate) what: &'static str,
    pub(crate) count: u64,
    pub(crate) first: Option<PlaceReport>,
    #[serde(skip)]
    pub(crate) finding: Finding,
}

/// Where a fault is; all numbers begin with zero.
#[derive(Clone, Copy, Debug, Serialize)]
pub(crate) struct PlaceReport {
    pub(crate) item: u64,
    pub(crate) component: Option<u32>,
    pub(crate) microslice: Option<u32>,
}

impl FileReport {
    /// Returns whether something is wrong with it, or it lacks its end: nobody can know what was
    /// there.
    pub(crate) fn is_faulty(&self) -> bool {
        self.ends_early() || self.check.as_ref().is_some_and(|check| check.faults > 0)
    }

    /// Returns whether it was not read up to an end of its own.
    pub(super) fn ends_early(&self) -> bool {
        self.broken.is_some() || self.cut || self.unfinished
    }
}

/// Walks through the archive at `path`, as the part under way of a forecast.
///
/// # Errors
/// When the file cannot be opened or the disk fails. What is wrong inside the file stands in the
/// report.
pub(crate) fn survey(path: &Path, limits: Limits, depth: SurveyDepth) -> Result<FileReport> {
    let all = fs::metadata(path).map_or(0, |found| found.len());
    let opened = ArchiveFile::open_watched(path, limits, ReadProgress::new(all));
    walk(path, opened, depth)
}

/// Walks through what was `opened` at `path`.
///
/// # Errors
/// As [`survey`].
pub(super) fn walk(
    path: &Path,
    opened: Result<ArchiveFile, ArchiveReadError>,
    depth: SurveyDepth,
) -> Result<FileReport> {
    let mut report = FileReport {
        file: path.display().to_string(),
        header: None,
        contents: ContentReport::default(),
        check: None,
        cut: false,
        cut_item_bytes: 0,
        unfinished: is_unfinished(path),
        broken: None,
    };
    let shown = || path.display().to_string();
    let mut file = match opened {
        Ok(file) => file,
        Err(ArchiveReadError::Broken(sentence)) => {
            report.broken = Some(sentence);
            return Ok(report);
        }
        Err(stop) => return Err(stop).with_context(shown),
    };
    let mut inspector = Inspector::default();
    loop {
        match file.advance() {
            Ok(true) => {}
            Ok(false) => break,
            Err(ArchiveReadError::Broken(sentence)) => {
                report.broken = Some(sentence);
                break;
            }
            Err(stop) => return Err(stop).with_context(shown),
        }
        let Some(item) = file.item() else { break };
        report.contents.add(&item);
        if depth == SurveyDepth::Faults {
            inspector.look(&item, file.header().versions);
        }
    }
    report.header = Some(HeaderReport::new(file.header(), &report.contents));
    report.check = (depth == SurveyDepth::Faults).then(|| CheckReport::new(inspector.tally()));
    let cut = if report.broken.is_none() { file.cut() } else { None };
    report.cut = cut.is_some();
    report.cut_item_bytes = if let Some(Truncation::Item(bytes)) = cut { bytes } else { 0 };
    Ok(report)
}

impl HeaderReport {
    fn new(header: &Header, contents: &ContentReport) -> Self {
        let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
        let timeslices = header.kind == ArchiveKind::Timeslices;
        Self {
            kind: if timeslices { "timeslices" } else { "microslices" },
            compression: match header.compression {
                Compression::None => "none",
                Compression::Zstd => "zstd",
            },
            created_s: header.created_s,
            host: text(&header.host),
            user: text(&header.user),
            library_version: header.versions.library,
            header_version: header.versions.header,
            timeslice_version: (timeslices && contents.items > 0)
                .then_some(header.versions.timeslice),
            component_version: contents
                .most_components
                .filter(|most| *most > 0)
                .map(|_| header.versions.component),
        }
    }
}

impl CheckReport {
    fn new(tally: &InspectionSummary) -> Self {
        let findings =
            Finding::ALL.into_iter().filter_map(|finding| {
                let (count, first) = tally.found(finding);
                let first = first.map(|ArchivePosition { item, component, microslice }| {
                    PlaceReport { item, component, microslice }
                });
                (count > 0).then(|| FindingReport { what: finding.word(), count, first, finding })
            });
        Self {
            crcs: tally.crcs,
            ramps: tally.ramps,
            unchecked: tally.unchecked,
            marked: tally.marked,
            faults: tally.faults(),
            findings: findings.collect(),
        }
    }
}

impl ContentReport {
    fn add(&mut self, item: &Item<'_>) {
        self.items += 1;
        match item {
            Item::Microslice(microslice) => {
                self.microslice(&microslice.descriptor, microslice.content.len() as u64)
            }
            Item::Timeslice(timeslice) => self.timeslice(timeslice),
        }
    }

    fn timeslice(&mut self, timeslice: &Timeslice<'_>) {
        self.first_timeslice.get_or_insert(timeslice.descriptor.index);
        self.last_timeslice = Some(timeslice.descriptor.index);
        self.incomplete_timeslices += u64::from(timeslice.descriptor.flags.is_incomplete());
        let components = timeslice.components().len() as u64;
        widen(&mut self.fewest_components, &mut self.most_components, components);
        for microslice in timeslice.components().flat_map(|component| component.microslices()) {
            match microslice {
                Ok(microslice) => {
                    self.microslice(&microslice.descriptor, microslice.content.len() as u64)
                }
                Err(descriptor) => self.microslice(&descriptor, 0),
            }
        }
    }

    fn microslice(&mut self, descriptor: &MicrosliceDescriptor, bytes: u64) {
        self.microslices += 1;
        self.content_bytes += bytes;
        widen(&mut self.smallest_bytes, &mut self.largest_bytes, bytes);
        self.first_ns.get_or_insert(descriptor.index);
        self.last_ns = Some(descriptor.index);
        let MicrosliceDescriptor { subsystem, subsystem_format, equipment, .. } = *descriptor;
        let origin = OriginReport { subsystem, subsystem_format, equipment };
        if self.origins.len() < ORIGINS_MAX && !self.origins.contains(&origin) {
            self.origins.push(origin);
        }
    }
}

fn widen(low: &mut Option<u64>, high: &mut Option<u64>, value: u64) {
    *low = Some(low.map_or(value, |low| low.min(value)));
    *high = Some(high.map_or(value, |high| high.max(value)));
}
