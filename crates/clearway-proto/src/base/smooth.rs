//! How long something usually takes, and how far single times are from that.
//!
//! # Source
//! RFC 6298, 2.2 and 2.3: the first time and half of it; then an eighth of each new time, and a
//! quarter of its distance.

use super::time::Nanos;

/// A smoothed time and its mean deviation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Smoothed {
    /// What is usual.
    pub mean: Nanos,
    /// How far from that single times are.
    pub deviation: Nanos,
}

impl Smoothed {
    /// Creates an estimate that knows one time only, which may be far off.
    pub const fn first(time: Nanos) -> Self {
        Self { mean: time, deviation: Nanos(time.0 / 2) }
    }

    /// Returns this estimate with one more time.
    pub const fn with(self, time: Nanos) -> Self {
        let (Nanos(mean), Nanos(deviation), Nanos(time)) = (self.mean, self.deviation, time);
        let off = mean.abs_diff(time);
        Self {
            mean: Nanos(mean - mean / 8 + time / 8),
            deviation: Nanos(deviation - deviation / 4 + off / 4),
        }
    }

    /// Returns what `known` was, with one more time.
    pub fn after(known: Option<Self>, time: Nanos) -> Self {
        known.map_or(Self::first(time), |known| known.with(time))
    }

    /// Returns what hardly any time exceeds: four deviations above the usual (RFC 6298, 2.3).
    pub const fn bound(self) -> Nanos {
        Nanos(self.mean.0.saturating_add(self.deviation.0.saturating_mul(4)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn with__moves_by_an_eighth_and_a_quarter() {
        let one = Smoothed::first(Nanos(8_000));
        assert_eq!((one.deviation, one.bound()), (Nanos(4_000), Nanos(24_000)));
        let two = Smoothed::after(Some(one), Nanos(16_000));
        assert_eq!(two, Smoothed { mean: Nanos(9_000), deviation: Nanos(5_000) });
        assert_eq!(Smoothed::after(None, Nanos(8_000)), one);
    }

    #[test]
    fn with__stays_in_range_and_forgets_what_was_long_ago() {
        let wild = Smoothed::first(Nanos::MAX).with(Nanos::MAX);
        assert_eq!(wild.bound(), Nanos::MAX);
        let calm = (0..600).fold(wild, |known, _| known.with(Nanos(1_000)));
        assert!(calm.mean < Nanos(1_010) && calm.deviation < Nanos(10), "{calm:?}");
    }
}
