//! Counts samples in log-linear buckets: any range, a fixed relative error, mergeable in any order.
//!
//! # Model
//! Values below 256 have a bucket each. Above, every power of two is cut into 128 equal buckets, so
//! a bucket is at most 1/128 of its lower edge wide. Only occupied buckets are stored, in ascending
//! order. Quantiles report the *upper* edge of the bucket (its largest whole value), never beyond
//! the exact maximum: `true <= reported < true * (1 + 1/128)`. Samples that never came back are
//! counted apart and rank above every finite value.
//!
//! # Source
//! The bucket layout is that of HDR histograms (G. Tene), with 7 bits of precision. GPCNeT's
//! 100,000 linear buckets between global extremes need a pass over all samples first and let one
//! outlier blur every quantile; these do neither.
//!
//! # Invariants
//! I1. Buckets ascend strictly, none is empty, all are below `BUCKETS`.
//! I2. `min` lies in the first bucket and `max` in the last; both are exact.
//! I3. Counts saturate: no sequence of records and merges overflows.
//! I4. A histogram that is read from outside keeps I1 and I2 or is refused, and never holds more
//!     than `BUCKETS` entries.

use alloc::vec::Vec;
use core::fmt;

use serde::{Deserialize, Serialize};

use super::{Quantile, QuantileValue};

mod wire;

/// Bits of precision: 2^7 buckets to a power of two bound the relative error by 1/128.
const PRECISION: u32 = 7;

/// Number of buckets that 64-bit values can reach: 256 exact ones, then 128 for each of the 56
/// powers of two above.
const BUCKETS: u16 = 256 + 56 * 128;

/// Returns the bucket that counts `value`.
const fn bucket_of(value: u64) -> u16 {
    let shift = (u64::BITS - value.leading_zeros()).saturating_sub(PRECISION + 1);
    (shift << PRECISION) as u16 + (value >> shift) as u16
}

/// Returns the smallest and the largest value that bucket `bucket` counts.
const fn edges(bucket: u16) -> (u64, u64) {
    let shift = ((bucket >> PRECISION) as u32).saturating_sub(1);
    let low = (bucket as u64 - ((shift as u64) << PRECISION)) << shift;
    (low, low + ((1 << shift) - 1))
}

/// One occupied bucket.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct OccupiedBucket {
    bucket: u16,
    count: u64,
}

/// Exact facts about the finite samples.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct SampleRange {
    min: u64,
    max: u64,
    sum: u128,
}

impl SampleRange {
    fn merge(self, other: Self) -> Self {
        Self {
            min: self.min.min(other.min),
            max: self.max.max(other.max),
            sum: self.sum.saturating_add(other.sum),
        }
    }
}

/// Samples of one quantity, usually nanoseconds, as counts in buckets of at most 1/128 relative
/// width.
///
/// ```
/// use clearway_proto::stats::{Histogram, Quantile, QuantileValue};
/// let mut samples: Histogram = (1..=98).collect();
/// samples.record_infinite(2);
/// assert_eq!(samples.quantile(Quantile::P50), QuantileValue::Finite(50));
/// assert_eq!(samples.quantile(Quantile::P99), QuantileValue::Infinite);
/// ```
///
/// # Cost
/// 16 bytes for each occupied bucket, at most 119 KB. `record` is a binary search, and a move of
/// the buckets above when the bucket is new.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(try_from = "wire::SerializedHistogram", into = "wire::SerializedHistogram")]
pub struct Histogram {
    slots: Vec<OccupiedBucket>,
    /// `None` as long as no finite sample was recorded.
    extent: Option<SampleRange>,
    infinite: u64,
}

impl Histogram {
    /// Creates an empty histogram.
    pub const fn new() -> Self {
        Self { slots: Vec::new(), extent: None, infinite: 0 }
    }

    /// Creates the union of `parts`.
    pub fn merged<'a>(parts: impl IntoIterator<Item = &'a Self>) -> Self {
        parts.into_iter().fold(Self::new(), |mut all, part| {
            all.merge(part);
            all
        })
    }

    /// Counts one sample.
    pub fn record(&mut self, value: u64) {
        self.record_n(value, 1);
    }

    /// Counts `n` samples of the same value.
    pub fn record_n(&mut self, value: u64, n: u64) {
        if n == 0 {
            return;
        }
        self.add(OccupiedBucket { bucket: bucket_of(value), count: n });
        let new = SampleRange { min: value, max: value, sum: u128::from(value) * u128::from(n) };
        self.extent = Some(self.extent.map_or(new, |old| old.merge(new)));
    }

    /// Counts `n` samples that never came back: lost messages.
    pub fn record_infinite(&mut self, n: u64) {
        self.infinite = self.infinite.saturating_add(n);
    }

    /// Adds the samples of `other`. The order and the grouping of merges do not matter.
    pub fn merge(&mut self, other: &Self) {
        for slot in &other.slots {
            self.add(*slot);
        }
        self.infinite = self.infinite.saturating_add(other.infinite);
        self.extent = match (self.extent, other.extent) {
            (Some(a), Some(b)) => Some(a.merge(b)),
            (a, b) => a.or(b),
        };
    }

    fn add(&mut self, slot: OccupiedBucket) {
        match self.slots.binary_search_by_key(&slot.bucket, |s| s.bucket) {
            Ok(at) => self.slots[at].count = self.slots[at].count.saturating_add(slot.count),
            Err(at) => self.slots.insert(at, slot),
        }
    }

    /// Returns the number of finite samples.
    fn finite(&self) -> u64 {
        self.slots.iter().fold(0, |sum, slot| sum.saturating_add(slot.count))
    }

    /// Returns the number of samples, those that never came back included.
    pub fn count(&self) -> u64 {
        self.finite().saturating_add(self.infinite)
    }

    /// Returns the number of samples that never came back.
    pub const fn infinite(&self) -> u64 {
        self.infinite
    }

    /// Returns whether there is no sample at all.
    pub fn is_empty(&self) -> bool {
        self.slots.is_empty() && self.infinite == 0
    }

    /// Returns the smallest finite sample, exactly.
    pub fn min(&self) -> Option<u64> {
        self.extent.map(|extent| extent.min)
    }

    /// Returns the largest finite sample, exactly.
    pub fn max(&self) -> Option<u64> {
        self.extent.map(|extent| extent.max)
    }

    /// Returns the mean of the finite samples, exact up to rounding; `None` without any. Read it
    /// together with [`Histogram::infinite`].
    pub fn mean(&self) -> Option<f64> {
        self.extent.map(|extent| extent.sum as f64 / self.finite() as f64)
    }

    /// Returns the sum of the finite samples, exactly.
    pub fn sum(&self) -> u128 {
        self.extent.map_or(0, |extent| extent.sum)
    }

    /// Returns the number of finite samples up to `bound`, and of those above it at most 1/128 of
    /// its value.
    pub fn count_up_to(&self, bound: u64) -> u64 {
        let last = bucket_of(bound);
        let below = self.slots.iter().take_while(|slot| slot.bucket <= last);
        below.fold(0, |sum, slot| sum.saturating_add(slot.count))
    }

    /// Returns the sample of the nearest rank of `quantile`: the upper edge of its bucket, at most
    /// 1/128 above the true value.
    pub fn quantile(&self, quantile: Quantile) -> QuantileValue {
        let Some(rank) = quantile.rank(self.count()) else { return QuantileValue::Empty };
        let mut seen = 0u64;
        for slot in &self.slots {
            seen = seen.saturating_add(slot.count);
            if seen >= rank {
                return QuantileValue::Finite(self.upper(slot.bucket));
            }
        }
        QuantileValue::Infinite
    }

    /// Returns the largest value that a sample in `bucket` can have had.
    fn upper(&self, bucket: u16) -> u64 {
        let (_, high) = edges(bucket);
        self.extent.map_or(high, |extent| high.min(extent.max))
    }

    /// Returns the survival curve: at most `points` pairs of a value and the fraction of samples
    /// above it, values ascending.
    ///
    /// The first and the last occupied bucket are always among them (given room for two); between
    /// them, every k-th one. The last fraction is the share that never came back.
    pub fn survival(&self, points: usize) -> Vec<SurvivalPoint> {
        let last = self.slots.len().saturating_sub(1);
        let step = last.div_ceil(points.saturating_sub(1).max(1)).max(1);
        let count = self.count() as f64;
        let mut above = self.count();
        let mut curve = Vec::with_capacity(self.slots.len().min(points));
        for (i, slot) in self.slots.iter().enumerate() {
            above = above.saturating_sub(slot.count);
            if (i % step == 0 || i == last) && curve.len() < points {
                curve.push(SurvivalPoint {
                    value: self.upper(slot.bucket),
                    fraction: above as f64 / count,
                });
            }
        }
        curve
    }

    /// Returns occupied buckets as (bucket, count), ascending.
    pub(super) fn occupied(&self) -> impl Iterator<Item = (u16, u64)> {
        self.slots.iter().map(|slot| (slot.bucket, slot.count))
    }

    /// Returns the value that quantiles report for `bucket` of a histogram whose largest sample is
    /// `max`.
    pub(super) fn reported(bucket: u16, max: u64) -> u64 {
        edges(bucket).1.min(max)
    }
}

impl FromIterator<u64> for Histogram {
    fn from_iter<I: IntoIterator<Item = u64>>(values: I) -> Self {
        let mut histogram = Self::new();
        values.into_iter().for_each(|value| histogram.record(value));
        histogram
    }
}

/// One point of a survival curve.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct SurvivalPoint {
    /// A value, in the unit that was recorded.
    pub value: u64,
    /// The fraction of samples above it, `0.0..=1.0`, those that never came back included.
    pub fraction: f64,
}

/// What is wrong with a histogram read from outside.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum HistogramError {
    /// Buckets are out of order, empty, or beyond the last one.
    Buckets,
    /// Minimum, maximum or sum contradict the buckets.
    Extent,
}

impl fmt::Display for HistogramError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Buckets => {
                "not a histogram: its buckets must ascend, hold at least one sample each and be below 7424"
            }
            Self::Extent => "not a histogram: its minimum, maximum or sum contradicts its buckets",
        })
    }
}

impl core::error::Error for HistogramError {}

#[cfg(test)]
mod tests;
