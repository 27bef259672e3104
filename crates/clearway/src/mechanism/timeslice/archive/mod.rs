//! FLESnet's archives as files: where they are, read and written as streams, looked at and checked.
//!
//! # Model
//! [`ArchiveSource`] gives the items of the files that a [`Locator`] names, one after the other;
//! [`ArchiveSink`] puts items into a file. Both hold one item and their buffers, however long the
//! file is. The timeslice command takes its microslices from the one and puts its timeslices into
//! the other.
//!
//! # Not here
//! The layout of the bytes: `clearway_proto::archive`.

#[cfg(test)]
mod bit_flips;
mod file;
mod locator;
mod page;
mod recipe;
mod sink;
mod source;
mod survey;
mod unfinished;

pub(crate) use file::{ITEM_BYTES_MAX, is_sent};
pub(crate) use locator::{INPUT, Locator, filled};
pub(crate) use page::{checked, described};
pub(crate) use recipe::{ArchiveRecipe, ArchiveShape, make};
pub(crate) use sink::{ArchiveFormat, ArchiveSink};
pub(crate) use source::ArchiveSource;
pub(crate) use survey::{FileReport, SurveyDepth, survey};
pub(crate) use unfinished::UnfinishedFile;
