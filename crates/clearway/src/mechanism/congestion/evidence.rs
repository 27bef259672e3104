//! Turns the records of one cell into blocks, quantiles and shares.
//!
//! # Model
//! Only pairs of victims that cross a link which congestors fill count (all of them where there is
//! none); the pair map shows every pair. A *block* is their samples of one time slice: victims that
//! share a queue suffer together, so their samples of one slice count as one independent unit, not
//! as many. A message that was sent and never arrived is an infinite sample in the slice of its
//! intended time.
//!
//! # Invariants
//! I1. Isolated and congested blocks come from the same hosts, sockets and minutes: one phase.

use std::collections::BTreeMap;

use clearway_proto::base::{Class, Nanos, RandomKey, Rank};
use clearway_proto::congestion::{Metric, PhaseRecord};
use clearway_proto::stats::{Histogram, Quantile, Resampled};

use super::cell::Cell;
use crate::mechanism::congestion::phases::PhaseResult;

/// The quantiles of every figure, in order.
pub(crate) const QUANTILES: [Quantile; 3] = [Quantile::P50, Quantile::P99, Quantile::P99_9];
/// The place of p99 in [`QUANTILES`].
pub(crate) const P99: usize = 1;

/// Times by slice of one ordered pair of ranks (from, to); iterations belong to a rank and itself.
type PairTimes = BTreeMap<(Rank, Rank), BTreeMap<u32, Histogram>>;

/// What one cell showed.
pub(crate) struct Evidence {
    /// Quantiles of latency without congestors, in nanoseconds.
    pub(crate) isolated: [Resampled; 3],
    /// The same under load.
    pub(crate) congested: [Resampled; 3],
    /// All samples without congestors.
    pub(crate) isolated_times: Histogram,
    /// All samples under load.
    pub(crate) congested_times: Histogram,
    /// By slice: p99 of the victims.
    pub(crate) p99_of_slice: Vec<Option<f64>>,
    /// By slice: bytes of load that arrived, on the link.
    pub(crate) load_of_slice: Vec<u64>,
    /// p99 congested over isolated, by ordered pair.
    pub(crate) pair_ratios: Vec<((Rank, Rank), f64)>,
    /// Load that arrived while it counted, over the fair rate.
    pub(crate) congestor_share: Option<f64>,
    /// p99 of the delay between intended and real sends under load.
    pub(crate) processor_delay: Nanos,
    /// Messages by class asked for and class seen on arrival.
    pub(crate) marks: BTreeMap<(Class, Option<Class>), u64>,
    /// Longest time without an arrival of load, by class.
    pub(crate) longest_gap: BTreeMap<Class, Nanos>,
    /// Messages that ranks sent again because they seemed lost.
    pub(crate) resent: u64,
    /// Link bytes of load that were due and did not leave their host.
    pub(crate) withheld: u64,
}

impl Evidence {
    /// Evaluates `phase_result` of `cell`; `None` when there is nothing to evaluate.
    pub(crate) fn from_result(
        cell: &Cell<'_>,
        phase_result: &PhaseResult,
        key: RandomKey,
    ) -> Option<Self> {
        let windows = &cell.windows;
        let slices = windows.after.until;
        let pairs = pairs(&phase_result.records, cell.metric());
        let exposed = cell.exposed();
        let counts = |pair: &(Rank, Rank)| pair.0 == pair.1 || exposed.contains(pair);
        let blocks: Vec<Histogram> = (0..slices)
            .map(|slice| {
                let counted = pairs.iter().filter(|(pair, _)| counts(pair));
                Histogram::merged(counted.filter_map(|(_, slices)| slices.get(&slice)))
            })
            .collect();
        let chosen = |wanted: &dyn Fn(u32) -> bool| -> Vec<Histogram> {
            or_never(
                (0..slices)
                    .filter(|slice| wanted(*slice))
                    .map(|slice| blocks[slice as usize].clone())
                    .collect(),
            )
        };
        let isolated = chosen(&|slice| windows.isolated(slice));
        let congested = chosen(&|slice| windows.congested.contains(slice));
        let load_of_slice: Vec<u64> =
            (0..slices).map(|slice| load_in(&phase_result.records, slice)).collect();
        let in_window = |slice: &u32| windows.congested.contains(*slice);
        let arrived: u64 =
            (0..slices).filter(in_window).map(|slice| load_of_slice[slice as usize]).sum();
        let ideal =
            cell.fair_rate().map(|rate| rate.bytes_in(windows.congested.length(windows.grid)).0);
        Some(Self {
            isolated: Resampled::quantiles(&isolated, QUANTILES, key.purpose("isolated"))?,
            congested: Resampled::quantiles(&congested, QUANTILES, key.purpose("congested"))?,
            isolated_times: Histogram::merged(&isolated),
            congested_times: Histogram::merged(&congested),
            p99_of_slice: blocks
                .iter()
                .map(|block| block.quantile(Quantile::P99).as_f64())
                .collect(),
            load_of_slice,
            pair_ratios: pair_ratios(&pairs, cell),
            congestor_share: ideal.map(|ideal| arrived as f64 / (ideal as f64).max(1.0)),
            processor_delay: processor_delay(&phase_result.records, cell),
            marks: marks(&phase_result.records),
            longest_gap: longest_gaps(&phase_result.records),
            resent: phase_result.records.iter().map(|record| record.resent).sum(),
            withheld: phase_result
                .records
                .iter()
                .map(|record| record.refused.0 + record.skipped.0)
                .sum(),
        })
    }

    /// Returns the loss under load, as a part of one.
    pub(crate) fn loss(&self) -> f64 {
        self.congested_times.infinite() as f64 / (self.congested_times.count() as f64).max(1.0)
    }
}

/// Returns `blocks`; where no victim began anything in any of them, one sample that never ended:
/// what it did before outlasted the whole window. One sample bounds no interval, so nothing is
/// claimed.
fn or_never(mut blocks: Vec<Histogram>) -> Vec<Histogram> {
    if blocks.iter().all(Histogram::is_empty) {
        let mut never = Histogram::default();
        never.record_infinite(1);
        blocks.push(never);
    }
    blocks
}

/// Returns the samples of `metric` by pair and slice, lost messages included.
fn pairs(records: &[PhaseRecord], metric: Metric) -> PairTimes {
    let mut pairs = PairTimes::new();
    let mut sent: BTreeMap<((Rank, Rank), u32), u64> = BTreeMap::new();
    for (me, record) in (0..).map(Rank).zip(records) {
        for series in record.series.iter().filter(|series| series.metric == metric) {
            // A one-way time is recorded by its receiver, the others by the rank that began.
            let pair = if metric == Metric::OneWay { (series.peer, me) } else { (me, series.peer) };
            for (slice, times) in &series.slices {
                pairs.entry(pair).or_default().entry(*slice).or_default().merge(times);
            }
        }
        for (pair, slice, count) in expected(me, record, metric) {
            *sent.entry((pair, slice)).or_default() += count;
        }
    }
    for ((pair, slice), count) in sent {
        let times = pairs.entry(pair).or_default().entry(slice).or_default();
        times.record_infinite(count.saturating_sub(times.count()));
    }
    pairs
}

/// Returns how many samples of `metric` rank `me` caused: messages sent for one-way times, requests
/// for round trips.
fn expected(me: Rank, record: &PhaseRecord, metric: Metric) -> Vec<((Rank, Rank), u32, u64)> {
    match metric {
        Metric::OneWay => {
            let sent = record.sent.iter();
            sent.flat_map(|s| {
                s.slices.iter().map(move |(slice, count)| ((me, s.peer), *slice, *count))
            })
            .collect()
        }
        Metric::RoundTrip => {
            let asked = record.series.iter().filter(|s| s.metric == Metric::SendLag);
            asked
                .flat_map(|s| {
                    s.slices.iter().map(move |(slice, h)| ((me, s.peer), *slice, h.count()))
                })
                .collect()
        }
        Metric::Iteration | Metric::SendLag => Vec::new(),
    }
}

fn pair_ratios(pairs: &PairTimes, cell: &Cell<'_>) -> Vec<((Rank, Rank), f64)> {
    let p99 = |slices: &BTreeMap<u32, Histogram>, wanted: &dyn Fn(u32) -> bool| {
        let chosen = slices.iter().filter(|(slice, _)| wanted(**slice)).map(|(_, times)| times);
        Histogram::merged(chosen).quantile(Quantile::P99).as_f64()
    };
    let ratio = |slices| {
        let isolated = p99(slices, &|slice| cell.windows.isolated(slice))?;
        let congested = p99(slices, &|slice| cell.windows.congested.contains(slice))?;
        (isolated.is_finite() && isolated > 0.0).then(|| congested / isolated)
    };
    pairs.iter().filter_map(|(pair, slices)| Some((*pair, ratio(slices)?))).collect()
}

fn load_in(records: &[PhaseRecord], slice: u32) -> u64 {
    let series = records.iter().flat_map(|record| &record.load);
    series
        .flat_map(|series| &series.slices)
        .filter(|entry| entry.slice == slice)
        .map(|entry| entry.link)
        .sum()
}

fn processor_delay(records: &[PhaseRecord], cell: &Cell<'_>) -> Nanos {
    let lags = records
        .iter()
        .flat_map(|record| &record.series)
        .filter(|series| series.metric == Metric::SendLag);
    let counted = lags
        .flat_map(|series| &series.slices)
        .filter(|(slice, _)| cell.windows.congested.contains(*slice));
    let all = Histogram::merged(counted.map(|(_, times)| times));
    Nanos(all.quantile(Quantile::P99).finite().unwrap_or(0))
}

/// Returns how often each class asked for arrived with which mark.
pub(crate) fn marks(records: &[PhaseRecord]) -> BTreeMap<(Class, Option<Class>), u64> {
    let mut marks = BTreeMap::new();
    for mark in records.iter().flat_map(|record| &record.marks) {
        *marks.entry((mark.asked, mark.arrived)).or_default() += mark.messages;
    }
    marks
}

/// Returns the longest time without an arrival of load, by class.
pub(crate) fn longest_gaps(records: &[PhaseRecord]) -> BTreeMap<Class, Nanos> {
    let mut gaps: BTreeMap<Class, Nanos> = BTreeMap::new();
    for series in records.iter().flat_map(|record| &record.load) {
        let gap = gaps.entry(series.class).or_default();
        *gap = (*gap).max(series.longest_gap);
    }
    gaps
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn or_never__a_window_without_samples_is_lost_and_bounds_nothing() {
        let blocks = or_never(vec![Histogram::default(); 20]);
        let [_, p99, _] =
            Resampled::quantiles(&blocks, QUANTILES, RandomKey::new(1)).expect("one sample");
        let estimate = p99.estimate();
        assert_eq!(
            (estimate.value, estimate.low, estimate.high),
            (f64::INFINITY, 0.0, f64::INFINITY)
        );
    }

    #[test]
    fn or_never__samples_are_left_alone() {
        let mut block = Histogram::default();
        block.record(7);
        let blocks = vec![Histogram::default(), block];
        assert_eq!(or_never(blocks.clone()), blocks);
    }
}
