//! How often something happens, from a count, with an interval that holds whatever the rate is.
//!
//! # Model
//! Of `n` independent trials `k` hit. The upper end is the rate at which `k` hits or fewer have a
//! probability of 2.5 %, the lower end that at which `k` or more have it. With no hit the upper end
//! is about `3.7 / n`.
//!
//! # Source
//! C. J. Clopper, E. S. Pearson, "The use of confidence or fiducial limits illustrated in the case
//! of the binomial", Biometrika 26 (1934).

use super::estimate::Estimate;

/// What an interval may miss on one side.
const MISS: f64 = 0.025;
/// Halvings of the range of rates: more than a double can tell apart.
const STEPS: u32 = 60;

/// Returns the probability of at most `k` hits in `n` trials that each hit with `rate`, which is
/// neither 0 nor 1.
fn at_most(k: u64, n: u64, rate: f64) -> f64 {
    let [hit, miss] = [libm::log(rate), libm::log1p(-rate)];
    let mut ways = 0.0;
    let mut sum = 0.0;
    for i in 0..=k.min(n) {
        if i > 0 {
            ways += libm::log((n - i + 1) as f64 / i as f64);
        }
        sum += libm::exp(ways + i as f64 * hit + (n - i) as f64 * miss);
    }
    sum
}

/// Returns the greatest rate at which `k` hits or fewer in `n` trials are not too unlikely.
fn greatest(k: u64, n: u64) -> f64 {
    if k >= n {
        return 1.0;
    }
    let (mut low, mut high) = (0.0, 1.0);
    for _ in 0..STEPS {
        let middle = f64::midpoint(low, high);
        if at_most(k, n, middle) > MISS { low = middle } else { high = middle }
    }
    high
}

impl Estimate {
    /// Creates the rate of `hits` in `trials`, of which there are no fewer, with its exact 95 %
    /// interval; `None` without trials.
    ///
    /// ```
    /// use clearway_proto::stats::Estimate;
    /// let none_of_400 = Estimate::proportion(0, 400).unwrap();
    /// assert!(none_of_400.low == 0.0 && none_of_400.high < 0.0092);
    /// ```
    pub fn proportion(hits: u64, trials: u64) -> Option<Self> {
        if trials == 0 {
            return None;
        }
        let hits = hits.min(trials);
        let ends = [1.0 - greatest(trials - hits, trials), greatest(hits, trials)];
        Some(Self::new(hits as f64 / trials as f64, ends, trials))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn proportion__has_the_ends_of_the_tables() {
        // Closed forms at the ends; between them, published values of the exact interval.
        for (hits, trials, low, high) in [
            (0, 10, 0.0, 0.3085),
            (0, 400, 0.0, 0.009180),
            (1, 10, 0.0025, 0.4450),
            (5, 10, 0.1871, 0.8129),
            (10, 10, 0.6915, 1.0),
            (390, 400, 0.9545, 0.9879),
            (1, 1000, 0.0000253, 0.005559),
        ] {
            let seen = Estimate::proportion(hits, trials).expect("trials");
            let near = |a: f64, b: f64| (a - b).abs() < 0.0001;
            assert!(near(seen.low, low) && near(seen.high, high), "{hits} of {trials}: {seen:?}");
            assert_eq!((seen.value, seen.samples), (hits as f64 / trials as f64, trials));
        }
        assert_eq!(Estimate::proportion(0, 0), None);
    }

    #[test]
    fn proportion__hits_and_misses_are_mirror_images_for_every_count() {
        for trials in [1, 2, 7, 100] {
            for hits in 0..=trials {
                let [a, b] =
                    [hits, trials - hits].map(|k| Estimate::proportion(k, trials).unwrap());
                assert!((a.low - (1.0 - b.high)).abs() < 1e-9, "{hits} of {trials}");
                assert!(a.low <= a.value && a.value <= a.high, "{hits} of {trials}: {a:?}");
            }
        }
    }
}
