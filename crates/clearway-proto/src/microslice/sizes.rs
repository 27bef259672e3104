//! How long microslices are: all alike, Poisson, or as uneven as detectors make them.
//!
//! # Model
//! `skewed` is a mixture of three log-normal laws around the mean. No detector's distribution is
//! published; this one is made so that one microslice in fifty is several times the mean, as in a
//! beam's spills, and its mean is the one asked for:
//!
//! | weight | mean, in means | sigma of the logarithm | stands for |
//! |---|---|---|---|
//! | 0.80 | 0.75 | 0.2 | quiet |
//! | 0.18 | 1.5 | 0.5 | busy |
//! | 0.02 | 6.5 | 0.5 | spill |
//!
//! Nothing is longer than 16 means, which takes less than 1 % off the mean. Every length is a
//! multiple of 8, the nearest one.
//!
//! # Source
//! Poisson: W. Hormann, "The transformed rejection method for generating Poisson random variables"
//! (Insurance: Mathematics and Economics 12, 1993), algorithm PTRS with its constants; below a mean
//! of 10, where it does not hold, Knuth's products of uniform numbers. Normal numbers: Box and
//! Muller (1958).

use core::fmt;
use core::str::FromStr;

use alloc::string::{String, ToString};

use serde::{Deserialize, Serialize};

use crate::base::RandomStream;

/// The law of the lengths.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum SizeDistribution {
    /// All have the mean length.
    Constant,
    /// Poisson, in bytes, as FLESnet's generator draws them.
    Poisson,
    /// A mixture of log-normal laws.
    Skewed,
}

impl SizeDistribution {
    const ALL: [(&'static str, Self); 3] =
        [("constant", Self::Constant), ("poisson", Self::Poisson), ("skewed", Self::Skewed)];

    /// Returns one length in bytes for a mean of `mean` bytes: a multiple of 8.
    pub(super) fn draw(self, mean: u32, random: &mut RandomStream) -> u32 {
        let mean_bytes = f64::from(mean);
        let bytes = match self {
            Self::Constant => mean_bytes,
            Self::Poisson => poisson(mean_bytes, random),
            Self::Skewed => (mean_bytes * skewed(random)).min(mean_bytes * LONGEST),
        };
        // Casts saturate, and the last multiple of 8 is far above any length in use.
        (libm::round(bytes / 8.0) as u32).min(u32::MAX / 8) * 8
    }
}

impl fmt::Display for SizeDistribution {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let name = Self::ALL.iter().find(|(_, sizes)| sizes == self).map_or("", |(name, _)| name);
        f.write_str(name)
    }
}

impl FromStr for SizeDistribution {
    type Err = UnknownSizeDistribution;
    fn from_str(text: &str) -> Result<Self, UnknownSizeDistribution> {
        let found = Self::ALL.iter().find(|(name, _)| *name == text);
        found.map(|(_, sizes)| *sizes).ok_or_else(|| UnknownSizeDistribution(text.to_string()))
    }
}

/// No law has this name.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct UnknownSizeDistribution(String);

impl fmt::Display for UnknownSizeDistribution {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "`{}` is no law of sizes; there are constant, poisson, skewed", self.0)
    }
}

impl core::error::Error for UnknownSizeDistribution {}

/// The longest of `skewed`, in means.
const LONGEST: f64 = 16.0;

/// Weight up to and with this part, mean, sigma: the table above.
const MIXTURE: [(f64, f64, f64); 3] = [(0.80, 0.75, 0.2), (0.98, 1.5, 0.5), (1.0, 6.5, 0.5)];

/// Returns a number of the open interval from 0 to 1: 53 bits and a half.
fn unit(random: &mut RandomStream) -> f64 {
    ((random.next_u64() >> 11) as f64 + 0.5) / (1u64 << 53) as f64
}

fn skewed(random: &mut RandomStream) -> f64 {
    let part = unit(random);
    let (_, mean, sigma) = *MIXTURE.iter().find(|(up_to, ..)| part < *up_to).unwrap_or(&MIXTURE[2]);
    mean * libm::exp(sigma * normal(random) - sigma * sigma / 2.0)
}

fn normal(random: &mut RandomStream) -> f64 {
    let (radius, angle) = (unit(random), unit(random));
    libm::sqrt(-2.0 * libm::log(radius)) * libm::cos(core::f64::consts::TAU * angle)
}

fn poisson(mean: f64, random: &mut RandomStream) -> f64 {
    if mean < 10.0 { poisson_by_products(mean, random) } else { poisson_by_rejection(mean, random) }
}

fn poisson_by_products(mean: f64, random: &mut RandomStream) -> f64 {
    let limit = libm::exp(-mean);
    let mut product = unit(random);
    let mut count = 0.0;
    while product > limit {
        product *= unit(random);
        count += 1.0;
    }
    count
}

fn poisson_by_rejection(mean: f64, random: &mut RandomStream) -> f64 {
    let b = 0.931 + 2.53 * libm::sqrt(mean);
    let a = -0.059 + 0.02483 * b;
    let squeeze = 0.9277 - 3.6224 / (b - 2.0);
    let inverse_alpha = 1.1239 + 1.1328 / (b - 3.4);
    loop {
        let (u, v) = (unit(random) - 0.5, unit(random));
        let us = 0.5 - u.abs();
        let k = libm::floor((2.0 * a / us + b) * u + mean + 0.43);
        if us >= 0.07 && v <= squeeze {
            return k;
        }
        if k < 0.0 || (us < 0.013 && v > us) {
            continue;
        }
        let here = libm::log(v * inverse_alpha / (a / (us * us) + b));
        if here <= k * libm::log(mean) - mean - libm::lgamma(k + 1.0) {
            return k;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::base::RandomKey;
    use alloc::vec::Vec;

    /// Returns the mean and standard deviation of `count` numbers.
    fn moments(count: u32, mut draw: impl FnMut() -> f64) -> (f64, f64) {
        let numbers: Vec<f64> = (0..count).map(|_| draw()).collect();
        let mean = numbers.iter().sum::<f64>() / f64::from(count);
        let variance = numbers.iter().map(|number| (number - mean) * (number - mean)).sum::<f64>()
            / f64::from(count);
        (mean, libm::sqrt(variance))
    }

    #[test]
    fn poisson__mean_and_variance_are_those_of_the_law() {
        for (seed, mean) in [(1, 3.0), (2, 10.0), (3, 500.0), (4, 65_536.0)] {
            let mut random = RandomKey::new(seed).stream();
            let (found, deviation) = moments(20_000, || poisson(mean, &mut random));
            // Five standard errors of each estimate.
            let error = libm::sqrt(mean / 20_000.0);
            assert!((found - mean).abs() < 5.0 * error, "mean {found} of {mean}");
            assert!(
                (deviation / libm::sqrt(mean) - 1.0).abs() < 5.0 / libm::sqrt(2.0 * 20_000.0),
                "{deviation} of {mean}"
            );
        }
    }

    #[test]
    fn draw__the_mean_is_the_one_asked_for() {
        for sizes in
            [SizeDistribution::Constant, SizeDistribution::Poisson, SizeDistribution::Skewed]
        {
            let mut random = RandomKey::new(7).stream();
            let (mean, _) = moments(100_000, || f64::from(sizes.draw(65_536, &mut random)));
            assert!((mean / 65_536.0 - 1.0).abs() < 0.02, "{sizes}: {mean}");
        }
    }

    #[test]
    fn draw__skewed_sizes_are_rarely_large_and_never_beyond_their_bound() {
        let mut random = RandomKey::new(8).stream();
        let sizes: Vec<u32> =
            (0..50_000).map(|_| SizeDistribution::Skewed.draw(8000, &mut random)).collect();
        let large = sizes.iter().filter(|size| **size > 4 * 8000).count();
        assert!((500..1500).contains(&large), "{large} of 50000");
        assert!(sizes.iter().all(|size| *size <= 16 * 8000 && size.is_multiple_of(8)));
    }

    #[test]
    fn draw__the_largest_mean_does_not_wrap() {
        let mut random = RandomKey::new(9).stream();
        assert_eq!(SizeDistribution::Constant.draw(u32::MAX, &mut random), u32::MAX - 7);
        assert!(SizeDistribution::Skewed.draw(u32::MAX, &mut random) > 8);
        assert_eq!(SizeDistribution::Poisson.draw(0, &mut random), 0);
    }

    #[test]
    fn from_str__knows_the_names_that_it_prints() {
        for (name, sizes) in SizeDistribution::ALL {
            assert_eq!(name.parse(), Ok(sizes));
            assert_eq!(sizes.to_string(), name);
        }
        let sentence = "gauss".parse::<SizeDistribution>().unwrap_err().to_string();
        assert_eq!(sentence, "`gauss` is no law of sizes; there are constant, poisson, skewed");
    }
}
