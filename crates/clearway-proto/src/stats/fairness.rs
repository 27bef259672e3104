//! How evenly a rate is shared, as Jain's index.
//!
//! # Source
//! Jain, Chiu, Hawe, "A quantitative measure of fairness" (DEC-TR-301, 1984): (sum x)^2 / (n sum
//! x^2).

/// Returns Jain's index of `shares`: 1 when all are equal, 1/n when one takes everything; `None`
/// without shares.
///
/// Shares may be bytes, or any other whole amount; all of them zero counts as equal.
///
/// ```
/// use clearway_proto::stats::jain;
/// assert_eq!(jain(&[5, 5, 5, 5]), Some(1.0));
/// assert_eq!(jain(&[8, 0, 0, 0]), Some(0.25));
/// ```
pub fn jain(shares: &[u64]) -> Option<f64> {
    let largest = *shares.iter().max()?;
    if largest == 0 {
        return Some(1.0);
    }
    // Scaled by the largest, so that the squares of large byte counts keep their digits.
    let scaled = shares.iter().map(|share| *share as f64 / largest as f64);
    let (sum, squares) = scaled.fold((0.0, 0.0), |(sum, squares), x| (sum + x, squares + x * x));
    Some(sum * sum / (shares.len() as f64 * squares))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn jain__of_nothing_is_nothing_and_of_zeros_is_fair() {
        assert_eq!(jain(&[]), None);
        assert_eq!(jain(&[0, 0, 0]), Some(1.0));
    }

    #[test]
    fn jain__follows_its_formula_at_any_scale() {
        for (shares, expected) in [([3, 1], 0.8), ([u64::MAX, u64::MAX], 1.0)] {
            let index = jain(&shares).expect("shares");
            assert!((index - expected).abs() < 1e-12, "{index}");
        }
    }
}
