//! What a run's ranks count, sample by sample, and how long that goes on.

use std::collections::BTreeMap;

use clearway_proto::base::{Nanos, Rank};
use clearway_proto::timeslice::TimesliceRecord;

use super::messages::TimesliceProgress;
use super::plan::TimeslicePlan;
use super::simulated::TimesliceOutcome;

/// Samples of what is counted, at most.
const SAMPLES_MAX: u64 = 200;
/// The shortest sample: longer than ranks on a busy machine are away.
const SAMPLE_LEAST: Nanos = Nanos::from_millis(50);
/// The samples of a run that has a source.
const SAMPLE: Nanos = Nanos::from_millis(200);

/// How long a run is.
#[derive(Clone, Copy)]
pub(super) enum RunLength {
    /// These samples are not counted, then those are, each of this length.
    Timed { skipped: u64, counted: u64, sample: Nanos },
    /// As long as its sources are.
    Source,
}

impl RunLength {
    pub(super) fn timed(plan: &TimeslicePlan) -> Self {
        let counted = (plan.measured.0 / SAMPLE_LEAST.0).clamp(1, SAMPLES_MAX);
        let sample = Nanos((plan.measured.0 / counted).max(1));
        Self::Timed { skipped: plan.warm_up.0.div_ceil(sample.0), counted, sample }
    }

    pub(super) const fn sample(self) -> Nanos {
        match self {
            Self::Timed { sample, .. } => sample,
            Self::Source => SAMPLE,
        }
    }

    fn is_counted(self, number: u64) -> bool {
        match self {
            Self::Timed { skipped, counted, .. } => number > skipped && number <= skipped + counted,
            Self::Source => true,
        }
    }

    fn is_over(self, number: u64) -> bool {
        match self {
            Self::Timed { skipped, counted, .. } => number >= skipped + counted,
            Self::Source => false,
        }
    }

    /// Returns how long nothing is counted.
    pub(super) const fn uncounted(self) -> Nanos {
        match self {
            Self::Timed { skipped, sample, .. } => Nanos(skipped * sample.0),
            Self::Source => Nanos::ZERO,
        }
    }

    /// Returns how many samples are counted, where that is known.
    const fn samples(self) -> usize {
        match self {
            Self::Timed { counted, .. } => counted as usize,
            Self::Source => 0,
        }
    }

    /// Returns the place of a sample among those that are counted.
    fn place_of(self, number: u64) -> Option<usize> {
        match self {
            Self::Timed { skipped, .. } => {
                number.checked_sub(skipped + 1).map(|place| place as usize)
            }
            Self::Source => None,
        }
    }
}

/// What was counted of a run.
pub(super) struct RunCounts {
    length: RunLength,
    ranks: usize,
    inputs: usize,
    pub(super) outcome: TimesliceOutcome,
    /// The last sample of each rank.
    last: BTreeMap<Rank, u64>,
    /// Timeslices that inputs gave.
    given: BTreeMap<Rank, u64>,
    /// Contributions of each input so far.
    sent: BTreeMap<Rank, u64>,
    /// Processor time of each rank before what is counted and at its end.
    processor: BTreeMap<Rank, [Nanos; 2]>,
    /// That of processes that ended, while it was counted.
    spent: Nanos,
    /// The same at each sample, until all inputs have reported theirs.
    samples: BTreeMap<u64, Vec<u64>>,
}

impl RunCounts {
    pub(super) fn new(plan: &TimeslicePlan, length: RunLength) -> Self {
        Self {
            length,
            ranks: (plan.inputs + plan.builders) as usize,
            inputs: plan.inputs as usize,
            outcome: TimesliceOutcome {
                pulse: vec![0; length.samples()],
                ..TimesliceOutcome::new(plan, plan.measured)
            },
            last: BTreeMap::new(),
            given: BTreeMap::new(),
            sent: BTreeMap::new(),
            processor: BTreeMap::new(),
            spent: Nanos::ZERO,
            samples: BTreeMap::new(),
        }
    }

    /// Returns whether every rank has reported its last sample.
    pub(super) fn is_over(&self) -> bool {
        self.last.len() == self.ranks
            && self.last.values().all(|number| self.length.is_over(*number))
    }

    /// Takes `rank` out: nothing more is expected of it.
    pub(super) fn lose(&mut self, rank: Rank) {
        self.ranks -= 1;
        self.inputs -= usize::from(rank.0 < self.outcome.inputs);
        self.last.remove(&rank);
        self.given.remove(&rank);
        self.sent.remove(&rank);
    }

    /// Lets `rank` take part again, counting from where the others are.
    pub(super) fn join(&mut self, rank: Rank) {
        self.ranks += 1;
        self.inputs += usize::from(rank.0 < self.outcome.inputs);
        if let Some(least) =
            self.sent.values().min().copied().filter(|_| rank.0 < self.outcome.inputs)
        {
            self.sent.insert(rank, least);
        }
    }

    /// Counts on with another process in the place of `rank`.
    pub(super) fn restart(&mut self, rank: Rank) {
        if let Some([before, at_end]) = self.processor.remove(&rank) {
            self.spent = self.spent + Nanos(at_end.0 - before.0);
        }
    }

    /// Returns the number of the last sample that any rank has reported.
    pub(super) fn reported(&self) -> u64 {
        self.last.values().copied().max().unwrap_or(0)
    }

    /// Returns how many timeslices the furthest input gave.
    pub(super) fn furthest(&self) -> u64 {
        self.given.values().copied().max().unwrap_or(0)
    }

    /// Returns the bytes that landed for each second of processor time; nothing where none landed,
    /// or it was over before any time was counted.
    pub(super) fn cost(&self) -> Option<f64> {
        let spent: f64 = self
            .processor
            .values()
            .map(|[before, at_end]| (at_end.0 - before.0) as f64 / 1e9)
            .sum::<f64>()
            + self.spent.0 as f64 / 1e9;
        (spent > 0.0 && self.outcome.bytes > 0).then(|| self.outcome.bytes as f64 / spent)
    }

    /// Adds what `rank` counted; whether anything moved.
    pub(super) fn add(&mut self, rank: Rank, progress: &TimesliceProgress) -> bool {
        let TimesliceProgress { number, ref record, timeslices, processor, .. } = *progress;
        self.last.insert(rank, number);
        let is_counted = self.length.is_counted(number);
        let [before, at_end] = self.processor.entry(rank).or_insert([processor; 2]);
        if is_counted {
            *at_end = processor;
        } else if *before == *at_end {
            (*before, *at_end) = (processor, processor);
        }
        let outcome = &mut self.outcome;
        if is_counted {
            outcome.add(rank, record);
        }
        match record {
            TimesliceRecord::Input(record) => {
                self.given.insert(rank, timeslices);
                let sent = self.sent.entry(rank).or_default();
                *sent += record.contributions;
                if is_counted {
                    let sample = self.samples.entry(number).or_default();
                    sample.push(*sent);
                    if sample.len() == self.inputs {
                        outcome.gap.record(
                            sample.iter().max().unwrap_or(&0) - sample.iter().min().unwrap_or(&0),
                        );
                        self.samples.remove(&number);
                    }
                }
                record.contributions > 0
            }
            TimesliceRecord::Builder(record) => {
                let place = self.length.place_of(number);
                if let Some(sample) = place.and_then(|place| outcome.pulse.get_mut(place)) {
                    *sample += record.bytes;
                }
                if is_counted && self.length.is_over(number) {
                    outcome.windows.extend(record.window);
                }
                record.contributions > 0
            }
        }
    }
}

#[cfg(test)]
mod tests {
    //! Counts of ranks that go and come back.

    use clearway_proto::timeslice::{BuilderRecord, InputRecord};

    use super::super::losses::BuilderWait;
    use super::*;

    fn progress(number: u64, processor: u64, record: TimesliceRecord) -> TimesliceProgress {
        TimesliceProgress {
            number,
            record,
            span: Nanos(1),
            timeslices: number,
            processor: Nanos(processor),
            source: None,
            waits: BuilderWait::Nothing,
        }
    }

    fn built(bytes: u64) -> TimesliceRecord {
        TimesliceRecord::Builder(BuilderRecord { bytes, contributions: 1, ..Default::default() })
    }

    fn counts() -> RunCounts {
        RunCounts::new(&TimeslicePlan::sample(), RunLength::Source)
    }

    #[test]
    fn restart__processor_time_of_both_processes_counts() {
        let mut counts = counts();
        for (number, seconds) in [(1, 4), (2, 6)] {
            counts.add(Rank(3), &progress(number, seconds * 1_000_000_000, built(300)));
        }
        counts.lose(Rank(3));
        counts.restart(Rank(3));
        assert_eq!(counts.cost(), Some(600.0 / 2.0), "what the first one took");
        counts.join(Rank(3));
        // The clock of another process begins at zero.
        for (number, seconds) in [(7, 0), (8, 1)] {
            counts.add(Rank(3), &progress(number, seconds * 1_000_000_000, built(300)));
        }
        assert_eq!(counts.cost(), Some(1200.0 / 3.0));
        // A process that was killed before it reported anything took nothing that is known.
        counts.restart(Rank(2));
        assert_eq!(counts.cost(), Some(1200.0 / 3.0));
    }

    #[test]
    fn join__a_rank_that_was_started_again_is_expected_and_counts_from_where_the_others_are() {
        let plan = TimeslicePlan::sample();
        let length = RunLength::Timed { skipped: 0, counted: 2, sample: Nanos(1) };
        let mut counts = RunCounts::new(&plan, length);
        let sent = |contributions| {
            TimesliceRecord::Input(InputRecord { contributions, ..Default::default() })
        };
        let ranks = plan.inputs + plan.builders;
        for rank in 1..ranks {
            let record = if rank < plan.inputs { sent(50) } else { built(1) };
            counts.add(Rank(rank), &progress(2, 1, record));
        }
        assert!(!counts.is_over(), "the first input is expected");
        counts.add(Rank(0), &progress(1, 1, sent(40)));
        counts.lose(Rank(0));
        assert!(counts.is_over(), "it is out");
        counts.restart(Rank(0));
        counts.join(Rank(0));
        assert!(!counts.is_over(), "it is back");
        assert_eq!((counts.reported(), counts.sent[&Rank(0)]), (2, 50));
        counts.add(Rank(0), &progress(2, 1, sent(3)));
        assert!(counts.is_over());
    }
}
