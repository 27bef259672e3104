//! The figures of timeslice runs as metrics: sums of what ranks say of themselves, over all runs of
//! a command.
//!
//! # Model
//! Each rank reports what it counted since its last report; the [`StatusBoard`] adds it here, and
//! shows of it what `timeslice watch` shows.
//!
//! [`StatusBoard`]: super::status_board::StatusBoard

use std::collections::BTreeMap;
use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use clearway_proto::base::{Nanos, Rank};
use clearway_proto::stats::Histogram;
use clearway_proto::timeslice::{Cause, Policy, TimesliceRecord};

use super::ledger::SourceCounts;
use super::messages::TimesliceProgress;
use crate::run::metrics::{MetricLabels, MetricSheet, MetricSource, MetricTitle, MetricUnit};

const BUILT: MetricTitle = MetricTitle {
    name: "timeslice_built",
    help: "Timeslices that are complete.",
    unit: MetricUnit::Number,
};
const SENT: MetricTitle = MetricTitle {
    name: "timeslice_sent",
    help: "Bytes of contributions that inputs sent.",
    unit: MetricUnit::Bytes,
};
const LANDED: MetricTitle = MetricTitle {
    name: "timeslice_landed",
    help: "Bytes of contributions that landed at builders.",
    unit: MetricUnit::Bytes,
};
const CONTRIBUTIONS: MetricTitle = MetricTitle {
    name: "timeslice_contributions",
    help: "Contributions: sent, landed, landed twice and dropped, and released by their builder.",
    unit: MetricUnit::Number,
};
const BLOCKED: MetricTitle = MetricTitle {
    name: "timeslice_blocked",
    help: "How long inputs could send nothing, in all, by cause.",
    unit: MetricUnit::Seconds,
};
const COMPLETION: MetricTitle = MetricTitle {
    name: "timeslice_completion",
    help: "From the first to the last contribution of a timeslice.",
    unit: MetricUnit::Seconds,
};
const MICROSLICES: MetricTitle = MetricTitle {
    name: "timeslice_microslices",
    help: "Microslices that sources offered, and those that are in no timeslice, by cause.",
    unit: MetricUnit::Number,
};
const HELD_BACK: MetricTitle = MetricTitle {
    name: "timeslice_held_back_microslices",
    help: "Microslices that sources dropped while a builder held the memory of their inputs.",
    unit: MetricUnit::Number,
};
const STRANGERS: MetricTitle = MetricTitle {
    name: "timeslice_senseless_messages",
    help: "Messages that made no sense and changed nothing.",
    unit: MetricUnit::Number,
};
const LOSSES: MetricTitle = MetricTitle {
    name: "timeslice_rank_losses",
    help: "Ranks that a run went on without.",
    unit: MetricUnit::Number,
};
const RANKS: MetricTitle = MetricTitle {
    name: "timeslice_ranks",
    help: "Ranks of the run that is under way, by whether they take part.",
    unit: MetricUnit::Number,
};
const FILL: MetricTitle = MetricTitle {
    name: "timeslice_ring_fill",
    help: "How full the fullest ring of a builder was lately.",
    unit: MetricUnit::Ratio,
};

/// The figures of all runs of a command; clones are the same figures.
#[derive(Clone, Debug, Default)]
pub(crate) struct TimesliceMetrics(Arc<Mutex<RunSums>>);

/// What was counted.
#[derive(Debug, Default)]
pub(super) struct RunSums {
    policies: BTreeMap<Policy, PolicySums>,
    /// Ranks that take part, and that do not.
    pub(super) ranks: [u64; 2],
    /// By builder, in millionths.
    fills: BTreeMap<Rank, u64>,
    /// By input, of the run that is under way.
    sources: BTreeMap<Rank, SourceCounts>,
    /// Of all inputs in earlier runs.
    sources_before: SourceCounts,
}

/// What was counted under one policy.
#[derive(Debug, Default)]
struct PolicySums {
    sent: u64,
    sent_bytes: u64,
    released: u64,
    landed: u64,
    landed_bytes: u64,
    doubled: u64,
    timeslices: u64,
    strangers: u64,
    losses: u64,
    blocked: [Nanos; Cause::ALL.len()],
    completion: Histogram,
}

impl TimesliceMetrics {
    /// Takes the figures, for a moment.
    pub(super) fn lock(&self) -> MutexGuard<'_, RunSums> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl RunSums {
    /// Returns the timeslices that are complete under `policy`.
    pub(super) fn timeslices(&self, policy: Policy) -> u64 {
        self.policies.get(&policy).map_or(0, |sums| sums.timeslices)
    }

    /// Notes that a run begins: inputs count from zero.
    pub(super) fn begin(&mut self) {
        self.sources_before = self.sources();
        self.sources.clear();
    }

    /// Returns what became of microslices in all runs.
    fn sources(&self) -> SourceCounts {
        let mut all = self.sources_before.clone();
        self.sources.values().for_each(|source| all.add(source));
        all
    }

    /// Adds what `rank` counted under `policy`.
    pub(super) fn add(&mut self, policy: Policy, rank: Rank, progress: &TimesliceProgress) {
        if let Some(source) = &progress.source {
            self.sources.insert(rank, source.clone());
        }
        let sums = self.policies.entry(policy).or_default();
        match &progress.record {
            TimesliceRecord::Input(record) => {
                sums.sent += record.contributions;
                sums.sent_bytes += record.bytes;
                sums.released += record.released;
                sums.strangers += record.strangers;
                for (sum, more) in sums.blocked.iter_mut().zip(record.blocked) {
                    *sum = *sum + more;
                }
            }
            TimesliceRecord::Builder(record) => {
                sums.landed += record.contributions;
                sums.landed_bytes += record.bytes;
                sums.doubled += record.doubled;
                sums.timeslices += record.timeslices;
                sums.strangers += record.strangers;
                sums.completion.merge(&record.completion);
                self.fills.insert(rank, record.fill.max().unwrap_or(0));
            }
        }
    }

    /// Notes that a run of `policy` goes on without `rank`.
    pub(super) fn lose(&mut self, policy: Policy, rank: Rank) {
        self.policies.entry(policy).or_default().losses += 1;
        self.fills.remove(&rank);
    }

    /// Writes one figure of each policy.
    fn each<T>(&self, value: impl Fn(&PolicySums) -> T) -> impl Iterator<Item = (MetricLabels, T)> {
        self.policies.iter().map(move |(policy, sums)| (labels(*policy), value(sums)))
    }
}

fn labels(policy: Policy) -> MetricLabels {
    vec![("policy", policy.name().to_owned())]
}

fn labels_with(policy: Policy, name: &'static str, value: &str) -> MetricLabels {
    vec![("policy", policy.name().to_owned()), (name, value.to_owned())]
}

impl MetricSource for TimesliceMetrics {
    fn write(&self, sheet: &mut MetricSheet<'_>) -> fmt::Result {
        let sums = self.lock();
        sheet.counters(&BUILT, sums.each(|sums| sums.timeslices))?;
        sheet.counters(&SENT, sums.each(|sums| sums.sent_bytes))?;
        sheet.counters(&LANDED, sums.each(|sums| sums.landed_bytes))?;
        let contributions = sums.policies.iter().flat_map(|(policy, sums)| {
            let counts = [
                ("sent", sums.sent),
                ("landed", sums.landed),
                ("doubled", sums.doubled),
                ("released", sums.released),
            ];
            counts.map(|(event, count)| (labels_with(*policy, "event", event), count))
        });
        sheet.counters(&CONTRIBUTIONS, contributions)?;
        let blocked = sums.policies.iter().flat_map(|(policy, sums)| {
            Cause::ALL.map(|cause| {
                (labels_with(*policy, "cause", cause.name()), sums.blocked[cause as usize])
            })
        });
        sheet.time_counters(&BLOCKED, blocked)?;
        let completion = sums.policies.iter();
        sheet.times(
            &COMPLETION,
            completion.map(|(policy, sums)| (labels(*policy), &sums.completion)),
        )?;
        let sources = sums.sources();
        let accounts = [
            ("offered", sources.offered),
            ("missing", sources.missing),
            ("repeated", sources.repeated),
            ("late", sources.late),
            ("damaged", sources.damaged),
            ("overflowed", sources.overflowed),
        ];
        let accounts =
            accounts.map(|(account, count)| (vec![("account", account.to_owned())], count));
        sheet.counters(&MICROSLICES, accounts)?;
        let held_back = sources.held_back.iter();
        sheet.counters(
            &HELD_BACK,
            held_back.map(|(builder, count)| (vec![("builder", builder.to_string())], *count)),
        )?;
        sheet.counters(&STRANGERS, sums.each(|sums| sums.strangers))?;
        sheet.counters(&LOSSES, sums.each(|sums| sums.losses))?;
        let [alive, out] = sums.ranks;
        let ranks = [("alive", alive), ("out", out)];
        sheet.gauges(
            &RANKS,
            ranks.map(|(state, count)| (vec![("state", state.to_owned())], count)),
        )?;
        let fullest = sums.fills.values().max().copied().unwrap_or(0);
        sheet.ratios(&FILL, [(Vec::new(), fullest as f64 / 1e6)])
    }
}

#[cfg(test)]
mod tests {
    use clearway_proto::timeslice::{BuilderRecord, InputRecord};

    use super::super::losses::BuilderWait;
    use super::*;
    use crate::mechanism::timeslice::TimeslicePlan;
    use crate::mechanism::timeslice::count::{RunCounts, RunLength};

    /// Returns what a rank says of itself for the time number `number`.
    fn progress(number: u64, rank: u32) -> TimesliceProgress {
        let (contributions, bytes) = (number, 100 * number + u64::from(rank));
        let record = if rank < 2 {
            let blocked = [1, 2, 3, 4].map(|part| Nanos(part * number));
            let record = InputRecord { contributions, bytes, blocked, ..InputRecord::default() };
            TimesliceRecord::Input(record)
        } else {
            let completion = Box::new([number, 7].into_iter().collect());
            let timeslices = 2;
            let record = BuilderRecord {
                timeslices,
                contributions,
                bytes,
                completion,
                ..BuilderRecord::default()
            };
            TimesliceRecord::Builder(record)
        };
        let (span, processor) = (Nanos::from_millis(200), Nanos::ZERO);
        let source = (rank < 2).then(|| SourceCounts { late: number, ..SourceCounts::default() });
        TimesliceProgress {
            number,
            record,
            span,
            timeslices: number,
            processor,
            source,
            waits: BuilderWait::Nothing,
        }
    }

    #[test]
    fn add__the_sums_are_those_that_a_run_is_judged_by() {
        let (metrics, policy) = (TimesliceMetrics::default(), Policy::Token);
        let mut count = RunCounts::new(&TimeslicePlan::sample(), RunLength::Source);
        for number in 1..5 {
            for rank in 0..4 {
                let progress = progress(number, rank);
                count.add(Rank(rank), &progress);
                metrics.lock().add(policy, Rank(rank), &progress);
            }
        }
        let (outcome, sums) = (&count.outcome, metrics.lock());
        let sums = &sums.policies[&policy];
        assert_eq!((sums.landed_bytes, sums.timeslices), (outcome.bytes, outcome.timeslices));
        assert_eq!((&sums.blocked, &sums.completion), (&outcome.blocked, &outcome.completion));
        assert_eq!((sums.landed_bytes, sums.timeslices), (2020, 16));
    }

    #[test]
    fn begin__what_became_of_microslices_adds_up_over_runs() {
        let (metrics, policy) = (TimesliceMetrics::default(), Policy::Token);
        for last in [3, 5] {
            metrics.lock().begin();
            for number in 1..=last {
                metrics.lock().add(policy, Rank(0), &progress(number, 0));
            }
        }
        assert_eq!(metrics.lock().sources().late, 3 + 5);
    }
}
