//! Gathers the figures of programs into one row for each queue and congestor.

use super::super::names;
use crate::report::model::{Figure, Report, labels};

/// The parameter that says what is measured of a program.
pub(crate) const FIGURE: &str = "program.victim-figure";
/// Value of [`FIGURE`]: what it prints, and more is better.
pub(crate) const RATE: &str = "rate";

/// One program under one congestor in one queue.
pub(super) struct ProgramRow<'a> {
    pub(super) queue: &'a str,
    pub(super) congestor: &'a str,
    /// Median figures alone and under load.
    pub(super) medians: [Option<&'a Figure>; 2],
    pub(super) slowdown: &'a Figure,
    /// What the congestor reached of its ideal meanwhile.
    pub(super) goodput: Option<&'a Figure>,
}

/// Returns the rows of `report`.
pub(super) fn rows(report: &Report) -> impl Iterator<Item = ProgramRow<'_>> {
    report.figures.iter().filter(|figure| figure.name == names::SLOWDOWN).map(|slowdown| {
        let is_same = |figure: &&Figure, phase: Option<&str>| {
            figure.labels.iter().all(|(key, value)| {
                if key == labels::PHASE {
                    phase == Some(value)
                } else {
                    slowdown.label(key) == Some(value)
                }
            })
        };
        let find = |name: &str, phase| {
            report.figures.iter().find(|it| it.name == name && is_same(it, phase))
        };
        let label = |key| slowdown.label(key).unwrap_or("-");
        ProgramRow {
            queue: label(labels::QUEUE),
            congestor: label(labels::CONGESTOR),
            medians: [labels::ISOLATED, labels::CONGESTED]
                .map(|phase| find(names::PROGRAM, Some(phase))),
            slowdown,
            goodput: find(names::GOODPUT_SHARE, None),
        }
    })
}
