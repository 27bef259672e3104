//! Writes a histogram as a short list and reads one back only if it could have been recorded.

use alloc::vec::Vec;
use core::fmt;

use serde::de::{Deserializer, SeqAccess, Visitor};
use serde::{Deserialize, Serialize};

use super::{BUCKETS, Histogram, HistogramError, OccupiedBucket, SampleRange, bucket_of, edges};

/// The serialised form: as many pairs as there are occupied buckets.
#[derive(Serialize, Deserialize)]
pub(super) struct SerializedHistogram {
    buckets: Buckets,
    infinite: u64,
    /// Minimum, maximum, and the upper and lower 64 bits of the sum of the finite samples.
    extent: Option<(u64, u64, u64, u64)>,
}

#[derive(Serialize)]
#[serde(transparent)]
struct Buckets(Vec<(u16, u64)>);

impl<'de> Deserialize<'de> for Buckets {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        from.deserialize_seq(Ascending)
    }
}

/// Reads pairs and stops at the first that is out of order, so that no input makes it hold more
/// than `BUCKETS`.
struct Ascending;

impl<'de> Visitor<'de> for Ascending {
    type Value = Buckets;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a list of (bucket, count) with ascending buckets")
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut items: A) -> Result<Buckets, A::Error> {
        let mut pairs: Vec<(u16, u64)> = Vec::new();
        while let Some((bucket, count)) = items.next_element::<(u16, u64)>()? {
            let ascends = pairs.last().is_none_or(|(last, _)| *last < bucket);
            // I1, I4.
            if !ascends || bucket >= BUCKETS || count == 0 {
                return Err(serde::de::Error::custom(HistogramError::Buckets));
            }
            pairs.push((bucket, count));
        }
        Ok(Buckets(pairs))
    }
}

impl From<Histogram> for SerializedHistogram {
    fn from(histogram: Histogram) -> Self {
        Self {
            buckets: Buckets(histogram.occupied().collect()),
            infinite: histogram.infinite,
            extent: histogram.extent.map(|e| (e.min, e.max, (e.sum >> 64) as u64, e.sum as u64)),
        }
    }
}

impl TryFrom<SerializedHistogram> for Histogram {
    type Error = HistogramError;

    fn try_from(written: SerializedHistogram) -> Result<Self, HistogramError> {
        let slots: Vec<OccupiedBucket> = written
            .buckets
            .0
            .iter()
            .map(|&(bucket, count)| OccupiedBucket { bucket, count })
            .collect();
        let extent = written.extent.map(|(min, max, high, low)| SampleRange {
            min,
            max,
            sum: u128::from(high) << 64 | u128::from(low),
        });
        if !agree(&slots, extent) {
            return Err(HistogramError::Extent);
        }
        Ok(Self { slots, extent, infinite: written.infinite })
    }
}

/// Returns whether `extent` could be that of samples in `slots`.
fn agree(slots: &[OccupiedBucket], extent: Option<SampleRange>) -> bool {
    let (first, last, extent) = match (slots.first(), slots.last(), extent) {
        (Some(first), Some(last), Some(extent)) => (first.bucket, last.bucket, extent),
        (None, None, None) => return true,
        _ => return false,
    };
    let total = |edge: fn(u16) -> u64| {
        let products =
            slots.iter().map(|slot| u128::from(edge(slot.bucket)) * u128::from(slot.count));
        products.fold(0, u128::saturating_add)
    };
    // Counts saturate (I3), so a sum may lie above the largest that the counts explain, but only
    // then.
    let saturated = slots.iter().any(|slot| slot.count == u64::MAX);
    // I2.
    extent.min <= extent.max
        && bucket_of(extent.min) == first
        && bucket_of(extent.max) == last
        && extent.sum >= total(|bucket| edges(bucket).0)
        && (saturated || extent.sum <= total(|bucket| edges(bucket).1))
}
