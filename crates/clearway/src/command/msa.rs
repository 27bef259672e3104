//! `clearway msa`: looks at archives of microslices and timeslices, checks, copies and makes them.

use std::path::{Path, PathBuf};

use anyhow::Result;
use clearway_proto::archive::{Compression, Item, Limits, Versions};
use clearway_proto::microslice::{Checksum, GeneratorPlan};
use clearway_runtime::launch::escaped;

use super::arguments::{MsaFiles, MsaFormat, MsaLimits};
use super::{MsaCommand, json_text, print};
use crate::mechanism::timeslice::archive::{
    ArchiveFormat, ArchiveRecipe, ArchiveShape, ArchiveSink, ArchiveSource, FileReport, INPUT,
    Locator, SurveyDepth, checked, described, make, survey,
};
use crate::run::exit::{Exit, wrong_usage};
use crate::run::{RemainingTime, notice, reached};

/// Does what `command` says.
pub(crate) fn command(command: MsaCommand) -> Result<Exit> {
    match command {
        MsaCommand::Info(files) => look(&files, SurveyDepth::Contents, described),
        MsaCommand::Check(files) => look(&files, SurveyDepth::Faults, checked),
        MsaCommand::Copy { source, to, items, form, limits } => {
            copy(source, &to, items.unwrap_or(u64::MAX), form.into(), limits.into())
        }
        MsaCommand::Make {
            to,
            items,
            channels,
            core,
            overlap,
            channel,
            mean,
            sizes,
            period,
            seed,
            flesnet_checksum,
            form,
        } => {
            let Ok(mean_bytes) = u32::try_from(mean.0) else {
                wrong_usage!(
                    "a mean of {mean} is more than a microslice can hold, which is less than 4 GiB"
                );
            };
            let checksum = if flesnet_checksum { Checksum::Fold } else { Checksum::Crc32c };
            let plan =
                GeneratorPlan { channel, seed, sizes, mean_bytes, period: period.0, checksum };
            let shape = match channels {
                Some(_) if !to.contains(INPUT) => ArchiveShape::Timeslices { core, overlap },
                None if to.contains(INPUT) => {
                    wrong_usage!(
                        "`{to}` stands for an archive for each channel; say how many with --channels"
                    )
                }
                _ => ArchiveShape::Microslices,
            };
            make(
                &to,
                form.into(),
                &ArchiveRecipe { plan, channels: channels.unwrap_or(1), items, shape },
            )?;
            Ok(Exit::Good)
        }
    }
}

fn look(files: &MsaFiles, depth: SurveyDepth, page: fn(&[FileReport]) -> String) -> Result<Exit> {
    let limits = Limits { item_bytes: files.limits.item_max.0 };
    if files.files.iter().any(|locator| locator.cycles > 1) {
        wrong_usage!("cycles are for `msa copy`; every file is looked at once");
    }
    let paths: Vec<PathBuf> = files.files.iter().flat_map(Locator::paths).collect();
    let bytes = |path: &PathBuf| path.metadata().map_or(1.0, |found| found.len().max(1) as f64);
    let remaining = RemainingTime::begin("file", paths.iter().map(bytes).collect(), None);
    let mut reports = Vec::new();
    for path in &paths {
        remaining.part(escaped(&path.display().to_string()));
        reports.push(survey(path, limits, depth)?);
    }
    drop(remaining);
    print(&if files.json { json_text(&reports)? } else { page(&reports) })?;
    Ok(if reports.iter().any(FileReport::is_faulty) { Exit::Findings } else { Exit::Good })
}

fn copy(
    locator: Locator,
    to: &Path,
    items: u64,
    form: ArchiveFormat,
    limits: Limits,
) -> Result<Exit> {
    let remaining = RemainingTime::begin("copy", vec![1.0], None);
    remaining.part(escaped(&to.display().to_string()));
    let mut source = ArchiveSource::open_watched(locator, limits)?;
    let mut sink = ArchiveSink::create(to, source.header().kind, form)?;
    for number in 0..items {
        // The end of the files may come before, and they note how far they are.
        reached(number, items);
        if !source.advance()? {
            break;
        }
        match source.item() {
            Some(Item::Microslice(microslice)) => sink.microslice(&microslice)?,
            Some(Item::Timeslice(timeslice)) => {
                sink.timeslice(&timeslice.descriptor, timeslice.components())?
            }
            None => break,
        }
    }
    sink.finish()?;
    drop(remaining);
    if source.cut_files > 0 {
        notice!(
            "clearway: {} of the files read ended with a cut item, which was left out",
            source.cut_files
        );
    }
    Ok(Exit::Good)
}

impl From<MsaFormat> for ArchiveFormat {
    fn from(form: MsaFormat) -> Self {
        Self {
            versions: if form.flesnet_1 { Versions::FLESNET_1 } else { Versions::NEWEST },
            compression: if form.compress { Compression::Zstd } else { Compression::None },
        }
    }
}

impl From<MsaLimits> for Limits {
    fn from(limits: MsaLimits) -> Self {
        Self { item_bytes: limits.item_max.0 }
    }
}
