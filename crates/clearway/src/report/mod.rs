//! The report of any run: what it holds, where it is kept, how a person reads it and compares two.
//!
//! # Model
//! A run makes one [`model::Report`]. [`store`] keeps it as `report.json` with a `report.html`
//! next to it, both whole or not at all; [`terminal`] and [`html`] only read it, so `clearway
//! report DIR` makes the same page again at any time; [`diff`] compares two. A figure is found by
//! its name and labels, and by nothing else. What one mechanism alone measures it shows itself: the
//! caller passes a [`present::Presenter`] of each.
//!
//! ```text
//! let mut report = Report::new(command, place, scenario, seed);
//! report.figures.push(Figure::estimate(CIF, "x", &estimate, "bootstrap of 100 ms blocks")
//!     .with(labels::QUEUE, "fifo").with(labels::VICTIM, "ping").with(labels::CONGESTOR, "incast").with(labels::QUANTILE, "p99"));
//! report.survival.push(Survival::of(&histogram, labels));
//! store::write(dir, &report, &presenters)?;         // report.json and report.html
//! let report = store::read(dir, &presenters)?;      // a directory, or a report.json
//! let report = store::render_again(dir, &presenters)?; // report.html again, from report.json
//! print!("{}", terminal::render(&report, &presenters, Paint::Plain));
//! let comparison = diff::compare(&a, &b);           // comparison.result: SameOrBetter or Worse
//! ```
//!
//! # Invariants
//! I1. Nothing here measures or judges: outcome and figures arrive made.
//! I2. No module here names a mechanism, what runs it, or a command.
//! I3. Text from a report never becomes markup, script or terminal control, wherever the report
//!     came from.
//!
//! # Not here
//! Intervals (`clearway_proto::stats`); flags and exit codes (the command line).

pub(crate) mod diff;
mod figure_format;
pub(crate) mod html;
pub(crate) mod model;
pub(crate) mod numerals;
pub(crate) mod place_comparison;
pub(crate) mod present;
pub(crate) mod store;
pub(crate) mod terminal;
pub(crate) mod title;

pub(crate) use figure_format::{FigureFormat, NothingMore};

#[cfg(test)]
pub(crate) mod sample;
