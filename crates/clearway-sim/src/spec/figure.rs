//! Where each number of a fabric comes from and how far it may be trusted, and how numbers with
//! units are written.
//!
//! # Invariants
//! I1. Text without a unit is refused: `100` is neither bits nor bytes, neither nanoseconds nor
//!     picoseconds.

use core::fmt;

use clearway_proto::base::BitsPerSec;

use crate::time::Picos;

/// One number of a fabric file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Figure {
    /// Its key with the tables it stands in: `link.host.rate`.
    pub key: String,
    /// As the file has it.
    pub value: String,
    /// The source that says so.
    pub source: Option<String>,
    /// How far that is to be trusted.
    pub confidence: Option<Confidence>,
}

/// How far a figure is to be trusted, from the most to the least.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Confidence {
    /// Measured on the machine itself.
    Measured,
    /// The maker says so.
    Vendor,
    /// A publication says so.
    Paper,
    /// From the configuration of a system or of another simulator.
    Config,
    /// Nobody says so; it makes the rest come out right.
    Guess,
}

impl Confidence {
    /// All, from the most trusted.
    pub const ALL: [Self; 5] =
        [Self::Measured, Self::Vendor, Self::Paper, Self::Config, Self::Guess];

    /// Returns the name used in files.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Measured => "measured",
            Self::Vendor => "vendor",
            Self::Paper => "paper",
            Self::Config => "config",
            Self::Guess => "guess",
        }
    }
}

impl fmt::Display for Confidence {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.name())
    }
}

/// Units of rates: bits and bytes a second, in thousands.
const RATE_UNITS: [(&str, u64); 10] = [
    ("b/s", 1),
    ("kb/s", 1_000),
    ("Mb/s", 1_000_000),
    ("Gb/s", 1_000_000_000),
    ("Tb/s", 1_000_000_000_000),
    ("B/s", 8),
    ("kB/s", 8_000),
    ("MB/s", 8_000_000),
    ("GB/s", 8_000_000_000),
    ("TB/s", 8_000_000_000_000),
];

/// Units of times.
const TIME_UNITS: [(&str, u64); 5] =
    [("ps", 1), ("ns", 1_000), ("us", 1_000_000), ("ms", 1_000_000_000), ("s", 1_000_000_000_000)];

/// Reads a rate, `42Gb/s` or `5.25GB/s`.
///
/// # Errors
/// What is wrong with the text.
pub(super) fn rate(text: &str) -> Result<BitsPerSec, String> {
    quantity(text, &RATE_UNITS).map(BitsPerSec)
}

/// Reads a time, `350ns` or `1.3us`.
///
/// # Errors
/// What is wrong with the text.
pub(crate) fn time(text: &str) -> Result<Picos, String> {
    quantity(text, &TIME_UNITS).map(Picos)
}

/// Writes a rate so that [`rate`] reads it back.
pub(super) fn write_rate(rate: BitsPerSec) -> String {
    rate.to_string().replace(' ', "")
}

/// Writes a time so that [`time`] reads it back.
pub(crate) fn write_time(time: Picos) -> String {
    let unit = TIME_UNITS
        .iter()
        .rev()
        .find(|(_, scale)| time.0.is_multiple_of(*scale) && time.0 >= *scale);
    let (name, scale) = unit.unwrap_or(&TIME_UNITS[1]);
    format!("{}{name}", time.0 / scale)
}

/// Reads `<number><unit>` with optional space between and up to six decimals; exact, rounded down
/// to whole units.
fn quantity(text: &str, units: &[(&str, u64)]) -> Result<u64, String> {
    let trimmed = text.trim();
    let split = trimmed
        .find(|c: char| !(c.is_ascii_digit() || c == '.' || c == '_'))
        .unwrap_or(trimmed.len());
    let (number, unit) = trimmed.split_at(split);
    let Some((_, scale)) = units.iter().find(|(name, _)| *name == unit.trim()) else {
        let names: Vec<&str> = units.iter().map(|(name, _)| *name).collect();
        return Err(format!("`{text}` needs one of the units {}", names.join(", ")));
    };
    exact(number, *scale)
        .ok_or_else(|| format!("`{text}` has no usable number in front of its unit"))
}

fn exact(number: &str, scale: u64) -> Option<u64> {
    let (whole, decimals) = number.split_once('.').unwrap_or((number, "0"));
    if whole.is_empty() || decimals.is_empty() || decimals.len() > 6 {
        return None;
    }
    let whole: u64 = whole.replace('_', "").parse().ok()?;
    let fraction: u64 = decimals.parse().ok()?;
    let fraction = u128::from(fraction) * u128::from(scale) / 10u128.pow(decimals.len() as u32);
    u64::try_from(u128::from(whole) * u128::from(scale) + fraction).ok()
}

/// Times as text with a unit, for values that are written and read as a whole.
pub(crate) mod picos {
    use serde::de::Error;
    use serde::{Deserialize, Deserializer, Serializer};

    use super::{Picos, time, write_time};

    pub(crate) fn serialize<S: Serializer>(length: &Picos, to: S) -> Result<S::Ok, S::Error> {
        to.serialize_str(&write_time(*length))
    }

    pub(crate) fn deserialize<'de, D: Deserializer<'de>>(from: D) -> Result<Picos, D::Error> {
        time(&String::deserialize(from)?).map_err(D::Error::custom)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn rate__bits_and_bytes_are_distinguished() {
        assert_eq!(rate("5.25GB/s"), Ok(BitsPerSec::mega(42_000)));
        assert_eq!(rate("100 Gb/s"), Ok(BitsPerSec::mega(100_000)));
        assert_eq!(
            rate("100").unwrap_err(),
            "`100` needs one of the units b/s, kb/s, Mb/s, Gb/s, Tb/s, B/s, kB/s, MB/s, GB/s, TB/s"
        );
    }

    #[test]
    fn time__is_exact_down_to_picoseconds() {
        assert_eq!(time("1.3us"), Ok(Picos::from_nanos(1_300)));
        assert_eq!(time("35 ns"), Ok(Picos(35_000)));
        assert_eq!(time("-1ns").unwrap_err(), "`-1ns` needs one of the units ps, ns, us, ms, s");
        assert_eq!(time("1.ns").unwrap_err(), "`1.ns` has no usable number in front of its unit");
    }

    proptest! {
        #[test]
        fn write_time__reads_back_as_itself(picos in any::<u64>()) {
            prop_assert_eq!(time(&write_time(Picos(picos))), Ok(Picos(picos)));
        }

        #[test]
        fn write_rate__reads_back_as_itself(bits in any::<u64>()) {
            prop_assert_eq!(rate(&write_rate(BitsPerSec(bits))), Ok(BitsPerSec(bits)));
        }

        #[test]
        fn quantity__any_text_gives_an_answer(text in ".*") {
            let _ = (rate(&text), time(&text));
        }
    }
}
