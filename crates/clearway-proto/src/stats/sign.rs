//! The median of few values with an interval that holds whatever their distribution: that of the
//! sign test.
//!
//! # Model
//! Each value lies below the true median with probability one half, independent of the others, so
//! the number of those below is binomial. From the k-th smallest to the k-th largest value the
//! interval holds the median with probability `1 - 2 P(at most k - 1 of n below)`; k is the
//! greatest for which that is at least 95 %. Nothing is drawn at random.
//!
//! # Source
//! W. R. Thompson, "On confidence ranges for the median and other expectation distributions for
//! populations of unknown distribution form", Ann. Math. Stat. 7 (1936).
//!
//! # Invariants
//! I1. Fewer than six values give no bound: the smallest and the largest of five miss the median
//!     too often (6.25 %).

use alloc::vec::Vec;

use super::estimate::Estimate;

/// What an interval may miss on both sides together.
const MISS: f64 = 0.05;
/// Most values: with more, the binomial's smallest term is none any more, and the interval would
/// not be exact.
pub const MEDIAN_MAX: usize = 1000;

/// Returns how many values from each end the interval of `n` begins, from 1; none when no two
/// values bound it.
fn depth(n: usize) -> Option<usize> {
    let mut term = libm::exp2(-(n as f64));
    let mut below = 0.0;
    let mut depth = 0;
    for k in 0..n / 2 {
        below += term;
        if 2.0 * below > MISS {
            break;
        }
        depth = k + 1;
        term *= (n - k) as f64 / (k + 1) as f64;
    }
    (depth > 0).then_some(depth)
}

impl Estimate {
    /// Creates the median of `values`, which may be infinite and are at least 0, with its exact 95
    /// % interval; `None` without values.
    ///
    /// ```
    /// use clearway_proto::stats::Estimate;
    /// let median = Estimate::median(&[1.1, 1.0, 1.3, 1.2, 1.6, 1.4]).unwrap();
    /// assert_eq!((median.low, median.value, median.high), (1.0, 1.25, 1.6));
    /// ```
    ///
    /// # Panics
    /// With a value that is NaN, or more than [`MEDIAN_MAX`].
    pub fn median(values: &[f64]) -> Option<Self> {
        assert!(values.len() <= MEDIAN_MAX, "an exact interval of so many values");
        let mut sorted: Vec<f64> = values.to_vec();
        sorted.sort_by(f64::total_cmp);
        let n = sorted.len();
        let [low, high] = [*sorted.get(n.checked_sub(1)? / 2)?, *sorted.get(n / 2)?];
        // Half of the sum would be no number for two infinities.
        let middle = if low == high { low } else { low / 2.0 + high / 2.0 };
        Some(match depth(n) {
            Some(depth) => Self::new(middle, [sorted[depth - 1], sorted[n - depth]], n as u64),
            None => Self::unbounded(middle, n as u64),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Ranks that tables of the sign test's interval give for 95 % (Conover, "Practical
    /// nonparametric statistics", A3).
    #[test]
    fn depth__is_that_of_the_tables() {
        let known = [
            (5, None),
            (6, Some(1)),
            (8, Some(1)),
            (9, Some(2)),
            (10, Some(2)),
            (12, Some(3)),
            (20, Some(6)),
        ];
        for (n, expected) in known.into_iter().chain([
            (25, Some(8)),
            (30, Some(10)),
            (50, Some(18)),
            (100, Some(40)),
        ]) {
            assert_eq!(depth(n), expected, "{n}");
        }
    }

    #[test]
    fn depth__the_most_values_still_have_one() {
        // Half of n less 0.98 times its square root, as the normal distribution has it.
        assert!((468..=470).contains(&depth(MEDIAN_MAX).unwrap()));
    }

    #[test]
    fn median__few_values_bound_nothing() {
        let five = Estimate::median(&[1.0, 2.0, 3.0, 4.0, 5.0]).unwrap();
        assert_eq!((five.low, five.value, five.high, five.samples), (0.0, 3.0, f64::INFINITY, 5));
        assert_eq!(Estimate::median(&[]), None);
    }

    #[test]
    fn median__what_never_ended_counts() {
        let inf = f64::INFINITY;
        let some = Estimate::median(&[1.0, 1.0, 1.0, 1.0, 1.0, inf, inf]).unwrap();
        assert_eq!((some.low, some.value, some.high), (1.0, 1.0, inf));
        let half = Estimate::median(&[1.0, inf]).unwrap();
        assert_eq!(half.value, inf);
        assert_eq!(Estimate::median(&[inf; 6]).unwrap().low, inf);
    }
}
