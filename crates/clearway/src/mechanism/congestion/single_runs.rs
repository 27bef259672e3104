//! Counts how often the verdict of a run is right: the same cell many times, with a verdict for each run.
//!
//! # Model
//! In an *A = A run* the congestors of a cell are silent. Victims, windows, pairs that count and
//! rules are those of the cell, and the true factor is 1: CONGESTED is a false alarm. In a *loaded
//! run* congestors load, and what is not CONGESTED missed them. INVALID says nothing, so it is no
//! false alarm and it finds nothing.
//!
//! # Source
//! Comparisons of a program with itself in the same run, as tests of regressions have them.

use clearway_proto::congestion::NetworkOutcome;
use clearway_proto::stats::Estimate;

use super::cell::{Case, CongestorPresence};
use super::figures::labels_of_case;
use super::names;
use crate::mechanism::congestion::CongestionSection;
use crate::report::model::{ExtendedReal, Figure, Labels, Report, labels};

/// What runs of one cell said, each alone.
pub(super) struct SingleRuns<'a> {
    case: Case<'a>,
    congestors: CongestorPresence,
    /// Runs by outcome, in the order of [`OUTCOMES`].
    counts: [u64; 3],
}

/// All outcomes, in the order of tables.
const OUTCOMES: [NetworkOutcome; 3] =
    [NetworkOutcome::Contained, NetworkOutcome::Congested, NetworkOutcome::Invalid];

impl<'a> SingleRuns<'a> {
    /// Creates the count of no run.
    pub(super) fn new(case: Case<'a>, congestors: CongestorPresence) -> Self {
        Self { case, congestors, counts: [0; 3] }
    }

    /// Counts one run.
    pub(super) fn count(&mut self, outcome: NetworkOutcome) {
        let place = OUTCOMES.iter().position(|known| *known == outcome);
        self.counts[place.unwrap_or(OUTCOMES.len() - 1)] += 1;
    }

    /// Returns how often verdicts were false alarms, or how often congestion was found.
    fn rate(&self) -> Option<Estimate> {
        let [contained, congested, invalid] = self.counts;
        match self.congestors {
            CongestorPresence::Silent => Estimate::proportion(congested, contained + congested),
            CongestorPresence::Loading => {
                Estimate::proportion(congested, contained + congested + invalid)
            }
        }
    }

    /// Returns what tells these runs apart from others.
    fn labels(&self, test: &CongestionSection) -> Labels {
        let mut all = labels_of_case(test, &self.case);
        if self.congestors == CongestorPresence::Silent {
            all.insert(labels::CONGESTOR.to_owned(), labels::NOBODY.to_owned());
            all.remove(labels::INTENSITY);
            all.remove(labels::BURSTS);
            all.remove(labels::MEMBERS);
        }
        all
    }

    /// Returns one sentence with all counts.
    pub(super) fn sentence(&self) -> String {
        let [contained, congested, invalid] = self.counts;
        let total = contained + congested + invalid;
        let Case { queue, victim, .. } = self.case;
        let of = match self.congestors {
            CongestorPresence::Silent => {
                format!("{queue}: {} in {total} A = A runs", victim.name())
            }
            CongestorPresence::Loading => {
                format!("{}: {total} runs, a verdict for each", self.case)
            }
        };
        format!("{of}: {congested} CONGESTED, {contained} CONTAINED, {invalid} INVALID")
    }

    /// Says that a verdict of this run may be wrong, where runs without congestors had wrong ones.
    fn warning(&self) -> Option<String> {
        let rate = self.rate().filter(|rate| rate.value > 0.0)?;
        let is_silent = self.congestors == CongestorPresence::Silent;
        is_silent.then(|| {
            format!(
                "{}, where nothing congests: here CONGESTED is false in {:.1} to {:.1} % of runs",
                self.sentence(),
                rate.low * 100.0,
                rate.high * 100.0
            )
        })
    }
}

/// Writes the counts and rates of `all` into `report`.
pub(super) fn write(report: &mut Report, test: &CongestionSection, all: &[SingleRuns<'_>]) {
    for runs in all {
        let total: u64 = runs.counts.iter().sum();
        for (outcome, count) in OUTCOMES.into_iter().zip(runs.counts) {
            let count = ExtendedReal::finite(count as f64);
            let source = "runs, a verdict for each";
            let mut figure = Figure::counted(names::SINGLE_RUNS, "", count, total, source);
            figure.labels = runs.labels(test);
            report.figures.push(figure.with(names::OUTCOME, outcome.to_string().to_lowercase()));
        }
        let name = match runs.congestors {
            CongestorPresence::Silent => names::FALSE_ALARMS,
            CongestorPresence::Loading => names::FOUND,
        };
        if let Some(rate) = runs.rate() {
            let source = "counted, with the exact binomial interval, 95 %";
            let mut figure = Figure::estimate(name, "%", &rate, 100.0, source);
            figure.labels = runs.labels(test);
            report.figures.push(figure);
        }
        report.warnings.extend(runs.warning());
    }
}

#[cfg(test)]
mod tests {
    use clearway_proto::congestion::{CongestorKind, VictimKind};

    use super::*;
    use crate::mechanism::congestion::Bursts;
    use crate::report::sample;

    fn counted(congestors: CongestorPresence, counts: [u64; 3]) -> SingleRuns<'static> {
        let case = Case {
            queue: "fifo",
            victim: VictimKind::Ping,
            congestor: CongestorKind::Incast,
            intensity: 120,
            bursts: Bursts::Steady,
            members: None,
        };
        let mut runs = SingleRuns::new(case, congestors);
        for (outcome, count) in OUTCOMES.into_iter().zip(counts) {
            (0..count).for_each(|_| runs.count(outcome));
        }
        runs
    }

    #[test]
    fn rate__an_invalid_run_is_no_false_alarm_and_finds_nothing() {
        let rate = |congestors, counts| counted(congestors, counts).rate().map(|it| it.value);
        assert_eq!(rate(CongestorPresence::Silent, [9, 1, 90]), Some(0.1));
        assert_eq!(rate(CongestorPresence::Loading, [9, 1, 90]), Some(0.01));
        assert_eq!(rate(CongestorPresence::Silent, [0, 0, 5]), None);
    }

    #[test]
    fn write__counts_outcomes_and_warns_of_false_alarms_alone() {
        let test = CongestionSection::default();
        let mut report = sample::incast_demo();
        let (figures, warnings) = (report.figures.len(), report.warnings.len());
        let silent = |counts| counted(CongestorPresence::Silent, counts);
        write(
            &mut report,
            &test,
            &[silent([58, 0, 2]), counted(CongestorPresence::Loading, [1, 9, 0])],
        );
        assert_eq!(report.warnings.len(), warnings);
        let new = &report.figures[figures..];
        let names: Vec<&str> = new.iter().map(|figure| figure.name.as_str()).collect();
        let runs = names::SINGLE_RUNS;
        assert_eq!(names, [runs, runs, runs, names::FALSE_ALARMS, runs, runs, runs, names::FOUND]);
        assert_eq!(new[2].label(names::OUTCOME), Some("invalid"));
        assert_eq!((new[2].value.get(), new[2].samples), (2.0, 60));
        assert!(new[3].high.is_some_and(|high| (6.1..6.3).contains(&high.get())), "{:?}", new[3]);
        write(&mut report, &test, &[silent([58, 2, 0])]);
        let warning = report.warnings.last().expect("false alarms");
        assert!(
            warning
                .starts_with("fifo: ping in 60 A = A runs: 2 CONGESTED, 58 CONTAINED, 0 INVALID"),
            "{warning}"
        );
    }
}
