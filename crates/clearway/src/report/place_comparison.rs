//! Makes one report of the reports of several places: their figures labelled with the place, and
//! how far they are apart.
//!
//! # Model
//! Figures that mechanisms name ([`Presenter::places_limit`]) are compared where all labels agree.
//! Two values are *within* each other's reach when the larger is at most a limit times the smaller.
//!
//! # Invariants
//! I1. No figure of any place is left out.

use std::collections::BTreeMap;

use super::model::{
    Draw, ExtendedReal, Figure, FigureDistance, Labels, PlaceComparison, Report, RunOutcome,
    Verdict, labels,
};
use super::present::Presenter;

/// Returns the reports of one scenario, first place first, as one; `None` when there is none.
pub(crate) fn merge(mut reports: Vec<Report>, presenters: &[&dyn Presenter]) -> Option<Report> {
    if reports.len() < 2 {
        return reports.pop();
    }
    reports.iter_mut().for_each(label);
    let mut reports = reports.into_iter();
    let mut all = reports.next()?;
    for mut other in reports {
        all.place_comparisons.extend(compare(&all, &other, presenters));
        all.place = format!("{},{}", all.place, other.place);
        all.verdict = verdict(all.verdict.take(), other.verdict.take());
        all.figures.append(&mut other.figures);
        all.warnings.append(&mut other.warnings);
        all.survival.append(&mut other.survival);
        all.timelines.append(&mut other.timelines);
        all.heat.append(&mut other.heat);
        all.shares.append(&mut other.shares);
        all.slowest.append(&mut other.slowest);
        all.culprits.append(&mut other.culprits);
        all.digests.append(&mut other.digests);
        all.fabric = all.fabric.take().or(other.fabric);
        other.parts.append(&mut all.parts);
        all.parts = other.parts;
        all.host.facts.append(&mut other.host.facts);
        all.host.load_after = other.host.load_after.or(all.host.load_after);
        all.created = other.created.max(all.created);
        draws(&mut all.draws, other.draws);
    }
    all.place_comparisons.sort_by(|a, b| a.name.cmp(&b.name));
    Some(all)
}

/// Writes the place of `report` into everything that has labels, and before sentences that have
/// none.
fn label(report: &mut Report) {
    let place = report.place.clone();
    let figures = report.figures.iter_mut().map(|figure| &mut figure.labels);
    let charts = report.survival.iter_mut().map(|curve| &mut curve.labels);
    let lines = report.timelines.iter_mut().map(|line| &mut line.labels);
    let maps = report.heat.iter_mut().map(|map| &mut map.labels);
    let shares = report.shares.iter_mut().map(|share| &mut share.labels);
    let parts = report
        .verdict
        .iter_mut()
        .flat_map(|verdict| &mut verdict.parts)
        .map(|part| &mut part.labels);
    let factors =
        report.draws.iter_mut().flat_map(|draw| &mut draw.cif).map(|factor| &mut factor.labels);
    let slowest = report.slowest.iter_mut().map(|slowest| &mut slowest.labels);
    let culprits = report.culprits.iter_mut().map(|culprit| &mut culprit.labels);
    for all in figures
        .chain(charts)
        .chain(lines)
        .chain(maps)
        .chain(shares)
        .chain(parts)
        .chain(factors)
        .chain(slowest)
        .chain(culprits)
    {
        all.insert(labels::PLACE.to_owned(), place.clone());
    }
    report.warnings.iter_mut().for_each(|warning| *warning = format!("{place}: {warning}"));
    if let Some(verdict) = &mut report.verdict {
        verdict.sentence = format!("On {place}: {}", verdict.sentence);
    }
}

/// Returns the worse outcome, both sentences, all parts.
fn verdict(a: Option<Verdict>, b: Option<Verdict>) -> Option<Verdict> {
    let (Some(mut a), Some(mut b)) = (a.clone(), b.clone()) else { return a.or(b) };
    let either = |outcome| a.outcome == outcome || b.outcome == outcome;
    let outcomes = [RunOutcome::Invalid, RunOutcome::Congested, RunOutcome::Contained];
    a.outcome = outcomes.into_iter().find(|outcome| either(*outcome)).unwrap_or(a.outcome);
    a.sentence = format!("{} {}", a.sentence, b.sentence);
    a.reasons.append(&mut b.reasons);
    a.parts.append(&mut b.parts);
    Some(a)
}

fn draws(into: &mut Vec<Draw>, from: Vec<Draw>) {
    for mut draw in from {
        match into.iter_mut().find(|known| known.draw == draw.draw) {
            Some(known) => known.cif.append(&mut draw.cif),
            None => into.push(draw),
        }
    }
}

/// Returns the figures that both have and that can be compared.
fn compare(a: &Report, b: &Report, presenters: &[&dyn Presenter]) -> Vec<PlaceComparison> {
    let limit_of =
        |figure: &Figure| presenters.iter().find_map(|presenter| presenter.places_limit(figure));
    let placeless = |figure: &Figure| {
        let mut all = figure.labels.clone();
        all.remove(labels::PLACE);
        (figure.name.clone(), all)
    };
    let others: BTreeMap<(String, Labels), &Figure> =
        b.figures.iter().map(|figure| (placeless(figure), figure)).collect();
    let pairs = a.figures.iter().filter_map(|figure| {
        let (limit, key) = (limit_of(figure)?, placeless(figure));
        Some(compare_figures(key.1.clone(), limit, [(a, figure), (b, others.get(&key)?)]))
    });
    pairs.collect()
}

fn compare_figures(labels: Labels, limit: f64, sides: [(&Report, &Figure); 2]) -> PlaceComparison {
    let [a, b] = sides.map(|(_, figure)| figure.value.get());
    // Of two losses neither is worse.
    let ratio = if a == b && a.is_infinite() {
        Some(ExtendedReal::finite(1.0))
    } else {
        ExtendedReal::new(a / b)
    };
    let near =
        ratio.is_some_and(|ratio| ratio.get() <= limit && ratio.get() >= 1.0 / limit) || a == b;
    PlaceComparison {
        name: sides[0].1.name.clone(),
        labels,
        unit: sides[0].1.unit.clone(),
        values: sides.map(|(report, figure)| (report.place.clone(), figure.value)).into(),
        ratio,
        limit: ExtendedReal::finite(limit),
        distance: if near { FigureDistance::Within } else { FigureDistance::Beyond },
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::report::model::Culprit;
    use crate::report::sample;

    /// Factors of p99 are compared.
    struct FactorPresenter;

    impl Presenter for FactorPresenter {
        fn places_limit(&self, figure: &Figure) -> Option<f64> {
            (figure.name == "congestion_impact_factor"
                && figure.label(labels::QUANTILE) == Some("p99"))
            .then_some(1.5)
        }
    }

    fn two() -> [Report; 2] {
        let [lab, mut sim] = [sample::incast_demo(), sample::incast_demo()];
        sim.place = "sim".to_owned();
        [sim, lab]
    }

    #[test]
    fn merge__keeps_every_figure_under_its_place_and_compares_what_can_be() {
        let [mut sim, mut lab] = two();
        sim.parts.insert("both".to_owned(), 1.into());
        lab.parts
            .extend([("both", 2), ("one", 3)].map(|(name, value)| (name.to_owned(), value.into())));
        let figures = lab.figures.len();
        let all = merge(vec![sim, lab], &[&FactorPresenter]).expect("two");
        assert_eq!((all.place.as_str(), all.figures.len()), ("sim,lab", 2 * figures));
        assert_eq!(
            (&all.parts["both"], &all.parts["one"]),
            (&1.into(), &3.into()),
            "the first place's before the second's"
        );
        let keys: std::collections::BTreeSet<_> =
            all.figures.iter().map(|f| (&f.name, &f.labels)).collect();
        assert_eq!(keys.len(), all.figures.len());
        assert_eq!(all.place_comparisons.len(), 2, "a factor of two queues");
        assert!(all.place_comparisons.iter().all(|it| it.distance == FigureDistance::Within
            && it.ratio == Some(ExtendedReal::finite(1.0))));
        assert_eq!(all.verdict.expect("both have one").parts.len(), 4);
    }

    #[test]
    fn merge__keeps_where_victims_wait_at_each_place() {
        let [mut sim, mut lab] = two();
        for report in [&mut sim, &mut lab] {
            report.culprits = vec![Culprit {
                labels: Labels::new(),
                port: "switch -> n1".to_owned(),
                senders: Vec::new(),
                because: String::new(),
            }];
        }
        let merged = merge(vec![sim, lab], &[]).expect("two");
        let places: Vec<&str> =
            merged.culprits.iter().map(|it| it.labels[labels::PLACE].as_str()).collect();
        assert_eq!(places, ["sim", "lab"]);
    }

    #[test]
    fn merge__keeps_the_fabric_of_the_simulator_whichever_place_comes_first() {
        for reports in [
            [sample::simulated(), sample::incast_demo()],
            [sample::incast_demo(), sample::simulated()],
        ] {
            let merged = merge(reports.into(), &[]).expect("two");
            assert_eq!(merged.fabric, sample::simulated().fabric);
        }
    }

    #[test]
    fn merge__one_report_stays_as_it_is() {
        let report = sample::incast_demo();
        assert_eq!(merge(vec![report.clone()], &[]), Some(report));
        assert_eq!(merge(Vec::new(), &[]), None);
    }

    #[test]
    fn compare_figures__the_limit_holds_both_ways_and_of_two_losses_neither_is_worse() {
        let cases = [
            (15.0, 10.0, FigureDistance::Within),
            (16.0, 10.0, FigureDistance::Beyond),
            (10.0, 16.0, FigureDistance::Beyond),
            (1.1, 0.8, FigureDistance::Within),
            (1.1, 0.5, FigureDistance::Beyond),
            (f64::INFINITY, f64::INFINITY, FigureDistance::Within),
            (f64::INFINITY, 5.0, FigureDistance::Beyond),
        ];
        for (a, b, distance) in cases {
            let [mut sim, mut lab] = two();
            for (report, value) in [(&mut sim, a), (&mut lab, b)] {
                let factor = report
                    .figures
                    .iter_mut()
                    .find(|figure| FactorPresenter.places_limit(figure).is_some())
                    .expect("one");
                factor.value = ExtendedReal::new(value).expect("a number");
            }
            let compared =
                merge(vec![sim, lab], &[&FactorPresenter]).expect("two").place_comparisons;
            let beyond = compared.iter().filter(|it| it.distance == FigureDistance::Beyond).count();
            assert_eq!(beyond, usize::from(distance == FigureDistance::Beyond), "{a} {b}");
        }
    }
}
