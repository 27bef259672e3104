//! FLESnet's archives as files: where they are, read and written as streams, looked at and checked.
//!
//! # Model
//! [`Source`] gives the items of the files that a [`Locator`] names, one after the other; [`Sink`] puts items into a file. Both hold
//! one item and their buffers, however long the file is. The timeslice command takes its microslices from the one and puts its
//! timeslices into the other.
//!
//! # Not here
//! The layout of the bytes: `clearway_proto::archive`.

mod file;
#[cfg(test)]
mod flips;
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
pub(crate) use recipe::{Recipe, Shape, make};
pub(crate) use sink::{Form, Sink};
pub(crate) use source::Source;
pub(crate) use survey::{Depth, FileReport, survey};
pub(crate) use unfinished::Unfinished;
