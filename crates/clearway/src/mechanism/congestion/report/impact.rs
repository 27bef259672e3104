//! Gathers the figures of each victim, congestor and queue into one row of the congestion-impact
//! table.
//!
//! # Invariants
//! I1. Rows come in the order in which their first factor stands in the report.

use super::super::names;
use crate::report::model::{Figure, Report, labels};
use crate::report::title::cell_title;

/// What else tells rows apart.
const LOAD: [&str; 3] = [labels::INTENSITY, labels::BURSTS, labels::MEMBERS];

/// One row: what happened to one victim under one congestor in one queue.
pub(super) struct ImpactRow<'a> {
    pub(super) victim: &'a str,
    pub(super) congestor: &'a str,
    pub(super) queue: &'a str,
    /// Where; only in a run at several places.
    pub(super) place: Option<&'a str>,
    /// Intensity, bursts and hosts of a group; only in a run with several.
    pub(super) load: [Option<&'a str>; 3],
    /// p50 and p99 of the victim alone.
    pub(super) isolated: [Option<&'a Figure>; 2],
    /// p50 and p99 of the victim under load.
    pub(super) congested: [Option<&'a Figure>; 2],
    /// The factor of each quantile, p50 first.
    pub(super) factors: Vec<&'a Figure>,
    /// Lost messages under load.
    pub(super) loss: Option<&'a Figure>,
    /// What the congestor reached of its ideal meanwhile.
    pub(super) goodput: Option<&'a Figure>,
}

impl<'a> ImpactRow<'a> {
    /// Returns what rows below one heading have in common: `ping under incast`.
    pub(super) fn group(&self) -> String {
        self.factors.first().map_or_else(String::new, |factor| cell_title(&factor.labels))
    }

    /// Returns the factor that the table shows: that of p99, or else the last there is.
    pub(super) fn factor(&self) -> Option<&'a Figure> {
        let of_p99 =
            self.factors.iter().find(|figure| figure.label(labels::QUANTILE) == Some("p99"));
        of_p99.or(self.factors.last()).copied()
    }
}

/// Returns the rows of `report`, one for each victim, congestor and queue that has a factor.
pub(super) fn rows(report: &Report) -> Vec<ImpactRow<'_>> {
    let mut rows: Vec<ImpactRow<'_>> = Vec::new();
    for figure in report.figures.iter().filter(|figure| figure.name == names::CIF) {
        let [victim, congestor, queue] = [labels::VICTIM, labels::CONGESTOR, labels::QUEUE]
            .map(|key| figure.label(key).unwrap_or("-"));
        let place = figure.label(labels::PLACE);
        let load = LOAD.map(|key| figure.label(key));
        let known = rows.iter_mut().find(|row| {
            (row.victim, row.congestor, row.queue, row.place) == (victim, congestor, queue, place)
                && row.load == load
        });
        match known {
            Some(row) => row.factors.push(figure),
            None => rows.push(row(report, figure, [victim, congestor, queue])),
        }
    }
    rows
}

fn row<'a>(
    report: &'a Report,
    factor: &'a Figure,
    [victim, congestor, queue]: [&'a str; 3],
) -> ImpactRow<'a> {
    let find = |name: &str, phase: Option<&str>, quantile: Option<&str>| {
        let fits = |key: &str, wanted: &str, figure: &Figure| {
            figure.label(key).is_none_or(|value| value == wanted)
        };
        let same = |key: &str, wanted: Option<&str>, figure: &Figure| {
            wanted.is_none() || figure.label(key) == wanted
        };
        report.figures.iter().find(|figure| {
            figure.name == name
                && fits(labels::VICTIM, victim, figure)
                && fits(labels::CONGESTOR, congestor, figure)
                && fits(labels::QUEUE, queue, figure)
                && figure.label(labels::PLACE) == factor.label(labels::PLACE)
                && LOAD.iter().all(|key| figure.label(key) == factor.label(key))
                && same(labels::PHASE, phase, figure)
                && same(labels::QUANTILE, quantile, figure)
        })
    };
    let latency =
        |phase| ["p50", "p99"].map(|quantile| find(names::LATENCY, Some(phase), Some(quantile)));
    ImpactRow {
        victim,
        congestor,
        queue,
        place: factor.label(labels::PLACE),
        load: LOAD.map(|key| factor.label(key)),
        isolated: latency(labels::ISOLATED),
        congested: latency(labels::CONGESTED),
        factors: vec![factor],
        loss: find(names::LOSS, Some(labels::CONGESTED), None),
        goodput: find(names::GOODPUT_SHARE, None, None),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::report::sample;

    #[test]
    fn rows__gather_what_belongs_together() {
        let report = sample::incast_demo();
        let rows = rows(&report);
        let found: Vec<_> = rows
            .iter()
            .map(|row| {
                (
                    row.queue,
                    row.isolated[1].map(|f| f.value.get()),
                    row.congested[1].map(|f| f.value.get()),
                )
            })
            .collect();
        assert_eq!(
            found,
            [("fifo", Some(28.3), Some(12_069.0)), ("strict", Some(27.9), Some(60.0))]
        );
        assert_eq!(rows[0].factors.len(), 2);
        assert_eq!(rows[0].factor().and_then(|f| f.label(labels::QUANTILE)), Some("p99"));
        assert!(rows.iter().all(|row| row.loss.is_some() && row.goodput.is_some()));
    }

    #[test]
    fn rows__a_sweep_has_one_for_each_load() {
        let mut report = sample::incast_demo();
        let swept = |bursts: &'static str| {
            sample::incast_demo().figures.into_iter().map(move |it| it.with(labels::BURSTS, bursts))
        };
        report.figures = swept("steady").chain(swept("10ms/90ms")).collect();
        let rows = rows(&report);
        let groups: Vec<String> = rows.iter().map(ImpactRow::group).collect();
        assert_eq!(groups.len(), 4);
        assert!(!groups[1].contains("bursts"), "{groups:?}");
        assert!(groups[3].ends_with(", bursts 10ms/90ms"), "{groups:?}");
        let load = |figure: &Figure| figure.label(labels::BURSTS).map(str::to_owned);
        for row in &rows {
            let of_row = row.isolated.iter().chain(&row.congested).chain([&row.loss, &row.goodput]);
            let loads: Vec<_> = of_row.map(|figure| figure.and_then(load)).collect();
            assert!(loads.iter().all(|it| it.as_deref() == row.load[1]), "{loads:?}");
        }
    }

    #[test]
    fn rows__an_isolated_figure_needs_no_congestor() {
        let mut report = sample::incast_demo();
        for figure in
            report.figures.iter_mut().filter(|f| f.label(labels::PHASE) == Some(labels::ISOLATED))
        {
            figure.labels.remove(labels::CONGESTOR);
        }
        assert!(rows(&report).iter().all(|row| row.isolated.iter().all(Option::is_some)));
    }
}
