//! A figure with its 95 % interval, where "never" and "unknown" are infinities and nothing is NaN.
//!
//! # Invariants
//! I1. No field is NaN and `low <= high`. The value may lie outside the interval only as a
//!     resampled one honestly does.

/// A figure, its 95 % interval and the samples it stands on.
///
/// `f64::INFINITY` is a meaning, not an accident: as a value, the quantile falls on a message that
/// never arrived; as the upper end, the data set no upper bound. How JSON writes it is the report's
/// matter.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Estimate {
    /// The figure itself.
    pub value: f64,
    /// Lower end of the interval.
    pub low: f64,
    /// Upper end of the interval.
    pub high: f64,
    /// Number of samples, lost ones included.
    pub samples: u64,
}

impl Estimate {
    /// Creates an estimate with these ends in either order.
    ///
    /// # Panics
    /// When a number is NaN: that is a defect of the caller, never a measurement.
    pub fn new(value: f64, ends: [f64; 2], samples: u64) -> Self {
        assert!(
            !value.is_nan() && ends.iter().all(|end| !end.is_nan()),
            "an estimate is never NaN"
        );
        let [a, b] = ends;
        Self { value, low: a.min(b), high: a.max(b), samples }
    }

    /// Creates a figure whose interval the data cannot bound: anything from zero to infinity.
    pub fn unbounded(value: f64, samples: u64) -> Self {
        Self::new(value, [0.0, f64::INFINITY], samples)
    }

    /// Returns whether the whole interval lies in `low..=high`.
    pub fn lies_within(&self, low: f64, high: f64) -> bool {
        self.low >= low && self.high <= high
    }
}

/// Returns `above / below` for quantities that are zero, positive or infinite; never NaN.
///
/// Nothing over nothing is 1 (no change). Infinite over infinite is infinite: with the base case
/// lost as well, no bound can be given, and the worse answer is the honest one.
pub(super) fn ratio(above: f64, below: f64) -> f64 {
    if above == 0.0 && below == 0.0 {
        1.0
    } else if above.is_infinite() || below == 0.0 {
        f64::INFINITY
    } else {
        above / below
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ratio__is_defined_for_zero_and_infinity() {
        let inf = f64::INFINITY;
        let cases = [
            (3.0, 2.0, 1.5),
            (inf, 2.0, inf),
            (2.0, inf, 0.0),
            (inf, inf, inf),
            (0.0, 0.0, 1.0),
            (1.0, 0.0, inf),
        ];
        for (above, below, expected) in cases {
            assert_eq!(ratio(above, below), expected, "{above} / {below}");
        }
    }

    #[test]
    #[should_panic(expected = "never NaN")]
    fn new__refuses_nan() {
        let _ = Estimate::new(f64::NAN, [0.0, 1.0], 1);
    }
}
