//! Lengths of time in scenarios: text with a unit, from nanoseconds to days, so that one key
//! serves every network. A flag that means a rank at a time is read here too.
//!
//! # Invariants
//! I1. Text without a unit is refused: a laboratory is measured in seconds, a machine in
//!     microseconds.

use std::fmt;
use std::str::FromStr;
use std::time::Duration;

use clearway_proto::base::Nanos;
use serde::{Deserialize, Serialize};

/// A length of time as a scenario writes it: `6s`, `1560us`, `2.5us`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub(crate) struct Time(pub(crate) Nanos);

/// Units that a time is written in.
const UNITS: [(&str, u64); 4] = [("ns", 1), ("us", 1_000), ("ms", 1_000_000), ("s", 1_000_000_000)];

impl Time {
    /// Creates a time of `us` microseconds.
    pub(crate) const fn micros(us: u64) -> Self {
        Self(Nanos::from_micros(us))
    }

    /// Creates a time of `ms` milliseconds.
    pub(crate) const fn millis(ms: u64) -> Self {
        Self(Nanos::from_millis(ms))
    }
}

impl TryFrom<String> for Time {
    type Error = String;
    fn try_from(text: String) -> Result<Self, String> {
        let wrong = |_| {
            format!(
                "`{text}` is no length of time: a number with one of ns, us, ms, s, min, h works"
            )
        };
        text.parse().map(Self).map_err(wrong)
    }
}

impl FromStr for Time {
    type Err = String;
    fn from_str(text: &str) -> Result<Self, String> {
        Self::try_from(text.to_owned())
    }
}

impl From<Time> for String {
    fn from(time: Time) -> Self {
        time.to_string()
    }
}

impl fmt::Display for Time {
    /// Writes the time in the largest unit up to seconds that divides it, so that it reads back the
    /// same.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let ns = self.0.0;
        let (name, scale) =
            UNITS.iter().rev().find(|(_, scale)| ns.is_multiple_of(*scale)).unwrap_or(&UNITS[0]);
        write!(f, "{}{name}", ns / scale)
    }
}

/// Reads a flag that is a number of seconds, or a time with its unit.
pub(crate) fn seconds(text: &str) -> Result<Duration, String> {
    let nanos = match text.parse::<u64>() {
        Ok(seconds) => seconds.checked_mul(1_000_000_000),
        Err(_) => text.parse::<Time>().ok().map(|time| time.0.0),
    };
    let nanos = nanos.filter(|nanos| *nanos >= 1_000_000_000);
    nanos.map(Duration::from_nanos).ok_or_else(|| {
        "it needs seconds, at least one, or a time with its unit; 30 and 2min work".to_owned()
    })
}

/// Reads a flag that is a percentage of `MOST` at most, with or without its sign.
pub(crate) fn percent<const MOST: u32>(text: &str) -> Result<u32, String> {
    let number = text.strip_suffix('%').unwrap_or(text).trim_end().parse::<u32>().ok();
    number
        .filter(|number| *number <= MOST)
        .ok_or_else(|| format!("it is no whole percentage up to {MOST}; {} works", MOST.min(50)))
}

/// A rank and a time, written `RANK@TIME`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct RankAt {
    pub(crate) rank: u32,
    /// After counting began.
    pub(crate) at: Nanos,
}

impl FromStr for RankAt {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let wrong = || {
            format!(
                "`{text}` is no rank and time; 40@2ms works: rank 40, 2 ms after counting began"
            )
        };
        let (rank, at) = text.split_once('@').ok_or_else(wrong)?;
        let at: Time = at.parse().map_err(|_| wrong())?;
        Ok(Self { rank: rank.parse().map_err(|_| wrong())?, at: at.0 })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn time__reads_units_and_decimals_and_writes_what_it_reads() {
        let cases = [
            ("6s", 6_000_000_000, "6s"),
            ("2.5us", 2_500, "2500ns"),
            ("1560us", 1_560_000, "1560us"),
        ];
        for (text, ns, written) in cases.into_iter().chain([
            ("1 min", 60_000_000_000, "60s"),
            ("0s", 0, "0s"),
            ("1h", 3_600_000_000_000, "3600s"),
        ]) {
            let time = Time::try_from(text.to_owned()).expect(text);
            assert_eq!((time.0.0, time.to_string().as_str()), (ns, written));
        }
    }

    #[test]
    fn time__without_unit_or_number_is_refused() {
        for text in [
            "6",
            "s",
            "",
            "-1s",
            "1.s",
            "1y",
            "99999999999999999999s",
            "99999999999s",
            "1.0000000001s",
        ] {
            let refusal = Time::try_from(text.to_owned()).expect_err(text);
            assert!(refusal.ends_with("ns, us, ms, s, min, h works"), "{refusal}");
        }
    }

    #[test]
    fn seconds__a_bare_number_or_a_time_with_its_unit() {
        let read = [("30", 30_000), ("2min", 120_000), ("1500ms", 1_500), ("1h", 3_600_000)];
        for (text, millis) in read {
            assert_eq!(seconds(text), Ok(Duration::from_millis(millis)), "{text}");
        }
        for text in ["0", "0s", "999ms", "", "-1", "1.5", "99999999999999", "1y"] {
            assert!(seconds(text).is_err(), "{text}");
        }
    }

    #[test]
    fn percent__with_or_without_its_sign_up_to_the_most() {
        assert_eq!(
            [percent::<50>("5"), percent::<50>("5%"), percent::<50>("50 %")],
            [Ok(5), Ok(5), Ok(50)]
        );
        for text in ["51", "-1", "", "%", "5%%", "0.5%"] {
            assert!(percent::<50>(text).is_err(), "{text}");
        }
    }

    #[test]
    fn rank_at__is_a_rank_and_a_time() {
        assert_eq!("40@2ms".parse(), Ok(RankAt { rank: 40, at: Nanos(2_000_000) }));
        for text in ["40", "@2ms", "40@", "x@2ms", "40@2", "40@2ms@"] {
            assert!(text.parse::<RankAt>().is_err(), "{text}");
        }
    }
}
