//! Byte counts and rates that print and parse with their unit.
//!
//! # Invariants
//! I1. Text without a unit is refused: `100` is neither bits nor bytes.
//! I2. Parsing is exact for whole numbers and rejects what does not fit into 64 bits.

use alloc::string::{String, ToString};
use core::fmt;
use core::str::FromStr;

use serde::{Deserialize, Serialize};

use super::Nanos;

/// A number of bytes.
#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize,
)]
#[serde(try_from = "String", into = "String")]
pub struct Bytes(pub u64);

/// A rate on a link in bits per second, link headers included.
#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize,
)]
#[serde(try_from = "String", into = "String")]
pub struct BitsPerSec(pub u64);

impl BitsPerSec {
    /// Converts `n` million bits per second, saturating.
    pub const fn mega(n: u64) -> Self {
        Self(n.saturating_mul(1_000_000))
    }

    /// Returns the time that `length` occupies a link of this rate; [`Nanos::MAX`] on a link of
    /// rate zero.
    ///
    /// ```
    /// use clearway_proto::base::{BitsPerSec, Bytes};
    /// assert_eq!(BitsPerSec::mega(100).time_for(Bytes(1442)).0, 115_360);
    /// ```
    pub fn time_for(self, length: Bytes) -> Nanos {
        let bits_ns = u128::from(length.0) * 8 * 1_000_000_000;
        let ns = bits_ns.checked_div(u128::from(self.0)).unwrap_or(u128::MAX);
        Nanos(u64::try_from(ns).unwrap_or(u64::MAX))
    }

    /// Returns how many bytes this rate moves in `time`, rounded down, saturating.
    pub fn bytes_in(self, time: Nanos) -> Bytes {
        let bytes = u128::from(self.0) * u128::from(time.0) / 8_000_000_000;
        Bytes(u64::try_from(bytes).unwrap_or(u64::MAX))
    }

    /// Returns `percent` hundredths of this rate, rounded down, saturating.
    pub fn percent(self, percent: u32) -> Self {
        let rate = u128::from(self.0) * u128::from(percent) / 100;
        Self(u64::try_from(rate).unwrap_or(u64::MAX))
    }
}

const BYTE_UNITS: [(&str, u64); 8] = [
    ("B", 1),
    ("KiB", 1 << 10),
    ("MiB", 1 << 20),
    ("GiB", 1 << 30),
    ("TiB", 1 << 40),
    ("kB", 1_000),
    ("MB", 1_000_000),
    ("GB", 1_000_000_000),
];

const RATE_UNITS: [(&str, u64); 4] =
    [("b/s", 1), ("kb/s", 1_000), ("Mb/s", 1_000_000), ("Gb/s", 1_000_000_000)];

/// What people also write for bytes, as dd, iperf3 and Slurm read it.
const TIME_UNITS: [(&str, u64); 6] = [
    ("ns", 1),
    ("us", 1_000),
    ("ms", 1_000_000),
    ("s", 1_000_000_000),
    ("min", 60_000_000_000),
    ("h", 3_600_000_000_000),
];
/// The short ones of `sleep`.
const OTHER_TIME_UNITS: [(&str, u64); 2] = [("m", 60_000_000_000), ("d", 86_400_000_000_000)];

const OTHER_BYTE_UNITS: [(&str, u64); 7] = [
    ("K", 1 << 10),
    ("k", 1 << 10),
    ("M", 1 << 20),
    ("G", 1 << 30),
    ("T", 1 << 40),
    ("KB", 1_000),
    ("TB", 1_000_000_000_000),
];

/// What people also write for rates, as iperf3, tc and vendors do: a letter alone is of bits, and
/// `B/s` is of bytes.
const OTHER_RATE_UNITS: [(&str, u64); 28] = [
    ("Tb/s", 1_000_000_000_000),
    ("bps", 1),
    ("kbps", 1_000),
    ("Kbps", 1_000),
    ("Mbps", 1_000_000),
    ("Gbps", 1_000_000_000),
    ("Tbps", 1_000_000_000_000),
    ("bit/s", 1),
    ("kbit/s", 1_000),
    ("Mbit/s", 1_000_000),
    ("Gbit/s", 1_000_000_000),
    ("bit", 1),
    ("kbit", 1_000),
    ("mbit", 1_000_000),
    ("Mbit", 1_000_000),
    ("gbit", 1_000_000_000),
    ("Gbit", 1_000_000_000),
    ("k", 1_000),
    ("K", 1_000),
    ("M", 1_000_000),
    ("G", 1_000_000_000),
    ("B/s", 8),
    ("kB/s", 8_000),
    ("MB/s", 8_000_000),
    ("GB/s", 8_000_000_000),
    ("KiB/s", 8 << 10),
    ("MiB/s", 8 << 20),
    ("GiB/s", 8 << 30),
];

/// Why a quantity could not be read.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum UnitError {
    /// The number is missing, negative, not a number, or larger than 64 bits hold.
    Number(String),
    /// The unit is missing or unknown; `known` lists what would work.
    Unit {
        /// The text as it was given.
        text: String,
        /// Units that are understood, comma separated.
        known: &'static str,
    },
}

impl fmt::Display for UnitError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Number(text) => write!(f, "`{text}` has no usable number in front of its unit"),
            Self::Unit { text, known } => write!(f, "`{text}` needs one of the units {known}"),
        }
    }
}

impl core::error::Error for UnitError {}

/// Reads `<number><unit>` with optional space between and up to nine decimals.
fn parse(
    text: &str,
    units: &[(&str, u64)],
    others: &[(&str, u64)],
    known: &'static str,
) -> Result<u64, UnitError> {
    let text = text.trim();
    let split =
        text.find(|c: char| !(c.is_ascii_digit() || c == '.' || c == '_')).unwrap_or(text.len());
    let (number, unit) = text.split_at(split);
    let unit = unit.trim();
    if unit.starts_with(['-', '+']) {
        return Err(UnitError::Number(text.to_string()));
    }
    let scale = units
        .iter()
        .chain(others)
        .find(|(name, _)| *name == unit)
        .map(|(_, scale)| *scale)
        .ok_or_else(|| UnitError::Unit { text: text.to_string(), known })?;
    let bad = || UnitError::Number(text.to_string());
    let (whole, decimals) = number.split_once('.').unwrap_or((number, "0"));
    if whole.is_empty() || decimals.is_empty() || decimals.len() > 9 {
        return Err(bad());
    }
    let whole: u64 = whole.replace('_', "").parse().map_err(|_| bad())?;
    let fraction: u64 = decimals.parse().map_err(|_| bad())?;
    let fraction = u128::from(fraction) * u128::from(scale) / 10u128.pow(decimals.len() as u32);
    u64::try_from(u128::from(whole) * u128::from(scale) + fraction).map_err(|_| bad())
}

/// Writes `value` in the largest unit of `units` that divides it with at most one decimal.
fn show(f: &mut fmt::Formatter<'_>, value: u64, units: &[(&str, u64)]) -> fmt::Result {
    let (name, scale) = units
        .iter()
        .rev()
        .find(|(_, scale)| {
            value >= *scale && (u128::from(value) * 10).is_multiple_of(u128::from(*scale))
        })
        .unwrap_or(&units[0]);
    let tenths = u128::from(value) * 10 / u128::from(*scale);
    if tenths.is_multiple_of(10) {
        write!(f, "{} {name}", tenths / 10)
    } else {
        write!(f, "{}.{} {name}", tenths / 10, tenths % 10)
    }
}

impl fmt::Display for Bytes {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        show(f, self.0, &BYTE_UNITS[..5])
    }
}

impl fmt::Display for BitsPerSec {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        show(f, self.0, &RATE_UNITS)
    }
}

impl FromStr for Bytes {
    type Err = UnitError;
    fn from_str(text: &str) -> Result<Self, UnitError> {
        let known = "B, kB, MB, GB, KiB, MiB, GiB, TiB";
        parse(text, &BYTE_UNITS, &OTHER_BYTE_UNITS, known).map(Self)
    }
}

impl FromStr for BitsPerSec {
    type Err = UnitError;
    fn from_str(text: &str) -> Result<Self, UnitError> {
        parse(text, &RATE_UNITS, &OTHER_RATE_UNITS, "b/s, kb/s, Mb/s, Gb/s").map(Self)
    }
}

impl FromStr for Nanos {
    type Err = UnitError;
    fn from_str(text: &str) -> Result<Self, UnitError> {
        parse(text, &TIME_UNITS, &OTHER_TIME_UNITS, "ns, us, ms, s, min, h").map(Self)
    }
}

impl TryFrom<String> for Bytes {
    type Error = UnitError;
    fn try_from(text: String) -> Result<Self, UnitError> {
        text.parse()
    }
}

impl TryFrom<String> for BitsPerSec {
    type Error = UnitError;
    fn try_from(text: String) -> Result<Self, UnitError> {
        text.parse()
    }
}

impl From<Bytes> for String {
    fn from(value: Bytes) -> Self {
        value.to_string()
    }
}

impl From<BitsPerSec> for String {
    fn from(value: BitsPerSec) -> Self {
        value.to_string()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn parse__takes_what_people_write() {
        assert_eq!("100Mb/s".parse(), Ok(BitsPerSec::mega(100)));
        assert_eq!(" 2.5 Gb/s".parse(), Ok(BitsPerSec(2_500_000_000)));
        assert_eq!("128 KiB".parse(), Ok(Bytes(131_072)));
        assert_eq!("1_400B".parse(), Ok(Bytes(1_400)));
    }

    #[test]
    fn parse__takes_the_units_of_other_programs() {
        for (text, bytes) in [("100M", 100 << 20), ("64K", 64 << 10), ("1.5G", 3 << 29)] {
            assert_eq!(text.parse(), Ok(Bytes(bytes)), "{text}");
        }
        for text in ["10Gbps", "10 Gbit/s", "10gbit", "10G", "1.25GB/s", "0.01Tb/s"] {
            assert_eq!(text.parse(), Ok(BitsPerSec::mega(10_000)), "{text}");
        }
        assert_eq!("12.5MB/s".parse(), Ok(BitsPerSec::mega(100)));
        // One is of bits and one of bytes, and this says neither.
        for text in ["10MBps", "10mb/s", "10Gib/s", "10g"] {
            assert!(matches!(text.parse::<BitsPerSec>(), Err(UnitError::Unit { .. })), "{text}");
        }
    }

    #[test]
    fn parse__refuses_a_bare_number_and_says_what_would_work() {
        let sentence = "100".parse::<BitsPerSec>().unwrap_err().to_string();
        assert_eq!(sentence, "`100` needs one of the units b/s, kb/s, Mb/s, Gb/s");
        for text in ["-1", "-1 B", "+1GiB"] {
            assert!(matches!(text.parse::<Bytes>(), Err(UnitError::Number(_))), "{text}");
        }
        assert!(matches!("99999999999 TiB".parse::<Bytes>(), Err(UnitError::Number(_))));
        assert!(matches!(". B".parse::<Bytes>(), Err(UnitError::Number(_))));
    }

    #[test]
    fn time_for__a_link_of_rate_zero_never_finishes() {
        assert_eq!(BitsPerSec(0).time_for(Bytes(1)), Nanos::MAX);
        assert_eq!(BitsPerSec::mega(100).bytes_in(Nanos::from_millis(1)), Bytes(12_500));
    }

    proptest! {
        #[test]
        fn display__reads_back_as_itself(n in any::<u64>()) {
            prop_assert_eq!(Bytes(n).to_string().parse(), Ok(Bytes(n)));
            prop_assert_eq!(BitsPerSec(n).to_string().parse(), Ok(BitsPerSec(n)));
        }

        #[test]
        fn parse__any_text_gives_an_answer(text in ".*") {
            let _ = text.parse::<Bytes>();
            let _ = text.parse::<BitsPerSec>();
        }
    }
}
