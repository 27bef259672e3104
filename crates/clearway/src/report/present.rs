//! What a mechanism adds to a report that is shown: its tables on a terminal, its sections of the
//! page.
//!
//! # Model
//! A report holds figures and charts by name, and parts that one mechanism alone understands
//! ([`super::model::ReportPart`]). Code that reads, renders or compares reports passes a list of
//! presenters, one for each mechanism, and each shows what is its own.
//!
//! # Invariants
//! I1. A presenter that finds nothing of its mechanism in a report adds nothing.

use super::model::{Figure, Report};

/// The side on which a figure is worse.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum WorseDirection {
    Up,
    Down,
}

/// Shows what one mechanism measured.
pub(crate) trait Presenter: Sync {
    /// Refuses a report whose parts of this mechanism cannot be read.
    ///
    /// # Errors
    /// What is wrong with which part.
    fn check(&self, _report: &Report) -> Result<(), String> {
        Ok(())
    }

    /// Returns the one sentence that says what the run showed, with its deciding figures: the heading
    /// of the page.
    fn conclusion(&self, _report: &Report) -> Option<String> {
        None
    }

    /// Returns the tables for a terminal, line by line, none wider than [`super::terminal::WIDTH`].
    /// Empty tables are left out.
    fn tables(&self, _report: &Report) -> Vec<Vec<String>> {
        Vec::new()
    }

    /// Returns the sections of the page. A queue has the colour of its place in `queues`.
    fn sections(&self, _report: &Report, _queues: &[String]) -> String {
        String::new()
    }

    /// Returns the side on which `figure` of `report` is worse, if it decides whether one run is
    /// worse than another.
    fn worsens(&self, _figure: &Figure, _report: &Report) -> Option<WorseDirection> {
        None
    }

    /// Returns how many times larger than the other one the value of `figure` at one of two places
    /// may be, if they are compared.
    fn places_limit(&self, _figure: &Figure) -> Option<f64> {
        None
    }
}
