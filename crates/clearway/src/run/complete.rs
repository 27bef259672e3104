//! Keeps what is complete of a run, so that an interrupt loses no more than the cell under way.

use std::fmt;
use std::sync::{Arc, Mutex, PoisonError};

use anyhow::Result;

use crate::report::model::Report;

/// What makes one report of those of several places, and writes it where reports of this run go.
type WriteReports = Box<dyn FnMut(Vec<Report>) -> Result<()> + Send>;

/// What is complete of a run.
#[derive(Clone, Default)]
pub(crate) struct CompletedParts(Arc<Mutex<CompletedState>>);

#[derive(Default)]
struct CompletedState {
    /// Of places that are over, in their order.
    places: Vec<Report>,
    /// Of the place under way.
    cells: Option<Report>,
    keep: Option<WriteReports>,
}

impl fmt::Debug for CompletedParts {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("CompletedParts")
    }
}

impl CompletedParts {
    /// Creates a record of nothing so far; `keep` writes it if the run is interrupted.
    pub(crate) fn new(keep: impl FnMut(Vec<Report>) -> Result<()> + Send + 'static) -> Self {
        Self(Arc::new(Mutex::new(CompletedState {
            keep: Some(Box::new(keep)),
            ..CompletedState::default()
        })))
    }

    fn with<T>(&self, change: impl FnOnce(&mut CompletedState) -> T) -> T {
        change(&mut self.0.lock().unwrap_or_else(PoisonError::into_inner))
    }

    /// Notes that `done` of `total` cells of a place are complete, and that `report` is of these.
    pub(crate) fn cells(&self, mut report: Report, [done, total]: [usize; 2]) {
        let cells = format!("{done} of {total} cells were measured");
        report.verdict = None;
        report
            .warnings
            .insert(0, format!("the run was interrupted: {cells}, and there is no verdict"));
        report.host.facts.insert("interrupted".to_owned(), cells);
        self.with(|state| state.cells = Some(report));
    }

    /// Notes that a place is over.
    pub(crate) fn place(&self, report: &Report) {
        self.with(|state| {
            state.places.insert(0, report.clone());
            state.cells = None;
        });
    }

    /// Keeps what there is, once; whether there is any.
    ///
    /// # Errors
    /// It cannot be written.
    pub(crate) fn keep(&self) -> Result<bool> {
        let (reports, keep): (Vec<Report>, _) = self.with(|state| {
            let cells = state.cells.take();
            (
                cells.into_iter().chain(std::mem::take(&mut state.places)).collect(),
                state.keep.take(),
            )
        });
        match keep {
            Some(mut keep) if !reports.is_empty() => keep(reports).map(|()| true),
            _ => Ok(false),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc;

    use super::*;
    use crate::report::sample;

    #[test]
    fn keep__writes_the_cells_that_are_complete_once_and_says_that_it_is_not_all() {
        let (sender, kept) = mpsc::channel();
        let complete = CompletedParts::new(move |reports| Ok(sender.send(reports)?));
        complete.cells(sample::incast_demo(), [1, 4]);
        complete.cells(sample::incast_demo(), [2, 4]);
        assert!(complete.keep().expect("kept") && !complete.keep().expect("nothing more"));
        let reports = kept.try_recv().expect("a report");
        let [report] = &reports[..] else { panic!("one place, {} reports", reports.len()) };
        assert_eq!(
            report.warnings[0],
            "the run was interrupted: 2 of 4 cells were measured, and there is no verdict"
        );
        assert!(
            report.verdict.is_none()
                && report.host.facts["interrupted"] == "2 of 4 cells were measured"
        );
        assert!(kept.try_recv().is_err());
        assert!(!CompletedParts::default().keep().expect("nothing to keep"));
    }
}
