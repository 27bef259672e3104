//! Names a quantile exactly (`p99.9`) and says which sample answers it.
//!
//! # Model
//! A quantile is a whole number of millionths, so `p99.9` is 999,000 of 1,000,000 and no rounding
//! decides a rank. The rank is the nearest one: the quantile q of N samples is the sample of rank
//! ceil(q N), at least 1, in ascending order.
//!
//! # Invariants
//! I1. A rank lies in `1..=count` for every count above zero.
//! I2. Text written by `Display` parses to the same quantile.

use alloc::string::{String, ToString};
use core::fmt;
use core::str::FromStr;

use serde::{Deserialize, Serialize};

/// Millionths in one.
const WHOLE: u32 = 1_000_000;

/// Decimals of a percentage that millionths can hold.
const DECIMALS: usize = 4;

/// Samples that must lie beyond a quantile before it stands on more than luck: `p99.9` needs ten
/// thousand.
const SAMPLES_BEYOND: u128 = 10;

/// A quantile as an exact fraction, written `p50`, `p99`, `p99.9`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct Quantile {
    millionths: u32,
}

impl Quantile {
    /// The median.
    pub const P50: Self = Self { millionths: 500_000 };
    /// 99 % of the samples are at most this large.
    pub const P99: Self = Self { millionths: 990_000 };
    /// 99.9 % of the samples are at most this large.
    pub const P99_9: Self = Self { millionths: 999_000 };

    /// Returns the rank (from 1) of the sample that answers this quantile among `count` samples;
    /// `None` when there are none.
    pub fn rank(self, count: u64) -> Option<u64> {
        let rank = (u128::from(self.millionths) * u128::from(count)).div_ceil(u128::from(WHOLE));
        // I1: the fraction is at most one, so the rank is at most the count.
        let rank = u64::try_from(rank).unwrap_or(count).max(1);
        (count > 0).then_some(rank)
    }

    /// Returns whether `count` samples leave at least ten beyond this quantile on its rarer side.
    ///
    /// ```
    /// use clearway_proto::stats::Quantile;
    /// assert!(!Quantile::P99_9.is_supported_by(9_999));
    /// assert!(Quantile::P99_9.is_supported_by(10_000));
    /// ```
    pub fn is_supported_by(self, count: u64) -> bool {
        let rarer = self.millionths.min(WHOLE - self.millionths);
        u128::from(rarer) * u128::from(count) >= SAMPLES_BEYOND * u128::from(WHOLE)
    }
}

impl fmt::Display for Quantile {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut text = alloc::format!("p{}", self.millionths / 10_000);
        let decimals = alloc::format!(".{:04}", self.millionths % 10_000);
        text.push_str(decimals.trim_end_matches('0').trim_end_matches('.'));
        f.pad(&text)
    }
}

/// The text names no quantile.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct QuantileError(String);

impl fmt::Display for QuantileError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "`{}` is not a quantile; write p50, p99 or p99.9 (p0 to p100, up to four decimals)",
            self.0
        )
    }
}

impl core::error::Error for QuantileError {}

/// Returns the millionths of `percent`, which is written in plain digits.
fn millionths_of(percent: &str) -> Option<u32> {
    let digits = |text: &str| !text.is_empty() && text.bytes().all(|b| b.is_ascii_digit());
    let (whole, decimals) = percent.split_once('.').unwrap_or((percent, "0"));
    if !digits(whole) || !digits(decimals) || decimals.len() > DECIMALS || whole.len() > 3 {
        return None;
    }
    let scale = 10u32.pow((DECIMALS - decimals.len()) as u32);
    let millionths = whole.parse::<u32>().ok()? * 10_000 + decimals.parse::<u32>().ok()? * scale;
    (millionths <= WHOLE).then_some(millionths)
}

impl FromStr for Quantile {
    type Err = QuantileError;
    fn from_str(text: &str) -> Result<Self, QuantileError> {
        let percent = text.trim().strip_prefix('p');
        let millionths =
            percent.and_then(millionths_of).ok_or_else(|| QuantileError(text.to_string()))?;
        Ok(Self { millionths })
    }
}

impl TryFrom<String> for Quantile {
    type Error = QuantileError;
    fn try_from(text: String) -> Result<Self, QuantileError> {
        text.parse()
    }
}

impl From<Quantile> for String {
    fn from(quantile: Quantile) -> Self {
        quantile.to_string()
    }
}

/// The answer to "which value is this quantile?".
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum QuantileValue {
    /// There are no samples to answer with.
    Empty,
    /// The value, in the unit that was recorded.
    Finite(u64),
    /// The sample of that rank never came back.
    Infinite,
}

impl QuantileValue {
    /// Returns the value when there is a finite one.
    pub const fn finite(self) -> Option<u64> {
        match self {
            Self::Finite(value) => Some(value),
            Self::Empty | Self::Infinite => None,
        }
    }

    /// Returns the value as a real number, `f64::INFINITY` for what never came back; `None` without
    /// samples.
    pub const fn as_f64(self) -> Option<f64> {
        match self {
            Self::Finite(value) => Some(value as f64),
            Self::Infinite => Some(f64::INFINITY),
            Self::Empty => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn parse__takes_what_reports_write() {
        assert_eq!("p50".parse(), Ok(Quantile::P50));
        assert_eq!("p99.9".parse(), Ok(Quantile::P99_9));
        assert_eq!("p100".parse(), Ok(Quantile { millionths: WHOLE }));
        assert_eq!(Quantile { millionths: 999_990 }.to_string(), "p99.999");
    }

    #[test]
    fn parse__refuses_other_text_with_what_would_work() {
        for text in
            ["99", "p", "p101", "p99.", "p.9", "p-1", "p+5", "p1e1", "p99.99999", "p4294967396"]
        {
            let sentence = text.parse::<Quantile>().unwrap_err().to_string();
            assert!(
                sentence.starts_with(&alloc::format!("`{text}` is not a quantile")),
                "{sentence}"
            );
        }
    }

    #[test]
    fn rank__is_the_nearest_one() {
        assert_eq!(Quantile::P50.rank(5), Some(3));
        assert_eq!(Quantile::P99.rank(100), Some(99));
        assert_eq!(Quantile::P99.rank(101), Some(100));
        assert_eq!(Quantile::P99.rank(0), None);
        assert_eq!(Quantile { millionths: 0 }.rank(7), Some(1));
        assert_eq!(Quantile { millionths: WHOLE }.rank(u64::MAX), Some(u64::MAX));
    }

    proptest! {
        #[test]
        fn display__reads_back_as_itself(millionths in 0..=WHOLE) {
            let quantile = Quantile { millionths };
            prop_assert_eq!(quantile.to_string().parse(), Ok(quantile));
        }

        #[test]
        fn parse__any_text_gives_an_answer(text in ".*") {
            let _ = text.parse::<Quantile>();
        }
    }
}
