//! The figures of a test: from the records of all its ranks to six numbers, and from two tests to
//! an impact factor.
//!
//! # Model
//! A *ring value* is the mean of one rank over one ring (over all iterations where there are no
//! rings); a *sample* is one iteration of one rank. Avg is the mean of all ring values; Avg(Worst)
//! the mean over rings of the worst rank's. 99% is what 99 in 100 samples are at least as good as.
//!
//! As published, Min and Max are those of ring values, quantiles are read from 100,000 equal steps
//! between the least and the greatest sample, and an impact factor is the ratio of two numbers as
//! printed. Mended, Min and Max are those of samples, a quantile is a sample, and the ratio is that
//! of the numbers.
//!
//! # Source
//! GPCNeT v1.3.

use alloc::format;
use alloc::vec::Vec;

use super::defects::{CorrectedDefects, Defect};
use super::kinds::{Congestor, Test, Unit};
use super::record::{GpcnetRecord, Times};
use crate::base::Nanos;

/// Steps of the published distribution.
const STEPS: usize = 100_000;

/// The figures of one row.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Summary {
    /// The least.
    pub min: f64,
    /// The greatest.
    pub max: f64,
    /// The mean.
    pub avg: f64,
    /// The mean over rings of the worst rank.
    pub avg_worst: f64,
    /// 99 in 100 samples are at least as good.
    pub p99: f64,
    /// 999 in 1000 samples are at least as good.
    pub p999: f64,
}

impl Summary {
    /// Creates a `Summary` of `test`, from the records of all its ranks; `None` when there is no
    /// sample.
    pub fn from_test(
        test: Test,
        records: &[&GpcnetRecord],
        mended: CorrectedDefects,
    ) -> Option<Self> {
        let parts: Vec<RankTimes<'_>> = records
            .iter()
            .map(|record| RankTimes { ranks: record.ranks, times: &record.times })
            .collect();
        let figure = |time, ranks| test.figure(time, ranks);
        summarise(&parts, &figure, HasRings::from_test(test), test.unit(), mended)
    }

    /// Creates a `Summary` of `congestor`: while victims ran, or of its first pass if the defect
    /// is kept or there was no other. MiB a second and rank, roots left out.
    pub fn from_congestor(
        congestor: Congestor,
        records: &[&GpcnetRecord],
        mended: CorrectedDefects,
    ) -> Option<Self> {
        let early = !mended.has(Defect::EarlyFigures)
            || records.iter().all(|record| record.with_victims.blocks.is_empty());
        let times = |record| if early { first_pass(record) } else { with_victims(record) };
        let parts: Vec<RankTimes<'_>> = records
            .iter()
            .map(|record| RankTimes { ranks: record.ranks, times: times(record) })
            .collect();
        let figure = |time, ranks| congestor.figure(time, ranks);
        summarise(&parts, &figure, HasRings::None, Unit::Rate, mended)
    }
}

fn first_pass(record: &GpcnetRecord) -> &Times {
    &record.times
}

fn with_victims(record: &GpcnetRecord) -> &Times {
    &record.with_victims
}

/// One rank's times.
struct RankTimes<'a> {
    ranks: u32,
    times: &'a Times,
}

/// Whether each block counts by itself.
#[derive(Clone, Copy, PartialEq, Eq)]
enum HasRings {
    Some,
    None,
}

impl HasRings {
    const fn from_test(test: Test) -> Self {
        if test.has_rings() { Self::Some } else { Self::None }
    }
}

/// Returns the ring values of one rank.
fn ring_values(
    part: &RankTimes<'_>,
    figure: &dyn Fn(f64, usize) -> f64,
    rings: HasRings,
) -> Vec<f64> {
    let Times { blocks, iterations, .. } = part.times;
    let mean = |time: f64, blocks: usize| {
        figure(time / (blocks as f64 * f64::from((*iterations).max(1))), part.ranks as usize)
    };
    match rings {
        HasRings::Some => blocks.iter().map(|block| mean(block.0 as f64, 1)).collect(),
        HasRings::None if blocks.is_empty() => Vec::new(),
        HasRings::None => {
            let total: Nanos = blocks.iter().fold(Nanos::ZERO, |sum, block| sum + *block);
            [mean(total.0 as f64, blocks.len())].into()
        }
    }
}

fn summarise(
    parts: &[RankTimes<'_>],
    figure: &dyn Fn(f64, usize) -> f64,
    rings: HasRings,
    unit: Unit,
    mended: CorrectedDefects,
) -> Option<Summary> {
    let mut samples: Vec<(f64, u64)> = Vec::new();
    for part in parts {
        // A message that began and ended within a tick of the clock took a tick at most.
        let value =
            |(time, n): (u64, u32)| (figure(time.max(1) as f64, part.ranks as usize), u64::from(n));
        samples.extend(part.times.spectrum.iter().map(value));
    }
    samples.sort_by(|a, b| a.0.total_cmp(&b.0));
    let values: Vec<Vec<f64>> = parts.iter().map(|part| ring_values(part, figure, rings)).collect();
    let values: Vec<Vec<f64>> = values.into_iter().filter(|values| !values.is_empty()).collect();
    let (count, first, last) =
        (values.iter().map(Vec::len).min()?, samples.first()?.0, samples.last()?.0);
    let column = |ring: usize| values.iter().map(move |values| values[ring]);
    let least = |ring| column(ring).fold(f64::INFINITY, f64::min);
    let greatest = |ring| column(ring).fold(f64::NEG_INFINITY, f64::max);
    let mean = |of: &dyn Fn(usize) -> f64| (0..count).map(of).sum::<f64>() / count as f64;
    let (min, max) = if mended.has(Defect::RingExtremes) {
        (first, last)
    } else {
        (
            (0..count).map(least).fold(f64::INFINITY, f64::min),
            (0..count).map(greatest).fold(f64::NEG_INFINITY, f64::max),
        )
    };
    let quantile = |fraction: f64| {
        if mended.has(Defect::EqualSteps) {
            exact(&samples, fraction, unit)
        } else {
            stepped(&samples, fraction, unit)
        }
    };
    Some(Summary {
        min,
        max,
        avg: mean(&|ring| column(ring).sum::<f64>() / values.len() as f64),
        avg_worst: if unit == Unit::Usec { mean(&greatest) } else { mean(&least) },
        p99: quantile(0.99),
        p999: quantile(0.999),
    })
}

/// Returns the best value that `fraction` of `samples` (in order) are at least as good as.
fn exact(samples: &[(f64, u64)], fraction: f64, unit: Unit) -> f64 {
    let count: u64 = samples.iter().map(|(_, n)| n).sum();
    let target = (libm::ceil(fraction * count as f64) as u64).clamp(1, count);
    let mut seen = 0;
    let mut reached = |(value, n): &(f64, u64)| {
        seen += n;
        (seen >= target).then_some(*value)
    };
    let found = if unit == Unit::Usec {
        samples.iter().find_map(&mut reached)
    } else {
        samples.iter().rev().find_map(&mut reached)
    };
    found.unwrap_or(f64::NAN)
}

/// Returns the same, read from equal steps between the extremes of `samples`.
fn stepped(samples: &[(f64, u64)], fraction: f64, unit: Unit) -> f64 {
    let (Some((least, _)), Some((greatest, _))) = (samples.first(), samples.last()) else {
        return f64::NAN;
    };
    let width = (greatest - least) / (STEPS - 1) as f64;
    let count: u64 = samples.iter().map(|(_, n)| n).sum();
    let target = (fraction * count as f64) as u64;
    let step_of = |value: f64| if width > 0.0 { ((value - least) / width) as usize } else { 0 };
    let edge = |step: usize| least + step as f64 * width;
    if width <= 0.0 {
        return *least;
    }
    let mut seen = 0;
    let mut reached = |step: usize, n: u64| {
        seen += n;
        (seen >= target).then_some(step)
    };
    // A target of nothing is met by the first step, whether there is a sample in it or not.
    if unit == Unit::Usec {
        let step = if target == 0 {
            Some(0)
        } else {
            samples.iter().find_map(|(v, n)| reached(step_of(*v), *n))
        };
        step.map_or(f64::NAN, |step| edge(step + 1))
    } else {
        let step = if target == 0 {
            Some(STEPS - 1)
        } else {
            samples.iter().rev().find_map(|(v, n)| reached(step_of(*v), *n))
        };
        step.map_or(f64::NAN, edge)
    }
}

/// How much worse a test is under load.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Impact {
    /// By the means.
    pub avg: f64,
    /// By what 99 in 100 samples are at least as good as.
    pub p99: f64,
}

impl Impact {
    /// Creates an `Impact` of figures in `unit`: isolated and congested.
    pub fn new(
        unit: Unit,
        isolated: &Summary,
        congested: &Summary,
        mended: CorrectedDefects,
    ) -> Self {
        let kept = |value: f64| {
            if mended.has(Defect::RoundedImpact) {
                value
            } else {
                format!("{value:.1}").parse().unwrap_or(value)
            }
        };
        let ratio = |isolated: f64, congested: f64| {
            let (isolated, congested) = (kept(isolated), kept(congested));
            if unit == Unit::Usec { congested / isolated } else { isolated / congested }
        };
        Self { avg: ratio(isolated.avg, congested.avg), p99: ratio(isolated.p99, congested.p99) }
    }
}

#[cfg(test)]
mod tests {
    use super::super::record::DurationCounts;
    use super::*;

    /// Returns a rank with two rings of two latencies each, in iteration times of microseconds.
    fn rank(samples: [u64; 4]) -> GpcnetRecord {
        let ns = samples.map(|us| us * 2_000);
        let blocks = [Nanos(ns[0] + ns[1]), Nanos(ns[2] + ns[3])].into();
        let times =
            Times { blocks, iterations: 2, spectrum: DurationCounts::from_samples(ns.into()) };
        GpcnetRecord { ranks: 2, times, ..GpcnetRecord::default() }
    }

    #[test]
    fn of_test__means_extremes_and_worst_of_two_ranks() {
        let (a, b) = (rank([1, 3, 5, 7]), rank([2, 2, 10, 10]));
        let published =
            Summary::from_test(Test::Latency, &[&a, &b], CorrectedDefects::NONE).expect("samples");
        // Ring values: 2 and 6, 2 and 10.
        assert_eq!(
            [published.min, published.max, published.avg, published.avg_worst],
            [2.0, 10.0, 5.0, 6.0]
        );
        let mended =
            Summary::from_test(Test::Latency, &[&a, &b], CorrectedDefects::ALL).expect("samples");
        assert_eq!([mended.min, mended.max, mended.avg, mended.p99], [1.0, 10.0, 5.0, 10.0]);
    }

    #[test]
    fn of_test__without_samples_is_none() {
        assert_eq!(
            Summary::from_test(Test::Latency, &[&GpcnetRecord::default()], CorrectedDefects::ALL),
            None
        );
    }

    #[test]
    fn exact__counts_from_the_good_end() {
        let samples: Vec<(f64, u64)> = (1..=1000).map(|n| (f64::from(n), 1)).collect();
        assert_eq!(exact(&samples, 0.99, Unit::Usec), 990.0);
        assert_eq!(exact(&samples, 0.99, Unit::Rate), 11.0);
        assert_eq!(exact(&samples, 0.999, Unit::Usec), 999.0);
    }

    #[test]
    fn stepped__one_outlier_blurs_it_by_its_step() {
        // 999 samples of 1 and one of 100,000: a step is 1, so 99% reads as the upper edge of the
        // first step.
        let samples = [(1.0, 999), (100_000.0, 1)];
        assert_eq!(stepped(&samples, 0.99, Unit::Usec), 2.0);
        assert_eq!(exact(&samples, 0.99, Unit::Usec), 1.0);
        // From above: the lower edge of the first step.
        assert_eq!(stepped(&samples, 0.99, Unit::Rate), 1.0);
    }

    #[test]
    fn stepped__equal_samples_are_their_own_quantile() {
        assert_eq!(stepped(&[(4.0, 7)], 0.99, Unit::Usec), 4.0);
        assert_eq!(stepped(&[(4.0, 7)], 0.99, Unit::Rate), 4.0);
    }

    #[test]
    fn impact__as_published_is_a_ratio_of_rounded_numbers() {
        let summary =
            |avg| Summary { min: avg, max: avg, avg, avg_worst: avg, p99: avg, p999: avg };
        let impact = |unit, mended| Impact::new(unit, &summary(0.14), &summary(0.26), mended).avg;
        assert_eq!(impact(Unit::Usec, CorrectedDefects::NONE), 0.3 / 0.1);
        assert_eq!(impact(Unit::Usec, CorrectedDefects::ALL), 0.26 / 0.14);
        assert_eq!(impact(Unit::Rate, CorrectedDefects::ALL), 0.14 / 0.26);
    }
}
