//! Shows the congestion test: its tables on a terminal, its tables and charts on the page.

mod charts;
mod comparison;
mod conclusion;
mod culprit;
mod heat;
mod impact;
pub(super) mod programs;
mod single_runs;
mod slow;
mod tables;
mod terminal;
#[cfg(test)]
mod tests;

use super::{ClassShares, CongestionTest};
use crate::report::model::{Figure, Report};
use crate::report::present::{Presenter, WorseDirection};

// Marks and shares of classes are one table, which either test fills.
impl Presenter for ClassShares {
    fn conclusion(&self, report: &Report) -> Option<String> {
        conclusion::shares(report)
    }
}

impl Presenter for CongestionTest {
    fn conclusion(&self, report: &Report) -> Option<String> {
        conclusion::impact(report)
    }

    fn tables(&self, report: &Report) -> Vec<Vec<String>> {
        vec![
            terminal::impact_table(report),
            terminal::program_table(report),
            culprit::lines(report),
            single_runs::lines(report),
            terminal::class_table(report),
        ]
    }

    fn sections(&self, report: &Report, queues: &[String]) -> String {
        [
            tables::impact(report, queues),
            tables::programs(report, queues),
            single_runs::page(report, queues),
            charts::survival(report, queues),
            charts::timelines(report),
            charts::heat(report),
            culprit::page(report),
            slow::slowest(report),
            tables::classes(report, queues),
            charts::draws(report),
        ]
        .concat()
    }

    fn worsens(&self, figure: &Figure, report: &Report) -> Option<WorseDirection> {
        comparison::worsens(figure, report)
    }

    fn places_limit(&self, figure: &Figure) -> Option<f64> {
        comparison::places_limit(figure)
    }
}
