//! Simulated time in whole picoseconds, and the pace at which bytes take it.
//!
//! # Invariants
//! I1. No float: two machines that add the same times get the same sums.

use core::fmt;
use core::ops::{Add, AddAssign, Sub};

use clearway_proto::base::{BitsPerSec, Nanos};

/// An instant or a length of simulated time, in picoseconds. 2^64 of them are 213 days.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Picos(pub u64);

impl Picos {
    /// The beginning.
    pub const ZERO: Self = Self(0);
    /// After everything.
    pub const NEVER: Self = Self(u64::MAX);

    /// Converts `ns` nanoseconds, saturating.
    pub const fn from_nanos(ns: u64) -> Self {
        Self(ns.saturating_mul(1_000))
    }

    /// Converts `us` microseconds, saturating.
    pub const fn from_micros(us: u64) -> Self {
        Self(us.saturating_mul(1_000_000))
    }

    /// Returns whole nanoseconds, rounded down.
    pub const fn nanos(self) -> Nanos {
        Nanos(self.0 / 1_000)
    }

    /// Returns seconds, as a figure for a person.
    pub fn as_secs_f64(self) -> f64 {
        self.0 as f64 / 1e12
    }
}

impl Add for Picos {
    type Output = Self;
    fn add(self, other: Self) -> Self {
        Self(self.0.saturating_add(other.0))
    }
}

impl AddAssign for Picos {
    fn add_assign(&mut self, other: Self) {
        *self = *self + other;
    }
}

impl Sub for Picos {
    type Output = Self;
    /// Saturates at zero.
    fn sub(self, other: Self) -> Self {
        Self(self.0.saturating_sub(other.0))
    }
}

impl From<Nanos> for Picos {
    fn from(length: Nanos) -> Self {
        Self::from_nanos(length.0)
    }
}

impl fmt::Display for Picos {
    /// Returns three significant digits in the largest unit that fits; picoseconds below one
    /// nanosecond.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.0 < 1_000 { write!(f, "{} ps", self.0) } else { self.nanos().fmt(f) }
    }
}

/// How long one byte takes on a link: picoseconds with 16 binary digits behind the point.
///
/// At 100 Gb/s a byte takes 80 ps exactly; at 42 Gb/s the rounding is one part in 10^7.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Pace(u64);

impl Pace {
    /// Binary digits behind the point.
    const POINT: u32 = 16;

    /// No time at all: a stage that is never the bottleneck.
    pub const INSTANT: Self = Self(0);

    /// Creates the pace of a link of `rate`; a rate of zero counts as one bit per second.
    pub fn from_rate(rate: BitsPerSec) -> Self {
        let bits_ps = u128::from(8_000_000_000_000u64) << Self::POINT;
        let pace = bits_ps / u128::from(rate.0.max(1));
        Self(u64::try_from(pace).unwrap_or(u64::MAX))
    }

    /// Returns the pace at `percent` of the rate; at least 1.
    pub const fn slowed_to(self, percent: u32) -> Self {
        let percent = if percent == 0 { 1 } else { percent as u64 };
        Self(self.0.saturating_mul(100) / percent)
    }

    /// Returns the time of `bytes`, rounded up to whole picoseconds.
    pub const fn time(self, bytes: u32) -> Picos {
        let wide = self.0 as u128 * bytes as u128 + ((1 << Self::POINT) - 1);
        Picos((wide >> Self::POINT) as u64)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pace__is_exact_where_the_rate_divides_and_rounds_up_elsewhere() {
        assert_eq!(Pace::from_rate(BitsPerSec::mega(100_000)).time(4096), Picos(327_680));
        assert_eq!(Pace::from_rate(BitsPerSec::mega(25)).time(1500), Picos::from_micros(480));
        // 5.25 GB/s: 4096 bytes take 780,190.47... ps.
        assert_eq!(Pace::from_rate(BitsPerSec::mega(42_000)).time(4096), Picos(780_191));
        assert_eq!(Pace::from_rate(BitsPerSec(0)).time(1), Picos(8_000_000_000_000));
    }
}
